//! Mobiles, bases and a fixed host in a network, with applications that check every byte.
//!
//! ```text
//!  mobile 0 ~~~ base 0 ---+
//!           ~~~ base 1 ---+--- router --- fixed host
//!  mobile 1 ~~~ ...    ---+
//! ```

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::rc::Rc;

use lasthop_hop::{Discipline, HopConfig, Window, mobile_tcp};
use lasthop_radio::{LinkConfig, Loss, Pacing, RadioConfig};
use lasthop_session::{Config as SessionConfig, handoff};
use lasthop_sim::Content as Bytestream;
use lasthop_sim::net::host::{App, Content, Ending, Event as Told, FlowId, Host, Io};
use lasthop_sim::net::{
    Body, Config, Context, Datagram, Event, LinkId, Network, Node, NodeId, Observer, Packet,
    Payload, Router, Sight, TapPoint,
};
use lasthop_sim::schemes::{
    BaseConfig, BaseNotice, BaseStation, Carriage, HOP_PORT, HopKind, LinkBeside, MobileConfig,
    MobileStation, SRP_PORT,
};
use lasthop_tcp as tcp;
use lasthop_units::{Bytes, Duration, LinkEvent, Rate, Seed, Time};
use lasthop_wire::tcp::{Flags, Segment};

pub(crate) const FIXED: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

pub(crate) const fn mobile_addr(n: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 1, 0, 1).to_bits() + n as u32)
}

pub(crate) const fn base_addr(n: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 2, 0, 1).to_bits() + n as u32)
}

/// Where mobile `n` is by its second link to a base.
fn beside_addr(n: usize, base: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 3, base as u8, 1).to_bits() + n as u32)
}

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) fn at(ms: u64) -> Time {
    Time::from_millis(ms)
}

pub(crate) fn link(rate: Rate, delay: Duration) -> LinkConfig {
    LinkConfig { pacing: Pacing::Rate(rate), delay, ..LinkConfig::default() }
}

/// TCP for a radio of 256-byte datagrams.
pub(crate) fn hop_tcp() -> tcp::Config {
    tcp::Config { mss: 216, ..tcp::Config::bsd_1990s() }
}

pub(crate) fn srp_1994() -> HopKind {
    let memory = Bytes::from_kib(16);
    HopKind::Srp(HopConfig {
        datagram_base: Bytes::new(228),
        datagram_max: Bytes::new(228),
        stream_window: memory,
        stream_memory: memory,
        association_window: memory,
        association_memory: memory,
        discipline: Discipline::Windowed(Window::default()),
        ..HopConfig::default()
    })
}

pub(crate) fn srp_today() -> HopKind {
    HopKind::Srp(HopConfig {
        datagram_base: Bytes::new(228),
        datagram_max: Bytes::new(228),
        stream_window: Bytes::from_kib(16),
        ..HopConfig::default()
    })
}

/// The paper's, for frames of 256 bytes.
pub(crate) fn mobile_tcp() -> HopKind {
    HopKind::MobileTcp(mobile_tcp::Config {
        max_packet: Bytes::new(240),
        ..mobile_tcp::Config::default()
    })
}

pub(crate) fn schemes() -> [HopKind; 5] {
    [HopKind::SplitTcp(hop_tcp()), HopKind::ITcp(hop_tcp()), srp_1994(), srp_today(), mobile_tcp()]
}

/// What two applications do with a connection to a port: each sends so much, then ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deal {
    pub(crate) port: u16,
    /// From whoever opens to whoever listens.
    pub(crate) forth: u64,
    /// The other way.
    pub(crate) back: u64,
    /// Nobody reads before.
    pub(crate) reads_from: Time,
}

impl Deal {
    pub(crate) fn new(port: u16, forth: u64, back: u64) -> Self {
        Self { port, forth, back, reads_from: Time::ZERO }
    }
}

