//! State that comes and goes: handoffs, ends, beginnings, limits, nonsense.

use lasthop_units::Bytes;

use super::Sent::{Ack, Data};
use super::*;
use crate::snoop::Timer;

fn pinned() -> Config {
    Config { timer: Timer::Pinned(Duration::from_millis(100)), ..Config::default() }
}

/// SNP-11: with the mobile gone its cache goes, and the connection goes on without.
#[test]
fn what_is_kept_for_a_mobile_that_left_is_dropped() {
    let mut base = Base::new(pinned());
    base.data(0..5);
    base.agent.remove_mobile(mobile(1).ip());
    assert_eq!(base.agent.kept(), 5);
    base.agent.remove_mobile(mobile(0).ip());
    assert_eq!((base.agent.kept(), base.agent.connections()), (0, 0));
    assert_eq!((base.agent.memory().get(), base.agent.stats().evicted), (0, 5));
    assert_eq!(base.agent.next_timeout(), None);
    assert_eq!(base.ack(2), [Ack(2)]);
    assert_eq!(base.ack(2), [Ack(2)]);
}

fn primed() -> Base {
    let mut base = Base::new(pinned());
    for n in 3..7 {
        base.agent.prime(base.now, &wire(Side::Fixed, mobile(0), data(n)));
    }
    assert_eq!((base.sent(), base.agent.kept()), (vec![], 4), "kept, not handed on");
    assert_eq!(base.wait(1000), [], "and no timer runs");
    base
}

/// SNP-11: what was multicast to the next base is there when the mobile asks for it.
#[test]
fn a_base_that_was_primed_repairs_what_the_handoff_lost() {
    let mut base = primed();
    assert_eq!(base.ack(3), [Ack(3)]);
    base.data(7..8);
    assert_eq!(base.ack(3), [Data(3)]);
    assert_eq!(base.ack(4), [Ack(4)]);
    assert_eq!(base.wait(100), [(1100, Data(4))], "or when the timer fires");
    assert_eq!(base.ack(8), [Ack(8)]);
    assert_eq!(base.agent.kept(), 0);
}

/// SNP-11: or goes out when the mobile is known to have come.
#[test]
fn a_mobile_that_arrives_gets_what_was_primed() {
    let mut base = primed();
    assert_eq!(base.ack(5), [Ack(5)]);
    base.agent.arrived(base.now, mobile(1).ip());
    assert_eq!(base.sent(), []);
    base.agent.arrived(base.now, mobile(0).ip());
    assert_eq!(base.sent(), [Data(5), Data(6)]);
    base.agent.arrived(base.now, mobile(0).ip());
    assert_eq!((base.sent(), base.agent.stats().released), (vec![], 2));
}

/// SNP-11: the packets themselves may follow; they are then no retransmissions of the fixed host.
#[test]
fn a_primed_packet_that_comes_after_all_is_in_order() {
    let mut base = primed();
    assert_eq!(base.ack(3), [Ack(3)]);
    base.data(3..7);
    assert_eq!(base.agent.kept(), 4);
    assert_eq!(base.ack(3), [Data(3)]);
    assert_eq!(base.ack(3), []);
}

/// SNP-12 and mid-stream: what the agent has not seen from the beginning it helps all the same.
#[test]
fn a_connection_in_mid_stream_is_helped_from_its_next_segment_on() {
    let mut base = Base::new(pinned());
    assert_eq!(base.ack(7), [Ack(7)]);
    assert_eq!(base.agent.connections(), 0);
    base.data(7..10);
    assert_eq!(base.ack(7), [Ack(7)], "the first that is known");
    assert_eq!(base.ack(7), [Data(7)]);
}

#[test]
fn a_fin_is_repaired_like_data() {
    let mut base = Base::new(pinned());
    base.data(0..1);
    base.ack(1);
    let fin = Segment { flags: Flags::ACK.with(Flags::FIN), len: 0, ..data(1) };
    assert_eq!(base.fixed_sends(fin), [Data(1)]);
    assert_eq!(base.wait(100), [(100, Data(1))]);
    assert_eq!(base.mobile_sends(Segment { ack: fin.end(), ..ack(1) }), [Ack(1)]);
    assert_eq!(base.agent.kept(), 0);
}

