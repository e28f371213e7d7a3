//! The rule, case by case and over random sequences.

use std::vec::Vec;

use lasthop_wire::tcp::Flags;
use proptest::prelude::*;

use super::*;

const SCALE: u8 = 7;
/// The fixed host's first byte; numbers wrap soon after.
const BASE: u32 = u32::MAX - 5000;

fn held() -> Slot {
    let control =
        Control { live: true, hold: true, window_scale: Some(SCALE), ..Control::default() };
    Slot { control, ..Slot::default() }
}

fn pure(offset: u32) -> Segment {
    let (ack, timestamps) = (BASE.wrapping_add(offset), Some((500, 600)));
    Segment { seq: 100, ack, window: 1000, flags: Flags::ACK, timestamps, ..Segment::default() }
}

fn injected() -> Segment {
    Segment { flags: Flags::ACK, urgent: INJECTED, timestamps: Some((0, 0)), ..Segment::default() }
}

/// A held connection whose handshake is over, told so many bytes.
fn told(offset: u32, echo: u32) -> Slot {
    let mut slot = held();
    assert_eq!(filter(&mut slot, &pure(0), 0), Verdict::Pass);
    slot.told = Told { offset, echo };
    slot
}

fn rewritten(verdict: Verdict) -> Segment {
    match verdict {
        Verdict::Rewrite(segment) => segment,
        other => panic!("{other:?}"),
    }
}

#[test]
fn data_acknowledge_what_is_told_and_the_window_ends_where_it_did() {
    let mut slot = told(1000, 77);
    let data = Segment { payload: 10, sack: true, ..pure(9000) };
    let out = rewritten(filter(&mut slot, &data, 0));
    let expected = Segment {
        ack: BASE.wrapping_add(1000),
        window: 1000 + (8000 >> SCALE),
        timestamps: Some((500, 77)),
        sack: false,
        ..data
    };
    assert_eq!(out, expected);
    let widest = Segment { window: u16::MAX, ..data };
    assert_eq!(rewritten(filter(&mut slot, &widest, 0)).window, u16::MAX);
    assert_eq!((slot.seen.lowered, slot.seen.next_seq), (2, 110));
}

#[test]
fn what_is_told_passes_as_it_is() {
    let mut slot = told(1000, 77);
    assert_eq!(filter(&mut slot, &pure(1000), 0), Verdict::Pass);
    assert_eq!(filter(&mut slot, &Segment { sack: true, ..pure(1000) }, 0), Verdict::Pass);
}

#[test]
fn a_lower_acknowledgement_is_sent_once_and_never_with_false_holes() {
    let mut slot = told(1000, 0);
    assert_eq!(filter(&mut slot, &Segment { sack: true, ..pure(2000) }, 0), Verdict::Drop);
    let out = rewritten(filter(&mut slot, &pure(3000), 0));
    assert_eq!((out.ack, out.timestamps), (BASE.wrapping_add(1000), Some((500, 600))));
    assert_eq!(filter(&mut slot, &pure(4000), 0), Verdict::Drop);
    assert_eq!((slot.seen.lowered, slot.seen.swallowed), (1, 2));
}

#[test]
fn who_asks_whether_anybody_is_there_is_answered_from_time_to_time() {
    let mut slot = told(1000, 0);
    let mut passes = |offset, ms: u64| {
        matches!(filter(&mut slot, &pure(offset), ms * 1_000_000), Verdict::Rewrite(_))
    };
    let at = [(3000, 1000), (3000, 1001), (3000, 1100), (3000, 1201), (4000, 1500), (4000, 1501)];
    let passed: Vec<bool> = at.into_iter().map(|(offset, ms)| passes(offset, ms)).collect();
    assert_eq!(passed, [true, true, false, true, false, true]);
}

