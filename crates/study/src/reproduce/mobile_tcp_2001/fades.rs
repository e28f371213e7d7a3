//! The paper's error model: equations (1) to (5) of section 4.2, and what they give exactly.
//!
//! A channel is good or faded for exponential times. A packet is lost if it is on air during a fade, even in
//! part.

use lasthop_units::{Duration, Span};
use serde::Deserialize;

use crate::reproduce::equations::{self, Check, Row, given};
use crate::reproduce::study::{ReproduceError, beside};

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

/// Every value of `papers/mobile-tcp-2001/equations.toml` beside ours.
///
/// # Errors
/// None, as long as the file in the repository is as its tests saw it.
pub fn checks() -> Result<Vec<Check>, ReproduceError> {
    equations::read(COMPUTED, DIGITS, ours)
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
    fade: Span,
    packet: Option<Span>,
    share: Option<f64>,
    per: Option<f64>,
}

/// What our function gives.
fn ours(row: &Row<Quantity, Point>) -> Result<f64, String> {
    let Point { fade: Span(mean), packet, share, per } = row.at;
    let fades = |share| Fades { mean, share };
    let share = || given(share, "share");
    let packet = || equations::time(packet, "packet");
    Ok(match row.quantity {
        Quantity::RateOut => fades(0.0).rate_out(),
        Quantity::RateIn => fades(share()?).rate_in(),
        Quantity::Good => fades(share()?).good() * 1e3,
        Quantity::BurstLength => fades(0.0).burst_length(packet()?),
        Quantity::ErrorRate => fades(share()?).error_rate(packet()?),
        Quantity::ExactErrorRate => fades(share()?).exact_error_rate(packet()?),
        Quantity::Share => Fades::share_for(given(per, "per")?, mean, packet()?),
    })
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
        assert_eq!(checks.iter().filter(|c| c.printed).count(), 4);
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
        let refusal = equations::read(text, DIGITS, ours).unwrap_err().to_string();
        assert!(refusal.contains("x: its equation needs `packet`"), "{refusal}");
    }
}
