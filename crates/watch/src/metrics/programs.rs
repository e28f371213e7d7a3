//! What programs have carried, over connections that come and go.

use std::collections::{BTreeMap, BTreeSet};

use lasthop_control::{ConnectionReport, Report};

/// Programs with series of their own; what the others do is counted together. A program keeps its
/// place: if places changed hands, counters would jump.
pub(super) const PROGRAMS_MAX: usize = 32;
/// The name of all other programs.
pub(super) const OTHER: &str = "other";
/// The name where the kernel could not tell whose a connection is.
pub(super) const UNKNOWN: &str = "unknown";

/// What a program has carried.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Program {
    /// Its connections at this moment.
    pub(super) connections: u64,
    /// The highest priority among them.
    pub(super) priority: Option<u32>,
    /// Bytes into the hop, since the first report.
    pub(super) to_hop: u64,
    /// Bytes out of the hop, since the first report.
    pub(super) from_hop: u64,
}

/// What all programs have carried. What a connection carries after the last report in which it
/// stands, and one that stands in no report, is not counted.
#[derive(Default, Debug)]
pub(super) struct Programs {
    programs: BTreeMap<String, Program>,
    /// What is counted already of each connection that stands, by its key.
    counted: BTreeMap<u64, (u64, u64)>,
}

impl Programs {
    /// Each program that has had a connection, by its name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Program)> {
        self.programs.iter().map(|(name, program)| (name.as_str(), program))
    }

    /// Counts what connections have carried since the last report.
    pub(super) fn handle_report(&mut self, report: &Report) {
        for program in self.programs.values_mut() {
            program.connections = 0;
            program.priority = None;
        }
        // A base, and a mobile that nobody asks for programs, has none.
        let recognised = report.connections.iter().any(|c| c.program.is_some());
        if self.programs.is_empty() && !recognised {
            return;
        }
        for connection in &report.connections {
            self.count(connection);
        }
        let standing: BTreeSet<u64> = report.connections.iter().map(|c| c.key).collect();
        self.counted.retain(|key, _| standing.contains(key));
    }

    fn count(&mut self, connection: &ConnectionReport) {
        let now = (connection.bytes_to_hop, connection.bytes_from_hop);
        let before = self.counted.insert(connection.key, now).unwrap_or_default();
        let name = connection.program.as_deref().unwrap_or(UNKNOWN);
        let program = self.place(name);
        program.connections += 1;
        program.priority = program.priority.max(connection.priority);
        program.to_hop = program.to_hop.saturating_add(now.0.saturating_sub(before.0));
        program.from_hop = program.from_hop.saturating_add(now.1.saturating_sub(before.1));
    }

    fn place(&mut self, name: &str) -> &mut Program {
        let own = self.programs.contains_key(name) || self.programs.len() < PROGRAMS_MAX;
        self.programs.entry(if own { name } else { OTHER }.to_owned()).or_default()
    }
}
