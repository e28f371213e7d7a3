//! The new base's part: a session is requested, fetched and rebuilt.

use lasthop_units::Time;
use lasthop_wire::mhp::handoff::{
    BaseName, Grant, Message, Reason, SessionId, SessionState, StateError,
};

use super::base::{Base, BaseEvent, moved};
use super::entry::{
    Arriving, ArrivingStage, Asked, Doubt, Holder, Leaving, NUMBERS, Recipient, Role,
};
use super::pull::Pull;
use super::{Address, Authority, Config, Denied, Retry, delta};

impl<A: Address, T: Authority<A>> Base<A, T> {
    /// A mobile wants to go on here (MHP-15).
    pub(super) fn on_greet(
        &mut self,
        now: Time,
        asked: Asked<A>,
        holder: Option<Holder<A>>,
        grants: &[(BaseName, Grant)],
    ) {
        let holder = match self.believed(asked, holder) {
            Ok(holder) => holder,
            Err(why) => return self.deny(asked, why),
        };
        let latest = self.sessions.get(&asked.session).map(|entry| entry.attempt);
        let known = latest.is_some_and(|latest| asked.attempt < latest)
            || latest == Some(asked.attempt) && self.greet_again(asked);
        if !known {
            self.handle_new_greeting(now, asked, holder, grants);
        }
    }

    /// The base that a mobile names as its session's holder, if both are trusted.
    fn believed(
        &mut self,
        asked: Asked<A>,
        holder: Option<Holder<A>>,
    ) -> Result<Holder<A>, Denied> {
        let known = |addr: A| addr == self.addr || self.authority.is_base(addr);
        let holder = holder.filter(|holder| known(holder.addr)).ok_or(Denied::UnknownHolder)?;
        self.owns(asked.by, asked.session)?;
        Ok(holder)
    }

    /// A greeting that came before is answered as before; whether that is all.
    fn greet_again(&mut self, asked: Asked<A>) -> bool {
        let Asked { by: mobile, session, attempt } = asked;
        let Some(entry) = self.sessions.get_mut(&session) else { return false };
        let message = match &mut entry.role {
            Role::Serving => Message::Resume { since: entry.number },
            Role::Failed { reason: Reason::Busy, .. } => return false,
            Role::Failed { reason, .. } => Message::Refuse(*reason),
            Role::Rebuilding(waiting) | Role::Arriving(Arriving { mobile: waiting, .. }) => {
                *waiting = mobile;
                return true;
            }
            Role::Given { .. } | Role::Leaving(_) => return true,
        };
        self.send(mobile, session, attempt, message);
        true
    }

    /// A mobile comes here for the first time, or once more.
    fn handle_new_greeting(
        &mut self,
        now: Time,
        asked: Asked<A>,
        holder: Holder<A>,
        grants: &[(BaseName, Grant)],
    ) {
        let Asked { by: mobile, session, attempt } = asked;
        self.store_grants(asked, grants);
        let Some(entry) = self.sessions.get_mut(&session) else {
            self.begin(now, asked, holder, grants);
            return self.store_grants(asked, grants);
        };
        let known = entry.role.holder().filter(|known| known.since > holder.since);
        let holder = known.unwrap_or(holder);
        if holder.addr != self.addr && entry.is_outdone(holder.since) {
            self.drop_outdone(session, mobile);
            return self.begin(now, asked, holder, grants);
        }
        let Some(entry) = self.sessions.get_mut(&session) else { return };
        match &mut entry.role {
            Role::Serving | Role::Rebuilding(_) => {
                self.freeze(now, session, attempt, Recipient::Mobile(mobile), holder.since);
            }
            Role::Leaving(leaving) => {
                entry.attempt = attempt;
                leaving.wanted = Recipient::Mobile(mobile);
                leaving.last_message = now;
                // Another base may have taken it over in the handoff before.
                leaving.generation = leaving.generation.max(attempt.saturating_mul(NUMBERS));
                entry.number = leaving.generation;
                self.serve(now, session);
            }
            // The state may be ours already, if only we knew: that is queried first.
            Role::Arriving(arriving) if arriving.stage.is_committing() => {
                entry.attempt = attempt;
                arriving.attempt = attempt;
                arriving.mobile = mobile;
                arriving.wanted = None;
                self.restart(now, session);
            }
            Role::Given { .. } | Role::Arriving(_) | Role::Failed { .. } => {
                self.begin(now, asked, holder, grants);
            }
        }
    }

