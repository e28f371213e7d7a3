//! Applications that never run dry: one connection per flow, as many bytes as the hop takes.

use lasthop_hop::{StreamEvent, StreamId, Streams};
use lasthop_radio::Direction;
use lasthop_units::{Bytes, Duration, Rate, Seed, Time};

use crate::content::Content;
use crate::{App, Endpoint};

/// A wired path that feeds the base: no more than `rate`, and the first byte after `delay`.
///
/// The wired TCP itself is not modelled; what it has delivered and the base has not taken waits in
/// `buffer` bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wired {
    /// Its rate.
    pub rate: Rate,
    /// Its one-way delay.
    pub delay: Duration,
    /// What it holds for the base.
    pub buffer: Bytes,
}

/// What a wired path has brought so far.
#[derive(Debug)]
struct Feed {
    wired: Wired,
    last: Option<Time>,
    ready: u64,
}

impl Feed {
    fn refill(&mut self, now: Time) {
        let since = *self.last.get_or_insert(now + self.wired.delay);
        // Whole bytes only: the remainder's time is kept for the next refill.
        let bytes = self.wired.rate.bytes_in(now - since);
        if bytes.get() > 0 {
            self.last = Some(since + self.wired.rate.time_for(bytes));
            self.ready = (self.ready + bytes.get()).min(self.wired.buffer.get());
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        // A segment's worth at a time, as a wire would bring it.
        let segment = self.wired.rate.time_for(Bytes::new(1448));
        (self.ready == 0).then(|| self.last.map_or(Time::ZERO, |t| t + segment))
    }
}

/// One connection.
#[derive(Debug)]
struct Flow {
    association: usize,
    id: StreamId,
    content: Content,
    /// The first byte, which says which way the rest goes, has been sent or read.
    begun: bool,
    writes: bool,
    sent: u64,
    received: u64,
}

/// The first byte of a connection: the content comes from the base, or from the mobile.
const DOWN: u8 = b'D';
const UP: u8 = b'U';

/// Always-full connections at one end of the hop.
#[derive(Debug)]
pub struct BulkApp {
    /// Connections still to be opened on association 0, and which way they go.
    open: Option<(usize, Direction)>,
    /// What their user says of them.
    priorities: Vec<u32>,
    seed: Seed,
    flows: Vec<Flow>,
    feed: Option<Feed>,
    /// The first bytes received after this was last cleared.
    pub(super) first_arrival: Option<Time>,
    /// The connection and offset of a byte that is not the one sent.
    pub(super) wrong: Option<(u64, u64)>,
    turn: usize,
}

impl BulkApp {
    /// The mobile's end, which opens `connections`.
    pub fn mobile(connections: usize, direction: Direction, seed: Seed) -> Self {
        Self { open: Some((connections, direction)), ..Self::base(seed, None) }
    }

    /// The base's end, which does as it is told by the first byte of each connection.
    pub fn base(seed: Seed, wired: Option<Wired>) -> Self {
        Self {
            open: None,
            priorities: Vec::new(),
            seed,
            flows: Vec::new(),
            feed: wired.map(|wired| Feed { wired, last: None, ready: 0 }),
            first_arrival: None,
            wrong: None,
            turn: 0,
        }
    }

    /// Gives the connections to be opened these priorities, one after another.
    #[must_use]
    pub fn prefer(mut self, priorities: &[u32]) -> Self {
        self.priorities = priorities.to_vec();
        self
    }

    /// Bytes of content that arrived here on an association, per connection in the order of their
    /// opening.
    pub fn received_each(&self, association: usize) -> Vec<u64> {
        let flows = self.flows.iter().filter(|f| f.association == association);
        let mut each: Vec<_> = flows.map(|f| (f.id, f.received)).collect();
        each.sort_unstable();
        each.into_iter().map(|(_, received)| received).collect()
    }

    /// Bytes of content that arrived here, per association.
    pub fn received(&self, association: usize) -> u64 {
        self.flows.iter().filter(|f| f.association == association).map(|f| f.received).sum()
    }

    fn open_connections<E: Endpoint>(&mut self, endpoint: &mut E) {
        let Some((connections, direction)) = self.open.take() else { return };
        let Some(streams) = endpoint.streams(0) else { return };
        for n in 0..connections {
            let Ok(id) = streams.open() else { break };
            if let Some(priority) = self.priorities.get(n) {
                streams.set_priority(id, *priority);
            }
            let first = if direction == Direction::Down { DOWN } else { UP };
            if streams.write(id, &[first]) != Ok(1) {
                continue;
            }
            self.flows.push(Flow {
                association: 0,
                id,
                content: Content::new(self.seed, "bulk"),
                begun: true,
                writes: direction == Direction::Up,
                sent: 0,
                received: 0,
            });
        }
    }

    fn accept<E: Endpoint>(&mut self, endpoint: &mut E) {
        for association in 0..endpoint.associations() {
            let Some(streams) = endpoint.streams(association) else { continue };
            while let Some(event) = streams.poll_event() {
                let StreamEvent::Incoming(id) = event else { continue };
                self.flows.push(Flow {
                    association,
                    id,
                    content: Content::new(self.seed, "bulk"),
                    begun: false,
                    writes: false,
                    sent: 0,
                    received: 0,
                });
            }
        }
    }
}

impl<E: Endpoint> App<E> for BulkApp {
    fn drive(&mut self, now: Time, endpoint: &mut E) {
        self.open_connections(endpoint);
        self.accept(endpoint);
        if let Some(feed) = &mut self.feed {
            feed.refill(now);
        }
        let n = self.flows.len();
        for _ in 0..n {
            // Whoever is first gets what the wire brought, so they take turns.
            self.turn = (self.turn + 1) % n;
            let flow = &mut self.flows[self.turn];
            let Some(streams) = endpoint.streams(flow.association) else { continue };
            let before = flow.received;
            if let Some(at) = flow.read(streams) {
                self.wrong.get_or_insert((flow.id.0, at));
            }
            if flow.received > before {
                self.first_arrival.get_or_insert(now);
            }
            if flow.writes {
                flow.write(streams, self.feed.as_mut());
            }
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        let writes = self.flows.iter().any(|f| f.writes);
        self.feed.as_ref().filter(|_| writes).and_then(Feed::next_timeout)
    }
}

impl Flow {
    /// Reads all there is; the offset of the first wrong byte.
    fn read<S: Streams>(&mut self, streams: &mut S) -> Option<u64> {
        let mut wrong = None;
        loop {
            let mut data = streams.received(self.id);
            let n = data.len();
            if n == 0 {
                return wrong;
            }
            if !self.begun {
                self.begun = true;
                self.writes = data[0] == DOWN;
                data = &data[1..];
            }
            wrong = wrong.or_else(|| self.content.first_difference(self.received, data));
            self.received += data.len() as u64;
            streams.consume(self.id, n);
        }
    }

    fn write<S: Streams>(&mut self, streams: &mut S, mut feed: Option<&mut Feed>) {
        loop {
            let limit = feed.as_ref().map_or(u64::MAX, |f| f.ready);
            let Ok(room) = streams.send_space(self.id) else { return };
            let n = room.len().min(usize::try_from(limit).unwrap_or(usize::MAX));
            if n == 0 {
                return;
            }
            self.content.fill(self.sent, &mut room[..n]);
            streams.commit(self.id, n);
            self.sent += n as u64;
            if let Some(feed) = feed.as_deref_mut() {
                feed.ready -= n as u64;
            }
        }
    }
}
