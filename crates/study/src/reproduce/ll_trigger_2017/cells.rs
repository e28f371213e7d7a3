//! The cells: Tables I and II and figures 7 and 8, from the scenario files beside the paper.

use std::sync::Arc;

use lasthop_scenario::Scenario;
use lasthop_units::Duration;

use crate::published::Published;
use crate::reproduce::sheet::{Settings, Sheet, sheet};
use crate::reproduce::{Cell, ReproduceError};

const TABLE_1_SHEET: Sheet = sheet!("ll-trigger-2017", "table1.toml");
const ROUTER_SHEET: Sheet = sheet!("ll-trigger-2017", "table1-router.toml");
const TABLE_2_SHEET: Sheet = sheet!("ll-trigger-2017", "table2.toml");
const FIGURE_7_SHEET: Sheet = sheet!("ll-trigger-2017", "figure7.toml");
const FIGURE_8_SHEET: Sheet = sheet!("ll-trigger-2017", "figure8.toml");

/// The tables that the cells are in.
pub(super) const TABLE_1: &str = "table1";
pub(super) const ROUTER: &str = "table1-router";
pub(super) const TABLE_1_EARLY: &str = "table1-semantics";
pub(super) const TABLE_2: &str = "table2";
/// Of figure 7's minima and recovery times, after a handoff of 1 s and after one of 4 s.
pub(super) const FIGURE_7: [&str; 2] = ["figure7-minimum", "figure7-recovery"];
pub(super) const FIGURE_7_LONG: [&str; 2] = ["figure7-4s-minimum", "figure7-4s-recovery"];
pub(super) const FIGURE_8: &str = "figure8";

/// Rows of Table I that are measured.
pub(super) const SEMANTICS: &str = "end-to-end semantics";
pub(super) const LONG: &str = "long disconnections";
pub(super) const FREQUENT: &str = "frequent disconnections";
pub(super) const ERRORS: &str = "high bit error rate";

/// Columns of Table I.
pub(super) const EARLY: &str = "early";
pub(super) const IDEAL: &str = "of ideal";

pub(super) const TIMEOUTS: &str = "timeouts";
pub(super) const THROUGHPUT: &str = "throughput";

/// Rows of figure 7.
pub(super) const MINIMUM: &str = "minimum";
pub(super) const RECOVERY: &str = "recovery";
pub(super) const FROM_END: &str = "recovery from the end";

/// The times over which rates are means (MET-9), and their columns.
pub(super) const BINS: [(&str, Duration); 2] =
    [("in 1 s", Duration::from_secs(1)), ("in 10 s", Duration::from_secs(10))];

/// What a cell takes from a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
    /// Expiries of the fixed host's retransmission timer (MET-8).
    Timeouts,
    /// Goodput in kbit/s (MET-2).
    Goodput,
    /// Goodput in per cent of what the radio could carry: its rate, less losses and disconnections.
    Ideal,
    /// The most bytes that were acknowledged to the fixed host before the mobile had them.
    Early,
    /// The lowest mean over so long around the handoff, in kbit/s (MET-9).
    Minimum(Duration),
    /// Until the mean over so long is at the top again, from the handoff's start or from its end, in
    /// seconds (MET-9).
    Recovery {
        /// The length of the mean.
        bin: Duration,
        /// From the end, and not from the start.
        from_end: bool,
    },
}

/// What a cell runs.
#[derive(Clone, Debug)]
pub struct Case {
    /// The scenario.
    pub scenario: Arc<Scenario>,
    /// What is taken from its run.
    pub measure: Measure,
}

/// All cells, in the order in which they are printed.
pub(super) fn all(published: &Published) -> Result<Vec<Cell<Case>>, ReproduceError> {
    let mut cells = Vec::new();
    for (table, sheet) in [(TABLE_1, TABLE_1_SHEET), (ROUTER, ROUTER_SHEET)] {
        cells.extend(characteristics(table, &sheet)?);
    }
    cells.sort_by_key(|cell| cell.label.table == TABLE_1_EARLY);
    for (settings, scenario) in TABLE_2_SHEET.points()? {
        let label = [TABLE_2, settings.at("time"), TIMEOUTS, settings.at("help")];
        let mut cell = cell(label, "1", &scenario, Measure::Timeouts);
        let id = format!("table2-{}", cell.label.scheme);
        print(published, &mut cell, &id, TIMEOUTS);
        cells.push(cell);
    }
    let mut drawn = Vec::new();
    for (settings, scenario) in FIGURE_7_SHEET.points()? {
        drawn.extend(rates(published, &settings, &scenario));
    }
    let order = [FIGURE_7, FIGURE_7_LONG].concat();
    drawn.sort_by_key(|cell| order.iter().position(|table| *table == cell.label.table));
    cells.extend(drawn);
    for (settings, scenario) in FIGURE_8_SHEET.points()? {
        let label = [FIGURE_8, settings.at("time"), THROUGHPUT, settings.at("help")];
        cells.push(cell(label, "kbit/s", &scenario, Measure::Goodput));
    }
    Ok(cells)
}

/// Table I: what every scheme makes of one trouble at a time.
fn characteristics(table: &str, sheet: &Sheet) -> Result<Vec<Cell<Case>>, ReproduceError> {
    let mut cells = Vec::new();
    for (settings, scenario) in sheet.points()? {
        let (trouble, scheme) = (settings.at("trouble"), settings.at("help"));
        if trouble == LONG && (table == TABLE_1 || scheme != "none") {
            let label = [TABLE_1_EARLY, SEMANTICS, EARLY, scheme];
            cells.push(cell(label, "byte", &scenario, Measure::Early));
        }
        cells.push(cell([table, trouble, IDEAL, scheme], "%", &scenario, Measure::Ideal));
    }
    Ok(cells)
}

/// EXP-M2: figure 7 in numbers. The paper's are held against both lengths of the mean, as it names
/// none.
fn rates(published: &Published, settings: &Settings, scenario: &Arc<Scenario>) -> Vec<Cell<Case>> {
    let long = settings.at("length") != "1 s";
    let [minima, times] = if long { FIGURE_7_LONG } else { FIGURE_7 };
    let mut cells = Vec::new();
    for (column, bin) in BINS {
        for (table, row, unit, measure) in [
            (minima, MINIMUM, "kbit/s", Measure::Minimum(bin)),
            (times, RECOVERY, "s", Measure::Recovery { bin, from_end: false }),
            (times, FROM_END, "s", Measure::Recovery { bin, from_end: true }),
        ] {
            let label = [table, row, column, settings.at("help")];
            let mut cell = cell(label, unit, scenario, measure);
            if !long {
                let id = format!("figure7-{row}-{}", cell.label.scheme);
                print(published, &mut cell, &id, "value");
            }
            cells.push(cell);
        }
    }
    cells
}

/// Puts beside a cell what the paper prints there, if it does.
fn print(published: &Published, cell: &mut Cell<Case>, id: &str, column: &str) {
    let Some(table) = published.table(id) else { return };
    cell.published = table.estimate(&cell.label.row, column);
    cell.compared = cell.published.is_some();
}

fn cell(
    place: [&str; 4],
    unit: &'static str,
    scenario: &Arc<Scenario>,
    measure: Measure,
) -> Cell<Case> {
    Cell::ours(place, unit, Case { scenario: Arc::clone(scenario), measure })
}
