//! From which addresses connections leave a base.

use std::io;
use std::net::SocketAddr;
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

use super::mobiles::Mobiles;
use super::source_addresses::SourceAddresses;
use super::{BaseConfig, mobiles};
use crate::dial::{Exit, Exited};
use crate::error::RunError;
use crate::fleet::FleetKeys;
use crate::held::{Holder, SharedHolding};

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
        held: Option<(SharedHolding, SocketAddr)>,
    ) -> bool {
        if self.is_gone() || self.waiting() >= ASKED_MAX {
            return false;
        }
        let helper = self.clone();
        self.submit(move |admin| {
            let socket = match admin.socket(source) {
                Ok(fd) => {
                    let held = held.and_then(|(by, to)| hold(admin, helper, by.get()?, &fd, to));
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

/// Has acknowledgements held from here on, if they are not yet.
fn have_holding(admin: &mut Admin, holding: &SharedHolding) -> Result<(), MigrateError> {
    if holding.get().is_none() {
        let _ = holding.set(Arc::new(Holding::new(admin.slots()?)?));
    }
    Ok(())
}

/// Has the helper work for these, and no others, as far as it may.
fn settle(admin: &mut Admin, permitted: &[Network], mobiles: &Mobiles) -> Result<(), MigrateError> {
    let refused = admin.change(permitted, &mobiles.guarded())?;
    for network in &refused {
        tracing::error!(
            %network,
            "the helper was not started for this address of a mobile (--address): connections from there fail"
        );
    }
    if mobiles.are_held()
        && let Err(error) = have_holding(admin, &mobiles.holding)
    {
        tracing::error!(%error, "not acknowledged end to end");
    }
    Ok(())
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
    mobiles: Arc<Mobiles>,
}

impl Exits {
    /// Asks the helper for what the configuration wants of it. Where it cannot be had, that is logged,
    /// and connections leave from the base's own address.
    ///
    /// # Errors
    ///
    /// The helper that the configuration names is not there.
    pub(super) fn open(config: &BaseConfig, tickets: FleetKeys) -> Result<Self, RunError> {
        let addresses = mobiles::addresses(config);
        let permitted = mobiles::permitted(config, &addresses);
        let mobiles = Arc::new(Mobiles::new(tickets).with(addresses));
        let none = Self { worker: None, mobiles };
        if !mobiles::wants_helper(config) {
            return Ok(none);
        }
        let (mobiles, misfit) = (&none.mobiles, |e: MigrateError| RunError::Misfit(e.to_string()));
        let path = config.handoff.as_ref().and_then(|handoff| handoff.settings.helper.as_deref());
        let ready = |admin: Result<Admin, MigrateError>| {
            let mut admin = admin?;
            let guarded = mobiles.guarded();
            if !guarded.is_empty() {
                admin.guard(&guarded)?;
            }
            Ok::<_, MigrateError>(admin)
        };
        let mut admin = match path {
            Some(path) => ready(Admin::connect(path)).map_err(misfit)?,
            None => match ready(Admin::spawn(&permitted)) {
                Ok(admin) => admin,
                // Who wants acknowledgements end to end is not served with less.
                Err(error) if mobiles.are_held() => return Err(misfit(error)),
                Err(error) => {
                    tracing::warn!(
                        %error,
                        "connections leave from this base's own address, not from their mobiles'"
                    );
                    return Ok(none);
                }
            },
        };
        if mobiles.are_held() {
            have_holding(&mut admin, &mobiles.holding).map_err(misfit)?;
        }
        Ok(Self { worker: Some(Worker::start(admin).map_err(misfit)?), ..none })
    }

    /// The same for another worker of the base, until these are dropped.
    ///
    /// # Errors
    ///
    /// No descriptors are left.
    pub(super) fn beside(&self) -> Result<Self, RunError> {
        let worker = self.worker.as_ref().map(Worker::beside).transpose();
        let worker = worker.map_err(|e| RunError::Misfit(e.to_string()))?;
        Ok(Self { worker, mobiles: Arc::clone(&self.mobiles) })
    }

    /// Connections leave from the base's own address from here on.
    pub(super) fn disable(&mut self) {
        self.worker = None;
    }

    /// The helper, if one is there.
    pub(super) fn helper(&self) -> Option<&Helper> {
        self.worker.as_ref().map(Worker::handle)
    }

    /// The mobiles' addresses.
    pub(super) fn mobiles(&self) -> &Arc<Mobiles> {
        &self.mobiles
    }

    /// Mobiles have these from here on. What is new is allowed once the helper is [told](Self::tell_helper).
    pub(super) fn set_mobiles(&mut self, mobiles: Arc<Mobiles>) {
        self.mobiles = mobiles;
    }

    /// Has the helper work for these, and no others. Where it does not, that is logged.
    pub(super) fn tell_helper(&self, permitted: Vec<Network>, mobiles: &Arc<Mobiles>) {
        let (Some(helper), mobiles) = (self.helper(), Arc::clone(mobiles)) else { return };
        helper.submit(move |admin| {
            if let Err(error) = settle(admin, &permitted, &mobiles)
                && !error.is_gone()
            {
                tracing::error!(%error, "the helper does not work for the mobiles' addresses as they are now");
            }
            None
        });
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

    /// What holds the acknowledgements of a mobile's connections, if something does.
    pub(super) fn holder(&self, mobile: Option<PublicKey>) -> Option<Holder> {
        self.worker.as_ref()?;
        self.mobiles.holder(mobile?)
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
        let leave = match mobile.and_then(|mobile| self.mobiles.get(mobile)) {
            Some(of) => of.sources.choose(asked)?,
            None => SourceAddresses::default().choose(asked)?,
        };
        Ok(if self.worker.is_some() { leave } else { Leave::default() })
    }
}
