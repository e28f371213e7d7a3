//! Every fuzz target for a moment: samples, changed at random and without end, by a seed that is
//! printed. `LASTHOP_FUZZ_ROUNDS=n` sets how many inputs each target gets, `LASTHOP_FUZZ_SEED=n`
//! where they start.

use std::env;
use std::net::SocketAddr;

use lasthop_fuzz::{
    agent_messages, agents, associations, bare, beside, datagram, frames, handoff,
    handoff_messages, handshake, helper_messages, http_connect, image, mhp, mobile_ip,
    mobile_tcp_packets, netlink, packet, scenario, socks5, split_tcp, srp, station, tcp,
    tcp_streams, udp_relay,
};
use lasthop_migrate::{Image, Ticket};
use lasthop_units::{Seed, Stream};
use lasthop_wire::agent::{Connection, Message, Ranges};
use lasthop_wire::ip::{Addresses, Header, Protocol};
use lasthop_wire::mobile_tcp::{self, Code, Control, DataHeader, Extension};
use lasthop_wire::tcp::{Flags, Options, Segment, Seq, Timestamps};
use lasthop_wire::udp;
use lasthop_wire::unsplit::Request;

const ROUNDS: u64 = 400_000;
const LONGEST: u64 = 2_000;
/// Bytes that decoders look for, and the edges of their numbers.
const INTERESTING: &[u8] = &[0, 1, 2, 4, 5, 0x10, 0x3f, 0x40, 0x7f, 0x80, 0xbf, 0xc0, 0xff];

fn setting(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| value.parse().expect("a number"))
}

fn place(numbers: &mut Stream, len: usize) -> usize {
    numbers.below(len as u64 + 1) as usize
}

/// One change: bytes turned, set, cut, doubled or put in.
fn change(input: &mut Vec<u8>, numbers: &mut Stream) {
    let at = place(numbers, input.len());
    match numbers.below(6) {
        0 => input.truncate(at),
        1 => input.insert(at, INTERESTING[numbers.below(INTERESTING.len() as u64) as usize]),
        2 => {
            let mut noise = vec![0; numbers.below(40) as usize];
            numbers.fill(&mut noise);
            input.splice(at..at, noise);
        }
        3 => input.extend_from_within(at..),
        4 => {
            if let Some(byte) = input.get_mut(at) {
                *byte = numbers.next_u64() as u8;
            }
        }
        _ => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << numbers.below(8);
            }
        }
    }
    input.truncate(LONGEST as usize);
}

/// An input: noise, or a sample with a few changes.
fn input(samples: &[&[u8]], numbers: &mut Stream) -> Vec<u8> {
    if samples.is_empty() || numbers.chance(0.2) {
        let mut noise = vec![0; numbers.below(300) as usize];
        numbers.fill(&mut noise);
        return noise;
    }
    let mut input = samples[numbers.below(samples.len() as u64) as usize].to_vec();
    for _ in 0..numbers.below(8) {
        change(&mut input, numbers);
    }
    input
}

/// Prints what it was when the target panics.
struct Told<'a>(&'a [u8]);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input was {:02x?}", self.0);
        }
    }
}

fn smoke(name: &str, share: u64, run: fn(&[u8]), samples: &[&[u8]]) {
    let seed = setting("LASTHOP_FUZZ_SEED").unwrap_or(1);
    let rounds = setting("LASTHOP_FUZZ_ROUNDS").unwrap_or(ROUNDS).div_ceil(share);
    println!("{name}: {rounds} inputs from seed {seed}");
    let mut numbers = Seed::from_u64(seed).stream(name);
    for sample in samples {
        run(sample);
    }
    for _ in 0..rounds {
        let input = input(samples, &mut numbers);
        let _told = Told(&input);
        run(&input);
    }
}

/// One message of each kind.
#[test]
fn messages_of_agents() {
    let at = |host, port| SocketAddr::from(([192, 0, 2, host], port));
    let connection = Connection { fixed: at(1, 80), mobile: at(2, 5000) };
    let mut ranges = Ranges::default();
    ranges.push(Seq(u32::MAX - 99), Seq(0));
    ranges.push(Seq(100), Seq(2000));
    let samples = [
        Message::Snack { connection, missing: ranges },
        Message::Congestion { connection, lost: ranges },
        Message::BadState { connection },
        Message::LinkAck { latest: 70, come: 0b101 },
        Message::Request { cid: 3, reply: true, request: Request { ack: Seq(9), nis: Seq(99) } },
        Message::UnknownCid { cid: 3 },
    ];
    let samples = samples.map(|message| {
        let mut out = vec![0; Message::MAX_LEN];
        let len = message.emit(&mut out).expect("room for it");
        out.truncate(len);
        out
    });
    let samples: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
    smoke("agent_messages", 1, agent_messages::run, &samples);
}

