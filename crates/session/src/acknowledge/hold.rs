//! How much of what a base's kernel has received its fixed host is acknowledged: what the mobile has, and no more.
//!
//! A base that dies then takes nothing with it that the fixed host would not send again. While the hop is silent the fixed
//! host must not run into its retransmission timeout: a reserve of bytes that the mobile has is kept unacknowledged while
//! more are on their way, and is let out a segment at a time.

use alloc::collections::VecDeque;

use lasthop_units::{Duration, Time};

/// The reserve is at most so many bytes, a part of what the mobile has (an eighth), and a part of what is on its way to it
/// (half): with more of it a sender's slow start would stand still.
const RESERVE_MAX: u64 = 64 * 1024;
const RESERVE_OF_CONFIRMED: u64 = 8;
const RESERVE_OF_WAITING: u64 = 2;
/// One segment of the reserve is let out after so long without news, each next one after 6/5 of that.
const DRIP_FIRST: Duration = Duration::from_millis(150);
const DRIP_GROWTH: (u32, u32) = (6, 5);
/// What is let out at a time, bytes: a full segment acknowledges one sent, a smaller one none.
const SEGMENT: u64 = 1460;
/// Offsets for which time and timestamp are known, at most.
const MARKS_MAX: usize = 512;
/// A new one is worth noting when so great a part of what waits came since the last.
const MARK_PART: u64 = 64;

/// An offset up to which bytes had come.
#[derive(Clone, Copy, Debug)]
struct Mark {
    offset: u64,
    at: Time,
    /// What the kernel then echoed (TSecr, RFC 7323 section 3.2).
    echo: u32,
}

/// What a fixed host may be acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Due {
    /// Bytes from the first, and the end as one more.
    pub offset: u64,
    /// The timestamp to echo with it; 0 where there are none.
    pub echo: u32,
}

/// Holds the acknowledgements of one connection's downward direction (ACK-1). Offsets count its bytes; the fixed host's end is
/// one byte more.
#[derive(Debug)]
pub struct Hold {
    /// What waits for longer is acknowledged all the same.
    most: Duration,
    received: u64,
    confirmed: u64,
    due: Due,
    marks: VecDeque<Mark>,
    /// When the mobile last had more, or more was told.
    advanced: Time,
    /// How long the hop is silent before the next segment of the reserve is let out.
    pause: Duration,
    not_durable: u64,
}

impl Hold {
    /// Nothing has come yet. What the mobile does not have is held for `most` at most.
    pub fn new(now: Time, most: Duration) -> Self {
        Self::resumed(now, most, 0)
    }

    /// So much had come, was had by the mobile and was acknowledged: by another base, say.
    pub fn resumed(now: Time, most: Duration, offset: u64) -> Self {
        Self {
            most,
            received: offset,
            confirmed: offset,
            due: Due { offset, echo: 0 },
            marks: VecDeque::new(),
            advanced: now,
            pause: DRIP_FIRST,
            not_durable: 0,
        }
    }

    /// What may be acknowledged.
    pub fn due(&self) -> Due {
        self.due
    }

    /// Something has come that the mobile does not have.
    pub fn is_waiting(&self) -> bool {
        self.confirmed < self.received
    }

    /// Bytes that were acknowledged and that the mobile did not have then (ACK-4).
    pub fn not_durable(&self) -> u64 {
        self.not_durable
    }

    /// Bytes have come up to this offset, and the kernel echoes this timestamp.
    pub fn on_received(&mut self, now: Time, offset: u64, echo: u32) {
        if offset <= self.received {
            return;
        }
        if self.due.echo == 0 {
            self.due.echo = echo;
        }
        self.received = offset;
        let worth = (self.received - self.due.offset) / MARK_PART;
        match self.marks.back() {
            Some(last) if offset - last.offset < worth || self.marks.len() >= MARKS_MAX => {
                // Whatever came since then counts as that old: nothing is held for longer than it may be.
                let last = self.marks.len() - 1;
                self.marks[last].offset = offset;
            }
            _ => self.marks.push_back(Mark { offset, at: now, echo }),
        }
        self.advance(now);
    }

