//! Notifications of changes.

use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::NetlinkPayload;
use netlink_sys::protocols::NETLINK_ROUTE;
use std::net::IpAddr;

use super::channel::{Channel, Read};
use super::message::Message;
use super::picture::Picture;
use super::requests::{
    DELETE_ADDRESS, DELETE_LINK, DELETE_ROUTE, NEW_ADDRESS, NEW_LINK, NEW_ROUTE,
};
use super::{
    Address, DefaultRoute, Interface, MAIN, NetlinkError, NetworkEvent, Route, RouteKind, Rtnetlink,
};

/// The kernel's multicast groups (`RTNLGRP_*`): links, and addresses and routes of both families.
const GROUPS: [u32; 5] = [1, 5, 7, 9, 11];
/// How many reads one turn makes; what is left is read in the next.
const READS_MAX: usize = 256;

/// Watches interfaces, addresses and default routes.
///
/// It becomes readable when the kernel has something to tell; then
/// [`handle_ready`](Self::handle_ready), and [`poll_event`](Self::poll_event) until there is
/// nothing more. However much happens in between, it holds two pictures of the network and no queue,
/// and tells how they differ.
pub struct Monitor {
    channel: Channel,
    requests: Rtnetlink,
    now: Picture,
    told: Picture,
    /// Something may differ.
    changed: bool,
    /// The kernel has dropped news: the picture is to be taken anew.
    missed: bool,
    /// Default routes may have changed.
    rerouted: bool,
    overruns: u64,
}

impl Monitor {
    /// Watches the calling thread's network namespace. What is there already is known and no event.
    ///
    /// # Errors
    ///
    /// There is no netlink socket to be had, or the kernel's answers are not.
    pub fn open() -> Result<Self, NetlinkError> {
        // What changes while the picture is taken waits in the channel.
        let channel = Channel::listening(NETLINK_ROUTE, &GROUPS)?;
        let mut monitor = Self {
            channel,
            requests: Rtnetlink::open()?,
            now: Picture::default(),
            told: Picture::default(),
            changed: false,
            missed: true,
            rerouted: true,
            overruns: 0,
        };
        monitor.request_dump()?;
        monitor.told = monitor.now.clone();
        Ok(monitor)
    }

    /// The interfaces, as they are known at this moment.
    pub fn interfaces(&self) -> impl Iterator<Item = &Interface> {
        self.now.interfaces()
    }

    /// The addresses of an interface that can be used.
    pub fn addresses(&self, interface: u32) -> impl Iterator<Item = IpAddr> {
        self.now.addresses(interface)
    }

    /// Where packets of a family go that are routed nowhere else.
    pub fn default_route(&self, ipv6: bool) -> Option<&DefaultRoute> {
        self.now.default_route(ipv6)
    }

    /// All ways of both families for packets that are routed nowhere else, of each those first that count first.
    pub fn default_routes(&self) -> impl Iterator<Item = &DefaultRoute> {
        self.now.default_routes()
    }

    /// Reads what the kernel has to tell. `true` if there may be more: then it wants to be called
    /// again without waiting.
    pub fn handle_ready(&mut self) -> bool {
        let more = self.read_all();
        if let Err(error) = self.request_dump() {
            // The next news is another occasion.
            tracing::warn!(%error, "cannot read network changes");
        }
        more
    }

    fn read_all(&mut self) -> bool {
        for _ in 0..READS_MAX {
            let (now, rerouted) = (&mut self.now, &mut self.rerouted);
            let read = self.channel.read(&mut |message| {
                if let NetlinkPayload::InnerMessage(message) = message.payload {
                    take_note(now, rerouted, &message);
                }
            });
            self.changed = true;
            match read {
                Ok(Read::Some(true)) => {}
                Ok(Read::Some(false)) => self.missed = true,
                Ok(Read::Overrun) => {
                    self.overruns += 1;
                    self.missed = true;
                    tracing::debug!(overruns = self.overruns, "netlink events lost");
                }
                Ok(Read::Empty) => return false,
                Err(error) => {
                    tracing::warn!(%error, "cannot watch the network any more");
                    return false;
                }
            }
        }
        true
    }

    /// Requests what was not notified.
    fn request_dump(&mut self) -> Result<(), NetlinkError> {
        if self.missed {
            let interfaces = self.requests.interfaces()?;
            let addresses = self.requests.addresses()?;
            self.now.retake(interfaces, &addresses);
            self.rerouted = true;
            self.missed = false;
        }
        if self.rerouted {
            for ipv6 in [false, true] {
                let routes = self.find_defaults(ipv6)?;
                self.now.set_defaults(ipv6, routes);
            }
            self.rerouted = false;
        }
        Ok(())
    }

    fn find_defaults(&mut self, ipv6: bool) -> Result<Vec<DefaultRoute>, NetlinkError> {
        let routes = self.requests.routes(ipv6, Some(MAIN))?.into_iter();
        let defaults = routes.filter(|route| route.to.1 == 0 && route.kind == RouteKind::Unicast);
        let mut found: Vec<_> = defaults
            .map(|route| DefaultRoute {
                interface: route.interface.and_then(|i| self.now.name(i)).map(str::to_owned),
                via: route.via,
                metric: route.metric.unwrap_or(0),
            })
            .collect();
        found.sort_by_key(|route| route.metric);
        Ok(found)
    }

    /// The next change.
    pub fn poll_event(&mut self) -> Option<NetworkEvent> {
        if !self.changed {
            return None;
        }
        let event = self.told.step(&self.now);
        self.changed = event.is_some();
        event
    }

    /// Lets the kernel hold little for it, so that it misses what comes at once.
    #[cfg(test)]
    pub(super) fn with_little_room(self) -> Self {
        self.channel.set_buffer(1);
        self
    }

    /// How often the kernel dropped news.
    #[cfg(test)]
    pub(super) fn overruns(&self) -> u64 {
        self.overruns
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

pub(super) fn take_note(now: &mut Picture, rerouted: &mut bool, message: &Message) {
    match message.kind {
        NEW_LINK => {
            if let Some(interface) = Interface::of(message) {
                // The kernel does not tell which IPv4 routes go down with an interface.
                *rerouted = true;
                now.set_interface(interface);
            }
        }
        DELETE_LINK => {
            if let Some(interface) = Interface::of(message) {
                *rerouted = true;
                now.remove_interface(interface.index);
            }
        }
        NEW_ADDRESS => {
            if let Some(address) = Address::of(message) {
                now.set_address(&address);
            }
        }
        DELETE_ADDRESS => {
            if let Some(address) = Address::of(message) {
                // Nor which go with an address.
                *rerouted = true;
                now.remove_address(&address);
            }
        }
        NEW_ROUTE | DELETE_ROUTE => *rerouted |= Route::is_default(message),
        _ => {}
    }
}
