//! From which addresses connections leave a base.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use lasthop_hop::seal::PublicKey;
use lasthop_kernel::leave::Leave;
use lasthop_kernel::network::Network;
use lasthop_kernel::reactor::{Interest, Reactor};
use lasthop_kernel::slab::Key;
use lasthop_kernel::tcp;
use lasthop_kernel::turn::Source;
use lasthop_migrate::{
    Admin, Dumped, Failed, Flow, HeldFlow, Holding, Image, MigrateError, Worker,
};
use lasthop_session::station::Reclaimed;
use lasthop_session::{Refusal, SessionId};
use lasthop_units::gather;

use super::source_addresses::SourceAddresses;
use super::{BaseConfig, MobileEntry, Mode};
use crate::dial::{Exit, Exited};
use crate::error::RunError;
use crate::fleet::FleetKeys;
use crate::held::Holder;

/// The privileged helper, which connections that are made and those that move share.
pub(super) type Helper = lasthop_migrate::Handle<Done>;

/// What the helper has done.
#[derive(Debug)]
pub(super) enum Done {
    /// A socket for an attempt of that connection; none if the helper is away.
    Socket(Key, u32, io::Result<Option<Exited>>),
    /// Connections of a session that were taken out of the kernel.
    Dumped(SessionId, Vec<Result<Dumped, Box<Failed>>>),
    /// Connections of a session that were put into it.
    Restored(SessionId, Vec<Result<Exited, String>>),
    /// What fixed hosts say of connections of a session whose base is dead.
    Claimed(SessionId, Vec<Option<Reclaimed>>),
}

/// Sockets that may be asked for at once; what is beyond leaves from the base's own address.
const ASKED_MAX: usize = 4096;

impl Exit for Helper {
    fn request(
        &self,
        key: Key,
        n: u32,
        source: SocketAddr,
        held: Option<(Arc<Holding>, SocketAddr)>,
    ) -> bool {
        if self.is_gone() || self.waiting() >= ASKED_MAX {
            return false;
        }
        let helper = self.clone();
        self.submit(move |admin| {
            let socket = match admin.socket(source) {
                Ok(fd) => {
                    let held = held.and_then(|(by, to)| hold(admin, helper, &by, &fd, to));
                    Ok(Some(Exited { fd, held }))
                }
                Err(error) if error.is_gone() => Ok(None),
                Err(MigrateError::Kernel { source, .. }) => Err(source),
                Err(error) => Err(io::Error::other(error)),
            };
            Some(Done::Socket(key, n, socket))
        });
        true
    }
}

/// Has the acknowledgements of the connection held that a socket is about to make. One for which there is no room goes on as
/// others do.
fn hold(
    admin: &mut Admin,
    helper: Helper,
    by: &Arc<Holding>,
    fd: &OwnedFd,
    to: SocketAddr,
) -> Option<HeldFlow> {
    let flow = Flow { local: tcp::local_addr(fd), remote: to };
    let slot = slot(admin, flow)?;
    Some(by.hold(flow, slot, release(helper)))
}

/// Has the acknowledgements held of a connection that is about to be made anew, if they were before.
pub(super) fn hold_again(
    admin: &mut Admin,
    helper: &Helper,
    by: &Arc<Holding>,
    image: &Image,
) -> Option<HeldFlow> {
    let held = image.held()?;
    let slot = slot(admin, image.flow())?;
    Some(by.resume(image, held, slot, release(helper.clone())))
}

fn slot(admin: &mut Admin, flow: Flow) -> Option<u32> {
    let slot = admin.hold(flow);
    let to = flow.remote;
    slot.inspect_err(|error| tracing::warn!(%to, %error, "not acknowledged end to end")).ok()
}

/// How a connection is held no longer.
fn release(helper: Helper) -> impl FnOnce(Flow) + Send + 'static {
    move |flow| {
        helper.submit(move |admin| {
            if let Err(error) = admin.release(flow) {
                tracing::debug!(%error, "a connection that is over is still held");
            }
            None
        });
    }
}

/// The addresses of mobiles that have some, and what makes sockets for them.
pub(super) struct Exits {
    worker: Option<Worker<Done>>,
    sources: BTreeMap<PublicKey, SourceAddresses>,
    /// Of the mobiles whose connections are acknowledged end to end, what does that.
    holders: BTreeMap<PublicKey, Holder>,
}

