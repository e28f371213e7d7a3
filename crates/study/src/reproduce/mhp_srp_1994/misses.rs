//! Why cells miss. A reason belongs here once it has been found, not when it is suspected.

use crate::reproduce::{Label, Only};

/// A choice of cells, as `--only` takes it, and why they are off.
type Reason = (&'static str, &'static str);

/// TCP and a handoff: what every simulation of its timers gives, and what the paper has.
const TCP_PAUSE: &str = "A pause costs ours its own length and the wait for the retransmission timer \
    after it. Without loss, pauses of 1, 2.8 and 5 s cost the paper's TCP 10, 11 and 15 s: most of \
    that does not come from the pause's length. No setting of timers and windows that also gives \
    the base cell has been found to do so. How long routes took to follow the mobile to its new \
    base is not said.";
const TCP_LOSS: &str = "With bursts of the mean that was taken, ours gets through sooner. Shorter \
    bursts cost tcp more, but split-tcp too, which then takes longer than the paper's (see the \
    sensitivity table).";
const SPLIT_PAUSE: &str = "Without loss a pause of 1 s costs the paper's split-tcp 4.6 s, and ours \
    little more than the pause: its handoff takes far less than a second, and slow start on a hop \
    whose round trip is short costs little. The paper's surrogates were user-level processes, and \
    how long they took to move a connection is not given.";
const SRP_LOSS: &str = "Ours learns of each loss from the next acknowledgement, and of a lost \
    repetition likewise; what the paper's timer adds is not known. With 5 % loss and no pause the \
    paper's srp (19.6 s) hardly gains on its split-tcp (20.1 s), although it repairs several losses \
    in a round trip.";
const SRP_PAUSE: &str = "Without loss a pause of 1 s costs the paper's srp 1.2 s, and one of 2.8 s \
    costs it 8.4 s: something waits that the paper does not name (INC-Y5). Ours resumes as soon as \
    the mobile is told of its base.";

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
