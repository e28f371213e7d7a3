//! A mobile that asks for its connections before the base has them.

use lasthop_wire::mhp::handoff::Ended;

use super::*;

const NAME: SessionId = SessionId(0xabcd);

/// A mobile that left one base, of whose session `state` is what is left, and resumes at another.
fn early(limits: Limits, n: usize) -> (Sessions, SessionState, Vec<ConnId>) {
    let mut world = Sessions::with(Limits { unacknowledged: 3, ..limits });
    let ids: Vec<ConnId> = (0..n).map(|_| world.opened()).collect();
    for id in &ids {
        assert_eq!((world.up(*id, b"sent up"), world.down(*id, b"sent down")), (7, 9));
    }
    world.pair.carry_up(4);
    world.base_events();
    let state = world.leave(NAME);
    world.arrive(limits);
    (world, state, ids)
}

impl Sessions {
    /// The mobile leaves; what the base has of its session.
    fn leave(&mut self, name: SessionId) -> SessionState {
        let Self { pair, mobile, base, now, .. } = self;
        mobile.suspend(*now, &mut pair.mobile);
        base.freeze(*now, &mut pair.base, name)
    }

    /// The mobile resumes over an association with a base that knows nothing of it.
    fn arrive(&mut self, limits: Limits) {
        self.pair = Pair::new(limits);
        self.base = Session::base(Config::base());
        self.mobile.resume(self.now, &mut self.pair.mobile, NAME);
    }

    fn wanted(&mut self) -> Vec<SessionId> {
        self.settle();
        let Self { base, .. } = self;
        core::iter::from_fn(|| base.poll_wanted()).collect()
    }

    fn decline(&mut self, name: SessionId) {
        self.base.decline(self.now, &mut self.pair.base, name);
    }
}

/// MHP-18, MHP-19: what the mobile asks before the state is there is answered when it is, and the
/// streams go on at exactly the bytes that each side expects.
#[test]
fn connections_asked_for_early_wait_for_their_state() {
    for piece in [1, usize::MAX] {
        let (mut world, state, ids) = early(Limits { piece, ..Limits::default() }, 20);
        assert_eq!(world.wanted(), [NAME]);
        assert_eq!(world.wanted(), [], "said once");
        assert_eq!(
            (world.base.connections(), world.base.half_open()),
            (0, 21),
            "20 connections and a roll wait"
        );
        let told = world.told.1.len();
        world.base.adopt(world.now, state);
        world.settle();
        assert!(
            world.told.1[told..]
                .iter()
                .all(|e| matches!(e, Event::Readable(_) | Event::Writable(_)))
        );
        for id in &ids {
            assert_eq!(world.read_base(*id), b"sent up");
            assert_eq!(world.read_mobile(*id), b"sent down");
            assert_eq!((world.up(*id, b" and on"), world.down(*id, b" and on")), (7, 7));
        }
        world.settle();
        for id in &ids {
            assert_eq!(world.read_base(*id), b" and on");
            assert_eq!(world.read_mobile(*id), b" and on");
            world.mobile.finish(&mut world.pair.mobile, *id);
            world.base.finish(&mut world.pair.base, *id);
        }
        world.settle();
        assert_eq!((world.mobile.connections(), world.base.connections()), (0, 0));
        assert!(world.pair.mobile.is_empty() && world.pair.base.is_empty());
        assert_eq!(world.base.stats(), Stats::default());
    }
}

/// MHP-18: a hop may lose a single stream. Without the roll the base would keep connections that are over
/// for as long as it waits for any.
#[test]
fn a_roll_whose_stream_is_lost_is_called_again() {
    let (mut world, state, ids) = early(Limits::default(), 3);
    let gone = ids[1];
    world.mobile.reset(&mut world.pair.mobile, gone, ResetReason::Aborted);
    for lost in 0..4 {
        let roll = world.mobile.roll().expect("it is called");
        world.pair.mobile.lose(roll, ResetReason::AssociationLost.code());
        world.settle();
        assert_eq!(world.mobile.roll(), None, "not at once");
        let at = world.mobile.next_timeout().unwrap();
        assert!(at > world.now, "{lost}");
        world.now = at;
        world.mobile.handle_timeout(at, &mut world.pair.mobile);
    }
    world.base.adopt(world.now, state);
    let (_, base) = world.settle();
    assert!(base.contains(&Event::Reset { id: gone, reason: ResetReason::Aborted }), "{base:?}");
    assert_eq!((world.base.connections(), world.mobile.connections()), (2, 2));
    assert_eq!((world.mobile.roll(), world.mobile.next_timeout()), (None, None));
}

