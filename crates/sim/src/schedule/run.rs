//! Carries a schedule out.

use std::collections::BTreeMap;

use lasthop_radio::{Direction, LinkConfig, Pacing, RadioConfig};
use lasthop_units::{Bytes, Duration, LinkEvent, Rate, Seed, Time};

use super::app::People;
use super::check::{self, Check, Violation};
use super::side::Account;
use super::{Report, Schedule};
use crate::{
    Addr, Either, Endpoint, Halt, Host, Limits, NodeId, Probe, RadioId, Stranger, Transport, World,
};

const BASE: Addr = Addr::new(1, 4800);
/// How often a run is looked at once the faults have stopped.
const STEP: Duration = Duration::from_millis(100);

type Party<T> =
    Either<Host<<T as Transport>::Mobile, People>, Host<<T as Transport>::Base, People>>;

/// Runs `schedule` up to the first promise that is broken.
pub(super) fn execute<T: Transport>(
    transport: &T,
    schedule: &Schedule,
    verbose: bool,
) -> Result<Report, Violation> {
    Run::new(transport, schedule, verbose).and_then(Run::finish)
}

/// What a schedule does to the world at a time.
#[derive(Clone, Copy)]
enum Act {
    Move { mobile: usize, times: u16 },
    Link(LinkEvent),
    Calm,
}

struct Run<'a, T: Transport> {
    schedule: &'a Schedule,
    transport: T,
    world: World<Party<T>>,
    radio: RadioId,
    /// The base first, then the mobiles.
    nodes: Vec<NodeId>,
}

impl<'a, T: Transport> Run<'a, T> {
    fn new(transport: &T, schedule: &'a Schedule, verbose: bool) -> Result<Self, Violation> {
        let seed = Seed::from_u64(schedule.seed).child("run");
        let transport = transport.varied(&mut seed.stream("transport"));
        let plans = &schedule.connections;
        let limits = Limits { events: 20_000_000, at_once: 20_000, burst: 5_000, datagram: 1600 };
        let mut world = World::new(limits);
        world.set_verbose(verbose);
        let radio = world
            .add_radio(&schedule.faulty, schedule.overhead, seed.child("radio"))
            .map_err(|e| sane(Time::ZERO, e.to_string()))?;
        world.set_stranger(radio, schedule.stranger);
        let host = Host {
            endpoint: transport.base(schedule.mobiles, seed, Time::ZERO),
            app: People::fixed_hosts(plans, seed),
        };
        let mut nodes = vec![world.add_node(Either::Right(host), BASE, radio, Direction::Down)];
        for mobile in 0..schedule.mobiles {
            let host = Host {
                endpoint: transport.mobile(mobile, BASE, seed, Time::ZERO),
                app: People::applications(mobile, plans, seed),
            };
            let addr = address(mobile, 0);
            nodes.push(world.add_node(Either::Left(host), addr, radio, Direction::Up));
        }
        Ok(Self { schedule, transport, world, radio, nodes })
    }

    fn finish(mut self) -> Result<Report, Violation> {
        for (at, act) in self.acts() {
            self.run_until(at)?;
            self.act(act)?;
        }
        let deadline = self.deadline();
        while !self.is_over() {
            self.check_early()?;
            let now = self.world.now();
            if now >= deadline {
                return Err(self.stuck());
            }
            self.run_until(now + STEP)?;
        }
        self.check_early()?;
        self.check_connections()?;
        Ok(self.report())
    }

    fn acts(&self) -> Vec<(Time, Act)> {
        let calm = self.schedule.calm_at;
        let mut acts = vec![(calm, Act::Calm)];
        let mut times = vec![0; self.schedule.mobiles];
        for m in &self.schedule.moves {
            times[m.mobile] += 1;
            acts.push((m.at, Act::Move { mobile: m.mobile, times: times[m.mobile] }));
        }
        if self.schedule.link_events {
            for pause in &self.schedule.faulty.up.pauses {
                let silent = Time::ZERO + pause.start;
                let back = (silent + pause.duration).min(calm);
                acts.extend([
                    (silent, Act::Link(LinkEvent::Down)),
                    (back, Act::Link(LinkEvent::Up)),
                ]);
            }
        }
        acts.sort_by_key(|(at, _)| *at);
        acts
    }

