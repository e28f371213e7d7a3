//! The end that answers, for many mobiles over one carrier.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use lasthop_units::{Seed, Stream as Numbers, Time};
use lasthop_wire::datagram::{Data, Kind, MAX_REPLY_LEN, Unknown};

use super::{Association, AssociationEvent, Outcome, Refusal, Refusals, Refused, Transmit, open};
use crate::config::Limits;
use crate::greeting;
use crate::schedule::{Schedule, Slot};
use crate::seal::{Fingerprint, Hello, Keypair, Keys, PublicKey, Responder};
use crate::srp::Srp;
use crate::tokens::Tokens;
use crate::transport::Transport;
use crate::transport::{CloseReason, Role};

/// Greetings that wait to be heard.
const CALLS_MAX: usize = 64;
/// Handshakes that are answered but not yet confirmed, at most.
const CANDIDATES_MAX: usize = 64;
/// How long a candidate waits for its first authentic datagram.
const CANDIDATE_LIFE: Duration = Duration::from_secs(5);
/// Diffie-Hellmans are done for so many inits a second, and so many at once.
const HANDSHAKES_PER_SECOND: f64 = 100.0;
const HANDSHAKES_AT_ONCE: f64 = 50.0;

/// So many times a second, and so many at once, a mobile is told that its association is not here.
const UNKNOWN_PER_SECOND: f64 = 200.0;
const UNKNOWN_AT_ONCE: f64 = 100.0;

/// Names an association at a base. Never reused while the base runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AssociationId(pub u64);

/// Counters of a base beside those of its associations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BaseStats {
    /// Handshakes answered.
    pub handshakes: u64,
    /// Handshakes of mobiles that are not allowed here.
    pub strangers: u64,
    /// Handshakes passed over because too many came at once.
    pub throttled: u64,
    /// Datagrams that were garbage, forged, replayed or for nobody.
    pub refused: u64,
}

/// An answered handshake whose keys nobody has used yet.
pub(super) struct Candidate {
    fingerprint: Fingerprint,
    /// When its reply was sent, if it was sent exactly once so far.
    replied: Option<Time>,
    replies: u32,
    receiver: u32,
    remote: u32,
    mobile: PublicKey,
    stamp: u64,
    keys: Keys,
    limits: Limits,
    reply: Vec<u8>,
    expires: Time,
}

struct Entry<A, T: Transport> {
    association: Association<A, T>,
    mobile: PublicKey,
    receiver: u32,
    slot: Slot,
}

/// A base's end of all its associations.
pub struct Base<A, T: Transport = Srp> {
    config: T::Config,
    responder: Responder,
    sealed: bool,
    allowed: BTreeSet<[u8; 32]>,
    fast_aes: bool,
    numbers: Numbers,
    entries: BTreeMap<u64, Entry<A, T>>,
    next_id: u64,
    by_receiver: BTreeMap<u32, u64>,
    /// The oldest first.
    by_mobile: BTreeMap<[u8; 32], VecDeque<u64>>,
    /// Associations of one mobile at once.
    per_mobile: usize,
    pub(super) candidates: Vec<Candidate>,
    /// Replies to send: where to, and which candidate's.
    pub(super) replies: VecDeque<(A, u32)>,
    /// Whom to tell that an association is not here, and by which name it was called.
    unknown: VecDeque<(A, u32)>,
    unknown_tokens: Tokens,
    schedule: Schedule,
    events: VecDeque<(AssociationId, AssociationEvent)>,
    /// Associations whose loss is among the events, or was the last that was told.
    lost: BTreeMap<u64, Association<A, T>>,
    /// The association whose loss was told last.
    told_lost: Option<u64>,
    /// Greetings that were heard, with whose they are.
    calls: VecDeque<(PublicKey, Vec<u8>)>,
    refusals: Refusals<A>,
    tokens: Tokens,
    stats: BaseStats,
}

impl<A: Copy + Eq, T: Transport> Base<A, T> {
    /// A base that serves the mobiles with the `allowed` keys. `seed` must be entropy if the seal
    /// is to protect anything.
    pub fn new(config: T::Config, keys: Keypair, allowed: Vec<PublicKey>, seed: Seed) -> Self {
        let responder = Responder::new(keys, seed.child("responder"));
        let allowed = allowed.iter().map(|k| *k.as_bytes()).collect();
        Self::build(config, responder, true, allowed, seed)
    }

    /// A base on a hop that goes unsealed by explicit choice, for any mobile that reaches it.
    pub fn unsealed(config: T::Config, seed: Seed) -> Self {
        Self::build(config, Responder::unsealed(), false, BTreeSet::new(), seed)
    }

