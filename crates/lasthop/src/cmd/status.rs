use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use lasthop_control::{
    self as control, AgentReport, AssociationReport, BaseReport, ConnectionReport, HandoffReport,
    HandoffState, Handoffs, InterfaceReport, PeerReport, Report,
};
use lasthop_units::{Bytes, Rate};
use serde::Serialize;
use serde_json::{Value, json};

/// How often `--watch` looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// How much of a key people are shown.
const KEY_SHOWN: usize = 8;

/// Shows what a running base, mobile or agent is doing: its associations, its connections, its
/// counters, and where its connections can move and have moved.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// The control socket of the process [default: those of `base`, `mobile` and `agent` on this
    /// host]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,

    /// Print one JSON object a line
    #[arg(long)]
    json: bool,

    /// Look again every second until interrupted
    #[arg(long)]
    watch: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    loop {
        let reports = query_all(options.control.as_deref())?;
        let mut text = String::new();
        for report in &reports {
            text.push_str(&if options.json { lines(report)? } else { tables(report) });
        }
        let clear = if options.watch && !options.json { "\x1b[H\x1b[2J" } else { "" };
        let mut out = io::stdout().lock();
        match write!(out, "{clear}{text}").and_then(|()| out.flush()) {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            result => result?,
        }
        drop(out);
        if !options.watch {
            return Ok(());
        }
        thread::sleep(INTERVAL);
    }
}

fn query_all(path: Option<&Path>) -> anyhow::Result<Vec<Report>> {
    if let Some(path) = path {
        let report = control::query(path)
            .with_context(|| format!("no base, mobile or agent answers on {}", path.display()))?;
        return Ok(vec![report]);
    }
    let paths = ["base", "mobile", "agent"].map(control::known_path);
    let mut reports = Vec::new();
    for path in &paths {
        match control::query(path) {
            Ok(report) => reports.push(report),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                return Err(e).with_context(|| format!("cannot ask on {}", path.display()));
            }
            Err(_) => {}
        }
    }
    if reports.is_empty() {
        let [base, mobile, agent] = paths.map(|path| path.display().to_string());
        bail!(
            "no base, mobile or agent runs here: nobody answers on {base}, {mobile} or {agent} \
             (--control PATH names another socket)"
        );
    }
    Ok(reports)
}

/// One JSON object for the process, and one for each thing that it tells of.
fn lines(report: &Report) -> anyhow::Result<String> {
    let mut out = String::new();
    let mut process = json!({
        "version": report.version,
        "uptime_s": report.uptime_s,
        "hop": report.hop,
        "counters": report.counters,
    });
    if let (Some(handoffs), Value::Object(fields)) = (&report.handoffs, &mut process) {
        fields.insert("handoffs".to_owned(), serde_json::to_value(handoffs)?);
    }
    push_line(&mut out, "process", &report.role, process);
    push_lines(&mut out, "agent", report, report.agent.as_slice())?;
    push_lines(&mut out, "base", report, &report.bases)?;
    push_lines(&mut out, "peer", report, &report.peers)?;
    push_lines(&mut out, "handoff", report, report.handoff.as_slice())?;
    push_lines(&mut out, "association", report, &report.associations)?;
    push_lines(&mut out, "connection", report, &report.connections)?;
    Ok(out)
}

fn push_lines<T: Serialize>(
    out: &mut String,
    kind: &str,
    report: &Report,
    items: &[T],
) -> anyhow::Result<()> {
    for item in items {
        push_line(out, kind, &report.role, serde_json::to_value(item)?);
    }
    Ok(())
}

fn push_line(out: &mut String, kind: &str, role: &str, mut value: Value) {
    if let Value::Object(fields) = &mut value {
        fields.insert("kind".to_owned(), kind.into());
        fields.insert("role".to_owned(), role.into());
    }
    out.push_str(&value.to_string());
    out.push('\n');
}

