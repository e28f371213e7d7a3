//! `migrate` mode: what the kernel and the privileged helper do for it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use lasthop_hop::seal::PublicKey;
use lasthop_kernel::reactor::Reactor;
use lasthop_kernel::tcp::{self, Socket};
use lasthop_kernel::turn::Source;
use lasthop_migrate::{
    self as migrate, Admin, Claim, Dumped, Failed, Flow, HeldFlow, Image, MigrateError, RouteMode,
    Routing,
};
use lasthop_session::{ConnId, Orphan, SessionId};
use lasthop_units::{Duration, Time};

use super::reclaim::reclaim;
use super::{Fallback, HandoffFile, MobileEntry, Mode};
use crate::base::BaseConfig;
use crate::base::exits::{Done, Exits, Helper, hold_again};
use crate::base::mobiles::Mobiles;
use crate::dial::Exited;
use crate::error::RunError;
use crate::held::Holder;
use crate::relay::{Paused, Relay};

/// How long after a mobile's connections stand here strays to its addresses are reset: nothing waits
/// for that, and it costs what waits a moment.
const ANSWER_DELAY: Duration = Duration::from_millis(200);

/// A dumped connection, or why it was not; the relay if it goes on.
pub(super) type Outcome = (ConnId, String, Result<Dumped, (Option<Relay>, MigrateError)>);

/// What moves wired connections.
pub(in crate::base) struct Migration {
    helper: Helper,
    routing: Routing,
    /// The addresses of mobiles.
    mobiles: Arc<Mobiles>,
    /// Mobiles whose packets come here.
    here: BTreeSet<PublicKey>,
    /// Mobiles of whose connections none is elsewhere any more, and when strays are to be reset, so
    /// that the fixed hosts of those that were lost learn of it.
    whole: BTreeMap<PublicKey, Time>,
    /// Sessions that were dumped here, with the flows that are silent until their routes have moved.
    leaving: BTreeMap<SessionId, (PublicKey, Vec<Flow>)>,
    /// Connections of sessions that are being dumped, in the order in which that was asked.
    dumping: VecDeque<Dumping>,
}

/// Connections of a session that are being dumped.
struct Dumping {
    session: SessionId,
    mobile: PublicKey,
    connections: Vec<(ConnId, String, Paused)>,
}

/// An image of a connection that has one of these addresses.
fn decode(image: &[u8], own: &[IpAddr]) -> Result<Image, String> {
    let image = Image::decode(image).map_err(|e| e.to_string())?;
    match own.contains(&image.flow().local.ip().to_canonical()) {
        true => Ok(image),
        false => Err("its address is not one of the mobile's".to_owned()),
    }
}

/// Whether packets for the mobiles' addresses can follow them here.
fn can_follow(settings: &HandoffFile, mobiles: &[MobileEntry]) -> Result<(), MigrateError> {
    let addresses = mobiles.iter().flat_map(|mobile| mobile.address.iter().copied());
    Routing::check(settings.route(), settings.interface.as_deref(), addresses)
}

impl Migration {
    /// Refuses to start where connections are to migrate or be reset, and could do neither: nobody
    /// would reach the addresses that they have.
    ///
    /// # Errors
    ///
    /// Packets for a mobile's address cannot come here, and what to change.
    pub(in crate::base) fn check(
        settings: &HandoffFile,
        mobiles: &[MobileEntry],
    ) -> Result<(), RunError> {
        if settings.mode() != Mode::Migrate || settings.fallback() != Fallback::Reset {
            return Ok(());
        }
        can_follow(settings, mobiles).map_err(|e| {
            RunError::Misfit(format!(
                "connections cannot migrate, and `fallback = \"reset\"` leaves nothing else: {e}"
            ))
        })
    }

    /// The same for another worker of the base, whose way to the helper this is. It has moved nothing yet.
    pub(in crate::base) fn beside(&self, helper: &Helper) -> Self {
        Self::over(helper.clone(), self.routing.clone(), Arc::clone(&self.mobiles))
    }

    /// Nothing has moved.
    fn over(helper: Helper, routing: Routing, mobiles: Arc<Mobiles>) -> Self {
        Self {
            helper,
            routing,
            mobiles,
            here: BTreeSet::new(),
            whole: BTreeMap::new(),
            leaving: BTreeMap::new(),
            dumping: VecDeque::new(),
        }
    }

