use core::net::{IpAddr, SocketAddr};
use core::ops::Deref;

use lasthop_agent::{Connection, Packet as Seen, Side, Tcp};
use lasthop_wire::agent::{Message, PORT};
use lasthop_wire::tcp::Segment;
use lasthop_wire::unsplit::Header;

use crate::net::{Body, Context, Ecn, Packet};

impl Seen for Packet {
    fn tcp(&self) -> Option<Tcp> {
        // What is in a tunnel is hidden from whoever stands at its side (MIP-3).
        if self.corrupted || self.encrypted || self.tunnel.is_some() || self.body.is_frame() {
            return None;
        }
        let segment = *self.deref().tcp()?;
        let src = SocketAddr::from((self.src, segment.src_port));
        let dst = SocketAddr::from((self.dst, segment.dst_port));
        Some(Tcp { src, dst, segment })
    }

    fn set_segment(&mut self, segment: &Segment) {
        let len = self.payload_len();
        self.body = Body::Tcp(Segment { len, ..*segment });
    }

    fn is_marked(&self) -> bool {
        self.ecn == Ecn::Congested
    }

    fn frame(&self) -> Option<u32> {
        self.frame
    }

    fn set_frame(&mut self, frame: Option<u32>) {
        self.frame = frame;
    }

    fn compressed(&self) -> Option<Header> {
        match self.body {
            Body::Compressed { header, .. } if !self.corrupted => Some(header),
            _ => None,
        }
    }

    fn compress(&mut self, header: &Header) -> bool {
        let Some(Tcp { segment, .. }) = Seen::tcp(self) else { return false };
        self.body = Body::Compressed { header: *header, segment };
        true
    }

    fn expand(&mut self, src: SocketAddr, dst: SocketAddr) {
        let (IpAddr::V4(from), IpAddr::V4(to)) = (src.ip(), dst.ip()) else { return };
        if let Body::Compressed { segment, .. } = self.body {
            let (src_port, dst_port) = (src.port(), dst.port());
            let was = (self.src, self.dst, segment.src_port, segment.dst_port);
            // TCP's checksum covers what the header left out.
            self.corrupted |= was != (from, to, src_port, dst_port);
            (self.src, self.dst) = (from, to);
            self.body = Body::Tcp(Segment { src_port, dst_port, ..segment });
        }
    }
}

/// The segment of an agent's own, in the name of one end of a connection to the other; none if an
/// address is not IPv4.
pub(super) fn segment_packet(
    ctx: &Context<'_>,
    towards: Side,
    connection: Connection,
    segment: Segment,
) -> Option<Packet> {
    let (src, dst) = towards.other().ends(&connection);
    let (SocketAddr::V4(src), SocketAddr::V4(dst)) = (src, dst) else { return None };
    let segment = Segment { src_port: src.port(), dst_port: dst.port(), len: 0, ..segment };
    Some(ctx.packet(*src.ip(), *dst.ip(), Body::Tcp(segment)))
}

/// A datagram that carries `message` between two agents, or to a host.
pub(super) fn message_packet(
    ctx: &Context<'_>,
    (src, dst): (core::net::Ipv4Addr, core::net::Ipv4Addr),
    message: &Message,
) -> Option<Packet> {
    let mut bytes = [0; Message::MAX_LEN];
    let len = message.emit(&mut bytes).ok()?;
    let mut packet = ctx.packet(src, dst, Body::Udp { src_port: PORT, dst_port: PORT });
    packet.set_bytes(bytes.get(..len)?);
    Some(packet)
}

/// The message that a datagram for an agent carries.
pub(super) fn message_of(packet: &Packet) -> Option<Message> {
    match (packet.body, packet.payload()) {
        (Body::Udp { dst_port: PORT, .. }, crate::net::Payload::Real(bytes)) => {
            Message::parse(bytes).ok()
        }
        _ => None,
    }
}
