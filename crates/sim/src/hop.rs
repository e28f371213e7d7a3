//! The real thing: both ends of a hop as they are deployed, sealed, with SRP inside.

use lasthop_hop::CloseReason;
use lasthop_hop::seal::Keypair;
use lasthop_hop::{
    Association, AssociationEvent, AssociationId, Base, HopConfig, HopStats, Mobile,
};
use lasthop_units::{Bytes, Duration, LinkEvent, Seed, Stream, Time};

use crate::{Addr, Endpoint, Probe, Transport};

/// Makes both ends of a hop with one configuration.
#[derive(Clone, Debug)]
pub struct Hop {
    /// The configuration of both ends.
    pub config: HopConfig,
    /// Whether datagrams are authenticated and encrypted. Unsealed, damage goes unnoticed.
    pub sealed: bool,
}

impl Default for Hop {
    fn default() -> Self {
        Self { config: HopConfig::default(), sealed: true }
    }
}

/// After the radio is well again, what may pass before an end notices that is not being told: a
/// moved mobile that has nothing to say speaks up at its next keep-alive.
const NOTICE: Duration = Duration::from_secs(10);

/// The smallest buffer of one direction of a stream, in bytes.
const BUFFER_LEAST: u64 = 16 * 1024;

impl Hop {
    fn mobile_keys(seed: Seed, index: usize) -> Keypair {
        Keypair::generate(seed.child(&format!("mobile-{index}")))
    }

    fn base_keys(seed: Seed) -> Keypair {
        Keypair::generate(seed.child("base"))
    }
}

impl Transport for Hop {
    type Mobile = HopMobile;
    type Base = HopBase;

    const NAME: &'static str = "srp";

    fn varied(&self, random: &mut Stream) -> Self {
        let mut size = |smallest: u64, doublings: u64| {
            Bytes::new((smallest << random.below(doublings)) + random.below(smallest))
        };
        let stream_window = size(2048, 9);
        let association_window = size(2048, 10);
        let stream_memory = size(16 * 1024, 8).max(stream_window);
        let association_memory = size(64 * 1024, 7).max(association_window).max(stream_memory);
        let config = HopConfig {
            stream_window,
            stream_memory,
            association_window,
            association_memory,
            streams_max: 2 + random.below(30) as usize,
            keepalive: Duration::from_millis(1000 + random.below(14_000)),
            datagram_max: Bytes::new(1200 + random.below(273)),
            ..self.config.clone()
        };
        Self { config, ..*self }
    }

    fn memory_max(&self, streams: u64) -> u64 {
        // Two directions; buffers are powers of two, and none is smaller than the least.
        4 * self.config.association_memory.get() + streams * 2 * BUFFER_LEAST
    }

    fn window(&self) -> u64 {
        self.config.stream_window.min(self.config.association_window).get()
    }

    fn patience(&self) -> Duration {
        self.config.keepalive + NOTICE
    }

    fn mobile(&self, index: usize, base: Addr, seed: Seed, now: Time) -> HopMobile {
        let (config, own) = (self.config.clone(), seed.child(&format!("entropy-{index}")));
        let mobile = if self.sealed {
            let (keys, public) = (Self::mobile_keys(seed, index), *Self::base_keys(seed).public());
            Mobile::new(config, keys, public, base, own, now)
        } else {
            Mobile::unsealed(config, *Self::mobile_keys(seed, index).public(), base, own, now)
        };
        HopMobile { mobile, lost: None }
    }

    fn base(&self, mobiles: usize, seed: Seed, _now: Time) -> HopBase {
        let (config, own) = (self.config.clone(), seed.child("entropy-base"));
        let base = if self.sealed {
            let allowed = (0..mobiles).map(|i| *Self::mobile_keys(seed, i).public()).collect();
            Base::new(config, Self::base_keys(seed), allowed, own)
        } else {
            Base::unsealed(config, own)
        };
        HopBase { base, associations: Vec::new(), lost: None }
    }
}

