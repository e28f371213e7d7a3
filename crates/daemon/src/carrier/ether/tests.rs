//! Frames over real virtual interfaces, where namespaces are permitted.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use lasthop_kernel::netns::{Netns, NetnsError};
use lasthop_kernel::reactor::Reactor;
use lasthop_kernel::slab::Slab;
use lasthop_kernel::turn::Source;

use super::*;

/// A namespace, or none where tests may not have one.
fn netns() -> Option<Netns> {
    lasthop_testing::or_skip(Netns::anonymous(), NetnsError::is_unavailable)
}

/// Two namespaces joined by an interface called `wire0` in each, or none where they are forbidden.
fn hosts() -> Option<[Netns; 2]> {
    let hosts = [netns()?, netns()?];
    join(&hosts);
    Some(hosts)
}

fn join([a, b]: &[Netns; 2]) {
    a.veth("wire0", b, "wire0").unwrap();
    for host in [a, b] {
        host.interface_up("wire0", &[]).unwrap();
    }
}

/// One end, and the loop that it is watched by.
struct End {
    ether: Ether,
    reactor: Reactor<Source>,
    clock: Clock,
}

impl End {
    fn open(host: &Netns, framing: Framing) -> Self {
        let ether = host.enter(|| Ether::open("wire0", framing)).unwrap().unwrap();
        let mut end = Self { ether, reactor: Reactor::new().unwrap(), clock: Clock::start() };
        end.with(|ether, turn| ether.watch(turn, &mut |_| Slab::new().insert(())).unwrap());
        // The kernel takes a moment to notice that the other end is there.
        while end.ether.state != State::Up {
            end.turn();
        }
        end
    }