    fn act(&mut self, act: Act) -> Result<(), Violation> {
        match act {
            Act::Move { mobile, times } => {
                self.world.set_addr(self.nodes[1 + mobile], address(mobile, times));
                Ok(())
            }
            Act::Link(event) => self.everywhere(|node, now| match node {
                Either::Left(host) => host.endpoint.handle_link(now, event),
                Either::Right(host) => host.endpoint.handle_link(now, event),
            }),
            Act::Calm => self.calm(),
        }
    }

    fn calm(&mut self) -> Result<(), Violation> {
        let now = self.world.now();
        self.world.set_stranger(self.radio, Stranger::default());
        self.world
            .change_radio(self.radio, &self.schedule.calm)
            .map_err(|e| sane(now, e.to_string()))?;
        self.everywhere(|node, now| match node {
            Either::Left(host) => {
                host.app.eager = true;
                host.drive(now);
            }
            Either::Right(host) => {
                host.app.eager = true;
                host.drive(now);
            }
        })
    }

    fn everywhere(&mut self, f: impl Fn(&mut Party<T>, Time)) -> Result<(), Violation> {
        for node in &self.nodes {
            self.world.with_node(*node, &f).map_err(halted)?;
        }
        Ok(())
    }

    fn run_until(&mut self, at: Time) -> Result<(), Violation> {
        self.world.run_until(at).map_err(halted)
    }

    /// By when everything must be over: the transport's patience, and time for all bytes at the calm
    /// radio's rate, for each window's round trip, and for some more round trips.
    fn deadline(&self) -> Time {
        let (bytes, rtt, rate) =
            (self.bytes(), rtt(&self.schedule.calm), slower(&self.schedule.calm));
        let windows = (bytes.get() / self.transport.window().max(1)) as u32;
        let answers = self.schedule.connections.iter().map(|c| c.answer_after).max();
        self.schedule.calm_at
            + self.transport.patience()
            + answers.unwrap_or_default()
            + rate.time_for(bytes) * 4
            + rtt * (30 + 2 * windows)
    }

    fn bytes(&self) -> Bytes {
        let plans = &self.schedule.connections;
        Bytes::new(plans.iter().map(|c| c.application.bytes + c.fixed_host.bytes).sum())
    }

    fn people(&self) -> impl Iterator<Item = &People> {
        self.nodes.iter().map(|id| match self.world.node(*id) {
            Either::Left(host) => &host.app,
            Either::Right(host) => &host.app,
        })
    }

    /// What each end of each association holds: streams and bytes.
    fn holdings(&self) -> Vec<(u64, u64)> {
        let probes = |id: &NodeId| -> Vec<Probe> {
            match self.world.node(*id) {
                Either::Left(host) => probes(&host.endpoint),
                Either::Right(host) => probes(&host.endpoint),
            }
        };
        self.nodes.iter().flat_map(probes).map(|p| (p.streams, p.buffered)).collect()
    }

    fn is_over(&self) -> bool {
        self.people().all(|p| p.open() == 0 && p.remembered() == 0)
            && self.holdings().iter().all(|held| *held == (0, 0))
    }

