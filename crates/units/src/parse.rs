use alloc::format;
use alloc::string::{String, ToString};
use core::fmt::{self, Display};
use core::str::FromStr;
use core::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

/// A quantity that could not be read.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("`{found}` is not {expected}")]
pub struct ParseError {
    found: String,
    expected: &'static str,
}

/// A unit's size as a fraction of the base unit.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    numerator: u64,
    denominator: u64,
}

impl Scale {
    pub(crate) const fn new(numerator: u64, denominator: u64) -> Self {
        Self { numerator, denominator }
    }
}

/// Reads a decimal number and a unit, exactly (no floats), rounding down to the base unit.
pub(crate) fn quantity(
    s: &str,
    units: &[(&str, Scale)],
    expected: &'static str,
) -> Result<u64, ParseError> {
    let fail = || ParseError { found: s.to_string(), expected };
    let t = s.trim();
    let split = t.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(t.len());
    let (number, unit) = t.split_at(split);
    let unit = unit.trim();
    let (_, scale) = units.iter().find(|(name, _)| *name == unit).ok_or_else(fail)?;

    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.len() > 15 {
        return Err(fail());
    }
    let mut digits: u128 = 0;
    for c in whole.chars().filter(|c| *c != '_').chain(fraction.chars()) {
        let d = c.to_digit(10).ok_or_else(fail)?;
        digits =
            digits.checked_mul(10).and_then(|n| n.checked_add(u128::from(d))).ok_or_else(fail)?;
    }
    let divisor = 10u128.pow(fraction.len() as u32) * u128::from(scale.denominator);
    let value = digits.checked_mul(u128::from(scale.numerator)).ok_or_else(fail)? / divisor;
    u64::try_from(value).map_err(|_| fail())
}

/// Writes a quantity in the last of the units in which it is a whole number.
pub(crate) fn written(n: u128, units: &[(&str, Scale)]) -> String {
    let whole = |(_, scale): &&(&str, Scale)| n.is_multiple_of(scale.numerator.into());
    let unit = units.iter().rev().find(whole);
    unit.map_or_else(
        || n.to_string(),
        |(name, scale)| format!("{}{name}", n / u128::from(scale.numerator)),
    )
}

const DURATIONS: &[(&str, Scale)] = &[
    ("ns", Scale::new(1, 1)),
    ("us", Scale::new(1_000, 1)),
    ("ms", Scale::new(1_000_000, 1)),
    ("s", Scale::new(1_000_000_000, 1)),
    ("min", Scale::new(60_000_000_000, 1)),
    ("h", Scale::new(3_600_000_000_000, 1)),
];

/// Reads a duration: `300ms`, `2.8 s`, `17 us`, `250ns`, `1min`, `1h`.
///
/// # Errors
///
/// Names the text and what was expected.
pub fn parse_duration(s: &str) -> Result<Duration, ParseError> {
    quantity(s, DURATIONS, "a duration such as 300ms, 2.8s or 5min").map(Duration::from_nanos)
}

/// Reads a [duration](parse_duration) from its text form in a file, for serde's `deserialize_with`.
///
/// # Errors
///
/// As `parse_duration`.
pub fn deserialize_duration<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
    Span::deserialize(d).map(|span| span.0)
}

/// A duration in its text form: `20ms`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse_duration(text).map(Self)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&written(self.0.as_nanos(), DURATIONS))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        deserialize(d)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

/// Reads any quantity from its text form in a configuration file.
pub(crate) fn deserialize<'de, D, T>(d: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr,
    T::Err: Display,
{
    String::deserialize(d)?.parse().map_err(de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_exact() {
        assert_eq!(parse_duration("2.8s"), Ok(Duration::from_millis(2800)));
        assert_eq!(parse_duration("17 ms"), Ok(Duration::from_millis(17)));
        assert_eq!(parse_duration("0s"), Ok(Duration::ZERO));
        for text in ["1500ms", "30min", "17us", "90s", "1h"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for bad in ["", "s", "5", ".5s", "5 parsecs", "1.2.3s", "-1s", "1e3s", "99999999999h"] {
            let e = parse_duration(bad).expect_err(bad).to_string();
            assert!(e.contains(bad) && e.contains("such as"), "{e}");
        }
    }
}
