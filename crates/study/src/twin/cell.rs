//! What a cell is, as plain data.

use std::fmt;

use lasthop_radio::{Errors, LinkConfig, Loss, Pacing, QueueLimit, RadioConfig};
use lasthop_scenario::{Handoff, HandoffMode, LinkIndex, NodeIndex};
use lasthop_units::{Duration, Placement, Rate, Scheme, Seed};

/// One cell: a condition, a scheme and a sender. One bulk download from the fixed host to the mobile
/// crosses it, and nothing else.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cell {
    /// What befalls the path.
    pub condition: Condition,
    /// What helps.
    pub scheme: Scheme,
    /// Whose TCP sends.
    pub sender: Sender,
    /// How long the download is watched, from the moment that it connects.
    pub duration: Duration,
}

/// What befalls the path. All but the last three are those of the league's one hop
/// (`papers/league/hop.toml`), [`TwoHops`](Self::TwoHops) is `papers/league/train.toml`'s.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Condition {
    /// Nothing.
    Clean,
    /// Each packet is lost by itself, in both directions of the hop.
    Loss {
        /// How many of a thousand.
        per_mille: u16,
    },
    /// Fades of 100 ms on average in a tenth of the time, both directions at once.
    Fades,
    /// The hop carries nothing for a second in each ten.
    Gaps {
        /// The mobile's edge hears of each 250 ms ahead.
        told: bool,
    },
    /// A mobile router between base and mobile; each of the two hops loses 5 %.
    TwoHops,
    /// The same, where only the hop from the base to the mobile router loses.
    FirstHop,
    /// A hop of 20 Mbit/s with a round trip of 40 ms that loses 5 %, behind a wire of 50 ms.
    BigRadio,
}

/// Whose TCP sends, and what both ends offer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Sender {
    /// Reno's window; neither selective acknowledgements nor time stamps.
    Reno,
    /// CUBIC's window, selective acknowledgements and time stamps.
    Cubic,
}

/// A gap of the hop, after the download's start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outage {
    /// When it begins.
    pub at: Duration,
    /// How long it is.
    pub lasting: Duration,
    /// How long before it the mobile's edge is told; never if none. Whoever stands at the edge or at
    /// the base hears at once that the hop is down, and that it is up.
    pub lead: Option<Duration>,
}

/// The wire of the league, and the hops.
const WIRE: Line = Line { mbps: 100, delay: Duration::from_millis(20), queue: 200 };
const HOP: Line = Line { mbps: 2, delay: Duration::from_millis(20), queue: 25 };
const WLAN: Line = Line { mbps: 11, delay: Duration::from_millis(5), queue: 50 };
/// The lab's own wire and radio.
const BIG_WIRE: Line = Line { mbps: 100, delay: Duration::from_millis(25), queue: 1000 };
const BIG_HOP: Line = Line { mbps: 20, delay: Duration::from_millis(20), queue: 100 };

/// Which node and which link a cell with gaps is about.
const MOBILE: usize = 2;
const RADIO: usize = 1;

/// Where marks begin, for those who look at them.
const MARK: QueueLimit = QueueLimit::Packets(10);
/// The longest datagram of every link.
const MTU: u32 = 1500;
/// How long before a gap the mobile's edge hears of it: a round trip with the queue full (FRZ-1).
const LEAD: Duration = Duration::from_millis(250);

/// One direction of a link that loses nothing.
#[derive(Clone, Copy)]
struct Line {
    mbps: u64,
    delay: Duration,
    queue: u32,
}

impl Line {
    fn config(self) -> LinkConfig {
        LinkConfig {
            pacing: Pacing::Rate(Rate::from_mbps(self.mbps)),
            delay: self.delay,
            queue: QueueLimit::Packets(self.queue),
            mtu: MTU,
            ..LinkConfig::default()
        }
    }
}

impl Cell {
    /// What the flows of a mobile share under [`Scheme::Rwc`], and the papers' sender's window, in
    /// packets: as many as the league's path and its queue hold. The agent is told the same.
    pub const WINDOW: u32 = 32;

    /// The link between fixed host (`base` in the radio's words) and base (`mobile`): `down` is what
    /// the download takes.
    pub fn wire(&self) -> RadioConfig {
        RadioConfig::both(self.lines().0.config())
    }

    /// The hop between base and mobile, or mobile router; `down` is what the download takes. It
    /// marks where [`ecn`](Self::ecn) is offered.
    pub fn radio(&self) -> RadioConfig {
        let mut hop = RadioConfig::both(LinkConfig {
            ecn_mark: Some(MARK).filter(|_| self.ecn()),
            losses: self.condition.errors().map(Loss::lose).into_iter().collect(),
            ..self.lines().1.config()
        });
        hop.shared_fades = self.condition == Condition::Fades;
        hop
    }

