//! The engine alone under random schedules of loss, damage, copies and reordering.

use lasthop_units::Seed;
use proptest::prelude::*;

use super::*;

/// What a schedule does to packets.
#[derive(Clone, Copy, Debug)]
struct Link {
    loss: f64,
    copies: f64,
    /// Packets that one may overtake, and by which one may be overtaken: a copy that is older than
    /// the sequence space less a window cannot be told from what is new (MOB-13).
    reorder: usize,
    damage: f64,
}

struct Wire {
    link: Link,
    numbers: lasthop_units::Stream,
    /// Packets, and how many have overtaken each.
    flying: Vec<(usize, Vec<u8>)>,
}

impl Wire {
    fn chance(&mut self, p: f64) -> bool {
        (self.numbers.next_u64() >> 11) as f64 / (1u64 << 53) as f64 <= p && p > 0.0
    }

    fn put(&mut self, mut packet: Vec<u8>) {
        if self.chance(self.link.loss) {
            return;
        }
        if self.chance(self.link.damage) {
            let at = self.numbers.next_u64() as usize % packet.len();
            packet[at] ^= 1 << (self.numbers.next_u64() % 8);
        }
        if self.chance(self.link.copies) {
            self.flying.push((0, packet.clone()));
        }
        let back = (self.numbers.next_u64() as usize) % (self.link.reorder + 1);
        let may = |(overtaken, _): &&mut (usize, _)| *overtaken < self.link.reorder;
        let passed = self.flying.iter_mut().rev().take(back).take_while(may);
        let at = passed.map(|(overtaken, _)| *overtaken += 1).count();
        self.flying.insert(self.flying.len() - at, (0, packet));
    }
}

/// Runs a schedule to its end: both streams, both ends, in virtual time. Virtual seconds taken.
fn run(seed: u64, link: Link, len: usize, config: &Config) -> f64 {
    let seeds = Seed::from_u64(seed);
    let mut numbers = seeds.stream("application");
    let start = numbers.next_u64() as u16;
    let (a, b) = pair(config, start, start.wrapping_mul(31));
    let mut ends = [a, b];
    let wire = |name| Wire { link, numbers: seeds.stream(name), flying: Vec::new() };
    let mut wires = [wire("there"), wire("back")];
    let data =
        |end: usize| -> Vec<u8> { (0..len).map(|n| (n * 7 + n / 251 + end * 100) as u8).collect() };
    let data = [data(0), data(1)];
    let (mut written, mut got) = ([0, 0], [Vec::new(), Vec::new()]);
    let mut now = Time::ZERO;
    while !ends.iter().all(Connection::is_over) || got.iter().any(|g| g.len() < len) {
        assert!(now < Time::from_secs(20_000), "stuck: {ends:?}");
        let mut moved = false;
        for me in 0..2 {
            let (piece, reading) = (numbers.next_u64() as usize % 4000, numbers.next_u64() % 4);
            let to = (written[me] + piece).min(len);
            written[me] += write(&mut ends[me], &data[me][written[me]..to]);
            if written[me] == len {
                ends[me].finish();
            }
            if let Some(packet) = poll(&mut ends[me], now) {
                wires[me].put(packet);
                moved = true;
            }
            if reading > 0 {
                let all = read(&mut ends[me]);
                moved |= !all.is_empty();
                got[me].extend(all);
                let so_far = got[me].len();
                assert!(so_far <= len && got[me][..] == data[1 - me][..so_far], "wrong bytes");
            }
            let flying = &mut wires[1 - me].flying;
            if !flying.is_empty() && (numbers.next_u64() & 1 == 0 || !moved) {
                let (_, packet) = flying.remove(0);
                moved = true;
                if let Ok(Packet::Data(header, data)) = Packet::decode(&packet) {
                    ends[me].handle(now, &header, data);
                }
            }
        }
        now += Duration::from_micros(500);
        for end in &mut ends {
            if end.next_timeout().is_some_and(|at| at <= now) {
                end.handle_timeout(now);
            }
            assert!(!end.has_failed());
        }
        if !moved && let Some(at) = ends.iter().filter_map(Connection::next_timeout).min() {
            now = now.max(at);
        }
    }
    assert_eq!((&got[0], &got[1]), (&data[1], &data[0]));
    now.as_secs_f64()
}

const FIFO: Link = Link { loss: 0.0, copies: 0.0, reorder: 0, damage: 0.0 };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// MOB-13, MOB-25: streams of more than twice the sequence space arrive as they were sent, both
    /// ways at once, over every hop that loses, damages and repeats but does not reorder.
    #[test]
    fn streams_arrive_as_they_were_sent(
        seed: u64,
        loss in prop_oneof![Just(0.0), 0.0..0.5],
        damage in 0.0..0.1,
        copies in 0.0..0.3,
        window in 2048_u64..32_767,
        packet in 200_u64..3000,
    ) {
        let config = Config {
            window: Bytes::new(window),
            max_packet: Bytes::new(packet.min(1900)),
            ..Config::default()
        };
        run(seed, Link { loss, damage, copies, ..FIFO }, 150_000, &config);
    }

    /// MOB-25: reordering, which one hop does not do, costs time and never a wrong byte.
    #[test]
    fn reordering_never_makes_a_wrong_byte(seed: u64, loss in 0.0..0.3, reorder in 1_usize..12) {
        let config = Config { max_packet: Bytes::new(1000), ..Config::default() };
        run(seed, Link { loss, reorder, copies: 0.1, ..FIFO }, 100_000, &config);
    }
}

/// MOB-13: the largest window, and sequence numbers that wrap again and again under load.
#[test]
fn sequence_numbers_wrap_under_the_largest_window() {
    let config = Config { window: Bytes::new(40_000), ..Config::default() };
    assert_eq!(config.window(), 32_767);
    for seed in 0..20 {
        run(seed, Link { loss: 0.05, ..FIFO }, 1_000_000, &config);
    }
}

/// A transfer finishes where every second packet is lost, both ways.
#[test]
fn half_of_all_packets_may_be_lost() {
    for seed in 0..20 {
        run(seed, Link { loss: 0.5, ..FIFO }, 100_000, &Config::default());
    }
}