#[test]
fn the_bases_own_acknowledgement_is_filled_in() {
    let mut slot = told(0, 0);
    assert_eq!(filter(&mut slot, &injected(), 0), Verdict::Drop, "nothing new");
    filter(&mut slot, &Segment { payload: 50, ..pure(8000) }, 0);
    slot.told = Told { offset: 4000, echo: 590 };
    let out = rewritten(filter(&mut slot, &injected(), 0));
    let expected = Segment {
        seq: 150,
        ack: BASE.wrapping_add(4000),
        window: ((4000 + (1000 << SCALE)) >> SCALE) as u16,
        flags: Flags::ACK,
        timestamps: Some((500, 590)),
        ..Segment::default()
    };
    assert_eq!(out, expected);
    assert_eq!(filter(&mut slot, &injected(), 0), Verdict::Drop, "once is enough");
    slot.told.offset = 3000;
    assert_eq!(filter(&mut slot, &injected(), 0), Verdict::Drop, "it does not go back");
    slot.control.hold = false;
    assert_eq!(rewritten(filter(&mut slot, &injected(), 0)).ack, BASE.wrapping_add(8000));
    assert_eq!((slot.seen.injected, slot.seen.swallowed), (2, 3));
}

#[test]
fn an_acknowledgement_before_the_kernels_first_is_dropped() {
    let mut slot = held();
    assert_eq!(filter(&mut slot, &injected(), 0), Verdict::Drop);
    assert!(!slot.seen.known.base);
}

#[test]
fn a_connection_ends_only_with_leave() {
    let mut slot = told(0, 0);
    for flags in [Flags::FIN.with(Flags::ACK), Flags::RST, Flags::RST.with(Flags::ACK)] {
        let end = Segment { flags, ..pure(0) };
        slot.control.may_end = false;
        assert_eq!(filter(&mut slot, &end, 0), Verdict::Drop, "{flags:?}");
        slot.control.may_end = true;
        assert_eq!(filter(&mut slot, &end, 0), Verdict::Pass, "{flags:?}");
    }
    assert_eq!((slot.seen.ended, slot.seen.next_seq), (3, 101));
    slot.control.mute = true;
    assert_eq!(filter(&mut slot, &pure(0), 0), Verdict::Drop);
    slot.control.live = false;
    assert_eq!(filter(&mut slot, &pure(0), 0), Verdict::Pass);
    let before = slot;
    slot.control = held().control;
    let before = Slot { control: slot.control, ..before };
    assert_eq!(filter(&mut slot, &Segment { flags: Flags::SYN, ..pure(9) }, 0), Verdict::Pass);
    assert_eq!(slot, before);
}

#[test]
fn what_was_let_out_before_it_was_held_is_not_taken_back() {
    let mut slot = told(1000, 0);
    slot.control.hold = false;
    assert_eq!(filter(&mut slot, &pure(5000), 0), Verdict::Pass);
    slot.control.hold = true;
    assert_eq!(filter(&mut slot, &pure(5000), 0), Verdict::Pass);
    let data = Segment { payload: 1, ..pure(6000) };
    assert_eq!(rewritten(filter(&mut slot, &data, 0)).ack, BASE.wrapping_add(5000));
}

/// Something that happens to a held connection.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// So many bytes come from the fixed host, and are read.
    Receive(u16),
    /// The kernel sends so many; with a SACK option or not.
    Send(u16, bool),
    /// It sends a segment again, or asks.
    Probe,
    /// The mobile confirms this share, in 255ths, of what it lacks.
    Tell(u8),
    Inject,
    Fin,
    /// It is held from here on, or not.
    Hold(bool),
    /// Milliseconds.
    Wait(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        any::<u16>().prop_map(Step::Receive),
        (prop_oneof![Just(0), any::<u16>()], any::<bool>())
            .prop_map(|(n, sack)| Step::Send(n, sack)),
        Just(Step::Probe),
        any::<u8>().prop_map(Step::Tell),
        Just(Step::Inject),
        Just(Step::Fin),
        prop::bool::weighted(0.8).prop_map(Step::Hold),
        any::<u8>().prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..200)
}

