//! Which cells there are.

use lasthop_units::Duration;

use super::cell::{Cell, Condition, Sender};
use crate::scenario::Scheme;

/// What can help over one hop, from the path or from the mobile's edge.
const ONE_HOP: [Scheme; 9] = [
    Scheme::None,
    Scheme::Snoop,
    Scheme::MTcp,
    Scheme::DelayedDupacks,
    Scheme::CongestionCoherence,
    Scheme::Freeze,
    Scheme::LlFreeze,
    Scheme::Atcp,
    Scheme::Rwc,
];
/// What can help behind a mobile router.
const TWO_HOPS: [Scheme; 8] = [
    Scheme::None,
    Scheme::Snoop,
    Scheme::Obtcp,
    Scheme::MTcp,
    Scheme::Freeze,
    Scheme::LlFreeze,
    Scheme::Atcp,
    Scheme::Rwc,
];
/// Losses that snoop and obTCP repair, each in its own place.
const FIRST_HOP: [Scheme; 3] = [Scheme::None, Scheme::Snoop, Scheme::Obtcp];
const BIG_RADIO: [Scheme; 2] = [Scheme::None, Scheme::Snoop];

const CONDITIONS: [(Condition, &[Scheme]); 10] = [
    (Condition::Clean, &ONE_HOP),
    (Condition::Loss { per_mille: 1 }, &ONE_HOP),
    (Condition::Loss { per_mille: 10 }, &ONE_HOP),
    (Condition::Loss { per_mille: 50 }, &ONE_HOP),
    (Condition::Fades, &ONE_HOP),
    (Condition::Gaps { told: true }, &ONE_HOP),
    (Condition::Gaps { told: false }, &ONE_HOP),
    (Condition::TwoHops, &TWO_HOPS),
    (Condition::FirstHop, &FIRST_HOP),
    (Condition::BigRadio, &BIG_RADIO),
];

/// The whole table, by condition, sender and scheme; what all are compared with, [`Scheme::None`],
/// comes first of each condition and sender.
pub fn cells(duration: Duration) -> Vec<Cell> {
    let mut all = Vec::new();
    for (condition, schemes) in CONDITIONS {
        for sender in [Sender::Reno, Sender::Cubic] {
            let cell = |scheme: &Scheme| Cell { condition, scheme: *scheme, sender, duration };
            all.extend(schemes.iter().map(cell));
        }
    }
    all
}
