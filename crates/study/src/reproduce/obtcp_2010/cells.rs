//! The cells: every point of the paper's figures and tables, from the scenario files beside it.

use std::sync::Arc;

use lasthop_scenario::Scenario;

use crate::published::Published;
use crate::reproduce::sheet::{Settings, Sheet, SheetPoint, sheet};
use crate::reproduce::{Cell, ReproduceError};

const SECTION_6: Sheet = sheet!("obtcp-2010", "section-6.toml");
const FIGURE_22: Sheet = sheet!("obtcp-2010", "figure22.toml");
const FIGURE_24: Sheet = sheet!("obtcp-2010", "figure24.toml");
const TABLES: Sheet = sheet!("obtcp-2010", "tables-5-6.toml");

/// Where the cells of figure 22 are.
pub(super) const FIGURE_22_TABLE: &str = "figure22";

/// The column of cells that the paper draws and prints no numbers of.
pub(super) const DRAWN: &str = "goodput";

/// What a cell takes from a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
    /// The goodput of the flow of this name, in kB/s of payload.
    Goodput(&'static str),
    /// Equation (21) over both flows.
    Fairness,
    /// Equation (22) over both flows, in per cent.
    Utilisation,
    /// The sender's smoothed round trip while rates count, in ms.
    Srtt(Level),
}

/// Which value of many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// Their mean.
    Mean,
    /// The share of 1/1000ths that is below it; 500 is the median.
    Permille(u32),
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
    let mut cells = drawn(&SECTION_6)?;
    cells.extend(round_trips()?);
    cells.extend(drawn(&FIGURE_24)?);
    cells.extend(shared(published)?);
    Ok(cells)
}

/// Where a point of a sweep stands in the paper: its table, its row and what helps. `at` is
/// `figure14/5 ms`, `help` a scheme.
fn place(settings: &Settings) -> [&str; 3] {
    let (table, row) = settings.at("at").split_once('/').unwrap_or_default();
    [table, row, settings.at("help")]
}

/// EXP-S2, EXP-S3, EXP-S4, EXP-S6: goodput along the axis of a figure.
fn drawn(sheet: &Sheet) -> Result<Vec<Cell<Case>>, ReproduceError> {
    let cell = |(settings, scenario): SheetPoint| {
        let [table, row, help] = place(&settings);
        let case = Case { scenario, measure: Measure::Goodput("download") };
        Cell::ours([table, row, DRAWN, help], "kB/s", case)
    };
    Ok(sheet.points()?.into_iter().map(cell).collect())
}

/// EXP-S5: figure 22, in numbers.
fn round_trips() -> Result<Vec<Cell<Case>>, ReproduceError> {
    let levels = [
        ("mean", Level::Mean),
        ("median", Level::Permille(500)),
        ("95 % below", Level::Permille(950)),
    ];
    let points = FIGURE_22.points()?;
    let cells = levels.into_iter().flat_map(|(column, level)| {
        points.iter().map(move |(settings, scenario)| {
            let case = Case { scenario: Arc::clone(scenario), measure: Measure::Srtt(level) };
            Cell::ours([FIGURE_22_TABLE, "SRTT", column, settings.at("help")], "ms", case)
        })
    });
    Ok(cells.collect())
}

/// What is measured in Tables 5 and 6: where it is printed, whose it is, its unit, and whether it is
/// compared with other schemes.
const SHARED: [(&str, &str, &str, &str, Measure); 4] = [
    ("goodput", "obtcp", "obtcp", "kB/s", Measure::Goodput("obtcp")),
    ("goodput", "snoop", "snoop", "kB/s", Measure::Goodput("snoop")),
    ("fairness", "fairness", "both", "1", Measure::Fairness),
    ("utilisation", "utilisation", "both", "%", Measure::Utilisation),
];

/// EXP-S7, EXP-S8: Tables 5 and 6. The paper's obTCP has no timers, so that with timers nothing is
/// published.
fn shared(published: &Published) -> Result<Vec<Cell<Case>>, ReproduceError> {
    let mut cells = Vec::new();
    for (settings, scenario) in TABLES.points()? {
        let [table, row, help] = place(&settings);
        let timers = help != "obtcp";
        for (of, printed, scheme, unit, measure) in SHARED {
            let scheme = if timers { format!("{scheme}+timers") } else { scheme.to_owned() };
            let case = Case { scenario: Arc::clone(&scenario), measure };
            let mut cell = Cell::ours([&format!("{table}-{of}"), row, table, &scheme], unit, case);
            if !timers {
                cell.published = printed_in(published, &format!("{table}-{printed}"), row)?;
                cell.compared = of == "goodput";
            }
            cells.push(cell);
        }
    }
    cells.sort_by(|a, b| a.label.table.cmp(&b.label.table));
    Ok(cells)
}

fn printed_in(
    published: &Published,
    id: &str,
    row: &str,
) -> Result<Option<crate::stats::Estimate>, ReproduceError> {
    let no_table = || ReproduceError::Beside(format!("published values: there is no table `{id}`"));
    let table = published.table(id).ok_or_else(no_table)?;
    let column = table.column.first().map_or("", String::as_str);
    Ok(table.estimate(row, column))
}
