//! The UDP carrier: datagrams in large batches, with segmentation left to the kernel in both
//! directions, and never fragmented (a probe that is too long is to fail).

mod errors;

use std::cell::RefCell;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use socket2::SockRef;

use lasthop_hop::Unreachable;
use lasthop_kernel::clock::{Clock, wall_nanos};
use lasthop_kernel::reactor::{Interest, Readiness};
use lasthop_kernel::reuseport::{self, Numbered};
use lasthop_kernel::slab::Key;
use lasthop_kernel::tcp;
use lasthop_kernel::turn::Turn;
use lasthop_units::{Duration, LinkEvent, Time};
use lasthop_wire::datagram::{Kind, RECEIVER_AT};

use self::errors::Errors;
pub(crate) use self::errors::local_towards;
use crate::carrier::{self, Carrier};

/// What the kernel should hold when the loop is late: 80 ms at 400 Mbit/s.
const SOCKET_BUFFER: usize = 4 * 1024 * 1024;
/// One buffer holds what the kernel has joined of one sender's datagrams.
const PIECE: usize = 64 * 1024;
/// Buffers that one call fills.
const PIECES: usize = 8;
/// Calls in one turn; what is left waits for the next.
const CALLS_MAX: usize = 16;
/// Payload of one batch. The kernel takes at most 65535 bytes with headers.
const BATCH_MAX: usize = 64_000;
/// Room for a datagram, the largest that any interface here passes.
const DATAGRAM_MAX: usize = 9_216;
/// A datagram is not believed to have waited longer in the kernel: the wall clock was set.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// The datagrams that begin with a name that was given here.
const NUMBERED: [Numbered; 4] = [
    numbered(Kind::Data),
    numbered(Kind::Response),
    numbered(Kind::Transit),
    numbered(Kind::TransitProof),
];
/// How long after the kernel gave no socket it is asked again.
const OPEN_AGAIN: Duration = Duration::from_millis(250);

const fn numbered(kind: Kind) -> Numbered {
    Numbered { first_byte: kind.first_byte(), at: RECEIVER_AT as u32 }
}

/// Where a datagram goes to, or comes from: the peer, and what of ours it used. An answer goes back
/// the way the question came, also on a host with several addresses. IPv4 addresses are such, whatever
/// the socket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Route {
    /// The peer.
    pub(crate) peer: SocketAddr,
    /// Our own address, if it is known.
    pub(crate) local: Option<IpAddr>,
    /// Which of our sockets.
    pub(crate) socket: usize,
}

/// Before there is one.
const UNKNOWN: Route =
    Route { peer: SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0), local: None, socket: 0 };

/// A UDP socket.
struct Socket {
    fd: OwnedFd,
    state: UdpSocketState,
    ipv6: bool,
    /// The interface that its datagrams leave by, if that is not the routes' choice.
    interface: Option<u32>,
    readable: bool,
    /// The network's errors for what was sent, if they are read.
    errors: Option<Errors>,
}

/// Datagrams of one length, to one peer, that wait for one system call.
struct Batch {
    buf: Box<[u8]>,
    len: usize,
    segment: usize,
    segments: usize,
    /// A shorter datagram ends a batch.
    ended: bool,
    route: Route,
    /// A datagram behind the batch that does not belong to it.
    next: Option<(Route, usize)>,
}

impl Batch {
    fn new() -> Self {
        Self {
            buf: vec![0; BATCH_MAX + DATAGRAM_MAX].into(),
            len: 0,
            segment: 0,
            segments: 0,
            ended: false,
            route: UNKNOWN,
            next: None,
        }
    }

    /// The batch was sent; the datagram that did not fit begins the next.
    fn start_again(&mut self) {
        let start = self.len;
        (self.len, self.segments, self.ended) = (0, 0, false);
        if let Some((route, len)) = self.next.take() {
            self.buf.copy_within(start..start + len, 0);
            self.push(route, len);
        }
    }

    /// Whether a datagram of `len` bytes on `route` can go with the others.
    fn fits(&self, route: Route, len: usize, segments_max: usize) -> bool {
        self.segments == 0
            || (self.route == route
                && !self.ended
                && len <= self.segment
                && self.segments < segments_max
                && self.len + len <= BATCH_MAX)
    }

    fn push(&mut self, route: Route, len: usize) {
        if self.segments == 0 {
            (self.route, self.segment) = (route, len);
        }
        self.ended = len < self.segment;
        self.len += len;
        self.segments += 1;
    }
}

