//! A transport in memory: two ends that keep every promise of [`Streams`] and nothing more.
//!
//! Nothing moves by itself: [`Pair::carry`] takes some bytes of one end across, so that a test
//! decides what overtakes what between streams. Buffers are bounded, and pieces may be as small as
//! a byte, which real transports do at the edges of their rings.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use lasthop_hop::{RecvState, StreamError, StreamEvent, StreamId, StreamState, Streams};
use lasthop_units::Bytes;

/// What a pair of ends is allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes each direction of a stream may buffer at each end.
    pub buffer: usize,
    /// The longest contiguous piece that is lent for reading or writing.
    pub piece: usize,
    /// Streams each end may have at once.
    pub streams: usize,
    /// The last so many bytes that crossed count as not acknowledged when a stream is detached.
    pub unacknowledged: usize,
    /// How much more than what has crossed is [presumed](Streams::presumed) to have; `None` without
    /// presumption.
    pub presumed: Option<i64>,
}

impl Limits {
    /// What a mobile may resend blindly: little, if there are presumptions to go by instead.
    pub fn blind(&self) -> Bytes {
        Bytes::new(if self.presumed.is_some() { 80 } else { 500 })
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            buffer: 16 * 1024,
            piece: usize::MAX,
            streams: usize::MAX,
            unacknowledged: 0,
            presumed: None,
        }
    }
}

/// Two ends and what is between them.
#[derive(Debug)]
pub struct Pair {
    /// The side that opens streams with even numbers.
    pub mobile: End,
    /// The side that opens streams with odd numbers.
    pub base: End,
}

impl Pair {
    /// Two ends without streams.
    pub fn new(limits: Limits) -> Self {
        Self { mobile: End::new(limits, 0), base: End::new(limits, 1) }
    }

    /// Takes at most `limit` bytes of each of the mobile's streams to the base.
    pub fn carry_up(&mut self, limit: usize) {
        let _ = carry(&mut self.mobile, &mut self.base, limit);
    }

    /// Takes at most `limit` bytes of each of the base's streams to the mobile.
    pub fn carry_down(&mut self, limit: usize) {
        let _ = carry(&mut self.base, &mut self.mobile, limit);
    }

    /// Everything that there is room for, both ways; whether anything moved.
    pub fn carry(&mut self) -> bool {
        let up = carry(&mut self.mobile, &mut self.base, usize::MAX);
        carry(&mut self.base, &mut self.mobile, usize::MAX) || up
    }
}

/// One end; implements [`Streams`].
#[derive(Debug)]
pub struct End {
    limits: Limits,
    next: u64,
    streams: BTreeMap<u64, Stream>,
    /// Resets of this side that the peer has not seen.
    resets: VecDeque<(u64, u64)>,
    /// How far the peer may let go of what it has sent, which it does not know.
    releases: VecDeque<(u64, u64)>,
    events: VecDeque<StreamEvent>,
    /// What had crossed of streams that were detached.
    crossed: BTreeMap<u64, u64>,
}

#[derive(Debug)]
struct Stream {
    /// Bytes that crossed, and the last of them.
    crossed: u64,
    kept: VecDeque<u8>,
    /// Where what is acknowledged is kept until it is released: those before are.
    released: Option<u64>,
    /// The peer keeps what it sends until it is released, and whether that is so of its end.
    releases: Option<bool>,
    /// Bytes that were consumed.
    consumed: u64,
    unsent: Vec<u8>,
    committed: usize,
    announced: bool,
    ending: bool,
    ended: bool,
    /// The writer found no room and waits for the edge.
    starved: bool,
    unread: Vec<u8>,
    peer_ended: bool,
    peer_reset: Option<u64>,
    closing: bool,
    priority: Option<u32>,
}

impl Stream {
    fn new(limits: Limits, announced: bool) -> Self {
        Self {
            crossed: 0,
            kept: VecDeque::new(),
            released: None,
            releases: None,
            consumed: 0,
            unsent: vec![0; limits.buffer],
            committed: 0,
            announced,
            ending: false,
            ended: false,
            starved: false,
            unread: Vec::with_capacity(limits.buffer),
            peer_ended: false,
            peer_reset: None,
            closing: false,
            priority: None,
        }
    }

    fn is_over(&self) -> bool {
        let released = self.released.is_none_or(|released| released > self.crossed);
        let releases = self.releases.unwrap_or(true);
        self.ended && self.peer_ended && self.unread.is_empty() && released && releases
    }

    /// The last bytes that crossed count as not acknowledged.
    fn acknowledged(&self, limits: &Limits) -> u64 {
        self.crossed.saturating_sub(limits.unacknowledged as u64)
    }

