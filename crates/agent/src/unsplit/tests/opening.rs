//! How both halves agree on CIDs.

use super::*;

fn cid(packet: &Wire) -> Option<u16> {
    packet.tcp.segment.options.cid
}

/// ALT-3: each half adds its CID to what crosses the hop from its side, the other takes it off; the
/// ends see their own packets. ALT-1: there is one connection, between those two.
#[test]
fn an_opening_by_the_mobile_carries_both_cids() {
    let mut hop = Hop::new();
    let on_hop = one(&hop.send(Side::Mobile, syn(1, Side::Mobile)));
    assert_eq!((cid(&on_hop), on_hop.compressed), (Some(1), None));
    assert_eq!(on_hop.tcp.segment.header_len(), syn(1, Side::Mobile).tcp.segment.header_len() + 8);
    let said = hop.arrive(Side::Fixed, on_hop);
    assert_eq!(said.handed, [syn(1, Side::Mobile)]);

    // The base's CIDs are its own.
    hop.base.cids.allot(connection(99));
    let on_hop = one(&hop.send(Side::Fixed, syn_ack(1, Side::Fixed)));
    assert_eq!((cid(&on_hop), on_hop.compressed), (Some(1), None));
    let said = hop.arrive(Side::Mobile, on_hop);
    assert_eq!(said.handed, [syn_ack(1, Side::Fixed)]);

    // From here on both ways are compressed, and nothing more has to be told.
    let on_hop = one(&hop.send(Side::Mobile, ack(Side::Mobile, 0)));
    assert_eq!(on_hop.compressed, Some(Header { cid: 1, ..Header::default() }));
    let said = hop.arrive(Side::Fixed, on_hop);
    assert_eq!(said.handed, [ack(Side::Mobile, 0)]);
    let on_hop = one(&hop.send(Side::Fixed, data(Side::Fixed, 0)));
    assert_eq!(on_hop.compressed, Some(Header { cid: 1, ..Header::default() }));
    assert_eq!(hop.arrive(Side::Mobile, on_hop).handed, [data(Side::Fixed, 0)]);
}

/// ALT-3: the same when the fixed host opens.
#[test]
fn an_opening_by_the_fixed_host_carries_both_cids() {
    let mut hop = Hop::new();
    assert_eq!(hop.cross(Side::Fixed, syn(1, Side::Fixed)), syn(1, Side::Fixed));
    let on_hop = one(&hop.send(Side::Mobile, syn_ack(1, Side::Mobile)));
    assert_eq!(cid(&on_hop), Some(1));
    assert_eq!(hop.arrive(Side::Fixed, on_hop).handed, [syn_ack(1, Side::Mobile)]);
    let on_hop = one(&hop.send(Side::Fixed, ack(Side::Fixed, 0)));
    assert_eq!(on_hop.compressed, Some(Header { cid: 1, ..Header::default() }));
    hop.arrive(Side::Mobile, on_hop);
    let on_hop = one(&hop.send(Side::Mobile, data(Side::Mobile, 0)));
    assert_eq!(on_hop.compressed, Some(Header { cid: 1, ..Header::default() }));
}

/// ALT-3: a SYN that is sent again has the same CID, one of a new connection another.
#[test]
fn a_syn_sent_again_keeps_its_cid() {
    let mut hop = Hop::new();
    for _ in 0..3 {
        assert_eq!(cid(&one(&hop.send(Side::Mobile, syn(1, Side::Mobile)))), Some(1));
    }
    assert_eq!(cid(&one(&hop.send(Side::Mobile, syn(2, Side::Mobile)))), Some(2));
    let mut anew = syn(1, Side::Mobile);
    anew.tcp.segment.seq += 70_000;
    assert_eq!(cid(&one(&hop.send(Side::Mobile, anew))), Some(3));
    assert_eq!(hop.mobile.connections(), 2);
}

/// ALT-3: a SYN-ACK that is lost on the hop comes again with the same CID; data may cross meanwhile.
#[test]
fn a_syn_ack_sent_again_disturbs_nothing() {
    let mut hop = Hop::new();
    hop.cross(Side::Mobile, syn(1, Side::Mobile));
    let lost = one(&hop.send(Side::Fixed, syn_ack(1, Side::Fixed)));
    let again = one(&hop.send(Side::Fixed, syn_ack(1, Side::Fixed)));
    assert_eq!(lost, again);
    hop.arrive(Side::Mobile, again);
    hop.cross(Side::Fixed, data(Side::Fixed, 0));
    assert_eq!(hop.arrive(Side::Mobile, again).handed, [syn_ack(1, Side::Fixed)]);
    let on_hop = one(&hop.send(Side::Mobile, ack(Side::Mobile, 1)));
    assert!(on_hop.compressed.is_some());
    let on_hop = one(&hop.send(Side::Fixed, data(Side::Fixed, 2)));
    hop.arrive(Side::Mobile, on_hop);
    let on_hop = one(&hop.send(Side::Mobile, ack(Side::Mobile, 1)));
    let said = on_hop.compressed.and_then(|header| header.request);
    assert_eq!(said, Some(request(Side::Fixed, 1, 2)), "what had come is still known");
}

