use alloc::vec;
use alloc::vec::Vec;

use lasthop_wire::mhp::handoff::{Reopen, Roll, SessionState};

use super::*;
use crate::memory::{Limits, Pair};

mod anchor;
mod before_commit;
mod chain;
mod channel;
mod early;
mod holds;
mod mobile_tcp;
mod moves;
mod offers;
mod port;
mod schedules;

const BOUND: &str = "10.0.0.1:4000";

/// A mobile's and a base's session on a transport in memory.
struct Sessions {
    pair: Pair,
    mobile: Session,
    base: Session,
    now: Time,
    /// All events of each side.
    told: (Vec<Event>, Vec<Event>),
}

impl Sessions {
    fn new() -> Self {
        Self::with(Limits::default())
    }

    fn with(limits: Limits) -> Self {
        Self::of(limits, Config::mobile(), Config::base())
    }

    fn of(limits: Limits, mobile: Config, base: Config) -> Self {
        Self {
            pair: Pair::new(limits),
            mobile: Session::mobile(mobile),
            base: Session::base(base),
            now: Time::ZERO,
            told: (vec![], vec![]),
        }
    }

    fn connect(&mut self, opening: Opening) -> ConnId {
        self.mobile.connect(self.now, &mut self.pair.mobile, &target(), opening).expect("room")
    }

    fn mobile_events(&mut self) -> Vec<Event> {
        let Self { pair, mobile, now, .. } = self;
        let events: Vec<Event> =
            core::iter::from_fn(|| mobile.poll_event(*now, &mut pair.mobile)).collect();
        self.told.0.extend_from_slice(&events);
        events
    }

    fn base_events(&mut self) -> Vec<Event> {
        let Self { pair, base, now, .. } = self;
        let events: Vec<Event> =
            core::iter::from_fn(|| base.poll_event(*now, &mut pair.base)).collect();
        self.told.1.extend_from_slice(&events);
        events
    }

    /// Carries until nothing moves; the events of each side.
    fn settle(&mut self) -> (Vec<Event>, Vec<Event>) {
        let (mut mobile, mut base) = (vec![], vec![]);
        loop {
            let moved = self.pair.carry();
            let (m, b) = (self.mobile_events(), self.base_events());
            if !moved && m.is_empty() && b.is_empty() {
                return (mobile, base);
            }
            mobile.extend(m);
            base.extend(b);
        }
    }

    fn accept(&mut self, id: ConnId) {
        self.base.accept(&mut self.pair.base, id, bound());
    }

    /// A connection that stands, with all events taken.
    fn opened(&mut self) -> ConnId {
        let id = self.connect(Opening::Faithful);
        self.settle();
        self.accept(id);
        self.settle();
        id
    }

    fn up(&mut self, id: ConnId, data: &[u8]) -> usize {
        self.mobile.write(&mut self.pair.mobile, id, data).expect("writable")
    }

    fn down(&mut self, id: ConnId, data: &[u8]) -> usize {
        self.base.write(&mut self.pair.base, id, data).expect("writable")
    }

    fn read_base(&mut self, id: ConnId) -> Vec<u8> {
        read_all(&mut self.base, &mut self.pair.base, id)
    }

    fn read_mobile(&mut self, id: ConnId) -> Vec<u8> {
        read_all(&mut self.mobile, &mut self.pair.mobile, id)
    }

    /// No state anywhere, and each connection that was reported was closed once, at last.
    fn assert_nothing_left(&mut self) {
        self.settle();
        for told in [&self.told.0, &self.told.1] {
            for (at, event) in told.iter().enumerate() {
                let closed = Event::Closed(event.id());
                let ends = |e: &&Event| **e == closed;
                assert_eq!(told.iter().filter(ends).count(), 1, "{event:?}");
                assert!(told[at..].contains(&closed), "{event:?} after Closed");
            }
        }
        assert_eq!((self.mobile.connections(), self.base.connections()), (0, 0));
        assert_eq!((self.mobile.half_open(), self.base.half_open()), (0, 0));
        assert_eq!((self.mobile.next_timeout(), self.base.next_timeout()), (None, None));
        assert!(self.pair.mobile.is_empty() && self.pair.base.is_empty());
    }
}

fn read_all(session: &mut Session, hop: &mut impl Streams, id: ConnId) -> Vec<u8> {
    let mut out = vec![];
    loop {
        let piece = session.received(hop, id);
        if piece.is_empty() {
            return out;
        }
        out.extend_from_slice(piece);
        let n = piece.len();
        session.consume(hop, id, n);
    }
}

