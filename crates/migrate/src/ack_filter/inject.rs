//! Acknowledgements that a base sends for a connection of its kernel's.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use lasthop_session::acknowledge::INJECTED;
use lasthop_wire::checksum;
use lasthop_wire::ip::{self, Addresses, Protocol};
use lasthop_wire::tcp::{Flags, Options, Segment, Timestamps};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto};
use thiserror::Error;

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
}

/// One of a connection, which can be sent often.
#[derive(Debug)]
pub struct Acknowledgement {
    packet: Vec<u8>,
    to: SocketAddr,
}

impl Acknowledgement {
    /// Of a connection, of which it is said whether timestamps were agreed on. Its window field is that as long as the kernel
    /// has offered none.
    ///
    /// # Errors
    ///
    /// It is no connection.
    pub fn new(flow: &Flow, has_timestamps: bool, window: u16) -> Result<Self, InjectError> {
        let packet =
            acknowledgement(flow, has_timestamps, window).ok_or(InjectError::Flow(*flow))?;
        Ok(Self { packet, to: SocketAddr::new(flow.remote.ip(), 0) })
    }
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
        Ok(Self { v4, v6: open(AddressFamily::INET6).ok() })
    }

    /// Acknowledges. It may be lost, as any packet may be.
    ///
    /// # Errors
    ///
    /// The kernel does not take it.
    pub fn send(&self, acknowledgement: &Acknowledgement) -> io::Result<()> {
        self.send_packet(&acknowledgement.packet, acknowledgement.to)
    }

    /// Sends a whole IP packet to a host; the port says nothing.
    pub(crate) fn send_packet(&self, packet: &[u8], to: SocketAddr) -> io::Result<()> {
        let fd = if to.is_ipv4() { Some(&self.v4) } else { self.v6.as_ref() };
        let fd = fd.ok_or(io::ErrorKind::Unsupported)?;
        rustix::net::sendto(fd, packet, SendFlags::DONTWAIT, &to).map(drop).map_err(Into::into)
    }
}

/// A pure acknowledgement of the connection that says nothing yet, as a whole IP packet with right checksums. None if
/// the addresses are of different versions.
pub(super) fn acknowledgement(flow: &Flow, has_timestamps: bool, window: u16) -> Option<Vec<u8>> {
    let addresses = Addresses::new(flow.local.ip(), flow.remote.ip()).ok()?;
    let timestamps = has_timestamps.then_some(Timestamps { value: 0, echo: 0 });
    let segment = Segment {
        src_port: flow.local.port(),
        dst_port: flow.remote.port(),
        flags: Flags::ACK,
        window,
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
