//! How a mobile asks for an association by handshakes.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::marker::PhantomData;
use core::time::Duration;

use lasthop_units::{Bytes, Seed, Stream as Numbers, Time};
use lasthop_wire::datagram::{Kind, Token, TransitCheck, Unknown};

use super::super::Stamps;
use super::super::mobile::{LossHint, MobileEnd, MobileLink};
use super::hello_limits::GREETING_MAX;
use super::keyset::{Keyset, RENEW_AFTER, RENEW_UNUSED_AFTER};
use super::transits;
use super::{Numbered, overhead};
use crate::config::Limits;
use crate::path_id::{PathId, PathNumbers};
use crate::seal::{
    Cookie, Established, HandshakeError, Hello, Initiator, Keypair, PresharedKey, PublicKey,
};
use crate::srp::Srp;
use crate::transport::Transport;

/// After so long a silence the base may have lost the association: a new one is requested beside.
const DOUBT_AFTER: Duration = Duration::from_millis(500);
/// A base that finds our stamps old twice in a row is asked again after so long.
const STAMP_AGAIN: Duration = Duration::from_secs(1);
/// How long a cookie is shown: the base may know it for as long again.
const COOKIE_LIFE: Duration = Duration::from_secs(120);
/// Keys are renewed earlier by up to so much, so that mobiles that began together do not stay together.
const RENEW_SPREAD_MS: u64 = 16_384;

