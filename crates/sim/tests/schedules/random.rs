//! Schedules from seeds.

use lasthop_radio::{
    Errors, LinkConfig, Loss, Pacing, Pause, QueueLimit, RadioConfig, RateStep, RateSteps, Reorder,
};
use lasthop_units::{Bytes, Duration, Rate, Seed, Stream, Time};

use crate::crossing::Stranger;
use crate::packets::PacketPlan;
use crate::plan::{ConnectionPlan, log_uniform, pick, upto};
use crate::schedule::{Beside, Kind, Move, Schedule, Shrink};

/// Every hop must pass IP packets of this many bytes; less would be no test but a refusal.
const MTU_LEAST: u64 = 1280;

impl Schedule {
    /// The schedule number `seed` of a kind: most are mild in most respects and wild in some.
    pub(crate) fn random(kind: Kind, seed: u64) -> Self {
        match kind {
            Kind::Streams => Self::with_streams(seed),
            Kind::Packets => Self::with_packets(seed),
            Kind::Bond => Self::with_bond(seed),
        }
    }

    fn with_streams(seed: u64) -> Self {
        let all = Seed::from_u64(seed);
        let random = &mut all.stream("schedule");
        let calm_at = Duration::from_millis(log_uniform(random, 50, 8000));
        let mobiles = if random.chance(0.2) { 2 } else { 1 };
        let ipv6 = random.chance(0.3);

        let calm = calm_radio(random);
        let faulty = faults(random, &calm, calm_at);

        // As much as the radio carries in some seconds, but no more than keeps a run short.
        let slower = rate(&calm.up).min(rate(&calm.down));
        let fits = slower.bytes_in(Duration::from_secs(4)).get();
        let most = log_uniform(random, 1000, fits.clamp(2000, 1_500_000));
        let count = log_uniform(random, 1, 12);
        let connections = (0..count)
            .map(|_| ConnectionPlan::random(random, mobiles, calm_at, most / count + 2))
            .collect();
        Self {
            seed,
            mobiles,
            ipv6,
            faulty,
            calm,
            calm_at: Time::ZERO + calm_at,
            moves: moves(random, mobiles, calm_at),
            link_events: random.chance(0.3),
            stranger: stranger(random),
            connections,
            kind: Kind::Streams,
            packets: Vec::new(),
            shrink: None,
            beside: None,
        }
    }

    /// The same with flows of packets beside the connections, and at times a path that shrinks.
    fn with_packets(seed: u64) -> Self {
        let random = &mut Seed::from_u64(seed).stream("packets");
        let mut new = Self { kind: Kind::Packets, ..Self::with_streams(seed) };
        let (calm_at, slower) = (new.calm_at, rate(&new.calm.up).min(rate(&new.calm.down)));
        let count = log_uniform(random, 1, 8);
        new.packets = (0..count)
            .map(|_| PacketPlan::random(random, new.mobiles, calm_at, slower, count))
            .collect();
        new.shrink = shrink(random, calm_at);
        // Some have the hop for themselves.
        if random.chance(0.3) {
            new.connections.clear();
        }
        new
    }

    /// The same with a second link of every mobile's.
    fn with_bond(seed: u64) -> Self {
        let random = &mut Seed::from_u64(seed).stream("bond");
        let new = Self { kind: Kind::Bond, ..Self::with_packets(seed) };
        let until = new.calm_at.since(Time::ZERO);
        let calm = calm_radio(random);
        let faulty = faults(random, &calm, until);
        let from = if random.chance(0.7) { Duration::ZERO } else { upto(random, until) };
        let beside = Beside {
            from: Time::ZERO + from,
            moves: moves(random, new.mobiles, until),
            swaps: moves(random, new.mobiles, until),
            link_events: random.chance(0.3),
            shrink: shrink(random, new.calm_at),
            calm,
            faulty,
        };
        Self { beside: Some(beside), ..new }
    }
}

/// At times a path shrinks.
fn shrink(random: &mut Stream, calm_at: Time) -> Option<Shrink> {
    random.chance(0.3).then(|| {
        let at = Time::ZERO + upto(random, calm_at.since(Time::ZERO));
        let mtu = (MTU_LEAST + random.below(100)) as u32;
        Shrink { at, mtu }
    })
}

fn calm_radio(random: &mut Stream) -> RadioConfig {
    let up = calm_link(random);
    let down = LinkConfig {
        mtu: up.mtu,
        ..if random.chance(0.3) { calm_link(random) } else { up.clone() }
    };
    RadioConfig { up, down, shared_fades: false }
}

