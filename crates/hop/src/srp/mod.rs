//! SRP, the Selective Repeat Protocol: reliable streams over one lossy hop.
//!
//! The heart is the 1994 paper's: a selective acknowledgement names the last in sequence, the
//! latest received and, by a bitmap, what is missing between; the sender repeats exactly that
//! (SRP-3, SRP-4). Here the numbers are those of *transmissions*: every datagram has a number of
//! its own, a retransmission too. Datagrams do not overtake each other on one hop, so a gap is a
//! loss at once, a lost retransmission is a gap like any other, and neither needs a timeout. Where
//! a link does reorder, late arrivals teach the sender how long to wait.
//!
//! Bytes are addressed by stream and offset, not by segment (SRP-5 reads a segment number into the
//! paper's silence): a path whose MTU shrinks cuts the same bytes into smaller pieces.
//!
//! [`Srp`] is a machine. Feed it with [`handle`](Srp::handle), [`handle_timeout`](Srp::handle_timeout)
//! and the [`Streams`](crate::Streams) calls; after any of them call [`poll`](Srp::poll) until it
//! returns `None`, then sleep until [`next_timeout`](Srp::next_timeout). Time must not go
//! backwards.

mod copies;
mod cubic;
mod filter;
mod input;
mod interval;
mod moved;
mod mtu;
mod output;
mod priority;
mod probes;
mod rate;
mod received;
mod recv;
mod sample;
mod send;
mod sent;
mod stream;
mod timer;
mod transport;
mod windowed;

#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use lasthop_stream::{RangeSet, Shares};
use lasthop_units::{Bytes, Rate, Time};

use crate::config::{HopConfig, Limits};
use crate::stats::HopStats;
use crate::streams::StreamEvent;
use crate::transport::{CloseReason, LOST, Role};
use copies::Copies;
use moved::Detached;
use mtu::MtuSearch;
use probes::Probes;
use rate::RateControl;
use received::Received;
use sent::{Content, RoundTrip, SentLog};
use stream::Stream;

/// Credit for all streams together, both ways.
#[derive(Debug)]
struct Credit {
    /// What the peer may send in all.
    limit: u64,
    window: u64,
    window_max: u64,
    received: u64,
    consumed: u64,
    /// What we may send in all, and have.
    peer_limit: u64,
    used: u64,
    blocked_told: Option<u64>,
}

/// One end of an association's transport. See the module's text.
#[derive(Debug)]
pub struct Srp {
    config: HopConfig,
    role: Role,
    peer: Limits,
    /// Bytes that seal and carrier add to the frames of a datagram.
    overhead: usize,
    streams: BTreeMap<u64, Stream>,
    local_open: usize,
    next_local: u64,
    next_peer: u64,
    /// Streams before that which the peer has not begun, by half their number.
    unseen: RangeSet,
    /// Streams that were taken out: the peer may not know yet, and their bytes are not ours to
    /// acknowledge.
    detached: BTreeMap<u64, Detached>,
    /// Streams with something lost, and with something new, in turn.
    urgent: VecDeque<u64>,
    active: VecDeque<u64>,
    /// Bytes that the stream at the front has sent in its turn.
    turn: usize,
    /// How streams divide window and turns, once one of them was given a priority.
    shares: Option<Shares<u64>>,
    /// Shares are to be divided anew, with the remainder to this stream if any.
    unsettled: Option<Option<u64>>,
    /// Small things to tell that are not stream bytes.
    controls: VecDeque<Content>,
    /// Streams that found the association's memory full.
    starved: VecDeque<u64>,
    events: VecDeque<StreamEvent>,
    credit: Credit,
    /// Bytes written by the application and not acknowledged, of all streams.
    send_buffered: u64,
    log: SentLog,
    received: Received,
    round_trip: RoundTrip,
    rate: RateControl,
    mtu: MtuSearch,
    probes: Probes,
    copies: Copies,
    largest_acked: u64,
    largest_acked_sent: Time,
    arrival_us: u64,
    /// Bytes and datagrams acknowledged, bytes declared lost.
    delivered: u64,
    acked: u64,
    lost_bytes: u64,
    /// Datagrams lost in this life; the counters outlive it.
    lost_datagrams: u64,
    /// When the pacer lets the next datagram go.
    pace_at: Time,
    /// Nothing was sent at the last opportunity, for lack of data, credit or window.
    idle: bool,
    /// How much later than its successors a datagram may arrive before it counts as lost.
    reordering: Duration,
    reordering_seen: Time,
    loss_timer: Option<Time>,
    last_eliciting: Time,
    ping_due: bool,
    closing: Option<CloseReason>,
    /// Copies of the last word that are still to be sent: nothing acknowledges it.
    close_copies: u32,
    closed: Option<CloseReason>,
    stats: HopStats,
}

