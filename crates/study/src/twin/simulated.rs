//! The simulated half.

use std::sync::atomic::AtomicBool;

use lasthop_agent::edge::WithholdConfig;
use lasthop_agent::{obtcp, snoop};
use lasthop_engine::Simulator;
use lasthop_radio::Span;
use lasthop_scenario::{
    AgentSettings, AtcpSettings, End, Engine, Flow, FlowTcp, Headers, Link, Measure,
    MobileSettings, MobileTcpSettings, NodeIndex, NodeKind, Outputs, RunError, Rwc, Scenario,
    ScenarioNode, Schemes, Srp, Stack, TcpSettings, Traffic,
};
use lasthop_sim::signals::{Quality, SignalsConfig};
use lasthop_tcp::{Algorithm, ShrunkWindow, Window};
use lasthop_units::{Duration, Rate, Seed};
use rayon::prelude::*;

use super::cell::{Cell, Condition, Outage, Sender};

/// What Linux adds to the smoothed round trip at least (`tcp_rto_min`).
const LINUX_RTO_MIN: Duration = Duration::from_millis(200);
const FLOW: &str = "download";
const GOODPUT: &str = "download.goodput_bps";

/// What the application at the mobile received in the simulated world, one rate for each seed, over
/// the whole of [`Cell::duration`].
///
/// # Errors
///
/// The simulator refuses the cell, or fails.
pub fn run(cell: &Cell, seeds: &[u64]) -> Result<Vec<Rate>, RunError> {
    let scenario = scenario(cell);
    seeds.par_iter().map(|seed| once(&scenario, Seed::from_u64(*seed))).collect()
}

fn once(scenario: &Scenario, seed: Seed) -> Result<Rate, RunError> {
    let stop = AtomicBool::new(false);
    let outcome = Simulator.run(scenario, seed, &Outputs { directory: None, stop: &stop })?;
    let goodput = outcome.metrics.into_iter().find(|(name, _)| name == GOODPUT);
    let rate = goodput.map(|(_, value)| value).filter(|value| value.is_finite() && *value >= 0.0);
    rate.map(|bps| Rate::from_bps(bps as u64))
        .ok_or_else(|| RunError::Failed(format!("{GOODPUT} was not measured")))
}

/// The cell as the simulator's own scenario.
///
/// Both ends are as near to Linux's TCP as the simulator's comes: `tcp` below has the particulars.
pub fn scenario(cell: &Cell) -> Scenario {
    let (nodes, links) = topology(cell);
    let (from, to) = (NodeIndex(0), NodeIndex(nodes.len() - 1));
    let tcp = tcp(cell);
    let flow = Flow {
        name: FLOW.into(),
        from,
        to,
        start: Duration::ZERO,
        traffic: Traffic::Bulk,
        schemes: Schemes::one(cell.scheme),
        encrypted: false,
        once: false,
        tcp: FlowTcp { from: tcp.clone(), to: tcp, ..FlowTcp::default() },
    };
    Scenario {
        end: End::After(cell.duration),
        headers: Headers::Counted,
        nodes,
        links,
        link_sets: Vec::new(),
        flows: vec![flow],
        handoff: cell.handoff(),
        signals: signals(cell),
        srp: Srp::default(),
        mobile_tcp: MobileTcpSettings::default(),
        agent: AgentSettings {
            snoop: snoop::Config::modern(),
            obtcp: obtcp::Config::modern(),
            ..AgentSettings::default()
        },
        mobile: MobileSettings { edge: true, atcp: atcp_of_kernels(), ..MobileSettings::default() },
        rwc: Rwc { packets: Cell::WINDOW, priorities: vec![1], changes: Vec::new() },
        measure: Measure::default(),
    }
}

/// As `lasthop agent` has it.
fn atcp_of_kernels() -> AtcpSettings {
    let config = WithholdConfig::modern();
    AtcpSettings {
        delay: Some(Span(config.delay)),
        calm: Some(config.calm),
        ..AtcpSettings::default()
    }
}

/// Fixed host, base, mobile router if there is one, and mobile, in a row.
fn topology(cell: &Cell) -> (Vec<ScenarioNode>, Vec<Link>) {
    let node = |name: &str, kind| ScenarioNode {
        name: name.into(),
        kind,
        supervisor: false,
        links: Vec::new(),
    };
    let mut nodes = vec![node("server", NodeKind::FixedHost), node("base", NodeKind::Base)];
    if cell.condition.has_router() {
        nodes.push(node("train", NodeKind::MobileRouter));
    }
    nodes.push(node("phone", NodeKind::MobileHost));
    let between =
        [("wire", Some(cell.wire())), ("radio", Some(cell.radio())), ("wlan", cell.wlan())];
    let links = between.into_iter().filter_map(|(name, radio)| Some((name, radio?)));
    let links = links.enumerate().map(|(i, (name, radio))| Link {
        name: name.into(),
        // A radio's `up` is from the first end to the second.
        ends: [NodeIndex(i + 1), NodeIndex(i)],
        radio,
        half_duplex: false,
    });
    (nodes, links.collect())
}

/// Warnings come with the lead of the cell's gaps, everything else at once and truthfully.
fn signals(cell: &Cell) -> SignalsConfig {
    let lead = match cell.condition {
        Condition::Gaps { .. } => {
            cell.outages(Seed::from_u64(0)).iter().find_map(|outage: &Outage| outage.lead)
        }
        _ => None,
    };
    let predicted = Quality { lead, ..Quality::default() };
    SignalsConfig { predicted, ..SignalsConfig::default() }
}

/// TCP at both ends, as Linux has it where the simulator's TCP can.
///
/// Without selective acknowledgements Linux repairs several losses of a window by partial
/// acknowledgements: NewReno, under the name of `reno`. Its least timeout is added to the smoothed
/// round trip, where RFC 6298 takes the greater of the two; the least round trip of the path stands
/// in for that. Its retransmission timer keeps running where a window closes on outstanding data.
fn tcp(cell: &Cell) -> TcpSettings {
    TcpSettings {
        stack: Some(Stack::Modern),
        variant: Some(match cell.sender {
            Sender::Reno => Algorithm::NewReno,
            Sender::Cubic => Algorithm::Cubic,
        }),
        sack: Some(cell.sender.sack()),
        timestamps: Some(cell.sender.timestamps()),
        max_window: cell.window().map(Window::Segments),
        min_rto: Some(Span(LINUX_RTO_MIN + cell.round_trip())),
        shrunk_window: Some(ShrunkWindow::KeepTimer),
        ..TcpSettings::default()
    }
}
