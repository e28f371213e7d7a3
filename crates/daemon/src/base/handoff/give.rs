//! The old base's part: a session leaves, with its sockets or without.

use std::collections::BTreeMap;

use lasthop_hop::seal::PublicKey;
use lasthop_kernel::slab::Key;
use lasthop_migrate::MigrateError;
use lasthop_session::handoff::ConnectionState;
use lasthop_session::{ConnId, SessionId, left_over};
use lasthop_units::Bytes;

use super::wired::Wired;
use super::{BaseHop, Core, Fallback, HELPER_PATIENCE, Handoffs, Mode};
use crate::backhaul::Way;
use crate::driver::Phase;
use crate::relay::Relay;

/// What is copied ahead of a handoff, at most.
const PREVIEW_MAX: Bytes = Bytes::from_mib(1);

/// What becomes of one connection's socket.
#[derive(Debug)]
enum Fate {
    /// It stays and waits.
    Stays,
    /// It is dumped.
    Leaves,
    /// It is reset.
    Lost,
}

impl<H: BaseHop> Handoffs<H> {
    /// Stops using a session and hands its state to the machine.
    pub(super) fn give(
        &mut self,
        core: &mut Core<H>,
        session: SessionId,
        mobile: Option<PublicKey>,
    ) {
        let now = core.now;
        if self.is_unhelped() {
            let until = now + HELPER_PATIENCE;
            let (_, until) = *self.unhelped.entry(session).or_insert((mobile, until));
            if now < until {
                return;
            }
        }
        self.unhelped.remove(&session);
        self.do_chores(core, None);
        if self.machine.stays(now, session) {
            // The mobile itself came back: what it wants to carry on is here.
            return mobile.into_iter().for_each(|mobile| self.look_again(core, mobile));
        }
        let state = mobile.and_then(|mobile| self.freeze(core, session, mobile));
        if let Some(state) = &state {
            for c in &state.connections {
                let (up, down) = (c.up.bytes.len(), c.down.bytes.len());
                tracing::debug!(
                    connection = c.id,
                    up,
                    down,
                    wired = c.wired.len(),
                    "what it holds"
                );
            }
            let connections = state.connections.len();
            tracing::debug!(%session, bytes = state.encoded_len(), connections, "session frozen");
        }
        self.machine.frozen(now, session, state);
    }

    /// Gives sessions that have waited for the helper long enough, or until it is back. One whose
    /// mobile has come back meanwhile need not leave.
    pub(super) fn end_waits_for_helper(&mut self, core: &mut Core<H>) {
        let waiting: Vec<_> = self.unhelped.iter().map(|(name, wait)| (*name, *wait)).collect();
        for (session, (mobile, until)) in waiting {
            if self.machine.stays(core.now, session) {
                self.unhelped.remove(&session);
                mobile.into_iter().for_each(|mobile| self.look_again(core, mobile));
            } else if until <= core.now || !self.is_unhelped() {
                self.give(core, session, mobile);
            }
        }
    }

    fn freeze(
        &mut self,
        core: &mut Core<H>,
        session: SessionId,
        mobile: PublicKey,
    ) -> Option<lasthop_session::SessionState> {
        let now = core.now;
        let id = self.present.get(&mobile).copied()?;
        // A mobile has one session here. Under another name it is not the one that is meant.
        if self.names.get(&mobile) != Some(&session) {
            return None;
        }
        self.away.insert(mobile);
        let mut far = self.recall_far(core, session);
        let (own, mut streams) = core.session(id)?;
        let mut state = own.freeze(now, &mut streams, session);
        let keys: BTreeMap<ConnId, Key> = core.connections_of(id).into_iter().collect();
        let mut left = Vec::new();
        let mut sockets = BTreeMap::new();
        let mut leaving = Vec::new();
        for connection in &mut state.connections {
            let conn = ConnId(connection.id);
            if let Some((base, far)) = far.remove(&conn) {
                let far = Box::new(far);
                connection.wired = Wired::Anchor { base, far }.encode(session);
                continue;
            }
            let Some(key) = keys.get(&conn).copied() else { continue };
            match self.fate(core, mobile, key) {
                None => {}
                Some(Fate::Lost) => connection.wired = Wired::Lost.encode(session),
                Some(Fate::Stays) => {
                    connection.wired = self.stay(core, session, key, connection, &mut left);
                    sockets.insert(conn, key);
                }
                Some(Fate::Leaves) => leaving.push((conn, key)),
            }
        }
        // What is over for the mobile, with bytes that the socket's base does not have yet.
        for (base, far) in far.into_values() {
            let mut connection = left_over(&far);
            connection.wired = Wired::Anchor { base, far: Box::new(far) }.encode(session);
            state.connections.push(connection);
        }
        self.dump(
            core,
            session,
            mobile,
            leaving,
            &mut state.connections,
            |base, core, connection, key| {
                connection.wired = base.stay(core, session, key, connection, &mut left);
                sockets.insert(ConnId(connection.id), key);
            },
        );
        for (conn, key) in keys {
            if !sockets.contains_key(&conn) {
                Self::abandon(core, key);
            }
        }
        self.counters.anchored += sockets.len() as u64;
        self.keep(now, session, mobile, left, sockets);
        Some(state)
    }

