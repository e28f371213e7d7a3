//! The system calls of the Ethernet carrier: an `AF_PACKET` socket that takes and gives the
//! payloads of frames of one EtherType, many in one call.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use crate::mac::Mac;
use crate::packet_socket;

/// The most frames in one call.
pub const BATCH: usize = 64;

/// Received frames that may wait while the loop is busy.
const RECEIVE_BUFFER: libc::c_int = 4 * 1024 * 1024;
/// Frames that may wait for the interface. Small on purpose: what does not fit stays in the
/// transport, which is the back-pressure that a hop without congestion control relies on. As the
/// kernel counts, some hundred full frames: a millisecond at 1 Gbit/s.
const SEND_BUFFER: libc::c_int = 256 * 1024;

/// What the kernel says of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Its number.
    pub index: u32,
    /// The longest payload of a frame.
    pub mtu: usize,
    /// Its own address.
    pub mac: Mac,
    /// Whether it carries Ethernet frames.
    pub is_ethernet: bool,
    /// Whether it is up and has its carrier.
    pub is_up: bool,
}

/// A packet socket that is bound to one interface and one EtherType.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    index: u32,
    ethertype: u16,
}

impl Socket {
    /// A socket that receives nothing yet: it is good for asking about interfaces.
    pub fn new(ethertype: u16) -> io::Result<Self> {
        Ok(Self { fd: packet_socket::open(libc::SOCK_DGRAM)?, index: 0, ethertype })
    }

    /// What the kernel knows of the interface `name`.
    pub fn interface(&self, name: &str) -> io::Result<Interface> {
        let index = rustix::net::netdevice::name_to_index(&self.fd, name)?;
        let mtu = self.ask(name, libc::SIOCGIFMTU)?;
        let address = self.ask(name, libc::SIOCGIFHWADDR)?;
        let flags = self.ask(name, libc::SIOCGIFFLAGS)?;
        // SAFETY: each request has filled in the member that is read here, a plain integer or a
        // structure of integers.
        let (mtu, address, flags) = unsafe {
            (mtu.ifr_ifru.ifru_mtu, address.ifr_ifru.ifru_hwaddr, flags.ifr_ifru.ifru_flags)
        };
        let [a, b, c, d, e, f, ..] = address.sa_data.map(|byte| byte as u8);
        let running = libc::IFF_UP | libc::IFF_RUNNING;
        Ok(Interface {
            index,
            mtu: usize::try_from(mtu).unwrap_or(0),
            mac: Mac([a, b, c, d, e, f]),
            is_ethernet: address.sa_family == libc::ARPHRD_ETHER,
            is_up: libc::c_int::from(flags) & running == running,
        })
    }

    fn ask(&self, name: &str, request: libc::Ioctl) -> io::Result<libc::ifreq> {
        let name = CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let bytes = name.as_bytes_with_nul();
        // SAFETY: a plain C structure of integers, for which zero is valid.
        let mut asked: libc::ifreq = unsafe { mem::zeroed() };
        if bytes.len() > asked.ifr_name.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (to, from) in asked.ifr_name.iter_mut().zip(bytes) {
            *to = *from as libc::c_char;
        }
        // SAFETY: the kernel reads and writes the request, which is a whole `ifreq`.
        let result =
            unsafe { libc::ioctl(self.fd.as_raw_fd(), request, ptr::from_mut(&mut asked)) };
        if result == 0 { Ok(asked) } else { Err(io::Error::last_os_error()) }
    }

    /// Receives the frames of interface `index` from here on.
    pub fn bind(&mut self, index: u32) -> io::Result<()> {
        packet_socket::grow_buffers(self.as_fd(), RECEIVE_BUFFER, SEND_BUFFER);
        packet_socket::bind(self.as_fd(), &packet_socket::address(index, self.ethertype))?;
        self.index = index;
        Ok(())
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

    /// Takes at most `most` frames without waiting; their payloads go to `take` with the sender, or
    /// without a payload if it was too long for `room` bytes. Says how many there were.
    pub fn receive(
        &self,
        bytes: &mut [u8],
        room: usize,
        most: usize,
        mut take: impl FnMut(Mac, Option<&mut [u8]>),
    ) -> io::Result<usize> {
        // SAFETY: these are plain C structures of integers and pointers, for which zero is valid.
        let mut names: [libc::sockaddr_ll; BATCH] = unsafe { mem::zeroed() };
        // SAFETY: as above.
        let mut parts: [libc::iovec; BATCH] = unsafe { mem::zeroed() };
        // SAFETY: as above.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
        let mut count = 0;
        let rooms = bytes.chunks_exact_mut(room.max(1)).take(most);
        for (((message, part), name), room) in
            messages.iter_mut().zip(&mut parts).zip(&mut names).zip(rooms)
        {
            part.iov_base = room.as_mut_ptr().cast();
            part.iov_len = room.len();
            message.msg_hdr.msg_name = ptr::from_mut(name).cast();
            message.msg_hdr.msg_namelen = mem::size_of_val(name) as libc::socklen_t;
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            count += 1;
        }
        // SAFETY: the first `count` messages point at a name and a part that live until the call
        // returns, and each part at its own room of `bytes`.
        let received = unsafe {
            libc::recvmmsg(
                self.fd.as_raw_fd(),
                messages.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        let count = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        let rooms = bytes.chunks_exact_mut(room.max(1));
        for ((message, name), room) in messages.iter().zip(&names).zip(rooms).take(count) {
            // What somebody else on the interface listens to is not for us.
            if !matches!(name.sll_pkttype, libc::PACKET_HOST | libc::PACKET_BROADCAST) {
                continue;
            }
            let [a, b, c, d, e, f, ..] = name.sll_addr;
            let whole = message.msg_hdr.msg_flags & libc::MSG_TRUNC == 0;
            let payload = room.get_mut(..message.msg_len as usize).filter(|_| whole);
            take(Mac([a, b, c, d, e, f]), payload);
        }
        Ok(count)
    }

    /// Sends up to a batch of payloads, each to its address. Says how many the kernel took; an error
    /// concerns the first.
    pub fn send<'a>(&self, payloads: impl Iterator<Item = (Mac, &'a [u8])>) -> io::Result<usize> {
        // SAFETY: these are plain C structures of integers and pointers, for which zero is valid.
        let mut names: [libc::sockaddr_ll; BATCH] = unsafe { mem::zeroed() };
        // SAFETY: as above.
        let mut parts: [libc::iovec; BATCH] = unsafe { mem::zeroed() };
        // SAFETY: as above.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
        let mut count = 0;
        for (((message, part), name), (to, payload)) in
            messages.iter_mut().zip(&mut parts).zip(&mut names).zip(payloads)
        {
            part.iov_base = payload.as_ptr().cast_mut().cast();
            part.iov_len = payload.len();
            *name = self.address(to);
            message.msg_hdr.msg_name = ptr::from_mut(name).cast();
            message.msg_hdr.msg_namelen = mem::size_of_val(name) as libc::socklen_t;
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            count += 1;
        }
        // SAFETY: the first `count` messages point at names, parts and payloads that live until the
        // call returns, and the kernel only reads them.
        let sent = unsafe {
            libc::sendmmsg(self.fd.as_raw_fd(), messages.as_mut_ptr(), count, libc::MSG_DONTWAIT)
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
