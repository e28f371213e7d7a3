//! What the helper does, and what it did for whom.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use lasthop_kernel::foreign::{allow_foreign, socket_at};
use lasthop_kernel::insist::insist;
use lasthop_kernel::netlink::SetChange;
use lasthop_kernel::network::Network;
use lasthop_kernel::nft;
use lasthop_kernel::sockopt::{self, Repair};
use lasthop_kernel::transparent::{Exceptions, Interception, Numbers};
use lasthop_units::gather;
use rustix::net::{SocketType, ipproto, sockopt as options};

use super::super::message::{Answer, Request, SocketRequest};
use super::super::{Flow, Route, is_unicast};
use super::announce::Announcements;
use super::freeze::{self, Freezer};
use super::held::{HeldFlows, Mourned};
use super::ways::Ways;

/// What stands in the kernel for one client.
#[derive(Default, Debug)]
pub(super) struct Holdings {
    frozen: BTreeSet<Flow>,
    routed: BTreeMap<IpAddr, Route>,
    announced: BTreeSet<(IpAddr, String)>,
    held: HeldFlows,
    guards: bool,
    /// It goes in good order.
    said_goodbye: bool,
}

/// What the helper can do.
#[derive(Debug)]
pub(super) struct Duty {
    permitted: Vec<Network>,
    /// Its client has started it, and says what is permitted.
    obeys: bool,
    freezer: Freezer,
    ways: Ways,
    announcements: Announcements,
    guard: Option<Interception>,
    guarded: Vec<Network>,
    exceptions: Exceptions,
    mourned: Vec<Mourned>,
}

/// An answer, and sockets that go with it.
type Outcome = (Answer, Vec<OwnedFd>);

impl Duty {
    /// Ready to serve; what an earlier helper left is removed.
    pub(super) fn new(permitted: &[Network]) -> Self {
        let ways = Ways::new(permitted);
        // An earlier helper's client may have given away what was frozen since.
        if let Err(error) = nft::apply(&Exceptions::resetting_nobody()) {
            tracing::debug!(%error, "no earlier helper answers strays");
        }
        Self {
            permitted: permitted.to_vec(),
            obeys: false,
            freezer: Freezer::new(),
            ways,
            announcements: Announcements::new(permitted),
            guard: None,
            guarded: Vec::new(),
            exceptions: Exceptions::default(),
            mourned: Vec::new(),
        }
    }

    /// Its client has started it, and may say for what it works.
    pub(super) fn obey(&mut self) {
        self.obeys = true;
    }

    /// Carries out a request, if it is allowed.
    pub(super) fn perform(
        &mut self,
        holdings: &mut Holdings,
        request: Request,
        fds: &[OwnedFd],
    ) -> Outcome {
        let done = match request {
            Request::Repair(mode) => return (self.repair(fds, mode), Vec::new()),
            Request::Sockets(wanted) => return self.sockets(&wanted),
            Request::Slots => {
                return match holdings.held.begin() {
                    Ok(slots) => (Answer::Done, vec![slots]),
                    Err(why) => (Answer::failed(&why), Vec::new()),
                };
            }
            Request::Hold(flow) => {
                let held = self.permit_flows(&[flow]).and_then(|()| holdings.held.hold(flow));
                return (held.map_or_else(|why| Answer::failed(&why), Answer::Slot), Vec::new());
            }
            Request::SlotsAgain(held) => {
                let flows: Vec<Flow> = held.iter().map(|(flow, _)| *flow).collect();
                self.permit_flows(&flows).and_then(|()| holdings.held.begin_again(fds, &held))
            }
            Request::Release(flow) => holdings.held.release(&flow),
            Request::Permit(networks) => return (self.set_permitted(networks), Vec::new()),
            Request::Hello => Ok(()),
            Request::Freeze(flows) => self.freeze(holdings, &flows),
            Request::Thaw(flows) => self.thaw(holdings, &flows),
            Request::Guard(addresses) => self.guard(holdings, &addresses),
            Request::Answer(addresses) => self.answer(holdings, addresses),
            Request::Route(address, route) => self.route(holdings, address, route),
            Request::Unroute(address) => self.unroute(holdings, address),
            Request::Announce(address, interface) => self.announce(holdings, address, interface),
            Request::Retract(address, interface) => self.retract(holdings, address, interface),
            Request::Goodbye => {
                holdings.said_goodbye = true;
                let all = std::mem::take(holdings);
                self.clean(Holdings { said_goodbye: true, ..all });
                Ok(())
            }
        };
        (done.map_or_else(|why| Answer::failed(&why), |()| Answer::Done), Vec::new())
    }