thread_local! {
    /// What all sockets of a loop receive into, one after the other: a base has a carrier for each session
    /// whose wired halves are elsewhere.
    static BUFFERS: RefCell<Box<[u8]>> = RefCell::new(vec![0; PIECES * PIECE].into());
}

/// UDP sockets and the buffer that all of them send from.
pub(crate) struct Udp {
    /// `None` where the kernel has yet to give one.
    sockets: Vec<Option<Socket>>,
    /// How those are opened that are to reach every address.
    openings: Vec<Opening>,
    /// What they are marked with.
    mark: Option<u32>,
    batch: Batch,
    event: Option<(usize, LinkEvent)>,
}

/// How a socket is opened that is to reach every address.
struct Opening {
    /// What people call it, if it is one of several.
    name: String,
    /// The interface that its datagrams leave by, if that is not the routes' choice.
    interface: Option<String>,
    /// By which it is watched, once it is to be.
    key: Option<Key>,
    /// When the kernel is asked for it.
    at: Time,
    /// That there is none was reported.
    told: bool,
}

impl Opening {
    fn new(name: &str, interface: Option<&str>) -> Self {
        let (name, interface) = (name.to_owned(), interface.map(str::to_owned));
        Self { name, interface, key: None, at: Time::NEVER, told: false }
    }

    fn open(&self, turn: &mut Turn<'_>, key: Key, mark: Option<u32>) -> io::Result<Socket> {
        let socket = Socket::anywhere(self.interface.as_deref())?;
        if let Some(mark) = mark {
            SockRef::from(&socket.fd).set_mark(mark)?;
        }
        turn.reactor.add(&socket.fd, Interest::Read, turn.source(key))?;
        Ok(socket)
    }
}

impl Udp {
    /// Binds a socket to each address; `[::]` takes IPv4 too.
    pub(crate) fn bind(addrs: &[SocketAddr]) -> Result<Self, (SocketAddr, io::Error)> {
        let bind = |addr: &SocketAddr| Socket::bind(*addr, false).map_err(|e| (*addr, e));
        Ok(Self::over(addrs.iter().map(bind).collect::<Result<_, _>>()?))
    }

    /// The same for each of so many workers. A datagram with a name of ours comes to that whose number is the name's
    /// remainder, another to that which its sender's address falls to.
    pub(crate) fn bind_for(
        workers: usize,
        addrs: &[SocketAddr],
    ) -> Result<Vec<Self>, (SocketAddr, io::Error)> {
        if workers <= 1 {
            return Ok(vec![Self::bind(addrs)?]);
        }
        let mut all: Vec<Self> = (0..workers).map(|_| Self::over(Vec::new())).collect();
        for addr in addrs {
            let sockets = Socket::bind_shared(*addr, workers).map_err(|e| (*addr, e))?;
            all.iter_mut().zip(sockets).for_each(|(udp, socket)| udp.sockets.push(Some(socket)));
        }
        Ok(all)
    }

    /// Whether IPv6 comes here too.
    pub(crate) fn is_ipv6(&self) -> bool {
        self.sockets.iter().flatten().any(|socket| socket.ipv6)
    }

    fn over(sockets: Vec<Socket>) -> Self {
        let sockets = sockets.into_iter().map(Some).collect();
        Self { sockets, openings: Vec::new(), mark: None, batch: Batch::new(), event: None }
    }

    /// One socket that reaches every address, of IPv4 alone where there is no IPv6. It receives what the
    /// network says of its datagrams. It is opened when it is [watched](Carrier::watch), or as soon after
    /// as the kernel has one to give; datagrams are lost until then.
    ///
    /// With a mark, routing rules can tell its datagrams from others; that needs CAP_NET_ADMIN.
    pub(crate) fn anywhere(mark: Option<u32>) -> Self {
        Self::opening(&[("any", None)], mark)
    }

