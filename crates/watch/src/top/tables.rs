//! The tables that are shown, as text.

use lasthop_control::{BaseReport, HandoffReport, HandoffState, Handoffs, InterfaceReport};
use lasthop_units::{Bytes, Rate};

use super::grid::{Column, Grid};
use crate::history::{History, Ring};
use crate::sample::{Agent, Association, Connection, Program, Sample};

/// How much of a key people are shown.
const KEY_SHOWN: usize = 8;
/// How many samples a row's plot shows.
const PLOT: usize = 12;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

pub(super) fn associations(sample: &Sample) -> Grid {
    let columns = vec![
        Column::text("PEER", 0),
        Column::text("ADDRESS", 6),
        Column::text("STATE", 0),
        Column::number("DOWN", 0),
        Column::number("UP", 1),
        Column::number("LOSS", 1),
        Column::number("SRTT", 2),
        Column::number("QUEUE", 3),
        Column::number("PACED", 5),
        Column::number("AGE", 4),
    ];
    let row = |a: &Association| {
        let key = || a.report.peer.as_deref().map(|key| key.chars().take(KEY_SHOWN).collect());
        let (down, up) = sample.down_and_up(a.rates);
        vec![
            a.base.clone().or_else(key).unwrap_or_else(|| "-".to_owned()),
            or_dash(a.report.address.as_deref()),
            a.report.state.clone(),
            rate(down),
            rate(up),
            percent(a.report.loss),
            ms(a.report.srtt_ms),
            ms(a.report.queue_ms),
            rate(a.report.pacing_bps),
            age(a.report.age_s),
        ]
    };
    Grid { columns, rows: sample.associations.iter().map(row).collect() }
}

/// The connections at these places of the sample.
pub(super) fn connections(sample: &Sample, order: &[usize], history: Option<&History>) -> Grid {
    let mut columns = vec![
        Column::text("PROGRAM", 3),
        Column::text("TARGET", 0),
        Column::text("CLIENT", 7),
        Column::number("PRIO", 1),
        Column::number("DOWN", 0),
        Column::number("UP", 2),
        Column::number("TOTAL", 5),
        Column::number("AGE", 6),
        Column::text("STATE", 4),
    ];
    if history.is_some() {
        columns.push(Column::text("RATE", 8));
    }
    let row = |c: &Connection| {
        let (down, up) = sample.down_and_up(c.rates);
        let mut row = vec![
            or_dash(c.report.program.as_deref()),
            c.report.target.clone(),
            or_dash(c.report.client.as_deref()),
            c.report.priority.map_or_else(|| "-".to_owned(), |p| p.to_string()),
            rate(down),
            rate(up),
            Bytes::new(c.bytes()).to_string(),
            age(c.report.age_s),
            c.report.state.clone(),
        ];
        if let Some(history) = history {
            row.push(history.connection(&c.name).map(spark).unwrap_or_default());
        }
        row
    };
    let rows = order.iter().filter_map(|i| sample.connections.get(*i)).map(row).collect();
    Grid { columns, rows }
}

/// The programs at these places of the sample.
pub(super) fn programs(sample: &Sample, order: &[usize], history: Option<&History>) -> Grid {
    let mut columns = vec![
        Column::text("PROGRAM", 0),
        Column::number("CONNECTIONS", 3),
        Column::number("PRIO", 1),
        Column::number("DOWN", 0),
        Column::number("UP", 2),
        Column::number("TOTAL", 4),
    ];
    if history.is_some() {
        columns.push(Column::text("RATE", 5));
    }
    let row = |p: &Program| {
        let (down, up) = sample.down_and_up(p.rates);
        let priority = match p.priority {
            _ if p.mixed => "mixed".to_owned(),
            Some(priority) => priority.to_string(),
            None => "-".to_owned(),
        };
        let mut row = vec![
            or_dash(p.name.as_deref()),
            p.connections.to_string(),
            priority,
            rate(down),
            rate(up),
            Bytes::new(p.bytes).to_string(),
        ];
        if let Some(history) = history {
            row.push(history.program(p.name.as_deref()).map(spark).unwrap_or_default());
        }
        row
    };
    let rows = order.iter().filter_map(|i| sample.programs.get(*i)).map(row).collect();
    Grid { columns, rows }
}

pub(super) fn bases(sample: &Sample) -> Grid {
    let columns = vec![
        Column::text(" BASE", 0),
        Column::text("ADDRESS", 3),
        Column::text("STATE", 0),
        Column::text("INTERFACE", 2),
        Column::number("MOVES", 1),
        Column::number("LAST PAUSE", 1),
    ];
    let row = |b: &BaseReport| {
        vec![
            format!("{}{}", if b.current { "*" } else { " " }, b.name),
            b.address.clone(),
            b.state.clone(),
            or_dash(b.interface.as_deref()),
            b.handoffs.to_string(),
            ms(b.last_pause_s.map(|s| s * 1e3)),
        ]
    };
    Grid { columns, rows: sample.bases.iter().map(row).collect() }
}