    /// Removes what stands for a client.
    pub(super) fn clean(&mut self, holdings: Holdings) {
        if !holdings.said_goodbye {
            self.mourned.extend(Mourned::of(holdings.held));
        }
        let flows: Vec<Flow> = holdings.frozen.into_iter().collect();
        let mut outcomes = vec![insist(|| self.freezer.thaw(&flows))];
        for (address, interface) in holdings.announced {
            outcomes.push(insist(|| self.announcements.retract(address, &interface)));
        }
        for (address, route) in holdings.routed {
            // Connections of a mobile that has moved on may live on its route.
            if holdings.said_goodbye || !matches!(route, Route::Via(_)) {
                outcomes.push(insist(|| self.ways.unroute(address)));
            }
        }
        if holdings.guards {
            self.guard = None;
            self.guarded.clear();
            self.exceptions = Exceptions::default();
        }
        outcomes.push(self.update_guard());
        for error in outcomes.into_iter().filter_map(Result::err) {
            tracing::warn!(%error, "cleanup incomplete: the next start removes the rest");
        }
    }

    /// How long until [`handle_timeout`](Self::handle_timeout) has something to do.
    pub(super) fn next_timeout(&self) -> Option<Duration> {
        let mourned = self.mourned.iter().map(Mourned::next).min();
        let mourned = mourned.map(|next| next.saturating_duration_since(Instant::now()));
        self.announcements.next().into_iter().chain(mourned).min()
    }

    /// Makes announcements that are due, and ends sockets of clients that are gone.
    pub(super) fn handle_timeout(&mut self) {
        self.announcements.handle_timeout();
        self.mourned.retain_mut(|mourned| !mourned.handle_timeout());
    }

    /// Sockets of clients that are gone have not ended yet.
    pub(super) fn mourns(&self) -> bool {
        !self.mourned.is_empty()
    }

    fn permit(&self, address: IpAddr) -> Result<(), String> {
        if !is_unicast(address) {
            return Err(format!("{address} is no address of a mobile"));
        }
        if self.permitted.iter().any(|n| n.contains(address)) {
            return Ok(());
        }
        Err(format!(
            "{address} is not among the addresses that the helper was started for (--address)"
        ))
    }

    fn permit_network(&self, network: &Network) -> Result<(), String> {
        let (first, bits) = network.prefix();
        let within = |n: &Network| n.prefix().1 <= bits && n.contains(first);
        if self.permitted.iter().any(within) {
            return Ok(());
        }
        Err(format!("{network} is not among what the helper was started for (--address)"))
    }

    /// Works for these from here on, and no others, where its client may say so. For each whether it does.
    fn set_permitted(&mut self, networks: Vec<Network>) -> Answer {
        if self.obeys {
            self.permitted.clone_from(&networks);
        }
        let refused = |network| self.permit_network(network).map_or(libc::EACCES, |()| 0);
        Answer::Each(networks.iter().map(refused).collect())
    }

    /// Whether what stands for an address may be undone: nothing does where it was never permitted.
    fn permit_undoing(&self, address: IpAddr, stands: bool) -> bool {
        stands || self.permit(address).is_ok()
    }

    fn permit_flows(&self, flows: &[Flow]) -> Result<(), String> {
        flows.iter().try_for_each(|flow| {
            if !flow.is_sensible() {
                return Err(format!("{} to {} is no connection", flow.local, flow.remote));
            }
            self.permit(flow.local.ip())
        })
    }

    fn repair(&self, fds: &[OwnedFd], mode: Repair) -> Answer {
        let set = |fd: &OwnedFd| -> io::Result<()> {
            self.check_socket(fd.as_fd())?;
            sockopt::set_repair(fd.as_fd(), mode)
        };
        Answer::Each(fds.iter().map(|fd| errno(&set(fd))).collect())
    }

