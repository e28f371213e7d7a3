//! Two bases over loopback.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::collections::BTreeSet;

use lasthop_hop::seal::{Allowed, PresharedKey};
use lasthop_kernel::clock::Clock;
use lasthop_kernel::reactor::Reactor;
use lasthop_kernel::turn::Source;
use rustix::process::{Resource, getrlimit, setrlimit};

use super::*;

/// Associations of one session each.
const SESSIONS: usize = 1000;
/// Nothing here should take longer.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(120);

struct Side {
    hop: WithPeers,
    reactor: Reactor<Source>,
    clock: Clock,
    /// Associations that stand, and those that were lost.
    up: BTreeSet<BaseAssociationId>,
    lost: Vec<(BaseAssociationId, String)>,
    /// Why others are not reached.
    unreachable: Vec<String>,
}

fn keys(n: u64) -> Keypair {
    Keypair::generate(Seed::from_u64(n))
}

impl Side {
    /// The base with those keys, which knows the one with the others.
    fn new(own: u64, peer: u64) -> Self {
        Self::sharing(own, peer, None)
    }

    /// The same, which shares a pre-shared key with the other.
    fn sharing(own: u64, peer: u64, psk: Option<u64>) -> Self {
        let here: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let settings = settings::srp(&SrpFile::default(), Passage::udp(false), STREAMS);
        let mobiles = lasthop_hop::Base::<_, Srp>::new(
            settings,
            keys(own),
            Vec::<Allowed>::new(),
            Seed::from_u64(own),
        );
        let mobiles = DatagramBase::new("srp", mobiles, Box::new(Udp::bind(&[here]).unwrap()));
        let (name, key, via) = ("peer".to_owned(), *keys(peer).public(), here.ip());
        let peers = [Peer { name, key, psk: None, address: here, hop: None, via }];
        let psks = psk.map(|n| (key, PresharedKey::generate(Seed::from_u64(n))));
        let seed = Seed::from_u64(own).child("backhaul");
        let (udp, memory) = (Udp::bind(&[here]).unwrap(), Memory::default());
        let psks = psks.into_iter().collect();
        let keys = keys(own);
        let packet_max = HopConfig::default().packet_max;
        let backhaul =
            Backhaul { udp, part: None, keys, psks, peers: &peers, seed, memory, packet_max };
        let hop = WithPeers::open(Box::new(mobiles), backhaul);
        let (reactor, clock) = (Reactor::new().unwrap(), Clock::start());
        let mut side =
            Self { hop, reactor, clock, up: BTreeSet::new(), lost: vec![], unreachable: vec![] };
        side.with(|hop, turn| hop.start(turn)).unwrap();
        side
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut WithPeers, &mut Turn<'_>) -> T) -> T {
        let mut turn = Turn::new(self.clock.now(), self.clock, &mut self.reactor);
        act(&mut self.hop, &mut turn)
    }

    fn turn(&mut self) {
        let mut ready = Vec::new();
        self.reactor.wait(Some(Duration::from_millis(1)), &mut ready).unwrap();
        self.with(|hop, turn| {
            for (source, readiness) in ready {
                if let Source::Hop(part, key) = source {
                    hop.handle_ready(&mut turn.within(part), key, readiness);
                }
            }
            hop.handle_timeout(turn);
            hop.pump(turn);
        });
        while let Some(event) = self.hop.poll_event() {
            match event {
                HopEvent::Up(id) => drop(self.up.insert(id)),
                HopEvent::Lost(id, why) => self.lost.push((id, why)),
                // One that is to come to stand takes its time where so many do.
                HopEvent::Unreachable(_, why) => self.unreachable.push(why),
                HopEvent::Moved(..) => {}
            }
        }
        self.with(|hop, turn| hop.flush(turn));
    }
}

/// The second base, as the first knows it.
fn peer_at(far: &Side) -> Peer {
    let Some(peers) = &far.hop.peers else { panic!("it knows the other") };
    let address: SocketAddr = peers.listener.places()[0].parse().unwrap();
    let via = address.ip();
    Peer { name: "far".to_owned(), key: *keys(2).public(), psk: None, address, hop: None, via }
}

/// SEC-40, SEC-41: two bases with the same pre-shared key find each other; with others, or with one at one end only,
/// they do not, and both logs say what to compare.
#[test]
fn two_bases_come_to_an_association_with_the_same_pre_shared_key_and_no_other() {
    for (ours, theirs) in [(Some(1), Some(1)), (Some(1), Some(2)), (Some(1), None), (None, Some(2))]
    {
        let (mut near, mut far) = (Side::sharing(1, 2, ours), Side::sharing(2, 1, theirs));
        let peer = peer_at(&far);
        near.with(|hop, turn| hop.link(turn, &peer, Purpose::Messages)).unwrap();
        let began = std::time::Instant::now();
        let mut refused = None;
        let done = |near: &Side, far: &Side, refused: &Option<_>| match ours == theirs {
            true => !near.up.is_empty() && !far.up.is_empty(),
            false => !near.unreachable.is_empty() && Option::is_some(refused),
        };
        while !done(&near, &far, &refused) && began.elapsed() < PATIENCE {
            near.turn();
            far.turn();
            refused = refused.or(far.hop.poll_refused());
        }
        assert!(done(&near, &far, &refused), "{ours:?} {theirs:?}");
        if ours == theirs {
            assert!(refused.is_none() && near.unreachable.is_empty());
            continue;
        }
        assert!(near.up.is_empty() && far.up.is_empty(), "{ours:?} {theirs:?}");
        let why = &near.unreachable[0];
        assert!(why.contains("compare the pre-shared keys") && why.contains("[[peers]]"), "{why}");
        let whose = refused.map(|(caller, refused)| (caller, refused.why));
        assert_eq!(
            whose,
            Some((Caller::Base, lasthop_hop::Refusal::Unconfirmed(*keys(1).public())))
        );
    }
}

/// SEC-9: as many sessions of a base as there are have their sockets at another at once: no association
/// between the two ends for another.
#[test]
fn a_thousand_sessions_are_carried_on_between_two_bases_at_once() {
    // Each is a socket, and the usual soft limit is 1024.
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let (mut near, mut far) = (Side::new(1, 2), Side::new(2, 1));
    let peer = peer_at(&far);
    for n in 0..SESSIONS {
        let purpose = match n {
            0 => Purpose::Messages,
            n => Purpose::Bytes(SessionId(n as u64)),
        };
        near.with(|hop, turn| hop.link(turn, &peer, purpose)).unwrap();
    }
    let began = std::time::Instant::now();
    let stands = |near: &Side, far: &Side| near.up.len() >= SESSIONS && far.up.len() >= SESSIONS;
    while !stands(&near, &far) && began.elapsed() < PATIENCE {
        near.turn();
        far.turn();
    }
    assert_eq!((near.up.len(), far.up.len()), (SESSIONS, SESSIONS), "{:?}", near.lost);
    // Longer than what is silent is taken for gone.
    let stood = std::time::Instant::now();
    while stood.elapsed() < SILENCE + KEEPALIVE {
        near.turn();
        far.turn();
    }
    assert_eq!((&near.lost, &far.lost), (&vec![], &vec![]));
    assert!(near.up.iter().all(|id| match id {
        BaseAssociationId::Link(part) => near.hop.is_linked(*part),
        _ => false,
    }));
}
