//! Two bases as they run, beside a base that is a peer of both and a mobile that both serve, which mean harm and
//! work together. Two honest mobiles go to and fro meanwhile: each of their handoffs succeeds. Nothing panics or
//! spins, and what is kept of all stays bounded.

mod wires;

use std::time::Duration;

use arbitrary::Unstructured;
use lasthop_session::handoff::{
    Address, Authority, Claim, Config, Granter, Mobile, MobileEvent, SessionId, SessionState,
};
use lasthop_session::memory::Pair;
use lasthop_session::station::{Associations, Station, Wires};
use lasthop_session::{ConnId, Opening, Session, Target};
use lasthop_units::{Bytes, Time};
use lasthop_wire::mhp::handoff::{
    ConnectionState, Datagram, Direction, Grant, Message, Stage, Warrant,
};

use crate::handoff::{MOBILE as INSIDER, forge, next, small};
use wires::{At, Base};

/// The base that means harm.
const PEER: u32 = 3;
const HONEST: [u32; 2] = [10, 11];
const STATE_MAX: u64 = 4000;
const SESSIONS_MAX: usize = 64;
const PENDING_MAX: usize = 8;
/// More than that at one instant would be a machine that does not stop.
const BURST: usize = 50_000;
/// A grant of the insider's.
const EVEN: Grant = Grant([2; Grant::LEN]);
/// The insider's session.
const ITS: SessionId = SessionId(1);
/// Associations that the harmful base has with each of the others.
const OF_PEER: usize = 4;

fn config() -> Config {
    Config {
        state_max: Bytes::new(STATE_MAX),
        memory_max: Bytes::new(8 * STATE_MAX),
        pending_max: PENDING_MAX,
        sessions_max: SESSIONS_MAX,
        ..Config::base()
    }
}

/// What a mobile or a base knows. Of the insider's grants every even one is genuine; of an honest mobile's those that
/// it made.
struct Known(u32);