impl Srp {
    /// One end of a new association. `overhead` is what seal and carrier add to each datagram's
    /// frames, carrier headers included, in bytes.
    pub fn new(config: HopConfig, role: Role, peer: Limits, overhead: usize, now: Time) -> Self {
        let seal = overhead.saturating_sub(config.carrier_overhead.as_usize());
        let mtu = MtuSearch::new(
            config.datagram_base.as_usize().saturating_sub(seal),
            config.datagram_max.as_usize().saturating_sub(seal),
        );
        let window = config.association_window.get();
        let credit = Credit {
            limit: window,
            window,
            window_max: config.association_memory.get(),
            received: 0,
            consumed: 0,
            peer_limit: peer.association_window.get(),
            used: 0,
            blocked_told: None,
        };
        Self {
            role,
            peer,
            overhead,
            streams: BTreeMap::new(),
            unseen: RangeSet::default(),
            detached: BTreeMap::new(),
            local_open: 0,
            next_local: if role == Role::Mobile { 0 } else { 1 },
            next_peer: if role == Role::Mobile { 1 } else { 0 },
            urgent: VecDeque::new(),
            active: VecDeque::new(),
            turn: 0,
            shares: None,
            unsettled: None,
            controls: VecDeque::new(),
            starved: VecDeque::new(),
            events: VecDeque::new(),
            credit,
            send_buffered: 0,
            log: SentLog::new(),
            received: Received::new(),
            round_trip: RoundTrip::default(),
            rate: RateControl::new(now, config.initial_datagrams),
            mtu,
            probes: Probes::new(),
            copies: Copies::new(now),
            largest_acked: 0,
            largest_acked_sent: now,
            arrival_us: 0,
            delivered: 0,
            acked: 0,
            lost_bytes: 0,
            lost_datagrams: 0,
            pace_at: now,
            idle: true,
            reordering: Duration::ZERO,
            reordering_seen: now,
            loss_timer: None,
            last_eliciting: now,
            ping_due: false,
            closing: None,
            close_copies: 3,
            closed: None,
            stats: HopStats::default(),
            config,
        }
    }

