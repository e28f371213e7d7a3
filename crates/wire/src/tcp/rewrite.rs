//! Changing a header that somebody else wrote: what is not understood stays as and where it was.

use super::bytes::{FIXED, OptionBytes, kind};
use super::{Options, ParseError, Segment};

/// Bytes of the longest header.
const LONGEST: usize = FIXED + Options::MAX_LEN as usize;

/// A header with its options.
#[derive(Clone, Copy, Debug)]
pub struct HeaderBytes {
    bytes: [u8; LONGEST],
    len: usize,
}

impl HeaderBytes {
    /// The bytes, a multiple of four from 20 to 60.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Segment {
    /// The header at the start of `was`, with sequence numbers, control bits, window and options of
    /// this segment. Ports, reserved bits, checksum, urgent pointer and unknown options are those
    /// of `was`; the checksum is for the caller to [update](crate::checksum::updated).
    ///
    /// An option that both have keeps its place, and one that does not change its bytes. One that
    /// goes takes the padding in front of it along; one that comes is put behind the others. If all
    /// is more than a header holds, first the padding gives way, then what would come, experiments
    /// first.
    ///
    /// # Errors
    ///
    /// `was` is cut short or malformed.
    pub fn rewritten(&self, was: &[u8]) -> Result<HeaderBytes, ParseError> {
        let (before, payload) = Self::parse_unverified(was)?;
        let header = &was[..was.len() - payload.len()];
        let mut out = HeaderBytes { bytes: [0; LONGEST], len: header.len() };
        out.bytes[..header.len()].copy_from_slice(header);
        if self.options != before.options {
            let options = self.options.rewritten(&header[FIXED..], &before.options);
            let options = options.as_slice();
            out.len = FIXED + options.len();
            out.bytes[FIXED..out.len].copy_from_slice(options);
            // From 5 to 15 words; the lower bits are reserved.
            out.bytes[12] = ((out.len / 4) as u8) << 4 | header[12] & 0x0f;
        }
        out.bytes[4..8].copy_from_slice(&self.seq.0.to_be_bytes());
        out.bytes[8..12].copy_from_slice(&self.ack.0.to_be_bytes());
        out.bytes[13] = self.flags.bits();
        out.bytes[14..16].copy_from_slice(&self.window.to_be_bytes());
        Ok(out)
    }
}

/// The kinds of options that [`Options`] has a field for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OptionKind {
    Mss,
    WindowScale,
    SackPermitted,
    Timestamps,
    Eln,
    Cid,
    Sack,
}

/// In the order in which they are added.
const ALL: [OptionKind; 7] = [
    OptionKind::Mss,
    OptionKind::WindowScale,
    OptionKind::SackPermitted,
    OptionKind::Timestamps,
    OptionKind::Eln,
    OptionKind::Cid,
    OptionKind::Sack,
];

impl OptionKind {
    /// What an option is, if it is known.
    fn of(option: &[u8]) -> Option<Self> {
        Some(match *option.first()? {
            kind::MSS => Self::Mss,
            kind::WINDOW_SCALE => Self::WindowScale,
            kind::SACK_PERMITTED => Self::SackPermitted,
            kind::TIMESTAMPS => Self::Timestamps,
            kind::SACK => Self::Sack,
            kind::EXPERIMENT | kind::EXPERIMENT_2 => {
                let read = Options::parse(option).ok()?;
                match (read.eln, read.cid) {
                    (true, _) => Self::Eln,
                    (_, Some(_)) => Self::Cid,
                    _ => return None,
                }
            }
            _ => return None,
        })
    }

    /// Takes this field of `from` over into `to`.
    fn take_over(self, to: &mut Options, from: &Options) {
        match self {
            Self::Mss => to.mss = from.mss,
            Self::WindowScale => to.window_scale = from.window_scale,
            Self::SackPermitted => to.sack_permitted = from.sack_permitted,
            Self::Timestamps => to.timestamps = from.timestamps,
            Self::Eln => to.eln = from.eln,
            Self::Cid => to.cid = from.cid,
            Self::Sack => to.sack = from.sack,
        }
    }

    /// Only this one of `of`.
    fn alone(self, of: &Options) -> Options {
        let mut alone = Options::default();
        self.take_over(&mut alone, of);
        alone
    }
}

impl Options {
    /// `bytes`, which say `was`, changed to say this.
    fn rewritten(&self, bytes: &[u8], was: &Self) -> OptionBytes {
        let mut wanted = *self;
        loop {
            let roomy = wanted.laid_out(bytes, was, true);
            if let Some(out) = roomy.or_else(|| wanted.laid_out(bytes, was, false)) {
                return out;
            }
            if !wanted.give_way(was) {
                return OptionBytes::copy_of(bytes);
            }
        }
    }

