//! How far one direction of a connection has come.

use lasthop_wire::tcp::{Flags, Segment, Seq};

use crate::cache::SPAN;

const FIN_SYN: Flags = Flags::FIN.with(Flags::SYN);

/// What was sent in one direction of a connection and what was acknowledged of it, as the segments tell
/// that pass.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Progress {
    /// After the highest byte that has passed.
    seen: Option<Seq>,
    acked: Option<Acked>,
    /// Duplicates of the latest acknowledgement.
    pub(crate) duplicates: u64,
    /// The sender has sent again what is acknowledged: the acknowledgement was lost on its way, so that
    /// the same again is news to it.
    pub(crate) unheard: bool,
}

/// The latest acknowledgement.
#[derive(Clone, Copy, Debug)]
struct Acked {
    ack: Seq,
    window: u16,
}

impl Progress {
    /// Nothing is acknowledged, and what has passed ends here.
    pub(crate) fn at(seen: Option<Seq>) -> Self {
        Self { seen, ..Self::default() }
    }

    pub(crate) const fn seen(&self) -> Option<Seq> {
        self.seen
    }

    /// The number that was acknowledged last.
    pub(crate) fn acked(&self) -> Option<Seq> {
        self.acked.map(|acked| acked.ack)
    }

    /// The receiver can take nothing.
    pub(crate) fn is_closed(&self) -> bool {
        self.acked.is_some_and(|acked| acked.window == 0)
    }

    /// A segment belongs to the same stretch of the sequence space as what was seen.
    pub(crate) fn is_near(&self, segment: &Segment) -> bool {
        let near = |known: Seq| segment.seq.ahead_of(known).unsigned_abs() <= SPAN;
        self.seen.is_none_or(near) && self.acked().is_none_or(near)
    }

    /// Its first byte has passed before.
    pub(crate) fn is_again(&self, segment: &Segment) -> bool {
        self.seen.is_some_and(|seen| segment.seq.ahead_of(seen) < 0)
    }

    /// The receiver has not acknowledged all of it.
    pub(crate) fn is_new(&self, segment: &Segment) -> bool {
        self.acked.is_none_or(|acked| segment.end().ahead_of(acked.ack) > 0)
    }

    /// A segment passes.
    pub(crate) fn pass(&mut self, segment: &Segment) {
        if self.seen.is_none_or(|seen| segment.end().ahead_of(seen) > 0) {
            self.seen = Some(segment.end());
        }
    }

    /// More is acknowledged than has passed: it went another way, or it is a lie.
    pub(crate) fn is_beyond(&self, ack: Seq) -> bool {
        self.seen.is_some_and(|seen| ack.ahead_of(seen) > 0)
    }

    /// How far an acknowledgement is ahead of the latest, if there was one.
    pub(crate) fn advance(&self, ack: Seq) -> Option<i32> {
        self.acked.map(|acked| ack.ahead_of(acked.ack))
    }

    /// A segment acknowledges more than any before.
    pub(crate) fn acknowledge(&mut self, segment: &Segment) {
        self.acked = Some(Acked { ack: segment.ack, window: segment.window });
        self.duplicates = 0;
        self.unheard = false;
    }

    /// A segment acknowledges the same again; whether it says nothing else and does so because something
    /// else came (RFC 5681 section 2). Not data, an update of the window, the reply to a probe of a
    /// closed one, a reply while nothing is under way, or word that something came twice (RFC 2883).
    pub(crate) fn count_duplicate(&mut self, segment: &Segment) -> bool {
        let Some(acked) = &mut self.acked else { return false };
        let same_window = acked.window == segment.window;
        acked.window = segment.window;
        let outstanding = self.seen.is_some_and(|seen| seen.ahead_of(segment.ack) > 0);
        let says_more = segment.len > 0 || segment.flags.intersects(FIN_SYN);
        let sack = segment.options.sack.as_slice();
        let duplicate = match sack {
            _ if says_more || !outstanding || segment.window == 0 => false,
            [] => same_window,
            _ => sack.iter().any(|(start, _)| start.ahead_of(segment.ack) > 0),
        };
        self.duplicates += u64::from(duplicate);
        duplicate
    }
}
