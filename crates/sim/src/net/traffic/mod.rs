//! Traffic: what applications on hosts do to each other (MET-1, MET-2, MET-13).
//!
//! [`Traffic`] is an [`App`] that plays any number of clients and services. Their bytes are virtual
//! unless [`Traffic::carrying`] says otherwise.

mod bytes;
mod datagrams;
mod record;
#[cfg(test)]
mod tests;
mod user;
mod work;

use core::net::{Ipv4Addr, SocketAddrV4};

use lasthop_tcp as tcp;
use lasthop_units::{Bytes, Duration, LinkEvent, Seed, Stream, Time};

use datagrams::Datagrams;
pub use datagrams::{DatagramRecord, DatagramWork};
pub use record::{MOST_LATENCIES, Record};
use user::Control;
pub use user::{User, Wish};
pub use work::{Service, Span, Work};
use work::{State, use_one};

use crate::net::host::{App, Content, Ending, Event, FlowId, Io, OutgoingDatagram};

/// A client to be.
#[derive(Clone, Debug)]
pub struct Client {
    /// When it opens its connection.
    pub at: Time,
    /// Where to.
    pub dst: (Ipv4Addr, u16),
    /// How its TCP behaves.
    pub config: tcp::Config,
    /// What it does.
    pub work: Work,
}

/// Clients and services of one host.
#[derive(Debug)]
pub struct Traffic {
    services: Vec<(u16, tcp::Config, Service)>,
    /// Services not yet announced to the host.
    announced: usize,
    clients: Vec<Client>,
    sessions: Vec<Session>,
    /// The session of each flow, by the flow's slot.
    by_slot: Vec<Option<usize>>,
    random: Stream,
    control: Option<Control>,
    content: Content,
    datagrams: Datagrams,
    /// The earliest of what all sessions wait for.
    next: Time,
}

#[derive(Debug)]
struct Session {
    flow: Option<FlowId>,
    client: Option<usize>,
    state: State,
    due: Time,
    record: Record,
}

impl Traffic {
    /// No clients and no services; what is random follows from `seed`.
    pub fn new(seed: Seed) -> Self {
        Self {
            services: Vec::new(),
            announced: 0,
            clients: Vec::new(),
            sessions: Vec::new(),
            by_slot: Vec::new(),
            random: seed.stream("traffic"),
            control: None,
            content: Content::Virtual,
            datagrams: Datagrams::default(),
            next: Time::NEVER,
        }
    }

    /// Adds a service.
    #[must_use]
    pub fn serve(mut self, port: u16, config: tcp::Config, service: Service) -> Self {
        self.services.push((port, config, service));
        self.next = Time::ZERO;
        self
    }

    /// Adds a client.
    #[must_use]
    pub fn start(mut self, client: Client) -> Self {
        let record =
            Record { port: client.dst.1, client: true, start: client.at, ..Record::default() };
        self.sessions.push(Session {
            flow: None,
            client: Some(self.clients.len()),
            state: State::of_work(&client.work),
            due: client.at,
            record,
        });
        self.clients.push(client);
        self.refresh();
        self
    }

    /// Puts a user before the host, who may give its flows priorities (UFB-1).
    #[must_use]
    pub fn used_by(mut self, user: User) -> Self {
        self.control = Some(Control::new(user));
        self.refresh();
        self
    }

    /// Lets the bytes exist, or not; both ends of a flow must agree. What arrives is then compared
    /// with what was written ([`Record::differs_at`]).
    #[must_use]
    pub const fn carrying(mut self, content: Content) -> Self {
        self.content = content;
        self
    }

    /// Sends datagrams to a port of a host from `at` on; what comes back comes from that number, too.
    #[must_use]
    pub fn send_datagrams(mut self, at: Time, dst: (Ipv4Addr, u16), work: DatagramWork) -> Self {
        self.datagrams.send(at, dst, work);
        self
    }

    /// Takes the datagrams that come to a port.
    #[must_use]
    pub fn take_datagrams(mut self, port: u16) -> Self {
        self.datagrams.take(port);
        self
    }

    /// What the end of a flow of datagrams that sends, or takes, has seen so far.
    pub fn datagrams(&self, port: u16, sends: bool) -> Option<&DatagramRecord> {
        self.datagrams.record(port, sends)
    }

