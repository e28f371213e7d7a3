//! Segments as bytes (RFC 9293 section 3.1).

use alloc::vec::Vec;

use etherparse::TcpSlice;
use thiserror::Error;

use super::{Flags, Multipath, Options, SackBlocks, Segment, Seq, Timestamps, multipath};
use crate::ip::{Addresses, Protocol};

/// Bytes of a header without options.
pub(super) const FIXED: usize = 20;

/// Where the checksum is in a header.
const CHECKSUM: core::ops::Range<usize> = 16..18;

/// Tells explicit loss notification from other experiments (RFC 6994 section 3): "EL".
const ELN: u16 = 0x454c;
/// The same for the identifier of a connection on an unsplit hop: "LH".
const CID: u16 = 0x4c48;

/// The kinds of options (RFC 9293 section 3.2, RFC 2018, RFC 7323, RFC 4727).
pub(super) mod kind {
    pub(in crate::tcp) const END: u8 = 0;
    pub(in crate::tcp) const NO_OPERATION: u8 = 1;
    pub(in crate::tcp) const MSS: u8 = 2;
    pub(in crate::tcp) const WINDOW_SCALE: u8 = 3;
    pub(in crate::tcp) const SACK_PERMITTED: u8 = 4;
    pub(in crate::tcp) const SACK: u8 = 5;
    pub(in crate::tcp) const TIMESTAMPS: u8 = 8;
    pub(in crate::tcp) const EXPERIMENT: u8 = 253;
    pub(in crate::tcp) const EXPERIMENT_2: u8 = 254;
}

/// Why bytes are not the TCP segment they were taken for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ParseError {
    /// Fewer bytes than the header has.
    #[error("{found} bytes of a TCP header, at least {least} are needed")]
    Truncated {
        /// How many bytes there are.
        found: usize,
        /// How many are needed.
        least: usize,
    },
    /// The data offset points into the header.
    #[error("a TCP header of {0} words, at least 5 are needed")]
    HeaderLength(u8),
    /// An option's length is below two, not the one that its kind has, or beyond the header.
    #[error("TCP option {kind} at byte {at} of the header has a wrong length")]
    Option {
        /// The option's kind.
        kind: u8,
        /// Where it starts, counted from the start of the header.
        at: usize,
    },
    /// The segment was changed on the way, or belongs to other addresses.
    #[error("the TCP checksum is wrong")]
    Checksum,
}

/// A segment that cannot be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum EmitError {
    /// [`Segment::len`] is not the payload's length.
    #[error("a segment of {len} bytes was given {given} bytes of payload")]
    Payload {
        /// What the segment says.
        len: u32,
        /// What there is.
        given: usize,
    },
}

impl Segment {
    /// Appends header and payload, with the checksum for `between`. SACK blocks that do not
    /// [fit](Options::sack_that_fits) are left out. Options are padded in front, which puts
    /// timestamps alone where RFC 7323 appendix A wants them.
    ///
    /// # Errors
    ///
    /// The payload is not as long as the segment says; nothing is written.
    pub fn emit(
        &self,
        between: &Addresses,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), EmitError> {
        if u32::try_from(payload.len()) != Ok(self.len) {
            return Err(EmitError::Payload { len: self.len, given: payload.len() });
        }
        let start = out.len();
        out.resize(start + self.header_len() as usize, 0);
        out.extend_from_slice(payload);
        self.emit_in_place(between, &mut out[start..])
    }

