//! The mobile's end: one carrier, whatever network it is on.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use lasthop_control::past::{Counted, Progress};
use lasthop_control::{AssociationReport, PathReport};
use lasthop_hop::CloseReason;
use lasthop_hop::PacketLane;
use lasthop_hop::seal::PublicKey;
use lasthop_hop::{
    AssociationEvent, MobileEnd, MobileLink, PathId, PathStats, PathStatus, SavedPath, Unreachable,
};
use lasthop_kernel::reactor::Readiness;
use lasthop_kernel::slab::{Key, Slab};
use lasthop_kernel::turn::Turn;
use lasthop_units::{Bytes, LinkEvent, Time};

use super::{next_timeout, path_report, patience, progress, report, why};
use crate::carrier::{Carrier, Route};
use crate::handshake::{self, HandshakeFailure, Introduction};
use crate::hop::{AnyStreams, Hop, HopEvent, LinkWay, MobileHop};

/// A base that does not answer for so long may have moved: it is discovered again.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where the base is.
enum Whereabouts {
    /// Where [`MobileHop::set_base`] says, or the configuration.
    Told(Option<Route>),
    /// Where the first authentic answer came from, once there was one.
    Found(Option<Route>),
}

/// An error that the network has reported for the base, and when it came.
#[derive(Clone, Copy, Debug)]
struct NetworkError {
    what: Unreachable,
    at: Time,
}

/// The mobile's end.
pub(crate) struct DatagramMobile<K: MobileLink> {
    name: &'static str,
    machine: MobileEnd<K>,
    base_key: Option<PublicKey>,
    base: Whereabouts,
    /// Which way each link leads to it; those that are not said are direct.
    ways: Vec<LinkWay>,
    carrier: Box<dyn Carrier>,
    sockets: Slab<usize>,
    ports: Vec<u16>,
    events: VecDeque<HopEvent<()>>,
    /// The latest since the base answered or its address changed. It is only a hint, and expires.
    said: Option<NetworkError>,
    /// The session is on its way to another base.
    leaving: bool,
    /// That the base cannot be reached was reported.
    told_unreachable: bool,
    active: bool,
    now: Time,
    since: Time,
    report_at: Time,
    introduction: Option<Introduction>,
    /// Datagrams that had not opened when the base was last reported as unreachable.
    strange: u64,
    /// And replies to a handshake among them.
    unopened: u64,
    /// What its association had carried when it was last asked.
    counted: Counted,
}

