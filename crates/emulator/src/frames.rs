//! Two interfaces as the ends of a radio.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use lasthop_kernel::ethernet;
use lasthop_kernel::packet_batches::{FrameInbox, PacketBatches};
use lasthop_kernel::reactor::{Interest, Reactor};
use lasthop_kernel::tun::Tun;
use lasthop_kernel::turn::Source;
use lasthop_radio::Direction;

use super::control::PortStats;
use super::engine::{Exchange, Intake};
use super::pool::Packet;
use super::{EmulatorError, Port};

const LONGEST_DATAGRAM: usize = 65_535;

/// Datagrams of a TUN device read before packets are sent again.
const DATAGRAMS: usize = 64;

/// Two interfaces of the same kind.
pub(crate) struct FrameExchange {
    mobile: End,
    base: End,
    inbox: FrameInbox,
    /// Room for one datagram of a TUN device.
    scratch: Vec<u8>,
}

struct End {
    port: Port,
    stats: PortStats,
}

impl FrameExchange {
    pub(crate) fn new(mobile: Port, base: Port) -> Result<Self, EmulatorError> {
        match (&mobile, &base) {
            (Port::Interface(_), Port::Interface(_)) | (Port::Tun(_), Port::Tun(_)) => {}
            _ => return Err(EmulatorError::MixedPorts),
        }
        let end = |port| End { port, stats: PortStats::default() };
        Ok(Self {
            mobile: end(mobile),
            base: end(base),
            inbox: FrameInbox::new(),
            scratch: vec![0; LONGEST_DATAGRAM],
        })
    }

    fn count_missed(&mut self) {
        for end in [&mut self.mobile, &mut self.base] {
            if let Port::Interface(socket) = &end.port {
                end.stats.missed += socket.take_drops();
            }
        }
    }
}

/// The numbers under which the ports are registered.
const MOBILE: usize = 0;
const BASE: usize = 1;

impl Exchange for FrameExchange {
    fn watch(&mut self, reactor: &mut Reactor<Source>) -> io::Result<()> {
        for (end, n) in [(&self.mobile, MOBILE), (&self.base, BASE)] {
            reactor.add(&end.port, Interest::ReadInShares, Source::Listener(n))?;
        }
        Ok(())
    }

    fn receive(&mut self, n: usize, intake: &mut Intake) -> io::Result<()> {
        let (end, direction) = match n {
            MOBILE => (&mut self.mobile, Direction::Up),
            _ => (&mut self.base, Direction::Down),
        };
        match &mut end.port {
            Port::Interface(socket) => {
                read_frames(socket, &mut self.inbox, direction, &mut end.stats, intake);
                Ok(())
            }
            Port::Tun(tun) => {
                read_datagrams(tun, &mut self.scratch, direction, &mut end.stats, intake)
            }
        }
    }

    fn send(&mut self, direction: Direction, outbox: &mut VecDeque<Packet>) {
        let end = match direction {
            Direction::Up => &mut self.base,
            Direction::Down => &mut self.mobile,
        };
        match &end.port {
            Port::Interface(socket) => send_frames(socket, outbox, &mut end.stats),
            Port::Tun(tun) => send_datagrams(tun, outbox, &mut end.stats),
        }
    }

    fn damageable(&self, packet: &[u8]) -> usize {
        match &self.mobile.port {
            Port::Interface(_) => ethernet::checksummed_part(packet).unwrap_or(14),
            Port::Tun(_) if packet.first().is_some_and(|b| b >> 4 == 6) => 40,
            Port::Tun(_) => packet.first().map_or(0, |b| usize::from(b & 0x0f) * 4),
        }
    }

    fn maintain(&mut self, _reactor: &mut Reactor<Source>) {
        self.count_missed();
    }

    fn stats(&mut self) -> [PortStats; 2] {
        self.count_missed();
        [self.mobile.stats, self.base.stats]
    }

    fn reset_stats(&mut self) {
        self.count_missed();
        self.mobile.stats = PortStats::default();
        self.base.stats = PortStats::default();
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Interface(socket) => socket.as_fd(),
            Self::Tun(tun) => tun.as_fd(),
        }
    }
}

/// Cuts and finishes frames as a network card would, so that each real packet is charged.
fn read_frames(
    socket: &mut PacketBatches,
    inbox: &mut FrameInbox,
    direction: Direction,
    stats: &mut PortStats,
    intake: &mut Intake,
) {
    // The interface is down, or a frame was of a kind that has no offload header.
    if socket.receive(inbox).is_err() {
        stats.unreadable += 1;
    }
    intake.batch_read();
    let pool = Rc::clone(intake.pool());
    let batch =
        inbox.packets(|| Packet::new(&pool, 0), |packet, _| push_frame(direction, packet, intake));
    stats.received += batch.packets;
    stats.unreadable += batch.cut_off + batch.unknown;
    socket.adapt(&batch);
}

fn push_frame(direction: Direction, packet: Packet, intake: &mut Intake) {
    let size = ethernet::datagram_length(&packet.bytes);
    match ethernet::ip_packet(&packet.bytes) {
        Some(ip) => intake.push_ip(direction, size, packet, ip),
        None => intake.push(direction, size, packet),
    }
}

fn send_frames(socket: &PacketBatches, outbox: &mut VecDeque<Packet>, stats: &mut PortStats) {
    let sent = socket.send(outbox, |packet| &packet.bytes);
    stats.sent += sent.messages;
    stats.unsent += sent.refused;
}

/// An error means that the device is gone.
fn read_datagrams(
    tun: &Tun,
    scratch: &mut [u8],
    direction: Direction,
    stats: &mut PortStats,
    intake: &mut Intake,
) -> io::Result<()> {
    for _ in 0..DATAGRAMS {
        let Some(length) = tun.receive(scratch)? else { break };
        intake.batch_read();
        let mut packet = intake.packet(0);
        packet.bytes.extend_from_slice(&scratch[..length]);
        stats.received += 1;
        intake.push_ip(direction, length, packet, 0);
    }
    Ok(())
}

fn send_datagrams(tun: &Tun, outbox: &mut VecDeque<Packet>, stats: &mut PortStats) {
    while let Some(packet) = outbox.front() {
        match tun.send(&packet.bytes) {
            Ok(()) => stats.sent += 1,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => stats.unsent += 1,
        }
        outbox.pop_front();
    }
}
