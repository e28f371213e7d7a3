//! Tables of text that fit into any width, and how what processes report is written in them.

use std::borrow::Cow;

use lasthop_units::Rate;

use super::Handoffs;

/// Between two columns.
const GAP: usize = 2;
/// How much of a key people are shown.
const KEY_SHOWN: usize = 8;

/// A column.
#[derive(Clone, Debug)]
struct Column {
    title: &'static str,
    /// Numbers stand to the right.
    right: bool,
    /// Where there is no room the columns of the highest rank go first; those of rank 0 stay.
    rank: u8,
    /// One for each row.
    cells: Vec<String>,
}

impl Column {
    fn width(&self) -> usize {
        let cells = self.cells.iter().map(|cell| cell.chars().count());
        cells.max().unwrap_or(0).max(self.title.len())
    }
}

/// A table.
#[derive(Clone, Default, Debug)]
pub struct Grid {
    columns: Vec<Column>,
    rows: usize,
}

/// A table that is being made, with a row for each item.
#[derive(Debug)]
pub struct GridOf<'a, T> {
    items: Vec<&'a T>,
    grid: Grid,
}

/// A column as it is shown: its place in the grid, and how wide it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shown {
    index: usize,
    /// Characters.
    pub width: usize,
}

impl<'a, T> GridOf<'a, T> {
    /// A column of text. Where there is no room those of the highest rank go first; those of rank 0
    /// stay.
    #[must_use]
    pub fn text(self, title: &'static str, rank: u8, cell: impl Fn(&'a T) -> String) -> Self {
        self.column(title, rank, false, &cell)
    }

    /// A column of numbers, which stand to the right.
    #[must_use]
    pub fn number(self, title: &'static str, rank: u8, cell: impl Fn(&'a T) -> String) -> Self {
        self.column(title, rank, true, &cell)
    }

    fn column(
        mut self,
        title: &'static str,
        rank: u8,
        right: bool,
        cell: &dyn Fn(&'a T) -> String,
    ) -> Self {
        let cells = self.items.iter().map(|item| cell(item)).collect();
        self.grid.columns.push(Column { title, right, rank, cells });
        self
    }

    /// The table.
    pub fn grid(self) -> Grid {
        self.grid
    }
}

impl Grid {
    /// A table with a row for each of `items`, whose columns follow.
    pub fn of<'a, T>(items: impl IntoIterator<Item = &'a T>) -> GridOf<'a, T> {
        let items: Vec<&T> = items.into_iter().collect();
        let grid = Self { columns: Vec::new(), rows: items.len() };
        GridOf { items, grid }
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The columns that fit into `width`, and how wide they are.
    pub fn fit(&self, width: usize) -> Vec<Shown> {
        let columns = self.columns.iter().enumerate();
        let mut shown: Vec<Shown> =
            columns.map(|(index, column)| Shown { index, width: column.width() }).collect();
        let rank = |s: &Shown| self.columns[s.index].rank;
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

    /// The cells of a row, each exactly as wide as its column.
    pub fn cells<'a>(
        &'a self,
        row: usize,
        shown: &'a [Shown],
    ) -> impl Iterator<Item = String> + 'a {
        self.aligned(shown, move |column| column.cells.get(row).map_or("", String::as_str))
    }

    /// The titles, as [`cells`](Self::cells).
    pub fn titles<'a>(&'a self, shown: &'a [Shown]) -> impl Iterator<Item = String> + 'a {
        self.aligned(shown, |column| column.title)
    }

    fn aligned<'a>(
        &'a self,
        shown: &'a [Shown],
        text: impl Fn(&'a Column) -> &'a str + 'a,
    ) -> impl Iterator<Item = String> + 'a {
        let columns = shown.iter().map(|s| (&self.columns[s.index], s.width));
        columns.map(move |(column, width)| align(text(column), width, column.right))
    }

    /// The whole table as lines.
    pub fn to_text(&self) -> String {
        let shown = self.fit(usize::MAX);
        let mut out = String::new();
        let mut line = |cells: &mut dyn Iterator<Item = String>| {
            let line = cells.collect::<Vec<_>>().join("  ");
            out.push_str(line.trim_end());
            out.push('\n');
        };
        line(&mut self.titles(&shown));
        (0..self.rows).for_each(|row| line(&mut self.cells(row, &shown)));
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
pub fn printable(text: &str) -> Cow<'_, str> {
    if text.contains(char::is_control) {
        Cow::Owned(text.replace(char::is_control, "?"))
    } else {
        Cow::Borrowed(text)
    }
}