    /// Only TCP, and only of a mobile's address.
    fn check_socket(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let refused = || io::Error::from(io::ErrorKind::PermissionDenied);
        let is_tcp = options::socket_type(fd)? == SocketType::STREAM
            && options::socket_protocol(fd)? == Some(ipproto::TCP);
        if !is_tcp {
            return Err(refused());
        }
        let local = rustix::net::getsockname(fd)?;
        let local = SocketAddr::try_from(local).map_err(io::Error::from)?.ip().to_canonical();
        self.permit(local).map_err(|_| refused())
    }

    fn sockets(&self, wanted: &[SocketRequest]) -> Outcome {
        let mut made = Vec::new();
        let errors = wanted
            .iter()
            .map(|wanted| {
                let socket = self.socket(wanted);
                let error = errno(&socket);
                made.extend(socket);
                error
            })
            .collect();
        (Answer::Each(errors), made)
    }

    fn socket(&self, wanted: &SocketRequest) -> io::Result<OwnedFd> {
        let SocketRequest { local, repair } = *wanted;
        if self.permit(local.ip()).is_err() {
            return Err(io::Error::from_raw_os_error(libc::EACCES));
        }
        let Some((receive, send)) = repair else { return socket_at(local) };
        let fd = lasthop_kernel::tcp::socket(local.ip())?;
        allow_foreign(&fd, local.ip())?;
        // In repair a port is had even if another connection has it.
        sockopt::set_repair(fd.as_fd(), Repair::On)?;
        sockopt::force_buffers(fd.as_fd(), receive, send)?;
        rustix::net::bind(&fd, &local)?;
        Ok(fd)
    }

    fn freeze(&mut self, holdings: &mut Holdings, flows: &[Flow]) -> Result<(), String> {
        self.permit_flows(flows)?;
        if holdings.frozen.len() + flows.len() > freeze::FROZEN_MAX {
            return Err(format!("more than {} connections are frozen", freeze::FROZEN_MAX));
        }
        // Where their connections will be is open from here on.
        let moving: BTreeSet<IpAddr> = gather(flows.iter().map(|flow| flow.local.ip()));
        let answered = &self.exceptions.answered - &moving;
        let then = Exceptions { answered, ..self.exceptions.clone() };
        self.freezer.freeze(flows, self.changes(&then))?;
        self.exceptions = then;
        holdings.frozen.extend(flows);
        Ok(())
    }

    fn thaw(&mut self, holdings: &mut Holdings, flows: &[Flow]) -> Result<(), String> {
        let own: Vec<Flow> =
            flows.iter().filter(|flow| holdings.frozen.contains(flow)).copied().collect();
        insist(|| self.freezer.thaw(&own))?;
        own.iter().for_each(|flow| {
            holdings.frozen.remove(flow);
        });
        Ok(())
    }

    fn guard(&mut self, holdings: &mut Holdings, networks: &[Network]) -> Result<(), String> {
        networks.iter().try_for_each(|network| self.permit_network(network))?;
        if self.guard.is_some() && !holdings.guards {
            return Err("another client has its mobiles' addresses guarded".into());
        }
        let exceptions = self.exceptions.clone();
        let before = (std::mem::replace(&mut self.guarded, networks.to_vec()), exceptions);
        self.exceptions.away = self.away();
        let done = match &mut self.guard {
            Some(guard) => guard.renew(Numbers::BASE, networks, &self.exceptions),
            None => Interception::base(Numbers::BASE, networks, &self.exceptions).map(|guard| {
                self.guard = Some(guard);
            }),
        };
        match done {
            // Only whoever has it takes it along at his end: another client may have it by then.
            Ok(()) => holdings.guards = true,
            Err(_) => (self.guarded, self.exceptions) = before,
        }
        done.map_err(|e| e.to_string())
    }

    /// Guarded addresses whose packets another base gets.
    fn away(&self) -> BTreeSet<IpAddr> {
        let is_guarded = |address: &IpAddr| self.guarded.iter().any(|n| n.contains(*address));
        gather(self.ways.leading_away().filter(is_guarded))
    }

