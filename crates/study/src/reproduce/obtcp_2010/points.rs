//! The points of the figures beside which the model stands.

use super::cells::{Case, DRAWN};
use super::model::Point;
use crate::reproduce::Cell;

/// Every point of every figure that is run, with the paper's model there.
#[derive(Clone, Debug, Default)]
pub(super) struct Points(Vec<(String, String, Point)>);

impl Points {
    /// Of all cells.
    pub(super) fn of(cells: &[Cell<Case>]) -> Self {
        let mut points: Vec<(String, String, Point)> = Vec::new();
        for cell in cells.iter().filter(|cell| cell.label.column == DRAWN) {
            let (table, row) = (&cell.label.table, &cell.label.row);
            let known = points.iter().any(|(t, r, _)| t == table && r == row);
            if let Some(point) = Point::of(&cell.case).filter(|_| !known) {
                points.push((table.clone(), row.clone(), point));
            }
        }
        Self(points)
    }

    /// The model at a point of a figure.
    pub(super) fn at(&self, figure: &str, row: &str) -> Option<&Point> {
        self.0.iter().find(|(t, r, _)| t == figure && r == row).map(|(_, _, point)| point)
    }

    /// Figure, point and model.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str, &Point)> {
        self.0.iter().map(|(t, r, point)| (t.as_str(), r.as_str(), point))
    }
}
