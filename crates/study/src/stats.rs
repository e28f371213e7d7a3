//! Means and confidence intervals over independent runs.
//!
//! Statistics do not care what they are about: values are plain numbers, in whatever unit the caller
//! measures. All intervals have a level of 95 %.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// The level of every interval.
pub const LEVEL: f64 = 0.95;

/// A range of values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Its lower end.
    pub lo: f64,
    /// Its upper end.
    pub hi: f64,
}

impl Interval {
    /// Whether `value` is in it, ends included.
    pub fn contains(&self, value: f64) -> bool {
        self.lo <= value && value <= self.hi
    }

    /// Whether the two have a value in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.lo <= other.hi && other.lo <= self.hi
    }
}

/// What independent runs of one cell gave. Runs that did not come to their end are counted beside
/// the values and enter no mean (MET-13).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    values: Vec<f64>,
    failures: u32,
}

impl Sample {
    /// Adds a run's value. One that is not a number counts as a failure.
    pub fn push(&mut self, value: f64) {
        if value.is_finite() {
            self.values.push(value);
        } else {
            self.fail();
        }
    }

    /// Adds a run without a value.
    pub fn fail(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    /// The values of the runs that came to their end, in the order of the runs.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// How many runs did not come to their end.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// How many runs there were, failures included.
    pub fn runs(&self) -> u32 {
        count(&self.values).saturating_add(self.failures)
    }

    /// Mean and interval of the values, if there is any.
    pub fn estimate(&self) -> Option<Estimate> {
        Estimate::of(&self.values)
    }
}

impl FromIterator<f64> for Sample {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        let mut sample = Self::default();
        values.into_iter().for_each(|value| sample.push(value));
        sample
    }
}

/// A mean and how well it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Of how many values.
    pub n: u32,
    /// Their sample standard deviation (divisor n - 1); none for a single value.
    pub sd: Option<f64>,
    interval: Option<Interval>,
}

impl Estimate {
    /// A mean of `n` values with their sample standard deviation.
    ///
    /// MET-1: its 95 % interval is that of Student's t; a single value has none.
    pub fn new(mean: f64, n: u32, sd: Option<f64>) -> Self {
        let sd = sd.filter(|_| n > 1);
        let half = sd.map(|sd| student_t(f64::from(n) - 1.0) * sd / f64::from(n).sqrt());
        let interval = half.map(|half| Interval { lo: mean - half, hi: mean + half });
        Self { mean, n, sd, interval }
    }

    /// Of `values`; none if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let n = count(values);
        if n == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / f64::from(n);
        let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
        let sd = (n > 1).then(|| (squares / f64::from(n - 1)).sqrt());
        Some(Self::new(mean, n, sd))
    }

    /// The estimate that a printed mean and 95 % interval of `n` runs stand for. The interval stays
    /// as printed, which rounding may leave a little off centre; half its width gives the standard
    /// deviation.
    pub fn of_printed(mean: f64, interval: Interval, n: u32) -> Self {
        let half = (interval.hi - interval.lo) / 2.0;
        let sd = (n > 1).then(|| half / student_t(f64::from(n) - 1.0) * f64::from(n).sqrt());
        Self { mean, n, sd, interval: Some(interval) }
    }

    /// The mean's standard error; none for a single value.
    pub fn standard_error(&self) -> Option<f64> {
        self.sd.map(|sd| sd / f64::from(self.n).sqrt())
    }

    /// The mean's 95 % interval; none for a single value.
    pub fn interval(&self) -> Option<Interval> {
        self.interval
    }
}

/// A ratio of two means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The first mean over the second.
    pub value: f64,
    /// Its 95 % interval, where both means have one.
    pub interval: Option<Interval>,
}

/// The ratio of two independent means, both above zero; none otherwise.
///
/// Its interval is the delta method's on the logarithm: the variance of ln(a/b) is about
/// (se(a)/a)² + (se(b)/b)², with Welch and Satterthwaite's degrees of freedom. So both ends are
/// above zero, and the interval of b/a is the reciprocal of that of a/b. Fieller's interval, which
/// may be unbounded, differs little from it while standard errors are below a tenth of the means.
pub fn ratio(a: &Estimate, b: &Estimate) -> Option<Ratio> {
    if a.mean <= 0.0 || b.mean <= 0.0 {
        return None;
    }
    let value = a.mean / b.mean;
    let interval = relative_variance(a).zip(relative_variance(b)).map(|(va, vb)| {
        let variance = va + vb;
        let spread = |v: f64, n: u32| v * v / (f64::from(n) - 1.0);
        let freedom = match spread(va, a.n) + spread(vb, b.n) {
            0.0 => f64::from(a.n.min(b.n)) - 1.0,
            sum => variance * variance / sum,
        };
        let factor = libm::exp(student_t(freedom) * variance.sqrt());
        Interval { lo: value / factor, hi: value * factor }
    });
    Some(Ratio { value, interval })
}

fn relative_variance(estimate: &Estimate) -> Option<f64> {
    let relative = estimate.standard_error()? / estimate.mean;
    Some(relative * relative)
}