#[test]
fn agents_in_the_path() {
    // Data of one connection from the fixed host, then acknowledgements of it, for each agent.
    let data = |n: u8| [0x01, 7, 0, 0, 150, 0, n, 10];
    let ack = |n: u8| [0x00, 7, 16, 0, 0, 0, 10, n];
    let traffic: Vec<u8> = (10..30).flat_map(data).chain((5..40).flat_map(ack)).collect();
    let samples =
        [0, 1, 2, 3, 4, 5, 6, 7].map(|agent| [&[agent, 0b1011, 77], &traffic[..]].concat());
    let mut samples: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
    // A segment longer than any packet, with room for a CID.
    samples.push(&[
        0xff, 0xd7, 0xc0, 0xfe, 0xaf, 0x40, 0xff, 0xfe, 0xaf, 0x40, 0xff, 0xff, 0xff, 0xff,
    ]);
    smoke("agents", 2, agents::run, &samples);
}

/// Several mobiles at one base, one of which means harm.
#[test]
fn associations_at_a_base() {
    let calls = [1, 0, 1, 7, 2, 2, 6, 40, 9, 30];
    let repeats = [3, 2, 0, 3, 6, 1, 4, 3, 0, 0, 60, 9, 3, 0, 2, 9, 200];
    let honest = [0, 0, 9, 20, 0, 1, 3, 2, 0, 3, 2, 1];
    let noise = [5, 9, 0x10, 1, 2, 3, 4, 5, 6, 7, 8, 7, 0, 9, 255];
    let all = [&calls[..], &repeats, &honest, &noise, &calls, &repeats, &repeats].concat();
    let many = [&[1], &calls[..], &calls, &calls, &repeats, &honest].concat();
    let one = [&[0], &all[..]].concat();
    smoke("associations", 400, associations::run, &[&one, &many, &[0], &[1, 0, 0]]);
}

/// Openings, data both ways, restarts of either end, and packets of others.
#[test]
fn bare_hop() {
    // Opens at one end, carries across, writes and reads.
    let pass = [24, 255, 25, 255, 31, 40, 24, 255, 25, 255];
    let one = [&pass[..], &[0, 0, 2, 12], &pass, &pass, &[9, 12, 11, 9]].concat();
    let both = [&one[..], &[1, 0, 3, 12], &pass, &pass, &[8, 13, 12, 1], &pass].concat();
    let restarts = [&both[..], &[16, 31], &one, &[17, 31, 2, 12], &pass, &one].concat();
    let stranger = [&one[..], &[255, 5, 0, 0x10], &pass, &[255, 100, 0, 0x10, 0, 1], &one].concat();
    let forged = [0, 0x18, 0, 1, 0x80, 0, 0, 0, 0x40, 0, 0, 0, b'x'];
    let named = [&one[..], &[255, 2 * forged.len() as u8 + 1], &forged, &pass].concat();
    smoke("bare", 20, bare::run, &[&one, &both, &restarts, &stranger, &named]);
}

/// Each kind of frame between agents, and two TCP headers with options that differ.
#[test]
fn frames_between_agents() {
    let hello = [1, 1, 0, 0, 0, 7, 0, 0, 0, 8, 0, 0];
    let message = [1, 2, 1, 4, 0, 0, 0, 70, 0, 0, 0, 0, 0, 0, 0, 5];
    let numbered = [1, 3, 0, 0, 0, 9, 8, 0, 0x45, 0, 0, 20];
    let fixed =
        |words: u8| [0, 80, 15, 160, 0, 0, 0, 1, 0, 0, 0, 2, words << 4, 16, 1, 0, 0, 0, 0, 0];
    let stamps = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
    let sack = [&stamps[..], &[1, 1, 5, 10, 0, 0, 1, 0, 0, 0, 2, 0]].concat();
    let syn = [2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7];
    let unknown = [2, 4, 5, 180, 254, 6, 76, 72, 0, 1, 253, 4, 69, 76, 34, 2, 0, 0, 0, 0];
    let two = [&fixed(11)[..], &sack, &fixed(11), &sack].concat();
    let openings = [&fixed(10)[..], &syn, &fixed(10), &unknown].concat();
    smoke("beside", 1, beside::run, &[&hello, &message, &numbered, &two, &openings]);
}

