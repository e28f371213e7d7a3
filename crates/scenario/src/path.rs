//! Which nodes help a mobile from within its path: the bases, supervisors and mobile routers where
//! its agents live.

use std::collections::VecDeque;

use lasthop_units::{Scheme, WorksAt};

use super::complaint::Complaints;
use super::link_sets;
use super::mobile_tcp::MobileTcpSettings;
use super::model::{Flow, LinkIndex, NodeIndex, NodeKind, Scenario};

/// A mobile host whose packets pass through agents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathHelp {
    /// By which scheme.
    pub scheme: Scheme,
    /// Whose.
    pub mobile: NodeIndex,
    /// The first of its flows, whose settings hold for all.
    pub flow: usize,
    /// Where, for each cell of the handoff in its order; one if nobody on the way moves.
    pub stations: Vec<Station>,
}

/// Where a mobile's agents live while one cell serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Station {
    /// The base; with M-TCP the supervisor, if there is one.
    pub base: NodeIndex,
    /// The link from it towards the mobile.
    pub hop: LinkIndex,
    /// The node at the other end of that link.
    pub beyond: NodeIndex,
    /// The mobile router behind the base.
    pub router: Option<NodeIndex>,
}

impl Scenario {
    /// The mobiles that agents in the path help.
    pub fn path_help(&self) -> Vec<PathHelp> {
        find(self, &mut Complaints::default())
    }

    /// The mobile end of a flow, if it has exactly one.
    pub fn mobile_end(&self, flow: &Flow) -> Option<NodeIndex> {
        let is_mobile = |n: NodeIndex| self.node(n).kind == NodeKind::MobileHost;
        match (is_mobile(flow.from), is_mobile(flow.to)) {
            (true, false) => Some(flow.from),
            (false, true) => Some(flow.to),
            (true, true) | (false, false) => None,
        }
    }

    /// The nodes from `from` to `to`, both included, with the link that leads to each but the
    /// first, while `cell` serves; nothing if no way leads there.
    pub fn way(
        &self,
        from: NodeIndex,
        to: NodeIndex,
        cell: Option<LinkIndex>,
    ) -> Vec<(NodeIndex, Option<LinkIndex>)> {
        self.way_along(from, to, |link| self.serves(link, cell))
    }

    /// The same along links that are `usable`.
    pub fn way_along(
        &self,
        from: NodeIndex,
        to: NodeIndex,
        usable: impl Fn(LinkIndex) -> bool,
    ) -> Vec<(NodeIndex, Option<LinkIndex>)> {
        // Found from the far end, so that the way back falls out in order.
        let mut next: Vec<Option<(NodeIndex, LinkIndex)>> = vec![None; self.nodes.len()];
        let mut open = VecDeque::from([to]);
        while let Some(here) = open.pop_front().filter(|here| *here != from) {
            for (i, link) in self.links.iter().enumerate() {
                let (index, there) = (LinkIndex(i), link.far_end(here));
                let leads = link.ends.contains(&here) && usable(index);
                if leads && there != to && next[there.0].is_none() {
                    next[there.0] = Some((here, index));
                    open.push_back(there);
                }
            }
        }
        let mut way = vec![(from, None)];
        let mut at = from;
        while at != to {
            let Some((there, link)) = next[at.0] else { return Vec::new() };
            way.push((there, Some(link)));
            at = there;
        }
        way
    }

    /// Whether routes lead over a link while `cell` serves: of several links to one base over the first.
    pub fn serves(&self, link: LinkIndex, cell: Option<LinkIndex>) -> bool {
        let cells = self.handoff.as_ref().map(|h| h.cells.as_slice()).unwrap_or_default();
        let carries = !cells.contains(&link) || cell == Some(link);
        carries && !link_sets::is_aside(&self.link_sets, link)
    }
}

