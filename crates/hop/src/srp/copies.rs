//! Copies of what is outstanding, on air time that nothing else wants.
//!
//! Where a fifth of everything is lost, a request, its answer or the last piece of a file waits a
//! round trip for every loss. While there is nothing new to send, the hop is free: what is
//! outstanding is sent once more, so that one loss in a row costs nothing. A budget keeps a flow
//! that always leaves air time over from doubling its traffic. A part of it is kept for what repeats
//! something lost, which all that came after it waits for.

use alloc::collections::VecDeque;
use core::time::Duration;

use lasthop_units::Time;
use smallvec::SmallVec;

use super::content::Content;
use super::recovery::{Fate, Purpose, Recovery, Sent};

/// Copies are worth their air time where more than this share is lost. What a few dozen datagrams tell of a loss of a
/// twentieth is seldom less.
const LOSS_MIN: f64 = 0.01;
/// A small datagram, most likely a request or an opening, gets two copies where more than this is
/// lost.
const LOSS_HEAVY: f64 = 0.03;
const SMALL: u32 = 400;
/// Bytes of copies that may be sent in a row, of which so many are for repairs alone.
const BUDGET_MAX: u64 = (128 + 16) * 1024;
const FOR_REPAIRS: u64 = 16 * 1024;
/// Repairs that wait for their copies.
const REPAIRS_MAX: usize = 32;
/// The budget grows by so many bytes a second, and by one byte for each eight sent.
const BUDGET_PER_SECOND: f64 = 64.0 * 1024.0;

/// What was copied, and what may be.
#[derive(Debug)]
pub(super) struct Copies {
    /// Datagrams before this one were considered.
    next: u64,
    /// Copies made of that one.
    made: u32,
    /// Datagrams that repeat something lost.
    repairs: VecDeque<u64>,
    budget: u64,
    refilled: Time,
}

impl Copies {
    pub(super) fn new(now: Time) -> Self {
        let repairs = VecDeque::new();
        Self { next: 1, made: 0, repairs, budget: BUDGET_MAX, refilled: now }
    }

    /// Fresh bytes were sent.
    pub(super) fn earn(&mut self, fresh: u64) {
        self.budget = (self.budget + fresh / 8).min(BUDGET_MAX);
    }

    /// The datagram of this number repeats something lost.
    pub(super) fn add_repair(&mut self, number: u64) {
        if self.repairs.len() == REPAIRS_MAX {
            self.repairs.pop_front();
        }
        self.repairs.push_back(number);
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
        let affords = |reserve: u64| self.budget >= reserve + datagram as u64;
        let repairs = !self.repairs.is_empty() && affords(0);
        let others = self.next.max(recovery.log().floor()) < recovery.log().next_number();
        loss > LOSS_MIN
            && (repairs || others && affords(FOR_REPAIRS))
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
        while let Some(sent) = self.repairs.pop_front().map(|number| recovery.log().get(number)) {
            if let Some(sent) = sent.filter(|sent| is_missing(sent)) {
                return Some(worth(sent, packets).collect());
            }
        }
        if self.budget < FOR_REPAIRS + datagram as u64 {
            return None;
        }
        if self.next < recovery.log().floor() {
            self.next = recovery.log().floor();
            self.made = 0;
        }
        let heavy = loss > LOSS_HEAVY;
        while let Some(sent) = recovery.log().get(self.next) {
            let wanted = if heavy && sent.size < SMALL { 2 } else { 1 };
            let some = worth(sent, packets).next().is_some();
            if some && is_missing(sent) && self.made < wanted {
                self.made += 1;
                return Some(worth(sent, packets).collect());
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

/// Whether what a datagram carries may be missing yet.
fn is_missing(sent: &Sent) -> bool {
    sent.fate == Fate::Unknown && sent.purpose == Purpose::Usual
}

/// What of a datagram is worth a copy.
fn worth(sent: &Sent, packets: bool) -> impl Iterator<Item = Content> {
    let is_worth = move |content: &Content| match content {
        Content::Data { .. } => true,
        Content::Packet(_) => packets,
        _ => false,
    };
    sent.contents.iter().copied().filter(is_worth)
}
