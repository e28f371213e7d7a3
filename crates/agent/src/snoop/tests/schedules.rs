//! Whole streams through the base under any schedule of loss, reordering, duplication and nonsense:
//! what arrives is what was sent, memory is bounded, and all of it arrives in the end.

use alloc::collections::{BTreeMap, VecDeque};

use lasthop_units::Bytes;
use proptest::prelude::*;

use super::*;
use crate::snoop::Timer;

const WINDOW: u32 = 8;
const RTO: Duration = Duration::from_millis(600);
const LENGTH: u32 = 7;

/// What a link does to one packet.
#[derive(Clone, Copy, Debug)]
struct Fate {
    copies: u8,
    late: u8,
}

/// What to put into the base's hands besides.
#[derive(Clone, Copy, Debug)]
struct Nonsense {
    at: u64,
    from: Side,
    segment: Segment,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stop {
    Fixed,
    BaseFromFixed,
    BaseFromMobile,
    Mobile,
}

/// Sends a window, goes back to the first gap after a timeout, and after three duplicates sends one.
struct Sender {
    origin: Seq,
    stream: Vec<u8>,
    acked: u32,
    next: u32,
    duplicates: u32,
    deadline: Time,
}

impl Sender {
    fn segment(&self, at: u32) -> Wire {
        let end = (at + LENGTH).min(self.stream.len() as u32);
        let seq = self.origin + at;
        let segment = Segment { seq, ack: MOBILE, len: end - at, ..data(0) };
        let mut packet = wire(Side::Fixed, mobile(0), segment);
        packet.payload = self.stream[at as usize..end as usize].to_vec();
        packet
    }

    fn fill(&mut self, now: Time) -> Vec<Wire> {
        let mut out = vec![];
        let limit = (self.acked + WINDOW * LENGTH).min(self.stream.len() as u32);
        while self.next < limit {
            out.push(self.segment(self.next));
            self.next = (self.next + LENGTH).min(self.stream.len() as u32);
        }
        if !out.is_empty() {
            self.deadline = now + RTO;
        }
        out
    }

    fn on_ack(&mut self, now: Time, segment: &Segment) -> Vec<Wire> {
        let acked = segment.ack.0.wrapping_sub(self.origin.0);
        assert!(acked <= self.stream.len() as u32, "acknowledges what was never sent");
        if acked > self.acked {
            self.acked = acked;
            self.next = self.next.max(acked);
            self.duplicates = 0;
            self.deadline = now + RTO;
        } else if acked == self.acked {
            self.duplicates += 1;
            if self.duplicates == 3 && !self.is_done() {
                return vec![self.segment(self.acked)];
            }
        }
        self.fill(now)
    }

    fn on_timeout(&mut self, now: Time) -> Vec<Wire> {
        self.next = self.acked;
        self.duplicates = 0;
        self.fill(now)
    }

    fn is_done(&self) -> bool {
        self.acked == self.stream.len() as u32
    }
}

/// Acknowledges each packet.
struct Receiver {
    origin: Seq,
    stream: Vec<u8>,
    held: BTreeMap<u32, Vec<u8>>,
    sack: bool,
}

impl Receiver {
    fn on_data(&mut self, packet: &Wire, segment: &Segment) -> Wire {
        let at = segment.seq.0.wrapping_sub(self.origin.0);
        self.held.insert(at, packet.payload.clone());
        while let Some((at, bytes)) = self.held.first_key_value() {
            let have = self.stream.len() as u32;
            if *at > have {
                break;
            }
            let new = bytes.get((have - at) as usize..).unwrap_or_default().to_vec();
            self.stream.extend(new);
            self.held.pop_first();
        }
        let mut answer = Segment { ack: self.origin + self.stream.len() as u32, ..ack(0) };
        if self.sack {
            for (at, bytes) in self.held.iter().rev() {
                let start = self.origin + *at;
                answer.options.sack.push(start, start + bytes.len() as u32);
            }
        }
        wire(Side::Mobile, mobile(0), answer)
    }
}

struct Route {
    base: Base,
    sender: Sender,
    receiver: Receiver,
    fates: [VecDeque<Fate>; 4],
    events: BTreeMap<(Time, u64), (Stop, Wire)>,
    turns: u64,
    memory: u64,
    segments: usize,
}

impl Route {
    fn put(&mut self, at: Time, place: Stop, packet: Wire) {
        self.turns += 1;
        self.events.insert((at, self.turns), (place, packet));
    }

