use core::net::Ipv4Addr;
use std::cell::RefCell;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use lasthop_radio::{LinkConfig, Pacing};
use lasthop_units::{Rate, Seed};
use lasthop_wire::ip::{Header, Protocol};
use lasthop_wire::tcp::{Flags, Options, SackBlocks, Segment, Seq, Timestamps};
use pcap_file::pcapng::{Block, PcapNgReader};

use super::*;
use crate::net::{Body, Config, Context, Ecn, LinkId, Network, Node, NodeId, Packet};

const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// A node that swallows what it gets.
struct Sink;

impl Node for Sink {
    fn handle_packet(&mut self, _: &mut Context<'_>, _: LinkId, _: Packet) {}
}

/// A packet as the file has it.
struct Read {
    interface: u32,
    at: u64,
    original: u32,
    data: Vec<u8>,
    flags: Option<u32>,
    comment: Option<String>,
}

/// The names of the interfaces, and the packets.
fn read(file: &[u8]) -> (Vec<String>, Vec<Read>) {
    let mut reader = PcapNgReader::new(file).unwrap();
    let (mut names, mut packets) = (Vec::new(), Vec::new());
    while let Some(block) = reader.next_block() {
        match block.unwrap() {
            Block::InterfaceDescription(block) => {
                assert!(block.options.contains(&InterfaceDescriptionOption::IfTsResol(9)));
                let name = block.options.iter().find_map(|option| match option {
                    InterfaceDescriptionOption::IfName(name) => Some(name.to_string()),
                    _ => None,
                });
                let frames = name.as_ref().is_some_and(|name| name.ends_with(" frames"));
                let linktype = if frames { DataLink::ETHERNET } else { DataLink::RAW };
                assert_eq!(block.linktype, linktype);
                names.extend(name);
            }
            Block::EnhancedPacket(block) => packets.push(Read {
                interface: block.interface_id,
                at: block.timestamp.as_nanos() as u64,
                original: block.original_len,
                flags: block.options.iter().find_map(|option| match option {
                    EnhancedPacketOption::Flags(flags) => Some(*flags),
                    _ => None,
                }),
                comment: block.options.iter().find_map(|option| match option {
                    EnhancedPacketOption::Comment(text) => Some(text.to_string()),
                    _ => None,
                }),
                data: block.data.into_owned(),
            }),
            _ => {}
        }
    }
    (names, packets)
}

fn segment(seq: u32, len: u32) -> Segment {
    Segment {
        src_port: 5001,
        dst_port: 80,
        seq: Seq(seq),
        ack: Seq(77),
        flags: Flags::ACK.with(Flags::PSH),
        window: 4096,
        len,
        ..Segment::default()
    }
}

fn seen(at: Time, interface: Interface) -> Sighting<'static> {
    Sighting { at, interface, direction: Direction::Outbound, comment: None }
}

/// A network of two nodes with a slow link, and a capture at both ends of the link.
struct Stand {
    network: Network<Sink>,
    from: NodeId,
    capture: Rc<RefCell<Capture<Vec<u8>>>>,
}

impl Stand {
    fn new(snaplen: Option<u32>) -> Self {
        let mut network = Network::new(Config::new(Seed::from_u64(1)));
        let (from, to) = (network.add_node(Sink), network.add_node(Sink));
        let config = LinkConfig {
            pacing: Pacing::Rate(Rate::from_mbps(1)),
            mtu: 1500,
            ..LinkConfig::default()
        };
        let link = network.add_link(from, to, &config).unwrap();
        network.set_default_route(from, Some(link));
        let mut capture = Capture::new(Vec::new(), snaplen).unwrap();
        let (near, far) = (TapPoint::LinkIn(link), TapPoint::LinkOut(link));
        capture.watch(near, "hop.in", "what is offered to the hop").unwrap();
        capture.watch(far, "hop.out", "what comes out of it").unwrap();
        let capture = Rc::new(RefCell::new(capture));
        network.tap(near, capture.clone());
        network.tap(far, capture.clone());
        Self { network, from, capture }
    }

    fn send(&mut self, body: Body, change: impl FnOnce(&mut Packet)) {
        self.network.with_node(self.from, |_, ctx| {
            let mut packet = ctx.packet(A, B, body);
            change(&mut packet);
            // What is refused is seen by the tap.
            let _ = ctx.send(packet);
        });
    }

    fn file(mut self) -> Vec<u8> {
        self.network.run_until(Time::from_secs(1)).unwrap();
        drop(self.network);
        Rc::into_inner(self.capture).unwrap().into_inner().finish().unwrap()
    }
}

