//! Packets of one flow put together into large ones, which the kernel handles as one until it has to
//! cut them: what network cards do on receipt (GRO), and the way back from [`crate::offload`].
//!
//! Every packet that is put together can be cut again into what it was made of, but for IPv4
//! identifications that mean nothing (RFC 6864 section 4.1). Packets between two addresses do not
//! overtake each other, unless they belong to flows that are told apart by ports.

use std::ops::Range;

use lasthop_wire::checksum::{self, Sum};

use crate::offload::{
    GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, HEADER_LENGTH, NEEDS_CHECKSUM, NOTHING_LEFT, PSH,
    TCP_CHECKSUM_OFFSET, UDP_CHECKSUM_OFFSET, put16,
};

/// The most large packets that wait at once; so many flows at once can be put together.
const MOST_WAITING: usize = 32;
/// The most bytes that wait at once, so that the first are not late.
const MOST_BYTES: usize = 256 * 1024;
/// The longest packet.
const LONGEST: usize = 65_535;
/// Datagrams that older kernels cut a large one into at most (`UDP_MAX_SEGMENTS`).
const MOST_DATAGRAMS: u64 = 64;

const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ACK: u8 = 0x10;
const ECE: u8 = 0x40;

/// A packet of a kind that can be put together with others.
#[derive(Clone, Copy, Debug)]
struct Part {
    is_v4: bool,
    is_tcp: bool,
    transport: usize,
    payload: usize,
    /// Bytes of payload: one at least.
    length: usize,
}

impl Part {
    /// What a packet is, if it is TCP or UDP with payload and nothing unusual about it.
    fn of(packet: &[u8], with_udp: bool) -> Option<Self> {
        if packet.len() > LONGEST {
            return None;
        }
        let first = *packet.first()?;
        let (is_v4, transport, protocol, total) = match first >> 4 {
            // No options, and no fragment.
            4 if first == 0x45 && packet.len() >= IPV4_HEADER => {
                let fragment = number(packet, 6) & 0x3fff;
                let total = usize::from(number(packet, 2));
                (true, IPV4_HEADER, packet[9], if fragment == 0 { total } else { 0 })
            }
            6 if packet.len() >= IPV6_HEADER => {
                let total = IPV6_HEADER + usize::from(number(packet, 4));
                (false, IPV6_HEADER, packet[6], total)
            }
            _ => return None,
        };
        if total != packet.len() {
            return None;
        }
        let header = packet.get(transport..)?;
        let (is_tcp, payload) = match protocol {
            TCP if header.len() >= 20 => {
                // Whatever else a segment says with its flags is its own.
                let flags = header[13] & !(PSH | ECE);
                let length = usize::from(header[12] >> 4) * 4;
                (true, if flags == ACK && length >= 20 { length } else { return None })
            }
            UDP if with_udp && header.len() >= 8 => {
                // A checksum that was left out must not come into being.
                let is_plain = usize::from(number(header, 4)) == header.len();
                (false, if is_plain && number(header, 6) != 0 { 8 } else { return None })
            }
            _ => return None,
        };
        let length = header.len().checked_sub(payload).filter(|length| *length > 0)?;
        Some(Self { is_v4, is_tcp, transport, payload: transport + payload, length })
    }

    /// Where addresses and ports are, side by side.
    fn flow(&self) -> Range<usize> {
        addresses(self.is_v4).start..self.transport + 4
    }

    fn checksum_at(&self) -> usize {
        self.transport + if self.is_tcp { TCP_CHECKSUM_OFFSET } else { UDP_CHECKSUM_OFFSET }
    }

    fn pseudo_header(&self, packet: &[u8]) -> Sum {
        let length = (packet.len() - self.transport) as u32;
        let protocol = if self.is_tcp { TCP } else { UDP };
        Sum::new()
            .with(&packet[addresses(self.is_v4)])
            .with(&[0, protocol])
            .with(&length.to_be_bytes())
    }

    /// Wrong checksums would be made right in a large packet.
    fn has_right_checksums(&self, packet: &[u8]) -> bool {
        let (ip, rest) = packet.split_at(self.transport);
        (!self.is_v4 || checksum::of(ip) == 0)
            && self.pseudo_header(packet).with(rest).checksum() == 0
    }

    fn sequence(&self, packet: &[u8]) -> u32 {
        let at = self.transport + 4;
        u32::from_be_bytes([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]])
    }
}

/// Where the addresses are.
fn addresses(is_v4: bool) -> Range<usize> {
    if is_v4 { 12..IPV4_HEADER } else { 8..IPV6_HEADER }
}

