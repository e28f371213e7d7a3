//! How a base answers handshakes, and whom it knows by them.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use lasthop_units::{CarrierAddress, Seed, Stream as Numbers, Time, gather};
use lasthop_wire::datagram::{Data, Kind, MAX_REPLY_LEN, Token, Transit, TransitCheck, Unknown};
use lasthop_wire::mhp::transit::TransitGrant;

use super::super::base::{AssociationId, AssociationOf, BaseEnd, BaseLinks};
use super::super::part::{Part, Parts, Stray};
use super::super::refusal::Refusal;
use super::super::{Association, Opened, Transmit};
use super::candidates::Candidate;
use super::handshakes::{Admission, Handshakes};
use super::keyset::{Keyset, Unsealed};
use super::transits::Transits;
use super::{Numbered, overhead};
use crate::config::Limits;
use crate::greeting;
use crate::path_id::{PathId, PathNumbers};
use crate::seal::{Allowed, Hello, Keypair, Keys, PresharedKey, PublicKey, Request, Responder};
use crate::srp::Srp;
use crate::tokens::Tokens;
use crate::transport::{CloseReason, Role, Transport};

/// Greetings that wait to be polled.
const CALLS_MAX: usize = 64;
/// The rate limit of answers to unknown associations: a second, and at once.
const UNKNOWN_PER_SECOND: f64 = 200.0;
const UNKNOWN_AT_ONCE: f64 = 100.0;
/// Such answers that wait to be sent.
const UNKNOWN_MAX: usize = 64;

/// Counters of a base beside those of its associations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BaseStats {
    /// Handshakes answered.
    pub handshakes: u64,
    /// Handshakes of mobiles that are not allowed here.
    pub strangers: u64,
    /// Handshakes passed over because too many came at once.
    pub throttled: u64,
    /// Handshakes that were to show a cookie first.
    pub cookies: u64,
    /// Handshakes that are not newer than the mobile's association.
    pub stale: u64,
    /// Datagrams that were garbage, forged, replayed or for nobody.
    pub refused: u64,
}

/// The keys of the mobiles that are served, and what they share with this base.
type AllowedKeys = BTreeMap<[u8; 32], PresharedKey>;

fn by_key(allowed: Vec<Allowed>) -> AllowedKeys {
    gather(allowed.into_iter().map(|allowed| (*allowed.key.as_bytes(), allowed.psk)))
}

/// A base's numbered links: handshakes and names.
pub struct NumberedLinks<A, T: Transport> {
    config: T::Config,
    responder: Responder,
    /// Any, if the hop is unsealed.
    allowed: Option<AllowedKeys>,
    fast_aes: bool,
    numbers: Numbers,
    /// Under which names datagrams come: of the keys in use, of those before, and the first.
    pub(in super::super) by_receiver: BTreeMap<u32, u64>,
    /// The oldest first.
    by_mobile: BTreeMap<[u8; 32], VecDeque<u64>>,
    /// Associations of one mobile at once.
    per_mobile: usize,
    /// Associations of all mobiles at once.
    associations_max: usize,
    pub(in super::super) handshakes: Handshakes<A>,
    /// Answers to unknown associations: where to, and the number that the datagram had.
    unknown: VecDeque<(A, u32)>,
    unknown_tokens: Tokens,
    /// Greetings that have come, with their mobiles' keys.
    calls: VecDeque<(PublicKey, Vec<u8>)>,
    parts: Parts<A>,
    transits: Transits<A>,
    stats: BaseStats,
}

/// A base's end of associations on numbered links.
pub type Base<A, T = Srp> = BaseEnd<NumberedLinks<A, T>>;

impl<A: CarrierAddress, T: Transport> Base<A, T> {
    /// A base that serves the mobiles with the `allowed` keys. `seed` must be entropy if the seal
    /// is to protect anything.
    pub fn new(
        config: T::Config,
        keys: Keypair,
        allowed: Vec<impl Into<Allowed>>,
        seed: Seed,
    ) -> Self {
        let responder = Responder::new(keys, seed.child("responder"));
        let allowed = Some(by_key(allowed.into_iter().map(Into::into).collect()));
        Self::over(NumberedLinks::new(config, responder, allowed, seed))
    }

