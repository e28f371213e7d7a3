//! What a base passes on: each mobile's datagrams leave by a socket of its own to the other base, so that what comes back
//! there is that mobile's.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use lasthop_control::TransitReport;
use lasthop_hop::AssociationId;
use lasthop_kernel::reactor::Readiness;
use lasthop_kernel::slab::Key;
use lasthop_kernel::turn::Turn;
use lasthop_units::Time;

use super::BLOCKED_TICK;
use crate::carrier::udp::Udp;
use crate::carrier::{Carrier, Route};

/// Bytes that wait in one direction before more are lost, as a queue on the way would lose them.
const WAITING_MAX: usize = 512 * 1024;

/// Datagrams that wait, each behind its length.
#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    read: usize,
}

impl Waiting {
    /// Appends one: whether there was room.
    fn push(&mut self, datagram: &[u8]) -> bool {
        let Ok(len) = u16::try_from(datagram.len()) else { return false };
        let has_room = self.bytes.len() + datagram.len() <= WAITING_MAX;
        if has_room {
            self.bytes.extend_from_slice(&len.to_ne_bytes());
            self.bytes.extend_from_slice(datagram);
        }
        has_room
    }

    /// Writes the next one into `out`, which has room for it; its length.
    fn pop(&mut self, out: &mut [u8]) -> Option<usize> {
        loop {
            let Some((len, rest)) = self.bytes.get(self.read..)?.split_first_chunk() else {
                self.read = 0;
                self.bytes.clear();
                return None;
            };
            let len = usize::from(u16::from_ne_bytes(*len));
            self.read += size_of::<u16>() + len;
            if let (Some(datagram), Some(out)) = (rest.get(..len), out.get_mut(..len)) {
                out.copy_from_slice(datagram);
                return Some(len);
            }
        }
    }
}

/// One mobile's way to another base.
struct Outlet {
    udp: Udp,
    to: SocketAddr,
    route: Route,
    key: Key,
    /// To the other base,
    on: Waiting,
    /// and from it.
    back: Waiting,
    /// Bytes that were passed, and datagrams that were lost for want of room.
    report: TransitReport,
}

/// A datagram was taken, or lost.
fn count(bytes: &mut u64, dropped: &mut u64, taken: bool, datagram: &[u8]) {
    if taken {
        *bytes += datagram.len() as u64;
    } else {
        *dropped += 1;
    }
}

/// The ways of all mobiles of a hop.
#[derive(Default)]
pub(super) struct Transits {
    outlets: BTreeMap<AssociationId, Outlet>,
    /// Where something waits to be sent or read.
    active: BTreeSet<AssociationId>,
    /// Whose associations are over.
    ended: Vec<AssociationId>,
}

impl Transits {
    /// Passes on what comes of this association's mobile to that address, and nowhere else; the events of the socket come
    /// back with the key that `key` gives.
    ///
    /// # Errors
    ///
    /// The kernel has no socket for it, and the key is not used.
    pub(super) fn open(
        &mut self,
        turn: &mut Turn<'_>,
        id: AssociationId,
        to: SocketAddr,
        key: impl FnOnce() -> Key,
    ) -> Result<(), Key> {
        if self.outlets.get(&id).is_some_and(|outlet| outlet.to == to) {
            return Ok(());
        }
        let mut udp = Udp::anywhere(None);
        let key = self.close(turn, id).unwrap_or_else(key);
        let route = udp.route_to(to).ok_or(key)?;
        if udp.watch(turn, &mut |_| key).is_err() || udp.next_timeout().is_some() {
            return Err(key);
        }
        let report = TransitReport { to: to.to_string(), ..TransitReport::default() };
        let (on, back) = Default::default();
        self.outlets.insert(id, Outlet { udp, to, route, key, on, back, report });
        Ok(())
    }

    fn close(&mut self, turn: &mut Turn<'_>, id: AssociationId) -> Option<Key> {
        self.active.remove(&id);
        let key = self.outlets.remove(&id)?.key;
        let source = turn.source(key);
        turn.reactor.remove_where(|other| other == source);
        Some(key)
    }

    /// The association is over.
    pub(super) fn end(&mut self, id: AssociationId) {
        if self.outlets.contains_key(&id) {
            self.ended.push(id);
        }
    }

