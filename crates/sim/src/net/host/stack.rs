//! A host's connections, listeners and ports.

use core::net::Ipv4Addr;
use std::collections::{BTreeMap, BTreeSet};

use lasthop_tcp as tcp;
use lasthop_units::{Bytes, LinkEvent, Stream, Time};
use lasthop_wire::tcp::{Multipath as Says, Segment, Seq};

use super::flow::{Flow, LONGEST, Machine};
use super::key::Key;
use super::multipath::{Subflows, Ways};
use super::{Content, Ending, FlowId, HostStats, Sockets};
use crate::net::timetable::Timetable;
use crate::net::{Body, Context, IP_HEADER, Packet};

/// The first port for connections that the host opens (RFC 6335 section 6).
const FIRST_PORT: u16 = 49_152;
/// Bytes of the IP and TCP headers without options, which the MSS leaves out (RFC 6691).
const HEADERS: u64 = IP_HEADER as u64 + 20;

/// Everything on a host but its application.
pub(super) struct Stack {
    pub(super) addr: Ipv4Addr,
    pub(super) stats: HostStats,
    pub(super) flows: Vec<Option<Flow>>,
    generations: Vec<u32>,
    free: Vec<u32>,
    by_key: BTreeMap<Key, u32>,
    /// The flow that the last segment was for: most likely the next one's too.
    last: Option<(Key, u32)>,
    timers: Timetable,
    timer_room: usize,
    /// Flows to be attended to.
    pub(super) dirty: Vec<u32>,
    listeners: BTreeMap<u16, (tcp::Config, Content)>,
    /// Ports of which connections are encrypted.
    encrypted: BTreeSet<u16>,
    pub(super) ways: Ways,
    next_port: u16,
    iss: Stream,
    most_flows: usize,
    pub(super) scratch: Vec<u8>,
}

impl Stack {
    pub(super) fn new(addr: Ipv4Addr, iss: Stream, most_flows: usize) -> Self {
        let mut timers = Timetable::default();
        timers.reset(1);
        Self {
            addr,
            stats: HostStats::default(),
            flows: Vec::new(),
            generations: Vec::new(),
            free: Vec::new(),
            by_key: BTreeMap::new(),
            last: None,
            timers,
            timer_room: 1,
            dirty: Vec::new(),
            listeners: BTreeMap::new(),
            encrypted: BTreeSet::new(),
            ways: Ways::default(),
            next_port: FIRST_PORT,
            iss,
            most_flows,
            scratch: Vec::new(),
        }
    }

    pub(super) fn id(&self, slot: u32) -> FlowId {
        FlowId { slot, generation: self.generations[slot as usize] }
    }

    fn slot(&self, id: FlowId) -> Option<u32> {
        let known = self.generations.get(id.slot as usize) == Some(&id.generation);
        known.then_some(id.slot)
    }

    pub(super) fn flow(&self, id: FlowId) -> Option<&Flow> {
        self.flows.get(self.slot(id)? as usize)?.as_ref()
    }

    /// The flow, which will be attended to.
    fn touch(&mut self, id: FlowId) -> Option<&mut Flow> {
        let slot = self.slot(id)?;
        self.mark(slot);
        self.flows.get_mut(slot as usize)?.as_mut()
    }

    /// Sees to it that a flow is attended to.
    #[inline]
    pub(super) fn mark(&mut self, slot: u32) {
        if let Some(Some(flow)) = self.flows.get_mut(slot as usize)
            && !flow.dirty
        {
            flow.dirty = true;
            self.dirty.push(slot);
        }
    }

    fn free_key(&mut self, remote: (Ipv4Addr, u16)) -> Option<Key> {
        for _ in FIRST_PORT..=u16::MAX {
            let key = Key::new((self.addr, self.next_port), remote);
            self.next_port = self.next_port.checked_add(1).unwrap_or(FIRST_PORT);
            if !self.by_key.contains_key(&key) {
                return Some(key);
            }
        }
        None
    }

