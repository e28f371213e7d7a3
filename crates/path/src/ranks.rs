//! Which connection matters how much, at an agent that divides windows.

use std::collections::BTreeMap;

use lasthop_agent::Connection;
use lasthop_control::priority::{Flow, Priorities};
use lasthop_control::{PriorityReport, Target};
use lasthop_session::{FeedbackConfig, Layer, Setting};
use lasthop_units::{Scheme, Time};

use super::chain::Chain;
use super::config::AgentConfig;
use super::flows::Begun;

/// Priorities of the connections that pass; none if nothing is divided.
pub(super) struct Ranks {
    priorities: Option<Priorities>,
    connections: BTreeMap<u64, Connection>,
}

impl Ranks {
    pub(super) fn new(config: &AgentConfig) -> Self {
        let feedback =
            FeedbackConfig { flows_max: config.connections, ..FeedbackConfig::default() };
        let divides = config.schemes.iter().any(|role| role.scheme == Scheme::Rwc);
        let priorities = divides.then(|| Priorities::new(config.priority.clone(), feedback));
        Self { priorities, connections: BTreeMap::new() }
    }

    /// A connection is seen for the first time.
    pub(super) fn begin(&mut self, Begun { key, connection }: Begun) {
        if let Some(priorities) = &mut self.priorities
            && priorities.begin(key, Flow::to(connection.fixed), Layer::Hop)
        {
            self.connections.insert(key, connection);
        }
    }

    /// A connection is over.
    pub(super) fn end(&mut self, key: u64) {
        self.connections.remove(&key);
        if let Some(priorities) = &mut self.priorities {
            priorities.end(key);
        }
    }

    /// Set by the user.
    ///
    /// # Errors
    ///
    /// Why that cannot be followed, for people.
    pub(super) fn set(&mut self, of: &Target, priority: Option<u32>) -> Result<(), String> {
        match &mut self.priorities {
            _ if matches!(of, Target::Program(_)) => {
                Err("an agent cannot tell programs: name a port, an address or a connection"
                    .to_owned())
            }
            Some(priorities) => priorities.set(of, priority).map(drop),
            None => Err("this agent divides nothing: its schemes lack rwc".to_owned()),
        }
    }

    /// A connection's priority.
    pub(super) fn priority(&self, key: u64) -> Option<u32> {
        self.priorities.as_ref()?.priority(key)
    }

    /// The user's rules that were not taken back.
    pub(super) fn words(&self) -> Vec<PriorityReport> {
        let words = self.priorities.iter().flat_map(Priorities::words);
        words.map(|(of, priority)| PriorityReport { of: of.clone(), priority }).collect()
    }

    /// Tells the machines what has changed; what they say to that is to be
    /// [forwarded](Chain::forward).
    pub(super) fn apply(&mut self, now: Time, chain: &mut Chain) {
        while let Some(setting) = self.priorities.as_mut().and_then(Priorities::poll_setting) {
            let Setting::Priority { flow, priority } = setting else { continue };
            let Some(connection) = self.connections.get(&flow) else { continue };
            for machine in chain.machines() {
                machine.set_priority(now, *connection, priority);
            }
        }
    }
}
