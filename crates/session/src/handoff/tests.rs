//! A mobile, three bases and a fixed host: sessions on transports in memory, control datagrams on a
//! network that loses, repeats and reorders.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;

use lasthop_units::{Bytes, Duration, Seed, Stream as Numbers, Time};
use lasthop_wire::mhp::handoff::{Datagram, Message, Warrant};
use lasthop_wire::mhp::{Opening, Refusal, ResetReason, Target};

use super::*;
use crate::memory::{Limits, Pair};
use crate::{ConnId, Event, RecvState, Session};
use toy::Toy;

/// With `LASTHOP_VERBOSE`, when the tests are compiled, all is told.
macro_rules! trace {
    ($world:expr, $($text:tt)*) => {
        if $world.verbose {
            std::println!("{:?} {}", $world.now, format_args!($($text)*));
        }
    };
}

mod ahead;
mod attacks;
mod bases;
mod bounds;
mod copies;
mod early;
mod requirements;
mod schedules;
pub(crate) mod toy;
mod trust;

pub(crate) const MOBILE: u32 = 100;
pub(crate) const ID: SessionId = SessionId(0xabcd);
pub(crate) const MS: Duration = Duration::from_millis(1);

/// A connection as the fixed host knows it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Wired {
    /// Bytes that arrived from the mobile, and whether their end did.
    pub(crate) up: usize,
    pub(crate) up_ended: bool,
    /// Bytes that the base has taken for the mobile, and whether their end.
    pub(crate) down: usize,
    pub(crate) down_ended: bool,
    pub(crate) accepted: bool,
}

impl Wired {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let flags = [u8::from(self.up_ended), u8::from(self.down_ended), u8::from(self.accepted)];
        [&self.up.to_be_bytes()[..], &self.down.to_be_bytes()[..], &flags].concat()
    }
}

/// A connection as the mobile's application knows it.
#[derive(Default, Debug)]
pub(crate) struct App {
    pub(crate) open: bool,
    pub(crate) written: usize,
    pub(crate) finished: bool,
    pub(crate) read: usize,
    pub(crate) closed: bool,
}

/// A base's use of the session.
#[derive(Debug)]
struct Surrogate {
    session: Session,
    pair: usize,
    /// Openings that the fixed host has not answered.
    asked: Vec<ConnId>,
    /// The handoff for which the mobile made the association, and whether it greeted there since.
    attempt: u32,
    greeted: bool,
    /// The mobile asks there for what is not.
    wanted: bool,
    /// When the mobile was last at the other end.
    alive: Time,
}

impl Surrogate {
    fn new(session: Session, pair: usize, attempt: u32, now: Time) -> Self {
        let (greeted, wanted) = (false, false);
        Self { session, pair, asked: vec![], attempt, greeted, wanted, alive: now }
    }
}

struct Station {
    machine: Base<u32, Toy>,
    surrogate: Option<Surrogate>,
    /// The mobile's new association, over which it carries on before its session is here.
    guest: Option<Surrogate>,
    /// Answers no datagram and sends none.
    dead: bool,
}

/// A base that knows the mobile and the two others.
fn base(config: Config, name: u32) -> Base<u32, Toy> {
    Base::with_authority(config, name, Toy { own: name })
}

fn brief(message: &Message<'_>) -> String {
    let mut text = format!("{message:?}");
    text.truncate(90);
    text
}

struct Roaming {
    now: Time,
    numbers: Numbers,
    loss: f64,
    limits: Limits,
    config: Config,
    /// The mobile carries on over its new hop at once.
    early: bool,
    session: Session,
    mobile: Mobile<u32, Toy>,
    /// Its handoffs.
    attempt: u32,
    pairs: Vec<Pair>,
    /// The mobile's hop; the base at its other end was restarted since.
    pair: usize,
    cut: bool,
    stations: Vec<Station>,
    /// From, to, what.
    flying: Vec<(u32, u32, Vec<u8>)>,
    sent: Vec<(u32, u32, Vec<u8>)>,
    /// Where the mobile went in each handoff.
    went: BTreeMap<u32, u32>,
    apps: BTreeMap<ConnId, App>,
    wired: BTreeMap<ConnId, Wired>,
    /// Connections that somebody gave up on purpose, or that a crash took.
    spoiled: BTreeSet<ConnId>,
    told: Vec<MobileEvent<u32>>,
    base_told: Vec<(u32, BaseEvent<u32>)>,
    events: Vec<Event>,
    /// Handoffs that came to their end, sessions that broke and bases that were restarted.
    resumed: usize,
    broken: usize,
    crashes: usize,
    panics_on_broken: bool,
    verbose: bool,
}

