//! The state of the networks below, from the kernel and the operator.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use lasthop_kernel::netlink::{Monitor, NetworkEvent};
use lasthop_kernel::reactor::Reactor;
use lasthop_kernel::turn::Source;

use crate::packets::{OWN, client};

/// What has changed.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct NetworkChanges {
    /// Packets may take another way, or leave from another address.
    pub(super) path: bool,
    /// They are routed elsewhere.
    pub(super) route: bool,
    /// Addresses that are no longer ours.
    pub(super) lost: Vec<IpAddr>,
}

impl NetworkChanges {
    fn add(&mut self, event: NetworkEvent) {
        self.path = true;
        match event {
            NetworkEvent::Lost { ip, .. } => self.lost.push(ip),
            NetworkEvent::Default { .. } => self.route = true,
            _ => {}
        }
    }
}

/// Where an interface is: what may change below a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// There is one of its name.
    exists: bool,
    /// Its number; `None` if it carries nothing.
    index: Option<u32>,
    addresses: Vec<IpAddr>,
}

impl Place {
    /// Nothing leaves by it.
    pub(super) fn is_down(&self) -> bool {
        self.index.is_none()
    }
}

/// The networks below.
pub(super) struct Network {
    /// `None` where the kernel reports nothing: then only the operator does.
    monitor: Option<Monitor>,
    /// There may be more to read.
    ready: bool,
    /// Interfaces that the operator says are down.
    down: BTreeSet<String>,
}

impl Network {
    /// Nothing is watched yet.
    pub(super) fn new() -> Self {
        Self { monitor: None, ready: false, down: BTreeSet::new() }
    }

    /// Opens the monitor; the reactor reports its socket as `source`.
    pub(super) fn watch(
        &mut self,
        reactor: &mut Reactor<Source>,
        source: Source,
    ) -> io::Result<()> {
        self.monitor =
            reactor.add_optional(Monitor::open(), source, "watch interfaces and addresses")?;
        Ok(())
    }

    /// The monitor's socket is readable.
    pub(super) fn handle_ready(&mut self) {
        self.ready = true;
    }

    /// Whether [`poll`](Self::poll) has something to do.
    pub(super) fn is_ready(&self) -> bool {
        self.ready
    }

    /// What has changed since the last time.
    pub(super) fn poll(&mut self) -> NetworkChanges {
        let mut changes = NetworkChanges::default();
        let Some(monitor) = self.monitor.as_mut().filter(|_| self.ready) else { return changes };
        self.ready = monitor.handle_ready();
        while let Some(event) = monitor.poll_event() {
            tracing::debug!(?event, "the network has changed");
            changes.add(event);
        }
        changes
    }

    /// Whether an interface carries packets; `None` if nobody knows.
    pub(super) fn carries(&self, interface: &str) -> Option<bool> {
        if self.down.contains(interface) {
            return Some(false);
        }
        let monitor = self.monitor.as_ref()?;
        let known = monitor.interfaces().find(|i| i.name == interface);
        Some(known.is_some_and(lasthop_kernel::netlink::Interface::works))
    }

    /// The name of a host at this end, for its share of the hop.
    pub(super) fn client(&self, ip: IpAddr) -> u32 {
        let (ip, monitor) = (ip.to_canonical(), self.monitor.as_ref());
        let is_own = ip.is_loopback()
            || monitor.is_some_and(|monitor| {
                monitor.interfaces().any(|i| monitor.addresses(i.index).any(|own| own == ip))
            });
        if is_own { OWN } else { client(ip) }
    }

    /// The number of an interface that carries packets.
    pub(super) fn index(&self, interface: &str) -> Option<u32> {
        let mut interfaces =
            self.monitor.as_ref().filter(|_| !self.down.contains(interface))?.interfaces();
        Some(interfaces.find(|i| i.name == interface && i.works())?.index)
    }

    /// The names of interfaces that have a default route, each once.
    pub(super) fn outlets(&self) -> Vec<String> {
        let routes = self.monitor.iter().flat_map(Monitor::default_routes);
        let mut names: Vec<String> = Vec::new();
        for name in routes.filter_map(|route| route.interface.as_ref()) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        names
    }

    /// Where an interface is.
    pub(super) fn place(&self, interface: &str) -> Place {
        let index = self.index(interface);
        let mut interfaces = self.monitor.iter().flat_map(Monitor::interfaces);
        let exists = interfaces.any(|i| i.name == interface);
        let of = |index| self.monitor.iter().flat_map(move |monitor| monitor.addresses(index));
        Place { exists, index, addresses: index.into_iter().flat_map(of).collect() }
    }

    /// The operator says that an interface is down, or no longer.
    pub(super) fn set_down(&mut self, interface: &str, down: bool) {
        if down {
            self.down.insert(interface.to_owned());
        } else {
            self.down.remove(interface);
        }
    }
}
