//! The machines that a scheme is made of.

use lasthop_agent::edge::{
    CoherentConfig, CoherentDupacks, DelayedDupacks, DelayedDupacksConfig, Freeze, FreezeConfig,
    HopEnd, ReceiverWindows, Total, WindowsConfig, Withhold, WithholdConfig,
};
use lasthop_agent::link::{LinkConfig, LinkRetransmission};
use lasthop_agent::m_tcp::{MTcp, MTcpConfig};
use lasthop_agent::snoop::{self, Snoop};
use lasthop_agent::{Agent, Connection, obtcp};
use lasthop_units::Time;

use super::config::{self, AgentConfig, End, Scheme};
use super::error::AgentError;
use super::frame::Frame;

/// A machine of an agent.
pub(super) enum Machine {
    Snoop(Snoop<Frame>),
    ObtcpBase(obtcp::Base<Frame>),
    ObtcpRouter(obtcp::Router<Frame>),
    MTcp(MTcp<Frame>),
    Recovery(LinkRetransmission<Frame>),
    DelayedDupacks(DelayedDupacks<Frame>),
    CoherentDupacks(CoherentDupacks<Frame>),
    /// `freeze` or `ll-freeze`, by this name.
    Freeze(&'static str, Freeze<Frame>),
    Withhold(Withhold<Frame>),
    Windows(ReceiverWindows<Frame>),
}

/// The machines of all schemes, from the fixed side to the mobile side.
///
/// # Errors
///
/// A scheme's parameters make no sense together.
pub(super) fn all(config: &AgentConfig) -> Result<Vec<Machine>, AgentError> {
    let mut machines = Vec::new();
    for scheme in &config.schemes {
        of(*scheme, config, &mut machines)?;
    }
    // Which of them are first follows from the hop: what recovers its losses is next to it.
    let recovery = |machine: &Machine| matches!(machine, Machine::Recovery(_));
    match config.end {
        End::Base => machines.sort_by_key(recovery),
        End::Mobile => machines.sort_by_key(|machine| !recovery(machine)),
    }
    machines.dedup_by(|a, b| recovery(a) && recovery(b));
    Ok(machines)
}

fn of(scheme: Scheme, config: &AgentConfig, machines: &mut Vec<Machine>) -> Result<(), AgentError> {
    let place = match config.end {
        End::Base => HopEnd::Base,
        End::Mobile => HopEnd::Mobile,
    };
    let connections = config.connections;
    let parameters = |error: obtcp::ConfigError| AgentError::Parameters(error.to_string());
    if scheme.recovers() && config.recovery {
        let link = LinkConfig { first_frame: super::peer::epoch(), ..LinkConfig::default() };
        machines.push(Machine::Recovery(match config.end {
            End::Base => LinkRetransmission::at_base(&link),
            End::Mobile => LinkRetransmission::at_mobile(&link),
        }));
    }
    match scheme {
        Scheme::None => {}
        Scheme::Snoop => {
            let config = snoop::Config { connections, ..snoop::Config::modern() };
            machines.push(Machine::Snoop(Snoop::new(config)));
        }
        Scheme::ObtcpBase => {
            let mut config = obtcp::BaseConfig::modern();
            config.memory.connections = connections;
            let base = obtcp::Base::new(config).map_err(parameters)?;
            machines.push(Machine::ObtcpBase(base));
        }
        Scheme::ObtcpMobileRouter => {
            let mut config = obtcp::RouterConfig::modern();
            config.memory.connections = connections;
            let router = obtcp::Router::new(config).map_err(parameters)?;
            machines.push(Machine::ObtcpRouter(router));
        }
        Scheme::MTcp => {
            let config = MTcpConfig { connections, ..MTcpConfig::default() };
            machines.push(Machine::MTcp(MTcp::new(&config)));
        }
        Scheme::DelayedDupacks | Scheme::CongestionCoherence if config.end == End::Base => {}
        Scheme::DelayedDupacks => {
            let delay = config.hold;
            let config =
                DelayedDupacksConfig { delay, connections, ..DelayedDupacksConfig::default() };
            machines.push(Machine::DelayedDupacks(DelayedDupacks::new(config)));
        }
        Scheme::CongestionCoherence => {
            let config =
                CoherentConfig { hold: config.hold, connections, ..CoherentConfig::default() };
            machines.push(Machine::CoherentDupacks(CoherentDupacks::new(config)));
        }
        Scheme::Freeze => {
            let mut freeze = FreezeConfig { connections, ..FreezeConfig::freeze(place) };
            freeze.acks_after = config.acks.unwrap_or(freeze.acks_after);
            machines.push(Machine::Freeze("freeze", Freeze::new(freeze)));
        }
        Scheme::LlFreeze => {
            let mut freeze = FreezeConfig { connections, ..FreezeConfig::link_layer(place) };
            freeze.acks_after = config.acks.unwrap_or(freeze.acks_after);
            machines.push(Machine::Freeze("ll-freeze", Freeze::new(freeze)));
        }
        Scheme::Atcp => {
            let config = WithholdConfig { place, connections, ..WithholdConfig::modern() };
            machines.push(Machine::Withhold(Withhold::new(config)));
        }
        Scheme::Rwc => {
            let total = match config.window {
                config::Total::Auto => Total::AUTO,
                config::Total::Packets(n) => Total::Packets(n.into()),
            };
            let config = WindowsConfig { total, place, connections, ..WindowsConfig::default() };
            machines.push(Machine::Windows(ReceiverWindows::new(config)));
        }
    }
    Ok(())
}

/// A list of counters, named by a machine and by its statistics' fields.
macro_rules! counters {
    ($name:expr, $stats:expr, $($field:ident),+ $(,)?) => {{
        let stats = $stats;
        vec![$((format!("{}_{}", $name, stringify!($field)), stats.$field)),+]
    }};
}

/// Whichever machine it is.
macro_rules! each {
    ($self:expr) => {
        match $self {
            Self::Snoop(machine) => machine,
            Self::ObtcpBase(machine) => machine,
            Self::ObtcpRouter(machine) => machine,
            Self::MTcp(machine) => machine,
            Self::Recovery(machine) => machine,
            Self::DelayedDupacks(machine) => machine,
            Self::CoherentDupacks(machine) => machine,
            Self::Freeze(_, machine) => machine,
            Self::Withhold(machine) => machine,
            Self::Windows(machine) => machine,
        }
    };
}

impl Machine {
    /// What every machine does.
    pub(super) fn agent(&mut self) -> &mut dyn Agent<Frame> {
        each!(self)
    }

