use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use lasthop_units::{Duration, Time};
use lasthop_wire::agent::Message;
use lasthop_wire::tcp::Seq;
use proptest::prelude::*;

use super::fake::{Fake, connection};
use super::order::WINDOW;
use super::*;
use crate::Connection;

const MS: Duration = Duration::from_millis(1);

fn at(ms: u64) -> Time {
    Time::from_millis(ms)
}

fn base(config: &LinkConfig) -> LinkRetransmission<Fake> {
    LinkRetransmission::at_base(config)
}

fn outputs(agent: &mut impl Agent<Fake>) -> Vec<Output<Fake>> {
    core::iter::from_fn(|| agent.poll_output()).collect()
}

/// The numbers and identities of the frames that go to the mobile.
fn frames(agent: &mut LinkRetransmission<Fake>) -> Vec<(u32, u32)> {
    let to_mobile = |output: Output<Fake>| match output {
        Output::Packet { towards: Side::Mobile, packet } => Some((packet.frame?, packet.id)),
        _ => None,
    };
    outputs(agent).into_iter().filter_map(to_mobile).collect()
}

fn send(agent: &mut LinkRetransmission<Fake>, now: Time, ids: core::ops::Range<u32>) {
    for id in ids {
        agent.handle_packet(now, Side::Fixed, Fake::hidden(id));
    }
}

fn ack(agent: &mut LinkRetransmission<Fake>, now: Time, latest: u32, come: u64) {
    agent.handle_message(now, Side::Mobile, &Message::LinkAck { latest, come });
}

/// DDA-1: frames are numbered, kept and acknowledged, and nothing of them is read: their payload
/// is hidden. A later frame that has come shows the loss of the earlier, at once.
#[test]
fn a_frame_that_was_overtaken_is_sent_again_at_once() {
    let mut base = base(&LinkConfig::default());
    send(&mut base, at(0), 10..14);
    assert_eq!(frames(&mut base), [(0, 10), (1, 11), (2, 12), (3, 13)]);
    ack(&mut base, at(20), 0, 0b1);
    assert_eq!(frames(&mut base), []);
    ack(&mut base, at(21), 2, 0b101);
    assert_eq!(frames(&mut base), [(1, 11)]);
    ack(&mut base, at(22), 3, 0b1101);
    assert_eq!(frames(&mut base), []);
    ack(&mut base, at(41), 1, 0b11);
    assert_eq!((base.kept(), base.next_timeout()), (0, None));
}

/// DDA-1: of two transmissions the earlier is lost if only the later has come, whether it was the
/// first of its frame or not.
#[test]
fn a_lost_retransmission_is_reported_without_a_timeout() {
    let mut base = base(&LinkConfig::default());
    send(&mut base, at(0), 0..3);
    ack(&mut base, at(10), 2, 0b1);
    send(&mut base, at(10), 3..4);
    assert_eq!(frames(&mut base), [(0, 0), (1, 1), (2, 2), (0, 0), (1, 1), (3, 3)]);
    ack(&mut base, at(20), 1, 0b1);
    assert_eq!(frames(&mut base), [(0, 0)]);
    ack(&mut base, at(21), 3, 0b111);
    assert_eq!(frames(&mut base), []);
    send(&mut base, at(22), 4..5);
    ack(&mut base, at(32), 4, 0b1111);
    assert_eq!(frames(&mut base), [(4, 4), (0, 0)]);
}

/// DDA-1: after a silence of the hop's own timeout the latest frame is sent again. Its
/// acknowledgement shows what else was lost.
#[test]
fn a_lost_tail_is_probed_with_its_last_frame() {
    let config = LinkConfig { initial_timeout: 60 * MS, ..LinkConfig::default() };
    let mut base = base(&config);
    send(&mut base, at(0), 0..3);
    frames(&mut base);
    assert_eq!(base.next_timeout(), Some(at(60)));
    base.handle_timeout(at(59));
    assert_eq!(frames(&mut base), []);
    base.handle_timeout(at(60));
    assert_eq!(frames(&mut base), [(2, 2)]);
    ack(&mut base, at(70), 2, 0b1);
    assert_eq!(frames(&mut base), [(0, 0), (1, 1)]);
    assert_eq!(base.stats().sender.probes, 1);
}

