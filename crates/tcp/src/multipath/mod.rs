//! Multipath TCP (RFC 8684) as a machine: one stream each way over several connections, its subflows, each by a path
//! of its own.
//!
//! A [`Multipath`] works in sequence space, as a [`Connection`] does. Each segment of a subflow says where its
//! payload belongs in the data of the whole, and what of the peer's data has arrived; its window is that of the
//! buffer which all subflows share. A [`Scheduler`] chooses the subflow of each segment. What a subflow's timer
//! gives up is sent by another as well. Subflows are connections like any other, with any answer to loss;
//! [`Algorithm::Lia`](crate::Algorithm::Lia) links their windows.
//!
//! Left out are what only strangers need: keys that prove who adds a subflow, checksums, the return to plain TCP, and
//! the announcement of addresses, which whoever opens a connection is told.

mod data;
mod scheduler;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use lasthop_units::{Bytes, Time};
use lasthop_wire::tcp::{DataSignal, Flags, Mapping, Multipath as Says, Segment, Seq};

pub use scheduler::Scheduler;

use crate::ack_request::{AckRequest, AckWindow};
use crate::config::Config;
use crate::connection::{Connection, Event, NotAnOpening, Outgoing, Ports};
use crate::response::Coupling;
use crate::stats::Stats;
use data::{Inbox, Outbox, seq_at};
use scheduler::{Backlog, Scheduling, View};

/// The longest data sequence signal, which full segments leave room for, with its padding.
const SIGNAL: u16 = 20;
/// Subflows of one connection at most.
pub const SUBFLOWS_MAX: usize = 8;

/// Where bytes of a subflow's stream belong.
#[derive(Clone, Copy, Debug)]
struct Given {
    offset: u64,
    data: u64,
    len: u64,
}

/// A connection, and what it was given.
#[derive(Clone, Debug)]
struct Subflow {
    connection: Connection,
    /// What its SYN says.
    says: Says,
    /// What it was given and has not acknowledged, in order.
    given: VecDeque<Given>,
    /// Expiries of its timer so far.
    timeouts: u64,
    /// Its end was noticed.
    is_over: bool,
}

impl Subflow {
    fn new(connection: Connection, says: Says) -> Self {
        Self { connection, says, given: VecDeque::new(), timeouts: 0, is_over: false }
    }

    fn view(&self) -> Option<View> {
        let probe = self.connection.probe();
        (self.connection.is_established() && !self.connection.has_failed()).then(|| View {
            room: self.connection.has_room(),
            // One of which nothing is known is tried.
            srtt: probe.srtt.unwrap_or_default(),
            rttvar: probe.rttvar,
            cwnd: self.connection.cwnd(),
            flight: probe.flight.get(),
            mss: self.connection.segment_size().get(),
        })
    }

    /// Where the bytes from `offset` of the stream on belong, and how many of them before others follow that belong
    /// elsewhere.
    fn data_at(&self, offset: u64) -> Option<(u64, u64)> {
        let after = self.given.partition_point(|given| given.offset <= offset);
        let given = self.given.get(after.checked_sub(1)?)?;
        let within = offset - given.offset;
        (within < given.len).then(|| (given.data + within, given.len - within))
    }

    fn forget_acknowledged(&mut self) {
        let una = self.connection.first_unacknowledged();
        while let Some(given) = self.given.front_mut() {
            let done = una.saturating_sub(given.offset).min(given.len);
            if done < given.len {
                (given.offset, given.data, given.len) =
                    (given.offset + done, given.data + done, given.len - done);
                return;
            }
            self.given.pop_front();
        }
    }

    /// It is given bytes to send; what goes on where the last ended is one piece with it.
    fn give(&mut self, data: u64, len: u64) {
        let offset = self.connection.written().get();
        self.connection.write(Bytes::new(len));
        match self.given.back_mut() {
            Some(last) if last.data + last.len == data => last.len += len,
            _ => self.given.push_back(Given { offset, data, len }),
        }
    }
}

/// A multipath connection that knows lengths, not bytes. See the module's text.
#[derive(Clone, Debug)]
pub struct Multipath {
    config: Config,
    subflows: Vec<Subflow>,
    scheduling: Scheduling,
    key: u64,
    peer: Option<u64>,
    out: Outbox,
    inbox: Inbox,
    /// When the peer is asked for its window, if nothing else would tell it.
    probe_at: Time,
    /// The peer's end was told, and ours.
    told_end: bool,
    told_finished: bool,
    finishing: bool,
    events: VecDeque<Event>,
}

impl Multipath {
    /// Opens a connection by its first subflow. `key` is any number that no other connection of either host has.
    pub fn connect(
        config: Config,
        scheduler: Scheduler,
        ports: Ports,
        (iss, key): (Seq, u64),
        now: Time,
    ) -> Self {
        let first = Connection::connect(of_subflow(config), ports, iss, now);
        Self::over(config, scheduler, key, first)
    }

