//! The nodes of a schedule's network.

use core::net::{Ipv4Addr, SocketAddrV4};
use std::cell::RefCell;
use std::rc::Rc;

use lasthop_hop::PathId;
use lasthop_sim::net::{Body, Context, LinkId, Node, Packet};
use lasthop_units::{LinkEvent, Seed, Stream, Time};

use crate::app::Applications;
use crate::crossing::{Crossing, damage};
use crate::hop::Endpoint;
use crate::packets::{Overview, Packets};

/// The base's address.
pub(crate) const BASE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), PORT);
const PORT: u16 = 4800;

/// A mobile's address by a link after it has moved there some times.
pub(crate) fn address(mobile: usize, link: usize, moves: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, link as u8, 1 + mobile as u8, 1 + moves), PORT)
}

/// The token that lets applications dawdle no more.
pub(crate) const CALM: u64 = 0;
/// The token by which a mobile's two addresses change places.
pub(crate) const SWAP: u64 = 1;
/// The token by which a mobile has its second link.
pub(crate) const JOIN: u64 = 2;

/// The token that gives a mobile the address by a link that it has after so many moves.
pub(crate) fn moved(link: usize, moves: u8) -> u64 {
    (1 + link as u64) << 8 | u64::from(moves)
}

/// Room for a datagram, in bytes.
const DATAGRAM: usize = 1600;
/// Datagrams that a host may send in answer to one event.
const BURST: u32 = 5_000;

/// Any node.
pub(crate) enum AnyNode {
    Host(Box<Host>),
    Crossing(Box<Crossing>),
}

/// An endpoint with the applications on it.
pub(crate) struct Host {
    pub(crate) endpoint: Endpoint,
    pub(crate) applications: Applications,
    pub(crate) packets: Packets,
    overview: Rc<RefCell<Overview>>,
    /// Which mobile it is, if it is not the base.
    mobile: Option<usize>,
    /// Its address by each link.
    addrs: Vec<SocketAddrV4>,
    /// A mobile's links, to it and from it.
    pub(crate) links: Vec<[LinkId; 2]>,
    /// What the network puts before a datagram is as long as with IPv6.
    ipv6: bool,
    damage: Stream,
    /// Stands for all datagrams that came.
    pub(crate) heard: u64,
    /// It always had one more datagram.
    pub(crate) endless: bool,
    verbose: bool,
    room: Box<[u8]>,
}

impl Host {
    pub(crate) fn new(
        endpoint: Endpoint,
        applications: Applications,
        (packets, overview): (Packets, Rc<RefCell<Overview>>),
        mobile: Option<usize>,
        ipv6: bool,
        seed: Seed,
        verbose: bool,
    ) -> Self {
        let of_mobile = |mobile| [0, 1].map(|link| address(mobile, link, 0)).to_vec();
        let addrs = mobile.map_or(vec![BASE], of_mobile);
        let damage = seed.stream(&format!("damage at {}", addrs[0]));
        Self {
            endpoint,
            applications,
            packets,
            overview,
            mobile,
            addrs,
            links: Vec::new(),
            ipv6,
            damage,
            heard: 0,
            endless: false,
            verbose,
            room: vec![0; DATAGRAM].into(),
        }
    }

    /// Lets applications do what they can, and sends whatever there is.
    fn attend(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now();
        self.applications.drive(now, &mut self.endpoint);
        self.packets.drive(now, &mut self.endpoint);
        let mut sent = 0;
        while !self.endless
            && let Some((path, to, len)) = self.endpoint.poll_transmit(now, &mut self.room)
        {
            // A base has one address, and goes by its routes.
            let path = if self.mobile.is_some() { usize::from(path.0) } else { 0 };
            let addr = self.addrs[path];
            let (src_port, dst_port) = (addr.port(), to.port());
            let body = Body::Udp { src_port, dst_port };
            let mut packet = ctx.packet(*addr.ip(), *to.ip(), body);
            self.overview.borrow_mut().note_sent(now, tag(&self.room[..len]));
            packet.set_bytes(&self.room[..len]);
            if self.ipv6 {
                // A header of 20 bytes more, as IPv6's.
                packet.encapsulate(*addr.ip(), *to.ip());
            }
            // What the link does not take is lost, as on any network.
            let _ = match self.links.get(path) {
                Some([_, from]) => ctx.send_on(*from, packet),
                None => ctx.send(packet),
            };
            // What was sent may have made room to write.
            self.applications.drive(now, &mut self.endpoint);
            sent += 1;
            self.endless = sent > BURST;
        }
    }
}

