//! Mobile TCP as a transport.

use core::time::Duration;

use lasthop_units::{Bytes, LinkEvent, Time};
use lasthop_wire::mobile_tcp::DATA_HEADER;

use super::config::Config;
use super::endpoint::{CONNECTIONS_MAX, MobileTcp};
use super::entry::{ConnectionStage, Entry, RetransmitTimer};
use crate::config::Limits;
use crate::path_id::{PathId, PathNumbers};
use crate::stats::HopStats;
use crate::streams::{StreamEvent, StreamId};
use crate::transport::{CloseReason, LOST, Packet, Role, Transport};

/// The highest first stream that is accepted from a peer, so that stream numbers never overflow.
const STREAM_MAX: u64 = 1 << 62;
/// Copies of an association's close: nothing acknowledges it.
const CLOSE_COPIES: u32 = 3;
/// How long a report that the link is down holds.
const DOWN_BELIEVED: Duration = Duration::from_secs(1);

impl Transport for MobileTcp {
    type Config = Config;

    const ID: u64 = 1;

    /// Packets are as long as the configuration says, whatever is around them.
    fn new(config: &Config, role: Role, _overhead: usize, now: Time) -> Self {
        Self::new(config.clone(), role, now)
    }

    /// Windows are advertised in Mobile TCP's own packets.
    fn limits(config: &Config) -> Limits {
        Limits {
            stream_window: Bytes::new(u64::from(config.window())),
            association_window: Bytes::new(u64::MAX),
            streams_max: config.connections_max.min(CONNECTIONS_MAX) as u64,
            first_stream: 0,
            standing: None,
            first_numbers: PathNumbers::NONE,
            resume: None,
            packet_max: Bytes::ZERO,
        }
    }

    /// What the carrier adds concerns nothing here: there is no pacing and no search for an MTU.
    fn carrier_overhead(_config: &Config) -> Bytes {
        Bytes::ZERO
    }

    /// Of its limits, those on streams count; windows are each connection's own.
    fn establish(&mut self, now: Time, peer: &Limits) {
        self.advance(now);
        self.established = true;
        self.streams_max = peer.streams_max;
        self.highest = self.highest.max(peer.first_stream.min(STREAM_MAX) / 2);
        self.retry_all();
    }

    fn restart(&mut self, now: Time) {
        self.advance(now);
        let mut new = Self::new(self.config.clone(), self.role, now);
        new.next_stream = self.next_stream;
        new.next_cid = self.next_cid;
        new.ports = self.ports.restarted();
        new.stats = self.own_stats();
        core::mem::swap(self, &mut new);
        self.events = new.events;
        for (cid, mut entry) in new.entries {
            let known = new.streams.get(&entry.stream) == Some(&cid);
            if !known {
                continue;
            }
            entry.connection.release();
            if !entry.told_closed {
                entry.reset = Some(LOST);
                entry.told_closed = true;
                self.events.push_back(StreamEvent::Readable(StreamId(entry.stream)));
                self.events.push_back(StreamEvent::Closed(StreamId(entry.stream)));
            }
            entry.stage = ConnectionStage::Silent;
            entry.repeat.stop();
            entry.inflight = 0;
            (entry.queued, entry.capped, entry.resting) = (false, false, false);
            entry.connection.reset_stats();
            entry.counted = [0; 2];
            self.streams.insert(entry.stream, cid);
            self.entries.insert(cid, entry);
        }
    }

    /// The oldest that is open, or else the next to be opened.
    fn first_stream(&self) -> u64 {
        let open = self.streams.iter().find(|(stream, cid)| {
            self.is_own(**stream) && self.entries.get(cid).is_some_and(Entry::is_usable)
        });
        open.map_or(self.next_stream, |(stream, _)| *stream)
    }

    /// Asks until a sign comes.
    fn ping(&mut self) {
        if self.ping.next.is_none() {
            self.ping = RetransmitTimer::start();
        }
    }

    fn probe(&mut self, now: Time) {
        self.advance(now);
        if !self.retry_all() {
            self.ping();
        }
    }

    fn silent_for(&self, now: Time) -> Option<Duration> {
        self.silent_since.map(|since| now.since(since))
    }

    fn handle_moved(&mut self, now: Time, _path: PathId) {
        self.advance(now);
        self.retry_all();
    }

