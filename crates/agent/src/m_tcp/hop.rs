//! The hop's half of a connection: what the mobile has not acknowledged, and its repair.

use lasthop_units::{Duration, Time};
use lasthop_wire::tcp::{SackBlocks, Seq};

use super::MTcpConfig;
use crate::cache::{Cache, Stored};
use crate::rtt::{LONGEST, RtoBounds, Rtt};

/// Doublings of the timeout that count: the hop's own timer is to be quicker than the fixed host's.
const DOUBLINGS: u32 = 6;

/// Segments on their way to the mobile. No loss makes it send less: the hop is not shared with
/// those whom congestion control protects, and a disconnection is no congestion (MTC-5).
#[derive(Clone, Debug)]
pub(super) struct Hop<P> {
    cache: Cache<P, Sent>,
    /// Segments in the cache that have not been sent since the hop came up.
    waiting: usize,
    rtt: Rtt,
    /// Vain attempts of the timer.
    backoff: u32,
    /// When the mobile was heard last, or silence began to mean something.
    silent_since: Time,
    /// What the timer runs from.
    timer_from: Time,
    /// After the last byte that was sent when a loss was seen: an acknowledgement before it shows
    /// the next loss (RFC 6582).
    recover: Option<Seq>,
    /// Segments that were sent although the mobile has them, as far as is known: each is answered by
    /// a duplicate that tells of no loss.
    needless: u32,
    /// When the latest of them was sent.
    latest_copy: Option<Time>,
    /// Duplicates have told that the lowest segment was lost.
    missed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    /// None if it waits.
    at: Option<Time>,
    /// More than once, so its acknowledgement measures nothing.
    again: bool,
    /// How often beyond the first time.
    copies: u32,
}

impl Sent {
    /// Sent once more.
    const fn once_more(self, now: Time) -> Self {
        Self { at: Some(now), again: true, copies: self.copies.saturating_add(1) }
    }
}

impl<P: Clone> Hop<P> {
    pub(super) fn new(now: Time, config: &MTcpConfig) -> Self {
        Self {
            cache: Cache::new(config.buffer.max(1)),
            waiting: 0,
            rtt: Rtt::new(RtoBounds {
                initial: config.initial_timeout,
                least: config.least_timeout,
                most: LONGEST,
            }),
            backoff: 0,
            silent_since: now,
            timer_from: now,
            recover: None,
            needless: 0,
            latest_copy: None,
            missed: false,
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
            // What is under way need not go twice; the hop's own timer sees to it.
            let patience = self.rtt.timeout(self.backoff.min(DOUBLINGS));
            let sends = !off && kept.note.at.is_some_and(|at| now.since(at) >= patience);
            if sends {
                kept.note = kept.note.once_more(now);
            }
            // A mobile that is taken to be gone may be there, and its words go another way: what is
            // no probe but the whole segment again finds it.
            let whole = kept.seq == seq && kept.end == end;
            return ((sends || off && whole).then_some(packet), Stored::Again);
        }
        let at = (!off && self.waiting == 0).then_some(now);
        if self.cache.is_empty() {
            self.restart(now);
        }
        let stored =
            self.cache.store(seq, end, packet.clone(), Sent { at, again: false, copies: 0 });
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
        let Some(kept) = self.cache.starting(seq) else { return false };
        if let (Some(_), Some(now)) = (kept.note.at, at) {
            kept.note = kept.note.once_more(now);
            return false;
        }
        true
    }

    /// The mobile has all before `ack`.
    pub(super) fn acknowledge(&mut self, now: Time, ack: Seq) {
        let mut sample = None;
        let mut measures = true;
        let mut lost = u32::from(core::mem::take(&mut self.missed));
        let mut latest_clean = None;
        while let Some(kept) = self.cache.pop_acknowledged(ack) {
            match kept.note.at {
                Some(at) => sample = Some(now.since(at)),
                None => self.waiting -= 1,
            }
            if kept.note.copies > 0 {
                self.add_needless(kept.note.copies - lost.min(kept.note.copies), kept.note.at);
            } else {
                latest_clean = latest_clean.max(kept.note.at);
            }
            lost = 0;
            measures &= !kept.note.again && kept.note.at.is_some();
        }
        // The hop keeps the order, so that the copies before it have been answered.
        if latest_clean > self.latest_copy {
            self.needless = 0;
        }
        if let Some(took) = sample.filter(|_| measures) {
            self.rtt.sample(took);
        }
        self.backoff = 0;
        self.timer_from = now;
        self.recover = self.recover.filter(|recover| recover.ahead_of(ack) > 0);
    }

    fn add_needless(&mut self, copies: u32, at: Option<Time>) {
        self.needless = self.needless.saturating_add(copies);
        self.latest_copy = self.latest_copy.max(at);
    }

    /// Something went over the hop that the mobile has.
    pub(super) fn sent_needlessly(&mut self, now: Time) {
        self.add_needless(1, Some(now));
    }

    /// Whether a duplicate is explained by a segment that came twice. Without this one needless copy
    /// would bring the next for ever: its duplicate asks for a segment that only waits in the hop's
    /// queue.
    pub(super) fn explains_duplicate(&mut self) -> bool {
        let explained = self.needless > 0;
        self.needless = self.needless.saturating_sub(1);
        explained
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
                kept.note = kept.note.once_more(now);
                send(kept.packet.clone());
            }
        }
        self.recover = self.recover.or(top);
        self.missed = true;
    }

    /// The hop carries again: all that the mobile does not have waits for its turn.
    pub(super) fn begin_again(&mut self, now: Time, sack: &SackBlocks) {
        self.waiting = 0;
        for kept in self.cache.iter_mut() {
            let again = kept.note.again || kept.note.at.is_some();
            let here = is_covered(kept.seq, kept.end, sack.as_slice());
            kept.note.copies = kept.note.copies.saturating_add(u32::from(again && !here));
            kept.note = Sent { at: here.then_some(now), again, ..kept.note };
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
            kept.note = kept.note.once_more(now);
        }
        Some(kept.packet.clone())
    }

    /// A vain attempt of the timer.
    pub(super) const fn back_off(&mut self) {
        self.backoff = self.backoff.saturating_add(1);
    }

    /// When the lowest segment is to be sent again.
    pub(super) fn timeout(&self) -> Option<Time> {
        (self.in_flight() > 0)
            .then(|| self.rtt.deadline(self.timer_from, self.backoff.min(DOUBLINGS)))
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
