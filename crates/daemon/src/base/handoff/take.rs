//! The new base's part: a session comes, and its connections find their sockets.

use lasthop_hop::RecvState;
use lasthop_hop::seal::PublicKey;
use lasthop_kernel::slab::Key;
use lasthop_kernel::tcp::{self, Socket};
use lasthop_kernel::turn::Source;
use lasthop_migrate::Image;
use lasthop_session::handoff::ConnectionState;
use lasthop_session::{ConnId, ResetReason, SessionId, SessionState};

use super::wired::{Wired, merge};
use super::{BaseHop, CHORE_DELAY, Chore, Core, Handoffs};
use crate::backhaul::Way;
use crate::base::exits::bound_unread;
use crate::bridge::Bridge;
use crate::driver::Phase;
use crate::relay::Relay;

/// Connections of a session that has come, with their sockets as they were in another kernel.
pub(super) struct Homecoming<I> {
    id: I,
    session: SessionId,
    mobile: PublicKey,
    images: Vec<(Homeless, Image)>,
}

/// A connection that has yet to find its socket.
struct Homeless {
    conn: ConnId,
    target: String,
    /// The fixed host's end has come.
    read_done: bool,
}

impl<H: BaseHop> Handoffs<H> {
    /// Makes a session anew from its state.
    pub(super) fn take(&mut self, core: &mut Core<H>, state: SessionState, mobile: PublicKey) {
        let (now, session) = (core.now, state.session);
        tracing::debug!(%session, bytes = state.encoded_len(), "session state received");
        if let Some((waiting, _)) = self.calling.get_mut(&mobile) {
            *waiting = Some(state);
            return;
        }
        let Some(id) = self.present.get(&mobile).copied() else {
            tracing::warn!(%session, "the mobile left during the handoff: its connections are reset");
            self.discard(core, state);
            return self.machine.rebuilt(now, session, false);
        };
        let mut state = state;
        let wired: Vec<(Homeless, Option<Wired>)> =
            state.connections.iter_mut().map(unwire).collect();
        let home = self.come_home(core, &mut state, &wired);
        if let Some((own, _)) = core.session(id) {
            own.adopt(now, state);
        }
        self.names.insert(mobile, session);
        self.settled(mobile);
        let mut images = Vec::new();
        for (homeless, wired) in wired {
            match wired {
                None => {}
                Some(Wired::Image(image)) => images.push((homeless, *image)),
                Some(Wired::Lost) => {
                    Self::break_off(core, id, homeless.conn, ResetReason::AssociationLost);
                }
                Some(Wired::Anchor { base, .. }) if base == self.own => {
                    let key = home.iter().find(|(conn, _)| *conn == homeless.conn);
                    self.revive(core, id, homeless, key.map(|(_, key)| *key));
                }
                Some(Wired::Anchor { base, far }) => {
                    self.bridge(core, id, session, homeless, base, *far);
                }
            }
        }
        let chore = Chore::Restore(Homecoming { id, session, mobile, images });
        self.chores.push_back((now + CHORE_DELAY, chore));
        self.counters.here += 1;
        self.machine.rebuilt(now, session, true);
    }

    /// Sockets of the session that are here already. Their connections take up what was on its way
    /// between here and the base that had the session.
    fn come_home(
        &mut self,
        core: &mut Core<H>,
        state: &mut SessionState,
        wired: &[(Homeless, Option<Wired>)],
    ) -> Vec<(ConnId, Key)> {
        let Some((here, mut sockets)) = self.recall(core, state.session) else { return Vec::new() };
        let mut home = Vec::new();
        for (homeless, wired) in wired {
            let Some(Wired::Anchor { base, far }) = wired else { continue };
            let own = here.connections.iter().find(|c| c.id == homeless.conn.0);
            let (true, Some(own)) = (*base == self.own, own) else { continue };
            let near = state.connections.iter_mut().find(|c| c.id == homeless.conn.0);
            let Some(near) = near else { continue };
            let (Some(merged), Some(key)) =
                (merge(near.clone(), far, own), sockets.remove(&homeless.conn))
            else {
                continue;
            };
            *near = merged;
            home.push((homeless.conn, key));
        }
        // What the other base did not give back is over.
        Self::reset_sockets(core, sockets.into_values());
        home
    }

