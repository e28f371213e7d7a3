//! A base station on the bench: packets and acknowledgements by number.

mod go_back;
mod rules;
mod sack;
mod schedules;
mod soft;
mod trace;

use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr};

use lasthop_units::{Duration, Time};
use lasthop_wire::tcp::{Flags, Segment, Seq};

use super::{Config, Snoop};
use crate::{Agent, Output, Packet, Side, Tcp};

/// Bytes of a segment.
const MSS: u32 = 1000;
/// Of the packet with the number 0: the numbers wrap at the sixth packet.
const ORIGIN: Seq = Seq(u32::MAX - 5499);
/// What the mobile has sent; it sends nothing unless a test says so.
const MOBILE: Seq = Seq(u32::MAX - 1500);

#[derive(Clone, PartialEq, Debug)]
struct Wire {
    tcp: Option<Tcp>,
    payload: Vec<u8>,
}

impl Packet for Wire {
    fn tcp(&self) -> Option<Tcp> {
        self.tcp
    }

    fn set_segment(&mut self, segment: &Segment) {
        if let Some(tcp) = &mut self.tcp {
            tcp.segment = *segment;
        }
    }
}

fn host(last: u8, port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, last), port))
}

fn mobile(n: u8) -> SocketAddr {
    host(100 + n, 5000)
}

fn wire(from: Side, mobile: SocketAddr, segment: Segment) -> Wire {
    let fixed = host(1, 80);
    let (src, dst) = if from == Side::Fixed { (fixed, mobile) } else { (mobile, fixed) };
    Wire { tcp: Some(Tcp { src, dst, segment }), payload: Vec::new() }
}

fn data(n: u32) -> Segment {
    let flags = Flags::ACK;
    Segment { seq: ORIGIN + n * MSS, ack: MOBILE, flags, len: MSS, ..Segment::default() }
}

/// Asks for the packet `n`.
fn ack(n: u32) -> Segment {
    let (seq, ack) = (MOBILE, ORIGIN + n * MSS);
    Segment { seq, ack, flags: Flags::ACK, window: 1000, ..Segment::default() }
}

/// What left the base.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sent {
    /// This packet, to the mobile.
    Data(u32),
    /// A request for this packet, to the fixed host.
    Ack(u32),
    Other,
}

struct Base {
    agent: Snoop<Wire>,
    now: Time,
}

impl Base {
    fn new(config: Config) -> Self {
        Self { agent: Snoop::new(config), now: Time::ZERO }
    }

    /// Lets time pass, timers included.
    fn wait(&mut self, ms: u64) -> Vec<(u64, Sent)> {
        let until = self.now + Duration::from_millis(ms);
        let mut sent = vec![];
        while let Some(at) = self.agent.next_timeout().filter(|at| *at <= until) {
            assert!(at >= self.now);
            self.now = at;
            self.agent.handle_timeout(at);
            sent.extend(self.sent().into_iter().map(|sent| (at.as_nanos() / 1_000_000, sent)));
        }
        self.now = until;
        sent
    }

    fn hand(&mut self, from: Side, packet: Wire) -> Vec<Output<Wire>> {
        self.agent.handle_packet(self.now, from, packet);
        core::iter::from_fn(|| self.agent.poll_output()).collect()
    }

    fn fixed_sends(&mut self, segment: Segment) -> Vec<Sent> {
        let out = self.hand(Side::Fixed, wire(Side::Fixed, mobile(0), segment));
        out.iter().map(name).collect()
    }

    fn mobile_sends(&mut self, segment: Segment) -> Vec<Sent> {
        let out = self.hand(Side::Mobile, wire(Side::Mobile, mobile(0), segment));
        out.iter().map(name).collect()
    }

    /// The fixed host sends these packets.
    fn data(&mut self, numbers: core::ops::Range<u32>) {
        for n in numbers {
            assert_eq!(self.fixed_sends(data(n)), [Sent::Data(n)], "handed on once");
        }
    }

    fn ack(&mut self, n: u32) -> Vec<Sent> {
        self.mobile_sends(ack(n))
    }

    fn sent(&mut self) -> Vec<Sent> {
        core::iter::from_fn(|| self.agent.poll_output()).map(|out| name(&out)).collect()
    }
}

fn name(out: &Output<Wire>) -> Sent {
    let Output::Packet { towards, packet } = out else { return Sent::Other };
    let Some(tcp) = packet.tcp() else { return Sent::Other };
    match towards {
        Side::Mobile => Sent::Data(tcp.segment.seq.0.wrapping_sub(ORIGIN.0) / MSS),
        Side::Fixed => Sent::Ack(tcp.segment.ack.0.wrapping_sub(ORIGIN.0) / MSS),
    }
}
