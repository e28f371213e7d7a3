//! A base's part: the new base that asks for a state, and the old one that gives it.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use lasthop_units::{Deadlines, Duration, Time};
use lasthop_wire::mhp::handoff::{Datagram, Message, Orphan, Reason, SessionId, SessionState};

use super::copies::Ahead;
use super::entry::{Asked, Doubt, Entry, Holder, Recipient, Role};
use super::fences::Fences;
use super::outbox::{Out, Outbox, Outgoing};
use super::sessions::{COMING_OF_ONE, Sessions};
use super::{Address, Authority, Config, Denied, Open, share};

/// Refusals that wait to be reported, at most.
const REFUSALS_MAX: usize = 4096;

/// What the world is to do at a base.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BaseEvent<A> {
    /// Stop using the session, and hand its state to [`Base::frozen`]; if it is not that mobile's,
    /// hand it nothing.
    Freeze {
        /// Which.
        session: SessionId,
        /// In whose name it is requested; absent only where no grants are required.
        mobile: Option<A>,
    },
    /// Make the session anew from this state, then call [`Base::rebuilt`].
    Rebuild {
        /// All that there is of it.
        state: SessionState,
        /// Whose it is from here on.
        mobile: A,
    },
    /// A base from which the session was taken over does not use it from here on, and the mobile is here. Until now that
    /// one may have had packets come there.
    Fenced {
        /// Which.
        session: SessionId,
    },
    /// The base that has the session is silent, or cannot be reached, and may be dead, and this is what its mobile has of it:
    /// make a state of that, and call [`Base::take_over`].
    TakeOver {
        /// Which.
        session: SessionId,
        /// The mobile, which wants it here.
        mobile: A,
        /// In which of its handoffs.
        attempt: u32,
        /// All connections.
        orphans: Vec<Orphan>,
        /// The other base cannot be reached, or is silent for so long that what cannot go on without it is lost.
        certain: bool,
        /// For how long it has sent the mobile nothing.
        silent: Duration,
    },
    /// The session stands here and the mobile is being notified (MHP-18).
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
    /// The session broke and began anew at another base: reset what is here of it.
    Over {
        /// Which.
        session: SessionId,
        /// The mobile, which is here again.
        mobile: A,
    },
    /// Hand what the session holds at this moment to [`Base::copied`], and go on using it (MOB-39).
    Copy(SessionId),
    /// A mobile's session begins here; or it begins anew, after this base was restarted or the session
    /// broke. No state of it comes from elsewhere: what the mobile wants to carry on here is to be
    /// declined, and what an earlier association with it left here is over.
    Begins {
        /// Which.
        session: SessionId,
        /// The mobile.
        mobile: A,
    },
    /// The session does not come here in that handoff. There is nothing to be done: the mobile is notified
    /// and [`Begins`](Self::Begins) anew, or comes once more, or has left.
    Lost {
        /// Which.
        session: SessionId,
        /// The mobile that wanted it here.
        mobile: A,
        /// Why.
        reason: Reason,
    },
    /// Something was requested and refused, and nothing released: to be logged.
    Refused {
        /// Of which session.
        session: SessionId,
        /// Who asked.
        from: A,
        /// Why it was refused.
        why: Denied,
    },
}

/// A base's end of all its handoffs (MHP-16, MHP-17).
#[derive(Debug)]
pub struct Base<A, T = Open> {
    pub(super) config: Config,
    pub(super) addr: A,
    pub(super) authority: T,
    pub(super) sessions: Sessions<A>,
    /// Those on their way.
    pub(super) pending: BTreeSet<SessionId>,
    pub(super) ahead: Ahead<A>,
    pub(super) fences: Fences<A>,
    /// When to look at sessions, at the latest.
    due: Deadlines<SessionId>,
    pub(super) outbox: Outbox<A>,
    pub(super) events: VecDeque<BaseEvent<A>>,
}

impl<A: Address> Base<A> {
    /// A base that others call `addr`, and that trusts everybody.
    pub fn new(config: Config, addr: A) -> Self {
        Self::with_authority(config, addr, Open)
    }
}

