use lasthop_units::{Bytes, Duration};

use super::super::{Config, ConfigError, Eviction, LocalTimer, Memory, Router, RtoBounds};
use super::*;

fn router(config: Config) -> Router<Packet> {
    Router::new(config).unwrap()
}

/// A router to which segments 0 to 9 came, which the mobile host has.
fn running(config: Config) -> Router<Packet> {
    let mut router = router(config);
    send(&mut router, ms(0), 0..10);
    put(&mut router, ms(1), Side::Mobile, ack(10));
    router
}

fn hear(router: &mut Router<Packet>, now: Time, message: &Message) -> Vec<Output<Packet>> {
    router.handle_message(now, Side::Fixed, message);
    drain(router)
}

fn dupacks(router: &mut Router<Packet>, now: Time, n: u32, count: usize) -> Vec<Output<Packet>> {
    (0..count).flat_map(|_| put(router, now, Side::Mobile, ack(n))).collect()
}

/// OBM-1: one SNACK for each gap, on the first packet after it and in front of it, naming all that
/// is missing.
#[test]
fn a_gap_is_reported_once_by_the_first_packet_after_it() {
    let mut router = running(Config::default());
    let out = put(&mut router, ms(10), Side::Fixed, data(14));
    assert_eq!(out, [says(Side::Fixed, snack(&[(10, 14)])), to_mobile(14)]);
    assert_eq!(put(&mut router, ms(11), Side::Fixed, data(15)), [to_mobile(15)]);
    let out = put(&mut router, ms(12), Side::Fixed, data(17));
    assert_eq!(out, [says(Side::Fixed, snack(&[(16, 17)])), to_mobile(17)]);
}

/// OBM-2: what comes in sequence goes on and is kept.
#[test]
fn what_comes_in_sequence_is_kept_and_passes() {
    let mut router = router(Config::default());
    for n in 0..20 {
        assert_eq!(put(&mut router, ms(0), Side::Fixed, data(n)), [to_mobile(n)]);
    }
    assert_eq!(router.cached(), 20);
}

/// OBM-3: what comes after a gap is kept too.
#[test]
fn what_comes_after_a_gap_is_kept() {
    let mut router = running(Config::default());
    send(&mut router, ms(10), [14, 15]);
    assert_eq!(router.cached(), 2);
}

/// OBM-4: a retransmission is kept, goes on and is no longer missing.
#[test]
fn a_retransmission_fills_the_gap() {
    let mut router = running(Config::default());
    send(&mut router, ms(10), [14]);
    for n in [11, 13, 10, 12] {
        assert_eq!(put(&mut router, ms(30), Side::Fixed, data(n)), [to_mobile(n)]);
    }
    assert_eq!((router.cached(), router.gaps(), router.next_timeout()), (5, 0, None));
    assert_eq!(router.stats().recovered, 4);
}

/// OBM-5: the first duplicate for a kept segment has it sent again; this and the rest of the run
/// stay here.
#[test]
fn a_duplicate_for_a_kept_segment_is_answered_here() {
    let mut router = running(Config::default());
    send(&mut router, ms(10), 10..18);
    // 10 is lost, 11 to 17 arrive.
    assert_eq!(dupacks(&mut router, ms(20), 10, 1), [to_mobile(10)]);
    assert_eq!(dupacks(&mut router, ms(21), 10, 6), []);
    assert_eq!(put(&mut router, ms(25), Side::Mobile, ack(18)), [to_fixed(ack(18))]);
    assert_eq!(router.stats().suppressed, 7);
}

/// OBM-5: more duplicates than earlier segments explain show that the retransmission was lost too,
/// since the link keeps its order (LNK-11).
#[test]
fn duplicates_beyond_the_run_repeat_the_retransmission() {
    let mut router = running(Config::default());
    send(&mut router, ms(10), 10..18);
    assert_eq!(dupacks(&mut router, ms(20), 10, 7), [to_mobile(10)]);
    send(&mut router, ms(21), 18..20);
    assert_eq!(dupacks(&mut router, ms(30), 10, 2), [to_mobile(10)]);
    assert_eq!(router.stats().retransmitted, 2);
}