#[test]
fn the_timeout_is_the_hops_own() {
    let mut base = base(&LinkConfig::default());
    for n in 0..100 {
        send(&mut base, at(100 * u64::from(n)), n..n + 1);
        ack(&mut base, at(100 * u64::from(n) + 16), n, 0b1);
    }
    send(&mut base, at(20_000), 100..101);
    let wait = base.next_timeout().unwrap() - at(20_000);
    assert!(wait >= 16 * MS && wait < 20 * MS, "{wait:?}");
}

/// DDA-6: a frame is sent again as often as the parameter says, 3 times by default.
#[test]
fn a_frame_is_given_up_after_its_retries() {
    assert_eq!(LinkConfig::default().retries, 3);
    for retries in [0, 1, 3] {
        let mut base = base(&LinkConfig { retries, ..LinkConfig::default() });
        send(&mut base, at(0), 0..1);
        for n in 1..10 {
            send(&mut base, at(10 * u64::from(n)), n..n + 1);
            ack(&mut base, at(10 * u64::from(n) + 5), n, 0b1);
        }
        let again = frames(&mut base).iter().filter(|frame| **frame == (0, 0)).count() as u32;
        assert_eq!(again, 1 + retries);
        assert_eq!((base.stats().sender.given_up, base.kept()), (1, 0));
    }
}

/// DDA-6, DDA-5: a hop that answers nothing is probed as often, ever more slowly; then all is given
/// up. A disconnection is not helped.
#[test]
fn a_dead_hop_is_given_up_after_as_many_probes() {
    let mut base = base(&LinkConfig { initial_timeout: 10 * MS, ..LinkConfig::default() });
    send(&mut base, at(0), 0..5);
    frames(&mut base);
    let mut times = Vec::new();
    while let Some(now) = base.next_timeout() {
        base.handle_timeout(now);
        times.push((now, frames(&mut base).len()));
    }
    assert_eq!(times, [(at(10), 1), (at(30), 1), (at(70), 1), (at(150), 0)]);
    assert_eq!((base.stats().sender.given_up, base.kept()), (5, 0));
}

/// CC-4: what is sent again is the packet as it was, its ECN mark included.
#[test]
fn a_retransmission_is_the_packet_that_was_lost() {
    let mut base = base(&LinkConfig::default());
    let lost = Fake { marked: true, ..Fake::data(&connection(1), Seq(77), 1000) };
    base.handle_packet(at(0), Side::Fixed, lost);
    send(&mut base, at(1), 1..2);
    ack(&mut base, at(9), 1, 0b1);
    let again = Output::Packet { towards: Side::Mobile, packet: Fake { frame: Some(0), ..lost } };
    assert_eq!(outputs(&mut base).last(), Some(&again));
}

/// DDA-1: the other end takes the number off, answers each frame, and passes each on once, in the
/// order in which they come.
#[test]
fn the_mobile_acknowledges_each_frame_and_drops_duplicates() {
    let mut mobile = LinkRetransmission::at_mobile(&LinkConfig::default());
    let mut come = |frame: u32| {
        let packet = Fake { frame: Some(frame), ..Fake::hidden(frame) };
        mobile.handle_packet(at(1), Side::Fixed, packet);
        outputs(&mut mobile)
    };
    let answer = |latest, come| Output::Message {
        towards: Side::Fixed,
        message: Message::LinkAck { latest, come },
    };
    let deliver = |id| Output::Packet { towards: Side::Mobile, packet: Fake::hidden(id) };
    assert_eq!(come(5), [answer(5, 0b1), deliver(5)]);
    assert_eq!(come(8), [answer(8, 0b1001), deliver(8)]);
    assert_eq!(come(7), [answer(7, 0b101), deliver(7)]);
    assert_eq!(come(8), [answer(8, 0b1011)]);
    assert_eq!(mobile.stats().receiver.duplicates, 1);
}

