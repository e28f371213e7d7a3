//! Messages as bytes.
//!
//! Each begins with the version and the kind. The messages about a connection go on with the
//! family of its addresses, the two ports and the two addresses, the fixed host's first. Ranges are
//! counted in one byte; the first is a sequence number of four bytes and a length, each further one
//! the distance from the end of the range before and a length, distances and lengths as
//! [`varint`]s. So a message that names a single range over IPv4 has at most 24 bytes.
//! What follows a message is skipped, so that a later version can add to it.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;

use super::{Connection, Message, Ranges};
use crate::tcp::Seq;
use crate::unsplit::Request;
use crate::varint;

const VERSION: u8 = 1;

const SNACK: u8 = 1;
const CONGESTION: u8 = 2;
const BAD_STATE: u8 = 3;
const LINK_ACK: u8 = 4;
const REQUEST: u8 = 5;
const UNKNOWN_CID: u8 = 6;

const IPV4: u8 = 4;
const IPV6: u8 = 6;

/// The largest window that a connection can have (RFC 7323 section 2.3): no range is longer, and
/// no two are farther apart.
const MAX_SPAN: u32 = 1 << 30;

/// Why a message cannot be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum EmitError {
    /// The buffer is too short.
    #[error("{0} bytes are too few for the message: give it Message::MAX_LEN")]
    Room(usize),
    /// The ends of the connection have addresses of different families.
    #[error("the fixed and the mobile host have addresses of different families")]
    Families,
    /// A range is empty, longer than a window can be, or begins before the end of the one before
    /// it or farther than a window behind it.
    #[error("range {0} of the message is empty, too long or out of order")]
    Range(usize),
}

/// Why bytes are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ParseError {
    /// The message ends within this field.
    #[error("the message ends within its {0}")]
    Truncated(&'static str),
    /// A version that is not known here.
    #[error("message version {0}; version 1 is understood")]
    Version(u8),
    /// A kind of message that is not known here.
    #[error("message kind {0} is unknown")]
    Kind(u8),
    /// Neither IPv4 nor IPv6.
    #[error("address family {0}; 4 and 6 are understood")]
    Family(u8),
    /// More ranges than a message can name.
    #[error("{0} ranges in a message, at most 32 are understood")]
    Ranges(u8),
    /// A range is empty, longer than a window can be, or farther than one from the range before.
    #[error("range {0} of the message is empty or beyond any window")]
    Range(usize),
}

impl Message {
    /// The most bytes that a message takes: a full list of ranges over IPv6, with the longest
    /// distances and lengths.
    pub const MAX_LEN: usize = 2 + 37 + 1 + 4 + Ranges::MAX * 2 * varint::len(MAX_SPAN as u64 - 1);

    /// Writes the message at the start of `out`; how many bytes it took.
    ///
    /// # Errors
    ///
    /// There is no room, or the message says what cannot be: see [`EmitError`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let mut writer = Writer { all: out.len(), left: out };
        match self {
            Self::Snack { connection, missing: ranges } => {
                writer.put(&[VERSION, SNACK])?;
                writer.put_connection(connection)?;
                writer.put_ranges(ranges)?;
            }
            Self::Congestion { connection, lost: ranges } => {
                writer.put(&[VERSION, CONGESTION])?;
                writer.put_connection(connection)?;
                writer.put_ranges(ranges)?;
            }
            Self::BadState { connection } => {
                writer.put(&[VERSION, BAD_STATE])?;
                writer.put_connection(connection)?;
            }
            Self::LinkAck { latest, come } => {
                writer.put(&[VERSION, LINK_ACK])?;
                writer.put(&latest.to_be_bytes())?;
                writer.put(&come.to_be_bytes())?;
            }
            Self::Request { cid, reply, request } => {
                writer.put(&[VERSION, REQUEST])?;
                writer.put(&cid.to_be_bytes())?;
                writer.put(&[u8::from(*reply)])?;
                writer.put(&request.ack.0.to_be_bytes())?;
                writer.put(&request.nis.0.to_be_bytes())?;
            }
            Self::UnknownCid { cid } => {
                writer.put(&[VERSION, UNKNOWN_CID])?;
                writer.put(&cid.to_be_bytes())?;
            }
        }
        Ok(writer.all - writer.left.len())
    }

    /// Reads a message, the whole payload of a datagram.
    ///
    /// # Errors
    ///
    /// Says what is cut short, unknown or out of bounds.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader(bytes);
        let [version] = reader.take("version")?;
        if version != VERSION {
            return Err(ParseError::Version(version));
        }
        let [kind] = reader.take("kind")?;
        Ok(match kind {
            SNACK => {
                let connection = reader.take_connection()?;
                Self::Snack { connection, missing: reader.take_ranges()? }
            }
            CONGESTION => {
                let connection = reader.take_connection()?;
                Self::Congestion { connection, lost: reader.take_ranges()? }
            }
            BAD_STATE => Self::BadState { connection: reader.take_connection()? },
            LINK_ACK => {
                let latest = u32::from_be_bytes(reader.take("latest frame")?);
                Self::LinkAck { latest, come: u64::from_be_bytes(reader.take("bitmap")?) }
            }
            REQUEST => {
                let cid = u16::from_be_bytes(reader.take("CID")?);
                let [reply] = reader.take("cycle")?;
                let ack = Seq(u32::from_be_bytes(reader.take("next byte in sequence")?));
                let nis = Seq(u32::from_be_bytes(reader.take("NIS")?));
                Self::Request { cid, reply: reply & 1 == 1, request: Request { ack, nis } }
            }
            UNKNOWN_CID => Self::UnknownCid { cid: u16::from_be_bytes(reader.take("CID")?) },
            _ => return Err(ParseError::Kind(kind)),
        })
    }
}

