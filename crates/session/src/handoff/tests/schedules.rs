//! Random schedules: whatever is lost, whenever the mobile moves, whichever base loses all state and
//! whatever bases say that they should not, the bytes that arrive are the bytes that were sent.
//!
//! `LASTHOP_SCHEDULES` sets how many there are and `LASTHOP_FIRST` the first one's number; with
//! `LASTHOP_SEED` only that one runs, and with `LASTHOP_VERBOSE` it tells what happens.

use super::*;

/// What `cargo test` is told to run these again.
const TESTS: &str = "-p lasthop-session --lib handoff::tests::schedules";

struct Run {
    world: Roaming,
    dice: Numbers,
    /// How often the mobile moves.
    restless: f64,
    /// How often a base is restarted, and how often one says what it may not.
    fragile: f64,
    hostile: f64,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut dice = Seed::from_u64(seed).stream("steps");
        let limits = Limits {
            buffer: [3, 40, 700, 5000][dice.below(4) as usize],
            piece: [1, 7, usize::MAX][dice.below(3) as usize],
            unacknowledged: dice.below(800) as usize,
            presumed: dice.chance(0.5).then(|| dice.below(400) as i64 - 300),
            ..Limits::default()
        };
        let config = Config { datagram: Bytes::new(60 + dice.below(400)), ..Config::base() };
        let mut world = Roaming::with(seed, limits, config);
        world.loss = dice.uniform() * 0.15;
        let restless = dice.uniform();
        world.early = dice.chance(0.5);
        let fragile = if dice.chance(0.3) { dice.uniform() * 0.4 } else { 0.0 };
        // A session that breaks with its base is lost, and no other.
        world.panics_on_broken = fragile == 0.0;
        let hostile = if dice.chance(0.3) { dice.uniform() } else { 0.0 };
        Self { world, dice, restless, fragile, hostile }
    }

    fn pick(&mut self) -> Option<ConnId> {
        let n = self.world.apps.len() as u64;
        self.world.apps.keys().nth(self.dice.below(n.max(1)) as usize).copied()
    }

    fn size(&mut self) -> usize {
        1 + self.dice.below(600) as usize
    }

    fn step(&mut self) {
        let (n, m) = (self.size(), self.size());
        let kind = self.dice.below(100);
        let id = self.pick();
        let world = &mut self.world;
        match (kind, id) {
            (0..4, _) if world.apps.len() < 12 => {
                // What is sent to a base that has not the session yet would be lost with a further
                // handoff.
                let patient = kind < 2 || world.early && world.mobile.is_pending();
                world.connect(if patient { Opening::Faithful } else { Opening::Early });
            }
            (4..20, Some(id)) => world.write(id, n),
            (20..34, Some(id)) => world.read(id, n),
            (34..36, Some(id)) => world.finish(id),
            (36, Some(id)) if self.dice.chance(0.5) => world.reset(id),
            (37..42, _) => {
                let accept = self.dice.chance(0.9);
                if let Some(at) = world.serving() {
                    world.answer(at, accept);
                }
            }
            (42..46, _) => {
                // Right, wrong or never to come true.
                let (base, lead) = (1 + self.dice.below(3), self.dice.below(8000));
                world.imminent(base as u32, lead as u32 * MS);
            }
            (46..58, Some(id)) => {
                if let Some(at) = world.serving() {
                    world.relay(at, id, n, m);
                }
            }
            (58, Some(id)) => {
                if let Some(at) = world.serving() {
                    world.end(at, id);
                }
            }
            (59..63, _) if self.dice.chance(self.restless) => {
                world.upcall(1 + self.dice.below(3) as u32);
            }
            (63, _) if self.dice.chance(self.fragile) => world.crash(self.dice.below(3) as usize),
            (64..68, _) if self.dice.chance(self.hostile) => attacks::any(world, &mut self.dice),
            (68, _) if self.dice.chance(self.fragile) => world.notice(),
            (63..75, _) => world.carry(n, 0),
            (75..87, _) => world.carry(0, m),
            (87..95, _) => {
                world.deliver();
                world.deliver();
            }
            (95.., _) => world.wait(self.dice.below(150) as u32 * MS),
            _ => {}
        }
        self.world.poll();
    }

    /// Lets everything end.
    fn drain(&mut self) {
        let world = &mut self.world;
        world.notice();
        for _ in 0..3000 {
            world.run(20 * MS);
            let at = world.serving();
            for id in world.apps.keys().copied().collect::<Vec<_>>() {
                world.finish(id);
                if let Some(at) = at {
                    world.end(at, id);
                }
            }
            for _ in 0..30 {
                world.read_all();
                world.carry(usize::MAX, usize::MAX);
            }
            let left = world.serving().and_then(|at| world.stations[at].surrogate.as_ref());
            let left = left.map_or(1, |surrogate| surrogate.session.connections());
            let closed = world.apps.values().all(|app| app.closed);
            if !world.mobile.is_pending() && closed && left == 0 {
                break;
            }
        }
        assert!(!world.mobile.is_pending(), "a handoff that never ends");
        // Longer than anything is remembered.
        for _ in 0..300 {
            world.wait(500 * MS);
            while world.deliver() {}
        }
    }

    fn check(&self) {
        let world = &self.world;
        for (id, app) in &world.apps {
            assert!(app.closed, "{id} never closes: {app:?} {:?}", world.wired.get(id));
            if world.spoiled.contains(id) {
                continue;
            }
            let Some(wired) = world.wired.get(id) else {
                let events: Vec<_> = world.events.iter().filter(|e| e.id() == *id).collect();
                panic!("{id} was never answered: {app:?} {events:?} {:?}", world.told);
            };
            assert_eq!((wired.up, app.read), (app.written, wired.down), "{id}");
            assert!(app.finished && wired.down_ended, "{id} closed early: {app:?} {wired:?}");
        }
        assert_eq!(world.session.connections(), 0);
        for (at, station) in world.stations.iter().enumerate() {
            let slots = [&station.surrogate, &station.guest].into_iter().flatten();
            let left: usize = slots.map(|slot| slot.session.connections()).sum();
            assert_eq!(left, 0, "left at base {}", at + 1);
            let Station { machine, surrogate, .. } = station;
            assert_eq!((machine.pending(), machine.copies()), (0, 0), "nobody drops it");
            let known = usize::from(surrogate.is_some());
            assert!(machine.sessions() <= known, "base {} remembers what it has not", at + 1);
        }
        assert!(world.serving().is_some(), "nobody serves");
    }
}

