//! What must hold of every run, whatever its schedule.
//!
//! Checkers know nothing of how a schedule came about; they compare what both ends of each
//! connection did and saw.

use core::fmt;

use lasthop_session::{Opening, Refusal, ResetReason};
use lasthop_units::Time;

use crate::plan::ConnectionPlan;
use crate::side::Account;

/// A promise that was broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Violation {
    /// Which.
    pub(crate) check: Check,
    /// When it was noticed.
    pub(crate) at: Time,
    /// Of which connection, if of one.
    pub(crate) connection: Option<usize>,
    /// What was found.
    pub(crate) found: String,
}

/// The promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Check {
    /// Every byte read is the byte that was written there.
    ByteExact,
    /// An end is read only after all bytes before it; all bytes arrive unless somebody gave up.
    Complete,
    /// A result is what the other end said: openings, refusals and resets are not invented.
    Faithful,
    /// Once the radio is well, everything comes to its end in time.
    Live,
    /// An association that nobody ended stands.
    Standing,
    /// Buffers stay within what the transport promises.
    Memory,
    /// When every connection is over, nothing is left of them.
    Forgotten,
    /// A packet that arrives is one that was sent, whole and unchanged.
    PacketsExact,
    /// No packet arrives twice.
    PacketsOnce,
    /// Packets of a flow that have patience arrive in the order in which they were sent.
    PacketsOrdered,
    /// None arrives later than what it may wait to be sent, its patience, and a datagram's way.
    PacketsTimely,
    /// Machines do not spin, send without end or speak of what is over.
    Sane,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {}", self.check, self.at)?;
        if let Some(connection) = self.connection {
            write!(f, ", connection {connection}")?;
        }
        write!(f, ": {}", self.found)
    }
}

/// Compares what both ends of a connection that is over saw; `fixed_host` is none if the base never
/// heard of it.
pub(crate) fn connection(
    at: Time,
    index: usize,
    plan: &ConnectionPlan,
    application: &Account,
    fixed_host: Option<&Account>,
) -> Result<(), Violation> {
    let fail = |check, found: String| Err(Violation { check, at, connection: Some(index), found });
    let nobody = Account::default();
    let host = fixed_host.unwrap_or(&nobody);
    for (mine, peers, who) in
        [(application, host, "application"), (host, application, "fixed host")]
    {
        if let Err((check, found)) = one_way(mine, peers) {
            return fail(check, format!("the {who} {found}"));
        }
    }
    if let Err(found) = opening(plan, application, host) {
        return fail(Check::Faithful, found);
    }
    if plan.completes() && !(application.ended && host.ended) {
        return fail(Check::Complete, "nobody gave up, yet not both ends read an end".into());
    }
    Ok(())
}

/// What one end saw of the other.
fn one_way(mine: &Account, peers: &Account) -> Result<(), (Check, String)> {
    wrong_byte(mine)?;
    if mine.received > peers.sent {
        let found = format!("read {} bytes of {} written", mine.received, peers.sent);
        return Err((Check::ByteExact, found));
    }
    if mine.ended && !(peers.finished && mine.received == peers.sent) {
        let (read, written) = (mine.received, peers.sent);
        let found = format!("read an end after {read} bytes of {written} written");
        return Err((Check::Complete, found));
    }
    let explained = peers.gave_up || peers.refused;
    match mine.reset {
        Some(reason) if !explained => {
            Err((Check::Faithful, format!("saw a reset ({reason}) that nobody sent")))
        }
        Some(reason) if peers.gave_up && reason != ResetReason::Aborted => {
            Err((Check::Faithful, format!("saw the reset as `{reason}`")))
        }
        _ => Ok(()),
    }
}

/// A byte that is not the one written, as soon as it was read.
pub(crate) fn wrong_byte(mine: &Account) -> Result<(), (Check, String)> {
    match mine.wrong {
        Some((offset, at)) => {
            Err((Check::ByteExact, format!("read a wrong byte at offset {offset} at {at}")))
        }
        None => Ok(()),
    }
}

