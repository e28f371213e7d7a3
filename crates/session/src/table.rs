//! What a session remembers of its connections.

use alloc::boxed::Box;
use alloc::vec::Vec;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hashbrown::hash_map::IntoIter;
use lasthop_hop::{Policy, StreamId};
use lasthop_units::{Time, Timers};
use lasthop_wire::mhp::handoff::Ticket;
use lasthop_wire::mhp::{Opening, Refusal};

use crate::ConnId;
use crate::backlog::Backlog;
use crate::carried::{CarriedBytes, Origin};

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
    Refusing(Refusal),
    /// The application's bytes pass.
    Open,
}

/// Beside the number of a connection's policy, which is a small one: what the peer has is reported.
const REPORTS: u8 = 0x80;
/// Likewise: the peer keeps what it sends until it is where it goes.
const RELEASES: u8 = 0x40;
/// Likewise: it need not.
const RELEASES_AHEAD: u8 = 0x20;
/// All of them.
const FLAGS: u8 = REPORTS | RELEASES | RELEASES_AHEAD;

#[derive(Debug)]
pub(crate) struct Conn {
    phase: Phase,
    /// What the transport could not take in one piece of a message, and what follows it.
    pub(crate) unsent: Option<Box<Backlog>>,
    /// What it has not given whole of a message.
    pub(crate) partial: Vec<u8>,
    /// The caller ended its direction; it may be that the transport is not notified yet.
    pub(crate) finishing: bool,
    /// What carries it; nothing between two hops.
    pub(crate) stream: Option<StreamId>,
    /// The connection was on another hop before, and is answered with Reopened.
    pub(crate) moved: bool,
    /// Mobile: Reopen was sent and not answered for good.
    pub(crate) awaits: bool,
    /// Base: Continue is awaited.
    pub(crate) resumes: bool,
    /// Base: so many bytes behind it came over an earlier hop.
    pub(crate) skip: u32,
    /// Base: the mobile says that it lives.
    pub(crate) listed: bool,
    /// Lengths of our messages and of the peer's at the start of the stream, with what is skipped behind
    /// them; zero until they are written and read.
    pub(crate) said: u16,
    pub(crate) heard: u32,
    /// Offsets, in the connection's bytes, of those that follow the messages.
    pub(crate) send_base: u64,
    pub(crate) recv_base: u64,
    /// What came along from an earlier hop.
    pub(crate) rest: Option<Box<CarriedBytes>>,
    /// Where it goes.
    pub(crate) origin: Option<Box<Origin>>,
    /// What the user gave it.
    pub(crate) priority: Option<u32>,
    /// The name of the host that it is of; 0 if it was given none.
    pub(crate) client: u32,
    /// The number of the policy by which the hop's paths carry it, and [`FLAGS`].
    policy: u8,
    deadline: Option<Time>,
}

impl Conn {
    /// Which of the hop's paths may carry it.
    pub(crate) fn policy(&self) -> Policy {
        Policy::of_number((self.policy & !FLAGS).into()).unwrap_or_default()
    }

    pub(crate) fn set_policy(&mut self, policy: Policy) {
        self.policy = policy.number() as u8 & !FLAGS | self.policy & FLAGS;
    }

    /// It is reported what the peer has of it.
    pub(crate) fn reports(&self) -> bool {
        self.policy & REPORTS != 0
    }

    pub(crate) fn set_reports(&mut self) {
        self.policy |= REPORTS;
    }

    /// Base: the mobile is told how far it need not keep what it has sent.
    pub(crate) fn releases(&self) -> bool {
        self.policy & RELEASES != 0
    }

    pub(crate) fn set_releases(&mut self) {
        self.policy = self.policy & !RELEASES_AHEAD | RELEASES;
    }

    /// Base: the mobile need not keep what it has sent.
    pub(crate) fn releases_ahead(&self) -> bool {
        self.policy & RELEASES_AHEAD != 0
    }

