//! Windows that are divided by priority, for TCPs that know nothing of it.

use core::net::{IpAddr, Ipv4Addr};

use LinkEvent::{Complete, Up};
use proptest::prelude::*;

use super::*;
use crate::{Connection, Packet as _};

const MSS: u16 = 1000;

/// Downloads of several connections through one helper.
struct Windows {
    agent: ReceiverWindows<Fake>,
    /// Where each stands: what was sent, and what acknowledged.
    sent: [u32; 9],
    acked: [u32; 9],
}

fn options() -> Options {
    Options { mss: Some(MSS), window_scale: Some(2), ..Options::default() }
}

impl Windows {
    fn new(total: Total, flows: u16) -> Self {
        let config = WindowsConfig { total, ..WindowsConfig::default() };
        let mut it = Self { agent: ReceiverWindows::new(config), sent: [0; 9], acked: [0; 9] };
        (1..=flows).for_each(|port| it.open(0, port, 100, options()));
        it
    }

    fn give(&mut self, us: u64, port: u16, from: Side, segment: Segment) -> Option<Segment> {
        let now = Time::from_micros(us);
        while let Some(due) = self.agent.next_timeout().filter(|due| *due <= now) {
            self.agent.handle_timeout(due);
        }
        self.agent.handle_packet(now, from, Fake::segment(&connection(port), from, segment));
        match self.agent.poll_output() {
            Some(Output::Packet { packet, .. }) => packet.tcp().map(|tcp| tcp.segment),
            _ => None,
        }
    }

    /// The handshake of a download, which takes so long.
    fn open(&mut self, ms: u64, port: u16, trip: u64, options: Options) {
        let syn = Segment { seq: Seq(MOBILE - 1), flags: Flags::SYN, options, ..segment() };
        self.give(1000 * ms, port, Side::Mobile, syn);
        let flags = Flags::SYN.with(Flags::ACK);
        let answer = Segment { seq: Seq(FIRST) - 1, flags, options, ..segment() };
        self.give(1000 * (ms + trip), port, Side::Fixed, answer);
        self.give(1000 * (ms + trip), port, Side::Mobile, acking(0));
    }

    /// A segment comes.
    fn data(&mut self, us: u64, port: u16) {
        let at = &mut self.sent[usize::from(port)];
        *at += u32::from(MSS);
        let from = *at - u32::from(MSS);
        self.give(us, port, Side::Fixed, data(from, MSS.into()));
    }

    /// All that came is acknowledged; the window that the sender sees, in bytes.
    fn window(&mut self, us: u64, port: u16, own: u16) -> u64 {
        let ack = self.sent[usize::from(port)];
        self.acked[usize::from(port)] = ack;
        let segment = Segment { window: own, ..acking(ack) };
        u64::from(self.give(us, port, Side::Mobile, segment).unwrap().window) << 2
    }

    /// A segment comes and is acknowledged.
    fn step(&mut self, us: u64, port: u16) -> u64 {
        self.data(us, port);
        self.window(us, port, u16::MAX)
    }

    /// So many segments of each come in turn, one each `gap` microseconds; the windows at the end.
    fn run<const N: usize>(
        &mut self,
        us: &mut u64,
        rounds: u32,
        gap: u64,
        ports: [u16; N],
    ) -> [u64; N] {
        let mut windows = [0; N];
        for _ in 0..rounds {
            for (n, port) in ports.into_iter().enumerate() {
                *us += gap;
                windows[n] = self.step(*us, port);
            }
        }
        windows
    }

    fn set(&mut self, us: u64, port: u16, priority: u32) {
        assert!(self.agent.set_priority(Time::from_micros(us), &connection(port), Some(priority)));
    }
}

const AFTER_OPENING: u64 = 100_000;

/// RWC-1, RWC-2, RWC-5, RWC-6, RWC-12: a total of packets is divided by priority and advertised in
/// bytes: 32 among 1:1, then 2:1.
#[test]
fn a_total_is_divided_by_priority() {
    let mut it = Windows::new(Total::Packets(32), 2);
    let mut us = AFTER_OPENING;
    it.run(&mut us, 1, 100, [1, 2]);
    // What the first had before the second came is used up meanwhile.
    assert_eq!(it.run(&mut us, 400, 100, [1, 2]), [16_000, 16_000]);
    it.set(us, 1, 2);
    assert_eq!(it.run(&mut us, 40, 100, [1, 2]), [21_000, 11_000]);
    let shares: Vec<_> = it.agent.windows().collect();
    assert_eq!(shares, [(2, Some(21_000)), (1, Some(11_000))]);
    let total = it.agent.total().map(|total| total.get());
    assert_eq!((total, it.agent.divided()), (Some(32_000), 2));
    let now = Time::from_micros(us);
    it.agent.set_priority(now, &connection(1), None);
    assert_eq!(it.run(&mut us, 40, 100, [1, 2]), [16_000, 16_000]);
    assert!(!it.agent.set_priority(now, &connection(9), Some(1)));
}

