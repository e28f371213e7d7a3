//! A base that serves several mobiles, one of which means harm, as does whoever has recorded what the others said, or
//! has stolen the key of one but not what it shares with the base: handshakes made, repeated, changed and made up, from
//! any address. The honest mobiles get in while that goes on, but that whose key is stolen, as which nobody does then;
//! nothing panics or spins, and what the base keeps and answers stays bounded.

use std::collections::VecDeque;
use std::sync::LazyLock;
use std::time::Duration;

use arbitrary::Unstructured;
use lasthop_hop::seal::{Allowed, Keypair, PresharedKey, PublicKey};
use lasthop_hop::srp::Srp;
use lasthop_hop::{Base, HopConfig, Mobile, Streams};
use lasthop_units::{Seed, Time};

use crate::handoff::next;

type Addr = u16;

const BASE: Addr = 1000;
/// Where the honest mobiles are.
const HONEST: [Addr; 2] = [1, 2];
/// Associations that each may have, where each may have many.
const MANY: usize = 3;
/// Handshakes that are answered and that nobody has confirmed, and answers that wait.
const CANDIDATES_MAX: usize = 256;
const ANSWERS_MAX: usize = 512;
/// More datagrams than that at one instant would be an end that does not stop.
const BURST: usize = 2_000;
/// What goes on without end as the last mobiles come.
const FLOOD: usize = 16;
const WALL_CLOCK: u64 = 1 << 60;

/// Keys of the base, of the honest mobiles, of the insider, and of somebody whom the base does not know.
static KEYS: LazyLock<[Keypair; 5]> =
    LazyLock::new(|| [0, 1, 2, 3, 4].map(|n| Keypair::generate(Seed::from_u64(n))));
const INSIDER: usize = 3;
const STRANGER: usize = 4;
/// The honest mobile that shares a key with the base.
const SHARING: usize = 1;
static SHARED: LazyLock<PresharedKey> = LazyLock::new(|| PresharedKey::generate(Seed::from_u64(5)));

struct World {
    now: Time,
    base: Base<Addr>,
    honest: [Option<Mobile<Addr>>; 2],
    insiders: VecDeque<(Addr, Mobile<Addr>)>,
    begun: u64,
    /// Somebody uses the stolen key.
    stolen: bool,
    /// All that was sent to the base, the last of it.
    recorded: VecDeque<Vec<u8>>,
    /// What the others sent last, and from where.
    flood: VecDeque<(Addr, Vec<u8>)>,
}

fn mobile(keys: usize, seed: u64, now: Time, clock: u64) -> Mobile<Addr> {
    let (config, base) = (HopConfig::default(), *KEYS[0].public());
    let seed = Seed::from_u64(seed).child("mobile");
    Mobile::new(config, KEYS[keys].clone(), base, BASE, seed, now).with_wall_clock(now, clock)
}

impl World {
    fn new(many: bool) -> Self {
        let mut allowed: Vec<Allowed> =
            KEYS[1..=INSIDER].iter().map(|keys| (*keys.public()).into()).collect();
        allowed[SHARING].psk = SHARED.clone();
        let base =
            Base::<_, Srp>::new(HopConfig::default(), KEYS[0].clone(), allowed, Seed::from_u64(9));
        Self {
            now: Time::ZERO,
            base: if many { base.with_many(MANY) } else { base },
            honest: [None, None],
            insiders: VecDeque::new(),
            begun: 0,
            stolen: false,
            recorded: VecDeque::new(),
            flood: VecDeque::new(),
        }
    }

    /// Somebody who means harm sends something.
    fn send(&mut self, from: Addr, mut datagram: Vec<u8>) {
        self.base.handle_datagram(self.now, from, &mut datagram.clone());
        datagram.truncate(2000);
        self.flood.push_back((from, datagram));
        if self.flood.len() > FLOOD {
            self.flood.pop_front();
        }
    }

    /// An honest mobile calls, unless it has; it has something to say.
    fn join(&mut self, which: usize) {
        if self.honest[which].is_none() {
            let mut new = mobile(1 + which, 50 + which as u64, self.now, WALL_CLOCK);
            if which == SHARING {
                new = new.with_psk(self.now, SHARED.clone());
            }
            let stream = new.open().expect("room");
            assert_eq!(new.write(stream, &[which as u8]), Ok(1));
            self.honest[which] = Some(new);
        }
    }