/// What came of a connection at one end.
#[derive(Clone, Debug)]
pub(crate) struct Conn {
    pub(crate) deal: Deal,
    pub(crate) opener: bool,
    pub(crate) connected: Option<Time>,
    pub(crate) wrote: u64,
    pub(crate) read: u64,
    /// A byte that is not what was sent.
    pub(crate) wrong: Option<u64>,
    pub(crate) last_byte: Option<Time>,
    pub(crate) peer_finished: Option<Time>,
    pub(crate) closed: Option<(Time, Ending)>,
}

impl Conn {
    fn wants(&self) -> u64 {
        if self.opener { self.deal.back } else { self.deal.forth }
    }

    fn sends(&self) -> u64 {
        if self.opener { self.deal.forth } else { self.deal.back }
    }

    /// All came, and the end behind it.
    pub(crate) fn is_whole(&self) -> bool {
        self.read == self.wants() && self.peer_finished.is_some()
    }

    /// What came is what was sent, and no end came before the end.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.wrong {
            Some(offset) => Err(format!("byte {offset} is wrong: {self:?}")),
            None if self.peer_finished.is_some() && self.read != self.wants() => {
                Err(format!("a stream that was cut looks ended: {self:?}"))
            }
            None if self.read > self.wants() => Err(format!("too much: {self:?}")),
            None => Ok(()),
        }
    }
}

/// What an application is to do, written before the network runs.
#[derive(Default)]
struct Script {
    opens: Vec<(Time, Ipv4Addr, Deal)>,
    listens: Vec<Deal>,
}

/// An application that opens, accepts, sends and checks.
#[derive(Default)]
pub(crate) struct Peer {
    script: Rc<RefCell<Script>>,
    listening: bool,
    config: tcp::Config,
    live: BTreeMap<FlowId, usize>,
    pub(crate) conns: Vec<Conn>,
    /// Openings that were refused at once.
    pub(crate) unopened: u32,
    next: Option<Time>,
}

fn bytes(deal: &Deal, forth: bool) -> Bytestream {
    Bytestream::new(Seed::from_u64(7), &format!("port {} {forth}", deal.port))
}

impl Peer {
    pub(crate) fn new(config: tcp::Config) -> Self {
        Self { config, next: Some(Time::ZERO), ..Self::default() }
    }

    fn arm(&mut self, at: Time) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    fn begin(&mut self, now: Time, flow: FlowId, deal: Deal, opener: bool) {
        let conn = Conn {
            deal,
            opener,
            connected: None,
            wrote: 0,
            read: 0,
            wrong: None,
            last_byte: None,
            peer_finished: None,
            closed: None,
        };
        self.live.insert(flow, self.conns.len());
        self.conns.push(conn);
        if deal.reads_from > now {
            self.arm(deal.reads_from);
        }
    }

    fn pump(&mut self, io: &mut Io<'_, '_>, flow: FlowId) {
        let Some(conn) = self.live.get(&flow).map(|n| &mut self.conns[*n]) else { return };
        let content = bytes(&conn.deal, conn.opener);
        let mut piece = [0; 1000];
        while conn.wrote < conn.sends() {
            let len = (conn.sends() - conn.wrote).min(1000) as usize;
            content.fill(conn.wrote, &mut piece[..len]);
            let taken = io.write_bytes(flow, &piece[..len]);
            conn.wrote += taken as u64;
            if taken < len {
                return;
            }
        }
        io.finish(flow);
    }

    fn read(&mut self, io: &mut Io<'_, '_>, flow: FlowId) {
        let Some(conn) = self.live.get(&flow).map(|n| &mut self.conns[*n]) else { return };
        let content = bytes(&conn.deal, !conn.opener);
        while io.now() >= conn.deal.reads_from {
            let piece = io.received(flow);
            if piece.is_empty() {
                break;
            }
            let len = piece.len();
            if let Some(offset) = content.first_difference(conn.read, piece) {
                conn.wrong.get_or_insert(offset);
            }
            conn.read += len as u64;
            conn.last_byte = Some(io.now());
            io.consume(flow, Bytes::from(len));
        }
    }
}

