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
//! [`Srp`] puts parts together, each with a state of its own, and calls them in order:
//! `input.rs` on arrival, `output.rs` for the next datagram, `timer.rs` in between.
//!
//! It is a machine. Feed it with [`handle`](Srp::handle), [`handle_timeout`](Srp::handle_timeout)
//! and the [`Streams`](crate::Streams) calls; after any of them call [`poll`](Srp::poll) until it
//! returns `None`, then sleep until [`next_timeout`](Srp::next_timeout). Time must not go
//! backwards.

mod arrivals;
mod close_state;
mod content;
mod copies;
mod cubic;
mod doubles;
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
mod trains;
mod transport;
mod windowed;

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use core::time::Duration;

use lasthop_units::{Bytes, Rate, Time};

use crate::clients::Clients;
use crate::config::{HopConfig, Limits, Window};
use crate::lane::{HopView, PacketLane};
use crate::stats::HopStats;
use crate::transport::Role;
use arrivals::Arrivals;
use close_state::CloseState;
use copies::Copies;
use doubles::Doubles;
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
    /// Packets beside streams, once there were any.
    packets: Option<Box<PacketLane>>,
    /// Which hosts share the rate.
    clients: Clients,
    /// What is sent once more although it may arrive.
    doubles: Doubles,
    /// The longest packet that the peer takes; zero if none.
    packet_max: Bytes,
    /// Numbers of datagrams that came, and when to acknowledge them.
    received: Received,
    /// How much arrives.
    arrivals: Arrivals,
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
    close_state: CloseState,
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
            packets: None,
            clients: Clients::default(),
            doubles: Doubles::new(),
            packet_max: peer.packet_max,
            received: Received::new(),
            arrivals: Arrivals::new(now),
            recovery: Recovery::new(now),
            rate: RateControl::new(now, config.initial_datagrams),
            pacer: Pacer::new(now),
            mtu,
            probes: Probes::new(now, config.discipline.windowed().copied()),
            copies: Copies::new(now),
            close_state: CloseState::Open,
            stats: HopStats::default(),
            config,
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

    /// The lane of packets, made if there is none.
    fn lane(&mut self) -> &mut PacketLane {
        let (longest, memory) = (self.packet_max, &self.config.memory);
        self.packets.get_or_insert_with(|| Box::new(PacketLane::new(longest, memory)))
    }

    /// The share of datagrams that is lost, as copies go by it: what few of them tell counts too.
    fn loss(&self) -> f64 {
        self.rate.loss().max(self.recovery.loss())
    }

    /// The round trip; zero before there is a sample.
    fn srtt(&self) -> Duration {
        self.recovery.round_trip().srtt().unwrap_or_default()
    }

    /// What packets go by.
    fn hop_view(&self) -> HopView {
        HopView {
            srtt: self.srtt(),
            reordering: self.recovery.reordering(),
            air: self.air_time(),
            loss: self.loss(),
            full: self.mtu.current(),
            busy: self.streams.has_data(),
        }
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
