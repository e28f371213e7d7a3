//! A base's associations, each with its session: those of its mobiles, and those between bases.

use core::net::Ipv4Addr;
use std::collections::BTreeMap;

use lasthop_hop::Streams;
use lasthop_session::station::{Associations, Name};
use lasthop_session::{ConnId, Event, ResetReason, Session, SessionId};
use lasthop_tcp::Estimates;
use lasthop_units::{Seed, Time};
use lasthop_wire::tcp::Segment;

use super::ends;
use super::links::Links;
use super::names::{Way, WiredEnd};
use crate::net::Context;
use crate::schemes::moved;
use crate::schemes::transport::{BaseHop, Lost, Scratch};

/// A mobile's hop and session.
pub(super) struct Carried {
    pub(super) hop: BaseHop,
    pub(super) session: Session,
    /// The handoff in which the mobile has come.
    pub(super) attempt: u32,
    /// The session is elsewhere.
    pub(super) away: bool,
    /// SYNs of fixed hosts that the mobile has yet to agree to (MHP-6). The session bounds them.
    pub(super) offered: BTreeMap<ConnId, (WiredEnd, Segment)>,
    /// What the hop before knew, until the mobile reopens the connections (ITCP-3).
    pub(super) estimates: BTreeMap<ConnId, Estimates>,
}

impl Carried {
    pub(super) fn new(hop: BaseHop, session: Session, attempt: u32) -> Self {
        let (offered, estimates) = (BTreeMap::new(), BTreeMap::new());
        Self { hop, session, attempt, away: false, offered, estimates }
    }

    /// All streams are gone, and with them the connections that they carried.
    pub(super) fn on_lost(&mut self, lost: Lost) {
        if lost == Lost(true) {
            self.session.reset_all(&mut self.hop, ResetReason::AssociationLost);
        }
    }

    /// What the hop knows of those connections' paths.
    pub(super) fn take_estimates(
        &mut self,
        connections: &[(ConnId, u64)],
    ) -> BTreeMap<ConnId, Estimates> {
        let mut known = core::mem::take(&mut self.estimates);
        for (id, _) in connections {
            let stream = self.session.stream(*id);
            if let Some(estimates) = stream.and_then(|stream| self.hop.estimates(stream)) {
                known.insert(*id, estimates);
            }
        }
        known
    }

    /// Connections that the mobile has reopened go on with what was known of their path.
    fn hand_on_estimates(&mut self) {
        let Self { estimates, session, hop, .. } = self;
        moved::hand_on(estimates, session, |stream, known| hop.adopt(stream, known));
    }
}

/// All of them.
pub(in crate::schemes) struct Sessions {
    pub(super) mobiles: BTreeMap<Ipv4Addr, Carried>,
    pub(in crate::schemes) links: Links,
}

impl Sessions {
    pub(super) fn new(addr: Ipv4Addr, seed: Seed) -> Self {
        Self { mobiles: BTreeMap::new(), links: Links::new(addr, seed) }
    }

    pub(in crate::schemes) fn all(&self) -> Vec<Way> {
        let mobiles = self.mobiles.keys().map(|mobile| Way::Mobile(*mobile));
        mobiles.chain(self.links.all()).collect()
    }

    /// What the session of an association says next of a connection.
    pub(in crate::schemes) fn poll_event(&mut self, now: Time, id: Way) -> Option<Event> {
        let (session, mut streams) = self.session(id)?;
        session.poll_event(now, &mut streams)
    }

    /// What the other end of an association says of a handoff.
    pub(in crate::schemes) fn poll_message(&mut self, id: Way) -> Option<Vec<u8>> {
        self.session(id)?.0.poll_message()
    }

    /// A session that the other end of an association carries on, and that is not here.
    pub(in crate::schemes) fn poll_wanted(&mut self, id: Way) -> Option<SessionId> {
        self.session(id)?.0.poll_wanted()
    }

    /// The SYN that led to a connection, if the mobile has yet to agree to it.
    pub(super) fn offered(&mut self, (id, conn): Name<Way>) -> Option<(WiredEnd, Segment)> {
        let Way::Mobile(mobile) = id else { return None };
        self.mobiles.get_mut(&mobile)?.offered.remove(&conn)
    }

    /// A connection is over.
    pub(super) fn end(&mut self, id: Way, conn: ConnId) {
        if let Way::Mobile(mobile) = id
            && let Some(known) = self.mobiles.get_mut(&mobile)
        {
            known.offered.remove(&conn);
            known.estimates.remove(&conn);
        }
    }

    pub(in crate::schemes) fn hand_on_estimates(&mut self) {
        self.mobiles.values_mut().for_each(Carried::hand_on_estimates);
    }

    pub(super) fn transmit(
        &mut self,
        ctx: &mut Context<'_>,
        addr: Ipv4Addr,
        scratch: &mut Scratch,
    ) {
        for (mobile, known) in self.mobiles.iter_mut().filter(|(_, known)| !known.away) {
            known.hop.transmit(ctx, ends(addr, *mobile), scratch);
        }
        self.links.transmit(ctx, scratch);
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        let here = self.mobiles.values().filter(|known| !known.away);
        let mobiles = here.flat_map(|m| [m.hop.next_timeout(), m.session.next_timeout()]);
        mobiles.flatten().chain(self.links.next_timeout()).min()
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        let due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        for known in self.mobiles.values_mut().filter(|known| !known.away) {
            if due(known.hop.next_timeout()) {
                let lost = known.hop.handle_timeout(now);
                known.on_lost(lost);
            }
            if due(known.session.next_timeout()) {
                known.session.handle_timeout(now, &mut known.hop);
            }
        }
        self.links.handle_timeout(now);
    }
}

impl Associations for Sessions {
    type Id = Way;
    type Streams = dyn Streams;

    fn session(&mut self, id: Way) -> Option<(&mut Session, &mut (dyn Streams + 'static))> {
        match id {
            Way::Mobile(mobile) => {
                let known = self.mobiles.get_mut(&mobile)?;
                Some((&mut known.session, &mut known.hop))
            }
            Way::Peer(_) | Way::Link(_) => self.links.session(id),
        }
    }

    fn peek(&self, id: Way) -> Option<&Session> {
        match id {
            Way::Mobile(mobile) => Some(&self.mobiles.get(&mobile)?.session),
            Way::Peer(_) | Way::Link(_) => self.links.peek(id),
        }
    }
}
