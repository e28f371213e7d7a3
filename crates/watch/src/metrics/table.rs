//! Every metric: what it is called, what it says and where it is read.

use std::collections::BTreeMap;

use lasthop_control::{
    AgentReport, BaseReport, HandoffState, Handoffs, InterfaceReport, PacketReport, PathReport,
};

use super::{Labels, Metric, MetricType, Samples, View, programs::Program};

/// States of an association, and of a mobile's base.
const ASSOCIATION_STATES: [&str; 5] = ["up", "silent", "connecting", "down", "closing"];
const BASE_STATES: [&str; 5] = ["up", "silent", "connecting", "down", "idle"];
const CONNECTION_STATES: [&str; 5] = ["opening", "open", "sent-end", "got-end", "closing"];
const LINK_STATES: [&str; 3] = ["up", "down", "imminent"];

/// Bases, and peers of a base, that have series of their own.
const NEIGHBOURS_MAX: usize = 64;
/// Counters of an agent's schemes that have series of their own.
const EVENTS_MAX: usize = 256;

/// A row for each metric: its kind, its name and unit, what it says, and how it is read.
macro_rules! metrics {
    ($($kind:ident $name:literal $(in $unit:literal)?: $help:literal, $read:expr;)*) => {
        &[$(Metric {
            name: $name,
            unit: metrics!(@unit $($unit)?),
            kind: MetricType::$kind,
            help: $help,
            read: $read,
        }),*]
    };
    (@unit) => { None };
    (@unit $unit:literal) => { Some($unit) };
}

