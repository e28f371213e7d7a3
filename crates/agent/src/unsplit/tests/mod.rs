mod opening;
mod recovery;
mod soft;
mod whole;

use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr};

use lasthop_units::{Duration, Time};
use lasthop_wire::agent::Message;
use lasthop_wire::tcp::{Flags, Options, SackBlocks, Segment, Seq, Timestamps};
use lasthop_wire::unsplit::{Header, Request};

use super::{Config, Unsplit};
use crate::{Agent, Connection, Output, Packet, Side, Tcp};

/// Where the fixed host's data begins, and the mobile's: they soon wrap.
const FIXED_ISN: u32 = u32::MAX - 4999;
const MOBILE_ISN: u32 = u32::MAX - 1999;
/// Bytes of each segment.
const LEN: u32 = 1000;

/// A packet with its addresses, or with a compressed header in their stead.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Wire {
    tcp: Tcp,
    compressed: Option<Header>,
    /// It has IP options, say.
    stubborn: bool,
    /// Whose it is, as TCP's checksum tells.
    sum: (SocketAddr, SocketAddr),
}

impl Packet for Wire {
    fn tcp(&self) -> Option<Tcp> {
        let right = self.sum == (self.tcp.src, self.tcp.dst);
        (self.compressed.is_none() && right).then_some(self.tcp)
    }

    fn set_segment(&mut self, segment: &Segment) {
        self.tcp.segment = Segment { len: self.tcp.segment.len, ..*segment };
    }

    fn compressed(&self) -> Option<Header> {
        self.compressed
    }

    fn compress(&mut self, header: &Header) -> bool {
        if self.stubborn {
            return false;
        }
        self.compressed = Some(*header);
        // What does not cross the hop is not there to be looked at.
        let nobody = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        (self.tcp.src, self.tcp.dst) = (nobody, nobody);
        (self.tcp.segment.src_port, self.tcp.segment.dst_port) = (0, 0);
        true
    }

    fn expand(&mut self, src: SocketAddr, dst: SocketAddr) {
        self.compressed = None;
        (self.tcp.src, self.tcp.dst) = (src, dst);
        (self.tcp.segment.src_port, self.tcp.segment.dst_port) = (src.port(), dst.port());
    }
}

fn connection(port: u16) -> Connection {
    let at = |host, port| SocketAddr::from((Ipv4Addr::new(192, 0, 2, host), port));
    Connection { fixed: at(1, 80), mobile: at(2, port) }
}

/// A segment of the connection at this port of the mobile, from the end at `from`.
fn wire(port: u16, from: Side, segment: Segment) -> Wire {
    let Connection { fixed, mobile } = connection(port);
    let (src, dst) = match from {
        Side::Fixed => (fixed, mobile),
        Side::Mobile => (mobile, fixed),
    };
    let segment = Segment { src_port: src.port(), dst_port: dst.port(), window: 5000, ..segment };
    Wire { tcp: Tcp { src, dst, segment }, compressed: None, stubborn: false, sum: (src, dst) }
}

fn isn(side: Side) -> Seq {
    match side {
        Side::Fixed => Seq(FIXED_ISN),
        Side::Mobile => Seq(MOBILE_ISN),
    }
}

fn syn(port: u16, from: Side) -> Wire {
    let options = Options {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps: Some(Timestamps { value: 1, echo: 0 }),
        ..Options::default()
    };
    wire(port, from, Segment { seq: isn(from), flags: Flags::SYN, options, ..Segment::default() })
}

fn syn_ack(port: u16, from: Side) -> Wire {
    let mut packet = syn(port, from);
    packet.tcp.segment.flags = Flags::SYN.with(Flags::ACK);
    packet.tcp.segment.ack = isn(from.other()) + 1;
    packet
}

/// Segment `n` of the end at `from`.
fn data(from: Side, n: u32) -> Wire {
    let (seq, ack) = (isn(from) + 1 + n * LEN, isn(from.other()) + 1);
    let options =
        Options { timestamps: Some(Timestamps { value: n, echo: 7 }), ..Options::default() };
    wire(1, from, Segment { seq, ack, flags: Flags::ACK, len: LEN, options, ..Segment::default() })
}