    pub(crate) fn set_releases_ahead(&mut self) {
        self.policy = self.policy & !RELEASES | RELEASES_AHEAD;
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether application bytes may be written to the stream now.
    pub(crate) fn writable(&self) -> bool {
        matches!(self.phase, Phase::Open | Phase::Asking(Opening::Early))
            && self.stream.is_some()
            && (!self.awaits || self.early_room() > 0)
            && self.unsent.is_none()
    }

    /// Whether what the stream gives next is the application's.
    pub(crate) fn hears(&self) -> bool {
        (!self.awaits || self.tentative().is_some()) && !self.resumes && self.skip == 0
    }

    /// Keeps bytes until the transport takes them.
    pub(crate) fn keep_unsent(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.unsent.get_or_insert_default().push(bytes);
        }
    }
}

/// Numbers of connections are counted up within bounds, so that nobody can choose many that collide.
type Map = HashMap<ConnId, Conn, FixedState>;

/// Marks the names of streams whose first message is not read yet: no connection has such a number.
const PROVISIONAL: u64 = 1 << 63;

/// The name of a stream until it says which connection it carries.
pub(crate) fn provisional(stream: StreamId) -> ConnId {
    ConnId(stream.0 | PROVISIONAL)
}

/// Whether it was never reported to the caller.
pub(crate) fn is_provisional(id: ConnId) -> bool {
    id.0 & PROVISIONAL != 0
}

/// The connections, and when what some of them wait for must have come.
#[derive(Debug, Default)]
pub(crate) struct Table {
    conns: Map,
    /// Streams whose number is not their connection's: those after a handoff.
    by_stream: HashMap<u64, ConnId, FixedState>,
    half_open: usize,
    parked: usize,
    /// Streams that are nobody's connection yet.
    unnamed: usize,
    timers: Timers<ConnId>,
    /// Mobile: what bases have made of connections, and in which turn it came.
    tickets: HashMap<ConnId, (Ticket, u32), FixedState>,
}

impl Table {
    pub(crate) fn len(&self) -> usize {
        self.conns.len()
    }

    /// Connections, without the streams that have not named yet which one they carry.
    pub(crate) fn named(&self) -> usize {
        self.conns.len() - self.unnamed
    }

    /// Keeps what the base of this turn has made of a connection, for as long as that lasts.
    pub(crate) fn set_ticket(&mut self, id: ConnId, ticket: Ticket, turn: u32) {
        if self.conns.contains_key(&id) {
            self.tickets.insert(id, (ticket, turn));
        }
    }

    #[cfg(test)]
    pub(crate) fn remove_ticket(&mut self, id: ConnId) {
        self.tickets.remove(&id);
    }

    /// What bases before that of this turn have made is of no use any more.
    pub(crate) fn keep_tickets_of(&mut self, turn: u32) {
        self.tickets.retain(|_, (_, made_in)| *made_in == turn);
    }

