//! TCP as the transport of a hop: each stream is a connection of its own (SPL-1, ITCP-1).

use std::collections::{BTreeMap, VecDeque};

use lasthop_hop::{Movable, RecvState, StreamError, StreamEvent, StreamId, StreamState, Streams};
use lasthop_tcp::{Config, Event, Ports, Snapshot, Socket, State, reset_for};
use lasthop_units::{Stream as Numbers, Time};
use lasthop_wire::tcp::{Flags, Segment, Seq};

/// The base's port for connections of the hop.
pub const HOP_PORT: u16 = 4433;
/// The mobile's ports for them start here: stream `2 n` has port `FIRST_PORT + n`.
const FIRST_PORT: u16 = 20_000;
/// Streams that one end may have at once.
const STREAMS_MAX: usize = 4096;
/// What a reset by TCP stands for, which carries no code.
const RESET: u64 = 0;

/// One end of a hop over TCP. Only the mobile opens streams.
pub struct TcpStreams {
    mobile: bool,
    config: Config,
    entries: BTreeMap<u64, Entry>,
    next: u64,
    numbers: Numbers,
    events: VecDeque<StreamEvent>,
    /// Segments for connections that do not exist are answered.
    resets: VecDeque<Segment>,
    now: Time,
}

struct Entry {
    socket: Socket,
    /// Nobody above knows of it: it was opened by the peer and does not stand, or is over.
    silent: bool,
    wants_data: bool,
    wants_room: bool,
    finished: bool,
    reset: Option<u64>,
    /// Given up from this side.
    dropped: bool,
    closed: bool,
}

impl Entry {
    fn new(socket: Socket, silent: bool) -> Self {
        Self {
            socket,
            silent,
            wants_data: true,
            wants_room: true,
            finished: false,
            reset: None,
            dropped: false,
            closed: false,
        }
    }

    fn has_news(&self) -> bool {
        !self.socket.received().is_empty() || self.ended()
    }

    /// The peer's end, or a reset, has come.
    fn ended(&self) -> bool {
        self.reset.is_some() || self.socket.connection().peer_finished()
    }

    /// Both directions are over and everything was read.
    fn is_over(&self) -> bool {
        let state = self.socket.connection().state();
        let read = self.socket.received().is_empty();
        self.reset.is_some() || (matches!(state, State::TimeWait | State::Closed) && read)
    }
}

/// A stream taken out as it is, to go on as the same connection at another base (ITCP-3).
#[derive(Clone, Debug)]
pub struct Frozen {
    /// The connection.
    pub snapshot: Snapshot,
    /// Bytes written and not acknowledged.
    pub unacknowledged: Vec<u8>,
    /// Bytes received and not read.
    pub unread: Vec<u8>,
}

impl TcpStreams {
    /// The mobile's end.
    pub fn mobile(config: Config, numbers: Numbers) -> Self {
        Self::new(true, config, numbers)
    }

    /// The base's end.
    pub fn base(config: Config, numbers: Numbers) -> Self {
        Self::new(false, config, numbers)
    }

    fn new(mobile: bool, config: Config, numbers: Numbers) -> Self {
        Self {
            mobile,
            config,
            entries: BTreeMap::new(),
            next: 0,
            numbers,
            events: VecDeque::new(),
            resets: VecDeque::new(),
            now: Time::ZERO,
        }
    }

    /// An end that goes on with stream numbers where another one stopped.
    #[must_use]
    pub fn after(mut self, other: &Self) -> Self {
        self.next = other.next;
        self
    }

    fn ports(&self, id: u64) -> Ports {
        let port = FIRST_PORT + (id / 2 % 40_000) as u16;
        if self.mobile {
            Ports { local: port, remote: HOP_PORT }
        } else {
            Ports { local: HOP_PORT, remote: port }
        }
    }

    /// The connections, for those who watch.
    pub fn sockets(&self) -> impl Iterator<Item = &Socket> {
        self.entries.values().map(|e| &e.socket)
    }