impl App for Peer {
    fn handle_event(&mut self, io: &mut Io<'_, '_>, flow: FlowId, event: Told) {
        let now = io.now();
        match event {
            Told::Accepted { port } => {
                let deal = self.script.borrow().listens.iter().find(|d| d.port == port).copied();
                self.begin(now, flow, deal.expect("a port that nobody listens to"), false);
            }
            Told::Connected => {
                if let Some(n) = self.live.get(&flow) {
                    self.conns[*n].connected = Some(now);
                }
                self.pump(io, flow);
            }
            Told::Readable => self.read(io, flow),
            Told::Writable => self.pump(io, flow),
            Told::PeerFinished => {
                // A host forgets a connection that is over with what was not read of it.
                if let Some(n) = self.live.get(&flow) {
                    self.conns[*n].deal.reads_from = Time::ZERO;
                }
                self.read(io, flow);
                if let Some(n) = self.live.get(&flow) {
                    self.conns[*n].peer_finished = Some(now);
                }
            }
            Told::Finished => {}
            Told::Closed(ending) => {
                if let Some(n) = self.live.remove(&flow) {
                    self.conns[n].closed = Some((now, ending));
                }
            }
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        self.next
    }

    fn handle_timeout(&mut self, io: &mut Io<'_, '_>) {
        let now = io.now();
        self.next = None;
        if !self.listening {
            self.listening = true;
            for deal in &self.script.borrow().listens {
                io.listen(deal.port, self.config, Content::Real);
            }
        }
        let opens = self.script.borrow().opens.clone();
        for (at, dst, deal) in opens {
            if at == now {
                match io.connect(dst, deal.port, self.config, Content::Real) {
                    Some(flow) => self.begin(now, flow, deal, true),
                    None => self.unopened += 1,
                }
            } else if at > now {
                self.arm(at);
            }
        }
        let flows: Vec<FlowId> = self.live.keys().copied().collect();
        for flow in flows {
            self.read(io, flow);
            let from = self.conns[self.live[&flow]].deal.reads_from;
            if from > now {
                self.arm(from);
            }
        }
    }
}

pub(crate) enum Any {
    Fixed(Box<Host<Peer>>),
    Mobile(Box<MobileStation<Peer>>),
    Base(Box<BaseStation>),
    Router(Router),
}

impl Node for Any {
    fn handle_packet(&mut self, ctx: &mut Context<'_>, link: LinkId, packet: Packet) {
        match self {
            Self::Fixed(n) => n.handle_packet(ctx, link, packet),
            Self::Mobile(n) => n.handle_packet(ctx, link, packet),
            Self::Base(n) => n.handle_packet(ctx, link, packet),
            Self::Router(n) => n.handle_packet(ctx, link, packet),
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        match self {
            Self::Fixed(n) => n.next_timeout(),
            Self::Mobile(n) => n.next_timeout(),
            Self::Base(n) => n.next_timeout(),
            Self::Router(n) => n.next_timeout(),
        }
    }

    fn handle_timeout(&mut self, ctx: &mut Context<'_>) {
        match self {
            Self::Fixed(n) => n.handle_timeout(ctx),
            Self::Mobile(n) => n.handle_timeout(ctx),
            Self::Base(n) => n.handle_timeout(ctx),
            Self::Router(n) => n.handle_timeout(ctx),
        }
    }

    fn handle_link_event(&mut self, ctx: &mut Context<'_>, link: LinkId, event: LinkEvent) {
        if let Self::Mobile(n) = self {
            n.handle_link_event(ctx, link, event);
        }
    }

    fn handle_token(&mut self, ctx: &mut Context<'_>, token: u64) {
        if let Self::Mobile(n) = self {
            n.handle_token(ctx, token);
        }
    }
}

/// What a world is made of.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) hop: HopKind,
    pub(crate) bases: usize,
    pub(crate) mobiles: usize,
    pub(crate) radio: LinkConfig,
    pub(crate) campus: LinkConfig,
    pub(crate) wired: LinkConfig,
    pub(crate) wired_tcp: tcp::Config,
    pub(crate) fixed_tcp: tcp::Config,
    pub(crate) session: (SessionConfig, SessionConfig),
    /// Wired halves stay when their mobile leaves.
    pub(crate) anchors: bool,
    /// Each mobile has a second link to each base, wherever it is.
    pub(crate) beside: Option<LinkConfig>,
    pub(crate) seed: u64,
}

impl Plan {
    pub(crate) fn new(hop: HopKind) -> Self {
        let mut radio = link(Rate::from_kbps(200), ms(5));
        radio.mtu = 256;
        Self {
            hop,
            bases: 2,
            mobiles: 1,
            radio,
            campus: link(Rate::from_mbps(10), ms(1)),
            wired: link(Rate::from_kbps(1544), ms(20)),
            wired_tcp: tcp::Config::bsd_1990s(),
            fixed_tcp: tcp::Config::bsd_1990s(),
            session: (SessionConfig::mobile(), SessionConfig::base()),
            anchors: false,
            beside: None,
            seed: 1,
        }
    }

