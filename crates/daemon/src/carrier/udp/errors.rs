//! What the network says of datagrams that were sent (ip(7), IP_RECVERR): ICMP errors, which the
//! kernel queues beside a socket that asks for them.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

use lasthop_hop::Unreachable;
use quinn_udp::{UdpSockRef, UdpSocketState};
use rustix::io::Errno;

use lasthop_kernel::tcp;

/// Answers that wait to be polled; what is beyond says nothing new.
const WAITING_MAX: usize = 8;
/// Answers that one turn takes from the kernel.
const TAKEN_MAX: usize = 256;

/// One answer, before it is known whose it is.
#[derive(Clone, Copy, Debug)]
enum Answer {
    /// An ICMP error: who sent it, and what the kernel makes of it.
    Said(Option<IpAddr>, Errno),
    /// Our own kernel would not send.
    Unsent,
}

/// One socket's answers.
#[derive(Debug, Default)]
pub(super) struct Errors {
    waiting: VecDeque<Answer>,
}

impl Errors {
    /// Has the kernel queue the network's errors from here on.
    ///
    /// # Errors
    ///
    /// The kernel does not know how.
    pub(super) fn listen(state: &UdpSocketState, fd: &OwnedFd) -> io::Result<Self> {
        state.enable_transport_errors(UdpSockRef::from(fd))?;
        Ok(Self::default())
    }

    /// Reads the socket's error queue.
    pub(super) fn read(&mut self, state: &UdpSocketState, fd: &OwnedFd) {
        for _ in 0..TAKEN_MAX {
            let Ok(Some(error)) = state.recv_transport_error(UdpSockRef::from(fd)) else { return };
            let errno = Errno::from_raw_os_error(error.raw_errno);
            // A probe for the MTU is meant to be too long now and then.
            if errno != Errno::MSGSIZE {
                let from = error.addr.map(|addr| addr.ip().to_canonical());
                self.add(Answer::Said(from, errno));
            }
        }
    }

    /// The kernel refused to send, for this reason.
    pub(super) fn record_unsent(&mut self, error: &io::Error) {
        if matches!(Errno::from_io_error(error), Some(Errno::NETUNREACH | Errno::HOSTUNREACH)) {
            self.add(Answer::Unsent);
        }
    }

    fn add(&mut self, answer: Answer) {
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back(answer);
        }
    }

    /// The next error for datagrams to `peer`.
    pub(super) fn poll(&mut self, peer: SocketAddr) -> Option<Unreachable> {
        loop {
            let (from, errno) = match self.waiting.pop_front()? {
                Answer::Said(from, errno) => (from, errno),
                Answer::Unsent => return Some(Unreachable::NoRoute),
            };
            let by_base = from == Some(peer.ip().to_canonical());
            let said = match errno {
                Errno::CONNREFUSED | Errno::NOPROTOOPT if by_base => Unreachable::Port,
                // A firewall rejects by the same words.
                Errno::CONNREFUSED | Errno::NOPROTOOPT | Errno::ACCESS => Unreachable::Prohibited,
                Errno::HOSTUNREACH | Errno::HOSTDOWN => match from {
                    Some(from) if !by_base && local_towards(peer) == Some(from) => {
                        Unreachable::NextHop
                    }
                    _ => Unreachable::Host,
                },
                Errno::NETUNREACH | Errno::NONET => Unreachable::Network,
                _ => continue,
            };
            return Some(said);
        }
    }
}

