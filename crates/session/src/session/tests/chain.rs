//! Random journeys of a mobile whose wired connections stay at one base: the others relay, and each
//! takes over what the one before had.

use alloc::collections::{BTreeMap, BTreeSet};

use lasthop_wire::mhp::handoff::{ConnectionState, Direction, Stage};
use proptest::prelude::*;

use super::moves::bytes;
use super::*;

const NAME: SessionId = SessionId(0x77);

#[derive(Clone, Debug)]
enum Step {
    Write(usize, usize),
    Read(usize, usize),
    Finish(usize),
    Reset(usize),
    /// At the base with the wired connections.
    Relay(usize, usize, usize),
    End(usize),
    Accept,
    /// At the base between.
    Bridge(usize, usize, usize),
    Carry(usize, usize),
    CarryFar(usize, usize),
    Poll,
    /// The mobile goes to another base and asks there at once.
    Move,
    /// The base before gives the session away.
    Fetch,
    /// It comes to the base where the mobile is, or where it was before.
    Deliver(bool),
    /// The base with the wired connections is notified that another requests them.
    Detach,
    Attach,
    /// The association between the bases is made anew.
    Again,
}

fn step() -> impl Strategy<Value = Step> {
    let (which, n) = (|| 0usize..4, || 1usize..300);
    prop_oneof![
        6 => (which(), n()).prop_map(|(which, n)| Step::Write(which, n)),
        6 => (which(), n()).prop_map(|(which, n)| Step::Read(which, n)),
        1 => which().prop_map(Step::Finish),
        1 => prop_oneof![4 => Just(99), 1 => which()].prop_map(Step::Reset),
        8 => (which(), n(), n()).prop_map(|(which, up, down)| Step::Relay(which, up, down)),
        1 => which().prop_map(Step::End),
        1 => Just(Step::Accept),
        12 => (which(), n(), n()).prop_map(|(which, up, down)| Step::Bridge(which, up, down)),
        8 => (n(), n()).prop_map(|(up, down)| Step::Carry(up, down)),
        8 => (n(), n()).prop_map(|(up, down)| Step::CarryFar(up, down)),
        4 => Just(Step::Poll),
        2 => Just(Step::Move),
        3 => Just(Step::Fetch),
        4 => prop::bool::weighted(0.1).prop_map(Step::Deliver),
        4 => Just(Step::Detach),
        5 => Just(Step::Attach),
        1 => Just(Step::Again),
    ]
}

/// One end of a connection, the application's or the fixed host's.
#[derive(Default, Debug)]
struct End {
    open: bool,
    written: usize,
    read: usize,
    finished: bool,
    closed: bool,
}

/// A base's end of an association with the mobile, or with another base.
#[derive(Debug)]
struct Half {
    session: Session,
    pair: Pair,
}

impl Half {
    fn new(limits: Limits) -> Self {
        Self { session: Session::base(Config::base()), pair: Pair::new(limits) }
    }
}

/// A base that relays: a base to the mobile, a mobile to the base with the wired connections.
#[derive(Debug)]
struct Between {
    near: Half,
    far: Session,
    /// Its association with that base, once the session is here.
    link: Option<usize>,
}

#[derive(Debug)]
enum Holder {
    /// The base with the wired connections serves the mobile itself.
    First,
    Between(usize),
    OnItsWay(SessionState, Vec<ConnectionState>),
}

#[derive(Debug)]
enum Wired {
    First,
    Link(usize),
    Parked(SessionState),
}

#[derive(Debug)]
struct Run {
    limits: Limits,
    mobile: Session,
    first: Half,
    between: Vec<Between>,
    links: Vec<Half>,
    place: Holder,
    wired: Wired,
    apps: BTreeMap<ConnId, End>,
    hosts: BTreeMap<ConnId, End>,
    asked: BTreeSet<ConnId>,
    spoiled: BTreeSet<ConnId>,
}

