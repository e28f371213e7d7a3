//! Kernel TCP sockets: listening, connecting, and the options that the relay relies on.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::str::FromStr;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, ipproto, sockopt,
};
use thiserror::Error;

use crate::reactor::{Interest, Reactor, Readiness, Token};
use crate::sockopt as raw;

/// Connections that the kernel may complete before we accept them.
const BACKLOG: i32 = 1024;

/// Unsent bytes that a socket may hold beyond what is in flight: enough to keep the congestion
/// window full between two turns of the loop, little enough that a queue stands here and not there.
const NOT_SENT_LOW_WATER: usize = 256 * 1024;

/// A congestion control of the kernel's TCP, by the kernel's name for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Congestion(String);

/// The kernel has no such congestion control, or this process may not use it.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("no congestion control `{name}` can be used here; available: {available}")]
pub struct CongestionError {
    name: String,
    available: String,
}

impl Congestion {
    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Makes `fd`, and what it accepts if it listens, use this congestion control.
    pub fn apply(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(sockopt::set_tcp_congestion(fd, &self.0)?)
    }
}

/// Asks the kernel whether the name can be used.
impl FromStr for Congestion {
    type Err = CongestionError;

    fn from_str(name: &str) -> Result<Self, CongestionError> {
        let fail = || CongestionError { name: name.to_owned(), available: available() };
        // The kernel keeps at most 15 bytes of a name.
        if name.is_empty() || name.len() > 15 || name.contains('\0') {
            return Err(fail());
        }
        let congestion = Self(name.to_owned());
        let probe = socket(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST))
            .or_else(|_| socket(IpAddr::V6(Ipv6Addr::LOCALHOST)))
            .map_err(|_| fail())?;
        congestion.apply(&probe).map_err(|_| fail())?;
        Ok(congestion)
    }
}

impl fmt::Display for Congestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn available() -> String {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
        .map_or_else(|_| "unknown".to_owned(), |names| names.trim().replace(' ', ", "))
}

/// The widest window that a socket offers from here on, in bytes; what it has offered stays so. The
/// kernel resets it whenever it tunes the buffer or sees segments of another length.
///
/// # Errors
///
/// The socket is no TCP connection.
pub fn clamp_window(fd: impl AsFd, bytes: u32) -> io::Result<()> {
    let value = i32::try_from(bytes).unwrap_or(i32::MAX);
    raw::set(fd.as_fd(), libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, &[value])
}

/// A socket of the family of `ip` that does not block. Urgent data are read in line, also by what it
/// accepts if it listens: the byte at the mark would be taken out of the stream otherwise, or be lost
/// when the next mark comes.
pub fn socket(ip: IpAddr) -> io::Result<OwnedFd> {
    let family = if ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_socket_oobinline(&fd, true)?;
    Ok(fd)
}

/// Listens on `addr`; `[::]` takes IPv4 too.
pub fn listen(addr: SocketAddr) -> io::Result<OwnedFd> {
    let fd = socket(addr.ip())?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    if addr.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, addr.ip() != IpAddr::V6(Ipv6Addr::UNSPECIFIED))?;
    }
    rustix::net::bind(&fd, &addr)?;
    rustix::net::listen(&fd, BACKLOG)?;
    Ok(fd)
}

/// Refuses who connects from here on; the address stays ours.
pub fn stop_listening(fd: impl AsFd) {
    let _ = rustix::net::shutdown(fd, Shutdown::Read);
}

/// Listens again after [`stop_listening`].
pub fn listen_again(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::net::listen(fd, BACKLOG)?)
}

/// Stands for an address that the kernel did not tell.
pub(crate) const UNKNOWN: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);

/// Starts to connect to `addr`. The outcome is known once the socket is writable, from
/// [`connected`]. A mark keeps the socket from being [intercepted](crate::transparent).
pub fn connect(
    addr: SocketAddr,
    congestion: Option<&Congestion>,
    mark: Option<u32>,
) -> io::Result<OwnedFd> {
    let fd = socket(addr.ip())?;
    if let Some(mark) = mark {
        socket2::SockRef::from(&fd).set_mark(mark)?;
    }
    if let Some(congestion) = congestion {
        congestion.apply(&fd)?;
    }
    connect_by(fd, addr)
}

