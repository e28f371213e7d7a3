//! The base's end of split-tcp: it greets what connects, and keeps the associations.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use lasthop_hop::seal::{PublicKey, ReplayWindow, Responder};
use lasthop_session::ResetReason;
use lasthop_units::{Seed, Stream as Random, Time};
use lasthop_wire::datagram::{MAX_INIT_LEN, MAX_REPLY_LEN};

use super::cipher::{CONTROL, SharedKeys};
use super::record::{End, Inbound, Outbound};
use super::stream::Stream;
use super::streams::SplitTcp;
use super::wires::{Place, Wires};
use super::{
    GREETING_TIMEOUT, KIND_CONTROL, KIND_STREAM, PREFACE_LEN, STREAM_PREFACE_LEN, hello, lost,
    preface,
};
use crate::base::BaseHop;
use crate::control::AssociationReport;
use crate::hop::{Hop, HopEvent, Source, Turn};
use crate::reactor::{Interest, Readiness};
use crate::slab::Key;
use crate::split::report;
use crate::tcp::{self, Accepted, Congestion, Moved, Socket};

/// Connections that have not yet said whose they are; beyond, the oldest is cut.
const GREETINGS_MAX: usize = 512;
/// How long accepting pauses when descriptors have run out.
const PAUSE: Duration = Duration::from_millis(100);

/// Whom a connection of the base's own is for.
#[derive(Clone, Copy, Debug)]
enum Own {
    Listener(usize),
    Greeting,
    Control(u32),
}

/// A connection of which nothing is believed yet.
struct Greeting {
    socket: Socket,
    from: SocketAddr,
    into: Inbound,
    /// The association and stream that it claims, once the preface was read.
    claims: Option<(u32, u64)>,
}

/// What a greeting came to.
enum Verdict {
    Wait,
    Garbage,
    /// An init for a new association.
    Init(Vec<u8>),
    /// The first record of a stream of an association opened.
    Stream(u32, u64),
}

/// The connection on which an association began.
struct Control {
    key: Key,
    socket: Socket,
    into: Inbound,
    out: Outbound,
}

impl Control {
    /// Hears what the mobile says, which is nothing but its proof, and says what waits. False if the
    /// connection is over.
    fn exchange(&mut self) -> bool {
        loop {
            // A mobile proves itself with one byte; whatever else it says is dropped.
            let opened = self.into.advance();
            self.into.consume(self.into.plain().len());
            if opened.is_err() || self.into.end() != End::Open {
                return false;
            }
            match self.socket.read(self.into.space()) {
                Moved::Bytes(n) => self.into.filled(n),
                Moved::Blocked => return self.flush(),
                Moved::End | Moved::Broken(_) => return false,
            }
        }
    }

    fn flush(&mut self) -> bool {
        loop {
            let pending = self.out.pending();
            if pending.is_empty() {
                return true;
            }
            match self.socket.write(pending) {
                Moved::Bytes(n) => self.out.sent(n),
                Moved::Blocked | Moved::End => return true,
                Moved::Broken(_) => return false,
            }
        }
    }

    /// Asks for a connection for `stream`; false if too many questions wait.
    fn ask(&mut self, stream: u64) -> bool {
        let number = stream.to_be_bytes();
        let Some(room) = self.out.space().first_chunk_mut() else { return false };
        *room = number;
        self.out.commit(number.len());
        true
    }
}

struct Association {
    peer: PublicKey,
    address: SocketAddr,
    keys: SharedKeys,
    /// Streams that were accepted.
    seen: ReplayWindow,
    streams: SplitTcp,
    /// Something sealed with the keys has opened, so the init was no replay.
    confirmed: bool,
    control: Option<Control>,
    since: Time,
    active: bool,
}

/// What the base's end is allowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Associations at once.
    pub(crate) associations: usize,
    /// Streams of one association at once.
    pub(crate) streams: usize,
}

/// The base's end.
pub(crate) struct SplitBase {
    listeners: Vec<OwnedFd>,
    responder: Responder,
    /// `None`: anybody, as on an unsealed hop.
    allowed: Option<Vec<PublicKey>>,
    bounds: Bounds,
    random: Random,
    wires: Wires<Own>,
    greetings: HashMap<Key, Greeting>,
    deadlines: VecDeque<(Time, Key)>,
    candidates: VecDeque<(Time, u32)>,
    associations: BTreeMap<u32, Association>,
    active: VecDeque<u32>,
    events: VecDeque<HopEvent<u32>>,
    resume_at: Option<Time>,
    garbage: u64,
}

