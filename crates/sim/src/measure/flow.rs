//! What one flow did in a run.

use lasthop_tcp::Stats;
use lasthop_units::{Bytes, Duration, Rate, Time};

/// How a flow ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// The receiver has every byte that was asked for.
    Complete,
    /// It has not, and the run is over (MET-13).
    Incomplete,
    /// No end was asked for: the flow lasts as long as the run.
    Endless,
}

impl Outcome {
    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Incomplete => "incomplete",
            Self::Endless => "endless",
        }
    }
}

/// What a sender counts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Segments with payload, repeated ones too.
    pub segments: u64,
    /// Of these, segments that repeat payload.
    pub retransmits: u64,
    /// MET-8: expiries of the retransmission timer.
    pub timeouts: u64,
}

impl From<&Stats> for Counters {
    fn from(stats: &Stats) -> Self {
        Self {
            segments: stats.data_segments_sent,
            retransmits: stats.retransmits,
            timeouts: stats.timeouts,
        }
    }
}

/// One flow of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowRecord {
    /// Its name, unique in the run.
    pub flow: String,
    /// How much was asked for; `None` for as much as there is time for.
    pub asked: Option<Bytes>,
    /// The application asked for it.
    pub started: Time,
    /// The connection stood, at the end that opened it.
    pub established: Option<Time>,
    /// The receiving application had the last byte asked for.
    pub last_byte: Option<Time>,
    /// The sender had the acknowledgement of the last byte asked for.
    pub last_ack: Option<Time>,
    /// Observation ended.
    pub until: Time,
    /// Bytes that the receiving application got, in order and each once.
    pub received: Bytes,
    /// What the sender counted.
    pub sender: Counters,
}

impl FlowRecord {
    /// How it ended.
    pub fn outcome(&self) -> Outcome {
        match (self.asked, self.last_byte) {
            (None, _) => Outcome::Endless,
            (Some(_), Some(_)) => Outcome::Complete,
            (Some(_), None) => Outcome::Incomplete,
        }
    }

    /// MET-1: from the start to the receiver's last byte; `None` unless the flow is complete.
    pub fn transfer_time(&self) -> Option<Duration> {
        self.last_byte.map(|end| end.since(self.started))
    }

    /// From the start to the sender's last acknowledgement; `None` if it did not come.
    pub fn acknowledged_time(&self) -> Option<Duration> {
        self.last_ack.map(|end| end.since(self.started))
    }

    /// MET-2: application bytes received over the time from the start to the last byte, or to the
    /// end of observation if the flow is not complete. What an incomplete one has is no throughput
    /// of a transfer: look at the [outcome](Self::outcome) too (MET-13).
    pub fn goodput(&self) -> Rate {
        match self.last_byte.unwrap_or(self.until).since(self.started) {
            Duration::ZERO => Rate::ZERO,
            time => Rate::of(self.received, time),
        }
    }
}

/// Follows one flow. Times are those of the first call that tells each.
#[derive(Clone, Debug)]
pub struct FlowMeter {
    record: FlowRecord,
    acknowledged: Bytes,
}

impl FlowMeter {
    /// The application asks for a flow of `asked` bytes, or for one without end.
    pub fn new(flow: impl Into<String>, asked: Option<Bytes>, now: Time) -> Self {
        let record = FlowRecord {
            flow: flow.into(),
            asked,
            started: now,
            established: None,
            last_byte: None,
            last_ack: None,
            until: now,
            received: Bytes::ZERO,
            sender: Counters::default(),
        };
        Self { record, acknowledged: Bytes::ZERO }
    }

    /// The connection stands.
    pub fn established(&mut self, now: Time) {
        self.record.established.get_or_insert(now);
    }

    /// The receiving application got `n` more bytes, in order.
    pub fn received(&mut self, now: Time, n: Bytes) {
        self.record.received += n;
        if self.record.asked.is_some_and(|asked| self.record.received >= asked) {
            self.record.last_byte.get_or_insert(now);
        }
    }

    /// `n` more bytes were acknowledged to the sender.
    pub fn acknowledged(&mut self, now: Time, n: Bytes) {
        self.acknowledged += n;
        if self.record.asked.is_some_and(|asked| self.acknowledged >= asked) {
            self.record.last_ack.get_or_insert(now);
        }
    }

    /// Bytes that the receiving application got so far.
    pub fn bytes(&self) -> Bytes {
        self.record.received
    }

    /// The receiver has every byte asked for.
    pub fn is_complete(&self) -> bool {
        self.record.last_byte.is_some()
    }

