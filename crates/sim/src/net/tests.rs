use core::net::Ipv4Addr;
use std::cell::RefCell;
use std::rc::Rc;

use lasthop_radio::{Errors, LinkConfig, Loss, Pacing, RadioConfig, Refusal};
use lasthop_units::{Bytes, Duration, LinkEvent, Rate, Seed, Time};

use super::*;

const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const R: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);

/// Sends `left` numbered packets and remembers what it sees.
#[derive(Default)]
struct Talker {
    left: u32,
    every: Duration,
    next: Time,
    len: u32,
    tunnel: bool,
    heard: Vec<(Time, u32, bool)>,
    tokens: Vec<u64>,
    signals: Vec<(LinkId, LinkEvent)>,
}

impl Talker {
    fn sending(left: u32, every: Duration) -> Self {
        Self { left, every, len: 972, ..Self::default() }
    }
}

enum TestNode {
    Talker(Talker),
    Router(Router),
}

impl TestNode {
    fn talker(&self) -> &Talker {
        match self {
            Self::Talker(talker) => talker,
            Self::Router(_) => panic!("a router"),
        }
    }

    fn router(&self) -> &Router {
        match self {
            Self::Router(router) => router,
            Self::Talker(_) => panic!("a talker"),
        }
    }
}

impl Node for TestNode {
    fn handle_packet(&mut self, ctx: &mut Context<'_>, link: LinkId, packet: Packet) {
        match self {
            Self::Talker(talker) => {
                let number = match packet.payload() {
                    Payload::Virtual(len) => len,
                    Payload::Real(bytes) => u32::from(bytes[0]),
                };
                talker.heard.push((ctx.now(), number, packet.corrupted));
            }
            Self::Router(router) => router.handle_packet(ctx, link, packet),
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        match self {
            Self::Talker(talker) => (talker.left > 0).then_some(talker.next),
            Self::Router(_) => None,
        }
    }

    fn handle_timeout(&mut self, ctx: &mut Context<'_>) {
        let Self::Talker(talker) = self else { return };
        talker.left -= 1;
        talker.next = ctx.now() + talker.every;
        let mut packet = ctx.packet(A, B, Body::Udp { src_port: 1, dst_port: 2 });
        packet.set_real(talker.len)[0] = talker.left as u8;
        if talker.tunnel {
            packet.encapsulate(A, R);
        }
        ctx.send(packet).ok();
    }

    fn handle_link_event(&mut self, _ctx: &mut Context<'_>, link: LinkId, event: LinkEvent) {
        if let Self::Talker(talker) = self {
            talker.signals.push((link, event));
        }
    }

    fn handle_token(&mut self, _ctx: &mut Context<'_>, token: u64) {
        if let Self::Talker(talker) = self {
            talker.tokens.push(token);
        }
    }
}

fn megabit(delay: u64) -> LinkConfig {
    LinkConfig {
        pacing: Pacing::Rate(Rate::from_mbps(1)),
        delay: Duration::from_millis(delay),
        ..LinkConfig::default()
    }
}

struct Chain {
    network: Network<TestNode>,
    a: NodeId,
    r: NodeId,
    b: NodeId,
    links: [LinkId; 4],
}

/// A, a router and B: 1 Mbit/s and 10 ms from A, `second` from the router on.
fn chain(config: Config, talker: Talker, second: &LinkConfig) -> Chain {
    let mut network = Network::new(config);
    let a = network.add_node(TestNode::Talker(talker));
    let r = network.add_node(TestNode::Router(Router::new([R])));
    let b = network.add_node(TestNode::Talker(Talker::default()));
    let mut link = |from, to, config: &LinkConfig| network.add_link(from, to, config);
    let links = [
        link(a, r, &megabit(10)).expect("a link"),
        link(r, b, second).expect("a link"),
        link(b, r, second).expect("a link"),
        link(r, a, &megabit(10)).expect("a link"),
    ];
    for (addr, owner) in [(A, a), (R, r), (B, b)] {
        network.route_to(addr, owner);
    }
    Chain { network, a, r, b, links }
}

fn seeded() -> Config {
    Config::new(Seed::from_u64(1))
}

/// LNK-1: 1000 bytes at 1 Mbit/s take 8 ms, twice, and the delays.
#[test]
fn packets_cross_a_router_with_their_headers_counted() {
    let talker = Talker::sending(3, Duration::from_millis(20));
    let mut chain = chain(seeded(), talker, &megabit(5));
    chain.network.run_until(Time::from_secs(1)).expect("no halt");
    let at = |ms: u64| Time::from_millis(8 + 10 + 8 + 5 + ms);
    let heard = &chain.network.node(chain.b).talker().heard;
    assert_eq!(*heard, [(at(0), 2, false), (at(20), 1, false), (at(40), 0, false)]);
    assert_eq!(chain.network.node(chain.r).router().stats().forwarded, 3);
    assert_eq!(chain.network.packets_in_flight(), 0);
    assert_eq!(chain.network.now(), Time::from_secs(1));
}

#[test]
fn headers_may_be_free() {
    let config = Config { headers: Headers::Free, ..seeded() };
    let talker = Talker { len: 1000, ..Talker::sending(1, Duration::ZERO) };
    let mut chain = chain(config, talker, &megabit(5));
    chain.network.run_until(Time::from_secs(1)).expect("no halt");
    assert_eq!(chain.network.node(chain.b).talker().heard[0].0, Time::from_millis(31));
}

/// MOB-1: a frame has no IP header: a link is charged its payload and nothing else. It ends where its
/// link ends: no router forwards it, and no tunnel takes it further.
#[test]
fn a_frame_is_its_payload_and_stays_on_its_link() {
    let mut chain = chain(seeded(), Talker::default(), &megabit(5));
    let send = |network: &mut Network<TestNode>, node, (src, dst), len| {
        network.with_node(node, |_, ctx| {
            let mut packet = ctx.packet(src, dst, Body::Frame { ethertype: 0x88b5 });
            packet.set_virtual(len);
            packet.encapsulate(src, dst);
            assert_eq!((packet.ip_len().get(), packet.tunnel), (u64::from(len), None));
            ctx.send(packet).expect("a route");
        });
    };
    send(&mut chain.network, chain.a, (A, B), 1016);
    send(&mut chain.network, chain.a, (A, R), 16);
    chain.network.run_until(Time::from_secs(1)).expect("no halt");
    assert_eq!(chain.network.link_stats(chain.links[0]).delivered.bytes, 1016 + 16);
    assert_eq!(chain.network.link_stats(chain.links[1]).delivered.bytes, 0);
    let router = chain.network.node(chain.r).router().stats();
    assert_eq!((router.expired, router.consumed, router.forwarded), (1, 1, 0));
    send(&mut chain.network, chain.r, (A, B), 1);
    chain.network.run_until(Time::from_secs(2)).expect("no halt");
    assert_eq!(chain.network.node(chain.b).talker().heard.len(), 1);
}

/// MIP-3: a packet in a tunnel is 20 bytes longer, and goes where the tunnel ends.
#[test]
fn a_tunnel_costs_20_bytes_and_routes_by_its_end() {
    let talker = Talker { tunnel: true, ..Talker::sending(1, Duration::ZERO) };
    let mut chain = chain(seeded(), talker, &megabit(5));
    chain.network.run_until(Time::from_secs(1)).expect("no halt");
    assert_eq!(chain.network.link_stats(chain.links[0]).delivered.bytes, 1020);
    assert_eq!(chain.network.node(chain.r).router().stats().consumed, 1);
    assert!(chain.network.node(chain.b).talker().heard.is_empty());
}

#[test]
fn a_packet_without_a_route_is_counted_and_gone() {
    let talker = Talker::sending(1, Duration::ZERO);
    let mut chain = chain(seeded(), talker, &megabit(5));
    chain.network.set_route(chain.r, B, None);
    chain.network.run_until(Time::from_secs(1)).expect("no halt");
    assert_eq!(chain.network.trace().unroutable, 1);
    assert_eq!(chain.network.node(chain.r).router().stats().dropped, 1);
    assert_eq!(chain.network.packets_in_flight(), 0);
}

#[test]
fn a_routing_loop_ends_with_the_ttl() {
    let talker = Talker::sending(1, Duration::ZERO);
    let mut chain = chain(seeded(), talker, &megabit(5));
    let back = chain.network.add_node(TestNode::Router(Router::default()));
    let there = chain.network.add_link(chain.r, back, &megabit(0)).expect("a link");
    let again = chain.network.add_link(back, chain.r, &megabit(0)).expect("a link");
    chain.network.set_route(chain.r, B, Some(there));
    chain.network.set_default_route(back, Some(again));
    chain.network.run_until(Time::from_secs(10)).expect("no halt");
    let expired = |node| chain.network.node(node).router().stats().expired;
    assert_eq!(expired(chain.r) + expired(back), 1);
}

#[test]
fn a_route_can_change_while_packets_are_on_their_way() {
    let talker = Talker::sending(2, Duration::from_millis(20));
    let mut chain = chain(seeded(), talker, &megabit(5));
    let (node, dst) = (chain.r, B);
    let event = Event::Route { node, dst, link: None };
    chain.network.schedule(Time::from_millis(30), event);
    chain.network.run_until(Time::from_secs(1)).expect("no halt");
    assert_eq!(chain.network.node(chain.b).talker().heard.len(), 1);
    assert_eq!(chain.network.trace().unroutable, 1);
}

#[test]
fn somebody_elses_link_is_no_route() {
    let talker = Talker::sending(1, Duration::ZERO);
    let mut chain = chain(seeded(), talker, &megabit(5));
    chain.network.set_route(chain.a, B, Some(chain.links[1]));
    assert_eq!(chain.network.routes(chain.a).get(B), None);
    let sent = chain.network.with_node(chain.a, |_, ctx| {
        let packet = ctx.packet(A, B, Body::Other { protocol: 1 });
        ctx.send_on(LinkId::new(1), packet)
    });
    assert_eq!(sent, Err(Undelivered::NoRoute));
}

/// LNK-12: what is queued and on air when a link goes down is lost, and nothing enters until it is
/// up again.
#[test]
fn a_link_that_is_down_carries_nothing() {
    let talker = Talker::sending(10, Duration::from_millis(10));
    let mut chain = chain(seeded(), talker, &megabit(5));
    let link = chain.links[1];
    chain.network.schedule(Time::from_millis(25), Event::LinkDown(link));
    chain.network.schedule(Time::from_millis(65), Event::LinkUp(link));
    chain.network.run_until(Time::from_secs(1)).expect("no halt");
    let heard: Vec<_> = chain.network.node(chain.b).talker().heard.iter().map(|h| h.1).collect();
    assert_eq!(heard, [4, 3, 2, 1, 0]);
    let stats = chain.network.link_stats(link);
    assert_eq!((stats.dropped.silence.packets, stats.pauses), (5, 1));
    assert_eq!(chain.network.packets_in_flight(), 0);
}

#[test]
fn replaced_conditions_leave_alone_what_is_in_the_link() {
    let talker = Talker::sending(2, Duration::from_millis(20));
    let mut chain = chain(seeded(), talker, &megabit(5));
    let link = chain.links[1];
    let config = Box::new(megabit(500));
    chain.network.schedule(Time::from_millis(27), Event::Conditions { link, config });
    chain.network.run_until(Time::from_secs(1)).expect("no halt");
    let heard = &chain.network.node(chain.b).talker().heard;
    assert_eq!(heard[0].0, Time::from_millis(31));
    assert_eq!(heard[1].0, Time::from_millis(20 + 18 + 8 + 500));
}

/// LNK-14: signals come from the agenda, and tokens with them, in order.
#[test]
fn nodes_hear_signals_and_tokens_at_their_times() {
    let mut chain = chain(seeded(), Talker::default(), &megabit(5));
    let (node, link) = (chain.b, chain.links[2]);
    let event = LinkEvent::Down;
    chain.network.schedule(Time::from_secs(1), Event::Token { node, token: 7 });
    chain.network.schedule(Time::from_secs(1), Event::Token { node, token: 8 });
    chain.network.schedule(Time::from_secs(2), Event::Signal { node, link, event });
    chain.network.run_until(Time::from_millis(1500)).expect("no halt");
    assert_eq!(chain.network.node(node).talker().tokens, [7, 8]);
    assert!(chain.network.node(node).talker().signals.is_empty());
    chain.network.run_until(Time::from_secs(2)).expect("no halt");
    assert_eq!(chain.network.node(node).talker().signals, [(link, LinkEvent::Down)]);
}

/// LNK-10: a damaged packet costs its air time, is handed over as damaged, and a router drops it.
#[test]
fn receivers_see_that_a_packet_is_damaged() {
    let talker = Talker::sending(50, Duration::from_millis(10));
    let corrupt = LinkConfig { losses: vec![Loss::corrupt(Errors::Uniform(1.0))], ..megabit(5) };
    let mut chain = chain(seeded(), talker, &corrupt);
    chain.network.run_until(Time::from_secs(1)).expect("no halt");
    let heard = &chain.network.node(chain.b).talker().heard;
    assert!(heard.len() == 50 && heard.iter().all(|&(_, _, corrupted)| corrupted));
}

/// LNK-11: one link never changes the order, whatever it loses.
#[test]
fn order_is_kept_over_lossy_links() {
    let talker = Talker::sending(200, Duration::from_millis(3));
    let lossy = LinkConfig { losses: vec![Loss::lose(Errors::burst(0.1, 2.0))], ..megabit(5) };
    let mut chain = chain(seeded(), talker, &lossy);
    chain.network.run_until(Time::from_secs(10)).expect("no halt");
    let heard = &chain.network.node(chain.b).talker().heard;
    assert!(heard.len() > 30 && heard.is_sorted_by(|a, b| a.1 > b.1 && a.0 < b.0));
}

/// LNK-15: one seed, one hash; another seed, another.
#[test]
fn the_hash_follows_from_the_seed() {
    let run = |seed| {
        let lossy = LinkConfig { losses: vec![Loss::lose(Errors::Uniform(0.3))], ..megabit(5) };
        let talker = Talker::sending(100, Duration::from_millis(10));
        let mut chain = chain(Config::new(Seed::from_u64(seed)), talker, &lossy);
        chain.network.run_until(Time::from_secs(10)).expect("no halt");
        chain.network.trace().clone()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).hash(), run(2).hash());
}

