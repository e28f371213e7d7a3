//! The addresses of mobiles, as a base's configuration has them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use lasthop_control::Changes;
use lasthop_hop::seal::PublicKey;
use lasthop_kernel::network::Network;
use lasthop_units::Duration;

use super::source_addresses::SourceAddresses;
use super::{BaseConfig, MobileEntry, Mode};
use crate::fleet::FleetKeys;
use crate::held::{Holder, SharedHolding};

/// What the configuration says of one mobile.
#[derive(Clone, PartialEq, Default, Debug)]
pub(super) struct Addresses {
    /// From where its connections leave.
    pub(super) sources: SourceAddresses,
    /// For what packets follow it: these, and those of packets alone that no base masquerades.
    pub(super) routed: Vec<IpAddr>,
    /// For how long what it does not have is not acknowledged, where that is so.
    pub(super) hold: Option<Duration>,
}

impl Addresses {
    fn new(entry: &MobileEntry, config: &BaseConfig) -> Self {
        let tun = match &config.tun {
            Some(tun) if !tun.masquerade => entry.tun.as_slice(),
            _ => &[],
        };
        Self {
            sources: SourceAddresses::new(entry.address.clone(), entry.network.clone()),
            routed: [&entry.address, tun].concat(),
            hold: entry.is_held().then(|| entry.hold().0),
        }
    }

    /// All that is its own.
    fn networks(&self) -> BTreeSet<Network> {
        self.sources.all().chain(self.routed.iter().copied().map(Network::from)).collect()
    }
}

/// By the mobiles' keys.
pub(super) type AddressBook = BTreeMap<PublicKey, Addresses>;

/// The addresses of a configuration's mobiles.
pub(super) fn addresses(config: &BaseConfig) -> AddressBook {
    config.mobiles.iter().map(|entry| (entry.key.0, Addresses::new(entry, config))).collect()
}

/// What the helper may work for: from where connections leave, and what packets follow where connections migrate.
pub(super) fn permitted(config: &BaseConfig, addresses: &AddressBook) -> Vec<Network> {
    let mut all = guarded(addresses);
    if migrates(config) {
        all.extend(addresses.values().flat_map(Addresses::networks));
    }
    distinct(all)
}

/// From where connections leave.
fn guarded(addresses: &AddressBook) -> Vec<Network> {
    distinct(addresses.values().flat_map(|of| of.sources.all()).collect())
}

fn distinct(mut all: Vec<Network>) -> Vec<Network> {
    all.sort_unstable();
    all.dedup();
    all
}

/// Whether a base's connections migrate, as far as that can be had.
pub(super) fn migrates(config: &BaseConfig) -> bool {
    config.handoff.as_ref().is_some_and(|of| of.settings.mode() == Mode::Migrate)
}

/// Whether a base has the privileged helper work for it.
pub(super) fn wants_helper(config: &BaseConfig) -> bool {
    migrates(config) || !permitted(config, &addresses(config)).is_empty()
}

/// The mobiles' addresses, and what their connections share.
#[derive(Clone, Default, Debug)]
pub(super) struct Mobiles {
    addresses: AddressBook,
    /// What holds acknowledgements, once it does.
    pub(super) holding: SharedHolding,
    /// By which tickets are made, and connections taken over whose base is dead.
    pub(super) tickets: FleetKeys,
}

impl Mobiles {
    /// None yet, whose tickets are made with these keys.
    pub(super) fn new(tickets: FleetKeys) -> Self {
        Self { tickets, ..Self::default() }
    }

    /// These instead.
    pub(super) fn with(&self, addresses: AddressBook) -> Self {
        Self { addresses, ..self.clone() }
    }

    /// What is known of a mobile's.
    pub(super) fn get(&self, mobile: PublicKey) -> Option<&Addresses> {
        self.addresses.get(&mobile)
    }

    /// From where a mobile's connections leave, each a single address.
    pub(super) fn own(&self, mobile: PublicKey) -> &[IpAddr] {
        self.get(mobile).map_or(&[], |of| of.sources.addresses())
    }

    /// For what packets follow a mobile.
    pub(super) fn routed(&self, mobile: PublicKey) -> &[IpAddr] {
        self.get(mobile).map_or(&[], |of| &of.routed)
    }

    /// The addresses of all mobiles from which connections leave.
    pub(super) fn all_own(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.values().flat_map(|of| of.sources.addresses()).copied()
    }

    /// The addresses of all mobiles for which packets follow them.
    pub(super) fn all_routed(&self) -> BTreeSet<IpAddr> {
        self.addresses.values().flat_map(|of| &of.routed).copied().collect()
    }

    /// From where connections leave, networks as well.
    pub(super) fn guarded(&self) -> Vec<Network> {
        guarded(&self.addresses)
    }

    /// All networks and addresses.
    pub(super) fn networks(&self) -> Vec<Network> {
        distinct(self.addresses.values().flat_map(Addresses::networks).collect())
    }

    /// What holds the acknowledgements of a mobile's connections, if something is to.
    pub(super) fn holder(&self, mobile: PublicKey) -> Option<Holder> {
        let most = self.get(mobile)?.hold?;
        let (holding, tickets) = (self.holding.clone(), self.tickets.clone());
        Some(Holder { holding, most, tickets, mobile })
    }

    /// Whether the connections of some mobile are acknowledged end to end.
    pub(super) fn are_held(&self) -> bool {
        self.addresses.values().any(|of| of.hold.is_some())
    }