/// Byte `at` of what connection `id` carries in one direction, unlike any other stretch.
fn byte(id: ConnId, up: bool, at: usize) -> u8 {
    let n = (at as u64).wrapping_add((id.0 * 7 + u64::from(up)) << 32);
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 56) as u8
}

pub(crate) fn bytes(id: ConnId, up: bool, from: usize, n: usize) -> Vec<u8> {
    (from..from + n).map(|at| byte(id, up, at)).collect()
}

pub(crate) fn target() -> Target {
    Target::from_host("server.example", 443).expect("a good name")
}

pub(crate) fn bound() -> SocketAddr {
    "10.0.0.1:4000".parse().expect("an address")
}

impl Roaming {
    fn new(seed: u64) -> Self {
        Self::with(seed, Limits { unacknowledged: 700, ..Limits::default() }, Config::base())
    }

    fn with(seed: u64, limits: Limits, config: Config) -> Self {
        let fresh =
            |n| Station { machine: base(config, n), surrogate: None, guest: None, dead: false };
        let mut stations: Vec<Station> = (1..=3).map(fresh).collect();
        let session = Session::base(crate::Config::base());
        stations[0].surrogate = Some(Surrogate::new(session, 0, 0, Time::ZERO));
        let mut world = Self {
            now: Time::ZERO,
            numbers: Seed::from_u64(seed).stream("handoff"),
            loss: 0.0,
            limits,
            config,
            early: false,
            session: Session::mobile(crate::Config::mobile()),
            mobile: Mobile::with_granter(Config::mobile(), ID, 1, Toy { own: MOBILE }),
            attempt: 0,
            pairs: vec![Pair::new(limits)],
            pair: 0,
            cut: false,
            stations,
            flying: vec![],
            sent: vec![],
            went: BTreeMap::new(),
            apps: BTreeMap::new(),
            wired: BTreeMap::new(),
            spoiled: BTreeSet::new(),
            told: vec![],
            base_told: vec![],
            events: vec![],
            resumed: 0,
            broken: 0,
            crashes: 0,
            panics_on_broken: true,
            verbose: lasthop_testing::is_set("LASTHOP_VERBOSE"),
        };
        world.mobile.reached(Time::ZERO, 1);
        world.poll();
        world.deliver();
        (world.sent, world.base_told) = (vec![], vec![]);
        world
    }

    fn connect(&mut self, opening: Opening) -> Option<ConnId> {
        let hop = &mut self.pairs[self.pair].mobile;
        let id = self.session.connect(self.now, hop, &target(), opening).ok()?;
        self.apps.insert(id, App { open: opening == Opening::Early, ..App::default() });
        Some(id)
    }

    fn write(&mut self, id: ConnId, n: usize) {
        let hop = &mut self.pairs[self.pair].mobile;
        let Some(app) = self.apps.get_mut(&id) else { return };
        if app.closed || app.finished {
            return;
        }
        if let Ok(n) = self.session.write(hop, id, &bytes(id, true, app.written, n)) {
            assert!(n == 0 || app.open, "{id}: bytes were taken before the opening");
            app.written += n;
        }
    }

    fn read(&mut self, id: ConnId, n: usize) {
        let hop = &mut self.pairs[self.pair].mobile;
        let Some(app) = self.apps.get_mut(&id).filter(|app| !app.closed) else { return };
        let piece = self.session.received(hop, id);
        let n = piece.len().min(n);
        assert_eq!(piece[..n], bytes(id, false, app.read, n), "{id} down at {}", app.read);
        app.read += n;
        self.session.consume(hop, id, n);
        if self.session.recv_state(hop, id) == RecvState::Finished {
            let wired = self.wired.entry(id).or_default();
            assert!(wired.down_ended && wired.down == app.read, "{id} ends early: {wired:?}");
        }
    }