    /// Answers the SYN that opens a connection.
    ///
    /// # Errors
    ///
    /// The segment is no SYN, or offers no multipath.
    pub fn accept(
        config: Config,
        scheduler: Scheduler,
        (ports, syn): (Ports, &Segment),
        (iss, key): (Seq, u64),
        now: Time,
    ) -> Result<Self, NotAnOpening> {
        let Some(Says::Capable(peer)) = syn.options.multipath else {
            return Err(NotAnOpening(syn.flags));
        };
        let first = Connection::accept(of_subflow(config), ports, syn, iss, now)?;
        let mut it = Self { peer: Some(peer), ..Self::over(config, scheduler, key, first) };
        it.out.on_ack(0, u64::from(syn.window));
        Ok(it)
    }

    fn over(config: Config, scheduler: Scheduler, key: u64, first: Connection) -> Self {
        let mut subflows = Vec::with_capacity(2);
        subflows.push(Subflow::new(first, Says::Capable(key)));
        Self {
            config,
            subflows,
            scheduling: Scheduling::new(scheduler),
            key,
            peer: None,
            out: Outbox::new(config.send_buffer.get()),
            inbox: Inbox::new(config.recv_buffer.get()),
            probe_at: Time::NEVER,
            told_end: false,
            told_finished: false,
            finishing: false,
            events: VecDeque::new(),
        }
    }

    /// Adds a subflow by another path of whoever opened the connection: false if that is too early, or one too many.
    pub fn join(&mut self, ports: Ports, iss: Seq, now: Time) -> bool {
        let (Some(peer), true) = (self.peer, self.may_join()) else { return false };
        let connection = Connection::connect(of_subflow(self.config), ports, iss, now);
        // Tokens are the keys' low 32 bits.
        self.subflows.push(Subflow::new(connection, Says::Join(peer as u32)));
        true
    }

    /// Answers the SYN that adds a subflow: false if it is not for this connection, or one too many.
    pub fn accept_join(&mut self, ports: Ports, syn: &Segment, iss: Seq, now: Time) -> bool {
        if syn.options.multipath != Some(Says::Join(self.token())) || !self.may_join() {
            return false;
        }
        let Ok(connection) = Connection::accept(of_subflow(self.config), ports, syn, iss, now)
        else {
            return false;
        };
        self.subflows.push(Subflow::new(connection, Says::Join(self.token())));
        true
    }

    fn may_join(&self) -> bool {
        // The SYN of another subflow may overtake what lets the first one stand here.
        !self.is_closed() && !self.finishing && self.subflows.len() < SUBFLOWS_MAX
    }

    /// What the SYN of another subflow says to be added here.
    pub fn token(&self) -> u32 {
        self.key as u32
    }

    /// The connections that it has, in the order in which they came, to watch.
    pub fn subflows(&self) -> impl Iterator<Item = &Connection> {
        self.subflows.iter().map(|subflow| &subflow.connection)
    }

    /// The first of them, to watch.
    pub fn first(&self) -> &Connection {
        // There is one from the beginning on.
        &self.subflows[0].connection
    }

    /// What all of them did, and what of the whole is acknowledged.
    pub fn stats(&self) -> Stats {
        let all = self.subflows().fold(Stats::default(), |sum, one| sum.plus(one.stats()));
        Stats { bytes_acked: self.out.una, ..all }
    }

    /// The next thing that happened, if any.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Something happened that [`poll_event`](Self::poll_event) tells.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// `n` more bytes of our stream exist; how many of them there is room for.
    pub fn write(&mut self, n: Bytes) -> Bytes {
        let taken = n.get().min(self.out.room());
        self.out.written += taken;
        Bytes::new(taken)
    }

    /// Bytes that can be written.
    pub fn send_room(&self) -> Bytes {
        Bytes::new(self.out.room())
    }

    /// Bytes of our stream that the peer has.
    pub fn acknowledged(&self) -> Bytes {
        Bytes::new(self.out.una)
    }

    /// Payload of a full segment.
    pub fn segment_size(&self) -> Bytes {
        let sizes = self.subflows().map(Connection::segment_size);
        sizes.min().unwrap_or(Bytes::new(1))
    }

    /// Bytes of the peer's stream that have arrived in order and were not read.
    pub fn readable(&self) -> Bytes {
        Bytes::new(self.inbox.readable())
    }

    /// `n` bytes were read; the window may open.
    pub fn consume(&mut self, n: Bytes) {
        if !self.inbox.consume(n.get(), self.segment_size().get()) {
            return;
        }
        for Subflow { connection, .. } in &mut self.subflows {
            if connection.receives() {
                connection.request_ack(AckRequest { withhold: 0, window: AckWindow::Real });
            }
        }
    }

