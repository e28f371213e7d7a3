//! What was sent and how it fared.

use alloc::collections::VecDeque;

use lasthop_units::Time;

use crate::srp::content::{Content, Contents};

/// What became of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::srp) enum Fate {
    Unknown,
    Acked,
    Lost,
    /// It elicits no acknowledgement.
    Ignored,
}

/// Why a datagram was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::srp) enum Purpose {
    Usual,
    /// To see whether datagrams of this size pass.
    MtuProbe,
    /// The same again, on air time that nothing else wanted.
    Copy,
    /// What it carries goes by other paths since this one fell silent; it may still be acknowledged.
    Elsewhere,
}

/// One datagram sent.
#[derive(Clone, Debug)]
pub(in crate::srp) struct Sent {
    pub(in crate::srp) at: Time,
    pub(in crate::srp) size: u32,
    pub(in crate::srp) fate: Fate,
    /// Before it there was a moment without data, credit or window.
    pub(in crate::srp) after_idle: bool,
    /// How long it waits at the hop for those that left together with it, in microseconds.
    pub(in crate::srp) behind_us: u32,
    pub(in crate::srp) purpose: Purpose,
    pub(in crate::srp) contents: Contents,
}

impl Sent {
    /// What is to be sent again if this one is lost: nothing where that is done already.
    pub(in crate::srp) fn at_stake(&self) -> &[Content] {
        if self.purpose == Purpose::Elsewhere { &[] } else { &self.contents }
    }

    /// The same; nothing is at stake any more.
    pub(in crate::srp) fn take_stake(&mut self) -> Contents {
        let contents = core::mem::take(&mut self.contents);
        if self.purpose == Purpose::Elsewhere { Contents::new() } else { contents }
    }
}

/// Datagrams by number, from the oldest that may still matter.
#[derive(Debug, Default)]
pub(in crate::srp) struct SentLog {
    log: VecDeque<Sent>,
    /// The number of the log's first entry.
    base: u64,
    /// No datagram before this one has an unknown fate.
    floor: u64,
    inflight: u64,
    /// Datagrams in the log that count as lost.
    lost: usize,
}

impl SentLog {
    pub(super) fn new() -> Self {
        Self { log: VecDeque::new(), base: 1, floor: 1, inflight: 0, lost: 0 }
    }

    /// The number that the next datagram gets.
    pub(in crate::srp) fn next_number(&self) -> u64 {
        self.base + self.log.len() as u64
    }

    /// Bytes whose fate is unknown.
    pub(in crate::srp) fn inflight(&self) -> u64 {
        self.inflight
    }

    /// Some datagram in the log counts as lost.
    pub(super) fn has_lost(&self) -> bool {
        self.lost > 0
    }

    /// The lowest number in the log.
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// Every datagram with a lower number is settled.
    pub(in crate::srp) fn floor(&self) -> u64 {
        self.floor
    }

    pub(super) fn push(&mut self, sent: Sent) {
        if sent.fate == Fate::Unknown {
            self.inflight += u64::from(sent.size);
        }
        self.log.push_back(sent);
        self.advance_floor();
    }

    pub(in crate::srp) fn get(&self, number: u64) -> Option<&Sent> {
        let index = number.checked_sub(self.base)?;
        self.log.get(usize::try_from(index).ok()?)
    }

    /// Sets the fate of a datagram and hands out what it carried.
    pub(super) fn set_fate(&mut self, number: u64, fate: Fate) -> Option<&mut Sent> {
        let index = number.checked_sub(self.base)?;
        let sent = self.log.get_mut(usize::try_from(index).ok()?)?;
        if sent.fate == Fate::Unknown {
            self.inflight -= u64::from(sent.size);
        }
        self.lost -= usize::from(sent.fate == Fate::Lost);
        self.lost += usize::from(fate == Fate::Lost);
        sent.fate = fate;
        if number == self.floor {
            self.advance_floor();
        }
        let index = number.checked_sub(self.base)?;
        self.log.get_mut(usize::try_from(index).ok()?)
    }

    fn advance_floor(&mut self) {
        while self.get(self.floor).is_some_and(|s| s.fate != Fate::Unknown) {
            self.floor += 1;
        }
    }

    /// The oldest datagram of unknown fate.
    pub(in crate::srp) fn oldest(&self) -> Option<&Sent> {
        self.get(self.floor)
    }

    /// The oldest datagram of unknown fate that left at `time` or later.
    pub(in crate::srp) fn oldest_since(&self, time: Time) -> Option<&Sent> {
        let from = self.log.partition_point(|s| s.at < time);
        let from = from.max((self.floor - self.base) as usize);
        self.log.range(from.min(self.log.len())..).find(|s| s.fate == Fate::Unknown)
    }

    /// All datagrams of unknown fate.
    pub(super) fn unknown_mut(&mut self) -> impl Iterator<Item = &mut Sent> {
        let first = (self.floor - self.base) as usize;
        self.log.iter_mut().skip(first).filter(|sent| sent.fate == Fate::Unknown)
    }

    /// What datagrams of unknown fate carry that left before `time`.
    pub(in crate::srp) fn unknown_before(&self, time: Time) -> impl Iterator<Item = &Content> {
        let first = (self.floor - self.base) as usize;
        let unknown = self.log.iter().skip(first).take_while(move |sent| sent.at < time);
        unknown.filter(|sent| sent.fate == Fate::Unknown).flat_map(Sent::at_stake)
    }

    /// Removes settled datagrams that left before `before`; the rest stay, so that one that was
    /// taken for lost too early can be recognised.
    pub(super) fn remove(&mut self, before: Time) {
        while self.base < self.floor && self.log.front().is_some_and(|s| s.at < before) {
            let gone = self.log.pop_front();
            self.lost -= usize::from(gone.is_some_and(|s| s.fate == Fate::Lost));
            self.base += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(at: u64) -> Sent {
        Sent {
            at: Time::from_millis(at),
            size: 100,
            fate: Fate::Unknown,
            after_idle: false,
            behind_us: 0,
            purpose: Purpose::Usual,
            contents: Contents::new(),
        }
    }

    #[test]
    fn the_floor_passes_over_what_is_settled() {
        let mut log = SentLog::new();
        for at in 1..=4 {
            log.push(sent(at));
        }
        assert_eq!((log.next_number(), log.inflight(), log.floor()), (5, 400, 1));
        log.set_fate(2, Fate::Acked);
        assert_eq!((log.inflight(), log.floor()), (300, 1));
        log.set_fate(1, Fate::Lost);
        assert_eq!((log.inflight(), log.floor()), (200, 3));
        log.remove(Time::from_millis(2));
        assert!(log.get(1).is_none() && log.get(2).is_some());
        log.remove(Time::from_secs(1));
        assert_eq!(log.oldest().map(|s| s.at), Some(Time::from_millis(3)));
    }
}
