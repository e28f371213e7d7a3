//! The mobile's part.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use lasthop_units::{Duration, Time};
use lasthop_wire::mhp::handoff::{
    BaseName, Datagram, Message, ORPHANS_FIRST, ORPHANS_LAST, ORPHANS_MAX, Orphan, Reason,
    SessionId,
};
use thiserror::Error;

use super::take_over::taken_over_in;
use super::{Address, Config, Grant, Granter, Open, Retry};

/// Why a session is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Broken {
    /// The new base did not answer in time (MHP-21).
    #[error("the new base did not resume the session in time")]
    TimedOut,
    /// The new base says that it cannot be done.
    #[error("{0}")]
    Refused(Reason),
}

/// What the world is to do at the mobile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MobileEvent<A> {
    /// Take all connections out of the hop that they are on,
    /// [`Session::suspend`](crate::Session::suspend), and make a hop to that base. They may be
    /// carried on over it at once, [`Session::resume`](crate::Session::resume), where the base holds
    /// what comes too early, or else when they have [`Resumed`](Self::Resumed). A handoff during
    /// another says it again.
    Suspend {
        /// The new base.
        to: A,
    },
    /// The session stands at that base.
    Resumed {
        /// Where.
        base: A,
    },
    /// That base will not have the session, though nothing has happened to it: it is still where it
    /// was. Unless another upcall leads elsewhere, or back, this base is greeted again until the
    /// session is [`Broken`](Self::Broken).
    Refused {
        /// The base that was greeted.
        base: A,
        /// Why.
        reason: Reason,
    },
    /// The state does not go to that candidate ahead; a handoff to it is likely to be refused too.
    Unexpected {
        /// The base that was expected.
        candidate: A,
        /// Why.
        reason: Reason,
    },
    /// The base before is silent, and the session may go on at the new one from what is here:
    /// [`Session::orphans`](crate::Session::orphans) says it, and [`Mobile::tell_orphans`] tells.
    TakeOver,
    /// The session is lost; reset its connections.
    Broken(Broken),
}

/// A base where the mobile expects to be soon.
#[derive(Debug)]
struct Expecting<A> {
    candidate: A,
    /// Until then it is sent; what it led to outlives it by [`Config::ahead`].
    until: Time,
    /// When to tell the base that it is with; never again once that has answered.
    retry: Retry,
}

#[derive(Debug)]
struct Pending<A> {
    to: A,
    started: Time,
    retry: Retry,
    /// The mobile's word to each base that may hold the session.
    grants: Vec<(BaseName, Grant)>,
    /// The new base's last word against it.
    refused: Option<Reason>,
    /// The new base is being told of connections whose base is dead.
    telling: Option<Telling>,
}

#[derive(Debug)]
struct Telling {
    /// What is yet to be told.
    orphans: VecDeque<Orphan>,
    /// How long their base has been silent.
    silent: Duration,
    /// Of the next message.
    flags: u8,
}

/// The mobile's end of handoffs (MHP-15).
#[derive(Debug)]
pub struct Mobile<A, G = Open> {
    config: Config,
    granter: G,
    session: SessionId,
    /// The last base that is known to have held the state.
    holder: A,
    /// The number of the state that it got.
    since: u32,
    attempt: u32,
    pending: Option<Pending<A>>,
    expecting: Option<Expecting<A>>,
    /// The base where the session stands is to be notified that it does.
    tells: bool,
    events: VecDeque<MobileEvent<A>>,
}

impl<A: Address> Mobile<A> {
    /// A mobile whose session begins at `base`, and whose bases ask for no grants. The session's name
    /// must be its own for its whole life and not another's.
    pub fn new(config: Config, session: SessionId, base: A) -> Self {
        Self::with_granter(config, session, base, Open)
    }
}

impl<A: Address, G: Granter<A>> Mobile<A, G> {
    /// A mobile whose session begins at `base`, with what makes its grants. Nobody but the mobile and
    /// its bases should be able to guess the session's name.
    pub fn with_granter(config: Config, session: SessionId, base: A, granter: G) -> Self {
        Self {
            config,
            granter,
            session,
            holder: base,
            since: 0,
            attempt: 0,
            pending: None,
            expecting: None,
            tells: false,
            events: VecDeque::new(),
        }
    }

    /// What makes its grants.
    pub fn granter_mut(&mut self) -> &mut G {
        &mut self.granter
    }

    /// The session's name.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// The number of the last handoff that it has begun.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The base where the session stands, or stood before the handoff under way.
    pub fn base(&self) -> A {
        self.holder
    }