/// OBM-5: with a higher threshold earlier duplicates pass; after the last try all do.
#[test]
fn the_threshold_and_the_tries_are_parameters() {
    let mut router = running(Config { dupacks: 2, tries: 1, ..Config::default() });
    send(&mut router, ms(10), 10..14);
    assert_eq!(dupacks(&mut router, ms(20), 10, 3), [to_fixed(ack(10)), to_mobile(10)]);
    send(&mut router, ms(21), 14..18);
    assert_eq!(dupacks(&mut router, ms(30), 10, 4).len(), 4, "it was sent again once");
}

/// OBM-6: duplicates for what was asked for stay here.
#[test]
fn duplicates_are_kept_back_while_a_snack_is_open() {
    let mut router = running(Config::default());
    send(&mut router, ms(10), 14..20);
    assert_eq!(dupacks(&mut router, ms(20), 10, 6), []);
    assert_eq!(router.stats().suppressed, 6);
}

/// OBM-6: without an answer the SNACK is repeated after a timeout; after a second one duplicates
/// pass, and up to three that were kept back are made good.
#[test]
fn a_snack_without_an_answer_is_repeated_and_then_given_up() {
    let mut router = running(Config::default());
    send(&mut router, ms(10), 14..20);
    dupacks(&mut router, ms(20), 10, 5);
    let repeated = [says(Side::Fixed, snack(&[(10, 14)]))].to_vec();
    assert_eq!(expire(&mut router), (ms(510), repeated));
    assert_eq!(dupacks(&mut router, ms(520), 10, 1), []);
    let (due, out) = expire(&mut router);
    assert_eq!((due, out.len()), (ms(1510), 3));
    assert!(out.iter().all(|out| *out == to_fixed(ack(10))));
    assert_eq!(dupacks(&mut router, ms(1520), 10, 1), [to_fixed(ack(10))]);
    assert_eq!(router.next_timeout(), None);
    let stats = router.stats();
    assert_eq!((stats.repeated, stats.given_up, stats.replayed), (1, 1, 3));
}

/// OBM-6: the timeout follows the time from a SNACK to its answer, of first SNACKs only.
#[test]
fn the_timeout_is_learnt_from_answers_to_first_snacks() {
    let mut router = running(Config::default());
    send(&mut router, ms(10), [11]);
    send(&mut router, ms(50), [10]);
    send(&mut router, ms(100), [13]);
    // 40 ms and four times 20 ms.
    assert_eq!(router.next_timeout(), Some(ms(220)));
    expire(&mut router);
    send(&mut router, ms(400), [12]);
    send(&mut router, ms(500), [15]);
    assert_eq!(router.next_timeout(), Some(ms(620)), "a repeated one tells nothing");
}

/// OBM-7: what the base does not have is marked: its duplicates pass, and up to three of those that
/// were kept back are made good, so that the fixed host can retransmit fast.
#[test]
fn a_congestion_message_lets_duplicates_pass() {
    for (before, replayed) in [(0, 0), (2, 2), (7, 3)] {
        let mut router = running(Config::default());
        send(&mut router, ms(10), 12..20);
        assert_eq!(dupacks(&mut router, ms(20), 10, before), []);
        let out = hear(&mut router, ms(30), &congestion(&[(10, 12)]));
        assert_eq!(out.len(), replayed);
        assert!(out.iter().all(|out| *out == to_fixed(ack(10))));
        assert_eq!(hear(&mut router, ms(31), &congestion(&[(10, 12)])), [], "once");
        assert_eq!(dupacks(&mut router, ms(32), 10, 2), [to_fixed(ack(10)), to_fixed(ack(10))]);
        assert_eq!(router.next_timeout(), None);
        // The fixed host's retransmission of the first leaves the second marked.
        send(&mut router, ms(90), [10]);
        put(&mut router, ms(99), Side::Mobile, ack(11));
        assert_eq!(dupacks(&mut router, ms(99), 11, 1), [to_fixed(ack(11))]);
        send(&mut router, ms(190), [11]);
        assert_eq!(router.gaps(), 0);
    }
}

