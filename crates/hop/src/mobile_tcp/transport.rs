//! Mobile TCP as a transport.

use core::time::Duration;

use lasthop_units::{Bytes, LinkEvent, Time};

use super::{Config, MobileTcp};
use crate::config::Limits;
use crate::stats::HopStats;
use crate::transport::{CloseReason, Packet, Role, Transport};

impl Transport for MobileTcp {
    type Config = Config;

    const ID: u64 = 1;

    /// Packets are as long as the configuration says, whatever is around them.
    fn new(config: &Config, role: Role, _overhead: usize, now: Time) -> Self {
        Self::new(config.clone(), role, now)
    }

    /// Windows are advertised in Mobile TCP's own packets.
    fn limits(config: &Config) -> Limits {
        Self::limits(config)
    }

    /// What the carrier adds concerns nothing here: there is no pacing and no search for an MTU.
    fn carrier_overhead(_config: &Config) -> Bytes {
        Bytes::ZERO
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

    fn handle(&mut self, now: Time, _number: u64, packet: &[u8]) {
        // Packets that cannot be read are counted inside.
        let _ = self.handle(now, packet);
    }

    /// The paper's packets have no numbers of their own.
    fn poll(&mut self, now: Time, fresh: u64, out: &mut [u8]) -> Option<Packet> {
        let len = self.poll(now, out)?;
        Some(Packet { number: fresh, len })
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

    fn listen(&mut self, port: u16) {
        self.listen(port);
    }

    fn unlisten(&mut self, port: u16) {
        self.unlisten(port);
    }

    /// The mobile announces where it listens, so a base never has to ask (MOB-8).
    fn peer_listens(&self, port: u16) -> Option<bool> {
        Some(self.peer_listens(port))
    }

    fn stats(&self) -> HopStats {
        self.stats()
    }
}
