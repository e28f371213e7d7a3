//! A base and mobiles with the kernel's TCP between them.

mod psk;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use lasthop_hop::seal::{Allowed, Hello, Initiator, Keypair, Limits, PublicKey, Responder};
use lasthop_hop::{AssociationId, Memory, RecvState, Refusal, StreamId, Streams};
use lasthop_kernel::clock::Clock;
use lasthop_kernel::reactor::Reactor;
use lasthop_kernel::turn::{Source, Turn};
use lasthop_units::Seed;
use rustix::net::sockopt;
use socket2::{Domain, Type};

use crate::hop::{BaseHop, Hop, HopEvent, MobileHop};
use crate::split::{
    Bounds, GREETING_TIMEOUT, KIND_CONTROL, Seal, SplitBase, SplitMobile, SplitTcp, VERSION,
    preface,
};

/// Nothing here should take longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// One loop with a base (part zero) and mobiles (parts from one on).
struct OneLoop {
    clock: Clock,
    reactor: Reactor<Source>,
    base: SplitBase,
    address: SocketAddr,
    mobiles: Vec<Option<SplitMobile>>,
    names: Vec<PublicKey>,
    associations: Vec<AssociationId>,
    lost: Vec<AssociationId>,
    unreachable: Vec<String>,
}

/// The keys of mobile `n`.
fn keypair(n: usize) -> Keypair {
    Keypair::generate(Seed::from_u64(3).child(&format!("m{n}")))
}

impl OneLoop {
    fn new(mobiles: usize) -> Self {
        let seed = Seed::from_u64(3);
        let keys = Keypair::generate(seed.child("base"));
        let names: Vec<_> = (0..mobiles).map(keypair).collect();
        // One more than there are at first.
        let allowed: Vec<_> = (0..=mobiles).map(|n| *keypair(n).public()).collect();
        let public = *keys.public();
        let responder = Responder::new(keys, seed.child("responder"));
        let bounds = Bounds { associations: 10, streams: 2000, memory: Memory::default() };
        let listen = ["127.0.0.1:0".parse().unwrap()];
        let base = SplitBase::bind(
            &listen,
            None,
            responder,
            Some(allowed.iter().copied().map(Allowed::from).collect()),
            bounds,
            seed.child("b"),
        );
        let base = base.unwrap();
        let address = base.places()[0].parse().unwrap();
        let mobiles = names.into_iter().map(|keys| {
            let seal = Seal::Noise(keys, public);
            Some(SplitMobile::new(seal, None, 2000, seed.child("m")))
        });
        let mut world = Self {
            clock: Clock::start(),
            reactor: Reactor::new().unwrap(),
            mobiles: mobiles.collect(),
            names: allowed,
            base,
            address,
            associations: Vec::new(),
            lost: Vec::new(),
            unreachable: Vec::new(),
        };
        let mut turn = Turn::new(world.clock.now(), world.clock, &mut world.reactor);
        BaseHop::start(&mut world.base, &mut turn).unwrap();
        for (n, mobile) in world.mobiles.iter_mut().enumerate() {
            mobile.as_mut().unwrap().set_base(&mut turn.within(n as u32 + 1), address);
        }
        world.until("associations stand", |world| world.associations.len() == mobiles_of(world));
        world
    }

