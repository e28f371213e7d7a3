//! The agent at the base (obtcp-2010 section III.A).

use core::net::IpAddr;

use lasthop_units::{Bytes, Time};
use lasthop_wire::agent::{Message, Ranges};
use lasthop_wire::tcp::{Flags, Segment, Seq};

use super::timer::Retry;
use super::{Config, ConfigError, Eviction, Stretch, keep};
use crate::backlog::Backlog;
use crate::cache::{Cache, Stored};
use crate::table::Table;
use crate::{Agent, Connection, Output, Packet, Queue, Side, Tcp};

/// Counts of a [`Base`] since it began.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BaseStats {
    /// Segments that were kept.
    pub cached: u64,
    /// Segments that gave way to others before they were acknowledged.
    pub evicted: u64,
    /// Segments that were not kept, since the cache was full.
    pub refused: u64,
    /// Segments that were not kept, since so much waited that their loss would be congestion.
    pub left_out: u64,
    /// SNACKs that came.
    pub snacks: u64,
    /// Segments that were sent again for a SNACK.
    pub retransmitted: u64,
    /// Congestion messages that were sent.
    pub congestions: u64,
    /// Segments that were sent again by the local timer.
    pub timeouts: u64,
}

/// The agent at the base: keeps copies of what goes to mobiles, and sends what a router's SNACK
/// names again.
#[derive(Clone, Debug)]
pub struct Base<P> {
    config: Config,
    flows: Table<Flow<P>>,
    out: Queue<P>,
    stats: BaseStats,
}

/// What is known of the data of one connection towards its mobile.
#[derive(Clone, Debug)]
struct Flow<P> {
    stretch: Stretch,
    cache: Cache<P, Sent>,
    retry: Option<Retry>,
    backlog: Backlog,
    /// After the highest segment that was sent again.
    repaired: Option<Seq>,
}

/// When a segment was sent first, and how often in all.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Time,
    copies: u32,
    /// Whatever had been sent again was acknowledged then.
    clean: bool,
}

