//! How fast the simulated network is: Reno over the obTCP topology, without loss if not asked for.
//!
//! FH -(100 Mbit/s, 50 ms)- BS -(2 Mbit/s, 20 ms)- MR -(11 Mbit/s, 20 ms)- MH, segments of 1000
//! bytes, a window of 16, every segment acknowledged. Prints how many segments arrived, what that
//! cost, and the hash that must be the same on every machine. Independent runs on several threads
//! show what a sweep costs.

use std::net::Ipv4Addr;
use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::Parser;
use lasthop_radio::{Errors, LinkConfig, Loss, Pacing, QueueLimit, Share};
use lasthop_sim::net::host::Host;
use lasthop_sim::net::traffic::{Client, Service, Traffic, Work};
use lasthop_sim::net::{Config, Context, LinkId, Network, Node, Packet, Router};
use lasthop_tcp as tcp;
use lasthop_units::{Duration, LinkEvent, Rate, Seed, Time};
use rayon::prelude::*;

const FH: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const MH: Ipv4Addr = Ipv4Addr::new(10, 0, 3, 1);
const PORT: u16 = 5001;

/// How fast the simulated network is.
#[derive(Parser)]
struct Args {
    /// Simulated seconds.
    #[arg(long, default_value_t = 20_000)]
    seconds: u64,
    /// The run's seed; further runs have the seeds that follow.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The share of packets lost on the last hop, each way.
    #[arg(long, default_value = "0%")]
    loss: Share,
    /// The share of time in fades on the last hop, each way; a fade lasts 100 ms in the mean.
    #[arg(long, default_value = "0%")]
    fade: Share,
    /// Independent runs.
    #[arg(long, default_value_t = 1)]
    runs: u64,
    /// Threads that the runs are spread over.
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

enum AnyNode {
    Host(Box<Host<Traffic>>),
    Router(Router),
}

impl Node for AnyNode {
    #[inline]
    fn handle_packet(&mut self, ctx: &mut Context<'_>, link: LinkId, packet: Packet) {
        match self {
            Self::Host(host) => host.handle_packet(ctx, link, packet),
            Self::Router(router) => router.handle_packet(ctx, link, packet),
        }
    }

    #[inline]
    fn next_timeout(&self) -> Option<Time> {
        match self {
            Self::Host(host) => host.next_timeout(),
            Self::Router(router) => router.next_timeout(),
        }
    }

    fn handle_timeout(&mut self, ctx: &mut Context<'_>) {
        match self {
            Self::Host(host) => host.handle_timeout(ctx),
            Self::Router(router) => router.handle_timeout(ctx),
        }
    }

    fn handle_link_event(&mut self, ctx: &mut Context<'_>, link: LinkId, event: LinkEvent) {
        match self {
            Self::Host(host) => host.handle_link_event(ctx, link, event),
            Self::Router(router) => router.handle_link_event(ctx, link, event),
        }
    }
}

fn reno() -> tcp::Config {
    tcp::Config { cwnd_max: Some(tcp::Window::Segments(16)), ..tcp::Config::ns2() }
}

fn losses(args: &Args) -> Vec<Loss> {
    let mut losses = Vec::new();
    if args.loss.0 > 0.0 {
        losses.push(Loss::lose(Errors::Uniform(args.loss.0)));
    }
    if args.fade.0 > 0.0 {
        let mean = Duration::from_millis(100);
        losses.push(Loss::lose(Errors::Fade { mean, share: args.fade.0 }));
    }
    losses
}

fn build(args: &Args, seed: Seed) -> Result<(Network<AnyNode>, lasthop_sim::net::NodeId)> {
    let mut network = Network::new(Config::new(seed));
    let client = Client { at: Time::ZERO, dst: (MH, PORT), config: reno(), work: Work::Bulk };
    let sender = Traffic::new(seed.child("fh")).start(client);
    let receiver = Traffic::new(seed.child("mh")).serve(PORT, reno(), Service::Discard);
    let fh = network.add_node(AnyNode::Host(Box::new(Host::new(FH, seed.child("fh"), sender))));
    let bs = network.add_node(AnyNode::Router(Router::default()));
    let mr = network.add_node(AnyNode::Router(Router::default()));
    let mh = network.add_node(AnyNode::Host(Box::new(Host::new(MH, seed.child("mh"), receiver))));
    for (a, b, mbps, ms) in [(fh, bs, 100, 50), (bs, mr, 2, 20), (mr, mh, 11, 20)] {
        let last = mbps == 11;
        let config = LinkConfig {
            losses: if last { losses(args) } else { Vec::new() },
            pacing: Pacing::Rate(Rate::from_mbps(mbps)),
            delay: Duration::from_millis(ms),
            queue: QueueLimit::Packets(100),
            ..LinkConfig::default()
        };
        network.add_link(a, b, &config).context("a link")?;
        network.add_link(b, a, &config).context("a link")?;
    }
    network.route_to(FH, fh);
    network.route_to(MH, mh);
    Ok((network, mh))
}

/// CPU time of this thread so far, in seconds.
fn cpu_seconds() -> Result<f64> {
    let text =
        std::fs::read_to_string("/proc/thread-self/schedstat").context("reading CPU time")?;
    let first = text.split_whitespace().next().context("no CPU time")?;
    Ok(first.parse::<u64>()? as f64 / 1e9)
}

/// What one run did, or several together.
#[derive(Default)]
struct Outcome {
    delivered: u64,
    events: u64,
    cpu: f64,
    hash: u64,
}

fn run(args: &Args, seed: u64) -> Result<Outcome> {
    let (mut network, mh) = build(args, Seed::from_u64(seed))?;
    let before = cpu_seconds()?;
    network.run_until(Time::from_secs(args.seconds))?;
    let cpu = cpu_seconds()? - before;
    let AnyNode::Host(host) = network.node(mh) else { anyhow::bail!("the mobile is no host") };
    let received: u64 = host.app().records().map(|record| record.received.get()).sum();
    let trace = network.trace();
    Ok(Outcome { delivered: received / 1000, events: trace.events, cpu, hash: trace.hash() })
}

/// All runs; their hashes are combined in the order of the seeds.
fn run_all(args: &Args) -> Result<Outcome> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(args.threads).build()?;
    let seeds: Vec<u64> = (args.seed..args.seed + args.runs).collect();
    let outcomes: Vec<Outcome> =
        pool.install(|| seeds.into_par_iter().map(|seed| run(args, seed)).collect::<Result<_>>())?;
    Ok(outcomes.into_iter().fold(Outcome::default(), |sum, one| Outcome {
        delivered: sum.delivered + one.delivered,
        events: sum.events + one.events,
        cpu: sum.cpu + one.cpu,
        hash: sum.hash.rotate_left(1) ^ one.hash,
    }))
}

fn main() -> Result<()> {
    let args = Args::parse();
    let began = Instant::now();
    let Outcome { delivered, events, cpu, hash } = run_all(&args)?;
    println!("delivered packets            {delivered}");
    println!("CPU seconds                  {cpu:.3}");
    println!("seconds                      {:.3}", began.elapsed().as_secs_f64());
    println!("delivered packets per second {:.0}", delivered as f64 / cpu);
    println!("nanoseconds per packet       {:.1}", cpu * 1e9 / delivered as f64);
    println!("events                       {events}");
    println!("nanoseconds per event        {:.1}", cpu * 1e9 / events as f64);
    println!("trace hash                   {hash:016x}");
    Ok(())
}
