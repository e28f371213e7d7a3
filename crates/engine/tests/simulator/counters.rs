//! What metrics have of the counters of agents.

use lasthop_agent::AnyAgent;
use lasthop_agent::edge::{
    CoherentDupacks, DelayedDupacks, Freeze, FreezeConfig, HopEnd, ReceiverWindows, Withhold,
};
use lasthop_agent::link::{LinkConfig, LinkRetransmission};
use lasthop_agent::m_tcp::{MTcp, MTcpConfig};
use lasthop_agent::obtcp::{self, Base, Router};
use lasthop_agent::snoop::{self, Snoop};
use lasthop_agent::unsplit::{self, Unsplit};
use lasthop_engine::counters::{in_metrics, kind, shown};
use lasthop_sim::net::Packet;

#[test]
fn every_count_in_metrics_is_a_counter_of_its_agent() {
    let all: [AnyAgent<Packet>; 11] = [
        Snoop::new(snoop::Config::default()).into(),
        MTcp::new(&MTcpConfig::default()).into(),
        Base::new(obtcp::Config::default()).unwrap().into(),
        Router::new(obtcp::Config::default()).unwrap().into(),
        LinkRetransmission::at_base(&LinkConfig::default()).into(),
        Unsplit::at_base(&unsplit::Config::default()).into(),
        DelayedDupacks::new(Default::default()).into(),
        CoherentDupacks::new(Default::default()).into(),
        Freeze::new(FreezeConfig::freeze(HopEnd::Mobile)).into(),
        Withhold::new(Default::default()).into(),
        ReceiverWindows::new(Default::default()).into(),
    ];
    for agent in &all {
        let counters = agent.counters();
        for name in shown(agent) {
            let known = counters.iter().any(|(counter, _)| in_metrics(counter) == *name);
            assert!(known, "{}: {name}", kind(agent));
        }
    }
}
