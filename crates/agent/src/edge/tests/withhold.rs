//! The receiver's half of ATCP, for a TCP that knows nothing of it.

use LinkEvent::{Complete, Down, Imminent, Up};
use lasthop_units::Thaw;
use proptest::prelude::*;

use super::*;
use crate::edge::withhold::pending;

/// Bytes that are left out of acknowledgements.
fn held(path: &Path<Withhold<Fake>>) -> i32 {
    pending(path.agent.flows.iter().next().unwrap().1)
}

fn path() -> Path<Withhold<Fake>> {
    let mut path = Path::new(Withhold::new(WithholdConfig::default()));
    assert_eq!(path.ack(0, 0), [Ack(0, WINDOW)]);
    path
}

/// ATR-1: the last two bytes are left out until more has come, or the delay is over.
#[test]
fn the_last_two_bytes_wait() {
    let mut path = path();
    path.burst(0, 0, 6);
    assert_eq!(path.ack(1, 1000), [Ack(998, WINDOW)]);
    assert_eq!(path.ack(2, 3000), [Ack(2998, WINDOW)]);
    assert_eq!(held(&path), 2);
    assert_eq!(path.ack(60, 6000), [Ack(5998, WINDOW)], "the number wraps meanwhile");
    assert_eq!(path.wait(159), []);
    assert_eq!(path.wait(200), [(160, Made(6000, WINDOW))]);
    assert_eq!(held(&path), 0);
    let stats = *path.agent.stats();
    assert_eq!((stats.lowered, stats.released), (3, 1));
}

/// ATR-1: the delay is half a second at most.
#[test]
fn no_delay_is_longer_than_half_a_second() {
    let delay = Duration::from_secs(9);
    let mut path = Path::new(Withhold::new(WithholdConfig { delay, ..WithholdConfig::default() }));
    path.ack(0, 0);
    path.burst(0, 0, 1);
    path.ack(0, 1000);
    assert_eq!(path.wait(2000), [(500, Made(1000, WINDOW))]);
}

/// ATR-1: one byte at a time leaves nothing to say until later, and no duplicate goes out.
#[test]
fn what_has_nothing_left_to_say_goes_no_further() {
    let mut path = path();
    path.data(0, 0, 1);
    assert_eq!(path.ack(1, 1), []);
    path.data(2, 1, 1);
    assert_eq!(path.ack(3, 2), []);
    path.data(4, 2, 1);
    assert_eq!(path.ack(5, 3), [Ack(1, WINDOW)]);
    assert_eq!(path.wait(200), [(105, Made(3, WINDOW))]);
    assert_eq!(path.agent.stats().swallowed, 2);
    let upload = Segment { len: 9, ..acking(4) };
    path.data(300, 3, 1);
    assert_eq!(path.give(301, Side::Mobile, upload), [Ack(3, WINDOW)], "data pass");
}

/// ATR-2, ATR-3: nothing goes while disconnected, the delay stands still; on reconnection the first
/// of the two bytes is acknowledged with window zero, the second with the full one.
#[test]
fn a_reconnection_sends_two_acknowledgements() {
    let mut path = path();
    path.burst(0, 0, 1);
    path.give(0, Side::Mobile, stamped(acking(1000), 40, 41));
    assert_eq!(path.event(50, Down), []);
    assert_eq!(path.wait(5000), []);
    assert_eq!(path.event(5050, Up), [Made(999, 0), Made(1000, WINDOW)]);
    let echoes: Vec<_> = path.last.iter().map(|s| s.options.timestamps.unwrap()).collect();
    assert_eq!((echoes[0].value, echoes[0].echo), (40, 41));
    assert_eq!((echoes[1].value, echoes[1].echo), (40, 0), "a silence is no round trip");
    assert_eq!(path.wait(9000), []);
    path.burst(9000, 1000, 1);
    assert_eq!(path.ack(9001, 2000), [Ack(1998, WINDOW)]);
}

