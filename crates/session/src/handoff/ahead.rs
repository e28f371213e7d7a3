//! Predictive transfer: a copy of a session's state goes to the base that is expected next, before
//! the radio lets go (MOB-39 to MOB-41).
//!
//! A copy changes nothing: the session is used on where it stands, and at the handoff a copy only
//! spares bytes (see [`delta`](super::delta)). It is renewed while the handoff is awaited, each
//! time by what has changed, and dropped on both sides when nothing comes of it.

use alloc::vec::Vec;

use lasthop_units::{Duration, Time};
use lasthop_wire::mhp::handoff::{BaseName, Message, Pieces, SessionId, SessionState};

use super::base::{Base, BaseEvent};
use super::copies::{Ahead, Came, Leaving};
use super::entry::{Asked, Role};
use super::give::numbers;
use super::outbox::{Out, Outgoing};
use super::pull::Pull;
use super::{Address, Authority, Config, Denied, Retry, delta};

/// The number of no copy.
const NOTHING: u32 = 0;
/// Bytes of a copy for which it waits once more as long before it is renewed.
const RENEWED: u64 = 256 * 1024;

impl<A: Address, T: Authority<A>> Base<A, T> {
    /// A mobile expects to go to another base soon (MOB-39).
    pub(super) fn on_expect(&mut self, now: Time, asked: Asked<A>, candidate: &BaseName) {
        let Asked { by: mobile, session, attempt } = asked;
        let serves = |role: &Role<A>| matches!(role, Role::Serving | Role::Failed { .. });
        let entry = self.sessions.get(&session);
        let here = entry.map_or(!self.authority.needs_grants(), |entry| serves(&entry.role));
        if let Err(why) = self.owns(mobile, session) {
            return self.refuse_candidate(asked, candidate.clone(), why);
        }
        let to = A::from_name(candidate).filter(|to| self.authority.is_base(*to));
        let Some(to) = to else {
            return self.refuse_candidate(asked, candidate.clone(), Denied::UnknownCandidate);
        };
        if !here || to == self.addr {
            return;
        }
        let is_known = self.ahead.leaving.contains_key(&session);
        let room = is_known || self.ahead.leaving.len() < self.config.pending_max;
        let known = self.ahead.leaving.get_mut(&session).filter(|leaving| leaving.to == to);
        if let Some(leaving) = known {
            leaving.expected = now;
            if leaving.attempt < attempt {
                // It went, or was about to, and came back: no copy was made meanwhile.
                leaving.attempt = attempt;
                self.events.push_back(BaseEvent::Copy(session));
            }
        } else if room {
            let retry = Retry { next: Time::NEVER, wait: self.config.retry };
            let leaving = Leaving {
                to,
                attempt,
                number: 0,
                had: None,
                copy: None,
                package: Vec::new(),
                expected: now,
                retry,
            };
            self.ahead.leaving.insert(session, leaving);
            self.events.push_back(BaseEvent::Copy(session));
        }
        let candidate = candidate.clone();
        self.send(mobile, session, attempt, Message::Expected { candidate, refused: None });
    }

    /// The requested copy, or `None` if the world has no such session.
    pub fn copied(&mut self, now: Time, session: SessionId, state: Option<SessionState>) {
        let (free, config) = (self.free_memory(self.addr), self.config);
        if self.is_frozen(session) {
            return;
        }
        let Some(leaving) = self.ahead.leaving.get_mut(&session) else { return };
        let copy = state.map(|state| state.encode()).filter(|copy| {
            let len = copy.len() as u64;
            len <= config.state_max.get() && 2 * len <= free
        });
        let Some(copy) = copy else {
            self.ahead.leaving.remove(&session);
            return;
        };
        leaving.package = match &leaving.had {
            Some(had) => delta::remainder(had, &copy),
            None => copy.clone(),
        };
        leaving.copy = Some(copy);
        self.begin_ahead(now, session);
        self.rearm(session);
    }