    /// Closes the sockets of associations that are over; their keys.
    pub(super) fn close_ended(&mut self, turn: &mut Turn<'_>) -> Vec<Key> {
        let ended = std::mem::take(&mut self.ended);
        ended.into_iter().filter_map(|id| self.close(turn, id)).collect()
    }

    /// Something has come from the other base, or the kernel says so.
    pub(super) fn ready(&mut self, turn: &mut Turn<'_>, id: AssociationId, readiness: Readiness) {
        if let Some(outlet) = self.outlets.get_mut(&id) {
            outlet.udp.ready(turn, 0, readiness);
            self.active.insert(id);
        }
    }

    /// A datagram of the mobile's is to be passed on.
    pub(super) fn pass_on(&mut self, id: AssociationId, datagram: &[u8]) {
        if let Some(outlet) = self.outlets.get_mut(&id) {
            let Outlet { on, report, .. } = outlet;
            let taken = on.push(datagram);
            count(&mut report.bytes_on, &mut report.dropped, taken, datagram);
            self.active.insert(id);
        }
    }

    /// Reads what has come from other bases.
    pub(super) fn receive(&mut self, turn: &Turn<'_>) {
        for id in &self.active {
            let Some(Outlet { udp, route, back, report, .. }) = self.outlets.get_mut(id) else {
                continue;
            };
            udp.receive(&turn.clock, &mut |_, from, datagram| {
                // Nobody else is heard.
                if from.peer() == route.peer() {
                    let taken = back.push(datagram);
                    count(&mut report.bytes_back, &mut report.dropped, taken, datagram);
                }
            });
        }
    }

    /// Whether something may have come that was not read.
    pub(super) fn readable(&self) -> bool {
        let mut active = self.active.iter().filter_map(|id| self.outlets.get(id));
        active.any(|outlet| outlet.udp.readable())
    }

    /// Writes the next datagram that is to go back to a mobile, which is where `at` says.
    pub(super) fn poll_back(
        &mut self,
        at: impl Fn(AssociationId) -> Option<Route>,
        out: &mut [u8],
    ) -> Option<(Route, usize)> {
        self.active.iter().find_map(|id| {
            let back = &mut self.outlets.get_mut(id)?.back;
            while let Some(len) = back.pop(out) {
                // Without a proof of where the mobile is there is nowhere to send it.
                if let Some(at) = at(*id) {
                    return Some((at, len));
                }
            }
            None
        })
    }

    /// Sends on what waits.
    pub(super) fn send(&mut self, turn: &mut Turn<'_>) {
        let Self { outlets, active, .. } = self;
        active.retain(|id| {
            let Some(Outlet { udp, route, on, back, .. }) = outlets.get_mut(id) else {
                return false;
            };
            udp.send(turn, &mut |out| on.pop(out).map(|len| (*route, len)));
            udp.readable() || udp.is_blocked() || !back.bytes.is_empty()
        });
    }

    /// When what the kernel did not take is to be sent.
    pub(super) fn next_timeout(&self, now: Time) -> Option<Time> {
        let mut active = self.active.iter().filter_map(|id| self.outlets.get(id));
        active.any(|outlet| outlet.udp.is_blocked()).then(|| now + BLOCKED_TICK)
    }

    /// What was passed for a mobile.
    pub(super) fn report(&self, id: AssociationId) -> Option<TransitReport> {
        self.outlets.get(&id).map(|outlet| outlet.report.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_comes_out_in_order_and_is_bounded() {
        let mut waiting = Waiting::default();
        let mut out = [0; 2000];
        for round in 0..3 {
            let datagrams: Vec<Vec<u8>> = (1..400).map(|n| vec![n as u8; n + round]).collect();
            assert!(datagrams.iter().all(|datagram| waiting.push(datagram)));
            for datagram in &datagrams {
                let len = waiting.pop(&mut out).unwrap();
                assert_eq!(&out[..len], datagram);
            }
            assert_eq!(waiting.pop(&mut out), None);
        }
        let taken = (0..1000).filter(|_| waiting.push(&[7; 1400])).count();
        assert_eq!(taken, WAITING_MAX / 1402);
        assert!(!waiting.push(&[0; 70_000]), "no datagram is so long");
        assert_eq!((0..1000).filter(|_| waiting.pop(&mut out).is_some()).count(), taken);
        assert!(waiting.push(&[7; 1400]));
    }
}
