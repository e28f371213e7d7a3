//! The end that answers, for many mobiles over one carrier.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use lasthop_units::Time;
use lasthop_wire::mhp::transit::TransitGrant;

use super::part::Stray;
use super::refusal::{Refusal, Refusals, Refused};
use super::{Association, AssociationEvent, Link, Opened, Transmit};
use crate::schedule::{Schedule, Slot};
use crate::seal::{Allowed, PublicKey};
use crate::stats::HopStats;
use crate::transport::{CloseReason, Transport};

/// Names an association at a base. Never reused while the base runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AssociationId(pub u64);

/// An association at a base, for a report.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AssociationView<A> {
    /// Its name at the base.
    pub id: AssociationId,
    /// The mobile's key; `None` on a bare hop, where mobiles are their addresses.
    pub mobile: Option<PublicKey>,
    /// Where datagrams to the mobile go.
    pub peer: Option<A>,
    /// Counters and present values of the transport.
    pub stats: HopStats,
}

/// A kind of link, as a base has it: how associations begin, and whose a datagram is.
pub trait BaseLinks: Sized {
    /// The carrier's addresses.
    type Address: Copy + Eq;
    /// What associations carry.
    type Transport: Transport;
    /// What is kept of each association's link.
    type Link: Link;

    /// Whether what a lost association has received can be read until the event after its loss is polled.
    const KEEPS_LOST: bool;

    /// Takes in a datagram: false if it is refused.
    fn handle(
        base: &mut BaseEnd<Self>,
        now: Time,
        from: Self::Address,
        datagram: &mut [u8],
    ) -> bool;

    /// Writes the next answer to somebody with whom no association stands, if there is one.
    fn poll_answer(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit<Self::Address>>;

    /// The datagram inside one that is to be passed on, and whose it is; none where nothing is passed on.
    fn transit<'d>(
        _base: &mut BaseEnd<Self>,
        _now: Time,
        _from: Self::Address,
        _datagram: &'d [u8],
    ) -> Option<(AssociationId, &'d [u8])> {
        None
    }

    /// Passes on what is an association's from now on, if it can.
    fn grant_transit(_base: &mut BaseEnd<Self>, _id: AssociationId) -> Option<TransitGrant> {
        None
    }

    /// Where the mobile receives what is passed on to it.
    fn transit_at(&self, _id: AssociationId) -> Option<Self::Address> {
        None
    }

    /// The next greeting of a mobile whose association does not stand yet, with the mobile's key; none
    /// where handshakes carry none.
    fn poll_call(&mut self) -> Option<(PublicKey, Vec<u8>)> {
        None
    }

    /// The next datagram that is another part's of the base; none where the base has no parts.
    fn poll_stray(&mut self) -> Option<Stray<Self::Address>> {
        None
    }

    /// What comes from here on was passed on by another part of the base, or not any more.
    fn set_passed(&mut self, _passed: bool) {}

    /// Serves the mobiles with the `allowed` keys, if mobiles have keys.
    fn set_allowed(_base: &mut BaseEnd<Self>, _allowed: Vec<Allowed>) {}

    /// Checks whether a mobile is still there: why its association ends, if it is not.
    fn check(&mut self, _now: Time, _association: &mut AssociationOf<Self>) -> Option<CloseReason> {
        None
    }

    /// An association is removed.
    fn handle_removed(&mut self, id: u64, association: &AssociationOf<Self>);

    /// Datagrams that were garbage, forged, replayed or for nobody.
    fn refused(base: &BaseEnd<Self>) -> u64 {
        base.refused
    }
}

/// An association over links of a kind.
pub type AssociationOf<K> =
    Association<<K as BaseLinks>::Address, <K as BaseLinks>::Transport, <K as BaseLinks>::Link>;

/// What a base keeps of an association.
pub(super) struct Entry<K: BaseLinks> {
    pub(super) association: AssociationOf<K>,
    slot: Slot,
}

/// A base's end of all its associations, over links of one kind.
pub struct BaseEnd<K: BaseLinks> {
    pub(super) links: K,
    /// Boxed, so that the map's code is the same for links of all kinds.
    pub(super) entries: BTreeMap<u64, Box<Entry<K>>>,
    next_id: u64,
    /// How much greater each name is than the one before.
    id_step: u64,
    schedule: Schedule,
    events: VecDeque<(AssociationId, AssociationEvent)>,
    /// Associations whose loss is among the events, or was the last that was polled.
    lost: BTreeMap<u64, Box<AssociationOf<K>>>,
    /// The association whose loss was polled last.
    told_lost: Option<u64>,
    pub(super) refusals: Refusals<K::Address>,
    pub(super) refused: u64,
}

