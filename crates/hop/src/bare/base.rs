//! The base's end of a bare hop, for many mobiles.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use lasthop_units::{Seed, Stream as Numbers, Time};
use lasthop_wire::datagram::HandshakeInit;
use lasthop_wire::mobile_tcp::{Code, Packet};

use crate::association::{
    AssociationEvent, AssociationId, AssociationView, BaseEnd, Refusal, Refusals, Refused, Transmit,
};
use crate::config::Limits;
use crate::greeting::Word;
use crate::mobile_tcp::{self, MobileTcp};
use crate::schedule::{Schedule, Slot};
use crate::seal::PublicKey;
use crate::tokens::Tokens;
use crate::transport::Transport;
use crate::transport::{CloseReason, Role};

/// Words that wait to be sent, at most.
const WORDS_MAX: usize = 64;
/// So many words are said a second, and so many at once.
const WORDS_PER_SECOND: f64 = 200.0;
const WORDS_AT_ONCE: f64 = 100.0;

/// Bounds of a base's bare end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BareBounds {
    /// Mobiles that are remembered at once. Further ones are refused and counted.
    pub peers_max: usize,
    /// A mobile without connections that says nothing for so long is forgotten. Any mobile is asked
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
    /// Mobiles that were forgotten because they said nothing.
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

struct Peer<A> {
    transport: MobileTcp,
    addr: A,
    life: u64,
    instance: u64,
    /// When something last came from it.
    heard: Time,
    /// When to look next whether it is still there.
    check_at: Time,
    slot: Slot,
}

/// A base's end of a bare hop to all its mobiles, which are told apart by address.
pub struct BareBase<A> {
    config: mobile_tcp::Config,
    bounds: BareBounds,
    numbers: Numbers,
    peers: BTreeMap<u64, Peer<A>>,
    by_addr: BTreeMap<A, u64>,
    next_id: u64,
    words: VecDeque<(A, Word)>,
    tokens: Tokens,
    schedule: Schedule,
    events: VecDeque<(AssociationId, AssociationEvent)>,
    refusals: Refusals<A>,
    stats: BareStats,
    /// What forgotten mobiles' transports could not read.
    malformed: u64,
}

impl<A: Copy + Ord> BareBase<A> {
    /// A base for any mobile that reaches it. `seed` tells its lives apart: it must differ each time
    /// that a base is started.
    pub fn new(config: mobile_tcp::Config, bounds: BareBounds, seed: Seed) -> Self {
        Self {
            config,
            bounds,
            numbers: seed.stream("instances"),
            peers: BTreeMap::new(),
            by_addr: BTreeMap::new(),
            next_id: 0,
            words: VecDeque::new(),
            tokens: Tokens::new(WORDS_PER_SECOND, WORDS_AT_ONCE),
            schedule: Schedule::default(),
            events: VecDeque::new(),
            refusals: Refusals::default(),
            stats: BareStats::default(),
            malformed: 0,
        }
    }

    /// Counters. What the mobiles' transports could not read is among what was refused.
    pub fn stats(&self) -> BareStats {
        let malformed: u64 = self.peers.values().map(|p| p.transport.stats().malformed).sum();
        BareStats { refused: self.stats.refused + self.malformed + malformed, ..self.stats }
    }

    /// One mobile's transport, to look at.
    pub fn peer_transport(&self, id: AssociationId) -> Option<&MobileTcp> {
        self.peers.get(&id.0).map(|p| &p.transport)
    }

    /// How many mobiles are known.
    pub fn peers(&self) -> usize {
        self.peers.len()
    }

    fn handle_word(&mut self, now: Time, from: A, packet: &[u8]) {
        match Word::decode(packet) {
            Some(Word::Greeting { life, first_stream }) => {
                self.handle_greeting(now, from, life, first_stream);
            }
            // Only bases say the others.
            Some(_) | None => self.stats.refused += 1,
        }
    }