    /// The same for each of these links, which have a name and an interface: what goes by a link leaves by its interface,
    /// whatever the routes are.
    pub(crate) fn by_links<'a>(
        links: impl Iterator<Item = (&'a str, &'a str)>,
        mark: Option<u32>,
    ) -> Self {
        let links: Vec<_> = links.map(|(name, interface)| (name, Some(interface))).collect();
        Self::opening(&links, mark)
    }

    fn opening(links: &[(&str, Option<&str>)], mark: Option<u32>) -> Self {
        let opening = |(name, interface): &(&str, Option<&str>)| Opening::new(name, *interface);
        Self {
            sockets: links.iter().map(|_| None).collect(),
            openings: links.iter().map(opening).collect(),
            mark,
            ..Self::over(Vec::new())
        }
    }

    /// Opens and watches a socket that is missing.
    fn open(&mut self, turn: &mut Turn<'_>, n: usize) {
        let Some(opening) = self.openings.get_mut(n) else { return };
        let Some(key) = opening.key else { return };
        match opening.open(turn, key, self.mark) {
            Ok(socket) => {
                // Whoever waits does so no longer than it has to.
                let told = std::mem::replace(&mut opening.told, false);
                self.event = told.then_some((n, LinkEvent::Up));
                self.sockets[n] = Some(socket);
                opening.at = Time::NEVER;
            }
            Err(error) => {
                opening.at = turn.now + OPEN_AGAIN;
                if !std::mem::replace(&mut opening.told, true) {
                    tracing::warn!(%error, link = opening.name, "no UDP socket: trying again");
                }
            }
        }
    }

    fn socket(&mut self, n: usize) -> Option<&mut Socket> {
        self.sockets.get_mut(n)?.as_mut()
    }

    /// Sends the batch. False if the kernel would not take it now: it is kept.
    fn flush(&mut self) -> bool {
        let Batch { len, segment, segments, route, .. } = self.batch;
        let is_only = self.sockets.len() == 1;
        if let Some(Some(socket)) = self.sockets.get_mut(route.socket)
            && segments > 0
            && !socket.send(&self.batch.buf[..len], (segments > 1).then_some(segment), route)
            // A link that takes nothing keeps nothing from the others: to the hop that is loss.
            && is_only
        {
            return false;
        }
        self.batch.start_again();
        true
    }
}

impl Carrier for Udp {
    fn watch(&mut self, turn: &mut Turn<'_>, keys: &mut dyn FnMut(usize) -> Key) -> io::Result<()> {
        for (n, socket) in self.sockets.iter().enumerate() {
            if let Some(socket) = socket {
                turn.reactor.add(&socket.fd, Interest::Read, turn.source(keys(n)))?;
            }
        }
        for n in 0..self.openings.len() {
            self.openings[n].key = Some(keys(n));
            self.open(turn, n);
        }
        Ok(())
    }

    fn ready(&mut self, _turn: &mut Turn<'_>, n: usize, readiness: Readiness) {
        if let Some(socket) = self.socket(n) {
            socket.readable |= readiness.readable;
            if readiness.ended {
                socket.read_errors();
            }
        }
    }

    fn readable(&self) -> bool {
        self.sockets.iter().flatten().any(|socket| socket.readable)
    }

    fn is_blocked(&self) -> bool {
        self.batch.segments > 0
    }

    /// The time is the kernel's, from when a datagram arrived, and not that of a loop that was late.
    fn receive(&mut self, clock: &Clock, take: &mut dyn FnMut(Time, carrier::Route, &mut [u8])) {
        BUFFERS.with_borrow_mut(|pieces| {
            let sockets = self.sockets.iter_mut().enumerate();
            for (n, socket) in sockets.filter_map(|(n, socket)| Some((n, socket.as_mut()?))) {
                for _ in 0..CALLS_MAX {
                    if !socket.readable {
                        break;
                    }
                    socket.readable = socket.receive(n, pieces, clock, take);
                }
            }
        });
    }

    fn send(&mut self, _turn: &mut Turn<'_>, poll: &mut carrier::Poll<'_>) {
        // What the kernel did not take before goes first.
        if self.batch.segments > 0 && !self.flush() {
            return;
        }
        while let Some((route, len)) = poll(&mut self.batch.buf[self.batch.len..]) {
            let carrier::Route::Internet(route) = route else { continue };
            let max = self.socket(route.socket).map_or(1, |s| s.state.max_gso_segments());
            if self.batch.fits(route, len, max) {
                self.batch.push(route, len);
            } else {
                self.batch.next = Some((route, len));
                if !self.flush() {
                    return;
                }
            }
        }
        self.flush();
    }

    fn next_timeout(&self) -> Option<Time> {
        self.openings.iter().map(|opening| opening.at).min().filter(|at| *at < Time::NEVER)
    }

    fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        for n in 0..self.openings.len() {
            if self.openings[n].at <= turn.now {
                self.open(turn, n);
            }
        }
    }

    fn poll_link_event(&mut self) -> Option<(usize, LinkEvent)> {
        self.event.take()
    }

    fn links(&self) -> usize {
        self.openings.len().max(1)
    }

    fn link_name(&self, link: usize) -> String {
        self.openings.get(link).map(|opening| opening.name.clone()).unwrap_or_default()
    }

    fn add_link(
        &mut self,
        turn: &mut Turn<'_>,
        name: &str,
        interface: &str,
        keys: &mut dyn FnMut(usize) -> Key,
    ) {
        let n = self.sockets.len();
        let opening = Opening::new(name, Some(interface));
        self.openings.push(Opening { key: Some(keys(n)), ..opening });
        self.sockets.push(None);
        self.open(turn, n);
    }

    fn renew(&mut self, turn: &mut Turn<'_>, link: usize) {
        let Some(interface) = self.openings.get(link).and_then(|o| o.interface.as_deref()) else {
            return;
        };
        let index = interface_index(interface);
        if self.socket(link).is_none_or(|socket| socket.interface != index) {
            self.sockets[link] = None;
            self.open(turn, link);
        }
    }

    fn poll_unreachable(&mut self, peer: carrier::Route) -> Option<Unreachable> {
        let carrier::Route::Internet(peer) = peer else { return None };
        self.socket(peer.socket)?.errors.as_mut()?.poll(peer.peer)
    }

    fn route_to(&self, peer: SocketAddr) -> Option<carrier::Route> {
        let peer = tcp::canonical(peer);
        Some(carrier::Route::Internet(Route { peer, local: None, socket: 0 }))
    }

    fn places(&self) -> Vec<String> {
        self.sockets.iter().flatten().map(|s| tcp::local_addr(&s.fd).to_string()).collect()
    }

    fn show(&self, route: carrier::Route) -> String {
        match route {
            carrier::Route::Internet(route) => route.peer.to_string(),
            _ => UNKNOWN.peer.to_string(),
        }
    }
}

impl Socket {
    /// So many at one address, which nobody else has.
    fn bind_shared(mut addr: SocketAddr, count: usize) -> io::Result<Vec<Self>> {
        // One that shares its address is not told if another process has it.
        drop(Self::bind(addr, false)?);
        let mut sockets = Vec::new();
        for _ in 0..count {
            let socket = Self::bind(addr, true)?;
            addr = tcp::local_addr(&socket.fd);
            sockets.push(socket);
        }
        if let Some(first) = sockets.first() {
            reuseport::steer(first.fd.as_fd(), count as u32, &NUMBERED)?;
        }
        Ok(sockets)
    }

