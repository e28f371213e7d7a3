//! The mobile's radios, one to each base.

use std::time::Instant;

use lasthop_kernel::netns::Netns;
use lasthop_units::Duration;

use super::{BASES, Config, FAMILIES, RADIO, address, index, prefixes, radio_net};
use crate::air::Air;
use crate::carrier::Carrier;
use crate::error::LabError;

/// Longer than any lab lives.
const FOREVER: Duration = Duration::from_secs(1 << 30);

/// All radios, and which of them is up.
#[derive(Debug)]
pub(super) struct Radios {
    radios: Vec<Radio>,
    place: Option<usize>,
    last: usize,
}

#[derive(Debug)]
struct Radio {
    carrier: Carrier,
    air: Air,
}

/// The mobile's interface to base `number`.
pub(super) fn name(number: usize) -> String {
    format!("radio{number}")
}

impl Radios {
    /// One radio for each base; that of the first is up.
    pub(super) fn start(
        bases: &[Netns; BASES],
        mobile: &Netns,
        config: &Config,
    ) -> Result<Self, LabError> {
        for family in ["ipv4", "ipv6"] {
            for conf in ["all", "default"] {
                mobile.sysctl(&format!("{family}.conf.{conf}.ignore_routes_with_linkdown"), "1")?;
            }
        }
        let mut radios = Vec::new();
        for (i, base) in bases.iter().enumerate() {
            let number = i + 1;
            let seed = config.seed.child(&name(number));
            let ends = ((base, RADIO), (mobile, name(number)));
            let air = Air::joining(ends.0, (ends.1.0, &ends.1.1), &config.radio, seed)?;
            configure(base, mobile, number)?;
            let carrier = air.carrier()?;
            radios.push(Radio { carrier, air });
        }
        let mut radios = Self { radios, place: Some(1), last: 1 };
        for number in 2..=BASES {
            radios.silence(number)?;
        }
        Ok(radios)
    }

    pub(super) fn place(&self) -> Option<usize> {
        self.place
    }

    pub(super) fn last_place(&self) -> usize {
        self.last
    }

    pub(super) fn air(&self, number: usize) -> &Air {
        &self.radios[index(number)].air
    }

    pub(super) fn leave(&mut self) -> Result<Instant, LabError> {
        match self.place.take() {
            Some(number) => self.silence(number),
            None => Ok(Instant::now()),
        }
    }

    pub(super) fn arrive(&mut self, number: usize) -> Result<Instant, LabError> {
        if self.place.is_some() {
            self.leave()?;
        }
        let radio = &mut self.radios[index(number)];
        radio.air.resume();
        let since = radio.carrier.set(true)?;
        self.last = index(number) + 1;
        self.place = Some(self.last);
        Ok(since)
    }

    fn silence(&mut self, number: usize) -> Result<Instant, LabError> {
        let radio = &mut self.radios[index(number)];
        radio.air.pause(FOREVER);
        radio.carrier.set(false)
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
    for family in FAMILIES {
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
