//! One of an agent's two interfaces.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;

use lasthop_control::InterfaceReport;
use lasthop_kernel::mac::Mac;
use lasthop_kernel::mmsg::{self, Inbox};
use lasthop_kernel::netlink::Interface;
use lasthop_kernel::offload::{self, HEADER_LENGTH, NOTHING_LEFT, Segments, Unfinished};
use lasthop_kernel::packet_socket::{PacketSocket, PacketSocketError};
use lasthop_kernel::reactor::{Interest, Reactor, Token};
use lasthop_kernel::turn::Source;

use super::filter;
use super::frame::Frame;
use super::pool::Pool;

/// A large packet, its Ethernet header and the offload header.
pub(super) const LONGEST_FRAME: usize = HEADER_LENGTH + 18 + 65_535 + 64;
/// Frames that may wait for the interface; more are dropped, as by any queue.
const WAITING_MAX: usize = 4096;
/// Packets that should be handled before any are sent: more would make those late.
const FEW_PACKETS: usize = 64;

/// The interface as it is at present.
#[derive(Debug)]
struct Open {
    socket: PacketSocket,
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
    /// How many frames are read at once.
    batch: usize,
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
            batch: 1,
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
        let token = reactor.add(&socket, Interest::Read, source).map_err(|source| {
            PacketSocketError::Io { name: self.name().to_owned(), doing: "watching", source }
        })?;
        self.readable = true;
        self.open = Some(Open { socket, token, index });
        Ok(())
    }

    /// The interface is gone.
    pub(super) fn close(&mut self, reactor: &mut Reactor<Source>) {
        self.look_for_drops();
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

    /// Hands a batch of frames to `take`, each cut to the size that is on the wire, with its checksums.
    pub(super) fn receive(&mut self, inbox: &mut Inbox, pool: &Pool, mut take: impl FnMut(Frame)) {
        let Some(open) = &self.open else { return };
        let before = self.report.packets_received;
        match inbox.receive(open.socket.as_fd(), self.batch) {
            // An interface that is down says so, and what comes when it is up is told.
            Err(_) | Ok(0) => self.readable = false,
            Ok(n) => {
                self.readable = n == self.batch;
                for (bytes, _, truncated) in inbox.messages() {
                    match bytes.split_first_chunk() {
                        Some((header, frame)) if !truncated => {
                            self.report.bytes_received += frame.len() as u64;
                            let todo = Unfinished::parse(*header);
                            self.report.packets_received += finish(todo, frame, pool, &mut take);
                        }
                        _ => self.report.packets_missed += 1,
                    }
                }
            }
        }
        // Large frames are cut into many packets: then fewer are read at once.
        let packets = self.report.packets_received - before;
        self.batch = if packets as usize > FEW_PACKETS {
            (self.batch / 2).max(1)
        } else {
            (self.batch * 2).min(mmsg::BATCH)
        };
        // A batch that has grown may find more than the one before it was asked for.
        self.readable |= packets > 0;
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
        let Some(open) = &self.open else { return };
        while !self.waiting.is_empty() {
            let frames = self.waiting.iter().map(|frame| (frame.bytes(), None));
            match mmsg::send(open.socket.as_fd(), &NOTHING_LEFT, frames) {
                Ok(sent) => {
                    self.report.packets_sent += sent as u64;
                    let sent = self.waiting.drain(..sent.min(self.waiting.len()));
                    self.report.bytes_sent +=
                        sent.map(|frame| frame.bytes().len() as u64).sum::<u64>();
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.congested = true;
                    return;
                }
                // The interface is down, its queue is full, or the frame is too long for it.
                Err(_) => {
                    self.report.packets_unsent += 1;
                    self.waiting.pop_front();
                }
            }
        }
    }

    /// What it is and has seen.
    pub(super) fn report(&mut self) -> InterfaceReport {
        self.look_for_drops();
        self.report.clone()
    }

    fn look_for_drops(&mut self) {
        if let Some(open) = &self.open {
            self.report.packets_missed += u64::from(open.socket.take_drops());
        }
    }
}

/// Does what the kernel left to a network card; how many packets there were.
fn finish(todo: Unfinished, frame: &[u8], pool: &Pool, take: &mut impl FnMut(Frame)) -> u64 {
    if !todo.is_segmented() {
        let mut buffer = pool.take();
        buffer.edit().extend_from_slice(frame);
        if !todo.has_checksum_left() {
            take(Frame::parse(buffer));
        } else if offload::finish_checksum(todo, buffer.edit()).is_ok() {
            take(Frame::parse_summed(buffer));
        } else {
            return 0;
        }
        return 1;
    }
    let Ok(mut segments) = Segments::new(todo, frame) else { return 0 };
    let mut packets = 0;
    loop {
        let mut buffer = pool.take();
        if !segments.next_into(buffer.edit()) {
            return packets;
        }
        packets += 1;
        take(Frame::parse_summed(buffer));
    }
}