/// A hop of single connections can lose one while the base has yet to answer on it: the base, which has the
/// connection's state, hears that it is over.
#[test]
fn a_connection_whose_stream_is_lost_before_the_base_answers_is_over_there_too() {
    let (mut world, state, ids) = early(Limits::default(), 3);
    let lost = ids[1];
    let stream = world.mobile.table.stream(lost).expect("it was asked for");
    world.pair.mobile.lose(stream, ResetReason::AssociationLost.code());
    let (mobile, _) = world.settle();
    let over = Event::Reset { id: lost, reason: ResetReason::AssociationLost };
    assert!(mobile.contains(&over), "{mobile:?}");
    world.base.adopt(world.now, state);
    let (_, base) = world.settle();
    assert!(base.contains(&Event::Reset { id: lost, reason: ResetReason::Aborted }), "{base:?}");
    assert_eq!((world.base.connections(), world.mobile.connections()), (2, 2));
}

/// A base that refuses every roll is not asked for ever.
#[test]
fn a_roll_is_not_called_for_ever() {
    let (mut world, _, _) = early(Limits::default(), 1);
    let mut called = 0;
    while let Some(roll) = world.mobile.roll() {
        called += 1;
        world.pair.mobile.lose(roll, ResetReason::AssociationLost.code());
        world.settle();
        if let Some(at) = world.mobile.next_timeout() {
            world.now = at;
            world.mobile.handle_timeout(at, &mut world.pair.mobile);
        }
    }
    assert!((2..20).contains(&called), "{called}");
}

/// What comes behind a held message is not read as a message, and stays in order.
#[test]
fn what_follows_a_held_message_waits_behind_it() {
    let (mut world, state, ids) = early(Limits::default(), 300);
    assert_eq!(world.wanted(), [NAME]);
    // The roll takes three messages; the connection that ends meanwhile is called again.
    let gone = ids[299];
    world.mobile.reset(&mut world.pair.mobile, gone, ResetReason::Aborted);
    world.settle();
    world.base.adopt(world.now, state);
    let (_, base) = world.settle();
    let over = [Event::Reset { id: gone, reason: ResetReason::Aborted }, Event::Closed(gone)];
    let ends: Vec<Event> = base.into_iter().filter(|e| over.contains(e)).collect();
    assert_eq!(ends, over);
    assert_eq!((world.base.connections(), world.mobile.connections()), (299, 299));
    for id in &ids[..299] {
        assert_eq!(world.read_base(*id), b"sent up");
    }
}

/// MHP-18: what is opened at a base that has no state yet waits for it, so that it goes on with the
/// others wherever the state goes; at a base that has it, nothing waits.
#[test]
fn connections_opened_meanwhile_wait_with_those_that_come_along() {
    for (opening, declined) in [(Opening::Faithful, false), (Opening::Early, false)]
        .into_iter()
        .chain([(Opening::Faithful, true), (Opening::Early, true)])
    {
        let (mut world, state, ids) = early(Limits::default(), 2);
        let new = world.connect(opening);
        if opening == Opening::Early {
            world.mobile_events();
            assert_eq!(world.up(new, b"new"), 3);
        }
        assert_eq!(world.wanted(), [NAME]);
        assert_eq!(world.told.1.iter().filter(|e| e.id() == new).count(), 0);
        if declined {
            world.decline(NAME);
        } else {
            world.base.adopt(world.now, state);
        }
        let (_, base) = world.settle();
        assert!(base.contains(&Event::Connect { id: new, target: target(), source: None }));
        world.accept(new);
        world.settle();
        if opening == Opening::Early {
            assert_eq!(world.read_base(new), b"new");
        }
        assert_eq!((world.up(new, b"on"), world.down(new, b"on")), (2, 2));
        world.settle();
        assert_eq!(
            (world.read_base(new), world.read_mobile(new)),
            (b"on".to_vec(), b"on".to_vec())
        );
        let left = if declined { 1 } else { 3 };
        assert_eq!((world.base.connections(), world.mobile.connections()), (left, left));
        if !declined {
            assert_eq!(world.read_base(ids[1]), b"sent up");
        }
        let next = world.connect(Opening::Faithful);
        let (_, base) = world.settle();
        assert_eq!(base, [Event::Connect { id: next, target: target(), source: None }]);
    }
}

