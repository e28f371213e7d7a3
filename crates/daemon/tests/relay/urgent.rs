//! Urgent data (RFC 9293 section 3.8.5) arrive in line: every byte in its place, the mark left behind.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use lasthop_daemon::config::HopKind;
use rustix::net::SendFlags;

use crate::harness::{self, Pair, Setting, echo_server, free_port, serve_all};

/// Whether a relay finds the mark with bytes before and behind it depends on how it is scheduled.
const ROUNDS: usize = 50;
const PATIENCE: Duration = Duration::from_secs(20);

/// What [`speak`] sends once.
const SAID: &[u8] = b"abc!def??gh";

/// Marks in all places: one with bytes on both sides, two in a row, and one with nothing behind it.
fn speak(stream: &mut TcpStream) {
    stream.set_nodelay(true).unwrap();
    stream.write_all(b"abc").unwrap();
    shout(stream, b"!");
    stream.write_all(b"def").unwrap();
    shout(stream, b"?");
    shout(stream, b"?");
    stream.write_all(b"g").unwrap();
    shout(stream, b"h");
}

fn shout(stream: &TcpStream, bytes: &[u8]) {
    assert_eq!(rustix::net::send(stream, bytes, SendFlags::OOB), Ok(bytes.len()));
}

/// Hears all of it; the connection stays open, so that nothing but the bytes wakes a relay.
fn hear(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut heard = vec![0; SAID.len()];
    if let Err(e) = stream.read_exact(&mut heard) {
        panic!("{e} after {:?}", String::from_utf8_lossy(&heard));
    }
    assert_eq!(heard, SAID, "{}", String::from_utf8_lossy(&heard));
}

fn answer(mut stream: TcpStream) {
    while stream.peek(&mut [0]).is_ok_and(|n| n > 0) {
        hear(&mut stream);
        speak(&mut stream);
    }
}

fn converse(mut client: TcpStream) {
    for _ in 0..ROUNDS {
        speak(&mut client);
        hear(&mut client);
    }
}

pub(crate) fn urgent_data_arrive_in_line_both_ways(hop: HopKind) {
    let pair = Pair::sealed(hop);
    converse(pair.connect(serve_all(answer)));
}

/// An application need not wait for the answer of the proxy: the first bytes that a relay finds may
/// be those with the mark.
pub(crate) fn urgent_data_that_were_sent_ahead_are_not_lost(hop: HopKind) {
    let pair = Pair::sealed(hop);
    let mut client = TcpStream::connect(pair.proxy).unwrap();
    let SocketAddr::V4(server) = echo_server() else { panic!("an IPv4 server") };
    let mut request = vec![5, 1, 0, 5, 1, 0, 1];
    request.extend(server.ip().octets());
    request.extend(server.port().to_be_bytes());
    client.write_all(&request).unwrap();
    speak(&mut client);
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.read_exact(&mut [0; 2 + 10]).unwrap();
    hear(&mut client);
}

pub(crate) fn urgent_data_arrive_in_line_at_a_published_server(hop: HopKind) {
    for ipv6 in [false, true] {
        let door = free_port(ipv6);
        let published = vec![(door, Some(serve_all(answer)))];
        let pair = Pair::start(Setting { published, ..Setting::new(hop) });
        drop(pair.connect(echo_server()));
        harness::wait_until("the door opens", || TcpStream::connect(door).is_ok());
        converse(TcpStream::connect(door).unwrap());
    }
}
