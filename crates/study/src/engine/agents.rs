//! Agents in the path: which machine stands at which node, and with what parameters.

use core::net::IpAddr;

use lasthop_agent::edge::{
    CoherentDupacks, DelayedDupacks, DupackStats, Freeze, ReceiverWindows, Withhold,
};
use lasthop_agent::link::{LinkConfig, LinkRetransmission};
use lasthop_agent::m_tcp::{MTcp, MTcpConfig};
use lasthop_agent::obtcp::{self, Base, Router};
use lasthop_agent::snoop::{self, Snoop};
use lasthop_agent::unsplit::{self, Unsplit};
use lasthop_agent::{Agent, Output, Side};
use lasthop_sim::agents::{AgentRouter, Help, Peers};
use lasthop_sim::net::Packet;
use lasthop_units::{LinkEvent, Time};
use lasthop_wire::agent::Message;

use super::addresses::address;
use crate::run::RunError;
use crate::scenario::{
    LocalTimer, MTcpSettings, NodeIndex, ObtcpSettings, PathHelp, RecoverySettings, Scenario,
    Scheme, SnoopSettings, Station,
};

/// Any agent.
#[derive(Clone, Debug)]
pub(super) enum Helper {
    Snoop(Box<Snoop<Packet>>),
    MTcp(Box<MTcp<Packet>>),
    ObtcpBase(Box<Base<Packet>>),
    ObtcpRouter(Box<Router<Packet>>),
    Link(Box<LinkRetransmission<Packet>>),
    Unsplit(Box<Unsplit<Packet>>),
    Freeze(Box<Freeze<Packet>>),
    Withhold(Box<Withhold<Packet>>),
    Dupacks(Box<DelayedDupacks<Packet>>),
    Coherent(Box<CoherentDupacks<Packet>>),
    Windows(Box<ReceiverWindows<Packet>>),
}

/// Asks whichever it is.
macro_rules! each {
    ($helper:expr, $agent:ident => $act:expr) => {
        match $helper {
            Helper::Snoop($agent) => $act,
            Helper::MTcp($agent) => $act,
            Helper::ObtcpBase($agent) => $act,
            Helper::ObtcpRouter($agent) => $act,
            Helper::Link($agent) => $act,
            Helper::Unsplit($agent) => $act,
            Helper::Freeze($agent) => $act,
            Helper::Withhold($agent) => $act,
            Helper::Dupacks($agent) => $act,
            Helper::Coherent($agent) => $act,
            Helper::Windows($agent) => $act,
        }
    };
}

impl Agent<Packet> for Helper {
    #[inline]
    fn handle_packet(&mut self, now: Time, from: Side, packet: Packet) {
        each!(self, agent => agent.handle_packet(now, from, packet));
    }

    fn handle_message(&mut self, now: Time, from: Side, message: &Message) {
        each!(self, agent => agent.handle_message(now, from, message));
    }

    fn handle_link_event(&mut self, now: Time, event: LinkEvent) {
        each!(self, agent => agent.handle_link_event(now, event));
    }

    #[inline]
    fn watches_queue(&self) -> bool {
        each!(self, agent => agent.watches_queue())
    }

    #[inline]
    fn handle_queue(&mut self, nearly_full: bool) {
        each!(self, agent => agent.handle_queue(nearly_full));
    }

    fn forget(&mut self, mobile: IpAddr) {
        each!(self, agent => agent.forget(mobile));
    }

    #[inline]
    fn poll_output(&mut self) -> Option<Output<Packet>> {
        each!(self, agent => agent.poll_output())
    }

    #[inline]
    fn next_timeout(&self) -> Option<Time> {
        each!(self, agent => agent.next_timeout())
    }

    fn handle_timeout(&mut self, now: Time) {
        each!(self, agent => agent.handle_timeout(now));
    }
}

