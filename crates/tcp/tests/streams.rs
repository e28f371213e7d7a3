//! Whatever the path does, the stream that arrives is the stream that was sent, and both ends know
//! when it is over.

#![allow(missing_docs)]

use std::collections::BTreeMap;

use lasthop_tcp::{Algorithm, Coherence, Config, Event, Ports, Socket, State};
use lasthop_testing::{Replay, schedules};
use lasthop_units::{Bytes, Duration, Seed, Stream, Time};
use lasthop_wire::tcp::{Flags, Options, SackBlocks, Segment, Seq, Timestamps};
use proptest::prelude::*;

const ALGORITHMS: [Algorithm; 5] =
    [Algorithm::Tahoe, Algorithm::Reno, Algorithm::NewReno, Algorithm::Sack, Algorithm::Cubic];

/// What byte `offset` of stream `which` is.
fn byte(which: usize, offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 ^ (which as u8)
}

struct End {
    socket: Option<Socket>,
    config: Config,
    to_write: u64,
    written: u64,
    read: u64,
    finished: bool,
    events: Vec<Event>,
}

struct Flying {
    to: usize,
    segment: Segment,
    payload: Vec<u8>,
    marked: bool,
}

/// Two sockets and a path that loses, doubles and overtakes.
struct Pair {
    now: Time,
    ends: [End; 2],
    flying: BTreeMap<(Time, u64), Flying>,
    serial: u64,
    rng: Stream,
    loss: f64,
    double: f64,
    jitter: u64,
    both_open: bool,
    /// How many of the packets that may be marked are, and of the acknowledgements that carry a
    /// loss notification.
    marks: f64,
    notices: f64,
    marking: Stream,
}

impl Pair {
    fn new(seed: u64, configs: [Config; 2], bytes: [u64; 2]) -> Self {
        let mut rng = Seed::from_u64(seed).stream("path");
        let iss = [Seq(rng.next_u64() as u32), Seq(u32::MAX - rng.below(3000) as u32)];
        let end = |i: usize| End {
            socket: None,
            config: configs[i],
            to_write: bytes[i],
            written: 0,
            read: 0,
            finished: false,
            events: Vec::new(),
        };
        let mut it = Self {
            now: Time::from_millis(rng.below(100_000)),
            ends: [end(0), end(1)],
            flying: BTreeMap::new(),
            serial: 0,
            loss: rng.uniform() * 0.25,
            double: rng.uniform() * 0.1,
            jitter: rng.below(30_000),
            both_open: rng.chance(0.1),
            rng,
            marks: 0.0,
            notices: 0.0,
            marking: Seed::from_u64(seed).stream("marks"),
        };
        let openers = if it.both_open { 2 } else { 1 };
        for (i, iss) in iss.into_iter().enumerate().take(openers) {
            let ports = Ports { local: i as u16, remote: 1 - i as u16 };
            let config = it.ends[i].config;
            it.ends[i].socket = Some(Socket::connect(config, ports, iss, it.now));
        }
        it
    }

    fn work(&mut self, i: usize) {
        let lazy = self.rng.chance(0.5);
        let end = &mut self.ends[i];
        let Some(socket) = &mut end.socket else { return };
        while let Some(event) = socket.poll_event() {
            end.events.push(event);
        }
        while end.written < end.to_write {
            let room = socket.send_space();
            let n = room.len().min((end.to_write - end.written) as usize);
            if n == 0 {
                break;
            }
            (0..n).for_each(|k| room[k] = byte(i, end.written + k as u64));
            socket.commit(n);
            end.written += n as u64;
        }
        if end.written == end.to_write && !end.finished {
            socket.finish();
            end.finished = true;
        }
        while !lazy && !socket.received().is_empty() {
            let n = socket.received().len();
            for k in 0..n {
                assert_eq!(socket.received()[k], byte(1 - i, end.read + k as u64), "wrong byte");
            }
            socket.consume(n);
            end.read += n as u64;
        }
        let mut out = vec![0; 2000];
        while let Some(outgoing) = socket.poll_outgoing(self.now, &mut out) {
            let mut segment = outgoing.segment;
            assert!(segment.len + segment.options.len() <= u32::from(end.config.mss) + 40);
            let marked = outgoing.ecn_capable && self.marking.chance(self.marks);
            segment.options.eln = segment.len == 0 && self.marking.chance(self.notices);
            let copies =
                u32::from(!self.rng.chance(self.loss)) + u32::from(self.rng.chance(self.double));
            for _ in 0..copies {
                let delay = 10_000 + self.rng.below(self.jitter + 1);
                self.serial += 1;
                let at = self.now + Duration::from_micros(delay);
                let payload = out[..segment.len as usize].to_vec();
                let flying = Flying { to: 1 - i, segment, payload, marked };
                self.flying.insert((at, self.serial), flying);
            }
        }
    }

