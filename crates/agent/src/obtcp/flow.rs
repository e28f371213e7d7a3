//! A router's state of the data of one connection towards its mobile host.

use lasthop_units::{Duration, Time};
use lasthop_wire::agent::{Message, Ranges};
use lasthop_wire::tcp::{Segment, Seq};

use super::holes::{Hole, Holes};
use super::stats::RouterStats;
use super::timer::Retry;
use super::{Config, Stretch, keep};
use crate::cache::{Cache, Stored};
use crate::rtt::Rtt;
use crate::{Connection, Packet, Queue, Side};

/// What the connections of a router share.
#[derive(Clone, Debug)]
pub(super) struct Shared<P> {
    pub(super) config: Config,
    pub(super) out: Queue<P>,
    pub(super) stats: RouterStats,
    /// From a SNACK to its answer.
    pub(super) hop: Rtt,
    /// SNACKs so far.
    pub(super) serial: u64,
    /// Bytes that may be kept beyond those that are.
    pub(super) room: u64,
}

/// One connection. Segments are sent to the mobile host in the order that `sent` counts, and
/// arrive in it (LNK-11). So a duplicate acknowledgement tells of a loss only if it cannot come
/// from a segment that was sent before the last copy of what is missing.
#[derive(Clone, Debug)]
pub(super) struct Flow<P> {
    stretch: Stretch,
    /// The window field of the mobile host's latest acknowledgement.
    window: u16,
    cache: Cache<P, Sent>,
    holes: Holes,
    /// Segments sent to the mobile host.
    sent: u64,
    /// The number of a segment that the mobile host had when its acknowledgement came so far.
    reached: u64,
    /// The number of the last segment that the router sent again.
    own: u64,
    /// Duplicates of it.
    seen: u64,
    /// Of those, kept back, and the latest of them.
    hidden: u32,
    suppressed: Option<P>,
    /// Segments of the fixed host that the mobile host has acknowledged already: the host waits for
    /// the acknowledgements that they cause.
    owed: u32,
    retry: Option<Retry>,
}

/// How a segment was sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    /// When, at first.
    at: Time,
    /// The number of its first copy, in the order of all that was sent.
    first: u64,
    /// The number of its last copy.
    last: u64,
    copies: u64,
    /// Copies that the router sent of its own accord.
    tries: u32,
}

impl<P: Packet> Flow<P> {
    /// A connection whose next byte is `next`.
    pub(super) fn new(next: Seq, config: &Config) -> Self {
        Self {
            stretch: Stretch::new(next),
            window: 0,
            cache: Cache::new(config.memory.segments),
            holes: Holes::new(config.gaps),
            sent: 0,
            reached: 0,
            own: 0,
            seen: 0,
            hidden: 0,
            suppressed: None,
            owed: 0,
            retry: config.timers.then(|| Retry::new(config.timer)),
        }
    }

    /// Whether a segment can belong to what is known.
    pub(super) fn takes(&self, segment: &Segment) -> bool {
        self.stretch.takes(segment)
    }

    pub(super) fn cached(&self) -> usize {
        self.cache.len()
    }

    /// Bytes of them.
    pub(super) fn bytes(&self) -> u64 {
        self.cache.bytes()
    }

    pub(super) fn gaps(&self) -> usize {
        self.holes.len()
    }

    /// When the flow wants to be called.
    pub(super) fn due(&self) -> Option<Time> {
        let retry = self.retry.as_ref().and_then(Retry::due);
        self.holes.due().into_iter().chain(retry).min()
    }

    /// A segment from the base: passed on and kept, whether in sequence (OBM-2), after a gap
    /// (OBM-3) or into one (OBM-4). It passes after the SNACK that it causes.
    pub(super) fn handle_data(
        &mut self,
        now: Time,
        connection: Connection,
        segment: &Segment,
        packet: P,
        shared: &mut Shared<P>,
    ) {
        let (seq, end) = (segment.seq, segment.end());
        let filled = segment.seq_len() > 0;
        // A keep-alive without payload also wants an answer.
        let asks = filled || self.stretch.una.is_some_and(|una| una.ahead_of(seq) > 0);
        if asks && self.stretch.is_past(segment) {
            self.owed = self.owed.saturating_add(1);
            self.sent += u64::from(filled);
        } else if filled {
            let gap = seq.ahead_of(self.stretch.next);
            if gap > 0 {
                self.open(now, connection, seq, shared);
            } else if gap < 0 {
                self.fill(now, connection, (seq, end), shared);
            }
            self.stretch.extend(segment);
            self.keep(now, (seq, end), packet.clone(), shared);
        }
        shared.out.packet(Side::Mobile, packet);
    }

