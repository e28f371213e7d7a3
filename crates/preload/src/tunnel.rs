//! Opening one connection through the mobile, on the descriptor that the program made.

use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use core::time::Duration;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, sockopt};

use crate::config::Config;
use crate::failures::FAILURES;
use crate::peers::PEERS;
use crate::socks::{self, Answer, GREETING, REPLY_HEAD, REPLY_REST_MAX, Request};
use crate::stderr;

/// Longest wait for this host to refuse a connection to itself.
const REFUSED_WITHIN: Duration = Duration::from_millis(500);

/// A connection that goes through the mobile.
#[derive(Clone, Copy)]
pub(crate) struct Tunnelled {
    /// How this process is configured.
    pub(crate) config: &'static Config,
    /// The address that the program wants.
    pub(crate) target: SocketAddr,
}

/// Connects `socket`, which is closed, through the mobile. When this returns, the connection stands,
/// or `socket` is as unconnected as before and the error is what `connect(2)` says.
pub(crate) fn open(socket: BorrowedFd<'_>, wanted: Tunnelled) -> Result<(), Errno> {
    let timeout = Timeout::of(socket, wanted.config)?;
    let only_v6 = clear_v6only(socket, wanted)?;
    let outcome = match begin(socket, wanted, timeout) {
        Ok(progress) => await_connected(socket, wanted, progress, timeout.deadline)
            .and_then(|()| handshake(socket, wanted, timeout.deadline))
            .map_err(|errno| abandon(socket, wanted, timeout, errno)),
        refused => refused.map(drop),
    };
    match outcome {
        Ok(()) => {
            if let Some(port) = local_port(socket) {
                PEERS.insert(port, wanted.target);
            }
        }
        Err(_) if only_v6 => {
            // It was set before; where it cannot be set again, the socket was bound meanwhile.
            let _ = sockopt::set_ipv6_v6only(socket, true);
        }
        Err(_) => {}
    }
    outcome
}

/// The port that this end of `socket` has.
pub(crate) fn local_port(socket: BorrowedFd<'_>) -> Option<u16> {
    let local = SocketAddr::try_from(net::getsockname(socket).ok()?).ok()?;
    (local.port() != 0).then_some(local.port())
}

/// How long a `connect` may take.
#[derive(Clone, Copy)]
struct Timeout {
    deadline: Instant,
    /// The program will look for the outcome at its socket.
    non_blocking: bool,
    /// The program's own `SO_SNDTIMEO` is the bound (socket(7)).
    own: bool,
}

impl Timeout {
    fn of(socket: BorrowedFd<'_>, config: &Config) -> Result<Self, Errno> {
        let non_blocking = fcntl_getfl(socket)?.contains(OFlags::NONBLOCK);
        let ours = config.patience(non_blocking);
        let own = sockopt::socket_timeout(socket, sockopt::Timeout::Send).ok().flatten();
        let own = own.filter(|own| !non_blocking && *own < ours);
        let deadline = Instant::now() + own.unwrap_or(ours);
        Ok(Self { deadline, non_blocking, own: own.is_some() })
    }
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

/// How far the kernel has come with a connection to the proxy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Connected,
    InProgress,
}

/// Begins to connect to the proxy itself. After an error nothing has begun.
fn begin(socket: BorrowedFd<'_>, wanted: Tunnelled, timeout: Timeout) -> Result<Progress, Errno> {
    clear_fast_open(socket);
    match connect(socket, wanted, wanted.config.proxy) {
        Ok(()) => Ok(Progress::Connected),
        // A blocking call that a signal interrupts goes on behind the program's back (connect(2)).
        Err(Errno::INPROGRESS | Errno::INTR) => Ok(Progress::InProgress),
        // At once only a blocking call is refused; else an earlier connection, elsewhere, was.
        Err(errno) if timeout.non_blocking => Err(errno),
        Err(errno) => Err(report_if_refused(wanted, errno)),
    }
}

