//! TCP as the transport of a hop: each stream is a connection of its own (SPL-1, ITCP-1).

use std::collections::{BTreeMap, VecDeque};

use lasthop_hop::{RecvState, StreamError, StreamEvent, StreamId, StreamState, Streams};
use lasthop_tcp::{Config, Estimates, Event, Ports, Socket, State, reset_for};
use lasthop_units::{Stream as Numbers, Time};
use lasthop_wire::tcp::{Flags, Segment, Seq};

/// The port, at bases and at mobiles, that connections of the hop are opened to.
pub const HOP_PORT: u16 = 4433;
/// Ports that they are opened from.
const FIRST_PORT: u16 = 20_000;
const PORTS: u64 = 40_000;
/// Streams that both ends together may have at once, those in TIME-WAIT apart.
const STREAMS_MAX: usize = 4096;
/// Streams in TIME-WAIT that are kept; the oldest make room.
const WAITING_MAX: usize = 4096;
/// Resets that wait to be sent, at most: what is beyond is as good as lost.
const RESETS_MAX: usize = 256;
/// What a reset by TCP stands for, which carries no code.
const RESET: u64 = 0;

/// One end of a hop over TCP.
pub struct TcpStreams {
    mobile: bool,
    config: Config,
    entries: BTreeMap<u64, Entry>,
    /// The living stream of each port that one is opened from, and whether it is the mobile's.
    by_port: BTreeMap<(bool, u16), u64>,
    /// The next stream that this end opens.
    next: u64,
    /// The highest stream that the peer opened.
    highest: u64,
    /// Entries that wait in TIME-WAIT, oldest first.
    waiting: VecDeque<u64>,
    numbers: Numbers,
    events: VecDeque<StreamEvent>,
    /// For connections that do not exist, or that this end gave up.
    resets: VecDeque<Segment>,
    now: Time,
}

struct Entry {
    socket: Socket,
    /// What another connection knew of the path, for when this one stands.
    estimates: Option<Estimates>,
    /// It is not reported above: it was opened by the peer and does not stand.
    silent: bool,
    wants_data: bool,
    wants_room: bool,
    finished: bool,
    reset: Option<u64>,
    closed: bool,
    /// Whoever is above knows that.
    told: bool,
}

impl Entry {
    fn new(socket: Socket, silent: bool) -> Self {
        Self {
            socket,
            estimates: None,
            silent,
            wants_data: true,
            wants_room: true,
            finished: false,
            reset: None,
            closed: false,
            told: silent,
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
            by_port: BTreeMap::new(),
            next: u64::from(!mobile),
            highest: u64::from(mobile),
            waiting: VecDeque::new(),
            numbers,
            events: VecDeque::new(),
            resets: VecDeque::new(),
            now: Time::ZERO,
        }
    }

    /// The mobile's streams are the even ones.
    fn is_own(&self, id: u64) -> bool {
        id.is_multiple_of(2) == self.mobile
    }

    fn ports(&self, id: u64) -> Ports {
        let port = opener_port(id);
        if self.is_own(id) {
            Ports { local: port, remote: HOP_PORT }
        } else {
            Ports { local: HOP_PORT, remote: port }
        }
    }

    fn insert(&mut self, id: u64, entry: Entry) {
        self.by_port.insert((id.is_multiple_of(2), opener_port(id)), id);
        self.entries.insert(id, entry);
    }

    fn remove(&mut self, id: u64) -> Option<Entry> {
        self.by_port.remove(&(id.is_multiple_of(2), opener_port(id)));
        self.entries.remove(&id)
    }

    fn is_full(&self) -> bool {
        self.entries.len() - self.waiting.len().min(self.entries.len()) >= STREAMS_MAX
    }

    /// The connections, for those who watch.
    pub fn sockets(&self) -> impl Iterator<Item = &Socket> {
        self.entries.values().map(|e| &e.socket)
    }

    /// What the connection behind a stream has learned of the path.
    pub fn estimates(&self, id: StreamId) -> Option<Estimates> {
        Some(self.entries.get(&id.0)?.socket.connection().estimates())
    }

    /// Lets a stream go on with what another one knew of the path (ITCP-3, ITCP-4).
    pub fn adopt(&mut self, id: StreamId, estimates: Estimates) {
        if let Some(entry) = self.entries.get_mut(&id.0) {
            entry.socket.adopt(&estimates);
            if !entry.socket.connection().is_established() {
                entry.estimates = Some(estimates);
            }
        }
    }

    /// Takes in a segment of the hop.
    pub fn handle_segment(&mut self, now: Time, segment: &Segment, payload: &[u8]) {
        self.now = now;
        let (own, port) = match (segment.src_port, segment.dst_port) {
            (port, HOP_PORT) => (false, port),
            (HOP_PORT, port) => (true, port),
            _ => return,
        };
        match self.by_port.get(&(own == self.mobile, port)) {
            Some(&id) => {
                if let Some(entry) = self.entries.get_mut(&id) {
                    entry.socket.handle_segment(now, segment, payload);
                }
                self.report_changes(id);
            }
            None if !own && segment.flags.contains(Flags::SYN) && !self.is_full() => {
                self.open_for_peer(now, port, segment);
            }
            None => self.answer(reset_for(segment)),
        }
    }