pub(super) fn interfaces(agent: &Agent) -> Grid {
    let columns = vec![
        Column::text("INTERFACE", 0),
        Column::text("TO", 0),
        Column::text("STATE", 1),
        Column::number("IN", 1),
        Column::number("OUT", 1),
        Column::number("BYTES IN", 2),
        Column::number("BYTES OUT", 2),
        Column::number("MISSED", 3),
        Column::number("UNSENT", 3),
    ];
    let row = |i: &InterfaceReport, to: &str| {
        vec![
            i.name.clone(),
            to.to_owned(),
            if i.up { "up" } else { "down" }.to_owned(),
            i.packets_received.to_string(),
            i.packets_sent.to_string(),
            Bytes::new(i.bytes_received).to_string(),
            Bytes::new(i.bytes_sent).to_string(),
            i.packets_missed.to_string(),
            i.packets_unsent.to_string(),
        ]
    };
    let rows = vec![row(&agent.report.fixed, "fixed"), row(&agent.report.mobile, "mobile")];
    Grid { columns, rows }
}

pub(super) fn counters(agent: &Agent) -> Grid {
    let columns = vec![
        Column::text("COUNTER", 0),
        Column::number("SINCE START", 0),
        Column::number("PER SECOND", 1),
    ];
    let row = |(name, count): (&String, &u64)| {
        let speed = agent.counters_per_s.get(name);
        vec![
            name.clone(),
            count.to_string(),
            speed.map_or_else(|| "-".to_owned(), |n| format!("{n:.1}")),
        ]
    };
    Grid { columns, rows: agent.report.counters.iter().map(row).collect() }
}

/// One line on the process.
pub(super) fn title(sample: &Sample) -> String {
    let hop = match &sample.agent {
        Some(agent) => agent.report.schemes.join(" "),
        None => sample.hop.clone(),
    };
    format!("{} ({hop}, version {}), up {}", sample.role, sample.version, age(sample.uptime_s))
}

/// One line on everything that crosses the hop.
pub(super) fn total(sample: &Sample) -> String {
    let (down, up) = sample.down_and_up(sample.total.rates);
    let mut parts = vec![format!("down {}", rate(down)), format!("up {}", rate(up))];
    let mut add = |name: &str, value: Option<String>| {
        parts.extend(value.map(|value| format!("{name} {value}")));
    };
    add("loss", sample.total.loss.map(|loss| percent(Some(loss))));
    add("srtt", sample.total.srtt_ms.map(|t| ms(Some(t))));
    add("queue", sample.total.queue_ms.map(|t| ms(Some(t))));
    if let Some(agent) = &sample.agent {
        add("link", Some(agent.report.link.clone()).filter(|link| !link.is_empty()));
        let heard = |heard| if heard { "heard" } else { "not heard" }.to_owned();
        add("other agent", agent.report.peer.map(heard));
    } else {
        let c = &sample.counters;
        let counts = format!("{} opened, {} refused, {} closed", c.opened, c.refused, c.closed);
        add("connections", Some(counts));
    }
    parts.join("   ")
}

/// One line on handoffs, where there were any.
pub(super) fn handoffs(sample: &Sample) -> Option<String> {
    let counts = sample.handoffs.as_ref().map(|h| moves(&sample.role, h));
    let latest = sample.handoff.as_ref().map(latest);
    match (counts, latest) {
        (Some(counts), Some(latest)) => Some(format!("{counts}; {latest}")),
        (counts, latest) => counts.or(latest),
    }
}

fn moves(role: &str, handoffs: &Handoffs) -> String {
    let Handoffs { here, given, refused, lost, anchored, migrated } = handoffs;
    if role == "mobile" {
        return format!("handoffs: {here} done, {refused} refused, {lost} connections lost");
    }
    format!(
        "handoffs: {here} here, {given} given, {refused} refused; \
         connections: {anchored} anchored, {migrated} migrated, {lost} lost"
    )
}

fn latest(handoff: &HandoffReport) -> String {
    let HandoffReport { to, moved, lost, .. } = handoff;
    match handoff.state {
        HandoffState::UnderWay => format!("to {to}: under way"),
        HandoffState::Done => {
            let pause = ms(handoff.pause_s.map(|s| s * 1e3));
            format!("to {to}: {moved} moved, {lost} lost, pause {pause}")
        }
        HandoffState::Broken => {
            format!("to {to}: failed ({})", handoff.reason.as_deref().unwrap_or("no reason known"))
        }
    }
}

/// The last samples as a row of bars, the highest of them full.
pub(super) fn spark(ring: &Ring) -> String {
    let skipped = ring.iter().len().saturating_sub(PLOT);
    let highest = ring.iter().skip(skipped).filter(|v| v.is_finite()).fold(0.0_f32, f32::max);
    let bar = |v: f32| {
        if !v.is_finite() || highest <= 0.0 {
            return if v.is_finite() { BARS[0] } else { ' ' };
        }
        let step = (v / highest * (BARS.len() - 1) as f32).round() as usize;
        BARS.get(step).copied().unwrap_or('█')
    };
    ring.iter().skip(skipped).map(bar).collect()
}

fn or_dash(text: Option<&str>) -> String {
    text.unwrap_or("-").to_owned()
}

fn rate(bps: Option<u64>) -> String {
    bps.map_or_else(|| "-".to_owned(), |bps| Rate::from_bps(bps).to_string())
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

fn ms(t: Option<f64>) -> String {
    t.map_or_else(|| "-".to_owned(), |t| format!("{t:.1} ms"))
}

fn age(seconds: f64) -> String {
    let s = seconds as u64;
    match s {
        0..60 => format!("{s}s"),
        60..3600 => format!("{}m{:02}s", s / 60, s % 60),
        3600..86_400 => format!("{}h{:02}m", s / 3600, s / 60 % 60),
        _ => format!("{}d{:02}h", s / 86_400, s / 3600 % 24),
    }
}
