//! Each run of a cell: a scenario in the simulator.

use lasthop_radio::{Errors, Pacing};
use lasthop_scenario::Scenario;
use lasthop_units::{Duration, Seed};

use super::cells::{Case, Measure};
use super::rate::{Effect, Rates};
use crate::reproduce::{Cell, CellRunner, Failure, sheet};

/// The flow of every scenario.
const FLOW: &str = "download";
/// The link of Table I's scenarios on which the trouble is.
const RADIO: &str = "radio";

/// The rate of one run over time, and its handoff.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Shown {
    /// Seconds and kbit/s.
    pub rate: Vec<(f64, f64)>,
    /// The handoff, from and to, in seconds.
    pub handoff: (f64, f64),
}

/// What runs this paper's cells; the simulator, or a stand-in of it in tests.
pub trait Runner: CellRunner<Case> {
    /// The rate of a run over time, where it is recorded.
    fn shown(&self, case: &Case, seed: Seed) -> Option<Shown>;
}

/// The experiment in the simulator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Simulated;

impl CellRunner<Case> for Simulated {
    fn run(&self, cell: &Cell<Case>, _run: u32, seed: Seed) -> Result<f64, Failure> {
        let Case { scenario, measure } = &cell.case;
        let metric =
            |name: &str| sheet::metric(&sheet::outcome(scenario, seed)?, &format!("{FLOW}.{name}"));
        match *measure {
            Measure::Timeouts => metric("fixed_timeouts"),
            Measure::Goodput => Ok(metric("goodput_bps")? / 1e3),
            Measure::Early => metric("acked_early_bytes"),
            Measure::Ideal => Ok(100.0 * metric("goodput_bps")? / ideal(scenario, seed)?),
            Measure::Minimum(bin) => Ok(effect(scenario, seed, bin)?.minimum),
            Measure::Recovery { bin, from_end } => {
                let effect = effect(scenario, seed, bin)?;
                let time = if from_end { effect.from_end } else { effect.from_start };
                let lost = || Failure::Incomplete("the rate did not recover".to_owned());
                time.ok_or_else(lost)
            }
        }
    }
}

impl Runner for Simulated {
    fn shown(&self, case: &Case, seed: Seed) -> Option<Shown> {
        let rates = rates(&case.scenario, seed).ok()?;
        let handoff = handoff(&case.scenario, seed).ok()?;
        Some(Shown { rate: rates.means(Duration::from_secs(1)), handoff })
    }
}

/// What the radio of Table I could carry in this run, in bit/s: its rate while it is up, less what it
/// loses.
fn ideal(scenario: &Scenario, seed: Seed) -> Result<f64, Failure> {
    let nothing = || Failure::Unavailable("the radio has no rate".to_owned());
    let link = scenario.links.iter().find(|link| link.name == RADIO).ok_or_else(nothing)?;
    let Pacing::Rate(rate) = link.radio.up.pacing else { return Err(nothing()) };
    let lost = |errors: &Errors| match errors {
        Errors::Uniform(share) => *share,
        Errors::Burst { .. } | Errors::Fade { .. } => 0.0,
    };
    let kept: f64 = link.radio.up.losses.iter().map(|loss| 1.0 - lost(&loss.errors)).product();
    let pauses: Duration = match &scenario.handoff {
        Some(handoff) => handoff.moves(seed).map(|m| m.pause).sum(),
        None => Duration::ZERO,
    };
    let up = 1.0 - pauses.as_secs_f64() / scenario.end.latest().as_secs_f64();
    Ok(rate.as_bps() as f64 * kept * up)
}

fn effect(scenario: &Scenario, seed: Seed, bin: Duration) -> Result<Effect, Failure> {
    let (start, end) = handoff(scenario, seed)?;
    rates(scenario, seed)?
        .effect((start, end), bin)
        .ok_or_else(|| Failure::Incomplete("there is no rate around the handoff".to_owned()))
}

fn rates(scenario: &Scenario, seed: Seed) -> Result<Rates, Failure> {
    Ok(Rates::read(&sheet::recorded(scenario, seed, "rates.csv")?))
}

/// The first handoff: from the loss of the link until packets find the mobile, in seconds.
fn handoff(scenario: &Scenario, seed: Seed) -> Result<(f64, f64), Failure> {
    let none = || Failure::Unavailable("there is no handoff".to_owned());
    let handoff = scenario.handoff.as_ref().ok_or_else(none)?;
    let first = handoff.moves(seed).next().ok_or_else(none)?;
    let end = first.at + first.pause + handoff.registration;
    Ok((first.at.as_secs_f64(), end.as_secs_f64()))
}
