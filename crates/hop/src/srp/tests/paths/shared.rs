//! Paths through one bottleneck, and paths that only look alike.

use alloc::collections::BTreeMap;
use core::ops::Range;

use super::*;
use crate::path_id::PATHS_MAX;
use crate::srp::shared::{Share, SharedBottlenecks};

/// A path's way from sender to receiver: through a bottleneck, with so much delay before and after it, and loss and jitter
/// of its own after it.
#[derive(Clone, Copy, Debug)]
struct Route {
    bottleneck: usize,
    before: Duration,
    after: Duration,
    loss: f64,
    /// The mean of what is exponential.
    jitter: Duration,
}

impl Route {
    fn new(bottleneck: usize, before_ms: u64, after_ms: u64) -> Self {
        let [before, after] = [before_ms, after_ms].map(Duration::from_millis);
        Self { bottleneck, before, after, loss: 0.0, jitter: Duration::ZERO }
    }
}

/// Where a datagram comes next.
enum Stage {
    Bottleneck,
    Sink,
    Source,
}

struct Flight {
    stage: Stage,
    flow: usize,
    path: usize,
    number: u64,
    frames: Vec<u8>,
}

/// How far `now` is into a period of so many milliseconds.
fn phase(now: Time, ms: u64) -> Duration {
    Duration::from_micros(now.as_micros() % (1000 * ms))
}

/// What is in a bottleneck and nobody waits for.
const CROSS: usize = 1 << 16;

/// Downloads of several associations by several paths each, through bottlenecks that they share or do not.
struct World {
    now: Time,
    seed: u64,
    ends: Vec<[Srp; 2]>,
    streams: Vec<StreamId>,
    read: Vec<u64>,
    routes: Vec<Vec<(Route, Numbers, Time)>>,
    bottlenecks: Vec<Pipe>,
    /// Bits per second of cross traffic at each bottleneck, in bursts.
    cross: Vec<(f64, Time, Numbers)>,
    flying: BTreeMap<(Time, u64), Flight>,
    count: u64,
    /// Beside those at the first bottleneck.
    cubic: Option<CubicFlow>,
    /// What it had delivered, and when that was last more than before.
    progress: (u64, Time),
    /// The first association's receiver has no processor in so much of every 100 ms, on all its paths.
    stalls: Duration,
    /// Its sender has nothing to send in so much of every two seconds.
    pauses: Duration,
}

impl World {
    fn new(seed: u64, mbps: &[u64]) -> Self {
        let bottlenecks = mbps.iter().enumerate().map(|(n, mbps)| Pipe {
            rate: Rate::from_mbps(*mbps),
            delay: Duration::ZERO,
            queue: 100.max((*mbps * 10) as usize),
            ..Pipe::new(seed, &std::format!("bottleneck {n}"))
        });
        Self {
            now: Time::ZERO,
            seed,
            ends: Vec::new(),
            streams: Vec::new(),
            read: Vec::new(),
            routes: Vec::new(),
            bottlenecks: bottlenecks.collect(),
            cross: mbps
                .iter()
                .map(|_| (0.0, Time::NEVER, Seed::from_u64(seed).stream("")))
                .collect(),
            flying: BTreeMap::new(),
            count: 0,
            cubic: None,
            progress: (0, Time::ZERO),
            stalls: Duration::ZERO,
            pauses: Duration::ZERO,
        }
    }

    /// Another association, which downloads for ever.
    fn add(&mut self, routes: &[Route]) -> usize {
        let config = HopConfig::default();
        let mut ends = pair(&config, &config, self.now);
        for n in 1..routes.len() {
            ends.iter_mut().for_each(|end| assert!(end.add_path(self.now, PathId(n as u8))));
        }
        self.streams.push(ends[1].open().unwrap());
        self.ends.push(ends);
        self.read.push(0);
        let flow = self.routes.len();
        let routes = routes.iter().enumerate().map(|(n, route)| {
            (*route, Seed::from_u64(self.seed).stream(&std::format!("{flow} {n}")), Time::ZERO)
        });
        self.routes.push(routes.collect());
        flow
    }

