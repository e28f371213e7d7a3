//! Raw Ethernet frames between two namespaces, by packet sockets.

use std::io::{IoSlice, IoSliceMut};

use lasthop_kernel::packet_socket::{PacketSocket, PacketSocketError};
use lasthop_wire::mobile_tcp::ETHERTYPE;
use rustix::io::{readv, writev};

use crate::kernel::{Hosts, INTERFACES};
use crate::link::{ETHERNET, Queue};
use crate::pair::Wire;

/// The header that the socket wants before a frame: nothing is left undone in ours.
const OFFLOAD_HEADER: usize = 10;

/// A packet socket at each end of a pair of virtual interfaces; each frame is one system call there
/// and one here.
pub(crate) struct Ethernet {
    sockets: [PacketSocket; 2],
    /// Frames on their way to each end.
    coming: [u32; 2],
    _hosts: Hosts,
}

impl Ethernet {
    /// Between two namespaces of its own: a packet socket would be given the frames of others, at their
    /// cost.
    pub(crate) fn new() -> Result<Self, String> {
        let hosts = Hosts::new().map_err(|e| e.to_string())?;
        let open = |at: usize| {
            let host = if at == 0 { &hosts.near } else { &hosts.far };
            let opened = host.enter(|| PacketSocket::open(INTERFACES[at]));
            opened.map_err(|e| e.to_string())?.map_err(|e: PacketSocketError| e.to_string())
        };
        Ok(Self { sockets: [open(0)?, open(1)?], coming: [0; 2], _hosts: hosts })
    }
}

impl Wire for Ethernet {
    fn pass(&mut self, to: usize, queue: &mut Queue) {
        let header = [0; OFFLOAD_HEADER];
        while let Some(frame) = queue.front() {
            let pieces = [IoSlice::new(&header), IoSlice::new(frame)];
            if writev(&self.sockets[1 - to], &pieces).is_ok() {
                self.coming[to] += 1;
            }
            queue.pop();
        }
        let mut offload = [0; OFFLOAD_HEADER];
        while self.coming[to] > 0
            && let Some(room) = queue.slot()
        {
            let mut pieces = [IoSliceMut::new(&mut offload), IoSliceMut::new(room)];
            let Ok(n) = readv(&self.sockets[to], &mut pieces) else { break };
            // The socket takes whatever frame the interface does.
            if room[ETHERNET - 2..ETHERNET] == ETHERTYPE.to_be_bytes() {
                queue.send(n.saturating_sub(OFFLOAD_HEADER));
                self.coming[to] -= 1;
            }
        }
    }
}
