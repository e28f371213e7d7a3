//! Questions and orders.

use std::net::{IpAddr, SocketAddr};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::address::{
    AddressAttribute, AddressHeader, AddressHeaderFlags, AddressMessage,
};
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteType,
};
use netlink_packet_route::rule::RuleMessage;
use netlink_packet_route::{IpProtocol, RouteNetlinkMessage as Message};

use super::channel::Channel;
use super::{Address, Interface, NetlinkError, Prefix, Route, Rule, family, neighbour};

/// Asks the kernel about interfaces, addresses, routes, rules and proxies, which anybody may, and
/// changes them, which needs CAP_NET_ADMIN. Every call waits for the answer, for at most some
/// seconds.
#[derive(Debug)]
pub struct Rtnetlink {
    channel: Channel,
}

impl Rtnetlink {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// [`NetlinkError::Socket`].
    pub fn open() -> Result<Self, NetlinkError> {
        Ok(Self { channel: Channel::open()? })
    }

    pub(super) fn order(
        &mut self,
        message: Message,
        flags: u16,
        what: impl Fn() -> String,
    ) -> Result<(), NetlinkError> {
        self.channel.order(message, flags, what)
    }

    /// Every interface.
    ///
    /// # Errors
    ///
    /// The kernel's answer is not to be had.
    pub fn interfaces(&mut self) -> Result<Vec<Interface>, NetlinkError> {
        let question = Message::GetLink(LinkMessage::default());
        self.channel.list(
            &question,
            || "list the interfaces".to_owned(),
            |message| match message {
                Message::NewLink(link) => Interface::of(&link),
                _ => None,
            },
        )
    }

    /// The interface of this name.
    ///
    /// # Errors
    ///
    /// [`NetlinkError::NoInterface`], or the kernel's answer is not to be had.
    pub fn interface(&mut self, name: &str) -> Result<Interface, NetlinkError> {
        let found = self.interfaces()?.into_iter().find(|interface| interface.name == name);
        found.ok_or_else(|| NetlinkError::NoInterface(name.to_owned()))
    }

    /// Every address of every interface.
    ///
    /// # Errors
    ///
    /// The kernel's answer is not to be had.
    pub fn addresses(&mut self) -> Result<Vec<Address>, NetlinkError> {
        let question = Message::GetAddress(AddressMessage::default());
        self.channel.list(
            &question,
            || "list the addresses".to_owned(),
            |message| match message {
                Message::NewAddress(address) => Address::of(&address),
                _ => None,
            },
        )
    }

    /// The routes of a family, of one table or of all. Of a route with several next hops the first
    /// is told; kinds of routes that [`Kind`](super::Kind) does not have are left out.
    ///
    /// # Errors
    ///
    /// The kernel's answer is not to be had.
    pub fn routes(&mut self, ipv6: bool, table: Option<u32>) -> Result<Vec<Route>, NetlinkError> {
        let mut question = RouteMessage::default();
        question.header.address_family = family(ipv6);
        let question = Message::GetRoute(question);
        self.channel.list(
            &question,
            || "list the routes".to_owned(),
            |message| match message {
                Message::NewRoute(route) => {
                    Route::of(&route).filter(|route| table.is_none_or(|table| table == route.table))
                }
                _ => None,
            },
        )
    }

    /// How many leading bits the route has that keeps TCP to `to` on this host: a route of its own
    /// addresses, or of another kind that leads to no single other host. `None` if it would leave,
    /// or could not be sent at all.
    ///
    /// # Errors
    ///
    /// The kernel was not asked, or its answer is not to be had.
    pub fn kept_here(&mut self, to: SocketAddr) -> Result<Option<u8>, NetlinkError> {
        let Some(route) = self.route_of(to)? else { return Ok(None) };
        let here = matches!(
            route.kind,
            RouteType::Local | RouteType::Broadcast | RouteType::Anycast | RouteType::Multicast
        );
        Ok(here.then_some(route.destination_prefix_length))
    }

    /// Whether TCP to `to` would leave for another host.
    ///
    /// # Errors
    ///
    /// The kernel was not asked, or its answer is not to be had.
    pub fn leaves(&mut self, to: SocketAddr) -> Result<bool, NetlinkError> {
        Ok(self.route_of(to)?.is_some_and(|route| route.kind == RouteType::Unicast))
    }