    /// A base on a hop that goes unsealed by explicit choice, for any mobile that reaches it.
    pub fn unsealed(config: T::Config, seed: Seed) -> Self {
        Self::over(NumberedLinks::new(config, Responder::unsealed(), None, seed))
    }

    /// Serves at most `n` mobiles at once: those that are here stay, and further ones are reported as
    /// [`Refusal::Full`]. A bound for where anybody may come.
    #[must_use]
    pub fn with_at_most(mut self, n: usize) -> Self {
        self.links.associations_max = n;
        self
    }

    /// Lets each peer have up to `n` associations at once. A mobile has one, and a new one replaces it; a
    /// base that calls on another has one for each purpose, none of which replaces another: one too many
    /// comes to stand when one of them has ended.
    #[must_use]
    pub fn with_many(mut self, n: usize) -> Self {
        self.links.per_mobile = n.max(1);
        if n > 1 {
            self.links.handshakes.expect_peers();
        }
        self
    }

    /// Serves a part of a base's mobiles, if there are parts, beside others that serve theirs: it gives names that no
    /// other gives, and what is another's is to be [polled](BaseEnd::poll_stray).
    #[must_use]
    pub fn with_part(mut self, part: Option<Part>) -> Self {
        if let Some(part) = part {
            self.links.responder.share_cookies(part.cookies);
            self.number_from(u64::from(part.number), u64::from(part.of));
            self.links.parts.be(part);
        }
        self
    }

    /// Tells that this machine has AES in hardware: the seal uses it with mobiles that have it too.
    #[must_use]
    pub fn with_fast_aes(mut self, fast_aes: bool) -> Self {
        self.links.fast_aes = fast_aes;
        self
    }

    /// Counters of handshakes and of what was refused.
    pub fn stats(&self) -> BaseStats {
        BaseStats { refused: self.refused, ..self.links.stats }
    }

    /// Handshakes that were answered, and that nobody has confirmed.
    pub fn unconfirmed(&self) -> usize {
        self.links.handshakes.candidates.len()
    }

    /// The associations that stand, and whose they are.
    pub fn associations(
        &self,
    ) -> impl Iterator<Item = (AssociationId, &PublicKey, &Association<A, T>)> {
        self.entries.iter().filter_map(|(id, entry)| {
            let mobile = entry.association.link()?.mobile.as_ref()?;
            Some((AssociationId(*id), mobile, &entry.association))
        })
    }

    fn handle_data(&mut self, now: Time, from: A, datagram: &mut [u8]) -> bool {
        let Ok(view) = Data::new_checked(&*datagram) else { return false };
        let receiver = view.header().receiver;
        match self.links.by_receiver.get(&receiver) {
            Some(&id) => self.deliver(now, id, from, datagram),
            None if self.links.parts.divert(from, receiver, datagram) => true,
            None => self.promote(now, from, receiver, datagram),
        }
    }