impl<P: Packet> Base<P> {
    /// An agent that knows no connection yet.
    ///
    /// # Errors
    ///
    /// A parameter is out of bounds.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            config,
            flows: Table::new(config.memory.connections, config.memory.idle),
            out: Queue::default(),
            stats: BaseStats::default(),
        })
    }

    /// What it did so far.
    pub const fn stats(&self) -> BaseStats {
        self.stats
    }

    /// Segments that are kept, of all connections.
    pub fn cached(&self) -> usize {
        self.flows.iter().map(|(_, flow)| flow.cache.len()).sum()
    }

    /// Bytes of payload that are kept, of all connections.
    pub const fn memory(&self) -> Bytes {
        Bytes::new(self.flows.weight())
    }

    /// A segment of a fixed host: kept once it is sent (OBB-1).
    fn handle_data(&mut self, now: Time, tcp: &Tcp, packet: P) {
        let (connection, segment) = (tcp.connection(Side::Fixed), &tcp.segment);
        if segment.flags.contains(Flags::SYN) {
            self.track(now, connection, segment.end());
        } else if segment.seq_len() > 0 {
            let known = self.flows.get(now, &connection);
            if known.is_none_or(|flow| !flow.stretch.takes(segment)) {
                self.track(now, connection, segment.seq);
            }
            let memory = &self.config.memory;
            let room = memory.bytes.get().saturating_sub(self.flows.weight());
            let heed = self.config.heed_backlog;
            if let Some(flow) = self.flows.peek(&connection) {
                if heed && flow.is_left_to_sender(now, segment) {
                    self.stats.left_out += 1;
                } else {
                    let limits = (memory.eviction, room);
                    flow.keep(now, segment, packet.clone(), limits, &mut self.stats);
                }
            }
            self.arm(connection);
        }
        self.out.packet(Side::Mobile, packet);
    }

    /// Tracks a connection, whose next byte is `next`, in place of what was known of it.
    fn track(&mut self, now: Time, connection: Connection, next: Seq) {
        let flow = Flow {
            stretch: Stretch::new(next),
            cache: Cache::new(self.config.memory.segments),
            retry: self.config.timers.then(|| Retry::new(self.config.timer)),
            backlog: Backlog::default(),
            repaired: None,
        };
        self.flows.insert(now, connection, flow);
    }

    /// An acknowledgement frees what it covers and goes on (OBB-2).
    fn handle_ack(&mut self, now: Time, tcp: &Tcp) {
        let connection = tcp.connection(Side::Mobile);
        if let Some(flow) = self.flows.get(now, &connection) {
            flow.acknowledge(now, tcp.segment.ack);
            self.arm(connection);
        }
    }

    /// Sends all that a SNACK names and the cache has, at once and in order (OBB-3), and says what
    /// is not to be had, whether it never came or was flushed (OBB-4, OBB-5).
    fn handle_snack(&mut self, now: Time, connection: Connection, missing: &Ranges) {
        self.stats.snacks += 1;
        let mut lost = Ranges::default();
        match self.flows.get(now, &connection) {
            Some(flow) => {
                flow.backlog.waits();
                let mut after: Option<Seq> = None;
                let stretch = flow.stretch;
                let ranges = missing.as_slice().iter();
                for (start, end) in ranges.filter_map(|range| stretch.clip(*range)) {
                    let start = after.filter(|at| at.ahead_of(start) > 0).unwrap_or(start);
                    after = Some(flow.retransmit(
                        start,
                        end,
                        &mut lost,
                        &mut self.out,
                        &mut self.stats,
                    ));
                }
            }
            None => lost = *missing,
        }
        if !lost.is_empty() {
            self.stats.congestions += 1;
            self.out.message(Side::Mobile, Message::Congestion { connection, lost });
        }
    }

    fn arm(&mut self, connection: Connection) {
        if let Some(flow) = self.flows.peek(&connection) {
            let due = flow.retry.as_ref().and_then(Retry::due);
            let bytes = flow.cache.bytes();
            self.flows.arm(&connection, due);
            self.flows.weigh(&connection, bytes);
        }
    }
}

impl<P: Packet> Flow<P> {
    /// It is new, and so much waits that its loss would be congestion.
    fn is_left_to_sender(&mut self, now: Time, segment: &Segment) -> bool {
        let new = segment.seq.ahead_of(self.stretch.next) >= 0;
        let left = new && self.backlog.leaves(now, segment.end());
        if left {
            self.stretch.extend(segment);
        }
        left
    }

    fn keep(
        &mut self,
        now: Time,
        segment: &Segment,
        packet: P,
        limits: (Eviction, u64),
        stats: &mut BaseStats,
    ) {
        let (seq, end) = (segment.seq, segment.end());
        let again = seq.ahead_of(self.stretch.next) < 0;
        self.stretch.extend(segment);
        if self.stretch.is_past(segment) {
            return;
        }
        if again {
            self.note_retransmission(end);
        }
        let note = Sent { at: now, copies: 1, clean: self.is_repaired() };
        let (outcome, evicted) = keep(&mut self.cache, limits, (seq, end), packet, note);
        stats.evicted += evicted;
        match outcome {
            Stored::New => stats.cached += 1,
            Stored::Again => {
                if let Some(kept) = self.cache.covering(seq) {
                    kept.note.copies += 1;
                }
            }
            Stored::Refused => stats.refused += 1,
        }
        if let Some(retry) = &mut self.retry {
            retry.sent(now);
        }
    }

    fn acknowledge(&mut self, now: Time, ack: Seq) {
        if self.stretch.advance_of(ack).is_none_or(|ahead| ahead <= 0) {
            return;
        }
        self.stretch.acknowledge(ack);
        if self.is_repaired() {
            self.repaired = None;
        }
        let mut sample = None;
        let mut clean = true;
        while let Some(kept) = self.cache.pop_acknowledged(ack) {
            sample = (kept.note.copies == 1).then(|| now.since(kept.note.at));
            clean &= kept.note.copies == 1 && kept.note.clean;
        }
        if let Some(took) = sample.filter(|_| clean) {
            self.backlog.sample(took);
        }
        self.backlog.acknowledged(now, ack, true);
        if ack == self.stretch.next {
            self.backlog.drained();
        }
        if let Some(retry) = &mut self.retry {
            retry.acknowledged(now, sample, !self.cache.is_empty());
        }
    }

