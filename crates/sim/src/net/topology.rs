//! Routes by the fewest hops, for scenarios that do not name them.

use core::net::Ipv4Addr;
use std::collections::VecDeque;

use super::{LinkId, Network, Node, NodeId};

impl<N: Node> Network<N> {
    /// Gives every node that can reach `owner` a route to `addr` over the fewest links; of equal
    /// ways the one whose first link was added first. Routes of other nodes stay as they are.
    pub fn route_to(&mut self, addr: Ipv4Addr, owner: NodeId) {
        let hops = self.hops_to(owner);
        let mut best = vec![None; self.nodes()];
        for (link, from, to) in self.edges() {
            let (Some(here), Some(there)) = (hops[from.index()], hops[to.index()]) else {
                continue;
            };
            if here == there + 1 && best[from.index()].is_none() {
                best[from.index()] = Some((from, link));
            }
        }
        for (node, link) in best.into_iter().flatten() {
            self.set_route(node, addr, Some(link));
        }
    }

    /// Links between each node and `owner`, where there is a way.
    fn hops_to(&self, owner: NodeId) -> Vec<Option<u32>> {
        let mut into = vec![Vec::new(); self.nodes()];
        for (_, from, to) in self.edges() {
            into[to.index()].push(from);
        }
        let mut hops = vec![None; self.nodes()];
        hops[owner.index()] = Some(0);
        let mut open = VecDeque::from([(owner, 0)]);
        while let Some((node, distance)) = open.pop_front() {
            for &from in &into[node.index()] {
                if hops[from.index()].is_none() {
                    hops[from.index()] = Some(distance + 1);
                    open.push_back((from, distance + 1));
                }
            }
        }
        hops
    }

    fn edges(&self) -> impl Iterator<Item = (LinkId, NodeId, NodeId)> + '_ {
        (0..self.links()).filter_map(|n| {
            let link = LinkId::new(n as u32);
            self.ends(link).map(|(from, to)| (link, from, to))
        })
    }
}
