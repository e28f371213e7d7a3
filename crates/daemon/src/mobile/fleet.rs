//! What bases tell of themselves and of the fleet: bases that the configuration does not name are learned,
//! and one that is being emptied is left.

use std::net::SocketAddr;
use std::time::Duration;

use lasthop_hop::seal::PublicKey;
use lasthop_units::Time;
use lasthop_wire::mhp::fleet::{FLEET_MAX, FleetBase, FleetMessage, FleetNews};

use super::choice::{self, Prospect};
use super::config::{BaseAddress, Candidate};
use super::handoff::LINGER;
use super::known_base::{KnownBase, Origin, Told};
use super::{Core, MobileRole};
use crate::config::HopAddress;
use crate::driver::Role;

/// How long other bases may take to answer when the present one is to be left.
const PROBE: Duration = Duration::from_secs(1);
/// When they are asked again if none could be moved to.
const AGAIN: Duration = Duration::from_secs(5);
/// A base that was left for its silence or for draining is not gone back to for so long, if there is another.
const LEFT: Duration = Duration::from_secs(10);

/// A base is to be left that is being emptied.
#[derive(Debug)]
pub(super) struct Leaving {
    base: usize,
    /// Not before.
    at: Time,
    /// Since when the others are asked.
    since: Time,
    /// Nothing is done until then, after none could be moved to.
    again: Option<Time>,
    /// When something is to be done though nothing happens.
    next: Option<Time>,
    /// That there is no other was logged.
    logged: bool,
}

impl MobileRole {
    /// Asks bases that were not asked yet how they are. True if there was one.
    pub(super) fn ask_bases(&mut self, core: &mut Core) -> bool {
        // Bases that pass a session on have other things to say to each other.
        if self.is_pending() || !std::mem::take(&mut self.asks) || self.handoffs.is_none() {
            return false;
        }
        let mut some = false;
        for i in 0..self.stations.len() {
            some |= self.ask_base(core, i);
        }
        some
    }

    fn ask_base(&mut self, core: &mut Core, i: usize) -> bool {
        let Some(part) = self.stations[i].part else { return false };
        let (now, here) = (core.now, i == self.here);
        // What is on its way there has other things to say first.
        let busy = if here { !self.resumed || part != self.at } else { part == self.at };
        if busy || !core.hop.get(part).is_some_and(|hop| hop.is_up()) {
            return false;
        }
        let others = (0..self.stations.len()).filter(|other| *other != i);
        let stays = here && others.into_iter().all(|other| !self.is_usable(now, other));
        let question = FleetMessage::Ask { here, stays };
        if self.stations[i].question.as_ref() == Some(&question) {
            return false;
        }
        let mut message = Vec::new();
        question.encode(&mut message);
        // The one that was there may have gone on to another base.
        core.open_session(part, || self.session(part));
        let Some((session, mut streams)) = core.session(part) else { return false };
        if session.send_message(now, &mut streams, &message).is_err() {
            return false;
        }
        self.stations[i].question = Some(question);
        true
    }

    /// Takes what a base says.
    pub(super) fn handle_fleet_news(&mut self, core: &mut Core, part: u32, news: &FleetNews) {
        let Some(i) = self.station_at(part) else { return };
        let FleetNews { draining, load, spread, .. } = *news;
        self.stations[i].told = Some(Told { draining, load });
        if i != self.here || part != self.at {
            return;
        }
        if self.config.handoff.learn()
            && matches!(self.stations[i].config.place, HopAddress::Internet(_))
        {
            self.learn(core, &news.bases);
        }
        match (draining, &self.leaving) {
            (true, None) => self.begin_leaving(core, Duration::from_millis(spread.into())),
            (false, Some(_)) => {
                tracing::info!(base = self.stations[i].name(), "no longer draining: staying");
                self.leaving = None;
            }
            _ => {}
        }
    }

    /// These are the other bases, in place of those that were learned before.
    fn learn(&mut self, core: &mut Core, bases: &[FleetBase]) {
        let here = self.here;
        // A base does not name itself.
        let others = self.stations.iter_mut().enumerate().filter(|(i, _)| *i != here);
        for (_, station) in others {
            let named = |base: &FleetBase| {
                station.config.key.is_some_and(|key| *key.as_bytes() == base.key)
            };
            if station.origin == Origin::Learned && !bases.iter().any(named) {
                station.origin = Origin::Forgotten;
                self.asks = true;
            }
        }
        for base in bases.iter().take(FLEET_MAX) {
            self.learn_base(core, base);
        }
    }