    /// Takes in a segment of the hop.
    pub fn handle_segment(&mut self, now: Time, segment: &Segment, payload: &[u8]) {
        self.now = now;
        let mobile_port = if self.mobile { segment.dst_port } else { segment.src_port };
        let Some(n) = mobile_port.checked_sub(FIRST_PORT) else { return };
        let id = 2 * u64::from(n);
        if !self.entries.contains_key(&id) {
            self.open_for_peer(now, id, segment);
            return;
        }
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.socket.handle_segment(now, segment, payload);
        }
        self.look(id);
    }

    fn open_for_peer(&mut self, now: Time, id: u64, segment: &Segment) {
        let opening = !self.mobile && segment.flags.contains(Flags::SYN);
        if !opening || self.entries.len() >= STREAMS_MAX {
            self.resets.extend(reset_for(segment));
            return;
        }
        let iss = Seq(self.numbers.next_u64() as u32);
        match Socket::accept(self.config, self.ports(id), segment, iss, now) {
            Ok(socket) => drop(self.entries.insert(id, Entry::new(socket, true))),
            Err(_) => self.resets.extend(reset_for(segment)),
        }
    }

    /// The next segment of the hop; its payload is at the start of `out`.
    pub fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Segment> {
        self.now = now;
        if let Some(reset) = self.resets.pop_front() {
            return Some(reset);
        }
        self.entries.values_mut().find_map(|e| e.socket.poll_transmit(now, out))
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    pub fn next_timeout(&self) -> Option<Time> {
        self.entries.values().filter_map(|e| e.socket.next_timeout()).min()
    }

    /// The time asked for has come.
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        let due = |e: &Entry| e.socket.next_timeout().is_some_and(|t| t <= now);
        let ids: Vec<u64> =
            self.entries.iter().filter(|(_, e)| due(e)).map(|(id, _)| *id).collect();
        for id in ids {
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.socket.handle_timeout(now);
            }
            self.look(id);
        }
    }

    /// Tells what changed on a stream.
    fn look(&mut self, id: u64) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let stream = StreamId(id);
        while let Some(event) = entry.socket.poll_event() {
            match event {
                Event::Connected if entry.silent => {
                    entry.silent = false;
                    self.events.push_back(StreamEvent::Incoming(stream));
                }
                Event::Finished if !entry.dropped => {
                    self.events.push_back(StreamEvent::Finished(stream));
                }
                Event::Reset | Event::GaveUp if !entry.dropped => {
                    entry.reset = Some(RESET);
                    entry.wants_data = false;
                    self.events.push_back(StreamEvent::Readable(stream));
                }
                _ => {}
            }
        }
        if entry.dropped || entry.silent {
            return self.forget_if_over(id);
        }
        if entry.wants_data && entry.has_news() {
            entry.wants_data = false;
            self.events.push_back(StreamEvent::Readable(stream));
        }
        if entry.wants_room && entry.socket.connection().is_established() {
            let room = entry.socket.connection().send_room();
            let worth = entry.socket.connection().config().send_buffer.get() / 4;
            if room.get() >= worth.max(1) {
                entry.wants_room = false;
                self.events.push_back(StreamEvent::Writable(stream));
            }
        }
        self.forget_if_over(id);
    }

    fn forget_if_over(&mut self, id: u64) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let over = entry.is_over() || (entry.dropped && entry.socket.connection().is_closed());
        if over && !entry.closed {
            entry.closed = true;
            if !entry.silent {
                self.events.push_back(StreamEvent::Closed(StreamId(id)));
            }
        }
        // A connection in TIME-WAIT still answers old segments.
        if entry.closed
            && entry.socket.connection().is_closed()
            && entry.socket.next_timeout().is_none()
        {
            self.entries.remove(&id);
        }
    }

    /// Takes all streams out as they are.
    pub fn freeze(&mut self, now: Time) -> BTreeMap<u64, Frozen> {
        let frozen = |socket: &Socket| {
            let join = |(a, b): (&[u8], &[u8])| [a, b].concat();
            Frozen {
                snapshot: socket.snapshot(now),
                unacknowledged: join(socket.unacknowledged()),
                unread: join(socket.unread()),
            }
        };
        let all = core::mem::take(&mut self.entries);
        all.into_iter().map(|(id, e)| (id, frozen(&e.socket))).collect()
    }

    /// Goes on with streams that were frozen at another base, and repeats at once what is not
    /// acknowledged (ITCP-4).
    pub fn thaw(&mut self, now: Time, frozen: &BTreeMap<u64, Frozen>) {
        for (id, f) in frozen {
            let restored =
                Socket::restore(self.config, now, &f.snapshot, &f.unacknowledged, &f.unread);
            let Some(mut socket) = restored else { continue };
            socket.retransmit_now(now);
            self.entries.insert(*id, Entry::new(socket, false));
        }
    }
}

