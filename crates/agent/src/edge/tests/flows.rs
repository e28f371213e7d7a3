//! What is learnt of a connection.

use super::*;
use crate::edge::flow::{Seen, held_above};

fn syn(scale: Option<u8>, answers: bool) -> Segment {
    let flags = if answers { Flags::SYN.with(Flags::ACK) } else { Flags::SYN };
    Segment { flags, options: Options { window_scale: scale, ..Options::default() }, ..segment() }
}

fn shift(segments: &[(Side, Segment)]) -> Option<u8> {
    let mut seen = Seen::default();
    segments.iter().for_each(|(from, segment)| seen.observe(*from, segment));
    seen.shift(Side::Mobile)
}

/// RWC-12: windows are scaled only if both ends offered it (RFC 7323 section 2.2).
#[test]
fn the_scale_of_a_window_follows_from_both_syns() {
    let (f, m) = (Side::Fixed, Side::Mobile);
    assert_eq!(shift(&[(m, syn(Some(7), false)), (f, syn(Some(9), true))]), Some(7));
    assert_eq!(shift(&[(f, syn(Some(9), false)), (m, syn(Some(7), true))]), Some(7));
    assert_eq!(shift(&[(m, syn(Some(7), false)), (f, syn(None, true))]), Some(0));
    assert_eq!(shift(&[(m, syn(None, false)), (f, syn(None, true))]), Some(0));
    assert_eq!(shift(&[(m, syn(Some(99), false)), (f, syn(Some(9), true))]), Some(14));
}

#[test]
fn one_syn_gives_as_much_as_it_can() {
    let (f, m) = (Side::Fixed, Side::Mobile);
    assert_eq!(shift(&[]), None);
    assert_eq!(shift(&[(m, syn(Some(7), false))]), None);
    assert_eq!(shift(&[(m, syn(Some(7), true))]), Some(7));
    assert_eq!(shift(&[(m, syn(None, true))]), Some(0));
    assert_eq!(shift(&[(f, syn(None, true))]), Some(0));
    assert_eq!(shift(&[(f, syn(Some(3), true))]), None);
}

#[test]
fn blocks_of_data_that_came_twice_are_distinguished() {
    let above = |blocks: &[(u32, u32)]| held_above(&with_sack(5000, blocks)).as_slice().len();
    assert_eq!(above(&[(6000, 7000), (8000, 9000)]), 2);
    assert_eq!(above(&[(3000, 4000), (8000, 9000)]), 1);
    assert_eq!(above(&[(8000, 8500), (8000, 9000)]), 1);
    assert_eq!(above(&[(3000, 4000)]), 0);
}

#[test]
fn a_reset_ends_what_is_known_and_other_packets_pass() {
    let mut path = Path::new(Freeze::new(FreezeConfig::freeze(HopEnd::Mobile)));
    path.burst(0, 0, 2);
    path.ack(1, 2000);
    let known: Vec<_> = path.agent.flows.iter().map(|(connection, _)| *connection).collect();
    assert_eq!(known, [connection(1)]);
    let flags = Flags::RST.with(Flags::ACK);
    path.give(2, Side::Fixed, Segment { flags, ..data(2000, 0) });
    assert!(path.agent.flows.is_empty());
    path.agent.handle_packet(at(3), Side::Fixed, Fake::hidden(9));
    assert_eq!(path.outputs(), [Out::Other]);
}
