//! Agents in the path: which machine stands at which node, and with what parameters.

use lasthop_agent::AnyAgent;
use lasthop_agent::link::{LinkConfig, LinkRetransmission};
use lasthop_agent::m_tcp::MTcp;
use lasthop_agent::obtcp::{self, Base, Router};
use lasthop_agent::snoop::Snoop;
use lasthop_agent::unsplit::{self, Unsplit};
use lasthop_sim::agents::{AgentRouter, Help, Peers};
use lasthop_sim::net::Packet;
use lasthop_units::Scheme;

use super::addresses::address;
use crate::run::RunError;
use crate::scenario::{NodeIndex, PathHelp, Scenario, Station};

/// Any agent.
pub(super) type Helper = AnyAgent<Packet>;

/// Its name in metrics.
pub(super) const fn kind(agent: &Helper) -> &'static str {
    match agent {
        AnyAgent::DelayedDupacks(_) | AnyAgent::CoherentDupacks(_) => "dupacks",
        _ => agent.name(),
    }
}

/// What metrics have of its counters, by their names there.
pub(super) fn counts(agent: &Helper) -> Vec<(&'static str, u64)> {
    let counters = agent.counters();
    let count = |name: &'static str| {
        let of_name = counters.iter().filter(|(counter, _)| in_metrics(counter) == name);
        (name, of_name.map(|(_, count)| count).sum())
    };
    shown(agent).iter().copied().map(count).collect()
}

/// The counters that metrics have.
const fn shown(agent: &Helper) -> &'static [&'static str] {
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
fn in_metrics(counter: &str) -> &str {
    match counter {
        "repaired" | "resumed" | "retransmitted" => "local_retransmits",
        "timeouts" => "local_timeouts",
        own => own,
    }
}

/// The agents that stand at a node, in the order of the mobiles that they help; none if there is
/// nobody to help.
pub(super) fn at_node(
    scenario: &Scenario,
    help: &[PathHelp],
    index: NodeIndex,
) -> Result<Option<AgentRouter<Helper>>, RunError> {
    let mut router = AgentRouter::new(address(index.0));
    for help in help {
        let base = help.stations.iter().find(|s| s.base == index);
        let behind = help.stations.iter().find(|s| s.router == Some(index));
        let mobiles = vec![address(help.mobile.0)];
        if let Some(station) = base {
            let agent = at_base(scenario, help.scheme, station)?;
            router.add(Help { mobiles, peers: peers_of_base(help, station), hop: None, agent });
        } else if let Some(station) = behind.filter(|_| help.scheme == Scheme::Obtcp) {
            let agent = Router::new(scenario.agent.obtcp).map_err(refused)?.into();
            let peers = Peers { fixed: Some(address(station.base.0)), mobile: None };
            router.add(Help { mobiles, peers, hop: None, agent });
        }
    }
    Ok(Some(router).filter(|r| !r.help().is_empty()))
}

/// Whom the agent at a base talks to: the one at the mobile router, or the mobile's own link.
fn peers_of_base(help: &PathHelp, station: &Station) -> Peers {
    let beyond = match help.scheme {
        Scheme::Obtcp => station.router,
        scheme if scheme.ends_at_mobile() => Some(help.mobile),
        _ => None,
    };
    Peers { fixed: None, mobile: beyond.map(|n| address(n.0)) }
}

fn at_base(scenario: &Scenario, scheme: Scheme, station: &Station) -> Result<Helper, RunError> {
    let settings = &scenario.agent;
    Ok(match scheme {
        Scheme::Obtcp => Base::new(settings.obtcp).map_err(refused)?.into(),
        Scheme::DelayedDupacks | Scheme::CongestionCoherence | Scheme::Ebsn => {
            let notify = scheme == Scheme::Ebsn;
            let config = LinkConfig { notify, ..settings.link };
            LinkRetransmission::at_base(&config).into()
        }
        Scheme::MobileTcpUnsplit => Unsplit::at_base(&unsplit(scenario, station)).into(),
        Scheme::MTcp => MTcp::new(&settings.m_tcp).into(),
        _ => Snoop::new(settings.snoop.clone()).into(),
    })
}

/// The mobile's own end of what its base does.
pub(super) fn at_mobile(scenario: &Scenario, scheme: Scheme, station: &Station) -> Helper {
    match scheme {
        Scheme::MobileTcpUnsplit => Unsplit::at_mobile(&unsplit(scenario, station)).into(),
        _ => LinkRetransmission::at_mobile(&scenario.agent.link).into(),
    }
}

fn refused(error: obtcp::ConfigError) -> RunError {
    RunError::Failed(format!("agent.obtcp: {error}"))
}

fn unsplit(scenario: &Scenario, station: &Station) -> unsplit::Config {
    let hop = &scenario.link(station.hop).radio;
    unsplit::Config { mtu: hop.up.mtu.min(hop.down.mtu), ..scenario.agent.unsplit.clone() }
}

#[cfg(test)]
mod tests {
    use lasthop_agent::edge::{
        CoherentDupacks, DelayedDupacks, Freeze, FreezeConfig, HopEnd, ReceiverWindows, Withhold,
    };

    use lasthop_agent::m_tcp::MTcpConfig;
    use lasthop_agent::snoop;

    use super::*;

    #[test]
    fn every_count_in_metrics_is_a_counter_of_its_agent() {
        let all: [Helper; 11] = [
            Snoop::new(snoop::Config::default()).into(),
            MTcp::new(&MTcpConfig::default()).into(),
            Base::new(obtcp::Config::default()).unwrap().into(),
            Router::new(obtcp::Config::default()).unwrap().into(),
            LinkRetransmission::at_base(&LinkConfig::default()).into(),
            Unsplit::at_base(&unsplit::Config::default()).into(),
            DelayedDupacks::new(Default::default()).into(),
            CoherentDupacks::new(Default::default()).into(),
            Freeze::new(FreezeConfig::freeze(HopEnd::Mobile)).into(),
            Withhold::new(Default::default()).into(),
            ReceiverWindows::new(Default::default()).into(),
        ];
        for agent in &all {
            let counters = agent.counters();
            for name in shown(agent) {
                let known = counters.iter().any(|(counter, _)| in_metrics(counter) == *name);
                assert!(known, "{}: {name}", kind(agent));
            }
        }
    }
}
