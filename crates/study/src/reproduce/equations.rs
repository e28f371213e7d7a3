//! Values of a paper's equations, printed or computed from its formulas, and what our functions make of the
//! same points: `papers/*/equations.toml`.

use lasthop_units::{Duration, Span};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::study::{ReproduceError, read_beside};

/// A value of an equation at a point: the paper's, or one computed from its formula, and ours.
#[derive(Clone, PartialEq, Debug)]
pub struct Check {
    /// Its short name.
    pub id: String,
    /// The numbers of the equations that it follows from.
    pub equations: Vec<u8>,
    /// What it should be.
    pub expected: f64,
    /// The value of our function.
    pub ours: f64,
    /// The paper prints the value, rounded.
    pub printed: bool,
    /// How far apart they may be.
    pub within: f64,
}

impl Check {
    /// Whether both are the same to the digits that are given.
    pub fn is_exact(&self) -> bool {
        // Half a unit of the last digit itself is within.
        (self.ours - self.expected).abs() <= self.within * (1.0 + 1e-9)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File<T> {
    check: Vec<T>,
}

/// A row of the file: which quantity, and at which point.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row<Q, P> {
    id: String,
    pub(super) equations: Vec<u8>,
    pub(super) quantity: Q,
    pub(super) at: P,
    pub(super) value: f64,
    within: Option<f64>,
}

/// Every value beside `ours`, which says why where it gives none. Values that are not printed are given to so
/// many `digits`, as a part of them.
pub(super) fn read<Q: DeserializeOwned, P: DeserializeOwned>(
    text: &str,
    digits: f64,
    ours: impl Fn(&Row<Q, P>) -> Result<f64, String>,
) -> Result<Vec<Check>, ReproduceError> {
    let file: File<Row<Q, P>> = read_beside("equations.toml", text)?;
    let check = |row: Row<Q, P>| {
        let wrong = |why| ReproduceError::Beside(format!("equations.toml: {}: {why}", row.id));
        let ours = ours(&row).map_err(wrong)?;
        let Row { id, equations, value: expected, within, .. } = row;
        let (printed, within) = (within.is_some(), within.unwrap_or(digits * expected.abs()));
        Ok(Check { id, equations, expected, ours, printed, within })
    };
    file.check.into_iter().map(check).collect()
}

/// What an equation needs of its point.
pub(super) fn given<T>(value: Option<T>, key: &str) -> Result<T, String> {
    value.ok_or_else(|| format!("its equation needs `{key}`, which `at` does not give"))
}

/// The time of a point.
pub(super) fn time(value: Option<Span>, key: &str) -> Result<Duration, String> {
    given(value, key).map(|Span(time)| time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_off_in_its_last_digit_by_more_than_rounding_is_not_exact() {
        let read = |ours, within: &str| {
            let text = format!(
                "[[check]]\nid = \"x\"\nequations = [5]\nquantity = 1\nat = 2\nvalue = 74.30341\n{within}"
            );
            read::<u8, u8>(&text, 1e-6, |_| Ok(ours)).unwrap().remove(0)
        };
        assert!(read(74.303_414, "").is_exact() && !read(74.303_414, "").printed);
        assert!(!read(74.3035, "").is_exact() && !read(f64::NAN, "").is_exact());
        let printed = "within = 0.05";
        assert!(read(74.35, printed).is_exact() && read(74.35, printed).printed);
        assert!(!read(74.36, printed).is_exact());
    }
}
