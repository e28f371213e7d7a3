//! Which addresses a mobile's connections may leave a base from.

use std::net::{IpAddr, SocketAddr};

use lasthop_kernel::leave::Leave;
use lasthop_kernel::network::Network;
use lasthop_kernel::tcp;
use lasthop_session::Refusal;

use super::policy::TargetPolicy;

/// A mobile's own addresses, as the base's configuration has them: what it asks for must be among
/// them.
#[derive(Clone, PartialEq, Default, Debug)]
pub(super) struct SourceAddresses {
    addresses: Vec<IpAddr>,
    networks: Vec<Network>,
}

impl SourceAddresses {
    /// The mobile's own addresses, and the networks behind it.
    pub(super) fn new(addresses: Vec<IpAddr>, networks: Vec<Network>) -> Self {
        Self { addresses, networks }
    }

    /// The mobile's own, each a single one.
    pub(super) fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// The mobile's own, and the networks behind it.
    pub(super) fn all(&self) -> impl Iterator<Item = Network> {
        let own = self.addresses.iter().copied().map(Network::from);
        own.chain(self.networks.iter().copied())
    }

    /// From where a connection leaves: from the requested address, or else from the
    /// mobile's first of the family that it takes, or else from the base's own.
    ///
    /// # Errors
    ///
    /// [`Refusal::NotAllowed`] if the requested one is not the mobile's.
    pub(super) fn choose(&self, asked: Option<SocketAddr>) -> Result<Leave, Refusal> {
        let first = |v4: bool| {
            let ip = self.addresses.iter().find(|ip| ip.is_ipv4() == v4)?;
            Some(SocketAddr::new(*ip, 0))
        };
        let mut leave = Leave { v4: first(true), v6: first(false), ..Leave::default() };
        if let Some(asked) = asked.map(tcp::canonical) {
            if !self.contains(asked.ip()) {
                return Err(Refusal::NotAllowed);
            }
            *(if asked.is_ipv4() { &mut leave.v4 } else { &mut leave.v6 }) = Some(asked);
        }
        Ok(leave)
    }

    fn contains(&self, ip: IpAddr) -> bool {
        let own = self.addresses.contains(&ip) || self.networks.iter().any(|n| n.contains(ip));
        // No wide network makes the base's own inside an address of the mobile's.
        own && TargetPolicy::default().allows(ip, |_| None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(s: &str) -> SocketAddr {
        s.parse().unwrap()
    }

    fn sources() -> SourceAddresses {
        let addresses = ["10.9.0.7", "2001:db8::7"].map(|s| s.parse().unwrap()).to_vec();
        SourceAddresses::new(
            addresses,
            vec!["10.1.0.0/16".parse().unwrap(), "0.0.0.0/1".parse().unwrap()],
        )
    }

    #[test]
    fn who_asks_for_nothing_leaves_from_the_first_address_of_each_family() {
        let leave = sources().choose(None).unwrap();
        assert_eq!(leave.v4, Some(addr("10.9.0.7:0")));
        assert_eq!(leave.v6, Some(addr("[2001:db8::7]:0")));
        let leave = SourceAddresses::default().choose(None).unwrap();
        assert_eq!((leave.v4, leave.v6), (None, None));
    }

    #[test]
    fn an_address_of_the_mobiles_network_is_granted_with_its_port() {
        let leave = sources().choose(Some(addr("10.1.2.3:5000"))).unwrap();
        assert_eq!(leave.v4, Some(addr("10.1.2.3:5000")));
        assert_eq!(leave.v6, Some(addr("[2001:db8::7]:0")));
        let leave = sources().choose(Some(addr("[::ffff:10.1.2.3]:5000"))).unwrap();
        assert_eq!(leave.v4, Some(addr("10.1.2.3:5000")));
    }

    #[test]
    fn an_address_that_is_not_the_mobiles_is_refused() {
        for asked in ["192.0.2.1:1", "[2001:db8::8]:1", "127.0.0.1:1", "0.0.0.0:0"] {
            let refusal = sources().choose(Some(addr(asked))).unwrap_err();
            assert_eq!(refusal, Refusal::NotAllowed, "{asked}");
        }
        assert!(SourceAddresses::default().choose(Some(addr("10.1.2.3:1"))).is_err());
    }
}