    fn build(
        config: T::Config,
        responder: Responder,
        sealed: bool,
        allowed: BTreeSet<[u8; 32]>,
        seed: Seed,
    ) -> Self {
        Self {
            config,
            responder,
            sealed,
            allowed,
            fast_aes: false,
            numbers: seed.stream("receiver ids"),
            entries: BTreeMap::new(),
            next_id: 0,
            by_receiver: BTreeMap::new(),
            by_mobile: BTreeMap::new(),
            per_mobile: 1,
            candidates: Vec::new(),
            replies: VecDeque::new(),
            unknown: VecDeque::new(),
            unknown_tokens: Tokens::new(UNKNOWN_PER_SECOND, UNKNOWN_AT_ONCE),
            schedule: Schedule::default(),
            events: VecDeque::new(),
            lost: BTreeMap::new(),
            told_lost: None,
            calls: VecDeque::new(),
            refusals: Refusals::default(),
            tokens: Tokens::new(HANDSHAKES_PER_SECOND, HANDSHAKES_AT_ONCE),
            stats: BaseStats::default(),
        }
    }

    /// Lets each peer have up to `n` associations at once; one more replaces its oldest. A mobile
    /// has one, and a new one replaces it; a base that calls on another has one for each purpose.
    #[must_use]
    pub fn with_many(mut self, n: usize) -> Self {
        self.per_mobile = n.max(1);
        self
    }

    /// Tells that this machine has AES in hardware: the seal uses it with mobiles that have it too.
    #[must_use]
    pub fn with_fast_aes(mut self, fast_aes: bool) -> Self {
        self.fast_aes = fast_aes;
        self
    }

    /// Counters of handshakes and of what was refused.
    pub fn stats(&self) -> BaseStats {
        let refused: u64 = self.entries.values().map(|e| e.association.refused).sum();
        BaseStats { refused: self.stats.refused + refused, ..self.stats }
    }

    /// The associations that stand, and whose they are.
    pub fn associations(
        &self,
    ) -> impl Iterator<Item = (AssociationId, &PublicKey, &Association<A, T>)> {
        self.entries.iter().map(|(id, e)| (AssociationId(*id), &e.mobile, &e.association))
    }

    /// The mobile at the other end of an association.
    pub fn mobile(&self, id: AssociationId) -> Option<PublicKey> {
        self.entries.get(&id.0).map(|e| e.mobile)
    }

    /// An association, to look at.
    pub fn association(&self, id: AssociationId) -> Option<&Association<A, T>> {
        let entry = self.entries.get(&id.0).map(|e| &e.association);
        entry.or_else(|| self.lost.get(&id.0))
    }

    /// An association, to read and write its streams. What a lost one has received can be read, and its
    /// streams can be taken out, until it is [released](Self::release) or the event after its loss is asked
    /// for.
    pub fn association_mut(&mut self, id: AssociationId) -> Option<&mut Association<A, T>> {
        let Some(entry) = self.entries.get_mut(&id.0) else { return self.lost.get_mut(&id.0) };
        self.schedule.queue(id.0, &mut entry.slot);
        Some(&mut entry.association)
    }

    /// What happened to associations, in order.
    pub fn poll_event(&mut self) -> Option<(AssociationId, AssociationEvent)> {
        if let Some(id) = self.told_lost.take() {
            self.lost.remove(&id);
        }
        let (id, event) = self.events.pop_front()?;
        self.told_lost = matches!(event, AssociationEvent::Lost(_)).then_some(id.0);
        Some((id, event))
    }

    /// Nothing more is wanted of an association that is lost.
    pub fn release(&mut self, id: AssociationId) {
        self.lost.remove(&id.0);
    }

