//! Which system call fails in which way: a function of the seed, the call and how often it was made.

use std::collections::BTreeMap;
use std::time::Duration;

use lasthop_units::{Seed, Stream};
use nix::errno::Errno;
use nix::libc;

/// What a descriptor is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A TCP or UNIX connection.
    Stream,
    /// A UDP socket.
    Datagrams,
    /// What tells of interfaces, routes and packet rules.
    Netlink,
    /// What threads wake each other by, eventfd(2): it always has room.
    Counter,
    /// A file, a pipe, a listener.
    Other,
}

/// What becomes of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// It is not made, and fails.
    Fails(Errno),
    /// It is not made, and says that nothing happened.
    Nothing,
    /// It may move only a part: so many 256ths of what was asked for.
    Shorter(u64),
    /// It is made later.
    Later(Duration),
}

impl Fault {
    /// Its name in counts.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Fails(errno) => format!("{errno:?}"),
            Self::Nothing => "nothing".into(),
            Self::Shorter(_) => "shorter".into(),
            Self::Later(_) => "later".into(),
        }
    }
}

/// A system call into which faults fall.
#[derive(Debug)]
pub(crate) struct Call {
    number: i64,
    pub(crate) name: &'static str,
    /// Whether its first argument is a descriptor, on which the fault depends.
    pub(crate) by_descriptor: bool,
    /// One call in so many is hit.
    one_in: u64,
    possible: &'static [(Option<Kind>, Fault)],
}

use Errno::{
    EACCES, EADDRNOTAVAIL, EAGAIN, ECONNABORTED, ECONNREFUSED, EHOSTUNREACH, EINTR, EMFILE,
    EMSGSIZE, ENETUNREACH, ENFILE, ENOBUFS, ENOMEM, ENOSPC, EPERM, ETIMEDOUT,
};
use Fault::{Fails, Later, Nothing, Shorter};
use Kind::{Datagrams, Netlink, Other, Stream as Connection};

/// Some of a read or write; how much is drawn.
const SOME: Fault = Shorter(0);
const LATE: Fault = Later(Duration::from_millis(3));

const READ: &[(Option<Kind>, Fault)] = &[
    (None, Fails(EINTR)),
    (None, LATE),
    (Some(Connection), SOME),
    (Some(Connection), Fails(EAGAIN)),
    (Some(Datagrams), SOME),
    (Some(Datagrams), Fails(EAGAIN)),
    (Some(Datagrams), Fails(ENOMEM)),
    (Some(Datagrams), Fails(ECONNREFUSED)),
    (Some(Netlink), Fails(ENOBUFS)),
];

const WRITE: &[(Option<Kind>, Fault)] = &[
    (None, Fails(EINTR)),
    (None, LATE),
    (Some(Connection), SOME),
    (Some(Connection), Fails(EAGAIN)),
    (Some(Other), Fails(ENOSPC)),
    (Some(Datagrams), SOME),
    (Some(Datagrams), Fails(EAGAIN)),
    (Some(Datagrams), Fails(ENOBUFS)),
    (Some(Datagrams), Fails(ENOMEM)),
    (Some(Datagrams), Fails(EPERM)),
    (Some(Datagrams), Fails(ENETUNREACH)),
    (Some(Datagrams), Fails(EHOSTUNREACH)),
    (Some(Datagrams), Fails(ECONNREFUSED)),
    (Some(Datagrams), Fails(EMSGSIZE)),
    (Some(Netlink), Fails(ENOBUFS)),
];

const ACCEPT: &[(Option<Kind>, Fault)] = &[
    (None, Fails(EINTR)),
    (None, Fails(EAGAIN)),
    (None, Fails(ECONNABORTED)),
    (None, Fails(EMFILE)),
    (None, Fails(ENFILE)),
    (None, Fails(ENOBUFS)),
    (None, Fails(ENOMEM)),
    (None, Fails(EPERM)),
];

const NEW: &[(Option<Kind>, Fault)] =
    &[(None, Fails(EMFILE)), (None, Fails(ENFILE)), (None, Fails(ENOBUFS)), (None, Fails(ENOMEM))];

const CONNECT: &[(Option<Kind>, Fault)] = &[
    (None, Fails(ENETUNREACH)),
    (None, Fails(EHOSTUNREACH)),
    (None, Fails(ECONNREFUSED)),
    (None, Fails(EADDRNOTAVAIL)),
    (None, Fails(ETIMEDOUT)),
    (None, Fails(EACCES)),
    (None, Fails(ENOBUFS)),
];

