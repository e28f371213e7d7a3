//! What stands in the kernel, from the start until the end.

use std::io;
use std::time::Duration;

use lasthop_wire::mhp::reach::Families;
use thiserror::Error;

use super::config::{Numbers, TransparentConfig};
use super::holding::Holding;
use super::listener::Listener;
use super::rules::{Exceptions, Hold, MOBILE_TABLE, Plan, WAITING_CHAIN};
use crate::insist::insist;
use crate::lock::{Lock, LockError};
use crate::netlink::{NetlinkError, Rtnetlink, add_queue_target};
use crate::network::Network;
use crate::nft::{self, NftError};

/// Why nothing is intercepted. Each is one line that says it all: none has a source beside.
#[derive(Debug, Error)]
pub enum TransparentError {
    /// The packet rules cannot be set.
    #[error("no transparent interception: {0}; {REST}")]
    Nft(NftError),
    /// The routing rules or routes cannot be set.
    #[error("no transparent interception: {0}; {REST}")]
    Netlink(NetlinkError),
    /// Sockets for other hosts' addresses are not to be had.
    #[error(
        "no transparent interception: the kernel refuses sockets for other hosts' addresses \
         ({0}; CAP_NET_ADMIN or root is needed); {REST}"
    )]
    Socket(io::Error),
    /// Another process does it.
    #[error(
        "no transparent interception: another lasthop {0} does it in this network namespace \
         already; {REST}"
    )]
    Taken(&'static str),
    /// Whether another does cannot be found out.
    #[error("no transparent interception: {0}; {REST}")]
    Lock(LockError),
}

