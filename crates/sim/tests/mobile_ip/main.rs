//! Mobile IP in a network (MIP-1..9): a fixed host and a mobile that moves from one base to another,
//! with a packet every 5 ms in each direction, so that what is lost can be counted.
//!
//! The path: fixed host - home agent's router - a core router - two base stations - the mobile.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod world;

use std::cell::RefCell;
use std::rc::Rc;

use lasthop_sim::mobile_ip::Upcall;
use lasthop_sim::net::{Datagram, Event, Observer, Sight, TapPoint};
use lasthop_units::{Duration, LinkEvent, Time};

use world::{
    Any, Built, DOWN_AT, END, Ends, FIRST, GAP, HOME_AGENT, MOBILE, PASSENGER, PAYLOAD, Plan,
    SECOND, UP_AT, build, signal,
};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// MIP-1, MIP-2: hear, ask through the agent, and the reply ends it; the home agent knows the place.
#[test]
fn mip_2_the_mobile_registers_with_each_base_that_it_meets() {
    let mut built = Built::run(Plan::default());
    let handoffs = built.handoffs();
    let bases: Vec<_> = handoffs.iter().map(|(_, base, _)| *base).collect();
    assert_eq!(bases, [FIRST, SECOND]);
    assert_eq!(built.home().agent().stats().accepted, 2);
    let bound = built.network.with_node(built.home, |node, ctx| match node {
        Any::Home(home) => home.agent().clone().binding(ctx.now(), MOBILE),
        _ => None,
    });
    assert_eq!(bound.map(|binding| binding.care_of), Some(SECOND));
    assert!(built.base(1).ip.agent().is_visitor(END, MOBILE));
}

/// MIP-3: to the mobile by way of its home and a tunnel, from the mobile straight.
#[test]
fn mip_3_the_way_there_is_a_detour_and_the_way_back_is_straight() {
    let built = Built::run(Plan::default());
    let delay = |ends: &Ends| {
        let &(number, came) = ends.came.last().unwrap();
        came - Ends::sent_at(number)
    };
    // 5 + 20 + 3 + 1 ms and transmissions, against 1 + 3 + 2 ms.
    let (there, back) = (delay(&built.mobile().ends), delay(built.fixed()));
    assert!(there > ms(29) && there < ms(31), "{there:?}");
    assert!(back > ms(6) && back < ms(8), "{back:?}");
    let sent = u64::from(built.fixed().sent);
    assert!(built.home().tunnelled() <= sent && built.home().tunnelled() + 2 >= sent);
}

#[derive(Default)]
struct Lengths {
    tunnelled: Vec<u64>,
    plain: Vec<u64>,
}

impl Observer for Lengths {
    fn handle_packet(&mut self, _: Time, _: TapPoint, _: Sight, packet: &Datagram) {
        if packet.dst == MOBILE && packet.payload_len() == PAYLOAD {
            let list = if packet.tunnel.is_some() { &mut self.tunnelled } else { &mut self.plain };
            list.push(packet.ip_len().get());
        }
    }
}

/// MIP-3: the tunnel costs 20 bytes, as far as the base and no farther.
#[test]
fn mip_3_a_tunnelled_packet_is_20_bytes_longer_up_to_the_base() {
    let plan = Plan::default();
    let mut built = build(&plan);
    let (wired, radio) =
        (Rc::new(RefCell::new(Lengths::default())), Rc::new(RefCell::new(Lengths::default())));
    built.network.tap(TapPoint::LinkOut(built.to_bases[0]), wired.clone());
    built.network.tap(TapPoint::LinkIn(built.radios[0][0]), radio.clone());
    built.network.run_until(Time::from_secs(4)).unwrap();
    let (wired, radio) = (wired.borrow(), radio.borrow());
    assert!(wired.tunnelled.len() > 300 && wired.tunnelled.iter().all(|&len| len == 148));
    assert!(radio.plain.len() > 300 && radio.plain.iter().all(|&len| len == 128));
    assert!(wired.plain.is_empty() && radio.tunnelled.is_empty());
}

