//! The base's [`Role`]: opens and offers connections, and follows its mobiles' associations.

mod connections;
mod drain;
mod packet_routes;
mod taking_in;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use lasthop_control::{Reply, Report, Request};
use lasthop_hop::seal::{Allowed, PresharedKey, PublicKey};
use lasthop_kernel::accept::{self, Accepted};
use lasthop_kernel::reactor::{Interest, Readiness};
use lasthop_kernel::slab::Key;
use lasthop_kernel::stop::Stop;
use lasthop_kernel::tcp;
use lasthop_kernel::turn::Source;
use lasthop_session::{Event, Reach, Refusal, Session, SessionId};
use lasthop_units::Time;

use self::drain::Drain;
use super::BaseConfig;
use super::exits::{Done, Exits};
use super::handoff::Handoffs;
use super::memory::BaseMemory;
use super::news::News;
use super::openings::Openings;
use super::packets::Packets;
use super::present::Present;
use super::published_port::PublishedPorts;
use super::reachable_families::ReachableFamilies;
use super::reload::ConfigSource;
use super::renewals::Renewals;
use super::surrogate::Surrogate;
use super::targets::Targets;
use super::told_worths::ToldWorths;
use super::transit_targets::TransitTargets;
use super::udp_sockets::UdpSockets;
use super::workers::{Message, Passed, Workers};
use crate::backhaul::{BaseAssociationId, WithPeers};
use crate::dial;
use crate::driver::{Asker, Client, CoreOf, Role, Timer};
use crate::handshake;
use crate::hop::HopEvent;
use crate::resolve::Resolution;

/// The listener number of the netlink socket that reports route changes; lower ones are published
/// ports.
const ROUTES: usize = usize::MAX;

/// The base's part of the loop.
pub(crate) struct BaseRole {
    /// This base's own key, where it has one.
    key: Option<PublicKey>,
    targets: Arc<Targets>,
    connect_timeout: Duration,
    session: lasthop_session::Config,
    connections_max: usize,
    openings: Openings<Client<BaseAssociationId>>,
    memory: BaseMemory,
    published_ports: PublishedPorts,
    present: Present,
    exits: Exits,
    /// Absent where there is no other base.
    handoffs: Option<Handoffs>,
    families: ReachableFamilies<BaseAssociationId>,
    /// The mobiles that are served, and what each shares with this base.
    allowed: BTreeMap<PublicKey, PresharedKey>,
    /// Where the configuration can be read again.
    source: Option<ConfigSource>,
    /// The way to the others, where several serve this base.
    workers: Option<Workers>,
    /// The TUN device, where packets are carried.
    packets: Option<Packets>,
    /// What mobiles have told of flows of packets.
    worths: ToldWorths,
    /// The UDP sockets of applications.
    udp: UdpSockets,
    transits: TransitTargets,
    /// What mobiles are told of this base and the others.
    news: News,
    drain: Drain,
    /// How long it may take to empty this base before it ends.
    drain_for: Duration,
    renewals: Renewals,
}

impl BaseRole {
    pub(super) fn new(
        config: &BaseConfig,
        memory: BaseMemory,
        key: Option<PublicKey>,
        published_ports: PublishedPorts,
        exits: Exits,
        targets: Targets,
        handoffs: Option<Handoffs>,
    ) -> Self {
        Self {
            key,
            targets: Arc::new(targets),
            connect_timeout: config.connect_timeout,
            session: lasthop_session::Config {
                max_connections: config.limits.connections(),
                ..lasthop_session::Config::base()
            },
            connections_max: config.limits.connections_total(),
            openings: Openings::new(config.limits.openings().get(), config.connect_timeout / 2),
            memory,
            published_ports,
            present: Present::default(),
            exits,
            handoffs,
            families: ReachableFamilies::new(),
            allowed: BTreeMap::new(),
            source: None,
            workers: None,
            packets: None,
            worths: ToldWorths::default(),
            udp: UdpSockets::new(config),
            transits: TransitTargets::new(config),
            news: News::new(config),
            drain: Drain::default(),
            drain_for: config.handoff.as_ref().map_or(Duration::ZERO, |of| of.settings.drain().0),
            renewals: Renewals::default(),
        }
    }

