//! The mobile's end of a bare hop.

use alloc::collections::VecDeque;
use core::time::Duration;

use lasthop_units::{LinkEvent, Seed, Stream as Numbers, Time};

use crate::association::{AssociationEvent, MobileEnd, Transmit};
use crate::config::Limits;
use crate::evidence::Evidence;
use crate::greeting::Word;
use crate::mobile_tcp::{self, MobileTcp};
use crate::stats::HopStats;
use crate::transport::Transport;
use crate::transport::{CloseReason, Role};
use crate::unreachable::Unreachable;

/// A greeting is repeated after so long, the first few times.
const RETRY: Duration = Duration::from_millis(250);
const EAGER_TRIES: u32 = 20;
const RETRY_PATIENT: Duration = Duration::from_millis(500);

/// A greeting that is not answered yet.
#[derive(Clone, Copy)]
struct Asking {
    next_try: Time,
    tries: u32,
    first_sent: Time,
}

impl Asking {
    fn at(at: Time) -> Self {
        Self { next_try: at, tries: 0, first_sent: at }
    }
}

/// A mobile's end of a bare hop to one base.
///
/// Streams may be opened and written at once; they are sent when the base has answered the greeting.
/// When it turns out that the base no longer knows the mobile (it was restarted, or the mobile comes
/// from another address), the old streams are reset and new ones begin.
pub struct BareMobile<A> {
    config: mobile_tcp::Config,
    transport: MobileTcp,
    base: A,
    /// Where the base's answer came from: a carrier may know its address more exactly than it was
    /// told.
    answers: Option<A>,
    numbers: Numbers,
    life: u64,
    /// The base's number of what stands between us, if anything does.
    standing: Option<u64>,
    asking: Option<Asking>,
    /// What the network says of the base.
    evidence: Evidence,
    events: VecDeque<AssociationEvent>,
    refused: u64,
}

impl<A: Copy + Eq> BareMobile<A> {
    /// A mobile that greets the base at `base` at once. `seed` tells its lives apart: it must differ
    /// each time that a mobile is started.
    pub fn new(config: mobile_tcp::Config, base: A, seed: Seed, now: Time) -> Self {
        let mut numbers = seed.stream("lives");
        Self {
            transport: <MobileTcp as Transport>::new(&config, Role::Mobile, 0, now),
            config,
            base,
            answers: None,
            life: numbers.next_u64(),
            numbers,
            standing: None,
            asking: Some(Asking::at(now)),
            evidence: Evidence::default(),
            events: VecDeque::new(),
            refused: 0,
        }
    }

    /// The transport, for what only it has.
    pub fn transport(&self) -> &MobileTcp {
        &self.transport
    }

    /// The transport, to ask of it what only it can do. Packets and timers are this type's.
    pub fn transport_mut(&mut self) -> &mut MobileTcp {
        &mut self.transport
    }

    /// False if the word means nothing here.
    fn handle_word(&mut self, now: Time, from: A, packet: &[u8]) -> bool {
        match Word::decode(packet) {
            Some(Word::Answer { life, instance, first_stream }) if life == self.life => {
                self.handle_answer(now, from, instance, first_stream)
            }
            // Whoever says so, the base's answer to a greeting tells what is true.
            Some(Word::Unknown) if self.standing.is_some() => {
                self.asking.get_or_insert(Asking::at(now));
                true
            }
            _ => false,
        }
    }

    fn handle_answer(&mut self, now: Time, from: A, instance: u64, first_stream: u64) -> bool {
        let Some(asking) = self.asking.take() else { return false };
        self.evidence.refute();
        self.answers = Some(from);
        if self.standing == Some(instance) {
            Transport::probe(&mut self.transport, now);
            return true;
        }
        if self.standing.is_some() {
            Transport::restart(&mut self.transport, now);
            self.events.push_back(AssociationEvent::Lost(CloseReason::Silence));
        }
        self.standing = Some(instance);
        let limits = Limits { first_stream, ..MobileTcp::limits(&self.config) };
        Transport::establish(&mut self.transport, now, &limits);
        if asking.tries == 1 {
            Transport::seed_round_trip(&mut self.transport, now, now.since(asking.first_sent));
        }
        self.events.push_back(AssociationEvent::Up);
        true
    }

    fn handle_packet(&mut self, now: Time, from: A, packet: &[u8]) -> bool {
        // Before the answer to the first greeting, all that comes is an earlier life's.
        let known = from == self.base || self.answers == Some(from);
        if self.standing.is_none() || !known {
            return false;
        }
        self.evidence.refute();
        Transport::handle(&mut self.transport, now, 0, packet);
        true
    }

    fn notice_end(&mut self, now: Time) {
        if let Some(reason) = Transport::closed(&self.transport) {
            self.lose(now, reason);
        }
    }

