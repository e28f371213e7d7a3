//! Routes.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use super::attributes::{Attributes, Value};
use super::message::Message;
use super::{PROTOCOL, Prefix, everything, family, prefix};

// linux/rtnetlink.h
const DESTINATION: u16 = 1;
const OUTPUT: u16 = 4;
const GATEWAY: u16 = 5;
const PRIORITY: u16 = 6;
const SOURCE: u16 = 7;
const MULTIPATH: u16 = 9;
const TABLE: u16 = 15;
const IP_PROTOCOL: u16 = 27;
const PORT: u16 = 29;
const SCOPE_UNIVERSE: u8 = 0;
const SCOPE_LINK: u8 = 253;
const SCOPE_HOST: u8 = 254;
const SCOPE_NOWHERE: u8 = 255;
const FLAG_DEAD: u32 = 1;
const FLAG_CLONED: u32 = 1 << 9;
const FLAG_FIB_MATCH: u32 = 1 << 13;
const UNICAST: u8 = 1;
const LOCAL: u8 = 2;
const BROADCAST: u8 = 3;
const ANYCAST: u8 = 4;
const MULTICAST: u8 = 5;
const BLACKHOLE: u8 = 6;
const UNREACHABLE: u8 = 7;
const THROW: u8 = 9;

/// The table in which ordinary routes are.
pub const MAIN: u32 = 254;

/// What happens to packets that a route applies to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RouteKind {
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

impl RouteKind {
    fn to_message(self) -> u8 {
        match self {
            Self::Unicast => UNICAST,
            Self::Local => LOCAL,
            Self::Blackhole => BLACKHOLE,
            Self::Unreachable => UNREACHABLE,
            Self::Throw => THROW,
        }
    }

    fn of(kind: u8) -> Option<Self> {
        match kind {
            UNICAST => Some(Self::Unicast),
            LOCAL => Some(Self::Local),
            BLACKHOLE => Some(Self::Blackhole),
            UNREACHABLE => Some(Self::Unreachable),
            THROW => Some(Self::Throw),
            _ => None,
        }
    }
}

/// The fields of struct rtmsg.
struct Fields {
    family: u8,
    /// How many leading bits of the destination count.
    length: u8,
    table: u8,
    protocol: u8,
    scope: u8,
    kind: u8,
    flags: u32,
}

impl Fields {
    /// Those of a question.
    fn asking(ipv6: bool, length: u8, flags: u32) -> Self {
        Self { family: family(ipv6), length, table: 0, protocol: 0, scope: 0, kind: 0, flags }
    }

    fn message(&self, kind: u16) -> Message {
        let [a, b, c, d] = self.flags.to_ne_bytes();
        let Self { family, length, table, protocol, scope, .. } = *self;
        let fields = [family, length, 0, 0, table, protocol, scope, self.kind, a, b, c, d];
        Message::new(kind, &fields)
    }

    fn of(message: &Message) -> Option<(Self, Attributes<'_>)> {
        let (fields, attributes) = message.parts::<12>()?;
        let [family, length, _, _, table, protocol, scope, kind, a, b, c, d] = *fields;
        let flags = u32::from_ne_bytes([a, b, c, d]);
        Some((Self { family, length, table, protocol, scope, kind, flags }, attributes))
    }
}

/// The message that asks for all routes of a family.
pub(super) fn question(kind: u16, ipv6: bool) -> Message {
    Fields::asking(ipv6, 0, 0).message(kind)
}

/// The message that asks which route TCP to `to` would take.
pub(super) fn way(kind: u16, to: SocketAddr) -> Message {
    let ipv6 = to.is_ipv6();
    Fields::asking(ipv6, if ipv6 { 128 } else { 32 }, FLAG_FIB_MATCH)
        .message(kind)
        .with_ip(DESTINATION, to.ip())
        .with(IP_PROTOCOL, &[libc::IPPROTO_TCP as u8])
        .with(PORT, &to.port().to_be_bytes())
}

/// A route that was found for a destination.
pub(super) struct Found {
    /// How many leading bits of the destination it is for.
    pub(super) length: u8,
    kind: u8,
}

impl Found {
    pub(super) fn of(message: &Message) -> Option<Self> {
        let (Fields { length, kind, .. }, _) = Fields::of(message)?;
        Some(Self { length, kind })
    }

    /// Whether it leads to another host.
    pub(super) fn leaves(&self) -> bool {
        self.kind == UNICAST
    }

