//! One long transfer over one radio, measured: how much of what the radio could carry arrives, how
//! long packets wait in its queue, how it comes back after a silence and follows a change of rate.
//!
//! ```
//! use lasthop_radio::{LinkConfig, Pacing, RadioConfig};
//! use lasthop_sim::bulk::{self, BulkConfig};
//! use lasthop_sim::hop::Hop;
//! use lasthop_units::{Duration, Rate};
//!
//! let link = LinkConfig {
//!     pacing: Pacing::Rate(Rate::from_mbps(2)),
//!     delay: Duration::from_millis(5),
//!     ..LinkConfig::default()
//! };
//! let config = BulkConfig { radio: RadioConfig::both(link), ..BulkConfig::default() };
//! let report = bulk::run(&Hop::default(), &config)?;
//! assert!(report.share_of_limit > 0.9);
//! # Ok::<(), bulk::BulkError>(())
//! ```

mod app;
mod limit;
mod report;

use lasthop_radio::{ConfigError, Direction, LinkConfig, LinkStats, RadioConfig};
use lasthop_units::{Bytes, Duration, LinkEvent, Rate, Seed, Time};
use thiserror::Error;

pub use app::{BulkApp, Wired};
pub use limit::PAYLOAD_SHARE;
pub use report::{Adaptation, BulkReport, Recovery, Sample, jain};

use crate::{
    Addr, Either, Endpoint, Halt, Host, Limits, NodeId, OVERHEAD_IPV4, Probe, RadioId, Transport,
    World,
};

/// A transfer to be measured.
#[derive(Clone, PartialEq, Debug)]
pub struct BulkConfig {
    /// The radio, its pauses, steps and losses included.
    pub radio: RadioConfig,
    /// Bytes that the network puts before each datagram.
    pub overhead: u64,
    /// Which way the content goes.
    pub direction: Direction,
    /// How many mobiles share the radio, one association each.
    pub mobiles: usize,
    /// Connections per mobile.
    pub connections: usize,
    /// What each mobile's user says of its connections, one after another (UFB-3); the rest, or all
    /// if this is empty, are left alone.
    pub priorities: Vec<u32>,
    /// Each mobile begins this much after the one before.
    pub stagger: Duration,
    /// What feeds the base; without it the base has always more to send.
    pub wired: Option<Wired>,
    /// The endpoints are told when the radio falls silent and returns.
    pub link_events: bool,
    /// How long the whole run takes.
    pub duration: Duration,
    /// What is left out of the averages.
    pub warm_up: Duration,
    /// One sample for each such span.
    pub sample: Duration,
    /// From which everything follows.
    pub seed: Seed,
    /// Print every datagram and timer to standard error.
    pub verbose: bool,
}

impl Default for BulkConfig {
    fn default() -> Self {
        Self {
            radio: RadioConfig::default(),
            overhead: OVERHEAD_IPV4,
            direction: Direction::Down,
            mobiles: 1,
            connections: 1,
            priorities: Vec::new(),
            stagger: Duration::ZERO,
            wired: None,
            link_events: false,
            duration: Duration::from_secs(30),
            warm_up: Duration::from_secs(2),
            sample: Duration::from_millis(100),
            seed: Seed::from_u64(1),
            verbose: false,
        }
    }
}

/// A run that measured nothing.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum BulkError {
    /// The radio's configuration describes none.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A machine misbehaves.
    #[error(transparent)]
    Halt(#[from] Halt),
}

/// The base's address.
const BASE: Addr = Addr::new(1, 4800);
/// How often bytes are counted: the resolution of recoveries.
const TICK: Duration = Duration::from_millis(10);
/// Over how long a rate must hold to count as reached.
const WINDOW: usize = 10;
/// The share of the limit that counts as full rate.
const FULL: f64 = 0.9;

/// Runs a transfer and measures it.
///
/// # Errors
///
/// The radio's configuration is wrong, or a machine spins or sends without end.
pub fn run<T: Transport>(transport: &T, config: &BulkConfig) -> Result<BulkReport, BulkError> {
    let mut run = Run::new(transport, config)?;
    let end = Time::ZERO + config.duration;
    let mut marks = run.marks(end);
    marks.sort();
    for (at, mark) in marks {
        run.world.run_until(at)?;
        run.take(mark)?;
    }
    Ok(run.report(T::NAME))
}

type Party<T> =
    Either<Host<<T as Transport>::Mobile, BulkApp>, Host<<T as Transport>::Base, BulkApp>>;

/// What is to be done at a time; at one time in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mark {
    /// The radio fell silent.
    Silent,
    /// The radio is back.
    Back,
    /// Another mobile begins.
    Begin(usize),
    /// Count bytes.
    Tick,
    /// The averages begin.
    Warm,
    /// Take a sample.
    Sample,
}

