//! A mobile that travels from cell to cell while it moves a file: the set-up of the handoff
//! experiments (EXP-Y1, EXP-Y2).
//!
//! ```text
//!            radio                campus            wired
//!  mobile ~~~~~~~~~ base 0 ------------+
//!         ~ ~ ~ ~ ~ base 1 ------------ router ------------ fixed host
//!         ~ ~ ~ ~ ~ base 2 ------------+
//! ```
//!
//! In a pause no radio carries anything; at its end the next base's does, routes have changed
//! (MIP-8: link and registration are both within the pause), and the mobile is notified.

use core::net::Ipv4Addr;

use lasthop_radio::{ConfigError, LinkConfig, RadioConfig};
use lasthop_session::{self as session, handoff};
use lasthop_tcp as tcp;
use lasthop_units::{Bytes, Duration, LinkEvent, Seed, Time};
use thiserror::Error;

use super::{BaseConfig, BaseStation, HopKind, MobileConfig, MobileHop, MobileStation};
use crate::net::host::Host;
use crate::net::traffic::{Client, Record, Service, Traffic, Work};
use crate::net::{
    Config, Context, Event, Halt, LinkId, Network, Node, NodeId, Packet, Router, SharedObserver,
    TapPoint,
};

/// The fixed host's port.
const PORT: u16 = 80;
/// The fixed host.
pub const FIXED: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// The mobile.
pub const MOBILE: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);

/// The address of base `n`.
pub const fn base_addr(n: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 2, 0, 1).to_bits() + n)
}

/// Who is helped, and how.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one in a whole run")]
pub enum Help {
    /// Nobody: one TCP from end to end.
    Nothing,
    /// The session, over this transport on the hop.
    Split(HopKind),
}

/// Which way the file goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// From the mobile to the fixed host.
    Up,
    /// To the mobile.
    Down,
}

/// A pause between two cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pause {
    /// When it begins, after the start of the transfer (LNK-8).
    pub at: Duration,
    /// How long it lasts (LNK-7).
    pub lasts: Duration,
}

/// The whole set-up.
#[derive(Clone, Debug)]
pub struct Journey {
    /// Who is helped.
    pub help: Help,
    /// The file.
    pub file: Bytes,
    /// Its direction.
    pub way: Way,
    /// Every cell's radio; its random processes are each cell's own.
    pub radio: RadioConfig,
    /// Both directions take turns on one channel, as on a half-duplex radio: the one that the
    /// radio's `up` describes.
    pub half_duplex: bool,
    /// From the router to the fixed host.
    pub wired_up: LinkConfig,
    /// From the fixed host to the router.
    pub wired_down: LinkConfig,
    /// Between each base and the router, each way.
    pub campus: LinkConfig,
    /// The pauses, in order. After each the mobile is in the next base's cell.
    pub pauses: Vec<Pause>,
    /// TCP at the mobile, if it is not helped.
    pub mobile_tcp: tcp::Config,
    /// TCP at the fixed host.
    pub fixed_tcp: tcp::Config,
    /// TCP of the wired halves; their buffers are the surrogates' (MHP-11).
    pub wired_tcp: tcp::Config,
    /// The session, at the mobile and at bases.
    pub sessions: (session::Config, session::Config),
    /// Patience of handoffs, at the mobile and at bases.
    pub handoffs: (handoff::Config, handoff::Config),
    /// When a transfer counts as one that never ends (MET-13).
    pub give_up: Duration,
}

/// What came of it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// From the start to the last byte at the receiver; none if it did not come (MET-1, MET-13).
    pub received: Option<Duration>,
    /// Bytes that arrived.
    pub bytes: Bytes,
    /// The session broke.
    pub broken: bool,
    /// Resets that the fixed host or the mobile sent.
    pub resets: u64,
    /// Connections that the fixed host accepted: one, if it noticed nothing (MHP-24).
    pub accepted: u64,
}

/// How far a transfer is at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sample {
    /// The congestion window of the sending TCP on the hop, or of the only one; what SRP or
    /// Mobile TCP has in flight.
    pub cwnd: Bytes,
    /// Bytes that the sending application wrote.
    pub sent: Bytes,
    /// Bytes that the receiving application has.
    pub delivered: Bytes,
}