    /// `None` if nothing is to migrate, or nothing can: then that is logged, with what still works.
    pub(in crate::base) fn start(
        settings: &HandoffFile,
        config: &BaseConfig,
        exits: &Exits,
    ) -> Option<Self> {
        let mobiles = &config.mobiles;
        if settings.mode() != Mode::Migrate {
            return None;
        }
        if let Err(error) = can_follow(settings, mobiles) {
            tracing::warn!(
                %error,
                "connections cannot migrate: they leave from this base's own address"
            );
            return None;
        }
        let helper = exits.helper()?.clone();
        let address = mobiles.iter().find_map(MobileEntry::any);
        if let Err(error) = helper.wait_for(move |admin| migrate::probe(admin, address)) {
            tracing::warn!(%error, "connections cannot migrate: falling back to anchor");
            return None;
        }
        // A mobile whose packets are carried is reached by the device.
        let device = config.tun.as_ref().filter(|_| settings.route() == RouteMode::Route);
        let interface = device.map_or(settings.interface.clone(), |tun| Some(tun.name.clone()));
        let routing = Routing::new(settings.route(), interface, settings.hook.clone());
        let routing = routing
            .inspect_err(|error| tracing::warn!(%error, "connections cannot migrate"))
            .ok()?;
        Some(Self::over(helper, routing, Arc::clone(exits.mobiles())))
    }

    /// Mobiles have these addresses from here on; none that has lost one is here. Packets for what is new at one that is here
    /// come here.
    pub(super) fn set_mobiles(&mut self, mobiles: Arc<Mobiles>) {
        let before = std::mem::replace(&mut self.mobiles, mobiles);
        let grown = |mobile: &&PublicKey| self.mobiles.routed(**mobile) != before.routed(**mobile);
        self.here.iter().filter(grown).for_each(|mobile| self.gain(*mobile));
    }

    /// Nothing more is done here for addresses that are no mobile's in `now`.
    pub(super) fn release_lost(&self, now: &Mobiles) {
        let lost = &self.mobiles.all_routed() - &now.all_routed();
        let routing = self.routing.clone();
        self.helper.submit(move |admin| {
            for address in lost {
                let left = routing.leave(admin, address).and_then(|()| admin.unroute(address));
                if let Err(error) = left {
                    log_error(
                        address,
                        &error,
                        "cannot remove the route of an address that is no mobile's any more",
                    );
                }
            }
            None
        });
    }

    /// Warns where packets for an address that is new in `now` cannot come here.
    pub(super) fn check_gained(&self, settings: &HandoffFile, now: &Mobiles) {
        let before: BTreeSet<IpAddr> = self.mobiles.all_own().collect();
        let gained = now.all_own().filter(|address| !before.contains(address));
        if let Err(error) = Routing::check(settings.route(), settings.interface.as_deref(), gained)
        {
            tracing::error!(%error, "connections of a mobile that is new cannot come here");
        }
    }

    /// Whether packets for mobiles' addresses are to come here, and nothing has them come.
    pub(in crate::base) fn is_missing(settings: &HandoffFile, migration: Option<&Self>) -> bool {
        settings.mode() == Mode::Migrate
            && settings.route() != RouteMode::None
            && migration.is_none()
    }

    /// Whether the helper is away.
    pub(super) fn is_unhelped(&self) -> bool {
        self.helper.is_gone()
    }

    /// Whether this socket of a mobile's has an address that follows the mobile.
    pub(super) fn moves(&self, mobile: PublicKey, fd: impl AsFd) -> bool {
        self.owns(mobile, tcp::local_addr(fd).ip())
    }

    /// A session leaves with no connection that is to be taken out. The next ones of its mobile's
    /// addresses are made elsewhere.
    pub(super) fn leave(&mut self, session: SessionId, mobile: PublicKey) {
        self.stop_stray_resets(mobile);
        self.leaving.entry(session).or_insert_with(|| (mobile, Vec::new()));
    }

    /// Has connections taken out of the kernel: [`dumped`](Self::dumped) takes what came of it. Their
    /// packets are dropped from then on.
    pub(super) fn dump(
        &mut self,
        reactor: &mut Reactor<Source>,
        session: SessionId,
        mobile: PublicKey,
        relays: Vec<(ConnId, String, Relay)>,
    ) {
        let mut fds = Vec::with_capacity(relays.len());
        let mut connections = Vec::with_capacity(relays.len());
        for (conn, target, relay) in relays {
            let (socket, rest) = relay.into_parts();
            let Socket { fd, token, .. } = socket;
            reactor.remove(&fd, token);
            fds.push(fd);
            connections.push((conn, target, rest));
        }
        self.whole.remove(&mobile);
        self.dumping.push_back(Dumping { session, mobile, connections });
        self.helper.submit(move |admin| Some(Done::Dumped(session, migrate::dump_all(admin, fds))));
    }

