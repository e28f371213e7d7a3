//! How a call is judged.

use std::time::Duration;

use lasthop_engine::emodel::{
    absolute_delay_impairment, call, effective_equipment_impairment, mos, mos_of_rating, rating,
};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[track_caller]
fn near(value: f64, expected: f64, by: f64) {
    assert!((value - expected).abs() <= by, "{value} is not {expected}");
}

/// G.107 section 7.7: with all default values R is 93.2.
#[test]
fn a_call_without_delay_and_loss_has_the_default_rating() {
    near(rating(Duration::ZERO, 0.0), 93.2, 0.05);
    near(mos(Duration::ZERO, 0.0), 4.41, 0.005);
}

/// G.107 Table B.1.
#[test]
fn scores_of_ratings_are_the_published_ones() {
    for (r, mos) in [(90.0, 4.34), (80.0, 4.03), (70.0, 3.60), (60.0, 3.10), (50.0, 2.58)] {
        near(mos_of_rating(r), mos, 0.01);
    }
    assert_eq!((mos_of_rating(-5.0), mos_of_rating(3.0)), (1.0, 1.0));
    assert_eq!((mos_of_rating(100.0), mos_of_rating(120.0)), (4.5, 4.5));
}

/// G.113 Appendix I: half of the 95 points are lost at a loss of Bpl percent.
#[test]
fn loss_costs_what_concealment_leaves_of_it() {
    near(effective_equipment_impairment(0.251), 47.5, 1e-9);
    near(effective_equipment_impairment(0.01), 3.64, 0.005);
    near(effective_equipment_impairment(0.05), 15.78, 0.005);
    near(rating(Duration::ZERO, 0.01), 89.57, 0.05);
    near(effective_equipment_impairment(7.0), effective_equipment_impairment(1.0), 0.0);
    assert!(mos(ms(1), f64::NAN).is_nan());
}

/// Idd is nothing up to 100 ms; then X = log2(Ta / 100 ms) is 1 at 200 ms and 2 at 400 ms.
#[test]
fn delay_as_such_costs_nothing_up_to_100_ms() {
    assert_eq!(absolute_delay_impairment(100.0), 0.0);
    near(absolute_delay_impairment(150.0), 0.16, 0.01);
    near(absolute_delay_impairment(200.0), 3.04, 0.01);
    near(absolute_delay_impairment(400.0), 24.07, 0.01);
}

/// Cole and Rosenbluth fitted 0.024 d + 0.11 (d - 177.3) H(d - 177.3), d in ms, to the same model.
#[test]
fn delay_costs_about_what_its_well_known_simplification_says() {
    for d in [0, 25, 50, 100, 150, 200, 250, 300] {
        let line = 0.024 * d as f64 + 0.11 * (d as f64 - 177.3).max(0.0);
        near(93.2 - rating(ms(d), 0.0), line, 0.3);
    }
}

#[test]
fn more_delay_or_loss_is_never_better() {
    let ratings: Vec<f64> = (1..1000).map(|d| rating(ms(d), 0.0)).collect();
    assert!(ratings.is_sorted_by(|a, b| a > b));
    assert!(mos(ms(50), 0.02) < mos(ms(50), 0.01));
    assert_eq!(mos(Duration::MAX, 1.0), 1.0);
}

#[test]
fn a_call_is_judged_by_what_is_played_in_time() {
    let clean = call(ms(40), &[Duration::ZERO; 100], 100);
    assert_eq!(clean, mos(ms(60), 0.0));
    // A few that come very late are better lost than waited for; if half do, they are waited for.
    let mut added = vec![Duration::ZERO; 98];
    added.extend([ms(400); 2]);
    assert_eq!(call(ms(40), &added, 100), mos(ms(60), 0.02));
    let added: Vec<Duration> = [ms(0), ms(50)].repeat(50);
    let mut sorted = added;
    sorted.sort();
    assert_eq!(call(ms(40), &sorted, 100), mos(ms(110), 0.0));
    assert!(call(ms(40), &[], 100).is_nan());
}
