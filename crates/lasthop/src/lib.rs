//! The lasthop command: what runs on routers, base stations and mobiles.
//!
//! What researchers use is done by `lasthop-study`, and what many bases share by `lasthop-fleet`, which this
//! finds beside itself, so that it is one command for who has them.

mod cmd;
mod daemon;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use lasthop_units::one_line;

use self::cmd::beside::{FLEET, STUDY};

/// Keep TCP fast and alive across a lossy, moving last hop.
#[derive(Parser, Debug)]
#[command(name = "lasthop", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Serve mobiles: carry their connections to the fixed network
    Base(Box<cmd::base::Options>),
    /// Carry this host's connections over the hop to a base
    Mobile(Box<cmd::mobile::Options>),
    /// Help the TCP connections that cross this host, changing neither end
    Agent(Box<cmd::agent::Options>),
    /// Run a program whose TCP connections go through the mobile
    Exec(cmd::exec::Options),
    /// Make a key pair, or show the public half of one
    Keygen(cmd::keygen::Options),
    /// Show associations, connections, rate, loss and round trip of a running base, mobile or agent
    Status(cmd::status::Options),
    /// Watch a running base, mobile or agent in the terminal, and change priorities
    #[cfg(feature = "views")]
    Top(cmd::top::Options),
    /// Serve a page for a browser on this host that shows a running base, mobile or agent
    #[cfg(feature = "views")]
    Ui(cmd::ui::Options),
    /// Move the connections of a running mobile to another base
    Handoff(cmd::handoff::Options),
    /// Tell a running mobile or agent that its link goes, comes or fades
    Link(cmd::link::Options),
    /// Give some of a running mobile's connections more of the hop than others, or less
    Priority(cmd::priority::Options),
    /// Say which of a running mobile's links carry which connections
    Policy(cmd::policy::Options),
    /// Do for bases what needs CAP_NET_ADMIN, so that they do not
    Helper(cmd::helper::Options),
    /// Emulate a radio between two interfaces or two UDP end points
    Radio(Box<cmd::radio::Options>),
    /// Run many bases as one fleet: who is of it, their keys, and who serves whom
    #[command(disable_help_flag = true)]
    Fleet(cmd::beside::Options),
    /// Show a download crossing a bad radio, by srp and by what else there is
    #[command(disable_help_flag = true)]
    Demo(cmd::beside::Options),
    /// Run a scenario file in the simulated world
    #[command(disable_help_flag = true)]
    Sim(cmd::beside::Options),
    /// Run a published paper's experiments and print its values and ours side by side
    #[command(disable_help_flag = true)]
    Reproduce(cmd::beside::Options),
    /// Measure what protocol processing costs here: Mobile TCP, our TCP/IP and the kernel's
    #[command(disable_help_flag = true)]
    Cost(cmd::beside::Options),
}

/// The command line, for whoever makes manual pages and completions of it. What `lasthop-study` and
/// `lasthop-fleet` do is named in it, and takes any arguments.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the process's command line, and prints its error.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.command {
        Command::Base(o) => cmd::base::run(o),
        Command::Mobile(o) => cmd::mobile::run(o),
        Command::Agent(o) => cmd::agent::run(o),
        Command::Exec(o) => cmd::exec::run(o),
        Command::Keygen(o) => cmd::keygen::run(o),
        Command::Status(o) => cmd::status::run(o),
        #[cfg(feature = "views")]
        Command::Top(o) => cmd::top::run(o),
        #[cfg(feature = "views")]
        Command::Ui(o) => cmd::ui::run(o),
        Command::Handoff(o) => cmd::handoff::run(o),
        Command::Link(o) => cmd::link::run(o),
        Command::Priority(o) => cmd::priority::run(o),
        Command::Policy(o) => cmd::policy::run(o),
        Command::Helper(o) => cmd::helper::run(o),
        Command::Radio(o) => cmd::radio::run(o),
        Command::Fleet(o) => FLEET.run("fleet", o),
        Command::Demo(o) => STUDY.run("demo", o),
        Command::Sim(o) => STUDY.run("sim", o),
        Command::Reproduce(o) => STUDY.run("reproduce", o),
        Command::Cost(o) => STUDY.run("cost", o),
    };
    exit_code(result.map(|()| ExitCode::SUCCESS))
}

/// A command's exit status; an error is printed in one line.
pub fn exit_code(result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(status) => status,
        Err(e) => {
            eprintln!("lasthop: {}", one_line(e.as_ref()));
            ExitCode::FAILURE
        }
    }
}
