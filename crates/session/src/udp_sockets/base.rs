use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use lasthop_units::{Duration, Time, Timers};

use super::SocketNumber;

/// How many sockets there may be at a base, and for how long without a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Sockets of one mobile; at least one.
    pub per_mobile: usize,
    /// Sockets of all mobiles; at least one.
    pub total: usize,
    /// For how long a socket is kept that nothing passes. RFC 4787 REQ-5 forbids less than two minutes
    /// and recommends five or more.
    pub idle: Duration,
}

/// A base's UDP sockets: whose each is, and how long it is kept.
///
/// A mobile's socket is one and the same whatever it sends to, and takes what comes from anywhere:
/// mapping and filtering are independent of the endpoint (RFC 4787 REQ-1, REQ-8), so that applications
/// which introduce each other to third parties can be reached. `M` names a mobile's association, and is
/// another one after the mobile's process began anew, whose numbers begin anew too. `S` names a socket
/// of the caller's, for targets of both families.
#[derive(Debug)]
pub struct BaseSockets<M, S> {
    limits: Limits,
    sockets: BTreeMap<(M, SocketNumber), Socket<S>>,
    owners: BTreeMap<S, (M, SocketNumber)>,
    timers: Timers<(M, SocketNumber)>,
    /// Numbers that mobiles have closed, and when, the latest last.
    closed: VecDeque<(Time, (M, SocketNumber))>,
}

/// As long after its socket was closed a datagram may come that was sent before, and was lost at first.
const LATE: Duration = Duration::from_secs(10);
/// Its socket is kept for so long.
const LATE_IDLE: Duration = Duration::from_secs(1);
/// So many numbers are remembered that were closed.
const CLOSED_MAX: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Socket<S> {
    socket: S,
    /// For how long it may be idle.
    idle: Duration,
    /// When it has been idle for too long.
    until: Time,
}

impl<M: Copy + Ord, S: Copy + Ord> BaseSockets<M, S> {
    /// No sockets.
    pub fn new(limits: Limits) -> Self {
        let (sockets, owners) = (BTreeMap::new(), BTreeMap::new());
        Self { limits, sockets, owners, timers: Timers::new(), closed: VecDeque::new() }
    }

    /// The socket by which a mobile's datagram leaves, which counts as used. If there is none, open one
    /// and [`insert`](Self::insert) it.
    pub fn outgoing(&mut self, now: Time, mobile: M, number: SocketNumber) -> Option<S> {
        self.refresh(now, (mobile, number))
    }

    /// Whose a datagram is that came to a socket, wherever it came from. The socket counts as used, which
    /// RFC 4787 REQ-6 leaves open: an application that only listens keeps its socket. A stranger cannot
    /// keep it for good, since the mobile closes what it does not know.
    pub fn incoming(&mut self, now: Time, socket: S) -> Option<(M, SocketNumber)> {
        let owner = *self.owners.get(&socket)?;
        self.refresh(now, owner)?;
        Some(owner)
    }

    /// A mobile has a new socket. Returns one that the caller is to close: that which had the number, or
    /// the one that was idle for longest, of the mobile's where it has as many as it may, or else of all. One that the mobile
    /// has closed before, and that something late is sent by, is not kept for long.
    pub fn insert(&mut self, now: Time, mobile: M, number: SocketNumber, socket: S) -> Option<S> {
        let name = (mobile, number);
        let replaced = self.remove(name);
        let removed = replaced.or_else(|| self.make_room(mobile));
        let mut lately = self.closed.iter().rev().take_while(|(at, _)| now.since(*at) < LATE);
        let is_late = lately.any(|(_, closed)| *closed == name);
        let idle = if is_late { LATE_IDLE } else { self.limits.idle };
        let until = until(now, idle);
        self.sockets.insert(name, Socket { socket, idle, until });
        self.owners.insert(socket, (mobile, number));
        self.timers.replace((mobile, number), None, Some(until));
        removed
    }

    /// The mobile closes a socket: the caller's, to be closed.
    pub fn close(&mut self, now: Time, mobile: M, number: SocketNumber) -> Option<S> {
        if self.closed.len() >= CLOSED_MAX {
            self.closed.pop_front();
        }
        self.closed.push_back((now, (mobile, number)));
        self.remove((mobile, number))
    }

    /// A mobile's association is over: its sockets, to be closed.
    pub fn end(&mut self, mobile: M) -> Vec<S> {
        let names: Vec<_> = self.of(mobile).map(|(name, _)| *name).collect();
        names.into_iter().filter_map(|name| self.remove(name)).collect()
    }

    /// When the next socket will have been idle for too long.
    pub fn next_timeout(&self) -> Option<Time> {
        self.timers.next()
    }

