//! Routes of mobiles' addresses.

use std::collections::BTreeMap;
use std::net::IpAddr;

use lasthop_kernel::netlink::{self, MAIN, NetlinkError, RouteKind, Rtnetlink};
use lasthop_kernel::network::Network;

use super::super::Route;

/// Marks the routes that follow mobiles (`ip route show proto 79`), beside those of interception.
pub(super) const PROTOCOL: u8 = 79;

/// The routes that stand.
#[derive(Debug)]
pub(super) struct Ways {
    standing: BTreeMap<IpAddr, Route>,
}

impl Ways {
    /// Removes what an earlier helper left, but for routes of `ours` that lead to another base:
    /// connections may live on them, and they are ours from here on.
    pub(super) fn new(ours: &[Network]) -> Self {
        let mut ways = Self { standing: BTreeMap::new() };
        if let Err(error) = ways.take_over(ours) {
            tracing::warn!(%error, "cannot remove routes of an earlier helper");
        }
        ways
    }

    fn take_over(&mut self, ours: &[Network]) -> Result<(), NetlinkError> {
        let mut kernel = Rtnetlink::open()?;
        for ipv6 in [false, true] {
            for route in kernel.routes(ipv6, None)? {
                if route.protocol != PROTOCOL {
                    continue;
                }
                match route.via {
                    Some(via) if ours.iter().any(|n| n.contains(route.to.0)) => {
                        self.standing.insert(route.to.0, Route::Via(via));
                    }
                    _ => {
                        kernel.delete_route(&route)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Addresses of which another router gets what is for them.
    pub(super) fn leading_away(&self) -> impl Iterator<Item = IpAddr> {
        let away = self.standing.iter().filter(|(_, route)| matches!(route, Route::Via(_)));
        away.map(|(address, _)| *address)
    }

    /// Puts a route in place of the one that was there.
    pub(super) fn route(&mut self, address: IpAddr, route: &Route) -> Result<(), String> {
        if let Route::Via(gateway) = route
            && (gateway.is_ipv4() != address.is_ipv4() || !super::super::is_unicast(*gateway))
        {
            return Err(format!("{gateway} is no gateway for {address}"));
        }
        self.set(address, route).map_err(|e| e.to_string())?;
        self.standing.insert(address, route.clone());
        Ok(())
    }

    fn set(&self, address: IpAddr, route: &Route) -> Result<(), NetlinkError> {
        let mut kernel = Rtnetlink::open()?;
        // Of IPv6 one may stand beside another to the same place.
        let replaced = self.standing.get(&address) == Some(route);
        if address.is_ipv6() && !replaced && self.standing.contains_key(&address) {
            kernel.delete_route(&plain(address))?;
        }
        let made = match route {
            Route::Via(gateway) => netlink::Route { via: Some(*gateway), ..plain(address) },
            Route::OnLink(name) => {
                let interface = Some(kernel.interface(name)?.index);
                netlink::Route { interface, ..plain(address) }
            }
            Route::Local => {
                let lo = kernel.interfaces()?.into_iter().find(|interface| interface.loopback);
                let lo = lo.ok_or_else(|| NetlinkError::NoInterface("lo".into()))?;
                netlink::Route {
                    kind: RouteKind::Local,
                    interface: Some(lo.index),
                    ..plain(address)
                }
            }
        };
        kernel.replace_route(&made)
    }

    /// Removes the route, if there is one.
    pub(super) fn unroute(&mut self, address: IpAddr) -> Result<(), String> {
        let Some(route) = self.standing.get(&address) else { return Ok(()) };
        let kind = if *route == Route::Local { RouteKind::Local } else { RouteKind::Unicast };
        let route = netlink::Route { kind, ..plain(address) };
        let deleted = Rtnetlink::open().and_then(|mut kernel| kernel.delete_route(&route));
        deleted.map_err(|e| e.to_string())?;
        self.standing.remove(&address);
        Ok(())
    }
}

/// Ours to this host, whatever it says else.
fn plain(address: IpAddr) -> netlink::Route {
    let length = if address.is_ipv4() { 32 } else { 128 };
    netlink::Route { table: MAIN, protocol: PROTOCOL, ..netlink::Route::to((address, length)) }
}
