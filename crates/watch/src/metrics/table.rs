//! Every metric: what it is called, what it says and where it is read.

use lasthop_control::{AgentReport, BaseReport, HandoffState, InterfaceReport};

use super::{Labels, Metric, MetricKind, Samples, View, programs::Program};

/// States of an association, and of a mobile's base.
const ASSOCIATION_STATES: [&str; 5] = ["up", "silent", "connecting", "down", "closing"];
const BASE_STATES: [&str; 5] = ["up", "silent", "connecting", "down", "idle"];
const CONNECTION_STATES: [&str; 5] = ["opening", "open", "sent-end", "got-end", "closing"];
const LINK_STATES: [&str; 3] = ["up", "down", "imminent"];

/// Bases, and peers of a base, that have series of their own.
const NEIGHBOURS_MAX: usize = 64;
/// Counters of an agent's schemes that have series of their own.
const EVENTS_MAX: usize = 256;

/// Every metric that a process can show, in the order in which they are shown.
pub static METRICS: &[Metric] = &[
    Metric {
        name: "lasthop_build",
        unit: None,
        kind: MetricKind::Info,
        help: "What runs: its version, its role (base, mobile or agent) and its hop.",
        read: |view, to| to.add(build(view), Some(true)),
    },
    Metric {
        name: "lasthop_uptime",
        unit: Some("seconds"),
        kind: MetricKind::Gauge,
        help: "Time since the process was started.",
        read: |view, to| to.only(Some(view.report.uptime_s)),
    },
    Metric {
        name: "process_cpu",
        unit: Some("seconds"),
        kind: MetricKind::Counter,
        help: "Processor time that the process has used, user and system.",
        read: |view, to| to.only(view.process.map(|process| process.cpu_s)),
    },
    Metric {
        name: "process_resident_memory",
        unit: Some("bytes"),
        kind: MetricKind::Gauge,
        help: "Memory that the process has in use.",
        read: |view, to| to.only(view.process.and_then(|process| process.resident_bytes)),
    },
    Metric {
        name: "process_open_fds",
        unit: None,
        kind: MetricKind::Gauge,
        help: "Descriptors that the process has open.",
        read: |view, to| to.only(view.process.and_then(|process| process.open_fds)),
    },
    Metric {
        name: "lasthop_connections_opened",
        unit: None,
        kind: MetricKind::Counter,
        help: "Connections that stood.",
        read: |view, to| to.only(split(view, view.report.counters.opened)),
    },
    Metric {
        name: "lasthop_connections_refused",
        unit: None,
        kind: MetricKind::Counter,
        help: "Connections that were refused or failed before they stood.",
        read: |view, to| to.only(split(view, view.report.counters.refused)),
    },
    Metric {
        name: "lasthop_connections_closed",
        unit: None,
        kind: MetricKind::Counter,
        help: "Connections that are over.",
        read: |view, to| to.only(split(view, view.report.counters.closed)),
    },
    Metric {
        name: "lasthop_garbage",
        unit: None,
        kind: MetricKind::Counter,
        help: "Datagrams, or connections on the hop, that were no peer's.",
        read: |view, to| to.only(split(view, view.report.counters.garbage)),
    },
    Metric {
        name: "lasthop_connections",
        unit: None,
        kind: MetricKind::Gauge,
        help: "Connections at this moment, by their state.",
        read: connections,
    },
    Metric {
        name: "lasthop_association_state",
        unit: None,
        kind: MetricKind::Gauge,
        help: "1 for the state that the association with a peer is in, 0 for the others.",
        read: |view, to| {
            for a in view.current {
                to.states(&a.labels, &ASSOCIATION_STATES, &a.report.state);
            }
        },
    },
    Metric {
        name: "lasthop_association_age",
        unit: Some("seconds"),
        kind: MetricKind::Gauge,
        help: "Time since the association came up.",
        read: |view, to| each_association(view, to, |a| Some(a.age_s)),
    },
    Metric {
        name: "lasthop_association_streams",
        unit: None,
        kind: MetricKind::Gauge,
        help: "Connections that the association carries at this moment.",
        read: |view, to| each_association(view, to, |a| Some(a.streams)),
    },
    Metric {
        name: "lasthop_association_pacing",
        unit: Some("bytes_per_second"),
        kind: MetricKind::Gauge,
        help: "The rate at which datagrams may leave.",
        read: |view, to| each_association(view, to, |a| a.pacing_bps.map(bytes)),
    },
    Metric {
        name: "lasthop_association_delivery",
        unit: Some("bytes_per_second"),
        kind: MetricKind::Gauge,
        help: "The rate at which the hop was last measured to deliver.",
        read: |view, to| each_association(view, to, |a| a.delivery_bps.map(bytes)),
    },
    Metric {
        name: "lasthop_association_loss",
        unit: Some("ratio"),
        kind: MetricKind::Gauge,
        help: "The share of what was sent that was lost, of late.",
        read: |view, to| each_association(view, to, |a| a.loss),
    },
    Metric {
        name: "lasthop_association_srtt",
        unit: Some("seconds"),
        kind: MetricKind::Gauge,
        help: "The smoothed round trip.",
        read: |view, to| each_association(view, to, |a| a.srtt_ms.map(seconds)),
    },
    Metric {
        name: "lasthop_association_min_rtt",
        unit: Some("seconds"),
        kind: MetricKind::Gauge,
        help: "The least round trip.",
        read: |view, to| each_association(view, to, |a| a.min_rtt_ms.map(seconds)),
    },
    Metric {
        name: "lasthop_association_queue",
        unit: Some("seconds"),
        kind: MetricKind::Gauge,
        help: "The queue on the way to the peer: the round trip beyond its least.",
        read: |view, to| each_association(view, to, |a| a.queue_ms.map(seconds)),
    },
    Metric {
        name: "lasthop_association_mtu",
        unit: Some("bytes"),
        kind: MetricKind::Gauge,
        help: "The longest datagram that is known to pass.",
        read: |view, to| each_association(view, to, |a| a.mtu),
    },
    Metric {
        name: "lasthop_association_sent_packets",
        unit: None,
        kind: MetricKind::Counter,
        help: "Datagrams sent to the peer.",
        read: |view, to| each_association(view, to, |a| a.packets_sent),
    },
    Metric {
        name: "lasthop_association_lost_packets",
        unit: None,
        kind: MetricKind::Counter,
        help: "Datagrams sent to the peer that were lost on the way.",
        read: |view, to| each_association(view, to, |a| a.packets_lost),
    },
    Metric {
        name: "lasthop_association_received_packets",
        unit: None,
        kind: MetricKind::Counter,
        help: "Datagrams received from the peer.",
        read: |view, to| each_association(view, to, |a| a.packets_received),
    },
    Metric {
        name: "lasthop_association_sent",
        unit: Some("bytes"),
        kind: MetricKind::Counter,
        help: "Bytes of applications sent to the peer.",
        read: |view, to| each_association(view, to, |a| Some(a.bytes_sent)),
    },
    Metric {
        name: "lasthop_association_retransmitted",
        unit: Some("bytes"),
        kind: MetricKind::Counter,
        help: "Bytes of applications sent to the peer more than once.",
        read: |view, to| each_association(view, to, |a| a.bytes_retransmitted),
    },
    Metric {
        name: "lasthop_association_received",
        unit: Some("bytes"),
        kind: MetricKind::Counter,
        help: "Bytes of applications received from the peer.",
        read: |view, to| each_association(view, to, |a| Some(a.bytes_received)),
    },
    Metric {
        name: "lasthop_base_state",
        unit: None,
        kind: MetricKind::Gauge,
        help: "1 for the state that a base is in as the mobile sees it, 0 for the others.",
        read: |view, to| {
            for base in bases(view) {
                to.states(&base_label(base), &BASE_STATES, &base.state);
            }
        },
    },
    Metric {
        name: "lasthop_base_current",
        unit: None,
        kind: MetricKind::Gauge,
        help: "1 for the base that the mobile's connections go through.",
        read: |view, to| each_base(view, to, |base| Some(u64::from(base.current))),
    },
    Metric {
        name: "lasthop_base_handoffs",
        unit: None,
        kind: MetricKind::Counter,
        help: "How often the mobile's connections moved to the base.",
        read: |view, to| each_base(view, to, |base| Some(base.handoffs)),
    },
    Metric {
        name: "lasthop_base_last_pause",
        unit: Some("seconds"),
        kind: MetricKind::Gauge,
        help: "How long connections stood still when they last moved to the base.",
        read: |view, to| each_base(view, to, |base| base.last_pause_s),
    },
    Metric {
        name: "lasthop_peer_up",
        unit: None,
        kind: MetricKind::Gauge,
        help: "Whether a base has an association with another base.",
        read: |view, to| {
            for peer in view.report.peers.iter().take(NEIGHBOURS_MAX) {
                to.add(vec![("peer", peer.name.clone())], Some(peer.up));
            }
        },
    },
    Metric {
        name: "lasthop_handoffs",
        unit: None,
        kind: MetricKind::Counter,
        help: "Handoffs of sessions: that came here (at a mobile, its own), that were given to \
               another base, that were refused.",
        read: handoffs,
    },
    Metric {
        name: "lasthop_handoff_connections",
        unit: None,
        kind: MetricKind::Counter,
        help: "Connections of sessions that came here: anchored at another base, migrated with \
               their wired half, or lost.",
        read: handoff_connections,
    },
    Metric {
        name: "lasthop_handoff_under_way",
        unit: None,
        kind: MetricKind::Gauge,
        help: "Whether the mobile's latest handoff is not over.",
        read: |view, to| {
            let latest = view.report.handoff.as_ref();
            to.only(latest.map(|handoff| handoff.state == HandoffState::UnderWay));
        },
    },
    Metric {
        name: "lasthop_handoff_last_pause",
        unit: Some("seconds"),
        kind: MetricKind::Gauge,
        help: "How long connections stood still in the mobile's latest handoff.",
        read: |view, to| to.only(view.report.handoff.as_ref().and_then(|h| h.pause_s)),
    },
    Metric {
        name: "lasthop_program_connections",
        unit: None,
        kind: MetricKind::Gauge,
        help: "A program's connections at this moment.",
        read: |view, to| each_program(view, to, |program| Some(program.connections)),
    },
    Metric {
        name: "lasthop_program_priority",
        unit: None,
        kind: MetricKind::Gauge,
        help: "The highest priority of a program's connections.",
        read: |view, to| each_program(view, to, |program| program.priority.map(u64::from)),
    },
    Metric {
        name: "lasthop_program_to_hop",
        unit: Some("bytes"),
        kind: MetricKind::Counter,
        help: "Bytes of a program into the hop, as far as they were looked at.",
        read: |view, to| each_program(view, to, |program| Some(program.to_hop)),
    },
    Metric {
        name: "lasthop_program_from_hop",
        unit: Some("bytes"),
        kind: MetricKind::Counter,
        help: "Bytes of a program out of the hop, as far as they were looked at.",
        read: |view, to| each_program(view, to, |program| Some(program.from_hop)),
    },
    Metric {
        name: "lasthop_agent",
        unit: None,
        kind: MetricKind::Info,
        help: "The agent's schemes, from the fixed side to the mobile side, and its interfaces.",
        read: |view, to| {
            if let Some(agent) = &view.report.agent {
                to.add(agent_labels(agent), Some(true));
            }
        },
    },
    Metric {
        name: "lasthop_agent_peer_up",
        unit: None,
        kind: MetricKind::Gauge,
        help: "Whether the agent at the other end of the hop is heard.",
        read: |view, to| to.only(view.report.agent.as_ref().and_then(|agent| agent.peer)),
    },
    Metric {
        name: "lasthop_agent_link_state",
        unit: None,
        kind: MetricKind::Gauge,
        help: "1 for what was last heard of the agent's link, 0 for what else it could be.",
        read: |view, to| {
            if let Some(agent) = &view.report.agent {
                to.states(&Labels::new(), &LINK_STATES, &agent.link);
            }
        },
    },
    Metric {
        name: "lasthop_agent_interface_up",
        unit: None,
        kind: MetricKind::Gauge,
        help: "Whether an interface of the agent is there and carries.",
        read: |view, to| each_side(view, to, |interface| u64::from(interface.up)),
    },
    Metric {
        name: "lasthop_agent_received_packets",
        unit: None,
        kind: MetricKind::Counter,
        help: "Packets that came in by an interface and were the agent's.",
        read: |view, to| each_side(view, to, |interface| interface.packets_received),
    },
    Metric {
        name: "lasthop_agent_received",
        unit: Some("bytes"),
        kind: MetricKind::Counter,
        help: "Bytes of packets that came in by an interface, with Ethernet headers.",
        read: |view, to| each_side(view, to, |interface| interface.bytes_received),
    },
    Metric {
        name: "lasthop_agent_sent_packets",
        unit: None,
        kind: MetricKind::Counter,
        help: "Packets that the agent sent by an interface.",
        read: |view, to| each_side(view, to, |interface| interface.packets_sent),
    },
    Metric {
        name: "lasthop_agent_sent",
        unit: Some("bytes"),
        kind: MetricKind::Counter,
        help: "Bytes of packets that the agent sent by an interface, with Ethernet headers.",
        read: |view, to| each_side(view, to, |interface| interface.bytes_sent),
    },
    Metric {
        name: "lasthop_agent_missed_packets",
        unit: None,
        kind: MetricKind::Counter,
        help: "Packets that came in and were lost because the agent did not keep up.",
        read: |view, to| each_side(view, to, |interface| interface.packets_missed),
    },
    Metric {
        name: "lasthop_agent_unsent_packets",
        unit: None,
        kind: MetricKind::Counter,
        help: "Packets that an interface did not take from the agent.",
        read: |view, to| each_side(view, to, |interface| interface.packets_unsent),
    },
    Metric {
        name: "lasthop_agent_events",
        unit: None,
        kind: MetricKind::Counter,
        help: "What the agent's schemes count, each by its own name.",
        read: |view, to| {
            let counters = view.report.agent.iter().flat_map(|agent| &agent.counters);
            for (event, count) in counters.take(EVENTS_MAX) {
                to.add(vec![("event", event.clone())], Some(*count));
            }
        },
    },
];

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

fn handoffs(view: &View<'_>, to: &mut Samples) {
    let Some(handoffs) = &view.report.handoffs else { return };
    let outcomes =
        [("here", handoffs.here), ("given", handoffs.given), ("refused", handoffs.refused)];
    for (outcome, count) in outcomes {
        to.add(vec![("outcome", outcome.to_owned())], Some(count));
    }
}

fn handoff_connections(view: &View<'_>, to: &mut Samples) {
    let Some(handoffs) = &view.report.handoffs else { return };
    let outcomes =
        [("anchored", handoffs.anchored), ("migrated", handoffs.migrated), ("lost", handoffs.lost)];
    for (outcome, count) in outcomes {
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
