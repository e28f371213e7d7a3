//! Streams that are detached at any moment, on sockets that block.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use lasthop_hop::{Memory, RecvState, StreamEvent, StreamId, StreamState, Streams};
use lasthop_kernel::reactor::{Reactor, Readiness};
use lasthop_kernel::slab::Slab;
use lasthop_kernel::tcp::Socket;
use lasthop_units::Time;
use proptest::prelude::*;

use crate::split::hostile::keys;
use crate::split::inbound::Inbound;
use crate::split::record::WINDOW_MIN;
use crate::split::stream::Stream;
use crate::split::streams::SplitTcp;

const ID: StreamId = StreamId(0);
const ANY: Readiness = Readiness { readable: true, writable: true, ended: false, urgent: false };

/// One end of the stream, and what its application has done.
struct Side {
    streams: SplitTcp,
    written: Vec<u8>,
    read: Vec<u8>,
    ended: bool,
    detached: Option<StreamState>,
    is_detached: bool,
}

impl Side {
    fn new(streams: SplitTcp) -> Self {
        Self {
            streams,
            written: Vec::new(),
            read: Vec::new(),
            ended: false,
            detached: None,
            is_detached: false,
        }
    }

    fn write(&mut self, n: usize) {
        if self.is_detached || self.ended {
            return;
        }
        let from = self.written.len();
        let data: Vec<u8> = (from..from + n).map(|i| (i * 31 % 251) as u8).collect();
        let taken = self.streams.write(ID, &data).unwrap_or(0);
        self.written.extend_from_slice(&data[..taken]);
    }

    fn read(&mut self, n: usize) {
        let mut left = n;
        while !self.is_detached && left > 0 {
            let got = self.streams.received(ID);
            let n = got.len().min(left);
            if n == 0 {
                return;
            }
            self.read.extend_from_slice(&got[..n]);
            self.streams.consume(ID, n);
            left -= n;
        }
    }

    fn finish(&mut self) {
        if !self.is_detached {
            self.ended = true;
            self.streams.finish(ID);
        }
    }

    fn pump(&mut self, now: Time) {
        if let Some(stream) = self.streams.get_mut(ID.0) {
            stream.ready(ANY);
        }
        self.streams.handle_timeout(now);
        self.streams.mark_dirty(ID.0);
        self.streams.begin_round();
        while let Some(id) = self.streams.next_in_round() {
            self.streams.pump(now, id);
        }
    }

    fn events(&mut self) -> Vec<StreamEvent> {
        std::iter::from_fn(|| self.streams.poll_event()).collect()
    }

    fn detach(&mut self) {
        let seen = self.streams.snapshot(ID);
        self.detached = self.streams.detach(ID);
        self.is_detached = true;
        assert_eq!(seen, self.detached, "a snapshot shows what is detached");
        assert_eq!(self.streams.detach(ID), None);
    }
}

struct Pair {
    now: Time,
    reactor: Reactor<()>,
    mobile: Side,
    base: Side,
}

impl Pair {
    /// A stream between two ends, over a pipe that holds about `buffer` bytes each way.
    fn new(sealed: bool, buffer: usize) -> Self {
        let mut reactor = Reactor::new().unwrap();
        let (a, b) = UnixStream::pair().unwrap();
        let mut watch = |fd: UnixStream| {
            fd.set_nonblocking(true).unwrap();
            rustix::net::sockopt::set_socket_send_buffer_size(&fd, buffer).unwrap();
            (Slab::new().insert(()), Socket::new(&mut reactor, OwnedFd::from(fd), ()).unwrap())
        };
        let ((key_a, a), (key_b, b)) = (watch(a), watch(b));
        let (ours, theirs) = keys(sealed);
        let mut mobile = SplitTcp::new(10, 0, &Memory::default());
        assert_eq!(mobile.open(), Ok(ID));
        mobile.get_mut(ID.0).unwrap().connect(key_a, a, b"".to_vec(), ours.stream(ID.0));
        let mut base = SplitTcp::new(10, 1, &Memory::default());
        let (sealer, opener) = theirs.stream(ID.0);
        let mut into = Inbound::new(0);
        into.start(opener);
        base.handle_incoming(ID.0, Stream::accept(key_b, b, into, sealer));
        Self { now: Time::ZERO, reactor, mobile: Side::new(mobile), base: Side::new(base) }
    }

    fn side(&mut self, mobile: bool) -> &mut Side {
        if mobile { &mut self.mobile } else { &mut self.base }
    }

    fn pump(&mut self, mobile: bool) {
        let now = self.now;
        self.side(mobile).pump(now);
    }

    /// Lets everything happen that happens without the applications.
    fn settle(&mut self) {
        for _ in 0..2000 {
            self.now += Duration::from_millis(1);
            self.pump(true);
            self.pump(false);
        }
    }

    fn detach_both(&mut self) {
        self.mobile.detach();
        self.base.detach();
    }
}

