use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use lasthop_control as control;
use lasthop_units::{Time, parse_duration};
use lasthop_watch::history::History;
use lasthop_watch::sample::Sample;
use lasthop_watch::top;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::cmd::watch;

/// More often would cost the process more than it tells.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
const INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// Shows what a running base, mobile or agent does, as it does it: associations, connections,
/// programs, rates, losses, queue, handoffs. Up and down select, + and - change the priority of what
/// is selected, tab switches between connections and programs, s sorts, ? explains, q quits.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// The control socket of the process [default: those of `mobile`, `base` and `agent` on this
    /// host, whichever answers first]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,

    /// How often to look, and over what time rates are measured
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "1s")]
    interval: Duration,

    /// Print plain tables once, after one interval, and end
    #[arg(long)]
    once: bool,

    /// Print one JSON object a line for each interval, until interrupted
    #[arg(long)]
    json: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text).map_err(|e| e.to_string())?;
    if !(INTERVAL_MIN..=INTERVAL_MAX).contains(&interval) {
        return Err("an interval is from 100ms to 1h".to_owned());
    }
    Ok(interval)
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let control = watch::socket(options.control.as_deref())?;
    if options.once || options.json {
        return print(options, &control);
    }
    if !io::stdout().is_terminal() {
        bail!("this is no terminal: --once prints tables, --json objects");
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .context("signals cannot be caught")?;
    }
    top::run(&control, options.interval, &stop).context("the terminal cannot be used")
}

fn print(options: &Options, control: &Path) -> anyhow::Result<()> {
    let start = Instant::now();
    let mut history = History::new(0);
    let mut look = || -> anyhow::Result<Sample> {
        let report = control::query(control)
            .with_context(|| format!("nobody answers on {}", control.display()))?;
        Ok(history.feed(Time::ZERO + start.elapsed(), &report))
    };
    look()?;
    loop {
        thread::sleep(options.interval);
        let sample = look()?;
        let text = match options.json {
            true => format!("{}\n", serde_json::to_string(&sample)?),
            false => top::to_text(&sample),
        };
        let mut out = io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            result => result?,
        }
        if options.once {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_neither_too_short_nor_too_long() {
        assert_eq!(interval("2s"), Ok(Duration::from_secs(2)));
        for bad in ["1ms", "2h", "soon"] {
            assert!(interval(bad).is_err(), "{bad}");
        }
    }
}
