//! Random schedules: many streams, both ways, over a hop that loses half of all packets.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
struct Hop {
    loss: f64,
    damage: f64,
    copies: f64,
    reorder: usize,
}

struct Random(lasthop_units::Stream);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0.next_u64() % n
    }

    fn chance(&mut self, p: f64) -> bool {
        ((self.0.next_u64() >> 11) as f64) < p * (1_u64 << 53) as f64
    }
}

/// An application at one end of a stream: it writes its bytes, ends or resets, and reads.
struct App {
    id: StreamId,
    own: bool,
    data: Vec<u8>,
    expected: Vec<u8>,
    written: usize,
    got: usize,
    /// Gives up when so much was written.
    resets_at: Option<usize>,
    closed: bool,
    given_up: bool,
}

fn bytes(id: StreamId, up: bool, len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 13 + n / 256 + id.0 as usize * 41 + usize::from(up)) as u8).collect()
}

impl App {
    fn new(id: StreamId, role: Role, own: bool, random: &mut Random) -> Self {
        let up = role == Role::Mobile;
        let first = match (own, up) {
            (true, true) => open_to(v4(1, 80), Opening::Faithful),
            (true, false) => {
                let (to, from) = (v4(1, 80).into(), v4(2, 90).into());
                encoded(&Message::Offer { to, from, connection: None })
            }
            (false, _) => opened(v4(3, 70)),
        };
        let answer = match (own, up) {
            (true, _) => opened(v4(3, 70)),
            (false, false) => open_to(v4(1, 80), Opening::Faithful),
            (false, true) => {
                let (to, from) = (v4(1, 80).into(), v4(2, 90).into());
                encoded(&Message::Offer { to, from, connection: None })
            }
        };
        // What is sent is known to both from the stream's name.
        let len = |up: bool| ((id.0 * 7919 + u64::from(up) * 104_729) % 40_000) as usize;
        let resets_at = random.chance(0.1).then(|| random.below(40_000) as usize);
        Self {
            id,
            own,
            data: [first, bytes(id, up, len(up))].concat(),
            expected: [answer, bytes(id, !up, len(!up))].concat(),
            written: 0,
            got: 0,
            resets_at,
            closed: false,
            given_up: false,
        }
    }

    fn act(&mut self, end: &mut MobileTcp, random: &mut Random) {
        if self.closed {
            return;
        }
        if random.chance(0.8) {
            let piece = end.received(self.id);
            let n = piece.len().min(1 + random.below(5000) as usize);
            assert!(self.got + n <= self.expected.len(), "more than was sent on {:?}", self.id);
            assert!(piece[..n] == self.expected[self.got..self.got + n], "wrong on {:?}", self.id);
            end.consume(self.id, n);
            self.got += n;
        }
        let to = (self.written + random.below(6000) as usize).min(self.data.len());
        if let Ok(n) = end.write(self.id, &self.data[self.written..to]) {
            self.written += n;
        }
        if self.resets_at.is_some_and(|at| self.written >= at) {
            self.given_up = true;
            end.reset(self.id, 55);
        } else if self.written == self.data.len() {
            end.finish(self.id);
        }
    }
}

struct Side {
    end: MobileTcp,
    apps: Vec<App>,
    role: Role,
    random: Random,
    flying: VecDeque<Vec<u8>>,
}

impl Side {
    fn handle_events(&mut self) {
        while let Some(event) = self.end.poll_event() {
            let known = |id| self.apps.iter().position(|app| app.id == id);
            match event {
                StreamEvent::Incoming(id) => {
                    assert_eq!(known(id), None, "{id:?} came twice");
                    self.apps.push(App::new(id, self.role, false, &mut self.random));
                }
                StreamEvent::Closed(id) => {
                    let app = known(id).unwrap();
                    let twice = core::mem::replace(&mut self.apps[app].closed, true);
                    assert!(!twice, "{id:?} closed twice");
                }
                StreamEvent::Readable(id) => {
                    if let Some(app) = known(id)
                        && let RecvState::Reset(code) = self.end.recv_state(id)
                    {
                        assert_eq!(code, 55);
                        self.apps[app].given_up = true;
                    }
                }
                StreamEvent::Writable(_)
                | StreamEvent::Acknowledged(_)
                | StreamEvent::Finished(_) => {}
            }
        }
    }

