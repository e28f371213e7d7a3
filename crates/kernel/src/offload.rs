//! What network cards do for the kernel, done in software: cutting large packets to size and
//! finishing checksums. The way back is in coalesce.rs.
//!
//! A virtual Ethernet device hands over packets as the kernel's stack made them, trusting that a
//! card will finish the work: TCP and UDP packets of up to 64 kB (TSO, USO) whose checksum is only
//! begun. So does a TUN device, whose frames are bare IP packets. The header that `PACKET_VNET_HDR` or
//! `IFF_VNET_HDR` puts before each frame says what is left to do (virtio 1.2, section 5.1.6).

use lasthop_wire::checksum::{self, Sum};
use thiserror::Error;

use crate::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, network_layer};

/// The length of the header before each frame.
pub const HEADER_LENGTH: usize = 10;

/// The header that says that there is nothing left to do.
pub const NOTHING_LEFT: [u8; HEADER_LENGTH] = [0; HEADER_LENGTH];

pub(crate) const NEEDS_CHECKSUM: u8 = 1;
const GSO_NONE: u8 = 0;
pub(crate) const GSO_TCPV4: u8 = 1;
pub(crate) const GSO_TCPV6: u8 = 4;
pub(crate) const GSO_UDP_L4: u8 = 5;
/// A flag beside the type: the segments carry ECN.
const GSO_ECN: u8 = 0x80;

pub(crate) const TCP_CHECKSUM_OFFSET: usize = 16;
pub(crate) const UDP_CHECKSUM_OFFSET: usize = 6;
const FIN: u8 = 0x01;
pub(crate) const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// A frame that cannot be finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum OffloadError {
    /// The frame, or a header in it, ends too early.
    #[error("the frame is shorter than its headers say")]
    Truncated,
    /// A kind of segmentation that is not known here.
    #[error("segmentation of type {0} is not known")]
    UnknownSegmentation(u8),
    /// Neither IPv4 nor IPv6, under the Ethernet header where there is one.
    #[error("the packet to be segmented is not IP")]
    NotIp,
}

/// What a frame begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// An Ethernet header.
    Ethernet,
    /// The IP header itself.
    Bare,
}

impl Link {
    /// Where the IP packet in a frame begins, and whether it is IPv4.
    fn ip_packet(self, frame: &[u8]) -> Result<(usize, bool), OffloadError> {
        match self {
            Self::Ethernet => match network_layer(frame).ok_or(OffloadError::Truncated)? {
                (at, ETHERTYPE_IPV4) => Ok((at, true)),
                (at, ETHERTYPE_IPV6) => Ok((at, false)),
                _ => Err(OffloadError::NotIp),
            },
            Self::Bare => match frame.first().ok_or(OffloadError::Truncated)? >> 4 {
                4 => Ok((0, true)),
                6 => Ok((0, false)),
                _ => Err(OffloadError::NotIp),
            },
        }
    }
}

/// What is left to do for a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unfinished {
    /// The checksum from `start` to the end belongs at `start + offset`.
    checksum: Option<(usize, usize)>,
    gso_type: u8,
    gso_size: usize,
}

impl Unfinished {
    /// Reads the header before a frame; its numbers are in the machine's own byte order.
    pub fn parse(header: [u8; HEADER_LENGTH]) -> Self {
        let [flags, gso_type, _, _, size0, size1, start0, start1, offset0, offset1] = header;
        let number = |a, b| usize::from(u16::from_ne_bytes([a, b]));
        Self {
            checksum: (flags & NEEDS_CHECKSUM != 0)
                .then(|| (number(start0, start1), number(offset0, offset1))),
            gso_type: gso_type & !GSO_ECN,
            gso_size: number(size0, size1),
        }
    }

    /// Whether the frame is to be cut into several.
    pub(crate) fn is_segmented(&self) -> bool {
        self.gso_type != GSO_NONE
    }
}

