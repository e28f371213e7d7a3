//! Whether another agent is at the far end of the hop.

use lasthop_units::{Duration, Time};
use lasthop_wire::agent::beside::Hello;

use lasthop_kernel::mac::Mac;

/// How often an agent says that it is there.
pub(super) const HELLO_EVERY: Duration = Duration::from_millis(200);

/// How long a peer may be silent until it is taken for gone: four hellos in a row may be lost.
pub(super) const SILENT_AFTER: Duration = Duration::from_secs(1);

/// The least time between hellos: a peer that came is greeted at once, but whoever feigns peers
/// draws no more than this.
const HELLO_GAP: Duration = Duration::from_millis(20);

/// What became of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PeerEvent {
    /// It is there and receives from this end.
    Came,
    /// It was started anew, and knows nothing of what went before.
    Restarted,
    /// Nothing is received from it, or it receives nothing.
    Gone,
}

/// This end's view of the peer. A hello each 200 ms shows that this end is there and from whom it receives;
/// the peer counts as there once its hellos name this end, and as gone when nothing of
/// it was received for a second.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    epoch: u32,
    hello_due: Time,
    last_hello: Option<Time>,
    other: Option<Other>,
}

#[derive(Clone, Copy, Debug)]
struct Other {
    epoch: u32,
    mac: Mac,
    last_heard: Time,
    hears_us: bool,
}

impl Peer {
    /// No peer yet. `epoch` is drawn at random, so that the other end notices a restart.
    pub(super) const fn new(epoch: u32, now: Time) -> Self {
        Self {
            // Zero stands for no peer.
            epoch: if epoch == 0 { 1 } else { epoch },
            hello_due: now,
            last_hello: None,
            other: None,
        }
    }

    /// Whether the peer is there and receives from this end: packets can be numbered.
    pub(super) fn is_there(&self) -> bool {
        self.other.is_some_and(|other| other.hears_us)
    }

    /// The interface from which the peer's hellos came.
    pub(super) fn mac(&self) -> Option<Mac> {
        self.other.map(|other| other.mac)
    }

    /// A hello came from that interface. This end's own, which a loop brought back, tells nothing;
    /// nor does that of a third agent while the peer is there.
    pub(super) fn handle_hello(&mut self, now: Time, from: Mac, hello: Hello) -> Option<PeerEvent> {
        let stranger = |o: Other| o.mac != from && o.epoch != hello.epoch;
        if hello.epoch == self.epoch || self.other.is_some_and(stranger) {
            return None;
        }
        let hears_us = hello.heard == Some(self.epoch);
        let was =
            self.other.replace(Other { epoch: hello.epoch, mac: from, last_heard: now, hears_us });
        let is_same = was.is_some_and(|other| other.epoch == hello.epoch);
        if !is_same || !hears_us {
            let soonest = self.last_hello.map_or(now, |last| now.max(last + HELLO_GAP));
            self.hello_due = self.hello_due.min(soonest);
        }
        match (was.is_some_and(|other| other.hears_us), hears_us) {
            (false, true) => Some(PeerEvent::Came),
            (true, false) => Some(PeerEvent::Gone),
            (true, true) if !is_same => Some(PeerEvent::Restarted),
            _ => None,
        }
    }

    /// Another frame came from that interface: the peer is not silent.
    pub(super) fn handle_frame(&mut self, now: Time, from: Mac) {
        if let Some(other) = self.other.as_mut().filter(|other| other.mac == from) {
            other.last_heard = now;
        }
    }

    /// The hello to be sent, if it is time.
    pub(super) fn poll_hello(&mut self, now: Time) -> Option<Hello> {
        if now < self.hello_due {
            return None;
        }
        self.hello_due = now + HELLO_EVERY;
        self.last_hello = Some(now);
        Some(Hello { epoch: self.epoch, heard: self.other.map(|other| other.epoch) })
    }

    /// When [`handle_timeout`](Self::handle_timeout) and [`poll_hello`](Self::poll_hello) want to be
    /// called.
    pub(super) fn next_timeout(&self) -> Time {
        let silent = self.other.map(|other| other.last_heard + SILENT_AFTER);
        silent.map_or(self.hello_due, |silent| silent.min(self.hello_due))
    }

    /// The time asked for has come.
    pub(super) fn handle_timeout(&mut self, now: Time) -> Option<PeerEvent> {
        let other = self.other.filter(|other| now >= other.last_heard + SILENT_AFTER)?;
        self.other = None;
        other.hears_us.then_some(PeerEvent::Gone)
    }
}

