//! Receiver window control: which flows share, and who wants how much.

use super::super::complaint::Complaints;
use super::super::file::RwcFile;
use super::super::model::{Flow, Rwc, RwcChange};
use super::super::problem::suggest;

/// The most changes of priorities.
const MOST_CHANGES: usize = 10_000;

impl RwcFile {
    /// With the flows looked up; `None` if something is wrong.
    pub(super) fn resolve(&self, flows: &[Flow], wrong: &mut Complaints) -> Option<Rwc> {
        let named = |wrong: &mut Complaints, path: &[&str], name: &str| {
            let found = flows.iter().position(|f| f.name == name);
            if found.is_none() {
                let known = flows.iter().map(|f| f.name.as_str());
                wrong.add(path, format!("there is no flow `{name}`"), suggest(name, known));
            }
            found
        };
        if self.packets == Some(0) {
            let remedy = "give the product of rate and round trip, in packets";
            wrong.add(&["rwc", "packets"], "nothing could ever be sent", remedy);
        }
        if self.changes.len() > MOST_CHANGES {
            wrong.add(&["rwc", "changes"], format!("more than {MOST_CHANGES}"), "");
        }
        let mut priorities = vec![1; flows.len()];
        let given = self.priorities.as_ref().map(|named| named.0.as_slice()).unwrap_or_default();
        for (name, priority) in given {
            let flow = named(wrong, &["rwc", "priorities", name], name)?;
            priorities[flow] = *priority;
        }
        let mut changes = Vec::with_capacity(self.changes.len());
        for (n, change) in self.changes.iter().enumerate() {
            let flow = named(wrong, &["rwc", "changes", &n.to_string(), "flow"], &change.flow)?;
            changes.push(RwcChange { at: change.at.0, flow, priority: change.priority });
        }
        changes.sort_by_key(|change| change.at);
        Some(Rwc { packets: self.packets.unwrap_or(Rwc::PACKETS), priorities, changes })
    }
}
