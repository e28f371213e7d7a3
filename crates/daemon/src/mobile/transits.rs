//! Links that lead to other bases than that where the session is: those bases pass on what goes by them.

use std::collections::{BTreeMap, BTreeSet};

use lasthop_control::Report;
use lasthop_hop::seal::PublicKey;
use lasthop_units::{Duration, Time};
use lasthop_wire::mhp::transit::{TransitGrant, TransitMessage};

use super::{Core, MobileRole};
use crate::driver::Role;
use crate::hop::LinkWay;

/// A base that was not reached, or refused, is asked again after so long.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// What was asked of a base.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Asked {
    /// The part of the hop by which it was.
    part: u32,
    /// To which base it is to pass on.
    to: usize,
}

/// What bases pass on.
#[derive(Debug, Default)]
pub(super) struct Transits {
    /// What each base was last asked.
    asked: BTreeMap<usize, Asked>,
    /// What a base, the first, has granted of another.
    granted: BTreeMap<(usize, usize), TransitGrant>,
    /// Who has refused that of whom, as was logged.
    refused: BTreeSet<(usize, usize)>,
    /// When bases that have granted nothing are asked again.
    again: Time,
    /// Links may lead elsewhere than hops know.
    changed: bool,
}

impl Transits {
    /// What was granted over a base's association is over with it.
    pub(super) fn forget(&mut self, via: usize) {
        self.asked.remove(&via);
        self.granted.retain(|(granted_by, _), _| *granted_by != via);
        self.changed = true;
    }

    /// Another base has this one's place from here on.
    pub(super) fn replace(&mut self, base: usize) {
        self.forget(base);
        self.asked.retain(|_, asked| asked.to != base);
        self.granted.retain(|(_, to), _| *to != base);
        self.refused.retain(|(via, to)| *via != base && *to != base);
    }

    /// Hops were added, or the session goes to another base.
    pub(super) fn set_changed(&mut self) {
        self.changed = true;
    }
}

impl MobileRole {
    /// Asks bases to which links lead to pass on, and lets hops know which way each link is. True if something was done.
    pub(super) fn follow_transits(&mut self, core: &mut Core) -> bool {
        if !self.links.any_leads() || !self.resumed {
            return false;
        }
        let (mut some, is_due) = (false, self.transits.again <= core.now);
        for via in 0..self.stations.len() {
            if via != self.here && self.links.leads_to(via) {
                some |= self.ask_for_transit(core, via, is_due);
            }
        }
        if is_due {
            self.transits.again = core.now + ASK_AGAIN;
        }
        some |= self.transits.changed;
        if std::mem::take(&mut self.transits.changed) {
            self.set_ways(core);
        }
        some
    }

    /// When [`follow_transits`](Self::follow_transits) has something to do even if nothing happens.
    pub(super) fn transits_timeout(&self) -> Option<Time> {
        let lacks = |via: usize| {
            via != self.here
                && self.links.leads_to(via)
                && !self.transits.granted.contains_key(&(via, self.here))
        };
        (self.resumed && (0..self.stations.len()).any(lacks)).then_some(self.transits.again)
    }

    /// Asks a base to pass on, if it was not asked lately.
    fn ask_for_transit(&mut self, core: &mut Core, via: usize, is_due: bool) -> bool {
        let to = self.here;
        let Some(key) = self.stations[to].config.key else { return false };
        if self.stations[via].part.is_none() && !is_due {
            return false;
        }
        let Some(part) = self.open_hop(core, via) else { return false };
        let asked = Asked { part, to };
        let is_known = self.transits.asked.get(&via) == Some(&asked)
            && (self.transits.granted.contains_key(&(via, to)) || !is_due);
        if is_known || !core.hop.get(part).is_some_and(|hop| hop.is_up()) {
            return false;
        }
        let (mut question, now) = (Vec::new(), core.now);
        TransitMessage::Ask(*key.as_bytes()).encode(&mut question);
        // That which was there has gone on to another base.
        core.open_session(part, || self.session(part));
        let Some((session, mut streams)) = core.session(part) else { return false };
        if session.send_message(now, &mut streams, &question).is_err() {
            return false;
        }
        self.transits.asked.insert(via, asked);
        true
    }

    /// Takes a base's answer.
    pub(super) fn handle_transit(&mut self, part: u32, answer: TransitMessage) {
        let (base, grant) = match answer {
            TransitMessage::Granted(base, grant) => (base, Some(grant)),
            TransitMessage::Refused(base) => (base, None),
            TransitMessage::Ask(_) => return,
        };
        let to = self.station_of(&PublicKey::from_bytes(base));
        let (Some(via), Some(to)) = (self.station_at(part), to) else { return };
        let (by, of) = (self.stations[via].name(), self.stations[to].name());
        match grant {
            Some(_) => tracing::info!(base = by, to = of, "the base passes on"),
            None if self.transits.refused.insert((via, to)) => {
                tracing::warn!(base = by, to = of, "the base does not pass on: has it [[peers]]?");
            }
            None => {}
        }
        // It passes on to one base.
        self.transits.granted.retain(|(granted_by, _), _| *granted_by != via);
        if let Some(grant) = grant {
            self.transits.granted.insert((via, to), grant);
        }
        self.transits.changed = true;
    }

    /// By which way a link leads to a base.
    fn way(&self, link: usize, to: usize) -> LinkWay {
        let via = match self.links.base_of(link) {
            None => return LinkWay::Direct,
            Some(via) if via == to => return LinkWay::Direct,
            Some(via) => via,
        };
        let grant = self.transits.granted.get(&(via, to));
        match (grant, self.stations[via].addresses.used()) {
            (Some(grant), Some(at)) => LinkWay::Through(at, *grant),
            _ => LinkWay::None,
        }
    }

    /// Tells each hop which way each link leads to its base.
    fn set_ways(&self, core: &mut Core) {
        let (hop, mut turn) = core.turn();
        for (to, station) in self.stations.iter().enumerate() {
            let Some(part) = station.part else { continue };
            for link in 0..self.links.len() {
                let way = self.way(link, to);
                hop.with(&mut turn, part, |hop, turn| hop.set_way(turn, link, way));
            }
        }
    }

    /// The operator says that the link of an interface leads to base `i` from now on.
    ///
    /// # Errors
    ///
    /// There is no such link.
    pub(super) fn set_link_base(
        &mut self,
        core: &mut Core,
        interface: &str,
        i: usize,
    ) -> Result<(), String> {
        let link = self.links.position(interface);
        let link =
            link.ok_or_else(|| format!("no link in [[links]] has the interface {interface}"))?;
        if !self.links.set_base(link, i) {
            return Ok(());
        }
        tracing::info!(link = self.links.name(link), base = self.stations[i].name(), "link leads");
        (self.transits.changed, self.transits.again) = (true, core.now);
        // Where no link leads any more the session does not stay.
        if self.links.all_lead_elsewhere(self.here) {
            self.move_to(core, i);
        }
        Ok(())
    }

    /// Says where links lead.
    pub(super) fn report_link_bases(&self, report: &mut Report) {
        for path in report.associations.iter_mut().flat_map(|of| &mut of.paths) {
            let link = self.links.names().position(|name| name == path.name);
            let base = link.and_then(|link| self.links.base_of(link));
            path.base = base.map(|base| self.stations[base].name().to_owned());
        }
    }
}