/// LNK-15: what is added first, or besides, changes no other link's luck.
#[test]
fn what_a_link_loses_follows_from_its_ends_or_its_name() {
    let lossy = LinkConfig { losses: vec![Loss::lose(Errors::Uniform(0.3))], ..megabit(5) };
    let heard = |named: bool, lossy_last: bool| {
        let mut network = Network::new(seeded());
        let talker = Talker::sending(100, Duration::from_millis(10));
        let a = network.add_node(TestNode::Talker(talker));
        let b = network.add_node(TestNode::Talker(Talker::default()));
        let other = network.add_node(TestNode::Talker(Talker::default()));
        if lossy_last {
            network.add_link(a, other, &lossy).expect("a link");
            network.add_link(b, a, &lossy).expect("a link");
            let radio = RadioConfig::both(lossy.clone());
            network.add_named_radio("other", other, b, &radio).expect("a radio");
        }
        let link = if named {
            let radio = RadioConfig::both(lossy.clone());
            network.add_named_radio("radio", a, b, &radio).expect("a radio")[0]
        } else {
            network.add_link(a, b, &lossy).expect("a link")
        };
        network.set_default_route(a, Some(link));
        network.run_until(Time::from_secs(2)).expect("no halt");
        network.node(b).talker().heard.clone()
    };
    for named in [false, true] {
        assert_eq!(heard(named, false), heard(named, true), "named: {named}");
    }
    assert_ne!(heard(false, false), heard(true, false));
}

