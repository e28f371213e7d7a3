//! The loop: two interfaces, the chain of machines between them, one thread.

use std::io;
use std::num::NonZeroU64;
use std::time::Duration;

use lasthop_agent::{Packet as _, Side};
use lasthop_control::link_signals::Signals;
use lasthop_control::{
    self as control, AgentReport, Answer, Control, Counters, Reply, Report, Request,
};
use lasthop_kernel::clock::Clock;
use lasthop_kernel::mmsg::Inbox;
use lasthop_kernel::netlink::{Interface, Monitor, Rtnetlink};
use lasthop_kernel::reactor::{Interest, Reactor, Readiness};
use lasthop_kernel::slab::Key;
use lasthop_kernel::stop::Stop;
use lasthop_kernel::turn::{Source, Turn};
use lasthop_units::{LinkEvent, Time};

use super::beside::{self, Received};
use super::chain::{Chain, Leaving};
use super::frame::Frame;
use super::gate::Gate;
use super::interfaces::{self, Found};
use super::machine;
use super::peer::{self, Peer, PeerEvent};
use super::pool::Pool;
use super::port::{LONGEST_FRAME, Port};
use super::ranks::Ranks;
use super::stations::Stations;
use super::{AgentConfig, AgentError, flows::Flows};

/// What the loop calls its descriptors: the interfaces by their place, then these.
const MONITOR: usize = 2;
const SIGNALS: usize = 3;
/// The kernel may delay a wake-up by this much to save power; its usual 50 µs would be latency.
const TIMER_SLACK: Duration = Duration::from_micros(1);
/// When the kernel takes no more frames it is asked again after this.
const RETRY: Duration = Duration::from_micros(100);
/// How often it is looked whether everything stands as it should.
const LOOK: Duration = Duration::from_millis(250);
/// Buffers that rest.
const BUFFERS: usize = 8192;
/// Batches of one interface before the other has its turn.
const TURNS: usize = 4;

/// An agent between two interfaces.
pub struct Agent {
    config: AgentConfig,
    clock: Clock,
    now: Time,
    reactor: Reactor<Source>,
    rtnetlink: Rtnetlink,
    monitor: Option<Monitor>,
    signals: Option<Signals>,
    control: Option<Control>,
    gate: Gate,
    ports: [Port; 2],
    stations: Stations,
    chain: Chain,
    peer: Option<Peer>,
    flows: Flows,
    ranks: Ranks,
    pool: Pool,
    inbox: Inbox,
    /// What the last batch brought.
    arrived: Vec<Frame>,
    look_at: Time,
    link: &'static str,
    /// Frames between agents that were not understood.
    garbage: u64,
}

/// The place of a side's interface.
const fn place(side: Side) -> usize {
    match side {
        Side::Fixed => 0,
        Side::Mobile => 1,
    }
}

impl Agent {
    /// Opens the interfaces and takes over what crosses between them, in the calling thread's network
    /// namespace.
    ///
    /// # Errors
    ///
    /// An interface is not there, the two are not ports of one bridge, there is no permission
    /// (`CAP_NET_RAW` and `CAP_NET_ADMIN`), or the control socket cannot be served.
    pub fn open(config: AgentConfig) -> Result<Self, AgentError> {
        let control = control::open(config.control.as_deref(), "agent")?;
        let clock = Clock::start();
        let now = clock.now();
        let mut reactor = Reactor::new().map_err(AgentError::Kernel)?;
        let mut rtnetlink = Rtnetlink::open()?;
        let found = interfaces::join(&mut rtnetlink, &config)?;
        let machines = machine::all(&config)?;
        let speaks = machines.iter().any(machine::Machine::speaks);
        let mut ports = [Port::new(&config.fixed_if, speaks), Port::new(&config.mobile_if, speaks)];
        for (n, (port, interface)) in
            ports.iter_mut().zip([&found.fixed, &found.mobile]).enumerate()
        {
            if let Some(interface) = interface {
                attach(port, &mut reactor, n, interface)?;
            }
        }
        let gate = Gate::close(&config.fixed_if, &config.mobile_if, speaks)?;
        let pool = Pool::new(BUFFERS);
        let mut inbox = Inbox::new(LONGEST_FRAME);
        // What came before the gate was closed the bridge has forwarded.
        for port in &mut ports {
            while port.is_readable() {
                port.receive(&mut inbox, &pool, drop);
            }
        }
        let mut stations = Stations::new();
        stations.set_own(found.own());
        let signals = Signals::open(config.hop_if(), config.signal)
            .inspect_err(|error| tracing::warn!(%error, "cannot watch the link"))
            .ok();
        let monitor = Monitor::open()
            .inspect_err(|error| tracing::warn!(%error, "cannot watch interfaces"))
            .ok();
        let peer = speaks.then(|| Peer::new(peer::epoch(), now));
        Ok(Self {
            chain: Chain::new(machines),
            flows: Flows::new(config.connections),
            ranks: Ranks::new(&config),
            config,
            clock,
            now,
            reactor,
            rtnetlink,
            monitor,
            signals,
            control,
            gate,
            ports,
            stations,
            peer,
            pool,
            inbox,
            arrived: Vec::new(),
            look_at: now,
            link: "up",
            garbage: 0,
        })
    }

