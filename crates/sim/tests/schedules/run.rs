//! Carries a schedule out.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use lasthop_radio::{LinkConfig, Pacing, QueueLimit, RadioConfig};
use lasthop_sim::net::{
    Config, Datagram, Event, Limits, LinkId, Network, NodeId, Observer, Sight, TapPoint,
};
use lasthop_units::{Bytes, Duration, LinkEvent, Rate, Seed, Time};

use crate::app::Applications;
use crate::check::{self, Check, Violation};
use crate::crossing::Crossing;
use crate::flaw::Flaw;
use crate::hop::Hop;
use crate::node::{AnyNode, BASE, CALM, Host, JOIN, SWAP, address, moved};
use crate::packets::{Overview, PacketPlan, Packets};
use crate::random;
use crate::schedule::{Beside, Move, Report, Schedule, Shrink};
use crate::side::Account;

/// How often a run is looked at once the faults have stopped.
const STEP: Duration = Duration::from_millis(100);
/// What packets may wait after they were sent: the longest patience twice, and parts for what never comes.
const PACKETS_REST: Duration = Duration::from_secs(15);
const LIMITS: Limits = Limits { events: 20_000_000, at_once: 20_000 };

/// Runs `schedule` up to the first promise that is broken.
pub(crate) fn execute(flaw: Flaw, schedule: &Schedule, verbose: bool) -> Result<Report, Violation> {
    Run::new(flaw, schedule, verbose).finish()
}

struct Run<'a> {
    schedule: &'a Schedule,
    hop: Hop,
    network: Network<AnyNode>,
    /// The radio, and one beside it if there is one.
    radios: Vec<Radio>,
    /// The base first, then the mobiles.
    hosts: Vec<NodeId>,
}

/// A radio and all that meet it.
struct Radio {
    /// Where mobiles do.
    crossing: NodeId,
    /// Its links, down first.
    links: [LinkId; 2],
    /// The links to each mobile and from it.
    mobiles: Vec<[LinkId; 2]>,
}

/// What happens to a mobile's address by a link, or to both.
#[derive(Clone, Copy)]
enum Change {
    Move(usize),
    Swap,
}

impl<'a> Run<'a> {
    fn new(flaw: Flaw, schedule: &'a Schedule, verbose: bool) -> Self {
        let seed = Seed::from_u64(schedule.seed).child("run");
        let hop = Hop::random(schedule.mobiles, seed, flaw);
        let plans = &schedule.connections;
        let flows: Rc<[PacketPlan]> = schedule.packets.clone().into();
        let overview = Rc::new(RefCell::new(Overview::default()));
        let mut network = Network::new(Config { limits: LIMITS, ..Config::new(seed) });
        let host = |endpoint, applications, mobile| {
            let packets = Packets::new(mobile, Rc::clone(&flows), seed, Rc::clone(&overview), flaw);
            let packets = (packets, Rc::clone(&overview));
            let host =
                Host::new(endpoint, applications, packets, mobile, schedule.ipv6, seed, verbose);
            AnyNode::Host(Box::new(host))
        };
        let fixed_hosts = Applications::fixed_hosts(plans, seed);
        let base = network.add_node(host(hop.base(), fixed_hosts, None));
        let at_once = LinkConfig { queue: QueueLimit::Packets(u32::MAX), ..LinkConfig::default() };
        let beside = schedule.beside.iter().map(|beside| &beside.faulty);
        let configs = [&schedule.faulty].into_iter().chain(beside).enumerate();
        let crossings = configs.map(|(n, config)| {
            let seed = if n == 0 { seed } else { seed.child("beside") };
            let crossing = Crossing::new(schedule.stranger, seed);
            (n, config, network.add_node(AnyNode::Crossing(Box::new(crossing))))
        });
        let crossings: Vec<_> = crossings.collect();
        let mut hosts = vec![base];
        for mobile in 0..schedule.mobiles {
            let applications = Applications::of_mobile(mobile, plans, seed);
            let endpoint = hop.mobile(mobile, BASE);
            hosts.push(network.add_node(host(endpoint, applications, Some(mobile))));
        }
        let radios = crossings.into_iter().map(|(n, config, crossing)| {
            let links = network.add_radio(base, crossing, config).expect("a radio");
            network.set_route(crossing, *BASE.ip(), Some(links[1]));
            let mobiles = hosts[1..].iter().enumerate().map(|(mobile, node)| {
                let to = network.add_link(crossing, *node, &at_once).expect("a link");
                let from = network.add_link(*node, crossing, &at_once).expect("a link");
                let address = *address(mobile, n, 0).ip();
                network.set_route(crossing, address, Some(to));
                network.set_route(base, address, Some(links[0]));
                if let AnyNode::Host(host) = network.node_mut(*node) {
                    host.links.push([to, from]);
                }
                [to, from]
            });
            let mobiles = mobiles.collect();
            Radio { crossing, links, mobiles }
        });
        let radios: Vec<Radio> = radios.collect();
        network.set_default_route(base, Some(radios[0].links[0]));
        if verbose {
            for node in hosts.iter().chain(radios.iter().map(|radio| &radio.crossing)) {
                network.tap(TapPoint::Node(*node), Rc::new(RefCell::new(Printer)));
            }
        }
        let mut run = Self { schedule, hop, network, radios, hosts };
        run.plan();
        run
    }

