//! A base's UDP sockets for its mobiles' applications: one for each association of an application, by
//! which its datagrams leave wherever they go, and whoever answers reaches it (RFC 4787 REQ-1, REQ-8).

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};

use lasthop_control::UdpReport;
use lasthop_hop::PacketLane;
use lasthop_hop::seal::PublicKey;
use lasthop_kernel::mmsg::Inbox;
use lasthop_kernel::reactor::Reactor;
use lasthop_kernel::turn::Source;
use lasthop_kernel::{tcp, udp};
use lasthop_session::flow_worth::FlowWorth;
use lasthop_session::udp_relay::UdpRecord;
use lasthop_session::udp_sockets::{BaseSockets, Limits, SocketNumber};
use lasthop_session::{Refusal, Target};
use lasthop_units::Time;

use super::BaseConfig;
use super::admitted::Admitted;
use super::datagram_names::{DatagramNames, Known, Waiting};
use super::packets::Packets;
use super::told_worths::ToldWorths;
use crate::backhaul::{BaseAssociationId, WithPeers};
use crate::config::HopKind;
use crate::dial::{self, Gate};
use crate::driver::{Asker, Client, Core};
use crate::hop::Hop;
use crate::packets;
use crate::packets::OWN;
use crate::resolve::Resolver;
use crate::udp_relay::Records;

/// Sockets of all mobiles, for each that one may have.
const MOBILES: usize = 16;

/// What a datagram needs on its way out.
struct World<'a> {
    now: Time,
    reactor: &'a mut Reactor<Source>,
    resolver: &'a Resolver<Client<BaseAssociationId>, Asker>,
    client: Client<BaseAssociationId>,
    gate: &'a dyn Gate,
}

/// The UDP sockets of a worker's mobiles.
pub(super) struct UdpSockets {
    /// None is served otherwise.
    served: bool,
    sockets: BaseSockets<BaseAssociationId, u64>,
    kernel: BTreeMap<u64, udp::Socket>,
    /// The latest socket's number.
    latest: u64,
    names: DatagramNames<BaseAssociationId>,
    admitted: Admitted,
    inbox: Inbox,
    records: Records,
}

/// Whether a base serves them: the hop has to carry packets.
pub(super) fn are_served(config: &BaseConfig) -> bool {
    config.hop == HopKind::Srp && config.limits.udp_sockets() > 0
}

impl UdpSockets {
    /// One of so many workers' sockets; none yet.
    pub(super) fn new(config: &BaseConfig) -> Self {
        let per_mobile = config.limits.udp_sockets().max(1);
        let total = (per_mobile.saturating_mul(MOBILES) / config.workers.max(1)).max(per_mobile);
        Self {
            served: are_served(config),
            sockets: BaseSockets::new(Limits {
                per_mobile,
                total,
                idle: config.limits.udp_idle().0,
            }),
            kernel: BTreeMap::new(),
            latest: 0,
            names: DatagramNames::new(),
            admitted: Admitted::default(),
            inbox: udp::inbox(),
            records: Records::ruled_by(&config.packets),
        }
    }

    pub(super) fn report(&self) -> Option<UdpReport> {
        self.served.then(|| self.records.counts.report(self.sockets.len()))
    }

