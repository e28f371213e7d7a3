//! The streams of one association.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use lasthop_control::past::{Counted, Progress};
use lasthop_hop::{
    Lease, Memory, RecvState, StreamError, StreamEvent, StreamId, StreamState, Streams,
};
use lasthop_kernel::tcp::least_round_trip;
use lasthop_units::Time;

use super::lost;
use super::outbound::{KEPT_MIN, WIRE};
use super::priority::{Division, Flow};
use super::record::WINDOW_MIN;
use super::stream::{IN_CAPACITY, Stream};

/// How long an acknowledgement may wait for bytes to travel with.
const ACK_DELAY: Duration = Duration::from_millis(25);
/// A stream that has waited so long for acknowledgements alone keeps more from there on. Over a hop
/// that is near, more would only fall out of the processor's caches.
const STALL: Duration = Duration::from_millis(2);
/// What all streams of an association together may hold in each direction beyond their first windows.
const GROWTH_MAX: usize = 64 * 1024 * 1024;
/// What every stream may hold in each direction.
const SEND_LEAST: u64 = (KEPT_MIN + WIRE) as u64;
const RECV_LEAST: u64 = WINDOW_MIN + IN_CAPACITY as u64;
/// Streams whose round trips are sampled: all take the same way.
const SAMPLES: usize = 8;

/// The streams of one split-tcp association: each is a kernel TCP connection.
#[derive(Debug)]
pub struct SplitTcp {
    streams: HashMap<u64, Stream>,
    max: usize,
    /// The next stream that this side opens.
    next: u64,
    events: VecDeque<StreamEvent>,
    /// Streams on which something may move.
    dirty: Vec<u64>,
    /// Those of them that are pumped in this round.
    round: Vec<u64>,
    /// Streams with delayed acknowledgements, and when these are due.
    delayed_acks: Vec<u64>,
    ack_at: Option<Time>,
    /// Streams that are out of the table and still have a connection to close, and how.
    removed: Vec<(Stream, Removal)>,
    send_allowance: Allowance,
    recv_allowance: Allowance,
    /// How streams divide what the hop carries, once one of them was given a priority.
    divisions: Option<Box<Divisions>>,
    /// Counters of streams that are gone.
    pub(super) totals: Totals,
    /// What of them was counted when it was last asked.
    counted: Counted,
}

/// How the connection of a stream that is out of the table ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Removal {
    /// It is over or aborted: the peer is to get the code.
    Closed(u64),
    /// It goes on elsewhere, and nothing is sent to the peer.
    Detached,
}

/// What the streams' priorities come to.
#[derive(Debug, Default)]
struct Divisions {
    /// What comes, and what goes.
    into: Division,
    out: Division,
    /// Streams have come or are over, or priorities have changed.
    stale: bool,
    /// The least that was seen.
    round_trip: Duration,
}

/// Memory beyond the least that all streams of an association share, and its part of what all
/// associations do.
#[derive(Debug)]
struct Allowance {
    left: usize,
    lease: Lease,
}

impl Allowance {
    fn new(memory: &Memory) -> Self {
        Self { left: GROWTH_MAX, lease: memory.lease() }
    }

    /// Whether `more` can be had. A part is always left for others, and half of the lease for streams that
    /// come later.
    fn reserve(&mut self, more: usize) -> bool {
        let half = self.lease.need() + 2 * more as u64;
        let granted = more > 0 && more <= self.left / 4 && self.lease.has_room_for(half);
        if granted {
            self.left -= more;
            self.lease.set_need(self.lease.need() + more as u64);
        }
        granted
    }

    fn release(&mut self, n: usize) {
        self.left += n;
        self.lease.set_need(self.lease.need() - n as u64);
    }

    /// A stream begins, with its least, or ends with it.
    fn begin(&mut self, least: u64) {
        self.lease.set_need(self.lease.need() + least);
    }

    fn end(&mut self, least: u64) {
        self.lease.set_need(self.lease.need() - least);
    }
}

/// The bytes of an association.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Totals {
    /// Payload bytes written into streams.
    pub(super) sent: u64,
    /// Payload bytes read out of streams.
    pub(super) received: u64,
}

