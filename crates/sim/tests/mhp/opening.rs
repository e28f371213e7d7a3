//! Opening by the mobile, and interception.

use lasthop_sim::net::host::Ending;
use lasthop_units::Rate;
use lasthop_wire::tcp::Flags;

use crate::world::*;

/// MHP-2, MHP-3: the mobile asks its base, and the surrogate opens from the mobile's own address.
/// MHP-7's and MHP-1's other half: the fixed host sees an ordinary connection.
#[test]
fn the_surrogate_opens_from_the_mobiles_own_address() {
    for hop in schemes() {
        let mut world = Plan::new(hop).build();
        let fixed = world.watch_fixed();
        world.deal(at(0), world.mobiles[0], world.fixed, Deal::new(80, 5000, 5000));
        world.run_to_the_end(at(30_000));
        world.expect_whole(1);
        let log = fixed.borrow();
        let syns: Vec<_> =
            log.from(mobile_addr(0)).filter(|s| s.segment.flags.contains(Flags::SYN)).collect();
        assert_eq!(syns.len(), 1);
        assert_eq!(syns[0].dst, FIXED);
        assert_eq!(syns[0].segment.dst_port, 80);
        assert!(log.segments.iter().all(|s| [s.src, s.dst].contains(&mobile_addr(0))));
    }
}

/// MHP-4: everything from the fixed host is intercepted; no segment of its passes to the mobile.
#[test]
fn nothing_of_the_fixed_hosts_reaches_the_mobiles_own_tcp() {
    for hop in schemes() {
        let mut world = Plan::new(hop).build();
        let [down, up] = world.radios[0][0];
        let fixed = world.watch_fixed();
        let logs = [down, up].map(|l| world.watch(lasthop_sim::net::TapPoint::LinkOut(l)));
        world.deal(at(0), world.mobiles[0], world.fixed, Deal::new(80, 3000, 20_000));
        world.run_to_the_end(at(30_000));
        world.expect_whole(1);
        // Some time for the last acknowledgements.
        world.run(world.network.now() + ms(2000));
        for log in &logs {
            let log = log.borrow();
            assert_eq!(log.strangers(), 0);
            let passed = log.segments.len() + log.datagrams.len() + log.frames.len();
            assert!(passed > 10, "{passed}");
        }
        let sent = fixed.borrow().from(FIXED).count() as u64;
        assert_eq!(world.base(0).counts().intercepted, sent);
    }
}

/// MHP-5: `connect` says what the fixed host said.
#[test]
fn a_refused_connection_is_told() {
    for hop in schemes() {
        let mut world = Plan::new(hop).build();
        world.open(at(0), world.mobiles[0], FIXED, Deal::new(81, 100, 0));
        world.run(at(5000));
        let conn = &world.peer(world.mobiles[0]).conns[0];
        assert_eq!(conn.connected, None);
        assert!(matches!(conn.closed, Some((_, Ending::Reset))), "{conn:?}");
        assert_eq!(conn.read + conn.wrote, 0);
    }
}

/// MHP-5: an unreachable host is told when the surrogate gives up, and not before.
#[test]
fn an_unreachable_host_is_told() {
    let mut plan = Plan::new(schemes()[0].clone());
    plan.wired_tcp.rto.give_up_after = Some(3);
    let mut world = plan.build();
    let nobody = std::net::Ipv4Addr::new(10, 9, 9, 9);
    world.open(at(0), world.mobiles[0], nobody, Deal::new(80, 100, 0));
    world.run(at(10_000));
    assert_eq!(world.peer(world.mobiles[0]).conns[0].closed, None);
    world.run(at(150_000));
    let conn = &world.peer(world.mobiles[0]).conns[0];
    assert!(conn.connected.is_none() && conn.closed.is_some(), "{conn:?}");
}

/// MHP-5: the application learns that it is connected only when the fixed host has answered.
#[test]
fn the_mobile_is_connected_after_the_fixed_host_is() {
    for hop in schemes() {
        let mut plan = Plan::new(hop);
        plan.wired.delay = ms(400);
        let mut world = plan.build();
        world.deal(at(0), world.mobiles[0], world.fixed, Deal::new(80, 10, 10));
        world.run_to_the_end(at(30_000));
        let connected = world.peer(world.mobiles[0]).conns[0].connected.unwrap();
        assert!(connected >= at(800), "{connected:?}");
    }
}

/// MHP-13: what a base keeps of a connection is buffers and sequence positions: when all is over
/// nothing is left.
#[test]
fn a_base_removes_connections_that_are_over() {
    for hop in schemes() {
        let mut plan = Plan::new(hop);
        plan.wired_tcp.time_wait = ms(1000);
        plan.radio = link(Rate::from_mbps(2), ms(5));
        plan.radio.mtu = 256;
        let mut world = plan.build();
        for n in 0..20 {
            let deal = Deal::new(100 + n, 500, 500);
            world.deal(at(u64::from(n) * 100), world.mobiles[0], world.fixed, deal);
        }
        world.run_to_the_end(at(60_000));
        world.expect_whole(20);
        world.run(world.network.now() + ms(70_000));
        assert_eq!(world.base(0).wired(mobile_addr(0)).count(), 0);
        for conn in &world.peer(world.mobiles[0]).conns {
            assert!(matches!(conn.closed, Some((_, Ending::Orderly))), "{conn:?}");
        }
    }
}
