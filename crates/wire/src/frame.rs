//! SRP's frames: what a datagram carries once the seal is off.
//!
//! A datagram holds frames one after another. Each begins with a type byte; numbers are
//! [`varint`]s unless said otherwise. A frame of an unknown type makes the rest of its datagram
//! unreadable, so new types may only be sent to a peer whose version knows them.

mod packet;

use thiserror::Error;

use crate::varint;
pub use packet::{PACKET_MAX, PacketFrame, PacketHeader};

const PADDING: u8 = 0x00;
const PING: u8 = 0x01;
const ACK: u8 = 0x02;
const FLOOR: u8 = 0x03;
const URGE: u8 = 0x04;
const CREDIT: u8 = 0x05;
const STREAM_CREDIT: u8 = 0x06;
const BLOCKED: u8 = 0x07;
const STREAM_BLOCKED: u8 = 0x08;
const RESET: u8 = 0x09;
const CLOSE: u8 = 0x0a;
const PRIORITY: u8 = 0x0b;
const CLIENT: u8 = 0x0c;
const POLICY: u8 = 0x0d;
const PATH_STATUS: u8 = 0x0e;
const RELEASE: u8 = 0x0f;
const STREAM: u8 = 0x10;
const STREAM_FIN: u8 = 0x01;
const STREAM_LEN: u8 = 0x02;
const PACKET: u8 = 0x14;

/// The most bits that the bitmap of an acknowledgement may have.
pub const MAX_ACK_SPAN: u64 = 8 * 1024;

/// One frame, borrowing from its datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame<'a> {
    /// Nothing more in this datagram; the rest is zeros (MTU probes).
    Padding,
    /// Asks for an acknowledgement.
    Ping,
    /// What arrived (SRP-3).
    Ack(Ack<'a>),
    /// Numbers below this are settled at the sender: the receiver need not report them again.
    Floor(u64),
    /// Asks for an acknowledgement at once: the sender has nothing more to send for now.
    Urge,
    /// All streams together may carry this many bytes in all.
    Credit(u64),
    /// A stream may carry bytes up to this offset.
    StreamCredit {
        /// The stream.
        id: u64,
        /// First offset that may not be sent.
        limit: u64,
    },
    /// The sender would send more, had it credit for the streams together.
    Blocked,
    /// The sender would send more on this stream, had it credit.
    StreamBlocked {
        /// The stream.
        id: u64,
    },
    /// The sender gives the stream up, both ways.
    Reset {
        /// The stream.
        id: u64,
        /// Why, in the session's code.
        code: u64,
        /// How many bytes the sender had sent: what credit they took.
        size: u64,
    },
    /// The sender ends the association.
    Close {
        /// Why.
        code: u64,
    },
    /// The user at the sending end gives a stream this priority, relative to those of the
    /// association's other streams.
    Priority {
        /// The stream.
        id: u64,
        /// Its priority.
        priority: u32,
    },
    /// The stream is of this host, of those behind the sending end: hosts share the rate before streams do.
    Client {
        /// The stream.
        id: u64,
        /// The host's name; packets of the same host have the same.
        client: u32,
    },
    /// Which of the association's paths may carry the stream, both ways.
    Policy {
        /// The stream.
        id: u64,
        /// The policy's number: 0 for whichever is soonest, 1 for two at once, 2 for what costs less, and from 3 on a path
        /// alone, that of this number less 3.
        policy: u32,
    },
    /// What a path costs whoever has it, which both ends go by.
    PathStatus {
        /// The path.
        path: u64,
        /// Its cost, relative to others'; the largest number is that of a path that may carry nothing more.
        cost: u32,
        /// It carries what is to cost little as long as those that cost less carry fewer bits in a second than this.
        below_bps: u64,
    },
    /// Whoever has bytes of the sender's of this stream does not need the sender to keep those before an offset.
    Release {
        /// The stream.
        id: u64,
        /// First offset that is to be kept; the stream's end is one byte more.
        offset: u64,
    },
    /// Bytes of a stream.
    Stream(StreamFrame<'a>),
    /// A packet, or a part of one. It asks for an acknowledgement.
    Packet(PacketFrame<'a>),
}

/// Bytes of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamFrame<'a> {
    /// The stream.
    pub id: u64,
    /// Where in the stream the bytes belong.
    pub offset: u64,
    /// The stream ends after these bytes.
    pub fin: bool,
    /// The bytes.
    pub data: &'a [u8],
}

/// A selective acknowledgement of transmissions, by datagram number (SRP-3): the latest received,
/// the last in sequence, and which of those between are missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ack<'a> {
    /// The highest number received.
    pub latest: u64,
    /// When it arrived, on the receiver's clock in microseconds, modulo 2³².
    pub arrival_us: u32,
    /// How long the receiver held the acknowledgement back, in microseconds.
    pub delay_us: u64,
    /// The lowest number that this acknowledgement covers.
    pub first: u64,
    /// All numbers from `first` up to here arrived (`first - 1` if `first` itself is missing).
    pub in_sequence: u64,
    /// One bit for each number after `in_sequence + 1` and before `latest`, lowest number in the
    /// lowest bit of the first byte; set if that number is missing. `in_sequence + 1` itself is
    /// missing by definition, unless it is beyond `latest`.
    missing: &'a [u8],
}

