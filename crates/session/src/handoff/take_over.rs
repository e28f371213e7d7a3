//! A session goes on without the word of the base that had it: that one is dead, or cut off.
//!
//! Whoever takes a session over has it from then on. Should the base before still be there, it is asked for the session as in
//! any handoff, as soon as it can be reached and for as long as an hour; what it gives is of no use any more, but with that it
//! has given it away.
//!
//! Packets for the mobile may have come to it until then, and have to be led here anew. That is for who has the session, and a
//! base that was cut off meanwhile may not know that another took it over from it in turn. So the mobile is asked first: the
//! Resume that it has had is repeated until it says Here.

use alloc::vec::Vec;

use lasthop_units::{Duration, Time};
use lasthop_wire::mhp::handoff::{
    Message, ORPHANS_FIRST, ORPHANS_LAST, Orphan, Reason, SessionId, SessionState,
};

use super::base::{Base, BaseEvent};
use super::entry::{Arriving, ArrivingStage, Asked, Doubt, Holder, NUMBERS, Recipient, Role};
use super::fences::Fence;
use super::{Address, Authority, Retry};

/// A base that may be dead is asked at least so often, and for so long.
const FENCE_EVERY: Duration = Duration::from_secs(30);
const FENCE_FOR: Duration = Duration::from_secs(3600);

/// Bytes of a state that is of no use, in its only piece.
const USELESS: u16 = 64;

/// A base that is silent for so many times as long as makes it doubtful is taken for dead whatever that costs.
const CERTAIN: u32 = 4;

/// Connections of one mobile at most.
const ORPHANS_OF_ONE: usize = 16 * 1024;

/// The number of a state that is taken over in a handoff: above whatever the base before makes of it in that handoff, and below
/// what any does in the next.
pub(super) const fn taken_over_in(attempt: u32) -> u32 {
    attempt.saturating_mul(NUMBERS).saturating_add(NUMBERS / 2)
}

/// Whether a state of that number is one that was taken over, in whichever handoff.
pub(super) const fn is_taken_over(number: u32) -> bool {
    number % NUMBERS == NUMBERS / 2
}

impl<A> Arriving<A> {
    /// It is not another base that is to have it next.
    fn is_for_mobile(&self) -> bool {
        !matches!(self.wanted, Some(Recipient::Base { .. }))
    }
}

impl<A: Address, T: Authority<A>> Base<A, T> {
    /// The base that has a session may be dead. Whether the session may be taken over then.
    pub(super) fn doubt_holder(&mut self, now: Time, session: SessionId, doubt: Doubt) -> bool {
        let attempt = self.attempt(session);
        let may = self.config.take_over.is_some();
        let arriving = self.arriving(session).filter(|arriving| may && arriving.attempt == attempt);
        let Some(arriving) = arriving.filter(|arriving| arriving.is_for_mobile()) else {
            return false;
        };
        if core::mem::replace(&mut arriving.holder_is, doubt) == Doubt::None {
            arriving.ask_mobile = Some(now);
            self.ask_mobile(now, session);
        }
        true
    }

    /// Asks the mobile, if it is time to, whether the session is to go on without the base that has it. Only the mobile knows
    /// whether it is still to be here, and what it says it says for good.
    pub(super) fn ask_mobile(&mut self, now: Time, session: SessionId) {
        let again = now + self.config.retry;
        let Some(arriving) = self.arriving(session) else { return };
        if arriving.ask_mobile.is_none_or(|at| at > now) {
            return;
        }
        arriving.ask_mobile = Some(again);
        let (mobile, attempt) = (arriving.mobile, arriving.attempt);
        self.send(mobile, session, attempt, Message::TakeOver);
    }