    fn step(&mut self) {
        let mut ready = Vec::new();
        self.reactor.wait(Some(Duration::from_millis(1)), &mut ready).unwrap();
        let mut turn = Turn::new(self.clock.now(), self.clock, &mut self.reactor);
        for (source, readiness) in ready {
            let Source::Hop(part, key) = source else { continue };
            match part.checked_sub(1) {
                None => self.base.handle_ready(&mut turn, key, readiness),
                Some(n) => {
                    if let Some(mobile) = &mut self.mobiles[n as usize] {
                        mobile.handle_ready(&mut turn.within(part), key, readiness);
                    }
                }
            }
        }
        self.base.handle_timeout(&mut turn);
        self.base.pump(&mut turn);
        while let Some(event) = self.base.poll_event() {
            match event {
                HopEvent::Up(id) => self.associations.push(id),
                HopEvent::Lost(id, _) => self.lost.push(id),
                _ => {}
            }
        }
        for (n, mobile) in self.mobiles.iter_mut().enumerate() {
            let Some(mobile) = mobile else { continue };
            let mut turn = turn.within(n as u32 + 1);
            mobile.handle_timeout(&mut turn);
            mobile.pump(&mut turn);
            while let Some(event) = mobile.poll_event() {
                if let HopEvent::Unreachable(_, why) = event {
                    self.unreachable.push(why);
                }
            }
        }
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let start = Instant::now();
        while !done(self) {
            assert!(start.elapsed() < PATIENCE, "{what}");
            self.step();
        }
    }

    fn mobile(&mut self, n: usize) -> &mut SplitTcp {
        self.mobiles[n].as_mut().unwrap().split_tcp()
    }

    /// Closes the hop of mobile zero.
    fn close_mobile(&mut self) {
        let mut mobile = self.mobiles[0].take().unwrap();
        let mut turn = Turn::new(self.clock.now(), self.clock, &mut self.reactor);
        mobile.close(&mut turn.within(1));
    }

    /// The association of mobile `n`.
    fn association(&self, n: usize) -> AssociationId {
        let name = Some(self.names[n]);
        *self.associations.iter().find(|id| self.base.key_of(**id) == name).unwrap()
    }

    fn base(&mut self, n: usize) -> &mut SplitTcp {
        let id = self.association(n);
        self.base.split_tcp(id).unwrap()
    }

    /// Streams of mobile zero, each with `n` bytes that the base has and nobody reads.
    fn streams(&mut self, count: usize, n: usize) -> Vec<StreamId> {
        let data = vec![7; n];
        let ids: Vec<_> = (0..count).map(|_| self.mobile(0).open().unwrap()).collect();
        for id in &ids {
            assert_eq!(self.mobile(0).write(*id, &data), Ok(n));
        }
        let expected = ids.clone();
        self.until("bytes arrive", |world| {
            let base = world.base(0);
            expected.iter().all(|id| base.snapshot(*id).is_some_and(|s| s.received == n as u64))
        });
        ids
    }
}

fn mobiles_of(world: &OneLoop) -> usize {
    world.mobiles.len()
}

/// MHP-17, MHP-19: nothing is sent to either end when the other detaches its streams, which would
/// reset what is to go on elsewhere.
#[test]
fn detaching_at_one_end_sends_nothing_to_the_other() {
    for base_first in [false, true] {
        let mut world = OneLoop::new(1);
        let ids = world.streams(3, 1000);
        world.base(0).write(ids[0], b"on its way").unwrap();
        let mut states = Vec::new();
        for id in &ids {
            let first = if base_first { world.base(0) } else { world.mobile(0) };
            states.push(first.detach(*id).unwrap());
        }
        for _ in 0..50 {
            world.step();
        }
        for (id, gone) in ids.iter().zip(states) {
            let other = if base_first { world.mobile(0) } else { world.base(0) };
            assert_eq!(other.recv_state(*id), RecvState::Open);
            let left = other.detach(*id).unwrap();
            let (from, to) = if base_first { (&left, &gone) } else { (&gone, &left) };
            assert!(from.send_start <= to.received);
            assert_eq!(from.send_start + from.send.len() as u64, 1000);
        }
        assert!(world.mobile(0).is_empty() && world.base(0).is_empty());
        assert_eq!((world.lost, world.unreachable), (vec![], vec![]));
    }
}

/// A mobile has a hop for each base that it knows; one of them ends and the others do not notice.
#[test]
fn a_hop_that_is_closed_leaves_the_others_of_its_mobile_alone() {
    let mut world = OneLoop::new(3);
    let ids = world.streams(20, 100);
    world.close_mobile();
    world.until("the base notices", |world| {
        let base = world.base(0);
        while base.poll_event().is_some() {}
        base.is_empty()
    });
    assert_eq!(ids.len(), 20);
    world.until("it is over", |world| world.lost.len() == 1);
    for n in [1, 2] {
        let other = world.mobile(n).open().unwrap();
        world.mobile(n).write(other, b"still here").unwrap();
        world.until("the others go on", |world| world.base(n).received(other) == b"still here");
    }
}

