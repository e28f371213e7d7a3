//! What was set on a socket, which moves with its connection.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::net::sockopt as options;
use serde::{Deserialize, Serialize};

/// The kernel keeps at most 15 bytes of a congestion control's name.
const NAME_MAX: usize = 15;

/// When the kernel asks a silent peer whether it lives (tcp(7)), in seconds and questions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct KeepAlive {
    pub(super) idle: u32,
    pub(super) interval: u32,
    pub(super) count: u32,
}

/// What was set on the socket.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Settings {
    pub(super) nodelay: bool,
    pub(super) keepalive: Option<KeepAlive>,
    /// Milliseconds; zero is the kernel's own.
    pub(super) user_timeout: u32,
    /// Bytes.
    pub(super) not_sent_low_water: u32,
    pub(super) congestion: String,
}

impl Settings {
    /// Those of a TCP socket.
    pub(super) fn of(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let seconds = |d: Duration| u32::try_from(d.as_secs()).unwrap_or(u32::MAX);
        let keepalive = if options::socket_keepalive(fd)? {
            Some(KeepAlive {
                idle: seconds(options::tcp_keepidle(fd)?),
                interval: seconds(options::tcp_keepintvl(fd)?),
                count: options::tcp_keepcnt(fd)?,
            })
        } else {
            None
        };
        Ok(Self {
            nodelay: options::tcp_nodelay(fd)?,
            keepalive,
            user_timeout: options::tcp_user_timeout(fd)?,
            not_sent_low_water: socket2::SockRef::from(&fd).tcp_notsent_lowat()?,
            congestion: options::tcp_congestion(fd)?,
        })
    }

    /// Sets all but what has to be set earlier: that nothing is delayed.
    pub(super) fn apply(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        if !self.congestion.is_empty() {
            // One that this host does not have leaves the default in charge.
            let _ = options::set_tcp_congestion(fd, &self.congestion);
        }
        if self.not_sent_low_water != 0 {
            socket2::SockRef::from(&fd).set_tcp_notsent_lowat(self.not_sent_low_water)?;
        }
        options::set_tcp_user_timeout(fd, self.user_timeout)?;
        let Some(keepalive) = self.keepalive else { return Ok(()) };
        options::set_socket_keepalive(fd, true)?;
        options::set_tcp_keepidle(fd, Duration::from_secs(keepalive.idle.into()))?;
        options::set_tcp_keepintvl(fd, Duration::from_secs(keepalive.interval.into()))?;
        Ok(options::set_tcp_keepcnt(fd, keepalive.count)?)
    }

    /// Whether the congestion control has a name that one can have.
    pub(super) fn is_sensible(&self) -> bool {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        self.congestion.len() <= NAME_MAX && self.congestion.chars().all(plain)
    }
}

/// Some values, for tests of what has them.
#[cfg(test)]
pub(super) mod some {
    use std::net::SocketAddr;

    use proptest::prelude::*;

    use super::*;

    /// Addresses and ports of both ends.
    pub(crate) fn ends() -> impl Strategy<Value = (SocketAddr, SocketAddr)> {
        let v4 = (1u8..200, 1u16.., 1u8..200, 1u16..).prop_map(|(a, p, b, q)| {
            (SocketAddr::from(([10, 0, 0, a], p)), SocketAddr::from(([192, 0, 2, b], q)))
        });
        let v6 = (1u16.., 1u16.., 1u16.., 1u16..).prop_map(|(a, p, b, q)| {
            let at = |n, port| SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, n], port));
            (at(a, p), at(b, q))
        });
        prop_oneof![v4, v6]
    }

    prop_compose! {
        pub(crate) fn settings()(
            nodelay: bool,
            keepalive in prop::option::of(any::<(u32, u32, u32)>()),
            user_timeout: u32,
            not_sent_low_water: u32,
            congestion in "[a-z0-9_-]{0,15}",
        ) -> Settings {
            let keepalive =
                keepalive.map(|(idle, interval, count)| KeepAlive { idle, interval, count });
            Settings { nodelay, keepalive, user_timeout, not_sent_low_water, congestion }
        }
    }
}
