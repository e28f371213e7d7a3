//! Every agent, whatever passes it: nothing panics, what it sends on came in with the same bytes,
//! what it keeps stays within its settings, and its timers never spin.

use core::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use arbitrary::Unstructured;
use lasthop_agent::link::{LinkConfig, LinkRetransmission};
use lasthop_agent::m_tcp::{MTcp, MTcpConfig};
use lasthop_agent::obtcp::{self, Base, Eviction, Memory, Router};
use lasthop_agent::snoop::{self, Snoop, Timer};
use lasthop_agent::unsplit::{self, Unsplit};
use lasthop_agent::{Agent, Connection, Output, Packet, Side, Tcp};
use lasthop_units::{Bytes, LinkEvent, Time};
use lasthop_wire::agent::{Message, Ranges};
use lasthop_wire::tcp::{Flags, Options, Segment, Seq, Timestamps};
use lasthop_wire::unsplit::{Header, Request};

/// Where sequence numbers begin, on either side: they soon wrap.
const ORIGIN: u32 = u32::MAX - 3000;
/// Connections that agents know at most.
const CONNECTIONS: usize = 2;
/// More than that upon one input would be an agent that does not stop.
const BURST: usize = 3000;
/// How often a timer may be due at once.
const ROUNDS: usize = 200;
/// Inputs of one run.
const STEPS: usize = 400;

/// The next value; zero where the input has ended.
fn next<'a, T: arbitrary::Arbitrary<'a> + Default>(input: &mut Unstructured<'a>) -> T {
    input.arbitrary().unwrap_or_default()
}

/// A packet that knows which one it is.
#[derive(Clone, PartialEq, Debug)]
struct Wire {
    id: usize,
    tcp: Option<Tcp>,
    frame: Option<u32>,
    compressed: Option<Header>,
    /// It was expanded to another connection's, as its checksum tells.
    wrong: bool,
}

impl Packet for Wire {
    fn tcp(&self) -> Option<Tcp> {
        self.tcp.filter(|_| self.compressed.is_none() && !self.wrong)
    }

    fn set_segment(&mut self, segment: &Segment) {
        if let Some(tcp) = &mut self.tcp {
            tcp.segment = Segment { len: tcp.segment.len, ..*segment };
        }
    }

    fn frame(&self) -> Option<u32> {
        self.frame
    }

    fn set_frame(&mut self, frame: Option<u32>) {
        self.frame = frame;
    }

    fn compressed(&self) -> Option<Header> {
        self.compressed
    }

    fn compress(&mut self, header: &Header) -> bool {
        // Every seventh has something that a compressed header cannot tell.
        let can = self.tcp().is_some() && !self.id.is_multiple_of(7);
        if can {
            self.compressed = Some(*header);
        }
        can
    }

    fn expand(&mut self, src: SocketAddr, dst: SocketAddr) {
        self.compressed = None;
        if let Some(tcp) = &mut self.tcp {
            self.wrong = (tcp.src, tcp.dst) != (src, dst);
            (tcp.src, tcp.dst) = (src, dst);
        }
    }
}

/// Runs the input's steps on an agent that `kept` looks into.
fn drive<A: Agent<Wire>>(input: &mut Unstructured<'_>, mut agent: A, kept: impl Fn(&A) -> bool) {
    let mut now = Time::from_secs(1);
    let mut came: Vec<(Side, Wire)> = Vec::new();
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        let side = if next::<bool>(input) { Side::Fixed } else { Side::Mobile };
        match next::<u8>(input) % 16 {
            0 => now += Duration::from_millis(next::<u16>(input).into()),
            1 => agent.handle_message(now, side, &message(input)),
            2 => agent.handle_link_event(now, event(input)),
            3 => agent.remove_mobile(host(2, 0).ip()),
            4..=6 => {
                // What was sent, or what is asked for, comes again.
                let again = came.len().checked_sub(1 + usize::from(next::<u8>(input) % 8));
                if let Some((side, packet)) = again.and_then(|at| came.get(at)).cloned() {
                    agent.handle_packet(now, side, packet);
                }
            }
            _ => {
                let packet = packet(input, side, came.len());
                came.push((side, packet.clone()));
                agent.handle_packet(now, side, packet);
            }
        }
        check_outputs(&mut agent, &came);
        let mut rounds = 0;
        while agent.next_timeout().is_some_and(|at| at <= now) {
            agent.handle_timeout(now);
            check_outputs(&mut agent, &came);
            rounds += 1;
            assert!(rounds < ROUNDS, "a timer stays due");
        }
        assert!(kept(&agent), "it keeps too much");
    }
}

