//! Where things are in an Ethernet frame.

/// Bytes of the two addresses.
pub(super) const ADDRESSES: usize = 12;
/// Bytes of a header without VLAN tags.
pub(super) const HEADER: usize = 14;

pub(super) const IPV4: u16 = 0x0800;
pub(super) const IPV6: u16 = 0x86dd;

const TCP: u8 = 6;
/// More fragments, or not the first.
const FRAGMENT: u16 = 0x3fff;

/// Two bytes of a frame.
pub(super) fn number(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?))
}

/// The EtherType.
pub(super) fn ethertype(frame: &[u8]) -> Option<u16> {
    number(frame, ADDRESSES)
}

/// Whether an agent takes the frame: IPv4 with TCP that is no fragment, or IPv6 whose first next
/// header is TCP, and no VLAN tag.
///
/// It looks at nothing else, not even at the IP version, for it has to agree with the rules that
/// keep the same frames from the bridge: `ether type ip ip protocol tcp ip frag-off & 0x3fff == 0`
/// and `ether type ip6 ip6 nexthdr tcp`. A field beyond the end of a frame matches nothing, as
/// there. Frames of a packet socket have lost an outer VLAN tag, which the kernel tells beside.
pub(super) fn is_plain_tcp(frame: &[u8]) -> bool {
    match ethertype(frame) {
        Some(IPV4) => {
            frame.get(HEADER + 9) == Some(&TCP)
                && number(frame, HEADER + 6).is_some_and(|field| field & FRAGMENT == 0)
        }
        Some(IPV6) => frame.get(HEADER + 6) == Some(&TCP),
        _ => false,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The shortest frame of this kind, zeros but for what is `set`.
    pub(crate) fn frame(ethertype: u16, set: &[(usize, u8)]) -> Vec<u8> {
        let mut bytes = vec![0; 60];
        bytes[12..14].copy_from_slice(&ethertype.to_be_bytes());
        set.iter().for_each(|(at, value)| bytes[*at] = *value);
        bytes
    }

    #[test]
    fn plain_tcp_is_what_the_rules_say() {
        assert!(is_plain_tcp(&frame(IPV4, &[(23, 6)])), "whatever its version and length");
        assert!(is_plain_tcp(&frame(IPV4, &[(23, 6), (20, 0xc0)])), "do not fragment; reserved");
        assert!(!is_plain_tcp(&frame(IPV4, &[(23, 17)])));
        assert!(!is_plain_tcp(&frame(IPV4, &[(23, 6), (20, 0x20)])), "more fragments");
        assert!(!is_plain_tcp(&frame(IPV4, &[(23, 6), (21, 1)])), "a later fragment");
        assert!(is_plain_tcp(&frame(IPV6, &[(20, 6)])));
        for extension in [0, 43, 44, 51, 60] {
            assert!(!is_plain_tcp(&frame(IPV6, &[(20, extension)])));
        }
        for other in [0x0806, 0x8100, 0x88a8, 0x88b5, 0x88b6, 0x8864] {
            assert!(!is_plain_tcp(&frame(other, &[(20, 6), (23, 6)])));
        }
    }

    #[test]
    fn a_field_beyond_the_end_matches_nothing() {
        let four = frame(IPV4, &[(23, 6)]);
        assert!(is_plain_tcp(&four[..24]) && !is_plain_tcp(&four[..23]));
        let six = frame(IPV6, &[(20, 6)]);
        assert!(is_plain_tcp(&six[..21]) && !is_plain_tcp(&six[..20]));
        assert!(!is_plain_tcp(&[]) && !is_plain_tcp(&four[..13]));
    }
}
