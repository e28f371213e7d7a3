//! What tells split-tcp, I-TCP and SRP apart.

use std::cell::RefCell;
use std::rc::Rc;

use lasthop_radio::{Errors, Loss, QueueLimit};
use lasthop_sim::net::{Event, TapPoint};
use lasthop_sim::schemes::{BaseHop, HopKind, MobileHop};
use lasthop_units::{Duration, LinkEvent, Rate, Time};

use crate::world::*;

fn split() -> HopKind {
    HopKind::SplitTcp(hop_tcp())
}

fn itcp() -> HopKind {
    HopKind::ITcp(hop_tcp())
}

/// What the base's TCP on the hop knows, of the connection that has sent most.
fn base_probe(world: &Site, base: usize) -> Option<lasthop_tcp::Probe> {
    let Some(BaseHop::Tcp(streams)) = world.base(base).hop(mobile_addr(0)) else { return None };
    let most = streams.sockets().max_by_key(|s| s.connection().stats().bytes_sent)?;
    (most.connection().stats().bytes_sent > 0).then(|| most.connection().probe())
}

/// SPL-1, SPL-2, ITCP-1: loss on the hop is the hop's: the wired half neither waits nor repeats.
#[test]
fn loss_on_the_hop_never_reaches_the_wired_half() {
    for hop in [split(), itcp()] {
        let mut plan = Plan::new(hop);
        plan.radio.losses = vec![Loss::lose(Errors::Uniform(0.1))];
        let mut world = plan.build();
        world.deal(at(0), world.mobiles[0], world.fixed, Deal::new(80, 0, 60_000));
        world.run(at(40_000));
        let Some(BaseHop::Tcp(streams)) = world.base(0).hop(mobile_addr(0)) else { panic!() };
        let hop = streams.sockets().next().unwrap().connection();
        assert!(hop.stats().retransmits > 5, "{:?}", hop.stats());
        let (_, wired) = world.fixed_host().connections().next().unwrap();
        assert_eq!((wired.stats().fast_retransmits, wired.stats().timeouts), (0, 0));
        assert_eq!(wired.segment_size().get(), 512);
        assert_eq!(hop.segment_size().get(), 216);
        world.run_to_the_end(at(600_000));
        world.expect_whole(1);
    }
}

/// SPL-2: loss on the wire is the wire's: the hop's TCP, with segments and a window of its own, neither
/// waits nor repeats, and its window is not cut.
#[test]
fn loss_on_the_wire_never_reaches_the_hops_half() {
    for hop in [split(), itcp()] {
        let mut plan = Plan::new(hop);
        plan.wired.losses = vec![Loss::lose(Errors::Uniform(0.05))];
        let mut world = plan.build();
        world.deal(at(0), world.mobiles[0], world.fixed, Deal::new(80, 0, 400_000));
        let wired = loop {
            world.run(world.network.now() + ms(100));
            let found = world.fixed_host().connections().next();
            let found = found.map(|(_, wired)| (*wired.stats(), wired.probe()));
            if let Some(wired) = found.filter(|(stats, _)| stats.retransmits > 5) {
                break wired;
            }
            assert!(world.network.now() < at(60_000), "nothing is lost");
        };
        let Some(BaseHop::Tcp(streams)) = world.base(0).hop(mobile_addr(0)) else { panic!() };
        let hop = streams.sockets().next().unwrap().connection();
        let (stats, probe) = (*hop.stats(), hop.probe());
        assert_eq!((stats.retransmits, stats.timeouts), (0, 0), "{stats:?}");
        assert!(wired.1.ssthresh < probe.ssthresh, "{:?} {probe:?}", wired.1);
        assert_eq!(hop.segment_size().get(), 216);
        world.run_to_the_end(at(600_000));
        world.expect_whole(1);
    }
}

