//! A link in the plain case: its packets are in a [`Line`](super::line::Line).

use lasthop_units::{Bytes, Duration, Time};

use super::Link;
use super::held::{Delivery, Flying, OnAir, QueuedPacket, Refusal, Refused};
use super::line::{Passed, Passing};
use crate::pacer::{Pacer, Work};

impl<P: Clone> Link<P> {
    /// Nothing can come between a packet and what is known of its way when it is handed in.
    pub(super) fn is_plain(&self) -> bool {
        self.errors.is_empty()
            && self.reorder.is_none()
            && self.duplicate.is_none()
            && self.late.is_empty()
            && !self.pauses.is_on()
            && self.pauses.next_change() == Time::NEVER
            && matches!(&self.pacer, Pacer::Rate(clock) if clock.until() == Time::NEVER)
            && self.on_air.as_ref().is_none_or(|on_air| {
                let before = if self.mac_occupies { self.mac_delay } else { Duration::ZERO };
                on_air.work == Work::of(on_air.held.size) && on_air.from == on_air.started + before
            })
    }

    #[inline]
    pub(super) fn push_line(
        &mut self,
        now: Time,
        size: Bytes,
        packet: P,
    ) -> Result<(), Refused<P>> {
        self.now = self.now.max(now);
        let fits = size.get() <= u64::from(self.mtu) && self.line.len() < self.capacity;
        if !fits || !self.line.is_idle(self.now) {
            return self.push_behind(size, packet);
        }
        self.line.begin(self.now, &mut self.queue);
        self.line.start(self.now, size, packet, &mut self.queue);
        Ok(())
    }

    /// A packet that must wait, or is refused.
    #[inline(never)]
    fn push_behind(&mut self, size: Bytes, packet: P) -> Result<(), Refused<P>> {
        if let Some(reason) = self.line_refusal(size) {
            self.stats.offered.add(size);
            self.count_refusal(reason, size);
            return Err(Refused { packet, reason });
        }
        self.line.wait(self.now, size, packet, &mut self.queue);
        Ok(())
    }

    pub(super) fn line_refusal(&mut self, size: Bytes) -> Option<Refusal> {
        if size.get() > u64::from(self.mtu) {
            return Some(Refusal::TooBig);
        }
        if self.line.len() >= self.capacity {
            return Some(Refusal::Capacity);
        }
        self.line.begin(self.now, &mut self.queue);
        let idle = self.line.is_idle(self.now);
        (!idle && self.exceeds(self.limit, size)).then_some(Refusal::QueueFull)
    }

    #[inline]
    pub(super) fn pop_line(&mut self, now: Time) -> Option<Delivery<P>> {
        self.now = self.now.max(now);
        let Passed { packet, size, entered, at, .. } = self.line.pop(self.now, &mut self.queue)?;
        Some(Delivery { packet, size, entered, at, corrupted: false, duplicate: false })
    }

    #[inline]
    pub(super) fn pop_line_packet(&mut self, now: Time) -> (Option<(P, bool)>, Time) {
        self.now = self.now.max(now);
        match self.line.pop(self.now, &mut self.queue) {
            Some(Passed { packet, next, .. }) => (Some((packet, false)), next),
            None => (None, self.line.next_time()),
        }
    }

    /// Moves all packets into the line; only for a plain link.
    pub(super) fn line_up(&mut self) {
        if let Pacer::Rate(clock) = &self.pacer {
            self.line.reset(clock.present());
        }
        for Flying { packet, size, entered, arrives, .. } in self.flying.drain(..) {
            self.line.restore_flying(entered, arrives, size, packet);
        }
        if let Some(OnAir { held, started, due, .. }) = self.on_air.take() {
            self.line.restore_on_air(held, started, due);
        }
        for held in self.waiting.drain(..) {
            self.line.restore_waiting(held);
        }
        self.in_line = true;
    }

    /// Moves all packets out of the line, to where they are at `now`.
    pub(super) fn dissolve_line(&mut self, now: Time) {
        self.in_line = false;
        self.line.begin(now, &mut self.queue);
        let tally = self.line.tally();
        self.stats.offered += tally.offered;
        self.stats.sent += tally.sent;
        self.stats.air_time += tally.air_time;
        self.stats.delivered += tally.delivered;
        while let Some(passing) = self.line.take() {
            let Passing { packet, size, entered, started, due, counted } = passing;
            if counted || due <= now {
                if !counted {
                    self.count_sent(size, due.since(started));
                }
                let arrives = due + self.delay + self.mac_latency();
                let (corrupted, duplicate) = (false, false);
                let flying = Flying { packet, size, entered, arrives, corrupted, duplicate };
                self.flying.push_back(flying);
                continue;
            }
            let held = QueuedPacket { packet, size, entered };
            if started <= now {
                let from = if self.mac_occupies { started + self.mac_delay } else { started };
                self.on_air = Some(OnAir { held, started, work: Work::of(size), from, due });
            } else {
                self.waiting.push_back(held);
            }
        }
    }
}
