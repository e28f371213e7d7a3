//! Timing diagrams as exact traces.

use alloc::collections::{BTreeMap, VecDeque};

use super::*;
use crate::snoop::Timer;

/// What happens at the base, the router or the mobile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    /// The fixed host's packet reaches the base.
    FromFixed(u32),
    /// A packet has come as far as the mobile router.
    AtRouter(u32),
    AtMobile(u32),
    /// A request for this packet reaches the base.
    FromMobile(u32),
}

/// What the base does, at which millisecond.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Did {
    /// Hands a packet on.
    Forward(u32),
    /// Sends one again.
    Resend(u32),
    /// Drops a request.
    Drop(u32),
    /// Hands a request on.
    Pass(u32),
}

/// A base, a mobile router and a mobile that acknowledges each packet. The first copies of some
/// packets are lost on one of the two links.
struct Hop {
    base: Base,
    to_router: u64,
    to_mobile: u64,
    lost_before_router: Vec<u32>,
    lost_after_router: Vec<u32>,
    next: u32,
    held: Vec<u32>,
    events: BTreeMap<(u64, u64), Event>,
    turns: u64,
    trace: Vec<(u64, Did)>,
}

impl Hop {
    fn new(to_router: u64, to_mobile: u64, before: &[u32], after: &[u32]) -> Self {
        let timer = Timer::Pinned(Duration::from_millis(100));
        let mut base = Base::new(Config { timer, ..Config::default() });
        base.data(0..12);
        base.ack(12);
        Self {
            base,
            to_router,
            to_mobile,
            lost_before_router: before.to_vec(),
            lost_after_router: after.to_vec(),
            next: 12,
            held: vec![],
            events: BTreeMap::new(),
            turns: 0,
            trace: vec![],
        }
    }

    fn at(&mut self, ms: u64, event: Event) {
        self.turns += 1;
        self.events.insert((ms, self.turns), event);
    }

    /// Until nothing is under way and no timer runs.
    fn run(mut self) -> Vec<(u64, Did)> {
        loop {
            let event = self.events.first_key_value().map(|((ms, _), _)| *ms);
            let timer = self.base.agent.next_timeout().map(|at| at.as_nanos() / 1_000_000);
            let Some(ms) = event.into_iter().chain(timer).min() else { return self.trace };
            for (at, sent) in self.base.wait(ms - self.base.now.as_nanos() / 1_000_000) {
                let Sent::Data(n) = sent else { panic!("{sent:?}") };
                self.trace.push((at, Did::Resend(n)));
                self.cross(at, n);
            }
            if event == Some(ms)
                && let Some((_, event)) = self.events.pop_first()
            {
                self.step(ms, event);
            }
        }
    }

    fn step(&mut self, ms: u64, event: Event) {
        match event {
            Event::FromFixed(n) => {
                assert_eq!(self.base.fixed_sends(data(n)), [Sent::Data(n)]);
                self.trace.push((ms, Did::Forward(n)));
                self.cross(ms, n);
            }
            Event::AtRouter(n) => {
                if !take(&mut self.lost_after_router, n) {
                    self.at(ms + self.to_mobile, Event::AtMobile(n));
                }
            }
            Event::AtMobile(n) => {
                self.held.push(n);
                while self.held.contains(&self.next) {
                    self.next += 1;
                }
                let back = ms + self.to_mobile + self.to_router;
                self.at(back, Event::FromMobile(self.next));
            }
            Event::FromMobile(n) => match self.base.ack(n)[..] {
                [] => self.trace.push((ms, Did::Drop(n))),
                [Sent::Ack(_)] => self.trace.push((ms, Did::Pass(n))),
                [Sent::Data(again)] => {
                    self.trace.extend([(ms, Did::Resend(again)), (ms, Did::Drop(n))]);
                    self.cross(ms, again);
                }
                ref other => panic!("{other:?}"),
            },
        }
    }

    fn cross(&mut self, ms: u64, n: u32) {
        if !take(&mut self.lost_before_router, n) {
            self.at(ms + self.to_router, Event::AtRouter(n));
        }
    }
}

fn take(from: &mut Vec<u32>, n: u32) -> bool {
    let at = from.iter().position(|lost| *lost == n);
    at.map(|at| from.swap_remove(at)).is_some()
}

/// Packets 12 to 16 come to the base in one go, 17 to 19 a round trip apart.
fn figure_5(to_router: u64, to_mobile: u64, before: &[u32], after: &[u32]) -> Vec<(u64, Did)> {
    let mut hop = Hop::new(to_router, to_mobile, before, after);
    for (ms, n) in [(0, 12), (1, 13), (2, 14), (3, 15), (4, 16), (46, 17), (88, 18), (130, 19)] {
        hop.at(ms, Event::FromFixed(n));
    }
    hop.run()
}