#[test]
fn a_packet_without_a_number_passes_as_it_is() {
    let mut base = base(&LinkConfig::default());
    base.handle_packet(at(0), Side::Mobile, Fake::hidden(9));
    assert_eq!(
        outputs(&mut base),
        [Output::Packet { towards: Side::Fixed, packet: Fake::hidden(9) }]
    );
}

#[test]
fn with_order_kept_frames_wait_behind_a_gap_for_so_long() {
    let config = LinkConfig { in_order: true, hold: 100 * MS, ..LinkConfig::default() };
    let mut receiver = LinkReceiver::new(&config);
    let come = |receiver: &mut LinkReceiver<Fake>, ms, frame: u32| -> Vec<u32> {
        receiver.handle_frame(at(ms), frame, Fake::hidden(frame));
        core::iter::from_fn(|| receiver.poll_delivery()).map(|packet| packet.id).collect()
    };
    assert_eq!(come(&mut receiver, 0, 1), [1]);
    assert_eq!(come(&mut receiver, 1, 3), []);
    assert_eq!(come(&mut receiver, 2, 4), []);
    assert_eq!(come(&mut receiver, 3, 2), [2, 3, 4]);
    assert_eq!((receiver.held(), receiver.next_timeout()), (0, None));
    assert_eq!(come(&mut receiver, 10, 6), []);
    assert_eq!(receiver.next_timeout(), Some(at(110)));
    receiver.handle_timeout(at(110));
    assert_eq!(receiver.poll_delivery().map(|packet| packet.id), Some(6));
    assert_eq!(come(&mut receiver, 111, 5), [5]);
    assert_eq!(come(&mut receiver, 112, 7), [7]);
}

#[test]
fn a_base_that_restarts_with_other_numbers_is_accepted() {
    let mut mobile = LinkReceiver::new(&LinkConfig::default());
    for frame in [1_000_000, 1_000_001, 17, 18] {
        mobile.handle_frame(at(0), frame, Fake::hidden(frame));
        assert_eq!(mobile.poll_delivery(), Some(Fake::hidden(frame)));
    }
    assert_eq!(mobile.stats().restarts, 1);
}

#[test]
fn a_mobile_that_restarts_makes_nothing_worse_than_a_duplicate() {
    let mut base = base(&LinkConfig::default());
    send(&mut base, at(0), 0..3);
    frames(&mut base);
    // Frames 0 and 1 had come, but their acknowledgements are lost with what the mobile knew.
    ack(&mut base, at(5), 2, 0b1);
    assert_eq!(frames(&mut base), [(0, 0), (1, 1)]);
    ack(&mut base, at(15), 1, 0b111);
    assert_eq!(base.kept(), 0);
}

#[test]
fn numbers_wrap() {
    let config = LinkConfig { first_frame: u32::MAX - 1, ..LinkConfig::default() };
    let mut base = base(&config);
    let mut mobile = LinkReceiver::<Fake>::new(&config);
    send(&mut base, at(0), 0..4);
    assert_eq!(frames(&mut base), [(u32::MAX - 1, 0), (u32::MAX, 1), (0, 2), (1, 3)]);
    let mut last = LinkAck { latest: 0, come: 0 };
    for frame in [u32::MAX - 1, 0, 1] {
        last = mobile.handle_frame(at(1), frame, Fake::hidden(0));
    }
    assert_eq!(last, LinkAck { latest: 1, come: 0b1011 });
    ack(&mut base, at(5), last.latest, last.come);
    assert_eq!(frames(&mut base), [(u32::MAX, 1)]);
}

