//! What bases tell of themselves and of the fleet: bases that the configuration does not name are learned,
//! and one that is being emptied is left.

use std::time::Duration;

use lasthop_units::Time;
use lasthop_wire::mhp::fleet::{FLEET_MAX, FleetBase, FleetMessage, FleetNews};

use super::choice::{self, Prospect};
use super::config::Candidate;
use super::handoff::LINGER;
use super::known_base::{KnownBase, Origin, Told};
use super::learning::{self, Lesson};
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
    /// When the others are asked, and one of them is gone to.
    at: Time,
    /// They were.
    asked: bool,
    /// When something is to be done though nothing happens.
    next: Time,
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
        let is_other =
            |(n, other): (usize, &KnownBase)| n != i && other.origin != Origin::Forgotten;
        let stays = here && !self.stations.iter().enumerate().any(is_other);
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
        // Only the base that has the session is believed.
        if i != self.here || part != self.at || !self.resumed || self.is_pending() {
            return;
        }
        if let Some(bases) = news.bases.as_ref().filter(|_| self.config.handoff.learn())
            && matches!(self.stations[i].config.place, HopAddress::Internet(_))
        {
            self.learn(core, bases);
        }
        match (draining, &self.leaving) {
            (true, None) => self.begin_leaving(core.now, Duration::from_millis(spread.into())),
            (false, Some(_)) => {
                tracing::info!(base = self.stations[i].name(), "no longer draining: staying");
                self.leaving = None;
            }
            _ => {}
        }
    }

    /// These are the other bases, in place of those that were learned before.
    fn learn(&mut self, core: &mut Core, bases: &[FleetBase]) {
        self.asks |= learning::forget(&mut self.stations, self.here, bases);
        for base in bases.iter().take(FLEET_MAX) {
            let is_free = |i| i != self.here && !self.links.leads_to(i);
            match learning::lesson(&self.stations, base, is_free) {
                Some(Lesson::Known(i, config)) => {
                    let station = &mut self.stations[i];
                    let moved = station.config.place != config.place;
                    self.asks |= station.origin != Origin::Learned;
                    (station.origin, station.config) = (Origin::Learned, config);
                    if moved && station.part.is_some() {
                        self.resolve_base(core, i);
                    }
                }
                Some(Lesson::New(instead, config)) => self.learn_base(instead, config),
                None => {}
            }
        }
    }

    fn learn_base(&mut self, instead: Option<usize>, config: Candidate) {
        let (Some(handoffs), Some(key)) = (&mut self.handoffs, config.key) else { return };
        let before = instead.and_then(|i| self.stations[i].config.key);
        if !handoffs.learn(key, before) {
            return;
        }
        tracing::info!(base = config.name, "learned of a base");
        let station = KnownBase::learned(config);
        match instead {
            Some(i) => {
                self.transits.replace(i);
                self.stations[i] = station;
            }
            None => self.stations.push(station),
        }
        self.asks = true;
    }

    /// The base `here` is being emptied.
    fn begin_leaving(&mut self, now: Time, spread: Duration) {
        let Some(handoffs) = &mut self.handoffs else { return };
        let wait = handoffs.draw(spread);
        let (base, at) = (self.here, now + wait);
        tracing::info!(base = self.stations[base].name(), ?wait, "the base is draining: leaving");
        self.leaving = Some(Leaving { base, at, asked: false, next: at, logged: false });
    }

    /// Goes on to another base if the present one is to be left. True if it does.
    pub(super) fn follow_leaving(&mut self, core: &mut Core) -> bool {
        let (now, here) = (core.now, self.here);
        self.leaving.take_if(|leaving| leaving.base != here);
        if !self.resumed || self.is_pending() {
            return false;
        }
        let Some(leaving) = self.leaving.as_mut().filter(|leaving| leaving.at <= now) else {
            return false;
        };
        let (until, begins) = (leaving.at + PROBE, !std::mem::replace(&mut leaving.asked, true));
        let (mut ready, mut waits) = (Vec::new(), false);
        for i in (0..self.stations.len()).filter(|i| *i != here) {
            if !self.is_usable(now, i) {
                continue;
            }
            let Some(part) = self.open_hop(core, i) else { continue };
            if begins {
                // One that was made earlier may be idle.
                let (hop, mut turn) = core.turn();
                hop.with(&mut turn, part, |hop, turn| hop.roam(turn, 0));
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
        let Some(leaving) = &mut self.leaving else { return false };
        if waits && now < until {
            leaving.next = until;
            return false;
        }
        leaving.next = now + AGAIN;
        if let Some(i) = self.best_of(core, ready) {
            self.stations[here].left = Some(now);
            self.move_to(core, i);
            return true;
        }
        if let Some(leaving) = &mut self.leaving {
            (leaving.at, leaving.asked) = (leaving.next, false);
            if !std::mem::replace(&mut leaving.logged, true) {
                let base = self.stations[here].name();
                tracing::warn!(base, "the base is draining, and no other answers: staying");
            }
        }
        false
    }

    /// When [`follow_leaving`](Self::follow_leaving) has something to do even if nothing happens.
    pub(super) fn leaving_timeout(&self) -> Option<Time> {
        let may_leave = self.resumed && !self.is_pending();
        self.leaving.as_ref().filter(|_| may_leave).map(|leaving| leaving.next)
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

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::path::Path;

    use lasthop_hop::seal::{Keypair, PublicKey};
    use lasthop_units::Seed;
    use lasthop_wire::mhp::HostName;

    use super::*;
    use crate::config;
    use crate::hop_set::HopSet;
    use crate::keyfile::PresharedKeys;
    use crate::mobile::hop_factory::HopFactory;
    use crate::mobile::intercepted::Intercepted;
    use crate::mobile::{MobileConfig, MobileFile};

    const SEED: Seed = Seed::from_u64(7);

    fn key_of(n: u64) -> PublicKey {
        *Keypair::generate(SEED.child(&format!("b{n}"))).public()
    }

    /// A mobile with two bases in its file, and associations with both; the session is at the first.
    fn mobile(more: &str) -> (Core, MobileRole) {
        let base = |n: u64| {
            let key = key_of(n);
            format!("[[bases]]\nname = \"b{n}\"\naddress = \"192.0.2.{n}:4433\"\nkey = \"{key}\"\n")
        };
        let text = format!("key = \"none\"\n{}{}{more}", base(1), base(2));
        let file = config::parse::<MobileFile>(Path::new("m.toml"), &text).unwrap();
        let config = MobileConfig::try_from(file).unwrap();
        let keys = Keypair::generate(SEED);
        let psks = PresharedKeys::default();
        let mut factory = HopFactory::new(config.clone(), keys.clone(), psks, SEED);
        let first = factory.make(&config.bases[0], Time::ZERO).unwrap();
        let (hops, none) = ((factory, first), Intercepted::default());
        let mut role = MobileRole::new(config, Vec::new(), none, hops, keys, SEED);
        (role.stations[0].part, role.stations[1].part) = (Some(0), Some(1));
        (Core::new(HopSet::new(0)).unwrap(), role)
    }

    fn draining_and_naming(n: u8) -> FleetNews {
        let hop = vec![SocketAddr::from(([192, 0, 2, n], 4433))];
        let key = *key_of(n.into()).as_bytes();
        let name = HostName::new(&format!("b{n}")).unwrap();
        let bases = Some(vec![FleetBase { key, name, hop }]);
        FleetNews { draining: true, bases, ..FleetNews::default() }
    }

    /// EMP-6: a base that is only looked at, or to which the session is still on its way, names none.
    #[test]
    fn only_the_base_that_has_the_session_is_believed() {
        let (mut core, mut role) = mobile("");
        let news = draining_and_naming(3);
        role.handle_fleet_news(&mut core, 1, &news);
        role.handle_fleet_news(&mut core, 9, &news);
        role.resumed = false;
        role.handle_fleet_news(&mut core, 0, &news);
        role.resumed = true;
        assert!(role.stations.len() == 2 && role.leaving.is_none());
        assert_eq!(role.stations[1].told, Some(Told { draining: true, load: 0 }));
        role.handle_fleet_news(&mut core, 0, &news);
        assert_eq!(role.stations[2].name(), "b3");
        assert!(role.leaving.is_some());
        let brief = FleetNews { bases: None, ..news };
        role.handle_fleet_news(&mut core, 0, &brief);
        assert_eq!(role.stations[2].origin, Origin::Learned, "nothing was said of it");
    }

    /// EMP-6
    #[test]
    fn a_mobile_that_trusts_its_file_alone_learns_nothing() {
        let (mut core, mut role) = mobile("[handoff]\nlearn = false\n");
        role.handle_fleet_news(&mut core, 0, &draining_and_naming(3));
        assert!(role.stations.len() == 2 && role.leaving.is_some());
    }
}
