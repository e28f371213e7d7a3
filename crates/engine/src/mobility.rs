//! What a scheme makes of the TCP of a flow's two ends.

use lasthop_agent::edge::CoherentConfig;
use lasthop_scenario::{Flow, MobileSettings, NodeIndex, Scenario};
use lasthop_tcp::mobility::{Atcp, FastRetransmit, Freeze, Greet, LinkLayerFreeze, Mobility, Thaw};
use lasthop_tcp::{Algorithm, Coherence, Config};
use lasthop_units::Scheme;

/// The configuration of one end of a flow, with what its schemes change there.
pub(super) fn helped(scenario: &Scenario, flow: &Flow, end: NodeIndex, config: Config) -> Config {
    let mut config = config;
    if flow.schemes.contains(Scheme::CongestionCoherence) {
        config.ecn = true;
    }
    let said = if flow.from == end { &flow.tcp.from } else { &flow.tcp.to };
    if flow.schemes.multipath().is_some() && said.variant.is_none() {
        (config.algorithm, config.sack) = (Algorithm::Lia, true);
    }
    if scenario.mobile_end(flow) != Some(end) {
        return config;
    }
    let said = &scenario.mobile;
    if said.edge {
        return config;
    }
    let thaw = thaw(scenario);
    if flow.schemes.contains(Scheme::CongestionCoherence) {
        let CoherentConfig { hold, behind, .. } = said.congestion_coherence;
        config.coherence = Some(Coherence { hold, behind });
    }
    if flow.schemes.contains(Scheme::DelayedDupacks) {
        config.delayed_dupacks = Some(said.delayed_dupacks.delay);
    }
    match flow.schemes.mobile() {
        Some(scheme) => config.mobility = mobility(said, scheme, thaw),
        None if flow.schemes.contains(Scheme::MTcp) => {
            config.mobility = Mobility::Greet(Greet { thaw, ..said.m_tcp });
        }
        None => {}
    }
    config
}

/// With one cell a mobile comes back to where it was, and can be reached as soon as the link is up.
pub(super) fn thaw(scenario: &Scenario) -> Thaw {
    let cells = scenario.handoff.as_ref().map_or(0, |h| h.cells.len());
    let usual = if cells > 1 { Thaw::Complete } else { Thaw::Up };
    scenario.mobile.thaw.unwrap_or(usual)
}

fn mobility(said: &MobileSettings, scheme: Scheme, thaw: Thaw) -> Mobility {
    match scheme {
        Scheme::Freeze => Mobility::Freeze(Freeze { thaw, ..said.freeze }),
        Scheme::LlFreeze => Mobility::LinkLayerFreeze(LinkLayerFreeze { thaw, ..said.ll_freeze }),
        Scheme::Atcp => {
            let (said, usual) = (&said.atcp, Atcp::default());
            Mobility::Atcp(Atcp {
                thaw,
                delay: said.delay.map_or(usual.delay, |s| s.0),
                patience: said.patience.map_or(usual.patience, |s| s.0),
            })
        }
        Scheme::FastRtxHandoff => {
            Mobility::FastRetransmit(FastRetransmit { thaw, ..said.fast_rtx_handoff })
        }
        _ => Mobility::None,
    }
}