    /// What is known of each flow so far: clients first in the order in which they were added,
    /// then connections in the order in which they were accepted.
    pub fn records(&self) -> impl Iterator<Item = &Record> + '_ {
        self.sessions.iter().map(|session| &session.record)
    }

    /// The connection of the record at `index`, while it lasts.
    pub fn flow(&self, index: usize) -> Option<FlowId> {
        self.sessions.get(index).and_then(|session| session.flow)
    }

    fn refresh(&mut self) {
        let dues = self.sessions.iter().map(|session| session.due);
        let services = if self.announced < self.services.len() { Time::ZERO } else { Time::NEVER };
        let control = self.control.as_ref().map_or(Time::NEVER, Control::next_timeout);
        self.next = dues.min().unwrap_or(Time::NEVER).min(services).min(control);
    }

    fn announce(&mut self, io: &mut Io<'_, '_>) {
        for (port, config, _) in &self.services[self.announced..] {
            io.listen(*port, *config, self.content);
        }
        self.announced = self.services.len();
    }

    fn bind(&mut self, flow: FlowId, session: usize) {
        let slot = flow.slot();
        if self.by_slot.len() <= slot {
            self.by_slot.resize(slot + 1, None);
        }
        self.by_slot[slot] = Some(session);
        self.sessions[session].flow = Some(flow);
    }

    #[inline]
    fn session(&self, flow: FlowId) -> Option<usize> {
        let session = self.by_slot.get(flow.slot()).copied().flatten()?;
        (self.sessions[session].flow == Some(flow)).then_some(session)
    }

    fn accept(&mut self, io: &mut Io<'_, '_>, flow: FlowId, port: u16) {
        let Some((_, _, service)) = self.services.iter().find(|(p, _, _)| *p == port) else {
            return;
        };
        let record = Record { port, start: io.now(), ..Record::default() };
        let state = State::of_service(service);
        self.sessions.push(Session { flow: None, client: None, state, due: Time::NEVER, record });
        self.bind(flow, self.sessions.len() - 1);
        if let Some(control) = &mut self.control {
            control.begin(io, flow, port);
        }
    }

    fn open(&mut self, io: &mut Io<'_, '_>, index: usize) {
        let session = &mut self.sessions[index];
        session.due = Time::NEVER;
        let Some(client) = session.client.and_then(|client| self.clients.get(client)) else {
            return;
        };
        session.record.start = io.now();
        match io.connect(client.dst.0, client.dst.1, client.config, self.content) {
            Some(flow) => self.bind(flow, index),
            None => session.record.end = Some((io.now(), Ending::Reset)),
        }
    }

    /// What a session does when its time has come.
    fn act(&mut self, io: &mut Io<'_, '_>, index: usize) {
        let now = io.now();
        let session = &mut self.sessions[index];
        session.due = Time::NEVER;
        let Some(flow) = session.flow else { return self.open(io, index) };
        match &mut session.state {
            State::Requesting(r) => {
                if use_one(&mut r.left) {
                    (r.unsent, r.awaited, r.asked) = (r.request, r.response, now);
                    session.record.unanswered += 1;
                } else {
                    io.finish(flow);
                }
            }
            State::Typing(t) => {
                if !use_one(&mut t.left) {
                    io.finish(flow);
                    return;
                }
                session.record.unanswered += u64::from(t.strike(now));
                session.due = now + at_least_a_tick(t.every.draw(&mut self.random));
            }
            State::OnOff(o) => {
                if now >= o.until {
                    o.until = now + o.on.draw(&mut self.random);
                }
                o.unsent += o.piece;
                let next = now + at_least_a_tick(o.rate.time_for(o.piece));
                session.due = if next < o.until {
                    next
                } else {
                    o.until.max(now) + at_least_a_tick(o.off.draw(&mut self.random))
                };
            }
            State::Sending { .. }
            | State::Taking
            | State::Echoing { .. }
            | State::Responding { .. } => {}
        }
        self.write(io, index);
    }

    /// Writes what is owed, as far as there is room.
    fn write(&mut self, io: &mut Io<'_, '_>, index: usize) {
        let session = &mut self.sessions[index];
        let Some(flow) = session.flow else { return };
        let Some(owed) = session.state.owed() else { return };
        if owed.get() > 0 {
            let taken = match self.content {
                Content::Virtual => io.write(flow, *owed),
                Content::Real => bytes::write(io, flow, &session.record, *owed),
            };
            *owed -= taken;
            session.record.written += taken;
        }
        if let State::Sending { left: Bytes::ZERO, finish: true } = session.state {
            io.finish(flow);
        }
    }

    fn connected(&mut self, io: &mut Io<'_, '_>, index: usize) {
        let now = io.now();
        let session = &mut self.sessions[index];
        session.record.connected = Some(now);
        if session.client.is_some() {
            if let (Some(control), Some(flow)) = (&mut self.control, session.flow) {
                control.begin(io, flow, session.record.port);
            }
            self.act(io, index);
            self.refresh();
        } else {
            self.write(io, index);
        }
    }

    #[inline]
    fn read(&mut self, io: &mut Io<'_, '_>, index: usize, flow: FlowId) {
        let now = io.now();
        let session = &mut self.sessions[index];
        let n = match self.content {
            Content::Virtual => io.consume(flow, Bytes::new(u64::MAX)),
            Content::Real => bytes::read(io, flow, &mut session.record),
        };
        session.record.note_received(now, n);
        match &mut session.state {
            State::Sending { .. } | State::Taking | State::OnOff(_) => return,
            State::Echoing { owed } => *owed += n,
            State::Responding { request, response, partial, owed } => {
                let total = partial.get() + n.get();
                let requests = total / request.get();
                *partial = Bytes::new(total % request.get());
                *owed += Bytes::new(requests.saturating_mul(response.get()));
            }
            State::Requesting(r) => {
                let waited = r.awaited.get() > 0;
                r.awaited -= n;
                if waited && r.awaited.get() == 0 {
                    session.record.note_latency(now.since(r.asked));
                    session.due = now + r.think.draw(&mut self.random);
                    self.refresh();
                }
                return;
            }
            State::Typing(t) => {
                for typed in t.waiting.drain(..n.as_usize().min(t.waiting.len())) {
                    session.record.note_latency(now.since(typed));
                }
                return;
            }
        }
        self.write(io, index);
    }

    fn peer_finished(&mut self, io: &mut Io<'_, '_>, index: usize, flow: FlowId) {
        let session = &mut self.sessions[index];
        session.record.peer_finished = Some(io.now());
        let owed = session.state.owed().map_or(0, |owed| owed.get());
        if owed == 0 {
            io.finish(flow);
        }
    }

    fn closed(&mut self, now: Time, index: usize, ending: Ending) {
        let session = &mut self.sessions[index];
        session.record.end = Some((now, ending));
        session.due = Time::NEVER;
        session.flow = None;
        session.client = None;
        self.refresh();
    }
}