/// A base removes an association whose session it has given away, and the mobile is not reset: its
/// streams are detached as well.
#[test]
fn a_base_can_remove_an_association_that_stands() {
    let mut world = OneLoop::new(1);
    let ids = world.streams(5, 100);
    for id in &ids {
        assert!(world.base(0).detach(*id).is_some());
    }
    let id = world.association(0);
    let mut turn = Turn::new(world.clock.now(), world.clock, &mut world.reactor);
    world.base.remove_association(&mut turn, id);
    assert!(world.base.streams(id).is_none());
    for _ in 0..50 {
        world.step();
    }
    assert!(world.lost.is_empty());
    for id in ids {
        assert!(world.mobile(0).detach(id).is_some(), "the parked connection stands");
    }
}

/// A mobile that has left, and whose resets the hop has lost, has ended its control connection.
#[test]
fn parked_connections_end_with_their_association() {
    let mut world = OneLoop::new(2);
    let ids = world.streams(5, 100);
    let other = world.mobile(1).open().unwrap();
    world.mobile(1).write(other, b"another's").unwrap();
    world.until("it comes", |world| world.base(1).received(other) == b"another's");
    ids.iter().for_each(|id| assert!(world.base(0).detach(*id).is_some()));
    assert!(world.base(1).detach(other).is_some());
    world.step();
    assert_eq!(world.base.connections(), ids.len() + 1);
    let mut turn = Turn::new(world.clock.now(), world.clock, &mut world.reactor);
    world.mobiles[0].as_mut().unwrap().close_control(&mut turn.within(1));
    world.until("the association is over", |world| world.lost.len() == 1);
    let lost = world.lost[0];
    let mut turn = Turn::new(world.clock.now(), world.clock, &mut world.reactor);
    world.base.remove_association(&mut turn, lost);
    assert_eq!(world.base.connections(), 1, "another's stand");
}

/// What the kernel says once only, and said before the stream went on elsewhere, is not waited for.
#[test]
fn a_connection_that_its_peer_has_ended_is_not_parked() {
    let mut world = OneLoop::new(1);
    let ids = world.streams(3, 100);
    world.close_mobile();
    // Every connection's end, as far as the base's loop gets before anything is read.
    let (mut ended, mut ready) = (0, Vec::new());
    while ended < ids.len() + 1 {
        ready.clear();
        world.reactor.wait(Some(PATIENCE), &mut ready).unwrap();
        let mut turn = Turn::new(world.clock.now(), world.clock, &mut world.reactor);
        for (source, readiness) in &ready {
            let Source::Hop(0, key) = source else { continue };
            ended += usize::from(readiness.ended);
            world.base.handle_ready(&mut turn, *key, *readiness);
        }
    }
    assert_eq!(world.base.connections(), ids.len());
    for id in ids {
        assert!(world.base(0).detach(id).is_some());
    }
    world.step();
    assert_eq!(world.base.connections(), 0);
}

/// A client of a published port, while the mobile goes, waits for a connection that nobody
/// makes any more; the association must not live on for that.
#[test]
fn streams_requested_from_the_mobile_end_with_the_control_connection() {
    let mut world = OneLoop::new(1);
    let id = world.association(0);
    let mut first = world.mobiles[0].take().unwrap();
    let asked = world.base(0).open().unwrap();
    let mut turn = Turn::new(world.clock.now(), world.clock, &mut world.reactor);
    world.base.pump(&mut turn);
    assert!(world.base.split_tcp(id).unwrap().awaits_connection(asked.0));
    first.close(&mut turn.within(1));
    drop(first);
    world.until("the stream is over", |world| {
        let base = world.base(0);
        while base.poll_event().is_some() {}
        base.is_empty()
    });
    world.until("it is over", |world| world.lost.len() == 1);
}