    /// `bytes` with those options changed that differ from `was`, with or without the padding
    /// between them; none if there is no room.
    fn laid_out(&self, bytes: &[u8], was: &Self, padded: bool) -> Option<OptionBytes> {
        let mut out = OptionBytes::EMPTY;
        let mut placed = [false; ALL.len()];
        let mut options = Raw { rest: bytes, ended: false };
        while let Some((padding, option)) = options.next() {
            let padding = if padded { padding } else { 0 };
            let changed =
                OptionKind::of(option).filter(|known| known.alone(self) != known.alone(was));
            let Some(known) = changed else {
                out.pad(padding, kind::NO_OPERATION)?;
                out.try_put(option)?;
                continue;
            };
            let encoded = known.alone(self).emit();
            let encoded = without_padding(encoded.as_slice());
            if !core::mem::replace(&mut placed[known as usize], true) && !encoded.is_empty() {
                out.pad(padding, kind::NO_OPERATION)?;
                out.try_put(encoded)?;
            }
        }
        for known in ALL.into_iter().filter(|known| known.alone(self) != known.alone(was)) {
            if placed[known as usize] {
                continue;
            }
            let encoded = known.alone(self).emit();
            let encoded = without_padding(encoded.as_slice());
            if padded && !encoded.is_empty() {
                let end = out.as_slice().len() + encoded.len();
                out.pad(end.next_multiple_of(4) - end, kind::NO_OPERATION)?;
            }
            out.try_put(encoded)?;
        }
        let len = out.as_slice().len();
        let filling = if options.ended { kind::END } else { kind::NO_OPERATION };
        out.pad(len.next_multiple_of(4) - len, filling)?;
        Some(out)
    }

    /// Wants less than before, what was there already last of all; false if that is all it wants.
    fn give_way(&mut self, was: &Self) -> bool {
        let blocks = self.sack.as_slice().len();
        if self.cid == was.cid && self.eln == was.eln && self.sack != was.sack && blocks > 0 {
            self.sack.truncate(blocks - 1);
            return true;
        }
        let order = [OptionKind::Cid, OptionKind::Eln].into_iter().chain(ALL);
        let Some(known) = order.into_iter().find(|known| known.alone(self) != known.alone(was))
        else {
            return false;
        };
        known.take_over(self, was);
        true
    }
}

/// The option that was emitted alone, which has its padding in front.
fn without_padding(emitted: &[u8]) -> &[u8] {
    let padding = emitted.iter().take_while(|&&byte| byte == kind::NO_OPERATION).count();
    &emitted[padding..]
}

/// The options of a header one by one, each with the number of bytes of padding in front of it.
struct Raw<'a> {
    rest: &'a [u8],
    /// The end of the list was marked.
    ended: bool,
}

impl<'a> Raw<'a> {
    fn next(&mut self) -> Option<(usize, &'a [u8])> {
        let padding = self.rest.iter().take_while(|&&byte| byte == kind::NO_OPERATION).count();
        let rest = &self.rest[padding..];
        if rest.first() == Some(&kind::END) {
            self.ended = true;
            return None;
        }
        let (option, rest) = rest.split_at_checked(usize::from(*rest.get(1)?))?;
        // Shorter than its own kind and length: malformed, and parsing has refused it.
        option.get(1)?;
        self.rest = rest;
        Some((padding, option))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::collection::vec as some;
    use proptest::prelude::*;

    use super::super::{Flags, SackBlocks, Seq, Timestamps};
    use super::*;

    /// A header with these options, which are a multiple of four bytes.
    fn header(options: &[u8]) -> Vec<u8> {
        let words = (FIXED + options.len()) / 4;
        let mut bytes = alloc::vec![0x12, 0x34, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2];
        bytes.extend([(words as u8) << 4 | 1, 0x38, 1, 0, 0xaa, 0xbb, 0, 7]);
        bytes.extend_from_slice(options);
        bytes
    }

    /// The options after a change.
    fn changed(options: &[u8], change: impl FnOnce(&mut Options)) -> Vec<u8> {
        let was = header(options);
        let (mut segment, _) = Segment::parse_unverified(&was).unwrap();
        change(&mut segment.options);
        segment.rewritten(&was).unwrap().as_slice()[FIXED..].to_vec()
    }

    const STAMPS: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];

