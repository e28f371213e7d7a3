//! Random journeys: a mobile that leaves and arrives at any moment, states that come when they come.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;

const NAME: SessionId = SessionId(0x1234);

#[derive(Clone, Debug)]
enum Step {
    Connect(Opening),
    Answer(bool),
    Write(usize, usize),
    Read(usize, usize),
    Finish(usize),
    Reset(usize),
    Relay(usize, usize, usize),
    End(usize),
    CarryUp(usize),
    CarryDown(usize),
    Poll,
    Leave,
    /// Resumes, over the association that it left, where that stands, or over a new one.
    Arrive(bool),
    /// Whoever uses the session stops.
    Freeze,
    /// The state comes to the base where the mobile is, or to the one where it was before.
    Adopt(bool),
    /// The state is at that base, which may not use it yet.
    Tentative(bool),
    /// The mobile is notified that the base has the state.
    Resumed,
    Say(bool, usize),
    /// The base before says how much it had got, or somewhat less.
    Hear(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let opening = prop_oneof![Just(Opening::Faithful), Just(Opening::Early)];
    let (which, n) = (|| 0usize..6, || 1usize..300);
    prop_oneof![
        2 => opening.prop_map(Step::Connect),
        2 => prop::bool::weighted(0.8).prop_map(Step::Answer),
        6 => (which(), n()).prop_map(|(which, n)| Step::Write(which, n)),
        6 => (which(), n()).prop_map(|(which, n)| Step::Read(which, n)),
        1 => which().prop_map(Step::Finish),
        1 => which().prop_map(Step::Reset),
        8 => (which(), n(), n()).prop_map(|(which, up, down)| Step::Relay(which, up, down)),
        1 => which().prop_map(Step::End),
        5 => (1usize..400).prop_map(Step::CarryUp),
        5 => (1usize..400).prop_map(Step::CarryDown),
        4 => Just(Step::Poll),
        3 => Just(Step::Leave),
        5 => any::<bool>().prop_map(Step::Arrive),
        3 => Just(Step::Freeze),
        4 => prop::bool::weighted(0.2).prop_map(Step::Adopt),
        4 => prop::bool::weighted(0.2).prop_map(Step::Tentative),
        4 => Just(Step::Resumed),
        2 => (any::<bool>(), n()).prop_map(|(up, n)| Step::Say(up, n)),
        3 => prop_oneof![Just(0u64), 1u64..50].prop_map(Step::Hear),
    ]
}

/// Byte `at` of what connection `id` carries in one direction.
fn byte(id: ConnId, up: bool, at: usize) -> u8 {
    let n = (at as u64).wrapping_add((id.0 * 7 + u64::from(up)) << 32);
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 56) as u8
}

/// `n` bytes of it, from `from` on.
pub(super) fn bytes(id: ConnId, up: bool, from: usize, n: usize) -> Vec<u8> {
    (from..from + n).map(|at| byte(id, up, at)).collect()
}

/// Whether `message` is the next, but for those that were under way over an association as the mobile
/// left it and came back.
fn was_said(said: &mut VecDeque<Vec<u8>>, message: &[u8]) -> bool {
    core::iter::from_fn(|| said.pop_front()).any(|next| next == message)
}

/// One end of a connection, the application's or the fixed host's.
#[derive(Default, Debug)]
struct End {
    open: bool,
    written: usize,
    read: usize,
    finished: bool,
    ended: bool,
    closed: bool,
    /// Of the fixed host's: it was connected to, or refused.
    asked: usize,
    /// Of the fixed host's: what its base took for had by the mobile.
    acknowledged: u64,
}

/// A base's end of an association.
#[derive(Debug)]
struct Station {
    session: Session,
    pair: Pair,
    asked: Vec<ConnId>,
}

/// Who has the session.
#[derive(Debug)]
enum Holder {
    Station(usize),
    OnItsWay(SessionState),
}

