//! Two ends over a small lossy hop in virtual time.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use lasthop_units::{Bytes, LinkEvent, Rate, Seed, Stream as Numbers, Time};

use super::*;
use crate::streams::{StreamId, Streams};

const OVERHEAD: usize = 54;

/// One direction: rate, delay, a short queue, loss after transmission, silences.
struct Pipe {
    rate: Rate,
    delay: Duration,
    queue: usize,
    loss: f64,
    numbers: Numbers,
    busy_until: Time,
    flying: VecDeque<(Time, usize, u64, Vec<u8>)>,
    offered: u64,
    dropped: u64,
    queued_ns: f64,
    /// Datagrams larger than this vanish.
    mtu: usize,
}

impl Pipe {
    fn new(seed: u64, name: &str) -> Self {
        Self {
            rate: Rate::from_mbps(20),
            delay: Duration::from_millis(20),
            queue: 100,
            loss: 0.0,
            numbers: Seed::from_u64(seed).stream(name),
            busy_until: Time::ZERO,
            flying: VecDeque::new(),
            offered: 0,
            dropped: 0,
            queued_ns: 0.0,
            mtu: 1500,
        }
    }

    fn send(&mut self, now: Time, silent: bool, pair: usize, number: u64, frames: &[u8]) -> bool {
        let size = frames.len() + OVERHEAD;
        self.offered += 1;
        let full = self.rate.time_for(Bytes::new(1500)) * self.queue as u32;
        let waiting = self.busy_until.since(now);
        if waiting > full {
            self.dropped += 1;
            return false;
        }
        self.queued_ns += waiting.as_nanos() as f64;
        self.busy_until = self.busy_until.max(now) + self.rate.time_for(Bytes::from(size));
        if !self.numbers.chance(self.loss) && !silent && size <= self.mtu {
            self.flying.push_back((self.busy_until + self.delay, pair, number, frames.to_vec()));
        }
        true
    }
}

struct World {
    now: Time,
    ends: Vec<[Srp; 2]>,
    pipes: [Pipe; 2],
    silences: Vec<(Time, Time)>,
    cubic: Option<CubicFlow>,
}

const CUBIC: usize = usize::MAX;

/// A loss-driven sender of full datagrams down the hop, to live beside.
struct CubicFlow {
    window: super::cubic::Cubic,
    next: u64,
    inflight: VecDeque<(u64, Time)>,
    acks: VecDeque<(Time, u64)>,
    extra: Duration,
    srtt: Duration,
    recover: u64,
    delivered: u64,
    slow_start: bool,
}

impl CubicFlow {
    fn run(&mut self, now: Time, pipe: &mut Pipe) {
        while let Some((_, number)) = self.acks.pop_front_if(|a| a.0 <= now) {
            let mut lost = false;
            while let Some((n, at)) = self.inflight.pop_front_if(|f| f.0 <= number) {
                lost |= n < number;
                if n == number {
                    self.srtt = (self.srtt * 7 + now.since(at)) / 8;
                }
            }
            self.delivered += 1500;
            if lost && number >= self.recover {
                self.recover = self.next;
                self.slow_start = false;
                self.window.on_congestion(now);
            } else if self.slow_start {
                self.window = super::cubic::Cubic::start(now, self.window.window() + 1500.0, 1500);
            } else {
                self.window.on_progress(now, self.srtt);
            }
        }
        while (self.inflight.len() as f64 + 1.0) * 1500.0 < self.window.window() {
            self.next += 1;
            self.inflight.push_back((self.next, now));
            pipe.send(now, false, CUBIC, self.next, &[0; 1500 - OVERHEAD]);
        }
    }
}


impl World {
    fn new(seed: u64) -> Self {
        Self::with(seed, HopConfig::default())
    }

    fn with(seed: u64, config: HopConfig) -> Self {
        let end = |role| {
            let limits = Limits::of(&config);
            let end = Srp::new(config.clone(), role, limits, OVERHEAD, Time::ZERO);
                        end
        };
        Self {
            now: Time::ZERO,
            ends: vec![[end(Role::Mobile), end(Role::Base)]],
            pipes: [Pipe::new(seed, "up"), Pipe::new(seed, "down")],
            silences: Vec::new(),
            cubic: None,
        }
    }

    fn is_silent(&self, at: Time) -> bool {
        self.silences.iter().any(|(a, b)| (*a..*b).contains(&at))
    }

