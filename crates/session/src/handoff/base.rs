//! A base's part: the new base that asks for a state, and the old one that gives it.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use lasthop_units::{Duration, Time};
use lasthop_wire::mhp::handoff::{Datagram, Message, Reason, SessionId, SessionState};

use super::entry::{Arriving, ArrivingStage, Entry, Holder, Leaving, Role, Wanted};
use super::pull::Pull;
use super::{Address, Config, Retry};

/// Datagrams that wait to be sent, at most. What is beyond is as good as lost.
pub(super) const OUTBOX_MAX: usize = 4096;

/// What the world is to do at a base.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BaseEvent<A> {
    /// Stop using the session, and hand its state to [`Base::frozen`].
    Freeze(SessionId),
    /// Make the session anew from this state, then call [`Base::rebuilt`].
    Rebuild(SessionState),
    /// The session stands here and the mobile is being told (MHP-18).
    Resumed {
        /// Which.
        session: SessionId,
        /// The mobile.
        mobile: A,
    },
    /// The session was given away: pass its stray packets on (MHP-22).
    Forward {
        /// Which.
        session: SessionId,
        /// Where to.
        to: A,
        /// For how long.
        lasts: Duration,
    },
    /// Nobody came for the frozen state: reset its connections.
    Expired(SessionState),
}

