//! From which address, and how, a connection leaves this host.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use socket2::SockRef;

use crate::foreign::socket_at;
use crate::tcp;

/// From where, and how, a connection leaves. By default from the host's own address.
#[derive(Clone, Default, Debug)]
pub struct Leave {
    /// To an IPv4 address from here; port 0 for any.
    pub v4: Option<SocketAddr>,
    /// To an IPv6 address from here; port 0 for any.
    pub v6: Option<SocketAddr>,
    /// The mark of its packets.
    pub mark: Option<u32>,
}

impl Leave {
    /// From the host's own address, by a socket with this mark.
    pub fn marked(mark: Option<u32>) -> Self {
        Self { mark, ..Self::default() }
    }

    /// From which address a connection to `to` leaves, if not from the host's own.
    pub fn source(&self, to: SocketAddr) -> Option<SocketAddr> {
        if to.is_ipv4() { self.v4 } else { self.v6 }
    }

    /// Starts to connect to `to`, by this process's own privilege where another address than the host's
    /// is to be left from. The outcome is known once the socket is writable, from [`tcp::connected`].
    pub fn connect(&self, to: SocketAddr) -> io::Result<OwnedFd> {
        let Some(source) = self.source(to) else { return self.connect_own(to) };
        match self.connect_by(socket_at(source)?, to) {
            Err(e) => match another_port(&e, source) {
                Some(source) => self.connect_by(socket_at(source)?, to),
                None => Err(e),
            },
            outcome => outcome,
        }
    }

    /// Starts to connect from the host's own address.
    pub fn connect_own(&self, to: SocketAddr) -> io::Result<OwnedFd> {
        self.connect_by(tcp::socket(to.ip())?, to)
    }

    /// Starts to connect by this socket.
    pub fn connect_by(&self, fd: OwnedFd, to: SocketAddr) -> io::Result<OwnedFd> {
        if let Some(mark) = self.mark {
            SockRef::from(&fd).set_mark(mark)?;
        }
        tcp::connect_by(fd, to)
    }
}

/// From where it is tried again where another connection to the same fixed host has this very port.
pub fn another_port(error: &io::Error, source: SocketAddr) -> Option<SocketAddr> {
    let taken = error.kind() == io::ErrorKind::AddrNotAvailable && source.port() != 0;
    taken.then(|| SocketAddr::new(source.ip(), 0))
}
