//! The new base's part: a session comes, and its connections find their wired halves.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::fmt::Debug;

use lasthop_units::Time;
use lasthop_wire::mhp::Target;

use super::wired::{self, Wired, join, merge};
use super::{Bridge, Deferred, Ended, NoteKind, Restored, SocketState, Station, Wires};
use crate::handoff::{self, Address, Authority, ConnectionState, Direction, Stage};
use crate::{ConnId, SessionId, SessionState};

/// Connections of a session that has come, and whose wired halves are made anew.
#[derive(Debug)]
pub(super) struct Restoring<A, I> {
    pub(super) id: I,
    pub(super) session: SessionId,
    pub(super) mobile: A,
    connections: Vec<Restored>,
    /// The wired halves as they were elsewhere, in the order of the connections; none once they are being
    /// made.
    pub(super) images: Vec<Vec<u8>>,
    /// The session is over, and its wired halves are reset.
    pub(super) over: bool,
}

impl<A, I: Copy + Eq> Restoring<A, I> {
    fn mark_ended(&mut self, id: I, conn: ConnId, how: Ended) {
        let mut connections = self.connections.iter_mut();
        if self.id == id
            && let Some(restored) = connections.find(|restored| restored.conn == conn)
        {
            restored.ended.get_or_insert(how);
        }
    }

    /// The session is over here.
    pub(super) fn end(&mut self) {
        self.over = true;
        for restored in &mut self.connections {
            restored.ended = Some(Ended::Abandoned);
        }
    }
}

/// A connection that has yet to find its wired half.
struct Unwired<A> {
    conn: ConnId,
    target: Target,
    /// Bytes of the fixed host's that have come, and whether its end has.
    taken: u64,
    read_done: bool,
    /// Where that half is; `None` if there is none yet.
    wired: Option<Wired<A>>,
}

impl<A: Address> Unwired<A> {
    fn of(connection: &mut ConnectionState) -> Self {
        let wired = core::mem::take(&mut connection.wired);
        Self {
            conn: ConnId(connection.id),
            target: connection.target.clone(),
            taken: connection.down.end(),
            read_done: connection.down.ended,
            wired: Wired::decode(&wired),
        }
    }
}

