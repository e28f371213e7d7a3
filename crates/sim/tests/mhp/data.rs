//! Bytes on their way: segments, buffers, ends.

use lasthop_sim::net::TapPoint;
use lasthop_sim::schemes::HopKind;
use lasthop_tcp as tcp;
use lasthop_units::{Bytes, Rate};
use lasthop_wire::tcp::Flags;

use crate::world::*;

/// MHP-8, MHP-9, SPL-2, LNK-3: small datagrams on the hop, full segments on the wire, both ways.
#[test]
fn segments_are_small_on_the_hop_and_large_on_the_wire() {
    for hop in schemes() {
        let mut plan = Plan::new(hop);
        plan.radio = link(Rate::from_mbps(5), ms(5));
        plan.radio.mtu = 256;
        let mut world = plan.build();
        let fixed = world.watch_fixed();
        let radio = world.radios[0][0].map(|link| world.watch(TapPoint::LinkOut(link)));
        world.deal(at(0), world.mobiles[0], world.fixed, Deal::new(80, 40_000, 40_000));
        world.run_to_the_end(at(60_000));
        world.expect_whole(1);
        for log in &radio {
            assert!(log.borrow().longest <= 256, "{}", log.borrow().longest);
        }
        let log = fixed.borrow();
        for src in [mobile_addr(0), FIXED] {
            let data = || log.from(src).filter(|s| s.segment.len > 0);
            let full = data().filter(|s| s.segment.len == 512).count();
            assert!(full * 10 >= data().count() * 8, "{full} of {} from {src}", data().count());
        }
    }
}

/// MHP-8: what is less than a segment waits for no timer of the surrogate's: TCP's own rules decide.
#[test]
fn a_small_write_goes_on_at_once() {
    for hop in schemes() {
        let mut world = Plan::new(hop).build();
        world.deal(at(0), world.mobiles[0], world.fixed, Deal::new(80, 10, 0));
        world.run_to_the_end(at(10_000));
        let connected = world.peer(world.mobiles[0]).conns[0].connected.unwrap();
        let came = world.peer(world.fixed).conns[0].last_byte.unwrap();
        // Once across the hop, campus and wire takes some 30 ms.
        assert!(came < connected + ms(60), "{connected:?} {came:?}");
    }
}

/// MHP-10: both directions at once take hardly longer than one.
#[test]
fn both_directions_flow_at_once() {
    for hop in schemes() {
        let time = |forth, back| {
            let mut world = Plan::new(hop.clone()).build();
            world.deal(at(0), world.mobiles[0], world.fixed, Deal::new(80, forth, back));
            world.run_to_the_end(at(120_000));
            world.expect_whole(1);
            let ends = [world.mobiles[0], world.fixed];
            ends.map(|node| world.peer(node).conns[0].peer_finished.unwrap()).into_iter().max()
        };
        let (one, both) = (time(50_000, 0).unwrap(), time(50_000, 50_000).unwrap());
        let most = at(0) + one.since(at(0)).mul_f64(1.6);
        assert!(both < most, "{}: {one:?} {both:?}", hop.scheme());
    }
}

/// MHP-11, MHP-12, SPL-4: while the mobile reads nothing the surrogate acknowledges what fits its
/// buffers, and then the fixed host sees a closed window: no loss, no timeout, no reset.
#[test]
fn a_slow_reader_closes_the_fixed_hosts_window() {
    for hop in schemes() {
        let buffer = Bytes::from_kib(16);
        let buffers = |config: tcp::Config| tcp::Config {
            recv_buffer: buffer,
            send_buffer: buffer,
            ..config
        };
        let hop = match hop {
            HopKind::SplitTcp(config) => HopKind::SplitTcp(buffers(config)),
            HopKind::ITcp(config) => HopKind::ITcp(buffers(config)),
            HopKind::Srp(config) => HopKind::Srp(lasthop_hop::HopConfig {
                stream_memory: buffer,
                association_memory: buffer,
                ..config
            }),
            HopKind::MobileTcp(config) => HopKind::MobileTcp(lasthop_hop::mobile_tcp::Config {
                window: buffer,
                send_buffer: buffer,
                ..config
            }),
        };
        let mut plan = Plan::new(hop.clone());
        plan.wired_tcp = buffers(plan.wired_tcp);
        let mut world = plan.build();
        let fixed = world.watch_fixed();
        let deal = Deal { reads_from: at(60_000), ..Deal::new(80, 0, 200_000) };
        world.deal(at(0), world.mobiles[0], world.fixed, deal);
        world.run(at(59_000));
        let (_, wired) = world.fixed_host().connections().next().unwrap();
        // The surrogate's receive buffer, the base's on the hop, and the mobile's own.
        let held = wired.acknowledged().get();
        assert!((16_000..=4 * 16_384).contains(&held), "{}: {held}", hop.scheme());
        assert_eq!((wired.stats().timeouts, wired.stats().zero_windows), (0, 1));
        assert_eq!(world.peer(world.mobiles[0]).conns[0].read, 0);
        let silent = fixed.borrow().from(FIXED).filter(|s| s.at > at(20_000)).count();
        assert!(silent < 12, "{silent} segments into a closed window");
        world.run_to_the_end(at(400_000));
        world.expect_whole(1);
        assert_eq!(fixed.borrow().towards(FIXED, Flags::RST), 0);
    }
}

/// MHP-12, ITCP-5: the base acknowledges before the mobile has the data.
#[test]
fn the_base_acknowledges_before_the_mobile_has_it() {
    for hop in schemes() {
        let mut plan = Plan::new(hop);
        plan.radio.delay = ms(600);
        let mut world = plan.build();
        world.deal(at(0), world.mobiles[0], world.fixed, Deal::new(80, 0, 400));
        world.run(at(1));
        while world.fixed_host().connections().all(|(_, c)| c.acknowledged().get() < 400) {
            world.run(world.network.now() + ms(1));
            assert!(world.network.now() < at(30_000));
        }
        assert_eq!(world.peer(world.mobiles[0]).conns[0].read, 0);
        world.run_to_the_end(at(60_000));
        world.expect_whole(1);
    }
}

/// MHP-14: an end is passed on after what was written before it, and the other direction goes on.
#[test]
fn a_half_close_is_passed_on_after_the_data() {
    for hop in schemes() {
        let mut world = Plan::new(hop).build();
        let fixed = world.watch_fixed();
        world.deal(at(0), world.mobiles[0], world.fixed, Deal::new(80, 500, 60_000));
        world.run_to_the_end(at(60_000));
        world.expect_whole(1);
        let log = fixed.borrow();
        let fin = |src| log.from(src).find(|s| s.segment.flags.contains(Flags::FIN)).unwrap().at;
        assert!(fin(mobile_addr(0)) + ms(500) < fin(FIXED), "the mobile's end comes first");
        assert_eq!(log.towards(FIXED, Flags::RST), 0);
    }
}