    fn transmit(&mut self) {
        let mut buf = [0; 2000];
        for pair in 0..self.ends.len() {
            for side in 0..2 {
                while let Some(p) = self.ends[pair][side].poll(self.now, &mut buf) {
                    let silent = self.is_silent(self.now);
                    self.pipes[side].send(self.now, silent, pair, p.number, &buf[..p.len]);
                }
            }
        }
    }

    /// Runs to the next event, at most to `until`; false once there.
    fn step(&mut self, until: Time) -> bool {
        self.transmit();
        let arrivals = self.pipes.iter().filter_map(|p| p.flying.front().map(|f| f.0));
        let timers = self.ends.iter().flatten().filter_map(Srp::next_timeout);
        let acks = self.cubic.iter().filter_map(|c| c.acks.front().map(|a| a.0));
        let next = arrivals.chain(timers).chain(acks).min().unwrap_or(Time::NEVER);
        if next >= until {
            self.now = until;
            return false;
        }
        self.now = self.now.max(next);
        for side in 0..2 {
            while let Some(f) = self.pipes[side].flying.pop_front_if(|f| f.0 <= self.now) {
                if let Some(cubic) = &mut self.cubic
                    && f.1 == CUBIC
                {
                    if side == 1 {
                        cubic.acks.push_back((self.now + cubic.extra, f.2));
                    }
                } else if !self.is_silent(self.now) {
                    self.ends[f.1][1 - side].handle(self.now, f.2, &f.3).unwrap();
                }
            }
        }
        for end in self.ends.iter_mut().flatten() {
            if end.next_timeout().is_some_and(|t| t <= self.now) {
                end.handle_timeout(self.now);
            }
        }
        if let Some(mut cubic) = self.cubic.take() {
            cubic.run(self.now, &mut self.pipes[1]);
            self.cubic = Some(cubic);
        }
        true
    }
}