#[test]
fn acknowledgements_of_what_was_never_sent_change_nothing() {
    let mut base = base(&LinkConfig::default());
    send(&mut base, at(0), 0..2);
    frames(&mut base);
    for latest in [2, 1 << 31, u32::MAX, 66] {
        ack(&mut base, at(1), latest, 1 | 1 << 63);
    }
    base.handle_message(at(1), Side::Fixed, &Message::LinkAck { latest: 1, come: 3 });
    assert_eq!((base.kept(), frames(&mut base)), (2, vec![]));
}

#[test]
fn the_oldest_copy_gives_way() {
    let mut base = base(&LinkConfig { copies: 4, ..LinkConfig::default() });
    send(&mut base, at(0), 0..10);
    frames(&mut base);
    assert_eq!((base.kept(), base.stats().sender.crowded_out), (4, 6));
    ack(&mut base, at(5), 9, 0b1);
    assert_eq!(frames(&mut base), [(6, 6), (7, 7), (8, 8)]);
}

#[test]
fn a_mobile_that_has_gone_is_sent_nothing_more() {
    let mut base = base(&LinkConfig::default());
    send(&mut base, at(0), 0..3);
    frames(&mut base);
    base.remove_mobile(connection(1).mobile.ip());
    assert_eq!((base.kept(), base.next_timeout()), (0, None));
    ack(&mut base, at(5), 2, 0b1);
    send(&mut base, at(6), 3..4);
    assert_eq!(frames(&mut base), [(3, 3)]);
}

fn notices(agent: &mut LinkRetransmission<Fake>) -> Vec<Connection> {
    let notice = |output| match output {
        Output::Message { towards: Side::Fixed, message: Message::BadState { connection } } => {
            Some(connection)
        }
        _ => None,
    };
    outputs(agent).into_iter().filter_map(notice).collect()
}

fn notifying() -> LinkConfig {
    let notice_interval = 50 * MS;
    LinkConfig { notify: true, notice_interval, initial_timeout: 20 * MS, ..LinkConfig::default() }
}

/// EBS-1: each failed attempt is told to the source, not more often than the parameter says.
#[test]
fn a_failed_attempt_is_reported_to_the_source() {
    let mut base = base(&notifying());
    for n in 0..4 {
        base.handle_packet(at(0), Side::Fixed, Fake::data(&connection(7), Seq(1000 * n), 1000));
    }
    ack(&mut base, at(10), 1, 0b10);
    ack(&mut base, at(10), 2, 0b1);
    assert_eq!(notices(&mut base), [connection(7)]);
    ack(&mut base, at(30), 3, 0b1);
    assert_eq!(notices(&mut base), [], "the last notice was 20 ms ago");
    let mut times = Vec::new();
    while let Some(now) = base.next_timeout() {
        base.handle_timeout(now);
        times.extend(notices(&mut base).iter().map(|_| now));
    }
    assert!(!times.is_empty() && times[0] >= at(60), "{times:?}");
    assert_eq!(base.stats().notices, 1 + times.len() as u64);
}

/// EBS-1: a hop that is silent is bad for every source whose data is under way.
#[test]
fn a_silent_hop_is_reported_to_every_source() {
    let mut base = base(&notifying());
    for port in [1, 2, 1] {
        base.handle_packet(at(0), Side::Fixed, Fake::data(&connection(port), Seq(0), 100));
    }
    base.handle_timeout(at(20));
    assert_eq!(notices(&mut base), [connection(1), connection(2)]);
}

/// EBS-2: the source is told of data only, since that alone has a timer to arm again; what cannot
/// be read has no known source.
#[test]
fn acknowledgements_and_hidden_packets_make_no_notice() {
    let mut base = base(&notifying());
    base.handle_packet(at(0), Side::Fixed, Fake::data(&connection(1), Seq(0), 0));
    send(&mut base, at(0), 0..1);
    base.handle_timeout(at(20));
    assert_eq!(notices(&mut base), []);
    assert_eq!(base.stats().sender.probes, 1);
}