impl<K: BaseLinks> BaseEnd<K> {
    pub(super) fn over(links: K) -> Self {
        Self {
            links,
            entries: BTreeMap::new(),
            next_id: 0,
            id_step: 1,
            schedule: Schedule::default(),
            events: VecDeque::new(),
            lost: BTreeMap::new(),
            told_lost: None,
            refusals: Refusals::default(),
            refused: 0,
        }
    }

    /// The mobile at the other end of an association, where mobiles have keys.
    pub fn mobile(&self, id: AssociationId) -> Option<PublicKey> {
        self.entries.get(&id.0)?.association.mobile()
    }

    /// Where datagrams to a mobile go.
    pub fn peer(&self, id: AssociationId) -> Option<K::Address> {
        self.association(id)?.peer()
    }

    /// Whether a mobile is known to accept connections on `port` ([`Transport::peer_listens`]);
    /// `None` if it must be asked, or is not there.
    pub fn listens(&self, id: AssociationId, port: u16) -> Option<bool> {
        self.association(id)?.transport.peer_listens(port)
    }

    /// The associations that stand.
    pub fn views(&self) -> impl Iterator<Item = AssociationView<K::Address>> {
        self.entries.iter().map(|(id, entry)| AssociationView {
            id: AssociationId(*id),
            mobile: entry.association.mobile(),
            peer: entry.association.peer(),
            stats: entry.association.stats(),
        })
    }

    /// An association, read only.
    pub fn association(&self, id: AssociationId) -> Option<&AssociationOf<K>> {
        let entry = self.entries.get(&id.0).map(|e| &e.association);
        entry.or_else(|| self.lost.get(&id.0).map(|lost| &**lost))
    }

