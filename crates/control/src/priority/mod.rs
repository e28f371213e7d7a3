//! Which connections matter more: the configuration's rules, the user's word, and what comes of both
//! (rwc-atcp-2003 section III).
//!
//! [`Priorities`] keeps them in one place for whoever carries connections. What the user says counts
//! before what the configuration says (UFB-4), at any time (UFB-1), for the connections that there
//! are and for those that come; it is kept for as long as the process lives.

mod rules;
#[cfg(test)]
mod tests;
mod words;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use lasthop_session::{FeedbackConfig, Layer, Setting, UserFeedback};

pub use self::rules::{Rule, Rules, Which};
pub use self::words::Words;
use crate::socket::Target;

/// The priority of connections of which neither rules nor user say anything.
pub const USUAL: u32 = 1;

/// A program, by the names that the kernel knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// What it calls itself: the first 15 bytes of its name, unless it has changed that.
    pub name: String,
    /// The name of its file, where that can be read.
    pub binary: Option<String>,
}

impl Program {
    /// What the kernel cuts from a name.
    const CUT: usize = 15;

    /// Whether it goes by `name`.
    pub fn is(&self, name: &str) -> bool {
        self.name == name || self.binary.as_deref() == Some(name)
    }

    /// What people call it: its name, whole.
    pub fn shown(&self) -> &str {
        match &self.binary {
            Some(binary) if self.name.len() >= Self::CUT && binary.starts_with(&self.name) => {
                binary
            }
            _ => &self.name,
        }
    }
}

/// What is known of a connection, as far as rules ask for it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Flow {
    /// The program whose it is, where the kernel can tell.
    pub program: Option<Program>,
    /// The fixed host's address; absent where the client asked for a name, which is resolved at the
    /// base.
    pub host: Option<IpAddr>,
    /// The fixed host's port; of a connection that a fixed host opens, the port that it came to.
    pub port: u16,
}

impl Flow {
    /// A connection to this fixed host, of an unknown program.
    pub fn to(fixed: SocketAddr) -> Self {
        Self { program: None, host: Some(fixed.ip().to_canonical()), port: fixed.port() }
    }

    /// Whether the connection called `key` is meant.
    fn is_meant(&self, key: u64, target: &Target) -> bool {
        match target {
            Target::Program(name) => self.program.as_ref().is_some_and(|known| known.is(name)),
            Target::Connection(wanted) => *wanted == key,
            Target::Port(port) => *port == self.port,
            Target::Address(address) => self.host == Some(address.to_canonical()),
        }
    }
}

/// Rules, the user's word, and what each connection has by them.
///
/// A machine: after any call take [`poll_setting`](Self::poll_setting) until there is none.
#[derive(Debug)]
pub struct Priorities {
    rules: Rules,
    words: Words<u32>,
    flows: BTreeMap<u64, Flow>,
    feedback: UserFeedback<u64>,
}

impl Priorities {
    /// No connections, and no rules.
    pub fn new(rules: Rules, feedback: FeedbackConfig) -> Self {
        let feedback = UserFeedback::new(feedback);
        Self { rules, words: Words::default(), flows: BTreeMap::new(), feedback }
    }

    /// A connection begins, which `layer` carries. False if it is known already or there are too
    /// many: then it is carried as if there were no priorities.
    pub fn begin(&mut self, key: u64, flow: Flow, layer: Layer) -> bool {
        if self.feedback.begin(key, layer).is_err() {
            return false;
        }
        self.flows.insert(key, flow);
        self.update_priority(key);
        true
    }

    /// The program of a connection is known from here on.
    pub fn recognise(&mut self, key: u64, program: Program) {
        if let Some(flow) = self.flows.get_mut(&key) {
            flow.program = Some(program);
            self.update_priority(key);
        }
    }

    /// A connection is over; the rules for it alone go with it.
    pub fn end(&mut self, key: u64) {
        if self.flows.remove(&key).is_some() {
            self.feedback.end(key);
            self.words.end(key);
        }
    }

    /// The user gives connections a priority, or takes it back; how many there
    /// are at this moment. The later of two words counts.
    ///
    /// # Errors
    ///
    /// There is no such connection, or there are too many rules already: for the user to read.
    pub fn set(&mut self, of: &Target, priority: Option<u32>) -> Result<usize, String> {
        let meant = self.words.set(of, priority, &self.flows)?;
        meant.iter().for_each(|key| self.update_priority(*key));
        Ok(meant.len())
    }

    /// The user's rules that were not taken back, oldest first.
    pub fn words(&self) -> impl Iterator<Item = (&Target, u32)> {
        self.words.iter()
    }

    /// Whether rules or the user's word may give some connection a priority.
    pub fn say_something(&self) -> bool {
        !self.rules.is_empty() || !self.words.is_empty()
    }

    /// Whether some of these are for programs.
    pub fn name_programs(&self) -> bool {
        self.rules.name_programs() || self.words.name_programs()
    }

    /// What is known of connections, by their keys.
    pub fn flows(&self) -> &BTreeMap<u64, Flow> {
        &self.flows
    }

    /// A connection's priority.
    pub fn priority(&self, key: u64) -> Option<u32> {
        self.feedback.priority(key)
    }

    /// The next setting for what carries the connections, if any.
    pub fn poll_setting(&mut self) -> Option<Setting<u64>> {
        self.feedback.poll_setting()
    }

    /// Finds a connection's priority out anew.
    fn update_priority(&mut self, key: u64) {
        let Some(flow) = self.flows.get(&key) else { return };
        match self.words.of(key, flow) {
            Some(priority) => {
                self.feedback.set_priority(key, priority);
            }
            None => {
                let priority = self.rules.priority(flow).unwrap_or(USUAL);
                self.feedback.withdraw_priority(key);
                self.feedback.suggest_priority(key, priority);
            }
        }
    }
}