impl Streams for TcpStreams {
    fn open(&mut self) -> Result<StreamId, StreamError> {
        if !self.mobile || self.entries.len() >= STREAMS_MAX {
            return Err(StreamError::TooMany);
        }
        let id = self.next;
        self.next += 2;
        let iss = Seq(self.numbers.next_u64() as u32);
        let socket = Socket::connect(self.config, self.ports(id), iss, self.now);
        self.entries.insert(id, Entry::new(socket, false));
        Ok(StreamId(id))
    }

    fn poll_event(&mut self) -> Option<StreamEvent> {
        self.events.pop_front()
    }

    fn send_space(&mut self, id: StreamId) -> Result<&mut [u8], StreamError> {
        let entry = self.entries.get_mut(&id.0).ok_or(StreamError::Unknown)?;
        if let Some(code) = entry.reset {
            return Err(StreamError::Reset(code));
        }
        if entry.dropped || entry.closed {
            return Err(StreamError::Unknown);
        }
        if entry.finished {
            return Err(StreamError::Finished);
        }
        let room = entry.socket.send_space();
        if room.is_empty() {
            entry.wants_room = true;
        }
        Ok(entry.socket.send_space())
    }

    fn commit(&mut self, id: StreamId, n: usize) {
        if let Some(entry) = self.entries.get_mut(&id.0) {
            entry.socket.commit(n);
        }
    }

    fn finish(&mut self, id: StreamId) {
        if let Some(entry) = self.entries.get_mut(&id.0) {
            entry.finished = true;
            entry.socket.finish();
            self.look(id.0);
        }
    }

    fn reset(&mut self, id: StreamId, _code: u64) {
        if let Some(entry) = self.entries.get_mut(&id.0) {
            entry.dropped = true;
            entry.socket.abort();
            self.look(id.0);
        }
    }

    fn received(&self, id: StreamId) -> &[u8] {
        self.entries.get(&id.0).map_or(&[], |e| e.socket.received())
    }

    fn consume(&mut self, id: StreamId, n: usize) {
        let Some(entry) = self.entries.get_mut(&id.0) else { return };
        entry.socket.consume(n);
        if entry.socket.received().is_empty() && !entry.ended() {
            entry.wants_data = true;
        }
        self.look(id.0);
    }

    fn recv_state(&self, id: StreamId) -> RecvState {
        let Some(entry) = self.entries.get(&id.0) else { return RecvState::Finished };
        match entry.reset {
            Some(code) => RecvState::Reset(code),
            None if entry.ended() && entry.socket.received().is_empty() => RecvState::Finished,
            None => RecvState::Open,
        }
    }
}

impl Movable for TcpStreams {
    fn detach(&mut self, id: StreamId) -> Option<StreamState> {
        let entry = self.entries.get(&id.0)?;
        if entry.dropped || entry.closed || entry.reset.is_some() {
            return None;
        }
        let entry = self.entries.remove(&id.0)?;
        let join = |(a, b): (&[u8], &[u8])| [a, b].concat();
        let connection = entry.socket.connection();
        Some(StreamState {
            send_start: connection.acknowledged().get(),
            send: join(entry.socket.unacknowledged()),
            send_ended: entry.finished,
            received: connection.received().get(),
            unread: join(entry.socket.unread()),
            recv_ended: connection.peer_finished(),
        })
    }
}