struct Run<'a, T: Transport> {
    transport: &'a T,
    config: &'a BulkConfig,
    world: World<Party<T>>,
    radio: RadioId,
    base: NodeId,
    mobiles: Vec<NodeId>,
    /// Bytes delivered in all, at every tick.
    ticks: Vec<(Time, u64)>,
    /// The mean wait of what left the queue before each tick.
    waits: Vec<(Time, Duration)>,
    served: (u64, Duration),
    first_bytes: Vec<Option<Time>>,
    at_warm_up: Vec<u64>,
    each_at_warm_up: Vec<u64>,
    probes_at_warm_up: Vec<Probe>,
    warm: Time,
    at_sample: (Time, Vec<u64>, u64, Duration),
    samples: Vec<Sample>,
}

impl<'a, T: Transport> Run<'a, T> {
    fn new(transport: &'a T, config: &'a BulkConfig) -> Result<Self, BulkError> {
        let mut world = World::new(Limits { events: u64::MAX, ..Limits::default() });
        world.set_verbose(config.verbose);
        let radio = world.add_radio(&config.radio, config.overhead, config.seed.child("radio"))?;
        let endpoint = transport.base(config.mobiles, config.seed, Time::ZERO);
        let app = BulkApp::base(config.seed, config.wired);
        let host = Either::Right(Host { endpoint, app });
        let base = world.add_node(host, BASE, radio, Direction::Down);
        let zeros = vec![0; config.mobiles];
        Ok(Self {
            transport,
            config,
            world,
            radio,
            base,
            mobiles: Vec::new(),
            ticks: Vec::new(),
            waits: Vec::new(),
            served: (0, Duration::ZERO),
            first_bytes: Vec::new(),
            at_warm_up: zeros.clone(),
            each_at_warm_up: Vec::new(),
            probes_at_warm_up: vec![Probe::default(); config.mobiles],
            warm: Time::ZERO,
            at_sample: (Time::ZERO, zeros, 0, Duration::ZERO),
            samples: Vec::new(),
        })
    }

