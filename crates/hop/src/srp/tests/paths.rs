//! Several paths under one association.

mod policies;
mod shared;

use lasthop_units::LinkEvent;

use super::*;
use crate::policy::Policy;
use crate::streams::StreamEvent;

/// Two ends with a pipe each way for each path.
struct Bond {
    now: Time,
    ends: [Srp; 2],
    pipes: Vec<[Pipe; 2]>,
    /// When each path lets nothing pass.
    dark: Vec<(usize, Time, Time)>,
    /// An end is polled only when something came, a timer ran out or its application did something, as drivers do.
    on_events: bool,
    /// That happened.
    woken: [bool; 2],
}

/// A path's rate in Mbit/s, delay in ms and loss.
type Way = (u64, u64, f64);

impl Bond {
    fn new(seed: u64, ways: &[Way]) -> Self {
        let config = HopConfig::default();
        let mut ends = pair(&config, &config, Time::ZERO);
        let pipes = ways.iter().enumerate().map(|(n, (mbps, ms, loss))| {
            if n > 0 {
                ends.iter_mut().for_each(|end| assert!(end.add_path(Time::ZERO, PathId(n as u8))));
            }
            ["up", "down"].map(|way| Pipe {
                rate: Rate::from_mbps(*mbps),
                delay: Duration::from_millis(*ms),
                loss: *loss,
                ..Pipe::new(seed, &std::format!("{way} {n}"))
            })
        });
        let pipes = pipes.collect();
        Self { now: Time::ZERO, ends, pipes, dark: Vec::new(), on_events: false, woken: [true; 2] }
    }

    fn is_dark(&self, path: usize) -> bool {
        self.dark.iter().any(|(p, from, to)| *p == path && (*from..*to).contains(&self.now))
    }

    /// Has the second end send by a stream all that there is room for, and the first one take what has come: how much.
    fn pump(&mut self, id: StreamId) -> usize {
        let [mobile, base] = &mut self.ends;
        while let Ok(room) = base.send_space(id).map(|room| room.len())
            && room > 0
        {
            base.commit(id, room);
        }
        let came = mobile.received(id).len();
        mobile.consume(id, came);
        came
    }

    /// Runs to the next event, at most to `until`; false once there.
    fn step(&mut self, until: Time) -> bool {
        let mut buf = [0; 2000];
        for side in 0..2 {
            if self.on_events && !core::mem::take(&mut self.woken[side]) {
                continue;
            }
            while let Some(p) = self.ends[side].poll(self.now, &mut buf) {
                let path = usize::from(p.path.0);
                let silent = self.is_dark(path);
                self.pipes[path][side].send(self.now, silent, path, p.number, &buf[..p.len]);
            }
        }
        let arrivals = self.pipes.iter().flatten().filter_map(|p| p.flying.front().map(|f| f.0));
        let timers = self.ends.iter().filter_map(Srp::next_timeout);
        let next = arrivals.chain(timers).min().unwrap_or(Time::NEVER);
        if next >= until {
            self.now = until;
            return false;
        }
        self.now = self.now.max(next);
        for path in 0..self.pipes.len() {
            for side in 0..2 {
                while self.pipes[path][side].flying.front().is_some_and(|f| f.0 <= self.now)
                    && let Some(f) = self.pipes[path][side].flying.pop_front()
                {
                    if !self.is_dark(path) {
                        let id = PathId(f.1 as u8);
                        self.ends[1 - side].handle(self.now, id, f.2, &f.3).unwrap();
                        self.woken[1 - side] = true;
                    }
                }
            }
        }
        for (end, woken) in self.ends.iter_mut().zip(&mut self.woken) {
            if end.next_timeout().is_some_and(|t| t <= self.now) {
                end.handle_timeout(self.now);
                *woken = true;
            }
        }
        true
    }
}

/// What came of a download, and when.
struct Download {
    came: Vec<(Time, u64)>,
}

impl Download {
    /// Of so many bytes at most, until then; every byte is looked at.
    fn run(w: &mut Bond, size: u64, until: Time) -> Self {
        Self::run_by(w, Policy::Speed, size, until)
    }

