//! Two ends over a small lossy hop in virtual time.

mod detached;
mod memory;
mod packets;
mod paths;
mod priority;
mod rate;
mod repair;
mod streams;
mod windowed;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use lasthop_units::{Bytes, Rate, Seed, Stream as Numbers, Time};

use super::*;
use crate::streams::{StreamId, Streams};
use crate::transport::{CloseReason, Transport as _};

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
    lost: u64,
    queued_ns: f64,
    /// Datagrams larger than this vanish.
    mtu: usize,
    largest: usize,
    /// Says of a datagram, by time and number, that it is lost.
    loses: Option<Box<dyn FnMut(Time, u64) -> bool>>,
    /// One datagram in so many is late by this much.
    late: Option<(u64, Duration)>,
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
            lost: 0,
            queued_ns: 0.0,
            mtu: 1500,
            largest: 0,
            loses: None,
            late: None,
        }
    }

    fn send(&mut self, now: Time, silent: bool, pair: usize, number: u64, frames: &[u8]) {
        let size = frames.len() + OVERHEAD;
        self.offered += 1;
        let full = self.rate.time_for(Bytes::new(1500)) * self.queue as u32;
        let waiting = self.busy_until.since(now);
        if waiting > full {
            self.dropped += 1;
            return;
        }
        self.queued_ns += waiting.as_nanos() as f64;
        self.busy_until = self.busy_until.max(now) + self.rate.time_for(Bytes::from(size));
        self.largest = self.largest.max(size);
        let chosen = self.loses.as_mut().is_some_and(|f| f(now, number));
        let lost = chosen || self.numbers.chance(self.loss);
        self.lost += u64::from(lost);
        if !lost && !silent && size <= self.mtu {
            let late =
                self.late.filter(|l| number.is_multiple_of(l.0)).map_or(Duration::ZERO, |l| l.1);
            let at = self.busy_until + self.delay + late;
            let place = self.flying.partition_point(|f| f.0 <= at);
            self.flying.insert(place, (at, pair, number, frames.to_vec()));
        }
    }
}

struct Pairs {
    now: Time,
    ends: Vec<[Srp; 2]>,
    pipes: [Pipe; 2],
    silences: Vec<(Time, Time)>,
    /// Steps in which no time has passed.
    idle_steps: usize,
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
    fn new(extra: Duration) -> Self {
        Self {
            window: super::cubic::Cubic::start(Time::ZERO, 15_000.0, 1500),
            next: 0,
            inflight: VecDeque::new(),
            acks: VecDeque::new(),
            extra,
            srtt: Duration::from_millis(90),
            recover: 0,
            delivered: 0,
            slow_start: true,
        }
    }

    /// One that has nothing to send.
    fn silent() -> Self {
        Self {
            window: super::cubic::Cubic::start(Time::ZERO, 0.0, 1500),
            slow_start: false,
            ..Self::new(Duration::ZERO)
        }
    }