/// RWC-9: what was granted is not taken back; the right edge stays until data has used it up.
#[test]
fn the_right_edge_stays_until_data_has_used_it_up() {
    let mut it = Windows::new(Total::Packets(32), 2);
    let mut us = AFTER_OPENING;
    it.run(&mut us, 400, 100, [1, 2]);
    it.set(us, 2, 3);
    let windows: Vec<u64> = (0..10).map(|n| it.step(us + n, 1)).collect();
    assert_eq!(windows[..9], [15_000, 14_000, 13_000, 12_000, 11_000, 10_000, 9_000, 8_000, 8_000]);
    assert_eq!(it.step(us + 20, 2), 24_000, "a wider one opens at once");
}

/// RWC-6: the window is never more than the mobile's own.
#[test]
fn the_mobiles_own_window_is_the_limit() {
    let mut it = Windows::new(Total::Packets(32), 1);
    it.data(AFTER_OPENING, 1);
    assert_eq!(it.window(AFTER_OPENING, 1, 50), 200);
    it.data(AFTER_OPENING + 1, 1);
    assert_eq!(it.window(AFTER_OPENING + 1, 1, 0), 0);
}

/// RWC-10: a flow that ends or is idle gives its share to the others.
#[test]
fn flows_without_data_take_no_part() {
    let mut it = Windows::new(Total::Packets(32), 2);
    let mut us = AFTER_OPENING;
    it.run(&mut us, 400, 100, [1, 2]);
    us += 1_500_000;
    assert_eq!(it.run(&mut us, 40, 100, [1]), [32_000]);
    assert_eq!(it.agent.divided(), 1);
    it.run(&mut us, 400, 100, [1, 2]);
    let fin = Segment { flags: Flags::FIN.with(Flags::ACK), ..data(it.sent[2], 0) };
    it.give(us, 2, Side::Fixed, fin);
    it.sent[2] += 1;
    it.window(us, 2, u16::MAX);
    us += 300_000;
    assert_eq!(it.run(&mut us, 40, 100, [1]), [32_000]);
}

/// RWC-12: a window whose scale is not known passes as it came.
#[test]
fn windows_of_unknown_scale_are_left_alone() {
    let mut it = Windows::new(Total::Packets(2), 0);
    for n in 0..50 {
        it.data(n, 1);
        assert_eq!(it.window(n, 1, 40_000), 160_000);
    }
    assert_eq!((it.agent.divided(), it.agent.stats().unscaled), (0, 1));
    it.open(1, 2, 1, Options { window_scale: None, ..options() });
    it.data(5000, 2);
    let ack = Segment { window: u16::MAX, ..acking(it.sent[2]) };
    assert_eq!(it.give(5001, 2, Side::Mobile, ack).unwrap().window, 2000, "not scaled, and known");
}

/// UFB-1, UFB-3, UFB-4: rules give priorities by port and address; what a user says beats them.
#[test]
fn rules_give_priorities_and_users_beat_them() {
    let mut it = Windows::new(Total::Packets(32), 3);
    let rule = |port, address, priority| Rule { port, address, priority };
    let net = |last, bits| Some((IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)), bits));
    let now = Time::ZERO;
    it.agent.set_rules(
        now,
        alloc::vec![
            rule(Some(2), net(1, 32), 5),
            rule(Some(3), net(9, 32), 9),
            rule(None, net(200, 24), 7),
        ],
    );
    let priorities = |it: &mut Windows| [1, 2, 3].map(|n| it.agent.priority(&connection(n)));
    assert_eq!(priorities(&mut it), [Some(7), Some(5), Some(7)]);
    it.set(0, 2, 40);
    assert_eq!(priorities(&mut it), [Some(7), Some(40), Some(7)]);
    it.agent.set_rules(now, alloc::vec![rule(None, net(200, 25), 7)]);
    assert_eq!(priorities(&mut it), [Some(1), Some(40), Some(1)]);
    assert_eq!(
        it.agent.priority(&Connection { mobile: connection(9).mobile, ..connection(1) }),
        None
    );
}

