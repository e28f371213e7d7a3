//! The links of a mobile beside its first: who is told of them, and how packets find its addresses there.

use lasthop_scenario::{Flow, LinkIndex, NodeIndex};
use lasthop_sim::net::LinkId;
use lasthop_sim::schemes::LinkBeside;
use lasthop_tcp::multipath::Scheduler;
use lasthop_units::{Scheme, Time};

use super::addresses::{address, address_by};
use super::machine::Machine;
use super::moves::Routes;
use super::network::Running;

/// What chooses among the subflows of a flow, if it is multipath.
fn scheduler(flow: &Flow) -> Option<Scheduler> {
    match flow.schemes.multipath()? {
        Scheme::MptcpEcf => Some(Scheduler::Ecf),
        Scheme::MptcpBlest => Some(Scheduler::Blest),
        _ => Some(Scheduler::MinRtt),
    }
}

impl Running<'_> {
    /// Lets whoever uses several links know of them.
    pub(super) fn add_ways(&mut self) {
        self.add_paths();
        self.add_subflows();
    }

    /// Sessions' mobiles have an address by each link that they use, and their bases know them by all.
    fn add_paths(&mut self) {
        for helped in &self.helped {
            let (mobile, base) = (helped.mobile, helped.first_base());
            for (n, link) in helped.beside.iter().enumerate() {
                let addr = address_by(mobile.0, n + 1);
                let [from, _] = self.directions(*link, mobile);
                let node = self.nodes[mobile.0];
                if let Machine::Mobile(station) = self.network.node_mut(node) {
                    station.add_link(
                        Time::ZERO,
                        LinkBeside { addr, link: from, base: address(base.0) },
                    );
                }
                if let Machine::Base(station) = self.network.node_mut(self.nodes[base.0]) {
                    station.add_address(address(mobile.0), addr);
                }
            }
        }
    }

    /// Multipath hosts know a way by each link.
    fn add_subflows(&mut self) {
        let scenario = self.scenario;
        for flow in &scenario.flows {
            let (Some(scheduler), Some(mobile)) = (scheduler(flow), scenario.mobile_end(flow))
            else {
                continue;
            };
            let fixed = if flow.from == mobile { flow.to } else { flow.from };
            let used = scenario.link_set(mobile).into_iter().flat_map(|set| &set.used);
            for (n, link) in used.enumerate().skip(1) {
                let (here, there) = (address_by(mobile.0, n), address(fixed.0));
                let [from, _] = self.directions(*link, mobile);
                if let Machine::Host(host) = self.network.node_mut(self.nodes[mobile.0]) {
                    host.use_multipath(scheduler);
                    host.add_address(here, from);
                    host.add_way(there, (here, there));
                }
                if let Machine::Host(host) = self.network.node_mut(self.nodes[fixed.0]) {
                    host.use_multipath(scheduler);
                    host.add_way(address(mobile.0), (there, here));
                }
            }
        }
    }

    /// Packets for a mobile's further addresses go as those for its first, and from its base by the link of each.
    pub(super) fn route_beside(&mut self, routes: &Routes) {
        for set in &self.scenario.link_sets {
            for (n, link) in set.used.iter().enumerate().skip(1) {
                let addr = address_by(set.mobile.0, n);
                let [_, to] = self.directions(*link, set.mobile);
                for (node, table) in routes.iter().enumerate() {
                    let is_base = NodeIndex(node) == set.base;
                    let link = if is_base { Some(to) } else { table[set.mobile.0] };
                    self.network.set_route(self.nodes[node], addr, link);
                }
            }
        }
    }

    /// A link of the network: from one of its ends, and to it.
    fn directions(&self, link: LinkIndex, end: NodeIndex) -> [LinkId; 2] {
        let [there, back] = self.link(link);
        if self.scenario.link(link).ends[0] == end { [there, back] } else { [back, there] }
    }
}