/// Whether the application was told what the fixed host said.
fn opening(plan: &ConnectionPlan, application: &Account, host: &Account) -> Result<(), String> {
    let told_of_opening = application.opened && plan.opening == Opening::Faithful;
    if told_of_opening && !host.opened {
        return Err("was told that it stands, but nobody accepted".into());
    }
    if let Some(refusal) = application.failed {
        let refused = host.refused && plan.refusal == Some(refusal);
        // A fixed host that gives up at once may overtake the news that it had accepted.
        let gave_up = host.gave_up && refusal == ResetReason::Aborted.as_refusal();
        if !refused && !gave_up {
            return Err(format!("failed with `{refusal}`, which nobody said"));
        }
    }
    if !host.refused || application.gave_up {
        return Ok(());
    }
    let said = plan.refusal.unwrap_or(Refusal::Refused);
    match (plan.opening, application.failed, application.reset) {
        (Opening::Faithful, Some(_), None) => Ok(()),
        (Opening::Early, None, Some(ResetReason::Refused(heard))) if heard == said => Ok(()),
        (_, failed, reset) => {
            Err(format!("was refused with `{said}` and heard {failed:?}, {reset:?}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use lasthop_units::{Duration, Seed};

    use super::*;

    fn plan() -> ConnectionPlan {
        let mut random = Seed::from_u64(1).stream("plan");
        let mut plan = ConnectionPlan::random(&mut random, 1, Duration::from_secs(1), 1000);
        plan.refusal = None;
        plan.opening = Opening::Faithful;
        plan.application.reset_after = None;
        plan.fixed_host.reset_after = None;
        plan
    }

    fn good() -> Account {
        let (sent, received) = (10, 10);
        let done = Account { finished: true, ended: true, opened: true, ..Account::default() };
        Account { sent, received, closed: true, ..done }
    }

    fn verdict(plan: &ConnectionPlan, application: &Account, host: &Account) -> Option<Check> {
        connection(Time::ZERO, 0, plan, application, Some(host)).err().map(|v| v.check)
    }

    #[test]
    fn a_connection_that_went_well_breaks_no_promise() {
        assert_eq!(verdict(&plan(), &good(), &good()), None);
    }

    #[test]
    fn each_promise_can_be_broken() {
        let (plan, good) = (plan(), good());
        let broken = |change: fn(&mut Account)| {
            let mut account = good.clone();
            change(&mut account);
            verdict(&plan, &account, &good)
        };
        assert_eq!(broken(|a| a.wrong = Some((3, Time::ZERO))), Some(Check::ByteExact));
        assert_eq!(broken(|a| a.received = 11), Some(Check::ByteExact));
        assert_eq!(broken(|a| a.received = 9), Some(Check::Complete));
        assert_eq!(broken(|a| a.ended = false), Some(Check::Complete));
        assert_eq!(broken(|a| a.finished = false), Some(Check::Complete));
        assert_eq!(broken(|a| a.reset = Some(ResetReason::Aborted)), Some(Check::Faithful));
        assert_eq!(broken(|a| a.failed = Some(Refusal::Refused)), Some(Check::Faithful));
    }

    #[test]
    fn a_refusal_must_be_heard_as_it_was_said() {
        let plan = ConnectionPlan { refusal: Some(Refusal::NetworkUnreachable), ..plan() };
        let host = Account { refused: true, closed: true, ..Account::default() };
        let heard = |failed| Account { failed, closed: true, ..Account::default() };
        let verdict = |failed| verdict(&plan, &heard(failed), &host);
        assert_eq!(verdict(Some(Refusal::NetworkUnreachable)), None);
        assert_eq!(verdict(Some(Refusal::Refused)), Some(Check::Faithful));
        assert_eq!(verdict(None), Some(Check::Faithful));
    }
}
