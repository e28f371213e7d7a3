//! The frames around segments that an agent makes in the name of another.

use lasthop_agent::table::Table;
use lasthop_agent::{Connection, Packet, Side};
use lasthop_units::{Duration, Time};
use lasthop_wire::ip::{self, Addresses, Protocol};
use lasthop_wire::tcp::Segment;

use super::ethernet::{ADDRESSES, HEADER, IPV4, IPV6};
use super::frame::Frame;
use super::pool::Pool;

/// The lifetime of a packet towards a host whose own was not seen: the recommended one (RFC 1700).
const TTL: u8 = 64;

/// How the latest frame of a direction was addressed, and how routers were to treat it.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// Destination and source, as in the frame.
    addresses: [u8; ADDRESSES],
    /// Without the two bits of ECN.
    traffic_class: u8,
    ttl: u8,
    /// IPv6's.
    flow_label: u32,
}

/// What each connection's latest frames looked like in each direction, so that an agent's own
/// segment looks like one more of them. When the table is full, the connection that was silent
/// longest gives way.
#[derive(Clone, Debug)]
pub(super) struct Headers {
    seen: Table<[Option<Shape>; 2]>,
}

impl Headers {
    /// What is kept of at most `limit` connections, of each for `idle` after its last frame.
    pub(super) const fn new(limit: usize, idle: Duration) -> Self {
        Self { seen: Table::new(limit, idle) }
    }

    /// A frame came from `from`. What is not TCP is not remembered.
    pub(super) fn remember(&mut self, now: Time, from: Side, frame: &Frame) {
        let Some(tcp) = frame.tcp() else { return };
        let Some(shape) = Shape::of(frame.bytes(), tcp.src.is_ipv4()) else { return };
        let connection = tcp.connection(from);
        let direction = from.other() as usize;
        match self.seen.get(now, &connection) {
            Some(shapes) => shapes[direction] = Some(shape),
            None => {
                let shapes = self.seen.insert(now, connection, [None; 2]);
                shapes[direction] = Some(shape);
            }
        }
    }

    /// A frame with `segment`, which has no payload, from one end of the connection towards the
    /// other. It has the latest frame's Ethernet addresses, traffic class, lifetime and flow label,
    /// is not ECN capable (RFC 3168 section 6.1.4) and not to be fragmented. If only frames of the
    /// other direction were seen, it takes their Ethernet addresses in exchange.
    ///
    /// None if no frame of the connection was seen.
    pub(super) fn build(
        &mut self,
        towards: Side,
        connection: &Connection,
        segment: &Segment,
        pool: &Pool,
    ) -> Option<Frame> {
        let shapes = *self.seen.peek(connection)?;
        let shape = shapes[towards as usize]
            .or_else(|| shapes[towards.other() as usize].map(Shape::answered))?;
        let (src, dst) = towards.other().ends(connection);
        let between = Addresses::new(src.ip(), dst.ip()).ok()?;
        let segment = Segment { src_port: src.port(), dst_port: dst.port(), len: 0, ..*segment };
        let mut buffer = pool.take();
        shape.emit(between, &segment, buffer.edit())?;
        Some(Frame::parse_summed(buffer))
    }
}

impl Shape {
    /// Of a frame with a whole IP header.
    fn of(frame: &[u8], is_v4: bool) -> Option<Self> {
        let addresses = *frame.first_chunk()?;
        let word = u32::from_be_bytes(*frame.get(HEADER..)?.first_chunk()?);
        Some(if is_v4 {
            let ttl = *frame.get(HEADER + 8)?;
            Self { addresses, traffic_class: (word >> 16) as u8 & !3, ttl, flow_label: 0 }
        } else {
            let ttl = *frame.get(HEADER + 7)?;
            let flow_label = word & 0x000f_ffff;
            Self { addresses, traffic_class: (word >> 20) as u8 & !3, ttl, flow_label }
        })
    }

    /// Of frames that go the other way, of which nothing but the Ethernet addresses and the traffic
    /// class can be known.
    fn answered(self) -> Self {
        let mut addresses = self.addresses;
        addresses.rotate_left(ADDRESSES / 2);
        Self { addresses, ttl: TTL, flow_label: 0, ..self }
    }

    /// Appends a frame; none if the segment cannot be written.
    fn emit(self, between: Addresses, segment: &Segment, out: &mut Vec<u8>) -> Option<()> {
        let ethertype = match between {
            Addresses::V4 { .. } => IPV4,
            Addresses::V6 { .. } => IPV6,
        };
        out.extend_from_slice(&self.addresses);
        out.extend_from_slice(&ethertype.to_be_bytes());
        let header = ip::Header {
            ttl: self.ttl,
            traffic_class: self.traffic_class,
            ..ip::Header::new(between, Protocol::TCP)
        };
        header.emit(segment.header_len() as usize, out).ok()?;
        if ethertype == IPV6 {
            let label = self.flow_label.to_be_bytes();
            out.get_mut(HEADER..)?.iter_mut().zip(label).for_each(|(byte, label)| *byte |= label);
        }
        segment.emit(&between, &[], out).ok()
    }
}

#[cfg(test)]
mod tests;
