//! What all nodes share: links, forwarding tables, the agenda and the trace.

use core::net::Ipv4Addr;
use std::collections::BTreeMap;

use lasthop_radio::{Link, LinkConfig, Refusal};
use lasthop_units::{Bytes, Duration, Seed, Time};
use thiserror::Error;

use super::event::Agenda;
use super::packet::Pool;
use super::tap::Taps;
use super::timetable::Timetable;
use super::{
    Ecn, Event, Headers, LinkId, NodeId, Packet, RouteTable, SharedObserver, Sight, TapPoint, Trace,
};

/// Why a packet went nowhere. It is counted and traced already; nobody need answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Undelivered {
    /// The node has no route, or not the link that it named.
    #[error("no route")]
    NoRoute,
    /// The link did not take it.
    #[error("{0}")]
    Refused(Refusal),
}

/// Everything but the nodes, so that a node can be handed the rest.
pub(super) struct Core {
    pub(super) now: Time,
    pub(super) pool: Pool,
    pub(super) headers: Headers,
    seed: Seed,
    /// How many links have each name.
    names: BTreeMap<String, u32>,
    pub(super) links: Vec<Wire>,
    pub(super) tables: Vec<RouteTable>,
    /// When something may come out of each link, and when each node's timer may expire.
    arrivals: Timetable,
    timers: Timetable,
    agenda: Agenda,
    agenda_time: Time,
    pub(super) trace: Trace,
    node_taps: Vec<Taps>,
    /// Where the node that is attended to sends instead of by its links.
    pub(super) diverted: Option<Vec<Packet>>,
    /// Somebody watches.
    tapped: bool,
}

/// A link in its place.
pub(super) struct Wire {
    pub(super) link: Link<Packet>,
    /// What carries its packets: itself, or the one that it takes turns with.
    channel: LinkId,
    to: NodeId,
    from: NodeId,
    mtu: u32,
    /// No packet overtakes another (LNK-11).
    ordered: bool,
    /// What the conditions that replace the first ones draw from.
    seed: Seed,
    changes: u32,
    /// The link before its conditions were replaced, until it is empty.
    before: Vec<Link<Packet>>,
    near: Taps,
    far: Taps,
}

/// Who has something to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    Agenda,
    Link(LinkId),
    Node(NodeId),
}

impl Core {
    pub(super) fn new(headers: Headers, seed: Seed) -> Self {
        Self {
            now: Time::ZERO,
            pool: Pool::default(),
            headers,
            seed,
            names: BTreeMap::new(),
            links: Vec::new(),
            tables: Vec::new(),
            arrivals: Timetable::default(),
            timers: Timetable::default(),
            agenda: Agenda::default(),
            agenda_time: Time::NEVER,
            trace: Trace::default(),
            node_taps: Vec::new(),
            diverted: None,
            tapped: false,
        }
    }

    /// Makes room for a node's share of everything.
    pub(super) fn add_node(&mut self) {
        self.tables.push(RouteTable::default());
        self.node_taps.push(Taps::default());
    }

    pub(super) fn add_wire(
        &mut self,
        link: Link<Packet>,
        [from, to]: [NodeId; 2],
        config: &LinkConfig,
        seed: Seed,
    ) -> LinkId {
        let id = LinkId::new(self.links.len() as u32);
        self.links.push(Wire {
            link,
            channel: id,
            to,
            from,
            mtu: config.mtu,
            ordered: config.reorder.is_none(),
            seed,
            changes: 0,
            before: Vec::new(),
            near: Taps::default(),
            far: Taps::default(),
        });
        id
    }

    /// From now on a link takes turns with another one: what goes onto it is on that one's channel.
    pub(super) fn share(&mut self, link: LinkId, channel: LinkId) {
        self.links[link.index()].channel = channel;
    }

    /// What carries a link's packets.
    pub(super) fn channel(&mut self, link: LinkId) -> Option<&mut Wire> {
        let channel = self.links.get(link.index())?.channel;
        self.links.get_mut(channel.index())
    }

    /// Makes room for all links and nodes in the timetables, and enters the links.
    pub(super) fn update_timetables(&mut self) {
        self.arrivals.reset(self.links.len());
        self.timers.reset(self.tables.len());
        for link in 0..self.links.len() {
            self.wake_link(link);
        }
    }

