//! Duplicate acknowledgements that wait for the link's own repair.

use proptest::prelude::*;

use super::*;

fn delayed() -> Path<DelayedDupacks<Fake>> {
    let mut path = Path::new(DelayedDupacks::new(DelayedDupacksConfig::default()));
    path.burst(0, 0, 1);
    path.ack(0, 1000);
    path.burst(0, 2000, 6);
    path
}

fn duplicate(to: u32) -> Segment {
    with_sack(1000, &[(2000, to)])
}

/// DDA-2: the first two duplicates of a gap pass at once, the third and later ones wait; DDA-3: after
/// the delay all of them go, with what they said.
#[test]
fn the_third_duplicate_and_later_ones_wait() {
    let mut path = delayed();
    assert_eq!(path.give(1, Side::Mobile, duplicate(3000)), [Ack(1000, WINDOW)]);
    assert_eq!(path.give(2, Side::Mobile, duplicate(4000)), [Ack(1000, WINDOW)]);
    assert_eq!(path.give(3, Side::Mobile, duplicate(5000)), []);
    assert_eq!(path.give(50, Side::Mobile, duplicate(6000)), []);
    assert_eq!(path.agent.flows.iter().next().unwrap().1.state.packets.len(), 2);
    assert_eq!(path.wait(102), []);
    assert_eq!(path.wait(500), [(103, Ack(1000, WINDOW)); 2]);
    assert_eq!(path.last[1].options.sack.as_slice(), [(byte(2000), byte(6000))]);
    assert_eq!(path.give(501, Side::Mobile, duplicate(7000)), [Ack(1000, WINDOW)]);
    let stats = *path.agent.stats();
    assert_eq!((stats.held, stats.released, stats.discarded), (2, 2, 0));
}

/// DDA-3: what fills the gap in time has them thrown away, and the next gap begins anew.
#[test]
fn duplicates_that_wait_are_thrown_away_when_the_gap_is_filled() {
    let mut path = delayed();
    (1..5).for_each(|n| {
        path.give(n, Side::Mobile, acking(1000));
    });
    path.burst(50, 1000, 1);
    assert_eq!(path.ack(51, 8000), [Ack(8000, WINDOW)]);
    assert_eq!(path.wait(900), []);
    assert_eq!(path.agent.stats().discarded, 2);
    path.burst(901, 9000, 3);
    let passes = (0..3).map(|n| path.ack(902 + n, 8000).len()).collect::<Vec<_>>();
    assert_eq!(passes, [1, 1, 0]);
}

/// DDA-2: what is no duplicate passes: data, other windows, data that came twice, and what repeats a
/// number when nothing is outstanding.
#[test]
fn what_is_no_duplicate_passes() {
    let mut path = delayed();
    (0..4).for_each(|_| {
        path.give(1, Side::Mobile, acking(1000));
    });
    let passes = [
        Segment { len: 5, ..acking(1000) },
        Segment { window: 700, ..acking(1000) },
        with_sack(1000, &[(0, 1000)]),
        acking(900),
    ];
    for segment in passes {
        assert_eq!(path.give(2, Side::Mobile, segment).len(), 1, "{segment:?}");
    }
    let mut idle = Path::new(DelayedDupacks::new(DelayedDupacksConfig::default()));
    idle.burst(0, 0, 1);
    (0..9).for_each(|n| assert_eq!(idle.ack(n, 1000), [Ack(1000, WINDOW)]));
}

#[test]
fn a_mobile_cannot_make_more_wait_than_is_kept() {
    let mut path = delayed();
    (0..1000).for_each(|_| {
        path.give(1, Side::Mobile, duplicate(3000));
    });
    assert_eq!(path.agent.flows.iter().next().unwrap().1.state.packets.len(), 255);
    assert_eq!(path.wait(900).len(), 255);
}

const ECN: (Flags, Flags) = (Flags::ECE.with(Flags::CWR), Flags::ECE);

fn coherent(flags: (Flags, Flags)) -> Path<CoherentDupacks<Fake>> {
    let mut path = Path::new(CoherentDupacks::new(CoherentConfig::default()));
    path.open(Options { sack_permitted: true, ..Options::default() }, flags);
    path.burst(30, 0, 1);
    path.ack(31, 1000);
    path
}

/// CC-5: duplicates of a gap between unmarked neighbours wait, the first too, until it is filled or
/// the time is over.
#[test]
fn duplicates_of_an_unmarked_gap_wait() {
    let mut path = coherent(ECN);
    path.burst(32, 2000, 2);
    assert_eq!(path.give(33, Side::Mobile, duplicate(3000)), []);
    assert_eq!(path.give(34, Side::Mobile, duplicate(4000)), []);
    assert_eq!(path.wait(900), [(133, Ack(1000, WINDOW)); 2]);
    path.burst(901, 1000, 1);
    assert_eq!(path.ack(902, 4000), [Ack(4000, WINDOW)]);
    path.burst(903, 5000, 1);
    assert_eq!(path.give(904, Side::Mobile, with_sack(4000, &[(5000, 6000)])), []);
    path.burst(905, 4000, 1);
    assert_eq!(path.ack(906, 6000), [Ack(6000, WINDOW)]);
    assert_eq!((path.wait(2000).len(), path.agent.stats().discarded), (0, 1));
}