    /// Ends our stream after what was written.
    pub fn finish(&mut self) {
        self.out.fin = true;
        self.end_if_done();
    }

    /// Gives the connection up.
    pub fn abort(&mut self) {
        for place in 0..self.subflows.len() {
            self.subflows[place].connection.abort();
            self.look_at(place);
        }
    }

    /// Takes a segment of the subflow at a place, which met congestion on its way if it is `marked`.
    pub fn handle_segment(&mut self, now: Time, place: usize, segment: &Segment, marked: bool) {
        self.link_windows();
        let Some(subflow) = self.subflows.get_mut(place) else { return };
        let shift = subflow.connection.snd_shift;
        let stated = if segment.flags.contains(Flags::SYN) { 0 } else { shift };
        let window = u64::from(segment.window) << stated;
        // Its window is that of the whole connection; what bounds the subflow is its congestion window alone.
        let own = Segment { window: u16::MAX, ..*segment };
        let arrival = subflow.connection.handle_segment_marked(now, &own, marked);
        let readable = subflow.connection.readable();
        subflow.connection.consume(readable);
        subflow.forget_acknowledged();
        match (segment.options.multipath, self.peer) {
            (Some(Says::Capable(peer)), None) => {
                self.peer = Some(peer);
                self.out.on_ack(0, window);
            }
            (Some(Says::Signal(signal)), Some(peer)) => {
                self.take_signal(peer, &signal, window);
                if let Some(mapping) = signal.mapping
                    && let Some(start) = self.inbox.position(peer, mapping.data)
                {
                    let most = u32::from(mapping.len).saturating_sub(arrival.skip);
                    let len = arrival.len.min(most);
                    self.inbox.take(start + u64::from(arrival.skip), u64::from(len));
                }
            }
            _ => {}
        }
        self.look_around(now);
    }

    fn take_signal(&mut self, peer: u64, signal: &DataSignal, window: u64) {
        let una = self.out.una;
        let ahead = i64::from(signal.ack.ahead_of(seq_at(self.key, una)));
        if let Some(position) = una.checked_add_signed(ahead) {
            self.out.on_ack(position, window);
        }
        if let Some(mapping) = signal.mapping.filter(|_| signal.fin) {
            let start = self.inbox.position(peer, mapping.data);
            let end = start.map(|start| start + u64::from(mapping.len).saturating_sub(1));
            self.inbox.fin = self.inbox.fin.or(end);
        }
    }

    /// Tells each subflow what its window grows by.
    fn link_windows(&mut self) {
        let of = |connection: &Connection| {
            let rtt = connection.probe().srtt?;
            connection.is_established().then(|| (connection.cwnd(), rtt.as_secs_f64()))
        };
        let coupling = Coupling::of(self.subflows().filter_map(of));
        self.subflows.iter_mut().for_each(|subflow| subflow.connection.set_coupling(coupling));
    }

    /// Takes note of what became of subflows, and of the ends.
    fn look_around(&mut self, now: Time) {
        for place in 0..self.subflows.len() {
            self.look_at(place);
        }
        if self.inbox.has_ended() && !self.told_end {
            self.told_end = true;
            self.events.push_back(Event::PeerFinished);
        }
        self.end_if_done();
        self.plan_probe(now);
    }

    /// Once the peer has all of our data, and there will be no more, subflows end.
    fn end_if_done(&mut self) {
        if !self.out.is_done() {
            return;
        }
        self.finishing = true;
        // Also one that came to stand only now.
        for Subflow { connection, .. } in &mut self.subflows {
            connection.finish();
        }
        if !self.told_finished {
            self.told_finished = true;
            self.events.push_back(Event::Finished);
        }
    }

    fn look_at(&mut self, place: usize) {
        let Some(subflow) = self.subflows.get_mut(place) else { return };
        let mut ending = None;
        while let Some(event) = subflow.connection.poll_event() {
            match event {
                Event::Connected if place == 0 => self.events.push_back(event),
                Event::Reset | Event::GaveUp => ending = Some(event),
                _ => {}
            }
        }
        let timeouts = subflow.connection.stats().timeouts;
        let is_over = subflow.connection.is_closed();
        if timeouts > subflow.timeouts || is_over && !subflow.is_over {
            // What it does not bring in time another one brings.
            for given in &subflow.given {
                self.out.give_again(given.data, given.len);
            }
        }
        subflow.timeouts = timeouts;
        if is_over && !core::mem::replace(&mut subflow.is_over, true) && self.is_closed() {
            let whole = self.told_end && self.told_finished;
            self.events.extend(ending.filter(|_| !whole));
            self.events.push_back(Event::Closed);
        }
    }