    fn run(&mut self, now: Time, pipe: &mut Pipe) {
        while self.acks.front().is_some_and(|a| a.0 <= now)
            && let Some((_, number)) = self.acks.pop_front()
        {
            let mut lost = false;
            while self.inflight.front().is_some_and(|f| f.0 <= number)
                && let Some((n, at)) = self.inflight.pop_front()
            {
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

/// The ends of an association whose sides have these configurations.
fn pair(mobile: &HopConfig, base: &HopConfig, now: Time) -> [Srp; 2] {
    let end =
        |own: &HopConfig, role, peer| Srp::new(own.clone(), role, Limits::of(peer), OVERHEAD, now);
    [end(mobile, Role::Mobile, base), end(base, Role::Base, mobile)]
}

impl Pairs {
    fn new(seed: u64) -> Self {
        Self::with(seed, HopConfig::default())
    }

    fn with(seed: u64, config: HopConfig) -> Self {
        Self {
            now: Time::ZERO,
            ends: vec![pair(&config, &config, Time::ZERO)],
            pipes: [Pipe::new(seed, "up"), Pipe::new(seed, "down")],
            silences: Vec::new(),
            idle_steps: 0,
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
        self.idle_steps = if next <= self.now { self.idle_steps + 1 } else { 0 };
        assert!(self.idle_steps < 100_000, "a timer is due again and again at {:?}", self.now);
        self.now = self.now.max(next);
        for side in 0..2 {
            while self.pipes[side].flying.front().is_some_and(|f| f.0 <= self.now)
                && let Some(f) = self.pipes[side].flying.pop_front()
            {
                if let Some(cubic) = &mut self.cubic
                    && f.1 == CUBIC
                {
                    if side == 1 {
                        cubic.acks.push_back((self.now + cubic.extra, f.2));
                    }
                } else if !self.is_silent(self.now) {
                    self.ends[f.1][1 - side].handle(self.now, PathId::FIRST, f.2, &f.3).unwrap();
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

/// Eight bytes that stand nowhere else: bulk transfers would spend half their time on making one by one.
fn word(number: u64) -> [u8; 8] {
    (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
}

/// What a transfer carries at this offset.
fn byte(offset: u64) -> u8 {
    word(offset / 8)[(offset % 8) as usize]
}

/// Writes what a transfer carries from this offset on.
fn fill(room: &mut [u8], offset: u64) {
    let before = (offset.next_multiple_of(8) - offset) as usize;
    let (first, rest) = room.split_at_mut(before.min(room.len()));
    first.iter_mut().zip(offset..).for_each(|(b, o)| *b = byte(o));
    for (eight, number) in rest.chunks_mut(8).zip(offset.div_ceil(8)..) {
        eight.copy_from_slice(&word(number)[..eight.len()]);
    }
}

/// Looks at every byte of what came from this offset on.
#[track_caller]
fn check(data: &[u8], offset: u64) {
    let mut expected = [0; 1024];
    for (data, offset) in data.chunks(expected.len()).zip((offset..).step_by(1024)) {
        let expected = &mut expected[..data.len()];
        fill(expected, offset);
        if data != expected {
            let wrong = data.iter().zip(expected).position(|(b, e)| b != e).unwrap();
            panic!("offset {}", offset + wrong as u64);
        }
    }
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
    fn start(w: &mut Pairs, from: usize, size: u64) -> Self {
        Self::start_on(w, 0, from, size)
    }

    fn start_on(w: &mut Pairs, pair: usize, from: usize, size: u64) -> Self {
        let id = w.ends[pair][from].open().unwrap();
        Self {
            pair,
            from,
            id,
            size,
            written: 0,
            read: 0,
            first_byte: Time::NEVER,
            progress: vec![],
        }
    }

    fn pump(&mut self, w: &mut Pairs) {
        let sender = &mut w.ends[self.pair][self.from];
        while self.written < self.size {
            let Ok(room) = sender.send_space(self.id) else { break };
            let n = room.len().min((self.size - self.written) as usize);
            if n == 0 {
                break;
            }
            fill(&mut room[..n], self.written);
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
            check(data, self.read);
            let n = data.len();
            receiver.consume(self.id, n);
            self.read += n as u64;
            self.first_byte = self.first_byte.min(w.now);
            self.progress.push((w.now, self.read));
        }
        while w.ends[self.pair][self.from].poll_event().is_some() {}
    }

    /// Until all is read or `until` is reached.
    fn run(&mut self, w: &mut Pairs, until: Time) {
        while self.read < self.size {
            self.pump(w);
            if !w.step(until) {
                break;
            }
        }
        self.pump(w);
    }

    /// From delivery to delivery: where holes are repaired slowly, bytes come in heaps.
    fn mean_goodput(&self, from: Time) -> f64 {
        let first = self.progress.iter().find(|p| p.0 >= from);
        match (first, self.progress.last()) {
            (Some(a), Some(b)) if b.0 > a.0 => (b.1 - a.1) as f64 * 8.0 / (b.0 - a.0).as_secs_f64(),
            _ => 0.0,
        }
    }

    fn goodput(&self, from: Time, to: Time) -> f64 {
        let at = |t| self.progress.iter().take_while(|p| p.0 <= t).last().map_or(0, |p| p.1);
        (at(to) - at(from)) as f64 * 8.0 / (to - from).as_secs_f64()
    }
}

const FOREVER: u64 = u64::MAX / 4;
