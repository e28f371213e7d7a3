//! A base's part in handoffs: [`handoff::Base`] and what it moves.
//!
//! A [`Station`] has the machine of messages, and knows which mobiles are here, which sessions left
//! their wired halves here, where those of sessions that are here have stayed, and what is still to be
//! done for each. What it does with associations and wired halves it does through [`Wires`]: to the
//! kernel's in a base, to others in simulation.
//!
//! `anchor`: wired halves stay where they were made, and the base that has the session goes on with
//! their bytes over an association of its own. `migrate`: they go along. Which of the two, and what
//! becomes of those that cannot, [`Wires::fate`] says for each.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Debug;

use lasthop_units::{Deadlines, Duration, Time, gather};
use lasthop_wire::mhp::handoff::{Datagram, Message, Reason, SessionId};

use crate::handoff::{self, Address, Authority, BaseEvent, Denied};
use crate::{ConnId, Event, ResetReason};

mod anchor;
mod associations;
mod bridge;
mod give;
mod kept;
mod mobiles;
mod revoke;
mod take;
mod take_over;
#[cfg(test)]
mod tests;
mod wired;
mod world;

pub use associations::{Associations, Name};
pub use bridge::Bridge;
pub use world::{Dumped, Ended, Farewell, Fate, Reclaimed, Restored, SocketState, Wires};

use anchor::Fars;
use give::{Delayed, Leaving};
use kept::Keeps;
use mobiles::{Call, Mobiles};
use take::Restoring;
use take_over::TakingOver;

/// How long a mobile that has greeted may take to have its association.
const CALL_PATIENCE: Duration = Duration::from_secs(10);
/// How long connections may be wanted here that nobody says will come.
const WANTED_PATIENCE: Duration = Duration::from_secs(2);
/// Events in one round; what is left waits for the next.
const ROUND_MAX: usize = 1024;
/// How long a session that is to leave, or has come, waits until wired halves can be
/// [dumped and restored](Wires::is_ready): less than another base waits for an answer.
const READY_PATIENCE: Duration = Duration::from_secs(8);

/// What is to be done once the messages have left.
#[derive(Debug)]
enum Deferred<A, I> {
    /// Packets for a session that was given to that base are to go there.
    Reroute { session: SessionId, to: A },
    /// Connections of a session that has come are to have their wired halves.
    Restore(Restoring<A, I>),
}

/// What has a time limit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Due<A, I> {
    /// A mobile has called and is to have its association.
    Call(A),
    /// A mobile carries connections on that are not here.
    Wanted(A),
    /// Wired halves that stayed here.
    Kept(SessionId),
    /// An association to the base with the wired halves.
    Far(I),
}

/// Something that an operator wants to know of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note<A> {
    /// The session.
    pub session: SessionId,
    /// What happened to it.
    pub what: NoteKind<A>,
}

/// What happened to a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoteKind<A> {
    /// It leaves, with so many bytes of state.
    Frozen(usize),
    /// It was given to that base.
    HandedOver(A),
    /// Its state has come, of so many bytes.
    Received(usize),
    /// It stands here, for that mobile.
    TakenOver(A),
    /// The base that had it does not answer: so many connections go on from what the mobile has, and so many cannot.
    Orphaned {
        /// Those that go on.
        taken: usize,
        /// Those that cannot.
        lost: usize,
    },
    /// It does not come to that mobile, for that reason.
    NotReceived(A, Reason),
    /// The mobile left while it came: its connections are reset.
    MobileLeft,
    /// No mobile claimed it once it was frozen: its connections are reset.
    Unclaimed,
    /// That base or mobile asked for something and was refused; nothing was released.
    Refused(A, Denied),
    /// That base goes on with its wired halves, which stayed here.
    Anchors(A),
    /// No base went on with its wired halves, which stayed here: they are reset.
    NotAttached,
    /// That base has the wired half of a connection, and is not known here: it is reset.
    AnchorUnknown(A, ConnId),
    /// That base has wired halves and did not answer in time: the connections are reset.
    AnchorSilent(A),
    /// That base has wired halves and refused: the connections are reset.
    AnchorRefused(A, Reason),
    /// The association to the base with the wired halves is lost: the connections are reset.
    AnchorLost(A, String),
}