/// 20 Mbit/s in segments of 1000 bytes: one each 400 us.
const GAP: u64 = 400;

/// RWC-1: A is what the hop carries in a round trip, and half as much again; while the rate still grows, and
/// for a flow by itself, nothing is divided.
#[test]
fn a_measured_total_follows_rate_and_round_trip() {
    let mut it = Windows::new(Total::AUTO, 0);
    (1..=2).for_each(|port| it.open(0, port, 60, options()));
    let mut us = AFTER_OPENING;
    assert_eq!(it.run(&mut us, 1250, GAP, [1]), [u64::from(u16::MAX) << 2]);
    assert_eq!(it.agent.total(), None);
    it.run(&mut us, 5000, GAP, [1]);
    // 20 Mbit/s times 60 ms are 150 segments, half as much again 225.
    let total = it.agent.total().unwrap().get();
    assert!((225_000..=227_000).contains(&total), "{total}");
    assert_eq!(it.agent.divided(), 0, "it is alone");
    it.run(&mut us, 2500, GAP, [1, 2]);
    assert_eq!(it.agent.divided(), 2);
    it.set(us, 2, 3);
    let windows = it.run(&mut us, 2000, GAP, [1, 2]);
    assert!(windows[1].abs_diff(3 * windows[0]) <= 4000, "{windows:?}");
    let sum = windows[0] + windows[1];
    assert!((223_000..=229_000).contains(&sum), "{sum}");
}

/// RWC-4, RWC-9: who is to have more gets it as the other uses up what he has too much of, so that the
/// hop never holds more than the total.
#[test]
fn nobody_is_widened_before_the_others_are_narrowed() {
    let mut it = Windows::new(Total::AUTO, 0);
    (1..=2).for_each(|port| it.open(0, port, 60, options()));
    let mut us = AFTER_OPENING;
    let [mut first, mut second] = it.run(&mut us, 10_000, GAP, [1, 2]);
    let total = it.agent.total().unwrap().get();
    assert!((first + second).abs_diff(total) <= 8, "{first} and {second} of {total}");
    it.set(us, 2, 3);
    let mut steps = 0u64;
    while second.abs_diff(3 * first) > 4000 {
        let before = [first, second];
        [first, second] = it.run(&mut us, 1, GAP, [1, 2]);
        assert!(first + second <= total + 8, "{first} and {second} of {total}");
        assert!(second <= before[1] + u64::from(MSS) + 8, "{before:?}, then {second}");
        steps += 1;
        assert!(steps < 1000, "{first} and {second} of {total}");
    }
    // A quarter of the total has gone from one to the other, a segment a step.
    assert!(steps.abs_diff(total / 4 / u64::from(MSS)) <= 4, "{steps} steps, {total}");
}

/// RWC-11: a flow that wants but a little of its due leaves the rest to the others.
#[test]
fn flows_that_want_little_take_no_part() {
    let mut it = Windows::new(Total::AUTO, 3);
    let mut us = AFTER_OPENING;
    for _ in 0..200 {
        it.run(&mut us, 25, GAP, [1, 2]);
        it.step(us, 3);
    }
    assert_eq!(it.agent.divided(), 2);
    let shares: Vec<_> = it.agent.windows().map(|(_, window)| window.is_some()).collect();
    assert_eq!(shares, [true, true, false]);
}

/// RWC-8: where the hop carries next to nothing in a round trip, each flow has a few packets.
#[test]
fn the_least_flow_has_a_few_packets() {
    let mut it = Windows::new(Total::AUTO, 0);
    (1..=2).for_each(|port| it.open(0, port, 1, options()));
    let mut us = 5000;
    it.run(&mut us, 5000, GAP, [1, 2]);
    it.set(us, 1, 3);
    let windows = it.run(&mut us, 5000, GAP, [1, 2]);
    assert_eq!(windows, [12_000, 4_000]);
}

