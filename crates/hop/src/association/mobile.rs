//! The end that asks.

use alloc::collections::VecDeque;
use core::time::Duration;

use lasthop_units::{LinkEvent, Time};
use lasthop_wire::datagram::{TRANSIT_HEADER_LEN, Transit, TransitCheck};
use lasthop_wire::mhp::transit::TransitGrant;
use smallvec::SmallVec;

use super::peers::Peers;
use super::{Association, AssociationEvent, Link, Transmit};
use crate::config::Limits;
use crate::evidence::Evidence;
use crate::lane::PacketLane;
use crate::path_id::{PATHS_MAX, PathId};
use crate::policy::PathStatus;
use crate::saved_path::SavedPath;
use crate::stats::{HopStats, PathStats};
use crate::transport::{CloseReason, Role, Transport};
use crate::unreachable::Unreachable;

/// A question is repeated after so long, the first few times.
const RETRY: Duration = Duration::from_millis(250);
const EAGER_TRIES: u32 = 20;
const RETRY_PATIENT: Duration = Duration::from_millis(500);

/// A kind of link, as a mobile has it: how it asks a base for an association.
pub trait MobileLink: Sized {
    /// The carrier's addresses.
    type Address: Copy + Eq;
    /// What the association carries.
    type Transport: Transport;
    /// What is kept of the association's link.
    type Link: Link;
    /// What the base is asked.
    type Question;

    /// While the base is asked nothing else is sent.
    const ASKS_ALONE: bool;
    /// The association follows the mobile to another address.
    const FOLLOWS: bool;
    /// The base is asked again so long after the last time, if there is the same hint again.
    const DOUBT_AGAIN: Duration;

    /// What link and carrier add to each packet, in bytes.
    fn overhead(&self, config: &<Self::Transport as Transport>::Config) -> usize;

    /// The next question.
    fn question(mobile: &mut MobileEnd<Self>, at: Time) -> Option<Self::Question>;

    /// Writes a question's datagram; how long it is.
    fn write(mobile: &MobileEnd<Self>, question: &Self::Question, out: &mut [u8]) -> Option<usize>;

    /// Takes in a datagram: false if it is refused.
    fn handle(
        mobile: &mut MobileEnd<Self>,
        now: Time,
        from: Self::Address,
        datagram: &mut [u8],
    ) -> bool;

    /// When timers are due that only this kind has.
    fn next_timeout(_mobile: &MobileEnd<Self>) -> Option<Time> {
        None
    }

    /// Lets timers act that only this kind has.
    fn handle_timeout(_mobile: &mut MobileEnd<Self>, _now: Time) {}

    /// The association is lost, and the base is about to be asked for another.
    fn handle_lost(_mobile: &mut MobileEnd<Self>) {}

    /// Sends `greeting` with the first question, where questions carry anything.
    fn greet(_mobile: &mut MobileEnd<Self>, _now: Time, _greeting: &[u8]) {}

    /// Datagrams that were garbage, forged, replayed or for somebody else.
    fn refused(mobile: &MobileEnd<Self>) -> u64 {
        mobile.refused
    }

    /// Those of them that answer a question of this mobile's, and do not open.
    fn unopened(_mobile: &MobileEnd<Self>) -> u64 {
        0
    }
}

/// A hint that the association is lost. The answer to a question decides.
#[derive(Clone, Copy)]
pub(super) enum LossHint {
    /// Nothing comes.
    Silence,
    /// A packet, not authenticated, says that the base does not know the association.
    Unknown,
    /// The network reports the base as unreachable.
    Unreachable,
}

/// A question that waits for its answer.
pub(super) struct PendingQuestion<Q> {
    pub(super) question: Q,
    /// How many of the paths it has left by, this time.
    sent_by: usize,
    next_try: Time,
    tries: u32,
    first_sent: Time,
}

impl<Q> PendingQuestion<Q> {
    /// The question is due at once.
    pub(super) fn try_at(&mut self, now: Time) {
        self.next_try = now;
    }
}

/// A mobile's end of its association with one base, over a link of one kind.
///
/// Streams may be opened and written before the association stands; they are sent once it does.
/// When the base no longer knows the association (it was restarted), a new one takes its place and
/// the old streams are reset.
pub struct MobileEnd<K: MobileLink> {
    pub(super) config: <K::Transport as Transport>::Config,
    pub(super) link: K,
    pub(super) bases: Peers<K::Address>,
    /// Paths by which another base passes on what is sent, and by what it knows that.
    pub(super) transits: SmallVec<[(PathId, TransitGrant); 1]>,
    /// The next datagram of a path that proves to such a base where this end is.
    pub(super) proofs: SmallVec<[TransitCheck; 1]>,
    pub(super) association: Association<K::Address, K::Transport, K::Link>,
    pub(super) pending: Option<PendingQuestion<K::Question>>,
    /// Questions sent.
    pub(super) asked: u64,
    /// The network's reports that the base is unreachable.
    evidence: Evidence,
    /// When the base was last asked because of each hint.
    doubted: [Option<Time>; 3],
    events: VecDeque<AssociationEvent>,
    pub(super) refused: u64,
    /// What the path to the base was worth to an association before.
    saved: Option<SavedPath>,
}

