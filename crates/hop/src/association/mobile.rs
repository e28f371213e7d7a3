//! The end that asks.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use lasthop_units::{LinkEvent, Seed, Stream as Numbers, Time};
use lasthop_wire::datagram::{Data, Kind, Unknown};

use super::{Association, AssociationEvent, Link, Outcome, Transmit, overhead};
use crate::config::Limits;
use crate::evidence::Evidence;
use crate::seal::{Established, Hello, Initiator, Keypair, PublicKey};
use crate::srp::Srp;
use crate::stats::HopStats;
use crate::transport::Transport;
use crate::transport::{CloseReason, Role};
use crate::unreachable::Unreachable;

/// An init is repeated after so long, the first few times.
const RETRY: Duration = Duration::from_millis(250);
const EAGER_TRIES: u32 = 20;
const RETRY_PATIENT: Duration = Duration::from_millis(500);
/// After so long a silence the base may have lost the association: a new one is asked for beside.
const DOUBT_AFTER: Duration = Duration::from_millis(500);
/// And so long after the last time that the base was asked.
const DOUBT_AGAIN: Duration = Duration::from_secs(1);

/// An init on its way.
struct Asking {
    initiator: Box<Initiator>,
    /// Our name for the association.
    receiver: u32,
    next_try: Time,
    tries: u32,
    first_sent: Time,
}

/// Counters of a mobile beside those of its transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MobileStats {
    /// Handshake messages sent.
    pub inits_sent: u64,
    /// Handshakes that a base answered.
    pub handshakes: u64,
    /// Datagrams that were garbage, forged, replayed or for somebody else.
    pub refused: u64,
}

/// A mobile's end of its association with one base.
///
/// Streams may be opened and written before the association stands; they are sent once it does.
/// When the base no longer knows the association (it was restarted), a new one takes its place and
/// the old streams are reset.
pub struct Mobile<A, T: Transport = Srp> {
    config: T::Config,
    keys: Option<Keypair>,
    claim: PublicKey,
    base: PublicKey,
    base_addr: A,
    /// Names and ephemeral keys of handshakes.
    numbers: Numbers,
    handshakes: u64,
    /// The wall clock at `Time::ZERO`, so that a base can tell old handshakes from new.
    stamp: u64,
    fast_aes: bool,
    association: Association<A, T>,
    /// Our name for the association that stands.
    receiver: u32,
    asking: Option<Asking>,
    /// What the base is to hear with the first datagram.
    greeting: Vec<u8>,
    doubted: Time,
    /// When the mobile last believed that the base has no such association.
    believed: Option<Time>,
    /// What the network says of the base.
    evidence: Evidence,
    /// When the base was last asked because of that.
    hinted: Option<Time>,
    events: VecDeque<AssociationEvent>,
    stats: MobileStats,
}

impl<A: Copy + Eq, T: Transport> Mobile<A, T> {
    /// A mobile that asks the base with key `base` at `base_addr` for an association at once.
    /// `seed` must be entropy if the seal is to protect anything.
    pub fn new(
        config: T::Config,
        keys: Keypair,
        base: PublicKey,
        base_addr: A,
        seed: Seed,
        now: Time,
    ) -> Self {
        let claim = *keys.public();
        Self::build(config, Some(keys), claim, base, base_addr, seed, now)
    }

    /// Has the base hear `greeting` with the first datagram of a handshake, half a round trip before
    /// the association stands there, and without proof that it is fresh: whoever heard it once can
    /// say it again. Nothing happens if it is longer than [`GREETING_MAX`](super::GREETING_MAX) or the
    /// association stands already.
    pub fn greet(&mut self, now: Time, greeting: &[u8]) {
        if self.association.link.is_none()
            && greeting.len() <= super::GREETING_MAX
            && greeting != self.greeting
        {
            self.greeting = greeting.to_vec();
            self.ask(now);
        }
    }

