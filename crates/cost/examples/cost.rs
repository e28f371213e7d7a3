//! Measures and prints JSON: `cargo run --release -p lasthop-cost --example cost -- quick|full`.

use lasthop_cost::{Options, measure};

fn main() {
    let full = std::env::args().nth(1).is_some_and(|effort| effort == "full");
    let options = if full { Options::full() } else { Options::quick() };
    let measured = measure(&options, &mut |line| eprintln!("{line}"));
    match serde_json::to_string_pretty(&measured) {
        Ok(json) => println!("{json}"),
        Err(error) => eprintln!("no JSON: {error}"),
    }
}
