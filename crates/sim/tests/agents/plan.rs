//! What a number stands for: a network, its troubles, the hosts' work and the agents on the way.

use lasthop_radio::{Errors, LinkConfig, Loss, Pacing, QueueLimit, Reorder};
use lasthop_tcp::Config;
use lasthop_units::{Duration, Rate, Seed, Stream};

use crate::settings::{self, Settings, millis, pick};

/// Which agents stand on the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Snoop,
    Obtcp,
    /// Link retransmission: delayed dupacks and congestion coherence, EBSN.
    Link,
    MTcp,
    /// Both halves of a hop with compressed headers.
    Unsplit,
    /// Several at once.
    Stacked,
}

impl Kind {
    pub(crate) const ALL: [Self; 6] =
        [Self::Snoop, Self::Obtcp, Self::Link, Self::MTcp, Self::Unsplit, Self::Stacked];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Snoop => "snoop",
            Self::Obtcp => "obtcp",
            Self::Link => "link",
            Self::MTcp => "m-tcp",
            Self::Unsplit => "mobile-tcp-unsplit",
            Self::Stacked => "stacked",
        }
    }
}

/// A place where an agent may stand. There may be two bases, of which each has one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AgentAt {
    Gateway,
    Base(usize),
    Router,
    Mobile,
}

/// The agents' settings. Both bases have the same.
#[derive(Clone, Default, PartialEq, Debug)]
pub(crate) struct Agents {
    pub(crate) gateway: Option<Settings>,
    pub(crate) base: Option<Settings>,
    pub(crate) router: Option<Settings>,
    pub(crate) mobile: Option<Settings>,
}

/// A connection, by what it carries: bytes up, bytes down, and who opens it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    /// The mobile sends a file.
    Upload { bytes: u64, at: Duration },
    /// The mobile opens, the fixed host sends a file.
    Download { bytes: u64, at: Duration },
    /// The fixed host opens and sends a file.
    Push { bytes: u64, at: Duration },
    /// The mobile asks and is answered.
    Requests { request: u64, response: u64, count: u64, at: Duration },
}

/// Who hears of a link's state, and how late.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct News {
    pub(crate) mobile: Option<Duration>,
    pub(crate) base: Option<Duration>,
    pub(crate) router: Option<Duration>,
}

/// What a handoff does with the old base's knowledge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Knowledge {
    Forget,
    TakeOver,
    /// Nobody tells the old base.
    Stay,
}

/// Something that happens.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Trouble {
    /// The radio in use carries nothing for a while.
    Disconnect { lasts: Duration, down: News, up: News, warned: Option<Duration> },
    /// The mobile goes to the other base.
    Handoff { silence: Duration, rerouted: Duration, knowledge: Knowledge, down: News, up: News },
    /// An agent loses all that it knows.
    Restart(AgentAt),
    /// A packet that nobody sent comes by: what it is follows from the number.
    Garbage { place: AgentAt, number: u64, from_fixed: bool },
    /// A packet that passed before comes again.
    Replay { place: AgentAt, number: u64 },
    /// The other base gets a packet ahead.
    Prime { number: u64 },
}

/// Everything that a number stands for.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: Seed,
    pub(crate) bases: usize,
    pub(crate) mobile_router: bool,
    pub(crate) wired: LinkConfig,
    pub(crate) radio: LinkConfig,
    pub(crate) last: LinkConfig,
    /// When links begin to carry without errors, so that whatever does not hang ends soon.
    pub(crate) calm: Duration,
    pub(crate) fixed: Config,
    pub(crate) mobile: Config,
    pub(crate) flows: Vec<Flow>,
    pub(crate) troubles: Vec<(Duration, Trouble)>,
    pub(crate) agents: Agents,
}

impl Plan {
    pub(crate) fn random(kind: Kind, number: u64) -> Self {
        let seed = Seed::from_u64(number).child(kind.name());
        let r = &mut seed.stream("plan");
        let mobile_router = kind == Kind::Obtcp || r.chance(0.4);
        let bases = 1 + r.below(2) as usize;
        let calm = millis(r, 500, 30_000);
        let agents = agents(kind, mobile_router, r);
        let mut plan = Self {
            seed: seed.child("run"),
            bases,
            mobile_router,
            wired: wired(r),
            radio: radio(r),
            last: last(r),
            calm,
            fixed: settings::tcp(r, false),
            mobile: settings::tcp(r, true),
            flows: (0..=r.below(3)).map(|_| flow(r)).collect(),
            troubles: Vec::new(),
            agents,
        };
        plan.troubles = plan.random_troubles(r);
        plan
    }

