//! From a scenario to a network.

use std::collections::VecDeque;

use lasthop_radio::{Count, LinkStats};
use lasthop_scenario::{Headers, Link, LinkIndex, Move, NodeIndex, PathHelp, RunError, Scenario};
use lasthop_sim::measure::BufferMeter;
use lasthop_sim::net::{self, Config, LinkId, Network, NodeId, SharedObserver, TapPoint};
use lasthop_sim::schemes::MobileHop;
use lasthop_tcp::Probe;
use lasthop_units::{Bytes, Seed};

use super::addresses::port;
use super::build;
use super::helped::{self, Helped};
use super::machine::Machine;
use super::transfer::Transfer;

/// A scenario on its way.
pub(super) struct Running<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) network: Network<Machine>,
    pub(super) nodes: Vec<NodeId>,
    /// Each link in both directions: from its first end, and back.
    pub(super) links: Vec<[LinkId; 2]>,
    pub(super) helped: Vec<Helped>,
    /// The mobiles that agents in the path help.
    pub(super) help: Vec<PathHelp>,
    /// What each flow had received when rates began to count.
    pub(super) before: Vec<Bytes>,
    /// How evenly it had come by then.
    pub(super) buffers_before: Vec<BufferMeter>,
    /// What each link had done by then.
    pub(super) links_before: Vec<[LinkStats; 2]>,
    /// The mobile's moves, in order of time.
    pub(super) moves: Vec<Move>,
    /// What moves between supervisors, in order of time.
    pub(super) transfers: VecDeque<Transfer>,
}

impl<'a> Running<'a> {
    /// Builds the network; nothing in it has a route yet.
    pub(super) fn new(scenario: &'a Scenario, seed: Seed) -> Result<Self, RunError> {
        let mut network = Network::new(Config {
            headers: match scenario.headers {
                Headers::Counted => net::Headers::Counted,
                Headers::Free => net::Headers::Free,
            },
            ..Config::new(seed.child("network"))
        });
        let helped = helped::helped(scenario)?;
        let help = scenario.path_help();
        let machine =
            |index: usize| build::machine(scenario, &helped, &help, NodeIndex(index), seed);
        let mut nodes = Vec::with_capacity(scenario.nodes.len());
        for index in 0..scenario.nodes.len() {
            nodes.push(network.add_node(machine(index)?));
        }
        let mut links = Vec::with_capacity(scenario.links.len());
        for link in &scenario.links {
            let [first, second] = link.ends.map(|end| nodes[end.0]);
            let Link { name, radio, .. } = link;
            let [back, there] = match link.half_duplex {
                true => network.add_half_duplex_radio(name, second, first, &radio.up),
                false => network.add_named_radio(name, second, first, radio),
            }
            .map_err(|e| RunError::Failed(format!("link `{name}`: {e}")))?;
            links.push([there, back]);
        }
        let mut running = Self {
            scenario,
            network,
            nodes,
            links,
            helped,
            help,
            before: Vec::new(),
            buffers_before: Vec::new(),
            links_before: Vec::new(),
            moves: scenario.handoff.iter().flat_map(|h| h.moves(seed)).collect(),
            transfers: VecDeque::new(),
        };
        running.add_ways();
        Ok(running)
    }

    /// A node of the network.
    pub(super) fn node(&self, index: NodeIndex) -> NodeId {
        self.nodes[index.0]
    }

    /// A link of the network: from its first end, and back.
    pub(super) fn link(&self, index: LinkIndex) -> [LinkId; 2] {
        self.links[index.0]
    }

    /// Lets somebody watch.
    pub(super) fn tap(&mut self, point: TapPoint, observer: SharedObserver) {
        self.network.tap(point, observer);
    }

    /// What waits for each direction of a link.
    pub(super) fn queues(&mut self, link: usize) -> [Count; 2] {
        self.links[link].map(|id| self.network.link_queue(id))
    }

    /// The bytes that are on the hop for the mobile end that opened a flow, where no TCP crosses it.
    pub(super) fn on_hop(&self, flow: usize) -> Option<Bytes> {
        match self.network.node(self.node(self.scenario.flows[flow].from)) {
            Machine::Mobile(mobile) => match mobile.hop() {
                MobileHop::Tcp(_) => None,
                MobileHop::Srp(srp) => Some(srp.stats().inflight),
                MobileHop::MobileTcp(mobile) => Some(mobile.stats().inflight),
            },
            _ => None,
        }
    }

    /// The state of a flow's connection at the end that opened it, while there is one.
    pub(super) fn probe(&self, flow: usize) -> Option<Probe> {
        let machine = self.network.node(self.node(self.scenario.flows[flow].from));
        if let Some(host) = machine.host() {
            let connection = host.app().flow(port(flow))?;
            return host.connection(connection).map(|c| c.probe());
        }
        let Machine::Mobile(mobile) = machine else { return None };
        // Its connections are the hop's; of several the latest stands for all.
        match mobile.hop() {
            MobileHop::Tcp(streams) => streams.sockets().last().map(|s| s.connection().probe()),
            MobileHop::Srp(_) | MobileHop::MobileTcp(_) => None,
        }
    }

    /// A flow's name.
    pub(super) fn name(&self, flow: usize) -> &str {
        &self.scenario.flows[flow].name
    }
}
