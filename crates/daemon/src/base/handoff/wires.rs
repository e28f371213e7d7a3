//! A base's associations and kernel sockets, as the handoff machine uses them.

use lasthop_control::Handoffs as Counters;
use lasthop_hop::seal::PublicKey;
use lasthop_kernel::slab::Key;
use lasthop_kernel::tcp::{self, Socket};
use lasthop_kernel::turn::Source;
use lasthop_migrate::{self as migrate, Failed, HeldFlow, MigrateError};
use lasthop_session::station::{
    Associations, Bridge, Counts, Dumped, Ended, Farewell, Fate, Name, Reclaimed, Restored,
    SocketState, Wires,
};
use lasthop_session::{ConnId, Orphan, ResetReason, Session, SessionId, Target};
use lasthop_units::{Bytes, Duration};

use super::strays::Strays;
use super::{Core, Fallback, HandoffConfig, Migration, Mode, far_session};
use crate::backhaul::{BaseAssociationId, Peer, Purpose};
use crate::dial::Exited;
use crate::driver::Phase;
use crate::held::Held;
use crate::hop::AnyStreams;
use crate::relay::Relay;

/// Configuration and migration, which handoffs need beside associations and sockets.
pub(super) struct HandoffContext {
    pub(super) config: HandoffConfig,
    /// Absent where nothing migrates.
    pub(super) migration: Option<Migration>,
    pub(super) strays: Strays,
}

impl HandoffContext {
    pub(super) fn peer(&self, key: PublicKey) -> Option<&Peer> {
        self.config.peers.iter().find(|peer| peer.key == key)
    }

    /// What people call a base.
    pub(super) fn name_of(&self, key: PublicKey) -> String {
        self.peer(key).map_or_else(|| key.to_string(), |peer| peer.name.clone())
    }

    pub(super) fn trace_received(&self, from: PublicKey, message: &[u8]) {
        tracing::trace!(
            from = self.name_of(from),
            kind = message.get(1),
            "handoff message received"
        );
    }

    /// Whether sockets can leave and come, as far as is known.
    pub(super) fn is_ready(&self) -> bool {
        !self.migration.as_ref().is_some_and(Migration::is_unhelped)
    }
}

/// The base's core and the handoffs' context, for one call of the machine.
pub(super) struct BaseWires<'a> {
    pub(super) core: &'a mut Core,
    pub(super) means: &'a mut HandoffContext,
}

impl BaseWires<'_> {
    /// What came of a session's wired halves that were to be dumped.
    pub(super) fn dumped(
        &mut self,
        session: SessionId,
        outcomes: Vec<Result<migrate::Dumped, Box<Failed>>>,
    ) -> Vec<(ConnId, Dumped<Key>)> {
        let Self { core, means } = self;
        let Some(migration) = &mut means.migration else { return Vec::new() };
        let outcomes = migration.dumped(&mut core.reactor, session, outcomes);
        let (helped, mut lost) = (!migration.is_unhelped(), 0);
        let dumped = outcomes.into_iter().map(|(conn, target, outcome)| {
            let (relay, error) = match outcome {
                Ok(migrate::Dumped::Image(image)) => return (conn, Dumped::Image(image.encode())),
                Ok(migrate::Dumped::Rest(rest)) => return (conn, Dumped::Rest(rest)),
                Err(failed) => failed,
            };
            // What is over only has something left to read.
            let stays = matches!(error, MigrateError::Over)
                && means.config.settings.fallback() == Fallback::Anchor;
            if helped {
                tracing::warn!(connection = conn.0, target, %error, "connection cannot migrate");
            }
            match relay {
                Some(relay) if stays => (conn, Dumped::Stays(core.park(target, relay))),
                // Its packets go with its address, and would never come to it again.
                relay => {
                    lost += 1;
                    if let Some(relay) = relay {
                        relay.close(core.now, &mut core.reactor, true);
                    }
                    (conn, Dumped::Lost)
                }
            }
        });
        let dumped = dumped.collect();
        if lost > 0 {
            tracing::warn!(%session, connections = lost, helped, "connections that cannot migrate are reset");
        }
        dumped
    }
}

impl BaseWires<'_> {
    /// The acknowledgements of a connection that was made anew are held as they were before.
    fn hold_again(
        &mut self,
        id: BaseAssociationId,
        conn: ConnId,
        flow: Option<HeldFlow>,
        taken: u64,
    ) {
        let mobile = self.core.hop.key_of(id);
        let holder = mobile.and_then(|mobile| self.means.migration.as_ref()?.holder(mobile));
        let (Some(flow), Some(holder)) = (flow, holder) else { return };
        if let Some(held) = Held::resumed(self.core.now, flow, &holder, taken) {
            held.wake();
            self.core.hold(id, conn, held, &holder);
        }
    }
}

