//! A host's multipath connections: which further ways lead to a peer, and whose subflow a segment is.

use core::net::Ipv4Addr;
use std::collections::BTreeMap;

use lasthop_tcp as tcp;
use lasthop_tcp::multipath::{Multipath, Scheduler};
use lasthop_units::Time;
use lasthop_wire::tcp::{Segment, Seq};

use super::key::Key;
use crate::net::LinkId;

/// What a host is told of its ways.
#[derive(Default)]
pub(super) struct Ways {
    /// Connections of this host are multipath, and this chooses among subflows.
    pub(super) scheduler: Option<Scheduler>,
    /// For each peer, by its first address, further pairs of addresses: this host's, and the peer's.
    pub(super) further: BTreeMap<Ipv4Addr, Vec<(Ipv4Addr, Ipv4Addr)>>,
    /// This host's further addresses, and the links by which packets from them leave.
    pub(super) links: BTreeMap<Ipv4Addr, LinkId>,
}

/// A multipath connection and the ends of its subflows.
pub(super) struct Subflows {
    pub(super) machine: Multipath,
    /// The ends of each, in the order of the machine's.
    pub(super) keys: Vec<Key>,
    /// This end opened the first, and opens the others.
    pub(super) opens: bool,
}

impl Subflows {
    pub(super) fn connect(
        config: tcp::Config,
        scheduler: Scheduler,
        key: Key,
        numbers: (Seq, u64),
        now: Time,
    ) -> Self {
        let machine = Multipath::connect(config, scheduler, key.ports(), numbers, now);
        Self { machine, keys: vec![key], opens: true }
    }

    pub(super) fn accept(
        config: tcp::Config,
        scheduler: Scheduler,
        (key, syn): (Key, &Segment),
        numbers: (Seq, u64),
        now: Time,
    ) -> Option<Self> {
        let ports = (key.ports(), syn);
        let machine = Multipath::accept(config, scheduler, ports, numbers, now).ok()?;
        Some(Self { machine, keys: vec![key], opens: false })
    }

    /// The first subflow, to watch.
    pub(super) fn first(&self) -> &tcp::Connection {
        self.machine.first()
    }

    /// Adds a subflow between these ends: false if it is too early.
    pub(super) fn join(&mut self, key: Key, iss: Seq, now: Time) -> bool {
        let joins = self.machine.join(key.ports(), iss, now);
        self.keys.extend(joins.then_some(key));
        joins
    }

    /// Answers the SYN of another subflow: false if it is not this connection's.
    pub(super) fn accept_join(&mut self, key: Key, syn: &Segment, iss: Seq, now: Time) -> bool {
        let joins = self.machine.accept_join(key.ports(), syn, iss, now);
        self.keys.extend(joins.then_some(key));
        joins
    }

    pub(super) fn handle_segment(&mut self, now: Time, key: Key, segment: &Segment, marked: bool) {
        if let Some(place) = self.keys.iter().position(|own| *own == key) {
            self.machine.handle_segment(now, place, segment, marked);
        }
    }
}
