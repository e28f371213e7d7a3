//! Makes the hop to each base from the configuration.

use std::net::Ipv4Addr;

use lasthop_hop::mobile_tcp::MobileTcp;
use lasthop_hop::seal::{Keypair, PresharedKey, PublicKey};
use lasthop_hop::srp::Srp;
use lasthop_hop::{
    BareLink, BareMobile, HopConfig, MobileEnd, MobileLink, NumberedLink, PathId, PathStatus,
};
use lasthop_kernel::clock;
use lasthop_kernel::cpu;
use lasthop_kernel::mac::Mac;
use lasthop_units::{Seed, Time};

use super::config::{Candidate, MobileConfig};
use super::links::LinkConfig;
use super::{packets, udp_associations};
use crate::carrier::ether::{Ether, Framing};
use crate::carrier::udp::Udp;
use crate::carrier::{Carrier, Route};
use crate::config::{HopAddress, HopKind, SealKind};
use crate::datagram::DatagramMobile;
use crate::datagram::settings::{self, Passage};
use crate::error::RunError;
use crate::handshake::{Caller, Introduction};
use crate::hop::MobileHop;
use crate::keyfile::PresharedKeys;
use crate::split::{Seal, SplitMobile};

/// What every hop of one mobile is made from.
pub(super) struct HopFactory {
    config: MobileConfig,
    keys: Keypair,
    /// What the mobile shares with the bases that have these keys.
    psks: PresharedKeys,
    seed: Seed,
    made: u64,
    /// The wall clock at `Time::ZERO`.
    wall: u64,
}

impl HopFactory {
    /// The hops that a mobile with these keys is configured for.
    pub(super) fn new(
        config: MobileConfig,
        keys: Keypair,
        psks: PresharedKeys,
        seed: Seed,
    ) -> Self {
        Self { config, keys, psks, seed, made: 0, wall: clock::wall_nanos() }
    }

    /// A link that is used from now on, too.
    pub(super) fn add_link(&mut self, link: LinkConfig) {
        self.config.links.push(link);
    }

    /// What a link costs has changed.
    pub(super) fn set_link_status(&mut self, link: usize, status: PathStatus) {
        if let Some(link) = self.config.links.get_mut(link) {
            link.status = status;
        }
    }

    /// Makes a hop to a base.
    ///
    /// # Errors
    ///
    /// What the kernel or the configuration lacks.
    pub(super) fn make(
        &mut self,
        base: &Candidate,
        now: Time,
    ) -> Result<Box<dyn MobileHop>, RunError> {
        if self.config.hop == HopKind::SplitTcp {
            let (seal, seed) = (self.seal(base), self.next_seed());
            let MobileConfig { congestion, connections, transparent, .. } = &self.config;
            let hop = SplitMobile::new(seal, congestion.clone(), *connections, seed);
            // What is marked is not intercepted.
            let mark = transparent.as_ref().map(|transparent| transparent.numbers.mark);
            return Ok(Box::new(hop.with_psk(self.psk(base)).with_mark(mark)));
        }
        match &base.place {
            HopAddress::Ethernet { interface, peer } => {
                let framing = settings::framing(self.config.hop, self.config.seal);
                self.over(base, ether(interface, *peer, framing)?, now)
            }
            HopAddress::Internet(address) => self.over(base, self.udp(&address.host), now),
        }
    }

    fn over(
        &mut self,
        base: &Candidate,
        carrier: BaseCarrier,
        now: Time,
    ) -> Result<Box<dyn MobileHop>, RunError> {
        Ok(match (self.config.hop, self.config.seal, &base.key) {
            (HopKind::MobileTcp, SealKind::Noise, Some(key)) => {
                Box::new(self.mobile_tcp(base, key, carrier, now)?)
            }
            // The configuration was refused.
            (HopKind::MobileTcp, SealKind::Noise, None) => {
                return Err(RunError::Misfit(format!("{}: the base has no key", base.name)));
            }
            (HopKind::MobileTcp, SealKind::None, _) => Box::new(self.bare(base, carrier, now)?),
            _ => Box::new(self.srp(base, carrier, now)),
        })
    }

    /// The mark by which the hop's own datagrams are told from packets that it is to carry.
    fn mark(&self) -> Option<u32> {
        self.config.tun.as_ref().map(|_| packets::mark(&self.config))
    }

    fn udp(&self, host: &str) -> BaseCarrier {
        let (is_v4, mark) = (host.parse::<Ipv4Addr>().is_ok(), self.mark());
        let links =
            self.config.links.iter().map(|link| (link.name.as_str(), link.interface.as_str()));
        let by_links = self.config.all_links || !self.config.links.is_empty();
        let carrier = if by_links { Udp::by_links(links, mark) } else { Udp::anywhere(mark) };
        BaseCarrier { carrier: Box::new(carrier), passage: Passage::udp(!is_v4), peer: None }
    }

