//! What the 1995 paper and ns-2 do with each kind of packet.

use super::Sent::{Ack, Data};
use super::*;
use crate::snoop::Timer;

/// The base when the packets up to and without `n` are acknowledged.
fn base(config: Config, n: u32) -> Base {
    let mut base = Base::new(config);
    base.data(0..n);
    assert_eq!(base.ack(n), [Ack(n)]);
    base
}

fn pinned() -> Config {
    Config { timer: Timer::Pinned(Duration::from_millis(100)), ..Config::default() }
}

/// SNP-1: what is not acknowledged is kept, and everything is handed on.
#[test]
fn segments_are_handed_on_and_kept() {
    let mut base = Base::new(Config::default());
    base.data(0..10);
    assert_eq!((base.agent.kept(), base.agent.stats().cached), (10, 10));
    assert_eq!(base.agent.memory().get(), 10 * (1000 + 20));
}

/// SNP-2: a new acknowledgement frees what is before it, tells the hop's round trip and passes.
#[test]
fn a_new_acknowledgement_frees_measures_and_passes() {
    let mut base = Base::new(Config::default());
    base.data(0..10);
    assert_eq!(base.agent.next_timeout(), Some(Time::from_secs(1)));
    base.wait(80);
    assert_eq!(base.ack(7), [Ack(7)]);
    assert_eq!(base.agent.kept(), 3);
    assert_eq!(base.agent.next_timeout(), Some(Time::from_millis(240)), "80 + 4 x 40");
    assert_eq!(base.ack(10), [Ack(10)]);
    assert_eq!((base.agent.kept(), base.agent.memory().get()), (0, 0));
    assert_eq!(base.agent.next_timeout(), None);
}

/// SNP-3: the duplicate is answered with the segment it asks for and goes no further.
#[test]
fn a_duplicate_is_answered_from_the_cache_and_dropped() {
    let mut base = base(Config::default(), 3);
    base.data(3..6);
    assert_eq!(base.ack(3), [Data(3)]);
    assert_eq!((base.agent.stats().local_retransmits, base.agent.stats().suppressed), (1, 1));
    assert_eq!(base.ack(6), [Ack(6)]);
}

/// SNP-3: the copy is the packet that came, bit for bit.
#[test]
fn what_is_sent_again_is_as_it_came() {
    let mut base = base(Config::default(), 1);
    let mut original = wire(Side::Fixed, mobile(0), data(1));
    original.payload = vec![7; 1000];
    base.hand(Side::Fixed, original.clone());
    base.data(2..3);
    let again = base.hand(Side::Mobile, wire(Side::Mobile, mobile(0), ack(1)));
    assert_eq!(again, [Output::Packet { towards: Side::Mobile, packet: original }]);
}

/// SNP-4: one duplicate comes for each segment that was sent after the lost one. More than that is
/// not of snoop's making.
#[test]
fn as_many_duplicates_are_dropped_as_segments_followed() {
    let mut base = base(Config::default(), 3);
    base.data(3..9);
    assert_eq!(base.ack(3), [Data(3)]);
    for _ in 5..9 {
        assert_eq!(base.ack(3), []);
    }
    assert_eq!(base.ack(3), [Ack(3)], "packets 4 to 8 have been answered");
    base.data(9..10);
    assert_eq!(base.ack(3), [Ack(3)], "six segments followed, this is the seventh");
    assert_eq!(base.agent.stats().suppressed, 5);
    assert_eq!(base.agent.stats().duplicates_passed, 2);
}

/// SNP-4: a segment that is sent while the hole is open brings one more.
#[test]
fn segments_that_follow_later_are_counted_too() {
    let mut base = base(Config::default(), 3);
    base.data(3..5);
    assert_eq!(base.ack(3), [Data(3)]);
    base.data(5..7);
    assert_eq!(base.ack(3), []);
    assert_eq!(base.ack(3), []);
    assert_eq!(base.ack(3), [Ack(3)]);
}

/// SNP-4: after a repair only what was sent after it brings duplicates for the next hole.
#[test]
fn what_was_sent_before_the_repair_brings_no_duplicates_for_the_next_hole() {
    let mut base = base(Config::default(), 3);
    base.data(3..9);
    for _ in 0..4 {
        base.ack(3);
    }
    assert_eq!(base.ack(4), [Ack(4)]);
    base.data(9..11);
    assert_eq!(base.ack(4), [Data(4)]);
    assert_eq!(base.ack(4), []);
    assert_eq!(base.ack(4), [Ack(4)]);
}

