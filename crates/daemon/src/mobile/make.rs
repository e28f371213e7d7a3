//! Hops to bases: each base gets a hop of its own, made when it is needed.

use std::net::Ipv4Addr;

use lasthop_hop::mobile_tcp::MobileTcp;
use lasthop_hop::seal::Keypair;
use lasthop_hop::srp::Srp;
use lasthop_hop::{BareMobile, MobileEnd};
use lasthop_kernel::clock;
use lasthop_kernel::cpu;
use lasthop_kernel::tcp::Congestion;
use lasthop_units::{Seed, Time};

use super::config::{Candidate, MobileConfig};
use super::{MobileHop, Service};
use crate::carrier::Carrier;
use crate::carrier::ether::{Ether, Framing};
use crate::carrier::udp::Udp;
use crate::config::{HopKind, MobileTcpFile, Place, SealKind, SrpFile};
use crate::datagram::DatagramMobile;
use crate::datagram::settings::{self, Passage};
use crate::error::RunError;
use crate::handshake::{Caller, Introduction};
use crate::split::{Seal, SplitMobile};

/// Makes a hop to a base at a time.
pub(super) type Make<H> = Box<dyn FnMut(&Candidate, Time) -> Result<H, RunError> + Send>;

/// What every hop of one mobile is made from.
struct Recipe {
    keys: Keypair,
    seal: SealKind,
    seed: Seed,
    made: u64,
    /// The wall clock at `Time::ZERO`.
    wall: u64,
    srp: SrpFile,
    mobile_tcp: MobileTcpFile,
    congestion: Option<Congestion>,
    /// Marks sockets that must not be intercepted.
    mark: Option<u32>,
    streams: usize,
}

impl Recipe {
    fn seal(&self, base: &Candidate) -> Seal {
        match (self.seal, base.key) {
            (SealKind::Noise, Some(key)) => Seal::Noise(self.keys.clone(), key),
            _ => Seal::Off(*self.keys.public()),
        }
    }

    /// By what the base knows us, where it has to.
    fn introduction(&self) -> Option<Introduction> {
        let own = *self.keys.public();
        (self.seal == SealKind::Noise).then_some(Introduction { caller: Caller::Mobile, own })
    }

    fn introduce<M, C>(&self, hop: DatagramMobile<M, C>) -> DatagramMobile<M, C>
    where
        M: MobileEnd<Address = C::Route> + Send + 'static,
        C: Carrier,
    {
        match self.introduction() {
            Some(introduction) => hop.with_introduction(introduction),
            None => hop,
        }
    }

    /// No two hops draw the same numbers.
    fn next_seed(&mut self) -> Seed {
        self.made += 1;
        self.seed.child(&format!("hop {}", self.made))
    }

    fn srp<C: Carrier>(
        &mut self,
        base: &Candidate,
        carrier: Way<C>,
        now: Time,
    ) -> DatagramMobile<lasthop_hop::Mobile<C::Route, Srp>, C> {
        let settings = settings::srp(&self.srp, carrier.passage, self.streams);
        let seed = self.next_seed();
        let machine = match self.seal(base) {
            Seal::Noise(keys, base) => {
                lasthop_hop::Mobile::new(settings, keys, base, C::NOWHERE, seed, now)
            }
            Seal::Off(claim) => {
                lasthop_hop::Mobile::unsealed(settings, claim, C::NOWHERE, seed, now)
            }
        };
        let machine = machine.with_fast_aes(now, cpu::fast_aes()).with_wall_clock(now, self.wall);
        self.introduce(carrier.carry("srp", machine, base))
    }

    fn mobile_tcp<C: Carrier>(
        &mut self,
        base: &Candidate,
        key: &lasthop_hop::seal::PublicKey,
        carrier: Way<C>,
        now: Time,
    ) -> Result<DatagramMobile<lasthop_hop::Mobile<C::Route, MobileTcp>, C>, RunError> {
        let (passage, seed) = (carrier.passage, self.next_seed());
        let settings =
            settings::mobile_tcp(&self.mobile_tcp, passage, settings::SEALED, self.streams)?;
        let keys = self.keys.clone();
        let machine = lasthop_hop::Mobile::new(settings, keys, *key, C::NOWHERE, seed, now);
        let machine = machine.with_fast_aes(now, cpu::fast_aes()).with_wall_clock(now, self.wall);
        Ok(self.introduce(carrier.carry("mobile-tcp", machine, base)))
    }