    /// What becomes of a connection's socket; `None` if it has none that is of use.
    fn fate(&self, core: &mut Core<H>, mobile: PublicKey, key: Key) -> Option<Fate> {
        let connection = core.connections.get(key)?;
        let Phase::Relaying(relay) = &connection.phase else { return None };
        if relay.is_over() {
            return None;
        }
        let migrates = self.config.mode == Mode::Migrate
            && self.migration.as_ref().is_some_and(|m| m.moves(mobile, &relay.socket.fd));
        Some(match (migrates, self.config.mode, self.config.fallback) {
            (true, ..) => Fate::Leaves,
            (false, Mode::Migrate, Fallback::Reset) => Fate::Lost,
            _ => Fate::Stays,
        })
    }

    /// A connection's socket stays here; what the new base is told of it.
    fn stay(
        &self,
        core: &mut Core<H>,
        session: SessionId,
        key: Key,
        connection: &ConnectionState,
        left: &mut Vec<ConnectionState>,
    ) -> Vec<u8> {
        core.unname(key);
        let up_done = match core.connections.get(key).map(|c| &c.phase) {
            Some(Phase::Relaying(relay)) => relay.is_write_done(),
            _ => false,
        };
        let (here, wired) = self.anchored(connection, up_done);
        left.push(here);
        wired.encode(session)
    }

    /// Dumps the sockets that leave. One that cannot leave is reset, or, if it needs no packets any
    /// more, given to `stay`.
    fn dump(
        &mut self,
        core: &mut Core<H>,
        session: SessionId,
        mobile: PublicKey,
        leaving: Vec<(ConnId, Key)>,
        connections: &mut [ConnectionState],
        mut stay: impl FnMut(&Self, &mut Core<H>, &mut ConnectionState, Key),
    ) {
        let Some(mut migration) = self.migration.take() else { return };
        if leaving.is_empty() {
            // The next connections of its addresses are made elsewhere.
            migration.hush(mobile);
        }
        let mut relays: Vec<(ConnId, String, Relay)> = Vec::new();
        for (conn, key) in leaving {
            if let Some(connection) = core.remove(key)
                && let Phase::Relaying(relay) = connection.phase
            {
                relays.push((conn, connection.target, relay));
            }
        }
        let images = migration.dump(&mut core.reactor, session, mobile, relays);
        let (helped, mut lost) = (!migration.is_unhelped(), 0);
        for (conn, target, outcome) in images {
            let Some(connection) = connections.iter_mut().find(|c| c.id == conn.0) else {
                continue;
            };
            match outcome {
                Ok(image) => {
                    self.counters.migrated += 1;
                    connection.wired = Wired::Image(image).encode(session);
                }
                Err((relay, error)) => {
                    // What is over only has something left to read.
                    let stays = matches!(error, MigrateError::Over)
                        && self.config.fallback == Fallback::Anchor;
                    if helped {
                        let target = &target;
                        tracing::warn!(connection = conn.0, target, %error, "connection cannot migrate");
                    }
                    match relay {
                        Some(relay) if stays => {
                            let key = core.park(target, relay);
                            stay(self, core, connection, key);
                        }
                        // Its packets go with its address, and would never come to it again.
                        relay => {
                            lost += 1;
                            connection.wired = Wired::Lost.encode(session);
                            if let Some(relay) = relay {
                                relay.socket.close(&mut core.reactor, true);
                            }
                        }
                    }
                }
            }
        }
        if lost > 0 {
            tracing::warn!(%session, connections = lost, helped, "connections that cannot migrate are reset");
        }
        self.migration = Some(migration);
    }

    /// Gives up what a connection did: it begins anew elsewhere, or is over.
    pub(super) fn abandon(core: &mut Core<H>, key: Key) {
        let Some(connection) = core.remove(key) else { return };
        match connection.phase {
            // Both ends are done, or nobody wants it to go on.
            Phase::Relaying(relay) => {
                let reset = !relay.is_over();
                relay.socket.close(&mut core.reactor, reset);
            }
            Phase::Waiting(waiting) => waiting.end(&mut core.reactor),
            Phase::Bridged(_) => {}
        }
    }

    /// Shows the machine what a session holds, to be sent ahead of a handoff.
    pub(super) fn copy(&mut self, core: &mut Core<H>, session: SessionId) {
        let now = core.now;
        let mobile = self.mobile_of(session);
        let id = mobile.and_then(|mobile| self.present.get(&mobile).copied());
        let state = id.and_then(|id: Way<H::Id>| {
            let (own, streams) = core.session(id)?;
            Some(own.preview(&streams, session, PREVIEW_MAX))
        });
        self.machine.copied(now, session, state);
    }
}
