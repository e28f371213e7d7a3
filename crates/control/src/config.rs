//! Configuration files: TOML in which every mistake is answered with file, line and key.

mod value;

use std::borrow::Borrow;
use std::fs;
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, de};
use thiserror::Error;

use self::value::Value;

/// No configuration is longer; a wrong path must not be read whole.
const MAX_LEN: u64 = 1024 * 1024;

/// Why a configuration cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The file says something that is not understood.
    #[error("{}:{line}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The key, and what was expected.
        message: String,
    },
    /// Something that is needed was set neither in the file nor by a flag.
    #[error("{what} is missing: {how}")]
    Missing {
        /// What.
        what: &'static str,
        /// How to say it.
        how: &'static str,
    },
    /// Two settings contradict each other.
    #[error("{0}")]
    Contradiction(String),
}

/// Reads a configuration file.
///
/// # Errors
///
/// The file cannot be read, or is not understood: the error names line and key.
pub fn load<T: DeserializeOwned>(path: &Path) -> Result<T, ConfigError> {
    let text = read(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    parse(path, &text)
}

fn read(path: &Path) -> io::Result<String> {
    if fs::metadata(path)?.len() > MAX_LEN {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "too long for a configuration"));
    }
    fs::read_to_string(path)
}

/// Reads a configuration from its text; `path` is for the error message.
///
/// # Errors
///
/// As [`load`].
pub fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, ConfigError> {
    let read = Value::parse(text).and_then(|file| file.feed(PhantomData::<T>));
    read.map_err(|mistake| {
        let at = mistake.at.map_or(0, |at| at.min(text.len()));
        let before = text.get(..at).unwrap_or_default();
        let line = before.bytes().filter(|b| *b == b'\n').count() + 1;
        let said = mistake.message.trim().replace('\n', ", ");
        let message = match key_on(text, line) {
            Some(key) if !said.contains(&format!("`{key}`")) => format!("`{key}`: {said}"),
            _ => said,
        };
        ConfigError::Syntax { path: path.to_owned(), line, message }
    })
}

/// The key that is set on a line, or by the nearest line above it that sets one.
fn key_on(text: &str, line: usize) -> Option<&str> {
    let above: Vec<&str> = text.lines().take(line).collect();
    above.iter().rev().take(64).find_map(|l| {
        let key = l.split_once('=')?.0.trim();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        (!key.is_empty() && key.chars().all(plain)).then_some(key)
    })
}

/// Two settings of which at most one can be meant.
pub fn contradiction(why: &str) -> ConfigError {
    ConfigError::Contradiction(why.to_owned())
}

/// Reads a value from its text form.
///
/// # Errors
///
/// As the type has them.
pub fn from_text<'de, D, T>(d: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: std::fmt::Display>,
{
    String::deserialize(d)?.parse().map_err(de::Error::custom)
}

/// Makes an enumeration whose values have the same names in files, in flags and in reports:
///
/// ```ignore
/// choice! {
///     /// Which transport crosses the hop.
///     #[derive(Default)]
///     pub enum HopKind: "no hop" {
///         /// SRP.
///         #[default]
///         Srp = "srp",
///     }
/// }
/// ```
#[macro_export]
macro_rules! choice {
    (
        $(#[$meta:meta])*
        pub enum $type:ident: $wrong:literal {$(
            $(#[$about:meta])*
            $variant:ident = $name:expr,
        )*}
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $type {$(
            $(#[$about])*
            $variant,
        )*}

        impl $type {
            /// All of them.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// What it is called.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// All names, as a setting's row tells them.
            pub fn range() -> String {
                $crate::config::one_of(Self::ALL)
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = String;

            fn from_str(s: &str) -> Result<Self, String> {
                Self::ALL.into_iter().find(|it| it.name() == s).ok_or_else(|| {
                    let known = $crate::config::listed(&Self::ALL.map(Self::name), "and");
                    format!("`{s}` is {}; there are {known}", $wrong)
                })
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                const NAMES: &[&str] = &[$($name),*];
                let name = String::deserialize(d)?;
                let known = Self::ALL.into_iter().find(|it| it.name() == name);
                known.ok_or_else(|| serde::de::Error::unknown_variant(&name, NAMES))
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(self.name())
            }
        }
    };
}

/// What a setting may be, as its row tells it.
pub fn one_of(all: impl IntoIterator<Item: std::fmt::Display>) -> String {
    let names: Vec<String> = all.into_iter().map(|it| format!("`{it}`")).collect();
    format!(": {}", listed(&names, "or"))
}

/// Several words as one reads them: `a, b and c`.
pub fn listed<T: Borrow<str>>(words: &[T], and: &str) -> String {
    match words {
        [all @ .., last] if !all.is_empty() => {
            format!("{} {and} {}", all.join(", "), last.borrow())
        }
        _ => words.concat(),
    }
}