/// An init on its way.
pub struct Init {
    initiator: Box<Initiator>,
    /// Our name for the association.
    receiver: u32,
    /// The least packet numbers that we shall use if it renews the association's keys.
    first_numbers: PathNumbers,
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

/// A mobile's numbered link.
pub struct NumberedLink<A, T> {
    keys: Option<Keypair>,
    /// The base's key; without a seal, what the mobile says that its own is.
    key: PublicKey,
    /// What the base shares with the mobile.
    psk: PresharedKey,
    /// Names and ephemeral keys of handshakes.
    numbers: Numbers,
    inits: u64,
    /// The wall clock at `Time::ZERO`, so that a base can tell old handshakes from new.
    stamp: u64,
    fast_aes: bool,
    /// The greeting for the first datagram.
    greeting: Vec<u8>,
    handshakes: u64,
    unopened: u64,
    /// The greatest stamp that the base has had of us, if our clock is behind it.
    outdone_by: Option<u64>,
    /// What the base wants to be shown, and since when we have it.
    cookie: Option<(Cookie, Time)>,
    /// When the keys are to be renewed.
    renew_at: Time,
    /// When they are if no stream's byte has passed under them, where it is not known yet that one has; and how many
    /// had passed before.
    unused: Option<(Time, Bytes)>,
    of: PhantomData<(A, T)>,
}

/// A mobile's end of its association with one base, on a numbered link.
pub type Mobile<A, T = Srp> = MobileEnd<NumberedLink<A, T>>;

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
        Self::over(config, NumberedLink::new(Some(keys), base, seed), base_addr, now)
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
        Self::over(config, NumberedLink::new(None, claim, seed), base_addr, now)
    }

    /// Tells that this machine has AES in hardware: the seal uses it if the base has it too.
    #[must_use]
    pub fn with_fast_aes(mut self, now: Time, fast_aes: bool) -> Self {
        self.link.fast_aes = fast_aes;
        self.start_question(now);
        self
    }

    /// Tells what the base shares with this mobile beside their key pairs.
    #[must_use]
    pub fn with_psk(mut self, now: Time, psk: PresharedKey) -> Self {
        self.link.psk = psk;
        self.start_question(now);
        self
    }

    /// Tells the wall clock, in nanoseconds since 1970, at the time `Time::ZERO`. Without it a base
    /// cannot tell a replayed handshake from a new one before it has answered it.
    #[must_use]
    pub fn with_wall_clock(mut self, now: Time, at_zero: u64) -> Self {
        self.link.stamp = Stamps::by_clock(at_zero);
        self.start_question(now);
        self
    }

    /// Counters of handshakes and of what was refused.
    pub fn mobile_stats(&self) -> MobileStats {
        let (inits_sent, handshakes) = (self.asked, self.link.handshakes);
        MobileStats { inits_sent, handshakes, refused: self.refused }
    }

    fn handle_data(&mut self, now: Time, from: A, datagram: &mut [u8]) -> bool {
        let taken = self.deliver(now, from, datagram);
        if taken && now < self.link.renew_at {
            // The old association lives: nothing else is needed.
            self.pending = None;
        }
        taken
    }

    fn handle_reply(&mut self, now: Time, datagram: &[u8]) -> bool {
        let Some(asking) = &mut self.pending else { return false };
        let Established { hello, keys } = match asking.question.initiator.finish(datagram) {
            Ok(established) => established,
            Err(e) => {
                self.link.unopened += u64::from(e == HandshakeError::NotAuthentic);
                return false;
            }
        };
        let Some(limits) = Limits::decode(&hello.limits, T::ID) else { return false };
        let Some(asked) = self.take_pending() else { return false };
        let Init { initiator, receiver, first_numbers } = &asked.question;
        if hello.stamp > 0 {
            // Our clock was set back. From now on our stamps are above what the base has had.
            let again = self.link.outdone_by.is_some_and(|stamp| stamp < initiator.hello().stamp);
            self.link.outdone_by = Some(hello.stamp);
            self.start_question(if again { now + STAMP_AGAIN } else { now });
            return true;
        }
        self.link.handshakes += 1;
        let names = (*receiver, hello.receiver);
        let standing =
            self.association.link_mut().filter(|link| Some(link.name) == limits.standing);
        let sealed = keys.is_sealed();
        // In either case something is sent: the base trusts the new keys once it has seen them used.
        if let Some(link) = standing {
            // The base knows the association, which goes on under new keys.
            link.renew(Keyset::new(now, keys, names, (*first_numbers, limits.first_numbers)));
            if now < self.link.renew_at {
                // It was in doubt, and it is the radio that was silent.
                self.association.transport.probe(now);
            } else {
                self.association.transport.ping();
            }
        } else {
            let keyset = Keyset::new(now, keys, names, Default::default());
            let link = Numbered::new(keyset, hello.receiver, None);
            self.establish(now, &asked, link, &limits);
            // It arrived. A later handshake is for another reason.
            self.link.greeting = Vec::new();
            self.association.transport.ping();
        }
        let spread = Duration::from_millis(self.link.numbers.next_u64() % RENEW_SPREAD_MS);
        self.link.renew_at = if sealed { now + (RENEW_AFTER - spread) } else { Time::NEVER };
        self.link.unused = Some((now + (RENEW_UNUSED_AFTER - spread), self.passed()));
        true
    }

    /// Bytes of streams that have passed, either way.
    fn passed(&self) -> Bytes {
        let stats = self.stats();
        stats.bytes_sent + stats.bytes_received
    }

    /// The base wants to see that we receive where we send from.
    fn handle_cookie(&mut self, now: Time, datagram: &[u8]) -> bool {
        let Some(asking) = &mut self.pending else { return false };
        let initiator = &mut asking.question.initiator;
        let Some(cookie) = initiator.take_cookie(datagram) else { return false };
        if self.link.cookie.is_none_or(|(known, _)| known != cookie) {
            self.link.cookie = Some((cookie, now));
            initiator.show(&cookie);
            asking.try_at(now);
        }
        true
    }

    /// The base wants to know whether we are where our datagrams come from.
    fn handle_challenge(&mut self, now: Time, datagram: &[u8]) -> bool {
        let Ok(token) = Token::parse(datagram) else { return false };
        self.association.link_mut().is_some_and(|link| link.on_challenge(now, &token))
    }

    /// A base that is to pass on what is sent by a path wants to know where that comes from.
    fn handle_transit_challenge(&mut self, datagram: &[u8]) -> bool {
        let Ok(challenge) = TransitCheck::parse(datagram) else { return false };
        let path = PathId(challenge.path);
        let mut grants = self.transits.iter().filter(|(known, _)| *known == path);
        let Some(proof) = grants.find_map(|(_, grant)| transits::answer(grant, &challenge)) else {
            return false;
        };
        self.proofs.retain(|known| known.path != proof.path);
        self.proofs.push(proof);
        true
    }

    /// A packet, perhaps forged, says that the base has no such association. The answer
    /// to a handshake decides.
    fn handle_unknown(&mut self, now: Time, datagram: &[u8]) -> bool {
        let Ok(unknown) = Unknown::parse(datagram) else { return false };
        let remote = self.association.link().map(|link| link.current.remote);
        if remote != Some(unknown.receiver) {
            return false;
        }
        self.check_loss(now, LossHint::Unknown);
        true
    }
}

impl<A, T> NumberedLink<A, T> {
    fn new(keys: Option<Keypair>, key: PublicKey, seed: Seed) -> Self {
        Self {
            keys,
            key,
            psk: PresharedKey::default(),
            numbers: seed.stream("handshakes"),
            inits: 0,
            stamp: 0,
            fast_aes: false,
            greeting: Vec::new(),
            handshakes: 0,
            unopened: 0,
            outdone_by: None,
            cookie: None,
            renew_at: Time::NEVER,
            unused: None,
            of: PhantomData,
        }
    }
}

