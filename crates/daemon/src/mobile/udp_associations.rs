//! UDP associations of applications (RFC 1928 section 7): a relay's socket for each, whose datagrams cross
//! the hop as records.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;

use lasthop_control::{Report, UdpReport};
use lasthop_hop::PacketLane;
use lasthop_kernel::mmsg::Inbox;
use lasthop_kernel::slab::Key;
use lasthop_kernel::turn::Source;
use lasthop_kernel::{tcp, udp};
use lasthop_session::socks::{Datagram, DatagramError};
use lasthop_session::udp_relay::UdpRecord;
use lasthop_session::udp_sockets::{MobileSockets, SocketNumber};
use lasthop_session::{Refusal, Target};
use lasthop_units::Time;

use super::{Core, MobileConfig, MobileRole, Waiting, application};
use crate::config::HopKind;
use crate::driver::{Phase, Timer};
use crate::hop::Hop;
use crate::packets::{self, OWN};
use crate::udp_relay::Records;

/// A relay.
#[derive(Debug)]
struct Relay {
    socket: udp::Socket,
    /// The application's host, as it shares the hop.
    client: u32,
    /// When a datagram last came from the application or went to it.
    used: Time,
}

/// The UDP associations of all applications.
pub(super) struct UdpAssociations {
    /// None is served otherwise.
    served: bool,
    /// So many of one host's.
    per_host: usize,
    sockets: MobileSockets<Relay>,
    /// Applications that wait for the base to say whether it serves them, and where each expects to send from.
    waiting: Vec<(Key, SocketAddr)>,
    inbox: Inbox,
    /// A datagram to an application.
    datagram: Vec<u8>,
    records: Records,
}

/// Whether a mobile serves them: the hop has to carry packets.
pub(super) fn are_served(config: &MobileConfig) -> bool {
    config.hop == HopKind::Srp && config.udp_sockets > 0
}

impl UdpAssociations {
    pub(super) fn new(config: &MobileConfig) -> Self {
        Self {
            served: are_served(config),
            per_host: (config.udp_sockets / 2).max(1),
            sockets: MobileSockets::new(config.udp_sockets),
            waiting: Vec::new(),
            inbox: udp::inbox(),
            datagram: Vec::new(),
            records: Records::ruled_by(&config.packets),
        }
    }

    /// Whether applications may ask for them.
    pub(super) fn are_served(&self) -> bool {
        self.served
    }

    pub(super) fn report(&self) -> Option<UdpReport> {
        self.served.then(|| self.records.counts.report(self.sockets.len()))
    }

    /// Opens a relay beside the near end of an application's connection.
    fn open(
        &mut self,
        core: &mut Core,
        (near, application): (SocketAddr, SocketAddr),
        expected: SocketAddr,
        client: u32,
    ) -> Result<(SocketNumber, SocketAddr), Refusal> {
        if self.sockets.of_host(application.ip()) >= self.per_host {
            return Err(Refusal::TooMany);
        }
        let mut at = tcp::canonical(near);
        at.set_port(0);
        // The source needs the number, and the number the socket: the source is corrected after.
        let socket = udp::Socket::open(&mut core.reactor, at, Source::Resolver);
        let socket = socket.map_err(|error: io::Error| {
            tracing::debug!(%at, %error, "no UDP socket for an application");
            Refusal::TooMany
        })?;
        let address = socket.local_addr();
        let relay = Relay { socket, client, used: core.now };
        let number = self.sockets.open(application, expected, relay).map_err(|relay| {
            relay.socket.close(&mut core.reactor);
            Refusal::TooMany
        })?;
        if let Some(relay) = self.sockets.relay_mut(number) {
            relay.socket.reassign(&mut core.reactor, Source::Datagrams(number.0));
        }
        Ok((number, address))
    }

    /// Takes a share of what has come to a relay, into the lane of the base where the mobile is.
    fn receive(&mut self, core: &mut Core, number: SocketNumber, at: u32) {
        let Self { sockets, inbox, records, .. } = self;
        let Some(relay) = sockets.relay_mut(number) else { return };
        match relay.socket.receive(inbox) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => return tracing::debug!(%error, "reading a UDP relay"),
        }
        let (now, client) = (core.now, relay.client);
        let mut used = false;
        for (bytes, sender, truncated) in inbox.messages() {
            let datagram = match (Datagram::decode(bytes), sender.internet()) {
                (Ok(datagram), Some(from)) if !truncated => {
                    if !sockets.admit(number, from) {
                        records.counts.refuse("stranger");
                        continue;
                    }
                    datagram
                }
                (Err(DatagramError::Fragment(_)), _) => {
                    records.counts.refuse("fragment");
                    continue;
                }
                _ => {
                    records.counts.refuse("malformed");
                    continue;
                }
            };
            used = true;
            let Datagram { remote, payload } = datagram;
            let record = UdpRecord::Datagram { socket: number, remote, payload };
            records.send(now, core.hop.packets(at), client, &record);
        }
        if used && let Some(relay) = sockets.relay_mut(number) {
            relay.used = now;
        }
    }

    /// Hands applications what has come by a lane, up to the first IP packet.
    fn deliver(&mut self, now: Time, lane: &mut PacketLane) {
        while let Some((bytes, _)) = lane.front().filter(|(bytes, _)| !packets::is_ip(bytes)) {
            let over = match UdpRecord::decode(bytes) {
                Ok(UdpRecord::Datagram { socket, remote: remote @ Target::Addr(_), payload }) => {
                    self.hand_over(now, socket, &Datagram { remote, payload });
                    (!self.sockets.contains(socket)).then_some(socket)
                }
                // SOCKS has no way to say so.
                Ok(UdpRecord::Undelivered { remote, refusal, .. }) => {
                    tracing::debug!(%remote, %refusal, "a datagram was not delivered");
                    self.records.counts.refuse("undelivered");
                    None
                }
                _ => {
                    self.records.counts.refuse("malformed");
                    None
                }
            };
            lane.pop();
            // The base has missed that it is over.
            if let Some(socket) = over {
                self.records.send(now, Some(lane), OWN, &UdpRecord::Close { socket });
            }
        }
    }

    fn hand_over(&mut self, now: Time, number: SocketNumber, datagram: &Datagram<'_>) {
        let Some((relay, application)) = self.sockets.application(number) else {
            return self.records.counts.refuse("no application");
        };
        self.datagram.clear();
        datagram.encode(&mut self.datagram);
        match relay.socket.send(tcp::canonical(application), &self.datagram) {
            Ok(()) => self.records.counts.from_hop += 1,
            Err(_) => self.records.counts.refuse("kernel"),
        }
        if let Some(relay) = self.sockets.relay_mut(number) {
            relay.used = now;
        }
    }
}

