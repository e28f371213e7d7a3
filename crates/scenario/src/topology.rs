//! Whether every packet has exactly one way to go.

use super::complaint::Complaints;
use super::link_sets::is_aside;
use super::model::{Flow, Link, LinkIndex, LinkSet, Node, NodeIndex};

/// Complains about loops, doubled links and flows whose ends are not joined.
///
/// Of the links that serve a mobile as its cells only one carries packets at a time, so that each
/// cell is looked at alone; of several links between a mobile host and one base the first.
pub(crate) fn check(
    nodes: &[Node],
    links: &[Link],
    flows: &[Flow],
    cells: Option<&[LinkIndex]>,
    link_sets: &[LinkSet],
    wrong: &mut Complaints,
) {
    let cells = cells.unwrap_or_default();
    let is_cell = |index: usize| cells.contains(&LinkIndex(index));
    let stays = |index: usize| !is_cell(index) && !is_aside(link_sets, LinkIndex(index));
    let fixed: Vec<&Link> =
        links.iter().enumerate().filter(|(i, _)| stays(*i)).map(|(_, l)| l).collect();
    let mut wires = Forest::new(nodes.len());
    let mut sound = true;
    for (i, link) in fixed.iter().enumerate() {
        if !wires.join(link) {
            blame_loop(link, &fixed[..i], nodes, wrong);
            sound = false;
        }
    }
    if !sound {
        return;
    }
    if cells.is_empty() {
        return reach(nodes, flows, &mut wires, None, wrong);
    }
    let mut seen = Vec::new();
    for &cell in cells {
        if is_aside(link_sets, cell) {
            // It is away for a while, and the way stays.
            reach(nodes, flows, &mut wires.clone(), None, wrong);
            continue;
        }
        if seen.contains(&cell) {
            continue;
        }
        seen.push(cell);
        let link = &links[cell.0];
        let mut forest = wires.clone();
        if forest.join(link) {
            reach(nodes, flows, &mut forest, Some(&link.name), wrong);
        } else {
            let message = format!("cell `{}` closes a loop", link.name);
            let remedy = "let the mobile reach the fixed network through its cells only";
            wrong.add(&["link", &link.name, "between"], message, remedy);
        }
    }
}

/// Flows whose ends are not joined.
fn reach(
    nodes: &[Node],
    flows: &[Flow],
    forest: &mut Forest,
    cell: Option<&str>,
    wrong: &mut Complaints,
) {
    for flow in flows {
        if forest.root(flow.from) == forest.root(flow.to) {
            continue;
        }
        let (from, to) = (&nodes[flow.from.0].name, &nodes[flow.to.0].name);
        let while_served =
            cell.map_or(String::new(), |name| format!(" while cell `{name}` serves"));
        let message = format!("no way leads from `{from}` to `{to}`{while_served}");
        wrong.add(&["flow", &flow.name, "to"], message, "add the link that is missing");
    }
}

fn blame_loop(link: &Link, before: &[&Link], nodes: &[Node], wrong: &mut Complaints) {
    let path = ["link", link.name.as_str(), "between"];
    let name = |n: NodeIndex| nodes[n.0].name.as_str();
    let [a, b] = link.ends;
    if a == b {
        return;
    }
    let twin = before.iter().find(|l| l.ends == [a, b] || l.ends == [b, a]);
    if let Some(twin) = twin {
        let message =
            format!("joins `{}` and `{}`, as link `{}` does already", name(a), name(b), twin.name);
        wrong.add(&path, message, "keep one of them");
        return;
    }
    let way: Vec<&str> = way(before, b, a).into_iter().map(name).collect();
    let message = format!("closes the loop {} - {}", name(a), way.join(" - "));
    let remedy = "take out one of its links, or list those that take turns under `handoff.cells`";
    wrong.add(&path, message, remedy);
}

/// The nodes from `from` to `to`, both included, along `links`.
fn way(links: &[&Link], from: NodeIndex, to: NodeIndex) -> Vec<NodeIndex> {
    let mut reached = vec![(from, 0)];
    let mut next = 0;
    while let Some(&(here, _)) = reached.get(next).filter(|(here, _)| *here != to) {
        for link in links.iter().filter(|l| l.ends.contains(&here)) {
            let there = link.far_end(here);
            if !reached.iter().any(|(n, _)| *n == there) {
                reached.push((there, next));
            }
        }
        next += 1;
    }
    let mut way = Vec::new();
    let mut at = next.min(reached.len() - 1);
    loop {
        way.push(reached[at].0);
        if at == 0 {
            break;
        }
        at = reached[at].1;
    }
    way.reverse();
    way
}

/// Nodes joined so far, as a union-find forest.
#[derive(Clone)]
struct Forest(Vec<usize>);

impl Forest {
    fn new(nodes: usize) -> Self {
        Self((0..nodes).collect())
    }

    fn root(&mut self, node: NodeIndex) -> usize {
        let mut at = node.0;
        while self.0[at] != at {
            self.0[at] = self.0[self.0[at]];
            at = self.0[at];
        }
        at
    }

    /// Whether the link joined what was apart.
    fn join(&mut self, link: &Link) -> bool {
        let (a, b) = (self.root(link.ends[0]), self.root(link.ends[1]));
        self.0[a] = b;
        a != b
    }
}