    /// Writes the header, with the checksum for `between`, in front of a payload that is in its place
    /// already: `segment` is [`header_len`](Self::header_len) bytes of room, then the payload. The
    /// bytes are those of [`emit`](Self::emit), which copies the payload.
    ///
    /// # Errors
    ///
    /// There is not as much payload as the segment says; nothing is written.
    #[inline]
    pub fn emit_in_place(&self, between: &Addresses, segment: &mut [u8]) -> Result<(), EmitError> {
        self.emit_unsummed_in_place(segment)?;
        let checksum = between.checksum(Protocol::TCP, segment);
        segment[CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
        Ok(())
    }

    /// As [`emit_in_place`](Self::emit_in_place), with a checksum of zero for a network card to fill
    /// in.
    ///
    /// # Errors
    ///
    /// There is not as much payload as the segment says; nothing is written.
    #[inline]
    pub fn emit_unsummed_in_place(&self, segment: &mut [u8]) -> Result<(), EmitError> {
        let header = self.header_len() as usize;
        let given = segment.len().checked_sub(header);
        let wrong = EmitError::Payload { len: self.len, given: given.unwrap_or(0) };
        if given.and_then(|n| u32::try_from(n).ok()) != Some(self.len) {
            return Err(wrong);
        }
        let Some((fixed, rest)) = segment.split_first_chunk_mut::<FIXED>() else {
            return Err(wrong);
        };
        fixed[..2].copy_from_slice(&self.src_port.to_be_bytes());
        fixed[2..4].copy_from_slice(&self.dst_port.to_be_bytes());
        fixed[4..8].copy_from_slice(&self.seq.0.to_be_bytes());
        fixed[8..12].copy_from_slice(&self.ack.0.to_be_bytes());
        // From 5 to 15 words.
        fixed[12] = ((header / 4) as u8) << 4;
        fixed[13] = self.flags.bits();
        fixed[14..16].copy_from_slice(&self.window.to_be_bytes());
        // The checksum and the urgent pointer.
        fixed[16..].fill(0);
        if header > FIXED {
            rest[..header - FIXED].copy_from_slice(self.options.emit().as_slice());
        }
        Ok(())
    }

    /// Reads a segment, the whole payload of an IP packet, and checks its checksum.
    ///
    /// # Errors
    ///
    /// Names what is cut short, malformed or damaged.
    #[inline]
    pub fn parse<'a>(between: &Addresses, bytes: &'a [u8]) -> Result<(Self, &'a [u8]), ParseError> {
        let parsed = Self::parse_unverified(bytes)?;
        match between.checksum(Protocol::TCP, bytes) {
            0 => Ok(parsed),
            _ => Err(ParseError::Checksum),
        }
    }

    /// Reads a segment whose checksum somebody else has checked, or that has none yet because a
    /// network card is to fill it in.
    ///
    /// # Errors
    ///
    /// Names what is cut short or malformed.
    #[inline]
    pub fn parse_unverified(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        use etherparse::err::tcp::{HeaderError, HeaderSliceError};
        let view = TcpSlice::from_slice(bytes).map_err(|error| match error {
            HeaderSliceError::Len(e) => {
                ParseError::Truncated { found: e.len, least: e.required_len }
            }
            HeaderSliceError::Content(HeaderError::DataOffsetTooSmall { data_offset }) => {
                ParseError::HeaderLength(data_offset)
            }
        })?;
        let payload = view.payload();
        let segment = Self {
            src_port: view.source_port(),
            dst_port: view.destination_port(),
            seq: Seq(view.sequence_number()),
            ack: Seq(view.acknowledgment_number()),
            // The octet after the data offset; the view proved that it is there.
            flags: Flags::from_bits(bytes[13]),
            window: view.window_size(),
            options: Options::parse(view.options())?,
            len: u32::try_from(payload.len()).unwrap_or(u32::MAX),
        };
        Ok((segment, payload))
    }
}

/// The options of a header, as far as they are written.
pub(super) struct OptionBytes {
    bytes: [u8; Options::MAX_LEN as usize],
    len: usize,
}

impl OptionBytes {
    /// None.
    pub(super) const EMPTY: Self = Self { bytes: [0; Options::MAX_LEN as usize], len: 0 };

    /// The same bytes; what a header cannot hold is left out.
    pub(super) fn copy_of(bytes: &[u8]) -> Self {
        let mut out = Self::EMPTY;
        let _ = out.try_put(&bytes[..bytes.len().min(out.bytes.len())]);
        out
    }

