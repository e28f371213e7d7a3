//! The old base's part: a session leaves, with its wired halves or without.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::fmt::Debug;

use lasthop_units::{Bytes, Time, gather};

use super::wired::{Wired, emptied};
use super::{Dumped, Fate, NoteKind, READY_PATIENCE, Station, Wires};
use crate::handoff::{Address, Authority, ConnectionState};
use crate::{ConnId, Session, SessionId, SessionState, left_over};

/// What is copied ahead of a handoff, at most.
const PREVIEW_MAX: Bytes = Bytes::from_mib(1);

/// Bytes on their way that a state holds.
fn held(state: &SessionState) -> Bytes {
    state.connections.iter().map(|c| c.up.bytes.len() + c.down.bytes.len()).sum::<usize>().into()
}

/// A session that is requested while wired halves cannot leave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delayed<A> {
    /// In whose name.
    mobile: Option<A>,
    /// Then it leaves without them.
    pub(super) until: Time,
}

/// Whether the fixed host has all that the mobile sent, its end included.
fn is_written(connection: &ConnectionState) -> bool {
    connection.up.ended && connection.up.bytes.is_empty()
}

/// A session that is frozen, and whose wired halves are being dumped.
#[derive(Debug)]
pub(super) struct Leaving<A, S> {
    pub(super) session: SessionId,
    pub(super) mobile: A,
    state: SessionState,
    left: AnchoredConnections<S>,
    /// The session is over meanwhile, and its wired halves are reset.
    over: bool,
}

/// What became of a session that was to be frozen.
enum Frozen {
    /// Its state; nothing if there is no such session here.
    Now(Option<SessionState>),
    /// Its wired halves are being dumped.
    Later,
}

/// Connections whose wired halves stay here, as they are left here.
#[derive(Debug)]
struct AnchoredConnections<S> {
    connections: Vec<ConnectionState>,
    sockets: BTreeMap<ConnId, S>,
}

