//! A base and a mobile in one process, over loopback, with real sockets on both sides.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod harness;
mod own_addresses;
mod publish;
mod urgent;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::num::NonZeroU32;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use harness::{PATIENCE, Pair, Setting, closed_port, echo_server, pattern, read_all, serve_once};
use lasthop_daemon::base::LimitsFile;
use lasthop_daemon::config::{HopKind, SealKind};
use lasthop_daemon::mobile::Connect;
use lasthop_units::Bytes;
use urgent::{
    urgent_data_arrive_in_line_at_a_published_server, urgent_data_arrive_in_line_both_ways,
    urgent_data_that_were_sent_ahead_are_not_lost,
};

const MB: usize = 1 << 20;

/// Runs every test once with each hop: what a session promises does not depend on what carries it.
macro_rules! with_each_hop {
    ($($name:ident,)*) => {
        mod srp {
            $(#[test] fn $name() { super::$name(super::HopKind::Srp) })*
        }
        mod mobile_tcp {
            $(#[test] fn $name() { super::$name(super::HopKind::MobileTcp) })*
        }
        mod split_tcp {
            $(#[test] fn $name() { super::$name(super::HopKind::SplitTcp) })*
        }
    };
}

with_each_hop! {
    bytes_go_both_ways_at_once_unchanged,
    a_half_close_passes_and_the_other_direction_goes_on,
    a_fixed_host_may_speak_first_and_end_first,
    a_reset_by_the_fixed_host_is_a_reset_at_the_application,
    a_reset_by_the_application_is_a_reset_at_the_fixed_host,
    refusals_have_the_error_of_the_fixed_host,
    with_early_opening_a_refusal_arrives_as_a_reset,
    a_reader_that_stops_stops_the_sender,
    connections_that_nobody_reads_leave_room_for_others,
    openings_beyond_the_rate_wait_for_their_turn,
    two_hundred_connections_at_once_are_all_served,
    a_wrong_mobile_key_gets_no_connection,
    garbage_on_the_bases_port_changes_a_counter_only,
    a_base_that_comes_back_is_found_again,
    an_opening_is_refused_as_unreachable_while_the_network_reports_no_base,
    an_opening_whose_application_has_gone_is_never_carried_out,
    an_opening_that_the_base_carries_out_ends_with_its_application,
    stopping_lets_open_connections_end,
    a_second_stop_does_not_wait,
    the_status_socket_reports_associations_and_connections,
    the_status_socket_tells_what_was_carried_of_late,
    curl_goes_through_socks_and_through_connect,
    urgent_data_arrive_in_line_both_ways,
    urgent_data_that_were_sent_ahead_are_not_lost,
    urgent_data_arrive_in_line_at_a_published_server,
}

/// MHP-2, MHP-10, SPL-1
fn bytes_go_both_ways_at_once_unchanged(hop: HopKind) {
    for seal in [SealKind::Noise, SealKind::None] {
        let pair = Pair::start(Setting { seal, ..Setting::new(hop) });
        let mut client = pair.connect(echo_server());
        let sent = pattern(8 * MB);
        let mut writer = client.try_clone().unwrap();
        let data = sent.clone();
        let sending = thread::spawn(move || {
            writer.write_all(&data).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let got = read_all(&mut client);
        sending.join().unwrap();
        assert!(got == sent, "{} of {} bytes", got.len(), sent.len());
    }
}

/// MHP-14
fn a_half_close_passes_and_the_other_direction_goes_on(hop: HopKind) {
    let pair = Pair::sealed(hop);
    // Answers only after the request has ended.
    let server = serve_once(|mut stream| {
        let request = read_all(&mut stream);
        assert_eq!(request, b"request");
        thread::sleep(Duration::from_millis(50));
        stream.write_all(&pattern(3 * MB)).unwrap();
    });
    let mut client = pair.connect(server);
    client.write_all(b"request").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert!(read_all(&mut client) == pattern(3 * MB));
}

fn a_fixed_host_may_speak_first_and_end_first(hop: HopKind) {
    let pair = Pair::sealed(hop);
    let server = serve_once(|mut stream| {
        stream.write_all(b"hello").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(&mut stream), pattern(MB));
    });
    let mut client = pair.connect(server);
    assert_eq!(read_all(&mut client), b"hello");
    client.write_all(&pattern(MB)).unwrap();
}

fn a_reset_by_the_fixed_host_is_a_reset_at_the_application(hop: HopKind) {
    let pair = Pair::sealed(hop);
    let server = serve_once(|mut stream| {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        harness::reset(&stream);
    });
    let mut client = pair.connect(server);
    client.write_all(b"x").unwrap();
    let error = client.read(&mut [0; 10]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

fn a_reset_by_the_application_is_a_reset_at_the_fixed_host(hop: HopKind) {
    let pair = Pair::sealed(hop);
    let (tell, told) = std::sync::mpsc::channel();
    let server = serve_once(move |mut stream| {
        let mut byte = [0];
        tell.send(stream.read_exact(&mut byte).err()).unwrap();
        tell.send(stream.read(&mut byte).err()).unwrap();
    });
    let mut client = pair.connect(server);
    client.write_all(b"x").unwrap();
    // A reset may overtake what was sent before it.
    assert!(told.recv_timeout(PATIENCE).unwrap().is_none());
    harness::reset(&client);
    drop(client);
    let error = told.recv_timeout(PATIENCE).unwrap().unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

/// MHP-5
fn refusals_have_the_error_of_the_fixed_host(hop: HopKind) {
    let pair = Pair::sealed(hop);
    assert_eq!(pair.socks(closed_port()).unwrap_err(), 5, "connection refused");
    assert_eq!(pair.socks_name("no.such.name.invalid", 80).unwrap_err(), 4, "host unreachable");
    // The base's own addresses are denied; 127.0.0.0/8 is what the test allows.
    assert_eq!(pair.socks("[::1]:9".parse().unwrap()).unwrap_err(), 2, "not allowed");
}

fn with_early_opening_a_refusal_arrives_as_a_reset(hop: HopKind) {
    let pair = Pair::start(Setting { connect: Connect::Early, ..Setting::new(hop) });
    let mut client = pair.connect(closed_port());
    // The kernel reports a reset once, to whichever call comes first after it.
    let outcome = client.write_all(b"early").and_then(|()| client.read(&mut [0; 10]));
    assert_eq!(outcome.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    let mut client = pair.connect(echo_server());
    client.write_all(b"early").unwrap();
    let mut got = [0; 5];
    client.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"early");
}

/// MHP-11
fn a_reader_that_stops_stops_the_sender(hop: HopKind) {
    let pair = Pair::sealed(hop);
    let (sent, all) = (Arc::new(AtomicUsize::new(0)), 256 * MB);
    let count = sent.clone();
    let server = serve_once(move |mut stream| {
        let piece = vec![7; MB];
        while count.load(Ordering::Relaxed) < all {
            // It ends with the client.
            let Ok(n) = stream.write(&piece) else { return };
            count.fetch_add(n, Ordering::Relaxed);
        }
    });
    let mut client = pair.connect(server);
    let mut latest = (0, Instant::now());
    harness::wait_until("the sender stands still", || {
        let now = sent.load(Ordering::Relaxed);
        assert!(now < all, "all of {now} bytes were taken though nobody reads");
        if now != latest.0 {
            latest = (now, Instant::now());
        }
        now > 0 && latest.1.elapsed() > Duration::from_secs(1)
    });
    let taken = latest.0;
    client.read_exact(&mut vec![0; taken]).unwrap();
    harness::wait_until("the sender goes on", || sent.load(Ordering::Relaxed) > taken);
}

/// SEC-13: what connections that nobody reads hold at the base is bounded by the base's setting, and one
/// that is read goes on.
fn connections_that_nobody_reads_leave_room_for_others(hop: HopKind) {
    // A connection of split-tcp has buffers of its own, which count from its first byte.
    let bound = Bytes::from_mib(if hop == HopKind::SplitTcp { 128 } else { 64 });
    let limits = LimitsFile { memory: Some(bound), ..LimitsFile::default() };
    let pair = Pair::start(Setting { limits, ..Setting::new(hop) });
    let sent = Arc::new(AtomicUsize::new(0));
    let count = sent.clone();
    let server = harness::serve_all(move |mut stream| {
        // It ends with the client.
        while let Ok(n) = stream.write(&[7; 65536]) {
            count.fetch_add(n, Ordering::Relaxed);
        }
    });
    let unread: Vec<_> = (0..40).map(|_| pair.connect(server)).collect();
    let mut latest = (0, Instant::now());
    harness::wait_until("the senders stand still", || {
        let now = sent.load(Ordering::Relaxed);
        if now != latest.0 {
            latest = (now, Instant::now());
        }
        now > 0 && latest.1.elapsed() > Duration::from_secs(1)
    });
    let memory = pair.base_report().memory.unwrap();
    assert_eq!(memory.bound, bound.get());
    assert!(memory.promised > 0 && memory.promised <= memory.bound, "{memory:?}");

    let mut client = pair.connect(echo_server());
    let data = pattern(MB);
    client.write_all(&data[..100_000]).unwrap();
    let mut back = vec![0; 100_000];
    client.read_exact(&mut back).unwrap();
    assert!(back == data[..100_000]);
    drop(unread);
}

/// SEC-19
fn openings_beyond_the_rate_wait_for_their_turn(hop: HopKind) {
    let limits = LimitsFile { openings: NonZeroU32::new(2), ..LimitsFile::default() };
    let pair = Pair::start(Setting { limits, ..Setting::new(hop) });
    let server = echo_server();
    let began = Instant::now();
    let mut clients: Vec<_> = (0..20).map(|_| pair.connect(server)).collect();
    // 16 at once, and two a second.
    assert!(began.elapsed() > Duration::from_millis(1900), "{:?}", began.elapsed());
    for client in &mut clients {
        client.write_all(b"here").unwrap();
        client.read_exact(&mut [0; 4]).unwrap();
    }
}

fn two_hundred_connections_at_once_are_all_served(hop: HopKind) {
    let pair = Pair::sealed(hop);
    let server = echo_server();
    let mut clients: Vec<_> = (0..200).map(|_| pair.connect(server)).collect();
    for (i, client) in clients.iter_mut().enumerate() {
        client.write_all(&pattern(20_000 + i)).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
    }
    for (i, client) in clients.iter_mut().enumerate() {
        assert!(read_all(client) == pattern(20_000 + i), "connection {i}");
    }
}

fn a_wrong_mobile_key_gets_no_connection(hop: HopKind) {
    let pair = Pair::start(Setting { allow_mobile: false, ..Setting::new(hop) });
    let stream = TcpStream::connect(pair.proxy).unwrap();
    let report = pair.mobile_report();
    assert_ne!(report.associations[0].state, "up");
    drop(stream);
}

fn garbage_on_the_bases_port_changes_a_counter_only(hop: HopKind) {
    let pair = Pair::sealed(hop);
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 1400], b"LHT\x02\x00\xff\xff", b"L"] {
        match hop {
            HopKind::Srp | HopKind::MobileTcp => harness::send_datagram(pair.base, garbage),
            HopKind::SplitTcp => harness::send_and_await_end(pair.base, garbage),
        }
    }
    harness::wait_until("garbage is counted", || pair.base_report().counters.garbage >= 4);
    let mut client = pair.connect(echo_server());
    client.write_all(b"still here").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut client), b"still here");
}

fn a_base_that_comes_back_is_found_again(hop: HopKind) {
    let mut pair = Pair::sealed(hop);
    pair.restart_base();
    let mut client = pair.connect_patiently(echo_server());
    client.write_all(b"again").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut client), b"again");
}

fn an_opening_is_refused_as_unreachable_while_the_network_reports_no_base(hop: HopKind) {
    let mut pair = Pair::sealed(hop);
    drop(pair.connect(echo_server()));
    pair.stop_base();
    for _ in 0..2 {
        assert_eq!(pair.socks(echo_server()).unwrap_err(), 4, "host unreachable");
    }
    pair.start_base();
    drop(pair.connect_patiently(echo_server()));
}

/// The base does not answer: nothing receives the mobile's requests.
fn an_opening_whose_application_has_gone_is_never_carried_out(hop: HopKind) {
    let mut pair = Pair::sealed(hop);
    pair.stop_base();
    let silent = harness::silence(hop, pair.base);
    let (tell, told) = std::sync::mpsc::channel();
    let server = harness::serve_all(move |_| tell.send(()).unwrap());
    for way in harness::REQUESTS {
        drop(pair.requested(way, server));
    }
    let gone = || pair.mobile_report().connections.is_empty();
    harness::wait_until("what nobody waits for is forgotten", gone);
    drop(silent);
    pair.start_base();
    drop(pair.connect_patiently(echo_server()));
    assert!(told.try_recv().is_err(), "the server was connected to for nobody");
}

fn an_opening_that_the_base_carries_out_ends_with_its_application(hop: HopKind) {
    let pair = Pair::sealed(hop);
    let full = harness::FullServer::new();
    let stream = pair.requested(harness::REQUESTS[0], full.address);
    let opening = || pair.base_report().connections.iter().any(|c| c.state == "opening");
    harness::wait_until("the base connects", opening);
    drop(stream);
    let ended = || pair.base_report().connections.is_empty();
    harness::wait_until("the base gives up", ended);
    assert!(pair.mobile_report().connections.is_empty());
}

fn stopping_lets_open_connections_end(hop: HopKind) {
    let mut pair = Pair::sealed(hop);
    let server = serve_once(|mut stream| {
        thread::sleep(Duration::from_millis(300));
        stream.write_all(&pattern(MB)).unwrap();
    });
    let mut client = pair.connect(server);
    client.shutdown(Shutdown::Write).unwrap();
    pair.stop_mobile();
    harness::wait_until("nobody is accepted", || TcpStream::connect(pair.proxy).is_err());
    assert!(read_all(&mut client) == pattern(MB));
    pair.join_mobile();
}

fn a_second_stop_does_not_wait(hop: HopKind) {
    let mut pair = Pair::sealed(hop);
    let mut client = pair.connect(echo_server());
    pair.stop_mobile();
    pair.stop_mobile();
    pair.join_mobile();
    let error = client.read(&mut [0; 10]);
    assert!(matches!(error, Ok(0) | Err(_)), "{error:?}");
}

fn the_status_socket_reports_associations_and_connections(hop: HopKind) {
    let pair = Pair::sealed(hop);
    let mut client = pair.connect(echo_server());
    client.write_all(&pattern(1000)).unwrap();
    client.read_exact(&mut [0; 1000]).unwrap();
    let name = hop.to_string();
    for (role, report) in [("mobile", pair.mobile_report()), ("base", pair.base_report())] {
        assert_eq!((report.role.as_str(), report.hop.as_str()), (role, name.as_str()));
        assert_eq!(report.associations[0].state, "up", "{role}");
        let connection = &report.connections[0];
        assert_eq!((connection.bytes_to_hop, connection.bytes_from_hop), (1000, 1000), "{role}");
        assert_eq!(connection.state, "open", "{role}");
    }
    drop(client);
}

fn the_status_socket_tells_what_was_carried_of_late(hop: HopKind) {
    let pair = Pair::sealed(hop);
    let mut client = pair.connect(echo_server());
    let carried = 100_000;
    client.write_all(&pattern(carried)).unwrap();
    client.read_exact(&mut vec![0; carried]).unwrap();
    drop(client);
    assert_eq!(pair.mobile_report().past, None, "nobody has asked");
    for role in ["mobile", "base"] {
        // The second in which they were carried has to be over.
        harness::wait_until("what was carried is remembered", || {
            let remembered = pair.remembered(role);
            // Openings are carried too.
            let most = carried as u64 + 10_000;
            assert!(remembered.iter().all(|bytes| *bytes <= most), "{role}: {remembered:?}");
            remembered.iter().all(|bytes| *bytes >= carried as u64)
        });
    }
}

fn curl_goes_through_socks_and_through_connect(hop: HopKind) {
    if !lasthop_testing::is_installed("curl") {
        return;
    }
    let pair = Pair::sealed(hop);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || harness::serve_http(&mut stream, &pattern(2 * MB)));
        }
    });
    let proxy = pair.proxy;
    let url = format!("http://127.0.0.1:{port}/file");
    let ways: [&[String]; 3] = [
        &["--socks5-hostname".into(), proxy.to_string()],
        &["--proxytunnel".into(), "--proxy".into(), format!("http://{proxy}")],
        &["--proxy".into(), format!("http://{proxy}")],
    ];
    for way in ways {
        let out = Command::new("curl")
            .args(["-sS", "--max-time", "30", "--noproxy", ""])
            .args(way)
            .arg(&url)
            .output()
            .unwrap();
        assert!(out.status.success(), "{way:?}: {}", String::from_utf8_lossy(&out.stderr));
        assert!(out.stdout == pattern(2 * MB), "{way:?}: {} bytes", out.stdout.len());
    }
}
