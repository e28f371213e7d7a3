//! The lasthop command.

use std::process::ExitCode;

fn main() -> ExitCode {
    lasthop::run()
}