    pub(crate) fn build(&self) -> Site {
        let seed = Seed::from_u64(self.seed);
        let mut network = Network::new(Config::new(seed));
        let peer = Peer::new(self.fixed_tcp);
        let host = Host::new(FIXED, seed.child("fixed"), peer);
        let fixed = network.add_node(Any::Fixed(Box::new(host)));
        let router = network.add_node(Any::Router(Router::default()));
        let forth = network.add_link(router, fixed, &self.wired).unwrap();
        let back = network.add_link(fixed, router, &self.wired).unwrap();
        network.set_route(router, FIXED, Some(forth));
        network.set_default_route(fixed, Some(back));
        let mut world = Site {
            network,
            fixed,
            router,
            bases: Vec::new(),
            mobiles: Vec::new(),
            towards: Vec::new(),
            campus: Vec::new(),
            radios: Vec::new(),
            beside: Vec::new(),
            cells: Vec::new(),
        };
        for n in 0..self.bases {
            self.add_base(&mut world, n, seed);
        }
        for n in 0..self.mobiles {
            self.add_mobile(&mut world, n, seed);
        }
        world
    }

    fn station(&self, n: usize, seed: Seed) -> BaseStation {
        let config = BaseConfig {
            hop: self.hop.clone(),
            carriage: Carriage::default(),
            wired: self.wired_tcp,
            session: self.session.1,
            handoff: handoff::Config::base(),
            anchors: self.anchors,
        };
        BaseStation::new(base_addr(n), config, seed.child(&format!("base {n}")))
    }

    fn add_base(&self, world: &mut Site, n: usize, seed: Seed) {
        let mut station = self.station(n, seed);
        let cells = (0..self.mobiles).map(|mobile| (mobile, mobile.min(self.bases - 1)));
        cells.filter(|(_, cell)| *cell == n).for_each(|(m, _)| station.serve(mobile_addr(m)));
        let base = world.network.add_node(Any::Base(Box::new(station)));
        let out = world.network.add_link(base, world.router, &self.campus).unwrap();
        let back = world.network.add_link(world.router, base, &self.campus).unwrap();
        world.network.set_default_route(base, Some(out));
        world.network.set_route(world.router, base_addr(n), Some(back));
        world.bases.push(base);
        world.towards.push(back);
        world.campus.extend([out, back]);
    }

