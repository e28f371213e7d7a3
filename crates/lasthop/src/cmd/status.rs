use std::io::{self, Write};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use lasthop_control::grid::{self, Grid, key, ms, or_dash, pause, percent, rate};
use lasthop_control::{
    AgentReport, AssociationReport, BaseReport, HandoffReport, HandoffState, Handoffs,
    MemoryReport, Report,
};
use lasthop_units::Bytes;
use serde::Serialize;
use serde_json::{Value, json};

use super::ask;

/// How often `--watch` looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// Who is asked, in the order in which they are shown.
const ROLES: [&str; 3] = ["base", "mobile", "agent"];

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

    /// Only say whether it serves: the exit status is 0 if a base answers and is not draining, or a mobile
    /// has its base, or an agent answers; else 1, with the reason
    #[arg(long, conflicts_with_all = ["json", "watch"])]
    ready: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if options.ready {
        let reports = ask::find(options.control.as_deref(), &ROLES, ROLES.len())?;
        return reports.iter().try_for_each(|(_, report)| ready(report));
    }
    loop {
        let reports = ask::find(options.control.as_deref(), &ROLES, ROLES.len())?;
        let mut text = String::new();
        for (_, report) in &reports {
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

/// Whether a process serves.
///
/// # Errors
///
/// Says why not.
fn ready(report: &Report) -> anyhow::Result<()> {
    if report.draining == Some(true) {
        bail!("the base is draining; mobiles left: {}", report.mobiles.unwrap_or_default());
    }
    if report.role == "mobile" && !report.associations.iter().any(|one| one.state == "up") {
        bail!("the mobile has no base");
    }
    Ok(())
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
    if let Value::Object(fields) = &mut process {
        if let Some(handoffs) = &report.handoffs {
            fields.insert("handoffs".to_owned(), serde_json::to_value(handoffs)?);
        }
        if let Some(draining) = report.draining {
            fields.insert("draining".to_owned(), draining.into());
            fields.insert("mobiles".to_owned(), report.mobiles.into());
        }
        if let Some(memory) = &report.memory {
            fields.insert("memory".to_owned(), serde_json::to_value(memory)?);
        }
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
    if let Some(MemoryReport { bound, promised }) = report.memory {
        let [promised, bound] = [promised, bound].map(Bytes::new);
        out.push_str(&format!("memory: {promised} promised of {bound}\n"));
    }
    if report.draining == Some(true) {
        let left = report.mobiles.unwrap_or_default();
        out.push_str(&format!("draining: mobiles left: {left}\n"));
    }
    if let Some(handoffs) = &report.handoffs {
        out.push_str(&moves(&report.role, handoffs));
    }
    if let Some(handoff) = &report.handoff {
        out.push_str(&latest(handoff));
    }
    out.push('\n');
    out.push_str(&match &report.agent {
        Some(agent) => helped(agent),
        None => associations(report).to_text(),
    });
    for grid in [paths(report), packets(report), connections(report), bases(report), peers(report)]
    {
        if grid.rows() > 0 {
            out.push('\n');
            out.push_str(&grid.to_text());
        }
    }
    out
}

/// What an agent is between, what it has done there, and its peer.
fn helped(agent: &AgentReport) -> String {
    let sides = [("fixed", &agent.fixed), ("mobile", &agent.mobile)];
    let mut out = Grid::of(&sides)
        .text("INTERFACE", 0, |(side, _)| (*side).to_owned())
        .text("NAME", 0, |(_, at)| at.name.clone())
        .text("STATE", 0, |(_, at)| up(at.up))
        .text("RECEIVED", 0, |(_, at)| at.packets_received.to_string())
        .text("MISSED", 0, |(_, at)| at.packets_missed.to_string())
        .text("SENT", 0, |(_, at)| at.packets_sent.to_string())
        .text("UNSENT", 0, |(_, at)| at.packets_unsent.to_string())
        .grid()
        .to_text();
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
    let Handoffs { here, given, refused, lost, anchored, migrated, .. } = handoffs;
    if role == "mobile" {
        return format!("handoffs: {here} done, {refused} refused; {lost} connections lost\n");
    }
    let orphans = grid::orphans(handoffs);
    format!(
        "handoffs: {here} here, {given} given away, {refused} refused; \
         connections: {anchored} anchored, {migrated} migrated, {lost} lost{orphans}\n"
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

fn bases(report: &Report) -> Grid {
    Grid::of(&report.bases)
        .text("", 0, |b| if b.current { "*" } else { "" }.to_owned())
        .text("BASE", 0, |b| b.name.clone())
        .text("ADDRESS", 0, |b| b.address.clone())
        .text("STATE", 0, base_state)
        .text("INTERFACE", 0, |b| or_dash(b.interface.as_deref()))
        .text("MOVES", 0, |b| b.handoffs.to_string())
        .text("LAST PAUSE", 0, |b| pause(b.last_pause_s))
        .grid()
}

/// How a base is, and why it is known if the configuration does not name it.
fn base_state(base: &BaseReport) -> String {
    let mut words = vec![base.state.as_str()];
    words.extend(base.draining.filter(|draining| *draining).map(|_| "draining"));
    words.extend(base.learned.then_some("learned"));
    words.join(", ")
}

fn peers(report: &Report) -> Grid {
    Grid::of(&report.peers)
        .text("OTHER BASE", 0, |p| p.name.clone())
        .text("KEY", 0, |p| key(&p.key))
        .text("ADDRESS", 0, |p| p.address.clone())
        .text("STATE", 0, |p| up(p.up))
        .grid()
}

fn associations(report: &Report) -> Grid {
    let count = |packets: Option<u64>, bytes| {
        packets.map_or_else(|| Bytes::new(bytes).to_string(), |n| n.to_string())
    };
    Grid::of(&report.associations)
        .text("PEER", 0, |a| or_dash(a.peer.as_deref().map(key)))
        .text("ADDRESS", 0, |a| or_dash(a.address.as_deref()))
        .text("STATE", 0, |a| a.state.clone())
        .text("AGE", 0, |a| age(a.age_s))
        .text("RATE", 0, |a| rate(a.pacing_bps))
        .text("DELIVERED", 0, |a| rate(a.delivery_bps))
        .text("LOSS", 0, |a| percent(a.loss))
        .text("SRTT", 0, |a| ms(a.srtt_ms))
        .text("LEAST", 0, |a| ms(a.min_rtt_ms))
        .text("QUEUE", 0, |a| ms(a.queue_ms))
        .text("MTU", 0, |a| or_dash(a.mtu))
        .text("SENT", 0, |a| count(a.packets_sent, a.bytes_sent))
        .text("RESENT", 0, |a| or_dash(a.bytes_retransmitted.map(Bytes::new)))
        .text("RECEIVED", 0, |a| count(a.packets_received, a.bytes_received))
        .grid()
}

/// The paths of the associations that have several.
fn paths(report: &Report) -> Grid {
    let of = |a: &'_ AssociationReport| {
        let peer = a.peer.as_deref().map(key);
        a.paths.iter().map(move |path| (peer.clone(), path.clone())).collect::<Vec<_>>()
    };
    let rows: Vec<_> = report.associations.iter().flat_map(of).collect();
    Grid::of(&rows)
        .text("PATH", 0, |(_, p)| p.name.clone())
        .text("PEER", 0, |(peer, _)| or_dash(peer.as_ref()))
        .text("ADDRESS", 0, |(_, p)| or_dash(p.address.as_ref()))
        .text("STATE", 0, |(_, p)| p.state.clone())
        .text("RATE", 0, |(_, p)| rate(p.pacing_bps))
        .text("DELIVERED", 0, |(_, p)| rate(p.delivery_bps))
        .text("LOSS", 0, |(_, p)| percent(Some(p.loss)))
        .text("SRTT", 0, |(_, p)| ms(p.srtt_ms))
        .text("LEAST", 0, |(_, p)| ms(p.min_rtt_ms))
        .text("QUEUE", 0, |(_, p)| ms(p.queue_ms))
        .text("MTU", 0, |(_, p)| p.mtu.to_string())
        .text("SENT", 0, |(_, p)| Bytes::new(p.bytes_sent).to_string())
        .text("RECEIVED", 0, |(_, p)| Bytes::new(p.bytes_received).to_string())
        .grid()
}

/// What became of packets, of the associations that carry some.
fn packets(report: &Report) -> Grid {
    let carried = |a: &AssociationReport| Some((a.peer.as_deref().map(key), a.packets?));
    let rows: Vec<_> = report.associations.iter().filter_map(carried).collect();
    Grid::of(&rows)
        .text("PACKETS", 0, |(peer, _)| or_dash(peer.as_ref()))
        .text("SENT", 0, |(_, p)| p.sent.to_string())
        .text("BYTES", 0, |(_, p)| Bytes::new(p.bytes_sent).to_string())
        .text("AGAIN", 0, |(_, p)| p.repeated.to_string())
        .text("DOUBLED", 0, |(_, p)| p.doubled.to_string())
        .text("DROPPED", 0, |(_, p)| {
            format!("{}+{}+{}", p.dropped_queue, p.dropped_memory, p.dropped_old)
        })
        .text("MARKED", 0, |(_, p)| p.marked.to_string())
        .text("GIVEN UP", 0, |(_, p)| p.given_up.to_string())
        .text("RECEIVED", 0, |(_, p)| p.received.to_string())
        .text("BYTES", 0, |(_, p)| Bytes::new(p.bytes_received).to_string())
        .text("TWICE", 0, |(_, p)| p.duplicates.to_string())
        .text("LATE", 0, |(_, p)| p.late.to_string())
        .text("UNUSED", 0, |(_, p)| p.dropped_received.to_string())
        .text("FLOWS", 0, |(_, p)| p.flows.to_string())
        .text("HELD", 0, |(_, p)| Bytes::new(p.bytes_held).to_string())
        .grid()
}

fn connections(report: &Report) -> Grid {
    Grid::of(&report.connections)
        .text("KEY", 0, |c| c.key.to_string())
        .text("PROGRAM", 0, |c| or_dash(c.program.as_deref()))
        .text("PRIO", 0, |c| or_dash(c.priority))
        .text("TARGET", 0, |c| c.target.clone())
        .text("STATE", 0, |c| c.state.clone())
        .text("TO HOP", 0, |c| Bytes::new(c.bytes_to_hop).to_string())
        .text("FROM HOP", 0, |c| Bytes::new(c.bytes_from_hop).to_string())
        .text("AGE", 0, |c| age(c.age_s))
        .grid()
}

fn up(up: bool) -> String {
    if up { "up" } else { "down" }.to_owned()
}

/// Of what is young, to a tenth of a second.
fn age(seconds: f64) -> String {
    if seconds < 60.0 { format!("{seconds:.1}s") } else { grid::age(seconds) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use lasthop_control::{
        BaseReport, ConnectionReport, Counters, InterfaceReport, PacketReport, PeerReport,
    };

    use super::*;

    #[test]
    fn who_serves_is_ready_and_who_does_not_says_why() {
        let said = |report: &Report| ready(report).map_err(|why| why.to_string());
        let base = Report { draining: Some(false), mobiles: Some(3), ..report() };
        assert_eq!(said(&base), Ok(()));
        let leaving = Report { draining: Some(true), ..base };
        assert_eq!(said(&leaving), Err("the base is draining; mobiles left: 3".to_owned()));
        let text = tables(&leaving);
        assert!(text.contains("draining: mobiles left: 3\n"), "{text}");
        let mobile = Report { role: "mobile".into(), ..report() };
        assert_eq!(said(&mobile), Ok(()));
        let lost = Report { associations: Vec::new(), ..mobile };
        assert_eq!(said(&lost), Err("the mobile has no base".to_owned()));
    }

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
    fn packets_are_shown_of_associations_that_carry_some() {
        let mut report = report();
        assert!(!tables(&report).contains("PACKETS"));
        report.associations[0].packets = Some(PacketReport {
            sent: 50_000,
            bytes_sent: 10_000_000,
            dropped_queue: 7,
            dropped_old: 2,
            late: 3,
            flows: 4,
            ..PacketReport::default()
        });
        let text = tables(&report);
        let row = text.lines().skip_while(|line| !line.starts_with("PACKETS")).nth(1).unwrap();
        let said = ["hSDwCYkw", "50000", "10.0 MB", "7+0+2", "3", "4"];
        let cells: Vec<_> =
            row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert!(said.iter().all(|cell| cells.contains(cell)), "{text}");
        let lines = lines(&report).unwrap();
        let association: Value = serde_json::from_str(lines.lines().nth(1).unwrap()).unwrap();
        assert_eq!(association["packets"]["dropped_queue"], 7, "{lines}");
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
        let error = ask::find(Some(Path::new("/nonexistent/lasthop.sock")), &ROLES, 3)
            .unwrap_err()
            .to_string();
        assert!(error.contains("/nonexistent/lasthop.sock"), "{error}");
    }
}