    pub(crate) fn ticket(&self, id: ConnId) -> Option<&Ticket> {
        self.tickets.get(&id).map(|(ticket, _)| ticket)
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

    /// Connections that no stream carries.
    pub(crate) fn parked(&self) -> usize {
        self.parked
    }

    /// All connections, by their number.
    pub(crate) fn ids(&self) -> Vec<ConnId> {
        let mut ids: Vec<ConnId> = self.conns.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// The connection that a stream carries.
    pub(crate) fn of_stream(&self, stream: StreamId) -> Option<ConnId> {
        if let Some(id) = self.by_stream.get(&stream.0) {
            return Some(*id);
        }
        [ConnId(stream.0), provisional(stream)]
            .into_iter()
            .find(|id| self.get(*id).is_some_and(|conn| conn.stream == Some(stream)))
    }

    pub(crate) fn stream(&self, id: ConnId) -> Option<StreamId> {
        self.get(id)?.stream
    }

    /// A stream carries the connection from here on.
    pub(crate) fn attach(&mut self, id: ConnId, stream: StreamId) {
        self.park(id);
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.stream = Some(stream);
        self.parked -= 1;
        if id != ConnId(stream.0) && id != provisional(stream) {
            self.by_stream.insert(stream.0, id);
        }
    }

    /// No stream carries the connection from here on.
    pub(crate) fn park(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if let Some(stream) = conn.stream.take() {
            self.by_stream.remove(&stream.0);
            self.parked += 1;
        }
    }

    /// Gives a connection its own name in place of a provisional one.
    pub(crate) fn rename(&mut self, from: ConnId, to: ConnId) {
        self.disarm(from);
        let Some(conn) = self.conns.remove(&from) else { return };
        if let Some(stream) = conn.stream.filter(|stream| to != ConnId(stream.0)) {
            self.by_stream.insert(stream.0, to);
        }
        self.unnamed -= usize::from(is_provisional(from));
        self.unnamed += usize::from(is_provisional(to));
        self.conns.insert(to, conn);
    }

    /// Adds a connection that no stream carries yet, half-open until it enters [`Phase::Open`].
    pub(crate) fn insert(&mut self, id: ConnId, phase: Phase) {
        let conn = Conn {
            phase,
            unsent: None,
            partial: Vec::new(),
            finishing: false,
            stream: None,
            moved: false,
            awaits: false,
            resumes: false,
            skip: 0,
            listed: false,
            said: 0,
            heard: 0,
            send_base: 0,
            recv_base: 0,
            rest: None,
            origin: None,
            priority: None,
            client: 0,
            policy: 0,
            deadline: None,
        };
        self.remove(id);
        self.conns.insert(id, conn);
        self.half_open += usize::from(phase != Phase::Open);
        self.parked += 1;
        self.unnamed += usize::from(is_provisional(id));
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
        self.park(id);
        let removed = self.conns.remove(&id);
        self.tickets.remove(&id);
        self.parked -= usize::from(removed.is_some());
        self.unnamed -= usize::from(removed.is_some() && is_provisional(id));
        self.half_open -= usize::from(removed.as_ref().is_some_and(|c| c.phase != Phase::Open));
        removed.is_some()
    }

    /// Forgets all connections and hands them out.
    pub(crate) fn take_all(&mut self) -> IntoIter<ConnId, Conn> {
        core::mem::take(self).conns.into_iter()
    }

    /// Sets a deadline.
    pub(crate) fn arm(&mut self, id: ConnId, deadline: Time) {
        self.set_deadline(id, Some(deadline));
    }

    /// Clears a deadline.
    pub(crate) fn disarm(&mut self, id: ConnId) {
        self.set_deadline(id, None);
    }

    fn set_deadline(&mut self, id: ConnId, deadline: Option<Time>) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let before = core::mem::replace(&mut conn.deadline, deadline);
        self.timers.replace(id, before, deadline);
    }

    /// The earliest deadline.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.timers.next()
    }

    /// A connection whose deadline has come; it has none from here on.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<ConnId> {
        let id = self.timers.pop_due(now)?;
        self.conns.get_mut(&id)?.deadline = None;
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_connection_is_small() {
        assert!(size_of::<Conn>() <= 128, "{}", size_of::<Conn>());
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
                prop_assert_eq!(table.next_deadline(), expected.first().map(|(at, _)| *at));
                prop_assert_eq!(table.len(), alive.len());
                let half = alive.iter().filter(|id| table.phase(**id) == Some(Phase::Reading));
                prop_assert_eq!(table.half_open(), half.count());
            }
            let due: Vec<ConnId> = core::iter::from_fn(|| table.pop_due(Time::NEVER)).collect();
            prop_assert_eq!(due, expected.into_iter().map(|(_, id)| id).collect::<Vec<_>>());
            prop_assert_eq!(table.next_deadline(), None);
        }
    }
}
