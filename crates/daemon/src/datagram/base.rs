//! The base's end: one carrier for all mobiles.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use lasthop_control::past::{Counted, Progress};
use lasthop_control::{AssociationReport, PathReport};
use lasthop_hop::CloseReason;
use lasthop_hop::PacketLane;
use lasthop_hop::seal::{Allowed, PublicKey};
use lasthop_hop::{AssociationEvent, AssociationId, BaseEnd, BaseLinks, PathStats, Refused, Stray};
use lasthop_kernel::reactor::Readiness;
use lasthop_kernel::slab::{Key, Slab};
use lasthop_kernel::turn::Turn;
use lasthop_units::Time;
use lasthop_wire::datagram::Kind;
use lasthop_wire::mhp::transit::TransitGrant;

use super::transits::Transits;
use super::{next_timeout, path_report, patience, progress, report, why};
use crate::carrier::{Carrier, Route};
use crate::hop::BaseHop;
use crate::hop::{AnyStreams, Hop, HopEvent};

/// The base's end.
pub(crate) struct DatagramBase<K: BaseLinks> {
    name: &'static str,
    machine: BaseEnd<K>,
    carrier: Box<dyn Carrier>,
    /// Which socket an event is for.
    sockets: Slab<Whose>,
    transits: Transits,
    standing: BTreeMap<AssociationId, Standing>,
    now: Time,
}

/// Whose a socket is.
#[derive(Clone, Copy)]
enum Whose {
    /// The carrier's, which calls it so.
    Carrier(usize),
    /// The one by which is passed on what is this association's.
    Transit(AssociationId),
}

/// An association that stands.
struct Standing {
    since: Time,
    /// What it had carried when it was last asked.
    counted: Counted,
}

impl<K: BaseLinks> DatagramBase<K> {
    /// Runs `machine` over `carrier`, as the hop called `name`.
    pub(crate) fn new(name: &'static str, machine: BaseEnd<K>, carrier: Box<dyn Carrier>) -> Self {
        let (sockets, standing) = (Slab::new(), BTreeMap::new());
        let transits = Transits::default();
        Self { name, machine, carrier, sockets, transits, standing, now: Time::ZERO }
    }

    /// Takes in a datagram, or passes it on.
    fn take(
        (machine, transits): (&mut BaseEnd<K>, &mut Transits),
        now: Time,
        from: K::Address,
        datagram: &mut [u8],
    ) {
        if Kind::of(datagram) != Ok(Kind::Transit) {
            return machine.handle_datagram(now, from, datagram);
        }
        if let Some((id, inner)) = machine.transit(now, from, datagram) {
            transits.pass_on(id, inner);
        }
    }

    /// Closes one association.
    pub(crate) fn end(&mut self, id: AssociationId) {
        if let Some(association) = self.machine.association_mut(id) {
            association.close(CloseReason::Shutdown);
        }
    }
}

impl<K> Hop for DatagramBase<K>
where
    K: BaseLinks<Address = Route> + 'static,
    BaseEnd<K>: Send,
{
    type Id = AssociationId;

    fn name(&self) -> &'static str {
        self.name
    }

    fn handle_ready(&mut self, turn: &mut Turn<'_>, key: Key, readiness: Readiness) {
        match self.sockets.get(key) {
            Some(Whose::Carrier(n)) => self.carrier.ready(turn, *n, readiness),
            Some(Whose::Transit(id)) => self.transits.ready(turn, *id, readiness),
            None => {}
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        let own = next_timeout(self.carrier.as_ref(), self.machine.next_timeout(), self.now);
        [own, self.transits.next_timeout(self.now)].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        self.now = turn.now;
        self.carrier.handle_timeout(turn);
        self.machine.handle_timeout(turn.now);
    }

    fn pump(&mut self, turn: &mut Turn<'_>) {
        let (machine, transits, now) = (&mut self.machine, &mut self.transits, &mut self.now);
        self.carrier.receive(&turn.clock, &mut |arrived, from, datagram| {
            // The machine must not see time go back.
            *now = arrived.max(*now);
            Self::take((machine, transits), *now, from, datagram);
        });
        transits.receive(turn);
        self.now = self.now.max(turn.now);
    }

    fn flush(&mut self, turn: &mut Turn<'_>) {
        let (machine, transits, now) = (&mut self.machine, &mut self.transits, turn.now);
        self.now = now;
        self.carrier.send(turn, &mut |out| match machine.poll_transmit(now, out) {
            Some(own) => Some((own.to, own.len)),
            None => transits.poll_back(|id| machine.transit_at(id), out),
        });
        transits.send(turn);
        for key in transits.close_ended(turn) {
            self.sockets.remove(key);
        }
    }

    fn patience(&self, id: AssociationId) -> Duration {
        self.machine.association(id).map_or(Duration::ZERO, |a| patience(&a.stats()))
    }

    fn progress(&mut self, id: AssociationId) -> Option<Progress> {
        let stats = self.machine.association(id)?.stats();
        Some(progress(&mut self.standing.get_mut(&id)?.counted, &stats))
    }

    fn poll_event(&mut self) -> Option<HopEvent<AssociationId>> {
        let (id, event) = self.machine.poll_event()?;
        Some(match event {
            AssociationEvent::Up => {
                let counted = Counted::default();
                self.standing.insert(id, Standing { since: self.now, counted });
                HopEvent::Up(id)
            }
            AssociationEvent::Moved => {
                let peer = self.machine.peer(id).unwrap_or(Route::Nowhere);
                HopEvent::Moved(id, self.carrier.show(peer))
            }
            AssociationEvent::Lost(reason) => {
                self.standing.remove(&id);
                self.transits.end(id);
                HopEvent::Lost(id, why(reason))
            }
        })
    }

    fn poll_active(&mut self) -> Option<AssociationId> {
        self.machine.poll_touched()
    }

    fn is_active(&self) -> bool {
        self.carrier.readable() || self.transits.readable()
    }

    fn streams(&mut self, id: AssociationId) -> Option<&mut AnyStreams> {
        Some(self.machine.association_mut(id)?)
    }

    fn packets(&mut self, id: AssociationId) -> Option<&mut PacketLane> {
        self.machine.association_mut(id)?.packets()
    }

    fn packets_so_far(&mut self, id: AssociationId) -> Option<&mut PacketLane> {
        self.machine.association_mut(id)?.packets_so_far()
    }

    fn remove_association(&mut self, _turn: &mut Turn<'_>, id: AssociationId) {
        self.machine.release(id);
    }

    fn close(&mut self, turn: &mut Turn<'_>) {
        self.machine.close(CloseReason::Shutdown);
        self.flush(turn);
    }

    fn reports(&self, now: Time) -> Vec<AssociationReport> {
        let views = self.machine.views();
        views
            .map(|view| {
                let state = if view.stats.silent { "silent" } else { "up" };
                let standing = self.standing.get(&view.id);
                let age = standing.map_or(Duration::ZERO, |standing| now - standing.since);
                let address = view.peer.map(|route| self.carrier.show(route));
                let report = report(view.id.0, view.mobile, address, state, age, &view.stats);
                let (paths, transit) = (self.path_reports(view.id), self.transits.report(view.id));
                AssociationReport { paths, transit, ..report }
            })
            .collect()
    }

    fn garbage(&self) -> u64 {
        self.machine.refused()
    }
}

