//! Where packets go, and how that changes when a mobile moves.

use std::collections::VecDeque;

use lasthop_agent::m_tcp::MTcp;
use lasthop_scenario::{
    Handoff, LinkIndex, Move, NodeIndex, NodeKind, PathHelp, RunError, Station,
};
use lasthop_sim::net::{Event, LinkId, Node, Packet};
use lasthop_sim::schemes::BaseNotice;
use lasthop_sim::signals::{Outage, Signal, Signals, SignalsError};
use lasthop_units::{Duration, LinkEvent, Scheme, Seed, Time};

use super::addresses::address;
use super::edge;
use super::network::Running;
use super::transfer::{Change, Transfer};

/// A mobile whose session was not told of its new base hears that base's next advertisement
/// (MIP-8: about a second).
const ADVERTISEMENT: Duration = Duration::from_secs(1);

/// By node and owner of the address.
pub(super) type Routes = Vec<Vec<Option<LinkId>>>;

impl Running<'_> {
    /// Sets the routes of the beginning, and plans the moves and who hears of them.
    pub(super) fn plan(&mut self, seed: Seed) -> Result<(), RunError> {
        self.route();
        self.signal(seed)?;
        self.move_agents();
        Ok(())
    }

    /// Sets the routes of the beginning, and schedules the moves.
    fn route(&mut self) {
        let handoff = self.scenario.handoff.as_ref();
        let mut cell = handoff.and_then(|h| h.cells.first().copied());
        let mut routes = self.routes(cell);
        for (node, table) in routes.iter().enumerate() {
            for (owner, link) in table.iter().enumerate() {
                self.network.set_route(self.nodes[node], address(owner), *link);
            }
        }
        self.route_beside(&routes);
        let Some(handoff) = handoff else { return };
        for &idle in handoff.cells.iter().filter(|c| Some(**c) != cell) {
            self.switch(Time::ZERO, idle, false);
        }
        for Move { at, pause, cell: next } in self.moves.clone() {
            let down = Time::ZERO + at;
            let up = down + pause;
            if let Some(cell) = cell {
                self.switch(down, cell, false);
            }
            self.switch(up, next, true);
            let after = self.routes(Some(next));
            self.reroute(handoff, up, &routes, &after);
            cell = Some(next);
            routes = after;
        }
    }

    /// Tells the mobile what is known of its links (LNK-14) and, where it is helped, of its bases
    /// (MIP-6).
    fn signal(&mut self, seed: Seed) -> Result<(), RunError> {
        let Some(handoff) = &self.scenario.handoff else { return Ok(()) };
        let failed = |e: SignalsError| RunError::Failed(format!("signals: {e}"));
        let mut signals = Signals::new(
            self.scenario.signals,
            address(handoff.mobile.0),
            seed.child("signals"),
            Time::ZERO,
        )
        .map_err(failed)?;
        let base = |cell: LinkIndex| self.scenario.link(cell).far_end(handoff.mobile);
        let listeners = self.listeners(handoff);
        let mut cell = handoff.cells.first().copied();
        let moves = self.moves.clone();
        for (n, &Move { at, pause, cell: next }) in moves.iter().enumerate() {
            let (down, up) = (Time::ZERO + at, Time::ZERO + at + pause);
            let links = [cell.unwrap_or(next), next];
            let outage = Outage { down, up, base: address(base(next).0) };
            signals.plan(Time::ZERO, &outage).map_err(failed)?;
            while let Some(due) = signals.next_timeout().filter(|t| *t <= up) {
                while let Some((at, signal)) = signals.poll_signal(due) {
                    self.report_signal(handoff, &listeners, links, at, signal);
                }
            }
            // Who is helped hears of its base once packets find it there.
            let here = Signal::HandoffComplete { base: address(base(next).0) };
            signals.handle_complete(up + handoff.registration, address(base(next).0));
            let mut told = false;
            while let Some(due) = signals.next_timeout() {
                while let Some((at, signal)) = signals.poll_signal(due) {
                    told |= signal == here;
                    self.report_signal(handoff, &listeners, links, at, signal);
                }
            }
            let heard = up + handoff.registration + ADVERTISEMENT;
            let stays = moves.get(n + 1).is_none_or(|next| heard < Time::ZERO + next.at);
            if !told && stays && self.helped.iter().any(|h| h.mobile == handoff.mobile) {
                self.report_signal(handoff, &listeners, links, heard, here);
            }
            cell = Some(next);
        }
        Ok(())
    }

    /// Who hears of a mobile's links: itself, and the hosts behind it if it is a router, which it
    /// tells at once.
    fn listeners(&self, handoff: &Handoff) -> Vec<NodeIndex> {
        let scenario = self.scenario;
        let cell = handoff.cells.first().copied();
        let base = cell.map(|cell| scenario.link(cell).far_end(handoff.mobile));
        let behind = |node: &NodeIndex| {
            let is_host = scenario.node(*node).kind == NodeKind::MobileHost;
            let through = |base| {
                let way = scenario.way(*node, base, cell);
                way.iter().any(|(n, _)| *n == handoff.mobile)
            };
            is_host && base.is_some_and(through)
        };
        let others = (0..scenario.nodes.len()).map(NodeIndex).filter(|n| *n != handoff.mobile);
        let behind: Vec<NodeIndex> = others.filter(behind).collect();
        [handoff.mobile].into_iter().chain(behind).collect()
    }

    fn report_signal(
        &mut self,
        handoff: &Handoff,
        listeners: &[NodeIndex],
        [old, new]: [LinkIndex; 2],
        at: Time,
        signal: Signal,
    ) {
        let mobile = handoff.mobile;
        let tidings = match signal {
            Signal::HandoffComplete { base } => Some(BaseNotice::Here(base)),
            Signal::HandoffImminent { candidate, lead } => {
                Some(BaseNotice::Imminent(candidate, lead))
            }
            _ => None,
        };
        if let Some(tidings) = tidings.filter(|_| self.helped.iter().any(|h| h.mobile == mobile)) {
            let (node, token) = (self.nodes[mobile.0], tidings.token());
            self.network.schedule(at, Event::Token { node, token });
            if let BaseNotice::Here(_) = tidings {
                return;
            }
        }
        let event = signal.link_event();
        let link = if matches!(event, LinkEvent::Up | LinkEvent::Complete) { new } else { old };
        let outward = usize::from(self.scenario.link(link).ends[0] != mobile);
        let link = self.links[link.0][outward];
        for listener in listeners {
            self.network.schedule(at, Event::Signal { node: self.nodes[listener.0], link, event });
        }
    }

    /// What agents in the path learn of moves: those at bases hear of the hop at once; the old base
    /// forgets a mobile, and its link talks to the new one, when packets go the new way (SNP-11).
    /// What a supervisor knows goes to the next (MTC-7).
    fn move_agents(&mut self) {
        for help in &self.help.clone() {
            self.name_hops(help);
            let Some(handoff) = &self.scenario.handoff else { continue };
            let mut cell = 0;
            for (n, Move { at, pause, .. }) in self.moves.clone().into_iter().enumerate() {
                let next = (n + 1) % handoff.cells.len();
                let down = Time::ZERO + at;
                let up = down + pause;
                let (old, new) = (help.stations[cell], help.stations[next]);
                if old.hop == handoff.cells[cell] {
                    self.tell_agent(down, old, LinkEvent::Down);
                    self.tell_agent(up, new, LinkEvent::Up);
                }
                if old.base != new.base {
                    self.move_agent(help, [old, new], up, up + handoff.registration);
                }
                cell = next;
            }
        }
        self.schedule_priorities();
        self.transfers.make_contiguous().sort_by_key(|transfer| transfer.at);
    }

    /// Users change their minds; where windows are divided by the mobile's own TCP, its traffic says
    /// so itself.
    fn schedule_priorities(&mut self) {
        let scenario = self.scenario;
        if !scenario.mobile.edge {
            return;
        }
        for (n, change) in scenario.rwc.changes.iter().enumerate() {
            let Some(mobile) = scenario.mobile_end(&scenario.flows[change.flow]) else { continue };
            let (at, node) = (Time::ZERO + change.at, self.nodes[mobile.0]);
            let change = Change::Wishes { node, changes: n + 1 };
            self.transfers.push_back(Transfer { at, mobile: address(mobile.0), change });
        }
    }

    fn move_agent(&mut self, help: &PathHelp, [old, new]: [Station; 2], up: Time, complete: Time) {
        let mobile = address(help.mobile.0);
        let [from, to] = [old, new].map(|station| self.nodes[station.base.0]);
        if help.scheme == Scheme::MTcp {
            let change = Change::State { from, to, hop: self.outward(new) };
            self.transfers.push_back(Transfer { at: complete, mobile, change });
            return;
        }
        let token = u64::from(mobile.to_bits());
        self.network.schedule(complete, Event::Token { node: from, token });
        if let Some(router) = new.router.filter(|_| help.scheme == Scheme::Obtcp) {
            let (node, base) = (self.nodes[router.0], address(new.base.0));
            let change = Change::Base { node, base };
            self.transfers.push_back(Transfer { at: up, mobile, change });
        }
        if help.scheme.ends_at_mobile() {
            let token = u64::from(address(new.base.0).to_bits());
            let node = self.nodes[help.mobile.0];
            self.network.schedule(up, Event::Token { node, token });
        }
    }

    /// An agent at a base hears of its mobile's hop and of no other, unless the base has several
    /// for that mobile.
    fn name_hops(&mut self, help: &PathHelp) {
        for station in &help.stations {
            let mut here = help.stations.iter().filter(|s| s.base == station.base);
            if here.all(|s| s.hop == station.hop) {
                let (hop, mobile) = (self.outward(*station), address(help.mobile.0));
                self.network.with_node(self.nodes[station.base.0], |m, _| m.set_hop(mobile, hop));
            }
        }
    }

    /// Moves a supervisor's state and lets the new one know that the hop is there, or lets a mobile
    /// router talk to its new base.
    pub(super) fn transfer(&mut self, Transfer { at, mobile, change }: &Transfer) {
        match *change {
            Change::State { from, to, hop } => {
                let take = |m: &mut MTcp<Packet>| m.take((*mobile).into());
                let state = self.network.with_node(from, |m, _| m.supervisor(*mobile).map(take));
                self.network.with_node(to, |m, ctx| {
                    if let (Some(state), Some(agent)) = (state, m.supervisor(*mobile)) {
                        agent.adopt(*at, state);
                    }
                    m.handle_link_event(ctx, hop, LinkEvent::Up);
                });
            }
            Change::Base { node, base } => {
                self.network.with_node(node, |m, _| m.set_base(*mobile, base));
            }
            Change::Wishes { node, changes } => {
                let rules = edge::rules(self.scenario, changes);
                self.network.with_node(node, |m, ctx| m.set_rules(ctx.now(), rules));
            }
        }
    }

    fn tell_agent(&mut self, at: Time, station: Station, event: LinkEvent) {
        let (node, link) = (self.nodes[station.base.0], self.outward(station));
        self.network.schedule(at, Event::Signal { node, link, event });
    }

    /// The direction of a station's hop that leads to the mobile.
    fn outward(&self, station: Station) -> LinkId {
        let back = usize::from(self.scenario.link(station.hop).ends[0] != station.base);
        self.links[station.hop.0][back]
    }

    fn switch(&mut self, at: Time, cell: LinkIndex, up: bool) {
        for link in self.links[cell.0] {
            let event = if up { Event::LinkUp(link) } else { Event::LinkDown(link) };
            self.network.schedule(at, event);
        }
    }

    /// The mobile knows its new base as soon as it has a link; the others hear of it later (MIP-8).
    fn reroute(&mut self, handoff: &Handoff, at: Time, before: &Routes, after: &Routes) {
        for (node, (old, new)) in before.iter().zip(after).enumerate() {
            let delay = match NodeIndex(node) == handoff.mobile {
                true => Duration::ZERO,
                false => handoff.registration,
            };
            for (owner, link) in new.iter().enumerate() {
                if old[owner] != *link {
                    let dst = address(owner);
                    let event = Event::Route { node: self.nodes[node], dst, link: *link };
                    self.network.schedule(at + delay, event);
                }
            }
        }
    }

    /// Which link leads from each node to each host, while `cell` serves.
    fn routes(&self, cell: Option<LinkIndex>) -> Routes {
        let count = self.scenario.nodes.len();
        let mut routes = vec![vec![None; count]; count];
        for owner in 0..count {
            let surrogates = self.helped.iter().flat_map(|h| &h.bases);
            let stations = self.help.iter().flat_map(|h| &h.stations);
            let agents = stations.flat_map(|s| [Some(s.base), s.router]).flatten();
            let called = surrogates.copied().chain(agents).any(|n| n == NodeIndex(owner));
            if called || self.scenario.nodes[owner].kind.is_host() {
                self.towards(owner, cell, &mut routes);
            }
        }
        routes
    }

    fn towards(&self, owner: usize, cell: Option<LinkIndex>, routes: &mut Routes) {
        let mut open = VecDeque::from([NodeIndex(owner)]);
        let mut known = vec![false; routes.len()];
        known[owner] = true;
        while let Some(here) = open.pop_front() {
            for (i, link) in self.scenario.links.iter().enumerate() {
                if !link.ends.contains(&here) || !self.scenario.serves(LinkIndex(i), cell) {
                    continue;
                }
                let there = link.far_end(here);
                if !known[there.0] {
                    known[there.0] = true;
                    let [forward, backward] = self.links[i];
                    let way = if link.ends[0] == there { forward } else { backward };
                    routes[there.0][owner] = Some(way);
                    open.push_back(there);
                }
            }
        }
    }
}
