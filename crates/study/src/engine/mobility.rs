//! What a scheme makes of the TCP of a flow's two ends.

use lasthop_tcp::mobility::{Atcp, FastRetransmit, Freeze, Greet, LinkLayerFreeze, Mobility, Thaw};
use lasthop_tcp::{Coherence, Config};
use lasthop_units::{Duration, Scheme};

use crate::scenario::{Flow, MobileSettings, NodeIndex, Scenario, ThawOn};

/// How long duplicate acknowledgements wait for the link if nothing is said: about what a link with
/// a few tens of milliseconds takes to repair a loss (DDA-4, CC-8).
pub(super) const HOLD: Duration = Duration::from_millis(100);

/// The configuration of one end of a flow, with what its schemes change there.
pub(super) fn helped(scenario: &Scenario, flow: &Flow, end: NodeIndex, config: Config) -> Config {
    let mut config = config;
    if flow.schemes.contains(Scheme::CongestionCoherence) {
        config.ecn = true;
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
        let hold = said.congestion_coherence.hold.map_or(HOLD, |s| s.0);
        let usual = Coherence::new(hold);
        let behind = said.congestion_coherence.behind.unwrap_or(usual.behind);
        config.coherence = Some(Coherence { behind, ..usual });
    }
    if flow.schemes.contains(Scheme::DelayedDupacks) {
        config.delayed_dupacks = Some(said.delayed_dupacks.delay.map_or(HOLD, |s| s.0));
    }
    match flow.schemes.mobile() {
        Some(scheme) => config.mobility = mobility(said, scheme, thaw),
        None if flow.schemes.contains(Scheme::MTcp) => {
            let usual = Greet::default();
            let patience = said.m_tcp.patience.map_or(usual.patience, |s| s.0);
            config.mobility = Mobility::Greet(Greet { thaw, patience });
        }
        None => {}
    }
    config
}

/// With one cell a mobile comes back to where it was, and can be reached as soon as the link is up.
pub(super) fn thaw(scenario: &Scenario) -> Thaw {
    let cells = scenario.handoff.as_ref().map_or(0, |h| h.cells.len());
    match scenario.mobile.thaw {
        Some(ThawOn::Up) => Thaw::Up,
        Some(ThawOn::Complete) => Thaw::Complete,
        None if cells > 1 => Thaw::Complete,
        None => Thaw::Up,
    }
}

fn mobility(said: &MobileSettings, scheme: Scheme, thaw: Thaw) -> Mobility {
    match scheme {
        Scheme::Freeze => {
            let usual = Freeze::default();
            Mobility::Freeze(Freeze {
                thaw,
                copies_before: said.freeze.copies.unwrap_or(usual.copies_before),
                acks_after: said.freeze.acks.unwrap_or(usual.acks_after),
                bound: said.freeze.bound.map_or(usual.bound, |s| s.0),
            })
        }
        Scheme::LlFreeze => {
            let (said, usual) = (&said.ll_freeze, LinkLayerFreeze::default());
            Mobility::LinkLayerFreeze(LinkLayerFreeze {
                thaw,
                copies_before: said.copies.unwrap_or(usual.copies_before),
                acks_after: said.acks.unwrap_or(usual.acks_after),
                acks_unforeseen: said.acks_unforeseen.unwrap_or(usual.acks_unforeseen),
                bound: said.bound.map_or(usual.bound, |s| s.0),
                sender: said.sender.unwrap_or(usual.sender),
                patience: said.patience.map_or(usual.patience, |s| s.0),
            })
        }
        Scheme::Atcp => {
            let (said, usual) = (&said.atcp, Atcp::default());
            Mobility::Atcp(Atcp {
                thaw,
                delay: said.delay.map_or(usual.delay, |s| s.0),
                patience: said.patience.map_or(usual.patience, |s| s.0),
            })
        }
        Scheme::FastRtxHandoff => {
            let (said, usual) = (&said.fast_rtx_handoff, FastRetransmit::default());
            Mobility::FastRetransmit(FastRetransmit {
                thaw,
                copies: said.copies.unwrap_or(usual.copies),
                sender: said.sender.unwrap_or(usual.sender),
            })
        }
        _ => Mobility::None,
    }
}
