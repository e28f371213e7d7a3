//! Wireshark reads our packets as we write them: `tools/wireshark/lasthop.lua`, by tshark.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::File;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lasthop_units::Seed;
use lasthop_wire::agent::beside;
use lasthop_wire::datagram::{
    self, CookieReply, Hello, Limits, PlainInit, PlainReply, Token, Transit, TransitCheck, Unknown,
};
use lasthop_wire::frame::{Ack, Frame, PacketFrame, PacketHeader, Writer};
use lasthop_wire::ip::{Addresses, Header, Protocol};
use lasthop_wire::mobile_tcp::{
    CONTROL_HEADER, Cid, Code, Control, DATA_HEADER, DataHeader, ETHERTYPE, ETHERTYPE_HOP,
    Extension, MAX_WINDOW, Seq16,
};
use lasthop_wire::udp;
use pcap_file::pcap::{PcapPacket, PcapWriter};

/// Where bases listen.
const PORT: u16 = 4433;
/// Of the shortest Ethernet frame, without its checksum.
const SHORTEST: usize = 60;

/// tshark with our script over a capture of `frames`; none where there is no tshark.
fn tshark(frames: &[Vec<u8>], args: &[&str]) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("frames.pcap");
    let mut writer = PcapWriter::new(File::create(&capture).unwrap()).unwrap();
    for frame in frames {
        let len = u32::try_from(frame.len()).unwrap();
        writer.write_packet(&PcapPacket::new(Duration::ZERO, len, frame)).unwrap();
    }
    drop(writer);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/wireshark/lasthop.lua");
    let output = Command::new("tshark")
        // Without the settings and plugins of whoever runs the test.
        .env("HOME", folder.path())
        .env("XDG_CONFIG_HOME", folder.path())
        .arg("-n")
        .args(["-X", &format!("lua_script:{}", script.display())])
        .arg("-r")
        .arg(&capture)
        .args(args)
        .output();
    let output = match output {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            lasthop_testing::skip("tshark is not installed (tools/need test)");
            return None;
        }
        output => output.unwrap(),
    };
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{errors}");
    assert!(!errors.contains("lasthop.lua"), "{errors}");
    Some(String::from_utf8(output.stdout).unwrap())
}

/// What tshark prints for `fields` of each frame; a field that a frame has several times is
/// printed with commas.
fn fields(frames: &[Vec<u8>], fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let mut args = vec!["-T", "fields", "-E", "separator=|"];
    args.extend(fields.iter().flat_map(|field| ["-e", field]));
    let printed = tshark(frames, &args)?;
    let lines = printed.lines().map(|line| line.split('|').map(str::to_owned).collect());
    Some(lines.collect())
}

/// An Ethernet frame, padded to the shortest.
fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]].concat();
    frame.extend(ethertype.to_be_bytes());
    frame.extend_from_slice(payload);
    frame.resize(frame.len().max(SHORTEST), 0);
    frame
}

/// A UDP datagram over IPv4 in an Ethernet frame.
fn over_udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let between =
        Addresses::V4 { src: Ipv4Addr::new(10, 0, 0, 2), dst: Ipv4Addr::new(10, 0, 0, 1) };
    ethernet(0x0800, &udp_packet(between, port, payload))
}

/// An IP packet with a UDP datagram.
fn udp_packet(between: Addresses, port: u16, payload: &[u8]) -> Vec<u8> {
    let mut inner = Vec::new();
    let ports = udp::Header { src_port: 50_000, dst_port: port };
    ports.emit(&between, payload, &mut inner).unwrap();
    let mut packet = Vec::new();
    Header::new(between, Protocol::UDP).emit(inner.len(), &mut packet).unwrap();
    packet.extend(inner);
    packet
}

/// A hop datagram in an Ethernet frame of its own.
fn framed(datagram: &[u8]) -> Vec<u8> {
    let len = u16::try_from(datagram.len()).unwrap().to_be_bytes();
    ethernet(ETHERTYPE_HOP, &[&len, datagram].concat())
}

fn data(header: &DataHeader, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0; DATA_HEADER + payload.len()];
    out[DATA_HEADER..].copy_from_slice(payload);
    header.emit(payload.len(), &mut out).unwrap();
    out
}

