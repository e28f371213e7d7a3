//! Which connections go through the mobile.

use core::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::net::{AddressFamily, ipproto, sockopt};

use crate::config::Config;
use crate::peers::PEERS;
use crate::tunnel::{self, Tunnelled};

/// How a connection of `socket` to `target` goes through the mobile; `None` leaves it to the kernel.
pub(crate) fn tunnelled(socket: BorrowedFd<'_>, target: SocketAddr) -> Option<Tunnelled> {
    let config = Config::get()?;
    if config.is_direct(target) || !is_tcp(socket) || !is_family_of(socket, target) {
        return None;
    }
    is_closed(socket).then_some(Tunnelled { config, target })
}

/// What is connecting, connected or listening is the kernel's to answer for: its 0 would mean an
/// earlier connection, which stands already.
fn is_closed(socket: BorrowedFd<'_>) -> bool {
    /// `tcpi_state` of linux/tcp.h, the first byte.
    const TCP_CLOSE: u8 = 7;
    let mut state = 0_u8;
    let mut len: libc::socklen_t = 1;
    // SAFETY: the kernel writes at most `len` bytes, which is the length of `state`. By the system
    // call itself, since the function of that name may be another's.
    let result = unsafe {
        libc::syscall(
            libc::SYS_getsockopt,
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            &raw mut state,
            &raw mut len,
        )
    };
    result == 0 && state == TCP_CLOSE
}

/// Multipath TCP speaks plain TCP with a proxy that does not know it; SCTP, for one, does not.
fn is_tcp(socket: BorrowedFd<'_>) -> bool {
    matches!(sockopt::socket_protocol(socket), Ok(Some(ipproto::TCP | ipproto::MPTCP)))
}

/// An IPv4 address for an IPv6 socket, or the other way round, is the kernel's to refuse.
fn is_family_of(socket: BorrowedFd<'_>, target: SocketAddr) -> bool {
    let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    sockopt::socket_domain(socket) == Ok(family)
}

/// What the program asked for when it connected `socket`, if that went through the mobile.
pub(crate) fn peer_of(socket: BorrowedFd<'_>) -> Option<SocketAddr> {
    let config = Config::get()?;
    let real = SocketAddr::try_from(rustix::net::getpeername(socket).ok()??).ok()?;
    if !config.is_proxy(real) {
        return None;
    }
    PEERS.get(tunnel::local_port(socket)?)
}

/// Removes the record of an earlier connection to the proxy from the same port, once the program itself
/// has connected `socket` to `target`, the proxy.
pub(crate) fn remove_direct(socket: BorrowedFd<'_>, target: SocketAddr) {
    if Config::get().is_some_and(|config| config.is_proxy(target))
        && let Some(port) = tunnel::local_port(socket)
    {
        PEERS.remove(port);
    }
}
