//! What a session remembers of its connections.

use alloc::vec::Vec;
use core::hash::{BuildHasherDefault, Hasher};

use hashbrown::HashMap;
use hashbrown::hash_map::IntoIter;
use lasthop_units::Time;
use lasthop_wire::mhp::Opening;

use crate::ConnId;

/// How far a connection has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Mobile: Open is written, the base's answer is awaited.
    Asking(Opening),
    /// Base: Open is not complete; the caller knows nothing yet.
    Reading,
    /// Base: the caller has not answered yet.
    Connecting(Opening),
    /// Base: Refused is on its way and the mobile has not ended the stream yet.
    Refusing,
    /// The application's bytes pass.
    Open,
}

/// Bytes of a message that the transport could not take, or has not given, in one piece. Rare: a
/// message fits a datagram of any usual size.
#[derive(Debug, Default)]
pub(crate) enum Held {
    #[default]
    Nothing,
    Unsent(Vec<u8>),
    Partial(Vec<u8>),
}

#[derive(Debug)]
pub(crate) struct Conn {
    phase: Phase,
    pub(crate) held: Held,
    /// The caller ended its direction before our message was written.
    pub(crate) finishing: bool,
    deadline: Time,
    earlier: Option<ConnId>,
    later: Option<ConnId>,
}

impl Conn {
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether application bytes may be written to the stream now.
    pub(crate) fn writable(&self) -> bool {
        matches!(self.phase, Phase::Open | Phase::Asking(Opening::Early))
            && !matches!(self.held, Held::Unsent(_))
    }
}

/// Stream numbers are counted up by a transport that bounds how far ahead they may be, so a fixed
/// multiplication is enough to spread them.
#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_u64(u64::from(b));
        }
    }

    fn write_u64(&mut self, n: u64) {
        let product = u128::from(self.0 ^ n) * 0x9e37_79b9_7f4a_7c15;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

type Map = HashMap<ConnId, Conn, BuildHasherDefault<IdHasher>>;

/// The connections, and the list of those with a deadline, earliest first.
///
/// All deadlines of a session are equally far ahead when they are set, so appending keeps the list
/// sorted, and setting and clearing one costs the same however many there are.
#[derive(Debug, Default)]
pub(crate) struct Table {
    conns: Map,
    half_open: usize,
    first: Option<ConnId>,
    last: Option<ConnId>,
}

impl Table {
    pub(crate) fn len(&self) -> usize {
        self.conns.len()
    }

    /// Connections in any phase before `Open`.
    pub(crate) fn half_open(&self) -> usize {
        self.half_open
    }

    pub(crate) fn get(&self, id: ConnId) -> Option<&Conn> {
        self.conns.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        self.conns.get_mut(&id)
    }

    pub(crate) fn phase(&self, id: ConnId) -> Option<Phase> {
        self.get(id).map(Conn::phase)
    }

    /// Adds a connection, which is half-open until it enters [`Phase::Open`].
    pub(crate) fn insert(&mut self, id: ConnId, phase: Phase) {
        let conn = Conn {
            phase,
            held: Held::Nothing,
            finishing: false,
            deadline: Time::NEVER,
            earlier: None,
            later: None,
        };
        self.remove(id);
        self.conns.insert(id, conn);
        self.half_open += usize::from(phase != Phase::Open);
    }

    /// Moves a connection on; its deadline is cleared.
    pub(crate) fn enter(&mut self, id: ConnId, phase: Phase) {
        self.disarm(id);
        if let Some(conn) = self.conns.get_mut(&id) {
            self.half_open -= usize::from(conn.phase != Phase::Open);
            self.half_open += usize::from(phase != Phase::Open);
            conn.phase = phase;
        }
    }

    /// Forgets a connection; whether it was there.
    pub(crate) fn remove(&mut self, id: ConnId) -> bool {
        self.disarm(id);
        let removed = self.conns.remove(&id);
        self.half_open -= usize::from(removed.as_ref().is_some_and(|c| c.phase != Phase::Open));
        removed.is_some()
    }

    /// Forgets all connections and hands them out.
    pub(crate) fn take_all(&mut self) -> IntoIter<ConnId, Conn> {
        core::mem::take(self).conns.into_iter()
    }

    /// Sets a deadline that must not be before any other of this table.
    pub(crate) fn arm(&mut self, id: ConnId, deadline: Time) {
        self.disarm(id);
        let earlier = self.last;
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.deadline = deadline;
        conn.earlier = earlier;
        self.last = Some(id);
        match earlier.and_then(|e| self.conns.get_mut(&e)) {
            Some(conn) => conn.later = Some(id),
            None => self.first = Some(id),
        }
    }

    fn disarm(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if conn.deadline == Time::NEVER {
            return;
        }
        conn.deadline = Time::NEVER;
        let (earlier, later) = (conn.earlier.take(), conn.later.take());
        match earlier.and_then(|e| self.conns.get_mut(&e)) {
            Some(conn) => conn.later = later,
            None => self.first = later,
        }
        match later.and_then(|l| self.conns.get_mut(&l)) {
            Some(conn) => conn.earlier = earlier,
            None => self.last = earlier,
        }
    }

    /// The earliest deadline and whose it is.
    pub(crate) fn earliest(&self) -> Option<(Time, ConnId)> {
        let id = self.first?;
        self.get(id).map(|conn| (conn.deadline, id))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_connection_is_small() {
        assert!(size_of::<Conn>() <= 80, "{}", size_of::<Conn>());
    }

    proptest! {
        #[test]
        fn deadlines_come_in_order_whatever_is_cleared_between(
            steps in prop::collection::vec((0u64..20, 0u8..4), 1..200)
        ) {
            let mut table = Table::default();
            let mut expected: Vec<(Time, ConnId)> = vec![];
            let mut alive: Vec<ConnId> = vec![];
            for (at, (n, action)) in steps.into_iter().enumerate() {
                let (id, at) = (ConnId(n), Time::from_nanos(at as u64));
                expected.retain(|(_, other)| *other != id);
                match action {
                    0 => {
                        alive.retain(|other| *other != id);
                        table.remove(id);
                    }
                    1 => table.enter(id, Phase::Open),
                    _ => {
                        if !alive.contains(&id) {
                            table.insert(id, Phase::Reading);
                            alive.push(id);
                        }
                        table.arm(id, at);
                        expected.push((at, id));
                    }
                }
                prop_assert_eq!(table.earliest(), expected.first().copied());
                prop_assert_eq!(table.len(), alive.len());
                let half = alive.iter().filter(|id| table.phase(**id) == Some(Phase::Reading));
                prop_assert_eq!(table.half_open(), half.count());
            }
        }
    }
}