/// A sealed datagram's last bytes, which no other has.
fn tag(datagram: &[u8]) -> u64 {
    datagram.last_chunk().map_or(0, |last| u64::from_le_bytes(*last))
}

impl Node for Host {
    fn handle_packet(&mut self, ctx: &mut Context<'_>, _link: LinkId, mut packet: Packet) {
        let Body::Udp { src_port, .. } = packet.body else { return };
        let from = SocketAddrV4::new(packet.src, src_port);
        if packet.corrupted {
            damage(&mut self.damage, &mut packet);
        }
        let datagram = packet.bytes_mut().unwrap_or_default();
        // Every bit of a sealed datagram depends on all that came before it.
        let last = tag(datagram);
        self.heard = (self.heard.rotate_left(7) ^ last).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let before = self.endpoint.datagrams_received();
        self.endpoint.handle_datagram(ctx.now(), from, datagram);
        // Also what was lost and then sent again by a stranger: the seal takes what is new.
        if self.endpoint.datagrams_received() > before {
            let up = self.mobile.is_none();
            self.overview.borrow_mut().note_arrived(ctx.now(), last, up);
        }
        self.attend(ctx);
    }

    fn next_timeout(&self) -> Option<Time> {
        let own = [self.endpoint.next_timeout(), self.applications.next_timeout()];
        let all = own.into_iter().chain([self.packets.next_timeout()]);
        all.flatten().min().filter(|_| !self.endless)
    }

    fn handle_timeout(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now();
        if self.verbose {
            eprintln!("{now} {}: timer", self.addrs[0]);
        }
        if self.endpoint.next_timeout().is_some_and(|t| t <= now) {
            self.endpoint.handle_timeout(now);
        }
        self.attend(ctx);
    }

    fn handle_link_event(&mut self, ctx: &mut Context<'_>, link: LinkId, event: LinkEvent) {
        let path = self.links.iter().position(|[to, _]| *to == link).unwrap_or_default();
        self.endpoint.handle_link_event(ctx.now(), PathId(path as u8), event);
        self.attend(ctx);
    }

    fn handle_token(&mut self, ctx: &mut Context<'_>, token: u64) {
        match self.mobile {
            // As behind a NAT that forgot its mapping: nobody is told.
            Some(_) if token == SWAP => self.addrs.reverse(),
            Some(_) if token == JOIN => {
                self.endpoint.join(ctx.now(), BASE);
                self.attend(ctx);
            }
            Some(mobile) if token != CALM => {
                let link = (token >> 8) as usize - 1;
                self.addrs[link] = address(mobile, link, token as u8);
            }
            _ => {
                self.applications.eager = true;
                self.attend(ctx);
            }
        }
    }
}

impl Node for AnyNode {
    fn handle_packet(&mut self, ctx: &mut Context<'_>, link: LinkId, packet: Packet) {
        match self {
            Self::Host(host) => host.handle_packet(ctx, link, packet),
            Self::Crossing(crossing) => crossing.handle_packet(ctx, link, packet),
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        match self {
            Self::Host(host) => host.next_timeout(),
            Self::Crossing(crossing) => crossing.next_timeout(),
        }
    }

    fn handle_timeout(&mut self, ctx: &mut Context<'_>) {
        match self {
            Self::Host(host) => host.handle_timeout(ctx),
            Self::Crossing(crossing) => crossing.handle_timeout(ctx),
        }
    }

    fn handle_link_event(&mut self, ctx: &mut Context<'_>, link: LinkId, event: LinkEvent) {
        if let Self::Host(host) = self {
            host.handle_link_event(ctx, link, event);
        }
    }

    fn handle_token(&mut self, ctx: &mut Context<'_>, token: u64) {
        match self {
            Self::Host(host) => host.handle_token(ctx, token),
            Self::Crossing(crossing) => crossing.handle_token(ctx, token),
        }
    }
}
