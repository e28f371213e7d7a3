use std::collections::VecDeque;

use lasthop_units::Time;

/// What waits for its time, in the order of time and, at one time, of arrival. What does not fit is
/// dropped and counted, as a full socket buffer does it.
#[derive(Clone, Debug)]
pub(super) struct Outbox<T> {
    items: VecDeque<(Time, T)>,
    dropped: u64,
}

impl<T> Outbox<T> {
    /// Far more than a registration and its answer, far less than memory.
    const CAPACITY: usize = 256;

    pub(super) const fn new() -> Self {
        Self { items: VecDeque::new(), dropped: 0 }
    }

    /// Keeps `item` until `due`.
    pub(super) fn push(&mut self, due: Time, item: T) {
        if self.items.len() < Self::CAPACITY {
            let place = self.items.partition_point(|&(other, _)| other <= due);
            self.items.insert(place, (due, item));
        } else {
            self.dropped += 1;
        }
    }

    /// The first, if its time has come.
    pub(super) fn pop(&mut self, now: Time) -> Option<T> {
        self.next_time().filter(|&due| due <= now)?;
        self.items.pop_front().map(|(_, item)| item)
    }

    pub(super) fn next_time(&self) -> Option<Time> {
        self.items.front().map(|&(due, _)| due)
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outbox_keeps_order_time_and_its_bound() {
        let mut outbox = Outbox::new();
        for n in 0..300u64 {
            outbox.push(Time::from_secs(n / 2), n);
        }
        assert_eq!(outbox.dropped(), 300 - Outbox::<u64>::CAPACITY as u64);
        assert_eq!(outbox.pop(Time::ZERO), Some(0));
        assert_eq!(outbox.pop(Time::ZERO), Some(1));
        assert_eq!(outbox.pop(Time::ZERO), None);
        assert_eq!(outbox.next_time(), Some(Time::from_secs(1)));
        outbox.push(Time::from_millis(500), 999);
        assert_eq!(outbox.pop(Time::from_secs(1)), Some(999));
    }
}
