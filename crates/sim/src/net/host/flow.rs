//! A connection on a host: its machine, with or without bytes.

use core::net::Ipv4Addr;

use lasthop_tcp as tcp;
use lasthop_units::{Bytes, LinkEvent, Time};
use lasthop_wire::tcp::{Segment, Seq};

use super::{Content, Ending};
use crate::net::{Body, Context, Datagram, Ecn, Payload};

/// Room for the longest segment's payload.
pub(super) const LONGEST: usize = 1 << 16;

/// Both ends of a connection, as its own host sees them: of each the address and the port in one
/// word, which is quick to make and to compare.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Key {
    local: u64,
    remote: u64,
}

#[inline]
fn end((addr, port): (Ipv4Addr, u16)) -> u64 {
    u64::from(addr.to_bits()) << 16 | u64::from(port)
}

impl Key {
    #[inline]
    pub(super) fn new(local: (Ipv4Addr, u16), remote: (Ipv4Addr, u16)) -> Self {
        Self { local: end(local), remote: end(remote) }
    }

    #[inline]
    pub(super) fn local_addr(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits((self.local >> 16) as u32)
    }

    #[inline]
    pub(super) fn remote_addr(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits((self.remote >> 16) as u32)
    }

    pub(super) fn ports(&self) -> tcp::Ports {
        tcp::Ports { local: self.local as u16, remote: self.remote as u16 }
    }
}

/// A connection in its place.
pub(super) struct Flow {
    pub(super) key: Key,
    pub(super) machine: Machine,
    /// A write took less than was offered.
    pub(super) blocked: bool,
    pub(super) ending: Ending,
    /// It waits to be attended to.
    pub(super) dirty: bool,
    /// Its packets are encrypted.
    pub(super) encrypted: bool,
}

/// The machine behind a connection.
pub(super) enum Machine {
    Virtual(Box<tcp::Connection>),
    Real(Box<tcp::Socket>),
}

/// The same of whichever machine it is.
macro_rules! each {
    ($self:ident, $machine:ident => $call:expr) => {
        match $self {
            Self::Virtual($machine) => $call,
            Self::Real($machine) => $call,
        }
    };
}

impl Machine {
    pub(super) fn connect(
        content: Content,
        config: tcp::Config,
        ports: tcp::Ports,
        iss: Seq,
        now: Time,
    ) -> Self {
        match content {
            Content::Virtual => {
                Self::Virtual(Box::new(tcp::Connection::connect(config, ports, iss, now)))
            }
            Content::Real => Self::Real(Box::new(tcp::Socket::connect(config, ports, iss, now))),
        }
    }

    pub(super) fn accept(
        (config, content): (tcp::Config, Content),
        ports: tcp::Ports,
        syn: &Segment,
        iss: Seq,
        now: Time,
    ) -> Option<Self> {
        match content {
            Content::Virtual => tcp::Connection::accept(config, ports, syn, iss, now)
                .ok()
                .map(|connection| Self::Virtual(Box::new(connection))),
            Content::Real => tcp::Socket::accept(config, ports, syn, iss, now)
                .ok()
                .map(|socket| Self::Real(Box::new(socket))),
        }
    }

    #[inline]
    pub(super) fn connection(&self) -> &tcp::Connection {
        match self {
            Self::Virtual(connection) => connection,
            Self::Real(socket) => socket.connection(),
        }
    }

    #[inline]
    pub(super) fn handle_segment(&mut self, now: Time, segment: &Segment, packet: &Datagram) {
        let marked = packet.ecn == Ecn::Congested;
        match (self, packet.payload()) {
            (Self::Virtual(connection), _) => {
                connection.handle_segment_marked(now, segment, marked);
            }
            (Self::Real(socket), Payload::Real(bytes)) => {
                socket.handle_segment_marked(now, segment, bytes, marked);
            }
            (Self::Real(socket), Payload::Virtual(_)) => {
                socket.handle_segment_marked(now, segment, &[], marked);
            }
        }
    }

    /// Sends everything that is due.
    #[inline]
    pub(super) fn transmit(
        &mut self,
        ctx: &mut Context<'_>,
        (key, encrypted): (&Key, bool),
        scratch: &mut [u8],
    ) {
        let now = ctx.now();
        let (src, dst) = (key.local_addr(), key.remote_addr());
        loop {
            let outgoing = match self {
                Self::Virtual(connection) => connection.poll_transmit(now),
                Self::Real(socket) => socket.poll_outgoing(now, scratch),
            };
            let Some(outgoing) = outgoing else { break };
            let mut packet = ctx.packet(src, dst, Body::Tcp(outgoing.segment));
            packet.encrypted = encrypted;
            if outgoing.ecn_capable {
                packet.ecn = Ecn::Capable;
            }
            if matches!(self, Self::Real(_)) {
                packet.set_bytes(&scratch[..outgoing.segment.len as usize]);
            }
            // What a link does not take is lost, as in any network.
            ctx.send(packet).ok();
        }
    }

    pub(super) fn poll_event(&mut self) -> Option<tcp::Event> {
        each!(self, machine => machine.poll_event())
    }

    #[inline]
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.connection().next_timeout()
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        each!(self, machine => machine.handle_timeout(now))
    }

    pub(super) fn handle_link_event(&mut self, now: Time, event: LinkEvent) {
        each!(self, machine => machine.handle_link_event(now, event))
    }

    pub(super) fn handle_bad_state(&mut self, now: Time) {
        each!(self, machine => machine.handle_bad_state(now))
    }

    pub(super) fn write(&mut self, n: Bytes) -> Bytes {
        match self {
            Self::Virtual(connection) => connection.write(n),
            Self::Real(_) => Bytes::ZERO,
        }
    }

    pub(super) fn write_bytes(&mut self, data: &[u8]) -> usize {
        match self {
            Self::Virtual(_) => 0,
            Self::Real(socket) => socket.write(data),
        }
    }

    pub(super) fn consume(&mut self, n: Bytes) -> Bytes {
        match self {
            Self::Virtual(connection) => {
                let n = n.min(connection.readable());
                connection.consume(n);
                n
            }
            Self::Real(socket) => {
                let n = n.as_usize().min(socket.received().len());
                socket.consume(n);
                Bytes::from(n)
            }
        }
    }

    pub(super) fn set_window_share(&mut self, share: Option<Bytes>) {
        each!(self, machine => machine.set_window_share(share))
    }

    pub(super) fn finish(&mut self) {
        each!(self, machine => machine.finish())
    }

    pub(super) fn abort(&mut self) {
        each!(self, machine => machine.abort())
    }
}