#[test]
fn datagrams() {
    // Zeros behind version and kind, in lengths that kinds 0 to 4 and a hello have.
    let of_kind = |kind: u8, len: usize| [vec![0x10 | kind], vec![0; len - 1]].concat();
    let whole = [(0, 60), (1, 150), (2, 110), (3, 80), (4, 50), (3, 302)]
        .map(|(kind, len)| of_kind(kind, len));
    let hello = [vec![1], vec![0; 40]].concat();
    let samples: Vec<&[u8]> = whole.iter().chain([&hello]).map(Vec::as_slice).collect();
    smoke("datagram", 1, datagram::run, &samples);
}

#[test]
fn srp_frames() {
    let ack = [2, 9, 0, 0, 1, 0, 3, 8, 5, 0b0101];
    let stream = [0x12, 4, 0, 5, b'b', b'y', b't', b'e', b's', 0x13, 4, 5, 0, 1, 4, 3, 7];
    let others = [5, 0x80, 0, 1, 0, 6, 4, 0x40, 9, 7, 8, 4, 9, 2, 77, 9, 10, 3, 0, 0, 0];
    smoke("frames", 1, frames::run, &[&ack, &stream, &others]);
}

/// A session, an attempt, and what follows them in a handoff's datagrams.
fn of_handoff(kind: u8, message: &[u8]) -> Vec<u8> {
    let common = [1, kind, 0, 14 + message.len() as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 3];
    [&common, message].concat()
}

#[test]
fn handoff_messages() {
    let greet = of_handoff(20, &[0, 0, 0, 2, 4, 0, 0, 0, 1]);
    let handover = of_handoff(22, &[0, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 32, 0, 0, 0, 1]);
    let pull = of_handoff(23, &[4, 0, 2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 5, 0, 1]);
    let state = of_handoff(24, &[[0; 20].as_slice(), b"piece"].concat());
    let reopen = [[16, 0, 4], [0; 3]].concat();
    let reopen = [&reopen[..], &[0; 28], &[0, 80, 192, 0, 2, 1, 1]].concat();
    let reopened = [17, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0];
    let roll = [18, 1, 0, 0, 0, 0, 0, 0, 0, 7, 3, 4, 0x44, 0, 0x80, 1, 0, 0];
    let whole = [&[1, 0][..], &[0; 16], &[0, 0, 0, 2, 7, 7], &[0, 0, 0, 1], &[0; 17]].concat();
    let connection = [&[0; 8][..], &[4, 0, 0, 0, 3, 0, 80, 1, 192, 0, 2, 1, 0], &[0; 28]].concat();
    let len = [0, 0, 0, connection.len() as u8];
    let whole = [&whole[..], &[0, 0, 0, 1], &len, &connection].concat();
    let samples = [greet, handover, pull, state, reopen, reopened.into(), roll.into(), whole];
    let samples: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
    smoke("handoff_messages", 1, handoff_messages::run, &samples);
}

#[test]
fn handoffs() {
    let numbers: Vec<u8> = (0..200).map(|n: u8| n.wrapping_mul(37)).collect();
    // Up to the second base, with all that follows delivered and answered.
    let moved = [&[6, 1][..], &[5, 0, 7, 1, 9, 20].repeat(12)].concat();
    let back = [&moved[..], &[6, 0], &[5, 0, 7, 1, 9, 20].repeat(12)].concat();
    smoke("handoff", 10, handoff::run, &[&numbers, &moved, &back]);
}

