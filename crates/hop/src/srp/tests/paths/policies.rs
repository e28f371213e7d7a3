//! Which paths may carry what.

use super::*;
use crate::packet_class::PacketClass;
use crate::packets::OutgoingPacket;
use crate::policy::PathStatus;

const MB: u64 = 1_000_000;

impl Bond {
    /// What the second end has sent by each path.
    fn sent(&self) -> Vec<u64> {
        self.ends[1].path_stats().map(|path| path.bytes_sent.get()).collect()
    }

    /// Of so many bytes that end sends at most so long by this policy: how many came, and what each path carried.
    fn carry(&mut self, policy: Policy, size: u64, for_ms: u64) -> (u64, Vec<u64>) {
        let (before, until) = (self.sent(), self.now + Duration::from_millis(for_ms));
        let got = Download::run_by(self, policy, size, until);
        let came = got.came.last().map_or(0, |(_, bytes)| *bytes);
        (came, self.sent().into_iter().zip(before).map(|(sent, before)| sent - before).collect())
    }

    /// One that has measured its paths.
    fn warm(ways: &[Way]) -> Self {
        let mut w = Self::new(7, ways);
        w.carry(Policy::Speed, FOREVER, 2_000);
        while w.step(Time::from_millis(2_500)) {}
        w
    }
}

const EQUAL: [Way; 2] = [(20, 20, 0.0), (20, 20, 0.0)];
const UNEQUAL: [Way; 2] = [(20, 20, 0.0), (10, 60, 0.0)];

/// SRP-41: what may go by one path alone goes by no other, however slow that one is, and waits where it is dark.
#[test]
fn only_a_path_carries_what_may_go_by_it_alone() {
    for only in [0, 1] {
        let mut w = Bond::warm(&UNEQUAL);
        let (came, sent) = w.carry(Policy::Only(PathId(only)), 3 * MB, 10_000);
        assert!(came == 3 * MB && sent[usize::from(1 - only)] < 30_000, "{only}: {came} {sent:?}");
        w.dark.push((only.into(), w.now, w.now + Duration::from_secs(3)));
        let (came, _) = w.carry(Policy::Only(PathId(only)), 3 * MB, 2_900);
        assert_eq!(came, 0, "{only}");
        // Others do not wait for it.
        let (came, _) = w.carry(Policy::Speed, MB, 5_000);
        assert_eq!(came, MB, "{only}");
    }
}

/// SRP-41: either end says so, and the other follows.
#[test]
fn the_receiver_too_says_which_path_is_to_carry_a_stream() {
    let mut w = Bond::warm(&UNEQUAL);
    let id = w.ends[0].open().unwrap();
    w.ends[0].set_policy(id, Policy::Only(PathId(1)));
    w.ends[0].write(id, b"which?").unwrap();
    while w.ends[1].received(id).is_empty() && w.step(Time::from_secs(4)) {}
    let (before, mut left, mut came) = (w.sent(), MB as usize, 0);
    while came < MB as usize && w.step(Time::from_secs(20)) {
        left -= w.ends[1].write(id, &vec![0; left.min(10_000)]).unwrap();
        let n = w.ends[0].received(id).len();
        w.ends[0].consume(id, n);
        came += n;
    }
    let sent = w.sent();
    assert!(came == MB as usize && sent[0] - before[0] < 30_000, "{came} {before:?} {sent:?}");
}

/// SRP-42: a path that costs more carries what is to be cheap where no other answers, and while they carry less than was
/// said; what is not to be cheap goes by all.
#[test]
fn a_path_that_costs_is_spared() {
    let costs = |below| PathStatus { cost: 3, below: Rate::from_mbps(below) };
    let mut w = Bond::warm(&EQUAL);
    // The peer is told.
    w.ends[0].set_path_status(w.now, PathId(1), costs(0));
    w.carry(Policy::Speed, 10_000, 500);
    let (came, sent) = w.carry(Policy::Cheap, 5 * MB, 10_000);
    assert!(came == 5 * MB && sent[1] < 30_000, "{came} {sent:?}");
    let (_, sent) = w.carry(Policy::Speed, 5 * MB, 10_000);
    assert!(sent[1] > 2 * MB, "{sent:?}");
    w.dark.push((0, w.now, w.now + Duration::from_secs(4)));
    let (came, sent) = w.carry(Policy::Cheap, 2 * MB, 3_500);
    assert!(came == 2 * MB && sent[1] > 2 * MB, "{came} {sent:?}");
    while w.step(w.now + Duration::from_secs(3)) {}
    w.ends[0].set_path_status(w.now, PathId(1), costs(30));
    w.carry(Policy::Speed, 10_000, 500);
    let (came, sent) = w.carry(Policy::Cheap, 5 * MB, 10_000);
    assert!(came == 5 * MB && sent[1] > 2 * MB, "{came} {sent:?}");
}

/// SRP-42: a path that is used up carries nothing more, though it be the only one, until it is free again; what was on its
/// way there goes by others.
#[test]
fn a_path_that_is_used_up_carries_nothing() {
    for ways in [&EQUAL[..], &EQUAL[..1]] {
        let mut w = Bond::warm(ways);
        let last = PathId(ways.len() as u8 - 1);
        let before = w.sent();
        w.ends[0].set_path_status(w.now, last, PathStatus::SPENT);
        let (came, _) = w.carry(Policy::Speed, 2 * MB, 3_000);
        let sent = w.sent().last().unwrap() - before.last().unwrap();
        assert_eq!(came == 2 * MB, ways.len() > 1, "{came}");
        // What leaves before the peer knows, and what keeps the path alive.
        assert!(sent < 200_000, "{sent}");
        w.ends[0].set_path_status(w.now, last, PathStatus::FREE);
        let (came, sent) = w.carry(Policy::Speed, 5 * MB, 10_000);
        assert!(came == 5 * MB && sent[usize::from(last.0)] > 2 * MB, "{came} {sent:?}");
    }
}

