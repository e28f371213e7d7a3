//! A base as the mobile knows it: where it is, and the association with it if there is one.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use lasthop_hop::SavedPath;
use lasthop_units::Time;
use lasthop_wire::mhp::fleet::FleetMessage;

use super::config::Candidate;

/// Paths to a base whose worth is kept.
const PATHS: usize = 4;

/// Why a base is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// The configuration names it.
    File,
    /// A base has told of it.
    Learned,
    /// A base did, and does no more: it is not moved to, and its place is free when nothing leads to it.
    Forgotten,
}

/// What a base says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Told {
    /// Its mobiles should leave.
    pub(super) draining: bool,
    /// How full it is, of 255.
    pub(super) load: u8,
}

/// A base.
#[derive(Debug)]
pub(super) struct KnownBase {
    pub(super) config: Candidate,
    pub(super) origin: Origin,
    /// The part of the hop that leads to it, if there is one.
    pub(super) part: Option<u32>,
    /// When a hop that was opened in advance expires.
    pub(super) until: Option<Time>,
    /// Our address on the way to it, as last queried.
    pub(super) local: Option<IpAddr>,
    pub(super) saved: SavedPaths,
    /// Its liveness when it was last probed.
    pub(super) asked: Option<Liveness>,
    /// It has refused the session: until then it is only moved to on request.
    pub(super) avoid_until: Option<Time>,
    /// When the session was taken from it because it was silent or draining.
    pub(super) left: Option<Time>,
    /// What it was asked over the association with it.
    pub(super) question: Option<FleetMessage>,
    /// What it said there.
    pub(super) told: Option<Told>,
    /// How often the session has come to it.
    pub(super) handoffs: u64,
    /// How long that took the last time.
    pub(super) pause: Option<Duration>,
    /// The last reason that was logged for its being unreachable.
    reported: Option<String>,
    pub(super) addresses: Addresses,
}

/// Signs of life of a base at one time, to be compared with later ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Liveness {
    /// Its association stands.
    pub(super) up: bool,
    /// How much has come from it.
    pub(super) received: u64,
}

impl Liveness {
    /// Whether the base has answered since then.
    pub(super) fn is_answered_by(self, later: Self) -> bool {
        later.up && (!self.up || later.received != self.received)
    }
}

/// The addresses that a base's name stands for.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    /// The resolver is busy with it.
    pub(super) asking: bool,
    all: Vec<SocketAddr>,
    /// The next address to use is `all[turn % len]`.
    turn: usize,
    used: Option<SocketAddr>,
}

impl Addresses {
    /// What the name stands for from here on. True if the address in use is not among it.
    pub(super) fn set(&mut self, all: Vec<SocketAddr>) -> bool {
        self.all = all;
        !self.used.is_some_and(|used| self.all.contains(&used))
    }

    /// Tries another address next time.
    pub(super) fn skip(&mut self) {
        self.turn = self.turn.wrapping_add(1);
    }

    /// The address in use.
    pub(super) fn used(&self) -> Option<SocketAddr> {
        self.used
    }

    /// The address to use.
    pub(super) fn take(&mut self) -> Option<SocketAddr> {
        let n = self.all.len().max(1);
        let address = self.all.get(self.turn % n).copied();
        self.used = address.or(self.used);
        address
    }
}

/// What paths to a base were worth when they were left, by our address on each.
#[derive(Debug, Default)]
pub(super) struct SavedPaths(VecDeque<(Option<IpAddr>, SavedPath)>);

impl SavedPaths {
    /// The path from this address is left.
    pub(super) fn insert(&mut self, local: Option<IpAddr>, worth: Option<SavedPath>) {
        let Some(worth) = worth else { return };
        self.0.retain(|(known, _)| *known != local);
        self.0.truncate(PATHS - 1);
        self.0.push_front((local, worth));
    }

    /// What the path from this address was worth.
    pub(super) fn get(&self, local: Option<IpAddr>) -> Option<SavedPath> {
        self.0.iter().find(|(known, _)| *known == local).map(|(_, worth)| *worth)
    }
}

impl KnownBase {
    /// A base of the configuration, without a hop.
    pub(super) fn new(config: Candidate) -> Self {
        Self {
            config,
            origin: Origin::File,
            part: None,
            until: None,
            local: None,
            saved: SavedPaths::default(),
            asked: None,
            avoid_until: None,
            left: None,
            question: None,
            told: None,
            handoffs: 0,
            pause: None,
            reported: None,
            addresses: Addresses::default(),
        }
    }

    /// A base without a hop, of which another has told.
    pub(super) fn learned(config: Candidate) -> Self {
        Self { origin: Origin::Learned, ..Self::new(config) }
    }

    /// There is no association any more in which it was asked.
    pub(super) fn forget_told(&mut self) {
        (self.question, self.told) = (None, None);
    }

    /// What the operator calls it.
    pub(super) fn name(&self) -> &str {
        &self.config.name
    }

    /// Logs that it cannot be reached, once for each reason.
    pub(super) fn report(&mut self, why: &str) {
        if self.reported.as_deref() != Some(why) {
            tracing::warn!(base = self.config.name, why, "the base cannot be reached");
            self.reported = Some(why.to_owned());
        }
    }

    /// It was reached: the next failure is logged again.
    pub(super) fn clear_report(&mut self) {
        self.reported = None;
    }
}

#[cfg(test)]
mod tests {
    use lasthop_units::Rate;

    use super::*;

    #[test]
    fn addresses_take_turns_and_one_that_is_still_named_stays() {
        let [a, b, c] = [1, 2, 3].map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
        let mut addresses = Addresses::default();
        assert!(addresses.set(vec![a, b]));
        assert_eq!(addresses.take(), Some(a));
        assert!(!addresses.set(vec![b, a]));
        addresses.skip();
        assert_eq!(addresses.take(), Some(a));
        assert!(addresses.set(vec![c]));
        assert_eq!(addresses.take(), Some(c));
    }

    #[test]
    fn what_a_path_was_worth_is_known_by_our_address_on_it() {
        let worth = |mbps| SavedPath {
            sending: Rate::from_mbps(mbps),
            receiving: Rate::ZERO,
            rtt: Duration::from_millis(40),
        };
        let mut paths = SavedPaths::default();
        let ours = |n: u8| Some(IpAddr::from([10, 0, 0, n]));
        for n in 1..=5 {
            paths.insert(ours(n), Some(worth(u64::from(n))));
            paths.insert(ours(n), None);
        }
        paths.insert(ours(5), Some(worth(50)));
        let found = [5, 2, 1].map(|n| paths.get(ours(n)));
        assert_eq!(found, [Some(worth(50)), Some(worth(2)), None]);
    }

    #[test]
    fn an_association_that_stands_is_no_answer_until_something_comes() {
        let sign = |up, received| Liveness { up, received };
        assert!(sign(false, 0).is_answered_by(sign(true, 0)));
        assert!(!sign(true, 7).is_answered_by(sign(true, 7)));
        assert!(sign(true, 7).is_answered_by(sign(true, 8)));
        assert!(!sign(true, 7).is_answered_by(sign(false, 0)));
    }
}
