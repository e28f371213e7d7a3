//! What is wrong with a scenario, and where.

use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::tree::{self, Span};

/// Why a scenario file cannot be used.
#[derive(Debug, Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file says something that describes no scenario.
    #[error("{}", Listing(path, problems))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Everything that was found, in order of lines. Never empty.
        problems: Vec<Problem>,
    },
}

impl ScenarioError {
    /// The problems found; none if the file could not even be read.
    pub fn problems(&self) -> &[Problem] {
        match self {
            Self::Read { .. } => &[],
            Self::Invalid { problems, .. } => problems,
        }
    }
}

/// One thing that is wrong with a scenario file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Problem {
    /// The line, counted from 1.
    pub line: usize,
    /// The key, as a path with dots: `link.radio.loss`. Empty for what is no TOML.
    pub key: String,
    /// What was found, and what was expected.
    pub message: String,
    /// What to do about it, where that is not plain.
    pub remedy: Option<String>,
}

impl Problem {
    /// One at a place of the text, without a remedy.
    pub(crate) fn at(
        text: &str,
        place: &Span,
        key: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        let line = tree::line(text, place.start);
        Self { line, key: key.into(), message: message.into(), remedy: None }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)?;
        match &self.remedy {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

struct Listing<'a>(&'a PathBuf, &'a [Problem]);

impl fmt::Display for Listing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.1.iter().enumerate() {
            let end = if i == 0 { "" } else { "\n" };
            write!(f, "{end}{}:{}: {problem}", self.0.display(), problem.line)?;
        }
        Ok(())
    }
}

/// What to try in place of an unknown `found`: the nearest of `known`, or all of them.
pub(crate) fn suggest<'a>(found: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let distance = |k: &str| strsim::damerau_levenshtein(&found.to_lowercase(), &k.to_lowercase());
    let near = known.iter().map(|k| (distance(k), *k)).min();
    let list = known.join(", ");
    match near {
        Some((far, name)) if far <= 1 + found.len() / 4 => {
            format!("did you mean `{name}`? (there are: {list})")
        }
        Some(_) => format!("there are: {list}"),
        None => "there are none".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_miss_is_named_and_a_wild_guess_gets_the_list() {
        let known = ["rate", "delay", "queue"];
        assert!(suggest("dealy", known).starts_with("did you mean `delay`?"));
        assert!(suggest("Rate", known).starts_with("did you mean `rate`?"));
        assert_eq!(suggest("temperature", known), "there are: rate, delay, queue");
    }
}
