//! MET-9 on a rate that is known in short steps: the lowest mean around a handoff, and the time until a
//! mean is at the top again. Means begin at every step and not at whole seconds, so that what is
//! compared is not decided by where in a second a handoff falls.

use lasthop_units::Duration;

/// The share of the top rate that counts as recovered.
const RECOVERED: f64 = 0.99;
/// How long before the handoff the top rate is looked at, from and to, in seconds.
const TOP: (f64, f64) = (50.0, 5.0);
/// How long after the handoff a minimum is looked for, in seconds.
const AROUND: f64 = 40.0;

/// A rate in equal steps from time zero on.
#[derive(Clone, PartialEq, Default, Debug)]
pub(super) struct Rates {
    /// Of a step, in seconds.
    step: f64,
    /// Bits up to the beginning of each step, and up to the end.
    sums: Vec<f64>,
}

/// What a handoff did to the rate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Effect {
    /// The lowest mean, in kbit/s.
    pub(super) minimum: f64,
    /// Until the first mean at the top that begins when the handoff is over, in seconds.
    pub(super) from_start: Option<f64>,
    /// The same from the handoff's end on.
    pub(super) from_end: Option<f64>,
}

impl Rates {
    /// Of a table with a line for each step: its begin in seconds, a name, and bit/s.
    pub(super) fn read(table: &str) -> Self {
        let line = |line: &str| -> Option<(f64, f64)> {
            let mut fields = line.split(',');
            let at = fields.next()?.parse().ok()?;
            Some((at, fields.nth(1)?.parse().ok()?))
        };
        let steps: Vec<(f64, f64)> = table.lines().filter_map(line).collect();
        let step = steps.get(1).map_or(0.0, |(at, _)| *at);
        let mut sums = vec![0.0];
        let mut sum = 0.0;
        for (_, rate) in &steps {
            sum += rate * step;
            sums.push(sum);
        }
        Self { step, sums }
    }

    /// The mean over `bin` at each whole multiple of it, in seconds and kbit/s.
    pub(super) fn means(&self, bin: Duration) -> Vec<(f64, f64)> {
        let width = self.steps(bin.as_secs_f64()).max(1);
        let starts = (0..self.sums.len()).step_by(width);
        starts.filter_map(|i| Some((i as f64 * self.step, self.mean(i, width)?))).collect()
    }

    /// What the handoff between these seconds did to means over `bin`; none if too little is known.
    pub(super) fn effect(&self, (start, end): (f64, f64), bin: Duration) -> Option<Effect> {
        let width = self.steps(bin.as_secs_f64()).max(1);
        let (early, late) = (self.steps(start - TOP.0), self.steps(start - TOP.1));
        let top = self.mean(early, late.checked_sub(early).filter(|n| *n > 0)?)?;
        let around = self.steps(start - bin.as_secs_f64())..self.steps(end + AROUND);
        let minimum = around.filter_map(|i| self.mean(i, width)).reduce(f64::min)?;
        // The step in which the handoff ends is not wholly after it.
        let mut after = self.steps(end) + 1..self.sums.len();
        let found =
            after.find(|&i| self.mean(i, width).is_some_and(|mean| mean >= RECOVERED * top));
        let back = found.map(|i| i as f64 * self.step);
        Some(Effect {
            minimum,
            from_start: back.map(|at| at - start),
            from_end: back.map(|at| at - end),
        })
    }

    fn steps(&self, seconds: f64) -> usize {
        if self.step > 0.0 { (seconds.max(0.0) / self.step + 1e-6) as usize } else { 0 }
    }

    /// The mean over `width` steps from `first` on, in kbit/s; none if they are not all known.
    fn mean(&self, first: usize, width: usize) -> Option<f64> {
        let bits = self.sums.get(first + width)? - self.sums.get(first)?;
        Some(bits / (width as f64 * self.step) / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 56 kbit/s for 150 s in steps of 100 ms, but for the seconds of `dip`.
    fn rates(dip: core::ops::Range<f64>, low: f64) -> Rates {
        let rate = |i: u32| {
            let at = f64::from(i) / 10.0;
            let rate = if dip.contains(&at) { low } else { 56_000.0 };
            format!("{at},download,{rate}\n")
        };
        let lines: String = (0..1500).map(rate).collect();
        Rates::read(&format!("start_s,flow,goodput_bps\n{lines}"))
    }

    const SECOND: Duration = Duration::from_secs(1);

    /// MET-9: recovery is told from the start and from the end, the minimum as a mean over the bin.
    #[test]
    fn a_gap_is_deep_in_a_short_mean_and_shallow_in_a_long_one() {
        let rates = rates(115.0..116.2, 0.0);
        let short = rates.effect((115.0, 116.0), SECOND).unwrap();
        assert!(short.minimum.abs() < 1e-6);
        assert!((short.from_start.unwrap() - 1.2).abs() < 1e-6, "{short:?}");
        assert!((short.from_end.unwrap() - 0.2).abs() < 1e-6);
        let long = rates.effect((115.0, 116.0), 10 * SECOND).unwrap();
        assert!((long.minimum - 56.0 * 0.88).abs() < 1e-6, "INC-M7: {long:?}");
    }

    #[test]
    fn a_rate_that_stays_low_has_not_recovered() {
        let effect = rates(115.0..150.0, 55_000.0).effect((115.0, 116.0), SECOND).unwrap();
        assert_eq!((effect.from_start, effect.from_end), (None, None));
        assert!((effect.minimum - 55.0).abs() < 1e-6);
    }

    #[test]
    fn nothing_comes_of_nothing() {
        assert_eq!(Rates::read("").effect((1.0, 2.0), SECOND), None);
        assert_eq!(
            rates(0.0..0.0, 0.0).effect((149.0, 150.0), 10 * SECOND).map(|e| e.from_end),
            Some(None)
        );
        assert!(Rates::read("x\n1,2\n").means(SECOND).len() <= 1);
    }
}