/// A value, or a dash where it is unknown.
pub fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// A rate in bit/s.
pub fn rate(bps: Option<u64>) -> String {
    or_dash(bps.map(Rate::from_bps))
}

/// A share as percent.
pub fn percent(share: Option<f64>) -> String {
    or_dash(share.map(|share| format!("{:.1} %", share * 100.0)))
}

/// Milliseconds.
pub fn ms(t: Option<f64>) -> String {
    or_dash(t.map(|t| format!("{t:.1} ms")))
}

/// A number of seconds as milliseconds: a pause.
pub fn pause(seconds: Option<f64>) -> String {
    ms(seconds.map(|s| s * 1e3))
}

/// What became of connections whose base was dead, as the end of a line on handoffs; nothing where there were none.
pub fn orphans(handoffs: &Handoffs) -> String {
    match (handoffs.orphans_taken, handoffs.orphans_lost) {
        (0, 0) => String::new(),
        (taken, lost) => format!("; of dead bases: {taken} taken over, {lost} lost"),
    }
}

/// What stands for a public key.
pub fn key(key: &str) -> String {
    key.chars().take(KEY_SHOWN).collect()
}

/// How long something lasts, in seconds.
pub fn age(seconds: f64) -> String {
    let s = seconds as u64;
    match s {
        0..60 => format!("{s}s"),
        60..3600 => format!("{}m{:02}s", s / 60, s % 60),
        3600..86_400 => format!("{}h{:02}m", s / 3600, s / 60 % 60),
        _ => format!("{}d{:02}h", s / 86_400, s / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn grid(target: &str) -> Grid {
        Grid::of([&target.to_owned()])
            .text("TARGET", 0, String::clone)
            .number("AGE", 2, |_| "5s".into())
            .number("RATE", 1, |_| "20 Mbit/s".into())
            .grid()
    }

    #[test]
    fn a_table_is_aligned() {
        let text = grid("example.net:443").to_text();
        assert_eq!(text, "TARGET           AGE       RATE\nexample.net:443   5s  20 Mbit/s\n");
    }

    #[test]
    fn what_matters_least_goes_first_and_the_rest_is_cut() {
        let grid = grid("example.net:443");
        let kept = |width| grid.fit(width).iter().map(|s| s.index).collect::<Vec<_>>();
        assert_eq!(kept(31), [0, 1, 2]);
        assert_eq!(kept(30), [0, 2]);
        assert_eq!(kept(20), [0]);
        let shown = grid.fit(8);
        assert_eq!(grid.cells(0, &shown).collect::<Vec<_>>(), ["example…"]);
    }

    #[test]
    fn nothing_in_a_name_steers_the_terminal() {
        assert_eq!(align("a\x1b[2Jb", 8, false), "a?[2Jb  ");
    }

    proptest! {
        #[test]
        fn cells_are_as_wide_as_their_columns(text in "\\PC{0,30}", width in 0_usize..40) {
            let grid = grid(&text);
            let shown = grid.fit(width);
            for (cell, s) in grid.cells(0, &shown).zip(&shown) {
                prop_assert_eq!(cell.chars().count(), s.width);
            }
            prop_assert!(width < 1 || total(&shown) <= width);
        }
    }
}