fn target() -> Target {
    Target::from_host("server.example", 443).expect("a good name")
}

fn bound() -> SocketAddr {
    BOUND.parse().expect("an address")
}

/// MHP-2, MHP-5: the opening names the destination, and succeeds when the base says so, not before.
#[test]
fn a_faithful_opening_succeeds_when_the_base_says_so() {
    let mut world = Sessions::new();
    let id = world.connect(Opening::Faithful);
    let (mobile, base) = world.settle();
    assert_eq!(base, [Event::Connect { id, target: target(), source: None }]);
    assert_eq!(mobile, []);
    assert_eq!(world.up(id, b"too soon"), 0);

    world.accept(id);
    let (mobile, _) = world.settle();
    assert_eq!(mobile, [Event::Opened { id, bound: Some(bound()) }]);
    assert_eq!(world.up(id, b"hello"), 5);
    world.settle();
    assert_eq!(world.read_base(id), b"hello");
}

/// MHP-5: the mobile is sent the very error of the fixed host or the resolver.
#[test]
fn a_faithful_opening_fails_with_what_the_base_said() {
    for refusal in Refusal::NAMED.into_iter().chain([Refusal::Other(99)]) {
        let mut world = Sessions::new();
        let id = world.connect(Opening::Faithful);
        world.settle();
        world.base.refuse(&mut world.pair.base, id, refusal);
        let (mobile, base) = world.settle();
        assert_eq!(mobile, [Event::Failed { id, refusal }, Event::Closed(id)]);
        assert_eq!(base, [Event::Closed(id)]);
        world.assert_nothing_left();
    }
}

#[test]
fn an_early_opening_is_told_at_once_and_its_bytes_travel_with_it() {
    let mut world = Sessions::new();
    let id = world.connect(Opening::Early);
    assert_eq!(world.mobile_events(), [Event::Opened { id, bound: None }]);
    assert_eq!(world.up(id, b"GET /"), 5);
    world.pair.carry_up(usize::MAX);
    let connect = Event::Connect { id, target: target(), source: None };
    assert_eq!(world.base_events(), [connect]);
    assert_eq!(world.base.received(&world.pair.base, id), b"");

    world.accept(id);
    assert_eq!(world.base_events(), [Event::Readable(id)]);
    assert_eq!(world.read_base(id), b"GET /");
    assert_eq!(world.down(id, b"200"), 3);
    let (mobile, _) = world.settle();
    assert_eq!(mobile, [Event::Readable(id)]);
    assert_eq!(world.read_mobile(id), b"200");
}

#[test]
fn a_refused_early_opening_is_a_reset_with_the_refusal_as_its_reason() {
    for refusal in Refusal::NAMED.into_iter().chain([Refusal::Other(99)]) {
        let mut world = Sessions::new();
        let id = world.connect(Opening::Early);
        world.up(id, b"GET /");
        world.settle();
        world.base.refuse(&mut world.pair.base, id, refusal);
        let (mobile, base) = world.settle();
        let reason = ResetReason::Refused(refusal);
        assert_eq!(mobile, [Event::Reset { id, reason }, Event::Closed(id)]);
        assert_eq!(base, [Event::Closed(id)]);
        world.assert_nothing_left();
    }
}

/// MHP-14: an end is passed on after its data, and the other direction goes on.
#[test]
fn either_direction_may_end_first() {
    for mobile_first in [true, false] {
        let mut world = Sessions::new();
        let id = world.opened();
        assert_eq!((world.up(id, b"up"), world.down(id, b"down")), (2, 4));
        if mobile_first {
            world.mobile.finish(&mut world.pair.mobile, id);
            world.settle();
            assert_eq!(world.base.recv_state(&world.pair.base, id), RecvState::Open);
            assert_eq!(world.read_base(id), b"up");
            assert_eq!(world.base.recv_state(&world.pair.base, id), RecvState::Finished);
            assert_eq!(world.down(id, b" and more"), 9);
            world.base.finish(&mut world.pair.base, id);
            world.settle();
            assert_eq!(world.read_mobile(id), b"down and more");
        } else {
            world.base.finish(&mut world.pair.base, id);
            world.settle();
            assert_eq!(world.read_mobile(id), b"down");
            assert_eq!(world.mobile.recv_state(&world.pair.mobile, id), RecvState::Finished);
            assert_eq!(world.up(id, b" and more"), 9);
            world.mobile.finish(&mut world.pair.mobile, id);
            world.settle();
            assert_eq!(world.read_base(id), b"up and more");
        }
        world.assert_nothing_left();
        assert_eq!(world.up_result(id), Err(StreamError::Unknown));
    }
}

