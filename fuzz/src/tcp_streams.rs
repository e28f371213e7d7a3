//! Two TCP sockets, driven by any sequence of operations of applications and network, which loses,
//! delays, doubles and reorders, and by moves of either end to another machine: every byte read is the
//! byte written there, and once the network loses nothing everything comes to its end.

use std::collections::VecDeque;
use std::time::Duration;

use arbitrary::Unstructured;
use lasthop_tcp::{Config, Event, Ports, Socket, State};
use lasthop_units::{LinkEvent, Time};
use lasthop_wire::tcp::{Flags, Segment, Seq};

use crate::tcp::config;

/// Segments that the network holds in each direction; later ones are lost.
const QUEUE: usize = 256;
/// More segments than that at one instant would be a sender that does not stop.
const BURST: usize = 20_000;
const CALM_STEPS: usize = 20_000;
/// Bytes that one end writes at most.
const MOST: u64 = 100_000;

type Packet = (Segment, Vec<u8>);

fn byte(side: usize, offset: u64) -> u8 {
    ((offset << 1 | side as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

struct End {
    socket: Socket,
    written: u64,
    read: u64,
    finished: bool,
}

struct Pair {
    now: Time,
    ends: [End; 2],
    network: [VecDeque<Packet>; 2],
    /// A reset, or an end that tried too often: what was under way may be gone.
    broken: bool,
}

impl Pair {
    /// The first end opens, and its SYN arrives.
    fn new(configs: [Config; 2]) -> Self {
        let now = Time::from_secs(1);
        let ports = |local, remote| Ports { local, remote };
        let end = |socket| End { socket, written: 0, read: 0, finished: false };
        let mut caller = Socket::connect(configs[0], ports(1, 2), Seq(u32::MAX - 3000), now);
        let syn = caller.poll_transmit(now, &mut [0; 2000]).expect("a SYN");
        assert!(syn.flags.contains(Flags::SYN));
        let callee = Socket::accept(configs[1], ports(2, 1), &syn, Seq(1 << 31), now);
        Self {
            now,
            ends: [end(caller), end(callee.expect("a SYN"))],
            network: Default::default(),
            broken: false,
        }
    }

    fn write(&mut self, side: usize, amount: u64) {
        let end = &mut self.ends[side];
        let amount = amount.min(MOST - end.written);
        let data: Vec<u8> =
            (end.written..end.written + amount).map(|offset| byte(side, offset)).collect();
        end.written += end.socket.write(&data) as u64;
    }

    fn read(&mut self, side: usize, amount: usize) {
        let end = &mut self.ends[side];
        let data = end.socket.received();
        let taken = data.len().min(amount);
        let right = (end.read..).map(|offset| byte(1 - side, offset));
        assert!(data[..taken].iter().copied().eq(right.take(taken)), "wrong at {}", end.read);
        end.socket.consume(taken);
        end.read += taken as u64;
    }

    fn finish(&mut self, side: usize) {
        self.ends[side].socket.finish();
        self.ends[side].finished = true;
    }

    fn deliver(&mut self, to: usize, place: usize, keep: bool) {
        let packet = match keep {
            true => self.network[1 - to].get(place).cloned(),
            false => self.network[1 - to].remove(place),
        };
        let Some((segment, payload)) = packet else { return };
        self.ends[to].socket.handle_segment(self.now, &segment, &payload);
    }

    /// An end goes on elsewhere, with what the snapshot and the bytes beside it tell.
    fn move_away(&mut self, side: usize, retransmit: bool) {
        let end = &mut self.ends[side];
        let snapshot = end.socket.snapshot(self.now);
        let join = |(head, tail): (&[u8], &[u8])| [head, tail].concat();
        let (ours, theirs) = (join(end.socket.unacknowledged()), join(end.socket.unread()));
        let config = *end.socket.connection().config();
        let moved = Socket::restore(config, self.now, &snapshot, &ours, &theirs);
        end.socket = moved.expect("all bytes are there");
        if retransmit {
            end.socket.retransmit_now(self.now);
        }
    }

    fn settle(&mut self) {
        for side in 0..2 {
            while let Some(event) = self.ends[side].socket.poll_event() {
                self.broken |= matches!(event, Event::Reset | Event::GaveUp);
            }
            self.send(side);
        }
    }

    fn send(&mut self, side: usize) {
        let mut out = [0; 2000];
        let mut sent = 0;
        while let Some(segment) = self.ends[side].socket.poll_transmit(self.now, &mut out) {
            sent += 1;
            assert!(sent < BURST, "an end does not stop sending");
            if self.network[side].len() < QUEUE {
                self.network[side].push_back((segment, out[..segment.len as usize].to_vec()));
            }
        }
    }

    fn advance(&mut self, by: Duration) {
        self.now += by;
        for end in &mut self.ends {
            if end.socket.next_timeout().is_some_and(|at| at <= self.now) {
                end.socket.handle_timeout(self.now);
            }
        }
    }

    fn operate(&mut self, operation: u8, argument: u8) {
        let side = usize::from(operation & 1);
        match operation >> 1 & 15 {
            0..=2 => self.write(side, 1 << (argument & 15)),
            3 | 4 => self.read(side, 1 << (argument & 15)),
            5 if argument < 60 => self.finish(side),
            5 => drop(self.network[side].remove(usize::from(argument & 7))),
            6 => self.deliver(side, usize::from(argument & 31), argument > 200),
            7 => self.move_away(side, argument & 1 == 1),
            8 => {
                let event = [LinkEvent::Up, LinkEvent::Down][usize::from(argument & 1)];
                self.ends[side].socket.handle_link_event(self.now, event);
            }
            9 => (0..argument).for_each(|_| drop(self.network[side].pop_front())),
            10..=13 => (0..argument / 4).for_each(|_| self.deliver(side, 0, false)),
            _ => {
                self.advance(Duration::from_millis(u64::from(argument) * u64::from(argument) / 64));
            }
        }
        self.settle();
    }

    /// Whether all that the other end wrote was read, and its end seen.
    fn is_over(&self, side: usize) -> bool {
        let connection = self.ends[side].socket.connection();
        self.ends[side].read == self.ends[1 - side].written && connection.peer_finished()
    }

    /// Segments take a millisecond; without any, time passes up to the next timer.
    fn calm_wait(&self) -> Duration {
        let next = self.ends.iter().filter_map(|end| end.socket.next_timeout()).min();
        match next {
            Some(at) if self.network.iter().all(VecDeque::is_empty) => at.since(self.now),
            _ => Duration::from_millis(1),
        }
    }

    /// From here on the network loses nothing and applications read and end what they have.
    fn come_to_an_end(&mut self) {
        for end in &mut self.ends {
            end.socket.handle_link_event(self.now, LinkEvent::Up);
        }
        for _ in 0..CALM_STEPS {
            for side in 0..2 {
                while !self.network[1 - side].is_empty() {
                    self.deliver(side, 0, false);
                }
                self.read(side, usize::MAX);
                self.finish(side);
            }
            self.settle();
            if self.broken || (self.is_over(0) && self.is_over(1)) {
                return;
            }
            self.advance(self.calm_wait());
        }
        let states: [State; 2] = [0, 1].map(|side| self.ends[side].socket.connection().state());
        panic!("something is left when nothing stands in the way: {states:?}");
    }
}

/// One input: the configurations, and operations of two bytes each.
pub fn run(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let configs = [config(&mut input), config(&mut input)];
    let mut world = Pair::new(configs);
    while !input.is_empty() {
        let [operation, argument]: [u8; 2] = input.arbitrary().unwrap_or_default();
        world.operate(operation, argument);
    }
    world.come_to_an_end();
}
