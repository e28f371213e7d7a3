//! Makes the hop to each base from the configuration.

use std::net::Ipv4Addr;

use lasthop_hop::mobile_tcp::MobileTcp;
use lasthop_hop::seal::{Keypair, PresharedKey, PublicKey};
use lasthop_hop::srp::Srp;
use lasthop_hop::{BareLink, BareMobile, MobileEnd, MobileLink, NumberedLink};
use lasthop_kernel::clock;
use lasthop_kernel::cpu;
use lasthop_kernel::mac::Mac;
use lasthop_kernel::tcp::Congestion;
use lasthop_units::{Seed, Time};

use super::config::{Candidate, MobileConfig};
use crate::carrier::ether::{Ether, Framing};
use crate::carrier::udp::Udp;
use crate::carrier::{Carrier, Route};
use crate::config::{HopAddress, HopKind, MobileTcpFile, SealKind, SrpFile};
use crate::datagram::DatagramMobile;
use crate::datagram::settings::{self, Passage};
use crate::error::RunError;
use crate::handshake::{Caller, Introduction};
use crate::hop::MobileHop;
use crate::keyfile::PresharedKeys;
use crate::split::{Seal, SplitMobile};

/// What every hop of one mobile is made from.
pub(super) struct HopFactory {
    hop: HopKind,
    keys: Keypair,
    /// What the mobile shares with the bases that have these keys.
    psks: PresharedKeys,
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

impl HopFactory {
    /// The hops that a mobile with these keys is configured for.
    pub(super) fn new(
        config: &MobileConfig,
        keys: Keypair,
        psks: PresharedKeys,
        seed: Seed,
    ) -> Self {
        Self {
            hop: config.hop,
            keys,
            psks,
            seal: config.seal,
            seed,
            made: 0,
            wall: clock::wall_nanos(),
            srp: config.srp,
            mobile_tcp: config.mobile_tcp,
            congestion: config.congestion.clone(),
            mark: config.transparent.as_ref().map(|transparent| transparent.numbers.mark),
            streams: config.connections,
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
        if self.hop == HopKind::SplitTcp {
            let (seal, seed) = (self.seal(base), self.next_seed());
            let hop = SplitMobile::new(seal, self.congestion.clone(), self.streams, seed);
            return Ok(Box::new(hop.with_psk(self.psk(base)).with_mark(self.mark)));
        }
        match &base.place {
            HopAddress::Ethernet { interface, peer } => {
                let carrier = ether(interface, *peer, settings::framing(self.hop, self.seal))?;
                self.over(base, carrier, now)
            }
            HopAddress::Internet(address) => self.over(base, udp(&address.host), now),
        }
    }

    fn over(
        &mut self,
        base: &Candidate,
        carrier: BaseCarrier,
        now: Time,
    ) -> Result<Box<dyn MobileHop>, RunError> {
        Ok(match (self.hop, self.seal, &base.key) {
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

    fn seal(&self, base: &Candidate) -> Seal {
        match (self.seal, base.key) {
            (SealKind::Noise, Some(key)) => Seal::Noise(self.keys.clone(), key),
            _ => Seal::Off(*self.keys.public()),
        }
    }

    /// What the base shares with us.
    fn psk(&self, base: &Candidate) -> PresharedKey {
        base.key.map(|key| self.psks.with(&key)).unwrap_or_default()
    }

    /// By what the base knows us, where it has to.
    fn introduction(&self) -> Option<Introduction> {
        let own = *self.keys.public();
        (self.seal == SealKind::Noise).then_some(Introduction { caller: Caller::Mobile, own })
    }

    fn introduce<K>(&self, hop: DatagramMobile<K>) -> DatagramMobile<K>
    where
        K: MobileLink<Address = Route> + 'static,
        MobileEnd<K>: Send,
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

    fn srp(
        &mut self,
        base: &Candidate,
        carrier: BaseCarrier,
        now: Time,
    ) -> DatagramMobile<NumberedLink<Route, Srp>> {
        let settings = settings::srp(&self.srp, carrier.passage, self.streams);
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
        let machine = machine.with_fast_aes(now, cpu::fast_aes()).with_wall_clock(now, self.wall);
        self.introduce(carrier.into_hop("srp", machine, base))
    }

    fn mobile_tcp(
        &mut self,
        base: &Candidate,
        key: &PublicKey,
        carrier: BaseCarrier,
        now: Time,
    ) -> Result<DatagramMobile<NumberedLink<Route, MobileTcp>>, RunError> {
        let (passage, seed) = (carrier.passage, self.next_seed());
        let settings =
            settings::mobile_tcp(&self.mobile_tcp, passage, settings::SEALED, self.streams)?;
        let keys = self.keys.clone();
        let machine = lasthop_hop::Mobile::new(settings, keys, *key, Route::Nowhere, seed, now)
            .with_psk(now, self.psk(base));
        let machine = machine.with_fast_aes(now, cpu::fast_aes()).with_wall_clock(now, self.wall);
        Ok(self.introduce(carrier.into_hop("mobile-tcp", machine, base)))
    }

    fn bare(
        &mut self,
        base: &Candidate,
        carrier: BaseCarrier,
        now: Time,
    ) -> Result<DatagramMobile<BareLink<Route>>, RunError> {
        let seed = self.next_seed();
        let settings = settings::mobile_tcp(&self.mobile_tcp, carrier.passage, 0, self.streams)?;
        let machine = BareMobile::new(settings, Route::Nowhere, seed, now);
        Ok(carrier.into_hop("mobile-tcp", machine, base))
    }
}

/// A carrier to one base.
struct BaseCarrier {
    carrier: Box<dyn Carrier>,
    passage: Passage,
    /// Where the base is, if the carrier finds it by itself.
    peer: Option<Route>,
}

impl BaseCarrier {
    fn into_hop<K>(
        self,
        name: &'static str,
        machine: MobileEnd<K>,
        base: &Candidate,
    ) -> DatagramMobile<K>
    where
        K: MobileLink<Address = Route> + 'static,
        MobileEnd<K>: Send,
    {
        DatagramMobile::new(name, machine, self.carrier, base.key, self.peer)
    }
}

fn udp(host: &str) -> BaseCarrier {
    let is_v4 = host.parse::<Ipv4Addr>().is_ok();
    let carrier = Box::new(Udp::anywhere());
    BaseCarrier { carrier, passage: Passage::udp(!is_v4), peer: None }
}

fn ether(interface: &str, peer: Option<Mac>, framing: Framing) -> Result<BaseCarrier, RunError> {
    let carrier = Ether::open(interface, framing)?;
    let passage = Passage::ether(carrier.mtu(), framing.overhead());
    Ok(BaseCarrier { carrier: Box::new(carrier), passage, peer: peer.map(Route::Ethernet) })
}
