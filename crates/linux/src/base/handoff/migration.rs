//! `migrate` mode: what the kernel and the privileged helper do for it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use lasthop_hop::seal::PublicKey;
use lasthop_session::{ConnId, SessionId};

use super::{HandoffConfig, MobileAddresses, Mode};
use crate::base::exits::Helper;
use crate::hop::Source;
use crate::migrate::{self, Admin, Failed, Flow, Image, MigrateError, Routing};
use crate::reactor::Reactor;
use crate::relay::Relay;
use crate::tcp::{self, Socket};

/// A dumped connection, or why it was not; the relay if it goes on.
pub(super) type Dumped = (ConnId, String, Result<Box<Image>, (Option<Relay>, MigrateError)>);

/// What moves wired connections.
pub(super) struct Migration {
    helper: Helper,
    routing: Routing,
    addresses: BTreeMap<PublicKey, Vec<IpAddr>>,
    /// Mobiles whose packets come here.
    here: BTreeSet<PublicKey>,
    /// Sessions that were dumped here, with the flows that are silent until their routes have moved.
    leaving: BTreeMap<SessionId, (PublicKey, Vec<Flow>)>,
}

impl Migration {
    /// `None` if nothing is to migrate, or nothing can: then that is said, and what still works.
    pub(super) fn start(
        config: &HandoffConfig,
        mobiles: &[MobileAddresses],
        helper: Option<&Helper>,
    ) -> Option<Self> {
        if config.mode != Mode::Migrate {
            return None;
        }
        let helper = helper?.clone();
        if let Err(error) = migrate::probe(&mut helper.lock()) {
            tracing::warn!(%error, "connections cannot migrate: those that move are passed on");
            return None;
        }
        let routing = Routing::new(config.route, config.interface.clone(), config.hook.clone());
        let routing = routing
            .inspect_err(|error| tracing::warn!(%error, "connections cannot migrate"))
            .ok()?;
        let addresses = mobiles.iter().map(|m| (m.key, m.addresses.clone())).collect();
        Some(Self { helper, routing, addresses, here: BTreeSet::new(), leaving: BTreeMap::new() })
    }

    /// Whether this socket of a mobile's has an address that follows the mobile.
    pub(super) fn moves(&self, mobile: PublicKey, fd: impl AsFd) -> bool {
        let own = tcp::canonical(tcp::local_addr(fd)).ip();
        self.addresses.get(&mobile).is_some_and(|addresses| addresses.contains(&own))
    }

    /// Takes connections out of the kernel. Their packets are dropped from here on.
    pub(super) fn dump(
        &mut self,
        reactor: &mut Reactor<Source>,
        session: SessionId,
        mobile: PublicKey,
        relays: Vec<(ConnId, String, Relay)>,
    ) -> Vec<Dumped> {
        let mut fds = Vec::with_capacity(relays.len());
        let mut paused = Vec::with_capacity(relays.len());
        for (conn, target, relay) in relays {
            let (socket, rest) = relay.into_parts();
            let Socket { fd, token, .. } = socket;
            reactor.remove(&fd, token);
            fds.push(fd);
            paused.push((conn, target, rest));
        }
        let outcomes = migrate::dump_all(&mut self.helper.lock(), fds);
        let (_, flows) = self.leaving.entry(session).or_insert_with(|| (mobile, Vec::new()));
        let mut out = Vec::with_capacity(outcomes.len());
        for (outcome, (conn, target, rest)) in outcomes.into_iter().zip(paused) {
            let outcome = match outcome {
                Ok(image) => {
                    flows.push(image.flow());
                    Ok(Box::new(image))
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

    /// A session went to the base that the wired network reaches at `via`.
    pub(super) fn given(&mut self, session: SessionId, via: Option<IpAddr>) {
        let Some((mobile, flows)) = self.leaving.remove(&session) else { return };
        self.here.remove(&mobile);
        self.reroute(mobile, |routing, helper, address| routing.lose(helper, address, via));
        self.thaw(&flows);
    }

    /// Makes connections anew, and has packets for them come here.
    pub(super) fn restore(
        &mut self,
        session: SessionId,
        mobile: PublicKey,
        images: &[Image],
    ) -> Vec<Result<OwnedFd, String>> {
        // Where the route is here already, or the connections never left, packets come all the time.
        let restore = match self.here.contains(&mobile) || self.leaving.contains_key(&session) {
            true => migrate::restore_all,
            false => migrate::restore_unrouted,
        };
        let outcomes = restore(&mut self.helper.lock(), images);
        self.settle(mobile);
        // They may have come home without having been anywhere.
        if let Some((_, flows)) = self.leaving.remove(&session) {
            self.thaw(&flows);
        }
        outcomes.into_iter().map(|outcome| outcome.map_err(|e| e.to_string())).collect()
    }

    /// A mobile has connections here: packets for its addresses are to come here.
    pub(super) fn settle(&mut self, mobile: PublicKey) {
        if self.addresses.contains_key(&mobile) && self.here.insert(mobile) {
            self.reroute(mobile, |routing, helper, address| routing.gain(helper, address, None));
        }
    }

    /// Resets connections that nobody came for.
    pub(super) fn discard(&mut self, session: SessionId, images: &[Image]) {
        for fd in migrate::restore_all(&mut self.helper.lock(), images).into_iter().flatten() {
            tcp::abort_on_close(&fd);
        }
        if let Some((_, flows)) = self.leaving.remove(&session) {
            self.thaw(&flows);
        }
    }

    /// Tells what became of hooks.
    pub(super) fn poll(&mut self) {
        self.routing.drain();
        while let Some(change) = self.routing.poll() {
            if let Err(error) = change.outcome {
                tracing::warn!(address = %change.address, %error, "a route does not follow its mobile");
            }
        }
    }

    fn thaw(&mut self, flows: &[Flow]) {
        if let Err(error) = self.helper.lock().thaw(flows) {
            tracing::warn!(%error, "rules for connections that have moved are left until they expire");
        }
    }

    fn reroute(
        &mut self,
        mobile: PublicKey,
        mut change: impl FnMut(&mut Routing, &mut Admin, IpAddr) -> Result<(), MigrateError>,
    ) {
        for address in self.addresses.get(&mobile).into_iter().flatten() {
            if let Err(error) = change(&mut self.routing, &mut self.helper.lock(), *address) {
                tracing::warn!(%address, %error, "a route does not follow its mobile");
            }
        }
    }
}
