//! The base's end of split-tcp: authenticates what connects, and keeps the associations.

mod admission;
mod association;
pub(in crate::split) mod candidates;
pub(in crate::split) mod greeting;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use lasthop_control::AssociationReport;
use lasthop_control::past::Progress;
use lasthop_hop::seal::{Allowed, PresharedKey, PublicKey, Responder};
use lasthop_hop::{AssociationId, Memory, Refusal, Refusals, Refused, Stamps};
use lasthop_kernel::accept::{self, Accepted, Pauses};
use lasthop_kernel::reactor::{Interest, Readiness};
use lasthop_kernel::slab::Key;
use lasthop_kernel::tcp::{self, Congestion};
use lasthop_kernel::turn::Turn;
use lasthop_units::{Seed, Stream as Random, Time};

use self::association::Association;
use self::candidates::Candidates;
use self::greeting::{FirstBytes, Greeting, Greetings};
use super::inbound::Inbound;
use super::report;
use super::stream::Stream;
use super::wires::{Owner, Wires};
use super::{REFUSAL, VERSION, lost};
use crate::hop::{AnyStreams, BaseHop, Hop, HopEvent};

/// What a connection that is no stream is for.
#[derive(Clone, Copy, Debug)]
enum SocketRole {
    Listener(usize),
    Greeting,
    Control(u32),
}

/// Limits of the base's end.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    /// Confirmed associations at once.
    pub(crate) associations: usize,
    /// Streams of one association at once.
    pub(crate) streams: usize,
    /// What all streams may hold.
    pub(crate) memory: Memory,
}

/// The base's end.
pub(crate) struct SplitBase {
    listeners: Vec<OwnedFd>,
    responder: Responder,
    /// `None`: anybody, as on an unsealed hop.
    allowed: Option<Vec<Allowed>>,
    bounds: Bounds,
    random: Random,
    wires: Wires<SocketRole>,
    greetings: Greetings,
    /// Those of the associations that are not confirmed.
    candidates: Candidates,
    stamps: Stamps,
    associations: BTreeMap<u32, Association>,
    active: VecDeque<u32>,
    events: VecDeque<HopEvent<AssociationId>>,
    pauses: Pauses,
    /// When all listeners are accepted from, whether or not one is ready.
    accept_at: Option<Time>,
    /// By host: each attempt has a port of its own.
    refusals: Refusals<IpAddr>,
    garbage: u64,
}

