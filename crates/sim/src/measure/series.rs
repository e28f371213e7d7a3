//! Variables over time.

use lasthop_radio::Count;
use lasthop_tcp::Probe;
use lasthop_units::{Duration, Time};

/// What is recorded. Sizes are in bytes, times in seconds, rates in bits per second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Variable {
    /// The congestion window.
    Cwnd,
    /// The slow-start threshold.
    Ssthresh,
    /// The smoothed round trip (MET-10).
    Srtt,
    /// The retransmission timeout.
    Rto,
    /// Data on its way.
    Flight,
    /// Data that an application wrote.
    Written,
    /// Data that an application has got.
    Received,
    /// Packets that wait for a link.
    QueuePackets,
    /// Bytes that wait for a link.
    QueueBytes,
    /// A traffic rate (MET-9).
    Rate,
}

impl Variable {
    /// Its name in tables, with its unit.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cwnd => "cwnd_bytes",
            Self::Ssthresh => "ssthresh_bytes",
            Self::Srtt => "srtt_s",
            Self::Rto => "rto_s",
            Self::Flight => "flight_bytes",
            Self::Written => "written_bytes",
            Self::Received => "received_bytes",
            Self::QueuePackets => "queue_packets",
            Self::QueueBytes => "queue_bytes",
            Self::Rate => "rate_bps",
        }
    }
}

/// When values become rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sampling {
    /// At multiples of this, every variable that has a value.
    pub interval: Option<Duration>,
    /// Whenever a value differs from the one before.
    pub changes: bool,
}

impl Sampling {
    /// Every change and nothing else.
    pub const CHANGES: Self = Self { interval: None, changes: true };

    /// At multiples of `interval` only.
    pub const fn every(interval: Duration) -> Self {
        Self { interval: Some(interval), changes: false }
    }
}

/// What a variable belongs to: a flow, or a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Subject(u32);

/// A value at a time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Row {
    /// When.
    pub at: Time,
    /// Whose.
    pub subject: Subject,
    /// Of what.
    pub variable: Variable,
    /// The value, in the variable's unit.
    pub value: f64,
}

/// The last value of a variable, and when it last became a row.
#[derive(Clone, Debug)]
struct Current {
    row: Row,
    written: Option<Time>,
}

/// Records variables over time: sampled at an interval, on every change, or both.
///
/// It gets values when they may have changed; at an interval it writes down what it got
/// last. Memory is bounded: rows beyond the most are counted and left out.
#[derive(Clone, Debug)]
pub struct Recorder {
    sampling: Sampling,
    next: Option<Time>,
    subjects: Vec<String>,
    current: Vec<Current>,
    rows: Vec<Row>,
    most: usize,
    left_out: u64,
}

impl Recorder {
    /// A recorder of at most `most` rows whose intervals count from time zero. An interval of zero
    /// is none.
    pub fn new(sampling: Sampling, most: usize) -> Self {
        let interval = sampling.interval.filter(|interval| !interval.is_zero());
        Self {
            sampling: Sampling { interval, ..sampling },
            next: interval.map(|_| Time::ZERO),
            subjects: Vec::new(),
            current: Vec::new(),
            rows: Vec::new(),
            most,
            left_out: 0,
        }
    }

    /// Adds something that has variables.
    pub fn add_subject(&mut self, name: impl Into<String>) -> Subject {
        // Nobody records four thousand million flows.
        let subject = Subject(u32::try_from(self.subjects.len()).unwrap_or(u32::MAX));
        self.subjects.push(name.into());
        subject
    }

    /// A subject's name.
    pub fn name(&self, subject: Subject) -> &str {
        self.subjects.get(subject.0 as usize).map_or("", String::as_str)
    }

    /// A variable has this value, changed or not. Samples that were due before are taken first,
    /// with the values of their time.
    pub fn set(&mut self, now: Time, subject: Subject, variable: Variable, value: f64) {
        self.sample_before(now);
        let row = Row { at: now, subject, variable, value };
        let key = (subject, variable);
        let index = match self.current.binary_search_by_key(&key, |current| current.row.key()) {
            Ok(index) if self.current[index].row.value == value => return,
            Ok(index) => index,
            Err(index) => {
                self.current.insert(index, Current { row, written: None });
                index
            }
        };
        self.current[index].row = row;
        if self.sampling.changes {
            self.current[index].written = Some(now);
            self.push(row);
        }
    }

    /// All that a connection shows of itself.
    pub fn set_probe(&mut self, now: Time, subject: Subject, probe: &Probe) {
        self.set(now, subject, Variable::Cwnd, probe.cwnd.get() as f64);
        self.set(now, subject, Variable::Ssthresh, probe.ssthresh.get() as f64);
        if let Some(srtt) = probe.srtt {
            self.set(now, subject, Variable::Srtt, srtt.as_secs_f64());
        }
        self.set(now, subject, Variable::Rto, probe.rto.as_secs_f64());
        self.set(now, subject, Variable::Flight, probe.flight.get() as f64);
    }

