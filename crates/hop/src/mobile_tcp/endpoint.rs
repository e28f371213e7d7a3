//! All connections of one mobile with one base: identifiers, the association's life, events.

use alloc::collections::{BTreeMap, VecDeque};

use lasthop_stream::Ring;
use lasthop_units::Time;
use lasthop_wire::mobile_tcp::{Cid, Code, DataHeader, short_code};

use super::config::Config;
use super::connection::{Connection, RoundTrip, Ticks};
use super::division::Division;
use super::entry::{ConnectionStage, Entry, RetransmitTimer};
use super::ports::Ports;
use super::reply::Reply;
use super::stats::Stats;
use crate::memory::Lease;
use crate::streams::{StreamEvent, StreamId};
use crate::transport::{CloseReason, Role};

/// Identifiers are 16 bits, and those of connections that are over are withheld for a while.
pub(super) const CONNECTIONS_MAX: usize = 16_384;
/// Identifiers that are withheld at once; of more, the earliest are free before their time.
const RESTING_MAX: usize = 4096;

/// One end of Mobile TCP: all connections of one mobile with one base. See the module's text.
///
/// Feed it with [`handle`](Self::handle), [`handle_timeout`](crate::Transport::handle_timeout) and the
/// [`Streams`](crate::Streams) calls; after any of them call [`poll`](Self::poll) until it returns
/// `None`, then sleep until [`next_timeout`](crate::Transport::next_timeout). Time must not go backwards.
#[derive(Debug)]
pub struct MobileTcp {
    pub(super) config: Config,
    pub(super) role: Role,
    pub(super) ticks: Ticks,
    pub(super) origin: Time,
    pub(super) now: Time,
    /// The peer is there, and takes packets.
    pub(super) established: bool,
    /// Streams that the peer may have open at once.
    pub(super) streams_max: u64,
    /// By our identifier, which the peer puts into its packets (MOB-16, MOB-17).
    pub(super) entries: BTreeMap<u16, Entry>,
    /// The identifier of each stream that the session knows.
    pub(super) streams: BTreeMap<u64, u16>,
    /// Ours for each of the peer's identifiers.
    pub(super) by_peer: BTreeMap<u16, u16>,
    pub(super) next_cid: u16,
    pub(super) next_stream: u64,
    /// The highest stream that the peer opened, by half its number.
    pub(super) highest: u64,
    /// Connections that the peer opened and that do not stand.
    pub(super) half_open: usize,
    /// Connections with something to send, in turn.
    pub(super) ready: VecDeque<u16>,
    /// Connections that wait for others' bytes to arrive.
    pub(super) capped: VecDeque<u16>,
    /// Identifiers that are withheld, and until when, the earliest first.
    pub(super) resting: VecDeque<(Time, u16)>,
    pub(super) replies: VecDeque<Reply>,
    pub(super) events: VecDeque<StreamEvent>,
    pub(super) ports: Ports,
    /// Asks the peer for a sign of life.
    pub(super) ping: RetransmitTimer,
    /// What all connections have on their way, in bytes.
    pub(super) inflight: u64,
    /// No timer of a connection expires before.
    pub(super) deadline: Option<Time>,
    /// The first tick to come.
    next_tick: Time,
    /// Since when nothing has come although an answer is due.
    pub(super) silent_since: Option<Time>,
    pub(super) last_sent: Time,
    /// The link is reported as down, which holds until then.
    pub(super) down: Option<Time>,
    pub(super) round_trip: RoundTrip,
    /// How connections divide their windows, once one of them was given a priority.
    pub(super) division: Division,
    /// What connections' buffers take: to receive, and to send.
    receiving: Lease,
    sending: Lease,
    pub(super) closing: Option<(CloseReason, u32)>,
    pub(super) closed: Option<CloseReason>,
    /// What this end itself and connections that are gone have done.
    pub(super) stats: Stats,
}

impl MobileTcp {
    /// One end of an association from whose peer nothing has come.
    pub fn new(config: Config, role: Role, now: Time) -> Self {
        let listens = role == Role::Mobile;
        Self {
            ticks: Ticks::new(now, config.tick()),
            origin: now,
            now,
            role,
            established: false,
            streams_max: u64::MAX,
            entries: BTreeMap::new(),
            streams: BTreeMap::new(),
            by_peer: BTreeMap::new(),
            next_cid: 1,
            next_stream: u64::from(!listens),
            highest: 0,
            half_open: 0,
            ready: VecDeque::new(),
            capped: VecDeque::new(),
            resting: VecDeque::new(),
            replies: VecDeque::new(),
            events: VecDeque::new(),
            ports: Ports::default(),
            ping: RetransmitTimer::default(),
            inflight: 0,
            deadline: None,
            next_tick: Ticks::new(now, config.tick()).after(now),
            silent_since: None,
            last_sent: now,
            down: None,
            round_trip: RoundTrip::default(),
            division: Division::default(),
            receiving: config.memory.lease(),
            sending: config.memory.lease(),
            closing: None,
            closed: None,
            stats: Stats::default(),
            config,
        }
    }

