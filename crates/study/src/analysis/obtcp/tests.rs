use lasthop_units::{Bytes, Rate};
use proptest::prelude::*;

use super::reference::{Curve, Reference};
use super::validity::{Doubt, Surroundings, doubts, link_limit, mean_run};
use super::*;
use crate::reproduce;

const MS: fn(u64) -> Duration = Duration::from_millis;

fn loss(p: f64) -> LossProbability {
    LossProbability::new(p).unwrap()
}

fn hops(d1: u64, p1: f64, d2: u64, p2: f64) -> Hops {
    Hops::new(Hop::new(MS(d1), loss(p1)), Hop::new(MS(d2), loss(p2)))
}

/// Section VII.C, with or without its MAC delay.
fn figure24(p1: f64, mac: u64) -> Model {
    Model::new(MS(50), hops(20, p1, 10, 0.001).with_mac_delay(MS(mac)), 16).unwrap()
}

/// The point of figure 17.
fn figure17(p1: f64) -> Model {
    Model::new(MS(50), hops(20, p1, 20, 0.0001), 16).unwrap()
}

/// A packet of 1000 bytes with its headers on the cellular link, and Table 2's least timeout.
const SECTION_VI: Surroundings =
    Surroundings { link: Rate::from_mbps(2), packet: Bytes::new(1040), min_rto: MS_300 };
const MS_300: Duration = Duration::from_millis(300);

fn close(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance
}

/// Steps between neighbours of values taken at even distances.
fn steps(values: &[f64]) -> Vec<f64> {
    values.windows(2).map(|w| w[1] - w[0]).collect()
}

fn is_linear(values: &[f64]) -> bool {
    steps(values).windows(2).all(|w| close(w[0], w[1], 1e-6))
}