    /// Adds an option; none, and nothing added, if there is no room.
    pub(super) fn try_put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.len + bytes.len();
        self.bytes.get_mut(self.len..end)?.copy_from_slice(bytes);
        self.len = end;
        Some(())
    }

    /// Adds `n` bytes that each say `filling`.
    pub(super) fn pad(&mut self, n: usize, filling: u8) -> Option<()> {
        self.bytes.get_mut(self.len..self.len + n)?.fill(filling);
        self.len += n;
        Some(())
    }

    fn put(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        self.bytes[self.len..end].copy_from_slice(bytes);
        self.len = end;
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Options {
    pub(super) fn emit(&self) -> OptionBytes {
        let sack = self.sack_that_fits();
        let sack_len = if sack.is_empty() { 0 } else { 2 + 8 * sack.len() };
        let total = self.len() as usize;
        let padding = total - (self.len_without_sack() as usize + sack_len);

        let mut out =
            OptionBytes { bytes: [kind::NO_OPERATION; Self::MAX_LEN as usize], len: padding };
        if let Some(mss) = self.mss {
            out.put(&[kind::MSS, 4]);
            out.put(&mss.to_be_bytes());
        }
        if let Some(shift) = self.window_scale {
            out.put(&[kind::WINDOW_SCALE, 3, shift]);
        }
        if self.sack_permitted {
            out.put(&[kind::SACK_PERMITTED, 2]);
        }
        if let Some(Timestamps { value, echo }) = self.timestamps {
            out.put(&[kind::TIMESTAMPS, 10]);
            out.put(&value.to_be_bytes());
            out.put(&echo.to_be_bytes());
        }
        if self.eln {
            out.put(&[kind::EXPERIMENT, 4]);
            out.put(&ELN.to_be_bytes());
        }
        if let Some(cid) = self.cid {
            out.put(&[kind::EXPERIMENT_2, 6]);
            out.put(&CID.to_be_bytes());
            out.put(&cid.to_be_bytes());
        }
        // The padding and what was put are what the others take.
        if let Some(multipath) = self.multipath_that_fits((out.len - padding) as u32) {
            out.put(&multipath.emit()[..multipath.len() as usize]);
        }
        if !sack.is_empty() {
            // At most 34.
            out.put(&[kind::SACK, sack_len as u8]);
        }
        for (start, end) in sack {
            out.put(&start.0.to_be_bytes());
            out.put(&end.0.to_be_bytes());
        }
        debug_assert_eq!(out.len, total);
        out
    }

    /// Of an option that comes twice the last counts.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut options = Self::default();
        let mut rest = bytes;
        while let Some(&kind) = rest.first() {
            rest = match kind {
                kind::END => break,
                kind::NO_OPERATION => &rest[1..],
                _ => {
                    let at = 20 + bytes.len() - rest.len();
                    options.take(rest).ok_or(ParseError::Option { kind, at })?
                }
            };
        }
        Ok(options)
    }

    /// Reads the option, of two bytes or more, at the start of `bytes` and returns what follows;
    /// `None` if its length is wrong.
    fn take<'a>(&mut self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let len = usize::from(*bytes.get(1)?);
        let (option, rest) = bytes.split_at_checked(len)?;
        let (&[kind, _], value) = option.split_first_chunk()?;
        match kind {
            kind::MSS => self.mss = Some(u16::from_be_bytes(value.try_into().ok()?)),
            kind::WINDOW_SCALE => {
                let &[shift] = value else { return None };
                self.window_scale = Some(shift);
            }
            kind::SACK_PERMITTED => {
                self.sack_permitted = true;
                return value.is_empty().then_some(rest);
            }
            kind::TIMESTAMPS => {
                let (value, echo) = pair(value)?;
                self.timestamps = Some(Timestamps { value, echo });
            }
            kind::SACK => self.sack = sack(value)?,
            // Experiments share the kind: one of another length or number is somebody else's.
            kind::EXPERIMENT => self.eln |= value == ELN.to_be_bytes(),
            kind::EXPERIMENT_2 => self.cid = cid(value).or(self.cid),
            multipath::KIND => self.multipath = Multipath::parse(value).or(self.multipath),
            _ => {}
        }
        Some(rest)
    }
}