/// A datagram to be written.
#[derive(Debug)]
pub(super) enum Out {
    Message(Message<'static>),
    /// A piece of a state that leaves.
    Piece {
        offset: u64,
        len: u16,
    },
}

#[derive(Debug)]
pub(super) struct Outgoing<A> {
    pub(super) to: A,
    pub(super) session: SessionId,
    pub(super) attempt: u32,
    pub(super) out: Out,
}

/// A base's end of all its handoffs (MHP-16, MHP-17).
#[derive(Debug)]
pub struct Base<A> {
    pub(super) config: Config,
    pub(super) addr: A,
    pub(super) sessions: BTreeMap<SessionId, Entry<A>>,
    /// Those on their way.
    pending: BTreeSet<SessionId>,
    pub(super) outbox: VecDeque<Outgoing<A>>,
    pub(super) events: VecDeque<BaseEvent<A>>,
}

impl<A: Address> Base<A> {
    /// A base that others call `addr`.
    pub fn new(config: Config, addr: A) -> Self {
        Self {
            config,
            addr,
            sessions: BTreeMap::new(),
            pending: BTreeSet::new(),
            outbox: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Sessions that are on their way here or from here.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Sessions of which anything is remembered.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Takes in a datagram of a handoff. Any other is ignored.
    pub fn handle_datagram(&mut self, now: Time, from: A, datagram: &[u8]) {
        let Ok(Datagram { session, attempt, message }) = Datagram::decode(datagram) else { return };
        match message {
            Message::Greet { holder, since } => {
                if let Some(addr) = A::from_name(&holder) {
                    self.on_greet(now, from, session, attempt, Holder { addr, since });
                }
            }
            Message::Handover { limit, piece, window, since } => {
                let wanted = Wanted::Base { addr: from, limit, piece, window, since };
                self.on_handover(now, from, session, attempt, wanted);
            }
            Message::Pull { piece, pieces } => {
                self.on_pull(now, from, session, attempt, piece, &pieces);
            }
            Message::Take { frozen } => self.on_take(now, from, session, attempt, frozen),
            Message::State { frozen, total, offset, bytes }
                if self.is_awaited(session, attempt, from) =>
            {
                self.on_piece(now, session, frozen, total, offset, bytes);
            }
            Message::Given { frozen } if self.is_awaited(session, attempt, from) => {
                self.on_given(now, session, frozen);
            }
            Message::Stale { frozen } if self.is_awaited(session, attempt, from) => {
                self.on_stale(now, session, frozen);
            }
            Message::Moved { to, since } if self.is_fetched(session, attempt, from) => {
                if let Some(addr) = A::from_name(&to) {
                    self.on_moved(now, session, Holder { addr, since });
                }
            }
            Message::Refuse(reason) if self.is_fetched(session, attempt, from) => {
                self.fail(now, session, reason);
            }
            _ => {}
        }
    }

    /// The session that was to be frozen, or `None` if the world has no such session.
    pub fn frozen(&mut self, now: Time, session: SessionId, state: Option<SessionState>) {
        let entry = self.sessions.get_mut(&session);
        let Some((attempt, leaving)) = entry.and_then(Entry::unfrozen) else {
            // It came too late, or was not asked for.
            return self.events.extend(state.map(BaseEvent::Expired));
        };
        leaving.heard = now;
        if let Some(state) = state {
            leaving.state = Some(state.encode());
            return self.serve(now, session);
        }
        let (Wanted::Base { addr, .. } | Wanted::Mobile(addr)) = leaving.wanted;
        self.forget(session);
        self.say(addr, session, attempt, Message::Refuse(Reason::Unknown));
    }

    /// The session that was to be rebuilt stands; or it cannot, and is lost.
    pub fn rebuilt(&mut self, now: Time, session: SessionId, stands: bool) {
        let Some(entry) = self.sessions.get_mut(&session) else { return };
        let Role::Rebuilding(mobile) = entry.role else { return };
        let (attempt, since) = (entry.attempt, entry.number);
        if stands {
            entry.role = Role::Serving;
            self.events.push_back(BaseEvent::Resumed { session, mobile });
            self.say(mobile, session, attempt, Message::Resume { since });
        } else {
            let until = now + self.config.remember;
            entry.role = Role::Failed { reason: Reason::Malformed, holder: None, until };
            self.say(mobile, session, attempt, Message::Refuse(Reason::Malformed));
        }
    }

    /// The world's session is over: nothing more is remembered of it.
    pub fn forget(&mut self, session: SessionId) {
        self.sessions.remove(&session);
        self.pending.remove(&session);
    }

    /// What happened, in order.
    pub fn poll_event(&mut self) -> Option<BaseEvent<A>> {
        self.events.pop_front()
    }

    /// Writes the next datagram that should leave now into `out`, in place of what was there; where
    /// it goes.
    pub fn poll_transmit(&mut self, _now: Time, out: &mut Vec<u8>) -> Option<A> {
        while let Some(Outgoing { to, session, attempt, out: what }) = self.outbox.pop_front() {
            let message = match what {
                Out::Message(message) => message,
                Out::Piece { offset, len } => {
                    let Some(message) = self.piece(session, to, offset, len) else { continue };
                    message
                }
            };
            out.clear();
            Datagram { session, attempt, message }.encode(out);
            return Some(to);
        }
        None
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub fn next_timeout(&self) -> Option<Time> {
        let deadline = |session: &SessionId| match &self.sessions.get(session)?.role {
            Role::Arriving(arriving) => {
                Some(arriving.retry.next.min(arriving.heard + self.config.give_up))
            }
            Role::Leaving(leaving) => Some(leaving.heard + self.config.hold),
            _ => None,
        };
        self.pending.iter().filter_map(deadline).min()
    }

    /// Repeats what is due (MHP-20) and gives up what took too long (MHP-21); follow with
    /// [`poll_transmit`](Self::poll_transmit).
    pub fn handle_timeout(&mut self, now: Time) {
        let pending: Vec<SessionId> = self.pending.iter().copied().collect();
        for session in pending {
            let Some(entry) = self.sessions.get_mut(&session) else { continue };
            match &mut entry.role {
                Role::Arriving(arriving) => {
                    if arriving.heard + self.config.give_up <= now {
                        self.fail(now, session, Reason::Unreachable);
                    } else if arriving.retry.next <= now {
                        arriving.retry.again(now, &self.config);
                        self.ask(session);
                    }
                }
                Role::Leaving(leaving) if leaving.heard + self.config.hold <= now => {
                    let state = leaving.state.take();
                    let state = state.and_then(|bytes| SessionState::decode(&bytes).ok());
                    self.events.extend(state.map(BaseEvent::Expired));
                    self.forget(session);
                }
                _ => {}
            }
        }
        self.sweep(now);
    }

    /// Forgets what needs no longer be remembered.
    fn sweep(&mut self, now: Time) {
        self.sessions.retain(|_, entry| !entry.is_expired(now));
    }

    pub(super) fn say(
        &mut self,
        to: A,
        session: SessionId,
        attempt: u32,
        message: Message<'static>,
    ) {
        self.put(Outgoing { to, session, attempt, out: Out::Message(message) });
    }

    pub(super) fn put(&mut self, outgoing: Outgoing<A>) {
        if self.outbox.len() < OUTBOX_MAX {
            self.outbox.push_back(outgoing);
        }
    }

    pub(super) fn set(&mut self, session: SessionId, attempt: u32, role: Role<A>) {
        let gave = match role {
            Role::Leaving(_) | Role::Rebuilding(_) | Role::Serving => None,
            _ => self.sessions.get(&session).and_then(|entry| entry.gave),
        };
        let number = match &role {
            Role::Leaving(leaving) => leaving.frozen,
            _ => self.sessions.get(&session).map_or(0, |entry| entry.number),
        };
        let entry = Entry { attempt, role, number, gave };
        if entry.is_pending() {
            self.pending.insert(session);
        } else {
            self.pending.remove(&session);
        }
        self.sessions.insert(session, entry);
    }

    /// Whether one more session may be on its way.
    pub(super) fn has_room(&mut self, now: Time, session: SessionId) -> bool {
        if self.sessions.len() >= self.config.sessions_max {
            self.sweep(now);
        }
        let known = self.sessions.contains_key(&session);
        self.pending.len() < self.config.pending_max
            && (known || self.sessions.len() < self.config.sessions_max)
    }

    /// A mobile wants to go on here (MHP-15).
    fn on_greet(
        &mut self,
        now: Time,
        mobile: A,
        session: SessionId,
        attempt: u32,
        holder: Holder<A>,
    ) {
        let Some(entry) = self.sessions.get_mut(&session) else {
            return self.begin(now, mobile, session, attempt, holder);
        };
        if attempt < entry.attempt {
            return;
        }
        let again = attempt == entry.attempt;
        let known = entry.role.holder().filter(|known| known.since > holder.since);
        let holder = known.unwrap_or(holder);
        match &mut entry.role {
            Role::Serving if again => {
                let since = entry.number;
                self.say(mobile, session, attempt, Message::Resume { since });
            }
            Role::Failed { reason, .. } if again && *reason != Reason::Busy => {
                let reason = *reason;
                self.say(mobile, session, attempt, Message::Refuse(reason));
            }
            Role::Rebuilding(waiting) if again => *waiting = mobile,
            Role::Arriving(arriving) if again => arriving.mobile = mobile,
            Role::Given { .. } | Role::Leaving(_) if again => {}
            Role::Serving | Role::Rebuilding(_) => {
                self.freeze(now, session, attempt, Wanted::Mobile(mobile), holder.since);
            }
            Role::Leaving(leaving) => {
                entry.attempt = attempt;
                leaving.wanted = Wanted::Mobile(mobile);
                leaving.heard = now;
                self.serve(now, session);
            }
            // The state may be ours already, if only we knew: that is asked for first.
            Role::Arriving(arriving) if arriving.stage.is_taking() => {
                entry.attempt = attempt;
                arriving.mobile = mobile;
                arriving.wanted = None;
                self.restart(now, session);
            }
            Role::Given { .. } | Role::Arriving(_) | Role::Failed { .. } => {
                self.begin(now, mobile, session, attempt, holder);
            }
        }
    }

    /// Makes a surrogate that waits for its state (MHP-16).
    fn begin(&mut self, now: Time, mobile: A, session: SessionId, attempt: u32, holder: Holder<A>) {
        let room = self.has_room(now, session) || self.pending.contains(&session);
        if !room {
            return self.say(mobile, session, attempt, Message::Refuse(Reason::Busy));
        }
        if holder.addr == self.addr {
            return self.freeze(now, session, attempt, Wanted::Mobile(mobile), holder.since);
        }
        let arriving = Arriving {
            mobile,
            holder,
            stage: ArrivingStage::Asking,
            heard: now,
            retry: Retry::now(now, &self.config),
            wanted: None,
        };
        self.set(session, attempt, Role::Arriving(arriving));
        self.restart(now, session);
    }

    /// Asks at once, as if for the first time.
    pub(super) fn restart(&mut self, now: Time, session: SessionId) {
        let config = self.config;
        if let Some(arriving) = self.arriving(session) {
            arriving.heard = now;
            arriving.retry = Retry::after_progress(now, &config);
            self.ask(session);
        }
    }

    fn arriving(&mut self, session: SessionId) -> Option<&mut Arriving<A>> {
        match &mut self.sessions.get_mut(&session)?.role {
            Role::Arriving(arriving) => Some(arriving),
            _ => None,
        }
    }

    /// Asks the old base for what is missing.
    fn ask(&mut self, session: SessionId) {
        let Config { state_max, window, .. } = self.config;
        let (piece, limit) = (self.config.piece(), state_max.get());
        let Some(entry) = self.sessions.get(&session) else { return };
        let Role::Arriving(arriving) = &entry.role else { return };
        let message = match &arriving.stage {
            ArrivingStage::Asking => {
                let since = arriving.holder.since;
                Message::Handover { limit, piece, window, since }
            }
            ArrivingStage::Pulling { pull, .. } => Message::Pull { piece, pieces: pull.missing() },
            ArrivingStage::Taking { frozen, .. } => Message::Take { frozen: *frozen },
        };
        self.say(arriving.holder.addr, session, entry.attempt, message);
    }

    fn is_awaited(&self, session: SessionId, attempt: u32, from: A) -> bool {
        self.sessions.get(&session).is_some_and(|entry| {
            entry.attempt == attempt
                && matches!(&entry.role, Role::Arriving(arriving) if arriving.holder.addr == from)
        })
    }

    /// As [`is_awaited`](Self::is_awaited), but not once all is here: it may be ours already, and
    /// what was said to an earlier request must not make us drop it.
    fn is_fetched(&self, session: SessionId, attempt: u32, from: A) -> bool {
        self.is_awaited(session, attempt, from)
            && self.sessions.get(&session).is_some_and(
                |entry| matches!(&entry.role, Role::Arriving(arriving) if !arriving.stage.is_taking()),
            )
    }

    /// A piece of the state came (MHP-17).
    fn on_piece(
        &mut self,
        now: Time,
        session: SessionId,
        frozen: u32,
        total: u64,
        offset: u64,
        bytes: &[u8],
    ) {
        if total > self.config.state_max.get() {
            return self.refuse(now, session, Reason::TooLarge);
        }
        let fetching: usize =
            self.pending.iter().filter_map(|s| self.sessions.get(s)).map(Entry::fetching).sum();
        let config = self.config;
        let Some(arriving) = self.arriving(session) else { return };
        if matches!(arriving.stage, ArrivingStage::Asking) {
            if fetching as u64 + total > config.memory_max.get() {
                return self.refuse(now, session, Reason::Busy);
            }
            let pull = Pull::new(total as usize, config.piece(), config.window);
            arriving.stage = ArrivingStage::Pulling { pull, frozen };
        }
        let ArrivingStage::Pulling { pull, frozen: of } = &mut arriving.stage else { return };
        if *of != frozen || pull.total() as u64 != total || !pull.add(offset, bytes) {
            return;
        }
        arriving.heard = now;
        arriving.retry = Retry::after_progress(now, &config);
        if pull.is_complete() {
            self.complete(now, session);
        } else if let Some(run) = pull.next_run() {
            let holder = arriving.holder.addr;
            let attempt = self.sessions.get(&session).map_or(0, |entry| entry.attempt);
            let pieces = [run].to_vec();
            let message = Message::Pull { piece: config.piece(), pieces };
            self.say(holder, session, attempt, message);
        }
    }

    /// All is here: the old base must give up its claim before anything is used.
    fn complete(&mut self, now: Time, session: SessionId) {
        let Some(arriving) = self.arriving(session) else { return };
        let stage = core::mem::replace(&mut arriving.stage, ArrivingStage::Asking);
        let ArrivingStage::Pulling { pull, frozen } = stage else { return };
        let bytes = pull.into_bytes();
        match SessionState::decode(&bytes) {
            Ok(state) if state.session == session => {
                arriving.stage = ArrivingStage::Taking { bytes, frozen };
                self.restart(now, session);
            }
            _ => self.refuse(now, session, Reason::Malformed),
        }
    }

    /// The state is ours (MHP-17).
    fn on_given(&mut self, now: Time, session: SessionId, frozen: u32) {
        let Some(arriving) = self.arriving(session) else { return };
        let stage = core::mem::replace(&mut arriving.stage, ArrivingStage::Asking);
        let bytes = match stage {
            ArrivingStage::Taking { bytes, frozen: of } if of == frozen => bytes,
            other => {
                arriving.stage = other;
                return;
            }
        };
        let wanted = arriving.wanted.take().unwrap_or(Wanted::Mobile(arriving.mobile));
        let attempt = self.sessions.get(&session).map_or(0, |entry| entry.attempt);
        let leaving =
            Leaving { wanted, frozen: frozen.saturating_add(1), state: Some(bytes), heard: now };
        self.set(session, attempt, Role::Leaving(leaving));
        self.serve(now, session);
    }

    /// What is here was used by the old base since.
    fn on_stale(&mut self, now: Time, session: SessionId, frozen: u32) {
        let Some(arriving) = self.arriving(session) else { return };
        let stale = match &arriving.stage {
            ArrivingStage::Asking => false,
            ArrivingStage::Pulling { frozen: of, .. }
            | ArrivingStage::Taking { frozen: of, .. } => *of == frozen,
        };
        if stale {
            arriving.stage = ArrivingStage::Asking;
            self.restart(now, session);
        }
    }

    /// Another base has it: ask there. Only later news is followed, so that nobody is sent in
    /// circles.
    fn on_moved(&mut self, now: Time, session: SessionId, to: Holder<A>) {
        let own = self.addr;
        let Some(arriving) = self.arriving(session) else { return };
        if to.since <= arriving.holder.since {
            return;
        }
        if to.addr == own {
            return self.fail(now, session, Reason::Unknown);
        }
        if let Some(Wanted::Base { addr, .. }) = arriving.wanted.take() {
            // Whoever waits for it here had better ask there too.
            return self.point_to(now, session, addr, to);
        }
        arriving.holder = to;
        arriving.stage = ArrivingStage::Asking;
        self.restart(now, session);
    }

    /// Tells `base` that another has the session, and remembers it.
    pub(super) fn point_to(&mut self, now: Time, session: SessionId, base: A, to: Holder<A>) {
        let attempt = self.sessions.get(&session).map_or(0, |entry| entry.attempt);
        let until = now + self.config.remember;
        self.set(session, attempt, Role::Given { to, until });
        self.say(base, session, attempt, moved(to));
    }

    /// The new base cannot take it: both others are told.
    fn refuse(&mut self, now: Time, session: SessionId, reason: Reason) {
        let attempt = self.sessions.get(&session).map_or(0, |entry| entry.attempt);
        let Some(holder) = self.arriving(session).map(|arriving| arriving.holder.addr) else {
            return;
        };
        self.say(holder, session, attempt, Message::Refuse(reason));
        self.fail(now, session, reason);
    }

    /// The session cannot be had; the mobile is told, and again whenever it greets (MHP-21).
    fn fail(&mut self, now: Time, session: SessionId, reason: Reason) {
        let Some(entry) = self.sessions.get(&session) else { return };
        let Role::Arriving(arriving) = &entry.role else { return };
        let (attempt, mobile, holder) = (entry.attempt, arriving.mobile, Some(arriving.holder));
        let to = match arriving.wanted {
            Some(Wanted::Base { addr, .. }) => addr,
            _ => mobile,
        };
        let until = now + self.config.remember;
        self.set(session, attempt, Role::Failed { reason, holder, until });
        self.say(to, session, attempt, Message::Refuse(reason));
    }
}

/// The answer to somebody who asks for what another has.
pub(super) fn moved<A: Address>(to: Holder<A>) -> Message<'static> {
    Message::Moved { to: to.addr.to_name(), since: to.since }
}
