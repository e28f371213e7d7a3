//! Timers, and what is left of connections that end, move or vanish.

use super::*;

/// A mobile that vanished with data on its way is asked after until its connection has been silent
/// for long enough, and not for ever.
#[test]
fn a_mobile_that_never_returns_is_removed() {
    let config = MTcpConfig { idle: 5000 * MS, ..MTcpConfig::default() };
    let mut sh = Sh::new(&config);
    sh.burst(0, 1000, 3);
    let probes = sh.wait(60_000);
    assert!(probes.len() > 10 && probes.iter().all(|(now, _)| *now <= at(5000)), "{probes:?}");
    assert_eq!((sh.0.next_timeout(), sh.0.kept()), (None, 0));
}

/// A connection that makes progress calls for no attention, however many there are.
#[test]
fn a_timer_that_moves_on_does_not_fire_at_its_old_time() {
    let mut sh = sh();
    sh.burst(0, 1000, 2);
    for n in 1..20 {
        let ms = u64::from(n) * 50;
        sh.ack(ms, 1000 + 1000 * n);
        sh.burst(ms, 2000 + 1000 * n, 1);
        assert!(sh.0.next_timeout().is_some_and(|due| due >= at(ms + 50)), "{n}");
    }
}

/// The state that moves to another supervisor host takes its timers along.
#[test]
fn a_connection_that_moved_has_its_timers_at_one_host() {
    let (mut old, mut new) = (sh(), Sh(MTcp::new(&MTcpConfig::default())));
    old.burst(0, 1000, 2);
    let state = old.0.take(connection(1).mobile.ip());
    assert_eq!(old.0.next_timeout(), None);
    new.0.adopt(at(10), state);
    assert!(new.0.next_timeout().is_some_and(|due| due > at(10)));
    assert_eq!(new.ack(20, 2000), [Ack(1999, WINDOW)]);
}

/// A connection that begins anew with the same addresses and ports knows nothing of the one before,
/// whichever end begins it, and a reset leaves nothing either.
#[test]
fn nothing_outlives_a_connection_whose_ports_are_used_again() {
    for flags in [Flags::SYN, Flags::RST, Flags::SYN.with(Flags::ACK)] {
        let mut sh = sh();
        sh.burst(0, 1000, 2);
        sh.event(5, LinkEvent::Down);
        sh.fixed(10, Segment { seq: Seq(9_000_000), flags, ..Segment::default() });
        assert_eq!((sh.0.is_disconnected(&connection(1)), sh.0.kept()), (None, 0), "{flags:?}");
        assert_eq!((sh.wait(10_000), sh.0.next_timeout()), (vec![], None));
    }
}

/// MTC-2: the last byte is held as long as there is data on its way that brings the next
/// acknowledgement.
#[test]
fn the_held_byte_waits_while_data_is_on_its_way() {
    let mut sh = sh();
    sh.burst(0, 1000, 3);
    assert_eq!(sh.ack(10, 2000), [Ack(1999, WINDOW)]);
    assert_eq!(sh.wait(50), []);
    assert_eq!(sh.ack(55, 4000), [Ack(3999, WINDOW)]);
    assert_eq!(sh.wait(80), [(at(75), Made(4000, WINDOW))]);
}

/// MTC-3: a duplicate that was on its way when the hop went down has nothing sent into the void and
/// tells the fixed host of no loss.
#[test]
fn a_duplicate_from_before_a_disconnection_does_nothing() {
    let mut sh = sh();
    sh.burst(0, 1000, 1);
    assert_eq!(sh.ack(40, 2000), [Ack(1999, WINDOW)]);
    sh.burst(41, 2000, 3);
    assert_eq!(sh.event(100, LinkEvent::Down), [Made(2000, 0)]);
    assert_eq!(sh.ack(110, 2000), []);
    assert_eq!((sh.0.stats().suppressed, sh.0.stats().repaired), (1, 0));
}

/// A supervisor host whose intervals are zero does not act without end at one time.
#[test]
fn intervals_of_zero_do_not_spin() {
    let zero = Duration::ZERO;
    let config = MTcpConfig {
        disconnect_after: zero,
        disconnect_round_trips: 0,
        probe_interval: zero,
        tail_after: zero,
        initial_timeout: zero,
        least_timeout: zero,
        ..MTcpConfig::default()
    };
    let mut sh = Sh::new(&config);
    sh.burst(0, 1000, 2);
    for ms in 0..50 {
        sh.ack(ms, 1500);
        sh.0.handle_timeout(at(ms));
        assert!(sh.outputs().len() < 10);
        assert!(sh.0.next_timeout().is_none_or(|due| due > at(ms)), "{ms}");
    }
}
