//! `anchor` mode: wired halves stay where they were made, and the base that has the session goes on
//! with their bytes over an association of its own.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt::Debug;

use lasthop_units::{Duration, Time};
use lasthop_wire::mhp::handoff::Reason;

use super::kept::Kept;
use super::{Due, Farewell, NoteKind, Station, Wires};
use crate::handoff::{self, Address, Attach, Authority, ConnectionState};
use crate::owned::{Owned, OwnedMap};
use crate::{ConnId, ResetReason, SessionId, SessionState};

/// How long wired halves wait for the base that has their session.
const PATIENCE: Duration = Duration::from_secs(60);
/// The same, once the base that had it does not answer any more: as long as a mobile tries to go on.
const LOST_PATIENCE: Duration = Duration::from_secs(30);

/// How long the base with the wired halves may take to pass the last bytes on to fixed hosts, which take
/// them in their own time.
const LAST_PATIENCE: Duration = Duration::from_secs(3600);
/// And how many associations with one base may wait for that at once.
const IDLE_OF_ONE: usize = 256;

/// An association to the base that keeps wired halves of a session that is here.
#[derive(Debug)]
pub(super) struct Far<A> {
    session: SessionId,
    anchor: A,
    /// The handoff in whose name this base has asked to be let in, once it has; 0 if it never may.
    asked: Option<u32>,
    /// The last handoff that was refused as outdated.
    outdated: u32,
    /// Until then it must be let in; `None` once it is. Where nothing is carried any more: until then
    /// the other base is to say so, too.
    until: Option<Time>,
    /// It carries nothing any more.
    idle: bool,
    /// The other base has nothing of the session any more, or is not reached.
    over: bool,
    /// The session has come, and its mobile has yet to.
    early: bool,
}

/// All of them, by association and by session.
#[derive(Debug)]
pub(super) struct Fars<A, I> {
    pub(super) all: OwnedMap<I, SessionId, Far<A>>,
    /// Those that carry nothing any more, by the base that they lead to, the first to do so first. Some are gone.
    idle: BTreeMap<A, VecDeque<I>>,
}

impl<A> Owned<SessionId> for Far<A> {
    fn owner(&self) -> Option<SessionId> {
        Some(self.session)
    }
}

impl<A: Copy + Ord, I: Copy + Ord> Fars<A, I> {
    pub(super) fn new() -> Self {
        Self { all: OwnedMap::new(), idle: BTreeMap::new() }
    }

    /// An association carries nothing any more, and waits for the other base's word until then; the one to the
    /// same base that has waited longest, if there are too many.
    fn set_idle(&mut self, id: I, until: Time) -> Option<I> {
        let far = self.all.get_mut(&id)?;
        (far.idle, far.until) = (true, Some(until));
        let idle = self.idle.entry(far.anchor).or_default();
        idle.push_back(id);
        let first = if idle.len() > IDLE_OF_ONE { idle.pop_front() } else { None };
        first.filter(|first| self.all.get(first).is_some_and(|far| far.idle))
    }

    /// The associations for a session, each with the base that it leads to.
    pub(super) fn anchors(&self, session: SessionId) -> impl Iterator<Item = (I, A)> {
        self.all.of(session).map(|(id, far)| (id, far.anchor))
    }

    /// The associations that lead to that base.
    pub(super) fn of_anchor(&self, anchor: A) -> Vec<I> {
        let of = self.all.iter().filter(|(_, far)| far.anchor == anchor);
        of.map(|(id, _)| *id).collect()
    }
}

