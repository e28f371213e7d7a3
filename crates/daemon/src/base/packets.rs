//! Packets of mobiles at a base: whose they are, where they may go, and by which association they leave.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;

use lasthop_control::TunReport;
use lasthop_hop::PacketLane;
use lasthop_hop::seal::PublicKey;
use lasthop_kernel::network::Network;
use lasthop_kernel::packet_tun::PacketTun;
use lasthop_kernel::transparent::{BaseTunnel, Tunnel};
use lasthop_units::{Seed, Time};
use lasthop_wire::packet::{IcmpError, Packet};

use super::admitted::Admitted;
use super::{BaseConfig, MobileEntry};
use crate::dial::Gate;
use crate::error::RunError;
use crate::keyfile;
use crate::packets::{self, Sorting, TunWay, Verdict, Worth};

/// Whose an address is.
#[derive(Clone, Debug, Default)]
struct Owners {
    addresses: BTreeMap<IpAddr, PublicKey>,
    /// The most specific first.
    networks: Vec<(Network, PublicKey)>,
}

impl Owners {
    fn new(mobiles: &[MobileEntry]) -> Self {
        let mut owners = Self::default();
        for mobile in mobiles {
            let addresses = mobile.address.iter().chain(&mobile.tun);
            owners.addresses.extend(addresses.map(|ip| (*ip, mobile.key.0)));
            owners.networks.extend(mobile.network.iter().map(|network| (*network, mobile.key.0)));
        }
        owners.networks.sort_by_key(|(network, _)| std::cmp::Reverse(network.prefix().1));
        owners
    }

    /// All that is some mobile's.
    fn all(&self) -> Vec<Network> {
        let networks = self.networks.iter().map(|(network, _)| *network);
        self.addresses.keys().copied().map(Network::from).chain(networks).collect()
    }

    fn of(&self, ip: IpAddr) -> Option<PublicKey> {
        let network = || self.networks.iter().find(|(network, _)| network.contains(ip));
        self.addresses.get(&ip).or_else(|| network().map(|(_, key)| key)).copied()
    }
}

/// A worker's queue of the device, and what its packets are judged by.
pub(super) struct Packets {
    way: TunWay,
    owners: Owners,
    admitted: Admitted,
    /// Passed on to other bases, and by them.
    to_bases: u64,
    from_bases: u64,
}

impl Packets {
    /// One for each of so many workers; none if the configuration has no device.
    ///
    /// # Errors
    ///
    /// The device cannot be had, or packets not be led to it.
    pub(super) fn open(config: &BaseConfig, workers: usize) -> Result<Vec<Self>, RunError> {
        let Some(tun) = &config.tun else { return Ok(Vec::new()) };
        let misfit = |error: &dyn std::fmt::Display| RunError::Misfit(error.to_string());
        let queues =
            PacketTun::open(&tun.name, workers, tun.mtu).map_err(|error| misfit(&error))?;
        let owners = Owners::new(&config.mobiles);
        let masqueraded = config.mobiles.iter().filter(|_| tun.masquerade);
        let masqueraded = masqueraded.flat_map(|mobile| &mobile.tun).copied().map(Network::from);
        let tunnel = BaseTunnel {
            addresses: tun.addresses.clone(),
            mobiles: owners.all(),
            masqueraded: masqueraded.collect(),
        };
        let mut standing = Some(Tunnel::base(&tun.name, &tunnel).map_err(|error| misfit(&error))?);
        warn_unless_forwarding(&tunnel.mobiles);
        let seed: Seed = keyfile::entropy().map_err(RunError::Kernel)?;
        let own = owners.addresses.keys().copied();
        let sorting = Sorting::new(seed.stream("flows").next_u64(), &config.packets, own);
        let way =
            |device| TunWay::new(device, tun.addresses.clone(), sorting.clone(), standing.take());
        let ways = queues.into_iter().map(way);
        Ok(ways
            .map(|way| Self {
                way,
                owners: owners.clone(),
                admitted: Admitted::default(),
                to_bases: 0,
                from_bases: 0,
            })
            .collect())
    }

    pub(super) fn way(&mut self) -> &mut TunWay {
        &mut self.way
    }

    pub(super) fn report(&self) -> TunReport {
        let (to_bases, from_bases) = (self.to_bases, self.from_bases);
        TunReport { to_bases, from_bases, ..self.way.report() }
    }

    /// So many packets were passed on to other bases, and by them.
    pub(super) fn add_passed_on(&mut self, to_bases: u64, from_bases: u64) {
        self.to_bases += to_bases;
        self.from_bases += from_bases;
    }

    /// Counts what came of a packet that did not come by the device.
    pub(super) fn count(&mut self, verdict: Verdict) {
        self.way.count(verdict);
    }

    /// Hands what has come to the device to `send`, with the mobile that it is for.
    pub(super) fn receive(
        &mut self,
        now: Time,
        mut send: impl FnMut(PublicKey, &Packet, &[u8]) -> Verdict,
    ) {
        let Self { way, owners, .. } = self;
        way.receive(now, |packet, bytes| match owners.of(packet.destination()) {
            Some(key) => send(key, packet, bytes),
            None => Verdict::Refused("nobody's"),
        });
    }

    /// Whose a packet is that did not come by the device.
    pub(super) fn mobile_of(&self, packet: &Packet) -> Option<PublicKey> {
        self.owners.of(packet.destination())
    }

    /// Hands a mobile's packets on, those that are from its own addresses and go where they may.
    pub(super) fn deliver(
        &mut self,
        now: Time,
        mobile: PublicKey,
        lane: &mut PacketLane,
        targets: &dyn Gate,
    ) {
        let Self { way, owners, admitted, .. } = self;
        way.deliver(now, lane, |packet| {
            if owners.of(packet.source()) != Some(mobile) {
                return Verdict::Refused("spoofed");
            }
            match admitted.admits(now, targets, packet.destination()) {
                true => Verdict::Passed,
                false => Verdict::Answered("target", IcmpError::Prohibited),
            }
        });
    }
}

/// Puts a packet into a mobile's lane, if there is one; `worth` is what is said of its flow.
pub(super) fn send(
    now: Time,
    sorting: &Sorting,
    lane: Option<&mut PacketLane>,
    packet: &Packet,
    (bytes, worth): (&[u8], Worth),
) -> Verdict {
    let to = (packet.destination(), worth);
    match lane {
        Some(lane) => packets::send(now, sorting, lane, packet, bytes, to),
        None => Verdict::Answered("away", IcmpError::HostUnreachable),
    }
}

/// Packets go on only where the kernel forwards them, which is the operator's to say.
fn warn_unless_forwarding(mobiles: &[Network]) {
    for (ipv6, name, path) in [
        (false, "net.ipv4.ip_forward", "/proc/sys/net/ipv4/ip_forward"),
        (true, "net.ipv6.conf.all.forwarding", "/proc/sys/net/ipv6/conf/all/forwarding"),
    ] {
        let is_wanted = mobiles.iter().any(|network| network.prefix().0.is_ipv6() == ipv6);
        if is_wanted && fs::read_to_string(path).is_ok_and(|value| value.trim() == "0") {
            tracing::warn!("packets go no further than this host: say `sysctl {name}=1`");
        }
    }
}
