//! The sending half of a stream.

use alloc::vec::Vec;

use lasthop_wire::varint;

use lasthop_stream::{RangeSet, Ring};

use super::blocked::Blocked;
use crate::srp::content::Piece;

/// Every stream may buffer so much, however scarce memory is.
const ROOM_MIN: u64 = 4096;
/// A buffer of which less than one of so many parts is used is given back where memory is scarce.
const SPARSE: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fin {
    /// The application may still write.
    Open,
    /// The application has ended the stream; the end is to be sent, or sent again.
    Wanted,
    Sent,
    Acked,
}

/// How a reset of ours stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ResetState {
    Wanted,
    Sent,
    Acked,
}

/// Bytes from the application that the peer has not yet acknowledged, or does not have for good.
#[derive(Debug)]
pub(super) struct SendHalf {
    ring: Ring,
    /// Everything before was acknowledged (RFC 9293 section 3.3.1, "SND.UNA").
    una: u64,
    /// What was acknowledged beyond.
    acked: RangeSet,
    /// Where what is acknowledged is kept until the peer releases it (SRP-48): it has released everything before, the end as
    /// one byte more.
    released: Option<u64>,
    /// Bytes that were sent and lost (SRP-4).
    lost: RangeSet,
    /// Bytes that are on their way by two paths: where one loses them, nothing is lost yet.
    twice: RangeSet,
    /// Everything before was sent at least once.
    sent: u64,
    /// What the application has written.
    written: u64,
    /// The peer's credit.
    limit: u64,
    /// How far beyond the last byte in sequence at the peer may be sent.
    span: u64,
    fin: Fin,
    /// Our reset, with the session's code.
    pub(super) reset: Option<(ResetState, u64)>,
    pub(super) blocked: Blocked,
    /// The application met a full buffer and waits for room.
    pub(super) wants_room: bool,
    /// How much waited to be sent when it last met one.
    met_full: u64,
}

impl SendHalf {
    pub(super) fn new(limit: u64, span: u64) -> Self {
        Self {
            ring: Ring::default(),
            una: 0,
            acked: RangeSet::default(),
            released: None,
            lost: RangeSet::default(),
            twice: RangeSet::default(),
            sent: 0,
            written: 0,
            limit,
            span,
            fin: Fin::Open,
            reset: None,
            blocked: Blocked::default(),
            wants_room: false,
            met_full: 0,
        }
    }

    /// Bytes written and not yet sent.
    pub(super) fn unsent(&self) -> u64 {
        self.written - self.sent
    }

    /// Bytes that the peer still takes.
    pub(super) fn credit(&self) -> u64 {
        self.limit - self.sent
    }

    /// Bytes kept until they are acknowledged, or released.
    pub(super) fn buffered(&self) -> u64 {
        self.written - self.ring.start()
    }