/// OBM-7: the mark is for what the message names, not for what is missing beside it.
#[test]
fn a_congestion_message_marks_only_what_it_names() {
    let mut router = running(Config::default());
    send(&mut router, ms(10), 14..20);
    dupacks(&mut router, ms(20), 10, 3);
    assert_eq!(hear(&mut router, ms(30), &congestion(&[(12, 13)])), []);
    assert_eq!(dupacks(&mut router, ms(40), 10, 1), []);
    send(&mut router, ms(50), [10, 11, 13]);
    put(&mut router, ms(60), Side::Mobile, ack(12));
    assert_eq!(dupacks(&mut router, ms(60), 12, 1), [to_fixed(ack(12))]);
}

/// OBM-8: the missing packet only, or all from it on.
#[test]
fn go_back_n_is_an_option() {
    for (go_back_n, sent) in [(false, 10..11), (true, 10..18)] {
        let mut router = running(Config { go_back_n, ..Config::default() });
        send(&mut router, ms(10), 10..18);
        let out = dupacks(&mut router, ms(20), 10, 7);
        assert_eq!(out, sent.map(to_mobile).collect::<Vec<_>>());
    }
}

/// OBM-8: the copies that go-back-n sends without need make duplicates, which stay here and cause
/// no further copies.
#[test]
fn duplicates_that_go_back_n_causes_itself_stay_here() {
    let mut router = running(Config { go_back_n: true, ..Config::default() });
    send(&mut router, ms(10), 10..18);
    dupacks(&mut router, ms(20), 10, 7);
    put(&mut router, ms(30), Side::Mobile, ack(18));
    assert_eq!(dupacks(&mut router, ms(31), 18, 3), []);
    send(&mut router, ms(32), 18..20);
    assert_eq!(dupacks(&mut router, ms(33), 18, 4), []);
    assert_eq!(router.stats().retransmitted, 8);
}

/// An acknowledgement that a retransmission brought about shows the next loss, if so configured.
#[test]
fn a_partial_acknowledgement_can_repair_the_next_loss() {
    for (partial_acks, retransmitted) in [(false, 1), (true, 2)] {
        let mut router = running(Config { partial_acks, ..Config::default() });
        send(&mut router, ms(10), 10..18);
        dupacks(&mut router, ms(20), 10, 6);
        let mut out = put(&mut router, ms(30), Side::Mobile, ack(11));
        assert_eq!(out.pop(), Some(to_fixed(ack(11))));
        assert_eq!(out, [to_mobile(11)][..retransmitted - 1]);
    }
}

/// OBM-9: what is acknowledged anew is no longer kept.
#[test]
fn an_acknowledgement_frees_and_passes() {
    let mut router = running(Config::default());
    send(&mut router, ms(10), 10..20);
    for (n, left) in [(15, 5), (12, 5), (300, 5), (20, 0)] {
        assert_eq!(put(&mut router, ms(20), Side::Mobile, ack(n)), [to_fixed(ack(n))]);
        assert_eq!(router.cached(), left, "after {n}");
    }
}

/// OBM-11: a gap on one link and a loss on the other are repaired at the same time.
#[test]
fn losses_on_both_links_are_repaired_at_the_same_time() {
    let mut router = running(Config::default());
    // 10 is lost behind the router, 12 in front of it.
    send(&mut router, ms(10), [10, 11]);
    let out = put(&mut router, ms(10), Side::Fixed, data(13));
    assert_eq!(out[0], says(Side::Fixed, snack(&[(12, 13)])));
    assert_eq!(dupacks(&mut router, ms(15), 10, 2), [to_mobile(10)]);
    put(&mut router, ms(20), Side::Mobile, ack(12));
    assert_eq!(dupacks(&mut router, ms(21), 12, 1), []);
    assert_eq!(put(&mut router, ms(30), Side::Fixed, data(12)), [to_mobile(12)]);
    assert_eq!(router.gaps(), 0);
}