/// Writes the checksum that the kernel began: the field holds the pseudo header's sum.
///
/// # Errors
///
/// [`OffloadError::Truncated`] if the checksum lies outside the frame.
pub(crate) fn finish_checksum(todo: Unfinished, frame: &mut [u8]) -> Result<(), OffloadError> {
    let Some((start, offset)) = todo.checksum else { return Ok(()) };
    let covered = frame.get_mut(start..).ok_or(OffloadError::Truncated)?;
    let sum = checksum::of(covered);
    let field = covered.get_mut(offset..offset + 2).ok_or(OffloadError::Truncated)?;
    field.copy_from_slice(&never_zero(sum, offset == UDP_CHECKSUM_OFFSET));
    Ok(())
}

/// Does for an Ethernet frame what was left to a network card: hands each packet that it is, in a buffer that
/// `empty` makes, to `take`, with whether its checksum is known to be right. Says how many there were.
///
/// # Errors
///
/// The frame is shorter than its headers say, or of an unknown kind: nothing was taken.
pub(crate) fn finish<B: AsMut<Vec<u8>>>(
    todo: Unfinished,
    frame: &[u8],
    mut empty: impl FnMut() -> B,
    mut take: impl FnMut(B, bool),
) -> Result<u64, OffloadError> {
    if !todo.is_segmented() {
        let mut packet = empty();
        packet.as_mut().extend_from_slice(frame);
        finish_checksum(todo, packet.as_mut())?;
        take(packet, todo.checksum.is_some());
        return Ok(1);
    }
    let mut segments = Segments::new(todo, Link::Ethernet, frame)?;
    let mut packets = 0;
    loop {
        let mut packet = empty();
        if !segments.next_into(packet.as_mut()) {
            return Ok(packets);
        }
        packets += 1;
        take(packet, true);
    }
}

/// The packets that a large packet is cut into.
#[derive(Debug)]
pub struct Segments<'a> {
    frame: &'a [u8],
    layout: Layout,
    size: usize,
    /// Where in the frame the next segment's payload begins.
    next: usize,
    number: u16,
}

/// Cuts a large packet of a TUN device where it lies, and hands each that it is to `each`. Headers are written over the
/// end of the packet before, which is gone by then; `headers` is room to keep them. Says how many packets there were.
///
/// # Errors
///
/// The packet is shorter than its headers say, or of an unknown kind: nothing was handed out.
pub(crate) fn cut_in_place(
    todo: Unfinished,
    packet: &mut [u8],
    headers: &mut Vec<u8>,
    each: &mut dyn FnMut(&[u8]),
) -> Result<u64, OffloadError> {
    let Segments { layout, size, .. } = Segments::new(todo, Link::Bare, packet)?;
    let (first, length) = (layout.payload, packet.len());
    headers.clear();
    headers.extend_from_slice(&packet[..first]);
    let mut packets = 0;
    for next in (first..length).step_by(size) {
        let end = (next + size).min(length);
        let segment = &mut packet[next - first..end];
        segment[..first].copy_from_slice(headers);
        layout.fix(segment, packets as u16, (next - first) as u32, end == length);
        each(segment);
        packets += 1;
    }
    Ok(packets)
}

/// Where the headers of a large packet are.
#[derive(Clone, Copy, Debug)]
struct Layout {
    ip: usize,
    is_v4: bool,
    transport: usize,
    payload: usize,
    is_tcp: bool,
}

impl<'a> Segments<'a> {
    /// Prepares to cut `frame`, which begins as `link` says.
    ///
    /// # Errors
    ///
    /// The frame is shorter than its headers say, or of an unknown kind.
    pub fn new(todo: Unfinished, link: Link, frame: &'a [u8]) -> Result<Self, OffloadError> {
        let is_tcp = match todo.gso_type {
            GSO_TCPV4 | GSO_TCPV6 => true,
            GSO_UDP_L4 => false,
            other => return Err(OffloadError::UnknownSegmentation(other)),
        };
        let (transport, _) = todo.checksum.ok_or(OffloadError::Truncated)?;
        let layout = Layout::of(link, frame, transport, is_tcp)?;
        if todo.gso_size == 0 {
            return Err(OffloadError::Truncated);
        }
        Ok(Self { frame, layout, size: todo.gso_size, next: layout.payload, number: 0 })
    }