impl Helper {
    /// Its name in metrics.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Snoop(_) => "snoop",
            Self::MTcp(_) => "m-tcp",
            Self::ObtcpBase(_) => "obtcp-base",
            Self::ObtcpRouter(_) => "obtcp-router",
            Self::Link(_) => "link",
            Self::Unsplit(_) => "unsplit",
            Self::Freeze(_) => "freeze",
            Self::Withhold(_) => "atcp",
            Self::Dupacks(_) | Self::Coherent(_) => "dupacks",
            Self::Windows(_) => "rwc",
        }
    }

    /// What it counted.
    pub(super) fn counts(&self) -> Vec<(&'static str, u64)> {
        match self {
            Self::Snoop(agent) => {
                let s = agent.stats();
                vec![
                    ("local_retransmits", s.local_retransmits),
                    ("local_timeouts", s.timeouts),
                    ("suppressed", s.suppressed),
                ]
            }
            Self::MTcp(agent) => {
                let s = agent.stats();
                vec![
                    ("local_retransmits", s.repaired + s.resumed),
                    ("local_timeouts", s.timeouts),
                    ("disconnections", s.disconnections),
                    ("reconnections", s.reconnections),
                ]
            }
            Self::ObtcpBase(agent) => {
                let s = agent.stats();
                vec![
                    ("local_retransmits", s.retransmitted),
                    ("local_timeouts", s.timeouts),
                    ("snacks", s.snacks),
                    ("congestions", s.congestions),
                ]
            }
            Self::ObtcpRouter(agent) => {
                let s = agent.stats();
                vec![
                    ("local_retransmits", s.retransmitted),
                    ("local_timeouts", s.timeouts),
                    ("snacks", s.snacks),
                    ("suppressed", s.suppressed),
                    ("replayed", s.replayed),
                ]
            }
            Self::Link(agent) => {
                let s = agent.stats();
                vec![("local_retransmits", s.sender.retransmitted), ("given_up", s.sender.given_up)]
            }
            Self::Unsplit(agent) => {
                let s = agent.stats();
                vec![
                    ("local_retransmits", s.local_retransmits),
                    ("local_timeouts", s.timeouts),
                    ("suppressed", s.suppressed),
                    ("compressed", s.compressed),
                    ("plain", s.plain),
                ]
            }
            Self::Freeze(agent) => {
                let s = agent.stats();
                vec![
                    ("freezes", s.freezes),
                    ("thaws", s.thaws),
                    ("zero_windows", s.zero_windows),
                    ("rewritten", s.rewritten),
                ]
            }
            Self::Withhold(agent) => {
                let s = agent.stats();
                vec![("lowered", s.lowered), ("released", s.released), ("made", s.made)]
            }
            Self::Dupacks(agent) => dupacks(agent.stats()),
            Self::Coherent(agent) => dupacks(agent.stats()),
            Self::Windows(agent) => {
                let s = agent.stats();
                vec![("narrowed", s.narrowed), ("divisions", s.divisions)]
            }
        }
    }
}

fn dupacks(s: &DupackStats) -> Vec<(&'static str, u64)> {
    vec![("held", s.held), ("discarded", s.discarded), ("released", s.released)]
}

/// The agents that stand at a node, in the order of the mobiles that they help; none if there is
/// nobody to help.
pub(super) fn at_node(
    scenario: &Scenario,
    help: &[PathHelp],
    index: NodeIndex,
) -> Result<Option<AgentRouter<Helper>>, RunError> {
    let mut router = AgentRouter::new(address(index.0));
    for help in help {
        let base = help.stations.iter().find(|s| s.base == index);
        let behind = help.stations.iter().find(|s| s.router == Some(index));
        let mobiles = vec![address(help.mobile.0)];
        if let Some(station) = base {
            let agent = at_base(scenario, help.scheme, station)?;
            router.add(Help { mobiles, peers: peers_of_base(help, station), hop: None, agent });
        } else if let Some(station) = behind.filter(|_| help.scheme == Scheme::Obtcp) {
            let config = obtcp_router(&scenario.agent.obtcp);
            let agent = Helper::ObtcpRouter(Box::new(Router::new(config).map_err(refused)?));
            let peers = Peers { fixed: Some(address(station.base.0)), mobile: None };
            router.add(Help { mobiles, peers, hop: None, agent });
        }
    }
    Ok(Some(router).filter(|r| !r.help().is_empty()))
}