/// CC-3: a marked neighbour, before the gap or one or two segments behind it, makes it congestion's:
/// its duplicates pass at once, and those that wait go with them.
#[test]
fn duplicates_of_a_marked_gap_pass() {
    let after = |marked: u32| {
        let mut path = coherent(ECN);
        for from in [2000, 3000, 4000] {
            if from == marked {
                path.marked(32, from, 1000)
            } else {
                path.data(32, from, 1000)
            };
        }
        path.give(33, Side::Mobile, duplicate(5000)).len()
    };
    assert_eq!([after(2000), after(3000), after(4000)], [1, 1, 0]);
    let mut path = coherent(ECN);
    path.marked(32, 1000, 1000);
    path.ack(33, 2000);
    path.burst(34, 3000, 1);
    assert_eq!(path.give(35, Side::Mobile, with_sack(2000, &[(3000, 4000)])).len(), 1);

    let mut late = coherent(ECN);
    late.burst(32, 2000, 1);
    assert_eq!(late.give(33, Side::Mobile, duplicate(3000)), []);
    late.marked(34, 3000, 1000);
    assert_eq!(late.give(35, Side::Mobile, duplicate(4000)), [Ack(1000, WINDOW); 2]);
}

/// CC-2, CC-5: without ECN nobody could mark, and nothing waits.
#[test]
fn connections_without_ecn_are_left_alone() {
    let none = Flags::empty();
    let both = Flags::ECE.with(Flags::CWR);
    for flags in [(none, none), (both, none), (none, Flags::ECE), (both, both)] {
        let mut path = coherent(flags);
        path.burst(32, 2000, 1);
        assert_eq!(path.give(33, Side::Mobile, duplicate(3000)).len(), 1, "{flags:?}");
    }
}

/// CC-2: a connection whose beginning was missed has ECN as soon as a mark shows it.
#[test]
fn a_mark_shows_that_there_is_ecn() {
    let mut path = Path::new(CoherentDupacks::new(CoherentConfig::default()));
    path.burst(0, 0, 1);
    path.ack(0, 1000);
    path.burst(1, 2000, 2);
    assert_eq!(path.give(2, Side::Mobile, duplicate(3000)).len(), 1);
    path.marked(3, 4000, 1000);
    path.burst(4, 1000, 1);
    path.ack(5, 5000);
    path.burst(6, 5000, 1);
    path.ack(7, 6000);
    path.burst(8, 7000, 1);
    assert_eq!(path.give(9, Side::Mobile, with_sack(6000, &[(7000, 8000)])), []);
}

/// CC-5: a stack may tell of a gap in the acknowledgement of what came before it: that passes without
/// its blocks, and they wait like a duplicate.
#[test]
fn a_new_acknowledgement_does_not_tell_of_a_gap_that_waits() {
    let mut path = coherent(ECN);
    path.burst(32, 1000, 1);
    path.burst(32, 3000, 1);
    let told = with_sack(2000, &[(3000, 4000)]);
    assert_eq!(path.give(33, Side::Mobile, told), [Ack(2000, WINDOW)]);
    assert!(path.last[0].options.sack.is_empty());
    assert_eq!(path.wait(900), [(133, Ack(2000, WINDOW))]);
    assert_eq!(path.last[0].options.sack.as_slice().len(), 1);
    assert_eq!(path.agent.stats().hidden, 1);
}

proptest! {
    /// DDA-3, CC-5: whatever comes, every acknowledgement that was kept back is released or thrown
    /// away in the end, numbers never go back, and nothing but duplicates is ever missing.
    #[test]
    fn nothing_but_duplicates_is_kept_back(
        steps in prop::collection::vec((0u8..6, 1u32..4, any::<bool>(), 0u64..60), 1..150),
        coheres: bool,
    ) {
        let (mut a, mut b) = (coherent(ECN), delayed());
        b.ack(0, 1000);
        let (mut now, mut acked, mut sent, mut told) = (1000, 1000u32, 8000u32, 1000u32);
        for (kind, n, mark, ms) in steps {
            now += ms;
            let segment = match kind {
                0 | 1 => {
                    sent += 1000 * n;
                    let from = sent - 1000 * n;
                    if coheres && mark { a.marked(now, from, 1000) } else { a.data(now, from, 1000) };
                    b.data(now, from, 1000);
                    continue;
                }
                2 => {
                    acked = (acked + 1000 * n).min(sent);
                    acking(acked)
                }
                3 if acked + 2000 <= sent => with_sack(acked, &[(acked + 1000, acked + 2000)]),
                _ => acking(acked),
            };
            let mut outputs: Vec<Out> = Vec::new();
            if coheres {
                outputs.extend(a.wait(now).into_iter().map(|(_, out)| out));
                outputs.extend(a.give(now, Side::Mobile, segment));
            } else {
                outputs.extend(b.wait(now).into_iter().map(|(_, out)| out));
                outputs.extend(b.give(now, Side::Mobile, segment));
            }
            let news = acked > told;
            for out in outputs {
                let Ack(ack, WINDOW) = out else { panic!("{out:?}") };
                prop_assert!(ack >= told && ack <= acked);
                told = ack;
            }
            prop_assert!(!news || told == acked, "a new number passes at once");
        }
        a.wait(now + 1000);
        b.wait(now + 1000);
        for stats in [*a.agent.stats(), *b.agent.stats()] {
            prop_assert_eq!(stats.held, stats.released + stats.discarded);
        }
    }
}