impl SplitBase {
    /// Listens on every address of `listen`.
    pub(crate) fn bind(
        listen: &[SocketAddr],
        congestion: Option<&Congestion>,
        responder: Responder,
        allowed: Option<Vec<Allowed>>,
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
            greetings: Greetings::default(),
            candidates: Candidates::default(),
            stamps: Stamps::default(),
            associations: BTreeMap::new(),
            active: VecDeque::new(),
            events: VecDeque::new(),
            pauses: Pauses::default(),
            accept_at: None,
            refusals: Refusals::default(),
            garbage: 0,
        })
    }

    fn accept(&mut self, turn: &mut Turn<'_>, listener: usize) {
        let last = accept::share(|| {
            let Some(fd) = self.listeners.get(listener) else { return Accepted::Empty };
            let accepted = accept::accept(fd);
            accepted.map(|(fd, from)| self.track_greeting(turn, fd, tcp::canonical(from)))
        });
        self.accept_at = self.accept_at.max(self.pauses.next(turn.now, last));
    }

    fn track_greeting(&mut self, turn: &mut Turn<'_>, fd: OwnedFd, from: SocketAddr) {
        let Ok((key, socket)) = self.wires.watch(turn, fd, Owner::Role(SocketRole::Greeting))
        else {
            return;
        };
        let greeting = Greeting { socket, from, into: Inbound::new(0), claims: None };
        if let Some(yields) = self.greetings.insert(turn.now, key, greeting) {
            self.close_greeting(turn, yields);
        }
    }

    /// Closes a connection that could not be authenticated.
    fn close_greeting(&mut self, turn: &mut Turn<'_>, key: Key) {
        if let Some(greeting) = self.greetings.remove(key) {
            self.garbage += 1;
            self.wires.owners.remove(key);
            greeting.socket.close(turn.reactor, false);
        }
    }

    /// Closes a connection that could not be authenticated, and logs why.
    fn refuse(&mut self, turn: &mut Turn<'_>, key: Key, why: Option<Refusal>) {
        if let (Some(greeting), Some(why)) = (self.greetings.get_mut(key), why) {
            self.refusals.record(turn.now, greeting.from.ip(), why);
        }
        self.close_greeting(turn, key);
    }

    fn handle_greeting(&mut self, turn: &mut Turn<'_>, key: Key, readiness: Readiness) {
        let Some(greeting) = self.greetings.get_mut(key) else { return };
        greeting.socket.ready(readiness);
        match greeting::read(greeting, &self.associations) {
            FirstBytes::Incomplete => {}
            FirstBytes::Garbage => self.close_greeting(turn, key),
            FirstBytes::OtherVersion(version) => {
                let why = Refusal::OtherVersion { theirs: version, ours: VERSION };
                self.refusals.record(turn.now, greeting.from.ip(), why);
                // If the kernel does not take it, the mobile gets no answer, as from any other base.
                let _ = greeting.socket.write(&REFUSAL);
                self.close_greeting(turn, key);
            }
            FirstBytes::Init(init) => self.answer_init(turn, key, &init),
            FirstBytes::Stream(association, stream) => {
                self.accept_stream(turn, key, association, stream)
            }
        }
    }

    /// Accepts the stream whose first record has opened.
    fn accept_stream(&mut self, turn: &mut Turn<'_>, key: Key, id: u32, stream: u64) {
        if !self.confirm(turn, id) {
            return self.close_greeting(turn, key);
        }
        let Some(association) = self.associations.get_mut(&id) else { return };
        let ours = stream % 2 == 1;
        let wanted = if ours {
            association.streams.awaits_connection(stream)
        } else {
            association.streams.has_room() && association.seen.accept(stream / 2)
        };
        if !wanted {
            return self.close_greeting(turn, key);
        }
        let Some(greeting) = self.greetings.remove(key) else { return };
        if let Some(owner) = self.wires.owners.get_mut(key) {
            *owner = Owner::Stream(id, stream);
        }
        let sealer = association.keys.stream(stream).0;
        if ours {
            if let Some(waiting) = association.streams.get_mut(stream) {
                waiting.attach(key, greeting.socket, greeting.into, sealer);
                association.streams.mark_dirty(stream);
            }
        } else {
            let accepted = Stream::accept(key, greeting.socket, greeting.into, sealer);
            association.streams.handle_incoming(stream, accepted);
        }
        self.activate(id);
    }

    /// A mobile has ended a confirmed association. It is [removed](Hop::remove_association) when that is known.
    fn lose(&mut self, id: u32, why: &str) {
        if let Some(association) = self.associations.get_mut(&id) {
            association.lost = true;
        }
        self.events.push_back(HopEvent::Lost(name(id), why.to_owned()));
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
        control.ready(readiness);
        let outcome = loop {
            match control.receive().map(<[u8]>::len) {
                Ok(0) => break control.flush(),
                // A mobile proves itself with one byte; whatever else it sends is dropped.
                Ok(n) => control.consume(n),
                Err(e) => break Err(e),
            }
        };
        if control.is_proven() && !self.confirm(turn, id) {
            return;
        }
        if let Err(e) = outcome {
            tracing::debug!(association = id, error = %e, "a control connection ends");
            if let Some(association) = self.associations.get(&id).filter(|a| !a.confirmed) {
                let (from, why) = (association.address, Refusal::Unconfirmed(association.peer));
                self.refusals.record(turn.now, from.ip(), why);
            }
            self.close_control(turn, id, "the mobile closed the connection");
        }
    }

    fn close_control(&mut self, turn: &mut Turn<'_>, id: u32, why: &str) {
        let Some(association) = self.associations.get_mut(&id) else { return };
        if let Some(control) = association.control.take() {
            self.wires.owners.remove(control.key);
            control.socket.close(turn.reactor, true);
        }
        association.streams.terminate_unconnected();
        self.remove_if_idle(id, why);
    }

    /// An association without a control connection and without streams is over.
    fn remove_if_idle(&mut self, id: u32, why: &str) {
        let Some(association) = self.associations.get(&id) else { return };
        if association.control.is_some() || !association.streams.is_empty() {
            return;
        }
        if association.confirmed {
            self.lose(id, why);
        } else {
            self.candidates.take(id);
            self.associations.remove(&id);
        }
    }
}