/// A session may stand already when the state comes: the base opens nothing while that is wanted, and
/// keeps what is there.
#[test]
fn a_state_comes_into_a_session_that_stands() {
    let (mut world, state, ids) = early(Limits::default(), 2);
    let stream = world.pair.mobile.open().expect("room");
    let mut bytes = vec![];
    // Of a mobile that does not say that it has resumed.
    Message::Open {
        opening: Opening::Early,
        target: target(),
        connection: Some(100),
        source: Some(bound()),
        resumed: None,
    }
    .encode(&mut bytes);
    world.pair.mobile.write(stream, &bytes).expect("room");
    let (_, base) = world.settle();
    let id = ConnId(100);
    assert_eq!(base, [Event::Connect { id, target: target(), source: Some(bound()) }]);
    world.accept(id);
    let offered = world.base.offer(world.now, &mut world.pair.base, bound(), bound());
    assert_eq!(offered, Err(StreamError::TooMany));
    world.base.adopt(world.now, state);
    world.settle();
    assert_eq!((world.base.connections(), world.mobile.connections()), (3, 2));
    assert_eq!(world.down(id, b"there"), 5);
    assert_eq!(world.read_base(ids[0]), b"sent up");
    assert!(world.base.offer(world.now, &mut world.pair.base, bound(), bound()).is_ok());
}

/// MHP-18: a base that gets no state asks anew what was never answered, and resets the rest.
#[test]
fn a_declined_session_is_unknown() {
    let mut world = Sessions::new();
    let open = world.opened();
    let faithful = world.connect(Opening::Faithful);
    let early = world.connect(Opening::Early);
    world.mobile_events();
    world.leave(NAME);
    world.arrive(Limits::default());
    assert_eq!(world.wanted(), [NAME]);
    world.decline(NAME);
    let (mobile, base) = world.settle();
    assert_eq!(base, [Event::Connect { id: faithful, target: target(), source: None }]);
    let reason = ResetReason::AssociationLost;
    for id in [open, early] {
        assert!(mobile.contains(&Event::Reset { id, reason }), "{id}: {mobile:?}");
    }
    world.accept(faithful);
    let (mobile, _) = world.settle();
    assert_eq!(mobile[0], Event::Opened { id: faithful, bound: Some(bound()) });
    assert_eq!((world.base.connections(), world.mobile.connections()), (1, 1));
    assert_eq!(world.wanted(), []);
}

/// A session of another name on the same association is nobody's business here.
#[test]
fn declining_one_session_leaves_another_alone() {
    let (mut world, state, ids) = early(Limits::default(), 1);
    world.base.adopt(world.now, state);
    world.settle();
    let stream = world.pair.mobile.open().expect("room");
    let roll = Roll { session: SessionId(5), connections: vec![], last: true, turn: 0 };
    let mut bytes = vec![];
    Message::Roll(roll).encode(&mut bytes);
    world.pair.mobile.write(stream, &bytes).expect("room");
    assert_eq!(world.wanted(), [SessionId(5)]);
    world.decline(SessionId(5));
    world.settle();
    assert_eq!((world.base.connections(), world.up(ids[0], b"on")), (1, 2));
    assert_eq!((world.pair.mobile.len(), world.pair.base.len()), (1, 1));
}

