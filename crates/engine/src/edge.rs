//! Agents at a mobile's edge: what its schemes would otherwise do in its TCP.

use lasthop_agent::edge::{
    CoherentDupacks, DelayedDupacks, Freeze, FreezeConfig, HopEnd, ReceiverWindows, Rule, Total,
    WindowsConfig, Withhold, WithholdConfig,
};
use lasthop_scenario::{Flow, MobileSettings, NodeIndex, Scenario};
use lasthop_units::{Scheme, Time};

use super::addresses::port;
use super::agents::Helper;
use super::mobility::thaw;

/// The agents at the edge of a mobile, from the mobile outwards; none unless the scenario puts its
/// schemes there.
///
/// What freezes stands outside of what holds duplicates back: the acknowledgements after a gap must
/// not wait. What divides windows stands inside of it: a closed window stays closed.
pub(super) fn at_edge(scenario: &Scenario, mobile: NodeIndex) -> Vec<Helper> {
    let own = |flow: &&Flow| scenario.mobile_end(flow) == Some(mobile);
    let Some(flow) = scenario.flows.iter().find(own).filter(|_| scenario.mobile.edge) else {
        return Vec::new();
    };
    let inwards = [
        Scheme::Rwc,
        Scheme::DelayedDupacks,
        Scheme::CongestionCoherence,
        Scheme::Freeze,
        Scheme::LlFreeze,
        Scheme::Atcp,
    ];
    let there = inwards.into_iter().filter(|scheme| flow.schemes.contains(*scheme));
    there.filter_map(|scheme| agent(scenario, scheme)).collect()
}

fn agent(scenario: &Scenario, scheme: Scheme) -> Option<Helper> {
    let said = &scenario.mobile;
    Some(match scheme {
        Scheme::Rwc => {
            let total = Total::Packets(u64::from(scenario.rwc.packets));
            let config = WindowsConfig { total, ..WindowsConfig::default() };
            let mut agent = ReceiverWindows::new(config);
            agent.set_rules(Time::ZERO, rules(scenario, 0));
            agent.into()
        }
        Scheme::DelayedDupacks => DelayedDupacks::new(said.delayed_dupacks).into(),
        Scheme::CongestionCoherence => CoherentDupacks::new(said.congestion_coherence).into(),
        Scheme::Freeze | Scheme::LlFreeze => {
            let thaw = thaw(scenario);
            Freeze::new(FreezeConfig { thaw, ..freeze(said, scheme) }).into()
        }
        Scheme::Atcp => {
            let usual = WithholdConfig::default();
            let delay = said.atcp.delay.map_or(usual.delay, |s| s.0);
            let calm = said.atcp.calm.unwrap_or(usual.calm);
            let config = WithholdConfig { thaw: thaw(scenario), delay, calm, ..usual };
            Withhold::new(config).into()
        }
        _ => return None,
    })
}

fn freeze(said: &MobileSettings, scheme: Scheme) -> FreezeConfig {
    if scheme == Scheme::Freeze {
        let said = &said.freeze;
        return FreezeConfig {
            copies_before: said.copies_before,
            acks_after: said.acks_after,
            bound: said.bound,
            ..FreezeConfig::freeze(HopEnd::Mobile)
        };
    }
    let said = &said.ll_freeze;
    FreezeConfig {
        copies_before: said.copies_before,
        acks_after: said.acks_after,
        acks_unforeseen: said.acks_unforeseen,
        bound: said.bound,
        sender: said.sender,
        ..FreezeConfig::link_layer(HopEnd::Mobile)
    }
}

/// What the users want once so many of their changes of mind have come (RWC-1): each flow has a port
/// of its own.
pub(super) fn rules(scenario: &Scenario, changes: usize) -> Vec<Rule> {
    let rwc = &scenario.rwc;
    let mut priorities = rwc.priorities.clone();
    for change in rwc.changes.iter().take(changes) {
        if let Some(priority) = priorities.get_mut(change.flow) {
            *priority = change.priority;
        }
    }
    let rule = |(flow, priority)| Rule { port: Some(port(flow)), address: None, priority };
    priorities.into_iter().enumerate().map(rule).collect()
}
