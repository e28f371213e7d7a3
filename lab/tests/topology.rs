//! The lab's hosts reach each other as the topology says.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use lasthop_kernel::netns::Netns;
use lasthop_lab::topology::{Family, Lab, Topology};
use lasthop_radio::{Direction, Errors, LinkStats};
use lasthop_testing::wait_until;

const PATIENCE: Duration = Duration::from_secs(60);
/// Less than the radio's queue holds.
const BATCH: u64 = 50;

/// A byte there and one back over a new connection, and how long connecting took.
fn echo(from: &Netns, to: &Netns, address: SocketAddr) -> Duration {
    let listener = to.enter(|| TcpListener::bind(address).unwrap()).unwrap();
    let start = Instant::now();
    let mut stream =
        from.enter(|| TcpStream::connect_timeout(&address, PATIENCE).unwrap()).unwrap();
    let elapsed = start.elapsed();
    let (mut peer, _) = listener.accept().unwrap();
    for end in [&stream, &peer] {
        end.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    stream.write_all(b"?").unwrap();
    peer.read_exact(&mut [0]).unwrap();
    peer.write_all(b"!").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    elapsed
}

#[test]
fn connections_cross_both_links_in_both_families_and_not_faster_than_light() {
    let Some(lab) = common::lab(&Topology::default()) else { return };
    for family in [Family::V4, Family::V6] {
        // Nothing arrives early, however loaded the machine: 25 ms + 20 ms each way.
        let address = lab.server_address(family);
        assert!(echo(&lab.mobile, &lab.fixed, address) >= Duration::from_millis(90));
        let at_mobile = SocketAddr::new(lab.mobile_address(family), 8080);
        assert!(echo(&lab.fixed, &lab.mobile, at_mobile) >= Duration::from_millis(90));
        assert!(
            echo(&lab.mobile, &lab.base, lab.base_address(family)) >= Duration::from_millis(40)
        );
    }
}

/// Sends `count` datagrams from the base to the mobile; how many arrive.
fn flood(lab: &Lab, count: u64) -> u64 {
    let to = SocketAddr::new(lab.mobile_address(Family::V4), 9);
    let receiver = lab.mobile.enter(|| UdpSocket::bind(to).unwrap()).unwrap();
    receiver.set_nonblocking(true).unwrap();
    let sender = lab.base.enter(|| UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
    let mut arrived = 0;
    // Each batch has left the radio before the next one comes.
    for sent in (BATCH..=count).step_by(BATCH as usize) {
        for _ in 0..BATCH {
            sender.send_to(&[0; 100], to).unwrap();
        }
        wait_until("the radio is done with all", PATIENCE, || {
            while receiver.recv(&mut [0; 200]).is_ok() {
                arrived += 1;
            }
            let LinkStats { offered, held, dropped, .. } = lab.radio.stats(Direction::Down);
            let lost = dropped.loss.packets + dropped.silence.packets + dropped.queue.packets;
            offered.packets >= sent && held == 0 && arrived + lost >= sent
        });
    }
    arrived
}

#[test]
fn the_radio_loses_what_it_is_told_to_and_counts_it() {
    let Some(lab) = common::lab(&Topology::losing(Errors::Uniform(0.2))) else { return };
    lab.radio.control.reset_stats();
    let arrived = flood(&lab, 1000);
    let stats = lab.radio.stats(Direction::Down);
    assert_eq!(stats.queue_drop_share(), 0.0);
    // Five standard deviations.
    assert!((740..=860).contains(&arrived), "{arrived} of 1000");
    assert!((0.14..=0.26).contains(&stats.loss()), "{}", stats.loss());
    assert!(stats.delivered.packets >= arrived);
}

#[test]
fn nothing_crosses_a_silent_radio() {
    let Some(lab) = common::lab(&Topology::default()) else { return };
    lab.radio.control.pause(Duration::from_secs(3600));
    lab.radio.control.reset_stats();
    assert_eq!(flood(&lab, 100), 0);
    // The hosts' own chatter may come on top.
    assert!(lab.radio.stats(Direction::Down).dropped.silence.packets >= 100);
}

#[test]
fn a_radio_of_128_bytes_has_no_ipv6_and_carries_tcp() {
    let mut topology = Topology::default();
    topology.radio.up.mtu = 128;
    topology.radio.down.mtu = 128;
    let Some(lab) = common::lab(&topology) else { return };
    echo(&lab.mobile, &lab.fixed, lab.server_address(Family::V4));
}

#[test]
fn without_privilege_the_radio_joins_two_udp_ports() {
    let lab = Lab::on_loopback(&Topology::default()).unwrap();
    let base = UdpSocket::bind(lab.base_address(Family::V4)).unwrap();
    let mobile = UdpSocket::bind("127.0.0.1:0").unwrap();
    for socket in [&base, &mobile] {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    let start = Instant::now();
    mobile.send_to(b"?", lab.base_from_mobile(Family::V4)).unwrap();
    let (_, from) = base.recv_from(&mut [0]).unwrap();
    assert_ne!(from, mobile.local_addr().unwrap(), "it did not cross the radio");
    base.send_to(b"!", from).unwrap();
    let (_, from) = mobile.recv_from(&mut [0]).unwrap();
    assert_eq!(from, lab.base_from_mobile(Family::V4));
    assert!(start.elapsed() >= Duration::from_millis(40));
    assert_eq!(lab.radio.stats(Direction::Up).delivered.packets, 1);
}