    /// It serves these mobiles.
    pub(super) fn serving(self, allowed: &[Allowed]) -> Self {
        Self { allowed: taking_in::by_key(allowed), ..self }
    }

    /// It serves this base beside other workers, if there are some.
    pub(super) fn beside(self, workers: Option<Workers>) -> Self {
        Self { workers, ..self }
    }

    /// It carries packets by a device, if there is one.
    pub(super) fn with_packets(self, packets: Option<Packets>) -> Self {
        Self { packets, ..self }
    }

    /// The configuration can be read again from there.
    pub(super) fn set_source(&mut self, source: ConfigSource) {
        self.source = Some(source);
    }

    /// This worker is the first, and stops others with these.
    pub(super) fn set_stops(&mut self, stops: Vec<Stop>) {
        if let Some(workers) = &mut self.workers {
            workers.set_stops(stops);
        }
    }

    /// Whose an association is, whichever it has at the moment.
    fn client(&self, id: BaseAssociationId) -> Client<BaseAssociationId> {
        self.key_of(id).map_or(Client::Association(id), Client::Mobile)
    }

    /// The key of the mobile at the other end of an association.
    fn key_of(&self, id: BaseAssociationId) -> Option<PublicKey> {
        self.present.key_of(id)
    }

    /// The association with the mobile that `key` names, or with the last that came.
    fn association_with(&self, key: Option<PublicKey>) -> Option<BaseAssociationId> {
        let is_here = |mobile: Option<PublicKey>| match (&self.handoffs, mobile) {
            (Some(handoffs), Some(mobile)) => !handoffs.is_away(mobile),
            _ => true,
        };
        match key {
            Some(key) => self.present.with(key).filter(|_| is_here(Some(key))),
            None => self.present.latest().find(|(_, key)| is_here(*key)).map(|(id, _)| id),
        }
    }

    /// Listens on the published ports of a mobile, and on those of whichever mobile came last, if it is here, and
    /// else not: the kernel refuses connections to those.
    fn update_published_ports(&mut self, core: &CoreOf<Self>, mobile: Option<PublicKey>) {
        for of in BTreeSet::from([mobile, None]) {
            let here = !core.stopping && self.association_with(of).is_some();
            self.published_ports.set_listening(of, here);
        }
    }
}

impl Role for BaseRole {
    type Hop = WithPeers;
    type Waiting = Surrogate;

    const NAME: &'static str = "base";

    fn session(&self, id: BaseAssociationId) -> Session {
        match id {
            BaseAssociationId::Mobile(_) => Session::base(self.session),
            BaseAssociationId::Peer(_) | BaseAssociationId::Link(_) => {
                Session::anchor(self.session)
            }
        }
    }

    fn start(&mut self, core: &mut CoreOf<Self>) -> io::Result<()> {
        for (n, port) in self.published_ports.iter().enumerate() {
            core.reactor.add(&port.fd, Interest::Read, Source::Listener(n))?;
        }
        self.families.watch(&mut core.reactor, Source::Listener(ROUTES))?;
        self.exits.watch(&mut core.reactor)?;
        if let Some(packets) = &mut self.packets {
            packets.way().watch(&mut core.reactor)?;
        }
        let (hop, mut turn) = core.turn();
        hop.start(&mut turn)?;
        if let Some(workers) = &self.workers {
            workers.watch(&mut core.reactor)?;
        }
        match &mut self.handoffs {
            Some(handoffs) => handoffs.start(core),
            None => Ok(()),
        }
    }

    fn handle_listener(&mut self, core: &mut CoreOf<Self>, n: usize) {
        if n == ROUTES {
            return self.families.handle_ready(core.now);
        }
        let last = accept::share(|| {
            let Some(port) = self.published_ports.get(n) else { return Accepted::Empty };
            let accepted = accept::accept(&port.fd);
            accepted.map(|(fd, from)| self.offer(core, n, fd, tcp::canonical(from)))
        });
        core.accept_again(n, last);
    }