/// Two links between the same ends, or with one name, are lucky at different times.
#[test]
fn links_that_nothing_tells_apart_are_counted() {
    let lossy = LinkConfig { losses: vec![Loss::lose(Errors::Uniform(0.3))], ..megabit(5) };
    let mut network = Network::new(seeded());
    let a = network.add_node(TestNode::Talker(Talker::sending(200, Duration::from_millis(10))));
    let b = network.add_node(TestNode::Talker(Talker::default()));
    let radio = RadioConfig::both(lossy.clone());
    let links = [
        network.add_link(a, b, &lossy).expect("a link"),
        network.add_link(a, b, &lossy).expect("a link"),
        network.add_named_radio("twin", a, b, &radio).expect("a radio")[0],
        network.add_named_radio("twin", a, b, &radio).expect("a radio")[0],
    ];
    let mut lost = Vec::new();
    for (n, link) in links.into_iter().enumerate() {
        network.set_default_route(a, Some(link));
        network.run_until(Time::from_millis(500 * (n as u64 + 1) - 1)).expect("no halt");
        let heard = &network.node(b).talker().heard;
        let got = |i: u32| heard.iter().any(|(_, number, _)| *number == 199 - (50 * n as u32 + i));
        lost.push((0..49).map(got).collect::<Vec<bool>>());
    }
    for (n, one) in lost.iter().enumerate() {
        assert!(lost[..n].iter().all(|other| other != one), "{n}: {lost:?}");
    }
}

