//! Where a base may connect to: the operator's rules, and the host's own addresses by the kernel's routes.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use lasthop_kernel::netlink::Rtnetlink;
use lasthop_kernel::tcp;

use super::{BaseConfig, TargetPolicy};
use crate::dial::Gate;
use crate::error::RunError;

/// Judges targets. The kernel is queried for each at the moment when it is dialled, by the very
/// addresses and routes that will lead its packets: what is known from before may be out of date.
#[derive(Debug)]
pub(super) struct Targets {
    policy: TargetPolicy,
    /// Where this base serves fixed hosts: mobiles are served there too (MHP-7).
    published_ports: BTreeSet<(u16, IpAddr)>,
    kernel: Mutex<Rtnetlink>,
}

impl Targets {
    /// # Errors
    ///
    /// The kernel cannot be asked.
    pub(super) fn open(config: &BaseConfig) -> Result<Self, RunError> {
        let kernel = Rtnetlink::open().map_err(|e| RunError::Misfit(e.to_string()))?;
        Ok(Self {
            policy: config.targets.clone(),
            published_ports: config.publish.iter().map(|rule| door(rule.listen)).collect(),
            kernel: Mutex::new(kernel),
        })
    }

    /// How many leading bits the route has that keeps packets to `ip` here. What nobody can tell is
    /// taken for the base itself.
    fn own(&self, ip: IpAddr, port: u16) -> Option<u8> {
        let to = SocketAddr::new(ip, port);
        let mut kernel = self.kernel.lock().unwrap_or_else(PoisonError::into_inner);
        kernel.local_route_prefix(to).unwrap_or_else(|error| {
            tracing::warn!(%to, %error, "the target is refused: it may be this base itself");
            Some(u8::MAX)
        })
    }

    fn is_door(&self, to: SocketAddr) -> bool {
        let leads = |ip: IpAddr| self.published_ports.contains(&(to.port(), ip));
        // `[::]` takes IPv4 too.
        leads(to.ip())
            || leads(Ipv6Addr::UNSPECIFIED.into())
            || to.is_ipv4() && leads(Ipv4Addr::UNSPECIFIED.into())
    }
}

fn door(listen: SocketAddr) -> (u16, IpAddr) {
    (listen.port(), listen.ip().to_canonical())
}

impl Gate for Targets {
    fn admits(&self, to: SocketAddr) -> bool {
        let to = tcp::canonical(to);
        let own = |ip| if self.is_door(to) { None } else { self.own(ip, to.port()) };
        self.policy.allows(to.ip(), own)
    }
}
