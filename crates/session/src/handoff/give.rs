//! The old base's part: a session is frozen and given away.

use lasthop_units::Time;
use lasthop_wire::mhp::handoff::{Message, Pieces, Reason, SessionId, SessionState, Warrant};

use super::base::{Base, BaseEvent, moved};
use super::entry::{Arriving, Asked, Form, Holder, Leaving, NUMBERS, Recipient, Role};
use super::outbox::{Out, Outgoing, PIECES_MAX};
use super::take_over::is_taken_over;
use super::{Address, Authority, Denied};

impl<A: Address, T: Authority<A>> Base<A, T> {
    /// A base wants a session (MHP-16).
    pub(super) fn on_handover(&mut self, now: Time, asked: Asked<A>, wanted: Recipient<A>) {
        let Asked { by: from, session, attempt } = asked;
        let since = match wanted {
            Recipient::Base { since, .. } => since,
            Recipient::Mobile(_) => 0,
        };
        let Some(entry) = self.sessions.get_mut(&session) else {
            // A grant of before this base was restarted would be as good as any: the mobile has to
            // say first that it is here.
            if self.authority.needs_grants() {
                return self.deny(asked, Denied::For(Reason::Unknown));
            }
            if !self.has_place(session, None) {
                return self.deny(asked, Denied::For(Reason::Busy));
            }
            return self.freeze(now, session, attempt, wanted, since);
        };
        if attempt < entry.attempt {
            return self.deny(asked, Denied::Outdated);
        }
        let newer = attempt > entry.attempt;
        match &mut entry.role {
            Role::Serving | Role::Rebuilding(_) | Role::Failed { holder: None, .. } if newer => {
                self.freeze(now, session, attempt, wanted, since);
            }
            // It could not be had.
            Role::Failed { holder: Some(holder), .. } if newer && holder.since < since => {
                // The mobile has said what it has, and that did not come; or it has begun anew here since.
                match is_taken_over(since) {
                    true => self.deny(asked, Denied::For(Reason::Unknown)),
                    false => self.freeze(now, session, attempt, wanted, since),
                }
            }
            Role::Leaving(leaving) if newer || leaving.wanted.is_base(from) => {
                entry.attempt = attempt;
                leaving.wanted = wanted;
                leaving.last_message = now;
                self.serve(now, session);
            }
            Role::Given { to, .. } => {
                // What was given to the one that asks is not given twice: it may have used it.
                if to.addr == from {
                    return self.deny(asked, Denied::For(Reason::Unknown));
                }
                let message = moved(*to);
                self.send(from, session, attempt, message);
            }
            Role::Arriving(arriving) if newer && arriving.stage.is_committing() => {
                entry.attempt = attempt;
                arriving.wanted = Some(wanted);
                self.restart(now, session);
            }
            Role::Arriving(Arriving { holder, .. }) | Role::Failed { holder: Some(holder), .. }
                if newer =>
            {
                entry.attempt = attempt;
                let holder = *holder;
                self.point_to(now, session, from, holder);
            }
            // Said again by the base that it is already being had for.
            Role::Arriving(arriving) if arriving.wanted.is_some_and(|w| w.is_base(from)) => {}
            _ => self.deny(asked, Denied::Outdated),
        }
    }

    /// Has the world stop using a session.
    /// `since` is the number of the state that somebody thinks is used here.
    pub(super) fn freeze(
        &mut self,
        now: Time,
        session: SessionId,
        attempt: u32,
        wanted: Recipient<A>,
        since: u32,
    ) {
        let known = self.sessions.get(&session).map(|entry| entry.number);
        let least = attempt.saturating_mul(NUMBERS);
        // A base that has removed the session may have given it away in handoffs that the mobile
        // does not know.
        let step = if known.is_some() { 1 } else { NUMBERS };
        let generation = known.unwrap_or(0).max(since).saturating_add(step).max(least);
        let leaving = Leaving {
            wanted,
            generation,
            state: None,
            form: None,
            formed_for: None,
            last_message: now,
        };
        self.set(session, attempt, Role::Leaving(leaving));
        self.events.push_back(BaseEvent::Freeze { session, mobile: wanted.mobile() });
    }