/// What an agent hands on came in on the other side; its addresses, numbers and length are the
/// same.
fn check_outputs<A: Agent<Wire>>(agent: &mut A, came: &[(Side, Wire)]) {
    for n in 0.. {
        assert!(n < BURST, "an agent does not stop");
        let Some(output) = agent.poll_output() else { return };
        let Output::Packet { towards, packet } = output else { continue };
        let (side, original) = &came[packet.id];
        assert_eq!(*side, towards.other());
        let told = |packet: &Wire| {
            let tcp = packet.tcp?;
            Some((tcp.src, tcp.dst, tcp.segment.seq, tcp.segment.len, tcp.segment.flags))
        };
        assert_eq!(told(&packet), told(original));
    }
}

fn host(last: u8, port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(192, 0, 2, last), port))
}

fn connection(input: &mut Unstructured<'_>) -> Connection {
    let port = next::<u8>(input) % 4;
    Connection { fixed: host(1, 80), mobile: host(2, 5000 + u16::from(port)) }
}

/// Mostly near each other, as they are in truth.
fn seq(input: &mut Unstructured<'_>) -> Seq {
    match next::<u8>(input) {
        near if near < 230 => Seq(ORIGIN) + u32::from(near) * 100,
        _ => Seq(next(input)),
    }
}

fn packet(input: &mut Unstructured<'_>, side: Side, id: usize) -> Wire {
    let [kind, flags, size]: [u8; 3] = next(input);
    let frame = (kind & 1 == 1).then(|| u32::from(next::<u8>(input)));
    if kind > 240 {
        return Wire { id, tcp: None, frame, compressed: None, wrong: false };
    }
    let connection = connection(input);
    let (src, dst) = match side {
        Side::Fixed => (connection.fixed, connection.mobile),
        Side::Mobile => (connection.mobile, connection.fixed),
    };
    // Mostly an acknowledgement and nothing else.
    let flags = if flags < 200 { Flags::ACK } else { Flags::from_bits(next(input)) };
    let mut options = Options::default();
    if kind & 2 == 2 {
        let [value, echo]: [u8; 2] = next(input);
        options.timestamps = Some(Timestamps { value: value.into(), echo: echo.into() });
    }
    if kind & 12 == 12 {
        options.cid = Some(cid(input));
    }
    for _ in 0..(kind >> 2 & 3) {
        options.sack.push(seq(input), seq(input));
    }
    let len = match size {
        0..100 => 0,
        100..220 => 100,
        220..250 => u32::from(size) * 7,
        _ => next(input),
    };
    let segment = Segment {
        src_port: src.port(),
        dst_port: dst.port(),
        seq: seq(input),
        ack: seq(input),
        flags,
        window: [0, 100, 100, 100, 5000, u16::MAX][usize::from(kind >> 4) % 6],
        options,
        len,
    };
    let compressed = next::<bool>(input).then(|| header(input));
    Wire { id, tcp: Some(Tcp { src, dst, segment }), frame, compressed, wrong: false }
}

fn cid(input: &mut Unstructured<'_>) -> u16 {
    u16::from(next::<u8>(input) % 8)
}

fn header(input: &mut Unstructured<'_>) -> Header {
    let bits: u8 = next(input);
    let on = |bit: u8| bits >> bit & 1 == 1;
    Header {
        cid: cid(input),
        cycle: on(0),
        reply: on(1),
        repeat: on(2),
        request: on(3).then(|| Request { ack: seq(input), nis: seq(input) }),
        offer: on(4).then(|| cid(input)),
    }
}

fn message(input: &mut Unstructured<'_>) -> Message {
    let connection = connection(input);
    let kind: u8 = next(input);
    let mut ranges = Ranges::default();
    for _ in 0..kind >> 3 {
        ranges.push(seq(input), seq(input));
    }
    match kind & 7 {
        0 => Message::Snack { connection, missing: ranges },
        1 => Message::Congestion { connection, lost: ranges },
        2 => Message::BadState { connection },
        3 => {
            let request = Request { ack: seq(input), nis: seq(input) };
            Message::Request { cid: cid(input), reply: kind & 8 == 8, request }
        }
        4 => Message::UnknownCid { cid: cid(input) },
        _ => Message::LinkAck { latest: next::<u8>(input).into(), come: next(input) },
    }
}

fn event(input: &mut Unstructured<'_>) -> LinkEvent {
    match next::<u8>(input) % 4 {
        0 => LinkEvent::Up,
        1 => LinkEvent::Down,
        2 => LinkEvent::Imminent { lead: Duration::from_millis(100) },
        _ => LinkEvent::Complete,
    }
}

