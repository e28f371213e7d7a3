//! What a mobile end does at disconnections and handoffs, segment by segment: ATCP, Freeze-TCP, the
//! link-layer trigger method, the mobile's part of M-TCP, and fast retransmit after handoffs.

use super::play;

/// ATS-2, ATS-3, ATS-6.
#[test]
fn with_room_the_timer_stops_and_new_data_goes_out_on_reconnection() {
    play("atcp/sender-open.pkt");
}

/// ATS-6.
#[test]
fn what_was_lost_before_a_disconnection_is_found_by_duplicates() {
    play("atcp/sender-open-lost.pkt");
}

/// ATS-4, ATS-5, ATS-7.
#[test]
fn an_expiry_while_cut_off_only_sets_the_windows() {
    play("atcp/sender-full.pkt");
}

/// ATS-8, ATS-9, ATS-10, ATS-11.
#[test]
fn the_first_expiry_after_a_reconnection_costs_no_window() {
    play("atcp/sender-waits.pkt");
}

/// ATS-10.
#[test]
fn old_data_acknowledged_does_not_end_the_grace() {
    play("atcp/sender-old-ack.pkt");
}

/// ATS-8, ATS-10.
#[test]
fn a_part_of_the_old_data_acknowledged_does_not_end_the_grace() {
    play("atcp/sender-full-old-ack.pkt");
}

/// ATS-5.
#[test]
fn ssthresh_is_two_segments_at_least() {
    play("atcp/sender-small.pkt");
}

/// ATS-6.
#[test]
fn an_echo_from_before_a_disconnection_is_no_sample() {
    play("atcp/sender-old-echo.pkt");
}

/// ATR-2.
#[test]
fn what_arrives_while_cut_off_starts_no_delay() {
    play("atcp/cut-arrivals.pkt");
}

/// ATS-1, ATS-11.
#[test]
fn without_a_disconnection_atcp_is_reno() {
    play("atcp/sender-as-tcp.pkt");
}

/// ATR-1.
#[test]
fn the_last_two_bytes_wait() {
    play("atcp/withheld.pkt");
}

/// ATR-1.
#[test]
fn the_last_two_bytes_wait_half_a_second_at_most() {
    play("atcp/longest-delay.pkt");
}

/// ATR-2, ATR-3, ATR-6, ATR-8.
#[test]
fn a_reconnection_sends_two_acknowledgements() {
    play("atcp/reconnection.pkt");
}

/// ATR-5.
#[test]
fn without_bytes_held_back_both_have_one_number() {
    play("atcp/late.pkt");
}

/// ATR-3.
#[test]
fn a_handoff_s_completion_may_count_as_the_connection() {
    play("atcp/handoff.pkt");
}

/// ATR-1.
#[test]
fn a_gap_ends_the_withholding() {
    play("atcp/gap.pkt");
}

/// ATS-1.
#[test]
fn a_cut_off_sender_tries_the_link_now_and_then() {
    play("atcp/lost-news.pkt");
}

/// FRZ-1, FRZ-3.
#[test]
fn a_warning_shuts_the_window_and_the_link_opens_it() {
    play("freeze/warned.pkt");
}

/// FRZ-1, FRZ-3.
#[test]
fn a_freeze_has_as_many_copies_as_asked_for() {
    play("freeze/copies.pkt");
}

/// FRZ-3.
#[test]
fn a_missed_warning_leaves_three_duplicates() {
    play("freeze/missed.pkt");
}

/// FRZ-5.
#[test]
fn a_false_alarm_ends_a_bound_after_its_lead() {
    play("freeze/false-alarm.pkt");
}

/// FRZ-3.
#[test]
fn a_probe_stands_for_lost_news() {
    play("freeze/lost-news.pkt");
}

/// FRZ-3.
#[test]
fn a_stranger_does_not_stand_for_lost_news() {
    play("freeze/stranger.pkt");
}

/// FRZ-6.
#[test]
fn a_freezing_sender_is_reno() {
    play("freeze/sender.pkt");
}

/// LLT-2, LLT-3, LLT-5, LLT-6.
#[test]
fn a_completed_handoff_opens_what_the_trigger_shut() {
    play("ll-freeze/handoff.pkt");
}

/// LLT-3, LLT-6, LLT-8.
#[test]
fn a_trigger_may_have_copies() {
    play("ll-freeze/copies.pkt");
}

/// LLT-9.
#[test]
fn a_false_trigger_ends() {
    play("ll-freeze/false-trigger.pkt");
}

/// LLT-10.
#[test]
fn a_missed_trigger_leaves_one_acknowledgement() {
    play("ll-freeze/missed-trigger.pkt");
}

/// LLT-10.
#[test]
fn a_missed_trigger_may_leave_three_duplicates() {
    play("ll-freeze/missed-trigger-three.pkt");
}

/// LLT-11.
#[test]
fn a_trigger_freezes_the_sender() {
    play("ll-freeze/sender.pkt");
}

/// LLT-11.
#[test]
fn the_sender_need_not_freeze() {
    play("ll-freeze/receiver-only.pkt");
}

/// MTC-4, MTC-5.
#[test]
fn a_mobile_greets_and_sends_again_without_loss_of_window() {
    play("greet/sender.pkt");
}

/// MTC-5.
#[test]
fn a_connection_can_open_through_a_disconnection() {
    play("greet/opening.pkt");
}

/// MTC-4.
#[test]
fn a_greeting_acknowledges_all_that_came() {
    play("greet/receiver.pkt");
}

/// MTC-5.
#[test]
fn the_persist_timer_stands_still_while_cut_off() {
    play("greet/closed-window.pkt");
}

/// MTC-5.
#[test]
fn a_cut_off_mobile_tries_its_supervisor() {
    play("greet/lost-news.pkt");
}

/// 3DA-1, 3DA-3.
#[test]
fn a_handoff_ends_with_three_like_the_last() {
    play("fast-retransmit/handoff.pkt");
}

/// 3DA-3.
#[test]
fn a_fourth_copy_is_an_option() {
    play("fast-retransmit/four.pkt");
}

/// 3DA-5.
#[test]
fn a_mobile_sender_may_retransmit_without_being_told() {
    play("fast-retransmit/sender.pkt");
}

/// 3DA-5.
#[test]
fn a_mobile_sender_waits_unless_asked() {
    play("fast-retransmit/receiver-only.pkt");
}