/// OBM-11: duplicates that packets before a base's retransmission cause do not repeat it on the
/// second link; one that a packet behind it causes does.
#[test]
fn a_retransmission_of_the_base_is_given_time_on_the_second_link() {
    let mut router = running(Config::default());
    send(&mut router, ms(10), 11..15);
    send(&mut router, ms(30), [10, 15]);
    assert_eq!(dupacks(&mut router, ms(31), 10, 4), []);
    assert_eq!(dupacks(&mut router, ms(36), 10, 1), [to_mobile(10)]);
}

/// OBM-12: only data towards the mobile host is helped. A duplicate that carries data, changes the
/// window or answers a probe of a closed one is none.
#[test]
fn what_is_not_understood_passes_the_router_untouched() {
    passes_untouched(&mut router(Config::default()));
    let mut router = running(Config::default());
    send(&mut router, ms(10), 10..14);
    let segment = ack(10).segment.unwrap();
    let carries = Segment { len: 10, ..segment };
    let update = Segment { window: 600, ..segment };
    let closed = Segment { window: 0, ..segment };
    for segment in [carries, update, closed, closed] {
        let packet = packet(Side::Mobile, segment);
        assert_eq!(put(&mut router, ms(20), Side::Mobile, packet.clone()), [to_fixed(packet)]);
    }
}

/// OBM-12: with SACK a duplicate is one whatever its window, unless that was closed; a report of a
/// copy that was not needed is none.
#[test]
fn sack_distinguishes_a_duplicate_from_other_acknowledgements() {
    let with = |window, (from, to): (u32, u32)| {
        let mut segment = Segment { window, ..ack(10).segment.unwrap() };
        segment.options.sack.push(seq(from), seq(to));
        packet(Side::Mobile, segment)
    };
    let mut router = running(Config::default());
    send(&mut router, ms(10), 10..16);
    let needless = with(500, (8, 9));
    assert_eq!(put(&mut router, ms(20), Side::Mobile, needless.clone()), [to_fixed(needless)]);
    assert_eq!(put(&mut router, ms(21), Side::Mobile, with(700, (11, 12))), [to_mobile(10)]);
    assert_eq!(put(&mut router, ms(22), Side::Mobile, with(900, (11, 13))), []);
    for window in [0, 900] {
        let packet = with(window, (11, 14));
        assert_eq!(put(&mut router, ms(23), Side::Mobile, packet.clone()), [to_fixed(packet)]);
    }
}

/// OBM-12: a fixed host that repeats what the mobile host has gets the acknowledgement that it
/// missed; one that repeats what is missing fills the gap itself.
#[test]
fn a_fixed_hosts_own_retransmissions_are_served() {
    let mut router = running(Config::default());
    send(&mut router, ms(10), 11..14);
    assert_eq!(put(&mut router, ms(20), Side::Fixed, data(9)), [to_mobile(9)]);
    assert_eq!(dupacks(&mut router, ms(21), 10, 2), [to_fixed(ack(10))]);
    assert_eq!(put(&mut router, ms(22), Side::Fixed, data(10)), [to_mobile(10)]);
    assert_eq!((router.gaps(), router.cached()), (0, 4));
    assert_eq!(put(&mut router, ms(23), Side::Fixed, data(12)), [to_mobile(12)]);
    assert_eq!(router.cached(), 4);
}

/// OBM-13: what is sent again is the packet as it came, the fixed host's timestamp included, and no
/// acknowledgement is changed: the sender's samples are its own.
#[test]
fn copies_carry_the_senders_own_timestamps() {
    let mut router = running(Config::default());
    send(&mut router, ms(10), 10..13);
    let out = dupacks(&mut router, ms(900), 10, 1);
    let [Output::Packet { packet, .. }] = &out[..] else { panic!("{out:?}") };
    assert_eq!(packet.segment.unwrap().options.timestamps.unwrap().value, 1010);
    assert_eq!(*packet, data(10));
}

