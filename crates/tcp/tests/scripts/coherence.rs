//! Congestion notification, and what tells losses on a radio from congestion's (RFC 3168, CC-3 to CC-8,
//! DDA-2 to DDA-4, SNP-10, EBS-2).

use super::play;

/// RFC 3168 section 6.1.1: offered, answered, declined.
#[test]
fn congestion_notification_is_agreed_on_in_the_opening() {
    play("ecn/offer.pkt");
    play("ecn/answer.pkt");
    play("ecn/declined.pkt");
    play("ecn/reflected.pkt");
    play("ecn/off.pkt");
}

/// RFC 3168 sections 6.1.5 and 6.1.6: neither what is sent again nor a probe is capable.
#[test]
fn only_new_data_is_ecn_capable() {
    play("ecn/retransmission.pkt");
    play("ecn/probe.pkt");
}

/// RFC 3168 section 6.1.3: marks are echoed until CWR comes.
#[test]
fn a_mark_is_echoed_until_the_sender_has_heard() {
    play("ecn/echo.pkt");
}

/// RFC 3168 section 6.1.5: marks on what is there already count for nothing.
#[test]
fn a_mark_on_old_data_is_not_echoed() {
    play("ecn/old-mark.pkt");
}

/// RFC 3168 section 6.1.2: the window is cut once in a window of data.
#[test]
fn an_echo_halves_the_window_once_in_a_window_of_data() {
    play("ecn/cut.pkt");
    play("ecn/cubic.pkt");
}

/// RFC 3168 section 6.1.2: a loss after an echo is the same congestion, a loss alone is told with
/// CWR too.
#[test]
fn a_loss_and_an_echo_of_one_window_cut_it_once() {
    play("ecn/loss-after-echo.pkt");
    play("ecn/loss.pkt");
}

/// CC-6: duplicates without echoes cost no window.
#[test]
fn a_loss_without_an_echo_is_repaired_and_costs_no_window() {
    play("coherence/unmarked-sender.pkt");
    play("coherence/tahoe.pkt");
}

/// CC-6: with echoes, or without agreed marks, a loss costs what it costs Reno.
#[test]
fn a_loss_with_an_echo_costs_what_it_costs_reno() {
    play("coherence/marked-sender.pkt");
    play("coherence/next-window.pkt");
    play("coherence/without-ecn.pkt");
}

/// CC-5: unmarked, duplicates wait until the hole fills, or the timer (CC-8) ends.
#[test]
fn duplicates_of_an_unmarked_loss_wait_for_the_link() {
    play("coherence/held.pkt");
    play("coherence/released.pkt");
}

/// CC-3, CC-5: a marked neighbour lets duplicates go at once.
#[test]
fn duplicates_of_a_loss_with_a_marked_neighbour_go_at_once() {
    play("coherence/marked-before.pkt");
    play("coherence/marked-behind.pkt");
}

/// CC-3, CC-8: neighbours are the segment before and one or two behind, as configured.
#[test]
fn a_mark_farther_away_says_nothing() {
    play("coherence/marked-far.pkt");
    play("coherence/one-behind.pkt");
}

/// DDA-2, DDA-3: the third and later duplicates wait for d, then go.
#[test]
fn the_third_duplicate_and_later_ones_wait() {
    play("delayed-dupacks/two-at-once.pkt");
    play("delayed-dupacks/delayed-ack.pkt");
}

/// DDA-3: what waits is thrown away when the missing data comes.
#[test]
fn duplicates_that_wait_are_thrown_away_when_the_gap_is_filled() {
    play("delayed-dupacks/filled.pkt");
}

/// DDA-4: d is a parameter.
#[test]
fn how_long_duplicates_wait_is_a_parameter() {
    play("delayed-dupacks/parameter.pkt");
}

/// SNP-10: duplicates with a loss notification cost no window.
#[test]
fn a_notified_loss_is_repaired_and_costs_no_window() {
    play("eln/spared.pkt");
    play("eln/next-loss.pkt");
    play("eln/off.pkt");
}

/// EBS-2: the timer starts anew, estimate and window stay.
#[test]
fn a_bad_hop_starts_the_timer_anew() {
    play("ebsn/timer.pkt");
    play("ebsn/idle.pkt");
}