    /// What came of a session's connections that were to be dumped.
    pub(super) fn dumped(
        &mut self,
        reactor: &mut Reactor<Source>,
        session: SessionId,
        outcomes: Vec<Result<Dumped, Box<Failed>>>,
    ) -> Vec<Outcome> {
        let at = self.dumping.iter().position(|dumping| dumping.session == session);
        let Some(Dumping { mobile, connections, .. }) = at.and_then(|at| self.dumping.remove(at))
        else {
            return Vec::new();
        };
        let (_, flows) = self.leaving.entry(session).or_insert_with(|| (mobile, Vec::new()));
        let mut out = Vec::with_capacity(outcomes.len());
        for (outcome, (conn, target, rest)) in outcomes.into_iter().zip(connections) {
            let outcome = match outcome {
                Ok(mut dumped) => {
                    if let Dumped::Image(image) = &mut dumped {
                        image.set_held(rest.held());
                        flows.push(image.flow());
                    }
                    Ok(dumped)
                }
                Err(failed) => {
                    let Failed { fd, error } = *failed;
                    // The source needs the key, and the key the socket: the source is corrected after.
                    let socket = Socket::new(reactor, fd, Source::Resolver).ok();
                    Err((socket.map(|socket| rest.with(socket)), error))
                }
            };
            out.push((conn, target, outcome));
        }
        out
    }

    /// A session, of that mobile if it is known here, went to the base that the wired network
    /// reaches at `via`.
    pub(super) fn handle_given(
        &mut self,
        session: SessionId,
        mobile: Option<PublicKey>,
        via: Option<IpAddr>,
    ) {
        let (mobile, flows) = match self.leaving.remove(&session) {
            Some((mobile, flows)) => (Some(mobile), flows),
            None => (mobile, Vec::new()),
        };
        if let Some(mobile) = mobile {
            self.stop_stray_resets(mobile);
            self.here.remove(&mobile);
            self.reroute(mobile, move |routing, admin, address| routing.lose(admin, address, via));
        }
        self.thaw(flows);
    }

    /// A mobile is not here any more, and nobody knows where it is: another base may have
    /// connections of its addresses from here on.
    pub(super) fn release_mobile(&mut self, mobile: PublicKey) {
        self.stop_stray_resets(mobile);
        if self.here.remove(&mobile) {
            self.reroute(mobile, Routing::leave);
        }
    }

    /// Has connections made anew, and packets for them come here. What came of each is
    /// [told](Done::Restored). Another base gave the images: one whose address is not the mobile's is not
    /// made.
    pub(super) fn restore(&mut self, session: SessionId, mobile: PublicKey, images: Vec<Vec<u8>>) {
        // Where the route is here already, or the connections never left, packets come all the time.
        let restore = match self.here.contains(&mobile) || self.leaving.contains_key(&session) {
            true => migrate::restore_all,
            false => migrate::restore_unrouted,
        };
        let own = self.mobiles.own(mobile).to_vec();
        let (helper, holder) = (self.helper.clone(), self.mobiles.holder(mobile));
        self.helper.submit(move |admin| {
            let images: Vec<_> = images.iter().map(|bytes| decode(bytes, &own)).collect();
            let whole: Vec<Image> = images.iter().flatten().cloned().collect();
            // Before the kernel says anything of them.
            let holding = holder.map(|holder| holder.holding);
            let mut again = |image| hold_again(admin, &helper, holding.as_ref()?.get()?, image);
            let held: Vec<Option<HeldFlow>> = whole.iter().map(&mut again).collect();
            let mut made = restore(admin, &whole).into_iter().zip(held);
            let outcomes = images.into_iter().map(|image| {
                image?;
                let lost = || (Err(MigrateError::State("it was lost")), None);
                let (made, held) = made.next().unwrap_or_else(lost);
                made.map(|fd| Exited { fd, held }).map_err(|e| e.to_string())
            });
            Some(Done::Restored(session, outcomes.collect()))
        });
        self.stay(session);
    }

    /// What holds the acknowledgements of a mobile's connections.
    pub(super) fn holder(&self, mobile: PublicKey) -> Option<Holder> {
        self.mobiles.holder(mobile)
    }

    /// Whether connections are taken over from bases that are dead.
    pub(super) fn takes_over(&self) -> bool {
        !self.mobiles.tickets.is_empty()
    }

    /// Has the fixed hosts of connections asked whose base is dead, once packets for their mobile come here. What they say is
    /// [told](Done::Claimed). False if they cannot be.
    pub(super) fn claim(
        &mut self,
        session: SessionId,
        mobile: PublicKey,
        orphans: &[Orphan],
        silent: Duration,
    ) -> bool {
        self.end_move(mobile);
        // After so long a base acknowledges what the mobile does not have.
        let holds = self.holder(mobile).is_some_and(|holder| silent < holder.most);
        if !holds {
            tracing::warn!(%mobile, ?silent, "its base was silent for too long: what that has acknowledged since is not known");
        }
        let own = self.mobiles.own(mobile);
        let keys = Some(&self.mobiles.tickets).filter(|_| holds);
        let claim = |orphan: &Orphan| {
            let ticket = keys?.open(&mobile, orphan)?;
            let is_own = own.contains(&ticket.flow().local.ip().to_canonical());
            is_own.then_some(Claim {
                ticket,
                received: orphan.received,
                received_end: orphan.received_end,
                kept: orphan.kept,
                sent: orphan.sent,
                sent_end: orphan.sent_end,
            })
        };
        let claims: Vec<Option<Claim>> = orphans.iter().map(claim).collect();
        let begun =
            self.helper.run_beside("claim", move || Done::Claimed(session, reclaim(claims)));
        begun
            .inspect_err(|error| tracing::warn!(%error, "connections of a dead base cannot go on"))
            .is_ok()
    }