fn number(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// A packet that waits, with others behind it.
#[derive(Default, Debug)]
struct Large {
    /// The offload header, and the packet.
    frame: Vec<u8>,
    /// How many it is.
    packets: u64,
    /// What the first was; none if nothing, or nothing more, can be added.
    first: Option<Part>,
    /// Whether the checksums of the first are known to be right.
    checked: bool,
}

impl Large {
    fn start(&mut self, packet: &[u8], first: Option<Part>) {
        self.frame.clear();
        self.frame.extend_from_slice(&NOTHING_LEFT);
        self.frame.extend_from_slice(packet);
        self.packets = 1;
        self.checked = false;
        // What is pushed is to be read now.
        let is_pushed = |part: &Part| part.is_tcp && packet[part.transport + 13] & PSH != 0;
        self.first = first.filter(|part| !is_pushed(part));
    }

    fn packet(&self) -> &[u8] {
        self.frame.get(HEADER_LENGTH..).unwrap_or_default()
    }

    fn is_of_flow(&self, part: &Part, packet: &[u8]) -> bool {
        let Some(first) = &self.first else { return false };
        (first.is_v4, first.is_tcp) == (part.is_v4, part.is_tcp)
            && self.packet()[part.flow()] == packet[part.flow()]
    }

    /// Whether a packet that cannot be added to any would overtake some of this one.
    fn is_between_same(&self, packet: &[u8]) -> bool {
        let Some(first) = &self.first else { return false };
        let range = addresses(first.is_v4);
        let version = |bytes: &[u8]| bytes.first().map(|first| first >> 4);
        version(packet) == version(self.packet())
            && packet.get(range.clone()) == self.packet().get(range)
    }

    /// Whether nothing but what is counted on tells the headers apart.
    fn continues(&self, first: &Part, part: &Part, packet: &[u8]) -> bool {
        let head = self.packet();
        let same = |range: Range<usize>| head[range.clone()] == packet[range];
        let ip = if part.is_v4 {
            // Identifications are counted up when it is cut; they matter where routers may fragment.
            let dont_fragment = packet[6] & 0x40 != 0;
            let next = number(head, 4).wrapping_add(self.packets as u16);
            same(0..2) && same(6..10) && (dont_fragment || number(packet, 4) == next)
        } else {
            same(0..4) && same(6..8)
        };
        if !part.is_tcp {
            return ip && self.packets < MOST_DATAGRAMS;
        }
        let t = part.transport;
        let so_far = (head.len() - first.payload) as u32;
        ip && part.payload == first.payload
            && part.sequence(packet) == first.sequence(head).wrapping_add(so_far)
            // Acknowledgement, length, flags but for one, window, urgent pointer, options.
            && same(t + 8..t + 13)
            && head[t + 13] == packet[t + 13] & !PSH
            && same(t + 14..t + 16)
            && same(t + 18..part.payload)
    }

    /// Adds a packet of the flow, if the large one can be cut again to give it.
    fn add(&mut self, part: &Part, packet: &[u8]) -> bool {
        // All are as long as the first, but for the last.
        let Some(first) = self.first.filter(|first| part.length <= first.length) else {
            return false;
        };
        if self.packet().len() + part.length > LONGEST || !self.continues(&first, part, packet) {
            return false;
        }
        self.checked = self.checked || first.has_right_checksums(self.packet());
        if !self.checked || !part.has_right_checksums(packet) {
            return false;
        }
        self.frame.extend_from_slice(&packet[part.payload..]);
        self.packets += 1;
        let is_pushed = part.is_tcp && packet[part.transport + 13] & PSH != 0;
        if is_pushed {
            self.frame[HEADER_LENGTH + part.transport + 13] |= PSH;
        }
        if is_pushed || part.length < first.length {
            self.finish();
        }
        true
    }

    /// Nothing more is added: the headers become those of the large packet.
    fn finish(&mut self) {
        let Some(part) = self.first.take().filter(|_| self.packets > 1) else { return };
        let Some((header, packet)) = self.frame.split_first_chunk_mut::<HEADER_LENGTH>() else {
            return;
        };
        let gso_type = match (part.is_tcp, part.is_v4) {
            (true, true) => GSO_TCPV4,
            (true, false) => GSO_TCPV6,
            (false, _) => GSO_UDP_L4,
        };
        let offset = part.checksum_at() - part.transport;
        let numbers = [part.payload, part.length, part.transport, offset];
        header[..2].copy_from_slice(&[NEEDS_CHECKSUM, gso_type]);
        for (field, n) in header[2..].chunks_exact_mut(2).zip(numbers) {
            field.copy_from_slice(&(n as u16).to_ne_bytes());
        }
        let total = packet.len() as u16;
        if part.is_v4 {
            put16(packet, 2, total);
            put16(packet, 10, 0);
            let checksum = checksum::of(&packet[..IPV4_HEADER]);
            put16(packet, 10, checksum);
        } else {
            put16(packet, 4, total - IPV6_HEADER as u16);
        }
        if !part.is_tcp {
            put16(packet, part.transport + 4, total - part.transport as u16);
        }
        // The checksum is begun only: the kernel, or a card, goes on from the pseudo header's sum.
        let begun = !part.pseudo_header(packet).checksum();
        put16(packet, part.checksum_at(), begun);
    }
}

/// Packets on their way to the kernel.
#[derive(Debug)]
pub(crate) struct Coalescer {
    /// Whether the kernel takes large UDP packets.
    with_udp: bool,
    /// Those that wait, and behind them buffers for more.
    large: Vec<Large>,
    waiting: usize,
    bytes: usize,
}

impl Coalescer {
    /// Room for none yet. `with_udp` tells whether UDP too is put together.
    pub(crate) fn new(with_udp: bool) -> Self {
        Self { with_udp, large: Vec::new(), waiting: 0, bytes: 0 }
    }

    /// Whether what waits has to be taken before more is added.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting >= MOST_WAITING || self.bytes >= MOST_BYTES
    }

    /// Adds a packet, to a large one if it can be.
    pub(crate) fn add(&mut self, packet: &[u8]) {
        self.bytes += packet.len();
        let waiting = self.large.get_mut(..self.waiting).unwrap_or_default();
        let part = Part::of(packet, self.with_udp);
        match &part {
            // Of one flow at most one is open.
            Some(part) => {
                if let Some(large) = waiting.iter_mut().find(|large| large.is_of_flow(part, packet))
                {
                    if large.add(part, packet) {
                        return;
                    }
                    large.finish();
                }
            }
            None => {
                for large in waiting.iter_mut().filter(|large| large.is_between_same(packet)) {
                    large.finish();
                }
            }
        }
        if self.waiting == self.large.len() {
            self.large.push(Large::default());
        }
        if let Some(large) = self.large.get_mut(self.waiting) {
            large.start(packet, part);
            self.waiting += 1;
        }
    }

    /// Hands out what waits, each with its offload header before it, and how many packets it is.
    pub(crate) fn take_all(&mut self, mut each: impl FnMut(&[u8], u64)) {
        for large in self.large.iter_mut().take(self.waiting) {
            large.finish();
            each(&large.frame, large.packets);
        }
        (self.waiting, self.bytes) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use etherparse::{PacketBuilder, TcpHeader};
    use proptest::prelude::*;

    use super::*;
    use crate::offload::{Link, Segments, Unfinished, finish_checksum};

    /// What the headers of a packet say.
    #[derive(Clone, Copy, Debug)]
    struct Head {
        v4: bool,
        tcp: bool,
        port: u16,
        sequence: u32,
        push: bool,
        fin: bool,
        /// Identification and leave to fragment, of IPv4.
        id: Option<u16>,
        ttl: u8,
    }

    const HEAD: Head = Head {
        v4: true,
        tcp: true,
        port: 80,
        sequence: u32::MAX - 250,
        push: false,
        fin: false,
        id: None,
        ttl: 64,
    };

    impl Head {
        /// Of what comes after so many bytes.
        fn after(self, bytes: u32) -> Self {
            Self { sequence: self.sequence.wrapping_add(bytes), ..self }
        }

        fn packet(self, payload: &[u8]) -> Vec<u8> {
            let ip = if self.v4 {
                PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], self.ttl)
            } else {
                PacketBuilder::ipv6([3; 16], [4; 16], self.ttl)
            };
            let mut out = Vec::new();
            if self.tcp {
                let mut header = TcpHeader::new(4000, self.port, self.sequence, 500);
                (header.ack, header.psh, header.fin) = (true, self.push, self.fin);
                ip.tcp_header(header).write(&mut out, payload).unwrap();
            } else {
                ip.udp(4000, self.port).write(&mut out, payload).unwrap();
            }
            if let Some(id) = self.id.filter(|_| self.v4) {
                put16(&mut out, 4, id);
                put16(&mut out, 6, 0);
                put16(&mut out, 10, 0);
                let checksum = checksum::of(&out[..IPV4_HEADER]);
                put16(&mut out, 10, checksum);
            }
            out
        }
    }

    fn put_together(packets: &[Vec<u8>]) -> Vec<(Vec<u8>, u64)> {
        let mut coalescer = Coalescer::new(true);
        for packet in packets {
            assert!(!coalescer.is_full());
            coalescer.add(packet);
        }
        let mut all = Vec::new();
        coalescer.take_all(|frame, packets| all.push((frame.to_vec(), packets)));
        coalescer.take_all(|_, _| panic!("nothing is taken twice"));
        all
    }

    /// How many packets are in each of the large ones.
    fn counts(packets: &[Vec<u8>]) -> Vec<u64> {
        put_together(packets).iter().map(|(_, packets)| *packets).collect()
    }

    /// What the kernel makes of a large packet.
    fn cut(frame: &[u8]) -> Vec<Vec<u8>> {
        let (header, packet) = frame.split_first_chunk().unwrap();
        let todo = Unfinished::parse(*header);
        let mut packet = packet.to_vec();
        if !todo.is_segmented() {
            finish_checksum(todo, &mut packet).unwrap();
            return vec![packet];
        }
        let mut segments = Segments::new(todo, Link::Bare, &packet).unwrap();
        let (mut all, mut out) = (Vec::new(), Vec::new());
        while segments.next_into(&mut out) {
            all.push(out.clone());
        }
        all
    }

    /// Without what means nothing: an identification where no router may fragment.
    fn meant(packet: &[u8]) -> Vec<u8> {
        let mut packet = packet.to_vec();
        if packet[0] == 0x45 && packet[6] & 0x40 != 0 {
            packet[4..6].fill(0);
            packet[10..12].fill(0);
        }
        packet
    }

    #[test]
    fn what_continues_a_flow_becomes_one() {
        for v4 in [true, false] {
            let tcp = Head { v4, ..HEAD };
            let all: Vec<_> = (0..5).map(|n| tcp.after(n * 100).packet(&[7; 100])).collect();
            assert_eq!(counts(&all), [5]);
            let udp = Head { v4, tcp: false, id: Some(1), ..HEAD };
            let next = |n, length| Head { id: Some(n), ..udp }.packet(&vec![7; length]);
            // Nothing goes behind a shorter one.
            let all = [next(1, 100), next(2, 100), next(3, 40), next(4, 100), next(5, 101)];
            assert_eq!(counts(&all), [3, 1, 1]);
        }
        assert_eq!(counts(&[HEAD.packet(&[7; 100]), HEAD.after(101).packet(&[7; 100])]), [1, 1]);
    }

    #[test]
    fn other_headers_are_kept_apart() {
        let first = || HEAD.packet(&[7; 100]);
        let next = HEAD.after(100);
        // With that byte changed, and with the checksum that covers it.
        let change = |at: usize, to: u8| {
            let mut packet = next.packet(&[7; 100]);
            let word = at & !1..(at & !1) + 2;
            let was = packet[word.clone()].to_vec();
            packet[at] = to;
            let field = if at < IPV4_HEADER { 10 } else { IPV4_HEADER + TCP_CHECKSUM_OFFSET };
            let checksum = checksum::updated(number(&packet, field), &was, &packet[word]);
            put16(&mut packet, field, checksum);
            packet
        };
        assert_eq!(counts(&[first(), change(19, 2)]), [2], "nothing changed");
        // Traffic class, TTL, acknowledgement, flags, window, urgent pointer.
        for (at, to) in [(1, 3), (8, 63), (28 + 3, 9), (33, ACK | ECE), (34, 7), (38, 1)] {
            assert_eq!(counts(&[first(), change(at, to)]), [1, 1], "{at}");
        }
        // A fragment.
        assert_eq!(counts(&[first(), change(6, 0x20)]), [1, 1]);
        // Wrong checksums, of the IPv4 header and of the segment, in what follows and in the first.
        for at in [11, 60] {
            let mut wrong = next.packet(&[7; 100]);
            wrong[at] ^= 1;
            assert_eq!(counts(&[first(), wrong.clone()]), [1, 1]);
            assert_eq!(counts(&[wrong, next.after(100).packet(&[7; 100])]), [1, 1]);
        }
        let uncounted = Head { id: Some(3), ..HEAD };
        assert_eq!(
            counts(&[uncounted.packet(&[7; 9]), uncounted.after(9).packet(&[7; 9])]),
            [1, 1]
        );
        let mut bare = Head { tcp: false, ..HEAD }.packet(&[7; 100]);
        put16(&mut bare, IPV4_HEADER + UDP_CHECKSUM_OFFSET, 0);
        assert_eq!(counts(&[bare.clone(), bare]), [1, 1]);
    }

    #[test]
    fn pushed_segments_end_and_other_flags_are_a_fence() {
        let n = |n: u32, push| Head { push, ..HEAD.after(n * 100) }.packet(&[7; 100]);
        assert_eq!(counts(&[n(0, false), n(1, true), n(2, false), n(3, false)]), [2, 2]);
        assert_eq!(counts(&[n(0, true), n(1, false)]), [1, 1]);
        let fin = Head { fin: true, port: 81, ..HEAD }.packet(&[]);
        assert_eq!(counts(&[n(0, false), fin, n(1, false), n(2, false)]), [1, 1, 2]);
    }

    #[test]
    fn flows_are_put_together_beside_each_other() {
        let flow = |port, n: u32| Head { port, ..HEAD.after(n * 100) }.packet(&[7; 100]);
        let all: Vec<_> = (0..3).flat_map(|n| [flow(1, n), flow(2, n)]).collect();
        assert_eq!(counts(&all), [3, 3]);
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut coalescer = Coalescer::new(false);
        for port in 0..MOST_WAITING as u16 {
            assert!(!coalescer.is_full());
            coalescer.add(&Head { port, tcp: false, ..HEAD }.packet(&[7; 100]));
        }
        assert!(coalescer.is_full());
        coalescer.take_all(|_, packets| assert_eq!(packets, 1));
        let mut sizes = Vec::new();
        for n in 0.. {
            if coalescer.is_full() {
                break;
            }
            coalescer.add(&HEAD.after(n * 1400).packet(&[7; 1400]));
        }
        coalescer.take_all(|frame, _| sizes.push(frame.len()));
        assert!(sizes.iter().all(|size| *size <= HEADER_LENGTH + LONGEST), "{sizes:?}");
        assert_eq!(sizes.len(), 4);
    }

    fn head() -> impl Strategy<Value = Head> {
        let id = prop::option::of(0..3_u16);
        let (push, fin) = (prop::bool::weighted(0.1), prop::bool::weighted(0.1));
        (any::<[bool; 2]>(), 0..2_u16, 0..40_u32, push, fin, id).prop_map(
            |([v4, tcp], port, at, push, fin, id)| Head {
                v4,
                tcp,
                port,
                push,
                fin,
                id,
                ..HEAD.after(at * 10)
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_put_together_is_cut_again_to_the_same(
            packets in prop::collection::vec((head(), 0..3_usize), 1..30),
            runs in prop::collection::vec(1..4_u32, 1..30),
        ) {
            let mut all = Vec::new();
            for ((head, tens), run) in packets.iter().zip(runs.iter().cycle()) {
                for n in 0..*run {
                    let id = head.id.map(|id| id + n as u16);
                    let head = Head { id, ..head.after(n * 10 * *tens as u32) };
                    all.push(head.packet(&vec![n as u8; tens * 10]));
                }
            }
            all.truncate(MOST_WAITING);
            let large = put_together(&all);
            let counted: u64 = large.iter().map(|(_, packets)| packets).sum();
            prop_assert_eq!(counted, all.len() as u64);
            let again: Vec<_> = large.iter().flat_map(|(frame, _)| cut(frame)).collect();
            // Each flow is what it was, in its order.
            let flow = |packet: &[u8]| match packet[0] >> 4 {
                4 => (packet[9], packet[12..24].to_vec()),
                _ => (packet[6], packet[8..44].to_vec()),
            };
            for one in &all {
                let of = |packets: &[Vec<u8>]| -> Vec<_> {
                    let same = packets.iter().filter(|other| flow(other) == flow(one));
                    same.map(|packet| meant(packet)).collect()
                };
                prop_assert_eq!(of(&all), of(&again));
            }
        }

        #[test]
        fn no_packets_make_it_panic(
            garbage in prop::collection::vec((any::<Vec<u8>>(), 0..4_u8), 1..30),
        ) {
            let mut coalescer = Coalescer::new(true);
            for (mut packet, kind) in garbage {
                let head = Head { v4: kind & 1 == 0, tcp: kind & 2 == 0, ..HEAD }.packet(&[7; 20]);
                let keep = packet.first().map_or(0, |n| usize::from(*n) % (head.len() + 1));
                packet.splice(0..0, head[..keep].iter().copied());
                coalescer.add(&packet);
            }
            coalescer.take_all(|frame, _| assert!(frame.len() >= HEADER_LENGTH));
        }
    }
}