    fn seal(&self, base: &Candidate) -> Seal {
        match (self.config.seal, base.key) {
            (SealKind::Noise, Some(key)) => Seal::Noise(self.keys.clone(), key),
            _ => Seal::Off(*self.keys.public()),
        }
    }

    /// What the base shares with us.
    fn psk(&self, base: &Candidate) -> PresharedKey {
        base.key.map(|key| self.psks.with(&key)).unwrap_or_default()
    }

    /// The hop called `name`, which runs `machine` over `carrier`.
    fn assemble<K>(
        &self,
        name: &'static str,
        machine: MobileEnd<K>,
        BaseCarrier { carrier, peer, .. }: BaseCarrier,
        base: &Candidate,
    ) -> DatagramMobile<K>
    where
        K: MobileLink<Address = Route> + 'static,
        MobileEnd<K>: Send,
    {
        let own = Introduction { caller: Caller::Mobile, own: *self.keys.public() };
        let own = (self.config.seal == SealKind::Noise).then_some(own);
        DatagramMobile::new(name, machine, carrier, base.key, peer, own)
    }

    /// No two hops draw the same numbers.
    fn next_seed(&mut self) -> Seed {
        self.made += 1;
        self.seed.child(&format!("hop {}", self.made))
    }

    fn srp(
        &mut self,
        base: &Candidate,
        carrier: BaseCarrier,
        now: Time,
    ) -> DatagramMobile<NumberedLink<Route, Srp>> {
        let mut settings =
            settings::srp(&self.config.srp, carrier.passage, self.config.connections);
        if self.config.tun.is_some() || udp_associations::are_served(&self.config) {
            settings.packet_max = HopConfig::default().packet_max;
        }
        let seed = self.next_seed();
        let machine = match self.seal(base) {
            Seal::Noise(keys, key) => {
                lasthop_hop::Mobile::new(settings, keys, key, Route::Nowhere, seed, now)
                    .with_psk(now, self.psk(base))
            }
            Seal::Off(claim) => {
                lasthop_hop::Mobile::unsealed(settings, claim, Route::Nowhere, seed, now)
            }
        };
        let mut machine =
            machine.with_fast_aes(now, cpu::fast_aes()).with_wall_clock(now, self.wall);
        for (link, config) in self.config.links.iter().enumerate() {
            machine.set_path_status(now, PathId(link as u8), config.status);
        }
        self.assemble("srp", machine, carrier, base)
    }

    fn mobile_tcp(
        &mut self,
        base: &Candidate,
        key: &PublicKey,
        carrier: BaseCarrier,
        now: Time,
    ) -> Result<DatagramMobile<NumberedLink<Route, MobileTcp>>, RunError> {
        let seed = self.next_seed();
        let MobileConfig { mobile_tcp, connections, .. } = &self.config;
        let settings =
            settings::mobile_tcp(mobile_tcp, carrier.passage, settings::SEALED, *connections)?;
        let keys = self.keys.clone();
        let machine = lasthop_hop::Mobile::new(settings, keys, *key, Route::Nowhere, seed, now)
            .with_psk(now, self.psk(base));
        let machine = machine.with_fast_aes(now, cpu::fast_aes()).with_wall_clock(now, self.wall);
        Ok(self.assemble("mobile-tcp", machine, carrier, base))
    }

    fn bare(
        &mut self,
        base: &Candidate,
        carrier: BaseCarrier,
        now: Time,
    ) -> Result<DatagramMobile<BareLink<Route>>, RunError> {
        let seed = self.next_seed();
        let MobileConfig { mobile_tcp, connections, .. } = &self.config;
        let settings = settings::mobile_tcp(mobile_tcp, carrier.passage, 0, *connections)?;
        let machine = BareMobile::new(settings, Route::Nowhere, seed, now);
        Ok(self.assemble("mobile-tcp", machine, carrier, base))
    }
}

/// A carrier to one base.
struct BaseCarrier {
    carrier: Box<dyn Carrier>,
    passage: Passage,
    /// Where the base is, if the carrier finds it by itself.
    peer: Option<Route>,
}

fn ether(interface: &str, peer: Option<Mac>, framing: Framing) -> Result<BaseCarrier, RunError> {
    let carrier = Ether::open(interface, framing)?;
    let passage = Passage::ether(carrier.mtu(), framing.overhead());
    Ok(BaseCarrier { carrier: Box::new(carrier), passage, peer: peer.map(Route::Ethernet) })
}