/// ATR-5: the delay was over when the link went down: both have the same number.
#[test]
fn what_was_acknowledged_before_is_acknowledged_again() {
    let mut path = path();
    path.burst(0, 0, 1);
    path.ack(0, 1000);
    path.wait(200);
    path.event(300, Down);
    assert_eq!(path.event(900, Up), [Made(1000, 0), Made(1000, WINDOW)]);
}

/// ATR-2, ATR-6: what the mobile says while disconnected is lost, and told afterwards, in order.
#[test]
fn acknowledgements_sent_while_cut_off_are_repeated() {
    let mut path = path();
    path.burst(0, 0, 2);
    path.ack(0, 1000);
    path.event(10, Down);
    assert_eq!(path.ack(20, 2000), [Ack(1998, WINDOW)]);
    assert_eq!(path.wait(900), []);
    assert_eq!(path.event(900, Up), [Made(1999, 0), Made(2000, WINDOW)]);
}

/// ATR-8: warnings change nothing.
#[test]
fn it_needs_no_prediction() {
    let mut path = path();
    path.burst(0, 0, 1);
    path.ack(0, 1000);
    assert_eq!(path.event(1, Imminent { lead: LEAD }), []);
    path.event(2, Down);
    assert_eq!(path.event(900, Up), [Made(999, 0), Made(1000, WINDOW)]);
}

/// ATR-3: what comes over the hop long after a disconnection shows that it is over.
#[test]
fn an_arrival_stands_for_an_event_that_is_lost() {
    let config = WithholdConfig { thaw: Thaw::Complete, ..WithholdConfig::default() };
    let mut path = Path::new(Withhold::new(config));
    path.ack(0, 0);
    path.burst(0, 0, 1);
    path.ack(0, 1000);
    path.event(10, Down);
    assert_eq!(path.event(100, Up), []);
    let out = path.data(200, 1000, 1000);
    assert_eq!(out, [Made(999, 0), Made(1000, WINDOW), Data(1000, 1000)]);
    assert_eq!(path.event(300, Complete), []);
}

/// ATR-1: a gap ends the withholding before the first duplicate goes out, and what fills it is
/// acknowledged whole. (The paper is silent.)
#[test]
fn a_gap_ends_the_withholding() {
    for sack in [false, true] {
        let mut path = path();
        let duplicate = |to: u32| match sack {
            true => with_sack(1000, &[(2000, to)]),
            false => acking(1000),
        };
        path.burst(0, 0, 1);
        assert_eq!(path.ack(0, 1000), [Ack(998, WINDOW)]);
        path.burst(0, 2000, 2);
        let first = path.give(1, Side::Mobile, duplicate(3000));
        assert_eq!(first, [Made(1000, WINDOW), Ack(1000, WINDOW)]);
        assert!(path.last[0].options.sack.is_empty());
        assert_eq!(path.last[1].options.sack.is_empty(), !sack);
        assert_eq!(path.give(2, Side::Mobile, duplicate(4000)), [Ack(1000, WINDOW)]);
        path.burst(3, 1000, 1);
        assert_eq!(path.ack(4, 4000), [Ack(4000, WINDOW)]);
        path.burst(5, 4000, 1);
        assert_eq!(path.ack(6, 5000), [Ack(4998, WINDOW)]);
    }
}