    /// The second hop, between mobile router and mobile, where there is one.
    pub fn wlan(&self) -> Option<RadioConfig> {
        let losses = match self.condition {
            Condition::TwoHops => self.condition.errors().map(Loss::lose).into_iter().collect(),
            Condition::FirstHop => Vec::new(),
            _ => return None,
        };
        Some(RadioConfig::both(LinkConfig { losses, ..WLAN.config() }))
    }

    /// The widest window that the sender gets, in packets: the league's of the papers' sender, which
    /// path and queue hold. CUBIC has none, and nobody has one on the big radio.
    pub fn window(&self) -> Option<u32> {
        match (self.sender, self.condition) {
            (_, Condition::BigRadio) | (Sender::Cubic, _) => None,
            (Sender::Reno, _) => Some(Self::WINDOW),
        }
    }

    /// Both ends offer explicit congestion notification (CC-2); otherwise neither does.
    pub fn ecn(&self) -> bool {
        self.scheme == Scheme::CongestionCoherence
    }

    /// The least round trip of a small packet: what all links delay it.
    pub fn round_trip(&self) -> Duration {
        let (wire, hop) = self.lines();
        let wlan = self.wlan().map_or(Duration::ZERO, |wlan| wlan.down.delay);
        (wire.delay + hop.delay + wlan) * 2
    }

    /// The gaps of the run of this seed, in order of time: the same in both worlds. Each is over
    /// when the download is.
    pub fn outages(&self, seed: Seed) -> Vec<Outage> {
        let lead = Some(LEAD).filter(|_| self.condition == Condition::Gaps { told: true });
        let moves = self.handoff().into_iter().flat_map(|h| h.moves(seed).collect::<Vec<_>>());
        moves.map(|gap| Outage { at: gap.at, lasting: gap.pause, lead }).collect()
    }

    /// The agents that help, from the fixed host to the mobile.
    pub fn agents(&self) -> Vec<Placement> {
        let mut agents = self.scheme.placements();
        if self.scheme == Scheme::Rwc {
            agents.iter_mut().for_each(|agent| agent.args.extend(["--window", "32"]));
        }
        agents
    }

    /// Wire and hop.
    const fn lines(&self) -> (Line, Line) {
        match self.condition {
            Condition::BigRadio => (BIG_WIRE, BIG_HOP),
            _ => (WIRE, HOP),
        }
    }

    /// The gaps as the scenario has them: as many as are over in time.
    pub(super) fn handoff(&self) -> Option<Handoff> {
        let Condition::Gaps { .. } = self.condition else { return None };
        let (first, spread) = (Duration::from_secs(5), Duration::from_secs(5));
        let (pause, every) = (Duration::from_secs(1), Duration::from_secs(10));
        let room = self.duration.checked_sub(first + spread + pause)?;
        let count = 1 + u32::try_from(room.as_nanos() / every.as_nanos()).unwrap_or(u32::MAX - 1);
        Some(Handoff {
            mobile: NodeIndex(MOBILE),
            cells: vec![LinkIndex(RADIO)],
            first,
            pause,
            pause_spread: 0.0,
            every,
            start_spread: spread,
            count,
            registration: Duration::ZERO,
            mode: HandoffMode::Migrate,
        })
    }
}

impl Condition {
    /// What each losing hop does to packets.
    fn errors(self) -> Option<Errors> {
        match self {
            Self::Clean | Self::Gaps { .. } => None,
            Self::Loss { per_mille } => Some(Errors::Uniform(f64::from(per_mille) / 1000.0)),
            Self::Fades => Some(Errors::Fade { mean: Duration::from_millis(100), share: 0.1 }),
            Self::TwoHops | Self::FirstHop | Self::BigRadio => Some(Errors::Uniform(0.05)),
        }
    }

    /// Whether a mobile router stands between base and mobile.
    pub const fn has_router(self) -> bool {
        matches!(self, Self::TwoHops | Self::FirstHop)
    }
}

impl Sender {
    /// The kernel's name of its congestion control.
    pub const fn congestion(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
        }
    }

    /// Both ends offer selective acknowledgements (`net.ipv4.tcp_sack`).
    pub const fn sack(self) -> bool {
        matches!(self, Self::Cubic)
    }

    /// Both ends offer time stamps (`net.ipv4.tcp_timestamps`).
    pub const fn timestamps(self) -> bool {
        matches!(self, Self::Cubic)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}, {}, {}", self.condition, self.scheme, self.sender))
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Clean => "clean",
            Self::Loss { per_mille } => {
                return f.pad(&format!("loss {} %", f64::from(*per_mille) / 10.0));
            }
            Self::Fades => "fades",
            Self::Gaps { told: true } => "gaps",
            Self::Gaps { told: false } => "gaps untold",
            Self::TwoHops => "two hops",
            Self::FirstHop => "first hop",
            Self::BigRadio => "20 Mbit/s, 5 %",
        };
        f.pad(name)
    }
}

impl fmt::Display for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.congestion())
    }
}
