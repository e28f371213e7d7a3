//! Values computed from the paper's formulas, and what this module makes of the same points.
//!
//! They are in `papers/obtcp-2010/equations.toml`, to seven digits.

use lasthop_units::{Duration, parse_duration};
use serde::{Deserialize, Deserializer, de};
use thiserror::Error;

use super::{Batch, Batches, DomainError, Hop, Hops, LossProbability, Model};

const COMPUTED: &str = include_str!("../../../../../papers/obtcp-2010/equations.toml");

/// Seven digits and the nanosecond that times are rounded to.
const TOLERANCE: f64 = 1e-6;

/// Delays that are put in where a value holds for any delay.
const ANY_DELAY: [Duration; 3] =
    [Duration::from_millis(5), Duration::from_millis(20), Duration::from_millis(35)];

/// A value of an equation at a point, computed from the formula and by this module.
#[derive(Clone, PartialEq, Debug)]
pub struct Check {
    /// Its short name.
    pub id: String,
    /// The numbers of the equations that it follows from.
    pub equations: Vec<u8>,
    /// The value computed from the formula.
    pub computed: f64,
    /// The value of this module's function.
    pub ours: f64,
}

impl Check {
    /// Whether both are the same to the digits that are given.
    pub fn is_exact(&self) -> bool {
        (self.ours - self.computed).abs() <= TOLERANCE * self.computed.abs()
    }
}

/// Why a value cannot be checked.
#[derive(Debug, Error)]
pub enum ChecksError {
    /// The file is no TOML, or has a key that does not belong there.
    #[error("computed values: {0}")]
    Syntax(#[from] toml::de::Error),
    /// A point lacks something that its equation needs.
    #[error("computed values: {id}: its equation needs `{key}`, which `at` does not give")]
    Missing {
        /// The value's short name.
        id: String,
        /// What is missing.
        key: &'static str,
    },
    /// A point is outside the domain of its equation.
    #[error("computed values: {id}: {why}")]
    Domain {
        /// The value's short name.
        id: String,
        /// What is wrong with the point.
        why: DomainError,
    },
}

/// Every computed value beside ours.
///
/// # Errors
/// None, as long as the file in the repository is as its tests saw it.
pub fn all() -> Result<Vec<Check>, ChecksError> {
    parse(COMPUTED)
}

fn parse(text: &str) -> Result<Vec<Check>, ChecksError> {
    let file: File = toml::from_str(text)?;
    file.check.into_iter().map(Row::check).collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    check: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    id: String,
    equations: Vec<u8>,
    quantity: Quantity,
    at: Point,
    value: f64,
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
    #[serde(default, deserialize_with = "delay")]
    d0: Option<Duration>,
    #[serde(default, deserialize_with = "delay")]
    d1: Option<Duration>,
    #[serde(default, deserialize_with = "delay")]
    d2: Option<Duration>,
    #[serde(default, deserialize_with = "delay")]
    mac: Option<Duration>,
    p1: f64,
    p2: f64,
    #[serde(rename = "W")]
    window: Option<u32>,
    n1: Option<f64>,
    n2: Option<f64>,
    gain: Option<f64>,
}

fn delay<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_duration(&text).map(Some).map_err(de::Error::custom)
}

impl Row {
    fn check(self) -> Result<Check, ChecksError> {
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
        let ours = ours.unwrap_or(f64::NAN);
        Ok(Check { id: self.id, equations: self.equations, computed: self.value, ours })
    }

    fn ours(&self, first: Duration, second: Duration) -> Result<f64, ChecksError> {
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
            Quantity::ThroughputRatio => self.valid(hops.throughput_ratio())?,
            _ => self.of_model(&self.model(hops)?)?,
        })
    }

    fn of_model(&self, model: &Model) -> Result<f64, ChecksError> {
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
                let gain = self.given(self.at.gain, "gain")?;
                let second = self.batch(self.at.n2, "n2")?;
                self.valid(model.first_batch_for(gain, second))?.packets()
            }
        })
    }

    fn hops(&self, first: Duration, second: Duration) -> Result<Hops, ChecksError> {
        let loss = |p| self.valid(LossProbability::new(p));
        let [p1, p2] = [loss(self.at.p1)?, loss(self.at.p2)?];
        let hops = Hops::new(Hop::new(first, p1), Hop::new(second, p2));
        Ok(hops.with_mac_delay(self.at.mac.unwrap_or_default()))
    }

    fn model(&self, hops: Hops) -> Result<Model, ChecksError> {
        let wired = self.given(self.at.d0, "d0")?;
        self.valid(Model::new(wired, hops, self.given(self.at.window, "W")?))
    }

    fn batches(&self) -> Result<Batches, ChecksError> {
        Ok(Batches { first: self.batch(self.at.n1, "n1")?, second: self.batch(self.at.n2, "n2")? })
    }

    fn batch(&self, packets: Option<f64>, key: &'static str) -> Result<Batch, ChecksError> {
        self.valid(Batch::new(self.given(packets, key)?))
    }

    fn given<T>(&self, value: Option<T>, key: &'static str) -> Result<T, ChecksError> {
        value.ok_or_else(|| ChecksError::Missing { id: self.id.clone(), key })
    }

    fn valid<T>(&self, value: Result<T, DomainError>) -> Result<T, ChecksError> {
        value.map_err(|why| ChecksError::Domain { id: self.id.clone(), why })
    }
}

fn or_any(delay: Option<Duration>) -> Vec<Duration> {
    delay.map_or_else(|| ANY_DELAY.to_vec(), |delay| vec![delay])
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
    fn a_value_that_is_off_in_its_seventh_digit_by_more_than_rounding_is_not_exact() {
        let check =
            |ours| Check { id: String::new(), equations: vec![5], computed: 74.30341, ours };
        assert!(check(74.303_414).is_exact());
        assert!(!check(74.3035).is_exact() && !check(f64::NAN).is_exact());
    }

    #[test]
    fn a_point_that_cannot_be_evaluated_is_named() {
        let refusal = |quantity: &str, at: &str| {
            let row = format!(
                "[[check]]\nid = \"x\"\nequations = [16]\nvalue = 1.0\nquantity = \"{quantity}\"\n\
                 at = {{ {at} }}"
            );
            parse(&row).unwrap_err().to_string()
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
