//! `lasthop radio`: the radio in real time.

mod flags;
mod report;

use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use clap::Args;
use lasthop_emulator::{self as emulator, Control, Port, Ports, Snapshot, UdpLimits, UdpRelay};
use lasthop_kernel::netns::Netns;
use lasthop_radio::{RadioConfig, RadioSettings};
use lasthop_units::{Seed, parse_duration};
use signal_hook::consts::{SIGINT, SIGTERM};

use flags::{BothFlags, DownFlags, UpFlags};

/// How often the command looks whether it shall end.
const TICK: Duration = Duration::from_millis(20);

const EXAMPLES: &str = "\
Examples:
  Two veth interfaces, 20 Mbit/s and 20 ms each way, 5 % of the packets to the mobile lost:
    lasthop radio --mobile to-mobile --base to-base --rate 20Mbit/s --delay 20ms \\
        --queue '100 packets' --down-loss 5%

  Fades of 17 ms for a tenth of the time, and a silence of 2.8 s every 10 s:
    lasthop radio --mobile m0 --base b0 --rate 20Mbit/s --loss 'fade 10% mean 17ms' \\
        --pause '2.8s at 5s every 10s' --stats 1s

  Without privilege, between a mobile that sends to port 7000 and a base at port 7001:
    lasthop radio --listen 127.0.0.1:7000 --forward 127.0.0.1:7001 --loss 20% --json

  A recorded link (a mahimahi trace) down, from a file that says the rest:
    lasthop radio --mobile m0 --base b0 --file radio.toml --down-trace lte.trace

Quantities: rates 20Mbit/s, unlimited; times 20ms, 2.8s; queues '100 packets', 64KiB, 50ms;
losses 5%, 'burst 5% length 3', 'fade 10% mean 17ms', 'fade 10% mean 17ms corrupt'; several at once
with commas. docs/radio.md explains the model.";

/// Emulates a radio in real time, between two interfaces or two UDP end points.
///
/// The mobile is on one side, the base on the other. Flags without --up- or --down- hold for both
/// directions; up is from the mobile to the base. Ends on SIGINT, on SIGTERM or after --duration,
/// and then prints what was really applied.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Options {
    #[command(flatten)]
    ends: Ends,

    /// Read the radio's settings from a TOML file; flags take precedence
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Where the random processes start: the same seed gives the same fades and losses
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// End after this time
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,

    /// Print statistics as JSON, one object a line
    #[arg(long)]
    json: bool,

    /// Print statistics this often, too (on stderr, or with --json on stdout)
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    stats: Option<Duration>,

    /// Both directions fade at the same times, not each by itself
    #[arg(long)]
    shared_fades: bool,

    #[command(flatten)]
    both: BothFlags,
    #[command(flatten)]
    up: UpFlags,
    #[command(flatten)]
    down: DownFlags,
}

/// What the radio joins.
#[derive(Args, Debug)]
#[command(next_help_heading = "Ends")]
struct Ends {
    /// The interface that faces the mobile; `tun:NAME` makes or takes a TUN device
    #[arg(long, value_name = "INTERFACE", requires = "base", conflicts_with = "listen")]
    mobile: Option<String>,

    /// The interface that faces the base; `tun:NAME` makes or takes a TUN device
    #[arg(long, value_name = "INTERFACE", requires = "mobile")]
    base: Option<String>,

    /// The network namespace of --mobile: a name under /run/netns, or a path
    #[arg(long, value_name = "NETNS", requires = "mobile")]
    mobile_netns: Option<String>,

    /// The network namespace of --base: a name under /run/netns, or a path
    #[arg(long, value_name = "NETNS", requires = "base")]
    base_netns: Option<String>,

    /// The UDP address that mobiles send to
    #[arg(long, value_name = "ADDRESS", requires = "forward")]
    listen: Option<SocketAddr>,

    /// The UDP address of the base
    #[arg(long, value_name = "ADDRESS", requires = "listen")]
    forward: Option<SocketAddr>,

    /// How many mobiles may use --listen at once
    #[arg(long, value_name = "N", default_value_t = 1024, requires = "listen")]
    peers: usize,

    /// Forget a mobile that uses --listen after this long without traffic
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "5min",
          requires = "listen")]
    idle: Duration,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let config = config(options)?;
    // Asked for before anything is open, so that no signal goes unheard.
    let stop = stop_on_signal()?;
    let ports = options.ends.open()?;
    let control = Control::new().context("starting the emulator")?;
    let seed = Seed::from_u64(options.seed);
    let snapshot = thread::scope(|scope| {
        let radio = thread::Builder::new()
            .name("radio".into())
            .spawn_scoped(scope, || emulator::run(ports, &config, seed, &control))
            .context("starting a thread")?;
        let watched = wait_for_end(options, &control, &stop, || radio.is_finished());
        control.stop();
        let snapshot = radio.join().map_err(|_| anyhow!("the emulator failed"))??;
        watched.map(|()| snapshot)
    })?;
    print(options, &snapshot, true)
}

