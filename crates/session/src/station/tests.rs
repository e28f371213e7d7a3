//! A mobile, three bases that are [`Station`]s and a fixed host, on transports in memory: what bases
//! say to each other is lost, repeated and reordered, associations come late and end, and wired halves
//! stay or move.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use lasthop_hop::{RecvState, Streams};
use lasthop_units::{Bytes, Duration, Seed, Stream as Numbers, Time};
use lasthop_wire::mhp::Opening;
use lasthop_wire::mhp::handoff::TicketMessage;

use super::*;
use crate::handoff::tests::toy::Toy;
use crate::handoff::tests::{App, ID, MOBILE, MS, bytes, target};
use crate::handoff::{Config, Mobile, MobileEvent};
use crate::memory::{Limits, Pair};
use crate::{Orphan, Session, Ticket};
use around::{Around, Death};
use node::{At, Node};

mod around;
mod bounds;
mod dead;
mod node;
mod paths;
mod schedules;

/// What becomes of wired halves when their session leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// They stay.
    Anchor,
    /// They move.
    Migrate,
    /// Some stay and some move.
    Both,
}

/// What is on its way, and arrives in any order.
#[derive(Debug)]
enum Flight {
    /// One base's word to another.
    Message(u32, u32, Vec<u8>),
    /// The mobile's call on a base, with what it says in it.
    Call(u32, usize, Option<Vec<u8>>),
    /// A base's answer: the association stands at both ends.
    Up(u32, usize),
    /// A base's call on another.
    Link(u32, u32, usize),
    /// The other end of an association is gone.
    Gone(u32, At),
}

struct Roaming {
    now: Time,
    numbers: Numbers,
    loss: f64,
    session: Session,
    mobile: Mobile<u32, Toy>,
    /// The mobile's associations: to which base, over which pair, and whether it stands.
    ways: BTreeMap<u32, (usize, bool)>,
    /// The base that the mobile's hop leads to.
    at: u32,
    around: Around,
    nodes: Vec<Node>,
    flying: Vec<Flight>,
    apps: BTreeMap<ConnId, App>,
    resumed: usize,
    crashes: usize,
    broken: usize,
    verbose: bool,
}

/// With `LASTHOP_VERBOSE` all is told.
macro_rules! trace {
    ($world:expr, $($text:tt)*) => {
        if $world.verbose {
            std::println!("{:?} {}", $world.now, format_args!($($text)*));
        }
    };
}
use trace;

impl Roaming {
    fn new(seed: u64, mode: Mode) -> Self {
        Self::with(seed, mode, Limits { unacknowledged: 700, ..Limits::default() })
    }

    fn with(seed: u64, mode: Mode, limits: Limits) -> Self {
        let mut world = Self {
            now: Time::ZERO,
            numbers: Seed::from_u64(seed).stream("station"),
            loss: 0.0,
            session: Session::mobile(crate::Config::mobile()),
            mobile: Mobile::with_granter(Config::mobile(), ID, 1, Toy { own: MOBILE }),
            ways: BTreeMap::new(),
            at: 1,
            around: Around::new(mode, limits),
            nodes: (1..=3).map(|base| Node::new(base, None)).collect(),
            flying: vec![],
            apps: BTreeMap::new(),
            resumed: 0,
            crashes: 0,
            broken: 0,
            verbose: lasthop_testing::is_set("LASTHOP_VERBOSE"),
        };
        world.associate(1);
        while world.deliver() {}
        world
    }

    fn node(&mut self, base: u32) -> &mut Node {
        &mut self.nodes[base as usize - 1]
    }

    /// The pair that the mobile's hop is.
    fn pair(&self) -> usize {
        self.ways[&self.at].0
    }

    /// The mobile calls on a base.
    fn associate(&mut self, base: u32) {
        let pair = self.around.pair();
        self.ways.insert(base, (pair, false));
        let greeting = self.mobile.greeting(4000);
        self.flying.push(Flight::Call(base, pair, greeting));
    }

