//! Finds out what of a failing schedule the failure needs.

use lasthop_radio::{LinkConfig, Pacing};
use lasthop_units::Duration;

use crate::check::Check;
use crate::crossing::Stranger;
use crate::flaw::Flaw;
use crate::schedule::{Beside, Failure, Schedule, attempt};

/// A part of a schedule that can be left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Feature {
    /// The stranger's copies and forgeries.
    Stranger,
    /// Address changes.
    Moves,
    /// Link events.
    LinkEvents,
    /// Silences.
    Pauses,
    /// Loss and damage.
    Losses,
    /// Overtaking.
    Reordering,
    /// Doubled packets.
    Duplicates,
    /// Changes of the radio's rate.
    Steps,
    /// A different MTU while the radio is faulty.
    Mtu,
    /// A second mobile's connections; the mobile stays.
    SecondMobile,
    /// Connections that somebody gives up.
    Resets,
    /// Refused connections.
    Refusals,
    /// Connections that are told at once.
    EarlyOpenings,
    /// Slow writing and reading.
    Dawdling,
    /// A path that shrinks.
    Shrink,
    /// A second link.
    Beside,
    /// Addresses that change places.
    Swaps,
    /// One connection.
    Connection(usize),
    /// One flow of packets.
    Packets(usize),
}

const FEATURES: [Feature; 17] = [
    Feature::Beside,
    Feature::Swaps,
    Feature::Stranger,
    Feature::Moves,
    Feature::LinkEvents,
    Feature::Pauses,
    Feature::Losses,
    Feature::Reordering,
    Feature::Duplicates,
    Feature::Steps,
    Feature::Mtu,
    Feature::Shrink,
    Feature::SecondMobile,
    Feature::Resets,
    Feature::Refusals,
    Feature::EarlyOpenings,
    Feature::Dawdling,
];

impl Schedule {
    /// The same schedule with one feature left out; none if it has not got it.
    pub(crate) fn without(&self, feature: Feature) -> Option<Self> {
        let mut less = self.clone();
        match feature {
            Feature::Stranger => less.stranger = Stranger::default(),
            Feature::Beside => less.beside = None,
            Feature::Swaps => less.beside.iter_mut().for_each(|beside| beside.swaps.clear()),
            Feature::Moves => {
                less.moves.clear();
                less.beside.iter_mut().for_each(|beside| beside.moves.clear());
            }
            Feature::LinkEvents => {
                less.link_events = false;
                less.beside.iter_mut().for_each(|beside| beside.link_events = false);
            }
            Feature::Pauses => less.links(|link, _| link.pauses.clear()),
            Feature::Losses => less.links(|link, _| link.losses.clear()),
            Feature::Reordering => less.links(|link, _| link.reorder = None),
            Feature::Duplicates => less.links(|link, _| link.duplicate = 0.0),
            Feature::Steps => less.links(|link, calm| link.pacing = calm.pacing.clone()),
            Feature::Mtu => less.links(|link, calm| link.mtu = calm.mtu),
            Feature::Shrink => {
                less.shrink = None;
                less.beside.iter_mut().for_each(|beside| beside.shrink = None);
            }
            Feature::SecondMobile => {
                less.connections.iter_mut().for_each(|c| c.mobile = 0);
                less.packets.iter_mut().for_each(|p| p.mobile = 0);
            }
            Feature::Resets => {
                for c in &mut less.connections {
                    (c.application.reset_after, c.fixed_host.reset_after) = (None, None);
                }
            }
            Feature::Refusals => less.connections.iter_mut().for_each(|c| c.refusal = None),
            Feature::EarlyOpenings => {
                less.connections.iter_mut().for_each(|c| c.opening = Default::default());
            }
            Feature::Dawdling => {
                for c in &mut less.connections {
                    for side in [&mut c.application, &mut c.fixed_host] {
                        (side.read_gap, side.write_gap) = (Duration::ZERO, Duration::ZERO);
                    }
                }
            }
            Feature::Connection(i) if i < less.connections.len() => {
                less.connections.remove(i);
            }
            Feature::Packets(i) if i < less.packets.len() => {
                less.packets.remove(i);
            }
            Feature::Connection(_) | Feature::Packets(_) => {}
        }
        (less != *self).then_some(less)
    }

    fn links(&mut self, change: impl Fn(&mut LinkConfig, &LinkConfig)) {
        let beside = self.beside.iter_mut().map(|beside| (&mut beside.faulty, &beside.calm));
        for (faulty, calm) in beside.chain([(&mut self.faulty, &self.calm)]) {
            change(&mut faulty.up, &calm.up);
            change(&mut faulty.down, &calm.down);
        }
    }

    /// What there is to leave out.
    pub(crate) fn features(&self) -> Vec<Feature> {
        FEATURES.into_iter().filter(|f| self.without(*f).is_some()).collect()
    }

    /// The radio's rates and delays and the number of connections in a line.
    pub(crate) fn summary(&self) -> String {
        let link = |link: &LinkConfig| {
            let rate = match &link.pacing {
                Pacing::Rate(rate) => rate.to_string(),
                Pacing::Steps(steps) => format!("{} in steps", steps.initial),
                Pacing::Trace(_) => "a trace".into(),
            };
            format!("{rate}, {:?}, queue {:?}, mtu {}", link.delay, link.queue, link.mtu)
        };
        let beside = self.beside.as_ref().map(|Beside { faulty, from, .. }| {
            format!("; beside from {from} on up {}; down {}", link(&faulty.up), link(&faulty.down))
        });
        format!(
            "up {}; down {}{}; calm at {}; {} connections; {} flows of packets; {:?}",
            link(&self.faulty.up),
            link(&self.faulty.down),
            beside.unwrap_or_default(),
            self.calm_at,
            self.connections.len(),
            self.packets.len(),
            self.features(),
        )
    }
}

/// Leaves out of a failing schedule whatever the failure does not need: the schedule that is left
/// and how it fails. The kind of failure stays the same, and so does everything else of the
/// schedule.
pub(crate) fn simplify(flaw: Flaw, failure: &Failure) -> (Schedule, Failure) {
    let check = failure.violation.check;
    let mut best = (failure.schedule(), failure.clone());
    let mut found = true;
    while found {
        found = false;
        let connections = (0..best.0.connections.len()).rev().map(Feature::Connection);
        let packets = (0..best.0.packets.len()).rev().map(Feature::Packets);
        for feature in FEATURES.into_iter().chain(connections).chain(packets) {
            let Some(less) = best.0.without(feature) else { continue };
            if let Some(failure) = still_fails(flaw, &less, check) {
                best = (less, failure);
                found = true;
            }
        }
    }
    best
}

fn still_fails(flaw: Flaw, schedule: &Schedule, check: Check) -> Option<Failure> {
    attempt(flaw, schedule, false).err().filter(|f| f.violation.check == check)
}
