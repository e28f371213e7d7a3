//! Two small TCPs with the supervisor host between them, under random schedules.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use lasthop_stream::RangeSet;
use proptest::prelude::*;

use super::*;

const SEGMENT: u64 = 100;
const TOTAL: u64 = 300 * SEGMENT + 17;

/// A sender that knows what it needs here: a window, persist, duplicates, and a timer.
struct Source {
    first: Seq,
    una: u64,
    next: u64,
    window: u64,
    dupacks: u32,
    timer: Time,
    backoff: u32,
}

impl Source {
    fn segment(&self, from: u64, len: u64) -> Fake {
        Fake::data(&connection(1), self.first + from as u32, len as u32)
    }

    /// The offset in the stream; the FIN is the last byte.
    fn offset(&self, ack: Seq) -> Option<u64> {
        let ahead = ack.ahead_of(self.first + self.una as u32);
        (ahead >= 0).then(|| self.una + u64::from(ahead.unsigned_abs()))
    }

    fn handle_ack(&mut self, now: Time, segment: &Segment, out: &mut Vec<Fake>) {
        let Some(ack) = self.offset(segment.ack).filter(|ack| *ack <= self.next) else { return };
        let same = u64::from(segment.window) == self.window;
        self.window = u64::from(segment.window);
        if ack > self.una {
            self.una = ack;
            self.dupacks = 0;
            self.backoff = 0;
            self.timer = now;
        } else if same && self.window > 0 && self.next > self.una {
            self.dupacks += 1;
            if self.dupacks == 3 {
                out.push(self.segment(self.una, SEGMENT.min(self.next - self.una)));
            }
        }
        self.send(now, out);
    }

    fn send(&mut self, now: Time, out: &mut Vec<Fake>) {
        let edge = TOTAL.min(self.una + self.window.min(10 * SEGMENT));
        while self.next < edge {
            if self.next == self.una {
                self.timer = now;
            }
            let len = SEGMENT.min(edge - self.next);
            out.push(self.segment(self.next, len));
            self.next += len;
        }
    }

    fn handle_timeout(&mut self, now: Time, out: &mut Vec<Fake>) {
        let rto = 300 * MS * (1 << self.backoff.min(4));
        if self.una == TOTAL || now.since(self.timer) < rto {
            return;
        }
        self.timer = now;
        self.backoff += 1;
        if self.window == 0 {
            out.push(self.segment(self.una, 1));
            self.next = self.next.max(self.una + 1);
        } else {
            let len = SEGMENT.min(TOTAL - self.una);
            out.push(self.segment(self.una, len));
            self.next = self.next.max(self.una + len);
        }
    }
}

/// A receiver that answers each segment.
#[derive(Default)]
struct Sink {
    first: Seq,
    come: RangeSet,
    with_sack: bool,
}

impl Sink {
    fn next(&self) -> u64 {
        self.come.first().filter(|range| range.start == 0).map_or(0, |range| range.end)
    }

    fn handle(&mut self, packet: &Fake) -> Fake {
        let segment = packet.tcp.unwrap().segment;
        let from = segment.seq.ahead_of(self.first);
        if from >= 0 {
            let from = from as u64;
            self.come.insert(from..from + u64::from(segment.len));
        }
        self.answer()
    }

    fn answer(&self) -> Fake {
        let next = self.next();
        let mut sack = SackBlocks::default();
        for range in self.come.iter().filter(|range| self.with_sack && range.start > next) {
            sack.push(self.first + range.start as u32, self.first + range.end as u32);
        }
        let options = Options { sack, ..Options::default() };
        let segment = Segment { options, ..acking((self.first + next as u32).0) };
        Fake::segment(&connection(1), Side::Mobile, segment)
    }
}

/// Where a packet goes.
#[derive(Clone, Copy)]
enum To {
    Fixed,
    ShFromFixed,
    ShFromMobile,
    Mobile,
}

struct Route {
    sh: MTcp<Fake>,
    source: Source,
    sink: Sink,
    air: VecDeque<(u64, To, Fake)>,
    fates: Vec<u8>,
    next_fate: usize,
    up: bool,
}

