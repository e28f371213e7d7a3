//! The ports that each end listens on, as the other knows them (MOB-8).

use alloc::collections::{BTreeMap, BTreeSet};
use core::net::{Ipv4Addr, SocketAddrV4};

use lasthop_units::{Time, gather};
use lasthop_wire::mobile_tcp::{Code, Control};

use super::connection::Ticks;
use super::entry::RetransmitTimer;

/// Ports that one mobile may listen on at once.
const PORTS_MAX: usize = 1024;

/// A port of ours, and how far its announcement has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OwnPort {
    /// Connections are accepted; if not, it is removed once the base has acknowledged that.
    pub(super) open: bool,
    /// The base has acknowledged the announcement.
    pub(super) acknowledged: bool,
    /// The base does not allow it.
    pub(super) denied: bool,
    repeat: RetransmitTimer,
}

impl OwnPort {
    fn announcing(open: bool) -> Self {
        Self { open, acknowledged: false, denied: false, repeat: RetransmitTimer::start() }
    }
}

/// Our ports, and the peer's.
#[derive(Clone, Default, Debug)]
pub(super) struct Ports {
    pub(super) ours: BTreeMap<u16, OwnPort>,
    pub(super) theirs: BTreeSet<u16>,
    /// How many of ours are to be announced now.
    due: usize,
}

impl Ports {
    pub(super) fn announce(&mut self, port: u16, open: bool) {
        if self.ours.len() < PORTS_MAX || self.ours.contains_key(&port) {
            self.ours.insert(port, OwnPort::announcing(open));
        }
        self.count();
    }

    fn count(&mut self) {
        self.due = self.ours.values().filter(|port| port.repeat.due).count();
    }

    /// The ports for the next association, to be announced to its base.
    pub(super) fn restarted(&self) -> Self {
        let open = self.ours.iter().filter(|(_, port)| port.open);
        let ours: BTreeMap<_, _> = gather(open.map(|(n, _)| (*n, OwnPort::announcing(true))));
        Self { due: ours.len(), ours, theirs: BTreeSet::new() }
    }

    /// Repeats at once what the base has not answered; whether there is anything.
    pub(super) fn retry(&mut self) -> bool {
        self.ours.values_mut().for_each(|port| port.repeat.expire_now());
        self.count();
        self.ours.values().any(|port| !port.acknowledged)
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.ours.values().filter_map(|port| port.repeat.next).min()
    }

    /// Whether an announcement was due again.
    pub(super) fn on_tick(&mut self, now: Time) -> bool {
        let mut expired = false;
        for port in self.ours.values_mut() {
            expired |= port.repeat.on_tick(now);
        }
        self.count();
        expired
    }

    /// The next announcement to send.
    pub(super) fn next_announcement(&mut self, ticks: &Ticks, now: Time) -> Option<Control> {
        if self.due == 0 {
            return None;
        }
        let (number, port) = self.ours.iter_mut().find(|(_, port)| port.repeat.due)?;
        port.repeat.on_sent(ticks, now, core::time::Duration::ZERO);
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
        port.repeat.stop();
        (port.acknowledged, port.denied) = (true, denied);
        if !open {
            self.ours.remove(&number);
        }
        self.count();
    }

    /// The mobile announces that it listens, or not any more; whether it may.
    pub(super) fn on_announcement(&mut self, number: u16, open: bool) -> bool {
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
