//! Hops to bases: opened when they are needed, and given the base's address.

use std::io;
use std::net::SocketAddr;

use super::{Core, MobileRole, OPEN_AGAIN, RESOLVE_AGAIN};
use crate::carrier::udp::local_towards;
use crate::config::HopAddress;
use crate::driver::{Asker, Client, Timer};
use crate::error::RunError;

impl MobileRole {
    /// Opens a hop to base `i` if there is none; its part.
    pub(super) fn open_hop(&mut self, core: &mut Core, i: usize) -> Option<u32> {
        let station = self.stations.get_mut(i)?;
        if station.part.is_some() {
            return station.part;
        }
        let made = match self.first.take() {
            Some(hop) => Ok(hop),
            None => self.factory.make(&station.config, core.now),
        };
        let (several, mut turn) = core.turn();
        let added = made.and_then(|hop| {
            let part = several.add(hop);
            let started = several.with(&mut turn, part, |hop, turn| hop.start(turn));
            if let Some(Err(e)) = started {
                several.discard(&mut turn, part);
                return Err(RunError::Kernel(e));
            }
            Ok(part)
        });
        match added {
            Ok(part) => {
                station.part = Some(part);
                self.transits.set_changed();
            }
            Err(e) => {
                station.report(&e.to_string());
                if i == self.here {
                    core.arm(core.now + OPEN_AGAIN, Timer::Base(i));
                }
            }
        }
        let part = station.part;
        if part.is_some() {
            self.resolve_base(core, i);
        }
        part
    }

    /// Looks the base's name up again, or opens the hop to it that could not be opened.
    pub(super) fn try_base_again(&mut self, core: &mut Core, i: usize) {
        let opened = self.stations.get(i).is_some_and(|station| station.part.is_some());
        if opened {
            self.resolve_base(core, i);
        } else if i == self.here && !core.stopping {
            self.call_here(core);
        }
    }

    pub(super) fn resolve_base(&mut self, core: &mut Core, i: usize) {
        let Some(station) = self.stations.get_mut(i) else { return };
        // On a link there is nothing to look up.
        let HopAddress::Internet(base) = &station.config.place else { return };
        if station.addresses.asking {
            return;
        }
        if let Ok(ip) = base.host.parse() {
            station.addresses.set(vec![SocketAddr::new(ip, base.port)]);
            return self.use_base(core, i);
        }
        match core.resolver.request(Client::Own, Asker::Base(i), &base.host, base.port) {
            Ok(()) => station.addresses.asking = true,
            Err(_) => core.arm(core.now + RESOLVE_AGAIN, Timer::Base(i)),
        }
    }

    fn use_base(&mut self, core: &mut Core, i: usize) {
        let Some(station) = self.stations.get_mut(i) else { return };
        if let (Some(part), Some(addr)) = (station.part, station.addresses.take()) {
            station.local = local_towards(addr);
            let saved = station.saved.get(station.local);
            let (hop, mut turn) = core.turn();
            hop.with(&mut turn, part, |hop, turn| {
                if let Some(saved) = saved {
                    hop.resume_path(turn.now, saved);
                }
                hop.set_base(turn, addr);
            });
        }
    }

    pub(super) fn handle_resolved(
        &mut self,
        core: &mut Core,
        i: usize,
        addresses: io::Result<Vec<SocketAddr>>,
    ) {
        let Some(station) = self.stations.get_mut(i) else { return };
        station.addresses.asking = false;
        match addresses {
            Ok(addresses) => {
                let gone = station.addresses.set(addresses);
                let hop = station.part.and_then(|part| core.hop.get(part));
                // A silent hop is no reason to leave an address that is still the base's.
                if gone || !hop.is_some_and(|hop| hop.is_up()) {
                    self.use_base(core, i);
                }
            }
            Err(e) => {
                station.report(&e.to_string());
                core.arm(core.now + RESOLVE_AGAIN, Timer::Base(i));
            }
        }
    }
}