    /// Writes the next packet, complete with checksums, in place of what is in `out`. False if
    /// there is none left.
    pub fn next_into(&mut self, out: &mut Vec<u8>) -> bool {
        if self.next >= self.frame.len() {
            return false;
        }
        let end = (self.next + self.size).min(self.frame.len());
        out.clear();
        out.extend_from_slice(&self.frame[..self.layout.payload]);
        out.extend_from_slice(&self.frame[self.next..end]);
        let before = (self.next - self.layout.payload) as u32;
        self.layout.fix(out, self.number, before, end == self.frame.len());
        self.next = end;
        self.number = self.number.wrapping_add(1);
        true
    }
}

impl Layout {
    fn of(link: Link, frame: &[u8], transport: usize, is_tcp: bool) -> Result<Self, OffloadError> {
        let (ip, is_v4) = link.ip_packet(frame)?;
        let shortest = ip + if is_v4 { 20 } else { 40 };
        let header = if is_tcp {
            let offset = *frame.get(transport + 12).ok_or(OffloadError::Truncated)?;
            usize::from(offset >> 4).max(5) * 4
        } else {
            8
        };
        let payload = transport + header;
        if transport < shortest || payload > frame.len() {
            return Err(OffloadError::Truncated);
        }
        Ok(Self { ip, is_v4, transport, payload, is_tcp })
    }

    /// Makes a copy of the headers right for the packet of this number, before which there are so many bytes.
    fn fix(self, out: &mut [u8], number: u16, before: u32, last: bool) {
        self.fix_ip(out, number);
        if self.is_tcp {
            self.fix_tcp(out, before, number == 0, last);
        } else {
            self.fix_udp(out);
        }
        self.write_checksum(out);
    }

    fn fix_ip(self, out: &mut [u8], number: u16) {
        let length = out.len() - self.ip;
        if self.is_v4 {
            put16(out, self.ip + 2, length as u16);
            let id = u16::from_be_bytes([out[self.ip + 4], out[self.ip + 5]]);
            put16(out, self.ip + 4, id.wrapping_add(number));
            put16(out, self.ip + 10, 0);
            let header = usize::from(out[self.ip] & 0x0f).max(5) * 4;
            let header = &out[self.ip..(self.ip + header).min(self.transport)];
            let checksum = checksum::of(header);
            put16(out, self.ip + 10, checksum);
        } else {
            put16(out, self.ip + 4, (length - 40) as u16);
        }
    }

    /// Only the first segment says that the window was reduced, only the last that all is sent.
    fn fix_tcp(self, out: &mut [u8], before: u32, first: bool, last: bool) {
        let t = self.transport;
        let sequence = u32::from_be_bytes([out[t + 4], out[t + 5], out[t + 6], out[t + 7]]);
        out[t + 4..t + 8].copy_from_slice(&sequence.wrapping_add(before).to_be_bytes());
        if !first {
            out[t + 13] &= !CWR;
        }
        if !last {
            out[t + 13] &= !(FIN | PSH);
        }
    }

    fn fix_udp(self, out: &mut [u8]) {
        let length = out.len() - self.transport;
        put16(out, self.transport + 4, length as u16);
    }

    fn write_checksum(self, out: &mut [u8]) {
        let offset = if self.is_tcp { TCP_CHECKSUM_OFFSET } else { UDP_CHECKSUM_OFFSET };
        put16(out, self.transport + offset, 0);
        let addresses = if self.is_v4 {
            &out[self.ip + 12..self.ip + 20]
        } else {
            &out[self.ip + 8..self.ip + 40]
        };
        let protocol = if self.is_tcp { 6 } else { 17 };
        let length = ((out.len() - self.transport) as u32).to_be_bytes();
        let pseudo = Sum::new().with(addresses).with(&[0, protocol]).with(&length);
        let checksum = pseudo.with(&out[self.transport..]).checksum();
        let field = self.transport + offset;
        out[field..field + 2].copy_from_slice(&never_zero(checksum, !self.is_tcp));
    }
}