/// [`connect`] by a socket that stands already.
pub fn connect_by(fd: OwnedFd, addr: SocketAddr) -> io::Result<OwnedFd> {
    match rustix::net::connect(&fd, &addr) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(fd),
        Err(e) => Err(e.into()),
    }
}

/// The outcome of [`connect`]: `None` while it is not known.
pub fn connected(fd: impl AsFd) -> Option<io::Result<()>> {
    let fd = fd.as_fd();
    match sockopt::socket_error(fd) {
        Ok(Err(e)) | Err(e) => Some(Err(e.into())),
        Ok(Ok(())) => match rustix::net::getpeername(fd) {
            Ok(Some(_)) => Some(Ok(())),
            Ok(None) | Err(Errno::NOTCONN) => None,
            Err(e) => Some(Err(e.into())),
        },
    }
}

/// Sets what every relayed socket needs: no Nagle delay, since the sender on the other half has
/// already decided when to send; and keep-alive, so that a dead peer is noticed on this half too.
pub fn tune(fd: impl AsFd) {
    let fd = fd.as_fd();
    // A socket that refuses an option still carries bytes.
    let _ = sockopt::set_tcp_nodelay(fd, true);
    let _ = sockopt::set_socket_keepalive(fd, true);
    let _ = socket2::SockRef::from(&fd).set_tcp_notsent_lowat(NOT_SENT_LOW_WATER as u32);
}

/// Has a connection end with a time-out once nothing has come from its peer for `silence`, in use or idle.
/// An idle one asks the peer first when half of that is over, and then every `interval`: enough that a hop
/// that loses much loses not all of them. A kernel that refuses has its own, longer patience.
pub fn bound_silence(fd: impl AsFd, silence: Duration, interval: Duration) {
    let fd = fd.as_fd();
    let _ = sockopt::set_tcp_keepidle(fd, silence / 2);
    let _ = sockopt::set_tcp_keepintvl(fd, interval);
    let _ = sockopt::set_tcp_user_timeout(fd, silence.as_millis().try_into().unwrap_or(u32::MAX));
}

/// As [`tune`], for a connection of an application's or to a fixed host: a process that is killed must
/// not make half a stream look whole to the peer. On the hop it would: a reset is sent once, and lost.
pub fn tune_relayed(fd: impl AsFd) {
    let fd = fd.as_fd();
    tune(fd);
    abort_on_close(fd);
}

/// Makes the coming close send a reset instead of an end.
pub fn abort_on_close(fd: impl AsFd) {
    let _ = sockopt::set_socket_linger(fd, Some(Duration::ZERO));
}

/// The least round trip of late, if the kernel has measured any.
pub fn least_round_trip(fd: impl AsFd) -> Option<Duration> {
    let micros = crate::sockopt::least_round_trip(fd.as_fd()).ok()?;
    (micros != u32::MAX).then(|| Duration::from_micros(micros.into()))
}

/// The socket's own address.
pub fn local_addr(fd: impl AsFd) -> SocketAddr {
    rustix::net::getsockname(fd)
        .ok()
        .and_then(|a| SocketAddr::try_from(a).ok())
        .map_or(UNKNOWN, canonical)
}

/// Ends the sending direction.
pub fn shutdown_write(fd: impl AsFd) {
    // The peer may have reset the connection already; then the next read tells.
    let _ = rustix::net::shutdown(fd, Shutdown::Write);
}

/// What one read or write did.
#[derive(Debug)]
pub enum Moved {
    /// So many bytes, at least one.
    Bytes(usize),
    /// Nothing until the socket is ready again.
    Blocked,
    /// The peer has ended its direction (reads only).
    End,
    /// The connection is broken.
    Broken(io::Error),
}