    fn handle_helper(&mut self, core: &mut CoreOf<Self>) {
        self.exits.drain();
        while let Some(done) = self.exits.poll() {
            match (done, &mut self.handoffs) {
                (Done::Socket(key, n, socket), _) => dial::handle_socket(core, key, n, socket),
                (Done::Dumped(session, outcomes), Some(handoffs)) => {
                    handoffs.handle_dumped(core, session, outcomes);
                }
                (Done::Restored(session, outcomes), Some(handoffs)) => {
                    handoffs.handle_restored(core, session, outcomes);
                }
                (Done::Claimed(session, claimed), Some(handoffs)) => {
                    handoffs.handle_claimed(core, session, claimed);
                }
                (Done::Dumped(..) | Done::Restored(..) | Done::Claimed(..), None) => {}
            }
        }
    }

    fn handle_tun(&mut self, core: &mut CoreOf<Self>) {
        self.send_received(core);
    }

    fn handle_packets(&mut self, core: &mut CoreOf<Self>, id: BaseAssociationId) {
        if !matches!(id, BaseAssociationId::Mobile(_)) {
            return self.take_from_base(core, id);
        }
        let (of, packets) = ((id, self.key_of(id)), self.packets.as_mut());
        self.udp.deliver_packets(core, of, (packets, &mut self.worths), self.targets.as_ref());
    }

    fn handle_datagrams(&mut self, core: &mut CoreOf<Self>, number: u64) {
        self.udp.receive(core.now, number, &mut core.hop);
    }

    fn flush_packets(&mut self) {
        if let Some(packets) = &mut self.packets {
            packets.way().flush();
        }
    }

    fn handle_waiting(&mut self, core: &mut CoreOf<Self>, key: Key, readiness: Readiness) {
        let Some(Surrogate::Offered(socket)) = core.waiting(key) else { return };
        socket.ready(readiness);
        // Only an error can be told from a half-close here.
        if matches!(tcp::connected(&socket.fd), Some(Ok(()))) {
            return;
        }
        let name = core.connections.get(key).and_then(|c| c.name);
        self.refuse_offered(core, key, Refusal::Other(0));
        core.abort(name);
    }

    fn handle_attempt(&mut self, core: &mut CoreOf<Self>, key: Key, n: u32) {
        dial::advance(core, key, Some(n));
    }

    fn handle_opening(&mut self, core: &mut CoreOf<Self>, id: BaseAssociationId, event: Event) {
        match event {
            // A mobile that came back asks anew for what is being opened.
            Event::Connect { id: conn, .. } if core.find(id, conn).is_some() => {}
            Event::Connect { id: conn, target, source } => {
                self.open(core, id, conn, &target, source);
            }
            Event::Opened { id: conn, .. } => {
                if let Some(key) = core.find(id, conn) {
                    core.relay(key, |surrogate| match surrogate {
                        Surrogate::Offered(socket) => Some((socket, Vec::new())),
                        _ => None,
                    });
                }
            }
            Event::Failed { id: conn, refusal } => {
                if let Some(key) = core.find(id, conn) {
                    self.refuse_offered(core, key, refusal);
                }
            }
            _ => {}
        }
    }

    fn handle_event(&mut self, id: BaseAssociationId, event: &Event) {
        if let Some(handoffs) = &mut self.handoffs {
            handoffs.handle_event(id, event);
        }
    }

    fn handle_gone(&mut self, core: &mut CoreOf<Self>, waiting: Surrogate, _reset: bool) {
        waiting.end(&mut core.reactor);
    }

    fn handle_answer(&mut self, core: &mut CoreOf<Self>, answer: Resolution<Asker>) {
        let key = match answer.tag {
            Asker::Connection(key) => key,
            Asker::Datagrams(number) => {
                let gate = self.targets.as_ref();
                return self.udp.handle_name(core, number, answer.addresses, gate);
            }
            Asker::Base(_) => return,
        };
        if !matches!(core.waiting(key), Some(Surrogate::Resolving(_))) {
            return;
        }
        match answer.addresses {
            Ok(addresses) => self.dial(core, key, addresses),
            Err(e) => {
                tracing::debug!(error = %e, "name not resolved");
                dial::refuse(core, key, crate::resolve::refusal(&e));
            }
        }
    }

