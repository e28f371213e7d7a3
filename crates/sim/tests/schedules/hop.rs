//! Both ends of a hop as they are deployed, sealed and with SRP inside, and what they promise.

use core::net::SocketAddrV4;

use lasthop_hop::PacketLane;
use lasthop_hop::seal::{Keypair, PublicKey};
use lasthop_hop::{
    AssociationEvent, AssociationId, Base, HopConfig, HopStats, Mobile, PathId, PathStats, Streams,
};
use lasthop_units::{Bytes, Duration, LinkEvent, Seed, Time};

use crate::flaw::{Flaw, Flawed};

/// Makes both ends of the hops of one run.
pub(crate) struct Hop {
    config: HopConfig,
    flaw: Flaw,
    seed: Seed,
    base: Keypair,
    mobiles: Vec<Keypair>,
}

/// After the radio is well again, what may pass before an end notices that is not being told: a
/// moved mobile that has nothing to say speaks up at its next keep-alive.
const NOTICE: Duration = Duration::from_secs(10);

/// The smallest buffer of one direction of a stream, in bytes.
const BUFFER_LEAST: u64 = 16 * 1024;

impl Hop {
    /// Hops between a base and so many mobiles, with any settings within what they promise to work
    /// with.
    pub(crate) fn random(mobiles: usize, seed: Seed, flaw: Flaw) -> Self {
        let random = &mut seed.stream("transport");
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
            ..HopConfig::default()
        };
        let keys = |name: &str| Keypair::generate(seed.child(name));
        let mobiles = (0..mobiles).map(|i| keys(&format!("mobile-{i}"))).collect();
        Self { config, flaw, seed, base: keys("base"), mobiles }
    }

    /// The most that one association with this many streams may buffer at one end, in bytes.
    pub(crate) fn memory_max(&self, streams: u64) -> u64 {
        // Two directions; buffers are powers of two, and none is smaller than the least.
        4 * self.config.association_memory.get() + streams * 2 * BUFFER_LEAST
    }

    /// What may at least be in flight, in bytes, whoever reads at once.
    pub(crate) fn window(&self) -> u64 {
        self.config.stream_window.min(self.config.association_window).get()
    }

    /// How long after the radio is well again the hop may take to notice.
    pub(crate) fn patience(&self) -> Duration {
        self.config.keepalive + NOTICE
    }

    /// The `index`th mobile's end, which talks to the base at `base`.
    pub(crate) fn mobile(&self, index: usize, base: SocketAddrV4) -> Endpoint {
        let (config, own) = (self.flaw.settings(&self.config), &self.mobiles[index]);
        let entropy = self.seed.child(&format!("entropy-{index}"));
        let end = if self.flaw == Flaw::Unsealed {
            Mobile::unsealed(config, *own.public(), base, entropy, Time::ZERO)
        } else {
            Mobile::new(config, own.clone(), *self.base.public(), base, entropy, Time::ZERO)
        };
        self.endpoint(HopMachine::Mobile(Box::new(end)))
    }

    /// The base's end.
    pub(crate) fn base(&self) -> Endpoint {
        let (config, entropy) = (self.flaw.settings(&self.config), self.seed.child("entropy-base"));
        let end = if self.flaw == Flaw::Unsealed {
            Base::unsealed(config, entropy)
        } else {
            let allowed = self.mobiles.iter().map(|keys| *keys.public()).collect();
            Base::new(config, self.base.clone(), allowed, entropy)
        };
        let mut endpoint = self.endpoint(HopMachine::Base(Box::new(end), Vec::new()));
        endpoint.mobiles = self.mobiles.iter().map(|keys| *keys.public()).collect();
        endpoint
    }

    fn endpoint(&self, end: HopMachine) -> Endpoint {
        Endpoint { end, flaw: self.flaw, lost: None, last: None, commits: 0, mobiles: Vec::new() }
    }
}

/// One end of a hop.
pub(crate) struct Endpoint {
    end: HopMachine,
    flaw: Flaw,
    /// Why an association was lost, if one was. No schedule is bad enough for that.
    pub(crate) lost: Option<String>,
    /// The datagram sent last.
    last: Option<(PathId, SocketAddrV4, usize)>,
    /// How often streams were written to.
    commits: u64,
    /// At the base, the mobiles in order.
    mobiles: Vec<PublicKey>,
}

enum HopMachine {
    Mobile(Box<Mobile<SocketAddrV4>>),
    /// With its associations in the order in which they came up; lost ones keep their place.
    Base(Box<Base<SocketAddrV4>>, Vec<AssociationId>),
}

impl Endpoint {
    pub(crate) fn handle_datagram(&mut self, now: Time, from: SocketAddrV4, datagram: &mut [u8]) {
        match &mut self.end {
            HopMachine::Mobile(mobile) => mobile.handle_datagram(now, from, datagram),
            HopMachine::Base(base, _) => base.handle_datagram(now, from, datagram),
        }
        self.take_events();
    }