    /// How far the stream has been sent: what it takes of the credit of all streams.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    pub(super) fn is_open(&self) -> bool {
        self.fin == Fin::Open && self.reset.is_none()
    }

    /// The peer has acknowledged everything, and released it where that is awaited, or has acknowledged our reset.
    pub(super) fn is_done(&self) -> bool {
        match self.reset {
            Some((state, _)) => state == ResetState::Acked,
            None => self.is_acknowledged() && self.released.is_none_or(|r| r > self.written),
        }
    }

    /// The peer has acknowledged everything and our end.
    fn is_acknowledged(&self) -> bool {
        self.fin == Fin::Acked && self.una == self.written
    }

    /// How much more may be written, if the buffer may have a capacity of `allowed` bytes.
    pub(super) fn room_within(&self, allowed: u64) -> u64 {
        let capacity = allowed.max(ROOM_MIN).max(self.ring.capacity() as u64);
        capacity - self.buffered().min(capacity)
    }

    /// Makes room for `most` more bytes or some of them. The buffer doubles as it proves too small, up
    /// to a capacity of `allowed` bytes.
    pub(super) fn reserve(&mut self, most: usize, allowed: u64) {
        let capacity = self.ring.capacity();
        let free = capacity - self.buffered() as usize;
        let most = most.min((varint::MAX - self.written) as usize);
        if free >= most || free > capacity / 2 {
            return;
        }
        let need = self.buffered() + most.min(capacity.max(1)) as u64;
        if Ring::ample(need) as u64 <= allowed {
            self.ring.reserve(self.ring.start() + need);
        } else if self.buffered() < ROOM_MIN {
            self.ring.reserve_tightly(self.ring.start() + ROOM_MIN);
        }
    }

    /// At most `most` bytes of the room that there is, contiguous.
    pub(super) fn space(&mut self, most: usize) -> &mut [u8] {
        let most = most.min((varint::MAX - self.written) as usize);
        let free = self.ring.capacity() - self.buffered() as usize;
        self.ring.contiguous_mut(self.written, most.min(free))
    }

    /// Gives back a buffer of which little is used.
    pub(super) fn tighten(&mut self) {
        if Ring::tight(self.buffered()) < self.ring.capacity() / SPARSE {
            self.ring.shrink(self.written);
        }
    }

    pub(super) fn commit(&mut self, n: usize) {
        self.written += n as u64;
    }

    pub(super) fn finish(&mut self) {
        if self.fin == Fin::Open {
            self.fin = Fin::Wanted;
        }
    }

    /// Nothing more is sent but the reset.
    pub(super) fn abort(&mut self, code: u64) {
        if self.reset.is_none() {
            self.reset = Some((ResetState::Wanted, code));
        }
        self.lost.clear();
        self.twice.clear();
        self.acked.clear();
        self.released = None;
        (self.written, self.una) = (self.sent, self.sent);
        self.ring.advance(self.sent);
        self.ring.release();
    }

    pub(super) fn raise_limit(&mut self, limit: u64) -> bool {
        let raised = limit > self.limit;
        self.limit = self.limit.max(limit);
        raised
    }

    /// The end of what may be sent: credit and window.
    fn edge(&self) -> u64 {
        self.limit.min(self.una.saturating_add(self.span))
    }

    /// A window bounds how far beyond the last byte in sequence may be sent.
    pub(super) fn is_windowed(&self) -> bool {
        self.span != u64::MAX
    }

    /// The peer is to be told that there is more to send than its credit of `ahead` more bytes allows.
    pub(super) fn take_blocked(&mut self, ahead: u64) -> bool {
        let more = self.written > self.sent && self.reset.is_none();
        more && self.blocked.take(self.sent, self.limit, ahead)
    }

    /// Bytes that are to be sent again.
    pub(super) fn lost(&self) -> u64 {
        self.lost.iter().map(|range| range.end - range.start).sum()
    }

    pub(super) fn has_lost(&self) -> bool {
        self.reset.is_none() && !self.lost.is_empty()
    }

    /// Something is there that may be sent now, given `credit` for all streams.
    pub(super) fn wants_to_send(&self, credit: u64) -> bool {
        if self.reset.is_some() {
            return false;
        }
        self.has_new(credit)
            || !self.lost.is_empty()
            || (self.fin == Fin::Wanted && self.sent == self.written)
    }

    /// Something is there that was never sent, and may be sent now.
    pub(super) fn has_new(&self, credit: u64) -> bool {
        self.reset.is_none() && self.sent < self.written.min(self.edge()) && credit > 0
    }

    /// The next piece to send, at most `room` bytes of data: what was lost first, then what is new
    /// within `credit`.
    pub(super) fn next_piece(&mut self, room: usize, credit: u64) -> Option<Piece> {
        if self.reset.is_some() {
            return None;
        }
        if let Some(lost) = self.lost.first() {
            if room == 0 {
                return None;
            }
            let end = lost.end.min(lost.start + room as u64);
            self.lost.remove(lost.start..end);
            return Some(self.piece(lost.start, end));
        }
        self.next_new_piece(room, credit)
    }

    /// The next piece of what is new, likewise.
    pub(super) fn next_new_piece(&mut self, room: usize, credit: u64) -> Option<Piece> {
        if self.reset.is_some() {
            return None;
        }
        let most = (room as u64).min(credit);
        let end = self.written.min(self.edge()).min(self.sent + most);
        let fin_alone = self.fin == Fin::Wanted && self.sent == self.written;
        if end <= self.sent && !fin_alone {
            return None;
        }
        let start = self.sent;
        self.sent = end.max(start);
        Some(self.piece(start, self.sent))
    }

    fn piece(&mut self, start: u64, end: u64) -> Piece {
        let fin = matches!(self.fin, Fin::Wanted | Fin::Sent) && end == self.written;
        if fin {
            self.fin = Fin::Sent;
        }
        Piece { offset: start, len: (end - start) as usize, fin }
    }

    /// The oldest bytes from offset `from` on that the peer is not known to have, for a probe: at
    /// most `room` of what was sent before.
    pub(super) fn oldest(&self, from: u64, room: usize) -> Option<Piece> {
        if self.reset.is_some() {
            return None;
        }
        let start = self.una.max(from);
        let hole = self.acked.missing_in(start..self.sent).next();
        match hole {
            Some(hole) if room > 0 => {
                let end = hole.end.min(hole.start + room as u64);
                let fin = self.fin == Fin::Sent && end == self.written;
                Some(Piece { offset: hole.start, len: (end - hole.start) as usize, fin })
            }
            None if self.fin == Fin::Sent => Some(Piece { offset: self.sent, len: 0, fin: true }),
            _ => None,
        }
    }

    /// The bytes of a piece.
    pub(super) fn bytes(&self, piece: &Piece) -> (&[u8], &[u8]) {
        self.ring.slices(piece.offset..piece.offset + piece.len as u64)
    }

    /// The peer has a piece.
    pub(super) fn on_acked(&mut self, piece: Piece) {
        if self.reset.is_some() {
            return;
        }
        if piece.fin {
            self.fin = Fin::Acked;
        }
        let end = piece.offset + piece.len as u64;
        let start = piece.offset.max(self.una);
        if start >= end {
            return;
        }
        if !self.lost.is_empty() {
            self.lost.remove(start..end);
        }
        if !self.twice.is_empty() {
            self.twice.remove(start..end);
        }
        self.acked.insert(start..end);
        if let Some(contiguous) = self.acked.take_prefix(self.una) {
            self.una = contiguous;
            self.let_go();
        }
    }

    /// What comes before an offset, the end being one byte more, need not be kept; what comes behind it is from here on,
    /// until the peer has released it.
    pub(super) fn on_released(&mut self, offset: u64) {
        if self.reset.is_none() {
            self.released = self.released.max(Some(offset));
            self.let_go();
        }
    }

    /// Drops what need not be kept.
    fn let_go(&mut self) {
        let end = self.released.map_or(self.una, |released| released.min(self.una));
        self.ring.advance(end.max(self.ring.start()));
        self.give_back();
    }

    /// The application met a full buffer.
    pub(super) fn on_full(&mut self) {
        self.wants_room = true;
        self.met_full = self.unsent();
    }

    /// The application is expected to go on: it has more than there is room for, or had when the buffer was last full, and
    /// at least half of what waited then waits now.
    pub(super) fn presses(&self) -> bool {
        let keeps_up = self.met_full > 0 && self.unsent() >= self.met_full / 2;
        self.wants_room || (keeps_up && self.fin == Fin::Open)
    }

    /// Gives back an empty buffer that is not worth keeping.
    pub(super) fn give_back(&mut self) {
        if self.buffered() == 0 {
            self.ring.rewind();
            if self.fin != Fin::Open || self.ring.is_idle_waste() {
                self.ring.release();
            }
        }
    }

    /// A piece was lost; what of it the peer has by another transmission is not sent again.
    pub(super) fn on_lost(&mut self, piece: Piece) {
        if self.reset.is_some() {
            return;
        }
        if piece.fin && self.fin == Fin::Sent {
            self.fin = Fin::Wanted;
        }
        let start = piece.offset.max(self.una);
        let end = piece.offset + piece.len as u64;
        if start >= end {
            return;
        }
        let Self { acked, lost, twice, .. } = self;
        for hole in acked.missing_in(start..end) {
            for hole in twice.missing_in(hole) {
                lost.insert(hole);
            }
        }
        if !twice.is_empty() {
            twice.remove(start..end);
        }
    }

    /// A piece that is on its way goes by another path too.
    pub(super) fn on_sent_twice(&mut self, piece: &Piece) {
        let start = piece.offset.max(self.una);
        let end = piece.offset + piece.len as u64;
        if start < end && self.reset.is_none() {
            self.twice.insert(start..end);
        }
    }

    /// The offset of the first byte that the peer has not acknowledged in order, and what it has
    /// acknowledged beyond.
    pub(super) fn acknowledged(&self) -> (u64, &RangeSet) {
        (self.una, &self.acked)
    }

    /// So much the peer has acknowledged in order, its end as one byte more.
    pub(super) fn acknowledged_with_end(&self) -> u64 {
        self.una + u64::from(self.is_acknowledged())
    }

    /// The offset of the first byte that is kept, and all from there.
    pub(super) fn kept(&self) -> (u64, Vec<u8>) {
        let start = self.ring.start();
        let (head, tail) = self.ring.slices(start..self.written);
        (start, [head, tail].concat())
    }

    /// Our reset was lost: it must be sent again.
    pub(super) fn on_reset_lost(&mut self) -> bool {
        match &mut self.reset {
            Some((state @ ResetState::Sent, _)) => {
                *state = ResetState::Wanted;
                true
            }
            _ => false,
        }
    }

    pub(super) fn on_reset_acked(&mut self) {
        if let Some((state, _)) = &mut self.reset {
            *state = ResetState::Acked;
        }
    }

    /// Memory held.
    pub(super) fn memory(&self) -> usize {
        self.ring.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(n: usize) -> SendHalf {
        let mut s = SendHalf::new(1 << 20, u64::MAX);
        for i in 0..n {
            s.reserve(1, u64::MAX);
            s.space(1)[0] = i as u8;
            s.commit(1);
        }
        s
    }

    #[test]
    fn lost_bytes_go_before_new_ones() {
        let mut s = filled(100);
        let first = s.next_piece(10, 1000).unwrap();
        let second = s.next_piece(10, 1000).unwrap();
        s.on_acked(second);
        s.on_lost(first);
        assert_eq!(s.next_piece(4, 1000), Some(Piece { offset: 0, len: 4, fin: false }));
        assert_eq!(s.next_piece(10, 1000), Some(Piece { offset: 4, len: 6, fin: false }));
        assert_eq!(s.next_piece(10, 1000).map(|p| p.offset), Some(20));
    }

    /// SRP-48: what the peer has acknowledged is there until it is released, and the stream is not over before its end is.
    #[test]
    fn what_is_acknowledged_is_kept_until_it_is_released() {
        let mut s = filled(30);
        let first = s.next_piece(10, 1000).unwrap();
        s.on_acked(first);
        s.on_released(0);
        s.finish();
        let rest = s.next_piece(100, 1000).unwrap();
        s.on_acked(rest);
        assert_eq!((s.acknowledged_with_end(), s.buffered(), s.is_done()), (31, 20, false));
        assert!(!s.wants_to_send(1000) && s.oldest(0, 100).is_none(), "nothing is sent again");
        assert_eq!(s.kept(), (10, (10..30).collect()));
        s.on_released(25);
        s.on_released(12);
        assert_eq!(s.kept(), (25, (25..30).collect()), "an older word changes nothing");
        s.on_released(30);
        assert_eq!((s.buffered(), s.is_done()), (0, false));
        s.on_released(31);
        assert!(s.is_done());

        let mut s = filled(20);
        s.on_released(u64::MAX);
        assert_eq!(s.kept().0, 0, "what is released is not acknowledged for that");
        let all = s.next_piece(20, 1000).unwrap();
        s.on_acked(all);
        assert_eq!(s.buffered(), 0);
    }

    #[test]
    fn what_another_transmission_brought_is_not_sent_again() {
        let mut s = filled(30);
        let p = s.next_piece(30, 1000).unwrap();
        s.on_acked(Piece { offset: 10, len: 10, fin: false });
        s.on_lost(p);
        assert_eq!(s.next_piece(30, 0).map(|p| (p.offset, p.len)), Some((0, 10)));
        assert_eq!(s.next_piece(30, 0).map(|p| (p.offset, p.len)), Some((20, 10)));
        assert_eq!(s.next_piece(30, 0), None);
    }

    #[test]
    fn the_end_travels_with_the_last_bytes_or_alone_and_again_if_lost() {
        let mut s = filled(10);
        s.finish();
        let p = s.next_piece(100, 1000).unwrap();
        assert!(p.fin && p.len == 10);
        s.on_lost(p);
        assert_eq!(s.next_piece(100, 1000), Some(p));
        s.on_acked(p);
        assert!(s.is_done());

        let mut s = filled(0);
        s.finish();
        let p = s.next_piece(0, 0).unwrap();
        assert_eq!(p, Piece { offset: 0, len: 0, fin: true });
        s.on_lost(p);
        assert!(s.wants_to_send(0));
        assert_eq!(s.next_piece(0, 0), Some(p));
    }

    /// SRP-39: what waits of it counts as more than that only while it is expected to go on.
    #[test]
    fn an_application_that_met_a_full_buffer_and_keeps_up_is_expected_to_go_on() {
        let mut s = filled(100);
        assert!(!s.presses(), "never met one");
        s.on_full();
        assert!(s.presses());
        s.wants_room = false;
        s.next_piece(50, 1000).unwrap();
        assert!(s.presses(), "half of it still waits");
        s.next_piece(1, 1000).unwrap();
        assert!(!s.presses());
        s.on_full();
        s.wants_room = false;
        assert!(s.presses());
        s.finish();
        assert!(!s.presses(), "it has ended");
    }

    #[test]
    fn credit_bounds_what_is_new_but_not_what_is_repeated() {
        let mut s = filled(100);
        s.limit = 50;
        let p = s.next_piece(1000, 40).unwrap();
        assert_eq!(p.len, 40);
        assert_eq!(s.next_piece(1000, 40).map(|p| p.len), Some(10));
        assert!(s.take_blocked(0) && !s.take_blocked(0) && s.next_piece(1000, 40).is_none());
        s.on_lost(p);
        assert_eq!(s.next_piece(1000, 0).map(|p| p.len), Some(40));
    }
}
