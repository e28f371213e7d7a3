//! Opening and closing (RENO-1).

use super::play;

/// RENO-1: the opening takes three segments, from the side that begins.
#[test]
fn we_open_in_three_ways() {
    play("opening/active.pkt");
}

/// RENO-1: the opening from the side that answers.
#[test]
fn we_answer_in_three_ways() {
    play("opening/passive.pkt");
}

/// RENO-1: both sides may begin at once.
#[test]
fn two_openings_that_cross_make_one_connection() {
    play("opening/simultaneous.pkt");
}

/// RENO-1 and RENO-5: a lost SYN is repeated, and makes the beginning careful.
#[test]
fn a_lost_syn_is_repeated() {
    play("opening/syn-lost.pkt");
}

/// RENO-1: a SYN with ACK that is lost is repeated.
#[test]
fn a_lost_answer_is_repeated() {
    play("opening/syn-ack-lost.pkt");
}

/// RENO-1: a SYN that comes again is answered again.
#[test]
fn a_repeated_syn_is_answered_again() {
    play("opening/syn-repeated.pkt");
}

/// RENO-1: the peer's MSS option bounds our segments.
#[test]
fn the_peers_mss_bounds_our_segments() {
    play("opening/mss-of-peer.pkt");
}

/// RENO-1: our own size is offered, and bounds our segments.
#[test]
fn our_mss_is_offered_and_bounds_our_segments() {
    play("opening/mss-of-ours.pkt");
}

/// RENO-1: without the MSS option 536 bytes are sent.
#[test]
fn without_an_mss_segments_have_536_bytes() {
    play("opening/mss-absent.pkt");
}

/// RENO-1: a reset refuses the connection.
#[test]
fn a_reset_refuses_the_opening() {
    play("opening/refused.pkt");
}

/// RENO-1: where nobody listens segments are reset.
#[test]
fn nobody_listens_and_says_so() {
    play("opening/refuses.pkt");
}

/// RENO-1: an old connection of the peer's is reset.
#[test]
fn an_old_connection_of_the_peers_is_reset() {
    play("opening/half-open.pkt");
}

/// RENO-1: FIN close, from the side that closes first.
#[test]
fn we_close_first() {
    play("closing/first.pkt");
}

/// RENO-1: FIN close, from the side that closes second.
#[test]
fn we_close_second() {
    play("closing/second.pkt");
}

/// RENO-1: after our FIN the peer may go on.
#[test]
fn our_end_leaves_the_peers_stream_open() {
    play("closing/half-by-us.pkt");
}

/// RENO-1: after the peer's FIN we may go on.
#[test]
fn the_peers_end_leaves_our_stream_open() {
    play("closing/half-by-peer.pkt");
}

/// RENO-1: both may close at once.
#[test]
fn two_ends_that_cross_close_the_connection() {
    play("closing/simultaneous.pkt");
}

/// RENO-1: TIME-WAIT lasts two segment lifetimes from the last FIN.
#[test]
fn time_wait_begins_anew_with_a_repeated_end() {
    play("closing/time-wait.pkt");
}

/// RENO-1 and RENO-5: a lost FIN is repeated.
#[test]
fn a_lost_end_is_repeated() {
    play("closing/fin-lost.pkt");
}

/// RENO-1: a FIN counts after the data that it comes with.
#[test]
fn an_end_counts_after_its_data() {
    play("closing/fin-with-data.pkt");
}

/// RENO-1: a FIN above a gap waits.
#[test]
fn an_end_above_a_gap_waits() {
    play("closing/fin-above-gap.pkt");
}

/// RENO-1: only a reset at the very next byte counts.
#[test]
fn only_an_exact_reset_counts() {
    play("closing/reset.pkt");
}

/// RENO-1: giving up resets the peer.
#[test]
fn giving_up_resets_the_peer() {
    play("closing/abort.pkt");
}

/// RFC 7323 section 2.2: no window on a SYN is scaled.
#[test]
fn the_window_of_a_syn_is_never_scaled() {
    play("opening/simultaneous-scaled.pkt");
}

/// RENO-1: data on the SYN of a simultaneous open is not misplaced.
#[test]
fn data_on_a_syn_that_crosses_ours_is_not_misplaced() {
    play("opening/simultaneous-data.pkt");
}