    /// Over the link that ends there.
    fn cross(&mut self, now: Time, place: Stop, packets: Vec<Wire>) {
        for packet in packets {
            let fates = &mut self.fates[place as usize];
            let fate = fates.pop_front().unwrap_or(Fate { copies: 1, late: 0 });
            for copy in 0..fate.copies {
                let took = 10 + u64::from(fate.late) * u64::from(copy + 1);
                self.put(now + Duration::from_millis(took), place, packet.clone());
            }
        }
    }

    fn base_has_sent(&mut self) {
        let now = self.base.now;
        while let Some(out) = self.base.agent.poll_output() {
            let Output::Packet { towards, packet } = out else { panic!("{out:?}") };
            let place = if towards == Side::Fixed { Stop::Fixed } else { Stop::Mobile };
            self.cross(now, place, vec![packet]);
        }
        let agent = &self.base.agent;
        assert!(agent.kept() <= self.segments && agent.memory().get() <= self.memory);
        assert!(agent.next_timeout().is_none_or(|at| at > now));
    }

    /// What a stranger wrote the ends refuse; the base cannot tell.
    fn is_nonsense(packet: &Wire) -> bool {
        packet.payload == b"nonsense"
    }

    fn arrive(&mut self, now: Time, place: Stop, packet: Wire) {
        match place {
            Stop::Fixed | Stop::Mobile if Self::is_nonsense(&packet) => {}
            Stop::Fixed => {
                let segment = packet.tcp.unwrap().segment;
                let out = self.sender.on_ack(now, &segment);
                self.cross(now, Stop::BaseFromFixed, out);
            }
            Stop::Mobile => {
                let segment = packet.tcp.unwrap().segment;
                let answer = self.receiver.on_data(&packet, &segment);
                assert!(self.sender.stream.starts_with(&self.receiver.stream));
                self.cross(now, Stop::BaseFromMobile, vec![answer]);
            }
            Stop::BaseFromFixed => self.base.agent.handle_packet(now, Side::Fixed, packet),
            Stop::BaseFromMobile => self.base.agent.handle_packet(now, Side::Mobile, packet),
        }
    }