fn control(control: &Control) -> Vec<u8> {
    let mut out = vec![0; CONTROL_HEADER];
    control.emit(&mut out).unwrap();
    out
}

fn extended(control: &Control, extensions: &[Extension<'_>]) -> Vec<u8> {
    let mut out = vec![0; 500];
    let len = control.emit_extended(extensions, &mut out).unwrap();
    out.truncate(len);
    out
}

fn segment() -> DataHeader {
    DataHeader {
        code: Code::ACK.with(Code::PSH).with(Code::RC),
        cid: Cid(9),
        seq: Seq16(65_530),
        ack: Seq16(300),
        window: 16_384,
        nack: Seq16(300),
    }
}

fn opening() -> Control {
    Control {
        code: Code::SYN,
        cid: Cid::NONE,
        seq: Seq16(100),
        ack: Seq16(3),
        reverse: Cid(17),
        max_buffer: 16_384,
        max_packet: 1460,
        destination: SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 80), 443),
        source: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 40_000),
    }
}

/// MOB-11: a data packet in a frame of its own, with nothing of IP.
#[test]
fn a_data_packet_is_read_field_by_field() {
    let frame = ethernet(ETHERTYPE, &data(&segment(), b"abc"));
    let asked = [
        "frame.protocols",
        "mobiletcp.code.control",
        "mobiletcp.flags",
        "mobiletcp.cid",
        "mobiletcp.seq",
        "mobiletcp.ack",
        "mobiletcp.window",
        "mobiletcp.nack",
        "mobiletcp.len",
        "mobiletcp.checksum.status",
        "mobiletcp.data",
        "mobiletcp.flags.rc",
        "mobiletcp.flags.rcr",
        "_ws.expert.message",
    ];
    let Some(read) = fields(&[frame], &asked) else { return };
    let expected = [
        "eth:ethertype:mobiletcp",
        "0",
        "PSH ACK RC",
        "9",
        "65530",
        "300",
        "16384",
        "300",
        "3",
        "1",
        "616263",
        "1",
        "0",
        "",
    ];
    assert_eq!(read, [expected]);
}

/// MOB-26: a request tells how much is missing, also where numbers go around.
#[test]
fn a_request_tells_what_is_missing() {
    let code = Code::ACK.with(Code::RRQ).with(Code::RCR);
    let request = DataHeader { code, ack: Seq16(65_000), nack: Seq16(384), ..segment() };
    let frames =
        [ethernet(ETHERTYPE, &data(&request, b"")), ethernet(ETHERTYPE, &data(&segment(), b""))];
    let asked = ["mobiletcp.flags", "mobiletcp.missing", "_ws.expert.message", "mobiletcp.request"];
    let Some(read) = fields(&frames, &asked) else { return };
    assert_eq!(read[0][..3], ["ACK RRQ RCR", "920", "wants 920 bytes from 65000"]);
    assert_eq!(read[1][..3], ["PSH ACK RC", "", ""]);
}

/// MOB-10: openings, answers and refusals.
#[test]
fn control_packets_are_read_field_by_field() {
    let answer = Control {
        code: Code::SYN.with(Code::ACK),
        cid: Cid(17),
        ack: Seq16(101),
        reverse: Cid(4),
        ..opening()
    };
    let mut refusal = vec![0; CONTROL_HEADER];
    Control { cid: Cid(17), ..opening() }.emit_refusal(111, &mut refusal).unwrap();
    let frames =
        [control(&opening()), control(&answer), refusal].map(|packet| ethernet(ETHERTYPE, &packet));
    let asked = [
        "mobiletcp.flags",
        "mobiletcp.cid",
        "mobiletcp.reverse_cid",
        "mobiletcp.seq",
        "mobiletcp.stream",
        "mobiletcp.ack",
        "mobiletcp.max_buffer",
        "mobiletcp.reset_code",
        "mobiletcp.max_packet",
        "mobiletcp.dst",
        "mobiletcp.dstport",
        "mobiletcp.src",
        "mobiletcp.srcport",
        "mobiletcp.checksum.status",
    ];
    let Some(read) = fields(&frames, &asked) else { return };
    let ends = ["1460", "192.0.2.80", "443", "10.0.0.2", "40000", "1"];
    let starts = [
        ["SYN", "0", "17", "100", "3", "", "16384", ""],
        ["SYN ACK", "17", "4", "100", "", "101", "16384", ""],
        ["SYN RST", "17", "17", "100", "3", "", "", "111"],
    ];
    for (line, start) in read.iter().zip(starts) {
        assert_eq!(line[..8], start);
        assert_eq!(line[8..], ends);
    }
    assert_eq!(read.len(), 3);
}

