//! reference.toml: the cells, and what ns-2 gave for them when it was written.

use lasthop_study::stats::Interval;
use serde::Deserialize;
use thiserror::Error;

use crate::options::{OptionError, Options};
use crate::scenario::{Scenario, Sender, Snoop, Topology};

/// The file as it was built in.
const TEXT: &str = include_str!("../reference.toml");

/// How goodput is written in the reference. Both count acknowledged payload only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub enum Unit {
    /// 1000 bytes a second.
    #[serde(rename = "kB/s")]
    KiloBytes,
    /// 1000 bits a second.
    #[serde(rename = "kbit/s")]
    KiloBits,
}

impl Unit {
    /// As it is printed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::KiloBytes => "kB/s",
            Self::KiloBits => "kbit/s",
        }
    }

    /// Bits a second in this unit.
    pub fn of_bps(self, bps: f64) -> f64 {
        match self {
            Self::KiloBytes => bps / 8e3,
            Self::KiloBits => bps / 1e3,
        }
    }
}

/// A mean and half of its 95 % interval, in the cell's unit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// Half of the interval.
    pub ci: f64,
}

/// What the interval of ns-2's mean is widened by, as a part of the mean.
pub const TOLERANCE: f64 = 0.05;

impl Mean {
    /// What lies in its interval widened by `part` of the mean on either side.
    pub fn widened(&self, part: f64) -> Interval {
        let half = self.ci + part * self.mean;
        Interval { lo: self.mean - half, hi: self.mean + half }
    }
}

/// One comparison.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The table's name.
    pub table: String,
    /// The row's name.
    pub row: String,
    /// Which option the table varies, and its value.
    pub at: (String, f64),
    /// How goodput is written.
    pub unit: Unit,
    /// Which script runs it in ns-2.
    pub topology: Topology,
    /// The sender.
    pub sender: Sender,
    /// The script's options.
    pub options: Options,
    /// The same for us.
    pub scenario: Scenario,
    /// What ns-2 gave.
    pub ns2: Mean,
    /// The two senders are known to differ: a cell that is out is shown and fails nothing.
    pub apart: bool,
    /// Ours may do better, and must give this part of what ns-2 gives; none if it must agree.
    pub least: Option<f64>,
}

impl Cell {
    /// All that names it: `fig17/Reno/p1=0.01`.
    pub fn name(&self) -> String {
        format!("{}/{}/{}={}", self.table, self.row, self.at.0, self.at.1)
    }
}

/// What is wrong with the file.
#[derive(Debug, Error)]
pub enum ReferenceError {
    /// It is not the TOML that was expected.
    #[error("reference.toml: {0}")]
    Toml(#[from] toml::de::Error),
    /// A row has not as many values as places.
    #[error("reference.toml: {table}/{row} has {at} places, {means} means and {cis} intervals")]
    Lengths {
        /// The table.
        table: String,
        /// The row.
        row: String,
        /// Its places.
        at: usize,
        /// Its means.
        means: usize,
        /// Its intervals.
        cis: usize,
    },
    /// An option that the topology does not have.
    #[error("reference.toml: {cell}: {error}")]
    Option {
        /// Where.
        cell: String,
        /// What.
        error: OptionError,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    table: Vec<Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    name: String,
    topology: Topology,
    unit: Unit,
    vary: String,
    at: Vec<f64>,
    #[serde(default)]
    with: Numbers,
    row: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: Option<String>,
    sender: Sender,
    #[serde(default)]
    with: Numbers,
    at: Option<Vec<f64>>,
    mean: Vec<f64>,
    ci: Vec<f64>,
    #[serde(default)]
    apart: bool,
    #[serde(default)]
    snoop: Snoop,
    least: Option<f64>,
}

type Numbers = std::collections::BTreeMap<String, f64>;

/// All cells, in the file's order.
///
/// # Errors
///
/// The file is damaged, which a test would have shown.
pub fn cells() -> Result<Vec<Cell>, ReferenceError> {
    parse(TEXT)
}

fn parse(text: &str) -> Result<Vec<Cell>, ReferenceError> {
    let file: File = toml::from_str(text)?;
    let mut cells = Vec::new();
    for table in &file.table {
        for row in &table.row {
            cells.append(&mut of_row(table, row)?);
        }
    }
    Ok(cells)
}

fn of_row(table: &Table, row: &Row) -> Result<Vec<Cell>, ReferenceError> {
    let at = row.at.as_ref().unwrap_or(&table.at);
    let name = row.name.clone().unwrap_or_else(|| format!("{:?}", row.sender));
    if at.len() != row.mean.len() || at.len() != row.ci.len() {
        return Err(ReferenceError::Lengths {
            table: table.name.clone(),
            row: name,
            at: at.len(),
            means: row.mean.len(),
            cis: row.ci.len(),
        });
    }
    let values = at.iter().zip(row.mean.iter().zip(&row.ci));
    values.map(|(&at, (&mean, &ci))| of_value(table, row, &name, at, Mean { mean, ci })).collect()
}

fn of_value(
    table: &Table,
    row: &Row,
    name: &str,
    at: f64,
    ns2: Mean,
) -> Result<Cell, ReferenceError> {
    let mut options = Options::default();
    table.with.iter().chain(&row.with).for_each(|(key, value)| options.set(key, *value));
    options.set(&table.vary, at);
    let scenario = Scenario::new(table.topology, row.sender, row.snoop, options.clone());
    let scenario = scenario.map_err(|error| ReferenceError::Option {
        cell: format!("{}/{name}", table.name),
        error,
    })?;
    Ok(Cell {
        table: table.name.clone(),
        row: name.to_owned(),
        at: (table.vary.clone(), at),
        unit: table.unit,
        topology: table.topology,
        sender: row.sender,
        options,
        scenario,
        ns2,
        apart: row.apart,
        least: row.least,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_whole() {
        let cells = cells().unwrap();
        assert!(cells.len() > 200, "{}", cells.len());
        let point = cells.iter().find(|c| c.name() == "fig17/Reno/p1=0.01").unwrap();
        assert_eq!(point.ns2, Mean { mean: 51.9, ci: 0.3 });
        assert_eq!(point.scenario.flow.window, 16);
    }

    #[test]
    fn no_two_cells_have_one_name() {
        let mut names: Vec<_> = cells().unwrap().iter().map(Cell::name).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn a_damaged_file_is_refused_with_the_place() {
        let row = "[[table]]\nname = \"t\"\ntopology = \"chain\"\nunit = \"kB/s\"\nvary = \"p1\"\n\
                   at = [0.1, 0.2]\n[[table.row]]\nsender = \"Reno\"\n";
        let short = parse(&format!("{row}mean = [1, 2]\nci = [1]\n")).unwrap_err().to_string();
        assert!(short.contains("t/Reno has 2 places, 2 means and 1 intervals"), "{short}");
        let odd = format!("{row}mean = [1, 2]\nci = [1, 1]\nwith = {{ windw = 3 }}\n");
        assert!(parse(&odd).unwrap_err().to_string().contains("unknown option `windw`"));
    }

    #[test]
    fn the_interval_is_widened_by_a_part_of_the_mean() {
        let interval = Mean { mean: 100.0, ci: 2.0 }.widened(0.05);
        assert_eq!((interval.lo, interval.hi), (93.0, 107.0));
    }
}