/// SNP-4: ns-2 lets the first one pass and acts on the second.
#[test]
fn the_threshold_can_be_that_of_ns_2() {
    let mut base = base(Config { dupacks: 2, ..Config::default() }, 3);
    base.data(3..7);
    assert_eq!(base.ack(3), [Ack(3)]);
    assert_eq!(base.ack(3), [Data(3)]);
    assert_eq!(base.ack(3), []);
    assert_eq!(base.ack(3), [Ack(3)]);
}

/// SNP-5: what snoop does not have was lost before it, which the fixed host must learn.
#[test]
fn a_duplicate_for_what_is_not_kept_passes() {
    let mut base = base(Config::default(), 3);
    base.data(4..9);
    for _ in 4..9 {
        assert_eq!(base.ack(3), [Ack(3)]);
    }
    assert_eq!(base.agent.stats().local_retransmits, 0);
    assert_eq!(base.agent.next_timeout(), None, "nothing that the mobile waits for");
}

/// SNP-5: so is what the fixed host has sent again.
#[test]
fn a_duplicate_for_what_the_fixed_host_has_sent_again_passes() {
    let mut base = base(Config::default(), 3);
    base.data(3..9);
    base.data(3..4);
    for _ in 0..4 {
        assert_eq!(base.ack(3), [Ack(3)]);
    }
    assert_eq!(base.agent.stats().local_retransmits, 0);
    assert_eq!(base.wait(100), [(100, Data(3))], "but the timer is there");
}

/// SNP-6: the timer runs for the oldest, from the latest news on, and fires at most ten times.
#[test]
fn the_oldest_is_sent_again_ten_times_at_most() {
    let mut base = Base::new(pinned());
    base.data(0..4);
    base.wait(50);
    assert_eq!(base.ack(1), [Ack(1)]);
    let expected: Vec<_> = (1..=10).map(|n| (50 + 100 * n, Data(1))).collect();
    assert_eq!(base.wait(5000), expected);
    assert_eq!(base.agent.stats().timeouts, 10);
    assert_eq!(base.agent.next_timeout(), None);
    assert_eq!(base.ack(1), [Ack(1)], "now it is the fixed host's");
    assert_eq!(base.ack(2), [Ack(2)]);
    assert_eq!(base.wait(100).len(), 1, "the next one has ten of its own");
}

/// SNP-6: the fixed host's own retransmission gives ten more.
#[test]
fn a_retransmission_of_the_fixed_host_begins_anew() {
    let mut base = base(pinned(), 1);
    base.data(1..2);
    assert_eq!(base.wait(3000).len(), 10);
    base.data(1..2);
    assert_eq!(base.wait(3000).len(), 10);
}

/// SNP-6: duplicates send a segment once; when that is lost too it is the timer's.
#[test]
fn later_tries_come_from_the_timer() {
    let mut base = base(pinned(), 1);
    base.data(1..5);
    assert_eq!(base.ack(1), [Data(1)]);
    assert_eq!(base.ack(1), []);
    assert_eq!(base.ack(1), []);
    assert_eq!(base.wait(250), [(100, Data(1)), (200, Data(1))]);
}

/// SNP-6: a duplicate after the timer has sent the segment is expected as well.
#[test]
fn duplicates_after_the_timer_are_dropped() {
    let mut base = base(pinned(), 1);
    base.data(1..4);
    assert_eq!(base.wait(100), [(100, Data(1))]);
    assert_eq!(base.ack(1), []);
    assert_eq!(base.ack(1), []);
    assert_eq!(base.ack(1), [Ack(1)]);
}

/// SNP-6: a measured timer counts from the segment's own transmission, but a duplicate has a tick to
/// come first.
#[test]
fn a_segment_that_waited_behind_a_hole_is_due_a_tick_after_it_is_the_oldest() {
    let mut base = Base::new(Config::default());
    base.data(0..4);
    base.wait(80);
    base.ack(1);
    assert_eq!(base.wait(240), [(240, Data(1))], "80 + 4 x 40 after it was sent");
    base.ack(2);
    assert_eq!(base.agent.next_timeout(), Some(Time::from_millis(320 + 100)));
}

/// SNP-6: neither the acknowledgement of a resent segment nor one of what waited behind it says how
/// long the hop takes.
#[test]
fn a_recovery_does_not_lengthen_the_timer() {
    let mut base = Base::new(Config::default());
    let mut n = 0;
    for _ in 0..60 {
        base.data(n..n + 1);
        base.wait(80);
        n += 1;
        assert_eq!(base.ack(n), [Ack(n)]);
    }
    base.data(n..n + 4);
    assert_eq!(base.wait(250).len(), 2, "100 ms each");
    assert_eq!(base.ack(n + 4), [Ack(n + 4)]);
    base.data(n + 4..n + 5);
    assert_eq!(base.agent.next_timeout(), Some(base.now + Duration::from_millis(100)));
}

