//! Mobile hosts with several links to one base: which of them each uses, and which scheme can use more
//! than one.

use lasthop_hop::PATHS_MAX;

use super::complaint::Complaints;
use super::model::{Link, LinkIndex, LinkSet, Node, NodeIndex, NodeKind, Scenario};
use super::problem::suggest;

impl Scenario {
    /// The links of a mobile host, if it has several to one base.
    pub fn link_set(&self, mobile: NodeIndex) -> Option<&LinkSet> {
        self.link_sets.iter().find(|set| set.mobile == mobile)
    }
}

/// Whether routes know nothing of a link, since another leads to the same place.
pub(crate) fn is_aside(sets: &[LinkSet], link: LinkIndex) -> bool {
    sets.iter().any(|set| set.aside().any(|aside| aside == link))
}

/// Finds them, and complains about links that a mobile cannot use. Links between which a handoff changes
/// take turns, and are in no set.
pub(crate) fn find(
    nodes: &[Node],
    links: &[Link],
    cells: Option<&[LinkIndex]>,
    wrong: &mut Complaints,
) -> Vec<LinkSet> {
    // With one cell a handoff is a disconnection, and that link stays with the others.
    let turns = cells.filter(|cells| cells.iter().any(|cell| *cell != cells[0]));
    let takes_turns = |link: &LinkIndex| turns.is_some_and(|cells| cells.contains(link));
    let mut sets = Vec::new();
    for (n, node) in nodes.iter().enumerate() {
        let mobile = NodeIndex(n);
        let own: Vec<LinkIndex> = (0..links.len())
            .map(LinkIndex)
            .filter(|l| links[l.0].ends.contains(&mobile) && !takes_turns(l))
            .collect();
        let named = named(node, mobile, links, &own, wrong);
        for base in (0..nodes.len()).map(NodeIndex) {
            let joins = |link: &LinkIndex| links[link.0].far_end(mobile) == base;
            let all: Vec<LinkIndex> = own.iter().copied().filter(joins).collect();
            let several = all.len() > 1
                && node.kind == NodeKind::MobileHost
                && nodes[base.0].kind == NodeKind::Base;
            if !several {
                continue;
            }
            let used: Vec<LinkIndex> = match node.links.is_empty() {
                true => all.clone(),
                false => named.iter().copied().filter(joins).collect(),
            };
            if used.is_empty() && named.len() == node.links.len() {
                let (mobile, base) = (&node.name, &nodes[base.0].name);
                let message = format!("names none of the links that join `{mobile}` and `{base}`");
                let all = all.iter().map(|link| links[link.0].name.as_str());
                let remedy = format!("there are {}", all.collect::<Vec<_>>().join(", "));
                wrong.add(&["node", mobile, "links"], message, remedy);
            }
            if used.len() > PATHS_MAX {
                let message = format!(
                    "uses {} links, more than the {PATHS_MAX} of an association",
                    used.len()
                );
                let remedy = "name fewer under `links`";
                wrong.add(&["node", &node.name, "links"], message, remedy);
            }
            let idle = all.into_iter().filter(|link| !used.contains(link)).collect();
            sets.push(LinkSet { mobile, base, used, idle });
        }
    }
    sets
}

/// The links that a node names, as far as they are its own.
fn named(
    node: &Node,
    mobile: NodeIndex,
    links: &[Link],
    own: &[LinkIndex],
    wrong: &mut Complaints,
) -> Vec<LinkIndex> {
    let path = ["node", node.name.as_str(), "links"];
    if !node.links.is_empty() && node.kind != NodeKind::MobileHost {
        let remedy = "leave `links` out, or name those of a `mobile-host`";
        wrong.add(&path, "only a mobile host chooses among links", remedy);
        return Vec::new();
    }
    let mut found = Vec::new();
    for name in &node.links {
        let index = links.iter().position(|link| link.name == *name).map(LinkIndex);
        match index {
            Some(index) if found.contains(&index) => {
                wrong.add(&path, format!("names link `{name}` twice"), "name each once");
            }
            Some(index) if own.contains(&index) => found.push(index),
            Some(index) if links[index.0].ends.contains(&mobile) => {
                let remedy = "leave it out of `handoff.cells`, or out of here";
                wrong.add(&path, format!("link `{name}` takes turns with other cells"), remedy);
            }
            Some(_) => {
                let message = format!("link `{name}` does not end at `{}`", node.name);
                wrong.add(&path, message, "name links of this mobile host");
            }
            None => {
                let known = own.iter().map(|link| links[link.0].name.as_str());
                wrong.add(&path, format!("there is no link `{name}`"), suggest(name, known));
            }
        }
    }
    found
}

/// Complains about schemes that cannot use all the links that their mobile uses, and about those that use all
/// beside others.
pub(crate) fn check(scenario: &Scenario, wrong: &mut Complaints) {
    multipath_alone(scenario, wrong);
    for set in scenario.link_sets.iter().filter(|set| set.used.len() > 1) {
        let mobile = &scenario.node(set.mobile).name;
        let name = |link: &LinkIndex| format!("`{}`", scenario.link(*link).name);
        let used: Vec<String> = set.used.iter().map(name).collect();
        let own = scenario.flows.iter().filter(|f| [f.from, f.to].contains(&set.mobile));
        for flow in own.filter(|f| !f.schemes.uses_several_links()) {
            let message = format!(
                "{} goes by one link, and `{mobile}` uses {}: {}",
                flow.schemes.name(),
                used.len(),
                used.join(", ")
            );
            let remedy = format!("name the one with `node.{mobile}.links`, or use scheme `bond`");
            wrong.add(&["flow", &flow.name, "scheme"], message, remedy);
        }
    }
}

/// Multipath is a mobile's own, whatever a flow of it says, and carries no bytes.
fn multipath_alone(scenario: &Scenario, wrong: &mut Complaints) {
    for flow in scenario.flows.iter().filter(|f| f.schemes.multipath().is_some()) {
        let path = ["flow", flow.name.as_str(), "scheme"];
        let name = flow.schemes.name();
        let Some(mobile) = scenario.mobile_end(flow) else {
            let remedy = "give it scheme none, or let one end be fixed";
            wrong.add(&path, format!("{name} helps one mobile end, and both are"), remedy);
            continue;
        };
        let others = scenario.flows.iter().filter(|f| [f.from, f.to].contains(&mobile));
        if let Some(other) = others.into_iter().find(|other| other.schemes != flow.schemes) {
            let message = format!(
                "{name} is for all connections of `{}`, and flow `{}` has {}",
                scenario.node(mobile).name,
                other.name,
                other.schemes.name()
            );
            wrong.add(&path, message, "give both flows the same, or a mobile each");
        }
        let several = scenario.link_set(mobile).is_some_and(|set| set.used.len() > 1);
        if scenario.measure.bytes && several {
            let message = format!("{name} carries lengths and no bytes");
            wrong.add(&["measure", "bytes"], message, "leave it out, or take another scheme");
        }
    }
}