    /// Traffic through a bottleneck that takes such a share of it, in bursts of up to 16 datagrams.
    fn add_cross(&mut self, bottleneck: usize, share: f64) {
        let rate = self.bottlenecks[bottleneck].rate.as_bps() as f64 * share;
        let numbers = Seed::from_u64(self.seed).stream(&std::format!("cross {bottleneck}"));
        self.cross[bottleneck] = (rate, self.now, numbers);
    }

    fn fly(&mut self, at: Time, flight: Flight) {
        self.count += 1;
        self.flying.insert((at, self.count), flight);
    }

    fn pump(&mut self) {
        let mut buf = [0; 2000];
        for flow in 0..self.ends.len() {
            let id = self.streams[flow];
            let [mobile, base] = &mut self.ends[flow];
            let pauses = flow == 0 && phase(self.now, 2_000) < self.pauses;
            while !pauses
                && let Ok(room) = base.send_space(id).map(|room| room.len())
                && room > 0
            {
                base.commit(id, room);
            }
            let came = mobile.received(id).len();
            mobile.consume(id, came);
            self.read[flow] += came as u64;
            for side in 0..2 {
                while self.ends[flow][side].poll_event().is_some() {}
                while let Some(p) = self.ends[flow][side].poll(self.now, &mut buf) {
                    let path = usize::from(p.path.0);
                    let (route, ..) = self.routes[flow][path];
                    let (stage, delay) = match side {
                        0 => (Stage::Source, route.before + route.after),
                        _ => (Stage::Bottleneck, route.before),
                    };
                    let frames = buf[..p.len].to_vec();
                    self.fly(
                        self.now + delay,
                        Flight { stage, flow, path, number: p.number, frames },
                    );
                }
            }
        }
    }

    fn step(&mut self, until: Time) -> bool {
        self.pump();
        let pipes = self.bottlenecks.iter().filter_map(|p| p.flying.front().map(|f| f.0));
        let flying = self.flying.keys().next().map(|key| key.0);
        let timers = self.ends.iter().flatten().filter_map(Srp::next_timeout);
        let cross = self.cross.iter().map(|(_, at, _)| *at);
        let acks = self.cubic.iter().filter_map(|c| c.acks.front().map(|a| a.0));
        let cross = cross.chain(acks);
        let next = pipes.chain(flying).chain(timers).chain(cross).min().unwrap_or(Time::NEVER);
        if next >= until {
            self.now = until;
            return false;
        }
        self.now = self.now.max(next);
        for (pipe, (rate, at, numbers)) in self.bottlenecks.iter_mut().zip(&mut self.cross) {
            while *at <= self.now {
                let burst = 1 + numbers.below(16);
                for _ in 0..burst {
                    pipe.send(self.now, false, CROSS, 0, &[0; 1500 - OVERHEAD]);
                }
                let gap = burst as f64 * 12_000.0 / *rate;
                *at += Duration::from_secs_f64(-gap * (1.0 - numbers.uniform()).ln());
            }
        }
        for b in 0..self.bottlenecks.len() {
            while self.bottlenecks[b].flying.front().is_some_and(|f| f.0 <= self.now)
                && let Some((_, tag, number, frames)) = self.bottlenecks[b].flying.pop_front()
            {
                if tag == CROSS {
                    continue;
                }
                if tag == CUBIC {
                    if let Some(cubic) = &mut self.cubic {
                        cubic.acks.push_back((self.now + cubic.extra, number));
                    }
                    continue;
                }
                let (flow, path) = (tag / PATHS_MAX, tag % PATHS_MAX);
                let (route, numbers, last) = &mut self.routes[flow][path];
                if numbers.chance(route.loss) {
                    continue;
                }
                let late = route.jitter.mul_f64(-(1.0 - numbers.uniform()).ln());
                let mut at = self.now + route.after + late;
                if flow == 0 {
                    at += self.stalls.saturating_sub(phase(at, 100));
                }
                let at = at.max(*last);
                *last = at;
                self.fly(at, Flight { stage: Stage::Sink, flow, path, number, frames });
            }
        }
        while let Some(entry) = self.flying.first_entry()
            && entry.key().0 <= self.now
        {
            let Flight { stage, flow, path, number, frames } = entry.remove();
            let id = PathId(path as u8);
            match stage {
                Stage::Bottleneck => {
                    let b = self.routes[flow][path].0.bottleneck;
                    let tag = flow * PATHS_MAX + path;
                    self.bottlenecks[b].send(self.now, false, tag, number, &frames);
                }
                Stage::Sink => self.ends[flow][0].handle(self.now, id, number, &frames).unwrap(),
                Stage::Source => self.ends[flow][1].handle(self.now, id, number, &frames).unwrap(),
            }
        }
        for end in self.ends.iter_mut().flatten() {
            if end.next_timeout().is_some_and(|t| t <= self.now) {
                end.handle_timeout(self.now);
            }
        }
        if let Some(cubic) = &mut self.cubic {
            cubic.run(self.now, &mut self.bottlenecks[0]);
            if cubic.delivered > self.progress.0 {
                self.progress = (cubic.delivered, self.now);
            } else if self.now.since(self.progress.1) > Duration::from_secs(1) {
                // All of it was lost, and it has no timer of its own.
                self.progress.1 = self.now;
                cubic.inflight.clear();
                cubic.window.on_congestion(self.now);
                cubic.run(self.now, &mut self.bottlenecks[0]);
            }
        }
        true
    }

