//! What the reports of all papers have in common.

use super::compare::{Comparison, Criterion, Mark};
use super::gain::Gain;
use super::print;
use super::prose::{Prose, Values};
use super::run::Measured;
use super::{Kind, Parameter, ReproduceError, Reproduction, Request};
use crate::published::{Inconsistency, Published};
use crate::report::chart::RangeSeries;
use crate::report::{Block, Entry, Note, Report, Section, Tone, Verdict};
use crate::stats::Estimate;

/// What a reproduction came to, and what its report is made of.
pub(super) struct Content<'a, T> {
    pub(super) prose: &'a Prose,
    pub(super) published: &'a Published,
    pub(super) request: &'a Request,
    pub(super) comparison: Comparison,
    pub(super) criteria: Vec<Criterion>,
    /// What else the report of this paper shows.
    pub(super) own: T,
}

impl<T> Content<'_, T> {
    /// The reproduction, whose report has the result with `more` blocks, `sections`, and what the
    /// paper says. `told` fills the summary. Sections without a block are left out.
    ///
    /// # Errors
    /// If the report's words are not those that were asked for.
    pub(super) fn reproduction(
        self,
        told: Values<'_>,
        more: Vec<Block>,
        sections: Vec<Section>,
    ) -> Result<Reproduction, ReproduceError> {
        let Self { prose, published, request, comparison, criteria, .. } = self;
        let paper = &published.paper;
        let after = [
            said(prose, published),
            inconsistencies(prose, published),
            prose.section("method").noted(),
        ];
        let first = result(prose, &criteria, more, request, &paper.id);
        let mut sections: Vec<Section> = [first].into_iter().chain(sections).chain(after).collect();
        sections.retain(|section| !section.blocks.is_empty());
        let summary = prose.summary(told);
        prose.check()?;
        let report = Report {
            title: format!("{}, reproduced", paper.title),
            subtitle: format!("{}, {}", listed(&paper.authors), paper.year),
            summary,
            sections,
        };
        Ok(Reproduction { comparison, criteria, report })
    }
}

/// Names in a row, such as `A, B and C`.
fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [name] => name.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// What had to be right and how much of it is.
pub(super) fn verdicts(criteria: &[Criterion]) -> Block {
    Block::Verdicts(criteria.iter().map(verdict).collect())
}

/// What a criterion counted.
fn verdict(criterion: &Criterion) -> Verdict {
    let tone = match criterion.verdict() {
        Some(true) => Tone::Good,
        Some(false) => Tone::Bad,
        None => Tone::Neutral,
    };
    Verdict {
        name: criterion.name.clone(),
        count: print::count(criterion),
        needed: print::needed(criterion),
        tone,
    }
}

/// How values that are printed without intervals are met.
pub(super) fn marks(prose: &Prose, comparison: &Comparison) -> Block {
    let printed: Vec<_> = comparison.printed().collect();
    let marked = |mark: Mark| printed.iter().filter(|cell| cell.mark == mark).count();
    Block::Paragraph(prose.section("result").filled(
        "marks",
        &[
            ("values", &printed.len()),
            ("near", &marked(Mark::Near)),
            ("ratio", &marked(Mark::Ratio)),
            ("order", &marked(Mark::Order)),
        ],
    ))
}

/// The first section: what had to be right, whatever else is to be said of the result, and how to
/// get it again.
fn result(
    prose: &Prose,
    criteria: &[Criterion],
    more: Vec<Block>,
    request: &Request,
    paper: &str,
) -> Section {
    let mut blocks = vec![verdicts(criteria)];
    blocks.extend(more);
    let words = prose.common("result");
    let told = words.filled(
        "again",
        &[("version", &request.version), ("runs", &request.runs), ("seed", &request.seed)],
    );
    blocks.extend([Block::Paragraph(told), Block::Code(request.command(paper))]);
    words.section(blocks)
}

/// The set-up: what was assumed, and what the paper states.
pub(super) fn setup(prose: &Prose, published: &Published) -> Section {
    let words = prose.common("setup");
    let blocks = vec![
        words.paragraph("assumed"),
        Block::Parameters(prose.setup().parameters),
        words.paragraph("stated"),
        stated(published),
    ];
    words.section(blocks)
}

