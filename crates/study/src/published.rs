//! What a paper publishes: its tables, stated parameters, claims and inconsistencies.

use serde::Deserialize;
use thiserror::Error;

use crate::stats::{Estimate, Interval, LEVEL};

/// Everything held of one paper; the content of a `published.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Which paper.
    pub paper: Citation,
    /// Its tables.
    #[serde(rename = "table", default)]
    pub tables: Vec<Table>,
    /// What it says of its set-up.
    #[serde(rename = "parameter", default)]
    pub parameters: Vec<Stated>,
    /// What it claims in words.
    #[serde(rename = "claim", default)]
    pub claims: Vec<Claim>,
    /// What it ran without printing numbers.
    #[serde(rename = "untabulated", default)]
    pub untabulated: Vec<Untabulated>,
    /// Where it contradicts itself or has a gap.
    #[serde(rename = "inconsistency", default)]
    pub inconsistencies: Vec<Inconsistency>,
}

/// Which paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Citation {
    /// The name that `lasthop reproduce` takes.
    pub id: String,
    /// Its title.
    pub title: String,
    /// Its authors, in its order.
    pub authors: Vec<String>,
    /// When it appeared.
    pub year: u16,
}

/// One scheme's table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Its short name, such as `table1`.
    pub id: String,
    /// What stands above it.
    pub title: String,
    /// The scheme that its cells measure.
    pub scheme: String,
    /// What its cells measure, such as a transfer time.
    pub quantity: String,
    /// The unit of its cells.
    pub unit: String,
    /// How many runs stand behind each cell.
    pub runs: u32,
    /// The level of its intervals; ours where it has none.
    #[serde(default = "level")]
    pub level: f64,
    /// What distinguishes rows.
    pub rows: String,
    /// What distinguishes columns.
    pub columns: String,
    /// The labels of the columns.
    pub column: Vec<String>,
    /// The rows.
    pub row: Vec<Row>,
}

fn level() -> f64 {
    LEVEL
}

/// A row of a table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Its label.
    pub label: String,
    /// Its cells, one for each column.
    pub cell: Vec<Printed>,
}

/// A cell of a table: a mean with its interval, a value alone, or why there is none.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Printed {
    mean: Option<f64>,
    lo: Option<f64>,
    hi: Option<f64>,
    value: Option<f64>,
    missing: Option<String>,
}

impl Printed {
    /// The mean and its interval, unless the cell is missing.
    pub fn value(&self) -> Option<(f64, Interval)> {
        Some((self.mean?, Interval { lo: self.lo?, hi: self.hi? }))
    }

    /// The value, where one is printed without an interval.
    pub fn alone(&self) -> Option<f64> {
        self.value
    }

    /// Why the cell is missing, if it is.
    pub fn missing(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    fn check(&self) -> Result<(), &'static str> {
        if self.value.is_some() {
            let others = self.mean.or(self.lo).or(self.hi);
            return match (others, &self.missing) {
                (None, None) => Ok(()),
                _ => Err("`value` stands alone, without `mean`, `lo`, `hi` and `missing`"),
            };
        }
        match (self.value(), &self.missing) {
            (Some((mean, interval)), None) if interval.contains(mean) => Ok(()),
            (Some(_), None) => Err("its mean is outside its interval"),
            (None, Some(_)) if self.mean.or(self.lo).or(self.hi).is_none() => Ok(()),
            (_, Some(_)) => Err("it is said to be missing, yet has a value"),
            (None, None) => Err("it needs `mean`, `lo` and `hi`, or `value`, or `missing`"),
        }
    }
}

/// Something that a paper says of its set-up.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stated {
    /// What is said.
    pub name: String,
    /// Its value, in words.
    pub value: String,
    /// Where in the paper.
    pub source: String,
    /// What about it stays open.
    pub note: Option<String>,
}

/// Something that a paper claims in words.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Its short name.
    pub id: String,
    /// The claim, in our words.
    pub says: String,
    /// Where in the paper.
    pub source: String,
}

/// An experiment that a paper mentions without printing its numbers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Untabulated {
    /// Its short name.
    pub id: String,
    /// What was run.
    pub what: String,
    /// Where in the paper.
    pub source: String,
}

/// A contradiction in a paper, or a gap in the copy that is held of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inconsistency {
    /// Its number in the list of requirements.
    pub id: String,
    /// What it is.
    pub text: String,
}

/// Why a `published.toml` cannot be used.
#[derive(Debug, Error)]
pub enum PublishedError {
    /// It is no TOML, or has a key that does not belong there.
    #[error("published values: {0}")]
    Syntax(#[from] toml::de::Error),
    /// A row has more or fewer cells than its table has columns.
    #[error("published values: {table}, row {row}: {cells} cells under {columns} columns")]
    Width {
        /// The table's short name.
        table: String,
        /// The row's label.
        row: String,
        /// How many cells the row has.
        cells: usize,
        /// How many columns the table has.
        columns: usize,
    },
    /// A cell makes no sense.
    #[error("published values: {table}, row {row}, column {column}: {why}")]
    Cell {
        /// The table's short name.
        table: String,
        /// The row's label.
        row: String,
        /// The column's label.
        column: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A table's intervals have another level than ours.
    #[error(
        "published values: {table}: intervals of level {level}, but only {LEVEL} is understood"
    )]
    Level {
        /// The table's short name.
        table: String,
        /// Its level.
        level: f64,
    },
}