#[derive(Debug)]
struct Run {
    now: Time,
    limits: Limits,
    mobile: Session,
    stations: Vec<Station>,
    /// The station of the association that the mobile uses, or left last.
    at: usize,
    /// The one of the association that it left last.
    left: usize,
    suspended: bool,
    /// The state has come to the base where the mobile is, which can say so.
    stands: bool,
    /// What every hop is said to have carried in a round trip.
    blind: Bytes,
    place: Holder,
    apps: BTreeMap<ConnId, End>,
    hosts: BTreeMap<ConnId, End>,
    /// Connections that somebody gave up on purpose.
    spoiled: BTreeSet<ConnId>,
    /// Connections of which a base without the session has taken early bytes, as the mobile left it:
    /// they may be lost with it, but never wrong.
    risked: BTreeSet<ConnId>,
    /// Early openings without an answer.
    early: BTreeSet<ConnId>,
    /// Messages under way on the channel that stands, up and down.
    said: [VecDeque<Vec<u8>>; 2],
    count: u32,
}

impl Run {
    fn new(limits: Limits, blind: u64) -> Self {
        let mut run = Self {
            now: Time::ZERO,
            limits,
            mobile: Session::mobile(Config::mobile()),
            blind: Bytes::new(blind),
            stations: vec![],
            at: 0,
            left: 0,
            suspended: false,
            stands: false,
            place: Holder::Station(0),
            apps: BTreeMap::new(),
            hosts: BTreeMap::new(),
            spoiled: BTreeSet::new(),
            risked: BTreeSet::new(),
            early: BTreeSet::new(),
            said: [VecDeque::new(), VecDeque::new()],
            count: 0,
        };
        run.associate();
        run
    }

    fn associate(&mut self) {
        self.at = self.stations.len();
        let (session, pair) = (Session::base(Config::base()), Pair::new(self.limits));
        self.stations.push(Station { session, pair, asked: vec![] });
        self.said = Default::default();
    }

    fn nth(&self, n: usize) -> Option<ConnId> {
        self.apps.keys().nth(n % self.apps.len().max(1)).copied()
    }

    fn connect(&mut self, opening: Opening) {
        let hop = &mut self.stations[self.at].pair.mobile;
        if let Ok(id) = self.mobile.connect(self.now, hop, &target(), opening) {
            assert!(!self.apps.contains_key(&id), "{id} is used again");
            self.apps.insert(id, End { open: opening == Opening::Early, ..End::default() });
            if opening == Opening::Early {
                self.early.insert(id);
            }
        }
    }

    fn write(&mut self, id: ConnId, n: usize) {
        let hop = &mut self.stations[self.at].pair.mobile;
        let Some(app) = self.apps.get_mut(&id).filter(|app| !app.closed && !app.finished) else {
            return;
        };
        if let Ok(n) = self.mobile.write(hop, id, &bytes(id, true, app.written, n)) {
            assert!(n == 0 || app.open, "{id}: bytes were taken before the opening");
            app.written += n;
        }
    }

    fn read(&mut self, id: ConnId, n: usize) {
        let hop = &mut self.stations[self.at].pair.mobile;
        let Some(app) = self.apps.get_mut(&id).filter(|app| !app.closed) else { return };
        let piece = self.mobile.received(hop, id);
        let n = piece.len().min(n);
        assert_eq!(piece[..n], bytes(id, false, app.read, n), "{id} down at {}", app.read);
        app.read += n;
        self.mobile.consume(hop, id, n);
        if self.mobile.recv_state(hop, id) == RecvState::Finished {
            let host = &self.hosts[&id];
            assert!(host.finished && host.written == app.read, "{id} ends early: {host:?}");
            app.ended = true;
        }
    }

    fn finish(&mut self, id: ConnId) {
        let hop = &mut self.stations[self.at].pair.mobile;
        if let Some(app) = self.apps.get_mut(&id).filter(|app| app.open && !app.closed) {
            app.finished = true;
            self.mobile.finish(hop, id);
        }
    }

    fn answer(&mut self, accept: bool) {
        let Holder::Station(at) = self.place else { return };
        let Station { session, pair, asked } = &mut self.stations[at];
        let Some(id) = asked.pop() else { return };
        if accept {
            self.hosts.entry(id).or_default().open = true;
            session.accept(&mut pair.base, id, bound());
        } else {
            self.spoiled.insert(id);
            session.refuse(&mut pair.base, id, Refusal::Refused);
        }
    }

