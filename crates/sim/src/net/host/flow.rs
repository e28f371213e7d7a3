//! A connection on a host: its machine, with or without bytes.

use lasthop_tcp as tcp;
use lasthop_units::{Bytes, LinkEvent, Time};
use lasthop_wire::tcp::{Segment, Seq};

use super::key::Key;
use super::multipath::{Subflows, Ways};
use super::{Content, Ending};
use crate::net::{Body, Context, Datagram, Ecn, Payload};

/// Room for the longest segment's payload.
pub(super) const LONGEST: usize = 1 << 16;

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
    /// Without bytes, by several paths.
    Multipath(Box<Subflows>),
}

/// The same of whichever machine it is.
macro_rules! each {
    ($self:ident, $machine:ident => $call:expr) => {
        match $self {
            Self::Virtual($machine) => $call,
            Self::Real($machine) => $call,
            Self::Multipath(subflows) => {
                let $machine = &mut subflows.machine;
                $call
            }
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
            Self::Multipath(subflows) => subflows.first(),
        }
    }

    /// What it did, on all of its paths.
    pub(super) fn stats(&self) -> tcp::Stats {
        match self {
            Self::Multipath(subflows) => subflows.machine.stats(),
            _ => *self.connection().stats(),
        }
    }

    /// The ends of further subflows.
    pub(super) fn further_keys(&self) -> &[Key] {
        match self {
            Self::Multipath(subflows) => subflows.keys.get(1..).unwrap_or_default(),
            Self::Virtual(_) | Self::Real(_) => &[],
        }
    }

    #[inline]
    pub(super) fn has_events(&self) -> bool {
        match self {
            Self::Multipath(subflows) => subflows.machine.has_events(),
            _ => self.connection().has_events(),
        }
    }

    /// Bytes that have arrived in order and were not consumed.
    #[inline]
    pub(super) fn readable(&self) -> Bytes {
        match self {
            Self::Multipath(subflows) => subflows.machine.readable(),
            _ => self.connection().readable(),
        }
    }

    /// There is room for a full segment.
    #[inline]
    pub(super) fn is_writable(&self) -> bool {
        match self {
            Self::Multipath(subflows) => {
                subflows.machine.send_room() >= subflows.machine.segment_size()
            }
            _ => self.connection().send_room() >= self.connection().segment_size(),
        }
    }

    #[inline]
    pub(super) fn handle_segment(
        &mut self,
        now: Time,
        key: Key,
        segment: &Segment,
        packet: &Datagram,
    ) {
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
            (Self::Multipath(subflows), _) => {
                subflows.handle_segment(now, key, segment, marked);
            }
        }
    }

    /// Sends everything that is due.
    #[inline]
    pub(super) fn transmit(
        &mut self,
        ctx: &mut Context<'_>,
        (key, encrypted): (&Key, bool),
        ways: &Ways,
        scratch: &mut [u8],
    ) {
        let now = ctx.now();
        let mut key = *key;
        loop {
            let outgoing = match self {
                Self::Virtual(connection) => connection.poll_transmit(now),
                Self::Real(socket) => socket.poll_outgoing(now, scratch),
                Self::Multipath(subflows) => {
                    subflows.machine.poll_transmit(now).map(|(at, out)| {
                        key = subflows.keys.get(at).copied().unwrap_or(key);
                        out
                    })
                }
            };
            let Some(outgoing) = outgoing else { break };
            let (src, dst) = (key.local_addr(), key.remote_addr());
            let mut packet = ctx.packet(src, dst, Body::Tcp(outgoing.segment));
            packet.encrypted = encrypted;
            if outgoing.ecn_capable {
                packet.ecn = Ecn::Capable;
            }
            if matches!(self, Self::Real(_)) {
                packet.set_bytes(&scratch[..outgoing.segment.len as usize]);
            }
            // What a link does not take is lost, as in any network.
            ctx.send_by(ways.links.get(&src).copied(), packet).ok();
        }
    }

    pub(super) fn poll_event(&mut self) -> Option<tcp::Event> {
        each!(self, machine => machine.poll_event())
    }

    #[inline]
    pub(super) fn next_timeout(&self) -> Option<Time> {
        match self {
            Self::Multipath(subflows) => subflows.machine.next_timeout(),
            _ => self.connection().next_timeout(),
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        each!(self, machine => machine.handle_timeout(now))
    }

    pub(super) fn handle_link_event(&mut self, now: Time, event: LinkEvent) {
        match self {
            Self::Virtual(connection) => connection.handle_link_event(now, event),
            Self::Real(socket) => socket.handle_link_event(now, event),
            // Ordinary TCP listens to nobody.
            Self::Multipath(_) => {}
        }
    }

    pub(super) fn handle_bad_state(&mut self, now: Time) {
        match self {
            Self::Virtual(connection) => connection.handle_bad_state(now),
            Self::Real(socket) => socket.handle_bad_state(now),
            Self::Multipath(_) => {}
        }
    }

    pub(super) fn write(&mut self, n: Bytes) -> Bytes {
        match self {
            Self::Virtual(connection) => connection.write(n),
            Self::Real(_) => Bytes::ZERO,
            Self::Multipath(subflows) => subflows.machine.write(n),
        }
    }

    pub(super) fn write_bytes(&mut self, data: &[u8]) -> usize {
        match self {
            Self::Virtual(_) | Self::Multipath(_) => 0,
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
            Self::Multipath(subflows) => {
                let n = n.min(subflows.machine.readable());
                subflows.machine.consume(n);
                n
            }
        }
    }

    pub(super) fn set_window_share(&mut self, share: Option<Bytes>) {
        match self {
            Self::Virtual(connection) => connection.set_window_share(share),
            Self::Real(socket) => socket.set_window_share(share),
            Self::Multipath(_) => {}
        }
    }

    pub(super) fn finish(&mut self) {
        each!(self, machine => machine.finish())
    }

    pub(super) fn abort(&mut self) {
        each!(self, machine => machine.abort())
    }
}
