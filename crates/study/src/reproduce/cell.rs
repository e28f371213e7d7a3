use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use thiserror::Error;

use crate::published::Table;
use crate::stats::Estimate;

/// Where a cell stands, in the words of its paper.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct Label {
    /// The table's short name, such as `table1`.
    pub table: String,
    /// The row, such as `2.8 s`.
    pub row: String,
    /// The column, such as `5 %`.
    pub column: String,
    /// The scheme that is measured, such as `srp`.
    pub scheme: String,
}

impl Label {
    /// Of table, row, column and scheme.
    pub fn new(words: [&str; 4]) -> Self {
        let [table, row, column, scheme] = words.map(str::to_owned);
        Self { table, row, column, scheme }
    }

    /// Table, row, column and scheme.
    pub fn words(&self) -> [&str; 4] {
        [&self.table, &self.row, &self.column, &self.scheme]
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words().join("/"))
    }
}

/// One cell of an experiment.
#[derive(Clone, Debug)]
pub struct Cell<C> {
    /// Where it stands.
    pub label: Label,
    /// The unit of its values, such as `s`.
    pub unit: &'static str,
    /// What the paper prints there, if it prints anything.
    pub published: Option<Estimate>,
    /// Whether schemes are compared here with the other schemes in the same row and column.
    /// Cells that the paper has no counterpart of are measured, and stand alone.
    pub compared: bool,
    /// What is to be run.
    pub case: C,
}

impl<C> Cell<C> {
    /// The cell of a published table, with what is printed there.
    pub fn of_table(table: &Table, row: &str, column: &str, unit: &'static str, case: C) -> Self {
        let label = Label::new([&table.id, row, column, &table.scheme]);
        Self { label, unit, published: table.estimate(row, column), compared: true, case }
    }

    /// A cell at a table, row, column and scheme that the paper has no counterpart of.
    pub fn ours(place: [&str; 4], unit: &'static str, case: C) -> Self {
        Self { label: Label::new(place), unit, published: None, compared: false, case }
    }
}

/// A choice of cells: labels separated by `/`, in any order, spaces left out; a cell is chosen if
/// all of them are among its own. `srp` is a scheme, `table1/2.8s` a row, `srp/0s/5%` a single cell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Only(Vec<String>);

/// Why a choice of cells is none.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum OnlyError {
    /// Nothing stands before, after or between two `/`.
    #[error("`{0}` has an empty label; write for example `table1`, `srp/5%` or `table1/2.8s/5%`")]
    Empty(String),
    /// No cell has the label.
    #[error("`{label}` is no table, row, column or scheme here; there are {known}")]
    Unknown {
        /// The label.
        label: String,
        /// All labels there are.
        known: String,
    },
    /// Each label exists, but no cell has them all.
    #[error("no cell is all of `{0}`; `--list` shows the cells")]
    Nothing(String),
}

impl FromStr for Only {
    type Err = OnlyError;

    fn from_str(text: &str) -> Result<Self, OnlyError> {
        let parts: Vec<String> = text.split('/').map(squeezed).collect();
        if parts.iter().any(String::is_empty) {
            return Err(OnlyError::Empty(text.to_owned()));
        }
        Ok(Self(parts))
    }
}

impl fmt::Display for Only {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("/"))
    }
}

impl Only {
    /// Whether the choice takes the cell at `label`.
    pub fn takes(&self, label: &Label) -> bool {
        self.0.iter().all(|part| label.words().iter().any(|word| squeezed(word) == *part))
    }
}

/// The cells that any of the choices takes; all of them if there is no choice.
///
/// # Errors
/// If a choice names a label that no cell has, or takes no cell.
pub fn chosen<C>(mut cells: Vec<Cell<C>>, only: &[Only]) -> Result<Vec<Cell<C>>, OnlyError> {
    let labels: Vec<&Label> = cells.iter().map(|cell| &cell.label).collect();
    check(&labels, only)?;
    cells.retain(|cell| is_chosen(&cell.label, only));
    Ok(cells)
}

/// The labels that any of the choices takes; all of them if there is no choice.
///
/// # Errors
/// If a choice names a label that no cell has, or takes no cell.
pub fn chosen_labels(mut labels: Vec<Label>, only: &[Only]) -> Result<Vec<Label>, OnlyError> {
    check(&labels.iter().collect::<Vec<_>>(), only)?;
    labels.retain(|label| is_chosen(label, only));
    Ok(labels)
}

fn is_chosen(label: &Label, only: &[Only]) -> bool {
    only.is_empty() || only.iter().any(|choice| choice.takes(label))
}

fn check(labels: &[&Label], only: &[Only]) -> Result<(), OnlyError> {
    let known = once_each(labels.iter().flat_map(|label| label.words()).map(squeezed));
    for choice in only {
        if let Some(label) = choice.0.iter().find(|part| !known.contains(part)) {
            return Err(OnlyError::Unknown { label: label.clone(), known: known.join(", ") });
        }
        if !labels.iter().any(|label| choice.takes(label)) {
            return Err(OnlyError::Nothing(choice.to_string()));
        }
    }
    Ok(())
}

/// What there is, each once, in the order in which it comes first.
pub(crate) fn once_each<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut known = Vec::new();
    for one in all {
        if !known.contains(&one) {
            known.push(one);
        }
    }
    known
}

fn squeezed(word: &str) -> String {
    word.chars().filter(|c| !c.is_whitespace()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(table: &str, row: &str, column: &str, scheme: &str) -> Cell<()> {
        Cell::ours([table, row, column, scheme], "s", ())
    }

    fn count(only: &[&str]) -> Result<usize, OnlyError> {
        let cells = vec![
            cell("table1", "0 s", "0 %", "tcp"),
            cell("table1", "2.8 s", "5 %", "tcp"),
            cell("table3", "0 s", "5 %", "srp"),
        ];
        let only: Result<Vec<Only>, _> = only.iter().map(|o| o.parse()).collect();
        Ok(chosen(cells, &only?)?.len())
    }

    #[test]
    fn labels_choose_cells_in_any_order_and_without_spaces() {
        assert_eq!(count(&[]), Ok(3));
        assert_eq!(count(&["srp"]), Ok(1));
        assert_eq!(count(&["5%"]), Ok(2));
        assert_eq!(count(&["5 %/table1"]), Ok(1));
        assert_eq!(count(&["srp", "table1/0s"]), Ok(2));
    }

    #[test]
    fn a_choice_without_a_cell_is_refused() {
        assert_eq!(count(&["srp/"]), Err(OnlyError::Empty("srp/".to_owned())));
        assert_eq!(count(&["srp/0%"]), Err(OnlyError::Nothing("srp/0%".to_owned())));
        let refusal = count(&["snoop"]).unwrap_err().to_string();
        assert!(refusal.contains("`snoop`") && refusal.contains("tcp, 2.8s, 5%"), "{refusal}");
    }
}