pub(crate) fn put16(out: &mut [u8], at: usize, n: u16) {
    out[at..at + 2].copy_from_slice(&n.to_be_bytes());
}

/// UDP has a zero checksum mean that there is none (RFC 768).
fn never_zero(checksum: u16, is_udp: bool) -> [u8; 2] {
    let checksum = if is_udp && checksum == 0 { 0xffff } else { checksum };
    checksum.to_be_bytes()
}

#[cfg(test)]
mod tests {
    use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
    use proptest::prelude::*;

    use super::*;

    fn header(flags: u8, gso_type: u8, size: u16, start: u16, offset: u16) -> Unfinished {
        let mut header = [flags, gso_type, 0, 0, 0, 0, 0, 0, 0, 0];
        header[4..6].copy_from_slice(&size.to_ne_bytes());
        header[6..8].copy_from_slice(&start.to_ne_bytes());
        header[8..10].copy_from_slice(&offset.to_ne_bytes());
        Unfinished::parse(header)
    }

    fn payload(length: usize) -> Vec<u8> {
        (0..length).map(|i| (i * 7 + i / 256) as u8).collect()
    }

    fn frame(v4: bool, tcp: bool, payload: &[u8]) -> Vec<u8> {
        let ethernet = PacketBuilder::ethernet2([1; 6], [2; 6]);
        let ip = if v4 {
            ethernet.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        } else {
            ethernet.ipv6([3; 16], [4; 16], 64)
        };
        let mut out = Vec::new();
        if tcp {
            let tcp = ip.tcp(1000, 80, u32::MAX - 1000, 500).ack(77).psh().fin().cwr();
            tcp.write(&mut out, payload).expect("builds");
        } else {
            ip.udp(1000, 53).write(&mut out, payload).expect("builds");
        }
        out
    }

    fn segments(v4: bool, tcp: bool, size: u16, payload: &[u8]) -> Vec<Vec<u8>> {
        let frame = frame(v4, tcp, payload);
        let transport = 14 + if v4 { 20 } else { 40 };
        let gso = match (tcp, v4) {
            (true, true) => GSO_TCPV4,
            (true, false) => GSO_TCPV6,
            (false, _) => GSO_UDP_L4,
        };
        let offset = if tcp { TCP_CHECKSUM_OFFSET } else { UDP_CHECKSUM_OFFSET } as u16;
        let todo = header(NEEDS_CHECKSUM, gso, size, transport, offset);
        assert!(todo.is_segmented());
        let mut cut = Segments::new(todo, Link::Ethernet, &frame).expect("cuts");
        let mut all = Vec::new();
        let mut out = Vec::new();
        while cut.next_into(&mut out) {
            all.push(out.clone());
        }
        assert_eq!(without_ethernet(todo, transport - 14, &frame[14..]), bare(&all));
        all
    }

    fn bare(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        frames.iter().map(|frame| frame[14..].to_vec()).collect()
    }

    /// The segments of the same packet where no Ethernet header is before it.
    fn without_ethernet(todo: Unfinished, transport: u16, packet: &[u8]) -> Vec<Vec<u8>> {
        let checksum = todo.checksum.map(|(_, offset)| (transport.into(), offset));
        let todo = Unfinished { checksum, ..todo };
        let mut cut = Segments::new(todo, Link::Bare, packet).expect("cuts");
        let mut all = Vec::new();
        let mut out = Vec::new();
        while cut.next_into(&mut out) {
            all.push(out.clone());
        }
        let (mut packet, mut in_place) = (packet.to_vec(), Vec::new());
        let each = &mut |segment: &[u8]| in_place.push(segment.to_vec());
        let count = cut_in_place(todo, &mut packet, &mut out, each).expect("cuts");
        assert_eq!((count, in_place), (all.len() as u64, all.clone()));
        all
    }

