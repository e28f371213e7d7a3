//! Two ends of SRP, driven by any sequence of operations of applications and hop.
//!
//! On an honest hop, which loses, delays and reorders, every byte read is the byte written there, and
//! once the hop loses nothing everything comes to its end. A hostile peer may send any frames; it
//! causes no panic, and no more memory than the limits allow.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use lasthop_hop::srp::Srp;
use lasthop_hop::{
    HopConfig, Limits, PathId, RecvState, Role, StreamEvent, StreamId, Streams, Transport as _,
};
use lasthop_units::{Bytes, Time};

const OVERHEAD: usize = 54;
const STREAM_MEMORY: u64 = 64 << 10;
const MEMORY: u64 = 256 << 10;
/// Datagrams that the hop holds in each direction; later ones are lost.
const HOP_QUEUE: usize = 64;
/// More datagrams than that at one instant would be a sender that does not stop.
const BURST: usize = 10_000;
const CALM_STEPS: usize = 20_000;

fn config() -> HopConfig {
    HopConfig {
        stream_window: Bytes::from_kib(4),
        stream_memory: Bytes::new(STREAM_MEMORY),
        association_window: Bytes::from_kib(16),
        association_memory: Bytes::new(MEMORY),
        streams_max: 8,
        ..HopConfig::default()
    }
}