    /// The record as it stands at `now`, with what the sender counted.
    pub fn record(&self, now: Time, sender: Counters) -> FlowRecord {
        FlowRecord { until: now, sender, ..self.record.clone() }
    }
}

/// MET-1, MET-13: the transfer times of several flows, complete ones and others kept apart.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Transfers {
    /// The times of the complete flows, in the order given.
    pub times: Vec<Duration>,
    /// How many flows were not complete. A mean over `times` leaves them out: say so beside it.
    pub incomplete: usize,
}

impl Transfers {
    /// Sorts flows that have an end; endless ones are neither.
    pub fn of<'a>(flows: impl IntoIterator<Item = &'a FlowRecord>) -> Self {
        let mut transfers = Self::default();
        for flow in flows {
            match (flow.outcome(), flow.transfer_time()) {
                (Outcome::Complete, Some(time)) => transfers.times.push(time),
                (Outcome::Endless, _) => {}
                _ => transfers.incomplete += 1,
            }
        }
        transfers
    }

    /// The mean transfer time, if there is one: `None` as long as any flow is incomplete.
    pub fn mean(&self) -> Option<Duration> {
        let n = u32::try_from(self.times.len()).ok().filter(|n| *n > 0 && self.incomplete == 0)?;
        Some(self.times.iter().sum::<Duration>() / n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Bytes = Bytes::new(100_000);

    fn flow() -> FlowMeter {
        let mut flow = FlowMeter::new("down", Some(FILE), Time::from_secs(1));
        flow.established(Time::from_millis(1080));
        flow.received(Time::from_secs(9), Bytes::new(99_999));
        flow.acknowledged(Time::from_secs(9), Bytes::new(99_999));
        flow
    }

    /// MET-1, MET-2: the clock stops at the receiver's last byte, not at the sender's last
    /// acknowledgement, and not when the run ends.
    #[test]
    fn a_transfer_lasts_until_the_receiver_has_everything() {
        let mut flow = flow();
        assert!(!flow.is_complete());
        flow.received(Time::from_secs(11), Bytes::new(1));
        flow.acknowledged(Time::from_millis(11_040), Bytes::new(1));
        flow.established(Time::from_secs(12));
        let record = flow.record(Time::from_secs(60), Counters::default());
        assert_eq!(record.outcome(), Outcome::Complete);
        assert_eq!(record.transfer_time(), Some(Duration::from_secs(10)));
        assert_eq!(record.acknowledged_time(), Some(Duration::from_millis(10_040)));
        assert_eq!(record.established, Some(Time::from_millis(1080)));
        assert_eq!(record.goodput(), Rate::from_kbps(80));
    }

    /// MET-13: one byte short is not complete, has no transfer time, and takes the mean with it.
    #[test]
    fn an_incomplete_transfer_is_never_averaged_away() {
        let mut done = flow();
        done.received(Time::from_secs(11), Bytes::new(1));
        let until = Time::from_secs(101);
        let done = done.record(until, Counters::default());
        let short = flow().record(until, Counters::default());
        assert_eq!((short.outcome(), short.transfer_time()), (Outcome::Incomplete, None));
        assert_eq!(short.goodput(), Rate::of(Bytes::new(99_999), Duration::from_secs(100)));

        let all = Transfers::of([&done, &short]);
        assert_eq!((all.times.len(), all.incomplete, all.mean()), (1, 1, None));
        assert_eq!(Transfers::of([&done, &done]).mean(), Some(Duration::from_secs(10)));
        assert_eq!(Transfers::of([]).mean(), None);
    }

    /// MET-2
    #[test]
    fn an_endless_flow_is_measured_over_the_run() {
        let mut flow = FlowMeter::new("bulk", None, Time::ZERO);
        flow.received(Time::from_secs(3), Bytes::new(250_000));
        let record = flow.record(Time::from_secs(10), Counters::default());
        assert_eq!((record.outcome(), record.goodput()), (Outcome::Endless, Rate::from_kbps(200)));
        assert_eq!(Transfers::of([&record]), Transfers::default());
        assert_eq!(flow.record(Time::ZERO, Counters::default()).goodput(), Rate::ZERO);
    }

    /// MET-8
    #[test]
    fn timeouts_are_the_senders() {
        let stats =
            Stats { timeouts: 3, retransmits: 9, data_segments_sent: 80, ..Stats::default() };
        let record = flow().record(Time::ZERO, Counters::from(&stats));
        assert_eq!(record.sender, Counters { segments: 80, retransmits: 9, timeouts: 3 });
    }
}