/// Every metric that a process can show, in the order in which they are shown.
pub(super) static METRICS: &[Metric] = metrics! {
    Info "lasthop_build": "What runs: its version, its role (base, mobile or agent) and its hop.",
        |view, to| to.add(build(view), Some(true));
    Gauge "lasthop_uptime" in "seconds": "Time since the process was started.",
        |view, to| to.only(Some(view.report.uptime_s));
    Counter "process_cpu" in "seconds":
        "Processor time that the process has used, user and system.",
        |view, to| to.only(view.process.map(|process| process.cpu_s));
    Gauge "process_resident_memory" in "bytes": "Memory that the process has in use.",
        |view, to| to.only(view.process.and_then(|process| process.resident_bytes));
    Gauge "process_open_fds": "Descriptors that the process has open.",
        |view, to| to.only(view.process.and_then(|process| process.open_fds));
    Counter "lasthop_connections_opened": "Connections that stood.",
        |view, to| to.only(split(view, view.report.counters.opened));
    Counter "lasthop_connections_refused":
        "Connections that were refused or failed before they stood.",
        |view, to| to.only(split(view, view.report.counters.refused));
    Counter "lasthop_connections_closed": "Connections that are over.",
        |view, to| to.only(split(view, view.report.counters.closed));
    Counter "lasthop_garbage": "Datagrams, or connections on the hop, that were no peer's.",
        |view, to| to.only(split(view, view.report.counters.garbage));
    Gauge "lasthop_connections": "Connections at this moment, by their state.",
        connections;
    Gauge "lasthop_memory_bound" in "bytes":
        "What the buffers of all connections of a base may take.",
        |view, to| to.only(view.report.memory.map(|memory| memory.bound));
    Gauge "lasthop_memory_promised" in "bytes":
        "What these buffers take, and what peers may send before more is granted.",
        |view, to| to.only(view.report.memory.map(|memory| memory.promised));
    Gauge "lasthop_association_state":
        "1 for the state that the association with a peer is in, 0 for the others.",
        |view, to| {
            for a in view.current {
                to.states(&a.labels, &ASSOCIATION_STATES, &a.report.state);
            }
        };
    Gauge "lasthop_association_age" in "seconds": "Time since the association came up.",
        |view, to| each_association(view, to, |a| Some(a.age_s));
    Gauge "lasthop_association_streams": "Connections that the association carries at this moment.",
        |view, to| each_association(view, to, |a| Some(a.streams));
    Gauge "lasthop_association_pacing" in "bytes_per_second":
        "The rate at which datagrams may leave.",
        |view, to| each_association(view, to, |a| a.pacing_bps.map(bytes));
    Gauge "lasthop_association_delivery" in "bytes_per_second":
        "The rate at which the hop was last measured to deliver.",
        |view, to| each_association(view, to, |a| a.delivery_bps.map(bytes));
    Gauge "lasthop_association_loss" in "ratio":
        "The share of what was sent that was lost, of late.",
        |view, to| each_association(view, to, |a| a.loss);
    Gauge "lasthop_association_srtt" in "seconds": "The smoothed round trip.",
        |view, to| each_association(view, to, |a| a.srtt_ms.map(seconds));
    Gauge "lasthop_association_min_rtt" in "seconds": "The least round trip.",
        |view, to| each_association(view, to, |a| a.min_rtt_ms.map(seconds));
    Gauge "lasthop_association_queue" in "seconds":
        "The queue on the way to the peer: the round trip beyond its least.",
        |view, to| each_association(view, to, |a| a.queue_ms.map(seconds));
    Gauge "lasthop_association_mtu" in "bytes": "The longest datagram that is known to pass.",
        |view, to| each_association(view, to, |a| a.mtu);
    Gauge "lasthop_association_memory" in "bytes":
        "What buffers of the association's connections hold.",
        |view, to| each_association(view, to, |a| a.memory);
    Counter "lasthop_association_sent_packets": "Datagrams sent to the peer.",
        |view, to| each_association(view, to, |a| a.packets_sent);
    Counter "lasthop_association_lost_packets":
        "Datagrams sent to the peer that were lost on the way.",
        |view, to| each_association(view, to, |a| a.packets_lost);
    Counter "lasthop_association_received_packets": "Datagrams received from the peer.",
        |view, to| each_association(view, to, |a| a.packets_received);
    Counter "lasthop_association_sent" in "bytes": "Bytes of applications sent to the peer.",
        |view, to| each_association(view, to, |a| Some(a.bytes_sent));
    Counter "lasthop_association_retransmitted" in "bytes":
        "Bytes of applications sent to the peer more than once.",
        |view, to| each_association(view, to, |a| a.bytes_retransmitted);
    Counter "lasthop_association_received" in "bytes":
        "Bytes of applications received from the peer.",
        |view, to| each_association(view, to, |a| Some(a.bytes_received));
    Gauge "lasthop_path_up": "Whether a path answers, where an association has several.",
        |view, to| each_path(view, to, |p| Some(f64::from(u8::from(p.state == "up"))));
    Gauge "lasthop_path_delivery" in "bytes_per_second":
        "The rate at which the path was last measured to deliver.",
        |view, to| each_path(view, to, |p| p.delivery_bps.map(bytes));
    Gauge "lasthop_path_loss" in "ratio": "The share of what was sent by the path that was lost, of late.",
        |view, to| each_path(view, to, |p| Some(p.loss));
    Gauge "lasthop_path_srtt" in "seconds": "The path's smoothed round trip.",
        |view, to| each_path(view, to, |p| p.srtt_ms.map(seconds));
    Gauge "lasthop_path_queue" in "seconds": "The queue on the path: the round trip beyond its least.",
        |view, to| each_path(view, to, |p| p.queue_ms.map(seconds));
    Counter "lasthop_path_sent" in "bytes": "Bytes sent by the path, with all headers.",
        |view, to| each_path(view, to, |p| Some(p.bytes_sent));
    Counter "lasthop_path_received" in "bytes": "Bytes received by the path, with all headers.",
        |view, to| each_path(view, to, |p| Some(p.bytes_received));
    Counter "lasthop_packets_sent":
        "Packets beside the streams, IP packets for instance, sent to the peer for the first time.",
        |view, to| each_packets(view, to, |p| p.sent);
    Counter "lasthop_packets_sent" in "bytes": "Their bytes.",
        |view, to| each_packets(view, to, |p| p.bytes_sent);
    Counter "lasthop_packets_repeated":
        "Packets sent again because they were lost, or parts of them.",
        |view, to| each_packets(view, to, |p| p.repeated);
    Counter "lasthop_packets_doubled": "Packets sent twice at once, against loss.",
        |view, to| each_packets(view, to, |p| p.doubled);
    Counter "lasthop_packets_dropped":
        "Packets dropped: before they were sent because their queue was too long for too long, \
            for lack of memory, or because they were too old; or received and of no use.",
        |view, to| {
            for association in view.current {
                let Some(p) = association.report.packets else { continue };
                for (reason, count) in [
                    ("queue", p.dropped_queue),
                    ("memory", p.dropped_memory),
                    ("old", p.dropped_old),
                    ("unused", p.dropped_received),
                ] {
                    let reason = [("reason", reason.to_owned())];
                    to.add([&association.labels[..], &reason].concat(), Some(count));
                }
            }
        };
    Counter "lasthop_packets_marked": "Packets marked (ECN) rather than dropped.",
        |view, to| each_packets(view, to, |p| p.marked);
    Counter "lasthop_packets_given_up":
        "Packets lost on the hop that were too old to be sent again.",
        |view, to| each_packets(view, to, |p| p.given_up);
    Counter "lasthop_packets_received": "Packets received from the peer and delivered.",
        |view, to| each_packets(view, to, |p| p.received);
    Counter "lasthop_packets_received" in "bytes": "Their bytes.",
        |view, to| each_packets(view, to, |p| p.bytes_received);
    Counter "lasthop_packets_duplicate": "Packets that came twice.",
        |view, to| each_packets(view, to, |p| p.duplicates);
    Counter "lasthop_packets_late":
        "Packets that came when those behind them in their flow had been delivered.",
        |view, to| each_packets(view, to, |p| p.late);
    Gauge "lasthop_packets_flows": "Flows that have packets queued or on their way at this moment.",
        |view, to| each_packets(view, to, |p| p.flows);
    Gauge "lasthop_packets_held" in "bytes":
        "Bytes of packets that are queued, on their way, or waiting for others at this moment.",
        |view, to| each_packets(view, to, |p| p.bytes_held);
    Counter "lasthop_tun_packets":
        "Packets of the TUN device: from and to the kernel, and from and to other bases.",
        |view, to| {
            let Some(tun) = &view.report.tun else { return };
            let kernel = [("from_kernel", tun.from_kernel), ("to_kernel", tun.to_kernel)];
            let bases = [("from_bases", tun.from_bases), ("to_bases", tun.to_bases)];
            for (way, count) in kernel.into_iter().chain(bases) {
                to.add(vec![("way", way.to_owned())], Some(count));
            }
        };
    Counter "lasthop_tun_refused": "Packets of the TUN device that were dropped.",
        |view, to| refused(to, view.report.tun.as_ref().map(|tun| &tun.refused));
    Gauge "lasthop_udp_sockets": "UDP sockets of applications at this moment.",
        |view, to| to.only(view.report.udp.as_ref().map(|udp| udp.sockets));
    Counter "lasthop_udp_datagrams":
        "Datagrams of applications' UDP sockets that went into the hop, and that came out of it.",
        |view, to| {
            let Some(udp) = &view.report.udp else { return };
            for (direction, count) in [("to_hop", udp.to_hop), ("from_hop", udp.from_hop)] {
                to.add(vec![("direction", direction.to_owned())], Some(count));
            }
        };
    Counter "lasthop_udp_refused": "Datagrams of applications' UDP sockets that were dropped.",
        |view, to| refused(to, view.report.udp.as_ref().map(|udp| &udp.refused));
    Gauge "lasthop_base_state":
        "1 for the state that a base is in as the mobile sees it, 0 for the others.",
        |view, to| {
            for base in bases(view) {
                to.states(&base_label(base), &BASE_STATES, &base.state);
            }
        };
    Gauge "lasthop_base_current": "1 for the base that the mobile's connections go through.",
        |view, to| each_base(view, to, |base| Some(u64::from(base.current)));
    Counter "lasthop_base_handoffs": "How often the mobile's connections moved to the base.",
        |view, to| each_base(view, to, |base| Some(base.handoffs));
    Gauge "lasthop_base_last_pause" in "seconds":
        "How long connections stood still when they last moved to the base.",
        |view, to| each_base(view, to, |base| base.last_pause_s);
    Gauge "lasthop_peer_up": "Whether a base has an association with another base.",
        |view, to| {
            for peer in view.report.peers.iter().take(NEIGHBOURS_MAX) {
                to.add(vec![("peer", peer.name.clone())], Some(peer.up));
            }
        };
    Counter "lasthop_handoffs":
        "Handoffs of sessions: that came here (at a mobile, its own), that were given to \
            another base, that were refused.",
        |view, to| outcomes(view, to, |h| {
            [("here", h.here), ("given", h.given), ("refused", h.refused)]
        });
    Counter "lasthop_handoff_connections":
        "Connections of sessions that came here: anchored at another base, migrated with their \
            wired half, or lost.",
        |view, to| outcomes(view, to, |h| {
            [("anchored", h.anchored), ("migrated", h.migrated), ("lost", h.lost)]
        });
    Counter "lasthop_handoff_orphans":
        "Connections of bases that were dead: that went on here, or could not.",
        |view, to| outcomes(view, to, |h| {
            [("taken", h.orphans_taken), ("lost", h.orphans_lost)]
        });
    Gauge "lasthop_handoff_under_way": "Whether the mobile's latest handoff is not over.",
        |view, to| {
            let latest = view.report.handoff.as_ref();
            to.only(latest.map(|handoff| handoff.state == HandoffState::UnderWay));
        };
    Gauge "lasthop_handoff_last_pause" in "seconds":
        "How long connections stood still in the mobile's latest handoff.",
        |view, to| to.only(view.report.handoff.as_ref().and_then(|h| h.pause_s));
    Gauge "lasthop_program_connections": "A program's connections at this moment.",
        |view, to| each_program(view, to, |program| Some(program.connections));
    Gauge "lasthop_program_priority": "The highest priority of a program's connections.",
        |view, to| each_program(view, to, |program| program.priority.map(u64::from));
    Counter "lasthop_program_to_hop" in "bytes":
        "Bytes of a program into the hop, as far as they were looked at.",
        |view, to| each_program(view, to, |program| Some(program.to_hop));
    Counter "lasthop_program_from_hop" in "bytes":
        "Bytes of a program out of the hop, as far as they were looked at.",
        |view, to| each_program(view, to, |program| Some(program.from_hop));
    Info "lasthop_agent":
        "The agent's schemes, from the fixed side to the mobile side, and its interfaces.",
        |view, to| {
            if let Some(agent) = &view.report.agent {
                to.add(agent_labels(agent), Some(true));
            }
        };
    Gauge "lasthop_agent_peer_up": "Whether the agent at the other end of the hop is heard.",
        |view, to| to.only(view.report.agent.as_ref().and_then(|agent| agent.peer));
    Gauge "lasthop_agent_link_state":
        "1 for what was last heard of the agent's link, 0 for what else it could be.",
        |view, to| {
            if let Some(agent) = &view.report.agent {
                to.states(&Labels::new(), &LINK_STATES, &agent.link);
            }
        };
    Gauge "lasthop_agent_interface_up": "Whether an interface of the agent is there and carries.",
        |view, to| each_side(view, to, |interface| u64::from(interface.up));
    Counter "lasthop_agent_received_packets":
        "Packets that came in by an interface and were the agent's.",
        |view, to| each_side(view, to, |interface| interface.packets_received);
    Counter "lasthop_agent_received" in "bytes":
        "Bytes of packets that came in by an interface, with Ethernet headers.",
        |view, to| each_side(view, to, |interface| interface.bytes_received);
    Counter "lasthop_agent_sent_packets": "Packets that the agent sent by an interface.",
        |view, to| each_side(view, to, |interface| interface.packets_sent);
    Counter "lasthop_agent_sent" in "bytes":
        "Bytes of packets that the agent sent by an interface, with Ethernet headers.",
        |view, to| each_side(view, to, |interface| interface.bytes_sent);
    Counter "lasthop_agent_missed_packets":
        "Packets that came in and were lost because the agent did not keep up.",
        |view, to| each_side(view, to, |interface| interface.packets_missed);
    Counter "lasthop_agent_unsent_packets":
        "Packets that an interface did not take from the agent.",
        |view, to| each_side(view, to, |interface| interface.packets_unsent);
    Counter "lasthop_agent_events": "What the agent's schemes count, each by its own name.",
        |view, to| {
            let counters = view.report.agent.iter().flat_map(|agent| &agent.counters);
            for (event, count) in counters.take(EVENTS_MAX) {
                to.add(vec![("event", event.clone())], Some(*count));
            }
        };
};

