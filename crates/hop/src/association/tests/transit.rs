//! A path to a base that leads through another one.

use alloc::collections::VecDeque;

use lasthop_units::Stream as Numbers;
use lasthop_wire::datagram::Kind;

use super::*;

/// The base that passes on, and the address from which what it passes on leaves.
const OTHER: Addr = 2000;
const OUTLET: Addr = 3000;
/// The mobile's addresses: with its base by the first link, with both bases by the second.
const NEAR: Addr = 1;
const FAR: Addr = 11;
const CALLER: Addr = 12;
const SECOND: PathId = PathId(1);
const WAY: Duration = Duration::from_millis(10);

/// A mobile with an association with each of two bases.
struct World {
    now: Time,
    mobile: Mobile<Addr>,
    caller: Mobile<Addr>,
    base: Base<Addr>,
    other: Base<Addr>,
    air: VecDeque<(Time, Addr, Addr, Vec<u8>)>,
    /// The address by which the mobile's second path leaves.
    far: Addr,
    /// Nothing passes by the first link, or the second.
    dark: [bool; 2],
    /// A datagram's chance to be lost on a radio, and between the bases.
    loss: f64,
    numbers: Numbers,
    /// Datagrams that were passed on, and passed back.
    passed: [usize; 2],
}

impl World {
    fn new() -> Self {
        let other = || {
            let allowed = (1..=8).map(|n| *keys(n).public()).collect();
            Base::new(HopConfig::default(), keys(9), allowed, Seed::from_u64(2))
        };
        let mobile = |base, at| {
            let seed = Seed::from_u64(100 + u64::from(at)).child("mobile");
            let mobile = Mobile::new(HopConfig::default(), keys(1), base, at, seed, Time::ZERO);
            mobile.with_wall_clock(Time::ZERO, 1 << 60)
        };
        Self {
            now: Time::ZERO,
            mobile: mobile(*keys(0).public(), BASE),
            caller: mobile(*keys(9).public(), OTHER),
            base: new_base(1),
            other: other(),
            air: VecDeque::new(),
            far: FAR,
            dark: [false; 2],
            loss: 0.0,
            numbers: Seed::from_u64(1).stream("loss"),
            passed: [0; 2],
        }
    }

    /// The other base is asked to pass on, and the mobile told that it does.
    fn grant(&mut self) {
        let id = self.other.associations().next().unwrap().0;
        let grant = self.other.grant_transit(id).unwrap();
        assert_eq!(self.other.grant_transit(id), Some(grant), "there is one for each mobile");
        self.mobile.set_transit(SECOND, Some(grant));
        self.mobile.set_base_address(self.now, SECOND, OTHER);
    }

    fn fly(&mut self, from: Addr, to: Addr, bytes: &[u8]) {
        let near = from.min(to) == NEAR;
        let wired = from.min(to) >= BASE;
        if (wired || !self.dark[usize::from(!near)]) && !self.numbers.chance(self.loss) {
            // So both ways take as long.
            let at = self.now + if near { 2 * WAY } else { WAY };
            let behind = self.air.partition_point(|flying| flying.0 <= at);
            self.air.insert(behind, (at, from, to, bytes.to_vec()));
        }
    }

    fn transmit(&mut self) {
        let (mut out, now) = ([0; 2000], self.now);
        while let Some(t) = self.mobile.poll_transmit(now, &mut out) {
            let from = if t.path == SECOND { self.far } else { NEAR };
            self.fly(from, t.to, &out[..t.len]);
        }
        while let Some(t) = self.caller.poll_transmit(now, &mut out) {
            self.fly(CALLER, t.to, &out[..t.len]);
        }
        while let Some(t) = self.base.poll_transmit(now, &mut out) {
            self.fly(BASE, t.to, &out[..t.len]);
        }
        while let Some(t) = self.other.poll_transmit(now, &mut out) {
            self.fly(OTHER, t.to, &out[..t.len]);
        }
    }

