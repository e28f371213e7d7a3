//! Frames of the datagram lane.

use super::{PACKET, pair};
use crate::varint;

const PART: u8 = 0x01;
const CE: u8 = 0x02;

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
        1 + fields.into_iter().map(varint::len).sum::<usize>() + part + 2
    }

    pub(super) fn decode(kind: u8, bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (number, flow, bytes) = pair(bytes)?;
        let (after, patience_ms, bytes) = pair(bytes)?;
        let (part, bytes) = if kind & PART != 0 {
            let (offset, total, bytes) = pair(bytes)?;
            (Some((offset, total)), bytes)
        } else {
            (None, bytes)
        };
        let (length, bytes) = varint::get(bytes)?;
        let (data, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
        let ce = kind & CE != 0;
        let frame = Self { number, flow, after, patience_ms, ce, part, data };
        (after < number && frame.fits()).then_some((frame, rest))
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
        *first = PACKET | part | if self.ce { CE } else { 0 };
        for n in [self.number, self.flow, self.after, self.patience_ms] {
            out = varint::put(out, n)?;
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
        for frame in [whole, part] {
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
        PacketFrame { number, flow, after, patience_ms, ce: false, part, data: b"some" }
    }

    #[test]
    fn a_packet_that_contradicts_itself_is_refused() {
        let good = packet(None);
        assert!(good.fits() && good.overhead() == 1 + 8 + 2 + 1 + 2 + 2);
        let bad = [
            PacketFrame { number: 3, ..good },
            PacketFrame { data: b"", ..good },
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