impl MobileRole {
    /// An application asks for a UDP association.
    pub(super) fn associate(&mut self, core: &mut Core, key: Key, expected: SocketAddr) {
        if let Some(connection) = core.connections.get_mut(key) {
            "UDP".clone_into(&mut connection.target);
        }
        self.udp.waiting.push((key, expected));
        self.answer_associations(core);
    }

    /// Answers the applications that ask for an association, once it is known what the base takes.
    pub(super) fn answer_associations(&mut self, core: &mut Core) {
        let at = self.at;
        if self.udp.waiting.is_empty() || !core.hop.get(at).is_some_and(|hop| hop.is_up()) {
            return;
        }
        let served = core.hop.packets(at).is_some();
        for (key, expected) in std::mem::take(&mut self.udp.waiting) {
            let Some(waiting) = application(core, key).filter(|waiting| waiting.is_opening())
            else {
                continue;
            };
            if !served {
                waiting.decline_association();
                core.counters.refused += 1;
                core.arm(core.now + super::PATIENCE, Timer::Connection(key));
                self.advance_application(core, key);
                continue;
            }
            let ends = waiting.ends();
            let opened = match ends {
                Some(ends) => {
                    let client = self.network.client(ends.1.ip());
                    self.udp.open(core, ends, expected, client)
                }
                None => Err(Refusal::ConnectionReset),
            };
            let answer = opened.map(|(number, address)| {
                if let Some(waiting) = application(core, key) {
                    waiting.association = Some(number);
                }
                core.arm(core.now + self.config.udp_idle, Timer::Connection(key));
                Some(address)
            });
            self.answer(core, key, answer);
        }
    }

    /// An application's association may have been idle for too long.
    pub(super) fn expire_association(&mut self, core: &mut Core, key: Key) {
        let Some(number) = application(core, key).and_then(|waiting| waiting.association) else {
            return;
        };
        let Some(relay) = self.udp.sockets.relay_mut(number) else { return };
        match relay.used + self.config.udp_idle {
            until if until <= core.now => self.close_application(core, key),
            until => core.arm(until, Timer::Connection(key)),
        }
    }

    /// An application's connection is over, and so is its association.
    pub(super) fn end_association(&mut self, core: &mut Core, number: Option<SocketNumber>) {
        let Some(socket) = number else { return };
        let Some(relay) = self.udp.sockets.close(socket) else { return };
        relay.socket.close(&mut core.reactor);
        // Where nothing was sent nothing is to be closed.
        if let Some(lane) = core.hop.packets_so_far(self.at) {
            let close = UdpRecord::Close { socket };
            self.udp.records.send(core.now, Some(lane), relay.client, &close);
        }
    }

    /// Ends the connections that stand for associations: nothing else would.
    pub(super) fn end_associations(&mut self, core: &mut Core) {
        for key in core.connections.keys() {
            if application(core, key).is_some_and(|waiting| waiting.association.is_some()) {
                self.close_application(core, key);
            }
        }
    }

    /// Adds what associations have carried, and that their connections are not opening any more.
    pub(super) fn add_associations_to_report(&self, core: &Core, report: &mut Report) {
        report.udp = self.udp.report();
        let stands = core.connections.iter().filter(|(_, connection)| {
            matches!(&connection.phase, Phase::Waiting(Waiting::Application(application))
                if application.association.is_some())
        });
        let numbers: BTreeSet<u64> = stands.map(|(_, connection)| connection.who.number).collect();
        for connection in report.connections.iter_mut().filter(|c| numbers.contains(&c.key)) {
            "open".clone_into(&mut connection.state);
        }
    }

    /// Datagrams have come to the relay of an association.
    pub(super) fn receive_datagrams(&mut self, core: &mut Core, number: u64) {
        self.udp.receive(core, SocketNumber(number), self.at);
    }

    /// Packets may have come by the lane of a part's association: IP packets and records of UDP sockets.
    pub(super) fn deliver_packets(&mut self, core: &mut Core, part: u32) {
        let Some(lane) = core.hop.packets_so_far(part) else { return };
        while let Some((first, _)) = lane.front() {
            match &mut self.packets {
                _ if !packets::is_ip(first) => self.udp.deliver(core.now, lane),
                Some(way) => way.deliver(core.now, lane, |_| packets::Verdict::Passed),
                None => {
                    lane.pop();
                    self.udp.records.counts.refuse("no device");
                }
            }
        }
    }
}
