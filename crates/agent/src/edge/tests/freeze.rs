//! Freeze-TCP and the link-layer trigger method, for a TCP that knows of neither.

use LinkEvent::{Complete, Down, Imminent, Up};
use lasthop_units::LinkWatch;
use proptest::prelude::*;

use super::*;

const WARNING: LinkEvent = Imminent { lead: LEAD };

/// Whether a sender of each connection was sent a window of zero that is not the receiver's.
fn shut(path: &Path<Freeze<Fake>>) -> impl Iterator<Item = bool> + '_ {
    path.agent.flows.iter().map(|(_, flow)| flow.state.fixed || flow.state.mobile)
}

fn path(config: FreezeConfig) -> Path<Freeze<Fake>> {
    let mut path = Path::new(Freeze::new(config));
    path.burst(0, 0, 2);
    assert_eq!(path.ack(1, 2000), [Ack(2000, WINDOW)]);
    path
}

fn freeze() -> FreezeConfig {
    FreezeConfig::freeze(HopEnd::Mobile)
}

fn link_layer() -> FreezeConfig {
    FreezeConfig::link_layer(HopEnd::Mobile)
}

/// FRZ-1, FRZ-2, FRZ-3: a warning shuts the window, at the number that the mobile has acknowledged;
/// the link's return opens it with three copies that state the mobile's own window.
#[test]
fn a_warning_shuts_the_window_and_the_link_opens_it() {
    let mut path = path(freeze());
    assert_eq!(path.event(10, WARNING), [Made(2000, 0)]);
    assert!(shut(&path).next().unwrap() && path.agent.frozen);
    assert_eq!(path.event(110, Down), []);
    assert_eq!(path.event(5110, Up), [Made(2000, WINDOW); 3]);
    assert!(!shut(&path).next().unwrap());
    let (seq, ack) = (path.last[0].seq, path.last[0].ack);
    assert_eq!((seq, ack, path.last[0].flags), (Seq(MOBILE), byte(2000), Flags::ACK));
    assert_eq!((path.last[0].src_port, path.last[0].dst_port), (1, 80));
}

/// FRZ-1, FRZ-3: how many copies there are is set, within bounds.
#[test]
fn copies_are_counted() {
    let config = FreezeConfig { copies_before: 2, acks_after: 200, ..freeze() };
    let mut path = path(config);
    assert_eq!(path.event(10, WARNING), [Made(2000, 0); 2]);
    assert_eq!(path.event(20, Down), []);
    assert_eq!(path.event(30, Up), [Made(2000, WINDOW); 8]);
    let stats = *path.agent.stats();
    assert_eq!((stats.zero_windows, stats.opened, stats.freezes, stats.thaws), (2, 8, 1, 1));
}

/// FRZ-2, LLT-3: what was under way still comes and is acknowledged, with a window of zero.
#[test]
fn acknowledgements_while_frozen_advertise_a_zero_window() {
    let mut path = path(freeze());
    path.event(10, WARNING);
    assert_eq!(path.data(20, 2000, 1000), [Data(2000, 1000)]);
    assert_eq!(path.ack(21, 3000), [Ack(3000, 0)]);
    let upload = Segment { len: 400, ..acking(3000) };
    assert_eq!(path.give(22, Side::Mobile, upload), [Ack(3000, 0)]);
    path.event(110, Down);
    let opened = path.event(500, Up);
    assert_eq!(opened, [Made(3000, WINDOW); 3]);
    assert_eq!(path.last[0].seq, Seq(MOBILE + 400));
    assert_eq!(path.ack(501, 3000), [Ack(3000, WINDOW)]);
    assert_eq!(path.agent.stats().rewritten, 2);
}

/// LLT-6: the window at the end is the one that the mobile stated last.
#[test]
fn the_window_that_opens_is_the_mobiles_own() {
    let mut path = path(freeze());
    path.event(10, WARNING);
    path.give(11, Side::Mobile, Segment { window: 123, ..acking(2000) });
    path.event(12, Down);
    assert_eq!(path.event(20, Up), [Made(2000, 123); 3]);
}

/// FRZ-1: timestamps are the mobile's own, so that the fixed host takes the copies.
#[test]
fn copies_carry_the_mobiles_timestamps_and_blocks() {
    let mut path = path(freeze());
    path.burst(2, 3000, 2);
    let options = Options { timestamps: None, ..with_sack(2000, &[(3000, 5000)]).options };
    let ack = stamped(Segment { options, ..acking(2000) }, 1000, 555);
    path.give(3, Side::Mobile, ack);
    path.event(10, WARNING);
    assert_eq!(path.last[0].options.timestamps, Some(Timestamps { value: 1000, echo: 555 }));
    assert_eq!(path.last[0].options.sack.as_slice(), [(byte(3000), byte(5000))]);
}

