//! What is run: every scheme under every condition, from the scenario files beside the papers.

use std::fmt;
use std::sync::Arc;

use lasthop_scenario::Scenario;
use lasthop_units::Scheme;

use crate::reproduce::cell::once_each;
use crate::reproduce::sheet::{Sheet, SheetPoint, sheet};
use crate::reproduce::{Label, ReproduceError};

/// A scenario file, and how its radios stand to each other.
pub(super) struct Ground {
    pub(super) sheet: Sheet,
    /// The radio links.
    pub(super) radios: &'static [&'static str],
    /// How many of them a packet crosses.
    pub(super) hops: f64,
}

/// Where the schemes meet, in the order of the columns.
pub(super) const GROUNDS: [Ground; 3] = [
    Ground { sheet: sheet!("league", "hop.toml"), radios: &["radio"], hops: 1.0 },
    Ground {
        sheet: sheet!("league", "handoffs.toml"),
        radios: &["cell-east", "cell-west"],
        hops: 1.0,
    },
    Ground { sheet: sheet!("league", "train.toml"), radios: &["radio", "wlan"], hops: 2.0 },
];

/// Where packets that are not TCP's cross: the hop of the first ground, alone on it.
pub(super) const PACKETS: Sheet = Sheet {
    path: "docs/examples/sim-packets.toml",
    text: include_str!("../../../../../docs/examples/sim-packets.toml"),
};

/// What crosses the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// One transfer to the mobile.
    Download,
    /// One transfer from it.
    Upload,
    /// Four downloads of one mobile at once.
    Four,
    /// The packets of a call, to the mobile.
    Call,
    /// One transfer to the mobile as QUIC does it.
    Quic,
}

impl Load {
    /// Those of TCP, which the grounds have.
    const TCP: [Self; 3] = [Self::Download, Self::Upload, Self::Four];

    fn of_name(name: &str) -> Option<Self> {
        Self::TCP.into_iter().find(|load| load.to_string() == name)
    }

    /// What a flow of datagrams is, by the name of its traffic.
    fn of_packets(traffic: &str) -> Option<Self> {
        match traffic {
            "voice" => Some(Self::Call),
            "quic-like" => Some(Self::Quic),
            _ => None,
        }
    }

    /// Whether it is TCP's.
    pub fn is_tcp(self) -> bool {
        Self::TCP.contains(&self)
    }

    /// What is measured under it.
    pub(super) const fn measures(self) -> &'static [Measure] {
        match self {
            Self::Download | Self::Upload => {
                &[Measure::Goodput, Measure::Timeouts, Measure::Delay, Measure::Overhead]
            }
            Self::Four => &[Measure::Fairness],
            Self::Call => {
                &[Measure::Lost, Measure::AddedMedian, Measure::AddedMost, Measure::Opinion]
            }
            Self::Quic => &[Measure::Rate, Measure::AddedMedian, Measure::AddedMost],
        }
    }
}

/// What a cell takes from a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
    /// Goodput over the most that the radio allows, in per cent.
    Goodput,
    /// Expiries of the retransmission timers of the two hosts.
    Timeouts,
    /// From a keystroke to its echo beside the transfer, the mean.
    Delay,
    /// Bytes that a radio carried either way, over those that the application got.
    Overhead,
    /// Jain's index of four flows of one mobile (MET-7).
    Fairness,
    /// The share of a call's packets that never arrive, in per cent.
    Lost,
    /// By how much the delay of packets exceeds the path's own, the median.
    AddedMedian,
    /// The same, and what 99 % of those that arrive do not exceed.
    AddedMost,
    /// A call's mean opinion score, from 1 to 4.5.
    Opinion,
    /// What a transfer of datagrams brings.
    Rate,
}

impl Measure {
    /// The word for it, as in labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Goodput => "goodput",
            Self::Timeouts => "timeouts",
            Self::Delay => "delay",
            Self::Overhead => "overhead",
            Self::Fairness => "fairness",
            Self::Lost => "lost",
            Self::AddedMedian => "p50",
            Self::AddedMost => "p99",
            Self::Opinion => "mos",
            Self::Rate => "rate",
        }
    }

    /// The unit of its values.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Goodput => "% of the limit",
            Self::Timeouts => "timeouts",
            Self::Delay | Self::AddedMedian | Self::AddedMost => "ms",
            Self::Overhead => "bytes for a byte",
            Self::Fairness | Self::Opinion => "1",
            Self::Lost => "%",
            Self::Rate => "Mbit/s",
        }
    }
}

