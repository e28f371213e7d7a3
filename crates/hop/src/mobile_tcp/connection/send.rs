//! The sending half: what was written and not acknowledged, and what of it is to be repeated.

use core::ops::Range;

use lasthop_stream::Ring;
use lasthop_units::Time;
use lasthop_wire::mobile_tcp::{MAX_WINDOW, Seq16};

/// A piece of the stream for one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    pub(super) offset: u64,
    pub(super) len: usize,
    pub(super) fin: bool,
    /// It was sent before.
    pub(super) again: bool,
}

/// What an acknowledgement did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AckOutcome {
    /// It is older than another one that came, or of what was never sent.
    Nothing,
    /// The number did not move.
    Repeated,
    /// The number moved.
    Advanced,
    /// It acknowledges what was never sent.
    Impossible,
}

/// A retransmission request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RetransmitRequest {
    /// The first number held above the gap (MOB-26).
    pub(super) held: Seq16,
    /// The cycle that the receiver saw last (MOB-29).
    pub(super) cycle: bool,
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RequestOutcome {
    /// The gap is resent.
    Handled,
    /// What it asks for is on its way already.
    Ignored,
    /// It asks for what cannot be asked for.
    Impossible,
}

/// Bytes written and not acknowledged. Offsets count from the stream's first byte; the end counts
/// as one behind the last.
#[derive(Debug)]
pub(super) struct SendHalf {
    ring: Ring,
    capacity: u64,
    max_packet: u64,
    /// The sequence number of offset 0.
    zero: Seq16,
    /// Everything before is acknowledged.
    acked: u64,
    /// Everything before was sent.
    sent: u64,
    written: u64,
    /// The application has ended the stream at `written`.
    finished: bool,
    /// The end of the peer's window.
    edge: u64,
    /// What may be on its way, if connections divide their windows.
    share: u64,
    /// What is to be sent again.
    again: Range<u64>,
    /// The present retransmission cycle (MOB-28).
    cycle: bool,
    /// The end of the gap that was resent last (MOB-27).
    resent: u64,
    /// The first offset that the peer holds above the gap at `acked`, as far as it has acknowledged.
    held: Option<u64>,
    /// The end of the packet that is timed, and when it left.
    timed: Option<(u64, Time)>,
}

impl SendHalf {
    pub(super) fn new(capacity: u64, max_packet: u16) -> Self {
        let mut ring = Ring::default();
        ring.reserve(capacity);
        Self {
            ring,
            capacity,
            max_packet: u64::from(max_packet),
            zero: Seq16(0),
            acked: 0,
            sent: 0,
            written: 0,
            finished: false,
            edge: 0,
            share: u64::MAX,
            again: 0..0,
            cycle: false,
            resent: 0,
            held: None,
            timed: None,
        }
    }

    /// The first byte behind the `head` bytes that went with the opening has the number `seq`; the
    /// peer takes `window` bytes, and `max_packet` in one packet.
    pub(super) fn begin(&mut self, seq: Seq16, head: u64, window: u16, max_packet: u16) {
        let head = head.min(self.written);
        self.zero = seq - head as u16;
        self.ring.advance(head);
        (self.acked, self.sent, self.resent) = (head, head, head);
        self.edge = head + u64::from(window.min(MAX_WINDOW));
        self.max_packet = self.max_packet.min(u64::from(max_packet)).max(1);
    }

    pub(super) fn number(&self, offset: u64) -> Seq16 {
        self.zero + offset as u16
    }

    /// The offset that `seq` means, if it is one from `acked` to what was sent.
    fn outstanding(&self, seq: Seq16) -> Option<u64> {
        let ahead = u64::from(seq.since(self.number(self.acked)));
        (ahead <= self.sent - self.acked).then_some(self.acked + ahead)
    }

    pub(super) fn room(&self) -> usize {
        (self.capacity - (self.written - self.ring.start())) as usize
    }

    pub(super) fn space(&mut self) -> &mut [u8] {
        let room = if self.finished { 0 } else { self.room() };
        self.ring.contiguous_mut(self.written, room)
    }

    pub(super) fn commit(&mut self, n: usize) {
        let room = if self.finished { 0 } else { self.room() };
        self.written += n.min(room) as u64;
    }

    pub(super) fn finish(&mut self) {
        self.finished = true;
    }

    pub(super) fn is_finished(&self) -> bool {
        self.finished
    }

    /// The peer has acknowledged everything, and the end.
    pub(super) fn is_done(&self) -> bool {
        self.finished && self.acked > self.written
    }

    /// If nothing but our end is not acknowledged, it is taken as if it were.
    pub(super) fn conclude(&mut self) -> bool {
        if self.finished && self.acked == self.written && self.sent > self.written {
            (self.acked, self.again) = (self.sent, 0..0);
        }
        self.is_done()
    }

    /// Sent and not acknowledged.
    pub(super) fn inflight(&self) -> u64 {
        self.sent - self.acked
    }

    /// Everything before was sent.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// Whether a packet that ended before the number `end` may have been one of ours.
    pub(super) fn may_have_sent(&self, end: Seq16) -> bool {
        self.outstanding(end).is_some()
    }

    pub(super) fn cycle(&self) -> bool {
        self.cycle
    }

    /// Something is there that the window keeps back, and nothing on its way would open it.
    pub(super) fn is_stuck(&self) -> bool {
        self.inflight() == 0 && self.written > self.sent && self.edge <= self.sent
    }

