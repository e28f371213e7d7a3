//! The cells: the paper's three tables, and what stands beside them, from the scenario files beside the
//! paper.

use crate::published::Published;
use crate::reproduce::sheet::{Drawn, Settings, Sheet, sheet};
use crate::reproduce::{Cell, ReproduceError};

const TABLES_SHEET: Sheet = sheet!("mhp-srp-1994", "tables.toml");
const SENSITIVITY_SHEET: Sheet = sheet!("mhp-srp-1994", "sensitivity.toml");
const BURSTS_SHEET: Sheet = sheet!("mhp-srp-1994", "bursts.toml");

/// What a cell runs.
pub type Case = Drawn;

const UNIT: &str = "s";

/// The tables of the paper and their schemes.
const TABLES: [(&str, &str); 3] = [("table1", "tcp"), ("table2", "split-tcp"), ("table3", "srp")];

/// The tables of ours that have the same rows and columns.
const BESIDE: [(&str, &str); 2] = [("table2-i-tcp", "i-tcp"), ("table3-today", "srp-today")];

/// The schemes of the table of repeated handoffs.
const SCHEMES: [&str; 5] = ["tcp", "split-tcp", "i-tcp", "srp", "srp-today"];

/// The table of repeated handoffs (EXP-Y2).
pub(super) const REPEATED: &str = "repeated-handoffs";

/// The table of changed assumptions.
pub(super) const SENSITIVITY: &str = "sensitivity";

/// The row without a handoff.
pub(super) const NO_PAUSE: &str = "0 s";

/// All cells, in the order in which they are printed.
pub(super) fn all(published: &Published) -> Result<Vec<Cell<Case>>, ReproduceError> {
    let points = TABLES_SHEET.drawn()?;
    let of = |scheme: &'static str, handoffs: &'static str| {
        let is_of = move |s: &Settings| [s.at("help"), s.at("handoffs")] == [scheme, handoffs];
        points.iter().filter(move |(settings, _)| is_of(settings))
    };
    let place = |settings: &Settings| ["pause", "loss"].map(|axis| settings.at(axis).to_owned());
    let mut cells = Vec::new();
    for (id, scheme) in TABLES {
        let table = published.table(id).ok_or(ReproduceError::NoTable(id))?;
        cells.extend(of(scheme, "one").map(|(settings, case)| {
            let [row, column] = place(settings);
            Cell::of_table(table, &row, &column, UNIT, case.clone())
        }));
    }
    let ours = |table: &str, scheme: &str, (settings, case): &(Settings, Case)| {
        let [row, column] = place(settings);
        Cell::ours([table, &row, &column, scheme], UNIT, case.clone())
    };
    for (table, scheme) in BESIDE {
        cells.extend(of(scheme, "one").map(|point| ours(table, scheme, point)));
    }
    for scheme in SCHEMES {
        let repeated = of(scheme, "repeated").filter(|(s, _)| s.at("pause") != NO_PAUSE);
        cells.extend(repeated.map(|point| ours(REPEATED, scheme, point)));
    }
    cells.extend(sensitivity()?);
    Ok(cells)
}

/// What the assumptions are worth.
fn sensitivity() -> Result<Vec<Cell<Case>>, ReproduceError> {
    let mut cells = Vec::new();
    for (settings, case) in SENSITIVITY_SHEET.drawn()?.into_iter().chain(BURSTS_SHEET.drawn()?) {
        let at = settings.at("at");
        let (row, column) = at.split_once('/').unwrap_or((settings.at("assumption"), at));
        cells.push(Cell::ours([SENSITIVITY, row, column, settings.at("help")], UNIT, case));
    }
    Ok(cells)
}