    /// Mobiles that had something here that they do not have in `now`.
    pub(super) fn shrunk(&self, now: &Self) -> BTreeSet<PublicKey> {
        let kept = |mobile: &PublicKey| now.get(*mobile).map(Addresses::networks);
        let of = self.addresses.iter().filter(|(mobile, before)| {
            !before.networks().is_subset(&kept(mobile).unwrap_or_default())
        });
        of.map(|(mobile, _)| *mobile).collect()
    }

    /// How many addresses and networks are new in `now`, and not there any more.
    pub(super) fn changes(&self, now: &Self) -> Changes {
        let [before, now]: [BTreeSet<Network>; 2] =
            [self, now].map(|of| of.networks().into_iter().collect());
        Changes {
            added: now.difference(&before).count() as u64,
            removed: before.difference(&now).count() as u64,
            changed: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::BaseFile;

    fn key(n: u8) -> PublicKey {
        PublicKey::from_bytes([n; 32])
    }

    /// A base that serves three mobiles, whose addresses are as `text` says, with `K1` for the first one's key.
    fn config(text: &str) -> BaseConfig {
        let keys = [1, 2, 3].map(|n| key(n).to_string());
        let mut all = format!("key = \"base.key\"\nallow = {keys:?}\n{text}");
        for (name, key) in ["K1", "K2", "K3"].into_iter().zip(&keys) {
            all = all.replace(name, key);
        }
        toml::from_str::<BaseFile>(&all).unwrap().try_into().unwrap()
    }

    fn of(text: &str) -> Mobiles {
        Mobiles::default().with(addresses(&config(text)))
    }

    fn entry(name: &str, rest: &str) -> String {
        format!("[[mobiles]]\nkey = \"{name}\"\n{rest}\n")
    }

    /// FLT-3: not even one that two mobiles exchange goes on as it was.
    #[test]
    fn who_has_lost_an_address_is_named_and_addresses_are_counted_whosever_they_are() {
        let first = entry("K1", "address = [\"10.9.0.1\"]\nnetwork = [\"10.8.0.0/24\"]");
        let second = entry("K2", "address = [\"10.9.0.2\"]");
        let before = of(&(first.clone() + &second));
        assert_eq!(before.shrunk(&before), BTreeSet::new());
        assert!(before.changes(&before).is_none());
        for (now, lost, added, removed) in [
            // One gains an address, and one is new.
            (
                first.clone()
                    + &entry("K2", "address = [\"10.9.0.2\", \"fd00::2\"]")
                    + &entry("K3", "address = [\"10.9.0.3\"]"),
                &[][..],
                2,
                0,
            ),
            (first.clone(), &[key(2)][..], 0, 1),
            (entry("K1", "address = [\"10.9.0.1\"]") + &second, &[key(1)][..], 0, 1),
            // They change places: nothing is new, and both begin anew.
            (
                entry("K2", "address = [\"10.9.0.1\"]\nnetwork = [\"10.8.0.0/24\"]")
                    + &entry("K1", "address = [\"10.9.0.2\"]"),
                &[key(1), key(2)][..],
                0,
                0,
            ),
            // What it is acknowledged is no address.
            (
                first.clone() + &entry("K2", "address = [\"10.9.0.2\"]\nacknowledge = \"mobile\""),
                &[][..],
                0,
                0,
            ),
        ] {
            let now = of(&now);
            assert_eq!(before.shrunk(&now), lost.iter().copied().collect());
            assert_eq!(before.changes(&now), Changes { added, removed, changed: 0 });
        }
    }

    /// SEC-30: packets alone leave from where the base's device has them, so the helper has to do with them only where they
    /// follow their mobile.
    #[test]
    fn the_helper_is_to_work_for_what_is_named_and_for_what_packets_follow_where_they_do() {
        let text = entry("K1", "address = [\"10.9.0.1\"]\ntun = [\"10.7.0.1\"]");
        let handoff = "[handoff]\nmode = \"migrate\"\ninterface = \"eth0\"\n\
                       [[peers]]\nkey = \"nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=\"\n\
                       address = \"192.0.2.2:4434\"\n";
        let [own, packets] =
            ["10.9.0.1", "10.7.0.1"].map(|ip| Network::from(ip.parse::<IpAddr>().unwrap()));
        let tun = "[tun]\naddress = [\"10.7.0.254\"]\n";
        let masquerading = format!("{tun}masquerade = true\n");
        for (more, expected) in [
            (String::new(), vec![own]),
            (tun.to_owned(), vec![own]),
            (format!("{tun}{handoff}"), vec![packets, own]),
            (format!("{masquerading}{handoff}"), vec![own]),
            (handoff.to_owned(), vec![own]),
        ] {
            let config = config(&(more + &text));
            assert_eq!(permitted(&config, &addresses(&config)), expected);
        }
    }

    #[test]
    fn a_base_whose_connections_migrate_wants_the_helper_before_there_is_an_address() {
        let none = config("fleet = \"members.toml\"\n");
        assert!(!wants_helper(&none));
        let handoff = "[handoff]\nmode = \"migrate\"\ninterface = \"eth0\"\n";
        assert!(wants_helper(&config(&format!("fleet = \"members.toml\"\n{handoff}"))));
        assert!(wants_helper(&config(&entry("K1", "address = [\"10.9.0.1\"]"))));
        // A device has what is for packets alone.
        assert!(!wants_helper(&config(&entry("K1", "tun = [\"10.7.0.1\"]"))));
    }
}