    /// The same by paths that this policy admits.
    fn run_by(w: &mut Bond, policy: Policy, size: u64, until: Time) -> Self {
        let id = w.ends[1].open().unwrap();
        w.ends[1].set_policy(id, policy);
        let (mut written, mut read, mut came) = (0, 0, vec![(w.now, 0)]);
        while read < size {
            while written < size
                && let Ok(room) = w.ends[1].send_space(id)
                && !room.is_empty()
            {
                let n = room.len().min((size - written) as usize);
                fill(&mut room[..n], written);
                w.ends[1].commit(id, n);
                written += n as u64;
            }
            for end in &mut w.ends {
                while let Some(event) = end.poll_event() {
                    assert!(!matches!(event, StreamEvent::Closed(_)));
                }
            }
            loop {
                let data = w.ends[0].received(id);
                let n = data.len();
                check(data, read);
                if n == 0 {
                    break;
                }
                w.ends[0].consume(id, n);
                read += n as u64;
                came.push((w.now, read));
            }
            if !w.step(until) {
                break;
            }
        }
        Self { came }
    }

    fn goodput(&self, from: Time, to: Time) -> f64 {
        let at = |t| self.came.iter().take_while(|p| p.0 <= t).last().map_or(0, |p| p.1);
        (at(to) - at(from)) as f64 * 8.0 / (to - from).as_secs_f64()
    }

    /// The longest time without a byte.
    fn gap(&self, from: Time, to: Time) -> Duration {
        let within = self.came.windows(2).filter(|w| w[0].0 >= from && w[1].0 <= to);
        within.map(|w| w[1].0.since(w[0].0)).max().unwrap_or_default()
    }
}

/// What TCP's or anyone's bytes get at most of the rates' sum, with these losses.
fn limit(ways: &[Way]) -> f64 {
    ways.iter().map(|(mbps, _, loss)| *mbps as f64 * 1e6 * (1.0 - loss) * 0.955).sum()
}

/// The share of the limit that a download gets from the tenth second on, and its longest time without a byte.
fn steady(ways: &[Way]) -> (f64, Duration) {
    let (from, to) = (Time::from_secs(10), Time::from_secs(25));
    let mut w = Bond::new(7, ways);
    let got = Download::run(&mut w, FOREVER, to);
    (got.goodput(from, to) / limit(ways), got.gap(from, to))
}

/// SRP-38, SRP-39: paths carry together what each of them could, whatever they lose and however their delays differ, and
/// bytes keep coming.
#[test]
fn paths_add_up() {
    for (ways, least) in [
        (&[(20, 20, 0.0), (20, 20, 0.0)][..], 0.99),
        (&[(20, 20, 0.05), (20, 20, 0.05)], 0.97),
        (&[(20, 20, 0.2), (20, 20, 0.2)], 0.97),
        (&[(20, 20, 0.0), (10, 150, 0.0)], 0.98),
        (&[(20, 20, 0.05), (10, 150, 0.0)], 0.95),
        (&[(20, 20, 0.0), (10, 150, 0.05)], 0.95),
        (&[(20, 20, 0.0), (2, 20, 0.0)], 0.98),
        (&[(20, 20, 0.05), (2, 20, 0.05)], 0.95),
        (&[(5, 20, 0.0), (50, 200, 0.0)], 0.95),
        (&[(20, 20, 0.0), (10, 60, 0.0), (5, 250, 0.0)], 0.95),
    ] {
        let (share, gap) = steady(ways);
        assert!(share >= least && gap <= Duration::from_millis(250), "{ways:?}: {share} {gap:?}");
    }
}

/// SRP-39: of pairs of paths that are drawn at random most carry together what each could, and hardly one carries less than
/// its better path alone.
#[test]
fn pairs_drawn_at_random_add_up() {
    let mut random = Seed::from_u64(5).stream("ways");
    let mut spread = |a: f64, b: f64| (a * (b / a).powf(random.uniform())).round() as u64;
    let ways: Vec<[(u64, u64); 2]> =
        (0..16).map(|_| [(); 2].map(|()| (spread(1.0, 100.0), spread(5.0, 300.0)))).collect();
    let mut shares = Vec::new();
    for (n, pair) in ways.into_iter().enumerate() {
        let loss = [0.0, 0.02, 0.1][n % 3];
        let ways = [(pair[0].0, pair[0].1, 0.0), (pair[1].0, pair[1].1, loss)];
        let (share, _) = steady(&ways);
        let best = limit(&ways[..1]).max(limit(&ways[1..]));
        assert!(share * limit(&ways) >= 0.9 * best, "{ways:?}: {share}");
        shares.push(share);
    }
    shares.sort_by(f64::total_cmp);
    assert!(shares[8] >= 0.95, "{shares:?}");
}