impl Associations for BaseWires<'_> {
    type Id = BaseAssociationId;
    type Streams = AnyStreams;

    fn session(&mut self, id: Self::Id) -> Option<(&mut Session, &mut Self::Streams)> {
        self.core.session(id)
    }

    fn peek(&self, id: Self::Id) -> Option<&Session> {
        self.core.peek(id)
    }
}

impl Wires<PublicKey, BaseAssociationId, Key> for BaseWires<'_> {
    type Made = Result<Exited, String>;

    fn link(&mut self, base: PublicKey, session: SessionId) -> Option<BaseAssociationId> {
        let peer = self.means.peer(base)?;
        let (hop, mut turn) = self.core.turn();
        let part = hop
            .link(&mut turn, peer, Purpose::Bytes(session))
            .inspect_err(|error| tracing::warn!(peer = peer.name, %error, "anchor: no association with a peer base"))
            .ok()?;
        self.core.open_session(BaseAssociationId::Link(part), far_session);
        Some(BaseAssociationId::Link(part))
    }

    fn is_linked(&self, id: BaseAssociationId) -> bool {
        matches!(id, BaseAssociationId::Link(part) if self.core.hop.is_linked(part))
    }

    fn unlink(&mut self, id: BaseAssociationId, farewell: Farewell) {
        let BaseAssociationId::Link(part) = id else { return };
        self.core.close_session(id);
        let (hop, mut turn) = self.core.turn();
        hop.unlink(&mut turn, part, farewell);
    }

    fn close(&mut self, id: BaseAssociationId) {
        if let BaseAssociationId::Peer(association) = id {
            self.core.hop.close_accepted(association);
        }
    }

    fn wired(&self, id: BaseAssociationId) -> Vec<(ConnId, Key)> {
        self.core.connections_of(id)
    }

    fn fate(&self, mobile: PublicKey, socket: Key) -> Option<Fate> {
        let Phase::Relaying(relay) = &self.core.connections.get(socket)?.phase else {
            return None;
        };
        if relay.is_over() {
            return None;
        }
        let HandoffContext { config, migration, .. } = &*self.means;
        let (mode, fallback) = (config.settings.mode(), config.settings.fallback());
        let migrates = mode == Mode::Migrate
            && migration.as_ref().is_some_and(|m| m.moves(mobile, &relay.socket.fd));
        Some(match (migrates, mode, fallback) {
            (true, ..) => Fate::Leaves,
            (false, Mode::Migrate, Fallback::Reset) => Fate::Lost,
            _ => Fate::Stays,
        })
    }

    fn previews(
        &self,
        id: BaseAssociationId,
        mobile: PublicKey,
        limit: Bytes,
    ) -> Vec<(ConnId, Vec<u8>)> {
        let mut left = limit.as_usize();
        let mut previews = Vec::new();
        for (conn, socket) in self.wired(id) {
            if left > 0
                && self.fate(mobile, socket) == Some(Fate::Leaves)
                && let Some(Phase::Relaying(relay)) =
                    self.core.connections.get(socket).map(|c| &c.phase)
            {
                let unread = tcp::peek(&relay.socket.fd, left);
                left -= unread.len();
                previews.push((conn, unread));
            }
        }
        previews
    }

    fn state(&self, socket: Key) -> Option<SocketState> {
        Some(match self.core.connections.get(socket)?.phase {
            Phase::Waiting(_) => SocketState::Opens,
            Phase::Relaying(_) => SocketState::Relays,
            Phase::Bridged(_) => SocketState::Spliced,
        })
    }

    fn is_write_done(&self, socket: Key) -> bool {
        let phase = self.core.connections.get(socket).map(|connection| &connection.phase);
        matches!(phase, Some(Phase::Relaying(relay)) if relay.is_write_done())
    }

    fn attach(&mut self, socket: Key, name: Name<BaseAssociationId>) {
        self.core.rename(socket, name.0, name.1);
    }

    fn detach(&mut self, socket: Key) {
        self.core.unname(socket);
    }

    fn reset(&mut self, socket: Key) {
        let Some(connection) = self.core.remove(socket) else { return };
        match connection.phase {
            Phase::Relaying(relay) => {
                let reset = !relay.is_over();
                relay.close(self.core.now, &mut self.core.reactor, reset);
            }
            Phase::Waiting(waiting) => waiting.end(&mut self.core.reactor),
            Phase::Bridged(_) => {}
        }
    }

    fn abandon(&mut self, socket: Key) {
        let connection = self.core.connections.get_mut(socket);
        if let Some(Phase::Relaying(relay)) = connection.map(|connection| &mut connection.phase) {
            relay.leave();
        }
        self.reset(socket);
    }

    fn splice(&mut self, target: &Target, bridge: Bridge<BaseAssociationId>) {
        self.core.add_bridge(target.to_string(), bridge);
    }

    fn dump(
        &mut self,
        session: SessionId,
        mobile: PublicKey,
        leaving: Vec<Name<Key>>,
    ) -> Option<Vec<(ConnId, Dumped<Key>)>> {
        let Self { core, means } = self;
        let Some(migration) = &mut means.migration else {
            return Some(leaving.into_iter().map(|(_, conn)| (conn, Dumped::Lost)).collect());
        };
        if leaving.is_empty() {
            migration.leave(session, mobile);
            return Some(Vec::new());
        }
        let mut relays: Vec<(ConnId, String, Relay)> = Vec::new();
        for (key, conn) in leaving {
            if let Some(connection) = core.remove(key)
                && let Phase::Relaying(relay) = connection.phase
            {
                relays.push((conn, connection.target, relay));
            }
        }
        migration.dump(&mut core.reactor, session, mobile, relays);
        None
    }

    fn restore(
        &mut self,
        session: SessionId,
        mobile: PublicKey,
        images: Vec<Vec<u8>>,
    ) -> Option<Vec<Option<Self::Made>>> {
        match &mut self.means.migration {
            Some(migration) if !images.is_empty() => {
                migration.restore(session, mobile, images);
                None
            }
            Some(migration) => {
                migration.stay(session);
                Some(Vec::new())
            }
            None => {
                let why = || Some(Err("this base does not migrate".to_owned()));
                Some(images.iter().map(|_| why()).collect())
            }
        }
    }

    fn reclaim(
        &mut self,
        session: SessionId,
        mobile: PublicKey,
        orphans: &[Orphan],
        silent: Duration,
    ) -> Option<Vec<Option<Reclaimed>>> {
        let migration = self.means.migration.as_mut().filter(|_| !orphans.is_empty());
        let begun = migration.is_some_and(|m| m.claim(session, mobile, orphans, silent));
        (!begun).then(Vec::new)
    }

    fn install(&mut self, id: BaseAssociationId, restored: Restored, made: Self::Made) {
        let Restored { conn, target, taken, read_done, ended } = restored;
        // The source needs the key, and the key the socket: the source is corrected after.
        let socket = made.and_then(|Exited { fd, held }| {
            tcp::tune_relayed(&fd);
            let socket = Socket::new(&mut self.core.reactor, fd, Source::Resolver);
            socket.map(|socket| (socket, held)).map_err(|e| e.to_string())
        });
        match socket {
            Ok((socket, Some(held))) if ended == Some(Ended::Abandoned) => {
                held.mute();
                socket.close(&mut self.core.reactor, true);
            }
            Ok((socket, held)) if ended.is_some() => {
                drop(held);
                socket.close(&mut self.core.reactor, ended != Some(Ended::Whole));
            }
            Ok((socket, held)) => {
                let relay = Relay::continued(conn, socket, taken, read_done);
                self.core.add_relay(target.to_string(), id, relay);
                self.hold_again(id, conn, held, taken + u64::from(read_done));
            }
            Err(error) => {
                tracing::warn!(connection = conn.0, %target, error, "connection lost in the handoff");
                if let Some((session, mut streams)) = self.core.session(id) {
                    session.reset(&mut streams, conn, ResetReason::AssociationLost);
                }
            }
        }
    }

    fn discard(&mut self, session: SessionId, images: Vec<Vec<u8>>) {
        if let Some(migration) = &mut self.means.migration {
            migration.discard(session, images);
        }
    }

    fn reroute(&mut self, session: SessionId, mobile: Option<PublicKey>, to: PublicKey) {
        let via = self.means.peer(to).map(|peer| peer.via);
        if let Some(mobile) = mobile {
            self.means.strays.leave(mobile, to);
        }
        if let Some(migration) = &mut self.means.migration {
            migration.handle_given(session, mobile, via);
        }
    }

    fn end_move(&mut self, mobile: PublicKey) {
        self.means.strays.stay(mobile);
        if let Some(migration) = &mut self.means.migration {
            migration.end_move_whole(self.core.now, mobile);
        }
    }

    fn release_mobile(&mut self, mobile: PublicKey) {
        if let Some(migration) = &mut self.means.migration {
            migration.release_mobile(mobile);
        }
    }

    fn is_ready(&self) -> bool {
        self.means.is_ready()
    }
}

/// What happened so far, for a report.
pub(super) fn counters(counts: Counts) -> Counters {
    let Counts { here, given, anchored, migrated, lost, refused, orphans_taken, orphans_lost } =
        counts;
    Counters { here, given, anchored, migrated, lost, refused, orphans_taken, orphans_lost }
}