/// A download with a handoff at 5 s; the first sight of the new base's hop in use.
fn after_handoff(hop: HopKind) -> (lasthop_tcp::Probe, lasthop_tcp::Probe, Duration) {
    let mut config = hop_tcp();
    config.send_buffer = lasthop_units::Bytes::from_kib(16);
    config.recv_buffer = config.send_buffer;
    let hop = match hop {
        HopKind::SplitTcp(_) => HopKind::SplitTcp(config),
        _ => HopKind::ITcp(config),
    };
    let mut plan = Plan::new(hop);
    plan.radio.delay = ms(100);
    plan.radio.queue = QueueLimit::Packets(200);
    let mut world = plan.build();
    world.deal(at(0), world.mobiles[0], world.fixed, Deal::new(80, 0, 150_000));
    world.hand_over(0, at(5000), ms(100), 1);
    world.run(at(4999));
    let before = base_probe(&world, 0).unwrap();
    let after = loop {
        world.run(world.network.now() + ms(1));
        if let Some(probe) = base_probe(&world, 1).filter(|p| p.flight.get() > 200) {
            break probe;
        }
        assert!(world.network.now() < at(20_000));
    };
    let began = world.network.now().since(at(5100));
    world.run_to_the_end(at(200_000));
    world.expect_whole(1);
    (before, after, began)
}

/// SPL-3: the hop's connection is a new one: slow start, and a round trip of its own.
#[test]
fn split_tcp_starts_anew_after_a_handoff() {
    let (before, after, _) = after_handoff(split());
    assert!(before.cwnd.get() > 8 * 216, "{before:?}");
    assert!(after.cwnd.get() <= 3 * 216, "{after:?}");
}

/// ITCP-7: the mobile names its old base to the new one, which asks that one and no other.
#[test]
fn the_new_base_asks_the_base_that_the_mobile_names() {
    let mut plan = Plan::new(itcp());
    plan.bases = 3;
    let mut world = plan.build();
    let links = world.towards.clone();
    let logs: Vec<_> = links.iter().map(|link| world.watch(TapPoint::LinkOut(*link))).collect();
    world.deal(at(0), world.mobiles[0], world.fixed, Deal::new(80, 0, 400_000));
    let asked = |from: Time| -> Vec<bool> {
        let since = |log: &Rc<RefCell<Log>>| log.borrow().datagrams.iter().any(|d| d.0 >= from);
        logs.iter().map(since).collect()
    };
    world.run(at(2000));
    assert_eq!(asked(at(0)), [false, false, false], "bases have nothing to say to each other");
    world.hand_over(0, at(2000), ms(300), 2);
    world.run(at(6000));
    assert_eq!(asked(at(2000)), [true, false, true]);
    world.hand_over(0, at(8000), ms(300), 1);
    world.run(at(12_000));
    assert_eq!(asked(at(8000)), [false, true, true]);
    world.run_to_the_end(at(600_000));
    world.expect_whole(1);
}

/// ITCP-3, ITCP-4: the hop's state moves, and what was not acknowledged is sent at once, as
/// far as the window that was known allows.
#[test]
fn i_tcp_goes_on_where_it_was() {
    let (before, after, began) = after_handoff(itcp());
    assert!(after.cwnd.get() + 432 >= before.cwnd.get(), "{before:?} {after:?}");
    assert!(after.flight.get() > 8 * 216, "{after:?}");
    assert_eq!(after.srtt, before.srtt);
    // Two round trips across the hop, for the handoff and the handshake, then the question, and
    // nothing that waits for a timer.
    assert!(began < ms(600), "{began:?}");
}