    /// A mobile on a hop that goes unsealed by explicit choice: nothing is encrypted and anybody on
    /// the hop can be anyone.
    pub fn unsealed(
        config: T::Config,
        claim: PublicKey,
        base_addr: A,
        seed: Seed,
        now: Time,
    ) -> Self {
        Self::build(config, None, claim, claim, base_addr, seed, now)
    }

    fn build(
        config: T::Config,
        keys: Option<Keypair>,
        claim: PublicKey,
        base: PublicKey,
        base_addr: A,
        seed: Seed,
        now: Time,
    ) -> Self {
        let association = Association::new(&config, Role::Mobile, keys.is_some(), now);
        let mut mobile = Self {
            config,
            keys,
            claim,
            base,
            base_addr,
            numbers: seed.stream("handshakes"),
            handshakes: 0,
            stamp: 0,
            fast_aes: false,
            association,
            receiver: 0,
            asking: None,
            greeting: Vec::new(),
            doubted: now,
            believed: None,
            evidence: Evidence::default(),
            hinted: None,
            events: VecDeque::new(),
            stats: MobileStats::default(),
        };
        mobile.ask(now);
        mobile
    }

    /// Tells that this machine has AES in hardware: the seal uses it if the base has it too.
    #[must_use]
    pub fn with_fast_aes(mut self, now: Time, fast_aes: bool) -> Self {
        self.fast_aes = fast_aes;
        self.ask(now);
        self
    }

    /// Tells the wall clock, in nanoseconds since 1970, at the time `Time::ZERO`. Without it a base
    /// cannot tell a replayed handshake from a new one before it has answered it.
    #[must_use]
    pub fn with_wall_clock(mut self, now: Time, at_zero: u64) -> Self {
        self.stamp = at_zero;
        self.ask(now);
        self
    }

    /// The base is at another address from now on.
    pub fn set_base_address(&mut self, now: Time, base_addr: A) {
        self.base_addr = base_addr;
        self.evidence.refute();
        if let Some(link) = &mut self.association.link {
            link.peer = base_addr;
            self.association.transport.handle_moved(now);
        }
    }

    /// The association stands.
    pub fn is_up(&self) -> bool {
        self.association.link.is_some()
    }

    /// The transport, for what only it has. Handshakes, datagrams and timers are the association's.
    pub fn transport(&self) -> &T {
        &self.association.transport
    }

    /// The transport, to ask of it what only it can do: Mobile TCP's listening, for instance.
    pub fn transport_mut(&mut self) -> &mut T {
        &mut self.association.transport
    }

    /// Counters and present values of the transport.
    pub fn stats(&self) -> HopStats {
        self.association.stats()
    }

    /// Counters of handshakes and of what was refused.
    pub fn mobile_stats(&self) -> MobileStats {
        MobileStats { refused: self.stats.refused + self.association.refused, ..self.stats }
    }

    /// What happened to the association, in order.
    pub fn poll_association_event(&mut self) -> Option<AssociationEvent> {
        self.events.pop_front()
    }

    /// Our own address may be another: something is said at once, so that the base, which goes by the
    /// newest authentic datagram, answers to where it came from. A handshake under way is tried again.
    pub fn handle_roamed(&mut self, now: Time) {
        if let Some(asking) = &mut self.asking {
            asking.next_try = now;
        }
        if self.is_up() {
            self.association.transport.handle_moved(now);
            self.association.transport.probe(now);
        }
    }

    /// For how long the base has not answered, if it was asked something.
    pub fn silent_for(&self, now: Time) -> Option<Duration> {
        match &self.asking {
            Some(asking) if !self.is_up() => Some(now.since(asking.first_sent)),
            _ => self.association.transport.silent_for(now),
        }
    }

    /// What is known of the hop from below.
    pub fn handle_link_event(&mut self, now: Time, event: LinkEvent) {
        if event == LinkEvent::Up
            && let Some(asking) = &mut self.asking
        {
            asking.next_try = now;
        }
        self.association.handle_link_event(now, event);
    }

