//! Questions and orders.

use std::net::{IpAddr, SocketAddr};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_sys::protocols::NETLINK_ROUTE;

use super::channel::Channel;
use super::message::Message;
use super::route::{self, Found};
use super::{Address, FAMILY_ANY, Interface, NetlinkError, Route, Rule, neighbour};

// linux/rtnetlink.h
pub(super) const NEW_LINK: u16 = 16;
pub(super) const DELETE_LINK: u16 = 17;
const GET_LINK: u16 = 18;
pub(super) const SET_LINK: u16 = 19;
pub(super) const NEW_ADDRESS: u16 = 20;
pub(super) const DELETE_ADDRESS: u16 = 21;
const GET_ADDRESS: u16 = 22;
pub(super) const NEW_ROUTE: u16 = 24;
pub(super) const DELETE_ROUTE: u16 = 25;
const GET_ROUTE: u16 = 26;
const NEW_NEIGHBOUR: u16 = 28;
const DELETE_NEIGHBOUR: u16 = 29;
const GET_NEIGHBOUR: u16 = 30;
const NEW_RULE: u16 = 32;
const DELETE_RULE: u16 = 33;
const GET_RULE: u16 = 34;

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
        Ok(Self { channel: Channel::open(NETLINK_ROUTE)? })
    }

    pub(super) fn order(
        &mut self,
        message: Message,
        flags: u16,
        what: &dyn Fn() -> String,
    ) -> Result<(), NetlinkError> {
        self.channel.order(message, flags, what)
    }

    /// Asks for a list of messages of one kind.
    fn list<T>(
        &mut self,
        question: &Message,
        kind: u16,
        what: &str,
        each: impl Fn(&Message) -> Option<T>,
    ) -> Result<Vec<T>, NetlinkError> {
        self.channel.list(question, &|| format!("list the {what}"), |message| {
            each(message).filter(|_| message.kind == kind)
        })
    }

    /// Every interface.
    ///
    /// # Errors
    ///
    /// The kernel's answer is not to be had.
    pub fn interfaces(&mut self) -> Result<Vec<Interface>, NetlinkError> {
        // struct ifinfomsg: any family
        let question = Message::new(GET_LINK, &[FAMILY_ANY; 16]);
        self.list(&question, NEW_LINK, "interfaces", Interface::of)
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
        // struct ifaddrmsg: any family
        let question = Message::new(GET_ADDRESS, &[FAMILY_ANY; 8]);
        self.list(&question, NEW_ADDRESS, "addresses", Address::of)
    }

    /// The routes of a family, of one table or of all. Of a route with several next hops the first
    /// is sent; kinds of routes that [`RouteKind`](super::RouteKind) does not have are left out.
    ///
    /// # Errors
    ///
    /// The kernel's answer is not to be had.
    pub fn routes(&mut self, ipv6: bool, table: Option<u32>) -> Result<Vec<Route>, NetlinkError> {
        let wanted = |route: &Route| table.is_none_or(|table| table == route.table);
        self.list(&route::question(GET_ROUTE, ipv6), NEW_ROUTE, "routes", |message| {
            Route::of(message).filter(wanted)
        })
    }

    /// How many leading bits the route has that keeps TCP to `to` on this host: a route of its own
    /// addresses, or of another kind that leads to no single other host. `None` if it would leave,
    /// or could not be sent at all.
    ///
    /// # Errors
    ///
    /// The kernel was not asked, or its answer is not to be had.
    pub fn local_route_prefix(&mut self, to: SocketAddr) -> Result<Option<u8>, NetlinkError> {
        Ok(self.route_of(to)?.filter(Found::is_here).map(|route| route.length))
    }

    /// Whether TCP to `to` would leave for another host.
    ///
    /// # Errors
    ///
    /// The kernel was not asked, or its answer is not to be had.
    pub fn leaves(&mut self, to: SocketAddr) -> Result<bool, NetlinkError> {
        Ok(self.route_of(to)?.is_some_and(|route| route.leaves()))
    }

    /// The route that TCP to `to` would take; `None` if there is none.
    fn route_of(&mut self, to: SocketAddr) -> Result<Option<Found>, NetlinkError> {
        let question = route::way(GET_ROUTE, to);
        match self.channel.query(question, &|| format!("find the way to {to}")) {
            Ok(message) if message.kind == NEW_ROUTE => Ok(Found::of(&message)),
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
        self.list(&Rule::question(GET_RULE, ipv6), NEW_RULE, "rules", Rule::of)
    }

    /// Adds a route in place of the one to the same destination with the same metric, if there is
    /// one, without a moment in between.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn replace_route(&mut self, route: &Route) -> Result<(), NetlinkError> {
        let message = route.message(NEW_ROUTE, false);
        let flags = NLM_F_CREATE | NLM_F_REPLACE;
        self.channel.order(message, flags, &|| format!("set the route {route}"))
    }

    /// Deletes a route; what it does not say matches everything. `false` if there was none.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn delete_route(&mut self, route: &Route) -> Result<bool, NetlinkError> {
        let message = route.message(DELETE_ROUTE, true);
        was_there(self.channel.order(message, 0, &|| format!("delete the route {route}")))
    }

    /// Adds a rule. `false` if the same was there already.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn add_rule(&mut self, rule: &Rule) -> Result<bool, NetlinkError> {
        let message = rule.message(NEW_RULE);
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        was_new(self.channel.order(message, flags, &|| format!("add the {rule}")))
    }

    /// Deletes a rule. `false` if there was none.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn delete_rule(&mut self, rule: &Rule) -> Result<bool, NetlinkError> {
        let message = rule.message(DELETE_RULE);
        was_there(self.channel.order(message, 0, &|| format!("delete the {rule}")))
    }

    /// Lets this host answer for `ip` on the interface (ARP, or neighbour discovery for IPv6, for
    /// which `net.ipv6.conf.INTERFACE.proxy_ndp` must be set). One that is there stays.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn add_proxy(&mut self, interface: u32, ip: IpAddr) -> Result<(), NetlinkError> {
        let message = neighbour::message(NEW_NEIGHBOUR, interface, ip);
        let flags = NLM_F_CREATE | NLM_F_REPLACE;
        self.channel.order(message, flags, &|| format!("answer for {ip} on interface {interface}"))
    }

    /// Ends what [`add_proxy`](Self::add_proxy) began. `false` if it had not.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn delete_proxy(&mut self, interface: u32, ip: IpAddr) -> Result<bool, NetlinkError> {
        let message = neighbour::message(DELETE_NEIGHBOUR, interface, ip);
        was_there(
            self.channel
                .order(message, 0, &|| format!("stop to answer for {ip} on interface {interface}")),
        )
    }

    /// The interfaces and addresses for which this host answers in another's place.
    ///
    /// # Errors
    ///
    /// The kernel's answer is not to be had.
    pub fn proxies(&mut self) -> Result<Vec<(u32, IpAddr)>, NetlinkError> {
        let question = neighbour::question(GET_NEIGHBOUR);
        self.list(&question, NEW_NEIGHBOUR, "proxies", neighbour::named)
    }
}

pub(super) fn was_there(result: Result<(), NetlinkError>) -> Result<bool, NetlinkError> {
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