/// Finds them, and complains about what cannot be helped so.
pub(crate) fn find(scenario: &Scenario, wrong: &mut Complaints) -> Vec<PathHelp> {
    let mut all: Vec<PathHelp> = Vec::new();
    for (i, flow) in scenario.flows.iter().enumerate() {
        let Some(scheme) = flow.schemes.path() else { continue };
        let Some(mobile) = scenario.mobile_end(flow) else {
            let remedy = "give it scheme none, or let one end be fixed";
            wrong.add(&at(flow), format!("{scheme} helps one mobile end, and both are"), remedy);
            continue;
        };
        if all.iter().any(|h| h.mobile == mobile) {
            continue;
        }
        if let Some(stations) = stations(scenario, flow, scheme, mobile, wrong) {
            all.push(PathHelp { scheme, mobile, flow: i, stations });
        }
    }
    for flow in &scenario.flows {
        let Some(mobile) = scenario.mobile_end(flow) else { continue };
        let Some(help) = all.iter().find(|h| h.mobile == mobile) else { continue };
        if flow.schemes.path() != Some(help.scheme) {
            let other = &scenario.flows[help.flow].name;
            let message = format!(
                "the agents of {} see all packets of `{}`, and flow `{other}` asks for them",
                help.scheme,
                scenario.node(mobile).name
            );
            wrong.add(&at(flow), message, "give both flows that scheme, or a mobile each");
        }
    }
    all
}

fn at(flow: &Flow) -> [&str; 3] {
    ["flow", &flow.name, "scheme"]
}

fn stations(
    scenario: &Scenario,
    flow: &Flow,
    scheme: Scheme,
    mobile: NodeIndex,
    wrong: &mut Complaints,
) -> Option<Vec<Station>> {
    let fixed = if flow.from == mobile { flow.to } else { flow.from };
    let cells: Vec<Option<LinkIndex>> = match &scenario.handoff {
        Some(handoff) => handoff.cells.iter().copied().map(Some).collect(),
        None => vec![None],
    };
    let mut stations = Vec::with_capacity(cells.len());
    for cell in cells {
        let way = scenario.way(fixed, mobile, cell);
        let kind = |n: NodeIndex| scenario.node(n).kind;
        let supervises = |n: NodeIndex| scheme == Scheme::MTcp && scenario.node(n).supervisor;
        let place = way
            .iter()
            .position(|(n, _)| supervises(*n))
            .or_else(|| way.iter().rposition(|(n, _)| kind(*n) == NodeKind::Base));
        let Some((base, beyond)) = place.and_then(|i| Some((way[i].0, way.get(i + 1)?))) else {
            let message = format!("{scheme} needs a base on the way, and there is none");
            wrong.add_once(&at(flow), message, "set `kind = \"base\"` where its agent shall live");
            return None;
        };
        let behind = way.iter().skip_while(|(n, _)| *n != base);
        let router = behind.map(|(n, _)| *n).find(|n| kind(*n) == NodeKind::MobileRouter);
        if scheme.traits().needs_mobile_router && router.is_none() {
            let message = format!("{scheme} needs a mobile router between base and mobile host");
            let remedy = "set `kind = \"mobile-router\"` where its second agent shall live";
            wrong.add_once(&at(flow), message, remedy);
            return None;
        }
        if scheme.ends_at_mobile() && beyond.0 != mobile {
            let does = if scheme.recovers_on_link() { "recovers" } else { "compresses headers" };
            let message = format!("{scheme} {does} on the link between a base and the mobile host");
            let remedy = "let the mobile host be at the other end of the base's link";
            wrong.add_once(&at(flow), message, remedy);
            return None;
        }
        let hop = beyond.1?;
        stations.push(Station { base, hop, beyond: beyond.0, router });
    }
    Some(stations)
}

/// Complains about schemes whose places hold something else already.
pub(crate) fn check(scenario: &Scenario, wrong: &mut Complaints) {
    find(scenario, wrong);
    link_sets::check(scenario, wrong);
    for flow in &scenario.flows {
        let bases = scenario.nodes.iter().any(|n| n.kind == NodeKind::Base);
        if let Some(scheme) = flow.schemes.surrogate().filter(|_| !bases) {
            let message = format!("{scheme} needs a base, and no node is one");
            wrong.add(&at(flow), message, "set `kind = \"base\"` where surrogates live");
        }
        let needs_mobile = [WorksAt::Mobile, WorksAt::Windows].map(|p| flow.schemes.at(p));
        if let Some(scheme) = needs_mobile.into_iter().flatten().next()
            && scenario.mobile_end(flow).is_none()
        {
            let remedy = "give it scheme none, or let one end be fixed";
            wrong.add_once(
                &at(flow),
                format!("{scheme} helps one mobile end, and both are"),
                remedy,
            );
        }
    }
    all_share_windows(scenario, wrong);
    edges(scenario, wrong);
    hops_keep_order(scenario, wrong);
    packets_fit(scenario, wrong);
}

