//! Both agents under random schedules.

use alloc::boxed::Box;

use lasthop_units::{Bytes, Seed, Stream};
use proptest::prelude::*;

use super::super::{Config, Eviction, Memory, Router};
use super::line::{BASE_AT, GARBAGE, Item, Line, ROUTER_AT, WIRE, payload};
use super::*;

const SEGMENTS: u32 = 200;

fn configs(dice: &mut Stream) -> (Config, Config) {
    let mut memory = || Memory {
        segments: 16 + dice.below(100) as usize,
        bytes: if dice.chance(0.3) { Bytes::new(dice.below(5000)) } else { Bytes::from_mib(64) },
        eviction: [Eviction::Lowest, Eviction::Newest][dice.below(2) as usize],
        ..Memory::default()
    };
    let (at_base, at_router) = (memory(), memory());
    let base = Config {
        memory: at_base,
        timers: dice.chance(0.5),
        heed_backlog: dice.chance(0.5),
        ..Config::default()
    };
    let router = Config {
        memory: at_router,
        timers: dice.chance(0.5),
        go_back_n: dice.below(2) == 1,
        dupacks: 1 + dice.below(3) as u32,
        tries: 1 + dice.below(10) as u32,
        partial_acks: dice.chance(0.5),
        gaps: 1 + dice.below(32) as usize,
        snacks: 1 + dice.below(3) as u32,
        replay: dice.below(5) as u32,
        detect_lost_retransmissions: dice.chance(0.5),
        ..Config::default()
    };
    (base, router)
}

/// A header of the connection that nobody meant, or a message.
fn garbage(dice: &mut Stream, from: Side) -> Item {
    let near = |dice: &mut Stream| match dice.chance(0.7) {
        true => seq(dice.below(u64::from(SEGMENTS)) as u32) + dice.below(200) as u32,
        false => Seq(dice.next_u64() as u32),
    };
    if dice.chance(0.3) {
        let start = near(dice);
        let mut ranges = Ranges::default();
        ranges.push(start, start + 1 + dice.below(5000) as u32);
        let message = match from {
            Side::Mobile => Message::Snack { connection: connection(), missing: ranges },
            Side::Fixed => Message::Congestion { connection: connection(), lost: ranges },
        };
        let mut bytes = [0; Message::MAX_LEN];
        let len = message.emit(&mut bytes).unwrap();
        if dice.chance(0.3) {
            dice.fill(&mut bytes[2..len]);
        }
        return Item::Message(bytes[..len].to_vec());
    }
    let segment = Segment {
        seq: near(dice),
        ack: near(dice),
        flags: Flags::from_bits(dice.next_u64() as u8),
        window: [0, 500, 600][dice.below(3) as usize],
        len: dice.below(3) as u32 * MSS,
        ..Segment::default()
    };
    Item::Packet(Packet { bytes: GARBAGE.into(), ..packet(from, segment) })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// OBB-8, OBM-12: under losses, duplicates and garbage, also of the agents' own messages, what
    /// arrives is what was sent, caches stay within their bounds, and a sender with a timer always
    /// comes to its end.
    #[test]
    fn a_sender_with_a_timer_always_comes_to_its_end(run: u64) {
        let mut dice = Seed::from_u64(run).stream("schedule");
        let (base, router) = configs(&mut dice);
        let loss = [0.02, 0.3, 0.3].map(|most| dice.uniform() * most);
        let noise = if dice.chance(0.5) { 0.02 } else { 0.0 };
        let mut fates = Seed::from_u64(run).stream("fates");
        let fate = move |link: usize, _: Side, _: &Item| match fates.chance(loss[link]) {
            true => 0,
            false => 1 + usize::from(link != WIRE && fates.chance(0.02)),
        };
        let mut line = Line::new(base, router, Box::new(fate));
        line.start(SEGMENTS);
        while !line.sender.as_ref().unwrap().done() {
            prop_assert!(line.step(Time::from_secs(3000)), "nothing happens any more");
            if dice.chance(noise) {
                let from = [Side::Fixed, Side::Mobile][dice.below(2) as usize];
                let place = [BASE_AT, ROUTER_AT][dice.below(2) as usize];
                let item = garbage(&mut dice, from);
                line.deliver(place, from, item);
            }
            prop_assert!(line.base.cached() <= base.memory.segments);
            prop_assert!(line.router.cached() <= router.memory.segments);
            prop_assert!(line.router.gaps() <= router.gaps);
        }
        let sent: Vec<u8> = (0..SEGMENTS).flat_map(|n| payload(n).to_vec()).collect();
        prop_assert!(line.receiver.stream == sent);
    }
}

/// Without losses the agents add nothing and hold nothing back.
#[test]
fn a_clean_path_sees_no_message_and_no_copy() {
    let fate = Box::new(|_: usize, _: Side, _: &Item| 1);
    let mut line = Line::new(Config::default(), Config::default(), fate);
    line.start(SEGMENTS);
    line.run_until(Time::from_secs(60));
    assert!(line.sender.as_ref().unwrap().done());
    assert_eq!(line.trace.len(), 6 * SEGMENTS as usize);
    assert_eq!((line.base.cached(), line.router.cached()), (0, 0));
}

/// OBB-9, OBM-6: with lost retransmissions on the first hop, both ways of noticing them bring
/// everything over, the order rule sooner.
#[test]
fn lost_retransmissions_are_noticed_either_way() {
    let took = |detect_lost_retransmissions| {
        let router = Config { detect_lost_retransmissions, ..Config::default() };
        let runs = (0..40).map(|run| {
            let mut fates = Seed::from_u64(run).stream("fates");
            let fate = move |link: usize, towards: Side, _: &Item| {
                usize::from(link != 1 || towards == Side::Fixed || !fates.chance(0.15))
            };
            let mut line = Line::new(Config::default(), router, Box::new(fate));
            line.start(SEGMENTS);
            while !line.sender.as_ref().unwrap().done() {
                assert!(line.step(Time::from_secs(3000)));
            }
            line.now.as_secs_f64()
        });
        runs.sum::<f64>() / 40.0
    };
    let (by_timeout, by_order) = (took(false), took(true));
    assert!(by_order < by_timeout, "{by_order} s against {by_timeout} s");
}

proptest! {
    /// Whatever comes, everything from the fixed side passes at once and in order; the rest is
    /// copies.
    #[test]
    fn nothing_from_the_fixed_side_is_held_back(run: u64) {
        let mut dice = Seed::from_u64(run).stream("noise");
        let mut router = Router::new(Config::default()).unwrap();
        for step in 0..300 {
            let from = [Side::Fixed, Side::Mobile][dice.below(2) as usize];
            match garbage(&mut dice, from) {
                Item::Message(bytes) => {
                    if let Ok(message) = Message::parse(&bytes) {
                        router.handle_message(ms(step), from, &message);
                    }
                    drain(&mut router);
                }
                Item::Packet(packet) => {
                    let out = put(&mut router, ms(step), from, packet.clone());
                    let passed = Output::Packet { towards: Side::Mobile, packet };
                    prop_assert!(from == Side::Mobile || out.last() == Some(&passed));
                }
            }
            if router.next_timeout().is_some_and(|due| due <= ms(step)) {
                router.handle_timeout(ms(step));
                drain(&mut router);
            }
        }
    }
}