    /// The next association that a datagram or a timer has touched, whose stream events wait.
    pub fn poll_touched(&mut self) -> Option<AssociationId> {
        let id = self.schedule.pop_fresh()?;
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.slot.look();
        }
        Some(AssociationId(id))
    }

    /// Takes in a datagram. A bad one changes nothing but a counter.
    pub fn handle_datagram(&mut self, now: Time, from: A, datagram: &mut [u8]) {
        let taken = match Kind::of(datagram) {
            Ok(Kind::Data) => self.handle_data(now, from, datagram),
            Ok(Kind::HandshakeInit | Kind::PlainInit) => self.handle_init(now, from, datagram),
            _ => {
                if greeting::is_greeting(datagram) {
                    self.refusals.note(now, from, Refusal::OtherSeal);
                }
                false
            }
        };
        if !taken {
            self.stats.refused += 1;
        }
    }

    fn handle_data(&mut self, now: Time, from: A, datagram: &mut [u8]) -> bool {
        let Ok(view) = Data::new_checked(&*datagram) else { return false };
        let receiver = view.header().receiver;
        if let Some(&id) = self.by_receiver.get(&receiver) {
            let Some(entry) = self.entries.get_mut(&id) else { return false };
            let before = entry.association.refused;
            let outcome = entry.association.handle_data(now, from, datagram);
            if outcome == Outcome::Refused {
                // Counted once, here.
                entry.association.refused = before;
                return false;
            }
            if outcome == (Outcome::Taken { moved: true }) {
                self.events.push_back((AssociationId(id), AssociationEvent::Moved));
            }
            self.touch(id);
            return true;
        }
        self.promote(now, from, receiver, datagram)
    }

    fn handle_init(&mut self, now: Time, from: A, init: &[u8]) -> bool {
        self.candidates.retain(|c| c.expires > now);
        let fingerprint = match self.responder.check(init) {
            Ok(fingerprint) => fingerprint,
            Err(e) => {
                if let Some(why) = Refusal::of(e, init) {
                    self.refusals.note(now, from, why);
                }
                return false;
            }
        };
        if let Some(known) = self.candidates.iter().find(|c| c.fingerprint == fingerprint) {
            let receiver = known.receiver;
            self.queue_reply(from, receiver);
            return true;
        }
        if !self.tokens.take(now) {
            self.stats.throttled += 1;
            return true;
        }
        let Ok(request) = self.responder.read(init) else { return false };
        let mobile = *request.mobile();
        if self.sealed && !self.allowed.contains(mobile.as_bytes()) {
            self.stats.strangers += 1;
            self.refusals.note(now, from, Refusal::Stranger(mobile));
            return true;
        }
        let Some(limits) = Limits::decode(&request.hello().limits, T::ID) else {
            self.refusals.note(now, from, Refusal::OtherTransport);
            return false;
        };
        let (remote, stamp) = (request.hello().receiver, request.hello().stamp);
        if !self.make_room(stamp) {
            self.stats.throttled += 1;
            return true;
        }
        let greeting = Limits::greeting(&request.hello().limits);
        if self.sealed && !greeting.is_empty() && self.calls.len() < CALLS_MAX {
            self.calls.push_back((mobile, greeting.to_vec()));
        }
        let receiver = self.new_receiver();
        let standing = limits.standing.filter(|receiver| self.knows(*receiver, &mobile));
        let hello = Hello {
            receiver,
            fast_aes: self.fast_aes,
            stamp: 0,
            limits: Limits { first_stream: 1, standing, ..T::limits(&self.config) }
                .encode(T::ID, &[]),
        };
        let mut reply = alloc::vec![0; MAX_REPLY_LEN];
        let Ok((len, keys)) = request.accept(&hello, &mut reply) else { return false };
        reply.truncate(len);
        self.stats.handshakes += 1;
        let expires = now + CANDIDATE_LIFE;
        self.candidates.push(Candidate {
            fingerprint,
            replied: None,
            replies: 0,
            receiver,
            remote,
            mobile,
            stamp,
            keys,
            limits,
            reply,
            expires,
        });
        self.queue_reply(from, receiver);
        true
    }

    /// Whether `receiver` names an association with this mobile, or a handshake that may become one
    /// any moment.
    fn knows(&self, receiver: u32, mobile: &PublicKey) -> bool {
        let id = self.by_receiver.get(&receiver);
        id.and_then(|id| self.entries.get(id)).is_some_and(|e| e.mobile == *mobile)
            || self.candidates.iter().any(|c| c.receiver == receiver && c.mobile == *mobile)
    }

    fn queue_reply(&mut self, to: A, receiver: u32) {
        if self.replies.len() < CANDIDATES_MAX {
            self.replies.push_back((to, receiver));
        }
    }

    /// A place for a candidate of this stamp: an older one yields, a newer one does not.
    fn make_room(&mut self, stamp: u64) -> bool {
        if self.candidates.len() < CANDIDATES_MAX {
            return true;
        }
        let oldest = (0..self.candidates.len()).min_by_key(|i| self.candidates[*i].stamp);
        match oldest {
            Some(i) if self.candidates[i].stamp < stamp => {
                self.candidates.swap_remove(i);
                true
            }
            _ => false,
        }
    }

    fn new_receiver(&mut self) -> u32 {
        loop {
            let receiver = self.numbers.next_u64() as u32;
            let taken = self.by_receiver.contains_key(&receiver)
                || self.candidates.iter().any(|c| c.receiver == receiver);
            if !taken {
                return receiver;
            }
        }
    }

    /// A candidate becomes the mobile's association when it has proved to hold the keys.
    fn promote(&mut self, now: Time, from: A, receiver: u32, datagram: &mut [u8]) -> bool {
        let Some(at) = self.candidates.iter().position(|c| c.receiver == receiver) else {
            // The mobile need not find out by silence that this base was restarted.
            if self.unknown.len() < CANDIDATES_MAX && self.unknown_tokens.take(now) {
                self.unknown.push_back((from, receiver));
            }
            return false;
        };
        let Some((number, frames)) = open(&mut self.candidates[at].keys, None, datagram) else {
            return false;
        };
        let Candidate { remote, mobile, keys, limits, replied, .. } =
            self.candidates.swap_remove(at);
        let mut association = Association::<A, T>::new(&self.config, Role::Base, self.sealed, now);
        association.establish(now, keys, remote, from, &limits);
        if let Some(replied) = replied {
            association.transport.seed_round_trip(now, now.since(replied));
        }
        association.take(now, from, number, frames);
        // The mobile has given its old association up: so does the base.
        let known = self.by_mobile.get(mobile.as_bytes());
        let oldest = known.filter(|ids| ids.len() >= self.per_mobile).and_then(VecDeque::front);
        if let Some(old) = oldest.copied() {
            self.forget(old, CloseReason::Replaced);
        }
        let id = self.next_id;
        self.next_id += 1;
        self.by_receiver.insert(receiver, id);
        self.by_mobile.entry(*mobile.as_bytes()).or_default().push_back(id);
        let entry = Entry { association, mobile, receiver, slot: Slot::default() };
        self.entries.insert(id, entry);
        self.events.push_back((AssociationId(id), AssociationEvent::Up));
        self.touch(id);
        true
    }

    /// Ends an association without a word to the mobile. The caller hears of it by its event.
    fn forget(&mut self, id: u64, reason: CloseReason) {
        let Some(entry) = self.entries.remove(&id) else { return };
        self.by_receiver.remove(&entry.receiver);
        if let Some(ids) = self.by_mobile.get_mut(entry.mobile.as_bytes()) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_mobile.remove(entry.mobile.as_bytes());
            }
        }
        self.schedule.remove(id, &entry.slot);
        self.lost.insert(id, entry.association);
        self.events.push_back((AssociationId(id), AssociationEvent::Lost(reason)));
    }

    fn touch(&mut self, id: u64) {
        if let Some(entry) = self.entries.get_mut(&id) {
            self.schedule.touch(id, &mut entry.slot);
        }
    }

    /// What a mobile says with the first datagram of a handshake ([`Mobile::greet`]). The mobile is
    /// who it says it is, but may have said so at another time.
    ///
    /// [`Mobile::greet`]: super::Mobile::greet
    pub fn poll_call(&mut self) -> Option<(PublicKey, Vec<u8>)> {
        self.calls.pop_front()
    }

    /// A handshake that was not answered, for the operator; again once a minute while it goes on.
    pub fn poll_refused(&mut self) -> Option<Refused<A>> {
        self.refusals.poll()
    }

    /// Writes the next datagram that should leave now into `out`, which must have room for the
    /// largest, if there is one.
    pub fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit<A>> {
        while let Some((to, receiver)) = self.replies.pop_front() {
            let candidate = self.candidates.iter_mut().find(|c| c.receiver == receiver);
            let Some(candidate) = candidate else { continue };
            candidate.replies += 1;
            candidate.replied = (candidate.replies == 1).then_some(now);
            let reply = &candidate.reply;
            out.get_mut(..reply.len())?.copy_from_slice(reply);
            return Some(Transmit { to, len: reply.len() });
        }
        if let Some((to, receiver)) = self.unknown.pop_front() {
            let unknown = Unknown { receiver }.to_bytes();
            out.get_mut(..unknown.len())?.copy_from_slice(&unknown);
            return Some(Transmit { to, len: unknown.len() });
        }
        while let Some(id) = self.schedule.ready() {
            let transmit =
                self.entries.get_mut(&id).and_then(|e| e.association.poll_transmit(now, out));
            if transmit.is_some() {
                return transmit;
            }
            self.schedule.pop_ready();
            self.settle(id);
        }
        None
    }

    /// An association has nothing more to send for now: its timer is set, or its end noticed.
    fn settle(&mut self, id: u64) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if let Some(reason) = entry.association.closed() {
            self.forget(id, reason);
            return;
        }
        let timer = entry.association.next_timeout();
        self.schedule.settle(id, &mut entry.slot, timer);
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), if nothing happens before.
    pub fn next_timeout(&self) -> Option<Time> {
        [self.schedule.next_timeout(), self.refusals.next_timeout()].into_iter().flatten().min()
    }

    /// Lets timers that are due act; follow with [`poll_transmit`](Self::poll_transmit).
    pub fn handle_timeout(&mut self, now: Time) {
        self.refusals.handle_timeout(now);
        while let Some(id) = self.schedule.pop_due(now) {
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.slot.ring();
                entry.association.transport.handle_timeout(now);
            }
            self.touch(id);
        }
    }

    /// Ends all associations, telling the mobiles.
    pub fn close(&mut self, reason: CloseReason) {
        let ids: Vec<u64> = self.entries.keys().copied().collect();
        for id in ids {
            if let Some(association) = self.association_mut(AssociationId(id)) {
                association.close(reason);
            }
        }
    }
}
