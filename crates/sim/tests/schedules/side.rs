//! One end of one connection: an application or a fixed host that follows its plan.

use lasthop_hop::Streams;
use lasthop_session::{ConnId, RecvState, Refusal, ResetReason, Session};
use lasthop_sim::Content;
use lasthop_units::{Duration, Seed, Stream, Time};

use crate::plan::{SidePlan, upto};

/// What one end did and saw: all that the checkers need.
#[derive(Clone, PartialEq, Default, Debug)]
pub(crate) struct Account {
    /// Bytes written.
    pub(crate) sent: u64,
    /// Bytes read.
    pub(crate) received: u64,
    /// It ended its direction.
    pub(crate) finished: bool,
    /// It read the peer's end.
    pub(crate) ended: bool,
    /// It was told that the connection stands.
    pub(crate) opened: bool,
    /// It gave the connection up.
    pub(crate) gave_up: bool,
    /// It was told of a reset.
    pub(crate) reset: Option<ResetReason>,
    /// It was told that there is no connection.
    pub(crate) failed: Option<Refusal>,
    /// It refused the connection.
    pub(crate) refused: bool,
    /// It was told that the connection is over.
    pub(crate) closed: bool,
    /// Offset of the first byte that was not the one sent, and when it came.
    pub(crate) wrong: Option<(u64, Time)>,
}

/// One end of one connection.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) id: ConnId,
    plan: SidePlan,
    out: Content,
    expected: Content,
    random: Stream,
    pub(crate) account: Account,
    /// The last edge said that there may be something, and we have not yet seen that there is not.
    pub(crate) can_read: bool,
    pub(crate) can_write: bool,
    next_read: Time,
    next_write: Time,
}

/// Which end a side is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EndKind {
    Application,
    FixedHost,
}

impl Side {
    pub(crate) fn new(id: ConnId, index: usize, end: EndKind, plan: SidePlan, seed: Seed) -> Self {
        let up = Content::new(seed, &format!("up-{index}"));
        let down = Content::new(seed, &format!("down-{index}"));
        let (out, expected) = if end == EndKind::Application { (up, down) } else { (down, up) };
        Self {
            id,
            plan,
            out,
            expected,
            random: seed.stream(&format!("{end:?}-{index}")),
            account: Account::default(),
            can_read: false,
            can_write: false,
            next_read: Time::ZERO,
            next_write: Time::ZERO,
        }
    }

    /// Nothing more can be done with this connection.
    pub(crate) fn is_over(&self) -> bool {
        let a = &self.account;
        a.closed || a.gave_up || a.refused || a.reset.is_some() || a.failed.is_some()
    }

    /// When it goes on by itself.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        if self.is_over() {
            return None;
        }
        let read = self.can_read.then_some(self.next_read);
        let write = (self.can_write && self.may_write()).then_some(self.next_write);
        match (read, write) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn may_write(&self) -> bool {
        self.account.received >= self.plan.write_after && !self.account.finished
    }

    /// Reads and writes whatever it may and wants to at this moment; `eager` sides do not dawdle.
    pub(crate) fn drive<S: Streams>(
        &mut self,
        now: Time,
        eager: bool,
        session: &mut Session,
        hop: &mut S,
    ) {
        if eager {
            (self.next_read, self.next_write) = (Time::ZERO, Time::ZERO);
        }
        while !self.is_over() {
            self.give_up_if_due(session, hop);
            let moved = self.read(now, eager, session, hop) || self.write(now, eager, session, hop);
            if !moved {
                break;
            }
        }
    }

    fn give_up_if_due<S: Streams>(&mut self, session: &mut Session, hop: &mut S) {
        let moved = self.account.sent + self.account.received;
        if self.plan.reset_after.is_some_and(|n| moved >= n) {
            self.account.gave_up = true;
            session.reset(hop, self.id, ResetReason::Aborted);
        }
    }

    /// Reads one piece; whether there may be more.
    fn read<S: Streams>(
        &mut self,
        now: Time,
        eager: bool,
        session: &mut Session,
        hop: &mut S,
    ) -> bool {
        if self.is_over() || !self.can_read || now < self.next_read {
            return false;
        }
        let data = session.received(hop, self.id);
        let n = data.len().min(self.plan.read_piece);
        if n == 0 {
            self.can_read = false;
            self.account.ended |= session.recv_state(hop, self.id) == RecvState::Finished;
            return false;
        }
        if let Some(at) = self.expected.first_difference(self.account.received, &data[..n]) {
            self.account.wrong.get_or_insert((at, now));
        }
        session.consume(hop, self.id, n);
        self.account.received += n as u64;
        self.next_read = now + self.gap(self.plan.read_gap, eager);
        true
    }

    /// Writes one piece, or the end; whether there may be more.
    fn write<S: Streams>(
        &mut self,
        now: Time,
        eager: bool,
        session: &mut Session,
        hop: &mut S,
    ) -> bool {
        if self.is_over() || !self.can_write || now < self.next_write || !self.may_write() {
            return false;
        }
        let left = self.plan.bytes - self.account.sent;
        if left == 0 {
            session.finish(hop, self.id);
            self.account.finished = true;
            return true;
        }
        let Ok(room) = session.send_space(hop, self.id) else {
            self.can_write = false;
            return false;
        };
        let n = room.len().min(self.plan.write_piece).min(left as usize);
        if n == 0 {
            self.can_write = false;
            return false;
        }
        self.out.fill(self.account.sent, &mut room[..n]);
        session.commit(hop, self.id, n);
        self.account.sent += n as u64;
        self.next_write = now + self.gap(self.plan.write_gap, eager);
        true
    }

    fn gap(&mut self, mean: Duration, eager: bool) -> Duration {
        if eager || mean.is_zero() {
            return Duration::ZERO;
        }
        upto(&mut self.random, mean * 2)
    }
}
