//! A mobile that asks a base, gets no answer, and asks another: whatever its applications do between,
//! nothing is lost.

use lasthop_wire::mhp::handoff::ConnectionState;

use super::*;

const NAME: SessionId = SessionId(3);

/// A mobile and the base where its session stands, that the mobile has named to others.
struct Trip {
    world: Sessions,
    state: Option<SessionState>,
}

impl Trip {
    /// Two connections that stand, with bytes under way both ways.
    fn new() -> (Self, ConnId, ConnId) {
        let mut world = Sessions::with(Limits { unacknowledged: 4, ..Limits::default() });
        let ids = (world.opened(), world.opened());
        for id in [ids.0, ids.1] {
            assert_eq!((world.up(id, b"0123"), world.down(id, b"abcd")), (4, 4));
        }
        (Self { world, state: None }, ids.0, ids.1)
    }

    fn leave(&mut self) {
        let Sessions { pair, mobile, base, now, .. } = &mut self.world;
        mobile.suspend(*now, &mut pair.mobile);
        if self.state.is_none() {
            self.state = Some(base.freeze(*now, &mut pair.base, NAME));
        }
    }

    fn arrive(&mut self) {
        self.world.pair = Pair::new(Limits { unacknowledged: 4, ..Limits::default() });
        self.world.base = Session::base(Config::base());
        let Sessions { pair, mobile, now, .. } = &mut self.world;
        mobile.expect(Bytes::new(100));
        mobile.resume(*now, &mut pair.mobile, NAME);
    }

    /// What the mobile asked arrives; nothing comes back.
    fn ask_in_vain(&mut self) {
        self.arrive();
        self.world.settle();
        assert_eq!(self.world.base.poll_wanted(), Some(NAME));
        self.leave();
    }

    /// The base where the mobile is gets the state.
    fn adopt(&mut self) -> (Vec<Event>, Vec<Event>) {
        let state = self.state.take().expect("nobody has it");
        self.world.base.adopt(self.world.now, state);
        self.world.settle()
    }
}

/// MHP-23: asked in vain once, or as often as there are bases.
#[test]
fn a_resume_that_is_not_answered_costs_nothing() {
    for bases in 1..5 {
        let (mut trip, one, other) = Trip::new();
        trip.leave();
        for _ in 0..bases {
            trip.ask_in_vain();
            assert_eq!(trip.world.mobile_events(), []);
        }
        trip.arrive();
        trip.adopt();
        let world = &mut trip.world;
        for id in [one, other] {
            assert_eq!((world.up(id, b"45"), world.down(id, b"ef")), (2, 2));
        }
        world.settle();
        for id in [one, other] {
            assert_eq!(world.read_base(id), b"012345");
            assert_eq!(world.read_mobile(id), b"abcdef");
        }
    }
}

/// MHP-19: between two bases nothing can be written, and what was received can be read.
#[test]
fn bytes_are_read_and_none_are_written_between_two_bases() {
    let (mut trip, one, other) = Trip::new();
    trip.world.settle();
    assert_eq!(trip.world.up(one, b"45"), 2);
    trip.leave();
    assert_eq!(trip.world.up(one, b"no"), 0);
    assert_eq!(trip.world.read_mobile(one), b"abcd");
    trip.ask_in_vain();
    assert_eq!(trip.world.up(one, b"no"), 0);
    trip.arrive();
    assert_eq!(trip.world.up(one, b"67"), 2);
    assert_eq!(trip.world.read_mobile(other), b"abcd");
    trip.adopt();
    trip.world.settle();
    assert_eq!(trip.world.read_base(one), b"01234567");
    assert_eq!(trip.world.read_base(other), b"0123");
    assert_eq!(trip.world.down(one, b"ef"), 2);
    trip.world.settle();
    assert_eq!(trip.world.read_mobile(one), b"ef");
}