impl<A: Address, T: Authority<A>> Base<A, T> {
    /// A base that others call `addr`, and that trusts whom `authority` trusts.
    pub fn with_authority(config: Config, addr: A, authority: T) -> Self {
        Self {
            config,
            addr,
            authority,
            sessions: Sessions::new(),
            pending: BTreeSet::new(),
            ahead: Ahead::default(),
            fences: Fences::default(),
            due: Deadlines::new(),
            outbox: Outbox::new(),
            events: VecDeque::new(),
        }
    }

    /// Whom this base trusts.
    pub fn authority(&self) -> &T {
        &self.authority
    }

    /// Whom this base trusts, to be changed. What it has accepted already is not taken back.
    pub fn authority_mut(&mut self) -> &mut T {
        &mut self.authority
    }

    /// After how long a silent base is taken for dead from here on, if sessions are taken over at all.
    pub fn set_take_over(&mut self, take_over: Option<Duration>) {
        self.config.take_over = take_over;
    }

    /// Sessions that are on their way here or from here.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Copies of sessions that were sent ahead from here or came ahead (MOB-39).
    pub fn copies(&self) -> usize {
        self.ahead.len()
    }

    /// Sessions of which anything is remembered.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Takes in a datagram of a handoff. Any other is ignored.
    pub fn handle_datagram(&mut self, now: Time, from: A, datagram: &[u8]) {
        let Datagram { session, attempt, message } = match Datagram::decode(datagram) {
            Ok(datagram) => datagram,
            Err(error) => return self.on_unreadable(from, datagram, error),
        };
        let asked = Asked { by: from, session, attempt };
        if !self.admits(asked, &message) {
            return;
        }
        if self.on_fenced(now, asked, &message) {
            return self.rearm(session);
        }
        match message {
            Message::Greet { holder, since, grants } => {
                let holder = A::from_name(&holder).map(|addr| Holder { addr, since });
                self.on_greet(now, asked, holder, &grants);
            }
            Message::Here { since } => self.on_here(asked, since),
            Message::Orphans { flags, silent, orphans } => {
                let silent = Duration::from_millis(silent.into());
                self.on_orphans(now, asked, flags, silent, orphans);
            }
            Message::Handover { limit, piece, window, since, copy, warrant } => {
                match self.warranted(asked, warrant.as_ref()) {
                    Ok(mobile) => {
                        let addr = from;
                        let wanted =
                            Recipient::Base { addr, mobile, limit, piece, window, since, copy };
                        self.on_handover(now, asked, wanted);
                    }
                    Err(why) => self.deny(asked, why),
                }
            }
            Message::Pull { piece, pieces } => self.on_pull(now, asked, piece, &pieces),
            Message::Expect { candidate } => self.on_expect(now, asked, &candidate),
            Message::Ahead { number, total, offset, bytes } => {
                self.on_ahead(now, asked, number, total, offset, bytes);
            }
            Message::Fetch { number, piece, pieces } => {
                self.on_fetch(now, from, session, number, piece, &pieces);
            }
            Message::Have { number } => self.on_have(now, from, session, number),
            Message::Commit { generation, warrant } => {
                self.on_commit(now, asked, generation, warrant.as_ref());
            }
            Message::State { generation, total, offset, bytes }
                if self.is_awaited(session, attempt, from) =>
            {
                self.on_piece(now, session, generation, total, offset, bytes);
            }
            Message::Committed { generation } if self.is_awaited(session, attempt, from) => {
                self.on_committed(now, session, generation);
            }
            Message::Superseded { generation } if self.is_awaited(session, attempt, from) => {
                self.on_superseded(now, session, generation);
            }
            Message::Moved { to, since } if self.is_fetched(session, attempt, from) => {
                let to = A::from_name(&to).map(|addr| Holder { addr, since });
                self.on_moved(now, session, to);
            }
            Message::Refuse(reason) if self.is_fetched(session, attempt, from) => {
                // One that was started anew knows nothing of it.
                let forgotten = reason == Reason::Unknown;
                if !forgotten || !self.doubt_holder(now, session, Doubt::Unreachable) {
                    self.fail(now, session, reason);
                }
            }
            _ => {}
        }
        self.rearm(session);
    }