#[test]
fn a_reset_ends_what_is_known_from_either_side() {
    for from_mobile in [false, true] {
        let mut base = Base::new(pinned());
        base.data(0..3);
        let reset =
            Segment { flags: Flags::RST, len: 0, ..if from_mobile { ack(0) } else { data(3) } };
        let passed = if from_mobile { base.mobile_sends(reset) } else { base.fixed_sends(reset) };
        assert_eq!(passed.len(), 1);
        assert_eq!((base.agent.connections(), base.agent.next_timeout()), (0, None));
    }
}

#[test]
fn a_new_connection_between_the_same_ends_begins_with_its_syn() {
    let mut base = Base::new(pinned());
    base.data(0..3);
    base.ack(1);
    let syn = Segment { seq: Seq(77), flags: Flags::SYN, len: 0, ..data(0) };
    base.fixed_sends(syn);
    assert_eq!((base.agent.kept(), base.agent.next_timeout()), (0, None));
    let first = Segment { seq: Seq(78), ..data(0) };
    base.fixed_sends(first);
    let reply = Segment { ack: Seq(78), ..ack(0) };
    assert_eq!(base.mobile_sends(reply).len(), 1);
    base.fixed_sends(Segment { seq: first.end(), ..first });
    let sent = base.hand(Side::Mobile, wire(Side::Mobile, mobile(0), reply));
    assert!(matches!(&sent[..], [Output::Packet { towards: Side::Mobile, packet }]
        if packet.tcp().is_some_and(|tcp| tcp.segment.seq == Seq(78))));
}

#[test]
fn a_jump_or_an_acknowledgement_of_the_unseen_only_ends_the_help_for_what_was() {
    let far = 1 << 31;
    let jump = Segment { seq: ORIGIN + far, ..data(0) };
    let lie = Segment { ack: ORIGIN + 9 * MSS, ..ack(0) };
    for nonsense in [false, true] {
        let mut base = Base::new(pinned());
        base.data(0..3);
        base.ack(1);
        let passed = if nonsense { base.mobile_sends(lie) } else { base.fixed_sends(jump) };
        assert_eq!(passed.len(), 1);
        assert!(base.agent.kept() <= 1);
        base.data(9..12);
        base.ack(9);
        base.ack(9);
        assert_eq!(base.agent.stats().local_retransmits, 1, "it is helped again");
    }
}

#[test]
fn what_is_not_understood_passes_as_it_came() {
    let mut base = Base::new(pinned());
    for side in [Side::Fixed, Side::Mobile] {
        let packet = Wire { tcp: None, payload: vec![1, 2, 3] };
        let out = base.hand(side, packet.clone());
        assert_eq!(out, [Output::Packet { towards: side.other(), packet }]);
    }
    assert_eq!((base.agent.connections(), base.agent.stats().passed), (0, 2));
    base.agent.prime(base.now, &Wire { tcp: None, payload: vec![] });
    assert_eq!(base.agent.connections(), 0);
}

#[test]
fn connections_that_vanish_are_removed() {
    let mut base = Base::new(Config { idle: Duration::from_secs(20), ..pinned() });
    base.data(0..3);
    base.wait(30_000);
    base.hand(Side::Fixed, Wire { tcp: None, payload: vec![] });
    assert_eq!((base.agent.connections(), base.agent.memory().get()), (0, 0));
    assert_eq!(base.agent.stats().evicted, 3);
}

#[test]
fn connections_and_bytes_have_limits() {
    let config = Config { connections: 3, memory: Bytes::new(5 * 1020), ..pinned() };
    let mut base = Base::new(config);
    for n in 0..10 {
        for at in 0..3 {
            base.hand(Side::Fixed, wire(Side::Fixed, mobile(n), data(at)));
        }
        assert!(base.agent.connections() <= 3);
        assert!(base.agent.memory().get() <= 5 * 1020);
        let kept = base.agent.kept() as u64;
        assert_eq!(base.agent.memory().get(), kept * 1020);
        let stats = base.agent.stats();
        assert_eq!(stats.cached, stats.evicted + kept);
        assert_eq!(stats.cached + stats.left_out, stats.passed);
    }
}
