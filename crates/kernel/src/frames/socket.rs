//! The system calls of the Ethernet carrier: an `AF_PACKET` socket that takes and gives the
//! payloads of frames of one EtherType, many in one call.
#![allow(unsafe_code)]

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use socket2::Type;

use crate::mac::Mac;
use crate::mmsg::{self, Inbox};
use crate::packet_socket;

/// Received frames that may wait while the loop is busy.
const RECEIVE_BUFFER: libc::c_int = 4 * 1024 * 1024;
/// Frames that may wait for the interface. Small on purpose: what does not fit stays in the
/// transport, which is the back-pressure that a hop without congestion control relies on. As the
/// kernel counts, some hundred full frames: a millisecond at 1 Gbit/s.
const SEND_BUFFER: libc::c_int = 256 * 1024;

/// A packet socket that is bound to one interface and one EtherType.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    index: u32,
    ethertype: u16,
}

impl Socket {
    /// Receives the frames of interface `index`.
    ///
    /// # Errors
    ///
    /// The process may not, or the interface is none.
    pub fn open(ethertype: u16, index: u32) -> io::Result<Self> {
        let fd = packet_socket::open(Type::DGRAM)?;
        packet_socket::grow_buffers(fd.as_fd(), RECEIVE_BUFFER, SEND_BUFFER);
        packet_socket::bind(fd.as_fd(), &packet_socket::address(index, ethertype))?;
        Ok(Self { fd, index, ethertype })
    }

    /// The interface to which the socket is still bound: none once the interface has gone, even if
    /// another has its index by now.
    pub fn bound_to(&self) -> Option<u32> {
        // SAFETY: a plain C structure of integers, for which zero is valid.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        let mut length = mem::size_of_val(&address) as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes, which is the structure's size.
        let result = unsafe {
            libc::getsockname(
                self.fd.as_raw_fd(),
                ptr::from_mut(&mut address).cast(),
                &raw mut length,
            )
        };
        (result == 0).then(|| u32::try_from(address.sll_ifindex).ok()).flatten()
    }

    fn address(&self, Mac(mac): Mac) -> libc::sockaddr_ll {
        let mut address = packet_socket::address(self.index, self.ethertype);
        address.sll_halen = mac.len() as u8;
        address.sll_addr[..mac.len()].copy_from_slice(&mac);
        address
    }

    /// Takes at most `most` frames without waiting; `inbox` has their payloads then. Says how many
    /// there are.
    pub fn receive(&self, inbox: &mut Inbox, most: usize) -> io::Result<usize> {
        inbox.receive(self.as_fd(), most)
    }

    /// Sends up to a batch of payloads, each to its address. Says how many the kernel took; an error
    /// concerns the first.
    pub fn send<'a>(&self, payloads: impl Iterator<Item = (Mac, &'a [u8])>) -> io::Result<usize> {
        let addressed = payloads.map(|(to, payload)| (payload, self.address(to)));
        mmsg::send(self.as_fd(), &[], addressed)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
