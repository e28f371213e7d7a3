//! The tables that are shown, as text.

use lasthop_control::grid::{self, Grid, age, key, ms, or_dash, pause, percent, rate};
use lasthop_control::{AgentReport, HandoffReport, HandoffState, Handoffs};
use lasthop_units::Bytes;

use crate::history::{History, Ring};
use crate::sample::{Agent, Association, Path, Program, Sample};

/// How many samples a row's plot shows.
const PLOT: usize = 12;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// What people call the peer of an association.
fn peer(a: &Association) -> String {
    or_dash(a.base.clone().or_else(|| a.report.peer.as_deref().map(key)))
}

pub(super) fn associations(sample: &Sample) -> Grid {
    Grid::of(&sample.associations)
        .text("PEER", 0, peer)
        .text("ADDRESS", 6, |a| or_dash(a.report.address.as_deref()))
        .text("STATE", 0, |a| a.report.state.clone())
        .number("DOWN", 0, |a| rate(sample.down_and_up(a.rates).0))
        .number("UP", 1, |a| rate(sample.down_and_up(a.rates).1))
        .number("LOSS", 1, |a| percent(a.report.loss))
        .number("SRTT", 2, |a| ms(a.report.srtt_ms))
        .number("QUEUE", 3, |a| ms(a.report.queue_ms))
        .number("PACED", 5, |a| rate(a.report.pacing_bps))
        .number("AGE", 4, |a| age(a.report.age_s))
        .grid()
}

/// The paths of the associations that have several.
pub(super) fn paths(sample: &Sample, history: Option<&History>) -> Grid {
    let all = sample.associations.iter();
    let rows: Vec<(&Association, &Path)> =
        all.flat_map(|a| a.paths.iter().map(move |p| (a, p))).collect();
    let grid = Grid::of(&rows)
        .text("PATH", 0, |(_, p)| p.report.name.clone())
        .text("PEER", 3, |(a, _)| peer(a))
        .text("ADDRESS", 7, |(_, p)| or_dash(p.report.address.as_deref()))
        .text("STATE", 0, |(_, p)| p.report.state.clone())
        .number("DOWN", 0, |(_, p)| rate(sample.down_and_up(p.rates).0))
        .number("UP", 1, |(_, p)| rate(sample.down_and_up(p.rates).1))
        .number("LOSS", 1, |(_, p)| percent(Some(p.report.loss)))
        .number("SRTT", 2, |(_, p)| ms(p.report.srtt_ms))
        .number("QUEUE", 4, |(_, p)| ms(p.report.queue_ms))
        .number("SENT", 5, |(_, p)| Bytes::new(p.report.bytes_sent).to_string())
        .number("RECEIVED", 5, |(_, p)| Bytes::new(p.report.bytes_received).to_string());
    let Some(history) = history else { return grid.grid() };
    let plot =
        |(a, p): &(&Association, &Path)| history.path(a.report.id, &p.report.name).map(spark);
    grid.text("RATE", 6, |row| plot(row).unwrap_or_default()).grid()
}

/// The connections at these places of the sample.
pub(super) fn connections(sample: &Sample, order: &[usize], history: Option<&History>) -> Grid {
    let grid = Grid::of(order.iter().filter_map(|i| sample.connections.get(*i)))
        .text("PROGRAM", 3, |c| or_dash(c.report.program.as_deref()))
        .text("TARGET", 0, |c| c.report.target.clone())
        .text("CLIENT", 7, |c| or_dash(c.report.client.as_deref()))
        .number("PRIO", 1, |c| or_dash(c.report.priority))
        .number("DOWN", 0, |c| rate(sample.down_and_up(c.rates).0))
        .number("UP", 2, |c| rate(sample.down_and_up(c.rates).1))
        .number("TOTAL", 5, |c| Bytes::new(c.bytes()).to_string())
        .number("AGE", 6, |c| age(c.report.age_s))
        .text("STATE", 4, |c| c.report.state.clone());
    let Some(history) = history else { return grid.grid() };
    grid.text("RATE", 8, |c| history.connection(&c.name).map(spark).unwrap_or_default()).grid()
}

