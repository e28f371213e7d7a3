//! The agents beside each other and alone. Sequence numbers wrap within each test.

mod base;
mod diagram;
mod line;
mod random;
mod router;

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr};

use lasthop_units::Time;
use lasthop_wire::agent::{Message, Ranges};
use lasthop_wire::tcp::{Flags, Segment, Seq, Timestamps};

use crate::{Agent, Connection, Output, Side, Tcp};

/// Bytes of a test's segments.
const MSS: u32 = 100;
/// Where sequence numbers begin: the eleventh segment wraps.
const BASE: Seq = Seq(u32::MAX - 10 * MSS - 50);

/// A packet of a test.
#[derive(Clone, PartialEq, Debug)]
struct Packet {
    src: SocketAddr,
    dst: SocketAddr,
    /// None for what is not TCP.
    segment: Option<Segment>,
    bytes: Rc<[u8]>,
}

impl crate::Packet for Packet {
    fn tcp(&self) -> Option<Tcp> {
        self.segment.map(|segment| Tcp { src: self.src, dst: self.dst, segment })
    }

    fn set_segment(&mut self, segment: &Segment) {
        self.segment = Some(*segment);
    }
}

fn connection() -> Connection {
    let at = |host, port| SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), port));
    Connection { fixed: at(1, 80), mobile: at(2, 5000) }
}

fn ms(n: u64) -> Time {
    Time::from_millis(n)
}

/// Where segment `n` begins.
fn seq(n: u32) -> Seq {
    BASE + n.wrapping_mul(MSS)
}

fn packet(from: Side, segment: Segment) -> Packet {
    let Connection { fixed, mobile } = connection();
    let (src, dst) = match from {
        Side::Fixed => (fixed, mobile),
        Side::Mobile => (mobile, fixed),
    };
    Packet { src, dst, segment: Some(segment), bytes: Rc::new([]) }
}

/// Segment `n` from the fixed host. Its clock shows when the host made it.
fn data(n: u32) -> Packet {
    let mut segment = Segment { seq: seq(n), len: MSS, flags: Flags::ACK, ..Segment::default() };
    segment.options.timestamps = Some(Timestamps { value: 1000 + n, echo: 7 });
    packet(Side::Fixed, segment)
}

/// The mobile host expects segment `n`.
fn ack(n: u32) -> Packet {
    let segment = Segment { ack: seq(n), window: 500, flags: Flags::ACK, ..Segment::default() };
    packet(Side::Mobile, segment)
}

/// Segments, each from its first up to but not including its end.
fn ranges(of: &[(u32, u32)]) -> Ranges {
    let mut ranges = Ranges::default();
    assert!(of.iter().all(|(from, to)| ranges.push(seq(*from), seq(*to))));
    ranges
}

fn snack(of: &[(u32, u32)]) -> Message {
    Message::Snack { connection: connection(), missing: ranges(of) }
}

fn congestion(of: &[(u32, u32)]) -> Message {
    Message::Congestion { connection: connection(), lost: ranges(of) }
}

fn to_mobile(n: u32) -> Output<Packet> {
    Output::Packet { towards: Side::Mobile, packet: data(n) }
}

fn to_fixed(packet: Packet) -> Output<Packet> {
    Output::Packet { towards: Side::Fixed, packet }
}

fn says(towards: Side, message: Message) -> Output<Packet> {
    Output::Message { towards, message }
}

fn drain(agent: &mut impl Agent<Packet>) -> Vec<Output<Packet>> {
    core::iter::from_fn(|| agent.poll_output()).collect()
}

/// What comes out when this goes in.
fn put(
    agent: &mut impl Agent<Packet>,
    now: Time,
    from: Side,
    packet: Packet,
) -> Vec<Output<Packet>> {
    agent.handle_packet(now, from, packet);
    drain(agent)
}

/// Segments from the fixed side; what comes out is not looked at.
fn send(agent: &mut impl Agent<Packet>, now: Time, segments: impl IntoIterator<Item = u32>) {
    for n in segments {
        put(agent, now, Side::Fixed, data(n));
    }
}

/// What comes out when a timeout comes that is due.
fn expire(agent: &mut impl Agent<Packet>) -> (Time, Vec<Output<Packet>>) {
    let due = agent.next_timeout().expect("something is due");
    agent.handle_timeout(due);
    (due, drain(agent))
}

/// What both agents let pass as it came: data towards the fixed host, what is not TCP, segments of
/// a connection's beginning and end, and acknowledgements of connections that are not known.
fn passes_untouched(agent: &mut impl Agent<Packet>) {
    send(agent, ms(0), 0..3);
    put(agent, ms(0), Side::Mobile, ack(1));
    let upward = Segment { seq: Seq(9), len: 50, ..ack(1).segment.unwrap() };
    let other = Packet { segment: None, ..ack(1) };
    let mut stranger = ack(1);
    stranger.src.set_port(1);
    let fin = Segment { flags: Flags::ACK.with(Flags::FIN), ..ack(1).segment.unwrap() };
    let syn = Segment { flags: Flags::SYN, ..ack(1).segment.unwrap() };
    let reset = Segment { flags: Flags::RST, ..ack(1).segment.unwrap() };
    let bare = Segment { flags: Flags::empty(), ..ack(1).segment.unwrap() };
    let from_mobile = [upward, upward, fin, bare, syn, reset].map(|s| packet(Side::Mobile, s));
    for packet in from_mobile.into_iter().chain([other.clone(), stranger]) {
        let out = put(agent, ms(1), Side::Mobile, packet.clone());
        assert_eq!(out, [to_fixed(packet)]);
    }
    let pure = Segment { len: 0, ..data(5).segment.unwrap() };
    let syn = Segment { flags: Flags::SYN, len: 0, ..data(5).segment.unwrap() };
    let reset = Segment { flags: Flags::RST, ..data(5).segment.unwrap() };
    let fin = Segment { flags: Flags::ACK.with(Flags::FIN), ..data(6).segment.unwrap() };
    let from_fixed = [pure, syn, reset, fin].map(|s| packet(Side::Fixed, s));
    for packet in from_fixed.into_iter().chain([other]) {
        let out = put(agent, ms(1), Side::Fixed, packet.clone());
        assert_eq!(out, [Output::Packet { towards: Side::Mobile, packet }]);
    }
}