#[test]
fn the_handshake_ends_when_the_base_says_so() {
    let mut slot = held();
    slot.control.opening = true;
    assert_eq!(filter(&mut slot, &pure(0), 0), Verdict::Drop);
    // Data end it as well.
    let data = Segment { payload: 10, ..pure(0) };
    assert_eq!(filter(&mut slot.clone(), &data, 0), Verdict::Pass);
    slot.control.opening = false;
    assert_eq!(rewritten(filter(&mut slot, &injected(), 0)).ack, BASE);
    assert_eq!(filter(&mut slot, &injected(), 0), Verdict::Drop);
}

proptest! {
    #[test]
    fn words_are_what_they_were_made_of(words: [u64; WORDS]) {
        let slot = Slot::of_words(&words);
        prop_assert_eq!(Slot::of_words(&slot.words()), slot);
    }

    /// Nothing beyond what is told is acknowledged, and neither number nor window's edge goes back.
    #[test]
    fn acknowledgements_stay_within_what_is_told_and_advance(
        steps in steps(), base: u32, first_seq: u32, scale in 0..15_u8, room in 1000..60_000_u32,
    ) {
        let mut slot = held();
        slot.control.window_scale = Some(scale);
        // What the kernel has received and offered, in bytes since the first; what it has sent.
        let (mut received, mut offered, mut next) = (0_u64, 0_u64, first_seq);
        let (mut told, mut now_ns) = (0_u64, 0);
        let (mut acked, mut edge) = (0_u64, 0_u64);
        for step in [Step::Send(0, false)].into_iter().chain(steps) {
            // As Linux: the edge never goes back, and what does not fit the scale is rounded up.
            offered = offered.max(received + u64::from(room << scale) / 2);
            let window = (offered - received).div_ceil(1 << scale);
            let kernels = Segment {
                seq: next,
                ack: base.wrapping_add(received as u32),
                window: window as u16,
                flags: Flags::ACK,
                ..Segment::default()
            };
            let segment = match step {
                Step::Receive(n) => {
                    received += u64::from(n).min(offered - received);
                    continue;
                }
                Step::Tell(share) => {
                    told += (received - told) * u64::from(share) / 255;
                    slot.told = Told { offset: told as u32, echo: 0 };
                    continue;
                }
                Step::Hold(hold) => {
                    slot.control.hold = hold;
                    continue;
                }
                Step::Wait(ms) => {
                    now_ns += u64::from(ms) * 1_000_000;
                    continue;
                }
                Step::Send(n, sack) => {
                    next = next.wrapping_add(n.into());
                    Segment { payload: n.into(), sack, ..kernels }
                }
                Step::Probe => Segment { seq: next.wrapping_sub(1), ..kernels },
                Step::Inject => injected(),
                Step::Fin => Segment { flags: Flags::ACK.with(Flags::FIN), ..kernels },
            };
            if !matches!(step, Step::Inject) {
                offered = received + (window << scale);
            }
            let out = match filter(&mut slot, &segment, now_ns) {
                Verdict::Pass => segment,
                Verdict::Drop => continue,
                Verdict::Rewrite(out) => out,
            };
            prop_assert!(!out.flags.contains(Flags::FIN));
            let ack = u64::from(out.ack.wrapping_sub(base).wrapping_sub(acked as u32)) + acked;
            let most = if slot.control.hold { told.max(acked) } else { received };
            prop_assert!(ack <= most, "{step:?}: {ack} is acknowledged of {most}");
            let is_rewritten = out != segment;
            prop_assert!(!(is_rewritten && out.sack));
            let new_edge = ack + (u64::from(out.window) << scale);
            prop_assert!(new_edge + (1 << scale) > edge, "{step:?}: from {edge} to {new_edge}");
            (acked, edge) = (ack, edge.max(new_edge));
            if matches!(step, Step::Inject) {
                prop_assert_eq!((out.seq, out.urgent), (next, 0));
            }
        }
    }
}
