//! Datagrams of applications' UDP sockets on their way into the lane of an association, and what is
//! counted of them. Mobile and base have this in common.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use lasthop_control::UdpReport;
use lasthop_hop::{OutgoingPacket, PacketClass, PacketError, PacketLane};
use lasthop_session::udp_relay::UdpRecord;
use lasthop_units::Time;

use crate::packets::{PacketRule, PacketRules};

/// What closes a socket, which would stay open without it, is sent for as long as the lane sends anything again.
const CLOSE: PacketClass = PacketClass {
    patience_min: Duration::from_secs(4),
    lifetime: Duration::from_secs(4),
    ..PacketClass::TRANSPORT
};

/// What became of datagrams.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Put into a lane.
    pub(crate) to_hop: u64,
    /// Handed to the kernel.
    pub(crate) from_hop: u64,
    refused: BTreeMap<&'static str, u64>,
}

impl Counts {
    /// One was dropped.
    pub(crate) fn refuse(&mut self, why: &'static str) {
        *self.refused.entry(why).or_default() += 1;
    }

    pub(crate) fn report(&self, sockets: usize) -> UdpReport {
        let refused = self.refused.iter().map(|(why, count)| ((*why).to_owned(), *count));
        UdpReport {
            sockets: sockets as u64,
            to_hop: self.to_hop,
            from_hop: self.from_hop,
            refused: refused.collect(),
        }
    }
}

/// Writes records into lanes.
#[derive(Debug, Default)]
pub(crate) struct Records {
    /// Makes the names of flows, which nobody is to foresee.
    hashes: RandomState,
    record: Vec<u8>,
    rules: PacketRules,
    pub(crate) counts: Counts,
}

impl Records {
    /// Datagrams are worth what these say.
    pub(crate) fn ruled_by(rules: &[PacketRule]) -> Self {
        Self { rules: rules.into(), ..Self::default() }
    }

    /// Puts a record into a lane, if there is one. `client` is the host at the mobile whose it is: hosts share the hop
    /// before flows do. What cannot be sent is counted, and is as good as lost on the way.
    pub(crate) fn send(
        &mut self,
        now: Time,
        lane: Option<&mut PacketLane>,
        client: u32,
        record: &UdpRecord<'_>,
    ) {
        let is_datagram = matches!(record, UdpRecord::Datagram { .. });
        match self.queue(now, lane, client, record) {
            Ok(()) => self.counts.to_hop += u64::from(is_datagram),
            Err(why) if is_datagram => self.counts.refuse(why),
            Err(_) => {}
        }
    }

    fn queue(
        &mut self,
        now: Time,
        lane: Option<&mut PacketLane>,
        client: u32,
        record: &UdpRecord<'_>,
    ) -> Result<(), &'static str> {
        let lane = lane.ok_or("no association")?;
        self.record.clear();
        record.encode(&mut self.record).map_err(|_| "too long")?;
        let (class, remote) = match record {
            UdpRecord::Datagram { remote, payload, .. } => {
                (self.rules.class_of_datagram(remote, payload.len()), Some(remote))
            }
            UdpRecord::Undelivered { remote, .. } => (PacketClass::default(), Some(remote)),
            UdpRecord::Close { .. } => (CLOSE, None),
        };
        let packet = OutgoingPacket {
            client: client.into(),
            flow: self.hashes.hash_one((record.socket(), remote)),
            ecn_capable: false,
            class,
            data: &self.record,
        };
        lane.send(now, &packet).map_err(|error| match error {
            PacketError::NoMemory => "memory",
            PacketError::BadLength(..) => "too long",
        })
    }
}

#[cfg(test)]
mod tests {
    use lasthop_session::Target;
    use lasthop_session::udp_sockets::SocketNumber;

    use super::*;

    #[test]
    fn what_cannot_be_sent_is_counted_by_why() {
        let mut records = Records::default();
        let remote = Target::from_host("192.0.2.7", 53).unwrap();
        let socket = SocketNumber(1);
        let record = UdpRecord::Datagram { socket, remote, payload: b"query" };
        records.send(Time::ZERO, None, 1, &record);
        records.send(Time::ZERO, None, 1, &UdpRecord::Close { socket });
        let report = records.counts.report(3);
        assert_eq!((report.sockets, report.to_hop), (3, 0));
        assert_eq!(report.refused, BTreeMap::from([("no association".to_owned(), 1)]));
    }
}
