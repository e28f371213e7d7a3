//! Two links at once, beside each way that there is to have them: a download, a short one, and a stream that keeps a pace.

mod paced;
mod redundant;
mod short;

use anyhow::{Context, Result};
use lasthop_lab::bond::{Bond, Load, Measured, Way, interfaces};
use lasthop_lab::cell::Silence;
use lasthop_lab::client::Stop;
use lasthop_lab::topology::{Family, Topology, link};
use lasthop_lab::transfer::Direction;
use lasthop_radio::{Errors, Loss, RadioConfig};
use lasthop_units::{Duration, Rate};

use super::Setting;
use crate::process;
use crate::report::{Report, Row};

const FIGURE: &str = "bond";
/// How long the first byte may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// The radio's queue, packets.
const QUEUE: u32 = 100;
/// The mean fade.
const FADE: Duration = Duration::from_millis(17);
/// The longest time without a byte, claimed while both links are there.
const GAP: Duration = Duration::from_millis(250);
/// And where one goes dark without a word.
const GAP_DARK: Duration = Duration::from_millis(150);

/// A radio: Mbit/s, milliseconds one way, and what it loses.
#[derive(Clone, Copy)]
struct Link(u64, u64, Lost);

/// What a radio loses.
#[derive(Clone, Copy)]
enum Lost {
    Nothing,
    /// This share of packets.
    Uniform(f64),
    /// This share of the time.
    Fades(f64),
}
use Lost::{Fades, Nothing, Uniform};

/// Two radios, and the share of their sum that is claimed.
struct Cell {
    name: &'static str,
    links: [Link; 2],
    least: f64,
    /// The first one goes dark for a while.
    dark: bool,
    /// Not only in the whole figure.
    quick: bool,
}

const CELLS: [Cell; 12] = [
    cell("equal-loss-0", [Link(20, 20, Nothing), Link(20, 20, Nothing)], 0.97, true),
    cell("equal-loss-5", [Link(20, 20, Uniform(0.05)), Link(20, 20, Uniform(0.05))], 0.97, true),
    cell("equal-loss-20", [Link(20, 20, Uniform(0.2)), Link(20, 20, Uniform(0.2))], 0.97, false),
    cell("equal-fades-10", [Link(20, 20, Fades(0.1)), Link(20, 20, Fades(0.1))], 0.97, true),
    cell("slow-loss-0", [Link(20, 20, Nothing), Link(10, 150, Nothing)], 0.95, true),
    cell("slow-loss-5-0", [Link(20, 20, Uniform(0.05)), Link(10, 150, Nothing)], 0.95, false),
    cell("slow-loss-0-5", [Link(20, 20, Nothing), Link(10, 150, Uniform(0.05))], 0.95, true),
    cell("slow-fades-10", [Link(20, 20, Fades(0.1)), Link(10, 150, Nothing)], 0.95, false),
    cell("thin-loss-0", [Link(20, 20, Nothing), Link(2, 20, Nothing)], 0.95, true),
    cell("thin-loss-5", [Link(20, 20, Uniform(0.05)), Link(2, 20, Uniform(0.05))], 0.95, false),
    cell("40-ms-fades-10", [Link(20, 40, Nothing), Link(20, 20, Fades(0.1))], 0.95, true),
    Cell {
        dark: true,
        ..cell("dark-for-3-s", [Link(20, 20, Nothing), Link(20, 20, Nothing)], 0.0, true)
    },
];

const fn cell(name: &'static str, links: [Link; 2], least: f64, quick: bool) -> Cell {
    Cell { name, links, least, dark: false, quick }
}

impl Link {
    fn radio(self) -> RadioConfig {
        let Self(mbps, ms, lost) = self;
        let mut link = link(Rate::from_mbps(mbps), Duration::from_millis(ms), QUEUE);
        match lost {
            Nothing => {}
            Uniform(share) => link.losses.push(Loss::lose(Errors::Uniform(share))),
            Fades(share) => link.losses.push(Loss::lose(Errors::Fade { mean: FADE, share })),
        }
        RadioConfig { shared_fades: true, ..RadioConfig::both(link) }
    }
}

/// Both, and multipath TCP.
const TOGETHER: [Scheme; 3] = [Scheme::Bond, Scheme::Multipath("cubic"), Scheme::Multipath("bbr")];

/// A way to use two links.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scheme {
    /// Both together.
    Bond,
    /// Both, and each piece by either.
    Redundant,
    /// The better one.
    Best,
    /// One after the other, as it is told when the first goes dark.
    Switch,
    /// The kernel's multipath TCP with this congestion control.
    Multipath(&'static str),
}

impl Scheme {
    const ALL: [Self; 5] =
        [Self::Bond, Self::Best, Self::Switch, Self::Multipath("cubic"), Self::Multipath("bbr")];

