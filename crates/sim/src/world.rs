//! Virtual time: nodes, the radios between them, and the order of events.
//!
//! An event is the earliest of all radios' and nodes' next times; at one instant radios come before
//! nodes and lower numbers before higher ones, so a run depends on its seed and on nothing else.
//!
//! Not modelled: computing takes no time, timers fire exactly when asked, sockets have no buffers.

use lasthop_radio::{ConfigError, Direction, LinkStats, RadioConfig};
use lasthop_units::{Seed, Time};
use thiserror::Error;

use crate::Addr;
use crate::air::{Air, Stranger};
use crate::pool::Pool;
use crate::trace::{Step, Trace};

/// What IPv4 and UDP put before a datagram, in bytes.
pub const OVERHEAD_IPV4: u64 = 28;
/// What IPv6 and UDP put before a datagram, in bytes.
pub const OVERHEAD_IPV6: u64 = 48;

/// Something that lives at an address.
pub trait Node {
    /// A datagram arrived.
    fn handle_datagram(&mut self, now: Time, from: Addr, datagram: &mut [u8]);
    /// Writes the next datagram into `out`: where it goes and its length.
    fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<(Addr, usize)>;
    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    fn next_timeout(&self) -> Option<Time>;
    /// The time asked for has come.
    fn handle_timeout(&mut self, now: Time);
}

/// Names a node of a world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeId(usize);

/// Names a radio of a world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RadioId(usize);

/// What a world allows before it gives up on its machines.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Events in a run.
    pub events: u64,
    /// Events at one instant.
    pub at_once: u32,
    /// Datagrams that a node may send in answer to one event.
    pub burst: u32,
    /// Room for a datagram, in bytes.
    pub datagram: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { events: 100_000_000, at_once: 100_000, burst: 20_000, datagram: 2048 }
    }
}

/// A world that cannot go on: some machine misbehaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Halt {
    /// The run's events are used up.
    #[error("{at}: the run took more events than it may")]
    Events {
        /// When.
        at: Time,
    },
    /// Time does not go on.
    #[error("{at}: time does not go on; the last event was of node {node:?}")]
    Spinning {
        /// When.
        at: Time,
        /// Whose timer fired last; none if a radio delivered last.
        node: Option<usize>,
    },
    /// A node has always one more datagram.
    #[error("{at}: node {node} sends without end")]
    Endless {
        /// When.
        at: Time,
        /// Who.
        node: usize,
    },
    /// A node sent a datagram that does not fit into the room it was given.
    #[error("{at}: node {node} sent {len} bytes into a smaller buffer")]
    Oversized {
        /// When.
        at: Time,
        /// Who.
        node: usize,
        /// How long.
        len: usize,
    },
}

#[derive(Debug)]
struct Slot<N> {
    node: N,
    addr: Addr,
    out: (usize, Direction),
    wake: Time,
}

/// Nodes, the radios between them and the clock.
#[derive(Debug)]
pub struct World<N> {
    now: Time,
    places: Vec<Slot<N>>,
    airs: Vec<Air>,
    pool: Pool,
    trace: Trace,
    limits: Limits,
    events: u64,
    at_once: u32,
}

impl<N: Node> World<N> {
    /// An empty world at time zero.
    pub fn new(limits: Limits) -> Self {
        Self {
            now: Time::ZERO,
            places: Vec::new(),
            airs: Vec::new(),
            pool: Pool::new(limits.datagram),
            trace: Trace::default(),
            limits,
            events: 0,
            at_once: 0,
        }
    }

    /// Adds a radio, on which each datagram has `overhead` more bytes of headers. At which node a
    /// packet comes out follows from its destination.
    ///
    /// # Errors
    ///
    /// The configuration describes no radio.
    pub fn add_radio(
        &mut self,
        config: &RadioConfig,
        overhead: u64,
        seed: Seed,
    ) -> Result<RadioId, ConfigError> {
        self.airs.push(Air::new(config, overhead, seed, self.now)?);
        Ok(RadioId(self.airs.len() - 1))
    }

    /// Adds a node at `addr` whose datagrams all leave by one direction of `radio`.
    pub fn add_node(&mut self, node: N, addr: Addr, radio: RadioId, out: Direction) -> NodeId {
        let wake = node.next_timeout().unwrap_or(Time::NEVER);
        self.places.push(Slot { node, addr, out: (radio.0, out), wake });
        NodeId(self.places.len() - 1)
    }

