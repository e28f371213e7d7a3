//! Every fuzz target for a moment: samples, changed at random and without end, by a seed that is
//! printed. `LASTHOP_FUZZ_ROUNDS=n` sets how many inputs each target gets, `LASTHOP_FUZZ_SEED=n`
//! where they start.

use std::env;

use lasthop_fuzz::{datagram, frames, handshake, http_connect, mhp, socks5, srp};
use lasthop_units::{Seed, Stream};

const ROUNDS: u64 = 400_000;
const LONGEST: u64 = 2_000;
/// Bytes that decoders look for, and the edges of their numbers.
const INTERESTING: &[u8] = &[0, 1, 2, 4, 5, 0x10, 0x3f, 0x40, 0x7f, 0x80, 0xbf, 0xc0, 0xff];

fn setting(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| value.parse().expect("a number"))
}

fn place(numbers: &mut Stream, len: usize) -> usize {
    numbers.below(len as u64 + 1) as usize
}

/// One change: bytes turned, set, cut, doubled or put in.
fn change(input: &mut Vec<u8>, numbers: &mut Stream) {
    let at = place(numbers, input.len());
    match numbers.below(6) {
        0 => input.truncate(at),
        1 => input.insert(at, INTERESTING[numbers.below(INTERESTING.len() as u64) as usize]),
        2 => {
            let mut noise = vec![0; numbers.below(40) as usize];
            numbers.fill(&mut noise);
            input.splice(at..at, noise);
        }
        3 => input.extend_from_within(at..),
        4 => {
            if let Some(byte) = input.get_mut(at) {
                *byte = numbers.next_u64() as u8;
            }
        }
        _ => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << numbers.below(8);
            }
        }
    }
    input.truncate(LONGEST as usize);
}

/// An input: noise, or a sample with a few changes.
fn input(samples: &[&[u8]], numbers: &mut Stream) -> Vec<u8> {
    if samples.is_empty() || numbers.chance(0.2) {
        let mut noise = vec![0; numbers.below(300) as usize];
        numbers.fill(&mut noise);
        return noise;
    }
    let mut input = samples[numbers.below(samples.len() as u64) as usize].to_vec();
    for _ in 0..numbers.below(8) {
        change(&mut input, numbers);
    }
    input
}

/// Prints what it was when the target panics.
struct Told<'a>(&'a [u8]);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input was {:02x?}", self.0);
        }
    }
}

fn smoke(name: &str, share: u64, run: fn(&[u8]), samples: &[&[u8]]) {
    let seed = setting("LASTHOP_FUZZ_SEED").unwrap_or(1);
    let rounds = setting("LASTHOP_FUZZ_ROUNDS").unwrap_or(ROUNDS).div_ceil(share);
    println!("{name}: {rounds} inputs from seed {seed}");
    let mut numbers = Seed::from_u64(seed).stream(name);
    for sample in samples {
        run(sample);
    }
    for _ in 0..rounds {
        let input = input(samples, &mut numbers);
        let _told = Told(&input);
        run(&input);
    }
}

#[test]
fn datagrams() {
    // Zeros behind version and kind, in lengths that kinds 0 to 4 and a hello have.
    let of_kind = |kind: u8, len: usize| [vec![0x10 | kind], vec![0; len - 1]].concat();
    let whole =
        [(0, 60), (1, 150), (2, 110), (3, 80), (4, 50)].map(|(kind, len)| of_kind(kind, len));
    let hello = [vec![1], vec![0; 40]].concat();
    let samples: Vec<&[u8]> = whole.iter().chain([&hello]).map(Vec::as_slice).collect();
    smoke("datagram", 1, datagram::run, &samples);
}

#[test]
fn srp_frames() {
    let ack = [2, 9, 0, 0, 1, 0, 3, 8, 5, 0b0101];
    let stream = [0x12, 4, 0, 5, b'b', b'y', b't', b'e', b's', 0x13, 4, 5, 0, 1, 4, 3, 7];
    let others = [5, 0x80, 0, 1, 0, 6, 4, 0x40, 9, 7, 8, 4, 9, 2, 77, 9, 10, 3, 0, 0, 0];
    smoke("frames", 1, frames::run, &[&ack, &stream, &others]);
}

#[test]
fn handshakes() {
    smoke("handshake", 20, handshake::run, &[&[3, 0], &[5, 0, 0], &[0, 1], &[2, 0], &[4, 8, 8]]);
}

#[test]
fn http_requests() {
    let connect =
        b"CONNECT host.example:443 HTTP/1.1\r\nHost: host.example:443\r\n\r\n\x16\x03\x01";
    let get = b"GET http://[2001:db8::1]:8080/file HTTP/1.1\r\nConnection: x\r\nX: y\r\n\r\n";
    smoke("http_connect", 2, http_connect::run, &[connect, get, b"X: y\r\n\r\n"]);
}

#[test]
fn mhp_messages() {
    let samples: &[&[u8]] = &[
        &[1, 1, 0, 8, 0, 1, 0, 80, 192, 0, 2, 1],
        &[1, 1, 0, 9, 0, 3, 0, 80, 4, b'h', b'o', b's', b't', b'G'],
        &[1, 2, 0, 7, 1, 0, 80, 192, 0, 2, 1, b'x'],
        &[1, 3, 0, 3, 1, 0, 0],
    ];
    smoke("mhp", 10, mhp::run, samples);
}

#[test]
fn socks_requests() {
    let name = [5, 1, 0, 5, 1, 0, 3, 4, b'h', b'o', b's', b't', 0, 80];
    let address = [5, 1, 0, 5, 1, 0, 1, 192, 0, 2, 1, 0, 80];
    let reply = [5, 0, 5, 0, 0, 1, 192, 0, 2, 1, 0, 80, b'x'];
    smoke("socks5", 1, socks5::run, &[&name, &address, &reply]);
}

#[test]
fn srp_operations() {
    let one = [0, 0, 2, 12, 12, 0, 21, 80, 20, 80, 26, 200, 9, 12, 13, 0];
    let both = [0, 0, 1, 0, 2, 15, 3, 31, 20, 255, 21, 255, 8, 15, 9, 15, 16, 3, 26, 90, 20, 99];
    let reset = [0, 0, 2, 9, 21, 4, 3, 3, 15, 0, 20, 9, 26, 255];
    let hostile = [0, 0, 2, 9, 255, 6, 2, 9, 0, 0, 1, 0, 3, 8, 5, 1, 255, 4, 5, 0x80, 0, 1];
    smoke("srp", 40, srp::run, &[&one, &both, &reset, &hostile]);
}
