//! The hop's queue: what waits there is not lost, and what it has no room for is the fixed host's.

use super::*;

/// MTC-5: what the mobile had before a disconnection comes twice after it, and is answered twice:
/// no answer but one to something later tells of a loss.
#[test]
fn the_answers_to_copies_bring_no_copies() {
    let mut sh = sh();
    sh.burst(0, 1000, 1);
    sh.ack(25, 2000);
    sh.burst(30, 2000, 6);
    sh.event(50, LinkEvent::Down);
    let again: Vec<Out> = (2..8).map(|n| Data(1000 * n)).collect();
    assert_eq!(sh.event(100, LinkEvent::Up)[..6], again);
    // The first three had come; then come their copies, one after the other.
    assert_eq!(sh.ack(110, 5000), [Ack(4999, WINDOW)]);
    for ms in [130, 140, 150] {
        assert_eq!(sh.ack(ms, 5000), [], "at {ms} ms");
    }
    assert_eq!(sh.ack(160, 6000), [Ack(5999, WINDOW)]);
    assert_eq!(sh.0.stats().repaired, 0);
}

/// MTC-5: a lost repair is told from one that waits in the queue: something later has come.
#[test]
fn a_repair_that_is_lost_is_repaired_when_something_later_has_come() {
    let mut sh = sh();
    sh.burst(0, 1000, 1);
    sh.ack(20, 2000);
    sh.burst(30, 2000, 4);
    assert_eq!(sh.ack(52, 2000), [Data(2000)]);
    sh.burst(53, 6000, 2);
    let dups = [54, 56, 80].map(|ms| sh.ack(ms, 2000));
    assert_eq!(dups, [vec![], vec![], vec![Data(2000)]]);
}

/// MTC-5: the mobile names the latest few blocks only; what it named before it still has.
#[test]
fn what_was_named_in_a_block_once_is_not_sent_again() {
    let mut sh = sh();
    sh.burst(0, 1000, 1);
    sh.ack(20, 2000);
    sh.burst(30, 2000, 8);
    assert_eq!(sh.mobile(52, with_sack(2000, &[(3000, 4000)])), [Data(2000)]);
    assert_eq!(sh.mobile(53, with_sack(2000, &[(5000, 6000), (3000, 4000)])), [Data(4000)]);
    let latest = [(9000, 10_000), (7000, 8000)];
    assert_eq!(sh.mobile(60, with_sack(2000, &latest)), [Data(6000), Data(8000)]);
}

/// MTC-1: what is lost in a queue that was nearly full is congestion, of which the fixed host is to
/// hear: it is not kept, and its duplicates pass.
#[test]
fn what_finds_the_queue_nearly_full_is_not_kept() {
    let mut sh = sh();
    sh.burst(0, 1000, 1);
    sh.ack(20, 2000);
    sh.0.handle_queue(true);
    sh.burst(30, 2000, 1);
    sh.0.handle_queue(false);
    sh.burst(31, 3000, 2);
    assert_eq!((sh.0.kept(), sh.0.stats().unkept), (2, 1));
    assert_eq!(sh.ack(55, 2000), [Ack(1999, WINDOW)]);
    assert_eq!(sh.ack(57, 2000), [Ack(1999, WINDOW)]);
}

/// MTC-6: a mobile that waits for what the fixed host is to send again owes no answer.
#[test]
fn a_gap_of_the_fixed_hosts_is_no_disconnection() {
    let mut sh = sh();
    sh.burst(0, 1000, 1);
    sh.ack(20, 2000);
    sh.burst(30, 3000, 2);
    sh.ack(55, 2000);
    assert_eq!(sh.wait(3000), []);
    assert!(!sh.is_off());
    assert_eq!(sh.data(3000, 2000, 1000), [Data(2000)]);
    assert_eq!(sh.ack(3020, 5000), [Ack(4999, WINDOW)]);
}

/// MTC-8: while what was kept has its turn the fixed host meets a queue with an end, and its loss
/// is told as any other.
#[test]
fn what_finds_too_many_waiting_is_dropped() {
    let mut sh = Sh::new(&MTcpConfig { hop_window: 2, ..MTcpConfig::default() });
    sh.burst(0, 1000, 5);
    sh.event(1, LinkEvent::Down);
    assert_eq!(sh.event(9, LinkEvent::Up).len(), 3);
    for (seq, kept) in [(6000, 6), (7000, 7), (8000, 7)] {
        assert_eq!(sh.data(10, seq, 1000), []);
        assert_eq!(sh.0.kept(), kept);
    }
    assert_eq!(sh.0.stats().unkept, 1);
    assert_eq!(sh.ack(20, 3000), [Data(3000), Data(4000), Ack(2999, WINDOW)]);
    assert_eq!((sh.data(21, 8000, 1000), sh.0.kept()), (vec![], 6));
}

/// MTC-5: what lies above a gap and has come takes no room from what is to be sent.
#[test]
fn what_has_come_is_not_under_way() {
    let mut sh = Sh::new(&MTcpConfig { hop_window: 2, ..MTcpConfig::default() });
    sh.burst(0, 1000, 4);
    sh.event(1, LinkEvent::Down);
    assert_eq!(sh.event(9, LinkEvent::Up)[..2], [Data(1000), Data(2000)]);
    // The first of these copies is lost, too, and its repair as well.
    let named = with_sack(1000, &[(2000, 3000)]);
    assert_eq!(sh.mobile(30, named), [Data(1000), Data(3000)]);
    let named = with_sack(1000, &[(2000, 4000)]);
    assert_eq!(sh.mobile(50, named), [Data(1000), Data(4000)]);
}