    /// The link that the content crosses.
    fn link(&self) -> &'a LinkConfig {
        match self.config.direction {
            Direction::Up => &self.config.radio.up,
            Direction::Down => &self.config.radio.down,
        }
    }

    fn marks(&self, end: Time) -> Vec<(Time, Mark)> {
        let mut marks = vec![(Time::ZERO + self.config.warm_up, Mark::Warm)];
        for i in 0..self.config.mobiles {
            marks.push((Time::ZERO + self.config.stagger * i as u32, Mark::Begin(i)));
        }
        for (silent, back) in limit::pauses(self.link(), end) {
            marks.extend([(silent, Mark::Silent), (back, Mark::Back)]);
        }
        every(TICK, end, |at| marks.push((at, Mark::Tick)));
        every(self.config.sample, end, |at| marks.push((at, Mark::Sample)));
        marks.retain(|(at, _)| *at <= end);
        marks
    }

    fn take(&mut self, mark: Mark) -> Result<(), BulkError> {
        match mark {
            Mark::Begin(i) => self.begin(i)?,
            Mark::Silent => self.link_event(LinkEvent::Down)?,
            Mark::Back => {
                self.collect_first_bytes();
                self.first_bytes.push(None);
                self.clear_first_arrival()?;
                self.link_event(LinkEvent::Up)?;
            }
            Mark::Tick => self.tick(),
            Mark::Warm => self.warm_up(),
            Mark::Sample => self.sample(),
        }
        Ok(())
    }

    fn begin(&mut self, i: usize) -> Result<(), Halt> {
        let now = self.world.now();
        let endpoint = self.transport.mobile(i, BASE, self.config.seed, now);
        let app = BulkApp::mobile(self.config.connections, self.config.direction, self.config.seed)
            .prefer(&self.config.priorities);
        let addr = Addr::new(100 + i as u32, 4800);
        let host = Either::Left(Host { endpoint, app });
        let id = self.world.add_node(host, addr, self.radio, Direction::Up);
        self.mobiles.push(id);
        self.world.with_node(id, |node, now| {
            if let Either::Left(host) = node {
                host.drive(now);
            }
        })
    }

    fn link_event(&mut self, event: LinkEvent) -> Result<(), Halt> {
        if !self.config.link_events {
            return Ok(());
        }
        for i in 0..self.mobiles.len() {
            self.world.with_node(self.mobiles[i], |node, now| match node {
                Either::Left(host) => host.endpoint.handle_link(now, event),
                Either::Right(host) => host.endpoint.handle_link(now, event),
            })?;
        }
        Ok(())
    }

    fn clear_first_arrival(&mut self) -> Result<(), Halt> {
        for i in 0..=self.mobiles.len() {
            let id = self.mobiles.get(i).copied().unwrap_or(self.base);
            self.world.with_node(id, |node, _| match node {
                Either::Left(host) => host.app.first_arrival = None,
                Either::Right(host) => host.app.first_arrival = None,
            })?;
        }
        Ok(())
    }

    /// Whether an application is on the content's receiving side, and the application.
    fn receivers(&self) -> impl Iterator<Item = &BulkApp> {
        let down = self.config.direction == Direction::Down;
        let base = (!down).then_some(self.base);
        let mobiles = self.mobiles.iter().copied().filter(move |_| down);
        mobiles.chain(base).map(|id| match self.world.node(id) {
            Either::Left(host) => &host.app,
            Either::Right(host) => &host.app,
        })
    }

    fn collect_first_bytes(&mut self) {
        let first = self.receivers().filter_map(|app| app.first_arrival).min();
        if let Some(last) = self.first_bytes.last_mut() {
            *last = first;
        }
    }

    /// Content delivered so far, for each association.
    fn delivered(&self) -> Vec<u64> {
        match self.config.direction {
            Direction::Down => {
                let mut all: Vec<_> = self.receivers().map(|app| app.received(0)).collect();
                all.resize(self.config.mobiles, 0);
                all
            }
            Direction::Up => self
                .receivers()
                .flat_map(|app| (0..self.config.mobiles).map(|i| app.received(i)))
                .collect(),
        }
    }

    /// Content delivered so far, for each connection of the first association, then of the next.
    fn delivered_each(&self) -> Vec<u64> {
        let most = self.config.mobiles;
        self.receivers().flat_map(|app| (0..most).flat_map(|i| app.received_each(i))).collect()
    }

    fn sender_probes(&self) -> Vec<Probe> {
        let from_base = self.config.direction == Direction::Down;
        (0..self.config.mobiles)
            .map(|i| {
                let id = if from_base { Some(self.base) } else { self.mobiles.get(i).copied() };
                match id.map(|id| self.world.node(id)) {
                    Some(Either::Left(host)) => host.endpoint.probe(0),
                    Some(Either::Right(host)) => host.endpoint.probe(i),
                    None => Probe::default(),
                }
            })
            .collect()
    }

    fn stats(&mut self) -> LinkStats {
        self.world.radio_stats(self.radio, self.config.direction)
    }

    fn tick(&mut self) {
        let now = self.world.now();
        self.ticks.push((now, self.delivered().iter().sum()));
        let queue = self.stats().queue;
        let mean = mean_wait(queue.served - self.served.0, queue.wait - self.served.1);
        self.waits.push((now, mean));
        self.served = (queue.served, queue.wait);
    }

    fn warm_up(&mut self) {
        self.warm = self.world.now();
        self.at_warm_up = self.delivered();
        self.each_at_warm_up = self.delivered_each();
        self.probes_at_warm_up = self.sender_probes();
        self.world.reset_radio_stats(self.radio);
        self.served = (0, Duration::ZERO);
        (self.at_sample.2, self.at_sample.3) = self.served;
    }

    fn sample(&mut self) {
        let now = self.world.now();
        let delivered = self.delivered();
        let queue = self.stats().queue;
        let (since, before, served, wait) =
            core::mem::replace(&mut self.at_sample, (now, delivered, queue.served, queue.wait));
        let rates = self.at_sample.1.iter().zip(&before).map(|(a, b)| rate(a - b, now - since));
        let sample = Sample {
            at: now,
            goodput: rates.collect(),
            queue_delay: mean_wait(queue.served - served, queue.wait - wait),
            probe: self.sender_probes().first().copied().unwrap_or_default(),
        };
        self.samples.push(sample);
    }

    fn report(mut self, transport: &'static str) -> BulkReport {
        self.collect_first_bytes();
        let now = self.world.now();
        let stats = self.stats();
        let other = match self.config.direction {
            Direction::Up => Direction::Down,
            Direction::Down => Direction::Up,
        };
        let reverse = self.world.radio_stats(self.radio, other);
        let bytes: Vec<u64> =
            self.delivered().iter().zip(&self.at_warm_up).map(|(a, b)| a - b).collect();
        let all: u64 = bytes.iter().sum();
        let before = self.each_at_warm_up.iter().copied().chain(core::iter::repeat(0));
        let each = self.delivered_each().into_iter().zip(before);
        let each = each.map(|(after, before)| rate(after - before, now - self.warm)).collect();
        let shares: Vec<f64> = bytes.iter().map(|b| *b as f64).collect();
        let limit = self.limit(self.warm, now) * (1.0 - stats.loss());
        let sum = |f: fn(&Probe) -> u64| -> u64 {
            let after: u64 = self.sender_probes().iter().map(f).sum();
            after - self.probes_at_warm_up.iter().map(f).sum::<u64>()
        };
        let offered = stats.offered.packets.max(1) as f64;
        BulkReport {
            transport,
            goodput: rate(all, now - self.warm),
            per_association: bytes.iter().map(|b| rate(*b, now - self.warm)).collect(),
            per_connection: each,
            share_of_limit: all as f64 * 8.0 / limit,
            loss: stats.loss(),
            queue_drop_share: (stats.dropped.queue.packets + stats.dropped.capacity.packets) as f64
                / offered,
            queue_delay_mean: stats.mean_wait(),
            queue_delay_max: stats.queue.wait_max,
            sent: sum(|p| p.sent),
            retransmitted: sum(|p| p.retransmitted),
            timeouts: sum(|p| p.timeouts),
            reverse_share: reverse.offered.bytes as f64 / stats.offered.bytes.max(1) as f64,
            jain: jain(&shares),
            recoveries: self.recoveries(now),
            adaptations: self.adaptations(now),
            hash: self.world.trace().hash(),
            wrong: self.wrong(),
            samples: self.samples,
        }
    }

    /// The payload bits that could have been delivered had nothing been lost.
    fn limit(&self, from: Time, to: Time) -> f64 {
        limit::capacity(self.link(), from, to) * PAYLOAD_SHARE
    }

    fn wrong(&self) -> Option<(u64, u64)> {
        self.receivers().find_map(|app| app.wrong)
    }

    fn recoveries(&self, end: Time) -> Vec<Recovery> {
        let pauses = limit::pauses(self.link(), end);
        pauses
            .into_iter()
            .zip(&self.first_bytes)
            .map(|((silent, at), first)| Recovery {
                at,
                silence: at - silent,
                first_byte: first.map(|t| t - at),
                full_rate: self.first_full_window(at, end).map(|t| t - at),
            })
            .collect()
    }

    fn adaptations(&self, end: Time) -> Vec<Adaptation> {
        let steps = limit::steps(self.link(), end);
        let rtt = self.config.radio.up.delay + self.config.radio.down.delay;
        (0..steps.len())
            .map(|i| {
                let (at, until) = (steps[i], steps.get(i + 1).copied().unwrap_or(end));
                let above =
                    self.waits.iter().rev().find(|(t, wait)| *t > at && *t <= until && *wait > rtt);
                Adaptation {
                    at,
                    to: limit::rate_at(self.link(), at),
                    settled: self.first_full_window(at, until).map(|t| t - at),
                    queue_above_rtt: above.map_or(Duration::ZERO, |(t, _)| *t - at),
                }
            })
            .collect()
    }

    /// The end of the first window after `from` in which nine tenths of what fits was delivered,
    /// counting the loss that the radio is set to apply.
    fn first_full_window(&self, from: Time, until: Time) -> Option<Time> {
        self.ticks.windows(WINDOW + 1).find_map(|w| {
            let ((start, before), (end, after)) = (w[0], w[WINDOW]);
            let inside = start >= from && end <= until;
            let limit = self.limit(start, end) * (1.0 - self.expected_loss());
            // Waiting bytes from before may arrive faster than the radio's new rate allows.
            let bits = (after - before) as f64 * 8.0;
            let full = bits >= FULL * limit && bits <= limit / FULL;
            (inside && full).then_some(end)
        })
    }

    fn expected_loss(&self) -> f64 {
        use lasthop_radio::{Damage, Errors, Gap};
        let kept = self.link().losses.iter().filter(|l| l.damage == Damage::Lose).map(|loss| {
            1.0 - match loss.errors {
                Errors::Uniform(p) => p,
                Errors::Burst { gap: Gap::Packets(gap), length } => length / (length + gap),
                Errors::Burst { gap: Gap::Time(_), .. } => 0.0,
                Errors::Fade { share, .. } => share,
            }
        });
        1.0 - kept.product::<f64>()
    }
}

fn every(step: Duration, end: Time, mut f: impl FnMut(Time)) {
    let step = step.max(Duration::from_millis(1));
    let mut at = Time::ZERO;
    while at <= end {
        f(at);
        at += step;
    }
}

fn mean_wait(served: u64, wait: Duration) -> Duration {
    Duration::from_nanos((wait.as_nanos() / u128::from(served.max(1))) as u64)
}

fn rate(bytes: u64, over: Duration) -> Rate {
    if over.is_zero() { Rate::ZERO } else { Rate::of(Bytes::new(bytes), over) }
}