    fn keep(&mut self, now: Time, (seq, end): (Seq, Seq), packet: P, shared: &mut Shared<P>) {
        self.sent += 1;
        let note = Sent { at: now, first: self.sent, last: self.sent, copies: 1, tries: 0 };
        let limits = (shared.config.memory.eviction, shared.room);
        let (outcome, evicted) = keep(&mut self.cache, limits, (seq, end), packet, note);
        shared.stats.evicted += evicted;
        match outcome {
            Stored::New => {}
            Stored::Again => {
                if let Some(kept) = self.cache.covering(seq) {
                    kept.note.last = self.sent;
                    kept.note.copies += 1;
                }
            }
            Stored::Refused => shared.stats.refused += 1,
        }
        if let Some(retry) = &mut self.retry {
            retry.sent(now);
        }
    }

    /// A gap up to `seq` shows: it is reported at once, and once (OBM-1).
    fn open(&mut self, now: Time, connection: Connection, seq: Seq, shared: &mut Shared<P>) {
        let due = Some(now);
        let hole =
            Hole { start: self.stretch.next, end: seq, asked: (0, 0), at: now, asks: 0, due };
        if self.holes.open(hole) {
            shared.stats.gaps += 1;
            self.send_snack(now, connection, shared, |hole| hole.asks == 0);
        } else {
            shared.stats.untracked += 1;
        }
    }

    /// Reports the holes that `which` chooses.
    fn send_snack(
        &mut self,
        now: Time,
        connection: Connection,
        shared: &mut Shared<P>,
        which: impl Fn(&Hole) -> bool,
    ) {
        let serial = shared.serial + 1;
        let mut missing = Ranges::default();
        for hole in self.holes.iter_mut().filter(|hole| which(hole)) {
            if !missing.push(hole.start, hole.end) {
                break;
            }
            hole.asked = (if hole.asks == 0 { serial } else { hole.asked.0 }, serial);
            hole.at = now;
            hole.due = Some(now + shared.hop.timeout(hole.asks));
            hole.asks += 1;
        }
        if !missing.is_empty() {
            shared.serial = serial;
            shared.stats.snacks += 1;
            shared.out.message(Side::Fixed, Message::Snack { connection, missing });
        }
    }

    /// Bytes that were missing have come.
    fn fill(
        &mut self,
        now: Time,
        connection: Connection,
        (seq, end): (Seq, Seq),
        shared: &mut Shared<P>,
    ) {
        let Some(hole) = self.holes.fill(seq, end) else { return };
        shared.stats.recovered += 1;
        if hole.due.is_none() {
            return;
        }
        if hole.asks == 1 {
            shared.hop.sample(now.since(hole.at));
        }
        if !shared.config.detect_lost_retransmissions {
            return;
        }
        let lost = |other: &Hole| {
            let before = other.asked.1 < hole.asked.0;
            let beside = other.asked.1 == hole.asked.0 && seq.ahead_of(other.start) > 0;
            other.due.is_some() && (before || beside)
        };
        for other in self.holes.iter_mut().filter(|other| lost(other)) {
            // Its answer is gone, so the next report is as good as the first.
            other.asks = 0;
            shared.stats.lost_retransmissions += 1;
        }
        self.send_snack(now, connection, shared, |other| other.asks == 0);
    }

    /// An acknowledgement of the mobile host.
    pub(super) fn handle_ack(
        &mut self,
        now: Time,
        segment: &Segment,
        packet: P,
        shared: &mut Shared<P>,
    ) {
        let ack = segment.ack;
        let Some(ahead) = self.stretch.advance_of(ack).filter(|ahead| *ahead >= 0) else {
            return shared.out.packet(Side::Fixed, packet);
        };
        if ahead > 0 {
            self.advance(now, ack, shared);
            self.window = segment.window;
            return shared.out.packet(Side::Fixed, packet);
        }
        if !self.is_duplicate(segment) {
            return shared.out.packet(Side::Fixed, packet);
        }
        if self.owed > 0 {
            self.owed -= 1;
            return shared.out.packet(Side::Fixed, packet);
        }
        self.seen += 1;
        if self.hides(ack, shared) {
            shared.stats.suppressed += 1;
            self.hidden = self.hidden.saturating_add(1);
            self.suppressed = Some(packet);
        } else {
            shared.stats.passed += 1;
            shared.out.packet(Side::Fixed, packet);
        }
    }

    /// Whether an acknowledgement that brings nothing new tells that a later segment has arrived
    /// (RFC 5681 section 2), with SACK whatever becomes of the window (RFC 6675 section 2).
    fn is_duplicate(&mut self, segment: &Segment) -> bool {
        let before = core::mem::replace(&mut self.window, segment.window);
        // A closed window answers a probe, and its opening must arrive.
        if segment.seq_len() > 0 || segment.window == 0 || before == 0 {
            return false;
        }
        match segment.options.sack.as_slice().first() {
            // Below the acknowledgement it reports a copy that was not needed (RFC 2883 section 4).
            Some((start, _)) => start.ahead_of(segment.ack) > 0,
            None => segment.window == before,
        }
    }

