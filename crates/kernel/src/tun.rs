//! IP datagrams of a TUN device, or Ethernet frames of a TAP device.
#![allow(unsafe_code)]

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::ptr;

use thiserror::Error;

use crate::netlink::NetlinkError;

/// A TUN device that could not be had.
#[derive(Debug, Error)]
pub enum TunError {
    /// Not a name that an interface can have.
    #[error("`{0}` cannot be the name of an interface (1 to 15 bytes, no slash, no space)")]
    BadName(String),
    /// The system refused.
    #[error("TUN device `{name}`: {source}")]
    Io {
        /// The device.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// Its interface did not become what it should be.
    #[error("TUN device `{name}`: {source}")]
    Interface {
        /// The device.
        name: String,
        /// The kernel's refusal.
        source: NetlinkError,
    },
}

/// A TUN device: what the kernel routes to its interface can be read here, datagram by datagram,
/// and what is written here arrives at the kernel by that interface. A TAP device does so with whole
/// Ethernet frames, VLAN tags and all.
///
/// It belongs to the network namespace in which it was opened, wherever it is used.
#[derive(Debug)]
pub struct Tun {
    fd: OwnedFd,
}

impl Tun {
    /// Attaches to the device `name` of the calling thread's network namespace, or makes it; one
    /// made here vanishes when it is dropped. Addresses and state are left as they are.
    ///
    /// # Errors
    ///
    /// The name is none, or there is no permission.
    pub fn open(name: &str) -> Result<Self, TunError> {
        Self::open_as(name, libc::IFF_TUN)
    }

    /// As [`open`](Self::open), for Ethernet frames.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_ethernet(name: &str) -> Result<Self, TunError> {
        Self::open_as(name, libc::IFF_TAP)
    }

    fn open_as(name: &str, kind: libc::c_int) -> Result<Self, TunError> {
        let (fd, _) = attach(name, kind)?;
        Ok(Self { fd })
    }

    /// Reads one datagram or frame into `out`; `None` if there is none.
    ///
    /// # Errors
    ///
    /// What the system says, such as that the interface is gone.
    pub fn receive(&self, out: &mut [u8]) -> io::Result<Option<usize>> {
        match rustix::io::read(&self.fd, out) {
            Ok(length) => Ok(Some(length)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Hands one datagram or frame to the kernel.
    ///
    /// # Errors
    ///
    /// What the system says, such as that the interface is down.
    pub fn send(&self, datagram: &[u8]) -> io::Result<()> {
        rustix::io::write(&self.fd, datagram)?;
        Ok(())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Attaches to a device, or makes it, and says its name, which the kernel chooses for a `name` such as
/// `tun%d`. `flags` are its kind (`IFF_TUN`) and whatever else there is; never waits.
pub(crate) fn attach(name: &str, flags: libc::c_int) -> Result<(OwnedFd, String), TunError> {
    let mut request = request(name, flags).ok_or_else(|| TunError::BadName(name.to_owned()))?;
    let io = |source| TunError::Io { name: name.to_owned(), source };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")
        .map_err(io)?;
    // SAFETY: the kernel reads and writes the request, which is a whole `ifreq`.
    let result =
        unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, ptr::from_mut(&mut request)) };
    if result < 0 {
        return Err(io(io::Error::last_os_error()));
    }
    let name = request.ifr_name.iter().take_while(|c| **c != 0).map(|c| char::from(*c as u8));
    Ok((file.into(), name.collect()))
}

/// Says what the reader does with packets in the kernel's place (`TUN_F_*`); what it does not name the
/// kernel does itself.
pub(crate) fn set_offload(fd: BorrowedFd<'_>, offload: libc::c_uint) -> io::Result<()> {
    let offload = libc::c_ulong::from(offload);
    // SAFETY: the request takes a number, and no pointer.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD, offload) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets how long the offload header before each packet is, in bytes.
pub(crate) fn set_header_length(fd: BorrowedFd<'_>, length: libc::c_int) -> io::Result<()> {
    // SAFETY: the kernel reads one `int`.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn request(name: &str, kind: libc::c_int) -> Option<libc::ifreq> {
    let good = |b: u8| b.is_ascii_graphic() && b != b'/' && b != b':';
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || !name.bytes().all(good) {
        return None;
    }
    let mut ifr_name = [0; libc::IFNAMSIZ];
    for (to, from) in ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let flags = (kind | libc::IFF_NO_PI) as libc::c_short;
    Some(libc::ifreq { ifr_name, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: flags } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_none_are_refused() {
        for name in ["", "sixteen-letters-", "a/b", "a b", "ü"] {
            assert!(matches!(Tun::open(name), Err(TunError::BadName(n)) if n == name));
        }
    }
}
