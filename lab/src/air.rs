//! A link of the lab: the real-time emulator on a thread of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread::{self, JoinHandle};

use lasthop_linux::emulator::{
    self, Control, EmulatorError, Port, Ports, Snapshot, UdpLimits, UdpRelay,
};
use lasthop_linux::netns::Netns;
use lasthop_radio::{Direction, LinkStats, RadioConfig};
use lasthop_units::{Duration, Rate, Seed};

use crate::error::LabError;

/// A running link. It ends when this is dropped, and its interfaces vanish with it.
#[derive(Debug)]
pub struct Air {
    control: Control,
    thread: Option<JoinHandle<Result<Snapshot, EmulatorError>>>,
}

impl Air {
    /// Joins two new TUN interfaces, both called `name`, one in `base` and one in `mobile`. They
    /// have neither addresses nor are they up.
    ///
    /// # Errors
    ///
    /// The interfaces are not permitted, or `config` describes no radio.
    pub fn between(
        base: &Netns,
        mobile: &Netns,
        name: &str,
        config: &RadioConfig,
        seed: Seed,
    ) -> Result<Self, LabError> {
        let open = |host: &Netns| -> Result<Port, LabError> {
            host.enter(|| Port::tun(name))?.map_err(LabError::Tun)
        };
        let ports = Ports::interfaces(open(mobile)?, open(base)?);
        Self::start(ports, config, seed)
    }

    /// Joins a new UDP port of the loopback interface, which is returned, with the base at `base`.
    ///
    /// # Errors
    ///
    /// No port can be had, or `config` describes no radio.
    pub fn udp(
        base: SocketAddr,
        config: &RadioConfig,
        seed: Seed,
    ) -> Result<(Self, SocketAddr), LabError> {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let bind = || {
            let relay = UdpRelay::bind(any, base, UdpLimits::default())?;
            let address = relay.local_addr()?;
            Ok((relay, address))
        };
        let (relay, address) = bind().map_err(|e| LabError::io("opening the radio's port", e))?;
        Ok((Self::start(Ports::udp(relay), config, seed)?, address))
    }

    fn start(ports: Ports, config: &RadioConfig, seed: Seed) -> Result<Self, LabError> {
        config.up.validate().and_then(|()| config.down.validate())?;
        let control = Control::new().map_err(|e| LabError::io("starting a link", e))?;
        let (config, handle) = (config.clone(), control.clone());
        let thread = thread::Builder::new()
            .name("air".into())
            .spawn(move || emulator::run(ports, &config, seed, &handle))
            .map_err(|e| LabError::io("starting a link", e))?;
        Ok(Self { control, thread: Some(thread) })
    }

    /// What the link did since the last reset in one direction.
    pub fn stats(&self, direction: Direction) -> LinkStats {
        *self.snapshot().link(direction)
    }

    /// What the link did since the last reset, and how punctual it was.
    pub fn snapshot(&self) -> Snapshot {
        self.control.fresh_snapshot()
    }

    /// Begins all statistics anew.
    pub fn reset_stats(&self) {
        self.control.reset_stats();
    }

    /// Makes the link silent in both directions from this moment on (LNK-7).
    pub fn pause(&self, duration: Duration) {
        self.control.pause(duration);
    }

    /// Ends a silence begun by [`pause`](Self::pause).
    pub fn resume(&self) {
        self.control.resume();
    }

    /// Changes the rate of one direction.
    pub fn set_rate(&self, direction: Direction, rate: Rate) {
        self.control.set_rate(direction, rate);
    }
}

impl Drop for Air {
    fn drop(&mut self) {
        self.control.stop();
        if let Some(thread) = self.thread.take() {
            // What it would say on the way out concerns nobody any more.
            let _ = thread.join();
        }
    }
}
