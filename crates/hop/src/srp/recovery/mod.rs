//! Loss recovery: what was sent, what the peer acknowledged, and what counts as lost (SRP-3, SRP-4).
//!
//! Gaps are losses. Where a hop does reorder, what was taken for lost and arrives after all teaches
//! how long to wait.

mod bursts;
mod round_trip;
mod sent;

use core::time::Duration;

use lasthop_units::Time;
use lasthop_wire::frame::Ack;

use super::Violation;
use super::content::Content;
use super::sample::Sample;
use bursts::Bursts;
pub(super) use round_trip::RoundTrip;
pub(super) use sent::{Fate, Purpose, Sent, SentLog};

/// The tolerated reordering is halved after so long without a spurious loss.
const REORDERING_MEMORY: Duration = Duration::from_secs(20);
/// What one datagram's fate weighs in the share that is lost.
const LOSS_WEIGHT: f64 = 1.0 / 64.0;
/// A datagram that no acknowledgement covered is waited for so long, and one and a half round trips.
const UNREPORTED: Duration = Duration::from_millis(25);

/// Follows every datagram from its leaving until its fate is known.
#[derive(Debug)]
pub(super) struct Recovery {
    log: SentLog,
    round_trip: RoundTrip,
    largest_acked: u64,
    largest_acked_sent: Time,
    /// When the last of the acknowledged arrived, by the receiver's clock, unwrapped.
    arrival_us: u64,
    /// Bytes and datagrams acknowledged.
    delivered: u64,
    acked: u64,
    /// Bytes and datagrams declared lost.
    lost_bytes: u64,
    lost_datagrams: u64,
    /// The share of datagrams lost of late, whatever the rate.
    loss: f64,
    bursts: Bursts,
    /// How much later than its successors a datagram may arrive before it counts as lost.
    reordering: Duration,
    reordering_seen: Time,
    loss_timer: Option<Time>,
}

/// What an acknowledgement changed, but for the fates of single datagrams.
#[derive(Debug, Default)]
pub(super) struct AckOutcome {
    /// Something was acknowledged for the first time.
    pub(super) progress: bool,
    /// Datagrams that had been taken for lost.
    pub(super) spurious: u64,
    /// A round trip without the receiver's delay.
    pub(super) rtt: Option<Duration>,
    /// The lowest number above all that was acknowledged before, if a higher one was.
    pub(super) raised_from: Option<u64>,
}

impl Recovery {
    pub(super) fn new(now: Time) -> Self {
        Self {
            log: SentLog::new(),
            round_trip: RoundTrip::default(),
            largest_acked: 0,
            largest_acked_sent: now,
            arrival_us: 0,
            delivered: 0,
            acked: 0,
            lost_bytes: 0,
            lost_datagrams: 0,
            loss: 0.0,
            bursts: Bursts::default(),
            reordering: Duration::ZERO,
            reordering_seen: now,
            loss_timer: None,
        }
    }

    /// What was sent and may still matter.
    pub(super) fn log(&self) -> &SentLog {
        &self.log
    }

    /// The highest number acknowledged; 0 if none was.
    pub(super) fn largest_acked(&self) -> u64 {
        self.largest_acked
    }

    /// When the datagram with the highest number acknowledged was sent.
    pub(super) fn largest_acked_sent(&self) -> Option<Time> {
        (self.largest_acked > 0).then_some(self.largest_acked_sent)
    }

    pub(super) fn round_trip(&self) -> &RoundTrip {
        &self.round_trip
    }

    /// The share of datagrams lost of late; of the last few dozen, also where they are too few and too far apart to
    /// measure a rate by.
    pub(super) fn loss(&self) -> f64 {
        self.loss
    }

    /// How much later than its successors a datagram may arrive before it counts as lost.
    pub(super) fn reordering(&self) -> Duration {
        self.reordering
    }

    /// When [`find_losses`](Self::find_losses) must be called, if nothing is acknowledged before.
    pub(super) fn loss_timer(&self) -> Option<Time> {
        self.loss_timer
    }

    /// A round trip was measured by other means.
    pub(super) fn on_round_trip(&mut self, rtt: Duration) {
        self.round_trip.sample(rtt);
    }

    /// A datagram leaves, with the [next number](SentLog::next_number).
    pub(super) fn on_sent(&mut self, sent: Sent) {
        self.log.push(sent);
    }