    /// What each association gets until then, in Mbit/s.
    fn run(&mut self, until: Time) -> Vec<f64> {
        let (from, before) = (self.now, self.read.clone());
        while self.step(until) {}
        let seconds = (until - from).as_secs_f64();
        self.read.iter().zip(before).map(|(a, b)| (a - b) as f64 * 8e-6 / seconds).collect()
    }
}

impl World {
    /// The first association's first path was found to share its bottleneck.
    fn found(&self) -> bool {
        self.ends[0][1].shared.others(0).next().is_some()
    }

    /// The first association's sender recognises nothing from now on.
    fn be_blind(&mut self) {
        self.ends[0][1].shared = SharedBottlenecks::default();
    }
}

/// Two paths, or one, through one bottleneck beside somebody else.
struct Beside {
    mbps: u64,
    /// One way by each path, and by the first one for the other flow, in ms.
    ms: [u64; 2],
    /// That is a CUBIC sender, and not another association.
    cubic: bool,
}

impl Beside {
    /// What so many paths have of the bottleneck from then to then, in seconds; `blind`, if they are not recognised.
    fn share(&self, paths: usize, blind: bool, from: u64, to: u64) -> f64 {
        let mut w = World::new(1, &[self.mbps]);
        let jitter = Duration::from_micros(200);
        let routes = self.ms.map(|ms| Route { jitter, ..Route::new(0, ms / 2, ms - ms / 2) });
        w.add(&routes[..paths]);
        if self.cubic {
            let mut cubic = CubicFlow::new(2 * (routes[0].before + routes[0].after));
            cubic.run(w.now, &mut w.bottlenecks[0]);
            w.cubic = Some(cubic);
        } else {
            w.add(&routes[..1]);
        }
        if blind {
            w.be_blind();
        }
        w.run(Time::from_secs(from));
        let got = w.run(Time::from_secs(to));
        got[0] / (self.mbps as f64 * 0.955)
    }
}

