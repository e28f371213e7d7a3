//! The hop's half of a connection: what the mobile has not acknowledged, and its repair.

use lasthop_units::{Duration, Time};
use lasthop_wire::tcp::{SackBlocks, Seq};

use super::MTcpConfig;
use crate::cache::{Cache, Stored};
use crate::link::rtt::HopRtt;

/// Segments on their way to the mobile. No loss makes it send less: the hop is not shared with
/// those whom congestion control protects, and a disconnection is no congestion (MTC-5).
#[derive(Clone, Debug)]
pub(super) struct Hop<P> {
    cache: Cache<P, Sent>,
    /// Segments in the cache that have not been sent since the hop came up.
    waiting: usize,
    rtt: HopRtt,
    /// Vain attempts of the timer.
    backoff: u32,
    /// When the mobile was heard last, or silence began to mean something.
    silent_since: Time,
    /// What the timer runs from.
    timer_from: Time,
    /// After the last byte that was sent when a loss was seen: an acknowledgement before it shows
    /// the next loss (RFC 6582).
    recover: Option<Seq>,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    /// None if it waits.
    at: Option<Time>,
    /// More than once, so its acknowledgement measures nothing.
    again: bool,
}

impl<P: Clone> Hop<P> {
    pub(super) fn new(now: Time, config: &MTcpConfig) -> Self {
        Self {
            cache: Cache::new(config.buffer.max(1)),
            waiting: 0,
            rtt: HopRtt::new(config.initial_timeout, config.least_timeout),
            backoff: 0,
            silent_since: now,
            timer_from: now,
            recover: None,
        }
    }

    /// Segments that are kept.
    pub(super) fn kept(&self) -> usize {
        self.cache.len()
    }

    /// The hop's smoothed round trip.
    pub(super) fn srtt(&self) -> Option<Duration> {
        self.rtt.srtt()
    }

    fn in_flight(&self) -> usize {
        self.cache.len() - self.waiting
    }

    /// A segment from the fixed host with bytes that the mobile has not acknowledged. Returns it if
    /// it is to be sent at once; otherwise it is kept until its turn comes. What finds no room is
    /// sent, or lost, unkept: the fixed host has it still.
    pub(super) fn offer(
        &mut self,
        now: Time,
        (seq, end): (Seq, Seq),
        packet: P,
        off: bool,
    ) -> (Option<P>, Stored) {
        // A probe of one byte must not take the place of the segment that begins with it.
        let known = self.cache.holding(seq).filter(|kept| end.ahead_of(kept.end) <= 0);
        if let Some(kept) = known {
            let sent = kept.note.at.is_some() && !off;
            if sent {
                kept.note = Sent { at: Some(now), again: true };
            }
            return (sent.then_some(packet), Stored::Again);
        }
        let at = (!off && self.waiting == 0).then_some(now);
        if self.cache.is_empty() {
            self.restart(now);
        }
        let stored = self.cache.store(seq, end, packet.clone(), Sent { at, again: false });
        let waits = match stored {
            Stored::New => at.is_none(),
            // It is longer than the one that was here, and takes its turn.
            Stored::Again => self.replaced(seq, at),
            Stored::Refused => false,
        };
        self.waiting += usize::from(stored == Stored::New && waits);
        ((!waits).then_some(packet), stored)
    }

    /// The segment at `seq` was replaced; whether it waits.
    fn replaced(&mut self, seq: Seq, at: Option<Time>) -> bool {
        let Some(kept) = self.cache.iter_mut().find(|kept| kept.seq == seq) else { return false };
        if kept.note.at.is_some() && at.is_some() {
            kept.note = Sent { at, again: true };
            return false;
        }
        true
    }

    /// The mobile has all before `ack`.
    pub(super) fn acknowledge(&mut self, now: Time, ack: Seq) {
        let mut sample = None;
        let mut measures = true;
        while let Some(kept) = self.cache.pop_acknowledged(ack) {
            match kept.note.at {
                Some(at) => sample = Some(now.since(at)),
                None => self.waiting -= 1,
            }
            measures &= !kept.note.again && kept.note.at.is_some();
        }
        if let Some(took) = sample.filter(|_| measures) {
            self.rtt.sample(took);
        }
        self.backoff = 0;
        self.timer_from = now;
        self.recover = self.recover.filter(|recover| recover.ahead_of(ack) > 0);
    }

    /// The mobile said something.
    pub(super) fn heard(&mut self, now: Time) {
        self.silent_since = now;
    }