fn cid(value: &[u8]) -> Option<u16> {
    let &[a, b, c, d] = value else { return None };
    (u16::from_be_bytes([a, b]) == CID).then(|| u16::from_be_bytes([c, d]))
}

fn sack(value: &[u8]) -> Option<SackBlocks> {
    let mut blocks = SackBlocks::default();
    for block in value.chunks(8) {
        let (start, end) = pair(block)?;
        blocks.push(Seq(start), Seq(end));
    }
    (!blocks.is_empty()).then_some(blocks)
}

/// Two numbers of 32 bits and nothing else.
fn pair(bytes: &[u8]) -> Option<(u32, u32)> {
    let &[a, b, c, d, e, f, g, h] = bytes else { return None };
    Some((u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use proptest::collection::vec as some;
    use proptest::prelude::*;

    const BETWEEN: Addresses =
        Addresses::V4 { src: Ipv4Addr::new(192, 0, 2, 1), dst: Ipv4Addr::new(198, 51, 100, 7) };

    fn emitted(segment: &Segment, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        segment.emit(&BETWEEN, payload, &mut out).unwrap();
        out
    }

    /// The segment with `options` put as they are after its header.
    fn with_raw_options(options: &[u8]) -> Vec<u8> {
        let mut out = emitted(&Segment::default(), &[]);
        out[12] = (5 + options.len() as u8 / 4) << 4;
        out.extend_from_slice(options);
        out
    }

    fn blocks(n: u32) -> SackBlocks {
        let mut sack = SackBlocks::default();
        for i in 0..n {
            sack.push(Seq(100 * i), Seq(100 * i + 50));
        }
        sack
    }

    #[test]
    fn a_syn_is_laid_out_as_the_standard_draws_it() {
        let syn = Segment {
            src_port: 0x1234,
            dst_port: 80,
            seq: Seq(0xdead_beef),
            flags: Flags::SYN,
            window: 0x4000,
            options: Options {
                mss: Some(1460),
                window_scale: Some(7),
                sack_permitted: true,
                ..Options::default()
            },
            ..Segment::default()
        };
        let bytes = emitted(&syn, &[]);
        assert_eq!(bytes.len(), syn.header_len() as usize);
        assert_eq!(
            bytes[..16],
            [0x12, 0x34, 0, 80, 0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 0, 0x80, 0x02, 0x40, 0]
        );
        assert_eq!(bytes[18..], [0, 0, 1, 1, 1, 2, 4, 0x05, 0xb4, 3, 3, 7, 4, 2]);
    }

    #[test]
    fn timestamps_alone_follow_two_no_operations() {
        let timestamps = Some(Timestamps { value: 1, echo: 2 });
        let options = Options { timestamps, ..Options::default() };
        let bytes = emitted(&Segment { options, ..Segment::default() }, &[]);
        assert_eq!(bytes[20..], [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    }

    #[test]
    fn blocks_that_do_not_fit_are_left_out() {
        let stamped = Some(Timestamps { value: 1, echo: 2 });
        for (timestamps, given, fit, len) in
            [(None, 4, 4, 36), (stamped, 3, 3, 36), (stamped, 4, 3, 36), (stamped, 0, 0, 12)]
        {
            let options = Options { timestamps, sack: blocks(given), ..Options::default() };
            assert_eq!(options.len(), len);
            let bytes = emitted(&Segment { options, ..Segment::default() }, &[]);
            let (read, _) = Segment::parse(&BETWEEN, &bytes).unwrap();
            assert_eq!(read.options.sack, blocks(fit));
        }
    }

    #[test]
    fn unknown_options_are_skipped_and_nothing_after_the_end_is_read() {
        let raw = [254, 5, 9, 9, 9, 1, 3, 3, 7, 0, 2, 99];
        let (segment, _) = Segment::parse_unverified(&with_raw_options(&raw)).unwrap();
        assert_eq!(segment.options, Options { window_scale: Some(7), ..Options::default() });
    }

    /// SNP-10: loss notification is an experiment with a number of its own; others of its kind are
    /// skipped as unknown options are.
    #[test]
    fn loss_notification_is_told_from_other_experiments() {
        let options = Options { eln: true, ..Options::default() };
        let bytes = emitted(&Segment { options, ..Segment::default() }, &[]);
        assert_eq!(bytes[20..], [253, 4, 0x45, 0x4c]);
        let read = |raw: &[u8]| Segment::parse_unverified(&with_raw_options(raw)).unwrap().0;
        assert_eq!(read(&[253, 4, 0x45, 0x4c]).options, options);
        for other in [[253, 4, 0x45, 0x4d], [253, 2, 1, 1], [254, 4, 0x45, 0x4c]] {
            assert_eq!(read(&other).options, Options::default());
        }
        assert!(!read(&[253, 8, 0x45, 0x4c, 0x45, 0x4c, 0, 0]).options.eln);
    }

    /// ALT-3: a CID is an experiment with a number of its own; others of its kind are skipped.
    #[test]
    fn a_cid_is_told_from_other_experiments() {
        let options = Options { cid: Some(0x1234), ..Options::default() };
        let bytes = emitted(&Segment { options, ..Segment::default() }, &[]);
        assert_eq!(bytes[20..], [1, 1, 254, 6, 0x4c, 0x48, 0x12, 0x34]);
        let read = |raw: &[u8]| Segment::parse_unverified(&with_raw_options(raw)).unwrap().0;
        assert_eq!(read(&[1, 1, 254, 6, 0x4c, 0x48, 0x12, 0x34]).options, options);
        for other in [[254, 6, 0x4c, 0x49, 1, 2, 1, 1], [254, 4, 0x4c, 0x48, 1, 1, 1, 1]] {
            assert_eq!(read(&other).options, Options::default());
        }
    }

    #[test]
    fn a_wrong_option_length_is_named_with_its_place() {
        for (raw, kind, at) in [
            ([1, 1, 99, 0], 99, 22),
            ([99, 1, 0, 0], 99, 20),
            ([1, 2, 4, 5], 2, 21),
            ([1, 3, 2, 0], 3, 21),
            ([4, 3, 0, 0], 4, 20),
            ([5, 2, 0, 0], 5, 20),
            ([5, 4, 0, 0], 5, 20),
            ([1, 1, 1, 8], 8, 23),
        ] {
            assert_eq!(
                Segment::parse_unverified(&with_raw_options(&raw)).unwrap_err(),
                ParseError::Option { kind, at }
            );
        }
    }

    #[test]
    fn damage_and_wrong_addresses_show_in_the_checksum() {
        let bytes = emitted(&Segment { len: 3, ..Segment::default() }, b"abc");
        let mut damaged = bytes.clone();
        damaged[22] ^= 4;
        assert_eq!(Segment::parse(&BETWEEN, &damaged), Err(ParseError::Checksum));
        let src = Ipv4Addr::new(192, 0, 2, 2);
        let elsewhere = Addresses::new(src.into(), BETWEEN.dst()).unwrap();
        assert_eq!(Segment::parse(&elsewhere, &bytes), Err(ParseError::Checksum));
        assert!(Segment::parse(&BETWEEN, &bytes).is_ok());
    }

    #[test]
    fn lengths_that_contradict_each_other_are_refused() {
        let mut out = vec![7];
        let segment = Segment { len: 2, ..Segment::default() };
        assert_eq!(
            segment.emit(&BETWEEN, b"abc", &mut out),
            Err(EmitError::Payload { len: 2, given: 3 })
        );
        assert_eq!(out, [7]);
        let mut bytes = emitted(&Segment::default(), &[]);
        assert_eq!(
            Segment::parse(&BETWEEN, &bytes[..19]),
            Err(ParseError::Truncated { found: 19, least: 20 })
        );
        bytes[12] = 0x40;
        assert_eq!(Segment::parse(&BETWEEN, &bytes), Err(ParseError::HeaderLength(4)));
    }

    fn addresses() -> impl Strategy<Value = Addresses> {
        prop_oneof![
            any::<(u32, u32)>().prop_map(|(s, d)| Addresses::V4 { src: s.into(), dst: d.into() }),
            any::<(u128, u128)>().prop_map(|(s, d)| Addresses::V6 {
                src: Ipv6Addr::from(s),
                dst: Ipv6Addr::from(d)
            }),
        ]
    }

    fn options() -> impl Strategy<Value = Options> {
        let sack = some(any::<(u32, u32)>(), 0..=4);
        let rest = any::<(Option<u16>, Option<u8>, bool, Option<(u32, u32)>, bool, Option<u16>)>();
        (rest, sack).prop_map(|((mss, window_scale, sack_permitted, stamps, eln, cid), ranges)| {
            let timestamps = stamps.map(|(value, echo)| Timestamps { value, echo });
            let mut sack = SackBlocks::default();
            for (start, end) in ranges {
                sack.push(Seq(start), Seq(end));
            }
            let multipath = None;
            Options { mss, window_scale, sack_permitted, timestamps, sack, eln, cid, multipath }
        })
    }

    fn segments() -> impl Strategy<Value = Segment> {
        (any::<(u16, u16, u32, u32, u8, u16)>(), options()).prop_map(|(f, options)| Segment {
            src_port: f.0,
            dst_port: f.1,
            seq: Seq(f.2),
            ack: Seq(f.3),
            flags: Flags::from_bits(f.4),
            window: f.5,
            options,
            len: 0,
        })
    }

    proptest! {
        #[test]
        fn every_segment_comes_back(
            between in addresses(),
            mut segment in segments(),
            payload in some(any::<u8>(), 0..300),
        ) {
            segment.len = payload.len() as u32;
            let mut bytes = Vec::new();
            segment.emit(&between, &payload, &mut bytes).unwrap();
            let mut in_place = vec![0xaa; segment.header_len() as usize];
            in_place.extend_from_slice(&payload);
            prop_assert_eq!(segment.emit_in_place(&between, &mut in_place), Ok(()));
            prop_assert_eq!(&in_place, &bytes);
            in_place.push(0);
            prop_assert!(segment.emit_in_place(&between, &mut in_place).is_err());
            prop_assert_eq!(bytes.len() as u32, segment.header_len() + segment.len);
            prop_assert!((20..=60).contains(&segment.header_len()));
            let fit = segment.options.sack_that_fits().len();
            segment.options.sack.truncate(fit);
            prop_assert_eq!(Segment::parse(&between, &bytes), Ok((segment, &payload[..])));
            prop_assert!(Segment::parse(&between.reversed(), &bytes).is_ok());
        }

        #[test]
        fn arbitrary_bytes_make_nothing_panic(between in addresses(), mut bytes: Vec<u8>) {
            let _ = Segment::parse(&between, &bytes);
            if let Some(offset) = bytes.get_mut(12) {
                *offset |= 0x50;
                let _ = Segment::parse_unverified(&bytes);
            }
        }

        #[test]
        fn arbitrary_options_make_nothing_panic(raw in some(any::<u32>(), 0..=10)) {
            let raw: Vec<u8> = raw.iter().flat_map(|word| word.to_be_bytes()).collect();
            if let Ok((segment, _)) = Segment::parse_unverified(&with_raw_options(&raw)) {
                prop_assert!(segment.options.len() <= Options::MAX_LEN);
            }
        }
    }
}
