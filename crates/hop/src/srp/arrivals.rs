//! How much arrives.

use core::cmp::Reverse;
use core::time::Duration;

use lasthop_units::{Bytes, Rate, Time};

use super::filter::WindowedMin;

/// Arrivals are counted over so long,
const SPAN: Duration = Duration::from_millis(250);
/// and the most of so long is known.
const MEMORY: Duration = Duration::from_secs(10);

/// The greatest rate of late at which datagrams have arrived.
#[derive(Debug)]
pub(super) struct Arrivals {
    since: Time,
    bytes: u64,
    most: WindowedMin<Reverse<Rate>>,
}

impl Arrivals {
    pub(super) fn new(now: Time) -> Self {
        Self { since: now, bytes: 0, most: WindowedMin::new(MEMORY) }
    }

    /// A datagram of so many bytes on the radio has arrived.
    pub(super) fn on_datagram(&mut self, now: Time, bytes: usize) {
        self.bytes += bytes as u64;
        let span = now.since(self.since);
        if span < SPAN {
            return;
        }
        self.most.insert(now, Reverse(Rate::of(Bytes::new(self.bytes), span)));
        (self.since, self.bytes) = (now, 0);
    }

    pub(super) fn most(&self) -> Rate {
        self.most.get().map_or(Rate::ZERO, |most| most.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_quarter_of_a_second_counts() {
        let mut arrivals = Arrivals::new(Time::ZERO);
        for ms in 0..2000 {
            if ms % 10 == 0 || (500..1000).contains(&ms) {
                arrivals.on_datagram(Time::from_millis(ms), 1250);
            }
        }
        let mbps = arrivals.most().as_bps() as f64 / 1e6;
        assert!((9.5..=10.5).contains(&mbps), "{mbps}");
    }
}