impl<A: Copy + Eq, T: Transport> MobileLink for NumberedLink<A, T> {
    type Address = A;
    type Transport = T;
    type Link = Numbered;
    type Question = Init;

    const ASKS_ALONE: bool = false;
    const FOLLOWS: bool = true;
    const DOUBT_AGAIN: Duration = Duration::from_secs(1);

    fn overhead(&self, config: &T::Config) -> usize {
        overhead::<T>(config, self.keys.is_some())
    }

    fn question(mobile: &mut MobileEnd<Self>, at: Time) -> Option<Init> {
        let resume = mobile.saved_path().map(|saved| (saved.receiving, saved.rtt));
        let (association, link) = (&mobile.association, &mut mobile.link);
        link.inits += 1;
        // What one handshake draws no other may: part of it is seen on the hop.
        let receiver = link.numbers.next_u64() as u32;
        let mut entropy = [0; 32];
        link.numbers.fill(&mut entropy);
        let clock = link.stamp.saturating_add(at.as_nanos());
        let standing = association.link().map(|link| link.name);
        let first_numbers =
            standing.map(|_| association.transport.next_numbers()).unwrap_or_default();
        let hello = Hello {
            receiver,
            fast_aes: link.fast_aes,
            stamp: clock.max(link.outdone_by.unwrap_or(0)).saturating_add(link.inits),
            limits: Limits {
                first_stream: association.transport.first_stream(),
                standing,
                first_numbers,
                resume,
                ..T::limits(&mobile.config)
            }
            .encode(T::ID, &link.greeting),
        };
        let initiator = match &link.keys {
            Some(keys) => Initiator::new(keys, &link.key, 0, hello, Seed::from_bytes(entropy))
                .map(|initiator| initiator.with_psk(&link.psk)),
            None => Initiator::unsealed(&link.key, 0, hello),
        };
        // A base key with which no handshake is possible never answers, like a wrong one.
        let mut initiator = Box::new(initiator.ok()?);
        if let Some((cookie, _)) = link.cookie.filter(|(_, since)| at.since(*since) < COOKIE_LIFE) {
            initiator.show(&cookie);
        }
        Some(Init { initiator, receiver, first_numbers })
    }

    fn write(_mobile: &MobileEnd<Self>, question: &Init, out: &mut [u8]) -> Option<usize> {
        let init = question.initiator.datagram();
        out.get_mut(..init.len())?.copy_from_slice(init);
        Some(init.len())
    }

    fn handle(mobile: &mut MobileEnd<Self>, now: Time, from: A, datagram: &mut [u8]) -> bool {
        match Kind::of(datagram) {
            Ok(Kind::Data) => mobile.handle_data(now, from, datagram),
            Ok(Kind::HandshakeReply | Kind::PlainReply) => mobile.handle_reply(now, datagram),
            Ok(Kind::Unknown) => mobile.handle_unknown(now, datagram),
            Ok(Kind::CookieReply) => mobile.handle_cookie(now, datagram),
            Ok(Kind::Challenge) => mobile.handle_challenge(now, datagram),
            Ok(Kind::TransitChallenge) => mobile.handle_transit_challenge(datagram),
            _ => false,
        }
    }

    fn unopened(mobile: &MobileEnd<Self>) -> u64 {
        mobile.link.unopened
    }

    fn next_timeout(mobile: &MobileEnd<Self>) -> Option<Time> {
        let renews = mobile.is_up() && mobile.pending.is_none();
        renews.then_some(mobile.link.renew_at).filter(|at| *at < Time::NEVER)
    }

    /// An association on which nothing comes is doubted, and one whose keys are old gets others.
    fn handle_timeout(mobile: &mut MobileEnd<Self>, now: Time) {
        if Self::next_timeout(mobile).is_some_and(|at| at <= now) {
            match mobile.link.unused.take() {
                Some((later, before)) if mobile.passed() == before => mobile.link.renew_at = later,
                _ => mobile.start_question(now),
            }
        }
        let silent_for = mobile.association.transport.silent_for(now);
        if mobile.is_up() && silent_for.is_some_and(|d| d >= DOUBT_AFTER) {
            mobile.check_loss(now, LossHint::Silence);
        }
    }

    fn greet(mobile: &mut MobileEnd<Self>, now: Time, greeting: &[u8]) {
        let new = greeting.len() <= GREETING_MAX && greeting != mobile.link.greeting;
        if !mobile.is_up() && new {
            mobile.link.greeting = greeting.to_vec();
            mobile.start_question(now);
        }
    }
}
