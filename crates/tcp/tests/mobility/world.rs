//! A mobile end, a plain fixed end, and a hop between them that is cut, with link events.

use std::collections::BTreeMap;

use lasthop_tcp::{Config, Connection, Ports};
use lasthop_units::{Bytes, Duration, LinkEvent, Seed, Stream, Time};
use lasthop_wire::tcp::{Segment, Seq};

/// One way, without what the segment takes on the line.
pub(crate) const DELAY: Duration = Duration::from_millis(50);
/// What 1000 bytes take on the hop, 2 Mbit/s.
const PER_BYTE: Duration = Duration::from_micros(4);

/// Which end sends the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sender {
    Fixed,
    Mobile,
}

/// A segment that the mobile sent.
pub(crate) struct Sent {
    pub(crate) at: Time,
    pub(crate) segment: Segment,
}

pub(crate) struct Pair {
    pub(crate) now: Time,
    /// The mobile, and the fixed end, which opens.
    pub(crate) mobile: Connection,
    pub(crate) fixed: Connection,
    /// When the hop carries nothing.
    pub(crate) cuts: Vec<(Time, Time)>,
    /// What the mobile hears.
    pub(crate) events: Vec<(Time, LinkEvent)>,
    pub(crate) sent: Vec<Sent>,
    /// The mobile's acknowledgements that are lost besides, by time.
    pub(crate) lost_acks: Vec<(Time, Time)>,
    loss: f64,
    rng: Stream,
    free_at: [Time; 2],
    flying: BTreeMap<(Time, u64), (bool, Segment)>,
    serial: u64,
    sender: Sender,
    /// Bytes that are still to be written.
    left: u64,
}

pub(crate) fn at(ms: u64) -> Time {
    Time::from_millis(ms)
}

impl Pair {
    /// A connection that stands, with `wanted` bytes to send.
    pub(crate) fn new(mobile: Config, fixed: Config, sender: Sender, wanted: u64) -> Self {
        let ports = Ports { local: 1, remote: 2 };
        let mut opener = Connection::connect(fixed, ports, Seq(u32::MAX - 9000), Time::ZERO);
        let syn = opener.poll_transmit(Time::ZERO).unwrap().segment;
        let answerer = Connection::accept(
            mobile,
            Ports { local: 2, remote: 1 },
            &syn,
            Seq(u32::MAX - 70_000),
            Time::ZERO,
        );
        Self {
            now: Time::ZERO,
            mobile: answerer.unwrap(),
            fixed: opener,
            cuts: Vec::new(),
            events: Vec::new(),
            sent: Vec::new(),
            lost_acks: Vec::new(),
            loss: 0.0,
            rng: Seed::from_u64(0).stream("loss"),
            free_at: [Time::ZERO; 2],
            flying: BTreeMap::new(),
            serial: 0,
            sender,
            left: wanted,
        }
    }

    /// The same gaps and events for other ends.
    pub(crate) fn restart(&mut self, mobile: Config, fixed: Config) {
        let mut fresh = Self::new(mobile, fixed, self.sender, self.left);
        fresh.cuts = core::mem::take(&mut self.cuts);
        fresh.events = core::mem::take(&mut self.events);
        *self = fresh;
    }

    pub(crate) fn with_loss(mut self, loss: f64, seed: u64) -> Self {
        self.loss = loss;
        self.rng = Seed::from_u64(seed).stream("loss");
        self
    }

    /// Cut from `down` to `up`, of which the mobile hears what `events` say.
    pub(crate) fn cut(mut self, down: u64, up: u64, events: &[(u64, LinkEvent)]) -> Self {
        self.cuts.push((at(down), at(up)));
        self.events.extend(events.iter().map(|(ms, event)| (at(*ms), *event)));
        self.events.sort_by_key(|(at, _)| *at);
        self
    }

    fn is_cut(&self, time: Time) -> bool {
        self.cuts.iter().any(|(from, to)| (*from..*to).contains(&time))
    }

    fn flush(&mut self) {
        let writer = match self.sender {
            Sender::Fixed => &mut self.fixed,
            Sender::Mobile => &mut self.mobile,
        };
        self.left -= writer.write(Bytes::new(self.left)).get();
        let mut n = 0;
        while let Some(out) = self.mobile.poll_transmit(self.now) {
            self.sent.push(Sent { at: self.now, segment: out.segment });
            let lost = self.lost_acks.iter().any(|(a, b)| (*a..*b).contains(&self.now));
            self.send(true, out.segment, lost);
            n += 1;
            assert!(n < 10_000, "the mobile does not stop sending");
        }
        while let Some(out) = self.fixed.poll_transmit(self.now) {
            self.send(false, out.segment, false);
            n += 1;
            assert!(n < 20_000, "the fixed end does not stop sending");
        }
    }

    fn send(&mut self, up: bool, segment: Segment, lost: bool) {
        let way = usize::from(up);
        let start = self.free_at[way].max(self.now);
        self.free_at[way] = start + PER_BYTE * (segment.len + 40);
        let arrival = self.free_at[way] + DELAY;
        let on_hop = if up { self.now } else { arrival };
        if lost || self.is_cut(on_hop) || self.rng.chance(self.loss) {
            return;
        }
        self.serial += 1;
        self.flying.insert((arrival, self.serial), (up, segment));
    }

    /// Everything that was to be sent has arrived.
    pub(crate) fn is_done(&self) -> bool {
        let (from, to) = match self.sender {
            Sender::Fixed => (&self.fixed, &self.mobile),
            Sender::Mobile => (&self.mobile, &self.fixed),
        };
        self.left == 0 && to.received() == from.written()
    }

    fn step(&mut self, end: Time) -> bool {
        self.flush();
        let arrival = self.flying.keys().next().map_or(Time::NEVER, |(t, _)| *t);
        let event = self.events.first().map_or(Time::NEVER, |(t, _)| *t);
        let timers = [self.mobile.next_timeout(), self.fixed.next_timeout()];
        let timer = timers.into_iter().flatten().min().unwrap_or(Time::NEVER);
        let next = arrival.min(event).min(timer);
        if next > end {
            self.now = end;
            return false;
        }
        self.now = self.now.max(next);
        if event == next {
            let (_, event) = self.events.remove(0);
            self.mobile.handle_link_event(self.now, event);
        } else if arrival == next {
            let Some((_, (up, segment))) = self.flying.pop_first() else { return false };
            let to = if up { &mut self.fixed } else { &mut self.mobile };
            to.handle_segment(self.now, &segment);
            let n = to.readable();
            to.consume(n);
        } else {
            self.mobile.handle_timeout(self.now);
            self.fixed.handle_timeout(self.now);
        }
        true
    }

    pub(crate) fn run_until(&mut self, ms: u64) {
        while self.step(at(ms)) {}
    }

    /// Runs until all has arrived; false if that is not before `end`.
    pub(crate) fn finish(&mut self, end: Time) -> bool {
        while !self.is_done() {
            if !self.step(end) {
                return false;
            }
        }
        true
    }

    /// What the mobile sent from `from` on, up to and without `to`.
    pub(crate) fn between(&self, from: u64, to: u64) -> Vec<Segment> {
        let within = self.sent.iter().filter(|s| (at(from)..at(to)).contains(&s.at));
        within.map(|s| s.segment).collect()
    }
}