#[test]
fn both_directions_of_a_radio_are_links() {
    let mut network = Network::new(seeded());
    let a = network.add_node(TestNode::Talker(Talker::sending(1, Duration::ZERO)));
    let b = network.add_node(TestNode::Talker(Talker::default()));
    let [down, up] = network.add_radio(a, b, &RadioConfig::both(megabit(5))).expect("a radio");
    assert_eq!((network.ends(down), network.ends(up)), (Some((a, b)), Some((b, a))));
    network.set_default_route(a, Some(down));
    network.run_until(Time::from_secs(1)).expect("no halt");
    assert_eq!(network.node(b).talker().heard.len(), 1);
}

/// MOB-1: the directions of a half-duplex radio take turns, whether they carry packets or frames; each
/// end gets what the other one sent, and its own link says so.
#[test]
fn both_directions_take_turns_on_a_half_duplex_radio() {
    let mut network = Network::new(seeded());
    let [a, b] =
        [(); 2].map(|()| network.add_node(TestNode::Talker(Talker::sending(2, Duration::ZERO))));
    let twice = LinkConfig { duplicate: 1.0, ..megabit(5) };
    let [down, up] = network.add_half_duplex_radio("radio", a, b, &twice).expect("a radio");
    assert_eq!((network.ends(down), network.ends(up)), (Some((a, b)), Some((b, a))));
    network.set_default_route(a, Some(down));
    network.set_default_route(b, Some(up));
    let watch = Rc::new(RefCell::new(Watch::default()));
    network.tap(TapPoint::LinkOut(down), watch.clone());
    network.run_until(Time::from_millis(100)).expect("no halt");
    let heard = |network: &Network<TestNode>, node| {
        network
            .node(node)
            .talker()
            .heard
            .iter()
            .map(|(at, ..)| at.as_micros() / 1000)
            .collect::<Vec<_>>()
    };
    // Each packet of 8 ms waits for those before it, the other end's too, and comes twice.
    assert_eq!(heard(&network, b), [13, 13, 21, 21]);
    assert_eq!(heard(&network, a), [29, 29, 37, 37]);
    assert!(watch.borrow().0.iter().all(|(_, _, sight, _)| *sight == Sight::Left(down)));
    assert_eq!(watch.borrow().0.len(), 4);
    assert_eq!(network.link_stats(down), network.link_stats(up));
    assert_eq!(network.link_stats(up).sent.packets, 4);
    // Silence is of the channel.
    network.schedule(Time::from_millis(100), Event::LinkDown(down));
    network.schedule(Time::from_millis(200), Event::LinkUp(up));
    for (at, from) in [(101, b), (201, a)] {
        network.run_until(Time::from_millis(at)).expect("no halt");
        network.with_node(from, |_, ctx| {
            let mut frame = ctx.packet(A, B, Body::Frame { ethertype: 0x88b5 });
            frame.set_virtual(1000);
            ctx.send(frame).ok();
        });
    }
    network.run_until(Time::from_secs(1)).expect("no halt");
    assert_eq!(heard(&network, a).len(), 4);
    assert_eq!(heard(&network, b)[4..], [214, 214]);
}