impl<'a> Ack<'a> {
    /// An acknowledgement whose bitmap is given; see the fields.
    pub fn new(
        latest: u64,
        arrival_us: u32,
        delay_us: u64,
        (first, in_sequence): (u64, u64),
        missing: &'a [u8],
    ) -> Self {
        Self { latest, arrival_us, delay_us, first, in_sequence, missing }
    }

    /// Whether `number` arrived, for `first <= number <= latest`; false outside.
    pub fn received(&self, number: u64) -> bool {
        if number == self.latest {
            return true;
        }
        if number < self.first || number > self.latest {
            return false;
        }
        if number <= self.in_sequence {
            return true;
        }
        let Some(bit) = number.checked_sub(self.in_sequence + 2) else {
            return false;
        };
        let byte = self.missing.get((bit / 8) as usize).copied().unwrap_or(0xff);
        byte & (1 << (bit % 8)) == 0
    }

    fn bits(latest: u64, in_sequence: u64) -> u64 {
        latest.saturating_sub(in_sequence.saturating_add(2))
    }

    /// How many bytes the bitmap of an acknowledgement with these numbers has.
    pub fn bitmap_len(latest: u64, in_sequence: u64) -> usize {
        Self::bits(latest, in_sequence).div_ceil(8) as usize
    }

    /// The bytes that this frame takes.
    pub fn encoded_len(&self) -> usize {
        1 + varint::len(self.latest)
            + 4
            + varint::len(self.delay_us.min(varint::MAX))
            + varint::len(self.latest - self.first)
            + varint::len(self.latest - self.in_sequence)
            + self.missing.len()
    }

    fn decode(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (latest, bytes) = varint::get(bytes)?;
        let (arrival, bytes) = bytes.split_first_chunk::<4>()?;
        let (delay_us, bytes) = varint::get(bytes)?;
        let (span, bytes) = varint::get(bytes)?;
        let (behind, bytes) = varint::get(bytes)?;
        // `behind` may be one more than the span: the first number itself is missing.
        if span > MAX_ACK_SPAN || span > latest || behind > span + 1 || behind > latest {
            return None;
        }
        let in_sequence = latest - behind;
        let (missing, rest) = bytes.split_at_checked(Self::bitmap_len(latest, in_sequence))?;
        let ack = Self {
            latest,
            arrival_us: u32::from_be_bytes(*arrival),
            delay_us,
            first: latest - span,
            in_sequence,
            missing,
        };
        Some((ack, rest))
    }

    fn encode<'o>(&self, out: &'o mut [u8]) -> Option<&'o mut [u8]> {
        let out = varint::put(out, self.latest)?;
        let (arrival, out) = out.split_first_chunk_mut::<4>()?;
        *arrival = self.arrival_us.to_be_bytes();
        let out = varint::put(out, self.delay_us.min(varint::MAX))?;
        let out = varint::put(out, self.latest.checked_sub(self.first)?)?;
        let out = varint::put(out, self.latest.checked_sub(self.in_sequence)?)?;
        let (missing, out) = out.split_at_mut_checked(self.missing.len())?;
        missing.copy_from_slice(self.missing);
        Some(out)
    }
}

/// A datagram whose frames cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum FrameError {
    /// A frame ends before its fields do, or a field contradicts another.
    #[error("a frame of type {0:#04x} is cut short or contradicts itself")]
    Malformed(u8),
    /// A type of a later version, or garbage.
    #[error("no frame has type {0:#04x}")]
    UnknownType(u8),
}

/// The frames of a datagram, in order. Stops for good at the first that cannot be read.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    rest: &'a [u8],
}

impl<'a> Frames<'a> {
    /// Reads the frames in `payload`.
    pub fn new(payload: &'a [u8]) -> Self {
        Self { rest: payload }
    }

