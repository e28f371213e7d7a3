//! What programs beside this one do: simulations, published experiments and demonstrations; fleets.

use std::env;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, bail};
use clap::Args;

/// Done by another program.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// As that program takes them; --help tells
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// A program that is found beside this command.
#[derive(Debug)]
pub(crate) struct Program {
    name: &'static str,
    /// The package of ours that makes it.
    package: &'static str,
    /// Whether it has one command, which is this command's subcommand, rather than several.
    whole: bool,
}

/// What researchers use, and demonstrations.
pub(crate) const STUDY: Program =
    Program { name: "lasthop-study", package: "lasthop-study-cli", whole: false };

/// Many bases as one.
pub(crate) const FLEET: Program =
    Program { name: "lasthop-fleet", package: "lasthop-fleet", whole: true };

impl Program {
    /// Becomes this program, for the subcommand `name`.
    pub(crate) fn run(&self, name: &str, options: &Options) -> anyhow::Result<()> {
        let own = env::current_exe().context("cannot tell where this command is installed")?;
        let program = own.with_file_name(self.name);
        let mut command = Command::new(&program);
        // Its usage is told as that of the command that was typed.
        if self.whole {
            command.arg0(format!("lasthop {name}"));
        } else {
            command.arg0("lasthop").arg(name);
        }
        let failure = command.args(&options.arguments).exec();
        if failure.kind() == ErrorKind::NotFound {
            let place = own.parent().unwrap_or(&own).display();
            let Self { name: program, package, .. } = self;
            bail!(
                "`lasthop {name}` is done by {program}, which is not in {place} \
                 (Debian's package {program}, or cargo build --release -p {package})"
            );
        }
        Err(failure).with_context(|| program.display().to_string())
    }
}
