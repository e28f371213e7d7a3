//! What is not TCP: a download by QUIC and a call beside a download, with lasthop and without.

use std::fmt::{self, Write};
use std::path::Path;
use std::time::Duration;

use lasthop_engine::emodel;
use lasthop_lab::cell::{Carried, Measured, Plan, measure};
use lasthop_lab::client::Stop;
use lasthop_lab::condition::Condition;
use lasthop_lab::quic::Congestion;
use lasthop_lab::scheme::Scheme;
use lasthop_lab::voice::{Call, call};
use lasthop_units::Seed;
use serde::Serialize;

use super::{Options, report};

/// What rides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Quic,
    Voice,
}

/// One cell.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Cell {
    kind: Kind,
    condition: Condition,
    /// By lasthop.
    helped: bool,
}

impl Cell {
    /// All of them, those of one kind and condition together.
    pub(super) fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for (kind, percents) in [(Kind::Quic, [5, 20]), (Kind::Voice, [5, 10])] {
            for condition in percents.map(Condition::Loss) {
                all.extend([false, true].map(|helped| Self { kind, condition, helped }));
            }
        }
        all
    }

    /// What the row is called.
    pub(super) fn row(&self) -> &'static str {
        if self.helped { "srp" } else { "none" }
    }

    /// What the cell is called.
    pub(super) fn name(&self) -> String {
        let kind = if self.kind == Kind::Quic { "quic" } else { "voice" };
        format!("{kind}-{}", self.condition)
    }

    fn plan(&self, options: &Options) -> Plan {
        let mut topology = self.condition.topology();
        topology.seed = Seed::from_u64(options.seed).child(&self.name());
        let scheme = match self.helped {
            true => Scheme::Srp,
            false => Scheme::Kernel("cubic".to_owned()),
        };
        let traffic = match self.kind {
            Kind::Quic => Carried::Quic(Congestion::Cubic),
            Kind::Voice => Carried::Tcp,
        };
        let measured = Duration::from_secs(options.seconds);
        Plan { topology, scheme, traffic, measured, ..Plan::default() }
    }

    /// Measures it.
    pub(super) fn measure(&self, options: &Options, program: &Path, stop: &Stop) -> Outcome {
        let plan = self.plan(options);
        let outcome = match self.kind {
            Kind::Quic => measure(&plan, program, stop).map(|m| Outcome::Quic(Box::new(m))),
            Kind::Voice => call(&plan, program, stop).map(Outcome::Voice),
        };
        outcome.unwrap_or_else(|error| Outcome::Failed(error.to_string()))
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.row(), self.name())
    }
}

/// What became of a cell.
#[derive(Debug)]
pub(super) enum Outcome {
    Quic(Box<Measured>),
    Voice(Call),
    Failed(String),
}

impl Outcome {
    /// Whether the demonstration may succeed with it.
    pub(super) fn is_good(&self) -> bool {
        match self {
            Self::Quic(measured) => measured.sha256_ok,
            Self::Voice(_) => true,
            Self::Failed(_) => false,
        }
    }
}

/// How people would judge the call.
fn mos(call: &Call) -> f64 {
    emodel::mos(call.delay(500).unwrap_or_default(), call.residual_loss())
}

/// A call as programs read it.
#[derive(Serialize)]
struct VoiceLine {
    scheme: &'static str,
    cell: String,
    sent: u64,
    /// The share of packets that never came.
    residual_loss: f64,
    /// One way, the path's own 45 ms included.
    delay_p50_s: Option<f64>,
    delay_p99_s: Option<f64>,
    mos: f64,
}

#[derive(Serialize)]
struct FailedLine<'a> {
    scheme: &'static str,
    cell: String,
    error: &'a str,
}

/// A cell as one JSON object on one line.
pub(super) fn json(cell: &Cell, outcome: &Outcome) -> anyhow::Result<String> {
    let (scheme, name) = (cell.row(), cell.name());
    Ok(match outcome {
        Outcome::Quic(measured) => report::measured_line(scheme, &name, measured)?,
        Outcome::Voice(call) => serde_json::to_string(&VoiceLine {
            scheme,
            cell: name,
            sent: call.sent,
            residual_loss: report::rounded(call.residual_loss()),
            delay_p50_s: call.delay(500).map(report::seconds),
            delay_p99_s: call.delay(990).map(report::seconds),
            mos: report::rounded(mos(call)),
        })?,
        Outcome::Failed(error) => serde_json::to_string(&FailedLine { scheme, cell: name, error })?,
    })
}

/// A cell in a few words.
pub(super) fn summary(outcome: &Outcome) -> String {
    let ms = |delay: Option<Duration>| delay.map_or(0.0, |delay| delay.as_secs_f64() * 1e3);
    match outcome {
        Outcome::Quic(m) => report::transfer(m),
        Outcome::Voice(call) => format!(
            "{:.2} % lost, {:.0} ms, 99 % within {:.0} ms, MOS {:.2}",
            call.residual_loss() * 100.0,
            ms(call.delay(500)),
            ms(call.delay(990)),
            mos(call)
        ),
        Outcome::Failed(why) => format!("FAILED: {why}"),
    }
}

/// A table of all.
pub(super) fn table(cells: &[Cell], outcomes: &[Option<Outcome>]) -> String {
    let mut out = String::from(
        "\nPackets: a download by QUIC (CUBIC), in % of the limit; a call of 50 packets a second \
         beside a download\n",
    );
    for (cell, outcome) in cells.iter().zip(outcomes) {
        if let Some(outcome) = outcome {
            let _ = writeln!(out, "{:<24} {}", cell.to_string(), summary(outcome));
        }
    }
    out
}
