//! `lasthop demo bond`: a train with two modems and a dish uses them together.

mod picture;
mod table;

use std::fmt;
use std::path::Path;

use anyhow::bail;
use clap::{Args, ValueEnum};
use lasthop_lab::LabError;
use lasthop_lab::bond::{self, Bond, Load, Way, interfaces};
use lasthop_lab::cell::Silence;
use lasthop_lab::client::Stop;
use lasthop_lab::topology::{Family, Topology, link};
use lasthop_lab::transfer::Direction;
use lasthop_radio::{Errors, Loss, RadioConfig};
use lasthop_units::{Duration, Rate, Seed, parse_duration};

use picture::Picture;

/// How long connecting, and the wait for the first byte, may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long a way may take to find its rates, at most.
const SETTLE: Duration = Duration::from_secs(4);
/// How long the tunnel is, at most.
const TUNNEL: Duration = Duration::from_secs(4);
/// The mean fade, and their share of the time.
const FADES: Errors = Errors::Fade { mean: Duration::from_millis(17), share: 0.1 };
/// Packets that wait at a radio, at most.
const QUEUE: u32 = 100;
const LOADS: [Direction; 2] = [Direction::Download, Direction::Upload];

/// Shows a train with two modems and a dish: a download, an upload and a call at once, by all links
/// together, by the kernel's multipath TCP, by each link alone, and by the one that is there. One
/// modem fades, the other goes dark in a tunnel. Everything runs in network namespaces of its own,
/// which vanish with the command.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// How long each way is measured, from a second on, after at most 4 s to settle
    #[arg(long = "for", value_name = "TIME", default_value = "15s", value_parser = measured_time)]
    lasting: Duration,

    /// Only this way; may be given several times
    #[arg(long, value_name = "WAY")]
    only: Vec<Scheme>,

    /// Where random processes start
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Everybody meets by IPv6
    #[arg(long)]
    ipv6: bool,

    /// One JSON object a line for each way, instead of a picture and a table
    #[arg(long)]
    json: bool,
}

fn measured_time(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).map_err(|e| e.to_string())?;
    let allowed = Duration::from_secs(1)..=Duration::from_secs(3600);
    if allowed.contains(&time) { Ok(time) } else { Err("not from 1s to 1h".to_owned()) }
}

/// A way to use the links.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Scheme {
    /// srp by all links together
    Bond,
    /// The kernel's multipath TCP, CUBIC
    MptcpCubic,
    /// The kernel's multipath TCP, BBR
    MptcpBbr,
    /// srp by the first modem alone
    #[value(name = "srp-modem-1")]
    SrpModem1,
    /// srp by the second modem alone
    #[value(name = "srp-modem-2")]
    SrpModem2,
    /// srp by the dish alone
    SrpDish,
    /// srp by the first modem, and by the second while the first is dark, as soon as it is
    SrpSwitch,
}

impl Scheme {
    fn way(self) -> Way {
        let alone = |n: usize| Way::Srp(interfaces(3).split_off(n).into_iter().take(1).collect());
        match self {
            Self::Bond => Way::Srp(interfaces(3)),
            Self::MptcpCubic => Way::Multipath("cubic".to_owned()),
            Self::MptcpBbr => Way::Multipath("bbr".to_owned()),
            Self::SrpModem1 => alone(0),
            Self::SrpModem2 => alone(1),
            Self::SrpDish => alone(2),
            Self::SrpSwitch => Way::Switch,
        }
    }