/// What tells this run of the agent from the one before.
pub(super) fn epoch() -> u32 {
    let mut bytes = [0; 4];
    // Without randomness a restart is noticed a second later, by the silence before.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u32::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const B: Mac = Mac([2, 0, 0, 0, 0, 2]);

    fn ms(n: u64) -> Time {
        Time::from_millis(n)
    }

    fn hello(epoch: u32, heard: Option<u32>) -> Hello {
        Hello { epoch, heard }
    }

    /// Two ends, between which every hello arrives at once.
    fn run(a: &mut Peer, b: &mut Peer, from: u64, until: u64) -> Vec<(u64, char, PeerEvent)> {
        let mut events = Vec::new();
        for at in from..until {
            let now = ms(at);
            for _ in 0..3 {
                if let Some(hello) = a.poll_hello(now) {
                    events.extend(b.handle_hello(now, A, hello).map(|event| (at, 'b', event)));
                }
                if let Some(hello) = b.poll_hello(now) {
                    events.extend(a.handle_hello(now, B, hello).map(|event| (at, 'a', event)));
                }
            }
            events.extend(a.handle_timeout(now).map(|event| (at, 'a', event)));
            events.extend(b.handle_timeout(now).map(|event| (at, 'b', event)));
        }
        events
    }

    #[test]
    fn ends_that_hear_each_other_are_there_at_once() {
        let (mut a, mut b) = (Peer::new(7, ms(0)), Peer::new(8, ms(50)));
        assert_eq!(a.poll_hello(ms(0)), Some(hello(7, None)), "lost");
        let events = run(&mut a, &mut b, 50, 5000);
        assert_eq!(events, [(50, 'b', PeerEvent::Came), (70, 'a', PeerEvent::Came)]);
        assert!(a.is_there() && b.is_there());
        assert_eq!((a.mac(), b.mac()), (Some(B), Some(A)));
    }

    #[test]
    fn a_hello_is_due_each_200_ms() {
        let mut peer = Peer::new(1, ms(10));
        let at: Vec<u64> = (0..1000).filter(|&n| peer.poll_hello(ms(n)).is_some()).collect();
        assert_eq!(at, [10, 210, 410, 610, 810]);
        assert_eq!(peer.next_timeout(), ms(1010));
    }

    #[test]
    fn a_peer_that_receives_nothing_is_not_there() {
        let mut peer = Peer::new(1, ms(0));
        for n in 0..20 {
            assert_eq!(peer.handle_hello(ms(200 * n), B, hello(2, None)), None);
        }
        assert!(!peer.is_there());
        let event = peer.handle_hello(ms(4000), B, hello(2, Some(1)));
        assert_eq!(event, Some(PeerEvent::Came));
        let event = peer.handle_hello(ms(4200), B, hello(2, Some(3)));
        assert_eq!(event, Some(PeerEvent::Gone));
    }

    #[test]
    fn a_second_of_silence_is_a_peer_gone() {
        let mut peer = Peer::new(1, ms(0));
        assert_eq!(peer.handle_hello(ms(0), B, hello(2, Some(1))), Some(PeerEvent::Came));
        peer.poll_hello(ms(1400));
        peer.handle_frame(ms(500), B);
        peer.handle_frame(ms(999), A);
        assert_eq!(peer.handle_timeout(ms(1499)), None, "another frame of the peer's counts");
        assert_eq!(peer.next_timeout(), ms(1500));
        assert_eq!(peer.handle_timeout(ms(1500)), Some(PeerEvent::Gone));
        assert!(!peer.is_there() && peer.mac().is_none());
        assert_eq!(peer.handle_timeout(ms(9000)), None);
    }

    #[test]
    fn a_new_epoch_is_a_restart() {
        let mut peer = Peer::new(1, ms(0));
        peer.handle_hello(ms(0), B, hello(2, Some(1)));
        let event = peer.handle_hello(ms(10), B, hello(3, Some(1)));
        assert_eq!(event, Some(PeerEvent::Restarted));
        assert_eq!(peer.handle_hello(ms(20), B, hello(4, None)), Some(PeerEvent::Gone));
    }

    #[test]
    fn own_hellos_and_those_of_a_third_agent_tell_nothing() {
        let mut peer = Peer::new(1, ms(0));
        assert_eq!(peer.handle_hello(ms(0), A, hello(1, Some(1))), None);
        assert!(peer.mac().is_none());
        peer.handle_hello(ms(0), A, hello(2, Some(1)));
        assert_eq!(peer.handle_hello(ms(1), B, hello(3, Some(1))), None);
        assert!(peer.is_there() && peer.mac() == Some(A));
    }

    #[test]
    fn feigned_peers_do_not_draw_hellos_without_end() {
        let mut peer = Peer::new(1, ms(0));
        let sent = (0..10_000).filter(|&n| {
            let now = Time::from_micros(100 * n);
            peer.handle_hello(now, B, hello(2 + n as u32, None));
            peer.poll_hello(now).is_some()
        });
        let hellos = sent.count();
        assert!(hellos <= 51, "{hellos} hellos within a second");
    }

    #[test]
    fn an_epoch_of_zero_is_not_used() {
        assert_eq!(Peer::new(0, ms(0)).poll_hello(ms(0)), Some(hello(1, None)));
    }
}
