//! Nodes and links, as the scripts beside reference.toml have them.

use core::net::Ipv4Addr;

use lasthop_agent::snoop::{Config as SnoopConfig, Timer};
use lasthop_radio::{ConfigError, Errors, LinkConfig, Loss, Pacing, QueueLimit};
use lasthop_sim::net::{Config, Event, Network, NodeId};
use lasthop_tcp::{Algorithm, Config as Tcp, Window};
use lasthop_units::{Duration, Rate, Seed, Time};

use super::place::{GatedNode, OPEN, SHUT};
use crate::scenario::{self, Chain, Fade, Flow, Outage, Scenario, Sender, Snoop, SnoopAt};

const FIXED: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const MOBILE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const BASE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);

/// A network ready to run, and where its sender is.
pub(super) struct Built {
    pub(super) network: Network<GatedNode>,
    pub(super) sender: NodeId,
}

pub(super) fn build(scenario: &Scenario, seed: Seed) -> Result<Built, ConfigError> {
    let tcp = tcp(&scenario.flow);
    let network = Network::new(Config::new(seed));
    match &scenario.network {
        scenario::Network::Chain(chain) => chain_of(network, chain, tcp, seed),
        scenario::Network::Outage(outage) => outage_of(network, outage, tcp, seed, scenario.time),
        scenario::Network::Fade(fade) => fade_of(network, fade, tcp, seed),
    }
}

/// ns-2's defaults with the flow's parameters. The window is the receiver's, as in ns-2, where it
/// bounds the inflated congestion window too.
fn tcp(flow: &Flow) -> Tcp {
    let mut tcp = Tcp::ns2();
    tcp.mss = flow.payload;
    tcp.initial_cwnd = Window::Segments(flow.first_window);
    tcp.initial_ssthresh = flow.ssthresh.map(Window::Segments);
    tcp.cwnd_max = None;
    tcp.recv_buffer = flow.window_bytes();
    tcp.window_scale = false;
    tcp.sack = flow.sender == Sender::Sack;
    tcp.rto.min = flow.min_rto;
    tcp.rto.max = flow.max_rto;
    tcp.rto.tick = flow.tick;
    tcp.algorithm = match flow.sender {
        Sender::Tahoe => Algorithm::Tahoe,
        Sender::Reno => Algorithm::Reno,
        Sender::NewReno => Algorithm::NewReno,
        Sender::Sack => Algorithm::Sack,
    };
    tcp
}

fn snoop(at: &SnoopAt) -> SnoopConfig {
    match at.which {
        Snoop::Usual => SnoopConfig::default(),
        Snoop::Alike => SnoopConfig {
            dupacks: 2,
            timer: at.pin.map_or(Timer::Stock, Timer::Pinned),
            ..SnoopConfig::default()
        },
    }
}

fn link(rate: Rate, delay: Duration, queue: u32) -> LinkConfig {
    LinkConfig {
        pacing: Pacing::Rate(rate),
        delay,
        queue: QueueLimit::Packets(queue),
        ..LinkConfig::default()
    }
}

fn with_losses(link: LinkConfig, errors: Option<Errors>) -> LinkConfig {
    LinkConfig { losses: errors.map(Loss::lose).into_iter().collect(), ..link }
}

fn uniform(p: f64) -> Option<Errors> {
    (p > 0.0).then_some(Errors::Uniform(p))
}

fn route(network: &mut Network<GatedNode>, fixed: NodeId, mobile: NodeId) {
    network.route_to(FIXED, fixed);
    network.route_to(MOBILE, mobile);
}