/// A SYN whose options leave no room, or that carries data, goes as it is, and the connection stays
/// as it is.
#[test]
fn without_room_the_connection_stays_uncompressed() {
    let mut full = syn(1, Side::Mobile);
    let mut blocks = SackBlocks::default();
    blocks.push(Seq(1), Seq(2));
    blocks.push(Seq(3), Seq(4));
    full.tcp.segment.options.sack = blocks;
    assert_eq!(full.tcp.segment.options.len(), 40);
    let mut fast = syn(1, Side::Mobile);
    fast.tcp.segment.len = 100;
    for opening in [full, fast] {
        let mut hop = Hop::new();
        assert_eq!(hop.cross(Side::Mobile, opening), opening);
        assert_eq!(hop.cross(Side::Fixed, syn_ack(1, Side::Fixed)), syn_ack(1, Side::Fixed));
        for n in 0..20 {
            hop.now = ms(1000 * u64::from(n));
            let (down, up) = (data(Side::Fixed, n), ack(Side::Mobile, n + 1));
            assert_eq!(hop.send(Side::Fixed, down), [down]);
            assert_eq!(hop.send(Side::Mobile, up), [up]);
        }
    }
}

/// ALT-3: an answer without room takes nothing along and nobody compresses.
#[test]
fn without_room_in_the_answer_the_connection_stays_uncompressed() {
    let mut hop = Hop::new();
    hop.cross(Side::Mobile, syn(1, Side::Mobile));
    let mut full = syn_ack(1, Side::Fixed);
    let mut blocks = SackBlocks::default();
    blocks.push(Seq(1), Seq(2));
    blocks.push(Seq(3), Seq(4));
    full.tcp.segment.options.sack = blocks;
    assert_eq!(hop.cross(Side::Fixed, full), full);
    for n in 0..20 {
        hop.now = ms(1000 * u64::from(n));
        let (down, up) = (data(Side::Fixed, n), ack(Side::Mobile, n + 1));
        assert_eq!(hop.send(Side::Fixed, down), [down]);
        assert_eq!(hop.send(Side::Mobile, up), [up]);
    }
}

/// A half without another says what it has to say once for each SYN, and no more.
#[test]
fn a_half_without_another_leaves_everything_as_it_is() {
    let mut hop = Hop::new();
    let alone = one(&hop.send(Side::Mobile, syn(1, Side::Mobile)));
    assert_eq!(cid(&alone), Some(1));
    assert_eq!(hop.arrive(Side::Mobile, syn_ack(1, Side::Fixed)).handed.len(), 1);
    for n in 0..20 {
        hop.now = ms(1000 * u64::from(n));
        let up = ack(Side::Mobile, n);
        assert_eq!(hop.send(Side::Mobile, up), [up]);
        assert_eq!(hop.arrive(Side::Mobile, data(Side::Fixed, n)).handed.len(), 1);
    }
    assert_eq!(hop.mobile.next_timeout(), None);
    assert_eq!(hop.mobile.kept(), 0);

    // At the base it is the SYN of the fixed host that nobody answers.
    let mut hop = Hop::new();
    hop.send(Side::Fixed, syn(1, Side::Fixed));
    hop.arrive(Side::Fixed, syn_ack(1, Side::Mobile));
    for n in 0..20 {
        hop.now = ms(1000 * u64::from(n));
        let down = ack(Side::Fixed, n);
        assert_eq!(hop.send(Side::Fixed, down), [down]);
    }
}

/// An option that an end sends is none of a half's: it is taken off unread.
#[test]
fn an_option_from_elsewhere_crosses_no_hop() {
    let mut hop = Hop::new();
    let mut forged = syn(1, Side::Fixed);
    forged.tcp.segment.options.cid = Some(4711);
    assert_eq!(cid(&one(&hop.send(Side::Fixed, forged))), Some(1), "the base's own");

    let mut hop = Hop::open();
    let mut forged = data(Side::Fixed, 0);
    forged.tcp.segment.options.cid = Some(4711);
    let on_hop = one(&hop.send(Side::Fixed, forged));
    assert_eq!(on_hop.tcp.segment.options.cid, None);
    assert_eq!(hop.arrive(Side::Mobile, on_hop).handed, [data(Side::Fixed, 0)]);
    assert_eq!(hop.base.cids.sends(4711), None);
}

/// Both ends may open at once (RFC 9293 section 3.5).
#[test]
fn a_simultaneous_opening_carries_both_cids() {
    let mut hop = Hop::new();
    let up = one(&hop.send(Side::Mobile, syn(1, Side::Mobile)));
    let down = one(&hop.send(Side::Fixed, syn(1, Side::Fixed)));
    hop.arrive(Side::Fixed, up);
    hop.arrive(Side::Mobile, down);
    assert!(one(&hop.send(Side::Mobile, ack(Side::Mobile, 0))).compressed.is_some());
    assert!(one(&hop.send(Side::Fixed, ack(Side::Fixed, 0))).compressed.is_some());
}
