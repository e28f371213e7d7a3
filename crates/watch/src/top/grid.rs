//! Tables of text that fit into any width.

use std::borrow::Cow;

/// Between two columns.
const GAP: usize = 2;

/// A column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) title: &'static str,
    /// Numbers stand to the right.
    pub(super) right: bool,
    /// Where there is no room the columns of the highest rank go first; those of rank 0 stay.
    pub(super) rank: u8,
}

impl Column {
    pub(super) const fn text(title: &'static str, rank: u8) -> Self {
        Self { title, right: false, rank }
    }

    pub(super) const fn number(title: &'static str, rank: u8) -> Self {
        Self { title, right: true, rank }
    }
}

/// A table.
#[derive(Clone, Default, Debug)]
pub(super) struct Grid {
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<String>>,
}

/// A column as it is shown: its place in the grid, and how wide it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shown {
    pub(super) index: usize,
    pub(super) width: usize,
}

impl Grid {
    /// The columns that fit into `width`, and how wide they are.
    pub(super) fn fit(&self, width: usize) -> Vec<Shown> {
        let mut shown: Vec<Shown> = (0..self.columns.len())
            .map(|index| Shown { index, width: self.width_of(index) })
            .collect();
        let rank = |s: &Shown| self.columns.get(s.index).map_or(0, |column| column.rank);
        while total(&shown) > width {
            let Some(last) = shown.iter().map(rank).max().filter(|rank| *rank > 0) else { break };
            let Some(at) = shown.iter().rposition(|s| rank(s) == last) else { break };
            shown.remove(at);
        }
        // What must stay shares what there is: the widest column gives first.
        while total(&shown) > width {
            let Some(widest) = shown.iter_mut().max_by_key(|s| s.width).filter(|s| s.width > 1)
            else {
                break;
            };
            widest.width -= 1;
        }
        shown
    }

    fn width_of(&self, index: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(index)).map(|c| c.chars().count());
        let title = self.columns.get(index).map_or(0, |column| column.title.len());
        cells.max().unwrap_or(0).max(title)
    }

    /// The cells of a row, each exactly as wide as its column.
    pub(super) fn cells<'a>(
        &'a self,
        row: &'a [String],
        shown: &'a [Shown],
    ) -> impl Iterator<Item = String> + 'a {
        shown.iter().map(|s| {
            let right = self.columns.get(s.index).is_some_and(|column| column.right);
            align(row.get(s.index).map_or("", String::as_str), s.width, right)
        })
    }

    /// The titles, as [`cells`](Self::cells).
    pub(super) fn titles<'a>(&'a self, shown: &'a [Shown]) -> impl Iterator<Item = String> + 'a {
        shown.iter().filter_map(|s| {
            let column = self.columns.get(s.index)?;
            Some(align(column.title, s.width, column.right))
        })
    }

    /// The whole table as lines.
    pub(super) fn to_text(&self) -> String {
        let shown = self.fit(usize::MAX);
        let mut out = String::new();
        let mut line = |cells: &mut dyn Iterator<Item = String>| {
            let line = cells.collect::<Vec<_>>().join("  ");
            out.push_str(line.trim_end());
            out.push('\n');
        };
        line(&mut self.titles(&shown));
        self.rows.iter().for_each(|row| line(&mut self.cells(row, &shown)));
        out
    }
}

fn total(shown: &[Shown]) -> usize {
    let gaps = GAP * shown.len().saturating_sub(1);
    shown.iter().map(|s| s.width).sum::<usize>() + gaps
}

fn align(text: &str, width: usize, right: bool) -> String {
    let text = printable(text);
    let length = text.chars().count();
    if length > width {
        let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
        cut.push('…');
        return cut;
    }
    if right { format!("{text:>width$}") } else { format!("{text:<width$}") }
}

/// Names come from outside: nothing in them may steer a terminal.
pub(super) fn printable(text: &str) -> Cow<'_, str> {
    if text.contains(char::is_control) {
        Cow::Owned(text.replace(char::is_control, "?"))
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn grid() -> Grid {
        Grid {
            columns: vec![
                Column::text("TARGET", 0),
                Column::number("AGE", 2),
                Column::number("RATE", 1),
            ],
            rows: vec![vec!["example.net:443".into(), "5s".into(), "20 Mbit/s".into()]],
        }
    }

    #[test]
    fn a_table_is_aligned() {
        let text = grid().to_text();
        assert_eq!(text, "TARGET           AGE       RATE\nexample.net:443   5s  20 Mbit/s\n");
    }

    #[test]
    fn what_matters_least_goes_first_and_the_rest_is_cut() {
        let grid = grid();
        let kept = |width| grid.fit(width).iter().map(|s| s.index).collect::<Vec<_>>();
        assert_eq!(kept(31), [0, 1, 2]);
        assert_eq!(kept(30), [0, 2]);
        assert_eq!(kept(20), [0]);
        let shown = grid.fit(8);
        assert_eq!(grid.cells(&grid.rows[0], &shown).collect::<Vec<_>>(), ["example…"]);
    }

    #[test]
    fn nothing_in_a_name_steers_the_terminal() {
        assert_eq!(align("a\x1b[2Jb", 8, false), "a?[2Jb  ");
    }

    proptest! {
        #[test]
        fn cells_are_as_wide_as_their_columns(text in "\\PC{0,30}", width in 0_usize..40) {
            let mut grid = grid();
            grid.rows[0][0] = text;
            let shown = grid.fit(width);
            for (cell, s) in grid.cells(&grid.rows[0], &shown).zip(&shown) {
                prop_assert_eq!(cell.chars().count(), s.width);
            }
            prop_assert!(width < 1 || total(&shown) <= width);
        }
    }
}
