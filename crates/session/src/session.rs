use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;

use lasthop_hop::{RecvState, StreamError, Streams};
use lasthop_units::{Duration, Time};
use lasthop_wire::mhp::{Message, Opening, Refusal, ResetReason, Target};

use crate::table::{Held, Phase, Table};
use crate::{ConnId, Event};

mod opening;
#[cfg(test)]
mod tests;

/// What a session is allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Connections at once, half-open ones included. One more is refused.
    pub max_connections: usize,
    /// Connections at once whose opening has no result yet. One more is refused.
    pub max_half_open: usize,
    /// At the mobile: how long the base may take to answer an opening. At the base: how long a
    /// stream may take to finish its opening, and a refused one to go away.
    pub opening_timeout: Duration,
}

impl Config {
    /// For the mobile. The base's own `connect` gives up after some 130 s; it should have the first
    /// word.
    pub const fn mobile() -> Self {
        Self {
            max_connections: 4096,
            max_half_open: 1024,
            opening_timeout: Duration::from_secs(150),
        }
    }

    /// For each mobile's session at the base. An opening may be cut in two by a silence of the
    /// radio, which must not cost the connection.
    pub const fn base() -> Self {
        Self { opening_timeout: Duration::from_secs(90), ..Self::mobile() }
    }
}

/// What a session has seen since it began.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Openings that succeeded.
    pub opened: u64,
    /// Openings that were refused, or failed in another way.
    pub failed: u64,
    /// Streams that were turned away because a bound was reached.
    pub turned_away: u64,
    /// Streams that did not speak MHP.
    pub malformed: u64,
    /// Openings that took too long.
    pub timed_out: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Mobile,
    Base,
}

/// One end of MHP (MHP-1): streams of one association, seen as connections of applications.
///
/// The transport is not the session's: every call that needs it takes it. Application bytes are
/// never copied here; [`send_space`](Self::send_space) and [`received`](Self::received) lend the
/// transport's own buffers, and back-pressure is the transport's (MHP-11).
#[derive(Debug)]
pub struct Session {
    role: Role,
    config: Config,
    now: Time,
    table: Table,
    /// Filled by one input at a time and emptied before the next stream event is taken: at most a
    /// few events for each connection.
    events: VecDeque<Event>,
    scratch: Vec<u8>,
    stats: Stats,
}

impl Session {
    /// The mobile's end, which opens connections.
    pub fn mobile(config: Config) -> Self {
        Self::new(Role::Mobile, config)
    }

    /// The base's end, which is asked for connections; one for each association.
    pub fn base(config: Config) -> Self {
        Self::new(Role::Base, config)
    }

    fn new(role: Role, config: Config) -> Self {
        Self {
            role,
            config,
            now: Time::ZERO,
            table: Table::default(),
            events: VecDeque::new(),
            scratch: Vec::new(),
            stats: Stats::default(),
        }
    }

    /// Connections that are not closed yet, half-open ones included.
    pub fn connections(&self) -> usize {
        self.table.len()
    }