impl<K: MobileLink> MobileEnd<K> {
    /// The base is asked at once.
    pub(super) fn over(
        config: <K::Transport as Transport>::Config,
        link: K,
        base: K::Address,
        now: Time,
    ) -> Self {
        let association = Association::new(&config, Role::Mobile, link.overhead(&config), now);
        let mut mobile = Self {
            config,
            link,
            bases: Peers::new(base),
            transits: SmallVec::new(),
            proofs: SmallVec::new(),
            association,
            pending: None,
            asked: 0,
            evidence: Evidence::default(),
            doubted: [Some(now), None, None],
            events: VecDeque::new(),
            refused: 0,
            saved: None,
        };
        mobile.start_question(now);
        mobile
    }

    /// Sends `greeting` with the first datagram of a handshake. It arrives half a round trip before
    /// the association stands there, and can be replayed. Nothing happens on a bare link, if it is longer than
    /// [`GREETING_MAX`](super::GREETING_MAX), or if the association stands already.
    pub fn greet(&mut self, now: Time, greeting: &[u8]) {
        K::greet(self, now, greeting);
    }

    /// What the path to the base is worth, or was to an association before; to be kept for
    /// [`resume_path`](Self::resume_path).
    pub fn saved_path(&self) -> Option<SavedPath> {
        self.association.transport.saved_path().or(self.saved)
    }

    /// The next association is on a path that was worth this before. Half of it is used at first, if the round trip
    /// is about the same; the base is told what it may use.
    pub fn resume_path(&mut self, now: Time, saved: SavedPath) {
        let known = self.saved.replace(saved) == Some(saved);
        if !known && !self.is_up() {
            self.use_saved();
            self.start_question(now);
        }
    }

    /// There is another path to the base, by which it is at this address; or it is at another address by a path from now
    /// on. A path that the transport has no use for carries nothing but questions.
    pub fn set_base_address(&mut self, now: Time, path: PathId, base: K::Address) {
        self.evidence.refute();
        if usize::from(path.0) >= PATHS_MAX {
            return;
        }
        if self.bases.set(path, base) {
            self.association.set_peer(now, path, base);
        } else {
            self.association.add_path(now, path, base);
        }
    }

    /// By a path the base is reached through another one from now on, which is at the path's
    /// [address](Self::set_base_address) and has granted that; or without one. What comes back comes as it is.
    pub fn set_transit(&mut self, path: PathId, grant: Option<TransitGrant>) {
        self.transits.retain(|(known, _)| *known != path);
        self.proofs.retain(|proof| proof.path != path.0);
        self.transits.extend(grant.map(|grant| (path, grant)));
    }

    /// A datagram that goes by such a path gets its header.
    fn wrap(&self, transmit: Transmit<K::Address>, out: &mut [u8]) -> Option<Transmit<K::Address>> {
        let through = self.transits.iter().find(|(path, _)| *path == transmit.path);
        let Some((path, grant)) = through else { return Some(transmit) };
        let len = TRANSIT_HEADER_LEN + transmit.len;
        let header = Transit { path: path.0, receiver: grant.receiver };
        let out = out.get_mut(..len)?;
        out.copy_within(..transmit.len, TRANSIT_HEADER_LEN);
        out[..TRANSIT_HEADER_LEN].copy_from_slice(&header.to_bytes());
        Some(Transmit { len, ..transmit })
    }

    /// The next proof of where this end is.
    fn poll_proof(&mut self, out: &mut [u8]) -> Option<Transmit<K::Address>> {
        let proof = self.proofs.pop()?;
        let path = PathId(proof.path);
        out.get_mut(..TransitCheck::LEN)?.copy_from_slice(&proof.to_bytes());
        Some(Transmit { path, to: self.bases.of(path)?, len: TransitCheck::LEN })
    }

    /// What a path costs from now on, whether it is there yet or not; the base is told.
    pub fn set_path_status(&mut self, now: Time, path: PathId, status: PathStatus) {
        self.association.transport.set_path_status(now, path, status);
    }

    /// The association stands.
    pub fn is_up(&self) -> bool {
        self.association.standing.is_some()
    }

    /// The transport, for what only it has. Handshakes, datagrams and timers are the association's.
    pub fn transport(&self) -> &K::Transport {
        &self.association.transport
    }