/// SRP-44: paths through one bottleneck have together what one flow has beside another one, and not two flows' part.
#[test]
fn paths_through_one_bottleneck_have_one_flows_part() {
    for (mbps, ms) in [(20, [20, 20]), (10, [40, 60])] {
        let beside = Beside { mbps, ms, cubic: false };
        let [before, now] = [true, false].map(|blind| beside.share(2, blind, 20, 45));
        let what = std::format!("{mbps} Mbit/s, {ms:?} ms: {before:.2} {now:.2}");
        std::println!("{what}");
        assert!((0.4..=0.57).contains(&now) && before > now + 0.08, "{what}");
    }
}

/// SRP-44: three paths of which two share a bottleneck: these are found, and the third one is not taken for one of them.
#[test]
fn a_path_with_a_bottleneck_of_its_own_is_none_of_those_that_share_one() {
    let mut w = World::new(1, &[20, 20]);
    w.add(&[Route::new(0, 10, 10), Route::new(1, 10, 10), Route::new(0, 10, 30)]);
    w.add(&[Route::new(0, 10, 10)]);
    w.add(&[Route::new(1, 10, 10)]);
    w.run(Time::from_secs(20));
    let shared = &w.ends[0][1].shared;
    let others = [0, 1, 2].map(|path| shared.others(path).collect::<Vec<_>>());
    assert_eq!(others, [vec![2], vec![], vec![0]]);
    assert_eq!([0, 1, 2].map(|path| shared.share(path).sharers), [2, 1, 2]);
}

/// SRP-44: what shared a bottleneck and does not any more is told apart again.
#[test]
fn paths_that_part_are_told_apart() {
    let mut w = World::new(1, &[20, 20]);
    w.add(&[Route::new(0, 10, 10), Route::new(0, 10, 10)]);
    w.run(Time::from_secs(16));
    assert!(w.found());
    w.routes[0][1].0.bottleneck = 1;
    w.run(Time::from_secs(26));
    assert!(!w.found());
    let got = w.run(Time::from_secs(36));
    assert!(got[0] > 0.97 * 40.0 * 0.955, "{got:?}");
}

/// SRP-44: links that are equal in all are not taken for one for long, and being taken for one costs a path that is alone
/// hardly anything.
#[test]
fn links_that_are_alike_carry_all_that_they_can() {
    for (mbps, ms) in [(20, 20), (5, 50), (40, 5)] {
        for taken_for_one in [false, true] {
            let mut w = World::new(1, &[mbps; 2]);
            w.add(&[Route::new(0, ms / 2, ms / 2), Route::new(1, ms / 2, ms / 2)]);
            if taken_for_one {
                w.be_blind();
                for (path, skew) in w.ends[0][1].paths.iter_mut().zip([1.25, 0.75]) {
                    path.rate.set_share(Share { sharers: 2, skew });
                }
            }
            w.run(Time::from_secs(5));
            let (mut got, mut found) = (0.0, 0);
            for second in 6..=20 {
                got += w.run(Time::from_secs(second))[0] / 15.0;
                found += u32::from(w.found());
            }
            let share = got / (2.0 * mbps as f64 * 0.955);
            let what = std::format!("{mbps} Mbit/s, {ms} ms, {taken_for_one}: {share:.3}, {found}");
            std::println!("{what}");
            assert!(share > 0.98 && found <= 3, "{what}");
        }
    }
}

/// A pair of paths that is drawn at random.
struct Drawn {
    w: World,
    /// They share a bottleneck.
    is_shared: bool,
    /// Links of one kind if they do not.
    are_alike: bool,
}

