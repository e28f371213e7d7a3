//! The agent as a process.

use std::io::IsTerminal;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use lasthop_control as control;
use lasthop_fleet::agent::{self, AgentOptions};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

use super::FleetOptions;

const DETAILS: &str = "\
Writes members.toml and the keys of tickets beside FILE, whenever the fleet has changed, and has the base
read them. While etcd is away they stay as they are. It says so once, tries again, and is told all that has
changed when etcd is back. SIGTERM ends it; the base goes on.";

/// Runs beside a base.
#[derive(Args, Debug)]
#[command(after_help = DETAILS)]
pub(super) struct Options {
    #[command(flatten)]
    fleet: FleetOptions,

    /// The control socket of the base [default: that of `base` on this host]
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,

    /// What is logged: error, warn, info, debug or trace, also by part
    #[arg(long, value_name = "LEVEL", env = "LASTHOP_LOG", default_value = "info")]
    log: String,

    /// Log one JSON object a line
    #[arg(long)]
    log_json: bool,
}

pub(super) async fn run(options: &Options) -> anyhow::Result<()> {
    log(options)?;
    lasthop_kernel::memory::withhold().context("memory cannot be kept out of core dumps")?;
    let file = options.fleet.load()?;
    let path = std::path::absolute(&options.fleet.fleet)?;
    let folder = path.parent().context("--fleet names no file")?.to_owned();
    let control = options.control.clone().unwrap_or_else(|| control::known_path("base"));
    let options = AgentOptions::of(&file, folder, control)?;
    let mut terminate = signal(SignalKind::terminate()).context("signals cannot be caught")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("signals cannot be caught")?;
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    Ok(agent::run(options, stop).await?)
}

fn log(options: &Options) -> anyhow::Result<()> {
    let wanted: Targets = options.log.parse().context("--log")?;
    let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(wanted);
    if options.log_json {
        registry.with(log.json().flatten_event(true)).init();
    } else {
        registry.with(log.with_ansi(std::io::stderr().is_terminal()).with_target(false)).init();
    }
    Ok(())
}