    /// With others at the address if it is `shared`.
    fn bind(addr: SocketAddr, shared: bool) -> io::Result<Self> {
        let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd = rustix::net::socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP))?;
        if addr.is_ipv6() {
            let only = addr.ip() != IpAddr::V6(Ipv6Addr::UNSPECIFIED);
            sockopt::set_ipv6_v6only(&fd, only)?;
        }
        // Only a privileged process may exceed the system's limit; a smaller buffer works too.
        if sockopt::set_socket_recv_buffer_size_force(&fd, SOCKET_BUFFER).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(&fd, SOCKET_BUFFER);
        }
        if sockopt::set_socket_send_buffer_size_force(&fd, SOCKET_BUFFER).is_err() {
            let _ = sockopt::set_socket_send_buffer_size(&fd, SOCKET_BUFFER);
        }
        if shared {
            reuseport::share(&fd)?;
        }
        rustix::net::bind(&fd, &addr)?;
        let state = UdpSocketState::new(UdpSockRef::from(&fd))?;
        let ipv6 = addr.is_ipv6();
        Ok(Self { fd, state, ipv6, interface: None, readable: false, errors: None })
    }

    /// As [`Udp::anywhere`] has it, or [`Udp::by_links`].
    fn anywhere(interface: Option<&str>) -> io::Result<Self> {
        let wildcard = |ip: IpAddr| Self::bind(SocketAddr::new(ip, 0), false);
        let mut socket = match wildcard(Ipv6Addr::UNSPECIFIED.into()) {
            Err(e) if is_without_ipv6(&e) => wildcard(Ipv4Addr::UNSPECIFIED.into())?,
            opened => opened?,
        };
        if let Some(interface) = interface {
            SockRef::from(&socket.fd).bind_device(Some(interface.as_bytes()))?;
            socket.interface = interface_index(interface);
        }
        // Where the kernel does not tell, silence has to do.
        socket.errors = Errors::listen(&socket.state, &socket.fd).ok();
        Ok(socket)
    }

    /// As the kernel wants a peer's address for this socket.
    fn address_of(&self, peer: SocketAddr) -> SocketAddr {
        match peer.ip() {
            IpAddr::V4(ip) if self.ipv6 => SocketAddr::new(ip.to_ipv6_mapped().into(), peer.port()),
            _ => peer,
        }
    }

    /// Reads the network's errors, and with them the error that the next call would fail with.
    fn read_errors(&mut self) {
        if let Some(errors) = &mut self.errors {
            errors.read(&self.state, &self.fd);
        }
    }

    /// One call. True if there may be more: a call that leaves buffers empty has emptied the socket,
    /// and what comes later is a new event.
    fn receive(
        &mut self,
        n: usize,
        pieces: &mut [u8],
        clock: &Clock,
        take: &mut dyn FnMut(Time, carrier::Route, &mut [u8]),
    ) -> bool {
        let mut meta = [RecvMeta::default(); PIECES];
        let mut buffers = pieces.chunks_exact_mut(PIECE).map(IoSliceMut::new);
        let mut slices: [IoSliceMut<'_>; PIECES] =
            std::array::from_fn(|_| buffers.next().unwrap_or_else(|| IoSliceMut::new(&mut [])));
        let count = match self.state.recv(UdpSockRef::from(&self.fd), &mut slices, &mut meta) {
            Ok(count) => count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return true,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return false,
            // A pending error of an earlier datagram is taken by the call that reports it.
            Err(_) => {
                self.read_errors();
                return true;
            }
        };
        // Read after the call to the kernel: a time from before it would make datagrams that arrived
        // meanwhile look early, and the hop's least delay shorter than it is.
        let (now, wall) = (clock.now(), Duration::from_nanos(wall_nanos()));
        for (slice, meta) in slices.iter_mut().zip(&meta).take(count) {
            let peer = tcp::canonical(meta.addr);
            let route = Route { peer, local: meta.dst_ip, socket: n };
            let route = carrier::Route::Internet(route);
            let Some(filled) = slice.get_mut(..meta.len) else { continue };
            let waited = meta.timestamp.map_or(Duration::ZERO, |at| wall.saturating_sub(at));
            let arrived = if waited > WAIT_MAX { now } else { now - waited };
            for datagram in filled.chunks_mut(meta.stride.max(1)) {
                take(arrived, route, datagram);
            }
        }
        count == PIECES
    }

    /// Sends one batch. False if the kernel takes nothing now.
    fn send(&mut self, contents: &[u8], segment_size: Option<usize>, route: Route) -> bool {
        let one = Transmit {
            destination: self.address_of(route.peer),
            ecn: None,
            contents,
            segment_size,
            src_ip: route.local,
        };
        let mut sent = self.state.try_send(UdpSockRef::from(&self.fd), &one);
        if let (Err(e), Some(_)) = (&sent, &self.errors)
            && e.kind() != io::ErrorKind::WouldBlock
        {
            // An error for an earlier datagram is no reason to lose this one.
            self.read_errors();
            sent = self.state.try_send(UdpSockRef::from(&self.fd), &one);
        }
        match sent {
            Ok(()) => true,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => false,
            // No segmentation here: one by one. A datagram that fails is a datagram lost.
            Err(_) if segment_size.is_some() && self.state.max_gso_segments() == 1 => {
                for datagram in contents.chunks(segment_size.unwrap_or(contents.len()).max(1)) {
                    let one = Transmit { contents: datagram, segment_size: None, ..one.clone() };
                    let _ = self.state.try_send(UdpSockRef::from(&self.fd), &one);
                }
                true
            }
            // Too long for the path, no route at the moment: the hop treats it as lost.
            Err(e) => {
                if let Some(errors) = &mut self.errors {
                    errors.record_unsent(&e);
                }
                true
            }
        }
    }
}

/// `None` if there is no such interface.
fn interface_index(name: &str) -> Option<u32> {
    let any = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
    rustix::net::netdevice::name_to_index(any, name).ok()
}

/// Whether a socket could not be had because this host has no IPv6.
fn is_without_ipv6(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL))
}

#[cfg(test)]
mod tests;
