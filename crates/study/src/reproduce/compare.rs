use serde::{Deserialize, Serialize};

use super::cell::{Label, once_each};
use super::run::Measured;
use crate::report::Tone;
use crate::stats::{self, Estimate, Ratio};

/// How far a ratio of two schemes may be from the published one, as a part of it.
pub const RATIO_TOLERANCE: f64 = 0.35;

/// How far our mean may be from a value that is printed without an interval, as a part of it.
pub const NEAR: f64 = 0.10;

/// How well a cell of ours agrees with the published one; the best that applies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mark {
    /// Our mean lies in the published interval.
    Within,
    /// Our interval and the published one overlap.
    Overlaps,
    /// Our mean is within 10 % of a value that is printed without an interval.
    Near,
    /// The ratio to every other scheme printed in the same row and column is within 35 % of the
    /// published ratio.
    Ratio,
    /// The order among the schemes printed in the same row and column is right, as
    /// [`Order::Right`] and [`Order::Undecided`] are.
    Order,
    /// None of these, or a run of the cell did not come to its end.
    Miss,
    /// Nothing is published to agree with.
    Unpublished,
    /// No run of ours gave a value.
    NotRun,
}

impl Mark {
    /// The word for it, as `--json` and reports print it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Within => "within",
            Self::Overlaps => "overlaps",
            Self::Near => "near",
            Self::Ratio => "ratio",
            Self::Order => "order",
            Self::Miss => "miss",
            Self::Unpublished => "unpublished",
            Self::NotRun => "not-run",
        }
    }

    /// Whether that is as it should be.
    pub fn tone(self) -> Tone {
        match self {
            Self::Within | Self::Overlaps | Self::Near => Tone::Good,
            Self::Ratio | Self::Order => Tone::Fair,
            Self::Miss | Self::NotRun => Tone::Bad,
            Self::Unpublished => Tone::Neutral,
        }
    }
}

/// Whether two schemes, or all schemes of a cell's row and column, are ordered as published.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Order {
    /// Our means are ordered as the published ones.
    Right,
    /// They are not, but the published intervals overlap: the paper itself does not decide.
    Undecided,
    /// They are not, and the published intervals are apart; or a run did not come to its end, so
    /// that a mean is not known.
    Wrong,
}

/// Two schemes in the same row and column, both printed and both measured.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The scheme above the line.
    pub first: Label,
    /// The scheme below the line.
    pub second: Label,
    /// The ratio of the published means.
    pub published: Ratio,
    /// The ratio of our means; none while one is unknown.
    pub ours: Option<Ratio>,
    /// Whether the two are ordered as published.
    pub order: Order,
}

impl Pair {
    /// Whether our ratio is within [`RATIO_TOLERANCE`] of the published one.
    pub fn is_close(&self) -> bool {
        self.ours.is_some_and(|r| (r.value / self.published.value - 1.0).abs() <= RATIO_TOLERANCE)
    }

    /// Whether the cell at `label` is one of the two.
    pub fn has(&self, label: &Label) -> bool {
        self.first == *label || self.second == *label
    }
}

/// One measured cell beside the published one.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The cell.
    pub cell: Measured,
    /// How well it agrees.
    pub mark: Mark,
    /// Whether it is in order with the other schemes in its row and column; none without any.
    pub order: Option<Order>,
    /// Whether all its ratios are close; none without any.
    pub ratio: Option<bool>,
}

impl Compared {
    /// Whether our mean is within this part of the published one; none unless both are known.
    pub fn is_within(&self, part: f64) -> Option<bool> {
        let (ours, published) = (self.cell.ours.estimate()?, self.cell.published?);
        Some(is_near(ours.mean, published.mean, part))
    }
}

/// Every cell beside the published one, and every pair of schemes.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// The cells, in the order of the experiment.
    pub cells: Vec<Compared>,
    /// The pairs, in the order of their cells.
    pub pairs: Vec<Pair>,
}