impl Sessions {
    fn up_result(&mut self, id: ConnId) -> Result<usize, StreamError> {
        self.mobile.write(&mut self.pair.mobile, id, b"x")
    }
}

/// MHP-14: a client that ends its direction right behind its request is still answered.
#[test]
fn an_early_opening_may_end_before_it_is_accepted() {
    let mut world = Sessions::new();
    let id = world.connect(Opening::Early);
    world.up(id, b"request");
    world.mobile.finish(&mut world.pair.mobile, id);
    assert_eq!(world.up_result(id), Err(StreamError::Finished));
    world.settle();
    world.accept(id);
    let (_, base) = world.settle();
    assert_eq!(base, [Event::Readable(id)]);
    assert_eq!(world.read_base(id), b"request");
    assert_eq!(world.base.recv_state(&world.pair.base, id), RecvState::Finished);
    world.down(id, b"answer");
    world.base.finish(&mut world.pair.base, id);
    world.settle();
    assert_eq!(world.read_mobile(id), b"answer");
    world.assert_nothing_left();
}

#[test]
fn an_end_asked_for_while_the_answer_is_awaited_follows_the_message() {
    for buffer in [8, 1000] {
        let mut world = Sessions::with(Limits { buffer, ..Limits::default() });
        let id = world.connect(Opening::Faithful);
        world.mobile.finish(&mut world.pair.mobile, id);
        let (_, base) = world.settle();
        assert_eq!(base, [Event::Connect { id, target: target(), source: None }]);
        world.base.finish(&mut world.pair.base, id);
        world.accept(id);
        let (mobile, base) = world.settle();
        assert_eq!(mobile[0], Event::Opened { id, bound: Some(bound()) });
        let quiet = |e: &Event| matches!(e, Event::Readable(_) | Event::Closed(_));
        assert!(base.iter().all(quiet), "{base:?}");
        world.assert_nothing_left();
    }
}

#[test]
fn an_answer_that_came_before_the_question_was_out_is_read_after_it() {
    let mut world = Sessions::with(Limits { buffer: 8, ..Limits::default() });
    let id = world.connect(Opening::Faithful);
    world.pair.carry();
    let mut refused = vec![];
    Message::Refused(Refusal::NotAllowed).encode(&mut refused);
    assert_eq!(world.pair.base.write(id.stream(), &refused), Ok(refused.len()));
    world.pair.carry();
    assert_eq!(world.mobile_events(), []);
    let mut failed = vec![];
    for _ in 0..10 {
        let n = world.pair.base.received(id.stream()).len();
        world.pair.base.consume(id.stream(), n);
        world.pair.carry();
        failed.extend(world.mobile_events());
    }
    let refusal = Refusal::NotAllowed;
    assert_eq!(failed, [Event::Failed { id, refusal }, Event::Closed(id)]);
}

#[test]
fn what_a_refused_mobile_goes_on_to_send_is_dropped_and_holds_nothing_up() {
    let mut world = Sessions::with(Limits { buffer: 64, ..Limits::default() });
    let stream = world.pair.mobile.open().expect("room");
    let mut open = vec![];
    Message::Open {
        opening: Opening::Faithful,
        target: target(),
        connection: None,
        source: None,
        resumed: None,
    }
    .encode(&mut open);
    assert_eq!(world.pair.mobile.write(stream, &open), Ok(open.len()));
    world.settle();
    world.base.refuse(&mut world.pair.base, ConnId(stream.0), Refusal::Refused);
    let mut sent = 0;
    for _ in 0..20 {
        sent += world.pair.mobile.write(stream, &[0; 50]).expect("writable");
        world.pair.carry();
        world.base_events();
    }
    assert_eq!(sent, 1000);
    world.pair.mobile.finish(stream);
    world.settle();
    assert_eq!(world.base.connections(), 0);
}

