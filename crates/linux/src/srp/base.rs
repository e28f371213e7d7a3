//! The base's end of SRP: one set of sockets for all mobiles.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use lasthop_hop::srp::CloseReason;
use lasthop_hop::{Association, AssociationEvent, AssociationId, Base};
use lasthop_units::Time;

use super::{report, why};
use crate::base::BaseHop;
use crate::control::AssociationReport;
use crate::hop::{Hop, HopEvent, Turn};
use crate::reactor::Readiness;
use crate::slab::{Key, Slab};
use crate::udp::{Route, Udp};

/// The base's end.
pub(crate) struct SrpBase {
    machine: Base<Route>,
    udp: Udp,
    /// Which socket an event is for.
    sockets: Slab<usize>,
    since: BTreeMap<AssociationId, Time>,
    now: Time,
}

impl SrpBase {
    /// Runs `machine` over `udp`.
    pub(crate) fn new(machine: Base<Route>, udp: Udp) -> Self {
        let (sockets, since) = (Slab::new(), BTreeMap::new());
        Self { machine, udp, sockets, since, now: Time::ZERO }
    }
}

impl Hop for SrpBase {
    type Id = AssociationId;
    type Streams = Association<Route>;

    fn handle_ready(&mut self, _turn: &mut Turn<'_>, key: Key, readiness: Readiness) {
        if let Some(n) = self.sockets.get(key) {
            self.udp.ready(*n, readiness);
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        self.machine.next_timeout()
    }

    fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        self.machine.handle_timeout(turn.now);
    }

    fn pump(&mut self, turn: &mut Turn<'_>) {
        self.now = turn.now;
        let machine = &mut self.machine;
        self.udp.receive(&turn.clock, |now, from, datagram| {
            machine.handle_datagram(now, from, datagram);
        });
    }

    fn flush(&mut self, turn: &mut Turn<'_>) {
        let (machine, now) = (&mut self.machine, turn.now);
        self.udp.send(|out| machine.poll_transmit(now, out).map(|t| (t.to, t.len)));
    }

    fn poll_event(&mut self) -> Option<HopEvent<AssociationId>> {
        let (id, event) = self.machine.poll_event()?;
        Some(match event {
            AssociationEvent::Up => {
                self.since.insert(id, self.now);
                HopEvent::Up(id)
            }
            AssociationEvent::Moved => {
                let peer = self.machine.association_mut(id).and_then(|a| a.peer());
                HopEvent::Moved(id, peer.unwrap_or(Route::NOWHERE).peer)
            }
            AssociationEvent::Lost(reason) => {
                self.since.remove(&id);
                HopEvent::Lost(id, why(reason))
            }
        })
    }

    fn poll_active(&mut self) -> Option<AssociationId> {
        self.machine.poll_touched()
    }

    fn is_active(&self) -> bool {
        self.udp.readable()
    }

    fn streams(&mut self, id: AssociationId) -> Option<&mut Association<Route>> {
        self.machine.association_mut(id)
    }

    fn forget(&mut self, _turn: &mut Turn<'_>, _id: AssociationId) {}

    fn close(&mut self, turn: &mut Turn<'_>) {
        self.machine.close(CloseReason::Shutdown);
        self.flush(turn);
    }

    fn reports(&self, now: Time) -> Vec<AssociationReport> {
        let all = self.machine.associations();
        all.map(|(id, mobile, association)| {
            let stats = association.stats();
            let state = if stats.silent { "silent" } else { "up" };
            let age = self.since.get(&id).map_or(Duration::ZERO, |since| now - *since);
            let address = association.peer().map(|route| route.peer);
            report(id.0, Some(*mobile), address, state, age, &stats)
        })
        .collect()
    }

    fn garbage(&self) -> u64 {
        self.machine.stats().refused
    }
}

impl BaseHop for SrpBase {
    const NAME: &'static str = "srp";

    fn local_addrs(&self) -> Vec<SocketAddr> {
        self.udp.local_addrs()
    }

    fn start(&mut self, turn: &mut Turn<'_>) -> io::Result<()> {
        let sockets = &mut self.sockets;
        self.udp.watch(turn, |n| sockets.insert(n))
    }

    fn stop(&mut self, _turn: &mut Turn<'_>) {
        // Datagrams of the associations that stand are still wanted, and the role turns new
        // connections away.
    }
}
