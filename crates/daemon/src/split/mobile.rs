//! The mobile's end of split-tcp: a control connection, and a connection for each stream.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use lasthop_control::AssociationReport;
use lasthop_control::past::Progress;
use lasthop_hop::seal::{HandshakeError, Initiator, Keypair, PresharedKey, PublicKey};
use lasthop_hop::{Evidence, Memory, Stamps, Unreachable};
use lasthop_kernel::clock;
use lasthop_kernel::reactor::Readiness;
use lasthop_kernel::slab::Key;
use lasthop_kernel::tcp::{self, Congestion, Moved, Socket};
use lasthop_kernel::turn::Turn;
use lasthop_units::{Seed, Stream as Random, Time};
use rustix::io::Errno;

use super::cipher::{CONTROL, SharedKeys};
use super::control;
use super::inbound::Inbound;
use super::streams::SplitTcp;
use super::wires::{Owner, Wires};
use super::{
    GREETING_TIMEOUT, KIND_CONTROL, REFUSAL, VERSION, hello, lost, preface, report, stream_preface,
};
use crate::handshake::{self, Caller, HandshakeFailure, Introduction};
use crate::hop::{AnyStreams, Hop, HopEvent, MobileHop};

const RETRY_MIN: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_millis(500);

/// How a mobile and its base authenticate each other.
#[derive(Clone, Debug)]
pub(crate) enum Seal {
    /// By static keys.
    Noise(Keypair, PublicKey),
    /// Not at all; the key is only a name.
    Off(PublicKey),
}

/// A control connection that is being made.
struct Greeting {
    key: Key,
    socket: Socket,
    initiator: Initiator,
    out: Vec<u8>,
    into: Vec<u8>,
    connected: bool,
    deadline: Time,
}

/// A control connection that stands.
struct Established {
    control: control::Control,
    association: u32,
    keys: SharedKeys,
}

enum Control {
    Down,
    Greeting(Box<Greeting>),
    Up(Box<Established>),
}

/// The mobile's end.
pub(crate) struct SplitMobile {
    seal: Seal,
    psk: PresharedKey,
    congestion: Option<Congestion>,
    /// Marks its connections as lasthop's own.
    mark: Option<u32>,
    random: Random,
    base: Option<SocketAddr>,
    streams: SplitTcp,
    wires: Wires<()>,
    control: Control,
    retry_at: Time,
    retry_after: Duration,
    since: Time,
    /// Since when there is none, and one is wanted.
    down: Option<Time>,
    evidence: Evidence,
    events: VecDeque<HopEvent<()>>,
    /// Of the last handshake, or the greatest that the base has had of us: later ones are above.
    stamp: u64,
}

impl SplitMobile {
    /// No connection yet: [`MobileHop::set_base`] starts.
    pub(crate) fn new(
        seal: Seal,
        congestion: Option<Congestion>,
        streams_max: usize,
        seed: Seed,
    ) -> Self {
        Self {
            seal,
            psk: PresharedKey::default(),
            congestion,
            mark: None,
            random: seed.stream("split-mobile"),
            base: None,
            streams: SplitTcp::new(streams_max, 0, &Memory::default()),
            wires: Wires::new(),
            control: Control::Down,
            retry_at: Time::NEVER,
            retry_after: RETRY_MIN,
            since: Time::ZERO,
            down: None,
            evidence: Evidence::default(),
            events: VecDeque::new(),
            stamp: 0,
        }
    }

    /// The same, with a mark on all connections by which they are known as lasthop's own.
    pub(crate) fn with_mark(self, mark: Option<u32>) -> Self {
        Self { mark, ..self }
    }

    /// The same, of a mobile that shares this with the base.
    pub(crate) fn with_psk(self, psk: PresharedKey) -> Self {
        Self { psk, ..self }
    }

