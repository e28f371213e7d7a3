//! The largest datagrams that paths carry.

use crate::scenario::{Flow, LinkIndex, NodeIndex, Scenario};

/// The largest datagram that every link which may carry the flow takes (LNK-3).
pub(super) fn path_mtu(scenario: &Scenario, flow: &Flow) -> u32 {
    let cells: Vec<Option<LinkIndex>> = match &scenario.handoff {
        Some(handoff) => handoff.cells.iter().copied().map(Some).collect(),
        None => vec![None],
    };
    let least = |cell: &Option<LinkIndex>| {
        least_mtu(scenario, flow.from, flow.to, |link| scenario.serves(link, *cell))
    };
    cells.iter().map(least).min().unwrap_or(u32::MAX)
}

/// What the wired half's path carries, from every base.
pub(super) fn wired_mtu(
    scenario: &Scenario,
    flow: &Flow,
    bases: &[NodeIndex],
    mobile: NodeIndex,
) -> u32 {
    let fixed = if flow.from == mobile { flow.to } else { flow.from };
    let least = |base: &NodeIndex| {
        let on_the_way = |link: LinkIndex| {
            scenario.serves(link, None) && !scenario.link(link).ends.contains(&mobile)
        };
        least_mtu(scenario, *base, fixed, on_the_way)
    };
    bases.iter().map(least).min().unwrap_or(u32::MAX)
}

/// The largest datagram that the links between two nodes carry, by way of those that are `usable`.
fn least_mtu(
    scenario: &Scenario,
    from: NodeIndex,
    to: NodeIndex,
    usable: impl Fn(LinkIndex) -> bool,
) -> u32 {
    let mut open = vec![(from, u32::MAX)];
    let mut known = vec![false; scenario.nodes.len()];
    while let Some((here, least)) = open.pop() {
        if here == to {
            return least;
        }
        known[here.0] = true;
        for (i, link) in scenario.links.iter().enumerate() {
            let there = link.far_end(here);
            let leads = link.ends.contains(&here) && usable(LinkIndex(i));
            if leads && !known[there.0] {
                let mtu = link.radio.up.mtu.min(link.radio.down.mtu);
                open.push((there, least.min(mtu)));
            }
        }
    }
    u32::MAX
}