    fn handle_greeting(&mut self, now: Time, from: A, life: u64, first_stream: u64) {
        if let Some(&id) = self.by_addr.get(&from)
            && let Some(peer) = self.peers.get_mut(&id)
        {
            if peer.life == life {
                // The answer to an earlier greeting was lost, or the mobile asks whether it is known.
                peer.heard = now;
                let instance = peer.instance;
                self.answer(now, from, life, instance);
                return;
            }
            self.forget(id, CloseReason::Replaced);
        }
        if self.peers.len() >= self.bounds.peers_max {
            self.stats.turned_away += 1;
            return self.refusals.note(now, from, Refusal::Full);
        }
        let instance = self.numbers.next_u64();
        if self.answer(now, from, life, instance) {
            self.begin(now, from, life, instance, first_stream);
        }
    }

    /// A new mobile, or an old one's new life.
    fn begin(&mut self, now: Time, from: A, life: u64, instance: u64, first_stream: u64) {
        let mut transport = <MobileTcp as Transport>::new(&self.config, Role::Base, 0, now);
        transport.establish(now, &Limits { first_stream, ..MobileTcp::limits(&self.config) });
        let id = self.next_id;
        self.next_id += 1;
        self.stats.begun += 1;
        let check_at = now + self.bounds.idle / 2;
        let slot = Slot::default();
        let peer = Peer { transport, addr: from, life, instance, heard: now, check_at, slot };
        self.peers.insert(id, peer);
        self.by_addr.insert(from, id);
        self.events.push_back((AssociationId(id), AssociationEvent::Up));
        self.touch(id);
    }

    /// False if nothing is said because too much was said already.
    fn answer(&mut self, now: Time, to: A, life: u64, instance: u64) -> bool {
        // The base's streams begin with 1 in each of a mobile's lives.
        self.say(now, to, Word::Answer { life, instance, first_stream: 1 })
    }

    fn say(&mut self, now: Time, to: A, word: Word) -> bool {
        let may = self.words.len() < WORDS_MAX && self.tokens.take(now);
        if may {
            self.words.push_back((to, word));
        } else {
            self.stats.throttled += 1;
        }
        may
    }

    /// Nothing is kept of a stranger: it is told so, if it is not itself telling of an end.
    fn handle_stranger(&mut self, now: Time, from: A, packet: &[u8]) {
        let code = match Packet::decode(packet) {
            Ok(Packet::Data(header, _)) => header.code,
            Ok(Packet::Control(control, _)) => control.code,
            Err(_) => {
                self.stats.refused += 1;
                if HandshakeInit::new_checked(packet).is_ok() {
                    self.refusals.note(now, from, Refusal::OtherSeal);
                }
                return;
            }
        };
        self.stats.strangers += 1;
        if !code.contains(Code::RST) {
            self.say(now, from, Word::Unknown);
        }
    }

    /// Ends the relation with a mobile without a word to it.
    fn forget(&mut self, id: u64, reason: CloseReason) {
        let Some(peer) = self.peers.remove(&id) else { return };
        self.malformed += peer.transport.stats().malformed;
        self.by_addr.remove(&peer.addr);
        self.schedule.remove(id, &peer.slot);
        self.events.push_back((AssociationId(id), AssociationEvent::Lost(reason)));
    }

    fn touch(&mut self, id: u64) {
        if let Some(peer) = self.peers.get_mut(&id) {
            self.schedule.touch(id, &mut peer.slot);
        }
    }