    /// Connections whose opening has no result yet.
    pub fn half_open(&self) -> usize {
        self.table.half_open()
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Mobile: asks the base for a connection to `target` (MHP-2).
    ///
    /// With [`Opening::Faithful`] the result comes as [`Event::Opened`] or [`Event::Failed`], and
    /// nothing can be written before. With [`Opening::Early`] `Opened` comes at once, bytes may be
    /// written at once, and a refusal comes as [`Event::Reset`].
    ///
    /// # Errors
    ///
    /// [`StreamError::TooMany`] at a bound of the session or of the transport;
    /// [`StreamError::Unknown`] at a base, which opens nothing.
    pub fn connect(
        &mut self,
        now: Time,
        hop: &mut impl Streams,
        target: &Target,
        opening: Opening,
    ) -> Result<ConnId, StreamError> {
        self.advance(now);
        if self.role == Role::Base {
            return Err(StreamError::Unknown);
        }
        if self.is_full() {
            return Err(StreamError::TooMany);
        }
        let id = ConnId(hop.open()?.0);
        self.table.insert(id, Phase::Asking(opening));
        self.arm(id);
        if let Err(e) = self.say(hop, id, &Message::Open { opening, target: target.clone() }) {
            hop.reset(id.stream(), ResetReason::Aborted.code());
            self.table.remove(id);
            return Err(e);
        }
        if opening == Opening::Early {
            self.events.push_back(Event::Opened { id, bound: None });
        }
        Ok(id)
    }

    /// Base: the connection to the fixed host stands; `bound` is its near end. Early bytes, if
    /// there are any, are announced with [`Event::Readable`].
    ///
    /// Does nothing if the mobile has given up meanwhile.
    pub fn accept(&mut self, hop: &mut impl Streams, id: ConnId, bound: SocketAddr) {
        let Some(Phase::Connecting(_)) = self.table.phase(id) else { return };
        self.table.enter(id, Phase::Open);
        self.stats.opened += 1;
        // It fails only if the mobile has reset the stream, which its event is about to say.
        let _ = self.say(hop, id, &Message::Opened { bound });
        self.announce_bytes(hop, id);
    }

    /// Base: there is no connection to the fixed host (MHP-5).
    ///
    /// Does nothing if the mobile has given up meanwhile.
    pub fn refuse(&mut self, hop: &mut impl Streams, id: ConnId, refusal: Refusal) {
        let Some(Phase::Connecting(opening)) = self.table.phase(id) else { return };
        self.stats.failed += 1;
        if opening == Opening::Early {
            return self.give_up(hop, id, ResetReason::Refused(refusal));
        }
        self.table.enter(id, Phase::Refusing);
        self.arm(id);
        match self.say(hop, id, &Message::Refused(refusal)) {
            Ok(()) => {
                self.finish(hop, id);
                self.discard(hop, id);
            }
            Err(_) => self.give_up(hop, id, ResetReason::Refused(refusal)),
        }
    }

    /// The next thing that happened, if any. Call until there is none after anything was done to
    /// the transport or to the session.
    pub fn poll_event(&mut self, now: Time, hop: &mut impl Streams) -> Option<Event> {
        self.advance(now);
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let event = hop.poll_event()?;
            self.handle_stream_event(hop, event);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    pub fn next_timeout(&self) -> Option<Time> {
        self.table.earliest().map(|(deadline, _)| deadline)
    }

    /// Ends the openings that took too long.
    pub fn handle_timeout(&mut self, now: Time, hop: &mut impl Streams) {
        self.advance(now);
        while let Some((deadline, id)) = self.table.earliest()
            && deadline <= self.now
        {
            self.stats.timed_out += 1;
            match self.table.phase(id) {
                Some(Phase::Asking(opening)) => {
                    self.fail(hop, id, opening, Refusal::TimedOut, ResetReason::TimedOut);
                }
                Some(Phase::Reading) => self.drop_silently(hop, id, ResetReason::TimedOut),
                _ => self.give_up(hop, id, ResetReason::TimedOut),
            }
        }
    }

    /// Room for the next bytes to send: empty while nothing can be written. Fill a prefix of it
    /// and call [`commit`](Self::commit).
    ///
    /// # Errors
    ///
    /// The connection is unknown, finished from this side, or was reset by the peer.
    pub fn send_space<'h>(
        &self,
        hop: &'h mut impl Streams,
        id: ConnId,
    ) -> Result<&'h mut [u8], StreamError> {
        if self.may_write(id)? { hop.send_space(id.stream()) } else { Ok(&mut []) }
    }

    /// The first `n` bytes of [`send_space`](Self::send_space) are to be sent.
    pub fn commit(&self, hop: &mut impl Streams, id: ConnId, n: usize) {
        if n > 0 && self.table.get(id).is_some_and(|conn| conn.writable()) {
            hop.commit(id.stream(), n);
        }
    }