/// The two-sided 95 % quantile of Student's t. Without a degree of freedom nothing is known, and
/// the quantile is infinite.
pub fn student_t(freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom)
        .map_or(f64::INFINITY, |t| t.inverse_cdf(1.0 - (1.0 - LEVEL) / 2.0))
}

fn count(values: &[f64]) -> u32 {
    u32::try_from(values.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn close(a: f64, b: f64, tolerance: f64) -> bool {
        (a - b).abs() <= tolerance
    }

    #[test]
    fn quantiles_are_those_of_the_printed_tables_of_student() {
        for (freedom, t) in [(1.0, 12.706), (2.0, 4.303), (10.0, 2.228), (30.0, 2.042)] {
            assert!(close(student_t(freedom), t, 5e-4), "{freedom}: {}", student_t(freedom));
        }
    }

    /// MET-1: of 40 runs, t = 2.023.
    #[test]
    fn an_interval_of_forty_runs_spans_2_023_standard_errors() {
        let values: Vec<f64> = (0..40).map(f64::from).collect();
        let estimate = Estimate::of(&values).unwrap();
        let interval = estimate.interval().unwrap();
        assert_eq!(estimate.mean, 19.5);
        assert!(close(estimate.sd.unwrap(), 11.690, 1e-3), "{estimate:?}");
        let t = (interval.hi - estimate.mean) / estimate.standard_error().unwrap();
        assert!(close(t, 2.023, 5e-4), "{t}");
        assert!(close(interval.lo + interval.hi, 39.0, 1e-9));
    }

    #[test]
    fn a_single_run_has_a_mean_and_no_interval() {
        let estimate = Estimate::of(&[3.0]).unwrap();
        assert_eq!((estimate.mean, estimate.sd, estimate.interval()), (3.0, None, None));
        assert_eq!(Estimate::of(&[]), None);
    }

    /// MET-13: what did not end is counted and never averaged away.
    #[test]
    fn failures_are_counted_beside_the_mean() {
        let mut sample: Sample = [10.0, 12.0, f64::NAN].into_iter().collect();
        sample.fail();
        assert_eq!((sample.runs(), sample.failures()), (4, 2));
        assert_eq!(sample.estimate().unwrap().mean, 11.0);
    }

    #[test]
    fn a_printed_interval_stays_as_printed_and_gives_the_deviation() {
        let printed = Interval { lo: 27.6, hi: 35.9 };
        let estimate = Estimate::of_printed(31.7, printed, 40);
        assert_eq!(estimate.interval(), Some(printed));
        let centred = Estimate::new(31.75, 40, estimate.sd).interval().unwrap();
        assert!(close(centred.lo, 27.6, 1e-9) && close(centred.hi, 35.9, 1e-9), "{centred:?}");
    }

    #[test]
    fn a_ratio_of_well_known_means_has_about_fiellers_interval() {
        let a = Estimate::new(20.0, 40, Some(4.0));
        let b = Estimate::new(10.0, 40, Some(1.0));
        let ratio = ratio(&a, &b).unwrap();
        let interval = ratio.interval.unwrap();
        // Fieller with t = 2.00: [1.863, 2.146].
        assert_eq!(ratio.value, 2.0);
        assert!(close(interval.lo, 1.863, 2e-3) && close(interval.hi, 2.146, 2e-3), "{ratio:?}");
    }

    #[test]
    fn a_ratio_needs_positive_means_and_an_interval_needs_two_runs_of_each() {
        let some = Estimate::new(2.0, 4, Some(0.1));
        let zero = Estimate::new(0.0, 4, Some(0.1));
        let single = Estimate::new(1.0, 1, None);
        assert_eq!(ratio(&some, &zero), None);
        assert_eq!(ratio(&some, &single).unwrap(), Ratio { value: 2.0, interval: None });
        let exact = Estimate::new(2.0, 4, Some(0.0));
        assert_eq!(ratio(&exact, &exact).unwrap().interval, Some(Interval { lo: 1.0, hi: 1.0 }));
    }

    proptest! {
        #[test]
        fn the_interval_of_a_ratio_turned_round_is_the_reciprocal(
            a in 0.1_f64..100.0, b in 0.1_f64..100.0, sa in 0.0_f64..5.0, sb in 0.0_f64..5.0,
            na in 2_u32..60, nb in 2_u32..60,
        ) {
            let a = Estimate::new(a, na, Some(sa));
            let b = Estimate::new(b, nb, Some(sb));
            let there = ratio(&a, &b).and_then(|r| r.interval).unwrap();
            let back = ratio(&b, &a).and_then(|r| r.interval).unwrap();
            prop_assume!(there.hi.is_finite() && back.hi.is_finite());
            prop_assert!(there.lo <= there.hi && there.lo >= 0.0);
            prop_assert!((there.lo * back.hi - 1.0).abs() < 1e-6 || there.lo == 0.0);
        }

        #[test]
        fn an_interval_lies_round_its_mean(values in prop::collection::vec(-1e6_f64..1e6, 2..50)) {
            let estimate = Estimate::of(&values).unwrap();
            let interval = estimate.interval().unwrap();
            prop_assert!(interval.lo <= estimate.mean && estimate.mean <= interval.hi);
        }
    }
}
