//! What ns-2 gives for the paper's set-ups: a simulation that is neither the paper's nor ours.
//!
//! The numbers are in `papers/obtcp-2010/ns2.toml`, which says how they were got.

use serde::Deserialize;
use thiserror::Error;

const MEASURED: &str = include_str!("../../../../../papers/obtcp-2010/ns2.toml");

/// Everything that was measured with ns-2.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// Goodput along the axis of a figure.
    #[serde(rename = "curve")]
    pub curves: Vec<Curve>,
    /// Two flows through one base, as in Tables 5 and 6.
    #[serde(rename = "pair")]
    pub pairs: Vec<Pair>,
}

/// Goodput along the axis of a figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curve {
    /// The paper's figure whose set-up it has, such as `figure17`.
    pub figure: String,
    /// What is swept: `p1` or `d2`.
    pub axis: String,
    /// What helped, or the flavour of unhelped TCP.
    pub scheme: String,
    /// Whether the links lost acknowledgements too.
    #[serde(rename = "both-directions", default)]
    pub both_directions: bool,
    /// Its points.
    #[serde(rename = "point")]
    pub points: Vec<Point>,
}

/// A point of a curve.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Its place on the axis, as a label.
    pub x: String,
    /// Mean goodput in kB/s.
    pub mean: f64,
    /// Half its 95 % interval, where there is one.
    pub half: Option<f64>,
}

/// Two flows through one base.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    /// The paper's table whose set-up it has.
    pub table: String,
    /// The first link's loss, as a label.
    pub p1: String,
    /// What helped each flow.
    pub schemes: [String; 2],
    /// Goodput of each in kB/s.
    pub goodput: [f64; 2],
    /// Equation (21).
    pub fairness: f64,
    /// Equation (22), in per cent.
    pub utilisation: f64,
}

/// Why the measurements cannot be used.
#[derive(Debug, Error)]
#[error("ns-2's values: {0}")]
pub struct ReferenceError(#[from] toml::de::Error);

impl Reference {
    /// Reads the measurements.
    ///
    /// # Errors
    /// None, as long as the file in the repository is as its tests saw it.
    pub fn read() -> Result<Self, ReferenceError> {
        Ok(toml::from_str(MEASURED)?)
    }

    /// The curve of a scheme in a figure; with losses in the data's direction only.
    pub fn curve(&self, figure: &str, scheme: &str) -> Option<&Curve> {
        let is_it = |c: &&Curve| c.figure == figure && c.scheme == scheme && !c.both_directions;
        self.curves.iter().find(is_it)
    }

    /// The same with losses in both directions.
    pub fn curve_both_directions(&self, figure: &str, scheme: &str) -> Option<&Curve> {
        let is_it = |c: &&Curve| c.figure == figure && c.scheme == scheme && c.both_directions;
        self.curves.iter().find(is_it)
    }

    /// Two flows of these schemes in a table.
    pub fn pair(&self, table: &str, p1: &str, schemes: [&str; 2]) -> Option<&Pair> {
        self.pairs.iter().find(|p| p.table == table && p.p1 == p1 && p.schemes == schemes)
    }
}

impl Curve {
    /// The point labelled `x`.
    pub fn at(&self, x: &str) -> Option<&Point> {
        self.points.iter().find(|point| point.x == x)
    }
}