/// OBB-9: the hop keeps its order, so bytes that come before others that were asked for earlier
/// show that those were lost again. They are asked for at once, if so configured.
#[test]
fn a_lost_retransmission_is_detected_by_the_order() {
    for detect_lost_retransmissions in [false, true] {
        let config = Config { detect_lost_retransmissions, ..Config::default() };
        let mut router = running(config);
        send(&mut router, ms(10), [14, 16]);
        send(&mut router, ms(30), [10]);
        let out = put(&mut router, ms(31), Side::Fixed, data(12));
        let again = [says(Side::Fixed, snack(&[(11, 12)])), to_mobile(12)];
        assert_eq!(out, again[usize::from(!detect_lost_retransmissions)..]);
        let out = put(&mut router, ms(32), Side::Fixed, data(15));
        let again = [says(Side::Fixed, snack(&[(13, 14)])), to_mobile(15)];
        assert_eq!(out, again[usize::from(!detect_lost_retransmissions)..]);
        let stats = router.stats();
        assert_eq!(stats.lost_retransmissions, if detect_lost_retransmissions { 2 } else { 0 });
    }
}

/// OBB-7: the router has a local timer for its own link too, off by default.
#[test]
fn a_local_timer_is_an_option() {
    let mut plain = running(Config::default());
    send(&mut plain, ms(10), 10..12);
    assert_eq!(plain.next_timeout(), None);
    let mut timed = running(Config { timers: true, ..Config::default() });
    send(&mut timed, ms(10), 10..12);
    assert_eq!(expire(&mut timed), (ms(110), [to_mobile(10)].to_vec()));
}

/// OBB-7: while the base is to repair its link, the router's timer waits.
#[test]
fn the_local_timer_leaves_a_gap_to_the_base() {
    let timer = LocalTimer { tries: 1, ..LocalTimer::default() };
    let mut router = running(Config { timers: true, timer, snacks: 9, ..Config::default() });
    send(&mut router, ms(10), [11]);
    while router.next_timeout().is_some_and(|due| due < ms(3000)) {
        expire(&mut router);
    }
    assert_eq!(router.stats().timeouts, 0);
    send(&mut router, ms(3000), [10]);
    while router.next_timeout().is_some_and(|due| due < ms(5000)) {
        expire(&mut router);
    }
    assert_eq!(router.stats().timeouts, 1);
}

#[test]
fn gaps_and_copies_stay_within_their_bounds() {
    let memory = Memory { segments: 16, ..Memory::default() };
    let mut router = running(Config { memory, gaps: 4, ..Config::default() });
    send(&mut router, ms(10), (11..100).step_by(2));
    assert_eq!((router.gaps(), router.cached()), (4, 16));
    assert_eq!((router.stats().gaps, router.stats().untracked), (4, 41));
    for bad in [0, 33] {
        let config = Config { gaps: bad, ..Config::default() };
        assert_eq!(Router::<Packet>::new(config).unwrap_err(), ConfigError::Gaps(bad));
    }
    let rto = RtoBounds { least: Duration::ZERO, ..RtoBounds::default() };
    assert!(Config { rto, ..Config::default() }.check().is_err());
    assert_eq!(Config { snacks: 0, ..Config::default() }.check(), Err(ConfigError::Zero("snacks")));
}

#[test]
fn a_connection_that_ends_begins_anew_or_moves_is_removed() {
    let flagged = |flags| packet(Side::Fixed, Segment { seq: seq(0), flags, ..Segment::default() });
    for flags in [Flags::SYN, Flags::RST] {
        let mut router = running(Config::default());
        send(&mut router, ms(10), [12]);
        put(&mut router, ms(11), Side::Fixed, flagged(flags));
        assert_eq!((router.cached(), router.gaps(), router.next_timeout()), (0, 0, None));
    }
    let mut router = running(Config::default());
    send(&mut router, ms(10), [12]);
    router.remove_mobile(connection().mobile.ip());
    assert_eq!((router.cached(), router.next_timeout()), (0, None));
    assert_eq!(dupacks(&mut router, ms(12), 10, 1), [to_fixed(ack(10))]);
    send(&mut router, ms(13), [13]);
    let far =
        packet(Side::Fixed, Segment { seq: seq(0) + (1 << 31), len: 9, ..Segment::default() });
    put(&mut router, ms(14), Side::Fixed, far);
    assert_eq!((router.cached(), router.stats().snacks), (1, 1));
}

