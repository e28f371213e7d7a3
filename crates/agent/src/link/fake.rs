//! A packet for tests.

use core::net::{Ipv4Addr, SocketAddr};

use lasthop_wire::tcp::{Flags, Segment, Seq};

use crate::{Connection, Packet, Side, Tcp};

/// A packet with an identity, an ECN mark, and a header if it is not encrypted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Fake {
    pub(crate) id: u32,
    pub(crate) marked: bool,
    pub(crate) tcp: Option<Tcp>,
    pub(crate) frame: Option<u32>,
}

impl Packet for Fake {
    fn tcp(&self) -> Option<Tcp> {
        self.tcp
    }

    fn set_segment(&mut self, segment: &Segment) {
        if let Some(tcp) = &mut self.tcp {
            tcp.segment = Segment { len: tcp.segment.len, ..*segment };
        }
    }

    fn is_marked(&self) -> bool {
        self.marked
    }

    fn frame(&self) -> Option<u32> {
        self.frame
    }

    fn set_frame(&mut self, frame: Option<u32>) {
        self.frame = frame;
    }
}

impl Fake {
    /// A packet whose payload, header and all, is hidden.
    pub(crate) const fn hidden(id: u32) -> Self {
        Self { id, marked: false, tcp: None, frame: None }
    }

    /// A segment of `connection` that comes from `from`.
    pub(crate) const fn segment(connection: &Connection, from: Side, segment: Segment) -> Self {
        let (src, dst) = from.ends(connection);
        let segment = Segment { src_port: src.port(), dst_port: dst.port(), ..segment };
        Self { tcp: Some(Tcp { src, dst, segment }), ..Self::hidden(segment.seq.0) }
    }

    /// Data from the fixed host, from `seq` on.
    pub(crate) fn data(connection: &Connection, seq: Seq, len: u32) -> Self {
        let flags = Flags::ACK;
        Self::segment(connection, Side::Fixed, Segment { seq, flags, len, ..Segment::default() })
    }
}

/// The connection that ends at this port of the mobile.
pub(crate) fn connection(port: u16) -> Connection {
    let at = |host, port| SocketAddr::from((Ipv4Addr::new(192, 0, 2, host), port));
    Connection { fixed: at(1, 80), mobile: at(2, port) }
}
