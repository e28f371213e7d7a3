//! What is run: every scheme under every condition, from the scenario files beside the papers.

use std::fmt;
use std::sync::Arc;

use lasthop_units::Scheme;

use crate::reproduce::cell::once_each;
use crate::reproduce::sheet::{Sheet, sheet};
use crate::reproduce::{Label, ReproduceError};
use crate::scenario::Scenario;

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

/// What crosses the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// One transfer to the mobile.
    Download,
    /// One transfer from it.
    Upload,
    /// Four downloads of one mobile at once.
    Four,
}

impl Load {
    const ALL: [Self; 3] = [Self::Download, Self::Upload, Self::Four];

    fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|load| load.to_string() == name)
    }

    /// What is measured under it.
    pub(super) const fn measures(self) -> &'static [Measure] {
        match self {
            Self::Download | Self::Upload => {
                &[Measure::Goodput, Measure::Timeouts, Measure::Delay, Measure::Overhead]
            }
            Self::Four => &[Measure::Fairness],
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
        }
    }

    /// The unit of its values.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Goodput => "% of the limit",
            Self::Timeouts => "timeouts",
            Self::Delay => "ms",
            Self::Overhead => "bytes for a byte",
            Self::Fairness => "1",
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
    /// The label of what is measured here: a table such as `goodput` or `upload-goodput`, the sender
    /// as the row and the condition as the column.
    pub fn label(&self, measure: Measure) -> Label {
        let table = match self.load {
            Load::Upload => format!("upload-{}", measure.name()),
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
        })
    }
}

/// What is run for a place.
#[derive(Clone, Debug)]
pub(super) struct Case {
    /// The scenario.
    pub(super) scenario: Arc<Scenario>,
    /// The radio links.
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
            for scheme in Scheme::ALL {
                let place = LeagueRun { scheme: scheme.name().to_owned(), ..group.clone() };
                let case = run.iter().find(|(other, _)| *other == place);
                let case = case.map(|(_, case)| case.clone()).ok_or(reason(scheme));
                entries.push((place, case));
            }
        }
    }
    Ok(entries)
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
