//! The words of a report, from the `report.toml` beside the paper: Rust names a text and fills its
//! `{placeholders}` with what was computed.
//!
//! Whatever does not fit is kept as a fault, and [`Prose::check`] tells of the first: no report is
//! made with a gap. What the file has and nothing asks for is found by each paper's tests.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use serde::Deserialize;
use thiserror::Error;

use crate::report::{Block, Note, Section};
use crate::setup::{Kind, Parameter, Setup};

/// What the reports of all papers say.
const COMMON: &str = include_str!("../../../../papers/report.toml");

/// What placeholders stand for, by their names.
pub(super) type Values<'a> = &'a [(&'a str, &'a dyn Display)];

/// Why words and report do not fit each other.
#[derive(Clone, Debug, Error)]
pub enum ProseError {
    /// It is no TOML, or has a key that does not belong there.
    #[error("report.toml: {0}")]
    Syntax(#[from] toml::de::Error),
    /// The report asks for a text that the file does not have.
    #[error("report.toml: there is no `{0}`")]
    Missing(String),
    /// A placeholder has no value, or is not closed.
    #[error("report.toml: `{text}`: nothing fills `{{{placeholder}}}`")]
    Unfilled {
        /// Which text.
        text: String,
        /// The placeholder.
        placeholder: String,
    },
    /// A value has no placeholder.
    #[error("report.toml: `{text}`: there is no place for `{{{value}}}`")]
    Untaken {
        /// Which text.
        text: String,
        /// The value's name.
        value: String,
    },
}

/// A `report.toml`. Lines are wrapped in it as suits a reader; a text is one paragraph.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    summary: Option<String>,
    section: BTreeMap<String, Texts>,
    stated: Vec<StatedValue>,
    fitted: Vec<StatedValue>,
    assumed: Vec<StatedValue>,
}

impl File {
    fn parameters(&self) -> [(Kind, &[StatedValue]); 3] {
        [
            (Kind::Stated, self.stated.as_slice()),
            (Kind::Fitted, self.fitted.as_slice()),
            (Kind::Assumed, self.assumed.as_slice()),
        ]
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Texts {
    heading: Option<String>,
    text: BTreeMap<String, String>,
    note: Vec<Named>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    name: String,
    text: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StatedValue {
    name: String,
    value: String,
    reason: String,
}

/// The words of one report.
#[derive(Debug)]
pub(super) struct Prose {
    own: File,
    common: File,
    asked: RefCell<BTreeSet<String>>,
    faults: RefCell<Vec<ProseError>>,
}

impl Prose {
    /// Reads a `report.toml`.
    ///
    /// # Errors
    /// Names the line of a syntax error.
    pub(super) fn parse(text: &str) -> Result<Self, ProseError> {
        let (own, common) = (toml::from_str(text)?, toml::from_str(COMMON)?);
        Ok(Self { own, common, asked: RefCell::default(), faults: RefCell::default() })
    }

    /// What stands before the first section.
    pub(super) fn summary(&self, values: Values<'_>) -> String {
        self.find("summary", self.own.summary.as_deref(), values)
    }

    /// The words of a section.
    pub(super) fn section<'a>(&'a self, name: &'a str) -> Words<'a> {
        Words { prose: self, texts: self.own.section.get(name), name: format!("section.{name}") }
    }

    /// The words of a section that the reports of all papers share.
    pub(super) fn common<'a>(&'a self, name: &'a str) -> Words<'a> {
        Words { prose: self, texts: self.common.section.get(name), name: format!("common.{name}") }
    }

    /// The set-up in words.
    pub(super) fn setup(&self) -> Setup {
        let mut parameters = Vec::new();
        for (kind, told) in self.own.parameters() {
            self.asked.borrow_mut().insert(kind.name().to_owned());
            for StatedValue { name, value, reason } in told {
                parameters.push(Parameter {
                    name: name.clone(),
                    value: value.clone(),
                    kind,
                    reason: joined(reason),
                });
            }
        }
        Setup { parameters }
    }

    /// Tells of the first fault.
    ///
    /// # Errors
    /// If a text was asked for that is not there, or words and values did not fit.
    pub(super) fn check(&self) -> Result<(), ProseError> {
        self.faults.borrow().first().map_or(Ok(()), |fault| Err(fault.clone()))
    }

    /// A text, as one paragraph with its values; each of them has a place in it.
    fn find(&self, name: &str, text: Option<&str>, values: Values<'_>) -> String {
        let Some(text) = text else {
            self.fault(ProseError::Missing(name.to_owned()));
            return String::new();
        };
        self.asked.borrow_mut().insert(name.to_owned());
        let mut taken = BTreeSet::new();
        let text = joined(text);
        let mut parts = text.split('{');
        let mut filled = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (placeholder, rest) = part.split_once('}').unwrap_or((part, ""));
            match values.iter().find(|(value, _)| *value == placeholder) {
                Some((value, told)) => {
                    taken.insert(*value);
                    filled += &told.to_string();
                }
                None => self.fault(ProseError::Unfilled {
                    text: name.to_owned(),
                    placeholder: placeholder.to_owned(),
                }),
            }
            filled += rest;
        }
        for (value, _) in values.iter().filter(|(value, _)| !taken.contains(value)) {
            let (text, value) = (name.to_owned(), (*value).to_owned());
            self.fault(ProseError::Untaken { text, value });
        }
        filled
    }

    fn fault(&self, fault: ProseError) {
        self.faults.borrow_mut().push(fault);
    }
}

/// A text of several lines as one.
fn joined(text: &str) -> String {
    text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

/// The words of a section.
pub(super) struct Words<'a> {
    prose: &'a Prose,
    texts: Option<&'a Texts>,
    name: String,
}

impl Words<'_> {
    /// The text of a name.
    pub(super) fn text(&self, name: &str) -> String {
        self.filled(name, &[])
    }

    /// The same with its placeholders filled.
    pub(super) fn filled(&self, name: &str, values: Values<'_>) -> String {
        let text = self.texts.and_then(|texts| texts.text.get(name));
        self.prose.find(&format!("{}.text.{name}", self.name), text.map(String::as_str), values)
    }

    /// The text of a name as a paragraph.
    pub(super) fn paragraph(&self, name: &str) -> Block {
        Block::Paragraph(self.text(name))
    }

    /// The section's notes.
    pub(super) fn notes(&self) -> Vec<Note> {
        let name = format!("{}.note", self.name);
        let notes = self.texts.map(|texts| texts.note.as_slice()).unwrap_or_default();
        if notes.is_empty() {
            self.prose.fault(ProseError::Missing(name.clone()));
        }
        let note = |note: &Named| Note {
            name: note.name.clone(),
            text: self.prose.find(&name, Some(&note.text), &[]),
        };
        notes.iter().map(note).collect()
    }

    /// The notes below the section's heading.
    pub(super) fn noted(&self) -> Section {
        self.section([Block::Notes(self.notes())])
    }

    /// A section of `blocks` below its heading.
    pub(super) fn section(&self, blocks: impl IntoIterator<Item = Block>) -> Section {
        let blocks = blocks.into_iter().collect();
        let heading = self.texts.and_then(|texts| texts.heading.as_deref());
        Section { title: self.prose.find(&format!("{}.heading", self.name), heading, &[]), blocks }
    }
}

#[cfg(test)]
impl Prose {
    /// Words that no report has asked for.
    pub(super) fn unasked(&self) -> Vec<String> {
        self.left(names("section", &self.own))
    }