/// What concerns no connection: the words of a bare hop, and a ping.
#[test]
fn words_of_a_bare_hop_are_read() {
    let word = |code, numbers: &[u64]| {
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_be_bytes()).collect();
        ethernet(ETHERTYPE, &data(&DataHeader { code, ..DataHeader::default() }, &bytes))
    };
    let frames = [
        word(Code::RST.with(Code::PSH), &[1 << 60, 8]),
        word(Code::RST.with(Code::ACK), &[1 << 60, 77, 1]),
        word(Code::RST.with(Code::UNKNOWN), &[]),
        word(Code::PSH, &[]),
    ];
    let asked =
        ["mobiletcp.word", "mobiletcp.life", "mobiletcp.instance", "mobiletcp.first_stream"];
    let Some(read) = fields(&frames, &asked) else { return };
    let expected = [
        ["Greeting", "0x1000000000000000", "", "8"],
        ["Answer", "0x1000000000000000", "0x000000000000004d", "1"],
        ["Stranger", "", "", ""],
        ["Ping", "", "", ""],
    ];
    assert_eq!(read, expected);
}

#[test]
fn extensions_are_read() {
    let both = [Extension::Message(&[1, 1, 0, 2, 7, 7]), Extension::ResetCode(1 << 33)];
    let mut unknown = extended(&opening(), &[Extension::ResetCode(5)]);
    unknown[CONTROL_HEADER] = 99;
    mend(&mut unknown, 10);
    let frames = [extended(&opening(), &both), unknown].map(|packet| ethernet(ETHERTYPE, &packet));
    let asked = [
        "mobiletcp.code.version",
        "mobiletcp.checksum.status",
        "mobiletcp.extension.type",
        "mobiletcp.extension.message",
        "mobiletcp.reset_code",
        "mobiletcp.extension.value",
    ];
    let Some(read) = fields(&frames, &asked) else { return };
    assert_eq!(read[0], ["1", "1", "1,2,0", "010100020707", "8589934592", ""]);
    assert_eq!(read[1], ["1", "1", "99,0", "", "", "0000000000000005"]);
}

