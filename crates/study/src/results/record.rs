//! One finished run.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::scenario::PointHash;

/// What a run was and what it gave.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Which point.
    pub point: PointHash,
    /// Which of the point's runs, counted from 0.
    pub run: u64,
    /// The run's seed: with the point, what identifies it.
    pub seed: u64,
    /// The commit that ran it.
    pub commit: String,
    /// What the sweep set.
    pub parameters: Ordered<String>,
    /// Every flow that has an end came to it (MET-13).
    pub completed: bool,
    /// The hash of all that happened.
    pub trace: String,
    /// What was measured. `None` is what this run could not measure, such as the time of a transfer
    /// that did not complete.
    pub metrics: Ordered<Option<f64>>,
}

impl Record {
    /// The record as one line of JSON, without its end.
    pub fn line(&self) -> String {
        // Only maps with keys that are not texts fail, and there are none.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether both tell of the same outcome.
    pub fn agrees(&self, other: &Self) -> bool {
        self.trace == other.trace
            && self.completed == other.completed
            && self.metrics == other.metrics
    }
}

/// Names and values in a given order: a JSON object.
#[derive(Clone, PartialEq, Debug)]
pub struct Ordered<V>(pub Vec<(String, V)>);

impl<V> Default for Ordered<V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<V: Serialize> Serialize for Ordered<V> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Ordered<V> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Reader<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Reader<V> {
            type Value = Vec<(String, V)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut list = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    list.push(entry);
                }
                Ok(list)
            }
        }
        d.deserialize_map(Reader(PhantomData)).map(Self)
    }
}
