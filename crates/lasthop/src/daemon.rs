//! What `base` and `mobile` have in common: logs, signals, the descriptor limit.

use std::io::IsTerminal;

use anyhow::Context;
use clap::Args;
use lasthop_daemon::config::{Inflight, KeyText, MobileTcpFile};
use lasthop_kernel::stop::Stop;
use lasthop_units::Bytes;
use rustix::process::{Resource, getrlimit, setrlimit};
use signal_hook::consts::{SIGINT, SIGTERM};
use tracing_subscriber::EnvFilter;

/// How much is logged, and how.
#[derive(Args, Debug)]
pub(crate) struct LogOptions {
    /// What is logged: error, warn, info, debug or trace, also by part
    /// (info,lasthop_daemon::base=debug)
    #[arg(long, value_name = "LEVEL", env = "LASTHOP_LOG", default_value = "info")]
    log: String,

    /// Log one JSON object a line
    #[arg(long)]
    log_json: bool,
}

/// Mobile TCP's settings that are worth a flag.
#[derive(Args, Debug)]
pub(crate) struct MobileTcpOptions {
    /// What a connection of mobile-tcp may receive before it is read, at most 32767 bytes
    /// [default: 16KiB]
    #[arg(long, value_name = "SIZE", value_parser = MobileTcpFile::parse_window)]
    window: Option<Bytes>,

    /// What all connections of mobile-tcp together may have on their way, or none for no bound
    /// [default: 64KiB on udp, none on ethernet]
    #[arg(long, value_name = "SIZE")]
    inflight: Option<Inflight>,
}

impl MobileTcpOptions {
    /// Flags win over the file.
    pub(crate) fn apply(&self, file: &mut MobileTcpFile) {
        file.window = self.window.or(file.window);
        file.inflight = self.inflight.or(file.inflight);
    }
}

/// Starts logging to standard error, and turns SIGTERM and SIGINT into requests to stop.
pub(crate) fn prepare(options: &LogOptions) -> anyhow::Result<Stop> {
    let filter = EnvFilter::builder()
        .parse(&options.log)
        .with_context(|| format!("--log: `{}` is not understood", options.log))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if options.log_json {
        log.json().flatten_event(true).init();
    } else {
        log.with_ansi(std::io::stderr().is_terminal()).with_target(false).init();
    }
    raise_descriptor_limit();
    let stop = Stop::new().context("no descriptors are left")?;
    for signal in [SIGTERM, SIGINT] {
        let writer = stop.writer().context("no descriptors are left")?;
        signal_hook::low_level::pipe::register(signal, writer)
            .context("signals cannot be caught")?;
    }
    Ok(stop)
}

/// Each connection takes up to two descriptors, and the usual soft limit is 1024.
fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(%error, "the limit of open files stays as it is");
        }
    }
}

/// A list given by flags replaces the file's.
pub(crate) fn replace<T: Clone>(file: &mut Option<Vec<T>>, flags: &[T]) {
    if !flags.is_empty() {
        *file = Some(flags.to_vec());
    }
}

/// Reads a public key from a flag.
pub(crate) fn public_key(text: &str) -> Result<KeyText, String> {
    text.parse().map(KeyText).map_err(|e| format!("{e}"))
}