/// Reads into `buf`, which must not be empty.
pub fn read(fd: impl AsFd, buf: &mut [u8]) -> Moved {
    match rustix::io::retry_on_intr(|| rustix::net::recv(&fd, &mut *buf, RecvFlags::empty())) {
        Ok((0, _)) => Moved::End,
        Ok((n, _)) => Moved::Bytes(n),
        Err(Errno::AGAIN) => Moved::Blocked,
        Err(e) => Moved::Broken(e.into()),
    }
}

/// Whether the peer has ended its direction and everything before that was read.
pub fn has_ended(fd: impl AsFd) -> bool {
    let peeked = rustix::io::retry_on_intr(|| {
        rustix::net::recv(&fd, &mut [0; 1][..], RecvFlags::PEEK | RecvFlags::DONTWAIT)
    });
    matches!(peeked, Ok((0, _)))
}

/// What can be read, at most `max` bytes of it; it stays there.
pub fn peek(fd: impl AsFd, max: usize) -> Vec<u8> {
    let unread = rustix::io::ioctl_fionread(&fd).map_or(0, |n| usize::try_from(n).unwrap_or(max));
    let mut bytes = vec![0; unread.min(max)];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let peeked = rustix::io::retry_on_intr(|| rustix::net::recv(&fd, &mut bytes[..], flags));
    bytes.truncate(peeked.map_or(0, |(n, _)| n));
    bytes
}

/// Writes from `buf`, which must not be empty.
pub fn write(fd: impl AsFd, buf: &[u8]) -> Moved {
    match rustix::io::retry_on_intr(|| rustix::net::send(&fd, buf, SendFlags::NOSIGNAL)) {
        Ok(n) => Moved::Bytes(n),
        Err(Errno::AGAIN) => Moved::Blocked,
        Err(e) => Moved::Broken(e.into()),
    }
}

/// A connection with what is known of its readiness: it is only asked when it may answer.
#[derive(Debug)]
pub struct Socket {
    /// The descriptor.
    pub fd: OwnedFd,
    /// What the reactor knows it by.
    pub token: Token,
    readable: bool,
    writable: bool,
    ended: bool,
    urgent: bool,
}

impl Socket {
    /// Watches `fd`; its events come back as `source`.
    pub fn new<S: Copy>(reactor: &mut Reactor<S>, fd: OwnedFd, source: S) -> io::Result<Self> {
        let token = reactor.add(&fd, Interest::ReadWrite, source)?;
        // The kernel reports the state at registration as the first event.
        Ok(Self { fd, token, readable: false, writable: false, ended: false, urgent: false })
    }

    /// Notes what the kernel reported.
    pub fn ready(&mut self, readiness: Readiness) {
        self.readable |= readiness.readable;
        self.writable |= readiness.writable;
        self.ended |= readiness.ended;
        self.urgent |= readiness.urgent;
    }

    /// Whether a read may move something.
    pub fn readable(&self) -> bool {
        self.readable
    }

    /// Whether the peer has ended its direction, or the connection is broken.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Whether a write may move something.
    pub fn writable(&self) -> bool {
        self.writable
    }

    /// Reads into `buf`, which must not be empty.
    pub fn read(&mut self, buf: &mut [u8]) -> Moved {
        if !self.readable {
            return Moved::Blocked;
        }
        let room = buf.len();
        let moved = read(&self.fd, buf);
        match moved {
            // A short read has emptied the socket (epoll(7)), unless the end is still to be read or
            // the read has stopped at the mark of urgent data (tcp(7)).
            Moved::Bytes(n) => self.readable = n == room || self.ended || self.urgent,
            Moved::Blocked => (self.readable, self.urgent) = (false, false),
            Moved::End | Moved::Broken(_) => {}
        }
        moved
    }

    /// Writes from `buf`, which must not be empty.
    pub fn write(&mut self, buf: &[u8]) -> Moved {
        if !self.writable {
            return Moved::Blocked;
        }
        let moved = write(&self.fd, buf);
        match moved {
            Moved::Bytes(n) => self.writable = n == buf.len(),
            Moved::Blocked => self.writable = false,
            Moved::End | Moved::Broken(_) => {}
        }
        moved
    }

