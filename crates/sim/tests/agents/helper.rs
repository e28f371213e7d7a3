//! What schedules do with any agent.

use core::net::IpAddr;

use lasthop_agent::link::LinkRetransmission;
use lasthop_agent::m_tcp::MTcp;
use lasthop_agent::obtcp::{Base, Router};
use lasthop_agent::snoop::Snoop;
use lasthop_agent::unsplit::{self, Unsplit};
use lasthop_agent::{Agent, AnyAgent};
use lasthop_sim::net::Packet;
use lasthop_units::{Stream, Time};

use crate::settings::Settings;

/// Any agent.
pub(crate) type Helper = AnyAgent<Packet>;

/// A fresh one. A link's end begins its count of frames anywhere, and so may the CIDs of a half.
pub(crate) fn fresh(settings: &Settings, random: &mut Stream) -> Helper {
    match settings {
        Settings::Snoop(config) => Snoop::new(config.clone()).into(),
        Settings::MTcp(config) => MTcp::new(config).into(),
        Settings::Base(config) => Base::new(*config).expect("a base's settings").into(),
        Settings::Router(config) => Router::new(*config).expect("a router's settings").into(),
        Settings::LinkAtBase(config) => {
            let config = restarted(config, random);
            LinkRetransmission::at_base(&config).into()
        }
        Settings::LinkAtMobile(config) => {
            let config = restarted(config, random);
            LinkRetransmission::at_mobile(&config).into()
        }
        Settings::UnsplitAtBase(config) => {
            let first_cid = any_cid(random);
            let config = unsplit::Config { first_cid, ..config.clone() };
            Unsplit::at_base(&config).into()
        }
        Settings::UnsplitAtMobile(config) => {
            let first_cid = any_cid(random);
            let config = unsplit::Config { first_cid, ..config.clone() };
            Unsplit::at_mobile(&config).into()
        }
    }
}

/// What it keeps is more than its settings allow.
pub(crate) fn exceeds(agent: &Helper, settings: &Settings) -> Option<String> {
    let (what, kept, most) = match (agent, settings) {
        (AnyAgent::Snoop(agent), Settings::Snoop(config)) => {
            if agent.memory() > config.memory {
                return Some(format!("snoop keeps {}", agent.memory()));
            }
            ("snoop", agent.kept(), config.segments * config.connections)
        }
        (AnyAgent::MTcp(agent), Settings::MTcp(config)) => {
            ("m-tcp", agent.kept(), config.buffer * config.connections)
        }
        (AnyAgent::ObtcpBase(agent), Settings::Base(config)) => {
            ("base", agent.cached(), config.memory.segments * config.memory.connections)
        }
        (AnyAgent::ObtcpRouter(agent), Settings::Router(config)) => {
            ("router", agent.cached(), config.memory.segments * config.memory.connections)
        }
        (AnyAgent::Link(agent), Settings::LinkAtBase(config) | Settings::LinkAtMobile(config)) => {
            ("link", agent.kept(), config.copies)
        }
        (
            AnyAgent::Unsplit(agent),
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
pub(crate) fn take_over(new: &mut Helper, now: Time, old: &mut Helper, mobile: IpAddr) {
    match (new, old) {
        (AnyAgent::MTcp(new), AnyAgent::MTcp(old)) => new.adopt(now, old.take(mobile)),
        (_, old) => old.remove_mobile(mobile),
    }
}

/// A mobile has come: what was sent ahead to a snoop goes out.
pub(crate) fn arrived(agent: &mut Helper, now: Time, mobile: IpAddr) {
    if let AnyAgent::Snoop(agent) = agent {
        agent.arrived(now, mobile);
    }
}

/// A packet for a mobile that is at another base.
pub(crate) fn prime(agent: &mut Helper, now: Time, packet: &Packet) {
    if let AnyAgent::Snoop(agent) = agent {
        agent.prime(now, packet);
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
