//! What the user says of connections while they last.

use std::collections::BTreeMap;

use super::Flow;
use crate::socket::Target;

/// Words that are kept; one more is refused.
pub(super) const WORDS_MAX: usize = 256;

/// The user's words that were not taken back, oldest first: of those that fit a connection the latest counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Words<T>(Vec<(Target, T)>);

impl<T> Default for Words<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Copy> Words<T> {
    /// The user says something of connections, or takes it back; which of `flows` are meant.
    ///
    /// # Errors
    ///
    /// There is no such connection, or there are too many words already: for the user to read.
    pub fn set(
        &mut self,
        of: &Target,
        word: Option<T>,
        flows: &BTreeMap<u64, Flow>,
    ) -> Result<Vec<u64>, String> {
        if let Target::Connection(key) = of
            && !flows.contains_key(key)
        {
            return Err(format!("no connection has the number {key}: see `lasthop status`"));
        }
        let known = self.0.iter().position(|(said, _)| said == of);
        if word.is_some() && known.is_none() && self.0.len() >= WORDS_MAX {
            return Err(format!("so much is said of {WORDS_MAX} already: clear some"));
        }
        if let Some(known) = known {
            self.0.remove(known);
        }
        self.0.extend(word.map(|word| (of.clone(), word)));
        let meant = flows.iter().filter(|(key, flow)| flow.is_meant(**key, of));
        Ok(meant.map(|(key, _)| *key).collect())
    }

    /// What counts for the connection called `key`, if something is said of it.
    pub fn of(&self, key: u64, flow: &Flow) -> Option<T> {
        let said = self.0.iter().rev().find(|(of, _)| flow.is_meant(key, of));
        said.map(|(_, word)| *word)
    }

    /// A connection is over: what was said of it alone goes with it.
    pub fn end(&mut self, key: u64) {
        self.0.retain(|(of, _)| *of != Target::Connection(key));
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&Target, T)> {
        self.0.iter().map(|(of, word)| (of, *word))
    }

    /// Nothing is said.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Some is said of programs.
    pub fn name_programs(&self) -> bool {
        self.iter().any(|(of, _)| matches!(of, Target::Program(_)))
    }
}
