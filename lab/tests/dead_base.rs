//! A base that dies without a word, while its host lives: what the network says of it is heard.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{ErrorKind, Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use lasthop_lab::client::Client;
use lasthop_lab::http;
use lasthop_lab::scheme::{Carrier, Hop};
use lasthop_lab::topology::{Family, Topology};
use lasthop_units::Seed;

const PATIENCE: Duration = Duration::from_secs(30);
const SEED: Seed = Seed::from_u64(7);

/// A download is under way when its base is killed, which is not started again.
fn a_download_ends_with_its_base(hop: &Hop) {
    let Some(program) = common::program() else { return };
    let Some(lab) = common::lab(&Topology::default()) else { return };
    let server = http::start(&lab.fixed, lab.server_address(Family::V4), SEED).unwrap();
    let mut carrier = Carrier::start_hop(hop, &lab, Family::V4, &program, PATIENCE).unwrap();
    let client = Client::new(&lab.mobile, carrier.via(), server.address());
    let mut stream = client.connect(PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /bytes/10000000000 HTTP/1.1\r\nHost: fixed\r\n\r\n").unwrap();
    stream.read_exact(&mut [0; 100_000]).unwrap();
    carrier.kill_base();
    let mut piece = vec![0; 65_536];
    let error = loop {
        match stream.read(&mut piece) {
            Ok(0) => panic!("a download that was cut looks ended"),
            Ok(_) => {}
            Err(e) => break e,
        }
    };
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    // Nor does an opening wait for a base that is not there.
    let refused = client.connect(PATIENCE).unwrap_err().to_string();
    assert!(refused.contains("host unreachable") || refused.contains('4'), "{refused}");
    carrier.restart_base().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while let Err(e) = client.connect(PATIENCE) {
        assert!(Instant::now() < deadline, "{e}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_download_by_srp_ends_with_its_base() {
    a_download_ends_with_its_base(&Hop::new("srp"));
}

#[test]
fn a_download_by_mobile_tcp_ends_with_its_base_sealed_and_bare() {
    for bare in [false, true] {
        a_download_ends_with_its_base(&Hop { bare, ..Hop::new("mobile-tcp") });
    }
}

#[test]
fn a_download_by_split_tcp_ends_with_its_base() {
    a_download_ends_with_its_base(&Hop::new("split-tcp"));
}