/// A mobile and a base that mean harm beside two that do not.
#[test]
fn stations() {
    // Every operation, with each argument, at once and with time between.
    let all: Vec<u8> = (0..=255).flat_map(|n: u8| [n, n.wrapping_mul(29), 19, 20]).collect();
    let numbers: Vec<u8> = (0..400_u32).map(|n| ((n * n) >> 3) as u8).collect();
    // The insider has connections, and moves with them: to the other base, to the harmful one, which asks for what
    // stays, and back, with a state of that one's making.
    let connects = [13, 0, 13, 1, 13, 8, 19, 9];
    let between = [&connects[..], &[16, 12, 19, 20, 19, 9, 16, 4, 19, 20]].concat();
    let leaves = [&connects[..], &[16, 20, 19, 20, 18, 0, 1, 1, 18, 2, 1, 1, 17, 2]].concat();
    let given = [7, 0, 3, 3, 17, 33, 3, 3, 17, 33, 4, 1, 9, 9, 2, 200];
    let comes = [&leaves[..], &[16, 4], &given, &[12, 0, 12, 2, 19, 60], &connects].concat();
    let both = [&between[..], &comes, &leaves, &[16, 12], &given, &between, &[19, 255]].concat();
    // A state said of a connection that it was being opened, and that its wired half was at another base.
    let opens = [
        13, 0, 13, 1, 13, 8, 19, 9, 16, 20, 19, 20, 18, 0, 1, 1, 18, 2, 79, 1, 17, 2, 16, 4, 7, 0,
        3, 3, 17, 33, 3, 3, 17, 33, 4, 1, 9, 9, 151, 42, 208, 122, 244, 67, 231, 10, 242, 13, 133,
        255, 184, 153, 93, 40, 193, 65, 189, 7, 134, 232, 216, 84, 2, 200, 12, 0, 12, 2, 19, 255,
        60, 13, 0, 13, 1, 13, 8, 19, 9,
    ];
    let samples = [&all[..], &numbers, &between, &leaves, &comes, &both, &opens];
    smoke("station", 40, station::run, &samples);
}

#[test]
fn handshakes() {
    smoke("handshake", 20, handshake::run, &[&[3, 0], &[5, 0, 0], &[0, 1], &[2, 0], &[4, 8, 8]]);
}

#[test]
fn http_requests() {
    let connect =
        b"CONNECT host.example:443 HTTP/1.1\r\nHost: host.example:443\r\n\r\n\x16\x03\x01";
    let get = b"GET http://[2001:db8::1]:8080/file HTTP/1.1\r\nConnection: x\r\nX: y\r\n\r\n";
    smoke("http_connect", 2, http_connect::run, &[connect, get, b"X: y\r\n\r\n"]);
}

#[test]
fn mhp_messages() {
    let samples: &[&[u8]] = &[
        &[1, 1, 0, 8, 0, 1, 0, 80, 192, 0, 2, 1],
        &[1, 1, 0, 9, 0, 3, 0, 80, 4, b'h', b'o', b's', b't', b'G'],
        &[1, 2, 0, 7, 1, 0, 80, 192, 0, 2, 1, b'x'],
        &[1, 3, 0, 3, 1, 0, 0],
    ];
    smoke("mhp", 10, mhp::run, samples);
}

#[test]
fn messages_of_the_helper() {
    let (v4, v6) = ([0, 10, 9, 0, 7], [&[1, 0x20, 1][..], &[7; 14]].concat());
    let (from, to) = ([&v4[..], &[80]].concat(), [&v4[..], &[0x90, 0x3f]].concat());
    let text = |text: &str| [&[text.len() as u8][..], text.as_bytes()].concat();
    let (name, network) = (text("eth0"), text("10.9.0.0/24"));
    let requests: [&[&[u8]]; 9] = [
        &[&[2, 0]],
        &[&[2, 1, 1]],
        &[&[2, 2, 1], &from, &[1, 0x80, 0x80, 4, 0x80, 0x80, 4]],
        &[&[2, 3, 1], &from, &to],
        &[&[2, 5, 1], &network],
        &[&[2, 6, 2], &v4, &v6],
        &[&[2, 7], &v4, &[0], &v4],
        &[&[2, 7], &v6, &[1], &name],
        &[&[2, 9], &v4, &name],
    ];
    let answers: [&[&[u8]]; 3] = [&[&[2, 0]], &[&[2, 1, 1, 26]], &[&[2, 2], &name]];
    let samples: Vec<Vec<u8>> =
        requests.iter().chain(&answers).map(|parts| parts.concat()).collect();
    let samples: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
    smoke("helper_messages", 1, helper_messages::run, &samples);
}