/// MIP-4: packets that pass the home agent before it has the new binding are lost, all of them, and
/// none after it.
#[test]
fn mip_4_packets_are_lost_until_the_home_agent_knows() {
    let built = Built::run(Plan::default());
    let timing = built.handoff();
    let (first, last) = built.mobile().ends.lost().unwrap();
    // From the home agent to the radio takes about 23 ms; the reply needs 24 ms to the mobile.
    let reached_radio = first + ms(5 + 20 + 3);
    assert!(reached_radio + ms(1) >= DOWN_AT - GAP && reached_radio <= DOWN_AT + GAP, "{first}");
    let bound = timing.complete - ms(24);
    let passed_home = last + ms(5);
    assert!(passed_home >= bound - GAP - ms(2) && passed_home <= bound, "{last} {bound}");
    let lost = ((last - first).as_nanos() / GAP.as_nanos()) as usize + 1;
    let ends = &built.mobile().ends;
    let missing = usize::from(built.fixed().sent) - ends.came.len();
    assert!(missing >= lost && missing <= lost + 10, "no packet in between came: {missing} {lost}");
}

/// MIP-4: forwarding by the old agent is off by default; with it, what still comes to the old base
/// after the move is known there is saved.
#[test]
fn mip_4_forwarding_by_the_old_base_saves_packets() {
    let lost = |forward| {
        let built = Built::run(Plan { forward, home_delay: 60, ..Plan::default() });
        let missing = usize::from(built.fixed().sent) - built.mobile().ends.came.len();
        (missing, built.handoff().registration())
    };
    let ((without, round_trip), (with, _)) = (lost(false), lost(true));
    // The old base hears of the move 3 + 3 ms after the request; the home agent after 63 ms, and
    // what it sent just before that takes 63 ms more.
    let saved = (without - with) as u32 * GAP;
    assert!(round_trip > ms(120));
    assert!(saved > ms(100) && saved < ms(130), "{saved:?}");
}

/// MIP-5: between the link's part and the IP part the mobile can send, and hears nothing.
#[test]
fn mip_5_the_mobile_can_send_before_it_can_be_reached() {
    let built = Built::run(Plan { home_delay: 100, ..Plan::default() });
    let timing = built.handoff();
    assert_eq!(timing.up, UP_AT);
    let (first, last) = built.fixed().lost().unwrap();
    assert!(first >= DOWN_AT - ms(5) && last < UP_AT, "{first} to {last}");
    let between = |at: &Time| *at > UP_AT && *at < timing.complete;
    let sent = built.fixed().came.iter().filter(|&&(n, _)| between(&Ends::sent_at(n))).count();
    let heard = built.mobile().ends.came.iter().filter(|(_, at)| between(at)).count();
    let gap = timing.complete - UP_AT;
    assert!(gap > ms(206));
    assert!(sent as u128 >= gap.as_nanos() / GAP.as_nanos() - 1);
    assert_eq!(heard, 0);
}

/// MIP-6: the layers above are told when a handoff begins and when it is over, and where they are.
#[test]
fn mip_6_upper_layers_hear_of_the_handoff_twice() {
    let built = Built::run(Plan::default());
    let timing = built.handoff();
    let after: Vec<_> = built.mobile().upcalls.iter().skip(1).copied().collect();
    assert_eq!(
        after,
        [
            (DOWN_AT, Upcall::HandoffInProgress),
            (timing.complete, Upcall::HandoffComplete { base: SECOND, timing }),
        ]
    );
}

/// MIP-7: after the handoff all packets for the mobile, and from it, pass its new base, where an
/// agent can take them; the fixed host sees one address all the time.
#[test]
fn mip_7_packets_pass_the_new_base_and_the_fixed_host_sees_one_address() {
    let built = Built::run(Plan::default());
    let complete = built.handoff().complete;
    let later = |ends: &Ends| ends.came.iter().filter(|&&(_, at)| at > complete).count() as u32;
    let (down, up) = (later(&built.mobile().ends), built.base(1).down);
    assert!(down > 1000 && up >= down && up <= down + 2, "{up} {down}");
    assert!(built.base(1).up >= later(built.fixed()));
    assert_eq!(built.fixed().from, Some(MOBILE));
    assert!(built.base(0).down > 500, "before, they passed the old one");
}

/// MIP-8, MET-12: the latency is the link's part, the wait for an advertisement and one round trip
/// to the home agent; period and processing are parameters.
#[test]
fn mip_8_the_handoff_latency_is_the_sum_of_its_parts() {
    let mut waits = Duration::ZERO;
    for seed in 0..30 {
        let processing = ms(40);
        let plan = Plan { seed, processing, period: ms(400), ..Plan::default() };
        let timing = Built::run(plan).handoff();
        assert_eq!(timing.link(), UP_AT - DOWN_AT);
        // Mobile to home agent and back, 1 + 3 + 20 ms each way, with short transmissions.
        let registration = timing.registration();
        assert!(registration >= ms(88) && registration < ms(90), "{registration:?}");
        assert!(timing.advertisement() <= ms(452), "{:?}", timing.advertisement());
        let parts = timing.link() + timing.advertisement() + registration;
        assert_eq!(parts, timing.latency());
        waits += timing.advertisement();
    }
    let mean = waits / 30;
    assert!(mean > ms(140) && mean < ms(260), "half a period on average: {mean:?}");
}

