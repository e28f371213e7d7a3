//! Bursts that are lost whole: [`Config::go_back`].

use super::Sent::{Ack, Data};
use super::*;

/// Twenty packets cross a hop whose round trip is 80 ms, of which the first was acknowledged; the
/// timer has just sent the second again.
fn silent(go_back: bool) -> Base {
    let mut base = Base::new(Config { go_back, ..Config::default() });
    base.data(0..1);
    base.wait(80);
    assert_eq!(base.ack(1), [Ack(1)]);
    base.data(1..20);
    assert_eq!(base.wait(240), [(320, Data(1))]);
    base
}

fn sent(numbers: core::ops::Range<u32>, then: Sent) -> Vec<Sent> {
    numbers.map(Data).chain([then]).collect()
}

#[test]
fn what_was_lost_at_once_goes_again_two_for_each_that_came() {
    let mut base = silent(true);
    for (came, again) in [(2, 2..4), (4, 4..8), (8, 8..16), (16, 16..20)] {
        assert_eq!(base.wait(80), []);
        assert_eq!(base.ack(came), sent(again, Ack(came)));
    }
    base.wait(80);
    assert_eq!(base.ack(20), [Ack(20)]);
    assert_eq!(base.agent.stats().local_retransmits, 19);
    assert_eq!(base.agent.next_timeout(), None);
}

/// SNP-8: in the papers one goes a round trip.
#[test]
fn unless_asked_for_the_next_one_waits_for_the_timer() {
    let mut base = silent(false);
    base.wait(80);
    assert_eq!(base.ack(2), [Ack(2)]);
    assert_eq!(base.wait(100), [(500, Data(2))]);
}

#[test]
fn a_duplicate_after_the_copy_shows_that_others_came() {
    let mut base = silent(true);
    assert_eq!(base.ack(1), []);
    base.wait(80);
    assert_eq!(base.ack(2), [Ack(2)]);
}

/// Only the word of them was lost.
#[test]
fn what_came_before_the_silence_does_not_go_again() {
    let mut base = silent(true);
    base.wait(80);
    assert_eq!(base.ack(5), sent(5..7, Ack(5)));
    base.wait(80);
    assert_eq!(base.ack(7), sent(7..11, Ack(7)));
}

#[test]
fn where_all_came_nothing_goes_again() {
    let mut base = silent(true);
    base.wait(80);
    assert_eq!(base.ack(20), [Ack(20)]);
}

#[test]
fn an_answer_that_is_too_early_is_one_to_the_original() {
    let mut base = silent(true);
    base.wait(10);
    assert_eq!(base.ack(2), [Ack(2)]);
    base.wait(80);
    assert_eq!(base.ack(3), [Ack(3)]);
}

/// A queue made the round trip longer than the timer: that shows with the next acknowledgement.
#[test]
fn a_timer_that_was_too_short_costs_three_copies() {
    let mut base = silent(true);
    base.wait(90);
    assert_eq!(base.ack(2), sent(2..4, Ack(2)));
    for n in 3..20 {
        base.wait(6);
        assert_eq!(base.ack(n), [Ack(n)]);
    }
    assert_eq!(base.agent.stats().local_retransmits, 3);
}

#[test]
fn a_fixed_host_that_goes_back_itself_is_left_to_it() {
    let mut base = silent(true);
    base.wait(80);
    assert_eq!(base.ack(2), sent(2..4, Ack(2)));
    base.data(3..5);
    base.wait(80);
    assert_eq!(base.ack(5), [Ack(5)]);
}

#[test]
fn a_burst_whose_repair_is_lost_is_repaired_by_duplicates_and_the_timer() {
    let mut base = silent(true);
    base.wait(80);
    assert_eq!(base.ack(2), sent(2..4, Ack(2)));
    // The first of both copies is lost.
    base.wait(80);
    assert_eq!(base.ack(2), []);
    assert_eq!(base.wait(160), [(640, Data(2))]);
    base.wait(80);
    assert_eq!(base.ack(4), sent(4..6, Ack(4)));
}