    fn seen(&self) -> &dyn Agent<Frame> {
        each!(self)
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.seen().next_timeout()
    }

    pub(super) fn watches_queue(&self) -> bool {
        self.seen().watches_queue()
    }

    /// Whether it makes segments of its own.
    pub(super) fn makes_segments(&self) -> bool {
        !matches!(self, Self::Recovery(_) | Self::Windows(_) | Self::Snoop(_))
    }

    /// Whether it can do nothing without an agent at the other end of the hop.
    pub(super) fn needs_peer(&self) -> bool {
        matches!(self, Self::Recovery(_))
    }

    /// Whether it speaks to an agent at the other end of the hop.
    pub(super) fn speaks(&self) -> bool {
        matches!(self, Self::Recovery(_) | Self::ObtcpBase(_) | Self::ObtcpRouter(_))
    }

    /// The other end has begun anew: what was kept for it is of no use.
    pub(super) fn begin_anew(&mut self) {
        if let Self::Recovery(machine) = self {
            // There is one machine for the hop, whichever mobile is named.
            machine.forget(std::net::Ipv4Addr::UNSPECIFIED.into());
        }
    }

    /// The user's priority of a connection, for a machine that divides.
    pub(super) fn set_priority(&mut self, now: Time, connection: Connection, priority: u32) {
        if let Self::Windows(machine) = self {
            machine.set_priority(now, &connection, Some(priority));
        }
    }

    /// What it has counted.
    pub(super) fn counters(&self) -> Vec<(String, u64)> {
        match self {
            Self::Snoop(machine) => counters!(
                "snoop",
                machine.stats(),
                local_retransmits,
                timeouts,
                suppressed,
                duplicates_passed,
                cached,
                left_out,
                evicted,
                released,
                marked,
                passed,
            ),
            Self::ObtcpBase(machine) => counters!(
                "obtcp_base",
                machine.stats(),
                cached,
                evicted,
                refused,
                snacks,
                retransmitted,
                congestions,
                timeouts,
            ),
            Self::ObtcpRouter(machine) => counters!(
                "obtcp_router",
                machine.stats(),
                gaps,
                untracked,
                snacks,
                repeated,
                lost_retransmissions,
                recovered,
                congestions,
                given_up,
                retransmitted,
                timeouts,
                suppressed,
                passed,
                replayed,
                evicted,
            ),
            Self::MTcp(machine) => counters!(
                "m_tcp",
                machine.stats(),
                kept,
                unkept,
                held,
                swallowed,
                released,
                made,
                disconnections,
                reconnections,
                probes_answered,
                repaired,
                timeouts,
                resumed,
                dropped,
            ),
            Self::Recovery(machine) => {
                let stats = machine.stats();
                let mut all = counters!(
                    "link",
                    stats.sender,
                    numbered,
                    acknowledged,
                    retransmitted,
                    probes,
                    given_up,
                    crowded_out,
                );
                all.extend(counters!("link", stats.receiver, delivered, duplicates, restarts));
                all
            }
            Self::DelayedDupacks(machine) => counters!(
                "delayed_dupacks",
                machine.stats(),
                held,
                discarded,
                released,
                hidden,
                passed,
            ),
            Self::CoherentDupacks(machine) => {
                counters!("coherence", machine.stats(), held, discarded, released, hidden, passed,)
            }
            Self::Freeze(name, machine) => counters!(
                name.replace('-', "_"),
                machine.stats(),
                freezes,
                thaws,
                zero_windows,
                opened,
                rewritten,
                probes_answered,
                passed,
            ),
            Self::Withhold(machine) => counters!(
                "atcp",
                machine.stats(),
                lowered,
                swallowed,
                released,
                reconnections,
                made,
                passed,
            ),
            Self::Windows(machine) => {
                let mut all =
                    counters!("rwc", machine.stats(), narrowed, divisions, unscaled, passed,);
                all.push(("rwc_window_bytes".to_owned(), machine.total().map_or(0, |n| n.get())));
                all.push(("rwc_flows".to_owned(), machine.divided() as u64));
                all
            }
        }
    }
}
