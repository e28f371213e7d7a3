//! A reproduction for programs: one JSON object a line, each with its kind and its paper. Values are
//! null where nothing is published or measured.

use serde::Serialize;
use serde_json::Error;

use super::cell::Label;
use super::compare::{Compared, Comparison, Criterion, Pair};
use super::gain::Gain;
use super::papers::Paper;
use super::print::{order_name, short_verdict, verdict};
use super::study::Reproduction;
use crate::stats::{Estimate, Interval};

/// An object.
#[derive(Serialize)]
struct Line<'a, T> {
    kind: &'static str,
    paper: &'a str,
    #[serde(flatten)]
    content: T,
}

/// A cell beside the published one.
#[derive(Serialize)]
struct CellLine<'a> {
    #[serde(flatten)]
    place: &'a Label,
    unit: &'a str,
    published: Option<f64>,
    published_lo: Option<f64>,
    published_hi: Option<f64>,
    ours: Option<f64>,
    ours_lo: Option<f64>,
    ours_hi: Option<f64>,
    /// All runs, failed ones included.
    runs: u32,
    failures: u32,
    mark: &'static str,
    /// Whether the order among the schemes in the same row and column is right.
    order: Option<&'static str>,
    /// Whether all ratios to them are close.
    ratio: Option<bool>,
}

/// Two schemes in the same row and column: the ratio of the first to the second.
#[derive(Serialize)]
struct PairLine<'a> {
    #[serde(flatten)]
    place: &'a Label,
    other: &'a str,
    published: f64,
    published_lo: Option<f64>,
    published_hi: Option<f64>,
    ours: Option<f64>,
    ours_lo: Option<f64>,
    ours_hi: Option<f64>,
    order: &'static str,
    close: bool,
}

/// What a goodput is above that of the scheme that the paper compares with, in per cent (MET-2).
#[derive(Serialize)]
struct GainLine<'a> {
    #[serde(flatten)]
    place: &'a Label,
    other: &'a str,
    percent: f64,
    lo: Option<f64>,
    hi: Option<f64>,
}

#[derive(Serialize)]
struct CriterionLine<'a> {
    #[serde(flatten)]
    criterion: &'a Criterion,
    /// Whether it is met, where anything is needed and enough was run.
    verdict: Option<bool>,
    agrees: Option<bool>,
}

#[derive(Serialize)]
struct VerdictLine {
    /// Of how many criteria it is known whether they are met, and how many are.
    judged: usize,
    met: usize,
    text: String,
    /// The same, with only a number of those that agree.
    short: String,
}

/// Everything of a paper: its cells, pairs of schemes, gains, criteria, and what they come to.
///
/// # Errors
/// None that this data can cause; serialising is fallible by its type.
pub fn all(paper: &Paper, reproduction: &Reproduction) -> Result<String, Error> {
    let comparison = &reproduction.comparison;
    let mut out = String::new();
    for compared in &comparison.cells {
        add(&mut out, "cell", paper.id, cell(compared))?;
    }
    for pair in &comparison.pairs {
        add(&mut out, "pair", paper.id, pair_line(pair))?;
    }
    for gain in paper.study.over.into_iter().flat_map(|other| gains(comparison, other)) {
        add(&mut out, "gain", paper.id, gain)?;
    }
    Ok(out + &criteria(paper.id, &reproduction.criteria)?)
}

/// The criteria of a paper or of the league, and what they come to.
///
/// # Errors
/// None that this data can cause; serialising is fallible by its type.
pub fn criteria(paper: &str, criteria: &[Criterion]) -> Result<String, Error> {
    let mut out = String::new();
    for criterion in criteria {
        let (verdict, agrees) = (criterion.verdict(), criterion.agrees());
        add(&mut out, "criterion", paper, CriterionLine { criterion, verdict, agrees })?;
    }
    let judged = || criteria.iter().filter_map(Criterion::verdict);
    let line = VerdictLine {
        judged: judged().count(),
        met: judged().filter(|met| *met).count(),
        text: verdict(criteria),
        short: short_verdict(criteria),
    };
    add(&mut out, "verdict", paper, line)?;
    Ok(out)
}

/// Adds an object of this kind.
pub(super) fn add<T: Serialize>(
    out: &mut String,
    kind: &'static str,
    paper: &str,
    content: T,
) -> Result<(), Error> {
    out.push_str(&serde_json::to_string(&Line { kind, paper, content })?);
    out.push('\n');
    Ok(())
}

pub(super) fn ends(interval: Option<Interval>) -> (Option<f64>, Option<f64>) {
    interval.map(|i| (i.lo, i.hi)).unzip()
}

