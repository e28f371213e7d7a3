//! Metrics of whole reports, the documentation, and the dashboard.

mod check;
mod promtool;

use std::collections::{BTreeMap, BTreeSet};

use lasthop_control::{
    AgentReport, AssociationReport, BaseReport, ConnectionReport, Counters, HandoffReport,
    HandoffState, Handoffs, InterfaceReport, MemoryReport, PacketReport, PathReport, PeerReport,
    Report, TunReport, UdpReport,
};
use proptest::prelude::*;

use super::programs::{OTHER, PROGRAMS_MAX};
use super::*;

const DOCUMENT: &str = include_str!("../../../../docs/metrics.md");
const DASHBOARD: &str = include_str!("../../../../packaging/grafana/lasthop.json");

const PROCESS: Process = Process { cpu_s: 12.5, resident_bytes: Some(8 << 20), open_fds: Some(31) };

fn association(id: u64, peer: &str, state: &str) -> AssociationReport {
    AssociationReport {
        id,
        peer: Some(peer.to_owned()),
        address: Some("203.0.113.7:4433".to_owned()),
        state: state.to_owned(),
        age_s: 252.0,
        streams: 3,
        pacing_bps: Some(21_400_000),
        delivery_bps: Some(19_020_000),
        loss: Some(0.051),
        srtt_ms: Some(41.5),
        min_rtt_ms: Some(40.25),
        queue_ms: Some(1.25),
        mtu: Some(1472),
        memory: Some(65_536),
        packets_sent: Some(7227),
        packets_lost: Some(360),
        packets_received: Some(69_605),
        bytes_sent: 5_000_000,
        bytes_retransmitted: Some(88_200),
        bytes_received: 95_000_000,
        packets: Some(PacketReport {
            sent: 50_000,
            bytes_sent: 10_000_000,
            dropped_queue: 7,
            flows: 4,
            ..PacketReport::default()
        }),
        paths: vec![path("modem", "up"), path("dish", "silent")],
        transit: None,
    }
}

fn path(name: &str, state: &str) -> PathReport {
    PathReport {
        name: name.to_owned(),
        state: state.to_owned(),
        delivery_bps: Some(9_000_000),
        srtt_ms: Some(41.5),
        queue_ms: Some(1.25),
        bytes_sent: 2_500_000,
        ..PathReport::default()
    }
}

fn connection(key: u64, program: &str, to_hop: u64, from_hop: u64) -> ConnectionReport {
    ConnectionReport {
        key,
        program: Some(program.to_owned()),
        priority: Some(1),
        state: "open".to_owned(),
        bytes_to_hop: to_hop,
        bytes_from_hop: from_hop,
        ..ConnectionReport::default()
    }
}

fn mobile() -> Report {
    let base = |name: &str, key: &str, current| BaseReport {
        name: name.to_owned(),
        key: Some(key.to_owned()),
        address: format!("{name}.example.net:4433"),
        state: if current { "up" } else { "idle" }.to_owned(),
        current,
        handoffs: 2,
        last_pause_s: Some(0.0413),
        ..BaseReport::default()
    };
    Report {
        role: "mobile".to_owned(),
        version: "0.1.0".to_owned(),
        uptime_s: 252.25,
        hop: "srp".to_owned(),
        associations: vec![association(0, "W8oWTnzhAAAA", "up")],
        connections: vec![connection(1, "curl", 5120, 12_400_000)],
        counters: Counters { opened: 31, refused: 1, closed: 28, garbage: 0 },
        bases: vec![base("b1", "other", false), base("b2", "W8oWTnzhAAAA", true)],
        handoffs: Some(Handoffs { here: 4, refused: 1, ..Handoffs::default() }),
        handoff: Some(HandoffReport {
            state: HandoffState::Done,
            pause_s: Some(0.0413),
            ..HandoffReport::default()
        }),
        ..Report::default()
    }
}