    fn arrive(&mut self, flying: &Flying) {
        let Flying { to: i, segment, payload, marked } = flying;
        let i = *i;
        let end = &mut self.ends[i];
        match &mut end.socket {
            Some(socket) => socket.handle_segment_marked(self.now, segment, payload, *marked),
            None => {
                let ports = Ports { local: i as u16, remote: 1 - i as u16 };
                let iss = Seq(segment.seq.0 ^ 0x5555);
                end.socket = Socket::accept(end.config, ports, segment, iss, self.now).ok();
            }
        }
    }

    fn idles(&self) -> bool {
        self.ends.iter().any(|e| {
            e.socket.as_ref().is_some_and(|s| {
                !s.received().is_empty() || s.connection().send_room() > Bytes::ZERO
            })
        })
    }

    fn over(&self) -> bool {
        self.ends.iter().all(|e| {
            let state = e.socket.as_ref().map(|s| s.connection().state());
            matches!(state, Some(State::Closed | State::TimeWait))
        })
    }

    fn run(&mut self) {
        for step in 0..400_000 {
            self.work(0);
            self.work(1);
            if self.over() {
                return;
            }
            let arrival = self.flying.keys().next().map_or(Time::NEVER, |(t, _)| *t);
            let timer = self
                .ends
                .iter()
                .filter_map(|e| e.socket.as_ref()?.next_timeout())
                .min()
                .unwrap_or(Time::NEVER);
            // A lazy reader or writer comes back without any event.
            let back =
                if self.idles() { self.now + Duration::from_millis(50) } else { Time::NEVER };
            let next = arrival.min(timer).min(back);
            assert_ne!(next, Time::NEVER, "stuck: {}", self.describe());
            self.now = self.now.max(next);
            if arrival <= timer && arrival <= self.now {
                let Some((_, flying)) = self.flying.pop_first() else { return };
                self.arrive(&flying);
            } else {
                for end in &mut self.ends {
                    if let Some(socket) = &mut end.socket {
                        socket.handle_timeout(self.now);
                    }
                }
            }
            assert!(step < 399_999, "no end: {}", self.describe());
        }
    }

    fn describe(&self) -> String {
        let one = |e: &End| {
            let probe = e.socket.as_ref().map(|s| s.connection().probe());
            format!("wrote {}, read {}, {probe:?}", e.written, e.read)
        };
        format!("{} | {}", one(&self.ends[0]), one(&self.ends[1]))
    }
}

fn any_config(rng: &mut Stream) -> Config {
    let mut config = match rng.below(3) {
        0 => Config::bsd_1990s(),
        1 => Config::ns2(),
        _ => Config::modern(),
    };
    config.algorithm = ALGORITHMS[rng.below(5) as usize];
    config.mss = [100, 536, 1000, 1460][rng.below(4) as usize];
    config.recv_buffer = Bytes::new([700, 4096, 65_535, 300_000][rng.below(4) as usize]);
    config.send_buffer = Bytes::new([900, 8192, 200_000][rng.below(3) as usize]);
    config.sack = rng.chance(0.5);
    config.timestamps = rng.chance(0.5);
    config.window_scale = rng.chance(0.5);
    config.nagle = rng.chance(0.5);
    config.limited_transmit = rng.chance(0.5);
    config.rto.give_up_after = None;
    config.time_wait = Duration::from_secs(100_000);
    config
}

/// RENO-1: both streams arrive whole, and every byte is right, under a thousand random schedules.
#[test]
fn every_byte_arrives_once_and_in_order_whatever_the_path_does() {
    for seed in schedules(1000) {
        let _replay = Replay::new(seed, "-p lasthop-tcp --test streams every_byte");
        let mut rng = Seed::from_u64(seed).stream("configs");
        let configs = [any_config(&mut rng), any_config(&mut rng)];
        let bytes = [rng.below(120_000), rng.below(2) * rng.below(60_000)];
        let mut world = Pair::new(seed, configs, bytes);
        world.run();
        // What a lazy reader left.
        for i in [0, 1] {
            let end = &mut world.ends[i];
            let left = end.socket.as_ref().map_or(0, |s| s.connection().readable().get());
            assert_eq!(end.read + left, bytes[1 - i], "seed {seed}: {}", world.describe());
            assert!(world.ends[i].events.contains(&Event::Connected), "seed {seed}");
        }
    }
}

