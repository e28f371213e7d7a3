use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;

use lasthop_hop::{Policy, RecvState, StreamError, StreamId, Streams};
use lasthop_units::{Bytes, Duration, Time};
use lasthop_wire::mhp::handoff::{Reopened, SessionId};
use lasthop_wire::mhp::{Message, Opening, Refusal, ResetReason, Target};

use crate::carried::Origin;
use crate::table::{Phase, Table};
use crate::{ConnId, Event};

mod acknowledged;
mod before_commit;
mod channel;
mod ended;
mod hold;
mod opening;
mod orphans;
mod pack;
mod port;
mod presumed;
mod resume;
mod surrogate;
#[cfg(test)]
mod tests;

pub use port::left_over;

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
    /// What one connection may carry along from hop to hop, both directions together. One that
    /// holds more is reset at the handoff.
    pub kept_max: Bytes,
}

impl Config {
    /// For the mobile. The base's own `connect` gives up after some 130 s; it should have the first
    /// word.
    pub const fn mobile() -> Self {
        Self {
            max_connections: 4096,
            max_half_open: 1024,
            opening_timeout: Duration::from_secs(150),
            kept_max: Bytes::from_mib(256),
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
    /// Streams without MHP's messages.
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
    /// Base: the peer may have connections made. If not, it reaches those that are here.
    connects: bool,
    now: Time,
    table: Table,
    /// Filled by one input at a time and emptied before the next stream event is taken: at most a
    /// few events for each connection.
    events: VecDeque<Event>,
    scratch: Vec<u8>,
    stats: Stats,
    /// Names the session once it has moved.
    name: Option<SessionId>,
    /// How often the mobile has resumed; at a base, as far as its connections have been asked for.
    turn: Option<u32>,
    /// Mobile: the name that it was last resumed under, for which `turn` counts.
    resumed_as: Option<SessionId>,
    /// Base: how often it had at the base before.
    since: u32,
    /// The number of the next connection that this side opens, if its stream has a lower one.
    next: u64,
    /// Mobile: fixed hosts may open connections.
    listens: bool,
    moves: resume::Moves,
    ended: ended::Ended,
    channel: channel::Channel,
    holds: hold::Holds,
}

impl Session {
    /// The mobile's end, which opens connections.
    pub fn mobile(config: Config) -> Self {
        Self::new(Role::Mobile, config)
    }

    /// The base's end, from which connections are requested; one for each association.
    pub fn base(config: Config) -> Self {
        Self::new(Role::Base, config)
    }

    /// The end of a base that keeps wired halves, of an association that another base made to reach them.
    /// That base is no mobile: it carries on connections that were [adopted](Self::adopt) here, and has
    /// none made.
    pub fn anchor(config: Config) -> Self {
        Self { connects: false, ..Self::new(Role::Base, config) }
    }

    fn new(role: Role, config: Config) -> Self {
        Self {
            role,
            config,
            connects: true,
            now: Time::ZERO,
            table: Table::default(),
            events: VecDeque::new(),
            scratch: Vec::new(),
            stats: Stats::default(),
            name: None,
            turn: None,
            resumed_as: None,
            since: 0,
            next: 0,
            listens: false,
            moves: resume::Moves::default(),
            ended: ended::Ended::default(),
            channel: channel::Channel::default(),
            holds: hold::Holds::default(),
        }
    }

    /// Connections that are not closed yet, half-open ones included.
    pub fn connections(&self) -> usize {
        self.table.named()
    }

    /// Connections whose opening has no result yet, and streams that have not named yet which
    /// connection they carry.
    pub fn half_open(&self) -> usize {
        self.table.half_open()
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Mobile: whether fixed hosts may open connections (MHP-6). Each comes as [`Event::Connect`],
    /// to be answered with [`accept`](Self::accept) or [`refuse`](Self::refuse). If not, as at the
    /// beginning, what the base opens is reset.
    pub fn set_listening(&mut self, on: bool) {
        self.listens = on;
    }

    /// Whether a connection was requested and the peer has not answered yet.
    pub fn is_asking(&self, id: ConnId) -> bool {
        matches!(self.table.phase(id), Some(Phase::Asking(_)))
    }

    /// The stream that carries a connection at this moment.
    pub fn stream(&self, id: ConnId) -> Option<StreamId> {
        self.table.stream(id)
    }

    /// Mobile: the fixed host that opens a connection, until it is answered.
    pub fn caller(&self, id: ConnId) -> Option<SocketAddr> {
        self.table.get(id)?.origin.as_ref()?.from
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
    ///
    /// Between [`suspend`](Self::suspend) and [`resume`](Self::resume) the opening waits.
    pub fn connect(
        &mut self,
        now: Time,
        hop: &mut impl Streams,
        target: &Target,
        opening: Opening,
    ) -> Result<ConnId, StreamError> {
        self.connect_from(now, hop, target, opening, None)
    }

    /// As [`connect`](Self::connect); the base is sent the application's own address, `source`.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub fn connect_from(
        &mut self,
        now: Time,
        hop: &mut impl Streams,
        target: &Target,
        opening: Opening,
        source: Option<SocketAddr>,
    ) -> Result<ConnId, StreamError> {
        self.advance(now);
        if self.role == Role::Base {
            return Err(StreamError::Unknown);
        }
        if self.is_full() {
            return Err(StreamError::TooMany);
        }
        let stream = if self.moves.is_suspended() { None } else { Some(hop.open()?) };
        let id = ConnId(stream.map_or(0, |stream| stream.0).max(self.next));
        self.next = id.0 + 2;
        self.table.insert(id, Phase::Asking(opening));
        self.arm(id);
        if let Some(conn) = self.table.get_mut(id) {
            conn.origin = Some(Box::new(Origin::new(target.clone(), source)));
        }
        if let Some(stream) = stream {
            self.table.attach(id, stream);
            if let Err(e) = self.write_open(hop, id) {
                hop.reset(stream, ResetReason::Aborted.code());
                self.table.remove(id);
                return Err(e);
            }
        }
        if opening == Opening::Early {
            self.events.push_back(Event::Opened { id, bound: None });
        }
        Ok(id)
    }

    /// Base: asks the mobile for a connection to its address `to`, which the fixed host at `from`
    /// opens (MHP-6). The result comes as [`Event::Opened`] or [`Event::Failed`], and nothing can be
    /// written before.
    ///
    /// # Errors
    ///
    /// [`StreamError::TooMany`] at a bound of the session or of the transport, and while the mobile's
    /// session is [wanted](Self::poll_wanted), which may have connections of any number;
    /// [`StreamError::Unknown`] at a mobile.
    pub fn offer(
        &mut self,
        now: Time,
        hop: &mut impl Streams,
        to: SocketAddr,
        from: SocketAddr,
    ) -> Result<ConnId, StreamError> {
        self.advance(now);
        if self.role == Role::Mobile {
            return Err(StreamError::Unknown);
        }
        if self.is_full() || self.holds.is_waiting() {
            return Err(StreamError::TooMany);
        }
        let stream = hop.open()?;
        let id = ConnId(stream.0.max(self.next));
        self.next = id.0 + 2;
        self.table.insert(id, Phase::Asking(Opening::Faithful));
        self.arm(id);
        self.table.attach(id, stream);
        if let Some(conn) = self.table.get_mut(id) {
            conn.origin = Some(Box::new(Origin::new(to.into(), Some(from))));
        }
        let connection = (id.0 != stream.0).then_some(id.0);
        if let Err(e) = self.write_message(hop, id, &Message::Offer { to, from, connection }) {
            hop.reset(stream, ResetReason::Aborted.code());
            self.table.remove(id);
            return Err(e);
        }
        Ok(id)
    }

    /// The requested connection stands; `bound` is its end there: at a base towards the
    /// fixed host, at a mobile its own. Early bytes, if there are any, are announced with
    /// [`Event::Readable`].
    ///
    /// Does nothing if the peer has given up meanwhile.
    pub fn accept(&mut self, hop: &mut impl Streams, id: ConnId, bound: SocketAddr) {
        let Some(Phase::Connecting(_)) = self.table.phase(id) else { return };
        self.table.enter(id, Phase::Open);
        self.stats.opened += 1;
        let Some(conn) = self.table.get_mut(id) else { return };
        if let Some(origin) = &mut conn.origin {
            origin.bound = Some(bound);
        }
        // It fails only if the mobile has reset the stream, which its event is about to say.
        let _ = match (conn.stream, conn.moved) {
            // The mobile is notified when it comes.
            (None, _) => {
                self.arm(id);
                Ok(())
            }
            (Some(_), false) => self.write_message(hop, id, &Message::Opened { bound }),
            (Some(_), true) => self.write_reopened(hop, id),
        };
        if self.role == Role::Mobile {
            self.drop_origin(id);
        }
        self.announce_bytes(hop, id);
    }

    /// Base: the connection goes on, and here is what was kept for the mobile.
    fn write_reopened(&mut self, hop: &mut impl Streams, id: ConnId) -> Result<(), StreamError> {
        let Some(conn) = self.table.get_mut(id) else { return Ok(()) };
        if conn.take_tentative().is_none() {
            let bound = conn.origin.as_ref().and_then(|origin| origin.bound);
            let (expected, ended) = (conn.recv_base, conn.has_end());
            let reopened = Reopened { expected, ended, over: false, tentative: false, bound };
            self.write_message(hop, id, &Message::Reopened(reopened))?;
        }
        self.send_rest(hop, id)
    }

    /// There is no connection: none to the fixed host (MHP-5), or none that the mobile wants
    /// (MHP-6).
    ///
    /// Does nothing if the peer has given up meanwhile.
    pub fn refuse(&mut self, hop: &mut impl Streams, id: ConnId, refusal: Refusal) {
        let Some(Phase::Connecting(opening)) = self.table.phase(id) else { return };
        self.stats.failed += 1;
        if opening == Opening::Early {
            return self.reset_connection(hop, id, ResetReason::Refused(refusal));
        }
        self.table.enter(id, Phase::Refusing(refusal));
        self.arm(id);
        if self.table.stream(id).is_some() {
            self.write_refused(hop, id, refusal);
        }
    }

    fn write_refused(&mut self, hop: &mut impl Streams, id: ConnId, refusal: Refusal) {
        match self.write_message(hop, id, &Message::Refused(refusal)) {
            Ok(()) => {
                self.finish(hop, id);
                self.discard(hop, id);
            }
            Err(_) => self.reset_connection(hop, id, ResetReason::Refused(refusal)),
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
            if self.release_held(hop) {
                continue;
            }
            let Some(event) = hop.poll_event() else {
                self.reopen_waiting(hop);
                self.read_stalled_channel(hop);
                return self.events.pop_front();
            };
            self.handle_stream_event(hop, event);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    pub fn next_timeout(&self) -> Option<Time> {
        [self.table.next_deadline(), self.moves.next_timeout()].into_iter().flatten().min()
    }

    /// Ends the openings that took too long, and tells the base again which connections live if it has not
    /// heard.
    pub fn handle_timeout(&mut self, now: Time, hop: &mut impl Streams) {
        self.advance(now);
        self.call_roll_again(hop);
        while let Some(id) = self.table.pop_due(self.now) {
            self.stats.timed_out += 1;
            match self.table.phase(id) {
                Some(Phase::Asking(opening)) => {
                    self.fail(hop, id, opening, Refusal::TimedOut, ResetReason::TimedOut);
                }
                Some(Phase::Reading) => self.reset_unannounced(hop, id, ResetReason::TimedOut),
                // One end of a handoff never came.
                Some(Phase::Open | Phase::Connecting(_)) => {
                    self.abort(hop, id, ResetReason::TimedOut);
                }
                _ => self.reset_connection(hop, id, ResetReason::TimedOut),
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
        let Some((stream, most)) = self.may_write(id)? else { return Ok(&mut []) };
        let space = hop.send_space(stream)?;
        let n = space.len().min(most);
        Ok(&mut space[..n])
    }

    /// The first `n` bytes of [`send_space`](Self::send_space) are to be sent. With none the room need not be
    /// kept.
    pub fn commit(&mut self, hop: &mut impl Streams, id: ConnId, n: usize) {
        let Some(conn) = self.table.get_mut(id).filter(|conn| conn.writable()) else { return };
        let Some(stream) = conn.stream else { return };
        if conn.awaits
            && n > 0
            && let Ok(space) = hop.send_space(stream)
        {
            conn.on_written(&space[..n.min(space.len())]);
        }
        hop.commit(stream, n);
    }

    /// Copies as much of `data` as there is room for; the number of bytes taken.
    ///
    /// # Errors
    ///
    /// As [`send_space`](Self::send_space).
    pub fn write(
        &mut self,
        hop: &mut impl Streams,
        id: ConnId,
        data: &[u8],
    ) -> Result<usize, StreamError> {
        let Some((stream, most)) = self.may_write(id)? else { return Ok(0) };
        let taken = hop.write(stream, &data[..data.len().min(most)])?;
        if let Some(conn) = self.table.get_mut(id) {
            conn.on_written(&data[..taken]);
        }
        Ok(taken)
    }

    /// Ends our direction after the bytes written so far; the other goes on (MHP-14). Idempotent.
    pub fn finish(&mut self, hop: &mut impl Streams, id: ConnId) {
        let Some(conn) = self.table.get_mut(id) else { return };
        let answered = !matches!(conn.phase(), Phase::Reading | Phase::Connecting(_));
        conn.finishing = true;
        if let Some(stream) = conn.stream
            && answered
            && !conn.awaits
            && conn.unsent.is_none()
        {
            hop.finish(stream);
        }
    }

    /// Gives up both directions; the peer learns `reason`. [`Event::Closed`] follows.
    pub fn reset(&mut self, hop: &mut impl Streams, id: ConnId, reason: ResetReason) {
        if self.table.get(id).is_some() {
            self.reset_connection(hop, id, reason);
        }
    }

    /// Gives up every connection, as at a shutdown or when the association is lost: each ends with
    /// [`Event::Failed`] or [`Event::Reset`] and [`Event::Closed`].
    pub fn reset_all(&mut self, hop: &mut impl Streams, reason: ResetReason) {
        self.moves.clear();
        self.holds.clear();
        if self.role == Role::Mobile {
            // Nothing that is opened from here on has to come after what was.
            self.name = None;
        }
        self.close_channel(hop, reason);
        for (id, conn) in self.table.take_all() {
            if let Some(stream) = conn.stream {
                hop.reset(stream, reason.code());
            }
            match conn.phase() {
                Phase::Reading => continue,
                Phase::Refusing(_) => {}
                Phase::Asking(Opening::Faithful) => {
                    self.stats.failed += 1;
                    self.events.push_back(Event::Failed { id, refusal: reason.as_refusal() });
                }
                _ => self.events.push_back(Event::Reset { id, reason }),
            }
            self.events.push_back(Event::Closed(id));
        }
    }

    /// Gives a connection a priority relative to the session's others, which have 1 to begin with
    /// (UFB-3): the hop divides its window and rate by them. It stays with the connection from hop to
    /// hop; the peer of the hop is notified. Whether the connection is known.
    pub fn set_priority(&mut self, hop: &mut impl Streams, id: ConnId, priority: u32) -> bool {
        let Some(conn) = self.table.get_mut(id) else { return false };
        conn.priority = Some(priority);
        if let Some(stream) = conn.stream {
            hop.set_priority(stream, priority);
        }
        true
    }

    /// Says which of the hop's paths may carry a connection ([`Streams::set_policy`]). It stays with the connection from hop to
    /// hop. Whether the connection is known.
    pub fn set_policy(&mut self, hop: &mut impl Streams, id: ConnId, policy: Policy) -> bool {
        let Some(conn) = self.table.get_mut(id) else { return false };
        conn.set_policy(policy);
        if let Some(stream) = conn.stream {
            hop.set_policy(stream, policy);
        }
        true
    }

    /// Names the host whose connection it is, of those behind the mobile, which share the hop before their connections do
    /// ([`Streams::set_client`]). It stays with the connection from hop to hop. Whether the connection is known.
    pub fn set_client(&mut self, hop: &mut impl Streams, id: ConnId, client: u32) -> bool {
        let Some(conn) = self.table.get_mut(id) else { return false };
        conn.client = client;
        if let Some(stream) = conn.stream {
            hop.set_client(stream, client);
        }
        true
    }

    /// Received bytes in order: one contiguous piece, empty if there are none now.
    pub fn received<'h>(&'h self, hop: &'h impl Streams, id: ConnId) -> &'h [u8] {
        match self.table.get(id).filter(|conn| conn.phase() == Phase::Open) {
            Some(conn) if !conn.unread().is_empty() => conn.unread(),
            Some(conn) if conn.hears() => conn.stream.map_or(&[], |stream| hop.received(stream)),
            _ => &[],
        }
    }

    /// The first `n` bytes of [`received`](Self::received) were taken.
    pub fn consume(&mut self, hop: &mut impl Streams, id: ConnId, n: usize) {
        let Some(conn) = self.table.get_mut(id).filter(|conn| conn.phase() == Phase::Open) else {
            return;
        };
        if let Some(rest) = &mut conn.rest
            && !rest.unread.is_empty()
        {
            rest.unread.take(n);
            if rest.over && rest.unread.is_empty() {
                self.close_connection(id);
            }
        } else if let Some(stream) = conn.stream.filter(|_| n > 0 && conn.hears()) {
            hop.consume(stream, n);
        }
    }

    /// Whether more can come; the code of a reset is that of a [`ResetReason`]. A connection that
    /// is not known, or not any more, reads as reset, so that what was cut never looks ended.
    pub fn recv_state(&self, hop: &impl Streams, id: ConnId) -> RecvState {
        let Some(conn) = self.table.get(id) else {
            return RecvState::Reset(ResetReason::Aborted.code());
        };
        let below = conn.stream.map_or(RecvState::Open, |stream| hop.recv_state(stream));
        match below {
            RecvState::Reset(_) => below,
            _ if conn.phase() != Phase::Open || !conn.unread().is_empty() => RecvState::Open,
            _ if conn.has_end() => RecvState::Finished,
            _ if !conn.hears() => RecvState::Open,
            _ => below,
        }
    }

    /// The stream that takes bytes of the application's, once it has room, and how many at most.
    fn may_write(&self, id: ConnId) -> Result<Option<(StreamId, usize)>, StreamError> {
        let conn = self.table.get(id).ok_or(StreamError::Unknown)?;
        if !conn.writable() {
            return if conn.finishing { Err(StreamError::Finished) } else { Ok(None) };
        }
        let most = if conn.awaits { conn.early_room() } else { usize::MAX };
        Ok(conn.stream.map(|stream| (stream, most)))
    }

    fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    fn arm(&mut self, id: ConnId) {
        self.table.arm(id, self.now + self.config.opening_timeout);
    }

    fn is_full(&self) -> bool {
        // At a base, what is parked comes back on streams that must not be turned away, and what is
        // held has a bound of its own.
        let returning = if self.role == Role::Base { self.table.parked() } else { 0 };
        let held = self.holds.len();
        self.table.len() - returning - held >= self.config.max_connections
            || (returning == 0 && self.table.half_open() - held >= self.config.max_half_open)
    }
}
