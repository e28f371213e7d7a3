//! Packets of a mobile: those that the kernel leads to the TUN device go to the base, and the other way about.

use lasthop_hop::{OutgoingPacket, PacketClass, PacketLane};
use lasthop_kernel::packet_tun::PacketTun;
use lasthop_kernel::transparent::{MobileTunnel, Numbers, Tunnel};
use lasthop_session::flow_worth::FlowWorth;
use lasthop_units::{Seed, Time};
use lasthop_wire::packet::{IcmpError, Packet};

use super::{Core, MobileConfig, MobileRole};
use crate::error::RunError;
use crate::hop::Hop;
use crate::packets::{self, OWN, Sorting, TunWay, Verdict};

/// The flow of records by which the base is told of flows, one after the other.
const WORTHS: u64 = 0;

/// The mark of lasthop's own sockets.
pub(super) fn mark(config: &MobileConfig) -> u32 {
    config.transparent.as_ref().map_or(Numbers::MOBILE.mark, |transparent| transparent.numbers.mark)
}

/// The device, if the configuration has one.
///
/// # Errors
///
/// It cannot be had, or packets not be led to it.
pub(super) fn open(config: &MobileConfig, seed: Seed) -> Result<Option<TunWay>, RunError> {
    let Some(tun) = &config.tun else { return Ok(None) };
    let misfit = |error: &dyn std::fmt::Display| RunError::Misfit(error.to_string());
    let mut queues = PacketTun::open(&tun.name, 1, tun.mtu).map_err(|error| misfit(&error))?;
    let tunnel = MobileTunnel {
        addresses: tun.addresses.clone(),
        host: tun.host,
        interfaces: tun.interfaces.clone(),
        exclude: tun.exclude.clone(),
        tcp: tun.tcp,
        mark: mark(config),
    };
    let tunnel = Tunnel::mobile(&tun.name, &tunnel).map_err(|error| misfit(&error))?;
    let own = tun.addresses.iter().copied();
    let sorting = Sorting::new(seed.stream("flows").next_u64(), &config.packets, own);
    Ok(queues.pop().map(|device| TunWay::new(device, Vec::new(), sorting, Some(tunnel))))
}

/// Tells the base what a flow is worth. What cannot be sent is said again.
fn tell(now: Time, lane: &mut PacketLane, worth: &FlowWorth) {
    let mut record = Vec::new();
    worth.encode(&mut record);
    let packet = OutgoingPacket {
        client: OWN.into(),
        flow: WORTHS,
        ecn_capable: false,
        class: PacketClass::TRANSPORT,
        data: &record,
    };
    let _ = lane.send(now, &packet);
}

impl MobileRole {
    /// Packets have come to the device.
    pub(super) fn send_packets(&mut self, core: &mut Core) {
        let Some(way) = &mut self.packets else { return };
        let (now, sorting, at) = (core.now, way.sorting().clone(), self.at);
        let priorities = &mut self.priorities;
        way.receive(now, |packet, bytes| match core.hop.packets(at) {
            Some(lane) => {
                let worth = priorities.worth_of(now, packet, &sorting);
                packets::send(now, &sorting, lane, packet, bytes, (packet.source(), worth))
            }
            None => Verdict::Answered("no association", IcmpError::HostUnreachable),
        });
    }

    /// Tells the base what flows of packets are worth.
    pub(super) fn tell_worths(&mut self, core: &mut Core) {
        let (now, at) = (core.now, self.at);
        let Some(way) = self.packets.as_ref() else { return };
        if self.priorities.tell_at().is_none_or(|due| now < due) {
            return;
        }
        match core.hop.packets(at) {
            Some(lane) => {
                self.priorities.tell((now, at), way.sorting(), |worth| tell(now, lane, &worth));
            }
            None => self.priorities.packet_flows().defer(now),
        }
    }

    /// Sends by the present hop what has not left by the one before.
    pub(super) fn carry_packets_on(&mut self, core: &mut Core, left: u32) {
        self.priorities.packet_flows().change(core.now);
        let Some(way) = &mut self.packets else { return };
        let Some(lane) = core.hop.packets_so_far(left) else { return };
        let (now, taken) = (core.now, lane.take_back(core.now));
        let Some(lane) = core.hop.packets(self.at) else { return };
        for bytes in taken {
            if let Ok(packet) = Packet::inspect(&bytes) {
                let sorting = way.sorting();
                let worth = self.priorities.worth_of(now, &packet, sorting);
                let of = (packet.source(), worth);
                way.count(packets::send(now, sorting, lane, &packet, &bytes, of));
            }
        }
    }
}
