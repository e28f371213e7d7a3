//! The paper's error model: equations (1) to (5) of section 4.2, and what they give exactly.
//!
//! A channel is good or faded for exponential times. A packet is lost if it is on air during a fade, even in
//! part.

use lasthop_units::{Duration, parse_duration};
use serde::{Deserialize, Deserializer, de};

use crate::reproduce::study::{ReproduceError, beside, read_beside};

const COMPUTED: &str = beside!("mobile-tcp-2001", "/equations.toml");

/// How far a value may be from one that was computed to six digits, as a part of it.
const DIGITS: f64 = 5e-6;

/// A channel with fades of this mean length that take this share of its time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fades {
    /// The mean length of a fade, FD.
    pub mean: Duration,
    /// The share of time in fades, FR; from 0 to below 1.
    pub share: f64,
}

impl Fades {
    /// Equation (1): how often in a second a faded channel becomes good, p_g.
    pub fn rate_out(&self) -> f64 {
        1.0 / self.mean.as_secs_f64()
    }

    /// Equation (2): how often in a second a good channel fades, p_b.
    pub fn rate_in(&self) -> f64 {
        self.share * self.rate_out() / (1.0 - self.share)
    }

    /// Equation (3): the mean time between fades, in seconds; infinite without any.
    pub fn good(&self) -> f64 {
        1.0 / self.rate_in()
    }

    /// Equation (4): how many packets a fade takes, sent back to back, each so long on air.
    pub fn burst_length(&self, packet: Duration) -> f64 {
        1.0 + self.mean.as_secs_f64() / packet.as_secs_f64()
    }

    /// Equation (5): the share of packets that a fade hits, to first order.
    pub fn error_rate(&self, packet: Duration) -> f64 {
        self.share * self.hits_per_fade(packet)
    }

    /// The share of packets that a fade hits (INC-H2): all but those that begin in a good time and
    /// are over before its end.
    pub fn exact_error_rate(&self, packet: Duration) -> f64 {
        1.0 - (1.0 - self.share) * (-packet.as_secs_f64() * self.rate_in()).exp()
    }

    /// Equation (5) solved for the share of time in fades that gives an error rate.
    pub fn share_for(error_rate: f64, mean: Duration, packet: Duration) -> f64 {
        error_rate / Self { mean, share: 0.0 }.hits_per_fade(packet)
    }

    fn hits_per_fade(&self, packet: Duration) -> f64 {
        1.0 + packet.as_secs_f64() / self.mean.as_secs_f64()
    }
}

/// A value of an equation at a point: the paper's, or one computed from its formula, and ours.
#[derive(Clone, PartialEq, Debug)]
pub struct Check {
    /// Its short name.
    pub id: String,
    /// The numbers of the equations that it follows from.
    pub equations: Vec<u8>,
    /// What it should be.
    pub expected: f64,
    /// The value of this module's function.
    pub ours: f64,
    /// How far apart they may be, where the paper prints a rounded value.
    within: Option<f64>,
}

impl Check {
    /// Whether the paper prints the value.
    pub fn is_printed(&self) -> bool {
        self.within.is_some()
    }

    /// Whether both are the same to the digits that are given.
    pub fn is_exact(&self) -> bool {
        let most = self.within.unwrap_or(DIGITS * self.expected.abs());
        // Half a unit of the last digit itself is within.
        (self.ours - self.expected).abs() <= most * (1.0 + 1e-9)
    }
}

/// Every value of `papers/mobile-tcp-2001/equations.toml` beside ours.
///
/// # Errors
/// None, as long as the file in the repository is as its tests saw it.
pub fn checks() -> Result<Vec<Check>, ReproduceError> {
    parse(COMPUTED)
}

fn parse(text: &str) -> Result<Vec<Check>, ReproduceError> {
    let file: File = read_beside("equations.toml", text)?;
    let wrong = |why: String| ReproduceError::Beside(format!("equations.toml: {why}"));
    file.check
        .into_iter()
        .map(|row| {
            let missing = || wrong(format!("{}: its equation needs more than `at` gives", row.id));
            let ours = row.ours().ok_or_else(missing)?;
            let Row { id, equations, value: expected, within, .. } = row;
            Ok(Check { id, equations, expected, ours, within })
        })
        .collect()
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
    within: Option<f64>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Quantity {
    RateOut,
    RateIn,
    /// In ms.
    Good,
    BurstLength,
    ErrorRate,
    ExactErrorRate,
    Share,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Point {
    #[serde(deserialize_with = "time")]
    fade: Duration,
    #[serde(default, deserialize_with = "some_time")]
    packet: Option<Duration>,
    share: Option<f64>,
    per: Option<f64>,
}

fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_duration(&text).map_err(de::Error::custom)
}

fn some_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    time(deserializer).map(Some)
}

impl Row {
    /// What our function gives; none if the point lacks something that it needs.
    fn ours(&self) -> Option<f64> {
        let Point { fade: mean, packet, share, per } = self.at;
        let fades = |share| Fades { mean, share };
        Some(match self.quantity {
            Quantity::RateOut => fades(0.0).rate_out(),
            Quantity::RateIn => fades(share?).rate_in(),
            Quantity::Good => fades(share?).good() * 1e3,
            Quantity::BurstLength => fades(0.0).burst_length(packet?),
            Quantity::ErrorRate => fades(share?).error_rate(packet?),
            Quantity::ExactErrorRate => fades(share?).exact_error_rate(packet?),
            Quantity::Share => Fades::share_for(per?, mean, packet?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EXP-H6: equations (1) to (5), every value that is printed or was computed from them.
    #[test]
    fn every_value_of_the_equations_is_ours() {
        let checks = checks().unwrap();
        assert_eq!(checks.len(), 33);
        for check in &checks {
            assert!(check.is_exact(), "{check:?}");
        }
        for equation in 1..=5 {
            assert!(checks.iter().any(|c| c.equations.contains(&equation)), "({equation})");
        }
        assert_eq!(checks.iter().filter(|c| c.is_printed()).count(), 4);
    }

    #[test]
    fn a_value_that_is_off_is_not_exact() {
        let check = |expected: f64, within| Check {
            id: String::new(),
            equations: vec![4],
            expected,
            ours: 1.84688,
            within,
        };
        assert!(check(1.84688, None).is_exact() && check(1.8, Some(0.05)).is_exact());
        assert!(!check(1.8469, None).is_exact() && !check(1.9, Some(0.05)).is_exact());
    }

    /// INC-H2: the first-order form is above the exact one, and above 1 for large shares.
    #[test]
    fn the_first_order_form_exceeds_one() {
        let fades = |share| Fades { mean: Duration::from_millis(15), share };
        let packet = Duration::from_millis(18);
        assert!(fades(0.1).error_rate(packet) > fades(0.1).exact_error_rate(packet));
        assert!(fades(0.5).error_rate(packet) > 1.0 && fades(0.5).exact_error_rate(packet) < 1.0);
    }

    #[test]
    fn a_point_without_what_its_equation_needs_is_refused() {
        let text = r#"
            [[check]]
            id = "x"
            equations = [4]
            quantity = "burst_length"
            at = { fade = "17ms" }
            value = 1.0
        "#;
        assert!(parse(text).unwrap_err().to_string().contains("x: its equation needs"));
    }
}
