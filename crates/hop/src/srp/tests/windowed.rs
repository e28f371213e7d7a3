//! SRP as it was in 1994: a fixed window and a timer.

use super::recovery::RoundTrip;
use super::*;
use crate::config::{Discipline, Window};

const SEGMENTS: u32 = 32;
/// The hop of these tests carries 256-byte datagrams 100 ms each way and is never full.
const DELAY: Duration = Duration::from_millis(100);

fn config(window: Window) -> HopConfig {
    let memory = Bytes::from_kib(16);
    HopConfig {
        datagram_base: Bytes::new(228),
        datagram_max: Bytes::new(228),
        stream_window: memory,
        stream_memory: memory,
        association_window: memory,
        association_memory: memory,
        discipline: Discipline::Windowed(window),
        ..HopConfig::default()
    }
}

fn pairs(seed: u64, window: Window) -> Pairs {
    let mut w = Pairs::with(seed, config(window));
    for pipe in &mut w.pipes {
        pipe.delay = DELAY;
        pipe.mtu = 256;
    }
    w
}

fn usual() -> Window {
    Window { segments: SEGMENTS, ..Window::default() }
}

/// SRP-2, SRP-6: never more than the window's segments beyond the last in sequence, so that a round
/// trip carries one window.
#[test]
fn a_round_trip_carries_one_window() {
    for segments in [16, 32, 64] {
        let mut w = pairs(1, Window { segments, ..usual() });
        let mut bulk = Bulk::start(&mut w, 1, FOREVER);
        bulk.run(&mut w, Time::from_secs(20));
        let segment = w.ends[0][1].span() as f64 / f64::from(segments);
        assert!((180.0..205.0).contains(&segment), "{segment}");
        let windows = bulk.goodput(Time::from_secs(2), w.now) / 8.0 * 0.2 / segment;
        // A datagram's air time and an acknowledgement's are part of the round trip.
        assert!(windows > 0.9 * f64::from(segments), "{windows} of {segments}");
        assert!(windows <= f64::from(segments), "{windows} of {segments}");
        assert_eq!(w.ends[0][1].stats().bytes_retransmitted.get(), 0);
    }
}

/// SRP-3, SRP-4, SRP-7, SRP-10: what a window lost comes again within one round trip, and once.
#[test]
fn the_losses_of_a_window_are_repaired_in_one_round_trip() {
    let mut w = pairs(1, usual());
    let mut bulk = Bulk::start(&mut w, 1, 40_000);
    w.pipes[1].loses = Some(Box::new(|_, n| [40, 41, 45, 50, 51, 60].contains(&n)));
    bulk.run(&mut w, Time::from_secs(20));
    let (lossy, stats) = (w.now, w.ends[0][1].stats());
    assert_eq!((bulk.read, stats.lost, stats.probes), (40_000, 6, 0));
    assert!(stats.bytes_retransmitted.get() <= 6 * 200, "{}", stats.bytes_retransmitted);

    let mut clean = pairs(1, usual());
    let mut bulk = Bulk::start(&mut clean, 1, 40_000);
    bulk.run(&mut clean, Time::from_secs(20));
    let extra = lossy - clean.now;
    assert!(extra <= Duration::from_millis(230), "{extra:?}");
}

/// SRP-8: an acknowledgement for each segment in sequence, or for each second one.
#[test]
fn segments_in_sequence_are_acknowledged_one_by_one_or_in_pairs() {
    let acks = |ack_every| {
        let mut w = pairs(1, Window { ack_every, ..usual() });
        let mut bulk = Bulk::start(&mut w, 1, 100_000);
        bulk.run(&mut w, Time::from_secs(60));
        let [mobile, base] = &w.ends[0];
        mobile.stats().datagrams_sent as f64 / base.stats().datagrams_sent as f64
    };
    assert!((0.9..=1.1).contains(&acks(1)), "{}", acks(1));
    assert!((0.45..=0.6).contains(&acks(2)), "{}", acks(2));
}