    /// The session that was to be frozen, or `None` if the world has no such session.
    pub fn frozen(&mut self, now: Time, session: SessionId, state: Option<SessionState>) {
        let entry = self.sessions.get_mut(&session);
        let Some((attempt, leaving)) = entry.and_then(Entry::unfrozen) else {
            // It came too late, or was not asked for.
            return self.events.extend(state.map(BaseEvent::Expired));
        };
        leaving.last_message = now;
        let wanted = leaving.wanted;
        if let Some(state) = state {
            leaving.state = Some(state.encode());
            if let Some(mobile) = wanted.mobile() {
                self.sessions.set_owner(session, mobile);
            }
            self.serve(now, session);
            return self.rearm(session);
        }
        self.remove(session);
        let asked = Asked { by: wanted.addr(), session, attempt };
        self.deny(asked, Denied::For(Reason::Unknown));
        if let Recipient::Mobile(mobile) = wanted {
            self.events.push_back(BaseEvent::Lost { session, mobile, reason: Reason::Unknown });
        }
    }

    /// In answer to [`Freeze`](BaseEvent::Freeze): the session is used here as before, for it is its
    /// own mobile that has come back, and the world moves connections to the hop over which they are
    /// asked for. False if it is another base that wants the session, which must be frozen then.
    pub fn stays(&mut self, now: Time, session: SessionId) -> bool {
        let entry = self.sessions.get_mut(&session);
        let Some((attempt, leaving)) = entry.and_then(Entry::unfrozen) else { return false };
        let Recipient::Mobile(mobile) = leaving.wanted else { return false };
        self.set(session, attempt, Role::Rebuilding(mobile));
        self.rebuilt(now, session, true);
        true
    }

    /// In answer to [`Freeze`](BaseEvent::Freeze): the session is used here as before, for its mobile has
    /// come back in the handoff `attempt`, though it has yet to say so. False if what the session is
    /// wanted for is as late.
    pub fn overtaken(&mut self, session: SessionId, attempt: u32) -> bool {
        let entry = self.sessions.get_mut(&session);
        let Some((wanted_in, leaving)) = entry.and_then(Entry::unfrozen) else { return false };
        let Recipient::Base { addr, .. } = leaving.wanted else { return false };
        if attempt <= wanted_in {
            return false;
        }
        self.set(session, wanted_in, Role::Serving);
        self.rearm(session);
        self.deny(Asked { by: addr, session, attempt: wanted_in }, Denied::Outdated);
        true
    }

    /// The latest of a session's handoffs that is known here; 0 if there is none.
    pub fn attempt(&self, session: SessionId) -> u32 {
        self.sessions.get(&session).map_or(0, |entry| entry.attempt)
    }

    /// The session that was to be rebuilt stands; or it cannot, and is lost.
    pub fn rebuilt(&mut self, now: Time, session: SessionId, stands: bool) {
        let Some(entry) = self.sessions.get_mut(&session) else { return };
        let Role::Rebuilding(mobile) = entry.role else { return };
        let (attempt, since) = (entry.attempt, entry.number);
        if stands {
            entry.role = Role::Serving;
            self.events.push_back(BaseEvent::Resumed { session, mobile });
            self.send(mobile, session, attempt, Message::Resume { since });
        } else {
            let until = now + self.config.remember;
            entry.role = Role::Failed { reason: Reason::Malformed, holder: None, until };
            self.send(mobile, session, attempt, Message::Refuse(Reason::Malformed));
        }
        self.rearm(session);
    }

    /// The world's session is over: nothing more is remembered of it.
    pub fn remove(&mut self, session: SessionId) {
        self.sessions.remove(&session);
        self.pending.remove(&session);
        self.ahead.remove(session);
        self.rearm(session);
    }

    /// A mobile is not here any more: of its sessions but that one, none that is taken to be used here is.
    pub fn forget_unused(&mut self, mobile: A, but: Option<SessionId>) {
        let unused = self.sessions.of(mobile).filter(|(session, entry)| {
            matches!(entry.role, Role::Serving) && but != Some(*session)
        });
        for session in unused.map(|(session, _)| session).collect::<Vec<_>>() {
            self.remove(session);
        }
    }