    /// Gives a frozen state to whoever wants it, if the world has frozen it.
    pub(super) fn serve(&mut self, now: Time, session: SessionId) {
        let Some(entry) = self.sessions.get_mut(&session) else { return };
        let Role::Leaving(leaving) = &mut entry.role else { return };
        let Some(bytes) = &leaving.state else { return };
        let (attempt, total) = (entry.attempt, bytes.len() as u64);
        if !leaving.is_formed() {
            let form = match leaving.wanted {
                Recipient::Base { copy: Some(copy), .. } => {
                    self.ahead.remainder(session, copy, bytes)
                }
                _ => None,
            };
            let form = form.map_or(Form::Whole, |(copy, bytes)| Form::Remainder(copy, bytes));
            leaving.set_form(form);
        }
        entry.number = leaving.generation;
        let Some(bytes) = &leaving.state else { return };
        match leaving.wanted {
            Recipient::Base { addr, limit, piece, window, .. } => {
                let asked = Asked { by: addr, session, attempt };
                if total > limit {
                    return self.deny(asked, Denied::For(Reason::TooLarge));
                }
                let first = Pieces { first: 0, count: window };
                self.send_pieces(asked, piece, &[first]);
            }
            Recipient::Mobile(mobile) => match SessionState::decode(bytes) {
                Ok(state) => {
                    self.set(session, attempt, Role::Rebuilding(mobile));
                    self.events.push_back(BaseEvent::Rebuild { state, mobile });
                }
                Err(_) => {
                    let until = now + self.config.remember;
                    let reason = Reason::Malformed;
                    self.set(session, attempt, Role::Failed { reason, holder: None, until });
                    self.send(mobile, session, attempt, Message::Refuse(reason));
                    self.events.push_back(BaseEvent::Lost { session, mobile, reason });
                }
            },
        }
    }

    /// Sends what is asked for, up to a bound; the rest is asked for again.
    fn send_pieces(&mut self, asked: Asked<A>, len: u16, runs: &[Pieces]) {
        let Asked { by: to, session, attempt } = asked;
        let Some(Role::Leaving(leaving)) = self.sessions.get(&session).map(|entry| &entry.role)
        else {
            return;
        };
        let Some(bytes) = leaving.package() else { return };
        let (total, piece) = (bytes.len() as u64, u64::from(len));
        for n in numbers(runs) {
            let offset = n * piece;
            if offset < total {
                self.put(Outgoing { to, session, attempt, out: Out::Piece { offset, len } });
            }
        }
    }

    /// A piece that was to be sent, unless it went to somebody else meanwhile.
    pub(super) fn piece(
        &self,
        session: SessionId,
        to: A,
        offset: u64,
        len: u16,
    ) -> Option<Message<'_>> {
        let Role::Leaving(leaving) = &self.sessions.get(&session)?.role else { return None };
        let (bytes, generation) = (leaving.package()?, leaving.generation);
        let start = usize::try_from(offset).ok().filter(|_| leaving.wanted.is_base(to))?;
        let end = bytes.len().min(start + usize::from(len));
        let total = bytes.len() as u64;
        Some(Message::State { generation, total, offset, bytes: bytes.get(start..end)? })
    }

    /// Pieces are missing.
    pub(super) fn on_pull(&mut self, now: Time, asked: Asked<A>, piece: u16, pieces: &[Pieces]) {
        let Some(entry) = self.sessions.get_mut(&asked.session) else { return };
        match &mut entry.role {
            Role::Leaving(leaving)
                if entry.attempt == asked.attempt
                    && leaving.wanted.is_base(asked.by)
                    && piece > 0 =>
            {
                leaving.last_message = now;
                self.send_pieces(asked, piece, pieces);
            }
            // Whoever may not have them asks again, and gets the reason.
            _ => {}
        }
    }

    /// A base has the whole state and asks whether it may use it. From here on nobody else may.
    pub(super) fn on_commit(
        &mut self,
        now: Time,
        asked: Asked<A>,
        generation: u32,
        warrant: Option<&Warrant>,
    ) {
        let Asked { by: from, session, attempt } = asked;
        let Some(entry) = self.sessions.get_mut(&session) else {
            return self.send(from, session, attempt, Message::Superseded { generation });
        };
        if entry.gave == Some((from, generation)) {
            return self.send(from, session, attempt, Message::Committed { generation });
        }
        match &entry.role {
            Role::Leaving(leaving)
                if leaving.generation == generation && leaving.state.is_some() =>
            {
                let wanted = attempt == entry.attempt && leaving.wanted.is_base(from);
                if !wanted && attempt <= entry.attempt {
                    return;
                }
                // It has pieces by an earlier grant, and needs one for this handoff to use them.
                if !wanted && let Err(why) = self.warranted(asked, warrant) {
                    return self.deny(asked, why);
                }
                self.ahead.remove(session);
                let until = now + self.config.remember;
                let to = Holder { addr: from, since: generation };
                self.set(session, attempt, Role::Given { to, until });
                if let Some(entry) = self.sessions.get_mut(&session) {
                    entry.gave = Some((from, generation));
                }
                let lasts = self.config.forward;
                self.events.push_back(BaseEvent::Forward { session, to: from, lasts });
                self.send(from, session, attempt, Message::Committed { generation });
            }
            // Given to another, or used here since: that state will never be anybody's again.
            _ => self.send(from, session, attempt, Message::Superseded { generation }),
        }
    }
}

/// The numbers of the pieces that are asked for, up to a bound.
pub(super) fn numbers(runs: &[Pieces]) -> impl Iterator<Item = u64> {
    let run = |run: &Pieces| (u64::from(run.first)..).take(usize::from(run.count));
    runs.iter().flat_map(run).take(usize::from(PIECES_MAX))
}
