//! A picture of a running process, as JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::request::Target;

/// Makes structs that serde writes, and that are read [key by key](crate::keyed): a process of another
/// version may leave keys out and say others.
macro_rules! reports {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident {$(
            $(#[$about:meta])*
            pub $field:ident: $type:ty,
        )*}
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Default, Debug, Serialize)]
        pub struct $name {$(
            $(#[$about])*
            pub $field: $type,
        )*}
        crate::keyed!($name, false, $([] $field: $type,)*);
    )*};
}

reports! {
    /// A picture of a running base, mobile or agent.
    pub struct Report {
        /// `base`, `mobile` or `agent`.
        pub role: String,
        /// The program's version.
        pub version: String,
        /// Seconds since it was started.
        pub uptime_s: f64,
        /// `srp`, `mobile-tcp` or `split-tcp`; empty at an agent.
        pub hop: String,
        /// One for each mobile, or one for the base.
        pub associations: Vec<AssociationReport>,
        /// Every connection.
        pub connections: Vec<ConnectionReport>,
        /// What happened since the start.
        pub counters: Counters,
        /// Of a mobile: the bases that it is configured with, in that order.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub bases: Vec<BaseReport>,
        /// Of a base: the other bases that it is configured with.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub peers: Vec<PeerReport>,
        /// Handoffs since the start, where they are configured.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub handoffs: Option<Handoffs>,
        /// Of a mobile: the latest handoff.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub handoff: Option<HandoffReport>,
        /// Of a base: its bound on buffers.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub memory: Option<MemoryReport>,
        /// Of a base: its mobiles are to go to other bases.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub draining: Option<bool>,
        /// Of a base: mobiles that have their connections here.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub mobiles: Option<u64>,
        /// Packets of the TUN device, where there is one.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub tun: Option<TunReport>,
        /// Applications' UDP sockets, where they are served.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub udp: Option<UdpReport>,
        /// What it has carried of late, if that was asked for.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub past: Option<PastReport>,
        /// Of an agent: what it is and does.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub agent: Option<AgentReport>,
        /// What the user has said of priorities and not taken back, oldest first; the later word counts.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub priorities: Vec<PriorityReport>,
        /// The same of which links carry what.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub policies: Vec<PolicyReport>,
    }

    /// What went through a TUN device.
    #[derive(PartialEq, Eq)]
    pub struct TunReport {
        /// The interface.
        pub name: String,
        /// Packets that the kernel led to it.
        pub from_kernel: u64,
        /// Packets that were handed to the kernel.
        pub to_kernel: u64,
        /// Of a base: packets for mobiles that it has passed on to the bases where those have gone.
        pub to_bases: u64,
        /// Of a base: packets for mobiles that other bases have passed on to it.
        pub from_bases: u64,
        /// Packets that were dropped, by why.
        #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
        pub refused: std::collections::BTreeMap<String, u64>,
    }

    /// What went through applications' UDP sockets.
    #[derive(PartialEq, Eq)]
    pub struct UdpReport {
        /// Sockets at this moment: at a mobile those for applications, at a base those towards fixed hosts.
        pub sockets: u64,
        /// Datagrams that came to them and went into the hop.
        pub to_hop: u64,
        /// Datagrams that came out of the hop and left by them.
        pub from_hop: u64,
        /// Datagrams that were dropped, by why.
        #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
        pub refused: std::collections::BTreeMap<String, u64>,
    }

    /// What a process has carried in each of the last seconds, two minutes of them at most, the latest last.
    #[derive(PartialEq)]
    pub struct PastReport {
        /// When the latest of them was over, in whole seconds since the start.
        pub until_s: u64,
        /// Bit/s into the hop.
        pub to_hop_bps: Vec<u64>,
        /// Bit/s out of the hop.
        pub from_hop_bps: Vec<u64>,
        /// The greatest share that an association lost of what it sent, where that is known.
        pub loss: Vec<Option<f64>>,
        /// The longest queue of an association in milliseconds, where that is known.
        pub queue_ms: Vec<Option<f64>>,
    }

    /// A base's bound on buffers.
    #[derive(Copy, PartialEq, Eq)]
    pub struct MemoryReport {
        /// What all of them may take, bytes.
        pub bound: u64,
        /// What they take, and what peers may send before more is granted.
        pub promised: u64,
    }

    /// An agent in the path.
    pub struct AgentReport {
        /// Its schemes, from the fixed side to the mobile side.
        pub schemes: Vec<String>,
        /// Where the fixed hosts are.
        pub fixed: InterfaceReport,
        /// Where the mobiles are.
        pub mobile: InterfaceReport,
        /// Whether the agent at the other end of the hop is heard; absent if none is needed.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub peer: Option<bool>,
        /// What was last heard of the link: `up`, `down` or `imminent`.
        pub link: String,
        /// What each scheme counts: `snoop_repaired` and the like.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub counters: BTreeMap<String, u64>,
    }

    /// An interface of an agent.
    #[derive(PartialEq, Eq)]
    pub struct InterfaceReport {
        /// Its name.
        pub name: String,
        /// Whether it is there and carries.
        pub up: bool,
        /// TCP packets that came in, those for this host itself among them.
        pub packets_received: u64,
        /// Their bytes, with Ethernet headers.
        pub bytes_received: u64,
        /// Packets that the agent sent.
        pub packets_sent: u64,
        /// Their bytes, with Ethernet headers.
        pub bytes_sent: u64,
        /// Packets that came and were lost because the agent did not keep up.
        pub packets_missed: u64,
        /// Packets that the interface did not take.
        pub packets_unsent: u64,
    }

    /// A base, as a mobile sees it.
    #[derive(PartialEq)]
    pub struct BaseReport {
        /// What the configuration calls it.
        pub name: String,
        /// Its public key, by which its association is known; absent without a seal.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub key: Option<String>,
        /// Where it is.
        pub address: String,
        /// `up`, `silent`, `connecting`, `down` or `idle`: no association is wanted.
        pub state: String,
        /// Whether the mobile's connections go through it.
        pub current: bool,
        /// The configuration does not name it: another base told of it.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pub learned: bool,
        /// Whether it wants to be left, if it has said so over the association that there is.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub draining: Option<bool>,
        /// How full it has said that it is, of 255.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub load: Option<u8>,
        /// The interface through which it is reached, where that is configured.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub interface: Option<String>,
        /// How often the connections moved to it.
        pub handoffs: u64,
        /// How long they stood still the last time, in seconds.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub last_pause_s: Option<f64>,
    }

    /// Another base, as a base sees it.
    #[derive(PartialEq, Eq)]
    pub struct PeerReport {
        /// What the configuration calls it.
        pub name: String,
        /// Its public key.
        pub key: String,
        /// Where it is.
        pub address: String,
        /// Whether there is an association with it.
        pub up: bool,
    }

    /// Handoffs since the start. A session is all connections of a mobile together.
    #[derive(Copy, PartialEq, Eq)]
    pub struct Handoffs {
        /// Sessions that moved here from another base; at a mobile, its own handoffs.
        pub here: u64,
        /// Sessions that another base took over.
        pub given: u64,
        /// Requests that were refused: without authorisation, out of date, or beyond a bound.
        pub refused: u64,
        /// Connections that could not be saved.
        pub lost: u64,
        /// Connections whose wired half stayed at another base.
        pub anchored: u64,
        /// Connections that came with their wired half.
        pub migrated: u64,
        /// Connections that were taken over from a base that was dead.
        #[serde(default)]
        pub orphans_taken: u64,
        /// Those of dead bases that could not go on.
        #[serde(default)]
        pub orphans_lost: u64,
    }

    /// A mobile's handoff.
    #[derive(PartialEq)]
    pub struct HandoffReport {
        /// Handoffs are numbered from 1 since the start.
        pub number: u64,
        /// The name of the base that the connections move to.
        pub to: String,
        /// How it stands.
        pub state: HandoffState,
        /// How long the connections stood still, in seconds; known when they go on.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub pause_s: Option<f64>,
        /// Connections that moved.
        pub moved: u64,
        /// Connections that were reset on the way.
        pub lost: u64,
        /// Why the connections could not be saved.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
    }

    /// One association. What a hop does not know is absent.
    pub struct AssociationReport {
        /// Its number in this process.
        pub id: u64,
        /// The peer's public key.
        pub peer: Option<String>,
        /// Where the peer is.
        pub address: Option<String>,
        /// `up`, `silent`, `connecting`, `down` or `closing`.
        pub state: String,
        /// Seconds since it came up.
        pub age_s: f64,
        /// Streams at this moment.
        pub streams: u64,
        /// The rate at which it may send, in bit/s.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub pacing_bps: Option<u64>,
        /// The rate at which the hop delivers, in bit/s.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub delivery_bps: Option<u64>,
        /// The share of what was sent that was lost, of late.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub loss: Option<f64>,
        /// Smoothed round trip, milliseconds.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub srtt_ms: Option<f64>,
        /// Least round trip, milliseconds.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub min_rtt_ms: Option<f64>,
        /// The round trip beyond its least, milliseconds.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub queue_ms: Option<f64>,
        /// The longest datagram, bytes.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub mtu: Option<u64>,
        /// What buffers of its connections hold, bytes.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub memory: Option<u64>,
        /// Packets sent.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub packets_sent: Option<u64>,
        /// Of which were lost on the way.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub packets_lost: Option<u64>,
        /// Packets received.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub packets_received: Option<u64>,
        /// Application bytes sent to the peer.
        pub bytes_sent: u64,
        /// Application bytes sent again.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub bytes_retransmitted: Option<u64>,
        /// Application bytes received from the peer.
        pub bytes_received: u64,
        /// What became of packets that are carried beside the streams; absent where there were none.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub packets: Option<PacketReport>,
        /// The paths that it uses together; absent where there is one.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub paths: Vec<PathReport>,
        /// What this base passes on for the mobile, to another one; absent where it does not.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub transit: Option<TransitReport>,
    }

    /// Datagrams that are passed on for a mobile, to another base and back.
    pub struct TransitReport {
        /// Where that base serves mobiles.
        pub to: String,
        /// Bytes to it.
        pub bytes_on: u64,
        /// Bytes from it.
        pub bytes_back: u64,
        /// Datagrams that were lost because too many waited.
        pub dropped: u64,
    }

    /// One of the paths of an association.
    pub struct PathReport {
        /// What the mobile calls its link; at a base, the path's number.
        pub name: String,
        /// Where the peer is by it.
        pub address: Option<String>,
        /// `up`, `silent`, or `used-up` where it has carried all that it may today.
        pub state: String,
        /// The base that the link leads to, where that is said.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub base: Option<String>,
        /// What it may carry in a day, bytes.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub cap: Option<u64>,
        /// What it has carried today, where it has a cap.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub used_today: Option<u64>,
        /// The rate at which it may send, in bit/s.
        pub pacing_bps: Option<u64>,
        /// The rate at which it delivers, in bit/s.
        pub delivery_bps: Option<u64>,
        /// The share of what was sent that was lost, of late.
        pub loss: f64,
        /// Smoothed round trip, milliseconds.
        pub srtt_ms: Option<f64>,
        /// Least round trip, milliseconds.
        pub min_rtt_ms: Option<f64>,
        /// The round trip beyond its least, milliseconds.
        pub queue_ms: Option<f64>,
        /// The longest datagram, bytes.
        pub mtu: u64,
        /// Sent by it, with all headers.
        pub bytes_sent: u64,
        /// Received by it, with all headers.
        pub bytes_received: u64,
        /// The paths that share a bottleneck with it, as far as what this end sends has shown; absent where none was found.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub shares_with: Vec<String>,
    }

    /// What became of an association's packets, at this end: IP packets, and not the datagrams that carry them.
    #[derive(Copy, PartialEq, Eq)]
    pub struct PacketReport {
        /// Packets sent to the peer for the first time.
        pub sent: u64,
        /// Their bytes.
        pub bytes_sent: u64,
        /// Packets sent again because they were lost, or parts of them.
        pub repeated: u64,
        /// Packets sent twice at once, against loss.
        pub doubled: u64,
        /// Packets dropped before they were sent: their flow's queue was too long for too long.
        pub dropped_queue: u64,
        /// Packets dropped before they were sent, for lack of memory.
        pub dropped_memory: u64,
        /// Packets dropped before they were sent: they were too old.
        pub dropped_old: u64,
        /// Packets marked (ECN) rather than dropped.
        pub marked: u64,
        /// Packets lost on the hop, and too old to be sent again.
        pub given_up: u64,
        /// Packets received from the peer and delivered.
        pub received: u64,
        /// Their bytes.
        pub bytes_received: u64,
        /// Packets that came twice.
        pub duplicates: u64,
        /// Packets that came when those behind them in their flow had been delivered.
        pub late: u64,
        /// Packets that came and were dropped: nobody took them, or parts never came.
        pub dropped_received: u64,
        /// Flows that have packets queued or on their way at the moment.
        pub flows: u64,
        /// Bytes queued, on their way, or waiting for others, at the moment.
        pub bytes_held: u64,
    }

    /// One connection.
    pub struct ConnectionReport {
        /// What names it in this process, as long as it lasts.
        pub key: u64,
        /// Its association.
        pub association: Option<String>,
        /// Its number in the association.
        pub id: Option<u64>,
        /// Where it goes.
        pub target: String,
        /// Who wants it: the client's address and port.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub client: Option<String>,
        /// The program whose it is, where the kernel can tell.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub program: Option<String>,
        /// Its priority, if priorities are known at this end.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub priority: Option<u32>,
        /// Which of several links carry it, as the configuration has it: absent where it is `speed`, and at a base.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub policy: Option<String>,
        /// `opening`, `open`, `sent-end`, `got-end` or `closing`.
        pub state: String,
        /// Bytes from here into the hop.
        pub bytes_to_hop: u64,
        /// Bytes out of the hop.
        pub bytes_from_hop: u64,
        /// Seconds since it was asked for.
        pub age_s: f64,
    }

    /// Counts since the start.
    #[derive(Copy)]
    pub struct Counters {
        /// Connections that stood.
        pub opened: u64,
        /// Connections that were refused or failed.
        pub refused: u64,
        /// Connections that are over.
        pub closed: u64,
        /// Datagrams or hop connections that were no peer's.
        pub garbage: u64,
    }
}

impl PacketReport {
    /// Packets that were to be sent and were not.
    pub fn dropped(&self) -> u64 {
        self.dropped_queue.saturating_add(self.dropped_memory).saturating_add(self.dropped_old)
    }
}

/// A word of the user's on priorities.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PriorityReport {
    /// Which connections are meant.
    pub of: Target,
    /// Their priority.
    pub priority: u32,
}

/// A word of the user's on which links carry connections.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PolicyReport {
    /// Which connections are meant.
    pub of: Target,
    /// The policy, as the configuration has it.
    pub policy: String,
}

/// How a handoff stands.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandoffState {
    /// It is not over.
    #[default]
    UnderWay,
    /// The connections go on through the new base.
    Done,
    /// The connections could not be saved.
    Broken,
}
