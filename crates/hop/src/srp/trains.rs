//! The hop's rate, from datagrams that left together: they arrive as far apart as each takes on the hop
//! (packet trains; Jain and Dovrolis, 2002, call it dispersion).

use super::sample::Sample;

/// So many datagrams must have been seen in trains.
const DATAGRAMS_MIN: f64 = 6.0;
/// Of more than so many, older ones count half.
const DATAGRAMS_MAX: f64 = 64.0;

/// Gathers what acknowledgements say of trains.
#[derive(Debug, Default)]
pub(super) struct Trains {
    last: Option<Sample>,
    /// Bytes that followed others in trains, and how long after those they arrived.
    bytes: f64,
    took_us: f64,
}

impl Trains {
    /// Takes in an acknowledgement of a full datagram.
    pub(super) fn on_ack(&mut self, s: &Sample) {
        let Some(last) = self.last.replace(*s) else { return };
        let apart_us = s.sent_at.since(last.sent_at).as_micros() as u64;
        let took_us = s.arrival_us.saturating_sub(last.arrival_us);
        let settled = (s.delivered + s.lost).saturating_sub(last.delivered + last.lost);
        // What arrives further apart than it left had to queue.
        if took_us > 2 * apart_us && settled > 0 {
            self.bytes += settled as f64;
            self.took_us += took_us as f64;
        }
        if self.bytes > DATAGRAMS_MAX * s.datagram as f64 {
            self.bytes /= 2.0;
            self.took_us /= 2.0;
        }
    }

    /// Bits per second, once enough was seen.
    pub(super) fn rate(&self) -> Option<f64> {
        let enough = self.bytes >= DATAGRAMS_MIN * self.last?.datagram as f64;
        enough.then(|| self.bytes * 8e6 / self.took_us)
    }

    /// The path is another one.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
