//! The lasthop-fleet command: many bases as one fleet, by records in etcd.

mod cli;

use std::process::ExitCode;

use clap::Parser;
use lasthop_units::one_line;

fn main() -> ExitCode {
    let done = cli::run(&cli::Cli::parse());
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("lasthop: {}", one_line(e.as_ref()));
            ExitCode::FAILURE
        }
    }
}
