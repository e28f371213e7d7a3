//! What is remembered of each flow.

use lasthop_units::{Bytes, Duration, Rate, Time};

use crate::measure::BufferMeter;
use crate::net::host::Ending;

/// The most latencies kept of one flow.
pub const MOST_LATENCIES: usize = 1 << 20;

/// One end's view of one flow (MET-1, MET-2, MET-13).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Record {
    /// The port of the service.
    pub port: u16,
    /// This end opened the connection, or was to open it.
    pub client: bool,
    /// The opening began, or was accepted.
    pub start: Time,
    /// The connection stood.
    pub connected: Option<Time>,
    /// The first byte arrived here.
    pub first_byte: Option<Time>,
    /// The latest byte so far arrived here, in order.
    pub last_byte: Option<Time>,
    /// Bytes that arrived here in order.
    pub received: Bytes,
    /// Bytes that this end's application wrote.
    pub written: Bytes,
    /// The peer's end of stream arrived here: a transfer's completion at its receiver.
    pub peer_finished: Option<Time>,
    /// The peer acknowledged everything up to our end: a transfer's completion at its sender.
    pub acknowledged: Option<Time>,
    /// The connection was over, and how.
    pub end: Option<(Time, Ending)>,
    /// From each request to the last byte of its answer, or from each keystroke to its echo.
    pub latencies: Vec<Duration>,
    /// Where the first byte arrived that is not the one that was written, if bytes exist.
    pub differs_at: Option<u64>,
    /// How evenly what arrived here came, a read always pending (MET-3).
    pub buffers: BufferMeter,
    /// Requests or keystrokes without an answer so far.
    pub unanswered: u64,
}

impl Record {
    /// How long the transfer took at its receiver: from the opening to the last byte, if the
    /// sender's end of stream came (MET-1).
    pub fn receive_time(&self) -> Option<Duration> {
        self.peer_finished?;
        self.last_byte.map(|at| at.since(self.start))
    }

    /// How long the transfer took at its sender: from the opening to the last acknowledgement
    /// (MET-1).
    pub fn send_time(&self) -> Option<Duration> {
        self.acknowledged.map(|at| at.since(self.start))
    }

    /// Bytes received over the time from the start to `until` (MET-2).
    pub fn throughput(&self, until: Time) -> Rate {
        match until.since(self.start) {
            Duration::ZERO => Rate::ZERO,
            elapsed => Rate::of(self.received, elapsed),
        }
    }

    /// The flow came to its end in order on both sides (MET-13).
    pub fn is_complete(&self) -> bool {
        let orderly = self.end.is_none_or(|(_, ending)| ending == Ending::Orderly);
        orderly && (self.acknowledged.is_some() || self.peer_finished.is_some())
    }

    pub(super) fn note_received(&mut self, now: Time, n: Bytes) {
        if n.get() > 0 {
            self.first_byte.get_or_insert(now);
            self.last_byte = Some(now);
            self.received += n;
            self.buffers.received(now, n);
        }
    }

    pub(super) fn note_latency(&mut self, latency: Duration) {
        self.unanswered = self.unanswered.saturating_sub(1);
        if self.latencies.len() < MOST_LATENCIES {
            self.latencies.push(latency);
        }
    }
}