    /// What this end and its connections have done.
    pub fn own_stats(&self) -> Stats {
        let mut total = self.stats;
        self.entries.values().for_each(|entry| total.add(entry.connection.stats()));
        total
    }

    pub(super) fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
        if self.now >= self.next_tick {
            self.next_tick = self.ticks.after(self.now);
        }
    }

    /// The mobile's streams are the even ones.
    pub(super) fn is_own(&self, stream: u64) -> bool {
        stream.is_multiple_of(2) == (self.role == Role::Mobile)
    }

    pub(super) fn connections_max(&self) -> usize {
        self.config.connections_max.min(CONNECTIONS_MAX)
    }

    /// The name of a connection that the session knows.
    pub(super) fn cid_of(&self, id: StreamId) -> Option<u16> {
        self.streams.get(&id.0).copied()
    }

    pub(super) fn entry_of(&self, id: StreamId) -> Option<&Entry> {
        self.cid_of(id).and_then(|cid| self.entries.get(&cid))
    }

    /// A new connection; `None` if every identifier is taken, or there is no memory for its buffers.
    pub(super) fn add(&mut self, stream: u64, stage: ConnectionStage) -> Option<u16> {
        let window = Ring::ample(u64::from(self.config.window())) as u64;
        let buffer = Ring::ample(self.config.send_buffer()) as u64;
        if !self.receiving.has_room_for(window) || !self.sending.has_room_for(buffer) {
            return None;
        }
        let cid = self.free_cid()?;
        let mut connection = Connection::new(&self.config, self.origin);
        connection.seed(self.round_trip);
        let entry = Entry::new(stream, connection, stage);
        self.half_open += usize::from(entry.is_half_open());
        self.entries.insert(cid, entry);
        self.recount(cid);
        self.streams.insert(stream, cid);
        self.division.invalidate(Some(cid));
        Some(cid)
    }

    /// A connection's buffers have changed.
    pub(super) fn recount(&mut self, cid: u16) {
        let Some(entry) = self.entries.get_mut(&cid) else { return };
        let now = entry.connection.memory();
        let before = core::mem::replace(&mut entry.counted, now);
        self.charge(before, now);
    }

    fn charge(&mut self, before: [u64; 2], now: [u64; 2]) {
        let leases = [&mut self.receiving, &mut self.sending];
        for (lease, (before, now)) in leases.into_iter().zip(before.into_iter().zip(now)) {
            lease.set_need(lease.need() - before + now);
        }
    }

    /// Identifiers are used in turn, so that each rests for as long as it can.
    fn free_cid(&mut self) -> Option<u16> {
        for _ in 0..u16::MAX {
            let cid = self.next_cid.max(1);
            self.next_cid = cid.wrapping_add(1);
            if !self.entries.contains_key(&cid) {
                return Some(cid);
            }
        }
        None
    }

    pub(super) fn set_stage(&mut self, cid: u16, stage: ConnectionStage) {
        let Some(entry) = self.entries.get_mut(&cid) else { return };
        self.half_open -= usize::from(entry.is_half_open());
        entry.stage = stage;
        self.half_open += usize::from(entry.is_half_open());
    }

    /// Removes a connection altogether.
    pub(super) fn remove(&mut self, cid: u16) {
        self.set_stage(cid, ConnectionStage::Silent);
        self.division.invalidate(None);
        let Some(entry) = self.entries.remove(&cid) else { return };
        self.charge(entry.counted, [0; 2]);
        self.stats.add(entry.connection.stats());
        self.inflight -= entry.inflight;
        if let Some(peer) = entry.peer
            && self.by_peer.get(&peer.cid.0) == Some(&cid)
        {
            self.by_peer.remove(&peer.cid.0);
        }
        if self.streams.get(&entry.stream) == Some(&cid) {
            self.streams.remove(&entry.stream);
        }
    }

    /// Withholds a connection's identifier from reuse for a while (as TIME-WAIT does), and empties its
    /// buffers.
    pub(super) fn quarantine(&mut self, cid: u16, stage: ConnectionStage) {
        self.set_stage(cid, stage);
        self.division.invalidate(None);
        let Some(entry) = self.entries.get_mut(&cid) else { return };
        entry.connection.release();
        (entry.resting, entry.asked) = (true, false);
        self.inflight -= core::mem::take(&mut entry.inflight);
        self.recount(cid);
        self.resting.push_back((self.now + self.config.quiet(), cid));
        if self.resting.len() > RESTING_MAX {
            self.end_quarantine(true);
        }
    }

    /// Removes connections whose identifiers were withheld long enough.
    pub(super) fn remove_quarantined(&mut self) {
        while self.resting.front().is_some_and(|(until, _)| *until <= self.now) {
            self.end_quarantine(false);
        }
    }

    /// Removes the connection that has rested longest. It rests once more if the session has not polled
    /// its end yet or, unless this is `early`, if the peer may have to be told of it again.
    fn end_quarantine(&mut self, early: bool) {
        let Some((_, cid)) = self.resting.pop_front() else { return };
        let Some(entry) = self.entries.get_mut(&cid) else { return };
        let asked = entry.take_asked() && !early;
        if asked || self.streams.get(&entry.stream) == Some(&cid) {
            self.resting.push_back((self.now + self.config.quiet(), cid));
        } else {
            self.remove(cid);
        }
    }

    /// Updates what depends on a connection that has changed: its turn to send, its timer, and its
    /// events.
    pub(super) fn update(&mut self, cid: u16) {
        let Some(entry) = self.entries.get_mut(&cid) else { return };
        let inflight = entry.connection.inflight().get();
        let inflight =
            if matches!(entry.stage, ConnectionStage::Established) { inflight } else { 0 };
        self.inflight = self.inflight - entry.inflight + inflight;
        entry.inflight = inflight;
        if !entry.queued && entry.wants_to_send() {
            entry.queued = true;
            self.ready.push_back(cid);
        }
        // A timer is looked at on the next tick, whenever it expires: to reckon that here, for every
        // packet, would cost more than the packet.
        if entry.is_timed() {
            let before = self.deadline.unwrap_or(Time::NEVER);
            self.deadline = Some(before.min(self.next_tick));
        }
        let worth = (self.config.send_buffer() / 4) as usize;
        if entry.has_event(worth) {
            self.announce(cid, worth);
        }
    }

    fn announce(&mut self, cid: u16, worth: usize) {
        let Some(entry) = self.entries.get_mut(&cid) else { return };
        if self.streams.get(&entry.stream) != Some(&cid) || entry.told_closed {
            return;
        }
        let id = StreamId(entry.stream);
        if entry.wants_data && entry.is_readable() {
            entry.wants_data = false;
            self.events.push_back(StreamEvent::Readable(id));
        }
        if entry.wants_room && entry.connection.send_room() >= worth {
            entry.wants_room = false;
            self.events.push_back(StreamEvent::Writable(id));
        }
        let connection = &entry.connection;
        if entry.stage == ConnectionStage::Established
            && !entry.told_finished
            && connection.is_delivered()
        {
            entry.told_finished = true;
            self.events.push_back(StreamEvent::Finished(id));
        }
        let over = connection.is_over() && connection.received().is_empty();
        if entry.reset.is_some() || (over && entry.stage == ConnectionStage::Established) {
            entry.told_closed = true;
            self.events.push_back(StreamEvent::Closed(id));
        }
    }

    /// The peer has reset a connection, or it failed.
    pub(super) fn fail(&mut self, cid: u16, code: u64) {
        let Some(entry) = self.entries.get_mut(&cid) else { return };
        if entry.reset.is_some() || !entry.is_usable() {
            return;
        }
        entry.reset = Some(code);
        entry.wants_data = true;
        entry.repeat.stop();
        self.quarantine(cid, ConnectionStage::Silent);
        self.update(cid);
    }

    /// Aborts a connection at this side; the peer gets a reset unless it cannot know of it.
    pub(super) fn abort(&mut self, cid: u16, code: u64) {
        let Some(entry) = self.entries.get_mut(&cid) else { return };
        let stage = match entry.stage {
            ConnectionStage::Buffering | ConnectionStage::Over | ConnectionStage::Silent => {
                ConnectionStage::Silent
            }
            ConnectionStage::Established => ConnectionStage::Resetting { code, control: false },
            _ => ConnectionStage::Resetting { code, control: true },
        };
        entry.repeat = if stage == ConnectionStage::Silent {
            RetransmitTimer::default()
        } else {
            RetransmitTimer::start()
        };
        let stream = entry.stream;
        if !core::mem::replace(&mut entry.told_closed, true) {
            self.events.push_back(StreamEvent::Closed(StreamId(stream)));
        }
        self.streams.remove(&stream);
        self.quarantine(cid, stage);
        self.update(cid);
    }

    /// Tries everything that is unanswered at once; whether there is anything.
    pub(super) fn retry_all(&mut self) -> bool {
        let now = self.now;
        let mut any = self.ports.retry();
        let mut from = 0;
        while let Some((&cid, entry)) = self.entries.range_mut(from..).next() {
            any |= entry.repeat.is_running();
            entry.repeat.expire_now();
            if entry.stage == ConnectionStage::Established {
                any |= entry.connection.is_waiting();
                entry.connection.retry(now);
            }
            self.update(cid);
            let Some(next) = cid.checked_add(1) else { break };
            from = next;
        }
        any |= self.ping.is_running();
        self.ping.expire_now();
        any
    }

    /// Something is to be answered by the peer.
    pub(super) fn is_waiting(&self) -> bool {
        let waits = |e: &Entry| e.repeat.is_running() || e.connection.is_waiting();
        self.ping.is_running() || self.entries.values().any(waits)
    }

    /// Something whole has come from the peer.
    pub(super) fn on_received(&mut self) {
        self.silent_since = None;
        self.down = None;
        if !self.ping.due {
            self.ping.stop();
        }
    }

    /// The header of the packet that closes the association.
    pub(super) fn close_header(reason: CloseReason) -> DataHeader {
        let window = short_code(reason.code());
        DataHeader { code: Code::RST, cid: Cid::NONE, window, ..DataHeader::default() }
    }
}
