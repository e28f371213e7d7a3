//! Timers, acknowledgements, windows, and the flavours of old (RENO-5 to RENO-13).

use super::play;

/// RENO-5: RTO = SRTT + 4 RTTVAR.
#[test]
fn the_timeout_follows_the_samples() {
    play("timer/samples.pkt");
}

/// RENO-5: the timeout before the first sample is a parameter.
#[test]
fn the_initial_timeout_is_a_parameter() {
    play("timer/initial.pkt");
}

/// RENO-5: the minimum is a parameter.
#[test]
fn the_least_timeout_is_a_parameter() {
    play("timer/minimum.pkt");
}

/// RENO-5: the minimum is 1 s in RFC 6298.
#[test]
fn the_least_timeout_is_a_second() {
    play("timer/least-of-rfc.pkt");
}

/// RENO-5: doubling up to a cap.
#[test]
fn the_timeout_doubles_up_to_a_cap() {
    play("timer/doubling.pkt");
}

/// RENO-5: Karn's rule.
#[test]
fn what_was_sent_twice_is_no_sample() {
    play("timer/karn.pkt");
}

/// RENO-5: Karn's rule holds for what follows a retransmission.
#[test]
fn what_follows_a_retransmission_is_no_sample() {
    play("timer/karn-by-position.pkt");
}

/// RENO-5: what ends the doubling is a parameter.
#[test]
fn any_acknowledgement_may_end_the_doubling() {
    play("timer/any-ack-ends-doubling.pkt");
}

/// RENO-5: one timer per connection.
#[test]
fn one_timer_serves_all_segments() {
    play("timer/one.pkt");
}

/// RENO-5: acknowledgements of new data start it anew.
#[test]
fn new_data_acknowledged_restarts_the_timer() {
    play("timer/restarts.pkt");
}

/// RENO-5: an echo makes a sample of a retransmission.
#[test]
fn an_echo_makes_a_retransmission_a_sample() {
    play("timer/timestamps.pkt");
}

/// RENO-5: the granularity is a parameter.
#[test]
fn a_coarse_clock_counts_ticks() {
    play("timer/coarse-clock.pkt");
}

/// RENO-6: an expiry halves, leaves one segment and counts.
#[test]
fn an_expiry_cuts_the_window_and_counts() {
    play("timer/expiry.pkt");
}

/// RENO-6: sending goes back to SND.UNA.
#[test]
fn an_expiry_goes_back() {
    play("timer/go-back.pkt");
}

/// RENO-6: ssthresh is two segments at least.
#[test]
fn ssthresh_is_two_segments_at_least_after_a_timeout() {
    play("timer/least-ssthresh.pkt");
}

/// RENO-6: the same data's second expiry leaves ssthresh alone.
#[test]
fn a_second_expiry_leaves_ssthresh() {
    play("timer/repeated.pkt");
}

/// RENO-6 and RENO-12: in BSD the second expiry halves again.
#[test]
fn a_second_expiry_halves_again_in_bsd() {
    play("timer/repeated-in-bsd.pkt");
}

/// RENO-6: a retransmission that is lost ends in an expiry.
#[test]
fn an_expiry_ends_recovery() {
    play("timer/in-recovery.pkt");
}

/// RENO-6: after so many expiries the connection is given up.
#[test]
fn the_connection_is_given_up() {
    play("timer/gives-up.pkt");
}

/// RENO-7: every second segment is acknowledged.
#[test]
fn every_second_segment_is_acknowledged() {
    play("acks/second.pkt");
}

/// RENO-7: an acknowledgement waits 200 ms at most.
#[test]
fn an_acknowledgement_waits_200_ms() {
    play("acks/timer.pkt");
}

/// RENO-7: the wait may end on a tick, as BSD's.
#[test]
fn a_wait_may_end_on_a_tick() {
    play("acks/on-ticks.pkt");
}

/// RENO-7: a gap is told at once.
#[test]
fn a_gap_is_told_at_once() {
    play("acks/gap.pkt");
}

/// RENO-7: what fills a gap is told at once.
#[test]
fn the_fill_of_a_gap_is_told_at_once() {
    play("acks/fill.pkt");
}

/// RENO-7: what came twice is told at once.
#[test]
fn what_came_twice_is_told_at_once() {
    play("acks/repeated.pkt");
}

/// RENO-7: data takes the acknowledgement along.
#[test]
fn data_takes_the_acknowledgement_along() {
    play("acks/piggyback.pkt");
}

/// RENO-7: each segment is acknowledged if none may wait.
#[test]
fn without_delay_each_segment_is_acknowledged() {
    play("acks/every-segment.pkt");
}

/// RENO-8: a closed window is probed from 5 s to 60 s and costs no state.
#[test]
fn a_closed_window_is_probed_ever_more_seldom() {
    play("window/persist.pkt");
}