/// What is left at the base with the wired connection, and what the relaying one begins with.
fn divide(state: &ConnectionState) -> (ConnectionState, ConnectionState) {
    let stage = if state.stage == Stage::Over { Stage::Open } else { state.stage };
    let up = Direction { start: state.up.start, bytes: vec![], ended: false };
    let down = Direction { start: state.down.end(), bytes: vec![], ended: state.down.ended };
    let left = ConnectionState { stage, up, down, wired: vec![], ..state.clone() };
    let down = Direction { ended: false, ..left.down.clone() };
    // Nothing is written before the fixed host has answered: the mobile's early bytes are not read.
    let stage = match left.stage {
        Stage::Connecting(_) => Stage::Connecting(Opening::Faithful),
        stage => stage,
    };
    let far = ConnectionState { stage, down, ..left.clone() };
    (left, far)
}

impl Run {
    fn new(limits: Limits) -> Self {
        let mut run = Self {
            limits,
            mobile: Session::mobile(Config::mobile()),
            first: Half::new(limits),
            between: vec![],
            links: vec![],
            place: Holder::First,
            wired: Wired::First,
            apps: BTreeMap::new(),
            hosts: BTreeMap::new(),
            asked: BTreeSet::new(),
            spoiled: BTreeSet::new(),
        };
        for opening in [Opening::Faithful, Opening::Early, Opening::Faithful, Opening::Early] {
            let hop = &mut run.first.pair.mobile;
            let id = run.mobile.connect(Time::ZERO, hop, &target(), opening).expect("room");
            run.apps.insert(id, End { open: opening == Opening::Early, ..End::default() });
        }
        for _ in 0..100 {
            run.first.pair.carry();
            run.poll();
            if run.apps.values().filter(|app| app.open).count() < 3 {
                run.accept();
            }
        }
        run
    }

    fn hop(&mut self) -> (&mut Session, &mut crate::memory::End) {
        let Self { mobile, first, between, .. } = self;
        let half = between.last_mut().map_or(first, |between| &mut between.near);
        (mobile, &mut half.pair.mobile)
    }

    /// The session that the wired connections belong to.
    fn anchor(&mut self) -> Option<&mut Half> {
        match self.wired {
            Wired::First => Some(&mut self.first),
            Wired::Link(n) => Some(&mut self.links[n]),
            Wired::Parked(_) => None,
        }
    }

    fn write(&mut self, id: ConnId, n: usize) {
        let app = &self.apps[&id];
        if app.closed || app.finished {
            return;
        }
        let data = bytes(id, true, app.written, n);
        let (mobile, hop) = self.hop();
        let written = mobile.write(hop, id, &data).unwrap_or(0);
        self.apps.entry(id).or_default().written += written;
    }

    fn read(&mut self, id: ConnId, n: usize) {
        let at = self.apps[&id].read;
        let (mobile, hop) = self.hop();
        let piece = mobile.received(hop, id);
        let n = piece.len().min(n);
        assert_eq!(piece[..n], bytes(id, false, at, n), "{id} down at {at}");
        mobile.consume(hop, id, n);
        let ended = mobile.recv_state(hop, id) == RecvState::Finished;
        self.apps.entry(id).or_default().read += n;
        if ended {
            let host = &self.hosts[&id];
            assert!(host.finished && host.written == at + n, "{id} ends early: {host:?}");
        }
    }

    fn finish(&mut self, id: ConnId) {
        if self.apps[&id].open && !self.apps[&id].closed {
            self.apps.entry(id).or_default().finished = true;
            let (mobile, hop) = self.hop();
            mobile.finish(hop, id);
        }
    }

    fn accept(&mut self) {
        let Some(id) = self.asked.first().copied() else { return };
        let Some(half) = self.anchor() else { return };
        half.session.accept(&mut half.pair.base, id, bound());
        self.asked.remove(&id);
        self.hosts.entry(id).or_default().open = true;
    }