    fn finish(&mut self, id: ConnId) {
        let hop = &mut self.pairs[self.pair].mobile;
        let Some(app) = self.apps.get_mut(&id).filter(|app| app.open && !app.closed) else {
            return;
        };
        app.finished = true;
        self.session.finish(hop, id);
    }

    fn reset(&mut self, id: ConnId) {
        self.spoiled.insert(id);
        let hop = &mut self.pairs[self.pair].mobile;
        self.session.reset(hop, id, ResetReason::Aborted);
    }

    /// The fixed host answers an opening.
    fn answer(&mut self, at: usize, accept: bool) {
        let Some(surrogate) = &mut self.stations[at].surrogate else { return };
        let Some(id) = surrogate.asked.pop() else { return };
        let hop = &mut self.pairs[surrogate.pair].base;
        if accept {
            // Another base may have connected for it, and lost it before the mobile knew.
            self.wired.insert(id, Wired { accepted: true, ..Wired::default() });
            surrogate.session.accept(hop, id, bound());
        } else {
            self.spoiled.insert(id);
            surrogate.session.refuse(hop, id, Refusal::Refused);
        }
    }

    /// Bytes pass between a surrogate and the fixed host.
    fn relay(&mut self, at: usize, id: ConnId, up: usize, down: usize) {
        let Some(surrogate) = &mut self.stations[at].surrogate else { return };
        let Surrogate { session, pair, .. } = surrogate;
        let hop = &mut self.pairs[*pair].base;
        let Some(wired) = self.wired.get_mut(&id).filter(|wired| wired.accepted) else { return };
        let piece = session.received(hop, id);
        let n = piece.len().min(up);
        assert_eq!(piece[..n], bytes(id, true, wired.up, n), "{id} up at {}", wired.up);
        wired.up += n;
        session.consume(hop, id, n);
        if session.recv_state(hop, id) == RecvState::Finished {
            wired.up_ended = true;
            let app = &self.apps[&id];
            assert!(app.finished && app.written == wired.up, "{id} ends early: {app:?}");
        }
        if !wired.down_ended
            && let Ok(n) = session.write(hop, id, &bytes(id, false, wired.down, down))
        {
            wired.down += n;
        }
    }

    /// The fixed host ends its direction.
    fn end(&mut self, at: usize, id: ConnId) {
        let Some(Surrogate { session, pair, .. }) = &mut self.stations[at].surrogate else {
            return;
        };
        let Some(wired) = self.wired.get_mut(&id).filter(|wired| wired.accepted) else { return };
        let hop = &mut self.pairs[*pair].base;
        // Where two bases have the session after a crash, one of them has the connection.
        if session.write(hop, id, &[]).is_ok() {
            wired.down_ended = true;
            session.finish(hop, id);
        }
    }

    fn upcall(&mut self, base: u32) {
        self.mobile.handle_upcall(self.now, base);
        self.poll();
    }

    fn imminent(&mut self, base: u32, lead: Duration) {
        self.mobile.handle_imminent(self.now, base, lead);
        self.poll();
    }

    /// The station that uses the session; where one broke, another may still.
    fn serving(&self) -> Option<usize> {
        let at = |is: &dyn Fn(&Surrogate) -> bool| {
            self.stations.iter().position(|station| station.surrogate.as_ref().is_some_and(is))
        };
        at(&|surrogate| surrogate.pair == self.pair).or_else(|| at(&|_| true))
    }

    /// Lets every machine say what it has to say.
    fn poll(&mut self) {
        while let Some(event) = self.mobile.poll_event() {
            trace!(self, "mobile: {event:?}");
            self.told.push(event);
            self.on_mobile_event(event);
        }
        for at in 0..self.stations.len() {
            while let Some(event) = self.stations[at].machine.poll_event() {
                trace!(self, "base {}: {event:?}", at + 1);
                self.base_told.push((at as u32 + 1, event.clone()));
                self.on_base_event(at, event);
            }
        }
        let mut out = vec![];
        while let Some(to) = self.mobile.poll_transmit(self.now, &mut out) {
            self.send(MOBILE, to, out.clone());
        }
        for at in 0..self.stations.len() {
            while let Some(to) = self.stations[at].machine.poll_transmit(self.now, &mut out) {
                if !self.stations[at].dead {
                    self.send(at as u32 + 1, to, out.clone());
                }
            }
        }
        self.poll_sessions();
    }