fn base() -> Report {
    let peer = |name: &str, up| PeerReport { name: name.to_owned(), up, ..PeerReport::default() };
    Report {
        role: "base".to_owned(),
        associations: vec![
            association(0, "abcdefgh1", "silent"),
            association(1, "ijklmnop2", "up"),
        ],
        peers: vec![peer("b2", true), peer("b3", false)],
        memory: Some(MemoryReport { bound: 1 << 30, promised: 5 << 20 }),
        tun: Some(TunReport {
            name: "lasthop0".to_owned(),
            from_kernel: 70,
            to_bases: 8,
            refused: BTreeMap::from([("spoofed".to_owned(), 9)]),
            ..TunReport::default()
        }),
        udp: Some(UdpReport {
            sockets: 3,
            to_hop: 40,
            from_hop: 50,
            refused: [("target".to_owned(), 6)].into(),
        }),
        handoffs: Some(Handoffs {
            here: 1,
            given: 2,
            refused: 3,
            lost: 4,
            anchored: 5,
            migrated: 6,
            orphans_taken: 7,
            orphans_lost: 8,
        }),
        ..Report::default()
    }
}

fn agent() -> Report {
    let interface = |name: &str, first: u64| InterfaceReport {
        name: name.to_owned(),
        up: true,
        packets_received: first,
        bytes_received: first + 1,
        packets_sent: first + 2,
        bytes_sent: first + 3,
        packets_missed: first + 4,
        packets_unsent: first + 5,
    };
    let counters = [("snoop_repaired".to_owned(), 120), ("rwc_windows".to_owned(), 7)];
    Report {
        role: "agent".to_owned(),
        agent: Some(AgentReport {
            schemes: vec!["snoop".to_owned(), "rwc".to_owned()],
            fixed: interface("eth0", 1000),
            mobile: interface("wlan0", 2000),
            peer: Some(true),
            link: "up".to_owned(),
            counters: BTreeMap::from(counters),
        }),
        ..Report::default()
    }
}

/// The metrics of one report alone.
fn render(report: &Report) -> String {
    Exporter::default().render(report, None)
}

/// A metric's name in queries: with unit, and with the suffix of its kind.
fn series(metric: &Metric) -> String {
    let suffix = match metric.kind {
        MetricType::Counter => "_total",
        MetricType::Info => "_info",
        _ => "",
    };
    match metric.unit {
        Some(unit) => format!("{}_{unit}{suffix}", metric.name),
        None => format!("{}{suffix}", metric.name),
    }
}

fn has(text: &str, line: &str) {
    assert!(text.lines().any(|l| l == line), "no line `{line}` in\n{text}");
}

#[test]
fn a_mobile_tells_of_its_associations_bases_handoffs_and_programs() {
    let text = Exporter::default().render(&mobile(), Some(&PROCESS));
    check::exposition(&text).unwrap();
    for line in [
        r#"lasthop_build_info{version="0.1.0",role="mobile",hop="srp"} 1"#,
        "lasthop_uptime_seconds 252.25",
        "process_cpu_seconds_total 12.5",
        "process_resident_memory_bytes 8388608",
        "lasthop_connections_opened_total 31",
        r#"lasthop_connections{state="open"} 1"#,
        r#"lasthop_connections{state="closing"} 0"#,
        r#"lasthop_association_state{peer="W8oWTnzh",base="b2",state="up"} 1"#,
        r#"lasthop_association_state{peer="W8oWTnzh",base="b2",state="silent"} 0"#,
        r#"lasthop_association_srtt_seconds{peer="W8oWTnzh",base="b2"} 0.0415"#,
        r#"lasthop_association_pacing_bytes_per_second{peer="W8oWTnzh",base="b2"} 2675000.0"#,
        r#"lasthop_association_loss_ratio{peer="W8oWTnzh",base="b2"} 0.051"#,
        r#"lasthop_association_lost_packets_total{peer="W8oWTnzh",base="b2"} 360"#,
        r#"lasthop_packets_sent_total{peer="W8oWTnzh",base="b2"} 50000"#,
        r#"lasthop_packets_sent_bytes_total{peer="W8oWTnzh",base="b2"} 10000000"#,
        r#"lasthop_packets_dropped_total{peer="W8oWTnzh",base="b2",reason="queue"} 7"#,
        r#"lasthop_packets_flows{peer="W8oWTnzh",base="b2"} 4"#,
        r#"lasthop_base_current{base="b2"} 1"#,
        r#"lasthop_base_last_pause_seconds{base="b2"} 0.0413"#,
        r#"lasthop_handoffs_total{outcome="here"} 4"#,
        "lasthop_handoff_under_way 0",
        r#"lasthop_program_from_hop_bytes_total{program="curl"} 12400000"#,
        r#"lasthop_program_priority{program="curl"} 1"#,
    ] {
        has(&text, line);
    }
    assert!(!text.contains("lasthop_agent"), "{text}");
}

