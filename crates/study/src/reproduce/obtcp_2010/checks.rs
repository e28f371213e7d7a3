//! Values computed from the paper's formulas, and what [`crate::analysis::obtcp`] makes of the same points.

use lasthop_units::{Duration, Span};
use serde::Deserialize;

use crate::analysis::obtcp::{Batch, Batches, DomainError, Hop, Hops, LossProbability, Model};
use crate::reproduce::equations::{self, Check, given};
use crate::reproduce::study::{ReproduceError, beside};

const COMPUTED: &str = beside!("obtcp-2010", "/equations.toml");

/// Seven digits and the nanosecond that times are rounded to.
const DIGITS: f64 = 1e-6;

/// Delays that are put in where a value holds for any delay.
const ANY_DELAY: [Duration; 3] =
    [Duration::from_millis(5), Duration::from_millis(20), Duration::from_millis(35)];

type Row = equations::Row<Quantity, Point>;

/// Every computed value beside ours.
///
/// # Errors
/// None, as long as the file in the repository is as its tests saw it.
pub fn all() -> Result<Vec<Check>, ReproduceError> {
    equations::read(COMPUTED, DIGITS, Row::worst)
}

#[derive(Clone, Copy, Deserialize)]
enum Quantity {
    #[serde(rename = "p_s")]
    EffectiveLoss,
    #[serde(rename = "N")]
    Transmissions,
    #[serde(rename = "R_s")]
    SnoopRecovery,
    #[serde(rename = "R_o")]
    ObtcpRecovery,
    #[serde(rename = "R_gain")]
    RecoveryGain,
    #[serde(rename = "T_ratio")]
    ThroughputRatio,
    #[serde(rename = "L_t")]
    SnoopLosses,
    #[serde(rename = "L_t1")]
    FirstLosses,
    #[serde(rename = "t_round")]
    Round,
    #[serde(rename = "eta_s")]
    SnoopThroughput,
    #[serde(rename = "eta_o")]
    ObtcpThroughput,
    #[serde(rename = "throughput_gain")]
    Gain,
    #[serde(rename = "n1")]
    FirstBatch,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Point {
    d0: Option<Span>,
    d1: Option<Span>,
    d2: Option<Span>,
    mac: Option<Span>,
    p1: f64,
    p2: f64,
    #[serde(rename = "W")]
    window: Option<u32>,
    n1: Option<f64>,
    n2: Option<f64>,
    gain: Option<f64>,
}

impl Row {
    /// What our functions give that is farthest off, where the value holds for any delay.
    fn worst(&self) -> Result<f64, String> {
        let mut ours = None;
        for first in or_any(self.at.d1) {
            for second in or_any(self.at.d2) {
                let value = self.ours(first, second)?;
                let error = |v: f64| (v - self.value).abs();
                if ours.is_none_or(|worst| error(value) > error(worst)) {
                    ours = Some(value);
                }
            }
        }
        Ok(ours.unwrap_or(f64::NAN))
    }

    fn ours(&self, first: Duration, second: Duration) -> Result<f64, String> {
        let hops = self.hops(first, second)?;
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        Ok(match self.quantity {
            Quantity::EffectiveLoss => hops.effective_loss().get(),
            Quantity::Transmissions => hops.snoop_transmissions(),
            Quantity::SnoopRecovery => millis(hops.snoop_recovery()),
            Quantity::ObtcpRecovery => millis(hops.obtcp_recovery()),
            Quantity::RecoveryGain => millis(match self.equations[..] {
                [8] => hops.recovery_gain_first_lossy(),
                [9] => hops.recovery_gain_second_lossy(),
                _ => hops.recovery_gain(),
            }),
            Quantity::ThroughputRatio => valid(hops.throughput_ratio())?,
            _ => self.of_model(&self.model(hops)?)?,
        })
    }