impl Hop for SplitBase {
    type Id = AssociationId;

    fn name(&self) -> &'static str {
        "split-tcp"
    }

    fn handle_ready(&mut self, turn: &mut Turn<'_>, key: Key, readiness: Readiness) {
        match self.wires.owners.get(key) {
            Some(Owner::Role(SocketRole::Listener(i))) => self.accept(turn, *i),
            Some(Owner::Role(SocketRole::Greeting)) => self.handle_greeting(turn, key, readiness),
            Some(Owner::Role(SocketRole::Control(id))) => self.handle_control(turn, *id, readiness),
            Some(Owner::Stream(id, stream)) => {
                let (id, stream) = (*id, *stream);
                if let Some(association) = self.associations.get_mut(&id)
                    && let Some(found) = association.streams.get_mut(stream)
                {
                    found.ready(readiness);
                    association.streams.mark_dirty(stream);
                }
            }
            Some(Owner::Lingering(_) | Owner::Parked(..)) => {
                self.wires.handle_unowned(turn, key, readiness);
            }
            None => {}
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        let own = [
            self.greetings.next_timeout(),
            self.candidates.next_timeout(),
            self.wires.next_timeout(),
            self.accept_at,
            self.refusals.next_timeout(),
        ];
        let streams = self.associations.values().map(|a| a.streams.next_timeout());
        own.into_iter().chain(streams).flatten().min()
    }

    fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        self.wires.handle_timeout(turn);
        self.refusals.handle_timeout(turn.now);
        for association in self.associations.values_mut() {
            association.streams.handle_timeout(turn.now);
        }
        while let Some(key) = self.greetings.pop_due(turn.now) {
            self.close_greeting(turn, key);
        }
        while let Some(id) = self.candidates.due(turn.now) {
            self.end_candidate(turn, id, "not confirmed");
        }
        if self.accept_at.take_if(|at| *at <= turn.now).is_some() {
            for i in 0..self.listeners.len() {
                self.accept(turn, i);
            }
        }
    }

    fn pump(&mut self, turn: &mut Turn<'_>) {
        let mut touched = Vec::new();
        for (id, association) in &mut self.associations {
            if association.streams.is_idle() {
                continue;
            }
            let wires = &mut self.wires;
            association.pump(turn.now, |stream, how| wires.close_removed(turn, stream, how));
            touched.push(*id);
        }
        for id in touched {
            if self.associations.get(&id).is_some_and(|a| a.streams.has_events()) {
                self.activate(id);
            }
            self.remove_if_idle(id, "the last connection is over");
        }
    }

    fn flush(&mut self, turn: &mut Turn<'_>) {
        self.pump(turn);
    }

    fn poll_event(&mut self) -> Option<HopEvent<AssociationId>> {
        self.events.pop_front()
    }

    fn poll_active(&mut self) -> Option<AssociationId> {
        let id = self.active.pop_front()?;
        if let Some(association) = self.associations.get_mut(&id) {
            association.active = false;
        }
        Some(name(id))
    }

    fn is_active(&self) -> bool {
        !self.active.is_empty() || self.associations.values().any(|a| !a.streams.is_idle())
    }

    fn streams(&mut self, id: AssociationId) -> Option<&mut AnyStreams> {
        Some(&mut self.associations.get_mut(&number(id)?)?.streams)
    }

    fn remove_association(&mut self, turn: &mut Turn<'_>, id: AssociationId) {
        let Some(number) = number(id) else { return };
        let Some(mut association) = self.associations.remove(&number) else { return };
        self.events.retain(|event| !matches!(event, HopEvent::Lost(lost, _) if *lost == id));
        if let Some(control) = association.control.take() {
            self.wires.owners.remove(control.key);
            control.socket.close(turn.reactor, true);
        }
        while let Some((stream, how)) = association.streams.next_removed() {
            self.wires.close_removed(turn, stream, how);
        }
        for mut stream in association.streams.take_all() {
            stream.terminate(lost());
            self.wires.close(turn, &mut stream);
        }
        if association.lost {
            self.wires.close_parked(turn, number);
        }
    }

    fn close(&mut self, turn: &mut Turn<'_>) {
        while let Some((id, mut association)) = self.associations.pop_first() {
            tracing::trace!(association = id, "closed");
            while let Some((stream, how)) = association.streams.next_removed() {
                self.wires.close_removed(turn, stream, how);
            }
            for mut stream in association.streams.take_all() {
                self.wires.close(turn, &mut stream);
            }
            if let Some(control) = association.control {
                self.wires.owners.remove(control.key);
                control.socket.close(turn.reactor, true);
            }
        }
        for greeting in self.greetings.drain() {
            greeting.socket.close(turn.reactor, true);
        }
        self.wires.close_unowned(turn);
    }

    fn progress(&mut self, id: AssociationId) -> Option<Progress> {
        Some(self.associations.get_mut(&number(id)?)?.streams.progress())
    }

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
    fn places(&self) -> Vec<String> {
        self.listeners.iter().map(|fd| tcp::local_addr(fd).to_string()).collect()
    }

    fn start(&mut self, turn: &mut Turn<'_>) -> io::Result<()> {
        for (i, fd) in self.listeners.iter().enumerate() {
            let key = self.wires.owners.insert(Owner::Role(SocketRole::Listener(i)));
            turn.reactor.add(fd, Interest::Read, turn.source(key))?;
        }
        Ok(())
    }

    fn stop(&mut self, _turn: &mut Turn<'_>) {
        // Closing a listener takes it out of the epoll set.
        self.listeners.clear();
    }

    fn set_allowed(&mut self, turn: &mut Turn<'_>, allowed: &[Allowed]) {
        let Some(before) = &self.allowed else { return };
        self.stamps.retain(|mobile| allowed.iter().any(|known| known.key.as_bytes() == mobile));
        // What was made with another pre-shared key is over too.
        let kept = |mobile: &PublicKey| {
            let psk = psk_in(allowed, mobile);
            psk.is_some() && psk == psk_in(before, mobile)
        };
        let revoked = self.associations.iter().filter(|(_, a)| !kept(&a.peer));
        let revoked: Vec<(u32, bool)> = revoked.map(|(id, a)| (*id, a.confirmed)).collect();
        self.allowed = Some(allowed.to_vec());
        for (id, confirmed) in revoked {
            match confirmed {
                true => self.lose(id, "the mobile is no longer allowed"),
                false => self.end_candidate(turn, id, "not allowed any more"),
            }
        }
    }

    fn poll_refused(&mut self) -> Option<Refused<String>> {
        self.refusals.poll().map(|refused| refused.map(|from| from.to_string()))
    }

    fn key_of(&self, id: AssociationId) -> Option<PublicKey> {
        self.associations.get(&number(id)?).map(|a| a.peer)
    }
}