    fn next_frame(&mut self, kind: u8, bytes: &'a [u8]) -> Result<Frame<'a>, FrameError> {
        let (frame, rest) = match kind {
            PADDING => Some((Frame::Padding, &[][..])),
            PING => Some((Frame::Ping, bytes)),
            ACK => Ack::decode(bytes).map(|(a, rest)| (Frame::Ack(a), rest)),
            FLOOR => varint::get(bytes).map(|(n, rest)| (Frame::Floor(n), rest)),
            URGE => Some((Frame::Urge, bytes)),
            CREDIT => varint::get(bytes).map(|(n, rest)| (Frame::Credit(n), rest)),
            STREAM_CREDIT => {
                pair(bytes).map(|(id, limit, r)| (Frame::StreamCredit { id, limit }, r))
            }
            BLOCKED => Some((Frame::Blocked, bytes)),
            STREAM_BLOCKED => varint::get(bytes).map(|(id, r)| (Frame::StreamBlocked { id }, r)),
            RESET => reset(bytes),
            CLOSE => varint::get(bytes).map(|(code, rest)| (Frame::Close { code }, rest)),
            PRIORITY => {
                value_of(bytes).map(|(id, priority, r)| (Frame::Priority { id, priority }, r))
            }
            CLIENT => value_of(bytes).map(|(id, client, r)| (Frame::Client { id, client }, r)),
            POLICY => value_of(bytes).map(|(id, policy, r)| (Frame::Policy { id, policy }, r)),
            PATH_STATUS => path_status(bytes),
            RELEASE => pair(bytes).map(|(id, offset, r)| (Frame::Release { id, offset }, r)),
            STREAM..=0x13 => stream(kind, bytes),
            PACKET..=0x1f => {
                PacketFrame::decode(kind, bytes).map(|(p, rest)| (Frame::Packet(p), rest))
            }
            _ => return Err(FrameError::UnknownType(kind)),
        }
        .ok_or(FrameError::Malformed(kind))?;
        self.rest = rest;
        Ok(frame)
    }
}

fn pair(bytes: &[u8]) -> Option<(u64, u64, &[u8])> {
    let (a, bytes) = varint::get(bytes)?;
    let (b, rest) = varint::get(bytes)?;
    Some((a, b, rest))
}

fn reset(bytes: &[u8]) -> Option<(Frame<'_>, &[u8])> {
    let (id, code, bytes) = pair(bytes)?;
    let (size, rest) = varint::get(bytes)?;
    Some((Frame::Reset { id, code, size }, rest))
}

fn path_status(bytes: &[u8]) -> Option<(Frame<'_>, &[u8])> {
    let (path, cost, bytes) = value_of(bytes)?;
    let (below_bps, rest) = varint::get(bytes)?;
    Some((Frame::PathStatus { path, cost, below_bps }, rest))
}

/// A stream, or a path, and 32 bits about it.
fn value_of(bytes: &[u8]) -> Option<(u64, u32, &[u8])> {
    let (id, value, rest) = pair(bytes)?;
    Some((id, u32::try_from(value).ok()?, rest))
}

fn stream(kind: u8, bytes: &[u8]) -> Option<(Frame<'_>, &[u8])> {
    let (id, offset, bytes) = pair(bytes)?;
    let (data, rest) = if kind & STREAM_LEN != 0 {
        let (len, bytes) = varint::get(bytes)?;
        bytes.split_at_checked(usize::try_from(len).ok()?)?
    } else {
        (bytes, &[][..])
    };
    offset.checked_add(data.len() as u64).filter(|end| *end <= varint::MAX)?;
    let frame = StreamFrame { id, offset, fin: kind & STREAM_FIN != 0, data };
    Some((Frame::Stream(frame), rest))
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, FrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (kind, bytes) = self.rest.split_first()?;
        let frame = self.next_frame(*kind, bytes);
        if frame.is_err() {
            self.rest = &[];
        }
        Some(frame)
    }
}

/// Writes frames into a datagram's payload.
#[derive(Debug)]
pub struct Writer<'o> {
    out: &'o mut [u8],
    len: usize,
}

impl<'o> Writer<'o> {
    /// Writes from the start of `out` and never beyond its end.
    pub fn new(out: &'o mut [u8]) -> Self {
        Self { out, len: 0 }
    }

    /// Bytes written.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Nothing was written.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that still fit.
    pub fn room(&self) -> usize {
        self.out.len() - self.len
    }