/// MHP-14: an end that was requested at any moment comes behind the last byte.
#[test]
fn a_direction_ended_between_two_bases_ends_where_it_should() {
    for moment in 0..4 {
        let (mut trip, one, other) = Trip::new();
        let finish = |trip: &mut Trip, at| {
            if at == moment {
                let Sessions { pair, mobile, .. } = &mut trip.world;
                mobile.finish(&mut pair.mobile, one);
            }
        };
        finish(&mut trip, 0);
        trip.leave();
        finish(&mut trip, 1);
        trip.ask_in_vain();
        finish(&mut trip, 2);
        trip.arrive();
        finish(&mut trip, 3);
        trip.adopt();
        let world = &mut trip.world;
        assert_eq!(
            (world.read_base(one), world.read_base(other)),
            (b"0123".to_vec(), b"0123".to_vec())
        );
        assert_eq!(world.base.recv_state(&world.pair.base, one), RecvState::Finished, "{moment}");
        assert_eq!(world.base.recv_state(&world.pair.base, other), RecvState::Open);
        world.down(one, b"!");
        world.base.finish(&mut world.pair.base, one);
        world.settle();
        assert_eq!(world.read_mobile(one), b"abcd!");
        world.settle();
        assert_eq!((world.mobile.connections(), world.base.connections()), (1, 1));
    }
}

/// MHP-19: a connection given up at any moment is over at the base that gets the state, and no other
/// one is.
#[test]
fn a_connection_given_up_between_two_bases_is_reset_at_the_last() {
    for moment in 0..3 {
        let (mut trip, one, other) = Trip::new();
        let reset = |trip: &mut Trip, at| {
            if at == moment {
                let Sessions { pair, mobile, .. } = &mut trip.world;
                mobile.reset(&mut pair.mobile, one, ResetReason::Aborted);
            }
        };
        trip.leave();
        reset(&mut trip, 0);
        trip.ask_in_vain();
        reset(&mut trip, 1);
        trip.arrive();
        reset(&mut trip, 2);
        let (_, base) = trip.adopt();
        let reset = Event::Reset { id: one, reason: ResetReason::Aborted };
        assert!(base.contains(&reset), "{moment}: {base:?}");
        assert_eq!(trip.world.read_base(other), b"0123");
        assert_eq!((trip.world.mobile.connections(), trip.world.base.connections()), (1, 1));
    }
}

/// MHP-2, MHP-23: a connection opened at any moment is made to the fixed host once, where the session
/// comes to stand.
#[test]
fn a_connection_opened_between_two_bases_is_opened_once() {
    let source = "10.1.0.1:5000".parse().ok();
    for (moment, opening) in (0..4).flat_map(|n| [(n, Opening::Faithful), (n, Opening::Early)]) {
        let (mut trip, one, _) = Trip::new();
        let mut opened = None;
        let mut connect = |trip: &mut Trip, at| {
            if at == moment {
                let Sessions { pair, mobile, now, .. } = &mut trip.world;
                let hop = &mut pair.mobile;
                let id = mobile.connect_from(*now, hop, &target(), opening, source).expect("room");
                opened = Some(id);
                trip.world.mobile_events();
            }
        };
        connect(&mut trip, 0);
        trip.leave();
        connect(&mut trip, 1);
        trip.ask_in_vain();
        connect(&mut trip, 2);
        trip.arrive();
        connect(&mut trip, 3);
        trip.world.settle();
        let (_, base) = trip.adopt();
        let id = opened.expect("one of the moments");
        let connect = Event::Connect { id, target: target(), source };
        assert_eq!(
            base.iter().filter(|e| **e == connect).count(),
            1,
            "{moment} {opening:?}: {base:?}"
        );
        trip.world.accept(id);
        trip.world.settle();
        assert_eq!((trip.world.up(id, b"hello"), trip.world.down(id, b"there")), (5, 5));
        trip.world.settle();
        assert_eq!(trip.world.read_base(id), b"hello");
        assert_eq!(trip.world.read_mobile(id), b"there");
        assert_eq!(trip.world.read_base(one), b"0123");
    }
}

/// MHP-18: the fixed host's view of who opens the connection travels along, too.
#[test]
fn an_opening_that_is_under_way_keeps_its_source() {
    let (mut world, connect, state) = opening();
    take_over(&mut world, state);
    assert_eq!(world.settle().1, [connect]);
}