/// SNP-7: below the last one seen counts as sent again, kept before or not.
#[test]
fn a_segment_below_the_last_one_seen_is_the_fixed_hosts_retransmission() {
    let mut base = base(Config::default(), 3);
    base.data(4..6);
    base.data(3..4);
    assert_eq!(base.agent.kept(), 3);
    assert_eq!(base.ack(3), [Ack(3)]);
    assert_eq!(base.ack(5), [Ack(5)]);
    base.data(6..7);
    assert_eq!(base.ack(5), [Data(5)], "this one was in order");
}

/// SNP-7: 100 are kept; what finds no room passes.
#[test]
fn the_cache_has_a_limit() {
    let mut base = base(Config::default(), 1);
    base.data(1..121);
    let stats = *base.agent.stats();
    assert_eq!((base.agent.kept(), stats.left_out), (100, 20));
    assert_eq!(base.ack(101), [Ack(101)]);
    assert_eq!(base.ack(101), [Ack(101)], "not kept, so not suppressed");
}

/// SNP-7: with a full queue ahead a loss is congestion, which the fixed host must see.
#[test]
fn nothing_is_kept_while_the_links_queue_is_full() {
    let mut base = base(Config::default(), 3);
    base.agent.handle_queue(true);
    base.data(3..4);
    base.agent.handle_queue(false);
    base.data(4..6);
    assert_eq!((base.agent.kept(), base.agent.stats().left_out), (2, 1));
    assert_eq!(base.ack(3), [Ack(3)]);
}

/// SNP-7: nor is a loss repaired where round trips tell of a deep queue that the agent does not see.
#[test]
fn a_loss_behind_a_deep_queue_is_left_to_the_fixed_host() {
    for heed_backlog in [false, true] {
        let mut base = base(Config { heed_backlog, ..Config::default() }, 3);
        base.data(3..8);
        base.now += Duration::from_millis(150);
        assert_eq!(base.ack(4), [Ack(4)]);
        assert_eq!(base.ack(5), [Ack(5)]);
        base.data(8..10);
        assert_eq!(base.agent.stats().left_out, if heed_backlog { 2 } else { 0 });
        assert_eq!(base.ack(8), [Ack(8)]);
        assert_eq!(base.ack(8), [if heed_backlog { Ack(8) } else { Data(8) }]);
        assert_eq!(base.fixed_sends(data(8)), [Data(8)]);
        assert_eq!(base.agent.kept(), if heed_backlog { 1 } else { 2 }, "what it repairs is kept");
    }
}

/// SNP-2: an acknowledgement that covers a packet of which no copy was kept tells nothing of the hop's
/// round trip, for that one may have been lost and recovered.
#[test]
fn what_was_not_kept_makes_a_sample_worthless() {
    let mut base = base(Config::default(), 0);
    base.data(0..1);
    base.agent.handle_queue(true);
    base.data(1..2);
    base.agent.handle_queue(false);
    base.data(2..3);
    base.now += Duration::from_millis(600);
    assert_eq!(base.ack(3), [Ack(3)]);
    base.data(3..4);
    assert_eq!(base.agent.next_timeout(), Some(base.now + Duration::from_secs(1)));
}

/// What acknowledges more than has passed makes all that is kept worthless, and what lies below it no
/// news.
#[test]
fn an_acknowledgement_of_what_never_passed_empties_the_cache() {
    let mut base = base(Config::default(), 3);
    base.data(3..6);
    assert_eq!(base.ack(9), [Ack(9)]);
    assert_eq!((base.agent.kept(), base.agent.stats().evicted), (0, 3));
    base.data(9..11);
    assert_eq!(base.ack(9), [Data(9)]);
}

/// SNP-9: a fixed host whose timer is shorter than the recovery sends what it wants.
#[test]
fn retransmissions_of_the_fixed_host_always_pass() {
    let mut base = base(Config::default(), 3);
    base.data(3..6);
    assert_eq!(base.ack(3), [Data(3)]);
    base.data(3..6);
    assert_eq!(base.ack(6), [Ack(6)]);
    base.data(2..6);
    assert_eq!(base.agent.kept(), 0, "the mobile has them");
}