    /// A connection goes on with a socket that was kept here.
    fn revive(&self, core: &mut Core<H>, id: Way<H::Id>, homeless: Homeless, key: Option<Key>) {
        let alive = key.filter(|key| {
            let connection = core.connections.get(*key);
            connection.is_some_and(|c| matches!(c.phase, Phase::Relaying(_)))
        });
        match alive {
            Some(key) => core.rename(key, id, homeless.conn),
            None => Self::break_off(core, id, homeless.conn, ResetReason::AssociationLost),
        }
    }

    /// A connection goes on with a socket that another base keeps.
    fn bridge(
        &mut self,
        core: &mut Core<H>,
        id: Way<H::Id>,
        session: SessionId,
        homeless: Homeless,
        base: PublicKey,
        far: ConnectionState,
    ) {
        let Homeless { conn, target, .. } = homeless;
        let now = core.now;
        let part = self.far(core, session, base);
        let imported = part.is_some_and(|part| {
            core.session(Way::Link(part)).is_some_and(|(own, _)| own.import(now, far))
        });
        let Some(part) = part.filter(|_| imported) else {
            let base = self.name_of(base);
            tracing::warn!(
                connection = conn.0,
                base,
                "anchor: the base with the socket is not a peer of this one"
            );
            return Self::break_off(core, id, conn, ResetReason::AssociationLost);
        };
        core.add_bridge(target, Bridge::new((id, conn), (Way::Link(part), conn)));
    }

    /// Connections go on with their sockets, which came along.
    pub(super) fn restore(&mut self, core: &mut Core<H>, homecoming: Homecoming<Way<H::Id>>) {
        let Homecoming { id, session, mobile, images } = homecoming;
        let (homeless, images): (Vec<_>, Vec<_>) = images.into_iter().unzip();
        let outcomes = match &mut self.migration {
            Some(migration) => migration.restore(session, mobile, &images),
            None => images.iter().map(|_| Err("this base does not migrate".to_owned())).collect(),
        };
        if let Some(migration) = &mut self.migration {
            migration.settle_whole(core.now, mobile);
        }
        for (Homeless { conn, target, read_done }, outcome) in homeless.into_iter().zip(outcomes) {
            // The source needs the key, and the key the socket: the source is corrected after.
            let socket = outcome.and_then(|fd| {
                tcp::tune_relayed(&fd);
                bound_unread(&fd);
                Socket::new(&mut core.reactor, fd, Source::Resolver).map_err(|e| e.to_string())
            });
            match socket {
                // Its connection may have ended while it was made.
                Ok(socket) if !Self::is_alive(core, id, conn) => {
                    socket.close(&mut core.reactor, true);
                }
                Ok(socket) => {
                    core.add_relay(target, id, Relay::continued(conn, socket, read_done));
                }
                Err(error) => {
                    tracing::warn!(
                        connection = conn.0,
                        target,
                        error,
                        "connection lost in the handoff"
                    );
                    Self::break_off(core, id, conn, ResetReason::AssociationLost);
                }
            }
        }
    }

    fn is_alive(core: &mut Core<H>, id: Way<H::Id>, conn: ConnId) -> bool {
        core.session(id).is_some_and(|(session, streams)| {
            !matches!(session.recv_state(&streams, conn), RecvState::Reset(_))
        })
    }

    /// Nobody came for a frozen session: its connections are reset, and so their fixed hosts are told.
    pub(super) fn on_expired(&mut self, core: &mut Core<H>, state: SessionState) {
        tracing::warn!(session = %state.session, "no mobile claimed a session: its connections are reset");
        self.counters.lost += 1;
        self.discard(core, state);
    }

    fn discard(&mut self, core: &mut Core<H>, mut state: SessionState) {
        let session = state.session;
        if let Some((_, sockets)) = self.recall(core, session) {
            Self::reset_sockets(core, sockets.into_values());
        }
        let wired = state.connections.iter_mut().filter_map(|c| unwire(c).1);
        let images: Vec<Image> = wired
            .filter_map(|wired| match wired {
                Wired::Image(image) => Some(*image),
                Wired::Anchor { .. } | Wired::Lost => None,
            })
            .collect();
        if let Some(migration) = &mut self.migration {
            // A socket that is made anew and closed tells its fixed host.
            migration.discard(session, &images);
        }
    }
}

/// What a connection brings along.
fn unwire(connection: &mut ConnectionState) -> (Homeless, Option<Wired>) {
    let wired = std::mem::take(&mut connection.wired);
    let homeless = Homeless {
        conn: ConnId(connection.id),
        target: connection.target.to_string(),
        read_done: connection.down.ended,
    };
    (homeless, Wired::decode(&wired))
}