fn cell(compared: &Compared) -> CellLine<'_> {
    let cell = &compared.cell;
    let interval = |e: Option<Estimate>| ends(e.and_then(|e| e.interval()));
    let ours = cell.ours.estimate();
    let (published_lo, published_hi) = interval(cell.published);
    let (ours_lo, ours_hi) = interval(ours);
    CellLine {
        place: &cell.label,
        unit: cell.unit,
        published: cell.published.map(|e| e.mean),
        published_lo,
        published_hi,
        ours: ours.map(|e| e.mean),
        ours_lo,
        ours_hi,
        runs: cell.ours.runs(),
        failures: cell.ours.failures(),
        mark: compared.mark.name(),
        order: compared.order.map(order_name),
        ratio: compared.ratio,
    }
}

fn pair_line(pair: &Pair) -> PairLine<'_> {
    let (published_lo, published_hi) = ends(pair.published.interval);
    let (ours_lo, ours_hi) = ends(pair.ours.and_then(|ratio| ratio.interval));
    PairLine {
        place: &pair.first,
        other: &pair.second.scheme,
        published: pair.published.value,
        published_lo,
        published_hi,
        ours: pair.ours.map(|ratio| ratio.value),
        ours_lo,
        ours_hi,
        order: order_name(pair.order),
        close: pair.is_close(),
    }
}

/// What all others gain on one scheme, wherever a rate of both is known.
fn gains<'a>(
    comparison: &'a Comparison,
    other: &'a str,
) -> impl Iterator<Item = GainLine<'a>> + 'a {
    let rates = comparison.measured().filter(|m| m.unit.ends_with("/s"));
    rates.filter(move |m| m.label.scheme != other).filter_map(move |m| {
        let [table, row, column, scheme] = m.label.words();
        let Gain { percent, interval } = comparison.gain([table, row, column], scheme, other)?;
        let (lo, hi) = ends(interval);
        Some(GainLine { place: &m.label, other, percent, lo, hi })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::report::Report;
    use crate::reproduce::{Measured, find};
    use crate::stats::Sample;

    fn measured(scheme: &str, published: Option<f64>, ours: [f64; 2]) -> Measured {
        let [table, row, column] = ["figure14", "5 ms", "goodput"].map(str::to_owned);
        let printed = |mean| Estimate::of_printed(mean, Interval { lo: mean, hi: mean }, 40);
        Measured {
            label: Label { table, row, column, scheme: scheme.to_owned() },
            unit: "kB/s",
            published: published.map(printed),
            compared: true,
            ours: ours.into_iter().collect::<Sample>(),
            reasons: Vec::new(),
        }
    }

    #[test]
    fn every_line_has_its_kind_and_paper_and_null_where_nothing_is_known() {
        let cells =
            vec![measured("snoop", Some(10.0), [9.0, 11.0]), measured("obtcp", None, [14.0, 16.0])];
        let criteria = vec![
            Criterion::count("order", [true, false], 2, Some(2)),
            Criterion::count("told", [true], 1, None),
        ];
        let report = Report {
            title: String::new(),
            subtitle: String::new(),
            summary: String::new(),
            sections: Vec::new(),
        };
        let comparison = Comparison::new(cells);
        let reproduction = Reproduction { comparison, criteria, report };
        let text = all(find("obtcp-2010").unwrap(), &reproduction).unwrap();
        let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        let kinds: Vec<&str> = lines.iter().map(|l| l["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["cell", "cell", "gain", "criterion", "criterion", "verdict"]);
        assert!(lines.iter().all(|line| line["paper"] == "obtcp-2010"));
        assert_eq!((&lines[0]["published"], &lines[0]["ours"]), (&10.0.into(), &10.0.into()));
        assert_eq!(
            (&lines[0]["mark"], &lines[1]["mark"]),
            (&"within".into(), &"unpublished".into())
        );
        assert!(lines[1]["published"].is_null() && lines[1]["published_hi"].is_null());
        assert_eq!((&lines[2]["scheme"], &lines[2]["other"]), (&"obtcp".into(), &"snoop".into()));
        assert!((lines[2]["percent"].as_f64().unwrap() - 50.0).abs() < 1e-9);
        assert_eq!(
            (&lines[3]["criterion"], &lines[3]["verdict"]),
            (&"order".into(), &false.into())
        );
        assert!(lines[4]["verdict"].is_null() && lines[4]["agrees"] == true);
        assert_eq!((&lines[5]["judged"], &lines[5]["met"]), (&1.into(), &0.into()));
        assert_eq!(lines[5]["text"], "Agrees: told (1 of 1). Does not: order (1 of 2).");
        assert_eq!(lines[5]["short"], "Criteria: 1 of 2 agree; not: order (1 of 2).");
    }

    #[test]
    fn pairs_of_printed_schemes_are_told_as_ratios() {
        let cells = vec![
            measured("snoop", Some(10.0), [9.0, 11.0]),
            measured("obtcp", Some(20.0), [10.0, 30.0]),
        ];
        let comparison = Comparison::new(cells);
        let pair = serde_json::to_value(pair_line(&comparison.pairs[0])).unwrap();
        assert_eq!((&pair["published"], &pair["ours"]), (&0.5.into(), &0.5.into()));
        assert_eq!((&pair["order"], &pair["close"]), (&"right".into(), &true.into()));
    }
}
