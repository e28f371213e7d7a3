//! The sending end of a hop: it keeps what it sent until the other end says that it has come.

use alloc::collections::VecDeque;

use lasthop_units::{Duration, Time};

use super::LinkConfig;
use super::order::WINDOW;
use crate::Packet;
use crate::rtt::{LONGEST, RtoBounds, Rtt};

/// Doublings of the timeout that count.
const DOUBLINGS: u32 = 6;

/// What the sending end did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SenderStats {
    /// Packets that were numbered.
    pub numbered: u64,
    /// Frames that the other end acknowledged.
    pub acknowledged: u64,
    /// Retransmissions, probes included.
    pub retransmitted: u64,
    /// Retransmissions because nothing came back for too long.
    pub probes: u64,
    /// Frames that were lost for good after all their retransmissions (DDA-6).
    pub given_up: u64,
    /// Copies that gave way to newer ones.
    pub crowded_out: u64,
}

/// Numbers packets, keeps copies of them and sends again what the hop lost.
///
/// A hop does not reorder, so of two transmissions the earlier is lost if the later has come and
/// the earlier has not. Transmissions are counted for that, not frames: a lost retransmission is
/// reported in the same way. A loss at the tail has no later frame; when nothing came back for a
/// timeout of the hop's own, the latest frame is sent once more, and its acknowledgement tells
/// whether the ones before it have come.
#[derive(Clone, Debug)]
pub struct LinkSender<P> {
    /// The number of the next new frame.
    next: u32,
    /// Frames up to `next`, in their order; none where one is acknowledged or given up. The first
    /// is one that is kept.
    frames: VecDeque<Option<Kept<P>>>,
    /// How many of them are kept.
    kept: usize,
    /// Transmissions in their order, each with its frame. Those that are not the last one of their
    /// frame mean nothing.
    flight: VecDeque<(u64, u32)>,
    transmissions: u64,
    repairs: VecDeque<P>,
    rtt: Rtt,
    /// When something was sent or news came last.
    busy: Time,
    /// Probes since news came.
    probes: u32,
    retries: u32,
    limit: usize,
    stats: SenderStats,
}

#[derive(Clone, Debug)]
struct Kept<P> {
    packet: P,
    sent: Time,
    /// Its last transmission.
    last: u64,
    /// Its earliest transmission that is not known to be lost: what an acknowledgement of it proves
    /// to have come, at least.
    earliest: u64,
    retries: u32,
}

impl<P: Packet> LinkSender<P> {
    /// A sending end with nothing to send.
    pub fn new(config: &LinkConfig) -> Self {
        Self {
            next: config.first_frame,
            frames: VecDeque::new(),
            kept: 0,
            flight: VecDeque::new(),
            transmissions: 0,
            repairs: VecDeque::new(),
            rtt: Rtt::new(RtoBounds {
                initial: config.initial_timeout,
                least: config.least_timeout,
                most: LONGEST,
            }),
            busy: Time::ZERO,
            probes: 0,
            retries: config.retries,
            limit: config.copies.clamp(1, WINDOW as usize),
            stats: SenderStats::default(),
        }
    }

    /// What it did.
    pub const fn stats(&self) -> &SenderStats {
        &self.stats
    }

    /// Frames of which a copy is kept.
    pub const fn kept(&self) -> usize {
        self.kept
    }

    /// The copies, oldest first.
    pub fn copies(&self) -> impl Iterator<Item = &P> {
        self.frames.iter().flatten().map(|kept| &kept.packet)
    }

    /// The hop's smoothed round trip, queue included; none before the first sample.
    pub fn srtt(&self) -> Option<Duration> {
        self.rtt.srtt()
    }

    /// Numbers a packet and keeps a copy. What comes back is to be sent.
    pub fn send(&mut self, now: Time, mut packet: P) -> P {
        let frame = self.next;
        packet.set_frame(Some(frame));
        if self.frames.len() >= self.limit {
            self.crowd_out();
        }
        let order = self.transmissions;
        self.frames.push_back(Some(Kept {
            packet: packet.clone(),
            sent: now,
            last: order,
            earliest: order,
            retries: 0,
        }));
        self.next = frame.wrapping_add(1);
        self.kept += 1;
        self.transmit(now, frame);
        self.stats.numbered += 1;
        packet
    }

