//! The report: what was published, what the model says and what we get.

use lasthop_units::Duration;

use super::{Content, figures};
use crate::analysis::obtcp::{Hop, Hops, LossProbability};
use crate::report::chart::{Chart, RangeSeries};
use crate::report::{Block, Entry, Section, Table};
use crate::reproduce::equations::Check;
use crate::reproduce::page::{self, setup};
use crate::reproduce::prose::Prose;
use crate::reproduce::{ReproduceError, Reproduction};

pub(super) fn reproduction(content: Content<'_>) -> Result<Reproduction, ReproduceError> {
    let prose = content.prose;
    let marks = page::marks(prose, &content.comparison);
    let sections = vec![
        figures::maxima(&content),
        figures::section_6(&content),
        figures::round_trips(&content),
        figures::model(&content),
        figures::tables(&content),
        prose.section("explained").noted(),
        equations(prose, &content.own.checks),
        validity(prose),
        setup(prose, content.published),
    ];
    content.reproduction(&[], vec![marks], sections)
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
    let table =
        Table::new(words.text("table"), ["equation", "exact"], rows.iter().map(row).collect());
    let figure = Block::figure(words.text("figure"), curves());
    words.section(figure.into_iter().chain([table.into()]))
}

const DELAYS: [u64; 7] = [5, 10, 15, 20, 25, 30, 35];
const LOSSES: [f64; 7] = [0.0, 0.05, 0.10, 0.15, 0.20, 0.25, 0.30];

fn curves() -> Vec<Chart> {
    let gain = |hops: Option<Hops>| Some(hops?.recovery_gain().as_secs_f64() * 1e3);
    let ratio = |hops: Option<Hops>| hops?.throughput_ratio().ok();
    let by_delay = |figure, x, y, of: &dyn Fn(u64) -> Option<f64>| {
        curve(figure, [x, y], DELAYS.map(|d| (d.to_string(), of(d))))
    };
    let by_loss = |figure, x, y, of: &dyn Fn(f64) -> Option<f64>| {
        curve(figure, [x, y], LOSSES.map(|p| (p.to_string(), of(p))))
    };
    let (ms, times) = ("gain in ms", "ratio");
    vec![
        by_delay(7, "d2 in ms", ms, &|d2| gain(hops(20, 0.15, d2, 0.05))),
        by_loss(8, "p1", ms, &|p1| gain(hops(20, p1, 20, 0.05))),
        by_delay(9, "d1 in ms", ms, &|d1| gain(hops(d1, 0.0, 20, 0.1))),
        by_loss(10, "p2", ms, &|p2| gain(hops(20, 0.0, 20, p2))),
        by_delay(11, "d2 in ms", ms, &|d2| gain(hops(20, 0.0, d2, 0.1))),
        by_delay(12, "d1 in ms", times, &|d1| ratio(hops(d1, 0.1, 10, 0.1))),
        by_loss(13, "p1", times, &|p1| ratio(hops(10, p1, 10, 0.1))),
    ]
}

fn hops(d1: u64, p1: f64, d2: u64, p2: f64) -> Option<Hops> {
    let hop =
        |d: u64, p: f64| Some(Hop::new(Duration::from_millis(d), LossProbability::new(p).ok()?));
    Some(Hops::new(hop(d1, p1)?, hop(d2, p2)?))
}

fn curve(figure: u8, labels: [&str; 2], values: [(String, Option<f64>); 7]) -> Chart {
    let (places, values): (Vec<String>, Vec<Option<f64>>) = values.into_iter().unzip();
    let series = RangeSeries::new("by the equations", 2, values).hollow();
    Chart::ranges(format!("figure {figure}"), labels, places, [series])
}

fn validity(prose: &Prose) -> Section {
    let words = prose.section("validity");
    words.section([words.paragraph("lead"), Block::Notes(words.notes())])
}
