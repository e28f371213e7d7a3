//! How a base answers greetings, and whom it knows by their addresses.

use alloc::collections::{BTreeMap, VecDeque};
use core::time::Duration;

use lasthop_units::{Seed, Stream as Numbers, Time};
use lasthop_wire::datagram::HandshakeInit;
use lasthop_wire::mobile_tcp::{Code, Packet};

use super::super::base::{AssociationOf, BaseEnd, BaseLinks};
use super::super::refusal::Refusal;
use super::super::{Association, Transmit};
use super::Bare;
use crate::config::Limits;
use crate::greeting::LinkMessage;
use crate::mobile_tcp::{self, MobileTcp};
use crate::path_id::PathId;
use crate::tokens::Tokens;
use crate::transport::{CloseReason, Role, Transport};

/// Words that wait to be sent, at most.
const WORDS_MAX: usize = 64;
/// The rate limit of answers: a second, and at once.
const WORDS_PER_SECOND: f64 = 200.0;
const WORDS_AT_ONCE: f64 = 100.0;

/// Bounds of a base's bare end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BareBounds {
    /// Mobiles that are remembered at once. Further ones are refused and counted.
    pub peers_max: usize,
    /// A mobile without connections that sends nothing for so long is removed. Any mobile is probed
    /// for a sign of life after half the time.
    pub idle: Duration,
}

impl Default for BareBounds {
    fn default() -> Self {
        Self { peers_max: 1024, idle: Duration::from_secs(60) }
    }
}

/// Counters of a base's bare end beside those of its mobiles.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BareStats {
    /// Mobiles that began.
    pub begun: u64,
    /// Mobiles that were removed because they were silent.
    pub expired: u64,
    /// Greetings that were refused because the table of mobiles is full.
    pub turned_away: u64,
    /// Packets of strangers that were no greetings.
    pub strangers: u64,
    /// Answers that were not given because too many were asked for.
    pub throttled: u64,
    /// Datagrams that could not be read.
    pub refused: u64,
}

/// A base's bare links: greetings and addresses.
pub struct BareLinks<A> {
    config: mobile_tcp::Config,
    bounds: BareBounds,
    numbers: Numbers,
    by_addr: BTreeMap<A, u64>,
    words: VecDeque<(A, LinkMessage)>,
    tokens: Tokens,
    stats: BareStats,
    /// What removed mobiles' transports could not read.
    malformed: u64,
}

/// A base's end of a bare hop to all its mobiles, which are told apart by address.
pub type BareBase<A> = BaseEnd<BareLinks<A>>;

impl<A: Copy + Ord> BareBase<A> {
    /// A base for any mobile that reaches it. `seed` tells its lives apart: it must differ each time
    /// that a base is started.
    pub fn new(config: mobile_tcp::Config, bounds: BareBounds, seed: Seed) -> Self {
        Self::over(BareLinks {
            config,
            bounds,
            numbers: seed.stream("instances"),
            by_addr: BTreeMap::new(),
            words: VecDeque::new(),
            tokens: Tokens::new(WORDS_PER_SECOND, WORDS_AT_ONCE),
            stats: BareStats::default(),
            malformed: 0,
        })
    }

    /// Counters. What the mobiles' transports could not read is among what was refused.
    pub fn stats(&self) -> BareStats {
        let malformed: u64 = self.entries.values().map(|e| e.association.stats().malformed).sum();
        let refused = self.refused + self.links.malformed + malformed;
        BareStats { refused, ..self.links.stats }
    }

    /// How many mobiles are known.
    pub fn peers(&self) -> usize {
        self.entries.len()
    }

    fn handle_greeting(&mut self, now: Time, from: A, life: u64, first_stream: u64) {
        if let Some(&id) = self.links.by_addr.get(&from)
            && let Some(entry) = self.entries.get_mut(&id)
        {
            if let Some(known) = entry.association.link_mut().filter(|link| link.life == life) {
                // The answer to an earlier greeting was lost, or the mobile asks whether it is known.
                known.heard = now;
                self.links.queue_answer(now, from, life, known.instance);
                return;
            }
            self.remove(id, CloseReason::Replaced);
        }
        if self.entries.len() >= self.links.bounds.peers_max {
            self.links.stats.turned_away += 1;
            return self.refusals.record(now, from, Refusal::Full);
        }
        let instance = self.links.numbers.next_u64();
        if self.links.queue_answer(now, from, life, instance) {
            self.begin(now, from, life, instance, first_stream);
        }
    }