/// EBS-3, EBS-4: it is an option, since a sender that does not know it has no use for it.
#[test]
fn nothing_is_reported_unless_configured() {
    let config = LinkConfig { notify: false, ..notifying() };
    assert!(!LinkConfig::default().notify);
    let mut base = base(&config);
    base.handle_packet(at(0), Side::Fixed, Fake::data(&connection(1), Seq(0), 100));
    base.handle_timeout(at(20));
    assert_eq!(notices(&mut base), []);
}

/// A hop of 5 ms each way that loses what the schedule says and does not reorder.
struct Hop {
    base: LinkRetransmission<Fake>,
    mobile: LinkRetransmission<Fake>,
    air: VecDeque<(Time, Side, Output<Fake>)>,
    fates: Vec<u8>,
    next_fate: usize,
    come: [Vec<u32>; 2],
}

impl Hop {
    fn new(config: &LinkConfig, fates: Vec<u8>) -> Self {
        Self {
            base: LinkRetransmission::at_base(config),
            mobile: LinkRetransmission::at_mobile(config),
            air: VecDeque::new(),
            fates,
            next_fate: 0,
            come: [Vec::new(), Vec::new()],
        }
    }

    /// Of each transmission the schedule says whether it is lost, or comes twice.
    fn fly(&mut self, now: Time, towards: Side, output: Output<Fake>) {
        let fate = self.fates.get(self.next_fate).copied().unwrap_or(255);
        self.next_fate += 1;
        let copies = match fate {
            0..70 => 0,
            70..90 => 2,
            _ => 1,
        };
        for _ in 0..copies {
            self.air.push_back((now + 5 * MS, towards, output.clone()));
        }
    }

    fn empty(&mut self, now: Time) {
        while let Some(output) = self.base.poll_output() {
            match output {
                Output::Packet { towards: Side::Fixed, packet } => self.come[0].push(packet.id),
                output => self.fly(now, Side::Mobile, output),
            }
        }
        while let Some(output) = self.mobile.poll_output() {
            match output {
                Output::Packet { towards: Side::Mobile, packet } => self.come[1].push(packet.id),
                output => self.fly(now, Side::Fixed, output),
            }
        }
    }

    fn arrive(&mut self, now: Time) {
        while self.air.front().is_some_and(|(due, ..)| *due <= now) {
            let Some((_, towards, output)) = self.air.pop_front() else { return };
            let (agent, from) = match towards {
                Side::Mobile => (&mut self.mobile, Side::Fixed),
                Side::Fixed => (&mut self.base, Side::Mobile),
            };
            match output {
                Output::Packet { packet, .. } => agent.handle_packet(now, from, packet),
                Output::Message { message, .. } => agent.handle_message(now, from, &message),
                Output::Segment { .. } => {}
            }
            self.empty(now);
        }
        for agent in [&mut self.base, &mut self.mobile] {
            if agent.next_timeout().is_some_and(|at| at <= now) {
                agent.handle_timeout(now);
            }
        }
        self.empty(now);
    }
}

