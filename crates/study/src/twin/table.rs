//! Which cells there are.

use lasthop_units::{Duration, Scheme};

use super::cell::{Cell, Condition, Sender};

const CONDITIONS: [Condition; 10] = [
    Condition::Clean,
    Condition::Loss { per_mille: 1 },
    Condition::Loss { per_mille: 10 },
    Condition::Loss { per_mille: 50 },
    Condition::Fades,
    Condition::Gaps { told: true },
    Condition::Gaps { told: false },
    Condition::TwoHops,
    Condition::FirstHop,
    Condition::BigRadio,
];

/// Whether a scheme can help under a condition: none, and what has agents on Linux.
fn can_help(scheme: Scheme, condition: Condition) -> bool {
    let fits = match condition {
        // The losses that snoop and obTCP repair, each in its own place.
        Condition::FirstHop => matches!(scheme, Scheme::Snoop | Scheme::Obtcp),
        Condition::BigRadio => scheme == Scheme::Snoop,
        // A link recovers between a base and the mobile itself.
        Condition::TwoHops => !scheme.recovers_on_link(),
        _ => !scheme.traits().needs_mobile_router,
    };
    scheme == Scheme::None || fits && !scheme.roles().is_empty()
}

/// The whole table, by condition, sender and scheme; what all are compared with, [`Scheme::None`],
/// comes first of each condition and sender.
pub fn cells(duration: Duration) -> Vec<Cell> {
    let mut all = Vec::new();
    let mut schemes = Scheme::ALL;
    schemes.sort_by_key(|scheme| (scheme.traits().place, scheme.recovers_on_link()));
    for condition in CONDITIONS {
        for sender in [Sender::Reno, Sender::Cubic] {
            let there = schemes.into_iter().filter(|scheme| can_help(*scheme, condition));
            all.extend(there.map(|scheme| Cell { condition, scheme, sender, duration }));
        }
    }
    all
}