fn chain_of(
    mut network: Network<GatedNode>,
    c: &Chain,
    tcp: Tcp,
    seed: Seed,
) -> Result<Built, ConfigError> {
    let (fixed, mobile) = ends(false, tcp, seed);
    let fixed = network.add_node(fixed);
    let base = network.add_node(match &c.snoop {
        Some(at) => GatedNode::base(BASE, MOBILE, snoop(at)),
        None => GatedNode::router(),
    });
    let router = network.add_node(GatedNode::router());
    let mobile = network.add_node(mobile);
    let wired = link(Rate::from_mbps(100), Duration::from_millis(50), c.queue);
    let first = link(Rate::from_mbps(2), c.d1, c.queue);
    let second = link(Rate::from_mbps(11), c.d2, c.queue);
    let down = if c.burst > 1.0 { Some(Errors::burst(c.p1, c.burst)) } else { uniform(c.p1) };
    let up = |p| uniform(p).filter(|_| c.both);
    network.add_link(fixed, base, &wired)?;
    network.add_link(base, fixed, &wired)?;
    network.add_link(base, router, &with_losses(first.clone(), down))?;
    network.add_link(router, base, &with_losses(first, up(c.p1)))?;
    network.add_link(router, mobile, &with_losses(second.clone(), uniform(c.p2)))?;
    network.add_link(mobile, router, &with_losses(second, up(c.p2)))?;
    route(&mut network, fixed, mobile);
    Ok(Built { network, sender: fixed })
}

fn outage_of(
    mut network: Network<GatedNode>,
    o: &Outage,
    tcp: Tcp,
    seed: Seed,
    end: Duration,
) -> Result<Built, ConfigError> {
    let hop = Duration::from_millis(1);
    let (fixed, mobile) = ends(o.from_mobile, tcp, seed);
    let fixed = network.add_node(fixed);
    let base = network.add_node(GatedNode::router());
    let mobile = network.add_node(mobile);
    let wired = link(Rate::from_mbps(100), (o.rtt / 2).saturating_sub(hop), o.queue);
    let air = link(Rate::from_mbps(2), hop, o.queue);
    network.add_link(fixed, base, &wired)?;
    network.add_link(base, fixed, &wired)?;
    let down = network.add_link(base, mobile, &air)?;
    let up = network.add_link(mobile, base, &air)?;
    network.with_node(mobile, |place, _| place.add_gate(down));
    network.with_node(base, |place, _| place.add_gate(up));
    for (from, to) in outages(o, seed, end) {
        for node in [base, mobile] {
            network.schedule(from, Event::Token { node, token: SHUT });
            network.schedule(to, Event::Token { node, token: OPEN });
        }
    }
    route(&mut network, fixed, mobile);
    Ok(Built { network, sender: if o.from_mobile { mobile } else { fixed } })
}

/// The fixed host and the mobile, of which one sends.
fn ends(from_mobile: bool, tcp: Tcp, seed: Seed) -> (GatedNode, GatedNode) {
    let (fixed, mobile) = (seed.child("fixed"), seed.child("mobile"));
    if from_mobile {
        (GatedNode::sink(FIXED, tcp, fixed), GatedNode::source(MOBILE, FIXED, tcp, mobile))
    } else {
        (GatedNode::source(FIXED, MOBILE, tcp, fixed), GatedNode::sink(MOBILE, tcp, mobile))
    }
}

/// Beginnings and ends of all outages that are over before `end`.
fn outages(o: &Outage, seed: Seed, end: Duration) -> Vec<(Time, Time)> {
    let mut stream = seed.stream("outages");
    let mut all = Vec::new();
    let mut cycle = o.first;
    while !o.outage.is_zero() && cycle + o.jitter + o.outage < end {
        let from = Time::ZERO + cycle + o.jitter.mul_f64(stream.uniform());
        let length = o.outage.mul_f64(1.0 + o.spread * (2.0 * stream.uniform() - 1.0));
        all.push((from, from + length));
        cycle += o.cycle;
    }
    all
}

fn fade_of(
    mut network: Network<GatedNode>,
    f: &Fade,
    tcp: Tcp,
    seed: Seed,
) -> Result<Built, ConfigError> {
    let (fixed, mobile) = ends(false, tcp, seed);
    let fixed = network.add_node(fixed);
    let base = network.add_node(GatedNode::router());
    let mobile = network.add_node(mobile);
    let delay = Duration::from_millis(1);
    let wired = link(Rate::from_mbps(10), delay, f.queue);
    let fades = (f.share > 0.0).then_some(Errors::Fade { mean: f.fade, share: f.share });
    let air = with_losses(link(f.rate, delay, f.queue), fades);
    network.add_link(fixed, base, &wired)?;
    network.add_link(base, fixed, &wired)?;
    network.add_link(base, mobile, &air)?;
    network.add_link(mobile, base, &air)?;
    route(&mut network, fixed, mobile);
    Ok(Built { network, sender: fixed })
}
