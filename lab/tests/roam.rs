//! The roaming lab: whoever is where reaches whom.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use lasthop_kernel::netns::Netns;
use lasthop_lab::roam::{BASES, Config, hop_address};
use lasthop_lab::topology::Family;
use lasthop_testing::wait_until;

const PATIENCE: Duration = Duration::from_secs(30);

/// Connects. An IPv6 route may take a moment after the link is there.
fn connect(address: SocketAddr) -> TcpStream {
    let mut stream = None;
    wait_until("the route is there", 3 * PATIENCE, || {
        stream = TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok();
        stream.is_some()
    });
    stream.unwrap()
}

/// A byte there and one back; where the connection came from as the far end saw it.
fn echo(from: &Netns, to: &Netns, address: SocketAddr) -> SocketAddr {
    let listener = to.enter(|| TcpListener::bind(address).unwrap()).unwrap();
    let mut stream = from.enter(|| connect(address)).unwrap();
    let (mut peer, who) = listener.accept().unwrap();
    for end in [&stream, &peer] {
        end.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    stream.write_all(b"?").unwrap();
    peer.read_exact(&mut [0]).unwrap();
    peer.write_all(b"!").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    who
}

#[test]
fn from_every_base_the_mobile_reaches_every_base_and_the_server() {
    let Some(mut roam) = common::roam(&Config::default()) else { return };
    for at in [1, 2, 3, 1] {
        if roam.place() != Some(at) {
            roam.leave().unwrap();
            roam.arrive(at).unwrap();
        }
        assert_eq!(roam.place(), Some(at));
        for family in [Family::V4, Family::V6] {
            let who = echo(&roam.mobile, &roam.server, roam.server_address(family, 80));
            let radio = match family {
                Family::V4 => format!("10.0.2{at}.2"),
                Family::V6 => format!("fd00:2{at}::2"),
            };
            assert_eq!(who.ip().to_string(), radio);
            for base in 1..=BASES {
                echo(&roam.mobile, roam.base(base), hop_address(family, base));
            }
        }
    }
}

#[test]
fn in_a_dead_zone_nobody_is_reached() {
    let Some(mut roam) = common::roam(&Config::default()) else { return };
    roam.leave().unwrap();
    assert_eq!(roam.place(), None);
    let address = roam.server_address(Family::V4, 80);
    let _listener = roam.server.enter(|| TcpListener::bind(address).unwrap()).unwrap();
    let soon = Duration::from_millis(500);
    let reached = roam.mobile.enter(|| TcpStream::connect_timeout(&address, soon)).unwrap();
    assert!(reached.is_err());
}

#[test]
fn what_the_server_sees_of_a_connection_is_told() {
    let Some(roam) = common::roam(&Config::default()) else { return };
    let capture = roam.capture().unwrap();
    let address = roam.server_address(Family::V6, 80);
    let who = echo(&roam.mobile, &roam.server, address);
    let mut seen = capture.take();
    wait_until("the connection is seen", PATIENCE, || {
        seen.extend(&capture.take());
        !seen.alive.is_empty()
    });
    let [(opened, 1)] = seen.openings.iter().collect::<Vec<_>>()[..] else { panic!("{seen:?}") };
    assert_eq!((opened.client, opened.server), (who, address));
    // A port that nobody listens on is refused, by a reset that the server sends.
    let closed = roam.server_address(Family::V4, 9);
    assert!(roam.mobile.enter(|| TcpStream::connect(closed)).unwrap().is_err());
    let mut seen = capture.take();
    wait_until("the reset is seen", PATIENCE, || {
        seen.extend(&capture.take());
        !seen.resets_out.is_empty()
    });
    assert!(seen.any_reset() && seen.resets_out.keys().all(|who| who.server == closed));
}
