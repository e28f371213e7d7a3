//! What one packet costs Mobile TCP's engine: two connections joined directly, full packets one
//! way, acknowledgements the other, every byte copied in and out and both checksums made and
//! checked.
//!
//! `cargo run --release -p lasthop-hop --example mobile_tcp -- [BYTES PER PACKET] [PACKETS]`

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "what is measured here is real time"
)]

use std::hint::black_box;
use std::time::Instant;

use lasthop_hop::mobile_tcp::{Config, Connection, Terms};
use lasthop_units::{Bytes, Time};
use lasthop_wire::mobile_tcp::{Cid, Packet, Seq16};

const ANY: Bytes = Bytes::new(u64::MAX);

fn main() {
    let mut arguments = std::env::args().skip(1).map(|a| a.parse::<u64>());
    let size = arguments.next().and_then(Result::ok).unwrap_or(1460);
    let packets = arguments.next().and_then(Result::ok).unwrap_or(5_000_000);
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let started = Instant::now();
        let acknowledgements = run(size, packets);
        let each = started.elapsed().as_secs_f64() * 1e9 / packets as f64;
        best = best.min(each);
        println!("{each:7.1} ns per packet of {size} bytes, {acknowledgements} acknowledgements");
    }
    println!("{best:7.1} ns at best");
}

/// Sends so many packets of a size; how many acknowledgements came back.
fn run(size: u64, packets: u64) -> u64 {
    let config = Config { max_packet: Bytes::new(size), ..Config::default() };
    let (mut a, mut b) =
        (Connection::new(&config, Time::ZERO), Connection::new(&config, Time::ZERO));
    let terms = |cid| Terms {
        cid: Cid(cid),
        send: Seq16(0),
        recv: Seq16(0),
        window: config.window.get() as u16,
        max_packet: size as u16,
    };
    a.begin(&terms(1));
    b.begin(&terms(2));
    let data = vec![0x5a; size as usize];
    let mut read = vec![0; size as usize];
    let (mut out, mut acknowledgements) = ([0; 1600], 0);
    let mut left = packets * size;
    let now = Time::ZERO;
    while left > 0 || a.inflight() > Bytes::ZERO {
        write(&mut a, &data, &mut left);
        while let Some(len) = a.poll(now, ANY, &mut out) {
            deliver(&mut b, &out[..len]);
            while !b.received().is_empty() {
                let n = b.received().len();
                read[..n].copy_from_slice(&b.received()[..n]);
                black_box(&mut read);
                b.consume(n);
            }
            while let Some(len) = b.poll(now, ANY, &mut out) {
                acknowledgements += 1;
                deliver(&mut a, &out[..len]);
            }
            write(&mut a, &data, &mut left);
        }
        if left == 0 {
            b.handle_timeout(now + config.tick);
            while let Some(len) = b.poll(now, ANY, &mut out) {
                deliver(&mut a, &out[..len]);
            }
        }
    }
    acknowledgements
}

fn write(connection: &mut Connection, data: &[u8], left: &mut u64) {
    while *left > 0 {
        let room = connection.send_space();
        let n = room.len().min(data.len()).min(*left as usize);
        if n == 0 {
            return;
        }
        room[..n].copy_from_slice(&data[..n]);
        connection.commit(n);
        *left -= n as u64;
    }
}

fn deliver(connection: &mut Connection, packet: &[u8]) {
    if let Ok(Packet::Data(header, data)) = Packet::decode(packet) {
        connection.handle(Time::ZERO, &header, data);
    }
}