/// However far numbers jump, holes span less than the largest window: a SNACK can name them.
#[test]
fn jumps_do_not_add_up_beyond_a_window() {
    let mut router = running(Config::default());
    for jump in 1..40u32 {
        let at = seq(10) + jump.wrapping_mul(1 << 28);
        let segment = Segment { seq: at, len: MSS, ..Segment::default() };
        for out in put(&mut router, ms(10), Side::Fixed, packet(Side::Fixed, segment)) {
            if let Output::Message { message, .. } = out {
                message.emit(&mut [0; Message::MAX_LEN]).unwrap();
            }
        }
        while router.next_timeout().is_some_and(|due| due < ms(600)) {
            for out in expire(&mut router).1 {
                let Output::Message { message, .. } = out else { panic!("{out:?}") };
                message.emit(&mut [0; Message::MAX_LEN]).unwrap();
            }
        }
        assert!(router.gaps() <= 4);
    }
}

/// OBB-8: bytes of all connections are bounded too; what is not kept passes all the same.
#[test]
fn the_bytes_that_are_kept_stay_within_their_bound() {
    for eviction in [Eviction::Lowest, Eviction::Newest] {
        let memory =
            Memory { bytes: Bytes::new(5 * u64::from(MSS)), eviction, ..Memory::default() };
        let mut router = router(Config { memory, ..Config::default() });
        for n in 0..20 {
            assert_eq!(put(&mut router, ms(1), Side::Fixed, data(n)), [to_mobile(n)]);
            assert!(router.memory() <= memory.bytes);
        }
        assert_eq!((router.cached(), router.memory()), (5, memory.bytes));
        put(&mut router, ms(2), Side::Mobile, ack(20));
        assert_eq!(router.memory(), Bytes::ZERO);
    }
}

/// Connections whose end passed elsewhere give way to others, and their deadlines go with them.
#[test]
fn connections_that_vanish_leave_nothing_behind() {
    let memory = Memory { connections: 2, ..Memory::default() };
    let mut router = router(Config { memory, ..Config::default() });
    for port in 1..100 {
        for n in [0, 2] {
            let mut packet = data(n);
            packet.dst.set_port(port);
            put(&mut router, ms(10), Side::Fixed, packet);
        }
        assert!(router.gaps() <= 2);
    }
    assert_eq!(expire(&mut router).1.len(), 2, "those that are known ask again");
}

/// OBM-5: when nothing is missing only as many duplicates stay here as the router's own copies can
/// have caused; the fixed host sees those that it caused itself.
#[test]
fn duplicates_that_no_copy_of_the_router_explains_pass() {
    let mut router = running(Config::default());
    send(&mut router, ms(10), 10..12);
    assert_eq!(dupacks(&mut router, ms(20), 10, 1), [to_mobile(10)]);
    put(&mut router, ms(30), Side::Mobile, ack(12));
    assert_eq!(dupacks(&mut router, ms(31), 12, 1), []);
    assert_eq!(dupacks(&mut router, ms(31), 12, 1), [to_fixed(ack(12))]);
}

/// OBM-7: duplicates that the router itself has answered are not made good when the base gives up
/// something else.
#[test]
fn only_duplicates_for_what_the_base_lacks_are_made_good() {
    let mut router = running(Config::default());
    send(&mut router, ms(10), [10, 11, 13]);
    assert_eq!(dupacks(&mut router, ms(20), 10, 2), [to_mobile(10)]);
    assert_eq!(hear(&mut router, ms(21), &congestion(&[(12, 13)])), []);
    assert_eq!(router.stats().replayed, 0);
}
