//! What one segment costs: a sender and a receiver hand each other segments without a path between
//! them. Count instructions with `perf stat`, or time the whole:
//! `time cargo run --release --example cost -p lasthop-tcp -- 20000000`.

use lasthop_tcp::{Algorithm, Config, Connection, Ports, Window};
use lasthop_units::{Bytes, Duration, Time};
use lasthop_wire::tcp::Seq;

fn main() {
    let segments = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let mut config = Config::ns2();
    config.algorithm = Algorithm::Reno;
    config.cwnd_max = Some(Window::Segments(16));
    let mut now = Time::ZERO;
    let ports = |local, remote| Ports { local, remote };
    let mut sender = Connection::connect(config, ports(1, 2), Seq(1), now);
    sender.write(Bytes::new(u64::MAX));
    let Some(syn) = sender.poll_transmit(now) else { return };
    let Ok(mut receiver) = Connection::accept(config, ports(2, 1), &syn.segment, Seq(7), now)
    else {
        return;
    };
    let mut delivered = 0u64;
    while delivered < segments {
        now += Duration::from_micros(100);
        while let Some(out) = receiver.poll_transmit(now) {
            sender.handle_segment(now, &out.segment);
        }
        let mut held = [None; 32];
        let mut n = 0;
        while n < held.len()
            && let Some(out) = sender.poll_transmit(now)
        {
            held[n] = Some(out);
            n += 1;
        }
        for out in held.into_iter().flatten() {
            let arrival = receiver.handle_segment(now, &out.segment);
            receiver.consume(Bytes::new(u64::from(arrival.len)));
            delivered += u64::from(arrival.len > 0);
            while let Some(ack) = receiver.poll_transmit(now) {
                sender.handle_segment(now, &ack.segment);
            }
            if sender.next_timeout().is_some_and(|t| t <= now) {
                sender.handle_timeout(now);
            }
        }
    }
    println!("{delivered} segments delivered, {:?}", sender.stats());
}
