//! Two UDP end points as the ends of a radio: no privilege needed.
//!
//! Mobiles send to the listening address; what crosses the radio goes on to the base from a socket
//! of each mobile's own, so that the base tells them apart and its answers find the way back.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use lasthop_kernel::mmsg::{self, Inbox};
use lasthop_kernel::reactor::{Interest, Reactor, Token};
use lasthop_kernel::turn::Source;
use lasthop_radio::Direction;
use socket2::{SockAddr, SockRef};

use super::control::PortStats;
use super::engine::{Exchange, Intake};
use super::pool::Packet;

const LONGEST_DATAGRAM: usize = 65_535;

/// Room for datagrams while the emulator is not running, as far as the system allows.
const SOCKET_BUFFER: usize = 8 * 1024 * 1024;

/// The most datagrams in one batch.
const BATCH: usize = 32;

/// Batches read before packets are sent again.
const BATCHES: usize = 4;

const LISTENER: usize = 0;

/// How many mobiles there may be, and for how long one may be silent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpLimits {
    /// The most mobiles at once; datagrams of further ones are dropped.
    pub peers: usize,
    /// A mobile without traffic for so long is removed.
    pub idle: Duration,
}

impl Default for UdpLimits {
    fn default() -> Self {
        Self { peers: 1024, idle: Duration::from_secs(300) }
    }
}

/// A UDP address that mobiles send to, joined with the base's address.
#[derive(Debug)]
pub struct UdpRelay {
    listener: UdpSocket,
    forward: SocketAddr,
    limits: UdpLimits,
}

impl UdpRelay {
    /// Listens to mobiles at `listen` and talks to the base at `forward`.
    ///
    /// # Errors
    ///
    /// The address cannot be bound.
    pub fn bind(listen: SocketAddr, forward: SocketAddr, limits: UdpLimits) -> io::Result<Self> {
        let listener = UdpSocket::bind(listen)?;
        prepare(&listener)?;
        Ok(Self { listener, forward, limits })
    }

    /// Where mobiles send to.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

fn prepare(socket: &UdpSocket) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    // The system's limit may be lower, and the emulator works with less.
    let _ = SockRef::from(socket).set_recv_buffer_size(SOCKET_BUFFER);
    let _ = SockRef::from(socket).set_send_buffer_size(SOCKET_BUFFER);
    Ok(())
}

/// The relay at work.
pub(crate) struct UdpExchange {
    listener: UdpSocket,
    inbox: Inbox,
    peers: Peers,
    mobile: PortStats,
    base: PortStats,
}

/// The mobiles, by address and by number. Numbers are never used again, so that a packet in flight
/// cannot reach another mobile.
struct Peers {
    forward: SocketAddr,
    limits: UdpLimits,
    numbers: HashMap<SocketAddr, usize>,
    peers: HashMap<usize, Peer>,
    next_number: usize,
}

struct Peer {
    address: SocketAddr,
    /// Connected to the base.
    upstream: UdpSocket,
    token: Token,
    active: Instant,
}

impl UdpExchange {
    pub(crate) fn new(relay: UdpRelay) -> Self {
        let UdpRelay { listener, forward, limits } = relay;
        let peers = Peers {
            forward,
            limits,
            numbers: HashMap::new(),
            peers: HashMap::new(),
            next_number: 1,
        };
        Self {
            listener,
            inbox: Inbox::new(LONGEST_DATAGRAM, BATCH),
            peers,
            mobile: PortStats::default(),
            base: PortStats::default(),
        }
    }

    fn receive_from_mobiles(&mut self, intake: &mut Intake) {
        for _ in 0..BATCHES {
            let Ok(count) = self.inbox.receive(self.listener.as_fd(), BATCH) else {
                self.mobile.unreadable += 1;
                return;
            };
            intake.batch_read();
            for (bytes, sender, _) in self.inbox.messages() {
                let from = sender.internet();
                let number = |from| self.peers.number_of(from, &mut intake.reactor);
                let Some(peer) = from.and_then(number) else {
                    self.mobile.turned_away += 1;
                    continue;
                };
                self.mobile.received += 1;
                push(intake, Direction::Up, bytes, peer, from);
            }
            if count < BATCH {
                return;
            }
        }
    }

