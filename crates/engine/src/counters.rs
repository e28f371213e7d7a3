//! What metrics have of the counters of agents, and what they call them.

use lasthop_agent::AnyAgent;
use lasthop_sim::net::Packet;

/// An agent's name in metrics.
pub const fn kind(agent: &AnyAgent<Packet>) -> &'static str {
    match agent {
        AnyAgent::DelayedDupacks(_) | AnyAgent::CoherentDupacks(_) => "dupacks",
        _ => agent.name(),
    }
}

/// What metrics have of an agent's counters, by their names there.
pub(super) fn counts(agent: &AnyAgent<Packet>) -> Vec<(&'static str, u64)> {
    let counters = agent.counters();
    let count = |name: &'static str| {
        let of_name = counters.iter().filter(|(counter, _)| in_metrics(counter) == name);
        (name, of_name.map(|(_, count)| count).sum())
    };
    shown(agent).iter().copied().map(count).collect()
}

/// The counters of an agent that metrics have, by their names there.
pub const fn shown(agent: &AnyAgent<Packet>) -> &'static [&'static str] {
    match agent {
        AnyAgent::Snoop(_) => &["local_retransmits", "local_timeouts", "suppressed"],
        AnyAgent::MTcp(_) => {
            &["local_retransmits", "local_timeouts", "disconnections", "reconnections"]
        }
        AnyAgent::ObtcpBase(_) => &["local_retransmits", "local_timeouts", "snacks", "congestions"],
        AnyAgent::ObtcpRouter(_) => {
            &["local_retransmits", "local_timeouts", "snacks", "suppressed", "replayed"]
        }
        AnyAgent::Link(_) => &["local_retransmits", "given_up"],
        AnyAgent::Unsplit(_) => {
            &["local_retransmits", "local_timeouts", "suppressed", "compressed", "plain"]
        }
        AnyAgent::Freeze(_) => &["freezes", "thaws", "zero_windows", "rewritten"],
        AnyAgent::Withhold(_) => &["lowered", "released", "made"],
        AnyAgent::DelayedDupacks(_) | AnyAgent::CoherentDupacks(_) => {
            &["held", "discarded", "released"]
        }
        AnyAgent::Windows(_) => &["narrowed", "divisions"],
    }
}

/// What metrics call a counter: what agents do alike has one name.
pub fn in_metrics(counter: &str) -> &str {
    match counter {
        "repaired" | "resumed" | "retransmitted" => "local_retransmits",
        "timeouts" => "local_timeouts",
        own => own,
    }
}