    fn initiator(&mut self) -> Result<Initiator, String> {
        let by_clock = Stamps::by_clock(clock::wall_nanos());
        self.stamp = by_clock.max(self.stamp.saturating_add(1));
        let hello = hello(self.random.next_u64() as u32, self.stamp);
        let made = match &self.seal {
            Seal::Noise(keys, base) => {
                let mut seed = [0; 32];
                self.random.fill(&mut seed);
                Initiator::new(keys, base, 0, hello, Seed::from_bytes(seed))
                    .map(|initiator| initiator.with_psk(&self.psk))
            }
            Seal::Off(claim) => Initiator::unsealed(claim, 0, hello),
        };
        made.map_err(|e| e.to_string())
    }

    fn connect_control(&mut self, turn: &mut Turn<'_>, base: SocketAddr) -> Result<(), String> {
        let initiator = self.initiator()?;
        let mut out = preface(KIND_CONTROL).to_vec();
        out.extend_from_slice(&(initiator.datagram().len() as u16).to_be_bytes());
        out.extend_from_slice(initiator.datagram());
        let fd = tcp::connect(base, self.congestion.as_ref(), self.mark).map_err(|e| {
            if Errno::from_io_error(&e) == Some(Errno::NETUNREACH) {
                return self.unanswered(HandshakeFailure::Network(Unreachable::NoRoute));
            }
            e.to_string()
        })?;
        let (key, socket) =
            self.wires.watch(turn, fd, Owner::Role(())).map_err(|e| e.to_string())?;
        self.control = Control::Greeting(Box::new(Greeting {
            key,
            socket,
            initiator,
            out,
            into: Vec::new(),
            connected: false,
            deadline: turn.now + GREETING_TIMEOUT,
        }));
        Ok(())
    }

    /// Why the base is not reached.
    fn unanswered(&self, failure: HandshakeFailure) -> String {
        let at = self.base.map_or_else(String::new, |base| base.to_string());
        let introduction = match &self.seal {
            Seal::Noise(keys, _) => {
                Some(Introduction { caller: Caller::Mobile, own: *keys.public() })
            }
            Seal::Off(_) => None,
        };
        handshake::unanswered(failure, &at, introduction)
    }

    /// Closes the control connection, and tries again later.
    fn disconnect(&mut self, turn: &mut Turn<'_>, why: String) {
        self.close_control(turn);
        self.retry_later(turn, why);
    }

    pub(super) fn close_control(&mut self, turn: &mut Turn<'_>) {
        let (key, socket) = match std::mem::replace(&mut self.control, Control::Down) {
            Control::Down => return,
            Control::Greeting(greeting) => (greeting.key, greeting.socket),
            Control::Up(established) => (established.control.key, established.control.socket),
        };
        self.wires.owners.remove(key);
        // Not a reset, which the kernel sends once and the hop may lose.
        socket.close(turn.reactor, false);
    }

    fn retry_later(&mut self, turn: &Turn<'_>, why: String) {
        self.down.get_or_insert(turn.now);
        self.retry_at = turn.now + self.retry_after;
        self.retry_after = (self.retry_after * 2).min(RETRY_MAX);
        self.events.push_back(HopEvent::Unreachable((), why));
    }

    fn handle_control(&mut self, turn: &mut Turn<'_>, readiness: Readiness) {
        let outcome = match &mut self.control {
            Control::Down => return,
            Control::Greeting(greeting) => {
                greeting.socket.ready(readiness);
                match advance_handshake(greeting) {
                    Ok(None) => return,
                    Ok(Some(keys)) => return self.handle_established(turn, keys),
                    Err(GreetingError::Unanswered(failure)) => {
                        if let HandshakeFailure::Network(what) = failure {
                            // This host reports a silent next hop by the same error.
                            if what != Unreachable::Host {
                                self.evidence.add(turn.now, what);
                            }
                        }
                        Err(self.unanswered(failure))
                    }
                    Err(GreetingError::Version) => Err(format!(
                        "the base speaks another version of split-tcp than this mobile ({VERSION}): \
                         update the older of the two"
                    )),
                    Err(GreetingError::Stamp(greatest)) => {
                        self.stamp = self.stamp.max(greatest);
                        self.close_control(turn);
                        self.retry_at = turn.now + RETRY_MIN;
                        return;
                    }
                    Err(GreetingError::Other(e)) => Err(e.to_string()),
                }
            }
            Control::Up(established) => {
                established.control.ready(readiness);
                handle_opens(&mut established.control, &mut self.streams)
            }
        };
        if let Err(why) = outcome {
            self.disconnect(turn, why);
        }
    }