/// Two thousand connections, a thousand of them without an owner, and not one system call for it.
#[test]
fn a_thousand_streams_are_detached_together() {
    let mut world = OneLoop::new(1);
    let ids = world.streams(1000, 3000);
    let start = Instant::now();
    for id in &ids {
        assert_eq!(world.base(0).detach(*id).unwrap().unread.len(), 3000);
    }
    let base = start.elapsed();
    let start = Instant::now();
    for id in &ids {
        assert!(world.mobile(0).detach(*id).unwrap().send.len() <= 3000);
    }
    // For information only.
    eprintln!("1000 streams are detached within {base:?} and {:?}", start.elapsed());
    world.step();
    assert!(world.mobile(0).is_empty() && world.base(0).is_empty());
    assert!(world.lost.is_empty());
}

#[test]
fn another_version_is_answered_with_a_refusal() {
    let mut world = OneLoop::new(0);
    let mut old = TcpStream::connect(world.address).unwrap();
    old.write_all(&[b'L', b'H', b'T', VERSION - 1, 0, 0, 1, 9]).unwrap();
    world.until("it is counted", |world| world.base.garbage() == 1);
    old.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = Vec::new();
    old.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, [0, 0]);
}

#[test]
fn a_mobile_reports_that_the_base_has_another_version() {
    let mut world = OneLoop::new(1);
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let seal = Seal::Off(*Keypair::generate(Seed::from_u64(9)).public());
    let mut mobile = SplitMobile::new(seal, None, 10, Seed::from_u64(10));
    let mut turn = Turn::new(world.clock.now(), world.clock, &mut world.reactor);
    mobile.set_base(&mut turn.within(2), other.local_addr().unwrap());
    world.mobiles.push(Some(mobile));
    world.step();
    let (mut base, _) = other.accept().unwrap();
    base.set_nonblocking(true).unwrap();
    world.until("it greets", |_| base.peek(&mut [0; 5]).is_ok_and(|n| n == 5));
    base.write_all(&[0, 0]).unwrap();
    world.until("it is reported", |world| !world.unreachable.is_empty());
    assert!(world.unreachable[0].contains("another version"), "{}", world.unreachable[0]);
}

#[test]
fn a_base_logs_whom_it_refuses_and_the_mobile_what_to_check() {
    let mut world = OneLoop::new(0);
    let base = *Keypair::generate(Seed::from_u64(3).child("base")).public();
    let (stranger, other) = (Seed::from_u64(8), Seed::from_u64(9));
    let (stranger, other) = (Keypair::generate(stranger), Keypair::generate(other));
    let key = *stranger.public();
    for (n, seal) in [
        Seal::Noise(stranger.clone(), base),
        Seal::Noise(stranger, *other.public()),
        Seal::Off(*other.public()),
    ]
    .into_iter()
    .enumerate()
    {
        let mut mobile = SplitMobile::new(seal, None, 10, Seed::from_u64(n as u64));
        let mut turn = Turn::new(world.clock.now(), world.clock, &mut world.reactor);
        mobile.set_base(&mut turn.within(n as u32 + 1), world.address);
        world.mobiles.push(Some(mobile));
    }
    let mut logged = Vec::new();
    world.until("all are refused", |world| {
        logged.extend(std::iter::from_fn(|| world.base.poll_refused()).map(|refused| refused.why));
        logged.len() >= 3 && world.unreachable.len() >= 6
    });
    // They try again, and the log is spared.
    assert_eq!(logged.len(), 3, "{logged:?}");
    for why in [Refusal::Stranger(key), Refusal::OtherBase, Refusal::OtherSeal] {
        assert!(logged.contains(&why), "{logged:?}");
    }
    let reported = &world.unreachable;
    assert!(reported.iter().all(|why| why.contains("its log says why")), "{reported:?}");
    assert!(reported.iter().any(|why| why.contains(&key.to_string())), "{reported:?}");
}