    /// The same of those that all papers share.
    pub(super) fn unasked_common(&self) -> Vec<String> {
        self.left(names("common", &self.common))
    }

    fn left(&self, mut names: Vec<String>) -> Vec<String> {
        names.retain(|name| !self.asked.borrow().contains(name));
        names
    }
}

/// What of a file has to be asked for.
#[cfg(test)]
fn names(kind: &str, file: &File) -> Vec<String> {
    let mut names: Vec<String> = file.summary.iter().map(|_| "summary".to_owned()).collect();
    for (kind, told) in file.parameters() {
        names.extend(told.first().map(|_| kind.name().to_owned()));
    }
    for (section, texts) in &file.section {
        let section = format!("{kind}.{section}");
        names.extend(texts.heading.iter().map(|_| format!("{section}.heading")));
        names.extend(texts.text.keys().map(|text| format!("{section}.text.{text}")));
        names.extend(texts.note.first().map(|_| format!("{section}.note")));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        summary = "On {place}."
        [section.one]
        heading = "One"
        text.lead = """
        Of {n} values
        {n} are near."""
        [[section.one.note]]
        name = "a note"
        text = "as it is"
        [[assumed]]
        name = "rate"
        value = "2 Mbit/s"
        reason = "unsaid"
    "#;

    fn prose() -> Prose {
        Prose::parse(TEXT).unwrap()
    }

    fn fault(ask: impl FnOnce(&Prose)) -> String {
        let prose = prose();
        ask(&prose);
        prose.check().unwrap_err().to_string()
    }

    #[test]
    fn a_text_is_one_paragraph_with_its_values() {
        let prose = prose();
        let words = prose.section("one");
        assert_eq!(words.filled("lead", &[("n", &3)]), "Of 3 values 3 are near.");
        assert_eq!(words.notes()[0].text, "as it is");
        assert_eq!(words.section(Vec::new()).title, "One");
        assert_eq!(prose.setup().parameters[0].value, "2 Mbit/s");
        assert!(prose.check().is_ok());
        assert_eq!(prose.unasked(), ["summary"]);
    }

    #[test]
    fn what_does_not_fit_is_a_fault_with_its_name() {
        for (fault, told) in [
            (fault(|p| drop(p.section("two").text("lead"))), "no `section.two.text.lead`"),
            (fault(|p| drop(p.section("one").text("end"))), "no `section.one.text.end`"),
            (fault(|p| drop(p.section("two").notes())), "no `section.two.note`"),
            (fault(|p| drop(p.section("one").text("lead"))), "nothing fills `{n}`"),
            (fault(|p| drop(p.summary(&[("time", &1)]))), "nothing fills `{place}`"),
            (fault(|p| drop(p.summary(&[("place", &1), ("time", &1)]))), "no place for `{time}`"),
        ] {
            assert!(fault.contains(told), "{fault}");
        }
    }

    #[test]
    fn what_belongs_to_no_report_is_refused() {
        for text in ["sumary = \"\"", "[section.one]\nhaeding = \"\"", "[[assumed]]\nname = \"\""] {
            assert!(matches!(Prose::parse(text), Err(ProseError::Syntax(_))), "{text}");
        }
    }
}
