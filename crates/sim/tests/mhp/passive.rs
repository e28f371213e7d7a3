//! Connections that fixed hosts, and other mobiles, open.

use lasthop_sim::net::TapPoint;
use lasthop_sim::net::host::Ending;
use lasthop_wire::tcp::Flags;

use crate::world::*;

/// MHP-6: a SYN for the mobile is intercepted, the mobile is asked, and the connection stands.
#[test]
fn a_fixed_host_opens_a_connection_to_a_mobile() {
    for hop in schemes() {
        let mut world = Plan::new(hop).build();
        let fixed = world.watch_fixed();
        let radio = world.watch(TapPoint::LinkOut(world.radios[0][0][0]));
        world.deal(at(0), world.fixed, world.mobiles[0], Deal::new(22, 3000, 20_000));
        world.run_to_the_end(at(60_000));
        world.expect_whole(1);
        assert!(!world.peer(world.mobiles[0]).conns[0].opener);
        assert_eq!(radio.borrow().strangers(), 0);
        let log = fixed.borrow();
        assert!(log.from(mobile_addr(0)).all(|s| s.segment.src_port == 22));
        assert_eq!(log.towards(FIXED, Flags::RST), 0);
    }
}

/// MHP-6: a mobile that refuses resets the fixed host's connection, which never looked open.
#[test]
fn a_mobile_that_refuses_resets_the_fixed_hosts_connection() {
    for hop in schemes() {
        let mut world = Plan::new(hop).build();
        world.open(at(1000), world.fixed, mobile_addr(0), Deal::new(23, 10, 10));
        world.run(at(5000));
        let conn = &world.peer(world.fixed).conns[0];
        assert_eq!(conn.connected, None);
        assert!(matches!(conn.closed, Some((_, Ending::Reset))), "{conn:?}");
    }
}

/// MHP-6, MHP-23: while the mobile is away the fixed host's SYN waits, or is asked for again.
#[test]
fn an_opening_outlasts_a_handoff() {
    for hop in schemes() {
        for begins in [1990, 2010, 2500, 2990, 3010, 3050] {
            let mut world = Plan::new(hop.clone()).build();
            let fixed = world.watch_fixed();
            world.deal(at(0), world.mobiles[0], world.fixed, Deal::new(80, 100, 100));
            world.deal(at(begins), world.fixed, world.mobiles[0], Deal::new(22, 3000, 3000));
            world.hand_over(0, at(2000), ms(1000), 1);
            world.run_to_the_end(at(200_000));
            let conns = &world.peer(world.fixed).conns;
            assert!(conns.iter().all(|c| c.is_whole() && c.check() == Ok(())), "{conns:#?}");
            assert_eq!(fixed.borrow().towards(FIXED, Flags::RST), 0);
        }
    }
}

/// MHP-6, MHP-17: a connection that a fixed host opened moves like any other.
#[test]
fn a_passive_connection_moves_with_its_mobile() {
    for hop in schemes() {
        let mut world = Plan::new(hop).build();
        let fixed = world.watch_fixed();
        world.deal(at(0), world.fixed, world.mobiles[0], Deal::new(22, 40_000, 40_000));
        for (n, base) in [1, 0, 1].into_iter().enumerate() {
            world.hand_over(0, at(1500 + 1500 * n as u64), ms(300), base);
        }
        world.run_to_the_end(at(200_000));
        world.expect_whole(1);
        assert_eq!(fixed.borrow().towards(FIXED, Flags::RST), 0);
    }
}

/// MHP-7: between two mobiles there are three connections, also when they share a base, and while
/// both move.
#[test]
fn two_mobiles_have_three_connections() {
    for hop in schemes() {
        for moves in [vec![], vec![(0, 1)], vec![(1, 0)], vec![(0, 1), (1, 0)]] {
            let mut plan = Plan::new(hop.clone());
            plan.mobiles = 2;
            let mut world = plan.build();
            let radios = [0, 1].map(|m| {
                let logs = world.radios[m].clone().into_iter().flatten();
                logs.map(|link| world.watch(TapPoint::LinkOut(link))).collect::<Vec<_>>()
            });
            let deal = Deal::new(22, 30_000, 30_000);
            world.deal(at(0), world.mobiles[0], world.mobiles[1], deal);
            for (n, (mobile, base)) in moves.iter().enumerate() {
                world.hand_over(*mobile, at(1500 + 900 * n as u64), ms(300), *base);
            }
            world.run(at(1000));
            assert_eq!(world.base(0).wired(mobile_addr(0)).count(), 1);
            assert_eq!(world.base(1).wired(mobile_addr(1)).count(), 1);
            world.run_to_the_end(at(200_000));
            for node in world.mobiles.clone() {
                let conns = &world.peer(node).conns;
                assert!(conns.iter().all(|c| c.is_whole() && c.check() == Ok(())), "{conns:#?}");
                assert_eq!(conns.len(), 1);
            }
            for log in radios.iter().flatten() {
                assert_eq!(log.borrow().strangers(), 0);
            }
        }
    }
}