    /// The next piece to send: what is to be repeated first, then what is new, of which `allowed`
    /// bytes may go.
    pub(super) fn next_piece(&mut self, room: u64, allowed: u64, nagle: bool) -> Option<Segment> {
        let most = self.max_packet.min(room);
        if self.is_repeating() {
            return self.next_again(most);
        }
        let waiting = self.written - self.sent.min(self.written);
        let len = waiting.min(self.window_left()).min(most).min(allowed);
        let fin = self.finished && self.sent + len == self.written;
        if !self.is_worth_sending(len, waiting, most, nagle) && !fin {
            return None;
        }
        let piece = Segment { offset: self.sent, len: len as usize, fin, again: false };
        self.sent += len + u64::from(fin);
        (piece.len > 0 || fin).then_some(piece)
    }

    /// What the peer's window and our share let go.
    fn window_left(&self) -> u64 {
        self.edge.min(self.acked.saturating_add(self.share)).saturating_sub(self.sent)
    }

    /// No more than `share` bytes are to be on their way from here on.
    pub(super) fn set_share(&mut self, share: u64) {
        self.share = share;
    }

    /// No packet is sent that is small without need (RFC 1122 section 4.2.3.4).
    fn is_worth_sending(&self, len: u64, waiting: u64, most: u64, nagle: bool) -> bool {
        if len == 0 || len == most || self.inflight() == 0 {
            return len > 0;
        }
        len == waiting && !nagle
    }

    fn next_again(&mut self, most: u64) -> Option<Segment> {
        let offset = self.again.start;
        let end = self.again.end.min(self.written);
        let len = end.saturating_sub(offset).min(most);
        let fin = self.again.end > self.written && offset + len == self.written;
        if len == 0 && !fin {
            return None;
        }
        self.again.start = offset + len + u64::from(fin);
        self.timed = None;
        Some(Segment { offset, len: len as usize, fin, again: true })
    }

    /// Something is to be sent again.
    pub(super) fn is_repeating(&self) -> bool {
        self.again.start < self.again.end
    }

    /// Something could be sent, if as much as one likes is allowed.
    pub(super) fn wants_to_send(&self, nagle: bool) -> bool {
        if self.is_repeating() {
            return true;
        }
        let waiting = self.written - self.sent.min(self.written);
        let len = waiting.min(self.window_left()).min(self.max_packet);
        let fin = self.finished && self.sent <= self.written && len == waiting;
        fin || self.is_worth_sending(len, waiting, self.max_packet, nagle)
    }

    /// Begins to time a packet that was just sent, unless another one is.
    pub(super) fn time(&mut self, piece: Segment, now: Time) {
        if self.timed.is_none() && !piece.again {
            self.timed = Some((piece.offset + piece.len as u64, now));
        }
    }

    pub(super) fn bytes(&self, piece: Segment) -> (&[u8], &[u8]) {
        self.ring.slices(piece.offset..piece.offset + piece.len as u64)
    }

    /// Takes in an acknowledgement and its window; what it did, and when the packet left that it
    /// times.
    pub(super) fn on_ack(&mut self, ack: Seq16, window: u16) -> (AckOutcome, Option<Time>) {
        let Some(offset) = self.outstanding(ack) else {
            let old = ack.is_before(self.number(self.acked));
            return (if old { AckOutcome::Nothing } else { AckOutcome::Impossible }, None);
        };
        self.edge = self.edge.max(offset + u64::from(window));
        if offset == self.acked {
            return (AckOutcome::Repeated, None);
        }
        self.acked = offset;
        self.ring.advance(offset.min(self.written));
        self.again.start = self.again.start.max(offset);
        self.held = self.held.filter(|held| *held > offset);
        let timed = self.timed.filter(|(end, _)| *end <= offset);
        if timed.is_some() {
            self.timed = None;
        }
        (AckOutcome::Advanced, timed.map(|(_, at)| at))
    }

    /// Takes in a request that came with an acknowledgement just taken in (MOB-24, MOB-30).
    pub(super) fn on_request(
        &mut self,
        acked: AckOutcome,
        request: RetransmitRequest,
    ) -> RequestOutcome {
        let held = match self.outstanding(request.held) {
            Some(held) if held > self.acked && held < self.sent => held,
            _ => return RequestOutcome::Impossible,
        };
        self.held = Some(held);
        // MOB-27: the refill that an advancing number shows is followed by the rest.
        let refilling = acked == AckOutcome::Advanced && self.acked < self.resent;
        if request.cycle != self.cycle || refilling {
            return RequestOutcome::Ignored;
        }
        self.cycle = !self.cycle;
        self.again = self.acked..held;
        self.resent = held;
        RequestOutcome::Handled
    }

    /// The timer expired: everything that the peer is not known to hold goes again, under the same
    /// cycle (MOB-32) and through the same window (MOB-36). Of what lies above a gap that the peer
    /// has reported, it is known that the first of it arrived; its own request will show the rest.
    pub(super) fn on_expiry(&mut self) {
        let end = self.held.unwrap_or(self.sent);
        self.again = self.acked..end;
        self.resent = self.resent.max(end);
        self.timed = None;
    }

    /// Offset of the first byte not acknowledged, and all from there.
    pub(super) fn unacknowledged(&self) -> (u64, (&[u8], &[u8])) {
        let start = self.ring.start();
        (start, self.ring.slices(start..self.written))
    }

    /// Offset behind the last byte written.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Nothing will be sent any more.
    pub(super) fn release(&mut self) {
        self.ring.advance(self.written);
        self.ring.release();
        (self.capacity, self.again) = (0, 0..0);
    }

    pub(super) fn memory(&self) -> usize {
        self.ring.capacity()
    }
}
