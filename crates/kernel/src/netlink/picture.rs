//! What is known of the network, and how two such pictures differ.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::{Address, Interface};

/// A change in the network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NetworkEvent {
    /// Packets go through the interface.
    Up {
        /// Its name.
        interface: String,
    },
    /// Packets do not go through the interface any more: no carrier, switched off, or gone.
    Down {
        /// Its name.
        interface: String,
    },
    /// The interface has an address that can be used.
    Gained {
        /// Its name.
        interface: String,
        /// The address.
        ip: IpAddr,
    },
    /// The interface has an address no longer.
    Lost {
        /// Its name.
        interface: String,
        /// The address.
        ip: IpAddr,
    },
    /// What is routed nowhere else goes another way.
    Default {
        /// The family: IPv6 or IPv4.
        ipv6: bool,
        /// The way; none if there is none.
        route: Option<DefaultRoute>,
    },
    /// There are other default routes behind the one that counts.
    Alternatives {
        /// The family: IPv6 or IPv4.
        ipv6: bool,
    },
}

/// Where packets go that are routed nowhere else.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DefaultRoute {
    /// The interface's name.
    pub interface: Option<String>,
    /// The gateway.
    pub via: Option<IpAddr>,
    /// Of several default routes the one with the least counts.
    pub metric: u32,
}

/// An interface, and how often it ceased to work.
#[derive(Clone, PartialEq, Eq, Debug)]
struct InterfaceState {
    interface: Interface,
    falls: u64,
}

/// What is known of the network.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Picture {
    interfaces: BTreeMap<u32, InterfaceState>,
    addresses: BTreeSet<(u32, IpAddr)>,
    /// For IPv4 and for IPv6, those first that count first.
    defaults: [Vec<DefaultRoute>; 2],
}

impl Picture {
    pub(super) fn interfaces(&self) -> impl Iterator<Item = &Interface> {
        self.interfaces.values().map(|known| &known.interface)
    }

    pub(super) fn addresses(&self, interface: u32) -> impl Iterator<Item = IpAddr> {
        let all = self.addresses.iter().filter(move |(index, _)| *index == interface);
        all.map(|(_, ip)| *ip)
    }

    #[cfg(any(test, feature = "testing"))]
    pub(super) fn len_of_addresses(&self) -> usize {
        self.addresses.len()
    }

    pub(super) fn default_route(&self, ipv6: bool) -> Option<&DefaultRoute> {
        self.defaults[usize::from(ipv6)].first()
    }

    pub(super) fn default_routes(&self) -> impl Iterator<Item = &DefaultRoute> {
        self.defaults.iter().flatten()
    }

    /// The name of an interface.
    pub(super) fn name(&self, index: u32) -> Option<&str> {
        self.interfaces.get(&index).map(|known| known.interface.name.as_str())
    }

    pub(super) fn set_interface(&mut self, interface: Interface) {
        let before = self.interfaces.get(&interface.index);
        let worked = before.is_some_and(|known| known.interface.works());
        let fell = u64::from(worked && !interface.works());
        let falls = before.map_or(0, |known| known.falls) + fell;
        self.interfaces.insert(interface.index, InterfaceState { interface, falls });
    }

    pub(super) fn remove_interface(&mut self, index: u32) {
        self.interfaces.remove(&index);
        self.addresses.retain(|(interface, _)| *interface != index);
    }

    pub(super) fn set_address(&mut self, address: &Address) {
        if address.usable {
            self.addresses.insert((address.interface, address.ip));
        } else {
            self.remove_address(address);
        }
    }

    pub(super) fn remove_address(&mut self, address: &Address) {
        self.addresses.remove(&(address.interface, address.ip));
    }

    /// Takes over the default routes of a family, those first that count first.
    pub(super) fn set_defaults(&mut self, ipv6: bool, routes: Vec<DefaultRoute>) {
        self.defaults[usize::from(ipv6)] = routes;
    }

    /// Takes over which interfaces and addresses there are, but remembers what fell before.
    pub(super) fn retake(&mut self, interfaces: Vec<Interface>, addresses: &[Address]) {
        let there = |index: &u32| interfaces.iter().any(|interface| interface.index == *index);
        self.interfaces.retain(|index, _| there(index));
        self.addresses.clear();
        for interface in interfaces {
            self.set_interface(interface);
        }
        for address in addresses {
            self.set_address(address);
        }
    }