    /// An association, to read and write its streams. What a lost one on a numbered link has received
    /// can be read, and its streams can be taken out, until it is [released](Self::release) or the
    /// event after its loss is polled.
    pub fn association_mut(&mut self, id: AssociationId) -> Option<&mut AssociationOf<K>> {
        let Some(entry) = self.entries.get_mut(&id.0) else {
            return self.lost.get_mut(&id.0).map(|lost| &mut **lost);
        };
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
            entry.slot.clear_fresh();
        }
        Some(AssociationId(id))
    }

    /// What a mobile says with the first datagram of a handshake ([`MobileEnd::greet`]). The mobile is
    /// who it claims to be, but its greeting may be a replay.
    ///
    /// [`MobileEnd::greet`]: super::MobileEnd::greet
    pub fn poll_call(&mut self) -> Option<(PublicKey, Vec<u8>)> {
        self.links.poll_call()
    }

    /// The next datagram that came here and is for another [part](super::Part) of the base, or for nobody: an owner
    /// that no part has is to be [refused](Self::refuse_stranger).
    pub fn poll_stray(&mut self) -> Option<Stray<K::Address>> {
        self.links.poll_stray()
    }

    /// Takes in a datagram that came to another part of the base, and was found to be this one's.
    pub fn handle_stray(&mut self, now: Time, from: K::Address, datagram: &mut [u8]) {
        self.links.set_passed(true);
        self.handle_datagram(now, from, datagram);
        self.links.set_passed(false);
    }

    /// A handshake that came here was made by a mobile that no part of the base serves.
    pub fn refuse_stranger(&mut self, now: Time, from: K::Address, mobile: PublicKey) {
        self.refusals.record(now, from, Refusal::Stranger(mobile));
    }

    /// Associations have every `step`th name from the first on.
    pub(super) fn number_from(&mut self, first: u64, step: u64) {
        (self.next_id, self.id_step) = (first, step);
    }

    /// Serves the mobiles with the `allowed` keys from now on. Associations of others, and of those that share another
    /// pre-shared key from now on, are over without a word to them, and what they have begun is forgotten. Where
    /// mobiles prove no keys nothing changes.
    pub fn set_allowed(&mut self, allowed: &[impl Clone + Into<Allowed>]) {
        K::set_allowed(self, allowed.iter().cloned().map(Into::into).collect());
    }

    /// A handshake that was not answered, for the operator; again once a minute while it goes on.
    pub fn poll_refused(&mut self) -> Option<Refused<K::Address>> {
        self.refusals.poll()
    }

    /// Passes on what this association's mobile sends for another base from now on: what the mobile is to be told of it.
    /// None on a hop without a seal, where the mobile could not prove where it is.
    pub fn grant_transit(&mut self, id: AssociationId) -> Option<TransitGrant> {
        K::grant_transit(self, id)
    }

    /// Takes in a datagram that is [to be passed on](lasthop_wire::datagram::Kind::Transit): the one inside, and whose it
    /// is. Where it goes the caller knows, who has asked for the [grant](Self::grant_transit).
    pub fn transit<'d>(
        &mut self,
        now: Time,
        from: K::Address,
        datagram: &'d [u8],
    ) -> Option<(AssociationId, &'d [u8])> {
        let passed = K::transit(self, now, from, datagram);
        self.refused += u64::from(passed.is_none());
        passed
    }

    /// Where a mobile receives what comes back, unchanged; none until it has proved that it does.
    pub fn transit_at(&self, id: AssociationId) -> Option<K::Address> {
        self.links.transit_at(id)
    }

    /// Takes in a datagram, opened where it lies. A bad one changes nothing but a counter.
    pub fn handle_datagram(&mut self, now: Time, from: K::Address, datagram: &mut [u8]) {
        if !K::handle(self, now, from, datagram) {
            self.refused += 1;
        }
    }

    /// A datagram is an association's, if it can be opened: false if it is refused.
    pub(super) fn deliver(
        &mut self,
        now: Time,
        id: u64,
        from: K::Address,
        datagram: &mut [u8],
    ) -> bool {
        let Some(entry) = self.entries.get_mut(&id) else { return false };
        let link = entry.association.link_mut();
        let Some(opened) = link.and_then(|link| link.open(now, datagram)) else { return false };
        self.handle_opened(now, id, from, opened);
        true
    }

    /// An association takes in what was opened under its keys.
    pub(super) fn handle_opened(&mut self, now: Time, id: u64, from: K::Address, what: Opened<'_>) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if entry.association.handle_opened(now, from, what) {
            self.events.push_back((AssociationId(id), AssociationEvent::Moved));
        }
        self.schedule.touch(id, &mut entry.slot);
    }

    /// An association has something to do.
    pub(super) fn touch(&mut self, id: u64) {
        if let Some(entry) = self.entries.get_mut(&id) {
            self.schedule.touch(id, &mut entry.slot);
        }
    }

    /// An association stands from now on; its number.
    pub(super) fn insert(&mut self, association: AssociationOf<K>) -> u64 {
        let id = self.next_id;
        self.next_id += self.id_step;
        let mut slot = Slot::default();
        self.schedule.touch(id, &mut slot);
        self.entries.insert(id, Box::new(Entry { association, slot }));
        self.events.push_back((AssociationId(id), AssociationEvent::Up));
        id
    }

    /// Removes an association and sends the mobile nothing. The caller gets an event.
    pub(super) fn remove(&mut self, id: u64, reason: CloseReason) {
        let Some(entry) = self.entries.remove(&id) else { return };
        self.links.handle_removed(id, &entry.association);
        self.schedule.remove(id, &entry.slot);
        if K::KEEPS_LOST {
            self.lost.insert(id, Box::new(entry.association));
        }
        self.events.push_back((AssociationId(id), AssociationEvent::Lost(reason)));
    }

    /// Writes the next datagram that should leave now into `out`, which must have room for the
    /// largest, if there is one.
    pub fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit<K::Address>> {
        if let Some(answer) = self.links.poll_answer(now, out) {
            return Some(answer);
        }
        while let Some(id) = self.schedule.ready() {
            if let Some(entry) = self.entries.get_mut(&id)
                && let Some(transmit) = entry.association.poll_transmit(now, out)
            {
                return Some(transmit);
            }
            self.schedule.pop_ready();
            self.handle_idle(id);
        }
        None
    }

    /// An association has nothing more to send for now: its timer is set, or its end noticed.
    fn handle_idle(&mut self, id: u64) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if let Some(reason) = entry.association.closed() {
            self.remove(id, reason);
            return;
        }
        let timer = entry.association.next_timeout();
        self.schedule.set_timer(id, &mut entry.slot, timer);
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), if nothing happens before.
    pub fn next_timeout(&self) -> Option<Time> {
        [self.schedule.next_timeout(), self.refusals.next_timeout()].into_iter().flatten().min()
    }

    /// Lets timers that are due act; follow with [`poll_transmit`](Self::poll_transmit).
    pub fn handle_timeout(&mut self, now: Time) {
        self.refusals.handle_timeout(now);
        while let Some(id) = self.schedule.pop_due(now) {
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            entry.slot.clear_timer();
            entry.association.transport.handle_timeout(now);
            match self.links.check(now, &mut entry.association) {
                Some(reason) => self.remove(id, reason),
                None => self.schedule.touch(id, &mut entry.slot),
            }
        }
    }

    /// Closes all associations, with close frames to the mobiles.
    pub fn close(&mut self, reason: CloseReason) {
        for (id, entry) in &mut self.entries {
            self.schedule.queue(*id, &mut entry.slot);
            entry.association.close(reason);
        }
    }

    /// Datagrams that were garbage, forged, replayed or for nobody.
    pub fn refused(&self) -> u64 {
        K::refused(self)
    }
}
