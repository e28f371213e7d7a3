//! Which paths share a bottleneck: those whose queues rise together.
//!
//! As RFC 8382 has it, one-way delays are told by the receiver's stamps, are gathered over base intervals, and say nothing
//! where no queue is to be seen. Its summary statistics (section 3.2) are taken over many seconds, in which two links that are
//! alike may agree. Here the delays themselves are compared, interval by interval: one queue is one and the same
//! series for all who pass it, but for the way from there to the receiver, which is a lag. Two queues of two paths that are
//! equal in all can be in step for a while; so paths that are suspected grow by different steps from then on, by which two
//! queues fall out of step, and one does not.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;

use smallvec::SmallVec;

use super::sample::Sample;
use crate::path_id::PATHS_MAX;

/// The base interval T (RFC 8382, section 2.1). Its 350 ms is for lags that are not looked for; queues that are kept short
/// rise and fall within a few round trips.
const INTERVAL: Duration = Duration::from_millis(20);
/// Intervals that are compared (N),
const COMPARED: i64 = 250;
/// every so many,
const EVERY: i64 = 125;
/// so many intervals after the last of them, since acknowledgements by one path return later than those by another.
const BEHIND: i64 = 40;
/// The ways from the bottleneck to the receiver are apart by so many intervals at most.
const LAG_MAX: i64 = 10;
/// So many in a row without a delay are filled in between those around; after more it is another series.
const GAP_MAX: i64 = 10;
/// Intervals remembered of a path.
const MEMORY: i64 = COMPARED + BEHIND + GAP_MAX;
/// Delays that vary by less (standard deviation) show no queue.
const VISIBLE_US: f64 = 300.0;
/// Correlation of those that rise together, and of those that do not any more.
const TOGETHER: f64 = 0.8;
const APART: f64 = 0.6;
/// Comparisons in a row that must find them together: the last one has nothing from before they were suspected.
const COMPARISONS: u8 = 3;
/// The steps of paths that may share are apart by so much of the mean.
const SKEW: f64 = 0.5;

/// The delays of one path, interval by interval of the receiver's clock.
#[derive(Debug)]
struct Delays {
    /// The mean of each interval in microseconds, from `origin_us` on, at its number modulo the length.
    means: Box<[f32]>,
    origin_us: i64,
    /// Those that are known without a gap.
    known: Range<i64>,
    /// The interval at hand, the sum of its delays, and how many there were.
    at: i64,
    sum: f64,
    count: u32,
}

impl Delays {
    fn new() -> Self {
        Self {
            means: alloc::vec![0.0; MEMORY as usize].into_boxed_slice(),
            origin_us: 0,
            known: 0..0,
            at: 0,
            sum: 0.0,
            count: 0,
        }
    }

    fn mean(&self, interval: i64) -> f64 {
        f64::from(self.means[interval.rem_euclid(MEMORY) as usize])
    }

    /// A datagram that arrived in this interval was on its way for so long.
    fn add(&mut self, interval: i64, delay_us: i64) {
        if interval > self.at && self.count > 0 {
            self.end_interval();
        }
        if self.count == 0 {
            self.at = interval;
            if interval - self.known.end > GAP_MAX || self.known.is_empty() {
                (self.origin_us, self.known) = (delay_us, interval..interval);
            }
        }
        self.sum += (delay_us - self.origin_us) as f64;
        self.count += 1;
    }

    fn end_interval(&mut self) {
        let mean = self.sum / f64::from(self.count);
        let before = if self.known.is_empty() { mean } else { self.mean(self.known.end - 1) };
        let steps = (self.at + 1 - self.known.end) as f64;
        for (n, interval) in (self.known.end..=self.at).enumerate() {
            let filled = before + (mean - before) * (n as f64 + 1.0) / steps;
            self.means[interval.rem_euclid(MEMORY) as usize] = filled as f32;
        }
        self.known = self.known.start.max(self.at + 1 - MEMORY)..self.at + 1;
        (self.sum, self.count) = (0.0, 0);
    }

    fn knows(&self, intervals: &Range<i64>) -> bool {
        self.known.start <= intervals.start && intervals.end <= self.known.end
    }
}

