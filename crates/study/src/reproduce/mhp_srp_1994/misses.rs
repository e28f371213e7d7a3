//! Why cells miss: which reason of those in `papers/mhp-srp-1994/report.toml` is whose.

use crate::reproduce::{Label, Only};

/// A choice of cells, as `--only` takes it, and the name of the text that says why they are off.
type Reason = (&'static str, &'static str);

const REASONS: [Reason; 12] = [
    ("tcp/1s", "tcp-pause"),
    ("tcp/2.8s", "tcp-pause"),
    ("tcp/5s", "tcp-pause"),
    ("tcp", "tcp-loss"),
    ("split-tcp/1s", "split-pause"),
    ("split-tcp/2.8s", "split-pause"),
    ("split-tcp/5s", "split-pause"),
    ("srp/2.8s", "srp-pause"),
    ("srp/5s", "srp-pause"),
    ("srp/5%", "srp-loss"),
    ("srp/10%", "srp-loss"),
    ("split-tcp", "tcp-loss"),
];

/// The name of the text that says why the cell at `label` is off, if that is known.
pub(super) fn reason(label: &Label) -> Option<&'static str> {
    reason_in(&REASONS, label)
}

fn reason_in(reasons: &[Reason], label: &Label) -> Option<&'static str> {
    let takes = |only: &str| only.parse().is_ok_and(|only: Only| only.takes(label));
    reasons.iter().find(|(only, _)| takes(only)).map(|(_, why)| *why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::mhp_srp_1994::STUDY;

    #[test]
    fn every_reason_is_about_a_cell() {
        let labels = (STUDY.labels)().unwrap();
        for (only, _) in REASONS {
            let only: Only = only.parse().unwrap();
            assert!(labels.iter().any(|label| only.takes(label)), "{only}");
        }
    }

    #[test]
    fn the_first_reason_that_takes_a_cell_is_its_own() {
        let reasons = [("srp/5s", "first"), ("srp", "second")];
        let labels = (STUDY.labels)().unwrap();
        let of = |table: &str, row: &str| {
            let label = labels.iter().find(|l| l.table == table && l.row == row).unwrap();
            reason_in(&reasons, label)
        };
        assert_eq!(of("table3", "5 s"), Some("first"));
        assert_eq!(of("table3", "1 s"), Some("second"));
        assert_eq!(of("table1", "1 s"), None);
    }
}
