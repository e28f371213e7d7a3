//! Marks of congestion on real IP packets (RFC 3168 section 5).

use lasthop_wire::checksum;

/// The field's value that says that some queue on the way was congested; both other values but zero
/// say that the transport takes part.
const CONGESTED: u8 = 0b11;

/// The packet's transport takes part and nobody has marked it yet. False for what is no IP packet.
pub(super) fn is_markable(packet: &[u8]) -> bool {
    let field = match packet {
        [first, tos, ..] if first >> 4 == 4 && packet.len() >= 20 => tos & CONGESTED,
        [first, class, ..] if first >> 4 == 6 && packet.len() >= 40 => class >> 4 & CONGESTED,
        _ => return false,
    };
    field == 0b01 || field == 0b10
}

/// Marks a packet that is markable.
pub(super) fn mark(packet: &mut [u8]) {
    if !is_markable(packet) {
        return;
    }
    if packet[0] >> 4 == 6 {
        packet[1] |= CONGESTED << 4;
        return;
    }
    let old = [packet[0], packet[1]];
    packet[1] |= CONGESTED;
    let sum = u16::from_be_bytes([packet[10], packet[11]]);
    let sum = checksum::updated(sum, &old, &packet[..2]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use etherparse::{Ipv4Header, Ipv6Header};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// CC-2: what takes part is marked and stays valid, nothing else changes.
        #[test]
        fn an_ipv4_packet_is_marked_and_its_checksum_still_holds(tos: u8, id: u16, ttl: u8) {
            let mut header = Ipv4Header::new(0, ttl, etherparse::IpNumber::TCP, [1; 4], [2; 4])
                .expect("a header");
            header.identification = id;
            let mut packet = header.to_bytes().to_vec();
            packet[1] = tos;
            let sum = Ipv4Header::from_slice(&packet).expect("reads").0.calc_header_checksum();
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            let before = packet.clone();
            mark(&mut packet);
            let (read, _) = Ipv4Header::from_slice(&packet).expect("reads");
            prop_assert_eq!(read.header_checksum, read.calc_header_checksum());
            let takes_part = matches!(tos & 3, 1 | 2);
            prop_assert_eq!(is_markable(&before), takes_part);
            prop_assert_eq!(packet[1], if takes_part { tos | 3 } else { tos });
            packet[1] = before[1];
            prop_assert_eq!((&packet[..10], &packet[12..]), (&before[..10], &before[12..]));
        }

        #[test]
        fn nothing_makes_it_panic(mut packet: Vec<u8>) {
            let before = packet.len();
            mark(&mut packet);
            prop_assert_eq!(packet.len(), before);
        }
    }

    /// CC-2: IPv6 has the same field in its traffic class.
    #[test]
    fn an_ipv6_packet_is_marked_in_its_traffic_class() {
        let mut header = Ipv6Header { traffic_class: 0b1010_1010, ..Ipv6Header::default() };
        header.hop_limit = 9;
        let mut packet = header.to_bytes().to_vec();
        mark(&mut packet);
        let read = Ipv6Header::from_slice(&packet).expect("reads").0;
        assert_eq!(read, Ipv6Header { traffic_class: 0b1010_1011, ..header });
        assert!(!is_markable(&packet));
    }
}
