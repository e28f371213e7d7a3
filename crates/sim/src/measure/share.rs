//! How flows share what there is.

use lasthop_units::Rate;

/// MET-7: the fairness index of the flows' rates [S eq 21]: one if all have the same, and one over
/// their number if one has everything. `None` if there is no flow, or if none moves anything.
pub fn fairness(rates: &[Rate]) -> Option<f64> {
    let sum: f64 = rates.iter().map(|rate| bps(*rate)).sum();
    let squares: f64 = rates.iter().map(|rate| bps(*rate) * bps(*rate)).sum();
    (squares > 0.0).then(|| sum * sum / (rates.len() as f64 * squares))
}

/// MET-7: how much of the bottleneck the flows use, in percent [S eq 22]. `None` if the bottleneck
/// has no rate or no limit.
pub fn utilisation_percent(rates: &[Rate], bottleneck: Rate) -> Option<f64> {
    let limited = bottleneck != Rate::ZERO && bottleneck != Rate::UNLIMITED;
    limited.then(|| 100.0 * rates.iter().map(|rate| bps(*rate)).sum::<f64>() / bps(bottleneck))
}

fn bps(rate: Rate) -> f64 {
    rate.as_bps() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Packets of 1000 bytes each second.
    fn packets(per_second: f64) -> Rate {
        Rate::from_bps((per_second * 8000.0) as u64)
    }

    /// MET-7: the first row of [S Table 5], whose rates are in packets and whose link has 2 Mbit/s.
    #[test]
    fn fairness_and_utilisation_are_those_of_the_published_row() {
        let rates = [packets(96.3), packets(102.7)];
        assert!((fairness(&rates).unwrap() - 0.999).abs() < 5e-4);
        let used = utilisation_percent(&rates, Rate::from_mbps(2)).unwrap();
        assert!((used - 79.6).abs() < 1e-9, "{used}");
    }

    /// MET-7
    #[test]
    fn one_flow_that_has_everything_is_as_unfair_as_can_be() {
        let one = [Rate::from_mbps(1), Rate::ZERO, Rate::ZERO, Rate::ZERO];
        assert_eq!(fairness(&one), Some(0.25));
        assert_eq!(fairness(&[Rate::from_kbps(7); 3]), Some(1.0));
    }

    #[test]
    fn what_has_no_meaning_has_no_value() {
        assert_eq!(fairness(&[]), None);
        assert_eq!(fairness(&[Rate::ZERO; 2]), None);
        assert_eq!(utilisation_percent(&[Rate::ZERO], Rate::UNLIMITED), None);
        assert_eq!(utilisation_percent(&[Rate::ZERO], Rate::ZERO), None);
    }

    proptest! {
        /// MET-7
        #[test]
        fn fairness_stays_between_one_over_n_and_one(bps in prop::collection::vec(1_u64.., 1..20)) {
            let rates: Vec<_> = bps.iter().map(|n| Rate::from_bps(*n)).collect();
            let omega = fairness(&rates).unwrap();
            let least = 1.0 / rates.len() as f64;
            prop_assert!(omega > least - 1e-9 && omega < 1.0 + 1e-9);
        }
    }
}
