//! Attributes, which most of a netlink message is made of: a length, a kind and a value each,
//! padded to four bytes (netlink(7)). Numbers are in this host's order unless a kind says otherwise.

use std::net::IpAddr;

/// Bits beside a kind: that the value is attributes again (`NLA_F_NESTED`), and its order
/// (`NLA_F_NET_BYTEORDER`).
pub(super) const NESTED: u16 = 0x8000;
const KIND: u16 = 0x3fff;
/// The length and the kind.
const HEADER: usize = 4;

/// Adds an attribute. What is in our messages is far shorter than a length can say.
pub(super) fn put(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = (value.len() + HEADER) as u16;
    out.extend_from_slice(&length.to_ne_bytes());
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Attributes, one behind the other.
pub(super) fn attributes(all: &[(u16, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    all.iter().for_each(|(kind, value)| put(&mut out, *kind, value));
    out
}

/// A text as a value: a zero ends it.
pub(super) fn text(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

/// An address as a value.
pub(super) fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// Attributes as they were received. What is left is not read where one claims to be longer than
/// the message, or too short for itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attributes<'a>(pub(super) &'a [u8]);

impl<'a> Attributes<'a> {
    /// The first one of this kind.
    pub(super) fn find(mut self, kind: u16) -> Option<Value<'a>> {
        self.find_map(|(found, value)| (found == kind).then_some(value))
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let [a, b, c, d] = *self.0.first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let value = self.0.get(HEADER..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([c, d]) & KIND, Value(value)))
    }
}

/// What an attribute says. A value of another length than its reader expects says nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value<'a>(pub(super) &'a [u8]);

impl<'a> Value<'a> {
    fn array<const N: usize>(self) -> Option<[u8; N]> {
        self.0.try_into().ok()
    }

    pub(super) fn u8(self) -> Option<u8> {
        self.array().map(u8::from_ne_bytes)
    }

    pub(super) fn i8(self) -> Option<i8> {
        self.array().map(i8::from_ne_bytes)
    }

    pub(super) fn u16(self) -> Option<u16> {
        self.array().map(u16::from_ne_bytes)
    }

    pub(super) fn u32(self) -> Option<u32> {
        self.array().map(u32::from_ne_bytes)
    }

    pub(super) fn i32(self) -> Option<i32> {
        self.array().map(i32::from_ne_bytes)
    }

    pub(super) fn mac(self) -> Option<[u8; 6]> {
        self.array()
    }

    pub(super) fn ip(self) -> Option<IpAddr> {
        self.array::<4>().map(IpAddr::from).or_else(|| self.array::<16>().map(IpAddr::from))
    }

    pub(super) fn text(self) -> Option<&'a str> {
        std::str::from_utf8(self.0).ok().map(|text| text.trim_end_matches('\0'))
    }

    pub(super) fn attributes(self) -> Attributes<'a> {
        Attributes(self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let bytes = attributes(&[
            (1, &[7]),
            (2 | NESTED, &attributes(&[(3, &text("eth0")), (4, &7_u32.to_ne_bytes())])),
            (5, &octets([10, 0, 0, 1].into())),
            (6, &octets([0xfd00, 0, 0, 0, 0, 0, 0, 1].into())),
        ]);
        let all = Attributes(&bytes);
        assert_eq!(all.map(|(kind, _)| kind).collect::<Vec<_>>(), [1, 2, 5, 6]);
        assert_eq!(all.find(1).unwrap().u8(), Some(7));
        let inner = all.find(2).unwrap().attributes();
        assert_eq!(inner.find(3).unwrap().text(), Some("eth0"));
        assert_eq!(inner.find(4).unwrap().u32(), Some(7));
        assert_eq!(all.find(5).unwrap().ip(), Some([10, 0, 0, 1].into()));
        assert_eq!(all.find(6).unwrap().ip(), Some([0xfd00, 0, 0, 0, 0, 0, 0, 1].into()));
        assert_eq!(all.find(1).unwrap().u32(), None, "of another length");
        assert!(all.find(3).is_none());
    }

    #[test]
    fn what_is_cut_off_is_not_read() {
        let bytes = attributes(&[(1, &[1; 4]), (2, &[2; 5])]);
        for length in 0..bytes.len() {
            let whole = usize::from(length >= 8) + usize::from(length >= 17);
            assert_eq!(Attributes(&bytes[..length]).count(), whole, "{length}");
        }
        // Too short for its own header: it would be read for ever.
        assert_eq!(Attributes(&[0; 16]).count(), 0);
        assert_eq!(Attributes(&[3, 0, 0, 0, 0, 0, 0, 0]).count(), 0);
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes: Vec<u8>) {
            for (_, value) in Attributes(&bytes) {
                let _ = (value.ip(), value.text(), value.mac(), value.attributes().count());
            }
        }
    }
}