    fn stamps_and_sack(blocks: u8) -> Vec<u8> {
        let mut options = STAMPS.to_vec();
        options.extend([1, 1, 5, 2 + 8 * blocks]);
        (0..blocks).for_each(|n| options.extend([0, 0, n, 1, 0, 0, n, 9]));
        options
    }

    #[test]
    fn fields_are_changed_and_the_rest_of_the_header_stays() {
        let was = header(&STAMPS);
        let (segment, _) = Segment::parse_unverified(&was).unwrap();
        let flags = Flags::ACK.with(Flags::ECE);
        let is = Segment { seq: Seq(9), ack: Seq(8), window: 7, flags, ..segment };
        let is = is.rewritten(&was).unwrap();
        let expected = [&was[..4], &[0, 0, 0, 9, 0, 0, 0, 8, was[12], 0x50, 0, 7], &was[16..]];
        assert_eq!(is.as_slice(), expected.concat());
    }

    #[test]
    fn an_option_keeps_its_place_when_its_value_changes() {
        let syn = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7];
        let mss = changed(&syn, |options| options.mss = Some(536));
        assert_eq!(mss, [&[2, 4, 2, 24], &syn[4..]].concat());
        let scale = changed(&syn, |options| options.window_scale = Some(2));
        assert_eq!(scale, [&syn[..19], &[2]].concat());
    }

    #[test]
    fn an_option_goes_with_the_padding_in_front_of_it() {
        let bare = changed(&stamps_and_sack(2), |options| options.sack.truncate(0));
        assert_eq!(bare, STAMPS);
        let nothing = changed(&STAMPS, |options| options.timestamps = None);
        assert!(nothing.is_empty());
        let syn = [2, 4, 5, 0xb4, 1, 3, 3, 7];
        assert_eq!(changed(&syn, |options| options.window_scale = None), syn[..4]);
        assert_eq!(changed(&syn, |options| options.mss = None), syn[4..]);
    }

    #[test]
    fn an_option_that_comes_is_put_behind_the_others() {
        let eln = [253, 4, 0x45, 0x4c];
        assert_eq!(changed(&STAMPS, |o| o.eln = true), [&STAMPS[..], &eln].concat());
        let mut sack = SackBlocks::default();
        sack.push(Seq(1), Seq(2));
        let both = changed(&STAMPS, |options| options.sack = sack);
        assert_eq!(both, [&STAMPS[..], &[1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2]].concat());
    }

    #[test]
    fn unknown_options_stay_where_they_were() {
        let fast_open = [34, 6, 9, 8, 7, 6, 2, 4, 5, 0xb4, 254, 4, 1, 2, 0, 0];
        let is = changed(&fast_open, |options| options.mss = Some(0x0101));
        assert_eq!(is, [&fast_open[..8], &[1, 1], &fast_open[10..]].concat());
        let is = changed(&fast_open, |options| options.mss = None);
        assert_eq!(is, [34, 6, 9, 8, 7, 6, 254, 4, 1, 2, 0, 0]);
    }

    #[test]
    fn of_an_option_that_came_twice_one_is_left_when_it_changes() {
        let twice = [2, 4, 0, 1, 2, 4, 0, 2];
        assert_eq!(changed(&twice, |options| options.window_scale = Some(1)).len(), 12);
        assert_eq!(changed(&twice, |options| options.mss = Some(3)), [2, 4, 0, 3]);
    }

    #[test]
    fn what_does_not_fit_first_costs_padding_then_what_was_to_come() {
        // 40 bytes with padding, 36 without: room for the notice of four.
        let full = stamps_and_sack(3);
        let noted = changed(&full, |options| options.eln = true);
        let tight = [&full[2..12], &full[14..], &[253, 4, 0x45, 0x4c]].concat();
        assert_eq!(noted, tight);
        // No room for six.
        let named = changed(&full, |options| options.cid = Some(9));
        assert_eq!(named, full);
        // Authenticated: 30 bytes that are not to be moved out.
        let signed = [&[29, 30][..], &[7; 28], &[1, 1]].concat();
        let mut sack = SackBlocks::default();
        (0..4).for_each(|n| assert!(sack.push(Seq(n), Seq(n + 1))));
        assert_eq!(changed(&signed, |options| options.sack = sack), {
            let mut one = signed[..30].to_vec();
            one.extend([5, 10, 0, 0, 0, 0, 0, 0, 0, 1]);
            one
        });
    }

    #[test]
    fn a_malformed_header_is_refused() {
        let was = header(&[2, 9, 0, 0]);
        assert!(Segment::default().rewritten(&was).is_err());
        assert!(Segment::default().rewritten(&was[..19]).is_err());
    }

    fn options() -> impl Strategy<Value = Options> {
        let sack = some(any::<(u32, u32)>(), 0..=4);
        let rest = any::<(Option<u16>, Option<u8>, bool, Option<(u32, u32)>, bool, Option<u16>)>();
        (rest, sack).prop_map(|((mss, window_scale, sack_permitted, stamps, eln, cid), ranges)| {
            let timestamps = stamps.map(|(value, echo)| Timestamps { value, echo });
            let mut sack = SackBlocks::default();
            ranges.into_iter().for_each(|(start, end)| {
                sack.push(Seq(start), Seq(end));
            });
            let multipath = None;
            Options { mss, window_scale, sack_permitted, timestamps, sack, eln, cid, multipath }
        })
    }

    /// Options as others write them: in any order, padded anywhere, some of them unknown.
    fn raw() -> impl Strategy<Value = Vec<u8>> {
        let one = prop_oneof![
            Just(alloc::vec![1]),
            any::<[u8; 2]>().prop_map(|mss| [&[2, 4], &mss[..]].concat()),
            any::<u8>().prop_map(|shift| alloc::vec![3, 3, shift]),
            Just(alloc::vec![4, 2]),
            any::<[u8; 8]>().prop_map(|stamps| [&[8, 10], &stamps[..]].concat()),
            any::<[u8; 8]>().prop_map(|block| [&[5, 10], &block[..]].concat()),
            (9..253u8, some(any::<u8>(), 0..9)).prop_map(|(kind, value)| [
                &[kind, 2 + value.len() as u8],
                &value[..]
            ]
            .concat()),
        ];
        (some(one, 0..9), any::<bool>()).prop_map(|(all, ended)| {
            let mut bytes = Vec::new();
            all.into_iter().for_each(|option| {
                if bytes.len() + option.len() <= 40 {
                    bytes.extend(option);
                }
            });
            bytes.resize(bytes.len().next_multiple_of(4), if ended { 0 } else { 1 });
            bytes
        })
    }

    /// Options of kinds that nobody here knows, in order.
    fn unknown(options: &[u8]) -> Vec<&[u8]> {
        let mut raw = Raw { rest: options, ended: false };
        core::iter::from_fn(|| raw.next())
            .map(|(_, option)| option)
            .filter(|option| OptionKind::of(option).is_none())
            .collect()
    }

    fn has_doubles(options: &[u8]) -> bool {
        let mut raw = Raw { rest: options, ended: false };
        let mut kinds = [false; 256];
        core::iter::from_fn(|| raw.next())
            .any(|(_, option)| core::mem::replace(&mut kinds[usize::from(option[0])], true))
    }

    proptest! {
        #[test]
        fn a_segment_that_says_the_same_changes_nothing(raw in raw()) {
            let was = header(&raw);
            let (segment, _) = Segment::parse_unverified(&was).unwrap();
            let is = segment.rewritten(&was).unwrap();
            prop_assert_eq!(is.as_slice(), &was);
        }

        #[test]
        fn what_is_asked_for_is_there_if_it_fits(raw in raw(), options in options()) {
            let was = header(&raw);
            let (segment, _) = Segment::parse_unverified(&was).unwrap();
            let is = Segment { options, ..segment }.rewritten(&was).unwrap();
            let is = is.as_slice();
            let (read, payload) = Segment::parse_unverified(is).unwrap();
            prop_assert!(payload.is_empty());
            prop_assert_eq!(unknown(&is[FIXED..]), unknown(&was[FIXED..]), "as they were");
            let fits = options.sack_that_fits() == options.sack.as_slice();
            if fits && unknown(&raw).is_empty() && !has_doubles(&raw) {
                prop_assert_eq!(read.options, options);
            }
        }

        #[test]
        fn there_and_back_says_the_same(raw in raw(), options in options()) {
            let was = header(&raw);
            let (segment, _) = Segment::parse_unverified(&was).unwrap();
            let there = Segment { options, ..segment }.rewritten(&was).unwrap();
            let back = segment.rewritten(there.as_slice()).unwrap();
            let (read, _) = Segment::parse_unverified(back.as_slice()).unwrap();
            prop_assert_eq!(read, segment);
        }

        #[test]
        fn arbitrary_headers_make_nothing_panic(mut was: Vec<u8>, options in options()) {
            if let Some(offset) = was.get_mut(12) {
                *offset |= 0x50;
            }
            if let Ok(is) = (Segment { options, ..Segment::default() }).rewritten(&was) {
                prop_assert!(Segment::parse_unverified(is.as_slice()).is_ok());
            }
        }
    }
}
