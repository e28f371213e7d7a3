//! Connections that leave one mobile's session for another's.

use lasthop_wire::mhp::handoff::{ConnectionState, Direction, Stage};

use super::*;

const NAME: SessionId = SessionId(8);

/// A connection as it is after its bytes up to 4 went both ways, with some under way.
fn standing() -> (Sessions, ConnId) {
    let mut world = Sessions::with(Limits { unacknowledged: 3, ..Limits::default() });
    let id = world.opened();
    assert_eq!((world.up(id, b"0123456789"), world.down(id, b"abcdefgh")), (10, 8));
    world.pair.carry_up(4);
    world.pair.carry_down(6);
    world.base_events();
    world.mobile_events();
    world.mobile.consume(&mut world.pair.mobile, id, 2);
    (world, id)
}

impl Sessions {
    fn suspend(&mut self) {
        self.mobile.suspend(self.now, &mut self.pair.mobile);
    }

    /// Another mobile's session takes the connections up, and asks for them at the base, whose side
    /// goes to the new association.
    fn take_over(&mut self, connections: Vec<ConnectionState>) {
        let Self { pair, base, now, .. } = self;
        let state = base.freeze(*now, &mut pair.base, NAME);
        self.pair = Pair::new(Limits::default());
        self.base = Session::base(Config::base());
        self.mobile = Session::mobile(Config::mobile());
        for connection in connections {
            assert!(self.mobile.import(self.now, connection));
        }
        self.mobile.resume(self.now, &mut self.pair.mobile, NAME);
        self.settle();
        assert_eq!(self.base.poll_wanted(), Some(NAME));
        self.base.adopt(self.now, state);
        self.settle();
    }
}

/// MHP-19: the exported state begins and ends at exactly the bytes that the two sides have.
#[test]
fn offsets_are_those_of_the_connection() {
    let (mut world, id) = standing();
    assert_eq!(world.mobile.export(id), None, "it is on a hop");
    world.suspend();
    let state = world.mobile.export(id).expect("suspended");
    assert_eq!((state.id, state.stage), (id.0, Stage::Open));
    // Of four bytes that crossed three are not known to have.
    assert_eq!(state.up, Direction { start: 1, bytes: b"123456789".to_vec(), ended: false });
    assert_eq!(state.down, Direction { start: 2, bytes: b"cdef".to_vec(), ended: false });
    assert_eq!((world.mobile.connections(), world.mobile.next_timeout()), (0, None));
    assert_eq!(world.mobile.export(id), None);
    assert_eq!(world.mobile_events(), []);
}

/// MHP-19: nothing is lost and nothing doubled as another session goes on, whatever was under way.
#[test]
fn another_session_goes_on_at_the_very_byte() {
    let (mut world, id) = standing();
    world.suspend();
    let exported = world.mobile.export_all();
    world.take_over(exported);
    assert_eq!(world.read_base(id), b"0123456789");
    assert_eq!(world.read_mobile(id), b"cdefgh");
    assert_eq!((world.up(id, b"on"), world.down(id, b"on")), (2, 2));
    world.settle();
    assert_eq!((world.read_base(id), world.read_mobile(id)), (b"on".to_vec(), b"on".to_vec()));
    let next = world.connect(Opening::Faithful);
    assert!(next > id, "numbers go on, too");
}

/// MHP-14: ends travel along, whichever side has ended and however far that is known.
#[test]
fn half_closed_connections_go_on_half_closed() {
    for (up, down, carried) in
        [(true, false, 0), (true, false, 9), (false, true, 9), (true, true, 9)]
    {
        let (mut world, id) = standing();
        if up {
            world.mobile.finish(&mut world.pair.mobile, id);
        }
        if down {
            world.base.finish(&mut world.pair.base, id);
        }
        world.pair.carry_up(carried);
        world.pair.carry_down(carried);
        world.base_events();
        world.suspend();
        let exported = world.mobile.export_all();
        assert_eq!(exported[0].up.ended, up);
        world.take_over(exported);
        assert_eq!(world.read_base(id), b"0123456789");
        assert_eq!(world.read_mobile(id), b"cdefgh");
        let Sessions { pair, mobile, base, .. } = &mut world;
        // One that is over in both directions is removed as its last byte is read.
        if !(up && down) {
            assert_eq!(base.recv_state(&pair.base, id) == RecvState::Finished, up);
            assert_eq!(mobile.recv_state(&pair.mobile, id) == RecvState::Finished, down);
        }
        mobile.finish(&mut pair.mobile, id);
        base.finish(&mut pair.base, id);
        world.settle();
        assert_eq!((world.mobile.connections(), world.base.connections()), (0, 0), "{up} {down}");
    }
}