proptest! {
    /// DDA-1, DDA-6: whatever is lost or doubled, in both directions, each packet comes at most
    /// once; every one comes if it may be retried often enough and the losses end.
    #[test]
    fn each_packet_comes_once(
        mut fates in prop::collection::vec(any::<u8>(), 2..400),
        first_frame in prop_oneof![Just(0), Just(u32::MAX - 20), any::<u32>()],
        in_order: bool,
        retries in prop_oneof![Just(3_u32), Just(1000)],
    ) {
        let config = LinkConfig {
            first_frame, in_order, retries, hold: Duration::from_secs(1000), ..LinkConfig::default()
        };
        if in_order {
            // The first frame that comes is where the order begins.
            fates[..2].fill(255);
        }
        let mut hop = Hop::new(&config, fates);
        for ms in 0..60_000 {
            let now = at(ms);
            if ms < 60 {
                hop.base.handle_packet(now, Side::Fixed, Fake::hidden(ms as u32));
                hop.mobile.handle_packet(now, Side::Mobile, Fake::hidden(ms as u32));
                hop.empty(now);
            }
            hop.arrive(now);
            prop_assert!(hop.base.kept() <= 256 && hop.mobile.kept() <= 256);
            if ms > 60 && hop.air.is_empty() && hop.base.kept() + hop.mobile.kept() == 0 {
                break;
            }
        }
        prop_assert_eq!(hop.base.kept() + hop.mobile.kept(), 0, "it ends");
        for come in &hop.come {
            let distinct: BTreeSet<u32> = come.iter().copied().collect();
            prop_assert_eq!(distinct.len(), come.len(), "twice: {:?}", come);
            if retries == 1000 && !in_order {
                prop_assert_eq!(come.len(), 60);
            }
            if in_order {
                prop_assert!(come.is_sorted(), "{:?}", come);
            }
        }
    }

    #[test]
    fn garbage_breaks_nothing_and_stays_bounded(
        config in (0_u32..3, 0_usize..400, any::<u32>(), any::<bool>()),
        steps in prop::collection::vec((0_u8..7, any::<u32>(), any::<u64>(), 0_u64..50), 0..300),
    ) {
        let (retries, copies, first_frame, in_order) = config;
        let config = LinkConfig { retries, copies, first_frame, in_order, ..notifying() };
        let mut base = base(&config);
        let mut now = at(0);
        for (kind, number, bits, later) in steps {
            now += later as u32 * MS;
            let near = first_frame.wrapping_add(number % 600);
            match kind {
                0 => base.handle_packet(now, Side::Fixed, Fake::data(&connection(1), Seq(number), 9)),
                1 => base.handle_packet(now, Side::Mobile, Fake { frame: Some(near), ..Fake::hidden(1) }),
                2 => base.handle_packet(now, Side::Mobile, Fake { frame: Some(number), ..Fake::hidden(1) }),
                3 => ack(&mut base, now, number, bits),
                4 => ack(&mut base, now, near, bits),
                5 if number % 16 == 0 => base.remove_mobile(connection(1).mobile.ip()),
                _ => base.handle_timeout(now),
            }
            outputs(&mut base);
            prop_assert!(base.kept() <= 256);
            prop_assert!(base.sender.transmissions() <= 2 * 256);
            prop_assert!(base.receiver.held() <= WINDOW as usize);
        }
    }
}

/// DDA-1: a frame that was asked after counts as come by its first transmission: what was sent again
/// since then is still on its way.
#[test]
fn a_late_answer_to_the_first_of_two_proves_no_more_than_the_first() {
    let mut base = base(&LinkConfig::default());
    send(&mut base, at(0), 0..3);
    ack(&mut base, at(20), 1, 0b1);
    assert_eq!(frames(&mut base), [(0, 0), (1, 1), (2, 2), (0, 0)]);
    let due = base.next_timeout().unwrap();
    base.handle_timeout(due);
    assert_eq!(frames(&mut base), [(2, 2)], "the latest frame is asked after");
    ack(&mut base, due + MS, 2, 0b11);
    assert_eq!((frames(&mut base), base.kept()), (vec![], 1));
    ack(&mut base, due + 2 * MS, 0, 0b1);
    assert_eq!((base.kept(), base.stats().sender.retransmitted), (0, 2));
}

/// DDA-1: the answer to an old frame claims nothing of what lies beyond the receiver's memory.
#[test]
fn an_old_frame_is_acknowledged_without_removed_ones() {
    let mut receiver = LinkReceiver::new(&LinkConfig::default());
    let mut come = |frame| receiver.handle_frame(at(0), frame, Fake::hidden(frame)).come;
    // Of the frames before 50 none has come; from 50 on all have, so that 290 - 256 = 34 may seem to.
    for frame in 50..300 {
        come(frame);
    }
    assert_eq!(come(52), 0b111);
}