    fn learn_base(&mut self, core: &mut Core, base: &FleetBase) {
        let key = PublicKey::from_bytes(base.key);
        let Some(at) = base.hop.iter().find(|at| may_serve(at)) else { return };
        let known = self.station_of(&key);
        if known.is_some_and(|i| self.stations[i].origin == Origin::File) {
            return;
        }
        let taken = |name: &str| {
            let others = self.stations.iter().filter(|other| other.config.key != Some(key));
            others
                .into_iter()
                .any(|other| other.origin != Origin::Forgotten && other.name() == name)
        };
        let name = base.name.as_str();
        let name = if taken(name) { key.to_string() } else { name.to_owned() };
        let place = BaseAddress { host: at.ip().to_string(), port: at.port() };
        let place = HopAddress::Internet(place);
        let config = Candidate { name, place, key: Some(key), psk: None, interface: None };
        if let Some(i) = known {
            let station = &mut self.stations[i];
            let moved = station.config.place != config.place;
            self.asks |= station.origin != Origin::Learned;
            (station.origin, station.config) = (Origin::Learned, config);
            if moved && station.part.is_some() {
                self.resolve_base(core, i);
            }
            return;
        }
        let free = |(i, station): &(usize, &KnownBase)| {
            station.origin == Origin::Forgotten
                && station.part.is_none()
                && *i != self.here
                && !self.links.leads_to(*i)
        };
        let place = self.stations.iter().enumerate().find(free).map(|(i, _)| i);
        let learned = self.stations.iter().filter(|station| station.origin != Origin::File);
        if place.is_none() && learned.count() >= FLEET_MAX {
            return;
        }
        let Some(handoffs) = &mut self.handoffs else { return };
        let before = place.and_then(|i| self.stations[i].config.key);
        if !handoffs.learn(key, before) {
            return;
        }
        tracing::info!(base = config.name, %at, "learned of a base");
        let mut station = KnownBase::new(config);
        station.origin = Origin::Learned;
        match place {
            Some(i) => {
                self.transits.forget(i);
                self.stations[i] = station;
            }
            None => self.stations.push(station),
        }
        self.asks = true;
    }

    /// The base `here` is being emptied.
    fn begin_leaving(&mut self, core: &mut Core, spread: Duration) {
        let Some(handoffs) = &mut self.handoffs else { return };
        let wait = handoffs.draw(spread);
        let (base, since) = (self.here, core.now);
        tracing::info!(base = self.stations[base].name(), ?wait, "the base is draining: leaving");
        let at = since + wait;
        self.leaving =
            Some(Leaving { base, at, since, again: None, next: Some(at), logged: false });
        for i in (0..self.stations.len()).filter(|i| *i != base) {
            if self.is_usable(since, i)
                && let Some(part) = self.open_hop(core, i)
            {
                let (hop, mut turn) = core.turn();
                hop.with(&mut turn, part, |hop, turn| hop.roam(turn, 0));
            }
        }
    }

    /// Goes on to another base if the present one is to be left. True if it does.
    pub(super) fn follow_leaving(&mut self, core: &mut Core) -> bool {
        let (now, here) = (core.now, self.here);
        if self.leaving.as_ref().is_some_and(|leaving| leaving.base != here) {
            self.leaving = None;
        }
        let handoff_pending = self.is_pending();
        let Some(leaving) = &mut self.leaving else { return false };
        if !self.resumed || handoff_pending || leaving.again.is_some_and(|again| now < again) {
            return false;
        }
        if leaving.again.take().is_some() {
            leaving.since = now;
        }
        let (at, until) = (leaving.at, leaving.since + PROBE);
        let (mut ready, mut waits) = (Vec::new(), false);
        for i in (0..self.stations.len()).filter(|i| *i != here) {
            if !self.is_usable(now, i) || self.open_hop(core, i).is_none() {
                continue;
            }
            self.stations[i].until = Some(now + LINGER);
            match self.stations[i].told {
                Some(told) if !told.draining => ready.push(i),
                Some(_) => {}
                // A base that is too old says nothing.
                None if now >= until && self.liveness(core, i).up => ready.push(i),
                None => waits = true,
            }
        }
        if now < at || (waits && now < until) {
            if let Some(leaving) = &mut self.leaving {
                leaving.next = [at, until].into_iter().filter(|at| *at > now).min();
            }
            return false;
        }
        if let Some(i) = self.best_of(core, ready) {
            self.stations[here].left = Some(now);
            self.move_to(core, i);
            return true;
        }
        let base = self.stations[here].name();
        if let Some(leaving) = &mut self.leaving {
            (leaving.again, leaving.next) = (Some(now + AGAIN), Some(now + AGAIN));
            if !std::mem::replace(&mut leaving.logged, true) {
                tracing::warn!(base, "the base is draining, and no other answers: staying");
            }
        }
        false
    }

    /// When [`follow_leaving`](Self::follow_leaving) has something to do even if nothing happens.
    pub(super) fn leaving_timeout(&self) -> Option<Time> {
        self.leaving.as_ref().filter(|_| self.resumed && !self.is_pending())?.next
    }

    /// The best of these bases.
    pub(super) fn best_of(
        &self,
        core: &Core,
        all: impl IntoIterator<Item = usize>,
    ) -> Option<usize> {
        choice::best(all.into_iter().map(|i| (i, self.prospect(core, i))))
    }

    fn prospect(&self, core: &Core, i: usize) -> Prospect {
        let station = &self.stations[i];
        let interface = station.config.interface.as_deref();
        let hop = station.part.and_then(|part| core.hop.get(part));
        let saved =
            hop.and_then(|hop| hop.saved_path()).or_else(|| station.saved.get(station.local));
        Prospect {
            carries: interface.is_none_or(|name| self.network.carries(name) == Some(true)),
            draining: station.told.is_some_and(|told| told.draining),
            left: station.left.is_some_and(|left| core.now < left + LEFT),
            rtt: saved.map(|saved| saved.rtt),
            load: station.told.map_or(0, |told| told.load),
        }
    }
}

/// Whether that can be where somebody else serves mobiles.
fn may_serve(at: &SocketAddr) -> bool {
    let ip = at.ip();
    at.port() != 0 && !ip.is_unspecified() && !ip.is_multicast() && !ip.is_loopback()
}