/// A round trip over 20 ms each way, and the 2 ms by which the next packet comes after the repair.
fn expected() -> Vec<(u64, Did)> {
    use Did::{Drop, Forward, Pass, Resend};
    vec![
        (0, Forward(12)),
        (1, Forward(13)),
        (2, Forward(14)),
        (3, Forward(15)),
        (4, Forward(16)),
        (44, Resend(12)),
        (44, Drop(12)),
        (46, Forward(17)),
        (84, Pass(13)),
        (86, Resend(13)),
        (86, Drop(13)),
        (88, Forward(18)),
        (126, Pass(14)),
        (128, Resend(14)),
        (128, Drop(14)),
        (130, Forward(19)),
        (168, Pass(15)),
        (170, Resend(15)),
        (170, Drop(15)),
        (210, Pass(20)),
    ]
}

/// SNP-8: figure 5 of the obTCP paper: packets 12 to 15 are lost, and each is recovered by one
/// duplicate after the other, in four round trips between base and mobile.
#[test]
fn four_losses_take_four_round_trips() {
    assert_eq!(figure_5(20, 0, &[12, 13, 14, 15], &[]), expected());
}

/// SNP-12: a mobile router in between changes nothing, whichever of its links loses.
#[test]
fn two_links_are_one_to_the_agent() {
    assert_eq!(figure_5(8, 12, &[12, 13, 14, 15], &[]), expected());
    assert_eq!(figure_5(8, 12, &[], &[12, 13, 14, 15]), expected());
    assert_eq!(figure_5(12, 8, &[12, 15], &[13, 14]), expected());
}

/// SNP-6: where no further packet brings a duplicate, each of the four takes a timer.
#[test]
fn losses_at_the_end_take_a_timer_each() {
    let mut hop = Hop::new(20, 0, &[12, 13], &[]);
    for (ms, n) in [(0, 12), (1, 13)] {
        hop.at(ms, Event::FromFixed(n));
    }
    use Did::{Forward, Pass, Resend};
    assert_eq!(
        hop.run(),
        [
            (0, Forward(12)),
            (1, Forward(13)),
            (100, Resend(12)),
            (140, Pass(13)),
            (240, Resend(13)),
            (280, Pass(14)),
        ]
    );
}

/// SNP-4, SNP-6: a lost repair is repeated after the timer, with its duplicates dropped meanwhile.
#[test]
fn a_lost_repair_takes_the_timer() {
    use Did::{Drop, Forward, Pass, Resend};
    let mut hop = Hop::new(20, 0, &[12, 12], &[]);
    for (ms, n) in [(0, 12), (1, 13), (2, 14)] {
        hop.at(ms, Event::FromFixed(n));
    }
    assert_eq!(
        hop.run(),
        [
            (0, Forward(12)),
            (1, Forward(13)),
            (2, Forward(14)),
            (41, Resend(12)),
            (41, Drop(12)),
            (42, Drop(12)),
            (141, Resend(12)),
            (181, Pass(15)),
        ]
    );
}

/// A hop that loses nothing and sends a packet every 10 ms, of a window of 16 that waits in front of
/// it; the fixed host sends what is acknowledged once more. What the base sends again.
fn with_needless_copies(copies: u32) -> Vec<u32> {
    let mut base = Base::new(Config::default());
    let mut queue: VecDeque<u32> = (0..16).collect();
    base.data(0..16);
    let (mut next, mut window, mut again) = (0, 16, vec![]);
    let mut acks = VecDeque::new();
    for turn in 0..400 {
        if turn == 40 {
            for _ in 0..copies {
                base.data(next - 1..next);
                queue.push_back(next - 1);
            }
        }
        next += u32::from(queue.pop_front() == Some(next));
        acks.push_back(next);
        if acks.len() > 3
            && let Some(ack) = acks.pop_front()
        {
            for sent in base.ack(ack) {
                match sent {
                    Sent::Data(n) => {
                        again.push(n);
                        queue.push_back(n);
                    }
                    _ => {
                        base.data(window..ack + 16);
                        queue.extend(window..ack + 16);
                        window = window.max(ack + 16);
                    }
                }
            }
        }
        assert_eq!(base.wait(10), [], "no timer is needed");
    }
    assert!(next > 350, "{next}");
    again
}

/// SNP-3: needless copies bring no repair, whose copy would bring the next, and so on without end.
#[test]
fn needless_copies_do_not_feed_themselves() {
    for copies in [0, 1, 2, 5] {
        assert_eq!(with_needless_copies(copies), [], "{copies}");
    }
}
