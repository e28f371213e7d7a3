//! What each end has heard of the other's ports (MOB-8).

use alloc::collections::{BTreeMap, BTreeSet};
use core::net::{Ipv4Addr, SocketAddrV4};

use lasthop_units::Time;
use lasthop_wire::mobile_tcp::{Code, Control};

use super::connection::Ticks;
use super::entry::Repeat;

/// Ports that one mobile may listen on at once.
const PORTS_MAX: usize = 1024;

/// How a port of ours stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Port {
    /// Connections are accepted; if not, it is forgotten once the base has heard so.
    pub(super) open: bool,
    /// The base has heard what it is.
    pub(super) heard: bool,
    /// The base does not allow it.
    pub(super) denied: bool,
    repeat: Repeat,
}

impl Port {
    fn asking(open: bool) -> Self {
        Self { open, heard: false, denied: false, repeat: Repeat::begin() }
    }
}

/// Our ports, and the peer's.
#[derive(Clone, Default, Debug)]
pub(super) struct Ports {
    pub(super) ours: BTreeMap<u16, Port>,
    pub(super) theirs: BTreeSet<u16>,
    /// How many of ours are to be told now.
    due: usize,
}

impl Ports {
    pub(super) fn ask(&mut self, port: u16, open: bool) {
        if self.ours.len() < PORTS_MAX || self.ours.contains_key(&port) {
            self.ours.insert(port, Port::asking(open));
        }
        self.count();
    }

    fn count(&mut self) {
        self.due = self.ours.values().filter(|port| port.repeat.due).count();
    }

    /// What is left for the next association: a new base has to hear of the ports.
    pub(super) fn restarted(&self) -> Self {
        let open = self.ours.iter().filter(|(_, port)| port.open);
        let ours: BTreeMap<_, _> = open.map(|(n, _)| (*n, Port::asking(true))).collect();
        Self { due: ours.len(), ours, theirs: BTreeSet::new() }
    }

    /// Tells at once what the base has not answered; whether there is anything.
    pub(super) fn retry(&mut self) -> bool {
        self.ours.values_mut().for_each(|port| port.repeat.hurry());
        self.count();
        self.ours.values().any(|port| !port.heard)
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.ours.values().filter_map(|port| port.repeat.next).min()
    }

    /// Whether something was to be said again.
    pub(super) fn on_tick(&mut self, now: Time) -> bool {
        let mut expired = false;
        for port in self.ours.values_mut() {
            expired |= port.repeat.on_tick(now);
        }
        self.count();
        expired
    }

    /// The next thing to tell.
    pub(super) fn next_word(&mut self, ticks: &Ticks, now: Time) -> Option<Control> {
        if self.due == 0 {
            return None;
        }
        let (number, port) = self.ours.iter_mut().find(|(_, port)| port.repeat.due)?;
        port.repeat.on_said(ticks, now, core::time::Duration::ZERO);
        let word = Control {
            code: Code::LISTEN.with_if(Code::FIN, !port.open),
            destination: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, *number),
            ..Control::default()
        };
        self.count();
        Some(word)
    }

    /// The base has answered.
    pub(super) fn on_answer(&mut self, number: u16, open: bool, denied: bool) {
        let Some(port) = self.ours.get_mut(&number).filter(|port| port.open == open) else {
            return;
        };
        port.repeat.end();
        (port.heard, port.denied) = (true, denied);
        if !open {
            self.ours.remove(&number);
        }
        self.count();
    }

    /// The mobile says that it listens, or not any more; whether it may.
    pub(super) fn on_word(&mut self, number: u16, open: bool) -> bool {
        if !open {
            self.theirs.remove(&number);
            return true;
        }
        let room = self.theirs.len() < PORTS_MAX || self.theirs.contains(&number);
        if room {
            self.theirs.insert(number);
        }
        room
    }
}