    fn relay(&mut self, id: ConnId, up: usize, down: usize) {
        let Some(host) = self.hosts.get(&id).filter(|host| host.open) else { return };
        let (at, written, finished) = (host.read, host.written, host.finished);
        let Some(Half { session, pair }) = self.anchor() else { return };
        let piece = session.received(&pair.base, id);
        let n = piece.len().min(up);
        assert_eq!(piece[..n], bytes(id, true, at, n), "{id} up at {at}");
        session.consume(&mut pair.base, id, n);
        let ended = session.recv_state(&pair.base, id) == RecvState::Finished;
        let data = bytes(id, false, written, down);
        let sent = if finished { Ok(0) } else { session.write(&mut pair.base, id, &data) };
        let host = self.hosts.entry(id).or_default();
        host.read += n;
        host.written += sent.unwrap_or(0);
        if ended {
            let app = &self.apps[&id];
            assert!(app.finished && app.written == at + n, "{id} ends early: {app:?}");
        }
    }

    fn end(&mut self, id: ConnId) {
        if self.hosts.get(&id).is_some_and(|host| host.open)
            && let Some(half) = self.anchor()
        {
            half.session.finish(&mut half.pair.base, id);
            self.hosts.entry(id).or_default().finished = true;
        }
    }

    /// Bytes and ends pass through the base between.
    fn bridge(&mut self, id: ConnId, up: usize, down: usize) {
        let Holder::Between(at) = self.place else { return };
        let Between { near, far, link } = &mut self.between[at];
        let Some(link) = link else { return };
        let hop = &mut self.links[*link].pair.mobile;
        let piece = near.session.received(&near.pair.base, id);
        if let Ok(n) = far.write(hop, id, &piece[..piece.len().min(up)]) {
            near.session.consume(&mut near.pair.base, id, n);
        }
        if near.session.recv_state(&near.pair.base, id) == RecvState::Finished {
            far.finish(hop, id);
        }
        let piece = far.received(hop, id);
        let piece = &piece[..piece.len().min(down)];
        if let Ok(n) = near.session.write(&mut near.pair.base, id, piece) {
            far.consume(hop, id, n);
        }
        if far.recv_state(hop, id) == RecvState::Finished {
            near.session.finish(&mut near.pair.base, id);
        }
    }

    fn leave(&mut self) {
        self.poll();
        let (mobile, hop) = self.hop();
        mobile.suspend(Time::ZERO, hop);
        let near = Half::new(self.limits);
        let far = Session::mobile(Config::mobile());
        self.between.push(Between { near, far, link: None });
        let (mobile, hop) = self.hop();
        mobile.resume(Time::ZERO, hop, NAME);
    }

    fn fetch(&mut self) {
        self.poll();
        match self.place {
            Holder::First if !self.between.is_empty() => {
                let Half { session, pair } = &mut self.first;
                let state = session.freeze(Time::ZERO, &mut pair.base, NAME);
                let divided = state.connections.iter().map(divide);
                let (left, far) = divided.unzip();
                let parked = SessionState { connections: left, ended: vec![], ..state.clone() };
                self.wired = Wired::Parked(SessionState { turn: 0, ..parked });
                self.place = Holder::OnItsWay(state, far);
            }
            Holder::Between(at) if at + 1 < self.between.len() => {
                let Between { near, far, link } = &mut self.between[at];
                let mut state = near.session.freeze(Time::ZERO, &mut near.pair.base, NAME);
                if let Some(link) = *link {
                    far.suspend(Time::ZERO, &mut self.links[link].pair.mobile);
                }
                let exported = far.export_all();
                let over =
                    exported.iter().filter(|c| state.connections.iter().all(|n| n.id != c.id));
                state.connections.extend(over.map(left_over).collect::<Vec<_>>());
                self.place = Holder::OnItsWay(state, exported);
            }
            _ => {}
        }
    }

    fn deliver(&mut self, late: bool) {
        let Some(last) = self.between.len().checked_sub(1) else { return };
        let at = if late { last.saturating_sub(1) } else { last };
        match core::mem::replace(&mut self.place, Holder::Between(at)) {
            Holder::OnItsWay(state, exported) => {
                let Between { near, far, link } = &mut self.between[at];
                *far = Session::mobile(Config::mobile());
                for connection in exported {
                    assert!(far.import(Time::ZERO, connection));
                }
                near.session.adopt(Time::ZERO, state);
                *link = Some(self.links.len());
                self.links.push(Half::new(self.limits));
                let hop = &mut self.links.last_mut().expect("a link").pair.mobile;
                far.resume(Time::ZERO, hop, NAME);
            }
            place => self.place = place,
        }
    }