/// SNP-10: the fixed host's acknowledgements say what the hop has lost, and nothing else.
#[test]
fn an_acknowledgement_of_what_the_hop_lost_is_marked() {
    let mut base = Base::new(Config { eln: true, ..Config::default() });
    let up = |n: u32| Segment { seq: MOBILE + n * MSS, len: MSS, ..ack(0) };
    let asks = |n: u32| Segment { ack: MOBILE + n * MSS, len: 0, ..data(0) };
    let marked = |out: &[Output<Wire>]| match out {
        [Output::Packet { towards: Side::Mobile, packet }] => {
            packet.tcp().is_some_and(|tcp| tcp.segment.options.eln)
        }
        other => panic!("{other:?}"),
    };
    for n in [0, 1, 3, 4] {
        base.mobile_sends(up(n));
    }
    let mut ask = |n| marked(&base.hand(Side::Fixed, wire(Side::Fixed, mobile(0), asks(n))));
    assert!(!ask(1), "lost further on");
    assert!(ask(2));
    assert!(ask(2));
    assert!(!ask(5));
    assert_eq!(base.agent.stats().marked, 2);
}

/// SNP-10: without the option nothing is changed.
#[test]
fn nothing_is_marked_unless_asked_for() {
    let mut base = Base::new(Config::default());
    base.data(0..1);
    for n in [0, 2] {
        base.mobile_sends(Segment { seq: MOBILE + n * MSS, len: MSS, ..ack(0) });
    }
    let asks = wire(Side::Fixed, mobile(0), Segment { ack: MOBILE + MSS, len: 0, ..data(1) });
    let out = base.hand(Side::Fixed, asks.clone());
    assert_eq!(out, [Output::Packet { towards: Side::Mobile, packet: asks }]);
}

#[test]
fn updates_of_the_window_are_no_duplicates() {
    let mut base = base(Config::default(), 3);
    base.data(3..6);
    assert_eq!(base.mobile_sends(Segment { window: 2000, ..ack(3) }), [Ack(3)]);
    assert_eq!(base.mobile_sends(Segment { window: 3000, ..ack(3) }), [Ack(3)]);
    assert_eq!(base.agent.stats().local_retransmits, 0);
    assert_eq!(base.mobile_sends(Segment { window: 3000, ..ack(3) }), [Data(3)]);
}

#[test]
fn a_closed_window_is_the_fixed_hosts_to_probe() {
    let mut base = base(pinned(), 3);
    assert_eq!(base.mobile_sends(Segment { window: 0, ..ack(3) }), [Ack(3)]);
    base.data(3..4);
    for _ in 0..3 {
        assert_eq!(base.mobile_sends(Segment { window: 0, ..ack(3) }), [Ack(3)]);
    }
    assert_eq!(base.wait(1000), []);
    assert_eq!(base.mobile_sends(Segment { window: 9, ..ack(3) }), [Ack(3)]);
    assert_eq!(base.wait(100).len(), 1);
}

#[test]
fn an_acknowledgement_with_data_passes_with_its_data() {
    let mut base = base(Config::default(), 3);
    base.data(3..6);
    for _ in 0..3 {
        assert_eq!(base.mobile_sends(Segment { len: 10, ..ack(3) }), [Ack(3)]);
        let fin = Flags::ACK.with(Flags::FIN);
        assert_eq!(base.mobile_sends(Segment { flags: fin, ..ack(3) }), [Ack(3)]);
    }
    assert_eq!(base.agent.stats().suppressed, 0);
    assert_eq!(base.mobile_sends(Segment { len: 10, ..ack(5) }), [Ack(5)]);
    assert_eq!(base.agent.kept(), 1, "it counts all the same");
}

#[test]
fn a_reply_while_nothing_is_under_way_passes() {
    let mut base = base(Config::default(), 3);
    for _ in 0..3 {
        assert_eq!(base.ack(3), [Ack(3)]);
    }
    assert_eq!(base.agent.stats().duplicates_passed, 0);
}

#[test]
fn acknowledgements_that_come_late_pass() {
    let mut base = base(Config::default(), 3);
    base.data(3..6);
    assert_eq!(base.ack(2), [Ack(2)]);
    assert_eq!(base.ack(3), [Data(3)], "and change nothing");
}

/// SNP-3: a duplicate that answers a needless copy asks for what waits in the hop's queue. It brings
/// no copy of that, whose duplicate would bring the next, and the next.
#[test]
fn what_came_twice_brings_no_repair() {
    let mut base = Base::new(pinned());
    base.data(0..1);
    base.ack(1);
    base.data(1..4);
    assert_eq!(base.wait(100).len(), 1, "a copy of 1, although only the answer is late");
    base.ack(2);
    base.ack(4);
    base.data(4..8);
    assert_eq!(base.ack(4), [], "its answer tells of no loss");
    assert_eq!(base.ack(4), [Data(4)], "another one does");
}

