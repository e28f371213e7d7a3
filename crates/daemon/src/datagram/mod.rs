//! Hops that are machines over datagrams: any transport with any carrier. The machines are the
//! hop's; here they meet their sockets.

mod base;
mod mobile;
pub(crate) mod settings;
mod transits;

pub(crate) use base::DatagramBase;
pub(crate) use mobile::DatagramMobile;

use std::time::Duration;

use lasthop_control::past::{Counted, Progress};
use lasthop_control::{AssociationReport, PacketReport, PathReport};
use lasthop_hop::seal::PublicKey;
use lasthop_hop::{CloseReason, HopStats, PacketStats, PathId, PathStats};
use lasthop_units::{Rate, Time};

use crate::carrier::Carrier;

/// While the carrier takes no more the machine can do nothing, and the carrier is asked again this often.
/// Waiting until the kernel reports room would wake the loop for every datagram that leaves it.
const BLOCKED_TICK: Duration = Duration::from_millis(1);

/// Acknowledgements are that far apart, too: so nothing is repaired later for it.
const WAITS_PER_ROUND_TRIP: u32 = 16;
/// Longest that what comes waits while bytes move.
const WAIT_MAX: Duration = Duration::from_millis(4);

/// How long what comes on a hop may wait so that more is done in one wake-up.
fn patience(stats: &HopStats) -> Duration {
    (stats.srtt / WAITS_PER_ROUND_TRIP).min(WAIT_MAX)
}

/// What an association has done since so much was counted.
fn progress(counted: &mut Counted, stats: &HopStats) -> Progress {
    let (to_hop, from_hop) = counted.advance(
        stats.bytes_sent.get() + stats.packets.bytes_sent,
        stats.bytes_received.get() + stats.packets.bytes_received,
    );
    Progress {
        to_hop,
        from_hop,
        loss: Some(stats.loss),
        queue_ms: queue_ms(stats.pacing_rate, stats.queue),
    }
}

/// What does not pace does not know a queue.
fn queue_ms(pacing: Rate, queue: Duration) -> Option<f64> {
    (pacing > Rate::ZERO).then_some(queue.as_secs_f64() * 1e3)
}

/// What is not known is absent.
fn ms(duration: Duration) -> Option<f64> {
    (duration > Duration::ZERO).then_some(duration.as_secs_f64() * 1e3)
}

fn bps(rate: Rate) -> Option<u64> {
    (rate > Rate::ZERO).then_some(rate.as_bps())
}

/// When the machine or the carrier wants to be called next.
fn next_timeout(carrier: &dyn Carrier, machine: Option<Time>, now: Time) -> Option<Time> {
    let machine = if carrier.is_blocked() { Some(now + BLOCKED_TICK) } else { machine };
    [machine, carrier.next_timeout()].into_iter().flatten().min()
}

/// Why an association ended, for people.
fn why(reason: CloseReason) -> String {
    match reason {
        CloseReason::Shutdown => "the peer has shut down".to_owned(),
        CloseReason::Protocol => "the peer broke the protocol".to_owned(),
        CloseReason::Silence => "the peer was silent for too long".to_owned(),
        CloseReason::Replaced => "the mobile has made a new association".to_owned(),
        CloseReason::Unreachable => {
            "the base's host says that the base is not there any more".to_owned()
        }
        CloseReason::Revoked => "the mobile is no longer allowed".to_owned(),
        CloseReason::Other(code) => format!("the peer's reason {code} is unknown"),
    }
}

fn report(
    id: u64,
    peer: Option<PublicKey>,
    address: Option<String>,
    state: &str,
    age: Duration,
    stats: &HopStats,
) -> AssociationReport {
    AssociationReport {
        id,
        peer: peer.map(|key| key.to_string()),
        address,
        state: state.to_owned(),
        age_s: age.as_secs_f64(),
        streams: stats.streams as u64,
        pacing_bps: bps(stats.pacing_rate),
        delivery_bps: bps(stats.delivery_rate),
        loss: Some(stats.loss),
        srtt_ms: ms(stats.srtt),
        min_rtt_ms: ms(stats.min_rtt),
        queue_ms: queue_ms(stats.pacing_rate, stats.queue),
        mtu: Some(stats.mtu.get()).filter(|mtu| *mtu > 0),
        memory: Some(stats.memory.get()),
        packets_sent: Some(stats.datagrams_sent),
        packets_lost: Some(stats.lost),
        packets_received: Some(stats.datagrams_received),
        bytes_sent: stats.bytes_sent.get(),
        bytes_retransmitted: Some(stats.bytes_retransmitted.get()),
        bytes_received: stats.bytes_received.get(),
        packets: packets(&stats.packets),
        paths: Vec::new(),
        transit: None,
    }
}

/// A path, which leads there; `name` says how paths are called.
fn path_report(
    stats: &PathStats,
    name: impl Fn(PathId) -> String,
    address: Option<String>,
) -> PathReport {
    PathReport {
        name: name(stats.id),
        address,
        state: if stats.silent { "silent" } else { "up" }.to_owned(),
        base: None,
        cap: None,
        used_today: None,
        pacing_bps: bps(stats.pacing_rate),
        delivery_bps: bps(stats.delivery_rate),
        loss: stats.loss,
        srtt_ms: ms(stats.srtt),
        min_rtt_ms: ms(stats.min_rtt),
        queue_ms: queue_ms(stats.pacing_rate, stats.queue),
        mtu: stats.mtu.get(),
        bytes_sent: stats.bytes_sent.get(),
        bytes_received: stats.bytes_received.get(),
        shares_with: stats.shares_with.iter().map(name).collect(),
    }
}

/// Absent where the hop carries no packets, or has not yet.
fn packets(stats: &PacketStats) -> Option<PacketReport> {
    let PacketStats { sent, bytes_sent, repeated, doubled, marked, given_up, .. } = *stats;
    let PacketStats { dropped_queue, dropped_memory, dropped_old, dropped_received, .. } = *stats;
    let PacketStats { received, bytes_received, duplicates, late, flows, bytes_held, .. } = *stats;
    let report = PacketReport {
        sent,
        bytes_sent,
        repeated,
        doubled,
        dropped_queue,
        dropped_memory,
        dropped_old,
        marked,
        given_up,
        received,
        bytes_received,
        duplicates,
        late,
        dropped_received,
        flows,
        bytes_held,
    };
    (report != PacketReport::default()).then_some(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_reported_once_there_were_some() {
        assert_eq!(packets(&PacketStats::default()), None);
        let stats = PacketStats { dropped_old: 2, late: 1, ..PacketStats::default() };
        let report = packets(&stats).unwrap();
        assert_eq!((report.dropped(), report.late, report.sent), (2, 1, 0));
    }
}
