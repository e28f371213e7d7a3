//! A window share at the receiver, as the sender meets it.

#![allow(missing_docs)]

mod common;

use common::Bulk;
use lasthop_tcp::Config;
use lasthop_units::{Bytes, Duration, Time};

const RTT: Duration = Duration::from_millis(100);

fn bulk() -> Bulk {
    // What was promised before the first share has to be used up first.
    let recv_buffer = Bytes::new(60_000);
    let config = Config { cwnd_max: None, recv_buffer, ..Config::ns2() };
    let mut bulk = Bulk::clean(config, RTT);
    bulk.run_until(Time::from_millis(200));
    bulk
}

fn set_share(bulk: &mut Bulk, packets: Option<u64>) {
    if let Some(receiver) = &mut bulk.receiver {
        receiver.set_window_share(packets.map(|n| Bytes::new(n * 1000)));
    }
}

/// The right edge of the window that the sender knows, and what it has in flight, in packets.
fn sender(bulk: &Bulk) -> (u64, u64) {
    let probe = bulk.sender.probe();
    let edge = bulk.sender.acknowledged().get() + probe.snd_wnd.get();
    (edge, probe.flight.get() / 1000)
}

/// RWC-6, RWC-9: the sender has as much in flight as the share says, and sees no edge go back while
/// shares come and go.
#[test]
fn a_sender_keeps_to_the_share_and_never_loses_window() {
    let mut bulk = bulk();
    let mut edge = sender(&bulk).0;
    for (packets, at) in [(16, 2), (11, 4), (21, 6), (1, 8), (16, 10)] {
        set_share(&mut bulk, Some(packets));
        for ms in 0..2000 {
            bulk.run_until(Time::from_millis(at * 1000 - 1800 + ms));
            let (next, _) = sender(&bulk);
            assert!(next >= edge, "{packets} packets, {ms} ms: {edge} to {next}");
            edge = next;
        }
        assert_eq!(sender(&bulk).1, packets);
    }
    assert_eq!(bulk.sender.stats().timeouts, 0);
}

/// RWC-6: nothing is sent for a share that changes, but a window that was shut is opened at once,
/// not by the sender's next probe.
#[test]
fn a_window_that_was_shut_opens_at_once() {
    let mut bulk = bulk();
    set_share(&mut bulk, Some(0));
    bulk.run_until(Time::from_secs(3));
    assert_eq!(sender(&bulk).1, 0);
    let before = bulk.sender.acknowledged();
    set_share(&mut bulk, Some(16));
    bulk.run_until(Time::from_secs(3) + 3 * RTT);
    assert!(bulk.sender.acknowledged() >= before + Bytes::new(16_000));
}