    fn run(&mut self) {
        let first = self.sender.fill(Time::ZERO);
        self.cross(Time::ZERO, Stop::BaseFromFixed, first);
        while !self.sender.is_done() {
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let timer = self.base.agent.next_timeout();
            let all = [event, timer, Some(self.sender.deadline)];
            let now = all.into_iter().flatten().min().unwrap();
            assert!(now < Time::from_secs(300), "it hangs");
            self.base.now = now;
            if timer == Some(now) {
                self.base.agent.handle_timeout(now);
            } else if event == Some(now) {
                let (_, (place, packet)) = self.events.pop_first().unwrap();
                self.arrive(now, place, packet);
            } else {
                let out = self.sender.on_timeout(now);
                self.cross(now, Stop::BaseFromFixed, out);
            }
            self.base_has_sent();
        }
        assert_eq!(self.receiver.stream, self.sender.stream);
    }
}

fn fate() -> impl Strategy<Value = Fate> {
    (prop_oneof![3 => Just(0u8), 5 => Just(1), 1 => Just(2)], 0u8..40)
        .prop_map(|(copies, late)| Fate { copies, late: if late < 25 { 0 } else { late } })
}

fn number(origin: Seq) -> impl Strategy<Value = Seq> {
    prop_oneof![(0u32..400).prop_map(move |n| origin + n), any::<u32>().prop_map(Seq)]
}

fn nonsense(origin: Seq) -> impl Strategy<Value = Nonsense> {
    let blocks = prop::collection::vec((number(origin), number(origin)), 0..4);
    let lengths = prop_oneof![Just(0u32), 0u32..30, any::<u32>()];
    (0u64..3000, any::<bool>(), number(origin), number(origin), any::<u8>(), lengths, blocks)
        .prop_map(|(at, fixed, seq, ack, flags, len, blocks)| {
            let from = if fixed { Side::Fixed } else { Side::Mobile };
            let mut segment = data(0);
            (segment.seq, segment.ack, segment.len) = (seq, ack, len);
            segment.flags = Flags::from_bits(flags);
            for (start, end) in blocks {
                segment.options.sack.push(start, end);
            }
            Nonsense { at, from, segment }
        })
}

fn config() -> impl Strategy<Value = Config> {
    let timer = prop::sample::select(vec![
        Timer::Measured,
        Timer::Stock,
        Timer::Pinned(Duration::from_millis(100)),
    ]);
    (timer, 1u32..3, 1u32..11, 1usize..20, 1u64..20, any::<[bool; 4]>()).prop_map(
        |(timer, dupacks, tries, segments, memory, [use_sack, hide_sack, go_back, eln])| Config {
            timer,
            dupacks,
            tries,
            segments,
            memory: Bytes::new(memory * 27),
            use_sack,
            hide_sack,
            go_back,
            eln,
            ..Config::default()
        },
    )
}

fn world(
    config: Config,
    origin: Seq,
    length: u16,
    sack: bool,
    fates: [Vec<Fate>; 4],
    nonsense: Vec<Nonsense>,
) -> Route {
    let stream: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
    let mut world = Route {
        memory: config.memory.get(),
        segments: config.segments,
        base: Base::new(config),
        sender: Sender {
            origin,
            stream,
            acked: 0,
            next: 0,
            duplicates: 0,
            deadline: Time::ZERO + RTO,
        },
        receiver: Receiver { origin, stream: vec![], held: BTreeMap::new(), sack },
        fates: fates.map(VecDeque::from),
        events: BTreeMap::new(),
        turns: 0,
    };
    for nonsense in nonsense {
        let mut packet = wire(nonsense.from, mobile(0), nonsense.segment);
        packet.payload = b"nonsense".to_vec();
        let place = match nonsense.from {
            Side::Fixed => Stop::BaseFromFixed,
            Side::Mobile => Stop::BaseFromMobile,
        };
        world.put(Time::from_millis(nonsense.at), place, packet);
    }
    world
}

fn origin() -> impl Strategy<Value = Seq> {
    prop_oneof![(0u32..300).prop_map(|n| Seq(u32::MAX - n)), any::<u32>().prop_map(Seq)]
}

fn fates() -> impl Strategy<Value = [Vec<Fate>; 4]> {
    let link = || prop::collection::vec(fate(), 0..60);
    [link(), link(), link(), link()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// SNP-1 to SNP-10: under any schedule the stream stays exact and the cache bounded, and
    /// everything arrives.
    #[test]
    fn the_stream_is_exact_under_any_schedule(
        config in config(),
        origin in origin(),
        length in 1u16..600,
        sack in any::<bool>(),
        fates in fates(),
    ) {
        let mut world = world(config, origin, length, sack, fates, vec![]);
        world.run();
        let agent = &world.base.agent;
        prop_assert_eq!((agent.kept(), agent.memory().get(), agent.next_timeout()), (0, 0, None));
    }

    #[test]
    fn nonsense_costs_help_and_nothing_else(
        config in config(),
        (origin, nonsense) in origin().prop_flat_map(|origin| {
            (Just(origin), prop::collection::vec(nonsense(origin), 0..30))
        }),
        length in 1u16..300,
        sack in any::<bool>(),
        fates in fates(),
    ) {
        world(config, origin, length, sack, fates, nonsense).run();
    }
}