impl SplitTcp {
    /// No streams, and never more than `max` at once; what they hold comes out of `memory`. The first that
    /// this side opens is `next`: an even number at a mobile, an odd one at a base.
    pub(super) fn new(max: usize, next: u64, memory: &Memory) -> Self {
        Self {
            streams: HashMap::new(),
            max,
            next,
            events: VecDeque::new(),
            dirty: Vec::new(),
            round: Vec::new(),
            delayed_acks: Vec::new(),
            ack_at: None,
            removed: Vec::new(),
            send_allowance: Allowance::new(memory),
            recv_allowance: Allowance::new(memory),
            divisions: None,
            totals: Totals::default(),
            counted: Counted::default(),
        }
    }

    /// What was done since the last time that this was asked.
    pub(super) fn progress(&mut self) -> Progress {
        let (to_hop, from_hop) = self.counted.advance(self.totals.sent, self.totals.received);
        Progress { to_hop, from_hop, ..Progress::default() }
    }

    /// How many streams there are.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether there is no stream.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Whether another may be opened, by the peer or from here.
    pub(super) fn has_room(&self) -> bool {
        self.streams.len() < self.max
            && self.send_allowance.lease.has_room_for(SEND_LEAST)
            && self.recv_allowance.lease.has_room_for(RECV_LEAST)
    }

    fn insert(&mut self, id: u64, stream: Stream) {
        if self.streams.insert(id, stream).is_none() {
            self.send_allowance.begin(SEND_LEAST);
            self.recv_allowance.begin(RECV_LEAST);
        }
    }

    /// Takes a stream that the peer opened.
    pub(super) fn handle_incoming(&mut self, id: u64, stream: Stream) {
        self.insert(id, stream);
        self.redivide();
        self.events.push_back(StreamEvent::Incoming(StreamId(id)));
        self.mark_dirty(id);
    }

    /// Takes a stream that the peer opens and this side gives a connection. It is reported once that
    /// stands: before, a refusal could not be sent.
    pub(super) fn handle_open(&mut self, id: u64) {
        let mut stream = Stream::new();
        stream.unreported = true;
        self.insert(id, stream);
        self.redivide();
        self.mark_dirty(id);
    }

    /// Whether this side has opened the stream and it has no connection yet.
    pub(super) fn awaits_connection(&self, id: u64) -> bool {
        self.streams.get(&id).is_some_and(|stream| !stream.started())
    }

    /// Whether there is a stream of that number.
    pub(super) fn contains(&self, id: u64) -> bool {
        self.streams.contains_key(&id)
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut Stream> {
        self.streams.get_mut(&id)
    }

    /// Has the stream pumped: something may move on it.
    pub(super) fn mark_dirty(&mut self, id: u64) {
        if let Some(stream) = self.streams.get_mut(&id)
            && !stream.dirty
        {
            stream.dirty = true;
            self.dirty.push(id);
        }
    }

    /// Ends the streams of this side that have no connection: they get none any more.
    pub(super) fn terminate_unconnected(&mut self) {
        let waiting = self.streams.iter_mut().filter(|(_, stream)| !stream.started());
        let waiting = waiting.map(|(id, stream)| {
            stream.terminate(lost());
            *id
        });
        for id in waiting.collect::<Vec<_>>() {
            self.mark_dirty(id);
        }
    }

    /// Has every stream pumped.
    pub(super) fn mark_all_dirty(&mut self) {
        let ids: Vec<u64> = self.streams.keys().copied().collect();
        for id in ids {
            self.mark_dirty(id);
        }
    }

    /// Begins a round over the streams on which something may move. What is touched meanwhile has
    /// its turn in the next, so that readers come in between.
    pub(super) fn begin_round(&mut self) {
        std::mem::swap(&mut self.dirty, &mut self.round);
    }

    /// A stream of this round.
    pub(super) fn next_in_round(&mut self) -> Option<u64> {
        while let Some(id) = self.round.pop() {
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.dirty = false;
                return Some(id);
            }
        }
        None
    }

    pub(super) fn is_idle(&self) -> bool {
        self.dirty.is_empty() && self.removed.is_empty()
    }

