//! Where data leaves the hop: what has come and what is missing.

use lasthop_stream::RangeSet;
use lasthop_units::Time;
use lasthop_wire::tcp::{Segment, Seq};
use lasthop_wire::unsplit::Request;

use super::Config;
use crate::cache::SPAN;

/// Where positions begin, so that none before the first is negative.
const ORIGIN: u64 = 1 << 40;

/// How a packet crossed the hop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Crossed {
    /// RC.
    pub(super) cycle: bool,
    /// The other half sent it of its own accord.
    pub(super) repeat: bool,
}

/// One direction of one connection, at the half that takes it from the hop.
#[derive(Clone, Debug, Default)]
pub(super) struct Receiver {
    /// All before it has come; none before the first packet. Its position in the stream follows.
    expected: Option<(Seq, u64)>,
    /// What has come above it, as positions.
    above: RangeSet,
    /// RC of the last packet (MOB-29).
    cycle: bool,
    /// A request waits for a packet to ride on until then.
    waits: Option<Time>,
}

impl Receiver {
    /// The connection begins, and the first byte after the SYN is `seq`.
    pub(super) fn begin(&mut self, seq: Seq) {
        *self = Self { expected: Some((seq, ORIGIN)), ..Self::default() };
    }

    /// Something has come since the connection began.
    pub(super) fn has_data(&self) -> bool {
        self.expected.is_some_and(|(_, at)| at != ORIGIN) || !self.above.is_empty()
    }

    /// RCR.
    pub(super) const fn reply(&self) -> bool {
        self.cycle
    }

    /// When the request that waits goes by itself.
    pub(super) const fn due(&self) -> Option<Time> {
        self.waits
    }

    /// The request to put on a packet that is about to go, if one waits.
    pub(super) fn waiting(&self) -> Option<Request> {
        self.waits.and(self.request())
    }

    /// It has gone, or nobody could receive it.
    pub(super) fn request_sent(&mut self) {
        self.waits = None;
    }

    /// Data came over the hop. Whether it is to be handed on: what this half has handed on before is
    /// dropped if the other half sent it of its own accord, since nobody else asks for it.
    pub(super) fn on_data(
        &mut self,
        now: Time,
        config: &Config,
        segment: &Segment,
        crossed: Option<Crossed>,
    ) -> bool {
        if let Some(crossed) = crossed {
            self.cycle = crossed.cycle;
        }
        let repeat = crossed.is_some_and(|crossed| crossed.repeat);
        let len = segment.seq_len();
        if len == 0 || len > SPAN {
            return true;
        }
        let (expected, at) = *self.expected.get_or_insert((segment.seq, ORIGIN));
        let ahead = segment.seq.ahead_of(expected);
        if ahead.unsigned_abs() > SPAN {
            return true;
        }
        let start = at.saturating_add_signed(ahead.into());
        let end = start + u64::from(len);
        let new = end > at && self.above.missing_in(start.max(at)..end).next().is_some();
        if new {
            self.take(expected, at, start.max(at)..end, config.gaps);
        }
        // MOB-23: a packet above a gap asks at once; so does one that tells of a lost answer.
        if !self.above.is_empty() || repeat && !new {
            self.waits.get_or_insert(now + config.ride);
        }
        new || !repeat
    }

    /// The end behind this half has acknowledged: it may have got some another way.
    pub(super) fn on_own_ack(&mut self, ack: Seq) {
        let Some((expected, at)) = self.expected else { return };
        let ahead = ack.ahead_of(expected);
        if ahead > 0 && ahead.unsigned_abs() <= SPAN {
            self.take(expected, at, at..at + u64::from(ahead.unsigned_abs()), usize::MAX);
        }
    }

    fn take(&mut self, expected: Seq, at: u64, new: core::ops::Range<u64>, gaps: usize) {
        self.above.insert(new);
        if let Some(end) = self.above.take_prefix(at) {
            // No further than a segment behind what lies within a window.
            self.expected = Some((expected + (end - at) as u32, end));
        }
        if self.above.fragments() > gaps {
            let highest = self.above.iter().next_back();
            highest.into_iter().for_each(|highest| self.above.remove(highest));
        }
    }