    /// Copies as much of `data` as there is room for; the number of bytes taken.
    ///
    /// # Errors
    ///
    /// As [`send_space`](Self::send_space).
    pub fn write(
        &self,
        hop: &mut impl Streams,
        id: ConnId,
        data: &[u8],
    ) -> Result<usize, StreamError> {
        if self.may_write(id)? { hop.write(id.stream(), data) } else { Ok(0) }
    }

    /// Ends our direction after the bytes written so far; the other goes on (MHP-14). Idempotent.
    pub fn finish(&mut self, hop: &mut impl Streams, id: ConnId) {
        let Some(conn) = self.table.get_mut(id) else { return };
        let answered = !matches!(conn.phase(), Phase::Reading | Phase::Connecting(_));
        if answered && !matches!(conn.held, Held::Unsent(_)) {
            hop.finish(id.stream());
        }
        conn.finishing = true;
    }

    /// Gives up both directions; the peer learns `reason`. [`Event::Closed`] follows.
    pub fn reset(&mut self, hop: &mut impl Streams, id: ConnId, reason: ResetReason) {
        if self.table.get(id).is_some() {
            self.give_up(hop, id, reason);
        }
    }

    /// Gives up every connection, as at a shutdown or when the association is lost: each ends with
    /// [`Event::Failed`] or [`Event::Reset`] and [`Event::Closed`].
    pub fn reset_all(&mut self, hop: &mut impl Streams, reason: ResetReason) {
        for (id, conn) in self.table.take_all() {
            hop.reset(id.stream(), reason.code());
            match conn.phase() {
                Phase::Reading => continue,
                Phase::Refusing => {}
                Phase::Asking(Opening::Faithful) => {
                    self.stats.failed += 1;
                    self.events.push_back(Event::Failed { id, refusal: reason.as_refusal() });
                }
                _ => self.events.push_back(Event::Reset { id, reason }),
            }
            self.events.push_back(Event::Closed(id));
        }
    }

    /// Received bytes in order: one contiguous piece, empty if there are none now.
    pub fn received<'h>(&self, hop: &'h impl Streams, id: ConnId) -> &'h [u8] {
        match self.table.phase(id) {
            Some(Phase::Open) => hop.received(id.stream()),
            _ => &[],
        }
    }

    /// The first `n` bytes of [`received`](Self::received) were taken.
    pub fn consume(&self, hop: &mut impl Streams, id: ConnId, n: usize) {
        if n > 0 && self.table.phase(id) == Some(Phase::Open) {
            hop.consume(id.stream(), n);
        }
    }

    /// Whether more can come; the code of a reset is that of a [`ResetReason`]. A connection that
    /// is not known, or not any more, reads as reset, so that what was cut never looks ended.
    pub fn recv_state(&self, hop: &impl Streams, id: ConnId) -> RecvState {
        match (self.table.phase(id), hop.recv_state(id.stream())) {
            (None, _) => RecvState::Reset(ResetReason::Aborted.code()),
            (Some(Phase::Open), state) | (_, state @ RecvState::Reset(_)) => state,
            _ => RecvState::Open,
        }
    }

    /// Whether the transport takes bytes of the application's, once it has room.
    fn may_write(&self, id: ConnId) -> Result<bool, StreamError> {
        let conn = self.table.get(id).ok_or(StreamError::Unknown)?;
        if !conn.writable() && conn.finishing {
            return Err(StreamError::Finished);
        }
        Ok(conn.writable())
    }

    fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    fn arm(&mut self, id: ConnId) {
        self.table.arm(id, self.now + self.config.opening_timeout);
    }

    fn is_full(&self) -> bool {
        self.table.len() >= self.config.max_connections
            || self.table.half_open() >= self.config.max_half_open
    }
}