#[test]
fn images_of_connections() {
    let ends = [0, 10, 9, 0, 7, 0xa0, 0x1f, 0, 192, 0, 2, 1, 80];
    let number = [0x80, 0x20];
    let text = |text: &[u8]| [&[text.len() as u8][..], text].concat();
    let began = [
        &ends[..],
        &[0xb4, 0x0b, 1, 7, 9, 1, 1],
        &number.repeat(3),
        &[1, 0, 0, 0],
        &text(b"cubic"),
    ]
    .concat();
    let whole = [
        &[5][..],
        &ends,
        &[0, 1, 0xb4, 0x0b, 1, 7, 9, 1, 1],
        &number.repeat(2),
        &text(b"unread"),
        &number,
        &text(b""),
        &text(b"not sent"),
        &number.repeat(7),
        &[1, 0, 0, 0],
        &text(b"cubic"),
        &[1],
        &began,
        &number,
        &[1],
        &number,
    ]
    .concat();
    assert!(Image::decode(&whole).is_ok(), "{:?}", Image::decode(&whole));
    let ticket = [&[1][..], &began].concat();
    assert!(Ticket::decode(&ticket).is_ok(), "{:?}", Ticket::decode(&ticket));
    smoke("image", 2, image::run, &[&whole, &whole[..whole.len() - 3], &ticket]);
}

#[test]
fn mobile_ip_messages() {
    let advertisement =
        [&[9, 0, 0, 0, 1, 2, 0, 30, 10, 0, 0, 1, 0, 0, 0, 0, 16, 10][..], &[1; 10]].concat();
    let request = [&[1, 0, 0, 60][..], &[10; 20], &[148, 6, 0, 24, 10, 1, 0, 0, 32, 20], &[0; 20]];
    let previous = [&[1, 0, 0, 60][..], &[10; 20], &[200, 30], &[0; 30]].concat();
    let reply = [&[3, 0, 0, 60][..], &[10; 16]].concat();
    let update = [&[18, 0, 0, 0][..], &[10; 16]].concat();
    let samples = [vec![10, 0, 0, 0, 0, 0, 0, 0], advertisement, request.concat(), previous];
    let samples: Vec<&[u8]> = samples.iter().chain([&reply, &update]).map(Vec::as_slice).collect();
    smoke("mobile_ip", 1, mobile_ip::run, &samples);
}

#[test]
fn mobile_tcp_packets() {
    let mut request = [b'd'; mobile_tcp::DATA_HEADER + 11];
    let code = Code::ACK.with(Code::RRQ).with(Code::RCR);
    DataHeader { code, window: 16_384, ..DataHeader::default() }
        .emit(11, &mut request)
        .expect("room for it");
    let mut opening = [0; mobile_tcp::CONTROL_HEADER];
    let control = Control { code: Code::SYN, max_packet: 1460, ..Control::default() };
    control.emit(&mut opening).expect("room for it");
    let mut extended = [0; 60];
    let extensions = [Extension::Message(&[1, 1, 0, 2, 0, 9]), Extension::ResetCode(1 << 20)];
    control.emit_extended(&extensions, &mut extended).expect("room for it");
    smoke("mobile_tcp_packets", 1, mobile_tcp_packets::run, &[&request, &opening, &extended]);
}

#[test]
fn packets() {
    let between = |[src, dst]: [&str; 2]| {
        let [src, dst] = [src, dst].map(|address| address.parse().expect("an address"));
        Addresses::new(src, dst).expect("one version")
    };
    let [v4, v6] = [["192.0.2.1", "192.0.2.2"], ["2001:db8::1", "2001:db8::2"]].map(between);
    let mut sack =
        Options { timestamps: Some(Timestamps { value: 5, echo: 6 }), ..Options::default() };
    sack.sack.push(Seq(9), Seq(12));
    let mss = Options {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        ..Options::default()
    };
    let mut samples = Vec::new();
    for (between, options) in [(v4, sack), (v6, mss)] {
        let segment = Segment { flags: Flags::ACK, options, len: 5, ..Segment::default() };
        let mut inner = Vec::new();
        segment.emit(&between, b"bytes", &mut inner).expect("as long as it says");
        let mut datagram = Vec::new();
        let ports = udp::Header { src_port: 434, dst_port: 434 };
        ports.emit(&between, b"bytes", &mut datagram).expect("short");
        for (protocol, inner) in [(Protocol::TCP, &inner), (Protocol::UDP, &datagram)] {
            let header = Header::new(between, protocol);
            let mut packet = Vec::new();
            header.emit(inner.len(), &mut packet).expect("short");
            packet.extend_from_slice(inner);
            let mut tunnelled = Vec::new();
            header.encapsulated(v4).emit(packet.len(), &mut tunnelled).expect("short");
            tunnelled.extend_from_slice(&packet);
            samples.extend([packet, tunnelled]);
        }
        samples.extend([inner, datagram]);
    }
    // Behind a header of options for the next hop.
    let fixed = [&[0x60, 0, 0, 0, 0, 16, 0, 64][..], &[1; 32], &[17, 0, 1, 4, 0, 0, 0, 0]].concat();
    samples.push([&fixed[..], &[0, 1, 0, 2, 0, 8, 0, 0]].concat());
    let compressed = [&[0xae, 0x7b][..], &[0; 10], &[0x60, 0x10], &[0; 40]].concat();
    samples.push(compressed);
    let samples: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
    smoke("packet", 2, packet::run, &samples);
}