    fn relay(&mut self, id: ConnId, up: usize, down: usize) {
        let Holder::Station(at) = self.place else { return };
        let Station { session, pair, .. } = &mut self.stations[at];
        let Some(host) = self.hosts.get_mut(&id).filter(|host| host.open) else { return };
        let piece = session.received(&pair.base, id);
        let n = piece.len().min(up);
        assert_eq!(piece[..n], bytes(id, true, host.read, n), "{id} up at {}", host.read);
        host.read += n;
        session.consume(&mut pair.base, id, n);
        if session.recv_state(&pair.base, id) == RecvState::Finished {
            let app = &self.apps[&id];
            assert!(app.finished && app.written == host.read, "{id} ends early: {app:?}");
            host.ended = true;
        }
        if !host.finished
            && let Ok(n) = session.write(&mut pair.base, id, &bytes(id, false, host.written, down))
        {
            host.written += n;
        }
        self.check_acknowledged(id, at);
    }

    /// A base takes nothing for had by the mobile that the mobile could still lose.
    fn check_acknowledged(&mut self, id: ConnId, at: usize) {
        let Station { session, pair, .. } = &self.stations[at];
        let Some(acknowledged) = session.acknowledged(&pair.base, id) else { return };
        let host = self.hosts.get_mut(&id).expect("it is relayed");
        // The end is written anew on another hop.
        let before = host.acknowledged.min(host.written as u64);
        assert!(acknowledged >= before, "{id}: {acknowledged} after {host:?}");
        host.acknowledged = acknowledged;
        // Where it has not read yet what the base says first, what follows that has come as well.
        let Some(conn) = self.mobile.table.get(id).filter(|conn| conn.hears()) else { return };
        let hop = &self.stations[self.at].pair.mobile;
        let here = conn.stream.and_then(|stream| hop.snapshot(stream));
        let is_over = |stream| hop.recv_state(stream) == RecvState::Finished;
        if here.is_none() && conn.stream.is_some_and(is_over) {
            // All has come, and the mobile has yet to hear that its stream is over.
            return;
        }
        let came = here.as_ref().map_or(0, |s| s.received.saturating_sub(conn.heard.into()));
        let ended = conn.has_end() || here.is_some_and(|s| s.recv_ended);
        let has = conn.recv_base + came + u64::from(ended);
        assert!(acknowledged <= has, "{id}: {acknowledged} of {has}, {conn:?}");
    }

    fn end(&mut self, id: ConnId) {
        let Holder::Station(at) = self.place else { return };
        let Station { session, pair, .. } = &mut self.stations[at];
        if let Some(host) = self.hosts.get_mut(&id).filter(|host| host.open) {
            host.finished = true;
            session.finish(&mut pair.base, id);
        }
    }

    fn leave(&mut self) {
        self.poll();
        let waits = self.stations[self.at].session.holds.is_waiting();
        if !self.suspended && (waits || !self.serves(self.at)) {
            let written = |id: &&ConnId| self.apps[id].written > 0;
            self.risked.extend(self.early.iter().filter(written));
        }
        self.mobile.suspend(self.now, &mut self.stations[self.at].pair.mobile);
        (self.suspended, self.stands, self.left) = (true, false, self.at);
        self.said = Default::default();
        assert_eq!(self.mobile.poll_message(), None);
    }

    fn arrive(&mut self, same: bool) {
        if !core::mem::take(&mut self.suspended) {
            return;
        }
        if !same {
            // Something may have been sent over the old one again.
            self.leave();
            self.suspended = false;
            self.associate();
        }
        self.say(true, 5);
        self.mobile.expect(self.blind);
        self.mobile.resume(self.now, &mut self.stations[self.at].pair.mobile, NAME);
    }

    fn hear(&mut self, less: u64) {
        for (id, stream) in self.mobile.waiting() {
            let arrived = self.stations[self.left].pair.mobile.arrived(stream);
            let offset = arrived.expect("it was detached there").saturating_sub(less);
            let hop = &mut self.stations[self.at].pair.mobile;
            self.mobile.handle_arrived(self.now, hop, id, offset);
        }
    }

    fn freeze(&mut self) {
        // As long as the mobile is with that base, nobody asks it to.
        let Holder::Station(at) = self.place else { return };
        self.poll();
        if at == self.at && !self.suspended && self.stations[at].session.holds.len() == 0 {
            return;
        }
        let Station { session, pair, asked } = &mut self.stations[at];
        let state = session.freeze(self.now, &mut pair.base, NAME);
        asked.clear();
        self.stands = false;
        self.place = Holder::OnItsWay(state);
    }

