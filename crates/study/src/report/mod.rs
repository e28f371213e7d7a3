//! Reports that are one file: HTML with its figures inside, which opens without a network.
//!
//! A report is built as data, section by section, and rendered at the end. It carries neither date
//! nor machine: the same data give the same bytes.

pub mod chart;
mod html;

use crate::setup::Parameter;
use crate::stats::Interval;
use chart::Chart;

/// A report.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Its title.
    pub title: String,
    /// What it is about, in one line below the title.
    pub subtitle: String,
    /// What it says, in a paragraph before the first section.
    pub summary: String,
    /// Its sections.
    pub sections: Vec<Section>,
}

impl Report {
    /// The report as one HTML document.
    pub fn to_html(&self) -> String {
        html::document(self)
    }
}

/// Several reports in one file, each of them a part with a title page of its own.
#[derive(Clone, Debug, Default)]
pub struct Book {
    /// Its title.
    pub title: String,
    /// What it is about, in one line below the title.
    pub subtitle: String,
    /// Its parts; the first is what is seen first.
    pub parts: Vec<Report>,
}

impl Book {
    /// The book as one HTML document.
    pub fn to_html(&self) -> String {
        html::book(self)
    }
}

/// A section of a report.
#[derive(Clone, Debug)]
pub struct Section {
    /// Its title.
    pub title: String,
    /// What is in it.
    pub blocks: Vec<Block>,
}

impl Section {
    /// A section of `blocks`.
    pub fn new(title: &str, blocks: Vec<Block>) -> Self {
        Self { title: title.to_owned(), blocks }
    }
}

/// A part of a section. All texts are plain: what looks like markup is shown as it is.
#[derive(Clone, Debug)]
pub enum Block {
    /// A paragraph.
    Paragraph(String),
    /// Text in a fixed-width face, such as a command line.
    Code(String),
    /// Counts of what was met, each beside what was needed.
    Verdicts(Vec<Verdict>),
    /// A table.
    Table(Table),
    /// A figure.
    Figure(Figure),
    /// Parameters with their values and reasons.
    Parameters(Vec<Parameter>),
    /// Texts, each below a name.
    Notes(Vec<Note>),
}

/// Whether something is as it should be; shown as a colour and never as a colour alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tone {
    /// It is.
    Good,
    /// Partly.
    Fair,
    /// It is not.
    Bad,
    /// There is nothing to judge.
    Neutral,
}

/// A count of what was met.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// What was counted.
    pub name: String,
    /// The count, such as `31 of 33`.
    pub count: String,
    /// What was needed, such as `at least 30`.
    pub needed: String,
    /// Whether it is enough.
    pub tone: Tone,
}

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// What stands above it.
    pub caption: String,
    /// The titles of its columns.
    pub head: Vec<String>,
    /// Its rows, each as wide as the head. The first entry of a row is its heading.
    pub rows: Vec<Vec<Entry>>,
}

impl Table {
    /// A table.
    pub fn new<T: Into<String>>(
        caption: impl Into<String>,
        head: impl IntoIterator<Item = T>,
        rows: Vec<Vec<Entry>>,
    ) -> Self {
        let head = head.into_iter().map(Into::into).collect();
        Self { caption: caption.into(), head, rows }
    }
}

impl From<Table> for Block {
    fn from(table: Table) -> Self {
        Self::Table(table)
    }
}

impl Block {
    /// A table; none without a row.
    pub fn table<T: Into<String>>(
        caption: impl Into<String>,
        head: impl IntoIterator<Item = T>,
        rows: Vec<Vec<Entry>>,
    ) -> Option<Self> {
        (!rows.is_empty()).then(|| Table::new(caption, head, rows).into())
    }

    /// A figure; none without a chart.
    pub fn figure(caption: impl Into<String>, charts: Vec<Chart>) -> Option<Self> {
        (!charts.is_empty()).then(|| Self::Figure(Figure { caption: caption.into(), charts }))
    }
}

/// An entry of a table.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// What it says.
    pub text: String,
    /// What it adds in small print, such as an interval.
    pub small: String,
    /// Its judgement, shown as a coloured word in place of plain text.
    pub tone: Option<Tone>,
}

impl Entry {
    /// Plain text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Text with an addition in small print.
    pub fn with_small(text: impl Into<String>, small: impl Into<String>) -> Self {
        Self { text: text.into(), small: small.into(), tone: None }
    }

    /// A value with its interval in small print, each with so many digits after the point.
    pub fn with_interval(value: f64, interval: Option<Interval>, digits: usize) -> Self {
        let small = interval.map(|i| format!("[{:.digits$}, {:.digits$}]", i.lo, i.hi));
        Self::with_small(format!("{value:.digits$}"), small.unwrap_or_default())
    }

    /// In place of what there is none of.
    pub fn dash() -> Self {
        Self::text("-")
    }

    /// A row of a table: its heading, and what follows.
    pub fn row(heading: impl Into<String>, others: impl IntoIterator<Item = Self>) -> Vec<Self> {
        std::iter::once(Self::text(heading)).chain(others).collect()
    }

    /// A judgement.
    pub fn mark(word: &str, tone: Tone) -> Self {
        Self { text: word.to_owned(), small: String::new(), tone: Some(tone) }
    }
}

/// A figure: one or more charts that share a caption and a legend.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What stands below it.
    pub caption: String,
    /// Its charts.
    pub charts: Vec<Chart>,
}

/// A text below a name.
#[derive(Clone, Debug)]
pub struct Note {
    /// The name.
    pub name: String,
    /// The text.
    pub text: String,
}

#[cfg(test)]
mod tests;