/// MHP-18, MHP-19, MHP-20, MHP-23, MOB-39..43: nothing is wrong, lost or doubled and nothing stays
/// behind, whatever the network does, whoever is restarted, and whatever is sent that should not be.
#[test]
fn what_arrives_is_what_was_sent_wherever_the_mobile_moves() {
    let seeds = lasthop_testing::schedules(1500);
    let count = seeds.end - seeds.start;
    let ran = lasthop_testing::run_all(seeds, |seed| Sum::of(&run(seed).world));
    let total = |of: fn(&Sum) -> usize| ran.iter().map(of).sum::<usize>() as u64;
    let resumed = total(|sum| sum.resumed);
    std::println!(
        "{count} schedules: {resumed} handoffs, {} of them early; {} broken sessions, {} bases \
         restarted, {} requests refused",
        total(|sum| sum.early),
        total(|sum| sum.broken),
        total(|sum| sum.crashes),
        total(|sum| sum.refused),
    );
    assert!(resumed * 3 > count * 4 || count < 100, "only {resumed} handoffs");
}

/// What happened in one of them.
struct Sum {
    resumed: usize,
    early: usize,
    broken: usize,
    crashes: usize,
    refused: usize,
}

impl Sum {
    fn of(world: &Roaming) -> Self {
        let refused = |(_, e): &&(u32, BaseEvent<u32>)| matches!(e, BaseEvent::Refused { .. });
        Self {
            resumed: world.resumed,
            early: if world.early { world.resumed } else { 0 },
            broken: world.broken,
            crashes: world.crashes,
            refused: world.base_told.iter().filter(refused).count(),
        }
    }
}

fn run(seed: u64) -> Run {
    let _replay = lasthop_testing::Replay::new(seed, TESTS);
    let mut run = Run::new(seed);
    for _ in 0..400 {
        run.step();
    }
    run.drain();
    run.check();
    run
}