    /// A socket that has been idle for too long, to be closed; call it until there is none.
    pub fn pop_idle(&mut self, now: Time) -> Option<S> {
        let name = self.timers.pop_due(now)?;
        self.remove(name)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sockets.len()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    fn of(&self, mobile: M) -> impl Iterator<Item = (&(M, SocketNumber), &Socket<S>)> {
        self.sockets.range((mobile, SocketNumber(0))..=(mobile, SocketNumber(u64::MAX)))
    }

    /// Removes a socket if one more would be too many. A look at all of one mobile's is little beside the
    /// opening of the one that is to come.
    fn make_room(&mut self, mobile: M) -> Option<S> {
        let oldest = if self.of(mobile).count() >= self.limits.per_mobile {
            self.of(mobile).min_by_key(|(_, socket)| socket.until).map(|(name, _)| *name)
        } else if self.sockets.len() >= self.limits.total {
            self.timers.pop_due(Time::NEVER)
        } else {
            None
        };
        self.remove(oldest?)
    }

    fn refresh(&mut self, now: Time, name: (M, SocketNumber)) -> Option<S> {
        let socket = self.sockets.get_mut(&name)?;
        let until = until(now, socket.idle);
        self.timers.replace(name, Some(socket.until), Some(until));
        socket.until = until;
        Some(socket.socket)
    }

    fn remove(&mut self, name: (M, SocketNumber)) -> Option<S> {
        let Socket { socket, until, .. } = self.sockets.remove(&name)?;
        self.timers.replace(name, Some(until), None);
        if self.owners.get(&socket) == Some(&name) {
            self.owners.remove(&socket);
        }
        Some(socket)
    }
}

/// When a socket that is used now has been idle for too long: on a whole second, so that timers are not moved for every
/// datagram.
fn until(now: Time, idle: Duration) -> Time {
    let second = Time::from_secs(1).as_nanos();
    let due = (now + idle).as_nanos();
    Time::from_nanos(due.div_ceil(second).saturating_mul(second))
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { per_mobile: 2, total: 3, idle: Duration::from_secs(300) };

    fn number(n: u64) -> SocketNumber {
        SocketNumber(n)
    }

    fn at(secs: u64) -> Time {
        Time::from_secs(secs)
    }

    fn idle(sockets: &mut BaseSockets<char, u32>, now: Time) -> Vec<u32> {
        core::iter::from_fn(|| sockets.pop_idle(now)).collect()
    }

    /// RFC 4787 section 4.1: endpoint-independent mapping. A number has one socket, whatever it sends to.
    #[test]
    fn a_number_of_a_mobile_has_one_socket() {
        let mut sockets = BaseSockets::new(LIMITS);
        assert_eq!(sockets.outgoing(at(0), 'a', number(1)), None);
        assert_eq!(sockets.insert(at(0), 'a', number(1), 10), None);
        assert_eq!(sockets.insert(at(0), 'b', number(1), 11), None);
        assert_eq!(sockets.outgoing(at(1), 'a', number(1)), Some(10));
        assert_eq!(sockets.outgoing(at(1), 'b', number(1)), Some(11));
        assert_eq!(sockets.outgoing(at(1), 'a', number(2)), None);
    }

    /// RFC 4787 section 5: endpoint-independent filtering. Whoever sends to the socket reaches the mobile.
    #[test]
    fn what_comes_to_a_socket_is_its_mobiles_from_wherever_it_came() {
        let mut sockets = BaseSockets::new(LIMITS);
        sockets.insert(at(0), 'a', number(7), 10);
        assert_eq!(sockets.incoming(at(1), 10), Some(('a', number(7))));
        assert_eq!(sockets.incoming(at(1), 11), None);
    }

    /// RFC 4787 section 4.3: not less than two minutes, five or more by default.
    #[test]
    fn a_socket_is_idle_after_five_minutes_without_a_datagram() {
        let mut sockets = BaseSockets::new(Limits { per_mobile: 256, total: 4096, ..LIMITS });
        sockets.insert(at(0), 'a', number(1), 10);
        sockets.insert(at(0), 'a', number(2), 11);
        sockets.insert(at(0), 'a', number(3), 12);
        assert_eq!(sockets.next_timeout(), Some(at(300)));
        assert_eq!(sockets.outgoing(at(200), 'a', number(2)), Some(11));
        assert_eq!(sockets.incoming(at(250), 12), Some(('a', number(3))));
        assert_eq!(idle(&mut sockets, at(299)), []);
        assert_eq!(idle(&mut sockets, at(300)), [10]);
        assert_eq!(sockets.outgoing(at(300), 'a', number(1)), None);
        assert_eq!(sockets.next_timeout(), Some(at(500)));
        assert_eq!(idle(&mut sockets, at(550)), [11, 12]);
        assert!(sockets.is_empty() && sockets.next_timeout().is_none());
    }

    #[test]
    fn a_socket_is_never_idle_too_early_and_hardly_too_late() {
        let mut sockets = BaseSockets::new(LIMITS);
        let now = Time::from_millis(1500);
        sockets.insert(now, 'a', number(1), 10);
        assert_eq!(sockets.next_timeout(), Some(at(302)));
    }

    #[test]
    fn a_mobile_at_its_bound_loses_its_own_that_was_idle_for_longest() {
        let mut sockets = BaseSockets::new(LIMITS);
        sockets.insert(at(0), 'b', number(1), 20);
        sockets.insert(at(1), 'a', number(1), 10);
        sockets.insert(at(2), 'a', number(2), 11);
        sockets.outgoing(at(3), 'a', number(1));
        assert_eq!(sockets.insert(at(4), 'a', number(3), 12), Some(11));
        assert_eq!(sockets.incoming(at(5), 11), None);
        assert_eq!(sockets.outgoing(at(5), 'b', number(1)), Some(20));
    }

    #[test]
    fn at_the_bound_of_all_the_one_that_was_idle_for_longest_goes() {
        let mut sockets = BaseSockets::new(LIMITS);
        sockets.insert(at(1), 'a', number(1), 10);
        sockets.insert(at(2), 'a', number(2), 11);
        sockets.insert(at(3), 'b', number(1), 20);
        sockets.incoming(at(4), 10);
        assert_eq!(sockets.insert(at(5), 'c', number(1), 30), Some(11));
        assert_eq!(sockets.len(), 3);
    }

    #[test]
    fn sockets_end_when_the_mobile_closes_them_or_goes() {
        let mut sockets = BaseSockets::new(LIMITS);
        sockets.insert(at(0), 'a', number(1), 10);
        sockets.insert(at(0), 'a', number(2), 11);
        sockets.insert(at(0), 'b', number(1), 20);
        assert_eq!(sockets.close(at(1), 'b', number(1)), Some(20));
        assert_eq!(sockets.close(at(1), 'b', number(1)), None);
        assert_eq!(sockets.end('a'), [10, 11]);
        assert_eq!(sockets.end('a'), []);
        assert!(sockets.is_empty() && sockets.next_timeout().is_none());
    }

    /// What comes behind the word that its socket is closed is sent, and the socket does not stay.
    #[test]
    fn a_late_datagram_keeps_no_socket() {
        let mut sockets = BaseSockets::new(LIMITS);
        sockets.insert(at(0), 'a', number(1), 10);
        assert_eq!(sockets.close(at(1), 'a', number(1)), Some(10));
        for (n, kept) in [(1, 1), (2, 300)] {
            assert_eq!(sockets.outgoing(at(2), 'a', number(n)), None);
            sockets.insert(at(2), 'a', number(n), 20 + n as u32);
            assert_eq!(sockets.outgoing(at(3), 'a', number(n)), Some(20 + n as u32));
            assert_eq!(idle(&mut sockets, at(3 + kept - 1)), []);
            assert_eq!(idle(&mut sockets, at(3 + kept)), [20 + n as u32]);
        }
        // By then nothing of it is on its way any more.
        sockets.insert(at(400), 'a', number(1), 30);
        assert_eq!(idle(&mut sockets, at(699)), []);
    }

    #[test]
    fn a_socket_in_place_of_another_gives_that_back() {
        let mut sockets = BaseSockets::new(LIMITS);
        sockets.insert(at(0), 'a', number(1), 10);
        assert_eq!(sockets.insert(at(0), 'a', number(1), 11), Some(10));
        assert_eq!(sockets.incoming(at(1), 10), None);
        assert_eq!(sockets.incoming(at(1), 11), Some(('a', number(1))));
    }

    proptest! {
        /// Every socket that was put in comes out once, and what is in is within the bounds.
        #[test]
        fn sockets_are_bounded_and_given_back_once(
            steps in prop::collection::vec((0u8..6, 0u8..4, 0u64..4, 0u64..200), 1..200),
        ) {
            let mut sockets = BaseSockets::new(LIMITS);
            let (mut now, mut open) = (Time::ZERO, BTreeSet::new());
            for (socket, (step, mobile, n, pause)) in steps.into_iter().enumerate() {
                now += Duration::from_millis(pause * 1000 + n);
                let mut closed = Vec::new();
                match step {
                    0 => closed.extend(sockets.close(now, mobile, number(n))),
                    1 => closed.extend(sockets.end(mobile)),
                    2 => closed.extend(core::iter::from_fn(|| sockets.pop_idle(now))),
                    _ => if sockets.outgoing(now, mobile, number(n)).is_none() {
                        closed.extend(sockets.insert(now, mobile, number(n), socket));
                        open.insert(socket);
                    },
                }
                for socket in closed {
                    prop_assert!(open.remove(&socket));
                }
                prop_assert_eq!(sockets.len(), open.len());
                prop_assert!(sockets.len() <= LIMITS.total);
                prop_assert!(sockets.of(mobile).count() <= LIMITS.per_mobile);
                prop_assert_eq!(sockets.timers.len(), open.len());
                prop_assert!(sockets.owners.keys().eq(&open));
            }
        }
    }
}