    /// Whether it carries more than TCP.
    fn has_packets(self) -> bool {
        !matches!(self, Self::MptcpCubic | Self::MptcpBbr)
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.pad(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// A link of the train.
struct Link {
    name: &'static str,
    mbps: u64,
    /// One way.
    ms: u64,
    fades: bool,
}

/// The first of these is the one that goes dark.
const LINKS: [Link; 3] = [
    Link { name: "modem 1", mbps: 20, ms: 20, fades: false },
    Link { name: "modem 2", mbps: 10, ms: 35, fades: true },
    Link { name: "dish", mbps: 20, ms: 200, fades: false },
];

impl Link {
    fn radio(&self) -> RadioConfig {
        let mut link = link(Rate::from_mbps(self.mbps), Duration::from_millis(self.ms), QUEUE);
        if self.fades {
            link.losses.push(Loss::lose(FADES));
        }
        RadioConfig { shared_fades: true, ..RadioConfig::both(link) }
    }
}

impl Options {
    fn schemes(&self) -> Vec<Scheme> {
        let wanted = |scheme: &&Scheme| self.only.is_empty() || self.only.contains(scheme);
        Scheme::value_variants().iter().filter(wanted).copied().collect()
    }

    fn topology(&self) -> Topology {
        let [first, second, third] = LINKS.map(|link| link.radio());
        let seed = Seed::from_u64(self.seed);
        Topology { radio: first, beside: vec![second, third], seed, ..Topology::default() }
    }

    /// The tunnel.
    fn dark(&self) -> Silence {
        Silence { after: self.lasting / 3, lasting: TUNNEL.min(self.lasting / 4) }
    }

    fn settle(&self) -> Duration {
        SETTLE.min(self.lasting)
    }
}

/// What became of a way.
#[derive(Debug)]
enum Outcome {
    Measured(bond::Outcome),
    /// The kernel lacks what the way needs.
    Unavailable(String),
    Failed(String),
}

impl Outcome {
    fn is_good(&self) -> bool {
        match self {
            Self::Measured(measured) => measured.transfers.iter().all(|m| m.sha256_ok),
            Self::Unavailable(_) => true,
            Self::Failed(_) => false,
        }
    }
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let program = super::program()?;
    super::require_namespaces()?;
    let stop = super::stop_on_signals()?;
    let picture = Picture::new(options);
    let mut outcomes = Vec::new();
    for scheme in options.schemes() {
        let outcome = ride(scheme, options, &program, &stop, &picture);
        if stop.is_set() {
            picture.live.finish();
            bail!("interrupted");
        }
        picture.live.line(&format!("{scheme:<12} {}", table::summary(&outcome)));
        if options.json {
            let line = table::json(scheme, &outcome)?;
            picture.live.suspend(|| println!("{line}"));
        }
        outcomes.push((scheme, outcome));
    }
    picture.live.finish();
    if !options.json {
        print!("{}", table::table(&table::title(options), &outcomes));
    }
    let bad = outcomes.iter().filter(|(_, outcome)| !outcome.is_good());
    let bad: Vec<String> = bad.map(|(scheme, _)| scheme.to_string()).collect();
    if !bad.is_empty() {
        bail!("not everything went as it should: {}", bad.join(", "));
    }
    Ok(())
}

fn ride(
    scheme: Scheme,
    options: &Options,
    program: &Path,
    stop: &Stop,
    picture: &Picture,
) -> Outcome {
    let family = if options.ipv6 { Family::V6 } else { Family::V4 };
    let load = Load { transfers: LOADS.to_vec(), family, call: scheme.has_packets() };
    let mut tell = |sight: &bond::Sight| picture.show(scheme, sight);
    let mut measured = || {
        let more = (Vec::new(), PATIENCE);
        let mut bond = Bond::start(options.topology(), &scheme.way(), &load, program, more)?;
        bond.watch(options.settle(), stop, &mut tell)?;
        bond.measure(options.lasting, Some(options.dark()), stop, &mut tell)
    };
    match measured() {
        Ok(measured) => Outcome::Measured(measured),
        Err(e @ (LabError::NoMultipath | LabError::NoCongestionControl(_))) => {
            Outcome::Unavailable(e.to_string())
        }
        Err(e) => Outcome::Failed(e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn options(arguments: &[&str]) -> Result<Options, clap::Error> {
        let line = Line::try_parse_from(std::iter::once(&"bond").chain(arguments));
        line.map(|line| line.options)
    }

    #[test]
    fn ways_can_be_chosen_and_have_their_links() {
        assert_eq!(options(&[]).unwrap().schemes().len(), 7);
        let chosen = options(&["--only", "srp-dish", "--only", "bond"]).unwrap().schemes();
        assert_eq!(chosen, [Scheme::Bond, Scheme::SrpDish]);
        assert!(options(&["--only", "dish"]).is_err());
        let links = |scheme: Scheme| match scheme.way() {
            Way::Srp(links) => links,
            other => panic!("{other:?}"),
        };
        assert_eq!(links(Scheme::Bond), ["radio0", "radio1", "radio2"]);
        assert_eq!(links(Scheme::SrpModem1), ["radio0"]);
        assert_eq!(links(Scheme::SrpDish), ["radio2"]);
    }

    #[test]
    fn the_tunnel_lies_within_what_is_measured() {
        for time in ["1s", "2.5s", "15s", "1h"] {
            let options = options(&["--for", time]).unwrap();
            let Silence { after, lasting } = options.dark();
            assert!(!lasting.is_zero() && after + lasting < options.lasting, "{time}");
        }
        for time in ["0s", "2h", "15"] {
            assert!(options(&["--for", time]).is_err(), "{time}");
        }
    }
}
