//! What fixed hosts say of connections whose base is dead.

use std::time::Duration;

use lasthop_migrate::{self as migrate, Claim, ClaimError, Claimed};
use lasthop_session::station::Reclaimed;

/// How long fixed hosts may take to say what they have if none does: what is in the queue of a slow path goes first.
const PATIENCE: Duration = Duration::from_secs(4);

/// Asks the fixed hosts of these connections, where there is a claim, and waits for what they say.
pub(super) fn reclaim(claims: Vec<Option<Claim>>) -> Vec<Option<Reclaimed>> {
    let answered = ask_for_those(claims, |claims| migrate::claim_all(claims, PATIENCE));
    answered.into_iter().map(|one| one.and_then(|(claim, answer)| read(&claim, answer))).collect()
}

fn read(claim: &Claim, answer: Result<Claimed, ClaimError>) -> Option<Reclaimed> {
    let migrate::Flow { local, remote } = claim.ticket.flow();
    match answer {
        Ok(Claimed { image, up, up_end }) => {
            Some(Reclaimed { local, remote, up, up_end, image: image.encode() })
        }
        // Who has both ends of a connection forgets it.
        Err(ClaimError::Gone) if claim.received_end && claim.sent_end => {
            Some(Reclaimed { local, remote, up: claim.sent, up_end: true, image: Vec::new() })
        }
        Err(error) => {
            tracing::warn!(to = %remote, %error, "a connection of a dead base cannot go on");
            None
        }
    }
}

/// Asks for all that there are together, and gives each its own answer, in the order of the questions.
fn ask_for_those<Q: Clone, A>(
    all: Vec<Option<Q>>,
    ask: impl FnOnce(&[Q]) -> Vec<A>,
) -> Vec<Option<(Q, A)>> {
    let asked: Vec<Q> = all.iter().flatten().cloned().collect();
    let mut answers = ask(&asked).into_iter();
    all.into_iter().map(|one| one.and_then(|one| Some((one, answers.next()?)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ACK-6: a ticket that is none changes nothing for the others.
    #[test]
    fn each_claim_has_its_own_answer_whatever_is_no_claim() {
        let all = vec![None, Some(1), None, Some(2), Some(3), None, Some(4)];
        let ask = |asked: &[i32]| asked.iter().map(|n| n * 10).take(3).collect();
        let own = |n| Some((n, n * 10));
        let answered = ask_for_those(all, ask);
        assert_eq!(answered, [None, own(1), None, own(2), own(3), None, None]);
    }
}