/// Writes the checksum that the changed `packet` should have, at `at`.
fn mend(packet: &mut [u8], at: usize) {
    packet[at..at + 2].fill(0);
    let checksum = lasthop_wire::checksum::of(packet);
    packet[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// MOB-14: what our decoder refuses is marked, and why.
#[test]
fn bad_packets_are_marked() {
    let mut damaged = data(&segment(), b"abc");
    damaged[17] ^= 0x40;
    let wide = data(&DataHeader { window: MAX_WINDOW + 1, ..segment() }, b"");
    let odd = data(&DataHeader { code: Code::SYN, ..segment() }, b"");
    let mut new = control(&opening());
    new[0] |= 0x20;
    let mut long = data(&segment(), b"abc");
    long[12] = 0x10;
    let mut extension = extended(&opening(), &[Extension::ResetCode(5)]);
    extension[CONTROL_HEADER + 3] = 9;
    let endless = [&extended(&opening(), &[])[..CONTROL_HEADER], &[1, 0, 0, 200]].concat();
    let cases = [
        (damaged, "mobiletcp.bad_checksum"),
        (wide, "mobiletcp.bad_window"),
        (odd, "mobiletcp.bad_code"),
        (new, "mobiletcp.bad_version"),
        (long, "mobiletcp.truncated"),
        (extension, "mobiletcp.bad_extension"),
        (endless, "mobiletcp.truncated"),
    ];
    for (packet, _) in &cases {
        assert!(lasthop_wire::mobile_tcp::Packet::decode(packet).is_err());
    }
    let frames: Vec<_> = cases.iter().map(|(packet, _)| ethernet(ETHERTYPE, packet)).collect();
    let marks = [
        "mobiletcp.bad_checksum",
        "mobiletcp.bad_window",
        "mobiletcp.bad_code",
        "mobiletcp.bad_version",
        "mobiletcp.truncated",
        "mobiletcp.bad_extension",
    ];
    let Some(read) = fields(&frames, &marks) else { return };
    for (line, (packet, mark)) in read.iter().zip(&cases) {
        let marked: Vec<_> =
            marks.iter().zip(line).filter(|(_, value)| !value.is_empty()).map(|(m, _)| m).collect();
        assert_eq!(marked, [mark], "{packet:02x?}");
    }
    assert_eq!(read.len(), cases.len());
}

/// On UDP the first byte tells what a packet on our port is; on others only a whole packet with its
/// right checksum is taken for ours.
#[test]
fn packets_over_udp_are_found() {
    let whole = data(&segment(), b"abc");
    let mut damaged = whole.clone();
    damaged[17] ^= 1;
    let frames = [(9999, &whole), (PORT, &whole), (9999, &damaged), (PORT, &damaged)]
        .map(|(port, packet)| over_udp(port, packet));
    let asked = ["udp.dstport", "mobiletcp.cid", "mobiletcp.checksum.status"];
    let Some(read) = fields(&frames, &asked) else { return };
    assert_eq!(
        read,
        [["9999", "9", "1"], ["4433", "9", "1"], ["9999", "", ""], ["4433", "9", "0"]]
    );
}

/// Bytes of `kind`, zero behind the first two.
fn of_kind(kind: u8, len: usize) -> Vec<u8> {
    let mut datagram = vec![0; len];
    datagram[0] = datagram::VERSION << 4 | kind;
    datagram[1] = 1;
    datagram
}

#[test]
fn sealed_datagrams_show_their_outer_form() {
    let body = [0x5a; 30];
    let sealed = [&datagram::DataHeader::new(1, 0xabcd, 70_000).to_bytes()[..], &body].concat();
    let frames = [
        over_udp(PORT, &sealed),
        framed(&sealed),
        framed(&of_kind(1, 146)),
        framed(&of_kind(2, 84)),
    ];
    let asked = [
        "lasthop.frame_len",
        "lasthop.kind",
        "lasthop.path",
        "lasthop.receiver",
        "lasthop.number",
        "lasthop.sealed",
        "lasthop.ciphertext",
        "lasthop.sealed_hello",
        "_ws.expert.message",
    ];
    let Some(read) = fields(&frames, &asked) else { return };
    let cipher = "5a".repeat(14);
    let outer = ["0", "1", "0x0000abcd", "70000", "1", &cipher, "", ""];
    assert_eq!(read[0][1..], outer);
    assert_eq!(read[1][0], "40");
    assert_eq!(read[1][1..], outer);
    assert_eq!(read[2], ["146", "1", "1", "", "", "", "", &"00".repeat(32), ""]);
    assert_eq!(read[3], ["84", "2", "1", "0x00000000", "", "", "", &"00".repeat(30), ""]);
}

/// They have the type of hop datagrams, and nothing else in common.
#[test]
fn frames_between_agents_are_told_from_those_of_hops() {
    let hello = beside::Hello { epoch: 0xabcd, heard: None }.emit();
    let packet = over_udp(9, b"x")[14..].to_vec();
    let numbered = [&beside::numbered_header(70_000, 0x0800)[..], &packet].concat();
    let frames =
        [&hello[..], &numbered, &[0xff, 0x1f]].map(|payload| ethernet(ETHERTYPE_HOP, payload));
    let names = ["kind", "epoch", "number", "malformed"].map(|f| format!("lasthop_agents.{f}"));
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.extend(["udp.dstport", "lasthop.bad_length"]);
    let Some(read) = fields(&frames, &names) else { return };
    assert_eq!(read[0], ["1", "0x0000abcd", "", "", "", ""]);
    assert_eq!(read[1], ["3", "", "70000", "", "9", ""]);
    assert!(read[2][0].is_empty() && !read[2][3].is_empty(), "{:?}", read[2]);
}

#[test]
fn demands_and_challenges_show_what_they_hold() {
    let cookie = CookieReply { nonce: [1; 12], sealed: [2; 32] };
    let challenge =
        Token { response: false, path: 0, receiver: 0xabcd, token: [3; 8], mac: [4; 16] };
    let frames = [
        over_udp(PORT, &Unknown { receiver: 0xabcd }.to_bytes()),
        over_udp(PORT, &cookie.to_bytes()),
        over_udp(PORT, &challenge.to_bytes()),
        over_udp(PORT, &Token { response: true, ..challenge }.to_bytes()),
    ];
    let asked = ["lasthop.kind", "lasthop.receiver", "lasthop.cookie", "lasthop.token"];
    let Some(read) = fields(&frames, &asked) else { return };
    let (cookie, token) = ("02".repeat(32), "03".repeat(8));
    let expected = [
        ["5", "0x0000abcd", "", ""],
        ["6", "", &cookie, ""],
        ["7", "0x0000abcd", "", &token],
        ["8", "0x0000abcd", "", &token],
    ];
    assert_eq!(read, expected);
}

#[test]
fn what_is_passed_on_shows_what_is_inside() {
    let unknown = Unknown { receiver: 0xabcd }.to_bytes();
    let transit = Transit { path: 1, receiver: 0x1234 }.to_bytes();
    let challenge = TransitCheck { proof: false, path: 1, receiver: 0x1234, mac: [4; 16] };
    let frames = [
        over_udp(PORT, &[&transit[..], &unknown].concat()),
        over_udp(PORT, &challenge.to_bytes()),
        over_udp(PORT, &TransitCheck { proof: true, ..challenge }.to_bytes()),
    ];
    let asked = ["lasthop.kind", "lasthop.receiver", "lasthop.mac"];
    let Some(read) = fields(&frames, &asked) else { return };
    let mac = "04".repeat(16);
    let expected = [
        ["9,5", "0x00001234,0x0000abcd", ""],
        ["10", "0x00001234", &mac],
        ["11", "0x00001234", &mac],
    ];
    assert_eq!(read, expected);
}

#[test]
fn bad_datagrams_are_marked() {
    let mut later = of_kind(0, 40);
    later[0] = 0x20;
    let no_tag = datagram::DataHeader::new(0, 1, 2).to_bytes();
    let short = [&[0, 90][..], &of_kind(0, 40)].concat();
    let frames = [
        framed(&of_kind(1, 143)),
        framed(&of_kind(2, 340)),
        framed(&of_kind(12, 40)),
        framed(&later),
        framed(&no_tag),
        ethernet(ETHERTYPE_HOP, &short),
        over_udp(PORT, &[0x10]),
    ];
    let marks = ["lasthop.bad_length", "lasthop.bad_kind", "lasthop.bad_version"];
    let Some(read) = fields(&frames, &marks) else { return };
    let marked = read.iter().map(|line| line.iter().position(|value| !value.is_empty()));
    assert_eq!(
        marked.collect::<Vec<_>>(),
        [Some(0), Some(0), Some(1), Some(2), Some(0), Some(0), Some(0)]
    );
}

const MOBILE: u32 = 0x0102_0304;
const BASE: u32 = 0x0506_0708;

/// The two messages that open an association without a seal.
fn plain_handshake() -> [Vec<u8>; 2] {
    let hello = |receiver| Hello {
        receiver,
        fast_aes: true,
        stamp: 99,
        limits: Limits::new(&[0xaa, 0xbb]).unwrap(),
    };
    let mut init = vec![0; 200];
    let mut reply = vec![0; 200];
    let len = PlainInit { path: 0, public: [7; 32], hello: hello(MOBILE) }.emit(&mut init).unwrap();
    init.truncate(len);
    let plain = PlainReply { path: 0, receiver: MOBILE, hello: hello(BASE) };
    let len = plain.emit(&mut reply).unwrap();
    reply.truncate(len);
    [init, reply]
}

fn plain_data(inside: &[u8]) -> Vec<u8> {
    [&datagram::DataHeader::new(0, BASE, 5).to_bytes()[..], inside].concat()
}

fn frames_of_srp() -> Vec<u8> {
    let mut out = vec![0; 200];
    let mut writer = Writer::new(&mut out);
    // 3 is missing by definition; of 4 to 8 the bits name 5 and 6; 9 is the latest.
    let ack = Ack::new(9, 1234, 50, (1, 2), &[0b0000_0110]);
    for frame in [
        Frame::Ping,
        Frame::Ack(ack),
        Frame::StreamCredit { id: 4, limit: 1 << 33 },
        Frame::Reset { id: 6, code: 77, size: 500 },
        Frame::Priority { id: 8, priority: 3 },
    ] {
        assert!(writer.put(&frame));
    }
    assert!(writer.put_stream(10, 70_000, true, b"some", b" bytes"));
    let len = writer.len();
    out.truncate(len);
    out
}

#[test]
fn frames_of_an_unsealed_association_are_read() {
    let [init, reply] = plain_handshake();
    let frames = [
        over_udp(PORT, &init),
        over_udp(PORT, &reply),
        over_udp(PORT, &plain_data(&frames_of_srp())),
        framed(&plain_data(&data(&segment(), b"abc"))),
    ];
    let asked = [
        "lasthop.kind",
        "lasthop.hello.receiver",
        "lasthop.hello.limits",
        "lasthop.sealed",
        "lasthop_srp.frame",
        "lasthop_srp.ack.latest",
        "lasthop_srp.ack.first",
        "lasthop_srp.ack.in_sequence",
        "lasthop_srp.ack.missing",
        "lasthop_srp.stream",
        "lasthop_srp.stream.limit",
        "lasthop_srp.stream.fin",
        "lasthop_srp.stream.data",
        "mobiletcp.cid",
    ];
    let Some(read) = fields(&frames, &asked) else { return };
    assert_eq!(read[0][..4], ["3", "0x01020304", "aabb", ""]);
    assert_eq!(read[1][..4], ["4", "0x05060708", "aabb", ""]);
    let srp = [
        "0",
        "",
        "",
        "0",
        "0x01,0x02,0x06,0x09,0x0b,0x13",
        "9",
        "1",
        "2",
        "3",
        "4,6,8,10",
        "8589934592",
        "1",
        "736f6d65206279746573",
        "",
    ];
    assert_eq!(read[2], srp);
    assert_eq!(read[3][3..5], ["0", ""]);
    assert_eq!(read[3][13], "9");
}

fn frames_with_packets() -> Vec<u8> {
    let v4 = Addresses::V4 { src: Ipv4Addr::new(10, 9, 0, 2), dst: Ipv4Addr::new(192, 0, 2, 53) };
    let v6 = Addresses::V6 { src: Ipv6Addr::LOCALHOST, dst: Ipv6Addr::LOCALHOST };
    let (v4, v6) = (udp_packet(v4, 53, b"query"), udp_packet(v6, 9, b"x"));
    let whole = PacketFrame {
        number: 70_000,
        flow: 1023,
        after: 2,
        patience_ms: 300,
        ce: false,
        header: PacketHeader::Whole,
        part: None,
        data: &v4,
    };
    let mut out = vec![0; 300];
    let mut writer = Writer::new(&mut out);
    for frame in [
        whole,
        PacketFrame { number: 70_001, after: 0, ce: true, data: &v6, ..whole },
        // A part is not an IP packet, whatever it begins with, and neither is what begins with 9.
        PacketFrame { number: 70_002, after: 0, part: Some((1400, 1403)), data: b"Ebc", ..whole },
        PacketFrame { number: 70_003, after: 0, data: b"\x9abc", ..whole },
        PacketFrame { number: 70_004, header: PacketHeader::Kept, ..whole },
        // What is left of another one begins with its identification.
        PacketFrame { number: 70_005, header: PacketHeader::LeftOut(1), data: &v4[24..], ..whole },
    ] {
        assert!(writer.put(&Frame::Packet(frame)));
    }
    let len = writer.len();
    out.truncate(len);
    out
}

/// Packets show their fields, and whole ones the IP packet that they are.
#[test]
fn packets_beside_streams_are_read_with_what_they_hold() {
    let [init, reply] = plain_handshake();
    let frames = [framed(&init), framed(&reply), framed(&plain_data(&frames_with_packets()))];
    let asked = [
        "_ws.col.Protocol",
        "lasthop_srp.frame",
        "lasthop_srp.packet",
        "lasthop_srp.packet.flow",
        "lasthop_srp.packet.after",
        "lasthop_srp.packet.before",
        "lasthop_srp.packet.headers",
        "lasthop_srp.packet.patience",
        "lasthop_srp.packet.ce",
        "lasthop_srp.packet.offset",
        "lasthop_srp.packet.total",
        "lasthop_srp.packet.len",
        "ip.dst",
        "ipv6.dst",
        "udp.dstport",
        "lasthop_srp.bad_frame",
    ];
    let Some(read) = fields(&frames, &asked) else { return };
    let expected = [
        "SRP",
        "0x14,0x16,0x15,0x14,0x18,0x1c",
        "70000,70001,70002,70003,70004,70005",
        "1023,1023,1023,1023,1023,1023",
        "2,0,0,0,2,2",
        "69998,70002,70003",
        "70004",
        "300,300,300,300,300,300",
        "0,1,0,0,0,0",
        "1400",
        "1403",
        "33,49,3,3,33,9",
        "192.0.2.53,192.0.2.53",
        "::1",
        "53,9,53",
        "",
    ];
    assert_eq!(read[2], expected);
}

/// A capture that begins after the handshake: a preference tells what is inside.
#[test]
fn a_preference_tells_what_is_not_sealed() {
    let frames = [framed(&plain_data(&frames_of_srp()))];
    let asked = ["-T", "fields", "-e", "lasthop_srp.stream.offset", "-e", "lasthop.ciphertext"];
    let Some(guessed) = tshark(&frames, &asked) else { return };
    assert!(guessed.starts_with('\t'), "{guessed}");
    let told = [&["-o", "lasthop.inside:not sealed"][..], &asked].concat();
    assert_eq!(tshark(&frames, &told).unwrap(), "70000\t\n");
}

#[test]
fn bad_frames_of_srp_are_marked() {
    let frames: Vec<_> = plain_handshake()
        .iter()
        .map(|handshake| framed(handshake))
        .chain(
            [
                &[0x01, 0x7f][..],
                &[0x09, 1, 2],
                &[0x12, 1, 0, 9, b'x'],
                &[0x02, 9, 0, 0, 0, 0, 3, 1, 9],
                // Short, empty, to follow one that cannot be, and a part beyond the packet's end.
                &[0x14, 3, 1, 0, 0, 5, b'x'],
                &[0x14, 3, 1, 0, 0, 0],
                &[0x14, 3, 1, 3, 0, 1, b'x'],
                &[0x15, 3, 1, 0, 0, 5, 5, 1, b'x'],
            ]
            .map(|inside| framed(&plain_data(inside))),
        )
        .collect();
    let asked = ["lasthop_srp.unknown_frame", "lasthop_srp.bad_frame"];
    let Some(read) = fields(&frames, &asked) else { return };
    let marked = read[2..].iter().map(|line| line.iter().position(|value| !value.is_empty()));
    assert_eq!(marked.collect::<Vec<_>>(), [[Some(0)].as_slice(), &[Some(1); 7]].concat());
}

/// Noise and damaged packets of every kind: the script never fails.
#[test]
fn nothing_makes_the_script_fail() {
    let [init, reply] = plain_handshake();
    let samples = [
        data(&segment(), b"abc"),
        control(&opening()),
        extended(&opening(), &[Extension::Message(b"hello"), Extension::ResetCode(5)]),
        plain_data(&frames_of_srp()),
        plain_data(&frames_with_packets()),
        plain_data(&data(&segment(), b"abc")),
        of_kind(1, 146),
        of_kind(6, 46),
        of_kind(7, 30),
        init.clone(),
        reply.clone(),
    ];
    let mut numbers = Seed::from_u64(1).stream("dissector");
    let mut frames = vec![framed(&init), framed(&reply)];
    for n in 0..3000 {
        let mut packet = samples[n % samples.len()].clone();
        for _ in 0..numbers.below(4) {
            let at = numbers.below(packet.len() as u64) as usize;
            packet[at] = numbers.next_u64() as u8;
        }
        if numbers.chance(0.4) {
            packet.truncate(numbers.below(packet.len() as u64 + 1) as usize);
        }
        frames.push(match n / samples.len() % 4 {
            0 => ethernet(ETHERTYPE, &packet),
            1 => ethernet(ETHERTYPE_HOP, &packet),
            2 => framed(&packet),
            _ => over_udp(PORT, &packet),
        });
    }
    let Some(printed) = tshark(&frames, &["-V"]) else { return };
    assert_eq!(printed.lines().filter(|line| line.starts_with("Frame ")).count(), frames.len());
    let failed =
        printed.lines().find(|line| line.contains("Lua") || line.contains("Dissector bug"));
    assert_eq!(failed, None);
}
