//! The kinds of records.

use std::net::{IpAddr, SocketAddr};

use lasthop_daemon::base::Acknowledge;
use lasthop_hop::seal::PresharedKey;
use lasthop_kernel::network::Network;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::names::{Key, Name, Printable};
use super::{RecordError, TICKET_KEYS_MAX};

/// The most networks, or addresses of packets, that a mobile can have.
const LIST_MAX: usize = 64;

/// `settings`: the fleet itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SettingsRecord {
    /// The fleet's name.
    pub name: Name,
    /// When it was made, in seconds since 1970.
    pub created: u64,
}

/// A key under which bases make tickets; its `Debug` form does not show it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TicketKey(pub PresharedKey);

/// `keys/tickets`: the keys under which bases make tickets.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TicketKeys {
    /// The newest key's number; the one before it has the number before.
    pub generation: u64,
    /// The newest first.
    pub keys: Vec<TicketKey>,
}

/// `bases/NAME`: a base that has joined.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BaseRecord {
    /// Its name.
    pub name: Name,
    /// Its public key.
    pub key: Key,
    /// Where it listens for other bases.
    pub peer: SocketAddr,
    /// Where it serves mobiles.
    pub hop: SocketAddr,
    /// Where the wired network reaches it, where that is not the IP of `peer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
    /// Who it is in etcd, where that has users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Printable>,
}

/// What a base knows itself by.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnBase {
    /// Its name in the fleet.
    pub name: Name,
    /// Its public key.
    pub key: Key,
}

/// `alive/NAME`: an agent that runs, for as long as its lease.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct AliveRecord {
    /// Since when its base runs, in seconds since 1970; without a base, since when the agent does.
    pub since: u64,
    /// The base's version, or the agent's.
    pub version: Printable,
    /// Mobiles that it serves.
    pub mobiles: u64,
    /// Their connections.
    pub connections: u64,
    /// Whether it is to be emptied.
    pub draining: bool,
    /// Whether its base answers.
    pub ready: bool,
}

/// `held/KEY`: who serves a mobile, for as long as that base's lease.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HeldRecord {
    /// The base.
    pub base: Name,
    /// The mobile's connections there.
    pub connections: u64,
    /// Since when, in seconds since 1970.
    pub since: u64,
}

/// `mobiles/KEY`: a mobile of the fleet.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MobileRecord {
    /// Its name.
    pub name: Name,
    /// Its public key.
    pub key: Key,
    /// From where its connections leave, at most one of each family.
    #[serde(default)]
    pub address: Vec<IpAddr>,
    /// Networks behind it.
    #[serde(default)]
    pub network: Vec<Network>,
    /// Addresses of packets alone.
    #[serde(default)]
    pub tun: Vec<IpAddr>,
    /// What fixed hosts are acknowledged.
    #[serde(default)]
    pub acknowledge: Acknowledge,
}

/// `revoked/KEY`: a key that nobody serves any more.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RevokedRecord {
    /// When, in seconds since 1970.
    pub when: u64,
    /// Whose it was, where that was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    /// For people.
    #[serde(default)]
    pub why: Printable,
}

/// `draining/NAME`: a base that is to be emptied.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DrainingRecord {
    /// Since when, in seconds since 1970.
    pub when: u64,
}

/// `tokens/ID`: what a token's secret must hash to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TokenRecord {
    /// SHA-256 of the secret, in hexadecimal.
    pub sha256: String,
}

impl Serialize for TicketKey {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.0.to_text().as_str())
    }
}

impl<'de> Deserialize<'de> for TicketKey {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = zeroize::Zeroizing::new(String::deserialize(d)?);
        text.parse().map(Self).map_err(de::Error::custom)
    }
}

fn contradiction(why: String) -> Result<(), RecordError> {
    Err(RecordError::Contradiction(why))
}

impl SettingsRecord {
    pub(super) fn check(&self) -> Result<(), RecordError> {
        Ok(())
    }
}

impl TicketKeys {
    /// The first key of a new fleet.
    pub fn first(key: PresharedKey) -> Self {
        Self { generation: 1, keys: vec![TicketKey(key)] }
    }

    /// With a new key in front. The two before it are still taken, or none.
    #[must_use]
    pub fn rotated(&self, key: PresharedKey, keep: bool) -> Self {
        let before = self.keys.iter().take(if keep { TICKET_KEYS_MAX - 1 } else { 0 });
        let keys = std::iter::once(TicketKey(key)).chain(before.cloned()).collect();
        Self { generation: self.generation.saturating_add(1), keys }
    }

    /// Each key with its number, the newest first.
    pub fn numbered(&self) -> impl Iterator<Item = (u64, &PresharedKey)> {
        self.keys.iter().zip(0..).map(|(key, age)| (self.generation.saturating_sub(age), &key.0))
    }

    pub(super) fn check(&self) -> Result<(), RecordError> {
        let most = u64::try_from(TICKET_KEYS_MAX).unwrap_or(u64::MAX).min(self.generation);
        match u64::try_from(self.keys.len()) {
            Ok(n) if (1..=most).contains(&n) => Ok(()),
            _ => contradiction(format!(
                "generation {} has {} keys, and there may be from 1 to {most}",
                self.generation,
                self.keys.len()
            )),
        }
    }
}

impl BaseRecord {
    /// What its types cannot say.
    ///
    /// # Errors
    ///
    /// An address at which nobody can be reached.
    pub fn check(&self) -> Result<(), RecordError> {
        for (what, at) in [("peer", self.peer), ("hop", self.hop)] {
            if at.port() == 0 || at.ip().is_unspecified() || at.ip().is_multicast() {
                return contradiction(format!("`{what}`: nobody can be reached at {at}"));
            }
        }
        Ok(())
    }
}

impl MobileRecord {
    /// What its types cannot say.
    ///
    /// # Errors
    ///
    /// Two addresses of one family, an address twice, or too many of them.
    pub fn check(&self) -> Result<(), RecordError> {
        for family in [IpAddr::is_ipv4, IpAddr::is_ipv6] {
            if self.address.iter().filter(|ip| family(ip)).count() > 1 {
                return contradiction("`address`: there are two of one family".to_owned());
            }
        }
        if self.network.len() > LIST_MAX || self.tun.len() > LIST_MAX {
            return contradiction(format!("it has more than {LIST_MAX} networks or addresses"));
        }
        let mut all: Vec<IpAddr> = self.own().collect();
        if let Some(bad) = all.iter().find(|ip| ip.is_unspecified() || ip.is_multicast()) {
            return contradiction(format!("{bad} is no host's address"));
        }
        all.sort_unstable();
        match all.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => contradiction(format!("{} stands there twice", pair[0])),
            None => Ok(()),
        }
    }

    /// Its own addresses, which no other mobile may have.
    pub fn own(&self) -> impl Iterator<Item = IpAddr> {
        self.address.iter().chain(&self.tun).copied()
    }

    /// Whether a base need know more of it than its key.
    pub fn has_addresses(&self) -> bool {
        !(self.address.is_empty() && self.network.is_empty() && self.tun.is_empty())
    }

    /// The first of its own addresses that `other` has too.
    pub fn shares_with(&self, other: &Self) -> Option<IpAddr> {
        self.own().find(|ip| other.own().any(|own| own == *ip))
    }
}
