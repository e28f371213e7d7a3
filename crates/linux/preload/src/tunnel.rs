//! Opening one connection through the mobile, on the descriptor that the program made.

use core::net::SocketAddr;
use core::time::Duration;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, sockopt};

use crate::complain;
use crate::config::Config;
use crate::peers::PEERS;
use crate::route::Tunnelled;
use crate::socks::{self, Answer, GREETING, REPLY_HEAD, REPLY_REST_MAX, Request};

/// Connects `socket` through the mobile. When this returns, the connection stands, or `socket` is
/// as unconnected as before and the error is what `connect(2)` says.
pub(crate) fn open(socket: BorrowedFd<'_>, wanted: Tunnelled) -> Result<(), Errno> {
    let deadline = Instant::now() + patience(socket, wanted.config)?;
    let only_v6 = clear_v6only(socket, wanted)?;
    let result = reach(socket, wanted, deadline)
        .and_then(|()| handshake(socket, wanted, deadline).inspect_err(|_| undo(socket)));
    match result {
        Ok(()) => {
            if let Some(port) = local_port(socket) {
                PEERS.remember(port, wanted.target);
            }
        }
        Err(_) if only_v6 => {
            // It was set before; where it cannot be set again, the socket was bound meanwhile.
            let _ = sockopt::set_ipv6_v6only(socket, true);
        }
        Err(_) => {}
    }
    result
}

/// The port that this end of `socket` has.
pub(crate) fn local_port(socket: BorrowedFd<'_>) -> Option<u16> {
    let local = SocketAddr::try_from(net::getsockname(socket).ok()?).ok()?;
    (local.port() != 0).then_some(local.port())
}

/// How long the program may be kept: `SO_SNDTIMEO` bounds a blocking `connect` (socket(7)).
fn patience(socket: BorrowedFd<'_>, config: &Config) -> Result<Duration, Errno> {
    let non_blocking = fcntl_getfl(socket)?.contains(OFlags::NONBLOCK);
    let ours = config.patience(non_blocking);
    let own = sockopt::socket_timeout(socket, sockopt::Timeout::Send).ok().flatten();
    Ok(own.filter(|_| !non_blocking).map_or(ours, |own| own.min(ours)))
}

/// Lets an IPv6 socket reach the proxy's v4-mapped address, and tells whether that changed it. A
/// socket that is bound cannot be changed (ipv6(7)): for it there is no way to the mobile.
fn clear_v6only(socket: BorrowedFd<'_>, wanted: Tunnelled) -> Result<bool, Errno> {
    if wanted.target.is_ipv4() || sockopt::ipv6_v6only(socket) != Ok(true) {
        return Ok(false);
    }
    sockopt::set_ipv6_v6only(socket, false).map_err(|_| Errno::NETUNREACH)?;
    Ok(true)
}

/// Connects to the proxy itself.
fn reach(socket: BorrowedFd<'_>, wanted: Tunnelled, deadline: Instant) -> Result<(), Errno> {
    clear_fast_open(socket);
    let proxy = wanted.config.proxy;
    let connected = if wanted.target.is_ipv4() {
        net::connect(socket, &proxy)
    } else {
        let mapped = SocketAddr::from((proxy.ip().to_ipv6_mapped(), proxy.port()));
        net::connect(socket, &mapped)
    };
    let connected = match connected {
        // A blocking call that a signal interrupts goes on behind the program's back (connect(2)).
        Err(Errno::INPROGRESS | Errno::INTR) => settle(socket, deadline),
        other => other,
    };
    if connected == Err(Errno::CONNREFUSED) {
        complain::once(format_args!("nobody listens at {proxy}: is lasthop mobile running?"));
    }
    connected
}

/// Waits for a connection in progress, as a program does after `EINPROGRESS`.
fn settle(socket: BorrowedFd<'_>, deadline: Instant) -> Result<(), Errno> {
    let outcome = wait(socket, PollFlags::OUT, deadline)
        .and_then(|()| sockopt::socket_error(socket).and_then(|error| error));
    if outcome == Err(Errno::TIMEDOUT) {
        undo(socket);
    }
    outcome
}