    /// Mobile `n` begins in the cell of base `n`, or of the last.
    fn add_mobile(&self, world: &mut Site, n: usize, seed: Seed) {
        let cell = n.min(self.bases - 1);
        let config = MobileConfig {
            hop: self.hop.clone(),
            carriage: Carriage::default(),
            session: self.session.0,
            handoff: handoff::Config::mobile(),
        };
        let addr = mobile_addr(n);
        let own = seed.child(&format!("mobile {n}"));
        let peer = Peer::new(self.fixed_tcp);
        let station = MobileStation::new(addr, base_addr(cell), config, own, peer);
        let mobile = world.network.add_node(Any::Mobile(Box::new(station)));
        let mut radios = Vec::new();
        for (b, base) in world.bases.clone().into_iter().enumerate() {
            let radio = RadioConfig::both(self.radio.clone());
            let [down, up] = world.network.add_radio(base, mobile, &radio).unwrap();
            world.network.set_route(mobile, base_addr(b), Some(up));
            radios.push([down, up]);
            if b == cell {
                world.network.set_route(base, addr, Some(down));
            } else {
                for link in [down, up] {
                    world.network.schedule(Time::ZERO, Event::LinkDown(link));
                }
            }
        }
        world.network.set_default_route(mobile, Some(radios[cell][1]));
        world.network.set_route(world.router, addr, Some(world.towards[cell]));
        if let Some(beside) = &self.beside {
            self.add_beside(world, (n, mobile), beside);
        }
        world.mobiles.push(mobile);
        world.radios.push(radios);
        world.cells.push(cell);
    }
}

impl Plan {
    /// Mobile `n` has a second link to each base.
    fn add_beside(&self, world: &mut Site, (n, mobile): (usize, NodeId), config: &LinkConfig) {
        for (b, base) in world.bases.clone().into_iter().enumerate() {
            let radio = RadioConfig::both(config.clone());
            let name = format!("beside {n} {b}");
            let links = world.network.add_named_radio(&name, base, mobile, &radio).unwrap();
            let (addr, [down, link]) = (beside_addr(n, b), links);
            world.network.set_route(base, addr, Some(down));
            world.beside.push(links);
            let beside = LinkBeside { addr, link, base: base_addr(b) };
            world.network.with_node(mobile, |node, _| {
                if let Any::Mobile(mobile) = node {
                    mobile.add_link(Time::ZERO, beside);
                }
            });
            world.network.with_node(base, |node, _| {
                if let Any::Base(base) = node {
                    base.add_address(mobile_addr(n), addr);
                }
            });
        }
    }
}

pub(crate) struct Site {
    pub(crate) network: Network<Any>,
    pub(crate) fixed: NodeId,
    pub(crate) router: NodeId,
    pub(crate) bases: Vec<NodeId>,
    pub(crate) mobiles: Vec<NodeId>,
    pub(crate) towards: Vec<LinkId>,
    campus: Vec<LinkId>,
    /// Down and up, of each mobile at each base.
    pub(crate) radios: Vec<Vec<[LinkId; 2]>>,
    /// The same of second links.
    pub(crate) beside: Vec<[LinkId; 2]>,
    cells: Vec<usize>,
}

impl Site {
    /// Mobile `n` leaves its cell at `at` and is with base `to` after `pause`. To be called in order
    /// of time.
    pub(crate) fn hand_over(&mut self, n: usize, at: Time, pause: Duration, to: usize) {
        let from = self.cells[n];
        self.cells[n] = to;
        for link in self.radios[n][from] {
            self.network.schedule(at, Event::LinkDown(link));
        }
        let (then, mobile) = (at + pause, self.mobiles[n]);
        for link in self.radios[n][to] {
            self.network.schedule(then, Event::LinkUp(link));
        }
        let up = Some(self.radios[n][to][1]);
        self.network.schedule(then, Event::DefaultRoute { node: mobile, link: up });
        let dst = mobile_addr(n);
        let mut route = |node, link| self.network.schedule(then, Event::Route { node, dst, link });
        route(self.bases[from], None);
        route(self.bases[to], Some(self.radios[n][to][0]));
        route(self.router, Some(self.towards[to]));
        let token = BaseNotice::Here(base_addr(to)).token();
        self.network.schedule(then, Event::Token { node: mobile, token });
    }