    /// The mobile's hop leads to that base from here on; its connections go on over it.
    fn go_to(&mut self, base: u32) {
        let pair = self.pair();
        self.session.suspend(self.now, &mut self.around.pairs[pair].mobile);
        self.at = base;
        match self.ways.get(&base) {
            Some((_, true)) => self.mobile.reached(self.now, base),
            Some((_, false)) => {}
            None => self.associate(base),
        }
        let left = pair;
        let pair = self.pair();
        self.session.set_handoff(self.mobile.attempt());
        self.session.expect(self.around.blind());
        self.session.resume(self.now, &mut self.around.pairs[pair].mobile, ID);
        // The base before still sends what it has got.
        for (id, stream) in self.session.waiting() {
            let arrived = self.around.pairs[left].mobile.arrived(stream).expect("it was there");
            let hop = &mut self.around.pairs[pair].mobile;
            self.session.handle_arrived(self.now, hop, id, arrived);
        }
    }

    fn connect(&mut self, opening: Opening) -> Option<ConnId> {
        let hop = &mut self.around.pairs[self.ways[&self.at].0].mobile;
        let id = self.session.connect(self.now, hop, &target(), opening).ok()?;
        self.apps.insert(id, App { open: opening == Opening::Early, ..App::default() });
        if self.crashes > 0 && self.mobile.is_pending() {
            // The session may begin anew once more, where the mobile has it.
            self.around.spoiled.insert(id);
        }
        Some(id)
    }

    fn write(&mut self, id: ConnId, n: usize) {
        let hop = &mut self.around.pairs[self.ways[&self.at].0].mobile;
        let Some(app) = self.apps.get_mut(&id) else { return };
        if !app.closed
            && !app.finished
            && let Ok(n) = self.session.write(hop, id, &bytes(id, true, app.written, n))
        {
            app.written += n;
        }
    }

    fn read(&mut self, id: ConnId, n: usize) {
        let hop = &mut self.around.pairs[self.ways[&self.at].0].mobile;
        let Some(app) = self.apps.get_mut(&id).filter(|app| !app.closed) else { return };
        let piece = self.session.received(hop, id);
        let n = piece.len().min(n);
        assert_eq!(piece[..n], bytes(id, false, app.read, n), "{id} down at {}", app.read);
        app.read += n;
        self.session.consume(hop, id, n);
        if self.session.recv_state(hop, id) == RecvState::Finished {
            let mut flows = self.around.flows_of(id);
            let whole = flows.any(|wired| wired.down_ended && wired.down == app.read);
            assert!(whole, "{id} ends early: {app:?}");
        }
    }

    fn finish(&mut self, id: ConnId) {
        let hop = &mut self.around.pairs[self.ways[&self.at].0].mobile;
        if let Some(app) = self.apps.get_mut(&id).filter(|app| app.open && !app.closed) {
            app.finished = true;
            self.session.finish(hop, id);
        }
    }

    fn reset(&mut self, id: ConnId) {
        self.around.spoiled.insert(id);
        let hop = &mut self.around.pairs[self.ways[&self.at].0].mobile;
        self.session.reset(hop, id, ResetReason::Aborted);
    }