#[test]
fn scenarios() {
    let samples: &[&[u8]] = &[
        include_bytes!("../../docs/examples/sim-disconnections.toml"),
        include_bytes!("../../docs/examples/sim-handoff.toml"),
        include_bytes!("../../docs/examples/sim-loss.toml"),
    ];
    smoke("scenario", 200, scenario::run, samples);
}

#[test]
fn socks_requests() {
    let name = [5, 1, 0, 5, 1, 0, 3, 4, b'h', b'o', b's', b't', 0, 80];
    let address = [5, 1, 0, 5, 1, 0, 1, 192, 0, 2, 1, 0, 80];
    let reply = [5, 0, 5, 0, 0, 1, 192, 0, 2, 1, 0, 80, b'x'];
    let associate = [5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0];
    smoke("socks5", 1, socks5::run, &[&name, &address, &reply, &associate]);
}

#[test]
fn srp_operations() {
    let one = [0, 0, 2, 12, 12, 0, 21, 80, 20, 80, 26, 200, 9, 12, 13, 0];
    let both = [0, 0, 1, 0, 2, 15, 3, 31, 20, 255, 21, 255, 8, 15, 9, 15, 16, 3, 26, 90, 20, 99];
    let reset = [0, 0, 2, 9, 21, 4, 3, 3, 15, 0, 20, 9, 26, 255];
    let hostile = [0, 0, 2, 9, 255, 6, 2, 9, 0, 0, 1, 0, 3, 8, 5, 1, 255, 4, 5, 0x80, 0, 1];
    smoke("srp", 40, srp::run, &[&one, &both, &reset, &hostile]);
}

#[test]
fn tcp_segments() {
    let opened = [0, 4, 255, 0, 0, 0, 200, 200, 200, 0, 60, 0, 0, 0, 4, 1, 2, 7, 9];
    let numbers: Vec<u8> = (0..=255).chain(0..200).map(|n: u8| n.wrapping_mul(89)).collect();
    let accepted: Vec<u8> =
        [&[0, 3, 127, 0, 1, 15, 180, 5, 7, 0, 9, 9, 9, 9][..], &numbers].concat();
    let restored: Vec<u8> = [&[0, 3, 127, 0, 2, 3, 5, 1][..], &[9; 20], &numbers].concat();
    // A segment longer than the sequence space is.
    let longest = [
        0x2c, 0xff, 0xff, 0xfe, 0x88, 5, 0x88, 0xfe, 0x88, 0x19, 0x60, 0x90, 0x60, 0x2f, 0xac,
        0x34, 0x34, 0x34, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xff, 0xff, 0xff, 0xe2,
    ];
    smoke("tcp", 10, tcp::run, &[&opened, &numbers, &accepted, &restored, &longest]);
}

#[test]
fn tcp_streams() {
    let steps = [0, 15, 22, 255, 23, 255, 22, 255, 1, 14, 28, 99, 23, 255, 22, 255, 6, 15, 7, 15];
    let modern = [&[0, 4, 255, 1, 0, 4, 255, 1][..], &steps.repeat(4)].concat();
    let old = [&[2, 0, 0, 0, 2, 0, 0, 0][..], &steps.repeat(4), &[14, 1, 15, 1, 10, 0]].concat();
    let lossy =
        [&[0, 2, 31, 4, 0, 4, 255, 1][..], &[0, 15, 18, 3, 22, 90, 28, 60].repeat(9)].concat();
    smoke("tcp_streams", 100, tcp_streams::run, &[&modern, &old, &lossy]);
}