/// An init of mobile `n` with this stamp, on a connection of its own.
fn init(n: usize, stamp: u64) -> (Initiator, Vec<u8>) {
    let seed = Seed::from_u64(3);
    let base = *Keypair::generate(seed.child("base")).public();
    let hello = Hello { receiver: 9, fast_aes: false, stamp, limits: Limits::NONE };
    let entropy = Seed::from_u64(stamp);
    let initiator = Initiator::new(&keypair(n), &base, 0, hello, entropy).unwrap();
    let datagram = initiator.datagram();
    let mut bytes = preface(KIND_CONTROL).to_vec();
    bytes.extend_from_slice(&(datagram.len() as u16).to_be_bytes());
    bytes.extend_from_slice(datagram);
    (initiator, bytes)
}

/// The reply that comes on a connection, if any does before its end.
fn reply(stream: &mut TcpStream) -> Option<Vec<u8>> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut length = [0; 2];
    stream.read_exact(&mut length).ok()?;
    let mut reply = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut reply).unwrap();
    Some(reply)
}

impl OneLoop {
    /// Sends what begins a connection, and lets the base take it.
    fn call(&mut self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(bytes).unwrap();
        let (before, garbage) = (self.base.unproven().1, self.base.garbage());
        let taken = |base: &SplitBase| {
            base.unproven().0 == 0 && (base.unproven().1 > before || base.garbage() > garbage)
        };
        self.until("it is taken", |world| taken(&world.base));
        stream
    }

    /// A second process with the keys of mobile `n`.
    fn twin(&mut self, n: usize) {
        let base = *Keypair::generate(Seed::from_u64(3).child("base")).public();
        let seal = Seal::Noise(keypair(n), base);
        let mut twin = SplitMobile::new(seal, None, 10, Seed::from_u64(77));
        let part = self.mobiles.len() as u32 + 1;
        let mut turn = Turn::new(self.clock.now(), self.clock, &mut self.reactor);
        twin.set_base(&mut turn.within(part), self.address);
        self.mobiles.push(Some(twin));
    }

    fn is_up(&self, n: usize) -> bool {
        self.mobiles[n].as_ref().is_some_and(MobileHop::is_up)
    }
}

/// Nobody but the mobile can confirm them, so they must cost nobody else a place.
#[test]
fn inits_that_nobody_confirms_hold_two_places_of_candidates_and_none_of_associations() {
    let mut world = OneLoop::new(1);
    let mut calls: Vec<TcpStream> = Vec::new();
    for n in 1..=20 {
        calls.push(world.call(&init(1, n).1));
        assert!(world.base.unproven().1 <= 2);
    }
    // The latest wait; the others were told to go.
    let mut replies = calls.iter_mut().map(|call| {
        let whole = reply(call).is_some();
        call.set_nonblocking(true).unwrap();
        let waits = call.read(&mut [0; 1]).is_err_and(|e| e.kind() == ErrorKind::WouldBlock);
        (whole, waits)
    });
    assert!(replies.all(|(whole, _)| whole));
    // There were ten places.
    world.twin(1);
    world.until("it is up", |world| world.is_up(1) && world.associations.len() == 2);
    let now = world.clock.now() + GREETING_TIMEOUT;
    let mut turn = Turn::new(now, world.clock, &mut world.reactor);
    world.base.handle_timeout(&mut turn);
    assert_eq!(world.base.unproven(), (0, 0));
    assert!(world.lost.is_empty());
}

#[test]
fn a_recorded_init_makes_no_association_and_says_which_stamp_is_too_old() {
    let mut world = OneLoop::new(1);
    let (mut initiator, bytes) = init(0, 5);
    let mut call = world.call(&bytes);
    assert_eq!(world.base.unproven(), (0, 0));
    let answer = reply(&mut call).unwrap();
    let hello = initiator.finish(&answer).unwrap().hello;
    assert!(hello.stamp > 5);
    assert_eq!(call.read(&mut [0; 1]).unwrap_or(0), 0, "nothing is kept of it");
    assert!(world.lost.is_empty());
}