    /// Runs until `stop` is requested. Then the bridge forwards again.
    ///
    /// # Errors
    ///
    /// The kernel refuses what the loop cannot do without.
    pub fn run(mut self, stop: &Stop) -> Result<(), AgentError> {
        let slack = NonZeroU64::new(TIMER_SLACK.as_nanos() as u64);
        // Without it packets that machines hold leave some tens of microseconds later.
        let _ = rustix::thread::set_current_timer_slack(slack);
        self.watch(stop).map_err(AgentError::Kernel)?;
        let mut ready = Vec::new();
        loop {
            let patience = self.patience();
            self.reactor.wait(patience, &mut ready).map_err(AgentError::Kernel)?;
            self.now = self.clock.now();
            for (source, readiness) in ready.drain(..) {
                match source {
                    Source::Stop if stop.take() > 0 => return Ok(()),
                    Source::Control(client) => self.handle_control(client, readiness),
                    Source::Listener(MONITOR) => self.handle_monitor()?,
                    Source::Listener(SIGNALS) => self.handle_signals(),
                    Source::Listener(n) => {
                        self.ports.iter_mut().skip(n).take(1).for_each(Port::ready)
                    }
                    _ => {}
                }
            }
            for side in [Side::Fixed, Side::Mobile] {
                self.receive(side);
            }
            self.handle_timers()?;
            self.send();
        }
    }

    fn watch(&mut self, stop: &Stop) -> io::Result<()> {
        self.reactor.add(stop, Interest::Read, Source::Stop)?;
        if let Some(control) = &mut self.control {
            control.watch(&mut Turn::new(self.now, self.clock, &mut self.reactor))?;
        }
        if let Some(monitor) = &self.monitor {
            self.reactor.add(monitor, Interest::Read, Source::Listener(MONITOR))?;
        }
        if let Some(signals) = &self.signals {
            for fd in signals.fds() {
                self.reactor.add(fd, Interest::Read, Source::Listener(SIGNALS))?;
            }
        }
        Ok(())
    }

    fn patience(&self) -> Option<Duration> {
        if self.ports.iter().any(Port::is_readable) {
            return Some(Duration::ZERO);
        }
        let retry = self.ports.iter().any(Port::is_congested).then(|| self.now + RETRY);
        let earliest = [
            retry,
            Some(self.look_at),
            self.chain.next_timeout(),
            self.peer.as_ref().map(Peer::next_timeout),
            self.signals.as_ref().and_then(Signals::next_timeout),
            self.control.as_ref().and_then(Control::next_timeout),
        ];
        earliest.into_iter().flatten().min().map(|at| at.since(self.clock.now()))
    }

    /// Takes what has come to one interface.
    fn receive(&mut self, side: Side) {
        for _ in 0..TURNS {
            let Self { ports, inbox, pool, arrived, .. } = self;
            let Some(port) = ports.get_mut(place(side)).filter(|port| port.is_readable()) else {
                return;
            };
            port.receive(inbox, pool, |frame| arrived.push(frame));
            self.now = self.clock.now();
            let mut arrived = std::mem::take(&mut self.arrived);
            for frame in arrived.drain(..) {
                self.handle_frame(side, frame);
            }
            self.arrived = arrived;
            self.send();
        }
    }

    fn handle_frame(&mut self, side: Side, frame: Frame) {
        if beside::is_beside(frame.bytes()) {
            self.handle_beside(side, &frame);
        } else if self.stations.crosses(side, frame.bytes()) {
            self.hand_on(side, frame);
        }
    }

