//! Handoffs in a network, whatever is lost and whenever they come.

use std::cell::RefCell;
use std::rc::Rc;

use lasthop_radio::{Errors, Loss};
use lasthop_session::handoff::Broken;
use lasthop_sim::net::host::Ending;
use lasthop_sim::net::{Event, TapPoint};
use lasthop_sim::schemes::HopKind;
use lasthop_units::{Duration, Rate};
use lasthop_wire::tcp::Flags;

use crate::world::*;

const BOTH: Deal =
    Deal { port: 80, forth: 40_000, back: 40_000, reads_from: lasthop_units::Time::ZERO };

/// The fixed host saw one connection that was never reset.
fn expect_unnoticed(world: &Site, fixed: &Log) {
    assert_eq!(fixed.towards(FIXED, Flags::RST), 0);
    let syns = fixed.from(mobile_addr(0)).filter(|s| s.segment.flags.contains(Flags::SYN));
    let numbers: Vec<_> = syns.map(|s| s.segment.seq).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] == pair[1]), "{numbers:?}");
    assert_eq!(world.fixed_host().stats().accepted, 1);
}

fn travel(hop: &HopKind, first: u64, pause: Duration) -> Site {
    let mut world = Plan::new(hop.clone()).build();
    let fixed = world.watch_fixed();
    world.deal(at(0), world.mobiles[0], world.fixed, BOTH);
    world.hand_over(0, at(first), pause, 1);
    world.run_to_the_end(at(300_000));
    world.expect_whole(1);
    expect_unnoticed(&world, &fixed.borrow());
    world
}

/// MHP-15 to MHP-19, MHP-24: at every phase of a connection: before its SYN, half-open, in the flow,
/// and while it ends.
#[test]
fn a_handoff_may_come_at_any_moment() {
    for hop in schemes() {
        for first in (1..200).step_by(6).chain((200..6000).step_by(331)) {
            for pause in [0, 40, 700] {
                let world = travel(&hop, first, ms(pause));
                let handoffs = world.mobile(0).handoffs();
                assert!(handoffs.iter().all(|h| h.latency().is_some()), "{handoffs:?}");
            }
        }
    }
}

/// MHP-16, MHP-17, MET-12: the state moves base to base, within two round trips between them.
#[test]
fn the_state_moves_from_base_to_base() {
    for hop in schemes() {
        let world = travel(&hop, 2000, ms(500));
        assert_eq!(world.base(0).counts().handed_over, 1);
        assert_eq!(world.base(1).counts().taken_over, 1);
        assert_eq!((world.base(0).mobiles(), world.base(1).mobiles()), (0, 1));
        let latency = world.mobile(0).handoffs()[0].latency().unwrap();
        assert!(latency < ms(120), "{latency:?}");
    }
}

/// MHP-20: lost requests and answers are repeated, and do nothing twice.
#[test]
fn lost_control_messages_are_repeated() {
    for hop in schemes() {
        for seed in 0..20 {
            let mut plan = Plan::new(hop.clone());
            plan.seed = seed;
            let mut world = plan.build();
            let fixed = world.watch_fixed();
            world.deal(at(0), world.mobiles[0], world.fixed, BOTH);
            world.hand_over(0, at(2000), ms(300), 1);
            let losses = vec![Loss::lose(Errors::Uniform(0.6))];
            world.storm(&plan.campus, at(2200), ms(3000), losses);
            world.run_to_the_end(at(600_000));
            world.expect_whole(1);
            expect_unnoticed(&world, &fixed.borrow());
            assert_eq!(world.mobile(0).handoffs().len(), 1);
        }
    }
}

/// MHP-21: when the old base cannot be reached the application is told after a bound, not before,
/// and the mobile can open connections at the new base.
#[test]
fn an_unreachable_old_base_breaks_the_session() {
    for hop in schemes() {
        let mut world = Plan::new(hop).build();
        world.deal(at(0), world.mobiles[0], world.fixed, BOTH);
        world.deal(at(60_000), world.mobiles[0], world.fixed, Deal::new(81, 900, 900));
        let link = world.towards[0];
        world.network.schedule(at(1900), Event::LinkDown(link));
        world.hand_over(0, at(2000), ms(100), 1);
        world.run(at(22_000));
        assert_eq!(world.mobile(0).broken(), None);
        world.run(at(33_000));
        assert!(matches!(world.mobile(0).broken(), Some(Broken::Refused(_) | Broken::TimedOut)));
        let conn = &world.peer(world.mobiles[0]).conns[0];
        assert!(matches!(conn.closed, Some((_, Ending::Reset))), "{conn:?}");
        assert_eq!(conn.check(), Ok(()));
        world.run(at(80_000));
        let again = &world.peer(world.mobiles[0]).conns[1];
        assert!(again.is_whole(), "{again:?}");
    }
}