/// RENO-8: the bounds are parameters.
#[test]
fn the_bounds_of_probing_are_parameters() {
    play("window/persist-bounds.pkt");
}

/// RENO-8: a probe that is taken ends probing.
#[test]
fn a_probe_that_is_taken_ends_probing() {
    play("window/probe-accepted.pkt");
}

/// RENO-8: a probe of our window is answered.
#[test]
fn a_probe_is_answered() {
    play("window/probed.pkt");
}

/// RENO-9: a shrunk window stops the timer.
#[test]
fn a_shrunk_window_stops_the_timer() {
    play("window/shrunk.pkt");
}

/// RENO-9 and RENO-4: a window shrinks without anything acknowledged.
#[test]
fn a_warning_stops_the_timer() {
    play("window/shrunk-without-news.pkt");
}

/// RENO-9: the other policy keeps the timer.
#[test]
fn the_timer_may_be_kept() {
    play("window/shrunk-keeping-timer.pkt");
}

/// RENO-9: a window that is only smaller keeps the timer.
#[test]
fn a_smaller_window_keeps_the_timer() {
    play("window/shrunk-in-part.pkt");
}

/// RENO-9: a window that shuts while data is sent again after a timeout is probed.
#[test]
fn a_window_shut_while_going_back_is_probed() {
    play("window/shrunk-while-going-back.pkt");
}

/// RENO-10: sending resumes at once from SND.UNA.
#[test]
fn a_reopened_window_is_used_at_once() {
    play("window/reopened.pkt");
}

/// RENO-10: sending resumes up to the window.
#[test]
fn a_reopened_window_bounds_what_is_sent() {
    play("window/reopened-in-part.pkt");
}

/// RENO-11: the lesser of both windows bounds what is out.
#[test]
fn the_lesser_window_counts() {
    play("window/lesser.pkt");
}

/// RENO-11: the advertised window alone holds a sender.
#[test]
fn the_advertised_window_holds_the_rate() {
    play("window/advertised.pkt");
}

/// RENO-12: Tahoe with 500 ms ticks.
#[test]
fn bsd_tahoe() {
    play("flavours/bsd-tahoe.pkt");
}

/// RENO-12: Reno with 500 ms ticks.
#[test]
fn bsd_reno() {
    play("flavours/bsd-reno.pkt");
}

/// RENO-12: BSD halves whole segments.
#[test]
fn bsd_halves_whole_segments() {
    play("flavours/bsd-window-of-whole-segments.pkt");
}

/// RENO-5 and RENO-12: the timer fires on ticks of 500 ms.
#[test]
fn bsd_times_in_ticks() {
    play("flavours/bsd-ticks.pkt");
}

/// RENO-12: BSD waits 6 s for the answer to its SYN.
#[test]
fn bsd_waits_6_s_for_an_answer() {
    play("flavours/bsd-syn.pkt");
}

/// RENO-7 and RENO-12: BSD's fast timer.
#[test]
fn bsd_acknowledges_on_its_fast_timer() {
    play("flavours/bsd-acks.pkt");
}

/// RENO-13: ms-tcp with ticks of 200 ms.
#[test]
fn ms_tcp_with_ticks_of_200_ms() {
    play("flavours/ms-tcp-200ms.pkt");
}

/// RENO-13: ms-tcp with ticks of 500 ms.
#[test]
fn ms_tcp_with_ticks_of_500_ms() {
    play("flavours/ms-tcp-500ms.pkt");
}

/// RENO-13: tcp-linux with a clock of 10 ms.
#[test]
fn tcp_linux() {
    play("flavours/tcp-linux.pkt");
}

/// RENO-13: SACK is off.
#[test]
fn sack_is_off_unless_asked_for() {
    play("flavours/no-sack.pkt");
}

/// RENO-13: SACK is off in BSD.
#[test]
fn bsd_has_no_sack() {
    play("flavours/no-sack-in-bsd.pkt");
}

/// RENO-13: SACK is off in ns-2's Reno.
#[test]
fn ns2_reno_has_no_sack() {
    play("flavours/no-sack-in-ns2.pkt");
}

/// RENO-13: a current stack has all options.
#[test]
fn a_current_stack_has_all_options() {
    play("flavours/modern.pkt");
}

/// RENO-6: link events leave timer and window alone.
#[test]
fn plain_tcp_ignores_link_events() {
    play("flavours/link-events.pkt");
}

/// RFC 7323 section 4.3: the echo is of the earliest segment that is acknowledged.
#[test]
fn a_delayed_acknowledgement_echoes_the_earliest_segment() {
    play("acks/echo.pkt");
}

/// RENO-8: probes that nothing answers count like expiries.
#[test]
fn who_answers_no_probe_is_given_up() {
    play("window/persist-silent.pkt");
}

/// RENO-8: BSD probes for ever.
#[test]
fn bsd_probes_a_silent_peer_for_ever() {
    play("window/persist-forever.pkt");
}
