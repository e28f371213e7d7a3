//! `anchor` mode: sockets stay where they were made, and the base that has the session goes on with
//! their bytes over an association of its own.

use std::collections::BTreeMap;

use lasthop_hop::seal::PublicKey;
use lasthop_kernel::slab::Key;
use lasthop_session::handoff::{self, Attach, ConnectionState, Reason};
use lasthop_session::{ConnId, ResetReason, SessionId, SessionState};
use lasthop_units::{Duration, Time};

use super::wired::{self, emptied};
use super::{BaseHop, Core, Handoffs, far_session};
use crate::backhaul::{Farewell, Purpose, Way};
use crate::driver::Phase;

/// How long sockets wait for the base that has their session.
const PATIENCE: Duration = Duration::from_secs(60);

/// A session that is elsewhere and whose sockets are here.
#[derive(Debug)]
pub(super) struct Kept<I> {
    pub(super) mobile: PublicKey,
    /// The connections, while nobody has attached; `None` while somebody has.
    pub(super) state: Option<SessionState>,
    /// Their sockets.
    pub(super) sockets: BTreeMap<ConnId, Key>,
    /// The association of the base that goes on with them.
    pub(super) at: Option<Way<I>>,
    /// The handoff in which that base was allowed to.
    pub(super) attempt: u32,
    /// Until then somebody must have come.
    pub(super) until: Time,
}

impl<I> Kept<I> {
    pub(super) fn deadline(&self) -> Option<Time> {
        self.at.is_none().then_some(self.until)
    }
}

/// An association to the base that keeps sockets of a session that is here.
#[derive(Debug)]
pub(super) struct Far {
    pub(super) session: SessionId,
    pub(super) anchor: PublicKey,
    /// The handoff in whose name this base has asked to be let in, once it has.
    pub(super) asked: Option<u32>,
    /// Until then it must be let in; `None` once it is.
    pub(super) until: Option<Time>,
}

impl<H: BaseHop> Handoffs<H> {
    /// Keeps the sockets of a session that is being given away.
    pub(super) fn keep(
        &mut self,
        now: Time,
        session: SessionId,
        mobile: PublicKey,
        connections: Vec<ConnectionState>,
        sockets: BTreeMap<ConnId, Key>,
    ) {
        if sockets.is_empty() {
            return;
        }
        let state = Some(wired::state(session, connections));
        let kept = Kept { mobile, state, sockets, at: None, attempt: 0, until: now + PATIENCE };
        self.kept.insert(session, kept);
    }

    /// The connections of a session whose sockets are here, with what came of the bytes between here
    /// and the base that has it, which is heard no more.
    pub(super) fn recall(
        &mut self,
        core: &mut Core<H>,
        session: SessionId,
    ) -> Option<(SessionState, BTreeMap<ConnId, Key>)> {
        let mut kept = self.kept.remove(&session)?;
        let state = match kept.at.take() {
            Some(id) => Self::detach(core, id, session)?,
            None => kept.state.take()?,
        };
        Some((state, kept.sockets))
    }

    /// Takes a session with kept sockets out of an association between bases, which is over.
    fn detach(core: &mut Core<H>, id: Way<H::Id>, session: SessionId) -> Option<SessionState> {
        let now = core.now;
        let (own, mut streams) = core.session(id)?;
        let state = own.freeze(now, &mut streams, session);
        for (_, key) in core.connections_of(id) {
            core.unname(key);
        }
        if let Way::Peer(association) = id {
            core.hop.dismiss(association);
        }
        // Another base's session counts its resumes from the beginning.
        Some(SessionState { turn: 0, ..state })
    }

    /// A base may want to go on with sockets that are kept here; whether that is what it says.
    pub(super) fn on_attach(
        &mut self,
        core: &mut Core<H>,
        id: Way<H::Id>,
        from: PublicKey,
        message: &[u8],
    ) -> bool {
        let answer = match self.machine.check_attach(from, message) {
            None => return false,
            Some(Ok(attach)) => self.let_in(core, id, from, &attach),
            // The machine tells of it.
            Some(Err(answer)) => answer,
        };
        let now = core.now;
        if let Some((session, mut streams)) = core.session(id) {
            // If it is lost, the association is as good as lost.
            let _ = session.send_message(now, &mut streams, &answer);
        }
        true
    }