    /// What has come and what is missing; none before the first packet.
    fn request(&self) -> Option<Request> {
        let (ack, at) = self.expected?;
        let above = self.above.first().map_or(0, |range| range.start.saturating_sub(at));
        Some(Request { ack, nis: ack + above as u32 })
    }
}

#[cfg(test)]
mod tests {
    use lasthop_units::Duration;

    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn data(seq: u32, len: u32) -> Segment {
        Segment { seq: Seq(seq), len, ..Segment::default() }
    }

    fn came(receiver: &mut Receiver, seq: u32, crossed: Crossed) -> bool {
        receiver.on_data(at(0), &Config::default(), &data(seq, 100), Some(crossed))
    }

    const FRESH: Crossed = Crossed { cycle: false, repeat: false };

    fn request(ack: u32, nis: u32) -> Option<Request> {
        Some(Request { ack: Seq(ack), nis: Seq(nis) })
    }

    /// ALT-6, MOB-26: every packet above a gap asks, and names what lies above the lowest one.
    #[test]
    fn every_packet_above_a_gap_asks_and_names_the_next_in_sequence() {
        let first = u32::MAX - 149;
        let mut receiver = Receiver::default();
        receiver.begin(Seq(first));
        assert!(came(&mut receiver, first, FRESH));
        assert_eq!(receiver.waiting(), None, "nothing is missing");
        let (hole, above, far) = (first + 100, 150, 350);
        assert!(came(&mut receiver, above, FRESH));
        assert_eq!(receiver.waiting(), request(hole, above), "the numbers wrap within the hole");
        receiver.request_sent();
        assert_eq!(receiver.waiting(), None);
        assert!(came(&mut receiver, far, FRESH));
        assert_eq!(receiver.waiting(), request(hole, above));
        receiver.request_sent();
        assert!(came(&mut receiver, hole, Crossed { cycle: true, repeat: true }));
        assert!(receiver.reply(), "MOB-29");
        assert_eq!(receiver.waiting(), request(50, 150));
    }

    /// ALT-6: a copy that was not needed is kept from the end behind, and answered.
    #[test]
    fn a_copy_of_what_has_come_goes_no_further_and_is_answered() {
        let mut receiver = Receiver::default();
        receiver.begin(Seq(0));
        assert!(came(&mut receiver, 0, FRESH));
        let copy = Crossed { repeat: true, ..FRESH };
        assert!(!came(&mut receiver, 0, copy));
        assert_eq!((receiver.due(), receiver.waiting()), (Some(at(1)), request(100, 100)));
        assert!(came(&mut receiver, 0, FRESH), "an end's own retransmission always passes");
        assert!(came(&mut receiver, 200, FRESH));
        assert!(!came(&mut receiver, 200, copy));
        assert!(came(&mut receiver, 100, copy));
    }

    #[test]
    fn what_the_end_behind_has_is_not_asked_for() {
        let mut receiver = Receiver::default();
        receiver.begin(Seq(0));
        assert!(came(&mut receiver, 200, FRESH));
        receiver.on_own_ack(Seq(200));
        assert_eq!(receiver.request(), request(300, 300));
        receiver.on_own_ack(Seq(u32::MAX / 2 + 1000));
        receiver.on_own_ack(Seq(100));
        assert_eq!(receiver.request(), request(300, 300), "neither nonsense nor old news");
    }

    #[test]
    fn gaps_are_bounded_and_the_lowest_stays() {
        let config = Config { gaps: 2, ..Config::default() };
        let mut receiver = Receiver::default();
        receiver.begin(Seq(0));
        for seq in [900, 700, 500, 300, 100] {
            receiver.on_data(at(0), &config, &data(seq, 100), None);
            assert!(receiver.above.fragments() <= 2);
            assert_eq!(receiver.request(), request(0, seq));
        }
    }

    /// ALT-7: in mid-stream the first packet tells where it goes on.
    #[test]
    fn one_that_begins_in_mid_stream_misses_nothing_before() {
        let mut receiver = Receiver::default();
        assert_eq!(receiver.request(), None);
        assert!(came(&mut receiver, 5000, FRESH));
        assert_eq!(receiver.request(), request(5100, 5100));
        assert!(came(&mut receiver, u32::MAX / 2 + 9000, FRESH), "foreign data passes");
        assert_eq!(receiver.request(), request(5100, 5100));
    }
}