    fn send(&mut self, from: u32, to: u32, datagram: Vec<u8>) {
        let Datagram { attempt, message, .. } = Datagram::decode(&datagram).expect("readable");
        trace!(self, "{from} to {to}, {attempt}: {}", brief(&message));
        match message {
            Message::Greet { .. } => {
                self.went.insert(attempt, to);
            }
            // Nothing is released but to the base that the mobile went to.
            Message::State { .. } => {
                assert_eq!(self.went.get(&attempt), Some(&to), "{message:?} in {attempt}");
            }
            Message::Committed { .. } => assert!(self.went.values().any(|base| *base == to)),
            // It goes by the association's stream, first of all.
            Message::Here { .. } => {
                self.sent.push((from, to, datagram.clone()));
                return self.receive(from, to, &datagram);
            }
            _ => {}
        }
        self.sent.push((from, to, datagram.clone()));
        if self.numbers.chance(self.loss) {
            return;
        }
        if self.numbers.chance(self.loss / 2.0) {
            self.flying.push((from, to, datagram.clone()));
        }
        self.flying.push((from, to, datagram));
    }

    /// Delivers one of the datagrams on their way, whichever.
    fn deliver(&mut self) -> bool {
        if self.flying.is_empty() {
            return false;
        }
        let which = self.numbers.below(self.flying.len() as u64) as usize;
        let (from, to, datagram) = self.flying.swap_remove(which);
        self.receive(from, to, &datagram);
        self.poll();
        true
    }

    fn receive(&mut self, from: u32, to: u32, datagram: &[u8]) {
        trace!(
            self,
            "  arrives from {from} at {to}: {}",
            Datagram::decode(datagram).map_or(String::new(), |d| brief(&d.message))
        );
        match to {
            MOBILE => self.mobile.handle_datagram(self.now, from, datagram),
            _ => match self.stations.get_mut(to as usize - 1) {
                Some(station) if !station.dead => {
                    let said = Datagram::decode(datagram);
                    for slot in [&mut station.surrogate, &mut station.guest].into_iter().flatten() {
                        let here = from == MOBILE
                            && said.as_ref().is_ok_and(|d| d.attempt == slot.attempt);
                        slot.greeted |= here;
                    }
                    station.machine.handle_datagram(self.now, from, datagram);
                }
                _ => {}
            },
        }
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.drop_idle();
        self.mobile.handle_timeout(self.now);
        for station in &mut self.stations {
            assert!(station.machine.is_armed(), "something is due before it is looked at");
            station.machine.handle_timeout(self.now);
        }
        self.poll();
        let machines = self.stations.iter().map(|station| station.machine.next_timeout());
        for due in machines.chain([self.mobile.next_timeout()]).flatten() {
            assert!(due > self.now, "a timer stays due");
        }
    }

    fn carry(&mut self, up: usize, down: usize) {
        if (self.early || !self.mobile.is_pending()) && !self.cut {
            self.pairs[self.pair].carry_up(up);
            self.pairs[self.pair].carry_down(down);
        }
        self.poll();
    }

    /// Lets time pass with all datagrams delivered, openings accepted and bytes relayed.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.wait(10 * MS);
            for _ in 0..10_000 {
                if !self.deliver() {
                    break;
                }
            }
            for _ in 0..4 {
                self.carry(usize::MAX, usize::MAX);
                if let Some(at) = self.serving() {
                    while self.stations[at].surrogate.as_ref().is_some_and(|s| !s.asked.is_empty())
                    {
                        self.answer(at, true);
                    }
                    for id in self.apps.keys().copied().collect::<Vec<_>>() {
                        self.relay(at, id, usize::MAX, 0);
                    }
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

    /// A connection that stands.
    fn opened(&mut self) -> ConnId {
        let id = self.connect(Opening::Faithful).expect("room");
        self.run(20 * MS);
        assert!(self.apps[&id].open);
        id
    }

    /// Datagrams of one kind that were sent.
    fn count(&self, is: impl Fn(u32, u32, &Message<'_>) -> bool) -> usize {
        let is = |from, to, bytes| Datagram::decode(bytes).is_ok_and(|d| is(from, to, &d.message));
        self.sent.iter().filter(|(from, to, bytes)| is(*from, *to, bytes)).count()
    }
}