    pub(super) fn encrypt(&mut self, port: u16) {
        self.encrypted.insert(port);
    }

    fn is_encrypted(&self, key: Key) -> bool {
        let ports = key.ports();
        [ports.local, ports.remote].iter().any(|port| self.encrypted.contains(port))
    }

    /// The flow that a segment is for.
    #[inline]
    pub(super) fn find(&mut self, key: Key) -> Option<u32> {
        match self.last {
            Some((last, slot)) if last == key => Some(slot),
            _ => {
                let slot = self.look_up(key)?;
                self.last = Some((key, slot));
                Some(slot)
            }
        }
    }

    #[inline(never)]
    fn look_up(&self, key: Key) -> Option<u32> {
        self.by_key.get(&key).copied()
    }

    /// The hop that a flow's packets cross is bad (EBS-2).
    pub(super) fn handle_bad_state(&mut self, now: Time, key: Key) {
        if let Some(slot) = self.find(key)
            && let Some(Some(flow)) = self.flows.get_mut(slot as usize)
        {
            flow.machine.handle_bad_state(now);
            self.mark(slot);
        }
    }

    /// Answers a segment that no flow is for: a new flow, or a reset; the listener's port if it
    /// is a new one.
    pub(super) fn handle_stranger(
        &mut self,
        ctx: &mut Context<'_>,
        key: Key,
        segment: &Segment,
    ) -> Option<(FlowId, u16)> {
        if self.accept_join(ctx.now(), key, segment) {
            return None;
        }
        let accepted = self.listeners.get(&segment.dst_port).copied().and_then(|listener| {
            let (config, content) = listener;
            let config = fitted(ctx, config, key.remote_addr());
            let iss = self.draw_iss();
            let offered = segment.options.multipath.is_some() && content == Content::Virtual;
            if let Some(scheduler) = self.ways.scheduler.filter(|_| offered) {
                let numbers = (iss, self.draw_key());
                let subflows =
                    Subflows::accept(config, scheduler, (key, segment), numbers, ctx.now())?;
                return Some(Machine::Multipath(Box::new(subflows)));
            }
            Machine::accept((config, content), key.ports(), segment, iss, ctx.now())
        });
        if let Some(machine) = accepted {
            self.stats.accepted += 1;
            return self.add(key, machine).map(|id| (id, segment.dst_port));
        }
        if let Some(reset) = tcp::reset_for(segment) {
            self.stats.resets_sent += 1;
            let mut packet = ctx.packet(key.local_addr(), key.remote_addr(), Body::Tcp(reset));
            packet.encrypted = self.is_encrypted(key);
            ctx.send(packet).ok();
        }
        None
    }

    /// Whether the SYN of a stranger adds a subflow to a connection of this host's.
    fn accept_join(&mut self, now: Time, key: Key, segment: &Segment) -> bool {
        let Some(Says::Join(token)) = segment.options.multipath else { return false };
        let iss = self.draw_iss();
        let is_it = |flow: &Option<Flow>| match flow.as_ref().map(|flow| &flow.machine) {
            Some(Machine::Multipath(subflows)) => subflows.machine.token() == token,
            _ => false,
        };
        let Some(slot) = self.flows.iter().position(is_it) else { return false };
        let Some(Some(Flow { machine: Machine::Multipath(subflows), .. })) =
            self.flows.get_mut(slot)
        else {
            return false;
        };
        let joins = subflows.accept_join(key, segment, iss, now);
        if joins {
            self.by_key.insert(key, slot as u32);
            self.mark(slot as u32);
        }
        joins
    }

    /// Adds the subflows of a connection that this host opened, once it can have them.
    pub(super) fn open_subflows(&mut self, now: Time, slot: u32) {
        let Self { flows, ways, by_key, iss, .. } = self;
        let Some(Some(Flow { key, machine: Machine::Multipath(subflows), .. })) =
            flows.get_mut(slot as usize)
        else {
            return;
        };
        let further = ways.further.get(&key.remote_addr()).filter(|_| subflows.opens);
        let Some(further) = further else { return };
        let ports = key.ports();
        for (local, remote) in further {
            let key = Key::new((*local, ports.local), (*remote, ports.remote));
            if !by_key.contains_key(&key) && subflows.join(key, Seq(iss.next_u64() as u32), now) {
                by_key.insert(key, slot);
            }
        }
    }