    fn handle_init(&mut self, now: Time, from: A, init: &[u8]) -> bool {
        for (from, mobile) in self.links.handshakes.expire(now) {
            // One that has an association makes nothing of its renewal, and will be heard of if it is lost.
            if !self.links.by_mobile.contains_key(mobile.as_bytes()) {
                self.refusals.record(now, from, Refusal::Unconfirmed(mobile));
            }
        }
        let fingerprint = match self.links.responder.check(init) {
            Ok(fingerprint) => fingerprint,
            Err(e) => {
                if let Some(why) = Refusal::of(e, init) {
                    self.refusals.record(now, from, why);
                }
                return false;
            }
        };
        if self.links.handshakes.reply_again(now, from, &fingerprint) {
            return true;
        }
        let responder = (&mut self.links.responder, init);
        match self.links.handshakes.admit(now, from, &fingerprint, responder) {
            Admission::Read => {}
            Admission::Cookie => {
                self.links.stats.cookies += 1;
                return true;
            }
            Admission::Throttled => {
                self.links.stats.throttled += 1;
                return true;
            }
        }
        let Ok(request) = self.links.responder.read(init) else { return false };
        let mobile = *request.mobile();
        let Some(psk) = self.links.psk(&mobile) else {
            if self.links.parts.take_stranger(from, mobile, init) {
                return true;
            }
            self.links.stats.strangers += 1;
            self.refusals.record(now, from, Refusal::Stranger(mobile));
            return true;
        };
        let request = request.with_psk(psk);
        if self.is_full_for(&mobile) {
            self.refusals.record(now, from, Refusal::Full);
            return true;
        }
        let Some(limits) = Limits::decode(&request.hello().limits, T::ID) else {
            self.refusals.record(now, from, Refusal::OtherTransport);
            return false;
        };
        let greeting = Limits::greeting(&request.hello().limits);
        if self.links.parts.divert_init(from, limits.standing, greeting, init) {
            return true;
        }
        let (remote, stamp) = (request.hello().receiver, request.hello().stamp);
        if self.links.is_sealed()
            && let Some(greatest) = self.links.handshakes.stamps.outdone(&mobile, stamp)
        {
            // It was recorded, or the mobile's clock was set back: then the mobile begins behind this stamp.
            self.links.stats.stale += 1;
            let limits = self.links.limits(None, PathNumbers::NONE);
            if let Some((reply, _)) = self.links.answer(request, 0, greatest, &limits) {
                self.links.handshakes.reply(from, reply);
            }
            return true;
        }
        let standing = limits.standing.filter(|name| self.has_mobile(*name, &mobile));
        let many = self.links.per_mobile > 1;
        let placed = !many || standing.is_some() || self.links.has_place(&mobile);
        let expected = self.links.allowed.as_ref().map_or(0, BTreeMap::len);
        if !placed || !self.links.handshakes.make_room(&mobile, stamp, many, expected) {
            self.links.stats.throttled += 1;
            return true;
        }
        let greeting = Limits::greeting(&request.hello().limits);
        if self.links.is_sealed() && !greeting.is_empty() && self.links.calls.len() < CALLS_MAX {
            self.links.calls.push_back((mobile, greeting.to_vec()));
        }
        let receiver = self.links.new_receiver();
        let limits = Limits { standing, ..limits };
        let numbers = match standing {
            Some(name) => (self.next_numbers(name), limits.first_numbers),
            None => Default::default(),
        };
        let own = self.links.limits(standing, numbers.0);
        let Some((reply, keys)) = self.links.answer(request, receiver, 0, &own) else {
            return false;
        };
        self.links.stats.handshakes += 1;
        let keyset = Keyset::new(now, keys, (receiver, remote), numbers);
        let candidate =
            Candidate::new(now, (fingerprint, from), (mobile, stamp), keyset, limits, reply);
        self.links.handshakes.insert(now, candidate);
        true
    }

    /// There are as many associations as there may be, and none of this mobile's makes room.
    fn is_full_for(&self, mobile: &PublicKey) -> bool {
        self.entries.len() >= self.links.associations_max
            && !self.links.by_mobile.contains_key(mobile.as_bytes())
    }

    /// The least packet numbers that an association, if it stands, may use.
    fn next_numbers(&self, name: u32) -> PathNumbers {
        let id = self.links.by_receiver.get(&name);
        let entry = id.and_then(|id| self.entries.get(id));
        entry.map(|entry| entry.association.transport.next_numbers()).unwrap_or_default()
    }

    /// Whether `receiver` names an association with this mobile, or a handshake that may become one
    /// any moment.
    fn has_mobile(&self, receiver: u32, mobile: &PublicKey) -> bool {
        let id = self.links.by_receiver.get(&receiver);
        let entry = id.and_then(|id| self.entries.get(id));
        entry.is_some_and(|e| e.association.mobile() == Some(*mobile))
            || self.links.handshakes.get(receiver).is_some_and(|c| c.mobile == *mobile)
    }

