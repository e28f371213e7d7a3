//! Which datagrams arrived, and what to acknowledge when.

use core::time::Duration;

use lasthop_units::Time;
use lasthop_wire::frame::{Ack, Frame, MAX_ACK_SPAN, Writer};

/// Numbers remembered behind the latest.
const WINDOW: u64 = 32 * 1024;
/// Each number is reported by at least this many acknowledgements, so that losing some costs nothing,
const REPEATS: usize = 8;
/// and as long as the sender has not settled it and it is among so many. A hop's losses come in
/// bursts, and a burst of lost acknowledgements must not distort what the sender measures.
const USUAL_SPAN: u64 = 4096;
/// Datagrams that ask for an acknowledgement before one is sent at once.
const EAGER: u32 = 2;
/// Longest that an acknowledgement is held back.
const DELAY_MAX: Duration = Duration::from_millis(5);
/// On a fast hop acknowledgements are this far apart, or a 32nd of the round trip if that is less.
const SPACING_MAX: Duration = Duration::from_millis(1);
/// When so many datagrams have come without a pause, nobody waits for one of them: acknowledgements are
/// this far apart, or a 16th of the round trip, and held back for as long as this, or a quarter. The sender
/// says which datagram is the last for now.
const BULK: u32 = 100;
const BULK_SPACING_MAX: Duration = Duration::from_millis(4);
const BULK_DELAY_MAX: Duration = Duration::from_millis(15);

/// The receiver's memory of datagram numbers, and its acknowledgements (SRP-3, SRP-8).
#[derive(Debug)]
pub(super) struct Received {
    bits: alloc::boxed::Box<[u64]>,
    latest: u64,
    latest_at: Time,
    floor: u64,
    /// The latest number at each of the last acknowledgements.
    reported: [u64; REPEATS],
    turn: usize,
    pending: u32,
    /// Datagrams that asked for an acknowledgement since the last pause.
    since_pause: u32,
    due: Option<Time>,
    last_ack: Time,
    /// A gap opened.
    gap: bool,
    /// The sender asks for an answer at once.
    urged: bool,
    /// So many acknowledgements are to report everything that the sender has not settled.
    wide: u32,
}

impl Received {
    pub(super) fn new() -> Self {
        Self {
            bits: alloc::vec![0; (WINDOW / 64) as usize].into_boxed_slice(),
            latest: 0,
            latest_at: Time::ZERO,
            floor: 1,
            reported: [0; REPEATS],
            turn: 0,
            pending: 0,
            since_pause: 0,
            due: None,
            last_ack: Time::ZERO,
            gap: false,
            urged: false,
            wide: 0,
        }
    }

    fn has(&self, number: u64) -> bool {
        let bit = number % WINDOW;
        self.bits[(bit / 64) as usize] & (1 << (bit % 64)) != 0
    }

    fn mark(&mut self, number: u64, arrived: bool) {
        let bit = number % WINDOW;
        let word = &mut self.bits[(bit / 64) as usize];
        if arrived {
            *word |= 1 << (bit % 64);
        } else {
            *word &= !(1 << (bit % 64));
        }
    }

    /// Whether `number` has arrived before, or is too old to know.
    pub(super) fn is_known(&self, number: u64) -> bool {
        number + WINDOW <= self.latest || (number <= self.latest && self.has(number))
    }

    /// A datagram arrived that had not before.
    pub(super) fn on_datagram(&mut self, now: Time, number: u64) {
        if number > self.latest {
            let skipped = (number - self.latest - 1).min(WINDOW - 1);
            for lost in number - skipped..number {
                self.mark(lost, false);
            }
            self.gap |= skipped > 0;
            if skipped > 0 && now.since(self.latest_at) > 4 * DELAY_MAX {
                // The end of a silence, which most likely swallowed acknowledgements too.
                self.wide = 2;
            }
            self.latest = number;
            self.latest_at = now;
        }
        self.mark(number, true);
    }