/// SEC-8: where to a base connects, the mobile says to it, and not the base that gives the state.
#[test]
fn a_state_has_no_connections_made_that_the_mobile_does_not_ask_for() {
    let (mut world, connect, mut state) = opening();
    let elsewhere = Target::Addr("192.0.2.66:22".parse().expect("an address"));
    let genuine = &mut state.connections[0];
    let invented = ConnectionState { id: 100, target: elsewhere.clone(), ..genuine.clone() };
    genuine.target = elsewhere;
    state.connections.push(invented);
    take_over(&mut world, state);
    assert_eq!(world.base_events(), [], "nobody has asked");
    let told = world.settle().1;
    let connects = told.iter().filter(|event| matches!(event, Event::Connect { .. }));
    assert_eq!(connects.collect::<Vec<_>>(), [&connect], "{told:?}");
    let over = Event::Closed(ConnId(100));
    assert!(told.contains(&over), "the roll has nothing of it: {told:?}");
}

/// A mobile whose connection is being opened, the event of that, and the state of its base, which it has left.
fn opening() -> (Sessions, Event, SessionState) {
    let source = "10.1.0.1:5000".parse().ok();
    let mut world = Sessions::new();
    let Sessions { pair, mobile, now, .. } = &mut world;
    let hop = &mut pair.mobile;
    let id = mobile.connect_from(*now, hop, &target(), Opening::Early, source).expect("room");
    let connect = Event::Connect { id, target: target(), source };
    assert_eq!(world.settle().1, core::slice::from_ref(&connect));
    let Sessions { pair, mobile, base, now, .. } = &mut world;
    mobile.suspend(*now, &mut pair.mobile);
    let state = base.freeze(*now, &mut pair.base, NAME);
    (world, connect, SessionState::decode(&state.encode()).expect("as it was written"))
}

/// The mobile asks a base that has the state.
fn take_over(world: &mut Sessions, state: SessionState) {
    world.pair = Pair::new(Limits::default());
    world.base = Session::base(Config::base());
    world.base.adopt(world.now, state);
    world.mobile.resume(world.now, &mut world.pair.mobile, NAME);
}

/// The base answers with the very messages of the old hop's transport only: a Reopened that was
/// delivered but never read is not lost with the hop.
#[test]
fn an_answer_that_arrived_as_the_hop_was_left_counts() {
    let (mut trip, one, other) = Trip::new();
    trip.leave();
    trip.arrive();
    trip.world.pair.carry();
    trip.world.base_events();
    let state = trip.state.take().expect("frozen");
    trip.world.base.adopt(trip.world.now, state);
    trip.world.base_events();
    assert_eq!(trip.world.down(one, b"ef"), 2);
    trip.world.pair.carry_down(usize::MAX);
    // The mobile has not looked at any of it.
    trip.leave();
    trip.arrive();
    trip.adopt();
    for (id, expected) in [(one, &b"abcdef"[..]), (other, b"abcd")] {
        assert_eq!(trip.world.read_mobile(id), expected);
        assert_eq!(trip.world.read_base(id), b"0123");
    }
}

/// MHP-19: what little a connection has kept is on its way with Reopen, and the base takes it though its
/// own answer has not left yet.
#[test]
fn what_little_is_kept_does_not_wait_for_the_answer() {
    let (mut trip, one, other) = Trip::new();
    trip.leave();
    trip.arrive();
    trip.world.pair.carry_up(usize::MAX);
    trip.world.base_events();
    assert_eq!(trip.world.read_base(one), b"", "its session is not here yet");
    trip.world.base.adopt(trip.world.now, trip.state.take().expect("frozen"));
    trip.world.base_events();
    assert_eq!(trip.world.read_base(one), b"0123");
    assert_eq!(trip.world.read_base(other), b"0123");
    trip.world.settle();
    assert_eq!(trip.world.up(one, b"45"), 2);
    trip.world.settle();
    assert_eq!(trip.world.read_base(one), b"45");
}

/// MHP-19: neither does what the application writes behind it, whoever the base is that takes it first.
#[test]
fn what_is_written_next_follows_at_once() {
    let (mut trip, one, other) = Trip::new();
    trip.world.settle();
    trip.leave();
    for at in 0..3 {
        trip.arrive();
        assert_eq!(trip.world.up(one, &[b'4' + at]), 1);
        trip.world.pair.carry_up(usize::MAX);
        trip.world.base_events();
        if at < 2 {
            trip.leave();
        }
    }
    trip.world.base.adopt(trip.world.now, trip.state.take().expect("frozen"));
    trip.world.base_events();
    assert_eq!(trip.world.read_base(one), b"0123456");
    assert_eq!(trip.world.read_base(other), b"0123");
    let world = &mut trip.world;
    world.mobile.finish(&mut world.pair.mobile, one);
    assert!(world.up_result(one).is_err(), "nothing is written behind the end");
    world.settle();
    assert_eq!(world.base.recv_state(&world.pair.base, one), RecvState::Finished);
}