    /// A candidate's keys are used when the mobile has proved to hold them.
    fn promote(&mut self, now: Time, from: A, receiver: u32, datagram: &mut [u8]) -> bool {
        let Some(candidate) = self.links.handshakes.get_mut(receiver) else {
            // The mobile need not find out by silence that this base was restarted.
            self.links.reply_unknown(now, from, receiver);
            return false;
        };
        let Some(opened) = candidate.keyset.open(now, datagram) else { return false };
        let Unsealed { path, number, packet, .. } = opened;
        let opened = Opened { path, number, packet, locates: true };
        let Some(candidate) = self.links.handshakes.take(receiver) else { return false };
        // Without a seal anybody claims any key.
        if self.links.is_sealed() {
            self.links.handshakes.stamps.confirm(&candidate.mobile, candidate.stamp);
        }
        let id = match candidate.renews {
            None if self.is_full_for(&candidate.mobile) => {
                self.refusals.record(now, from, Refusal::Full);
                self.links.reply_unknown(now, from, receiver);
                return false;
            }
            None => self.stand(now, candidate),
            Some(name) => match self.renew(now, name, candidate) {
                Some(id) => id,
                None => {
                    self.links.reply_unknown(now, from, receiver);
                    return false;
                }
            },
        };
        self.handle_opened(now, id, from, opened);
        true
    }

    /// A candidate becomes the mobile's association, which is where its init came from: a datagram from elsewhere
    /// moves it like any other.
    fn stand(&mut self, now: Time, candidate: Candidate<A>) -> u64 {
        let links = &mut self.links;
        let Candidate { from, keyset, mobile, limits, replied, .. } = candidate;
        let (receiver, sealed) = (keyset.local, links.is_sealed());
        let overhead = overhead::<T>(&links.config, sealed);
        let mut association = Association::<A, T>::new(&links.config, Role::Base, overhead, now);
        let link = Numbered::new(keyset, receiver, Some(mobile));
        association.establish(now, link, from, &limits);
        if let Some(replied) = replied {
            association.transport.seed_round_trip(now, now.since(replied));
        }
        // A mobile has given its old association up: so does the base. A peer had a place to be here.
        let known = links.by_mobile.get(mobile.as_bytes());
        let oldest = known.filter(|ids| ids.len() >= links.per_mobile).and_then(VecDeque::front);
        if let Some(old) = oldest.copied() {
            self.remove(old, CloseReason::Replaced);
        }
        let id = self.insert(association);
        self.links.by_receiver.insert(receiver, id);
        self.links.by_mobile.entry(*mobile.as_bytes()).or_default().push_back(id);
        id
    }

    /// The association of this name goes on under a candidate's keys; `None` if it is no more.
    fn renew(&mut self, now: Time, name: u32, candidate: Candidate<A>) -> Option<u64> {
        let id = match self.links.by_receiver.get(&name) {
            Some(id) => *id,
            // The mobile takes it to be standing: nothing has come under its first keys yet.
            None => {
                let first = self.links.handshakes.take(name)?;
                if self.is_full_for(&first.mobile) {
                    return None;
                }
                self.stand(now, first)
            }
        };
        let association = &mut self.entries.get_mut(&id)?.association;
        let link = association.link_mut().filter(|link| link.mobile == Some(candidate.mobile))?;
        let receiver = candidate.keyset.local;
        let (_, unused) = link.locals();
        link.renew(candidate.keyset);
        let name = link.name;
        if let Some(unused) = unused.filter(|unused| *unused != name) {
            self.links.by_receiver.remove(&unused);
        }
        self.links.by_receiver.insert(receiver, id);
        Some(id)
    }

    /// A mobile shows that it receives what is passed on to it.
    fn handle_transit_proof(&mut self, now: Time, from: A, datagram: &[u8]) -> bool {
        let Ok(proof) = TransitCheck::parse(datagram) else { return false };
        let links = &mut self.links;
        let Some(&id) = links.by_receiver.get(&proof.receiver) else {
            return links.parts.divert(from, proof.receiver, datagram);
        };
        links.transits.prove(now, id, from, &proof, &mut links.responder)
    }