    fn name(self) -> &'static str {
        match self {
            Self::Bond => "bond",
            Self::Redundant => "bond-redundant",
            Self::Best => "srp-best",
            Self::Switch => "srp-switch",
            Self::Multipath(_) => "mptcp",
        }
    }

    fn peer(self) -> String {
        match self {
            Self::Multipath(congestion) => format!("mptcp-{congestion}"),
            _ => self.name().to_owned(),
        }
    }

    fn way(self) -> Way {
        match self {
            Self::Bond | Self::Redundant => Way::Srp(interfaces(2)),
            // The first of each pair is no worse.
            Self::Best => Way::Srp(Vec::new()),
            Self::Switch => Way::Switch,
            Self::Multipath(congestion) => Way::Multipath(congestion.to_owned()),
        }
    }

    /// Starts it by two links, whose losses are those of every scheme in the cell of this name.
    fn start(
        self,
        setting: &Setting,
        cell: &str,
        links: [Link; 2],
        transfers: &[Direction],
    ) -> Result<Bond> {
        let load = Load { transfers: transfers.to_vec(), family: Family::V4, call: false };
        self.start_with(setting, cell, links, &load, Vec::new())
    }

    /// The same with another load, and more arguments of the mobile's.
    fn start_with(
        self,
        setting: &Setting,
        cell: &str,
        links: [Link; 2],
        load: &Load,
        mobile: Vec<String>,
    ) -> Result<Bond> {
        let [first, second] = links.map(Link::radio);
        let topology = Topology { radio: first, beside: vec![second], ..Topology::default() };
        let topology = setting.seeded(topology, cell);
        Ok(Bond::start(topology, &self.way(), load, process::lasthop()?, (mobile, PATIENCE))?)
    }
}

/// The pair of a near and a far link that loses nothing, or this share on both.
const fn near_and_far(loss: f64) -> [Link; 2] {
    let lost = if loss > 0.0 { Uniform(loss) } else { Nothing };
    [Link(20, 20, lost), Link(10, 150, lost)]
}

/// Runs cells by the better link first, and then by these schemes. What is measured says by the last argument how long it took
/// there, and has that over the better link's, where that was asked for.
fn beside_the_better_link(
    setting: &Setting,
    report: &mut Report,
    cells: [(&'static str, [Link; 2]); 2],
    schemes: &[Scheme],
    measure: impl Fn(Scheme, &'static str, [Link; 2], &dyn Fn(Duration) -> Option<f64>) -> Result<Row>,
) {
    for (name, links) in cells {
        let alone = std::cell::Cell::new(None);
        for scheme in [Scheme::Best].into_iter().chain(schemes.iter().copied()) {
            let of_best = |took: Duration| {
                if scheme == Scheme::Best {
                    alone.set(Some(took));
                }
                alone.get().map(|alone: Duration| took.as_secs_f64() / alone.as_secs_f64())
            };
            let ours = matches!(scheme, Scheme::Bond | Scheme::Redundant);
            setting.attempt_named(report, FIGURE, scheme.peer(), ours, name, || {
                measure(scheme, name, links, &of_best)
            });
        }
    }
}

/// Runs all cells.
pub(crate) fn run(setting: &Setting, report: &mut Report) {
    for cell in CELLS.iter().filter(|cell| cell.quick || !setting.quick) {
        // Where nothing goes dark, whoever switches stays with the first link, and is the better one's equal.
        for scheme in Scheme::ALL.into_iter().filter(|s| cell.dark || *s != Scheme::Switch) {
            let (ours, name) = (scheme == Scheme::Bond, cell.name);
            setting.attempt_named(report, FIGURE, scheme.peer(), ours, name, || {
                measure(setting, scheme, cell)
            });
        }
    }
    short::run(setting, report);
    paced::run(setting, report);
    redundant::run(setting, report);
}

fn measure(setting: &Setting, scheme: Scheme, cell: &Cell) -> Result<Row> {
    let mut bond = scheme.start(setting, cell.name, cell.links, &[Direction::Download])?;
    bond.run(Duration::from_secs(5))?;
    let dark = Silence { after: Duration::from_secs(2), lasting: Duration::from_secs(3) };
    let time = Duration::from_secs(setting.choose(10, 30));
    let outcome = bond.measure(time, cell.dark.then_some(dark), &Stop::default(), &mut |_| ())?;
    let measured = outcome.transfers.into_iter().next().context("nothing was measured")?;
    let Measured { goodput, share_of_sum, share_of_best, gap, sha256_ok } = measured;
    let ours = scheme == Scheme::Bond;
    let (longest, claim) = match cell.dark {
        true => (GAP_DARK, "no gap above 150 ms"),
        false => (GAP, "no gap above 250 ms"),
    };
    Ok(Row::new(FIGURE, scheme.peer(), cell.name)
        .value("scheme", scheme.name())
        .number("goodput_bps", goodput.as_bps() as f64)
        .number("share_of_sum", share_of_sum)
        .number("share_of_best", share_of_best)
        .number("gap_s", gap.as_secs_f64())
        .every_byte("sha256_ok", sha256_ok)
        .claim_if(
            ours && !cell.dark,
            format!("{} of the sum", cell.least),
            share_of_sum >= cell.least,
        )
        .claim_if(ours, claim, gap <= longest))
}