/// What the paper says of its set-up.
pub(super) fn stated(published: &Published) -> Block {
    let stated = published.parameters.iter().map(|p| Parameter {
        name: p.name.clone(),
        value: p.value.clone(),
        kind: Kind::Stated,
        reason: p.note.as_ref().map_or_else(|| p.source.clone(), |n| format!("{}; {n}", p.source)),
    });
    Block::Parameters(stated.collect())
}

/// What the paper says without numbers.
fn said(prose: &Prose, published: &Published) -> Section {
    let words = prose.common("said");
    let sourced = |text: &str, source: &str| format!("{text} ({source})");
    let claims = published
        .claims
        .iter()
        .map(|c| Note { name: c.id.replace('-', " "), text: sourced(&c.says, &c.source) });
    let drawn = published.untabulated.iter().map(|u| Note {
        name: words.filled("drawn", &[("name", &u.id.replace('-', " "))]),
        text: sourced(&u.what, &u.source),
    });
    let notes = claims.chain(drawn).collect();
    words.section(vec![Block::Notes(notes)])
}

/// Where the paper contradicts itself or is silent.
fn inconsistencies(prose: &Prose, published: &Published) -> Section {
    let note = |i: &Inconsistency| Note { name: i.id.clone(), text: i.text.clone() };
    let notes = published.inconsistencies.iter().map(note).collect();
    prose.common("inconsistencies").section(vec![Block::Notes(notes)])
}

/// A mean with its interval; a dash where there is none.
pub(super) fn value(estimate: Option<Estimate>) -> Entry {
    estimate.map_or_else(Entry::dash, |e| rounded(e, print::digits(e.mean)))
}

/// A mean with its interval, to so many digits after the point.
pub(super) fn rounded(estimate: Estimate, digits: usize) -> Entry {
    Entry::with_interval(estimate.mean, estimate.interval(), digits)
}

/// A cell's mean with its interval, and how many of its runs failed.
pub(super) fn measured(cell: &Measured) -> Entry {
    with_failures(value(cell.ours.estimate()), cell)
}

/// Adds to what a cell gave how many of its runs failed.
pub(super) fn with_failures(mut entry: Entry, cell: &Measured) -> Entry {
    if cell.ours.failures() > 0 {
        let space = if entry.small.is_empty() { "" } else { ", " };
        entry.small += &format!("{space}{} of {} failed", cell.ours.failures(), cell.ours.runs());
    }
    entry
}

/// What was measured in a table, row, column and scheme; a dash if nothing was.
pub(super) fn at(comparison: &Comparison, place: [&str; 4]) -> Entry {
    comparison.at(place).map_or_else(Entry::dash, measured)
}

/// A gain in per cent, to so many digits after the point; a dash if it is not known.
pub(super) fn percent(gain: Option<Gain>, digits: usize) -> Entry {
    gain.map_or_else(Entry::dash, |g| Entry::with_interval(g.percent, g.interval, digits))
}

/// The head of a table: what its rows are, and its other columns.
pub(super) fn head<T: Into<String>>(
    rows: &str,
    columns: impl IntoIterator<Item = T>,
) -> Vec<String> {
    std::iter::once(rows.to_owned()).chain(columns.into_iter().map(Into::into)).collect()
}

/// A row of a table for each of `rows`, with an entry for each of `columns`.
pub(super) fn grid<C>(
    rows: &[&str],
    columns: &[C],
    entry: impl Fn(&str, &C) -> Entry,
) -> Vec<Vec<Entry>> {
    let row = |row: &&str| Entry::row(*row, columns.iter().map(|column| entry(row, column)));
    rows.iter().map(row).collect()
}

/// What a scheme gave in the rows of a table and column.
pub(super) fn series(
    comparison: &Comparison,
    [table, column, scheme]: [&str; 3],
    rows: &[&str],
    colour: usize,
) -> RangeSeries {
    let at = |row: &&str| comparison.at([table, row, column, scheme])?.ours.estimate();
    RangeSeries::new(scheme, colour, rows.iter().map(at))
}

/// The colour of a scheme among these; the first where it has none.
pub(super) fn colour(colours: &[(&str, usize)], scheme: &str) -> usize {
    colours.iter().find(|(name, _)| *name == scheme).map_or(0, |(_, colour)| *colour)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authors_are_listed_as_people_list_them() {
        let names = ["A", "B", "C"].map(str::to_owned);
        assert_eq!(listed(&names), "A, B and C");
        assert_eq!(listed(&names[..2]), "A and B");
        assert_eq!(listed(&names[..1]), "A");
        assert_eq!(listed(&[]), "");
    }
}