/// Whatever was drawn, time goes on.
fn at_least_a_tick(span: Duration) -> Duration {
    span.max(Duration::from_micros(1))
}

impl App for Traffic {
    #[inline]
    fn handle_event(&mut self, io: &mut Io<'_, '_>, flow: FlowId, event: Event) {
        if let Event::Accepted { port } = event {
            return self.accept(io, flow, port);
        }
        let Some(index) = self.session(flow) else { return };
        match event {
            Event::Accepted { .. } => {}
            Event::Connected => self.connected(io, index),
            Event::Readable => self.read(io, index, flow),
            Event::Writable => self.write(io, index),
            Event::PeerFinished => self.peer_finished(io, index, flow),
            Event::Finished => self.sessions[index].record.acknowledged = Some(io.now()),
            Event::Closed(ending) => {
                if let Some(control) = &mut self.control {
                    control.end(io, flow);
                }
                self.closed(io.now(), index, ending);
            }
        }
    }

    fn handle_link_event(&mut self, _io: &mut Io<'_, '_>, event: LinkEvent) {
        if let Some(control) = &mut self.control {
            control.handle_link_event(event);
            self.refresh();
        }
    }

    #[inline]
    fn next_timeout(&self) -> Option<Time> {
        let next = self.datagrams.next_timeout().map_or(self.next, |at| at.min(self.next));
        (next != Time::NEVER).then_some(next)
    }

    fn handle_datagram(&mut self, now: Time, from: SocketAddrV4, port: u16, bytes: &[u8]) -> bool {
        self.datagrams.handle(now, from, port, bytes)
    }

    fn poll_datagram(&mut self, now: Time) -> Option<OutgoingDatagram> {
        self.datagrams.poll(now)
    }

    fn handle_timeout(&mut self, io: &mut Io<'_, '_>) {
        self.datagrams.handle_timeout(io.now());
        self.announce(io);
        if let Some(control) = &mut self.control {
            control.handle_timeout(io);
        }
        for index in 0..self.sessions.len() {
            if self.sessions[index].due <= io.now() {
                self.act(io, index);
            }
        }
        self.refresh();
    }
}
