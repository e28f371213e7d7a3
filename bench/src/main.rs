//! What speed is claimed, and the runs that show it, peers included.

mod cables;
mod figure;
mod peer;
mod process;
mod pump;
mod report;
mod soak;
mod stage;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use lasthop_units::{Seed, one_line};

use figure::Setting;
use peer::{packet_tunnel, quic_tunnel};
use report::Report;

/// Measure lasthop beside its peers, in namespaces of its own.
#[derive(Parser, Debug)]
#[command(name = "lasthop-bench", version, max_term_width = 100)]
struct Cli {
    /// One JSON object a line instead of a table
    #[arg(long, global = true)]
    json: bool,
    /// Fewer cells, and less time in each
    #[arg(long, global = true)]
    quick: bool,
    /// Only this peer, as the table names it; may be given several times
    #[arg(long = "peer", value_name = "NAME", global = true)]
    peers: Vec<String>,
    /// Only this cell, as the table names it; may be given several times
    #[arg(long = "cell", value_name = "NAME", global = true)]
    cells: Vec<String>,
    /// The lasthop command to measure [default: the one beside this command]
    #[arg(long, value_name = "FILE", global = true)]
    lasthop: Option<PathBuf>,
    /// Where the radio's random processes start
    #[arg(long, value_name = "NUMBER", default_value_t = 1, global = true)]
    seed: u64,
    #[command(subcommand)]
    figure: Figure,
}

#[derive(Subcommand, Debug)]
enum Figure {
    /// The share of a losing radio's limit that is used
    Loss,
    /// What it costs that fixed hosts are acknowledged what the mobile has
    Acknowledge,
    /// How soon a transfer goes on after the radio was silent
    Silence,
    /// How long 100 kB take on a new connection
    Small,
    /// How soon a first transfer has the radio's full rate
    Start,
    /// A rate that falls from 20 to 4 Mbit/s and rises again
    Step,
    /// How two share one radio
    Fair,
    /// Speed and CPU on a clean path
    Clean,
    /// CPU per GB on a clean path of 1 Gbit/s, beside SRP's
    Cost,
    /// Where a datagram's nanoseconds go, and what each part of its way costs by itself
    Budget,
    /// 500 connections at once
    Many,
    /// How long connections stand still when the mobile moves to another base
    Handoff,
    /// What a download costs both ends at 2, 20 and 100 Mbit/s: CPU and system calls
    Wakeups,
    /// What it costs that the process at an end is stopped for milliseconds, again and again
    Stalls,
    /// What it costs to take packets through a process, by the ways that Linux has
    Forward,
    /// Packets through TUN devices, full and small, beside a plain tunnel and the kernel's own forwarding
    Tun,
    /// A download by two links at once, beside the better of them, and the kernel's multipath TCP
    Bond,
    /// A download by QUIC, as packets on the hop and by itself
    Quic,
    /// The simulator and kernels side by side, scheme by scheme: does the simulation tell the truth?
    Twin(figure::twin::Options),
    /// Two downloads whose priorities are changed while they run
    Priority,
    /// What agents in the path bring kernels, and what they must not cost
    Agents,
    /// What floods of a base cost those who use it, and those who come meanwhile
    Attack,
    /// What idle associations and connections cost a base, and what they cost those beside them
    Scale,
    /// Hours of moves, silences, floods and restarts: is every byte right, and does anything grow?
    Soak(soak::Options),
    /// All of these but `twin` and `soak`
    All,
    /// Lets every packet of netfilter queue 0 pass
    #[command(hide = true)]
    AnswerQueue,
    /// An end of the plain tunnel of packets
    #[command(hide = true)]
    PacketTunnel(packet_tunnel::Options),
    /// The base's end of the QUIC tunnel
    #[command(hide = true)]
    QuicBase(quic_tunnel::BaseOptions),
    /// The mobile's end of the QUIC tunnel
    #[command(hide = true)]
    QuicMobile(quic_tunnel::MobileOptions),
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(missed) => {
            eprintln!("lasthop-bench: {missed} claims missed");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("lasthop-bench: {}", one_line(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// Runs what was asked for, and tells how many claims were missed.
fn run(cli: &Cli) -> Result<usize> {
    let figures: &[fn(&Setting, &mut Report)] = match &cli.figure {
        Figure::Loss => &[figure::loss::run],
        Figure::Acknowledge => &[figure::acknowledge::run],
        Figure::Silence => &[figure::silence::run],
        Figure::Small => &[figure::small::run],
        Figure::Start => &[figure::start::run],
        Figure::Step => &[figure::step::run],
        Figure::Fair => &[figure::fair::run],
        Figure::Clean => &[figure::clean::run],
        Figure::Cost => &[figure::cost::run],
        Figure::Budget => &[figure::budget::run],
        Figure::Many => &[figure::many::run],
        Figure::Wakeups => &[figure::wakeups::run],
        Figure::Stalls => &[figure::stalls::run],
        Figure::Handoff => &[figure::handoff::run],
        Figure::Twin(_) | Figure::Soak(_) => &[],
        Figure::Forward => &[figure::forward::run],
        Figure::Tun => &[figure::tun::run],
        Figure::Bond => &[figure::bond::run],
        Figure::Quic => &[figure::quic::run],
        Figure::Priority => &[figure::priority::run],
        Figure::Agents => &[figure::agents::run],
        Figure::Attack => &[figure::attack::run],
        Figure::Scale => &[figure::scale::run],
        Figure::All => &[
            figure::loss::run,
            figure::silence::run,
            figure::small::run,
            figure::start::run,
            figure::step::run,
            figure::fair::run,
            figure::many::run,
            figure::handoff::run,
            figure::priority::run,
            figure::agents::run,
            figure::attack::run,
            figure::scale::run,
            figure::clean::run,
            figure::cost::run,
            figure::budget::run,
            figure::wakeups::run,
            figure::stalls::run,
            figure::forward::run,
            figure::tun::run,
            figure::quic::run,
            figure::bond::run,
        ],
        Figure::AnswerQueue => return figure::forward::nfqueue::run().map(|()| 0),
        Figure::PacketTunnel(options) => return packet_tunnel::run(options).map(|()| 0),
        Figure::QuicBase(options) => return quic_tunnel::run_base(options).map(|()| 0),
        Figure::QuicMobile(options) => return quic_tunnel::run_mobile(options).map(|()| 0),
    };
    let (only, cells) = (cli.peers.clone(), cli.cells.clone());
    let seed = Seed::from_u64(cli.seed);
    let setting = Setting { quick: cli.quick, only, cells, notes: None, seed };
    let mut report = Report::new(cli.json);
    if let Figure::Twin(options) = &cli.figure {
        if !options.simulated {
            process::choose_lasthop(cli.lasthop.as_deref())?;
        }
        figure::twin::run(options, &setting, cli.seed, &mut report)?;
        return Ok(report.missed());
    }
    setting.check(figures)?;
    process::choose_lasthop(cli.lasthop.as_deref())?;
    if let Figure::Soak(options) = &cli.figure {
        soak::run(options, cli.seed, &mut report);
    }
    for figure in figures {
        figure(&setting, &mut report);
    }
    Ok(report.missed())
}
