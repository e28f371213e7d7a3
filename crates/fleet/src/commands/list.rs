//! Who is of a fleet, and how it is with them.

use std::net::{IpAddr, SocketAddr};

use lasthop_kernel::network::Network;
use serde::Serialize;

use crate::records::{AliveRecord, BaseRecord, Key, MobileRecord, Name, Records};

/// A base, as it is listed.
#[derive(Clone, Debug, Serialize)]
pub struct BaseRow {
    /// `base`.
    pub kind: &'static str,
    /// Its name.
    pub name: Name,
    /// Its public key.
    pub key: Key,
    /// Where it listens for bases.
    pub address: SocketAddr,
    /// Where it serves mobiles.
    pub hop: SocketAddr,
    /// Whether its agent runs.
    pub alive: bool,
    /// Whether its base answers the agent.
    pub ready: bool,
    /// Whether it is to be emptied.
    pub draining: bool,
    /// Since when it runs, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// Its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The mobiles that it serves.
    pub mobiles: u64,
    /// Their connections.
    pub connections: u64,
}

/// A mobile, as it is listed.
#[derive(Clone, Debug, Serialize)]
pub struct MobileRow {
    /// `mobile`.
    pub kind: &'static str,
    /// Its name.
    pub name: Name,
    /// Its public key.
    pub key: Key,
    /// From where its connections leave.
    pub address: Vec<IpAddr>,
    /// Networks behind it.
    pub network: Vec<Network>,
    /// Addresses of packets alone.
    pub tun: Vec<IpAddr>,
    /// What fixed hosts are acknowledged.
    pub acknowledge: &'static str,
    /// The base that serves it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<Name>,
    /// Whether a base serves it.
    pub alive: bool,
    /// Its connections.
    pub connections: u64,
}

/// Everybody of a fleet, by their names.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Bases.
    pub bases: Vec<BaseRow>,
    /// Mobiles.
    pub mobiles: Vec<MobileRow>,
}

impl Listed {
    /// Everybody in these records.
    pub fn of(records: &Records) -> Self {
        let bases = records.bases.values().filter(|b| !records.revoked.contains_key(&b.key));
        let mut mobiles: Vec<&MobileRecord> = records.mobiles.values().collect();
        mobiles.retain(|mobile| !records.revoked.contains_key(&mobile.key));
        mobiles.sort_by(|a, b| a.name.cmp(&b.name));
        Self {
            bases: bases.map(|base| base_row(records, base)).collect(),
            mobiles: mobiles.into_iter().map(|mobile| mobile_row(records, mobile)).collect(),
        }
    }
}

fn base_row(records: &Records, base: &BaseRecord) -> BaseRow {
    let alive = records.alive.get(&base.name);
    let AliveRecord { mobiles, connections, ready, .. } = alive.cloned().unwrap_or_default();
    BaseRow {
        kind: "base",
        name: base.name.clone(),
        key: base.key,
        address: base.peer,
        hop: base.hop,
        alive: alive.is_some(),
        ready,
        draining: records.draining.contains_key(&base.name),
        since: alive.map(|alive| alive.since),
        version: alive.map(|alive| alive.version.as_str().to_owned()),
        mobiles,
        connections,
    }
}

fn mobile_row(records: &Records, mobile: &MobileRecord) -> MobileRow {
    let held = records.held.get(&mobile.key);
    let MobileRecord { name, key, address, network, tun, acknowledge } = mobile.clone();
    MobileRow {
        kind: "mobile",
        name,
        key,
        address,
        network,
        tun,
        acknowledge: acknowledge.name(),
        base: held.map(|held| held.base.clone()),
        alive: held.is_some(),
        connections: held.map_or(0, |held| held.connections),
    }
}
