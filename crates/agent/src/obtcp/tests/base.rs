use lasthop_units::Bytes;

use super::super::{Base, Config, ConfigError, Eviction, LocalTimer, Memory};
use super::*;

fn base(config: Config) -> Base<Packet> {
    Base::new(config).unwrap()
}

fn answer(base: &mut Base<Packet>, of: &[(u32, u32)]) -> Vec<Output<Packet>> {
    base.handle_message(ms(50), Side::Mobile, &snack(of));
    drain(base)
}

/// OBB-1: each segment is sent and kept, from the middle of a connection too.
#[test]
fn what_is_sent_is_kept() {
    let mut base = base(Config::default());
    for n in 0..20 {
        assert_eq!(put(&mut base, ms(0), Side::Fixed, data(n)), [to_mobile(n)]);
    }
    assert_eq!(base.cached(), 20);
    put(&mut base, ms(1), Side::Fixed, data(7));
    assert_eq!(base.cached(), 20, "the fixed host's own retransmission is kept once");
}

/// OBB-2: an acknowledgement frees what it covers and goes on; one that is older, or that is for
/// what was never sent, only goes on.
#[test]
fn an_acknowledgement_frees_and_passes() {
    let mut base = base(Config::default());
    send(&mut base, ms(0), 0..20);
    for (n, left) in [(5, 15), (5, 15), (3, 15), (200, 15), (20, 0)] {
        assert_eq!(put(&mut base, ms(9), Side::Mobile, ack(n)), [to_fixed(ack(n))]);
        assert_eq!(base.cached(), left, "after {n}");
    }
}

/// OBB-3: all that a SNACK lists is sent again at once, in one go and in order.
#[test]
fn a_snack_is_answered_all_in_one_go() {
    let mut base = base(Config::default());
    send(&mut base, ms(0), 0..20);
    let out = answer(&mut base, &[(3, 5), (12, 16)]);
    assert_eq!(out, [3, 4, 12, 13, 14, 15].map(to_mobile));
    assert_eq!(base.stats().retransmitted, 6);
}

/// OBB-3: ranges within one segment send it once.
#[test]
fn a_segment_is_sent_once_for_several_ranges() {
    let mut base = base(Config::default());
    send(&mut base, ms(0), 0..3);
    let mut missing = Ranges::default();
    missing.push(seq(1) + 10, seq(1) + 20);
    missing.push(seq(1) + 30, seq(1) + 40);
    base.handle_message(ms(1), Side::Mobile, &Message::Snack { connection: connection(), missing });
    assert_eq!(drain(&mut base), [to_mobile(1)]);
}

/// OBB-4: what is not there is named in a congestion message, also of a connection that the base
/// does not know; what is acknowledged is no longer missing.
#[test]
fn what_is_not_there_is_named_in_a_congestion_message() {
    let mut base = base(Config::default());
    let unknown = answer(&mut base, &[(1, 2)]);
    assert_eq!(unknown, [says(Side::Mobile, congestion(&[(1, 2)]))]);
    send(&mut base, ms(0), [0, 1, 2, 5, 6, 9]);
    put(&mut base, ms(0), Side::Mobile, ack(1));
    let out = answer(&mut base, &[(0, 4), (5, 8)]);
    let said = says(Side::Mobile, congestion(&[(3, 4), (7, 8)]));
    assert_eq!(out, [to_mobile(1), to_mobile(2), to_mobile(5), to_mobile(6), said]);
}

/// OBB-4: what met a deep queue, as round trips tell, counts as lost on the wire.
#[test]
fn a_loss_behind_a_deep_queue_is_congestion() {
    for heed_backlog in [false, true] {
        let mut base = base(Config { heed_backlog, ..Config::default() });
        send(&mut base, ms(0), 0..1);
        put(&mut base, ms(20), Side::Mobile, ack(1));
        send(&mut base, ms(20), 1..10);
        put(&mut base, ms(180), Side::Mobile, ack(2));
        put(&mut base, ms(180), Side::Mobile, ack(3));
        send(&mut base, ms(180), 10..13);
        assert_eq!(base.stats().left_out, if heed_backlog { 3 } else { 0 });
        let out = answer(&mut base, &[(4, 5), (11, 12)]);
        let second = match heed_backlog {
            true => says(Side::Mobile, congestion(&[(11, 12)])),
            false => to_mobile(11),
        };
        assert_eq!(out, [to_mobile(4), second]);
        send(&mut base, ms(300), 11..12);
        assert_eq!(answer(&mut base, &[(11, 12)]), [to_mobile(11)], "the fixed host's own is kept");
    }
}