    /// The session broke, and began anew at another base: what is here of it is nobody's.
    fn drop_outdone(&mut self, session: SessionId, mobile: A) {
        let Some(entry) = self.sessions.get_mut(&session) else { return };
        match &mut entry.role {
            Role::Leaving(leaving) if leaving.state.is_some() => {
                let state = leaving.state.take();
                self.expire(state);
            }
            // Until its state is here the world has all of it.
            Role::Serving | Role::Rebuilding(_) | Role::Leaving(_) => {
                self.events.push_back(BaseEvent::Over { session, mobile });
            }
            _ => {}
        }
    }

    /// Makes a surrogate that waits for its state (MHP-16).
    fn begin(
        &mut self,
        now: Time,
        asked: Asked<A>,
        holder: Holder<A>,
        grants: &[(BaseName, Grant)],
    ) {
        let Asked { by: mobile, session, attempt } = asked;
        let room = self.may_come(session, mobile, holder.addr);
        if !room || !self.has_place(session, Some(mobile)) {
            return self.deny(asked, Denied::For(Reason::Busy));
        }
        let own = holder.addr == self.addr;
        if own && self.config.take_over.is_none() {
            return self.freeze(now, session, attempt, Recipient::Mobile(mobile), holder.since);
        }
        // It was to go on here, and the mobile's word for that never came.
        let known = self.sessions.get(&session).and_then(|entry| entry.role.holder());
        let holder = known.filter(|known| own && known.addr != self.addr).unwrap_or(holder);
        let arriving = Arriving {
            mobile,
            attempt,
            holder,
            stage: ArrivingStage::Asking,
            last_message: now,
            retry: Retry::now(now, &self.config),
            wanted: None,
            turned: None,
            holder_is: Doubt::None,
            ask_mobile: None,
            orphans: None,
        };
        self.set(session, attempt, Role::Arriving(arriving));
        self.store_grants(asked, grants);
        match holder.addr == self.addr {
            true => drop(self.doubt_holder(now, session, Doubt::Unreachable)),
            false => self.restart(now, session),
        }
    }

    /// Asks at once, as if for the first time.
    pub(super) fn restart(&mut self, now: Time, session: SessionId) {
        let config = self.config;
        if let Some(arriving) = self.arriving(session) {
            arriving.last_message = now;
            arriving.trust_holder();
            arriving.retry = Retry::after_progress(now, &config);
            self.request_missing(session);
        }
    }

    pub(super) fn arriving(&mut self, session: SessionId) -> Option<&mut Arriving<A>> {
        match &mut self.sessions.get_mut(&session)?.role {
            Role::Arriving(arriving) => Some(arriving),
            _ => None,
        }
    }

    /// Asks the old base for what is missing.
    pub(super) fn request_missing(&mut self, session: SessionId) {
        let Config { state_max, window, .. } = self.config;
        let (piece, limit) = (self.config.piece(), state_max.get());
        let Some(entry) = self.sessions.get(&session) else { return };
        let Role::Arriving(arriving) = &entry.role else { return };
        if arriving.holder.addr == self.addr {
            // Only the mobile has it.
            return;
        }
        let message = match &arriving.stage {
            ArrivingStage::Asking => {
                let Holder { addr, since } = arriving.holder;
                let copy = self.ahead.copy_from(session, addr);
                let warrant = self.warrant(session, addr);
                Message::Handover { limit, piece, window, since, copy, warrant }
            }
            ArrivingStage::Pulling { pull, .. } => Message::Pull { piece, pieces: pull.missing() },
            ArrivingStage::Committing { generation, .. } => {
                let warrant = self.warrant(session, arriving.holder.addr);
                Message::Commit { generation: *generation, warrant }
            }
        };
        self.send(arriving.holder.addr, session, arriving.attempt, message);
    }

    pub(super) fn is_awaited(&self, session: SessionId, attempt: u32, from: A) -> bool {
        self.sessions.get(&session).is_some_and(|entry| {
            matches!(&entry.role, Role::Arriving(arriving)
                if (arriving.attempt, arriving.holder.addr) == (attempt, from))
        })
    }

    /// As [`is_awaited`](Self::is_awaited), but not once all is here: it may be ours already, and
    /// the answer to an earlier request must not make us drop it.
    pub(super) fn is_fetched(&self, session: SessionId, attempt: u32, from: A) -> bool {
        self.is_awaited(session, attempt, from)
            && self.sessions.get(&session).is_some_and(
                |entry| matches!(&entry.role, Role::Arriving(arriving) if !arriving.stage.is_committing()),
            )
    }