/// The address from which packets to `peer` leave.
pub(crate) fn local_towards(peer: SocketAddr) -> Option<IpAddr> {
    let peer = tcp::canonical(peer);
    let any: SocketAddr = if peer.is_ipv4() { ([0; 4], 0).into() } else { ([0; 16], 0).into() };
    // Connecting sends nothing: the kernel chooses a route.
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(peer).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lasthop_kernel::clock::Clock;
    use lasthop_kernel::netns::{Netns, NetnsError};
    use lasthop_kernel::reactor::Reactor;
    use lasthop_kernel::slab::Slab;
    use lasthop_kernel::turn::{Source, Turn};
    use lasthop_units::Time;

    use super::*;
    use crate::carrier::udp::Udp;
    use crate::carrier::{Carrier, Route};

    fn send(udp: &mut Udp, route: Route) {
        let mut reactor = Reactor::new().unwrap();
        let mut turn = Turn::new(Time::ZERO, Clock::start(), &mut reactor);
        let mut one = Some(b"hello");
        udp.send(&mut turn, &mut |out| {
            let datagram = one.take()?;
            out[..datagram.len()].copy_from_slice(datagram);
            Some((route, datagram.len()))
        });
    }

    /// A carrier whose socket is watched.
    fn watched(reactor: &mut Reactor<Source>, clock: Clock) -> Udp {
        let mut udp = Udp::anywhere(None);
        let key = Slab::new().insert(());
        udp.watch(&mut Turn::new(Time::ZERO, clock, reactor), &mut |_| key).unwrap();
        udp
    }

    /// What the network says of a datagram to `peer`.
    fn said_of(peer: SocketAddr) -> Option<Unreachable> {
        let (mut reactor, clock) = (Reactor::new().unwrap(), Clock::start());
        let mut udp = watched(&mut reactor, clock);
        let route = udp.route_to(peer).unwrap();
        let mut ready = Vec::new();
        send(&mut udp, route);
        for _ in 0..20 {
            if let Some(said) = udp.poll_unreachable(route) {
                return Some(said);
            }
            reactor.wait(Some(Duration::from_secs(1)), &mut ready).unwrap();
            for (_, readiness) in &ready {
                udp.ready(&mut Turn::new(Time::ZERO, clock, &mut reactor), 0, *readiness);
            }
            udp.receive(&clock, &mut |_, _, _| {});
        }
        None
    }

    fn closed_port(ip: &str) -> SocketAddr {
        let ip: IpAddr = ip.parse().unwrap();
        UdpSocket::bind((ip, 0)).unwrap().local_addr().unwrap()
    }

    #[test]
    fn a_port_without_a_listener_is_reported() {
        for ip in ["127.0.0.1", "::1"] {
            assert_eq!(said_of(closed_port(ip)), Some(Unreachable::Port), "{ip}");
        }
    }

    /// A namespace, or none where tests may not have one.
    fn netns() -> Option<Netns> {
        lasthop_testing::or_skip(Netns::anonymous(), NetnsError::is_unavailable)
    }

    /// Two hosts on a link, of which the first has a default route to the second.
    fn link() -> Option<(Netns, Netns)> {
        let (mobile, router) = (netns()?, netns()?);
        mobile.veth("up0", &router, "down0").unwrap();
        mobile.interface_up("up0", &[("10.7.0.2".parse().unwrap(), 24)]).unwrap();
        router.interface_up("down0", &[("10.7.0.1".parse().unwrap(), 24)]).unwrap();
        mobile.route(None, "10.7.0.1".parse().unwrap()).unwrap();
        router.sysctl("ipv4.ip_forward", "1").unwrap();
        Some((mobile, router))
    }

    #[test]
    fn the_reporter_of_an_unreachable_host_is_distinguished() {
        let Some((mobile, router)) = link() else { return };
        let said = |to: &str| {
            let to = to.parse().unwrap();
            mobile.enter(|| said_of(to)).unwrap()
        };
        // The router has no route there.
        assert_eq!(said("192.0.2.1:7700"), Some(Unreachable::Network));
        // A firewall rejects by the words of a host at which nobody listens.
        router.ip("addr add 198.51.100.1/24 dev lo\nlink set lo up").unwrap();
        let reject = "table ip firewall {\n chain forward {\n type filter hook forward priority 0;\n \
                      reject with icmp type port-unreachable\n }\n}\n";
        router.enter(|| lasthop_kernel::nft::apply(reject).unwrap()).unwrap();
        router.ip("route add 203.0.113.0/24 dev down0").unwrap();
        assert_eq!(said("203.0.113.9:7700"), Some(Unreachable::Prohibited));
        assert_eq!(said("198.51.100.1:7700"), Some(Unreachable::Port));
        // Nobody has this address on the mobile's own link.
        assert_eq!(said("10.7.0.77:7700"), Some(Unreachable::NextHop));
        assert_eq!(said("[2001:db8::1]:7700"), Some(Unreachable::NoRoute));
    }

    #[test]
    fn an_error_of_one_datagram_does_not_cost_the_next() {
        let mut reactor = Reactor::new().unwrap();
        let mut udp = watched(&mut reactor, Clock::start());
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let dead = udp.route_to(closed_port("127.0.0.1")).unwrap();
        let alive = udp.route_to(server.local_addr().unwrap()).unwrap();
        for _ in 0..3 {
            send(&mut udp, dead);
            send(&mut udp, alive);
            assert_eq!(server.recv(&mut [0; 100]).unwrap(), 5);
        }
    }
}