    fn handle_established(&mut self, turn: &mut Turn<'_>, (association, keys): (u32, SharedKeys)) {
        let Control::Greeting(greeting) = std::mem::replace(&mut self.control, Control::Down)
        else {
            return;
        };
        let Greeting { key, socket, .. } = *greeting;
        let keyed = keys.stream(CONTROL);
        let mut control = control::Control::new(key, socket, Inbound::new(0), keyed);
        // Only the owner of the keys can send a record.
        control.send(&[0]);
        self.control = Control::Up(Box::new(Established { control, association, keys }));
        self.retry_after = RETRY_MIN;
        (self.since, self.down) = (turn.now, None);
        self.evidence.refute();
        self.events.push_back(HopEvent::Up(()));
        self.streams.mark_all_dirty();
        self.handle_control(turn, Readiness::default());
    }

    /// Makes a stream's connection.
    fn connect_stream(&mut self, turn: &mut Turn<'_>, id: u64) {
        let (Control::Up(established), Some(base)) = (&self.control, self.base) else { return };
        let (association, keys) = (established.association, established.keys.stream(id));
        let made = tcp::connect(base, self.congestion.as_ref(), self.mark)
            .and_then(|fd| self.wires.watch(turn, fd, Owner::Stream(association, id)));
        let Some(stream) = self.streams.get_mut(id) else { return };
        match made {
            Ok((key, socket)) => {
                stream.connect(key, socket, stream_preface(association, id), keys);
                if id % 2 == 1 {
                    stream.prove();
                }
            }
            Err(_) => stream.terminate(lost()),
        }
    }
}

/// The unreachable error that a failed connect stands for.
fn unreachable_of(error: &io::Error) -> Option<Unreachable> {
    match Errno::from_io_error(error)? {
        Errno::CONNREFUSED => Some(Unreachable::Port),
        Errno::HOSTUNREACH => Some(Unreachable::Host),
        Errno::NETUNREACH => Some(Unreachable::Network),
        _ => None,
    }
}

/// Why a handshake failed.
enum GreetingError {
    /// The base did not answer; this came instead.
    Unanswered(HandshakeFailure),
    /// The base speaks another version.
    Version,
    /// The base has had this stamp of us, and takes no handshake that is not above it: our clock was set
    /// back.
    Stamp(u64),
    /// Another error.
    Other(io::Error),
}

