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
///
/// The hop does not reorder, so of two transmissions the earlier is lost if the later has come and
/// the earlier has not. Transmissions are counted for that, copies and what passes unkept too: each
/// that comes is answered, so each duplicate acknowledgement tells that one more has come. A
/// segment that only waits in the hop's queue is never taken for lost, however long it waits; and
/// the duplicates that needless copies bring bring no further copies.
#[derive(Clone, Debug)]
pub(super) struct Hop<P> {
    cache: Cache<P, Sent>,
    /// Segments in the cache that have not been sent since the hop came up.
    waiting: usize,
    /// Segments that may be under way while others wait.
    window: usize,
    /// Segments that may wait, beside a window of new ones: those that waited when the hop came up,
    /// less those whose turn came.
    room: usize,
    /// Transmissions so far.
    sent: u64,
    /// Transmissions, from the first on, that have come or are lost; more may be.
    settled: u64,
    /// Duplicates came after the last acknowledgement of something new.
    duplicates: bool,
    rtt: Rtt,
    /// Vain attempts of the timer.
    backoff: u32,
    /// When the mobile last sent, or silence began to mean something.
    silent_since: Time,
    /// What the timer runs from.
    timer_from: Time,
}

/// What a segment from the fixed host finds.
#[derive(Clone, Copy, Debug)]
pub(super) struct HopState {
    /// The mobile is disconnected.
    pub(super) off: bool,
    /// The queue is nearly full: what is sent may be lost there. That is congestion, of which the
    /// fixed host is to hear.
    pub(super) crowded: bool,
    /// The fixed host has sent of it before; it may have come then.
    pub(super) repeats: bool,
    /// What the mobile has acknowledged.
    pub(super) acked: Seq,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    /// None if it waits.
    at: Option<Time>,
    /// More than once, or perhaps so, and its acknowledgement measures nothing.
    again: bool,
    /// The number of its last transmission.
    last: u64,
    /// The mobile has named it in a block. It names the latest few only, so that must be remembered.
    come: bool,
    /// That of its earliest one that is not known to be lost: what its acknowledgement proves to
    /// have come, at least.
    earliest: u64,
}

impl Sent {
    const WAITS: Self = Self { at: None, again: false, come: false, last: 0, earliest: 0 };

    /// The transmission with this number, at this time. Those before it are `lost`, or it is only a
    /// guess that they are.
    fn transmit(&mut self, now: Time, number: u64, lost: bool) {
        if self.at.is_none() || lost {
            self.earliest = number;
        }
        self.again |= self.at.is_some();
        self.at = Some(now);
        self.last = number;
    }

    /// Its last transmission was made although an earlier one may have come.
    const fn is_guess(&self) -> bool {
        self.earliest != self.last
    }

    /// It is lost and waits for its turn.
    fn mark_lost(&mut self) {
        self.again |= self.at.is_some();
        self.at = None;
        self.come = false;
    }
}