fn build(view: &View<'_>) -> Labels {
    let report = view.report;
    let mut labels = vec![("version", report.version.clone()), ("role", report.role.clone())];
    if !report.hop.is_empty() {
        labels.push(("hop", report.hop.clone()));
    }
    labels
}

/// An agent opens and closes no connections: for it these counts would be nothing but zeros.
fn split(view: &View<'_>, count: u64) -> Option<u64> {
    view.report.agent.is_none().then_some(count)
}

fn connections(view: &View<'_>, to: &mut Samples) {
    for state in CONNECTION_STATES {
        let those = view.report.connections.iter().filter(|c| c.state == state);
        to.add(vec![("state", state.to_owned())], Some(those.count() as u64));
    }
}

fn outcomes<const N: usize>(
    view: &View<'_>,
    to: &mut Samples,
    read: impl Fn(&Handoffs) -> [(&'static str, u64); N],
) {
    for (outcome, count) in view.report.handoffs.iter().flat_map(read) {
        to.add(vec![("outcome", outcome.to_owned())], Some(count));
    }
}

fn each_association<V: Into<super::Value>>(
    view: &View<'_>,
    to: &mut Samples,
    read: impl Fn(&lasthop_control::AssociationReport) -> Option<V>,
) {
    for association in view.current {
        to.add(association.labels.clone(), read(association.report));
    }
}

fn each_packets(view: &View<'_>, to: &mut Samples, read: impl Fn(&PacketReport) -> u64) {
    each_association(view, to, |a| a.packets.as_ref().map(&read));
}

fn each_path<V: Into<super::Value>>(
    view: &View<'_>,
    to: &mut Samples,
    read: impl Fn(&PathReport) -> Option<V>,
) {
    for association in view.current {
        for path in &association.report.paths {
            let labels = [&association.labels[..], &[("path", path.name.clone())]].concat();
            to.add(labels, read(path));
        }
    }
}

/// What was dropped, by why.
fn refused(to: &mut Samples, counts: Option<&BTreeMap<String, u64>>) {
    for (reason, count) in counts.into_iter().flatten().take(EVENTS_MAX) {
        to.add(vec![("reason", reason.clone())], Some(*count));
    }
}

fn bases<'a>(view: &View<'a>) -> impl Iterator<Item = &'a BaseReport> {
    view.report.bases.iter().take(NEIGHBOURS_MAX)
}

