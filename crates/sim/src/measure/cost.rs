//! What a protocol costs a real machine: arithmetic over measured values.

use lasthop_units::{Duration, Rate};

/// A straight line fitted to points by least squares.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Line {
    /// The value at zero.
    pub intercept: f64,
    /// What one more costs.
    pub slope: f64,
    /// The share of the values' variance that the line explains; one if they do not vary.
    pub r_squared: f64,
}

impl Line {
    /// The line through `(x, y)` points; `None` with fewer than two different `x`.
    pub fn fit(points: &[(f64, f64)]) -> Option<Self> {
        let n = points.len() as f64;
        let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / n;
        let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / n;
        let sum = |f: fn(f64, f64) -> f64| -> f64 {
            points.iter().map(|(x, y)| f(x - mean_x, y - mean_y)).sum()
        };
        let (xx, xy, yy) = (sum(|x, _| x * x), sum(|x, y| x * y), sum(|_, y| y * y));
        // Not so if there is no point either: the means are no numbers then.
        if xx > 0.0 {
            let slope = xy / xx;
            let r_squared = if yy > 0.0 { slope * xy / yy } else { 1.0 };
            Some(Self { intercept: mean_y - slope * mean_x, slope, r_squared })
        } else {
            None
        }
    }

    /// The value at `x`.
    pub fn at(&self, x: f64) -> f64 {
        self.intercept + self.slope * x
    }
}

/// MET-4: the time for one passage through the stack, of a ping-pong that took `round_trips` there
/// and back in `total` and passed the stack `crossings` times in each. `None` if either is zero.
pub fn protocol_latency(total: Duration, round_trips: u32, crossings: u32) -> Option<Duration> {
    let passages = u64::from(round_trips) * u64::from(crossings);
    let nanos = total.as_nanos().checked_div(u128::from(passages))?;
    u64::try_from(nanos).ok().map(Duration::from_nanos)
}

/// MET-6: processor use for each kilobyte (1000 bytes) that was moved, in seconds of processor time:
/// `cpu_share`, the mean share in use over the connection (MET-5), over the throughput. `None` if
/// nothing was moved.
pub fn cpu_energy_per_kb(cpu_share: f64, throughput: Rate) -> Option<f64> {
    let kilobytes = throughput.as_bps() as f64 / 8000.0;
    (kilobytes > 0.0).then(|| cpu_share / kilobytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MET-4: the line of [H 4.3], 34 us and 0.034 us for each byte, comes back from its points.
    #[test]
    fn a_latency_line_comes_back_from_its_points() {
        let sizes = [1.0, 100.0, 250.0, 500.0, 750.0, 1000.0, 1250.0, 1460.0];
        let line = Line::fit(&sizes.map(|size| (size, 34.0 + 0.034 * size))).unwrap();
        assert!((line.intercept - 34.0).abs() < 1e-9 && (line.slope - 0.034).abs() < 1e-12);
        assert!((line.r_squared - 1.0).abs() < 1e-9);
        assert!((line.at(1000.0) - 68.0).abs() < 1e-9);
    }

    /// MET-4
    #[test]
    fn scatter_lowers_what_the_line_explains() {
        let line = Line::fit(&[(0.0, 0.0), (1.0, 2.0), (2.0, 1.0), (3.0, 3.0)]).unwrap();
        assert!((line.slope - 0.8).abs() < 1e-12 && (line.intercept - 0.3).abs() < 1e-12);
        assert!((line.r_squared - 0.64).abs() < 1e-12);
    }

    #[test]
    fn no_line_goes_through_fewer_than_two_places() {
        assert_eq!(Line::fit(&[]), None);
        assert_eq!(Line::fit(&[(1.0, 2.0)]), None);
        assert_eq!(Line::fit(&[(1.0, 2.0), (1.0, 3.0)]), None);
    }

    /// MET-4: one machine at both ends of a loop is crossed four times in a round trip.
    #[test]
    fn a_ping_pong_is_divided_by_its_crossings() {
        let total = Duration::from_millis(400);
        assert_eq!(protocol_latency(total, 1000, 4), Some(Duration::from_micros(100)));
        assert_eq!(protocol_latency(total, 0, 4), None);
    }

    /// MET-5, MET-6: a quarter of a processor at 1 MB/s is 250 us for each kB.
    #[test]
    fn cpu_energy_is_use_over_throughput() {
        assert_eq!(cpu_energy_per_kb(0.25, Rate::from_mbps(8)), Some(0.00025));
        assert_eq!(cpu_energy_per_kb(0.25, Rate::ZERO), None);
    }
}
