//! Mobile TCP in bare frames: what crosses the hop, and what a handoff does to it.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use lasthop_radio::QueueLimit;
use lasthop_sim::net::host::Ending;
use lasthop_sim::net::{Body, TapPoint};
use lasthop_sim::schemes::HopKind;
use lasthop_units::Rate;
use lasthop_wire::mobile_tcp::{CONTROL_HEADER, Cid, Code, DATA_HEADER, ETHERTYPE, Packet};

use crate::world::*;

/// Both directions of mobile 0's hop to base `n`, down first.
fn watch_hop(world: &mut Site, n: usize) -> [Rc<RefCell<Log>>; 2] {
    world.radios[0][n].map(|link| world.watch(TapPoint::LinkOut(link)))
}

/// A packet of a connection's, not a word between two ends.
fn of_connections(bytes: &[u8]) -> Option<Packet<'_>> {
    match Packet::decode(bytes).expect("a packet") {
        Packet::Data(header, _) if header.cid.is_none() => None,
        packet => Some(packet),
    }
}

/// The identifiers that packets of connections named, in that direction.
fn cids(log: &Log) -> BTreeSet<Cid> {
    let data = log.frames.iter().filter_map(|frame| match of_connections(&frame.bytes)? {
        Packet::Data(header, _) => Some(header.cid),
        Packet::Control(..) => None,
    });
    data.collect()
}

/// The identifiers that openings and their answers told, in that direction.
fn reverse_cids(log: &Log) -> BTreeSet<Cid> {
    let control = log.frames.iter().filter_map(|frame| match of_connections(&frame.bytes)? {
        Packet::Control(control, _) if control.code.contains(Code::SYN) => Some(control.reverse),
        _ => None,
    });
    control.collect()
}

/// MOB-1, MOB-3, MOB-10, MOB-11: nothing of the connection on the hop is an IP packet. A data packet
/// is 16 bytes and its data where TCP's has 40, a control packet of the paper's is 28.
#[test]
fn the_hop_carries_16_bytes_and_data_where_tcp_has_40() {
    let mut world = Plan::new(mobile_tcp()).build();
    let logs = watch_hop(&mut world, 0);
    world.deal(at(0), world.mobiles[0], world.fixed, Deal::new(80, 20_000, 20_000));
    world.run_to_the_end(at(60_000));
    world.expect_whole(1);
    for log in &logs {
        let log = log.borrow();
        assert!(log.segments.is_empty() && log.datagrams.is_empty());
        assert_eq!(log.longest, 256, "a full packet fills the MTU");
        let mut control = 0;
        for frame in &log.frames {
            assert_eq!(frame.ethertype, ETHERTYPE);
            let carried = match Packet::decode(&frame.bytes).expect("a packet") {
                Packet::Data(_, data) => DATA_HEADER + data.len(),
                Packet::Control(_, None) => {
                    control += 1;
                    CONTROL_HEADER
                }
                Packet::Control(_, Some(extensions)) => panic!("{extensions:?}"),
            };
            assert_eq!((frame.bytes.len(), frame.len), (carried, carried as u64));
        }
        assert!(log.frames.len() > 80 && control >= 1);
    }
    let mut world = Plan::new(HopKind::SplitTcp(hop_tcp())).build();
    let link = world.radios[0][0][0];
    let lengths = world.watch(TapPoint::LinkOut(link));
    world.deal(at(0), world.mobiles[0], world.fixed, Deal::new(80, 20_000, 20_000));
    world.run_to_the_end(at(60_000));
    let tcp = lengths.borrow();
    let data = tcp.segments.iter().filter(|seen| seen.segment.len > 0);
    assert!(data.clone().count() > 80);
    assert!(data.clone().all(|seen| seen.segment.header_len() + 20 == 40));
    assert_eq!(tcp.longest, 256);
}

/// MOB-37, MOB-38: the connection's state moves and the fixed host sees nothing. A control packet opens
/// the connection again at the next base and tells identifiers, and nothing else is named there.
#[test]
fn a_handoff_gives_a_connection_new_identifiers() {
    let mut world = Plan::new(mobile_tcp()).build();
    let fixed = world.watch_fixed();
    let after = watch_hop(&mut world, 1);
    for n in 0..3 {
        world.deal(at(0), world.mobiles[0], world.fixed, Deal::new(80 + n, 40_000, 40_000));
    }
    world.hand_over(0, at(2000), ms(300), 1);
    world.run_to_the_end(at(100_000));
    world.expect_whole(3);
    assert_eq!(fixed.borrow().towards(FIXED, lasthop_wire::tcp::Flags::RST), 0);
    assert_eq!(world.fixed_host().stats().accepted, 3);
    let told = after.each_ref().map(|log| {
        let log = log.borrow();
        let first = log.frames.iter().find_map(|frame| of_connections(&frame.bytes));
        let Some(Packet::Control(control, _)) = first else { panic!("{first:?}") };
        assert!(control.code.contains(Code::SYN), "{control:?} opens nothing");
        reverse_cids(&log)
    });
    for way in 0..2 {
        let named = cids(&after[way].borrow());
        assert_eq!(named, told[1 - way], "what one end tells the other names");
        assert_eq!(named.len(), 4, "three connections, and the session's own stream");
    }
}