fn tables(report: &Report) -> String {
    let counters = &report.counters;
    let mut out = format!(
        "{} ({}, version {}), up {}\n\
         connections: {} opened, {} refused, {} closed; {} pieces of garbage refused\n",
        report.role,
        report.agent.as_ref().map_or_else(|| report.hop.clone(), |agent| agent.schemes.join(" ")),
        report.version,
        age(report.uptime_s),
        counters.opened,
        counters.refused,
        counters.closed,
        counters.garbage,
    );
    if let Some(handoffs) = &report.handoffs {
        out.push_str(&moves(&report.role, handoffs));
    }
    if let Some(handoff) = &report.handoff {
        out.push_str(&latest(handoff));
    }
    out.push('\n');
    let head = [
        "PEER",
        "ADDRESS",
        "STATE",
        "AGE",
        "RATE",
        "DELIVERED",
        "LOSS",
        "SRTT",
        "LEAST",
        "QUEUE",
        "MTU",
        "SENT",
        "RESENT",
        "RECEIVED",
    ];
    match &report.agent {
        Some(agent) => out.push_str(&helped(agent)),
        None => {
            let rows: Vec<Vec<String>> = report.associations.iter().map(association).collect();
            out.push_str(&table(&head, &rows));
        }
    }
    if !report.connections.is_empty() {
        let head = ["KEY", "PROGRAM", "PRIO", "TARGET", "STATE", "TO HOP", "FROM HOP", "AGE"];
        let rows: Vec<Vec<String>> = report.connections.iter().map(connection).collect();
        out.push('\n');
        out.push_str(&table(&head, &rows));
    }
    if !report.bases.is_empty() {
        let head = ["", "BASE", "ADDRESS", "STATE", "INTERFACE", "MOVES", "LAST PAUSE"];
        let rows: Vec<Vec<String>> = report.bases.iter().map(base).collect();
        out.push('\n');
        out.push_str(&table(&head, &rows));
    }
    if !report.peers.is_empty() {
        let head = ["OTHER BASE", "KEY", "ADDRESS", "STATE"];
        let rows: Vec<Vec<String>> = report.peers.iter().map(peer).collect();
        out.push('\n');
        out.push_str(&table(&head, &rows));
    }
    out
}

/// What an agent is between, what it has done there, and its peer.
fn helped(agent: &AgentReport) -> String {
    let head = ["INTERFACE", "NAME", "STATE", "RECEIVED", "MISSED", "SENT", "UNSENT"];
    let row = |side: &str, at: &InterfaceReport| {
        vec![
            side.to_owned(),
            at.name.clone(),
            if at.up { "up" } else { "down" }.to_owned(),
            at.packets_received.to_string(),
            at.packets_missed.to_string(),
            at.packets_sent.to_string(),
            at.packets_unsent.to_string(),
        ]
    };
    let mut out = table(&head, &[row("fixed", &agent.fixed), row("mobile", &agent.mobile)]);
    out.push_str(&format!("\nlink: {}", agent.link));
    match agent.peer {
        Some(true) => out.push_str("; the agent at the other end is heard"),
        Some(false) => out.push_str("; the agent at the other end is not heard"),
        None => {}
    }
    out.push('\n');
    for (name, count) in &agent.counters {
        out.push_str(&format!("{name}: {count}\n"));
    }
    out
}

/// What moved since the start. A mobile's sessions move with it and are given to nobody.
fn moves(role: &str, handoffs: &Handoffs) -> String {
    let Handoffs { here, given, refused, lost, anchored, migrated } = handoffs;
    if role == "mobile" {
        return format!("handoffs: {here} done, {refused} refused; {lost} connections lost\n");
    }
    format!(
        "handoffs: {here} here, {given} given away, {refused} refused; \
         connections: {anchored} anchored, {migrated} migrated, {lost} lost\n"
    )
}

fn latest(handoff: &HandoffReport) -> String {
    let HandoffReport { to, moved, lost, .. } = handoff;
    match handoff.state {
        HandoffState::UnderWay => format!("handoff to {to}: under way\n"),
        HandoffState::Done => {
            let pause = pause(handoff.pause_s);
            format!("last handoff to {to}: {moved} connections moved, {lost} lost, pause {pause}\n")
        }
        HandoffState::Broken => {
            let why = handoff.reason.as_deref().unwrap_or("no reason is known");
            format!("last handoff to {to}: failed ({why}), {lost} connections lost\n")
        }
    }
}