    fn draw_key(&mut self) -> u64 {
        self.iss.next_u64()
    }

    fn draw_iss(&mut self) -> Seq {
        Seq(self.iss.next_u64() as u32)
    }

    fn add(&mut self, key: Key, machine: Machine) -> Option<FlowId> {
        if self.by_key.len() >= self.most_flows {
            self.stats.refused += 1;
            return None;
        }
        if self.scratch.is_empty() && matches!(machine, Machine::Real(_)) {
            self.scratch = vec![0; LONGEST];
        }
        let encrypted = self.is_encrypted(key);
        let (blocked, dirty, ending) = (false, false, Ending::Orderly);
        let flow = Flow { key, machine, blocked, ending, dirty, encrypted };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.flows[slot as usize] = Some(flow);
                slot
            }
            None => {
                self.flows.push(Some(flow));
                self.generations.push(0);
                (self.flows.len() - 1) as u32
            }
        };
        if self.flows.len() > self.timer_room {
            self.grow_timers();
        }
        self.by_key.insert(key, slot);
        self.mark(slot);
        Some(self.id(slot))
    }

    fn grow_timers(&mut self) {
        self.timer_room = (2 * self.flows.len()).next_power_of_two();
        self.timers.reset(self.timer_room);
        for slot in 0..self.flows.len() {
            self.set_timer(slot as u32);
        }
    }

    /// Forgets a flow that is over.
    pub(super) fn remove(&mut self, slot: u32) {
        if let Some(flow) = self.flows[slot as usize].take() {
            self.by_key.remove(&flow.key);
            flow.machine.further_keys().iter().for_each(|key| _ = self.by_key.remove(key));
            self.last = None;
            self.generations[slot as usize] = self.generations[slot as usize].wrapping_add(1);
            self.free.push(slot);
            self.timers.set(slot as usize, Time::NEVER);
        }
    }

    /// An entry may be early, never late, as the network's own.
    #[inline]
    pub(super) fn hasten_timer(&mut self, slot: u32, at: Time) {
        if at < self.timers.time(slot as usize) {
            self.timers.set(slot as usize, at);
        }
    }

    fn set_timer(&mut self, slot: u32) {
        let flow = self.flows.get(slot as usize).and_then(Option::as_ref);
        let at = flow.and_then(|flow| flow.machine.next_timeout()).unwrap_or(Time::NEVER);
        self.timers.set(slot as usize, at);
    }

    #[inline]
    pub(super) fn next_timeout(&self) -> Time {
        self.timers.next().0
    }

    /// Lets the timers of all flows expire whose time has come.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        loop {
            let (at, slot) = self.timers.next();
            if at > now || at == Time::NEVER {
                return;
            }
            let slot = slot as u32;
            if let Some(Some(flow)) = self.flows.get_mut(slot as usize)
                && flow.machine.next_timeout().is_some_and(|at| at <= now)
            {
                flow.machine.handle_timeout(now);
                self.mark(slot);
                // Whatever it asks for next, it asks for after it was attended to.
                self.timers.set(slot as usize, Time::NEVER);
            } else {
                self.set_timer(slot);
            }
        }
    }

    /// Whether an address is one of this host's.
    #[inline]
    pub(super) fn is_own(&self, addr: Ipv4Addr) -> bool {
        addr == self.addr || self.ways.links.contains_key(&addr)
    }

    /// Takes a packet out of a tunnel that ends here.
    pub(super) fn unwrap(&mut self, packet: &mut Packet) {
        if packet.tunnel.is_some_and(|tunnel| tunnel.dst == self.addr) {
            packet.decapsulate();
            self.stats.decapsulated += 1;
        }
    }
}

