//! What the tests of all reproductions have in common.

use std::sync::Arc;

use lasthop_scenario::Scenario;
use lasthop_units::Seed;

use super::study::Request;
use super::{Cell, CellRunner, Failure, sheet};

/// A runner of cells whose cases are changed first.
pub(super) struct Changed<R, F> {
    pub(super) runner: R,
    pub(super) change: F,
}

impl<C: Clone, R: CellRunner<C>, F: Fn(&mut C) + Sync> CellRunner<C> for Changed<R, F> {
    fn run(&self, cell: &Cell<C>, run: u32, seed: Seed) -> Result<f64, Failure> {
        let mut cell = cell.clone();
        (self.change)(&mut cell.case);
        self.runner.run(&cell, run, seed)
    }
}

/// Changes the scenarios of a case.
pub(super) fn change(case: &mut sheet::Case, change: impl Fn(&mut Scenario)) {
    match case {
        sheet::Case::Metric { scenario, .. } => change(Arc::make_mut(scenario)),
        sheet::Case::Change { from, to, .. } => {
            [from, to].into_iter().for_each(|scenario| change(Arc::make_mut(scenario)));
        }
    }
}

/// A request for some cells; for all of them if `only` is empty.
pub(super) fn request(only: &[&str], runs: u32) -> Request {
    Request {
        runs,
        seed: 1,
        jobs: None,
        only: only.iter().map(|only| only.parse().unwrap()).collect(),
        full: false,
        processing: None,
        version: "0.0.0".to_owned(),
    }
}

/// A report without what XML does not know, for a parser that is strict about the rest.
pub(crate) fn as_xml(html: &str) -> String {
    let body = html.strip_prefix("<!DOCTYPE html>").unwrap();
    let (before, meta) = body.split_once("<meta").unwrap();
    let (_, after) = meta.rsplit_once("<meta").unwrap();
    let (_, rest) = after.split_once('>').unwrap();
    format!("{before}{rest}")
}
