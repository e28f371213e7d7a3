//! The largest datagrams that paths carry.

use lasthop_radio::RadioConfig;
use lasthop_scenario::{Flow, LinkIndex, NodeIndex, Scenario};

/// The largest datagram that every link which may carry the flow takes (LNK-3).
pub(super) fn path_mtu(scenario: &Scenario, flow: &Flow) -> u32 {
    let cells: Vec<Option<LinkIndex>> = match &scenario.handoff {
        Some(handoff) => handoff.cells.iter().copied().map(Some).collect(),
        None => vec![None],
    };
    let least = |cell: &Option<LinkIndex>| {
        least_mtu(scenario, flow.from, flow.to, |link| scenario.serves(link, *cell))
    };
    // Those of a mobile that several links serve go by any that it uses.
    let set = scenario.mobile_end(flow).and_then(|mobile| scenario.link_set(mobile));
    let used = set.into_iter().flat_map(|set| &set.used);
    let used = used.map(|link| &scenario.link(*link).radio).map(least_of);
    cells.iter().map(least).chain(used).min().unwrap_or(u32::MAX)
}

/// What a radio carries both ways.
pub(super) fn least_of(radio: &RadioConfig) -> u32 {
    radio.up.mtu.min(radio.down.mtu)
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
    let way = scenario.way_along(from, to, usable);
    let links = way.into_iter().filter_map(|(_, link)| Some(&scenario.link(link?).radio));
    links.map(least_of).min().unwrap_or(u32::MAX)
}