    pub(super) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    pub(super) fn next_removed(&mut self) -> Option<(Stream, Removal)> {
        self.removed.pop()
    }

    /// When delayed acknowledgements are due, or the hop is to be divided again.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        [self.ack_at, self.next_update()].into_iter().flatten().min()
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        if self.next_update().is_some_and(|at| at <= now) {
            self.update(now);
        }
        if self.ack_at.is_none_or(|at| at > now) {
            return;
        }
        self.ack_at = None;
        while let Some(id) = self.delayed_acks.pop() {
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.acknowledge_now();
                self.mark_dirty(id);
            }
        }
    }

    /// When to divide the hop among streams again.
    fn next_update(&self) -> Option<Time> {
        let divisions = self.divisions.as_ref()?;
        if divisions.stale {
            return Some(Time::ZERO);
        }
        // One alone has all.
        divisions.into.next_update().filter(|_| self.streams.len() > 1)
    }

    /// Measures what streams have moved and divides the hop among them.
    fn update(&mut self, now: Time) {
        let Some(mut divisions) = self.divisions.take() else { return };
        let sockets = self.streams.values().filter_map(Stream::socket).take(SAMPLES);
        let least = sockets.filter_map(|socket| least_round_trip(&socket.fd)).min();
        divisions.round_trip = least.unwrap_or(divisions.round_trip);
        let into = self.flows(|stream| stream.into.received());
        let out = self.flows(|stream| stream.out.acknowledged());
        if std::mem::take(&mut divisions.stale) {
            divisions.into.redivide(&into);
            divisions.out.redivide(&out);
        }
        if divisions.into.next_update().is_none_or(|at| at <= now) {
            divisions.into.update(now, divisions.round_trip, &into);
            // The peer may delay its acknowledgements, as we do.
            divisions.out.update(now, divisions.round_trip + ACK_DELAY, &out);
        }
        for flow in &into {
            let Some(stream) = self.streams.get_mut(&flow.id) else { continue };
            let changed = stream.into.set_share(divisions.into.window(flow.id))
                | stream.out.set_share(divisions.out.window(flow.id));
            if changed {
                self.mark_dirty(flow.id);
            }
        }
        self.divisions = Some(divisions);
    }

    /// What every stream has moved, by their numbers.
    fn flows(&self, moved: impl Fn(&Stream) -> u64) -> Vec<Flow> {
        let flow = |(id, stream): (&u64, &Stream)| Flow {
            id: *id,
            priority: stream.priority,
            moved: moved(stream),
        };
        let mut flows: Vec<Flow> = self.streams.iter().map(flow).collect();
        flows.sort_unstable_by_key(|flow| flow.id);
        flows
    }

    /// Streams have come, or are over.
    fn redivide(&mut self) {
        if let Some(divisions) = &mut self.divisions {
            divisions.stale = true;
        }
    }

    /// Takes a stream out of the table.
    fn remove(&mut self, id: u64) -> Option<Stream> {
        let stream = self.streams.remove(&id)?;
        self.redivide();
        self.send_allowance.end(SEND_LEAST);
        self.recv_allowance.end(RECV_LEAST);
        self.send_allowance.release(stream.out.grown());
        self.recv_allowance.release(stream.into.grown());
        Some(stream)
    }

    /// Moves what can be moved on one stream and queues the events for reader and writer.
    pub(super) fn pump(&mut self, now: Time, id: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let more = stream.into.growth();
        if self.recv_allowance.reserve(more) {
            stream.into.widen(more);
        }
        let more = stream.out.growth();
        if stream.stalled_since.is_some_and(|at| now >= at + STALL)
            && self.send_allowance.reserve(more)
        {
            stream.out.grow(more);
        }
        let mut changes = stream.pump();
        let more = stream.out.growth();
        stream.stalled_since =
            stream.stalled_since.filter(|_| more > 0).or((more > 0).then_some(now));
        if stream.out.is_small() && self.send_allowance.reserve(more) {
            stream.out.grow(more);
            changes.writable |= stream.wake_writer();
        }
        if stream.unreported && stream.is_broken() {
            if let Some(stream) = self.remove(id) {
                self.removed.push((stream, Removal::Closed(0)));
            }
            return;
        }
        if changes.ack_pending && !stream.ack_delayed {
            stream.ack_delayed = true;
            self.delayed_acks.push(id);
            self.ack_at.get_or_insert(now + ACK_DELAY);
        }
        if !stream.unreported || stream.is_connected() {
            stream.report_events(StreamId(id), changes, &mut self.events);
        }
        if changes.again {
            self.mark_dirty(id);
        }
    }

    /// Takes every stream out of the table.
    pub(super) fn take_all(&mut self) -> Vec<Stream> {
        let ids: Vec<u64> = self.streams.keys().copied().collect();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }
}

