//! Frames in their order, for those whose TCP takes reordering ill.

use alloc::collections::VecDeque;

use lasthop_units::{Duration, Time};

/// Frames back from the highest for which it is known whether they have come. No sender keeps more.
pub(crate) const WINDOW: u32 = 256;

/// Holds back what came after a gap until the gap is filled, or for so long.
#[derive(Clone, Debug)]
pub(crate) struct InOrder<P> {
    /// From the next one that is due, which is missing unless nothing waits.
    waiting: VecDeque<Option<P>>,
    due: Option<u32>,
    since: Time,
    hold: Duration,
}

impl<P> InOrder<P> {
    pub(crate) const fn new(hold: Duration) -> Self {
        Self { waiting: VecDeque::new(), due: None, since: Time::ZERO, hold }
    }

    pub(crate) fn held(&self) -> usize {
        self.waiting.iter().flatten().count()
    }

    /// Takes a frame that has not come before; what may go on is put to `ready`.
    pub(crate) fn handle_frame(
        &mut self,
        now: Time,
        frame: u32,
        packet: P,
        ready: &mut VecDeque<P>,
    ) {
        let ahead = frame.wrapping_sub(*self.due.get_or_insert(frame));
        if ahead >= 1 << 31 {
            // It was waited for in vain.
            ready.push_back(packet);
            return;
        }
        if ahead >= WINDOW {
            self.release(ready);
            self.due = Some(frame.wrapping_add(1));
            ready.push_back(packet);
            return;
        }
        let at = ahead as usize;
        if self.waiting.is_empty() {
            self.since = now;
        }
        while self.waiting.len() <= at {
            self.waiting.push_back(None);
        }
        self.waiting[at] = Some(packet);
        if self.drain(ready) {
            self.since = now;
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        (!self.waiting.is_empty()).then(|| self.since + self.hold)
    }

    pub(crate) fn handle_timeout(&mut self, now: Time, ready: &mut VecDeque<P>) {
        if self.next_timeout().is_none_or(|at| at > now) {
            return;
        }
        while self.waiting.front().is_some_and(Option::is_none) {
            self.step();
        }
        self.drain(ready);
        self.since = now;
    }

    /// All that waits goes on, and the next frame that comes is the next one.
    pub(crate) fn release(&mut self, ready: &mut VecDeque<P>) {
        ready.extend(self.waiting.drain(..).flatten());
        self.due = None;
    }

    /// Passes on what is due; whether there was something.
    fn drain(&mut self, ready: &mut VecDeque<P>) -> bool {
        let before = ready.len();
        while self.waiting.front().is_some_and(Option::is_some) {
            ready.extend(self.step());
        }
        ready.len() > before
    }

    fn step(&mut self) -> Option<P> {
        self.due = self.due.map(|due| due.wrapping_add(1));
        self.waiting.pop_front().flatten()
    }
}
