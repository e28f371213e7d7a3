//! Headers that packets of a flow have in common.

use core::net::{Ipv4Addr, Ipv6Addr};

use lasthop_wire::ip::{self, Addresses, Protocol};
use lasthop_wire::udp;

use super::*;

/// A flow of UDP whose packets can be told from each other.
#[derive(Clone, Copy)]
struct Udp {
    v6: bool,
    port: u16,
    hop_limit: u8,
}

impl Udp {
    fn packet(self, number: u16, length: usize) -> Vec<u8> {
        let addresses = match self.v6 {
            false => {
                Addresses::V4 { src: Ipv4Addr::new(10, 9, 0, 2), dst: Ipv4Addr::new(10, 0, 0, 1) }
            }
            true => Addresses::V6 { src: Ipv6Addr::LOCALHOST, dst: Ipv6Addr::UNSPECIFIED },
        };
        let content: Vec<u8> = (0..length as u64).map(|n| byte(n + u64::from(number))).collect();
        let header = ip::Header::new(addresses, Protocol::UDP);
        let mut packet = Vec::new();
        ip::Header { id: number, ttl: self.hop_limit, ..header }
            .emit(8 + length, &mut packet)
            .unwrap();
        let ports = udp::Header { src_port: self.port, dst_port: 53 };
        ports.emit(&addresses, &content, &mut packet).unwrap();
        packet
    }
}

/// Hands in a packet.
fn send(w: &mut Pairs, flow: u64, class: PacketClass, data: &[u8]) {
    let packet = OutgoingPacket { client: 0, flow, ecn_capable: false, class, data };
    w.ends[0][0].packets().unwrap().send(w.now, &packet).unwrap();
}

/// Sends a packet of each flow every 5 ms, and says which have come.
fn carry(w: &mut Pairs, packets: &[Vec<Vec<u8>>], class: PacketClass) -> Vec<Vec<Vec<u8>>> {
    let mut came = vec![Vec::new(); packets.len()];
    let longest = packets.iter().map(Vec::len).max().unwrap_or(0);
    for n in 0..longest as u64 + 200 {
        let now = w.now;
        for (flow, packets) in (0..).zip(packets) {
            let Some(data) = packets.get(n as usize) else { continue };
            send(w, flow, class, data);
        }
        let until = now + Duration::from_millis(5);
        while w.now < until {
            w.step(until);
            let lane = w.ends[0][1].packets().unwrap();
            while let Some((data, _)) = lane.front() {
                let data = data.to_vec();
                let mut flows = (0..).zip(packets);
                let flow = flows.find(|(_, packets)| packets.contains(&data));
                came[flow.expect("as it was sent").0 as usize].push(data);
                lane.pop();
            }
        }
    }
    came
}

/// SRP-46: once the receiver has the headers of a flow they are not sent again, of IPv4 and of IPv6, of packets that are cut
/// too; and all comes as it was.
#[test]
fn headers_of_udp_are_not_repeated() {
    for (v6, length, saved) in
        [(false, 60, 22), (true, 60, 44), (false, 2000, 20), (true, 2000, 42)]
    {
        let bytes = |changes: bool| {
            let mut w = Pairs::new(1);
            let packet = |n: u16| {
                let hop_limit = if changes { n as u8 } else { 64 };
                Udp { v6, port: 7, hop_limit }.packet(n, length)
            };
            let packets = [(0..400).map(packet).collect()];
            assert_eq!(carry(&mut w, &packets, PacketClass::CALL), packets);
            assert_eq!(stats(&w, 0).bytes_sent, 400 * packets[0][0].len() as u64);
            let path = w.ends[0][0].path_stats().next();
            path.unwrap().bytes_sent.get()
        };
        // Headers that change each time are sent each time.
        let (whole, short) = (bytes(true), bytes(false));
        assert!(short + 380 * saved < whole, "{length} B: {short} and {whole}");
    }
}