    /// Sends what the cache has of the bytes from `start` to `end`, and adds the rest to `lost`;
    /// where all of that ends. Should `lost` have no room, the router will ask again.
    fn retransmit(
        &mut self,
        start: Seq,
        end: Seq,
        lost: &mut Ranges,
        out: &mut Queue<P>,
        stats: &mut BaseStats,
    ) -> Seq {
        let mut at = start;
        let mut repaired = None;
        for kept in self.cache.iter_mut() {
            if kept.end.ahead_of(at) <= 0 {
                continue;
            }
            if kept.seq.ahead_of(end) >= 0 {
                break;
            }
            if kept.seq.ahead_of(at) > 0 {
                lost.push(at, kept.seq);
            }
            if kept.note.copies == 1 {
                self.backlog.lost();
            }
            kept.note.copies += 1;
            stats.retransmitted += 1;
            out.packet(Side::Mobile, kept.packet.clone());
            at = kept.end;
            repaired = Some(at);
        }
        if end.ahead_of(at) > 0 {
            lost.push(at, end);
            at = end;
        }
        if let Some(end) = repaired {
            self.note_retransmission(end);
        }
        at
    }

    /// The oldest segment, once more.
    fn resend_oldest(&mut self) -> Option<P> {
        let kept = self.cache.front_mut()?;
        kept.note.copies += 1;
        let (end, packet) = (kept.end, kept.packet.clone());
        self.note_retransmission(end);
        Some(packet)
    }

    /// A segment up to `end` is sent again.
    fn note_retransmission(&mut self, end: Seq) {
        if self.repaired.is_none_or(|repaired| end.ahead_of(repaired) > 0) {
            self.repaired = Some(end);
        }
    }

    /// What was sent again is acknowledged.
    fn is_repaired(&self) -> bool {
        self.repaired.is_none_or(|end| self.stretch.floor.ahead_of(end) >= 0)
    }
}

impl<P: Packet> Agent<P> for Base<P> {
    fn handle_packet(&mut self, now: Time, from: Side, packet: P) {
        let Some(tcp) = packet.tcp() else {
            return self.out.packet(from.other(), packet);
        };
        if tcp.segment.flags.contains(Flags::RST) {
            self.flows.remove(&tcp.connection(from));
            return self.out.packet(from.other(), packet);
        }
        match from {
            Side::Fixed => self.handle_data(now, &tcp, packet),
            Side::Mobile => {
                if tcp.segment.flags.contains(Flags::ACK) {
                    self.handle_ack(now, &tcp);
                } else if tcp.segment.flags.contains(Flags::SYN) {
                    self.flows.remove(&tcp.connection(from));
                }
                self.out.packet(Side::Fixed, packet);
            }
        }
    }

    fn handle_message(&mut self, now: Time, from: Side, message: &Message) {
        if let (Side::Mobile, Message::Snack { connection, missing }) = (from, message) {
            self.handle_snack(now, *connection, missing);
        }
    }

    fn remove_mobile(&mut self, mobile: IpAddr) {
        self.flows.take_mobile(mobile);
    }

    fn poll_output(&mut self) -> Option<Output<P>> {
        self.out.pop()
    }

    fn next_timeout(&self) -> Option<Time> {
        self.flows.next_due()
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some(connection) = self.flows.pop_due(now) {
            let Some(flow) = self.flows.peek(&connection) else { continue };
            if flow.retry.as_mut().is_some_and(|retry| retry.expire(now))
                && let Some(packet) = flow.resend_oldest()
            {
                self.stats.timeouts += 1;
                self.out.packet(Side::Mobile, packet);
            }
            self.arm(connection);
        }
    }
}