    fn random_troubles(&self, r: &mut Stream) -> Vec<(Duration, Trouble)> {
        let at = |r: &mut Stream| Duration::from_millis(r.below(self.calm.as_millis() as u64));
        let mut all = Vec::new();
        for _ in 0..r.below(4) {
            let moves = self.bases > 1 && r.chance(0.6);
            let trouble = if moves { handoff(r) } else { disconnect(r) };
            all.push((at(r), trouble));
        }
        let places = self.places();
        if r.chance(0.4) && !places.is_empty() {
            for _ in 0..=r.below(2) {
                all.push((at(r), Trouble::Restart(pick(r, &places))));
            }
        }
        if r.chance(0.5) && !places.is_empty() {
            for _ in 0..r.below(40) {
                let (place, number) = (pick(r, &places), r.next_u64());
                all.push((at(r), Trouble::Garbage { place, number, from_fixed: r.chance(0.5) }));
            }
        }
        if r.chance(0.3) && !places.is_empty() {
            for _ in 0..r.below(20) {
                let (place, number) = (pick(r, &places), r.next_u64());
                all.push((at(r), Trouble::Replay { place, number }));
            }
        }
        if self.bases > 1 && r.chance(0.3) {
            for _ in 0..r.below(20) {
                all.push((at(r), Trouble::Prime { number: r.next_u64() }));
            }
        }
        all.sort_by_key(|(at, _)| *at);
        one_at_a_time(&mut all);
        all
    }

    /// Where agents stand.
    pub(crate) fn places(&self) -> Vec<AgentAt> {
        let bases = (0..self.bases).map(AgentAt::Base);
        let all = [AgentAt::Gateway, AgentAt::Router, AgentAt::Mobile].into_iter().chain(bases);
        all.filter(|place| self.settings(*place).is_some()).collect()
    }

    pub(crate) fn settings(&self, place: AgentAt) -> Option<&Settings> {
        match place {
            AgentAt::Gateway => self.agents.gateway.as_ref(),
            AgentAt::Base(_) => self.agents.base.as_ref(),
            AgentAt::Router => self.agents.router.as_ref(),
            AgentAt::Mobile => self.agents.mobile.as_ref(),
        }
    }
}

fn agents(kind: Kind, mobile_router: bool, r: &mut Stream) -> Agents {
    let none = Agents::default();
    match kind {
        Kind::Snoop => Agents { base: Some(Settings::Snoop(settings::snoop(r))), ..none },
        Kind::MTcp => Agents { base: Some(Settings::MTcp(settings::m_tcp(r))), ..none },
        Kind::Obtcp => Agents {
            base: Some(Settings::Base(settings::base(r))),
            router: Some(Settings::Router(settings::router(r))),
            ..none
        },
        Kind::Link => with_link(none, mobile_router, r),
        Kind::Unsplit => with_unsplit(none, mobile_router, r),
        Kind::Stacked => stacked(mobile_router, r),
    }
}

/// Both ends of the first radio link recover.
fn with_link(agents: Agents, mobile_router: bool, r: &mut Stream) -> Agents {
    let notify = r.chance(0.3);
    let base = Some(Settings::LinkAtBase(settings::link(r, notify)));
    let far = Some(Settings::LinkAtMobile(settings::link(r, false)));
    match mobile_router {
        true => Agents { base, router: far, ..agents },
        false => Agents { base, mobile: far, ..agents },
    }
}

/// Both ends of the first radio link compress and recover.
fn with_unsplit(agents: Agents, mobile_router: bool, r: &mut Stream) -> Agents {
    let base = Some(Settings::UnsplitAtBase(settings::unsplit(r)));
    let far = Some(Settings::UnsplitAtMobile(settings::unsplit(r)));
    match mobile_router {
        true => Agents { base, router: far, ..agents },
        false => Agents { base, mobile: far, ..agents },
    }
}

fn stacked(mobile_router: bool, r: &mut Stream) -> Agents {
    let any = |r: &mut Stream| match r.chance(0.5) {
        true => Settings::Snoop(settings::snoop(r)),
        false => Settings::MTcp(settings::m_tcp(r)),
    };
    let none = Agents { gateway: Some(any(r)), ..Agents::default() };
    match (r.below(3), mobile_router) {
        (0, _) if r.chance(0.5) => with_link(none, mobile_router, r),
        (0, _) => with_unsplit(none, mobile_router, r),
        (1, true) => Agents {
            base: Some(Settings::Base(settings::base(r))),
            router: Some(Settings::Router(settings::router(r))),
            ..none
        },
        (_, true) => Agents { base: Some(any(r)), router: Some(any(r)), ..none },
        (_, false) => Agents { base: Some(any(r)), ..none },
    }
}

fn wired(r: &mut Stream) -> LinkConfig {
    let losses = if r.chance(0.3) { vec![Loss::lose(Errors::Uniform(0.02))] } else { vec![] };
    LinkConfig {
        pacing: Pacing::Rate(Rate::from_kbps(pick(r, &[1000, 10_000, 100_000]))),
        delay: millis(r, 0, 60),
        queue: QueueLimit::Packets(pick(r, &[10, 50, 200])),
        losses,
        ..LinkConfig::default()
    }
}

