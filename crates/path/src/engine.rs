//! The loop: two interfaces, the chain of machines between them, one thread.

use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

use lasthop_agent::Side;
use lasthop_control::link_signals::Signals;
use lasthop_control::past::{Counted, Past, Progress};
use lasthop_control::{
    self as control, AgentReport, Answer, Control, Counters, Reply, Report, Request,
};
use lasthop_kernel::clock::Clock;
use lasthop_kernel::event_loop::{self, EventLoop};
use lasthop_kernel::netlink::{Interface, Monitor, Rtnetlink};
use lasthop_kernel::packet_batches::FrameInbox;
use lasthop_kernel::reactor::{Interest, Reactor, Readiness};
use lasthop_kernel::slab::Key;
use lasthop_kernel::stop::Stop;
use lasthop_kernel::turn::{Source, Turn};
use lasthop_units::{LinkEvent, Time};

use super::chain::Chain;
use super::flows::Flows;
use super::forwarder::{Forwarder, Outside};
use super::frame::Frame;
use super::gate::Gate;
use super::interfaces::{self, Found};
use super::machine;
use super::peer::{self, Peer};
use super::pool::Pool;
use super::port::Port;
use super::ranks::Ranks;
use super::stations::Stations;
use super::{AgentConfig, AgentError};

/// What the loop calls its descriptors: the interfaces by their side, then these.
const MONITOR: usize = 2;
const SIGNALS: usize = 3;
/// When the kernel takes no more frames the next try is after this.
const RETRY: Duration = Duration::from_micros(100);
/// How often it is checked whether everything stands as it should.
const CHECK_EVERY: Duration = Duration::from_millis(250);
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
    inbox: FrameInbox,
    pool: Pool,
    forwarder: Forwarder,
    check_at: Time,
    link: &'static str,
    /// What has crossed the interface to the mobiles of late.
    past: Past<()>,
    counted: Counted,
}

