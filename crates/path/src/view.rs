//! What is read of a frame of plain TCP, and how it is written back.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use lasthop_agent::Tcp;
use lasthop_wire::checksum;
use lasthop_wire::ip::Addresses;
use lasthop_wire::tcp::{HeaderBytes, Segment};

use super::ethernet::{HEADER, IPV4, ethertype, is_plain_tcp, number};

const IPV4_HEADER: usize = lasthop_wire::ip::IPV4_HEADER as usize;
const IPV6_HEADER: usize = lasthop_wire::ip::IPV6_HEADER as usize;

/// Where a TCP header has its checksum.
const CHECKSUM: usize = 16;

/// An IP packet of this length passes every interface (RFC 8200 section 5). A longer one is not made
/// longer than it came, for it may be as long as the next interface allows.
const SURE_TO_FIT: usize = 1280;

/// What was read of a frame of TCP.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    pub(super) tcp: Tcp,
    pub(super) is_v4: bool,
    /// Where the TCP header begins.
    transport: usize,
    /// Where the payload begins.
    payload: usize,
    /// Where the IP packet ends; what follows is Ethernet's padding.
    pub(super) end: usize,
}

impl View {
    /// Reads a frame and verifies its checksums; none unless it is plain TCP, whole and undamaged.
    pub(super) fn parse(frame: &[u8]) -> Option<Self> {
        Self::read(frame, |addresses, bytes| {
            Segment::parse(addresses, bytes).ok().map(|(segment, _)| segment)
        })
    }

    /// The same for a frame whose TCP checksum is known to be right.
    pub(super) fn parse_summed(frame: &[u8]) -> Option<Self> {
        Self::read(frame, |_, bytes| {
            Segment::parse_unverified(bytes).ok().map(|(segment, _)| segment)
        })
    }

    fn read(
        frame: &[u8],
        segment: impl FnOnce(&Addresses, &[u8]) -> Option<Segment>,
    ) -> Option<Self> {
        if !is_plain_tcp(frame) {
            return None;
        }
        let is_v4 = ethertype(frame) == Some(IPV4);
        let packet = frame.get(HEADER..)?;
        let (addresses, header, length) =
            if is_v4 { ipv4_header(packet)? } else { ipv6_header(packet)? };
        let segment = segment(&addresses, packet.get(header..length)?)?;
        let src = SocketAddr::new(addresses.src(), segment.src_port);
        let dst = SocketAddr::new(addresses.dst(), segment.dst_port);
        let end = HEADER + length;
        Some(Self {
            tcp: Tcp { src, dst, segment },
            is_v4,
            transport: HEADER + header,
            payload: end.checked_sub(segment.len as usize)?,
            end,
        })
    }

    /// Writes what differs in `segment` into `frame`, and reads it again.
    pub(super) fn rewrite(&mut self, frame: &mut Vec<u8>, segment: &Segment) {
        let Some(header) = self.header_for(frame, segment) else { return };
        let (is, moved) = (header.as_slice(), self.transport + header.as_slice().len());
        let Some(was) = frame.get(self.transport..self.payload) else { return };
        let Some(sum) = number(was, CHECKSUM) else { return };
        let sum = checksum::updated(sum, &was[..CHECKSUM], &is[..CHECKSUM]);
        let sum = checksum::updated(sum, &was[CHECKSUM + 2..], &is[CHECKSUM + 2..]);
        let end = self.end - self.payload + moved;
        let length = |end| ((end - self.transport) as u32).to_be_bytes();
        let sum = checksum::updated(sum, &length(self.end), &length(end));
        if end != self.end {
            frame.resize(end.max(self.end), 0);
            frame.copy_within(self.payload..self.end, moved);
            frame.truncate(end);
            self.write_ip_length(frame);
        }
        frame[self.transport..moved].copy_from_slice(is);
        let at = self.transport + CHECKSUM;
        frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        if let Some(view) = Self::parse_summed(frame) {
            *self = view;
        }
    }

    /// The header that says `segment`, with the options that were there if with others the frame
    /// might be too long for the next interface.
    fn header_for(&self, frame: &[u8], segment: &Segment) -> Option<HeaderBytes> {
        let was = frame.get(self.transport..self.end)?;
        let is = segment.rewritten(was).ok()?;
        let (before, after) = (self.payload - self.transport, is.as_slice().len());
        if after <= before || self.end - HEADER - before + after <= SURE_TO_FIT {
            return Some(is);
        }
        let options = self.tcp.segment.options;
        Segment { options, ..*segment }.rewritten(was).ok()
    }

    /// The whole frame is an IP packet without padding.
    fn write_ip_length(&self, frame: &mut [u8]) {
        let length = frame.len() - HEADER;
        // Shorter than it came, or one that passes every interface.
        let put = |frame: &mut [u8], at: usize, n: u16| {
            frame[HEADER + at..HEADER + at + 2].copy_from_slice(&n.to_be_bytes());
        };
        if !self.is_v4 {
            return put(frame, 4, (length - IPV6_HEADER) as u16);
        }
        put(frame, 2, length as u16);
        put(frame, 10, 0);
        let sum = checksum::of(&frame[HEADER..self.transport]);
        put(frame, 10, sum);
    }
}

/// The addresses of an IPv4 packet, where its payload begins and where it ends; none if it is not
/// whole or was changed on the way.
fn ipv4_header(packet: &[u8]) -> Option<(Addresses, usize, usize)> {
    let fixed: &[u8; IPV4_HEADER] = packet.first_chunk()?;
    let header = usize::from(fixed[0] & 0x0f) * 4;
    let length = usize::from(number(packet, 2)?);
    let whole = fixed[0] >> 4 == 4 && header >= IPV4_HEADER && length <= packet.len();
    if !whole || checksum::of(packet.get(..header)?) != 0 {
        return None;
    }
    let address = |at| Some(Ipv4Addr::from(*fixed.get(at..)?.first_chunk::<4>()?));
    Some((Addresses::V4 { src: address(12)?, dst: address(16)? }, header, length))
}

/// The same of an IPv6 packet, whose header is followed by TCP.
fn ipv6_header(packet: &[u8]) -> Option<(Addresses, usize, usize)> {
    let fixed: &[u8; IPV6_HEADER] = packet.first_chunk()?;
    let length = IPV6_HEADER + usize::from(number(packet, 4)?);
    if fixed[0] >> 4 != 6 || length > packet.len() {
        return None;
    }
    let address = |at| Some(Ipv6Addr::from(*fixed.get(at..)?.first_chunk::<16>()?));
    Some((Addresses::V6 { src: address(8)?, dst: address(24)? }, IPV6_HEADER, length))
}