    /// The first pieces of another package.
    fn begin_ahead(&mut self, now: Time, session: SessionId) {
        let config = self.config;
        let Some(leaving) = self.ahead.leaving.get_mut(&session) else { return };
        leaving.number = leaving.number.saturating_add(1);
        leaving.retry = Retry::after_progress(now, &config);
        let first = Pieces { first: 0, count: ahead_window(&config) };
        self.send_ahead(session, config.piece(), &[first]);
    }

    /// The session is on its way: copies of it are of use as they are.
    fn is_frozen(&self, session: SessionId) -> bool {
        self.sessions.get(&session).is_some_and(|entry| matches!(entry.role, Role::Leaving(_)))
    }

    fn send_ahead(&mut self, session: SessionId, len: u16, runs: &[Pieces]) {
        let Some(leaving) = self.ahead.leaving.get(&session) else { return };
        let &Leaving { to, attempt, number, .. } = leaving;
        let (total, piece) = (leaving.package.len() as u64, u64::from(len));
        for n in numbers(runs) {
            let offset = n * piece;
            if offset >= total {
                continue;
            }
            let out = Out::Ahead { number, offset, len };
            self.put(Outgoing { to, session, attempt, out });
        }
    }

    /// The candidate lacks pieces.
    pub(super) fn on_fetch(
        &mut self,
        now: Time,
        from: A,
        session: SessionId,
        number: u32,
        piece: u16,
        pieces: &[Pieces],
    ) {
        let config = self.config;
        let Some(leaving) = self.ahead.leaving.get_mut(&session) else { return };
        if (leaving.to, leaving.number) != (from, number) || leaving.is_done() || piece == 0 {
            return;
        }
        leaving.retry = Retry::after_progress(now, &config);
        self.send_ahead(session, piece, pieces);
    }

    /// The candidate has it all, or ([`NOTHING`]) none that the package builds on.
    pub(super) fn on_have(&mut self, now: Time, from: A, session: SessionId, number: u32) {
        let config = self.config;
        let Some(leaving) = self.ahead.leaving.get_mut(&session) else { return };
        if leaving.to == from
            && number == NOTHING
            && let (Some(_), Some(copy)) = (&leaving.had, &leaving.copy)
        {
            leaving.package = copy.clone();
            leaving.had = None;
            return self.begin_ahead(now, session);
        }
        if (leaving.to, leaving.number) != (from, number) {
            return;
        }
        if let Some(copy) = leaving.copy.take() {
            let len = copy.len() as u64;
            leaving.had = Some(copy);
            leaving.package = Vec::new();
            leaving.retry = Retry { next: now + renewal(&config, len), wait: config.retry };
        }
    }

    /// A piece of a copy came, of a session that is neither here nor on its way here.
    pub(super) fn on_ahead(
        &mut self,
        now: Time,
        asked: Asked<A>,
        number: u32,
        total: u64,
        offset: u64,
        bytes: &[u8],
    ) {
        let Asked { by: from, session, attempt } = asked;
        let used = |role: &Role<A>| !matches!(role, Role::Given { .. } | Role::Failed { .. });
        let used = self.sessions.get(&session).is_some_and(|entry| used(&entry.role));
        if used || number == NOTHING {
            return;
        }
        let config = self.config;
        let known = self.ahead.came.get(&session).filter(|came| came.from == from);
        let whole = known.and_then(|came| came.whole.as_ref()).map_or(NOTHING, |(n, _)| *n);
        if number < whole {
            // Late, or of a base that counts anew: then what is here is let go in the end.
            return;
        }
        if number == whole {
            // Our word for it was lost.
            self.ahead.refresh(session, now);
            return self.send(from, session, attempt, Message::Have { number });
        }
        let coming = known.and_then(|came| came.coming.as_ref()).map(|(n, ..)| *n);
        let pull = if coming.is_none_or(|coming| coming < number) {
            let room = known.is_some() || self.ahead.has_room(session, from, config.pending_max);
            let fits = total <= config.state_max.get();
            let piece = piece_len(total, offset, bytes.len()).filter(|_| room && fits);
            let Some(piece) = piece else { return };
            if !self.has_memory(from, total + total.div_ceil(u64::from(piece))) {
                return;
            }
            Some((number, piece, Pull::new(total as usize, piece, ahead_window(&config))))
        } else {
            None
        };
        let retry = Retry::after_progress(now, &config);
        let fresh = || Came { from, attempt, whole: None, coming: None, last_message: now, retry };
        let came = self.ahead.came.entry(session).or_insert_with(fresh);
        if came.from != from {
            *came = fresh();
        }
        came.coming = pull.or(came.coming.take());
        let Some((coming, piece, pull)) = &mut came.coming else { return };
        if *coming != number || pull.total() as u64 != total || !pull.add(offset, bytes) {
            return;
        }
        (came.last_message, came.attempt, came.retry) = (now, attempt, retry);
        if pull.is_complete() {
            self.finish_copy(asked);
        } else if let Some(run) = pull.next_run() {
            let pieces = [run].to_vec();
            let message = Message::Fetch { number, piece: *piece, pieces };
            self.send(from, session, attempt, message);
        }
    }

