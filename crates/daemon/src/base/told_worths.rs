//! What mobiles have told of flows of packets: their base sorts what goes to them by it.

use std::collections::BTreeMap;

use lasthop_hop::seal::PublicKey;
use lasthop_session::flow_worth::{FlowEnds, FlowWorth};
use lasthop_wire::mhp::MhpError;
use lasthop_wire::packet::Packet;

use crate::packets::{Worth, flow_ends};

/// Flows of a mobile of which something is kept.
const FLOWS_MAX: usize = 1024;

/// What was told of flows.
#[derive(Debug, Default)]
pub(super) struct ToldWorths(BTreeMap<PublicKey, BTreeMap<FlowEnds, Worth>>);

impl ToldWorths {
    /// A mobile has told something.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the record.
    pub(super) fn handle(&mut self, mobile: PublicKey, record: &[u8]) -> Result<(), MhpError> {
        let told = FlowWorth::decode(record)?;
        let worth = Worth::heard(&told);
        if worth == Worth::default() {
            if let Some(flows) = self.0.get_mut(&mobile) {
                flows.remove(&told.ends);
            }
            return Ok(());
        }
        let flows = self.0.entry(mobile).or_default();
        if flows.len() >= FLOWS_MAX && !flows.contains_key(&told.ends) {
            // Of those that are not over the mobile tells again.
            flows.clear();
        }
        flows.insert(told.ends, worth);
        Ok(())
    }

    /// What was told of the flow of a packet to a mobile.
    pub(super) fn of(&self, mobile: PublicKey, packet: &Packet) -> Worth {
        let flows = self.0.get(&mobile);
        let told = flows.and_then(|flows| flows.get(&flow_ends(packet, packet.destination())?));
        told.copied().unwrap_or_default()
    }

    /// A mobile has gone.
    pub(super) fn forget(&mut self, mobile: PublicKey) {
        self.0.remove(&mobile);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(port: u16, priority: u32) -> Vec<u8> {
        let ends = FlowEnds {
            protocol: 17,
            mobile: "10.9.0.7:9".parse().unwrap(),
            fixed: ([192, 0, 2, 7], port).into(),
        };
        let mut out = Vec::new();
        FlowWorth { ends, class: 0, priority, policy: 0 }.encode(&mut out);
        out
    }

    /// A UDP packet from a port of 192.0.2.7 to 10.9.0.7, port 9.
    fn packet(port: u16) -> Packet {
        let mut bytes = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
        bytes.extend([192, 0, 2, 7, 10, 9, 0, 7]);
        bytes.extend(port.to_be_bytes());
        bytes.extend([0, 9, 0, 8, 0, 0]);
        Packet::inspect(&bytes).unwrap()
    }

    #[test]
    fn what_is_told_counts_until_it_is_taken_back_and_many_flows_fill_no_memory() {
        let [mobile, other] = [1, 2].map(|n| PublicKey::from_bytes([n; 32]));
        let mut told = ToldWorths::default();
        told.handle(mobile, &record(53, 3)).unwrap();
        assert_eq!(told.of(mobile, &packet(53)).priority, 3);
        assert_eq!(told.of(mobile, &packet(54)), Worth::default());
        assert_eq!(told.of(other, &packet(53)), Worth::default());
        told.handle(mobile, &record(53, 1)).unwrap();
        assert_eq!(told.of(mobile, &packet(53)), Worth::default());
        for port in 1..5000 {
            told.handle(mobile, &record(port, 2)).unwrap();
            assert!(told.0[&mobile].len() <= FLOWS_MAX);
            assert_eq!(told.of(mobile, &packet(port)).priority, 2);
        }
        assert!(told.handle(mobile, &record(7, 2)[..9]).is_err());
        told.forget(mobile);
        assert_eq!(told.of(mobile, &packet(4999)), Worth::default());
    }
}