/// ITCP-6: on a lossy hop it is as weak as the TCP that it is, and SRP is not.
#[test]
fn i_tcp_is_weak_against_loss_and_srp_is_not() {
    let time = |hop: HopKind, loss: f64| -> Time {
        let mut plan = Plan::new(hop);
        plan.radio.losses = vec![Loss::lose(Errors::Uniform(loss))];
        let mut world = plan.build();
        world.deal(at(0), world.mobiles[0], world.fixed, Deal::new(80, 0, 100_000));
        world.run_to_the_end(at(3_000_000));
        world.expect_whole(1);
        world.peer(world.mobiles[0]).conns[0].last_byte.unwrap()
    };
    let slower = |hop: HopKind| {
        let since = |t: Time| t.since(Time::ZERO).as_secs_f64();
        since(time(hop.clone(), 0.1)) / since(time(hop, 0.0))
    };
    let (itcp, srp, today) = (slower(itcp()), slower(srp_1994()), slower(srp_today()));
    assert!(itcp > 2.0, "{itcp}");
    assert!(srp < 1.6 && today < 1.6, "{srp} {today}");
}

/// SRP-1: the hop carries SRP and no TCP; the wired half is TCP.
#[test]
fn srp_on_the_hop_is_tcp_on_the_wire() {
    for hop in [srp_1994(), srp_today()] {
        let mut world = Plan::new(hop).build();
        let fixed = world.watch_fixed();
        let radio = world.radios[0][0].map(|link| world.watch(TapPoint::LinkOut(link)));
        world.deal(at(0), world.mobiles[0], world.fixed, Deal::new(80, 20_000, 20_000));
        world.run_to_the_end(at(60_000));
        world.expect_whole(1);
        for log in &radio {
            let log = log.borrow();
            assert!(log.segments.is_empty() && log.srp().count() > 50);
        }
        assert!(fixed.borrow().datagrams.is_empty());
    }
}

/// SRP-13: what was missing is sent as soon as the session goes on, not when a timer says so.
#[test]
fn srp_goes_on_at_once_after_a_handoff() {
    for hop in [srp_1994(), srp_today()] {
        let mut world = Plan::new(hop).build();
        world.deal(at(0), world.mobiles[0], world.fixed, Deal::new(80, 0, 100_000));
        world.hand_over(0, at(2000), ms(2800), 1);
        world.run(at(4799));
        let before = world.peer(world.mobiles[0]).conns[0].read;
        world.run(at(4950));
        let after = world.peer(world.mobiles[0]).conns[0].read;
        assert!(after > before, "150 ms after the pause nothing had come");
        world.run_to_the_end(at(100_000));
        world.expect_whole(1);
    }
}

/// LNK-14: the link's signals reach the hop's transport in a network: SRP goes on as soon as it
/// hears that the link is up, and TCP, which listens to nobody, when its timer says so.
#[test]
fn signals_of_the_link_reach_the_hops_transport() {
    let resumed = |hop: &HopKind, told: bool| -> Duration {
        let mut plan = Plan::new(hop.clone());
        plan.radio = link(Rate::from_mbps(1), ms(50));
        plan.radio.mtu = 256;
        let mut world = plan.build();
        world.deal(at(0), world.mobiles[0], world.fixed, Deal::new(80, 300_000, 0));
        let (node, [down, up]) = (world.mobiles[0], world.radios[0][0]);
        for link in [down, up] {
            world.network.schedule(at(2000), Event::LinkDown(link));
            world.network.schedule(at(10_037), Event::LinkUp(link));
        }
        if told {
            let signal = |event| Event::Signal { node, link: up, event };
            world.network.schedule(at(2000), signal(LinkEvent::Down));
            world.network.schedule(at(10_037), signal(LinkEvent::Up));
        }
        let log = world.watch(TapPoint::LinkOut(up));
        world.run(at(14_500));
        assert!(
            matches!(world.mobile(0).hop(), MobileHop::Tcp(_)) != matches!(hop, HopKind::Srp(_))
        );
        let log = log.borrow();
        let times = log.srp().map(|s| s.0).chain(log.segments.iter().map(|s| s.at));
        times.filter(|t| *t > at(10_037)).min().unwrap().since(at(10_037))
    };
    let srp = srp_1994();
    assert!(resumed(&srp, true) < ms(60), "{:?}", resumed(&srp, true));
    assert!(resumed(&srp, false) > ms(60));
    assert_eq!(resumed(&split(), true), resumed(&split(), false));
}