fn base_label(base: &BaseReport) -> Labels {
    vec![("base", base.name.clone())]
}

fn each_base<V: Into<super::Value>>(
    view: &View<'_>,
    to: &mut Samples,
    read: impl Fn(&BaseReport) -> Option<V>,
) {
    for base in bases(view) {
        to.add(base_label(base), read(base));
    }
}

fn each_program(view: &View<'_>, to: &mut Samples, read: impl Fn(&Program) -> Option<u64>) {
    for (name, program) in view.programs.iter() {
        to.add(vec![("program", name.to_owned())], read(program));
    }
}

fn each_side(view: &View<'_>, to: &mut Samples, read: impl Fn(&InterfaceReport) -> u64) {
    let Some(agent) = &view.report.agent else { return };
    for (side, interface) in [("fixed", &agent.fixed), ("mobile", &agent.mobile)] {
        let labels = vec![("side", side.to_owned()), ("interface", interface.name.clone())];
        to.add(labels, Some(read(interface)));
    }
}

fn agent_labels(agent: &AgentReport) -> Labels {
    vec![
        ("schemes", agent.schemes.join(" ")),
        ("fixed", agent.fixed.name.clone()),
        ("mobile", agent.mobile.name.clone()),
    ]
}

fn bytes(bps: u64) -> f64 {
    bps as f64 / 8.0
}

fn seconds(ms: f64) -> f64 {
    ms / 1e3
}
