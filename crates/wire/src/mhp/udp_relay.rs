//! Records that carry the datagrams of applications' UDP sockets between mobile and base, each as one
//! packet of the hop's datagram lane, beside IP packets.
//!
//! The first byte is the type. Its upper half is never 4 or 6, by which an IP packet is known.
//!
//! | type | what | behind it |
//! | --- | --- | --- |
//! | 1 | a datagram | socket, address, payload |
//! | 2 | the mobile closes the socket | socket |
//! | 3 | a datagram was not delivered | socket, address, code and detail of a [`Refusal`] |
//!
//! A socket is a [`varint`] and an address is written as in [`Open`](super::Message::Open). Behind the
//! known fields of types 2 and 3 a newer peer may add others, which are skipped. Records are lost as
//! datagrams are, and nothing depends on one that is: a socket whose close is lost ends by idleness.

use alloc::vec::Vec;
use core::fmt;

use thiserror::Error;

use super::field::{Field, Reader, put};
use super::{MhpError, Refusal, Target};
use crate::varint;

/// The longest record, in bytes: what the datagram lane carries in one packet.
pub const MAX_LEN: usize = 65_535;

/// The refusal of a datagram that is too long for the way to its target: EMSGSIZE.
pub const TOO_LARGE: Refusal = Refusal::Other(90);

const TYPE_DATAGRAM: u8 = 1;
const TYPE_CLOSE: u8 = 2;
const TYPE_UNDELIVERED: u8 = 3;

/// A mobile's name for a socket that the base keeps for one of its applications: the application's UDP
/// association. At most [`varint::MAX`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SocketNumber(pub u64);

impl fmt::Display for SocketNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What mobile and base tell each other of a UDP socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UdpRecord<'a> {
    /// A datagram, either way.
    Datagram {
        /// The socket that it leaves from, or came to.
        socket: SocketNumber,
        /// The remote host: where to, or where from. On the way to the mobile it is an address.
        remote: Target,
        /// The user data; may be empty.
        payload: &'a [u8],
    },
    /// Mobile to base: the socket is wanted no longer.
    Close {
        /// Which.
        socket: SocketNumber,
    },
    /// Base to mobile: a datagram to that target was not delivered, as far as the base knows.
    Undelivered {
        /// The socket that it was to leave from.
        socket: SocketNumber,
        /// Where to.
        remote: Target,
        /// Why: [`NotAllowed`](Refusal::NotAllowed) by the base's configuration,
        /// [`NameNotFound`](Refusal::NameNotFound), [`TOO_LARGE`], [`Refused`](Refusal::Refused) for a
        /// port that is unreachable (RFC 1122 section 4.1.3.3), or another error of the socket.
        refusal: Refusal,
    },
}

/// A record with its payload is longer than [`MAX_LEN`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("a UDP record of {0} bytes does not fit into a packet of {MAX_LEN}")]
pub struct TooLong(
    /// The record's length, in bytes.
    pub usize,
);

impl<'a> UdpRecord<'a> {
    /// The socket that this is about.
    pub const fn socket(&self) -> SocketNumber {
        match *self {
            Self::Datagram { socket, .. }
            | Self::Close { socket }
            | Self::Undelivered { socket, .. } => socket,
        }
    }