    /// Who is next, and when. At one time the agenda comes first, then links, then nodes.
    #[inline]
    pub(super) fn next(&self) -> (Time, Source) {
        let (arrival, link) = self.arrivals.next();
        let (timer, node) = self.timers.next();
        if arrival < self.agenda_time && arrival <= timer {
            return (arrival, Source::Link(LinkId::new(link as u32)));
        }
        if self.agenda_time <= timer {
            return (self.agenda_time, Source::Agenda);
        }
        (timer, Source::Node(NodeId::new(node as u32)))
    }

    pub(super) fn schedule(&mut self, at: Time, event: Event) {
        self.agenda.add(at.max(self.now), event);
        self.agenda_time = self.agenda.next_time();
    }

    /// The next event of the agenda and its number.
    pub(super) fn take_event(&mut self) -> Option<(u64, Event)> {
        let next = self.agenda.pop();
        self.agenda_time = self.agenda.next_time();
        next
    }

    /// A node's timer expires at `at`, or at once if that is past.
    pub(super) fn set_timer(&mut self, node: NodeId, at: Option<Time>) {
        self.timers.set(node.index(), at.unwrap_or(Time::NEVER).max(self.now));
    }

    /// A node's entry may be early, never late: a timer that is put off again and again, as a
    /// retransmission timer is, costs nothing until the first of its times comes.
    #[inline]
    pub(super) fn hasten_timer(&mut self, node: NodeId, at: Time) {
        if at < self.timers.time(node.index()) {
            self.timers.set(node.index(), at.max(self.now));
        }
    }

    pub(super) fn tap(&mut self, point: TapPoint, observer: SharedObserver) {
        self.tapped = true;
        match point {
            TapPoint::LinkIn(link) => self.links[link.index()].near.add(observer),
            TapPoint::LinkOut(link) => self.links[link.index()].far.add(observer),
            TapPoint::Node(node) => self.node_taps[node.index()].add(observer),
        }
    }

    /// The seed of a link that is to be added: its name's, and of links with one name the n-th's.
    pub(super) fn link_seed(&mut self, name: &str) -> Seed {
        let same = self.names.entry(name.to_string()).or_default();
        *same += 1;
        self.seed.child("link").child(name).child(&same.to_string())
    }

    pub(super) fn ends(&self, link: LinkId) -> Option<(NodeId, NodeId)> {
        self.links.get(link.index()).map(|wire| (wire.from, wire.to))
    }

    pub(super) fn mtu(&self, link: LinkId) -> Option<Bytes> {
        let channel = self.links.get(link.index())?.channel;
        self.links.get(channel.index()).map(|wire| Bytes::new(u64::from(wire.mtu)))
    }

    pub(super) fn is_nearly_full(&mut self, link: LinkId, size: Bytes) -> bool {
        let now = self.now;
        self.channel(link).is_some_and(|wire| wire.link.is_nearly_full(now, size))
    }

    #[inline]
    pub(super) fn route(&self, node: NodeId, dst: Ipv4Addr) -> Option<LinkId> {
        self.tables[node.index()].get(dst)
    }

    /// A link that is not the node's own is no route.
    pub(super) fn set_route(&mut self, node: NodeId, dst: Ipv4Addr, link: Option<LinkId>) {
        let link = self.own(node, link);
        if let Some(table) = self.tables.get_mut(node.index()) {
            table.set(dst, link);
        }
    }

    /// A link that is not the node's own is no route.
    pub(super) fn set_default_route(&mut self, node: NodeId, link: Option<LinkId>) {
        let link = self.own(node, link);
        if let Some(table) = self.tables.get_mut(node.index()) {
            table.set_default(link);
        }
    }

    fn own(&self, node: NodeId, link: Option<LinkId>) -> Option<LinkId> {
        link.filter(|&link| self.ends(link).is_some_and(|(from, _)| from == node))
    }

    #[inline]
    pub(super) fn push(
        &mut self,
        node: NodeId,
        link: LinkId,
        mut packet: Packet,
    ) -> Result<(), Undelivered> {
        let size = packet.seal(self.headers);
        packet.enter(link);
        self.trace.sent += 1;
        let channel = self.links[link.index()].channel.index();
        // Before anything sees the packet here: the mark belongs to this queue.
        if packet.ecn == Ecn::Capable && self.links[channel].link.marks(self.now, size) {
            packet.set_congested();
            packet.seal(self.headers);
        }
        if self.tapped {
            self.show(node, link, &packet, Sight::Entered(link));
        }
        let wire = &mut self.links[channel];
        match wire.link.push(self.now, size, packet) {
            Ok(()) => {
                // Where order is kept, what is in the link already comes out first.
                if !wire.ordered || !self.arrivals.is_set(channel) {
                    self.arrivals.set(channel, wire.next_time().max(self.now));
                }
                Ok(())
            }
            Err(refused) => {
                let packet = refused.packet;
                self.trace.refused(self.now, node.index(), packet.digest);
                if self.tapped {
                    self.show(node, link, &packet, Sight::Refused(link, refused.reason));
                }
                Err(Undelivered::Refused(refused.reason))
            }
        }
    }