#[derive(Default)]
struct Watch(Vec<(Time, TapPoint, Sight, Bytes)>);

impl Observer for Watch {
    fn handle_packet(&mut self, now: Time, point: TapPoint, sight: Sight, packet: &Datagram) {
        self.0.push((now, point, sight, packet.ip_len()));
    }
}

#[test]
fn observers_see_what_enters_leaves_and_is_refused() {
    let talker = Talker::sending(2, Duration::from_millis(1));
    let small = LinkConfig { queue: lasthop_radio::QueueLimit::Packets(0), ..megabit(5) };
    let mut chain = chain(seeded(), talker, &LinkConfig { mtu: 500, ..small });
    let watch = Rc::new(RefCell::new(Watch::default()));
    chain.network.tap(TapPoint::LinkOut(chain.links[0]), watch.clone());
    chain.network.tap(TapPoint::LinkIn(chain.links[1]), watch.clone());
    chain.network.run_until(Time::from_secs(1)).expect("no halt");
    let (first, second) = (chain.links[0], chain.links[1]);
    let seen: Vec<_> =
        watch.borrow().0.iter().map(|&(_, point, sight, _)| (point, sight)).collect();
    let one = [
        (TapPoint::LinkOut(first), Sight::Left(first)),
        (TapPoint::LinkIn(second), Sight::Entered(second)),
        (TapPoint::LinkIn(second), Sight::Refused(second, Refusal::TooBig)),
    ];
    assert_eq!(seen, [one, one].concat());
    assert!(watch.borrow().0.iter().all(|&(_, _, _, len)| len == Bytes::new(1000)));
    assert_eq!(chain.network.trace().refused, 2);
}

