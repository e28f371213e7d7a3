//! Handshakes that a base does not answer. The caller gets nothing, for it might be anybody; the
//! operator gets a report, seldom enough that nobody can fill the log from outside.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem::discriminant;
use core::time::Duration;

use lasthop_units::Time;
use lasthop_wire::datagram::{HandshakeInit, PlainInit};

use crate::seal::{HandshakeError, PublicKey};

/// Callers that are reported by name, for each reason.
const NAMED_MAX: usize = 8;
/// Reports that wait to be polled, at most.
const OUT_MAX: usize = 64;
/// The same caller is reported again after so long, with how often it has called meanwhile.
const AGAIN: Duration = Duration::from_secs(60);

/// Why a base does not answer a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It was made for another base's public key. Whose it is cannot be known.
    OtherBase,
    /// The holder of this key made it, and is not allowed here.
    Stranger(PublicKey),
    /// It was answered, again and again, and the holder of this key has not taken the answer up: it was made with
    /// another pre-shared key than the caller has, or does not arrive, or the handshake is a copy of an earlier one.
    Unconfirmed(PublicKey),
    /// It is unsealed where a seal is wanted, or sealed where there is none.
    OtherSeal,
    /// It is for another transport than is used here.
    OtherTransport,
    /// It is of another version of the protocol.
    OtherVersion {
        /// The caller's.
        theirs: u8,
        /// The base's.
        ours: u8,
    },
    /// There are as many mobiles as there may be.
    Full,
}

impl Refusal {
    /// What the [check](crate::seal::Responder::check) of an init, which ended with `error`, shows of
    /// whoever made it; nothing if it is no init.
    pub fn of(error: HandshakeError, init: &[u8]) -> Option<Self> {
        let is_init = || HandshakeInit::new_checked(init).is_ok() || PlainInit::parse(init).is_ok();
        match error {
            HandshakeError::WrongBase => Some(Self::OtherBase),
            HandshakeError::Malformed(_) if is_init() => Some(Self::OtherSeal),
            _ => None,
        }
    }
}

/// A handshake that was not answered, or several that are reported together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused<A> {
    /// Where the latest came from.
    pub from: A,
    /// Why it was not answered.
    pub why: Refusal,
    /// How many more of this caller's were not reported.
    pub again: u64,
    /// How many of other callers' were not reported, for the same reason.
    pub others: u64,
}

impl<A> Refused<A> {
    /// The same, with the address as `show` shows it.
    pub fn map<B>(self, show: impl FnOnce(A) -> B) -> Refused<B> {
        Refused { from: show(self.from), why: self.why, again: self.again, others: self.others }
    }
}

/// A caller whose handshakes are not answered.
struct Caller<A> {
    from: A,
    why: Refusal,
    told: Time,
    /// Handshakes since it was reported.
    since: u64,
    /// It stands for all that have no place of their own.
    rest: bool,
}

impl<A: Copy + Eq> Caller<A> {
    fn is(&self, from: A, why: Refusal) -> bool {
        // A key is the same mobile's wherever it is.
        let whose = matches!(why, Refusal::Stranger(_) | Refusal::Unconfirmed(_));
        let same = whose || self.from == from;
        !self.rest && self.why == why && same
    }
}

/// Reports of refused handshakes: a bounded number of callers, each at once and then once a minute.
pub struct Refusals<A> {
    callers: Vec<Caller<A>>,
    out: VecDeque<Refused<A>>,
}

impl<A> Default for Refusals<A> {
    fn default() -> Self {
        Self { callers: Vec::new(), out: VecDeque::new() }
    }
}

impl<A: Copy + Eq> Refusals<A> {
    /// Records that a handshake from `from` is not answered.
    pub fn record(&mut self, now: Time, from: A, why: Refusal) {
        let kind = discriminant(&why);
        let known = self.callers.iter_mut().find(|caller| caller.is(from, why));
        if let Some(caller) = known {
            caller.since += 1;
            caller.from = from;
            return;
        }
        let mut alike = self.callers.iter_mut().filter(|c| discriminant(&c.why) == kind);
        if let Some(rest) = alike.find(|caller| caller.rest) {
            rest.since += 1;
            (rest.from, rest.why) = (from, why);
            return;
        }
        let named = self.callers.iter().filter(|c| discriminant(&c.why) == kind).count();
        let rest = named >= NAMED_MAX;
        if !rest {
            queue(&mut self.out, Refused { from, why, again: 0, others: 0 });
        }
        self.callers.push(Caller { from, why, told: now, since: u64::from(rest), rest });
    }