    /// A piece of the state came (MHP-17).
    pub(super) fn on_piece(
        &mut self,
        now: Time,
        session: SessionId,
        generation: u32,
        total: u64,
        offset: u64,
        bytes: &[u8],
    ) {
        if total > self.config.state_max.get() {
            return self.refuse(now, session, Reason::TooLarge);
        }
        let config = self.config;
        let Some(arriving) = self.arriving(session) else { return };
        let from = arriving.holder.addr;
        if let ArrivingStage::Pulling { generation: of, .. } = arriving.stage
            && of < generation
        {
            // What was begun is no longer to be had.
            arriving.stage = ArrivingStage::Asking;
        }
        if matches!(arriving.stage, ArrivingStage::Asking) {
            if !self.make_memory(from, session, total) {
                return self.refuse(now, session, Reason::Busy);
            }
            let Some(arriving) = self.arriving(session) else { return };
            let pull = Pull::new(total as usize, config.piece(), config.window);
            arriving.stage = ArrivingStage::Pulling { pull, generation };
        }
        self.ahead.refresh(session, now);
        let Some(arriving) = self.arriving(session) else { return };
        let ArrivingStage::Pulling { pull, generation: of } = &mut arriving.stage else { return };
        if *of != generation || pull.total() as u64 != total || !pull.add(offset, bytes) {
            return;
        }
        let (complete, next_run) = (pull.is_complete(), pull.next_run());
        arriving.last_message = now;
        arriving.trust_holder();
        arriving.retry = Retry::after_progress(now, &config);
        if complete {
            self.complete(now, session);
        } else if let Some(run) = next_run {
            let (holder, attempt) = (arriving.holder.addr, arriving.attempt);
            let pieces = [run].to_vec();
            let message = Message::Pull { piece: config.piece(), pieces };
            self.send(holder, session, attempt, message);
        }
    }

    /// All is here: the old base must give up its claim before anything is used.
    fn complete(&mut self, now: Time, session: SessionId) {
        let Some(arriving) = self.arriving(session) else { return };
        let from = arriving.holder.addr;
        let stage = core::mem::replace(&mut arriving.stage, ArrivingStage::Asking);
        let ArrivingStage::Pulling { pull, generation } = stage else { return };
        let mut bytes = pull.into_bytes();
        let limit = self.config.state_max.get().min(self.free_memory(from));
        if delta::is_remainder(&bytes) {
            // Should the copy be another one after all, or too much come of it, the whole is asked
            // for.
            let Some(whole) = self.ahead.complete(session, &bytes, limit) else {
                return self.restart(now, session);
            };
            bytes = whole;
        }
        let Some(arriving) = self.arriving(session) else { return };
        match SessionState::decode(&bytes) {
            Ok(state) if state.session == session => {
                let (len, attempt) = (bytes.len(), arriving.attempt);
                arriving.stage = ArrivingStage::Committing { state, len, generation, attempt };
                self.restart(now, session);
            }
            Err(StateError::Version(_)) => self.refuse(now, session, Reason::Version),
            _ => self.refuse(now, session, Reason::Malformed),
        }
    }

    /// States that have come and may not be used yet: nobody has confirmed that they are this base's.
    /// Each with the mobile that it came for and the handoff. One of an earlier handoff may be outdated.
    pub fn unconfirmed(&self) -> impl Iterator<Item = (A, u32, &SessionState)> {
        let entries = self.pending.iter().filter_map(|session| self.sessions.get(session));
        entries.filter_map(|entry| match &entry.role {
            Role::Arriving(Arriving {
                mobile,
                attempt: latest,
                stage: ArrivingStage::Committing { state, attempt, .. },
                wanted: None,
                ..
            }) if latest == attempt => Some((*mobile, *attempt, state)),
            _ => None,
        })
    }