fn stop_on_signal() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("listening to signals")?;
    }
    Ok(stop)
}

/// Waits for the end, and shows statistics meanwhile.
fn wait_for_end(
    options: &Options,
    control: &Control,
    stop: &AtomicBool,
    finished: impl Fn() -> bool,
) -> anyhow::Result<()> {
    let start = Instant::now();
    let mut shown = start;
    while !stop.load(Ordering::Relaxed) && !finished() {
        let left = options.duration.map_or(TICK, |d| d.saturating_sub(start.elapsed()));
        if left.is_zero() {
            break;
        }
        thread::sleep(left.min(TICK));
        if options.stats.is_some_and(|every| shown.elapsed() >= every) {
            shown = Instant::now();
            print(options, &control.fresh_snapshot(), false)?;
        }
    }
    Ok(())
}

fn print(options: &Options, snapshot: &Snapshot, last: bool) -> anyhow::Result<()> {
    if options.json {
        writeln!(io::stdout().lock(), "{}", report::json(snapshot, last))?;
    } else if last {
        write!(io::stdout().lock(), "{}", report::table(snapshot))?;
    } else {
        writeln!(io::stderr().lock(), "{}", report::line(snapshot))?;
    }
    Ok(())
}

fn config(options: &Options) -> anyhow::Result<RadioConfig> {
    let mut settings = match &options.file {
        Some(path) => lasthop_control::config::load(path)?,
        None => RadioSettings::default(),
    };
    settings.both = options.both.settings().over(&settings.both);
    settings.up = options.up.settings().over(&settings.up);
    settings.down = options.down.settings().over(&settings.down);
    settings.shared_fades |= options.shared_fades;
    let mut load = |path: &str| fs::read_to_string(path).map_err(|e| e.to_string());
    Ok(settings.resolve(&mut load)?)
}

impl Ends {
    fn open(&self) -> anyhow::Result<Ports> {
        match (&self.mobile, &self.base, self.listen, self.forward) {
            (Some(mobile), Some(base), None, None) => Ok(Ports::interfaces(
                open_in(self.mobile_netns.as_deref(), mobile)?,
                open_in(self.base_netns.as_deref(), base)?,
            )),
            (None, None, Some(listen), Some(forward)) => {
                let limits = UdpLimits { peers: self.peers, idle: self.idle };
                let relay = UdpRelay::bind(listen, forward, limits)
                    .with_context(|| format!("listening at {listen}"))?;
                Ok(Ports::udp(relay))
            }
            _ => bail!("say what to join: --mobile and --base, or --listen and --forward"),
        }
    }
}

fn open_in(netns: Option<&str>, name: &str) -> anyhow::Result<Port> {
    match netns {
        Some(netns) => Netns::open(netns)?.enter(|| open(name))?,
        None => open(name),
    }
}

fn open(name: &str) -> anyhow::Result<Port> {
    match name.strip_prefix("tun:") {
        Some(tun) => Ok(Port::tun(tun)?),
        None => Ok(Port::interface(name)?),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use lasthop_radio::{Pacing, QueueLimit};
    use lasthop_units::Rate;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: Options,
    }

    fn parse(args: &str) -> Options {
        let args = std::iter::once("radio").chain(args.split(' '));
        Cli::try_parse_from(args).expect("parses").options
    }

    #[test]
    fn flags_for_one_direction_override_flags_for_both() {
        let ends = "--mobile a --base b";
        let options = parse(&format!("{ends} --rate 20Mbit/s --queue 64KiB --down-rate 1Mbit/s"));
        let config = config(&options).expect("resolves");
        assert_eq!(config.up.pacing, Pacing::Rate(Rate::from_mbps(20)));
        assert_eq!(config.down.pacing, Pacing::Rate(Rate::from_mbps(1)));
        assert!(matches!(config.down.queue, QueueLimit::Bytes(_)));
    }

    #[test]
    fn ends_go_in_pairs_and_not_both_kinds() {
        let fails = |args: &str| {
            Cli::try_parse_from(std::iter::once("radio").chain(args.split(' '))).is_err()
        };
        assert!(fails("--mobile a"));
        assert!(fails("--listen 127.0.0.1:1"));
        assert!(fails("--mobile a --base b --listen 127.0.0.1:1 --forward 127.0.0.1:2"));
        assert!(parse("--seed 2").ends.open().is_err());
    }
}