    fn again(&mut self) {
        let Holder::Between(at) = self.place else { return };
        self.poll();
        let Between { far, link, .. } = &mut self.between[at];
        let Some(old) = *link else { return };
        far.suspend(Time::ZERO, &mut self.links[old].pair.mobile);
        *link = Some(self.links.len());
        self.links.push(Half::new(self.limits));
        let hop = &mut self.links.last_mut().expect("a link").pair.mobile;
        far.resume(Time::ZERO, hop, NAME);
    }

    fn detach(&mut self) {
        let newest = self.links.len().checked_sub(1);
        if let Wired::Link(n) = self.wired
            && Some(n) != newest
        {
            self.poll();
            let Half { session, pair } = &mut self.links[n];
            let state = session.freeze(Time::ZERO, &mut pair.base, NAME);
            self.wired = Wired::Parked(SessionState { turn: 0, ..state });
        }
    }

    fn attach(&mut self) {
        let Some(newest) = self.links.len().checked_sub(1) else { return };
        match core::mem::replace(&mut self.wired, Wired::Link(newest)) {
            Wired::Parked(state) => self.links[newest].session.adopt(Time::ZERO, state),
            wired => self.wired = wired,
        }
    }

    fn poll(&mut self) {
        loop {
            let (mobile, hop) = self.hop();
            let Some(event) = mobile.poll_event(Time::ZERO, hop) else { break };
            let spoiled = self.spoiled.contains(&event.id());
            let app = self.apps.entry(event.id()).or_default();
            assert!(!app.closed, "{event:?} after Closed");
            match &event {
                Event::Opened { .. } => app.open = true,
                Event::Closed(_) => app.closed = true,
                Event::Failed { .. } | Event::Reset { .. } => assert!(spoiled, "{event:?}"),
                _ => {}
            }
        }
        self.poll_between();
        let Self { first, links, asked, spoiled, .. } = self;
        for Half { session, pair } in links.iter_mut().chain([first]) {
            while let Some(event) = session.poll_event(Time::ZERO, &mut pair.base) {
                match event {
                    Event::Connect { id, .. } => {
                        asked.insert(id);
                    }
                    Event::Reset { id, reason } => {
                        assert!(spoiled.contains(&id), "{id} at the wire: {reason}");
                        asked.remove(&id);
                    }
                    _ => {}
                }
            }
            assert_eq!(session.stats().malformed, 0);
        }
    }

    fn poll_between(&mut self) {
        let serving = if let Holder::Between(at) = self.place { Some(at) } else { None };
        for (at, between) in self.between.iter_mut().enumerate() {
            let Between { near, far, link } = between;
            let Half { session, pair } = near;
            let Some(hop) = link.map(|n| &mut self.links[n].pair.mobile) else {
                assert_eq!(session.poll_event(Time::ZERO, &mut pair.base), None);
                continue;
            };
            while let Some(event) = session.poll_event(Time::ZERO, &mut pair.base) {
                match event {
                    Event::Reset { id, reason } => {
                        assert!(self.spoiled.contains(&id), "{id} between: {reason}");
                        far.reset(hop, id, ResetReason::Aborted);
                    }
                    Event::Closed(id) => far.finish(hop, id),
                    _ => {}
                }
            }
            // A session that is suspended gets nothing from its old association any more.
            if serving != Some(at) {
                continue;
            }
            while let Some(event) = far.poll_event(Time::ZERO, hop) {
                match event {
                    Event::Opened { id, .. } => session.accept(&mut pair.base, id, bound()),
                    Event::Failed { id, .. } | Event::Reset { id, .. } => {
                        assert!(self.spoiled.contains(&id), "{event:?}");
                        session.reset(&mut pair.base, id, ResetReason::Aborted);
                    }
                    Event::Closed(id) => session.finish(&mut pair.base, id),
                    _ => {}
                }
            }
        }
    }