    /// Makes this picture more like `now` by one event, and returns it; losses come before gains.
    /// None if the pictures tell the same.
    pub(super) fn step(&mut self, now: &Self) -> Option<NetworkEvent> {
        self.step_down(now)
            .or_else(|| self.step_lost(now))
            .or_else(|| self.step_up(now))
            .or_else(|| self.step_gained(now))
            .or_else(|| self.step_default(now))
    }

    fn step_down(&mut self, now: &Self) -> Option<NetworkEvent> {
        let (index, known) = self.interfaces.iter_mut().find(|(index, known)| {
            let same = now.interfaces.get(index).is_some_and(|new| {
                new.interface.works()
                    && new.falls == known.falls
                    && new.interface.name == known.interface.name
            });
            known.interface.works() && !same
        })?;
        known.interface.carrier = false;
        if let Some(new) = now.interfaces.get(index) {
            known.falls = new.falls;
        }
        Some(NetworkEvent::Down { interface: known.interface.name.clone() })
    }

    fn step_lost(&mut self, now: &Self) -> Option<NetworkEvent> {
        let lost = *self.addresses.difference(&now.addresses).next()?;
        self.addresses.remove(&lost);
        let (index, ip) = lost;
        let name = self.name(index).or_else(|| now.name(index));
        Some(NetworkEvent::Lost { interface: named(name, index), ip })
    }

    fn step_up(&mut self, now: &Self) -> Option<NetworkEvent> {
        // Whatever else differs is taken over without a word.
        self.interfaces.retain(|index, _| now.interfaces.contains_key(index));
        for (index, new) in &now.interfaces {
            let worked = self.interfaces.get(index).is_some_and(|known| known.interface.works());
            self.interfaces.insert(*index, new.clone());
            if new.interface.works() && !worked {
                return Some(NetworkEvent::Up { interface: new.interface.name.clone() });
            }
        }
        None
    }

    fn step_gained(&mut self, now: &Self) -> Option<NetworkEvent> {
        let gained = *now.addresses.difference(&self.addresses).next()?;
        self.addresses.insert(gained);
        let (index, ip) = gained;
        Some(NetworkEvent::Gained { interface: named(now.name(index), index), ip })
    }

    fn step_default(&mut self, now: &Self) -> Option<NetworkEvent> {
        let differs =
            |ipv6: &bool| self.defaults[usize::from(*ipv6)] != now.defaults[usize::from(*ipv6)];
        let ipv6 = [false, true].into_iter().find(differs)?;
        let (before, route) = (self.default_route(ipv6).cloned(), now.default_route(ipv6).cloned());
        self.set_defaults(ipv6, now.defaults[usize::from(ipv6)].clone());
        Some(match before == route {
            true => NetworkEvent::Alternatives { ipv6 },
            false => NetworkEvent::Default { ipv6, route },
        })
    }
}

