//! Frames of the datagram lane.

use super::{PACKET, pair};
use crate::varint;

const PART: u8 = 0x01;
const CE: u8 = 0x02;
/// Where [`PACKET`] has a header of its own, the kinds of frames whose header is kept, and left out.
const WHOLE: u8 = PACKET;
const KEPT: u8 = 0x18;
const LEFT_OUT: u8 = 0x1c;

/// What a frame has of a packet's headers, IP and UDP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketHeader {
    /// All of them, as any packet.
    Whole,
    /// All of them, and the receiver keeps their [context](crate::header_context::HeaderContext) for its flow.
    Kept,
    /// What the context leaves over that came with the packet so many numbers before this one.
    LeftOut(u64),
}

impl PacketHeader {
    /// The farthest back that a packet is named whose headers are left out of another: what two bytes hold.
    pub const DISTANCE_MAX: u64 = (1 << 14) - 1;

    fn kind(self) -> u8 {
        match self {
            Self::Whole => WHOLE,
            Self::Kept => KEPT,
            Self::LeftOut(_) => LEFT_OUT,
        }
    }

    fn len(self) -> usize {
        if let Self::LeftOut(distance) = self { varint::len(distance) } else { 0 }
    }
}

/// A packet of the datagram lane, or a part of one that no datagram takes whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketFrame<'a> {
    /// The packet's number in the lane; from 1 on, in the order in which packets are first sent.
    pub number: u64,
    /// The packet's flow: packets of a flow are delivered in order.
    pub flow: u64,
    /// How many numbers before this one the packet of this flow has that is to be delivered first; 0 if
    /// there is none.
    pub after: u64,
    /// How long the packet waits at the receiver for those that are to be delivered first, in milliseconds.
    pub patience_ms: u64,
    /// The packet met congestion: its ECN field is to say so (RFC 3168 section 5).
    pub ce: bool,
    /// What `data` has of the packet's headers. Where they are left out, bytes are counted without them.
    pub header: PacketHeader,
    /// Where in the packet `data` belongs, and how long the packet is; `None` for a whole packet.
    pub part: Option<(u64, u64)>,
    /// The bytes.
    pub data: &'a [u8],
}

/// The longest packet of the datagram lane, in bytes: what an IP packet can be.
pub const PACKET_MAX: usize = u16::MAX as usize;

impl<'a> PacketFrame<'a> {
    /// Bytes of the packet, of which this may be a part.
    pub fn total(&self) -> u64 {
        self.part.map_or(self.data.len() as u64, |(_, total)| total)
    }

    /// Bytes of the header of a frame with these fields, and up to 16,383 bytes of data.
    pub fn overhead(&self) -> usize {
        let part = self.part.map_or(0, |(offset, total)| varint::len(offset) + varint::len(total));
        let fields = [self.number, self.flow, self.after, self.patience_ms];
        1 + fields.into_iter().map(varint::len).sum::<usize>() + self.header.len() + part + 2
    }

    pub(super) fn decode(kind: u8, bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (number, flow, bytes) = pair(bytes)?;
        let (after, patience_ms, bytes) = pair(bytes)?;
        let (header, bytes) = match kind & !(PART | CE) {
            LEFT_OUT => {
                let (distance, bytes) = varint::get(bytes)?;
                (PacketHeader::LeftOut(distance), bytes)
            }
            KEPT => (PacketHeader::Kept, bytes),
            _ => (PacketHeader::Whole, bytes),
        };
        let (part, bytes) = if kind & PART != 0 {
            let (offset, total, bytes) = pair(bytes)?;
            (Some((offset, total)), bytes)
        } else {
            (None, bytes)
        };
        let (length, bytes) = varint::get(bytes)?;
        let (data, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
        let ce = kind & CE != 0;
        let frame = Self { number, flow, after, patience_ms, ce, header, part, data };
        let earlier = |distance| distance > 0 && distance < number;
        let known = !matches!(header, PacketHeader::LeftOut(distance) if !earlier(distance));
        (after < number && known && frame.fits()).then_some((frame, rest))
    }

    /// Whether the data lies within a packet.
    fn fits(&self) -> bool {
        let (offset, total) = self.part.unwrap_or((0, self.data.len() as u64));
        let end = offset.checked_add(self.data.len() as u64);
        !self.data.is_empty() && total <= PACKET_MAX as u64 && end.is_some_and(|end| end <= total)
    }

    pub(super) fn encode<'o>(&self, out: &'o mut [u8]) -> Option<&'o mut [u8]> {
        let part = if self.part.is_some() { PART } else { 0 };
        let (first, mut out) = out.split_first_mut()?;
        *first = self.header.kind() | part | if self.ce { CE } else { 0 };
        for n in [self.number, self.flow, self.after, self.patience_ms] {
            out = varint::put(out, n)?;
        }
        if let PacketHeader::LeftOut(distance) = self.header {
            out = varint::put(out, distance)?;
        }
        if let Some((offset, total)) = self.part {
            out = varint::put(varint::put(out, offset)?, total)?;
        }
        let out = varint::put(out, self.data.len() as u64)?;
        let (data, out) = out.split_at_mut_checked(self.data.len())?;
        data.copy_from_slice(self.data);
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Frame, Frames, Writer};
    use super::*;

    #[test]
    fn packets_and_parts_come_back() {
        let whole = packet(None);
        let part = PacketFrame { ce: true, after: 0, ..packet(Some((1400, 1404))) };
        let kept = PacketFrame { header: PacketHeader::Kept, ..part };
        let left_out = PacketFrame { header: PacketHeader::LeftOut(300), ..whole };
        let both = PacketFrame { header: left_out.header, ..part };
        for frame in [whole, part, kept, left_out, both] {
            let mut buf = [0xee; 64];
            let mut w = Writer::new(&mut buf);
            assert!(w.put(&Frame::Packet(frame)) && w.len() <= frame.overhead() + frame.data.len());
            let len = w.len();
            assert_eq!(Frames::new(&buf[..len]).next(), Some(Ok(Frame::Packet(frame))));
            for cut in 0..len {
                assert!(!Writer::new(&mut [0; 64][..cut]).put(&Frame::Packet(frame)), "in {cut}");
                assert!(!matches!(Frames::new(&buf[..cut]).next(), Some(Ok(_))), "{cut}");
            }
        }
    }

    fn packet(part: Option<(u64, u64)>) -> PacketFrame<'static> {
        let (number, flow, after, patience_ms) = (1 << 33, 700, 3, 90);
        let header = PacketHeader::Whole;
        PacketFrame { number, flow, after, patience_ms, ce: false, header, part, data: b"some" }
    }

    #[test]
    fn a_packet_that_contradicts_itself_is_refused() {
        let good = packet(None);
        assert!(good.fits() && good.overhead() == 1 + 8 + 2 + 1 + 2 + 2);
        let bad = [
            PacketFrame { number: 3, ..good },
            PacketFrame { data: b"", ..good },
            PacketFrame { header: PacketHeader::LeftOut(0), ..good },
            PacketFrame { header: PacketHeader::LeftOut(good.number), ..good },
            packet(Some((1400, 1403))),
            packet(Some((0, 1 << 16))),
            packet(Some((varint::MAX, varint::MAX))),
        ];
        for frame in bad {
            let mut buf = [0; 64];
            let mut w = Writer::new(&mut buf);
            assert!(w.put(&Frame::Packet(frame)));
            let len = w.len();
            assert!(matches!(Frames::new(&buf[..len]).next(), Some(Err(_))), "{frame:?}");
        }
    }
}
