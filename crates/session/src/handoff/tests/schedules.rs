//! Random schedules: whatever is lost, and whenever the mobile moves, the bytes that arrive are the
//! bytes that were sent.

use super::*;

/// Names the seed of a run that panics.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::eprintln!("failing seed: {}", self.0);
        }
    }
}

struct Run {
    world: World,
    dice: Numbers,
    /// How often the mobile moves.
    restless: f64,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut dice = Seed::from_u64(seed).stream("steps");
        let limits = Limits {
            buffer: [3, 40, 700, 5000][dice.below(4) as usize],
            piece: [1, 7, usize::MAX][dice.below(3) as usize],
            unacknowledged: dice.below(800) as usize,
            ..Limits::default()
        };
        let config = Config { datagram: Bytes::new(60 + dice.below(400)), ..Config::base() };
        let mut world = World::with(seed, limits, config);
        world.loss = dice.uniform() * 0.15;
        let restless = dice.uniform();
        Self { world, dice, restless }
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
                world.connect(if kind < 2 { Opening::Faithful } else { Opening::Early });
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
        for _ in 0..40 {
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
        let at = world.serving().expect("somebody serves");
        let surrogate = world.stations[at].surrogate.as_ref().expect("it serves");
        assert_eq!(surrogate.session.connections(), 0, "left at base {}", at + 1);
        let copies: usize = world.stations.iter().map(|station| station.machine.copies()).sum();
        assert_eq!(copies, 0, "copies that nobody drops");
    }
}

/// MHP-18, MHP-19, MHP-20, MHP-23, MOB-39..43: nothing is lost or doubled, whatever the network does.
#[test]
fn what_arrives_is_what_was_sent_wherever_the_mobile_moves() {
    let mut resumed = 0;
    for seed in 0..1500 {
        let _named = Named(seed);
        let mut run = Run::new(seed);
        for _ in 0..400 {
            run.step();
        }
        run.drain();
        run.check();
        resumed += run.world.resumed;
    }
    assert!(resumed > 2000, "only {resumed} handoffs");
}