fn calm_link(random: &mut Stream) -> LinkConfig {
    let rate = Rate::from_kbps(log_uniform(random, 64, 100_000));
    let queue = match random.below(3) {
        0 => QueueLimit::Packets(log_uniform(random, 4, 300) as u32),
        1 => QueueLimit::Bytes(Bytes::new(log_uniform(random, 6_000, 400_000))),
        _ => QueueLimit::Time(
            // Room for a few packets even if the radio is slow.
            Duration::from_millis(log_uniform(random, 10, 500)) + rate.time_for(Bytes::new(6_000)),
        ),
    };
    LinkConfig {
        pacing: Pacing::Rate(rate),
        delay: Duration::from_micros(log_uniform(random, 100, 300_000)),
        queue,
        mtu: (MTU_LEAST + random.below(1500 - MTU_LEAST + 1)) as u32,
        ..LinkConfig::default()
    }
}

pub(crate) fn rate(link: &LinkConfig) -> Rate {
    match &link.pacing {
        Pacing::Rate(rate) => *rate,
        Pacing::Steps(steps) => steps.initial,
        Pacing::Trace(trace) => trace.mean_rate(),
    }
}

/// The same radio on a bad day.
fn faults(random: &mut Stream, calm: &RadioConfig, until: Duration) -> RadioConfig {
    let mut faulty = calm.clone();
    let pauses = pauses(random, until);
    for link in [&mut faulty.up, &mut faulty.down] {
        link.losses = losses(random);
        link.pauses.clone_from(&pauses);
        if random.chance(0.2) {
            let extra = Duration::from_micros(log_uniform(random, 100, 200_000));
            link.reorder = Some(Reorder { probability: random.uniform() * 0.3, extra });
        }
        if random.chance(0.2) {
            link.duplicate = random.uniform() * 0.3;
        }
        if random.chance(0.2) {
            link.pacing = Pacing::Steps(steps(random, rate(link), until));
        }
    }
    // A move to a radio with a smaller MTU and back must not wedge anything either.
    if random.chance(0.1) {
        let mtu = (MTU_LEAST + random.below(100)) as u32;
        (faulty.up.mtu, faulty.down.mtu) = (mtu, mtu);
    }
    faulty.shared_fades = random.chance(0.2);
    faulty
}

fn losses(random: &mut Stream) -> Vec<Loss> {
    let mut losses = Vec::new();
    if random.chance(0.5) {
        losses.push(Loss::lose(errors(random)));
    }
    if random.chance(0.2) {
        losses.push(Loss::corrupt(errors(random)));
    }
    losses
}

fn errors(random: &mut Stream) -> Errors {
    match random.below(3) {
        0 => Errors::Uniform(random.uniform() * 0.4),
        1 => Errors::burst(0.01 + random.uniform() * 0.3, 1.0 + random.uniform() * 20.0),
        _ => Errors::Fade {
            mean: Duration::from_millis(log_uniform(random, 1, 200)),
            share: 0.01 + random.uniform() * 0.3,
        },
    }
}

/// At most three silences, the last of which may outlive the faults no more than they.
fn pauses(random: &mut Stream, until: Duration) -> Vec<Pause> {
    let count = if random.chance(0.4) { 1 + random.below(3) } else { 0 };
    (0..count)
        .map(|_| {
            let length = Duration::from_millis(log_uniform(random, 1, 3000));
            Pause::once(upto(random, until), length)
        })
        .collect()
}

fn steps(random: &mut Stream, initial: Rate, until: Duration) -> RateSteps {
    let mut at: Vec<_> = (0..1 + random.below(4)).map(|_| upto(random, until)).collect();
    at.sort();
    at.dedup();
    let factors = [0.1, 0.2, 0.5, 2.0, 5.0];
    let steps =
        at.into_iter().map(|at| RateStep { at, rate: initial.scale(pick(random, &factors)) });
    RateSteps { initial, steps: steps.collect(), period: None }
}

fn moves(random: &mut Stream, mobiles: usize, until: Duration) -> Vec<Move> {
    let count = if random.chance(0.3) { 1 + random.below(3) } else { 0 };
    let mut moves: Vec<_> = (0..count)
        .map(|_| Move {
            at: Time::ZERO + upto(random, until),
            mobile: random.below(mobiles as u64) as usize,
        })
        .collect();
    moves.sort_by_key(|m| m.at);
    moves
}

fn stranger(random: &mut Stream) -> Stranger {
    if random.chance(0.7) {
        return Stranger::default();
    }
    Stranger {
        replay: random.uniform() * 0.2,
        forge: random.uniform() * 0.2,
        delay: Duration::from_micros(log_uniform(random, 10, 3_000_000)),
    }
}
