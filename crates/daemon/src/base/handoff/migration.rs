//! `migrate` mode: what the kernel and the privileged helper do for it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::os::fd::AsFd;

use lasthop_hop::seal::PublicKey;
use lasthop_kernel::reactor::Reactor;
use lasthop_kernel::tcp::{self, Socket};
use lasthop_kernel::turn::Source;
use lasthop_migrate::{
    self as migrate, Admin, Claim, Dumped, Failed, Flow, HeldFlow, Image, MigrateError, RouteMode,
    Routing,
};
use lasthop_session::{ConnId, Orphan, SessionId};
use lasthop_units::{Duration, Time, gather};

use super::reclaim::reclaim;
use super::{Fallback, HandoffFile, MobileEntry, Mode};
use crate::base::BaseConfig;
use crate::base::exits::{Done, Exits, Helper, hold_again};
use crate::dial::Exited;
use crate::error::RunError;
use crate::fleet::FleetKeys;
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
    /// By which connections are taken over whose base is dead.
    fleet: Option<FleetKeys>,
    /// What holds the acknowledgements of mobiles' connections.
    holders: BTreeMap<PublicKey, Holder>,
    routing: Routing,
    /// From where mobiles' connections leave.
    addresses: BTreeMap<PublicKey, Vec<IpAddr>>,
    /// For what packets follow them: these, and those of packets alone.
    routed: BTreeMap<PublicKey, Vec<IpAddr>>,
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
        let (fleet, holders) = (self.fleet.clone(), self.holders.clone());
        let (addresses, routed) = (self.addresses.clone(), self.routed.clone());
        Self::over(helper.clone(), fleet, holders, self.routing.clone(), addresses, routed)
    }

    /// Nothing has moved.
    fn over(
        helper: Helper,
        fleet: Option<FleetKeys>,
        holders: BTreeMap<PublicKey, Holder>,
        routing: Routing,
        addresses: BTreeMap<PublicKey, Vec<IpAddr>>,
        routed: BTreeMap<PublicKey, Vec<IpAddr>>,
    ) -> Self {
        Self {
            helper,
            fleet,
            holders,
            routing,
            addresses,
            routed,
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
        fleet: Option<FleetKeys>,
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
        let (helper, holders) = (exits.helper()?.clone(), exits.holders().clone());
        let address = mobiles.iter().find_map(MobileEntry::any)?;
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
        let addresses = gather(mobiles.iter().map(|m| (m.key.0, m.address.clone())));
        let routed = mobiles.iter().map(|m| (m.key.0, [&m.address, config.routed_tun(m)].concat()));
        let routed = gather(routed);
        Some(Self::over(helper, fleet, holders, routing, addresses, routed))
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
        let own = self.addresses.get(&mobile).cloned().unwrap_or_default();
        let (helper, holder) = (self.helper.clone(), self.holders.get(&mobile).cloned());
        self.helper.submit(move |admin| {
            let images: Vec<_> = images.iter().map(|bytes| decode(bytes, &own)).collect();
            let whole: Vec<Image> = images.iter().flatten().cloned().collect();
            // Before the kernel says anything of them.
            let holding = holder.map(|holder| holder.holding);
            let mut again =
                |image| holding.as_ref().and_then(|by| hold_again(admin, &helper, by, image));
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
    pub(super) fn holder(&self, mobile: PublicKey) -> Option<&Holder> {
        self.holders.get(&mobile)
    }

    /// Whether connections are taken over from bases that are dead.
    pub(super) fn takes_over(&self) -> bool {
        self.fleet.is_some()
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
        let holds = self.holders.get(&mobile).is_some_and(|holder| silent < holder.most);
        if !holds {
            tracing::warn!(%mobile, ?silent, "its base was silent for too long: what that has acknowledged since is not known");
        }
        let own = self.addresses.get(&mobile).cloned().unwrap_or_default();
        let claim = |orphan: &Orphan| {
            let ticket = self.fleet.as_ref().filter(|_| holds)?.open(&mobile, orphan)?;
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
        self.addresses.get(&mobile).is_some_and(|addresses| addresses.contains(&address))
    }

    /// A mobile has connections here: packets for its addresses are to come here.
    pub(super) fn end_move(&mut self, mobile: PublicKey) {
        if self.routed.contains_key(&mobile) && self.here.insert(mobile) {
            self.gain(mobile);
        }
    }

    /// A mobile has all of its connections here, and none elsewhere. Packets for its addresses are to
    /// come here, wherever they went meanwhile, and strays are to be reset.
    pub(super) fn end_move_whole(&mut self, now: Time, mobile: PublicKey) {
        if self.routed.contains_key(&mobile) {
            self.here.insert(mobile);
            self.gain(mobile);
            self.whole.insert(mobile, now + ANSWER_DELAY);
        }
    }

    fn gain(&mut self, mobile: PublicKey) {
        self.reroute(mobile, |routing, admin, address| routing.gain(admin, address, None));
    }

    /// Strays to a mobile's addresses are dropped from here on: its connections may be elsewhere.
    pub(super) fn stop_stray_resets(&mut self, mobile: PublicKey) {
        self.whole.remove(&mobile);
        self.set_stray_resets(mobile, false);
    }

    fn set_stray_resets(&mut self, mobile: PublicKey, answers: bool) {
        let addresses = self.addresses.get(&mobile).cloned().unwrap_or_default();
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
            let own: Vec<IpAddr> = self.addresses.values().flatten().copied().collect();
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
        let addresses = self.routed.get(&mobile).cloned().unwrap_or_default();
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
mod tests {
    use lasthop_hop::seal::Keypair;
    use lasthop_kernel::netns::{Netns, NetnsError};
    use lasthop_kernel::stop::Stop;
    use lasthop_migrate::Worker;
    use lasthop_units::Seed;

    use super::*;
    use crate::base::{Base, BaseFile};
    use crate::keyfile::{self, Existing};

    /// A base in a namespace and a folder of its own, where mobiles are announced on the loopback interface.
    /// What another one bound may be held for a moment by a process that some other test starts: a child has
    /// its parent's sockets until it executes its program.
    fn base(forwarding: &str, fallback: &str) -> Option<Result<Base, RunError>> {
        let netns = lasthop_testing::or_skip(Netns::anonymous(), NetnsError::is_unavailable)?;
        netns.sysctl("ipv4.conf.lo.forwarding", forwarding).unwrap();
        let name = format!("lasthop-unrouted-{}-{forwarding}-{fallback}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let keys = keyfile::generate().unwrap();
        let (mobile, peer) = (keyfile::generate().unwrap(), keyfile::generate().unwrap());
        let key = folder.join("base.key");
        keyfile::store(&key, &keys, Existing::Replace).unwrap();
        let text = format!(
            "key = \"{}\"\nallow = [\"{mobile}\"]\nlisten = [\"127.0.0.1:4433\"]\n\
             control = \"{}\"\n\
             [handoff]\nmode = \"migrate\"\nroute = \"announce\"\ninterface = \"lo\"\n\
             fallback = \"{fallback}\"\nlisten = [\"127.0.0.1:4434\"]\n\
             [[peers]]\nkey = \"{}\"\naddress = \"127.0.0.2:4434\"\n\
             [[mobiles]]\nkey = \"{mobile}\"\naddress = [\"10.9.0.7\"]\n",
            key.display(),
            folder.join("base.sock").display(),
            peer.public(),
            mobile = mobile.public(),
        );
        let file: BaseFile = toml::from_str(&text).unwrap();
        let config: BaseConfig = file.try_into().unwrap();
        let made = netns.enter(|| Base::bind(config)).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        Some(made)
    }

    /// SEC-8: a base that gives a session gives no socket of somebody else's address with it.
    #[test]
    fn a_connection_whose_address_is_not_the_mobiles_is_not_made() {
        let Some(netns) = lasthop_testing::or_skip(Netns::anonymous(), NetnsError::is_unavailable)
        else {
            return;
        };
        netns.ip("link set lo up\n").unwrap();
        let path = std::env::temp_dir().join(format!("lasthop-foreign-{}", std::process::id()));
        let [own, other] = ["127.0.0.1", "127.0.0.2"].map(|text| text.parse::<IpAddr>().unwrap());
        let stop = Stop::new().unwrap();
        let (of_helper, stops, at) = (netns.clone(), stop.clone(), path.clone());
        let helper = std::thread::spawn(move || {
            let addresses = vec![own.into(), other.into()];
            let config = migrate::helper::Config { addresses, users: Vec::new() };
            of_helper.enter(|| migrate::helper::serve_path(&at, &config, &stops)).unwrap()
        });
        netns
            .enter(|| {
                let mut helped = None;
                let answers = || {
                    helped = Admin::connect(&path).ok();
                    helped.is_some()
                };
                let patience = std::time::Duration::from_secs(30);
                lasthop_testing::wait_or(patience, answers, || "no helper".to_owned());
                let mut admin = helped.unwrap();
                migrate::probe(&mut admin, own).unwrap();
                let host = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
                let socket = std::net::TcpStream::connect(host.local_addr().unwrap()).unwrap();
                let _fixed_host = host.accept().unwrap();
                let image = migrate::dump_all(&mut admin, vec![socket.into()]).pop().unwrap();
                let Dumped::Image(image) = image.map_err(|failed| failed.error).unwrap() else {
                    panic!("it is a connection");
                };
                let worker = Worker::start(admin).unwrap();
                let [its, another] = [1, 2].map(|n| *Keypair::generate(Seed::from_u64(n)).public());
                let mut migration = Migration {
                    helper: worker.handle().clone(),
                    fleet: None,
                    holders: BTreeMap::new(),
                    routing: Routing::new(RouteMode::None, None, vec![]).unwrap(),
                    addresses: BTreeMap::from([(its, vec![own]), (another, vec![other])]),
                    routed: BTreeMap::new(),
                    here: BTreeSet::new(),
                    whole: BTreeMap::new(),
                    leaving: BTreeMap::new(),
                    dumping: VecDeque::new(),
                };
                let mut restored = |mobile, images| {
                    migration.restore(SessionId(7), mobile, images);
                    let (mut done, start) = (None, std::time::Instant::now());
                    while done.is_none() && start.elapsed() < patience {
                        done = worker.poll();
                        std::thread::sleep(std::time::Duration::from_millis(5));
                    }
                    let Some(Done::Restored(SessionId(7), made)) = done else {
                        panic!("nothing was made: {done:?}");
                    };
                    made
                };
                let image = image.encode();
                for refused in restored(another, vec![image.clone(), image.clone()]) {
                    let why = refused.map(drop).unwrap_err();
                    assert_eq!(why, "its address is not one of the mobile's");
                }
                assert!(restored(its, vec![image])[0].is_ok());
            })
            .unwrap();
        stop.request();
        helper.join().unwrap().unwrap();
    }

    #[test]
    fn what_cannot_be_announced_keeps_a_base_from_starting_that_has_nothing_else() {
        let Some(bound) = base("0", "reset") else {
            return;
        };
        let Err(refused) = bound else {
            panic!("it binds connections to addresses that nobody finds");
        };
        let refused = refused.to_string();
        for said in ["net.ipv4.conf.lo.forwarding to 1", "10.9.0.7", "reset"] {
            assert!(refused.contains(said), "{refused}");
        }
        // Connections leave from the base's own address.
        base("0", "anchor").unwrap().unwrap();
        base("1", "reset").unwrap().unwrap();
    }
}
