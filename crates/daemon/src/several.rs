//! A hop that is made of any number of hops of one kind, each added and removed while it runs.

use std::collections::BTreeMap;

use lasthop_control::AssociationReport;
use lasthop_kernel::reactor::Readiness;
use lasthop_kernel::slab::Key;
use lasthop_kernel::turn::{Source, Turn};
use lasthop_units::Time;

use crate::hop::{Hop, HopEvent};

/// Names an association: the part that it belongs to, and the part's own name for it.
pub(crate) type Id<H> = (u32, <H as Hop>::Id);

/// Any number of hops of one kind. Each is a *part* with a number of its own, which its descriptors
/// carry ([`Source::Hop`]) and which is not used again while that could be mistaken.
pub(crate) struct Several<H> {
    parts: BTreeMap<u32, H>,
    /// Parts have this number or a higher one: what is lower is somebody else's.
    first: u32,
    next: u32,
    /// The part that was last asked what it has to say; the next one's turn comes first.
    asked: u32,
    /// Refused datagrams of parts that are gone.
    garbage: u64,
}

impl<H: Hop> Several<H> {
    /// No parts yet. They will be numbered from `first` on: what shares the loop with these has the
    /// numbers below.
    pub(crate) fn new(first: u32) -> Self {
        Self { parts: BTreeMap::new(), first, next: first, asked: first, garbage: 0 }
    }

    /// Adds a hop whose descriptors are not watched yet; its number. Start it with
    /// [`with`](Self::with).
    pub(crate) fn add(&mut self, hop: H) -> u32 {
        while self.next < self.first || self.parts.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1).max(self.first);
        }
        let part = self.next;
        self.next = part.wrapping_add(1);
        self.parts.insert(part, hop);
        part
    }

    /// Removes a part. Its peers are told, which costs a datagram at most, and its descriptors leave
    /// the loop. Nothing is told of its associations any more: what the caller knows of them is the
    /// caller's to end.
    pub(crate) fn remove(&mut self, turn: &mut Turn<'_>, part: u32) {
        if let Some(hop) = self.parts.get_mut(&part) {
            hop.close(&mut turn.within(part));
        }
        self.discard(turn, part);
    }

    /// As [`remove`](Self::remove), but its peers are told nothing.
    pub(crate) fn discard(&mut self, turn: &mut Turn<'_>, part: u32) {
        if let Some(hop) = self.parts.remove(&part) {
            self.garbage += hop.garbage();
            turn.reactor.forget(|source| matches!(source, Source::Hop(n, _) if n == part));
        }
    }

    /// A part, to look at.
    pub(crate) fn get(&self, part: u32) -> Option<&H> {
        self.parts.get(&part)
    }

    /// Does something with a part, with a turn that is for it.
    pub(crate) fn with<T>(
        &mut self,
        turn: &mut Turn<'_>,
        part: u32,
        act: impl FnOnce(&mut H, &mut Turn<'_>) -> T,
    ) -> Option<T> {
        let hop = self.parts.get_mut(&part)?;
        Some(act(hop, &mut turn.within(part)))
    }

    /// Does something with every part, each with a turn that is for it.
    pub(crate) fn each(
        &mut self,
        turn: &mut Turn<'_>,
        mut act: impl FnMut(u32, &mut H, &mut Turn<'_>),
    ) {
        for (part, hop) in &mut self.parts {
            act(*part, hop, &mut turn.within(*part));
        }
    }
}

impl<H: Hop> Hop for Several<H> {
    type Id = Id<H>;
    type Streams = H::Streams;

    /// All have the same.
    fn name(&self) -> &'static str {
        self.parts.values().next().map_or("none", H::name)
    }

    /// The turn is for the part whose descriptor it is.
    fn handle_ready(&mut self, turn: &mut Turn<'_>, key: Key, readiness: Readiness) {
        if let Some(hop) = self.parts.get_mut(&turn.part) {
            hop.handle_ready(turn, key, readiness);
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        self.parts.values().filter_map(H::next_timeout).min()
    }

    fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        self.each(turn, |_, hop, turn| {
            if hop.next_timeout().is_some_and(|at| at <= now) {
                hop.handle_timeout(turn);
            }
        });
    }

    fn pump(&mut self, turn: &mut Turn<'_>) {
        self.each(turn, |_, hop, turn| hop.pump(turn));
    }

    fn flush(&mut self, turn: &mut Turn<'_>) {
        self.each(turn, |_, hop, turn| hop.flush(turn));
    }

    fn poll_event(&mut self) -> Option<HopEvent<Id<H>>> {
        self.parts.iter_mut().find_map(|(part, hop)| Some(hop.poll_event()?.map(|id| (*part, id))))
    }

    /// Parts take turns, so that one that always has something to say does not silence the others.
    fn poll_active(&mut self) -> Option<Id<H>> {
        let asked = self.asked;
        let active = |(part, hop): (&u32, &mut H)| Some((*part, hop.poll_active()?));
        let found = match asked.checked_add(1) {
            Some(next) => self.parts.range_mut(next..).find_map(active),
            None => None,
        };
        let found = found.or_else(|| self.parts.range_mut(..=asked).find_map(active))?;
        self.asked = found.0;
        Some(found)
    }

    fn is_active(&self) -> bool {
        self.parts.values().any(H::is_active)
    }

    fn streams(&mut self, (part, id): Id<H>) -> Option<&mut H::Streams> {
        self.parts.get_mut(&part)?.streams(id)
    }

    fn forget(&mut self, turn: &mut Turn<'_>, (part, id): Id<H>) {
        self.with(turn, part, |hop, turn| hop.forget(turn, id));
    }

    fn close(&mut self, turn: &mut Turn<'_>) {
        self.each(turn, |_, hop, turn| hop.close(turn));
    }

    /// A part's number is added to its associations': a mobile's end has but one, of number zero.
    fn reports(&self, now: Time) -> Vec<AssociationReport> {
        let numbered = |(part, hop): (&u32, &H)| {
            let part = u64::from(*part);
            let own = hop.reports(now).into_iter();
            own.map(move |report| AssociationReport { id: report.id + part, ..report })
        };
        self.parts.iter().flat_map(numbered).collect()
    }

    fn garbage(&self) -> u64 {
        self.garbage + self.parts.values().map(H::garbage).sum::<u64>()
    }
}