    fn handle_timer(&mut self, core: &mut CoreOf<Self>, timer: Timer) {
        let key = match timer {
            Timer::Accept(n) => return self.handle_listener(core, n),
            Timer::Connection(key) => key,
            Timer::Base(_) | Timer::Drain | Timer::Grace | Timer::Held(_) => return,
        };
        match core.waiting(key) {
            Some(Surrogate::Waiting(..)) => self.begin(core, key),
            Some(Surrogate::Dialling(_)) => dial::advance(core, key, None),
            Some(Surrogate::Resolving(_)) => dial::refuse(core, key, Refusal::ResolverFailed),
            Some(Surrogate::Offered(_)) | None => {}
        }
    }

    fn handle_association(&mut self, core: &mut CoreOf<Self>, event: &HopEvent<BaseAssociationId>) {
        match event {
            HopEvent::Up(id @ BaseAssociationId::Mobile(_)) => {
                tracing::info!(association = ?id, "association up");
                let key = core.hop.key_of(*id);
                self.present.insert(*id, key);
                self.update_published_ports(core, key);
            }
            HopEvent::Moved(id @ BaseAssociationId::Mobile(_), to) => {
                tracing::info!(association = ?id, %to, "association moved");
            }
            HopEvent::Lost(id @ BaseAssociationId::Mobile(_), reason) => {
                tracing::info!(association = ?id, reason, "association lost");
                let key = self.present.remove(*id);
                self.families.remove(*id);
                self.news.remove(*id);
                self.udp.end(&mut core.reactor, *id);
                if let Some(mobile) = key {
                    self.worths.forget(mobile);
                }
                self.update_published_ports(core, key);
            }
            _ => {}
        }
        if let Some(handoffs) = &mut self.handoffs {
            handoffs.handle_association(core, event);
        }
    }

    fn handle_message(&mut self, core: &mut CoreOf<Self>, id: BaseAssociationId, message: &[u8]) {
        if let (BaseAssociationId::Mobile(_), Some(Reach::Ask)) = (id, Reach::decode(message)) {
            return self.families.subscribe(core, id);
        }
        if self.news.handle(core, id, message) || self.transits.handle(core, id, message) {
            return;
        }
        let Some(handoffs) = &mut self.handoffs else { return };
        if let (Some(workers), false) = (&self.workers, matches!(id, BaseAssociationId::Mobile(_)))
            && let Some(from) = core.hop.key_of(id)
            && workers.pass_message_on(from, message)
        {
            return;
        }
        handoffs.handle_message(core, id, message);
    }

    fn handle_wanted(&mut self, core: &mut CoreOf<Self>, id: BaseAssociationId, wanted: SessionId) {
        if let Some(handoffs) = &mut self.handoffs {
            return handoffs.handle_wanted(core, id, wanted);
        }
        let now = core.now;
        if let Some((session, mut streams)) = core.session(id) {
            session.decline(now, &mut streams, wanted);
        }
    }

    fn advance(&mut self, core: &mut CoreOf<Self>) -> bool {
        while let Some((caller, refused)) = core.hop.poll_refused() {
            tracing::warn!("{}", handshake::refused(caller, &refused, self.key.as_ref()));
        }
        if let Some(workers) = &self.workers {
            workers.set_connections(core.connections.len());
            let (hop, mut turn) = core.turn();
            while let Some((caller, stray)) = hop.poll_stray() {
                match workers.pass_on(caller, stray) {
                    Passed::On => {}
                    Passed::Here(from, mut datagram) => {
                        hop.handle_stray(&mut turn, caller, from, &mut datagram);
                    }
                    Passed::Nobodys(from, key) => {
                        hop.refuse_stranger(&mut turn, caller, from, key);
                    }
                }
            }
        }
        self.udp.close_idle(core.now, &mut core.reactor);
        self.look_who_is_left(core.now);
        if self.news.next_timeout().is_some_and(|at| at <= core.now) {
            let load = self.load(core.connections.len());
            self.news.set_load(core, load);
        }
        let Self { renewals, exits, present, .. } = self;
        renewals.advance(core, &exits.mobiles().tickets, |id| present.key_of(id));
        let some = self.handoffs.as_mut().is_some_and(|handoffs| handoffs.advance(core));
        self.pass_left_on(core);
        if some {
            let mobiles: Vec<_> = self.published_ports.mobiles().collect();
            mobiles.into_iter().for_each(|mobile| self.update_published_ports(core, mobile));
        }
        some | self.families.advance(core)
    }