    /// Takes in an acknowledgement; each datagram of which nothing was known before is handed to
    /// `arrived`, which may take what it carried. To be followed by [`find_losses`](Self::find_losses).
    ///
    /// # Errors
    ///
    /// It acknowledges what was never sent.
    pub(super) fn on_ack(
        &mut self,
        now: Time,
        ack: &Ack<'_>,
        mut arrived: impl FnMut(&mut Sent),
    ) -> Result<AckOutcome, Violation> {
        if ack.latest >= self.log.next_number() {
            return Err(Violation);
        }
        let mut outcome = AckOutcome::default();
        for number in ack.first.max(self.log.floor())..=ack.latest {
            if ack.received(number)
                && self.log.get(number).is_some_and(|s| s.fate == Fate::Unknown)
                && let Some(sent) = self.log.set_fate(number, Fate::Acked)
            {
                self.delivered += u64::from(sent.size);
                self.acked += 1;
                self.loss -= self.loss * LOSS_WEIGHT;
                outcome.progress = true;
                arrived(sent);
            }
        }
        outcome.spurious = self.find_spurious(now, ack);
        if ack.latest > self.largest_acked {
            outcome.progress = true;
            outcome.raised_from = Some(self.largest_acked + 1);
            self.largest_acked = ack.latest;
            if let Some(at) = self.log.get(ack.latest).map(|s| s.at) {
                self.largest_acked_sent = at;
                let held = Duration::from_micros(ack.delay_us);
                let rtt = now.since(at).saturating_sub(held);
                // An acknowledgement of something old was itself delayed: it measures nothing.
                if !rtt.is_zero() {
                    self.round_trip.sample(rtt);
                    outcome.rtt = Some(rtt);
                }
            }
        }
        Ok(outcome)
    }

    /// A datagram taken for lost that arrived after all shows how much this hop reorders.
    fn find_spurious(&mut self, now: Time, ack: &Ack<'_>) -> u64 {
        let mut spurious = 0;
        let srtt = self.round_trip.srtt().unwrap_or_default();
        let from = if self.log.has_lost() { ack.first.max(self.log.base()) } else { ack.latest };
        for number in from..ack.latest {
            if !ack.received(number) {
                continue;
            }
            let Some(sent) = self.log.get(number).filter(|s| s.fate == Fate::Lost) else {
                continue;
            };
            let overtaken_by = self.largest_acked_sent.since(sent.at);
            let size = u64::from(sent.size);
            self.log.set_fate(number, Fate::Acked);
            spurious += 1;
            self.delivered += size;
            self.lost_bytes -= size.min(self.lost_bytes);
            self.lost_datagrams = self.lost_datagrams.saturating_sub(1);
            self.reordering_seen = now;
            let wanted = overtaken_by + overtaken_by / 4 + Duration::from_millis(1);
            self.reordering = self.reordering.max(wanted.min(srtt));
        }
        if !self.reordering.is_zero() && now.since(self.reordering_seen) > REORDERING_MEMORY {
            self.reordering_seen = now;
            self.reordering /= 2;
            if self.reordering < Duration::from_millis(1) {
                self.reordering = Duration::ZERO;
            }
        }
        spurious
    }

    /// What all datagrams of unknown fate carry goes other ways from here on. They may still be acknowledged.
    pub(super) fn take_back(&mut self) -> impl Iterator<Item = Content> {
        let at_stake = self.log.unknown_mut().filter(|sent| !sent.at_stake().is_empty());
        at_stake.flat_map(|sent| {
            sent.purpose = Purpose::Elsewhere;
            sent.contents.clone()
        })
    }

    /// Gaps are losses: every datagram that a later one has overtaken by more than this hop is known
    /// to reorder is handed to `lost`. `covered` is the lowest number that the acknowledgement at hand
    /// covers; without one, those count whose time to show up has run out.
    pub(super) fn find_losses(
        &mut self,
        now: Time,
        covered: Option<u64>,
        mut lost: impl FnMut(&mut Sent),
    ) {
        self.loss_timer = None;
        let srtt = self.round_trip.srtt().unwrap_or(Duration::from_millis(100));
        let unreported = srtt / 2 + UNREPORTED;
        for number in self.log.floor()..self.largest_acked {
            let Some(sent) = self.log.get(number).filter(|s| s.fate == Fate::Unknown) else {
                continue;
            };
            let due = match covered {
                None => sent.at + srtt + unreported.max(self.reordering),
                // Not covered: perhaps it was, in acknowledgements that were lost.
                Some(covered) if number < covered => sent.at + srtt + unreported,
                Some(_)
                    if self.reordering.is_zero()
                        || self.largest_acked_sent.since(sent.at) >= self.reordering =>
                {
                    now
                }
                Some(_) => sent.at + srtt + self.reordering,
            };
            if due > now {
                self.loss_timer = Some(self.loss_timer.map_or(due, |t| t.min(due)));
                // By the timer alone all wait equally long: what left later is not due either.
                if covered.is_none() {
                    return;
                }
            } else if let Some(sent) = self.log.set_fate(number, Fate::Lost) {
                self.lost_bytes += u64::from(sent.size);
                self.lost_datagrams += 1;
                self.loss += (1.0 - self.loss) * LOSS_WEIGHT;
                self.bursts.on_lost(number, sent.at);
                lost(sent);
            }
        }
        self.bursts.end_run();
    }