    /// That mobile is served no more: nothing is remembered of its sessions, with grants and copies, and
    /// nobody gets any of them. Which they were, each with the state of it that was frozen here. Of what
    /// was given away before only that is remembered, for the base that has it.
    pub fn revoke(&mut self, mobile: A) -> Vec<(SessionId, Option<SessionState>)> {
        let own = self.sessions.iter().filter(|(_, entry)| entry.is_of(mobile));
        let own: Vec<SessionId> = own.map(|(session, _)| *session).collect();
        let mut gone = Vec::new();
        for session in own {
            let Some(entry) = self.sessions.get_mut(&session) else { continue };
            entry.grants = None;
            let state = match &mut entry.role {
                Role::Given { .. } => continue,
                Role::Leaving(leaving) => leaving.state.take(),
                _ => None,
            };
            gone.push((session, state.and_then(|bytes| SessionState::decode(&bytes).ok())));
            self.remove(session);
        }
        gone
    }

    /// Events that wait to be polled.
    pub fn backlog(&self) -> usize {
        self.events.len()
    }

    /// What happened, in order.
    pub fn poll_event(&mut self) -> Option<BaseEvent<A>> {
        self.events.pop_front()
    }

    /// Writes the next datagram that should leave now into `out`, in place of what was there; where
    /// it goes.
    pub fn poll_transmit(&mut self, _now: Time, out: &mut Vec<u8>) -> Option<A> {
        while let Some(Outgoing { to, session, attempt, out: what }) = self.outbox.pop() {
            let message = match what {
                Out::Message(message) => message,
                Out::Piece { offset, len } => {
                    let Some(message) = self.piece(session, to, offset, len) else { continue };
                    message
                }
                Out::Ahead { number, offset, len } => {
                    let message = self.ahead.piece(session, to, number, offset, len);
                    let Some(message) = message else { continue };
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
        self.due.next()
    }

    /// Whether no session has to be looked at before [`next_timeout`](Self::next_timeout).
    #[cfg(test)]
    pub(crate) fn is_armed(&self) -> bool {
        let entries = self.sessions.values().filter_map(|entry| entry.deadline(&self.config));
        let copies = self.ahead.leaving.keys().chain(self.ahead.came.keys());
        let copies = copies.filter_map(|session| self.ahead.deadline(*session, &self.config));
        let first = entries.chain(copies).chain(self.fences.first()).min().unwrap_or(Time::NEVER);
        self.due.next().unwrap_or(Time::NEVER) <= first
    }

    /// Something was done with a session: when to look at it next.
    pub(super) fn rearm(&mut self, session: SessionId) {
        let entry = self.sessions.get(&session).and_then(|entry| entry.deadline(&self.config));
        let copies = self.ahead.deadline(session, &self.config);
        let fences = self.fences.deadline(session);
        self.due.set(session, entry.into_iter().chain(copies).chain(fences).min());
    }

    /// Repeats what is due (MHP-20) and gives up what took too long (MHP-21); follow with
    /// [`poll_transmit`](Self::poll_transmit).
    pub fn handle_timeout(&mut self, now: Time) {
        let due: Vec<SessionId> = core::iter::from_fn(|| self.due.pop_due(now)).collect();
        for session in due {
            self.handle_due(now, session);
            self.handle_ahead_due(now, session);
            self.handle_fences_due(now, session);
            self.rearm(session);
        }
    }

    fn handle_due(&mut self, now: Time, session: SessionId) {
        let Some(entry) = self.sessions.get_mut(&session) else { return };
        match &mut entry.role {
            Role::Arriving(arriving) => {
                if arriving.last_message + self.config.give_up <= now {
                    return self.fail(now, session, Reason::Unreachable);
                }
                let silent = arriving.last_message;
                if arriving.retry.next <= now {
                    arriving.retry.again(now, &self.config);
                    self.request_missing(session);
                }
                if self.config.take_over.is_some_and(|patience| silent + patience <= now) {
                    self.doubt_holder(now, session, Doubt::Silent);
                }
                self.ask_mobile(now, session);
            }
            Role::Leaving(leaving) if leaving.last_message + self.config.hold <= now => {
                let state = leaving.state.take();
                self.expire(state);
                self.remove(session);
            }
            // It needs no longer be remembered.
            Role::Given { until, .. } | Role::Failed { until, .. } if *until <= now => {
                self.sessions.remove(&session);
            }
            _ => {}
        }
    }

    /// A frozen state that nobody will have.
    pub(super) fn expire(&mut self, state: Option<Vec<u8>>) {
        let state = state.and_then(|bytes| SessionState::decode(&bytes).ok());
        self.events.extend(state.map(BaseEvent::Expired));
    }

    pub(super) fn send(
        &mut self,
        to: A,
        session: SessionId,
        attempt: u32,
        message: Message<'static>,
    ) {
        self.put(Outgoing { to, session, attempt, out: Out::Message(message) });
    }

    pub(super) fn put(&mut self, outgoing: Outgoing<A>) {
        self.outbox.push(outgoing);
    }

    /// Tells the world what was refused.
    pub(super) fn note(&mut self, from: A, session: SessionId, why: Denied) {
        if self.events.len() < REFUSALS_MAX {
            self.events.push_back(BaseEvent::Refused { session, from, why });
        }
    }

    pub(super) fn set(&mut self, session: SessionId, attempt: u32, role: Role<A>) {
        let gave = match role {
            Role::Leaving(_) | Role::Rebuilding(_) | Role::Serving => None,
            _ => self.sessions.get(&session).and_then(|entry| entry.gave),
        };
        let number = match &role {
            Role::Leaving(leaving) => leaving.generation,
            _ => self.sessions.get(&session).map_or(0, |entry| entry.number),
        };
        let known = self.sessions.get_mut(&session);
        let (owner, grants) = known.map_or((None, None), |e| (e.owner, e.grants.take()));
        let entry = Entry { attempt, role, number, gave, owner, grants };
        if entry.is_pending() {
            self.pending.insert(session);
        } else {
            self.pending.remove(&session);
        }
        self.sessions.insert(session, entry);
    }

    /// Bytes that may yet be held of states and copies that come from that base.
    pub(super) fn free_memory(&self, from: A) -> u64 {
        let coming = self.coming().map(|(holder, entry)| (holder, entry.fetching()));
        let (mut own, mut others) = (0, self.ahead.memory());
        for (holder, bytes) in coming {
            *(if holder == from { &mut own } else { &mut others }) += bytes;
        }
        let copies = self.ahead.memory_from(from);
        (own, others) = (own + copies, others - copies);
        share(self.config.memory_max.get(), others as u64).saturating_sub(own as u64)
    }

    /// Sessions that are on their way here, each with the base that is asked for it.
    fn coming(&self) -> impl Iterator<Item = (A, &Entry<A>)> {
        let entries = self.pending.iter().filter_map(|session| self.sessions.get(session));
        entries.filter_map(|entry| match &entry.role {
            Role::Arriving(arriving) => Some((arriving.holder.addr, entry)),
            _ => None,
        })
    }

    pub(super) fn has_memory(&self, from: A, bytes: u64) -> bool {
        bytes <= self.free_memory(from)
    }

    /// As [`has_memory`](Self::has_memory), of a session's state: copies of others give way to it,
    /// since all that they do is to spare bytes.
    pub(super) fn make_memory(&mut self, from: A, session: SessionId, bytes: u64) -> bool {
        if !self.has_memory(from, bytes) {
            self.ahead.keep_only(session);
        }
        self.has_memory(from, bytes)
    }

    /// Whether one more session may be known here, or this one is. Where a mobile has brought it, it has a place among
    /// that mobile's.
    pub(super) fn has_place(&mut self, session: SessionId, mobile: Option<A>) -> bool {
        if self.sessions.contains_key(&session) {
            return true;
        }
        mobile.is_none_or(|mobile| self.sessions.make_place(mobile))
            && self.sessions.len() < self.config.sessions_max
    }

    /// Whether one more session may be on its way here, for that mobile and from that base.
    pub(super) fn may_come(&self, session: SessionId, mobile: A, holder: A) -> bool {
        if self.pending.contains(&session) {
            return true;
        }
        let (mut own, mut others) = (0, 0);
        for (from, _) in self.coming() {
            *(if from == holder { &mut own } else { &mut others }) += 1;
        }
        let of_mobile = self.sessions.of(mobile).filter(|(_, entry)| entry.is_pending()).count();
        of_mobile < COMING_OF_ONE && own < share(self.config.pending_max as u64, others)
    }
}

/// The answer to somebody who asks for what another has.
pub(super) fn moved<A: Address>(to: Holder<A>) -> Message<'static> {
    Message::Moved { to: to.addr.to_name(), since: to.since }
}
