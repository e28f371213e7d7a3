//! What `status` shows of a split-tcp association.

use std::net::SocketAddr;
use std::time::Duration;

use lasthop_control::AssociationReport;
use lasthop_hop::seal::PublicKey;

use super::streams::SplitTcp;

pub(super) fn of(
    streams: &SplitTcp,
    id: u64,
    peer: Option<PublicKey>,
    address: Option<SocketAddr>,
    state: &str,
    age: Duration,
) -> AssociationReport {
    AssociationReport {
        id,
        peer: peer.map(|key| key.to_string()),
        address: address.map(|addr| addr.to_string()),
        state: state.to_owned(),
        age_s: age.as_secs_f64(),
        streams: streams.len() as u64,
        bytes_sent: streams.totals.sent,
        bytes_received: streams.totals.received,
        ..AssociationReport::default()
    }
}
