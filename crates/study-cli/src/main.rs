//! The lasthop-study command: what researchers use, and demonstrations.

mod cost;
mod demo;
mod generate;
mod reproduce;
mod sim;
mod terminal;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Simulate, reproduce and measure ways of keeping TCP fast and alive across a lossy, moving last
/// hop. `lasthop sim` is `lasthop-study sim`, and so are the others.
#[derive(Parser, Debug)]
#[command(name = "lasthop-study", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Show a download crossing a bad radio, by srp and by what else there is
    Demo(demo::Options),
    /// Run a scenario file in the simulated world
    Sim(Box<sim::Options>),
    /// Run a published paper's experiments and print its values and ours side by side
    Reproduce(reproduce::Options),
    /// Measure what protocol processing costs here: Mobile TCP, our TCP/IP and the kernel's
    Cost(cost::Options),
    /// Write files that packages hold: manual pages, completions
    #[command(hide = true)]
    Generate(generate::Options),
}

/// The `lasthop` command with all that is done for it here.
fn whole() -> clap::Command {
    let own = Cli::command();
    let shown = own.get_subcommands().filter(|sub| !sub.is_hide_set());
    shown.fold(lasthop::command(), |whole, sub| {
        whole.mut_subcommand(sub.get_name(), |_| sub.clone())
    })
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.command {
        Command::Demo(o) => demo::run(o),
        Command::Sim(o) => sim::run(o),
        Command::Reproduce(o) => return lasthop::exit_code(reproduce::run(o)),
        Command::Cost(o) => cost::run(o),
        Command::Generate(o) => generate::run(o, whole()),
    };
    lasthop::exit_code(result.map(|()| ExitCode::SUCCESS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_say_the_same_of_what_both_have() {
        let own = Cli::command();
        let router = lasthop::command();
        for sub in own.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            let there = router.find_subcommand(sub.get_name()).unwrap();
            let about = |command: &clap::Command| command.get_about().unwrap().to_string();
            assert_eq!(about(there), about(sub));
        }
    }
}