    /// A base does something with its station and what is around it.
    fn with_node<R>(
        &mut self,
        base: u32,
        f: impl FnOnce(&mut node::Base, &mut node::NodeWires<'_>) -> R,
    ) -> R {
        let (now, verbose) = (self.now, self.verbose);
        let node = &mut self.nodes[base as usize - 1];
        f(
            &mut node.station,
            &mut node::NodeWires {
                now,
                verbose,
                sockets: &mut node.sockets,
                around: &mut self.around,
            },
        )
    }

    fn poll_mobile(&mut self) {
        while let Some(event) = self.mobile.poll_event() {
            trace!(self, "mobile: {event:?}");
            match event {
                MobileEvent::Suspend { to } => self.go_to(to),
                MobileEvent::Resumed { .. } => {
                    self.resumed += 1;
                    let pair = self.pair();
                    let hop = &mut self.around.pairs[pair].mobile;
                    self.session.handle_resumed(self.now, hop);
                }
                MobileEvent::Refused { .. } | MobileEvent::Unexpected { .. } => {}
                MobileEvent::TakeOver => {
                    let pair = self.pair();
                    let mut orphans = self.session.orphans(&self.around.pairs[pair].mobile);
                    self.forge(&mut orphans);
                    // If that base is dead, or is silent for longer, they are lost.
                    let lost = orphans.iter().filter(|one| one.ticket.is_none() && !one.asking);
                    self.around.spoiled.extend(lost.map(|one| ConnId(one.connection)));
                    self.mobile.tell_orphans(orphans, Duration::ZERO);
                }
                MobileEvent::Broken(_) => {
                    self.broken += 1;
                    self.spoil_all();
                    let pair = self.pair();
                    let hop = &mut self.around.pairs[pair].mobile;
                    self.session.reset_all(hop, ResetReason::AssociationLost);
                    self.session.suspend(self.now, hop);
                    self.session.resume(self.now, hop, ID);
                }
            }
        }
        let mut out = vec![];
        while let Some(to) = self.mobile.poll_transmit(self.now, &mut out) {
            if to == self.at {
                let pair = self.pair();
                let hop = &mut self.around.pairs[pair].mobile;
                let _ = self.session.send_message(self.now, hop, &out);
            }
        }
        let pair = self.pair();
        if self.session.next_timeout().is_some_and(|at| at <= self.now) {
            self.session.handle_timeout(self.now, &mut self.around.pairs[pair].mobile);
        }
        while let Some(event) =
            self.session.poll_event(self.now, &mut self.around.pairs[pair].mobile)
        {
            trace!(self, "app: {event:?}");
            let app = self.apps.entry(event.id()).or_default();
            assert!(!app.closed, "{event:?} after Closed");
            match &event {
                Event::Opened { .. } => app.open = true,
                Event::Closed(_) => app.closed = true,
                Event::Failed { id, .. } | Event::Reset { id, .. } => {
                    // What was sent early to a base that never answered is lost with it.
                    let answered = self.around.flows_of(*id).any(|wired| wired.accepted);
                    if app.open && !answered {
                        self.around.spoiled.insert(*id);
                    }
                    assert!(self.around.spoiled.contains(id), "{event:?}");
                }
                _ => {}
            }
        }
        while let Some(message) = self.session.poll_message() {
            if let Some(TicketMessage { connection, ticket }) = TicketMessage::decode(&message) {
                self.session.keep_ticket(ConnId(connection), ticket);
                continue;
            }
            self.mobile.handle_datagram(self.now, self.at, &message);
        }
    }

    /// Some tickets are none, or another connection's.
    fn forge(&mut self, orphans: &mut [Orphan]) {
        let tickets: Vec<Ticket> = orphans.iter().filter_map(|one| one.ticket.clone()).collect();
        for orphan in orphans.iter_mut().filter(|one| one.ticket.is_some()) {
            if self.around.forging == 0.0 || !self.numbers.chance(self.around.forging) {
                continue;
            }
            let other = self.numbers.below(2 * tickets.len() as u64) as usize;
            let garbage = || Ticket::new(&[7; 9]).expect("short");
            orphan.ticket = Some(tickets.get(other).cloned().unwrap_or_else(garbage));
        }
    }

    /// Nothing is promised any more of connections that are open, nor of those whose last bytes only
    /// a base has.
    fn spoil_all(&mut self) {
        let whole = |id: &ConnId, app: &App| {
            self.around.flows_of(*id).any(|wired| wired.up_ended && wired.up == app.written)
        };
        let open = self.apps.iter().filter(|(id, app)| !app.closed || !whole(id, app));
        let open: Vec<ConnId> = open.map(|(id, _)| *id).collect();
        self.around.spoiled.extend(open);
    }

    /// Lets everybody say what he has to say.
    fn poll(&mut self) {
        for _ in 0..3 {
            self.poll_mobile();
            for base in 1..=3 {
                if self.around.dead.get(&base) == Some(&Death::Killed) {
                    continue;
                }
                self.with_node(base, |station, world| node::poll(base, station, world));
                let now = self.now;
                let mut out = vec![];
                while let Some(to) = self.node(base).station.poll_transmit(now, &mut out) {
                    if to == MOBILE {
                        self.with_node(base, |station, world| {
                            let id = station.association_of(MOBILE);
                            if let Some((session, mut hop)) = id.and_then(|id| world.session(id)) {
                                let _ = session.send_message(now, &mut hop, &out);
                            }
                        });
                    } else if self.nodes.len() as u32 >= to {
                        self.send(base, to, &out);
                    }
                }
            }
            let called = core::mem::take(&mut self.around.called);
            self.flying
                .extend(called.into_iter().map(|(from, to, pair)| Flight::Link(from, to, pair)));
        }
    }

    fn send(&mut self, from: u32, to: u32, message: &[u8]) {
        trace!(self, "{from} to {to}: {:?}", Datagram::decode(message).map(|d| d.message));
        if self.is_dead(from) || self.numbers.chance(self.loss) {
            return;
        }
        if self.numbers.chance(self.loss / 2.0) {
            self.flying.push(Flight::Message(from, to, message.to_vec()));
        }
        self.flying.push(Flight::Message(from, to, message.to_vec()));
    }

    /// Delivers one of those on their way, whichever.
    fn deliver(&mut self) -> bool {
        if self.flying.is_empty() {
            return false;
        }
        let which = self.numbers.below(self.flying.len() as u64) as usize;
        let flight = self.flying.swap_remove(which);
        self.arrive(flight);
        self.poll();
        true
    }

    fn arrive(&mut self, flight: Flight) {
        trace!(self, "  arrives: {}", brief(&flight));
        if self.is_lost(&flight) {
            return;
        }
        let now = self.now;
        match flight {
            Flight::Message(from, to, message) => {
                self.with_node(to, |station, world| {
                    station.handle_peer(world, now, At::messages(from), from, &message);
                });
            }
            Flight::Call(base, pair, greeting) => {
                if let Some(greeting) = greeting {
                    self.node(base).station.handle_call(now, MOBILE, &greeting);
                }
                self.flying.push(Flight::Up(base, pair));
            }
            Flight::Up(base, pair) => {
                // Unless the mobile has given it up meanwhile.
                let Some(way) = self.ways.get_mut(&base).filter(|way| way.0 == pair) else {
                    return;
                };
                way.1 = true;
                let id = At { pair, link: false };
                self.node(base).sockets.open(id, Session::base(crate::Config::base()));
                self.with_node(base, |station, world| station.handle_up(world, now, id, MOBILE));
                if self.at == base {
                    self.mobile.reached(now, base);
                }
            }
            Flight::Link(from, to, pair) => {
                let far = At { pair, link: false };
                self.node(to).sockets.open(far, Session::anchor(crate::Config::base()));
                self.node(to).sockets.peers.insert(far, from);
                let id = At { pair, link: true };
                if self.node(from).sockets.has(id) {
                    self.node(from).sockets.linked.insert(id);
                    self.with_node(from, |station, world| station.handle_linked(world, now, id));
                } else {
                    self.flying.push(Flight::Gone(to, far));
                }
            }
            Flight::Gone(base, id) => {
                self.with_node(base, |station, world| node::lose(station, world, id));
            }
        }
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        let now = self.now;
        let gone = self.around.gone.extract_if(.., |(at, ..)| *at <= now);
        self.flying.extend(gone.map(|(_, base, id)| Flight::Gone(base, id)));
        self.mobile.handle_timeout(self.now);
        self.poll();
    }

    fn carry(&mut self, up: usize, down: usize) {
        if let Some((pair, true)) = self.ways.get(&self.at).copied()
            && !self.is_dead(self.at)
        {
            self.around.pairs[pair].carry_up(up);
            self.around.pairs[pair].carry_down(down);
        }
        self.poll();
    }

    /// Bytes between bases.
    fn carry_links(&mut self, n: usize) {
        let alive = (1..=3).filter(|base| !self.is_dead(*base)).zip(&self.nodes);
        let linked: Vec<usize> =
            alive.flat_map(|(_, node)| node.sockets.linked.iter().map(|id| id.pair)).collect();
        for pair in linked {
            self.around.pairs[pair].carry_up(n);
            self.around.pairs[pair].carry_down(n);
        }
        self.poll();
    }

    /// The fixed host answers openings, or takes and sends bytes, at any base.
    fn answer(&mut self, accept: bool) {
        for base in (1..=3).filter(|base| !self.is_dead(*base)).collect::<Vec<_>>() {
            self.with_node(base, |_, world| world.answer(accept));
        }
        self.poll();
    }

    fn relay(&mut self, id: ConnId, up: usize, down: usize) {
        for base in 1..=3 {
            let apps = core::mem::take(&mut self.apps);
            self.with_node(base, |_, world| world.relay(id, up, down, apps.get(&id)));
            self.apps = apps;
        }
    }

    /// The fixed host ends its direction.
    fn end(&mut self, id: ConnId) {
        for base in 1..=3 {
            self.with_node(base, |_, world| world.end(id));
        }
    }

    /// A base hears of something that took its time.
    fn finish_job(&mut self, base: u32) {
        let killed = self.around.dead.get(&base) == Some(&Death::Killed);
        if !killed && !self.node(base).sockets.jobs.is_empty() {
            self.with_node(base, node::finish_job);
            self.poll();
        }
    }

    /// Lets time pass with everything delivered, openings accepted and bytes relayed.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.wait(10 * MS);
            for _ in 0..10_000 {
                if !self.deliver() {
                    break;
                }
            }
            (1..=3).for_each(|base| self.finish_job(base));
            for _ in 0..4 {
                self.carry(usize::MAX, usize::MAX);
                self.carry_links(usize::MAX);
                self.answer(true);
                for id in self.apps.keys().copied().collect::<Vec<_>>() {
                    self.relay(id, usize::MAX, 0);
                }
            }
        }
    }

    fn read_all(&mut self) {
        for id in self.apps.keys().copied().collect::<Vec<_>>() {
            for _ in 0..3 {
                self.read(id, usize::MAX);
            }
        }
    }

    /// A base loses all state and begins anew.
    fn crash(&mut self, base: u32) {
        trace!(self, "crash of {base}");
        self.crashes += 1;
        self.spoil_all();
        let now = self.now;
        let take_over = self.take_over();
        let old = core::mem::replace(self.node(base), Node::new(base, take_over));
        // Ends of associations with it learn of it.
        for id in old.sockets.all() {
            if let Some(peer) = old.sockets.peers.get(&id) {
                self.flying.push(Flight::Gone(*peer, At { link: true, ..id }));
            }
            if id.link {
                let far = At { link: false, ..id };
                let other = self.nodes.iter().position(|node| node.sockets.has(far));
                self.flying.extend(other.map(|at| Flight::Gone(at as u32 + 1, far)));
            }
        }
        for other in (1..=3).filter(|other| *other != base) {
            self.node(other).station.unreachable(now, base);
            self.node(other).station.reached(now, base);
        }
        self.ways.remove(&base);
        if self.at == base {
            self.notice();
        }
        self.poll();
    }

    /// The mobile notices that its base was restarted, and makes an association anew.
    fn notice(&mut self) {
        let base = self.at;
        // What there was of the old one is of no more use.
        let pair = self.around.pair();
        self.ways.insert(base, (pair, false));
        let hop = &mut self.around.pairs[pair].mobile;
        if self.mobile.going().is_none() {
            self.session.reset_all(hop, ResetReason::AssociationLost);
        }
        self.session.suspend(self.now, hop);
        self.associate(base);
        let pair = self.pair();
        self.session.resume(self.now, &mut self.around.pairs[pair].mobile, ID);
    }

    /// A base receives nothing from a mobile that is elsewhere.
    fn forget(&mut self, base: u32) {
        if self.at != base
            && !self.mobile.is_pending()
            && let Some((pair, true)) = self.ways.get(&base).copied()
        {
            self.ways.remove(&base);
            self.flying.push(Flight::Gone(base, At { pair, link: false }));
        }
    }
}

fn brief(flight: &Flight) -> alloc::string::String {
    let mut text = match flight {
        Flight::Message(from, to, message) => alloc::format!(
            "{from} to {to}: {:?}",
            Datagram::decode(message).map(|datagram| (datagram.attempt, datagram.message))
        ),
        other => alloc::format!("{other:?}"),
    };
    text.truncate(120);
    text.to_string()
}
