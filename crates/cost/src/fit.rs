//! Medians and straight lines.

use lasthop_study::reproduce::processing::{Estimate, Line};
use lasthop_study::stats::student_t;

/// The quantile `q` of `values`, between neighbours by proportion; zero if there are none.
pub(crate) fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let at = q.clamp(0.0, 1.0) * last as f64;
    let below = at.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * (at - below as f64)
}

/// The middle value.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The straight line through `points` by ordinary least squares, with 95 % intervals from Student's
/// t. `None` for fewer than three points, or if all lie at one place.
pub(crate) fn line(points: &[(f64, f64)]) -> Option<Line> {
    let n = points.len() as f64;
    if points.len() < 3 {
        return None;
    }
    let mean = |f: fn(&(f64, f64)) -> f64| points.iter().map(f).sum::<f64>() / n;
    let (mx, my) = (mean(|p| p.0), mean(|p| p.1));
    let sum = |f: &dyn Fn(f64, f64) -> f64| points.iter().map(|p| f(p.0 - mx, p.1 - my)).sum();
    let (sxx, sxy, syy): (f64, f64, f64) =
        (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
    if sxx <= 0.0 {
        return None;
    }
    let slope = sxy / sxx;
    let intercept = my - slope * mx;
    let residual: f64 = points.iter().map(|p| (p.1 - intercept - slope * p.0).powi(2)).sum();
    let variance = residual / (n - 2.0);
    let t = student_t(n - 2.0);
    let around = |value: f64, deviation: f64| Estimate {
        value,
        lo: value - t * deviation,
        hi: value + t * deviation,
    };
    Some(Line {
        intercept_ns: around(intercept, (variance * (1.0 / n + mx * mx / sxx)).sqrt()),
        slope_ns_per_byte: around(slope, (variance / sxx).sqrt()),
        r_squared: if syy > 0.0 { 1.0 - residual / syy } else { 1.0 },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_noise_is_found_exactly() {
        let points: Vec<(f64, f64)> =
            [1.0, 100.0, 500.0, 1460.0].iter().map(|&x| (x, 34.0 + 0.034 * x)).collect();
        let line = line(&points).unwrap();
        assert!((line.intercept_ns.value - 34.0).abs() < 1e-9);
        assert!((line.slope_ns_per_byte.value - 0.034).abs() < 1e-12);
        assert!(line.r_squared > 0.999_999);
        assert!(line.intercept_ns.hi - line.intercept_ns.lo < 1e-6);
    }

    /// Anscombe's first data set, whose regression is in every textbook: 3.0 and 0.5 with standard
    /// errors 1.1247 and 0.1179, R squared 0.667, nine degrees of freedom (t = 2.2622).
    #[test]
    fn a_textbook_regression_comes_out_with_its_intervals() {
        let points = [
            (10.0, 8.04),
            (8.0, 6.95),
            (13.0, 7.58),
            (9.0, 8.81),
            (11.0, 8.33),
            (14.0, 9.96),
            (6.0, 7.24),
            (4.0, 4.26),
            (12.0, 10.84),
            (7.0, 4.82),
            (5.0, 5.68),
        ];
        let line = line(&points).unwrap();
        let close = |a: f64, b: f64, by: f64| assert!((a - b).abs() < by, "{a} is not {b}");
        close(line.intercept_ns.value, 3.0001, 1e-3);
        close(line.slope_ns_per_byte.value, 0.5001, 1e-3);
        close(line.r_squared, 0.6665, 1e-3);
        close(line.intercept_ns.hi - line.intercept_ns.value, 2.2622 * 1.1247, 2e-3);
        close(line.slope_ns_per_byte.value - line.slope_ns_per_byte.lo, 2.2622 * 0.1179, 1e-3);
    }

    #[test]
    fn what_has_no_line_has_none() {
        assert!(line(&[(1.0, 1.0), (2.0, 2.0)]).is_none());
        assert!(line(&[(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]).is_none());
    }

    #[test]
    fn quantiles_lie_between_neighbours() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(quantile(&[0.0, 10.0], 0.25), 2.5);
        assert_eq!(median(&[]), 0.0);
    }
}