/// No bottleneck is faster than so many Mbit/s.
fn draw(n: u64, fastest: f64) -> Drawn {
    let mut random = Seed::from_u64(n).stream("pair");
    let mut spread = |a: f64, b: f64| (a * (b / a).powf(random.uniform())).round() as u64;
    let mut rates = [(); 2].map(|()| spread(2.0, fastest));
    let mut delays = [(); 2].map(|()| [(); 2].map(|()| spread(2.0, 80.0)));
    let (is_shared, are_alike) = (n.is_multiple_of(2), n % 4 == 1);
    if are_alike {
        (rates[1], delays[1]) = (rates[0], delays[0]);
    }
    let mut w = World::new(n, &rates[..2 - usize::from(is_shared)]);
    let routes = [0, 1].map(|path| Route {
        loss: [0.0, 0.0, 0.02][random.below(3) as usize],
        jitter: Duration::from_micros([0, 200, 1000][random.below(3) as usize]),
        ..Route::new(if is_shared { 0 } else { path }, delays[path][0], delays[path][1])
    });
    w.add(&routes);
    for bottleneck in 0..w.bottlenecks.len() {
        match random.below(4) {
            0 => {}
            1 => w.add_cross(bottleneck, 0.3),
            _ => {
                let ms = 5 + random.below(60);
                w.add(&[Route::new(bottleneck, ms / 2, ms / 2)]);
            }
        }
    }
    w.stalls = Duration::from_millis([0, 0, 2, 10][random.below(4) as usize]);
    w.pauses = Duration::from_millis([0, 0, 0, 100, 1000][random.below(5) as usize]);
    Drawn { w, is_shared, are_alike }
}

/// Pairs drawn at random of one kind.
#[derive(Clone, Copy, Default)]
struct Told {
    pairs: u32,
    /// Found to share a bottleneck after 10, 15 and 30 s.
    found: [u32; 3],
    /// Seconds of those from the 15th to the 30th in which they were taken for that.
    seconds: u32,
}

/// What is told of so many pairs: of those that share a bottleneck, of those that do and whose sender pauses, of links that
/// are alike, and of others.
fn told(pairs: Range<u64>, fastest: f64) -> [Told; 4] {
    let mut told = [Told::default(); 4];
    for n in pairs {
        let Drawn { mut w, is_shared, are_alike } = draw(n, fastest);
        let pauses = w.pauses >= Duration::from_secs(1);
        let told = &mut told[match (is_shared, are_alike) {
            (true, _) => usize::from(pauses),
            (false, alike) => 3 - usize::from(alike),
        }];
        told.pairs += 1;
        for second in 1..=30 {
            w.run(Time::from_secs(second));
            let found = u32::from(w.found());
            for (count, at) in told.found.iter_mut().zip([10, 15, 30]) {
                *count += if second == at { found } else { 0 };
            }
            told.seconds += if second > 15 { found } else { 0 };
        }
    }
    told
}

/// SRP-44: paths that share a bottleneck are found, and others are not taken for that.
#[test]
fn shared_bottlenecks_are_told_from_others() {
    let [shared, _, alike, others] = told(0..16, 10.0);
    assert_eq!(shared.found[1..], [shared.pairs; 2]);
    assert_eq!((alike.found, others.found), ([0; 3], [0; 3]));
    assert!(shared.pairs >= 4 && alike.pairs >= 3 && others.pairs >= 3);
}

/// Prints the figures of docs/links.md.
#[test]
#[ignore = "takes minutes"]
fn figures_of_how_shared_bottlenecks_are_told() {
    for (what, told) in
        ["shared", "shared, pauses", "alike", "others"].iter().zip(told(0..200, 100.0))
    {
        let Told { pairs, found, seconds } = told;
        let time = f64::from(seconds) / (15.0 * f64::from(pairs));
        std::println!("{what}: {pairs} pairs, found after 10, 15, 30 s: {found:?}, time {time:.3}");
    }
}

/// Prints the figures of docs/links.md.
#[test]
#[ignore = "takes minutes"]
fn figures_of_what_paths_through_one_bottleneck_have() {
    for cubic in [false, true] {
        for mbps in [5, 20, 50] {
            for ms in [[20, 20], [20, 60], [60, 20]] {
                let beside = Beside { mbps, ms, cubic };
                let [one, before, now] = [(1, true), (2, true), (2, false)]
                    .map(|(paths, blind)| beside.share(paths, blind, 40, 80));
                std::println!("{mbps} {ms:?} cubic {cubic}: {one:.2} {before:.2} {now:.2}");
            }
        }
    }
}
