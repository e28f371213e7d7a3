//! A link of the lab: the real-time emulator on a thread of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread::{self, JoinHandle};

use lasthop_emulator::{
    self as emulator, Control, EmulatorError, Port, Ports, Snapshot, UdpLimits, UdpRelay,
};
use lasthop_kernel::netns::Netns;
use lasthop_kernel::packet_socket::PacketSocket;
use lasthop_radio::{Direction, LinkStats, RadioConfig};
use lasthop_units::Seed;

use crate::carrier::{Carrier, cable, plug, quiet};
use crate::error::LabError;
use crate::tap::Tap;

/// The far ends of interfaces that carry frames.
const AT_MOBILE: &str = "mobile0";
const AT_BASE: &str = "base0";

/// An end of a link.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Mobile,
    Base,
}

/// A running link. It ends when this is dropped, and its interfaces vanish with it.
#[derive(Debug)]
pub struct Air {
    /// What it did, and what it shall do.
    pub control: Control,
    thread: Option<JoinHandle<Result<Snapshot, EmulatorError>>>,
    /// Where the far ends of virtual Ethernet interfaces are.
    place: Option<Netns>,
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

    /// Joins two new virtual Ethernet interfaces, both called `name`, one in `base` and one in
    /// `mobile`: every frame crosses, whatever its type. They have neither addresses nor are they
    /// up.
    ///
    /// # Errors
    ///
    /// The interfaces are not permitted, or `config` describes no radio.
    pub fn between_frames(
        base: &Netns,
        mobile: &Netns,
        name: &str,
        config: &RadioConfig,
        seed: Seed,
    ) -> Result<Self, LabError> {
        Self::joining((base, name), (mobile, name), config, seed)
    }

    /// As [`between_frames`](Self::between_frames), with a name of its own for each interface.
    ///
    /// # Errors
    ///
    /// The interfaces are not permitted, or `config` describes no radio.
    pub fn joining(
        base: (&Netns, &str),
        mobile: (&Netns, &str),
        config: &RadioConfig,
        seed: Seed,
    ) -> Result<Self, LabError> {
        // The far ends have a place of their own, where no stack answers what passes. It is gone
        // when the emulator has closed its sockets there.
        let air = quiet()?;
        let open = |(host, name): (&Netns, &str), far: &str| -> Result<Port, LabError> {
            cable(host, name, &air, far)?;
            // What the radio loses has to be whole packets of the host's making.
            air.ip(&format!("link set dev {far} mtu 65535\nlink set dev {far} up\n"))?;
            air.enter(|| Port::interface(far))?.map_err(LabError::Frames)
        };
        let (at_mobile, at_base) = (open(mobile, AT_MOBILE)?, open(base, AT_BASE)?);
        let mut link = Self::start(Ports::interfaces(at_mobile, at_base), config, seed)?;
        link.place = Some(air);
        Ok(link)
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
        Ok(Self { control, thread: Some(thread), place: None })
    }

    /// Counts what both hosts send from here on; none if the link carries no frames.
    ///
    /// # Errors
    ///
    /// The interfaces cannot be opened once more.
    pub fn tap(&self) -> Result<Option<Tap>, LabError> {
        let Some(place) = &self.place else { return Ok(None) };
        let open = |far: &str| place.enter(|| PacketSocket::open(far))?.map_err(LabError::Frames);
        Tap::start(vec![open(AT_MOBILE)?, open(AT_BASE)?]).map(Some)
    }

    /// The carrier of the mobile's interface, to be taken away and given back.
    ///
    /// # Errors
    ///
    /// The link carries no frames, or `ip` could not be started.
    pub(crate) fn carrier(&self) -> Result<Carrier, LabError> {
        let Some(place) = &self.place else {
            return Err(LabError::io("finding a carrier", std::io::ErrorKind::Unsupported.into()));
        };
        Carrier::new(place, AT_MOBILE)
    }

    /// Gives the interface at an end its carrier, or takes it away: its plug is in or out. Nothing comes of it if the link
    /// carries no frames.
    ///
    /// # Errors
    ///
    /// `ip` failed.
    pub(crate) fn plug(&self, end: End, present: bool) -> Result<(), LabError> {
        let far = match end {
            End::Mobile => AT_MOBILE,
            End::Base => AT_BASE,
        };
        self.place.iter().try_for_each(|place| plug(place, far, present))
    }

    /// What the link did since the last reset in one direction.
    pub fn stats(&self, direction: Direction) -> LinkStats {
        *self.control.fresh_snapshot().link(direction)
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
