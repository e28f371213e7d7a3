//! What the reports of all papers have in common.

use super::compare::{Comparison, Criterion, Mark};
use super::print;
use super::run::Measured;
use super::{Kind, Parameter, Request, Setup};
use crate::published::{Inconsistency, Published};
use crate::report::{Block, Entry, Note, Report, Section, Tone, Verdict};
use crate::stats::Estimate;

/// The report of a paper. Sections without a block are left out.
pub(super) fn report(published: &Published, summary: &str, mut sections: Vec<Section>) -> Report {
    let paper = &published.paper;
    sections.retain(|section| !section.blocks.is_empty());
    Report {
        title: format!("{}, reproduced", paper.title),
        subtitle: format!("{}, {}", listed(&paper.authors), paper.year),
        summary: summary.to_owned(),
        sections,
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

pub(super) fn paragraph(text: &str) -> Block {
    Block::Paragraph(text.to_owned())
}

pub(super) fn note(name: &str, text: &str) -> Note {
    Note { name: name.to_owned(), text: text.to_owned() }
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

/// How the values of `what`, printed without intervals, are met.
pub(super) fn marks(comparison: &Comparison, what: &str) -> Block {
    let printed: Vec<_> = comparison.printed().collect();
    let marked = |mark: Mark| printed.iter().filter(|cell| cell.mark == mark).count();
    Block::Paragraph(format!(
        "Of {} values that {what}, {} are within 10 %, {} of the others in the published ratio \
         between the schemes to 35 %, {} in order.",
        printed.len(),
        marked(Mark::Near),
        marked(Mark::Ratio),
        marked(Mark::Order)
    ))
}

/// The first section: what had to be right, whatever else is to be said of the result, and how to
/// get it again.
pub(super) fn result(
    criteria: &[Criterion],
    more: Vec<Block>,
    request: &Request,
    paper: &str,
) -> Section {
    let mut blocks = vec![verdicts(criteria)];
    blocks.extend(more);
    blocks.extend(again(request, paper));
    Section::new("Result", blocks)
}

/// How it was measured, and what the marks of cells mean: the paper's own notes, and what is the same
/// for all papers.
pub(super) fn method(mut notes: Vec<Note>) -> Section {
    notes.push(note("unpublished", "The paper prints no value here."));
    Section::new("How it was measured and marked", vec![Block::Notes(notes)])
}

/// What it means for a cell to be near.
pub(super) fn near() -> Note {
    note("near", "Our mean is within 10 % of a value that is printed without an interval.")
}

/// What was run, and the command that gives the same values again.
fn again(request: &Request, paper: &str) -> [Block; 2] {
    let told = format!(
        "By lasthop {}, {} runs of each cell, seed {}. This gives the same values again:",
        request.version, request.runs, request.seed
    );
    [Block::Paragraph(told), Block::Code(request.command(paper))]
}

/// The set-up: what was assumed, and what the paper states.
pub(super) fn setup(assumed: Setup, published: &Published) -> Section {
    let blocks = vec![
        paragraph("Nothing is fitted. Assumed, since the paper does not say:"),
        Block::Parameters(assumed.parameters),
        paragraph("What the paper says:"),
        stated(published),
    ];
    Section::new("Set-up", blocks)
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
pub(super) fn said(published: &Published) -> Section {
    let sourced = |text: &str, source: &str| format!("{text} ({source})");
    let claims = published
        .claims
        .iter()
        .map(|c| Note { name: c.id.replace('-', " "), text: sourced(&c.says, &c.source) });
    let drawn = published.untabulated.iter().map(|u| Note {
        name: format!("{}, without numbers", u.id.replace('-', " ")),
        text: sourced(&u.what, &u.source),
    });
    let notes = claims.chain(drawn).collect();
    Section::new("What the paper claims in words", vec![Block::Notes(notes)])
}

/// Where the paper contradicts itself or is silent.
pub(super) fn inconsistencies(published: &Published) -> Section {
    let note = |i: &Inconsistency| Note { name: i.id.clone(), text: i.text.clone() };
    let notes = published.inconsistencies.iter().map(note).collect();
    Section::new("Inconsistencies and gaps of the paper", vec![Block::Notes(notes)])
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
