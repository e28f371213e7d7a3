//! From which address, and how, a connection leaves this host.

use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use socket2::SockRef;

use crate::foreign::socket_at;
use crate::tcp;

/// Makes sockets for addresses that are not this host's. It takes the privilege to do so, which a
/// base may have itself or by its helper.
pub trait Exit: Send + Sync + Debug {
    /// A TCP socket that is bound to `source`: to its port if that can be had, else to any. It does
    /// not block. `None` while whoever has the privilege is away: then connections leave from the
    /// host's own address.
    ///
    /// # Errors
    ///
    /// The privilege is missing, or the kernel has no socket left.
    fn socket(&self, source: SocketAddr) -> io::Result<Option<OwnedFd>>;
}

/// By this process's own privilege.
#[derive(Clone, Copy, Debug)]
pub struct Direct;

impl Exit for Direct {
    fn socket(&self, source: SocketAddr) -> io::Result<Option<OwnedFd>> {
        socket_at(source).map(Some)
    }
}

/// From where, and how, a connection leaves. By default from the host's own address.
#[derive(Clone, Default, Debug)]
pub struct Leave {
    /// To an IPv4 address from here; port 0 for any.
    pub v4: Option<SocketAddr>,
    /// To an IPv6 address from here; port 0 for any.
    pub v6: Option<SocketAddr>,
    /// Who makes the sockets for these addresses; this process itself if `None`.
    pub exit: Option<Arc<dyn Exit>>,
    /// The mark of its packets.
    pub mark: Option<u32>,
}

impl Leave {
    /// The same, by sockets that `exit` makes.
    pub fn by(self, exit: Arc<dyn Exit>) -> Self {
        Self { exit: Some(exit), ..self }
    }

    /// From the host's own address, by a socket with this mark.
    pub fn marked(mark: Option<u32>) -> Self {
        Self { mark, ..Self::default() }
    }

    /// Starts to connect to `to`. The outcome is known once the socket is writable, from
    /// [`tcp::connected`].
    pub fn connect(&self, to: SocketAddr) -> io::Result<OwnedFd> {
        let source = if to.is_ipv4() { self.v4 } else { self.v6 };
        let Some(source) = source else { return self.connect_by(tcp::socket(to.ip())?, to) };
        let outcome = self.connect_by(self.socket(source, to)?, to);
        match outcome {
            // Another connection to the same fixed host has this very port.
            Err(e) if e.kind() == io::ErrorKind::AddrNotAvailable && source.port() != 0 => {
                self.connect_by(self.socket(SocketAddr::new(source.ip(), 0), to)?, to)
            }
            outcome => outcome,
        }
    }

    fn socket(&self, source: SocketAddr, to: SocketAddr) -> io::Result<OwnedFd> {
        let socket = match &self.exit {
            Some(exit) => exit.socket(source),
            None => Direct.socket(source),
        };
        socket?.map_or_else(|| tcp::socket(to.ip()), Ok)
    }

    fn connect_by(&self, fd: OwnedFd, to: SocketAddr) -> io::Result<OwnedFd> {
        if let Some(mark) = self.mark {
            SockRef::from(&fd).set_mark(mark)?;
        }
        tcp::connect_by(fd, to)
    }
}