/// Why packets do not find their way through a TUN device.
#[derive(Debug, Error)]
pub enum TunnelError {
    /// The packet rules cannot be set.
    #[error("packets cannot be led through the TUN device: {0}")]
    Nft(#[from] NftError),
    /// The routing rules, routes or addresses cannot be set.
    #[error("packets cannot be led through the TUN device: {0}")]
    Netlink(#[from] NetlinkError),
    /// Another process does it, or whether one does cannot be found out.
    #[error("packets cannot be led through the TUN device: {0}")]
    Lock(#[from] LockError),
}

impl From<NftError> for TransparentError {
    fn from(error: NftError) -> Self {
        Self::Nft(error)
    }
}

impl From<NetlinkError> for TransparentError {
    fn from(error: NetlinkError) -> Self {
        Self::Netlink(error)
    }
}

/// What there is without.
const REST: &str = "without it SOCKS5, HTTP CONNECT and `lasthop exec` work as ever";

/// Rules and routes that stand in the kernel. Dropping it removes them; what a process leaves that
/// could not is removed by the next.
#[derive(Debug)]
pub struct Interception {
    standing: Standing,
    /// Whose connections are taken.
    families: Families,
    closed: bool,
    lo: u32,
    /// Who has this is the only one; given up last.
    _lock: Lock,
}

/// What has been put into the kernel, and is removed when it is dropped.
#[derive(Debug)]
pub(super) struct Standing(Plan);

impl Standing {
    /// Puts it there, in place of what an earlier process has left.
    pub(super) fn put<E: From<NftError> + From<NetlinkError>>(plan: Plan) -> Result<Self, E> {
        remove::<E>(&plan)?;
        // Dropped on the way out of a failure.
        let standing = Self(plan);
        let plan = &standing.0;
        let mut kernel = Rtnetlink::open()?;
        for route in &plan.routes {
            kernel.replace_route(route)?;
        }
        if !plan.ruleset.is_empty() {
            nft::apply(&plan.ruleset)?;
        }
        // Nothing is led away before all is there that takes it.
        for rule in plan.rules.iter().chain(&plan.openers).chain(&plan.barriers) {
            kernel.add_rule(rule)?;
        }
        Ok(standing)
    }
}

impl Interception {
    /// Takes the TCP of a mobile's applications to the listener.
    ///
    /// # Errors
    ///
    /// [`TransparentError`]; then nothing is left in the kernel.
    pub fn mobile(config: &TransparentConfig) -> Result<(Self, Listener), TransparentError> {
        let lock = lock("mobile")?;
        let listener = Listener::open().map_err(TransparentError::Socket)?;
        let lo = loopback()?;
        let plan = Plan::mobile(config, listener.ports(), lo, &Hold::Not);
        Ok((Self::install(plan, lo, lock)?, listener))
    }

    /// The same, but SYNs wait until it is said what becomes of them, where the kernel can do that.
    /// Where it cannot, that is reported.
    ///
    /// # Errors
    ///
    /// As [`mobile`](Self::mobile).
    pub fn holding(
        config: &TransparentConfig,
    ) -> Result<(Self, Listener, Option<Holding>), TransparentError> {
        let holding = match Holding::open(config.numbers.mark) {
            Ok(holding) => holding,
            Err(error) => return Self::without_holding(config, &error),
        };
        let lock = lock("mobile")?;
        let listener = Listener::open().map_err(TransparentError::Socket)?;
        let (lo, number) = (loopback()?, holding.number());
        let plan = |hold| Plan::mobile(config, listener.ports(), lo, &hold);
        // What `nft` calls `queue` is a part of its own in the kernel, without which there may yet
        // be the one that iptables has.
        let mut plan_taken = plan(Hold::Queue(number));
        let is_native = nft::check(&plan_taken.ruleset).is_ok();
        if !is_native {
            plan_taken = plan(Hold::Later);
        }
        let interception = Self::install(plan_taken, lo, lock)?;
        if !is_native && let Err(error) = add_queue_target(MOBILE_TABLE, WAITING_CHAIN, number) {
            drop((interception, listener));
            return Self::without_holding(config, &error);
        }
        Ok((interception, listener, Some(holding)))
    }

    fn without_holding(
        config: &TransparentConfig,
        error: &NetlinkError,
    ) -> Result<(Self, Listener, Option<Holding>), TransparentError> {
        let (interception, listener) = Self::mobile(config)?;
        tracing::warn!(
            %error,
            "intercepted connections succeed at once, whatever the base will say: this kernel has \
             no packet queue for nft (nft_queue, or xt_NFQUEUE with nft_compat, and nfnetlink_queue)"
        );
        Ok((interception, listener, None))
    }

    /// Takes the answers to what a base sends from mobiles' own addresses, and drops strays to them
    /// but for the `exceptions`.
    ///
    /// # Errors
    ///
    /// [`TransparentError`]; then nothing is left in the kernel.
    pub fn base(
        numbers: Numbers,
        networks: &[Network],
        exceptions: &Exceptions,
    ) -> Result<Self, TransparentError> {
        let lock = lock("base")?;
        let lo = loopback()?;
        Self::install(Plan::base(numbers, networks, exceptions, lo), lo, lock)
    }

    /// Takes the answers for these addresses instead, without a moment in between.
    ///
    /// # Errors
    ///
    /// [`TransparentError`]; then the former addresses are in force.
    pub fn renew(
        &mut self,
        numbers: Numbers,
        networks: &[Network],
        exceptions: &Exceptions,
    ) -> Result<(), TransparentError> {
        let plan = Plan::base(numbers, networks, exceptions, self.lo);
        nft::apply(&plan.ruleset)?;
        self.standing.0 = plan;
        Ok(())
    }

    /// From here on new connections go past lasthop; those that stand stay here.
    pub fn close(&mut self) {
        self.closed = true;
        let plan = &self.standing.0;
        let closed = Rtnetlink::open().map_err(TransparentError::from).and_then(|mut kernel| {
            for rule in plan.barriers.iter().chain(&plan.openers) {
                kernel.delete_rule(rule)?;
            }
            Ok(nft::apply(&plan.closing())?)
        });
        if let Err(error) = closed {
            tracing::debug!(%error, "cannot stop interception before the end");
        }
    }

    /// From here on new connections of these families are taken, and others find no route: to
    /// applications the host looks like one without them. Those that stand stay here. Whether that
    /// is another thing than before.
    ///
    /// # Errors
    ///
    /// [`TransparentError`]; then some of it may be in force.
    pub fn take_only(&mut self, families: Families) -> Result<bool, TransparentError> {
        if self.closed || families == self.families {
            return Ok(false);
        }
        let plan = &self.standing.0;
        let mut kernel = Rtnetlink::open()?;
        for rule in plan.openers.iter().filter(|rule| !rule.ipv6) {
            if families.ipv4 {
                kernel.add_rule(rule)?;
            } else {
                kernel.delete_rule(rule)?;
            }
        }
        nft::apply(&plan.reaching(families))?;
        self.families = families;
        Ok(true)
    }

    /// Ends as a killed process does: what stands in the kernel stays there.
    #[cfg(test)]
    pub(super) fn abandon(self) {
        std::mem::forget(self.standing);
    }

    fn install(plan: Plan, lo: u32, lock: Lock) -> Result<Self, TransparentError> {
        let standing = Standing::put::<TransparentError>(plan)?;
        Ok(Self { standing, families: Families::ALL, closed: false, lo, _lock: lock })
    }
}

impl Drop for Standing {
    /// Rules that stay take connections to where nobody is.
    fn drop(&mut self) {
        if let Err(error) = insist(|| remove::<TransparentError>(&self.0)) {
            tracing::warn!(%error, "cannot remove rules: the next start removes them");
        }
    }
}

/// Removes everything that a process of this role has made, whatever its numbers were.
fn remove<E: From<NftError> + From<NetlinkError>>(plan: &Plan) -> Result<(), E> {
    let mut kernel = Rtnetlink::open()?;
    for ipv6 in [false, true] {
        for rule in kernel.rules(ipv6)?.iter().filter(|rule| rule.protocol == plan.protocol) {
            kernel.delete_rule(rule)?;
        }
    }
    let deleted = match plan.nft_table {
        "" => Ok(()),
        table => nft::delete(table),
    };
    for ipv6 in [false, true] {
        for route in kernel.routes(ipv6, None)? {
            if route.protocol == plan.protocol {
                kernel.delete_route(&route)?;
            }
        }
    }
    Ok(deleted?)
}

fn loopback() -> Result<u32, TransparentError> {
    let interfaces = Rtnetlink::open()?.interfaces()?;
    let lo = interfaces.iter().find(|interface| interface.loopback);
    Ok(lo.ok_or_else(|| NetlinkError::NoInterface("lo".to_owned()))?.index)
}

/// A process that has just ended may have left its lock with a child for a moment.
const LOCK_PATIENCE: Duration = Duration::from_millis(200);

/// Takes what one process in a network namespace can have, and has until it ends.
fn lock(role: &'static str) -> Result<Lock, TransparentError> {
    Lock::take(&format!("transparent-{role}"), LOCK_PATIENCE).map_err(|error| match error {
        LockError::Taken(_) => TransparentError::Taken(role),
        error => TransparentError::Lock(error),
    })
}
