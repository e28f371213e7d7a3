//! The mobile's radios, one to each base.

use std::time::Instant;

use lasthop_emulator::Control;
use lasthop_kernel::netns::Netns;
use lasthop_units::Duration;

use super::{BASES, Config, RADIO, Roam, index, radio_net};
use crate::air::{Air, End};
use crate::carrier::Carrier;
use crate::error::LabError;
use crate::topology::{Family, address, prefixes};

/// Longer than any lab lives.
const FOREVER: Duration = Duration::from_secs(1 << 30);

/// The radio to a base.
#[derive(Debug)]
pub(super) struct Radio {
    carrier: Carrier,
    air: Air,
}

impl Radio {
    /// The base's own plug, whether or not the mobile is there.
    pub(super) fn plug_at_base(&self, present: bool) -> Result<(), LabError> {
        self.air.plug(End::Base, present)
    }

    fn silence(&mut self) -> Result<Instant, LabError> {
        self.air.control.pause(FOREVER);
        self.carrier.set(false)
    }
}

/// The mobile's interface to base `number`.
pub(super) fn name(number: usize) -> String {
    format!("radio{number}")
}

/// One radio for each base; that of the first is up.
pub(super) fn start(
    bases: &[Netns; BASES],
    mobile: &Netns,
    config: &Config,
) -> Result<Vec<Radio>, LabError> {
    for family in ["ipv4", "ipv6"] {
        for conf in ["all", "default"] {
            mobile.sysctl(&format!("{family}.conf.{conf}.ignore_routes_with_linkdown"), "1")?;
        }
    }
    let mut radios = Vec::new();
    for (number, base) in (1..).zip(bases) {
        let name = name(number);
        let seed = config.seed.child(&name);
        let air = Air::joining((base, RADIO), (mobile, &name), &config.radio, seed)?;
        configure(base, mobile, number)?;
        let carrier = air.carrier()?;
        radios.push(Radio { carrier, air });
    }
    radios[1..].iter_mut().try_for_each(|radio| radio.silence().map(drop))?;
    Ok(radios)
}

impl Roam {
    /// Where the mobile is; nowhere in a dead zone.
    pub fn place(&self) -> Option<usize> {
        self.place
    }

    /// The base that the mobile is at, or was at last.
    pub fn last_place(&self) -> usize {
        self.last_place
    }

    /// What the radio that the mobile is on can be told; none in a dead zone.
    pub fn control(&self) -> Option<&Control> {
        self.place.map(|number| &self.radios[index(number)].air.control)
    }

    /// The mobile leaves the base that it is at: its radio has no carrier, and what is on the air
    /// is lost. The moment is when.
    ///
    /// # Errors
    ///
    /// The carrier could not be taken away.
    pub fn leave(&mut self) -> Result<Instant, LabError> {
        match self.place.take() {
            Some(number) => self.radios[index(number)].silence(),
            None => Ok(Instant::now()),
        }
    }

    /// The radio to base `number` has a carrier or not from that moment on, which is returned, whatever others have.
    ///
    /// # Errors
    ///
    /// The carrier could not be given or taken away.
    pub fn set_radio(&mut self, number: usize, carrier: bool) -> Result<Instant, LabError> {
        let radio = &mut self.radios[index(number)];
        if !carrier {
            return radio.silence();
        }
        radio.air.control.resume();
        radio.carrier.set(true)
    }

    /// The mobile arrives at base `number`: the radio there has a carrier from that moment on,
    /// which is returned. It leaves another first.
    ///
    /// # Errors
    ///
    /// The carrier could not be given.
    pub fn arrive(&mut self, number: usize) -> Result<Instant, LabError> {
        self.leave()?;
        let radio = &mut self.radios[index(number)];
        radio.air.control.resume();
        let since = radio.carrier.set(true)?;
        self.last_place = index(number) + 1;
        self.place = Some(self.last_place);
        Ok(since)
    }
}

/// Addresses, neighbours and the mobile's way out by this radio.
///
/// The ends know each other's Ethernet addresses: a radio's own attachment tells them, and a
/// question for them would be a round trip that is nobody's here.
fn configure(base: &Netns, mobile: &Netns, number: usize) -> Result<(), LabError> {
    let (net, interface) = (radio_net(number), name(number));
    let macs = [format!("02:00:5e:20:{number:02}:01"), format!("02:00:5e:20:{number:02}:02")];
    let ends = [(base, RADIO, 1), (mobile, interface.as_str(), 2)];
    for ((host, interface, n), mac) in ends.into_iter().zip(&macs) {
        host.ip(&format!("link set dev {interface} address {mac}\n"))?;
        host.interface_up(interface, &prefixes(net, n))?;
    }
    for family in Family::ALL {
        for ((host, interface, n), mac) in ends.into_iter().zip(macs.iter().rev()) {
            let peer = address(family, net, 3 - n);
            host.ip(&format!("neigh replace {peer} lladdr {mac} dev {interface} nud permanent\n"))?;
        }
        let gateway = address(family, net, 1);
        let metric = 100 + number;
        mobile.ip(&format!("route add default via {gateway} dev {interface} metric {metric}\n"))?;
    }
    Ok(())
}