impl<K: BaseLinks<Address = Route>> DatagramBase<K> {
    /// Of several paths each is reported, by its number.
    fn path_reports(&self, id: AssociationId) -> Vec<PathReport> {
        let paths: Vec<_> =
            self.machine.association(id).into_iter().flat_map(|a| a.paths()).collect();
        if paths.len() <= 1 {
            return Vec::new();
        }
        let report = |(stats, at): (PathStats, Option<Route>)| {
            path_report(&stats, |id| id.0.to_string(), at.map(|route| self.carrier.show(route)))
        };
        paths.into_iter().map(report).collect()
    }
}

impl<K> BaseHop for DatagramBase<K>
where
    K: BaseLinks<Address = Route> + 'static,
    BaseEnd<K>: Send,
{
    fn places(&self) -> Vec<String> {
        self.carrier.places()
    }

    fn start(&mut self, turn: &mut Turn<'_>) -> io::Result<()> {
        let sockets = &mut self.sockets;
        self.carrier.watch(turn, &mut |n| sockets.insert(Whose::Carrier(n)))
    }

    fn stop(&mut self, _turn: &mut Turn<'_>) {
        // Datagrams of the associations that stand are still wanted, and the role turns new
        // connections away.
    }

    fn set_allowed(&mut self, _turn: &mut Turn<'_>, allowed: &[Allowed]) {
        self.machine.set_allowed(allowed);
    }

    fn poll_call(&mut self) -> Option<(PublicKey, Vec<u8>)> {
        self.machine.poll_call()
    }

    fn poll_stray(&mut self) -> Option<Stray<Route>> {
        self.machine.poll_stray()
    }

    fn handle_stray(&mut self, turn: &mut Turn<'_>, from: Route, datagram: &mut [u8]) {
        self.now = self.now.max(turn.now);
        self.machine.handle_stray(self.now, from, datagram);
    }

    fn grant_transit(
        &mut self,
        turn: &mut Turn<'_>,
        id: AssociationId,
        to: SocketAddr,
    ) -> Option<TransitGrant> {
        let (grant, sockets) = (self.machine.grant_transit(id)?, &mut self.sockets);
        let key = || sockets.insert(Whose::Transit(id));
        if let Err(unused) = self.transits.open(turn, id, to, key) {
            self.sockets.remove(unused);
            return None;
        }
        Some(grant)
    }

    fn refuse_stranger(&mut self, turn: &mut Turn<'_>, from: Route, mobile: PublicKey) {
        self.machine.refuse_stranger(turn.now, from, mobile);
    }

    fn poll_refused(&mut self) -> Option<Refused<String>> {
        let refused = self.machine.poll_refused()?;
        Some(refused.map(|route| self.carrier.show(route)))
    }

    fn key_of(&self, id: AssociationId) -> Option<PublicKey> {
        self.machine.mobile(id)
    }

    fn listens(&self, id: AssociationId, port: u16) -> Option<bool> {
        self.machine.listens(id, port)
    }
}