/// MHP-22: until routing has changed the old base passes packets on through a tunnel.
#[test]
fn stray_packets_are_passed_on() {
    let hop = schemes()[0].clone();
    let mut world = Plan::new(hop).build();
    world.deal(at(0), world.mobiles[0], world.fixed, Deal { forth: 0, ..BOTH });
    world.hand_over(0, at(800), ms(300), 1);
    // The route to the mobile stays the old one for two more seconds.
    let route = |link| Event::Route { node: world.router, dst: mobile_addr(0), link: Some(link) };
    let (old, new) = (route(world.towards[0]), route(world.towards[1]));
    world.network.schedule(at(1100), old);
    world.network.schedule(at(3100), new);
    let came = world.watch(TapPoint::Node(world.bases[1]));
    world.run(at(2000));
    let passed = world.base(0).counts().passed_on;
    assert!(passed > 5, "{passed}");
    let (_, wired) = world.fixed_host().connections().next().unwrap();
    assert!(wired.stats().timeouts <= 1, "{:?}", wired.stats());
    world.run_to_the_end(at(100_000));
    world.expect_whole(1);
    let came = came.borrow();
    assert!(came.segments.iter().filter(|s| s.tunnelled).count() as u64 >= passed);
}

/// A mobile goes to two other bases, home and away again, and stays at each for so many milliseconds.
fn wander(mut plan: Plan, dwell: u64) -> (Site, Rc<RefCell<Log>>) {
    plan.bases = 3;
    plan.campus.delay = ms(15);
    let mut world = plan.build();
    let fixed = world.watch_fixed();
    world.deal(at(0), world.mobiles[0], world.fixed, BOTH);
    for (n, base) in [1, 2, 0, 1].into_iter().enumerate() {
        world.hand_over(0, at(2000 + n as u64 * (dwell + 100)), ms(100), base);
    }
    world.run_to_the_end(at(300_000));
    world.expect_whole(1);
    (world, fixed)
}

/// MHP-23: a handoff during a handoff goes on towards the last base, and a return home is one too.
#[test]
fn a_handoff_may_interrupt_a_handoff() {
    for hop in schemes() {
        for dwell in [0, 3, 9, 20, 60, 150, 400] {
            let (world, fixed) = wander(Plan::new(hop.clone()), dwell);
            expect_unnoticed(&world, &fixed.borrow());
        }
    }
}

/// EXP-Y4: what a handoff costs grows with the buffers that move and shrinks with the rate between
/// the bases.
#[test]
fn a_handoff_costs_what_its_state_takes_between_the_bases() {
    let latency = |kib: u64, rate: Rate| {
        let buffer = lasthop_units::Bytes::from_kib(kib);
        let mut config = hop_tcp();
        (config.send_buffer, config.recv_buffer) = (buffer, buffer);
        let mut plan = Plan::new(HopKind::SplitTcp(config));
        (plan.wired_tcp.send_buffer, plan.wired_tcp.recv_buffer) = (buffer, buffer);
        plan.campus = link(rate, ms(1));
        let mut world = plan.build();
        world.deal(at(0), world.mobiles[0], world.fixed, Deal::new(80, 0, 400_000));
        world.hand_over(0, at(6000), ms(200), 1);
        world.run_to_the_end(at(300_000));
        world.expect_whole(1);
        world.mobile(0).handoffs()[0].latency().unwrap()
    };
    let (slow, fast) = (Rate::from_kbps(500), Rate::from_mbps(10));
    let table = [4, 16, 60].map(|kib| [latency(kib, slow), latency(kib, fast)]);
    for pair in table.windows(2) {
        assert!(pair[1][0] > pair[0][0], "{table:?}");
    }
    for [slow, fast] in table {
        assert!(slow > fast, "{table:?}");
    }
    // 60 kB twice at 500 kbit/s take two seconds at most.
    assert!(table[2][0] > ms(500) && table[2][0] < ms(3000), "{table:?}");
}

/// MHP-14, MHP-17: a connection that is over for the mobile but not for the fixed host moves, too.
#[test]
fn what_is_still_ending_moves_along() {
    for hop in schemes() {
        let mut plan = Plan::new(hop);
        plan.radio = link(Rate::from_mbps(5), ms(1));
        plan.radio.mtu = 256;
        plan.wired = link(Rate::from_kbps(20), ms(100));
        plan.wired_tcp.send_buffer = lasthop_units::Bytes::from_kib(16);
        let mut world = plan.build();
        let fixed = world.watch_fixed();
        world.deal(at(0), world.mobiles[0], world.fixed, Deal::new(80, 12_000, 0));
        world.hand_over(0, at(3000), ms(100), 1);
        world.run_to_the_end(at(120_000));
        world.expect_whole(1);
        expect_unnoticed(&world, &fixed.borrow());
    }
}

/// In `anchor` mode the wired half stays where it was made, wherever the mobile goes, and the fixed host
/// speaks with that base alone; a return home is a handoff, too.
#[test]
fn a_wired_half_may_stay_behind() {
    for hop in schemes() {
        for dwell in [0, 3, 20, 150, 2000] {
            let plan = Plan { anchors: true, ..Plan::new(hop.clone()) };
            let (world, fixed) = wander(plan, dwell);
            let fixed = fixed.borrow();
            assert_eq!(fixed.towards(FIXED, Flags::RST), 0);
            assert_eq!(
                fixed.from(base_addr(0)).count(),
                fixed.segments.len() - fixed.from(FIXED).count()
            );
            assert_eq!(world.fixed_host().stats().accepted, 1);
            assert!(world.base(0).counts().anchored >= 1, "{:?}", world.base(0).counts());
        }
    }
}