fn radio(r: &mut Stream) -> LinkConfig {
    let mut losses = Vec::new();
    if r.chance(0.6) {
        let p = pick(r, &[0.01, 0.05, 0.1, 0.2]);
        losses.push(Loss::lose(Errors::Uniform(p)));
    }
    if r.chance(0.3) {
        losses
            .push(Loss::lose(Errors::burst(pick(r, &[0.01, 0.05, 0.1]), 1.0 + 4.0 * r.uniform())));
    }
    if r.chance(0.3) {
        let (mean, share) = (millis(r, 5, 300), pick(r, &[0.01, 0.05, 0.2]));
        losses.push(Loss::lose(Errors::Fade { mean, share }));
    }
    if r.chance(0.3) {
        losses.push(Loss::corrupt(Errors::Uniform(pick(r, &[0.01, 0.05]))));
    }
    let packets = pick(r, &[3, 10, 50]);
    LinkConfig {
        pacing: Pacing::Rate(Rate::from_kbps(pick(r, &[200, 1000, 2000, 11_000]))),
        delay: millis(r, 0, 50),
        queue: QueueLimit::Packets(packets),
        ecn_mark: r.chance(0.3).then_some(QueueLimit::Packets(packets / 2)),
        losses,
        reorder: r
            .chance(0.3)
            .then(|| Reorder { probability: pick(r, &[0.01, 0.1]), extra: millis(r, 1, 60) }),
        duplicate: if r.chance(0.3) { pick(r, &[0.01, 0.1]) } else { 0.0 },
        ..LinkConfig::default()
    }
}

fn last(r: &mut Stream) -> LinkConfig {
    let losses = match r.chance(0.5) {
        true => vec![Loss::lose(Errors::Uniform(pick(r, &[0.01, 0.1])))],
        false => vec![],
    };
    LinkConfig {
        pacing: Pacing::Rate(Rate::from_kbps(pick(r, &[1000, 11_000]))),
        delay: millis(r, 0, 30),
        losses,
        ..LinkConfig::default()
    }
}

fn flow(r: &mut Stream) -> Flow {
    let at = millis(r, 0, 2000);
    let bytes = pick(r, &[1, 3000, 40_000, 150_000]) + r.below(2000);
    match r.below(4) {
        0 => Flow::Upload { bytes, at },
        1 => Flow::Push { bytes, at },
        2 => {
            let (request, response) = (1 + r.below(3000), 1 + r.below(20_000));
            Flow::Requests { request, response, count: 1 + r.below(6), at }
        }
        _ => Flow::Download { bytes, at },
    }
}

fn news(r: &mut Stream) -> News {
    let mut late = |told: f64| match r.chance(told) {
        true if r.chance(0.2) => Some(millis(r, 0, 2000)),
        true => Some(Duration::ZERO),
        false => None,
    };
    News { mobile: late(0.7), base: late(0.6), router: late(0.6) }
}

fn disconnect(r: &mut Stream) -> Trouble {
    Trouble::Disconnect {
        lasts: millis(r, 10, 5000),
        down: news(r),
        up: news(r),
        warned: r.chance(0.3).then(|| millis(r, 10, 500)),
    }
}

fn handoff(r: &mut Stream) -> Trouble {
    Trouble::Handoff {
        silence: millis(r, 0, 1500),
        rerouted: millis(r, 0, 300),
        knowledge: pick(r, &[Knowledge::Forget, Knowledge::TakeOver, Knowledge::Stay]),
        down: news(r),
        up: news(r),
    }
}

/// Leaves out what moves the mobile while it is moving, or gone. Two moves at once can end with data
/// coming by one base and acknowledgements going by the other, for good; an agent that splits a
/// connection has to see both.
fn one_at_a_time(all: &mut Vec<(Duration, Trouble)>) {
    let mut until = Duration::ZERO;
    all.retain(|(at, trouble)| {
        let lasts = match trouble {
            Trouble::Disconnect { lasts, .. } => *lasts,
            Trouble::Handoff { silence, rerouted, .. } => *silence + *rerouted,
            _ => return true,
        };
        let free = *at >= until;
        if free {
            until = *at + lasts;
        }
        free
    });
}

/// What a link is once all is calm.
pub(crate) fn calm(link: &LinkConfig) -> LinkConfig {
    let (pacing, delay) = (link.pacing.clone(), link.delay);
    LinkConfig { pacing, delay, queue: link.queue, ..LinkConfig::default() }
}

/// The bytes that a flow carries up and down.
pub(crate) fn carried(flow: &Flow) -> (u64, u64) {
    match *flow {
        Flow::Upload { bytes, .. } => (bytes, 0),
        Flow::Download { bytes, .. } | Flow::Push { bytes, .. } => (0, bytes),
        Flow::Requests { request, response, count, .. } => (request * count, response * count),
    }
}
