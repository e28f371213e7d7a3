//! Multipath connections over several paths: that every byte arrives once and in order, whatever paths do, and what
//! the literature says of schedulers.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use common::{ISS, PEER_ISS, Way};
use lasthop_tcp::multipath::{Multipath, Scheduler};
use lasthop_tcp::{Algorithm, Config, Event, Ports};
use lasthop_units::{Bytes, Duration, Rate, Seed, Time};
use lasthop_wire::tcp::{Flags, Segment};

const ALL: [Scheduler; 3] = [Scheduler::MinRtt, Scheduler::Ecf, Scheduler::Blest];
/// Of a key the low bits are numbers that wrap soon.
const KEYS: [u64; 2] = [0x1234_5678_ffff_f000, 0x8765_4321_ffff_ff00];

/// A path: Mbit/s, milliseconds one way, loss.
#[derive(Clone, Copy)]
struct Path(u64, u64, f64);

struct World {
    now: Time,
    scheduler: Scheduler,
    config: Config,
    client: Multipath,
    server: Option<Multipath>,
    /// There and back, by path; and when each lets nothing pass.
    ways: Vec<[Way; 2]>,
    dark: Vec<(usize, Time, Time)>,
    /// The path of each subflow, as either end counts them.
    paths: [Vec<usize>; 2],
    queue: BinaryHeap<Reverse<(Time, u64)>>,
    flying: BTreeMap<u64, (usize, usize, Segment)>,
    serial: u64,
    read: u64,
    events: Vec<Event>,
}

impl World {
    fn new(scheduler: Scheduler, buffer: Bytes, paths: &[Path], seed: u64) -> Self {
        let config = Config {
            algorithm: Algorithm::Lia,
            recv_buffer: buffer,
            send_buffer: buffer,
            ..Config::modern()
        };
        let ways = paths.iter().enumerate().map(|(n, Path(mbps, ms, loss))| {
            ["there", "back"].map(|name| {
                let random = Seed::from_u64(seed).stream(&format!("{name} {n}"));
                let (rate, delay) = (Rate::from_mbps(*mbps), Duration::from_millis(*ms));
                let mut way = Way::new(rate, delay, *loss, random);
                way.queue = 20;
                way
            })
        });
        let ports = Ports { local: 1000, remote: 1 };
        Self {
            now: Time::ZERO,
            scheduler,
            config,
            client: Multipath::connect(config, scheduler, ports, (ISS, KEYS[0]), Time::ZERO),
            server: None,
            ways: ways.collect(),
            dark: Vec::new(),
            paths: [vec![0], vec![0]],
            queue: BinaryHeap::new(),
            flying: BTreeMap::new(),
            serial: 0,
            read: 0,
            events: Vec::new(),
        }
    }

    fn flush(&mut self) {
        while self.paths[0].len() < self.ways.len() {
            let path = self.paths[0].len();
            let ports = Ports { local: 1000 + path as u16, remote: 1 };
            if !self.client.join(ports, ISS + 77 * path as u32, self.now) {
                break;
            }
            self.paths[0].push(path);
        }
        while let Some((place, out)) = self.client.poll_transmit(self.now) {
            self.send(0, self.paths[0][place], out.segment);
        }
        while let Some((place, out)) = self.server.as_mut().and_then(|s| s.poll_transmit(self.now))
        {
            self.send(1, self.paths[1][place], out.segment);
        }
        while let Some(event) = self.client.poll_event() {
            self.events.push(event);
        }
    }

    fn send(&mut self, side: usize, path: usize, segment: Segment) {
        let now = self.now;
        let dark = self.dark.iter().any(|(p, from, to)| *p == path && (*from..*to).contains(&now));
        if let Some(at) = self.ways[path][side].send(now, &segment).filter(|_| !dark) {
            self.serial += 1;
            self.queue.push(Reverse((at, self.serial)));
            self.flying.insert(self.serial, (side, path, segment));
        }
    }

    fn deliver(&mut self, side: usize, path: usize, segment: &Segment) {
        let now = self.now;
        if side == 1 {
            let place = self.paths[0].iter().position(|own| *own == path).unwrap();
            return self.client.handle_segment(now, place, segment, false);
        }
        let ports = Ports { local: 1, remote: segment.src_port };
        if let Some(place) = self.paths[1].iter().position(|own| *own == path)
            && let Some(server) = &mut self.server
        {
            server.handle_segment(now, place, segment, false);
        } else if segment.flags.contains(Flags::SYN) {
            let numbers = (PEER_ISS, KEYS[1]);
            match &mut self.server {
                None => {
                    let of = (ports, segment);
                    self.server =
                        Multipath::accept(self.config, self.scheduler, of, numbers, now).ok();
                }
                Some(server) => {
                    let iss = PEER_ISS + path as u32;
                    assert!(server.accept_join(ports, segment, iss, now));
                    self.paths[1].push(path);
                }
            }
        }
        if let Some(server) = &mut self.server {
            let n = server.readable();
            server.consume(n);
            self.read += n.get();
        }
    }