/// A journey that cannot be made.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum JourneyError {
    /// A link's configuration describes no link.
    #[error("{0}")]
    Link(#[from] ConfigError),
    /// A machine misbehaved.
    #[error("{0}")]
    Halt(#[from] Halt),
}

/// A node of the set-up.
pub enum JourneyNode {
    /// A fixed host, or a mobile that is not helped.
    Host(Box<Host<Traffic>>),
    /// A mobile with a session.
    Mobile(Box<MobileStation<Traffic>>),
    /// A base with surrogates.
    Base(Box<BaseStation>),
    /// A base without, and the router.
    Router(Router),
}

/// The same of whichever node it is.
macro_rules! each {
    ($self:ident, $node:ident => $call:expr) => {
        match $self {
            Self::Host($node) => $call,
            Self::Mobile($node) => $call,
            Self::Base($node) => $call,
            Self::Router($node) => $call,
        }
    };
}

impl Node for JourneyNode {
    fn handle_packet(&mut self, ctx: &mut Context<'_>, link: LinkId, packet: Packet) {
        each!(self, node => node.handle_packet(ctx, link, packet));
    }

    fn next_timeout(&self) -> Option<Time> {
        each!(self, node => node.next_timeout())
    }

    fn handle_timeout(&mut self, ctx: &mut Context<'_>) {
        each!(self, node => node.handle_timeout(ctx));
    }

    fn handle_link_event(&mut self, ctx: &mut Context<'_>, link: LinkId, event: LinkEvent) {
        each!(self, node => node.handle_link_event(ctx, link, event));
    }

    fn handle_token(&mut self, ctx: &mut Context<'_>, token: u64) {
        each!(self, node => node.handle_token(ctx, token));
    }
}

/// One cell's radio.
struct Cell {
    /// What the base sends into, and the mobile.
    down: LinkId,
    up: LinkId,
    /// What is silent between cells.
    air: [LinkId; 2],
}

/// A journey under way.
pub struct Run {
    network: Network<JourneyNode>,
    mobile: NodeId,
    fixed: NodeId,
    cells: Vec<Cell>,
    give_up: Duration,
    way: Way,
}

impl Journey {
    /// Makes the journey with these random numbers.
    ///
    /// # Errors
    ///
    /// A link's configuration is none, or a machine misbehaves.
    pub fn run(&self, seed: Seed) -> Result<Outcome, JourneyError> {
        let mut run = self.start(seed)?;
        run.finish()?;
        Ok(run.outcome())
    }

    /// Sets everything up; nothing has happened yet.
    ///
    /// # Errors
    ///
    /// A link's configuration is none.
    pub fn start(&self, seed: Seed) -> Result<Run, JourneyError> {
        let mut network = Network::new(Config::new(seed));
        let fixed = network.add_node(self.fixed_host(seed));
        let router = network.add_node(JourneyNode::Router(Router::default()));
        let mobile = network.add_node(self.mobile(seed));
        let forth = network.add_link(router, fixed, &self.wired_up)?;
        network.set_route(router, FIXED, Some(forth));
        let back = network.add_link(fixed, router, &self.wired_down)?;
        network.set_default_route(fixed, Some(back));
        let mut cells = Vec::new();
        let mut towards = Vec::new();
        for n in 0..=self.pauses.len() as u32 {
            let base = network.add_node(self.base(n, seed));
            let cell = self.cell(&mut network, base, mobile)?;
            let Cell { down, up, .. } = cell;
            let out = network.add_link(base, router, &self.campus)?;
            let back = network.add_link(router, base, &self.campus)?;
            towards.push(back);
            network.set_default_route(base, Some(out));
            network.set_route(base, MOBILE, Some(down));
            network.set_route(router, base_addr(n), Some(back));
            network.set_route(mobile, base_addr(n), Some(up));
            cells.push(cell);
        }
        let mut run = Run { network, mobile, fixed, cells, give_up: self.give_up, way: self.way };
        run.enter(Time::ZERO, 0, router, &towards);
        for (n, pause) in self.pauses.iter().enumerate() {
            run.leave(Time::ZERO + pause.at, n);
            run.enter(Time::ZERO + pause.at + pause.lasts, n + 1, router, &towards);
        }
        for n in 1..run.cells.len() {
            run.leave(Time::ZERO, n);
        }
        Ok(run)
    }

    /// The radio between a base and the mobile. A channel that both take turns on is one link
    /// between two points of the air, which everything passes.
    fn cell(
        &self,
        network: &mut Network<JourneyNode>,
        base: NodeId,
        mobile: NodeId,
    ) -> Result<Cell, ConfigError> {
        if !self.half_duplex {
            let [down, up] = network.add_radio(base, mobile, &self.radio)?;
            return Ok(Cell { down, up, air: [down, up] });
        }
        let near = LinkConfig { mtu: self.radio.up.mtu, ..LinkConfig::default() };
        let [before, after] =
            [(); 2].map(|()| network.add_node(JourneyNode::Router(Router::bridge())));
        let up = network.add_link(mobile, before, &near)?;
        let down = network.add_link(base, before, &near)?;
        let channel = network.add_link(before, after, &self.radio.up)?;
        let to_mobile = network.add_link(after, mobile, &near)?;
        let to_base = network.add_link(after, base, &near)?;
        network.set_default_route(before, Some(channel));
        network.set_default_route(after, Some(to_base));
        network.set_route(after, MOBILE, Some(to_mobile));
        Ok(Cell { down, up, air: [channel, channel] })
    }

    fn traffic(&self, seed: Seed) -> Traffic {
        let work = match self.way {
            Way::Up => Work::File(self.file),
            Way::Down => Work::Download,
        };
        let config = self.mobile_tcp;
        Traffic::new(seed.child("mobile")).start(Client {
            at: Time::ZERO,
            dst: (FIXED, PORT),
            config,
            work,
        })
    }

    fn fixed_host(&self, seed: Seed) -> JourneyNode {
        let service = match self.way {
            Way::Up => Service::Discard,
            Way::Down => Service::Serve(self.file),
        };
        let traffic = Traffic::new(seed.child("fixed")).serve(PORT, self.fixed_tcp, service);
        JourneyNode::Host(Box::new(Host::new(FIXED, seed.child("fixed host"), traffic)))
    }

    fn mobile(&self, seed: Seed) -> JourneyNode {
        let traffic = self.traffic(seed);
        let own = seed.child("mobile host");
        match &self.help {
            Help::Nothing => JourneyNode::Host(Box::new(Host::new(MOBILE, own, traffic))),
            Help::Split(hop) => {
                let config = MobileConfig {
                    hop: hop.clone(),
                    session: self.sessions.0,
                    handoff: self.handoffs.0,
                };
                let mobile = MobileStation::new(MOBILE, base_addr(0), config, own, traffic);
                JourneyNode::Mobile(Box::new(mobile))
            }
        }
    }

    fn base(&self, n: u32, seed: Seed) -> JourneyNode {
        match &self.help {
            Help::Nothing => JourneyNode::Router(Router::new([base_addr(n)])),
            Help::Split(hop) => {
                let config = BaseConfig {
                    hop: hop.clone(),
                    wired: self.wired_tcp,
                    session: self.sessions.1,
                    handoff: self.handoffs.1,
                    anchors: false,
                };
                let seed = seed.child(&format!("base {n}"));
                JourneyNode::Base(Box::new(BaseStation::new(base_addr(n), config, seed)))
            }
        }
    }
}

impl Run {
    fn leave(&mut self, at: Time, cell: usize) {
        for link in self.cells[cell].air {
            self.network.schedule(at, Event::LinkDown(link));
        }
    }

    fn enter(&mut self, at: Time, cell: usize, router: NodeId, towards: &[LinkId]) {
        for link in self.cells[cell].air {
            self.network.schedule(at, Event::LinkUp(link));
        }
        let up = Some(self.cells[cell].up);
        let mobile = self.mobile;
        self.network.schedule(at, Event::DefaultRoute { node: mobile, link: up });
        let route = Event::Route { node: router, dst: MOBILE, link: Some(towards[cell]) };
        self.network.schedule(at, route);
        if cell > 0 {
            let token = u64::from(base_addr(cell as u32).to_bits());
            self.network.schedule(at, Event::Token { node: mobile, token });
        }
    }

    /// Lets `observer` see every packet at the fixed host.
    pub fn tap_fixed(&mut self, observer: &SharedObserver) {
        self.network.tap(TapPoint::Node(self.fixed), observer.clone());
    }

    /// Lets everything up to `at` happen.
    ///
    /// # Errors
    ///
    /// A machine misbehaves.
    pub fn run_until(&mut self, at: Time) -> Result<(), Halt> {
        self.network.run_until(at)
    }

    /// The transfer is over, well or not.
    pub fn is_over(&self) -> bool {
        let receiver = self.receiver();
        receiver.is_some_and(|r| r.peer_finished.is_some() || r.end.is_some()) || self.broken()
    }

    /// Runs to the end of the transfer, or until it is given up.
    ///
    /// # Errors
    ///
    /// A machine misbehaves.
    pub fn finish(&mut self) -> Result<(), Halt> {
        let end = Time::ZERO + self.give_up;
        while !self.is_over() && self.network.now() < end {
            let next = (self.network.now() + Duration::from_secs(1)).min(end);
            self.network.run_until(next)?;
        }
        Ok(())
    }

    fn traffic(&self, node: NodeId) -> Option<&Traffic> {
        match self.network.node(node) {
            JourneyNode::Host(host) => Some(host.app()),
            JourneyNode::Mobile(mobile) => Some(mobile.app()),
            JourneyNode::Base(_) | JourneyNode::Router(_) => None,
        }
    }

    fn record(&self, node: NodeId) -> Option<&Record> {
        self.traffic(node)?.records().next()
    }

    fn receiver(&self) -> Option<&Record> {
        match self.way {
            Way::Up => self.record(self.fixed),
            Way::Down => self.record(self.mobile),
        }
    }

    fn sender(&self) -> Option<&Record> {
        match self.way {
            Way::Up => self.record(self.mobile),
            Way::Down => self.record(self.fixed),
        }
    }

    fn broken(&self) -> bool {
        match self.network.node(self.mobile) {
            JourneyNode::Mobile(mobile) => mobile.broken().is_some(),
            _ => false,
        }
    }

    /// How far the transfer is.
    pub fn sample(&self) -> Sample {
        Sample {
            cwnd: self.cwnd().unwrap_or(Bytes::ZERO),
            sent: self.sender().map_or(Bytes::ZERO, |r| r.written),
            delivered: self.receiver().map_or(Bytes::ZERO, |r| r.received),
        }
    }

    fn cwnd(&self) -> Option<Bytes> {
        match (self.network.node(self.mobile), self.way) {
            (JourneyNode::Mobile(mobile), Way::Up) => match mobile.hop() {
                MobileHop::Tcp(streams) => {
                    streams.sockets().last().map(|s| s.connection().probe().cwnd)
                }
                MobileHop::Srp(srp) => Some(srp.stats().inflight),
                MobileHop::MobileTcp(mobile) => Some(mobile.stats().inflight),
            },
            (JourneyNode::Host(host), Way::Up) => {
                host.connections().next().map(|(_, c)| c.probe().cwnd)
            }
            (_, Way::Down) => match self.network.node(self.fixed) {
                JourneyNode::Host(host) => host.connections().next().map(|(_, c)| c.probe().cwnd),
                _ => None,
            },
            (JourneyNode::Base(_) | JourneyNode::Router(_), Way::Up) => None,
        }
    }

    /// What came of it so far.
    pub fn outcome(&self) -> Outcome {
        let receiver = self.receiver();
        // The clock starts when the mobile opens the connection.
        let finished = receiver.filter(|r| r.peer_finished.is_some());
        let host = |node| match self.network.node(node) {
            JourneyNode::Host(host) => *host.stats(),
            _ => Default::default(),
        };
        Outcome {
            received: finished.and_then(|r| r.last_byte).map(|at| at.since(Time::ZERO)),
            bytes: receiver.map_or(Bytes::ZERO, |r| r.received),
            broken: self.broken(),
            resets: host(self.fixed).resets_sent + host(self.mobile).resets_sent,
            accepted: host(self.fixed).accepted,
        }
    }
}