    fn operate(&mut self, input: &mut Unstructured<'_>) {
        let [operation, argument]: [u8; 2] = next(input);
        let from = 2000 + Addr::from(argument >> 2);
        match operation % 10 {
            0 => self.join(usize::from(argument & 1)),
            1 | 2 => {
                // It calls anew, with the clock that it likes.
                self.begun += 1;
                let clock =
                    WALL_CLOCK + (u64::from(argument) << if argument & 1 > 0 { 52 } else { 20 });
                let keys = match (operation % 10, argument & 6) {
                    (2, 2) => STRANGER,
                    (2, 6) => 1 + SHARING,
                    _ => INSIDER,
                };
                self.stolen |= keys == 1 + SHARING;
                self.insiders.push_back((from, mobile(keys, 100 + self.begun, self.now, clock)));
                if self.insiders.len() > 4 {
                    self.insiders.pop_front();
                }
            }
            3 | 4 => {
                let Some(n) = self.recorded.len().checked_sub(1 + usize::from(next::<u8>(input)))
                else {
                    return;
                };
                let mut datagram = self.recorded[n].clone();
                if operation % 10 == 4 {
                    let at = usize::from(next::<u16>(input)) % datagram.len();
                    datagram[at] ^= next::<u8>(input);
                    datagram.truncate(datagram.len() - usize::from(argument & 1));
                }
                let times = if argument & 2 > 0 { 64 } else { 1 };
                for n in 0..times {
                    self.send(from + n, datagram.clone());
                }
            }
            5 => {
                let len = usize::from(argument);
                let bytes = input.bytes(len.min(input.len())).unwrap_or_default().to_vec();
                self.send(from, bytes);
            }
            6 => {
                if let Some((at, insider)) = self.insiders.front_mut() {
                    // It moves, and says something.
                    *at = from;
                    if let Ok(stream) = insider.open() {
                        let _ = insider.write(stream, &[7; 300]);
                    }
                }
            }
            // What is answered waits.
            7 => return,
            _ => {
                self.advance(Duration::from_millis(u64::from(argument) * u64::from(argument) / 16))
            }
        }
        self.settle();
    }

    fn advance(&mut self, by: Duration) {
        self.now += by;
        self.base.handle_timeout(self.now);
        let honest = self.honest.iter_mut().flatten();
        for mobile in honest.chain(self.insiders.iter_mut().map(|(_, mobile)| mobile)) {
            mobile.handle_timeout(self.now);
        }
    }

    /// All that is said arrives.
    fn settle(&mut self) {
        let (now, mut out, mut sent) = (self.now, [0; 9000], 0);
        loop {
            let mut moved = false;
            let honest = HONEST.into_iter().zip(&mut self.honest);
            let honest = honest.filter_map(|(at, mobile)| Some((at, mobile.as_mut()?)));
            let insiders = self.insiders.iter_mut().map(|(at, mobile)| (*at, mobile));
            for (at, mobile) in honest.chain(insiders) {
                while let Some(transmit) = mobile.poll_transmit(now, &mut out) {
                    let datagram = &mut out[..transmit.len];
                    self.recorded.push_back(datagram.to_vec());
                    self.base.handle_datagram(now, at, datagram);
                    (moved, sent) = (true, sent + 1);
                    assert!(sent < BURST, "a mobile does not stop");
                }
            }
            while self.recorded.len() > 256 {
                self.recorded.pop_front();
            }
            let mut answers = 0;
            while let Some(transmit) = self.base.poll_transmit(now, &mut out) {
                (moved, answers) = (true, answers + 1);
                assert!(answers <= ANSWERS_MAX, "the base does not stop");
                let datagram = &mut out[..transmit.len];
                if let Some(at) = HONEST.iter().position(|at| *at == transmit.to) {
                    let honest = self.honest[at].as_mut();
                    honest.into_iter().for_each(|m| m.handle_datagram(now, BASE, datagram));
                }
                for (_, insider) in self.insiders.iter_mut().filter(|(at, _)| *at == transmit.to) {
                    insider.handle_datagram(now, BASE, &mut datagram.to_vec());
                }
            }
            if !moved {
                break;
            }
            sent += answers;
            assert!(sent < BURST, "they do not stop");
        }
        while self.base.poll_event().is_some() {}
        while self.base.poll_call().is_some() {}
        while self.base.poll_refused().is_some() {}
        self.check();
    }

    fn check(&self) {
        let stats = self.base.stats();
        let standing = self.base.associations().count();
        assert!(standing <= MANY * INSIDER, "{standing} associations");
        assert!(self.base.unconfirmed() <= CANDIDATES_MAX);
        let sharing = KEYS[1 + SHARING].public();
        let is_in = self.base.associations().any(|(_, mobile, _)| mobile == sharing);
        assert!(!is_in || self.honest[SHARING].is_some(), "a stolen key is enough");
        // Each of these costs Diffie-Hellmans: of those that show no cookie, and of those that do.
        let read = (stats.handshakes + stats.strangers + stats.stale) as f64;
        let seconds = self.now.as_secs_f64();
        assert!(read <= 1050.0 + 2100.0 * seconds, "{stats:?} in {seconds} s");
    }

    fn heard(&mut self, which: usize) -> bool {
        let key = *KEYS[1 + which].public();
        let of = |(id, mobile, _): (_, &PublicKey, _)| (*mobile == key).then_some(id);
        let ids: Vec<_> = self.base.associations().filter_map(of).collect();
        ids.into_iter().any(|id| {
            let association = self.base.association_mut(id).expect("it stands");
            association.received(lasthop_hop::StreamId(0)) == [which as u8]
        })
    }
}

/// One input: what kind of base it is, and operations. What was sent last goes on while the honest mobiles come.
pub fn run(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let mut world = World::new(next::<u8>(&mut input) & 1 > 0);
    while !input.is_empty() {
        world.operate(&mut input);
    }
    let come_in = if world.stolen { 0..SHARING } else { 0..HONEST.len() };
    (0..HONEST.len()).for_each(|which| world.join(which));
    for _ in 0..1500 {
        for (from, datagram) in world.flood.clone() {
            world.base.handle_datagram(world.now, from, &mut datagram.clone());
        }
        world.settle();
        if come_in.clone().all(|which| world.heard(which)) {
            return;
        }
        world.advance(Duration::from_millis(10));
    }
    panic!("an honest mobile does not come in: {:?}", world.base.stats());
}