    /// Appends the record to `out`.
    ///
    /// # Errors
    ///
    /// It would be longer than [`MAX_LEN`]; `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), TooLong> {
        let start = out.len();
        out.push(match self {
            Self::Datagram { .. } => TYPE_DATAGRAM,
            Self::Close { .. } => TYPE_CLOSE,
            Self::Undelivered { .. } => TYPE_UNDELIVERED,
        });
        varint::push(out, self.socket().0);
        let payload: &[u8] = match self {
            Self::Datagram { remote, payload, .. } => {
                put!(out, remote);
                payload
            }
            Self::Close { .. } => &[],
            Self::Undelivered { remote, refusal, .. } => {
                put!(out, remote, refusal);
                &[]
            }
        };
        let len = out.len() - start + payload.len();
        if len > MAX_LEN {
            out.truncate(start);
            return Err(TooLong(len));
        }
        out.extend_from_slice(payload);
        Ok(())
    }

    /// Reads a record, which is all of `bytes`. The payload is borrowed; only a name is copied.
    ///
    /// # Errors
    ///
    /// Says what is wrong with it, an unknown type above all: the record is to be dropped.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, MhpError> {
        let mut body = Reader(bytes);
        let kind = body.get("type")?;
        if !matches!(kind, TYPE_DATAGRAM | TYPE_CLOSE | TYPE_UNDELIVERED) {
            return Err(MhpError::Type(kind));
        }
        let socket = SocketNumber(body.take_varint("socket")?);
        Ok(match kind {
            TYPE_CLOSE => Self::Close { socket },
            TYPE_DATAGRAM => Self::Datagram {
                socket,
                remote: body.get("address")?,
                payload: body.get("payload")?,
            },
            _ => Self::Undelivered {
                socket,
                remote: body.get("address")?,
                refusal: body.get("refusal")?,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;
    use crate::mhp::tests::target;

    fn encoded(record: &UdpRecord<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        record.encode(&mut out).expect("short");
        out
    }

    #[test]
    fn records_are_on_the_wire_as_they_are_described() {
        let (socket, far) = (SocketNumber(5), SocketNumber(300));
        let remote = Target::from_host("192.0.2.7", 53).expect("host");
        let datagram = UdpRecord::Datagram { socket, remote: remote.clone(), payload: b"hi" };
        assert_eq!(encoded(&datagram), b"\x01\x05\x01\0\x35\xc0\0\x02\x07hi");
        assert_eq!(encoded(&UdpRecord::Close { socket: far }), b"\x02\x41\x2c");
        let undelivered = UdpRecord::Undelivered { socket, remote, refusal: TOO_LARGE };
        assert_eq!(encoded(&undelivered), b"\x03\x05\x01\0\x35\xc0\0\x02\x07\xff\0\x5a");
    }

    #[test]
    fn a_record_is_no_longer_than_a_packet_of_the_lane() {
        let remote = Target::from_host("192.0.2.7", 53).expect("host");
        let payload = vec![7; MAX_LEN - 9];
        let record = |payload| UdpRecord::Datagram {
            socket: SocketNumber(63),
            remote: remote.clone(),
            payload,
        };
        let mut out = vec![1, 2, 3];
        assert_eq!(record(&payload).encode(&mut out), Ok(()));
        assert_eq!(out.len(), 3 + MAX_LEN);
        let payload = vec![7; MAX_LEN - 8];
        let mut out = vec![1, 2, 3];
        assert_eq!(record(&payload).encode(&mut out), Err(TooLong(MAX_LEN + 1)));
        assert_eq!(out, [1, 2, 3]);
    }

    #[test]
    fn what_is_no_record_is_refused_by_name() {
        assert_eq!(UdpRecord::decode(&[]), Err(MhpError::Truncated("type")));
        assert_eq!(UdpRecord::decode(&[0x45, 0, 0, 20]), Err(MhpError::Type(0x45)));
        assert_eq!(UdpRecord::decode(&[2, 0x40]), Err(MhpError::Truncated("socket")));
        assert_eq!(UdpRecord::decode(&[1, 5, 4, 0, 53]), Err(MhpError::Address(4)));
        assert_eq!(
            UdpRecord::decode(&[1, 5, 1, 0, 53, 9]),
            Err(MhpError::Truncated("IPv4 address"))
        );
    }

    fn record(payload: &[u8]) -> impl Strategy<Value = UdpRecord<'_>> {
        let socket = || (0..=varint::MAX).prop_map(SocketNumber);
        prop_oneof![
            (socket(), target()).prop_map(move |(socket, remote)| {
                UdpRecord::Datagram { socket, remote, payload }
            }),
            socket().prop_map(|socket| UdpRecord::Close { socket }),
            (socket(), target(), any::<u8>(), any::<u16>()).prop_map(
                |(socket, remote, code, detail)| UdpRecord::Undelivered {
                    socket,
                    remote,
                    refusal: Refusal::from_code(code, detail),
                }
            ),
        ]
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(record in record(b"some payload")) {
            let bytes = encoded(&record);
            prop_assert!(!matches!(bytes[0] >> 4, 4 | 6));
            prop_assert_eq!(UdpRecord::decode(&bytes), Ok(record));
        }

        #[test]
        fn what_a_newer_peer_adds_is_skipped(
            record in record(b""),
            behind in prop::collection::vec(any::<u8>(), 1..20),
        ) {
            let mut bytes = encoded(&record);
            bytes.extend(&behind);
            match UdpRecord::decode(&bytes) {
                Ok(UdpRecord::Datagram { payload, .. }) => prop_assert_eq!(payload, &behind),
                other => prop_assert_eq!(other, Ok(record)),
            }
        }

        #[test]
        fn garbage_never_panics_and_what_is_read_comes_back(
            kind in prop_oneof![1u8..4, any::<u8>()],
            rest in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let bytes = [&[kind], &rest[..]].concat();
            if let Ok(record) = UdpRecord::decode(&bytes) {
                let again = encoded(&record);
                prop_assert_eq!(UdpRecord::decode(&again), Ok(record));
            }
        }
    }
}
