//! TCP segments: what a header means (RFC 9293 section 3.1), and its bytes.

mod bytes;
mod multipath;
mod rewrite;

pub use bytes::{EmitError, ParseError};
pub use multipath::{DataSignal, Mapping, Multipath};
pub use rewrite::HeaderBytes;

use core::fmt;

use crate::kinds::{bits, reads_as_number, wraps};

/// A sequence number: arithmetic is modulo 2^32 (RFC 9293 section 3.4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Seq(pub u32);

impl Seq {
    /// How far this is ahead of `other`: negative if it is behind.
    pub const fn ahead_of(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0).cast_signed()
    }
}

wraps!(Seq(u32));
reads_as_number!(Seq);

bits! {
    /// The control bits (RFC 9293 section 3.1, RFC 3168).
    pub struct Flags(u8) {
        /// No more data from the sender.
        FIN = 0x01,
        /// Synchronize sequence numbers.
        SYN = 0x02,
        /// Reset the connection.
        RST = 0x04,
        /// Push.
        PSH = 0x08,
        /// The acknowledgement field is significant.
        ACK = 0x10,
        /// The urgent pointer is significant.
        URG = 0x20,
        /// ECN echo.
        ECE = 0x40,
        /// Congestion window reduced.
        CWR = 0x80,
    }
}

/// Up to four ranges that the receiver holds above its acknowledgement (RFC 2018 section 3), most recent
/// first (section 4).
pub type SackBlocks = SeqRanges<4>;

/// Up to `N` ranges of sequence numbers, each from its first byte up to but not including its end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SeqRanges<const N: usize> {
    ranges: [(Seq, Seq); N],
    len: u8,
}

impl<const N: usize> Default for SeqRanges<N> {
    fn default() -> Self {
        Self { ranges: [(Seq(0), Seq(0)); N], len: 0 }
    }
}

impl<const N: usize> SeqRanges<N> {
    /// Ranges that can be held at most.
    pub const MAX: usize = N;

    /// Adds a range from `start` up to but not including `end`. False if there is no room for it.
    pub fn push(&mut self, start: Seq, end: Seq) -> bool {
        match self.ranges.get_mut(usize::from(self.len)) {
            Some(slot) => {
                *slot = (start, end);
                self.len += 1;
                true
            }
            None => false,
        }
    }

    /// The ranges, in the order in which they were added.
    pub fn as_slice(&self) -> &[(Seq, Seq)] {
        &self.ranges[..usize::from(self.len)]
    }

    /// There is none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Keeps at most the first `n`.
    pub fn truncate(&mut self, n: usize) {
        self.len = self.len.min(u8::try_from(n).unwrap_or(u8::MAX));
        // What is cut off must not tell two equal values apart.
        self.ranges[usize::from(self.len)..].fill(<(Seq, Seq)>::default());
    }
}

impl<const N: usize> fmt::Debug for SeqRanges<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

/// The timestamps option (RFC 7323 section 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timestamps {
    /// The sender's clock.
    pub value: u32,
    /// The other's clock as the sender last received it.
    pub echo: u32,
}

/// The options that are understood; others are skipped.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Options {
    /// Maximum segment size, on a SYN (RFC 9293 section 3.7.1).
    pub mss: Option<u16>,
    /// Shift of the window field, on a SYN (RFC 7323 section 2).
    pub window_scale: Option<u8>,
    /// The receiver may send SACK blocks, on a SYN (RFC 2018 section 2).
    pub sack_permitted: bool,
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
    /// What has arrived above the acknowledgement.
    pub sack: SackBlocks,
    /// Explicit loss notification: what the acknowledgement asks for was lost on a radio, not in a
    /// queue (SNP-10). An experimental option (RFC 6994); no standard has one.
    pub eln: bool,
    /// What the half of an unsplit hop that sends this calls the connection; the other half takes it
    /// off (ALT-3). An experimental option (RFC 6994), of 6 bytes.
    pub cid: Option<u16>,
    /// What a subflow of a multipath connection says of the whole (RFC 8684 section 3).
    pub multipath: Option<Multipath>,
}

/// A segment without its payload.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Segment {
    /// The sender's port.
    pub src_port: u16,
    /// The receiver's port.
    pub dst_port: u16,
    /// Of the first byte of payload, or of the SYN.
    pub seq: Seq,
    /// The next byte expected; significant if [`Flags::ACK`] is set.
    pub ack: Seq,
    /// The control bits.
    pub flags: Flags,
    /// The window field as it is on the wire: not scaled.
    pub window: u16,
    /// The options.
    pub options: Options,
    /// Bytes of payload.
    pub len: u32,
}

impl Segment {
    /// What the segment occupies of the sequence space: payload, SYN and FIN (RFC 9293 section 3.4),
    /// modulo 2^32 as all of its arithmetic.
    #[inline]
    pub fn seq_len(&self) -> u32 {
        let flags = [Flags::SYN, Flags::FIN].map(|flag| u32::from(self.flags.contains(flag)));
        self.len.wrapping_add(flags[0] + flags[1])
    }

    /// The sequence number after this segment.
    pub fn end(&self) -> Seq {
        self.seq + self.seq_len()
    }

    /// Bytes of the header with its options, as they are emitted: a multiple of four from 20 to 60.
    #[inline]
    pub fn header_len(&self) -> u32 {
        20 + self.options.len()
    }
}

impl Options {
    /// The most bytes that a header has for options (RFC 9293 section 3.1).
    pub const MAX_LEN: u32 = 40;

    /// Bytes of the options as they are emitted, padded to a multiple of four: MSS 4, window scale
    /// 3, SACK permitted 2, timestamps 10, loss notification 4, CID 6, multipath 8 to 18,
    /// SACK 2 and 8 for each block
    /// that [fits](Self::sack_that_fits). At most [`MAX_LEN`](Self::MAX_LEN).
    #[inline]
    pub fn len(&self) -> u32 {
        if self.sack.is_empty() {
            return self.len_without_sack().next_multiple_of(4);
        }
        let sack = match self.sack_that_fits().len() as u32 {
            0 => 0,
            blocks => 2 + 8 * blocks,
        };
        (self.len_without_sack() + sack).next_multiple_of(4)
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The SACK blocks that are emitted: the first ones, as many as the other options leave room
    /// for. Beside timestamps that is three (RFC 2018 section 3).
    pub fn sack_that_fits(&self) -> &[(Seq, Seq)] {
        let room = (Self::MAX_LEN - self.len_without_sack()).saturating_sub(2) / 8;
        let blocks = self.sack.as_slice();
        &blocks[..blocks.len().min(room as usize)]
    }

    #[inline]
    fn len_without_sack(&self) -> u32 {
        let mut n = 0;
        n += if self.mss.is_some() { 4 } else { 0 };
        n += if self.window_scale.is_some() { 3 } else { 0 };
        n += if self.sack_permitted { 2 } else { 0 };
        n += if self.timestamps.is_some() { 10 } else { 0 };
        n += if self.eln { 4 } else { 0 };
        n += if self.cid.is_some() { 6 } else { 0 };
        n += self.multipath_that_fits(n).map_or(0, Multipath::len);
        n
    }

    /// Multipath's option, if the others leave room for it, which take so many bytes.
    fn multipath_that_fits(&self, others: u32) -> Option<&Multipath> {
        self.multipath.as_ref().filter(|multipath| others + multipath.len() <= Self::MAX_LEN)
    }
}