    fn let_go(&mut self, limits: &Limits) {
        let start = self.acknowledged(limits).min(self.released.unwrap_or(u64::MAX));
        let kept = self.kept.len().min((self.crossed - start) as usize);
        self.kept.drain(..self.kept.len() - kept);
    }
}

impl End {
    fn new(limits: Limits, parity: u64) -> Self {
        Self {
            limits,
            next: parity,
            streams: BTreeMap::new(),
            resets: VecDeque::new(),
            releases: VecDeque::new(),
            events: VecDeque::new(),
            crossed: BTreeMap::new(),
        }
    }

    /// Streams that this end remembers.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether no stream is remembered and nothing is left to carry or to tell.
    pub fn is_empty(&self) -> bool {
        let nothing = self.resets.is_empty() && self.releases.is_empty();
        self.streams.is_empty() && nothing && self.events.is_empty()
    }

    /// Loses one stream and no other, at both ends.
    #[cfg(test)]
    pub(crate) fn lose(&mut self, id: StreamId, code: u64) {
        if self.streams.get(&id.0).is_some_and(|stream| stream.announced) {
            self.resets.push_back((id.0, code));
        }
        self.take_reset(id.0, code);
    }

    /// The priority that a stream was given at this end.
    pub fn priority(&self, id: StreamId) -> Option<u32> {
        self.streams.get(&id.0)?.priority
    }

    fn close_if_over(&mut self, id: u64) {
        if let Some(stream) = self.streams.get_mut(&id)
            && stream.is_over()
            && !stream.closing
        {
            stream.closing = true;
            self.events.push_back(StreamEvent::Closed(StreamId(id)));
        }
    }

    fn take_reset(&mut self, id: u64, code: u64) {
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| !stream.closing) else {
            return;
        };
        stream.unread.clear();
        stream.peer_reset = Some(code);
        stream.closing = true;
        self.events.push_back(StreamEvent::Readable(StreamId(id)));
        self.events.push_back(StreamEvent::Closed(StreamId(id)));
    }
}

fn carry(from: &mut End, to: &mut End, limit: usize) -> bool {
    let mut moved = !from.resets.is_empty();
    while let Some((id, code)) = from.resets.pop_front() {
        to.take_reset(id, code);
    }
    while let Some((id, offset)) = from.releases.pop_front() {
        if let Some(stream) = to.streams.get_mut(&id) {
            stream.released = stream.released.max(Some(offset));
            stream.let_go(&to.limits);
        }
        to.close_if_over(id);
    }
    let ids: Vec<u64> = from.streams.keys().copied().collect();
    for id in ids {
        moved |= carry_stream(from, to, id, limit);
        from.close_if_over(id);
        to.close_if_over(id);
    }
    moved
}

fn carry_stream(from: &mut End, to: &mut End, id: u64, limit: usize) -> bool {
    let Some(source) = from.streams.get_mut(&id) else { return false };
    let something = source.committed > 0 || source.ending;
    if source.ended || source.peer_reset.is_some() || !something {
        return false;
    }
    if !source.announced {
        source.announced = true;
        to.streams.insert(id, Stream::new(to.limits, true));
        to.events.push_back(StreamEvent::Incoming(StreamId(id)));
    }
    let Some(sink) = to.streams.get_mut(&id) else { return false };
    let room = to.limits.buffer - sink.unread.len();
    let n = source.committed.min(room).min(limit);
    let quiet = sink.unread.is_empty();
    sink.unread.extend_from_slice(&source.unsent[..n]);
    source.crossed += n as u64;
    source.kept.extend(&source.unsent[..n]);
    source.let_go(&from.limits);
    source.unsent.copy_within(n..source.committed, 0);
    source.committed -= n;
    let ends = source.ending && source.committed == 0;
    if quiet && (n > 0 || ends) {
        to.events.push_back(StreamEvent::Readable(StreamId(id)));
    }
    if ends {
        sink.peer_ended = true;
        source.ended = true;
        from.events.push_back(StreamEvent::Finished(StreamId(id)));
    } else if n > 0 && source.starved {
        source.starved = false;
        from.events.push_back(StreamEvent::Writable(StreamId(id)));
    }
    n > 0 || ends
}

impl Streams for End {
    fn open(&mut self) -> Result<StreamId, StreamError> {
        if self.streams.len() >= self.limits.streams {
            return Err(StreamError::TooMany);
        }
        let id = self.next;
        self.next += 2;
        self.streams.insert(id, Stream::new(self.limits, false));
        Ok(StreamId(id))
    }

    fn poll_event(&mut self) -> Option<StreamEvent> {
        let event = self.events.pop_front()?;
        if let StreamEvent::Closed(id) = event {
            self.streams.remove(&id.0);
        }
        Some(event)
    }