fn base(b: &BaseReport) -> Vec<String> {
    vec![
        if b.current { "*" } else { "" }.to_owned(),
        b.name.clone(),
        b.address.clone(),
        b.state.clone(),
        show(b.interface.as_deref()),
        b.handoffs.to_string(),
        pause(b.last_pause_s),
    ]
}

fn peer(p: &PeerReport) -> Vec<String> {
    let key = p.key.chars().take(KEY_SHOWN).collect();
    let state = if p.up { "up" } else { "down" };
    vec![p.name.clone(), key, p.address.clone(), state.to_owned()]
}

fn pause(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "-".to_owned(), |s| format!("{:.1} ms", s * 1e3))
}

fn association(a: &AssociationReport) -> Vec<String> {
    let rate = |bps: Option<u64>| show(bps.map(Rate::from_bps));
    let ms = |t: Option<f64>| t.map_or("-".to_owned(), |t| format!("{t:.1} ms"));
    let peer = a.peer.as_deref().map(|key| key.chars().take(KEY_SHOWN).collect::<String>());
    vec![
        show(peer),
        show(a.address.as_deref()),
        a.state.clone(),
        age(a.age_s),
        rate(a.pacing_bps),
        rate(a.delivery_bps),
        a.loss.map_or("-".to_owned(), |l| format!("{:.1} %", l * 100.0)),
        ms(a.srtt_ms),
        ms(a.min_rtt_ms),
        ms(a.queue_ms),
        show(a.mtu),
        a.packets_sent.map_or_else(|| Bytes::new(a.bytes_sent).to_string(), |n| n.to_string()),
        show(a.bytes_retransmitted.map(Bytes::new)),
        a.packets_received
            .map_or_else(|| Bytes::new(a.bytes_received).to_string(), |n| n.to_string()),
    ]
}

fn connection(c: &ConnectionReport) -> Vec<String> {
    vec![
        c.key.to_string(),
        show(c.program.as_deref()),
        show(c.priority),
        c.target.clone(),
        c.state.clone(),
        Bytes::new(c.bytes_to_hop).to_string(),
        Bytes::new(c.bytes_from_hop).to_string(),
        age(c.age_s),
    ]
}

fn show<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn age(seconds: f64) -> String {
    let s = seconds as u64;
    match s {
        0..60 => format!("{seconds:.1}s"),
        60..3600 => format!("{}m{:02}s", s / 60, s % 60),
        3600..86_400 => format!("{}h{:02}m", s / 3600, s / 60 % 60),
        _ => format!("{}d{:02}h", s / 86_400, s / 3600 % 24),
    }
}

/// Columns as wide as their widest cell.
fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |i: usize| {
        let cells = rows.iter().filter_map(|row| row.get(i)).map(|cell| cell.chars().count());
        cells.chain(head.get(i).map(|h| h.len())).max().unwrap_or(0)
    };
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut out = String::new();
        for (i, cell) in cells.enumerate() {
            let gap = if i == 0 { "" } else { "  " };
            let width = width(i);
            out.push_str(&format!("{gap}{cell:<width$}"));
        }
        format!("{}\n", out.trim_end())
    };
    let mut out = line(&mut head.iter().copied());
    for row in rows {
        out.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    out
}

#[cfg(test)]
mod tests {
    use lasthop_control::Counters;

    use super::*;

    fn report() -> Report {
        Report {
            role: "base".into(),
            version: "0".into(),
            uptime_s: 3725.0,
            hop: "srp".into(),
            associations: vec![AssociationReport {
                peer: Some("hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=".into()),
                address: Some("192.0.2.7:4433".into()),
                state: "up".into(),
                pacing_bps: Some(20_000_000),
                loss: Some(0.05),
                ..AssociationReport::default()
            }],
            connections: vec![ConnectionReport {
                association: Some("1".into()),
                id: Some(4),
                target: "example.net:443".into(),
                state: "open".into(),
                bytes_to_hop: 1000,
                bytes_from_hop: 20_000_000,
                age_s: 1.0,
                ..ConnectionReport::default()
            }],
            counters: Counters::default(),
            ..Report::default()
        }
    }