#[test]
fn a_reset_reaches_the_other_side_with_its_reason() {
    let reasons = [
        ResetReason::Aborted,
        ResetReason::Policy,
        ResetReason::TimedOut,
        ResetReason::Shutdown,
        ResetReason::Unknown(77),
    ];
    for reason in reasons {
        for from_mobile in [true, false] {
            let mut world = Sessions::new();
            let id = world.opened();
            world.up(id, b"lost");
            let told = vec![Event::Reset { id, reason }, Event::Closed(id)];
            let closed = vec![Event::Closed(id)];
            if from_mobile {
                world.mobile.reset(&mut world.pair.mobile, id, reason);
                assert_eq!(world.settle(), (closed, told));
            } else {
                world.base.reset(&mut world.pair.base, id, reason);
                assert_eq!(world.settle(), (told, closed));
            }
            world.assert_nothing_left();
        }
    }
}

#[test]
fn a_mobile_may_give_up_while_it_waits() {
    let mut world = Sessions::new();
    let id = world.connect(Opening::Faithful);
    world.settle();
    world.mobile.reset(&mut world.pair.mobile, id, ResetReason::Aborted);
    let (mobile, base) = world.settle();
    assert_eq!(mobile, [Event::Closed(id)]);
    assert_eq!(base, [Event::Reset { id, reason: ResetReason::Aborted }, Event::Closed(id)]);
    world.accept(id);
    world.base.refuse(&mut world.pair.base, id, Refusal::Refused);
    world.assert_nothing_left();
}

#[test]
fn a_mobile_that_gives_up_before_its_opening_left_disturbs_nobody() {
    let mut world = Sessions::new();
    let id = world.connect(Opening::Faithful);
    world.mobile.reset(&mut world.pair.mobile, id, ResetReason::Aborted);
    assert_eq!(world.settle(), (vec![Event::Closed(id)], vec![]));
    world.assert_nothing_left();
}

/// MHP-5: a fixed host that accepts and resets at once is reported as that.
#[test]
fn a_reset_instead_of_an_answer_fails_the_opening() {
    let mut world = Sessions::new();
    let id = world.connect(Opening::Faithful);
    world.settle();
    world.base.reset(&mut world.pair.base, id, ResetReason::Aborted);
    let (mobile, _) = world.settle();
    let refusal = Refusal::ConnectionReset;
    assert_eq!(mobile, [Event::Failed { id, refusal }, Event::Closed(id)]);
    world.assert_nothing_left();
}

/// MHP-11: a reader that does not read stops the writer at the transport's buffers.
#[test]
fn a_slow_reader_stops_the_writer_and_loses_nothing() {
    let mut world = Sessions::with(Limits { buffer: 1000, ..Limits::default() });
    let id = world.opened();
    let data: Vec<u8> = (0..10_000u32).map(|i| (i % 251) as u8).collect();
    let mut written = 0;
    for _ in 0..20 {
        written += world.up(id, &data[written..]);
        world.settle();
    }
    assert_eq!(written, 2000);
    let mut read = vec![];
    while read.len() < data.len() {
        let piece = world.read_base(id);
        assert!(!piece.is_empty(), "stuck at {}", read.len());
        read.extend(piece);
        let (mobile, _) = world.settle();
        assert!(mobile.contains(&Event::Writable(id)) || written == data.len());
        written += world.up(id, &data[written..]);
        world.settle();
    }
    assert_eq!(read, data);
}

/// MHP-8..MHP-10: bytes are a stream, whatever pieces the transport makes of them, both ways.
#[test]
fn messages_and_bytes_survive_a_transport_that_gives_one_byte_at_a_time() {
    for opening in [Opening::Faithful, Opening::Early] {
        let mut world = Sessions::with(Limits { buffer: 3, piece: 1, ..Limits::default() });
        let id = world.connect(opening);
        let (_, base) = world.settle();
        assert_eq!(base, [Event::Connect { id, target: target(), source: None }]);
        world.accept(id);
        world.settle();
        let (mut up, mut down) = (vec![], vec![]);
        for byte in 0..50 {
            assert_eq!((world.up(id, &[byte]), world.down(id, &[byte + 100])), (1, 1));
            world.settle();
            up.extend(world.read_base(id));
            down.extend(world.read_mobile(id));
        }
        assert_eq!(up, (0..50).collect::<Vec<_>>());
        assert_eq!(down, (100..150).collect::<Vec<_>>());
    }
}

#[test]
fn a_refusal_survives_a_transport_that_takes_one_byte_at_a_time() {
    let mut world = Sessions::with(Limits { buffer: 1, piece: 1, ..Limits::default() });
    let id = world.connect(Opening::Faithful);
    world.settle();
    world.base.refuse(&mut world.pair.base, id, Refusal::NameNotFound);
    let (mobile, _) = world.settle();
    assert_eq!(mobile, [Event::Failed { id, refusal: Refusal::NameNotFound }, Event::Closed(id)]);
    world.assert_nothing_left();
}

