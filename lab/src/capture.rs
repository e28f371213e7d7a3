//! What a server's kernel saw of TCP: who came, who opened, who reset.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use lasthop_kernel::netns::Netns;
use lasthop_kernel::packet_socket::PacketSocket;

use crate::error::LabError;
use crate::sniffer::Sniffer;

/// Both ends of a connection, by which kernels know it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FourTuple {
    /// Whoever is not the server.
    pub client: SocketAddr,
    /// The server.
    pub server: SocketAddr,
}

/// What was seen since the last [`Capture::take`].
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Seen {
    /// Openings (SYN without ACK) that reached the server, by connection.
    pub openings: BTreeMap<FourTuple, u64>,
    /// Resets that reached the server.
    pub resets_in: BTreeMap<FourTuple, u64>,
    /// Resets that the server sent.
    pub resets_out: BTreeMap<FourTuple, u64>,
    /// Connections with which anything else was exchanged.
    pub alive: BTreeSet<FourTuple>,
}

impl Seen {
    /// Whether there was any reset, from whichever end.
    pub fn any_reset(&self) -> bool {
        !self.resets_in.is_empty() || !self.resets_out.is_empty()
    }

    /// Adds what was seen in the time after this.
    pub fn extend(&mut self, later: &Self) {
        for (into, from) in [
            (&mut self.openings, &later.openings),
            (&mut self.resets_in, &later.resets_in),
            (&mut self.resets_out, &later.resets_out),
        ] {
            from.iter().for_each(|(who, n)| *into.entry(*who).or_default() += n);
        }
        self.alive.extend(&later.alive);
    }

    /// Takes note of an Ethernet frame to or from the server.
    fn note(&mut self, frame: &[u8], to_server: bool) {
        let Some((source, destination, flags)) = tcp_of(frame) else { return };
        let (client, server) =
            if to_server { (source, destination) } else { (destination, source) };
        let who = FourTuple { client, server };
        match (flags, to_server) {
            (Flags { reset: true, .. }, true) => *self.resets_in.entry(who).or_default() += 1,
            (Flags { reset: true, .. }, false) => *self.resets_out.entry(who).or_default() += 1,
            (Flags { opens: true, .. }, true) => *self.openings.entry(who).or_default() += 1,
            _ => {
                self.alive.insert(who);
            }
        }
    }
}

struct Flags {
    reset: bool,
    opens: bool,
}

fn tcp_of(frame: &[u8]) -> Option<(SocketAddr, SocketAddr, Flags)> {
    let packet = SlicedPacket::from_ethernet(frame).ok()?;
    let Some(TransportSlice::Tcp(tcp)) = packet.transport else { return None };
    let (source, destination) = match packet.net? {
        NetSlice::Ipv4(ip) => {
            let header = ip.header();
            (header.source_addr().into(), header.destination_addr().into())
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header();
            (header.source_addr().into(), header.destination_addr().into())
        }
        NetSlice::Arp(_) => return None,
    };
    let flags = Flags { reset: tcp.rst(), opens: tcp.syn() && !tcp.ack() };
    let source = SocketAddr::new(source, tcp.source_port());
    Some((source, SocketAddr::new(destination, tcp.destination_port()), flags))
}

/// Looks at everything that crosses a server's wire until it is dropped.
#[derive(Debug)]
pub struct Capture {
    seen: Arc<Mutex<Seen>>,
    _sniffer: Sniffer,
}

impl Capture {
    /// Watches `interface` of `server`, and the interface of that name at the `other` end of the
    /// wire, where what the server sends comes in.
    pub(crate) fn start(server: &Netns, other: &Netns, interface: &str) -> Result<Self, LabError> {
        let open = |host: &Netns| -> Result<PacketSocket, LabError> {
            host.enter(|| PacketSocket::open(interface))?.map_err(LabError::Frames)
        };
        let sockets = vec![open(server)?, open(other)?];
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let noted = Arc::clone(&seen);
        let note = move |socket, frame: &[u8]| lock(&noted).note(frame, socket == 0);
        let sniffer = Sniffer::start("capture", sockets, note)?;
        Ok(Self { seen, _sniffer: sniffer })
    }

    /// What was seen since the last call, which begins anew.
    pub fn take(&self) -> Seen {
        std::mem::take(&mut *lock(&self.seen))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;

    const CLIENT: ([u8; 4], u16) = ([10, 0, 9, 11], 40_000);
    const SERVER: ([u8; 4], u16) = ([10, 0, 1, 2], 80);

    fn frame(from: ([u8; 4], u16), to: ([u8; 4], u16), syn: bool, ack: bool, rst: bool) -> Vec<u8> {
        let mut builder = PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4(from.0, to.0, 64)
            .tcp(from.1, to.1, 1, 1000);
        if syn {
            builder = builder.syn();
        }
        if ack {
            builder = builder.ack(7);
        }
        if rst {
            builder = builder.rst();
        }
        let mut frame = Vec::new();
        builder.write(&mut frame, b"").unwrap();
        frame
    }

    #[test]
    fn openings_resets_and_the_rest_are_told_apart_by_who_sent_them() {
        let who = FourTuple { client: CLIENT.into(), server: SERVER.into() };
        let mut seen = Seen::default();
        seen.note(&frame(CLIENT, SERVER, true, false, false), true);
        assert_eq!(seen.openings.get(&who), Some(&1));
        assert!(seen.alive.is_empty());
        seen.note(&frame(SERVER, CLIENT, true, true, false), false);
        seen.note(&frame(CLIENT, SERVER, false, true, false), true);
        assert_eq!(seen.alive.iter().collect::<Vec<_>>(), [&who]);
        assert_eq!(seen.openings.values().sum::<u64>(), 1);
        assert!(!seen.any_reset());
        seen.note(&frame(SERVER, CLIENT, false, true, true), false);
        assert!(seen.any_reset() && seen.resets_in.is_empty());
        seen.note(&frame(CLIENT, SERVER, false, false, true), true);
        assert_eq!(seen.resets_in.get(&who), Some(&1));
    }

    #[test]
    fn what_is_no_tcp_is_passed_over() {
        let mut seen = Seen::default();
        let mut udp = Vec::new();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(CLIENT.0, SERVER.0, 64);
        builder.udp(1, 2).write(&mut udp, b"x").unwrap();
        for frame in [&udp[..], &[], &[0; 20]] {
            seen.note(frame, true);
        }
        assert_eq!(seen, Seen::default());
    }
}