    /// The datagram just taken in elicits an acknowledgement.
    pub(super) fn on_eliciting(&mut self, now: Time, srtt: Duration) {
        self.pending += 1;
        // The first after a pause is a request or its answer: somebody waits for it.
        let after_pause = now.since(self.last_ack) > 4 * DELAY_MAX;
        self.since_pause = if after_pause { 0 } else { self.since_pause.saturating_add(1) };
        let (spacing, delay) = if self.since_pause < BULK {
            ((srtt / 32).min(SPACING_MAX), (srtt / 8).min(DELAY_MAX))
        } else {
            ((srtt / 16).min(BULK_SPACING_MAX), (srtt / 4).min(BULK_DELAY_MAX))
        };
        let due = if self.urged || after_pause {
            now
        } else if self.pending >= EAGER || self.gap {
            now.max(self.last_ack + spacing)
        } else {
            now + delay
        };
        self.due = Some(self.due.map_or(due, |t| t.min(due)));
    }

    /// As [`on_eliciting`](Self::on_eliciting), where one in `every` segments is answered, or after
    /// `delay`, and one out of sequence at once (SRP-3, SRP-8).
    pub(super) fn on_segment(&mut self, now: Time, every: u32, delay: Duration) {
        self.pending += 1;
        let at_once = self.urged || self.gap || self.pending >= every;
        let due = if at_once { now } else { now + delay };
        self.due = Some(self.due.map_or(due, |t| t.min(due)));
    }

    /// The sender has nothing more to send for now, or probes.
    pub(super) fn urge(&mut self) {
        self.urged = true;
    }

    pub(super) fn on_floor(&mut self, floor: u64) {
        self.floor = self.floor.max(floor.min(self.latest + 1));
    }

    /// When an acknowledgement must leave.
    pub(super) fn due(&self) -> Option<Time> {
        self.due
    }

    /// Something arrived that was not yet acknowledged.
    pub(super) fn is_pending(&self) -> bool {
        self.pending > 0
    }

    /// Writes an acknowledgement, as wide as fits.
    pub(super) fn write_ack(&mut self, now: Time, w: &mut Writer<'_>) -> bool {
        if self.latest == 0 {
            return false;
        }
        let room_bits = (w.room().saturating_sub(40) as u64 * 8).min(MAX_ACK_SPAN - 16);
        let widest = self.latest.saturating_sub(room_bits.min(WINDOW - 1)).max(1);
        // Now and then everything that the sender has not settled is reported again, in case a silence
        // swallowed more acknowledgements than numbers are repeated in.
        let all = self.wide > 0 || self.turn.is_multiple_of(REPEATS);
        self.wide = self.wide.saturating_sub(1);
        let repeated = self.reported[self.turn % REPEATS];
        let usual = if all { 0 } else { repeated.min(self.latest.saturating_sub(USUAL_SPAN)) };
        let first = self.floor.max(usual).max(widest).min(self.latest);
        let in_sequence = self.run_from(first);
        let mut map = [0u8; (MAX_ACK_SPAN / 8) as usize];
        let len = Ack::bitmap_len(self.latest, in_sequence);
        for n in in_sequence + 2..self.latest {
            if !self.has(n) {
                let bit = n - in_sequence - 2;
                map[(bit / 8) as usize] |= 1 << (bit % 8);
            }
        }
        let held = now.since(self.latest_at).as_micros() as u64;
        let arrival = self.latest_at.as_micros() as u32;
        let ack = Ack::new(self.latest, arrival, held, (first, in_sequence), &map[..len]);
        if !w.put(&Frame::Ack(ack)) {
            return false;
        }
        self.reported[self.turn % REPEATS] = self.latest;
        self.turn = self.turn.wrapping_add(1);
        self.pending = 0;
        self.due = None;
        self.gap = false;
        self.urged = false;
        self.last_ack = now;
        true
    }

    /// The end of the unbroken run of arrivals that starts at `first`; `first - 1` if there is none.
    fn run_from(&self, first: u64) -> u64 {
        let mut n = first;
        while n <= self.latest && self.has(n) {
            n += 1;
        }
        n - 1
    }
}