    fn carry(&mut self, up: usize, down: usize) {
        let Self { first, between, .. } = self;
        let half = between.last_mut().map_or(first, |between| &mut between.near);
        half.pair.carry_up(up);
        half.pair.carry_down(down);
    }

    fn carry_far(&mut self, up: usize, down: usize) {
        if let Holder::Between(at) = self.place
            && let Some(link) = self.between[at].link
        {
            self.links[link].pair.carry_up(up);
            self.links[link].pair.carry_down(down);
        }
    }

    fn step(&mut self, step: &Step) {
        let nth = |run: &Self, n: usize| run.apps.keys().nth(n).copied();
        match *step {
            Step::Accept => self.accept(),
            Step::Carry(up, down) => self.carry(up, down),
            Step::CarryFar(up, down) => self.carry_far(up, down),
            Step::Poll => self.poll(),
            Step::Move => self.leave(),
            Step::Fetch => self.fetch(),
            Step::Deliver(late) => self.deliver(late),
            Step::Detach => self.detach(),
            Step::Attach => self.attach(),
            Step::Again => self.again(),
            Step::Write(n, bytes) => nth(self, n).into_iter().for_each(|id| self.write(id, bytes)),
            Step::Read(n, bytes) => nth(self, n).into_iter().for_each(|id| self.read(id, bytes)),
            Step::Finish(n) => nth(self, n).into_iter().for_each(|id| self.finish(id)),
            Step::End(n) => nth(self, n).into_iter().for_each(|id| self.end(id)),
            Step::Relay(n, up, down) => {
                nth(self, n).into_iter().for_each(|id| self.relay(id, up, down));
            }
            Step::Bridge(n, up, down) => {
                nth(self, n).into_iter().for_each(|id| self.bridge(id, up, down));
            }
            Step::Reset(n) => {
                if let Some(id) = nth(self, n) {
                    self.spoiled.insert(id);
                    let (mobile, hop) = self.hop();
                    mobile.reset(hop, id, ResetReason::Aborted);
                }
            }
        }
    }

    fn drain(&mut self) {
        for _ in 0..2000 {
            self.carry(usize::MAX, usize::MAX);
            self.carry_far(usize::MAX, usize::MAX);
            self.poll();
            self.fetch();
            self.deliver(false);
            self.detach();
            self.attach();
            self.accept();
            for id in self.apps.keys().copied().collect::<Vec<_>>() {
                self.relay(id, usize::MAX, 0);
                self.end(id);
                self.bridge(id, usize::MAX, usize::MAX);
                self.read(id, usize::MAX);
                self.finish(id);
            }
            let left = self.anchor().map_or(1, |half| half.session.connections());
            if left == 0 && self.apps.values().all(|app| app.closed) {
                return;
            }
        }
        panic!(
            "something never closes: {:?} {:?} {:?}",
            self.apps,
            self.hosts,
            self.between.last()
        );
    }

    fn compare(&mut self) {
        for (id, app) in &self.apps {
            if !self.spoiled.contains(id) {
                let host = &self.hosts[id];
                assert_eq!((host.read, app.read), (app.written, host.written), "{id}");
            }
        }
        assert_eq!(self.mobile.connections(), 0);
        if let Holder::Between(at) = self.place {
            let Between { near, far, .. } = &self.between[at];
            assert_eq!((near.session.connections(), far.connections()), (0, 0));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// MHP-19, MHP-23: a connection whose wired half stays behind while the mobile goes from base to
    /// base loses nothing and doubles nothing, however long the bases take to follow.
    #[test]
    fn bytes_are_exact_through_a_base_between(
        buffer in prop_oneof![2usize..60, 200usize..2000],
        piece in prop_oneof![1usize..5, Just(usize::MAX)],
        unacknowledged in prop_oneof![Just(0usize), 1usize..500],
        steps in prop::collection::vec(step(), 0..300),
    ) {
        let mut run = Run::new(Limits { buffer, piece, unacknowledged, ..Limits::default() });
        steps.iter().for_each(|step| run.step(step));
        run.drain();
        run.compare();
    }
}