/// How closely two paths' delays follow each other over these intervals, at the lag at which they do most. None where either
/// is not known or shows no queue.
fn correlation(a: &Delays, b: &Delays, intervals: &Range<i64>) -> Option<f64> {
    if !a.knows(intervals) || !b.knows(intervals) {
        return None;
    }
    let lags = (-LAG_MAX..=LAG_MAX).filter_map(|lag| {
        let at = intervals.start + lag.max(0)..intervals.end + lag.min(0);
        let n = (at.end - at.start) as f64;
        let (mut x, mut y, mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0, 0.0, 0.0);
        let first = (a.mean(at.start), b.mean(at.start - lag));
        for interval in at {
            let (p, q) = (a.mean(interval) - first.0, b.mean(interval - lag) - first.1);
            (x, y, xx, yy, xy) = (x + p, y + q, xx + p * p, yy + q * q, xy + p * q);
        }
        let [x_var, y_var] = [xx / n - (x / n) * (x / n), yy / n - (y / n) * (y / n)];
        let is_visible = x_var.min(y_var) >= VISIBLE_US * VISIBLE_US;
        is_visible.then(|| (xy / n - x / n * (y / n)) / libm::sqrt(x_var * y_var))
    });
    lags.max_by(f64::total_cmp)
}

/// Which part of a flow a path is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Share {
    /// Paths that have one flow's part of a queue together, this one among them.
    pub(super) sharers: u8,
    /// What the rate grows by is so many times what it would be: another one for each path that may share.
    pub(super) skew: f64,
}

impl Share {
    /// A path by itself.
    pub(super) const ALONE: Self = Self { sharers: 1, skew: 1.0 };

    /// The rate of a flow of which paths with this rate are equal parts.
    pub(super) fn flow(self, rate: f64) -> f64 {
        f64::from(self.sharers) * rate
    }

    /// What part of it each of them is.
    pub(super) fn part(self) -> f64 {
        1.0 / f64::from(self.sharers)
    }
}

/// Finds the paths of an association that share a bottleneck.
#[derive(Debug, Default)]
pub(super) struct SharedBottlenecks {
    /// Of each path, once there are two.
    delays: Vec<Delays>,
    /// The time of the last arrival by the receiver's clock, unwrapped, in microseconds.
    now_us: Option<i64>,
    /// The last interval of the next comparison.
    next: i64,
    /// Comparisons in a row that have found two paths together; of each pair, that with the lower place first.
    together: [[u8; PATHS_MAX]; PATHS_MAX],
}

impl SharedBottlenecks {
    /// There are so many paths.
    pub(super) fn set_paths(&mut self, paths: usize) {
        self.delays.resize_with(paths, Delays::new);
    }

    /// Takes in what an acknowledgement showed of a path. True if paths were compared by it.
    pub(super) fn on_sample(&mut self, path: usize, s: &Sample) -> bool {
        // A small datagram is not as long on the air.
        if path >= self.delays.len() || 4 * s.size < 3 * s.datagram {
            return false;
        }
        // Each path has unwrapped the receiver's clock by itself.
        let now_us = self.now_us.unwrap_or(i64::from(s.arrival_us as u32));
        let since = (s.arrival_us as u32).wrapping_sub(now_us as u32) as i32;
        let arrival_us = now_us + i64::from(since);
        self.now_us = Some(now_us.max(arrival_us));
        let interval = arrival_us.div_euclid(INTERVAL.as_micros() as i64);
        self.delays[path].add(interval, s.delay_alone_us());
        let end = interval - BEHIND;
        if end < self.next {
            return false;
        }
        self.compare(&(end - COMPARED..end));
        self.next = end + EVERY;
        true
    }

    fn compare(&mut self, intervals: &Range<i64>) {
        for b in 1..self.delays.len() {
            for a in 0..b {
                let found = correlation(&self.delays[a], &self.delays[b], intervals);
                let together = &mut self.together[a][b];
                *together = match found {
                    Some(r) if r >= TOGETHER => (*together + 1).min(COMPARISONS),
                    Some(r) if r >= APART && *together == COMPARISONS => COMPARISONS,
                    _ => 0,
                };
            }
        }
    }

    /// Whether two paths were found together in so many comparisons at least.
    fn are_together(&self, a: usize, b: usize, comparisons: u8) -> bool {
        self.together[a.min(b)][a.max(b)] >= comparisons
    }

    /// The places of those that share a bottleneck with a path, that one among them, by so many comparisons at least.
    fn group(&self, path: usize, comparisons: u8) -> SmallVec<[usize; PATHS_MAX]> {
        let mut group = SmallVec::from_slice(&[path]);
        let mut seen = 0;
        while let Some(member) = group.get(seen).copied() {
            for other in 0..self.delays.len() {
                if !group.contains(&other) && self.are_together(member, other, comparisons) {
                    group.push(other);
                }
            }
            seen += 1;
        }
        group
    }

    /// Which part of a flow a path is.
    pub(super) fn share(&self, path: usize) -> Share {
        let suspects = self.group(path, 1);
        let rank = suspects.iter().filter(|other| **other < path).count();
        let skew = match suspects.len() {
            1 => 1.0,
            n => 1.0 + SKEW * (0.5 - rank as f64 / (n - 1) as f64),
        };
        Share { sharers: self.group(path, COMPARISONS).len() as u8, skew }
    }