    /// The rate control's sample of an acknowledgement that [raised](AckOutcome::raised_from) the
    /// highest number acknowledged, where a full datagram has `datagram` bytes.
    pub(super) fn sample(&mut self, ack: &Ack<'_>, from: u64, datagram: usize) -> Option<Sample> {
        let after_idle = (from..=ack.latest).any(|n| self.log.get(n).is_some_and(|s| s.after_idle));
        let sent = self.log.get(ack.latest)?;
        // The receiver's clock is sent modulo 2^32 microseconds.
        let step = ack.arrival_us.wrapping_sub(self.arrival_us as u32);
        if step < 1 << 31 {
            self.arrival_us += u64::from(step);
        }
        Some(Sample {
            latest: ack.latest,
            sent_at: sent.at,
            behind_us: sent.behind_us,
            size: sent.size as usize,
            arrival_us: self.arrival_us,
            delivered: self.delivered,
            lost: self.lost_bytes,
            counts: (self.acked, self.lost_datagrams),
            burst: self.bursts.mean(),
            after_idle,
            next_number: self.log.next_number(),
            srtt: self.round_trip.srtt().unwrap_or_default(),
            inflight: self.log.inflight(),
            datagram,
        })
    }

    /// Removes what was settled so long ago that no late arrival of it is worth recognising.
    pub(super) fn expire(&mut self, now: Time) {
        let keep = 3 * self.round_trip.srtt().unwrap_or(Duration::from_millis(300));
        self.log.remove(now - keep.max(Duration::from_millis(20)));
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::srp::content::Contents;

    const RTT: Duration = Duration::from_millis(40);

    /// Ten datagrams, a millisecond apart, each as large as its number.
    fn ten() -> Recovery {
        let mut r = Recovery::new(Time::ZERO);
        for n in 1..=10 {
            r.on_sent(Sent {
                at: Time::from_millis(n),
                size: n as u32,
                fate: Fate::Unknown,
                after_idle: false,
                behind_us: 0,
                purpose: Purpose::Usual,
                contents: Contents::new(),
            });
        }
        r
    }

    /// What arrived and what was lost by an acknowledgement of all up to `latest` but `missing`.
    fn ack(r: &mut Recovery, latest: u64, missing: u64) -> (AckOutcome, Vec<u32>, Vec<u32>) {
        let (now, in_sequence) = (Time::from_millis(latest) + RTT, missing - 1);
        let map = [0; 1];
        let map = &map[..Ack::bitmap_len(latest, in_sequence)];
        let ack = Ack::new(latest, 0, 0, (1, in_sequence), map);
        let (mut arrived, mut lost) = (Vec::new(), Vec::new());
        let outcome = r.on_ack(now, &ack, |s| arrived.push(s.size)).unwrap();
        r.find_losses(now, Some(1), |s| lost.push(s.size));
        (outcome, arrived, lost)
    }

    /// SRP-4: a gap is a loss at once; one that was none makes later gaps wait.
    #[test]
    fn gaps_are_losses_until_the_hop_is_seen_to_reorder() {
        let mut r = ten();
        let (outcome, arrived, lost) = ack(&mut r, 4, 2);
        assert_eq!((outcome.rtt, outcome.raised_from, outcome.spurious), (Some(RTT), Some(1), 0));
        assert_eq!((arrived, lost), (alloc::vec![1, 3, 4], alloc::vec![2]));
        let (outcome, arrived, lost) = ack(&mut r, 7, 6);
        assert_eq!((outcome.spurious, outcome.raised_from), (1, Some(5)));
        assert_eq!(
            (arrived, lost.len(), r.log().inflight()),
            (alloc::vec![5, 7], 0, 6 + 8 + 9 + 10)
        );
        assert!(r.reordering() > Duration::from_millis(2) && r.log().floor() == 6);
        let due = r.loss_timer().unwrap();
        assert_eq!(due, Time::from_millis(6) + RTT + r.reordering());
        let mut lost = 0;
        r.find_losses(due + 2 * RTT, None, |s| lost += s.size);
        assert_eq!((lost, r.loss_timer()), (6, None));
    }

    #[test]
    fn what_was_never_sent_cannot_be_acknowledged() {
        let ack = Ack::new(11, 0, 0, (1, 11), &[]);
        let outcome = ten().on_ack(Time::from_secs(1), &ack, |_| {});
        assert!(outcome.is_err());
    }
}