/// The programs at these places of the sample.
pub(super) fn programs(sample: &Sample, order: &[usize], history: Option<&History>) -> Grid {
    let priority = |p: &Program| if p.mixed { "mixed".to_owned() } else { or_dash(p.priority) };
    let grid = Grid::of(order.iter().filter_map(|i| sample.programs.get(*i)))
        .text("PROGRAM", 0, |p| or_dash(p.name.as_deref()))
        .number("CONNECTIONS", 3, |p| p.connections.to_string())
        .number("PRIO", 1, priority)
        .number("DOWN", 0, |p| rate(sample.down_and_up(p.rates).0))
        .number("UP", 2, |p| rate(sample.down_and_up(p.rates).1))
        .number("TOTAL", 4, |p| Bytes::new(p.bytes).to_string());
    let Some(history) = history else { return grid.grid() };
    let plot = |p: &Program| history.program(p.name.as_deref()).map(spark);
    grid.text("RATE", 5, |p| plot(p).unwrap_or_default()).grid()
}

pub(super) fn bases(sample: &Sample) -> Grid {
    Grid::of(&sample.bases)
        .text(" BASE", 0, |b| format!("{}{}", if b.current { "*" } else { " " }, b.name))
        .text("ADDRESS", 3, |b| b.address.clone())
        .text("STATE", 0, |b| b.state.clone())
        .text("INTERFACE", 2, |b| or_dash(b.interface.as_deref()))
        .number("MOVES", 1, |b| b.handoffs.to_string())
        .number("LAST PAUSE", 1, |b| pause(b.last_pause_s))
        .grid()
}

pub(super) fn interfaces(agent: &Agent) -> Grid {
    let AgentReport { fixed, mobile, .. } = &agent.report;
    Grid::of(&[(fixed, "fixed"), (mobile, "mobile")])
        .text("INTERFACE", 0, |(i, _)| i.name.clone())
        .text("TO", 0, |(_, to)| (*to).to_owned())
        .text("STATE", 1, |(i, _)| if i.up { "up" } else { "down" }.to_owned())
        .number("IN", 1, |(i, _)| i.packets_received.to_string())
        .number("OUT", 1, |(i, _)| i.packets_sent.to_string())
        .number("BYTES IN", 2, |(i, _)| Bytes::new(i.bytes_received).to_string())
        .number("BYTES OUT", 2, |(i, _)| Bytes::new(i.bytes_sent).to_string())
        .number("MISSED", 3, |(i, _)| i.packets_missed.to_string())
        .number("UNSENT", 3, |(i, _)| i.packets_unsent.to_string())
        .grid()
}

pub(super) fn counters(agent: &Agent) -> Grid {
    let speed = |name: &String| agent.counters_per_s.get(name).map(|n| format!("{n:.1}"));
    let counters: Vec<(&String, &u64)> = agent.report.counters.iter().collect();
    Grid::of(&counters)
        .text("COUNTER", 0, |(name, _)| (*name).clone())
        .number("SINCE START", 0, |(_, count)| count.to_string())
        .number("PER SECOND", 1, |(name, _)| or_dash(speed(name)))
        .grid()
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

/// One line on packets beside the streams, where an association carries some.
pub(super) fn packets(sample: &Sample) -> Option<String> {
    let p = sample.total.packets?;
    let (down, up) = match sample.role.as_str() {
        "mobile" => (p.from_hop_per_s, p.to_hop_per_s),
        _ => (p.to_hop_per_s, p.from_hop_per_s),
    };
    let per_s = |rate: Option<f64>| or_dash(rate.map(|rate| format!("{rate:.0}/s")));
    Some(format!(
        "packets: down {}, up {}; {} flows, {} held; {} dropped, {} given up, {} late",
        per_s(down),
        per_s(up),
        p.flows,
        Bytes::new(p.bytes_held),
        p.dropped,
        p.given_up,
        p.late
    ))
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
    let Handoffs { here, given, refused, lost, anchored, migrated, .. } = handoffs;
    if role == "mobile" {
        return format!("handoffs: {here} done, {refused} refused, {lost} connections lost");
    }
    let orphans = grid::orphans(handoffs);
    format!(
        "handoffs: {here} here, {given} given, {refused} refused; \
         connections: {anchored} anchored, {migrated} migrated, {lost} lost{orphans}"
    )
}

fn latest(handoff: &HandoffReport) -> String {
    let HandoffReport { to, moved, lost, .. } = handoff;
    match handoff.state {
        HandoffState::UnderWay => format!("to {to}: under way"),
        HandoffState::Done => {
            let pause = pause(handoff.pause_s);
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