    fn send(&mut self, now: Time, hop: Hop) -> bool {
        let Some(mut packet) = poll(&mut self.end, now) else { return false };
        let random = &mut self.random;
        if random.chance(hop.damage) {
            let at = random.below(packet.len() as u64) as usize;
            packet[at] ^= 1 << random.below(8);
        }
        if !random.chance(hop.loss) {
            let back = random.below(hop.reorder as u64 + 1) as usize;
            let at = self.flying.len().saturating_sub(back);
            if random.chance(hop.copies) {
                self.flying.push_back(packet.clone());
            }
            self.flying.insert(at, packet);
        }
        true
    }
}

/// Runs a schedule until all streams are over.
fn run(seed: u64, hop: Hop, streams: usize, config: &Config) {
    let seeds = Seed::from_u64(seed);
    let side = |role, name| Side {
        end: end(config, role),
        apps: Vec::new(),
        role,
        random: Random(seeds.stream(name)),
        flying: VecDeque::new(),
    };
    let mut sides = [side(Role::Mobile, "mobile"), side(Role::Base, "base")];
    let mut now = Time::ZERO;
    let mut to_open = streams;
    loop {
        let mut busy = false;
        for me in 0..2 {
            let side = &mut sides[me];
            if to_open > 0 && side.random.chance(0.05) {
                let id = side.end.open().unwrap();
                to_open -= 1;
                let app = App::new(id, side.role, true, &mut side.random);
                side.apps.push(app);
            }
            side.handle_events();
            for n in 0..side.apps.len() {
                side.apps[n].act(&mut side.end, &mut side.random);
            }
            side.handle_events();
            busy |= side.send(now, hop);
            if side.random.chance(0.8)
                && let Some(packet) = sides[1 - me].flying.pop_front()
            {
                busy = true;
                let _ = sides[me].end.handle(now, &packet);
            }
        }
        // A stream may be aborted before the other end has it.
        let over = |side: &Side| side.flying.is_empty() && side.apps.iter().all(|app| app.closed);
        if to_open == 0 && sides.iter().all(over) {
            break;
        }
        now += Duration::from_millis(1);
        let flying = sides.iter().any(|side| !side.flying.is_empty());
        if !busy && !flying && to_open == 0 {
            let timers = sides.iter().filter_map(|side| side.end.next_timeout());
            now = timers.min().unwrap_or(now).max(now);
        }
        for side in &mut sides {
            if side.end.next_timeout().is_some_and(|at| at <= now) {
                side.end.handle_timeout(now);
            }
            assert_eq!(side.end.closed(), None);
        }
        assert!(now < Time::from_secs(3000), "stuck");
    }
    for side in &sides {
        let memory = side.end.stats().memory;
        assert_eq!(memory, Bytes::ZERO, "{memory:?} held for nothing");
        for app in &side.apps {
            assert!(app.given_up || app.got == app.expected.len(), "{:?} was cut", app.id);
            assert!(app.own || !app.given_up || app.got <= app.expected.len());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// MOB-25: every stream arrives as it was sent or is reset, at both ends; half-closes, resets and
    /// losses of half of all packets are in every schedule.
    #[test]
    fn every_stream_arrives_whole_or_is_reset(
        seed: u64,
        loss in prop_oneof![Just(0.0), 0.0..0.5],
        damage in 0.0..0.05,
        copies in 0.0..0.2,
        small: bool,
        cap in prop_oneof![Just(None), (2000_u64..40_000).prop_map(Some)],
    ) {
        let config = Config {
            max_packet: Bytes::new(if small { 300 } else { 1460 }),
            inflight: cap.map(Bytes::new),
            ..Config::default()
        };
        run(seed, Hop { loss, damage, copies, reorder: 0 }, 12, &config);
    }

    /// MOB-25: a hop that reorders after all makes no wrong byte.
    #[test]
    fn reordering_makes_no_wrong_byte(seed: u64, loss in 0.0..0.3, reorder in 1_usize..8) {
        run(seed, Hop { loss, damage: 0.0, copies: 0.1, reorder }, 8, &Config::default());
    }
}
