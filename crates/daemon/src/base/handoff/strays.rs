//! Packets for mobiles that have gone to other bases.

use std::collections::BTreeMap;

use lasthop_hop::PacketLane;
use lasthop_hop::seal::PublicKey;
use lasthop_units::Time;
use lasthop_wire::packet::{self, Packet};

use crate::base::packets;
use crate::packets::{Sorting, Verdict, Worth};

/// Where mobiles have gone.
#[derive(Default, Debug)]
pub(super) struct Strays {
    gone: BTreeMap<PublicKey, PublicKey>,
    /// Those that have just gone, whose packets may still be here.
    left: Vec<PublicKey>,
    /// A packet that is passed on.
    packet: Vec<u8>,
}

impl Strays {
    /// A mobile has gone to that base.
    pub(super) fn leave(&mut self, mobile: PublicKey, to: PublicKey) {
        self.gone.insert(mobile, to);
        self.left.push(mobile);
    }

    /// A mobile is here, or not served any more.
    pub(super) fn stay(&mut self, mobile: PublicKey) {
        self.gone.remove(&mobile);
        self.left.retain(|left| *left != mobile);
    }

    /// The base that a mobile has gone to.
    pub(super) fn base_of(&self, mobile: PublicKey) -> Option<PublicKey> {
        self.gone.get(&mobile).copied()
    }

    /// A mobile that has just gone.
    pub(super) fn poll_left(&mut self) -> Option<PublicKey> {
        self.left.pop()
    }

    /// Passes a packet on by the lane to the base where its mobile is. Each time that takes one from its hop limit:
    /// bases that send each other astray end it.
    pub(super) fn pass_on(
        &mut self,
        now: Time,
        sorting: &Sorting,
        lane: Option<&mut PacketLane>,
        packet: &Packet,
        bytes: &[u8],
    ) -> Verdict {
        self.packet.clear();
        self.packet.extend_from_slice(bytes);
        if !packet::lower_hop_limit(&mut self.packet) && lane.is_some() {
            return Verdict::Refused("hop limit");
        }
        packets::send(now, sorting, lane, packet, (&self.packet, Worth::default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mobile_that_came_back_has_not_left() {
        let [mobile, first, second] = [1, 2, 3].map(|n| PublicKey::from_bytes([n; 32]));
        let mut strays = Strays::default();
        assert_eq!(strays.base_of(mobile), None);
        strays.leave(mobile, first);
        strays.leave(mobile, second);
        assert_eq!(strays.base_of(mobile), Some(second));
        strays.stay(mobile);
        assert_eq!((strays.base_of(mobile), strays.poll_left()), (None, None));
    }
}