/// With `TCP_FASTOPEN_CONNECT` the kernel answers before anybody was asked, and the first bytes on
/// the connection would be ours anyway.
fn clear_fast_open(socket: BorrowedFd<'_>) {
    let off: libc::c_int = 0;
    // SAFETY: the value is an int and so long; the result does not matter, a kernel without the
    // option needs nothing cleared.
    let _ = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_FASTOPEN_CONNECT,
            (&raw const off).cast(),
            size_of_val(&off) as libc::socklen_t,
        )
    };
}

/// Asks for the target, and reads exactly the answer: the next byte is the program's.
fn handshake(socket: BorrowedFd<'_>, wanted: Tunnelled, deadline: Instant) -> Result<(), Errno> {
    let judged = |answer| explain(answer, wanted.config);
    send_all(socket, &GREETING, deadline)?;
    let mut chosen = [0; 2];
    receive_exactly(socket, &mut chosen, wanted, deadline)?;
    socks::method(chosen).map_err(judged)?;

    send_all(socket, Request::connect(wanted.target).as_bytes(), deadline)?;
    let mut head = [0; REPLY_HEAD];
    receive_exactly(socket, &mut head, wanted, deadline)?;
    let rest = socks::reply(head).map_err(judged)?;
    let mut bound = [0; REPLY_REST_MAX];
    let bound = bound.get_mut(..rest).ok_or(Errno::CONNABORTED)?;
    receive_exactly(socket, bound, wanted, deadline)
}

/// What an answer other than yes means for the program.
fn explain(answer: Answer, config: &Config) -> Errno {
    let proxy = config.proxy;
    match answer {
        Answer::Refused(errno) => errno,
        Answer::NotSocks => {
            complain::once(format_args!("what listens at {proxy} does not speak SOCKS5"));
            Errno::CONNABORTED
        }
        Answer::WantsAuthentication => {
            complain::once(format_args!("the proxy at {proxy} wants a password"));
            Errno::ACCESS
        }
    }
}

/// Sends all of `bytes`, whatever `O_NONBLOCK` says.
fn send_all(socket: BorrowedFd<'_>, mut bytes: &[u8], deadline: Instant) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match net::send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
            Err(Errno::AGAIN) => wait(socket, PollFlags::OUT, deadline)?,
            Err(Errno::INTR) => {}
            Err(Errno::PIPE | Errno::CONNRESET) => return Err(Errno::CONNABORTED),
            Err(other) => return Err(other),
        }
    }
    Ok(())
}

/// Fills `bytes` and reads nothing more.
fn receive_exactly(
    socket: BorrowedFd<'_>,
    mut bytes: &mut [u8],
    wanted: Tunnelled,
    deadline: Instant,
) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match net::recv(socket, &mut *bytes, RecvFlags::DONTWAIT) {
            Ok((0, _)) | Err(Errno::CONNRESET) => {
                let proxy = wanted.config.proxy;
                complain::once(format_args!("{proxy} closed the connection without an answer"));
                return Err(Errno::CONNABORTED);
            }
            Ok((read, _)) => bytes = bytes.get_mut(read..).unwrap_or_default(),
            Err(Errno::AGAIN) => wait(socket, PollFlags::IN, deadline)?,
            Err(Errno::INTR) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(())
}

/// Waits until `socket` is ready; signals do not end the wait, the deadline does.
fn wait(socket: BorrowedFd<'_>, events: PollFlags, deadline: Instant) -> Result<(), Errno> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
        let mut waiting = [PollFd::from_borrowed_fd(socket, events)];
        match poll(&mut waiting, Some(&left)) {
            Ok(0) => return Err(Errno::TIMEDOUT),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(other) => return Err(other),
        }
    }
}

/// Back to an unconnected socket on the same descriptor, which a program may connect elsewhere.
fn undo(socket: BorrowedFd<'_>) {
    // The error that the program is told is the one that led here.
    let _ = net::connect_unspec(socket);
}
