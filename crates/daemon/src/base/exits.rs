//! From which addresses connections leave a base.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lasthop_hop::seal::PublicKey;
use lasthop_kernel::leave::{Exit, Leave};
use lasthop_kernel::network::Network;
use lasthop_kernel::reactor::{Interest, Reactor, Token};
use lasthop_kernel::turn::Source;
use lasthop_migrate::{Admin, MigrateError};
use lasthop_session::Refusal;
use lasthop_units::{Duration, Time, gather};
use rustix::net::sockopt;

use super::BaseConfig;
use super::source_addresses::SourceAddresses;
use crate::error::RunError;

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
    fn socket(&self, source: SocketAddr) -> io::Result<Option<OwnedFd>> {
        match self.lock().socket(source) {
            Ok(fd) => {
                bound_unread(&fd);
                Ok(Some(fd))
            }
            Err(error) if error.is_gone() => Ok(None),
            Err(MigrateError::Kernel { source, .. }) => Err(source),
            Err(error) => Err(io::Error::other(error)),
        }
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

/// How soon a helper that has gone is looked for again, and how much later each time at most.
const SOON: Duration = Duration::from_millis(200);
const LATE: Duration = Duration::from_secs(1);

/// A helper that has gone.
struct Away {
    /// When it is looked for again.
    next: Time,
    pause: Duration,
    /// The last error that was logged for one that is there and fails.
    said: Option<String>,
}

/// The addresses of mobiles that have some, and what makes sockets for them.
pub(super) struct Exits {
    helper: Option<Helper>,
    /// That the helper's end is watched for.
    watch: Option<Token>,
    /// While the helper is away.
    away: Option<Away>,
    sources: BTreeMap<PublicKey, SourceAddresses>,
}

impl Exits {
    /// Asks the helper for what the configuration wants of it. Where it cannot be had, that is logged,
    /// and connections leave from the base's own address.
    ///
    /// # Errors
    ///
    /// The helper that the configuration names is not there.
    pub(super) fn open(config: &BaseConfig) -> Result<Self, RunError> {
        let sources = config.mobiles.iter().map(|mobile| {
            (mobile.key, SourceAddresses::new(mobile.addresses.clone(), mobile.networks.clone()))
        });
        let none = Self { helper: None, watch: None, away: None, sources: gather(sources) };
        let addresses: Vec<IpAddr> =
            config.mobiles.iter().flat_map(|m| m.addresses.iter().copied()).collect();
        let networks: Vec<Network> =
            config.mobiles.iter().flat_map(|m| m.networks.iter().copied()).collect();
        let all: Vec<Network> =
            addresses.iter().copied().map(Network::from).chain(networks).collect();
        if all.is_empty() {
            return Ok(none);
        }
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

    /// Connections leave from the base's own address from here on.
    pub(super) fn disable(&mut self) {
        self.helper = None;
    }

    /// The helper, if one is there.
    pub(super) fn helper(&self) -> Option<&Helper> {
        self.helper.as_ref()
    }

    /// Watches for the helper's end.
    pub(super) fn watch(&mut self, reactor: &mut Reactor<Source>) -> io::Result<()> {
        let Some(helper) = &self.helper else { return Ok(()) };
        self.watch = Some(reactor.add(&*helper.lock(), Interest::Read, Source::Helper)?);
        Ok(())
    }

    /// Checks whether the helper has gone.
    pub(super) fn check_helper(&self) {
        if let Some(helper) = &self.helper {
            helper.lock().check_helper();
        }
    }

    /// Reconnects to a helper that has gone; until then connections leave from the base's own address.
    /// Loss and return are logged once each.
    pub(super) fn maintain(&mut self, now: Time, reactor: &mut Reactor<Source>) {
        let Some(helper) = self.helper.clone() else { return };
        let mut admin = helper.lock();
        let Some(away) = &mut self.away else {
            if admin.is_gone() {
                tracing::warn!(
                    "the helper is gone: until it is back connections leave from this base's own \
                     address, and those that move wait for it"
                );
                self.away = Some(Away { next: now, pause: SOON, said: None });
            }
            return;
        };
        if now < away.next {
            return;
        }
        if let Some(watch) = self.watch.take() {
            reactor.remove(&*admin, watch);
        }
        match admin.recover() {
            Ok(()) => {
                tracing::info!(
                    "the helper is back: connections leave from their mobiles' addresses"
                );
                self.away = None;
                drop(admin);
                if let Err(error) = self.watch(reactor) {
                    tracing::warn!(%error, "cannot watch the helper: its loss is noticed when it is next used");
                }
            }
            Err(error) => {
                let error = Some(error).filter(|e| !e.is_gone()).map(|e| e.to_string());
                if let Some(error) = error.filter(|error| away.said.as_ref() != Some(error)) {
                    tracing::warn!(error, "helper failed");
                    away.said = Some(error);
                }
                away.next = now + away.pause;
                away.pause = (away.pause * 2).min(LATE);
            }
        }
    }

    /// When [`maintain`](Self::maintain) has something to do.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.away.as_ref().map(|away| away.next)
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
            None => SourceAddresses::default().choose(asked)?,
        };
        Ok(match &self.helper {
            Some(helper) => leave.by(Arc::new(helper.clone())),
            None => Leave::default(),
        })
    }
}