impl Comparison {
    /// Compares measured cells with what is published. Schemes meet in cells that have the same row
    /// and column and are marked as compared; the earlier one in `cells` is the first of the pair.
    pub fn new(cells: Vec<Measured>) -> Self {
        let pairs = pairs(&cells);
        let compared = |cell: Measured| {
            let own = || pairs.iter().filter(|pair| pair.has(&cell.label));
            let order = own().map(|pair| pair.order).max();
            let ratio = (own().count() > 0).then(|| own().all(Pair::is_close));
            Compared { mark: mark(&cell, order, ratio), order, ratio, cell }
        };
        Self { cells: cells.into_iter().map(compared).collect(), pairs }
    }

    /// The pairs of two schemes.
    pub fn pairs_of(&self, first: &str, second: &str) -> impl Iterator<Item = &Pair> {
        self.pairs.iter().filter(move |p| p.first.scheme == first && p.second.scheme == second)
    }

    /// The cell of a table, row, column and scheme; none if it was not run.
    pub fn at(&self, place: [&str; 4]) -> Option<&Measured> {
        self.measured().find(|m| m.label.words() == place)
    }

    /// The mean there; none if no run of it gave a value.
    pub fn mean(&self, place: [&str; 4]) -> Option<f64> {
        Some(self.at(place)?.ours.estimate()?.mean)
    }

    /// The estimate there; none if it was not run, or a run of it failed.
    pub fn whole(&self, place: [&str; 4]) -> Option<Estimate> {
        self.at(place)?.whole()
    }

    /// The mean there; none if it was not run, or a run of it failed.
    pub fn whole_mean(&self, place: [&str; 4]) -> Option<f64> {
        Some(self.whole(place)?.mean)
    }

    /// What was measured, in the order of the experiment.
    pub fn measured(&self) -> impl Iterator<Item = &Measured> {
        self.cells.iter().map(|compared| &compared.cell)
    }

    /// The cells of a table.
    pub fn of_table(&self, table: &str) -> impl Iterator<Item = &Compared> {
        self.cells.iter().filter(move |compared| compared.cell.label.table == table)
    }

    /// The rows of a table, in order.
    pub fn rows(&self, table: &str) -> Vec<&str> {
        once_each(self.of_table(table).map(|c| c.cell.label.row.as_str()))
    }

    /// Its columns.
    pub fn columns(&self, table: &str) -> Vec<&str> {
        once_each(self.of_table(table).map(|c| c.cell.label.column.as_str()))
    }

    /// Its schemes.
    pub fn schemes(&self, table: &str) -> Vec<&str> {
        once_each(self.of_table(table).map(|c| c.cell.label.scheme.as_str()))
    }

    /// The cells that the paper prints.
    pub fn printed(&self) -> impl Iterator<Item = &Compared> {
        self.cells.iter().filter(|compared| compared.cell.published.is_some())
    }
}

fn pairs(cells: &[Measured]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (i, first) in cells.iter().enumerate() {
        for second in &cells[i + 1..] {
            let together = first.label.words()[1..3] == second.label.words()[1..3];
            if first.compared && second.compared && together {
                pairs.extend(pair(first, second));
            }
        }
    }
    pairs
}

fn pair(first: &Measured, second: &Measured) -> Option<Pair> {
    let (printed_first, printed_second) = (first.published?, second.published?);
    let ours = first.whole().zip(second.whole());
    let order = match ours {
        None => Order::Wrong,
        Some((a, b))
            if a.mean.total_cmp(&b.mean) == printed_first.mean.total_cmp(&printed_second.mean) =>
        {
            Order::Right
        }
        Some(_) => match printed_first.interval().zip(printed_second.interval()) {
            Some((a, b)) if a.overlaps(&b) => Order::Undecided,
            _ => Order::Wrong,
        },
    };
    Some(Pair {
        first: first.label.clone(),
        second: second.label.clone(),
        published: stats::ratio(&printed_first, &printed_second)?,
        ours: ours.and_then(|(a, b)| stats::ratio(&a, &b)),
        order,
    })
}