    fn of_model(&self, model: &Model) -> Result<f64, String> {
        let round = match self.equations[..] {
            [14] => model.snoop_round(),
            _ => model.obtcp_round(self.batches().unwrap_or(Batches::SINGLE)),
        };
        Ok(match self.quantity {
            Quantity::SnoopLosses => model.snoop_losses(),
            Quantity::FirstLosses => model.first_losses(),
            Quantity::Round => round.as_secs_f64() * 1e3,
            Quantity::SnoopThroughput => model.snoop_throughput().per_second(),
            Quantity::ObtcpThroughput => model.obtcp_throughput(self.batches()?).per_second(),
            Quantity::Gain => model.gain(self.batches()?),
            _ => {
                let gain = given(self.at.gain, "gain")?;
                let second = self.batch(self.at.n2, "n2")?;
                valid(model.first_batch_for(gain, second))?.packets()
            }
        })
    }

    fn hops(&self, first: Duration, second: Duration) -> Result<Hops, String> {
        let loss = |p| valid(LossProbability::new(p));
        let [p1, p2] = [loss(self.at.p1)?, loss(self.at.p2)?];
        let hops = Hops::new(Hop::new(first, p1), Hop::new(second, p2));
        Ok(hops.with_mac_delay(self.at.mac.map_or(Duration::ZERO, |Span(delay)| delay)))
    }

    fn model(&self, hops: Hops) -> Result<Model, String> {
        let wired = equations::time(self.at.d0, "d0")?;
        valid(Model::new(wired, hops, given(self.at.window, "W")?))
    }

    fn batches(&self) -> Result<Batches, String> {
        Ok(Batches { first: self.batch(self.at.n1, "n1")?, second: self.batch(self.at.n2, "n2")? })
    }

    fn batch(&self, packets: Option<f64>, key: &'static str) -> Result<Batch, String> {
        valid(Batch::new(given(packets, key)?))
    }
}

fn valid<T>(value: Result<T, DomainError>) -> Result<T, String> {
    value.map_err(|why| why.to_string())
}

fn or_any(delay: Option<Span>) -> Vec<Duration> {
    delay.map_or_else(|| ANY_DELAY.to_vec(), |Span(delay)| vec![delay])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EXP-S1, MET-10: every computed value, the recovery times and their gain among them.
    #[test]
    fn all_95_computed_values_are_ours() {
        let checks = all().unwrap();
        assert_eq!(checks.len(), 95);
        for check in &checks {
            assert!(check.is_exact(), "{check:?}");
        }
        for equation in [3, 4, 5, 6, 7, 8, 9, 11, 13, 14, 16, 17, 18, 20] {
            assert!(checks.iter().any(|c| c.equations.contains(&equation)), "({equation})");
        }
    }

    #[test]
    fn a_point_that_cannot_be_evaluated_is_named() {
        let refusal = |quantity: &str, at: &str| {
            let row = format!(
                "[[check]]\nid = \"x\"\nequations = [16]\nvalue = 1.0\nquantity = \"{quantity}\"\n\
                 at = {{ {at} }}"
            );
            equations::read(&row, DIGITS, Row::worst).unwrap_err().to_string()
        };
        for (quantity, at, why) in [
            ("eta_s", "p1 = 0.1, p2 = 0.1, W = 16", "x: its equation needs `d0`"),
            ("eta_s", "p1 = 1.0, p2 = 0.1, d0 = \"50ms\", W = 16", "x: a loss of 1 is not"),
            ("eta_s", "p1 = 0.1, p2 = 0.1, d0 = \"50ms\", W = 0", "x: a window of 0 packets"),
            ("eta_o", "p1 = 0.1, p2 = 0.1, d0 = \"50ms\", W = 9, n1 = 0.5, n2 = 1.0", "not 0.5"),
            ("eta", "p1 = 0.1, p2 = 0.1", "unknown variant `eta`"),
            ("p_s", "p1 = 0.1, p2 = 0.1, d1 = \"soon\"", "soon"),
            ("p_s", "p1 = 0.1, p3 = 0.1", "unknown field `p3`"),
        ] {
            let refusal = refusal(quantity, at);
            assert!(refusal.contains(why), "{at}: {refusal}");
        }
    }
}