impl Exits {
    /// Asks the helper for what the configuration wants of it. Where it cannot be had, that is logged,
    /// and connections leave from the base's own address.
    ///
    /// # Errors
    ///
    /// The helper that the configuration names is not there.
    pub(super) fn open(config: &BaseConfig, fleet: Option<&FleetKeys>) -> Result<Self, RunError> {
        let sources = config.mobiles.iter().map(|mobile| {
            (mobile.key.0, SourceAddresses::new(mobile.address.clone(), mobile.network.clone()))
        });
        let none = Self { worker: None, sources: gather(sources), holders: BTreeMap::new() };
        let held: Vec<&MobileEntry> = config.mobiles.iter().filter(|m| m.is_held()).collect();
        let addresses: Vec<IpAddr> =
            config.mobiles.iter().flat_map(|m| m.address.iter().copied()).collect();
        let networks: Vec<Network> =
            config.mobiles.iter().flat_map(|m| m.network.iter().copied()).collect();
        let all: Vec<Network> =
            addresses.iter().copied().map(Network::from).chain(networks).collect();
        let mut permitted = all.clone();
        if config.handoff.as_ref().is_some_and(|of| of.settings.mode() == Mode::Migrate) {
            let tun = config.mobiles.iter().flat_map(|mobile| config.routed_tun(mobile));
            permitted.extend(tun.copied().map(Network::from));
        }
        if permitted.is_empty() {
            return Ok(none);
        }
        let path = config.handoff.as_ref().and_then(|handoff| handoff.settings.helper.as_deref());
        let ready = |admin: Result<Admin, MigrateError>| {
            let mut admin = admin?;
            if !all.is_empty() {
                admin.guard(&all)?;
            }
            Ok::<_, MigrateError>(admin)
        };
        let mut admin = match path {
            Some(path) => {
                ready(Admin::connect(path)).map_err(|e| RunError::Misfit(e.to_string()))?
            }
            None => match ready(Admin::spawn(&permitted)) {
                Ok(admin) => admin,
                // Who wants acknowledgements end to end is not served with less.
                Err(error) if !held.is_empty() => return Err(RunError::Misfit(error.to_string())),
                Err(error) => {
                    tracing::warn!(
                        %error,
                        "connections leave from this base's own address, not from their mobiles'"
                    );
                    return Ok(none);
                }
            },
        };
        let mut holders = BTreeMap::new();
        if !held.is_empty() {
            let holding = admin.slots().and_then(Holding::new);
            let holding = Arc::new(holding.map_err(|e| RunError::Misfit(e.to_string()))?);
            holders = gather(held.into_iter().map(|mobile| {
                let (holding, most, key) = (Arc::clone(&holding), mobile.hold().0, mobile.key.0);
                let tickets = fleet.map(|keys| (keys.clone(), key));
                (key, Holder { holding, most, tickets })
            }));
        }
        let worker = Worker::start(admin).map_err(|e| RunError::Misfit(e.to_string()))?;
        Ok(Self { worker: Some(worker), holders, ..none })
    }

    /// The same for another worker of the base, until these are dropped.
    ///
    /// # Errors
    ///
    /// No descriptors are left.
    pub(super) fn beside(&self) -> Result<Self, RunError> {
        let worker = self.worker.as_ref().map(Worker::beside).transpose();
        let worker = worker.map_err(|e| RunError::Misfit(e.to_string()))?;
        Ok(Self { worker, sources: self.sources.clone(), holders: self.holders.clone() })
    }

    /// Connections leave from the base's own address from here on.
    pub(super) fn disable(&mut self) {
        self.worker = None;
    }

    /// The helper, if one is there.
    pub(super) fn helper(&self) -> Option<&Helper> {
        self.worker.as_ref().map(Worker::handle)
    }

    /// Watches for what the helper has done.
    pub(super) fn watch(&self, reactor: &mut Reactor<Source>) -> io::Result<()> {
        let Some(worker) = &self.worker else { return Ok(()) };
        reactor.add(worker, Interest::Read, Source::Helper).map(drop)
    }

    /// Forgets the wake-ups so far; call before [`poll`](Self::poll).
    pub(super) fn drain(&self) {
        self.worker.iter().for_each(Worker::drain);
    }

    /// What the helper has done next, if it has.
    pub(super) fn poll(&self) -> Option<Done> {
        self.worker.as_ref()?.poll()
    }

    /// What makes sockets for mobiles' addresses.
    pub(super) fn exit(&self) -> Option<Arc<dyn Exit>> {
        self.helper().map(|helper| Arc::new(helper.clone()) as Arc<dyn Exit>)
    }

    /// What holds the acknowledgements of connections, by their mobile.
    pub(super) fn holders(&self) -> &BTreeMap<PublicKey, Holder> {
        &self.holders
    }

    /// What holds the acknowledgements of a mobile's connections, if something does.
    pub(super) fn holder(&self, mobile: Option<PublicKey>) -> Option<Holder> {
        self.holders.get(&mobile?).cloned()
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
        Ok(if self.worker.is_some() { leave } else { Leave::default() })
    }
}