/// SRP-46: nor is anything wrong or missing where packets are lost and late, headers change, and flows share a name.
#[test]
fn headers_come_back_whatever_is_lost() {
    for seed in 0..20 {
        let mut w = lossy(seed, 0.2);
        w.pipes[0].late = Some((7, Duration::from_millis(30)));
        let packets: Vec<Vec<Vec<u8>>> = (0..6)
            .map(|flow| {
                let packet = |n: u16| {
                    let v6 = (flow + n / 90) % 2 == 1;
                    let length = if flow == 3 { 2500 } else { 40 + usize::from(n % 50) };
                    let hop_limit = 60 + (n / (10 + 7 * flow) % 3) as u8;
                    Udp { v6, port: 1000 + flow, hop_limit }.packet(n, length)
                };
                (0..300).map(packet).collect()
            })
            .collect();
        let class = PacketClass { patience: 30.0, ..PacketClass::TRANSPORT };
        assert_eq!(carry(&mut w, &packets, class), packets, "seed {seed}: {:?}", stats(&w, 1));
    }
}

/// SRP-46: what needs headers that never came is dropped and counted; what contradicts itself ends the association.
#[test]
fn what_needs_headers_that_never_came_is_dropped() {
    let [mut end, _] = pair(&HopConfig::default(), &HopConfig::default(), Time::ZERO);
    let udp = Udp { v6: false, port: 7, hop_limit: 64 };
    let (kept, other) = (udp.packet(1, 9), udp.packet(2, 30));
    let frame = |number, header, data| PacketFrame { number, header, data, ..WHOLE };
    deliver(&mut end, 1, frame(10, PacketHeader::LeftOut(9), &other[24..]));
    deliver(&mut end, 2, frame(11, PacketHeader::Kept, &kept));
    // It is another flow's.
    let short = frame(12, PacketHeader::LeftOut(1), &other[24..]);
    deliver(&mut end, 3, PacketFrame { flow: 2, ..short });
    assert_eq!(crate::transport::Transport::stats(&end).packets.dropped_received, 2);
    let id = [&2_u16.to_be_bytes(), &other[26..]].concat();
    deliver(&mut end, 4, frame(13, PacketHeader::LeftOut(2), &id));
    for expected in [&kept, &other] {
        assert_eq!(end.packets().unwrap().front(), Some((&expected[..], false)));
        end.packets().unwrap().pop();
    }
    assert!(end.closed().is_none());
    deliver(&mut end, 5, frame(14, PacketHeader::LeftOut(3), &[0; 3]));
    assert_eq!(end.closed(), Some(CloseReason::Protocol));
}

/// SRP-46: what is taken back is as it was handed in.
#[test]
fn what_is_taken_back_has_its_headers() {
    for seed in 0..20 {
        let mut w = lossy(seed, 0.15);
        let udp = Udp { v6: seed % 2 == 1, port: 7, hop_limit: 64 };
        let packets: Vec<Vec<u8>> = (0..200).map(|n| udp.packet(n, 1200)).collect();
        let _ = carry(&mut w, &[packets[..40].to_vec()], PacketClass::TRANSPORT);
        let now = w.now;
        for data in &packets[40..] {
            send(&mut w, 0, PacketClass::TRANSPORT, data);
        }
        let (until, before) = (now + 2 * RTT, stats(&w, 0).sent);
        while w.now < until {
            w.step(until);
        }
        let now = w.now;
        let taken = w.ends[0][0].packets().unwrap().take_back(now);
        let begun = stats(&w, 0).sent - before;
        assert!(taken.len() as u64 > 160 - begun, "some were lost, of {begun} that were sent");
        assert!(taken.iter().all(|packet| packets.contains(packet)), "seed {seed}");
    }
}

/// SRP-46: a flow's headers are sent again in time, before what says which ones they are takes more room.
#[test]
fn headers_are_renewed() {
    for loss in [0.0, 0.05] {
        let mut w = lossy(3, loss);
        let udp = Udp { v6: false, port: 7, hop_limit: 64 };
        let (mut sent, mut came) = (0_u64, 0_u64);
        while sent < 40_000 {
            send(&mut w, 0, PacketClass::TRANSPORT, &udp.packet(sent as u16, 30));
            sent += 1;
            let until = w.now + Duration::from_micros(300);
            while w.now < until {
                w.step(until);
            }
            let lane = w.ends[0][1].packets().unwrap();
            while lane.front().is_some() {
                came += 1;
                lane.pop();
            }
        }
        let to = stats(&w, 1);
        assert_eq!(to.dropped_received, 0, "{to:?}");
        assert!(came + 400 > sent, "{came} of {sent}: {:?}", stats(&w, 0));
        // With all headers a packet takes 122 bytes on the hop.
        let path = w.ends[0][0].path_stats().next();
        let each = path.unwrap().bytes_sent.get() / sent;
        assert!(loss > 0.0 || each < 105, "{each}");
    }
}
