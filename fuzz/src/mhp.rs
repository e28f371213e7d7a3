//! The decoder of MHP's messages, and a base's and a mobile's session, on any bytes.

use lasthop_hop::Streams;
use lasthop_session::memory::{Limits, Pair};
use lasthop_session::{Config, Event, Opening, Session, Target};
use lasthop_units::Time;
use lasthop_wire::mhp::{self, Decoded};

fn decode(bytes: &[u8]) {
    match mhp::decode(bytes) {
        Ok(Decoded::Incomplete { needed }) => {
            assert!(needed > bytes.len() && needed <= mhp::MAX_MESSAGE_LEN);
        }
        Ok(Decoded::Complete { message, len }) => {
            assert!(len <= bytes.len());
            let mut again = Vec::new();
            message.encode(&mut again);
            let len = again.len();
            assert_eq!(mhp::decode(&again), Ok(Decoded::Complete { message, len }));
        }
        Err(_) => {}
    }
}

/// Polls one side; the last thing that it was told.
fn poll(session: &mut Session, hop: &mut impl Streams) -> Option<Event> {
    let mut last = None;
    while let Some(event) = session.poll_event(Time::ZERO, hop) {
        last = Some(event);
    }
    last
}

fn limits(piece: usize) -> Limits {
    Limits { buffer: 64, piece, streams: 4, ..Limits::default() }
}

/// Whatever a mobile says first, a base reads it as one message or resets the stream.
fn base_reads(bytes: &[u8], piece: usize) {
    let mut pair = Pair::new(limits(piece));
    let mut base = Session::base(Config::base());
    let Ok(stream) = pair.mobile.open() else { return };
    let mut rest = bytes;
    while !rest.is_empty() {
        let n = pair.mobile.write(stream, rest).unwrap_or(0);
        rest = &rest[n..];
        pair.carry();
        poll(&mut base, &mut pair.base);
        assert!(base.connections() <= 1);
        if n == 0 {
            return;
        }
    }
}

/// Whatever a base answers, a mobile's opening succeeds, fails or waits.
fn mobile_reads(bytes: &[u8], piece: usize) {
    let mut pair = Pair::new(limits(piece));
    let mut mobile = Session::mobile(Config::mobile());
    let target = Target::from_host("host", 1).expect("a good name");
    let id = mobile.connect(Time::ZERO, &mut pair.mobile, &target, Opening::Faithful);
    let stream = lasthop_hop::StreamId(id.expect("room").0);
    pair.carry();
    let _ = pair.base.write(stream, bytes);
    pair.base.finish(stream);
    for _ in 0..100 {
        pair.carry();
        poll(&mut mobile, &mut pair.mobile);
    }
    assert!(mobile.connections() <= 1);
}

/// One input.
pub fn run(bytes: &[u8]) {
    decode(bytes);
    for piece in [1, 7, usize::MAX] {
        base_reads(bytes, piece);
        mobile_reads(bytes, piece);
    }
}