    /// A mobile has nothing more to be sent for now: its timer is set, or its end noticed.
    fn settle(&mut self, id: u64) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if let Some(reason) = peer.transport.closed() {
            self.forget(id, reason);
            return;
        }
        let timer = peer.transport.next_timeout().map_or(peer.check_at, |t| t.min(peer.check_at));
        self.schedule.settle(id, &mut peer.slot, Some(timer));
    }

    /// Asks a mobile that says nothing whether it is there, and forgets it if it has no connections
    /// and does not answer. Connections are given up by the transport, after a longer silence.
    fn check(&mut self, now: Time, id: u64) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if peer.check_at > now {
            return;
        }
        let (half, unheard) = (self.bounds.idle / 2, now.since(peer.heard));
        peer.check_at = now + half;
        if unheard >= self.bounds.idle && peer.transport.stats().streams == 0 {
            self.stats.expired += 1;
            self.forget(id, CloseReason::Silence);
        } else if unheard >= half {
            peer.transport.ping();
        }
    }
}

impl<A: Copy + Ord> BaseEnd for BareBase<A> {
    type Address = A;
    type Streams = MobileTcp;

    fn handle_datagram(&mut self, now: Time, from: A, datagram: &mut [u8]) {
        if Word::is_one(datagram) {
            self.handle_word(now, from, datagram);
            return;
        }
        let Some(&id) = self.by_addr.get(&from) else {
            self.handle_stranger(now, from, datagram);
            return;
        };
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.heard = now;
            Transport::handle(&mut peer.transport, now, 0, datagram);
            self.schedule.touch(id, &mut peer.slot);
        }
    }

    fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit<A>> {
        if let Some((to, word)) = self.words.pop_front() {
            return word.emit(out).map(|len| Transmit { to, len });
        }
        while let Some(id) = self.schedule.ready() {
            if let Some(peer) = self.peers.get_mut(&id)
                && let Some(packet) = Transport::poll(&mut peer.transport, now, 0, out)
            {
                return Some(Transmit { to: peer.addr, len: packet.len });
            }
            self.schedule.pop_ready();
            self.settle(id);
        }
        None
    }

    fn next_timeout(&self) -> Option<Time> {
        [self.schedule.next_timeout(), self.refusals.next_timeout()].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.refusals.handle_timeout(now);
        while let Some(id) = self.schedule.pop_due(now) {
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.slot.ring();
                Transport::handle_timeout(&mut peer.transport, now);
            }
            self.check(now, id);
            self.touch(id);
        }
    }

    fn poll_refused(&mut self) -> Option<Refused<A>> {
        self.refusals.poll()
    }

    fn poll_event(&mut self) -> Option<(AssociationId, AssociationEvent)> {
        self.events.pop_front()
    }

    fn poll_touched(&mut self) -> Option<AssociationId> {
        let id = self.schedule.pop_fresh()?;
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.slot.look();
        }
        Some(AssociationId(id))
    }

    fn association_mut(&mut self, id: AssociationId) -> Option<&mut MobileTcp> {
        let peer = self.peers.get_mut(&id.0)?;
        self.schedule.queue(id.0, &mut peer.slot);
        Some(&mut peer.transport)
    }

    fn mobile(&self, _id: AssociationId) -> Option<PublicKey> {
        None
    }

    fn peer(&self, id: AssociationId) -> Option<A> {
        self.peers.get(&id.0).map(|p| p.addr)
    }

    fn listens(&self, id: AssociationId, port: u16) -> Option<bool> {
        Transport::peer_listens(&self.peers.get(&id.0)?.transport, port)
    }

    fn views(&self) -> impl Iterator<Item = AssociationView<A>> {
        self.peers.iter().map(|(id, peer)| AssociationView {
            id: AssociationId(*id),
            mobile: None,
            peer: Some(peer.addr),
            stats: Transport::stats(&peer.transport),
        })
    }

    fn close(&mut self, reason: CloseReason) {
        let ids: Vec<u64> = self.peers.keys().copied().collect();
        for id in ids {
            if let Some(transport) = self.association_mut(AssociationId(id)) {
                Transport::close(transport, reason);
            }
        }
    }

    /// Datagrams that could not be read, and those of strangers.
    fn refused(&self) -> u64 {
        let stats = self.stats();
        stats.refused + stats.strangers
    }
}