impl Route {
    fn fly(&mut self, ms: u64, to: To, packet: Fake) {
        // Losses end in time; then all must come to an end.
        let fate = self.fates.get(self.next_fate).filter(|_| ms < 3000).copied().unwrap_or(255);
        self.next_fate += 1;
        let over_hop = matches!(to, To::Mobile | To::ShFromMobile);
        let copies = match fate {
            _ if over_hop && !self.up => 0,
            0..40 if over_hop => 0,
            0..10 => 0,
            40..60 => 2,
            _ => 1,
        };
        for n in 0..copies {
            let due = ms + 4 + n * 3;
            let at = self.air.partition_point(|(other, ..)| *other <= due);
            self.air.insert(at, (due, to, packet));
        }
    }

    fn empty(&mut self, ms: u64) {
        while let Some(output) = self.sh.poll_output() {
            match output {
                Output::Packet { towards: Side::Fixed, packet } => self.fly(ms, To::Fixed, packet),
                Output::Packet { towards: Side::Mobile, packet } => {
                    self.fly(ms, To::Mobile, packet);
                }
                Output::Segment { connection, segment, .. } => {
                    self.fly(ms, To::Fixed, Fake::segment(&connection, Side::Mobile, segment));
                }
                Output::Message { .. } => panic!("it says nothing to agents"),
            }
        }
    }

    fn arrive(&mut self, ms: u64) {
        let now = at(ms);
        while self.air.front().is_some_and(|(due, ..)| *due <= ms) {
            let Some((_, to, packet)) = self.air.pop_front() else { return };
            match to {
                To::Fixed => {
                    let segment = packet.tcp.unwrap().segment;
                    // What the source has not sent it does not take for acknowledged.
                    let ack = self.source.offset(segment.ack);
                    if let Some(ack) = ack.filter(|ack| *ack <= self.source.next) {
                        assert!(ack <= self.sink.next(), "acknowledged before it came");
                    }
                    let mut out = Vec::new();
                    self.source.handle_ack(now, &segment, &mut out);
                    self.depart(ms, out);
                }
                To::ShFromFixed => self.sh.handle_packet(now, Side::Fixed, packet),
                To::ShFromMobile => self.sh.handle_packet(now, Side::Mobile, packet),
                To::Mobile => {
                    let segment = packet.tcp.unwrap().segment;
                    assert_eq!(packet.id, segment.seq.0, "not what was sent");
                    let answer = self.sink.handle(&packet);
                    self.fly(ms, To::ShFromMobile, answer);
                }
            }
            self.empty(ms);
        }
    }

    fn depart(&mut self, ms: u64, packets: Vec<Fake>) {
        for packet in packets {
            self.fly(ms, To::ShFromFixed, packet);
        }
    }

    fn run_timers(&mut self, ms: u64) {
        if self.sh.next_timeout().is_some_and(|due| due <= at(ms)) {
            self.sh.handle_timeout(at(ms));
            self.empty(ms);
            assert!(self.sh.next_timeout().is_none_or(|due| due > at(ms)), "a timer that spins");
        }
        let mut out = Vec::new();
        self.source.handle_timeout(at(ms), &mut out);
        self.depart(ms, out);
    }

    /// What happens to the hop, told or not, and what others do.
    fn happen(&mut self, ms: u64, what: u8) {
        let event = match what {
            0 => Some((false, LinkEvent::Down)),
            1 => Some((true, LinkEvent::Up)),
            _ => None,
        };
        match (what, event) {
            (_, Some((up, event))) => {
                self.up = up;
                self.sh.handle_link_event(at(ms), event);
            }
            (2, _) => self.up = false,
            (3, _) => self.up = true,
            (4, _) => self.sh.handle_link_event(at(ms), LinkEvent::Down),
            (5, _) => {
                let state = self.sh.take(connection(1).mobile.ip());
                self.sh.adopt(at(ms), state);
            }
            (6, _) => self.sh.remove_mobile(connection(1).mobile.ip()),
            (_, _) => {
                let stray = acking((self.source.first + (1 << 20)).0);
                let stray = Fake::segment(&connection(1), Side::Mobile, stray);
                self.sh.handle_packet(at(ms), Side::Mobile, stray);
            }
        }
        self.empty(ms);
    }
}

