//! Several serve a base together: a datagram finds whose it is, wherever it comes in.

use alloc::collections::BTreeMap;

use super::*;
use crate::seal::Allowed;

const PARTS: u32 = 3;
const MOBILES: u64 = 9;

/// The parts of one base, each with the mobiles that it serves, and mobiles beside them. Nothing is lost, and all
/// takes a millisecond.
struct Served {
    now: Time,
    parts: Vec<Base<Addr>>,
    mobiles: Vec<(Addr, Mobile<Addr>)>,
    numbers: lasthop_units::Stream,
    events: Vec<(u32, AssociationId, AssociationEvent)>,
    strays: usize,
}

/// Which part serves a mobile.
fn home(n: u64) -> u32 {
    n as u32 % PARTS
}

impl Served {
    fn new(seed: u64) -> Self {
        let mobiles = (1..=MOBILES).map(|n| (n as Addr, mobile(n, 1 << 60))).collect();
        Self::with(seed, mobiles, false)
    }

    /// Peers that call for what one of the parts has, each of them for several; all parts know all peers.
    fn greeted(seed: u64) -> Self {
        let calling = |n: u64| {
            let mut peer = mobile(1 + n % 2, 1 << 60);
            peer.greet(Time::ZERO, &[n as u8]);
            (n as Addr, peer)
        };
        Self::with(seed, (1..=MOBILES).map(calling).collect(), true)
    }

    fn with(seed: u64, mobiles: Vec<(Addr, Mobile<Addr>)>, greeted: bool) -> Self {
        let seed = Seed::from_u64(seed);
        let part = |number| {
            let served = (1..=MOBILES).filter(|n| greeted || home(*n) == number);
            let allowed: Vec<Allowed> = served.map(|n| (*keys(n).public()).into()).collect();
            let own = seed.child(&alloc::format!("part {number}"));
            let part = Part { number, of: PARTS, cookies: seed, greeted };
            let base = Base::new(HopConfig::default(), keys(0), allowed, own);
            base.with_many(if greeted { 10 } else { 1 }).with_part(Some(part))
        };
        Self {
            now: Time::ZERO,
            parts: (0..PARTS).map(part).collect(),
            mobiles,
            numbers: seed.stream("ways"),
            events: Vec::new(),
            strays: 0,
        }
    }

    /// A datagram comes in anywhere, and goes on to the part whose it is.
    fn deliver(&mut self, from: Addr, mut datagram: Vec<u8>) {
        let first = self.numbers.below(u64::from(PARTS)) as usize;
        self.parts[first].handle_datagram(self.now, from, &mut datagram);
        while let Some(stray) = self.parts[first].poll_stray() {
            self.strays += 1;
            let known: BTreeMap<[u8; 32], u32> =
                (1..=MOBILES).map(|n| (*keys(n).public().as_bytes(), home(n))).collect();
            let owner = match stray.owner {
                Owner::Part(part) => part,
                Owner::Greeted(greeting) => {
                    let owner = home(greeting[0].into());
                    if owner as usize == first {
                        self.parts[first].handle_stray(self.now, from, &mut stray.datagram.clone());
                        continue;
                    }
                    owner
                }
                Owner::Mobile(mobile) => match known.get(mobile.as_bytes()) {
                    Some(part) => *part,
                    None => {
                        self.parts[first].refuse_stranger(self.now, stray.from, mobile);
                        continue;
                    }
                },
            };
            assert_ne!(owner as usize, first);
            let mut datagram = stray.datagram;
            let part = &mut self.parts[owner as usize];
            part.handle_stray(self.now, stray.from, &mut datagram);
            assert_eq!(part.poll_stray(), None, "it was there");
        }
    }

    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        let mut out = [0; 2000];
        while self.now < until {
            self.now += Duration::from_millis(1);
            let now = self.now;
            let mut to_base = Vec::new();
            for (from, mobile) in &mut self.mobiles {
                mobile.handle_timeout(now);
                while let Some(t) = mobile.poll_transmit(now, &mut out) {
                    to_base.push((*from, out[..t.len].to_vec()));
                }
            }
            for (from, datagram) in to_base {
                self.deliver(from, datagram);
            }
            for (n, part) in self.parts.iter_mut().enumerate() {
                part.handle_timeout(now);
                while let Some(t) = part.poll_transmit(now, &mut out) {
                    if let Some((_, mobile)) = self.mobiles.iter_mut().find(|(at, _)| *at == t.to) {
                        mobile.handle_datagram(now, BASE, &mut out[..t.len]);
                    }
                }
                let events = core::iter::from_fn(|| part.poll_event());
                self.events.extend(events.map(|(id, event)| (n as u32, id, event)));
            }
        }
    }
}

fn mobile(n: u64, wall_clock: u64) -> Mobile<Addr> {
    let seed = Seed::from_u64(100 + n).child("mobile");
    Mobile::new(HopConfig::default(), keys(n), *keys(0).public(), BASE, seed, Time::ZERO)
        .with_wall_clock(Time::ZERO, wall_clock)
}