    /// The mobile has all up to this offset.
    pub fn on_confirmed(&mut self, now: Time, offset: u64) {
        let offset = offset.min(self.received);
        if offset > self.confirmed {
            self.confirmed = offset;
            (self.pause, self.advanced) = (DRIP_FIRST, now);
            self.advance(now);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called.
    pub fn next_timeout(&self) -> Option<Time> {
        let drip = (self.due.offset < self.confirmed).then(|| self.advanced + self.pause);
        let waiting =
            self.marks.iter().find(|mark| mark.offset > self.due.offset.max(self.confirmed));
        let expiry = waiting.map(|mark| mark.at + self.most);
        [drip, expiry].into_iter().flatten().min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.due.offset < self.confirmed && self.advanced + self.pause <= now {
            self.pause = self.pause * DRIP_GROWTH.0 / DRIP_GROWTH.1;
            self.tell(now, self.confirmed.min(self.due.offset + SEGMENT));
        }
        let old = |mark: &&Mark| mark.at + self.most <= now;
        if let Some(mark) = self.marks.iter().take_while(old).last()
            && mark.offset > self.due.offset.max(self.confirmed)
        {
            let offset = mark.offset;
            self.not_durable += offset - self.due.offset.max(self.confirmed);
            self.tell(now, offset);
        }
    }

    /// Tells all that the mobile has, but for the reserve.
    fn advance(&mut self, now: Time) {
        let waiting = self.received - self.confirmed.min(self.received);
        let reserve = RESERVE_MAX
            .min(self.confirmed / RESERVE_OF_CONFIRMED)
            .min(waiting / RESERVE_OF_WAITING);
        self.tell(now, self.confirmed - reserve);
    }

    fn tell(&mut self, now: Time, offset: u64) {
        if offset <= self.due.offset {
            return;
        }
        self.due.offset = offset;
        self.advanced = now;
        while let Some(mark) = self.marks.front().filter(|mark| mark.offset <= offset) {
            // The older of two is echoed: a round trip is never taken for shorter than it was.
            self.due.echo = mark.echo;
            self.marks.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOLD: Duration = Duration::from_secs(30);

    fn ms(n: u64) -> Time {
        Time::from_millis(n)
    }

    /// ACK-1: what the mobile has is acknowledged at once, and nothing else.
    #[test]
    fn what_the_mobile_has_is_acknowledged() {
        let mut hold = Hold::new(ms(0), HOLD);
        hold.on_received(ms(1), 10_000, 7);
        assert_eq!(hold.due(), Due { offset: 0, echo: 7 });
        hold.on_confirmed(ms(40), 4_000);
        assert_eq!(hold.due().offset, 4_000 - 4_000 / 8);
        hold.on_confirmed(ms(41), 10_000);
        assert_eq!(hold.due().offset, 10_000);
        assert_eq!(hold.next_timeout(), None);
        // What the mobile says that it has of what never came here counts for nothing.
        hold.on_confirmed(ms(42), 20_000);
        assert_eq!(hold.due().offset, 10_000);
    }

    /// ACK-2: the timestamp echoed is one that came with what is acknowledged, or before it.
    #[test]
    fn the_timestamp_echoed_is_that_of_what_is_acknowledged() {
        let mut hold = Hold::new(ms(0), HOLD);
        for n in 1..=10 {
            hold.on_received(ms(n), n * 1000, 100 + n as u32);
        }
        hold.on_confirmed(ms(50), 10_000);
        assert_eq!(hold.due(), Due { offset: 10_000, echo: 110 });
        hold.on_received(ms(60), 20_000, 160);
        hold.on_received(ms(61), 30_000, 161);
        hold.on_confirmed(ms(90), 27_000);
        assert_eq!(hold.due().echo, 160);
    }

    /// ACK-3: while the hop is silent the reserve is let out, ever more slowly.
    #[test]
    fn a_silent_hop_lets_the_reserve_out_by_segments() {
        let mut hold = Hold::new(ms(0), HOLD);
        hold.on_received(ms(1), 1_000_000, 1);
        hold.on_confirmed(ms(100), 500_000);
        let before = hold.due().offset;
        assert_eq!(before, 500_000 - 500_000 / 8);
        let mut at = ms(100);
        let mut let_out = 0;
        while at < ms(10_100) {
            let next = hold.next_timeout().unwrap();
            assert!(next > at);
            at = next;
            hold.handle_timeout(at);
            let_out += u64::from(at < ms(10_100));
        }
        assert_eq!(let_out, 14);
        assert!(hold.due().offset <= 500_000 && hold.not_durable() == 0);
    }

    /// ACK-4: what was held for as long as may be is acknowledged all the same, and counted.
    #[test]
    fn what_is_held_too_long_is_acknowledged_and_counted() {
        let mut hold = Hold::new(ms(0), HOLD);
        hold.on_received(ms(1), 10_000, 1);
        hold.on_received(ms(1001), 20_000, 2);
        assert_eq!(hold.next_timeout(), Some(ms(30_001)));
        hold.handle_timeout(ms(30_001));
        assert_eq!((hold.due().offset, hold.not_durable()), (10_000, 10_000));
        assert_eq!(hold.next_timeout(), Some(ms(31_001)));
        hold.on_confirmed(ms(30_500), 15_000);
        hold.handle_timeout(ms(31_001));
        assert_eq!((hold.due().offset, hold.not_durable()), (20_000, 15_000));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Wait(u64),
        Receive(u64),
        Confirm(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..2000_u64).prop_map(Step::Wait),
            (1..100_000_u64).prop_map(Step::Receive),
            (1..100_000_u64).prop_map(Step::Confirm),
        ]
    }

    proptest! {
        /// ACK-1, ACK-2, ACK-4: whatever happens, nothing is told too early or taken back, only what is not durable was not had,
        /// and little is remembered.
        #[test]
        fn nothing_is_told_that_the_mobile_does_not_have(steps in prop::collection::vec(step(), 1..400)) {
            let mut hold = Hold::new(ms(0), HOLD);
            let (mut now, mut received, mut confirmed) = (ms(0), 0, 0);
            let (mut before, mut lost) = (hold.due(), 0);
            for step in steps {
                match step {
                    Step::Wait(n) => {
                        let until = now + Duration::from_millis(n);
                        while let Some(next) = hold.next_timeout().filter(|t| *t <= until) {
                            prop_assert!(next >= now);
                            now = next;
                            let state = (hold.due(), hold.not_durable());
                            hold.handle_timeout(now);
                            prop_assert!(state != (hold.due(), hold.not_durable()), "a timeout does something");
                        }
                        now = until;
                    }
                    Step::Receive(n) => {
                        received += n;
                        hold.on_received(now, received, (now.as_micros() / 1000) as u32 + 1);
                    }
                    Step::Confirm(n) => {
                        confirmed = received.min(confirmed + n);
                        hold.on_confirmed(now, confirmed);
                    }
                }
                lost += hold.due().offset.saturating_sub(confirmed.max(before.offset));
                prop_assert!(hold.due().offset >= before.offset && hold.due().echo >= before.echo);
                prop_assert!(hold.due().offset <= received);
                prop_assert!(hold.not_durable() >= lost);
                prop_assert!(hold.not_durable() > 0 || hold.due().offset <= confirmed);
                prop_assert!(hold.marks.len() <= MARKS_MAX);
                before = hold.due();
            }
            hold.on_confirmed(now, received);
            prop_assert_eq!(hold.due().offset, received);
            prop_assert_eq!(hold.next_timeout(), None);
        }
    }
}