#[test]
fn a_base_tells_of_each_mobile_and_each_peer() {
    let text = render(&base());
    check::exposition(&text).unwrap();
    for line in [
        r#"lasthop_association_queue_seconds{peer="abcdefgh"} 0.00125"#,
        r#"lasthop_association_queue_seconds{peer="ijklmnop"} 0.00125"#,
        r#"lasthop_peer_up{peer="b2"} 1"#,
        r#"lasthop_peer_up{peer="b3"} 0"#,
        "lasthop_memory_bound_bytes 1073741824",
        "lasthop_memory_promised_bytes 5242880",
        r#"lasthop_association_memory_bytes{peer="ijklmnop"} 65536"#,
        r#"lasthop_handoff_connections_total{outcome="migrated"} 6"#,
        r#"lasthop_handoff_orphans_total{outcome="taken"} 7"#,
        r#"lasthop_handoff_orphans_total{outcome="lost"} 8"#,
        r#"lasthop_tun_packets_total{way="from_kernel"} 70"#,
        r#"lasthop_tun_packets_total{way="to_bases"} 8"#,
        r#"lasthop_tun_refused_total{reason="spoofed"} 9"#,
        "lasthop_udp_sockets 3",
        r#"lasthop_udp_datagrams_total{direction="from_hop"} 50"#,
        r#"lasthop_udp_refused_total{reason="target"} 6"#,
    ] {
        has(&text, line);
    }
    assert!(!text.contains("lasthop_program"), "a base knows no programs\n{text}");
    assert!(!text.contains("process_cpu"), "the report is not of this process\n{text}");
}

#[test]
fn an_agent_tells_of_both_sides_and_of_every_counter_of_its_schemes() {
    let text = render(&agent());
    check::exposition(&text).unwrap();
    for line in [
        r#"lasthop_agent_info{schemes="snoop rwc",fixed="eth0",mobile="wlan0"} 1"#,
        r#"lasthop_agent_received_packets_total{side="fixed",interface="eth0"} 1000"#,
        r#"lasthop_agent_sent_bytes_total{side="mobile",interface="wlan0"} 2003"#,
        r#"lasthop_agent_missed_packets_total{side="mobile",interface="wlan0"} 2004"#,
        r#"lasthop_agent_link_state{state="up"} 1"#,
        r#"lasthop_agent_events_total{event="snoop_repaired"} 120"#,
        r#"lasthop_agent_events_total{event="rwc_windows"} 7"#,
        "lasthop_agent_peer_up 1",
    ] {
        has(&text, line);
    }
    assert!(!text.contains("lasthop_connections_opened"), "{text}");
}

#[test]
fn what_is_not_known_is_absent_and_not_zero() {
    let unknown = AssociationReport { peer: Some("abcdefgh".into()), ..Default::default() };
    let text = render(&Report { associations: vec![unknown], ..Report::default() });
    check::exposition(&text).unwrap();
    for absent in [
        "loss_ratio",
        "srtt",
        "lasthop_handoffs",
        "lasthop_base_",
        "lost_packets",
        "lasthop_packets",
    ] {
        assert!(!text.contains(absent), "{absent} in\n{text}");
    }
}