/// SCL-1: each association is where its mobile is served, whichever part its datagrams come to, after its keys were
/// renewed and from other addresses too; no name is given twice.
#[test]
fn associations_stand_where_their_mobiles_are_served_whichever_part_hears_them() {
    for seed in 0..4 {
        let mut w = Served::new(seed);
        let streams: Vec<StreamId> = w.mobiles.iter_mut().map(|m| m.1.open().unwrap()).collect();
        for minute in 0..5 {
            for ((_, mobile), stream) in w.mobiles.iter_mut().zip(&streams) {
                mobile.write(*stream, &[minute]).unwrap();
            }
            w.run(Duration::from_secs(60));
            for (at, _) in &mut w.mobiles {
                *at += 100;
            }
        }
        let mut ids = Vec::new();
        for n in 1..=MOBILES {
            let part = &mut w.parts[home(n) as usize];
            let found = part.associations().find(|(_, key, _)| *key == keys(n).public());
            let (id, ..) = found.expect("it is where it is served");
            let stream = streams[n as usize - 1];
            assert_eq!(read(part.association_mut(id).unwrap(), stream), [0, 1, 2, 3, 4]);
            ids.push(id);
        }
        let stand: usize = w.parts.iter().map(|part| part.associations().count()).sum();
        assert_eq!(stand as u64, MOBILES, "seed {seed}");
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len() as u64, MOBILES, "names are given once");
        let lost =
            |e: &&(u32, AssociationId, AssociationEvent)| matches!(e.2, AssociationEvent::Lost(_));
        assert_eq!(w.events.iter().find(lost), None);
        assert!(w.strays > 100);
    }
}

/// SCL-2: nobody is served by two parts at once: a mobile that begins anew replaces what it had, wherever its
/// handshake comes in, and what was recorded of it makes nothing.
#[test]
fn a_mobile_that_begins_anew_has_one_association_of_all_parts() {
    let mut w = Served::new(1);
    w.run(Duration::from_secs(1));
    for round in 1..20 {
        w.mobiles[0] = (1, mobile(1, (1 << 60) + round * 1_000_000_000));
        w.run(Duration::from_secs(1));
        assert!(w.mobiles[0].1.is_up());
        let all = w.parts.iter().flat_map(|part| part.associations());
        assert_eq!(all.filter(|(_, key, _)| *key == keys(1).public()).count(), 1);
    }
}

/// SCL-3: a stranger has no answer from any part, and one report.
#[test]
fn a_mobile_that_no_part_serves_is_refused_by_the_one_that_heard_it() {
    let mut w = Served::new(2);
    w.mobiles = vec![(50, mobile(50, 1 << 60))];
    w.run(Duration::from_secs(3));
    assert!(!w.mobiles[0].1.is_up() && w.events.is_empty());
    let refused: Vec<_> = w.parts.iter_mut().filter_map(BaseEnd::poll_refused).collect();
    assert!(!refused.is_empty());
    for refused in refused {
        assert_eq!(refused.why, Refusal::Stranger(*keys(50).public()));
    }
}

/// SCL-4: what one part demands, all know: under a flood a mobile whose address moves it to another part need not
/// begin anew, nor does any part answer what the others would not.
#[test]
fn a_cookie_of_one_part_is_good_for_all() {
    let mut w = Served::new(3);
    let mut junk = mobile(77, 1 << 60);
    let mut out = [0; 2000];
    let sent = junk.poll_transmit(w.now, &mut out).unwrap();
    let init = out[..sent.len].to_vec();
    let genuine = core::mem::take(&mut w.mobiles);
    // So many that every part demands cookies.
    for _ in 0..PARTS * 100 {
        w.deliver(666, init.clone());
    }
    w.mobiles = genuine;
    w.run(Duration::from_secs(2));
    assert!(w.mobiles.iter().all(|(_, mobile)| mobile.is_up()));
    let cookies: u64 = w.parts.iter().map(|part| part.stats().cookies).sum();
    assert!(cookies > 0);
}

/// SCL-8: what a peer calls for is at one part, and so is the association that it begins, wherever its datagrams come
/// in and whenever it renews its keys; one that calls for nothing is at any.
#[test]
fn a_peer_that_calls_for_something_comes_to_the_part_that_has_it() {
    for seed in 0..5 {
        let mut w = Served::greeted(seed);
        w.mobiles.push((50, mobile(3, 1 << 60)));
        w.run(Duration::from_secs(1));
        let streams: Vec<StreamId> =
            w.mobiles.iter_mut().map(|(_, peer)| peer.open().unwrap()).collect();
        for minute in 0..5 {
            for ((_, peer), stream) in w.mobiles.iter_mut().zip(&streams) {
                peer.write(*stream, &[minute]).unwrap();
            }
            w.run(Duration::from_secs(60));
            for (at, _) in &mut w.mobiles {
                *at += 100;
            }
        }
        let standing: Vec<usize> = w.parts.iter().map(|part| part.associations().count()).collect();
        assert_eq!(standing.iter().sum::<usize>() as u64, MOBILES + 1, "seed {seed}");
        assert!(standing.iter().all(|n| (3..=4).contains(n)), "seed {seed}: {standing:?}");
        for part in 0..PARTS {
            let served = (1..=MOBILES).filter(|n| home(*n) == part);
            let arrived = w.parts[part as usize].associations().map(|(_, key, _)| *key);
            let mut arrived: Vec<_> = arrived.filter(|key| key != keys(3).public()).collect();
            let mut called: Vec<_> = served.map(|n| *keys(1 + n % 2).public()).collect();
            arrived.sort();
            called.sort();
            assert_eq!(arrived, called, "seed {seed}");
        }
        let lost =
            |e: &&(u32, AssociationId, AssociationEvent)| matches!(e.2, AssociationEvent::Lost(_));
        assert_eq!(w.events.iter().find(lost), None);
    }
}

/// SCL-8: a mobile has one part, whatever its handshake calls for.
#[test]
fn a_mobile_that_calls_for_something_has_its_own_part() {
    let mut w = Served::new(4);
    for (n, (_, mobile)) in w.mobiles.iter_mut().enumerate() {
        mobile.greet(Time::ZERO, &[n as u8]);
    }
    w.run(Duration::from_secs(1));
    let standing: Vec<usize> = w.parts.iter().map(|part| part.associations().count()).collect();
    assert_eq!(standing, [3, 3, 3]);
}
