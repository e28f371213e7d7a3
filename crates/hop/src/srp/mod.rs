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
mod path;
mod paths;
mod probes;
mod rate;
mod received;
mod recovery;
mod sample;
mod shared;
mod statuses;
mod streams;
mod timer;
mod trains;
mod transport;
mod twice;
mod windowed;

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use lasthop_units::{Bytes, Time};

use crate::clients::Clients;
use crate::config::{HopConfig, Limits};
use crate::lane::{HopView, PacketLane};
use crate::path_id::PathId;
use crate::stats::HopStats;
use crate::transport::Role;
use close_state::CloseState;
use doubles::Doubles;
use path::Path;
use shared::SharedBottlenecks;
use statuses::Statuses;
use streams::StreamSet;

/// A peer that breaks its credit or contradicts itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Violation;

/// One end of an association's transport. See the module's text.
#[derive(Debug)]
pub struct Srp {
    config: HopConfig,
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
    /// The ways to the peer, one at least.
    paths: Vec<Path>,
    statuses: Statuses,
    /// Which of them share a bottleneck.
    shared: SharedBottlenecks,
    close_state: CloseState,
    /// Counters that outlive an association; the parts have the rest.
    stats: HopStats,
}

impl Srp {
    /// One end of a new association. `overhead` is what seal and carrier add to each datagram's
    /// frames, carrier headers included, in bytes.
    pub fn new(config: HopConfig, role: Role, peer: Limits, overhead: usize, now: Time) -> Self {
        Self {
            streams: StreamSet::new(config.clone(), role, peer),
            packets: None,
            clients: Clients::default(),
            doubles: Doubles::new(),
            packet_max: peer.packet_max,
            paths: vec![Path::new(&config, PathId::FIRST, overhead, now)],
            statuses: Statuses::default(),
            shared: SharedBottlenecks::default(),
            close_state: CloseState::Open,
            stats: HopStats::default(),
            config,
        }
    }

    /// How far beyond the last byte in sequence a stream may be sent.
    fn span(&self) -> u64 {
        self.config.discipline.span(self.paths[0].mtu.current())
    }

    /// The lane of packets, made if there is none.
    fn lane(&mut self) -> &mut PacketLane {
        let (longest, memory) = (self.packet_max, &self.config.memory);
        self.packets.get_or_insert_with(|| Box::new(PacketLane::new(longest, memory)))
    }

    /// What packets that leave by a path go by.
    fn hop_view(&self, path: &Path) -> HopView {
        HopView {
            srtt: path.srtt(),
            reordering: path.recovery.reordering(),
            air: path.air_time(),
            loss: path.loss(),
            full: path.mtu.current(),
            busy: self.streams.has_data(),
        }
    }
}