    fn answer(&mut self, reset: Option<Segment>) {
        if self.resets.len() < RESETS_MAX {
            self.resets.extend(reset);
        }
    }

    fn open_for_peer(&mut self, now: Time, port: u16, segment: &Segment) {
        let iss = Seq(self.numbers.next_u64() as u32);
        let Some(id) = self.peer_stream(port) else { return self.answer(reset_for(segment)) };
        match Socket::accept(self.config, self.ports(id), segment, iss, now) {
            Ok(socket) => {
                self.highest = self.highest.max(id);
                self.insert(id, Entry::new(socket, true));
            }
            Err(_) => self.answer(reset_for(segment)),
        }
    }

    /// Which stream the peer opens from that port: ports are used in turn, so of all streams that
    /// have it, the one nearest to the last.
    fn peer_stream(&self, port: u16) -> Option<u64> {
        let n = u64::from(port.checked_sub(FIRST_PORT)?);
        let last = self.highest / 2;
        let turn = last - last % PORTS + n;
        let nearest = if turn + PORTS / 2 < last {
            turn + PORTS
        } else if turn > last + PORTS / 2 && turn >= PORTS {
            turn - PORTS
        } else {
            turn
        };
        (n < PORTS).then_some(2 * nearest + u64::from(self.mobile))
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
            self.report_changes(id);
        }
    }

    /// Tells what changed on a stream.
    fn report_changes(&mut self, id: u64) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let stream = StreamId(id);
        while let Some(event) = entry.socket.poll_event() {
            match event {
                Event::Connected => {
                    if let Some(estimates) = entry.estimates.take() {
                        entry.socket.adopt(&estimates);
                    }
                    if core::mem::take(&mut entry.silent) {
                        entry.told = false;
                        self.events.push_back(StreamEvent::Incoming(stream));
                    }
                }
                Event::Finished => self.events.push_back(StreamEvent::Finished(stream)),
                Event::Reset | Event::GaveUp => {
                    entry.reset = Some(RESET);
                    entry.wants_data = false;
                    if !entry.silent {
                        self.events.push_back(StreamEvent::Readable(stream));
                    }
                }
                Event::PeerFinished | Event::Closed => {}
            }
        }
        if entry.silent {
            return self.remove_if_closed(id);
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
        self.remove_if_closed(id);
    }

    fn remove_if_closed(&mut self, id: u64) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if entry.is_over() && !entry.closed {
            entry.closed = true;
            if !entry.silent {
                self.events.push_back(StreamEvent::Closed(StreamId(id)));
            }
            self.waiting.push_back(id);
        }
        // A connection in TIME-WAIT still answers old segments.
        if entry.closed && entry.told && entry.socket.connection().is_closed() {
            self.waiting.retain(|waiting| *waiting != id);
            self.give_last_word(id);
        } else if self.waiting.len() > WAITING_MAX
            && let Some(oldest) = self.waiting.pop_front()
        {
            self.remove(oldest);
        }
    }

    /// Removes a connection that is over. What it has yet to send is a reset at most.
    fn give_last_word(&mut self, id: u64) {
        let Some(mut entry) = self.remove(id) else { return };
        let mut room = vec![0; entry.socket.connection().segment_size().as_usize()];
        let last = entry.socket.poll_transmit(self.now, &mut room);
        self.answer(last);
    }
}

fn opener_port(id: u64) -> u16 {
    // The remainder is below PORTS.
    FIRST_PORT + (id / 2 % PORTS) as u16
}

impl Streams for TcpStreams {
    fn open(&mut self) -> Result<StreamId, StreamError> {
        if self.is_full() {
            return Err(StreamError::TooMany);
        }
        let own = self.mobile;
        while self.by_port.contains_key(&(own, opener_port(self.next))) {
            self.next += 2;
        }
        let id = self.next;
        self.next += 2;
        let iss = Seq(self.numbers.next_u64() as u32);
        let socket = Socket::connect(self.config, self.ports(id), iss, self.now);
        self.insert(id, Entry::new(socket, false));
        Ok(StreamId(id))
    }

    fn poll_event(&mut self) -> Option<StreamEvent> {
        let event = self.events.pop_front()?;
        if let StreamEvent::Closed(StreamId(id)) = event
            && let Some(entry) = self.entries.get_mut(&id)
        {
            entry.told = true;
            self.remove_if_closed(id);
        }
        Some(event)
    }