    fn let_in(
        &mut self,
        core: &mut Core<H>,
        id: Way<H::Id>,
        from: PublicKey,
        attach: &Attach<PublicKey>,
    ) -> Vec<u8> {
        let refuse = |reason: Reason| handoff::refuse(attach.session, attach.attempt, reason);
        let Some(kept) = self.kept.get_mut(&attach.session) else {
            return refuse(Reason::Unknown);
        };
        if kept.mobile != attach.mobile || attach.attempt < kept.attempt {
            return refuse(Reason::Outdated);
        }
        let state = match kept.at.replace(id) {
            Some(before) if before == id => None,
            Some(before) => Self::detach(core, before, attach.session),
            None => kept.state.take(),
        };
        kept.attempt = attach.attempt;
        let Some(state) = state else { return handoff::attached(attach) };
        let now = core.now;
        let Some((session, _)) = core.session(id) else { return refuse(Reason::Unknown) };
        session.adopt(now, state);
        kept.sockets.retain(|_, key| core.connections.get(*key).is_some());
        for (conn, key) in &kept.sockets {
            core.rename(*key, id, *conn);
        }
        let to = self.name_of(from);
        tracing::info!(session = %attach.session, to, "anchor: relaying to another base");
        handoff::attached(attach)
    }

    /// The base that went on with kept sockets is gone, and with it bytes that nobody else has.
    pub(super) fn on_peer_lost(&mut self, id: Way<H::Id>) {
        self.kept.retain(|_, kept| kept.at != Some(id));
    }

    /// Resets sockets for which nobody came.
    pub(super) fn expire(&mut self, core: &mut Core<H>) {
        let now = core.now;
        let late = |kept: &Kept<H::Id>| kept.deadline().is_some_and(|at| at <= now);
        while let Some(session) =
            self.kept.iter().find(|(_, kept)| late(kept)).map(|(session, _)| *session)
        {
            tracing::warn!(%session, "anchor: no base claimed the sockets of a session: reset");
            if let Some(kept) = self.kept.remove(&session) {
                Self::reset_sockets(core, kept.sockets.into_values());
            }
        }
    }

    /// Resets connections whose base with the sockets has not let this one in.
    pub(super) fn expire_far(&mut self, core: &mut Core<H>) {
        let now = core.now;
        for (part, far) in &mut self.far {
            if far.until.is_some_and(|until| until <= now) {
                tracing::warn!(session = %far.session, "anchor: the base with the sockets did not answer in time");
                far.until = None;
                far.asked.get_or_insert(0);
                Self::reset_far(core, *part);
            }
        }
    }

    /// Resets sockets that belong to no session.
    pub(super) fn reset_sockets(core: &mut Core<H>, keys: impl IntoIterator<Item = Key>) {
        for key in keys {
            if let Some(connection) = core.remove(key)
                && let Phase::Relaying(relay) = connection.phase
            {
                relay.socket.close(&mut core.reactor, true);
            }
        }
    }

    /// The association to the base that keeps this session's sockets, made if there is none.
    pub(super) fn far(
        &mut self,
        core: &mut Core<H>,
        session: SessionId,
        anchor: PublicKey,
    ) -> Option<u32> {
        let known = self.far.iter().find(|(_, f)| f.session == session && f.anchor == anchor);
        if let Some((part, _)) = known {
            return Some(*part);
        }
        let peer = self.config.peers.iter().find(|peer| peer.key == anchor)?;
        let (hop, mut turn) = core.turn();
        let part = hop
            .link(&mut turn, peer, Purpose::Bytes)
            .inspect_err(|error| tracing::warn!(peer = peer.name, %error, "anchor: no socket for a peer base"))
            .ok()?;
        core.open_session(Way::Link(part), far_session);
        self.far
            .insert(part, Far { session, anchor, asked: None, until: Some(core.now + PATIENCE) });
        Some(part)
    }

