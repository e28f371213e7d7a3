//! Parts of a sweep, for as many machines.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Part `index` of `of`, as `--shard` has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shard {
    index: u64,
    of: u64,
}

/// A text that names no part.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("`{0}` is not a shard such as `0/4`: a number from 0, and how many there are")]
pub struct ShardError(String);

impl Shard {
    /// The whole sweep.
    pub const ALL: Self = Self { index: 0, of: 1 };

    /// Which part, from 0.
    pub const fn index(self) -> u64 {
        self.index
    }

    /// How many parts there are.
    pub const fn of(self) -> u64 {
        self.of
    }

    /// Whether the run of this number, counted over all points, belongs to this part.
    pub const fn has(self, number: u64) -> bool {
        number % self.of == self.index
    }
}

impl FromStr for Shard {
    type Err = ShardError;

    fn from_str(text: &str) -> Result<Self, ShardError> {
        let parts = text.split_once('/').and_then(|(index, of)| {
            Some(Self { index: index.trim().parse().ok()?, of: of.trim().parse().ok()? })
        });
        parts.filter(|s| s.index < s.of).ok_or_else(|| ShardError(text.to_string()))
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}