#[test]
fn udp_relay_datagrams() {
    let address = [0, 0, 0, 1, 192, 0, 2, 7, 0, 53, b'h', b'i'];
    let mapped = [&[0, 0, 0, 4][..], &[0; 10], &[0xff, 0xff, 192, 0, 2, 7, 0, 53, 9]].concat();
    let name = [0, 0, 0, 3, 4, b'h', b'o', b's', b't', 0, 53, 9];
    let datagram = [1, 5, 1, 0, 53, 192, 0, 2, 7, b'h', b'i'];
    let named = [1, 0x41, 0x2c, 3, 0, 53, 4, b'h', b'o', b's', b't', 9];
    let close = [2, 0xc0, 0, 0, 0, 0, 0, 1, 0];
    let undelivered = [3, 5, 3, 0, 53, 4, b'h', b'o', b's', b't', 0xff, 0, 90];
    let worth = [4, 17, 1, 17, 148, 10, 9, 0, 7, 1, 0, 53, 192, 0, 2, 7, 2, 0x41, 0x2c];
    let samples: &[&[u8]] =
        &[&address, &mapped, &name, &datagram, &named, &close, &undelivered, &worth];
    smoke("udp_relay", 1, udp_relay::run, samples);
}

/// A link, an address, a route, a rule and a proxy, an error with words, and a packet that waits.
#[test]
fn kernel_messages() {
    let attribute = |kind: u16, value: &[u8]| {
        let mut out = [&(value.len() as u16 + 4).to_ne_bytes()[..], &kind.to_ne_bytes()].concat();
        out.extend(value);
        out.resize(out.len().next_multiple_of(4), 0);
        out
    };
    let message = |kind: u16, fields: &[u8], attributes: &[Vec<u8>]| {
        let body = [fields, &attributes.concat()].concat();
        let length = (16 + body.len() as u32).to_ne_bytes();
        [&length[..], &kind.to_ne_bytes(), &[0; 10], &body].concat()
    };
    let name = attribute(3, b"eth0\0");
    let ten = attribute(1, &[10, 0, 0, 1]);
    let all = [
        message(16, &[0, 0, 1, 0, 2, 0, 0, 0, 0x43, 0, 1, 0, 0, 0, 0, 0], &[name]),
        message(20, &[2, 24, 0, 0, 2, 0, 0, 0], &[ten.clone(), attribute(2, &[10, 0, 0, 1])]),
        message(24, &[2, 32, 0, 0, 254, 76, 0, 1, 0, 0, 0, 0], std::slice::from_ref(&ten)),
        message(32, &[2, 0, 32, 0, 100, 0, 0, 1, 0, 0, 0, 0], &[attribute(2, &[10, 0, 0, 1])]),
        message(28, &[2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 8, 0], &[ten]),
        message(2, &[255, 255, 255, 255], &[vec![0; 16], attribute(1, b"not allowed\0")]),
        // No number of an error, and less than any can be.
        message(2, &i32::MIN.to_ne_bytes(), &[]),
        message(0x300, &[2, 0, 0, 1], &[attribute(1, &[0, 0, 0, 9, 8, 0, 3]), attribute(10, b"x")]),
    ];
    let whole = all.concat();
    let samples: Vec<&[u8]> = all.iter().map(Vec::as_slice).chain([&whole[..]]).collect();
    smoke("netlink", 1, netlink::run, &samples);
}

/// A stream with data, an end, a reset and an acknowledgement; with what nobody sealed, and repeated.
#[test]
fn connections_of_split_tcp() {
    let data = [0, 0, 0, 0, 1, 10, 2, 20, 3, 255];
    let ends = [&data[..], &[0x14, 0], &[0x34, 16], &[0; 16]].concat();
    let aborts = [&data[..], &[0x24, 8], &[9; 8], &[1, 10]].concat();
    let forged = [&data[..], &[6, 5, 1, 2, 3, 4, 5], &[1, 10]].concat();
    let again = [&data[..], &[7, 0, 1, 10]].concat();
    let unread = [&[2, 77][..], &data[2..], &[3, 255, 3, 255]].concat();
    smoke("split_tcp", 200, split_tcp::run, &[&ends, &aborts, &forged, &again, &unread]);
}
