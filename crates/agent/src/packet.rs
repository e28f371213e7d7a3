//! What an agent sees of a packet, and what it hands back.

use alloc::collections::VecDeque;
use core::net::SocketAddr;

use lasthop_units::HopEnd;
use lasthop_wire::agent::Message;
use lasthop_wire::tcp::Segment;
use lasthop_wire::unsplit::Header;

pub use lasthop_wire::agent::Connection;

/// One of the two sides of an agent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Side {
    /// Where the fixed hosts are.
    Fixed,
    /// Where the mobile hosts are: the side of the radio.
    Mobile,
}

impl Side {
    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Fixed => Self::Mobile,
            Self::Mobile => Self::Fixed,
        }
    }

    /// The source and the destination of what a connection's host on this side sends.
    pub const fn ends(self, connection: &Connection) -> (SocketAddr, SocketAddr) {
        match self {
            Self::Fixed => (connection.fixed, connection.mobile),
            Self::Mobile => (connection.mobile, connection.fixed),
        }
    }

    /// The side where the hop is, seen from this end of it.
    pub const fn of_hop(end: HopEnd) -> Self {
        match end {
            HopEnd::Mobile => Self::Fixed,
            HopEnd::Base => Self::Mobile,
        }
    }
}

/// A packet as its carrier holds it. A clone is a copy that can be sent later; it should cost little.
pub trait Packet: Clone {
    /// Its TCP header and addresses; none if it is anything else, cannot be read, or is a fragment.
    fn tcp(&self) -> Option<Tcp>;

    /// Writes what differs in another TCP header into its own, and mends the checksum. Addresses,
    /// ports, payload and payload length stay, and so do options that [`Segment`] does not know and
    /// the urgent pointer: only those that it knows are changed, added or taken away.
    fn set_segment(&mut self, segment: &Segment);

    /// A router marked it for congestion: its IP header says CE (RFC 3168 section 5).
    fn is_marked(&self) -> bool {
        false
    }

    /// The number that the link's own recovery gave it.
    fn frame(&self) -> Option<u32> {
        None
    }

    /// Gives it a number for the link's own recovery, or takes it away.
    fn set_frame(&mut self, _frame: Option<u32>) {}

    /// The header with which it crosses a hop in place of those of IP and TCP, if it does (ALT-4). It
    /// has no [`tcp`](Self::tcp) then.
    fn compressed(&self) -> Option<Header> {
        None
    }

    /// Takes that header in place of its own; false if it has to go as it is, such as a fragment, one
    /// with IP options, or one whose carrier knows no such thing.
    fn compress(&mut self, _header: &Header) -> bool {
        false
    }

    /// Becomes a whole packet again, from `src` to `dst`. If the checksum of its TCP header says that
    /// it is not, it has no [`tcp`](Self::tcp).
    fn expand(&mut self, _src: SocketAddr, _dst: SocketAddr) {}
}

/// What an agent reads of a TCP packet.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tcp {
    /// Where it comes from.
    pub src: SocketAddr,
    /// Where it goes.
    pub dst: SocketAddr,
    /// The header; its `len` is the payload's length.
    pub segment: Segment,
}

impl Tcp {
    /// The connection that a packet which came from `from` belongs to.
    pub const fn connection(&self, from: Side) -> Connection {
        match from {
            Side::Fixed => Connection { fixed: self.src, mobile: self.dst },
            Side::Mobile => Connection { fixed: self.dst, mobile: self.src },
        }
    }
}

/// Something to send.
#[derive(Clone, PartialEq, Debug)]
pub enum Output<P> {
    /// This packet.
    Packet {
        /// Where to.
        towards: Side,
        /// The packet.
        packet: P,
    },
    /// A TCP segment without payload that the agent made, in the name of one end of the connection
    /// to the other.
    Segment {
        /// Where to.
        towards: Side,
        /// The connection.
        connection: Connection,
        /// The header; the ports are the connection's.
        segment: Segment,
    },
    /// A message to the agent on that side, or to the host itself ([`Message::BadState`]).
    Message {
        /// Where to.
        towards: Side,
        /// The message.
        message: Message,
    },
}

/// What waits to be sent. Carriers empty it before time goes on, so it stays as short as the output of
/// a few calls.
#[derive(Clone, Debug)]
pub struct Queue<P>(VecDeque<Output<P>>);

impl<P> Default for Queue<P> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<P> Queue<P> {
    /// This packet, towards that side.
    pub fn packet(&mut self, towards: Side, packet: P) {
        self.0.push_back(Output::Packet { towards, packet });
    }

    /// A segment of the agent's own. It gets the connection's ports, and has no payload.
    pub fn segment(&mut self, towards: Side, connection: Connection, segment: Segment) {
        let (src, dst) = towards.other().ends(&connection);
        let segment = Segment { src_port: src.port(), dst_port: dst.port(), len: 0, ..segment };
        self.0.push_back(Output::Segment { towards, connection, segment });
    }

    /// A message.
    pub fn message(&mut self, towards: Side, message: Message) {
        self.0.push_back(Output::Message { towards, message });
    }

    /// The next one.
    pub fn pop(&mut self) -> Option<Output<P>> {
        self.0.pop_front()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// None waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