/// Segments that wait behind a hole tell of its repair, not of a queue.
#[test]
fn what_waits_behind_a_hole_is_no_sample() {
    let mut base = base(Config { heed_backlog: true, ..Config::default() });
    send(&mut base, ms(0), 0..2);
    put(&mut base, ms(20), Side::Mobile, ack(2));
    send(&mut base, ms(20), 2..6);
    answer(&mut base, &[(2, 3)]);
    send(&mut base, ms(60), 6..8);
    for n in [4, 6, 7] {
        put(&mut base, ms(300), Side::Mobile, ack(n));
    }
    send(&mut base, ms(300), 8..10);
    assert_eq!(base.stats().left_out, 0);
}

/// OBB-5: what was flushed early is treated as what was lost on the wire.
#[test]
fn what_was_flushed_is_treated_as_lost_on_the_wire() {
    let memory = Memory { segments: 16, ..Memory::default() };
    let mut base = base(Config { memory, ..Config::default() });
    send(&mut base, ms(0), (0..25).filter(|n| *n != 20));
    assert_eq!((base.cached(), base.stats().evicted), (16, 8));
    let out = answer(&mut base, &[(7, 9), (20, 22)]);
    let said = says(Side::Mobile, congestion(&[(7, 8), (20, 21)]));
    assert_eq!(out, [to_mobile(8), to_mobile(21), said]);
}

/// OBB-6: the base says nothing of a gap that it sees itself.
#[test]
fn a_gap_on_the_wire_waits_for_the_routers_snack() {
    let mut base = base(Config::default());
    for n in [0, 1, 4, 5] {
        assert_eq!(put(&mut base, ms(0), Side::Fixed, data(n)), [to_mobile(n)]);
    }
    assert_eq!(answer(&mut base, &[(2, 4)]), [says(Side::Mobile, congestion(&[(2, 4)]))]);
}

/// OBB-7: there is no timer unless it is asked for; then the oldest segment is sent again after
/// max(SRTT + 4 RTTVAR, tick), later each time, until the timer rests.
#[test]
fn a_local_timer_is_an_option() {
    let mut plain = base(Config::default());
    send(&mut plain, ms(0), 0..3);
    assert_eq!(plain.next_timeout(), None);

    let timer = LocalTimer { tries: 3, ..LocalTimer::default() };
    let mut timed = base(Config { timers: true, timer, ..Config::default() });
    send(&mut timed, ms(0), 0..1);
    put(&mut timed, ms(60), Side::Mobile, ack(1));
    assert_eq!(timed.next_timeout(), None, "nothing is outstanding");
    send(&mut timed, ms(100), 1..3);
    // 60 ms and four times 30 ms.
    for due in [280, 640, 1360] {
        assert_eq!(expire(&mut timed), (ms(due), [to_mobile(1)].to_vec()));
    }
    assert_eq!(timed.stats().timeouts, 3);
    let (_, last) = expire(&mut timed);
    assert_eq!((last, timed.next_timeout()), (Vec::new(), None));
}

/// OBB-8: 100 segments unless said otherwise, never fewer than 16, and never more than said,
/// whichever gives way.
#[test]
fn a_cache_has_its_bounds() {
    assert_eq!(Config::default().memory.segments, 100);
    let memory = |segments, eviction| Memory { segments, eviction, ..Memory::default() };
    let small = Config { memory: memory(15, Eviction::Lowest), ..Config::default() };
    assert_eq!(Base::<Packet>::new(small).unwrap_err(), ConfigError::Cache(15));
    for (eviction, first) in [(Eviction::Lowest, 84), (Eviction::Newest, 0)] {
        let mut base = base(Config { memory: memory(16, eviction), ..Config::default() });
        send(&mut base, ms(0), 0..100);
        assert_eq!(base.cached(), 16);
        assert_eq!(answer(&mut base, &[(first, first + 16)]).len(), 16);
        assert_eq!(base.stats().evicted + base.stats().refused, 84);
    }
}