/// SNP-3: the same where the fixed host sent the copy.
#[test]
fn what_the_fixed_host_sent_twice_brings_no_repair() {
    let mut base = Base::new(Config::default());
    base.data(0..4);
    base.ack(4);
    assert_eq!(base.fixed_sends(data(2)), [Data(2)]);
    assert_eq!(base.fixed_sends(data(3)), [Data(3)]);
    base.data(4..8);
    assert_eq!(base.ack(4), [Ack(4)], "it has not heard of it");
    assert_eq!(base.ack(4), []);
    assert_eq!(base.ack(4), [Data(4)]);
}

/// SNP-3: what went after a segment cannot have been answered before it, so that a copy behind it is
/// no excuse for its duplicates.
#[test]
fn a_copy_that_went_later_excuses_nothing() {
    let mut base = Base::new(Config::default());
    base.data(0..4);
    base.ack(4);
    base.data(4..8);
    assert_eq!(base.fixed_sends(data(2)), [Data(2)]);
    assert_eq!(base.ack(4), [Ack(4)], "the fixed host has not heard of it");
    assert_eq!(base.ack(4), [Data(4)]);
}

/// SNP-3: once something that followed the copy is acknowledged, the copy has been answered or lost.
#[test]
fn a_copy_that_was_lost_excuses_no_later_duplicate() {
    let mut base = Base::new(Config::default());
    base.data(0..4);
    base.ack(4);
    assert_eq!(base.fixed_sends(data(2)), [Data(2)]);
    base.data(4..8);
    base.ack(5);
    assert_eq!(base.ack(5), [Data(5)]);
}

/// SNP-3: copies that were lost are excuses only for what went right after them, however many there
/// were.
#[test]
fn many_lost_copies_excuse_no_later_duplicate() {
    let mut base = Base::new(pinned());
    base.data(0..2);
    base.ack(1);
    assert_eq!(base.wait(500).len(), 5, "copies of 1");
    base.data(2..5);
    assert_eq!(
        base.ack(2),
        [Ack(2)],
        "the first of them came, or 1 itself, and all others were lost"
    );
    base.data(5..8);
    assert_eq!(base.ack(4), [Ack(4)]);
    assert_eq!(base.ack(4), [Data(4)]);
}

/// SNP-3: duplicates that answered what went after all copies have shown that those are lost.
#[test]
fn a_copy_that_is_known_to_be_lost_excuses_nothing() {
    let mut base = Base::new(pinned());
    base.data(0..4);
    base.ack(1);
    assert_eq!(base.ack(1), [Data(1)], "2 came");
    assert_eq!(base.ack(1), [], "3 came");
    base.data(4..6);
    assert_eq!((base.ack(1), base.ack(1)), (vec![], vec![]), "4 and 5 came, the copy did not");
    assert_eq!(base.wait(100).len(), 1, "another one, which does");
    assert_eq!(base.ack(6), [Ack(6)]);
    base.data(6..9);
    assert_eq!(base.ack(6), [Data(6)]);
}

/// SNP-3: of two copies of which either may have come the later one may still be to be answered.
#[test]
fn a_second_copy_excuses_one_duplicate() {
    let mut base = Base::new(pinned());
    base.data(0..4);
    base.ack(1);
    assert_eq!(base.ack(1), [Data(1)], "2 came");
    assert_eq!(base.wait(100).len(), 1, "a second copy");
    assert_eq!(base.ack(4), [Ack(4)]);
    base.data(4..8);
    assert_eq!(base.ack(4), [], "the second copy came");
    assert_eq!(base.ack(4), [Data(4)]);
}

/// SNP-9: a fixed host that sends again what is acknowledged has not heard so. The mobile's reply is
/// a duplicate here and news there; kept back, it would never end the fixed host's timeouts.
#[test]
fn an_acknowledgement_that_never_reached_the_fixed_host_passes_again() {
    let mut base = base(Config::default(), 3);
    base.data(3..6);
    assert_eq!(base.ack(3), [Data(3)]);
    base.data(2..3);
    assert_eq!(base.ack(3), [Ack(3)]);
    assert_eq!(base.ack(3), [], "it has heard now");
    assert_eq!(base.ack(6), [Ack(6)]);
}
