//! Why cells miss. A reason belongs here once it has been found, not when it is suspected.

use crate::reproduce::{Label, Only};

/// A choice of cells, as `--only` takes it, and why they are off.
type Reason = (&'static str, &'static str);

/// TCP and a handoff: what every simulation of its timers gives, and what the paper has.
const TCP_PAUSE: &str = "A pause costs ours itself and what is left of the timer's ladder: 3, 6 and \
    12 s without loss. The paper's TCP loses 10, 11 and 15 s, whatever the pause; no setting of \
    timers and windows that also gives the base cell has been found to do so. Paths of the time \
    lost routes at a change of base, for longer than the pause that was simulated; nothing of that \
    is said.";
const TCP_LOSS: &str = "With bursts of loss that last as long as those that suit the other cells, \
    ours escapes sooner. Shorter bursts cost TCP more (see the sensitivity table), and split-tcp \
    with it, beyond the paper's.";
const SPLIT_PAUSE: &str = "Without loss a pause of 1 s costs the paper's split-tcp 4.6 s and ours \
    1.2 s: the handoff of ours takes some 50 ms, and slow start on a hop whose round trip is short \
    costs little. The paper's surrogates were user-level processes, whose own time for moving a \
    connection is not given.";
const SRP_LOSS: &str = "Ours learns of each loss from the next acknowledgement, and of a lost \
    repetition likewise; what the paper's timer adds is not known. With loss alone the paper's srp \
    is no faster than its split-tcp, although it repairs several losses in a round trip.";
const SRP_PAUSE: &str = "In the paper a pause of 1 s costs srp 1.2 s, one of 2.8 s costs 8.4 s: \
    something waits that the paper does not name (INC-Y5). Ours resumes as soon as the mobile is \
    told of its base.";

const REASONS: [Reason; 12] = [
    ("tcp/1s", TCP_PAUSE),
    ("tcp/2.8s", TCP_PAUSE),
    ("tcp/5s", TCP_PAUSE),
    ("tcp", TCP_LOSS),
    ("split-tcp/1s", SPLIT_PAUSE),
    ("split-tcp/2.8s", SPLIT_PAUSE),
    ("split-tcp/5s", SPLIT_PAUSE),
    ("srp/2.8s", SRP_PAUSE),
    ("srp/5s", SRP_PAUSE),
    ("srp/5%", SRP_LOSS),
    ("srp/10%", SRP_LOSS),
    ("split-tcp", TCP_LOSS),
];

/// Why the cell at `label` is off, if that is known.
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