fn mark(cell: &Measured, order: Option<Order>, ratio: Option<bool>) -> Mark {
    let Some(ours) = cell.ours.estimate() else {
        return Mark::NotRun;
    };
    let Some(published) = cell.published else {
        return Mark::Unpublished;
    };
    if cell.ours.failures() > 0 {
        return Mark::Miss;
    }
    let printed = published.interval();
    if printed.is_some_and(|p| p.contains(ours.mean)) {
        Mark::Within
    } else if printed.zip(ours.interval()).is_some_and(|(p, o)| p.overlaps(&o)) {
        Mark::Overlaps
    } else if printed.is_none() && is_near(ours.mean, published.mean, NEAR) {
        Mark::Near
    } else if ratio == Some(true) {
        Mark::Ratio
    } else if order.is_some_and(|order| order != Order::Wrong) {
        Mark::Order
    } else {
        Mark::Miss
    }
}

fn is_near(ours: f64, printed: f64, part: f64) -> bool {
    (ours - printed).abs() <= part * printed.abs()
}

/// How many of the things that a reproduction has to get right it gets right.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Criterion {
    /// What has to be right.
    #[serde(rename = "criterion")]
    pub name: String,
    /// In how many cases it is.
    pub met: usize,
    /// How many cases were looked at.
    pub of: usize,
    /// How many cases there are in the whole experiment.
    pub whole: usize,
    /// In how many cases it has to be right; none if the count is only told.
    pub needed: Option<usize>,
}

impl Criterion {
    /// Counts the cases where something is right.
    pub fn count(
        name: &str,
        cases: impl IntoIterator<Item = bool>,
        whole: usize,
        needed: Option<usize>,
    ) -> Self {
        let (mut met, mut of) = (0, 0);
        for right in cases {
            met += usize::from(right);
            of += 1;
        }
        Self { name: name.to_owned(), met, of, whole, needed }
    }

    /// Counts the cases where something is right that has to be right in all of them.
    pub fn all(name: &str, cases: impl IntoIterator<Item = bool>, whole: usize) -> Self {
        Self::count(name, cases, whole, Some(whole))
    }

    /// Counts the cases where something is right, only to tell of it.
    pub fn told(name: &str, cases: impl IntoIterator<Item = bool>, whole: usize) -> Self {
        Self::count(name, cases, whole, None)
    }

    /// Whether it is met; none if nothing is needed, or too few cases were looked at to say.
    pub fn verdict(&self) -> Option<bool> {
        let needed = self.needed?;
        let open = self.whole.saturating_sub(self.of);
        match () {
            () if self.met >= needed => Some(true),
            () if self.met + open < needed => Some(false),
            () => None,
        }
    }