/// MHP-11: what is held has its time and its bound.
#[test]
fn held_streams_are_given_up_in_time() {
    let (mut world, _, ids) = early(Limits::default(), 3);
    assert_eq!(world.wanted(), [NAME]);
    world.now += Config::base().opening_timeout;
    let Sessions { pair, base, now, .. } = &mut world;
    base.handle_timeout(*now, &mut pair.base);
    assert_eq!(base.half_open(), 0);
    let (mobile, base) = world.settle();
    assert_eq!(base, []);
    for id in ids {
        assert!(mobile.contains(&Event::Reset { id, reason: ResetReason::TimedOut }));
    }
    world.decline(NAME);
    world.settle();
    assert_eq!((world.mobile.connections(), world.base.connections()), (0, 0));
    assert_eq!(world.base.next_timeout(), None);
}

#[test]
fn no_more_streams_are_held_than_connections_are_allowed() {
    let (mut world, _, _) = early(Limits::default(), 0);
    world.base = Session::base(Config { max_connections: 10, ..Config::base() });
    for n in 0..400 {
        let stream = world.pair.mobile.open().expect("room");
        let mut bytes = vec![];
        let (session, turn) = (SessionId(n % 20), 1);
        Message::Roll(Roll { session, connections: vec![], last: true, turn }).encode(&mut bytes);
        world.pair.mobile.write(stream, &bytes).expect("room");
    }
    assert_eq!(world.wanted().len(), 8, "so many sessions");
    assert_eq!(world.base.half_open(), 74, "ten and some rolls");
}

/// All connections of a mobile come at once: what is held does not count as half open.
#[test]
fn more_streams_are_held_than_may_be_half_open() {
    let (mut world, state, ids) = early(Limits::default(), 60);
    world.base = Session::base(Config { max_half_open: 5, ..Config::base() });
    assert_eq!(world.wanted(), [NAME]);
    world.base.adopt(world.now, state);
    let (mobile, _) = world.settle();
    assert!(!mobile.iter().any(|e| matches!(e, Event::Reset { .. })), "{mobile:?}");
    assert_eq!((world.base.connections(), world.base.stats().turned_away), (60, 0));
    assert_eq!(world.read_base(ids[59]), b"sent up");
}

/// MHP-23: the mobile gave the base up and came back over the association that stands, before the base
/// knew of it: the connections leave the old streams and go on over the new ones.
#[test]
fn a_mobile_that_comes_back_over_the_same_association_goes_on() {
    for adopted in [false, true] {
        let (mut world, state, ids) = early(Limits::default(), 4);
        if adopted {
            world.base.adopt(world.now, state);
            world.settle();
            assert_eq!((world.up(ids[0], b", more"), world.down(ids[0], b", more")), (6, 6));
            world.pair.carry_up(2);
            world.base_events();
            world.mobile.suspend(world.now, &mut world.pair.mobile);
            let gone = ids[3];
            world.mobile.reset(&mut world.pair.mobile, gone, ResetReason::Aborted);
            world.mobile.resume(world.now, &mut world.pair.mobile, NAME);
            let new = world.connect(Opening::Early);
            assert_eq!(world.up(new, b"new"), 3);
            assert_eq!(world.wanted(), [NAME]);
            // The base is notified, and takes its own state up again.
            let Sessions { pair, base, now, .. } = &mut world;
            let state = base.freeze(*now, &mut pair.base, NAME);
            assert_eq!(state.connections.len(), 4, "what is new stays where it is");
            base.adopt(*now, state);
            let (_, told) = world.settle();
            let reset = Event::Reset { id: gone, reason: ResetReason::Aborted };
            assert!(told.contains(&reset), "{told:?}");
            world.accept(new);
            world.settle();
            assert_eq!(world.read_base(new), b"new");
            assert_eq!(world.read_base(ids[0]), b"sent up, more");
            assert_eq!(world.read_mobile(ids[0]), b"sent down, more");
            assert_eq!((world.base.connections(), world.mobile.connections()), (4, 4));
        } else {
            world.settle();
            world.mobile.suspend(world.now, &mut world.pair.mobile);
            world.mobile.resume(world.now, &mut world.pair.mobile, NAME);
            assert_eq!(world.wanted(), [NAME]);
            world.base.adopt(world.now, state);
            world.settle();
            assert_eq!(world.read_mobile(ids[0]), b"sent down");
            assert_eq!(world.base.connections(), 4);
        }
        for id in &ids[1..3] {
            assert_eq!(world.read_base(*id), b"sent up");
            assert_eq!((world.up(*id, b"!"), world.down(*id, b"!")), (1, 1));
        }
        world.settle();
        assert_eq!(
            (world.read_base(ids[1]), world.read_base(ids[2])),
            (b"!".to_vec(), b"!".to_vec())
        );
        assert!(world.base.stats().malformed == 0);
    }
}