impl SplitBase {
    /// Listens on every address of `listen`.
    pub(crate) fn bind(
        listen: &[SocketAddr],
        congestion: Option<&Congestion>,
        responder: Responder,
        allowed: Option<Vec<PublicKey>>,
        bounds: Bounds,
        seed: Seed,
    ) -> Result<Self, (SocketAddr, io::Error)> {
        let mut listeners = Vec::new();
        for addr in listen {
            let fd = tcp::listen(*addr).map_err(|e| (*addr, e))?;
            if let Some(congestion) = congestion {
                congestion.apply(&fd).map_err(|e| (*addr, e))?;
            }
            listeners.push(fd);
        }
        Ok(Self {
            listeners,
            responder,
            allowed,
            bounds,
            random: seed.stream("split-base"),
            wires: Wires::new(),
            greetings: HashMap::new(),
            deadlines: VecDeque::new(),
            candidates: VecDeque::new(),
            associations: BTreeMap::new(),
            active: VecDeque::new(),
            events: VecDeque::new(),
            resume_at: None,
            garbage: 0,
        })
    }

    fn accept(&mut self, turn: &mut Turn<'_>, listener: usize) {
        // A flood of connections must not starve the streams.
        let mut resume_at = turn.now;
        for _ in 0..64 {
            let Some(fd) = self.listeners.get(listener) else { return };
            match tcp::accept(fd) {
                Accepted::Connection(fd, from) => self.greet(turn, fd, tcp::canonical(from)),
                Accepted::Empty => return,
                Accepted::Exhausted(e) => {
                    tracing::warn!(error = %e, "accepting pauses");
                    resume_at = turn.now + PAUSE;
                    break;
                }
            }
        }
        self.resume_at = Some(resume_at);
    }

    fn greet(&mut self, turn: &mut Turn<'_>, fd: OwnedFd, from: SocketAddr) {
        let Ok((key, socket)) = self.wires.watch(turn, fd, Place::Own(Own::Greeting)) else {
            return;
        };
        let greeting = Greeting { socket, from, into: Inbound::new(0), claims: None };
        self.greetings.insert(key, greeting);
        self.deadlines.push_back((turn.now + GREETING_TIMEOUT, key));
        while self.deadlines.front().is_some_and(|(_, key)| !self.greetings.contains_key(key)) {
            self.deadlines.pop_front();
        }
        if self.greetings.len() > GREETINGS_MAX
            && let Some((_, oldest)) = self.deadlines.pop_front()
        {
            self.cut(turn, oldest);
        }
    }

    /// Ends a greeting that leads to nothing.
    fn cut(&mut self, turn: &mut Turn<'_>, key: Key) {
        if let Some(greeting) = self.greetings.remove(&key) {
            self.garbage += 1;
            self.wires.places.remove(key);
            greeting.socket.close(turn.reactor, false);
        }
    }

    fn handle_greeting(&mut self, turn: &mut Turn<'_>, key: Key, readiness: Readiness) {
        let Some(greeting) = self.greetings.get_mut(&key) else { return };
        greeting.socket.ready(readiness);
        match read_greeting(greeting, &self.associations) {
            Verdict::Wait => {}
            Verdict::Garbage => self.cut(turn, key),
            Verdict::Init(init) => self.associate(turn, key, &init),
            Verdict::Stream(association, stream) => self.admit(turn, key, association, stream),
        }
    }