impl Streams for SplitTcp {
    fn open(&mut self) -> Result<StreamId, StreamError> {
        if !self.has_room() {
            return Err(StreamError::TooMany);
        }
        let id = self.next;
        self.next += 2;
        self.insert(id, Stream::new());
        self.redivide();
        self.mark_dirty(id);
        Ok(StreamId(id))
    }

    fn poll_event(&mut self) -> Option<StreamEvent> {
        let event = self.events.pop_front()?;
        if let StreamEvent::Closed(id) = event
            && let Some(stream) = self.remove(id.0)
        {
            // Its connection is closed at the next pump, where the reactor is, and an association
            // that has no other stream is removed.
            self.removed.push((stream, Removal::Closed(0)));
        }
        Some(event)
    }

    fn send_space(&mut self, id: StreamId) -> Result<&mut [u8], StreamError> {
        self.streams.get_mut(&id.0).ok_or(StreamError::Unknown)?.space()
    }

    fn commit(&mut self, id: StreamId, n: usize) {
        if let Some(stream) = self.streams.get_mut(&id.0).filter(|_| n > 0) {
            stream.out.commit(n);
            self.totals.sent += n as u64;
            self.mark_dirty(id.0);
        }
    }

    fn finish(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id.0) {
            stream.out.finish();
            self.mark_dirty(id.0);
        }
    }

    fn reset(&mut self, id: StreamId, code: u64) {
        if let Some(stream) = self.remove(id.0) {
            if !stream.closed {
                self.events.push_back(StreamEvent::Closed(id));
            }
            self.removed.push((stream, Removal::Closed(code)));
        }
    }

    fn received(&self, id: StreamId) -> &[u8] {
        self.streams.get(&id.0).map_or(&[], Stream::received)
    }

    fn consume(&mut self, id: StreamId, n: usize) {
        if let Some(stream) = self.streams.get_mut(&id.0) {
            stream.consume(n);
            self.totals.received += n as u64;
            self.mark_dirty(id.0);
        }
    }

    /// Nothing is sent to the peer: its window, and what is sent to it, follows.
    fn set_priority(&mut self, id: StreamId, priority: u32) {
        let Some(stream) = self.streams.get_mut(&id.0) else { return };
        stream.priority = priority;
        self.divisions.get_or_insert_default().stale = true;
    }

    fn recv_state(&self, id: StreamId) -> RecvState {
        self.streams.get(&id.0).map_or(RecvState::Finished, Stream::recv_state)
    }

    fn detach(&mut self, id: StreamId) -> Option<StreamState> {
        let state = self.streams.get(&id.0)?.state()?;
        let stream = self.remove(id.0)?;
        if stream.socket().is_some() {
            self.removed.push((stream, Removal::Detached));
        }
        Some(state)
    }

    fn snapshot(&self, id: StreamId) -> Option<StreamState> {
        self.streams.get(&id.0)?.state()
    }
}

#[cfg(test)]
mod tests {
    use lasthop_units::Bytes;

    use super::*;

    /// SEC-13: whatever the growth of streams takes, one that comes later has its least.
    #[test]
    fn growth_leaves_room_for_a_stream_that_comes_later() {
        let memory = Memory::bounded(Bytes::from_mib(64), 4);
        let mut streams = SplitTcp::new(1000, 0, &memory);
        for step in [1 << 20, 1 << 16] {
            while streams.recv_allowance.reserve(step) {}
            while streams.send_allowance.reserve(step) {}
        }
        assert!(streams.has_room());
    }
}