    /// The other end says that of the frame `latest` and the 63 before it those have come whose bit
    /// is set: bit n for `latest - n`. Numbers that are not under way are passed over.
    pub fn handle_ack(&mut self, now: Time, latest: u32, come: u64) {
        let mut proof = None;
        let mut rest = come;
        while rest != 0 {
            let n = rest.trailing_zeros();
            rest &= rest - 1;
            let Some(at) = self.index(latest.wrapping_sub(n)) else { continue };
            let Some(kept) = self.frames.get_mut(at).and_then(Option::take) else { continue };
            self.kept -= 1;
            self.stats.acknowledged += 1;
            proof = proof.max(Some(kept.earliest));
            // Only the frame that made the other end answer tells how long an answer takes.
            if n == 0 && kept.retries == 0 {
                self.rtt.sample(now.since(kept.sent));
            }
        }
        if let Some(proof) = proof {
            self.busy = now;
            self.probes = 0;
            self.repair_before(now, proof);
            self.trim();
        }
    }

    /// The next packet to send again.
    pub fn poll_repair(&mut self) -> Option<P> {
        self.repairs.pop_front()
    }

    /// When to ask what became of the latest frame.
    pub fn next_timeout(&self) -> Option<Time> {
        (self.kept > 0).then(|| self.rtt.deadline(self.busy, self.probes.min(DOUBLINGS)))
    }

    /// Probes if it is time; whether it did.
    pub fn handle_timeout(&mut self, now: Time) -> bool {
        if self.next_timeout().is_none_or(|at| at > now) {
            return false;
        }
        if self.probes >= self.retries {
            self.stats.given_up += self.kept as u64;
            self.clear();
            return false;
        }
        self.probes += 1;
        while let Some(at) = self.frames.iter().rposition(Option::is_some) {
            if self.retransmit(now, at, false) {
                self.stats.probes += 1;
                return true;
            }
        }
        false
    }

    /// Drops all copies: there is nobody at the other end who waits for them. The count goes on, so
    /// that nothing new is taken for something old.
    pub fn clear(&mut self) {
        self.frames.clear();
        self.flight.clear();
        self.repairs.clear();
        self.kept = 0;
        self.probes = 0;
    }

    /// Transmissions that are remembered.
    #[cfg(test)]
    pub(super) fn transmissions(&self) -> usize {
        self.flight.len()
    }

    /// Where a frame is among those that are known.
    fn index(&self, frame: u32) -> Option<usize> {
        let back = self.next.wrapping_sub(frame) as usize;
        (back > 0).then(|| self.frames.len().checked_sub(back)).flatten()
    }

    /// Counts the transmission of a frame that is kept.
    fn transmit(&mut self, now: Time, frame: u32) {
        self.busy = now;
        let order = self.transmissions;
        self.transmissions += 1;
        if self.flight.len() >= 2 * self.limit {
            let mut flight = core::mem::take(&mut self.flight);
            flight.retain(|&(order, frame)| self.is_last(order, frame).is_some());
            self.flight = flight;
        }
        self.flight.push_back((order, frame));
    }

    /// Where the frame is of which this is the last transmission.
    fn is_last(&self, order: u64, frame: u32) -> Option<usize> {
        let at = self.index(frame)?;
        self.frames.get(at)?.as_ref().filter(|kept| kept.last == order).map(|_| at)
    }

    /// A transmission has come: all before it that have not are lost.
    fn repair_before(&mut self, now: Time, proof: u64) {
        while let Some(&(order, frame)) = self.flight.front().filter(|(order, _)| *order < proof) {
            self.flight.pop_front();
            if let Some(at) = self.is_last(order, frame) {
                self.retransmit(now, at, true);
            }
        }
    }

    /// Sends a frame again, or gives it up; whether it was sent.
    fn retransmit(&mut self, now: Time, at: usize, lost: bool) -> bool {
        let back = self.frames.len() - at;
        let frame = self.next.wrapping_sub(u32::try_from(back).unwrap_or(u32::MAX));
        let order = self.transmissions;
        let Some(kept) = self.frames.get_mut(at).and_then(Option::as_mut) else { return false };
        if kept.retries >= self.retries {
            self.frames[at] = None;
            self.kept -= 1;
            self.stats.given_up += 1;
            return false;
        }
        kept.retries += 1;
        kept.last = order;
        if lost {
            kept.earliest = order;
        }
        self.repairs.push_back(kept.packet.clone());
        self.transmit(now, frame);
        self.stats.retransmitted += 1;
        true
    }

    /// The oldest copy gives way.
    fn crowd_out(&mut self) {
        if self.frames.pop_front().flatten().is_some() {
            self.kept -= 1;
            self.stats.crowded_out += 1;
        }
        self.trim();
    }

    /// The first frame is one that is kept.
    fn trim(&mut self) {
        while self.frames.front().is_some_and(Option::is_none) {
            self.frames.pop_front();
        }
    }
}
