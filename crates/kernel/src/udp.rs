//! UDP sockets of an event loop: none is connected, and each is read in shares.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use socket2::{Domain, Protocol, SockAddr, SockRef, Type};

use crate::mmsg::Inbox;
use crate::reactor::{Interest, Reactor, Token};
use crate::tcp;

/// Datagrams that one turn takes from a socket; those behind them wait for the next.
const SHARE: usize = 16;
/// The longest user data of a datagram: what a length field of 16 bits has beside the header (RFC 768).
const LONGEST: usize = 65_535 - 8;

/// Room for one share of datagrams of any length, for all sockets of a loop.
pub fn inbox() -> Inbox {
    Inbox::new(LONGEST, SHARE)
}

/// A UDP socket that a reactor watches.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    token: Token,
    /// It takes IPv4 addresses in mapped form (RFC 4291 section 2.5.5.2).
    mapped: bool,
}

impl Socket {
    /// A socket with a port of its own on every address of this host, for both families where the kernel
    /// has IPv6.
    ///
    /// # Errors
    ///
    /// The kernel's, where no descriptor or no port is left.
    pub fn anywhere<S: Copy>(reactor: &mut Reactor<S>, source: S) -> io::Result<Self> {
        let both = Self::open(reactor, (Ipv6Addr::UNSPECIFIED, 0).into(), source);
        both.or_else(|_| Self::open(reactor, (Ipv4Addr::UNSPECIFIED, 0).into(), source))
    }

    /// A socket at `address`, with a port of its own where that is 0.
    ///
    /// # Errors
    ///
    /// The kernel's, where the address is not this host's, or no descriptor or no port is left.
    pub fn open<S: Copy>(
        reactor: &mut Reactor<S>,
        address: SocketAddr,
        source: S,
    ) -> io::Result<Self> {
        let kind = Type::DGRAM.nonblocking().cloexec();
        let domain = Domain::for_address(address);
        let socket = socket2::Socket::new(domain, kind, Some(Protocol::UDP))?;
        let mapped = address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        if address.is_ipv6() {
            socket.set_only_v6(!mapped)?;
        }
        socket.bind(&address.into())?;
        let fd = OwnedFd::from(socket);
        let token = reactor.add(&fd, Interest::ReadInShares, source)?;
        Ok(Self { fd, token, mapped })
    }

    /// From here on the socket is `source`.
    pub fn reassign<S: Copy>(&self, reactor: &mut Reactor<S>, source: S) {
        reactor.reassign(self.token, source);
    }

    /// Its address and port.
    pub fn local_addr(&self) -> SocketAddr {
        tcp::local_addr(&self.fd)
    }

    /// Takes a share of what has come, in place of what was in `inbox`. Says how many datagrams it is.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn receive(&self, inbox: &mut Inbox) -> io::Result<usize> {
        inbox.receive(self.fd.as_fd(), SHARE)
    }

    /// Sends a datagram, without waiting.
    ///
    /// # Errors
    ///
    /// The kernel's: it is too long, there is no route, or no room at the moment.
    pub fn send(&self, to: SocketAddr, bytes: &[u8]) -> io::Result<()> {
        let to = match (self.mapped, to) {
            (true, SocketAddr::V4(v4)) => (v4.ip().to_ipv6_mapped(), v4.port()).into(),
            _ => to,
        };
        SockRef::from(&self.fd).send_to(bytes, &SockAddr::from(to)).map(drop)
    }

    /// Closes it.
    pub fn close<S: Copy>(self, reactor: &mut Reactor<S>) {
        reactor.remove(&self.fd, self.token);
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_socket_speaks_both_families_and_is_reported_until_it_was_read() {
        let mut reactor = Reactor::new().unwrap();
        let socket = Socket::anywhere(&mut reactor, 'a').unwrap();
        let (port, mut inbox) = (socket.local_addr().port(), inbox());
        for host in ["127.0.0.1", "::1"] {
            let Ok(peer) = UdpSocket::bind((host, 0)) else { continue };
            peer.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            for n in 0..=SHARE {
                peer.send_to(&[n as u8; 3], (host, port)).unwrap();
            }
            let (mut ready, mut taken) = (Vec::new(), Vec::new());
            while taken.len() <= SHARE {
                reactor.wait(Some(Duration::from_secs(5)), &mut ready).unwrap();
                assert_eq!(ready.len(), 1, "{} are left", SHARE + 1 - taken.len());
                assert!(socket.receive(&mut inbox).unwrap() <= SHARE);
                for (bytes, sender, truncated) in inbox.messages() {
                    assert!(!truncated);
                    assert_eq!(sender.internet().map(tcp::canonical), peer.local_addr().ok());
                    taken.push(bytes[0]);
                }
            }
            assert_eq!(taken, (0..=SHARE as u8).collect::<Vec<_>>());
            socket.send(peer.local_addr().unwrap(), b"back").unwrap();
            let mut back = [0; 9];
            assert_eq!(peer.recv(&mut back).unwrap(), 4);
        }
        let too_long = socket.send(([127, 0, 0, 1], port).into(), &[0; LONGEST + 1]).unwrap_err();
        assert_eq!(too_long.raw_os_error(), Some(libc::EMSGSIZE));
        socket.close(&mut reactor);
    }
}