    /// What etherparse says of a packet: the payload, if lengths and checksums are right.
    fn checked(frame: &[u8]) -> Vec<u8> {
        let packet = SlicedPacket::from_ethernet(frame).expect("parses");
        let (net, transport) = (packet.net.expect("IP"), packet.transport.expect("TCP or UDP"));
        match (&net, &transport) {
            (NetSlice::Ipv4(ip), TransportSlice::Tcp(tcp)) => {
                assert_eq!(
                    ip.header().to_header().calc_header_checksum(),
                    ip.header().header_checksum()
                );
                let right = tcp.calc_checksum_ipv4(ip.header().source(), ip.header().destination());
                assert_eq!(right, Ok(tcp.checksum()));
            }
            (NetSlice::Ipv6(ip), TransportSlice::Tcp(tcp)) => {
                let right = tcp.calc_checksum_ipv6(ip.header().source(), ip.header().destination());
                assert_eq!(right, Ok(tcp.checksum()));
            }
            (NetSlice::Ipv4(ip), TransportSlice::Udp(udp)) => {
                assert_eq!(
                    ip.header().to_header().calc_header_checksum(),
                    ip.header().header_checksum()
                );
                let right = udp.to_header().calc_checksum_ipv4_raw(
                    ip.header().source(),
                    ip.header().destination(),
                    udp.payload(),
                );
                assert_eq!(right.expect("short"), udp.checksum());
                assert_eq!(usize::from(udp.length()), 8 + udp.payload().len());
            }
            (NetSlice::Ipv6(ip), TransportSlice::Udp(udp)) => {
                let right = udp.to_header().calc_checksum_ipv6_raw(
                    ip.header().source(),
                    ip.header().destination(),
                    udp.payload(),
                );
                assert_eq!(right.expect("short"), udp.checksum());
            }
            other => panic!("{other:?}"),
        }
        match transport {
            TransportSlice::Tcp(tcp) => tcp.payload().to_vec(),
            TransportSlice::Udp(udp) => udp.payload().to_vec(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn tcp_segments_continue_the_sequence_and_keep_flags_where_they_belong() {
        for v4 in [true, false] {
            let all = segments(v4, true, 1448, &payload(4000));
            let tcps: Vec<_> = all
                .iter()
                .map(|f| match SlicedPacket::from_ethernet(f).expect("parses").transport {
                    Some(TransportSlice::Tcp(tcp)) => tcp.to_header(),
                    other => panic!("{other:?}"),
                })
                .collect();
            let sequence: Vec<u32> = tcps.iter().map(|t| t.sequence_number).collect();
            let first = u32::MAX - 1000;
            assert_eq!(sequence, [first, first.wrapping_add(1448), first.wrapping_add(2896)]);
            let flags: Vec<_> = tcps.iter().map(|t| (t.cwr, t.psh, t.fin)).collect();
            assert_eq!(flags, [(true, false, false), (false, false, false), (false, true, true)]);
        }
    }

    #[test]
    fn a_checksum_that_was_begun_is_finished() {
        for (v4, tcp) in [(true, true), (true, false), (false, true), (false, false)] {
            let good = frame(v4, tcp, &payload(333));
            let start = 14 + if v4 { 20 } else { 40 };
            let offset = if tcp { TCP_CHECKSUM_OFFSET } else { UDP_CHECKSUM_OFFSET };
            let mut begun = good.clone();
            let addresses = if v4 { &good[26..34] } else { &good[22..54] };
            let length = ((good.len() - start) as u32).to_be_bytes();
            let pseudo =
                Sum::new().with(addresses).with(&[0, if tcp { 6 } else { 17 }]).with(&length);
            begun[start + offset..start + offset + 2]
                .copy_from_slice(&(!pseudo.checksum()).to_be_bytes());
            let todo = header(NEEDS_CHECKSUM, GSO_NONE, 0, start as u16, offset as u16);
            finish_checksum(todo, &mut begun).expect("finishes");
            assert_eq!(begun, good);
        }
    }

    #[test]
    fn a_frame_with_nothing_left_to_do_stays_as_it_is() {
        let good = frame(true, true, &payload(100));
        let mut same = good.clone();
        finish_checksum(Unfinished::parse(NOTHING_LEFT), &mut same).expect("nothing to do");
        assert_eq!(same, good);
    }

    #[test]
    fn what_cannot_be_cut_is_refused() {
        let good = frame(true, true, &payload(100));
        let new = |todo, frame: &[u8]| Segments::new(todo, Link::Ethernet, frame).map(|_| ());
        let unknown = header(NEEDS_CHECKSUM, 3, 10, 34, 6);
        assert_eq!(new(unknown, &good), Err(OffloadError::UnknownSegmentation(3)));
        let tcp = header(NEEDS_CHECKSUM, GSO_TCPV4, 10, 34, 16);
        assert_eq!(new(tcp, &good[..40]), Err(OffloadError::Truncated));
        assert_eq!(
            new(header(NEEDS_CHECKSUM, GSO_TCPV4, 0, 34, 16), &good),
            Err(OffloadError::Truncated)
        );
        assert_eq!(new(header(0, GSO_TCPV4, 10, 34, 16), &good), Err(OffloadError::Truncated));
        let mut arp = good.clone();
        arp[12..14].copy_from_slice(&[0x08, 0x06]);
        assert_eq!(new(tcp, &arp), Err(OffloadError::NotIp));
        let bare = |frame: &[u8]| Segments::new(tcp, Link::Bare, frame).map(|_| ());
        assert_eq!(bare(&[0x50; 100]), Err(OffloadError::NotIp));
        assert_eq!(bare(&[]), Err(OffloadError::Truncated));
        let outside = header(NEEDS_CHECKSUM, GSO_NONE, 0, 60_000, 16);
        assert_eq!(finish_checksum(outside, &mut arp), Err(OffloadError::Truncated));
    }

    proptest! {
        #[test]
        fn every_segment_is_valid_and_together_they_are_the_payload(
            v4: bool, tcp: bool, size in 1u16..3000, length in 1usize..20_000,
        ) {
            let whole = payload(length);
            let all = segments(v4, tcp, size, &whole);
            prop_assert_eq!(all.len(), length.div_ceil(usize::from(size)));
            let parts: Vec<Vec<u8>> = all.iter().map(|f| checked(f)).collect();
            prop_assert!(parts.iter().all(|p| p.len() <= usize::from(size)));
            prop_assert_eq!(parts.concat(), whole);
        }

        #[test]
        fn no_frame_makes_the_cutter_panic(
            bytes: [u8; HEADER_LENGTH], mut frame in prop::collection::vec(any::<u8>(), 0..200),
            start in 0u16..80,
        ) {
            let mut bytes = bytes;
            bytes[6..8].copy_from_slice(&start.to_ne_bytes());
            bytes[0] |= NEEDS_CHECKSUM;
            if frame.len() > 14 {
                frame[12..14].copy_from_slice(if bytes[2] % 2 == 0 { &[0x08, 0] } else { &[0x86, 0xdd] });
            }
            for gso in [GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4] {
                bytes[1] = gso;
                let mut out = Vec::new();
                for link in [Link::Ethernet, Link::Bare] {
                    if let Ok(mut cut) = Segments::new(Unfinished::parse(bytes), link, &frame) {
                        while cut.next_into(&mut out) {}
                    }
                }
                let _ = cut_in_place(
                    Unfinished::parse(bytes), &mut frame.clone(), &mut out, &mut |_| (),
                );
            }
            let _ = finish_checksum(Unfinished::parse(bytes), &mut frame);
        }
    }
}