    fn send_space(&mut self, id: StreamId) -> Result<&mut [u8], StreamError> {
        let piece = self.limits.piece;
        let stream = self.streams.get_mut(&id.0).ok_or(StreamError::Unknown)?;
        if let Some(code) = stream.peer_reset {
            return Err(StreamError::Reset(code));
        }
        if stream.ending {
            return Err(StreamError::Finished);
        }
        let room = &mut stream.unsent[stream.committed..];
        stream.starved = room.is_empty();
        let n = room.len().min(piece);
        Ok(&mut room[..n])
    }

    fn commit(&mut self, id: StreamId, n: usize) {
        let Some(stream) = self.streams.get_mut(&id.0) else { return };
        assert!(n <= self.limits.piece.min(stream.unsent.len() - stream.committed), "no room");
        stream.committed += n;
    }

    fn finish(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id.0) {
            stream.ending = true;
        }
    }

    fn reset(&mut self, id: StreamId, code: u64) {
        let Some(stream) = self.streams.remove(&id.0) else { return };
        if stream.announced && stream.peer_reset.is_none() {
            self.resets.push_back((id.0, code));
        }
        if !stream.closing {
            self.events.push_back(StreamEvent::Closed(id));
        }
    }

    fn received(&self, id: StreamId) -> &[u8] {
        self.streams
            .get(&id.0)
            .map_or(&[], |stream| &stream.unread[..stream.unread.len().min(self.limits.piece)])
    }

    fn consume(&mut self, id: StreamId, n: usize) {
        if let Some(stream) = self.streams.get_mut(&id.0) {
            assert!(n <= stream.unread.len().min(self.limits.piece), "not received");
            stream.unread.drain(..n);
            stream.consumed += n as u64;
        }
        self.close_if_over(id.0);
    }

    fn recv_state(&self, id: StreamId) -> RecvState {
        match self.streams.get(&id.0) {
            None => RecvState::Finished,
            Some(Stream { peer_reset: Some(code), .. }) => RecvState::Reset(*code),
            Some(stream) if stream.peer_ended && stream.unread.is_empty() => RecvState::Finished,
            Some(_) => RecvState::Open,
        }
    }

    fn set_priority(&mut self, id: StreamId, priority: u32) {
        if let Some(stream) = self.streams.get_mut(&id.0) {
            stream.priority = Some(priority);
        }
    }

    fn detach(&mut self, id: StreamId) -> Option<StreamState> {
        let state = self.snapshot(id)?;
        let stream = self.streams.remove(&id.0)?;
        self.crossed.insert(id.0, stream.crossed);
        Some(state)
    }

    fn arrived(&self, id: StreamId) -> Option<u64> {
        self.crossed.get(&id.0).copied()
    }

    fn acknowledged(&self, id: StreamId) -> Option<u64> {
        let stream = self.streams.get(&id.0)?;
        let acknowledged = stream.acknowledged(&self.limits);
        Some(acknowledged + u64::from(stream.ended && acknowledged == stream.crossed))
    }

    fn release(&mut self, id: StreamId, behind: u64, end: bool) -> bool {
        let Some(stream) = self.streams.get_mut(&id.0).filter(|stream| !stream.closing) else {
            return false;
        };
        let end = end && behind == 0 && stream.peer_ended && stream.unread.is_empty();
        let offset = stream.consumed.saturating_sub(behind) + u64::from(end);
        stream.releases = Some(end);
        self.releases.push_back((id.0, offset));
        self.close_if_over(id.0);
        true
    }

    fn release_ahead(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id.0).filter(|stream| !stream.closing) {
            stream.releases = Some(true);
            self.releases.push_back((id.0, u64::MAX));
            self.close_if_over(id.0);
        }
    }

    fn retain(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id.0) {
            stream.released = stream.released.max(Some(0));
        }
    }

    fn presumed(&self, id: StreamId) -> Option<u64> {
        let stream = self.streams.get(&id.0)?;
        let acknowledged = stream.acknowledged(&self.limits);
        Some(stream.crossed.saturating_add_signed(self.limits.presumed?).max(acknowledged))
    }

    fn snapshot(&self, id: StreamId) -> Option<StreamState> {
        let stream = self.streams.get(&id.0).filter(|s| !s.closing && s.peer_reset.is_none())?;
        let mut send: Vec<u8> = stream.kept.iter().copied().collect();
        let send_start = stream.crossed - send.len() as u64;
        send.extend_from_slice(&stream.unsent[..stream.committed]);
        Some(StreamState {
            send_start,
            send,
            send_ended: stream.ending,
            received: stream.consumed + stream.unread.len() as u64,
            unread: stream.unread.clone(),
            recv_ended: stream.peer_ended,
        })
    }
}