    /// A mobile that was challenged responds.
    fn handle_response(&mut self, now: Time, from: A, datagram: &[u8]) -> bool {
        let Ok(token) = Token::parse(datagram) else { return false };
        let Some(&id) = self.links.by_receiver.get(&token.receiver) else {
            return self.links.parts.divert(from, token.receiver, datagram);
        };
        let Some(entry) = self.entries.get_mut(&id) else { return false };
        let there = entry.association.peer_by(PathId(token.path)) == Some(from);
        let link = entry.association.link_mut().filter(|_| there);
        if !link.is_some_and(|link| link.on_response(now, &token)) {
            return false;
        }
        self.touch(id);
        true
    }
}

impl<A: CarrierAddress, T: Transport> NumberedLinks<A, T> {
    fn new(
        config: T::Config,
        responder: Responder,
        allowed: Option<AllowedKeys>,
        seed: Seed,
    ) -> Self {
        Self {
            config,
            responder,
            allowed,
            fast_aes: false,
            numbers: seed.stream("receiver ids"),
            by_receiver: BTreeMap::new(),
            by_mobile: BTreeMap::new(),
            per_mobile: 1,
            associations_max: usize::MAX,
            handshakes: Handshakes::default(),
            unknown: VecDeque::new(),
            unknown_tokens: Tokens::new(UNKNOWN_PER_SECOND, UNKNOWN_AT_ONCE),
            calls: VecDeque::new(),
            parts: Parts::default(),
            transits: Transits::new(seed.stream("transits")),
            stats: BaseStats::default(),
        }
    }

    /// Whether a peer may have one more association, with those that may come to stand any moment.
    fn has_place(&self, peer: &PublicKey) -> bool {
        let standing = self.by_mobile.get(peer.as_bytes()).map_or(0, VecDeque::len);
        standing + self.handshakes.of(peer) < self.per_mobile
    }

    /// What a mobile shares with this base, if it is served.
    fn psk(&self, mobile: &PublicKey) -> Option<PresharedKey> {
        match &self.allowed {
            Some(allowed) => allowed.get(mobile.as_bytes()).cloned(),
            None => Some(PresharedKey::default()),
        }
    }

    fn is_sealed(&self) -> bool {
        self.allowed.is_some()
    }

    /// What this end announces: of the association that is known, and from which packet numbers it goes on.
    fn limits(&self, standing: Option<u32>, first_numbers: PathNumbers) -> Limits {
        Limits { first_stream: 1, standing, first_numbers, ..T::limits(&self.config) }
    }

    /// The reply to an init, and the keys that follow from it.
    fn answer(
        &self,
        request: Request,
        receiver: u32,
        stamp: u64,
        limits: &Limits,
    ) -> Option<(Vec<u8>, Keys)> {
        let limits = limits.encode(T::ID, &[]);
        let hello = Hello { receiver, fast_aes: self.fast_aes, stamp, limits };
        let mut reply = alloc::vec![0; MAX_REPLY_LEN];
        let (len, keys) = request.accept(&hello, &mut reply).ok()?;
        reply.truncate(len);
        Some((reply, keys))
    }

    /// There is no such association.
    fn reply_unknown(&mut self, now: Time, to: A, receiver: u32) {
        if self.unknown.len() < UNKNOWN_MAX && self.unknown_tokens.take(now) {
            self.unknown.push_back((to, receiver));
        }
    }

    fn new_receiver(&mut self) -> u32 {
        loop {
            let Some(receiver) = self.parts.name(self.numbers.next_u64() as u32) else { continue };
            let taken =
                self.by_receiver.contains_key(&receiver) || self.handshakes.get(receiver).is_some();
            if !taken {
                return receiver;
            }
        }
    }
}

impl<A: CarrierAddress, T: Transport> BaseLinks for NumberedLinks<A, T> {
    type Address = A;
    type Transport = T;
    type Link = Numbered;