impl<K> DatagramMobile<K>
where
    K: MobileLink<Address = Route> + 'static,
    MobileEnd<K>: Send,
{
    /// Runs `machine`, whose base is nowhere yet, over `carrier`, as the hop called `name`. Without a `base` it is where
    /// [`MobileHop::set_base`] sets; on a carrier that reaches everyone it is found. By `introduction` the base knows
    /// us, for people.
    pub(crate) fn new(
        name: &'static str,
        machine: MobileEnd<K>,
        carrier: Box<dyn Carrier>,
        base_key: Option<PublicKey>,
        base: Option<Route>,
        introduction: Option<Introduction>,
    ) -> Self {
        let base = match (base, carrier.everyone()) {
            (None, Some(_)) => Whereabouts::Found(None),
            _ => Whereabouts::Told(base),
        };
        Self {
            name,
            machine,
            base_key,
            base,
            ways: Vec::new(),
            carrier,
            sockets: Slab::new(),
            ports: Vec::new(),
            events: VecDeque::new(),
            said: None,
            leaving: false,
            told_unreachable: false,
            active: false,
            now: Time::ZERO,
            since: Time::ZERO,
            report_at: Time::NEVER,
            introduction,
            strange: 0,
            unopened: 0,
            counted: Counted::default(),
        }
    }

    /// Why the base is not reached.
    fn why_silent(&mut self, now: Time) -> String {
        let strange = self.machine.refused();
        let is_strange = strange > std::mem::replace(&mut self.strange, strange);
        let unopened = self.machine.unopened();
        let is_unopened = unopened > std::mem::replace(&mut self.unopened, unopened);
        let said = self.said.filter(|said| now.since(said.at) < PATIENCE);
        let (at, stands) = (self.shown_base(), self.machine.is_up());
        let heard = match said {
            _ if is_unopened => HandshakeFailure::Unopened,
            _ if is_strange && !stands => HandshakeFailure::Strange,
            Some(said) => HandshakeFailure::Network(said.what),
            None if stands => {
                return format!("nothing comes from {at} any more: is the hop or the base gone?");
            }
            None => HandshakeFailure::Nothing,
        };
        handshake::unanswered(heard, &at, self.introduction)
    }

    fn is_silent(&self) -> bool {
        !self.machine.is_up() || self.machine.stats().silent
    }

    /// Takes the network's errors for datagrams to the base. Where there are several links each may say so of itself: only
    /// what concerns the base counts.
    fn poll_network_errors(&mut self, now: Time) {
        let Some(base) = self.known_base() else { return };
        let links = self.carrier.links();
        for link in 0..links {
            while let Some(what) = self.carrier.poll_unreachable(base.by(link)) {
                tracing::debug!(%what, link, "the network says");
                (self.said, self.now) = (Some(NetworkError { what, at: now }), now);
                let counts = links == 1 || what.is_hard();
                if counts && !(self.leaving && self.machine.is_up()) {
                    self.machine.handle_unreachable(now, what);
                }
            }
        }
        let unreachable = self.machine.unreachable(now).is_some();
        if unreachable && !self.told_unreachable {
            // The base may have another address by now.
            self.report_at = now;
        }
        self.told_unreachable = unreachable;
    }

    /// The base is here, by whichever link.
    fn tell_base(&mut self, now: Time, base: Route) {
        for link in 0..self.carrier.links() {
            self.tell_link(now, link, base);
        }
    }

    /// The base is here, by one link.
    fn tell_link(&mut self, now: Time, link: usize, base: Route) {
        let (path, way) = (path_of(link), self.ways.get(link).copied().unwrap_or_default());
        let grant = match way {
            LinkWay::Through(_, grant) => Some(grant),
            LinkWay::Direct | LinkWay::None => None,
        };
        self.machine.set_transit(path, grant);
        let route = self.route_by(link, base);
        self.machine.set_base_address(now, path, route);
    }

    /// Asks everyone for the base from here on, if it was found that way.
    fn rediscover(&mut self, now: Time) {
        if let (Whereabouts::Found(found), Some(everyone)) =
            (&mut self.base, self.carrier.everyone())
        {
            *found = None;
            self.machine.set_base_address(now, PathId::FIRST, everyone);
        }
    }
}

/// Each link is a path.
fn path_of(link: usize) -> PathId {
    PathId(u8::try_from(link).unwrap_or(u8::MAX))
}

/// Hands a datagram to the machine. True if it proves that its sender is the base.
fn handle_datagram<K: MobileLink>(
    machine: &mut MobileEnd<K>,
    now: Time,
    from: K::Address,
    datagram: &mut [u8],
) -> bool {
    let heard = |machine: &MobileEnd<K>| (machine.is_up(), machine.stats().datagrams_received);
    let before = heard(machine);
    machine.handle_datagram(now, from, datagram);
    machine.is_up() && heard(machine) != before
}