    /// Appends `frame`; false, and nothing written, if it does not fit. A [`Frame::Padding`] fills
    /// the rest. A [`Frame::Stream`] is written with its length.
    pub fn put(&mut self, frame: &Frame<'_>) -> bool {
        let room = self.room();
        let left = match frame {
            Frame::Padding => {
                self.out[self.len..].fill(0);
                Some(0)
            }
            Frame::Stream(f) => return self.put_stream(f.id, f.offset, f.fin, f.data, &[]),
            Frame::Packet(f) => f.encode(&mut self.out[self.len..]).map(|rest| rest.len()),
            other => put_fields(&mut self.out[self.len..], other).map(|rest| rest.len()),
        };
        let Some(left) = left else { return false };
        self.len += room - left;
        true
    }

    /// Bytes of the header of a stream frame at `offset`, length field included.
    pub fn stream_overhead(id: u64, offset: u64) -> usize {
        1 + varint::len(id) + varint::len(offset) + 2
    }

    /// Appends a stream frame whose bytes come in two pieces (a ring buffer's), at most 16383 in
    /// all; false, and nothing written, if it does not fit.
    pub fn put_stream(&mut self, id: u64, offset: u64, fin: bool, a: &[u8], b: &[u8]) -> bool {
        let data = a.len() + b.len();
        if data >= 1 << 14 || Self::stream_overhead(id, offset) + data > self.room() {
            return false;
        }
        let out = &mut self.out[self.len..];
        let room = out.len();
        out[0] = STREAM | STREAM_LEN | if fin { STREAM_FIN } else { 0 };
        let written = (|| {
            let out = varint::put(&mut out[1..], id)?;
            let out = varint::put(out, offset)?;
            let out = varint::put(out, data as u64)?;
            let (first, out) = out.split_at_mut_checked(a.len())?;
            first.copy_from_slice(a);
            let (second, out) = out.split_at_mut_checked(b.len())?;
            second.copy_from_slice(b);
            Some(room - out.len())
        })();
        let Some(written) = written else { return false };
        self.len += written;
        true
    }
}