/// What is kept of that has a bound.
#[test]
fn what_is_written_before_the_answer_is_bounded() {
    let limits = Limits { buffer: 1 << 20, ..Limits::default() };
    let mut world = Sessions::with(limits);
    let id = world.opened();
    world.settle();
    let Sessions { pair, mobile, base, now, .. } = &mut world;
    mobile.suspend(*now, &mut pair.mobile);
    let state = base.freeze(*now, &mut pair.base, NAME);
    let mut trip = Trip { world, state: Some(state) };
    trip.world.pair = Pair::new(limits);
    trip.world.base = Session::base(Config::base());
    let Sessions { pair, mobile, now, .. } = &mut trip.world;
    mobile.resume(*now, &mut pair.mobile, NAME);
    let data = vec![7; 1 << 20];
    assert_eq!(trip.world.up(id, &data), 256 * 1024);
    assert_eq!(trip.world.up(id, &data), 0);
    trip.adopt();
    assert_eq!(trip.world.read_base(id), data[..256 * 1024]);
    assert!(trip.world.up(id, &data) > 0);
}

/// A connection with so much to resend that it waits, of which the old base has got `ARRIVED`.
struct Upload {
    trip: Trip,
    id: ConnId,
    /// The old hop, and the stream there.
    old: Pair,
    stream: StreamId,
    sent: Vec<u8>,
}

impl Upload {
    const LEN: usize = 50_000;
    const ARRIVED: usize = 20_000;

    fn new(presumed: Option<i64>) -> Self {
        let unacknowledged = 1 << 20;
        let limits = Limits { unacknowledged, buffer: 1 << 20, presumed, ..Limits::default() };
        let mut world = Sessions::with(limits);
        let id = world.opened();
        world.settle();
        let sent: Vec<u8> = (0..Self::LEN).map(|n| (n * 7 + n / 256) as u8).collect();
        assert_eq!(world.up(id, &sent), Self::LEN);
        world.pair.carry_up(Self::ARRIVED);
        assert_eq!(world.read_base(id), sent[..Self::ARRIVED]);
        let mut trip = Trip { world, state: None };
        trip.leave();
        let old = core::mem::replace(&mut trip.world.pair, Pair::new(limits));
        trip.world.base = Session::base(Config::base());
        let Sessions { pair, mobile, now, .. } = &mut trip.world;
        mobile.expect(Bytes::from_mib(1));
        mobile.resume(*now, &mut pair.mobile, NAME);
        let [(waits, stream)] = mobile.waiting()[..] else { panic!("{:?}", mobile.waiting()) };
        assert_eq!(waits, id);
        Self { trip, id, old, stream, sent }
    }

    /// The mobile is sent that the old base had got so many bytes more, or fewer, than it had.
    fn hear(&mut self, more: i64) {
        let arrived = self.old.mobile.arrived(self.stream).expect("it was detached");
        let Sessions { pair, mobile, now, .. } = &mut self.trip.world;
        let offset = arrived.checked_add_signed(more).expect("positive");
        mobile.handle_arrived(*now, &mut pair.mobile, self.id, offset);
        assert_eq!(mobile.waiting(), [], "it does not wait any more");
    }

    /// All that the base where the mobile is has got.
    fn read_all(&mut self) -> Vec<u8> {
        let mut got = Vec::new();
        for _ in 0..10 {
            got.extend(self.trip.world.read_base(self.id));
            self.trip.world.settle();
        }
        got.extend(self.trip.world.read_base(self.id));
        got
    }

    /// What comes up to the new base, to which nothing is answered, until it has the state, and then.
    fn ask(&mut self) -> Vec<u8> {
        let world = &mut self.trip.world;
        world.pair.carry_up(usize::MAX);
        world.base_events();
        world.base.adopt(world.now, self.trip.state.take().expect("frozen"));
        world.base_events();
        world.read_base(self.id)
    }
}