#[cfg(test)]
impl SplitBase {
    /// The streams of an association, by their own type.
    pub(super) fn split_tcp(&mut self, id: AssociationId) -> Option<&mut super::streams::SplitTcp> {
        self.associations.get_mut(&number(id)?).map(|a| &mut a.streams)
    }

    /// Connections that have not said yet what they are, and associations that are not confirmed.
    pub(super) fn unproven(&self) -> (usize, usize) {
        let candidates = self.associations.values().filter(|a| !a.confirmed);
        (self.greetings.len(), candidates.count())
    }

    /// Connections of streams, whether these are still here or not.
    pub(super) fn connections(&self) -> usize {
        let owners = self.wires.owners.iter();
        owners.filter(|(_, owner)| !matches!(owner, Owner::Role(_))).count()
    }

    /// What is known of mobiles' stamps.
    pub(super) fn stamps(&mut self) -> &mut Stamps {
        &mut self.stamps
    }

    /// The control connection of an association.
    pub(super) fn control(&self, id: AssociationId) -> Option<&OwnedFd> {
        let control = self.associations.get(&number(id)?)?.control.as_ref()?;
        Some(&control.socket.fd)
    }
}

/// What a mobile shares with this base, if it is served.
fn psk_in<'a>(allowed: &'a [Allowed], mobile: &PublicKey) -> Option<&'a PresharedKey> {
    allowed.iter().find(|known| known.key == *mobile).map(|known| &known.psk)
}

/// What the loop calls the association with that number, which is all that streams carry of it.
fn name(number: u32) -> AssociationId {
    AssociationId(number.into())
}

fn number(id: AssociationId) -> Option<u32> {
    u32::try_from(id.0).ok()
}
