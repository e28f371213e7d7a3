//! Sockets with addresses that are not this host's (`IP_TRANSPARENT`).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::sockopt;
use socket2::SockRef;

use crate::tcp;

/// A TCP socket that does not block, bound to an address that need not be this host's
/// (`IP_TRANSPARENT`): to its port if that can be had, else to any.
///
/// # Errors
///
/// `EPERM` without CAP_NET_ADMIN.
pub fn socket_at(source: SocketAddr) -> io::Result<OwnedFd> {
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
pub fn allow_foreign(fd: &OwnedFd, family: IpAddr) -> io::Result<()> {
    let socket = SockRef::from(fd);
    match family {
        IpAddr::V4(_) => socket.set_ip_transparent_v4(true),
        IpAddr::V6(_) => socket.set_ip_transparent_v6(true),
    }
}
