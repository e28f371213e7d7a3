//! Where packets for mobiles go: into a mobile's lane, to the worker that serves it, or to the base that it has gone to.

use lasthop_hop::seal::PublicKey;
use lasthop_units::Time;
use lasthop_wire::packet::{self, Packet};

use super::super::handoff::Handoffs;
use super::super::packets;
use super::super::present::Present;
use super::super::told_worths::ToldWorths;
use super::super::workers::Workers;
use super::BaseRole;
use crate::backhaul::{BaseAssociationId, WithPeers};
use crate::driver::CoreOf;
use crate::hop::Hop;
use crate::packets::{Sorting, Verdict, is_ip};

/// The ways that a packet may go.
struct PacketRoutes<'a> {
    now: Time,
    sorting: Sorting,
    hop: &'a mut WithPeers,
    present: &'a Present,
    worths: &'a ToldWorths,
    handoffs: Option<&'a mut Handoffs>,
    workers: Option<&'a mut Workers>,
    /// Packets that went to other bases.
    passed_on: u64,
}

impl PacketRoutes<'_> {
    fn send(&mut self, mobile: PublicKey, packet: &Packet, bytes: &[u8]) -> Verdict {
        let Self { now, sorting, hop, present, worths, handoffs, workers, passed_on } = self;
        let elsewhere = handoffs
            .as_mut()
            .and_then(|all| all.pass_on(hop, (*now, &*sorting), mobile, packet, bytes));
        if let Some(verdict) = elsewhere {
            *passed_on += u64::from(matches!(verdict, Verdict::Passed));
            return verdict;
        }
        let here = present.with(mobile);
        if here.is_none()
            && workers.as_mut().is_some_and(|others| others.pass_packet_on(mobile, bytes))
        {
            return Verdict::Passed;
        }
        let (lane, worth) = (here.and_then(|id| hop.packets(id)), worths.of(mobile, packet));
        packets::send(*now, sorting, lane, packet, (bytes, worth))
    }
}

impl BaseRole {
    /// What packets and their routes are, where packets are carried.
    fn routes<'a>(
        &'a mut self,
        core: &'a mut CoreOf<Self>,
    ) -> Option<(&'a mut packets::Packets, PacketRoutes<'a>)> {
        let Self { packets, present, worths, handoffs, workers, .. } = self;
        let packets = packets.as_mut()?;
        let (now, sorting) = (core.now, packets.way().sorting().clone());
        let (handoffs, workers) = (handoffs.as_mut(), workers.as_mut());
        let hop = &mut core.hop;
        let routes =
            PacketRoutes { now, sorting, hop, present, worths, handoffs, workers, passed_on: 0 };
        Some((packets, routes))
    }

    /// Sends what has come to the device.
    pub(super) fn send_received(&mut self, core: &mut CoreOf<Self>) {
        let now = core.now;
        let Some((packets, mut routes)) = self.routes(core) else { return };
        packets.receive(now, |mobile, packet, bytes| routes.send(mobile, packet, bytes));
        packets.add_passed_on(routes.passed_on, 0);
        if let Some(workers) = &mut self.workers {
            workers.flush_packets();
        }
    }

    /// Sends packets for mobiles that did not come by the device. Nobody is told what becomes of them.
    pub(super) fn send_known<'a>(
        &mut self,
        core: &mut CoreOf<Self>,
        all: impl Iterator<Item = &'a [u8]>,
    ) {
        let Some((packets, mut routes)) = self.routes(core) else { return };
        for bytes in all {
            let Ok(packet) = Packet::inspect(bytes) else { continue };
            let Some(mobile) = packets.mobile_of(&packet) else { continue };
            packets.count(routes.send(mobile, &packet, bytes));
        }
        packets.add_passed_on(routes.passed_on, 0);
    }

    /// Takes what another base has passed on: packets for mobiles that have come here from there.
    pub(super) fn take_from_base(&mut self, core: &mut CoreOf<Self>, id: BaseAssociationId) {
        let Some((packets, mut routes)) = self.routes(core) else { return };
        let (mut bytes, mut taken) = (Vec::new(), 0);
        while let Some(lane) = routes.hop.packets_so_far(id)
            && let Some((front, ce)) = lane.front()
        {
            bytes.clear();
            bytes.extend_from_slice(front);
            if ce && is_ip(&bytes) {
                packet::mark_ce(&mut bytes);
            }
            lane.pop();
            taken += 1;
            let verdict = match Packet::inspect(&bytes) {
                Ok(packet) => match packets.mobile_of(&packet) {
                    Some(mobile) => routes.send(mobile, &packet, &bytes),
                    None => Verdict::Refused("nobody's"),
                },
                Err(bad) => Verdict::Refused(bad.name()),
            };
            packets.count(verdict);
        }
        packets.add_passed_on(routes.passed_on, taken);
        if let Some(workers) = &mut self.workers {
            workers.flush_packets();
        }
    }

    /// Passes on what has not reached mobiles that have gone to other bases.
    pub(super) fn pass_left_on(&mut self, core: &mut CoreOf<Self>) {
        while let Some(mobile) = self.handoffs.as_mut().and_then(Handoffs::poll_left) {
            let lane = self.present.with(mobile).and_then(|id| core.hop.packets_so_far(id));
            let packets = lane.map(|lane| lane.take_back(core.now)).unwrap_or_default();
            // Records of UDP sockets are this base's.
            self.send_known(core, packets.iter().map(Vec::as_slice).filter(|bytes| is_ip(bytes)));
        }
    }
}
