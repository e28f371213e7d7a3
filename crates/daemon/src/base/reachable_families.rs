//! The address families that this base reaches, which its mobiles ask for.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use lasthop_kernel::netlink::{Monitor, NetlinkError, RouteKind, Rtnetlink};
use lasthop_kernel::network::Network;
use lasthop_kernel::reactor::Reactor;
use lasthop_kernel::turn::Source;
use lasthop_session::{Families, Reach};
use lasthop_units::Time;

use super::policy::INWARD;
use crate::driver::Core;
use crate::hop::Hop;

/// Route changes come in bursts: routes are queried once for all within this time.
const PAUSE: Duration = Duration::from_millis(200);

/// The families that the base reaches, and the mobiles that are notified of changes.
pub(super) struct ReachableFamilies<I> {
    /// `None` where the kernel does not report changes: then the first answer stays.
    monitor: Option<Monitor>,
    /// There may be more to read.
    ready: bool,
    query_at: Option<Time>,
    families: Families,
    subscribers: BTreeSet<I>,
}

impl<I: Copy + Ord> ReachableFamilies<I> {
    /// Nothing is watched yet, and nothing is known.
    pub(super) fn new() -> Self {
        let families = Families { ipv4: true, ipv6: true };
        Self { monitor: None, ready: false, query_at: None, families, subscribers: BTreeSet::new() }
    }

    /// Watches the routes; the kernel's news are `source`'s.
    pub(super) fn watch(
        &mut self,
        reactor: &mut Reactor<Source>,
        source: Source,
    ) -> io::Result<()> {
        self.monitor = reactor.add_optional(Monitor::open(), source, "watch routes")?;
        // The monitor is open: no later change is missed.
        self.families = query_routes();
        Ok(())
    }

    /// The kernel has news.
    pub(super) fn handle_ready(&mut self, now: Time) {
        self.ready = true;
        self.query_at.get_or_insert(now + PAUSE);
    }

    /// When [`advance`](Self::advance) has something to do.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        if self.ready { Some(Time::ZERO) } else { self.query_at }
    }

    /// Notifies a mobile now and whenever the families change.
    pub(super) fn subscribe<H: Hop<Id = I>, W>(&mut self, core: &mut Core<H, W>, id: I) {
        self.subscribers.insert(id);
        self.notify(core, id);
    }

    /// The association is over.
    pub(super) fn remove(&mut self, id: I) {
        self.subscribers.remove(&id);
    }

    /// Queries routes if they have changed, and notifies mobiles. True if something was done.
    pub(super) fn advance<H: Hop<Id = I>, W>(&mut self, core: &mut Core<H, W>) -> bool {
        if let Some(monitor) = self.monitor.as_mut().filter(|_| self.ready) {
            self.ready = monitor.handle_ready();
            while monitor.poll_event().is_some() {}
        }
        if self.query_at.is_none_or(|at| at > core.now) {
            return false;
        }
        self.query_at = None;
        let families = query_routes();
        if families == self.families {
            return false;
        }
        self.families = families;
        let Families { ipv4, ipv6 } = families;
        tracing::info!(ipv4, ipv6, "reachable address families changed");
        for id in self.subscribers.clone() {
            self.notify(core, id);
        }
        true
    }

    fn notify<H: Hop<Id = I>, W>(&mut self, core: &mut Core<H, W>, id: I) {
        let now = core.now;
        let mut told = Vec::new();
        Reach::Told(self.families).encode(&mut told);
        if let Some((session, mut streams)) = core.session(id) {
            // Who has gone asks again when it comes back.
            let _ = session.send_message(now, &mut streams, &told);
        }
    }
}

/// The families for which there are routes. Where routes cannot be read both are taken for reachable:
/// then the attempt to connect shows it.
fn query_routes() -> Families {
    let reaches = |ipv6| {
        Rtnetlink::open().and_then(|mut kernel| reaches(&mut kernel, ipv6)).unwrap_or_else(
            |error| {
                tracing::warn!(%error, "cannot read routes: both address families are taken for reachable");
                true
            },
        )
    };
    Families { ipv4: reaches(false), ipv6: reaches(true) }
}

/// Whether there is a route to other networks than those of a link or of this host. Most often it is
/// the default route, which need not be looked for among a router's many.
fn reaches(kernel: &mut Rtnetlink, ipv6: bool) -> Result<bool, NetlinkError> {
    // For documentation (RFC 5737, RFC 3849): nobody has a route of its own there.
    let anybody: IpAddr = if ipv6 {
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()
    } else {
        Ipv4Addr::new(203, 0, 113, 1).into()
    };
    if kernel.leaves(SocketAddr::new(anybody, 80))? {
        return Ok(true);
    }
    let loopback = kernel.interfaces()?.into_iter().find(|i| i.loopback).map(|i| i.index);
    let is_outward = |ip: IpAddr| !INWARD.iter().any(|net: &Network| net.contains(ip));
    Ok(kernel.routes(ipv6, None)?.iter().any(|route| {
        route.kind == RouteKind::Unicast
            && route.interface.is_none_or(|interface| Some(interface) != loopback)
            && (route.to.1 == 0 || is_outward(route.to.0))
    }))
}