fn is_convex(values: &[f64]) -> bool {
    steps(values).windows(2).all(|w| w[1] > w[0])
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[test]
fn a_loss_of_one_or_more_or_below_zero_is_refused_by_value() {
    for p in [1.0, 1.5, -0.1, f64::NAN, f64::INFINITY] {
        let refusal = LossProbability::new(p).unwrap_err().to_string();
        assert!(refusal.contains(&p.to_string()), "{refusal}");
    }
    assert!(LossProbability::new(0.0).is_ok() && LossProbability::new(0.999_999).is_ok());
}

#[test]
fn what_is_outside_an_equations_domain_is_refused() {
    let still = hops(0, 0.1, 0, 0.1);
    assert_eq!(still.throughput_ratio(), Err(DomainError::NoDelay));
    assert_eq!(Model::new(Duration::ZERO, still, 16), Err(DomainError::NoDelay));
    assert_eq!(Model::new(MS(50), still, 0), Err(DomainError::Window));
    for packets in [0.0, 0.99, f64::INFINITY, f64::NAN] {
        assert!(matches!(Batch::new(packets), Err(DomainError::Batch(_))), "{packets}");
    }
    // Repairs that cost nothing at all would gain about 80 %.
    let beyond = figure24(0.1, 5).first_batch_for(90.0, Batch::ONE);
    assert_eq!(beyond, Err(DomainError::Gain(90.0)));
    let lossless = figure24(0.0, 5).first_batch_for(40.0, Batch::ONE);
    assert_eq!(lossless, Err(DomainError::Gain(40.0)));
    assert_eq!(fairness(&[]), Err(DomainError::NoFlow));
    assert_eq!(fairness(&[Rate::ZERO; 2]), Err(DomainError::NoFlow));
    assert_eq!(utilisation(&[], Rate::from_mbps(2)), Err(DomainError::NoFlow));
    assert_eq!(utilisation(&[Rate::ZERO], Rate::ZERO), Err(DomainError::NoRate));
}

/// EXP-S1: figure 7, the gain is linear in the second link's delay.
#[test]
fn the_recovery_gain_is_linear_in_the_delay() {
    let gains: Vec<f64> =
        (5..=35).step_by(5).map(|d2| millis(hops(20, 0.15, d2, 0.05).recovery_gain())).collect();
    assert!(is_linear(&gains) && gains[0] > 0.0, "{gains:?}");
}

/// EXP-S1: figure 8, the gain is convex in the first link's loss; INC-S1: it is not exponential, since
/// its ratio over even steps is not constant.
#[test]
fn the_recovery_gain_is_convex_in_the_loss_and_no_exponential() {
    let at = |i: u32| millis(hops(20, f64::from(i) * 0.05, 20, 0.0).recovery_gain_first_lossy());
    let gains: Vec<f64> = (1..=6).map(at).collect();
    assert!(is_convex(&gains), "{gains:?}");
    assert!(close(gains[1] / gains[0], 2.11, 0.01) && close(gains[5] / gains[4], 1.29, 0.01));
}

/// EXP-S1: figures 9 and 11, one link loses: linear in the other's delay, constant in its own.
#[test]
fn the_delay_of_the_only_lossy_link_does_not_matter() {
    let other = |d1| millis(hops(d1, 0.0, 20, 0.1).recovery_gain());
    let own = |d2| millis(hops(20, 0.0, d2, 0.1).recovery_gain());
    let delays = [5, 15, 25, 35];
    assert!(is_linear(&delays.map(other)) && other(35) > 6.0 * other(5));
    assert!(delays.map(own).iter().all(|gain| close(*gain, own(5), 1e-5)));
}

/// EXP-S1: figure 12 is flat, as p1 = p2 (INC-S2), and so says nothing of a gain linear in the delay;
/// figure 13 is convex.
#[test]
fn the_throughput_ratio_is_flat_for_equal_losses_and_convex_in_one() {
    for d1 in [5, 10, 20, 35] {
        let ratio = hops(d1, 0.1, 10, 0.1).throughput_ratio().unwrap();
        assert!(close(ratio, 1.0 / 0.9, 1e-12), "{ratio}");
    }
    let at = |i: u32| hops(10, f64::from(i) * 0.05, 10, 0.1).throughput_ratio().unwrap();
    assert!(is_convex(&(0..=6).map(at).collect::<Vec<_>>()));
    assert!(at(6) > at(0));
}

/// INC-S10: the gain is said to be positive always.
#[test]
fn without_loss_there_is_no_gain() {
    assert_eq!(hops(20, 0.0, 20, 0.0).recovery_gain(), Duration::ZERO);
    let clean = Model::new(MS(50), hops(20, 0.0, 10, 0.0), 16).unwrap();
    assert_eq!(clean.gain(Batches::SINGLE), 0.0);
}

/// SNP-8, OBB-3: figures 5 and 6 lose packets 12 to 15 on the first link.
#[test]
fn four_losses_in_a_row_take_snoop_four_round_trips_and_obtcp_one() {
    let hops = hops(20, 0.1, 10, 0.0);
    assert_eq!(hops.snoop_burst_recovery(4), MS(4 * 2 * (20 + 10)));
    assert_eq!(hops.obtcp_burst_recovery(), MS(2 * 20));
}

/// EXP-S6: figure 24 has 1 % at p1 = 0.001 and 40 % at 0.1. One n1 gives both, to their digits; a repair
/// of one packet gives the first only.
#[test]
fn one_batch_gives_both_ends_of_figure_24() {
    let gain = |p1, n1| {
        let first = Batch::new(n1).unwrap();
        figure24(p1, 5).gain(Batches { first, second: Batch::ONE })
    };
    let rounded = |n1| [gain(0.001, n1).round(), gain(0.1, n1).round()];
    assert_eq!(rounded(1.7534), [1.0, 40.0]);
    assert_eq!(rounded(1.0), [1.0, 20.0]);
}

/// INC-S9: the n1 that independent losses give, and what it gives.
#[test]
fn independent_losses_give_no_40_percent() {
    let first = mean_run(loss(0.1));
    assert!(close(first.packets(), 1.0 / 0.9, 1e-12));
    let gain = |mac| figure24(0.1, mac).gain(Batches { first, second: Batch::ONE });
    assert!(close(gain(5), 24.2, 0.1) && close(gain(0), 19.3, 0.1), "{} {}", gain(5), gain(0));
    assert_eq!(mean_run(LossProbability::NONE), Batch::ONE);
}

/// INC-S9: (11) hides the gain that (16) and (20) have for the same links.
#[test]
fn the_ratio_of_recovery_times_is_far_below_that_of_throughputs() {
    let model = figure24(0.1, 5);
    assert!(close(100.0 * (model.hops().throughput_ratio().unwrap() - 1.0), 4.0, 0.1));
    assert!(close(model.gain(Batches::SINGLE), 20.1, 0.1));
}

/// Equation (18) is printed without parentheses.
#[test]
fn the_printed_precedence_matters_for_larger_batches_only() {
    let model = figure24(0.1, 5);
    let repairs = |losses: f64, n: f64, hop: Hop| losses * hop.round_trip() / (n - hop.loss.get());
    let off = |n1| {
        let batches = Batches { first: Batch::new(n1).unwrap(), second: Batch::ONE };
        let repaired = repairs(model.first_losses(), n1, model.hops().first)
            + repairs(model.second_losses(), 1.0, model.hops().second);
        let printed = model.round_trip() + seconds(repaired);
        1.0 - printed.as_secs_f64() / model.obtcp_round(batches).as_secs_f64()
    };
    assert!(close(off(1.0), 0.0, 1e-9) && close(off(2.0), 0.0104, 1e-4), "{}", off(2.0));
}

fn ns2(curve: &Curve, p1: &str) -> f64 {
    curve.at(p1).unwrap().mean
}

/// A point of figure 17's axis, by its label, and the model's kB/s there.
fn modelled(p1: &str) -> f64 {
    figure17(p1.parse().unwrap()).snoop_throughput().per_second()
}

/// SNP-9, INC-S9: where (16) holds against ns-2, and by how much it misses.
#[test]
fn equation_16_is_good_to_5_percent_up_to_a_loss_of_0_02() {
    let reference = Reference::read().unwrap();
    let stock = reference.curve("figure17", "snoop").unwrap();
    let pinned = reference.curve("figure17", "snoop-pinned").unwrap();
    let off = |curve: &Curve, p1: &str| ns2(curve, p1) / modelled(p1) - 1.0;
    for p1 in ["0.0001", "0.001", "0.005", "0.01", "0.02"] {
        assert!(off(stock, p1).abs() < 0.05, "{p1}: {}", off(stock, p1));
    }
    for (p1, told) in [("0.05", -0.07), ("0.1", -0.33), ("0.2", -0.81), ("0.3", -0.97)] {
        assert!(close(off(stock, p1), told, 0.006), "{p1}: {}", off(stock, p1));
    }
    for (p1, told) in [("0.05", -0.03), ("0.1", -0.12), ("0.2", -0.22), ("0.3", -0.27)] {
        assert!(close(off(pinned, p1), told, 0.006), "{p1}: {}", off(pinned, p1));
    }
}

#[test]
fn a_point_without_doubts_is_right_and_one_with_doubts_is_off() {
    let reference = Reference::read().unwrap();
    let stock = reference.curve("figure17", "snoop").unwrap();
    assert_eq!(stock.points.len(), 11);
    for point in &stock.points {
        let doubts = doubts(&figure17(point.x.parse().unwrap()), &SECTION_VI);
        let off = (point.mean / modelled(&point.x) - 1.0).abs();
        assert_eq!(doubts.is_empty(), off < 0.05, "{}: {doubts:?}, {off}", point.x);
    }
    let figure14 = reference.curve("figure14", "snoop").unwrap();
    for point in &figure14.points {
        let d2 = point.x.strip_suffix(" ms").unwrap().parse().unwrap();
        let model = Model::new(MS(50), hops(10, 0.1, d2, 0.0001), 16).unwrap();
        let off = 1.0 - point.mean / model.snoop_throughput().per_second();
        assert!(off > 0.05, "{off}");
        assert_eq!(doubts(&model, &SECTION_VI)[0], Doubt::SeveralLosses);
    }
}

/// A window of 16 packets is more than 2 Mbit/s below 66.6 ms, and more than 0.2 Mbit/s in Table 6.
#[test]
fn a_window_can_be_more_than_the_link_carries() {
    let model = |wired| Model::new(MS(wired), hops(10, 0.0, 10, 0.0), 16).unwrap();
    assert!(close(link_limit(&SECTION_VI).per_second(), 240.4, 0.1));
    assert_eq!(doubts(&model(13), &SECTION_VI), [Doubt::LinkLimited]);
    assert_eq!(doubts(&model(14), &SECTION_VI), []);
    let table6 = Surroundings { link: Rate::from_kbps(200), ..SECTION_VI };
    assert_eq!(doubts(&figure17(0.001), &table6), [Doubt::LinkLimited]);
    assert_eq!((link_limit(&table6).per_second() * 8000.0) as u64, 192_307);
}

#[test]
fn a_round_as_long_as_the_least_timeout_is_doubted() {
    assert!(close(millis(figure17(0.1).snoop_round()), 322.3, 0.2));
    assert!(doubts(&figure17(0.1), &SECTION_VI).contains(&Doubt::Timeout));
    assert!(!doubts(&figure17(0.05), &SECTION_VI).contains(&Doubt::Timeout));
}

/// INC-S9: equations (4) to (6) ignore that acknowledgements are lost.
#[test]
fn lost_acknowledgements_matter_from_5_percent_on() {
    let reference = Reference::read().unwrap();
    let one = reference.curve("figure17", "snoop").unwrap();
    let both = reference.curve_both_directions("figure17", "snoop").unwrap();
    let cost = |p1: &str| 1.0 - ns2(both, p1) / ns2(one, p1);
    assert!(cost("0.01") < 0.01 && cost("0.02") < 0.01);
    assert!(close(cost("0.05"), 0.03, 0.005) && close(cost("0.1"), 0.14, 0.005));
    assert!(cost("0.2") > 0.5);
}

proptest! {
    /// EXP-S1: the closed form of (7) is the difference of (5) and (6).
    #[test]
    fn the_recovery_gain_is_the_difference_of_recovery_times(
        d1 in 0_u64..1000, d2 in 0_u64..1000, p1 in 0.0_f64..0.9, p2 in 0.0_f64..0.9,
    ) {
        let hops = hops(d1, p1, d2, p2);
        let difference = millis(hops.snoop_recovery()) - millis(hops.obtcp_recovery());
        prop_assert!(close(difference, millis(hops.recovery_gain()), 1e-5 * (1.0 + difference)));
    }

    /// EXP-S1: (8) and (9) are (7) where the other link loses nothing.
    #[test]
    fn one_lossy_link_is_a_case_of_two(d1 in 0_u64..100, d2 in 0_u64..100, p in 0.0_f64..0.9) {
        let [first, second] = [hops(d1, p, d2, 0.0), hops(d1, 0.0, d2, p)];
        let same = |a, b| close(millis(a), millis(b), 1e-5);
        prop_assert!(same(first.recovery_gain(), first.recovery_gain_first_lossy()));
        prop_assert!(same(second.recovery_gain(), second.recovery_gain_second_lossy()));
    }

    #[test]
    fn no_point_of_the_domain_panics_or_makes_obtcp_the_slower(
        d in 1_u64..u64::MAX, p1 in 0.0_f64..1.0, p2 in 0.0_f64..1.0, n in 1.0_f64..1e9,
    ) {
        let hops = hops(d, p1, d, p2);
        let model = Model::new(MS(d), hops, u32::MAX).unwrap();
        let batches = Batches { first: Batch::new(n).unwrap(), second: Batch::ONE };
        prop_assert!(hops.throughput_ratio().unwrap() >= 1.0 - 1e-9);
        prop_assert!(model.gain(batches) >= -1e-9);
        prop_assert!(model.snoop_round() >= model.round_trip());
        prop_assert!(hops.effective_loss().get() < 1.0);
    }

    /// Whatever n1 a gain needs, it gives that gain.
    #[test]
    fn the_batch_for_a_gain_gives_it(p1 in 0.01_f64..0.4, n1 in 1.01_f64..50.0) {
        let model = figure24(p1, 5);
        let batches = |first| Batches { first, second: Batch::ONE };
        let gain = model.gain(batches(Batch::new(n1).unwrap()));
        let found = model.first_batch_for(gain, Batch::ONE).unwrap();
        prop_assert!(close(found.packets(), n1, 1e-6 * n1));
    }
}

/// What stands in a column of Table 5 or 6, row by row.
fn printed(table: &str) -> Vec<f64> {
    let published = reproduce::obtcp_2010::published().unwrap();
    let table = published.table(table).unwrap();
    table.row.iter().map(|row| row.cell[0].alone().unwrap()).collect()
}

/// Packets of 1000 bytes in a second.
fn packets(per_second: f64) -> Rate {
    Rate::from_bps((per_second * 8000.0).round() as u64)
}

/// (21) and (22) from the goodputs of a table, row by row.
fn shared(table: &str, bottleneck: Rate) -> Vec<(f64, f64)> {
    let flows = [printed(&format!("{table}-obtcp")), printed(&format!("{table}-snoop"))];
    let row = |i: usize| {
        let shares = [packets(flows[0][i]), packets(flows[1][i])];
        (fairness(&shares).unwrap(), utilisation(&shares, bottleneck).unwrap())
    };
    (0..flows[0].len()).map(row).collect()
}

/// MET-7, INC-S3: Table 6 follows from its goodputs.
#[test]
fn table_6_agrees_with_equations_21_and_22() {
    let (omegas, psis) = (printed("table6-fairness"), printed("table6-utilisation"));
    for (i, (omega, psi)) in shared("table6", Rate::from_kbps(200)).into_iter().enumerate() {
        assert!(close(omega, omegas[i], 1.1e-3) && close(psi, psis[i], 0.05), "{i}: {omega} {psi}");
    }
}

/// MET-7, INC-S3: Table 5 follows from its goodputs in part; INC-S4: they are packets and no
/// fractions.
#[test]
fn table_5_disagrees_with_equations_21_and_22_where_it_is_known_to() {
    let computed = shared("table5", Rate::from_mbps(2));
    let told =
        [(0.99897, 79.6), (0.99824, 65.8), (0.99885, 50.76), (0.99392, 41.328), (0.92226, 30.628)];
    for ((omega, psi), (told_omega, told_psi)) in computed.iter().zip(told) {
        assert!(close(*omega, told_omega, 1e-5) && close(*psi, told_psi, 1e-3), "{omega} {psi}");
    }
    let off = |printed: Vec<f64>, tolerance: f64, of: fn(&(f64, f64)) -> f64| -> Vec<usize> {
        let is_off = |i: &usize| !close(of(&computed[*i]), printed[*i], tolerance);
        (0..printed.len()).filter(is_off).collect()
    };
    assert_eq!(off(printed("table5-utilisation"), 0.1, |row| row.1), [2, 3, 4]);
    assert_eq!(off(printed("table5-fairness"), 3e-3, |row| row.0), [3]);
}