    /// A new mobile, or an old one's new life.
    fn begin(&mut self, now: Time, from: A, life: u64, instance: u64, first_stream: u64) {
        let BareLinks { config, bounds, stats, .. } = &mut self.links;
        let mut association = Association::new(config, Role::Base, 0, now);
        let check_at = Some(now + bounds.idle / 2);
        let limits = Limits { first_stream, ..MobileTcp::limits(config) };
        association.establish(now, Bare { life, instance, heard: now, check_at }, from, &limits);
        stats.begun += 1;
        let id = self.insert(association);
        self.links.by_addr.insert(from, id);
    }

    /// Nothing is kept of a stranger: it gets "unknown", unless it sends an end itself.
    fn handle_stranger(&mut self, now: Time, from: A, packet: &[u8]) -> bool {
        let code = match Packet::decode(packet) {
            Ok(Packet::Data(header, _)) => header.code,
            Ok(Packet::Control(control, _)) => control.code,
            Err(_) => {
                if HandshakeInit::new_checked(packet).is_ok() {
                    self.refusals.record(now, from, Refusal::OtherSeal);
                }
                return false;
            }
        };
        self.links.stats.strangers += 1;
        if !code.contains(Code::RST) {
            self.links.queue_message(now, from, LinkMessage::Unknown);
        }
        true
    }
}

impl<A: Copy> BareLinks<A> {
    /// False if the rate limit refuses the answer.
    fn queue_answer(&mut self, now: Time, to: A, life: u64, instance: u64) -> bool {
        // The base's streams begin with 1 in each of a mobile's lives.
        self.queue_message(now, to, LinkMessage::Answer { life, instance, first_stream: 1 })
    }

    fn queue_message(&mut self, now: Time, to: A, message: LinkMessage) -> bool {
        let may = self.words.len() < WORDS_MAX && self.tokens.take(now);
        if may {
            self.words.push_back((to, message));
        } else {
            self.stats.throttled += 1;
        }
        may
    }
}

impl<A: Copy + Ord> BaseLinks for BareLinks<A> {
    type Address = A;
    type Transport = MobileTcp;
    type Link = Bare;

    const KEEPS_LOST: bool = false;

    fn handle(base: &mut BaseEnd<Self>, now: Time, from: A, datagram: &mut [u8]) -> bool {
        if LinkMessage::is_one(datagram) {
            // Only bases say anything but a greeting.
            let Some(LinkMessage::Greeting { life, first_stream }) = LinkMessage::decode(datagram)
            else {
                return false;
            };
            base.handle_greeting(now, from, life, first_stream);
            return true;
        }
        match base.links.by_addr.get(&from) {
            Some(&id) => base.deliver(now, id, from, datagram),
            None => base.handle_stranger(now, from, datagram),
        }
    }

    fn poll_answer(&mut self, _now: Time, out: &mut [u8]) -> Option<Transmit<A>> {
        let (to, message) = self.words.pop_front()?;
        message.emit(out).map(|len| Transmit { path: PathId::FIRST, to, len })
    }

    /// Asks a mobile that says nothing whether it is there, and removes it if it has no connections
    /// and does not answer. Connections are given up by the transport, after a longer silence.
    fn check(&mut self, now: Time, association: &mut AssociationOf<Self>) -> Option<CloseReason> {
        let link = association.link_mut().filter(|link| link.check_at.is_some_and(|t| t <= now))?;
        let (half, unheard) = (self.bounds.idle / 2, now.since(link.heard));
        link.check_at = Some(now + half);
        if unheard >= self.bounds.idle && association.stats().streams == 0 {
            self.stats.expired += 1;
            return Some(CloseReason::Silence);
        }
        if unheard >= half {
            association.transport.ping();
        }
        None
    }

    fn handle_removed(&mut self, _id: u64, association: &AssociationOf<Self>) {
        self.malformed += association.stats().malformed;
        association.peer().and_then(|peer| self.by_addr.remove(&peer));
    }

    /// Those of strangers are among them.
    fn refused(base: &BaseEnd<Self>) -> u64 {
        let stats = base.stats();
        stats.refused + stats.strangers
    }
}