    /// The network says that nobody is there. Whoever says so, the answer to a handshake tells what is
    /// true; where none comes, and the base's host keeps saying so, the base is gone and the association
    /// with it.
    pub fn handle_unreachable(&mut self, now: Time, what: Unreachable) {
        self.evidence.add(now, what);
        if !self.is_up() {
            return;
        }
        if self.evidence.is_gone(now) {
            self.association.link = None;
            self.lose(now, CloseReason::Unreachable);
        } else if what.is_hard()
            && self.asking.is_none()
            && self.hinted.is_none_or(|at| now.since(at) >= DOUBT_AGAIN)
        {
            self.hinted = Some(now);
            self.ask(now);
        }
    }

    /// Why the base cannot be reached at present, if the network says so and nothing has come from the
    /// base since.
    pub fn unreachable(&self, now: Time) -> Option<Unreachable> {
        self.evidence.unreachable(now)
    }

    /// Ends the association: the base is told once.
    pub fn close(&mut self, reason: CloseReason) {
        self.association.close(reason);
    }

    /// Takes in a datagram. A bad one changes nothing but a counter.
    pub fn handle_datagram(&mut self, now: Time, from: A, datagram: &mut [u8]) {
        let taken = match Kind::of(datagram) {
            Ok(Kind::Data) => self.handle_data(now, from, datagram),
            Ok(Kind::HandshakeReply | Kind::PlainReply) => self.handle_reply(now, datagram),
            Ok(Kind::Unknown) => self.handle_unknown(now, datagram),
            _ => false,
        };
        if !taken {
            self.stats.refused += 1;
        }
        self.notice_end(now);
    }

    fn handle_data(&mut self, now: Time, from: A, datagram: &mut [u8]) -> bool {
        // Without a seal nothing else tells an earlier association's datagrams from this one's.
        if Data::new_checked(&*datagram).is_ok_and(|d| d.header().receiver != self.receiver) {
            return false;
        }
        let refused = self.association.refused;
        match self.association.handle_data(now, from, datagram) {
            Outcome::Taken { moved } => {
                // The old association lives: nothing else is needed.
                self.asking = None;
                self.evidence.refute();
                if moved {
                    self.events.push_back(AssociationEvent::Moved);
                }
                true
            }
            Outcome::Refused => {
                self.association.refused = refused;
                false
            }
        }
    }

    fn handle_reply(&mut self, now: Time, datagram: &[u8]) -> bool {
        let Some(asking) = &mut self.asking else { return false };
        let Ok(Established { hello, keys }) = asking.initiator.finish(datagram) else {
            return false;
        };
        let Some(limits) = Limits::decode(&hello.limits, T::ID) else { return false };
        let (tries, sent, receiver) = (asking.tries, asking.first_sent, asking.receiver);
        self.asking = None;
        self.evidence.refute();
        self.stats.handshakes += 1;
        let was_up = self.is_up() && !self.association.has_heard();
        if let Some(remote) = self.association.remote() {
            if limits.standing == Some(remote) {
                // The base knows the old association: it is the radio that was silent.
                self.association.transport.probe(now);
                return true;
            }
            if self.association.has_heard() {
                self.association.transport.restart(now);
                self.events.push_back(AssociationEvent::Lost(CloseReason::Silence));
            }
            // Otherwise the base never took the old keys up, and streams go on under the new ones.
        }
        // A copy of the reply may come from anywhere: the base is where it was asked.
        let peer = self.base_addr;
        self.association.link = Some(Link::new(keys, hello.receiver, peer));
        self.receiver = receiver;
        // It was heard. A later handshake is for another reason.
        self.greeting = Vec::new();
        self.association.transport.establish(now, &limits);
        if tries == 1 {
            self.association.transport.seed_round_trip(now, now.since(sent));
        }
        // The base trusts the new keys once it has seen them used.
        self.association.transport.ping();
        if !was_up {
            self.events.push_back(AssociationEvent::Up);
        }
        true
    }