/// Whom the agent at a base talks to: the one at the mobile router, or the mobile's own link.
fn peers_of_base(help: &PathHelp, station: &Station) -> Peers {
    let beyond = match help.scheme {
        Scheme::Obtcp => station.router,
        scheme if scheme.ends_at_mobile() => Some(help.mobile),
        _ => None,
    };
    Peers { fixed: None, mobile: beyond.map(|n| address(n.0)) }
}

fn at_base(scenario: &Scenario, scheme: Scheme, station: &Station) -> Result<Helper, RunError> {
    let settings = &scenario.agent;
    Ok(match scheme {
        Scheme::Obtcp => {
            let config = obtcp_base(&settings.obtcp);
            Helper::ObtcpBase(Box::new(Base::new(config).map_err(refused)?))
        }
        Scheme::DelayedDupacks | Scheme::CongestionCoherence | Scheme::Ebsn => {
            let notify = scheme == Scheme::Ebsn;
            let config = LinkConfig { notify, ..recovery(&settings.link) };
            Helper::Link(Box::new(LinkRetransmission::at_base(&config)))
        }
        Scheme::MobileTcpUnsplit => {
            Helper::Unsplit(Box::new(Unsplit::at_base(&unsplit(scenario, station))))
        }
        Scheme::MTcp => Helper::MTcp(Box::new(MTcp::new(&m_tcp(&settings.m_tcp)))),
        _ => Helper::Snoop(Box::new(Snoop::new(snoop(&settings.snoop)))),
    })
}

/// The mobile's own end of what its base does.
pub(super) fn at_mobile(scenario: &Scenario, scheme: Scheme, station: &Station) -> Helper {
    match scheme {
        Scheme::MobileTcpUnsplit => {
            Helper::Unsplit(Box::new(Unsplit::at_mobile(&unsplit(scenario, station))))
        }
        _ => {
            let config = recovery(&scenario.agent.link);
            Helper::Link(Box::new(LinkRetransmission::at_mobile(&config)))
        }
    }
}

fn refused(error: obtcp::ConfigError) -> RunError {
    RunError::Failed(format!("agent.obtcp: {error}"))
}

fn snoop(said: &SnoopSettings) -> snoop::Config {
    let usual = snoop::Config::default();
    snoop::Config {
        dupacks: said.threshold.unwrap_or(usual.dupacks),
        timer: match said.timer {
            Some(LocalTimer::Measured) => snoop::Timer::Measured,
            Some(LocalTimer::Stock) => snoop::Timer::Stock,
            Some(LocalTimer::Pinned(time)) => snoop::Timer::Pinned(time),
            None => usual.timer,
        },
        tick: said.tick.map_or(usual.tick, |s| s.0),
        initial: said.initial_timer.map_or(usual.initial, |s| s.0),
        tries: said.tries.unwrap_or(usual.tries),
        segments: said.cache.map_or(usual.segments, |n| n as usize),
        use_sack: said.use_sack.unwrap_or(usual.use_sack),
        go_back: said.go_back.unwrap_or(usual.go_back),
        heed_backlog: said.heed_backlog.unwrap_or(usual.heed_backlog),
        hide_sack: said.hide_sack.unwrap_or(usual.hide_sack),
        eln: said.eln.unwrap_or(usual.eln),
        ..usual
    }
}