    /// The peer has told its limits: streams may be sent from now on.
    pub fn establish(&mut self, now: Time, peer: &Limits) {
        self.peer = *peer;
        self.credit.peer_limit = peer.association_window.get();
        self.next_peer = self.next_peer.max(peer.first_stream);
        self.pace_at = now;
        let ids: Vec<u64> = self.streams.keys().copied().collect();
        for id in ids {
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.send.raise_limit(peer.stream_window.get());
            }
            self.enqueue(id);
        }
    }

    /// The association is over and its streams with it; the next one starts from nothing, but for
    /// stream numbers, which are never used twice.
    pub fn restart(&mut self, now: Time) {
        let mut new =
            Self::new(self.config.clone(), self.role, Limits::UNKNOWN, self.overhead, now);
        new.next_local = self.next_local;
        new.events = core::mem::take(&mut self.events);
        new.stats = self.stats;
        new.streams = core::mem::take(&mut self.streams);
        for (id, stream) in &mut new.streams {
            stream.recv.fail(LOST);
            stream.send.abandon(LOST);
            stream.send.on_reset_acked();
            stream.retired = true;
            let id = crate::StreamId(*id);
            if !stream.dropped {
                new.events.push_back(StreamEvent::Readable(id));
            }
            new.events.push_back(StreamEvent::Closed(id));
        }
        *self = new;
    }

    /// The first stream of this end's that a new association may carry: the oldest that is open, or
    /// else the next to be opened.
    pub fn first_stream(&self) -> u64 {
        let open = self.streams.iter().find(|(id, s)| self.is_local(**id) && !s.retired);
        open.map_or(self.next_local, |(id, _)| *id)
    }

    /// Asks the peer for a sign of life.
    pub fn ping(&mut self) {
        self.ping_due = true;
    }

    /// For how long nothing has been heard although something is outstanding.
    pub fn silent_for(&self, now: Time) -> Option<Duration> {
        self.probes.age(now)
    }

    /// The path is another one: the peer's address has changed, or ours.
    pub fn handle_moved(&mut self, now: Time) {
        self.rate.on_new_path();
        self.mtu.on_new_path();
        if self.log.oldest().is_some() {
            self.probes.probe_now(now);
        }
    }

    /// Tells a round-trip time that was measured before the association began, by the handshake.
    pub fn seed_round_trip(&mut self, now: Time, rtt: Duration) {
        self.round_trip.sample(rtt);
        self.rate.on_round_trip(now, rtt, self.full_datagram());
    }

    /// Ends the association: the peer is told once, streams are gone.
    pub fn close(&mut self, reason: CloseReason) {
        if self.closing.is_none() && self.closed.is_none() {
            self.closing = Some(reason);
        }
    }

    /// Why the association ended, if it has.
    pub fn closed(&self) -> Option<CloseReason> {
        self.closed
    }

    /// Counters and present values.
    pub fn stats(&self) -> HopStats {
        let memory: usize = self.streams.values().map(|s| s.send.memory() + s.recv.memory()).sum();
        HopStats {
            srtt: self.round_trip.srtt().unwrap_or_default(),
            min_rtt: self.rate.rtt_min(),
            queue: self.rate.queue(),
            pacing_rate: self.rate.pacing_rate(),
            delivery_rate: self.rate.delivery_rate(),
            loss: self.rate.loss(),
            inflight: Bytes::new(self.log.inflight()),
            mtu: Bytes::from(self.mtu.current() + self.overhead) - self.config.carrier_overhead,
            streams: self.streams.len(),
            memory: Bytes::from(memory),
            silent: self.is_silent(),
            reordering: self.reordering,
            ..self.stats
        }
    }

    /// Size on the radio of a full datagram.
    fn full_datagram(&self) -> usize {
        self.mtu.current() + self.overhead
    }

    fn pacing_rate(&self) -> Rate {
        match self.rate.pacing_rate() {
            _ if self.windowed().is_some() => Rate::UNLIMITED,
            Rate::ZERO => Rate::from_mbps(10),
            rate => rate,
        }
    }

    fn is_local(&self, id: u64) -> bool {
        id % 2 == if self.role == Role::Mobile { 0 } else { 1 }
    }

    /// Says that a stream is over both ways. It is removed once the session has heard so, and
    /// with it everything that came before.
    fn retire(&mut self, id: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if !stream.is_over() || stream.retired {
            return;
        }
        stream.retired = true;
        if self.is_local(id) {
            self.local_open -= 1;
        }
        self.leave_shares();
        self.events.push_back(StreamEvent::Closed(crate::StreamId(id)));
    }

    /// Grants more credit for all streams together when enough was read.
    fn renew_credit(&mut self, at_once: bool) {
        let c = &mut self.credit;
        let limit = c.consumed + c.window;
        if limit > c.limit && (at_once || limit - c.limit >= c.window / 4) {
            c.limit = limit;
            if !self.controls.contains(&Content::Credit) {
                self.controls.push_back(Content::Credit);
            }
        }
    }
}
