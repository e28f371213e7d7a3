//! Any agent, so that nodes of one type can carry all of them.

use core::net::IpAddr;

use lasthop_agent::link::LinkRetransmission;
use lasthop_agent::m_tcp::MTcp;
use lasthop_agent::obtcp::{Base, Router};
use lasthop_agent::snoop::Snoop;
use lasthop_agent::unsplit::{self, Unsplit};
use lasthop_agent::{Agent, Output, Side};
use lasthop_sim::net::Packet;
use lasthop_units::{LinkEvent, Stream, Time};
use lasthop_wire::agent::Message;

use crate::settings::Settings;

/// Any agent.
pub(crate) enum Helper {
    Snoop(Box<Snoop<Packet>>),
    MTcp(Box<MTcp<Packet>>),
    Base(Box<Base<Packet>>),
    Router(Box<Router<Packet>>),
    Link(Box<LinkRetransmission<Packet>>),
    Unsplit(Box<Unsplit<Packet>>),
}

macro_rules! each {
    ($self:expr, $agent:ident => $act:expr) => {
        match $self {
            Helper::Snoop($agent) => $act,
            Helper::MTcp($agent) => $act,
            Helper::Base($agent) => $act,
            Helper::Router($agent) => $act,
            Helper::Link($agent) => $act,
            Helper::Unsplit($agent) => $act,
        }
    };
}

impl Helper {
    /// A fresh one. A link's end begins its count of frames anywhere, and so may the CIDs of a half.
    pub(crate) fn new(settings: &Settings, random: &mut Stream) -> Self {
        match settings {
            Settings::Snoop(config) => Self::Snoop(Box::new(Snoop::new(config.clone()))),
            Settings::MTcp(config) => Self::MTcp(Box::new(MTcp::new(config))),
            Settings::Base(config) => {
                Self::Base(Box::new(Base::new(*config).expect("a base's settings")))
            }
            Settings::Router(config) => {
                Self::Router(Box::new(Router::new(*config).expect("a router's settings")))
            }
            Settings::LinkAtBase(config) => {
                let config = restarted(config, random);
                Self::Link(Box::new(LinkRetransmission::at_base(&config)))
            }
            Settings::LinkAtMobile(config) => {
                let config = restarted(config, random);
                Self::Link(Box::new(LinkRetransmission::at_mobile(&config)))
            }
            Settings::UnsplitAtBase(config) => {
                let first_cid = any_cid(random);
                let config = unsplit::Config { first_cid, ..config.clone() };
                Self::Unsplit(Box::new(Unsplit::at_base(&config)))
            }
            Settings::UnsplitAtMobile(config) => {
                let first_cid = any_cid(random);
                let config = unsplit::Config { first_cid, ..config.clone() };
                Self::Unsplit(Box::new(Unsplit::at_mobile(&config)))
            }
        }
    }

    /// What it keeps is more than its settings allow.
    pub(crate) fn exceeds(&self, settings: &Settings) -> Option<String> {
        let (what, kept, most) = match (self, settings) {
            (Self::Snoop(agent), Settings::Snoop(config)) => {
                if agent.memory() > config.memory {
                    return Some(format!("snoop keeps {}", agent.memory()));
                }
                ("snoop", agent.kept(), config.segments * config.connections)
            }
            (Self::MTcp(agent), Settings::MTcp(config)) => {
                ("m-tcp", agent.kept(), config.buffer * config.connections)
            }
            (Self::Base(agent), Settings::Base(config)) => {
                ("base", agent.cached(), config.memory.segments * config.memory.connections)
            }
            (Self::Router(agent), Settings::Router(config)) => {
                ("router", agent.cached(), config.memory.segments * config.memory.connections)
            }
            (Self::Link(agent), Settings::LinkAtBase(config) | Settings::LinkAtMobile(config)) => {
                ("link", agent.kept(), config.copies)
            }
            (
                Self::Unsplit(agent),
                Settings::UnsplitAtBase(config) | Settings::UnsplitAtMobile(config),
            ) => {
                if agent.memory() > config.memory {
                    return Some(format!("a half keeps {}", agent.memory()));
                }
                ("a half", agent.kept(), config.segments * config.connections)
            }
            _ => return Some("an agent of another kind".into()),
        };
        (kept > most).then(|| format!("{what} keeps {kept} segments, {most} are allowed"))
    }

    /// Takes over what `old` knew of `mobile`, where the agent can.
    pub(crate) fn take_over(&mut self, now: Time, old: &mut Self, mobile: IpAddr) {
        match (self, old) {
            (Self::MTcp(new), Self::MTcp(old)) => new.adopt(now, old.take(mobile)),
            (_, old) => old.forget(mobile),
        }
    }

    /// A mobile has come: what was sent ahead to a snoop goes out.
    pub(crate) fn arrived(&mut self, now: Time, mobile: IpAddr) {
        if let Self::Snoop(agent) = self {
            agent.arrived(now, mobile);
        }
    }

    /// A packet for a mobile that is at another base.
    pub(crate) fn prime(&mut self, now: Time, packet: &Packet) {
        if let Self::Snoop(agent) = self {
            agent.prime(now, packet);
        }
    }
}

/// Mostly one that the half before had too: even so no connection may come to harm.
fn any_cid(random: &mut Stream) -> u16 {
    if random.chance(0.7) { 1 } else { random.next_u64() as u16 }
}

fn restarted(
    config: &lasthop_agent::link::LinkConfig,
    random: &mut Stream,
) -> lasthop_agent::link::LinkConfig {
    lasthop_agent::link::LinkConfig { first_frame: random.next_u64() as u32, ..*config }
}

impl Agent<Packet> for Helper {
    fn handle_packet(&mut self, now: Time, from: Side, packet: Packet) {
        each!(self, agent => agent.handle_packet(now, from, packet));
    }

    fn handle_message(&mut self, now: Time, from: Side, message: &Message) {
        each!(self, agent => agent.handle_message(now, from, message));
    }

    fn handle_link_event(&mut self, now: Time, event: LinkEvent) {
        each!(self, agent => agent.handle_link_event(now, event));
    }

    fn watches_queue(&self) -> bool {
        each!(self, agent => agent.watches_queue())
    }

    fn handle_queue(&mut self, nearly_full: bool) {
        each!(self, agent => agent.handle_queue(nearly_full));
    }

    fn forget(&mut self, mobile: IpAddr) {
        each!(self, agent => agent.forget(mobile));
    }

    fn poll_output(&mut self) -> Option<Output<Packet>> {
        each!(self, agent => agent.poll_output())
    }

    fn next_timeout(&self) -> Option<Time> {
        each!(self, agent => agent.next_timeout())
    }

    fn handle_timeout(&mut self, now: Time) {
        each!(self, agent => agent.handle_timeout(now));
    }
}
