//! Whole Ethernet frames of one interface, taken and sent by an `AF_PACKET` socket.
#![allow(unsafe_code)]

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use socket2::{Domain, Socket, Type};
use thiserror::Error;

use crate::sockopt;

/// Room for packets while the reader is not running; a full one drops packets.
const SOCKET_BUFFER: libc::c_int = 32 * 1024 * 1024;

/// An interface that could not be opened.
#[derive(Debug, Error)]
pub enum PacketSocketError {
    /// The namespace has no interface of that name.
    #[error("there is no interface `{0}` here")]
    NoInterface(String),
    /// Raw frames need `CAP_NET_RAW`.
    #[error("interface `{0}`: raw frames need root or CAP_NET_RAW")]
    NotPermitted(String),
    /// The system refused.
    #[error("interface `{name}`: {doing}: {source}")]
    Io {
        /// The interface.
        name: String,
        /// What was being done.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// A socket that gives every frame that an interface receives, with a header that says what the
/// kernel left undone (see [`crate::offload`]), and sends frames with such a header.
///
/// It belongs to the network namespace in which it was opened, wherever it is used.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
}

impl PacketSocket {
    /// Opens `name` in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// There is no such interface, or no permission.
    pub fn open(name: &str) -> Result<Self, PacketSocketError> {
        Self::open_filtered(name, &[])
    }

    /// The same, for frames that the program lets pass (classic BPF; an empty one lets all pass). It
    /// sees a frame from its Ethernet header on.
    ///
    /// # Errors
    ///
    /// There is no such interface, no permission, or the kernel refuses the program.
    pub fn open_filtered(
        name: &str,
        program: &[libc::sock_filter],
    ) -> Result<Self, PacketSocketError> {
        let io =
            |doing| move |source| PacketSocketError::Io { name: name.to_owned(), doing, source };
        let fd = open(Type::RAW).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => PacketSocketError::NotPermitted(name.to_owned()),
            _ => io("opening a packet socket")(error),
        })?;
        let index = rustix::net::netdevice::name_to_index(&fd, name)
            .map_err(|_| PacketSocketError::NoInterface(name.to_owned()))?;
        let socket = Self { fd };
        let enable = |option| sockopt::set(socket.as_fd(), libc::SOL_PACKET, option, &[1_i32]);
        enable(libc::PACKET_VNET_HDR).map_err(io("asking for offload headers"))?;
        enable(libc::PACKET_IGNORE_OUTGOING).map_err(io("ignoring outgoing frames"))?;
        grow_buffers(socket.as_fd(), SOCKET_BUFFER, SOCKET_BUFFER);
        if !program.is_empty() {
            sockopt::attach(socket.as_fd(), libc::SO_ATTACH_FILTER, program)
                .map_err(io("filtering frames"))?;
        }
        bind(socket.as_fd(), &address(index, libc::ETH_P_ALL as u16))
            .map_err(io("binding to the interface"))?;
        socket.listen_to_all(index).map_err(io("listening to all addresses"))?;
        Ok(socket)
    }

    /// Frames that the kernel dropped because nobody read them, since the last call.
    pub fn take_drops(&self) -> u32 {
        // struct tpacket_stats: packets, drops
        let stats = sockopt::get::<8>(self.as_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS);
        stats.map_or(0, |stats| sockopt::word(&stats, 4))
    }

    /// Frames for the far side carry its address, not this interface's.
    fn listen_to_all(&self, index: u32) -> io::Result<()> {
        let membership = libc::packet_mreq {
            mr_ifindex: index as libc::c_int,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        sockopt::set(self.as_fd(), libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &[membership])
    }
}

/// Opens a packet socket of that kind, which never waits. It receives nothing before it is bound:
/// its protocol is zero.
pub fn open(kind: Type) -> io::Result<OwnedFd> {
    Ok(Socket::new(Domain::PACKET, kind.nonblocking(), None)?.into())
}

/// Opens a socket that gives every packet of one Ethernet type that the calling thread's network namespace receives, on
/// whatever interface, and never waits. A packet begins with its own header: what is before that is left out. Of those that
/// the program (classic BPF) lets pass none is lost that fits into `buffer` bytes.
///
/// # Errors
///
/// No permission (`CAP_NET_RAW`), or the kernel refuses the program.
pub fn listen(
    ethertype: u16,
    program: &[libc::sock_filter],
    buffer: libc::c_int,
) -> io::Result<OwnedFd> {
    let fd = open(Type::DGRAM)?;
    grow_buffers(fd.as_fd(), buffer, buffer);
    sockopt::attach(fd.as_fd(), libc::SO_ATTACH_FILTER, program)?;
    bind(fd.as_fd(), &address(0, ethertype))?;
    Ok(fd)
}

/// Large buffers need a privilege beyond that for raw frames; without, the usual limit holds.
pub fn grow_buffers(fd: BorrowedFd<'_>, receive: libc::c_int, send: libc::c_int) {
    for (forced, usual, size) in [
        (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, receive),
        (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, send),
    ] {
        if sockopt::set(fd, libc::SOL_SOCKET, forced, &[size]).is_err() {
            let _ = sockopt::set(fd, libc::SOL_SOCKET, usual, &[size]);
        }
    }
}

/// An interface, and the frames of one type on it.
pub fn address(index: u32, ethertype: u16) -> libc::sockaddr_ll {
    // SAFETY: a plain C structure of integers, for which zero is valid.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = ethertype.to_be();
    address.sll_ifindex = index as libc::c_int;
    address
}

/// From here on the socket receives what the address says.
pub fn bind(fd: BorrowedFd<'_>, address: &libc::sockaddr_ll) -> io::Result<()> {
    // SAFETY: the kernel reads the structure, whose size is given.
    let result = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            ptr::from_ref(address).cast(),
            mem::size_of_val(address) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_is_not_there_is_named() {
        match PacketSocket::open("no-such-if0") {
            Err(PacketSocketError::NoInterface(name) | PacketSocketError::NotPermitted(name)) => {
                assert_eq!(name, "no-such-if0");
            }
            other => panic!("{other:?}"),
        }
    }
}