    /// The transport, to ask of it what only it can do: Mobile TCP's listening, for instance.
    pub fn transport_mut(&mut self) -> &mut K::Transport {
        &mut self.association.transport
    }

    /// Packets beside the streams, where the transport has them and the base takes them.
    pub fn packets(&mut self) -> Option<&mut PacketLane> {
        self.association.packets()
    }

    /// The same, if any were sent or have come.
    pub fn packets_so_far(&mut self) -> Option<&mut PacketLane> {
        self.association.packets_so_far()
    }

    /// Connections to `port` are accepted from now on ([`Transport::listen`]).
    pub fn listen(&mut self, port: u16) {
        self.association.transport.listen(port);
    }

    /// Connections to `port` are no longer accepted.
    pub fn unlisten(&mut self, port: u16) {
        self.association.transport.unlisten(port);
    }

    /// Counters and present values of the transport.
    pub fn stats(&self) -> HopStats {
        self.association.stats()
    }

    /// The same of each path, where the transport has several.
    pub fn path_stats(&self) -> impl Iterator<Item = PathStats> {
        self.association.transport.path_stats()
    }

    /// Datagrams that were garbage, forged, replayed or for somebody else.
    pub fn refused(&self) -> u64 {
        K::refused(self)
    }

    /// Those of them that answer a handshake of this mobile's, and do not open: they were made with another pre-shared
    /// key than the mobile has, or forged.
    pub fn unopened(&self) -> u64 {
        K::unopened(self)
    }

    /// What happened to the association, in order.
    pub fn poll_association_event(&mut self) -> Option<AssociationEvent> {
        self.events.pop_front()
    }

    /// Our own address by a path may be another: something is sent at once, so that the base, which goes by the
    /// newest authentic datagram, answers to where it came from. A base on a bare link takes the mobile
    /// for a stranger then, and says so. A question under way is tried again.
    pub fn handle_roamed(&mut self, now: Time, path: PathId) {
        if let Some(asking) = &mut self.pending {
            asking.next_try = now;
        }
        if !self.is_up() || self.is_mute() {
            return;
        }
        if K::FOLLOWS {
            self.association.transport.handle_moved(now, path);
        }
        self.association.transport.probe(now);
    }

    /// For how long the base has not answered, if something is outstanding.
    pub fn silent_for(&self, now: Time) -> Option<Duration> {
        match &self.pending {
            Some(asking) if !self.is_up() => Some(now.since(asking.first_sent)),
            _ => self.association.transport.silent_for(now),
        }
    }

    /// What is known of a path's link from below.
    pub fn handle_link_event(&mut self, now: Time, path: PathId, event: LinkEvent) {
        if event == LinkEvent::Up
            && let Some(asking) = &mut self.pending
        {
            asking.next_try = now;
        }
        self.association.transport.handle_link_event(now, path, event);
    }

    /// The network reports that nobody is there. Whoever sent that, the answer to a question decides
    /// it; where none comes, and the base's host keeps reporting it, the base is gone and the association
    /// with it.
    pub fn handle_unreachable(&mut self, now: Time, what: Unreachable) {
        self.evidence.add(now, what);
        if !self.is_up() {
            return;
        }
        if self.evidence.is_gone(now) {
            self.handle_loss(now, CloseReason::Unreachable);
        } else if what.is_hard() {
            self.check_loss(now, LossHint::Unreachable);
        }
    }

    /// Why the base cannot be reached at present, if the network says so and nothing has come from the
    /// base since.
    pub fn unreachable(&self, now: Time) -> Option<Unreachable> {
        self.evidence.unreachable(now)
    }

    /// Closes the association, and sends that to the base once.
    pub fn close(&mut self, reason: CloseReason) {
        self.association.close(reason);
    }

    /// Takes in a datagram, opened where it lies. A bad one changes nothing but a counter.
    pub fn handle_datagram(&mut self, now: Time, from: K::Address, datagram: &mut [u8]) {
        if !K::handle(self, now, from, datagram) {
            self.refused += 1;
        }
        self.check_closed(now);
    }

    /// A datagram is the association's, if it can be opened: false if it is refused.
    pub(super) fn deliver(&mut self, now: Time, from: K::Address, datagram: &mut [u8]) -> bool {
        let taken = self.association.handle_datagram(now, from, datagram).is_some();
        if taken {
            self.evidence.refute();
        }
        taken
    }

    /// The base has answered the question, which is over.
    pub(super) fn take_pending(&mut self) -> Option<PendingQuestion<K::Question>> {
        let asking = self.pending.take()?;
        self.evidence.refute();
        Some(asking)
    }

