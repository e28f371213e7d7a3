//! The system calls of the Ethernet carrier: an `AF_PACKET` socket that takes and gives the
//! payloads of frames of one EtherType, many in one call.
#![allow(unsafe_code)]

use std::ffi::CString;
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
        Ok(Self { fd: packet_socket::open(Type::DGRAM)?, index: 0, ethertype })
    }

    /// The kernel's data of the interface `name`.
    pub fn interface(&self, name: &str) -> io::Result<Interface> {
        let index = rustix::net::netdevice::name_to_index(&self.fd, name)?;
        let mtu = self.ioctl(name, libc::SIOCGIFMTU)?;
        let address = self.ioctl(name, libc::SIOCGIFHWADDR)?;
        let flags = self.ioctl(name, libc::SIOCGIFFLAGS)?;
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

    fn ioctl(&self, name: &str, request: libc::Ioctl) -> io::Result<libc::ifreq> {
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