/// ATR-1: a sender that counts whole segments under way has fewer of them while two bytes are left out,
/// which matters where losses keep its window small: there nothing is, until so much has come whole.
#[test]
fn nothing_is_left_out_soon_after_a_gap_if_it_is_to_be_calm() {
    let config = WithholdConfig { calm: Bytes::new(4000), ..WithholdConfig::default() };
    let mut path = Path::new(Withhold::new(config));
    path.ack(0, 0);
    path.burst(0, 0, 1);
    assert_eq!(path.ack(0, 1000), [Ack(998, WINDOW)], "no gap so far");
    path.burst(0, 2000, 1);
    let duplicate = with_sack(1000, &[(2000, 3000)]);
    assert_eq!(path.give(1, Side::Mobile, duplicate), [Made(1000, WINDOW), Ack(1000, WINDOW)]);
    path.burst(3, 1000, 1);
    assert_eq!(path.ack(4, 3000), [Ack(3000, WINDOW)]);
    for n in 3..7 {
        path.burst(5, 1000 * n, 1);
        let whole = n < 5;
        let told = 1000 * (n + 1) - if whole { 0 } else { 2 };
        assert_eq!(path.ack(6, 1000 * (n + 1)), [Ack(told, WINDOW)]);
    }
    path.event(7, Down);
    assert_eq!(path.event(8, Up), [Made(6999, 0), Made(7000, WINDOW)]);
}

/// ATR-7: data that came twice show that its sender has waited too long; they are acknowledged whole
/// at once, and what tells of them passes as it came.
#[test]
fn data_that_came_twice_end_the_withholding() {
    let mut path = path();
    path.burst(0, 0, 1);
    path.ack(0, 1000);
    path.data(50, 998, 2);
    let twice = path.give(51, Side::Mobile, with_sack(1000, &[(998, 1000)]));
    assert_eq!(twice, [Made(1000, WINDOW), Ack(1000, WINDOW)]);
    assert_eq!(path.last[1].options.sack.as_slice().len(), 1);
    assert_eq!(path.wait(900), []);
}

/// ATR-1: the end of a stream is acknowledged whole.
#[test]
fn the_end_of_the_stream_is_acknowledged_at_once() {
    let mut path = path();
    path.burst(0, 0, 1);
    path.give(0, Side::Fixed, Segment { flags: Flags::FIN.with(Flags::ACK), ..data(1000, 500) });
    assert_eq!(path.ack(1, 1501), [Ack(1501, WINDOW)]);
    path.event(2, Down);
    assert_eq!(path.event(3, Up), []);
}

#[test]
fn a_changed_window_passes_with_the_number_that_was_forwarded() {
    let mut path = path();
    path.burst(0, 0, 1);
    path.ack(0, 1000);
    let update = Segment { window: 700, ..acking(1000) };
    assert_eq!(path.give(1, Side::Mobile, update), [Ack(998, 700)]);
    assert_eq!(path.wait(900), [(100, Made(1000, 700))]);
}

proptest! {
    /// ATR-1, ATR-3: numbers never go back, none is beyond what the mobile has acknowledged, and in
    /// the end all is told.
    #[test]
    fn numbers_never_go_back(
        steps in prop::collection::vec((0u8..8, 0u32..3000, 0u64..150), 1..200),
    ) {
        let mut path = path();
        let (mut now, mut acked, mut told, mut sent) = (0, 0u32, 0u32, 0u32);
        for (kind, bytes, ms) in steps {
            now += ms;
            let mut outputs: Vec<Out> = path.wait(now).into_iter().map(|(_, out)| out).collect();
            outputs.extend(match kind {
                0..=3 => {
                    sent += bytes;
                    acked += bytes;
                    let mut all = path.data(now, sent - bytes, bytes);
                    all.extend(path.ack(now, acked));
                    all
                }
                4 => {
                    sent = sent.max(acked + 2000);
                    path.data(now, acked + 1000, 1000);
                    path.give(now, Side::Mobile, with_sack(acked, &[(acked + 1000, acked + 2000)]))
                }
                5 => path.event(now, Down),
                6 => path.event(now, Up),
                _ => path.give(now, Side::Mobile, Segment { len: 10, ..acking(acked) }),
            });
            for out in outputs {
                if let Ack(ack, _) | Made(ack, _) = out {
                    prop_assert!(ack >= told && ack <= acked, "{told} {ack} {acked}");
                    told = ack;
                }
            }
        }
        path.event(now, Down);
        if let Some(Made(ack, window)) = path.event(now, Up).last() {
            prop_assert_eq!((*ack, *window), (acked, WINDOW));
        }
    }
}