    /// When a socket has been idle for too long.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.sockets.next_timeout()
    }

    /// Closes those that have been idle for too long.
    pub(super) fn close_idle(&mut self, now: Time, reactor: &mut Reactor<Source>) {
        while let Some(number) = self.sockets.pop_idle(now) {
            self.close(reactor, number);
        }
    }

    /// Closes those of an association that is over.
    pub(super) fn end(&mut self, reactor: &mut Reactor<Source>, id: BaseAssociationId) {
        self.names.end(id);
        for number in self.sockets.end(id) {
            self.close(reactor, number);
        }
    }

    fn close(&mut self, reactor: &mut Reactor<Source>, number: u64) {
        if let Some(socket) = self.kernel.remove(&number) {
            socket.close(reactor);
        }
    }

    /// Takes what has come by the lane of an association with a mobile: IP packets, which are `packets`' to
    /// hand on, and records.
    pub(super) fn deliver_packets<W>(
        &mut self,
        core: &mut Core<WithPeers, W>,
        (id, mobile): (BaseAssociationId, Option<PublicKey>),
        (mut packets, worths): (Option<&mut Packets>, &mut ToldWorths),
        gate: &dyn Gate,
    ) {
        let client = mobile.map_or(Client::Association(id), Client::Mobile);
        let Core { now, hop, reactor, resolver, .. } = core;
        let Some(lane) = hop.packets_so_far(id) else { return };
        let mut world = World { now: *now, reactor, resolver, client, gate };
        while let Some((first, _)) = lane.front() {
            match (&mut packets, mobile) {
                _ if FlowWorth::is_meant(first) => {
                    if mobile.is_none_or(|mobile| worths.handle(mobile, first).is_err()) {
                        self.records.counts.refuse("malformed");
                    }
                    lane.pop();
                }
                _ if !packets::is_ip(first) => self.deliver(&mut world, id, lane),
                (Some(packets), Some(mobile)) => packets.deliver(*now, mobile, lane, gate),
                _ => {
                    lane.pop();
                    // There is no device for it.
                    self.records.counts.refuse("no device");
                }
            }
        }
    }

    /// A name to which datagrams go was resolved: what has waited for it goes on.
    pub(super) fn handle_name<W>(
        &mut self,
        core: &mut Core<WithPeers, W>,
        number: u64,
        addresses: io::Result<Vec<SocketAddr>>,
        gate: &dyn Gate,
    ) {
        let Core { now, hop, reactor, resolver, .. } = core;
        let client = Client::Own;
        let mut world = World { now: *now, reactor, resolver, client, gate };
        self.handle_answer(&mut world, number, addresses, hop);
    }

    /// Takes the record of a UDP socket that a mobile has sent next.
    fn deliver(&mut self, world: &mut World<'_>, id: BaseAssociationId, lane: &mut PacketLane) {
        let Some((bytes, _)) = lane.front() else { return };
        let undelivered = match UdpRecord::decode(bytes) {
            Ok(UdpRecord::Datagram { socket, remote, payload }) => {
                let sent = self.forward(world, id, socket, &remote, payload);
                sent.err().map(|refusal| UdpRecord::Undelivered { socket, remote, refusal })
            }
            Ok(UdpRecord::Close { socket }) => {
                if let Some(number) = self.sockets.close(world.now, id, socket) {
                    self.close(world.reactor, number);
                }
                None
            }
            Ok(UdpRecord::Undelivered { .. }) | Err(_) => {
                self.records.counts.refuse("malformed");
                None
            }
        };
        lane.pop();
        if let Some(undelivered) = undelivered {
            self.records.send(world.now, Some(lane), OWN, &undelivered);
        }
    }

    /// Sends a datagram on, at once if its target is an address, or a name of which it is known.
    fn forward(
        &mut self,
        world: &mut World<'_>,
        id: BaseAssociationId,
        socket: SocketNumber,
        remote: &Target,
        payload: &[u8],
    ) -> Result<(), Refusal> {
        if !self.served {
            self.records.counts.refuse("not served");
            return Err(Refusal::NotAllowed);
        }
        let (name, port) = match remote {
            Target::Addr(to) => return self.send(world, id, socket, tcp::canonical(*to), payload),
            Target::Name(name, port) => (name, *port),
        };
        let waiting = || Waiting { socket, port, payload: payload.to_vec() };
        match self.names.look_up(world.now, id, name, waiting) {
            Known::Addresses(all) => match first_admitted(world, &mut self.admitted, all) {
                Some(ip) => self.send(world, id, socket, SocketAddr::new(ip, port), payload),
                None => self.refuse_target(),
            },
            Known::Failed(refusal) => {
                self.records.counts.refuse("name");
                Err(refusal)
            }
            Known::Ask(number) => {
                let asker = Asker::Datagrams(number);
                if world.resolver.request(world.client, asker, name.as_str(), 0).is_err() {
                    self.names.answer(world.now, number, Err(io::ErrorKind::WouldBlock.into()));
                    self.records.counts.refuse("name");
                    return Err(Refusal::ResolverFailed);
                }
                Ok(())
            }
            Known::Asked => Ok(()),
            Known::Full => {
                self.records.counts.refuse("name");
                Err(Refusal::TooMany)
            }
        }
    }

    fn refuse_target(&mut self) -> Result<(), Refusal> {
        self.records.counts.refuse("target");
        Err(Refusal::NotAllowed)
    }

    /// Sends a datagram to where it may go.
    fn send(
        &mut self,
        world: &mut World<'_>,
        id: BaseAssociationId,
        socket: SocketNumber,
        to: SocketAddr,
        payload: &[u8],
    ) -> Result<(), Refusal> {
        if to.port() == 0 || !self.admitted.admits(world.now, world.gate, to.ip()) {
            return self.refuse_target();
        }
        let number = match self.sockets.outgoing(world.now, id, socket) {
            Some(number) => number,
            None => self.open(world, id, socket).map_err(|error| {
                tracing::debug!(%error, "no UDP socket for a mobile");
                self.records.counts.refuse("no socket");
                Refusal::TooMany
            })?,
        };
        let Some(kernel) = self.kernel.get(&number) else { return Ok(()) };
        match kernel.send(to, payload) {
            Ok(()) => {
                self.records.counts.from_hop += 1;
                Ok(())
            }
            Err(error) => {
                self.records.counts.refuse("kernel");
                // Where there is no room it is lost, as any may be.
                let full = error.kind() == io::ErrorKind::WouldBlock;
                if full { Ok(()) } else { Err(dial::refusal(&error)) }
            }
        }
    }

    fn open(
        &mut self,
        world: &mut World<'_>,
        id: BaseAssociationId,
        socket: SocketNumber,
    ) -> io::Result<u64> {
        let number = self.latest + 1;
        let kernel = udp::Socket::anywhere(world.reactor, Source::Datagrams(number))?;
        self.latest = number;
        self.kernel.insert(number, kernel);
        if let Some(removed) = self.sockets.insert(world.now, id, socket, number) {
            self.close(world.reactor, removed);
        }
        Ok(number)
    }

    fn handle_answer(
        &mut self,
        world: &mut World<'_>,
        number: u64,
        addresses: io::Result<Vec<SocketAddr>>,
        hop: &mut impl Hop<Id = BaseAssociationId>,
    ) {
        let answered = self.names.answer(world.now, number, addresses);
        let Some((id, name, addresses, waiting)) = answered else { return };
        for Waiting { socket, port, payload } in waiting {
            let sent = match &addresses {
                Ok(all) => match first_admitted(world, &mut self.admitted, all) {
                    Some(ip) => self.send(world, id, socket, SocketAddr::new(ip, port), &payload),
                    None => self.refuse_target(),
                },
                Err(refusal) => {
                    self.records.counts.refuse("name");
                    Err(*refusal)
                }
            };
            if let Err(refusal) = sent {
                let remote = Target::Name(name.clone(), port);
                let undelivered = UdpRecord::Undelivered { socket, remote, refusal };
                self.records.send(world.now, hop.packets(id), OWN, &undelivered);
            }
        }
    }

    /// Takes a share of what has come to a socket, into its mobile's lane. Whose host an application is, the mobile knows alone: at
    /// the hop all of a mobile's are one host.
    pub(super) fn receive(
        &mut self,
        now: Time,
        number: u64,
        hop: &mut impl Hop<Id = BaseAssociationId>,
    ) {
        let Self { kernel, inbox, sockets, records, .. } = self;
        let Some(socket) = kernel.get(&number) else { return };
        match socket.receive(inbox) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => return tracing::debug!(%error, "reading a UDP socket"),
        }
        let Some((id, socket)) = sockets.incoming(now, number) else { return };
        for (payload, sender, truncated) in inbox.messages() {
            let Some(from) = sender.internet().filter(|_| !truncated) else {
                records.counts.refuse("truncated");
                continue;
            };
            let remote = Target::Addr(tcp::canonical(from));
            let datagram = UdpRecord::Datagram { socket, remote, payload };
            records.send(now, hop.packets(id), OWN, &datagram);
        }
    }
}

/// The best address that something may go to.
fn first_admitted(
    world: &World<'_>,
    admitted: &mut Admitted,
    addresses: &[IpAddr],
) -> Option<IpAddr> {
    addresses.iter().copied().find(|ip| admitted.admits(world.now, world.gate, *ip))
}
