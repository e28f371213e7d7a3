//! How losses come: one by one, or by fades that take everything for a while.

use core::time::Duration;

use lasthop_units::Time;

/// Datagrams in a row that left within so long may have been too many at once for a queue; those that left over longer
/// were lost to a fade.
const TOGETHER: Duration = Duration::from_millis(8);
/// Over about so many lost datagrams the length of bursts is averaged.
const MEMORY: f64 = 256.0;

/// The bursts in which datagrams are lost.
#[derive(Debug)]
pub(super) struct Bursts {
    /// The burst that the average lost datagram is part of, in datagrams.
    mean: f64,
    /// The last number lost, and those lost in a row before it.
    run: Option<Run>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    last: u64,
    first_sent: Time,
    last_sent: Time,
    datagrams: u32,
}

impl Default for Bursts {
    fn default() -> Self {
        Self { mean: 1.0, run: None }
    }
}

impl Bursts {
    /// The burst that the average lost datagram is part of, in datagrams: so many times less than there are fates of
    /// datagrams is told of loss.
    pub(super) fn mean(&self) -> f64 {
        self.mean
    }

    /// A datagram was lost that left at `sent`, after lower numbers.
    pub(super) fn on_lost(&mut self, number: u64, sent: Time) {
        match &mut self.run {
            Some(run) if run.last + 1 == number => {
                (run.last, run.last_sent) = (number, sent);
                run.datagrams += 1;
            }
            _ => {
                self.end_run();
                self.run =
                    Some(Run { last: number, first_sent: sent, last_sent: sent, datagrams: 1 });
            }
        }
    }

    /// What is lost next is of another burst.
    pub(super) fn end_run(&mut self) {
        let Some(run) = self.run.take() else { return };
        let datagrams = f64::from(run.datagrams);
        let faded = run.last_sent.since(run.first_sent) >= TOGETHER;
        let burst = if faded { datagrams } else { 1.0 };
        self.mean += (burst - self.mean) * (datagrams / MEMORY).min(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mean after every fourth of these datagrams was lost, and the first `faded` of a hundred, of which one leaves each
    /// `gap`.
    fn mean(faded: u64, gap: Duration) -> f64 {
        let mut bursts = Bursts::default();
        for number in (0..10_000).filter(|n| n % 4 == 0 || n % 100 < faded) {
            bursts.on_lost(number, Time::ZERO + gap * number as u32);
        }
        bursts.end_run();
        bursts.mean()
    }

    #[test]
    fn losses_one_by_one_are_no_bursts_and_fades_are() {
        assert_eq!(mean(1, Duration::from_millis(1)), 1.0);
        // 41 in a row of 56.
        let of_fades = mean(41, Duration::from_millis(1));
        assert!((25.0..36.0).contains(&of_fades), "{of_fades}");
        assert_eq!(mean(41, Duration::from_micros(100)), 1.0, "what left together");
    }
}
