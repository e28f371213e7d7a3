//! A reproduction as text: tables for people.

use std::fmt::Write;

use super::compare::{Compared, Comparison, Criterion, Order};
use crate::stats::Estimate;

/// The word for an order.
pub fn order_name(order: Order) -> &'static str {
    match order {
        Order::Right => "right",
        Order::Undecided => "undecided",
        Order::Wrong => "wrong",
    }
}

/// How many digits after the point a value is told with: an index needs more than a time.
pub fn digits(value: f64) -> usize {
    if value.abs() < 2.0 { 3 } else { 1 }
}

/// A mean with its interval, such as `21.7 [19.3, 24.1]`, or a dash.
pub fn estimate(estimate: Option<Estimate>) -> String {
    match estimate {
        None => "-".to_owned(),
        Some(e) => {
            let n = digits(e.mean);
            match e.interval() {
                None => format!("{:.n$}", e.mean),
                Some(i) => format!("{:.n$} [{:.n$}, {:.n$}]", e.mean, i.lo, i.hi),
            }
        }
    }
}

/// All cells as tables, one for each table of the experiment.
pub fn tables(comparison: &Comparison) -> String {
    let fields = |compared: &Compared| {
        let cell = &compared.cell;
        [
            cell.label.row.clone(),
            cell.label.column.clone(),
            cell.label.scheme.clone(),
            estimate(cell.published),
            estimate(cell.ours.estimate()),
            cell.ours.runs().to_string(),
            cell.ours.failures().to_string(),
            compared.mark.name().to_owned(),
        ]
    };
    let rows: Vec<_> = comparison.cells.iter().map(|c| (c, fields(c))).collect();
    // Columns are as wide as in the widest of all tables, so that tables line up.
    let mut widths = HEAD.map(str::len);
    for (_, row) in &rows {
        for (width, field) in widths.iter_mut().zip(row) {
            *width = field.chars().count().max(*width);
        }
    }
    let mut out = String::new();
    let mut table = "";
    for (compared, row) in &rows {
        let cell = &compared.cell;
        if cell.label.table != table {
            let space = if table.is_empty() { "" } else { "\n" };
            table = &cell.label.table;
            let _ = writeln!(out, "{space}{table}, in {}", cell.unit);
            line_up(&mut out, HEAD, widths);
        }
        line_up(&mut out, row.each_ref().map(String::as_str), widths);
    }
    out
}

const HEAD: [&str; 8] = ["row", "column", "scheme", "published", "ours", "runs", "failed", "mark"];

/// One line of a table: counts to the right, all else to the left.
fn line_up(out: &mut String, fields: [&str; 8], widths: [usize; 8]) {
    let mut text = String::new();
    for ((field, width), name) in fields.into_iter().zip(widths).zip(HEAD) {
        let _ = match name {
            "runs" | "failed" => write!(text, "{field:>width$}  "),
            _ => write!(text, "{field:<width$}  "),
        };
    }
    let _ = writeln!(out, "{}", text.trim_end());
}

/// What had to be right, one line each.
pub fn criteria(criteria: &[Criterion]) -> String {
    let widest = |words: &dyn Fn(&Criterion) -> String| {
        criteria.iter().map(|c| words(c).chars().count()).max().unwrap_or(0)
    };
    let (names, counts) = (widest(&|c| c.name.clone()), widest(&count));
    let mut out = String::new();
    for c in criteria {
        let line = format!("{:<names$}  {:<counts$}  {}", c.name, count(c), needed(c));
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

/// What agrees with the paper and what does not, by the names of criteria and their counts, in one
/// line. What was not looked at, or too little to say, is left out.
pub fn verdict(criteria: &[Criterion]) -> String {
    let told = |agrees: bool| {
        let names = names(criteria, agrees);
        if names.is_empty() { "nothing that was looked at".to_owned() } else { names.join("; ") }
    };
    format!("Agrees: {}. Does not: {}.", told(true), told(false))
}

/// As [`verdict`], with only a number of those that agree.
pub fn short_verdict(criteria: &[Criterion]) -> String {
    let (good, bad) = (names(criteria, true).len(), names(criteria, false));
    if bad.is_empty() {
        return format!("Criteria: all {good} agree.");
    }
    format!("Criteria: {good} of {} agree; not: {}.", good + bad.len(), bad.join("; "))
}

/// The criteria that agree with the paper, or those that do not, with their counts.
fn names(criteria: &[Criterion], agree: bool) -> Vec<String> {
    let those = criteria.iter().filter(|c| c.agrees() == Some(agree));
    those.map(|c| format!("{} ({})", c.name, count(c))).collect()
}

/// The count of a criterion, such as `31 of 33`.
pub fn count(criterion: &Criterion) -> String {
    format!("{} of {}", criterion.met, criterion.of)
}

/// What a criterion needs and whether it is met, in words; empty where nothing is needed.
pub fn needed(criterion: &Criterion) -> String {
    let Some(needed) = criterion.needed else {
        return String::new();
    };
    let verdict = match criterion.verdict() {
        Some(true) => "met",
        Some(false) => "not met",
        None => "too few cells were run to say",
    };
    format!("at least {needed} of {}: {verdict}", criterion.whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::{Label, Measured};
    use crate::stats::Sample;

    fn comparison() -> Comparison {
        let ours: Sample = [21.0, 23.0].into_iter().collect();
        let label = Label {
            table: "table1".to_owned(),
            row: "0 s".to_owned(),
            column: "5 %".to_owned(),
            scheme: "tcp".to_owned(),
        };
        Comparison::new(vec![Measured {
            label,
            unit: "s",
            published: None,
            compared: true,
            ours,
            reasons: Vec::new(),
        }])
    }

    #[test]
    fn tables_and_criteria_are_readable() {
        let mut comparison = comparison();
        let mut other = comparison.cells[0].clone();
        other.cell.label.table = "table2".to_owned();
        other.cell.label.scheme = "congestion-coherence".to_owned();
        comparison.cells.push(other);
        let text = tables(&comparison);
        assert!(text.contains("0 s  5 %") && text.contains("22.0 ["), "{text}");
        let marks: Vec<_> = text.lines().filter_map(|l| l.find("unpublished")).collect();
        assert!(marks.len() == 2 && marks[0] == marks[1], "{text}");
        let criterion = Criterion::count("order", [true, false], 2, Some(2));
        assert!(criteria(&[criterion]).ends_with("1 of 2  at least 2 of 2: not met\n"));
    }

    #[test]
    fn one_line_tells_what_agrees_and_what_does_not() {
        let all = [
            Criterion::count("order", [true, true, false], 3, Some(2)),
            Criterion::count("ratios, strictly", [true, false], 2, None),
            Criterion::count("rates", [true, true], 2, None),
            Criterion::count("windows", [false], 1, Some(1)),
            Criterion::count("too few", [true], 9, Some(5)),
            Criterion::count("not run", [], 9, None),
        ];
        let told = "Agrees: order (2 of 3); rates (2 of 2). \
                    Does not: ratios, strictly (1 of 2); windows (0 of 1).";
        assert_eq!(verdict(&all), told);
        let short = "Criteria: 2 of 4 agree; not: ratios, strictly (1 of 2); windows (0 of 1).";
        assert_eq!(short_verdict(&all), short);
        assert_eq!(short_verdict(&all[..1]), "Criteria: all 1 agree.");
        assert!(verdict(&all[..1]).ends_with("Does not: nothing that was looked at."));
    }
}
