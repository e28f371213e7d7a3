use alloc::vec::Vec;
use core::net::SocketAddr;

use lasthop_wire::mhp::{NameError, Target};
use thiserror::Error;

use super::{Address, put_address, read_address};

/// RSV, two bytes, and FRAG.
const BEFORE_ADDRESS: usize = 3;

/// A datagram between an application and the relay: what is behind the UDP request header of RFC 1928
/// section 7, and whom the header names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Datagram<'a> {
    /// The remote host: where the datagram is to go, or where it came from.
    pub remote: Target,
    /// The user data; may be empty.
    pub payload: &'a [u8],
}

/// Why a datagram of an application is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DatagramError {
    /// It ends within its header.
    #[error("the datagram ends inside its SOCKS header")]
    Truncated,
    /// FRAG is not zero. Fragments are not put together, which RFC 1928 section 7 leaves optional;
    /// who does not must drop them.
    #[error("the datagram is fragment {0} of a larger one; SOCKS fragments are not supported")]
    Fragment(u8),
    /// ATYP is none of RFC 1928's.
    #[error("the datagram's address is of type {0}, which SOCKS does not have")]
    AddressType(u8),
    /// The address is a name that cannot be one.
    #[error("the datagram's target: {0}")]
    Name(#[from] NameError),
}

impl<'a> Datagram<'a> {
    /// Reads what an application sent to the relay. RSV is not looked at. Only a name is copied.
    ///
    /// # Errors
    ///
    /// The datagram is to be dropped, without notice to the application (RFC 1928 section 7).
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DatagramError> {
        let (&[_, _, frag], rest) =
            bytes.split_first_chunk::<BEFORE_ADDRESS>().ok_or(DatagramError::Truncated)?;
        if frag != 0 {
            return Err(DatagramError::Fragment(frag));
        }
        match (read_address(rest), rest) {
            (Address::Complete(remote, len), _) => {
                Ok(Self { remote: remote?, payload: rest.get(len..).unwrap_or_default() })
            }
            (Address::UnknownType, [kind, ..]) => Err(DatagramError::AddressType(*kind)),
            _ => Err(DatagramError::Truncated),
        }
    }

    /// Appends header and user data to `out`: at most 262 bytes more than the user data has, 22 where
    /// the remote host is an address. A mapped IPv4 address (RFC 4291 section 2.5.5.2), as a socket of
    /// both families has it, is written as the IPv4 address that it is.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[0; BEFORE_ADDRESS]);
        match self.remote {
            Target::Addr(addr) => {
                let addr = SocketAddr::new(addr.ip().to_canonical(), addr.port());
                put_address(out, &addr.into());
            }
            Target::Name(..) => put_address(out, &self.remote),
        }
        out.extend_from_slice(self.payload);
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use core::net::IpAddr;

    use proptest::prelude::*;

    use super::*;

    fn encoded(host: &str, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let remote = Target::from_host(host, 258).expect("host");
        Datagram { remote, payload }.encode(&mut out);
        out
    }

    /// RFC 1928 section 7: RSV, FRAG, ATYP, address, port, data.
    #[test]
    fn every_kind_of_address_has_its_header() {
        assert_eq!(encoded("192.0.2.7", b"hi"), b"\0\0\0\x01\xc0\0\x02\x07\x01\x02hi");
        assert_eq!(encoded("a.example", b""), b"\0\0\0\x03\x09a.example\x01\x02");
        let v6 = [&b"\0\0\0\x04"[..], &[0; 15], &[1, 1, 2, 9]].concat();
        assert_eq!(encoded("::1", &[9]), v6);
    }

    /// RFC 1928 section 7: the header of what comes back names the remote host as it is.
    #[test]
    fn a_mapped_source_is_its_ipv4_address() {
        assert_eq!(encoded("::ffff:192.0.2.7", b"x"), encoded("192.0.2.7", b"x"));
    }

    /// RFC 1928 section 7: who does not put fragments together must drop them.
    #[test]
    fn fragments_are_dropped() {
        for frag in [1, 0x7f, 0x80, 0xff] {
            let bytes = [0, 0, frag, 1, 192, 0, 2, 7, 1, 2, 9];
            assert_eq!(Datagram::decode(&bytes), Err(DatagramError::Fragment(frag)));
        }
    }

    #[test]
    fn what_is_no_header_is_refused_by_name() {
        assert_eq!(Datagram::decode(&[0, 0, 0, 2, 0, 0, 0]), Err(DatagramError::AddressType(2)));
        assert_eq!(
            Datagram::decode(&[0, 0, 0, 3, 0, 0, 80]),
            Err(DatagramError::Name(NameError::Empty))
        );
        let whole = encoded("a.example", b"");
        for cut in 0..whole.len() {
            assert_eq!(Datagram::decode(&whole[..cut]), Err(DatagramError::Truncated));
        }
    }

    /// A remote host as another side may name it.
    fn remote() -> impl Strategy<Value = Target> {
        prop_oneof![
            any::<IpAddr>().prop_map(|ip| ip.to_canonical().to_string()),
            "[a-z]([a-z0-9-]{0,62}[.]){0,3}[a-z]{1,60}",
        ]
        .prop_flat_map(|host| {
            any::<u16>().prop_map(move |port| Target::from_host(&host, port).expect("host"))
        })
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            remote in remote(),
            payload in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let datagram = Datagram { remote, payload: &payload };
            let mut bytes = Vec::new();
            datagram.encode(&mut bytes);
            prop_assert!(bytes.len() <= payload.len() + 262);
            prop_assert_eq!(Datagram::decode(&bytes), Ok(datagram));
        }

        #[test]
        fn garbage_is_refused_or_borrowed_from(
            frag in prop_oneof![Just(0u8), any::<u8>()],
            kind in prop_oneof![1u8..5, any::<u8>()],
            rest in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let bytes = [&[1, 2, frag, kind], &rest[..]].concat();
            if let Ok(datagram) = Datagram::decode(&bytes) {
                prop_assert!(frag == 0 && bytes.ends_with(datagram.payload));
                prop_assert!(datagram.payload.len() + 10 <= bytes.len() || kind == 3);
            }
        }
    }
}