/// MOB-38: an identifier of the base before that the next one has not given is refused, and that costs
/// the connections nothing.
#[test]
fn identifiers_of_the_base_before_are_refused() {
    let mut world = Plan::new(mobile_tcp()).build();
    let before = watch_hop(&mut world, 0);
    // Two that are over by the handoff, so that the third one's identifier is its own.
    for n in 0..2 {
        world.deal(at(0), world.mobiles[0], world.fixed, Deal::new(80 + n, 10, 10));
    }
    world.deal(at(1000), world.mobiles[0], world.fixed, Deal::new(90, 60_000, 60_000));
    world.hand_over(0, at(2500), ms(300), 1);
    let after = watch_hop(&mut world, 1);
    world.run(at(3500));
    let current = cids(&after[1].borrow());
    let old: Vec<Vec<u8>> = {
        let log = before[1].borrow();
        let is_old = |frame: &&Frame| match of_connections(&frame.bytes) {
            Some(Packet::Data(header, data)) => !data.is_empty() && !current.contains(&header.cid),
            _ => false,
        };
        log.frames.iter().rev().filter(is_old).take(3).map(|f| f.bytes.clone()).collect()
    };
    assert_eq!(old.len(), 3);
    let mobile = world.mobiles[0];
    for bytes in &old {
        world.network.with_node(mobile, |_, ctx| {
            let body = Body::Frame { ethertype: ETHERTYPE };
            let mut packet = ctx.packet(mobile_addr(0), base_addr(1), body);
            packet.set_bytes(bytes);
            ctx.send(packet).expect("a route to the base");
        });
    }
    world.run_to_the_end(at(100_000));
    world.expect_whole(3);
    let refused = |frame: &&Frame| match Packet::decode(&frame.bytes) {
        Ok(Packet::Data(header, _)) => header.code.contains(Code::UNKNOWN),
        _ => false,
    };
    assert!(after[0].borrow().frames.iter().filter(refused).count() >= 1, "nobody refused them");
}

/// A base that has forgotten all says so: what still names its connections is reset, not mixed with
/// new ones, and the mobile opens new connections there.
#[test]
fn a_base_that_loses_its_state_resets_what_is_left() {
    let plan = Plan::new(mobile_tcp());
    let mut world = plan.build();
    world.deal(at(0), world.mobiles[0], world.fixed, Deal::new(80, 60_000, 60_000));
    world.deal(at(5000), world.mobiles[0], world.fixed, Deal::new(81, 3000, 3000));
    world.run(at(1500));
    world.crash(&plan, 0);
    world.run(at(30_000));
    let conns = &world.peer(world.mobiles[0]).conns;
    assert!(matches!(conns[0].closed, Some((_, Ending::Reset))), "{:?}", conns[0]);
    assert!(conns.iter().all(|conn| conn.check().is_ok()));
    assert!(conns[1].is_whole(), "{:?}", conns[1]);
}

/// MOB-3, MOB-19, MOB-20: the window is all that limits a sender, and it is full from the first round
/// trip on.
#[test]
fn only_the_window_limits_the_sender() {
    let mut plan = Plan::new(mobile_tcp());
    plan.radio = link(Rate::from_mbps(5), ms(100));
    plan.radio.mtu = 256;
    plan.radio.queue = QueueLimit::Packets(200);
    plan.wired = link(Rate::from_mbps(10), ms(1));
    plan.wired_tcp = lasthop_tcp::Config::modern();
    plan.fixed_tcp = plan.wired_tcp;
    let mut world = plan.build();
    world.deal(at(0), world.mobiles[0], world.fixed, Deal::new(80, 100_000, 0));
    world.run_to_the_end(at(60_000));
    world.expect_whole(1);
    let took = world.peer(world.fixed).conns[0].last_byte.expect("whole");
    // 16 KiB in each round trip of 200 ms and a bit: seven of them, and the opening. The radio alone
    // would need 200 ms.
    assert!((at(1300)..at(2200)).contains(&took), "{took:?}");
}

/// MOB-8: a base hears on which ports its mobile listens.
#[test]
fn a_base_knows_where_its_mobile_listens() {
    let mut world = Plan::new(mobile_tcp()).build();
    world.deal(at(1000), world.fixed, world.mobiles[0], Deal::new(22, 3000, 3000));
    world.run(at(900));
    let listens = |n: usize, world: &Site| {
        let hop = world.base(n).hop(mobile_addr(0));
        [22, 23].map(|port| hop.and_then(|hop| hop.listens(port)))
    };
    assert_eq!(listens(0, &world), [Some(true), Some(false)]);
    world.hand_over(0, at(20_000), ms(300), 1);
    world.run(at(22_000));
    world.expect_whole(1);
    assert_eq!(listens(1, &world), [Some(true), Some(false)], "the next base is told again");
}