impl<A, T, I, S> Station<A, T, I, S>
where
    A: Address + Ord,
    T: Authority<A>,
    I: Copy + Ord + Debug,
    S: Copy,
{
    /// A state has come: its session is made anew, at once or as soon as the mobile is here.
    pub(super) fn take(
        &mut self,
        world: &mut impl Wires<A, I, S>,
        now: Time,
        state: SessionState,
        mobile: A,
    ) {
        self.note(state.session, NoteKind::Received(state.encoded_len()));
        if self.mobiles.entry(mobile).call.is_none() {
            return self.rebuild(world, now, state, mobile);
        }
        self.link_early(world, now, state.session, wired::anchors(&state));
        if let Some(call) = &mut self.mobiles.entry(mobile).call {
            call.state = Some(state);
        }
    }

    /// Makes a session anew from its state.
    pub(super) fn rebuild<W: Wires<A, I, S>>(
        &mut self,
        world: &mut W,
        now: Time,
        mut state: SessionState,
        mobile: A,
    ) {
        let session = state.session;
        let known = self.mobiles.entry(mobile);
        let Some(id) = known.at else {
            self.mobiles.remove_if_unknown(mobile);
            self.note(session, NoteKind::MobileLeft);
            self.recall_far(world, now, session);
            self.discard(world, now, state);
            return self.machine.rebuilt(now, session, false);
        };
        let unwired: Vec<Unwired<A>> = state.connections.iter_mut().map(Unwired::of).collect();
        let mut home = self.reclaim_wired(world, now, &mut state, &unwired);
        let hop = core::mem::take(&mut state.hop);
        if let Some((own, _)) = world.session(id) {
            own.adopt(now, state);
            own.set_handoff(self.machine.attempt(session));
        }
        world.adopt_hop_state(id, &hop);
        self.mobiles.name(mobile, session);
        self.stands(mobile);
        let (mut connections, mut images) = (Vec::new(), Vec::new());
        for Unwired { conn, target, taken, read_done, wired } in unwired {
            match wired {
                None => Self::release_ahead(world, id, conn),
                Some(Wired::Image(image)) => {
                    connections.push(Restored { conn, target, taken, read_done, ended: None });
                    images.push(image);
                }
                Some(Wired::Lost) => Self::reset(world, id, conn),
                Some(Wired::Anchor { base, .. }) if base == self.own => match home.remove(&conn) {
                    Some(None) => Self::release_ahead(world, id, conn),
                    Some(Some(socket)) if world.state(socket) == Some(SocketState::Relays) => {
                        world.attach(socket, (id, conn));
                    }
                    _ => Self::reset(world, id, conn),
                },
                Some(Wired::Anchor { base, far }) => {
                    self.bridge(world, now, (id, conn), session, &target, base, *far);
                }
            }
        }
        self.use_links(world, now, session);
        for (conn, socket) in home {
            socket.into_iter().for_each(|socket| world.attach(socket, (id, conn)));
        }
        let restoring = Restoring { id, session, mobile, connections, images, over: false };
        self.deferred.push_back((now + W::DEFERRAL, Deferred::Restore(restoring)));
        self.counts.here += 1;
        self.machine.rebuilt(now, session, true);
    }

    /// Wired halves of the session that are here already, or none where all was passed on. Their
    /// connections take up what was on its way between here and the base that had the session.
    fn reclaim_wired(
        &mut self,
        world: &mut impl Wires<A, I, S>,
        now: Time,
        state: &mut SessionState,
        unwired: &[Unwired<A>],
    ) -> BTreeMap<ConnId, Option<S>> {
        let mut home = BTreeMap::new();
        let Some((here, mut sockets)) = self.recall(world, now, state.session) else { return home };
        for Unwired { conn, wired, .. } in unwired {
            let Some(Wired::Anchor { base, far }) = wired else { continue };
            let near = state.connections.iter_mut().find(|c| c.id == conn.0);
            let (true, Some(near)) = (*base == self.own, near) else { continue };
            let own = here.connections.iter().find(|c| c.id == conn.0);
            let Some(own) = own else {
                // The fixed host has all, and what it sent is on its way to the mobile.
                let whole = |ended: &&handoff::Ended| ended.id == conn.0 && ended.reset.is_none();
                let ended = here.ended.iter().rev().find(whole);
                if let Some(down) = ended.and_then(|_| join([&near.down, &far.down])) {
                    let start = near.up.end();
                    near.up = Direction { start, bytes: Vec::new(), ended: true };
                    near.down = Direction { ended: true, ..down };
                    home.insert(*conn, None);
                }
                continue;
            };
            let (Some(merged), Some(socket)) =
                (merge(near.clone(), far, own), sockets.remove(conn))
            else {
                continue;
            };
            *near = merged;
            home.insert(*conn, Some(socket));
        }
        // What the other base did not give back is over there. Its last bytes may have yet to go to the
        // fixed host.
        for (conn, socket) in sockets {
            let own = here.connections.iter().find(|c| c.id == conn.0 && c.up.ended);
            let Some(own) = own.filter(|_| world.state(socket) == Some(SocketState::Relays)) else {
                world.reset(socket);
                continue;
            };
            let near = state.connections.iter_mut().find(|c| c.id == conn.0);
            let whole = match &near {
                // The mobile has yet to take the last bytes, and nothing was on its way between bases.
                Some(near) => {
                    let nothing = |start| Direction { start, bytes: Vec::new(), ended: true };
                    let (up, down) = (nothing(near.up.start), nothing(near.down.end()));
                    merge((*near).clone(), &ConnectionState { up, down, ..own.clone() }, own)
                }
                None => Some(rest_of(own)),
            };
            match (near, whole) {
                (Some(near), Some(whole)) => *near = whole,
                (None, Some(whole)) => state.connections.push(whole),
                (_, None) => {
                    world.reset(socket);
                    continue;
                }
            }
            home.insert(conn, Some(socket));
        }
        home
    }

    /// A connection goes on with a wired half that another base keeps.
    #[expect(clippy::too_many_arguments, reason = "each is a different thing")]
    fn bridge(
        &mut self,
        world: &mut impl Wires<A, I, S>,
        now: Time,
        near: (I, ConnId),
        session: SessionId,
        target: &Target,
        anchor: A,
        far: ConnectionState,
    ) {
        let conn = near.1;
        let link = self.far(world, now, session, anchor);
        let imported = link
            .is_some_and(|link| world.session(link).is_some_and(|(own, _)| own.import(now, far)));
        let Some(link) = link.filter(|_| imported) else {
            self.note(session, NoteKind::AnchorUnknown(anchor, conn));
            return Self::reset(world, near.0, conn);
        };
        world.splice(target, Bridge::new(near, (link, conn)));
    }

    /// The fixed host has all of a connection that is yet to end at the mobile.
    fn release_ahead(world: &mut impl Wires<A, I, S>, id: I, conn: ConnId) {
        if let Some((session, mut streams)) = world.session(id) {
            session.release_ahead(&mut streams, conn);
        }
    }

    /// A connection that has come has ended; its wired half may still have to be made.
    pub(super) fn mark_ended(&mut self, id: I, conn: ConnId, how: Ended) {
        self.all_restoring().for_each(|restoring| restoring.mark_ended(id, conn, how));
    }

    /// What is being made anew, or is yet to be.
    fn all_restoring(&mut self) -> impl Iterator<Item = &mut Restoring<A, I>> {
        let deferred = self.deferred.iter_mut().filter_map(|(_, deferred)| match deferred {
            Deferred::Restore(restoring) => Some(restoring),
            Deferred::Reroute { .. } => None,
        });
        deferred.chain(&mut self.restoring)
    }

    /// Of connections that are carried on over an association, some have no wired half any more.
    pub(super) fn release_unwired(
        &mut self,
        world: &mut impl Wires<A, I, S>,
        id: I,
        mut connections: BTreeSet<u64>,
    ) {
        let restoring = self.all_restoring().filter(|restoring| restoring.id == id);
        for restored in restoring.flat_map(|restoring| &restoring.connections) {
            connections.remove(&restored.conn.0);
        }
        for (conn, _) in world.wired(id) {
            connections.remove(&conn.0);
        }
        connections.into_iter().for_each(|conn| Self::release_ahead(world, id, ConnId(conn)));
    }

    /// Has wired halves of a session that has come made anew.
    pub(super) fn restore(
        &mut self,
        world: &mut impl Wires<A, I, S>,
        mut restoring: Restoring<A, I>,
    ) {
        let images = core::mem::take(&mut restoring.images);
        match world.restore(restoring.session, restoring.mobile, images) {
            Some(made) => self.install(world, restoring, made),
            None => self.restoring.push_back(restoring),
        }
    }

    /// Wired halves were made anew, as [`Wires::restore`] was asked to.
    pub fn handle_restored<W: Wires<A, I, S>>(
        &mut self,
        world: &mut W,
        session: SessionId,
        made: Vec<Option<W::Made>>,
    ) {
        let at = self.restoring.iter().position(|restoring| restoring.session == session);
        if let Some(restoring) = at.and_then(|at| self.restoring.remove(at)) {
            self.install(world, restoring, made);
        }
    }

    fn install<W: Wires<A, I, S>>(
        &self,
        world: &mut W,
        restoring: Restoring<A, I>,
        made: Vec<Option<W::Made>>,
    ) {
        let Restoring { id, mobile, connections, over, .. } = restoring;
        let mut made = made.into_iter();
        for restored in connections {
            match made.next().flatten() {
                Some(half) => world.install(id, restored, half),
                None if over => {}
                None => Self::reset(world, id, restored.conn),
            }
        }
        // A mobile that has left meanwhile may be anywhere.
        if self.mobiles.at(mobile).is_some() {
            world.end_move(mobile);
        }
    }

    /// Whether wired halves of a session are being made.
    pub(super) fn is_restoring(&self, session: SessionId) -> bool {
        self.restoring.iter().any(|restoring| restoring.session == session && !restoring.over)
    }

    /// Resets a session's connections, and so their fixed hosts are notified.
    pub(super) fn discard(
        &mut self,
        world: &mut impl Wires<A, I, S>,
        now: Time,
        mut state: SessionState,
    ) {
        let session = state.session;
        if let Some((_, sockets)) = self.recall(world, now, session) {
            sockets.into_values().for_each(|socket| world.reset(socket));
        }
        let wired = state.connections.iter_mut().map(|c| Unwired::<A>::of(c).wired);
        let images = wired.filter_map(|wired| match wired {
            Some(Wired::Image(image)) => Some(image),
            _ => None,
        });
        world.discard(session, images.collect());
    }
}

/// A connection that is over for the mobile, with bytes for the fixed host.
fn rest_of(own: &ConnectionState) -> ConnectionState {
    let down = Direction { start: own.down.end(), bytes: Vec::new(), ended: true };
    ConnectionState { stage: Stage::Over, down, ..own.clone() }
}
