//! A scenario with every name looked up, every default filled in and every random value drawn: what
//! an [`Engine`](crate::Engine) runs.

use lasthop_radio::RadioConfig;
use lasthop_sim::signals::SignalsConfig;
use lasthop_units::{Bytes, Duration, Rate, Seed, deserialize_duration};
use serde::Deserialize;

use super::agents::AgentSettings;
use super::mobile::MobileSettings;
use super::mobile_tcp::MobileTcpSettings;
use super::scheme::Schemes;
use super::tcp::TcpSettings;

/// One point of a sweep, for one run.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// When a run ends.
    pub end: End,
    /// How long packets are on links.
    pub headers: Headers,
    /// The nodes, in the order of their names.
    pub nodes: Vec<Node>,
    /// The links, in the order of their names.
    pub links: Vec<Link>,
    /// The links of mobile hosts that have several to one base.
    pub link_sets: Vec<LinkSet>,
    /// The flows, in the order of their names; those without, in the order of the file.
    pub flows: Vec<Flow>,
    /// The mobile's moves and disconnections.
    pub handoff: Option<Handoff>,
    /// What link signals are worth (LNK-14).
    pub signals: SignalsConfig,
    /// SRP on the hop.
    pub srp: Srp,
    /// Mobile TCP on the hop.
    pub mobile_tcp: MobileTcpSettings,
    /// The surrogates at the bases, and the agents in the path.
    pub agent: AgentSettings,
    /// The mobile's own TCP, where a scheme needs it.
    pub mobile: MobileSettings,
    /// Receiver window control.
    pub rwc: Rwc,
    /// What is recorded besides the metrics.
    pub measure: Measure,
}

impl Scenario {
    /// The node of this index.
    ///
    /// # Panics
    ///
    /// If the index is another scenario's.
    pub fn node(&self, index: NodeIndex) -> &Node {
        &self.nodes[index.0]
    }

    /// The link of this index.
    ///
    /// # Panics
    ///
    /// If the index is another scenario's.
    pub fn link(&self, index: LinkIndex) -> &Link {
        &self.links[index.0]
    }
}

/// Which lengths packets have on links.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Headers {
    /// Headers and payload, as everywhere in reality.
    #[default]
    Counted,
    /// Payload only, and 40 bytes for a packet that has none: ns-2 with `useHeaders_ false`.
    Free,
}

/// When a run ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// After this time, whatever has happened.
    After(Duration),
    /// When every flow has completed; after this time, those that have not count as incomplete
    /// (MET-13).
    Complete(Duration),
}

impl End {
    /// The longest that a run lasts.
    pub const fn latest(self) -> Duration {
        match self {
            Self::After(time) | Self::Complete(time) => time,
        }
    }
}

/// Which of [`Scenario::nodes`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeIndex(pub usize);

/// Which of [`Scenario::links`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkIndex(pub usize);

/// A node.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Node {
    /// Its name in the file, which stands before it there.
    #[serde(skip)]
    pub name: String,
    /// What it is.
    pub kind: NodeKind,
    /// M-TCP's agent for the bases below it lives here (MTC-1).
    #[serde(default)]
    pub supervisor: bool,
    /// Of a mobile host with several links to one base, the names of those that it uses, in this order;
    /// all if none is named.
    #[serde(default)]
    pub links: Vec<String>,
}

/// What a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeKind {
    /// A host that never moves.
    FixedHost,
    /// A router.
    Router,
    /// A base station: a router with a radio, where surrogates live.
    Base,
    /// A router that moves, with hosts behind it (MIP-9).
    MobileRouter,
    /// A host that moves.
    MobileHost,
}

impl NodeKind {
    /// Whether applications run here.
    pub const fn is_host(self) -> bool {
        matches!(self, Self::FixedHost | Self::MobileHost)
    }

    /// Whether this may change its base.
    pub const fn is_mobile(self) -> bool {
        matches!(self, Self::MobileRouter | Self::MobileHost)
    }
}

/// A link between two nodes.
#[derive(Clone, PartialEq, Debug)]
pub struct Link {
    /// Its name in the file.
    pub name: String,
    /// Its two ends.
    pub ends: [NodeIndex; 2],
    /// What it does to packets: `up` from the first end to the second, `down` back.
    pub radio: RadioConfig,
    /// Both directions take turns on one channel, which is what `up` says, as `down` does.
    pub half_duplex: bool,
}

impl Link {
    /// The other end, seen from `node`.
    pub fn far_end(&self, node: NodeIndex) -> NodeIndex {
        if self.ends[0] == node { self.ends[1] } else { self.ends[0] }
    }
}