fn put_fields<'o>(out: &'o mut [u8], frame: &Frame<'_>) -> Option<&'o mut [u8]> {
    let (kind, fields): (u8, &[u64]) = match *frame {
        Frame::Ping => (PING, &[]),
        Frame::Ack(_) => (ACK, &[]),
        Frame::Floor(n) => (FLOOR, &[n]),
        Frame::Urge => (URGE, &[]),
        Frame::Credit(n) => (CREDIT, &[n]),
        Frame::StreamCredit { id, limit } => (STREAM_CREDIT, &[id, limit]),
        Frame::Blocked => (BLOCKED, &[]),
        Frame::StreamBlocked { id } => (STREAM_BLOCKED, &[id]),
        Frame::Reset { id, code, size } => (RESET, &[id, code, size]),
        Frame::Close { code } => (CLOSE, &[code]),
        Frame::Priority { id, priority } => (PRIORITY, &[id, u64::from(priority)]),
        Frame::Client { id, client } => (CLIENT, &[id, u64::from(client)]),
        Frame::Policy { id, policy } => (POLICY, &[id, u64::from(policy)]),
        Frame::PathStatus { path, cost, below_bps } => {
            (PATH_STATUS, &[path, u64::from(cost), below_bps])
        }
        Frame::Release { id, offset } => (RELEASE, &[id, offset]),
        Frame::Padding | Frame::Stream(_) | Frame::Packet(_) => return None,
    };
    let (first, mut out) = out.split_first_mut()?;
    *first = kind;
    for n in fields {
        out = varint::put(out, (*n).min(varint::MAX))?;
    }
    match frame {
        Frame::Ack(ack) => ack.encode(out),
        _ => Some(out),
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn round_trip(frame: Frame<'_>) {
        let mut buf = [0xee; 256];
        let mut w = Writer::new(&mut buf);
        assert!(w.put(&frame));
        let len = w.len();
        let back: Vec<_> = Frames::new(&buf[..len]).collect();
        assert_eq!(back, vec![Ok(frame)]);
        for cut in 0..len {
            assert!(!Writer::new(&mut [0; 256][..cut]).put(&frame), "{frame:?} in {cut}");
        }
    }

    #[test]
    fn every_frame_comes_back() {
        for frame in [
            Frame::Ping,
            Frame::Floor(70_000),
            Frame::Urge,
            Frame::Credit(1 << 40),
            Frame::StreamCredit { id: 6, limit: 1 << 33 },
            Frame::Blocked,
            Frame::StreamBlocked { id: 9 },
            Frame::Reset { id: 2, code: 77, size: 123_456 },
            Frame::Close { code: 3 },
            Frame::Priority { id: 5, priority: u32::MAX },
            Frame::Client { id: 8, client: 0xfeed },
            Frame::Policy { id: 12, policy: 4 },
            Frame::PathStatus { path: 7, cost: u32::MAX, below_bps: 2_000_000 },
            Frame::Release { id: 3, offset: 1 << 21 },
            Frame::Stream(StreamFrame { id: 4, offset: 1 << 20, fin: false, data: b"some" }),
            Frame::Stream(StreamFrame { id: 4, offset: 0, fin: true, data: b"" }),
        ] {
            round_trip(frame);
        }
    }

    /// SRP-3: the last in sequence, the latest, and a bitmap of what is missing between.
    #[test]
    fn an_acknowledgement_names_each_missing_number() {
        // 100, 101 arrived, 102 is missing, 103 arrived, 104 is missing, 105 arrived.
        let ack = Ack::new(105, 7, 9, (100, 101), &[0b10]);
        round_trip(Frame::Ack(ack));
        let got: Vec<_> = (99..=106).map(|n| ack.received(n)).collect();
        assert_eq!(got, [false, true, true, false, true, false, true, false]);
    }

    #[test]
    fn an_acknowledgement_without_gaps_has_no_bitmap() {
        let ack = Ack::new(500, 7, 0, (400, 500), &[]);
        round_trip(Frame::Ack(ack));
        assert!((400..=500).all(|n| ack.received(n)));
        assert_eq!(ack.encoded_len(), 1 + 2 + 4 + 1 + 2 + 1);
    }

    #[test]
    fn the_first_number_itself_may_be_missing() {
        let ack = Ack::new(11, 0, 0, (10, 9), &[]);
        round_trip(Frame::Ack(ack));
        assert!(!ack.received(10) && ack.received(11));
    }

    #[test]
    fn contradictions_are_refused() {
        let bad: [&[u8]; 5] = [
            &[ACK, 5, 0, 0, 0, 0, 0, 6, 0],
            &[ACK, 5, 0, 0, 0, 0, 0, 3, 5],
            &[STREAM | STREAM_LEN, 4, 0, 9, 1],
            &[0x7f],
            &[RESET, 1, 2],
        ];
        for bytes in bad {
            let mut frames = Frames::new(bytes);
            assert!(matches!(frames.next(), Some(Err(_))), "{bytes:?}");
            assert_eq!(frames.next(), None);
        }
    }

    #[test]
    fn padding_ends_a_datagram() {
        let mut buf = [0xee; 40];
        let mut w = Writer::new(&mut buf);
        assert!(w.put(&Frame::Ping) && w.put(&Frame::Padding));
        assert_eq!((w.len(), w.room()), (40, 0));
        let back: Vec<_> = Frames::new(&buf).map(Result::unwrap).collect();
        assert_eq!(back, [Frame::Ping, Frame::Padding]);
    }

    proptest! {
        #[test]
        fn garbage_never_panics_and_always_ends(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let n = Frames::new(&bytes).count();
            prop_assert!(n <= bytes.len());
        }

        #[test]
        fn a_bitmap_agrees_with_the_set_it_was_made_from(
            first in 0u64..1000,
            got in prop::collection::vec(any::<bool>(), 1..300),
        ) {
            let mut got = got;
            if let Some(last) = got.last_mut() { *last = true; }
            let latest = first + got.len() as u64 - 1;
            let run = got.iter().take_while(|g| **g).count() as u64;
            prop_assume!(first + run > 0);
            let in_sequence = first + run - 1;
            let mut map = vec![0u8; Ack::bitmap_len(latest, in_sequence)];
            for n in in_sequence + 2..latest {
                if !got[(n - first) as usize] {
                    let bit = n - in_sequence - 2;
                    map[(bit / 8) as usize] |= 1 << (bit % 8);
                }
            }
            let ack = Ack::new(latest, 1, 2, (first, in_sequence), &map);
            let mut buf = [0; 512];
            let mut w = Writer::new(&mut buf);
            prop_assert!(w.put(&Frame::Ack(ack)));
            prop_assert_eq!(w.len(), ack.encoded_len());
            let len = w.len();
            let Some(Ok(Frame::Ack(back))) = Frames::new(&buf[..len]).next() else {
                return Err(TestCaseError::fail("not an acknowledgement"));
            };
            for (i, g) in got.iter().enumerate() {
                prop_assert_eq!(back.received(first + i as u64), *g);
            }
        }
    }
}
