//! What a process has carried of late, second by second, so that whoever begins to look sees that too.
//!
//! Sums are added to where something happens, and a second is closed when the next thing happens or somebody asks:
//! nothing is gone through once a second, and a process that is at rest stays so.

use std::collections::VecDeque;

use lasthop_units::Time;

use crate::PastReport;

/// How many seconds are remembered.
pub const SECONDS: usize = 120;

/// What was done since the last time that this was asked.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Progress {
    /// Bytes into the hop.
    pub to_hop: u64,
    /// Bytes out of the hop.
    pub from_hop: u64,
    /// The share of what is sent that is lost, if that is known.
    pub loss: Option<f64>,
    /// The queue in milliseconds, if that is known.
    pub queue_ms: Option<f64>,
}

/// What bytes have been counted so far, for [`Progress`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counted {
    to_hop: u64,
    from_hop: u64,
}

impl Counted {
    /// So many have been counted by now: how many more these are, into the hop and out of it. A count that is less
    /// than before has begun again.
    pub fn advance(&mut self, to_hop: u64, from_hop: u64) -> (u64, u64) {
        let was = std::mem::replace(self, Self { to_hop, from_hop });
        let more = |now: u64, was: u64| now.checked_sub(was).unwrap_or(now);
        (more(to_hop, was.to_hop), more(from_hop, was.from_hop))
    }
}

/// The greatest of what several say, of which each may say something else later.
#[derive(Clone, Copy, Debug)]
struct Worst<I> {
    value: Option<f64>,
    /// Who said so in this second.
    of: Option<I>,
}

impl<I: PartialEq> Worst<I> {
    fn take(&mut self, of: I, value: Option<f64>) {
        let Some(value) = value else { return };
        let is_own = self.of.as_ref().is_none_or(|worst| *worst == of);
        if is_own || self.value.is_none_or(|worst| value > worst) {
            *self = Self { value: Some(value), of: Some(of) };
        }
    }

    /// In the next second nobody has said anything yet; until then it is as it was.
    fn close(&mut self) -> Option<f64> {
        self.of = None;
        self.value
    }
}

/// One second.
#[derive(Clone, Copy, Default, Debug)]
struct Second {
    to_hop: u64,
    from_hop: u64,
    loss: Option<f64>,
    queue_ms: Option<f64>,
}

/// The last [`SECONDS`] of a process whose associations are named by `I`.
#[derive(Clone, Debug)]
pub struct Past<I> {
    /// The seconds that are over, the latest last.
    seconds: VecDeque<Second>,
    /// How many seconds since the start are over.
    over: u64,
    /// Bytes of the second that is not over.
    to_hop: u64,
    from_hop: u64,
    loss: Worst<I>,
    queue_ms: Worst<I>,
}

impl<I: Copy + PartialEq> Default for Past<I> {
    fn default() -> Self {
        let unknown = Worst { value: None, of: None };
        Self {
            seconds: VecDeque::with_capacity(SECONDS),
            over: 0,
            to_hop: 0,
            from_hop: 0,
            loss: unknown,
            queue_ms: unknown,
        }
    }
}

impl<I: Copy + PartialEq> Past<I> {
    /// At `now`, on the process's clock, `of` has done this.
    pub fn add(&mut self, now: Time, of: I, progress: Progress) {
        self.close(now);
        self.to_hop = self.to_hop.saturating_add(progress.to_hop);
        self.from_hop = self.from_hop.saturating_add(progress.from_hop);
        self.loss.take(of, progress.loss);
        self.queue_ms.take(of, progress.queue_ms);
    }

    /// The seconds that are over at `now`.
    pub fn report(&self, now: Time) -> PastReport {
        let mut at_present = self.clone();
        at_present.close(now);
        let Self { seconds, over, .. } = &at_present;
        PastReport {
            until_s: *over,
            to_hop_bps: seconds.iter().map(|s| s.to_hop.saturating_mul(8)).collect(),
            from_hop_bps: seconds.iter().map(|s| s.from_hop.saturating_mul(8)).collect(),
            loss: seconds.iter().map(|s| s.loss).collect(),
            queue_ms: seconds.iter().map(|s| s.queue_ms).collect(),
        }
    }

    /// Closes the seconds that are over.
    fn close(&mut self, now: Time) {
        let over = now.as_micros() / 1_000_000;
        // Of more than are remembered the first make no difference.
        self.over = self.over.max(over.saturating_sub(SECONDS as u64 + 1));
        while self.over < over {
            let second = Second {
                to_hop: std::mem::take(&mut self.to_hop),
                from_hop: std::mem::take(&mut self.from_hop),
                loss: self.loss.close(),
                queue_ms: self.queue_ms.close(),
            };
            if self.seconds.len() >= SECONDS {
                self.seconds.pop_front();
            }
            self.seconds.push_back(second);
            self.over += 1;
        }
    }
}

