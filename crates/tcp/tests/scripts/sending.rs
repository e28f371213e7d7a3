//! The congestion window, losses and duplicates (RENO-2 to RENO-4).

use super::play;

/// RENO-2: the initial window is a parameter, in segments.
#[test]
fn the_initial_window_is_so_many_segments() {
    play("congestion/initial-window.pkt");
}

/// RENO-2: the initial window is a parameter, in bytes.
#[test]
fn the_initial_window_is_so_many_bytes() {
    play("congestion/initial-window-in-bytes.pkt");
}

/// RENO-2: slow start doubles the window in each round trip.
#[test]
fn slow_start_doubles() {
    play("congestion/slow-start.pkt");
}

/// RENO-2: slow start counts bytes, a segment at most.
#[test]
fn slow_start_counts_bytes() {
    play("congestion/slow-start-by-bytes.pkt");
}

/// RENO-2: at ssthresh slow start ends.
#[test]
fn congestion_avoidance_begins_at_ssthresh() {
    play("congestion/avoidance.pkt");
}

/// RENO-2: the window has a ceiling.
#[test]
fn the_window_has_a_ceiling() {
    play("congestion/ceiling.pkt");
}

/// RENO-2: the papers' parameters can be set.
#[test]
fn the_papers_parameters_can_be_set() {
    play("congestion/published.pkt");
}

/// RENO-3: the third duplicate is a loss.
#[test]
fn the_third_duplicate_is_a_loss() {
    play("loss/third-duplicate.pkt");
}

/// RENO-3: further duplicates inflate.
#[test]
fn further_duplicates_inflate() {
    play("loss/inflation.pkt");
}

/// RENO-3: the first new acknowledgement deflates to ssthresh.
#[test]
fn new_data_acknowledged_deflates() {
    play("loss/deflation.pkt");
}

/// RENO-3: ssthresh is two segments at least.
#[test]
fn ssthresh_is_two_segments_at_least() {
    play("loss/least-ssthresh.pkt");
}

/// RENO-3: ssthresh is half of what is out.
#[test]
fn ssthresh_is_half_of_what_is_out() {
    play("loss/flight-not-window.pkt");
}

/// RENO-3: Reno leaves recovery at the first partial acknowledgement.
#[test]
fn reno_leaves_at_the_first_partial_acknowledgement() {
    play("loss/reno-partial.pkt");
}

/// RENO-3: NewReno mends one hole in each round trip.
#[test]
fn newreno_mends_a_hole_in_each_round_trip() {
    play("loss/newreno-holes.pkt");
}

/// RENO-3: NewReno's timer starts anew at the first partial acknowledgement only.
#[test]
fn newreno_is_impatient() {
    play("loss/newreno-impatient.pkt");
}

/// RENO-3: duplicates after a timeout are no new loss.
#[test]
fn duplicates_after_a_timeout_are_no_loss() {
    play("loss/careful.pkt");
}

/// RENO-3: SACK mends several holes in one round trip.
#[test]
fn sack_mends_several_holes_in_a_round_trip() {
    play("loss/sack-several.pkt");
}

/// RENO-3: SACK finds a loss by what lies above it.
#[test]
fn sack_counts_bytes_above_the_gap() {
    play("loss/sack-early.pkt");
}

/// RENO-3: SACK may begin recovery again at once after the last.
#[test]
fn sack_recovers_again_right_after_recovery() {
    play("loss/sack-next-window.pkt");
}

/// RENO-3: the receiver tells what it holds.
#[test]
fn the_receiver_tells_what_it_holds() {
    play("loss/sack-receiver.pkt");
}

/// RENO-3 and RENO-12: Tahoe begins again with one segment.
#[test]
fn tahoe_restarts_from_one() {
    play("loss/tahoe.pkt");
}

/// RENO-3 and RENO-12: Tahoe sends again from the loss on.
#[test]
fn tahoe_goes_back() {
    play("loss/tahoe-goes-back.pkt");
}

/// RENO-3: CUBIC keeps seven tenths.
#[test]
fn cubic_keeps_seven_tenths() {
    play("loss/cubic.pkt");
}

/// RENO-3: limited transmit lets out new data.
#[test]
fn limited_transmit_sends_new_data() {
    play("loss/limited-transmit.pkt");
}

/// RENO-3: limited transmit ends with the loss.
#[test]
fn limited_transmit_ends_with_the_loss() {
    play("loss/limited-transmit-tahoe.pkt");
}

/// RENO-4: one with another window is an update.
#[test]
fn a_window_update_is_no_duplicate() {
    play("duplicates/window.pkt");
}

/// RENO-4: an acknowledgement with data is no duplicate.
#[test]
fn data_is_no_duplicate() {
    play("duplicates/data.pkt");
}

/// RENO-4: one with a FIN is none.
#[test]
fn an_end_is_no_duplicate() {
    play("duplicates/fin.pkt");
}

/// RENO-4: without data outstanding nothing is a duplicate.
#[test]
fn nothing_outstanding_no_duplicate() {
    play("duplicates/idle.pkt");
}

/// RENO-4: one with an older number is none.
#[test]
fn an_older_number_is_no_duplicate() {
    play("duplicates/old.pkt");
}

/// RENO-4: same number, same window, no data, data outstanding.
#[test]
fn three_of_the_same_are_a_loss() {
    play("duplicates/same.pkt");
}

/// RFC 5961 section 5: an acknowledgement from long ago does not count.
#[test]
fn an_outdated_acknowledgement_does_not_count() {
    play("duplicates/outdated.pkt");
}