    /// The next report.
    pub fn poll(&mut self) -> Option<Refused<A>> {
        self.out.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    pub fn next_timeout(&self) -> Option<Time> {
        self.callers.iter().map(|caller| caller.told + AGAIN).min()
    }

    /// Reports callers that go on, and removes those that do not.
    pub fn handle_timeout(&mut self, now: Time) {
        let out = &mut self.out;
        self.callers.retain_mut(|caller| {
            if caller.told + AGAIN > now {
                return true;
            }
            caller.told = now;
            let since = core::mem::take(&mut caller.since);
            let Some(more) = since.checked_sub(1) else { return false };
            let (again, others) = if caller.rest { (0, more) } else { (more, 0) };
            queue(out, Refused { from: caller.from, why: caller.why, again, others });
            true
        });
    }
}

/// Queues a report. Nobody need poll: then the oldest is dropped.
fn queue<A>(out: &mut VecDeque<Refused<A>>, refused: Refused<A>) {
    if out.len() >= OUT_MAX {
        out.pop_front();
    }
    out.push_back(refused);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> PublicKey {
        PublicKey::from_bytes([n; 32])
    }

    fn told(refusals: &mut Refusals<u16>) -> Vec<Refused<u16>> {
        core::iter::from_fn(|| refusals.poll()).collect()
    }

    #[test]
    fn a_caller_is_reported_at_once_and_then_once_a_minute_with_a_count() {
        let (mut refusals, mut now) = (Refusals::default(), Time::ZERO);
        let mut lines = Vec::new();
        for _ in 0..600 {
            refusals.handle_timeout(now);
            refusals.record(now, 7, Refusal::OtherBase);
            lines.extend(told(&mut refusals));
            now += Duration::from_millis(250);
        }
        let again: Vec<u64> = lines.iter().map(|line| line.again).collect();
        assert_eq!(again, [0, 238, 239]);
        assert!(lines.iter().all(|line| line.from == 7 && line.others == 0));
        // Once it is quiet it is removed, and the clock with it.
        for _ in 0..2 {
            now = refusals.next_timeout().unwrap();
            refusals.handle_timeout(now);
        }
        assert_eq!(told(&mut refusals).len(), 1);
        assert_eq!(refusals.next_timeout(), None);
    }

    #[test]
    fn a_flood_from_everywhere_neither_fills_log_or_memory_nor_hides_another_reason() {
        let mut refusals = Refusals::default();
        for n in 0..10_000 {
            refusals.record(Time::ZERO, n, Refusal::OtherBase);
        }
        refusals.record(Time::ZERO, 1, Refusal::Stranger(key(1)));
        let first = told(&mut refusals);
        assert_eq!(first.len(), NAMED_MAX + 1);
        assert_eq!(first.last().unwrap().why, Refusal::Stranger(key(1)));
        assert!(refusals.callers.len() <= NAMED_MAX + 2);
        refusals.handle_timeout(Time::ZERO + AGAIN);
        let second = told(&mut refusals);
        assert_eq!(second.len(), 1);
        assert_eq!(second[0].others, 10_000 - NAMED_MAX as u64 - 1);
        refusals.handle_timeout(Time::ZERO + AGAIN * 2);
        assert!(told(&mut refusals).is_empty() && refusals.next_timeout().is_none());
    }

    #[test]
    fn a_stranger_that_moves_is_the_same_stranger() {
        let mut refusals = Refusals::default();
        refusals.record(Time::ZERO, 1, Refusal::Stranger(key(1)));
        refusals.record(Time::ZERO, 2, Refusal::Stranger(key(1)));
        refusals.record(Time::ZERO, 2, Refusal::Stranger(key(2)));
        assert_eq!(told(&mut refusals).len(), 2);
        refusals.handle_timeout(Time::ZERO + AGAIN);
        let again = told(&mut refusals);
        assert_eq!((again.len(), again[0].from, again[0].again), (1, 2, 0));
    }
}