/// The links of a mobile host that has several to one base.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkSet {
    /// Whose.
    pub mobile: NodeIndex,
    /// The base at the other end of each.
    pub base: NodeIndex,
    /// Those that it uses, one at least. Packets of a scheme that uses one link go by the first.
    pub used: Vec<LinkIndex>,
    /// The others, which carry nothing.
    pub idle: Vec<LinkIndex>,
}

impl LinkSet {
    /// Those of which routes know nothing: all but the first.
    pub(crate) fn aside(&self) -> impl Iterator<Item = LinkIndex> {
        self.used.iter().skip(1).chain(&self.idle).copied()
    }
}

/// A flow between two hosts.
#[derive(Clone, PartialEq, Debug)]
pub struct Flow {
    /// Its name in the file; its number where it has none.
    pub name: String,
    /// The host that opens the connection.
    pub from: NodeIndex,
    /// The host that accepts it.
    pub to: NodeIndex,
    /// When it opens.
    pub start: Duration,
    /// What is sent.
    pub traffic: Traffic,
    /// How it is helped.
    pub schemes: Schemes,
    /// Its packets are encrypted between the two hosts, so that agents on the way cannot read them.
    pub encrypted: bool,
    /// The hop sends its datagrams once, and does not repeat what is lost.
    pub once: bool,
    /// TCP at each end point.
    pub tcp: FlowTcp,
}

/// The TCP settings of a flow's end points.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct FlowTcp {
    /// At [`Flow::from`].
    pub from: TcpSettings,
    /// At [`Flow::to`].
    pub to: TcpSettings,
    /// At a surrogate, towards the fixed host.
    pub wired: TcpSettings,
    /// At both ends of the hop, where TCP crosses it.
    pub hop: TcpSettings,
}

/// What a flow sends.
#[derive(Clone, Copy, PartialEq, Default, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Traffic {
    /// As much as will go, without end.
    #[default]
    Bulk,
    /// One file from `from` to `to`, then the end.
    File {
        /// Its length.
        size: Bytes,
    },
    /// `from` asks, `to` answers, `from` thinks, and so on.
    RequestResponse {
        /// The length of a request.
        request: Bytes,
        /// The length of an answer.
        response: Bytes,
        /// From the answer's last byte to the next request.
        #[serde(default, deserialize_with = "deserialize_duration")]
        think: Duration,
        /// How often; without end if `None`.
        count: Option<u32>,
        /// The time to think is the mean of exponential ones.
        #[serde(default)]
        exponential: bool,
    },
    /// Keystrokes of a byte each, which `to` echoes, whatever happens to those before.
    Interactive {
        /// From one keystroke to the next.
        #[serde(deserialize_with = "deserialize_duration")]
        every: Duration,
        /// How many; without end if `None`.
        count: Option<u32>,
        /// The time between them is the mean of exponential ones.
        #[serde(default)]
        exponential: bool,
    },
    /// A constant rate, now and then.
    OnOff {
        /// While it is on.
        rate: Rate,
        /// How long it is on.
        #[serde(deserialize_with = "deserialize_duration")]
        on: Duration,
        /// How long it is off.
        #[serde(deserialize_with = "deserialize_duration")]
        off: Duration,
        /// Both are means of exponential times, instead of the times themselves.
        #[serde(default)]
        exponential: bool,
    },
    /// Datagrams at a constant rate, without end.
    Udp {
        /// Bits of payload in a second.
        rate: Rate,
        /// Bytes of payload in each, 25 to 1472.
        size: Bytes,
    },
    /// One direction of a telephone call, without end: 160 bytes of G.711 every 20 ms.
    Voice,
    /// As much as will go, without end, as QUIC sends it: CUBIC, paced, with the loss detection of RFC 9002.
    QuicLike,
}

impl Traffic {
    /// Whether this comes to an end by itself.
    pub const fn ends(self) -> bool {
        match self {
            Self::File { .. } => true,
            Self::RequestResponse { count, .. } | Self::Interactive { count, .. } => {
                count.is_some()
            }
            Self::Bulk | Self::OnOff { .. } | Self::Udp { .. } | Self::Voice | Self::QuicLike => {
                false
            }
        }
    }

    /// Whether it is datagrams, without a connection.
    pub const fn is_datagrams(self) -> bool {
        matches!(self, Self::Udp { .. } | Self::Voice | Self::QuicLike)
    }
}

