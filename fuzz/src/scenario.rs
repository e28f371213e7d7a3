//! Scenario files, of any text: one is read or refused with its lines, and what is read is always the
//! same and can be built.

use std::path::Path;

use lasthop_scenario::{ScenarioError, Study};
use lasthop_units::Seed;

/// Points of one sweep that are built, and seeds for each.
const POINTS: usize = 3;
const SEEDS: u64 = 2;

fn parse(text: &str) -> Result<Study, ScenarioError> {
    Study::parse(Path::new("x.toml"), text)
}

fn is_told_where(error: &ScenarioError, text: &str) {
    let lines = text.lines().count().max(1);
    assert!(!error.problems().is_empty());
    for problem in error.problems() {
        // A text that ends in a line break may lack something behind it.
        assert!((1..=lines + 1).contains(&problem.line), "{problem:?}, {lines} lines");
        assert!(!problem.message.is_empty());
    }
    assert!(error.to_string().starts_with("x.toml:"));
}

/// One input; what is not UTF-8 in it is replaced.
pub fn run(bytes: &[u8]) {
    let text = &String::from_utf8_lossy(bytes);
    let study = match parse(text) {
        Ok(study) => study,
        Err(error) => return is_told_where(&error, text),
    };
    let again = parse(text).expect("as before");
    assert_eq!(study.points().len(), again.points().len());
    for (point, again) in study.points().iter().zip(again.points()).take(POINTS) {
        assert_eq!(point.hash(), again.hash());
        for seed in 0..SEEDS {
            if let Err(error) = study.scenario(point, Seed::from_u64(seed)) {
                is_told_where(&error, text);
            }
        }
    }
}