/// SRP-38: a first path that has carried nothing before another one answers is measured all the same, and carries.
#[test]
fn a_first_path_that_answers_last_carries_too() {
    for ways in [[(20, 150, 0.0), (20, 20, 0.0)], [(20, 20, 0.0), (20, 150, 0.0)]] {
        let mut w = Bond::new(7, &ways);
        while w.step(Time::from_secs(1)) {}
        let (from, to) = (Time::from_secs(5), Time::from_secs(15));
        let share = Download::run(&mut w, FOREVER, to).goodput(from, to) / limit(&ways);
        assert!(share > 0.95, "{ways:?}: {share}");
    }
}

/// SRP-39: what a fast path loses, and must repeat, does not keep a slower one from what is new.
#[test]
fn a_fast_path_that_loses_keeps_nobody_waiting() {
    for ways in [
        [(2, 11, 0.12), (21, 194, 0.0)],
        [(6, 10, 0.15), (60, 200, 0.02)],
        [(27, 30, 0.15), (60, 225, 0.04)],
        [(60, 20, 0.1), (90, 80, 0.12)],
    ] {
        let (share, _) = steady(&ways);
        assert!(share > 0.85, "{ways:?}: {share}");
    }
}

/// SRP-40: a path that goes dark without a word is left at once, and used again when it is back.
#[test]
fn a_dark_path_is_left_and_used_again() {
    let at = Time::from_secs;
    for (ways, dark, longest) in [
        (&[(20, 20, 0.0), (20, 20, 0.0)][..], 0, 150),
        (&[(20, 20, 0.0), (20, 20, 0.0)], 1, 150),
        (&[(20, 20, 0.0), (10, 150, 0.0)], 0, 150),
        (&[(20, 20, 0.0), (10, 150, 0.0)], 1, 900),
    ] {
        let mut w = Bond::new(7, ways);
        w.dark.push((dark, at(10), at(15)));
        let got = Download::run(&mut w, FOREVER, at(20));
        let gap = got.gap(at(5), at(20));
        assert!(gap <= Duration::from_millis(longest), "{ways:?}, {dark}: {gap:?}");
        let alone = limit(&[ways[1 - dark]]);
        let shares = [
            got.goodput(at(11), at(15)) / alone,
            got.goodput(at(15), at(16)) / alone,
            got.goodput(at(16), at(20)) / limit(ways),
        ];
        assert!(shares[0] > 0.98 && shares[1] > 1.05 && shares[2] > 0.95, "{ways:?}: {shares:?}");
    }
}

/// SRP-40: what was on its way by a path that was left is acknowledged all the same, and what arrived is not sent again.
#[test]
fn what_arrives_by_a_path_that_was_left_counts() {
    let mut w = Bond::new(7, &[(20, 20, 0.0), (1, 20, 0.0)]);
    let (at, later) = (Time::from_secs(5), Time::from_secs(6));
    let id = w.ends[1].open().unwrap();
    let fill = |w: &mut Bond, until| {
        loop {
            w.pump(id);
            if !w.step(until) {
                break;
            }
        }
    };
    fill(&mut w, at);
    let before = w.ends[1].stats().bytes_retransmitted;
    // No acknowledgement passes.
    w.pipes[0][0].loss = 1.0;
    fill(&mut w, at + Duration::from_millis(300));
    let inflight = w.ends[1].stats().inflight;
    w.pipes[0][0].loss = 0.0;
    fill(&mut w, later);
    let again = w.ends[1].stats().bytes_retransmitted - before;
    assert!(inflight > Bytes::new(90_000), "{inflight}");
    assert!(again.get() < inflight.get() / 2, "{again} of {inflight}");
}

/// SRP-40: links are lost and come back, as their mobile is told at once and its base never, and the bytes are the same.
#[test]
fn links_come_and_go() {
    let mut w = Bond::new(3, &[(20, 20, 0.02), (10, 40, 0.02), (5, 100, 0.02)]);
    let mut random = Seed::from_u64(3).stream("paths");
    for second in 1..20 {
        Download::run(&mut w, 1_000_000, Time::from_secs(second));
        let (now, path) = (w.now, random.below(3) as usize);
        let there = (0..3).filter(|path| !w.is_dark(*path)).count();
        let event = match w.dark.iter_mut().find(|dark| dark.0 == path && dark.2 == Time::NEVER) {
            Some(dark) => {
                dark.2 = now;
                LinkEvent::Up
            }
            None if there > 1 => {
                w.dark.push((path, now, Time::NEVER));
                LinkEvent::Down
            }
            None => continue,
        };
        w.ends[0].handle_link_event(now, PathId(path as u8), event);
    }
    assert!(w.dark.len() > 5, "{:?}", w.dark);
    let done = Download::run(&mut w, 1_000_000, Time::from_secs(40));
    assert_eq!(done.came.last().map(|(_, bytes)| *bytes), Some(1_000_000));
}