    /// The route that TCP to `to` would take; `None` if there is none.
    fn route_of(&mut self, to: SocketAddr) -> Result<Option<RouteHeader>, NetlinkError> {
        let ipv6 = to.is_ipv6();
        let mut question = RouteMessage::default();
        question.header.address_family = family(ipv6);
        question.header.destination_prefix_length = if ipv6 { 128 } else { 32 };
        question.header.flags = RouteFlags::FibMatch;
        question.attributes = vec![
            RouteAttribute::Destination(to.ip().into()),
            RouteAttribute::IpProto(IpProtocol::Tcp.into()),
            RouteAttribute::Dport(to.port()),
        ];
        let question = Message::GetRoute(question);
        match self.channel.query(question, || format!("find the way to {to}")) {
            Ok(Message::NewRoute(route)) => Ok(Some(route.header)),
            Ok(_) | Err(NetlinkError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The rules of a family that name a table and ask for no more than a [`Rule`] can.
    ///
    /// # Errors
    ///
    /// The kernel's answer is not to be had.
    pub fn rules(&mut self, ipv6: bool) -> Result<Vec<Rule>, NetlinkError> {
        let mut question = RuleMessage::default();
        question.header.family = family(ipv6);
        let question = Message::GetRule(question);
        self.channel.list(
            &question,
            || "list the rules".to_owned(),
            |message| match message {
                Message::NewRule(rule) => Rule::of(&rule),
                _ => None,
            },
        )
    }

    /// Adds a route.
    ///
    /// # Errors
    ///
    /// One to the same destination with the same metric [is there](NetlinkError::is_present), or
    /// what the kernel said.
    pub fn add_route(&mut self, route: &Route) -> Result<(), NetlinkError> {
        let message = Message::NewRoute(route.message(false));
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        self.channel.order(message, flags, || format!("add the route {route}"))
    }

    /// Adds a route in place of the one to the same destination with the same metric, if there is
    /// one, without a moment in between.
    ///
    /// # Errors
    ///
    /// What the kernel said.
    pub fn replace_route(&mut self, route: &Route) -> Result<(), NetlinkError> {
        let message = Message::NewRoute(route.message(false));
        let flags = NLM_F_CREATE | NLM_F_REPLACE;
        self.channel.order(message, flags, || format!("set the route {route}"))
    }

    /// Deletes a route; what it does not say matches everything. `false` if there was none.
    ///
    /// # Errors
    ///
    /// What the kernel said.
    pub fn delete_route(&mut self, route: &Route) -> Result<bool, NetlinkError> {
        let message = Message::DelRoute(route.message(true));
        was_there(self.channel.order(message, 0, || format!("delete the route {route}")))
    }

    /// Adds a rule. `false` if the same was there already.
    ///
    /// # Errors
    ///
    /// What the kernel said.
    pub fn add_rule(&mut self, rule: &Rule) -> Result<bool, NetlinkError> {
        let message = Message::NewRule(rule.message());
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        was_new(self.channel.order(message, flags, || format!("add the {rule}")))
    }

    /// Deletes a rule. `false` if there was none.
    ///
    /// # Errors
    ///
    /// What the kernel said.
    pub fn delete_rule(&mut self, rule: &Rule) -> Result<bool, NetlinkError> {
        let message = Message::DelRule(rule.message());
        was_there(self.channel.order(message, 0, || format!("delete the {rule}")))
    }

    /// Lets this host answer for `ip` on the interface (ARP, or neighbour discovery for IPv6, for
    /// which `net.ipv6.conf.INTERFACE.proxy_ndp` must be set). One that is there stays.
    ///
    /// # Errors
    ///
    /// What the kernel said.
    pub fn add_proxy(&mut self, interface: u32, ip: IpAddr) -> Result<(), NetlinkError> {
        let message = Message::NewNeighbour(neighbour::message(interface, ip));
        let flags = NLM_F_CREATE | NLM_F_REPLACE;
        self.channel.order(message, flags, || format!("answer for {ip} on interface {interface}"))
    }

    /// Ends what [`add_proxy`](Self::add_proxy) began. `false` if it had not.
    ///
    /// # Errors
    ///
    /// What the kernel said.
    pub fn delete_proxy(&mut self, interface: u32, ip: IpAddr) -> Result<bool, NetlinkError> {
        let message = Message::DelNeighbour(neighbour::message(interface, ip));
        was_there(
            self.channel
                .order(message, 0, || format!("stop to answer for {ip} on interface {interface}")),
        )
    }

    /// The interfaces and addresses for which this host answers in another's place.
    ///
    /// # Errors
    ///
    /// The kernel's answer is not to be had.
    pub fn proxies(&mut self) -> Result<Vec<(u32, IpAddr)>, NetlinkError> {
        let question = Message::GetNeighbour(neighbour::question());
        self.channel.list(
            &question,
            || "list the proxies".to_owned(),
            |message| match message {
                Message::NewNeighbour(neighbour) => neighbour::named(&neighbour),
                _ => None,
            },
        )
    }

    /// Gives the interface an address, an IPv6 one without asking the neighbours first. `false` if
    /// it had it already.
    ///
    /// # Errors
    ///
    /// What the kernel said.
    pub fn add_address(&mut self, interface: u32, address: Prefix) -> Result<bool, NetlinkError> {
        let message = Message::NewAddress(address_message(interface, address));
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        let (ip, length) = address;
        was_new(self.channel.order(message, flags, || {
            format!("give interface {interface} the address {ip}/{length}")
        }))
    }

    /// Takes an address from the interface. `false` if it did not have it.
    ///
    /// # Errors
    ///
    /// What the kernel said.
    pub fn delete_address(
        &mut self,
        interface: u32,
        address: Prefix,
    ) -> Result<bool, NetlinkError> {
        let message = Message::DelAddress(address_message(interface, address));
        let (ip, length) = address;
        was_there(self.channel.order(message, 0, || {
            format!("take the address {ip}/{length} from interface {interface}")
        }))
    }
}

fn address_message(interface: u32, (ip, length): Prefix) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header = AddressHeader {
        family: family(ip.is_ipv6()),
        prefix_len: length,
        flags: if ip.is_ipv6() { AddressHeaderFlags::Nodad } else { AddressHeaderFlags::empty() },
        index: interface,
        ..AddressHeader::default()
    };
    message.attributes = vec![AddressAttribute::Local(ip), AddressAttribute::Address(ip)];
    message
}

fn was_there(result: Result<(), NetlinkError>) -> Result<bool, NetlinkError> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.is_absent() => Ok(false),
        Err(error) => Err(error),
    }
}

pub(super) fn was_new(result: Result<(), NetlinkError>) -> Result<bool, NetlinkError> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.is_present() => Ok(false),
        Err(error) => Err(error),
    }
}