    /// The base, when it was `asked`, has not told of the association that stood, if one did, but of
    /// another, which stands from now on.
    pub(super) fn establish(
        &mut self,
        now: Time,
        asked: &PendingQuestion<K::Question>,
        link: K::Link,
        limits: &Limits,
    ) {
        let stood = self.association.link().map(Link::has_received);
        if stood == Some(true) {
            self.restart(now);
            self.events.push_back(AssociationEvent::Lost(CloseReason::Silence));
        }
        // A copy of the answer may come from anywhere: the base is where it was asked.
        self.association.establish(now, link, self.bases.first(), limits);
        for (path, base) in self.bases.iter().skip(1) {
            self.association.add_path(now, path, base);
        }
        if asked.tries == 1 {
            self.association.transport.seed_round_trip(now, now.since(asked.first_sent));
        }
        // Where the base never took the old link up, streams go on over the new one.
        if stood != Some(false) {
            self.events.push_back(AssociationEvent::Up);
        }
    }

    /// The next association begins, with what this one has seen of the path.
    fn restart(&mut self, now: Time) {
        self.saved = self.saved_path();
        self.association.transport.restart(now);
        self.use_saved();
    }

    fn use_saved(&mut self) {
        if let Some(saved) = self.saved {
            self.association.transport.resume_path(saved.sending, saved.rtt);
        }
    }

    fn check_closed(&mut self, now: Time) {
        if let Some(reason) = self.association.closed() {
            self.handle_loss(now, reason);
        }
    }

    /// Ends the association, if it stood, and asks for another.
    fn handle_loss(&mut self, now: Time, reason: CloseReason) {
        if self.association.standing.take().is_none() {
            return;
        }
        self.restart(now);
        self.events.push_back(AssociationEvent::Lost(reason));
        K::handle_lost(self);
        if reason != CloseReason::Shutdown {
            self.start_question(now);
        } else if self.pending.is_none() {
            self.start_question(now + RETRY_PATIENT);
        }
    }

    /// Asks the base, unless it is being asked or was lately because of the same hint.
    pub(super) fn check_loss(&mut self, now: Time, why: LossHint) {
        let doubted = &mut self.doubted[why as usize];
        let lately = doubted.is_some_and(|at| now.since(at) < K::DOUBT_AGAIN);
        if self.pending.is_none() && !lately {
            *doubted = Some(now);
            self.start_question(now);
        }
    }

    pub(super) fn start_question(&mut self, at: Time) {
        let question = K::question(self, at);
        let asking = |question| PendingQuestion {
            question,
            sent_by: 0,
            next_try: at,
            tries: 0,
            first_sent: at,
        };
        self.pending = question.map(asking);
    }

    /// Nothing but the question may be sent.
    fn is_mute(&self) -> bool {
        K::ASKS_ALONE && self.pending.is_some()
    }

    /// The question, if it is due, by one path after the other.
    fn poll_question(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit<K::Address>> {
        let due = self.pending.as_ref().filter(|asking| asking.next_try <= now)?;
        let len = K::write(self, &due.question, out)?;
        let asking = self.pending.as_mut()?;
        let mut bases = self.bases.iter().skip(asking.sent_by);
        let (path, to) = bases.next()?;
        asking.sent_by += 1;
        if bases.next().is_none() {
            asking.sent_by = 0;
            asking.tries += 1;
            if asking.tries == 1 {
                asking.first_sent = now;
            }
            let wait = if asking.tries < EAGER_TRIES { RETRY } else { RETRY_PATIENT };
            asking.next_try = now + wait;
        }
        self.asked += 1;
        Some(Transmit { path, to, len })
    }

    /// Writes the next datagram that should leave now into `out`, which must have room for the
    /// largest, if there is one.
    pub fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit<K::Address>> {
        if let Some(proof) = self.poll_proof(out) {
            return Some(proof);
        }
        if let Some(question) = self.poll_question(now, out) {
            return self.wrap(question, out);
        }
        if self.is_mute() {
            return None;
        }
        let transmit = self.association.poll_transmit(now, out);
        if transmit.is_none() {
            self.check_closed(now);
        }
        self.wrap(transmit?, out)
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), if nothing happens before.
    pub fn next_timeout(&self) -> Option<Time> {
        let asking = self.pending.as_ref().map(|asking| asking.next_try);
        let transport = match self.is_mute() {
            // What is due of a transport that may not send waits for the answer, but for what has come.
            true => self.association.transport.next_delivery().filter(|_| self.is_up()),
            false => self.association.next_timeout(),
        };
        [transport, asking, K::next_timeout(self)].into_iter().flatten().min()
    }

    /// Lets timers that are due act; follow with [`poll_transmit`](Self::poll_transmit).
    pub fn handle_timeout(&mut self, now: Time) {
        if self.is_up() {
            self.association.transport.handle_timeout(now);
            self.check_closed(now);
        }
        K::handle_timeout(self, now);
    }
}

crate::streams_of!([K: MobileLink] MobileEnd<K>, |it| it.association, it.association);
