//! The mobile's part.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use lasthop_units::{Duration, Time};
use lasthop_wire::mhp::handoff::{Datagram, Message, Reason, SessionId};
use thiserror::Error;

use super::{Address, Config, Retry};

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
    /// Take all connections out of the old hop: [`Session::suspend`](crate::Session::suspend).
    Suspend,
    /// The session stands at that base: carry on over a hop to it,
    /// [`Session::resume`](crate::Session::resume).
    Resumed {
        /// Where.
        base: A,
    },
    /// The session is lost; reset its connections.
    Broken(Broken),
}

/// A base where the mobile expects to be soon.
#[derive(Debug)]
struct Expecting<A> {
    candidate: A,
    /// Until then it is said; what it led to outlives it by [`Config::ahead`].
    until: Time,
    /// When to tell the base that it is with; never again once that has answered.
    retry: Retry,
}

#[derive(Debug)]
struct Pending<A> {
    to: A,
    started: Time,
    retry: Retry,
}

/// The mobile's end of handoffs (MHP-15).
#[derive(Debug)]
pub struct Mobile<A> {
    config: Config,
    session: SessionId,
    /// The last base that is known to have held the state.
    holder: A,
    /// The number of the state that it got.
    since: u32,
    attempt: u32,
    pending: Option<Pending<A>>,
    expecting: Option<Expecting<A>>,
    events: VecDeque<MobileEvent<A>>,
}

impl<A: Address> Mobile<A> {
    /// A mobile whose session begins at `base`. The session's name must be its own for its whole
    /// life and not another's.
    pub fn new(config: Config, session: SessionId, base: A) -> Self {
        Self {
            config,
            session,
            holder: base,
            since: 0,
            attempt: 0,
            pending: None,
            expecting: None,
            events: VecDeque::new(),
        }
    }

    /// The session's name.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// The base where the session stands, or stood before the handoff under way.
    pub fn base(&self) -> A {
        self.holder
    }

    /// Whether a handoff is under way: connections are suspended.
    pub fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// The upcall: the mobile is with that base from here on (MHP-15). During a handoff it starts
    /// anew towards that base (MHP-23). Of the base where the session stands it changes nothing.
    pub fn handle_upcall(&mut self, now: Time, base: A) {
        match &self.pending {
            None if base == self.holder => return,
            Some(pending) if pending.to == base => return,
            None => self.events.push_back(MobileEvent::Suspend),
            Some(_) => {}
        }
        self.expecting = None;
        self.attempt = self.attempt.saturating_add(1);
        let retry = Retry::now(now, &self.config);
        self.pending = Some(Pending { to: base, started: now, retry });
    }

    /// The lower layer says that the mobile will be with that base in about `lead` (MOB-39): the base
    /// that it is with is told, so that the state goes there ahead. Whether it comes true or not,
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

    /// Takes in a datagram of a handoff. Any other is ignored.
    pub fn handle_datagram(&mut self, now: Time, datagram: &[u8]) {
        let Ok(datagram) = Datagram::decode(datagram) else { return };
        if datagram.session != self.session || datagram.attempt != self.attempt {
            return;
        }
        if let Message::Expected { candidate } = &datagram.message
            && let Some(expecting) = &mut self.expecting
            && A::from_name(candidate) == Some(expecting.candidate)
        {
            // Said again while it is awaited, or the base would take it for an error.
            expecting.retry = Retry { next: now + self.config.ahead / 2, ..expecting.retry };
        }
        let Some(pending) = &self.pending else { return };
        match datagram.message {
            Message::Resume { since } => {
                (self.holder, self.since) = (pending.to, since);
                self.pending = None;
                self.events.push_back(MobileEvent::Resumed { base: self.holder });
            }
            // It may have time later.
            Message::Refuse(Reason::Busy) => {}
            Message::Refuse(reason) => self.give_up(Broken::Refused(reason)),
            _ => {}
        }
    }

    fn give_up(&mut self, broken: Broken) {
        if let Some(pending) = self.pending.take() {
            // Nobody's news of the session that was is worth more than this.
            (self.holder, self.since) = (pending.to, self.since.saturating_add(1 << 16));
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
        let expecting = self.expecting.as_mut().filter(|expecting| expecting.retry.next <= now);
        if let Some(expecting) = expecting {
            expecting.retry.again(now, &self.config);
            let message = Message::Expect { candidate: expecting.candidate.to_name() };
            out.clear();
            Datagram { session: self.session, attempt: self.attempt, message }.encode(out);
            return Some(self.holder);
        }
        let pending = self.pending.as_mut().filter(|pending| pending.retry.next <= now)?;
        pending.retry.again(now, &self.config);
        let message = Message::Greet { holder: self.holder.to_name(), since: self.since };
        out.clear();
        Datagram { session: self.session, attempt: self.attempt, message }.encode(out);
        Some(pending.to)
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
        let late = |pending: &Pending<A>| pending.started + self.config.give_up <= now;
        if self.pending.as_ref().is_some_and(late) {
            self.give_up(Broken::TimedOut);
        }
        self.expecting.take_if(|expecting| expecting.until <= now);
    }
}
