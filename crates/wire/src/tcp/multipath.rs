//! Multipath TCP's option (RFC 8684 section 3), as far as a connection between two ends that trust each
//! other needs it: to open one, to add a subflow, and the data sequence signal. There are no HMACs, so that
//! tokens are given and not derived.

use super::Seq;

/// The option's kind (RFC 8684 section 7.1).
pub(super) const KIND: u8 = 30;

/// Subtypes (RFC 8684 section 7.2).
const CAPABLE: u8 = 0x0;
const JOIN: u8 = 0x1;
const DSS: u8 = 0x2;
/// The version of RFC 8684.
const VERSION: u8 = 1;
/// Flags of MP_CAPABLE: HMAC-SHA256, no checksums.
const CAPABLE_FLAGS: u8 = 0x01;
/// Flags of the data sequence signal (RFC 8684 section 3.3).
const DATA_FIN: u8 = 0x10;
const HAS_MAPPING: u8 = 0x04;
const HAS_ACK: u8 = 0x01;

/// What the option says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Multipath {
    /// On the first subflow's SYN and its answer: multipath is offered, with the sender's key. Its low 32 bits are
    /// the token by which subflows are added, and the data sequence number before the first byte.
    Capable(u64),
    /// On the SYN of another subflow: the token of the connection that it is to be added to.
    Join(u32),
    /// On all else: the data sequence signal.
    Signal(DataSignal),
}

/// The data sequence signal (RFC 8684 section 3.3), with numbers of 32 bits and no checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataSignal {
    /// The next byte expected of the connection. The window of the segment counts from here.
    pub ack: Seq,
    /// Where the payload belongs.
    pub mapping: Option<Mapping>,
    /// The connection's data ends where the mapping ends.
    pub fin: bool,
}

/// Where bytes of a subflow belong in the data of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// The data sequence number of the first byte.
    pub data: Seq,
    /// Its place in the subflow, counted from the SYN, modulo 2^32.
    pub subflow: u32,
    /// How many bytes; the end of the data counts for one.
    pub len: u16,
}

impl Multipath {
    /// Bytes of the option.
    pub(super) const fn len(&self) -> u32 {
        match self {
            Self::Capable(_) | Self::Join(_) => 12,
            Self::Signal(DataSignal { mapping: None, .. }) => 8,
            Self::Signal(_) => 18,
        }
    }

    /// The option's bytes, of which the first [`len`](Self::len) count.
    pub(super) fn emit(&self) -> [u8; 18] {
        let mut out = [0; 18];
        // At most 18.
        out[..2].copy_from_slice(&[KIND, self.len() as u8]);
        match self {
            Self::Capable(key) => {
                out[2..4].copy_from_slice(&[CAPABLE << 4 | VERSION, CAPABLE_FLAGS]);
                out[4..12].copy_from_slice(&key.to_be_bytes());
            }
            Self::Join(token) => {
                out[2] = JOIN << 4;
                out[4..8].copy_from_slice(&token.to_be_bytes());
            }
            Self::Signal(DataSignal { ack, mapping, fin }) => {
                let fin = if *fin { DATA_FIN } else { 0 };
                let mapped = if mapping.is_some() { HAS_MAPPING } else { 0 };
                out[2..4].copy_from_slice(&[DSS << 4, fin | mapped | HAS_ACK]);
                out[4..8].copy_from_slice(&ack.0.to_be_bytes());
                if let Some(Mapping { data, subflow, len }) = mapping {
                    out[8..12].copy_from_slice(&data.0.to_be_bytes());
                    out[12..16].copy_from_slice(&subflow.to_be_bytes());
                    out[16..18].copy_from_slice(&len.to_be_bytes());
                }
            }
        }
        out
    }

    /// Reads what follows kind and length. Other subtypes and forms than these are somebody else's.
    pub(super) fn parse(value: &[u8]) -> Option<Self> {
        let number = |at: usize| {
            let bytes = value.get(at..at + 4)?;
            Some(u32::from_be_bytes(bytes.try_into().ok()?))
        };
        match (value.first()? >> 4, value.len()) {
            (CAPABLE, 10) => {
                Some(Self::Capable(u64::from(number(2)?) << 32 | u64::from(number(6)?)))
            }
            (JOIN, 10) => Some(Self::Join(number(2)?)),
            (DSS, len @ (6 | 16)) => {
                let flags = *value.get(1)?;
                let has_mapping = len == 16;
                let known = HAS_ACK | if has_mapping { HAS_MAPPING } else { 0 };
                if flags & !DATA_FIN != known {
                    return None;
                }
                let mapping = || {
                    let (data, subflow) = (Seq(number(6)?), number(10)?);
                    let len = u16::from_be_bytes(value.get(14..16)?.try_into().ok()?);
                    Some(Mapping { data, subflow, len })
                };
                let mapping = if has_mapping { Some(mapping()?) } else { None };
                let fin = flags & DATA_FIN != 0;
                Some(Self::Signal(DataSignal { ack: Seq(number(2)?), mapping, fin }))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::tcp::{Options, Timestamps};

    fn there_and_back(options: &Options) -> Options {
        Options::parse(options.emit().as_slice()).unwrap()
    }

    #[test]
    fn a_signal_is_laid_out_as_the_standard_draws_it() {
        let mapping = Some(Mapping { data: Seq(0x0102_0304), subflow: 5, len: 6 });
        let signal = DataSignal { ack: Seq(0x0a0b_0c0d), mapping, fin: true };
        let bytes: Vec<u8> = Multipath::Signal(signal).emit().to_vec();
        assert_eq!(bytes, [30, 18, 0x20, 0x15, 10, 11, 12, 13, 1, 2, 3, 4, 0, 0, 0, 5, 0, 6]);
        // Other forms are not understood, and no fault: numbers of 64 bits, another subtype.
        for other in [&[0x20, 0x03, 0, 0, 0, 0, 0, 0, 0, 0][..], &[0x30, 0], &[0x20], &[]] {
            assert_eq!(Multipath::parse(other), None, "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn every_option_comes_back_if_it_fits(
            kind in 0..4u8,
            numbers in any::<(u64, u32, u32, u32, u16, bool)>(),
            stamps in any::<Option<(u32, u32)>>(),
            mss in any::<Option<u16>>(),
        ) {
            let (key, a, b, c, len, fin) = numbers;
            let mapping = (kind == 3).then_some(Mapping { data: Seq(b), subflow: c, len });
            let multipath = Some(match kind {
                0 => Multipath::Capable(key),
                1 => Multipath::Join(a),
                _ => Multipath::Signal(DataSignal { ack: Seq(a), mapping, fin }),
            });
            let timestamps = stamps.map(|(value, echo)| Timestamps { value, echo });
            let options = Options { mss, timestamps, multipath, ..Options::default() };
            prop_assert_eq!(there_and_back(&options), options);
            // Among all others there is no room for the longest.
            let full = Options {
                mss: Some(1),
                window_scale: Some(2),
                sack_permitted: true,
                timestamps: Some(Timestamps { value: 1, echo: 2 }),
                eln: true,
                cid: Some(3),
                ..options
            };
            prop_assert!(full.len() <= Options::MAX_LEN);
            let left = there_and_back(&full).multipath;
            prop_assert_eq!(left, full.multipath.filter(|_| kind == 2));
        }
    }
}
