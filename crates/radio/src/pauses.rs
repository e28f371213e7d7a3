use alloc::vec::Vec;

use lasthop_units::{Duration, Time};

use crate::Pause;

/// When the radio is silent: scheduled and repeated pauses, and one that was ordered.
#[derive(Debug)]
pub(crate) struct Pauses {
    pauses: Vec<Pause>,
    epoch: Time,
    /// End of the pause that was ordered from outside.
    ordered: Option<Time>,
    /// End of the present silence as known so far; another pause may prolong it.
    end: Option<Time>,
    /// When the next pause begins, if none is on.
    next: Time,
}

impl Pauses {
    pub(crate) fn new(pauses: &[Pause], epoch: Time) -> Self {
        // A pause of no length is none (LNK-7).
        let pauses = pauses.iter().filter(|pause| !pause.duration.is_zero()).copied().collect();
        let mut silence = Self { pauses, epoch, ordered: None, end: None, next: Time::NEVER };
        silence.next = silence.first_start(epoch);
        silence
    }

    pub(crate) fn is_on(&self) -> bool {
        self.end.is_some()
    }

    /// When it begins (if the radio can be heard) or may end (if not).
    pub(crate) fn next_change(&self) -> Time {
        self.end.unwrap_or(self.next)
    }

    /// Looks at the schedule again at `now`.
    pub(crate) fn update(&mut self, now: Time) {
        self.end = self.covering(now);
        if self.end.is_none() {
            self.ordered = None;
            self.next = self.first_start(now);
        }
    }

    /// Orders silence from `now` on.
    pub(crate) fn order(&mut self, now: Time, duration: Duration) {
        self.ordered = Some(now + duration);
        self.update(now);
    }

    /// Ends what was ordered; the schedule still holds.
    pub(crate) fn lift(&mut self, now: Time) {
        self.ordered = None;
        self.update(now);
    }

    fn covering(&self, now: Time) -> Option<Time> {
        let scheduled = self.pauses.iter().filter_map(|pause| {
            let start = self.epoch + pause.last_start(now.since(self.epoch))?;
            Some(start + pause.duration)
        });
        scheduled.chain(self.ordered).filter(|&end| end > now).max()
    }

    fn first_start(&self, now: Time) -> Time {
        let since = now.since(self.epoch);
        let starts = self.pauses.iter().filter_map(|pause| pause.first_start(since));
        starts.map(|start| self.epoch + start).min().unwrap_or(Time::NEVER)
    }
}

impl Pause {
    /// The last start at or before `since`, both counted from the start of the run.
    fn last_start(&self, since: Duration) -> Option<Duration> {
        let past = since.checked_sub(self.start)?;
        let repeats = match self.every {
            Some(every) => (past.as_nanos() / every.as_nanos().max(1)) as u64,
            None => 0,
        };
        Some(self.start_of(repeats.min(self.repeats())))
    }

    /// The first start at or after `since`.
    fn first_start(&self, since: Duration) -> Option<Duration> {
        let Some(past) = since.checked_sub(self.start) else { return Some(self.start) };
        let repeats = match self.every {
            Some(every) => past.as_nanos().div_ceil(every.as_nanos().max(1)) as u64,
            None => u64::from(!past.is_zero()),
        };
        (repeats <= self.repeats()).then(|| self.start_of(repeats))
    }

    fn start_of(&self, repeat: u64) -> Duration {
        let every = self.every.map_or(0, |every| every.as_nanos() as u64);
        self.start.saturating_add(Duration::from_nanos(every.saturating_mul(repeat)))
    }

    fn repeats(&self) -> u64 {
        match (self.every, self.times) {
            (None, _) => 0,
            (Some(_), None) => u64::MAX,
            (Some(_), Some(times)) => u64::from(times.max(1)) - 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// The silent intervals before `end`, in seconds.
    fn intervals(pauses: &[Pause], end: u64) -> Vec<(u64, u64)> {
        let mut silence = Pauses::new(pauses, Time::ZERO);
        let mut found = vec![];
        let mut began = None;
        loop {
            let at = silence.next_change();
            if at > Time::from_secs(end) {
                return found;
            }
            silence.update(at);
            let s = at.as_micros() / 1_000_000;
            match (silence.is_on(), began) {
                (true, None) => began = Some(s),
                (false, Some(start)) => {
                    found.push((start, s));
                    began = None;
                }
                _ => {}
            }
        }
    }

    /// LNK-8, LNK-9: the first at a fixed time, the others spaced start to start.
    #[test]
    fn pauses_repeat_from_start_to_start() {
        let pause = Pause {
            every: Some(SECOND * 8),
            times: Some(3),
            ..Pause::once(SECOND * 4, SECOND * 2)
        };
        assert_eq!(intervals(&[pause], 100), [(4, 6), (12, 14), (20, 22)]);
        let endless = Pause { times: None, ..pause };
        assert_eq!(intervals(&[endless], 30).len(), 4);
    }

    #[test]
    fn overlapping_pauses_are_one_silence() {
        let pause = |start, length| Pause::once(SECOND * start, SECOND * length);
        assert_eq!(intervals(&[pause(0, 1), pause(5, 3), pause(6, 4)], 100), [(0, 1), (5, 10)]);
        assert_eq!(intervals(&[pause(5, 1), pause(6, 1)], 100), [(5, 7)]);
    }

    #[test]
    fn an_ordered_pause_can_be_lifted_but_not_the_schedule() {
        let at = Time::from_secs;
        let mut silence = Pauses::new(&[Pause::once(SECOND * 5, SECOND)], Time::ZERO);
        silence.order(at(1), SECOND * 10);
        assert_eq!(silence.next_change(), at(11));
        silence.lift(at(2));
        assert!(!silence.is_on());
        assert_eq!(silence.next_change(), at(5));
        silence.update(at(5));
        silence.lift(at(5));
        assert!(silence.is_on());
    }
}