    /// Answers an init with a candidate.
    fn associate(&mut self, turn: &mut Turn<'_>, key: Key, init: &[u8]) {
        let request = match self.responder.read(init) {
            Ok(request) => request,
            Err(e) => {
                tracing::debug!(error = %e, "an init was refused");
                return self.cut(turn, key);
            }
        };
        let peer = *request.mobile();
        if self.allowed.as_ref().is_some_and(|allowed| !allowed.contains(&peer)) {
            tracing::debug!(mobile = %peer, "the mobile's key is not allowed");
            return self.cut(turn, key);
        }
        if self.associations.len() >= self.bounds.associations {
            tracing::warn!(mobile = %peer, "too many associations");
            return self.cut(turn, key);
        }
        let id = self.fresh_id();
        let mut reply = [0; 2 + MAX_REPLY_LEN];
        let Ok((len, keys)) = request.accept(&hello(id, 0), &mut reply[2..]) else {
            return self.cut(turn, key);
        };
        reply[..2].copy_from_slice(&(len as u16).to_be_bytes());
        let Some(mut greeting) = self.greetings.remove(&key) else { return };
        // A fresh connection's buffer holds a reply of a few hundred bytes.
        if !matches!(greeting.socket.write(&reply[..2 + len]), Moved::Bytes(n) if n == 2 + len) {
            self.wires.places.remove(key);
            return greeting.socket.close(turn.reactor, true);
        }
        if let Some(place) = self.wires.places.get_mut(key) {
            *place = Place::Own(Own::Control(id));
        }
        let keys = SharedKeys::new(keys);
        let (sealer, opener) = keys.stream(CONTROL);
        greeting.into.start(opener);
        let mut out = Outbound::new(0);
        out.start(sealer);
        let (socket, into) = (greeting.socket, greeting.into);
        // A mobile may still have streams of an association before, whose numbers are not these.
        let first = 2 * u64::from(self.random.next_u64() as u32) + 1;
        let association = Association {
            peer,
            address: greeting.from,
            keys,
            seen: ReplayWindow::new(),
            streams: SplitTcp::new(self.bounds.streams, first),
            confirmed: false,
            control: Some(Control { key, socket, into, out }),
            since: turn.now,
            active: false,
        };
        self.associations.insert(id, association);
        self.candidates.push_back((turn.now + GREETING_TIMEOUT, id));
        self.handle_control(turn, id, Readiness::default());
    }

    fn fresh_id(&mut self) -> u32 {
        loop {
            let id = self.random.next_u64() as u32;
            if !self.associations.contains_key(&id) {
                return id;
            }
        }
    }

    /// Takes the stream whose first record has opened.
    fn admit(&mut self, turn: &mut Turn<'_>, key: Key, id: u32, stream: u64) {
        self.confirm(id);
        let Some(association) = self.associations.get_mut(&id) else {
            return self.cut(turn, key);
        };
        let ours = stream % 2 == 1;
        let wanted = if ours {
            association.streams.awaits(stream)
        } else {
            association.streams.has_room() && association.seen.accept(stream / 2)
        };
        if !wanted {
            return self.cut(turn, key);
        }
        let Some(greeting) = self.greetings.remove(&key) else { return };
        if let Some(place) = self.wires.places.get_mut(key) {
            *place = Place::Stream(id, stream);
        }
        let sealer = association.keys.stream(stream).0;
        if ours {
            if let Some(waiting) = association.streams.get_mut(stream) {
                waiting.adopt(key, greeting.socket, greeting.into, sealer);
                association.streams.touch(stream);
            }
        } else {
            let accepted = Stream::accept(key, greeting.socket, greeting.into, sealer);
            association.streams.incoming(stream, accepted);
        }
        self.activate(id);
    }

    fn confirm(&mut self, id: u32) {
        if let Some(association) = self.associations.get_mut(&id)
            && !association.confirmed
        {
            association.confirmed = true;
            self.events.push_back(HopEvent::Up(id));
        }
    }

    fn activate(&mut self, id: u32) {
        if let Some(association) = self.associations.get_mut(&id)
            && !association.active
        {
            association.active = true;
            self.active.push_back(id);
        }
    }

    fn handle_control(&mut self, turn: &mut Turn<'_>, id: u32, readiness: Readiness) {
        let Some(association) = self.associations.get_mut(&id) else { return };
        let Some(control) = &mut association.control else { return };
        control.socket.ready(readiness);
        let alive = control.exchange();
        let proven = control.into.opened();
        if proven {
            self.confirm(id);
        }
        if !alive {
            self.drop_control(turn, id, "the mobile closed the connection");
        }
    }

    fn drop_control(&mut self, turn: &mut Turn<'_>, id: u32, why: &str) {
        let Some(association) = self.associations.get_mut(&id) else { return };
        if let Some(control) = association.control.take() {
            self.wires.places.remove(control.key);
            control.socket.close(turn.reactor, true);
        }
        self.end_if_idle(id, why);
    }

