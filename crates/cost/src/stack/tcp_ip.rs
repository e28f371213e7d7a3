//! TCP over IP over a link, as layers.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use foldhash::fast::FixedState;
use lasthop_tcp::{Config, Ports, Socket, State};
use lasthop_units::{Bytes, Duration, Time};
use lasthop_wire::ip::Addresses;
use lasthop_wire::tcp::{Segment, Seq};

use super::ip::{Ip, Path};
use super::{Conn, MACS, Stack, Standing, hand_over};
use crate::link::{self, ETHERNET, MTU, Mac, Queue};

/// Bytes of an IPv4 and of a TCP header without options.
const IP: usize = 20;
const TCP: usize = 20;
/// The type of frames that carry TCP alone: the second that IEEE 802 reserves for experiments.
const TYPE_TCP: u16 = 0x88b6;

const HOSTS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
const PORT: u16 = 7;
/// How often timers are looked at.
const LOOK: Duration = Duration::from_millis(1);

/// Which layers a stack has, so that their costs follow by subtraction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Variant {
    /// Packets have an IP header, are routed, and found by the addresses in it.
    pub ip: bool,
    /// TCP's checksum is computed and verified; otherwise as if a network card did it.
    pub checksum: bool,
}

impl Variant {
    /// Everything.
    pub const WHOLE: Self = Self { ip: true, checksum: true };
}

/// What a packet is demultiplexed by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Key {
    addresses: Addresses,
    ports: (u16, u16),
}

struct Entry {
    socket: Socket,
    remote: Ipv4Addr,
    path: Option<Path>,
}

/// A host's TCP and what is below it.
pub struct TcpIp {
    variant: Variant,
    mac: Mac,
    /// The only neighbour, where there is no IP to find it.
    neighbour: Mac,
    ip: Ip,
    connections: Vec<Entry>,
    /// A host that faces strangers would add a secret to the hash, at the same cost.
    by_key: HashMap<Key, usize, FixedState>,
    config: Config,
    next_look: Time,
}

/// What both ends use: a current TCP without the options of today, so that a packet has the 40 bytes
/// of headers that the paper's have. The buffers are Mobile TCP's 16 KiB.
pub(crate) fn config() -> Config {
    Config {
        mss: (MTU - IP - TCP) as u16,
        recv_buffer: Bytes::from_kib(16),
        send_buffer: Bytes::from_kib(16),
        window_scale: false,
        timestamps: false,
        sack: false,
        nagle: false,
        algorithm: lasthop_tcp::Algorithm::Reno,
        ..Config::modern()
    }
}

impl TcpIp {
    fn new(variant: Variant, host: usize) -> Self {
        let mut ip = Ip::new(HOSTS[host], 24, ROUTER);
        ip.add_neighbour(HOSTS[1 - host], MACS[1 - host]);
        Self {
            variant,
            mac: MACS[host],
            neighbour: MACS[1 - host],
            ip,
            connections: Vec::new(),
            by_key: HashMap::default(),
            config: config(),
            next_look: Time::ZERO,
        }
    }

    /// Two hosts on a link with one connection between them: the stacks and its name at each.
    pub fn pair(variant: Variant) -> ([Self; 2], [Conn; 2]) {
        let mut hosts = [Self::new(variant, 0), Self::new(variant, 1)];
        let now = Time::ZERO;
        let ports = Ports { local: 40_000, remote: PORT };
        let client = Socket::connect(hosts[0].config, ports, Seq(1), now);
        let conn = hosts[0].add(client, HOSTS[1]);
        // SYN, SYN with ACK, ACK.
        hand_over(&mut hosts, now, [0, 1, 0]);
        (hosts, [conn; 2])
    }

    fn add(&mut self, socket: Socket, remote: Ipv4Addr) -> Conn {
        let Ports { local, remote: port } = socket.connection().ports();
        // As in the header of what arrives: from the peer to us.
        let addresses = Addresses::V4 { src: remote, dst: self.ip.address() };
        let at = self.connections.len();
        self.by_key.insert(Key { addresses, ports: (port, local) }, at);
        self.connections.push(Entry { socket, remote, path: None });
        Conn(at)
    }

    /// A segment that belongs to no connection: opens one if it is a SYN for the listening port.
    fn unclaimed(&mut self, now: Time, key: &Key, segment: &Segment) -> Option<Conn> {
        let Addresses::V4 { src, .. } = key.addresses else { return None };
        if segment.dst_port != PORT {
            return None;
        }
        let ports = Ports { local: segment.dst_port, remote: segment.src_port };
        let socket = Socket::accept(self.config, ports, segment, Seq(9), now).ok()?;
        Some(self.add(socket, src))
    }