/// What the first flow has put into the hop's queue is not taken for a longer way of the second.
#[test]
fn a_queue_is_not_taken_for_a_longer_way() {
    let mut it = Windows::new(Total::AUTO, 1);
    let mut us = AFTER_OPENING;
    let mut clock = 0u32;
    // Echoes come 300 ms late, of which 200 ms are queue.
    for _ in 0..10_000 {
        us += GAP;
        clock = (us / 1000) as u32;
        let from = it.sent[1];
        it.sent[1] += u32::from(MSS);
        let segment = data(from, MSS.into());
        it.give(us, 1, Side::Fixed, stamped(segment, 1, clock.saturating_sub(300)));
        it.give(us, 1, Side::Mobile, stamped(acking(it.sent[1]), clock, 1));
    }
    assert!(clock > 4000);
    it.open(us / 1000, 2, 300, options());
    us += 300_000;
    it.run(&mut us, 5000, GAP, [1, 2]);
    let total = it.agent.total().unwrap().get();
    assert!((375_000..=395_000).contains(&total), "{total}");
}

/// RWC-1: behind another base rate and way are measured anew.
#[test]
fn a_handoff_resets_the_measurements() {
    for event in [Up, Complete] {
        let mut it = Windows::new(Total::AUTO, 2);
        let mut us = AFTER_OPENING;
        it.run(&mut us, 5000, GAP, [1, 2]);
        assert!(it.agent.total().is_some());
        it.agent.handle_link_event(Time::from_micros(us), event);
        assert_eq!(it.agent.total(), None);
    }
}

#[test]
fn an_idle_helper_wants_no_calls() {
    let mut it = Windows::new(Total::AUTO, 1);
    assert_eq!(it.agent.next_timeout(), None);
    let mut us = AFTER_OPENING;
    it.run(&mut us, 10, GAP, [1]);
    for _ in 0..20 {
        let Some(due) = it.agent.next_timeout() else { return };
        it.agent.handle_timeout(due);
    }
    panic!("it still wants calls");
}

proptest! {
    /// RWC-4: with a measured total too, whatever users and flows do, what is granted to those that
    /// take part never grows beyond the total.
    #[test]
    fn what_is_granted_stays_within_the_total(
        steps in prop::collection::vec((1u16..4, 1u32..20, 1u32..100), 1..60),
    ) {
        let mut it = Windows::new(Total::AUTO, 3);
        let mut us = AFTER_OPENING;
        let mut before = u64::MAX;
        for (port, priority, rounds) in steps {
            it.set(us, port, priority);
            let mut windows = [0; 3];
            for _ in 0..rounds {
                windows = it.run(&mut us, 1, GAP, [1, 2, 3]);
            }
            let (sum, divided) = (windows.iter().sum::<u64>(), it.agent.divided());
            if divided == 3 && let Some(total) = it.agent.total() {
                // A scaled window is a multiple of four bytes.
                let most = total.get().max(before).saturating_add(12);
                prop_assert!(sum <= most, "{windows:?}: {sum}, beyond {most}");
                before = sum;
            }
        }
    }

    /// RWC-4, RWC-9: whatever users and mobiles do, no right edge goes back unless the mobile's own
    /// does, no window is wider than the mobile's own, and the shares add up to the total.
    #[test]
    fn no_edge_goes_back(
        steps in prop::collection::vec((1u16..4, 0u8..10, 0u32..50, 200u16..4000), 1..300),
        packets in 3u64..100,
        shift in 0u8..8,
    ) {
        let mut it = Windows::new(Total::Packets(packets), 0);
        let scaled = Options { window_scale: Some(shift), ..options() };
        (1..4).for_each(|port| it.open(0, port, 1, scaled));
        let mut us = 10_000;
        let mut edges = [0u64; 4];
        for (port, kind, priority, own) in steps {
            us += 997;
            let n = usize::from(port);
            match kind {
                0 => it.set(us, port, priority),
                1..=5 => it.data(us, port),
                _ => {
                    let ack = it.sent[n];
                    let window = own << (7 - shift.min(3));
                    let out = it.give(us, port, Side::Mobile, Segment { window, ..acking(ack) });
                    let field = out.unwrap().window;
                    prop_assert!(field <= window);
                    let edge = u64::from(ack) + (u64::from(field) << shift);
                    let own_edge = u64::from(ack) + (u64::from(window) << shift);
                    prop_assert!(edge >= edges[n].min(own_edge), "{edge} {} {own_edge}", edges[n]);
                    edges[n] = edges[n].max(edge);
                }
            }
            let shares: u64 = it.agent.windows().filter_map(|(_, window)| window).sum();
            let divided = it.agent.divided() as u64;
            prop_assert!(divided == 0 || shares == 1000 * packets.max(divided));
        }
    }
}
