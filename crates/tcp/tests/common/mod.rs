//! Two connections and a path between them, in virtual time.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use lasthop_tcp::{Config, Connection, Ports};
use lasthop_units::{Bytes, Duration, Rate, Seed, Stream, Time};
use lasthop_wire::tcp::{Segment, Seq};

/// One direction of a path.
pub struct Way {
    pub rate: Rate,
    pub delay: Duration,
    pub loss: f64,
    pub header: u64,
    pub queue: usize,
    /// In every period of 10 s, what arrives for so long from 5 s on is lost.
    pub outage: Duration,
    rng: Stream,
    free_at: Time,
    in_queue: std::collections::VecDeque<Time>,
}

impl Way {
    pub fn new(rate: Rate, delay: Duration, loss: f64, rng: Stream) -> Self {
        Self {
            rate,
            delay,
            loss,
            header: 40,
            queue: 100,
            outage: Duration::ZERO,
            rng,
            free_at: Time::ZERO,
            in_queue: Default::default(),
        }
    }

    /// When the segment arrives, if it does.
    pub fn send(&mut self, now: Time, segment: &Segment) -> Option<Time> {
        while self.in_queue.front().is_some_and(|t| *t <= now) {
            self.in_queue.pop_front();
        }
        if self.in_queue.len() > self.queue {
            return None;
        }
        let start = self.free_at.max(now);
        self.free_at = start + self.rate.time_for(Bytes::new(u64::from(segment.len) + self.header));
        self.in_queue.push_back(self.free_at);
        let at = self.free_at + self.delay;
        let phase = at.as_nanos() % 10_000_000_000;
        let down = phase >= 5_000_000_000 && phase < 5_000_000_000 + self.outage.as_nanos() as u64;
        (!self.rng.chance(self.loss) && !down).then_some(at)
    }
}

/// A bulk sender, a receiver that reads at once, and the path.
pub struct Bulk {
    pub now: Time,
    pub sender: Connection,
    pub receiver: Option<Connection>,
    pub there: Way,
    pub back: Way,
    receiver_config: Config,
    queue: BinaryHeap<Reverse<(Time, u64)>>,
    flying: std::collections::BTreeMap<u64, (bool, Segment)>,
    serial: u64,
    /// The transmissions of data that are lost, counted from 1.
    pub drop: Vec<u64>,
    pub sent: u64,
}

pub const ISS: Seq = Seq(u32::MAX - 5000);
pub const PEER_ISS: Seq = Seq(u32::MAX - 70_000);

impl Bulk {
    pub fn new(config: Config, there: Way, back: Way) -> Self {
        let mut sender =
            Connection::connect(config, Ports { local: 1, remote: 2 }, ISS, Time::ZERO);
        sender.write(Bytes::new(u64::MAX));
        Self {
            now: Time::ZERO,
            sender,
            receiver: None,
            there,
            back,
            receiver_config: config,
            queue: BinaryHeap::new(),
            flying: Default::default(),
            serial: 0,
            drop: Vec::new(),
            sent: 0,
        }
    }

    /// A path without loss of `rtt`, 10 Mbit/s.
    pub fn clean(config: Config, rtt: Duration) -> Self {
        let rate = Rate::from_mbps(10);
        let way = |name| Way::new(rate, rtt / 2, 0.0, Seed::from_u64(1).stream(name));
        Self::new(config, way("there"), way("back"))
    }

    fn flush(&mut self) {
        while let Some(out) = self.sender.poll_transmit(self.now) {
            let mut lost = false;
            if out.segment.len > 0 {
                self.sent += 1;
                lost = self.drop.contains(&self.sent);
            }
            let at = self.there.send(self.now, &out.segment).filter(|_| !lost);
            self.push(at, true, out.segment);
        }
        while let Some(out) = self.receiver.as_mut().and_then(|r| r.poll_transmit(self.now)) {
            let at = self.back.send(self.now, &out.segment);
            self.push(at, false, out.segment);
        }
    }

    fn push(&mut self, at: Option<Time>, forward: bool, segment: Segment) {
        if let Some(at) = at {
            self.serial += 1;
            self.queue.push(Reverse((at, self.serial)));
            self.flying.insert(self.serial, (forward, segment));
        }
    }

    fn deliver(&mut self, forward: bool, segment: &Segment) {
        if !forward {
            self.sender.handle_segment(self.now, segment);
            return;
        }
        match &mut self.receiver {
            Some(r) => {
                r.handle_segment(self.now, segment);
                let n = r.readable();
                r.consume(n);
            }
            None => {
                let ports = Ports { local: 2, remote: 1 };
                self.receiver =
                    Connection::accept(self.receiver_config, ports, segment, PEER_ISS, self.now)
                        .ok();
            }
        }
    }

    pub fn run_until(&mut self, end: Time) {
        loop {
            self.flush();
            let arrival = self.queue.peek().map_or(Time::NEVER, |Reverse((t, _))| *t);
            let timers = [
                self.sender.next_timeout(),
                self.receiver.as_ref().and_then(Connection::next_timeout),
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
                    && let Some((forward, segment)) = self.flying.remove(&id)
                {
                    self.deliver(forward, &segment);
                }
            } else {
                self.sender.handle_timeout(self.now);
                if let Some(r) = &mut self.receiver {
                    r.handle_timeout(self.now);
                }
            }
        }
    }
}