    /// The places of the paths that share a bottleneck with this one.
    pub(super) fn others(&self, path: usize) -> impl Iterator<Item = usize> {
        self.group(path, COMPARISONS).into_iter().filter(move |other| *other != path)
    }
}

#[cfg(test)]
mod tests {
    use lasthop_units::{Seed, Time};

    use super::*;

    /// By the receiver's clock, which wraps ten seconds later.
    const BEGUN_US: u64 = (1 << 32) - 10_000_000;
    /// Of delays, in microseconds.
    const APART_US: u64 = 5_000;

    /// The delays of a queue that wanders by so much from one to the next, in microseconds.
    fn queue(name: &str, step_us: u64) -> Vec<u64> {
        let mut random = Seed::from_u64(1).stream(name);
        let mut delay = 25_000;
        let wander = core::iter::repeat_with(|| {
            delay = (delay + random.below(2 * step_us + 1) - step_us).clamp(20_000, 30_000);
            delay
        });
        wander.take(4_000).collect()
    }

    /// What an acknowledgement by a path shows that has unwrapped the clock by itself.
    fn sample(path: usize, arrival_us: u64, delay_us: u64, size: usize) -> Sample {
        let arrival_us = BEGUN_US + arrival_us + ((path as u64) << 32);
        Sample {
            latest: 0,
            sent_at: Time::from_micros(arrival_us - delay_us),
            behind_us: 0,
            size,
            arrival_us,
            delivered: 0,
            lost: 0,
            counts: (0, 0),
            burst: 1.0,
            after_idle: false,
            next_number: 0,
            srtt: Duration::ZERO,
            inflight: 0,
            datagram: 1472,
        }
    }

    /// What is known after 20 s of paths with these delays, which their datagrams show so many microseconds later, if at all.
    fn known(paths: &[(&[u64], u64)], shows: impl Fn(usize, usize) -> bool) -> SharedBottlenecks {
        let mut shared = SharedBottlenecks::default();
        shared.set_paths(paths.len());
        for n in 0..4_000 {
            for (path, (delays, later_us)) in paths.iter().enumerate() {
                if shows(path, n) {
                    let at = n as u64 * APART_US + later_us;
                    shared.on_sample(path, &sample(path, at, delays[n] + later_us, 1472));
                    // One that is small met no queue.
                    shared.on_sample(path, &sample(path, at, *later_us, 100));
                }
            }
        }
        shared
    }

    fn sharers<const N: usize>(shared: &SharedBottlenecks) -> [u8; N] {
        core::array::from_fn(|path| shared.share(path).sharers)
    }

    #[test]
    fn one_queue_is_found_however_far_it_is_from_the_receiver() {
        let one = queue("one", 500);
        for later_us in [0, 50_000, 190_000] {
            assert_eq!(sharers(&known(&[(&one, 0), (&one, later_us)], |_, _| true)), [2, 2]);
        }
        let far = known(&[(&one, 0), (&one, 400_000)], |_, _| true);
        assert_eq!(sharers(&far), [1, 1], "further than is looked for");
    }

    #[test]
    fn other_queues_and_none_are_not_taken_for_one() {
        let [one, other] = ["one", "other"].map(|name| queue(name, 500));
        assert_eq!(sharers(&known(&[(&one, 0), (&other, 0)], |_, _| true)), [1, 1]);
        let noise: Vec<u64> = one.iter().map(|delay| 20_000 + (delay - 20_000) / 50).collect();
        assert_eq!(sharers(&known(&[(&noise, 0), (&noise, 0)], |_, _| true)), [1, 1]);
    }

    #[test]
    fn a_path_that_pauses_tells_nothing() {
        let one = queue("one", 500);
        // For 150 ms, and for 300 ms, of each second.
        for (pause, expected) in [(30, [2, 2]), (60, [1, 1])] {
            let shows = |path, n| path == 0 || n % 200 >= pause;
            assert_eq!(sharers(&known(&[(&one, 0), (&one, 0)], shows)), expected);
        }
    }

    #[test]
    fn groups_are_told_from_each_other() {
        let [one, other] = ["one", "other"].map(|name| queue(name, 500));
        let paths: [(&[u64], u64); 5] =
            [(&one, 0), (&other, 0), (&one, 20_000), (&other, 40_000), (&one, 150_000)];
        let shared = known(&paths, |_, _| true);
        assert_eq!(sharers(&shared), [3, 2, 3, 2, 3]);
        assert_eq!(shared.others(2).collect::<Vec<_>>(), [0, 4]);
        let skews = [0, 2, 4].map(|path| shared.share(path).skew);
        assert_eq!(skews, [1.25, 1.0, 0.75]);
    }
}