/// MHP-1: many applications' connections share one association.
#[test]
fn a_thousand_connections_share_an_association() {
    let mut world = Sessions::with(Limits { buffer: 256, ..Limits::default() });
    let ids: Vec<ConnId> = (0..1000).map(|_| world.connect(Opening::Faithful)).collect();
    let (_, base) = world.settle();
    assert_eq!(base.len(), 1000);
    assert_eq!(world.base.half_open(), 1000);
    ids.iter().for_each(|id| world.accept(*id));
    let (mobile, _) = world.settle();
    assert_eq!(mobile.len(), 1000);
    assert_eq!((world.base.half_open(), world.base.stats().opened), (0, 1000));
    for id in &ids {
        world.up(*id, &id.0.to_be_bytes());
        world.mobile.finish(&mut world.pair.mobile, *id);
    }
    world.settle();
    for id in &ids {
        assert_eq!(world.read_base(*id), id.0.to_be_bytes());
        world.base.finish(&mut world.pair.base, *id);
    }
    let (mobile, _) = world.settle();
    assert_eq!(mobile.iter().filter(|e| matches!(e, Event::Closed(_))).count(), 1000);
    world.assert_nothing_left();
}

/// MHP-11: one connection more than allowed is refused with a clear word, and costs nobody else.
#[test]
fn connections_beyond_the_bounds_are_refused() {
    let half_open = Config { max_half_open: 2, ..Config::base() };
    let in_all = Config { max_connections: 2, ..Config::base() };
    for config in [half_open, in_all] {
        let mut world = Sessions::of(Limits::default(), Config::mobile(), config);
        let ids: Vec<ConnId> = (0..3).map(|_| world.connect(Opening::Faithful)).collect();
        let early = world.connect(Opening::Early);
        let (mobile, base) = world.settle();
        assert_eq!(base.len(), 2);
        let failed = Event::Failed { id: ids[2], refusal: Refusal::TooMany };
        let reason = ResetReason::Refused(Refusal::TooMany);
        assert!(mobile.contains(&failed), "{mobile:?}");
        assert!(mobile.contains(&Event::Reset { id: early, reason }), "{mobile:?}");
        assert_eq!(world.base.stats().turned_away, 2);
        world.accept(ids[0]);
        let (mobile, _) = world.settle();
        assert_eq!(mobile, [Event::Opened { id: ids[0], bound: Some(bound()) }]);
    }
}

#[test]
fn a_mobile_refuses_its_own_connections_beyond_the_bounds() {
    let config = Config { max_half_open: 1, ..Config::mobile() };
    let mut world = Sessions::of(Limits::default(), config, Config::base());
    world.connect(Opening::Faithful);
    let Sessions { pair, mobile, now, .. } = &mut world;
    let second = mobile.connect(*now, &mut pair.mobile, &target(), Opening::Faithful);
    assert_eq!(second, Err(StreamError::TooMany));
    assert_eq!(pair.mobile.len(), 1);
}

#[test]
fn a_stream_that_does_not_finish_its_opening_is_reset() {
    let mut world = Sessions::new();
    let stream = world.pair.mobile.open().expect("room");
    world.pair.mobile.write(stream, &[1, 1, 0]).expect("room");
    world.settle();
    assert_eq!(world.base.half_open(), 1);
    let deadline = world.base.next_timeout().expect("a deadline");
    world.base.handle_timeout(deadline - Duration::from_nanos(1), &mut world.pair.base);
    assert_eq!(world.base.half_open(), 1);
    world.base.handle_timeout(deadline, &mut world.pair.base);
    assert_eq!((world.base.half_open(), world.base.stats().timed_out), (0, 1));
    world.pair.carry();
    let code = ResetReason::TimedOut.code();
    assert_eq!(world.pair.mobile.recv_state(stream), RecvState::Reset(code));
    world.assert_nothing_left();
}

#[test]
fn a_base_that_does_not_answer_is_a_time_out() {
    for opening in [Opening::Faithful, Opening::Early] {
        let mut world = Sessions::new();
        let id = world.connect(opening);
        world.settle();
        world.now = world.mobile.next_timeout().expect("a deadline");
        world.mobile.handle_timeout(world.now, &mut world.pair.mobile);
        let (mobile, base) = world.settle();
        let told = match opening {
            Opening::Faithful => Event::Failed { id, refusal: Refusal::TimedOut },
            Opening::Early => Event::Reset { id, reason: ResetReason::Refused(Refusal::TimedOut) },
        };
        assert_eq!(mobile, [told, Event::Closed(id)]);
        assert_eq!(base, [Event::Reset { id, reason: ResetReason::TimedOut }, Event::Closed(id)]);
        world.assert_nothing_left();
    }
}

