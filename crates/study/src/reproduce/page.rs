//! What the reports of all papers have in common.

use super::compare::{Comparison, Criterion, Mark};
use super::print;
use super::prose::{Prose, Values};
use super::run::Measured;
use super::{Kind, Parameter, ReproduceError, Request};
use crate::published::{Inconsistency, Published};
use crate::report::{Block, Entry, Note, Report, Section, Tone, Verdict};
use crate::stats::Estimate;

/// The report of a paper, with what its summary tells. Sections without a block are left out.
///
/// # Errors
/// If its words are not those that were asked for.
pub(super) fn report(
    prose: &Prose,
    published: &Published,
    told: Values<'_>,
    mut sections: Vec<Section>,
) -> Result<Report, ReproduceError> {
    let paper = &published.paper;
    sections.retain(|section| !section.blocks.is_empty());
    let summary = prose.summary(told);
    prose.check()?;
    Ok(Report {
        title: format!("{}, reproduced", paper.title),
        subtitle: format!("{}, {}", listed(&paper.authors), paper.year),
        summary,
        sections,
    })
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
pub(super) fn result(
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
        Block::Parameters(prose.setup(&[]).parameters),
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
pub(super) fn said(prose: &Prose, published: &Published) -> Section {
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
pub(super) fn inconsistencies(prose: &Prose, published: &Published) -> Section {
    let note = |i: &Inconsistency| Note { name: i.id.clone(), text: i.text.clone() };
    let notes = published.inconsistencies.iter().map(note).collect();
    prose.common("inconsistencies").section(vec![Block::Notes(notes)])
}

pub(super) fn dash() -> Entry {
    Entry::text("-")
}

/// A mean with its interval; a dash where there is none.
pub(super) fn value(estimate: Option<Estimate>) -> Entry {
    let Some(estimate) = estimate else { return dash() };
    let n = print::digits(estimate.mean);
    let interval = estimate.interval();
    let small = interval.map(|i| format!("[{:.n$}, {:.n$}]", i.lo, i.hi)).unwrap_or_default();
    Entry::with_small(format!("{:.n$}", estimate.mean), small)
}

/// A cell's mean with its interval, and how many of its runs failed.
pub(super) fn measured(cell: &Measured) -> Entry {
    let mut entry = value(cell.ours.estimate());
    if cell.ours.failures() > 0 {
        let space = if entry.small.is_empty() { "" } else { ", " };
        entry.small += &format!("{space}{} of {} failed", cell.ours.failures(), cell.ours.runs());
    }
    entry
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