    /// Something new is acknowledged: it is no longer kept (OBM-9).
    fn advance(&mut self, now: Time, ack: Seq, shared: &mut Shared<P>) {
        let repaired =
            self.stretch.una.and_then(|una| self.cache.covering(una)).map(|kept| kept.note);
        let mut sample: Option<Duration> = None;
        while let Some(kept) = self.cache.pop_acknowledged(ack) {
            sample = (kept.note.copies == 1).then(|| now.since(kept.note.at));
            self.reached = self.reached.max(kept.note.first);
        }
        self.holes.acknowledge(ack);
        self.stretch.acknowledge(ack);
        self.seen = 0;
        self.hidden = 0;
        self.suppressed = None;
        self.owed = 0;
        if let Some(retry) = &mut self.retry {
            retry.acknowledged(now, sample, !self.cache.is_empty());
        }
        let repaired = repaired.filter(|note| shared.config.partial_acks && note.tries > 0);
        if let Some(repaired) = repaired {
            let earlier = |note: Sent| note.last < repaired.last;
            if self.cache.covering(ack).is_some_and(|kept| earlier(kept.note)) {
                self.resend(ack, shared);
            }
        }
    }

    /// Whether a duplicate for the byte at `una` is kept back; what it asks for is sent again if it
    /// is to be had and not on its way.
    fn hides(&mut self, una: Seq, shared: &mut Shared<P>) -> bool {
        if let Some(kept) = self.cache.covering(una) {
            let Sent { last, copies, tries, .. } = kept.note;
            // Segments that were sent between what the host had and the last copy of what it has
            // not, apart from earlier copies of the same.
            let earlier = last.saturating_sub(self.reached).saturating_sub(copies);
            if self.seen <= earlier {
                return true;
            }
            let enough = self.seen >= earlier.saturating_add(shared.config.dupacks.into());
            if !enough || tries >= shared.config.tries {
                return false;
            }
            self.resend(una, shared);
            return true;
        }
        if let Some(hole) = self.holes.covering(una) {
            return hole.due.is_some();
        }
        // Nothing is missing, so it comes from a copy that was not needed.
        una == self.stretch.next && self.seen <= self.own.saturating_sub(self.reached)
    }

    /// Sends the segment that holds the byte at `una` again, and those after it if so configured
    /// (OBM-5, OBM-8).
    fn resend(&mut self, una: Seq, shared: &mut Shared<P>) {
        let most = if shared.config.go_back_n { usize::MAX } else { 1 };
        let missing = self.cache.iter_mut().filter(|kept| kept.end.ahead_of(una) > 0);
        for kept in missing.take(most) {
            self.sent += 1;
            kept.note.last = self.sent;
            kept.note.copies += 1;
            kept.note.tries += 1;
            shared.stats.retransmitted += 1;
            shared.out.packet(Side::Mobile, kept.packet.clone());
        }
        self.own = self.sent;
    }

    /// The base does not have these bytes: their duplicates pass until they are acknowledged
    /// (OBM-7).
    pub(super) fn handle_congestion(&mut self, lost: &Ranges, shared: &mut Shared<P>) {
        let waited = self.waits();
        for (start, end) in lost.as_slice() {
            self.holes.abandon(*start, *end);
        }
        self.replay(waited, shared);
    }

    /// Duplicates are kept back for bytes that the base is to send.
    fn waits(&self) -> bool {
        let hole = self.stretch.una.and_then(|una| self.holes.covering(una));
        hole.is_some_and(|hole| hole.due.is_some())
    }

    /// Makes good for the duplicates that were kept back while it `waited` and need not have been.
    fn replay(&mut self, waited: bool, shared: &mut Shared<P>) {
        if !waited || self.waits() {
            return;
        }
        if let Some(packet) = self.suppressed.take() {
            let count = self.hidden.min(shared.config.replay);
            for _ in 0..count {
                shared.out.packet(Side::Fixed, packet.clone());
            }
            shared.stats.replayed += u64::from(count);
        }
        self.hidden = 0;
    }

    /// A deadline has come: a gap is reported again, or its duplicates pass from now on (OBM-6).
    pub(super) fn handle_timeout(
        &mut self,
        now: Time,
        connection: Connection,
        shared: &mut Shared<P>,
    ) {
        let waited = self.waits();
        let most = shared.config.snacks;
        let due = |hole: &Hole| hole.due.is_some_and(|due| due <= now);
        for hole in self.holes.iter_mut().filter(|hole| due(hole)) {
            if hole.asks >= most {
                hole.due = None;
                shared.stats.given_up += 1;
            } else {
                shared.stats.repeated += 1;
            }
        }
        self.send_snack(now, connection, shared, due);
        self.replay(waited, shared);
        self.retry(now, shared);
    }

    /// The local timer may have expired: what the mobile host misses is sent again, if it is to be
    /// had here and not from the base.
    fn retry(&mut self, now: Time, shared: &mut Shared<P>) {
        let waits = self.waits();
        let Some(retry) = &mut self.retry else { return };
        let una = self.stretch.una.or_else(|| self.cache.front().map(|kept| kept.seq));
        match una.filter(|una| self.cache.covering(*una).is_some()) {
            Some(una) if retry.expire(now) => {
                shared.stats.timeouts += 1;
                self.resend(una, shared);
            }
            Some(_) => {}
            None => retry.skip(now, waits),
        }
    }
}