    fn finish_copy(&mut self, asked: Asked<A>) {
        let Asked { by: from, session, attempt } = asked;
        let coming = self.ahead.came.get_mut(&session).and_then(|came| came.coming.take());
        let Some((number, _, pull)) = coming else { return };
        let bytes = pull.into_bytes();
        let limit = self.config.state_max.get().min(self.free_memory(from));
        let Some(came) = self.ahead.came.get_mut(&session) else { return };
        let whole = match (delta::is_remainder(&bytes), &came.whole) {
            (false, _) => Some(bytes),
            (true, Some((_, before))) => delta::whole(before, &bytes, limit),
            (true, None) => None,
        };
        let number = match whole {
            Some(whole) => {
                came.whole = Some((number, whole));
                number
            }
            None => {
                self.ahead.came.remove(&session);
                NOTHING
            }
        };
        self.send(from, session, attempt, Message::Have { number });
    }

    /// Sends, asks and makes anew what is due of a session's copies, and drops what nothing came of (MOB-41).
    pub(super) fn handle_ahead_due(&mut self, now: Time, session: SessionId) {
        let (config, frozen) = (self.config, self.is_frozen(session));
        let Ahead { leaving, came } = &mut self.ahead;
        if leaving.get(&session).is_some_and(|leaving| leaving.expected + config.ahead <= now) {
            leaving.remove(&session);
        }
        if came.get(&session).is_some_and(|came| came.last_message + config.ahead <= now) {
            came.remove(&session);
        }
        if let Some(came) = came.get_mut(&session).filter(|came| came.retry.next <= now)
            && let Some((number, piece, pull)) = &came.coming
        {
            came.retry.again(now, &config);
            let (from, attempt) = (came.from, came.attempt);
            let message = Message::Fetch { number: *number, piece: *piece, pieces: pull.missing() };
            self.send(from, session, attempt, message);
        }
        let leaving = self.ahead.leaving.get_mut(&session);
        if let Some(leaving) = leaving.filter(|leaving| leaving.retry.next <= now) {
            if frozen {
                leaving.retry.next = Time::NEVER;
            } else if leaving.is_done() {
                leaving.retry.next = Time::NEVER;
                self.events.push_back(BaseEvent::Copy(session));
            } else {
                leaving.retry.again(now, &config);
                self.send_ahead(session, config.piece(), &[Pieces { first: 0, count: 1 }]);
            }
        }
    }
}

/// A large copy costs more to make, and is made less often for it.
fn renewal(config: &Config, len: u64) -> Duration {
    let times = u32::try_from(len / RENEWED).unwrap_or(u32::MAX);
    config.renew.saturating_mul(times.saturating_add(1))
}

/// Copies are in no hurry, and must not stand in the way of states.
fn ahead_window(config: &Config) -> u16 {
    config.window.div_ceil(4)
}

/// How long the pieces are, if this one tells: the last may be shorter.
fn piece_len(total: u64, offset: u64, len: usize) -> Option<u16> {
    let last = offset.checked_add(len as u64)? >= total;
    if last && offset > 0 || total == 0 {
        return None;
    }
    u16::try_from(len).ok().filter(|len| *len > 0)
}
