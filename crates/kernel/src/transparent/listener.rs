//! The listeners that intercepted connections come to.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use super::rules::Ports;
use crate::accept::{self, Accepted};
use crate::foreign::allow_foreign;
use crate::tcp;

/// An intercepted connection. It stands for the application: the kernel has answered in the name
/// of whom it meant.
#[derive(Debug)]
pub struct Taken {
    /// The socket towards the application.
    pub fd: OwnedFd,
    /// The application's own address.
    pub source: SocketAddr,
    /// Where it goes to.
    pub target: SocketAddr,
}

/// Listens for intercepted connections: on the loopback addresses, so that no packet from outside
/// can mean the listener itself, and on ports that are free.
#[derive(Debug)]
pub struct Listener {
    v4: OwnedFd,
    v6: Option<OwnedFd>,
}

impl Listener {
    /// Listens for IPv4 and, where this host has it, for IPv6.
    ///
    /// # Errors
    ///
    /// `EPERM` without CAP_NET_ADMIN.
    pub(super) fn open() -> io::Result<Self> {
        let v4 = listen(Ipv4Addr::LOCALHOST.into())?;
        let v6 = match listen(Ipv6Addr::LOCALHOST.into()) {
            Ok(fd) => Some(fd),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Err(e),
            Err(error) => {
                tracing::info!(%error, "this host has no IPv6: only IPv4 is intercepted");
                None
            }
        };
        Ok(Self { v4, v6 })
    }

    /// The listening sockets.
    pub fn sockets(&self) -> impl Iterator<Item = &OwnedFd> {
        [Some(&self.v4), self.v6.as_ref()].into_iter().flatten()
    }

    pub(super) fn ports(&self) -> Ports {
        let port = |fd: &OwnedFd| tcp::local_addr(fd).port();
        Ports { v4: port(&self.v4), v6: self.v6.as_ref().map(port) }
    }

    /// Accepts one connection at listening socket `n`; `None` for one that meant the socket itself, which is reset.
    pub fn accept(&self, n: usize) -> Accepted<Option<Taken>> {
        let Some(socket) = self.sockets().nth(n) else { return Accepted::Empty };
        accept::accept(socket).map(|(fd, source)| {
            // The socket's own address is the one that the application meant.
            let target = tcp::local_addr(&fd);
            if target == tcp::local_addr(socket) {
                tcp::abort_on_close(&fd);
                return None;
            }
            Some(Taken { fd, source: tcp::canonical(source), target })
        })
    }
}

fn listen(ip: IpAddr) -> io::Result<OwnedFd> {
    let fd = tcp::socket(ip)?;
    // Bound before it may have a foreign address, so that a host without this one says so.
    rustix::net::bind(&fd, &SocketAddr::new(ip, 0))?;
    allow_foreign(&fd, ip)?;
    tcp::listen_again(&fd)?;
    Ok(fd)
}