    fn answer(&mut self, holdings: &Holdings, addresses: Vec<IpAddr>) -> Result<(), String> {
        addresses.iter().try_for_each(|address| self.permit(*address))?;
        if !holdings.guards {
            return Err("nothing is guarded, so nothing is answered".into());
        }
        let answered = gather(addresses);
        self.except(Exceptions { answered, ..self.exceptions.clone() })
    }

    fn except(&mut self, then: Exceptions) -> Result<(), String> {
        let changes = self.changes(&then);
        if !changes.is_empty() {
            insist(|| self.freezer.change(&changes))?;
        }
        self.exceptions = then;
        Ok(())
    }

    /// What has to change in the table of the guard, if there is one: one that comes has all.
    fn changes(&self, then: &Exceptions) -> Vec<SetChange> {
        let guarded = self.guard.is_some();
        if guarded { self.exceptions.change(then) } else { Vec::new() }
    }

    fn route(
        &mut self,
        holdings: &mut Holdings,
        address: IpAddr,
        route: Route,
    ) -> Result<(), String> {
        self.permit(address)?;
        insist(|| self.ways.route(address, &route))?;
        holdings.routed.insert(address, route);
        self.update_guard()
    }

    fn unroute(&mut self, holdings: &mut Holdings, address: IpAddr) -> Result<(), String> {
        if !self.permit_undoing(address, holdings.routed.contains_key(&address)) {
            return Ok(());
        }
        insist(|| self.ways.unroute(address))?;
        holdings.routed.remove(&address);
        self.update_guard()
    }

    /// What another base gets passes the guard.
    fn update_guard(&mut self) -> Result<(), String> {
        if self.guard.is_none() {
            return Ok(());
        }
        self.except(Exceptions { away: self.away(), ..self.exceptions.clone() })
    }

    fn announce(
        &mut self,
        holdings: &mut Holdings,
        address: IpAddr,
        interface: String,
    ) -> Result<(), String> {
        self.permit(address)?;
        // What fails may stand in part.
        holdings.announced.insert((address, interface.clone()));
        insist(|| self.announcements.announce(address, &interface))
    }

    fn retract(
        &mut self,
        holdings: &mut Holdings,
        address: IpAddr,
        interface: String,
    ) -> Result<(), String> {
        let announced = (address, interface);
        if !self.permit_undoing(address, holdings.announced.contains(&announced)) {
            return Ok(());
        }
        insist(|| self.announcements.retract(address, &announced.1))?;
        holdings.announced.remove(&announced);
        Ok(())
    }
}

fn errno<T>(outcome: &io::Result<T>) -> i32 {
    match outcome {
        Ok(_) => 0,
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            e.raw_os_error().unwrap_or(libc::EACCES)
        }
        Err(e) => e.raw_os_error().unwrap_or(libc::EIO),
    }
}

#[cfg(test)]
mod tests {
    use lasthop_kernel::lock::Lock;
    use lasthop_kernel::netns::{Netns, NetnsError};

    use super::*;

    /// A client that has lost its connection may be found to be gone after it has come back.
    #[test]
    fn a_client_that_did_not_get_the_guard_takes_none_along() {
        let Some(netns) = lasthop_testing::or_skip(Netns::anonymous(), NetnsError::is_unavailable)
        else {
            return;
        };
        netns.ip("link set lo up\n").unwrap();
        let guarded = || {
            let own: Network = IpAddr::from([10, 9, 0, 7]).into();
            let mut duty = Duty::new(&[own]);
            let (mut first, mut second) = (Holdings::default(), Holdings::default());
            let guard = |duty: &mut Duty, client: &mut Holdings| {
                duty.perform(client, Request::Guard(vec![own]), &[]).0
            };
            let taken = Lock::take("transparent-base", Duration::ZERO).unwrap();
            assert!(matches!(guard(&mut duty, &mut first), Answer::Failed(_)));
            drop(taken);
            assert!(matches!(guard(&mut duty, &mut second), Answer::Done));
            duty.clean(first);
            assert!(duty.guard.is_some());
            duty.clean(second);
            assert!(duty.guard.is_none());
        };
        netns.enter(guarded).unwrap();
    }
}
