//! A congestion controller that is told the rate, as some tunnels are by hand: it never slows down
//! for a loss. The window is what the rate fills in the least round trip, and a little more.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lasthop_units::Rate;
use quinn::congestion::{Controller, ControllerFactory};
use quinn_proto::RttEstimator;

/// What keeps the rate up while acknowledgements are on their way.
const SLACK: Duration = Duration::from_millis(10);
/// Before the first round trip is known.
const GUESS: Duration = Duration::from_millis(100);

/// Makes controllers that keep to `rate`.
#[derive(Debug)]
pub(crate) struct ToldConfig {
    /// The rate of the radio.
    pub(crate) rate: Rate,
}

impl ControllerFactory for ToldConfig {
    fn build(self: Arc<Self>, _: Instant, mtu: u16) -> Box<dyn Controller> {
        Box::new(Told { rate: self.rate, least: GUESS, mtu: mtu.into() })
    }
}

#[derive(Clone, Debug)]
struct Told {
    rate: Rate,
    least: Duration,
    mtu: u64,
}

impl Controller for Told {
    fn on_ack(&mut self, _: Instant, _: Instant, _: u64, _: bool, rtt: &RttEstimator) {
        self.least = rtt.min();
    }

    fn on_congestion_event(&mut self, _: Instant, _: Instant, _: bool, _: u64) {}

    fn on_mtu_update(&mut self, mtu: u16) {
        self.mtu = mtu.into();
    }

    fn window(&self) -> u64 {
        self.rate.bytes_in(self.least + SLACK).get().max(4 * self.mtu)
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_the_rate_over_the_least_round_trip() {
        let told = Told { rate: Rate::from_mbps(20), least: Duration::from_millis(40), mtu: 1200 };
        assert_eq!(told.window(), 125_000);
    }

    #[test]
    fn a_loss_changes_nothing() {
        let mut told = Told { rate: Rate::from_mbps(20), least: GUESS, mtu: 1200 };
        let before = told.window();
        told.on_congestion_event(Instant::now(), Instant::now(), true, 100_000);
        assert_eq!(told.window(), before);
    }
}