/// What happened so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Sessions that came here.
    pub here: u64,
    /// Sessions that were given away.
    pub given: u64,
    /// Wired halves that stayed here.
    pub anchored: u64,
    /// Wired halves that left.
    pub migrated: u64,
    /// Sessions that did not come, or that nobody came for.
    pub lost: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Connections whose base was dead, and that went on here.
    pub orphans_taken: u64,
    /// Those that could not.
    pub orphans_lost: u64,
}

/// A base's part in handoffs: `A` is what bases and mobiles are called, `I` names an association and
/// `S` a wired half.
#[derive(Debug)]
pub struct Station<A, T, I, S> {
    own: A,
    machine: handoff::Base<A, T>,
    mobiles: Mobiles<A, I>,
    /// Sessions that are elsewhere, and whose wired halves are here.
    kept: Keeps<A, I, S>,
    /// Associations to bases that have wired halves of sessions that are here.
    far: Fars<A, I>,
    /// Associations over which other bases reach wired halves of these sessions.
    attached: BTreeMap<I, SessionId>,
    /// Associations between bases of which a connection has ended.
    ended: BTreeSet<I>,
    /// Sessions that are requested and wait until wired halves can leave.
    delayed: BTreeMap<SessionId, Delayed<A>>,
    deferred: VecDeque<(Time, Deferred<A, I>)>,
    /// Sessions that are frozen, and whose wired halves are being dumped.
    leaving: VecDeque<Leaving<A, S>>,
    /// Sessions that have come, and whose wired halves are being made.
    restoring: VecDeque<Restoring<A, I>>,
    /// Sessions whose base is thought to be dead, and that go on from what their mobile has.
    taking_over: BTreeMap<SessionId, TakingOver>,
    /// When to look at what has a time limit. What has met it, or has another by now, stays as it is.
    due: Deadlines<Due<A, I>>,
    notes: VecDeque<Note<A>>,
    counts: Counts,
}

