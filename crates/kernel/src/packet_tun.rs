//! A TUN device for many packets: large ones come from and go to the kernel, whole ones of ordinary
//! size to and from the user, and several threads can share the work.
//!
//! The kernel hands over TCP and UDP of one flow as one packet of up to 64 kB whose checksum is only
//! begun (TSO, USO), and takes such packets. One system call moves some forty packets so.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, retry_on_intr};

use crate::coalesce::Coalescer;
use crate::netlink::Rtnetlink;
use crate::offload::{self, HEADER_LENGTH, Unfinished};
use crate::tun::{self, TunError};

/// The longest packet that a device hands over, its offload header, and a byte that is never filled
/// unless a packet was longer.
const LONGEST_FRAME: usize = HEADER_LENGTH + 65_575 + 1;

/// What is done here in the kernel's place with TCP: since Linux 2.6.27.
const TCP_OFFLOAD: libc::c_uint =
    libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
/// And with UDP: since Linux 6.2.
const UDP_OFFLOAD: libc::c_uint = libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// What went through one queue of a device.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct TunCounts {
    /// Packets from the kernel, after large ones were cut.
    pub received: u64,
    /// System calls that brought them.
    pub reads: u64,
    /// Large packets of a kind that cannot be cut, or that were cut off.
    pub unfinished: u64,
    /// Packets that the kernel took.
    pub sent: u64,
    /// System calls in which it did.
    pub writes: u64,
    /// Packets that it refused: the interface is off, they are no IP, there is no memory.
    pub refused: u64,
}

/// One queue of a TUN device: what the kernel routes to the interface can be read here, packet by
/// packet, and what is written here arrives at the kernel by that interface.
///
/// The kernel keeps a flow's packets in one queue as long as they are many. The device belongs to the
/// network namespace in which it was opened, wherever it is used.
#[derive(Debug)]
pub struct PacketTun {
    fd: OwnedFd,
    name: String,
    has_udp_offload: bool,
    /// What was read, with its offload header.
    frame: Box<[u8]>,
    /// The headers of a large packet that is cut.
    headers: Vec<u8>,
    outgoing: Coalescer,
    counts: TunCounts,
}

impl PacketTun {
    /// Attaches to the device `name` of the calling thread's network namespace, or makes it, with so
    /// many queues (one at least) and an MTU in bytes of IP. The kernel fills in a number where the
    /// name has `%d`. One made here vanishes when the last queue is dropped.
    ///
    /// The interface is left on or off as it is, off when new: [`Rtnetlink::set_up`],
    /// [`Rtnetlink::add_address`] and [`Rtnetlink::replace_route`] do the rest.
    ///
    /// # Errors
    ///
    /// The name is none, there is no permission, the device is there with another number of queues, or
    /// the kernel does not permit as many queues or that MTU.
    pub fn open(name: &str, queues: usize, mtu: u16) -> Result<Vec<Self>, TunError> {
        let several = if queues > 1 { libc::IFF_MULTI_QUEUE } else { 0 };
        let flags = libc::IFF_TUN | libc::IFF_VNET_HDR | several;
        let mut all = vec![Self::attach(name, flags)?];
        while all.len() < queues {
            let next = Self::attach(&all[0].name, flags)?;
            all.push(next);
        }
        set_mtu(&all[0].name, mtu)?;
        Ok(all)
    }

    fn attach(name: &str, flags: libc::c_int) -> Result<Self, TunError> {
        let (fd, name) = tun::attach(name, flags)?;
        let io = |source| TunError::Io { name: name.clone(), source };
        tun::set_header_length(fd.as_fd(), HEADER_LENGTH as libc::c_int).map_err(io)?;
        let has_udp_offload = tun::set_offload(fd.as_fd(), TCP_OFFLOAD | UDP_OFFLOAD).is_ok();
        if !has_udp_offload {
            tun::set_offload(fd.as_fd(), TCP_OFFLOAD).map_err(io)?;
        }
        Ok(Self {
            fd,
            name,
            has_udp_offload,
            frame: vec![0; LONGEST_FRAME].into_boxed_slice(),
            headers: Vec::new(),
            outgoing: Coalescer::new(has_udp_offload),
            counts: TunCounts::default(),
        })
    }

    /// The name of the interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether this kernel hands over and takes large UDP packets too (Linux 6.2).
    pub fn has_udp_offload(&self) -> bool {
        self.has_udp_offload
    }

    /// What went through this queue so far.
    pub fn counts(&self) -> TunCounts {
        self.counts
    }

    /// Reads once, and hands each packet that came to `each`: of the size that is on the wire, with
    /// right checksums. `false` if there was nothing; never waits.
    ///
    /// # Errors
    ///
    /// What the system says, such as that the interface is gone.
    pub fn receive(&mut self, each: &mut dyn FnMut(&[u8])) -> io::Result<bool> {
        let read = match retry_on_intr(|| rustix::io::read(&self.fd, &mut self.frame[..])) {
            Ok(read) => read,
            Err(Errno::AGAIN) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        self.counts.reads += 1;
        let is_whole = read < self.frame.len();
        let frame = self.frame.get_mut(..read).filter(|_| is_whole);
        let Some((header, packet)) = frame.and_then(|frame| frame.split_first_chunk_mut()) else {
            self.counts.unfinished += 1;
            return Ok(true);
        };
        let todo = Unfinished::parse(*header);
        if !todo.is_segmented() {
            match offload::finish_checksum(todo, packet) {
                Ok(()) => {
                    self.counts.received += 1;
                    each(packet);
                }
                Err(_) => self.counts.unfinished += 1,
            }
            return Ok(true);
        }
        match offload::cut_in_place(todo, packet, &mut self.headers, each) {
            Ok(packets) => self.counts.received += packets,
            Err(_) => self.counts.unfinished += 1,
        }
        Ok(true)
    }

    /// Takes a packet for the kernel, which gets it with the next [`flush`](Self::flush), or before if
    /// many wait.
    pub fn send(&mut self, packet: &[u8]) {
        if self.outgoing.is_full() {
            self.flush();
        }
        self.outgoing.add(packet);
    }

    /// Hands the kernel what was [sent](Self::send), packets of one flow as one where they continue
    /// each other. What it refuses is counted and gone, as on any link; never waits.
    pub fn flush(&mut self) {
        let Self { fd, outgoing, counts, .. } = self;
        outgoing.take_all(|frame, packets| {
            match retry_on_intr(|| rustix::io::write(&*fd, frame)) {
                Ok(_) => {
                    counts.sent += packets;
                    counts.writes += 1;
                }
                Err(_) => counts.refused += packets,
            }
        });
    }
}

impl AsFd for PacketTun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn set_mtu(name: &str, mtu: u16) -> Result<(), TunError> {
    let set = || {
        let mut requests = Rtnetlink::open()?;
        let interface = requests.interface(name)?;
        requests.set_mtu(interface.index, mtu.into())
    };
    set().map_err(|source| TunError::Interface { name: name.to_owned(), source })
}

#[cfg(test)]
mod tests;