    #[cold]
    fn show(&self, node: NodeId, link: LinkId, packet: &Packet, sight: Sight) {
        let point = TapPoint::Node(node);
        self.node_taps[node.index()].show(self.now, point, sight, packet);
        let wire = &self.links[link.index()];
        let (point, taps) = match sight {
            Sight::Left(_) => (TapPoint::LinkOut(link), &wire.far),
            _ => (TapPoint::LinkIn(link), &wire.near),
        };
        taps.show(self.now, point, sight, packet);
    }

    #[cold]
    pub(super) fn drop_unroutable(
        &mut self,
        node: NodeId,
        mut packet: Packet,
    ) -> Result<(), Undelivered> {
        packet.seal(self.headers);
        self.trace.unroutable(self.now, node.index(), packet.digest);
        let point = TapPoint::Node(node);
        self.node_taps[node.index()].show(self.now, point, Sight::Unroutable, &packet);
        Err(Undelivered::NoRoute)
    }

    /// Takes out of a channel what has arrived, by which link and where.
    #[inline]
    pub(super) fn pop(&mut self, channel: LinkId) -> Option<(LinkId, NodeId, Packet)> {
        let (popped, next) = self.links[channel.index()].pop(self.now);
        self.arrivals.set(channel.index(), next.max(self.now));
        let (mut packet, corrupted) = popped?;
        if corrupted {
            packet.set_corrupted();
        }
        let link = packet.link();
        let node = self.links[link.index()].to;
        self.trace.arrived(self.now, node.index(), packet.digest);
        if self.tapped {
            self.show(node, link, &packet, Sight::Left(link));
        }
        Some((link, node, packet))
    }

    fn wake_link(&mut self, link: usize) {
        let at = self.links[link].next_time();
        self.arrivals.set(link, at.max(self.now));
    }

    pub(super) fn pause(&mut self, link: LinkId, duration: Duration) {
        self.change(link, |wire, now, _| wire.pause(now, duration));
    }

    /// Other conditions, if they describe a link.
    pub(super) fn replace(&mut self, link: LinkId, config: &LinkConfig) {
        self.change(link, |wire, now, seed| {
            if let Ok(new) = Link::new(config, seed, now) {
                wire.before.push(core::mem::replace(&mut wire.link, new));
                wire.mtu = config.mtu;
                // A shorter delay lets new packets overtake those sent before the change.
                wire.ordered = false;
            }
        });
    }

    pub(super) fn change(&mut self, link: LinkId, f: impl FnOnce(&mut Wire, Time, Seed)) {
        let now = self.now;
        let Some(wire) = self.channel(link) else { return };
        wire.changes += 1;
        let seed = wire.seed.child(&format!("change {}", wire.changes));
        f(wire, now, seed);
        let channel = self.links[link.index()].channel;
        self.wake_link(channel.index());
    }
}

impl Wire {
    #[inline(always)]
    fn next_time(&self) -> Time {
        let next = self.link.next_time().unwrap_or(Time::NEVER);
        if self.before.is_empty() { next } else { self.next_before().min(next) }
    }

    #[inline(never)]
    fn next_before(&self) -> Time {
        self.before.iter().filter_map(Link::next_time).min().unwrap_or(Time::NEVER)
    }

    /// What has arrived and whether it is corrupted, and when there may be more.
    #[inline]
    fn pop(&mut self, now: Time) -> (Option<(Packet, bool)>, Time) {
        if self.before.is_empty() { self.link.pop_packet(now) } else { self.pop_after_change(now) }
    }

    /// What was in the link before its conditions changed comes first.
    #[inline(never)]
    fn pop_after_change(&mut self, now: Time) -> (Option<(Packet, bool)>, Time) {
        let mut found = None;
        for before in &mut self.before {
            found = found.or_else(|| before.pop_packet(now).0);
        }
        self.before.retain(|before| before.held() > 0);
        let found = found.or_else(|| self.link.pop_packet(now).0);
        (found, self.next_time())
    }

    fn pause(&mut self, now: Time, duration: Duration) {
        self.link.pause(now, duration);
        self.before.iter_mut().for_each(|before| before.pause(now, duration));
    }
}
