//! The streams of one association.

use std::collections::{HashMap, VecDeque};

use lasthop_hop::{RecvState, StreamError, StreamEvent, StreamId, Streams};

use super::record::End;
use super::stream::{SpaceError, Stream};

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
    /// Streams given up from above, with the code that the peer is to see.
    abandoned: Vec<(Stream, u64)>,
    /// Counters of streams that are gone.
    pub(super) totals: Totals,
}

/// What an association has seen.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Totals {
    /// Payload bytes written into streams.
    pub(super) sent: u64,
    /// Payload bytes read out of streams.
    pub(super) received: u64,
}

impl SplitTcp {
    /// No streams, and never more than `max` at once. The first that this side opens is `next`: an
    /// even number at a mobile, an odd one at a base.
    pub(super) fn new(max: usize, next: u64) -> Self {
        Self {
            streams: HashMap::new(),
            max,
            next,
            events: VecDeque::new(),
            dirty: Vec::new(),
            abandoned: Vec::new(),
            totals: Totals::default(),
        }
    }

    /// How many streams there are.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether there is no stream.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Whether the peer may open another.
    pub(super) fn has_room(&self) -> bool {
        self.streams.len() < self.max
    }

    /// Takes a stream that the peer opened.
    pub(super) fn incoming(&mut self, id: u64, stream: Stream) {
        self.streams.insert(id, stream);
        self.events.push_back(StreamEvent::Incoming(StreamId(id)));
        self.touch(id);
    }

    /// Takes a stream that the peer opens and this side gives a connection. It is heard of once that
    /// stands: before, a refusal could not be told.
    pub(super) fn called(&mut self, id: u64) {
        let mut stream = Stream::new();
        stream.called = true;
        self.streams.insert(id, stream);
        self.touch(id);
    }

    /// Whether this side has opened the stream and it has no connection yet.
    pub(super) fn awaits(&self, id: u64) -> bool {
        self.streams.get(&id).is_some_and(|stream| !stream.started())
    }

    /// Whether there is a stream of that number.
    pub(super) fn contains(&self, id: u64) -> bool {
        self.streams.contains_key(&id)
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut Stream> {
        self.streams.get_mut(&id)
    }

    /// Something may move on the stream.
    pub(super) fn touch(&mut self, id: u64) {
        if let Some(stream) = self.streams.get_mut(&id)
            && !stream.dirty
        {
            stream.dirty = true;
            self.dirty.push(id);
        }
    }

    /// Something may move on every stream.
    pub(super) fn touch_all(&mut self) {
        let ids: Vec<u64> = self.streams.keys().copied().collect();
        for id in ids {
            self.touch(id);
        }
    }

    /// A stream on which something may move.
    pub(super) fn next_dirty(&mut self) -> Option<u64> {
        while let Some(id) = self.dirty.pop() {
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.dirty = false;
                return Some(id);
            }
        }
        None
    }

    pub(super) fn is_idle(&self) -> bool {
        self.dirty.is_empty() && self.abandoned.is_empty()
    }

    pub(super) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    pub(super) fn next_abandoned(&mut self) -> Option<(Stream, u64)> {
        self.abandoned.pop()
    }

    /// Moves what can be moved on one stream and notes what the reader and the writer must know.
    pub(super) fn pump(&mut self, id: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let news = stream.pump();
        if stream.called && stream.is_broken() {
            if let Some(stream) = self.streams.remove(&id) {
                self.abandoned.push((stream, 0));
            }
            return;
        }
        if stream.called && !stream.stands() {
            return;
        }
        let id = StreamId(id);
        if std::mem::take(&mut stream.called) {
            self.events.push_back(StreamEvent::Incoming(id));
        }
        if news.readable {
            self.events.push_back(StreamEvent::Readable(id));
        }
        if news.writable {
            self.events.push_back(StreamEvent::Writable(id));
        }
        if news.finished {
            self.events.push_back(StreamEvent::Finished(id));
        }
        if stream.is_over() && !stream.closed {
            stream.closed = true;
            self.events.push_back(StreamEvent::Closed(id));
        }
    }

    /// Gives every stream up from below, as when the association is over.
    pub(super) fn break_all(&mut self, code: u64) {
        for stream in self.streams.values_mut() {
            stream.break_off(code);
        }
        self.touch_all();
    }
}

impl Streams for SplitTcp {
    fn open(&mut self) -> Result<StreamId, StreamError> {
        if !self.has_room() {
            return Err(StreamError::TooMany);
        }
        let id = self.next;
        self.next += 2;
        self.streams.insert(id, Stream::new());
        self.touch(id);
        Ok(StreamId(id))
    }

    fn poll_event(&mut self) -> Option<StreamEvent> {
        let event = self.events.pop_front()?;
        if let StreamEvent::Closed(id) = event
            && let Some(stream) = self.streams.remove(&id.0)
            && stream.socket().is_some()
        {
            // Its connection is closed at the next pump, where the reactor is.
            self.abandoned.push((stream, 0));
        }
        Some(event)
    }

    fn send_space(&mut self, id: StreamId) -> Result<&mut [u8], StreamError> {
        let stream = self.streams.get_mut(&id.0).ok_or(StreamError::Unknown)?;
        stream.space().map_err(|e| match e {
            SpaceError::Finished => StreamError::Finished,
            SpaceError::Reset(code) => StreamError::Reset(code),
        })
    }

    fn commit(&mut self, id: StreamId, n: usize) {
        if let Some(stream) = self.streams.get_mut(&id.0) {
            stream.commit(n);
            self.totals.sent += n as u64;
            self.touch(id.0);
        }
    }

    fn finish(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id.0) {
            stream.finish();
            self.touch(id.0);
        }
    }

    fn reset(&mut self, id: StreamId, code: u64) {
        if let Some(stream) = self.streams.remove(&id.0) {
            if !stream.closed {
                self.events.push_back(StreamEvent::Closed(id));
            }
            self.abandoned.push((stream, code));
        }
    }

    fn received(&self, id: StreamId) -> &[u8] {
        self.streams.get(&id.0).map_or(&[], Stream::received)
    }

    fn consume(&mut self, id: StreamId, n: usize) {
        if let Some(stream) = self.streams.get_mut(&id.0) {
            stream.consume(n);
            self.totals.received += n as u64;
            self.touch(id.0);
        }
    }

    fn recv_state(&self, id: StreamId) -> RecvState {
        match self.streams.get(&id.0).map(Stream::end) {
            None | Some(End::Finished) => RecvState::Finished,
            Some(End::Open) => RecvState::Open,
            Some(End::Reset(code)) => RecvState::Reset(code),
        }
    }
}