fn byte(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// A transfer from `from`: keeps its stream full, reads and checks at the other end.
struct Bulk {
    pair: usize,
    from: usize,
    id: StreamId,
    size: u64,
    written: u64,
    read: u64,
    first_byte: Time,
    progress: Vec<(Time, u64)>,
}

impl Bulk {
    fn start(w: &mut World, from: usize, size: u64) -> Self {
        Self::start_on(w, 0, from, size)
    }

    fn start_on(w: &mut World, pair: usize, from: usize, size: u64) -> Self {
        let id = w.ends[pair][from].open().unwrap();
        Self { pair, from, id, size, written: 0, read: 0, first_byte: Time::NEVER, progress: vec![] }
    }

    fn pump(&mut self, w: &mut World) {
        let sender = &mut w.ends[self.pair][self.from];
        while self.written < self.size {
            let Ok(room) = sender.send_space(self.id) else { break };
            let n = room.len().min((self.size - self.written) as usize);
            if n == 0 {
                break;
            }
            room[..n].iter_mut().zip(self.written..).for_each(|(b, o)| *b = byte(o));
            sender.commit(self.id, n);
            self.written += n as u64;
            if self.written == self.size {
                sender.finish(self.id);
            }
        }
        let receiver = &mut w.ends[self.pair][1 - self.from];
        while receiver.poll_event().is_some() {}
        loop {
            let data = receiver.received(self.id);
            if data.is_empty() {
                break;
            }
            for (b, o) in data.iter().zip(self.read..) {
                assert_eq!(*b, byte(o), "offset {o}");
            }
            let n = data.len();
            receiver.consume(self.id, n);
            self.read += n as u64;
            self.first_byte = self.first_byte.min(w.now);
            self.progress.push((w.now, self.read));
        }
        while w.ends[self.pair][self.from].poll_event().is_some() {}
    }

    /// Until all is read or `until` is reached.
    fn run(&mut self, w: &mut World, until: Time) {
        while self.read < self.size {
            self.pump(w);
            if !w.step(until) {
                break;
            }
        }
        self.pump(w);
    }

    fn goodput(&self, from: Time, to: Time) -> f64 {
        let at = |t| self.progress.iter().take_while(|p| p.0 <= t).last().map_or(0, |p| p.1);
        (at(to) - at(from)) as f64 * 8.0 / (to - from).as_secs_f64()
    }
}

const FOREVER: u64 = u64::MAX / 4;

fn trace(rate_mbps: u64, delay_ms: u64, loss: f64, seconds: u64, every_ms: u64) {
    let mut w = World::new(2);
    for p in &mut w.pipes {
        p.rate = Rate::from_mbps(rate_mbps);
        p.delay = Duration::from_millis(delay_ms);
        p.loss = loss;
    }
    let mut bulk = Bulk::start(&mut w, 1, FOREVER);
    let mut t = Time::ZERO;
    while t < Time::from_secs(seconds) {
        let u = t + Duration::from_millis(every_ms);
        bulk.run(&mut w, u);
        let s = w.ends[0][1].stats();
        std::println!("{u} good {:.2} pacing {:.3} delivery {:.3} q {:?} real q {:.1} ms inflight {} srtt {:?} loss {:.3} dropped {} {}",
            bulk.goodput(t, u) / 1e6, s.pacing_rate.as_bps() as f64 / 1e6, s.delivery_rate.as_bps() as f64 / 1e6, s.queue,
            w.pipes[1].busy_until.since(w.now).as_secs_f64() * 1e3, s.inflight, s.srtt, s.loss, w.pipes[1].dropped, w.ends[0][1].rate_debug());
        t = u;
    }
}

#[test]
fn look() {
    let v: Vec<f64> = std::env::var("LOOK").unwrap_or_default().split_whitespace().map(|x| x.parse().unwrap()).collect();
    if v.len() == 5 {
        trace(v[0] as u64, v[1] as u64, v[2], v[3] as u64, v[4] as u64);
    }
}

fn share(rate_mbps: u64, delay_ms: u64, loss: f64, seconds: u64, seed: u64) -> (f64, f64, f64) {
    let mut w = World::new(seed);
    for p in &mut w.pipes {
        p.rate = Rate::from_mbps(rate_mbps);
        p.delay = Duration::from_millis(delay_ms);
        p.loss = loss;
    }
    let mut bulk = Bulk::start(&mut w, 1, FOREVER);
    let from = Time::from_secs(seconds / 3);
    bulk.run(&mut w, from);
    let p = &mut w.pipes[1];
    (p.offered, p.dropped, p.queued_ns) = (0, 0, 0.0);
    bulk.run(&mut w, Time::from_secs(seconds));
    let limit = rate_mbps as f64 * 1e6 * (1.0 - loss) * 1448.0 / 1500.0;
    let p = &w.pipes[1];
    let drops = p.dropped as f64 / p.offered as f64;
    let queue_ms = p.queued_ns / 1e6 / (p.offered - p.dropped) as f64;
    (bulk.goodput(from, Time::from_secs(seconds)) / limit, drops, queue_ms)
}

#[test]
fn random_loss_costs_only_itself() {
    for loss in [0.0, 0.05, 0.1, 0.2, 0.3] {
        let (share, drops, queue_ms) = share(20, 20, loss, 12, 1);
        std::println!("loss {loss}: {share:.3} of the limit, drops {drops:.4}, queue {queue_ms:.1}");
        assert!(share > 0.95 && drops < 0.03 && queue_ms < 20.0, "{loss} {share} {drops}");
    }
}

#[test]
fn matrix() {
    for (rate, delay, seconds) in
        [(2, 5, 20), (2, 20, 20), (2, 300, 60), (20, 5, 12), (20, 300, 40), (100, 5, 12), (100, 20, 12), (100, 300, 60)]
    {
        for loss in [0.0, 0.1, 0.3] {
            let (share, drops, queue_ms) = share(rate, delay, loss, seconds, 2);
            std::println!(
                "{rate} Mbit/s {delay} ms loss {loss}: {share:.3} drops {drops:.4} queue {queue_ms:.1} ms of {}",
                delay * 2
            );
        }
    }
}

#[test]
fn silences() {
    for loss in [0.0, 0.05] {
        for length in [1000, 2800, 5000, 60_000] {
            for seed in 0..5 {
                let mut w = World::new(seed);
                w.pipes.iter_mut().for_each(|p| p.loss = loss);
                let (from, to) = (Time::from_secs(4), Time::from_millis(4000 + length));
                w.silences.push((from, to));
                let mut bulk = Bulk::start(&mut w, 1, FOREVER);
                let end = to + Duration::from_secs(5);
                bulk.run(&mut w, end);
                let first = bulk.progress.iter().find(|p| p.0 > to).map(|p| (p.0 - to).as_secs_f64());
                let later = to + Duration::from_secs(1);
                std::println!(
                    "silence {length} loss {loss} seed {seed}: first {first:?} in first second {:.3} then {:.3} probes {}",
                    bulk.goodput(to, later) / 19.3e6 / (1.0 - loss),
                    bulk.goodput(later, end) / 19.3e6 / (1.0 - loss),
                    w.ends[0][1].stats().probes,
                );
            }
        }
    }
}

#[test]
fn steps() {
    let mut w = World::new(1);
    let mut bulk = Bulk::start(&mut w, 1, FOREVER);
    for (at, rate) in [(6, 20), (14, 4), (20, 20)] {
        let until = Time::from_secs(at);
        bulk.run(&mut w, until);
        w.pipes[1].rate = Rate::from_mbps(rate);
    }
    let _ = LinkEvent::Up;
    // rates are set after each run: 20 until 6, 20 until 14, 4 until 20, 20 after
    for ms in (13_500..25_000).step_by(100) {
        let t = Time::from_millis(ms);
        bulk.run(&mut w, t);
        std::println!("{ms} {:.2} {:?}", bulk.goodput(t - Duration::from_millis(100), t) / 1e6, w.ends[0][1].stats().queue);
    }
}

fn jain(x: &[f64]) -> f64 {
    let sum: f64 = x.iter().sum();
    sum * sum / (x.len() as f64 * x.iter().map(|x| x * x).sum::<f64>())
}

#[test]
fn fairness() {
    for (loss, late, delay2) in [(0.0, 0, 20), (0.0, 5, 20), (0.05, 0, 20), (0.1, 5, 20), (0.0, 20, 20)] {
        let mut w = World::new(3);
        let mut other = World::new(4);
        w.ends.push(other.ends.pop().unwrap());
        w.pipes.iter_mut().for_each(|p| p.loss = loss);
        let _ = delay2;
        let mut a = Bulk::start_on(&mut w, 0, 1, FOREVER);
        a.run(&mut w, Time::from_secs(late));
        let mut b = Bulk::start_on(&mut w, 1, 1, FOREVER);
        let end = Time::from_secs(late + 30);
        loop {
            a.pump(&mut w);
            b.pump(&mut w);
            if !w.step(end) {
                break;
            }
        }
        let from = Time::from_secs(late);
        let x = [a.goodput(from, end) / 1e6, b.goodput(from, end) / 1e6];
        let sum = (x[0] + x[1]) / 19.3 / (1.0 - loss);
        let p = &w.pipes[1];
        std::println!("loss {loss} late {late}: {x:.2?} jain {:.3} sum {sum:.3} queue {:.1} drops {}", jain(&x), p.queued_ns / 1e6 / p.offered as f64, p.dropped);
        for s in 0..30 {
            let t = from + Duration::from_secs(s);
            let u = t + Duration::from_secs(1);
            std::print!("{:.1}/{:.1} ", a.goodput(t, u) / 1e6, b.goodput(t, u) / 1e6);
        }
        std::println!();
    }
}

#[test]
fn beside_cubic() {
    for (loss, late, srp_first) in [(0.0, 0, true), (0.0, 5, true), (0.0, 5, false)] {
        let mut w = World::new(3);
        w.pipes.iter_mut().for_each(|p| p.loss = loss);
        let flow = CubicFlow {
            window: super::cubic::Cubic::start(Time::ZERO, 15_000.0, 1500),
            next: 0, inflight: VecDeque::new(), acks: VecDeque::new(),
            extra: Duration::from_millis(70), srtt: Duration::from_millis(90), recover: 0, delivered: 0, slow_start: true,
        };
        let mut a = Bulk::start_on(&mut w, 0, 1, FOREVER);
        if srp_first {
            a.run(&mut w, Time::from_secs(late));
            w.cubic = Some(flow);
            w.cubic.as_mut().unwrap().run(w.now, &mut w.pipes[1]);
        } else {
            w.cubic = Some(flow);
            w.cubic.as_mut().unwrap().run(w.now, &mut w.pipes[1]);
            while w.step(Time::from_secs(late)) {}
        }
        let from = Time::from_secs(late);
        let before = w.cubic.as_ref().unwrap().delivered;
        let mut last = before;
        for s in 1..=30 {
            let until = from + Duration::from_secs(s);
            a.run(&mut w, until);
            let d = w.cubic.as_ref().unwrap().delivered;
            std::println!("{:.1}/{:.1} q {:?} {} cubic {:.0}", a.goodput(until - Duration::from_secs(1), until) / 1e6, (d - last) as f64 * 8.0 / 1e6, w.ends[0][1].stats().queue, w.ends[0][1].rate_debug(), w.cubic.as_ref().unwrap().window.window());
            last = d;
        }
        let x = [a.goodput(from, w.now) / 1e6, (last - before) as f64 * 8.0 / 30e6];
        std::println!("\nlate {late} srp first {srp_first}: {x:.2?} jain {:.3}", jain(&x));
    }
}