/// MIP-2, MIP-8: a mobile that asks need not wait.
#[test]
fn mip_8_a_solicitation_cuts_the_wait_to_one_crossing() {
    let timing = Built::run(Plan { solicit: true, ..Plan::default() }).handoff();
    assert!(timing.advertisement() < ms(4), "{:?}", timing.advertisement());
}

/// MIP-1: a mobile that nobody hears of any more is forgotten when its lifetime ends.
#[test]
fn mip_1_an_unrenewed_binding_ends_with_its_lifetime() {
    let lifetime = Duration::from_secs(4);
    let mut built = Built::run(Plan { lifetime, vanish: true, ..Plan::default() });
    let tunnelled = built.home().tunnelled();
    built.network.run_until(END + ms(500)).unwrap();
    assert_eq!(built.home().tunnelled(), tunnelled);
    assert!(built.home().undelivered() > 0, "what comes for it goes nowhere");
    assert_eq!(built.home().agent().stats().expired, 1);
    assert!(built.home().agent().stats().accepted >= 2, "renewed while it could be");
}

/// MIP-1: a mobile that comes home ends its binding, and is served there without a tunnel.
#[test]
fn mip_1_at_home_no_tunnel_is_needed() {
    let mut built = build(&Plan { home_link: true, ..Plan::default() });
    let home_radio = built.home_radio.unwrap();
    for link in built.radios[0] {
        built.network.schedule(DOWN_AT, Event::LinkDown(link));
    }
    for link in home_radio {
        built.network.schedule(UP_AT, Event::LinkUp(link));
    }
    signal(&mut built.network, built.mobile, built.radios[0][1], DOWN_AT, LinkEvent::Down);
    signal(&mut built.network, built.mobile, home_radio[1], UP_AT, LinkEvent::Up);
    built.network.run_until(END).unwrap();

    let (complete, agent, _) = *built.handoffs().last().unwrap();
    assert_eq!(agent, HOME_AGENT);
    let after = built.mobile().ends.came.iter().filter(|&&(_, at)| at > complete).count();
    let due = (END - complete).as_nanos() / GAP.as_nanos();
    assert!(after as u128 + 20 > due, "{after} of {due}");
    let ends = built.home().tunnelled();
    built.network.run_until(END + ms(500)).unwrap();
    assert_eq!(built.home().tunnelled(), ends, "nothing goes through a tunnel any more");
    assert_eq!(built.fixed().from, Some(MOBILE));
}

/// MIP-9: one router registers for the whole network behind it, whose hosts see nothing.
#[test]
fn mip_9_a_passenger_moves_with_its_router() {
    let built = Built::run(Plan { router: true, ..Plan::default() });
    let complete = built.handoff().complete;
    assert_eq!(built.home().agent().stats().accepted, 2);
    assert!(built.mobile().ends.came.iter().any(|&(_, at)| at > complete));
    assert_eq!(built.fixed().from, Some(PASSENGER));
    assert!(built.base(1).down > 1000);
}

/// LNK-15: a run follows from its seed.
#[test]
fn the_same_seed_gives_the_same_trace() {
    let hash = |seed| Built::run(Plan { seed, ..Plan::default() }).network.trace().hash();
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
}

/// Messages take air time: registration goes over the same links as everything else.
#[test]
fn registration_passes_the_links_like_any_packet() {
    #[derive(Default)]
    struct Requests(Vec<u64>);
    impl Observer for Requests {
        fn handle_packet(&mut self, _: Time, _: TapPoint, _: Sight, packet: &Datagram) {
            if packet.dst == HOME_AGENT {
                self.0.push(packet.ip_len().get());
            }
        }
    }
    let mut built = build(&Plan::default());
    let requests = Rc::new(RefCell::new(Requests::default()));
    built.network.tap(TapPoint::LinkOut(built.to_home), requests.clone());
    built.network.run_until(Time::from_secs(3)).unwrap();
    assert_eq!(requests.borrow().0, [74]);
}