#[test]
fn of_a_peer_s_associations_the_latest_that_is_not_closing_is_shown() {
    let associations = vec![
        association(3, "abcdefgh", "closing"),
        association(2, "abcdefgh", "up"),
        association(1, "abcdefgh", "down"),
    ];
    let text = render(&Report { associations, ..Report::default() });
    check::exposition(&text).unwrap();
    has(&text, r#"lasthop_association_state{peer="abcdefgh",state="up"} 1"#);
    has(&text, r#"lasthop_association_sent_packets_total{peer="abcdefgh"} 7227"#);
}

#[test]
fn a_program_s_bytes_stay_when_its_connections_end() {
    let mut exporter = Exporter::default();
    let report = |connections| Report { connections, ..Report::default() };
    exporter.render(&report(vec![connection(1, "curl", 10, 100)]), None);
    exporter.render(&report(vec![connection(1, "curl", 20, 300)]), None);
    let text = exporter.render(&report(vec![connection(2, "curl", 5, 50)]), None);
    has(&text, r#"lasthop_program_to_hop_bytes_total{program="curl"} 25"#);
    has(&text, r#"lasthop_program_from_hop_bytes_total{program="curl"} 350"#);
    let text = exporter.render(&report(Vec::new()), None);
    has(&text, r#"lasthop_program_from_hop_bytes_total{program="curl"} 350"#);
    has(&text, r#"lasthop_program_connections{program="curl"} 0"#);
}

#[test]
fn programs_beyond_a_number_are_counted_together() {
    let count = PROGRAMS_MAX as u64 + 5;
    let connections = (0..count).map(|n| connection(n, &format!("p{n}"), 1, 2)).collect();
    let text = render(&Report { connections, ..Report::default() });
    check::exposition(&text).unwrap();
    let series = text.lines().filter(|l| l.starts_with("lasthop_program_to_hop_bytes_total"));
    assert_eq!(series.count(), PROGRAMS_MAX + 1);
    has(&text, &format!(r#"lasthop_program_to_hop_bytes_total{{program="{OTHER}"}} 5"#));
}

#[test]
fn a_program_may_be_called_anything() {
    let name = "a \"b\"\\c\nd{}=";
    let report = Report { connections: vec![connection(1, name, 1, 2)], ..Report::default() };
    let text = render(&report);
    let families = check::exposition(&text).unwrap();
    let series = &families["lasthop_program_connections"];
    assert_eq!(series[0].labels, [("program".to_owned(), name.to_owned())]);
}

/// Every metric, by the reports of all three roles together.
fn everything() -> Vec<String> {
    let reports = [(mobile(), Some(&PROCESS)), (base(), None), (agent(), None)];
    reports.iter().map(|(report, own)| Exporter::default().render(report, *own)).collect()
}

#[test]
fn every_metric_of_the_table_can_be_seen() {
    let texts = everything();
    for metric in METRICS {
        let series = series(metric);
        let seen = texts.iter().any(|text| {
            text.lines().any(|line| {
                line.strip_prefix(&series).is_some_and(|rest| rest.starts_with([' ', '{']))
            })
        });
        assert!(seen, "{series} is shown by no role");
    }
}

#[test]
fn names_follow_the_conventions() {
    let mut names = BTreeSet::new();
    for metric in METRICS {
        let name = series(metric);
        assert!(names.insert(name.clone()), "{name} is there twice");
        let own = name.starts_with("lasthop_") || name.starts_with("process_");
        assert!(own, "{name}");
        let counts = matches!(metric.kind, MetricType::Counter);
        assert_eq!(name.ends_with("_total"), counts, "{name}");
        for not_basic in ["_ms", "_bits", "_bps", "_percent", "_kb"] {
            assert!(!name.contains(not_basic), "{name} is not in base units");
        }
        assert!(metric.help.ends_with('.') && !metric.help.contains(['\n', '\\']), "{name}");
    }
}

/// The rows of the documentation's tables: name and kind.
fn documented() -> BTreeMap<String, String> {
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        let name = cells.next()?.split(['`', '{']).next()?.to_owned();
        Some((name, cells.next()?.to_owned()))
    };
    DOCUMENT.lines().filter_map(row).filter(|(name, _)| name.contains('_')).collect()
}

#[test]
fn every_metric_is_documented_and_nothing_else_is() {
    let ours: BTreeMap<_, _> =
        METRICS.iter().map(|m| (series(m), m.kind.as_str().to_owned())).collect();
    let documented = documented();
    for (name, kind) in &ours {
        assert_eq!(documented.get(name), Some(kind), "docs/metrics.md on {name}");
    }
    for name in documented.keys() {
        assert!(ours.contains_key(name), "docs/metrics.md has {name}, which is no metric");
    }
}

/// Every string under the key `expr`, wherever it is.
fn queries(value: &serde_json::Value, found: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (key, value) in fields {
                match value.as_str() {
                    Some(query) if key == "expr" => found.push(query.to_owned()),
                    _ => queries(value, found),
                }
            }
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| queries(item, found)),
        _ => {}
    }
}

#[test]
fn the_dashboard_asks_for_metrics_that_there_are() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut asked = Vec::new();
    queries(&dashboard, &mut asked);
    let known: BTreeSet<String> = METRICS.iter().map(series).collect();
    let mut used = BTreeSet::new();
    for query in &asked {
        let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let names: Vec<&str> =
            words.filter(|w| w.starts_with("lasthop_") || w.starts_with("process_")).collect();
        assert!(!names.is_empty(), "`{query}` asks for no metric");
        for name in names {
            assert!(known.contains(name), "`{query}` asks for {name}, which is no metric");
            used.insert(name.to_owned());
        }
    }
    assert!(used.len() >= 20, "the dashboard shows {} metrics only", used.len());
    for name in known.iter().filter(|name| name.starts_with("lasthop_path_")) {
        assert!(used.contains(name), "the dashboard does not show {name}");
    }
}

#[test]
fn every_panel_of_the_dashboard_asks_the_chosen_data_source() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "two panels have one id: {panel}");
        if panel["type"] != "row" {
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{}", panel["title"]);
        }
    }
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let datasource = variables.iter().find(|v| v["name"] == "datasource").unwrap();
    assert_eq!(datasource["type"], "datasource");
    assert_eq!(datasource["query"], "prometheus");
}

#[test]
fn lines_of_several_paths_are_told_apart() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let (query, legend) = (target["expr"].as_str(), target["legendFormat"].as_str());
            let of_paths = query.is_some_and(|query| query.contains("lasthop_path_"));
            let whole =
                legend.is_some_and(|legend| legend.starts_with("{{instance}} {{peer}} {{path}}"));
            assert!(!of_paths || whole, "{target}");
        }
    }
}