/// The part of a buffer that is not written yet.
struct Writer<'a> {
    all: usize,
    left: &'a mut [u8],
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), EmitError> {
        let left = core::mem::take(&mut self.left);
        let (head, rest) =
            left.split_at_mut_checked(bytes.len()).ok_or(EmitError::Room(self.all))?;
        head.copy_from_slice(bytes);
        self.left = rest;
        Ok(())
    }

    fn put_varint(&mut self, n: u32) -> Result<(), EmitError> {
        let left = core::mem::take(&mut self.left);
        self.left = varint::put(left, n.into()).ok_or(EmitError::Room(self.all))?;
        Ok(())
    }

    fn put_connection(&mut self, connection: &Connection) -> Result<(), EmitError> {
        let Connection { fixed, mobile } = connection;
        let ports = |writer: &mut Self, family| {
            writer.put(&[family])?;
            writer.put(&fixed.port().to_be_bytes())?;
            writer.put(&mobile.port().to_be_bytes())
        };
        match (fixed.ip(), mobile.ip()) {
            (IpAddr::V4(fixed), IpAddr::V4(mobile)) => {
                ports(self, IPV4)?;
                self.put(&fixed.octets())?;
                self.put(&mobile.octets())
            }
            (IpAddr::V6(fixed), IpAddr::V6(mobile)) => {
                ports(self, IPV6)?;
                self.put(&fixed.octets())?;
                self.put(&mobile.octets())
            }
            _ => Err(EmitError::Families),
        }
    }

    fn put_ranges(&mut self, ranges: &Ranges) -> Result<(), EmitError> {
        let ranges = ranges.as_slice();
        // At most Ranges::MAX of them.
        self.put(&[ranges.len() as u8])?;
        let mut before = None;
        for (n, (start, end)) in ranges.iter().enumerate() {
            match before {
                None => self.put(&start.0.to_be_bytes())?,
                Some(before) => self.put_varint(span(before, *start, n)?)?,
            }
            match span(*start, *end, n)? {
                0 => return Err(EmitError::Range(n)),
                len => self.put_varint(len)?,
            }
            before = Some(*end);
        }
        Ok(())
    }
}

/// How far range `n`, or its beginning, reaches.
fn span(from: Seq, to: Seq, n: usize) -> Result<u32, EmitError> {
    let span = to.0.wrapping_sub(from.0);
    if span < MAX_SPAN { Ok(span) } else { Err(EmitError::Range(n)) }
}

