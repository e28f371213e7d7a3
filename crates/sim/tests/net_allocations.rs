//! A packet on its way allocates nothing: counted over a bulk flow across two routers, once every
//! buffer has grown.

#![allow(unsafe_code, reason = "an allocator is unsafe by nature")]
#![allow(clippy::expect_used, reason = "a test that cannot go on should say where")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};

use lasthop_radio::{Errors, LinkConfig, Loss, Pacing, QueueLimit};
use lasthop_sim::net::host::Host;
use lasthop_sim::net::traffic::{Client, Service, Traffic, Work};
use lasthop_sim::net::{Config, Context, LinkId, Network, Node, NodeId, Packet, Router};
use lasthop_tcp as tcp;
use lasthop_units::{Duration, Rate, Seed, Time};

struct Counting;

static COUNT: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is the system allocator's own; counting touches no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` is `System`'s, and the caller keeps `dealloc`'s contract.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: `ptr` is `System`'s, and the caller keeps `realloc`'s contract.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

enum AnyNode {
    Host(Box<Host<Traffic>>),
    Router(Router),
}

impl Node for AnyNode {
    fn handle_packet(&mut self, ctx: &mut Context<'_>, link: LinkId, packet: Packet) {
        match self {
            Self::Host(host) => host.handle_packet(ctx, link, packet),
            Self::Router(router) => router.handle_packet(ctx, link, packet),
        }
    }

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
}

fn network(losses: Vec<Loss>) -> Network<AnyNode> {
    let seed = Seed::from_u64(1);
    let mut network = Network::new(Config::new(seed));
    let config = tcp::Config { cwnd_max: Some(tcp::Window::Segments(16)), ..tcp::Config::ns2() };
    let client = Client { at: Time::ZERO, dst: (B, 80), config, work: Work::Bulk };
    let traffic = Traffic::new(seed);
    let host = |addr, traffic| AnyNode::Host(Box::new(Host::new(addr, seed, traffic)));
    let nodes: [NodeId; 4] = [
        host(A, traffic.start(client)),
        AnyNode::Router(Router::default()),
        AnyNode::Router(Router::default()),
        host(B, Traffic::new(seed).serve(80, config, Service::Discard)),
    ]
    .map(|node| network.add_node(node));
    for pair in nodes.windows(2) {
        let link = LinkConfig {
            pacing: Pacing::Rate(Rate::from_mbps(2)),
            delay: Duration::from_millis(20),
            queue: QueueLimit::Packets(100),
            losses: losses.clone(),
            ..LinkConfig::default()
        };
        network.add_link(pair[0], pair[1], &link).expect("a link");
        network.add_link(pair[1], pair[0], &link).expect("a link");
    }
    network.route_to(A, nodes[0]);
    network.route_to(B, nodes[3]);
    network
}

/// One test, so that nothing else runs in this process while it counts.
#[test]
fn forwarding_allocates_nothing_after_warm_up() {
    for losses in [vec![], vec![Loss::lose(Errors::Uniform(0.01))]] {
        let mut network = network(losses);
        network.run_until(Time::from_secs(200)).expect("no halt");
        let (packets, before) = (network.trace().arrived, COUNT.load(Ordering::Relaxed));
        network.run_until(Time::from_secs(400)).expect("no halt");
        let allocations = COUNT.load(Ordering::Relaxed) - before;
        let packets = network.trace().arrived - packets;
        assert!(packets > 10_000, "{packets}");
        assert_eq!(allocations, 0, "in {packets} packets");
    }
}
