//! Acknowledgements that a base sends for a connection of its kernel's.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use lasthop_kernel::mmsg;
use lasthop_wire::checksum;
use lasthop_wire::ip::{self, Addresses, Protocol};
use lasthop_wire::tcp::{Flags, Options, Segment, Timestamps};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto};
use socket2::SockAddr;
use thiserror::Error;

use super::layout::INJECTED;
use crate::Flow;

/// Bytes from the beginning of TCP's header (RFC 9293 section 3.1).
const CHECKSUM: usize = 16;
const URGENT: usize = 18;

/// Why an acknowledgement cannot be sent.
#[derive(Debug, Error)]
pub enum InjectError {
    /// Raw packets need a privilege.
    #[error("acknowledgements of our own need root or CAP_NET_RAW")]
    NotPermitted(#[source] io::Error),
    /// There is no such socket.
    #[error("cannot open a socket for raw packets: {0}")]
    Socket(#[source] io::Error),
    /// The addresses are of different versions of IP.
    #[error("no packet goes from {} to {}", .0.local, .0.remote)]
    Flow(Flow),
}

/// Sends acknowledgements. What they say the program fills in that bounds those of the kernel, on their way out; one
/// that says nothing new goes no further.
#[derive(Debug)]
pub struct Injector {
    v4: OwnedFd,
    /// A host may be without.
    v6: Option<OwnedFd>,
    waiting: VecDeque<(Vec<u8>, SockAddr)>,
}

impl Injector {
    /// Opens sockets in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// No permission, or no sockets.
    pub fn open() -> Result<Self, InjectError> {
        let open = |family| {
            // The socket sends whole packets, their IP headers too (raw(7)).
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            rustix::net::socket_with(family, SocketType::RAW, flags, Some(ipproto::RAW))
        };
        let v4 = open(AddressFamily::INET).map_err(|error| match error {
            rustix::io::Errno::PERM => InjectError::NotPermitted(error.into()),
            _ => InjectError::Socket(error.into()),
        })?;
        Ok(Self::over(v4, open(AddressFamily::INET6).ok()))
    }

    /// With sockets that a privileged process has opened so, of IPv4 and, if the host has that, of IPv6.
    pub fn over(v4: OwnedFd, v6: Option<OwnedFd>) -> Self {
        Self { v4, v6, waiting: VecDeque::new() }
    }

    /// Its sockets, to be handed to who has no privilege: of IPv4, and of IPv6.
    pub fn into_sockets(self) -> (OwnedFd, Option<OwnedFd>) {
        (self.v4, self.v6)
    }

    /// Acknowledges each of the connections, of which it is said whether timestamps were agreed on. Says how many
    /// packets the kernel took; others are lost, as any packet may be.
    ///
    /// # Errors
    ///
    /// One of them is no connection; those before it are acknowledged.
    pub fn send(
        &mut self,
        connections: impl IntoIterator<Item = (Flow, bool)>,
    ) -> Result<u64, InjectError> {
        let (mut taken, mut wrong) = (0, None);
        let mut connections = connections.into_iter();
        loop {
            for (flow, has_timestamps) in connections.by_ref().take(mmsg::BATCH) {
                match acknowledgement(&flow, has_timestamps) {
                    Some(packet) => {
                        // A raw socket has no ports.
                        let mut to = flow.remote;
                        to.set_port(0);
                        self.waiting.push_back((packet, to.into()));
                    }
                    None => {
                        wrong = Some(flow);
                        break;
                    }
                }
            }
            if self.waiting.is_empty() {
                break;
            }
            taken += self.send_waiting();
            if wrong.is_some() {
                break;
            }
        }
        wrong.map_or(Ok(taken), |flow| Err(InjectError::Flow(flow)))
    }

    /// Sends what waits, through the socket of its family; what is not taken is lost.
    fn send_waiting(&mut self) -> u64 {
        let mut taken = 0;
        while let Some((_, to)) = self.waiting.front() {
            let is_ipv4 = to.is_ipv4();
            let Some(fd) = (if is_ipv4 { Some(&self.v4) } else { self.v6.as_ref() }) else {
                self.waiting.pop_front();
                continue;
            };
            let sent = mmsg::send_waiting(fd.as_fd(), &[], &mut self.waiting, |(packet, to)| {
                (to.is_ipv4() == is_ipv4).then(|| (&packet[..], to.clone()))
            });
            taken += sent.messages;
            if sent.blocked {
                self.waiting.clear();
            }
        }
        taken
    }
}

/// A pure acknowledgement of the connection that says nothing yet, as a whole IP packet with right checksums. None if
/// the addresses are of different versions.
pub(super) fn acknowledgement(flow: &Flow, has_timestamps: bool) -> Option<Vec<u8>> {
    let addresses = Addresses::new(flow.local.ip(), flow.remote.ip()).ok()?;
    let timestamps = has_timestamps.then_some(Timestamps { value: 0, echo: 0 });
    let segment = Segment {
        src_port: flow.local.port(),
        dst_port: flow.remote.port(),
        flags: Flags::ACK,
        options: Options { timestamps, ..Options::default() },
        ..Segment::default()
    };
    let mut packet = Vec::new();
    ip::Header::new(addresses, Protocol::TCP)
        .emit(segment.header_len() as usize, &mut packet)
        .ok()?;
    let header = packet.len();
    segment.emit(&addresses, &[], &mut packet).ok()?;
    let tcp = packet.get_mut(header..)?;
    // Ours writes no urgent pointer, which is zero so far.
    let urgent = INJECTED.to_be_bytes();
    let sum = u16::from_be_bytes([*tcp.get(CHECKSUM)?, *tcp.get(CHECKSUM + 1)?]);
    let sum = checksum::updated(sum, &[0, 0], &urgent).to_be_bytes();
    tcp.get_mut(CHECKSUM..URGENT)?.copy_from_slice(&sum);
    tcp.get_mut(URGENT..URGENT + 2)?.copy_from_slice(&urgent);
    Some(packet)
}
