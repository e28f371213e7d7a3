//! The old base's part: a session leaves, with its wired halves or without.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
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

/// Connections whose wired halves stay here, as they are left here.
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
    pub(super) fn give<W>(
        &mut self,
        world: &mut W,
        now: Time,
        session: SessionId,
        mobile: Option<A>,
    ) where
        W: Wires<A, Id = I, Socket = S>,
    {
        if !world.is_ready() {
            let delayed = Delayed { mobile, until: now + READY_PATIENCE };
            if now < self.delayed.entry(session).or_insert(delayed).until {
                return;
            }
        }
        self.delayed.remove(&session);
        // Where no grants are required its owner is not known.
        let mobile = mobile.or_else(|| self.mobiles.with_session(session));
        let id = mobile.filter(|mobile| self.mobiles.get(*mobile).is_some_and(|m| !m.away));
        let id = id.and_then(|mobile| self.mobiles.at(mobile));
        let resumed_in = id.and_then(|id| world.peek(id)).map_or(0, Session::resumed_in);
        if self.machine.overtaken(session, resumed_in) {
            return;
        }
        self.run_deferred(world, None);
        if self.machine.stays(now, session) {
            // The mobile itself came back: what it wants to carry on is here.
            return mobile.into_iter().for_each(|mobile| self.handle_return(world, now, mobile));
        }
        let state = mobile.and_then(|mobile| self.freeze(world, now, session, mobile));
        if let Some(state) = &state {
            self.note(session, NoteKind::Frozen(state.encoded_len()));
        }
        self.machine.frozen(now, session, state);
    }

    /// A mobile's session stays here. One that says so over the association that it has waits for no
    /// other, and neither does what has come for it.
    fn handle_return<W>(&mut self, world: &mut W, now: Time, mobile: A)
    where
        W: Wires<A, Id = I, Socket = S>,
    {
        if self.mobiles.get(mobile).is_some_and(|known| known.greeted && known.at.is_some()) {
            self.end_call(world, now, mobile);
        }
        self.resume_in_place(world, now, mobile);
    }

    /// Gives sessions that have waited long enough, or until it is possible. One whose mobile has come
    /// back meanwhile need not leave.
    pub(super) fn end_delays<W>(&mut self, world: &mut W, now: Time)
    where
        W: Wires<A, Id = I, Socket = S>,
    {
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

    fn freeze<W>(
        &mut self,
        world: &mut W,
        now: Time,
        session: SessionId,
        mobile: A,
    ) -> Option<SessionState>
    where
        W: Wires<A, Id = I, Socket = S>,
    {
        let known = self.mobiles.get_mut(mobile)?;
        let waiting = known.call.as_mut().and_then(|call| call.state.take());
        if let Some(state) = waiting.filter(|state| state.session == session) {
            // It was not used here: the mobile has gone on before its association stood.
            self.recall_far(world, now, session);
            return Some(state);
        }
        let id = known.at?;
        // A mobile has one session here. Under another name it is not the one that is meant.
        if known.session != Some(session) {
            return None;
        }
        known.away = true;
        // What an earlier life of the session left here is nobody's.
        if let Some((_, sockets)) = self.recall(world, now, session) {
            sockets.into_values().for_each(|socket| world.reset(socket));
        }
        let mut far = self.recall_far(world, now, session);
        let hop = world.hop_state(id);
        let (own, mut streams) = world.session(id)?;
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
        let gone: Vec<ConnId> = leaving.iter().map(|(_, conn)| *conn).collect();
        for (conn, dumped) in world.dump(session, mobile, leaving) {
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
        for (conn, socket) in wired {
            if !left.sockets.contains_key(&conn) && !gone.contains(&conn) {
                world.reset(socket);
            }
        }
        self.counts.anchored += left.sockets.len() as u64;
        self.keep(now, session, mobile, left.connections, left.sockets);
        Some(state)
    }

    /// A wired half stays here, and the new base is notified.
    fn stay<W>(
        &self,
        world: &mut W,
        session: SessionId,
        socket: S,
        connection: &mut ConnectionState,
        left: &mut AnchoredConnections<S>,
    ) where
        W: Wires<A, Id = I, Socket = S>,
    {
        world.detach(socket);
        let here = emptied(connection, world.is_write_done(socket));
        let far = Box::new(here.clone());
        connection.wired = Wired::Anchor { base: self.own, far }.encode(session);
        left.connections.push(here);
        left.sockets.insert(ConnId(connection.id), socket);
    }

    /// Shows the machine what a session holds, to be sent ahead of a handoff.
    pub(super) fn copy<W>(&mut self, world: &mut W, now: Time, session: SessionId)
    where
        W: Wires<A, Id = I, Socket = S>,
    {
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