#[test]
fn a_refused_mobile_that_stays_is_put_out_at_the_deadline() {
    let mut world = Sessions::new();
    let id = world.connect(Opening::Faithful);
    world.settle();
    world.base.refuse(&mut world.pair.base, id, Refusal::Refused);
    assert_eq!(world.base_events(), []);
    world.now = world.base.next_timeout().expect("a deadline");
    world.base.handle_timeout(world.now, &mut world.pair.base);
    assert_eq!(world.base_events(), [Event::Closed(id)]);
    let (mobile, _) = world.settle();
    assert_eq!(mobile.last(), Some(&Event::Closed(id)));
    world.assert_nothing_left();
}

#[test]
fn a_stream_that_does_not_speak_mhp_is_reset() {
    for first in [&b"GET / HTTP/1.1"[..], &[2, 1, 0, 0], &[1, 9], &[1, 1, 255, 255], &[1, 2, 0, 0]]
    {
        let mut world = Sessions::new();
        let stream = world.pair.mobile.open().expect("room");
        world.pair.mobile.write(stream, first).expect("room");
        world.pair.carry();
        assert_eq!(world.base_events(), []);
        world.pair.carry();
        let code = ResetReason::Protocol.code();
        assert_eq!(world.pair.mobile.recv_state(stream), RecvState::Reset(code));
        assert_eq!(world.base.stats().malformed, 1);
        world.assert_nothing_left();
    }
}

#[test]
fn a_stream_that_ends_inside_its_opening_is_reset() {
    let mut world = Sessions::new();
    let stream = world.pair.mobile.open().expect("room");
    world.pair.mobile.write(stream, &[1, 1]).expect("room");
    world.pair.mobile.finish(stream);
    world.settle();
    assert_eq!(world.base.stats().malformed, 1);
    world.assert_nothing_left();
}

#[test]
fn a_base_that_does_not_speak_mhp_fails_the_opening() {
    for answer in [&b"HTTP"[..], &[1, 1, 0, 5, 0, 1, 0, 80, 1], &[1, 3, 0, 0], b""] {
        let mut world = Sessions::new();
        let id = world.connect(Opening::Faithful);
        world.settle();
        world.pair.base.write(id.stream(), answer).expect("room");
        world.pair.base.finish(id.stream());
        let (mobile, base) = world.settle();
        let refusal = Refusal::Protocol;
        assert_eq!(mobile, [Event::Failed { id, refusal }, Event::Closed(id)]);
        assert_eq!(base, [Event::Reset { id, reason: ResetReason::Protocol }, Event::Closed(id)]);
        world.assert_nothing_left();
    }
}

#[test]
fn a_stream_that_the_base_opens_is_reset() {
    let mut world = Sessions::new();
    let stream = world.pair.base.open().expect("room");
    world.pair.base.write(stream, b"hello").expect("room");
    assert_eq!(world.settle(), (vec![], vec![]));
    assert_eq!((world.mobile.connections(), world.mobile.stats().malformed), (0, 1));
    let Sessions { pair, base, now, .. } = &mut world;
    let connect = base.connect(*now, &mut pair.base, &target(), Opening::Early);
    assert_eq!(connect, Err(StreamError::Unknown));
    world.assert_nothing_left();
}

#[test]
fn when_the_association_is_lost_everybody_is_told_once() {
    let mut world = Sessions::new();
    let open = world.opened();
    let early = world.connect(Opening::Early);
    let waiting = world.connect(Opening::Faithful);
    world.mobile_events();
    let reason = ResetReason::AssociationLost;
    world.mobile.reset_all(&mut world.pair.mobile, reason);
    let (told, _) = world.settle();
    assert_eq!(told.len(), 6);
    assert!(told.contains(&Event::Reset { id: open, reason }));
    assert!(told.contains(&Event::Reset { id: early, reason }));
    let failed = Event::Failed { id: waiting, refusal: Refusal::AssociationLost };
    assert!(told.contains(&failed));
    for id in [open, early, waiting] {
        assert_eq!(told.iter().filter(|e| **e == Event::Closed(id)).count(), 1);
    }
    world.assert_nothing_left();
}