    const KEEPS_LOST: bool = true;

    fn handle(base: &mut BaseEnd<Self>, now: Time, from: A, datagram: &mut [u8]) -> bool {
        match Kind::of(datagram) {
            Ok(Kind::Data) => base.handle_data(now, from, datagram),
            Ok(Kind::HandshakeInit | Kind::PlainInit) => base.handle_init(now, from, datagram),
            Ok(Kind::Response) => base.handle_response(now, from, datagram),
            Ok(Kind::TransitProof) => base.handle_transit_proof(now, from, datagram),
            _ => {
                if greeting::is_greeting(datagram) {
                    base.refusals.record(now, from, Refusal::OtherSeal);
                }
                false
            }
        }
    }

    fn poll_answer(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit<A>> {
        if let Some(reply) = self.handshakes.poll_reply(now, out) {
            return Some(reply);
        }
        if let Some(challenge) = self.transits.poll_challenge(out) {
            return Some(challenge);
        }
        let (to, receiver) = self.unknown.pop_front()?;
        let unknown = Unknown { receiver }.to_bytes();
        out.get_mut(..unknown.len())?.copy_from_slice(&unknown);
        Some(Transmit { path: PathId::FIRST, to, len: unknown.len() })
    }

    fn transit<'d>(
        base: &mut BaseEnd<Self>,
        now: Time,
        from: A,
        datagram: &'d [u8],
    ) -> Option<(AssociationId, &'d [u8])> {
        let (transit, inner) = Transit::parse(datagram).ok()?;
        let links = &mut base.links;
        let id = *links.by_receiver.get(&transit.receiver)?;
        let admitted = links.transits.admits(now, id, from, transit, &mut links.responder);
        admitted.then_some((AssociationId(id), inner))
    }

    fn grant_transit(base: &mut BaseEnd<Self>, id: AssociationId) -> Option<TransitGrant> {
        let link = base.entries.get(&id.0)?.association.link()?;
        let is_sealed = base.links.is_sealed();
        is_sealed.then(|| base.links.transits.grant(id.0, link.name))
    }

    fn transit_at(&self, id: AssociationId) -> Option<A> {
        self.transits.at(id.0)
    }

    fn poll_call(&mut self) -> Option<(PublicKey, Vec<u8>)> {
        self.calls.pop_front()
    }

    fn poll_stray(&mut self) -> Option<Stray<A>> {
        self.parts.poll_stray()
    }

    fn set_passed(&mut self, passed: bool) {
        self.parts.set_passed(passed);
    }

    fn set_allowed(base: &mut BaseEnd<Self>, allowed: Vec<Allowed>) {
        let links = &mut base.links;
        let Some(before) = &links.allowed else { return };
        let allowed = by_key(allowed);
        // What was made with another pre-shared key is over too.
        let kept = |mobile: &[u8; 32]| {
            let psk = allowed.get(mobile);
            psk.is_some() && psk == before.get(mobile)
        };
        links.handshakes.retain(kept, |mobile| allowed.contains_key(mobile));
        links.calls.retain(|(mobile, _)| allowed.contains_key(mobile.as_bytes()));
        let revoked = links.by_mobile.iter().filter(|(mobile, _)| !kept(mobile));
        let revoked: Vec<u64> = revoked.flat_map(|(_, ids)| ids.iter().copied()).collect();
        links.allowed = Some(allowed);
        for id in revoked {
            base.remove(id, CloseReason::Revoked);
        }
    }

    fn handle_removed(&mut self, id: u64, association: &AssociationOf<Self>) {
        self.transits.revoke(id);
        let Some(link) = association.link() else { return };
        let (local, previous) = link.locals();
        for receiver in [Some(local), previous, Some(link.name)].into_iter().flatten() {
            self.by_receiver.remove(&receiver);
        }
        let Some(mobile) = link.mobile else { return };
        if let Some(ids) = self.by_mobile.get_mut(mobile.as_bytes()) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_mobile.remove(mobile.as_bytes());
            }
        }
    }
}
