//! The radio in real time: `lasthop-radio`'s machine between two interfaces or two UDP addresses.
//!
//! ```no_run
//! use std::thread;
//! use lasthop_emulator::{self as emulator, Control, Port, Ports};
//! use lasthop_radio::RadioConfig;
//! use lasthop_units::Seed;
//!
//! let ports = Ports::interfaces(Port::interface("to-mobile")?, Port::interface("to-base")?);
//! let control = Control::new()?;
//! let handle = control.clone();
//! let radio = thread::spawn(move || {
//!     emulator::run(ports, &RadioConfig::default(), Seed::from_u64(1), &handle)
//! });
//! control.reset_stats();
//! println!("{:?}", control.fresh_snapshot().down.delivered_rate());
//! control.stop();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod control;
mod engine;
mod frames;
mod lateness;
mod mark;
mod pool;
mod udp;

#[cfg(test)]
mod tests;

use std::io;

use lasthop_radio::{ConfigError, RadioConfig};
use lasthop_units::Seed;
use thiserror::Error;

use lasthop_kernel::packet_batches::PacketBatches;
use lasthop_kernel::packet_socket::{PacketSocket, PacketSocketError};
use lasthop_kernel::tun::{Tun, TunError};

pub use control::{Control, PortStats, Snapshot};
pub use lateness::Lateness;
pub use udp::{UdpLimits, UdpRelay};

/// An emulator that could not be started, or could not go on.
#[derive(Debug, Error)]
pub enum EmulatorError {
    /// The configuration describes no radio.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Frames of one port cannot leave by the other.
    #[error("an Ethernet interface and a TUN device cannot be joined: take two of the same kind")]
    MixedPorts,
    /// A relay sees no IP header that it could mark.
    #[error(
        "ecn-mark is set, but between UDP addresses no IP header passes the radio: join two \
         interfaces, or leave it out"
    )]
    NoMarks,
    /// The system refused.
    #[error("the emulator: {0}")]
    Io(#[from] io::Error),
}

/// One end of the radio, open in the network namespace of the thread that opened it.
#[derive(Debug)]
pub enum Port {
    /// An Ethernet interface, such as a veth.
    Interface(PacketBatches),
    /// A TUN device.
    Tun(Tun),
}

impl Port {
    /// The interface `name` in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// There is no such interface, or no permission.
    pub fn interface(name: &str) -> Result<Self, PacketSocketError> {
        Ok(Self::Interface(PacketSocket::open(name)?.into()))
    }

    /// The TUN device `name` in the calling thread's network namespace, made if it is not there.
    ///
    /// # Errors
    ///
    /// The name is none, or there is no permission.
    pub fn tun(name: &str) -> Result<Self, TunError> {
        Tun::open(name).map(Self::Tun)
    }
}

/// What the radio joins.
#[derive(Debug)]
pub struct Ports(PortKind);

#[derive(Debug)]
enum PortKind {
    Interfaces { mobile: Port, base: Port },
    Udp(UdpRelay),
}

impl Ports {
    /// Two interfaces: what comes in at `mobile` goes up and leaves at `base`.
    pub fn interfaces(mobile: Port, base: Port) -> Self {
        Self(PortKind::Interfaces { mobile, base })
    }

    /// Two UDP end points.
    pub fn udp(relay: UdpRelay) -> Self {
        Self(PortKind::Udp(relay))
    }
}

/// Runs a radio until `control` stops it, on the calling thread, which it keeps to itself: where
/// that is permitted, the thread is given real-time priority. The result is what happened since
/// the last reset.
///
/// # Errors
///
/// The configuration describes no radio, the ports do not fit, or a port is gone.
pub fn run(
    ports: Ports,
    config: &RadioConfig,
    seed: Seed,
    control: &Control,
) -> Result<Snapshot, EmulatorError> {
    let result = match ports.0 {
        PortKind::Interfaces { mobile, base } => frames::FrameExchange::new(mobile, base)
            .and_then(|ports| engine::Engine::new(ports, config, seed, control)?.run()),
        PortKind::Udp(_) if config.up.ecn_mark.or(config.down.ecn_mark).is_some() => {
            Err(EmulatorError::NoMarks)
        }
        PortKind::Udp(relay) => {
            let ports = udp::UdpExchange::new(relay);
            engine::Engine::new(ports, config, seed, control).and_then(|mut engine| engine.run())
        }
    };
    control.end();
    result
}