proptest! {
    /// MTC-1, MTC-8: whatever the hop does and says of itself, the fixed host is told nothing that
    /// the mobile does not have, all that is sent comes as it was sent, and the transfer ends.
    #[test]
    fn a_transfer_ends_whatever_happens(
        fates in prop::collection::vec(any::<u8>(), 0..2000),
        happenings in prop::collection::vec((0_u64..2000, 0_u8..8), 0..12),
        first in prop_oneof![Just(0), Just(u32::MAX - 1000), any::<u32>()],
        buffer in 1_usize..40,
        hop_window in 0_usize..10,
        with_sack: bool,
    ) {
        let config = MTcpConfig { buffer, hop_window, ..MTcpConfig::default() };
        let source = Source {
            first: Seq(first), una: 0, next: 0, window: u64::from(WINDOW),
            dupacks: 0, timer: Time::ZERO, backoff: 0,
        };
        let sink = Sink { first: Seq(first), with_sack, ..Sink::default() };
        let air = VecDeque::new();
        let sh = MTcp::new(&config);
        let mut world = Route { sh, source, sink, air, fates, next_fate: 0, up: true };
        let greeting = world.sink.answer();
        world.fly(0, To::ShFromMobile, greeting);
        let mut ended = None;
        // A window of one segment brings no duplicates: each loss waits for a timer, at either end.
        for ms in 0..400_000 {
            for (_, what) in happenings.iter().filter(|(when, _)| *when == ms) {
                world.happen(ms, *what);
            }
            // The last word is that the hop carries, though it may not be told.
            world.up |= ms >= 3000;
            if ms == 1 {
                let mut out = Vec::new();
                world.source.send(at(ms), &mut out);
                world.depart(ms, out);
            }
            world.arrive(ms);
            world.run_timers(ms);
            prop_assert!(world.sh.kept() <= buffer);
            if world.source.una == TOTAL {
                ended = Some(ms);
                break;
            }
        }
        prop_assert!(ended.is_some(), "{} of {} bytes, {:?}", world.source.una, TOTAL, world.sh.stats());
        prop_assert_eq!(world.sink.next(), TOTAL);
    }

    #[test]
    fn garbage_breaks_nothing_and_stays_bounded(
        steps in prop::collection::vec(
            (any::<(bool, u8, u16, u16)>(), any::<(u32, u32)>(), 0_u8..10, 0_u64..200),
            0..300,
        ),
        buffer in 0_usize..10,
        connections in 0_usize..4,
    ) {
        let config = MTcpConfig { buffer, connections, ..MTcpConfig::default() };
        let mut sh = MTcp::new(&config);
        let mut now = at(0);
        for ((fixed, flags, port, window), (seq, ack), kind, later) in steps {
            now += later as u32 * MS;
            let near = kind < 5;
            let segment = Segment {
                seq: Seq(if near { seq % 1000 } else { seq }),
                ack: Seq(if near { ack % 1000 } else { ack }),
                flags: Flags::from_bits(if near { Flags::ACK.bits() } else { flags }),
                window,
                len: if fixed { u32::from(window % 3) * 100 } else { 0 },
                ..Segment::default()
            };
            let from = if fixed { Side::Fixed } else { Side::Mobile };
            match kind {
                8 => sh.handle_link_event(now, if fixed { LinkEvent::Up } else { LinkEvent::Down }),
                9 => sh.handle_timeout(now),
                _ => sh.handle_packet(now, from, Fake::segment(&connection(port % 5), from, segment)),
            }
            while sh.poll_output().is_some() {}
            prop_assert!(sh.kept() <= buffer.max(1) * connections.max(1));
            prop_assert!(sh.next_timeout().is_none_or(|due| due >= at(0)));
        }
    }
}