impl<A, T, I, S> Station<A, T, I, S>
where
    A: Address + Ord,
    T: Authority<A>,
    I: Copy + Ord + Debug,
    S: Copy,
{
    /// Keeps the wired halves of a session that is being given away.
    pub(super) fn keep(
        &mut self,
        world: &mut impl Wires<A, I, S>,
        now: Time,
        session: SessionId,
        mobile: A,
        connections: Vec<ConnectionState>,
        sockets: BTreeMap<ConnId, S>,
    ) {
        if sockets.is_empty() {
            return;
        }
        if let Some(outdone) = self.kept.outdone(mobile)
            && let Some((_, sockets)) = self.recall(world, now, outdone)
        {
            sockets.into_values().for_each(|socket| world.reset(socket));
        }
        let state = Some(SessionState::of(session, connections));
        let until = now + PATIENCE;
        let kept = Kept { mobile, state, sockets, at: None, attempt: 0, until };
        self.kept.insert(session, kept);
        self.due.set(Due::Kept(session), Some(until));
    }

    /// Sessions of a mobile that are elsewhere and whose wired halves are here.
    pub(super) fn kept_of(&self, mobile: A) -> impl Iterator<Item = SessionId> {
        self.kept.of(mobile).map(|(session, _)| session)
    }

    /// Resets the connections of a session whose wired halves are elsewhere, which those bases are told.
    pub(super) fn end_far(&mut self, world: &mut impl Wires<A, I, S>, session: SessionId) {
        let ids: Vec<I> = self.far.all.of(session).map(|(id, _)| id).collect();
        for id in ids {
            self.far.all.get_mut(&id).into_iter().for_each(|far| far.early = false);
            self.ended.insert(id);
            Self::reset_far(world, id);
        }
    }

    /// The connections of a session whose wired halves are here, with what came of the bytes between
    /// here and the base that has it, which does not answer any more.
    pub(super) fn recall(
        &mut self,
        world: &mut impl Wires<A, I, S>,
        now: Time,
        session: SessionId,
    ) -> Option<(SessionState, BTreeMap<ConnId, S>)> {
        let Kept { at, state, sockets, .. } = self.kept.remove(&session)?;
        let state = match at {
            Some(id) => {
                self.attached.remove(&id);
                Self::detach(world, now, id, session)
            }
            None => state,
        };
        if state.is_none() {
            sockets.values().for_each(|socket| world.reset(*socket));
        }
        Some((state?, sockets))
    }

    /// Takes a session with kept wired halves out of an association between bases, which is over.
    fn detach(
        world: &mut impl Wires<A, I, S>,
        now: Time,
        id: I,
        session: SessionId,
    ) -> Option<SessionState> {
        let (own, mut streams) = world.session(id)?;
        let state = own.freeze(now, &mut streams, session);
        for (_, socket) in world.wired(id) {
            world.detach(socket);
        }
        world.close(id);
        // Another base's session counts its resumes from the beginning.
        Some(SessionState { turn: 0, ..state })
    }

    /// A base may want to go on with wired halves that are kept here; whether that is what it says.
    pub(super) fn on_attach(
        &mut self,
        world: &mut impl Wires<A, I, S>,
        now: Time,
        id: I,
        from: A,
        message: &[u8],
    ) -> bool {
        let answer = match self.machine.check_attach(from, message) {
            None => return false,
            Some(Ok(attach)) => self.let_in(world, now, id, from, &attach),
            // The machine reports it.
            Some(Err(answer)) => answer,
        };
        if let Some((session, mut streams)) = world.session(id) {
            // If it is lost, the association is as good as lost.
            let _ = session.send_message(now, &mut streams, &answer);
        }
        true
    }

    fn let_in(
        &mut self,
        world: &mut impl Wires<A, I, S>,
        now: Time,
        id: I,
        from: A,
        attach: &Attach<A>,
    ) -> Vec<u8> {
        let refuse = |reason: Reason| handoff::refuse(attach.session, attach.attempt, reason);
        // An association is for one session's bytes: two would end each other.
        if self.attached.get(&id).is_some_and(|other| *other != attach.session) {
            return refuse(Reason::Busy);
        }
        let Some(kept) = self.kept.get_mut(&attach.session) else {
            return refuse(Reason::Unknown);
        };
        if kept.mobile != attach.mobile || attach.attempt < kept.attempt {
            return refuse(Reason::Outdated);
        }
        let state = match kept.at.replace(id) {
            Some(before) if before == id => None,
            Some(before) => {
                self.attached.remove(&before);
                Self::detach(world, now, before, attach.session)
            }
            None => kept.state.take(),
        };
        kept.attempt = attach.attempt;
        self.attached.insert(id, attach.session);
        self.ended.insert(id);
        let Some(state) = state else { return handoff::attached(attach) };
        let Some((session, _)) = world.session(id) else { return refuse(Reason::Unknown) };
        session.adopt(now, state);
        kept.sockets.retain(|_, socket| world.state(*socket).is_some());
        for (conn, socket) in &kept.sockets {
            world.attach(*socket, (id, *conn));
        }
        self.note(attach.session, NoteKind::Anchors(from));
        handoff::attached(attach)
    }

    /// The association is lost of a base that went on with wired halves that are kept here. It may have
    /// given the session away, of which nothing comes here before the next base asks; or have died, and
    /// with it bytes that nobody else has, which shows when anybody asks.
    pub(super) fn on_attached_lost(&mut self, world: &mut impl Wires<A, I, S>, now: Time, id: I) {
        let Some(session) = self.attached.remove(&id) else { return };
        let carries = world.peek(id).is_some_and(|session| session.connections() > 0);
        let Some(kept) = self.kept.get_mut(&session) else { return };
        kept.at = None;
        kept.until = now + LOST_PATIENCE;
        self.due.set(Due::Kept(session), Some(kept.until));
        kept.state = if carries { Self::detach(world, now, id, session) } else { None };
        if kept.state.is_none() {
            kept.sockets.values().for_each(|socket| world.reset(*socket));
            self.kept.remove(&session);
        }
    }

    /// Resets wired halves for which nobody has come by now.
    pub(super) fn expire(
        &mut self,
        world: &mut impl Wires<A, I, S>,
        now: Time,
        session: SessionId,
    ) {
        let late = |kept: &Kept<A, I, S>| kept.at.is_none() && kept.until <= now;
        if self.kept.get(&session).is_some_and(late)
            && let Some(kept) = self.kept.remove(&session)
        {
            kept.sockets.values().for_each(|socket| world.reset(*socket));
            self.note(session, NoteKind::NotAttached);
        }
    }

    /// Resets connections whose base with the wired halves has not let this one in by now.
    pub(super) fn expire_far(&mut self, world: &mut impl Wires<A, I, S>, now: Time, id: I) {
        let Some(far) = self.far.all.get_mut(&id) else { return };
        if far.until.is_none_or(|until| now < until) {
            return;
        }
        if far.idle || far.early {
            self.far.all.remove(&id);
            return world.unlink(id, Farewell::Said);
        }
        far.until = None;
        far.asked.get_or_insert(0);
        let (session, anchor) = (far.session, far.anchor);
        Self::reset_far(world, id);
        self.note(session, NoteKind::AnchorSilent(anchor));
    }

    /// The association to the base that keeps this session's wired halves, made if there is none.
    pub(super) fn far(
        &mut self,
        world: &mut impl Wires<A, I, S>,
        now: Time,
        session: SessionId,
        anchor: A,
    ) -> Option<I> {
        let serves = |far: &Far<A>| far.anchor == anchor && !far.idle && !far.over;
        let known = self.far.all.of(session).find(|(_, far)| serves(far));
        if let Some((id, _)) = known {
            return Some(id);
        }
        let id = world.link(anchor, session)?;
        let until = Some(now + PATIENCE);
        self.due.set(Due::Far(id), until);
        self.far.all.insert(
            id,
            Far {
                session,
                anchor,
                asked: None,
                outdated: 0,
                until,
                idle: false,
                over: false,
                early: false,
            },
        );
        // Should nothing be carried over it after all.
        self.ended.insert(id);
        Some(id)
    }

    /// Makes the associations that a state will need that may not be used yet, or whose mobile has none here:
    /// they take a round trip between the bases.
    pub(super) fn link_early(
        &mut self,
        world: &mut impl Wires<A, I, S>,
        now: Time,
        session: SessionId,
        anchors: BTreeSet<A>,
    ) {
        for base in anchors {
            if base != self.own
                && let Some(id) = self.far(world, now, session, base)
            {
                // It is to carry something as soon as the mobile is here.
                self.ended.remove(&id);
                self.far.all.get_mut(&id).into_iter().for_each(|far| far.early = true);
            }
        }
    }

    /// The mobile is here: whatever associations were made early are used now, or not at all.
    pub(super) fn use_links(
        &mut self,
        world: &mut impl Wires<A, I, S>,
        now: Time,
        session: SessionId,
    ) {
        let early = self.far.all.of(session).filter(|(_, far)| far.early).map(|(id, _)| id);
        for id in early.collect::<Vec<_>>() {
            self.far.all.get_mut(&id).into_iter().for_each(|far| far.early = false);
            self.ended.insert(id);
            if world.is_linked(id) {
                self.handle_linked(world, now, id);
            }
        }
    }

    /// An association that this base [made](Wires::link) stands: asks to be let in and goes on. Without
    /// a grant it waits: the mobile may bring one, or be with another base by now, which will ask for
    /// all of this. False if it was not made for bytes.
    pub fn handle_linked(&mut self, world: &mut impl Wires<A, I, S>, now: Time, id: I) -> bool {
        let Some(far) = self.far.all.get_mut(&id) else { return false };
        if far.asked.is_some() || far.early {
            return true;
        }
        let Some(message) = self.machine.attach(far.session, far.anchor) else { return true };
        let grant = self.machine.grant_for(far.session, far.anchor);
        let attempt = grant.map_or(0, |(attempt, _)| attempt);
        if far.outdated > 0 && attempt <= far.outdated {
            return true;
        }
        far.asked = Some(attempt);
        if let Some((session, mut streams)) = world.session(id) {
            // If it does not fit, no answer comes, and the other end has the last word.
            let _ = session.send_message(now, &mut streams, &message);
            session.resume(now, &mut streams, far.session);
        }
        true
    }

    /// Asks to be let in wherever a grant for that session was missing.
    pub(super) fn attach_waiting(
        &mut self,
        world: &mut impl Wires<A, I, S>,
        now: Time,
        session: SessionId,
    ) {
        let of = self.far.all.of(session);
        let waiting = of.filter(|(_, far)| far.asked.is_none()).map(|(id, _)| id);
        for id in waiting.collect::<Vec<_>>() {
            if world.is_linked(id) {
                self.handle_linked(world, now, id);
            }
        }
    }

    /// An association that this base made is lost, or cannot come about. False if it was not made for
    /// bytes.
    pub fn handle_link_lost(&mut self, world: &mut impl Wires<A, I, S>, id: I, why: &str) -> bool {
        let Some(far) = self.far.all.get_mut(&id) else { return false };
        if far.idle {
            self.far.all.remove(&id);
            world.unlink(id, Farewell::None);
            return true;
        }
        // Nothing more is to be asked of it.
        far.asked.get_or_insert(0);
        far.over = true;
        self.ended.insert(id);
        let (session, anchor) = (far.session, far.anchor);
        self.note(session, NoteKind::AnchorLost(anchor, why.to_string()));
        Self::reset_far(world, id);
        true
    }

    /// The base with the wired halves answers.
    pub(super) fn on_attached(
        &mut self,
        world: &mut impl Wires<A, I, S>,
        now: Time,
        id: I,
        message: &[u8],
    ) {
        let Some(far) = self.far.all.get_mut(&id) else { return };
        match handoff::read_attached(message, far.session, far.asked.unwrap_or_default()) {
            None => {}
            Some(Ok(())) if far.idle => {}
            // That it has let this base in was reported before.
            Some(Err(Reason::Unknown)) if far.idle || far.until.is_none() => {
                far.over = true;
                self.ended.insert(id);
            }
            Some(Ok(())) => far.until = None,
            // The mobile has gone on, and somebody will ask for what is here; or it has come back, and
            // brings another grant.
            Some(Err(Reason::Outdated)) => {
                far.outdated = far.asked.take().unwrap_or_default();
                self.handle_linked(world, now, id);
            }
            Some(Err(reason)) => {
                let (session, anchor) = (far.session, far.anchor);
                self.note(session, NoteKind::AnchorRefused(anchor, reason));
                Self::reset_far(world, id);
            }
        }
    }

    /// Resets the connections whose wired halves are with another base.
    fn reset_far(world: &mut impl Wires<A, I, S>, id: I) {
        if let Some((session, mut streams)) = world.session(id) {
            session.reset_all(&mut streams, ResetReason::AssociationLost);
        }
    }

    /// Ends associations between bases that carry nothing any more, at both ends: what has arrived at
    /// an end may have yet to be passed on.
    pub(super) fn end_idle(&mut self, world: &mut impl Wires<A, I, S>, now: Time) {
        while let Some(id) = self.ended.pop_first() {
            // The end of a connection brings this here again, once its bridge knows of it, too.
            let bridged = self.far.all.contains_key(&id) && !world.wired(id).is_empty();
            if bridged || world.peek(id).is_some_and(|session| session.connections() > 0) {
                continue;
            }
            if let Some(name) = self.attached.get(&id).copied() {
                // How they ended is remembered until the other base has passed that on.
                let attempt = self.kept.get(&name).map(|kept| kept.attempt);
                if let (Some(attempt), Some((own, mut streams))) = (attempt, world.session(id)) {
                    let over = handoff::refuse(name, attempt, Reason::Unknown);
                    // If it is lost, the other base ends the association in time.
                    let _ = own.send_message(now, &mut streams, &over);
                }
            } else if let Some(far) = self.far.all.get_mut(&id) {
                let let_in = far.until.is_none() && far.asked != Some(0);
                if let_in && !far.over {
                    let until = now + LAST_PATIENCE;
                    self.due.set(Due::Far(id), Some(until));
                    if let Some(first) = self.far.set_idle(id, until) {
                        self.far.all.remove(&first);
                        world.unlink(first, Farewell::Said);
                    }
                } else if far.over || !far.idle {
                    self.far.all.remove(&id);
                    world.unlink(id, Farewell::Said);
                }
            }
        }
    }

    /// Takes every far connection of a session out of its association, which is over. One that carries
    /// nothing stays: the other base may have yet to pass on what it carried.
    pub(super) fn recall_far(
        &mut self,
        world: &mut impl Wires<A, I, S>,
        now: Time,
        session: SessionId,
    ) -> BTreeMap<ConnId, (A, ConnectionState)> {
        let mut out = BTreeMap::new();
        let used = self.far.all.of(session).filter(|(_, far)| !far.idle);
        let ids: Vec<I> = used.map(|(id, _)| id).collect();
        for id in ids {
            let Some(far) = self.far.all.remove(&id) else { continue };
            let bridges = world.wired(id);
            if let Some((own, mut streams)) = world.session(id) {
                own.suspend(now, &mut streams);
                for (conn, _) in &bridges {
                    if let Some(state) = own.export(*conn) {
                        out.insert(*conn, (far.anchor, state));
                    }
                }
            }
            // The mobile's end of some is over.
            bridges.into_iter().for_each(|(_, bridge)| world.reset(bridge));
            world.unlink(id, Farewell::None);
        }
        out
    }
}
