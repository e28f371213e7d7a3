//! From which addresses connections leave a base.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lasthop_hop::seal::PublicKey;
use lasthop_session::Refusal;
use rustix::net::sockopt;

use super::{BaseConfig, Network};
use crate::error::RunError;
use crate::migrate::{Admin, MigrateError};
use crate::transparent::{Exit, Leave, Sources};

/// The privileged helper, which connections that are made and those that move share.
#[derive(Clone, Debug)]
pub(super) struct Helper(Arc<Mutex<Admin>>);

impl Helper {
    /// The helper, for one thing at a time.
    pub(super) fn lock(&self) -> MutexGuard<'_, Admin> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Exit for Helper {
    fn socket(&self, source: SocketAddr) -> io::Result<OwnedFd> {
        let fd = self.lock().socket(source).map_err(io::Error::other)?;
        bound_unread(&fd);
        Ok(fd)
    }
}

/// What the kernel holds unread of a connection that may migrate: it must move along. Twice that is
/// asked for, since the kernel counts its own book-keeping too.
const UNREAD_MAX: usize = 256 * 1024;

/// Bounds what the kernel holds unread of a connection that may migrate.
pub(super) fn bound_unread(fd: impl AsFd) {
    // A socket that refuses still carries bytes.
    let _ = sockopt::set_socket_recv_buffer_size(fd, UNREAD_MAX);
}

/// The addresses of mobiles that have some, and what makes sockets for them.
pub(super) struct Exits {
    helper: Option<Helper>,
    sources: BTreeMap<PublicKey, Sources>,
}

impl Exits {
    /// Asks the helper for what the configuration wants of it. Where it cannot be had, that is said,
    /// and connections leave from the base's own address.
    ///
    /// # Errors
    ///
    /// The helper that the configuration names is not there.
    pub(super) fn open(config: &BaseConfig) -> Result<Self, RunError> {
        let sources = config.mobiles.iter().map(|mobile| {
            (mobile.key, Sources::new(mobile.addresses.clone(), mobile.networks.clone()))
        });
        let none = Self { helper: None, sources: sources.collect() };
        if config.mobiles.is_empty() {
            return Ok(none);
        }
        let addresses: Vec<IpAddr> =
            config.mobiles.iter().flat_map(|m| m.addresses.iter().copied()).collect();
        let networks: Vec<Network> =
            config.mobiles.iter().flat_map(|m| m.networks.iter().copied()).collect();
        let all: Vec<Network> =
            addresses.iter().copied().map(Network::from).chain(networks).collect();
        let path = config.handoff.as_ref().and_then(|handoff| handoff.helper.as_deref());
        let ready = |admin: Result<Admin, MigrateError>| {
            let mut admin = admin?;
            admin.guard(&all)?;
            Ok::<_, MigrateError>(admin)
        };
        let admin = match path {
            Some(path) => {
                ready(Admin::connect(path)).map_err(|e| RunError::Misfit(e.to_string()))?
            }
            None => match ready(Admin::spawn(&all)) {
                Ok(admin) => admin,
                Err(error) => {
                    tracing::warn!(
                        %error,
                        "connections leave from this base's own address, not from their mobiles'"
                    );
                    return Ok(none);
                }
            },
        };
        Ok(Self { helper: Some(Helper(Arc::new(Mutex::new(admin)))), ..none })
    }

    /// The helper, if one is there.
    pub(super) fn helper(&self) -> Option<&Helper> {
        self.helper.as_ref()
    }

    /// From where a connection of `mobile` leaves that asks for `asked`.
    ///
    /// # Errors
    ///
    /// It asks for what is not its own.
    pub(super) fn choose(
        &self,
        mobile: Option<PublicKey>,
        asked: Option<SocketAddr>,
    ) -> Result<Leave, Refusal> {
        let leave = match mobile.and_then(|mobile| self.sources.get(&mobile)) {
            Some(sources) => sources.choose(asked)?,
            None => Sources::default().choose(asked)?,
        };
        Ok(match &self.helper {
            Some(helper) => leave.by(Arc::new(helper.clone())),
            None => Leave::default(),
        })
    }
}