    /// The association stands: asks to be let in and goes on. Without a grant it waits: the mobile may
    /// bring one, or be with another base by now, which will ask for all of this.
    pub(super) fn attach(&mut self, core: &mut Core<H>, part: u32) {
        let Some(far) = self.far.get_mut(&part).filter(|far| far.asked.is_none()) else { return };
        let Some(message) = self.machine.attach(far.session, far.anchor) else { return };
        let grant = self.machine.grant_for(far.session, far.anchor);
        far.asked = Some(grant.map_or(0, |(attempt, _)| attempt));
        let now = core.now;
        let Some((session, mut streams)) = core.session(Way::Link(part)) else { return };
        // If it does not fit, no answer comes, and the other end has the last word.
        let _ = session.send_message(now, &mut streams, &message);
        session.resume(now, &mut streams, far.session);
    }

    /// Asks to be let in wherever a grant was missing.
    pub(super) fn attach_waiting(&mut self, core: &mut Core<H>) {
        let waiting = |(part, far): (&u32, &Far)| far.asked.is_none().then_some(*part);
        let parts: Vec<u32> = self.far.iter().filter_map(waiting).collect();
        for part in parts {
            if core.hop.is_linked(part) {
                self.attach(core, part);
            }
        }
    }

    /// The base with the sockets answers.
    pub(super) fn on_attached(&mut self, core: &mut Core<H>, part: u32, message: &[u8]) {
        let Some(far) = self.far.get_mut(&part) else { return };
        match handoff::read_attached(message, far.session, far.asked.unwrap_or_default()) {
            None => {}
            Some(Ok(())) => far.until = None,
            // The mobile has gone on, and somebody will ask for what is here.
            Some(Err(Reason::Outdated)) => {}
            Some(Err(reason)) => {
                let (session, anchor) = (far.session, far.anchor);
                let anchor = self.name_of(anchor);
                tracing::warn!(%session, anchor, %reason, "anchor: the base with the sockets refused");
                Self::reset_far(core, part);
            }
        }
    }

    /// Resets the connections whose sockets are with another base.
    pub(super) fn reset_far(core: &mut Core<H>, part: u32) {
        if let Some((session, mut streams)) = core.session(Way::Link(part)) {
            session.reset_all(&mut streams, ResetReason::AssociationLost);
        }
    }

    /// Ends associations that carry nothing any more.
    pub(super) fn drop_idle_links(&mut self, core: &mut Core<H>) {
        let idle = |(part, far): (&u32, &Far)| {
            let session = core.peek(Way::Link(*part));
            let carries = session.is_some_and(|session| session.connections() > 0);
            (far.asked.is_some() && !carries).then_some(*part)
        };
        let parts: Vec<u32> = self.far.iter().filter_map(idle).collect();
        for part in parts {
            self.far.remove(&part);
            Self::unlink(core, part, Farewell::Said);
        }
    }

    pub(super) fn unlink(core: &mut Core<H>, part: u32, farewell: Farewell) {
        core.close_session(Way::Link(part));
        let (hop, mut turn) = core.turn();
        hop.unlink(&mut turn, part, farewell);
    }

    /// Takes every far connection of a session out of its association, which is over.
    pub(super) fn recall_far(
        &mut self,
        core: &mut Core<H>,
        session: SessionId,
    ) -> BTreeMap<ConnId, (PublicKey, ConnectionState)> {
        let mut out = BTreeMap::new();
        let parts: Vec<(u32, PublicKey)> = self
            .far
            .iter()
            .filter(|(_, far)| far.session == session)
            .map(|(part, far)| (*part, far.anchor))
            .collect();
        for (part, anchor) in parts {
            let now = core.now;
            let names = core.connections_of(Way::Link(part));
            if let Some((own, mut streams)) = core.session(Way::Link(part)) {
                own.suspend(now, &mut streams);
                for (conn, _) in &names {
                    if let Some(state) = own.export(*conn) {
                        out.insert(*conn, (anchor, state));
                    }
                }
            }
            self.far.remove(&part);
            Self::unlink(core, part, Farewell::None);
        }
        out
    }

    /// What a connection whose socket stays here takes along.
    pub(super) fn anchored(
        &self,
        near: &ConnectionState,
        up_done: bool,
    ) -> (ConnectionState, wired::Wired) {
        let left = emptied(near, up_done);
        let far = Box::new(left.clone());
        (left, wired::Wired::Anchor { base: self.own, far })
    }
}