    /// What stood between us and the base is no more; the base is greeted anew.
    fn lose(&mut self, now: Time, reason: CloseReason) {
        if self.standing.take().is_none() {
            return;
        }
        Transport::restart(&mut self.transport, now);
        self.events.push_back(AssociationEvent::Lost(reason));
        self.life = self.numbers.next_u64();
        let patience = if reason == CloseReason::Shutdown { RETRY_PATIENT } else { Duration::ZERO };
        self.asking = Some(Asking::at(now + patience));
    }

    /// The greeting, if it is due.
    fn poll_greeting(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit<A>> {
        let asking = self.asking.as_mut().filter(|asking| asking.next_try <= now)?;
        let first_stream = Transport::first_stream(&self.transport);
        let len = Word::Greeting { life: self.life, first_stream }.emit(out)?;
        asking.tries += 1;
        if asking.tries == 1 {
            asking.first_sent = now;
        }
        let wait = if asking.tries < EAGER_TRIES { RETRY } else { RETRY_PATIENT };
        asking.next_try = now + wait;
        Some(Transmit { to: self.base, len })
    }
}

impl<A: Copy + Eq> MobileEnd for BareMobile<A> {
    type Address = A;

    fn handle_datagram(&mut self, now: Time, from: A, datagram: &mut [u8]) {
        let taken = if Word::is_one(datagram) {
            self.handle_word(now, from, datagram)
        } else {
            self.handle_packet(now, from, datagram)
        };
        if !taken {
            self.refused += 1;
        }
        self.notice_end(now);
    }

    /// While a greeting waits for its answer nothing else is sent.
    fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit<A>> {
        if self.asking.is_none() {
            if let Some(packet) = Transport::poll(&mut self.transport, now, 0, out) {
                return Some(Transmit { to: self.base, len: packet.len });
            }
            self.notice_end(now);
        }
        self.poll_greeting(now, out)
    }

    fn next_timeout(&self) -> Option<Time> {
        // The transport waits for the answer: what is due of it meanwhile could not be sent.
        match self.asking {
            Some(asking) => Some(asking.next_try),
            None => Transport::next_timeout(&self.transport),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.standing.is_some() {
            Transport::handle_timeout(&mut self.transport, now);
            self.notice_end(now);
        }
    }

    /// At another address a base takes this mobile for a stranger, and says so.
    fn handle_roamed(&mut self, now: Time) {
        if let Some(asking) = &mut self.asking {
            asking.next_try = now;
        } else if self.standing.is_some() {
            Transport::probe(&mut self.transport, now);
        }
    }

    fn silent_for(&self, now: Time) -> Option<Duration> {
        match &self.asking {
            Some(asking) if self.standing.is_none() => Some(now.since(asking.first_sent)),
            _ => Transport::silent_for(&self.transport, now),
        }
    }

    fn handle_link_event(&mut self, now: Time, event: LinkEvent) {
        if event == LinkEvent::Up
            && let Some(asking) = &mut self.asking
        {
            asking.next_try = now;
        }
        Transport::handle_link_event(&mut self.transport, now, event);
    }

    /// Whoever says so, the base's answer to a greeting tells what is true.
    fn handle_unreachable(&mut self, now: Time, what: Unreachable) {
        self.evidence.add(now, what);
        if self.standing.is_none() {
            return;
        }
        if self.evidence.is_gone(now) {
            self.lose(now, CloseReason::Unreachable);
        } else if what.is_hard() {
            self.asking.get_or_insert(Asking::at(now));
        }
    }

    fn unreachable(&self, now: Time) -> Option<Unreachable> {
        self.evidence.unreachable(now)
    }

    fn poll_association_event(&mut self) -> Option<AssociationEvent> {
        self.events.pop_front()
    }

    /// A base at the new address that does not know the mobile says so, and only then are streams
    /// reset.
    fn set_base_address(&mut self, now: Time, base: A) {
        self.base = base;
        self.evidence.refute();
        if self.standing.is_some() {
            Transport::handle_moved(&mut self.transport, now);
        }
    }

    fn listen(&mut self, port: u16) {
        Transport::listen(&mut self.transport, port);
    }

    fn unlisten(&mut self, port: u16) {
        Transport::unlisten(&mut self.transport, port);
    }

    /// The base has answered the greeting.
    fn is_up(&self) -> bool {
        self.standing.is_some()
    }

    fn close(&mut self, reason: CloseReason) {
        Transport::close(&mut self.transport, reason);
    }

    fn stats(&self) -> HopStats {
        Transport::stats(&self.transport)
    }

    /// Packets that could not be read are among them.
    fn refused(&self) -> u64 {
        self.refused + Transport::stats(&self.transport).malformed
    }
}

crate::streams_of!([A: Copy + Eq] BareMobile<A>, Movable, |it| it.transport, it.transport);