    fn next_timeout(&self) -> Option<Time> {
        let handoffs = self.handoffs.as_ref().and_then(Handoffs::next_timeout);
        let (families, udp) = (self.families.next_timeout(), self.udp.next_timeout());
        let own = [handoffs, families, udp, self.renewals.next_timeout()];
        let own = own.into_iter().chain([self.news.next_timeout(), self.drain_timeout()]);
        own.flatten().min()
    }

    fn handle_request(
        &mut self,
        core: &mut CoreOf<Self>,
        request: Request,
    ) -> Result<Reply, String> {
        let who = match request {
            Request::Reload {} => {
                let reload = Some(self.reload(core)?);
                return Ok(Reply { reload, ..Reply::default() });
            }
            Request::Drain { undo } => {
                let drain = Some(self.handle_drain(core, undo)?);
                return Ok(Reply { drain, ..Reply::default() });
            }
            Request::Priority { .. } => "priorities are set at the mobile, which tells its base",
            Request::Policy { .. } => "policies are set at the mobile, which tells its base",
            _ => "it is a mobile with [[bases]] that moves",
        };
        Err(format!("a base cannot do this: {who}"))
    }

    fn handle_reload(&mut self, core: &mut CoreOf<Self>) {
        // The log has the outcome.
        let _ = self.reload(core);
    }

    fn handle_workers(&mut self, core: &mut CoreOf<Self>) {
        self.workers.iter().for_each(Workers::drain);
        while let Some(message) = self.workers.as_ref().and_then(Workers::poll) {
            match message {
                Message::Datagram(caller, from, mut datagram) => {
                    let (hop, mut turn) = core.turn();
                    hop.handle_stray(&mut turn, caller, from, &mut datagram);
                }
                Message::Handoff(from, message) => {
                    if let Some(handoffs) = &mut self.handoffs {
                        handoffs.handle_passed(core.now, from, &message);
                    }
                }
                Message::Packets(bundle) => {
                    self.send_known(core, bundle.packets());
                }
                Message::Serve(allowed, members) => self.serve(core, &allowed, &members),
                Message::Drain(draining) => self.set_draining(core, draining),
                Message::Report(client) => {
                    let mut report = core.report(Self::NAME);
                    self.report(core, &mut report);
                    if let Some(workers) = &self.workers {
                        workers.report(client, report);
                    }
                }
                Message::Reported(client, report) => {
                    if let Some(workers) = &mut self.workers {
                        workers.add_report(client, *report);
                    }
                }
            }
        }
    }

    fn complete(&mut self, client: Key, report: Report) -> Option<Report> {
        let Some(workers) = &mut self.workers else { return Some(report) };
        workers.gather(client, report);
        None
    }

    fn poll_report(&mut self) -> Option<(Key, Report)> {
        self.workers.as_mut()?.poll_report()
    }

    fn report(&self, core: &CoreOf<Self>, report: &mut Report) {
        report.memory = Some(self.memory.report());
        report.draining = Some(self.news.is_draining());
        report.mobiles = Some(self.mobiles_here() as u64);
        report.tun = self.packets.as_ref().map(Packets::report);
        report.udp = self.udp.report();
        if let Some(handoffs) = &self.handoffs {
            report.peers = handoffs.peer_reports(core);
            report.handoffs = Some(handoffs.counters());
        }
    }

    fn drain(&mut self, core: &mut CoreOf<Self>) -> Option<Time> {
        // The others are stopped by the first, when all are empty.
        let is_first = self.workers.as_ref().is_none_or(|workers| workers.number() == 0);
        if !is_first || self.is_alone() || self.drain_for.is_zero() {
            return None;
        }
        self.drain.stopping = true;
        self.drain_all(core, true);
        Some(core.now + self.drain_for)
    }

    fn is_drained(&self) -> bool {
        self.is_empty()
    }

    fn stop(&mut self, core: &mut CoreOf<Self>) {
        self.workers.iter().for_each(Workers::stop);
        // Closing a listener takes it out of the epoll set.
        self.published_ports.clear();
        let (hop, mut turn) = core.turn();
        hop.mobiles.stop(&mut turn);
    }
}