    /// An association without a control connection and without streams is over.
    fn end_if_idle(&mut self, id: u32, why: &str) {
        let Some(association) = self.associations.get(&id) else { return };
        if association.control.is_some() || !association.streams.is_empty() {
            return;
        }
        if association.confirmed {
            self.events.push_back(HopEvent::Lost(id, why.to_owned()));
        } else {
            self.associations.remove(&id);
        }
    }
}

/// Asks the mobile for a connection for a stream of the base's own, once.
fn call(id: u64, streams: &mut SplitTcp, control: Option<&mut Control>) {
    let Some(stream) = streams.get_mut(id).filter(|s| !s.started() && !s.asked) else { return };
    stream.asked = true;
    if !control.is_some_and(|control| control.ask(id)) {
        stream.break_off(lost());
    }
}

/// Reads what has come and judges it.
fn read_greeting(greeting: &mut Greeting, known: &BTreeMap<u32, Association>) -> Verdict {
    loop {
        let room = greeting.into.space();
        if room.is_empty() {
            return Verdict::Garbage;
        }
        match greeting.socket.read(room) {
            Moved::Bytes(n) => greeting.into.filled(n),
            Moved::Blocked => return Verdict::Wait,
            Moved::End | Moved::Broken(_) => return Verdict::Garbage,
        }
        match judge(greeting, known) {
            Verdict::Wait => {}
            verdict => return verdict,
        }
    }
}

fn judge(greeting: &mut Greeting, known: &BTreeMap<u32, Association>) -> Verdict {
    if let Some((association, stream)) = greeting.claims {
        return match greeting.into.advance() {
            Ok(()) if greeting.into.opened() => Verdict::Stream(association, stream),
            Ok(()) => Verdict::Wait,
            Err(_) => Verdict::Garbage,
        };
    }
    let raw = greeting.into.raw();
    if raw.starts_with(&preface(KIND_CONTROL)) {
        let Some(length) = raw.get(PREFACE_LEN..PREFACE_LEN + 2) else { return Verdict::Wait };
        let len = length.iter().fold(0, |n, b| n << 8 | usize::from(*b));
        let end = PREFACE_LEN + 2 + len;
        if len > MAX_INIT_LEN {
            return Verdict::Garbage;
        }
        let Some(init) = raw.get(PREFACE_LEN + 2..end) else { return Verdict::Wait };
        let init = init.to_vec();
        greeting.into.skip(end);
        return Verdict::Init(init);
    }
    if raw.starts_with(&preface(KIND_STREAM)) {
        let Some(names) = raw.get(PREFACE_LEN..STREAM_PREFACE_LEN) else { return Verdict::Wait };
        let number = |bytes: &[u8]| bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b));
        let (association, stream) = (number(&names[..4]) as u32, number(&names[4..]));
        let Some(claimed) = known.get(&association) else { return Verdict::Garbage };
        // A mobile's streams are even; of the odd ones only those are wanted that it was asked for.
        if stream % 2 == 1 && !claimed.streams.awaits(stream) {
            return Verdict::Garbage;
        }
        let keys = &claimed.keys;
        greeting.into.skip(STREAM_PREFACE_LEN);
        greeting.into.start(keys.stream(stream).1);
        greeting.claims = Some((association, stream));
        return judge(greeting, known);
    }
    if raw.len() >= PREFACE_LEN || !preface(KIND_CONTROL)[..4].starts_with(&raw[..raw.len().min(4)])
    {
        return Verdict::Garbage;
    }
    Verdict::Wait
}

impl Hop for SplitBase {
    type Id = u32;
    type Streams = SplitTcp;