#[test]
fn a_node_that_keeps_time_from_going_on_halts_the_network() {
    let mut chain = chain(seeded(), Talker::sending(u32::MAX, Duration::ZERO), &megabit(5));
    let halt = chain.network.run_until(Time::from_secs(1)).expect_err("it went on");
    assert_eq!(halt, Halt::Spinning { at: Time::ZERO, node: Some(0) });
}

#[test]
fn a_copy_of_a_packet_has_bytes_of_its_own_and_memory_is_used_again() {
    let mut chain = chain(seeded(), Talker::default(), &megabit(5));
    chain.network.with_node(chain.a, |_, ctx| {
        let mut packet = ctx.packet(A, B, Body::Udp { src_port: 1, dst_port: 2 });
        packet.set_parts(b"ab", b"c");
        let mut copy = packet.clone();
        copy.set_bytes(b"xyz!");
        assert_eq!(packet.payload(), Payload::Real(b"abc"));
        assert_eq!((copy.payload(), copy.dst), (Payload::Real(b"xyz!"), B));
        assert_eq!((copy.ip_len(), copy.payload().len()), (Bytes::new(32), 4));
        drop((packet, copy));
        let fresh = ctx.packet(A, B, Body::Other { protocol: 1 });
        assert_eq!(fresh.payload(), Payload::Virtual(0));
    });
    assert_eq!(chain.network.packets_in_flight(), 0);
}