    #[test]
    fn columns_are_aligned() {
        let text = tables(&report());
        let at = |row: usize, what: &str| text.lines().nth(row).unwrap().find(what).unwrap();
        assert_eq!(at(3, "LOSS"), at(4, "5.0 %"), "{text}");
        assert_eq!(at(6, "TARGET"), at(7, "example.net"), "{text}");
        assert!(text.contains("up 1h02m") && text.contains("20.00 Mbit/s"), "{text}");
    }

    #[test]
    fn json_is_one_object_a_line() {
        let text = lines(&report()).unwrap();
        let kinds: Vec<_> = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["kind"].clone())
            .collect();
        assert_eq!(kinds, ["process", "association", "connection"]);
    }

    #[test]
    fn a_mobile_s_bases_and_its_latest_handoff_are_shown() {
        let base = |name: &str, current: bool, last_pause_s: Option<f64>| BaseReport {
            name: name.into(),
            address: "192.0.2.1:4433".into(),
            state: "up".into(),
            current,
            last_pause_s,
            ..BaseReport::default()
        };
        let report = Report {
            role: "mobile".into(),
            bases: vec![base("b1", false, None), base("b2", true, Some(0.0413))],
            handoffs: Some(Handoffs { here: 3, refused: 1, ..Handoffs::default() }),
            handoff: Some(HandoffReport {
                number: 3,
                to: "b2".into(),
                state: HandoffState::Done,
                pause_s: Some(0.0413),
                moved: 12,
                ..HandoffReport::default()
            }),
            ..report()
        };
        let text = tables(&report);
        assert!(text.contains("handoffs: 3 done, 1 refused"), "{text}");
        assert!(text.contains("to b2: 12 connections moved, 0 lost, pause 41.3 ms"), "{text}");
        let current: Vec<_> = text.lines().filter(|line| line.starts_with('*')).collect();
        assert!(matches!(current[..], [line] if line.contains("b2")), "{text}");
        let lines = lines(&report).unwrap();
        for kind in ["\"kind\":\"base\"", "\"kind\":\"handoff\"", "\"here\":3"] {
            assert!(lines.contains(kind), "{kind}: {lines}");
        }
    }

    #[test]
    fn a_base_s_peers_are_shown() {
        let peer = PeerReport {
            name: "b2".into(),
            key: "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=".into(),
            address: "192.0.2.2:4434".into(),
            up: true,
        };
        let handoffs = Handoffs { here: 2, given: 1, anchored: 9, ..Handoffs::default() };
        let report = Report { peers: vec![peer], handoffs: Some(handoffs), ..report() };
        let text = tables(&report);
        assert!(text.contains("2 here, 1 given away") && text.contains("9 anchored"), "{text}");
        let row = text.lines().find(|line| line.starts_with("b2")).unwrap();
        assert!(row.contains("hSDwCYkw  192.0.2.2:4434  up"), "{text}");
        assert!(lines(&report).unwrap().contains("\"kind\":\"peer\""));
    }

    #[test]
    fn an_agent_is_shown_with_its_interfaces_and_what_its_scheme_counts() {
        let interface = |name: &str, packets_received| InterfaceReport {
            name: name.into(),
            up: true,
            packets_received,
            ..InterfaceReport::default()
        };
        let agent = AgentReport {
            schemes: vec!["snoop".into()],
            fixed: interface("eth0", 17),
            mobile: interface("wlan0", 9),
            peer: Some(false),
            link: "up".into(),
            counters: [("snoop_repaired".to_owned(), 5)].into(),
        };
        let report = Report {
            role: "agent".into(),
            hop: String::new(),
            associations: Vec::new(),
            agent: Some(agent),
            ..report()
        };
        let text = tables(&report);
        for said in ["agent (snoop, ", "eth0  ", "17", "link: up; ", "not heard", "repaired: 5"] {
            assert!(text.contains(said), "{said}: {text}");
        }
        assert!(!text.contains("PEER") && text.contains("TARGET"), "{text}");
        assert!(lines(&report).unwrap().contains("\"kind\":\"agent\""));
    }

    #[test]
    fn without_a_daemon_it_says_so() {
        let error =
            query_all(Some(Path::new("/nonexistent/lasthop.sock"))).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/lasthop.sock"), "{error}");
    }
}