    /// Over: nothing more happens.
    pub fn is_closed(&self) -> bool {
        self.subflows().all(Connection::is_closed)
    }

    /// The next segment to send, and the place of its subflow. Call until there is none.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(usize, Outgoing)> {
        loop {
            for place in 0..self.subflows.len() {
                if let Some(outgoing) = self.subflows[place].connection.poll_transmit(now) {
                    return Some((place, self.with_signal(place, outgoing)));
                }
            }
            if !self.give(now) {
                self.plan_probe(now);
                return None;
            }
        }
    }

    /// Gives the next piece of data to a subflow, if there is one that may send it.
    fn give(&mut self, now: Time) -> bool {
        let most = self.segment_size().get();
        let Some((start, len, _)) = self.out.next_piece(most) else {
            if self.out.left() > 0 {
                self.scheduling.on_blocked();
            }
            return false;
        };
        let mut views = [None; SUBFLOWS_MAX];
        for (view, subflow) in views.iter_mut().zip(&self.subflows) {
            *view = subflow.view();
        }
        let window = self.out.edge.saturating_sub(self.out.una);
        let backlog = Backlog { left: self.out.left(), window };
        let Some(place) = self.scheduling.pick(now, &views, backlog) else { return false };
        self.subflows[place].give(start, len);
        self.out.give(start, len);
        true
    }

    /// The segment with what it says of the data, and with the window of the whole.
    fn with_signal(&mut self, place: usize, mut outgoing: Outgoing) -> Outgoing {
        let subflow = &self.subflows[place];
        let segment = &mut outgoing.segment;
        if segment.flags.contains(Flags::RST) {
            return outgoing;
        }
        let says = match self.peer {
            Some(peer) if !segment.flags.contains(Flags::SYN) => {
                let fin = segment.flags.contains(Flags::FIN);
                let placed = match segment.len {
                    // Subflows end when all data is acknowledged, so that an end comes alone.
                    0 => fin.then_some((self.out.written, 1)),
                    len => subflow.data_at(outgoing.offset).map(|(data, most)| {
                        // What was cut anew may go on with bytes that belong elsewhere.
                        let rest = u64::from(len).saturating_sub(most);
                        if rest > 0
                            && let Some((data, most)) = subflow.data_at(outgoing.offset + most)
                        {
                            self.out.give_again(data, rest.min(most));
                        }
                        (data, most.min(u64::from(len)))
                    }),
                };
                let mapping = placed.map(|(data, len)| Mapping {
                    data: seq_at(self.key, data),
                    // The stream's offsets begin behind the SYN.
                    subflow: (outgoing.offset as u32).wrapping_add(1),
                    len: u16::try_from(len).unwrap_or(u16::MAX),
                });
                segment.window = self.inbox.window(subflow.connection.recv.shift);
                let ack = seq_at(peer, self.inbox.nxt + u64::from(self.inbox.has_ended()));
                Says::Signal(DataSignal { ack, mapping, fin })
            }
            _ => subflow.says,
        };
        segment.options.multipath = Some(says);
        outgoing
    }

    /// Where the peer has no room and nothing is on its way whose acknowledgement would tell of some, it is asked.
    fn plan_probe(&mut self, now: Time) {
        let waits = self.out.left() > 0
            && self.out.next_piece(1).is_none()
            && !self.subflows().any(Connection::is_outstanding);
        if !waits {
            self.probe_at = Time::NEVER;
        } else if self.probe_at == Time::NEVER {
            let longest = self.subflows().map(|connection| connection.probe().rto).max();
            self.probe_at = now + longest.unwrap_or_default();
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    pub fn next_timeout(&self) -> Option<Time> {
        let probe = Some(self.probe_at).filter(|at| *at != Time::NEVER);
        self.subflows().filter_map(Connection::next_timeout).chain(probe).min()
    }

    /// Lets timers act whose time has come.
    pub fn handle_timeout(&mut self, now: Time) {
        for Subflow { connection, .. } in &mut self.subflows {
            if connection.next_timeout().is_some_and(|at| at <= now) {
                connection.handle_timeout(now);
            }
        }
        if self.probe_at <= now {
            self.probe_at = Time::NEVER;
            // A byte that the peer has already: its acknowledgement tells the window.
            let standing = self.subflows().position(|c| c.has_room());
            if let (Some(place), Some(last)) = (standing, self.out.una.checked_sub(1)) {
                self.subflows[place].give(last, 1);
            }
        }
        self.look_around(now);
    }
}

/// A subflow's own configuration: full segments leave room for the signal, and neither buffer bounds it.
fn of_subflow(config: Config) -> Config {
    Config {
        mss: config.mss.saturating_sub(SIGNAL).max(1),
        send_buffer: Bytes::new(u64::MAX),
        nagle: false,
        ..config
    }
}
