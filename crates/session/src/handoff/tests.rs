//! A mobile, three bases and a fixed host: sessions on transports in memory, control datagrams on a
//! network that loses, repeats and reorders.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;

use lasthop_units::{Bytes, Duration, Seed, Stream as Numbers, Time};
use lasthop_wire::mhp::handoff::{Datagram, Message};
use lasthop_wire::mhp::{Opening, Refusal, ResetReason, Target};

use super::*;
use crate::memory::{Limits, Pair};
use crate::{ConnId, Event, RecvState, Session};

mod ahead;
mod copies;
mod requirements;
mod schedules;

const MOBILE: u32 = 100;
const ID: SessionId = SessionId(0xabcd);
const MS: Duration = Duration::from_millis(1);

/// A connection as the fixed host knows it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Wired {
    /// Bytes that arrived from the mobile, and whether their end did.
    up: usize,
    up_ended: bool,
    /// Bytes that the base has taken for the mobile, and whether their end.
    down: usize,
    down_ended: bool,
    accepted: bool,
}

impl Wired {
    fn encode(&self) -> Vec<u8> {
        let flags = [u8::from(self.up_ended), u8::from(self.down_ended), u8::from(self.accepted)];
        [&self.up.to_be_bytes()[..], &self.down.to_be_bytes()[..], &flags].concat()
    }
}

/// A connection as the mobile's application knows it.
#[derive(Default, Debug)]
struct App {
    open: bool,
    written: usize,
    finished: bool,
    read: usize,
    closed: bool,
}

/// A base's use of the session.
#[derive(Debug)]
struct Surrogate {
    session: Session,
    pair: usize,
    /// Openings that the fixed host has not answered.
    asked: Vec<ConnId>,
}

struct Station {
    machine: Base<u32>,
    surrogate: Option<Surrogate>,
    /// Answers no datagram and sends none.
    dead: bool,
}

struct World {
    now: Time,
    numbers: Numbers,
    loss: f64,
    limits: Limits,
    session: Session,
    mobile: Mobile<u32>,
    pairs: Vec<Pair>,
    /// The mobile's hop.
    pair: usize,
    stations: Vec<Station>,
    /// From, to, what.
    flying: Vec<(u32, u32, Vec<u8>)>,
    sent: Vec<(u32, u32, Vec<u8>)>,
    apps: BTreeMap<ConnId, App>,
    wired: BTreeMap<ConnId, Wired>,
    /// Connections that somebody gave up on purpose.
    spoiled: BTreeSet<ConnId>,
    told: Vec<MobileEvent<u32>>,
    base_told: Vec<(u32, BaseEvent<u32>)>,
    events: Vec<Event>,
    /// Handoffs that came to their end.
    resumed: usize,
    panics_on_broken: bool,
}

/// Byte `at` of what connection `id` carries in one direction, unlike any other stretch.
fn byte(id: ConnId, up: bool, at: usize) -> u8 {
    let n = (at as u64).wrapping_add((id.0 * 7 + u64::from(up)) << 32);
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 56) as u8
}

fn bytes(id: ConnId, up: bool, from: usize, n: usize) -> Vec<u8> {
    (from..from + n).map(|at| byte(id, up, at)).collect()
}

fn target() -> Target {
    Target::from_host("server.example", 443).expect("a good name")
}

fn bound() -> SocketAddr {
    "10.0.0.1:4000".parse().expect("an address")
}

impl World {
    fn new(seed: u64) -> Self {
        Self::with(seed, Limits { unacknowledged: 700, ..Limits::default() }, Config::base())
    }

    fn with(seed: u64, limits: Limits, config: Config) -> Self {
        let fresh = |n| Station { machine: Base::new(config, n), surrogate: None, dead: false };
        let mut stations: Vec<Station> = (1..=3).map(fresh).collect();
        let session = Session::base(crate::Config::base());
        stations[0].surrogate = Some(Surrogate { session, pair: 0, asked: vec![] });
        Self {
            now: Time::ZERO,
            numbers: Seed::from_u64(seed).stream("handoff"),
            loss: 0.0,
            limits,
            session: Session::mobile(crate::Config::mobile()),
            mobile: Mobile::new(Config::mobile(), ID, 1),
            pairs: vec![Pair::new(limits)],
            pair: 0,
            stations,
            flying: vec![],
            sent: vec![],
            apps: BTreeMap::new(),
            wired: BTreeMap::new(),
            spoiled: BTreeSet::new(),
            told: vec![],
            base_told: vec![],
            events: vec![],
            resumed: 0,
            panics_on_broken: true,
        }
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
            self.wired.entry(id).or_default().accepted = true;
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
        wired.down_ended = true;
        session.finish(&mut self.pairs[*pair].base, id);
    }

    fn upcall(&mut self, base: u32) {
        self.mobile.handle_upcall(self.now, base);
        self.poll();
    }

    fn imminent(&mut self, base: u32, lead: Duration) {
        self.mobile.handle_imminent(self.now, base, lead);
        self.poll();
    }

    /// The station that uses the session.
    fn serving(&self) -> Option<usize> {
        self.stations.iter().position(|station| station.surrogate.is_some())
    }

