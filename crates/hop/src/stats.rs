use core::time::Duration;

use lasthop_units::{Bytes, Rate};

use crate::packets::PacketStats;
use crate::path_id::{PathId, PathSet};

/// Plain counters and present values of one end of a hop.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct HopStats {
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Authentic datagrams received, duplicates not counted.
    pub datagrams_received: u64,
    /// Datagrams that came more than once.
    pub duplicates: u64,
    /// Authentic datagrams whose frames could not be read.
    pub malformed: u64,
    /// Datagrams declared lost on the way to the peer.
    pub lost: u64,
    /// Datagrams declared lost that arrived after all.
    pub spurious: u64,
    /// Stream bytes sent for the first time.
    pub bytes_sent: Bytes,
    /// Stream bytes sent again.
    pub bytes_retransmitted: Bytes,
    /// Stream bytes received for the first time.
    pub bytes_received: Bytes,
    /// Probes sent into silence or after a tail.
    pub probes: u64,
    /// Times that the hop fell silent.
    pub silences: u64,
    /// Smoothed round trip; zero before the first.
    pub srtt: Duration,
    /// Least round trip of late.
    pub min_rtt: Duration,
    /// Queue on the way to the peer, as last seen.
    pub queue: Duration,
    /// Rate at which datagrams are paced out.
    pub pacing_rate: Rate,
    /// What the hop was last measured to deliver.
    pub delivery_rate: Rate,
    /// Share of datagrams lost, of late, from 0 to 1.
    pub loss: f64,
    /// Bytes sent whose fate is not known.
    pub inflight: Bytes,
    /// Largest carrier payload known to pass.
    pub mtu: Bytes,
    /// Streams that are open.
    pub streams: usize,
    /// Memory held in buffers.
    pub memory: Bytes,
    /// The hop is silent at the moment.
    pub silent: bool,
    /// How late datagrams may overtake each other before a gap counts as a loss.
    pub reordering: Duration,
    /// What became of packets.
    pub packets: PacketStats,
}

/// Counters and present values of one path.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PathStats {
    /// Which.
    pub id: PathId,
    /// Smoothed round trip; zero before the first.
    pub srtt: Duration,
    /// Least round trip of late.
    pub min_rtt: Duration,
    /// Queue on the way to the peer, as last seen.
    pub queue: Duration,
    /// Rate at which datagrams are paced out.
    pub pacing_rate: Rate,
    /// What the path was last measured to deliver.
    pub delivery_rate: Rate,
    /// Share of datagrams lost, of late, from 0 to 1.
    pub loss: f64,
    /// Largest carrier payload known to pass.
    pub mtu: Bytes,
    /// Nothing comes back by it at the moment.
    pub silent: bool,
    /// How late datagrams may overtake each other by it before a gap counts as a loss.
    pub reordering: Duration,
    /// Sent by it, with all headers.
    pub bytes_sent: Bytes,
    /// Received by it, with all headers.
    pub bytes_received: Bytes,
    /// Other paths that share its bottleneck, as far as what this end sends has shown.
    pub shares_with: PathSet,
}
