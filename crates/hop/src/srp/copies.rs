//! Copies of what is outstanding, on air time that nothing else wants.
//!
//! Where a fifth of everything is lost, a request, its answer or the last piece of a file waits a
//! round trip for every loss. While there is nothing new to send, the hop is free: what is
//! outstanding is sent once more, so that one loss in a row costs nothing. A budget keeps a flow
//! that always leaves air time over from doubling its traffic.

use core::time::Duration;

use lasthop_units::Time;
use lasthop_wire::frame::Writer;
use smallvec::SmallVec;

use super::Srp;
use super::output::Kind;
use super::sent::{Content, Fate, Purpose};
use crate::transport::Packet;

/// Copies are worth their air time where more than this share is lost.
const LOSS_MIN: f64 = 0.02;
/// A small datagram, most likely a request or an opening, gets two copies where more than this is
/// lost.
const LOSS_HEAVY: f64 = 0.08;
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
}

impl Srp {
    /// There may be something to copy once the pacer allows.
    pub(super) fn has_copies(&self) -> bool {
        self.windowed().is_none()
            && self.rate.loss() > LOSS_MIN
            && self.copies.budget >= self.full_datagram() as u64
            && self.copies.next.max(self.log.floor()) < self.log.next_number()
            && self.round_trip.srtt().is_some_and(|srtt| srtt > Duration::from_millis(5))
    }

    /// Moves on to the next datagram that is worth a copy; false if there is none.
    pub(super) fn copy_next(&mut self, now: Time) -> bool {
        self.copies.refill(now);
        if !self.has_copies() {
            return false;
        }
        if self.copies.next < self.log.floor() {
            self.copies.next = self.log.floor();
            self.copies.made = 0;
        }
        let heavy = self.rate.loss() > LOSS_HEAVY;
        while let Some(sent) = self.log.get(self.copies.next) {
            let data = sent.contents.iter().any(|c| matches!(c, Content::Data { .. }));
            let wanted = if heavy && sent.size < SMALL { 2 } else { 1 };
            let worth = sent.fate == Fate::Unknown && sent.purpose == Purpose::Usual && data;
            if worth && self.copies.made < wanted {
                return true;
            }
            self.copies.next += 1;
            self.copies.made = 0;
        }
        false
    }

    pub(super) fn poll_copy(&mut self, now: Time, out: &mut [u8]) -> Option<Packet> {
        let contents: SmallVec<[Content; 4]> =
            self.log.get(self.copies.next)?.contents.iter().copied().collect();
        self.copies.made += 1;
        let room = self.mtu.current().min(out.len());
        let mut w = Writer::new(&mut out[..room]);
        let mut told = SmallVec::new();
        for content in contents {
            self.repeat(content, true, &mut w, &mut told);
        }
        if told.is_empty() {
            return None;
        }
        let packet = self.record(now, w.len(), told, Kind::Copy);
        self.copies.budget = self.copies.budget.saturating_sub(packet.len as u64);
        Some(packet)
    }
}