const WAIT: &[(Option<Kind>, Fault)] = &[(None, Fails(EINTR)), (None, Nothing), (None, LATE)];

const WATCH: &[(Option<Kind>, Fault)] = &[(None, Fails(ENOMEM)), (None, Fails(ENOSPC))];

const OPEN: &[(Option<Kind>, Fault)] =
    &[(None, Fails(EMFILE)), (None, Fails(ENFILE)), (None, Fails(ENOMEM)), (None, Fails(EINTR))];

const THREAD: &[(Option<Kind>, Fault)] = &[(None, Fails(EAGAIN)), (None, Fails(ENOMEM))];

const fn call(
    number: i64,
    name: &'static str,
    one_in: u64,
    possible: &'static [(Option<Kind>, Fault)],
) -> Call {
    Call { number, name, by_descriptor: true, one_in, possible }
}

const fn plain(
    number: i64,
    name: &'static str,
    one_in: u64,
    possible: &'static [(Option<Kind>, Fault)],
) -> Call {
    Call { number, name, by_descriptor: false, one_in, possible }
}

static CALLS: &[Call] = &[
    call(libc::SYS_read, "read", 8, READ),
    call(libc::SYS_recvfrom, "recvfrom", 12, READ),
    call(libc::SYS_recvmsg, "recvmsg", 12, READ),
    call(libc::SYS_recvmmsg, "recvmmsg", 12, READ),
    call(libc::SYS_write, "write", 8, WRITE),
    call(libc::SYS_sendto, "sendto", 12, WRITE),
    call(libc::SYS_sendmsg, "sendmsg", 12, WRITE),
    call(libc::SYS_sendmmsg, "sendmmsg", 12, WRITE),
    call(libc::SYS_accept4, "accept4", 8, ACCEPT),
    plain(libc::SYS_socket, "socket", 12, NEW),
    plain(libc::SYS_connect, "connect", 12, CONNECT),
    plain(libc::SYS_epoll_wait, "epoll_wait", 16, WAIT),
    plain(libc::SYS_epoll_pwait, "epoll_pwait", 16, WAIT),
    plain(libc::SYS_epoll_pwait2, "epoll_pwait2", 16, WAIT),
    plain(libc::SYS_epoll_ctl, "epoll_ctl", 24, WATCH),
    plain(libc::SYS_openat, "openat", 4, OPEN),
    plain(libc::SYS_clone3, "clone3", 4, THREAD),
];

/// The faults of one process.
#[derive(Debug)]
pub(crate) struct Schedule {
    seed: Seed,
    draws: BTreeMap<&'static str, Stream>,
}

impl Schedule {
    pub(crate) fn new(seed: Seed) -> Self {
        Self { seed, draws: BTreeMap::new() }
    }

    /// The call with this number, if faults fall into it.
    pub(crate) fn call(number: i64) -> Option<&'static Call> {
        CALLS.iter().find(|call| call.number == number)
    }

    /// The next of these calls is made, on a descriptor of the kind that `kind` finds.
    pub(crate) fn next(
        &mut self,
        call: &'static Call,
        kind: impl FnOnce() -> Kind,
    ) -> Option<Fault> {
        let seed = self.seed;
        let draws = self.draws.entry(call.name).or_insert_with(|| seed.stream(call.name));
        // So many draws for each call, whatever comes of it.
        let (hit, which, much) = (draws.below(call.one_in), draws.next_u64(), draws.below(256));
        if hit != 0 {
            return None;
        }
        let kind = if call.by_descriptor { kind() } else { Other };
        let fits = |of: &Option<Kind>| of.is_none_or(|of| of == kind);
        let possible: Vec<Fault> =
            call.possible.iter().filter(|(of, _)| fits(of)).map(|(_, fault)| *fault).collect();
        let fault = *possible.get(usize::try_from(which).ok()?.checked_rem(possible.len())?)?;
        Some(if fault == SOME { Shorter(much) } else { fault })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_the_seeds_and_no_other_calls() {
        let faults = |seed, between: bool| {
            let mut schedule = Schedule::new(Seed::from_u64(seed));
            let call = |number| Schedule::call(number).unwrap();
            let one = |_| {
                if between {
                    schedule.next(call(libc::SYS_read), || Connection);
                }
                schedule.next(call(libc::SYS_accept4), || Other)
            };
            (0..1000).map(one).collect::<Vec<_>>()
        };
        let one = faults(1, false);
        assert_eq!(one, faults(1, true));
        assert_ne!(one, faults(2, false));
        let hits = one.iter().flatten().count();
        assert!((50..250).contains(&hits), "{hits} of 1000");
    }
}