fn grant(mobile: u32, holder: u32, claim: &Claim<u32>) -> Grant {
    let Claim { session, attempt, to } = claim;
    let mut half = [0; 8];
    for word in
        [0x5ec_2e7, mobile.into(), holder.into(), session.0, (*attempt).into(), (*to).into()]
    {
        half =
            ((u64::from_be_bytes(half) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes();
        half.rotate_left(3);
    }
    Grant([half, half].concat().try_into().expect("16 bytes"))
}

impl Granter<u32> for Known {
    fn grants(&self, session: SessionId, attempt: u32, to: u32) -> Vec<(u32, Grant)> {
        let claim = Claim { session, attempt, to };
        let others = [1, 2].into_iter().filter(|holder| *holder != to);
        match self.0 {
            INSIDER => [1, 2, PEER].map(|holder| (holder, EVEN)).to_vec(),
            own => others.map(|holder| (holder, grant(own, holder, &claim))).collect(),
        }
    }
}

impl Authority<u32> for Known {
    fn is_base(&self, name: u32) -> bool {
        (1..=3).contains(&name)
    }

    fn is_mobile(&self, name: u32) -> bool {
        name == INSIDER || HONEST.contains(&name)
    }

    fn holds(&self, mobile: u32, claim: &Claim<u32>, given: &Grant) -> bool {
        match mobile {
            INSIDER => given.0[0].is_multiple_of(2),
            _ => grant(mobile, self.0, claim) == *given,
        }
    }
}

struct Node {
    station: Station<u32, Known, At, u64>,
    wires: Base,
}

struct World {
    now: Time,
    nodes: [Node; 2],
    honest: [Mobile<u32, Known>; 2],
    /// The insider as it should be: all else that it says is made up.
    genuine: Mobile<u32, Known>,
    /// Its ends of its associations.
    insider: [Session; 2],
    /// What the harmful base was asked for: by whom, which session, in which handoff.
    asked: Vec<(u32, SessionId, u32)>,
    /// How often honest mobiles set out, and arrived.
    gone: usize,
    come: usize,
}

/// A state that the harmful base gives: connections that were being opened, that have wired halves anywhere or none.
fn state(session: SessionId, input: &mut Unstructured<'_>) -> SessionState {
    let direction = |n: u8| Direction {
        start: u64::from(n >> 4),
        bytes: vec![n; usize::from(n % 8)],
        ended: n & 8 > 0,
    };
    let mut connections = vec![];
    for n in 0..next::<u8>(input) % 4 {
        let [stage, up, down, wired]: [u8; 4] = next(input);
        let (up, down) = (direction(up), direction(down));
        let stage = match stage % 4 {
            0 => Stage::Connecting(Opening::Early),
            1 => Stage::Connecting(Opening::Faithful),
            2 => Stage::Over,
            _ => Stage::Open,
        };
        let target = Target::Addr(std::net::SocketAddr::from(([192, 0, 2, n], 80)));
        let id = 2 * u64::from(n);
        let (bound, source) = (None, None);
        let plain = ConnectionState { id, stage, target, bound, up, down, wired: vec![], source };
        let wired = match wired % 6 {
            0 => vec![],
            1 => vec![1, 7],
            2 => vec![3],
            base => {
                let far = of_connections(session, vec![plain.clone()]).encode();
                let name = u32::from(base - 2).to_name();
                [&[4, 4][..], name.as_bytes(), &far].concat()
            }
        };
        connections.push(ConnectionState { wired, ..plain });
    }
    of_connections(session, connections)
}

fn of_connections(session: SessionId, connections: Vec<ConnectionState>) -> SessionState {
    SessionState::of(session, connections)
}

fn encoded(session: SessionId, attempt: u32, message: Message<'_>) -> Vec<u8> {
    let mut out = vec![];
    Datagram { session, attempt, message }.encode(&mut out);
    out
}

impl World {
    fn new() -> Self {
        let node =
            |own| Node { station: Station::new(config(), own, Known(own)), wires: Base::new() };
        let honest = |n: u32| {
            let session = SessionId(u64::from(n) << 40);
            Mobile::with_granter(Config::mobile(), session, 1, Known(n))
        };
        let mut world = Self {
            now: Time::ZERO,
            nodes: [1, 2].map(node),
            honest: HONEST.map(honest),
            genuine: Mobile::with_granter(Config::mobile(), ITS, 1, Known(INSIDER)),
            insider: [(); 2].map(|()| Session::mobile(lasthop_session::Config::mobile())),
            asked: vec![],
            gone: 0,
            come: 0,
        };
        for at in 0..2 {
            for mobile in [INSIDER, HONEST[0], HONEST[1]] {
                let Node { station, wires } = &mut world.nodes[at];
                wires.open(At::Mobile(mobile));
                station.handle_up(wires, world.now, At::Mobile(mobile), mobile);
            }
            (0..OF_PEER).for_each(|n| world.nodes[at].wires.open(At::Peer(PEER, n)));
        }
        world.honest.iter_mut().for_each(|mobile| mobile.reached(Time::ZERO, 1));
        world.genuine.reached(Time::ZERO, 1);
        world.settle();
        world
    }

    /// Somebody who means harm does something, or an honest mobile moves.
    fn operate(&mut self, input: &mut Unstructured<'_>) {
        let [operation, argument]: [u8; 2] = next(input);
        let (now, at) = (self.now, usize::from(argument & 1));
        let Node { station, wires } = &mut self.nodes[at];
        let peer = At::Peer(PEER, usize::from(argument >> 1) % OF_PEER);
        let link = wires.links.iter().filter(|(_, to)| **to == PEER).map(|(n, _)| At::Link(*n));
        let link =
            link.cycle().nth(usize::from(argument >> 1) % 4).filter(|_| !wires.links.is_empty());
        match operation % 20 {
            0..=2 => station.handle_mobile(wires, now, INSIDER, &forge(input)),
            3..=5 => station.handle_peer(wires, now, peer, PEER, &forge(input)),
            6 => station.handle_call(now, INSIDER, &forge(input)),
            7 => self.give(input),
            8 => match link {
                Some(link) => station.handle_link(wires, now, link, PEER, &forge(input)),
                None => station.handle_base(now, PEER, &forge(input)),
            },
            9 => {
                let id = At::Mobile(INSIDER);
                if wires.sessions.contains_key(&id) {
                    station.handle_lost(wires, now, id);
                    wires.shut(id);
                } else {
                    wires.open(id);
                    self.insider[at] = Session::mobile(lasthop_session::Config::mobile());
                    station.handle_up(wires, now, id, INSIDER);
                }
            }
            10 => {
                station.handle_lost(wires, now, peer);
                wires.shut(peer);
                wires.open(peer);
            }
            11 => {
                let session = SessionId(u64::from(small(input)));
                let (id, from) =
                    if argument & 2 > 0 { (peer, PEER) } else { (At::Mobile(INSIDER), INSIDER) };
                station.handle_wanted(wires, now, id, from, session);
            }
            12 => {
                if let Some(link) = link {
                    if argument & 128 > 0 {
                        station.handle_link_lost(wires, link, "gone");
                    } else {
                        wires.linked.insert(link);
                        station.handle_linked(wires, now, link);
                    }
                }
            }
            13 => self.connect(at, argument),
            14 => wires.ready = !wires.ready || argument & 2 > 0,
            15 => wires.migrates = argument & 2 > 0,
            16 if argument & 4 > 0 => {
                let to = 1 + u32::from(argument >> 3) % 3;
                self.genuine.handle_upcall(now, to);
                self.genuine.reached(now, to);
            }
            16 | 17 => self.go(usize::from(argument >> 1) & 1),
            18 => self.attach(input, at, peer),
            _ => self.advance(Duration::from_millis(u64::from(argument) * u64::from(argument) / 8)),
        }
        self.settle();
    }

    /// The harmful base answers what it was asked for, as it should or nearly so.
    fn give(&mut self, input: &mut Unstructured<'_>) {
        let Some((to, session, attempt)) = self.asked.pop() else { return };
        let whole = state(session, input).encode();
        let (generation, total, offset) = (300, whole.len() as u64, 0);
        let given =
            encoded(session, attempt, Message::State { generation, total, offset, bytes: &whole });
        let Node { station, .. } = &mut self.nodes[to as usize - 1];
        station.handle_base(self.now, PEER, &given);
        if next::<u8>(input) > 30 {
            let committed = encoded(session, attempt, Message::Committed { generation });
            station.handle_base(self.now, PEER, &committed);
        }
    }

    /// The harmful base asks for what stayed here of a session, with the insider's grant.
    fn attach(&mut self, input: &mut Unstructured<'_>, at: usize, peer: At) {
        let (session, attempt) = match next::<u8>(input) {
            0..128 => (ITS, self.genuine.attempt()),
            _ => (SessionId(u64::from(small(input))), small(input)),
        };
        let warrant = Warrant { mobile: INSIDER.to_name(), grant: EVEN };
        let Node { station, wires } = &mut self.nodes[at];
        let message = if next::<u8>(input) < 128 {
            Message::Attach { warrant }
        } else {
            let (limit, piece, window, since, copy) = (STATE_MAX, 1000, 8, 0, None);
            Message::Handover { limit, piece, window, since, copy, warrant: Some(warrant) }
        };
        station.handle_peer(wires, self.now, peer, PEER, &encoded(session, attempt, message));
    }

    /// The insider uses its associations, or the harmful base writes on its own as a mobile would.
    fn connect(&mut self, at: usize, argument: u8) {
        let target = Target::Addr(std::net::SocketAddr::from(([192, 0, 2, argument], 80)));
        let opening = if argument & 2 > 0 { Opening::Early } else { Opening::Faithful };
        let id = if argument & 4 > 0 { At::Peer(PEER, 0) } else { At::Mobile(INSIDER) };
        let Some(pair) = self.nodes[at].wires.pairs.get_mut(&id) else { return };
        let mut other = Session::mobile(lasthop_session::Config::mobile());
        let session = if argument & 4 > 0 { &mut other } else { &mut self.insider[at] };
        match argument >> 3 {
            0..=15 => drop(session.connect(self.now, &mut pair.mobile, &target, opening)),
            16..=23 => session.finish(&mut pair.mobile, ConnId(u64::from(argument & 3) * 2)),
            _ => {
                session.suspend(self.now, &mut pair.mobile);
                session.resume(self.now, &mut pair.mobile, SessionId(u64::from(argument & 3)));
            }
        }
    }

    /// An honest mobile goes to the other base, if it is not on its way.
    fn go(&mut self, which: usize) {
        let mobile = &mut self.honest[which];
        if mobile.is_pending() {
            return;
        }
        let to = 3 - mobile.base();
        mobile.handle_upcall(self.now, to);
        mobile.reached(self.now, to);
        self.gone += 1;
    }

    /// An honest mobile that is on its way arrives.
    fn arrive(&mut self, which: usize) {
        for _ in 0..60 {
            if !self.honest[which].is_pending() {
                return;
            }
            self.advance(Duration::from_millis(400));
            self.settle();
        }
        panic!("{} does not arrive", HONEST[which]);
    }

    fn advance(&mut self, by: Duration) {
        self.now += by;
        self.honest.iter_mut().for_each(|mobile| mobile.handle_timeout(self.now));
        self.genuine.handle_timeout(self.now);
        self.insider.iter_mut().zip(&mut self.nodes).for_each(|(session, node)| {
            if let Some(pair) = node.wires.pairs.get_mut(&At::Mobile(INSIDER)) {
                session.handle_timeout(self.now, &mut pair.mobile);
            }
        });
        for Node { wires, .. } in &mut self.nodes {
            let ids: Vec<At> = wires.sessions.keys().copied().collect();
            for id in ids {
                if let Some((session, hop)) = wires.session(id) {
                    session.handle_timeout(self.now, hop);
                }
            }
        }
    }

    /// Everybody says what he has to say, and it arrives.
    fn settle(&mut self) {
        let mut said = 0;
        for _ in 0..8 {
            let mut out = vec![];
            for (n, mobile) in HONEST.into_iter().enumerate() {
                while let Some(event) = self.honest[n].poll_event() {
                    let broken = matches!(event, MobileEvent::Broken(_));
                    assert!(!broken, "{mobile}: {event:?}");
                    self.come += usize::from(matches!(event, MobileEvent::Resumed { .. }));
                }
                while let Some(to) = self.honest[n].poll_transmit(self.now, &mut out) {
                    let Node { station, wires } = &mut self.nodes[to as usize - 1];
                    station.handle_mobile(wires, self.now, mobile, &out);
                }
            }
            while self.genuine.poll_event().is_some() {}
            while let Some(to) = self.genuine.poll_transmit(self.now, &mut out) {
                if to == PEER {
                    self.greeted();
                } else {
                    let Node { station, wires } = &mut self.nodes[to as usize - 1];
                    station.handle_mobile(wires, self.now, INSIDER, &out);
                }
            }
            for at in 0..2 {
                said += self.settle_base(at);
                assert!(said < BURST, "it does not stop");
            }
        }
        self.check();
    }

    fn settle_base(&mut self, at: usize) -> usize {
        let (now, own, mut said) = (self.now, at as u32 + 1, 0);
        let mut sent = vec![];
        let Node { station, wires } = &mut self.nodes[at];
        let ids: Vec<At> = wires.sessions.keys().copied().collect();
        for id in ids {
            let between = match id {
                At::Link(n) => wires.links.get(&n).is_some_and(|to| *to != PEER),
                At::Peer(from, _) => from != PEER,
                At::Mobile(_) => false,
            };
            let Some(pair) = wires.pairs.get_mut(&id) else { continue };
            if !between {
                pair.carry();
            }
            if id == At::Mobile(INSIDER) {
                let insider = &mut self.insider[at];
                while insider.poll_event(now, &mut pair.mobile).is_some() {}
            }
            while let Some(event) = wires.poll(now, id) {
                station.handle_event(id, &event);
                assert!(said < BURST, "{event:?} without end");
                said += 1;
            }
        }
        wires.pump();
        while station.advance(wires, now) {
            said += 1;
            assert!(said < BURST, "it does not stop");
        }
        let mut out = vec![];
        while let Some(to) = station.poll_transmit(now, &mut out) {
            said += 1;
            assert!(Datagram::decode(&out).is_ok() && said < BURST);
            sent.push((to, out.clone()));
        }
        while station.poll_note().is_some() {}
        let due = station.next_timeout(wires.is_ready());
        assert!(due.is_none_or(|at| at > now), "a timer that is over and did not fire");
        for (to, message) in sent {
            match to {
                1 | 2 => self.nodes[to as usize - 1].station.handle_base(now, own, &message),
                PEER => self.hear(own, &message),
                INSIDER => self.genuine.handle_datagram(now, own, &message),
                _ => {
                    if let Some(n) = HONEST.iter().position(|mobile| *mobile == to) {
                        self.honest[n].handle_datagram(now, own, &message);
                    }
                }
            }
        }
        self.link(at);
        said
    }

    fn hear(&mut self, from: u32, message: &[u8]) {
        let Ok(Datagram { session, attempt, message }) = Datagram::decode(message) else { return };
        match message {
            Message::Handover { .. } if self.asked.len() < 8 => {
                self.asked.push((from, session, attempt));
            }
            // The whole state, if it asked for no copy: it may be used.
            Message::State { generation, .. } => {
                let warrant = Some(Warrant { mobile: INSIDER.to_name(), grant: EVEN });
                let commit = Message::Commit { generation, warrant };
                self.peer_says(from, &encoded(session, attempt, commit));
            }
            Message::Committed { generation } => {
                let resume = encoded(session, attempt, Message::Resume { since: generation });
                self.genuine.handle_datagram(self.now, PEER, &resume);
            }
            _ => {}
        }
    }

    fn peer_says(&mut self, to: u32, message: &[u8]) {
        if let Some(Node { station, .. }) = self.nodes.get_mut(to as usize - 1) {
            station.handle_base(self.now, PEER, message);
        }
    }

    /// The insider has come to the harmful base, which asks for its session.
    fn greeted(&mut self) {
        let warrant = Some(Warrant { mobile: INSIDER.to_name(), grant: EVEN });
        let (limit, piece, window, since, copy) = (STATE_MAX, 8000, 8, 0, None);
        let asked = Message::Handover { limit, piece, window, since, copy, warrant };
        let message = encoded(ITS, self.genuine.attempt(), asked);
        self.peer_says(self.genuine.base(), &message);
    }

    /// Associations between the two bases carry what they have.
    fn link(&mut self, at: usize) {
        let (own, now) = (at as u32 + 1, self.now);
        let to = |(n, to): (&usize, &u32)| (*to != PEER && *to != own).then_some(*n);
        let links: Vec<usize> = self.nodes[at].wires.links.iter().filter_map(to).collect();
        for n in links {
            let (near, far) = (At::Link(n), At::Peer(own, n));
            let [first, second] = &mut self.nodes;
            let (here, there) = if at == 0 { (first, second) } else { (second, first) };
            if !here.wires.linked.contains(&near) {
                there.wires.open(far);
                here.wires.linked.insert(near);
                here.station.handle_linked(&mut here.wires, now, near);
            }
            // One transport, with an end here and one there.
            if let (Some(one), Some(other)) =
                (here.wires.pairs.get_mut(&near), there.wires.pairs.get_mut(&far))
            {
                swap_across(one, other);
            }
            if let Some(message) =
                here.wires.sessions.get_mut(&near).and_then(Session::poll_message)
            {
                here.station.handle_link(&mut here.wires, now, near, 3 - own, &message);
            }
            if let Some(message) =
                there.wires.sessions.get_mut(&far).and_then(Session::poll_message)
            {
                there.station.handle_peer(&mut there.wires, now, far, own, &message);
            }
        }
        // Those whose other end has been given up.
        let [first, second] = &mut self.nodes;
        let (here, there) = if at == 0 { (first, second) } else { (second, first) };
        let left = |id: &At| matches!(id, At::Peer(from, n) if *from == own && !here.wires.links.contains_key(n));
        let left: Vec<At> = there.wires.sessions.keys().filter(|id| left(id)).copied().collect();
        for id in left {
            there.station.handle_lost(&mut there.wires, now, id);
            there.wires.shut(id);
        }
    }

    fn check(&self) {
        for Node { station, wires } in &self.nodes {
            let machine = station.machine();
            assert!(machine.sessions() <= 16 + HONEST.len(), "{} sessions", machine.sessions());
            assert!(machine.pending() <= 16 + HONEST.len());
            assert!(machine.copies() <= 2 * PENDING_MAX && machine.backlog() <= 2048);
            assert!(station.anchored() <= 8, "{} kept", station.anchored());
            assert!(station.anchors() <= 600 && wires.links.len() <= 600);
            assert_eq!(wires.proxied, 0, "a connection was made for a base");
        }
    }
}

/// What one end has written is read at the other: each of the two has a pair of its own, whose far end is not used.
fn swap_across(link: &mut Pair, peer: &mut Pair) {
    core::mem::swap(&mut link.base, &mut peer.base);
    link.carry();
    core::mem::swap(&mut link.base, &mut peer.base);
}

/// One input: operations; then the honest mobiles go to and fro once more.
pub fn run(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let mut world = World::new();
    while !input.is_empty() {
        world.operate(&mut input);
    }
    for _ in 0..2 {
        for which in 0..HONEST.len() {
            world.arrive(which);
            world.go(which);
            world.arrive(which);
        }
    }
    assert!(world.gone >= 4 && world.come >= world.gone);
}