/// RFC 3168, CC-5, CC-6, DDA-3, SNP-10: marks, notices and acknowledgements that wait neither hang
/// nor spoil a stream, whatever one end or both make of them.
#[test]
fn every_byte_arrives_whatever_is_marked_held_and_notified() {
    let (mut cuts, mut spared, mut discarded) = (0, 0, 0);
    let seeds = schedules(1000);
    let few = seeds.end - seeds.start < 1000;
    for seed in seeds {
        let _replay = Replay::new(seed, "-p lasthop-tcp --test streams every_byte");
        let mut rng = Seed::from_u64(seed).stream("marked configs");
        let configs = [0, 1].map(|_| {
            let mut config = any_config(&mut rng);
            config.ecn = rng.chance(0.8);
            let wait = Duration::from_millis(rng.below(400));
            let behind = rng.below(4) as u8;
            config.coherence = rng.chance(0.5).then_some(Coherence { hold: wait, behind });
            config.delayed_dupacks = rng.chance(0.5).then_some(wait);
            config.eln = rng.chance(0.5);
            config
        });
        let bytes = [rng.below(120_000), rng.below(2) * rng.below(60_000)];
        let mut world = Pair::new(seed, configs, bytes);
        (world.marks, world.notices) = (rng.uniform() * 0.5, rng.uniform());
        world.run();
        for i in [0, 1] {
            let end = &mut world.ends[i];
            let left = end.socket.as_ref().map_or(0, |s| s.connection().readable().get());
            assert_eq!(end.read + left, bytes[1 - i], "seed {seed}: {}", world.describe());
            let stats = world.ends[i].socket.as_ref().map(|s| *s.connection().stats());
            let stats = stats.unwrap_or_default();
            cuts += stats.echo_cuts;
            spared += stats.spared_losses;
            discarded += stats.dupacks_discarded;
        }
    }
    let all = cuts > 100 && spared > 100 && discarded > 100;
    assert!(all || few, "{cuts} {spared} {discarded}");
}

#[test]
fn a_path_that_only_loses_nothing_makes_no_retransmission() {
    for algorithm in ALGORITHMS {
        let config = Config { algorithm, ..Config::modern() };
        let mut world = Pair::new(1, [config, config], [300_000, 300_000]);
        (world.loss, world.double, world.jitter) = (0.0, 0.0, 0);
        world.run();
        for end in &world.ends {
            let stats = *end.socket.as_ref().unwrap().connection().stats();
            assert_eq!((stats.retransmits, stats.timeouts), (0, 0), "{algorithm:?} {stats:?}");
        }
    }
}

fn garbage() -> impl Strategy<Value = Segment> {
    let near = prop_oneof![Just(0u32), 0u32..5000, any::<u32>()];
    let numbers = (near.clone(), near, any::<u8>(), any::<u16>());
    let options = (
        proptest::option::of(any::<u16>()),
        proptest::option::of(any::<u8>()),
        any::<bool>(),
        proptest::option::of((any::<u32>(), any::<u32>())),
        prop::collection::vec((any::<u32>(), any::<u32>()), 0..4),
        any::<bool>(),
    );
    (numbers, options, 0u32..3000).prop_map(|((seq, ack, flags, window), o, len)| {
        let mut sack = SackBlocks::default();
        o.4.iter().for_each(|(a, b)| assert!(sack.push(Seq(*a), Seq(*b))));
        Segment {
            src_port: 1,
            dst_port: 2,
            seq: Seq(seq),
            ack: Seq(ack),
            flags: Flags::from_bits(flags),
            window,
            options: Options {
                mss: o.0,
                window_scale: o.1,
                sack_permitted: o.2,
                timestamps: o.3.map(|(value, echo)| Timestamps { value, echo }),
                sack,
                eln: o.5,
                cid: None,
                multipath: None,
            },
            len,
        }
    })
}

proptest! {
    /// No segment, however odd, makes an end panic, loop, or emit without bound.
    #[test]
    fn garbage_never_panics(
        segments in prop::collection::vec((garbage(), 0u64..2000), 1..80),
        passive: bool,
        algorithm in 0usize..5,
    ) {
        let config = Config {
            algorithm: ALGORITHMS[algorithm],
            ecn: true,
            coherence: Some(Coherence::new(Duration::from_millis(50))),
            eln: true,
            ..Config::modern()
        };
        let ports = Ports { local: 2, remote: 1 };
        let mut now = Time::from_secs(1);
        let mut socket = if passive {
            let syn = Segment { flags: Flags::SYN, ..Segment::default() };
            Socket::accept(config, ports, &syn, Seq(0), now).unwrap()
        } else {
            Socket::connect(config, ports, Seq(0), now)
        };
        let mut out = vec![0; 2000];
        for (segment, wait) in segments {
            socket.write(&[7; 3000]);
            now += Duration::from_millis(wait);
            let marked = segment.seq.0 % 3 == 0;
            socket.handle_segment_marked(now, &segment, &vec![1; segment.len as usize], marked);
            let n = socket.received().len();
            socket.consume(n / 2);
            if socket.next_timeout().is_some_and(|t| t <= now) {
                socket.handle_timeout(now);
            }
            let sent = std::iter::from_fn(|| socket.poll_transmit(now, &mut out)).take(5000).count();
            prop_assert!(sent < 5000);
        }
    }
}