    fn arrive(&mut self, from: Addr, to: Addr, mut bytes: Vec<u8>) {
        let now = self.now;
        match to {
            BASE => self.base.handle_datagram(now, from, &mut bytes),
            OTHER if Kind::of(&bytes) == Ok(Kind::Transit) => {
                if let Some((_, inner)) = self.other.transit(now, from, &bytes) {
                    let inner = inner.to_vec();
                    self.passed[0] += 1;
                    self.fly(OUTLET, BASE, &inner);
                }
            }
            OTHER => self.other.handle_datagram(now, from, &mut bytes),
            OUTLET => {
                let id = self.other.associations().next().map(|association| association.0);
                if let Some(at) = id.and_then(|id| self.other.transit_at(id)) {
                    self.passed[1] += 1;
                    self.fly(OTHER, at, &bytes);
                }
            }
            CALLER => self.caller.handle_datagram(now, from, &mut bytes),
            _ if to == NEAR || to == self.far => self.mobile.handle_datagram(now, from, &mut bytes),
            _ => {}
        }
    }

    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            self.transmit();
            let timers = [self.mobile.next_timeout(), self.caller.next_timeout()];
            let timers = timers.into_iter().chain([self.base.next_timeout()]).flatten();
            let next = timers.chain(self.other.next_timeout()).chain(self.air.front().map(|f| f.0));
            let Some(next) = next.min().filter(|at| *at < until) else { break };
            self.now = self.now.max(next);
            let now = self.now;
            while self.air.front().is_some_and(|f| f.0 <= now) {
                let (_, from, to, bytes) = self.air.pop_front().unwrap();
                self.arrive(from, to, bytes);
            }
            self.mobile.handle_timeout(now);
            self.caller.handle_timeout(now);
            self.base.handle_timeout(now);
            self.other.handle_timeout(now);
        }
        self.now = until;
    }

    fn association(&mut self) -> &mut Association<Addr> {
        let id = self.base.associations().next().unwrap().0;
        self.base.association_mut(id).unwrap()
    }

    /// Sends so many bytes down and checks them; by each way how many datagrams came.
    fn download(&mut self, id: StreamId, size: usize) -> [u64; 2] {
        let by = |w: &Self| {
            let mut received = [0; 2];
            for stats in w.mobile.path_stats() {
                received[usize::from(stats.id.0)] = stats.bytes_received.get();
            }
            received
        };
        let (before, until) = (by(self), self.now + Duration::from_secs(60));
        let (mut sent, mut got) = (0, Vec::new());
        let byte = |n: usize| (n * 7 + n / 251) as u8;
        while got.len() < size {
            loop {
                let piece: Vec<u8> = (sent..size.min(sent + 16_384)).map(byte).collect();
                match self.association().write(id, &piece).unwrap() {
                    0 => break,
                    n => sent += n,
                }
            }
            self.run(Duration::from_millis(5));
            got.extend(read(&mut self.mobile, id));
            assert!(self.now < until, "{} of {size}", got.len());
        }
        assert!(got.iter().enumerate().all(|(n, b)| *b == byte(n)));
        let after = by(self);
        [after[0] - before[0], after[1] - before[1]]
    }
}

/// A mobile that has said something to its base, and whose second link leads through the other one.
fn bonded() -> (World, StreamId) {
    let mut w = World::new();
    let id = w.mobile.open().unwrap();
    w.mobile.write(id, b"please").unwrap();
    w.run(Duration::from_secs(1));
    w.grant();
    w.run(Duration::from_secs(1));
    assert_eq!(read(w.association(), id), b"please");
    (w, id)
}

/// SRP-45: what goes by a link to another base is passed on by it, both ways, and either link will do alone.
#[test]
fn a_path_leads_through_another_base() {
    let (mut w, id) = bonded();
    assert_eq!(w.association().peer_by(SECOND), Some(OUTLET), "the other base is there");
    let by = w.download(id, 3_000_000);
    assert!(by.iter().all(|n| *n > 500_000), "{by:?}");
    for (dark, carries) in [([true, false], 1), ([false, true], 0)] {
        w.dark = dark;
        let by = w.download(id, 1_000_000);
        assert!(by[carries] > 1_000_000, "{dark:?}: {by:?}");
    }
    w.dark = [false; 2];
    let by = w.download(id, 3_000_000);
    assert!(by.iter().all(|n| *n > 500_000), "{by:?}");
    assert_eq!((w.base.stats().refused, w.mobile.refused()), (0, 0));
    // The link reaches the mobile's own base by now.
    w.mobile.set_transit(SECOND, None);
    w.mobile.set_base_address(w.now, SECOND, BASE);
    w.run(Duration::from_secs(1));
    let before = w.passed;
    let by = w.download(id, 3_000_000);
    assert!(by.iter().all(|n| *n > 500_000), "{by:?}");
    assert_eq!(w.passed, before);
}

/// SRP-45: what comes back goes where the mobile has proved to be, and follows it to another address.
#[test]
fn what_comes_back_follows_the_mobile() {
    let (mut w, id) = bonded();
    w.download(id, 300_000);
    w.far = FAR + 10;
    let now = w.now;
    w.mobile.handle_roamed(now, SECOND);
    w.run(Duration::from_millis(200));
    w.dark = [true, false];
    let by = w.download(id, 1_000_000);
    assert!(by[1] > 1_000_000, "{by:?}");
    let id = w.other.associations().next().unwrap().0;
    assert_eq!(w.other.transit_at(id), Some(FAR + 10));
}

