//! The report: what was published and what we get.

use super::content::Content;
use super::fades::Check;
use super::half_duplex::{Acknowledged, CASES, headers_alone};
use super::{costs, figures};
use crate::report::{Block, Entry, Report, Section, Table};
use crate::reproduce::ReproduceError;
use crate::reproduce::page::{self, inconsistencies, said, setup};
use crate::reproduce::prose::Prose;

pub(super) fn report(content: &Content<'_>) -> Result<Report, ReproduceError> {
    let (prose, published) = (content.prose, content.published);
    let marks = vec![page::marks(prose, content.comparison)];
    let sections = vec![
        page::result(prose, content.criteria, marks, content.request, super::ID),
        figures::printed(content),
        figures::figure_15(content),
        figures::figure_16(content),
        figures::delays(content),
        prose.section("explained").noted(),
        half_duplex(prose),
        figures::sensitivity(content),
        figures::beside_ns2(content),
        equations(prose, content.checks),
        figures::handoffs(content),
        figures::alternatives(content),
        costs::section(content),
        setup(prose, published),
        said(prose, published),
        inconsistencies(prose, published),
        prose.section("method").noted(),
    ];
    page::report(prose, published, &[], sections)
}

/// The sensitivity that is computed and not simulated.
fn half_duplex(prose: &Prose) -> Section {
    let words = prose.section("half-duplex");
    let row = |case: &Acknowledged| {
        vec![
            Entry::text(format!("{}, {}", every(case.tcp), every(case.mobile_tcp))),
            Entry::text(format!("{:.2}", case.overhead())),
            Entry::text(format!("{:.1}", case.gain())),
        ]
    };
    let table = Table {
        caption: words.text("table"),
        head: [
            "acknowledged: by TCP, by Mobile TCP",
            "time of a frame beside its bits, ms",
            "gain, %",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows: CASES.iter().map(row).collect(),
    };
    let headers = format!("{:.1}", headers_alone());
    let lead = words.filled("lead", &[("headers", &headers)]);
    words.section(vec![Block::Paragraph(lead), Block::Table(table)])
}

fn every(packets: u32) -> &'static str {
    match packets {
        1 => "each packet",
        2 => "each second",
        3 => "each third",
        _ => "each fourth",
    }
}

/// The error model's equations.
fn equations(prose: &Prose, checks: &[Check]) -> Section {
    let words = prose.section("equations");
    let row = |check: &Check| {
        let numbers: Vec<String> = check.equations.iter().map(|n| format!("({n})")).collect();
        vec![
            Entry::text(check.id.clone()),
            Entry::text(numbers.join(", ")),
            Entry::text(format!("{}", check.expected)),
            Entry::text(format!("{:.6}", check.ours)),
            Entry::text(if check.is_printed() { "printed, rounded" } else { "computed" }),
        ]
    };
    let table = Table {
        caption: words.text("table"),
        head: ["what", "equation", "value", "ours", "whose"].map(str::to_owned).to_vec(),
        rows: checks.iter().map(row).collect(),
    };
    words.section(vec![Block::Table(table)])
}