/// FRZ-5, LLT-9: nothing came of a warning; after its lead and the bound the window opens.
#[test]
fn a_false_warning_ends() {
    let mut path = path(link_layer());
    path.event(1000, WARNING);
    assert_eq!(path.wait(2099), []);
    assert_eq!(path.wait(2100), [(2100, Made(2000, WINDOW)), (2100, ToMobile(MOBILE, 900))]);
    assert_eq!(path.agent.next_timeout(), None);
}

/// LLT-10: without a warning duplicates are all that is left.
#[test]
fn without_a_warning_there_are_duplicates_afterwards() {
    let mut freezes = path(freeze());
    assert_eq!(freezes.event(10, Down), []);
    assert_eq!(freezes.event(500, Up), [Made(2000, WINDOW); 3]);
    let mut triggered = path(FreezeConfig { sender: false, acks_unforeseen: 2, ..link_layer() });
    assert_eq!(triggered.event(10, Down), []);
    assert_eq!(triggered.event(500, Complete), [Made(2000, WINDOW); 2]);
}

/// LLT-5: the freeze lasts until packets find the mobile, not until the link is up.
#[test]
fn a_handoff_ends_with_its_completion() {
    let mut path = path(FreezeConfig { sender: false, ..link_layer() });
    assert_eq!(path.event(10, WARNING), [Made(2000, 0)]);
    assert_eq!(path.event(110, Down), []);
    assert_eq!(path.event(300, Up), []);
    assert_eq!(path.ack(301, 2000), [Ack(2000, 0)]);
    assert_eq!(path.event(600, Complete), [Made(2000, WINDOW)]);
}

/// LLT-5: what comes over the hop after the link is up shows that the handoff is complete.
#[test]
fn an_arrival_stands_for_an_event_that_is_lost() {
    let mut path = path(FreezeConfig { sender: false, ..link_layer() });
    path.event(10, WARNING);
    path.event(110, Down);
    path.event(300, Up);
    assert_eq!(path.data(400, 2000, 0), [Made(2000, WINDOW), Data(2000, 0)]);
    assert_eq!(path.event(600, Complete), []);
}

/// LLT-11: the mobile's own sending freezes with its receiver.
#[test]
fn the_mobiles_sending_freezes_too() {
    let mut path = path(link_layer());
    assert_eq!(path.event(10, WARNING), [Made(2000, 0), ToMobile(MOBILE, 0)]);
    assert_eq!((path.last[1].seq, path.last[1].src_port), (byte(2000), 80));
    path.give(11, Side::Mobile, Segment { len: 300, ..acking(2000) });
    path.data(12, 2000, 0);
    assert_eq!(path.last[0].window, 0);
    path.event(110, Down);
    assert_eq!(path.event(300, Complete), [Made(2000, WINDOW), ToMobile(MOBILE, 900)]);
    path.data(301, 2000, 0);
    assert_eq!(path.last[0].window, 900);
}

/// LLT-11: a cut that nothing has foretold stops the mobile, which would send into the void.
#[test]
fn an_unforeseen_cut_stops_the_mobiles_sending() {
    let mut path = path(link_layer());
    assert_eq!(path.event(10, Down), [ToMobile(MOBILE, 0)]);
    assert_eq!(path.event(300, Complete), [Made(2000, WINDOW), ToMobile(MOBILE, 900)]);
}

/// FRZ-2: the probes of a fixed host whose mobile cannot be reached are answered at the base, and its
/// data are not.
#[test]
fn probes_are_answered_for_a_host_behind_a_dead_hop() {
    let mut path = path(FreezeConfig::freeze(HopEnd::Base));
    path.event(10, WARNING);
    assert_eq!(path.data(20, 2000, 1000), [Data(2000, 1000)]);
    assert_eq!(path.data(30, 1999, 0), [Data(1999, 0)], "the mobile is still there");
    path.event(110, Down);
    let (behind, byte, again) =
        (path.data(400, 1999, 0), path.data(500, 2000, 1), path.data(900, 2000, 1000));
    assert_eq!(behind, [Made(2000, 0), Data(1999, 0)]);
    assert_eq!(byte, [Made(2000, 0), Data(2000, 1)]);
    assert_eq!(again, [Made(2000, 0), Data(2000, 1000)]);
    assert_eq!(path.data(1000, 3000, 1000), [Data(3000, 1000)]);
    assert_eq!(path.agent.stats().probes_answered, 3);
    path.event(5000, Up);
    assert_eq!(path.data(5001, 1999, 0), [Data(1999, 0)]);
}

/// LLT-11: so are those of the mobile at its own end.
#[test]
fn the_mobiles_probes_are_answered_at_its_end() {
    let mut path = path(link_layer());
    path.event(10, WARNING);
    path.event(110, Down);
    let probe = Segment { seq: Seq(MOBILE - 1), ..acking(2000) };
    assert_eq!(path.give(400, Side::Mobile, probe), [ToMobile(MOBILE, 0), Ack(2000, 0)]);
}

