//! The report: what was published, what the model says and what we get.

use lasthop_units::Duration;

use super::content::Content;
use super::figures;
use crate::analysis::obtcp::checks::Check;
use crate::analysis::obtcp::{Hop, Hops, LossProbability};
use crate::report::chart::{Chart, Range, RangeSeries, Ranges};
use crate::report::{Block, Entry, Figure, Report, Section, Table};
use crate::reproduce::ReproduceError;
use crate::reproduce::page::{self, inconsistencies, said, setup};
use crate::reproduce::prose::Prose;

pub(super) fn report(content: &Content<'_>) -> Result<Report, ReproduceError> {
    let (prose, published) = (content.prose, content.published);
    let marks = vec![page::marks(prose, content.comparison)];
    let sections = vec![
        page::result(prose, content.criteria, marks, content.request, super::ID),
        figures::maxima(content),
        figures::section_6(content),
        figures::round_trips(content),
        figures::model(content),
        figures::tables(content),
        prose.section("explained").noted(),
        equations(prose, content.checks),
        validity(prose),
        setup(prose, published),
        said(prose, published),
        inconsistencies(prose, published),
        prose.section("method").noted(),
    ];
    page::report(prose, published, &[], sections)
}

/// Figures 7 to 13, and the values that the equations are held against.
fn equations(prose: &Prose, checks: &[Check]) -> Section {
    let words = prose.section("equations");
    let mut rows: Vec<(u8, usize, usize)> = Vec::new();
    for check in checks {
        for equation in &check.equations {
            let exact = usize::from(check.is_exact());
            match rows.iter_mut().find(|(e, _, _)| e == equation) {
                Some((_, n, of)) => (*n, *of) = (*n + exact, *of + 1),
                None => rows.push((*equation, exact, 1)),
            }
        }
    }
    rows.sort_unstable();
    let row = |(equation, exact, of): &(u8, usize, usize)| {
        vec![Entry::text(format!("({equation})")), Entry::text(format!("{exact} of {of}"))]
    };
    let table = Table {
        caption: words.text("table"),
        head: ["equation", "exact"].map(str::to_owned).to_vec(),
        rows: rows.iter().map(row).collect(),
    };
    let figure = Figure { caption: words.text("figure"), charts: curves() };
    words.section(vec![Block::Figure(figure), Block::Table(table)])
}

const DELAYS: [u64; 7] = [5, 10, 15, 20, 25, 30, 35];
const LOSSES: [f64; 7] = [0.0, 0.05, 0.10, 0.15, 0.20, 0.25, 0.30];

fn curves() -> Vec<Chart> {
    let gain = |hops: Hops| Some(hops.recovery_gain().as_secs_f64() * 1e3);
    let ratio = |hops: Hops| hops.throughput_ratio().ok();
    let by_delay = |of: &dyn Fn(u64) -> Option<f64>| DELAYS.map(of);
    let by_loss = |of: &dyn Fn(f64) -> Option<f64>| LOSSES.map(of);
    let delays = DELAYS.map(|d| format!("{d}"));
    let losses = LOSSES.map(|p| format!("{p}"));
    vec![
        curve(
            "figure 7",
            "d2 in ms",
            "gain in ms",
            &delays,
            by_delay(&|d2| gain(hops(20, 0.15, d2, 0.05)?)),
        ),
        curve(
            "figure 8",
            "p1",
            "gain in ms",
            &losses,
            by_loss(&|p1| gain(hops(20, p1, 20, 0.05)?)),
        ),
        curve(
            "figure 9",
            "d1 in ms",
            "gain in ms",
            &delays,
            by_delay(&|d1| gain(hops(d1, 0.0, 20, 0.1)?)),
        ),
        curve(
            "figure 10",
            "p2",
            "gain in ms",
            &losses,
            by_loss(&|p2| gain(hops(20, 0.0, 20, p2)?)),
        ),
        curve(
            "figure 11",
            "d2 in ms",
            "gain in ms",
            &delays,
            by_delay(&|d2| gain(hops(20, 0.0, d2, 0.1)?)),
        ),
        curve(
            "figure 12",
            "d1 in ms",
            "ratio",
            &delays,
            by_delay(&|d1| ratio(hops(d1, 0.1, 10, 0.1)?)),
        ),
        curve("figure 13", "p1", "ratio", &losses, by_loss(&|p1| ratio(hops(10, p1, 10, 0.1)?))),
    ]
}

fn hops(d1: u64, p1: f64, d2: u64, p2: f64) -> Option<Hops> {
    let hop =
        |d: u64, p: f64| Some(Hop::new(Duration::from_millis(d), LossProbability::new(p).ok()?));
    Some(Hops::new(hop(d1, p1)?, hop(d2, p2)?))
}

fn curve(title: &str, x: &str, y: &str, at: &[String; 7], values: [Option<f64>; 7]) -> Chart {
    let range = |value: f64| Range { mean: value, interval: None };
    Chart::Ranges(Ranges {
        title: title.to_owned(),
        x_label: x.to_owned(),
        y_label: y.to_owned(),
        categories: at.to_vec(),
        series: vec![RangeSeries {
            name: "by the equations".to_owned(),
            colour: 2,
            hollow: true,
            ranges: values.iter().map(|value| value.map(range)).collect(),
        }],
    })
}

fn validity(prose: &Prose) -> Section {
    let words = prose.section("validity");
    words.section(vec![words.paragraph("lead"), Block::Notes(words.notes())])
}