    /// The base that the handoff under way leads to.
    pub fn going(&self) -> Option<A> {
        self.pending.as_ref().map(|pending| pending.to)
    }

    /// Whether a handoff is under way: connections are suspended, or wait for their new base.
    pub fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// The upcall: the mobile is with that base from here on (MHP-15). During a handoff it starts
    /// anew towards that base (MHP-23). Of the base where the session stands it changes nothing.
    pub fn handle_upcall(&mut self, now: Time, base: A) {
        match &self.pending {
            None if base == self.holder => return,
            Some(pending) if pending.to == base => return,
            _ => self.events.push_back(MobileEvent::Suspend { to: base }),
        }
        (self.expecting, self.tells) = (None, false);
        self.attempt = self.attempt.saturating_add(1);
        let retry = Retry::now(now, &self.config);
        let grants = self.granter.grants(self.session, self.attempt, base);
        let grants = grants.into_iter().map(|(holder, grant)| (holder.to_name(), grant)).collect();
        self.pending =
            Some(Pending { to: base, started: now, retry, grants, refused: None, telling: None });
    }

    /// An association with that base has just begun: what is due for it is sent at once, and its time
    /// to answer begins. The base where the session stands is sent how often it has moved, so that no
    /// grant of before counts.
    pub fn reached(&mut self, now: Time, base: A) {
        match &mut self.pending {
            Some(pending) if pending.to == base => {
                pending.retry = Retry::now(now, &self.config);
                pending.started = now;
            }
            Some(_) => {}
            None => self.tells |= base == self.holder,
        }
    }

    /// The lower layer says that the mobile will be with that base in about `lead` (MOB-39): the base
    /// that it is with is notified, so that the state goes there ahead. Whether it comes true or not,
    /// nothing else depends on it. A later word replaces an earlier one; one during a handoff is
    /// ignored.
    pub fn handle_imminent(&mut self, now: Time, candidate: A, lead: Duration) {
        if self.pending.is_some() || candidate == self.holder {
            return;
        }
        let until = now + lead.max(self.config.retry);
        match &mut self.expecting {
            Some(known) if known.candidate == candidate => known.until = until,
            _ => {
                let retry = Retry::now(now, &self.config);
                self.expecting = Some(Expecting { candidate, until, retry });
            }
        }
    }

    /// Takes in a datagram of a handoff that a base sent. Any other is ignored.
    pub fn handle_datagram(&mut self, now: Time, from: A, datagram: &[u8]) {
        let Ok(datagram) = Datagram::decode(datagram) else { return };
        if datagram.session != self.session || datagram.attempt != self.attempt {
            return;
        }
        if let Message::Expected { candidate, refused } = &datagram.message
            && from == self.holder
        {
            return self.on_expected(now, A::from_name(candidate), *refused);
        }
        if let Message::Resume { .. } = datagram.message
            && from == self.holder
            && self.pending.is_none()
        {
            self.tells = true;
            return;
        }
        let Some(pending) = self.pending.as_mut().filter(|pending| pending.to == from) else {
            return;
        };
        match datagram.message {
            Message::Resume { since } => {
                (self.holder, self.since) = (from, since);
                self.pending = None;
                self.events.push_back(MobileEvent::Resumed { base: from });
            }
            Message::TakeOver => {
                // Whichever base is next has to ask this one: that has the session, if it receives the answer.
                self.holder = from;
                self.since = self.since.max(taken_over_in(self.attempt));
                self.events.push_back(MobileEvent::TakeOver);
            }
            // It may have time later.
            Message::Refuse(Reason::Busy) => {}
            Message::Refuse(reason @ (Reason::Unauthorised | Reason::Version)) => {
                let before = pending.refused.replace(reason);
                let event = MobileEvent::Refused { base: from, reason };
                self.events.extend((before != Some(reason)).then_some(event));
            }
            Message::Refuse(reason) => self.fail_handoff(Broken::Refused(reason)),
            _ => {}
        }
    }

    /// In answer to [`TakeOver`](MobileEvent::TakeOver): what there is of each connection, and how long nothing has come from the
    /// base that had them.
    pub fn tell_orphans(&mut self, orphans: Vec<Orphan>, silent: Duration) {
        if let Some(pending) = &mut self.pending {
            let orphans = orphans.into();
            pending.telling = Some(Telling { orphans, silent, flags: ORPHANS_FIRST });
        }
    }

