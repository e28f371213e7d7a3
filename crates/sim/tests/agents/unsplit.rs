//! What a capture shows of an unsplit connection: plain TCP in the wired network, and no IP packet of
//! it on the hop but those that open and close it.

use core::net::Ipv4Addr;
use std::cell::RefCell;
use std::rc::Rc;

use lasthop_agent::unsplit::{Config as Unsplit, Stats};
use lasthop_radio::{Errors, LinkConfig, Loss, Pacing};
use lasthop_sim::agents::{AgentRouter, Help, Linked, Peers};
use lasthop_sim::capture::Capture;
use lasthop_sim::net::host::Content;
use lasthop_sim::net::traffic::{Client, Service, Traffic, Work};
use lasthop_sim::net::{Config, Host, LinkId, Network, NodeId, TapPoint};
use lasthop_units::{Bytes, Duration, Rate, Seed, Time};
use lasthop_wire::ip::{self, Protocol};
use lasthop_wire::tcp::{Flags, Segment};
use lasthop_wire::unsplit;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::{Block, PcapNgReader};

use crate::helper::{self, Helper};
use crate::node::{Kind, Station};
use crate::settings::Settings;

const FIXED: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const BASE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const MOBILE: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
const PORT: u16 = 5001;

/// A packet of a capture: where it was seen, and its bytes.
struct Seen {
    interface: String,
    data: Vec<u8>,
}

/// What a transfer of `bytes` bytes showed, to the mobile or from it, over a hop that loses `loss` of
/// the packets each way, between ends with the TCP `tcp`.
struct Shown {
    packets: Vec<Seen>,
    base: Stats,
    mobile: Stats,
    took: Option<Time>,
}

fn transfer(tcp: lasthop_tcp::Config, down: bool, loss: f64, bytes: u64) -> Shown {
    let seed = Seed::from_u64(2);
    let mut network = Network::new(Config::new(seed));
    let mut fixed = Traffic::new(seed.child("fixed")).carrying(Content::Real);
    let mut mobile = Traffic::new(seed.child("mobile")).carrying(Content::Real);
    let (service, work) = match down {
        true => (Service::Serve(Bytes::new(bytes)), Work::Download),
        false => (Service::Discard, Work::File(Bytes::new(bytes))),
    };
    fixed = fixed.serve(PORT, tcp, service);
    mobile = mobile.start(Client { at: Time::ZERO, dst: (FIXED, PORT), config: tcp, work });

    let random = &mut seed.stream("agents");
    let settings = Unsplit::default();
    let half = helper::fresh(&Settings::UnsplitAtMobile(settings.clone()), random);
    let linked = Linked::new(Host::new(MOBILE, seed, mobile), MOBILE, half, BASE);
    let agent = helper::fresh(&Settings::UnsplitAtBase(settings), random);
    let mut router = AgentRouter::new(BASE);
    let peers = Peers { fixed: None, mobile: Some(MOBILE) };
    router.add(Help { mobiles: vec![MOBILE], peers, hop: None, agent });

    let fixed = network.add_node(Kind::Host(Box::new(Host::new(FIXED, seed, fixed))));
    let base = network.add_node(Kind::Station(Box::new(Station::new(router))));
    let mobile = network.add_node(Kind::Linked(Box::new(linked)));
    let wire = LinkConfig { delay: Duration::from_millis(20), ..LinkConfig::default() };
    let radio = LinkConfig {
        pacing: Pacing::Rate(Rate::from_mbps(2)),
        delay: Duration::from_millis(10),
        losses: vec![Loss::lose(Errors::Uniform(loss))],
        ..LinkConfig::default()
    };
    let mut capture = Capture::new(Vec::new(), None).unwrap();
    let mut taps = Vec::new();
    let mut add = |from: NodeId, to: NodeId, config: &LinkConfig, name: &str| -> LinkId {
        let link = network.add_link(from, to, config).unwrap();
        capture.watch(TapPoint::LinkIn(link), name, "").unwrap();
        taps.push(TapPoint::LinkIn(link));
        link
    };
    add(fixed, base, &wire, "wire");
    add(base, fixed, &wire, "wire");
    add(base, mobile, &radio, "hop");
    add(mobile, base, &radio, "hop");
    let capture = Rc::new(RefCell::new(capture));
    for tap in taps {
        network.tap(tap, capture.clone());
    }
    for (addr, node) in [(FIXED, fixed), (BASE, base), (MOBILE, mobile)] {
        network.route_to(addr, node);
    }
    network.run_until(Time::from_secs(120)).unwrap();

    let receiver = if down { mobile } else { fixed };
    let record = network.node(receiver).records()[0];
    assert_eq!((record.received, record.differs_at), (Bytes::new(bytes), None));
    let took = record.peer_finished;
    let stats = |node: NodeId| match network.node(node) {
        Kind::Station(station) => half_stats(&station.router.help()[0].agent),
        Kind::Linked(linked) => half_stats(linked.agent()),
        Kind::Host(_) => Stats::default(),
    };
    let (base, mobile) = (stats(base), stats(mobile));
    drop(network);
    let file = Rc::into_inner(capture).unwrap().into_inner().finish().unwrap();
    Shown { packets: read(&file), base, mobile, took }
}

fn half_stats(helper: &Helper) -> Stats {
    match helper {
        Helper::Unsplit(half) => *half.stats(),
        _ => Stats::default(),
    }
}

