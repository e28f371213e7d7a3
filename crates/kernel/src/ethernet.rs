//! Where in an Ethernet frame its IP packet is, and how long that is.

/// The Ethernet type of IPv4.
pub(crate) const ETHERTYPE_IPV4: u16 = 0x0800;
/// The Ethernet type of IPv6.
pub(crate) const ETHERTYPE_IPV6: u16 = 0x86dd;

/// Where the packet under the Ethernet header and its VLAN tags begins, and its type.
pub(crate) fn network_layer(frame: &[u8]) -> Option<(usize, u16)> {
    let mut at = 12;
    loop {
        let ethertype = u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]);
        at += 2;
        match ethertype {
            0x8100 | 0x88a8 if at < 20 => at += 2,
            _ => return Some((at, ethertype)),
        }
    }
}

/// Where the IP packet in an Ethernet frame begins.
pub fn ip_packet(frame: &[u8]) -> Option<usize> {
    let (at, ethertype) = network_layer(frame)?;
    matches!(ethertype, ETHERTYPE_IPV4 | ETHERTYPE_IPV6).then_some(at)
}

/// The length of the IP datagram in an Ethernet frame, without padding behind it; of any other
/// frame what follows the Ethernet header.
pub fn datagram_length(frame: &[u8]) -> usize {
    let Some((at, ethertype)) = network_layer(frame) else { return frame.len() };
    let rest = frame.len().saturating_sub(at);
    let number = |i: usize| {
        let bytes = frame.get(at + i..at + i + 2)?;
        Some(usize::from(u16::from_be_bytes([bytes[0], bytes[1]])))
    };
    let said = match ethertype {
        ETHERTYPE_IPV4 => number(2),
        ETHERTYPE_IPV6 => number(4).map(|n| n + 40),
        _ => None,
    };
    said.filter(|&n| n <= rest).unwrap_or(rest)
}

/// Where the first byte lies that is covered by the transport's checksum, for a frame of IP.
pub fn checksummed_part(frame: &[u8]) -> Option<usize> {
    let (at, ethertype) = network_layer(frame)?;
    let header = match ethertype {
        ETHERTYPE_IPV4 => usize::from(*frame.get(at)? & 0x0f) * 4,
        ETHERTYPE_IPV6 => 40,
        _ => return None,
    };
    Some(at + header).filter(|&start| start < frame.len())
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;
    use proptest::prelude::*;

    use super::*;

    fn tcp_without_payload() -> Vec<u8> {
        let packet = PacketBuilder::ethernet2([1; 6], [2; 6])
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .tcp(1000, 80, 7, 500);
        let mut out = Vec::new();
        packet.write(&mut out, &[]).expect("builds");
        out
    }

    fn udp_of_ipv6(payload: usize) -> Vec<u8> {
        let packet =
            PacketBuilder::ethernet2([1; 6], [2; 6]).ipv6([3; 16], [4; 16], 64).udp(1000, 53);
        let mut out = Vec::new();
        packet.write(&mut out, &vec![7; payload]).expect("builds");
        out
    }

    #[test]
    fn the_datagram_is_charged_without_ethernet_header_and_padding() {
        let mut short = tcp_without_payload();
        assert_eq!(datagram_length(&short), 40);
        short.resize(60, 0);
        assert_eq!(datagram_length(&short), 40);
        assert_eq!(datagram_length(&udp_of_ipv6(100)), 148);
        let arp = [&[0xff; 12][..], &[0x08, 0x06], &[0; 28]].concat();
        assert_eq!(datagram_length(&arp), 28);
        assert_eq!(datagram_length(&[0; 5]), 5);
        assert_eq!(checksummed_part(&short), Some(34));
        assert_eq!(checksummed_part(&arp), None);
    }

    proptest! {
        #[test]
        fn no_frame_makes_it_panic(
            mut frame in prop::collection::vec(any::<u8>(), 0..200),
            ethertype in prop::sample::select(vec![[0x08, 0], [0x86, 0xdd], [0x81, 0]]),
        ) {
            if let Some(field) = frame.get_mut(12..14) {
                field.copy_from_slice(&ethertype);
            }
            prop_assert!(datagram_length(&frame) <= frame.len());
            checksummed_part(&frame);
            ip_packet(&frame);
        }
    }
}