    /// Whether packets along it stay on this host, or go to no single other one.
    pub(super) fn is_here(&self) -> bool {
        matches!(self.kind, LOCAL | BROADCAST | ANYCAST | MULTICAST)
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
    pub kind: RouteKind,
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
            kind: RouteKind::Unicast,
            via: None,
            interface: None,
            source: None,
            metric: None,
            protocol: PROTOCOL,
        }
    }

    /// The message that adds it, or deletes it.
    pub(super) fn message(&self, kind: u16, delete: bool) -> Message {
        let (ip, length) = self.to;
        let fields = Fields {
            family: family(ip.is_ipv6()),
            length,
            table: 0,
            protocol: self.protocol,
            scope: match (delete, self.kind, self.via) {
                // It stands for any.
                (true, ..) => SCOPE_NOWHERE,
                (_, RouteKind::Local, _) => SCOPE_HOST,
                (_, RouteKind::Unicast, None) => SCOPE_LINK,
                _ => SCOPE_UNIVERSE,
            },
            kind: self.kind.to_message(),
            flags: 0,
        };
        fields
            .message(kind)
            .with_some((length > 0).then_some(ip), |message, ip| message.with_ip(DESTINATION, ip))
            .with_u32(TABLE, self.table)
            .with_some(self.via, |message, ip| message.with_ip(GATEWAY, ip))
            .with_some(self.interface, |message, index| message.with_u32(OUTPUT, index))
            .with_some(self.source, |message, ip| message.with_ip(SOURCE, ip))
            .with_some(self.metric, |message, metric| message.with_u32(PRIORITY, metric))
    }

    /// What a message says; none if it is more than a [`Route`] can say, or no longer in use.
    pub(super) fn of(message: &Message) -> Option<Self> {
        let (fields, attributes) = Fields::of(message)?;
        let ipv6 = fields.family == family(true);
        if !ipv6 && fields.family != family(false) {
            return None;
        }
        if fields.flags & (FLAG_CLONED | FLAG_DEAD) != 0 {
            return None;
        }
        let mut route = Self {
            to: (everything(ipv6).0, fields.length),
            table: fields.table.into(),
            kind: RouteKind::of(fields.kind)?,
            via: None,
            interface: None,
            source: None,
            metric: None,
            protocol: fields.protocol,
        };
        for (kind, value) in attributes {
            match kind {
                DESTINATION => route.to.0 = value.ip()?,
                TABLE => route.table = value.u32()?,
                GATEWAY => route.via = value.ip(),
                OUTPUT => route.interface = value.u32(),
                SOURCE => route.source = value.ip(),
                PRIORITY => route.metric = value.u32(),
                // The first of several next hops stands for all.
                MULTIPATH => (route.interface, route.via) = first_hop(value)?,
                _ => {}
            }
        }
        route.to = prefix(ipv6, route.to)?;
        Some(route)
    }

    /// Whether a message is about a route to everywhere.
    pub(super) fn is_default(message: &Message) -> bool {
        Fields::of(message).is_some_and(|(fields, _)| fields.length == 0)
    }
}

/// The interface and the gateway of the first of several next hops.
fn first_hop(hops: Value<'_>) -> Option<(Option<u32>, Option<IpAddr>)> {
    // struct rtnexthop: its length with attributes, flags, weight, interface
    let [a, b, _, _, e, f, g, h] = *hops.0.first_chunk()?;
    let attributes = hops.0.get(8..usize::from(u16::from_ne_bytes([a, b])))?;
    let via = Attributes(attributes).find(GATEWAY).and_then(Value::ip);
    Some((Some(u32::from_ne_bytes([e, f, g, h])), via))
}

/// As `ip route` would say it, but for the interface, which is told by number.
impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            RouteKind::Unicast => "",
            RouteKind::Local => "local ",
            RouteKind::Blackhole => "blackhole ",
            RouteKind::Unreachable => "unreachable ",
            RouteKind::Throw => "throw ",
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

#[cfg(test)]
mod tests {
    use super::super::attributes::attributes;
    use super::*;

    /// Of a route with several next hops the first counts, and one that is cut off is none.
    #[test]
    fn the_first_of_several_next_hops_is_reported() {
        let hop = |index: u32, gateway: [u8; 4]| {
            let attributes = attributes(&[(GATEWAY, &gateway)]);
            let length = (8 + attributes.len()) as u16;
            [&length.to_ne_bytes()[..], &[0, 0], &index.to_ne_bytes(), &attributes].concat()
        };
        let hops = [hop(7, [10, 0, 0, 1]), hop(8, [10, 0, 0, 2])].concat();
        let route = |hops: &[u8]| {
            let fields = Fields { kind: UNICAST, table: 254, ..Fields::asking(false, 24, 0) };
            let to = fields.message(24).with_ip(DESTINATION, [10, 1, 0, 0].into());
            Route::of(&to.with(MULTIPATH, hops))
        };
        let told = route(&hops).unwrap();
        assert_eq!(told.to, ([10, 1, 0, 0].into(), 24));
        assert_eq!((told.interface, told.via), (Some(7), Some([10, 0, 0, 1].into())));
        for length in 0..16 {
            assert_eq!(route(&hops[..length]), None, "{length}");
        }
    }
}