    /// A session has come. It may have come home without having been anywhere.
    pub(super) fn stay(&mut self, session: SessionId) {
        if let Some((_, flows)) = self.leaving.remove(&session) {
            self.thaw(flows);
        }
    }

    /// Whether a mobile has that address by the configuration.
    fn owns(&self, mobile: PublicKey, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.mobiles.own(mobile).contains(&address)
    }

    fn is_routed(&self, mobile: PublicKey) -> bool {
        !self.mobiles.routed(mobile).is_empty()
    }

    /// A mobile has connections here: packets for its addresses are to come here.
    pub(super) fn end_move(&mut self, mobile: PublicKey) {
        if self.is_routed(mobile) && self.here.insert(mobile) {
            self.gain(mobile);
        }
    }

    /// A mobile has all of its connections here, and none elsewhere. Packets for its addresses are to
    /// come here, wherever they went meanwhile, and strays are to be reset.
    pub(super) fn end_move_whole(&mut self, now: Time, mobile: PublicKey) {
        if self.is_routed(mobile) {
            self.here.insert(mobile);
            self.gain(mobile);
            self.whole.insert(mobile, now + ANSWER_DELAY);
        }
    }

    fn gain(&self, mobile: PublicKey) {
        self.reroute(mobile, |routing, admin, address| routing.gain(admin, address, None));
    }

    /// Strays to a mobile's addresses are dropped from here on: its connections may be elsewhere.
    pub(super) fn stop_stray_resets(&mut self, mobile: PublicKey) {
        self.whole.remove(&mobile);
        self.set_stray_resets(mobile, false);
    }

    fn set_stray_resets(&mut self, mobile: PublicKey, answers: bool) {
        let addresses = self.mobiles.own(mobile).to_vec();
        self.helper.submit(move |admin| {
            for address in addresses {
                if let Err(error) = admin.answer(address, answers) {
                    log_error(address, &error, "what becomes of strays cannot be changed");
                }
            }
            None
        });
    }

    /// Has strays reset where that is due.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        while let Some((mobile, _)) = self.whole.iter().find(|(_, at)| **at <= now) {
            let mobile = *mobile;
            self.whole.remove(&mobile);
            self.set_stray_resets(mobile, true);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.whole.values().min().copied()
    }

    /// Resets connections that nobody came for.
    pub(super) fn discard(&mut self, session: SessionId, images: Vec<Vec<u8>>) {
        if !images.is_empty() {
            let own: Vec<IpAddr> = self.mobiles.all_own().collect();
            let takes_over = self.takes_over();
            self.helper.submit(move |admin| {
                // A socket that is made anew and closed sends its fixed host a FIN or RST.
                let images = images.iter().flat_map(|bytes| decode(bytes, &own));
                // Another base may have taken over what has a ticket.
                let images: Vec<Image> =
                    images.filter(|image| !takes_over || image.held().is_none()).collect();
                for fd in migrate::restore_all(admin, &images).into_iter().flatten() {
                    tcp::abort_on_close(&fd);
                }
                None
            });
        }
        self.stay(session);
    }

    fn thaw(&self, flows: Vec<Flow>) {
        self.helper.submit(move |admin| {
            if let Err(error) = admin.thaw(&flows)
                && !error.is_gone()
            {
                tracing::warn!(%error, "cannot remove the packet rules of moved connections: they expire");
            }
            None
        });
    }

    fn reroute(
        &self,
        mobile: PublicKey,
        change: impl Fn(&Routing, &mut Admin, IpAddr) -> Result<(), MigrateError> + Send + 'static,
    ) {
        let addresses = self.mobiles.routed(mobile).to_vec();
        let routing = self.routing.clone();
        self.helper.submit(move |admin| {
            for address in addresses {
                if let Err(error) = change(&routing, admin, address) {
                    log_error(address, &error, "cannot move a mobile's route");
                }
            }
            None
        });
    }
}

/// Logs an error, unless the helper is gone: that is logged elsewhere, and it catches up when it is
/// back.
fn log_error(address: IpAddr, error: &MigrateError, what: &str) {
    if !error.is_gone() {
        tracing::warn!(%address, %error, "{what}");
    }
}

#[cfg(test)]
mod tests;