    fn ethertype(&self) -> u16 {
        if self.variant.ip { link::TYPE_IPV4 } else { TYPE_TCP }
    }

    /// Where TCP begins in a frame.
    fn transport_at(&self) -> usize {
        ETHERNET + if self.variant.ip { IP } else { 0 }
    }

    /// Whose packets these are where no IP header says it.
    fn incoming_addresses(&self) -> Addresses {
        let dst = self.ip.address();
        let src = HOSTS[usize::from(dst == HOSTS[0])];
        Addresses::V4 { src, dst }
    }
}

impl Stack for TcpIp {
    fn standing(&self, conn: Conn) -> Standing {
        match self.connections.get(conn.0).map(|e| e.socket.connection().state()) {
            None | Some(State::Closed | State::TimeWait) => Standing::Closed,
            Some(State::SynSent | State::SynReceived) => Standing::Opening,
            Some(_) => Standing::Open,
        }
    }

    #[inline]
    fn send_space(&mut self, conn: Conn) -> &mut [u8] {
        match self.connections.get_mut(conn.0) {
            Some(entry) => entry.socket.send_space(),
            None => &mut [],
        }
    }

    #[inline]
    fn commit(&mut self, conn: Conn, n: usize) {
        if let Some(entry) = self.connections.get_mut(conn.0) {
            entry.socket.commit(n);
        }
    }

    #[inline]
    fn received(&self, conn: Conn) -> &[u8] {
        self.connections.get(conn.0).map_or(&[], |entry| entry.socket.received())
    }

    #[inline]
    fn consume(&mut self, conn: Conn, n: usize) {
        if let Some(entry) = self.connections.get_mut(conn.0) {
            entry.socket.consume(n);
        }
    }

    fn output(&mut self, now: Time, conn: Conn, link: &mut Queue) {
        let (ethertype, at) = (self.ethertype(), self.transport_at());
        let Some(entry) = self.connections.get_mut(conn.0) else { return };
        while let Some(frame) = link.slot() {
            // Nearly every segment has no options: its payload is put in its place at once.
            let Some(segment) = entry.socket.poll_transmit(now, &mut frame[at + TCP..]) else {
                return;
            };
            let header = segment.header_len() as usize;
            let end = at + header + segment.len as usize;
            if header != TCP {
                frame.copy_within(at + TCP..at + TCP + segment.len as usize, at + header);
            }
            let between = Addresses::V4 { src: self.ip.address(), dst: entry.remote };
            let written = if self.variant.checksum {
                segment.emit_in_place(&between, &mut frame[at..end])
            } else {
                segment.emit_unsummed_in_place(&mut frame[at..end])
            };
            let mut to = self.neighbour;
            if self.variant.ip {
                let Some(path) = self.ip.path(entry.remote, entry.path) else { return };
                entry.path = Some(path);
                to = path.mac;
                if !self.ip.emit(entry.remote, &mut frame[ETHERNET..end]) {
                    return;
                }
            }
            if written.is_ok() {
                link::put_header(frame, to, self.mac, ethertype);
                link.send(end);
            }
        }
    }

    fn input(&mut self, now: Time, frame: &[u8]) -> Option<Conn> {
        let packet = link::payload(frame, self.mac, self.ethertype())?;
        let (addresses, bytes) = if self.variant.ip {
            self.ip.receive(packet)?
        } else {
            (self.incoming_addresses(), packet)
        };
        let parsed = if self.variant.checksum {
            Segment::parse(&addresses, bytes)
        } else {
            Segment::parse_unverified(bytes)
        };
        let (segment, payload) = parsed.ok()?;
        let key = Key { addresses, ports: (segment.src_port, segment.dst_port) };
        let Some(&at) = self.by_key.get(&key) else {
            return self.unclaimed(now, &key, &segment);
        };
        self.connections.get_mut(at)?.socket.handle_segment(now, &segment, payload);
        Some(Conn(at))
    }

    /// Timers are looked at with a clock of a millisecond, as a kernel does.
    #[inline]
    fn expire(&mut self, now: Time, link: &mut Queue) {
        if now < self.next_look {
            return;
        }
        self.next_look = now + LOOK;
        for at in 0..self.connections.len() {
            let socket = &mut self.connections[at].socket;
            if socket.next_timeout().is_some_and(|due| due <= now) {
                socket.handle_timeout(now);
                self.output(now, Conn(at), link);
            }
        }
    }
}