    /// When it is down nothing is sent and timers wait, for a second at most, since the news that it is up may
    /// never come; when it is up again, what is unanswered is tried at once.
    fn handle_link_event(&mut self, now: Time, _path: PathId, event: LinkEvent) {
        self.advance(now);
        match event {
            LinkEvent::Up => {
                self.down = None;
                self.retry_all();
            }
            LinkEvent::Down => {
                self.down = Some(now + DOWN_BELIEVED);
                if self.is_waiting() {
                    self.silent_since.get_or_insert(now);
                }
            }
            LinkEvent::Imminent { .. } | LinkEvent::Complete => {}
        }
    }

    fn seed_round_trip(&mut self, now: Time, rtt: Duration) {
        self.advance(now);
        self.round_trip.sample(rtt);
    }

    fn handle(&mut self, now: Time, _path: PathId, _number: u64, packet: &[u8]) {
        // Packets that cannot be read are counted inside.
        let _ = self.handle(now, packet);
    }

    /// The paper's packets have no numbers of their own.
    fn poll(&mut self, now: Time, fresh: u64, out: &mut [u8]) -> Option<Packet> {
        let len = self.poll(now, out)?;
        Some(Packet { path: PathId::FIRST, number: fresh, len })
    }

    fn next_timeout(&self) -> Option<Time> {
        if self.closed.is_some() || !self.established {
            return None;
        }
        let silence = self.silent_since.map(|since| since + self.config.silence_limit);
        if self.down.is_some() {
            return silence.into_iter().chain(self.down).min();
        }
        let keepalive = self.config.keepalive.filter(|_| self.ping.next.is_none());
        let keepalive = keepalive.map(|after| self.ticks.not_before(self.last_sent + after));
        let resting = self.resting.front().map(|(until, _)| *until);
        let own = [self.ping.next, self.ports.next_timeout(), keepalive, resting];
        own.into_iter().chain([silence, self.deadline]).flatten().min()
    }

    /// Acknowledges, repeats, aborts (MOB-34).
    fn handle_timeout(&mut self, now: Time) {
        self.advance(now);
        if !self.established || self.closed.is_some() {
            return;
        }
        let limit = self.config.silence_limit;
        if self.silent_since.is_some_and(|since| now.since(since) >= limit) {
            self.closed = Some(CloseReason::Silence);
            return;
        }
        if let Some(until) = self.down {
            if now < until {
                return;
            }
            self.down = None;
            self.retry_all();
        }
        self.remove_quarantined();
        if self.config.keepalive.is_some_and(|after| now.since(self.last_sent) >= after) {
            self.ping();
        }
        let mut unanswered = self.ping.on_tick(now) | self.ports.on_tick(now);
        if self.deadline.is_some_and(|at| at <= now) {
            unanswered |= self.tick_connections(now);
        }
        if unanswered {
            self.silent_since.get_or_insert(now);
        } else if self.silent_since.is_some() && !self.is_waiting() {
            self.silent_since = None;
        }
    }

    fn close(&mut self, reason: CloseReason) {
        if self.closed.is_some() || self.closing.is_some() {
            return;
        }
        if self.established {
            self.closing = Some((reason, CLOSE_COPIES));
        } else {
            self.closed = Some(reason);
        }
    }

    fn closed(&self) -> Option<CloseReason> {
        self.closed
    }

    /// It is announced until the base answers, and each base to come (MOB-8).
    fn listen(&mut self, port: u16) {
        self.ports.announce(port, true);
    }

    fn unlisten(&mut self, port: u16) {
        if self.ports.ours.contains_key(&port) {
            self.ports.announce(port, false);
        }
    }

    /// The mobile announces where it listens, so a base never has to ask (MOB-8).
    fn peer_listens(&self, port: u16) -> Option<bool> {
        Some(self.peer_listens(port))
    }

    fn stats(&self) -> HopStats {
        let total = self.own_stats();
        let memory: u64 = self.entries.values().flat_map(|e| e.counted).sum();
        let packet = u64::from(self.config.max_packet()) + self.config.pad.get();
        HopStats {
            datagrams_sent: total.sent,
            datagrams_received: total.received,
            duplicates: total.duplicates,
            malformed: total.malformed + total.damaged,
            lost: total.packets_again,
            bytes_sent: Bytes::new(total.bytes_sent),
            bytes_retransmitted: Bytes::new(total.bytes_again),
            bytes_received: Bytes::new(total.bytes_received),
            probes: total.probes,
            silences: total.expiries,
            srtt: self.round_trip.srtt().unwrap_or_default(),
            inflight: Bytes::new(self.inflight),
            mtu: Bytes::new(packet) + Bytes::from(DATA_HEADER),
            streams: self.streams.len(),
            memory: Bytes::new(memory),
            silent: self.down.is_some() || self.silent_since.is_some(),
            ..HopStats::default()
        }
    }
}