    fn send_space(&mut self, id: StreamId) -> Result<&mut [u8], StreamError> {
        let entry = self.entries.get_mut(&id.0).ok_or(StreamError::Unknown)?;
        if let Some(code) = entry.reset {
            return Err(StreamError::Reset(code));
        }
        if entry.closed {
            return Err(StreamError::Unknown);
        }
        if entry.finished {
            return Err(StreamError::Finished);
        }
        entry.wants_room |= entry.socket.connection().send_room().get() == 0;
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
            self.report_changes(id.0);
        }
    }

    fn reset(&mut self, id: StreamId, _code: u64) {
        let Some(entry) = self.entries.get_mut(&id.0) else { return };
        if !entry.closed {
            entry.socket.abort();
            self.events.push_back(StreamEvent::Closed(id));
            self.give_last_word(id.0);
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
        self.report_changes(id.0);
    }

    fn recv_state(&self, id: StreamId) -> RecvState {
        let Some(entry) = self.entries.get(&id.0) else { return RecvState::Finished };
        match entry.reset {
            Some(code) => RecvState::Reset(code),
            None if entry.ended() && entry.socket.received().is_empty() => RecvState::Finished,
            None => RecvState::Open,
        }
    }

    fn detach(&mut self, id: StreamId) -> Option<StreamState> {
        let state = self.snapshot(id)?;
        self.remove(id.0)?;
        Some(state)
    }

    fn snapshot(&self, id: StreamId) -> Option<StreamState> {
        let entry = self.entries.get(&id.0).filter(|e| !e.closed && e.reset.is_none())?;
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

#[cfg(test)]
mod tests {
    use lasthop_units::Seed;

    use super::*;

    fn ends() -> (TcpStreams, TcpStreams) {
        let seed = Seed::from_u64(1);
        let config = Config { time_wait: lasthop_units::Duration::ZERO, ..Config::modern() };
        let mobile = TcpStreams::mobile(config, seed.stream("mobile"));
        (mobile, TcpStreams::base(config, seed.stream("base")))
    }

    fn carry(now: Time, from: &mut TcpStreams, to: &mut TcpStreams) {
        let mut room = vec![0; 65_536];
        while let Some(segment) = from.poll_transmit(now, &mut room) {
            let payload = &room[..segment.len as usize];
            to.handle_segment(now, &segment, payload);
        }
    }

    fn settle(now: Time, a: &mut TcpStreams, b: &mut TcpStreams) {
        for _ in 0..8 {
            carry(now, a, b);
            carry(now, b, a);
        }
    }

    fn incoming(end: &mut TcpStreams) -> Vec<StreamId> {
        let events = core::iter::from_fn(|| end.poll_event());
        let streams = events.filter_map(|event| match event {
            StreamEvent::Incoming(id) => Some(id),
            _ => None,
        });
        streams.collect()
    }

    #[test]
    fn both_ends_open_streams_under_the_same_names() {
        let (mut mobile, mut base) = ends();
        for n in 0..3 {
            assert_eq!(mobile.open(), Ok(StreamId(2 * n)));
            assert_eq!(base.open(), Ok(StreamId(2 * n + 1)));
        }
        settle(Time::ZERO, &mut mobile, &mut base);
        assert_eq!(incoming(&mut base), [StreamId(0), StreamId(2), StreamId(4)]);
        assert_eq!(incoming(&mut mobile), [StreamId(1), StreamId(3), StreamId(5)]);
    }

    #[test]
    fn a_reset_reaches_the_peer_although_the_stream_is_forgotten_at_once() {
        let (mut mobile, mut base) = ends();
        let id = mobile.open().unwrap_or(StreamId(9));
        settle(Time::ZERO, &mut mobile, &mut base);
        assert_eq!(incoming(&mut base), [id]);
        base.reset(id, 7);
        assert_eq!(base.sockets().count(), 0);
        settle(Time::ZERO, &mut mobile, &mut base);
        let told =
            core::iter::from_fn(|| mobile.poll_event()).any(|e| e == StreamEvent::Closed(id));
        assert!(told, "the mobile waits for ever");
        assert_eq!(mobile.sockets().count(), 0);
    }

    #[test]
    fn names_stay_right_when_ports_come_around() {
        let (mut mobile, mut base) = ends();
        let long_lived = mobile.open().unwrap_or(StreamId(9));
        settle(Time::ZERO, &mut mobile, &mut base);
        incoming(&mut base);
        for turn in 0..3 {
            mobile.next = 2 * (PORTS * (turn + 1) - 2);
            base.highest = mobile.next - 2;
            for _ in 0..4 {
                let id = mobile.open().unwrap_or(StreamId(9));
                assert_ne!(opener_port(id.0), opener_port(long_lived.0));
                settle(Time::ZERO, &mut mobile, &mut base);
                assert_eq!(incoming(&mut base), [id]);
                mobile.reset(id, 0);
                settle(Time::ZERO, &mut mobile, &mut base);
            }
        }
        incoming(&mut base);
        assert_eq!(base.sockets().count(), 1);
    }
}
