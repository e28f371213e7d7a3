//! The recorded links that a scenario names.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};

use super::tree::{Node, Value};

/// The longest trace read.
const MAX_LEN: u64 = 256 * 1024 * 1024;

/// Traces by name, each read once. Names are relative to the scenario's directory.
#[derive(Debug)]
pub(crate) struct Traces {
    directory: PathBuf,
    known: Mutex<HashMap<String, Result<String, String>>>,
}

impl Traces {
    pub(crate) fn beside(scenario: &Path) -> Self {
        let directory = scenario.parent().unwrap_or(Path::new("")).to_owned();
        Self { directory, known: Mutex::default() }
    }

    /// The text of a trace.
    pub(crate) fn text(&self, name: &str) -> Result<String, String> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = known.get(name) {
            return text.clone();
        }
        let text = self.read(name);
        known.insert(name.to_string(), text.clone());
        text
    }

    fn read(&self, name: &str) -> Result<String, String> {
        let path = self.directory.join(name);
        let told = |e: std::io::Error| {
            format!(
                "cannot read {}: {e}; names are relative to the scenario's directory",
                path.display()
            )
        };
        if fs::metadata(&path).map_err(told)?.len() > MAX_LEN {
            return Err(format!("{} is too long for a trace", path.display()));
        }
        fs::read_to_string(&path).map_err(told)
    }

    /// Adds what is in every trace that `tree` names, so that another recording under the same name
    /// is another point.
    pub(crate) fn digest(&self, tree: &Node, hash: &mut Sha256) {
        let mut names = BTreeSet::new();
        collect(tree, false, &mut names);
        for name in names {
            if let Ok(text) = self.text(name) {
                hash.update(b"\ntrace ");
                hash.update(name);
                hash.update(b" ");
                hash.update(Sha256::digest(text.as_bytes()));
            }
        }
    }
}

/// The texts under keys called `trace`.
fn collect<'a>(node: &'a Node, here: bool, names: &mut BTreeSet<&'a str>) {
    match &node.value {
        Value::Text(name) if here => _ = names.insert(name),
        Value::List(list) => list.iter().for_each(|n| collect(n, here, names)),
        Value::Table(table) => {
            table.entries().iter().for_each(|e| collect(&e.node, here || e.key == "trace", names));
        }
        _ => {}
    }
}