/// What the two ends hold makes up the stream, to the byte.
fn reconcile(from: &Side, to: &Side) {
    let got = match &to.detached {
        Some(state) => {
            let mut got = to.read.clone();
            got.extend_from_slice(&state.unread);
            assert_eq!(got.len() as u64, state.received);
            got
        }
        // It has everything and everything was read.
        None => to.read.clone(),
    };
    assert!(from.written.starts_with(&got), "what arrived is what was sent");
    let to_ended = to.detached.as_ref().is_none_or(|state| state.recv_ended);
    match &from.detached {
        Some(state) => {
            let end = state.send_start + state.send.len() as u64;
            assert_eq!(end, from.written.len() as u64);
            assert!(from.written[state.send_start as usize..] == state.send);
            assert!(state.send_start <= got.len() as u64, "a hole");
            assert_eq!(state.send_ended, from.ended);
            if to_ended {
                assert!(from.ended && got == from.written);
            }
        }
        // Over: the peer has acknowledged it all.
        None => assert!(from.ended && to_ended && got == from.written),
    }
}

#[derive(Clone, Debug)]
enum Act {
    Write(bool, usize),
    Read(bool, usize),
    Pump(bool),
    Wait,
    Finish(bool),
    Detach(bool),
}

fn act() -> impl Strategy<Value = Act> {
    let len = prop_oneof![1..100usize, 100..20_000usize, 20_000..300_000usize];
    prop_oneof![
        6 => (any::<bool>(), len.clone()).prop_map(|(side, n)| Act::Write(side, n)),
        5 => (any::<bool>(), len).prop_map(|(side, n)| Act::Read(side, n)),
        12 => any::<bool>().prop_map(Act::Pump),
        1 => Just(Act::Wait),
        1 => any::<bool>().prop_map(Act::Finish),
        1 => any::<bool>().prop_map(Act::Detach),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// MHP-19, SPL-3, ITCP-3: whenever either end detaches, whatever the kernel has, no byte between
    /// them is lost or doubled.
    #[test]
    fn streams_detached_at_any_moment_reconcile_to_the_byte(
        sealed in any::<bool>(),
        buffer in 1_000..200_000usize,
        acts in prop::collection::vec(act(), 0..200),
    ) {
        let mut world = Pair::new(sealed, buffer);
        for act in acts {
            match act {
                Act::Write(side, n) => world.side(side).write(n),
                Act::Read(side, n) => world.side(side).read(n),
                Act::Pump(side) => world.pump(side),
                Act::Wait => world.now += Duration::from_millis(30),
                Act::Finish(side) => world.side(side).finish(),
                Act::Detach(side) if !world.side(side).is_detached => world.side(side).detach(),
                Act::Detach(_) => {}
            }
        }
        for side in [true, false] {
            if !world.side(side).is_detached {
                world.side(side).detach();
            }
        }
        reconcile(&world.mobile, &world.base);
        reconcile(&world.base, &world.mobile);
    }
}

#[test]
fn a_delayed_acknowledgement_is_sent() {
    for sealed in [true, false] {
        let mut world = Pair::new(sealed, 100_000);
        world.mobile.write(1000);
        world.pump(true);
        world.pump(false);
        world.pump(true);
        assert_eq!(world.mobile.streams.snapshot(ID).unwrap().send_start, 0);
        let due = world.base.streams.next_timeout().unwrap();
        assert!(due > world.now);
        world.now = due;
        world.pump(false);
        world.pump(true);
        let state = world.mobile.streams.snapshot(ID).unwrap();
        assert_eq!((state.send_start, state.send.len()), (1000, 0));
        assert_eq!(world.base.streams.next_timeout(), None);
    }
}

#[test]
fn an_answer_carries_the_acknowledgement() {
    let mut world = Pair::new(true, 100_000);
    world.mobile.write(1000);
    world.pump(true);
    world.pump(false);
    world.base.write(10);
    world.pump(false);
    world.pump(true);
    assert_eq!(world.mobile.streams.snapshot(ID).unwrap().send_start, 1000);
}

/// Otherwise two applications that write before they read would stand still for ever.
#[test]
fn acknowledgements_pass_though_nobody_reads() {
    let mut world = Pair::new(true, 20_000);
    for _ in 0..3 {
        world.mobile.write(500_000);
        world.base.write(500_000);
        world.settle();
    }
    for (from, to) in [(&world.mobile, &world.base), (&world.base, &world.mobile)] {
        let held = to.streams.snapshot(ID).unwrap();
        assert_eq!(held.received, WINDOW_MIN, "a window is taken without a reader");
        assert!(from.written.len() as u64 > WINDOW_MIN);
        assert_eq!(from.streams.snapshot(ID).unwrap().send_start, WINDOW_MIN);
    }
    // And no more than that, whatever is written.
    world.mobile.write(500_000);
    world.settle();
    assert_eq!(world.base.streams.snapshot(ID).unwrap().received, WINDOW_MIN);
}

#[test]
fn a_direction_goes_on_while_nobody_reads_the_other() {
    let mut world = Pair::new(true, 20_000);
    let mut read = 0;
    while read < 5_000_000 {
        world.base.write(500_000);
        world.mobile.write(100_000);
        world.settle_a_little();
        world.base.read(usize::MAX);
        read = world.base.read.len();
    }
    assert!(world.mobile.read.is_empty());
    world.detach_both();
    reconcile(&world.mobile, &world.base);
    reconcile(&world.base, &world.mobile);
}

impl Pair {
    fn settle_a_little(&mut self) {
        for _ in 0..20 {
            self.now += Duration::from_millis(10);
            self.pump(true);
            self.pump(false);
        }
    }
}

#[test]
fn finished_means_that_the_peers_process_has_the_end() {
    let mut world = Pair::new(true, 100_000);
    world.mobile.write(1000);
    world.mobile.finish();
    world.pump(true);
    assert_eq!(world.mobile.events(), [], "the kernel has it, and nobody else");
    world.pump(false);
    world.pump(true);
    assert_eq!(world.mobile.events(), [StreamEvent::Finished(ID)]);
    let state = world.mobile.streams.snapshot(ID).unwrap();
    assert_eq!((state.send_start, state.send_ended), (1000, true));
    let got = world.base.streams.snapshot(ID).unwrap();
    assert_eq!((got.received, got.unread.len(), got.recv_ended), (1000, 1000, true));
}

/// MHP-19: a half-closed stream is detached as one, and goes on in the other direction.
#[test]
fn a_half_closed_stream_is_detached_with_its_end() {
    let mut world = Pair::new(false, 100_000);
    world.base.finish();
    world.settle();
    world.mobile.write(3000);
    world.pump(true);
    world.detach_both();
    reconcile(&world.mobile, &world.base);
    reconcile(&world.base, &world.mobile);
    let (mobile, base) = (world.mobile.detached.unwrap(), world.base.detached.unwrap());
    assert!(mobile.recv_ended && !mobile.send_ended && base.send_ended && !base.recv_ended);
    assert_eq!((mobile.send_start, mobile.send.len()), (0, 3000));
}

#[test]
fn a_stream_that_is_over_or_aborted_is_not_detached() {
    let mut world = Pair::new(true, 100_000);
    world.mobile.finish();
    world.base.finish();
    world.settle();
    assert_eq!(world.mobile.streams.snapshot(ID), None);
    world.detach_both();
    assert_eq!((world.mobile.detached, world.base.detached), (None, None));

    let mut world = Pair::new(true, 100_000);
    world.mobile.write(10);
    world.settle();
    world.base.read(10);
    world.base.streams.get_mut(ID.0).unwrap().abort(7);
    world.settle();
    assert_eq!(world.mobile.streams.recv_state(ID), RecvState::Reset(7));
    world.mobile.detach();
    assert_eq!(world.mobile.detached, None);
    world.base.streams.reset(ID, 7);
    assert_eq!(world.base.streams.detach(ID), None);
}

#[test]
fn a_stream_without_a_connection_is_detached_with_all_that_was_written() {
    let mut streams = SplitTcp::new(10, 0, &Memory::default());
    streams.open().unwrap();
    streams.write(ID, b"too early").unwrap();
    streams.finish(ID);
    let state = streams.detach(ID).unwrap();
    assert_eq!((state.send_start, &state.send[..], state.send_ended), (0, &b"too early"[..], true));
    assert!(streams.is_empty() && streams.next_removed().is_none());
}

#[test]
fn a_connection_that_breaks_resets_the_stream() {
    let mut world = Pair::new(true, 100_000);
    world.mobile.write(10);
    world.settle();
    let (_, socket) = world.base.streams.get_mut(ID.0).unwrap().take_socket().unwrap();
    socket.close(&mut world.reactor, false);
    world.settle();
    let code = crate::split::lost();
    assert_eq!(world.mobile.streams.recv_state(ID), RecvState::Reset(code));
    assert!(world.mobile.events().contains(&StreamEvent::Closed(ID)));
}

/// SEC-13: streams take their least out of the memory of all associations, and are refused where there
/// is no more; what is over is given back.
#[test]
fn streams_of_all_associations_come_out_of_one_memory() {
    let bound = lasthop_units::Bytes::from_mib(64);
    let memory = Memory::bounded(bound, 4);
    let mut all: Vec<SplitTcp> = (0..4).map(|_| SplitTcp::new(1000, 0, &memory)).collect();
    for streams in &mut all {
        while streams.open().is_ok() {}
        assert!((5..100).contains(&streams.len()), "{}", streams.len());
        assert!(!streams.has_room());
    }
    assert!(memory.needed() <= bound);
    all.truncate(1);
    all[0].reset(StreamId(0), 1);
    assert!(all[0].has_room());
    drop(all);
    assert_eq!(memory.needed().get(), 0);
}