#[cfg(test)]
mod tests {
    use lasthop_wire::frame::Frames;

    use super::*;

    const SRTT: Duration = Duration::from_millis(40);

    fn ack_of(r: &mut Received, check: impl Fn(Ack<'_>)) {
        let mut buf = [0; 1400];
        let mut w = Writer::new(&mut buf);
        assert!(r.write_ack(Time::from_secs(1), &mut w));
        let len = w.len();
        match Frames::new(&buf[..len]).next() {
            Some(Ok(Frame::Ack(a))) => check(a),
            other => panic!("{other:?}"),
        }
    }

    /// SRP-3: a gap is reported at once, with a bitmap of what is missing.
    #[test]
    fn a_gap_is_reported_at_once() {
        let mut r = Received::new();
        let t = Time::from_secs(1);
        r.on_datagram(t, 1);
        r.on_eliciting(t, SRTT);
        ack_of(&mut r, |a| assert_eq!((a.first, a.in_sequence, a.latest), (1, 1, 1)));
        assert_eq!(r.due(), None);
        for n in [4, 6] {
            r.on_datagram(t, n);
        }
        r.on_eliciting(t, SRTT);
        assert_eq!(r.due(), Some(t + SPACING_MAX));
        ack_of(&mut r, |a| {
            let got: alloc::vec::Vec<_> = (1..=6).filter(|n| a.received(*n)).collect();
            assert_eq!(got, [1, 4, 6]);
        });
    }

    #[test]
    fn many_in_a_row_are_acknowledged_less_often() {
        let gap = Duration::from_micros(600);
        let mut r = Received::new();
        let mut acks = |numbers: core::ops::Range<u64>, from: Time| {
            let mut acks = 0;
            for n in numbers {
                let now = from + gap * n as u32;
                r.on_datagram(now, n);
                r.on_eliciting(now, SRTT);
                if r.due().is_some_and(|due| due <= now) {
                    r.write_ack(now, &mut Writer::new(&mut [0; 1400]));
                    acks += 1;
                }
            }
            acks
        };
        assert_eq!(acks(1..100, Time::from_secs(1)), 50);
        assert_eq!(acks(100..600, Time::from_secs(1)), 100);
        // After a pause somebody waits again.
        assert_eq!(acks(600..700, Time::from_secs(3)), 50);
    }

    #[test]
    fn numbers_are_reported_several_times_and_then_no_more() {
        let mut r = Received::new();
        let mut reports_of_20 = 0;
        for n in 1..=40 {
            r.on_datagram(Time::ZERO, n);
            r.on_floor(n.saturating_sub(12));
            let reported = core::cell::Cell::new(false);
            ack_of(&mut r, |a| reported.set(a.first <= 20 && a.latest >= 20));
            reports_of_20 += u32::from(reported.get());
        }
        // The floor passes 20 when 32 arrives.
        assert_eq!(reports_of_20, 13);
        assert!(r.is_known(40) && !r.is_known(41));
    }

    /// SRP-6: the bitmap has a bound, and what is beyond it is left for other acknowledgements.
    #[test]
    fn the_bitmap_is_bounded_however_wide_the_gap() {
        let mut r = Received::new();
        r.on_datagram(Time::ZERO, 1);
        r.on_datagram(Time::ZERO, 20_000);
        ack_of(&mut r, |a| {
            assert!(a.latest - a.first <= MAX_ACK_SPAN && a.encoded_len() <= 1400);
            assert!((a.first..20_000).all(|n| !a.received(n)));
        });
    }

    #[test]
    fn what_was_skipped_long_ago_is_not_taken_for_arrived() {
        let mut r = Received::new();
        for n in 1..=10 {
            r.on_datagram(Time::ZERO, n);
        }
        r.on_datagram(Time::ZERO, WINDOW + 12);
        ack_of(&mut r, |a| assert!((a.first..a.latest).all(|n| !a.received(n))));
    }
}