/// The end at `from` waits for segment `n` of the other.
fn ack(from: Side, n: u32) -> Wire {
    let (seq, ack) = (isn(from) + 1, isn(from.other()) + 1 + n * LEN);
    wire(1, from, Segment { seq, ack, flags: Flags::ACK, ..Segment::default() })
}

fn request(of: Side, ack: u32, nis: u32) -> Request {
    let at = |n: u32| isn(of) + 1 + n * LEN;
    Request { ack: at(ack), nis: at(nis) }
}

fn ms(n: u64) -> Time {
    Time::ZERO + Duration::from_millis(n)
}

/// Both halves of a hop.
struct Hop {
    now: Time,
    base: Unsplit<Wire>,
    mobile: Unsplit<Wire>,
}

/// What one half put on the hop and handed on behind it.
#[derive(Debug, Default)]
struct Said {
    hop: Vec<Wire>,
    messages: Vec<Message>,
    handed: Vec<Wire>,
}

impl Hop {
    fn new() -> Self {
        Self::with(&Config::default())
    }

    fn with(config: &Config) -> Self {
        Self { now: ms(0), base: Unsplit::at_base(config), mobile: Unsplit::at_mobile(config) }
    }

    /// One with a connection opened by the mobile, each end's segment 0 being the next.
    fn open() -> Self {
        let mut hop = Self::new();
        hop.cross(Side::Mobile, syn(1, Side::Mobile));
        hop.cross(Side::Fixed, syn_ack(1, Side::Fixed));
        hop.cross(Side::Mobile, ack(Side::Mobile, 0));
        hop
    }

    fn half(&mut self, side: Side) -> &mut Unsplit<Wire> {
        match side {
            Side::Fixed => &mut self.base,
            Side::Mobile => &mut self.mobile,
        }
    }

    fn said(&mut self, side: Side) -> Said {
        let mut said = Said::default();
        let half = self.half(side);
        let hop = half.hop;
        while let Some(output) = half.poll_output() {
            match output {
                Output::Packet { towards, packet } if towards == hop => said.hop.push(packet),
                Output::Packet { packet, .. } => said.handed.push(packet),
                Output::Message { towards, message } => {
                    assert_eq!(towards, hop, "halves talk to each other only");
                    said.messages.push(message);
                }
                Output::Segment { .. } => panic!("a half makes no segment of its own (ALT-8)"),
            }
        }
        said
    }

    /// The end at `from` sends; what its half puts on the hop.
    fn send(&mut self, from: Side, packet: Wire) -> Vec<Wire> {
        let now = self.now;
        self.half(from).handle_packet(now, from, packet);
        let said = self.said(from);
        assert!(said.handed.is_empty() && said.messages.is_empty(), "{said:?}");
        said.hop
    }

    /// Comes out of the hop at `side`.
    fn arrive(&mut self, side: Side, packet: Wire) -> Said {
        let now = self.now;
        self.half(side).handle_packet(now, side.other(), packet);
        self.said(side)
    }

    fn arrive_message(&mut self, side: Side, message: &Message) -> Said {
        let now = self.now;
        self.half(side).handle_message(now, side.other(), message);
        self.said(side)
    }

    /// The end at `from` sends, and it crosses; what comes out, which is one packet.
    fn cross(&mut self, from: Side, packet: Wire) -> Wire {
        let sent = self.send(from, packet);
        let [packet] = sent[..] else { panic!("{sent:?}") };
        let said = self.arrive(from.other(), packet);
        let [packet] = said.handed[..] else { panic!("{said:?}") };
        packet
    }

    /// Time goes on to `n` ms after the start, and the half at `side` is called if it wants to be.
    fn at(&mut self, n: u64, side: Side) -> Said {
        self.now = ms(n);
        let now = self.now;
        let half = self.half(side);
        if half.next_timeout().is_some_and(|due| due <= now) {
            half.handle_timeout(now);
        }
        assert!(half.next_timeout().is_none_or(|due| due > now), "a timer stays due");
        self.said(side)
    }
}

/// The only packet.
fn one(packets: &[Wire]) -> Wire {
    let [packet] = packets[..] else { panic!("{packets:?}") };
    packet
}

/// The numbers of the segments of the end at `from`.
fn numbers(from: Side, packets: &[Wire]) -> Vec<u32> {
    let first = isn(from) + 1;
    packets.iter().map(|packet| (packet.tcp.segment.seq.0.wrapping_sub(first.0)) / LEN).collect()
}