    /// The byte that the mobile waits for is here, so that its duplicate acknowledgement concerns
    /// the hop alone.
    pub(super) fn has(&mut self, seq: Seq) -> bool {
        self.cache.holding(seq).is_some()
    }

    /// An acknowledgement short of what was sent when the last loss was seen.
    pub(super) const fn is_partial(&self) -> bool {
        self.recover.is_some()
    }

    /// The mobile lacks the byte at `ack` and what its blocks leave out: sends that again, unless
    /// it was sent so lately that this cannot be the answer. The hop does not reorder, so the first
    /// duplicate tells enough.
    pub(super) fn repair(
        &mut self,
        now: Time,
        ack: Seq,
        sack: &SackBlocks,
        mut send: impl FnMut(P),
    ) {
        let sacked = sack.as_slice();
        let highest = sacked.iter().map(|block| block.1).max_by_key(|end| end.ahead_of(ack));
        let first = self.rtt.least().unwrap_or(Duration::ZERO);
        let later = self.rtt.timeout(0);
        let mut top = None;
        for kept in self.cache.iter_mut() {
            let Some(at) = kept.note.at else { break };
            top = Some(kept.end);
            let next = ack.ahead_of(kept.seq) >= 0 && kept.end.ahead_of(ack) > 0;
            let below = highest.is_some_and(|highest| highest.ahead_of(kept.end) >= 0);
            let covered = is_covered(kept.seq, kept.end, sacked);
            let old = now.since(at) >= if kept.note.again { later } else { first };
            if (next || below) && !covered && old {
                kept.note = Sent { at: Some(now), again: true };
                send(kept.packet.clone());
            }
        }
        self.recover = self.recover.or(top);
    }

    /// The hop carries again: all that the mobile does not have waits for its turn.
    pub(super) fn begin_again(&mut self, now: Time, sack: &SackBlocks) {
        self.waiting = 0;
        for kept in self.cache.iter_mut() {
            let again = kept.note.again || kept.note.at.is_some();
            let here = is_covered(kept.seq, kept.end, sack.as_slice());
            kept.note = Sent { at: here.then_some(now), again };
            self.waiting += usize::from(!here);
        }
        self.backoff = 0;
        self.recover = None;
        self.restart(now);
    }

    /// Timers begin anew.
    pub(super) fn restart(&mut self, now: Time) {
        self.silent_since = now;
        self.timer_from = now;
    }

    /// Sends of what waits as much as may be under way.
    pub(super) fn catch_up(&mut self, now: Time, window: usize, mut send: impl FnMut(P)) {
        if self.waiting == 0 {
            return;
        }
        let mut room = window.max(1).saturating_sub(self.in_flight());
        for kept in self.cache.iter_mut() {
            if room == 0 {
                return;
            }
            if kept.note.at.is_none() {
                kept.note.at = Some(now);
                self.waiting -= 1;
                room -= 1;
                send(kept.packet.clone());
            }
        }
    }

    /// The lowest segment, sent once more.
    pub(super) fn again(&mut self, now: Time) -> Option<P> {
        self.timer_from = now;
        let kept = self.cache.front_mut()?;
        if kept.note.at.replace(now).is_none() {
            self.waiting -= 1;
        } else {
            kept.note.again = true;
        }
        Some(kept.packet.clone())
    }

    /// A vain attempt of the timer.
    pub(super) const fn back_off(&mut self) {
        self.backoff = self.backoff.saturating_add(1);
    }

    /// When the lowest segment is to be sent again.
    pub(super) fn timeout(&self) -> Option<Time> {
        (self.in_flight() > 0).then(|| self.rtt.deadline(self.timer_from, self.backoff))
    }

    /// When, with the hop off, to ask whether the mobile is there.
    pub(super) fn probe(&self, interval: Duration) -> Option<Time> {
        (!self.cache.is_empty()).then(|| self.timer_from + interval)
    }

    /// When silence means that the mobile is gone (MTC-6).
    pub(super) fn disconnected(&self, config: &MTcpConfig) -> Option<Time> {
        let trips = self.rtt.srtt().unwrap_or(config.initial_timeout);
        let after =
            trips.saturating_mul(config.disconnect_round_trips).max(config.disconnect_after);
        (self.in_flight() > 0).then(|| self.silent_since + after)
    }
}

fn is_covered(seq: Seq, end: Seq, sacked: &[(Seq, Seq)]) -> bool {
    sacked.iter().any(|(from, to)| seq.ahead_of(*from) >= 0 && to.ahead_of(end) >= 0)
}