fn unsplit(scenario: &Scenario, station: &Station) -> unsplit::Config {
    let (said, usual) = (&scenario.agent.unsplit, unsplit::Config::default());
    let hop = &scenario.link(station.hop).radio;
    unsplit::Config {
        segments: said.cache.map_or(usual.segments, |n| n as usize),
        tries: said.tries.unwrap_or(usual.tries),
        tick: said.tick.map_or(usual.tick, |s| s.0),
        initial: said.initial_timer.map_or(usual.initial, |s| s.0),
        longest: said.longest_timer.map_or(usual.longest, |s| s.0),
        ride: said.ride.map_or(usual.ride, |s| s.0),
        offers: said.offers.unwrap_or(usual.offers),
        gaps: said.gaps.map_or(usual.gaps, |n| n as usize),
        hide_sack: said.hide_sack.unwrap_or(usual.hide_sack),
        mtu: hop.up.mtu.min(hop.down.mtu),
        ..usual
    }
}

fn m_tcp(said: &MTcpSettings) -> MTcpConfig {
    let usual = MTcpConfig::default();
    MTcpConfig {
        buffer: said.cache.map_or(usual.buffer, |n| n as usize),
        hop_window: said.window.map_or(usual.hop_window, |n| n as usize),
        disconnect_after: said.silence.map_or(usual.disconnect_after, |s| s.0),
        disconnect_round_trips: said.round_trips.unwrap_or(usual.disconnect_round_trips),
        probe_interval: said.probe.map_or(usual.probe_interval, |s| s.0),
        tail_after: said.tail.map_or(usual.tail_after, |s| s.0),
        ..usual
    }
}

fn obtcp_memory(said: &ObtcpSettings) -> obtcp::Memory {
    let usual = obtcp::Memory::default();
    obtcp::Memory { segments: said.cache.map_or(usual.segments, |n| n as usize), ..usual }
}

fn obtcp_timer(said: &ObtcpSettings) -> Option<obtcp::LocalTimer> {
    let usual = obtcp::LocalTimer::default();
    let least = said.tick.map_or(usual.rto.least, |s| s.0);
    let rto = obtcp::RtoBounds {
        least,
        initial: usual.rto.initial.max(least),
        most: usual.rto.most.max(least),
    };
    said.timers.unwrap_or(false).then_some(obtcp::LocalTimer { rto, ..usual })
}

fn obtcp_base(said: &ObtcpSettings) -> obtcp::BaseConfig {
    obtcp::BaseConfig {
        memory: obtcp_memory(said),
        timer: obtcp_timer(said),
        heed_backlog: said.heed_backlog.unwrap_or(obtcp::BaseConfig::default().heed_backlog),
    }
}

fn obtcp_router(said: &ObtcpSettings) -> obtcp::RouterConfig {
    let usual = obtcp::RouterConfig::default();
    obtcp::RouterConfig {
        memory: obtcp_memory(said),
        timer: obtcp_timer(said),
        repair: match said.go_back_n {
            Some(true) => obtcp::Repair::GoBackN,
            Some(false) => obtcp::Repair::Single,
            None => usual.repair,
        },
        dupacks: said.threshold.unwrap_or(usual.dupacks),
        tries: said.tries.unwrap_or(usual.tries),
        partial_acks: said.partial_acks.unwrap_or(usual.partial_acks),
        snacks: said.snacks.unwrap_or(usual.snacks),
        replay: said.replay.unwrap_or(usual.replay),
        detect_lost_retransmissions: said
            .detect_lost_retransmissions
            .unwrap_or(usual.detect_lost_retransmissions),
        ..usual
    }
}

fn recovery(said: &RecoverySettings) -> LinkConfig {
    let usual = LinkConfig::default();
    LinkConfig {
        retries: said.retries.unwrap_or(usual.retries),
        copies: said.copies.map_or(usual.copies, |n| n as usize),
        in_order: said.in_order.unwrap_or(usual.in_order),
        hold: said.hold.map_or(usual.hold, |s| s.0),
        initial_timeout: said.initial_timeout.map_or(usual.initial_timeout, |s| s.0),
        least_timeout: said.least_timeout.map_or(usual.least_timeout, |s| s.0),
        notice_interval: said.notice_interval.map_or(usual.notice_interval, |s| s.0),
        ..usual
    }
}