    /// What can be seen before the end.
    fn check_early(&self) -> Result<(), Violation> {
        let at = self.world.now();
        for id in &self.nodes {
            let lost = match self.world.node(*id) {
                Either::Left(host) => host.endpoint.lost(),
                Either::Right(host) => host.endpoint.lost(),
            };
            if let Some(found) = lost {
                return Err(Violation { check: Check::Standing, at, connection: None, found });
            }
        }
        for people in self.people() {
            if let Some((at, found)) = &people.absurd {
                return Err(sane(*at, found.clone()));
            }
            for (streams, held) in &people.buffered_max {
                let bound = self.transport.memory_max(*streams);
                if *held > bound {
                    let found =
                        format!("{streams} streams hold {held} bytes where {bound} are promised");
                    return Err(Violation { check: Check::Memory, at, connection: None, found });
                }
            }
            for (index, account) in people.unfinished() {
                check::wrong_byte(account).map_err(|(check, found)| Violation {
                    check,
                    at,
                    connection: Some(index),
                    found,
                })?;
            }
        }
        Ok(())
    }

    fn check_connections(&self) -> Result<(), Violation> {
        let at = self.world.now();
        let hosts = self.people().next().map(|p| &p.done);
        let applications: BTreeMap<usize, &Account> =
            self.people().skip(1).flat_map(|p| &p.done).map(|(i, a)| (*i, a)).collect();
        for (index, plan) in self.schedule.connections.iter().enumerate() {
            let Some(application) = applications.get(&index) else {
                let found = "was never opened".into();
                let connection = Some(index);
                return Err(Violation { check: Check::Live, at, connection, found });
            };
            let host = hosts.and_then(|h| h.get(&index));
            check::connection(at, index, plan, application, host)?;
        }
        Ok(())
    }

    /// What is left though its time is up.
    fn stuck(&self) -> Violation {
        let at = self.world.now();
        if let Some(index) = self.people().find_map(|p| p.unfinished().next()).map(|(i, _)| i) {
            let accounts: Vec<_> = self.people().filter_map(|p| p.account(index)).collect();
            let found = format!("not over in time; its ends have come to {accounts:?}");
            return Violation { check: Check::Live, at, connection: Some(index), found };
        }
        let (open, remembered): (Vec<_>, Vec<_>) =
            self.people().map(|p| (p.open(), p.remembered())).unzip();
        let held = self.holdings();
        let found = format!(
            "per node, connections to come: {open:?}, remembered: {remembered:?}; per association \
             end, streams and bytes held: {held:?}"
        );
        Violation { check: Check::Forgotten, at, connection: None, found }
    }

    fn report(&self) -> Report {
        let accounts = || self.people().flat_map(|p| p.done.values());
        Report {
            hash: self.world.trace().hash(),
            datagrams: self.world.trace().sent,
            bytes: accounts().map(|a| a.received).sum(),
            connections: self.schedule.connections.len() as u64,
            end: self.world.now(),
            buffered_max: self
                .people()
                .flat_map(|p| p.buffered_max.values())
                .max()
                .copied()
                .unwrap_or(0),
        }
    }
}

fn probes<E: Endpoint>(endpoint: &E) -> Vec<Probe> {
    (0..endpoint.associations()).map(|i| endpoint.probe(i)).collect()
}

/// A mobile's address after it has moved some times.
fn address(mobile: usize, moves: u16) -> Addr {
    Addr::new(100 + mobile as u32, 4800 + moves)
}

fn sane(at: Time, found: String) -> Violation {
    Violation { check: Check::Sane, at, connection: None, found }
}

fn halted(halt: Halt) -> Violation {
    let at = match halt {
        Halt::Events { at }
        | Halt::Spinning { at, .. }
        | Halt::Endless { at, .. }
        | Halt::Oversized { at, .. } => at,
    };
    sane(at, halt.to_string())
}

fn rtt(radio: &RadioConfig) -> Duration {
    radio.up.delay + radio.down.delay
}

fn slower(radio: &RadioConfig) -> Rate {
    let rate = |link: &LinkConfig| match &link.pacing {
        Pacing::Rate(rate) => *rate,
        Pacing::Steps(steps) => steps.initial,
        Pacing::Trace(trace) => trace.mean_rate(),
    };
    rate(&radio.up).min(rate(&radio.down))
}