fn busy(snaplen: Option<u32>) -> Stand {
    let mut stand = Stand::new(snaplen);
    let mut sack = SackBlocks::default();
    sack.push(Seq(9), Seq(12));
    let full =
        Options { timestamps: Some(Timestamps { value: 7, echo: 8 }), sack, ..Options::default() };
    stand.send(Body::Tcp(segment(100, 1000)), |_| {});
    stand.send(Body::Tcp(Segment { options: full, ..segment(1100, 0) }), |_| {});
    stand.send(Body::Tcp(segment(1100, 3)), |packet| {
        packet.set_bytes(b"abc");
        packet.ecn = Ecn::Congested;
        packet.encapsulate([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
    });
    stand.send(Body::Udp { src_port: 1, dst_port: 9 }, |packet| packet.set_virtual(31));
    stand.send(Body::Tcp(segment(1103, 1461)), |_| {});
    stand
}

#[test]
fn a_capture_has_each_packet_at_each_point_with_time_and_direction() {
    let (names, packets) = read(&busy(None).file());
    assert_eq!(names, ["hop.in", "hop.out"]);
    let sizes = |interface| {
        let at = packets.iter().filter(move |p| p.interface == interface);
        at.map(|p| p.original).collect::<Vec<_>>()
    };
    assert_eq!(sizes(0), [1040, 60, 63, 59, 1501]);
    assert_eq!(sizes(1), [1040, 60, 63, 59]);
    // 1040 bytes at 1 Mbit/s.
    let out = packets.iter().find(|p| p.interface == 1).unwrap();
    assert_eq!((out.at, out.flags), (8_320_000, Some(1)));
    assert!(packets.iter().filter(|p| p.interface == 0).all(|p| p.flags == Some(2)));
    assert!(packets.iter().all(|p| p.data.len() as u32 == p.original));
}

/// MOB-1: a frame without IP header is one of Ethernet's in the file, on an interface of its own
/// beside the one of the place where it passed; dropped and damaged ones say so as packets do.
#[test]
fn frames_have_an_ethernet_interface_beside_the_packets() {
    let mut stand = Stand::new(None);
    let frame = Body::Frame { ethertype: 0x88b5 };
    stand.send(Body::Tcp(segment(1, 10)), |_| {});
    stand.send(frame, |packet| packet.set_bytes(b"sixteen bytes ..and data"));
    stand.send(frame, |packet| {
        packet.set_bytes(&[7; 20]);
        packet.corrupted = true;
    });
    stand.send(frame, |packet| packet.set_virtual(1501));
    stand.send(Body::Tcp(segment(11, 10)), |_| {});
    let (names, packets) = read(&stand.file());
    assert_eq!(names, ["hop.in", "hop.out", "hop.in frames", "hop.out frames"]);
    let at = |interface| packets.iter().filter(move |p| p.interface == interface);
    let sizes = |interface| at(interface).map(|p| p.original).collect::<Vec<_>>();
    assert_eq!((sizes(0), sizes(1)), (vec![50, 50], vec![50, 50]));
    assert_eq!((sizes(2), sizes(3)), (vec![14 + 24, 14 + 20, 14 + 1501], vec![14 + 24, 14 + 20]));
    let first = &at(3).next().unwrap().data;
    assert_eq!(first[..14], [2, 0, 10, 0, 0, 2, 2, 0, 10, 0, 0, 1, 0x88, 0xb5]);
    assert_eq!(first[14..], *b"sixteen bytes ..and data");
    let damaged = at(3).nth(1).unwrap();
    assert_eq!(damaged.data[14..], [[7; 19].as_slice(), &[6]].concat());
    assert_eq!(damaged.comment.as_deref(), Some("corrupted on the way"));
    let dropped = at(2).nth(2).unwrap().comment.as_deref();
    assert_eq!(dropped, Some("dropped: the packet is longer than the MTU"));
}

#[test]
fn a_dropped_packet_says_why() {
    let (_, packets) = read(&busy(None).file());
    let comments: Vec<_> = packets.iter().filter_map(|p| p.comment.as_deref()).collect();
    assert_eq!(comments, ["dropped: the packet is longer than the MTU"]);
}

#[test]
fn every_header_and_checksum_in_the_file_is_right() {
    let (_, packets) = read(&busy(None).file());
    let mut protocols = Vec::new();
    for packet in &packets {
        let (mut header, mut payload) = Header::parse(&packet.data).unwrap();
        if header.protocol == Protocol::IPV4 {
            assert_eq!(header.traffic_class, 0b11);
            (header, payload) = Header::parse(payload).unwrap();
        }
        assert_eq!((header.addresses.src(), header.ttl), (A.into(), 64));
        protocols.push(header.protocol);
        match header.protocol {
            Protocol::TCP => drop(Segment::parse(&header.addresses, payload).unwrap()),
            _ => drop(udp::Header::parse(&header.addresses, payload).unwrap()),
        }
    }
    assert_eq!(protocols.iter().filter(|p| **p == Protocol::UDP).count(), 2);
}

#[test]
fn a_retransmission_carries_the_bytes_of_its_original() {
    let mut stand = Stand::new(None);
    stand.send(Body::Tcp(segment(1000, 1000)), |_| {});
    stand.send(Body::Tcp(segment(1500, 200)), |_| {});
    let (_, packets) = read(&stand.file());
    let [whole, part] = [0, 1].map(|n| &packets[n].data[40..]);
    assert_eq!(whole[500..700], *part);
}

/// LNK-10: who looks at the file sees the damage that the receiver sees.
#[test]
fn a_corrupted_packet_has_a_wrong_checksum() {
    let mut stand = Stand::new(None);
    stand.send(Body::Tcp(segment(1, 0)), |packet| packet.corrupted = true);
    let (_, packets) = read(&stand.file());
    let (header, payload) = Header::parse(&packets[0].data).unwrap();
    assert_eq!(
        Segment::parse(&header.addresses, payload),
        Err(lasthop_wire::tcp::ParseError::Checksum)
    );
    assert_eq!(packets[0].comment.as_deref(), Some("corrupted on the way"));
}

#[test]
fn a_snapped_packet_keeps_its_length_and_checksum() {
    let (_, whole) = read(&busy(None).file());
    let (_, snapped) = read(&busy(Some(60)).file());
    for (whole, snapped) in whole.iter().zip(&snapped) {
        assert_eq!(snapped.original, whole.original);
        assert_eq!(snapped.data, whole.data[..whole.data.len().min(60)]);
    }
}

#[test]
fn the_same_run_gives_the_same_file() {
    assert_eq!(busy(None).file(), busy(None).file());
}

#[test]
fn an_interface_of_another_capture_is_none() {
    let mut stand = Stand::new(None);
    let mut capture = stand.capture.borrow_mut();
    let error = stand.network.with_node(stand.from, |_, ctx| {
        let packet = ctx.packet(A, B, Body::Tcp(segment(1, 1)));
        capture.record(seen(Time::ZERO, Interface(4)), &packet)
    });
    assert!(matches!(error, Err(CaptureError::NoInterface(4))));
}

#[test]
fn an_observers_first_error_is_told_at_the_end() {
    let mut stand = Stand::new(None);
    stand.send(Body::Tcp(segment(1, 70_000)), |_| {});
    stand.send(Body::Tcp(segment(1, 10)), |_| {});
    stand.network.run_until(Time::from_secs(1)).unwrap();
    drop(stand.network);
    let error = Rc::into_inner(stand.capture).unwrap().into_inner().finish().unwrap_err();
    assert!(matches!(error, CaptureError::Packet { at: Time::ZERO, .. }), "{error}");
    let error = error.to_string();
    assert!(error.contains("0.000000000s") && error.contains("70020"), "{error}");
}

#[test]
fn a_full_disk_is_an_error() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut capture = Capture::new(Full(10), None).unwrap();
    capture.add_interface("any", "").unwrap();
    assert!(matches!(capture.finish(), Err(CaptureError::Io(_))));
}

/// The lines that `tshark` prints of `file` with `arguments`, or nothing if it is not installed.
fn tshark(file: &Path, arguments: &[&str]) -> Option<Vec<String>> {
    let checks = ["ip.check_checksum:TRUE", "tcp.check_checksum:TRUE", "udp.check_checksum:TRUE"];
    let mut command = Command::new("tshark");
    command.arg("-n").arg("-r").arg(file).args(checks.iter().flat_map(|check| ["-o", check]));
    let Ok(output) = command.args(arguments).output() else {
        lasthop_testing::skip("tshark is not installed (tools/need test)");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.lines().map(str::to_owned).collect())
}

#[test]
fn wireshark_finds_nothing_wrong() {
    let path = std::env::temp_dir().join(format!("lasthop-capture-{}.pcapng", std::process::id()));
    std::fs::write(&path, busy(None).file()).unwrap();
    let bad = "ip.checksum.status == 0 || tcp.checksum.status == 0 || udp.checksum.status == 0 \
               || _ws.malformed";
    let fields = "-Tfields -e frame.interface_name -e frame.p2p_dir -e frame.time_epoch";
    let fields: Vec<_> = fields.split(' ').collect();
    let results = (tshark(&path, &["-Y", bad]), tshark(&path, &["-Y", "tcp.checksum.status == 1"]));
    let all = tshark(&path, &fields);
    std::fs::remove_file(&path).unwrap();
    if let (Some(bad), Some(good)) = results {
        assert_eq!(bad, [""; 0]);
        assert_eq!(good.len(), 7);
    }
    if let Some(all) = all {
        assert_eq!(all.len(), 9);
        assert!(all[0].starts_with("hop.in\t") && all[0].contains("0.000000000"), "{}", all[0]);
    }
}