/// Mobile TCP's packets are the hop's frames: what the scenario says of them must fit (LNK-3).
fn packets_fit(scenario: &Scenario, wrong: &mut Complaints) {
    let said = &scenario.mobile_tcp;
    let around = MobileTcpSettings::HEADER + said.pad.unwrap_or(0);
    let (key, data) = match said.packet {
        Some(packet) => ("packet", packet),
        None => ("pad", MobileTcpSettings::LEAST_PACKET),
    };
    let helped = scenario.flows.iter().filter(|f| f.schemes.contains(Scheme::MobileTcp));
    for mobile in helped.filter_map(|flow| scenario.mobile_end(flow)) {
        for link in scenario.links.iter().filter(|l| l.ends.contains(&mobile)) {
            let mtu = link.radio.up.mtu.min(link.radio.down.mtu);
            if around.saturating_add(data) > mtu {
                let message = format!(
                    "{data} bytes of data and {around} around them are more than the {mtu} that \
                     link `{}` carries",
                    link.name
                );
                wrong.add_once(
                    &["mobile-tcp", key],
                    message,
                    "give less, or raise the link's `mtu`",
                );
            }
        }
    }
}

/// Where a gap is a loss at once, nothing may be overtaken (MOB-25, LNK-11).
fn hops_keep_order(scenario: &Scenario, wrong: &mut Complaints) {
    for flow in &scenario.flows {
        let Some(scheme) = flow.schemes.iter().find(|s| s.needs_order()) else { continue };
        let Some(mobile) = scenario.mobile_end(flow) else { continue };
        for link in scenario.links.iter().filter(|l| l.ends.contains(&mobile)) {
            let ways = [("forward", &link.radio.up), ("backward", &link.radio.down)];
            let reorders = ways.iter().find(|(_, way)| way.reorder.is_some());
            if let Some((way, _)) = reorders {
                let message = format!(
                    "{way} packets overtake others, and {scheme} of flow `{}` takes each gap for a \
                     loss",
                    flow.name
                );
                let remedy = "leave `reorder` out, or use srp, which bears it";
                wrong.add_once(&["link", &link.name, "reorder"], message, remedy);
            }
        }
    }
}

/// Agents at a mobile's edge see all of its packets, and know no scheme that must be its TCP's own.
fn edges(scenario: &Scenario, wrong: &mut Complaints) {
    if !scenario.mobile.edge {
        return;
    }
    let at_edge = |flow: &Flow| -> Vec<Scheme> {
        flow.schemes.iter().filter(|scheme| scheme.acts_at_edge()).collect()
    };
    for (i, flow) in scenario.flows.iter().enumerate() {
        let Some(mobile) = scenario.mobile_end(flow) else { continue };
        if let Some(scheme) = flow.schemes.mobile().filter(|scheme| !scheme.acts_at_edge()) {
            let message = format!("{scheme} has no agent at an edge");
            wrong.add_once(&at(flow), message, "leave `mobile.edge` out, or take another scheme");
        }
        let before = &scenario.flows[..i];
        let same = before.iter().find(|f| scenario.mobile_end(f) == Some(mobile));
        if let Some(other) = same.filter(|other| at_edge(other) != at_edge(flow)) {
            let message = format!(
                "agents at the edge of `{}` see all of its packets, and flow `{}` has other schemes",
                scenario.node(mobile).name,
                other.name
            );
            wrong.add(&at(flow), message, "give both flows the same, or a mobile each");
        }
    }
}

/// Priorities are between all flows of a mobile (RWC-1).
fn all_share_windows(scenario: &Scenario, wrong: &mut Complaints) {
    let helped = |flow: &Flow| flow.schemes.contains(Scheme::Rwc);
    for flow in scenario.flows.iter().filter(|f| !helped(f)) {
        let Some(mobile) = scenario.mobile_end(flow) else { continue };
        let same = |f: &&Flow| helped(f) && scenario.mobile_end(f) == Some(mobile);
        if let Some(other) = scenario.flows.iter().find(same) {
            let message = format!(
                "rwc divides the window among all flows of `{}`, and flow `{}` asks for it",
                scenario.node(mobile).name,
                other.name
            );
            wrong.add(&at(flow), message, "let both flows have rwc, or a mobile each");
        }
    }
}
