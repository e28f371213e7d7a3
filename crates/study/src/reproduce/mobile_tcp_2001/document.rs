//! The report: what was published and what we get.

use super::half_duplex::{Acknowledged, CASES, headers_alone};
use super::{Content, costs, figures};
use crate::report::{Block, Entry, Section, Table};
use crate::reproduce::equations::Check;
use crate::reproduce::page::{self, setup};
use crate::reproduce::prose::Prose;
use crate::reproduce::{ReproduceError, Reproduction};

pub(super) fn reproduction(content: Content<'_>) -> Result<Reproduction, ReproduceError> {
    let prose = content.prose;
    let marks = page::marks(prose, &content.comparison);
    let sections = vec![
        figures::printed(&content),
        figures::figure_15(&content),
        figures::figure_16(&content),
        figures::delays(&content),
        prose.section("explained").noted(),
        half_duplex(prose),
        figures::sensitivity(&content),
        figures::beside_ns2(&content),
        equations(prose, &content.own.checks),
        figures::handoffs(&content),
        figures::alternatives(&content),
        costs::section(&content),
        setup(prose, content.published),
    ];
    content.reproduction(&[], vec![marks], sections)
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
    let head =
        ["acknowledged: by TCP, by Mobile TCP", "time of a frame beside its bits, ms", "gain, %"];
    let table = Table::new(words.text("table"), head, CASES.iter().map(row).collect());
    let headers = format!("{:.1}", headers_alone());
    let lead = words.filled("lead", &[("headers", &headers)]);
    words.section([Block::Paragraph(lead), table.into()])
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
            Entry::text(if check.printed { "printed, rounded" } else { "computed" }),
        ]
    };
    let head = ["what", "equation", "value", "ours", "whose"];
    words.section([Table::new(words.text("table"), head, checks.iter().map(row).collect()).into()])
}