impl<A, T, I, S> Station<A, T, I, S>
where
    A: Address + Ord,
    T: Authority<A>,
    I: Copy + Ord + Debug,
    S: Copy,
{
    /// Stops using a session and hands its state to the machine.
    pub(super) fn give(
        &mut self,
        world: &mut impl Wires<A, I, S>,
        now: Time,
        session: SessionId,
        mobile: Option<A>,
    ) {
        if !world.is_ready() {
            let delayed = Delayed { mobile, until: now + READY_PATIENCE };
            if now < self.delayed.entry(session).or_insert(delayed).until {
                return;
            }
        }
        let waited = self.delayed.remove(&session);
        if self.leaving.iter().any(|leaving| leaving.session == session && !leaving.over) {
            // Whoever wants it gets it once its wired halves are dumped.
            return;
        }
        // Where no grants are required its owner is not known.
        let mobile = mobile.or_else(|| self.mobiles.with_session(session));
        let id = mobile.filter(|mobile| self.mobiles.get(*mobile).is_some_and(|m| !m.away));
        let id = id.and_then(|mobile| self.mobiles.at(mobile));
        let resumed_in = id.and_then(|id| world.peek(id)).map_or(0, Session::resumed_in);
        if self.machine.overtaken(session, resumed_in) {
            return;
        }
        self.run_deferred(world, None);
        if self.is_restoring(session) {
            let until = waited.map_or(now + READY_PATIENCE, |waited| waited.until);
            self.delayed.insert(session, Delayed { mobile, until });
            return;
        }
        if self.machine.stays(now, session) {
            // The mobile itself came back: what it wants to carry on is here.
            return mobile.into_iter().for_each(|mobile| self.handle_return(world, now, mobile));
        }
        let frozen = mobile.map(|mobile| self.freeze(world, now, session, mobile));
        if let Frozen::Now(state) = frozen.unwrap_or(Frozen::Now(None)) {
            self.hand_over(now, session, state);
        }
    }

    fn hand_over(&mut self, now: Time, session: SessionId, state: Option<SessionState>) {
        if let Some(state) = &state {
            self.note(session, NoteKind::Frozen(state.encoded_len()));
        }
        self.machine.frozen(now, session, state);
    }

    /// A mobile's session stays here. One that says so over the association that it has waits for no
    /// other, and neither does what has come for it.
    fn handle_return(&mut self, world: &mut impl Wires<A, I, S>, now: Time, mobile: A) {
        if self.mobiles.get(mobile).is_some_and(|known| known.greeted && known.at.is_some()) {
            self.end_call(world, now, mobile);
        }
        self.resume_in_place(world, now, mobile);
    }

    /// Gives sessions that have waited long enough, or until it is possible. One whose mobile has come
    /// back meanwhile need not leave.
    pub(super) fn end_delays(&mut self, world: &mut impl Wires<A, I, S>, now: Time) {
        let delayed: Vec<_> = self.delayed.iter().map(|(name, wait)| (*name, *wait)).collect();
        for (session, Delayed { mobile, until }) in delayed {
            if self.machine.stays(now, session) {
                self.delayed.remove(&session);
                mobile.into_iter().for_each(|mobile| self.handle_return(world, now, mobile));
            } else if until <= now || world.is_ready() {
                self.give(world, now, session, mobile);
            }
        }
    }

    fn freeze(
        &mut self,
        world: &mut impl Wires<A, I, S>,
        now: Time,
        session: SessionId,
        mobile: A,
    ) -> Frozen {
        let Some(known) = self.mobiles.get_mut(mobile) else { return Frozen::Now(None) };
        let waiting = known.call.as_mut().and_then(|call| call.state.take());
        if let Some(state) = waiting.filter(|state| state.session == session) {
            // It was not used here: the mobile has gone on before its association stood.
            self.recall_far(world, now, session);
            return Frozen::Now(Some(state));
        }
        // A mobile has one session here. Under another name it is not the one that is meant.
        let Some(id) = known.at.filter(|_| known.session == Some(session)) else {
            return Frozen::Now(None);
        };
        known.away = true;
        // What an earlier life of the session left here is nobody's.
        if let Some((_, sockets)) = self.recall(world, now, session) {
            sockets.into_values().for_each(|socket| world.reset(socket));
        }
        let mut far = self.recall_far(world, now, session);
        let hop = world.hop_state(id);
        let Some((own, mut streams)) = world.session(id) else { return Frozen::Now(None) };
        let mut state = SessionState { hop, ..own.freeze(now, &mut streams, session) };
        let wired: BTreeMap<ConnId, S> = gather(world.wired(id));
        let mut left = AnchoredConnections { connections: Vec::new(), sockets: BTreeMap::new() };
        let mut leaving = Vec::new();
        for connection in &mut state.connections {
            let conn = ConnId(connection.id);
            if let Some((base, far)) = far.remove(&conn) {
                connection.wired = Wired::Anchor { base, far: Box::new(far) }.encode(session);
                continue;
            }
            let Some(socket) = wired.get(&conn).copied() else { continue };
            match world.fate(mobile, socket) {
                None => {}
                Some(Fate::Lost) => connection.wired = Wired::<A>::Lost.encode(session),
                Some(Fate::Stays) => self.stay(world, session, socket, connection, &mut left),
                Some(Fate::Leaves) => leaving.push((socket, conn)),
            }
        }
        // What is over for the mobile, with bytes that the wired half's base does not have yet.
        for (base, far) in far.into_values() {
            let mut connection = left_over(&far);
            connection.wired = Wired::Anchor { base, far: Box::new(far) }.encode(session);
            state.connections.push(connection);
        }
        let gone: BTreeSet<ConnId> = gather(leaving.iter().map(|(_, conn)| *conn));
        let dumped = world.dump(session, mobile, leaving);
        for (conn, socket) in wired {
            if !left.sockets.contains_key(&conn) && !gone.contains(&conn) {
                world.reset(socket);
            }
        }
        let leaving = Leaving { session, mobile, state, left, over: false };
        match dumped {
            Some(dumped) => Frozen::Now(Some(self.leave(world, now, leaving, dumped))),
            None => {
                self.leaving.push_back(leaving);
                Frozen::Later
            }
        }
    }

    /// Wired halves were dumped, as [`Wires::dump`] was asked to.
    pub fn handle_dumped(
        &mut self,
        world: &mut impl Wires<A, I, S>,
        now: Time,
        session: SessionId,
        dumped: Vec<(ConnId, Dumped<S>)>,
    ) {
        let at = self.leaving.iter().position(|leaving| leaving.session == session);
        let Some(leaving) = at.and_then(|at| self.leaving.remove(at)) else { return };
        if !leaving.over {
            // To whoever wants it by now: the mobile itself, if it has come back.
            let state = self.leave(world, now, leaving, dumped);
            return self.hand_over(now, session, Some(state));
        }
        let mut images = Vec::new();
        for (_, dumped) in dumped {
            match dumped {
                Dumped::Image(image) => images.push(image),
                Dumped::Stays(socket) => world.reset(socket),
                Dumped::Rest(_) | Dumped::Lost => {}
            }
        }
        world.discard(session, images);
    }

    /// Sessions that are over meanwhile do not leave any more.
    pub(super) fn end_leaving(
        &mut self,
        world: &mut impl Wires<A, I, S>,
        is_over: impl Fn(&Leaving<A, S>) -> bool,
    ) {
        for leaving in self.leaving.iter_mut().filter(|leaving| is_over(leaving)) {
            leaving.over = true;
            let sockets = core::mem::take(&mut leaving.left.sockets);
            sockets.into_values().for_each(|socket| world.reset(socket));
        }
    }

    /// The state of a session whose wired halves were dumped.
    fn leave(
        &mut self,
        world: &mut impl Wires<A, I, S>,
        now: Time,
        leaving: Leaving<A, S>,
        dumped: Vec<(ConnId, Dumped<S>)>,
    ) -> SessionState {
        let Leaving { session, mobile, mut state, mut left, .. } = leaving;
        for (conn, dumped) in dumped {
            let connection = state.connections.iter_mut().find(|c| c.id == conn.0);
            let Some(connection) = connection else { continue };
            match dumped {
                Dumped::Image(image) => {
                    self.counts.migrated += 1;
                    connection.wired = Wired::<A>::Image(image).encode(session);
                }
                Dumped::Rest(rest) if is_written(connection) => {
                    connection.down.bytes.extend(rest);
                    connection.down.ended = true;
                }
                Dumped::Rest(_) => connection.wired = Wired::<A>::Lost.encode(session),
                Dumped::Stays(socket) => self.stay(world, session, socket, connection, &mut left),
                Dumped::Lost => connection.wired = Wired::<A>::Lost.encode(session),
            }
        }
        self.counts.anchored += left.sockets.len() as u64;
        self.keep(world, now, session, mobile, left.connections, left.sockets);
        state
    }

    /// A wired half stays here, and the new base is notified.
    fn stay(
        &self,
        world: &mut impl Wires<A, I, S>,
        session: SessionId,
        socket: S,
        connection: &mut ConnectionState,
        left: &mut AnchoredConnections<S>,
    ) {
        world.detach(socket);
        let here = emptied(connection, world.is_write_done(socket));
        let far = Box::new(here.clone());
        connection.wired = Wired::Anchor { base: self.own, far }.encode(session);
        left.connections.push(here);
        left.sockets.insert(ConnId(connection.id), socket);
    }

    /// Shows the machine what a session holds, to be sent ahead of a handoff.
    pub(super) fn copy(&mut self, world: &mut impl Wires<A, I, S>, now: Time, session: SessionId) {
        let mobile = self.mobiles.with_session(session);
        let state = mobile.and_then(|mobile| {
            let id = self.mobiles.at(mobile)?;
            let (own, streams) = world.session(id)?;
            let mut state = own.preview(&streams, session, PREVIEW_MAX);
            let mut left = PREVIEW_MAX.saturating_sub(held(&state));
            let images = world.previews(id, mobile, left);
            left = left
                .saturating_sub(images.iter().map(|(_, image)| image.len()).sum::<usize>().into());
            let mut wired: BTreeMap<u64, Wired<A>> =
                gather(images.into_iter().map(|(conn, image)| (conn.0, Wired::Image(image))));
            for (link, base) in self.far.anchors(session) {
                let Some((far, streams)) = world.session(link) else { continue };
                let far = far.preview(&streams, session, left);
                left = left.saturating_sub(held(&far));
                let anchor =
                    |far: ConnectionState| (far.id, Wired::Anchor { base, far: Box::new(far) });
                wired.extend(far.connections.into_iter().map(anchor));
            }
            for connection in &mut state.connections {
                if let Some(wired) = wired.remove(&connection.id) {
                    connection.wired = wired.encode(session);
                }
            }
            Some(state)
        });
        self.machine.copied(now, session, state);
    }
}
