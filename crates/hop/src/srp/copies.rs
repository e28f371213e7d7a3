//! Copies of what is outstanding, on air time that nothing else wants.
//!
//! Where a fifth of everything is lost, a request, its answer or the last piece of a file waits a
//! round trip for every loss. While there is nothing new to send, the hop is free: what is
//! outstanding is sent once more, so that one loss in a row costs nothing. A budget keeps a flow
//! that always leaves air time over from doubling its traffic.

use core::time::Duration;

use lasthop_units::Time;
use smallvec::SmallVec;

use super::content::Content;
use super::recovery::{Fate, Purpose, Recovery};

/// Copies are worth their air time where more than this share is lost. What a few dozen datagrams tell of a loss of a
/// twentieth is seldom less.
const LOSS_MIN: f64 = 0.01;
/// A small datagram, most likely a request or an opening, gets two copies where more than this is
/// lost.
const LOSS_HEAVY: f64 = 0.03;
const SMALL: u32 = 400;
/// Bytes of copies that may be sent in a row.
const BUDGET_MAX: u64 = 128 * 1024;
/// The budget grows by so many bytes a second, and by one byte for each eight sent.
const BUDGET_PER_SECOND: f64 = 64.0 * 1024.0;

/// What was copied, and what may be.
#[derive(Debug)]
pub(super) struct Copies {
    /// Datagrams before this one were considered.
    next: u64,
    /// Copies made of that one.
    made: u32,
    budget: u64,
    refilled: Time,
}

impl Copies {
    pub(super) fn new(now: Time) -> Self {
        Self { next: 1, made: 0, budget: BUDGET_MAX, refilled: now }
    }

    /// Fresh bytes were sent.
    pub(super) fn earn(&mut self, fresh: u64) {
        self.budget = (self.budget + fresh / 8).min(BUDGET_MAX);
    }

    fn refill(&mut self, now: Time) {
        let earned = (now.since(self.refilled).as_secs_f64() * BUDGET_PER_SECOND) as u64;
        // Small steps would round to nothing.
        if earned > 0 {
            self.budget = (self.budget + earned).min(BUDGET_MAX);
            self.refilled = now;
        }
    }

    /// There may be something to copy once the pacer allows: where a share `loss` is lost,
    /// of datagrams of this size.
    pub(super) fn are_due(&self, recovery: &Recovery, loss: f64, datagram: usize) -> bool {
        loss > LOSS_MIN
            && self.budget >= datagram as u64
            && self.next.max(recovery.log().floor()) < recovery.log().next_number()
            && recovery.round_trip().srtt().is_some_and(|srtt| srtt > Duration::from_millis(5))
    }

    /// The next datagram that is worth a copy, if there is one, where such a share is lost. Of packets nothing is copied that
    /// another path is about to carry too.
    pub(super) fn choose(
        &mut self,
        now: Time,
        recovery: &Recovery,
        (loss, packets): (f64, bool),
        datagram: usize,
    ) -> Option<SmallVec<[Content; 4]>> {
        self.refill(now);
        if !self.are_due(recovery, loss, datagram) {
            return None;
        }
        if self.next < recovery.log().floor() {
            self.next = recovery.log().floor();
            self.made = 0;
        }
        let heavy = loss > LOSS_HEAVY;
        while let Some(sent) = recovery.log().get(self.next) {
            let goes = |content: &Content| packets || !matches!(content, Content::Packet(_));
            let data = |c: &Content| matches!(c, Content::Data { .. } | Content::Packet(_));
            let data = sent.contents.iter().any(|content| goes(content) && data(content));
            let wanted = if heavy && sent.size < SMALL { 2 } else { 1 };
            let worth = sent.fate == Fate::Unknown && sent.purpose == Purpose::Usual && data;
            if worth && self.made < wanted {
                self.made += 1;
                return Some(sent.contents.iter().copied().filter(goes).collect());
            }
            self.next += 1;
            self.made = 0;
        }
        None
    }

    /// A copy of `len` bytes leaves.
    pub(super) fn spend(&mut self, len: usize) {
        self.budget = self.budget.saturating_sub(len as u64);
    }
}