fn byte(stream: u64, offset: u64) -> u8 {
    ((stream << 32 | offset).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// What one end has done with a stream.
#[derive(Default)]
struct Half {
    written: u64,
    read: u64,
    finished: bool,
    reset: bool,
}

struct Pair {
    now: Time,
    ends: [Srp; 2],
    halves: [BTreeMap<u64, Half>; 2],
    /// What each end has sent and the hop still holds.
    hop: [VecDeque<(u64, Vec<u8>)>; 2],
    /// The peer has said what it liked, so that contents mean nothing any more.
    hostile: bool,
}

impl Pair {
    fn new() -> Self {
        let end = |role| Srp::new(config(), role, Limits::of(&config()), OVERHEAD, Time::ZERO);
        Self {
            now: Time::ZERO,
            ends: [end(Role::Mobile), end(Role::Base)],
            halves: Default::default(),
            hop: Default::default(),
            hostile: false,
        }
    }

    /// The stream that a number picks among those that an end knows.
    fn pick(&self, side: usize, choice: u8) -> Option<u64> {
        let known = &self.halves[side];
        known.keys().nth(usize::from(choice) % known.len().max(1)).copied()
    }

    fn half(&mut self, side: usize, id: u64) -> &mut Half {
        self.halves[side].entry(id).or_default()
    }

    fn write(&mut self, side: usize, id: u64, amount: u64) {
        let from = self.half(side, id).written;
        let data: Vec<u8> = (from..from + amount).map(|offset| byte(id, offset)).collect();
        let taken = self.ends[side].write(StreamId(id), &data).unwrap_or(0);
        self.half(side, id).written += taken as u64;
    }

    fn read(&mut self, side: usize, id: u64, amount: usize) {
        let data = self.ends[side].received(StreamId(id));
        let taken = data.len().min(amount);
        let from = self.halves[side].get(&id).map_or(0, |half| half.read);
        if !self.hostile {
            let right = (from..).map(|offset| byte(id, offset));
            assert!(data[..taken].iter().copied().eq(right.take(taken)), "stream {id} at {from}");
        }
        self.ends[side].consume(StreamId(id), taken);
        self.half(side, id).read += taken as u64;
    }

    fn finish(&mut self, side: usize, id: u64) {
        self.ends[side].finish(StreamId(id));
        self.half(side, id).finished = true;
    }

    fn reset(&mut self, side: usize, id: u64) {
        self.ends[side].reset(StreamId(id), 7);
        self.half(side, id).reset = true;
    }

    fn deliver(&mut self, to: usize, place: usize) {
        let Some((number, frames)) = self.hop[1 - to].remove(place) else { return };
        let read = self.ends[to].handle(self.now, PathId::FIRST, number, &frames);
        assert!(self.hostile || read.is_ok(), "{read:?}");
    }

    /// What follows from any operation: events are heard, due datagrams leave.
    fn settle(&mut self) {
        for side in 0..2 {
            while let Some(event) = self.ends[side].poll_event() {
                if let StreamEvent::Incoming(id) = event {
                    self.half(side, id.0);
                }
            }
            self.send(side);
            let memory = self.ends[side].stats().memory.get();
            assert!(memory <= 2 * MEMORY + 8 * STREAM_MEMORY, "{memory} bytes are held");
        }
    }

    fn send(&mut self, side: usize) {
        let mut out = [0; 2000];
        let mut sent = 0;
        while let Some(packet) = self.ends[side].poll(self.now, &mut out) {
            sent += 1;
            assert!(sent < BURST, "an end does not stop sending");
            if self.hop[side].len() < HOP_QUEUE {
                self.hop[side].push_back((packet.number, out[..packet.len].to_vec()));
            }
        }
    }

    fn advance(&mut self, by: Duration) {
        self.now += by;
        for end in &mut self.ends {
            if end.next_timeout().is_some_and(|at| at <= self.now) {
                end.handle_timeout(self.now);
            }
        }
    }

    fn operate(&mut self, operation: u8, argument: u8) {
        let side = usize::from(operation & 1);
        let picked = self.pick(side, argument >> 4);
        match (operation >> 1 & 15, picked) {
            (0, _) => {
                if let Ok(id) = self.ends[side].open() {
                    self.half(side, id.0);
                }
            }
            (1..=3, Some(id)) => self.write(side, id, 1 << (argument & 15)),
            (4 | 5, Some(id)) => self.read(side, id, 1 << (argument & 15)),
            (6, Some(id)) => self.finish(side, id),
            (7, Some(id)) if argument & 15 == 0 => self.reset(side, id),
            (8, _) => drop(self.hop[side].remove(usize::from(argument))),
            (9, _) => self.deliver(side, usize::from(argument)),
            (10..=12, _) => (0..argument / 4).for_each(|_| self.deliver(side, 0)),
            _ => {
                self.advance(Duration::from_millis(u64::from(argument) * u64::from(argument) / 64))
            }
        }
        self.settle();
    }

    /// A peer that keeps to nothing sends these frames.
    fn invade(&mut self, side: usize, number: u64, frames: &[u8]) {
        self.hostile = true;
        let _ = self.ends[side].handle(self.now, PathId::FIRST, number, frames);
        self.settle();
    }

    /// Whether an end has nothing more to wait for on a stream.
    fn is_over(&self, side: usize, id: u64) -> bool {
        let peer = self.halves[1 - side].get(&id);
        let given_up = |half: &Half| half.reset;
        if self.halves[side].get(&id).is_some_and(given_up) || peer.is_some_and(given_up) {
            return true;
        }
        let sent = peer.map_or(0, |half| half.written);
        let read = self.halves[side].get(&id).map_or(0, |half| half.read);
        read == sent && self.ends[side].recv_state(StreamId(id)) == RecvState::Finished
    }

    /// From here on the hop loses nothing and applications read and end what they have.
    fn come_to_an_end(&mut self) {
        for _ in 0..CALM_STEPS {
            for side in 0..2 {
                while !self.hop[1 - side].is_empty() {
                    self.deliver(side, 0);
                }
            }
            self.settle();
            for side in 0..2 {
                let ids: Vec<u64> = self.halves[side].keys().copied().collect();
                for id in ids {
                    self.read(side, id, usize::MAX);
                    if !self.halves[side][&id].finished {
                        self.finish(side, id);
                    }
                }
            }
            self.settle();
            let over = |side: usize| self.halves[side].keys().all(|id| self.is_over(side, *id));
            let met = |id| self.halves[1].contains_key(id) || self.is_over(0, *id);
            if over(0) && over(1) && self.halves[0].keys().all(met) {
                return;
            }
            let next = self.ends.iter().filter_map(Srp::next_timeout).min();
            let wait = next.map_or(Duration::from_millis(1), |at| at.since(self.now));
            self.advance(wait.clamp(Duration::from_micros(100), Duration::from_secs(1)));
        }
        panic!("something is left when nothing stands in the way");
    }
}

/// One input: operations of two bytes each. A first byte of 255 gives what follows it, up to the
/// length in the second, to a hostile peer instead.
pub fn run(mut bytes: &[u8]) {
    let mut world = Pair::new();
    let mut forged = 1 << 20;
    while let [operation, argument, rest @ ..] = bytes {
        bytes = rest;
        if *operation == 255 {
            let (frames, rest) = rest.split_at(rest.len().min(usize::from(*argument)));
            bytes = rest;
            forged += 1;
            world.invade(usize::from(argument & 1), forged, frames);
        } else {
            world.operate(*operation, *argument);
        }
    }
    if !world.hostile && world.ends.iter().all(|end| end.closed().is_none()) {
        world.come_to_an_end();
    }
}
