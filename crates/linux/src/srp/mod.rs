//! `srp`: the hop crossed by SRP over UDP. The machines are the hop's; here are their sockets.

mod base;
mod mobile;

pub(crate) use base::SrpBase;
pub(crate) use mobile::SrpMobile;

use std::net::SocketAddr;
use std::time::Duration;

use lasthop_hop::seal::PublicKey;
use lasthop_hop::srp::CloseReason;
use lasthop_hop::{HopConfig, HopStats};
use lasthop_units::Bytes;

use crate::config::SrpFile;
use crate::control::AssociationReport;
use crate::tcp;

/// IPv4 and UDP headers.
const OVERHEAD_IPV4: u64 = 20 + 8;
/// IPv6 and UDP headers.
const OVERHEAD_IPV6: u64 = 40 + 8;

/// The longest IP packet that is tried when nobody says: Ethernet's.
const MTU: Bytes = Bytes::new(1500);

/// The machines' configuration. `ipv6` says that datagrams may travel in IPv6.
pub(crate) fn config(settings: &SrpFile, ipv6: bool, streams_max: usize) -> HopConfig {
    let overhead = Bytes::new(if ipv6 { OVERHEAD_IPV6 } else { OVERHEAD_IPV4 });
    let defaults = HopConfig::default();
    HopConfig {
        datagram_max: (settings.mtu_max.unwrap_or(MTU) - overhead).max(defaults.datagram_base),
        carrier_overhead: overhead,
        stream_memory: settings.connection_memory.unwrap_or(defaults.stream_memory),
        association_memory: settings.association_memory.unwrap_or(defaults.association_memory),
        streams_max,
        silence_limit: settings.silence_limit.unwrap_or(defaults.silence_limit),
        ..defaults
    }
}

/// Why an association ended, for people.
fn why(reason: CloseReason) -> String {
    match reason {
        CloseReason::Shutdown => "the peer has shut down".to_owned(),
        CloseReason::Protocol => "the peer broke the protocol".to_owned(),
        CloseReason::Silence => "the peer was silent for too long".to_owned(),
        CloseReason::Replaced => "the mobile has made a new association".to_owned(),
        CloseReason::Other(code) => format!("the peer's reason {code} is unknown"),
    }
}

fn report(
    id: u64,
    peer: Option<PublicKey>,
    address: Option<SocketAddr>,
    state: &str,
    age: Duration,
    stats: &HopStats,
) -> AssociationReport {
    let ms = |d: Duration| (d > Duration::ZERO).then_some(d.as_secs_f64() * 1e3);
    AssociationReport {
        id,
        peer: peer.map(|key| key.to_string()),
        address: address.map(|addr| tcp::canonical(addr).to_string()),
        state: state.to_owned(),
        age_s: age.as_secs_f64(),
        streams: stats.streams as u64,
        pacing_bps: Some(stats.pacing_rate.as_bps()),
        delivery_bps: Some(stats.delivery_rate.as_bps()),
        loss: Some(stats.loss),
        srtt_ms: ms(stats.srtt),
        min_rtt_ms: ms(stats.min_rtt),
        queue_ms: Some(stats.queue.as_secs_f64() * 1e3),
        mtu: Some(stats.mtu.get()),
        packets_sent: Some(stats.datagrams_sent),
        packets_lost: Some(stats.lost),
        packets_received: Some(stats.datagrams_received),
        bytes_sent: stats.bytes_sent.get(),
        bytes_retransmitted: Some(stats.bytes_retransmitted.get()),
        bytes_received: stats.bytes_received.get(),
    }
}
