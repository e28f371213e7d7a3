//! Openings while the network reports every base as unreachable.
//!
//! They are refused, as the kernel refuses a connect of which the network says so (RFC 1122 section
//! 4.2.3.9). Where it says nothing they wait, and what stands is ended by the hop alone: a dead zone is
//! not a dead base.

use lasthop_hop::Unreachable;
use lasthop_kernel::slab::Key;
use lasthop_session::{ConnId, Refusal};

use super::{Core, MobileRole, Waiting};
use crate::driver::Phase;

impl MobileRole {
    /// Why no base can be reached at present, if the network reports each usable one as unreachable.
    fn unreachable_reason(&self, core: &Core) -> Option<Unreachable> {
        let said = |i: usize| {
            let hop = self.stations[i].part.and_then(|part| core.hop.get(part))?;
            hop.unreachable(core.now).filter(|_| !hop.is_up())
        };
        let why = said(self.here)?;
        let mut others = (0..self.stations.len()).filter(|i| *i != self.here);
        others.all(|i| !self.is_usable(core.now, i) || said(i).is_some()).then_some(why)
    }

    /// Refuses connections that wait for a base while none is reachable. True if there was one.
    pub(super) fn refuse_waiting(&mut self, core: &mut Core) -> bool {
        let refusal = match self.unreachable_reason(core) {
            None => return false,
            Some(Unreachable::Network) => Refusal::NetworkUnreachable,
            // That the base's host refuses is not to be taken for the fixed host's own refusal.
            Some(_) => Refusal::HostUnreachable,
        };
        let mut some = false;
        for key in core.connections.keys() {
            some |= self.refuse_one(core, key, refusal);
        }
        some
    }

    fn refuse_one(&mut self, core: &mut Core, key: Key, refusal: Refusal) -> bool {
        let Some(connection) = core.connections.get(key) else { return false };
        let name = connection.name;
        let asks = match &connection.phase {
            Phase::Waiting(Waiting::Application(application)) => application.is_opening(),
            Phase::Waiting(Waiting::HeldSyn(held)) => held.is_unanswered(),
            _ => false,
        };
        match &connection.phase {
            Phase::Waiting(_) if asks => {
                core.unname(key);
                core.abort(name);
                self.answer(core, key, Err(refusal));
                true
            }
            // Its handshake was completed early.
            Phase::Relaying(_) if is_unanswered(core, name) => {
                if let Some(connection) = core.connections.get_mut(key) {
                    connection.reset = true;
                }
                core.abort(name);
                true
            }
            _ => false,
        }
    }
}

fn is_unanswered(core: &Core, name: Option<(u32, ConnId)>) -> bool {
    name.is_some_and(|(id, conn)| core.peek(id).is_some_and(|session| session.is_asking(conn)))
}