impl From<io::Error> for GreetingError {
    fn from(error: io::Error) -> Self {
        match (unreachable_of(&error), error.kind()) {
            (Some(what), _) => Self::Unanswered(HandshakeFailure::Network(what)),
            (None, io::ErrorKind::TimedOut) => Self::Unanswered(HandshakeFailure::Nothing),
            (None, io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => {
                Self::Unanswered(HandshakeFailure::Goodbye)
            }
            (None, _) => Self::Other(error),
        }
    }
}

/// Moves the handshake on. The association's number and keys once it is done.
fn advance_handshake(greeting: &mut Greeting) -> Result<Option<(u32, SharedKeys)>, GreetingError> {
    if !greeting.connected {
        match tcp::connected(&greeting.socket.fd) {
            Some(Ok(())) => greeting.connected = true,
            Some(Err(e)) => return Err(e.into()),
            None => return Ok(None),
        }
    }
    while !greeting.out.is_empty() {
        match greeting.socket.write(&greeting.out) {
            Moved::Bytes(n) => drop(greeting.out.drain(..n)),
            Moved::Blocked | Moved::End => break,
            Moved::Broken(e) => return Err(e.into()),
        }
    }
    let mut piece = [0; 1024];
    loop {
        let wanted = match greeting.into.first_chunk::<2>() {
            None => 2,
            Some(length) => 2 + usize::from(u16::from_be_bytes(*length)),
        };
        let missing = wanted.saturating_sub(greeting.into.len());
        if missing == 0 {
            break;
        }
        let Some(room) = piece.get_mut(..missing) else {
            return Err(GreetingError::Unanswered(HandshakeFailure::Strange));
        };
        match greeting.socket.read(room) {
            Moved::Bytes(n) => greeting.into.extend_from_slice(&piece[..n]),
            Moved::Blocked => return Ok(None),
            Moved::End => return Err(GreetingError::Unanswered(HandshakeFailure::Goodbye)),
            Moved::Broken(e) => return Err(e.into()),
        }
        if greeting.into == REFUSAL {
            return Err(GreetingError::Version);
        }
    }
    let reply = &greeting.into[2..];
    let established = greeting.initiator.finish(reply).map_err(|e| {
        GreetingError::Unanswered(match e {
            HandshakeError::NotAuthentic => HandshakeFailure::Unopened,
            _ => HandshakeFailure::Strange,
        })
    })?;
    if established.hello.stamp > 0 {
        return Err(GreetingError::Stamp(established.hello.stamp));
    }
    Ok(Some((established.hello.receiver, SharedKeys::new(established.keys))))
}

/// Takes the messages of an established control connection: numbers of streams that the base opens.
fn handle_opens(control: &mut control::Control, streams: &mut SplitTcp) -> Result<(), String> {
    let strange = || "the base said something that is not understood".to_owned();
    loop {
        let message = control.receive().map_err(|e| format!("the base: {e}"))?;
        if message.is_empty() {
            return control.flush().map_err(|e| e.to_string());
        }
        let id = u64::from_be_bytes(*message.first_chunk().ok_or_else(strange)?);
        control.consume(size_of::<u64>());
        if id % 2 == 0 {
            return Err(strange());
        }
        // Otherwise the base gets no answer and aborts the stream.
        if streams.has_room() && !streams.contains(id) {
            streams.handle_open(id);
        }
    }
}

impl Hop for SplitMobile {
    type Id = ();

    fn name(&self) -> &'static str {
        "split-tcp"
    }