#[test]
fn no_panel_of_the_dashboard_covers_another() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut covered = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let at = |side: &str| panel["gridPos"][side].as_u64().unwrap();
        for y in at("y")..at("y") + at("h") {
            for x in at("x")..at("x") + at("w") {
                assert!(x < 24 && covered.insert((x, y)), "{}: {x}, {y}", panel["title"]);
            }
        }
    }
}

proptest! {
    #[test]
    fn whatever_names_and_numbers_a_report_has_the_text_is_valid(
        names in prop::collection::vec(any::<String>(), 4),
        numbers in prop::collection::vec(any::<f64>(), 4),
        counts in prop::collection::vec(any::<u64>(), 4),
    ) {
        let mut report = mobile();
        report.uptime_s = numbers[0];
        report.version.clone_from(&names[0]);
        report.counters.opened = counts[0];
        report.bases[1].name.clone_from(&names[1]);
        report.connections.push(connection(7, &names[2], counts[1], counts[2]));
        report.connections.push(connection(8, &names[2], counts[1], counts[2]));
        let strange = &mut report.associations[0];
        strange.loss = Some(numbers[1]);
        strange.srtt_ms = Some(numbers[2]);
        strange.pacing_bps = Some(counts[3]);
        report.agent = agent().agent;
        report.agent.as_mut().unwrap().counters.insert(names[3].clone(), counts[0]);
        prop_assert!(check::exposition(&render(&report)).is_ok());
    }
}