impl Published {
    /// Reads a `published.toml`.
    ///
    /// # Errors
    /// Names the line of a syntax error, or the cell that makes no sense.
    pub fn parse(text: &str) -> Result<Self, PublishedError> {
        let published: Self = toml::from_str(text)?;
        published.tables.iter().try_for_each(Table::check)?;
        Ok(published)
    }

    /// The table called `id`.
    pub fn table(&self, id: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.id == id)
    }
}

impl Table {
    /// The cell in a row and column; none if there is no such place.
    pub fn cell(&self, row: &str, column: &str) -> Option<&Printed> {
        let row = self.row.iter().find(|r| r.label == row)?;
        row.cell.get(self.column.iter().position(|c| c == column)?)
    }

    /// The estimate that a cell stands for; none where nothing is printed.
    pub fn estimate(&self, row: &str, column: &str) -> Option<Estimate> {
        let cell = self.cell(row, column)?;
        match cell.value() {
            Some((mean, interval)) => Some(Estimate::of_printed(mean, interval, self.runs)),
            None => Some(Estimate::new(cell.alone()?, self.runs, None)),
        }
    }

    fn check(&self) -> Result<(), PublishedError> {
        if self.level != LEVEL {
            return Err(PublishedError::Level { table: self.id.clone(), level: self.level });
        }
        self.row.iter().try_for_each(|row| self.check_row(row))
    }

    fn check_row(&self, row: &Row) -> Result<(), PublishedError> {
        if row.cell.len() != self.column.len() {
            return Err(PublishedError::Width {
                table: self.id.clone(),
                row: row.label.clone(),
                cells: row.cell.len(),
                columns: self.column.len(),
            });
        }
        row.cell.iter().zip(&self.column).try_for_each(|(cell, column)| {
            cell.check().map_err(|why| PublishedError::Cell {
                table: self.id.clone(),
                row: row.label.clone(),
                column: column.clone(),
                why,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = r#"
        [paper]
        id = "x-2000"
        title = "X"
        authors = ["A"]
        year = 2000
        [[table]]
        id = "table1"
        title = "T"
        scheme = "tcp"
        quantity = "time"
        unit = "s"
        runs = 40
        level = 0.95
        rows = "pause"
        columns = "loss"
        column = ["0 %"]
        [[table.row]]
        label = "0 s"
    "#;

    fn refusal(cells: &str) -> String {
        Published::parse(&format!("{HEAD}\ncell = [{cells}]")).unwrap_err().to_string()
    }

    #[test]
    fn a_cell_is_found_by_its_labels() {
        let text = format!("{HEAD}\ncell = [{{ mean = 2.0, lo = 1.0, hi = 3.0 }}]");
        let published = Published::parse(&text).unwrap();
        let table = published.table("table1").unwrap();
        let (mean, interval) = table.cell("0 s", "0 %").unwrap().value().unwrap();
        assert_eq!((mean, interval), (2.0, Interval { lo: 1.0, hi: 3.0 }));
        assert_eq!(table.estimate("0 s", "0 %").unwrap().n, 40);
        assert!(table.cell("0 s", "7 %").is_none() && table.cell("7 s", "0 %").is_none());
    }

    #[test]
    fn a_value_without_an_interval_is_an_estimate_without_one() {
        let published = Published::parse(&format!("{HEAD}\ncell = [{{ value = 2.0 }}]")).unwrap();
        let table = published.table("table1").unwrap();
        assert_eq!(table.cell("0 s", "0 %").unwrap().value(), None);
        let estimate = table.estimate("0 s", "0 %").unwrap();
        assert_eq!((estimate.mean, estimate.interval()), (2.0, None));
    }

    #[test]
    fn cells_that_make_no_sense_are_refused_with_their_place() {
        for (cells, why) in [
            ("{ mean = 4.0, lo = 1.0, hi = 3.0 }", "row 0 s, column 0 %: its mean is outside"),
            ("{ mean = 4.0 }", "it needs `mean`, `lo` and `hi`, or `value`, or `missing`"),
            ("{ value = 4.0, lo = 1.0 }", "`value` stands alone"),
            ("{ mean = 4.0, missing = \"cut\" }", "missing, yet has a value"),
            ("", "row 0 s: 0 cells under 1 columns"),
            ("{ mena = 4.0 }", "unknown field `mena`"),
        ] {
            let refusal = refusal(cells);
            assert!(refusal.contains(why), "{cells}: {refusal}");
        }
    }

    #[test]
    fn a_level_other_than_ours_is_refused() {
        let text = HEAD.replace("0.95", "0.9") + "cell = [{ missing = \"cut\" }]";
        let refusal = Published::parse(&text).unwrap_err().to_string();
        assert!(refusal.contains("level 0.9"), "{refusal}");
    }
}