    /// Closes the connection; with a reset if `abort`.
    pub fn close<S: Copy>(self, reactor: &mut Reactor<S>, abort: bool) {
        reactor.remove(&self.fd, self.token);
        let linger = abort.then_some(Duration::ZERO);
        // Only a broken socket refuses, and that has nobody to tell.
        let _ = sockopt::set_socket_linger(&self.fd, linger);
    }
}

/// An IPv4 address that came through an IPv6 socket, as the IPv4 address that it is. The zone of a
/// link-local address stays.
pub fn canonical(addr: SocketAddr) -> SocketAddr {
    match addr.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), addr.port()),
        IpAddr::V6(_) => addr,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accept::{Accepted, accept};

    #[test]
    fn an_unknown_congestion_control_is_answered_with_the_known_ones() {
        let e = "warp".parse::<Congestion>().unwrap_err().to_string();
        assert!(e.contains("`warp`") && e.contains("cubic"), "{e}");
        assert!("".parse::<Congestion>().is_err());
        assert!("a-name-that-no-kernel-keeps".parse::<Congestion>().is_err());
    }

    #[test]
    fn what_is_canonical_keeps_the_zone_of_a_link_local_address() {
        for (addr, expected) in [
            ("[::ffff:192.0.2.1]:53", "192.0.2.1:53"),
            ("192.0.2.1:53", "192.0.2.1:53"),
            ("[fe80::1%3]:53", "[fe80::1%3]:53"),
        ] {
            let [addr, expected] = [addr, expected].map(|addr| addr.parse().unwrap());
            assert_eq!(canonical(addr), expected);
        }
    }

    #[test]
    fn a_wildcard_ipv6_listener_takes_ipv4() {
        let listener = listen("[::]:0".parse().unwrap()).unwrap();
        let port = local_addr(&listener).port();
        let client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let from = match accept(&listener) {
            Accepted::Connection((_, from)) => from,
            _ => panic!("nobody came"),
        };
        assert_eq!(canonical(from), client.local_addr().unwrap());
        assert!(matches!(accept(&listener), Accepted::Empty));
    }

    /// The kernel ends a read at the mark, and tells of what is behind it no second time.
    #[test]
    fn urgent_data_are_read_in_line_with_what_is_behind_them() {
        for ip in ["127.0.0.1", "::1"] {
            let listener = listen(SocketAddr::new(ip.parse().unwrap(), 0)).unwrap();
            let client = std::net::TcpStream::connect(local_addr(&listener)).unwrap();
            // Before it is accepted: the second mark replaces the first in the kernel.
            for (bytes, flags) in [
                (&b"!"[..], SendFlags::OOB),
                (&b"abc"[..], SendFlags::empty()),
                (&b"?"[..], SendFlags::OOB),
                (&b"def"[..], SendFlags::empty()),
            ] {
                rustix::net::send(&client, bytes, flags).unwrap();
            }
            let Accepted::Connection((fd, _)) = accept(&listener) else { panic!("nobody came") };
            let mut reactor = Reactor::new().unwrap();
            let mut socket = Socket::new(&mut reactor, fd, ()).unwrap();
            let (mut got, mut ready) = (Vec::new(), Vec::new());
            while got.len() < 8 {
                reactor.wait(Some(Duration::from_secs(20)), &mut ready).unwrap();
                assert!(!ready.is_empty(), "{:?} and no more", String::from_utf8_lossy(&got));
                ready.iter().for_each(|((), readiness)| socket.ready(*readiness));
                let mut piece = [0; 100];
                while let Moved::Bytes(n) = socket.read(&mut piece) {
                    got.extend_from_slice(&piece[..n]);
                }
            }
            assert_eq!(got, b"!abc?def", "{:?}", String::from_utf8_lossy(&got));
            assert!(!socket.readable());
        }
    }
}