    /// Enters what the schedule does into the network's agenda.
    fn plan(&mut self) {
        let (schedule, calm) = (self.schedule, self.schedule.calm_at);
        let mut changes: Vec<_> = schedule.moves.iter().map(|m| (*m, Change::Move(0))).collect();
        if let Some(beside) = &schedule.beside {
            changes.extend(beside.moves.iter().map(|m| (*m, Change::Move(1))));
            changes.extend(beside.swaps.iter().map(|m| (*m, Change::Swap)));
            for &node in &self.hosts[1..] {
                self.network.schedule(beside.from, Event::Token { node, token: JOIN });
            }
        }
        self.plan_changes(changes);
        self.plan_radio(
            0,
            (&schedule.faulty, &schedule.calm),
            schedule.shrink,
            schedule.link_events,
        );
        if let Some(beside) = &schedule.beside {
            let Beside { faulty, calm, shrink, link_events, .. } = beside;
            self.plan_radio(1, (faulty, calm), *shrink, *link_events);
        }
        let crossings = self.radios.iter().map(|radio| &radio.crossing);
        for &node in crossings.chain(&self.hosts) {
            self.network.schedule(calm, Event::Token { node, token: CALM });
        }
    }

    /// Mobiles' addresses.
    fn plan_changes(&mut self, mut changes: Vec<(Move, Change)>) {
        changes.sort_by_key(|(m, _)| m.at);
        let of_mobile = |mobile| [0, 1].map(|link| *address(mobile, link, 0).ip());
        let mut current: Vec<_> = (0..self.schedule.mobiles).map(of_mobile).collect();
        let mut moves = vec![[0; 2]; self.schedule.mobiles];
        for (Move { at, mobile }, change) in changes {
            let (old, node) = (current[mobile], self.hosts[1 + mobile]);
            let token = match change {
                Change::Move(link) => {
                    moves[mobile][link] += 1;
                    current[mobile][link] = *address(mobile, link, moves[mobile][link]).ip();
                    moved(link, moves[mobile][link])
                }
                Change::Swap => {
                    current[mobile].reverse();
                    SWAP
                }
            };
            self.network.schedule(at, Event::Token { node, token });
            for (link, radio) in self.radios.iter().enumerate() {
                let (node, new) = (radio.crossing, current[mobile][link]);
                if old[link] == new {
                    continue;
                }
                let to = radio.mobiles[mobile][0];
                let (down, base) = (radio.links[0], self.hosts[0]);
                self.network.schedule(at, Event::Route { node, dst: old[link], link: None });
                self.network.schedule(at, Event::Route { node, dst: new, link: Some(to) });
                self.network.schedule(at, Event::Route { node: base, dst: new, link: Some(down) });
            }
        }
    }