/// An interface that is not known has its number for a name.
fn named(name: Option<&str>, index: u32) -> String {
    name.map_or_else(|| index.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(index: u32, name: &str, carrier: bool) -> Interface {
        let name = name.to_owned();
        let (mtu, controller) = (1500, None);
        let (up, loopback, ethernet, mac) = (true, false, false, None);
        Interface { index, name, up, carrier, loopback, ethernet, mac, mtu, controller }
    }

    fn address(interface: u32, ip: &str, usable: bool) -> Address {
        Address { interface, ip: ip.parse().unwrap(), prefix: 24, usable }
    }

    fn steps(told: &mut Picture, now: &Picture) -> Vec<NetworkEvent> {
        let events = std::iter::from_fn(|| told.step(now)).take(100).collect();
        assert_eq!(told, now, "nothing is left to tell, and nothing else differs");
        events
    }

    fn up(name: &str) -> NetworkEvent {
        NetworkEvent::Up { interface: name.to_owned() }
    }

    fn down(name: &str) -> NetworkEvent {
        NetworkEvent::Down { interface: name.to_owned() }
    }

    #[test]
    fn an_interface_that_fell_and_rose_unseen_is_reported_as_both() {
        let mut now = Picture::default();
        now.set_interface(interface(1, "wlan0", true));
        let mut told = now.clone();
        now.set_interface(interface(1, "wlan0", false));
        now.set_interface(interface(1, "wlan0", true));
        assert_eq!(steps(&mut told, &now), [down("wlan0"), up("wlan0")]);
    }

    #[test]
    fn losses_are_reported_before_gains() {
        let mut now = Picture::default();
        now.set_interface(interface(1, "wlan0", true));
        now.set_interface(interface(2, "eth0", false));
        now.set_address(&address(1, "10.0.0.1", true));
        let mut told = now.clone();
        now.set_interface(interface(1, "wlan0", false));
        now.remove_address(&address(1, "10.0.0.1", true));
        now.set_interface(interface(2, "eth0", true));
        now.set_address(&address(2, "10.0.1.1", true));
        let ip = |text: &str| text.parse().unwrap();
        let expected = [
            down("wlan0"),
            NetworkEvent::Lost { interface: "wlan0".into(), ip: ip("10.0.0.1") },
            up("eth0"),
            NetworkEvent::Gained { interface: "eth0".into(), ip: ip("10.0.1.1") },
        ];
        assert_eq!(steps(&mut told, &now), expected);
    }

    #[test]
    fn an_interface_that_is_taken_away_goes_down_with_its_addresses() {
        let mut now = Picture::default();
        now.set_interface(interface(1, "usb0", true));
        now.set_address(&address(1, "fe80::1", true));
        let mut told = now.clone();
        now.remove_interface(1);
        let lost = NetworkEvent::Lost { interface: "usb0".into(), ip: "fe80::1".parse().unwrap() };
        assert_eq!(steps(&mut told, &now), [down("usb0"), lost]);
    }

    #[test]
    fn another_name_is_another_interface() {
        let mut now = Picture::default();
        now.set_interface(interface(1, "eth0", true));
        let mut told = now.clone();
        now.set_interface(interface(1, "wan", true));
        assert_eq!(steps(&mut told, &now), [down("eth0"), up("wan")]);
    }

    #[test]
    fn an_address_counts_once_it_can_be_used() {
        let mut now = Picture::default();
        now.set_interface(interface(1, "eth0", true));
        let mut told = now.clone();
        now.set_address(&address(1, "2001:db8::1", false));
        assert_eq!(steps(&mut told, &now), []);
        now.set_address(&address(1, "2001:db8::1", true));
        assert_eq!(steps(&mut told, &now).len(), 1);
    }

    #[test]
    fn a_picture_taken_anew_reports_the_difference_only() {
        let mut now = Picture::default();
        now.set_interface(interface(1, "eth0", true));
        now.set_interface(interface(2, "wlan0", true));
        now.set_interface(interface(3, "usb0", true));
        now.set_address(&address(1, "10.0.0.1", true));
        let mut told = now.clone();
        let interfaces = vec![interface(1, "eth0", true), interface(2, "wlan0", false)];
        now.retake(interfaces, &[address(1, "10.0.0.1", true)]);
        assert_eq!(steps(&mut told, &now), [down("wlan0"), down("usb0")]);
    }

    #[test]
    fn another_default_route_is_reported_for_its_family() {
        let mut now = Picture::default();
        let mut told = now.clone();
        let route = |interface: &str, metric| DefaultRoute {
            interface: Some(interface.into()),
            via: Some("10.0.0.9".parse().unwrap()),
            metric,
        };
        let (best, other) = (route("eth0", 0), route("wwan0", 700));
        now.set_defaults(false, vec![best.clone()]);
        let event = NetworkEvent::Default { ipv6: false, route: Some(best.clone()) };
        assert_eq!(steps(&mut told, &now), [event]);
        now.set_defaults(false, vec![best, other.clone()]);
        assert_eq!(steps(&mut told, &now), [NetworkEvent::Alternatives { ipv6: false }]);
        now.set_defaults(false, vec![other.clone()]);
        let event = NetworkEvent::Default { ipv6: false, route: Some(other) };
        assert_eq!(steps(&mut told, &now), [event]);
    }
}
