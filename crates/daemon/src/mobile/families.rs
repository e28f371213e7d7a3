//! Which families are intercepted: those that the base reaches where the mobile is.

use std::time::Duration;

use lasthop_session::{Families, Reach};
use lasthop_units::Time;

use super::{Core, MobileRole};

/// How long a base may take to answer. One that does not answer does not know the query: then both
/// families are intercepted.
const PATIENCE: Duration = Duration::from_secs(10);

/// The query for the families that bases reach.
#[derive(Debug, Default)]
pub(super) struct FamiliesQuery {
    /// The part of the hop whose association was queried.
    asked: Option<u32>,
    /// The base that answered last.
    told_by: Option<usize>,
    /// When the present base will have been silent for too long, if another one answered last.
    silent_at: Option<Time>,
}

impl FamiliesQuery {
    /// Asks again over another association.
    pub(super) fn reset(&mut self) {
        self.asked = None;
    }

    /// When [`query_families`](MobileRole::query_families) has something to do.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.silent_at
    }
}

impl MobileRole {
    /// Queries the base where the session is, if it was not queried yet. True if it is now.
    pub(super) fn query_families(&mut self, core: &mut Core) -> bool {
        let (now, at) = (core.now, self.at);
        if self.families.silent_at.is_some_and(|silent_at| silent_at <= now) {
            self.families.silent_at = None;
            self.intercepted.set_families(Families::ALL);
        }
        let is_new = self.families.asked != Some(at);
        let is_up = core.hop.get(at).is_some_and(|hop| hop.is_up());
        if !(is_new && is_up && self.resumed && self.intercepted.is_open()) {
            return false;
        }
        let mut question = Vec::new();
        Reach::Ask.encode(&mut question);
        let Some((session, mut streams)) = core.session(at) else { return false };
        if session.send_message(now, &mut streams, &question).is_err() {
            return false;
        }
        self.families.asked = Some(at);
        let is_other = self.families.told_by.is_some_and(|told_by| told_by != self.here);
        self.families.silent_at = is_other.then(|| now + PATIENCE);
        true
    }

    /// Takes a base's answer.
    pub(super) fn handle_families(&mut self, part: u32, families: Families) {
        if part != self.at {
            return;
        }
        self.families.told_by = Some(self.here);
        self.families.silent_at = None;
        self.intercepted.set_families(families);
    }
}
