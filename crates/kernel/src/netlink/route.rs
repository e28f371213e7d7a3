//! Routes.

use std::fmt;
use std::net::IpAddr;

use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteScope,
    RouteType,
};

use super::{PROTOCOL, Prefix, everything, family};

/// The table in which ordinary routes are.
pub const MAIN: u32 = 254;

/// What happens to packets that a route applies to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// They are sent on.
    Unicast,
    /// They are taken as if they were this host's own, as a transparent proxy needs it.
    Local,
    /// They vanish.
    Blackhole,
    /// They are refused.
    Unreachable,
    /// They are routed as if this table had no route for them.
    Throw,
}

impl Kind {
    fn to_message(self) -> RouteType {
        match self {
            Self::Unicast => RouteType::Unicast,
            Self::Local => RouteType::Local,
            Self::Blackhole => RouteType::BlackHole,
            Self::Unreachable => RouteType::Unreachable,
            Self::Throw => RouteType::Throw,
        }
    }

    fn of(kind: RouteType) -> Option<Self> {
        match kind {
            RouteType::Unicast => Some(Self::Unicast),
            RouteType::Local => Some(Self::Local),
            RouteType::BlackHole => Some(Self::Blackhole),
            RouteType::Unreachable => Some(Self::Unreachable),
            RouteType::Throw => Some(Self::Throw),
            _ => None,
        }
    }
}

/// A route with at most one next hop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// Where it leads.
    pub to: Prefix,
    /// The table that it is in.
    pub table: u32,
    /// What happens to packets.
    pub kind: Kind,
    /// The gateway, of the same family.
    pub via: Option<IpAddr>,
    /// The number of the interface.
    pub interface: Option<u32>,
    /// The address that this host takes for what it sends along it.
    pub source: Option<IpAddr>,
    /// The less, the better.
    pub metric: Option<u32>,
    /// Who made it.
    pub protocol: u8,
}

impl Route {
    /// A route to `to` in the [main](MAIN) table, made by [lasthop](PROTOCOL), with nothing else
    /// said yet: `Route { via: Some(gateway), ..Route::to(prefix) }`.
    pub fn to(to: Prefix) -> Self {
        Self {
            to,
            table: MAIN,
            kind: Kind::Unicast,
            via: None,
            interface: None,
            source: None,
            metric: None,
            protocol: PROTOCOL,
        }
    }

    /// The message that adds it, or deletes it.
    pub(super) fn message(&self, delete: bool) -> RouteMessage {
        let (ip, length) = self.to;
        let mut message = RouteMessage::default();
        message.header = RouteHeader {
            address_family: family(ip.is_ipv6()),
            destination_prefix_length: length,
            protocol: RouteProtocol::from(self.protocol),
            scope: match (delete, self.kind, self.via) {
                // It stands for any.
                (true, ..) => RouteScope::NoWhere,
                (_, Kind::Local, _) => RouteScope::Host,
                (_, Kind::Unicast, None) => RouteScope::Link,
                _ => RouteScope::Universe,
            },
            kind: self.kind.to_message(),
            ..RouteHeader::default()
        };
        let attributes = [
            (length > 0).then(|| RouteAttribute::Destination(ip.into())),
            Some(RouteAttribute::Table(self.table)),
            self.via.map(|ip| RouteAttribute::Gateway(ip.into())),
            self.interface.map(RouteAttribute::Oif),
            self.source.map(|ip| RouteAttribute::PrefSource(ip.into())),
            self.metric.map(RouteAttribute::Priority),
        ];
        message.attributes = attributes.into_iter().flatten().collect();
        message
    }

    /// What a message says; none if it is more than a [`Route`] can say, or no longer in use.
    pub(super) fn of(message: &RouteMessage) -> Option<Self> {
        let header = &message.header;
        let ipv6 = header.address_family == family(true);
        if !ipv6 && header.address_family != family(false) {
            return None;
        }
        if header.flags.intersects(RouteFlags::Cloned | RouteFlags::Dead) {
            return None;
        }
        let mut route = Self {
            to: (everything(ipv6).0, header.destination_prefix_length),
            table: header.table.into(),
            kind: Kind::of(header.kind)?,
            via: None,
            interface: None,
            source: None,
            metric: None,
            protocol: header.protocol.into(),
        };
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Destination(ip) => route.to.0 = address(ip)?,
                RouteAttribute::Table(table) => route.table = *table,
                RouteAttribute::Gateway(ip) => route.via = address(ip),
                RouteAttribute::Oif(index) => route.interface = Some(*index),
                RouteAttribute::PrefSource(ip) => route.source = address(ip),
                RouteAttribute::Priority(metric) => route.metric = Some(*metric),
                // The first of several next hops stands for all.
                RouteAttribute::MultiPath(hops) => {
                    let hop = hops.first()?;
                    route.interface = Some(hop.interface_index);
                    route.via = hop.attributes.iter().find_map(|attribute| match attribute {
                        RouteAttribute::Gateway(ip) => address(ip),
                        _ => None,
                    });
                }
                _ => {}
            }
        }
        Some(route)
    }
}

fn address(ip: &RouteAddress) -> Option<IpAddr> {
    match ip {
        RouteAddress::Inet(ip) => Some((*ip).into()),
        RouteAddress::Inet6(ip) => Some((*ip).into()),
        _ => None,
    }
}

/// As `ip route` would say it, but for the interface, which is told by number.
impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Unicast => "",
            Kind::Local => "local ",
            Kind::Blackhole => "blackhole ",
            Kind::Unreachable => "unreachable ",
            Kind::Throw => "throw ",
        };
        write!(f, "{kind}{}/{}", self.to.0, self.to.1)?;
        if let Some(via) = self.via {
            write!(f, " via {via}")?;
        }
        if let Some(index) = self.interface {
            write!(f, " on interface {index}")?;
        }
        if self.table != MAIN {
            write!(f, " in table {}", self.table)?;
        }
        Ok(())
    }
}