    /// The state is ours (MHP-17).
    pub(super) fn on_committed(&mut self, now: Time, session: SessionId, generation: u32) {
        let Some(arriving) = self.arriving(session) else { return };
        let stage = core::mem::replace(&mut arriving.stage, ArrivingStage::Asking);
        let state = match stage {
            ArrivingStage::Committing { state, generation: of, .. } if of == generation => state,
            other => {
                arriving.stage = other;
                return;
            }
        };
        let mobile = arriving.mobile;
        let wanted = arriving.wanted.take().unwrap_or(Recipient::Mobile(mobile));
        let attempt = self.attempt(session);
        self.ahead.remove(session);
        // A base that was restarted meanwhile has begun at its handoff's numbers, which were before.
        let least = attempt.saturating_mul(NUMBERS);
        let generation = generation.saturating_add(1).max(least);
        if let Recipient::Mobile(mobile) = wanted {
            self.set(session, attempt, Role::Rebuilding(mobile));
            if let Some(entry) = self.sessions.get_mut(&session) {
                entry.number = generation;
            }
            return self.events.push_back(BaseEvent::Rebuild { state, mobile });
        }
        self.events.push_back(BaseEvent::Lost { session, mobile, reason: Reason::Outdated });
        let state = Some(state.encode());
        let leaving =
            Leaving { wanted, generation, state, form: None, formed_for: None, last_message: now };
        self.set(session, attempt, Role::Leaving(leaving));
        self.serve(now, session);
    }

    /// What is here was used by the old base since.
    pub(super) fn on_superseded(&mut self, now: Time, session: SessionId, generation: u32) {
        let Some(arriving) = self.arriving(session) else { return };
        let stale = match &arriving.stage {
            ArrivingStage::Asking => false,
            ArrivingStage::Pulling { generation: of, .. }
            | ArrivingStage::Committing { generation: of, .. } => *of == generation,
        };
        if !stale {
            return;
        }
        arriving.stage = ArrivingStage::Asking;
        if let Some(Recipient::Base { addr, .. }) = arriving.wanted.take() {
            // Whoever waits for it here has a later grant than ours, and had better ask there.
            let to = Holder { addr: arriving.holder.addr, since: generation };
            return self.point_to(now, session, addr, to);
        }
        self.restart(now, session);
    }

    /// Another base has it: ask there. Only later news is followed, or once what is as late, so that
    /// nobody is sent in circles.
    pub(super) fn on_moved(&mut self, now: Time, session: SessionId, to: Option<Holder<A>>) {
        let own = self.addr;
        let to = to.filter(|to| to.addr == own || self.authority.is_base(to.addr));
        let Some(arriving) = self.arriving(session) else { return };
        let Some(to) = to else {
            let from = arriving.holder.addr;
            self.note(from, session, Denied::UnknownHolder);
            return self.fail(now, session, Reason::Unauthorised);
        };
        let known = arriving.holder.since;
        let turns = to.since == known && arriving.turned != Some(known);
        if to.since <= known && !turns {
            return;
        }
        if to.addr == own {
            // Each takes the other for the one that has it: then only the mobile has.
            if !self.doubt_holder(now, session, Doubt::Unreachable) {
                self.fail(now, session, Reason::Unknown);
            }
            return;
        }
        arriving.turned = turns.then_some(to.since);
        arriving.holder = to;
        arriving.stage = ArrivingStage::Asking;
        self.restart(now, session);
    }

    /// Tells `base` that another has the session, and remembers it.
    pub(super) fn point_to(&mut self, now: Time, session: SessionId, base: A, to: Holder<A>) {
        let attempt = self.attempt(session);
        if let Some(arriving) = self.arriving(session) {
            let (mobile, reason) = (arriving.mobile, Reason::Outdated);
            self.events.push_back(BaseEvent::Lost { session, mobile, reason });
        }
        let until = now + self.config.remember;
        self.set(session, attempt, Role::Given { to, until });
        self.send(base, session, attempt, moved(to));
    }

    /// The new base cannot take it: both others are notified.
    fn refuse(&mut self, now: Time, session: SessionId, reason: Reason) {
        let Some(arriving) = self.arriving(session) else { return };
        let (holder, attempt) = (arriving.holder.addr, arriving.attempt);
        self.send(holder, session, attempt, Message::Refuse(reason));
        self.fail(now, session, reason);
    }

    /// The session cannot be had; the mobile is notified, and again whenever it greets (MHP-21).
    pub(super) fn fail(&mut self, now: Time, session: SessionId, reason: Reason) {
        let Some(entry) = self.sessions.get(&session) else { return };
        let Role::Arriving(arriving) = &entry.role else { return };
        let (attempt, mobile, holder) = (entry.attempt, arriving.mobile, Some(arriving.holder));
        let to = match arriving.wanted {
            Some(Recipient::Base { addr, .. }) => addr,
            _ => mobile,
        };
        let until = now + self.config.remember;
        self.set(session, attempt, Role::Failed { reason, holder, until });
        self.send(to, session, attempt, Message::Refuse(reason));
        self.events.push_back(BaseEvent::Lost { session, mobile, reason });
    }
}