    fn adopt(&mut self, late: bool) {
        let at = if late { self.at.saturating_sub(1) } else { self.at };
        match core::mem::replace(&mut self.place, Holder::Station(at)) {
            Holder::OnItsWay(state) => {
                self.stations[at].session.adopt(self.now, state);
                self.stands |= at == self.at && !self.suspended;
            }
            place => self.place = place,
        }
    }

    fn answer_tentatively(&mut self, late: bool) {
        let at = if late { self.at.saturating_sub(1) } else { self.at };
        let Holder::OnItsWay(state) = &self.place else { return };
        let Station { session, pair, .. } = &mut self.stations[at];
        session.answer_tentatively(self.now, &mut pair.base, state, 0);
    }

    fn resumed(&mut self) {
        if self.stands {
            self.mobile.handle_resumed(self.now, &mut self.stations[self.at].pair.mobile);
        }
    }

    fn serves(&self, at: usize) -> bool {
        matches!(self.place, Holder::Station(n) if n == at)
    }

    fn say(&mut self, up: bool, n: usize) {
        let Station { session, pair, .. } = &mut self.stations[self.at];
        self.count += 1;
        let mut message = vec![1 + u8::from(n.is_multiple_of(5)), 20 + (n % 44) as u8];
        message.extend_from_slice(&(n as u16 + 4).to_be_bytes());
        message.extend_from_slice(&self.count.to_be_bytes());
        message.resize(8 + n, n as u8);
        let said = if up {
            self.mobile.send_message(self.now, &mut pair.mobile, &message)
        } else if self.suspended {
            return;
        } else {
            session.send_message(self.now, &mut pair.base, &message)
        };
        if said.is_ok() {
            self.said[usize::from(!up)].push_back(message);
        }
    }

    fn poll(&mut self) {
        let Station { pair, .. } = &mut self.stations[self.at];
        while let Some(event) = self.mobile.poll_event(self.now, &mut pair.mobile) {
            let app = self.apps.entry(event.id()).or_default();
            assert!(!app.closed, "{event:?} after Closed");
            match &event {
                Event::Opened { .. } => app.open = true,
                Event::Closed(_) => app.closed = true,
                Event::Failed { id, .. } | Event::Reset { id, .. } => {
                    let risked = self.risked.contains(id);
                    assert!(risked || self.spoiled.contains(id), "{event:?}");
                    self.spoiled.insert(*id);
                }
                Event::Readable(id) => {
                    self.early.remove(id);
                }
                _ => {}
            }
        }
        while let Some(message) = self.mobile.poll_message() {
            assert!(was_said(&mut self.said[1], &message), "{message:?}");
        }
        for (at, Station { session, pair, asked }) in self.stations.iter_mut().enumerate() {
            while let Some(event) = session.poll_event(self.now, &mut pair.base) {
                match event {
                    Event::Connect { id, .. } => {
                        let serves = matches!(self.place, Holder::Station(n) if n == at);
                        assert!(serves, "{id} is asked of a fixed host where its state is not");
                        let host = self.hosts.entry(id).or_default();
                        assert_eq!(host.read, 0, "{id} is asked of two fixed hosts");
                        host.asked += 1;
                        asked.push(id);
                    }
                    Event::Reset { id, reason } => {
                        asked.retain(|other| *other != id);
                        assert!(self.spoiled.contains(&id), "{id} at a base: {reason}");
                    }
                    Event::Closed(id) => asked.retain(|other| *other != id),
                    _ => {}
                }
            }
            while let Some(wanted) = session.poll_wanted() {
                assert_eq!(wanted, NAME);
            }
            while let Some(message) = session.poll_message() {
                if at == self.at {
                    assert!(was_said(&mut self.said[0], &message), "{message:?}");
                }
            }
            assert_eq!(session.stats().malformed, 0);
        }
        assert_eq!(self.mobile.stats().malformed, 0);
    }