    /// Writes the next datagram into `out`: by which path and where it goes, and its length.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Time,
        out: &mut [u8],
    ) -> Option<(PathId, SocketAddrV4, usize)> {
        let next = match &mut self.end {
            HopMachine::Mobile(mobile) => mobile.poll_transmit(now, out),
            HopMachine::Base(base, _) => base.poll_transmit(now, out),
        };
        let next = next.map(|t| (t.path, t.to, t.len));
        self.last = next.or(self.last.filter(|_| self.flaw == Flaw::SendsWithoutEnd));
        self.last
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        match &self.end {
            _ if self.flaw == Flaw::Spins => Some(Time::ZERO),
            HopMachine::Mobile(mobile) => mobile.next_timeout(),
            HopMachine::Base(base, _) => base.next_timeout(),
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        match &mut self.end {
            HopMachine::Mobile(mobile) => mobile.handle_timeout(now),
            HopMachine::Base(base, _) => base.handle_timeout(now),
        }
        self.take_events();
    }

    pub(crate) fn handle_link_event(&mut self, now: Time, path: PathId, event: LinkEvent) {
        if let HopMachine::Mobile(mobile) = &mut self.end {
            mobile.handle_link_event(now, path, event);
        }
    }

    /// A mobile has a second link to its base.
    pub(crate) fn join(&mut self, now: Time, base: SocketAddrV4) {
        if let HopMachine::Mobile(mobile) = &mut self.end {
            mobile.set_base_address(now, PathId(1), base);
        }
    }

    fn take_events(&mut self) {
        let mut note = |event| {
            if let AssociationEvent::Lost(reason) = event {
                self.lost.get_or_insert_with(|| format!("an association was lost: {reason:?}"));
            }
        };
        match &mut self.end {
            HopMachine::Mobile(mobile) => {
                while let Some(event) = mobile.poll_association_event() {
                    note(event);
                }
            }
            HopMachine::Base(base, associations) => {
                while let Some((id, event)) = base.poll_event() {
                    if event == AssociationEvent::Up {
                        associations.push(id);
                    }
                    note(event);
                }
                while base.poll_touched().is_some() {}
            }
        }
    }

    /// How many associations were ever made; they are named `0..associations()`.
    pub(crate) fn associations(&self) -> usize {
        match &self.end {
            HopMachine::Mobile(_) => 1,
            HopMachine::Base(_, associations) => associations.len(),
        }
    }

    /// The streams of an association; none once it is lost.
    pub(crate) fn streams(&mut self, index: usize) -> Option<Flawed<'_>> {
        let streams: &mut dyn Streams = match &mut self.end {
            HopMachine::Mobile(mobile) => mobile.as_mut(),
            HopMachine::Base(base, associations) => {
                base.association_mut(*associations.get(index)?)?
            }
        };
        Some(Flawed { streams, flaw: self.flaw, commits: &mut self.commits })
    }

    /// The packets of an association; none where it is not up, or lost.
    pub(crate) fn lane(&mut self, index: usize) -> Option<&mut PacketLane> {
        match &mut self.end {
            HopMachine::Mobile(mobile) => mobile.packets(),
            HopMachine::Base(base, associations) => {
                base.association_mut(*associations.get(index)?)?.packets()
            }
        }
    }

    /// Which mobile's packets an association has, and how its slowest path fares; none where it has none.
    pub(crate) fn lane_of(&mut self, index: usize) -> Option<(usize, PathStats)> {
        self.lane(index)?;
        match &self.end {
            HopMachine::Mobile(mobile) => Some((0, slowest(mobile.path_stats()))),
            HopMachine::Base(base, associations) => {
                let id = *associations.get(index)?;
                let key = base.mobile(id)?;
                let mobile = self.mobiles.iter().position(|mobile| *mobile == key)?;
                let paths = base.association(id)?.paths().map(|(stats, _)| stats);
                Some((mobile, slowest(paths)))
            }
        }
    }

    /// Datagrams of all associations that came and were new.
    pub(crate) fn datagrams_received(&self) -> u64 {
        self.stats().map(|stats| stats.datagrams_received).sum()
    }

    /// Bytes of packets that associations hold.
    pub(crate) fn packets_held(&self) -> u64 {
        self.stats().map(|stats| stats.packets.bytes_held).sum()
    }

    /// Streams that each association has not forgotten, and bytes that it holds for sending, for
    /// resending and for reading.
    pub(crate) fn held(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.stats().map(|stats| (stats.streams as u64, stats.memory.get()))
    }

    fn stats(&self) -> impl Iterator<Item = HopStats> + '_ {
        let (mobile, base) = match &self.end {
            HopMachine::Mobile(mobile) => (Some(mobile.stats()), None),
            HopMachine::Base(base, _) => {
                (None, Some(base.associations().map(|(_, _, a)| a.stats())))
            }
        };
        mobile.into_iter().chain(base.into_iter().flatten())
    }
}

/// The longest round trip of all paths, and the greatest tolerance of reordering.
fn slowest(paths: impl Iterator<Item = PathStats>) -> PathStats {
    paths.fold(PathStats::default(), |slowest, path| PathStats {
        srtt: path.srtt.max(slowest.srtt),
        reordering: path.reordering.max(slowest.reordering),
        ..slowest
    })
}