fn probe(stats: &HopStats, refused: u64) -> Probe {
    let datagram = stats.mtu.get().max(1);
    Probe {
        sent: stats.datagrams_sent,
        retransmitted: stats.bytes_retransmitted.get().div_ceil(datagram),
        timeouts: stats.probes,
        refused,
        // The transport has no window of its own; what it has in flight is what it allows itself.
        cwnd: stats.inflight.get(),
        in_flight: stats.inflight.get(),
        pacing: stats.pacing_rate,
        delivery: stats.delivery_rate,
        srtt: stats.srtt,
        min_rtt: stats.min_rtt,
        buffered: stats.memory.get(),
        streams: stats.streams as u64,
    }
}

/// A hop's mobile end.
pub struct HopMobile {
    mobile: Mobile<Addr>,
    lost: Option<CloseReason>,
}

impl HopMobile {
    fn take_events(&mut self) {
        while let Some(event) = self.mobile.poll_association_event() {
            if let AssociationEvent::Lost(reason) = event {
                self.lost.get_or_insert(reason);
            }
        }
    }
}

impl Endpoint for HopMobile {
    type Streams = Mobile<Addr>;

    fn handle_datagram(&mut self, now: Time, from: Addr, datagram: &mut [u8]) {
        self.mobile.handle_datagram(now, from, datagram);
        self.take_events();
    }

    fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<(Addr, usize)> {
        self.mobile.poll_transmit(now, out).map(|t| (t.to, t.len))
    }

    fn next_timeout(&self) -> Option<Time> {
        self.mobile.next_timeout()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.mobile.handle_timeout(now);
        self.take_events();
    }

    fn handle_link(&mut self, now: Time, event: LinkEvent) {
        self.mobile.handle_link_event(now, event);
    }

    fn associations(&self) -> usize {
        1
    }

    fn streams(&mut self, index: usize) -> Option<&mut Mobile<Addr>> {
        (index == 0).then_some(&mut self.mobile)
    }

    fn lost(&self) -> Option<String> {
        self.lost.map(|reason| format!("{reason:?} at the mobile"))
    }

    fn probe(&self, _index: usize) -> Probe {
        probe(&self.mobile.stats(), self.mobile.mobile_stats().refused)
    }
}

/// A hop's base end.
pub struct HopBase {
    base: Base<Addr>,
    /// In the order in which they came up; lost ones keep their place.
    associations: Vec<AssociationId>,
    lost: Option<CloseReason>,
}

impl HopBase {
    fn take_events(&mut self) {
        while let Some((id, event)) = self.base.poll_event() {
            match event {
                AssociationEvent::Up => self.associations.push(id),
                AssociationEvent::Lost(reason) => drop(self.lost.get_or_insert(reason)),
                AssociationEvent::Moved => {}
            }
        }
        while self.base.poll_touched().is_some() {}
    }

    fn association(&self, index: usize) -> Option<&Association<Addr>> {
        let id = self.associations.get(index)?;
        self.base.associations().find(|(other, _, _)| other == id).map(|(_, _, found)| found)
    }
}

impl Endpoint for HopBase {
    type Streams = Association<Addr>;

    fn handle_datagram(&mut self, now: Time, from: Addr, datagram: &mut [u8]) {
        self.base.handle_datagram(now, from, datagram);
        self.take_events();
    }

    fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<(Addr, usize)> {
        self.base.poll_transmit(now, out).map(|t| (t.to, t.len))
    }

    fn next_timeout(&self) -> Option<Time> {
        self.base.next_timeout()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.base.handle_timeout(now);
        self.take_events();
    }

    fn associations(&self) -> usize {
        self.associations.len()
    }

    fn streams(&mut self, index: usize) -> Option<&mut Association<Addr>> {
        self.base.association_mut(*self.associations.get(index)?)
    }

    fn lost(&self) -> Option<String> {
        self.lost.map(|reason| format!("{reason:?} at the base"))
    }

    fn probe(&self, index: usize) -> Probe {
        let refused = self.base.stats().refused;
        self.association(index).map_or(Probe::default(), |a| probe(&a.stats(), refused))
    }
}