impl<A, T, I, S> Station<A, T, I, S>
where
    A: Address + Ord,
    T: Authority<A>,
    I: Copy + Ord + Debug,
    S: Copy,
{
    /// A base that others call `own`, and that trusts whom `authority` trusts.
    pub fn new(config: handoff::Config, own: A, authority: T) -> Self {
        Self {
            own,
            machine: handoff::Base::with_authority(config, own, authority),
            mobiles: Mobiles::new(),
            kept: Keeps::new(),
            far: Fars::new(),
            attached: BTreeMap::new(),
            ended: BTreeSet::new(),
            delayed: BTreeMap::new(),
            deferred: VecDeque::new(),
            leaving: VecDeque::new(),
            restoring: VecDeque::new(),
            taking_over: BTreeMap::new(),
            due: Deadlines::new(),
            notes: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// The machine of messages, to be looked at.
    pub fn machine(&self) -> &handoff::Base<A, T> {
        &self.machine
    }

    /// Whom this base trusts, to be changed. What it has accepted already is not taken back.
    pub fn authority_mut(&mut self) -> &mut T {
        self.machine.authority_mut()
    }

    /// After how long a silent base is taken for dead from here on, if sessions are taken over at all.
    pub fn set_take_over(&mut self, take_over: Option<Duration>) {
        self.machine.set_take_over(take_over);
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The association of a mobile that is here.
    pub fn association_of(&self, mobile: A) -> Option<I> {
        self.mobiles.at(mobile)
    }

    /// Whether a mobile that has an association here has its session elsewhere.
    pub fn is_away(&self, mobile: A) -> bool {
        self.mobiles.get(mobile).is_some_and(|known| known.away)
    }

    /// Sessions that are elsewhere and whose wired halves are here.
    pub fn anchored(&self) -> usize {
        self.kept.len()
    }

    /// Associations to bases that have wired halves of sessions that are here.
    pub fn anchors(&self) -> usize {
        self.far.all.len()
    }

    /// Whether no wired halves are being dumped or made.
    #[cfg(test)]
    fn is_done(&self) -> bool {
        self.leaving.is_empty() && self.restoring.is_empty()
    }

    /// The next thing that an operator wants to know.
    pub fn poll_note(&mut self) -> Option<Note<A>> {
        self.notes.pop_front()
    }

    fn note(&mut self, session: SessionId, what: NoteKind<A>) {
        // Nobody reads them where this many are left.
        if self.notes.len() < ROUND_MAX {
            self.notes.push_back(Note { session, what });
        }
    }

    /// Writes the next message that should leave now into `out`, in place of what was there; to which
    /// base or mobile it goes. Messages to a mobile go over its association.
    pub fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<A> {
        self.machine.poll_transmit(now, out)
    }

    /// Messages reach that base.
    pub fn reached(&mut self, now: Time, base: A) {
        self.machine.reached(now, base);
    }

    /// Messages do not reach that base, or not any more.
    pub fn unreachable(&mut self, now: Time, base: A) {
        self.machine.unreachable(now, base);
    }

    /// A mobile's association stands.
    pub fn handle_up(&mut self, world: &mut impl Wires<A, I, S>, now: Time, id: I, mobile: A) {
        self.mobiles.set_association(mobile, id);
        self.end_call(world, now, mobile);
    }

    /// A mobile's session is called so, though it has not announced it over its association.
    pub fn name(&mut self, mobile: A, session: SessionId) {
        self.mobiles.name(mobile, session);
    }

    /// An association is lost that a mobile or another base made.
    pub fn handle_lost(&mut self, world: &mut impl Wires<A, I, S>, now: Time, id: I) {
        self.on_attached_lost(world, now, id);
        let Some(mobile) = self.mobiles.take_association(id) else { return };
        let known = self.mobiles.entry(mobile);
        (known.wanted, known.greeted) = (None, false);
        let away = core::mem::take(&mut known.away);
        let (session, calls) = (known.session, known.call.is_some());
        world.release_mobile(mobile);
        // A session that went elsewhere is remembered, and one that is on its way here is still to
        // come.
        if let Some(session) = session
            && !away
            && !calls
            && self.machine.is_here(session)
        {
            self.mobiles.unname(mobile);
            self.machine.remove(session);
        }
        let named = self.mobiles.get(mobile).and_then(|known| known.session);
        self.machine.forget_unused(mobile, named);
        self.mobiles.remove_if_unknown(mobile);
    }

    /// A mobile sends this before it has an association. It may be a replay: the
    /// machine takes nothing that is outdated, and grants are for this base. A mobile that is present says it
    /// over its association, and a call changes nothing of it. Nothing but a greeting is heard so.
    pub fn handle_call(&mut self, now: Time, mobile: A, message: &[u8]) {
        let said = Datagram::decode(message).map(|datagram| datagram.message);
        let present = self.mobiles.get(mobile).is_some_and(|known| known.at.is_some());
        if present || !matches!(said, Ok(Message::Greet { .. })) {
            return;
        }
        let until = now + CALL_PATIENCE;
        let call = self.mobiles.entry(mobile).call.get_or_insert(Call { state: None, until });
        self.due.set(Due::Call(mobile), Some(call.until));
        self.machine.handle_datagram(now, mobile, message);
    }

    /// The association of a mobile that had called stands, or is not waited for any more.
    fn end_call(&mut self, world: &mut impl Wires<A, I, S>, now: Time, mobile: A) {
        let call = self.mobiles.get_mut(mobile).and_then(|known| known.call.take());
        if let Some(Call { state: Some(state), .. }) = call {
            self.rebuild(world, now, state, mobile);
        }
        self.mobiles.remove_if_unknown(mobile);
    }

    /// A mobile says this over its association.
    pub fn handle_mobile(
        &mut self,
        world: &mut impl Wires<A, I, S>,
        now: Time,
        mobile: A,
        message: &[u8],
    ) {
        // Who says much at once has what comes of it done, so that it does not pile up.
        if self.machine.backlog() >= ROUND_MAX {
            self.handle_events(world, now);
        }
        // The name of its session comes with the first word that it says of it.
        let said = Datagram::decode(message).ok();
        if let Some(said) = &said {
            self.mobiles.name(mobile, said.session);
            if matches!(said.message, Message::Greet { .. } | Message::Here { .. }) {
                self.mobiles.entry(mobile).greeted = true;
            }
        }
        self.machine.handle_datagram(now, mobile, message);
        if let Some(said) = said {
            self.attach_waiting(world, now, said.session);
        }
        self.resume_in_place(world, now, mobile);
    }

    /// Another base says this, whichever way it came.
    pub fn handle_base(&mut self, now: Time, base: A, message: &[u8]) {
        self.machine.handle_datagram(now, base, message);
    }

    /// Another base says this, over an association of its own.
    pub fn handle_peer(
        &mut self,
        world: &mut impl Wires<A, I, S>,
        now: Time,
        id: I,
        base: A,
        message: &[u8],
    ) {
        if !self.on_attach(world, now, id, base, message) {
            self.handle_base(now, base, message);
        }
    }

    /// Another base says this, over an association that this base made: one for messages, or one that
    /// was [made](Wires::link) for bytes.
    pub fn handle_link(
        &mut self,
        world: &mut impl Wires<A, I, S>,
        now: Time,
        id: I,
        base: A,
        message: &[u8],
    ) {
        if self.far.all.contains_key(&id) {
            self.on_attached(world, now, id, message);
        } else {
            self.handle_base(now, base, message);
        }
    }

    /// The session of an association says this of a connection.
    pub fn handle_event(&mut self, id: I, event: &Event) {
        match event {
            Event::Reset { id: conn, .. } => self.mark_ended(id, *conn, Ended::Reset),
            Event::Closed(conn) => {
                self.mark_ended(id, *conn, Ended::Whole);
                if self.far.all.contains_key(&id) || self.attached.contains_key(&id) {
                    self.ended.insert(id);
                }
            }
            _ => {}
        }
    }

    /// The peer of an association carries on connections that its session does not have.
    pub fn handle_wanted(
        &mut self,
        world: &mut impl Wires<A, I, S>,
        now: Time,
        id: I,
        from: A,
        wanted: SessionId,
    ) {
        if self.mobiles.at(from) == Some(id) {
            // It waits for the state. Its Greet may be behind; the session's own patience ends this.
            self.wait_for(now, from, wanted);
            self.resume_in_place(world, now, from);
        } else if !self.kept.contains_key(&wanted) {
            Self::decline(world, now, id, wanted);
        }
    }

    /// A mobile that has come back over the association that it had carries on what never left.
    fn resume_in_place(&mut self, world: &mut impl Wires<A, I, S>, now: Time, mobile: A) {
        let Some(known) = self.mobiles.get(mobile) else { return };
        let (Some((session, since)), Some(id)) = (known.wanted, known.at) else { return };
        // What has greeted may have done so in an earlier handoff.
        let wanted_in = world.peek(id).map_or(0, |own| own.wanted_in(session));
        let greeted = known.greeted && wanted_in <= self.machine.attempt(session);
        let heard = greeted || since + WANTED_PATIENCE <= now;
        if !heard || !self.machine.is_here(session) {
            return;
        }
        self.stands(mobile);
        let Some((own, mut streams)) = world.session(id) else { return };
        let state = own.freeze(now, &mut streams, session);
        let moved: BTreeSet<u64> = gather(state.connections.iter().map(|c| c.id));
        own.adopt(now, state);
        own.set_handoff(self.machine.attempt(session));
        // What is being opened goes on, though the session says anew that it is to be; but for what the
        // mobile was requested before it left.
        for (conn, socket) in world.wired(id) {
            if world.state(socket) == Some(SocketState::Opens) && !moved.contains(&conn.0) {
                world.reset(socket);
            }
        }
        self.release_unwired(world, id, moved);
    }

    /// A mobile's session stands on its association, and with it what was carried on there.
    fn stands(&mut self, mobile: A) {
        if let Some(known) = self.mobiles.get_mut(mobile) {
            (known.wanted, known.greeted, known.away) = (None, false, false);
        }
        self.mobiles.remove_if_unknown(mobile);
    }

    fn decline(world: &mut impl Wires<A, I, S>, now: Time, id: I, wanted: SessionId) {
        if let Some((session, mut streams)) = world.session(id) {
            session.decline(now, &mut streams, wanted);
        }
    }

    /// What a mobile wants to carry on here is not here, and does not come.
    fn end_wait(
        &mut self,
        world: &mut impl Wires<A, I, S>,
        now: Time,
        session: SessionId,
        mobile: A,
    ) {
        self.stands(mobile);
        let Some(id) = self.mobiles.at(mobile) else { return };
        Self::decline(world, now, id, session);
        if let Some((own, _)) = world.session(id) {
            own.set_handoff(self.machine.attempt(session));
        }
    }

    /// A mobile carries connections on of a session that is not on its association.
    fn wait_for(&mut self, now: Time, mobile: A, session: SessionId) {
        self.mobiles.entry(mobile).wanted = Some((session, now));
        self.due.set(Due::Wanted(mobile), Some(now + WANTED_PATIENCE));
    }

    /// Ends what a mobile has waited for long enough.
    fn end_patience(&mut self, world: &mut impl Wires<A, I, S>, now: Time, mobile: A) {
        let Some(known) = self.mobiles.get(mobile) else { return };
        let (calls, at) = (known.call.is_some(), known.at);
        let late = known.wanted.filter(|(_, since)| *since + WANTED_PATIENCE <= now);
        let Some((session, _)) = late else { return };
        if self.machine.is_here(session) {
            return self.resume_in_place(world, now, mobile);
        }
        if self.machine.is_coming(session) || calls {
            return self.wait_for(now, mobile, session);
        }
        // What does not come is reset, so that its connections do not hang. A mobile that is here has
        // got the reason, and begins anew.
        self.mobiles.entry(mobile).wanted = None;
        if let Some((own, mut streams)) = at.and_then(|id| world.session(id)) {
            own.reset_wanted(now, &mut streams, session);
        }
    }

    /// Looks at what has a time limit that is over.
    fn end_due(&mut self, world: &mut impl Wires<A, I, S>, now: Time) {
        while let Some(due) = self.due.pop_due(now) {
            match due {
                Due::Call(mobile) => {
                    let known = self.mobiles.get(mobile);
                    let call = known.and_then(|known| known.call.as_ref());
                    if call.is_some_and(|call| call.until <= now) {
                        self.end_call(world, now, mobile);
                    }
                }
                Due::Wanted(mobile) => self.end_patience(world, now, mobile),
                Due::Kept(session) => self.expire(world, now, session),
                Due::Far(id) => self.expire_far(world, now, id),
            }
        }
    }

    /// Does what is due, and lets the machine act; whether there may be more. Follow with
    /// [`poll_transmit`](Self::poll_transmit) and [`poll_note`](Self::poll_note).
    pub fn advance(&mut self, world: &mut impl Wires<A, I, S>, now: Time) -> bool {
        if self.machine.next_timeout().is_some_and(|at| at <= now) {
            self.machine.handle_timeout(now);
        }
        self.end_due(world, now);
        self.end_idle(world, now);
        self.run_deferred(world, Some(now));
        self.end_delays(world, now);
        let some = self.handle_events(world, now);
        self.answer_tentatively(world, now);
        some
    }

    /// Does what the machine has to have done; whether there was anything.
    fn handle_events(&mut self, world: &mut impl Wires<A, I, S>, now: Time) -> bool {
        let mut some = false;
        for _ in 0..ROUND_MAX {
            let Some(event) = self.machine.poll_event() else { break };
            self.handle_machine(world, now, event);
            some = true;
        }
        some
    }

    /// Tells mobiles that are here what is known of sessions whose state may not be used yet, and prepares for
    /// using it.
    fn answer_tentatively(&mut self, world: &mut impl Wires<A, I, S>, now: Time) {
        let mut answered = Vec::new();
        for (mobile, attempt, state) in self.machine.unconfirmed() {
            let own = self.mobiles.at(mobile).and_then(|id| world.session(id));
            if let Some((own, mut streams)) = own
                && own.answer_tentatively(now, &mut streams, state, attempt)
            {
                answered.push((state.session, wired::anchors(state)));
            }
        }
        for (session, anchors) in answered {
            self.link_early(world, now, session, anchors);
        }
    }

    /// When [`advance`](Self::advance) wants to be called at the latest, if wired halves can leave and
    /// come ([`Wires::is_ready`]) or cannot.
    pub fn next_timeout(&self, ready: bool) -> Option<Time> {
        // What waits for wired halves that are being made goes on when they are.
        let delayed = self.delayed.iter().filter(|(session, _)| !self.is_restoring(**session));
        let delayed = delayed.map(|(_, delayed)| delayed.until).min();
        let own =
            [self.machine.next_timeout(), self.due.next(), delayed, self.next_deferred(ready)];
        own.into_iter().flatten().min()
    }

    fn handle_machine<W: Wires<A, I, S>>(&mut self, world: &mut W, now: Time, event: BaseEvent<A>) {
        match event {
            BaseEvent::Freeze { session, mobile } => self.give(world, now, session, mobile),
            BaseEvent::Over { session, mobile } => self.on_over(world, now, session, mobile),
            BaseEvent::Copy(session) => self.copy(world, now, session),
            BaseEvent::Rebuild { state, mobile } => self.take(world, now, state, mobile),
            BaseEvent::TakeOver { session, mobile, attempt, orphans, certain, silent } => {
                let of = (session, mobile, attempt);
                self.begin_take_over(world, now, of, orphans, certain, silent);
            }
            BaseEvent::Resumed { session, mobile } => {
                self.note(session, NoteKind::TakenOver(mobile));
                self.resume_in_place(world, now, mobile);
            }
            BaseEvent::Forward { session, to, .. } => {
                self.counts.given += 1;
                self.note(session, NoteKind::HandedOver(to));
                self.deferred.push_back((now + W::DEFERRAL, Deferred::Reroute { session, to }));
            }
            BaseEvent::Expired(state) => {
                self.note(state.session, NoteKind::Unclaimed);
                self.counts.lost += 1;
                self.discard(world, now, state);
            }
            BaseEvent::Begins { session, mobile } => {
                self.end_elsewhere(world, now, session);
                // The mobile may have come back from another base since.
                if !self.machine.is_coming(session) {
                    self.end_wait(world, now, session, mobile);
                }
                world.end_move(mobile);
            }
            BaseEvent::Fenced { session } => {
                let mobile = self.mobiles.with_session(session);
                if let Some(mobile) = mobile.filter(|mobile| self.mobiles.at(*mobile).is_some()) {
                    world.end_move(mobile);
                }
            }
            BaseEvent::Lost { session, mobile, reason } => {
                self.note(session, NoteKind::NotReceived(mobile, reason));
                self.counts.lost += 1;
            }
            BaseEvent::Refused { session, from, why } => {
                self.note(session, NoteKind::Refused(from, why));
                self.counts.refused += 1;
            }
        }
    }

    /// The session broke and began anew elsewhere.
    fn on_over(
        &mut self,
        world: &mut impl Wires<A, I, S>,
        now: Time,
        session: SessionId,
        mobile: A,
    ) {
        self.end_elsewhere(world, now, session);
        self.discard_deferred(world, session);
        // It may have come for a mobile that has no association here yet.
        let call = self.mobiles.get_mut(mobile).and_then(|known| known.call.as_mut());
        let waiting = call.and_then(|call| call.state.take_if(|state| state.session == session));
        if let Some(state) = waiting {
            self.discard(world, now, state);
        }
        let id = self.mobiles.with_session(session).and_then(|mobile| self.mobiles.at(mobile));
        let Some(id) = id else { return };
        // What the mobile asks for meanwhile, on its way here from there, waits.
        if let Some((own, mut streams)) = world.session(id) {
            let _over = own.freeze(now, &mut streams, session);
        }
        for (_, socket) in world.wired(id) {
            world.abandon(socket);
        }
    }

    /// Whatever of a session was to leave, or is between this base and others, is over.
    fn end_elsewhere(&mut self, world: &mut impl Wires<A, I, S>, now: Time, session: SessionId) {
        self.delayed.remove(&session);
        self.end_leaving(world, |leaving| leaving.session == session);
        if let Some((_, sockets)) = self.recall(world, now, session) {
            sockets.into_values().for_each(|socket| world.reset(socket));
        }
        self.recall_far(world, now, session);
    }

    /// When the next thing that was put off is to be done. If it cannot be done now that is waited for.
    fn next_deferred(&self, ready: bool) -> Option<Time> {
        let (at, _) = self.deferred.front()?;
        Some(if ready { *at } else { *at + READY_PATIENCE })
    }

    /// Does what is due, or everything if `now` is `None`.
    fn run_deferred(&mut self, world: &mut impl Wires<A, I, S>, now: Option<Time>) {
        while let Some(at) = self.next_deferred(world.is_ready())
            && now.is_none_or(|now| at <= now)
            && let Some((_, deferred)) = self.deferred.pop_front()
        {
            match deferred {
                Deferred::Reroute { session, to } => {
                    world.reroute(session, self.mobiles.with_session(session), to);
                }
                Deferred::Restore(restoring) => self.restore(world, restoring),
            }
        }
    }

    /// Wired halves of a session that is over need not be made, and those that are being made are reset.
    fn discard_deferred(&mut self, world: &mut impl Wires<A, I, S>, session: SessionId) {
        let restoring = self.restoring.iter_mut();
        restoring.filter(|restoring| restoring.session == session).for_each(Restoring::end);
        self.deferred.retain_mut(|(_, deferred)| match deferred {
            Deferred::Restore(restoring) if restoring.session == session => {
                world.discard(session, core::mem::take(&mut restoring.images));
                world.end_move(restoring.mobile);
                false
            }
            _ => true,
        });
    }

    /// Resets the connection with this name.
    fn reset(world: &mut impl Wires<A, I, S>, id: I, conn: ConnId) {
        if let Some((session, mut streams)) = world.session(id) {
            session.reset(&mut streams, conn, ResetReason::AssociationLost);
        }
    }
}

/// Whether a message is a piece of a copy that is sent ahead of a handoff: nothing urgent should wait
/// behind such.
pub fn is_copy(message: &[u8]) -> bool {
    matches!(Datagram::decode(message), Ok(Datagram { message: Message::Ahead { .. }, .. }))
}

/// The session that a message between bases is about; none if it is about the association that it came over.
pub fn session_of(message: &[u8]) -> Option<SessionId> {
    let said = Datagram::decode(message).ok()?;
    let of_association = matches!(said.message, Message::Attach { .. } | Message::Attached);
    (!of_association).then_some(said.session)
}