    /// The second link of that number is not there for a while.
    pub(crate) fn lose_beside(&mut self, n: usize, at: Time, pause: Duration) {
        for link in self.beside[n] {
            self.network.schedule(at, Event::LinkDown(link));
            self.network.schedule(at + pause, Event::LinkUp(link));
        }
    }

    /// Mobile `n` is warned at `at` that it will be with base `to` in about `lead`, whether it will
    /// or not.
    pub(crate) fn warn(&mut self, n: usize, at: Time, lead: Duration, to: usize) {
        let token = BaseNotice::Imminent(base_addr(to), lead).token();
        self.network.schedule(at, Event::Token { node: self.mobiles[n], token });
    }

    /// A base forgets all that it knew, but who is in its cell.
    pub(crate) fn crash(&mut self, plan: &Plan, n: usize) {
        let seed = Seed::from_u64(plan.seed).child(&format!("crash at {:?}", self.network.now()));
        let mut station = plan.station(n, seed);
        for (mobile, _) in self.cells.iter().enumerate().filter(|(_, cell)| **cell == n) {
            station.serve(mobile_addr(mobile));
        }
        let base = self.bases[n];
        self.network.with_node(base, |node, _| *node = Any::Base(Box::new(station)));
    }

    /// For a while the campus network, which is `usual` otherwise, loses packets.
    pub(crate) fn storm(
        &mut self,
        usual: &LinkConfig,
        from: Time,
        lasts: Duration,
        losses: Vec<Loss>,
    ) {
        let bad = LinkConfig { losses, ..usual.clone() };
        for &link in &self.campus {
            let mut set = |at, config: &LinkConfig| {
                let config = Box::new(config.clone());
                self.network.schedule(at, Event::Conditions { link, config });
            };
            set(from, &bad);
            set(from + lasts, usual);
        }
    }

    /// Lets `server` listen and `client` open.
    pub(crate) fn deal(&mut self, when: Time, client: NodeId, server: NodeId, deal: Deal) {
        let dst = match self.mobiles.iter().position(|m| *m == server) {
            Some(n) => mobile_addr(n),
            None => FIXED,
        };
        self.peer(server).script.borrow_mut().listens.push(deal);
        self.open(when, client, dst, deal);
    }

    /// Lets `client` open a connection to whoever may be there.
    pub(crate) fn open(&mut self, when: Time, client: NodeId, dst: Ipv4Addr, deal: Deal) {
        self.peer(client).script.borrow_mut().opens.push((when, dst, deal));
    }

    pub(crate) fn run(&mut self, until: Time) {
        self.network.run_until(until).expect("machines behave");
    }

    /// Runs until all connections are whole at both ends and closed, at most until `end`.
    pub(crate) fn run_to_the_end(&mut self, end: Time) {
        while self.network.now() < end {
            let next = (self.network.now() + ms(500)).min(end);
            self.run(next);
            let nodes = self.mobiles.iter().chain([&self.fixed]);
            let mut conns = nodes.flat_map(|node| &self.peer(*node).conns).peekable();
            if conns.peek().is_some() && conns.all(|conn| conn.is_whole()) {
                break;
            }
        }
    }

    pub(crate) fn peer(&self, node: NodeId) -> &Peer {
        match self.network.node(node) {
            Any::Fixed(host) => host.app(),
            Any::Mobile(mobile) => mobile.app(),
            _ => panic!("no peer"),
        }
    }

    pub(crate) fn mobile(&self, n: usize) -> &MobileStation<Peer> {
        match self.network.node(self.mobiles[n]) {
            Any::Mobile(mobile) => mobile,
            _ => panic!("no mobile"),
        }
    }

