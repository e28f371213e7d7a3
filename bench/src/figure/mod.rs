//! One module for each figure.

pub(crate) mod acknowledge;
pub(crate) mod agents;
pub(crate) mod attack;
pub(crate) mod bond;
pub(crate) mod budget;
pub(crate) mod clean;
pub(crate) mod cost;
mod download;
pub(crate) mod fair;
pub(crate) mod forward;
pub(crate) mod handoff;
pub(crate) mod loss;
pub(crate) mod many;
pub(crate) mod priority;
pub(crate) mod quic;
pub(crate) mod scale;
pub(crate) mod silence;
pub(crate) mod small;
pub(crate) mod stalls;
pub(crate) mod start;
pub(crate) mod step;
pub(crate) mod tun;
pub(crate) mod twin;
pub(crate) mod wakeups;

use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, bail};
use lasthop_lab::topology::{Topology, link};
use lasthop_radio::{LinkConfig, RadioConfig};
use lasthop_units::{Duration, Rate, Seed};

use crate::peer::Peer;
use crate::report::{Report, Row};

/// The radio that is measured on unless a cell says otherwise.
pub(crate) const RATE: Rate = Rate::from_mbps(20);
/// One way.
pub(crate) const DELAY: Duration = Duration::from_millis(20);
const QUEUE: u32 = 100;

/// How to run a figure.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// Fewer cells, less time in each.
    pub(crate) quick: bool,
    /// Only these peers, if any are named.
    pub(crate) only: Vec<String>,
    /// Only these cells, if any are named.
    pub(crate) cells: Vec<String>,
    /// Where peers and cells are noted instead of being measured.
    pub(crate) notes: Option<Arc<Mutex<[Vec<String>; 2]>>>,
    /// Where the radio's random processes start.
    pub(crate) seed: Seed,
}

impl Setting {
    /// One of two values.
    pub(crate) fn choose<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Whether the peer of this name is to be measured.
    pub(crate) fn wants(&self, name: &str) -> bool {
        !self.note(0, name) && (self.only.is_empty() || self.only.iter().any(|only| only == name))
    }

    fn wants_cell(&self, name: &str) -> bool {
        !self.note(1, name) && (self.cells.is_empty() || self.cells.iter().any(|cell| cell == name))
    }

    /// Whether names are noted instead of being measured.
    fn note(&self, kind: usize, name: &str) -> bool {
        if let Some(notes) = &self.notes {
            let known = &mut notes.lock().unwrap_or_else(PoisonError::into_inner)[kind];
            if !known.iter().any(|known| known == name) {
                known.push(name.to_owned());
            }
        }
        self.notes.is_some()
    }

    /// Refuses a peer or a cell that none of the figures has, before anything is measured.
    ///
    /// # Errors
    ///
    /// Names it, and those that there are.
    pub(crate) fn check(&self, figures: &[fn(&Self, &mut Report)]) -> Result<()> {
        let notes = Arc::new(Mutex::new(Default::default()));
        let noting = Self { notes: Some(Arc::clone(&notes)), ..self.clone() };
        for figure in figures {
            figure(&noting, &mut Report::new(false));
        }
        let [peers, cells] =
            std::mem::take(&mut *notes.lock().unwrap_or_else(PoisonError::into_inner));
        self.refuse_others(&peers)?;
        refuse_unknown("cell", &self.cells, &cells)
    }

    /// Refuses a peer that is not among the `known`.
    fn refuse_others(&self, known: &[String]) -> Result<()> {
        refuse_unknown("peer", &self.only, known)
    }

    /// Measures `peer`, unless others were asked for; a failure is a row too, and for ours a
    /// missed claim.
    fn attempt(
        &self,
        report: &mut Report,
        figure: &'static str,
        peer: &Peer,
        cell: impl Display,
        measure: impl FnOnce() -> Result<Row>,
    ) {
        self.attempt_named(report, figure, peer, peer.is_ours(), cell, measure);
    }

    /// The same for what is no peer; whether a failure `matters` is said.
    fn attempt_named(
        &self,
        report: &mut Report,
        figure: &'static str,
        name: impl Display,
        matters: bool,
        cell: impl Display,
        measure: impl FnOnce() -> Result<Row>,
    ) {
        let wanted = [self.wants(&name.to_string()), self.wants_cell(&cell.to_string())];
        if wanted == [true; 2] {
            let failed = |error| Row::failed(figure, name, cell, &error, matters);
            report.row(&measure().unwrap_or_else(failed));
        }
    }

    /// A topology's seed for this cell: peers meet the same radio, cells do not.
    fn seeded(&self, mut topology: Topology, cell: impl Display) -> Topology {
        topology.seed = self.seed.child(&cell.to_string());
        topology
    }
}

fn refuse_unknown(what: &str, named: &[String], known: &[String]) -> Result<()> {
    match named.iter().find(|name| !known.contains(name)) {
        Some(name) => bail!("there is no {what} `{name}` here; there are: {}", known.join(", ")),
        None => Ok(()),
    }
}

/// `topology` with a radio of another rate and delay, its losses kept. The wired link is made wide
/// enough not to matter.
fn with_radio(mut topology: Topology, rate: Rate, delay: Duration) -> Topology {
    let plain = link(rate, delay, QUEUE);
    for direction in [&mut topology.radio.up, &mut topology.radio.down] {
        let losses = std::mem::take(&mut direction.losses);
        *direction = LinkConfig { losses, ..plain.clone() };
    }
    if rate >= Rate::from_mbps(100) {
        topology.wired =
            RadioConfig::both(link(Rate::from_mbps(1000), Duration::from_millis(25), 2000));
    }
    topology
}

/// Jain's index: 1 if all are equal, 1/n if one has everything.
fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|s| s * s).sum();
    if squares == 0.0 { 0.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

#[cfg(test)]
mod tests {
    use lasthop_lab::condition::Condition;

    use super::*;

    #[test]
    fn jain_is_one_for_equals_and_one_over_n_for_a_monopoly() {
        assert!((jain(&[3.0, 3.0, 3.0]) - 1.0).abs() < 1e-12);
        assert!((jain(&[5.0, 0.0]) - 0.5).abs() < 1e-12);
        assert_eq!(jain(&[0.0, 0.0]), 0.0);
    }

    #[test]
    fn another_rate_keeps_the_losses() {
        let lossy = Condition::Loss(20).topology();
        let topology = with_radio(lossy.clone(), Rate::from_mbps(100), DELAY);
        assert_eq!(topology.radio.down.losses, lossy.radio.down.losses);
        assert_ne!(topology.radio.down.pacing, lossy.radio.down.pacing);
        assert_ne!(topology.wired, lossy.wired);
    }
}
