//! The paper's timing diagram (figure 6) as an exact sequence of packets.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;

use super::super::Config;
use super::line::{FIRST_HOP, Item, Line, SECOND_HOP, WIRE};
use super::*;

/// Segments 8 to 22, one each 12 ms, of which 12 to 15 are lost on `link` at first.
fn losing_12_to_15(link: usize) -> Line {
    let mut left: BTreeSet<u32> = (12..16).collect();
    let fate = move |on: usize, towards, item: &Item| match item {
        Item::Packet(packet) if on == link && towards == Side::Mobile => {
            usize::from(!left.remove(&number(packet.segment.unwrap().seq)))
        }
        _ => 1,
    };
    let mut line = Line::new(Config::default(), Config::default(), Box::new(fate));
    line.receiver_has(8);
    for n in 8..23 {
        line.run_until(ms(u64::from(n - 8) * 12));
        line.send(n);
    }
    line.run_until(ms(1000));
    line
}

impl Line {
    /// The mobile host has all segments before `n`, and time begins.
    fn receiver_has(&mut self, n: u32) {
        (0..n).for_each(|n| self.send(n));
        self.run_until(ms(1000));
        self.now = Time::ZERO;
        self.trace.clear();
    }
}

fn number(seq: Seq) -> u32 {
    seq.0.wrapping_sub(BASE.0) / MSS
}

fn label(item: &Item) -> String {
    let list = |name: &str, ranges: &Ranges| {
        let ranges = ranges.as_slice().iter();
        ranges.fold(String::from(name), |text, (start, end)| {
            format!("{text} {}-{}", number(*start), number(*end) - 1)
        })
    };
    match item {
        Item::Packet(packet) => match packet.segment.unwrap() {
            segment if segment.len > 0 => format!("{}", number(segment.seq)),
            segment => format!("ack {}", number(segment.ack)),
        },
        Item::Message(bytes) => match Message::parse(bytes).unwrap() {
            Message::Snack { missing, .. } => list("snack", &missing),
            Message::Congestion { lost, .. } => list("congestion", &lost),
            other => format!("{other:?}"),
        },
    }
}

/// What left for a link, in order.
fn seen(line: &Line, link: usize, towards: Side) -> Vec<String> {
    let all = line.trace.iter().filter(|(_, on, to, _)| (*on, *to) == (link, towards));
    all.map(|(_, _, _, item)| label(item)).collect()
}

fn times(line: &Line, link: usize, what: &str) -> Vec<Time> {
    let all = line.trace.iter().filter(|(_, on, _, item)| *on == link && label(item) == what);
    all.map(|(at, _, _, _)| *at).collect()
}

fn words(text: &str) -> Vec<String> {
    text.split(", ").map(String::from).collect()
}

/// OBM-1, OBB-3: figure 6. 12 to 15 are lost between base and router; 16 brings about one SNACK for
/// all four; the base sends them in one go; the mobile host's duplicates end at the router, and the
/// fixed host sees none.
#[test]
fn four_losses_on_the_first_hop_take_one_round_trip_of_it() {
    let line = losing_12_to_15(FIRST_HOP);
    assert_eq!(
        seen(&line, FIRST_HOP, Side::Mobile),
        words("8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 12, 13, 14, 15, 20, 21, 22")
    );
    assert_eq!(
        seen(&line, SECOND_HOP, Side::Mobile),
        words("8, 9, 10, 11, 16, 17, 18, 19, 12, 13, 14, 15, 20, 21, 22")
    );
    assert_eq!(
        seen(&line, SECOND_HOP, Side::Fixed),
        words(
            "ack 9, ack 10, ack 11, ack 12, ack 12, ack 12, ack 12, ack 12, \
             ack 13, ack 14, ack 15, ack 20, ack 21, ack 22, ack 23"
        )
    );
    assert_eq!(
        seen(&line, FIRST_HOP, Side::Fixed),
        words(
            "ack 9, ack 10, ack 11, ack 12, snack 12-15, \
             ack 13, ack 14, ack 15, ack 20, ack 21, ack 22, ack 23"
        )
    );
    let at_fixed = seen(&line, WIRE, Side::Fixed);
    assert!(at_fixed.windows(2).all(|two| two[0] != two[1]), "{at_fixed:?}");
    // 16 leaves at 96 ms and is at the router 70 ms later; what was lost goes on from there one
    // round trip of the first hop after that.
    assert_eq!(times(&line, FIRST_HOP, "snack 12-15"), [ms(166)]);
    for n in 12..16 {
        assert_eq!(times(&line, SECOND_HOP, &format!("{n}")), [ms(206)]);
    }
    assert_eq!(line.router.stats().suppressed, 4);
    assert_eq!(line.router.stats().retransmitted, 0);
}

/// OBB-4, OBM-7: the same four are lost on the wire. The base says so; the three duplicates that
/// the router has kept back until then are made good, and later ones pass.
#[test]
fn four_losses_on_the_wire_reach_the_fixed_host_as_duplicates() {
    let line = losing_12_to_15(WIRE);
    assert_eq!(times(&line, FIRST_HOP, "snack 12-15"), [ms(166)]);
    assert_eq!(times(&line, FIRST_HOP, "congestion 12-15"), [ms(186)]);
    // Of the duplicates for 16, 17, 18 and of that for 19, which comes later, and so on.
    let duplicates = &times(&line, FIRST_HOP, "ack 12")[1..];
    assert_eq!(duplicates, [206, 206, 206, 212, 224, 236, 248].map(ms));
    assert_eq!(line.base.stats().retransmitted, 0);
}

/// OBM-5: the same four are lost behind the router. It sends each again without a word to the base.
#[test]
fn losses_on_the_second_hop_are_repaired_by_the_router() {
    let line = losing_12_to_15(SECOND_HOP);
    assert_eq!(
        seen(&line, SECOND_HOP, Side::Mobile),
        words("8, 9, 10, 11, 12, 13, 14, 15, 16, 12, 17, 13, 18, 14, 19, 15, 20, 21, 22")
    );
    let at_fixed = seen(&line, WIRE, Side::Fixed);
    assert!(at_fixed.windows(2).all(|two| two[0] != two[1]), "{at_fixed:?}");
    assert_eq!(line.router.stats().snacks, 0);
}