const SIDES: [Side; 2] = [Side::Fixed, Side::Mobile];

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
        let mut reactor = Reactor::new()?;
        let mut rtnetlink = Rtnetlink::open()?;
        let found = interfaces::join(&mut rtnetlink, &config)?;
        let machines = machine::all(&config)?;
        let speaks = machines.iter().any(machine::Machine::speaks);
        let pool = Pool::new(BUFFERS);
        let mut outside = Outside {
            fixed: Port::new(&config.fixed_if, speaks),
            mobile: Port::new(&config.mobile_if, speaks),
            hop: Side::of_hop(config.end),
            peer: speaks.then(|| Peer::new(peer::epoch(), now)),
            pool: pool.clone(),
        };
        for side in SIDES {
            if let Some(interface) = found.interface(side) {
                attach(outside.port(side), &mut reactor, side, interface)?;
            }
        }
        let gate = Gate::close(&config.fixed_if, &config.mobile_if, speaks)?;
        let mut inbox = FrameInbox::new();
        // What came before the gate was closed the bridge has forwarded.
        for port in [&mut outside.fixed, &mut outside.mobile] {
            while port.is_readable() {
                port.receive(&mut inbox);
                port.end_batch(&inbox.packets(|| pool.take(), |_, _| {}));
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
        let forwarder = Forwarder {
            stations,
            chain: Chain::new(machines, pool.clone()),
            flows: Flows::new(config.connections),
            ranks: Ranks::new(&config),
            outside,
            malformed: 0,
        };
        Ok(Self {
            config,
            clock,
            now,
            reactor,
            rtnetlink,
            monitor,
            signals,
            control,
            gate,
            inbox,
            pool,
            forwarder,
            check_at: now,
            link: "up",
            past: Past::default(),
            counted: Counted::default(),
        })
    }

    /// Runs until `stop` is requested. Then the bridge forwards again.
    ///
    /// # Errors
    ///
    /// The kernel refuses what the loop cannot do without.
    pub fn run(mut self, stop: &Stop) -> Result<(), AgentError> {
        self.watch()?;
        let clock = self.clock;
        event_loop::run(&mut self, clock, stop)
    }

    fn watch(&mut self) -> io::Result<()> {
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

    /// Takes what has come to one interface.
    fn receive(&mut self, from: Side) {
        let Self { inbox, pool, forwarder, .. } = self;
        for _ in 0..TURNS {
            let port = forwarder.outside.port(from);
            if !port.is_readable() {
                return;
            }
            port.receive(inbox);
            let now = self.clock.now();
            self.now = now;
            let batch = inbox.packets(
                || pool.take(),
                |buffer, is_summed| {
                    let parse = if is_summed { Frame::parse_summed } else { Frame::parse };
                    forwarder.handle_frame(now, from, parse(buffer));
                },
            );
            forwarder.outside.port(from).end_batch(&batch);
            forwarder.outside.send();
        }
    }

    fn handle_timers(&mut self) -> Result<(), AgentError> {
        self.forwarder.handle_timeout(self.now);
        if let Some(signals) = &mut self.signals
            && signals.next_timeout().is_some_and(|at| at <= self.now)
        {
            signals.handle_timeout(self.now);
            self.handle_signals();
        }
        let mut turn = Turn::new(self.now, self.clock, &mut self.reactor);
        if let Some(control) = &mut self.control {
            control.handle_timeout(&mut turn);
        }
        if self.check_at <= self.now {
            self.check_at = self.now + CHECK_EVERY;
            self.repair()?;
        }
        Ok(())
    }

    /// Mends what has changed under the agent.
    fn repair(&mut self) -> Result<(), AgentError> {
        if !self.gate.is_closed() {
            tracing::warn!("the rules that keep the bridge from forwarding are gone: set anew");
            let (fixed, mobile) = (&self.config.fixed_if, &self.config.mobile_if);
            let speaks = self.forwarder.outside.peer.is_some();
            self.gate = Gate::close(fixed, mobile, speaks)?;
        }
        let Outside { fixed, mobile, .. } = &self.forwarder.outside;
        if !fixed.is_there() || !mobile.is_there() || self.monitor.is_none() {
            self.refresh_interfaces()?;
        }
        self.forwarder.expire(self.now);
        Ok(())
    }

    fn handle_monitor(&mut self) -> Result<(), AgentError> {
        let Some(monitor) = &mut self.monitor else { return Ok(()) };
        while monitor.handle_ready() {}
        while monitor.poll_event().is_some() {}
        self.refresh_interfaces()
    }

    fn refresh_interfaces(&mut self) -> Result<(), AgentError> {
        let found = Found::query(&mut self.rtnetlink, &self.config)?;
        self.forwarder.stations.set_own(found.own());
        for side in SIDES {
            let port = self.forwarder.outside.port(side);
            let Some(interface) = found.interface(side) else {
                if port.is_there() {
                    tracing::warn!(interface = port.name(), "interface gone");
                }
                port.close(&mut self.reactor);
                continue;
            };
            port.set_kind(interface);
            if !port.is_open(interface.index) {
                port.close(&mut self.reactor);
                if let Err(error) = attach(port, &mut self.reactor, side, interface) {
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
            self.forwarder.handle_link_event(self.now, event);
        }
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

    /// Remembers what has crossed since the last time.
    fn remember(&mut self) {
        let (sent, received) = self.forwarder.outside.mobile.bytes();
        let (to_hop, from_hop) = self.counted.advance(sent, received);
        self.past.add(self.now, (), Progress { to_hop, from_hop, ..Progress::default() });
    }

    fn handle_request(&mut self, request: Request) -> Answer {
        let reply = match request {
            Request::Status { past } => {
                let past = past.then(|| self.past.report(self.now));
                let report = Report { past, ..self.report() };
                return serde_json::to_value(report).map_err(|e| e.to_string());
            }
            Request::Handoff { .. } => Err("an agent moves nothing: ask the mobile".to_owned()),
            Request::Drain { .. } => {
                Err("an agent cannot do this: it is a base that is emptied".to_owned())
            }
            Request::Reload {} => Err("an agent cannot do this: it is a base that reads its \
                                       configuration again"
                .to_owned()),
            Request::Link(link) => match &mut self.signals {
                Some(signals) => signals.handle_link(self.now, &link),
                None => Err("this agent could not watch its link".to_owned()),
            },
            Request::Policy { .. } => Err("an agent chooses no links: ask the mobile".to_owned()),
            Request::Priority { of, priority } => self.forwarder.ranks.set(&of, priority),
        };
        self.take_events();
        self.forwarder.apply_ranks(self.now);
        self.forwarder.outside.send();
        reply.and_then(|()| serde_json::to_value(Reply::default()).map_err(|e| e.to_string()))
    }

    fn report(&mut self) -> Report {
        let Forwarder { flows, ranks, chain, outside, malformed, .. } = &mut self.forwarder;
        let (opened, closed) = flows.counts();
        let mut connections = flows.reports(self.now);
        for connection in &mut connections {
            connection.priority = ranks.priority(connection.key);
        }
        Report {
            role: "agent".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_s: self.now.as_secs_f64(),
            connections,
            counters: Counters { opened, closed, garbage: *malformed, ..Counters::default() },
            agent: Some(AgentReport {
                schemes: self.config.schemes.iter().map(ToString::to_string).collect(),
                fixed: outside.fixed.report(),
                mobile: outside.mobile.report(),
                peer: outside.peer.as_ref().map(Peer::is_there),
                link: self.link.to_owned(),
                counters: chain.counters(),
            }),
            priorities: ranks.words(),
            ..Report::default()
        }
    }
}

impl EventLoop for Agent {
    type Error = AgentError;

    fn reactor(&mut self) -> &mut Reactor<Source> {
        &mut self.reactor
    }

    fn next_turn(&self) -> Time {
        let Outside { fixed, mobile, .. } = &self.forwarder.outside;
        if fixed.is_readable() || mobile.is_readable() {
            return Time::ZERO;
        }
        let is_congested = fixed.is_congested() || mobile.is_congested();
        let earliest = [
            is_congested.then(|| self.now + RETRY),
            self.forwarder.next_timeout(),
            self.signals.as_ref().and_then(Signals::next_timeout),
            self.control.as_ref().and_then(Control::next_timeout),
        ];
        earliest.into_iter().flatten().fold(self.check_at, Time::min)
    }

    fn begin_turn(&mut self, now: Time) {
        self.now = now;
    }

    fn handle_ready(&mut self, source: Source, readiness: Readiness) -> Result<(), AgentError> {
        match source {
            Source::Control(client) => self.handle_control(client, readiness),
            Source::Listener(MONITOR) => self.handle_monitor()?,
            Source::Listener(SIGNALS) => self.handle_signals(),
            Source::Listener(n) => {
                let side = SIDES.into_iter().find(|side| *side as usize == n);
                side.into_iter().for_each(|side| self.forwarder.outside.port(side).ready());
            }
            _ => {}
        }
        Ok(())
    }

    fn end_turn(&mut self, stops: usize) -> Result<ControlFlow<()>, AgentError> {
        if stops > 0 {
            return Ok(ControlFlow::Break(()));
        }
        for side in SIDES {
            self.receive(side);
        }
        self.handle_timers()?;
        self.forwarder.outside.send();
        self.remember();
        Ok(ControlFlow::Continue(()))
    }
}

/// Begins to read from an interface.
fn attach(
    port: &mut Port,
    reactor: &mut Reactor<Source>,
    side: Side,
    interface: &Interface,
) -> Result<(), lasthop_kernel::packet_socket::PacketSocketError> {
    port.set_kind(interface);
    port.open(reactor, Source::Listener(side as usize), interface.index)
}
