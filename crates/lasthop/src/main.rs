//! The lasthop command.

mod cmd;
mod daemon;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

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
    /// Show associations, connections, rate, loss and round trip of a running base or mobile
    Status(cmd::status::Options),
    /// Watch a running base, mobile or agent in the terminal, and change priorities
    Top(cmd::top::Options),
    /// Serve a page for a browser on this host that shows a running base, mobile or agent
    Ui(cmd::ui::Options),
    /// Move the connections of a running mobile to another base
    Handoff(cmd::handoff::Options),
    /// Tell a running mobile or agent that its link goes, comes or fades
    Link(cmd::link::Options),
    /// Give some of a running mobile's connections more of the hop than others, or less
    Priority(cmd::priority::Options),
    /// Do for bases what needs CAP_NET_ADMIN, so that they do not
    Helper(cmd::helper::Options),
    /// Emulate a radio between two interfaces or two UDP end points
    Radio(Box<cmd::radio::Options>),
    /// Show a download crossing a bad radio, by srp and by what else there is
    Demo(cmd::demo::Options),
    /// Run a scenario file in the simulated world
    Sim(Box<cmd::sim::Options>),
    /// Run a published paper's experiments and print its values and ours side by side
    Reproduce(cmd::reproduce::Options),
    /// Measure what protocol processing costs here: Mobile TCP, our TCP/IP and the kernel's
    Cost(cmd::cost::Options),
    /// Write files that packages hold: manual pages, completions
    #[command(hide = true)]
    Generate(cmd::generate::Options),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.command {
        Command::Base(o) => cmd::base::run(o),
        Command::Mobile(o) => cmd::mobile::run(o),
        Command::Agent(o) => cmd::agent::run(o),
        Command::Exec(o) => cmd::exec::run(o),
        Command::Keygen(o) => cmd::keygen::run(o),
        Command::Status(o) => cmd::status::run(o),
        Command::Top(o) => cmd::top::run(o),
        Command::Ui(o) => cmd::ui::run(o),
        Command::Handoff(o) => cmd::handoff::run(o),
        Command::Link(o) => cmd::link::run(o),
        Command::Priority(o) => cmd::priority::run(o),
        Command::Helper(o) => cmd::helper::run(o),
        Command::Radio(o) => cmd::radio::run(o),
        Command::Demo(o) => cmd::demo::run(o),
        Command::Sim(o) => cmd::sim::run(o),
        Command::Reproduce(o) => cmd::reproduce::run(o),
        Command::Cost(o) => cmd::cost::run(o),
        Command::Generate(o) => cmd::generate::run(o, Cli::command()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("lasthop: {e:#}");
            ExitCode::FAILURE
        }
    }
}