/// SRP-45: a copy of the mobile's datagram from elsewhere leads nothing there: its sender is asked for a proof, which needs
/// the grant's token and what the base says to that address.
#[test]
fn nobody_else_gets_what_comes_back() {
    let (mut w, id) = bonded();
    w.download(id, 300_000);
    let association = w.other.associations().next().unwrap().0;
    let grant = w.other.grant_transit(association).unwrap();
    let stranger = 77;
    let mut forged = vec![Kind::Transit.first_byte(), 1];
    forged.extend(grant.receiver.to_be_bytes());
    forged.extend(b"garbage");
    let mut challenges = Vec::new();
    for _ in 0..1000 {
        let (of, inner) = w.other.transit(w.now, stranger, &forged).unwrap();
        assert_eq!((of, inner), (association, &b"garbage"[..]));
        let mut out = [0; 2000];
        while let Some(t) = w.other.poll_transmit(w.now, &mut out) {
            if t.to == stranger {
                challenges.push(out[..t.len].to_vec());
            }
        }
    }
    assert!((1..=100).contains(&challenges.len()), "{}", challenges.len());
    // The mobile answers what it is asked by a path, wherever that comes from: the answer is of no use elsewhere.
    let mut challenge = challenges[0].clone();
    w.mobile.handle_datagram(w.now, OTHER, &mut challenge);
    let mut out = [0; 2000];
    let proof = w.mobile.poll_transmit(w.now, &mut out).unwrap();
    let mut proof = out[..proof.len].to_vec();
    assert_eq!(Kind::of(&proof), Ok(Kind::TransitProof));
    for from in [FAR + 1, 78] {
        w.other.handle_datagram(w.now, from, &mut proof.clone());
        assert_eq!(w.other.transit_at(association), Some(FAR), "{from}");
    }
    *proof.last_mut().unwrap() ^= 1;
    w.other.handle_datagram(w.now, stranger, &mut proof);
    assert_eq!(w.other.transit_at(association), Some(FAR));
    // Without the grant nothing is passed on.
    forged[5] ^= 1;
    assert!(w.other.transit(w.now, stranger, &forged).is_none());
    w.download(id, 300_000);
}

/// SRP-45: what is granted ends with the association, and a hop without a seal grants nothing.
#[test]
fn a_grant_ends_with_its_association() {
    let (mut w, _) = bonded();
    let id = w.other.associations().next().unwrap().0;
    let grant = w.other.grant_transit(id).unwrap();
    w.other.set_allowed(&[*keys(2).public()]);
    assert_eq!(w.other.grant_transit(id), None);
    let mut late = vec![Kind::Transit.first_byte(), 1];
    late.extend(grant.receiver.to_be_bytes());
    late.extend(b"late");
    assert!(w.other.transit(w.now, FAR, &late).is_none());
    let mut plain = Base::<Addr>::unsealed(HopConfig::default(), Seed::from_u64(3));
    assert_eq!(plain.grant_transit(AssociationId(0)), None);
}

/// What happens to a path that leads through another base, now and then.
fn disturb(w: &mut World, random: &mut Numbers) {
    let now = w.now;
    match random.below(7) {
        0 => w.dark = [true, false],
        1 => w.dark = [false, true],
        2 => {
            w.far = FAR + random.below(50) as Addr * 10;
            w.mobile.handle_roamed(now, SECOND);
        }
        // The link has come to the mobile's own base, and leads to the other one again.
        3 => {
            w.mobile.set_transit(SECOND, None);
            w.mobile.set_base_address(now, SECOND, BASE);
        }
        4 if w.other.associations().next().is_some() => w.grant(),
        // The other base forgets all, and passes on when the mobile has come again.
        5 => w.other = World::new().other,
        _ => w.loss = [0.0, 0.05, 0.3][random.below(3) as usize],
    }
}

/// SRP-45: whatever becomes of the links, of the other base and of the mobile's addresses, bytes are the same both ways.
#[test]
fn bytes_are_exact_whichever_way_a_path_leads() {
    let byte = |n: usize| (n * 7 + n / 251) as u8;
    let mut passed = 0;
    for seed in 0..70 {
        let (mut w, id) = bonded();
        let mut random = Seed::from_u64(seed).stream("transit");
        let (mut sent, mut got) = ([0; 2], [0; 2]);
        for round in 0..60 {
            if round < 40 {
                disturb(&mut w, &mut random);
            } else {
                (w.loss, w.dark) = (0.0, [false; 2]);
            }
            let size = random.below(60_000) as usize;
            let piece = |from: usize| (from..from + size).map(byte).collect::<Vec<u8>>();
            if round < 40 {
                sent[0] += w.mobile.write(id, &piece(sent[0])).unwrap();
                sent[1] += w.association().write(id, &piece(sent[1])).unwrap();
            }
            w.run(Duration::from_millis(random.below(400)));
            for (end, got) in got.iter_mut().enumerate() {
                let new =
                    if end == 0 { read(w.association(), id) } else { read(&mut w.mobile, id) };
                assert!(new.iter().zip(*got..).all(|(b, n)| *b == byte(n)), "seed {seed}");
                *got += new.len();
            }
        }
        w.run(Duration::from_secs(5));
        got[0] += read(w.association(), id).len();
        got[1] += read(&mut w.mobile, id).len();
        assert_eq!(got, sent, "seed {seed}");
        passed += w.passed[1];
    }
    assert!(passed > 5_000, "{passed}");
}