    /// The mobile says what it has, and how long it has not heard from the base that had the session.
    pub(super) fn on_orphans(
        &mut self,
        now: Time,
        asked: Asked<A>,
        flags: u8,
        silent: Duration,
        orphans: Vec<Orphan>,
    ) {
        let Asked { by: mobile, session, attempt } = asked;
        let patience = self.config.take_over.unwrap_or_default() * CERTAIN;
        let Some(arriving) = self.arriving(session) else { return };
        let awaited = arriving.ask_mobile.is_some() && arriving.holder_is != Doubt::None;
        if !awaited || (arriving.mobile, arriving.attempt) != (mobile, attempt) {
            return;
        }
        // An answer is whole or none: of one that began before it was asked again the rest is of no use.
        if flags & ORPHANS_FIRST != 0 {
            arriving.orphans = Some(Vec::new());
        }
        let Some(known) = &mut arriving.orphans else { return };
        if known.len() + orphans.len() > ORPHANS_OF_ONE {
            arriving.orphans = None;
            return;
        }
        known.extend(orphans);
        if flags & ORPHANS_LAST == 0 {
            return;
        }
        arriving.ask_mobile = None;
        let orphans = arriving.orphans.take().unwrap_or_default();
        match core::mem::replace(&mut arriving.stage, ArrivingStage::Asking) {
            // All of it is here, and the mobile, which may have used it, says that it is to be used.
            ArrivingStage::Committing { state, .. } => self.go_on_from(now, session, state),
            stage => {
                arriving.stage = stage;
                let certain = arriving.holder_is == Doubt::Unreachable
                    || arriving.last_message + patience <= now;
                let event =
                    BaseEvent::TakeOver { session, mobile, attempt, orphans, certain, silent };
                self.events.push_back(event);
            }
        }
    }

    /// In answer to [`TakeOver`](BaseEvent::TakeOver): this is what the mobile has of the session, which goes on here from it;
    /// or it cannot go on from that, and the other base is waited for: then the mobile is asked once more when that is certain
    /// to be dead. False if neither is wanted any more: that base has answered, or the mobile has gone on.
    pub fn take_over(
        &mut self,
        now: Time,
        session: SessionId,
        attempt: u32,
        state: Option<SessionState>,
    ) -> bool {
        let latest = self.attempt(session);
        let patience = self.config.take_over.unwrap_or_default() * CERTAIN;
        let Some(arriving) = self.arriving(session) else { return false };
        let doubt = arriving.holder_is;
        if doubt == Doubt::None
            || arriving.stage.is_committing()
            || !arriving.is_for_mobile()
            || (arriving.attempt, latest) != (attempt, attempt)
        {
            return false;
        }
        let Some(state) = state else {
            match doubt {
                Doubt::Unreachable => self.fail(now, session, Reason::Unreachable),
                _ => arriving.ask_mobile = Some(now.max(arriving.last_message + patience)),
            }
            self.rearm(session);
            return true;
        };
        self.go_on_from(now, session, state);
        true
    }

    /// The session goes on here, by its mobile's word.
    fn go_on_from(&mut self, now: Time, session: SessionId, state: SessionState) {
        let attempt = self.attempt(session);
        let Some(arriving) = self.arriving(session) else { return };
        let (holder, mobile) = (arriving.holder, arriving.mobile);
        self.ahead.remove(session);
        self.set(session, attempt, Role::Rebuilding(mobile));
        if let Some(entry) = self.sessions.get_mut(&session) {
            entry.number = taken_over_in(attempt).max(holder.since.saturating_add(1));
        }
        self.events.push_back(BaseEvent::Rebuild { state, mobile });
        // One that is not known any more gives nothing.
        if holder.addr != self.addr && self.authority.is_base(holder.addr) {
            self.begin_fence(now, session, holder, mobile, attempt, now + FENCE_FOR);
        }
        self.rearm(session);
    }

    /// Asks a base for what was taken over from it in that handoff, until it answers, and until then at the latest.
    fn begin_fence(
        &mut self,
        now: Time,
        session: SessionId,
        Holder { addr: holder, since }: Holder<A>,
        mobile: A,
        attempt: u32,
        until: Time,
    ) {
        let (warrant, retry) = (self.warrant(session, holder), Retry::now(now, &self.config));
        let is_fenced = false;
        let fence = Fence { holder, attempt, since, warrant, mobile, is_fenced, retry, until };
        self.fences.insert(session, fence, self.config.sessions_max);
        self.fence(now, session, holder);
    }