/// SRP-9: into a silence the timer asks after round trip and deviations, then ever later, at most a
/// second apart, and all that was lost follows the first answer.
#[test]
fn the_timer_backs_off_to_its_cap() {
    let mut w = pairs(1, usual());
    w.silences.push((Time::from_secs(3), Time::from_secs(9)));
    let mut bulk = Bulk::start(&mut w, 1, FOREVER);
    bulk.run(&mut w, Time::from_secs(9));
    let probes = w.ends[0][1].stats().probes;
    // 0.2 s and little more, doubled twice, then every second.
    assert!((6..=9).contains(&probes), "{probes}");
    bulk.run(&mut w, Time::from_secs(12));
    let first = bulk.progress.iter().find(|p| p.0 > Time::from_secs(9)).map(|p| p.0);
    assert!(first.is_some_and(|t| t < Time::from_millis(10_200)), "{first:?}");
    let after = w.ends[0][1].stats();
    assert!(after.lost as u32 <= SEGMENTS + 8, "{}", after.lost);
    assert!(bulk.goodput(Time::from_millis(10_600), w.now) > 0.8 * 32.0 * 190.0 * 8.0 / 0.2);
}

/// SRP-9: timers fall on the granularity and are bounded both ways.
#[test]
fn a_timer_is_rounded_up_and_bounded() {
    let window = Window { rto_min: Duration::from_millis(95), ..usual() };
    let ms = Duration::from_millis;
    let mut round_trip = RoundTrip::default();
    assert_eq!(window.timeout(&round_trip, 0), ms(1000));
    for _ in 0..100 {
        round_trip.sample(ms(41));
    }
    assert_eq!(window.timeout(&round_trip, 0), ms(100));
    assert_eq!(window.timeout(&round_trip, 1), ms(190));
    assert_eq!(window.timeout(&round_trip, 40), ms(1000));
    for _ in 0..100 {
        round_trip.sample(ms(1203));
    }
    assert_eq!(window.timeout(&round_trip, 5), ms(1210));
}

/// SRP-13: after a link-up event, it does not wait for the timer: two round trips at
/// most, if the oldest had arrived and only its acknowledgement had not.
#[test]
fn a_link_up_event_does_not_wait_for_the_timer() {
    let mut w = pairs(1, usual());
    w.silences.push((Time::from_secs(3), Time::from_millis(8_100)));
    let mut bulk = Bulk::start(&mut w, 1, FOREVER);
    bulk.run(&mut w, Time::from_millis(8_100));
    let now = w.now;
    w.ends[0][1].handle_link_event(now, PathId::FIRST, lasthop_units::LinkEvent::Up);
    bulk.run(&mut w, now + Duration::from_secs(1));
    let first = bulk.progress.iter().find(|p| p.0 > now).map(|p| p.0 - now);
    assert!(first.is_some_and(|t| t < Duration::from_millis(310)), "{first:?}");
}

/// SRP-2: an application that does not read closes the window, whatever the bitmap allows.
#[test]
fn a_reader_that_stops_stops_the_sender() {
    let mut w = pairs(1, Window { segments: 1000, ..usual() });
    let mut bulk = Bulk::start(&mut w, 1, FOREVER);
    for _ in 0..100 {
        let sender = &mut w.ends[0][1];
        let room = sender.send_space(bulk.id).map_or(0, |room| room.len());
        sender.commit(bulk.id, room);
        bulk.written += room as u64;
        let until = w.now + Duration::from_millis(100);
        while w.step(until) {}
    }
    assert_eq!(w.ends[0][0].stats().bytes_received, Bytes::from_kib(16));
}

/// Whatever is lost, in both directions, everything arrives, in order.
#[test]
fn everything_arrives_under_heavy_loss() {
    for seed in 0..20 {
        let mut w = pairs(seed, Window { ack_every: 1 + (seed % 2) as u32, ..usual() });
        w.pipes.iter_mut().for_each(|p| p.loss = 0.05 * (seed % 8) as f64);
        let mut bulk = Bulk::start(&mut w, (seed % 2) as usize, 60_000);
        bulk.run(&mut w, Time::from_secs(300));
        assert_eq!(bulk.read, 60_000, "seed {seed}");
    }
}
