//! The machines that a scheme is made of.

use lasthop_agent::edge::{
    CoherentConfig, CoherentDupacks, DelayedDupacks, DelayedDupacksConfig, Freeze, FreezeConfig,
    ReceiverWindows, Total, WindowsConfig, Withhold, WithholdConfig,
};
use lasthop_agent::link::{LinkConfig, LinkRetransmission};
use lasthop_agent::m_tcp::{MTcp, MTcpConfig};
use lasthop_agent::snoop::{self, Snoop};
use lasthop_agent::{Agent, AnyAgent, Connection, obtcp};
use lasthop_units::{HopEnd, Scheme, Time};

use super::config::{self, AgentConfig};
use super::error::AgentError;
use super::frame::Frame;

/// A machine of an agent.
pub(super) struct Machine {
    /// What reports call it.
    name: &'static str,
    /// The machine itself.
    pub(super) agent: AnyAgent<Frame>,
}

impl<T: Into<AnyAgent<Frame>>> From<T> for Machine {
    fn from(agent: T) -> Self {
        let agent = agent.into();
        Self { name: agent.name(), agent }
    }
}

/// The machines of all schemes, from the fixed side to the mobile side.
///
/// # Errors
///
/// A scheme's parameters make no sense together.
pub(super) fn all(config: &AgentConfig) -> Result<Vec<Machine>, AgentError> {
    let mut machines = Vec::new();
    for role in &config.schemes {
        of(role.scheme, config, &mut machines)?;
    }
    // Which of them are first follows from the hop: what recovers its losses is next to it.
    let recovery = |machine: &Machine| machine.needs_peer();
    let comes_first = |machine: &Machine| recovery(machine) == (config.end == HopEnd::Mobile);
    let (mut machines, rest): (Vec<_>, Vec<_>) = machines.into_iter().partition(comes_first);
    machines.extend(rest);
    machines.dedup_by(|a, b| recovery(a) && recovery(b));
    Ok(machines)
}

fn of(scheme: Scheme, config: &AgentConfig, machines: &mut Vec<Machine>) -> Result<(), AgentError> {
    let place = config.end;
    let connections = config.connections;
    let parameters = |error: obtcp::ConfigError| AgentError::Parameters(error.to_string());
    if scheme.recovers_on_link() && config.recovery {
        let link = LinkConfig { first_frame: super::peer::epoch(), ..LinkConfig::default() };
        let recovery = match config.end {
            HopEnd::Base => LinkRetransmission::at_base(&link),
            HopEnd::Mobile => LinkRetransmission::at_mobile(&link),
        };
        machines.push(recovery.into());
    }
    match scheme {
        Scheme::None
        | Scheme::SplitTcp
        | Scheme::ITcp
        | Scheme::Srp
        | Scheme::Bond
        | Scheme::BondRedundant
        | Scheme::MobileTcp
        | Scheme::MobileTcpUnsplit
        | Scheme::Ebsn
        | Scheme::FastRtxHandoff
        | Scheme::MptcpMinrtt
        | Scheme::MptcpEcf
        | Scheme::MptcpBlest => {}
        Scheme::Snoop => {
            let config = snoop::Config { connections, ..snoop::Config::modern() };
            machines.push(Snoop::new(config).into());
        }
        Scheme::Obtcp => {
            let mut config = obtcp::Config::modern();
            config.memory.connections = connections;
            machines.push(match place {
                HopEnd::Base => obtcp::Base::new(config).map_err(parameters)?.into(),
                HopEnd::Mobile => obtcp::Router::new(config).map_err(parameters)?.into(),
            });
        }
        Scheme::MTcp => {
            let config = MTcpConfig { connections, ..MTcpConfig::default() };
            machines.push(MTcp::new(&config).into());
        }
        Scheme::DelayedDupacks | Scheme::CongestionCoherence if place == HopEnd::Base => {}
        Scheme::DelayedDupacks => {
            let delay = config.hold;
            let config =
                DelayedDupacksConfig { delay, connections, ..DelayedDupacksConfig::default() };
            machines.push(DelayedDupacks::new(config).into());
        }
        Scheme::CongestionCoherence => {
            let config =
                CoherentConfig { hold: config.hold, connections, ..CoherentConfig::default() };
            machines.push(CoherentDupacks::new(config).into());
        }
        Scheme::Freeze => {
            let mut freeze = FreezeConfig { connections, ..FreezeConfig::freeze(place) };
            freeze.acks_after = config.acks.unwrap_or(freeze.acks_after);
            machines.push(Freeze::new(freeze).into());
        }
        Scheme::LlFreeze => {
            let mut freeze = FreezeConfig { connections, ..FreezeConfig::link_layer(place) };
            freeze.acks_after = config.acks.unwrap_or(freeze.acks_after);
            machines.push(Machine { name: "ll-freeze", ..Freeze::new(freeze).into() });
        }
        Scheme::Atcp => {
            let config = WithholdConfig { place, connections, ..WithholdConfig::modern() };
            machines.push(Withhold::new(config).into());
        }
        Scheme::Rwc => {
            let total = match config.window {
                config::Total::Auto => Total::AUTO,
                config::Total::Packets(n) => Total::Packets(n.into()),
            };
            let config = WindowsConfig { total, place, connections, ..WindowsConfig::default() };
            machines.push(ReceiverWindows::new(config).into());
        }
    }
    Ok(())
}

impl Machine {
    /// Whether it makes segments of its own.
    pub(super) fn makes_segments(&self) -> bool {
        !matches!(self.agent, AnyAgent::Link(_) | AnyAgent::Windows(_) | AnyAgent::Snoop(_))
    }

    /// Whether it can do nothing without an agent at the other end of the hop.
    pub(super) fn needs_peer(&self) -> bool {
        matches!(self.agent, AnyAgent::Link(_))
    }

    /// Whether it exchanges messages with an agent at the other end of the hop.
    pub(super) fn speaks(&self) -> bool {
        matches!(self.agent, AnyAgent::Link(_) | AnyAgent::ObtcpBase(_) | AnyAgent::ObtcpRouter(_))
    }

    /// The other end has begun anew: what was kept for it is of no use.
    pub(super) fn begin_anew(&mut self) {
        if let AnyAgent::Link(machine) = &mut self.agent {
            // There is one machine for the hop, whichever mobile is named.
            machine.remove_mobile(std::net::Ipv4Addr::UNSPECIFIED.into());
        }
    }

    /// The user's priority of a connection, for a machine that divides.
    pub(super) fn set_priority(&mut self, now: Time, connection: Connection, priority: u32) {
        if let AnyAgent::Windows(machine) = &mut self.agent {
            machine.set_priority(now, &connection, Some(priority));
        }
    }

    /// What it has counted.
    pub(super) fn counters(&self) -> impl Iterator<Item = (String, u64)> + '_ {
        let of = self.name.replace('-', "_");
        self.agent.counters().into_iter().map(move |(name, count)| (format!("{of}_{name}"), count))
    }
}
