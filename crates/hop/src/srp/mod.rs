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
//! [`Srp`] puts parts together that know nothing of each other, and says in what order they are asked:
//! `input.rs` on arrival, `output.rs` for the next datagram, `timer.rs` in between.
//!
//! It is a machine. Feed it with [`handle`](Srp::handle), [`handle_timeout`](Srp::handle_timeout)
//! and the [`Streams`](crate::Streams) calls; after any of them call [`poll`](Srp::poll) until it
//! returns `None`, then sleep until [`next_timeout`](Srp::next_timeout). Time must not go
//! backwards.

mod content;
mod copies;
mod cubic;
mod ending;
mod filter;
mod input;
mod interval;
mod mtu;
mod output;
mod pacer;
mod probes;
mod rate;
mod received;
mod recovery;
mod sample;
mod streams;
mod timer;
mod transport;
mod windowed;

#[cfg(test)]
mod tests;

use core::time::Duration;

use lasthop_units::{Bytes, LinkEvent, Rate, Time};

use crate::config::{HopConfig, Limits, Window};
use crate::stats::HopStats;
use crate::transport::{CloseReason, Role};
use copies::Copies;
use ending::Ending;
use mtu::MtuSearch;
use pacer::Pacer;
use probes::Probes;
use rate::RateControl;
use received::Received;
use recovery::Recovery;
use streams::StreamSet;

/// A peer that breaks its credit or contradicts itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Violation;

/// One end of an association's transport. See the module's text.
#[derive(Debug)]
pub struct Srp {
    config: HopConfig,
    /// Bytes that seal and carrier add to the frames of a datagram.
    overhead: usize,
    /// What is to be sent, and what came.
    streams: StreamSet,
    /// Numbers of datagrams that came, and when to acknowledge them.
    received: Received,
    /// Datagrams that left, and what became of them.
    recovery: Recovery,
    /// How fast the hop is, and how much may be on its way.
    rate: RateControl,
    /// When the next datagram may leave.
    pacer: Pacer,
    /// How large datagrams may be.
    mtu: MtuSearch,
    /// What to ask when nothing comes back.
    probes: Probes,
    /// What to send twice.
    copies: Copies,
    ending: Ending,
    /// Counters that outlive an association; the parts have the rest.
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
        Self {
            overhead,
            streams: StreamSet::new(config.clone(), role, peer),
            received: Received::new(),
            recovery: Recovery::new(now),
            rate: RateControl::new(now, config.initial_datagrams),
            pacer: Pacer::new(now),
            mtu,
            probes: Probes::new(now, config.discipline.windowed().copied()),
            copies: Copies::new(now),
            ending: Ending::Open,
            stats: HopStats::default(),
            config,
        }
    }

    /// The peer has told its limits: streams may be sent from now on.
    pub fn establish(&mut self, now: Time, peer: &Limits) {
        self.streams.establish(peer);
        self.pacer.start(now);
    }

    /// The association is over and its streams with it; the next one starts from nothing, but for
    /// stream numbers, which are never used twice.
    pub fn restart(&mut self, now: Time) {
        let (config, role) = (self.config.clone(), self.streams.role());
        let mut new = Self::new(config, role, Limits::UNKNOWN, self.overhead, now);
        self.streams.restart();
        core::mem::swap(&mut new.streams, &mut self.streams);
        new.stats = self.stats;
        *self = new;
    }

    /// The first stream of this end's that a new association may carry: the oldest that is open, or
    /// else the next to be opened.
    pub fn first_stream(&self) -> u64 {
        self.streams.first()
    }

    /// Asks the peer for a sign of life.
    pub fn ping(&mut self) {
        self.probes.ping();
    }

    /// There is reason to believe that the peer is there: asks it at once.
    pub fn probe(&mut self, now: Time) {
        if self.recovery.log().oldest().is_some() {
            self.probes.probe_now(now);
        } else {
            self.ping();
        }
    }

    /// For how long nothing has been heard although something is outstanding.
    pub fn silent_for(&self, now: Time) -> Option<Duration> {
        self.probes.age(now)
    }

    /// The path is another one: the peer's address has changed, or ours.
    pub fn handle_moved(&mut self, now: Time) {
        self.rate.on_new_path();
        self.mtu.on_new_path();
        if self.recovery.log().oldest().is_some() {
            self.probes.probe_now(now);
        }
    }

    /// What is known of the hop from below.
    pub fn handle_link_event(&mut self, now: Time, event: LinkEvent) {
        match event {
            LinkEvent::Up => self.probes.on_link_up(now, self.recovery.log().oldest().is_some()),
            LinkEvent::Down => {
                self.probes.on_link_down();
                self.rate.on_interruption();
            }
            LinkEvent::Imminent { .. } | LinkEvent::Complete => {}
        }
    }

    /// Tells a round-trip time that was measured before the association began, by the handshake.
    pub fn seed_round_trip(&mut self, now: Time, rtt: Duration) {
        self.recovery.on_round_trip(rtt);
        self.rate.on_round_trip(now, rtt, self.full_datagram());
    }

    /// Ends the association: the peer is told once, streams are gone.
    pub fn close(&mut self, reason: CloseReason) {
        self.ending.close(reason);
    }

    /// Why the association ended, if it has.
    pub fn closed(&self) -> Option<CloseReason> {
        self.ending.closed()
    }

    /// Counters and present values.
    pub fn stats(&self) -> HopStats {
        let traffic = self.streams.traffic();
        HopStats {
            bytes_sent: traffic.sent,
            bytes_retransmitted: traffic.repeated,
            bytes_received: traffic.received,
            srtt: self.recovery.round_trip().srtt().unwrap_or_default(),
            min_rtt: self.rate.rtt_min(),
            queue: self.rate.queue(),
            pacing_rate: self.rate.pacing_rate(),
            delivery_rate: self.rate.delivery_rate(),
            loss: self.rate.loss(),
            inflight: Bytes::new(self.recovery.log().inflight()),
            mtu: Bytes::from(self.mtu.current() + self.overhead) - self.config.carrier_overhead,
            streams: self.streams.len(),
            memory: Bytes::from(self.streams.memory()),
            silent: self.probes.is_silent(),
            reordering: self.recovery.reordering(),
            ..self.stats
        }
    }

    /// Size on the radio of a full datagram.
    fn full_datagram(&self) -> usize {
        self.mtu.current() + self.overhead
    }

    /// The window, if this end goes by one.
    fn window(&self) -> Option<&Window> {
        self.config.discipline.windowed()
    }

    /// How far beyond the last byte in sequence a stream may be sent.
    fn span(&self) -> u64 {
        self.config.discipline.span(self.mtu.current())
    }

    fn pacing_rate(&self) -> Rate {
        match self.rate.pacing_rate() {
            _ if self.window().is_some() => Rate::UNLIMITED,
            Rate::ZERO => Rate::from_mbps(10),
            rate => rate,
        }
    }

    /// How long a full datagram takes at the paced rate.
    fn air_time(&self) -> Duration {
        self.pacing_rate().time_for(Bytes::from(self.full_datagram()))
    }
}