    pub(crate) fn base(&self, n: usize) -> &BaseStation {
        match self.network.node(self.bases[n]) {
            Any::Base(base) => base,
            _ => panic!("no base"),
        }
    }

    pub(crate) fn fixed_host(&self) -> &Host<Peer> {
        match self.network.node(self.fixed) {
            Any::Fixed(host) => host,
            _ => panic!("no host"),
        }
    }

    /// Every connection of mobile 0's and of the fixed host's came to its end with every byte.
    pub(crate) fn expect_whole(&self, connections: usize) {
        for node in self.mobiles.iter().take(1).chain([&self.fixed]) {
            let conns = &self.peer(*node).conns;
            assert_eq!(conns.len(), connections);
            for conn in conns {
                assert_eq!(conn.check(), Ok(()));
                assert!(conn.is_whole(), "{conn:#?}");
            }
        }
    }

    /// Watches a point from here on.
    pub(crate) fn watch(&mut self, point: TapPoint) -> Rc<RefCell<Log>> {
        let log = Rc::new(RefCell::new(Log::default()));
        self.network.tap(point, log.clone());
        log
    }

    pub(crate) fn watch_fixed(&mut self) -> Rc<RefCell<Log>> {
        self.watch(TapPoint::Node(self.fixed))
    }
}

/// Segments, datagrams and frames that passed a point.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) segments: Vec<Seen>,
    pub(crate) datagrams: Vec<(Time, u16, u32)>,
    pub(crate) frames: Vec<Frame>,
    pub(crate) longest: u64,
}

/// A frame without IP header, and what the link was charged for it.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) ethertype: u16,
    pub(crate) bytes: Vec<u8>,
    pub(crate) len: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) at: Time,
    pub(crate) src: Ipv4Addr,
    pub(crate) dst: Ipv4Addr,
    pub(crate) segment: Segment,
    pub(crate) tunnelled: bool,
}

impl Observer for Log {
    fn handle_packet(&mut self, at: Time, _: TapPoint, sight: Sight, packet: &Datagram) {
        if !matches!(sight, Sight::Entered(_) | Sight::Left(_)) {
            return;
        }
        self.longest = self.longest.max(packet.ip_len().get());
        match packet.body {
            Body::Tcp(segment) => {
                let (src, dst) = (packet.src, packet.dst);
                let tunnelled = packet.tunnel.is_some();
                self.segments.push(Seen { at, src, dst, segment, tunnelled });
            }
            Body::Udp { dst_port, .. } => {
                self.datagrams.push((at, dst_port, packet.payload_len()));
            }
            Body::Frame { ethertype } => {
                let Payload::Real(bytes) = packet.payload() else { panic!("no bytes: {packet:?}") };
                let (bytes, len) = (bytes.to_vec(), packet.ip_len().get());
                self.frames.push(Frame { ethertype, bytes, len });
            }
            Body::Other { .. } | Body::Compressed { .. } => {}
        }
    }
}

impl Log {
    pub(crate) fn from(&self, src: Ipv4Addr) -> impl Iterator<Item = &Seen> {
        self.segments.iter().filter(move |seen| seen.src == src)
    }

    /// Segments with that flag to `dst`.
    pub(crate) fn towards(&self, dst: Ipv4Addr, flag: Flags) -> usize {
        let to = self.segments.iter().filter(|seen| seen.dst == dst);
        to.filter(|seen| seen.segment.flags.contains(flag)).count()
    }

    /// What is neither of the hop's TCP nor of SRP.
    pub(crate) fn strangers(&self) -> usize {
        let ours = |s: &Segment| s.src_port == HOP_PORT || s.dst_port == HOP_PORT;
        self.segments.iter().filter(|seen| !ours(&seen.segment)).count()
    }

    pub(crate) fn srp(&self) -> impl Iterator<Item = &(Time, u16, u32)> {
        self.datagrams.iter().filter(|(_, port, _)| *port == SRP_PORT)
    }
}