    /// Something of the agent at the other end of the hop.
    fn handle_beside(&mut self, side: Side, frame: &Frame) {
        let Some(peer) = self.peer.as_mut().filter(|_| side == self.config.hop_side()) else {
            return;
        };
        let (from, received) = match beside::unwrap(frame.bytes(), &self.pool) {
            Ok(received) => received,
            Err(error) => {
                self.garbage += 1;
                tracing::debug!(%error, "malformed frame from the other agent");
                return;
            }
        };
        match received {
            Received::Hello(hello) => {
                let event = peer.handle_hello(self.now, from, hello);
                self.handle_peer(event);
            }
            Received::Message(message) => {
                peer.handle_frame(self.now, from);
                self.chain.handle_message(self.now, side, &message, &self.pool);
                self.collect();
            }
            // Its Ethernet addresses are the packet's own, but only the peer numbers packets.
            Received::Numbered(frame) => {
                if let Some(mac) = peer.mac() {
                    peer.handle_frame(self.now, mac);
                }
                if self.stations.crosses(side, frame.bytes()) {
                    self.hand_on(side, frame);
                }
            }
        }
    }

    fn handle_peer(&mut self, event: Option<PeerEvent>) {
        let Some(event) = event else { return };
        match event {
            PeerEvent::Came => tracing::info!("peer agent up"),
            PeerEvent::Restarted => tracing::info!("peer agent restarted"),
            PeerEvent::Gone => tracing::warn!("peer agent down"),
        }
        self.chain.set_peer(self.now, event != PeerEvent::Gone, &self.pool);
        self.collect();
    }

    fn hand_on(&mut self, side: Side, frame: Frame) {
        if let Some(tcp) = frame.tcp()
            && let Some(begun) = self.flows.note(self.now, side, &tcp)
        {
            self.ranks.begin(begun);
            self.ranks.tell(self.now, &mut self.chain, &self.pool);
        }
        if side == Side::Fixed && self.chain.watches_queue() {
            let nearly_full = self.ports[place(Side::Mobile)].is_congested();
            self.chain.handle_queue(nearly_full);
        }
        self.chain.handle_frame(self.now, side, frame, &self.pool);
        self.collect();
    }

    /// Puts what leaves the chain behind what waits at its interface.
    fn collect(&mut self) {
        while let Some(leaving) = self.chain.poll() {
            match leaving {
                Leaving::Packet(towards, frame) => {
                    let numbered = frame.frame().filter(|_| towards == self.config.hop_side());
                    let port = &mut self.ports[place(towards)];
                    let wrapped = numbered.and_then(|n| beside::wrap(&frame, n, port.mtu));
                    port.push(wrapped.unwrap_or(frame));
                }
                Leaving::Message(towards, message) => {
                    let to = self.peer.as_ref().and_then(Peer::mac).unwrap_or(beside::GROUP);
                    let port = &mut self.ports[place(towards)];
                    if let Some(frame) = beside::message(port.mac, to, &message, &self.pool) {
                        port.push(frame);
                    }
                }
            }
        }
    }

    fn send(&mut self) {
        self.ports.iter_mut().for_each(Port::send);
    }

    fn handle_timers(&mut self) -> Result<(), AgentError> {
        let due = |at: Option<Time>| at.is_some_and(|at| at <= self.now);
        if due(self.chain.next_timeout()) {
            self.chain.handle_timeout(self.now, &self.pool);
        }
        if due(self.signals.as_ref().and_then(Signals::next_timeout)) {
            if let Some(signals) = &mut self.signals {
                signals.handle_timeout(self.now);
            }
            self.handle_signals();
        }
        if let Some(peer) = &mut self.peer {
            let event = peer.handle_timeout(self.now);
            if let Some(hello) = peer.poll_hello(self.now) {
                let port = &mut self.ports[place(self.config.hop_side())];
                port.push(beside::hello(port.mac, &hello, &self.pool));
            }
            self.handle_peer(event);
        }
        let mut turn = Turn::new(self.now, self.clock, &mut self.reactor);
        if let Some(control) = &mut self.control {
            control.handle_timeout(&mut turn);
        }
        if self.look_at <= self.now {
            self.look_at = self.now + LOOK;
            self.look()?;
        }
        self.collect();
        Ok(())
    }

    /// Mends what has changed under the agent.
    fn look(&mut self) -> Result<(), AgentError> {
        if !self.gate.is_closed() {
            tracing::warn!("the rules that keep the bridge from forwarding are gone: set anew");
            let (fixed, mobile) = (&self.config.fixed_if, &self.config.mobile_if);
            let speaks = self.peer.is_some();
            self.gate = Gate::close(fixed, mobile, speaks)?;
        }
        if self.ports.iter().any(|port| !port.is_there()) || self.monitor.is_none() {
            self.look_at_interfaces()?;
        }
        for key in self.flows.expire(self.now) {
            self.ranks.end(key);
        }
        self.ranks.tell(self.now, &mut self.chain, &self.pool);
        Ok(())
    }