/// A connection that is over but for bytes that nobody has read needs no base any more.
#[test]
fn a_connection_that_is_over_is_read_to_its_end_elsewhere() {
    let (mut world, id) = standing();
    world.base.finish(&mut world.pair.base, id);
    world.mobile.finish(&mut world.pair.mobile, id);
    world.pair.carry();
    world.base_events();
    assert_eq!(world.read_base(id), b"0123456789");
    let state = {
        let Sessions { pair, base, now, .. } = &mut world;
        base.freeze(*now, &mut pair.base, NAME)
    };
    world.suspend();
    world.pair = Pair::new(Limits::default());
    world.base = Session::base(Config::base());
    world.base.adopt(world.now, state);
    world.mobile.resume(world.now, &mut world.pair.mobile, NAME);
    world.settle();
    world.suspend();
    let exported = world.mobile.export_all();
    assert_eq!(exported[0].stage, Stage::Over);
    assert_eq!(exported[0].down.bytes, b"cdefgh");

    world.mobile = Session::mobile(Config::mobile());
    world.told.0.clear();
    for connection in exported {
        assert!(world.mobile.import(world.now, connection));
    }
    assert_eq!(world.mobile_events(), [Event::Readable(id)]);
    assert_eq!(world.read_mobile(id), b"cdefgh");
    assert_eq!(world.mobile_events(), [Event::Closed(id)]);
    assert_eq!(world.mobile.connections(), 0);
}

/// A base may take long to pass on what a connection that is over has left: nothing limits that.
#[test]
fn what_is_left_of_a_connection_that_is_over_has_no_deadline() {
    let mut base = Session::base(Config::base());
    let mut pair = Pair::new(Limits::default());
    let direction = |bytes: &[u8]| Direction { start: 0, bytes: bytes.to_vec(), ended: true };
    let (id, stage, target) = (4, Stage::Over, target());
    let (up, down) = (direction(b"unread"), direction(b""));
    let over =
        ConnectionState { id, stage, target, bound: None, up, down, wired: vec![], source: None };
    base.adopt(Time::ZERO, SessionState::of(NAME, vec![over]));
    assert_eq!(base.next_timeout(), None);
    let later = Time::from_secs(3600);
    base.handle_timeout(later, &mut pair.base);
    let events: Vec<Event> =
        std::iter::from_fn(|| base.poll_event(later, &mut pair.base)).collect();
    assert_eq!(events, [Event::Readable(ConnId(id))]);
}

/// MHP-2: an opening without an answer is requested again, with all that it carried.
#[test]
fn an_opening_goes_on_elsewhere() {
    let source = "10.1.0.1:5000".parse().ok();
    for answered in [false, true] {
        let mut world = Sessions::new();
        let Sessions { pair, mobile, now, .. } = &mut world;
        let opening = Opening::Faithful;
        let hop = &mut pair.mobile;
        let id = mobile.connect_from(*now, hop, &target(), opening, source).expect("room");
        if answered {
            world.settle();
            world.accept(id);
        }
        world.suspend();
        let exported = world.mobile.export_all();
        assert_eq!(exported[0].stage, Stage::Connecting(opening));
        assert_eq!((&exported[0].target, exported[0].source), (&target(), source));
        world.take_over(exported);
        if !answered {
            let connect = Event::Connect { id, target: target(), source };
            assert!(world.told.1.contains(&connect), "{:?}", world.told.1);
            world.accept(id);
            world.settle();
        }
        assert!(world.told.0.contains(&Event::Opened { id, bound: Some(bound()) }));
        assert_eq!(world.up(id, b"hello"), 5);
    }
}

#[test]
fn only_a_session_without_a_hop_takes_connections_up() {
    let (mut world, id) = standing();
    world.suspend();
    let state = world.mobile.export(id).expect("suspended");
    let now = world.now;
    assert!(!world.base.import(now, state.clone()), "a base takes none up");
    assert!(world.mobile.import(now, state.clone()), "it may come back");
    assert!(!world.mobile.import(now, state.clone()), "but only once");

    let mut carrying = Sessions::new();
    carrying.opened();
    assert!(!carrying.mobile.import(now, ConnectionState { id: 70, ..state.clone() }));
    let mut small = Session::mobile(Config { kept_max: Bytes::new(12), ..Config::mobile() });
    assert!(!small.import(now, state.clone()), "thirteen bytes");
    let mut small = Session::mobile(Config { max_connections: 1, ..Config::mobile() });
    assert!(small.import(now, state.clone()));
    assert!(!small.import(now, ConnectionState { id: 70, ..state.clone() }));
    let refusing = Stage::Refusing(Refusal::Refused);
    let mut fresh = Session::mobile(Config::mobile());
    assert!(!fresh.import(now, ConnectionState { stage: refusing, ..state.clone() }));
    assert!(!fresh.import(now, ConnectionState { id: 1 << 63, ..state }));
}

/// What nobody took along ends at the base, even if nothing at all was.
#[test]
fn a_session_that_took_nothing_up_ends_what_the_base_has() {
    let (mut world, id) = standing();
    world.suspend();
    world.spoil(id);
    world.take_over(vec![]);
    let reset = Event::Reset { id, reason: ResetReason::Aborted };
    assert!(world.told.1.contains(&reset), "{:?}", world.told.1);
    assert_eq!(world.base.connections(), 0);
}

impl Sessions {
    /// Forgets a connection that was exported and never imported.
    fn spoil(&mut self, id: ConnId) {
        assert!(self.mobile.export(id).is_some());
    }
}
