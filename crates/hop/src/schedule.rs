//! Which of a base's many relations may have something to send, and when the others want to be
//! polled.

use alloc::collections::VecDeque;

use lasthop_units::{Time, Timers};

/// What the schedule notes of one relation; it lies with the relation.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// The time under which it stands in the timer set.
    timer: Option<Time>,
    /// Stands in `ready`, in `fresh`.
    queued: bool,
    fresh: bool,
}

impl Slot {
    /// Its stream events are being polled.
    pub(crate) fn clear_fresh(&mut self) {
        self.fresh = false;
    }

    /// Its timer has gone off.
    pub(crate) fn clear_timer(&mut self) {
        self.timer = None;
    }
}

/// Queues and timers of many relations, by their numbers. One that was removed may still stand in
/// the queues, where it means nothing.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    timers: Timers<u64>,
    /// May have something to send.
    ready: VecDeque<u64>,
    /// May have stream events.
    fresh: VecDeque<u64>,
}

impl Schedule {
    /// It may have something to send.
    pub(crate) fn queue(&mut self, id: u64, slot: &mut Slot) {
        if !slot.queued {
            slot.queued = true;
            self.ready.push_back(id);
        }
    }

    /// It may have something to send, and stream events.
    pub(crate) fn touch(&mut self, id: u64, slot: &mut Slot) {
        self.queue(id, slot);
        if !slot.fresh {
            slot.fresh = true;
            self.fresh.push_back(id);
        }
    }

    /// The next that may have stream events; to be followed by its slot's [`Slot::clear_fresh`].
    pub(crate) fn pop_fresh(&mut self) -> Option<u64> {
        self.fresh.pop_front()
    }

    /// The next that may have something to send. It stays so until [`pop_ready`](Self::pop_ready).
    pub(crate) fn ready(&self) -> Option<u64> {
        self.ready.front().copied()
    }

    /// The one that [`ready`](Self::ready) returned has nothing more to send; if it still exists,
    /// [`set_timer`](Self::set_timer) follows.
    pub(crate) fn pop_ready(&mut self) {
        self.ready.pop_front();
    }

    /// It has nothing to send and wants to be polled at `timer`, if nothing happens before.
    pub(crate) fn set_timer(&mut self, id: u64, slot: &mut Slot, timer: Option<Time>) {
        slot.queued = false;
        self.timers.replace(id, slot.timer, timer);
        slot.timer = timer;
    }

    /// It is gone.
    pub(crate) fn remove(&mut self, id: u64, slot: &Slot) {
        self.timers.replace(id, slot.timer, None);
    }

    /// The earliest timer.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.timers.next()
    }

    /// Takes out the next whose timer is due; to be followed by its slot's [`Slot::clear_timer`].
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<u64> {
        self.timers.pop_due(now)
    }
}