    fn receive_from_base(&mut self, number: usize, intake: &mut Intake) {
        let Some(peer) = self.peers.peers.get_mut(&number) else { return };
        peer.active = Instant::now();
        for _ in 0..BATCHES {
            let Ok(count) = self.inbox.receive(peer.upstream.as_fd(), BATCH) else {
                // Such as that nobody listens there: the mobile gets nothing, as over a radio.
                self.base.unreadable += 1;
                return;
            };
            intake.batch_read();
            for (bytes, _, _) in self.inbox.messages() {
                self.base.received += 1;
                push(intake, Direction::Down, bytes, number, Some(self.peers.forward));
            }
            if count < BATCH {
                return;
            }
        }
    }
}

impl Peers {
    /// The number of the mobile at `address`, new or known; `None` if there is no room.
    fn number_of(&mut self, address: SocketAddr, reactor: &mut Reactor<Source>) -> Option<usize> {
        if let Some(&number) = self.numbers.get(&address) {
            self.peers.get_mut(&number)?.active = Instant::now();
            return Some(number);
        }
        if self.peers.len() >= self.limits.peers {
            return None;
        }
        let upstream = self.connect_upstream().ok()?;
        let number = self.next_number;
        let source = Source::Listener(number);
        let token = reactor.add(&upstream, Interest::ReadInShares, source).ok()?;
        self.next_number += 1;
        self.numbers.insert(address, number);
        self.peers.insert(number, Peer { address, upstream, token, active: Instant::now() });
        Some(number)
    }

    fn connect_upstream(&self) -> io::Result<UdpSocket> {
        let any: SocketAddr = match self.forward {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any)?;
        prepare(&socket)?;
        socket.connect(self.forward)?;
        Ok(socket)
    }

    fn expire_idle(&mut self, reactor: &mut Reactor<Source>) {
        let idle = self.limits.idle;
        for (_, gone) in self.peers.extract_if(|_, peer| peer.active.elapsed() >= idle) {
            reactor.remove(&gone.upstream, gone.token);
        }
        if self.numbers.len() > self.peers.len() {
            self.numbers.retain(|_, number| self.peers.contains_key(number));
        }
    }
}

/// Charges the datagram with its IP and UDP headers.
fn push(
    intake: &mut Intake,
    direction: Direction,
    bytes: &[u8],
    peer: usize,
    outside: Option<SocketAddr>,
) {
    let headers = if outside.is_some_and(|a| a.is_ipv6()) { 48 } else { 28 };
    let mut packet = intake.packet(peer);
    packet.bytes.extend_from_slice(bytes);
    intake.push(direction, bytes.len() + headers, packet);
}

impl Exchange for UdpExchange {
    fn watch(&mut self, reactor: &mut Reactor<Source>) -> io::Result<()> {
        let source = Source::Listener(LISTENER);
        reactor.add(&self.listener, Interest::ReadInShares, source).map(drop)
    }

    fn receive(&mut self, n: usize, intake: &mut Intake) -> io::Result<()> {
        match n {
            LISTENER => self.receive_from_mobiles(intake),
            number => self.receive_from_base(number, intake),
        }
        Ok(())
    }

    fn send(&mut self, direction: Direction, outbox: &mut VecDeque<Packet>) {
        let (peers, listener) = (&self.peers.peers, &self.listener);
        while let Some(first) = outbox.front().map(|packet| packet.peer) {
            let (sent, stats) = match (direction, peers.get(&first)) {
                // The mobile was removed while this was in flight.
                (_, None) => {
                    outbox.pop_front();
                    continue;
                }
                (Direction::Up, Some(peer)) => {
                    let upstream = peer.upstream.as_fd();
                    let sent = mmsg::send_waiting(upstream, &[], outbox, |packet| {
                        (packet.peer == first).then_some((packet.bytes.as_slice(), ()))
                    });
                    (sent, &mut self.base)
                }
                (Direction::Down, Some(_)) => {
                    let sent = mmsg::send_waiting(listener.as_fd(), &[], outbox, |packet| {
                        let peer = peers.get(&packet.peer)?;
                        Some((packet.bytes.as_slice(), SockAddr::from(peer.address)))
                    });
                    (sent, &mut self.mobile)
                }
            };
            stats.sent += sent.messages;
            stats.unsent += sent.refused;
            if sent.blocked {
                return;
            }
        }
    }

    fn damageable(&self, _packet: &[u8]) -> usize {
        0
    }

    fn maintain(&mut self, reactor: &mut Reactor<Source>) {
        self.peers.expire_idle(reactor);
    }

    fn stats(&mut self) -> [PortStats; 2] {
        [self.mobile, self.base]
    }

    fn reset_stats(&mut self) {
        self.mobile = PortStats::default();
        self.base = PortStats::default();
    }
}