/// OBB-8: all connections together keep no more bytes than said, whichever gives way, and what one
/// frees another may use.
#[test]
fn all_connections_share_the_bytes_that_are_kept() {
    let of = |n: u32, port: u16| {
        let mut packet = data(n);
        packet.dst.set_port(port);
        packet
    };
    let most = Bytes::new(10 * u64::from(MSS));
    for (eviction, kept) in [(Eviction::Lowest, 6..10), (Eviction::Newest, 0..4)] {
        let memory = Memory { bytes: most, eviction, ..Memory::default() };
        let mut base = base(Config { memory, ..Config::default() });
        for n in 0..6 {
            put(&mut base, ms(0), Side::Fixed, of(n, 1));
        }
        send(&mut base, ms(1), 0..10);
        assert_eq!((base.cached(), base.memory()), (10, most));
        let lost = base.stats();
        assert_eq!((lost.evicted + lost.refused, lost.cached - lost.evicted), (6, 10));
        let out = answer(&mut base, &[(kept.start, kept.end)]);
        assert_eq!(out, kept.map(to_mobile).collect::<Vec<_>>());
        base.remove_mobile(connection().mobile.ip());
        assert_eq!((base.cached(), base.memory()), (0, Bytes::ZERO));
        send(&mut base, ms(2), 0..12);
        assert_eq!((base.cached(), base.memory()), (10, most));
        put(&mut base, ms(3), Side::Mobile, ack(12));
        assert_eq!(base.memory(), Bytes::ZERO);
    }
}

/// OBB-9: what is asked for again is sent again.
#[test]
fn a_repeated_snack_is_answered_again() {
    let mut base = base(Config::default());
    send(&mut base, ms(0), 0..5);
    for _ in 0..3 {
        assert_eq!(answer(&mut base, &[(2, 4)]), [to_mobile(2), to_mobile(3)]);
    }
}

/// OBM-12: only data towards the mobile is helped.
#[test]
fn what_is_not_understood_passes_the_base_untouched() {
    passes_untouched(&mut base(Config::default()));
}

#[test]
fn a_connection_that_ends_or_begins_anew_is_removed() {
    let flagged = |flags| packet(Side::Fixed, Segment { seq: seq(0), flags, ..Segment::default() });
    for flags in [Flags::SYN, Flags::RST] {
        let mut base = base(Config::default());
        send(&mut base, ms(0), 0..5);
        put(&mut base, ms(1), Side::Fixed, flagged(flags));
        assert_eq!(base.cached(), 0);
    }
    let mut base = base(Config { timers: true, ..Config::default() });
    send(&mut base, ms(0), 0..5);
    base.remove_mobile(connection().mobile.ip());
    assert_eq!((base.cached(), base.next_timeout()), (0, None));
    send(&mut base, ms(0), 0..5);
    put(
        &mut base,
        ms(1),
        Side::Mobile,
        packet(Side::Mobile, Segment { flags: Flags::RST, ..Segment::default() }),
    );
    assert_eq!((base.cached(), base.next_timeout()), (0, None));
}

/// A SNACK for bytes that are nowhere near is not answered, and whatever is answered can be said.
#[test]
fn a_snack_for_another_stretch_is_ignored() {
    let mut base = base(Config::default());
    send(&mut base, ms(0), 0..5);
    for far in [1 << 30, 1 << 31, (1 << 31) + MSS, 3 << 30] {
        let mut missing = Ranges::default();
        missing.push(seq(0) + far, seq(0) + far + MSS);
        let snack = Message::Snack { connection: connection(), missing };
        base.handle_message(ms(1), Side::Mobile, &snack);
        assert_eq!(drain(&mut base), [], "{far}");
    }
}

#[test]
fn a_connection_whose_numbers_jump_begins_anew() {
    let mut base = base(Config::default());
    send(&mut base, ms(0), 0..5);
    let far =
        packet(Side::Fixed, Segment { seq: seq(0) + (1 << 31), len: MSS, ..Segment::default() });
    put(&mut base, ms(0), Side::Fixed, far);
    assert_eq!(base.cached(), 1);
}