    /// What waits for a link's transmitter.
    pub fn set_queue(&mut self, now: Time, subject: Subject, waiting: Count) {
        self.set(now, subject, Variable::QueuePackets, waiting.packets as f64);
        self.set(now, subject, Variable::QueueBytes, waiting.bytes as f64);
    }

    /// When the next sample is due; `None` without an interval.
    pub fn next_timeout(&self) -> Option<Time> {
        self.next
    }

    /// Takes the samples that are due.
    pub fn handle_timeout(&mut self, now: Time) {
        self.sample_before(now);
        if self.next == Some(now) {
            self.sample(now);
        }
    }

    /// The rows so far, in order of time.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Rows that were left out because there were too many.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    fn sample_before(&mut self, now: Time) {
        while let Some(at) = self.next.filter(|at| *at < now) {
            if self.current.is_empty() || self.rows.len() >= self.most {
                self.skip_to(now);
                return;
            }
            self.sample(at);
        }
    }

    fn sample(&mut self, at: Time) {
        for index in 0..self.current.len() {
            let current = &mut self.current[index];
            // A change at this very time is a row already.
            if current.written != Some(at) {
                current.written = Some(at);
                let row = Row { at, ..current.row };
                self.push(row);
            }
        }
        self.next = self.sampling.interval.map(|interval| at + interval);
    }

    /// Leaves out the samples before `now`, of which nothing would remain.
    fn skip_to(&mut self, now: Time) {
        let (Some(at), Some(interval)) = (self.next, self.sampling.interval) else { return };
        let steps = now.since(at).as_nanos().div_ceil(interval.as_nanos());
        let ahead = u64::try_from(steps * interval.as_nanos()).unwrap_or(u64::MAX);
        let rows = u64::try_from(steps).unwrap_or(u64::MAX);
        self.left_out =
            self.left_out.saturating_add(rows.saturating_mul(self.current.len() as u64));
        self.next = Some(at + Duration::from_nanos(ahead));
    }

    fn push(&mut self, row: Row) {
        if self.rows.len() < self.most {
            self.rows.push(row);
        } else {
            self.left_out = self.left_out.saturating_add(1);
        }
    }
}

impl Row {
    fn key(&self) -> (Subject, Variable) {
        (self.subject, self.variable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Time = Time::from_millis;

    fn values(recorder: &Recorder) -> Vec<(u64, f64)> {
        recorder.rows().iter().map(|row| (row.at.as_micros() / 1000, row.value)).collect()
    }

    #[test]
    fn a_change_is_a_row_and_no_change_is_none() {
        let mut recorder = Recorder::new(Sampling::CHANGES, 100);
        let flow = recorder.add_subject("down");
        for (at, value) in [(1, 10.0), (2, 10.0), (3, 20.0), (4, 10.0)] {
            recorder.set(MS(at), flow, Variable::Cwnd, value);
        }
        assert_eq!(values(&recorder), [(1, 10.0), (3, 20.0), (4, 10.0)]);
        assert_eq!((recorder.next_timeout(), recorder.name(flow)), (None, "down"));
    }

    #[test]
    fn a_sample_has_the_value_of_its_own_time() {
        let mut recorder = Recorder::new(Sampling::every(Duration::from_millis(10)), 100);
        let flow = recorder.add_subject("down");
        recorder.set(MS(5), flow, Variable::Cwnd, 1.0);
        recorder.set(MS(25), flow, Variable::Cwnd, 2.0);
        recorder.set(MS(30), flow, Variable::Cwnd, 3.0);
        recorder.handle_timeout(MS(30));
        recorder.handle_timeout(MS(30));
        assert_eq!(values(&recorder), [(10, 1.0), (20, 1.0), (30, 3.0)]);
        assert_eq!(recorder.next_timeout(), Some(MS(40)));
    }

    #[test]
    fn a_change_at_a_samples_time_is_one_row() {
        let sampling = Sampling { interval: Some(Duration::from_millis(10)), changes: true };
        let mut recorder = Recorder::new(sampling, 100);
        let (a, b) = (recorder.add_subject("a"), recorder.add_subject("b"));
        recorder.set_queue(MS(5), b, Count { packets: 7, bytes: 900 });
        recorder.set(MS(10), a, Variable::QueuePackets, 1.0);
        recorder.handle_timeout(MS(10));
        assert_eq!(values(&recorder), [(5, 7.0), (5, 900.0), (10, 1.0), (10, 7.0), (10, 900.0)]);
    }

    #[test]
    fn rows_are_bounded_and_what_is_left_out_is_counted() {
        let mut recorder = Recorder::new(Sampling::every(Duration::from_nanos(1)), 10);
        let flow = recorder.add_subject("down");
        recorder.set(Time::ZERO, flow, Variable::Rto, 1.0);
        // A run of a thousand years ends at once.
        recorder.handle_timeout(Time::NEVER);
        assert_eq!(recorder.rows().len(), 10);
        assert!(recorder.left_out() > 1 << 60);
    }
}