impl<K> Hop for DatagramMobile<K>
where
    K: MobileLink<Address = Route> + 'static,
    MobileEnd<K>: Send,
{
    type Id = ();

    fn name(&self) -> &'static str {
        self.name
    }

    fn handle_ready(&mut self, turn: &mut Turn<'_>, key: Key, readiness: Readiness) {
        if let Some(n) = self.sockets.get(key) {
            self.carrier.ready(turn, *n, readiness);
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        let below = next_timeout(self.carrier.as_ref(), self.machine.next_timeout(), self.now);
        [below, Some(self.report_at)].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        self.now = turn.now;
        self.carrier.handle_timeout(turn);
        self.machine.handle_timeout(turn.now);
        self.active = true;
        if self.report_at <= turn.now {
            self.report_at = turn.now + PATIENCE;
            if self.is_silent() || self.told_unreachable {
                let why = self.why_silent(turn.now);
                self.rediscover(turn.now);
                self.events.push_back(HopEvent::Unreachable((), why));
            }
        }
    }

    fn pump(&mut self, turn: &mut Turn<'_>) {
        self.poll_network_errors(turn.now);
        let before = self.received_count();
        let (machine, seen) = (&mut self.machine, &mut self.now);
        let (mut some, base) = (false, &mut self.base);
        self.carrier.receive(&turn.clock, &mut |arrived, from, datagram| {
            some = true;
            // The machine must not see time go back.
            *seen = arrived.max(*seen);
            match base {
                Whereabouts::Found(found @ None) => {
                    if handle_datagram(machine, *seen, from, datagram) {
                        *found = Some(from);
                        machine.set_base_address(*seen, PathId::FIRST, from);
                    }
                }
                _ => machine.handle_datagram(*seen, from, datagram),
            }
        });
        let now = self.now.max(turn.now);
        self.now = now;
        while let Some((link, event)) = self.carrier.poll_link_event() {
            self.machine.handle_link_event(now, path_of(link), event);
        }
        self.active |= some;
        if self.received_count() != before {
            self.said = None;
        }
        while let Some(event) = self.machine.poll_association_event() {
            let event = match event {
                AssociationEvent::Up => {
                    (self.since, self.said) = (now, None);
                    for port in &self.ports {
                        self.machine.listen(*port);
                    }
                    HopEvent::Up(())
                }
                AssociationEvent::Moved => HopEvent::Moved((), self.shown_base()),
                AssociationEvent::Lost(reason) => {
                    self.rediscover(now);
                    HopEvent::Lost((), why(reason))
                }
            };
            self.events.push_back(event);
        }
    }

    fn flush(&mut self, turn: &mut Turn<'_>) {
        let (machine, now) = (&mut self.machine, turn.now);
        self.now = now;
        self.carrier.send(turn, &mut |out| machine.poll_transmit(now, out).map(|t| (t.to, t.len)));
    }

    fn patience(&self, (): ()) -> Duration {
        patience(&self.machine.stats())
    }

    fn progress(&mut self, (): ()) -> Option<Progress> {
        Some(progress(&mut self.counted, &self.machine.stats()))
    }

    fn poll_event(&mut self) -> Option<HopEvent<()>> {
        self.events.pop_front()
    }

    fn poll_active(&mut self) -> Option<()> {
        std::mem::take(&mut self.active).then_some(())
    }

    fn is_active(&self) -> bool {
        self.carrier.readable()
    }

    fn streams(&mut self, (): ()) -> Option<&mut AnyStreams> {
        Some(&mut self.machine)
    }

    fn packets(&mut self, (): ()) -> Option<&mut PacketLane> {
        self.machine.packets()
    }

    fn packets_so_far(&mut self, (): ()) -> Option<&mut PacketLane> {
        self.machine.packets_so_far()
    }

    fn remove_association(&mut self, _turn: &mut Turn<'_>, (): ()) {}

    fn close(&mut self, turn: &mut Turn<'_>) {
        self.machine.close(CloseReason::Shutdown);
        self.flush(turn);
    }

    fn reports(&self, now: Time) -> Vec<AssociationReport> {
        let stats = self.machine.stats();
        let (state, age) = match (self.machine.is_up(), stats.silent) {
            (true, false) => ("up", now - self.since),
            (true, true) => ("silent", now - self.since),
            (false, _) => ("connecting", Duration::ZERO),
        };
        let address = self.known_base().map(|route| self.carrier.show(route));
        let report = report(0, self.base_key, address, state, age, &stats);
        vec![AssociationReport { paths: self.path_reports(), ..report }]
    }

    fn garbage(&self) -> u64 {
        self.machine.refused()
    }
}

impl<K: MobileLink> DatagramMobile<K> {
    /// Of several links each is reported.
    fn path_reports(&self) -> Vec<PathReport> {
        if self.carrier.links() == 1 {
            return Vec::new();
        }
        let (base, carrier) = (self.known_base(), &self.carrier);
        let report = |stats: PathStats| {
            let link = usize::from(stats.id.0);
            let route = base.map(|base| self.route_by(link, base));
            let address =
                route.filter(|route| *route != Route::Nowhere).map(|route| carrier.show(route));
            path_report(&stats, |id| carrier.link_name(usize::from(id.0)), address)
        };
        self.machine.path_stats().map(report).collect()
    }

    /// Where datagrams go that are to reach the base by a link.
    fn route_by(&self, link: usize, base: Route) -> Route {
        match self.ways.get(link).copied().unwrap_or_default() {
            LinkWay::Direct => base.by(link),
            LinkWay::None => Route::Nowhere,
            LinkWay::Through(at, _) => {
                self.carrier.route_to(at).map_or(Route::Nowhere, |route| route.by(link))
            }
        }
    }

    fn known_base(&self) -> Option<Route> {
        match self.base {
            Whereabouts::Told(base) | Whereabouts::Found(base) => base,
        }
    }

    fn shown_base(&self) -> String {
        self.carrier.show(self.known_base().unwrap_or(Route::Nowhere))
    }
}

impl<K> MobileHop for DatagramMobile<K>
where
    K: MobileLink<Address = Route> + 'static,
    MobileEnd<K>: Send,
{
    fn start(&mut self, turn: &mut Turn<'_>) -> io::Result<()> {
        (self.now, self.report_at) = (turn.now, turn.now + PATIENCE);
        let sockets = &mut self.sockets;
        self.carrier.watch(turn, &mut |n| sockets.insert(n))?;
        if let Some(base) = self.known_base() {
            self.tell_base(turn.now, base);
        }
        self.rediscover(turn.now);
        Ok(())
    }

    fn is_up(&self) -> bool {
        self.machine.is_up()
    }

    fn greet(&mut self, now: Time, greeting: &[u8]) {
        self.now = now;
        self.machine.greet(now, greeting);
    }

    fn set_base(&mut self, turn: &mut Turn<'_>, addr: SocketAddr) {
        if let (Some(route), Whereabouts::Told(base)) =
            (self.carrier.route_to(addr), &mut self.base)
            && base.replace(route) != Some(route)
        {
            (self.said, self.now) = (None, turn.now);
            self.tell_base(turn.now, route);
        }
    }

    fn add_link(&mut self, turn: &mut Turn<'_>, name: &str, interface: &str) {
        self.now = turn.now;
        let sockets = &mut self.sockets;
        self.carrier.add_link(turn, name, interface, &mut |n| sockets.insert(n));
        if let Some(base) = self.known_base() {
            self.tell_link(turn.now, self.carrier.links() - 1, base);
        }
    }

    fn set_way(&mut self, turn: &mut Turn<'_>, link: usize, way: LinkWay) {
        if self.ways.len() <= link {
            self.ways.resize(link + 1, LinkWay::Direct);
        }
        if std::mem::replace(&mut self.ways[link], way) == way {
            return;
        }
        self.now = turn.now;
        if let Some(base) = self.known_base() {
            self.tell_link(turn.now, link, base);
        }
    }

    fn roam(&mut self, turn: &mut Turn<'_>, link: usize) {
        self.now = turn.now;
        self.carrier.renew(turn, link);
        self.machine.handle_roamed(turn.now, path_of(link));
    }

    fn set_link_status(&mut self, turn: &mut Turn<'_>, link: usize, status: PathStatus) {
        self.now = turn.now;
        self.machine.set_path_status(turn.now, path_of(link), status);
    }

    fn carried(&self) -> Vec<(usize, Bytes)> {
        let of = |path: PathStats| {
            let bytes = path.bytes_sent.get() + path.bytes_received.get();
            (usize::from(path.id.0), Bytes::new(bytes))
        };
        self.machine.path_stats().map(of).collect()
    }

    fn handle_link_event(&mut self, turn: &mut Turn<'_>, link: usize, event: LinkEvent) {
        self.now = turn.now;
        if event == LinkEvent::Down {
            // Its interface may be gone, or have another name.
            self.carrier.renew(turn, link);
        }
        self.machine.handle_link_event(turn.now, path_of(link), event);
    }

    fn silent_for(&self, now: Time) -> Option<Duration> {
        self.machine.silent_for(now)
    }

    fn set_leaving(&mut self, leaving: bool) {
        self.leaving = leaving;
    }

    fn unreachable(&self, now: Time) -> Option<Unreachable> {
        self.machine.unreachable(now)
    }

    fn received_count(&self) -> u64 {
        self.machine.stats().datagrams_received
    }

    fn in_round_trip(&self) -> Bytes {
        let stats = self.machine.stats();
        stats.delivery_rate.bytes_in(stats.min_rtt)
    }

    fn saved_path(&self) -> Option<SavedPath> {
        self.machine.saved_path()
    }

    fn resume_path(&mut self, now: Time, saved: SavedPath) {
        self.now = now;
        self.machine.resume_path(now, saved);
    }

    fn listen(&mut self, ports: &[u16]) {
        self.ports = ports.to_vec();
        if self.machine.is_up() {
            for port in ports {
                self.machine.listen(*port);
            }
        }
    }
}
