//! Which addresses a mobile's connections may leave a base from.

use std::fmt::Debug;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use lasthop_session::Refusal;
use rustix::net::sockopt;
use socket2::SockRef;

use crate::base::{Network, TargetPolicy};
use crate::tcp;

/// Makes sockets for addresses that are not this host's. It takes the privilege to do so, which a
/// base may have itself or by its helper.
pub(crate) trait Exit: Send + Sync + Debug {
    /// A TCP socket that is bound to `source`: to its port if that can be had, else to any. It does
    /// not block.
    ///
    /// # Errors
    ///
    /// The privilege is missing, or the kernel has no socket left.
    fn socket(&self, source: SocketAddr) -> io::Result<OwnedFd>;
}

/// By this process's own privilege.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Direct;

impl Exit for Direct {
    fn socket(&self, source: SocketAddr) -> io::Result<OwnedFd> {
        socket_at(source)
    }
}

/// A TCP socket that does not block, bound to an address that need not be this host's
/// (`IP_TRANSPARENT`): to its port if that can be had, else to any.
///
/// # Errors
///
/// `EPERM` without CAP_NET_ADMIN.
pub(crate) fn socket_at(source: SocketAddr) -> io::Result<OwnedFd> {
    let fd = tcp::socket(source.ip())?;
    allow_foreign(&fd, source.ip())?;
    // The port may serve connections to other fixed hosts already, as the mobile's own does.
    sockopt::set_socket_reuseaddr(&fd, true)?;
    if rustix::net::bind(&fd, &source).is_err() {
        rustix::net::bind(&fd, &SocketAddr::new(source.ip(), 0))?;
    }
    Ok(fd)
}

/// Lets a socket have an address that is not this host's.
pub(super) fn allow_foreign(fd: &OwnedFd, family: IpAddr) -> io::Result<()> {
    let socket = SockRef::from(fd);
    match family {
        IpAddr::V4(_) => socket.set_ip_transparent_v4(true),
        IpAddr::V6(_) => socket.set_ip_transparent_v6(true),
    }
}

/// From where, and how, a connection leaves. By default from the host's own address.
#[derive(Clone, Default, Debug)]
pub(crate) struct Leave {
    /// To an IPv4 address from here; port 0 for any.
    pub(crate) v4: Option<SocketAddr>,
    /// To an IPv6 address from here; port 0 for any.
    pub(crate) v6: Option<SocketAddr>,
    /// Who makes the sockets for these addresses; this process itself if `None`.
    pub(crate) exit: Option<Arc<dyn Exit>>,
    /// The mark of its packets.
    pub(crate) mark: Option<u32>,
}

impl Leave {
    /// The same, by sockets that `exit` makes.
    pub(crate) fn by(self, exit: Arc<dyn Exit>) -> Self {
        Self { exit: Some(exit), ..self }
    }

    /// From the host's own address, by a socket with this mark.
    pub(crate) fn marked(mark: Option<u32>) -> Self {
        Self { mark, ..Self::default() }
    }

    /// Starts to connect to `to`. The outcome is known once the socket is writable, from
    /// [`tcp::connected`].
    pub(crate) fn connect(&self, to: SocketAddr) -> io::Result<OwnedFd> {
        let source = if to.is_ipv4() { self.v4 } else { self.v6 };
        let Some(source) = source else { return self.connect_by(tcp::socket(to.ip())?, to) };
        let outcome = self.connect_by(self.socket(source)?, to);
        match outcome {
            // Another connection to the same fixed host has this very port.
            Err(e) if e.kind() == io::ErrorKind::AddrNotAvailable && source.port() != 0 => {
                self.connect_by(self.socket(SocketAddr::new(source.ip(), 0))?, to)
            }
            outcome => outcome,
        }
    }

    fn socket(&self, source: SocketAddr) -> io::Result<OwnedFd> {
        match &self.exit {
            Some(exit) => exit.socket(source),
            None => Direct.socket(source),
        }
    }

    fn connect_by(&self, fd: OwnedFd, to: SocketAddr) -> io::Result<OwnedFd> {
        if let Some(mark) = self.mark {
            SockRef::from(&fd).set_mark(mark)?;
        }
        tcp::connect_by(fd, to)
    }
}

/// The addresses that are a mobile's own, as a base was told: what it asks for must be among them.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Sources {
    addresses: Vec<IpAddr>,
    networks: Vec<Network>,
}

impl Sources {
    /// The mobile's own addresses, and the networks behind it.
    pub fn new(addresses: Vec<IpAddr>, networks: Vec<Network>) -> Self {
        Self { addresses, networks }
    }

    /// From where a connection leaves: from the address that was asked for, or else from the
    /// mobile's first of the family that it takes, or else from the base's own.
    ///
    /// # Errors
    ///
    /// [`Refusal::NotAllowed`] if what was asked for is not the mobile's.
    pub(crate) fn choose(&self, asked: Option<SocketAddr>) -> Result<Leave, Refusal> {
        let first = |v4: bool| {
            let ip = self.addresses.iter().find(|ip| ip.is_ipv4() == v4)?;
            Some(SocketAddr::new(*ip, 0))
        };
        let mut leave = Leave { v4: first(true), v6: first(false), ..Leave::default() };
        if let Some(asked) = asked.map(tcp::canonical) {
            if !self.holds(asked.ip()) {
                return Err(Refusal::NotAllowed);
            }
            *(if asked.is_ipv4() { &mut leave.v4 } else { &mut leave.v6 }) = Some(asked);
        }
        Ok(leave)
    }

    fn holds(&self, ip: IpAddr) -> bool {
        let own = self.addresses.contains(&ip) || self.networks.iter().any(|n| n.contains(ip));
        // No wide network makes the base's own inside an address of the mobile's.
        own && TargetPolicy::default().allows(ip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(s: &str) -> SocketAddr {
        s.parse().unwrap()
    }

    fn sources() -> Sources {
        let addresses = ["10.9.0.7", "2001:db8::7"].map(|s| s.parse().unwrap()).to_vec();
        Sources::new(addresses, vec!["10.1.0.0/16".parse().unwrap(), "0.0.0.0/1".parse().unwrap()])
    }

    #[test]
    fn who_asks_for_nothing_leaves_from_the_first_address_of_each_family() {
        let leave = sources().choose(None).unwrap();
        assert_eq!(leave.v4, Some(addr("10.9.0.7:0")));
        assert_eq!(leave.v6, Some(addr("[2001:db8::7]:0")));
        let leave = Sources::default().choose(None).unwrap();
        assert_eq!((leave.v4, leave.v6), (None, None));
    }

    #[test]
    fn an_address_of_the_mobiles_network_is_granted_with_its_port() {
        let leave = sources().choose(Some(addr("10.1.2.3:5000"))).unwrap();
        assert_eq!(leave.v4, Some(addr("10.1.2.3:5000")));
        assert_eq!(leave.v6, Some(addr("[2001:db8::7]:0")));
        let leave = sources().choose(Some(addr("[::ffff:10.1.2.3]:5000"))).unwrap();
        assert_eq!(leave.v4, Some(addr("10.1.2.3:5000")));
    }

    #[test]
    fn an_address_that_is_not_the_mobiles_is_refused() {
        for asked in ["192.0.2.1:1", "[2001:db8::8]:1", "127.0.0.1:1", "0.0.0.0:0"] {
            let refusal = sources().choose(Some(addr(asked))).unwrap_err();
            assert_eq!(refusal, Refusal::NotAllowed, "{asked}");
        }
        assert!(Sources::default().choose(Some(addr("10.1.2.3:1"))).is_err());
    }
}