/// Small messages that are sent every 20 ms while a download takes all that both paths have, and each path in turn goes dark
/// for 60 ms once in two seconds: how late they came beyond the delay, at the 99th percentile, and the download's rate.
fn paced(policy: Policy, as_packets: bool) -> (Duration, f64) {
    let mut w = Bond::warm(&[(20, 20, 0.005), (20, 22, 0.005)]);
    let (bulk, id) = (w.ends[1].open().unwrap(), w.ends[1].open().unwrap());
    w.ends[1].set_policy(id, policy);
    let class = PacketClass { policy, ..PacketClass::CALL };
    let (begun, mut bytes, mut written, mut late) = (w.now, 0, Vec::new(), Vec::new());
    for n in 0..2_000_u32 {
        let message = [n as u8; 200];
        if as_packets {
            let packet =
                OutgoingPacket { client: 1, flow: 1, ecn_capable: false, class, data: &message };
            w.ends[1].packets().unwrap().send(w.now, &packet).unwrap();
        } else {
            w.ends[1].write(id, &message).unwrap();
        }
        written.push(w.now);
        if n % 50 == 25 {
            let path = (n / 50 % 2) as usize;
            w.dark.push((path, w.now, w.now + Duration::from_millis(60)));
        }
        let next = w.now + Duration::from_millis(20);
        loop {
            bytes += w.pump(bulk);
            while w.ends[0].received(id).len() >= 200 {
                w.ends[0].consume(id, 200);
                late.push(w.now.since(written[late.len()]));
            }
            if let Some(lane) = w.ends[0].packets() {
                while let Some((packet, _)) = lane.front() {
                    // No packet is later than 256 others.
                    let mut sent = written.len() - 1;
                    while sent as u8 != packet[0] {
                        sent -= 1;
                    }
                    late.push(w.now.since(written[sent]));
                    lane.pop();
                }
            }
            if !w.step(next) {
                break;
            }
        }
    }
    assert!(late.len() > 1_980, "{}", late.len());
    late.sort();
    let p99 = late[late.len() * 99 / 100].saturating_sub(Duration::from_millis(20));
    (p99, bytes as f64 * 8.0 / w.now.since(begun).as_secs_f64())
}

/// SRP-43: what is redundant goes by two paths although others wait, so that it is late only where both lose it.
#[test]
fn what_goes_by_two_paths_is_late_only_where_both_lose_it() {
    for as_packets in [false, true] {
        let once = paced(Policy::Speed, as_packets);
        let twice = paced(Policy::Redundant, as_packets);
        let is_better = twice.0 <= Duration::from_millis(20) && once.0 >= 2 * twice.0;
        assert!(is_better && twice.1 > 0.97 * once.1, "{as_packets}: {once:?}, {twice:?}");
    }
}

/// SRP-43: what is redundant and sent once is sent once by each of two paths, and lost where both lose it.
#[test]
fn packets_that_are_sent_once_go_by_two_paths_too() {
    let lost = |policy| {
        let mut w = Bond::warm(&[(20, 20, 0.2), (20, 20, 0.2)]);
        let (class, data) = (PacketClass { policy, ..PacketClass::ONCE }, &[7; 200]);
        let mut came = 0;
        for _ in 0..2_000 {
            let packet = OutgoingPacket { client: 1, flow: 1, ecn_capable: false, class, data };
            w.ends[1].packets().unwrap().send(w.now, &packet).unwrap();
            let next = w.now + Duration::from_millis(5);
            while w.step(next) {}
            if let Some(lane) = w.ends[0].packets() {
                while lane.front().is_some() {
                    lane.pop();
                    came += 1;
                }
            }
        }
        1.0 - f64::from(came) / 2_000.0
    };
    let (once, twice) = (lost(Policy::Speed), lost(Policy::Redundant));
    assert!((0.15..0.25).contains(&once) && twice < 0.06, "{once} and {twice}");
}

/// SRP-41, SRP-42: paths come, go, cost and are used up, and streams of all policies arrive byte for byte once nothing
/// keeps them.
#[test]
fn whatever_policies_are_the_bytes_arrive() {
    for seed in 0..20 {
        let mut w = Bond::new(seed, &[(20, 20, 0.02), (10, 40, 0.05), (5, 100, 0.02)]);
        let mut random = Seed::from_u64(seed).stream("policies");
        for second in 1..12 {
            let policy = Policy::of_number(random.below(6) as u32).unwrap();
            Download::run_by(&mut w, policy, 300_000, Time::from_secs(second));
            let (now, path) = (w.now, random.below(3) as usize);
            match random.below(3) {
                0 => w.dark.push((path, now, now + Duration::from_millis(random.below(2_000)))),
                1 => w.ends[0].set_path_status(now, PathId(path as u8), PathStatus::SPENT),
                _ => {
                    let (cost, below) = (random.below(4) as u32, Rate::from_mbps(random.below(20)));
                    let status = PathStatus { cost, below };
                    w.ends[0].set_path_status(now, PathId(path as u8), status);
                }
            }
        }
        (0..3).for_each(|path| w.ends[0].set_path_status(w.now, PathId(path), PathStatus::FREE));
        for number in 0..6 {
            let policy = Policy::of_number(number).unwrap();
            let until = w.now + Duration::from_secs(20);
            let got = Download::run_by(&mut w, policy, 300_000, until);
            let came = got.came.last().unwrap().1;
            assert_eq!(came, 300_000, "seed {seed}, {policy:?}");
        }
    }
}
