//! What `lasthop-study` does: simulations, published experiments, demonstrations.

use std::env;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, bail};
use clap::Args;

const PROGRAM: &str = "lasthop-study";

/// Done by lasthop-study.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// As lasthop-study takes them; --help tells
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Becomes the `lasthop-study` beside this command, with the subcommand `name`.
pub(crate) fn run(name: &str, options: &Options) -> anyhow::Result<()> {
    let own = env::current_exe().context("cannot tell where this command is installed")?;
    let program = own.with_file_name(PROGRAM);
    // Its usage is told as that of the command that was typed.
    let failure = Command::new(&program).arg0("lasthop").arg(name).args(&options.arguments).exec();
    if failure.kind() == ErrorKind::NotFound {
        let place = own.parent().unwrap_or(&own).display();
        bail!(
            "`lasthop {name}` is done by {PROGRAM}, which is not in {place} \
             (Debian's package lasthop-study, or cargo build --release -p lasthop-study-cli)"
        );
    }
    Err(failure).with_context(|| program.display().to_string())
}
