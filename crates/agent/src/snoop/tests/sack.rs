//! Acknowledgements with SACK blocks, which the 1995 agent did not know.

use super::Sent::{Ack, Data};
use super::*;
use crate::snoop::Timer;

fn base(config: Config) -> Base {
    let timer = Timer::Pinned(Duration::from_millis(100));
    let mut base = Base::new(Config { timer, ..config });
    base.data(0..3);
    base.ack(3);
    base
}

/// Asks for the packet `n`, holding these, each up to and without its second.
fn sack(n: u32, held: &[(u32, u32)]) -> Segment {
    let mut segment = ack(n);
    for (from, to) in held {
        segment.options.sack.push(ORIGIN + *from * MSS, ORIGIN + *to * MSS);
    }
    segment
}

/// SNP-8: by the papers blocks change nothing: one loss per round trip.
#[test]
fn blocks_are_not_looked_at_unless_asked_for() {
    let mut base = base(Config::default());
    base.data(3..9);
    assert_eq!(base.mobile_sends(sack(3, &[(7, 8)])), [Data(3)]);
    assert_eq!(base.mobile_sends(sack(3, &[(7, 9)])), []);
    assert_eq!(base.mobile_sends(sack(4, &[(7, 9)])), [Ack(4)]);
}

/// SNP-5 and SNP-6: a duplicate with blocks is kept back only as long as snoop repairs.
#[test]
fn duplicates_with_blocks_pass_when_the_tries_are_used_up() {
    let mut base = base(Config::default());
    base.data(3..60);
    assert_eq!(base.mobile_sends(sack(3, &[(4, 5)])), [Data(3)]);
    for n in 6..15 {
        assert_eq!(base.mobile_sends(sack(3, &[(4, n)])), []);
        base.wait(100);
    }
    assert_eq!(base.mobile_sends(sack(3, &[(4, 15)])), [Ack(3)]);
}

/// A changed window beside new blocks does not make it any less a duplicate (RFC 6675 section 2).
#[test]
fn a_changed_window_with_blocks_is_a_duplicate() {
    let mut base = base(Config::default());
    base.data(3..6);
    assert_eq!(base.mobile_sends(Segment { window: 900, ..sack(3, &[(4, 5)]) }), [Data(3)]);
}

#[test]
fn word_that_something_came_twice_passes() {
    let mut base = base(Config::default());
    base.data(3..6);
    assert_eq!(base.mobile_sends(sack(3, &[(1, 2)])), [Ack(3)]);
    assert_eq!(base.agent.stats().local_retransmits, 0);
}

#[test]
fn all_holes_are_repaired_at_once_if_asked_for() {
    let mut base = base(Config { use_sack: true, ..Config::default() });
    base.data(3..9);
    assert_eq!(base.mobile_sends(sack(3, &[(5, 6)])), [Data(3), Data(4)]);
    assert_eq!(base.mobile_sends(sack(3, &[(8, 9), (5, 6)])), [Data(6), Data(7)]);
    assert_eq!(base.mobile_sends(sack(3, &[(8, 9), (5, 6)])), []);
    assert_eq!(base.mobile_sends(sack(9, &[])), [Ack(9)]);
    assert_eq!(base.agent.stats().timeouts, 0);
}

/// A packet that was sent after the repair and came first tells that the repair was lost.
#[test]
fn a_lost_repair_is_repaired_without_the_timer() {
    let mut base = base(Config { use_sack: true, ..Config::default() });
    base.data(3..5);
    assert_eq!(base.mobile_sends(sack(3, &[(4, 5)])), [Data(3)]);
    base.data(5..6);
    assert_eq!(base.mobile_sends(sack(3, &[(4, 6)])), [Data(3)]);
    assert_eq!(base.agent.stats().timeouts, 0);
}

/// SNP-4: of what was sent before the latest new acknowledgement nothing is to be expected any more,
/// snoop's own copies included; each packet after it brings one duplicate.
#[test]
fn copies_that_were_answered_leave_later_duplicates_to_be_dropped() {
    let mut base = base(Config { use_sack: true, ..Config::default() });
    base.data(3..7);
    assert_eq!(base.mobile_sends(sack(3, &[(4, 5), (6, 7)])), [Data(3), Data(5)]);
    assert_eq!(base.wait(100), [(100, Data(3))]);
    assert_eq!(base.ack(5), [Ack(5)]);
    base.data(7..9);
    // One for the second copy of packet 3, one for each of 7 and 8.
    for _ in 0..3 {
        assert_eq!(base.ack(5), []);
    }
    assert_eq!(base.ack(5), [Ack(5)]);
}

#[test]
fn what_the_fixed_host_has_sent_again_is_left_to_it() {
    let mut base = base(Config { use_sack: true, ..Config::default() });
    base.data(3..7);
    base.data(4..5);
    assert_eq!(base.mobile_sends(sack(3, &[(6, 7)])), [Data(3), Data(5)]);
}

#[test]
fn blocks_can_be_hidden_while_the_next_hole_is_under_repair() {
    let mut base = base(Config { hide_sack: true, ..Config::default() });
    let blocks = |base: &mut Base, n| {
        let out = base.hand(Side::Mobile, wire(Side::Mobile, mobile(0), sack(n, &[(7, 9)])));
        match &out[..] {
            [Output::Packet { towards: Side::Fixed, packet }] => {
                packet.tcp().unwrap().segment.options.sack.as_slice().len()
            }
            other => panic!("{other:?}"),
        }
    };
    base.data(3..5);
    base.data(6..9);
    assert_eq!(base.mobile_sends(sack(3, &[(7, 8)])), [Data(3)]);
    assert_eq!(blocks(&mut base, 4), 0);
    assert_eq!(blocks(&mut base, 5), 1, "this hole is not snoop's");
}
