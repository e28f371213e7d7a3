//! What stands in the kernel, from the start until the end.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use thiserror::Error;

use super::config::{Numbers, TransparentConfig};
use super::listener::Listener;
use super::rules::Plan;
use crate::base::Network;
use crate::netlink::{NetlinkError, Rtnetlink};
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
pub(crate) struct Interception {
    standing: Standing,
    lo: u32,
    /// Who has this socket's name is the only one; given up last.
    _lock: OwnedFd,
}

/// What has been put into the kernel, and is removed when it is dropped.
#[derive(Debug)]
struct Standing(Plan);

impl Interception {
    /// Takes the TCP of a mobile's applications to the listener.
    ///
    /// # Errors
    ///
    /// [`TransparentError`]; then nothing is left in the kernel.
    pub(crate) fn mobile(config: &TransparentConfig) -> Result<(Self, Listener), TransparentError> {
        let lock = lock("mobile")?;
        let listener = Listener::open().map_err(TransparentError::Socket)?;
        let lo = loopback()?;
        let plan = Plan::mobile(config, listener.ports(), lo);
        Ok((Self::install(plan, lo, lock)?, listener))
    }

    /// Takes the answers to what a base sends from mobiles' own addresses.
    ///
    /// # Errors
    ///
    /// [`TransparentError`]; then nothing is left in the kernel.
    pub(crate) fn base(numbers: Numbers, networks: &[Network]) -> Result<Self, TransparentError> {
        let lock = lock("base")?;
        let lo = loopback()?;
        Self::install(Plan::base(numbers, networks, lo), lo, lock)
    }

    /// Takes the answers for these addresses instead, without a moment in between.
    ///
    /// # Errors
    ///
    /// [`TransparentError`]; then the former addresses are in force.
    pub(crate) fn renew(
        &mut self,
        numbers: Numbers,
        networks: &[Network],
    ) -> Result<(), TransparentError> {
        let plan = Plan::base(numbers, networks, self.lo);
        nft::apply(&plan.ruleset)?;
        self.standing.0 = plan;
        Ok(())
    }

    /// From here on new connections go past lasthop; those that stand stay here.
    pub(crate) fn close(&self) {
        let closed = Rtnetlink::open().map_err(TransparentError::from).and_then(|mut kernel| {
            for rule in &self.standing.0.openers {
                kernel.delete_rule(rule)?;
            }
            Ok(nft::apply(&self.standing.0.closing())?)
        });
        if let Err(error) = closed {
            tracing::debug!(%error, "interception goes on until the end");
        }
    }

    /// Ends as a killed process does: what stands in the kernel stays there.
    #[cfg(test)]
    pub(super) fn die(self) {
        std::mem::forget(self.standing);
    }

    fn install(plan: Plan, lo: u32, lock: OwnedFd) -> Result<Self, TransparentError> {
        remove(&plan)?;
        // Dropped on the way out of a failure.
        let standing = Standing(plan);
        let plan = &standing.0;
        let mut kernel = Rtnetlink::open()?;
        for route in &plan.routes {
            kernel.replace_route(route)?;
        }
        nft::apply(&plan.ruleset)?;
        // Nothing is led away before all is there that takes it.
        for rule in plan.rules.iter().chain(&plan.openers) {
            kernel.add_rule(rule)?;
        }
        Ok(Self { standing, lo, _lock: lock })
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.0) {
            tracing::warn!(%error, "rules are left behind; the next start removes them");
        }
    }
}

/// Removes everything that a process of this role has made, whatever its numbers were.
fn remove(plan: &Plan) -> Result<(), TransparentError> {
    let mut kernel = Rtnetlink::open()?;
    for ipv6 in [false, true] {
        for rule in kernel.rules(ipv6)?.iter().filter(|rule| rule.protocol == plan.protocol) {
            kernel.delete_rule(rule)?;
        }
    }
    let deleted = nft::delete(plan.nft_table);
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

/// How often, and after what pause, a name that is taken is tried again.
const LOCK_TRIES: u32 = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Takes a name that one process in a network namespace can have, and has until it ends.
fn lock(role: &'static str) -> Result<OwnedFd, TransparentError> {
    let name = format!("lasthop transparent {role}");
    let taken = || -> Result<OwnedFd, Errno> {
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
        let kind = SocketType::STREAM;
        let fd = rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        rustix::net::bind(&fd, &address)?;
        Ok(fd)
    };
    // A process that has just ended may have left the name with a child for a moment.
    let patiently = || {
        for _ in 0..LOCK_TRIES {
            match taken() {
                Err(Errno::ADDRINUSE) => std::thread::sleep(LOCK_PAUSE),
                other => return other,
            }
        }
        taken()
    };
    patiently().map_err(|e| match e {
        Errno::ADDRINUSE => TransparentError::Taken(role),
        e => TransparentError::Socket(e.into()),
    })
}