    /// What becomes of a radio.
    fn plan_radio(
        &mut self,
        n: usize,
        (faulty, calm): (&RadioConfig, &RadioConfig),
        shrink: Option<Shrink>,
        link_events: bool,
    ) {
        let calm_at = self.schedule.calm_at;
        let Radio { links, mobiles, .. } = &self.radios[n];
        for pause in faulty.up.pauses.iter().filter(|_| link_events) {
            let silent = Time::ZERO + pause.start;
            let back = (silent + pause.duration).min(calm_at);
            for (&node, &[link, _]) in self.hosts[1..].iter().zip(mobiles) {
                for (at, event) in [(silent, LinkEvent::Down), (back, LinkEvent::Up)] {
                    self.network.schedule(at, Event::Signal { node, link, event });
                }
            }
        }
        if let Some(shrink) = shrink {
            for (link, config) in links.iter().zip([&faulty.down, &faulty.up]) {
                // Times would count from here on, and so nothing is left that has any.
                let mut config = LinkConfig { pauses: Vec::new(), ..config.clone() };
                config.pacing = Pacing::Rate(random::rate(&config));
                config.mtu = config.mtu.min(shrink.mtu);
                let config = Box::new(config);
                self.network.schedule(shrink.at, Event::Conditions { link: *link, config });
            }
        }
        for (link, config) in links.iter().zip([&calm.down, &calm.up]) {
            let config = Box::new(config.clone());
            self.network.schedule(calm_at, Event::Conditions { link: *link, config });
        }
    }

    fn finish(mut self) -> Result<Report, Violation> {
        self.run_until(self.schedule.calm_at)?;
        let deadline = self.deadline();
        while !self.is_over() {
            let now = self.network.now();
            if now >= deadline {
                return Err(self.stuck());
            }
            self.run_until(now + STEP)?;
        }
        self.check_connections()?;
        Ok(self.report())
    }

    fn run_until(&mut self, at: Time) -> Result<(), Violation> {
        let result = self.network.run_until(at);
        // What applications do on a lost association may well spin; the loss is what matters.
        self.check_early()?;
        result.map_err(|halt| sane(self.network.now(), halt.to_string()))
    }

    /// By when everything must be over: the hop's patience, and time for all bytes at the calm
    /// radio's rate, for each window's round trip, and for some more round trips.
    fn deadline(&self) -> Time {
        let beside = self.schedule.beside.as_ref().map(|beside| &beside.calm);
        let calm = || [&self.schedule.calm].into_iter().chain(beside);
        let rtt = calm().map(rtt).max().unwrap_or_default();
        let rate = calm().map(slower).min().unwrap_or_default();
        let bytes = self.bytes();
        let windows = (bytes.get() / self.hop.window().max(1)) as u32;
        let answers = self.schedule.connections.iter().map(|c| c.answer_after).max();
        self.schedule.calm_at
            + self.hop.patience()
            + answers.unwrap_or_default()
            + rate.time_for(bytes) * 4
            + rtt * (30 + 2 * windows)
            + self.packets_deadline(rate)
    }

    /// What packets may take: their own bytes, as what they take from streams, and what they wait for.
    fn packets_deadline(&self, rate: Rate) -> Duration {
        let plans = &self.schedule.packets;
        let bytes = Bytes::new(plans.iter().map(PacketPlan::bytes).sum());
        let wait = plans.iter().map(|plan| plan.class.lifetime + PACKETS_REST).max();
        rate.time_for(bytes) * 2 + wait.unwrap_or_default()
    }

    fn bytes(&self) -> Bytes {
        let plans = &self.schedule.connections;
        Bytes::new(plans.iter().map(|c| c.application.bytes + c.fixed_host.bytes).sum())
    }

    fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.hosts.iter().filter_map(|id| match self.network.node(*id) {
            AnyNode::Host(host) => Some(host.as_ref()),
            AnyNode::Crossing(_) => None,
        })
    }

    fn applications(&self) -> impl Iterator<Item = &Applications> {
        self.hosts().map(|host| &host.applications)
    }

    /// What each end of each association holds: streams and bytes.
    fn holdings(&self) -> Vec<(u64, u64)> {
        self.hosts().flat_map(|host| host.endpoint.held()).collect()
    }

    fn is_over(&self) -> bool {
        self.applications().all(|a| a.open() == 0 && a.remembered() == 0)
            && self.holdings().iter().all(|held| *held == (0, 0))
            && self
                .hosts()
                .all(|h| h.packets.next_timeout().is_none() && h.endpoint.packets_held() == 0)
    }

    /// What can be seen before the end.
    fn check_early(&self) -> Result<(), Violation> {
        let at = self.network.now();
        let fail = |check, found| Err(Violation { check, at, connection: None, found });
        for host in self.hosts() {
            if let Some(found) = &host.endpoint.lost {
                return fail(Check::Standing, found.clone());
            }
            if host.endless {
                return Err(sane(at, "a host sends without end".into()));
            }
            if let Some(broken) = &host.packets.broken {
                return Err(broken.clone());
            }
            if let Some((at, found)) = &host.applications.absurd {
                return Err(sane(*at, found.clone()));
            }
            for (streams, held) in &host.applications.buffered_max {
                let bound = self.hop.memory_max(*streams);
                if *held > bound {
                    let found =
                        format!("{streams} streams hold {held} bytes where {bound} are promised");
                    return fail(Check::Memory, found);
                }
            }
            for (index, account) in host.applications.unfinished() {
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
        let at = self.network.now();
        let fixed_hosts = self.applications().next().map(|a| &a.done);
        let applications: BTreeMap<usize, &Account> =
            self.applications().skip(1).flat_map(|a| &a.done).map(|(i, a)| (*i, a)).collect();
        for (index, plan) in self.schedule.connections.iter().enumerate() {
            let Some(application) = applications.get(&index) else {
                let found = "was never opened".into();
                let connection = Some(index);
                return Err(Violation { check: Check::Live, at, connection, found });
            };
            let fixed_host = fixed_hosts.and_then(|done| done.get(&index));
            check::connection(at, index, plan, application, fixed_host)?;
        }
        Ok(())
    }

    /// What is left though its time is up.
    fn stuck(&self) -> Violation {
        let at = self.network.now();
        if let Some((index, _)) = self.applications().find_map(|a| a.unfinished().next()) {
            let accounts: Vec<_> = self.applications().filter_map(|a| a.account(index)).collect();
            let found = format!("not over in time; its ends have come to {accounts:?}");
            return Violation { check: Check::Live, at, connection: Some(index), found };
        }
        let (open, remembered): (Vec<_>, Vec<_>) =
            self.applications().map(|a| (a.open(), a.remembered())).unzip();
        let held = self.holdings();
        let packets: Vec<_> = self.hosts().map(|host| host.endpoint.packets_held()).collect();
        let found = format!(
            "per host, bytes of packets: {packets:?}, connections to come: {open:?}, remembered: {remembered:?}; per association \
             end, streams and bytes held: {held:?}"
        );
        Violation { check: Check::Forgotten, at, connection: None, found }
    }

    fn report(&self) -> Report {
        let accounts = || self.applications().flat_map(|a| a.done.values());
        let buffered = self.applications().flat_map(|a| a.buffered_max.values());
        let trace = self.network.trace();
        Report {
            hash: self.hosts().fold(trace.hash(), |hash, host| hash.rotate_left(1) ^ host.heard),
            packets: trace.sent,
            bytes: accounts().map(|a| a.received).sum(),
            packets_received: self.hosts().map(|host| host.packets.received).sum(),
            connections: self.schedule.connections.len() as u64,
            end: self.network.now(),
            buffered_max: buffered.max().copied().unwrap_or(0),
        }
    }
}

fn sane(at: Time, found: String) -> Violation {
    Violation { check: Check::Sane, at, connection: None, found }
}

fn rtt(radio: &RadioConfig) -> Duration {
    radio.up.delay + radio.down.delay
}

fn slower(radio: &RadioConfig) -> Rate {
    random::rate(&radio.up).min(random::rate(&radio.down))
}

/// Prints whatever passes.
struct Printer;

impl Observer for Printer {
    fn handle_packet(&mut self, now: Time, _: TapPoint, sight: Sight, packet: &Datagram) {
        let damaged = if packet.corrupted { ", damaged" } else { "" };
        let (src, dst, len) = (packet.src, packet.dst, packet.payload_len());
        eprintln!("{now} {src} to {dst}, {len} B{damaged}: {sight:?}");
    }
}