    /// Lets every machine say what it has to say.
    fn poll(&mut self) {
        while let Some(event) = self.mobile.poll_event() {
            self.told.push(event);
            self.on_mobile_event(event);
        }
        for at in 0..self.stations.len() {
            while let Some(event) = self.stations[at].machine.poll_event() {
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
        self.sent.push((from, to, datagram.clone()));
        if self.numbers.chance(self.loss) {
            return;
        }
        if self.numbers.chance(self.loss / 2.0) {
            self.flying.push((from, to, datagram.clone()));
        }
        self.flying.push((from, to, datagram));
    }

    fn on_mobile_event(&mut self, event: MobileEvent<u32>) {
        match event {
            MobileEvent::Suspend => {
                self.session.suspend(self.now, &mut self.pairs[self.pair].mobile);
            }
            MobileEvent::Resumed { base } => {
                self.resumed += 1;
                self.pair = self.pairs.len();
                self.pairs.push(Pair::new(self.limits));
                let surrogate = self.stations[base as usize - 1].surrogate.as_mut();
                surrogate.expect("a base that resumes has the session").pair = self.pair;
                self.session.resume(self.now, &mut self.pairs[self.pair].mobile, ID);
            }
            MobileEvent::Broken(_) => {
                assert!(!self.panics_on_broken, "{event:?} at {:?}", self.now);
                let hop = &mut self.pairs[self.pair].mobile;
                self.session.reset_all(hop, ResetReason::AssociationLost);
            }
        }
    }

    fn on_base_event(&mut self, at: usize, event: BaseEvent<u32>) {
        let station = &mut self.stations[at];
        match event {
            BaseEvent::Freeze(session) => {
                let state = station.surrogate.take().map(|mut surrogate| {
                    let hop = &mut self.pairs[surrogate.pair].base;
                    let mut state = surrogate.session.freeze(self.now, hop, session);
                    assert_eq!(surrogate.session.connections(), 0);
                    for connection in &mut state.connections {
                        let wired = self.wired.entry(ConnId(connection.id)).or_default();
                        connection.wired = wired.encode();
                    }
                    state
                });
                station.machine.frozen(self.now, session, state);
            }
            BaseEvent::Rebuild(state) => {
                for connection in &state.connections {
                    let wired = self.wired[&ConnId(connection.id)];
                    assert_eq!(connection.wired, wired.encode(), "two bases use one connection");
                }
                let session = state.session;
                self.pairs.push(Pair::new(self.limits));
                station.surrogate = Some(Surrogate {
                    session: Session::rebuild(self.now, crate::Config::base(), state),
                    pair: self.pairs.len() - 1,
                    asked: vec![],
                });
                station.machine.rebuilt(self.now, session, true);
                let users = self.stations.iter().filter(|s| s.surrogate.is_some()).count();
                assert_eq!(users, 1, "a state is never used by two bases");
            }
            BaseEvent::Copy(session) => {
                let state = station.surrogate.as_ref().map(|surrogate| {
                    let hop = &self.pairs[surrogate.pair].base;
                    let mut state =
                        surrogate.session.preview(hop, session, Config::base().state_max);
                    for connection in &mut state.connections {
                        let wired = self.wired.entry(ConnId(connection.id)).or_default();
                        connection.wired = wired.encode();
                    }
                    state
                });
                station.machine.copied(self.now, session, state);
            }
            _ => {}
        }
    }

    fn poll_sessions(&mut self) {
        while let Some(event) = self.session.poll_event(self.now, &mut self.pairs[self.pair].mobile)
        {
            let app = self.apps.entry(event.id()).or_default();
            assert!(!app.closed, "{event:?} after Closed");
            match &event {
                Event::Opened { .. } => app.open = true,
                Event::Closed(_) => app.closed = true,
                Event::Failed { id, .. } | Event::Reset { id, .. } => {
                    let broken = matches!(self.told.last(), Some(MobileEvent::Broken(_)));
                    assert!(broken || self.spoiled.contains(id), "{event:?}");
                }
                _ => {}
            }
            self.events.push(event);
        }
        for station in &mut self.stations {
            let Some(Surrogate { session, pair, asked }) = &mut station.surrogate else { continue };
            while let Some(event) = session.poll_event(self.now, &mut self.pairs[*pair].base) {
                match event {
                    Event::Connect { id, .. } => asked.push(id),
                    Event::Reset { id, reason } => {
                        asked.retain(|other| *other != id);
                        assert!(self.spoiled.contains(&id), "{id} at a base: {reason}");
                    }
                    _ => {}
                }
            }
        }
    }

    /// Delivers one of the datagrams on their way, whichever.
    fn deliver(&mut self) -> bool {
        if self.flying.is_empty() {
            return false;
        }
        let which = self.numbers.below(self.flying.len() as u64) as usize;
        let (from, to, datagram) = self.flying.swap_remove(which);
        if to == MOBILE {
            self.mobile.handle_datagram(self.now, &datagram);
        } else {
            let station = &mut self.stations[to as usize - 1];
            if !station.dead {
                station.machine.handle_datagram(self.now, from, &datagram);
            }
        }
        self.poll();
        true
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.mobile.handle_timeout(self.now);
        for station in &mut self.stations {
            station.machine.handle_timeout(self.now);
        }
        self.poll();
        let machines = self.stations.iter().map(|station| station.machine.next_timeout());
        for due in machines.chain([self.mobile.next_timeout()]).flatten() {
            assert!(due > self.now, "a timer stays due");
        }
    }

    fn carry(&mut self, up: usize, down: usize) {
        if !self.mobile.is_pending() {
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