#[test]
fn a_mobile_whose_clock_was_set_back_begins_behind_what_the_base_has_had() {
    let mut world = OneLoop::new(0);
    let ahead = lasthop_kernel::clock::wall_nanos() + (1 << 60);
    let key = *keypair(0).public();
    world.base.stamps().confirm(&key, ahead);
    world.twin(0);
    world.until("it is up", |world| world.is_up(0) && world.associations.len() == 1);
    assert!(world.base.stamps().outdone(&key, ahead + 1).is_some());
}

#[test]
fn a_new_association_replaces_its_mobile_s_old_one_once_it_is_confirmed() {
    let mut world = OneLoop::new(2);
    let ids = world.streams(1, 100);
    let (old, other) = (world.association(0), world.association(1));
    let later = lasthop_kernel::clock::wall_nanos();
    let _call = world.call(&init(0, later).1);
    assert_eq!(world.base.unproven().1, 1);
    world.mobile(0).write(ids[0], b"still here").unwrap();
    world.until("bytes arrive", |world| {
        let stream = world.base.split_tcp(old).unwrap().snapshot(ids[0]);
        stream.is_some_and(|stream| stream.received == 110)
    });
    assert!(world.lost.is_empty());
    world.twin(0);
    world.until("it is replaced", |world| world.lost == [old]);
    assert_eq!(world.associations.len(), 3);
    let mut turn = Turn::new(world.clock.now(), world.clock, &mut world.reactor);
    world.base.remove_association(&mut turn, old);
    assert_eq!(world.base.reports(world.clock.now()).len(), 2);
    assert!(world.base.split_tcp(other).is_some());
}

/// Not in use either, and whichever end is left.
#[test]
fn a_peer_that_vanishes_is_noticed_by_every_connection_of_the_hop() {
    let mut world = OneLoop::new(1);
    let ids = world.streams(1, 100);
    let id = world.association(0);
    let mut bounds = Vec::new();
    let mut look = |fd: &OwnedFd| {
        let silence = sockopt::tcp_user_timeout(fd).unwrap();
        bounds.push((silence, sockopt::tcp_keepidle(fd).unwrap().as_secs()));
        assert!(sockopt::socket_keepalive(fd).unwrap());
    };
    look(world.base.control(id).unwrap());
    look(&world.base(0).get_mut(ids[0].0).unwrap().socket().unwrap().fd);
    look(world.mobiles[0].as_ref().unwrap().control_fd().unwrap());
    look(&world.mobile(0).get_mut(ids[0].0).unwrap().socket().unwrap().fd);
    assert_eq!(bounds, [(180_000, 90); 4]);
}

#[test]
fn connections_that_say_nothing_hold_few_places_and_not_for_long() {
    let mut world = OneLoop::new(1);
    let mut silent = Vec::new();
    // From another address than the mobiles, which come from 127.0.0.1.
    for n in 0..600 {
        let socket = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
        socket.connect(&world.address.into()).unwrap();
        silent.push(socket);
        if n == 20 {
            silent.push(TcpStream::connect(world.address).unwrap().into());
        }
        world.step();
    }
    world.until("all are taken", |world| world.base.garbage() >= 600 - 512);
    assert_eq!(world.base.unproven().0, 512);
    // One of few waits still; the oldest of many had to go.
    let ended = |socket: &socket2::Socket| {
        socket.set_nonblocking(true).unwrap();
        (&*socket).read(&mut [0; 1]).is_ok_and(|n| n == 0)
    };
    world.until("its end arrives", |_| ended(&silent[0]));
    assert!(!ended(&silent[21]) && ended(&silent[22]));
    let now = world.clock.now() + GREETING_TIMEOUT;
    let mut turn = Turn::new(now, world.clock, &mut world.reactor);
    world.base.handle_timeout(&mut turn);
    assert_eq!(world.base.unproven(), (0, 0));
    assert!(world.lost.is_empty());
}