/// One scheme under one condition, with one sender and one load: what one simulation runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeagueRun {
    /// The condition, such as `loss 5 %`.
    pub condition: String,
    /// The sender, such as `reno`.
    pub sender: String,
    /// The scheme.
    pub scheme: String,
    /// What crosses the network.
    pub load: Load,
}

impl LeagueRun {
    /// The label of what is measured here: a table such as `goodput`, `upload-goodput` or `call-mos`,
    /// the sender as the row and the condition as the column.
    pub fn label(&self, measure: Measure) -> Label {
        let table = match self.load {
            Load::Upload | Load::Call | Load::Quic => format!("{}-{}", self.load, measure.name()),
            Load::Download | Load::Four => measure.name().to_owned(),
        };
        Label::new([&table, &self.sender, &self.condition, &self.scheme])
    }

    /// What its runs draw from: the same for all schemes, so that they differ by what they do and
    /// not by luck.
    pub(super) fn luck(&self) -> String {
        let Self { condition, sender, load, .. } = self;
        format!("{load}/{sender}/{condition}")
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Download => "download",
            Self::Upload => "upload",
            Self::Four => "four",
            Self::Call => "call",
            Self::Quic => "quic",
        })
    }
}

/// What is run for a place.
#[derive(Clone, Debug)]
pub(super) struct Case {
    /// The scenario.
    pub(super) scenario: Arc<Scenario>,
    /// The radio links that bound what TCP can bring; none where it is not TCP that crosses.
    pub(super) radios: &'static [&'static str],
    /// How many of them a packet crosses.
    pub(super) hops: f64,
}

/// A place with its case, or with the reason why the scheme has no place there.
pub(super) type Entry = (LeagueRun, Result<Case, &'static str>);

/// All of them, in the order of the tables: conditions, senders, loads, schemes.
pub(super) fn all() -> Result<Vec<Entry>, ReproduceError> {
    let mut entries = Vec::new();
    for ground in &GROUNDS {
        let run = run_on(ground)?;
        let groups = once_each(
            run.iter().map(|(place, _)| LeagueRun { scheme: String::new(), ..place.clone() }),
        );
        for group in groups {
            for scheme in Scheme::over_one_link() {
                let place = LeagueRun { scheme: scheme.name().to_owned(), ..group.clone() };
                let case = run.iter().find(|(other, _)| *other == place);
                let case = case.map(|(_, case)| case.clone()).ok_or(reason(scheme));
                entries.push((place, case));
            }
        }
    }
    entries.extend(packets()?);
    Ok(entries)
}

/// Packets that are not TCP's, under the schemes that the file names: what the others do is TCP's alone.
fn packets() -> Result<Vec<Entry>, ReproduceError> {
    let entry = |(settings, scenario): SheetPoint| {
        let traffic = settings.at("kind");
        let load = Load::of_packets(traffic)
            .ok_or_else(|| ReproduceError::Beside(format!("{}: kind {traffic}", PACKETS.path)))?;
        let loss = settings.at("link.radio.loss").trim_end_matches('%');
        let place = LeagueRun {
            condition: format!("loss {loss} %"),
            sender: traffic.to_owned(),
            scheme: settings.at("scheme").to_owned(),
            load,
        };
        Ok((place, Ok(Case { scenario, radios: &[], hops: 1.0 })))
    };
    PACKETS.points()?.into_iter().map(entry).collect()
}

fn run_on(ground: &Ground) -> Result<Vec<(LeagueRun, Case)>, ReproduceError> {
    let mut run = Vec::new();
    for (settings, scenario) in ground.sheet.points()? {
        let load = settings.at("load");
        let load = Load::of_name(load)
            .ok_or_else(|| ReproduceError::Beside(format!("{}: load {load}", ground.sheet.path)))?;
        let place = LeagueRun {
            condition: settings.at("at").to_owned(),
            sender: settings.at("sender").to_owned(),
            scheme: settings.at("scheme").to_owned(),
            load,
        };
        run.push((place, Case { scenario, radios: ground.radios, hops: ground.hops }));
    }
    Ok(run)
}

/// Why a scheme has no place on a ground where it is not run.
const fn reason(scheme: Scheme) -> &'static str {
    let traits = scheme.traits();
    if traits.needs_mobile_router {
        "needs a mobile router between the base and the mobile"
    } else if scheme.recovers_on_link() {
        "recovers on one link, between a base and the mobile itself"
    } else if scheme.ends_at_mobile() {
        "has its other end at the mobile itself, next to the base"
    } else {
        "needs a base next to the mobile, and there is a mobile router"
    }
}