    /// The base, or somebody who hears what we send, says that it has no such association. The answer
    /// to a handshake tells what is true.
    fn handle_unknown(&mut self, now: Time, datagram: &[u8]) -> bool {
        let Ok(unknown) = Unknown::parse(datagram) else { return false };
        if self.association.remote() != Some(unknown.receiver) {
            return false;
        }
        let lately = self.believed.is_some_and(|at| now.since(at) < DOUBT_AGAIN);
        if self.asking.is_none() && !lately {
            self.believed = Some(now);
            self.ask(now);
        }
        true
    }

    fn notice_end(&mut self, now: Time) {
        let Some(reason) = self.association.transport.closed() else { return };
        if self.association.link.take().is_some() {
            self.lose(now, reason);
        }
    }

    /// The association is no more; another is asked for.
    fn lose(&mut self, now: Time, reason: CloseReason) {
        self.association.transport.restart(now);
        self.events.push_back(AssociationEvent::Lost(reason));
        if reason != CloseReason::Shutdown {
            self.ask(now);
        } else if self.asking.is_none() {
            self.ask(now + RETRY_PATIENT);
        }
    }

    fn ask(&mut self, at: Time) {
        self.handshakes += 1;
        // What one handshake draws no other may: part of it is seen on the hop.
        let receiver = self.numbers.next_u64() as u32;
        let mut entropy = [0; 32];
        self.numbers.fill(&mut entropy);
        let hello = Hello {
            receiver,
            fast_aes: self.fast_aes,
            stamp: self.stamp.saturating_add(at.as_nanos()).saturating_add(self.handshakes),
            limits: Limits {
                first_stream: self.association.transport.first_stream(),
                standing: self.association.remote(),
                ..T::limits(&self.config)
            }
            .encode(T::ID, &self.greeting),
        };
        let initiator = match &self.keys {
            Some(keys) => Initiator::new(keys, &self.base, 0, hello, Seed::from_bytes(entropy)),
            None => Initiator::unsealed(&self.claim, 0, hello),
        };
        // A base key with which no handshake is possible never answers, like a wrong one.
        self.asking = initiator.ok().map(|initiator| Asking {
            initiator: Box::new(initiator),
            receiver,
            next_try: at,
            tries: 0,
            first_sent: at,
        });
    }

    /// Writes the next datagram that should leave now into `out`, which must have room for the
    /// largest, if there is one.
    pub fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit<A>> {
        if let Some(asking) = &mut self.asking
            && asking.next_try <= now
        {
            let init = asking.initiator.datagram();
            out.get_mut(..init.len())?.copy_from_slice(init);
            let len = init.len();
            asking.tries += 1;
            if asking.tries == 1 {
                asking.first_sent = now;
            }
            let wait = if asking.tries < EAGER_TRIES { RETRY } else { RETRY_PATIENT };
            asking.next_try = now + wait;
            self.stats.inits_sent += 1;
            return Some(Transmit { to: self.base_addr, len });
        }
        let transmit = self.association.poll_transmit(now, out);
        if transmit.is_none() {
            self.notice_end(now);
        }
        transmit
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), if nothing happens before.
    pub fn next_timeout(&self) -> Option<Time> {
        let asking = self.asking.as_ref().map(|a| a.next_try);
        [self.association.next_timeout(), asking].into_iter().flatten().min()
    }

    /// Lets timers that are due act; follow with [`poll_transmit`](Self::poll_transmit).
    pub fn handle_timeout(&mut self, now: Time) {
        if self.is_up() {
            self.association.transport.handle_timeout(now);
            self.notice_end(now);
        }
        let doubtful = self.association.transport.silent_for(now).is_some_and(|d| d >= DOUBT_AFTER);
        let lately = now.since(self.doubted) < DOUBT_AGAIN;
        if self.is_up() && doubtful && self.asking.is_none() && !lately {
            self.doubted = now;
            self.ask(now);
        }
    }

    /// Bytes that seal and carrier add to the frames of each datagram.
    pub fn overhead(&self) -> usize {
        overhead::<T>(&self.config, self.keys.is_some())
    }
}

crate::streams_of!([A: Copy + Eq, T: Transport] Mobile<A, T>, Movable, |it| it.association, it.association);