fn read(file: &[u8]) -> Vec<Seen> {
    let mut reader = PcapNgReader::new(file).unwrap();
    let (mut names, mut packets) = (Vec::new(), Vec::new());
    while let Some(block) = reader.next_block() {
        match block.unwrap() {
            Block::InterfaceDescription(block) => {
                names.extend(block.options.iter().find_map(|option| match option {
                    InterfaceDescriptionOption::IfName(name) => Some(name.to_string()),
                    _ => None,
                }));
            }
            Block::EnhancedPacket(block) => packets.push(Seen {
                interface: names[block.interface_id as usize].clone(),
                data: block.data.into_owned(),
            }),
            _ => {}
        }
    }
    packets
}

/// A packet of IP as the wired network has it: its segment, of which the checksum is right.
fn plain(data: &[u8]) -> Option<Segment> {
    let (header, payload) = ip::Header::parse(data).unwrap();
    (header.protocol == Protocol::TCP)
        .then(|| Segment::parse(&header.addresses, payload).unwrap().0)
}

/// ALT-1, ALT-3, ALT-8: whatever the hop does, the fixed host's network sees TCP and nothing else: no
/// option of ours, no datagram between the halves, and from the fixed host's congestion control
/// nothing but what the mobile's TCP has acknowledged.
#[test]
fn the_fixed_host_sees_plain_tcp() {
    for down in [true, false] {
        let shown = transfer(lasthop_tcp::Config::ns2(), down, 0.1, 300_000);
        assert!(shown.took.is_some());
        let wired: Vec<_> = shown.packets.iter().filter(|p| p.interface == "wire").collect();
        assert!(wired.len() > 200, "{}", wired.len());
        for packet in wired {
            let segment = plain(&packet.data).expect("only TCP");
            assert_eq!(segment.options.cid, None);
        }
        assert!(shown.packets.iter().all(|p| p.interface != "wire frames"));
    }
}

/// ALT-2, ALT-4: on the hop an IP packet of the connection opens or closes it; all else is a frame
/// with a header of 19 bytes, and 8 more where it asks.
#[test]
fn no_data_crosses_the_hop_with_ip_headers() {
    for down in [true, false] {
        let shown = transfer(lasthop_tcp::Config::ns2(), down, 0.1, 300_000);
        let mut frames = 0;
        for packet in &shown.packets {
            match packet.interface.as_str() {
                "hop" => {
                    if let Some(segment) = plain(&packet.data) {
                        assert!(segment.flags.intersects(Flags::SYN.with(Flags::FIN)));
                    }
                }
                "hop frames" => {
                    assert_eq!(packet.data[12..14], [0x88, 0xb6]);
                    let len = usize::from(u16::from_be_bytes([packet.data[14], packet.data[15]]));
                    let compressed = &packet.data[16..];
                    assert_eq!(compressed.len(), len);
                    let header = unsplit::parse(compressed).unwrap();
                    assert!(matches!(header.header_len(), 19 | 27), "{header:?}");
                    frames += 1;
                }
                _ => {}
            }
        }
        assert_eq!(frames, shown.base.compressed + shown.mobile.compressed);
        assert!(frames > 300, "{frames}");
    }
}

/// ALT-6: a twentieth of the packets is lost on the hop each way, and of that next to nothing reaches
/// the sender: it retransmits seldom, and the hop stays busy.
#[test]
fn losses_of_the_hop_are_repaired_on_the_hop() {
    for down in [true, false] {
        let shown = transfer(lasthop_tcp::Config::ns2(), down, 0.05, 1_000_000);
        let half = if down { shown.base } else { shown.mobile };
        assert!(half.local_retransmits > 30, "{half:?}");
        let sender = if down { FIXED } else { MOBILE };
        let sent = shown.packets.iter().filter(|packet| {
            let header = ip::Header::parse(&packet.data);
            packet.interface == "wire" && header.is_ok_and(|(h, _)| h.addresses.src() == sender)
        });
        let data = sent.filter_map(|packet| plain(&packet.data)).filter(|s| s.len > 0).count();
        assert!((1000..=1010).contains(&data), "{data} segments for 1000");
        let took = shown.took.unwrap();
        assert!(took < Time::from_secs(7), "{took}: the hop alone takes 4.2 s");
    }
}

/// ALT-9: nothing stands between the mobile's half and its TCP, so that no socket layer has to be known:
/// any TCP does, and so would one in an application.
#[test]
fn any_tcp_can_stand_behind_a_half() {
    let all = [
        lasthop_tcp::Config::ns2(),
        lasthop_tcp::Config::bsd_1990s(),
        lasthop_tcp::Config::modern(),
    ];
    for tcp in all {
        for down in [true, false] {
            let shown = transfer(tcp, down, 0.02, 200_000);
            assert!(shown.took.is_some());
            let half = if down { shown.base } else { shown.mobile };
            assert!(half.compressed > 100 && half.local_retransmits > 0, "{half:?}");
        }
    }
}

/// ALT-8: what the queue in front of the hop drops is congestion, at the mobile as at the base. It is
/// left to the sender.
#[test]
fn what_a_queue_drops_is_left_to_the_sender() {
    for down in [true, false] {
        let shown = transfer(lasthop_tcp::Config::modern(), down, 0.0, 6_000_000);
        let half = if down { shown.base } else { shown.mobile };
        assert!(half.left_out > 100 && half.duplicates_passed > 100, "{half:?}");
        assert!(half.local_retransmits < 20 && half.suppressed < 20, "{half:?}");
    }
}