fn memory(switches: u8) -> Memory {
    Memory {
        segments: 16,
        bytes: Bytes::from_kib(16),
        eviction: if switches & 1 == 1 { Eviction::Lowest } else { Eviction::Newest },
        connections: CONNECTIONS,
        idle: Duration::from_secs(20),
    }
}

/// One input: an agent with its settings, then what comes by.
pub fn run(bytes: &[u8]) {
    let input = &mut Unstructured::new(bytes);
    let [which, switches, size]: [u8; 3] = next(input);
    let on = |bit: u8| switches >> bit & 1 == 1;
    match which % 8 {
        0 => {
            let config = snoop::Config {
                dupacks: u32::from(size % 3),
                timer: [Timer::Measured, Timer::Stock, Timer::Pinned(Duration::ZERO)]
                    [usize::from(size >> 2) % 3],
                tries: u32::from(size >> 4),
                segments: 1 + usize::from(size % 16),
                memory: Bytes::new(u64::from(size) * 100),
                connections: CONNECTIONS,
                idle: Duration::from_secs(20),
                use_sack: on(0),
                hide_sack: on(1),
                eln: on(2),
                go_back: on(3),
                heed_backlog: on(4),
                ..snoop::Config::default()
            };
            drive(input, Snoop::new(config.clone()), |agent| {
                agent.memory() <= config.memory
                    && agent.kept() <= config.segments * CONNECTIONS
                    && agent.connections() <= CONNECTIONS
            });
        }
        1 => {
            let config = obtcp::Config {
                memory: memory(switches),
                timers: on(1),
                heed_backlog: on(2),
                ..obtcp::Config::default()
            };
            let agent = Base::new(config).expect("settings in their bounds");
            drive(input, agent, |agent| agent.cached() <= 16 * CONNECTIONS);
        }
        2 => {
            let config = obtcp::Config {
                memory: memory(switches),
                timers: on(1),
                go_back_n: !on(2),
                dupacks: 1 + u32::from(size % 3),
                tries: 1 + u32::from(size >> 6),
                partial_acks: on(3),
                gaps: 1 + usize::from(size % 32),
                snacks: 1 + u32::from(size >> 5 & 1),
                replay: u32::from(size % 5),
                detect_lost_retransmissions: on(4),
                ..obtcp::Config::default()
            };
            let agent = Router::new(config).expect("settings in their bounds");
            let most = config.gaps * CONNECTIONS;
            drive(input, agent, |agent| agent.cached() <= 16 * CONNECTIONS && agent.gaps() <= most);
        }
        3 => {
            let config = MTcpConfig {
                connections: CONNECTIONS,
                buffer: 1 + usize::from(size % 32),
                hop_window: 1 + usize::from(size >> 5),
                idle: Duration::from_secs(20),
                ..MTcpConfig::default()
            };
            drive(input, MTcp::new(&config), |agent| agent.kept() <= config.buffer * CONNECTIONS);
        }
        end @ (6 | 7) => {
            let config = unsplit::Config {
                segments: 1 + usize::from(size % 16),
                memory: Bytes::new(u64::from(size) * 100),
                connections: CONNECTIONS,
                idle: Duration::from_secs(20),
                first_cid: if on(0) { u16::MAX } else { 1 },
                tries: u32::from(size >> 4),
                tick: Duration::from_millis(u64::from(switches) * 2),
                ride: Duration::from_millis(u64::from(on(1))),
                gaps: usize::from(size % 4),
                mtu: if on(2) { 576 } else { 1500 },
                hide_sack: on(3),
                ..unsplit::Config::default()
            };
            let agent = match end {
                6 => Unsplit::at_base(&config),
                _ => Unsplit::at_mobile(&config),
            };
            drive(input, agent, |agent| {
                agent.memory() <= config.memory
                    && agent.kept() <= config.segments * CONNECTIONS
                    && agent.connections() <= CONNECTIONS
            });
        }
        end => {
            let config = LinkConfig {
                retries: u32::from(size % 4),
                copies: 1 + usize::from(size),
                in_order: on(0),
                notify: on(1),
                first_frame: if on(2) { u32::MAX - 5 } else { 0 },
                ..LinkConfig::default()
            };
            let agent = match end {
                4 => LinkRetransmission::at_base(&config),
                _ => LinkRetransmission::at_mobile(&config),
            };
            drive(input, agent, |agent| agent.kept() <= config.copies);
        }
    }
}