    fn on_expected(&mut self, now: Time, candidate: Option<A>, refused: Option<Reason>) {
        let Some(expecting) = &mut self.expecting else { return };
        if candidate != Some(expecting.candidate) {
            return;
        }
        match refused {
            // Said again while it is awaited, or the base would take it for an error.
            None | Some(Reason::Busy) => {
                expecting.retry = Retry { next: now + self.config.ahead / 2, ..expecting.retry };
            }
            Some(reason) => {
                let candidate = expecting.candidate;
                self.expecting = None;
                self.events.push_back(MobileEvent::Unexpected { candidate, reason });
            }
        }
    }

    fn fail_handoff(&mut self, broken: Broken) {
        if let Some(pending) = self.pending.take() {
            // Nobody's news of the session that was is worth more than this.
            (self.holder, self.since) = (pending.to, self.since.saturating_add(1 << 16));
            self.tells = true;
        }
        self.events.push_back(MobileEvent::Broken(broken));
    }

    /// What happened, in order.
    pub fn poll_event(&mut self) -> Option<MobileEvent<A>> {
        self.events.pop_front()
    }

    /// Writes the datagram that should leave now into `out`, in place of what was there; where it
    /// goes.
    pub fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<A> {
        let (to, message) = self.next_message(now)?;
        out.clear();
        Datagram { session: self.session, attempt: self.attempt, message }.encode(out);
        Some(to)
    }

    /// The greeting of the handoff under way, to be sent to the new base in whatever way reaches it
    /// first, in at most `room` bytes: with grants for as many bases as fit, the last holder's first.
    /// It is still to be sent in the usual way, with all of them.
    pub fn greeting(&self, room: usize) -> Option<Vec<u8>> {
        let pending = self.pending.as_ref()?;
        let holder = self.holder.to_name();
        let (mut grants, others): (Vec<_>, Vec<_>) =
            pending.grants.iter().cloned().partition(|(name, _)| *name == holder);
        grants.extend(others);
        loop {
            let message = Message::Greet {
                holder: holder.clone(),
                since: self.since,
                grants: grants.clone(),
            };
            let mut out = Vec::new();
            Datagram { session: self.session, attempt: self.attempt, message }.encode(&mut out);
            if out.len() <= room {
                return Some(out);
            }
            grants.pop()?;
        }
    }

    fn next_message(&mut self, now: Time) -> Option<(A, Message<'static>)> {
        let (holder, since) = (self.holder, self.since);
        if core::mem::take(&mut self.tells) {
            return Some((holder, Message::Here { since }));
        }
        let expecting = self.expecting.as_mut().filter(|expecting| expecting.retry.next <= now);
        if let Some(expecting) = expecting {
            expecting.retry.again(now, &self.config);
            return Some((holder, Message::Expect { candidate: expecting.candidate.to_name() }));
        }
        if let Some(pending) = &mut self.pending
            && let Some(telling) = &mut pending.telling
        {
            let n = telling.orphans.len().min(ORPHANS_MAX);
            let orphans = telling.orphans.drain(..n).collect();
            let mut flags = core::mem::take(&mut telling.flags);
            let silent = u32::try_from(telling.silent.as_millis()).unwrap_or(u32::MAX);
            if telling.orphans.is_empty() {
                flags |= ORPHANS_LAST;
                pending.telling = None;
            }
            return Some((pending.to, Message::Orphans { flags, silent, orphans }));
        }
        let pending = self.pending.as_mut().filter(|pending| pending.retry.next <= now)?;
        pending.retry.again(now, &self.config);
        let grants = pending.grants.clone();
        Some((pending.to, Message::Greet { holder: holder.to_name(), since, grants }))
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) and
    /// [`poll_transmit`](Self::poll_transmit).
    pub fn next_timeout(&self) -> Option<Time> {
        let pending = self.pending.as_ref();
        let pending = pending.map(|p| p.retry.next.min(p.started + self.config.give_up));
        let expecting = self.expecting.as_ref();
        let expecting = expecting.map(|e| e.retry.next.min(e.until));
        [pending, expecting].into_iter().flatten().min()
    }

    /// Gives up a handoff that has taken too long (MHP-21).
    pub fn handle_timeout(&mut self, now: Time) {
        let late = |pending: &&Pending<A>| pending.started + self.config.give_up <= now;
        if let Some(pending) = self.pending.as_ref().filter(late) {
            self.fail_handoff(pending.refused.map_or(Broken::TimedOut, Broken::Refused));
        }
        self.expecting.take_if(|expecting| expecting.until <= now);
    }
}
