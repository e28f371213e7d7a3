//! What has to be right, and how much of what the paper claims holds.

use lasthop_units::Scheme;

use super::answers::{self, QUESTIONS};
use super::cells::{
    BINS, FIGURE_7, FIGURE_8, MINIMUM, RECOVERY, SEMANTICS, TABLE_2, THROUGHPUT, TIMEOUTS,
};
use crate::published::Published;
use crate::reproduce::{Comparison, Criterion, Order, Pair, RATIO_TOLERANCE};

/// The handoff times of Table II.
pub(super) const TABLE_2_TIMES: [&str; 5] = ["0 s", "1.5 s", "4.3 s", "5.2 s", "8.9 s"];

/// The schemes of figure 7.
pub(super) const FIGURE_7_SCHEMES: [&str; 5] =
    ["snoop", "m-tcp", "split-tcp", "delayed-dupacks", "ll-freeze"];

/// The longest handoff time of figure 8, in seconds.
pub(super) const LONGEST: u32 = 10;

/// Everything that is counted, in the order in which it is told.
pub(super) fn all(published: &Published, comparison: &Comparison) -> Vec<Criterion> {
    let mut all = vec![timeouts(comparison)];
    all.extend(throughput(comparison));
    all.extend(orders(comparison));
    all.extend(table_1(published, comparison));
    all.push(values(comparison));
    all
}

/// The values of Table II and figure 7.
fn values(comparison: &Comparison) -> Criterion {
    let drawn = [FIGURE_7[0], FIGURE_7[1], TABLE_2];
    let printed = comparison.printed().filter(|c| drawn.contains(&c.cell.label.table.as_str()));
    let near = printed.filter_map(|cell| cell.is_within(RATIO_TOLERANCE));
    let name = "values of Table II and figure 7 within 35 % of the printed";
    Criterion::told(name, near, 30)
}

/// EXP-M1.
fn timeouts(comparison: &Comparison) -> Criterion {
    let of = |row: &str, scheme: &str| comparison.mean([TABLE_2, row, TIMEOUTS, scheme]);
    let kept = TABLE_2_TIMES
        .iter()
        .filter_map(|row| Some(of(row, "ll-freeze")? <= of(row, "congestion-coherence")?));
    let name = "handoff times with no more timeouts than with congestion coherence, Table II";
    Criterion::all(name, kept, 5)
}

/// What the proposed method's throughput is above snoop's, in kbit/s.
pub(super) fn difference(comparison: &Comparison, seconds: u32) -> Option<f64> {
    let row = format!("{seconds} s");
    let of = |scheme: &str| comparison.mean([FIGURE_8, &row, THROUGHPUT, scheme]);
    Some(of("ll-freeze")? - of("snoop")?)
}

/// EXP-M3. Snoop's sender waits for its timer, whose expiries come at 1, 3 and 7 s: the difference
/// grows in steps, so that it is doublings of the handoff time that have to show it.
fn throughput(comparison: &Comparison) -> [Criterion; 3] {
    let difference = |seconds| difference(comparison, seconds);
    let above = (1..=LONGEST).filter_map(|t| Some(difference(t)? > 0.0));
    let doubled = (1..=LONGEST / 2).filter_map(|t| Some(difference(2 * t)? > difference(t)?));
    let steps = (1..LONGEST).filter_map(|t| Some(difference(t + 1)? > difference(t)?));
    [
        Criterion::all("handoff times with more throughput than with snoop, figure 8", above, 10),
        Criterion::count(
            "doublings of the handoff time with which the difference grows, figure 8",
            doubled,
            5,
            Some(4),
        ),
        Criterion::told("steps of 1 s with which the difference grows, figure 8", steps, 9),
    ]
}

/// EXP-M2: the order of figure 7's schemes, two at a time.
fn orders(comparison: &Comparison) -> Vec<Criterion> {
    let pairs = |row: &str, column: &str| -> Vec<bool> {
        let here = |pair: &&Pair| {
            let label = &pair.first;
            FIGURE_7.contains(&label.table.as_str()) && label.row == row && label.column == column
        };
        let pairs = comparison.pairs.iter().filter(here);
        pairs.map(|pair| pair.order == Order::Right).collect()
    };
    let mut all = Vec::new();
    for (row, name) in [(MINIMUM, "minima"), (RECOVERY, "recovery times")] {
        for (column, _) in BINS {
            let name = format!("pairs of schemes ordered as figure 7's {name}, means {column}");
            all.push(Criterion::told(&name, pairs(row, column), 10));
        }
    }
    let (column, _) = BINS[1];
    let of = |scheme: &str| comparison.mean([FIGURE_7[0], MINIMUM, column, scheme]);
    let others = FIGURE_7_SCHEMES.iter().filter(|scheme| **scheme != "ll-freeze");
    let deeper = others.filter_map(|scheme| Some(of(scheme)? < of("ll-freeze")?));
    let name = "schemes of figure 7 that fall deeper than the proposed one, means in 10 s";
    all.push(Criterion::told(name, deeper, 4));
    all
}

/// Table I.
fn table_1(published: &Published, comparison: &Comparison) -> Vec<Criterion> {
    let kept = Scheme::over_one_link().filter_map(|scheme| {
        let answer = answers::answer(comparison, SEMANTICS, scheme)?;
        Some(answer.yes == scheme.traits().end_to_end)
    });
    let name = "schemes that keep or break the end-to-end meaning as they are built to";
    let whole = Scheme::over_one_link().count();
    let mut all = vec![Criterion::all(name, kept, whole)];
    for question in QUESTIONS {
        let asked = |scheme: &Scheme| answers::printed(published, question, *scheme).is_some();
        let whole = Scheme::ALL.iter().filter(|scheme| asked(scheme)).count();
        let same = answers::agreements(published, comparison, question);
        let name = format!("answers of Table I that ours agree with: {question}");
        all.push(Criterion::told(&name, same, whole));
    }
    all
}