/// SRP-39: a short transfer takes no longer than by its better path alone, whatever the other one is.
#[test]
fn a_short_transfer_waits_for_no_slower_path() {
    for ways in [
        &[(20, 20, 0.0), (20, 20, 0.0)][..],
        &[(20, 20, 0.0), (10, 150, 0.0)],
        &[(20, 20, 0.0), (2, 20, 0.05)],
    ] {
        let took = |ways: &[Way], warm: u64| {
            let mut w = Bond::new(7, ways);
            Download::run(&mut w, warm, Time::from_secs(5));
            let begun = w.now;
            let got = Download::run(&mut w, 100_000, Time::from_secs(20));
            got.came.last().unwrap().0.since(begun)
        };
        for warm in [0, 3_000_000] {
            let (both, alone) = (took(ways, warm), took(&ways[..1], warm));
            assert!(both <= alone * 21 / 20, "{ways:?} after {warm}: {both:?} and {alone:?}");
        }
    }
}

/// The 99th percentile of how long writes of 500 bytes, one every 2 ms, are on their way in order.
fn paced_p99(ways: &[Way], policy: Policy, seed: u64) -> Duration {
    const SIZE: usize = 500;
    const EVERY: Duration = Duration::from_millis(2);
    let mut w = Bond { on_events: true, ..Bond::new(seed, ways) };
    let id = w.ends[1].open().unwrap();
    w.ends[1].set_policy(id, policy);
    let (mut next, mut written, mut due, mut delays) = (Time::ZERO, 0, VecDeque::new(), vec![]);
    let until = Time::from_secs(60);
    while w.now < until {
        while next <= w.now {
            due.push_back(next);
            next += EVERY;
        }
        while written < due.len() * SIZE
            && let Ok(room) = w.ends[1].send_space(id)
            && !room.is_empty()
        {
            let n = room.len().min(due.len() * SIZE - written);
            w.ends[1].commit(id, n);
            w.woken[1] = true;
            written += n;
        }
        w.step(next.min(until));
        let came = w.ends[0].received(id).len() / SIZE * SIZE;
        w.ends[0].consume(id, came);
        w.woken[0] |= came > 0;
        written -= came;
        for sent in due.drain(..came / SIZE) {
            if sent >= Time::from_secs(5) {
                delays.push(w.now - sent);
            }
        }
    }
    delays.sort_unstable();
    delays[delays.len() * 99 / 100]
}

/// SRP-39: what keeps a pace is late where it is lost, by a round trip of the path that brings it first, and seldom by two.
#[test]
fn a_paced_stream_is_late_by_one_round_trip() {
    let ms = Duration::from_millis;
    for ways in [&[(20, 20, 0.05), (10, 150, 0.05)][..], &[(20, 20, 0.05)]] {
        let mut all: Vec<_> = (0..4).map(|seed| paced_p99(ways, Policy::Speed, seed)).collect();
        all.sort_unstable();
        assert!(all[3] < ms(75), "{all:?} by {ways:?}");
    }
}

/// SRP-39: which path is the first one makes no difference: what is little goes by the nearest, though its rate was never
/// measured and another one's was.
#[test]
fn the_order_of_paths_does_not_count() {
    let ms = Duration::from_millis;
    let late = paced_p99(&[(10, 150, 0.0), (20, 20, 0.0)], Policy::Speed, 1);
    assert!(late < ms(25), "{late:?}");
    // The near path joins when the far one is known.
    let mut w = Bond::new(1, &[(10, 150, 0.0), (20, 20, 0.0)]);
    w.dark.push((1, Time::ZERO, Time::from_secs(4)));
    Download::run(&mut w, 2_000_000, Time::from_secs(5));
    while w.step(Time::from_secs(6)) {}
    let begun = w.now;
    let got = Download::run(&mut w, 100_000, Time::from_secs(20));
    let took = got.came.last().unwrap().0.since(begun);
    assert!(took < ms(250), "{took:?}");
}

/// SRP-43: a second path that is far keeps nothing waiting that the first would have repeated sooner.
#[test]
fn what_is_redundant_is_no_later_than_by_speed() {
    let ways = [(20, 20, 0.05), (10, 150, 0.05)];
    for seed in 0..2 {
        let of = |policy| paced_p99(&ways, policy, seed);
        let (redundant, speed) = (of(Policy::Redundant), of(Policy::Speed));
        assert!(redundant <= speed * 11 / 10, "{seed}: {redundant:?} and {speed:?}");
    }
}