/// Calls the kernel's `connect` for an address of IPv4, as the socket's family can have it.
fn connect(socket: BorrowedFd<'_>, wanted: Tunnelled, to: SocketAddrV4) -> Result<(), Errno> {
    if wanted.target.is_ipv4() {
        net::connect(socket, &to)
    } else {
        net::connect(socket, &SocketAddr::from((to.ip().to_ipv6_mapped(), to.port())))
    }
}

fn report_if_refused(wanted: Tunnelled, errno: Errno) -> Errno {
    if errno == Errno::CONNREFUSED {
        let proxy = wanted.config.proxy;
        stderr::report_once(format_args!("nobody listens at {proxy}: is lasthop mobile running?"));
    }
    errno
}

/// Waits for a connection in progress, and asks the kernel for the outcome by `connect`, which returns
/// 0 once and then `EISCONN`: that 0 is ours, and the program must not see it.
fn await_connected(
    socket: BorrowedFd<'_>,
    wanted: Tunnelled,
    progress: Progress,
    deadline: Instant,
) -> Result<(), Errno> {
    if progress == Progress::Connected {
        return Ok(());
    }
    loop {
        wait(socket, PollFlags::OUT, deadline)?;
        match connect(socket, wanted, wanted.config.proxy) {
            Ok(()) | Err(Errno::ISCONN) => return Ok(()),
            Err(Errno::ALREADY | Errno::INPROGRESS | Errno::INTR) => {}
            Err(errno) => return Err(report_if_refused(wanted, errno)),
        }
    }
}

/// With `TCP_FASTOPEN_CONNECT` the kernel answers before the SYN is sent, and the first bytes on
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

/// The `errno` for an answer other than success.
fn explain(answer: Answer, config: &Config) -> Errno {
    let proxy = config.proxy;
    match answer {
        Answer::Refused(errno) => errno,
        Answer::NotSocks => {
            stderr::report_once(format_args!("what listens at {proxy} does not speak SOCKS5"));
            Errno::CONNABORTED
        }
        Answer::WantsAuthentication => {
            stderr::report_once(format_args!("the proxy at {proxy} wants a password"));
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
                stderr::report_once(format_args!(
                    "{proxy} closed the connection without an answer"
                ));
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

/// Leaves `socket` as a failed `connect` does; the `errno` that such a call returns.
fn abandon(socket: BorrowedFd<'_>, wanted: Tunnelled, timeout: Timeout, errno: Errno) -> Errno {
    undo(socket);
    // That reset the connection to the proxy, which is no error of the program's.
    let _ = sockopt::socket_error(socket);
    let own = timeout.own && Instant::now() >= timeout.deadline;
    if timeout.non_blocking || own {
        leave_error(socket, wanted, errno);
    }
    // What the kernel says when SO_SNDTIMEO has passed (socket(7)).
    if own { Errno::INPROGRESS } else { errno }
}

/// Whoever polls `socket` finds an error, and `SO_ERROR` is `errno`. The kernel's part of it is a
/// connection that is surely refused: nobody can listen at port 0. A next `connect` begins anew.
fn leave_error(socket: BorrowedFd<'_>, wanted: Tunnelled, errno: Errno) {
    const NOBODY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
    let refused = connect(socket, wanted, NOBODY) == Err(Errno::INPROGRESS)
        && wait(socket, PollFlags::OUT, Instant::now() + REFUSED_WITHIN).is_ok();
    undo(socket);
    if !refused {
        // A filter may have swallowed it.
        let _ = sockopt::socket_error(socket);
    }
    if !(refused && errno == Errno::CONNREFUSED && has_error(socket)) {
        FAILURES.record(socket, errno);
    }
}

/// Whether the kernel keeps an error for whoever asks next; a socket of multipath TCP has lost it.
fn has_error(socket: BorrowedFd<'_>) -> bool {
    let mut looking = [PollFd::from_borrowed_fd(socket, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut looking, Some(&now)).is_ok() && looking[0].revents().contains(PollFlags::ERR)
}

/// Back to an unconnected socket on the same descriptor, which a program may connect elsewhere.
fn undo(socket: BorrowedFd<'_>) {
    // The program gets the error that led here.
    let _ = net::connect_unspec(socket);
}
