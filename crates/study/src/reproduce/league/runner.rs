//! Each run, and what is taken from it.

use lasthop_radio::{Errors, Pacing, RadioConfig};
use lasthop_scenario::{End, Outcome, Scenario};
use lasthop_sim::measure::fairness;
use lasthop_units::{Rate, Seed};

use super::cells::{Case, Measure};
use crate::reproduce::{Failure, sheet};

/// Bytes of the IP and TCP headers of a segment, without options.
const HEADERS: f64 = 40.0;
/// The payload of a full segment where a scenario does not say.
const MSS: f64 = 1460.0;

/// Runs a case once, and takes what is asked for from it, in the same order.
pub(super) fn run(case: &Case, seed: Seed, measures: &[Measure]) -> Vec<Result<f64, Failure>> {
    match sheet::outcome(&case.scenario, seed) {
        Ok(outcome) => measures.iter().map(|measure| take(case, &outcome, *measure)).collect(),
        Err(failure) => vec![Err(failure); measures.len()],
    }
}

fn take(case: &Case, outcome: &Outcome, measure: Measure) -> Result<f64, Failure> {
    let metric = |name: &str| sheet::metric(outcome, name);
    match measure {
        Measure::Goodput => {
            let limit = limit(&case.scenario, case.radios);
            let limit =
                limit.ok_or_else(|| Failure::Unavailable("no limit is known".to_owned()))?;
            Ok(100.0 * metric("bulk.goodput_bps")? / limit.as_bps() as f64)
        }
        Measure::Timeouts => metric("bulk.timeouts"),
        Measure::Delay => Ok(1e3 * metric("keys.latency_s")?),
        Measure::Overhead => {
            let mut carried = 0.0;
            for radio in case.radios {
                for way in ["forward", "backward"] {
                    carried += metric(&format!("{radio}.{way}.bytes"))?;
                }
            }
            let received = metric("bulk.received_bytes")?;
            if received == 0.0 {
                return Err(Failure::Incomplete("nothing arrived".to_owned()));
            }
            Ok(carried / case.hops / received)
        }
        Measure::Lost => Ok(100.0 * metric("it.residual_loss")?),
        Measure::AddedMedian => Ok(1e3 * metric("it.added_p50_s")?),
        Measure::AddedMost => Ok(1e3 * metric("it.added_p99_s")?),
        Measure::Opinion => metric("it.mos"),
        Measure::Rate => Ok(1e-6 * metric("it.goodput_bps")?),
        Measure::Fairness => {
            let bulk = case.scenario.flows.iter().filter(|flow| flow.name.starts_with("bulk"));
            let rate = |name: &str| metric(&format!("{name}.goodput_bps"));
            let rates: Result<Vec<Rate>, Failure> =
                bulk.map(|flow| Ok(Rate::from_bps(rate(&flow.name)? as u64))).collect();
            fairness(&rates?).ok_or_else(|| Failure::Incomplete("nothing arrived".to_owned()))
        }
    }
}

/// The most that the radios allow: the rate of the slowest, less what it loses, less headers, in the
/// share of the time that it carries. What a registration takes after a pause is not the radio's, and
/// so not left out.
pub(super) fn limit(scenario: &Scenario, radios: &[&str]) -> Option<Rate> {
    let links = radios.iter().filter_map(|radio| scenario.links.iter().find(|l| l.name == *radio));
    let carried = links.map(|link| carried(&link.radio)).collect::<Option<Vec<f64>>>()?;
    let slowest = carried.into_iter().min_by(f64::total_cmp)?;
    let mss = scenario.flows.first().and_then(|f| f.tcp.from.mss).map_or(MSS, f64::from);
    let bps = slowest * mss / (mss + HEADERS) * (1.0 - silence(scenario)?);
    Some(Rate::from_bps(bps as u64))
}

/// Bits that a radio carries to its far end in a second.
fn carried(radio: &RadioConfig) -> Option<f64> {
    let Pacing::Rate(rate) = &radio.up.pacing else { return None };
    let survives: Option<f64> = radio
        .up
        .losses
        .iter()
        .map(|loss| match loss.errors {
            Errors::Uniform(p) => Some(1.0 - p),
            Errors::Fade { share, .. } => Some(1.0 - share),
            Errors::Burst { .. } => None,
        })
        .product();
    Some(rate.as_bps() as f64 * survives?)
}

/// The share of a run in which a mobile has no radio at all.
fn silence(scenario: &Scenario) -> Option<f64> {
    let Some(handoff) = &scenario.handoff else { return Some(0.0) };
    let End::After(length) = scenario.end else { return None };
    let silent = handoff.pause.saturating_mul(handoff.count);
    Some(silent.as_secs_f64() / length.as_secs_f64())
}