/// A mobile's moves from cell to cell. With one cell, these are plain disconnections (LNK-12).
#[derive(Clone, PartialEq, Debug)]
pub struct Handoff {
    /// Who moves.
    pub mobile: NodeIndex,
    /// The links that serve it, one after another and around.
    pub cells: Vec<LinkIndex>,
    /// When the first pause begins, after the run's start (LNK-8).
    pub first: Duration,
    /// How long the radio is silent each time (LNK-7). Never zero.
    pub pause: Duration,
    /// Each pause is up to this share shorter or longer, alike likely all the way.
    pub pause_spread: f64,
    /// From the start of one pause to the start of the next (LNK-9).
    pub every: Duration,
    /// Each begins up to so much later, alike likely all the way; the next is none the later.
    pub start_spread: Duration,
    /// How many; at least one.
    pub count: u32,
    /// After a pause, until packets for the mobile take the new way (MIP-8), where no Mobile IP is
    /// simulated.
    pub registration: Duration,
    /// How the wired halves of surrogates follow their mobile.
    pub mode: HandoffMode,
}

/// How a wired connection follows its mobile.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HandoffMode {
    /// It has the base's address and stays where it was made; that base passes the bytes on.
    Anchor,
    /// It has the mobile's address and moves as it is (MHP-17).
    #[default]
    Migrate,
}

impl Handoff {
    /// The moves of one run, in order of time. What differs between runs follows from `seed`.
    pub fn moves(&self, seed: Seed) -> impl Iterator<Item = Move> + '_ {
        let seed = seed.child("moves");
        let (mut starts, mut pauses) = (seed.stream("starts"), seed.stream("pauses"));
        (0..self.count).map(move |n| {
            let due = self.first.saturating_add(self.every.saturating_mul(n));
            let late = self.start_spread.mul_f64(starts.uniform());
            let pause = match self.pause_spread {
                0.0 => self.pause,
                spread => self.pause.mul_f64(1.0 + spread * (2.0 * pauses.uniform() - 1.0)),
            };
            let cell = self.cells[(n as usize + 1) % self.cells.len()];
            Move { at: due.saturating_add(late), pause, cell }
        })
    }
}

/// One of a mobile's moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// When the pause begins, after the run's start.
    pub at: Duration,
    /// How long it is.
    pub pause: Duration,
    /// The cell that serves after it.
    pub cell: LinkIndex,
}

/// SRP on the hop.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Srp {
    /// As lasthop has it: measured, paced, probed.
    #[default]
    Today,
    /// As the 1994 paper has it, with a fixed window and a timer (SRP-2..9).
    Paper(SrpWindow),
}

/// The parameters that SRP had in 1994. What is `None` is left to the hop's own defaults.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SrpWindow {
    /// Segments beyond the last in sequence that may be sent: the length of the bitmap.
    pub segments: Option<u32>,
    /// Segments in sequence that one acknowledgement answers.
    pub ack_every: Option<u32>,
    /// The timer before there is a round trip to go by.
    pub initial_rto: Option<Duration>,
    /// The shortest timer.
    pub min_rto: Option<Duration>,
    /// The longest timer.
    pub max_rto: Option<Duration>,
    /// Timers are rounded up to a multiple of this.
    pub tick: Option<Duration>,
}

/// Receiver window control (RWC-1): what the flows of one mobile share, and who wants how much.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Rwc {
    /// What is shared, in packets of each flow's own size (RWC-12).
    pub packets: u32,
    /// By flow.
    pub priorities: Vec<u32>,
    /// In order of time.
    pub changes: Vec<RwcChange>,
}

impl Rwc {
    /// What is shared if the scenario does not say: the paper's second example.
    pub const PACKETS: u32 = 32;
}

/// A flow's priority changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RwcChange {
    /// When.
    pub at: Duration,
    /// Which of [`Scenario::flows`].
    pub flow: usize,
    /// To what.
    pub priority: u32,
}

/// What is recorded besides the metrics.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Measure {
    /// Rates count from here on.
    pub from: Duration,
    /// How often windows, timers and queues are sampled; not at all if `None`.
    pub series: Option<Duration>,
    /// The bins of the rate over time (MET-9); none if `None`.
    pub bins: Option<Duration>,
    /// Every byte exists, and is compared with what was written.
    pub bytes: bool,
    /// Nodes and links where packets are captured.
    pub captures: Vec<Capture>,
}

/// A point of the path where packets are captured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Capture {
    /// All that a node sends and receives.
    Node(NodeIndex),
    /// All that a link delivers.
    Link(LinkIndex),
}
