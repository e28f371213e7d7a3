//! What `base`, `mobile` and `agent` have in common: settings, logs, signals, the descriptor limit.

use std::io::{self, IsTerminal};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use lasthop_control::config::{self, ConfigError};
use lasthop_control::settings::Setting;
use lasthop_kernel::stop::Stop;
use rustix::process::{Resource, getrlimit, setrlimit};
use serde::de::DeserializeOwned;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

/// As `--log` takes them.
const LEVELS: &str = "off, error, warn, info, debug or trace";

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

/// A role's settings, from a file and from flags.
#[derive(Args, Clone, Debug)]
pub(crate) struct Settings<T: Args> {
    /// Read the configuration from FILE
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    #[command(flatten)]
    flags: T,
}

impl<T: Args + Clone + DeserializeOwned + Setting> Settings<T> {
    /// The role's configuration; flags win over the file.
    pub(crate) fn resolve<C: TryFrom<T, Error = ConfigError>>(&self) -> Result<C, ConfigError> {
        self.read()?.try_into()
    }

    /// The role's settings as they were written; flags win over the file.
    pub(crate) fn read(&self) -> Result<T, ConfigError> {
        let Some(path) = &self.config else { return Ok(self.flags.clone()) };
        let mut file: T = config::load(path)?;
        file.lay(self.flags.clone());
        Ok(file)
    }

    /// From where they are, for people.
    pub(crate) fn place(&self) -> String {
        self.config
            .as_ref()
            .map_or_else(|| "the flags".to_owned(), |path| path.display().to_string())
    }
}

/// Keeps this process's memory to itself, starts logging to standard error, and turns SIGTERM and SIGINT
/// into requests to stop.
pub(crate) fn prepare(options: &LogOptions) -> anyhow::Result<Stop> {
    lasthop_kernel::memory::give_back_large_blocks();
    lasthop_kernel::memory::withhold().context("memory cannot be kept out of core dumps")?;
    let wanted = parse_targets(&options.log).context("--log")?;
    let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(wanted);
    if options.log_json {
        registry.with(log.json().flatten_event(true)).init();
    } else {
        registry.with(log.with_ansi(std::io::stderr().is_terminal()).with_target(false)).init();
    }
    raise_descriptor_limit();
    let stop = Stop::new().context("no descriptors are left")?;
    for signal in [SIGTERM, SIGINT] {
        catch(signal, stop.writer())?;
    }
    Ok(stop)
}

/// Turns SIGHUP into a request to read the configuration again.
pub(crate) fn reload_on_hangup(stop: &Stop) -> anyhow::Result<()> {
    catch(SIGHUP, stop.reload_writer())
}

/// Tells the service manager, if one has started this process and wants to know, that it serves.
pub(crate) fn notify_ready() {
    if let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Ready]) {
        tracing::warn!(%error, "the service manager is not told that this serves");
    }
}

/// Has a signal write to a descriptor.
fn catch(signal: i32, writer: io::Result<UnixStream>) -> anyhow::Result<()> {
    let writer = writer.context("no descriptors are left")?;
    signal_hook::low_level::pipe::register(signal, writer).context("signals cannot be caught")?;
    Ok(())
}

/// Parses a list of `LEVEL`, `PART=LEVEL` and bare names of our parts, which are logged in full. The
/// longest name of a part that fits decides; an empty list means errors alone.
fn parse_targets(text: &str) -> anyhow::Result<Targets> {
    let mut wanted = Targets::new();
    if text.trim().is_empty() {
        wanted = wanted.with_default(LevelFilter::ERROR);
    }
    for directive in text.split(',').map(str::trim).filter(|text| !text.is_empty()) {
        let level = |text: &str| text.parse::<LevelFilter>().ok().filter(|_| !text.is_empty());
        wanted = match (directive.split_once('='), level(directive)) {
            (None, Some(level)) => wanted.with_default(level),
            (None, None) if is_part(directive) && directive.starts_with("lasthop") => {
                wanted.with_target(directive, LevelFilter::TRACE)
            }
            (None, None) => bail!("`{directive}` is not a level ({LEVELS})"),
            (Some((part, text)), _) => match level(text) {
                Some(level) if is_part(part) => wanted.with_target(part, level),
                Some(_) => bail!("`{directive}`: `{part}` is no part's name"),
                None => bail!("`{directive}`: `{text}` is not a level ({LEVELS})"),
            },
        };
    }
    Ok(wanted)
}

/// Whether it may be the name of a crate or a module.
fn is_part(text: &str) -> bool {
    let fits = |c: char| c.is_alphanumeric() || ['_', '-', ':'].contains(&c);
    !text.is_empty() && text.chars().all(fits)
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

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn what_is_logged_is_told_by_level_and_by_part() {
        let all = parse_targets("info,lasthop_daemon::base=debug,lasthop_hop=off, lasthop_path ")
            .unwrap();
        assert!(all.would_enable("lasthop_daemon::mobile", &Level::INFO));
        assert!(!all.would_enable("lasthop_daemon::mobile", &Level::DEBUG));
        assert!(all.would_enable("lasthop_daemon::base::handoff", &Level::DEBUG));
        assert!(!all.would_enable("lasthop_daemon::base", &Level::TRACE));
        assert!(!all.would_enable("lasthop_hop", &Level::ERROR));
        assert!(all.would_enable("lasthop_path", &Level::TRACE));
        for level in ["WARN", "warn", "info,warn", "2", "warn,"] {
            let all = parse_targets(level).unwrap();
            assert!(all.would_enable("any", &Level::WARN), "{level}");
            assert!(!all.would_enable("any", &Level::INFO), "{level}");
        }
        assert!(parse_targets("").unwrap().would_enable("any", &Level::ERROR));
        assert!(!parse_targets("lasthop_daemon=debug").unwrap().would_enable("any", &Level::ERROR));
    }

    #[test]
    fn what_is_no_level_is_said() {
        for (text, said) in [
            ("loud", "`loud` is not a level (off, error, warn, info, debug or trace)"),
            ("info,inf", "`inf` is not a level (off, error, warn, info, debug or trace)"),
            ("a=b", "`a=b`: `b` is not a level (off, error, warn, info, debug or trace)"),
            ("a=", "`a=`: `` is not a level (off, error, warn, info, debug or trace)"),
            ("=info", "`=info`: `` is no part's name"),
            ("[span]=info", "`[span]=info`: `[span]` is no part's name"),
        ] {
            assert_eq!(parse_targets(text).unwrap_err().to_string(), said);
        }
    }
}