    fn bare<C: Carrier>(
        &mut self,
        base: &Candidate,
        carrier: Way<C>,
        now: Time,
    ) -> Result<DatagramMobile<BareMobile<C::Route>, C>, RunError> {
        let seed = self.next_seed();
        let settings = settings::mobile_tcp(&self.mobile_tcp, carrier.passage, 0, self.streams)?;
        let machine = BareMobile::new(settings, C::NOWHERE, seed, now);
        Ok(carrier.carry("mobile-tcp", machine, base))
    }
}

/// A carrier to one base.
struct Way<C: Carrier> {
    carrier: C,
    passage: Passage,
    /// Where the base is, if the carrier need not be told.
    peer: Option<C::Route>,
}

impl<C: Carrier> Way<C> {
    fn carry<M>(self, name: &'static str, machine: M, base: &Candidate) -> DatagramMobile<M, C>
    where
        M: MobileEnd<Address = C::Route> + Send + 'static,
    {
        DatagramMobile::new(name, machine, self.carrier, base.key, self.peer)
    }
}

fn udp(base: &Candidate) -> Result<Way<Udp>, RunError> {
    let is_v4 = match &base.place {
        Place::Internet(base) => base.host.parse::<Ipv4Addr>().is_ok(),
        Place::Ethernet { .. } => false,
    };
    let carrier = Udp::anywhere().map_err(|(addr, source)| RunError::Listen { addr, source })?;
    Ok(Way { carrier, passage: Passage::udp(!is_v4), peer: None })
}

fn ether(base: &Candidate, framing: Framing) -> Result<Way<Ether>, RunError> {
    let (interface, peer) = match &base.place {
        Place::Ethernet { interface, peer } => (interface.as_str(), *peer),
        Place::Internet(base) => (base.host.as_str(), None),
    };
    let carrier = Ether::open(interface, framing)?;
    let passage = Passage::ether(carrier.mtu(), framing.overhead());
    Ok(Way { carrier, passage, peer })
}

/// The service of a mobile with these keys, over the hop that it is configured for.
pub(super) fn service(
    config: MobileConfig,
    keys: Keypair,
    seed: Seed,
) -> Result<Box<dyn Service>, RunError> {
    let (hop, seal) = (config.hop, config.seal);
    let mut recipe = Recipe {
        keys: keys.clone(),
        seal,
        seed,
        made: 0,
        wall: clock::wall_nanos(),
        srp: config.srp,
        mobile_tcp: config.mobile_tcp,
        congestion: config.congestion.clone(),
        mark: config.transparent.as_ref().map(|transparent| transparent.numbers.mark),
        streams: config.connections,
    };
    if hop == HopKind::SplitTcp {
        let make: Make<SplitMobile> = Box::new(move |base, _| {
            let (seal, seed) = (recipe.seal(base), recipe.next_seed());
            let congestion = recipe.congestion.clone();
            let hop = SplitMobile::new(seal, congestion, recipe.streams, seed);
            Ok(hop.with_mark(recipe.mark))
        });
        return super::service(config, make, keys, seed);
    }
    let on_ethernet =
        config.bases.first().is_some_and(|base| matches!(base.place, Place::Ethernet { .. }));
    if on_ethernet {
        let framing = settings::framing(hop, seal);
        over(config, recipe, keys, seed, move |base| ether(base, framing))
    } else {
        over(config, recipe, keys, seed, udp)
    }
}

/// A service over datagrams, whose carriers `open` opens.
fn over<C: Carrier>(
    config: MobileConfig,
    mut recipe: Recipe,
    keys: Keypair,
    seed: Seed,
    open: impl Fn(&Candidate) -> Result<Way<C>, RunError> + Send + 'static,
) -> Result<Box<dyn Service>, RunError> {
    fn serve<H: MobileHop>(
        config: MobileConfig,
        keys: Keypair,
        seed: Seed,
        make: impl FnMut(&Candidate, Time) -> Result<H, RunError> + Send + 'static,
    ) -> Result<Box<dyn Service>, RunError> {
        super::service(config, Box::new(make), keys, seed)
    }
    match (config.hop, config.seal) {
        (HopKind::MobileTcp, SealKind::Noise) => {
            serve(config, keys, seed, move |base, now| match &base.key {
                Some(key) => recipe.mobile_tcp(base, key, open(base)?, now),
                // The configuration was refused.
                None => Err(RunError::Misfit(format!("{}: the base has no key", base.name))),
            })
        }
        (HopKind::MobileTcp, SealKind::None) => {
            serve(config, keys, seed, move |base, now| recipe.bare(base, open(base)?, now))
        }
        _ => serve(config, keys, seed, move |base, now| Ok(recipe.srp(base, open(base)?, now))),
    }
}
