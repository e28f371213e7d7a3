//! The machines at the edge, packet by packet.

mod dupacks;
mod flows;
mod freeze;
mod rwc;
mod withhold;

use alloc::vec::Vec;

use lasthop_units::{Bytes, Duration, LinkEvent, Time};
use lasthop_wire::tcp::{Flags, Options, SackBlocks, Segment, Seq, Timestamps};

use super::*;
use crate::link::fake::{Fake, connection};
use crate::{Agent, Output, Side};

/// Where the fixed host's stream begins in most tests: it wraps soon.
const FIRST: u32 = u32::MAX - 4000;
/// The number that the mobile's own segments have.
const MOBILE: u32 = 77;
const WINDOW: u16 = 500;
const LEAD: Duration = Duration::from_millis(100);

fn at(ms: u64) -> Time {
    Time::from_millis(ms)
}

/// `n` bytes after the beginning of the fixed host's stream.
fn byte(n: u32) -> Seq {
    Seq(FIRST) + n
}

/// What comes out of an agent, with positions in the fixed host's stream.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Out {
    /// Data to the mobile, of this length.
    Data(u32, u32),
    /// An acknowledgement to the fixed host, and its window field.
    Ack(u32, u16),
    /// The same, made by the agent.
    Made(u32, u16),
    /// A segment to the mobile that the agent made: its acknowledgement and its window field.
    ToMobile(u32, u16),
    Other,
}
use Out::{Ack, Data, Made, ToMobile};

/// An agent and one connection through it.
struct Path<A> {
    agent: A,
    /// The segments that came out last.
    last: Vec<Segment>,
}

impl<A: Agent<Fake>> Path<A> {
    const fn new(agent: A) -> Self {
        Self { agent, last: Vec::new() }
    }

    fn outputs(&mut self) -> Vec<Out> {
        let position = |seq: Seq| seq.0.wrapping_sub(FIRST);
        self.last.clear();
        let mut all = Vec::new();
        while let Some(output) = self.agent.poll_output() {
            let (out, segment) = match output {
                Output::Packet { towards, packet } => match (packet.tcp, towards) {
                    (Some(tcp), Side::Mobile) => {
                        (Data(position(tcp.segment.seq), tcp.segment.len), tcp.segment)
                    }
                    (Some(tcp), Side::Fixed) => {
                        (Ack(position(tcp.segment.ack), tcp.segment.window), tcp.segment)
                    }
                    (None, _) => (Out::Other, Segment::default()),
                },
                Output::Segment { towards: Side::Fixed, segment, .. } => {
                    (Made(position(segment.ack), segment.window), segment)
                }
                Output::Segment { towards: Side::Mobile, segment, .. } => {
                    (ToMobile(segment.ack.0, segment.window), segment)
                }
                Output::Message { .. } => (Out::Other, Segment::default()),
            };
            all.push(out);
            self.last.push(segment);
        }
        all
    }

    fn give(&mut self, ms: u64, from: Side, segment: Segment) -> Vec<Out> {
        let packet = Fake::segment(&connection(1), from, segment);
        self.agent.handle_packet(at(ms), from, packet);
        self.outputs()
    }

    /// Data of the fixed host's.
    fn data(&mut self, ms: u64, from: u32, len: u32) -> Vec<Out> {
        self.give(ms, Side::Fixed, data(from, len))
    }

    /// The same with a congestion mark.
    fn marked(&mut self, ms: u64, from: u32, len: u32) -> Vec<Out> {
        let packet = Fake::segment(&connection(1), Side::Fixed, data(from, len));
        self.agent.handle_packet(at(ms), Side::Fixed, Fake { marked: true, ..packet });
        self.outputs()
    }

    /// An acknowledgement of the mobile's.
    fn ack(&mut self, ms: u64, ack: u32) -> Vec<Out> {
        self.give(ms, Side::Mobile, acking(ack))
    }

    fn event(&mut self, ms: u64, event: LinkEvent) -> Vec<Out> {
        self.agent.handle_link_event(at(ms), event);
        self.outputs()
    }

    /// Lets time pass up to `ms`; what came out, and when.
    fn wait(&mut self, ms: u64) -> Vec<(u64, Out)> {
        let mut all = Vec::new();
        while let Some(now) = self.agent.next_timeout().filter(|now| *now <= at(ms)) {
            self.agent.handle_timeout(now);
            let ms = now.as_micros() / 1000;
            all.extend(self.outputs().into_iter().map(|out| (ms, out)));
        }
        all
    }

    /// Both SYNs and the acknowledgement that ends the handshake, with these options; the mobile
    /// opens.
    fn open(&mut self, options: Options, flags: (Flags, Flags)) {
        let syn = Flags::SYN.with(flags.0);
        let seq = Seq(MOBILE - 1);
        self.give(0, Side::Mobile, Segment { seq, flags: syn, window: 9999, options, ..segment() });
        let answer = Flags::SYN.with(Flags::ACK).with(flags.1);
        let (seq, ack) = (Seq(FIRST) - 1, Seq(MOBILE));
        let window = 9999;
        self.give(
            20,
            Side::Fixed,
            Segment { seq, ack, flags: answer, window, options, ..segment() },
        );
        assert_eq!(self.ack(20, 0), [Ack(0, WINDOW)]);
    }

    /// As many segments of 1000 bytes from `from` on.
    fn burst(&mut self, ms: u64, from: u32, n: u32) {
        for first in (0..n).map(|n| from + 1000 * n) {
            assert_eq!(self.data(ms, first, 1000), [Data(first, 1000)]);
        }
    }
}

fn segment() -> Segment {
    Segment { flags: Flags::ACK, window: WINDOW, ..Segment::default() }
}

fn data(from: u32, len: u32) -> Segment {
    Segment { seq: byte(from), ack: Seq(MOBILE), len, window: 900, ..segment() }
}

fn acking(ack: u32) -> Segment {
    Segment { seq: Seq(MOBILE), ack: byte(ack), ..segment() }
}

fn with_sack(ack: u32, blocks: &[(u32, u32)]) -> Segment {
    let mut sack = SackBlocks::default();
    for (from, to) in blocks {
        sack.push(byte(*from), byte(*to));
    }
    Segment { options: Options { sack, ..Options::default() }, ..acking(ack) }
}

fn stamped(segment: Segment, value: u32, echo: u32) -> Segment {
    let timestamps = Some(Timestamps { value, echo });
    Segment { options: Options { timestamps, ..segment.options }, ..segment }
}
