//! What was sent and how it fared.

use alloc::collections::VecDeque;

use core::time::Duration;
use lasthop_units::Time;
use smallvec::SmallVec;

use super::send::Piece;

/// Something in a datagram that must be told again if the datagram is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Content {
    Data { stream: u64, piece: Piece },
    Reset { stream: u64 },
    StreamCredit { stream: u64 },
    Credit,
    StreamBlocked { stream: u64 },
    Blocked,
    Priority { stream: u64 },
}

/// What became of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    Unknown,
    Acked,
    Lost,
    /// It asked for no acknowledgement: nobody cares.
    Ignored,
}

/// Why a datagram was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    Usual,
    /// To see whether datagrams of this size pass.
    MtuProbe,
    /// The same again, on air time that nothing else wanted.
    Copy,
}

/// One datagram sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) at: Time,
    pub(super) size: u32,
    pub(super) fate: Fate,
    /// Before it there was nothing to send, or no leave to send it.
    pub(super) after_idle: bool,
    pub(super) purpose: Purpose,
    pub(super) contents: SmallVec<[Content; 1]>,
}

/// Datagrams by number, from the oldest that may still matter.
#[derive(Debug, Default)]
pub(super) struct SentLog {
    log: VecDeque<Sent>,
    /// The number of the log's first entry.
    base: u64,
    /// No datagram before this one has an unknown fate.
    unsettled: u64,
    inflight: u64,
    /// Datagrams in the log that count as lost.
    lost: usize,
}

impl SentLog {
    pub(super) fn new() -> Self {
        Self { log: VecDeque::new(), base: 1, unsettled: 1, inflight: 0, lost: 0 }
    }

    /// The number that the next datagram gets.
    pub(super) fn next_number(&self) -> u64 {
        self.base + self.log.len() as u64
    }

    /// Bytes whose fate is unknown.
    pub(super) fn inflight(&self) -> u64 {
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
    pub(super) fn floor(&self) -> u64 {
        self.unsettled
    }

    pub(super) fn push(&mut self, sent: Sent) {
        if sent.fate == Fate::Unknown {
            self.inflight += u64::from(sent.size);
        }
        self.log.push_back(sent);
        self.settle();
    }

    pub(super) fn get(&self, number: u64) -> Option<&Sent> {
        let index = number.checked_sub(self.base)?;
        self.log.get(usize::try_from(index).ok()?)
    }

    /// Decides the fate of a datagram and hands out what it carried.
    pub(super) fn decide(&mut self, number: u64, fate: Fate) -> Option<&mut Sent> {
        let index = number.checked_sub(self.base)?;
        let sent = self.log.get_mut(usize::try_from(index).ok()?)?;
        if sent.fate == Fate::Unknown {
            self.inflight -= u64::from(sent.size);
        }
        self.lost -= usize::from(sent.fate == Fate::Lost);
        self.lost += usize::from(fate == Fate::Lost);
        sent.fate = fate;
        if number == self.unsettled {
            self.settle();
        }
        let index = number.checked_sub(self.base)?;
        self.log.get_mut(usize::try_from(index).ok()?)
    }

    fn settle(&mut self) {
        while self.get(self.unsettled).is_some_and(|s| s.fate != Fate::Unknown) {
            self.unsettled += 1;
        }
    }

    /// The oldest datagram of unknown fate.
    pub(super) fn oldest(&self) -> Option<&Sent> {
        self.get(self.unsettled)
    }

    /// The oldest datagram of unknown fate that left at `time` or later.
    pub(super) fn oldest_since(&self, time: Time) -> Option<&Sent> {
        let from = self.log.partition_point(|s| s.at < time);
        let from = from.max((self.unsettled - self.base) as usize);
        self.log.range(from.min(self.log.len())..).find(|s| s.fate == Fate::Unknown)
    }

    /// Removes settled datagrams that left before `before`; the rest stay, so that one that was
    /// taken for lost too early can be recognised.
    pub(super) fn remove(&mut self, before: Time) {
        while self.base < self.unsettled && self.log.front().is_some_and(|s| s.at < before) {
            let gone = self.log.pop_front();
            self.lost -= usize::from(gone.is_some_and(|s| s.fate == Fate::Lost));
            self.base += 1;
        }
    }
}

/// Smoothed round-trip time and its deviation (RFC 6298 §2).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip {
    srtt: Option<Duration>,
    rttvar: Duration,
}

impl RoundTrip {
    pub(super) fn sample(&mut self, rtt: Duration) {
        match self.srtt {
            None => {
                self.srtt = Some(rtt);
                self.rttvar = rtt / 2;
            }
            Some(srtt) => {
                self.rttvar = (self.rttvar * 3 + srtt.abs_diff(rtt)) / 4;
                self.srtt = Some((srtt * 7 + rtt) / 8);
            }
        }
    }

    /// Smoothed round-trip time, once there was a sample.
    pub(super) fn srtt(&self) -> Option<Duration> {
        self.srtt
    }

    /// Round trip and four deviations (RFC 6298 §2.3), once there was a sample.
    pub(super) fn rto(&self) -> Option<Duration> {
        self.srtt.map(|srtt| srtt + 4 * self.rttvar)
    }

    /// How long to wait for an answer before asking again (SRP-9). A quarter of the round trip is
    /// allowed for a queue that grows, and the receiver's delay is known.
    pub(super) fn probe_timeout(&self) -> Duration {
        match self.srtt {
            None => Duration::from_millis(150),
            Some(srtt) => {
                let slack = (2 * self.rttvar).max(srtt / 4).min(srtt);
                srtt + slack + Duration::from_millis(8)
            }
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
            purpose: Purpose::Usual,
            contents: SmallVec::new(),
        }
    }

    #[test]
    fn the_floor_passes_over_what_is_settled() {
        let mut log = SentLog::new();
        for at in 1..=4 {
            log.push(sent(at));
        }
        assert_eq!((log.next_number(), log.inflight(), log.floor()), (5, 400, 1));
        log.decide(2, Fate::Acked);
        assert_eq!((log.inflight(), log.floor()), (300, 1));
        log.decide(1, Fate::Lost);
        assert_eq!((log.inflight(), log.floor()), (200, 3));
        log.remove(Time::from_millis(2));
        assert!(log.get(1).is_none() && log.get(2).is_some());
        log.remove(Time::from_secs(1));
        assert_eq!(log.oldest().map(|s| s.at), Some(Time::from_millis(3)));
    }

    /// SRP-9: the timer follows the hop's round trip and deviation, finely.
    #[test]
    fn the_probe_timeout_follows_the_round_trip() {
        let mut r = RoundTrip::default();
        for _ in 0..50 {
            r.sample(Duration::from_millis(40));
        }
        assert_eq!(r.srtt(), Some(Duration::from_millis(40)));
        assert_eq!(r.probe_timeout(), Duration::from_millis(58));
    }
}
