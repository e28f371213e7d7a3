//! SRP as an association's transport.

use core::time::Duration;

use lasthop_units::{Bytes, LinkEvent, Time};

use super::{CloseReason, Role, Srp};
use crate::config::{HopConfig, Limits};
use crate::stats::HopStats;
use crate::transport::{Packet, Transport};

impl Transport for Srp {
    type Config = HopConfig;

    const ID: u64 = 0;

    fn new(config: &HopConfig, role: Role, overhead: usize, now: Time) -> Self {
        Srp::new(config.clone(), role, Limits::UNKNOWN, overhead, now)
    }

    fn limits(config: &HopConfig) -> Limits {
        Limits::of(config)
    }

    fn carrier_overhead(config: &HopConfig) -> Bytes {
        config.carrier_overhead
    }

    fn establish(&mut self, now: Time, peer: &Limits) {
        self.establish(now, peer);
    }

    fn restart(&mut self, now: Time) {
        self.restart(now);
    }

    fn first_stream(&self) -> u64 {
        self.first_stream()
    }

    fn ping(&mut self) {
        self.ping();
    }

    fn probe(&mut self, now: Time) {
        self.probe(now);
    }

    fn silent_for(&self, now: Time) -> Option<Duration> {
        self.silent_for(now)
    }

    fn handle_moved(&mut self, now: Time) {
        self.handle_moved(now);
    }

    fn handle_link_event(&mut self, now: Time, event: LinkEvent) {
        self.handle_link_event(now, event);
    }

    fn seed_round_trip(&mut self, now: Time, rtt: Duration) {
        self.seed_round_trip(now, rtt);
    }

    fn handle(&mut self, now: Time, number: u64, packet: &[u8]) {
        // Frames that cannot be read are counted inside.
        let _ = self.handle(now, number, packet);
    }

    /// SRP acknowledges packets by number, so the numbers are its own: they grow for as long as it
    /// lives, whatever keys come and go, and start again only with [`Srp::restart`], behind which
    /// keys are always new.
    fn poll(&mut self, now: Time, _fresh: u64, out: &mut [u8]) -> Option<Packet> {
        self.poll(now, out)
    }

    fn next_timeout(&self) -> Option<Time> {
        self.next_timeout()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.handle_timeout(now);
    }

    fn close(&mut self, reason: CloseReason) {
        self.close(reason);
    }

    fn closed(&self) -> Option<CloseReason> {
        self.closed()
    }

    fn stats(&self) -> HopStats {
        self.stats()
    }
}
