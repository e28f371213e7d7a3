//! A path of bridges without any agent: what agents are compared with.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::helped::Scene;
use etherparse::{SlicedPacket, TcpHeader, TcpOptionElement, TransportSlice};
use lasthop_kernel::netns::Netns;
use lasthop_kernel::offload::HEADER_LENGTH;
use lasthop_kernel::packet_socket::PacketSocket;
use lasthop_lab::agent::path::{Behind, HOST_IF, Settings};
use lasthop_lab::agent::sender::Sender;
use lasthop_lab::topology::{Family, link};
use lasthop_lab::traffic::Traffic;
use lasthop_radio::RadioConfig;
use lasthop_units::{Duration, Rate};
use rustix::net::{RecvFlags, recv};

/// The TCP headers that an interface has received so far.
fn headers(socket: &PacketSocket) -> Vec<TcpHeader> {
    let mut frame = vec![0; 70_000];
    let mut headers = Vec::new();
    while let Ok((n, _)) = recv(socket, &mut frame[..], RecvFlags::DONTWAIT) {
        let Ok(packet) = SlicedPacket::from_ethernet(&frame[HEADER_LENGTH..n]) else { continue };
        if let Some(TransportSlice::Tcp(tcp)) = packet.transport {
            headers.push(tcp.to_header());
        }
    }
    headers
}

fn options(header: &TcpHeader) -> Vec<TcpOptionElement> {
    header.options_iterator().map_while(Result::ok).collect()
}

#[test]
fn kernels_send_as_they_are_told() {
    for sender in [Sender::RENO_32, Sender::CUBIC] {
        for family in [Family::V4, Family::V6] {
            let settings = Settings { sender, ..Settings::default() };
            let Some(mut scene) = Scene::start(&settings) else { return };
            let sniff = |host: &Netns| host.enter(|| PacketSocket::open(HOST_IF)).unwrap().unwrap();
            let (at_fixed, at_mobile) = (sniff(&scene.path.fixed), sniff(&scene.path.mobile));
            let mut flow = scene.flow(Traffic::Download, family);
            let (to_fixed, to_mobile) = (headers(&at_fixed), headers(&at_mobile));
            let said = options(to_mobile.iter().find(|header| header.syn).unwrap());
            assert_eq!(
                said.contains(&TcpOptionElement::SelectiveAcknowledgementPermitted),
                sender.sack
            );
            let stamped = said.iter().any(|o| matches!(o, TcpOptionElement::Timestamp(..)));
            assert_eq!(stamped, sender.timestamps);
            if let Some(packets) = sender.window {
                let offer = to_fixed.iter().find(|header| header.syn).unwrap();
                let scale = options(offer).into_iter().find_map(|o| match o {
                    TcpOptionElement::WindowScale(scale) => Some(scale),
                    _ => None,
                });
                let windows = to_fixed.iter().filter(|header| !header.syn);
                let window = windows.map(|header| u32::from(header.window_size)).max().unwrap();
                let (window, full) = (window << scale.unwrap_or(0), packets * 1460);
                // A receiver rounds down to whole segments of the size that it has seen.
                assert!(window <= full && window > full - 3 * 1460, "{window} of {full}");
            }
            assert!(flow.sha256_ok());
        }
    }
}

#[test]
fn every_path_carries_both_ways_at_once() {
    let second = RadioConfig::both(link(Rate::from_mbps(11), Duration::from_millis(5), 50));
    for behind in [Behind::Mobile, Behind::Edge, Behind::Router(Box::new(second))] {
        let settings = Settings { behind: behind.clone(), ..Settings::default() };
        let Some(mut scene) = Scene::start(&settings) else { return };
        scene.path.make_strangers().unwrap();
        for family in [Family::V4, Family::V6] {
            let mut flow = scene.flow(Traffic::Both, family);
            assert!(flow.sha256_ok(), "{behind:?}");
        }
    }
}