    fn with<T>(&mut self, f: impl FnOnce(&mut Ether, &mut Turn<'_>) -> T) -> T {
        let (now, clock) = (self.clock.now(), self.clock);
        f(&mut self.ether, &mut Turn::new(now, clock, &mut self.reactor))
    }

    /// Lets the kernel say what it has to say, and timers act.
    fn turn(&mut self) {
        let mut ready = Vec::new();
        self.reactor.wait(Some(Duration::from_millis(10)), &mut ready).unwrap();
        self.with(|ether, turn| {
            for (_, readiness) in ready {
                ether.ready(turn, 0, readiness);
            }
            if ether.next_timeout().is_some_and(|at| at <= turn.now) {
                ether.handle_timeout(turn);
            }
        });
    }

    fn send(&mut self, to: Mac, datagrams: &[Vec<u8>]) {
        let mut waiting: VecDeque<_> = datagrams.iter().collect();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !waiting.is_empty() || self.ether.is_blocked() {
            assert!(Instant::now() < deadline, "{} were not sent", waiting.len());
            self.with(|ether, turn| {
                ether.send(turn, &mut |out| {
                    let datagram = waiting.pop_front()?;
                    out[..datagram.len()].copy_from_slice(datagram);
                    Some((Route::Ethernet(to), datagram.len()))
                });
            });
            if self.ether.is_blocked() {
                self.turn();
            }
        }
    }

    fn receive(&mut self, count: usize) -> Vec<(Mac, Vec<u8>)> {
        let mut got = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(60);
        while got.len() < count {
            assert!(Instant::now() < deadline, "{} of {count} came", got.len());
            self.turn();
            let clock = self.clock;
            self.ether.receive(&clock, &mut |_, from, datagram| {
                let Route::Ethernet(from) = from else { panic!("from {from:?}") };
                got.push((from, datagram.to_vec()));
            });
        }
        got
    }
}

fn row(lengths: impl IntoIterator<Item = usize>) -> Vec<Vec<u8>> {
    lengths.into_iter().enumerate().map(|(i, len)| vec![i as u8; len]).collect()
}

#[test]
fn datagrams_of_all_lengths_arrive_with_their_senders_address() {
    let Some([a, b]) = hosts() else { return };
    let (mut a, mut b) = (End::open(&a, Framing::Sized), End::open(&b, Framing::Sized));
    let sent =
        row([1, 0, 46, 1498, 2, 900, 1498].into_iter().chain(std::iter::repeat_n(1400, 300)));
    a.send(b.ether.mac(), &sent);
    let got = b.receive(sent.len());
    assert!(got.iter().all(|(from, _)| *from == a.ether.mac()));
    assert!(got.iter().map(|(_, datagram)| datagram).eq(&sent));
}

#[test]
fn everyone_is_reached_by_one_frame_and_the_answer_names_its_sender() {
    let Some([a, b]) = hosts() else { return };
    let (mut a, mut b) = (End::open(&a, Framing::Bare), End::open(&b, Framing::Bare));
    assert_eq!(a.ether.everyone(), Some(Route::Ethernet(Mac::BROADCAST)));
    a.send(Mac::BROADCAST, &row([60]));
    let (from, _) = b.receive(1).remove(0);
    b.send(from, &row([61]));
    assert_eq!(a.receive(1), [(b.ether.mac(), vec![0; 61])]);
}

#[test]
fn frames_of_another_type_are_nobodys() {
    let Some([a, b]) = hosts() else { return };
    let mut other = End::open(&a, Framing::Bare);
    let (mut a, mut b) = (End::open(&a, Framing::Sized), End::open(&b, Framing::Sized));
    other.send(b.ether.mac(), &row([100, 100]));
    a.send(b.ether.mac(), &row([7]));
    assert_eq!(b.receive(1).len(), 1);
}

#[test]
fn a_length_beyond_the_frame_is_garbage_and_padding_is_cut() {
    let mut padded = [0, 3, 1, 2, 3, 0, 0, 0, 0];
    assert_eq!(Framing::Sized.strip(&mut padded), Some(&mut [1, 2, 3][..]));
    for short in [&mut [0_u8, 4, 1, 2, 3][..], &mut [9], &mut []] {
        assert_eq!(Framing::Sized.strip(short), None);
    }
}

#[test]
fn an_interface_that_is_down_or_gone_is_used_again_when_it_is_back() {
    let Some(hosts) = hosts() else { return };
    let [a, b] = &hosts;
    let mut end = End::open(a, Framing::Sized);
    let until = |end: &mut End, state| {
        let deadline = Instant::now() + Duration::from_secs(60);
        while end.ether.state != state {
            assert!(Instant::now() < deadline, "it is {:?}, not {state:?}", end.ether.state);
            // Opened again, it is the thread's namespace that counts.
            a.enter(|| end.turn()).unwrap();
        }
    };
    a.ip("link set dev wire0 down\n").unwrap();
    until(&mut end, State::Down);
    assert_eq!(end.ether.poll_link_event(), Some((0, LinkEvent::Down)));
    // What is sent meanwhile is lost, and does not pile up.
    end.send(Mac::BROADCAST, &row([100; 200]));
    a.ip("link set dev wire0 up\n").unwrap();
    until(&mut end, State::Up);
    assert_eq!(end.ether.poll_link_event(), Some((0, LinkEvent::Up)));
    a.ip("link delete wire0\n").unwrap();
    until(&mut end, State::Gone);
    join(&hosts);
    until(&mut end, State::Up);
    let mut far = End::open(b, Framing::Sized);
    end.send(Mac::BROADCAST, &row([100]));
    assert_eq!(far.receive(1)[0].1.len(), 100);
}

#[test]
fn what_cannot_carry_frames_is_refused_by_name() {
    let Some([a, _]) = hosts() else { return };
    let open =
        |name: &str| a.enter(|| Ether::open(name, Framing::Sized).err().map(|e| e.to_string()));
    let said = open("lo").unwrap().unwrap();
    assert!(said.contains("`lo` is not Ethernet"), "{said}");
    let said = open("absent0").unwrap().unwrap();
    assert!(said.contains("no interface `absent0`"), "{said}");
}