    fn handle_monitor(&mut self) -> Result<(), AgentError> {
        let Some(monitor) = &mut self.monitor else { return Ok(()) };
        while monitor.handle_ready() {}
        while monitor.poll_event().is_some() {}
        self.look_at_interfaces()
    }

    fn look_at_interfaces(&mut self) -> Result<(), AgentError> {
        let found = Found::look(&mut self.rtnetlink, &self.config)?;
        self.stations.set_own(found.own());
        for (n, interface) in [&found.fixed, &found.mobile].into_iter().enumerate() {
            let port = &mut self.ports[n];
            let Some(interface) = interface else {
                if port.is_there() {
                    tracing::warn!(interface = port.name(), "interface gone");
                }
                port.close(&mut self.reactor);
                continue;
            };
            port.set_kind(interface);
            if !port.is_open(interface.index) {
                port.close(&mut self.reactor);
                if let Err(error) = attach(port, &mut self.reactor, n, interface) {
                    tracing::debug!(%error, "interface present but not usable yet");
                    continue;
                }
                tracing::info!(interface = port.name(), "interface up");
            }
            if let (None, Some(bridge)) = (interface.controller, &self.config.bridge)
                && let Err(error) = interfaces::rejoin(&mut self.rtnetlink, bridge, [interface])
            {
                tracing::warn!(%error, "interface is not a port of the bridge");
            }
        }
        Ok(())
    }

    fn handle_signals(&mut self) {
        let Some(signals) = &mut self.signals else { return };
        while signals.handle_ready(self.now) {}
        self.take_events();
    }

    /// Tells the machines what is known of the link.
    fn take_events(&mut self) {
        while let Some(event) = self.signals.as_mut().and_then(Signals::poll_event) {
            tracing::debug!(?event, "the link");
            self.link = match event {
                LinkEvent::Up | LinkEvent::Complete => "up",
                LinkEvent::Down => "down",
                LinkEvent::Imminent { .. } => "imminent",
            };
            self.chain.handle_link_event(self.now, event, &self.pool);
        }
        self.collect();
    }

    fn handle_control(&mut self, client: Option<Key>, readiness: Readiness) {
        let Some(control) = &mut self.control else { return };
        let mut turn = Turn::new(self.now, self.clock, &mut self.reactor);
        match client {
            Some(key) => control.handle_client(&mut turn, key, readiness),
            None => control.handle_listener(&mut turn),
        }
        while let Some((key, request)) = self.control.as_mut().and_then(Control::poll_request) {
            let answer = self.handle_request(request);
            let mut turn = Turn::new(self.now, self.clock, &mut self.reactor);
            if let Some(control) = &mut self.control {
                control.answer(&mut turn, key, &answer);
            }
        }
    }

    fn handle_request(&mut self, request: Request) -> Answer {
        let reply = match request {
            Request::Status {} => {
                return serde_json::to_value(self.report()).map_err(|e| e.to_string());
            }
            Request::Handoff { .. } => Err("an agent moves nothing: ask the mobile".to_owned()),
            Request::Link(link) => match &mut self.signals {
                Some(signals) => signals.handle_link(self.now, &link),
                None => Err("this agent could not watch its link".to_owned()),
            },
            Request::Priority { of, priority } => self.ranks.set(&of, priority),
        };
        self.take_events();
        self.ranks.tell(self.now, &mut self.chain, &self.pool);
        self.collect();
        self.send();
        reply.and_then(|()| serde_json::to_value(Reply::default()).map_err(|e| e.to_string()))
    }

    fn report(&mut self) -> Report {
        let (opened, closed) = self.flows.counts();
        let mut connections = self.flows.reports(self.now);
        for connection in &mut connections {
            connection.priority = self.ranks.priority(connection.key);
        }
        let [fixed, mobile] = &mut self.ports;
        Report {
            role: "agent".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_s: self.now.as_secs_f64(),
            connections,
            counters: Counters { opened, closed, garbage: self.garbage, ..Counters::default() },
            agent: Some(AgentReport {
                schemes: self.config.schemes.iter().map(ToString::to_string).collect(),
                fixed: fixed.report(),
                mobile: mobile.report(),
                peer: self.peer.as_ref().map(Peer::is_there),
                link: self.link.to_owned(),
                counters: self.chain.counters(),
            }),
            priorities: self.ranks.words(),
            ..Report::default()
        }
    }
}

/// Begins to read from an interface.
fn attach(
    port: &mut Port,
    reactor: &mut Reactor<Source>,
    n: usize,
    interface: &Interface,
) -> Result<(), lasthop_kernel::packet_socket::PacketSocketError> {
    port.set_kind(interface);
    port.open(reactor, Source::Listener(n), interface.index)
}