/// MHP-19: the old base's last word is enough to go on by, be it too little; what the new base has is
/// skipped there.
#[test]
fn an_upload_goes_on_with_what_the_old_base_had_got() {
    for more in [0, -1, -3000] {
        let mut upload = Upload::new(None);
        upload.hear(more);
        assert_eq!(upload.ask(), upload.sent[Upload::ARRIVED..], "{more}");
        let (id, world) = (upload.id, &mut upload.trip.world);
        world.settle();
        assert_eq!(world.up(id, b"more"), 4);
        world.mobile.finish(&mut world.pair.mobile, id);
        world.settle();
        assert_eq!(world.read_base(id), b"more");
        assert_eq!(world.base.recv_state(&world.pair.base, id), RecvState::Finished);
    }
}

/// MHP-19: without that word nothing is sent that the base may have; the answer is awaited.
#[test]
fn an_upload_of_which_nothing_is_known_waits_for_the_answer() {
    let mut upload = Upload::new(None);
    assert_eq!(upload.ask(), b"");
    assert_eq!(upload.read_all(), upload.sent[Upload::ARRIVED..]);
}

/// MHP-19: a hole is never papered over, whoever is wrong.
#[test]
fn bytes_from_beyond_what_the_base_has_are_refused() {
    let mut upload = Upload::new(None);
    upload.hear(1);
    assert_eq!(upload.ask(), b"");
    let (mobile, _) = upload.trip.world.settle();
    let reset = Event::Reset { id: upload.id, reason: ResetReason::Protocol };
    assert!(mobile.contains(&reset), "{mobile:?}");
}

/// MHP-23: what a base without the session has taken early is not lost with it.
#[test]
fn what_was_sent_early_in_vain_is_sent_again() {
    let mut upload = Upload::new(None);
    upload.hear(0);
    upload.trip.world.pair.carry_up(usize::MAX);
    upload.trip.world.base_events();
    upload.trip.leave();
    upload.trip.arrive();
    upload.trip.adopt();
    assert_eq!(upload.read_all(), upload.sent[Upload::ARRIVED..]);
}

/// MHP-19: a few bytes from where the old base presumably got to need not wait for any answer. A presumption
/// that is too low or too high costs them and no more.
#[test]
fn an_upload_goes_on_from_where_the_old_base_presumably_got_to() {
    let some = 16 * 1024;
    for (more, new) in [(0, some), (-1000, some - 1000), (-20_000, 0), (1, 0), (40_000, 0)] {
        let mut upload = Upload::new(Some(more));
        let mut got = upload.ask();
        assert_eq!(got.len(), new, "{more}");
        got.extend(upload.read_all());
        assert_eq!(got, upload.sent[Upload::ARRIVED..], "{more}");
        let world = &upload.trip.world;
        assert_eq!(world.base.stats().malformed + world.mobile.stats().malformed, 0);
    }
}

/// MHP-23: what a base has taken so goes on with the session, which the mobile need not know.
#[test]
fn presumed_bytes_go_on_with_the_session() {
    let mut upload = Upload::new(Some(0));
    upload.trip.world.pair.carry_up(usize::MAX);
    upload.trip.world.base_events();
    let state = upload.trip.state.take().expect("frozen");
    upload.trip.world.base.adopt(upload.trip.world.now, state);
    upload.trip.world.base_events();
    upload.trip.leave();
    let state = upload.trip.state.as_ref().expect("frozen again");
    assert_eq!(state.connections[0].up.bytes.len(), 16 * 1024);
    upload.trip.arrive();
    upload.trip.adopt();
    assert_eq!(upload.read_all(), upload.sent[Upload::ARRIVED..]);
}

/// A mobile whose base forgot its session begins another, whose handoffs are counted anew: a base that has it
/// may not take the first of them for earlier than the last of the session before.
#[test]
fn under_another_name_handoffs_are_counted_anew() {
    let (mut trip, _, _) = Trip::new();
    trip.leave();
    trip.world.mobile.set_handoff(20);
    trip.ask_in_vain();
    assert_eq!(trip.world.base.wanted_in(NAME), 20);
    let other = SessionId(4);
    trip.world.pair = Pair::new(Limits::default());
    trip.world.base = Session::base(Config::base());
    let Sessions { pair, mobile, now, .. } = &mut trip.world;
    mobile.set_handoff(1);
    mobile.resume(*now, &mut pair.mobile, other);
    trip.world.settle();
    assert_eq!(trip.world.base.poll_wanted(), Some(other));
    assert_eq!(trip.world.base.wanted_in(other), 1);
}
