//! What stands at each node, from what the scenario says.

use lasthop_scenario::{Flow, NodeIndex, PathHelp, RunError, Scenario};
use lasthop_sim::agents::Linked;
use lasthop_sim::net::host::Content;
use lasthop_sim::net::traffic::{Client, Traffic as Play, User, Wish};
use lasthop_sim::net::{Host, Router};
use lasthop_sim::schemes::{BaseStation, MobileStation};
use lasthop_units::{Duration, Scheme, Seed, Time};

use super::addresses::{address, port};
use super::agents;
use super::apps::{self, Apps};
use super::datagram_work;
use super::edge;
use super::helped::Helped;
use super::machine::Machine;
use super::mobility;
use super::mtu::{path_mtu, wired_mtu};
use super::tcp::{config, held};

/// Services begin to listen at zero, and nobody calls before.
const FIRST: Duration = Duration::from_nanos(1);

/// What stands at the node of this index.
///
/// # Errors
///
/// An agent refuses its parameters.
pub(super) fn machine(
    scenario: &Scenario,
    helped: &[Helped],
    help: &[PathHelp],
    index: NodeIndex,
    seed: Seed,
) -> Result<Machine, RunError> {
    let node = scenario.node(index);
    if let Some(help) = helped.iter().find(|h| h.bases.contains(&index)) {
        let own = seed.child("base").child(&node.name);
        let mut base = BaseStation::new(address(index.0), help.base_config(), own);
        for served in helped.iter().filter(|h| h.first_base() == index) {
            base.serve(address(served.mobile.0));
        }
        return Ok(Machine::Base(Box::new(base)));
    }
    if !node.kind.is_host() {
        return Ok(match agents::at_node(scenario, help, index)? {
            Some(agents) => Machine::Agents(Box::new(agents)),
            None => Machine::Router(Router::new([address(index.0)])),
        });
    }
    let own = seed.child("host").child(&node.name);
    let content = if scenario.measure.bytes { Content::Real } else { Content::Virtual };
    let bounded = |config| if scenario.measure.bytes { held(config) } else { config };
    let mut play = Play::new(own).carrying(content);
    for (i, flow) in scenario.flows.iter().enumerate() {
        let mtu = match helped.iter().find(|h| [flow.from, flow.to].contains(&h.mobile)) {
            Some(h) => wired_mtu(scenario, flow, &h.bases, h.mobile),
            None => path_mtu(scenario, flow),
        };
        let (Some(work), Some(service)) = (apps::work(flow.traffic), apps::service(flow.traffic))
        else {
            play = datagrams(play, flow, index, i);
            continue;
        };
        if flow.from == index {
            play = play.start(Client {
                at: Time::ZERO + flow.start.max(FIRST),
                dst: (address(flow.to.0), port(i)),
                config: mobility::helped(
                    scenario,
                    flow,
                    index,
                    bounded(config(&flow.tcp.from, mtu)),
                ),
                work,
            });
        } else if flow.to == index {
            let config =
                mobility::helped(scenario, flow, index, bounded(config(&flow.tcp.to, mtu)));
            play = play.serve(port(i), config, service);
        }
    }
    let apps = Apps::new(with_user(scenario, index, play));
    if let Some(h) = helped.iter().find(|h| h.mobile == index) {
        let (base, config) = (address(h.first_base().0), h.mobile_config());
        let mobile = MobileStation::new(address(index.0), base, config, own, apps);
        return Ok(Machine::Mobile(Box::new(mobile)));
    }
    let mut host = Host::new(address(index.0), own, apps);
    let flows = scenario.flows.iter().enumerate();
    for (i, _) in flows.filter(|(_, flow)| flow.encrypted) {
        host.encrypt(port(i));
    }
    let mut machine = Machine::Host(Box::new(host));
    for agent in edge::at_edge(scenario, index) {
        // It talks to no other agent.
        let linked = Linked::new(machine, address(index.0), agent, address(index.0));
        machine = Machine::Linked(Box::new(linked));
    }
    let mut halves = help.iter().filter(|h| h.mobile == index && h.scheme.ends_at_mobile());
    Ok(match halves.find_map(|h| Some((h.scheme, h.stations.first()?))) {
        Some((scheme, station)) => {
            let agent = agents::at_mobile(scenario, scheme, station);
            let base = address(station.base.0);
            Machine::Linked(Box::new(Linked::new(machine, address(index.0), agent, base)))
        }
        None => machine,
    })
}

/// Adds a host's end of a flow of datagrams, if it has one.
fn datagrams(play: Play, flow: &Flow, host: NodeIndex, number: usize) -> Play {
    let at = Time::ZERO + flow.start.max(FIRST);
    match datagram_work::work(flow.traffic) {
        Some(work) if flow.from == host => {
            play.send_datagrams(at, (address(flow.to.0), port(number)), work)
        }
        Some(_) if flow.to == host => play.take_datagrams(port(number)),
        _ => play,
    }
}

/// Lets the user of a mobile host give its flows priorities, where they are helped so (RWC-1).
fn with_user(scenario: &Scenario, index: NodeIndex, play: Play) -> Play {
    let rwc = &scenario.rwc;
    let flows = scenario.flows.iter().enumerate();
    let own = flows.filter(|(_, flow)| {
        flow.schemes.contains(Scheme::Rwc) && scenario.mobile_end(flow) == Some(index)
    });
    let own: Vec<usize> = own.map(|(i, _)| i).collect();
    if own.is_empty() || scenario.mobile.edge {
        return play;
    }
    let wish = |flow: usize, priority| Wish::Priority { port: port(flow), priority };
    let priority = |flow: usize| rwc.priorities.get(flow).copied().unwrap_or(1);
    let first = own.iter().map(|flow| (Time::ZERO, wish(*flow, priority(*flow))));
    let changes = rwc.changes.iter().filter(|change| own.contains(&change.flow));
    let changes = changes.map(|c| (Time::ZERO + c.at, wish(c.flow, c.priority)));
    let says = first.chain(changes).collect();
    play.used_by(User { window: Some(u64::from(rwc.packets)), says })
}