    /// Whether the experiment agrees with the paper here: as far as is needed, or without exception
    /// where the count is only told. None if nothing was looked at, or too little to say.
    pub fn agrees(&self) -> Option<bool> {
        match self.needed {
            Some(_) => self.verdict().filter(|_| self.of > 0),
            None => (self.of > 0).then_some(self.met == self.of),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{Estimate, Interval, Sample};

    fn cell(scheme: &str, published: Option<(f64, f64, f64)>, ours: &[f64]) -> Measured {
        let printed = |(mean, lo, hi)| Estimate::of_printed(mean, Interval { lo, hi }, 40);
        Measured {
            label: Label {
                table: scheme.to_owned(),
                row: "1 s".to_owned(),
                column: "5 %".to_owned(),
                scheme: scheme.to_owned(),
            },
            unit: "s",
            published: published.map(printed),
            compared: true,
            ours: ours.iter().copied().collect::<Sample>(),
            reasons: Vec::new(),
        }
    }

    fn marks(cells: Vec<Measured>) -> Vec<&'static str> {
        Comparison::new(cells).cells.iter().map(|c| c.mark.name()).collect()
    }

    #[test]
    fn a_cell_gets_the_best_mark_that_applies() {
        let printed = Some((20.0, 19.0, 21.0));
        assert_eq!(marks(vec![cell("a", printed, &[20.5, 20.7])]), ["within"]);
        assert_eq!(marks(vec![cell("a", printed, &[20.0, 25.0])]), ["overlaps"]);
        assert_eq!(marks(vec![cell("a", printed, &[30.0, 30.1])]), ["miss"]);
        assert_eq!(marks(vec![cell("a", None, &[30.0])]), ["unpublished"]);
        assert_eq!(marks(vec![cell("a", printed, &[])]), ["not-run"]);
    }

    #[test]
    fn a_value_printed_without_an_interval_is_near_up_to_10_percent() {
        let mark = |ours: f64| {
            let alone = Estimate::new(20.0, 1, None);
            let cell = Measured { published: Some(alone), ..cell("a", None, &[ours]) };
            Comparison::new(vec![cell]).cells[0].mark
        };
        assert_eq!([mark(21.9), mark(18.1)], [Mark::Near; 2]);
        assert_eq!([mark(22.1), mark(17.9)], [Mark::Miss; 2]);
    }

    #[test]
    fn ratio_and_order_need_every_other_scheme_of_the_place() {
        let [a, b] = [Some((40.0, 39.0, 41.0)), Some((20.0, 19.0, 21.0))];
        let twice = vec![cell("a", a, &[80.0, 80.1]), cell("b", b, &[40.0, 40.1])];
        assert_eq!(marks(twice), ["ratio", "ratio"]);
        let ordered = vec![cell("a", a, &[200.0, 200.1]), cell("b", b, &[40.0, 40.1])];
        assert_eq!(marks(ordered), ["order", "order"]);
        let reversed = vec![cell("a", a, &[30.0, 30.1]), cell("b", b, &[40.0, 40.1])];
        assert_eq!(marks(reversed), ["miss", "miss"]);
        let outsider = cell("c", Some((10.0, 9.0, 11.0)), &[60.0, 60.1]);
        let three = vec![cell("a", a, &[80.0, 80.1]), cell("b", b, &[40.0, 40.1]), outsider];
        assert_eq!(marks(three), ["order", "miss", "miss"]);
    }

    #[test]
    fn an_order_that_the_paper_leaves_open_is_not_wrong() {
        let [split, srp] = [Some((26.0, 23.3, 28.6)), Some((27.3, 25.5, 29.1))];
        let with = |a: f64, b: f64| {
            let cells = vec![cell("split-tcp", split, &[a, a]), cell("srp", srp, &[b, b])];
            Comparison::new(cells).pairs[0].order
        };
        assert_eq!(with(10.0, 11.0), Order::Right);
        assert_eq!(with(11.0, 10.0), Order::Undecided);
    }

    /// MET-13: the mean of only those runs that ended is not held against the paper's.
    #[test]
    fn a_cell_with_an_incomplete_run_is_a_miss() {
        let mut a = cell("a", Some((40.0, 39.0, 41.0)), &[40.0, 40.1]);
        a.ours.fail();
        let b = cell("b", Some((20.0, 19.0, 21.0)), &[20.0, 20.1]);
        let comparison = Comparison::new(vec![a, b]);
        assert_eq!(comparison.cells[0].mark, Mark::Miss);
        assert_eq!(comparison.cells[1].mark, Mark::Within);
        assert_eq!(comparison.pairs[0].order, Order::Wrong);
        assert!(!comparison.pairs[0].is_close());
    }

    #[test]
    fn a_ratio_is_close_up_to_35_percent_of_the_published_one() {
        let [a, b] = [Some((40.0, 39.0, 41.0)), Some((20.0, 19.0, 21.0))];
        let close = |ours: f64| {
            let cells = vec![cell("a", a, &[ours]), cell("b", b, &[10.0])];
            Comparison::new(cells).pairs[0].is_close()
        };
        assert!(close(26.9) && close(13.1));
        assert!(!close(27.1) && !close(12.9));
    }

    #[test]
    fn a_criterion_says_nothing_before_enough_cases_are_seen() {
        let criterion = |met: usize, of: usize| {
            Criterion::count("x", (0..of).map(|i| i < met), 33, Some(30)).verdict()
        };
        assert_eq!(criterion(30, 30), Some(true));
        assert_eq!(criterion(29, 29), None);
        assert_eq!(criterion(0, 4), Some(false));
        assert_eq!(Criterion::count("x", [true], 1, None).verdict(), None);
    }
}