/// A base that cannot take its own session up again gives up what stands on streams that nobody reads.
#[test]
fn declining_a_session_that_is_here_ends_it() {
    let (mut world, state, ids) = early(Limits::default(), 2);
    world.base.adopt(world.now, state);
    world.settle();
    world.mobile.suspend(world.now, &mut world.pair.mobile);
    world.mobile.resume(world.now, &mut world.pair.mobile, NAME);
    assert_eq!(world.wanted(), [NAME]);
    world.decline(NAME);
    let (mobile, base) = world.settle();
    let reason = ResetReason::AssociationLost;
    for id in ids {
        assert!(
            mobile.contains(&Event::Reset { id, reason })
                && base.contains(&Event::Reset { id, reason })
        );
    }
    assert_eq!((world.mobile.connections(), world.base.connections()), (0, 0));
}

/// A peer that is too old to say how often it has resumed is served as ever.
#[test]
fn a_peer_that_does_not_count_its_resumes_is_served() {
    let (mut world, state, ids) = early(Limits::default(), 1);
    world.base.adopt(world.now, state);
    world.pair = Pair::new(Limits::default());
    let stream = world.pair.mobile.open().expect("room");
    let reopen = Reopen {
        session: NAME,
        connection: ids[0].0,
        expected: 0,
        kept: 0,
        ended: false,
        retains: false,
        asking: None,
        turn: 0,
    };
    let mut bytes = vec![];
    Message::Reopen(reopen).encode(&mut bytes);
    let older = bytes.len() - 4;
    bytes.truncate(older);
    bytes[3] -= 4;
    world.pair.mobile.write(stream, &bytes).expect("room");
    world.pair.carry();
    world.base_events();
    assert_eq!(world.base.stream(ids[0]), Some(stream));
}

/// An early opening that was answered at another base meanwhile is not asked of a second fixed host.
#[test]
fn an_opening_that_the_state_knows_is_not_asked_again() {
    let (mut world, mut state, _) = early(Limits::default(), 1);
    let new = world.connect(Opening::Early);
    world.mobile_events();
    assert_eq!(world.up(new, b"once"), 4);
    assert_eq!(world.wanted(), [NAME]);
    state.ended.push(Ended { id: new.0, reset: Some(1) });
    world.base.adopt(world.now, state);
    let (mobile, base) = world.settle();
    assert!(base.iter().all(|e| e.id() != new), "{base:?}");
    let reason = ResetReason::AssociationLost;
    assert!(mobile.contains(&Event::Reset { id: new, reason }), "{mobile:?}");
}

/// MHP-23: a base that was sent the session's name, and that the mobile leaves and comes back to
/// before anybody else has asked for the session, has its connections where they began.
#[test]
fn a_mobile_that_comes_back_before_its_base_gave_anything_away_goes_on() {
    let mut world = Sessions::with(Limits { unacknowledged: 3, ..Limits::default() });
    let id = world.opened();
    world.decline(NAME);
    assert_eq!((world.up(id, b"sent up"), world.down(id, b"sent down")), (7, 9));
    let Sessions { pair, mobile, now, .. } = &mut world;
    mobile.suspend(*now, &mut pair.mobile);
    mobile.resume(*now, &mut pair.mobile, NAME);
    assert_eq!(world.wanted(), [NAME]);
    let Sessions { pair, base, now, .. } = &mut world;
    let state = base.freeze(*now, &mut pair.base, NAME);
    base.adopt(*now, state);
    world.settle();
    assert_eq!(world.read_base(id), b"sent up");
    assert_eq!(world.read_mobile(id), b"sent down");
    assert_eq!((world.base.connections(), world.mobile.connections()), (1, 1));
}