    fn name(&self) -> &'static str {
        "split-tcp"
    }

    fn handle_ready(&mut self, turn: &mut Turn<'_>, key: Key, readiness: Readiness) {
        match self.wires.places.get(key) {
            Some(Place::Own(Own::Listener(i))) => self.accept(turn, *i),
            Some(Place::Own(Own::Greeting)) => self.handle_greeting(turn, key, readiness),
            Some(Place::Own(Own::Control(id))) => self.handle_control(turn, *id, readiness),
            Some(Place::Stream(id, stream)) => {
                let (id, stream) = (*id, *stream);
                if let Some(association) = self.associations.get_mut(&id)
                    && let Some(found) = association.streams.get_mut(stream)
                {
                    found.ready(readiness);
                    association.streams.touch(stream);
                }
            }
            Some(Place::Lingering(_)) => self.wires.handle_lingering(turn, key, readiness),
            None => {}
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        [
            self.deadlines.front().map(|(at, _)| *at),
            self.candidates.front().map(|(at, _)| *at),
            self.wires.next_timeout(),
            self.resume_at,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        self.wires.handle_timeout(turn);
        while let Some((at, key)) = self.deadlines.front().copied()
            && (at <= turn.now || !self.greetings.contains_key(&key))
        {
            self.deadlines.pop_front();
            self.cut(turn, key);
        }
        while let Some((at, id)) = self.candidates.front().copied()
            && at <= turn.now
        {
            self.candidates.pop_front();
            if self.associations.get(&id).is_some_and(|a| !a.confirmed) {
                self.garbage += 1;
                self.drop_control(turn, id, "not confirmed");
            }
        }
        if self.resume_at.is_some_and(|at| at <= turn.now) {
            self.resume_at = None;
            for i in 0..self.listeners.len() {
                self.accept(turn, i);
            }
        }
    }

    fn pump(&mut self, turn: &mut Turn<'_>) {
        let mut touched = Vec::new();
        for (id, association) in &mut self.associations {
            let streams = &mut association.streams;
            if streams.is_idle() {
                continue;
            }
            while let Some((stream, code)) = streams.next_abandoned() {
                self.wires.abandon(turn, stream, code);
            }
            while let Some(stream) = streams.next_dirty() {
                call(stream, streams, association.control.as_mut());
                streams.pump(stream);
            }
            if let Some(control) = &mut association.control {
                // A connection that is over says so by its own event.
                control.flush();
            }
            touched.push(*id);
        }
        for id in touched {
            if self.associations.get(&id).is_some_and(|a| a.streams.has_events()) {
                self.activate(id);
            }
            self.end_if_idle(id, "the last connection is over");
        }
    }

    fn flush(&mut self, turn: &mut Turn<'_>) {
        self.pump(turn);
    }

    fn poll_event(&mut self) -> Option<HopEvent<u32>> {
        self.events.pop_front()
    }

    fn poll_active(&mut self) -> Option<u32> {
        let id = self.active.pop_front()?;
        if let Some(association) = self.associations.get_mut(&id) {
            association.active = false;
        }
        Some(id)
    }

    fn is_active(&self) -> bool {
        !self.active.is_empty() || self.associations.values().any(|a| !a.streams.is_idle())
    }

    fn streams(&mut self, id: u32) -> Option<&mut SplitTcp> {
        self.associations.get_mut(&id).map(|a| &mut a.streams)
    }

    fn forget(&mut self, turn: &mut Turn<'_>, id: u32) {
        if let Some(mut association) = self.associations.remove(&id) {
            association.streams.break_all(ResetReason::AssociationLost.code());
            while let Some((stream, code)) = association.streams.next_abandoned() {
                self.wires.abandon(turn, stream, code);
            }
        }
    }

    fn close(&mut self, _turn: &mut Turn<'_>) {}

    fn reports(&self, now: Time) -> Vec<AssociationReport> {
        let confirmed = self.associations.iter().filter(|(_, a)| a.confirmed);
        confirmed
            .map(|(id, a)| {
                let state = if a.control.is_some() { "up" } else { "closing" };
                let age = now - a.since;
                report::of(&a.streams, u64::from(*id), Some(a.peer), Some(a.address), state, age)
            })
            .collect()
    }

    fn garbage(&self) -> u64 {
        self.garbage
    }
}

impl BaseHop for SplitBase {
    fn local_addrs(&self) -> Vec<SocketAddr> {
        self.listeners.iter().map(tcp::local_addr).collect()
    }

    fn start(&mut self, turn: &mut Turn<'_>) -> io::Result<()> {
        for (i, fd) in self.listeners.iter().enumerate() {
            let key = self.wires.places.insert(Place::Own(Own::Listener(i)));
            turn.reactor.add(fd, Interest::Read, Source::Hop(key))?;
        }
        Ok(())
    }

    fn stop(&mut self, _turn: &mut Turn<'_>) {
        // Closing a listener takes it out of the epoll set.
        self.listeners.clear();
    }

    fn key_of(&self, id: u32) -> Option<PublicKey> {
        self.associations.get(&id).map(|a| a.peer)
    }
}
