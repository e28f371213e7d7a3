//! What ns-2 gives for Reno over the same disconnections: neither the paper's nor ours.

use serde::Deserialize;

use crate::reproduce::study::{ReproduceError, beside, read_beside};

/// Everything that was measured with ns-2.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ns2 {
    reno: Vec<Curve>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Curve {
    table: String,
    point: Vec<Point>,
}

/// Reno's goodput over disconnections of one length.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Point {
    /// The length, as a label.
    pub(super) length: String,
    /// In kbit/s.
    pub(super) mean: f64,
    /// Half its 95 % interval.
    pub(super) half: f64,
}

impl Ns2 {
    /// What the repository holds.
    ///
    /// # Errors
    ///
    /// None, as long as the file is as its tests saw it.
    pub(super) fn read() -> Result<Self, ReproduceError> {
        read_beside("ns2.toml", beside!("rwc-atcp-2003", "/ns2.toml"))
    }

    /// The points that belong to a table of ours.
    pub(super) fn of(&self, table: &str) -> &[Point] {
        let curve = self.reno.iter().find(|curve| curve.table == table);
        curve.map(|curve| curve.point.as_slice()).unwrap_or_default()
    }
}
