//! Agents in the path: which machine stands at which node, and with what parameters.

use lasthop_agent::AnyAgent;
use lasthop_agent::link::{LinkConfig, LinkRetransmission};
use lasthop_agent::m_tcp::MTcp;
use lasthop_agent::obtcp::{self, Base, Router};
use lasthop_agent::snoop::Snoop;
use lasthop_agent::unsplit::{self, Unsplit};
use lasthop_scenario::{NodeIndex, PathHelp, RunError, Scenario, Station};
use lasthop_sim::agents::{AgentRouter, Help, Peers};
use lasthop_sim::net::Packet;
use lasthop_units::Scheme;

use super::addresses::address;

/// Any agent.
pub(super) type Helper = AnyAgent<Packet>;

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
