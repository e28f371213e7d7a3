//! One of an agent's two interfaces.

use std::collections::VecDeque;

use lasthop_control::InterfaceReport;
use lasthop_kernel::mac::Mac;
use lasthop_kernel::netlink::Interface;
use lasthop_kernel::packet_batches::{Batch, FrameInbox, PacketBatches};
use lasthop_kernel::packet_socket::{PacketSocket, PacketSocketError};
use lasthop_kernel::reactor::{Interest, Reactor, Token};
use lasthop_kernel::turn::Source;

use super::filter;
use super::frame::Frame;

/// Frames that may wait for the interface; more are dropped, as by any queue.
const WAITING_MAX: usize = 4096;

/// The interface as it is at present.
#[derive(Debug)]
struct Open {
    socket: PacketBatches,
    token: Token,
    /// The kernel's number of the interface: one that comes back has another.
    index: u32,
}

/// One interface: its socket, what waits for it, and what it has seen.
#[derive(Debug)]
pub(super) struct Port {
    open: Option<Open>,
    /// It reads what another agent says.
    speaks: bool,
    /// Frames may be there to be read.
    readable: bool,
    waiting: VecDeque<Frame>,
    /// The interface took less than it was offered.
    congested: bool,
    /// The longest packet that the interface sends, behind an Ethernet header.
    pub(super) mtu: usize,
    /// The interface's own address.
    pub(super) mac: Mac,
    report: InterfaceReport,
}

impl Port {
    /// The interface `name`, not yet opened, of an agent that `speaks` to another or not.
    pub(super) fn new(name: &str, speaks: bool) -> Self {
        let report = InterfaceReport { name: name.to_owned(), ..InterfaceReport::default() };
        Self {
            open: None,
            speaks,
            readable: false,
            waiting: VecDeque::new(),
            congested: false,
            mtu: 0,
            mac: Mac([0; 6]),
            report,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.report.name
    }

    /// Begins to read from the interface, which the kernel calls `index`.
    ///
    /// # Errors
    ///
    /// There is no such interface, or no permission.
    pub(super) fn open(
        &mut self,
        reactor: &mut Reactor<Source>,
        source: Source,
        index: u32,
    ) -> Result<(), PacketSocketError> {
        let socket = PacketSocket::open_filtered(self.name(), &filter::program(self.speaks))?;
        let socket = PacketBatches::from(socket);
        let token = reactor.add(&socket, Interest::Read, source).map_err(|source| {
            PacketSocketError::Io { name: self.name().to_owned(), doing: "watching", source }
        })?;
        self.readable = true;
        self.open = Some(Open { socket, token, index });
        Ok(())
    }

    /// The interface is gone.
    pub(super) fn close(&mut self, reactor: &mut Reactor<Source>) {
        self.count_drops();
        self.report.up = false;
        if let Some(Open { socket, token, .. }) = self.open.take() {
            reactor.remove(&socket, token);
        }
        self.report.packets_unsent += self.waiting.len() as u64;
        self.waiting.clear();
    }

    /// Whether the interface that the kernel calls `index` is open.
    pub(super) fn is_open(&self, index: u32) -> bool {
        self.open.as_ref().is_some_and(|open| open.index == index)
    }

    /// Whether it is open at all.
    pub(super) fn is_there(&self) -> bool {
        self.open.is_some()
    }

    /// What the kernel says of the interface.
    pub(super) fn set_kind(&mut self, interface: &Interface) {
        self.report.up = interface.works();
        self.mtu = interface.mtu as usize;
        self.mac = interface.mac.map_or(self.mac, Mac);
    }

    /// Frames may have come.
    pub(super) fn ready(&mut self) {
        self.readable = true;
    }

    /// Whether [`receive`](Self::receive) may find something.
    pub(super) fn is_readable(&self) -> bool {
        self.readable && self.open.is_some()
    }

    /// Whether the interface took less than it was offered. Frames of a batch wait for the end of that
    /// batch, which says nothing of the interface.
    pub(super) fn is_congested(&self) -> bool {
        self.congested
    }

    /// Takes a batch of frames into `inbox`. [`end_batch`](Self::end_batch) follows.
    pub(super) fn receive(&mut self, inbox: &mut FrameInbox) {
        // An interface that is down returns an error, and its first frames when it is up are reported.
        let received = self.open.as_mut().map(|open| open.socket.receive(inbox));
        self.readable = matches!(received, Some(Ok(true)));
    }

    /// All frames of the batch were handled.
    pub(super) fn end_batch(&mut self, batch: &Batch) {
        self.report.packets_received += batch.packets;
        self.report.bytes_received += batch.bytes;
        self.report.packets_missed += batch.cut_off;
        if let Some(open) = &mut self.open {
            open.socket.adapt(batch);
        }
        // A batch that has grown may find more than the one before was to hold.
        self.readable |= batch.packets > 0;
    }

    /// Puts a frame behind those that wait for [`send`](Self::send).
    pub(super) fn push(&mut self, frame: Frame) {
        if self.open.is_some() && self.waiting.len() < WAITING_MAX {
            self.waiting.push_back(frame);
        } else {
            self.report.packets_unsent += 1;
        }
    }

    /// Hands over to the kernel what waits, as far as it takes it.
    pub(super) fn send(&mut self) {
        self.congested = false;
        if let Some(open) = &self.open
            && !self.waiting.is_empty()
        {
            let sent = open.socket.send(&mut self.waiting, Frame::bytes);
            self.report.packets_sent += sent.messages;
            self.report.bytes_sent += sent.bytes;
            self.report.packets_unsent += sent.refused;
            self.congested = sent.blocked;
        }
    }

    /// What it is and has seen.
    pub(super) fn report(&mut self) -> InterfaceReport {
        self.count_drops();
        self.report.clone()
    }

    /// Bytes that it has sent and received.
    pub(super) fn bytes(&self) -> (u64, u64) {
        (self.report.bytes_sent, self.report.bytes_received)
    }

    fn count_drops(&mut self) {
        if let Some(open) = &self.open {
            self.report.packets_missed += open.socket.take_drops();
        }
    }
}
