//! Follows the networks below: by which addresses bases are reached, and which interfaces have a carrier.

use lasthop_kernel::turn::Turn;
use lasthop_units::LinkEvent;

use super::handoff::LINGER;
use super::links::LinkConfig;
use super::network::NetworkChanges;
use super::{Core, MobileHop, MobileRole};
use crate::carrier::udp::local_towards;

impl MobileRole {
    /// Follows changes of the networks below. True if there was one.
    pub(super) fn poll_network(&mut self, core: &mut Core) -> bool {
        if !self.network.is_ready() {
            return false;
        }
        let changes = self.network.poll();
        if changes.path {
            self.update_signal_interface(core);
            match self.links.are_used() {
                true => self.follow_links(core),
                false => self.follow_path(core, &changes),
            }
            self.follow_carrier(core);
        }
        changes.path
    }

    /// The route to a base or our address there has changed: a datagram is sent at once, by which the
    /// base notices.
    fn follow_path(&mut self, core: &mut Core, changes: &NetworkChanges) {
        for i in 0..self.stations.len() {
            let station = &mut self.stations[i];
            let Some(part) = station.part else { continue };
            let ours = station.addresses.used().and_then(local_towards);
            let before = std::mem::replace(&mut station.local, ours);
            if before != ours {
                let worth = core.hop.get(part).and_then(MobileHop::saved_path);
                station.saved.insert(before, worth);
            }
            let stranded = before.is_some_and(|ip| changes.lost.contains(&ip));
            let bound = core.hop.get(part).is_some_and(|hop| !hop.roams());
            if i == self.here && bound && stranded && self.resumed {
                self.reconnect(core);
                continue;
            }
            if before != ours || changes.route {
                let (hop, mut turn) = core.turn();
                hop.with(&mut turn, part, |hop, turn| {
                    hop.handle_link_event(turn, 0, LinkEvent::Up);
                    hop.roam(turn, 0);
                });
            }
        }
    }

    /// Links have come, are lost, or have other addresses.
    fn follow_links(&mut self, core: &mut Core) {
        for link in self.find_links() {
            for part in self.stations.iter().filter_map(|station| station.part) {
                let (hop, mut turn) = core.turn();
                hop.with(&mut turn, part, |hop, turn| {
                    hop.add_link(turn, &link.name, &link.interface)
                });
            }
        }
        for (link, down) in self.links.poll(&self.network) {
            tracing::info!(link = self.links.name(link), down, "a link has changed");
            self.notify_link(core, None, Some(link), down);
        }
    }

    /// Interfaces that have become links; hops that are made from now on use them.
    pub(super) fn find_links(&mut self) -> Vec<LinkConfig> {
        let found = self.links.find(&self.network);
        for link in &found {
            tracing::info!(link = link.name, "a link was found");
            self.factory.add_link(link.clone());
        }
        found
    }

    /// A link is down, or is there, perhaps with another address: to all bases, or to those that are near on an interface.
    fn notify_link(&self, core: &mut Core, near: Option<&str>, link: Option<usize>, down: bool) {
        let concerned = |name: Option<&str>| near.is_none() || name == near;
        let near = self.stations.iter().filter(|s| concerned(s.config.interface.as_deref()));
        let parts: Vec<u32> = near.filter_map(|station| station.part).collect();
        let links = match link {
            Some(link) => link..link + 1,
            None => 0..self.links.len().max(1),
        };
        let (hop, mut turn) = core.turn();
        for part in parts {
            for link in links.clone() {
                hop.with(&mut turn, part, |hop, turn| notify_link(hop, turn, link, down));
            }
        }
    }

    /// Moves to a base whose interface works, if that of the base `here` does not.
    pub(super) fn follow_carrier(&mut self, core: &mut Core) {
        let carries = |i: usize| {
            let interface = self.stations[i].config.interface.as_deref()?;
            self.network.carries(interface)
        };
        if carries(self.here) != Some(false) {
            return;
        }
        let better = |i: &usize| carries(*i) == Some(true) && self.is_usable(core.now, *i);
        let better = (0..self.stations.len()).filter(better);
        if let Some(i) = self.best_of(core, better) {
            self.move_to(core, i);
        }
    }

    /// Opens another association with the same base, for a hop whose addresses cannot change. The base
    /// knows the session by its name.
    fn reconnect(&mut self, core: &mut Core) {
        tracing::info!(base = self.stations[self.here].name(), "address lost: reconnecting");
        let here = self.here;
        if let Some(old) = self.stations[here].part.take() {
            self.retired.push((core.now + LINGER, old));
        }
        self.suspend_session(core, here);
    }

    /// The operator reports the link as down or up.
    pub(super) fn handle_link(&mut self, core: &mut Core, interface: Option<&str>, down: bool) {
        if let Some(interface) = interface {
            self.network.set_down(interface, down);
            self.update_signal_interface(core);
        }
        match interface.and_then(|interface| self.links.position(interface)) {
            Some(link) => self.notify_link(core, None, Some(link), down),
            None => self.notify_link(core, interface, None, down),
        }
        self.follow_carrier(core);
    }
}

fn notify_link(hop: &mut dyn MobileHop, turn: &mut Turn<'_>, link: usize, down: bool) {
    if down {
        return hop.handle_link_event(turn, link, LinkEvent::Down);
    }
    hop.handle_link_event(turn, link, LinkEvent::Up);
    hop.roam(turn, link);
}