    fn handle_ready(&mut self, turn: &mut Turn<'_>, key: Key, readiness: Readiness) {
        match self.wires.owners.get(key) {
            Some(Owner::Role(())) => self.handle_control(turn, readiness),
            Some(Owner::Stream(_, id)) => {
                let id = *id;
                if let Some(stream) = self.streams.get_mut(id) {
                    stream.ready(readiness);
                    self.streams.mark_dirty(id);
                }
            }
            Some(Owner::Lingering(_) | Owner::Parked(..)) => {
                self.wires.handle_unowned(turn, key, readiness);
            }
            None => {}
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        let control = match &self.control {
            Control::Down if self.base.is_some() => Some(self.retry_at),
            Control::Greeting(greeting) => Some(greeting.deadline),
            Control::Down | Control::Up(_) => None,
        };
        let timeouts = [control, self.wires.next_timeout(), self.streams.next_timeout()];
        timeouts.into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        self.wires.handle_timeout(turn);
        self.streams.handle_timeout(turn.now);
        match (&self.control, self.base) {
            (Control::Greeting(greeting), _) if greeting.deadline <= turn.now => {
                let why = self.unanswered(HandshakeFailure::Nothing);
                self.disconnect(turn, why);
            }
            (Control::Down, Some(base)) if self.retry_at <= turn.now => {
                if let Err(why) = self.connect_control(turn, base) {
                    self.disconnect(turn, why);
                }
            }
            _ => {}
        }
    }

    fn pump(&mut self, turn: &mut Turn<'_>) {
        while let Some((stream, how)) = self.streams.next_removed() {
            self.wires.close_removed(turn, stream, how);
        }
        self.streams.begin_round();
        while let Some(id) = self.streams.next_in_round() {
            if self.streams.get_mut(id).is_some_and(|stream| !stream.started()) {
                self.connect_stream(turn, id);
            }
            self.streams.pump(turn.now, id);
        }
    }

    fn flush(&mut self, turn: &mut Turn<'_>) {
        self.pump(turn);
    }

    fn poll_event(&mut self) -> Option<HopEvent<()>> {
        self.events.pop_front()
    }

    fn poll_active(&mut self) -> Option<()> {
        self.streams.has_events().then_some(())
    }

    fn is_active(&self) -> bool {
        self.streams.has_events() || !self.streams.is_idle()
    }

    fn streams(&mut self, (): ()) -> Option<&mut AnyStreams> {
        Some(&mut self.streams)
    }

    fn remove_association(&mut self, _turn: &mut Turn<'_>, (): ()) {}

    fn close(&mut self, turn: &mut Turn<'_>) {
        while let Some((stream, how)) = self.streams.next_removed() {
            self.wires.close_removed(turn, stream, how);
        }
        for mut stream in self.streams.take_all() {
            self.wires.close(turn, &mut stream);
        }
        self.wires.close_unowned(turn);
        self.close_control(turn);
        self.base = None;
    }

    fn progress(&mut self, (): ()) -> Option<Progress> {
        Some(self.streams.progress())
    }

    fn reports(&self, now: Time) -> Vec<AssociationReport> {
        let (peer, address) = match &self.seal {
            Seal::Noise(_, base) => (Some(*base), self.base),
            Seal::Off(_) => (None, self.base),
        };
        let (state, since) = match &self.control {
            Control::Up(_) => ("up", now - self.since),
            Control::Greeting(_) => ("connecting", Duration::ZERO),
            Control::Down => ("down", Duration::ZERO),
        };
        vec![report::of(&self.streams, 0, peer, address, state, since)]
    }

    fn garbage(&self) -> u64 {
        0
    }
}

#[cfg(test)]
impl SplitMobile {
    /// The streams, by their own type.
    pub(super) fn split_tcp(&mut self) -> &mut SplitTcp {
        &mut self.streams
    }

    /// The control connection, once it stands.
    pub(super) fn control_fd(&self) -> Option<&std::os::fd::OwnedFd> {
        match &self.control {
            Control::Up(established) => Some(&established.control.socket.fd),
            _ => None,
        }
    }
}

impl MobileHop for SplitMobile {
    /// The kernel's connections are bound to our address.
    fn roams(&self) -> bool {
        false
    }

    fn start(&mut self, _turn: &mut Turn<'_>) -> io::Result<()> {
        Ok(())
    }

    fn is_up(&self) -> bool {
        matches!(self.control, Control::Up(_))
    }

    fn set_base(&mut self, turn: &mut Turn<'_>, addr: SocketAddr) {
        let before = self.base.replace(addr);
        if before != Some(addr) {
            self.evidence.refute();
        }
        if before.is_none() {
            self.retry_at = turn.now;
            self.down.get_or_insert(turn.now);
        }
    }

    /// A connection that stands cannot roam; one that is to be made is tried at once.
    fn roam(&mut self, turn: &mut Turn<'_>, _link: usize) {
        if matches!(self.control, Control::Down) && self.base.is_some() {
            self.retry_at = turn.now;
        }
    }

    fn unreachable(&self, now: Time) -> Option<Unreachable> {
        self.evidence.unreachable(now)
    }

    /// The kernel reports when a connection that stands breaks.
    fn silent_for(&self, now: Time) -> Option<Duration> {
        self.down.map(|since| now.since(since))
    }
}