impl PastReport {
    /// Adds what another worker of the process reports, whose clock is the same.
    pub fn join(&mut self, other: &Self) {
        let from = |past: &Self| past.until_s.saturating_sub(past.to_hop_bps.len() as u64);
        let (own_from, other_from) = (from(self), from(other));
        for second in own_from..self.until_s {
            let Some(at) = second.checked_sub(other_from) else { continue };
            let (to, at) = ((second - own_from) as usize, at as usize);
            let sum = |into: &mut [u64], of: &[u64]| {
                if let (Some(into), Some(of)) = (into.get_mut(to), of.get(at)) {
                    *into = into.saturating_add(*of);
                }
            };
            sum(&mut self.to_hop_bps, &other.to_hop_bps);
            sum(&mut self.from_hop_bps, &other.from_hop_bps);
            let worst = |into: &mut [Option<f64>], of: &[Option<f64>]| {
                if let (Some(into), Some(of)) = (into.get_mut(to), of.get(at)) {
                    *into = [*into, *of].into_iter().flatten().reduce(f64::max);
                }
            };
            worst(&mut self.loss, &other.loss);
            worst(&mut self.queue_ms, &other.queue_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(to_hop: u64, from_hop: u64) -> Progress {
        Progress { to_hop, from_hop, ..Progress::default() }
    }

    #[test]
    fn bytes_are_of_the_second_in_which_they_were_carried() {
        let mut past = Past::default();
        past.add(Time::from_millis(200), 'a', progress(1, 10));
        past.add(Time::from_millis(900), 'b', progress(2, 20));
        past.add(Time::from_millis(3500), 'a', progress(4, 40));
        let report = past.report(Time::from_millis(4999));
        assert_eq!(report.until_s, 4);
        assert_eq!(report.to_hop_bps, [24, 0, 0, 32]);
        assert_eq!(report.from_hop_bps, [240, 0, 0, 320]);
        assert_eq!(report.loss, [None; 4], "nobody knows it");
        assert_eq!(past.report(Time::from_millis(3600)).to_hop_bps, [24, 0, 0], "it is not over");
    }

    #[test]
    fn two_minutes_are_remembered_whatever_was_before() {
        let mut past = Past::default();
        for s in 0..500 {
            past.add(Time::from_secs(s), (), progress(s, 0));
        }
        let report = past.report(Time::from_secs(500));
        let expected: Vec<u64> = (380..500).map(|s| 8 * s).collect();
        assert_eq!((report.until_s, report.to_hop_bps), (500, expected));
        // After a long rest everything is quiet.
        let later = past.report(Time::from_secs(1_000_000_000));
        assert_eq!((later.until_s, later.to_hop_bps), (1_000_000_000, vec![0; SECONDS]));
    }

    #[test]
    fn of_several_associations_the_worst_counts_and_of_one_the_latest_word() {
        let mut past = Past::default();
        let mut say = |ms, of, loss| {
            let said = Progress { loss: Some(loss), queue_ms: Some(10.0 * loss), ..progress(0, 0) };
            past.add(Time::from_millis(ms), of, said);
        };
        say(100, 'a', 0.5);
        say(200, 'a', 0.25);
        say(1100, 'a', 0.125);
        say(1200, 'b', 0.5);
        say(1300, 'a', 0.25);
        // Nobody says anything in the third second.
        say(3100, 'b', 0.0);
        let report = past.report(Time::from_secs(4));
        assert_eq!(report.loss, [0.25, 0.5, 0.5, 0.0].map(Some));
        assert_eq!(report.queue_ms, [2.5, 5.0, 5.0, 0.0].map(Some));
    }

    #[test]
    fn a_count_that_begins_again_is_no_step_back() {
        let mut counted = Counted::default();
        assert_eq!(counted.advance(100, 10), (100, 10));
        assert_eq!(counted.advance(150, 10), (50, 0));
        assert_eq!(counted.advance(7, 12), (7, 2));
    }

    #[test]
    fn workers_are_joined_second_by_second() {
        let of = |until_s, bps: &[u64], loss: &[Option<f64>]| PastReport {
            until_s,
            to_hop_bps: bps.to_vec(),
            from_hop_bps: bps.to_vec(),
            loss: loss.to_vec(),
            queue_ms: loss.to_vec(),
        };
        let mut joined = of(10, &[1, 2, 3], &[None, Some(0.5), None]);
        // It was asked a second later, and knows of two seconds only.
        joined.join(&of(11, &[20, 30, 40], &[Some(0.25), Some(0.25), None]));
        assert_eq!(joined.to_hop_bps, [1, 22, 33]);
        assert_eq!(joined.from_hop_bps, [1, 22, 33]);
        assert_eq!(joined.loss, [None, Some(0.5), Some(0.25)]);
        assert_eq!((joined.until_s, joined.queue_ms), (10, joined.loss));
    }
}