impl Sockets for Stack {
    fn addr(&self) -> Ipv4Addr {
        self.addr
    }

    fn connect(
        &mut self,
        ctx: &mut Context<'_>,
        remote: (Ipv4Addr, u16),
        config: tcp::Config,
        content: Content,
    ) -> Option<FlowId> {
        let key = self.free_key(remote)?;
        let config = fitted(ctx, config, remote.0);
        let iss = self.draw_iss();
        let multipath = self.ways.further.contains_key(&remote.0) && content == Content::Virtual;
        let machine = match self.ways.scheduler.filter(|_| multipath) {
            Some(scheduler) => {
                let numbers = (iss, self.draw_key());
                let subflows = Subflows::connect(config, scheduler, key, numbers, ctx.now());
                Machine::Multipath(Box::new(subflows))
            }
            None => Machine::connect(content, config, key.ports(), iss, ctx.now()),
        };
        self.stats.opened += 1;
        self.add(key, machine)
    }

    fn listen(&mut self, port: u16, config: tcp::Config, content: Content) {
        self.listeners.insert(port, (config, content));
    }

    fn write(&mut self, id: FlowId, n: Bytes) -> Bytes {
        let Some(flow) = self.touch(id) else { return Bytes::ZERO };
        let taken = flow.machine.write(n);
        flow.blocked = taken < n;
        taken
    }

    fn write_bytes(&mut self, id: FlowId, data: &[u8]) -> usize {
        let Some(flow) = self.touch(id) else { return 0 };
        let taken = flow.machine.write_bytes(data);
        flow.blocked = taken < data.len();
        taken
    }

    fn received(&self, id: FlowId) -> &[u8] {
        match self.flow(id).map(|flow| &flow.machine) {
            Some(Machine::Real(socket)) => socket.received(),
            Some(Machine::Virtual(_) | Machine::Multipath(_)) | None => &[],
        }
    }

    fn readable(&self, id: FlowId) -> Bytes {
        self.flow(id).map_or(Bytes::ZERO, |flow| flow.machine.readable())
    }

    fn consume(&mut self, id: FlowId, n: Bytes) -> Bytes {
        self.touch(id).map_or(Bytes::ZERO, |flow| flow.machine.consume(n))
    }

    fn finish(&mut self, id: FlowId) {
        if let Some(flow) = self.touch(id) {
            flow.machine.finish();
        }
    }

    fn abort(&mut self, id: FlowId) {
        if let Some(flow) = self.touch(id) {
            flow.machine.abort();
        }
    }

    fn connection(&self, id: FlowId) -> Option<&tcp::Connection> {
        self.flow(id).map(|flow| flow.machine.connection())
    }

    fn stats(&self, id: FlowId) -> Option<tcp::Stats> {
        self.flow(id).map(|flow| flow.machine.stats())
    }

    fn set_window_share(&mut self, id: FlowId, share: Option<Bytes>) {
        if let Some(flow) = self.touch(id) {
            flow.machine.set_window_share(share);
        }
    }

    /// Every connection is notified.
    fn report_link_event(&mut self, ctx: &mut Context<'_>, event: LinkEvent) {
        let now = ctx.now();
        for slot in 0..self.flows.len() {
            if let Some(flow) = &mut self.flows[slot] {
                flow.machine.handle_link_event(now, event);
                self.mark(slot as u32);
            }
        }
    }
}

/// The configuration with a segment size that the interface towards `peer` carries (LNK-3).
fn fitted(ctx: &Context<'_>, config: tcp::Config, peer: Ipv4Addr) -> tcp::Config {
    let mtu = ctx.mtu_towards(peer).map_or(u64::MAX, Bytes::get);
    let most = mtu.saturating_sub(HEADERS).max(1);
    let mss = u16::try_from(most.min(u64::from(config.mss))).unwrap_or(config.mss);
    tcp::Config { mss, ..config }
}