    /// Asks bases for what was taken over from them.
    pub(super) fn handle_fences_due(&mut self, now: Time, session: SessionId) {
        let of = self.fences.all.get(&session).into_iter().flatten();
        let due: Vec<A> =
            of.filter(|fence| fence.retry.next <= now).map(|fence| fence.holder).collect();
        for holder in due {
            self.fence(now, session, holder);
        }
    }

    fn fence(&mut self, now: Time, session: SessionId, holder: A) {
        let Some(fence) = self.fences.get_mut(session, holder) else { return };
        if fence.until <= now {
            return self.fences.remove(session, holder);
        }
        fence.retry.again_within(now, FENCE_EVERY);
        if fence.is_fenced {
            let mobile = fence.mobile;
            return self.ask_whether_here(session, holder, mobile);
        }
        let (attempt, since, warrant) = (fence.attempt, fence.since, fence.warrant.clone());
        let limit = u64::MAX;
        let message =
            Message::Handover { limit, piece: USELESS, window: 1, since, copy: None, warrant };
        self.send(holder, session, attempt, message);
    }

    fn ask_whether_here(&mut self, session: SessionId, holder: A, mobile: A) {
        let Some(entry) = self.sessions.get(&session) else {
            return self.fences.remove(session, holder);
        };
        match entry.role {
            Role::Serving => {
                let (attempt, since) = (entry.attempt, entry.number);
                self.send(mobile, session, attempt, Message::Resume { since });
            }
            // Then it is told.
            Role::Rebuilding(_) => {}
            _ => self.fences.remove(session, holder),
        }
    }

    /// The mobile says that its session, which is in use here, is to be.
    pub(super) fn confirm_fences(&mut self, session: SessionId) {
        if self.fences.take_fenced(session) {
            self.events.push_back(BaseEvent::Fenced { session });
        }
    }

    /// That base can be reached again: what was taken over from it is asked for at once.
    pub(super) fn fence_now(&mut self, now: Time, holder: A) {
        for session in self.fences.of(holder) {
            if let Some(fence) = self.fences.get_mut(session, holder) {
                fence.retry = Retry::now(now, &self.config);
            }
            self.fence(now, session, holder);
            self.rearm(session);
        }
    }

    /// Whether a message is the answer of a base from which a session was taken over.
    pub(super) fn on_fenced(&mut self, now: Time, asked: Asked<A>, message: &Message<'_>) -> bool {
        let Asked { by: holder, session, attempt } = asked;
        let Some(fence) = self.fences.get_mut(session, holder) else { return false };
        if fence.attempt != attempt || fence.is_fenced {
            return false;
        }
        match message {
            Message::State { generation, .. } => {
                // It is there: should either of the next two messages be lost, it is asked soon.
                fence.retry = Retry::after_progress(now, &self.config);
                let (generation, warrant) = (*generation, fence.warrant.clone());
                self.send(holder, session, attempt, Message::Commit { generation, warrant });
            }
            Message::Superseded { .. } => self.fence(now, session, holder),
            Message::Refuse(Reason::Busy) => {}
            // It has given the session away, or does not have it.
            Message::Committed { .. } | Message::Moved { .. } | Message::Refuse(_) => {
                let (until, mobile) = (fence.until, fence.mobile);
                (fence.is_fenced, fence.retry) = (true, Retry::now(now, &self.config));
                self.fence(now, session, holder);
                if let Message::Moved { to, since } = message
                    && let Some(to) = A::from_name(to)
                    && to != self.addr
                    && to != holder
                    && self.authority.is_base(to)
                {
                    // That one does not know either.
                    let holder = Holder { addr: to, since: *since };
                    self.begin_fence(now, session, holder, mobile, attempt, until);
                }
            }
            _ => return false,
        }
        true
    }
}