impl<P: Clone> Hop<P> {
    pub(super) fn new(now: Time, config: &MTcpConfig) -> Self {
        Self {
            cache: Cache::new(config.buffer.max(1)),
            waiting: 0,
            window: config.hop_window.max(1),
            room: 0,
            sent: 0,
            settled: 0,
            duplicates: false,
            rtt: Rtt::new(RtoBounds {
                initial: config.initial_timeout,
                least: config.least_timeout,
                most: LONGEST,
            }),
            backoff: 0,
            silent_since: now,
            timer_from: now,
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

    /// Segments that are under way for all that is known: what lies above a gap and has come, as
    /// later transmissions tell, is not.
    fn under_way(&self) -> usize {
        let settled = self.settled;
        let is_under_way = |note: &Sent| note.at.is_some() && !note.come && note.last >= settled;
        self.cache.iter().filter(|kept| is_under_way(&kept.note)).count()
    }

    /// A segment from the fixed host with bytes that the mobile has not acknowledged. Returns it if
    /// it is to be sent at once; otherwise it is kept until its turn comes, or is kept already: then
    /// the hop's own repair answers for it. What finds no room goes unkept if nothing waits before
    /// it, and is dropped otherwise, as by a queue that is full: the fixed host has it still, and is
    /// to send less.
    pub(super) fn enqueue(
        &mut self,
        now: Time,
        (seq, end): (Seq, Seq),
        packet: P,
        hop: HopState,
    ) -> (Option<P>, Stored) {
        if self.has_all(seq, end, hop.acked) {
            return (self.enqueue_copy(now, (seq, end), packet, hop), Stored::Again);
        }
        let sends = !hop.off && self.waiting == 0;
        if !hop.off && !hop.repeats && self.waiting >= self.room + self.window {
            return (None, Stored::Refused);
        }
        if hop.crowded && sends {
            self.note_passing();
            return (Some(packet), Stored::Refused);
        }
        if !self.is_owed(hop.acked) {
            self.restart(now);
        }
        let note = Sent { again: hop.repeats, ..Sent::WAITS };
        let stored = self.cache.store(seq, end, packet.clone(), note);
        self.waiting += usize::from(stored == Stored::New);
        if stored != Stored::Refused {
            if !sends {
                return (None, stored);
            }
            let number = self.sent;
            if let Some(kept) = self.cache.starting(seq) {
                self.waiting -= usize::from(kept.note.at.is_none());
                kept.note.transmit(now, number, false);
            }
        }
        // What the mobile waits for passes in any case: nothing else would ever make room.
        let wanted = hop.acked.ahead_of(seq) >= 0;
        if !sends && !hop.off && !wanted {
            return (None, stored);
        }
        self.note_passing();
        (Some(packet), stored)
    }

    /// Every byte of it from `acked` on is kept here.
    fn has_all(&mut self, seq: Seq, end: Seq, acked: Seq) -> bool {
        let mut next = if acked.ahead_of(seq) > 0 { acked } else { seq };
        while end.ahead_of(next) > 0 {
            let Some(kept) = self.cache.covering(next) else { return false };
            next = kept.end;
        }
        true
    }

    /// The fixed host sends what is kept; what is still to go over the hop for that.
    fn enqueue_copy(
        &mut self,
        now: Time,
        (seq, end): (Seq, Seq),
        packet: P,
        hop: HopState,
    ) -> Option<P> {
        let patience = self.rtt.timeout(self.backoff.min(DOUBLINGS));
        // Where the mobile seems to wait for a byte before what is kept, nothing here answers for
        // that; and if the fixed host knows better, it is what shows it.
        let owed = self.is_owed(hop.acked);
        let number = self.sent;
        let wanted = if hop.acked.ahead_of(seq) > 0 { hop.acked } else { seq };
        let kept = self.cache.covering(wanted)?;
        // A mobile that is taken to be gone may be there, and its words go another way: what is no
        // probe but the whole segment again finds it.
        let whole = kept.seq == seq && kept.end == end;
        // Of what is under way only the lowest may go twice, since it may be a probe of a window
        // that the mobile has closed.
        let stalls = !owed
            || wanted == hop.acked && kept.note.at.is_some_and(|at| now.since(at) >= patience);
        if (hop.off && !whole) || (!hop.off && !stalls) {
            return None;
        }
        if !hop.off {
            kept.note.transmit(now, number, false);
        }
        self.note_passing();
        Some(packet)
    }

    /// Something with data goes over the hop beside what is kept.
    pub(super) fn note_passing(&mut self) {
        self.sent += 1;
    }

    /// The mobile has all before `ack`.
    pub(super) fn acknowledge(&mut self, now: Time, ack: Seq, sack: &SackBlocks) {
        let mut sample = None;
        let mut measures = true;
        let mut guessed = false;
        let mut awaited = true;
        while let Some(kept) = self.cache.pop_acknowledged(ack) {
            let note = kept.note;
            let Some(at) = note.at else {
                self.waiting -= 1;
                (measures, awaited) = (false, false);
                continue;
            };
            // The segment that was awaited has just come, though by an earlier transmission if the
            // hop takes longer than that. Of the others, those that were sent again may have come
            // long ago.
            let timely = self.rtt.least().is_none_or(|least| now.since(at) >= least);
            guessed |= awaited && timely && note.is_guess();
            if (awaited && timely) || !note.again {
                self.settled = self.settled.max(note.last + 1);
            } else if note.is_guess() {
                self.settled = self.settled.max(note.earliest + 1);
            }
            awaited = false;
            sample = Some(now.since(at));
            measures &= !note.again;
        }
        if let Some(took) = sample.filter(|_| measures) {
            self.rtt.sample(took);
        }
        if guessed && !self.duplicates && sack.as_slice().is_empty() {
            self.lose_unanswered();
        }
        self.duplicates = false;
        self.backoff = 0;
        self.timer_from = now;
    }

    /// Nothing after the segment that the timer sent again was answered, so nothing of what was sent
    /// before that has come.
    fn lose_unanswered(&mut self) {
        let settled = self.settled;
        for kept in self.cache.iter_mut().filter(|kept| kept.note.at.is_some()) {
            if kept.note.last < settled {
                kept.note.mark_lost();
                self.waiting += 1;
            }
        }
    }

    /// Takes a packet from the mobile.
    pub(super) fn on_segment(&mut self, now: Time) {
        self.silent_since = now;
    }

    /// The byte at `seq`, which the mobile waits for, is here, so that its duplicate
    /// acknowledgement concerns the hop alone.
    pub(super) fn has(&mut self, seq: Seq) -> bool {
        self.cache.covering(seq).is_some()
    }

    /// A duplicate: something came that is not the byte at `ack`, and was sent after what came
    /// before it.
    pub(super) fn note_duplicate(&mut self, ack: Seq) {
        self.duplicates = true;
        let hole = self.cache.covering(ack).map(|kept| kept.note);
        let is_hole = hole.is_some_and(|hole| hole.at.is_some() && hole.last == self.settled);
        let came = self.settled + u64::from(is_hole);
        if came < self.sent {
            self.settled = came + 1;
        }
    }

    /// The mobile lacks the byte at `ack` and what its blocks leave out: sends again what of that is
    /// lost, since something that was sent later has come.
    pub(super) fn repair(
        &mut self,
        now: Time,
        ack: Seq,
        sack: &SackBlocks,
        mut send: impl FnMut(P),
    ) {
        let sacked = sack.as_slice();
        let highest = sacked.iter().map(|block| block.1).max_by_key(|end| end.ahead_of(ack));
        let is_below = |seq: Seq| highest.is_some_and(|highest| highest.ahead_of(seq) > 0);
        for kept in self.cache.iter_mut().take_while(|kept| is_below(kept.seq)) {
            if kept.note.at.is_some() && !kept.note.come && is_covered(kept.seq, kept.end, sacked) {
                kept.note.come = true;
                self.settled = self.settled.max(kept.note.earliest + 1);
            }
        }
        for kept in self.cache.iter_mut() {
            let next = ack.ahead_of(kept.seq) >= 0;
            if !next && !is_below(kept.seq) {
                break;
            }
            let lost = kept.note.at.is_some() && kept.note.last < self.settled;
            if lost && (next || !kept.note.come) {
                kept.note.transmit(now, self.sent, true);
                self.sent += 1;
                send(kept.packet.clone());
            }
        }
    }

    /// The hop carries again: all that the mobile does not have waits for its turn.
    pub(super) fn reconnect(&mut self, now: Time, sack: &SackBlocks) {
        self.waiting = 0;
        self.settled = self.sent;
        self.duplicates = false;
        for kept in self.cache.iter_mut() {
            if kept.note.at.is_some() && !is_covered(kept.seq, kept.end, sack.as_slice()) {
                kept.note.mark_lost();
            }
            self.waiting += usize::from(kept.note.at.is_none());
        }
        self.room = self.waiting;
        self.backoff = 0;
        self.restart(now);
    }

    /// Timers begin anew.
    pub(super) fn restart(&mut self, now: Time) {
        self.silent_since = now;
        self.timer_from = now;
    }

    /// Sends of what waits as much as may be under way.
    pub(super) fn catch_up(&mut self, now: Time, mut send: impl FnMut(P)) {
        if self.waiting == 0 {
            return;
        }
        let mut left = self.window.saturating_sub(self.under_way());
        for kept in self.cache.iter_mut() {
            if left == 0 {
                break;
            }
            if kept.note.at.is_none() {
                kept.note.transmit(now, self.sent, true);
                self.sent += 1;
                self.waiting -= 1;
                left -= 1;
                send(kept.packet.clone());
            }
        }
        self.room = self.room.min(self.waiting);
    }

    /// The lowest segment, sent once more.
    pub(super) fn again(&mut self, now: Time) -> Option<P> {
        self.timer_from = now;
        let kept = self.cache.front_mut()?;
        self.waiting -= usize::from(kept.note.at.is_none());
        kept.note.transmit(now, self.sent, false);
        self.sent += 1;
        Some(kept.packet.clone())
    }

    /// A vain attempt of the timer.
    pub(super) const fn back_off(&mut self) {
        self.backoff = self.backoff.saturating_add(1);
    }

    /// The mobile owes an acknowledgement of what is kept here. It owes none while it waits for a
    /// byte before that, which is the fixed host's to send again.
    pub(super) fn is_owed(&self, acked: Seq) -> bool {
        let sent = self.cache.len() > self.waiting;
        sent && self.cache.front().is_some_and(|kept| acked.ahead_of(kept.seq) >= 0)
    }

    /// When the lowest segment is to be sent again.
    pub(super) fn timeout(&self, acked: Seq) -> Option<Time> {
        let doublings = self.backoff.min(DOUBLINGS);
        self.is_owed(acked).then(|| self.rtt.deadline(self.timer_from, doublings))
    }

    /// When, with the hop off, to ask whether the mobile is there.
    pub(super) fn probe(&self, interval: Duration) -> Option<Time> {
        (!self.cache.is_empty()).then(|| self.timer_from + interval)
    }

    /// When silence means that the mobile is gone (MTC-6).
    pub(super) fn disconnected(&self, acked: Seq, config: &MTcpConfig) -> Option<Time> {
        let trips = self.rtt.srtt().unwrap_or(config.initial_timeout);
        let after =
            trips.saturating_mul(config.disconnect_round_trips).max(config.disconnect_after);
        self.is_owed(acked).then(|| self.silent_since + after)
    }
}

fn is_covered(seq: Seq, end: Seq, sacked: &[(Seq, Seq)]) -> bool {
    sacked.iter().any(|(from, to)| seq.ahead_of(*from) >= 0 && to.ahead_of(end) >= 0)
}