/// A connection whose beginning was missed freezes as well: the window field opens as it was.
#[test]
fn the_scale_need_not_be_known() {
    let mut path = path(freeze());
    path.event(10, WARNING);
    path.event(20, Down);
    assert_eq!(path.event(30, Up), [Made(2000, WINDOW); 3]);
    let mut scaled = Path::new(Freeze::new(freeze()));
    let options = Options { window_scale: Some(4), ..Options::default() };
    scaled.open(options, (Flags::empty(), Flags::empty()));
    scaled.event(30, WARNING);
    scaled.event(40, Down);
    assert_eq!(scaled.event(50, Up), [Made(0, WINDOW); 3]);
}

/// The window of a SYN is not scaled, that of an acknowledgement is.
#[test]
fn a_window_that_only_a_syn_has_stated_is_scaled_down() {
    let mut path = Path::new(Freeze::new(freeze()));
    let options = Options { window_scale: Some(4), ..Options::default() };
    path.give(0, Side::Fixed, Segment { flags: Flags::SYN, options, ..data(0, 0) });
    let flags = Flags::SYN.with(Flags::ACK);
    path.give(0, Side::Mobile, Segment { flags, options, window: 6400, ..acking(1) });
    path.event(10, WARNING);
    path.event(20, Down);
    assert_eq!(path.event(30, Up), [Made(1, 400); 3]);
}

#[test]
fn a_stream_that_has_ended_is_left_alone() {
    let mut path = path(link_layer());
    let fin = Segment { flags: Flags::FIN.with(Flags::ACK), ..data(2000, 0) };
    path.give(2, Side::Fixed, fin);
    path.ack(3, 2001);
    assert_eq!(path.event(10, WARNING), [ToMobile(MOBILE, 0)], "the mobile may go on sending");
    path.event(20, Down);
    assert_eq!(path.event(30, Complete), [ToMobile(MOBILE, 900)]);
}

#[test]
fn who_has_acknowledged_nothing_has_nothing_to_say() {
    let mut path = Path::new(Freeze::new(freeze()));
    path.burst(0, 0, 1);
    assert_eq!(path.event(10, WARNING), []);
    path.event(20, Down);
    assert_eq!(path.event(30, Up), []);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Data(u32, u32),
    Ack(u32, u16),
    Event(u8),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u32..30_000, 0u32..3000).prop_map(|(from, len)| Step::Data(from, len)),
        4 => (0u32..30_000, 0u16..3).prop_map(|(ack, window)| Step::Ack(ack, window)),
        2 => (0u8..4).prop_map(Step::Event),
        1 => (0u64..3000).prop_map(Step::Wait),
    ]
}

proptest! {
    /// FRZ-1, FRZ-3: whatever comes, nothing that is made acknowledges more than the mobile has, or
    /// less than it has last; while frozen no window passes but zero; and once it is over every
    /// window that was shut has been opened.
    #[test]
    fn no_schedule_leaves_a_window_shut(
        steps in prop::collection::vec(step(), 1..120),
        base: bool,
        sender: bool,
    ) {
        let place = if base { HopEnd::Base } else { HopEnd::Mobile };
        let config = FreezeConfig { sender, thaw: Default::default(), ..FreezeConfig::link_layer(place) };
        let mut path = Path::new(Freeze::new(config));
        let (mut now, mut acked, mut stated) = (0, None::<(u32, u16)>, None);
        for step in steps {
            // A segment that shows that the link is back comes after what is made on it.
            let before = acked;
            let outputs = match step {
                Step::Data(from, len) => path.data(now, from, len),
                Step::Ack(ack, window) => {
                    if acked.is_none_or(|(before, _)| ack >= before) {
                        acked = Some((ack, window));
                    }
                    path.give(now, Side::Mobile, Segment { window, ..acking(ack) })
                }
                Step::Event(n) => path.event(now, [WARNING, Down, Up, Complete][usize::from(n)]),
                Step::Wait(ms) => {
                    now += ms;
                    path.wait(now).into_iter().map(|(_, out)| out).collect()
                }
            };
            for out in outputs {
                match out {
                    Made(ack, window) => {
                        let told = [before, acked].iter().flatten().any(|(told, _)| *told == ack);
                        prop_assert!(told, "{ack} {before:?} {acked:?}");
                        stated = Some(window);
                    }
                    Ack(_, window) => stated = Some(window),
                    _ => {}
                }
                if path.agent.frozen && matches!(out, Made(..) | Ack(..)) {
                    prop_assert_eq!(stated, Some(0));
                }
            }
        }
        path.event(now, Down);
        path.event(now, Up);
        path.wait(now + 60_000);
        prop_assert!(!path.agent.frozen);
        prop_assert!(shut(&path).all(|shut| !shut));
        if let Some((ack, _)) = acked {
            prop_assert_eq!(path.ack(now + 60_000, ack), [Ack(ack, WINDOW)]);
        }
    }
}

/// A warning holds for its lead and the bound of both schemes, as in a mobile's own TCP.
#[test]
fn the_bounds_are_those_of_the_same_schemes_elsewhere() {
    assert_eq!((freeze().bound, link_layer().bound), (LinkWatch::BOUND, LinkWatch::BOUND));
}