    /// The present.
    pub const fn now(&self) -> Time {
        self.now
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> &N {
        &self.places[id.0].node
    }

    /// Counters and the hash of all that happened.
    pub const fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Prints every step from here on.
    pub const fn set_verbose(&mut self, verbose: bool) {
        self.trace.verbose = verbose;
    }

    /// What a radio really did to its packets, since its conditions last changed or its statistics
    /// were last reset.
    pub fn radio_stats(&mut self, id: RadioId, direction: Direction) -> LinkStats {
        self.airs[id.0].radio().stats(self.now, direction)
    }

    /// Begins to count anew what a radio does.
    pub fn reset_radio_stats(&mut self, id: RadioId) {
        self.airs[id.0].radio().reset_stats(self.now);
    }

    /// Datagrams that exist at this moment.
    pub fn datagrams_in_flight(&self) -> usize {
        self.pool.in_use()
    }

    /// Replaces a radio's conditions from here on; what is in it leaves it as it would have.
    ///
    /// # Errors
    ///
    /// The configuration describes no radio; nothing changed.
    pub fn change_radio(&mut self, id: RadioId, config: &RadioConfig) -> Result<(), ConfigError> {
        self.airs[id.0].change(config, self.now)
    }

    /// What a stranger near a radio does from here on.
    pub fn set_stranger(&mut self, id: RadioId, stranger: Stranger) {
        self.airs[id.0].set_stranger(stranger);
    }

    /// Gives a node another address, as a NAT does that forgot its mapping: what is under way to
    /// the old one is lost.
    pub fn set_addr(&mut self, id: NodeId, addr: Addr) {
        self.places[id.0].addr = addr;
    }

    /// Lets something happen at a node outside the order of events: an application's whim, a link
    /// event. Whatever the node wants to send is sent at once.
    ///
    /// # Errors
    ///
    /// The node misbehaves.
    pub fn with_node<R>(
        &mut self,
        id: NodeId,
        f: impl FnOnce(&mut N, Time) -> R,
    ) -> Result<R, Halt> {
        let result = f(&mut self.places[id.0].node, self.now);
        self.pump(id.0)?;
        Ok(result)
    }

    /// Lets every event up to and including `end` happen; the clock then reads `end`.
    ///
    /// # Errors
    ///
    /// A node misbehaves, or the run is longer than its limits allow.
    pub fn run_until(&mut self, end: Time) -> Result<(), Halt> {
        while let Some((at, source)) = self.next_event()
            && at <= end
        {
            self.count(at, source)?;
            match source {
                Source::Radio(radio) => self.deliver(radio)?,
                Source::Node(node) => self.fire(node)?,
            }
        }
        self.now = self.now.max(end);
        Ok(())
    }

    fn next_event(&self) -> Option<(Time, Source)> {
        let mut best = (Time::NEVER, None);
        for (i, air) in self.airs.iter().enumerate() {
            let at = air.next_timeout();
            if at < best.0 {
                best = (at, Some(Source::Radio(i)));
            }
        }
        for (i, place) in self.places.iter().enumerate() {
            if place.wake < best.0 {
                best = (place.wake, Some(Source::Node(i)));
            }
        }
        best.1.map(|source| (best.0, source))
    }

    /// Moves the clock and sees to it that it moves.
    fn count(&mut self, at: Time, source: Source) -> Result<(), Halt> {
        if at > self.now {
            self.now = at;
            self.at_once = 0;
        }
        self.at_once += 1;
        self.events += 1;
        if self.events > self.limits.events {
            return Err(Halt::Events { at: self.now });
        }
        if self.at_once > self.limits.at_once {
            let node = match source {
                Source::Radio(_) => None,
                Source::Node(node) => Some(node),
            };
            return Err(Halt::Spinning { at: self.now, node });
        }
        Ok(())
    }

    fn deliver(&mut self, radio: usize) -> Result<(), Halt> {
        while let Some(mut packet) = self.airs[radio].poll(self.now) {
            let (from, to) = packet.route();
            let Some(i) = self.places.iter().position(|p| p.addr == to) else {
                self.trace.step(self.now, None, Step::Unroutable, packet.bytes());
                continue;
            };
            self.trace.step(self.now, Some(i), Step::Arrived, packet.bytes());
            self.places[i].node.handle_datagram(self.now, from, packet.bytes_mut());
            self.pump(i)?;
        }
        Ok(())
    }

    fn fire(&mut self, i: usize) -> Result<(), Halt> {
        self.trace.step(self.now, Some(i), Step::Timer, &[]);
        self.places[i].node.handle_timeout(self.now);
        self.pump(i)
    }

    /// Takes everything that a node wants to send, then asks when to call it again.
    fn pump(&mut self, i: usize) -> Result<(), Halt> {
        let place = &mut self.places[i];
        let (radio, direction) = place.out;
        let mut packet = self.pool.take(place.addr);
        let mut sent = 0;
        while let Some((to, len)) = place.node.poll_transmit(self.now, packet.room()) {
            if len > self.pool.longest() {
                return Err(Halt::Oversized { at: self.now, node: i, len });
            }
            packet.finish(to, len);
            self.trace.step(self.now, Some(i), Step::Sent, packet.bytes());
            let next = self.pool.take(place.addr);
            let full = core::mem::replace(&mut packet, next);
            self.airs[radio].send(self.now, direction, full);
            sent += 1;
            if sent > self.limits.burst {
                return Err(Halt::Endless { at: self.now, node: i });
            }
        }
        place.wake = place.node.next_timeout().map_or(Time::NEVER, |t| t.max(self.now));
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Source {
    Radio(usize),
    Node(usize),
}

#[cfg(test)]
mod tests {
    use lasthop_radio::{LinkConfig, Pacing};
    use lasthop_units::{Duration, Rate};

    use super::*;

    /// Sends `left` datagrams, one for each time that it is woken, and counts what it receives.
    #[derive(Debug)]
    struct Ticker {
        to: Addr,
        left: u32,
        every: Duration,
        next: Time,
        due: bool,
        heard: Vec<(Time, u8)>,
    }

    impl Ticker {
        fn new(to: Addr, left: u32, every: Duration) -> Self {
            Self { to, left, every, next: Time::ZERO, due: false, heard: Vec::new() }
        }
    }

    impl Node for Ticker {
        fn handle_datagram(&mut self, now: Time, _from: Addr, datagram: &mut [u8]) {
            self.heard.push((now, datagram[0]));
        }

        fn poll_transmit(&mut self, _now: Time, out: &mut [u8]) -> Option<(Addr, usize)> {
            if !core::mem::take(&mut self.due) || self.left == 0 {
                return None;
            }
            self.left -= 1;
            out[0] = self.left as u8;
            Some((self.to, 100))
        }

        fn next_timeout(&self) -> Option<Time> {
            (self.left > 0).then_some(self.next)
        }

        fn handle_timeout(&mut self, now: Time) {
            self.due = true;
            self.next = now + self.every;
        }
    }

    const A: Addr = Addr::new(1, 1);
    const B: Addr = Addr::new(2, 2);

    fn pair(every: Duration) -> (World<Ticker>, RadioId, [NodeId; 2]) {
        let mut world = World::new(Limits::default());
        let link = LinkConfig {
            pacing: Pacing::Rate(Rate::from_mbps(1)),
            delay: Duration::from_millis(10),
            ..LinkConfig::default()
        };
        let config = RadioConfig::both(link);
        let radio = world.add_radio(&config, OVERHEAD_IPV4, Seed::from_u64(1)).expect("a radio");
        let a = world.add_node(Ticker::new(B, 3, every), A, radio, Direction::Down);
        let b = world.add_node(Ticker::new(A, 0, every), B, radio, Direction::Up);
        (world, radio, [a, b])
    }

    /// LNK-1, LNK-11: 128 bytes on 1 Mbit/s take 1.024 ms, then 10 ms; order is kept.
    #[test]
    fn datagrams_arrive_when_the_radio_lets_them_out_headers_included() {
        let (mut world, _, [_, b]) = pair(Duration::from_millis(5));
        world.run_until(Time::from_secs(1)).expect("no halt");
        let at = |ms: u64| Time::from_micros(11_024 + ms * 1000);
        assert_eq!(world.node(b).heard, [(at(0), 2), (at(5), 1), (at(10), 0)]);
        assert_eq!((world.trace().sent, world.trace().arrived), (3, 3));
        assert_eq!(world.datagrams_in_flight(), 0);
    }

    #[test]
    fn what_is_under_way_to_an_old_address_is_lost() {
        let (mut world, _, [_, b]) = pair(Duration::from_millis(5));
        world.run_until(Time::from_millis(12)).expect("no halt");
        world.set_addr(b, Addr::new(2, 3));
        world.run_until(Time::from_secs(1)).expect("no halt");
        assert_eq!(world.node(b).heard.len(), 1);
        assert_eq!(world.trace().unroutable, 2);
    }

    #[test]
    fn new_conditions_leave_alone_what_is_in_the_radio() {
        let (mut world, radio, [_, b]) = pair(Duration::from_millis(5));
        world.run_until(Time::from_millis(4)).expect("no halt");
        let slower = LinkConfig { delay: Duration::from_secs(2), ..LinkConfig::default() };
        world.change_radio(radio, &RadioConfig::both(slower)).expect("a radio");
        world.run_until(Time::from_secs(1)).expect("no halt");
        assert_eq!(world.node(b).heard, [(Time::from_micros(11_024), 2)]);
        world.run_until(Time::from_secs(3)).expect("no halt");
        assert_eq!(world.node(b).heard.len(), 3);
    }

    #[test]
    fn a_node_that_keeps_time_from_going_on_halts_the_world() {
        let (mut world, _, [a, _]) = pair(Duration::ZERO);
        world.with_node(a, |node, _| node.left = u32::MAX).expect("no halt");
        let halt = world.run_until(Time::from_secs(1)).expect_err("it went on");
        assert_eq!(halt, Halt::Spinning { at: Time::ZERO, node: Some(0) });
    }
}