    /// Runs to `end`; the client writes as long as `more` bytes are left.
    fn run(&mut self, end: Time, mut more: u64) {
        loop {
            more -= self.client.write(Bytes::new(more)).get();
            self.flush();
            let arrival = self.queue.peek().map_or(Time::NEVER, |Reverse((at, _))| *at);
            let timers = [
                self.client.next_timeout(),
                self.server.as_ref().and_then(Multipath::next_timeout),
            ];
            let timer = timers.into_iter().flatten().min().unwrap_or(Time::NEVER);
            let next = arrival.min(timer);
            if next > end {
                self.now = end;
                return;
            }
            self.now = next.max(self.now);
            if arrival <= timer {
                if let Some(Reverse((_, id))) = self.queue.pop()
                    && let Some((side, path, segment)) = self.flying.remove(&id)
                {
                    self.deliver(side, path, &segment);
                }
            } else {
                self.client.handle_timeout(self.now);
                self.server.iter_mut().for_each(|server| server.handle_timeout(self.now));
            }
        }
    }
}

/// Mbit/s that arrive from the fifth second on.
fn goodput(scheduler: Scheduler, buffer: Bytes, paths: &[Path]) -> f64 {
    let mut w = World::new(scheduler, buffer, paths, 1);
    w.run(Time::from_secs(5), u64::MAX / 4);
    let before = w.read;
    w.run(Time::from_secs(35), u64::MAX / 4);
    (w.read - before) as f64 * 8.0 / 30e6
}

/// Lim et al. 2017 and Ferlin et al. 2016: where paths differ and the shared buffer is small, what waits for the fast path
/// has more than what always sends, which is less than the fast path alone would have.
#[test]
fn where_paths_differ_and_the_buffer_is_small_waiting_pays() {
    let paths = [Path(10, 10, 0.0), Path(1, 100, 0.0)];
    for kib in [64, 96, 128, 192] {
        let buffer = Bytes::from_kib(kib);
        let [min_rtt, ecf, blest] = ALL.map(|scheduler| goodput(scheduler, buffer, &paths));
        let alone = goodput(Scheduler::MinRtt, buffer, &paths[..1]);
        assert!(min_rtt < 0.8 * alone, "{kib} KiB: {min_rtt} of {alone}");
        assert!(ecf > 1.3 * min_rtt && blest > 1.3 * min_rtt, "{kib} KiB: {min_rtt} {ecf} {blest}");
    }
}

/// On equal paths, and where the buffer bounds nothing, all are the same, and both paths are used.
#[test]
fn on_equal_paths_schedulers_are_alike() {
    let paths = [Path(5, 20, 0.0), Path(5, 20, 0.0)];
    for buffer in [Bytes::from_kib(256), Bytes::from_mib(4)] {
        let all = ALL.map(|scheduler| goodput(scheduler, buffer, &paths));
        let least = all.iter().copied().fold(f64::MAX, f64::min);
        let most = all.iter().copied().fold(0.0, f64::max);
        assert!(least > 0.95 * most && least > 8.5, "{buffer:?}: {all:?}");
    }
    let unlike = [Path(10, 10, 0.0), Path(1, 100, 0.0)];
    for scheduler in ALL {
        let all = goodput(scheduler, Bytes::from_mib(4), &unlike);
        assert!(all > 9.7, "{scheduler:?}: {all}");
    }
}

/// A transfer completes with every byte, whatever is lost, and both ends are told so.
#[test]
fn files_arrive_whole_over_lossy_paths() {
    for scheduler in ALL {
        for seed in 0..20 {
            let loss = [0.0, 0.01, 0.05][seed as usize % 3];
            let paths = [Path(10, 5, loss), Path(2, 60, 0.02), Path(5, 30, loss)];
            let mut w =
                World::new(scheduler, Bytes::from_kib(100), &paths[..2 + seed as usize % 2], seed);
            let size = 300_000 + 77 * seed;
            w.run(Time::from_secs(120), size);
            w.client.finish();
            w.server.as_mut().unwrap().finish();
            w.run(Time::from_secs(300), 0);
            assert_eq!(w.read, size, "{scheduler:?}, seed {seed}");
            assert!(w.events.contains(&Event::Connected) && w.events.contains(&Event::Finished));
            assert!(w.events.contains(&Event::PeerFinished), "{scheduler:?}, seed {seed}");
            assert_eq!(w.events.last(), Some(&Event::Closed), "{scheduler:?}, seed {seed}");
        }
    }
}

/// What a path that dies has not brought is brought by the other, and it is used again when it is back.
#[test]
fn a_dead_path_is_left() {
    for scheduler in ALL {
        for dead in [0, 1] {
            let paths = [Path(5, 20, 0.0), Path(5, 40, 0.0)];
            let mut w = World::new(scheduler, Bytes::from_kib(512), &paths, 3);
            w.dark.push((dead, Time::from_secs(5), Time::from_secs(20)));
            w.run(Time::from_secs(8), u64::MAX / 4);
            let before = w.read;
            w.run(Time::from_secs(18), u64::MAX / 4);
            let mbps = (w.read - before) as f64 * 8.0 / 10e6;
            assert!(mbps > 3.5, "{scheduler:?} without {dead}: {mbps}");
            w.run(Time::from_secs(40), u64::MAX / 4);
            let before = w.read;
            w.run(Time::from_secs(50), u64::MAX / 4);
            let mbps = (w.read - before) as f64 * 8.0 / 10e6;
            assert!(mbps > 8.0, "{scheduler:?} with {dead} again: {mbps}");
        }
    }
}