    fn carry(&mut self, up: usize, down: usize) {
        if !self.suspended {
            self.stations[self.at].pair.carry_up(up);
            self.stations[self.at].pair.carry_down(down);
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Connect(opening) => self.connect(opening),
            Step::Answer(accept) => self.answer(accept),
            Step::CarryUp(n) => self.carry(n, 0),
            Step::CarryDown(n) => self.carry(0, n),
            Step::Poll => self.poll(),
            Step::Leave => self.leave(),
            Step::Arrive(same) => self.arrive(same),
            Step::Freeze => self.freeze(),
            Step::Adopt(late) => self.adopt(late),
            Step::Tentative(late) => self.answer_tentatively(late),
            Step::Resumed => self.resumed(),
            Step::Say(up, n) => self.say(up, n),
            Step::Hear(less) => self.hear(less),
            Step::Write(which, n) => self.each(which, |run, id| run.write(id, n)),
            Step::Read(which, n) => self.each(which, |run, id| run.read(id, n)),
            Step::Finish(which) => self.each(which, Self::finish),
            Step::Reset(which) => self.each(which, |run, id| {
                run.spoiled.insert(id);
                let hop = &mut run.stations[run.at].pair.mobile;
                run.mobile.reset(hop, id, ResetReason::Aborted);
            }),
            Step::Relay(which, up, down) => self.each(which, |run, id| run.relay(id, up, down)),
            Step::End(which) => self.each(which, Self::end),
        }
    }

    fn each(&mut self, which: usize, mut what: impl FnMut(&mut Self, ConnId)) {
        if let Some(id) = self.nth(which) {
            what(self, id);
        }
    }

    /// The mobile stays somewhere, the state comes there, and everything comes to its end.
    fn drain(&mut self) {
        self.arrive(false);
        for _ in 0..3000 {
            self.carry(usize::MAX, usize::MAX);
            self.poll();
            self.freeze();
            self.adopt(false);
            self.resumed();
            while matches!(self.place, Holder::Station(at) if !self.stations[at].asked.is_empty()) {
                self.answer(true);
            }
            for id in self.apps.keys().copied().collect::<Vec<_>>() {
                self.relay(id, usize::MAX, 0);
                self.end(id);
                self.read(id, usize::MAX);
                self.finish(id);
            }
            if self.apps.values().all(|app| app.closed) && self.is_idle() {
                return;
            }
        }
        panic!("something never closes: {:?} {:?}", self.apps, self.stations[self.at]);
    }

    /// Whether only the channel stays, once what a mobile left in the middle of a message is given up.
    fn is_idle(&mut self) -> bool {
        let Station { session, pair, .. } = &mut self.stations[self.at];
        if pair.mobile.len() > 1 {
            return false;
        }
        self.now += Config::base().opening_timeout;
        session.handle_timeout(self.now, &mut pair.base);
        self.mobile.handle_timeout(self.now, &mut pair.mobile);
        session.connections() == 0 && self.mobile.next_timeout().is_none()
    }

    fn compare(&self) {
        for (id, app) in &self.apps {
            let host = self.hosts.get(id);
            if self.spoiled.contains(id) {
                continue;
            }
            let host = host.expect("it was asked of a fixed host");
            assert_eq!((host.read, app.read), (app.written, host.written), "{id}");
        }
        let Holder::Station(at) = self.place else { panic!("nobody has the session") };
        assert_eq!((self.mobile.connections(), self.stations[at].session.connections()), (0, 0));
        assert_eq!(self.mobile.next_timeout(), None);
        assert_eq!(self.stations[at].session.next_timeout(), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// MHP-18, MHP-19, MHP-23, ACK-1: wherever the mobile goes and whenever its state follows, every byte
    /// arrives once and in order, nothing but what was given up is lost, and no base takes for had what the mobile has not.
    #[test]
    fn bytes_are_exact_whenever_mobile_and_state_come(
        buffer in prop_oneof![2usize..60, 200usize..2000],
        piece in prop_oneof![1usize..5, Just(usize::MAX)],
        unacknowledged in prop_oneof![Just(0usize), 1usize..500],
        streams in prop_oneof![3usize..6, Just(usize::MAX)],
        blind in prop_oneof![Just(0u64), 1u64..300, Just(10_000)],
        presumed in prop::option::of(-200i64..100),
        steps in prop::collection::vec(step(), 0..250),
    ) {
        let mut run = Run::new(Limits { buffer, piece, unacknowledged, streams, presumed }, blind);
        steps.iter().for_each(|step| run.step(step));
        run.drain();
        run.compare();
    }
}
