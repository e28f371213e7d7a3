//! The command line.

mod agent;
mod bases;
mod list;
mod operator;

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use lasthop_fleet::commands::Fleet;
use lasthop_fleet::config::FleetFile;

const STEPS: &str = "\
From nothing to a fleet:

  lasthop fleet init trains --endpoints http://192.0.2.9:2379    make a fleet, and a token
  lasthop fleet join TOKEN --name b1 --peer 192.0.2.1:4434 --hop 192.0.2.1:4433
                                                                 on a base's machine
  lasthop fleet agent                                            beside that base, always
  lasthop fleet add-mobile train7 --address 10.9.0.7             make a mobile's files
  lasthop fleet list                                             who is there, and who serves whom";

/// Run many bases as one fleet: who is of it, their keys, and who serves whom, by records in etcd.
/// `lasthop fleet` is `lasthop-fleet`.
#[derive(Parser, Debug)]
#[command(name = "lasthop-fleet", version, max_term_width = 100, after_help = STEPS)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Make a fleet with its first key of tickets, and print a token
    Init(operator::Init),
    /// Print a token with which one base can join
    Token(operator::Token),
    /// Join a fleet as a base, on that base's machine
    Join(bases::Join),
    /// Take this machine's base out of the fleet
    Leave(bases::Leave),
    /// Run beside a base: keep its files as the fleet has it, and tell the fleet how it is
    Agent(agent::Options),
    /// Add a mobile, and write its configuration
    AddMobile(operator::AddMobile),
    /// Take the key of a mobile or a base away, for ever
    Revoke(operator::Revoke),
    /// Make a new key of tickets; the two before it are still taken
    Rotate(operator::Rotate),
    /// Show bases and mobiles, and who serves whom
    List(list::Options),
    /// Mark a base as one to be emptied, and wait until it holds no mobile
    Drain(bases::Drain),
}

/// Which fleet is meant.
#[derive(Args, Clone, Debug)]
struct FleetOptions {
    /// The file that says which fleet, and how its etcd is reached
    #[arg(long, value_name = "FILE", default_value = "/etc/lasthop/fleet.toml")]
    fleet: PathBuf,
}

impl FleetOptions {
    fn load(&self) -> anyhow::Result<FleetFile> {
        Ok(FleetFile::load(&self.fleet)?)
    }

    async fn open(&self) -> anyhow::Result<Fleet> {
        Ok(Fleet::open(self.load()?).await?)
    }
}

/// Does what the command line says.
pub(crate) fn run(cli: &Cli) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("no descriptors are left")?;
    runtime.block_on(async {
        match &cli.command {
            Command::Init(o) => operator::init(o).await,
            Command::Token(o) => operator::token(o).await,
            Command::Join(o) => bases::join(o).await,
            Command::Leave(o) => bases::leave(o).await,
            Command::Agent(o) => agent::run(o).await,
            Command::AddMobile(o) => operator::add_mobile(o).await,
            Command::Revoke(o) => operator::revoke(o).await,
            Command::Rotate(o) => operator::rotate(o).await,
            Command::List(o) => list::run(o).await,
            Command::Drain(o) => bases::drain(o).await,
        }
    })
}

/// Prints; a reader that has seen enough is no error.
fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_and_every_option_is_told() {
        for command in Cli::command().get_subcommands() {
            assert!(command.get_about().is_some(), "{}", command.get_name());
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{} {argument}", command.get_name());
            }
        }
    }
}