/// The part of a message that is not read yet.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], ParseError> {
        let (head, rest) = self.0.split_first_chunk().ok_or(ParseError::Truncated(field))?;
        self.0 = rest;
        Ok(*head)
    }

    /// A distance or a length of range `n`.
    fn take_span(&mut self, field: &'static str, n: usize) -> Result<u32, ParseError> {
        let (span, rest) = varint::get(self.0).ok_or(ParseError::Truncated(field))?;
        self.0 = rest;
        match u32::try_from(span) {
            Ok(span) if span < MAX_SPAN => Ok(span),
            _ => Err(ParseError::Range(n)),
        }
    }

    fn take_connection(&mut self) -> Result<Connection, ParseError> {
        let [family] = self.take("address family")?;
        if !matches!(family, IPV4 | IPV6) {
            return Err(ParseError::Family(family));
        }
        let fixed = u16::from_be_bytes(self.take("fixed host's port")?);
        let mobile = u16::from_be_bytes(self.take("mobile host's port")?);
        let fixed = SocketAddr::new(self.take_ip(family, "fixed host's address")?, fixed);
        let mobile = SocketAddr::new(self.take_ip(family, "mobile host's address")?, mobile);
        Ok(Connection { fixed, mobile })
    }

    fn take_ip(&mut self, family: u8, field: &'static str) -> Result<IpAddr, ParseError> {
        Ok(match family {
            IPV4 => Ipv4Addr::from(self.take::<4>(field)?).into(),
            _ => Ipv6Addr::from(self.take::<16>(field)?).into(),
        })
    }

    fn take_ranges(&mut self) -> Result<Ranges, ParseError> {
        let [count] = self.take("number of ranges")?;
        let mut ranges = Ranges::default();
        let mut before = None;
        for n in 0..usize::from(count) {
            let start = match before {
                None => Seq(u32::from_be_bytes(self.take("first range")?)),
                Some(before) => before + self.take_span("distance between ranges", n)?,
            };
            let end = match self.take_span("range's length", n)? {
                0 => return Err(ParseError::Range(n)),
                len => start + len,
            };
            if !ranges.push(start, end) {
                return Err(ParseError::Ranges(count));
            }
            before = Some(end);
        }
        Ok(ranges)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn connection(v6: bool) -> Connection {
        let ip = |last: u8| -> IpAddr {
            match v6 {
                true => {
                    Ipv6Addr::from([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]).into()
                }
                false => Ipv4Addr::new(10, 0, 0, last).into(),
            }
        };
        Connection { fixed: SocketAddr::new(ip(1), 80), mobile: SocketAddr::new(ip(2), 40_000) }
    }

    fn ranges(of: &[(u32, u32)]) -> Ranges {
        let mut ranges = Ranges::default();
        assert!(of.iter().all(|(start, end)| ranges.push(Seq(*start), Seq(*end))));
        ranges
    }

    fn emitted(message: &Message) -> Vec<u8> {
        let mut out = [0; Message::MAX_LEN];
        let len = message.emit(&mut out).unwrap();
        out[..len].to_vec()
    }

    /// OBM-10: a few tens of bytes, for four lost packets of 1000 bytes and for four gaps.
    #[test]
    fn a_snack_takes_a_few_tens_of_bytes() {
        let run = Message::Snack { connection: connection(false), missing: ranges(&[(12, 4012)]) };
        assert_eq!(emitted(&run).len(), 22);
        let gaps = ranges(&[(0, 1000), (2000, 3000), (9000, 10_000), (12_000, 13_000)]);
        let four = Message::Snack { connection: connection(true), missing: gaps };
        assert!(emitted(&four).len() <= 64, "{}", emitted(&four).len());
    }

    #[test]
    fn the_longest_message_fits_its_bound() {
        let step = MAX_SPAN - 1;
        let mut full = Ranges::default();
        let mut at = Seq(7);
        while full.push(at, at + step) {
            at = at + step + step;
        }
        let lost = Message::Congestion { connection: connection(true), lost: full };
        assert_eq!(emitted(&lost).len(), Message::MAX_LEN - 4, "the first has no distance");
        assert_eq!(Message::parse(&emitted(&lost)), Ok(lost));
    }

    #[test]
    fn every_cut_names_the_field_that_it_cuts() {
        let missing = ranges(&[(u32::MAX - 9, 90), (100, 5000)]);
        let bytes = emitted(&Message::Snack { connection: connection(false), missing });
        for cut in 0..bytes.len() {
            let error = Message::parse(&bytes[..cut]).unwrap_err();
            assert!(matches!(error, ParseError::Truncated(_)), "{cut}: {error}");
        }
        assert_eq!(
            Message::parse(&bytes[..16]).unwrap_err().to_string(),
            "the message ends within its first range"
        );
        assert_eq!(
            Message::parse(&bytes[..bytes.len() - 1]),
            Err(ParseError::Truncated("range's length"))
        );
    }

    #[test]
    fn what_is_unknown_or_beyond_bounds_is_refused() {
        let missing = ranges(&[(5, 9)]);
        let bytes = emitted(&Message::Snack { connection: connection(false), missing });
        let with = |at: usize, value: u8| {
            let mut changed = bytes.clone();
            changed[at] = value;
            Message::parse(&changed)
        };
        assert_eq!(with(0, 2), Err(ParseError::Version(2)));
        assert_eq!(with(1, 9), Err(ParseError::Kind(9)));
        assert_eq!(with(2, 5), Err(ParseError::Family(5)));
        assert_eq!(with(20, 0), Err(ParseError::Range(0)));
        let mut many = bytes[..16].to_vec();
        many[15] = 33;
        many.extend_from_slice(&[0, 0, 0, 1]);
        many.extend([1; 65]);
        assert_eq!(Message::parse(&many), Err(ParseError::Ranges(33)));
    }

    #[test]
    fn what_cannot_be_said_is_not_written() {
        let mut out = [0; Message::MAX_LEN];
        let mixed = Connection { fixed: connection(true).fixed, ..connection(false) };
        assert_eq!(
            Message::BadState { connection: mixed }.emit(&mut out),
            Err(EmitError::Families)
        );
        for (bad, n) in [(&[(5, 5)][..], 0), (&[(9, 5)], 0), (&[(5, 9), (8, 12)], 1)] {
            let message = Message::Snack { connection: connection(false), missing: ranges(bad) };
            assert_eq!(message.emit(&mut out), Err(EmitError::Range(n)));
        }
        let message = Message::LinkAck { latest: 1, come: 2 };
        assert_eq!(message.emit(&mut out[..13]), Err(EmitError::Room(13)));
        assert_eq!(message.emit(&mut out), Ok(14));
    }

    /// ALT-6, ALT-7: what halves of a hop say without a packet to say it in is short.
    #[test]
    fn messages_of_an_unsplit_hop_are_short() {
        let request = Request { ack: Seq(u32::MAX), nis: Seq(1459) };
        let request = Message::Request { cid: 0x0102, reply: true, request };
        assert_eq!(emitted(&request), [1, 5, 1, 2, 1, 0xff, 0xff, 0xff, 0xff, 0, 0, 0x05, 0xb3]);
        assert_eq!(emitted(&Message::UnknownCid { cid: 0x0304 }), [1, 6, 3, 4]);
    }

    fn any_message() -> impl Strategy<Value = Message> {
        let span = 0..MAX_SPAN;
        let spans = prop::collection::vec((span.clone(), 1..MAX_SPAN), 0..=Ranges::MAX);
        (any::<bool>(), any::<(u16, u16)>(), any::<u32>(), spans, 0..6, any::<(u32, u64)>())
            .prop_map(|(v6, (fixed, mobile), first, spans, kind, (latest, come))| {
                let mut connection = connection(v6);
                connection.fixed.set_port(fixed);
                connection.mobile.set_port(mobile);
                let mut ranges = Ranges::default();
                let mut at = Seq(first);
                for (skip, len) in spans {
                    ranges.push(at + skip, at + skip + len);
                    at = at + skip + len;
                }
                match kind {
                    0 => Message::Snack { connection, missing: ranges },
                    1 => Message::Congestion { connection, lost: ranges },
                    2 => Message::BadState { connection },
                    3 => Message::LinkAck { latest, come },
                    4 => Message::Request {
                        cid: fixed,
                        reply: v6,
                        request: Request { ack: at, nis: Seq(latest) },
                    },
                    _ => Message::UnknownCid { cid: fixed },
                }
            })
    }

    proptest! {
        #[test]
        fn every_message_comes_back(message in any_message(), after: Vec<u8>) {
            let mut bytes = emitted(&message);
            bytes.extend(after);
            prop_assert_eq!(Message::parse(&bytes), Ok(message));
        }

        #[test]
        fn a_short_buffer_is_refused(message in any_message(), part in 0.0..1.0f64) {
            let len = (emitted(&message).len() as f64 * part) as usize;
            let mut short = [0; Message::MAX_LEN];
            prop_assert_eq!(message.emit(&mut short[..len]), Err(EmitError::Room(len)));
        }

        #[test]
        fn arbitrary_bytes_make_nothing_panic(
            mut bytes: Vec<u8>,
            kind in 0..8u8,
            family in 3..8u8,
        ) {
            let _ = Message::parse(&bytes);
            for (byte, value) in bytes.iter_mut().zip([VERSION, kind, family]) {
                *byte = value;
            }
            if let Ok(message) = Message::parse(&bytes) {
                prop_assert_eq!(Message::parse(&emitted(&message)), Ok(message));
            }
        }
    }
}
