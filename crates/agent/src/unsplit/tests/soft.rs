//! What happens when a half forgets, restarts, or hears nonsense; and its bounds.

use lasthop_units::Bytes;

use super::*;

/// ALT-7: a half that does not know a CID says so; the other sends whole packets, and on these the
/// CIDs are agreed on anew.
#[test]
fn an_unknown_cid_is_reported_and_agreed_on_anew() {
    let mut hop = Hop::open();
    hop.cross(Side::Mobile, data(Side::Mobile, 0));
    hop.base = Unsplit::at_base(&Config::default());
    let lost = one(&hop.send(Side::Mobile, data(Side::Mobile, 1)));
    let said = hop.arrive(Side::Fixed, lost);
    assert_eq!(
        (said.handed, said.messages),
        (Vec::new(), Vec::from([Message::UnknownCid { cid: 1 }]))
    );
    assert_eq!(hop.base.stats().unknown, 1);
    let again = hop.arrive(Side::Fixed, lost);
    assert_eq!(again.messages, [], "not for each packet");

    hop.arrive_message(Side::Mobile, &Message::UnknownCid { cid: 1 });
    assert_eq!(hop.mobile.stats().fallbacks, 1);
    // What may be lost goes again at once, whole, and takes the CID along.
    let whole = hop.at(0, Side::Mobile).hop;
    assert_eq!(numbers(Side::Mobile, &whole), [0, 1]);
    let cids: Vec<_> = whole.iter().map(|p| (p.compressed, p.tcp.segment.options.cid)).collect();
    assert_eq!(cids, [(None, Some(1)), (None, None)]);
    for (n, packet) in (0..).zip(whole) {
        assert_eq!(hop.arrive(Side::Fixed, packet).handed, [data(Side::Mobile, n)]);
    }
    // The base compresses at once and tells its CID with that.
    let down = one(&hop.send(Side::Fixed, ack(Side::Fixed, 2)));
    assert_eq!(down.compressed, Some(Header { cid: 1, offer: Some(1), ..Header::default() }));
    assert_eq!(hop.arrive(Side::Mobile, down).handed, [ack(Side::Fixed, 2)]);
    let up = one(&hop.send(Side::Mobile, data(Side::Mobile, 2)));
    assert_eq!(up.compressed, Some(Header { cid: 1, ..Header::default() }));
    hop.arrive(Side::Fixed, up);
    let down = one(&hop.send(Side::Fixed, ack(Side::Fixed, 3)));
    assert_eq!(down.compressed, Some(Header { cid: 1, ..Header::default() }), "it is used");
}

/// ALT-7: a mobile that has moved forgets what it knew; whole packets cross meanwhile.
#[test]
fn a_mobile_that_has_moved_begins_anew_with_its_next_packet() {
    let mut hop = Hop::open();
    let mobile = connection(1).mobile.ip();
    hop.send(Side::Mobile, data(Side::Mobile, 0));
    hop.mobile.remove_mobile(mobile);
    hop.base = Unsplit::at_base(&Config::default());
    assert_eq!((hop.mobile.kept(), hop.mobile.connections()), (0, 0));

    // The new base does not know the mobile's half, and offers too.
    let down = one(&hop.send(Side::Fixed, ack(Side::Fixed, 0)));
    assert_eq!((down.compressed, down.tcp.segment.options.cid), (None, Some(1)));
    let up = one(&hop.send(Side::Mobile, ack(Side::Mobile, 0)));
    assert_eq!(
        (up.compressed, up.tcp.segment.options.cid),
        (None, Some(2)),
        "never one used before"
    );
    assert_eq!(hop.arrive(Side::Fixed, up).handed, [ack(Side::Mobile, 0)]);
    let down = one(&hop.send(Side::Fixed, data(Side::Fixed, 0)));
    let header = down.compressed.unwrap();
    assert_eq!((header.cid, header.offer), (2, Some(1)));
    hop.arrive(Side::Mobile, down);
    let up = one(&hop.send(Side::Mobile, ack(Side::Mobile, 1)));
    assert_eq!(up.compressed, Some(Header { cid: 1, ..Header::default() }));
}

/// A full packet takes nothing along: no packet becomes longer than the hop's MTU. An offer is
/// repeated, but not for ever.
#[test]
fn offers_in_mid_stream_respect_the_mtu_and_end() {
    let mut hop = Hop::new();
    let mut full = data(Side::Mobile, 0);
    full.tcp.segment.len = 1460 - 12;
    assert_eq!(hop.send(Side::Mobile, full), [full]);
    full.tcp.segment.len -= 4;
    let taken = one(&hop.send(Side::Mobile, full));
    assert_eq!(20 + taken.tcp.segment.header_len() + taken.tcp.segment.len, 1500);
    assert_eq!(taken.tcp.segment.options.cid, Some(1));
    let mut offers = 1;
    for second in 1..1000 {
        hop.now = ms(1000 * second);
        let on_hop = one(&hop.send(Side::Mobile, ack(Side::Mobile, 0)));
        offers += u32::from(on_hop.tcp.segment.options.cid.is_some());
    }
    assert_eq!(offers, Config::default().offers);
}

#[test]
fn offers_wait_for_an_answer() {
    let mut hop = Hop::new();
    let offers = |hop: &mut Hop| {
        let on_hop = one(&hop.send(Side::Mobile, ack(Side::Mobile, 0)));
        on_hop.tcp.segment.options.cid.is_some()
    };
    let at: Vec<u64> = (0..2000)
        .filter(|n| {
            hop.now = ms(*n);
            offers(&mut hop)
        })
        .collect();
    assert_eq!(at, [0, 200, 600, 1400]);
}

/// ALT-2: what opens, ends or resets a connection has IP's header; so has what cannot be
/// compressed.
#[test]
fn control_and_stubborn_packets_go_as_they_are() {
    let mut hop = Hop::open();
    let mut last = data(Side::Fixed, 0);
    last.tcp.segment.flags = last.tcp.segment.flags.with(Flags::FIN);
    assert_eq!(hop.send(Side::Fixed, last), [last]);
    let mut stubborn = data(Side::Fixed, 1);
    stubborn.stubborn = true;
    assert_eq!(hop.send(Side::Fixed, stubborn), [stubborn]);
    assert_eq!(hop.base.kept(), 2, "and is repaired like any other");
    let mut reset = ack(Side::Fixed, 0);
    reset.tcp.segment.flags = Flags::RST;
    assert_eq!(hop.cross(Side::Fixed, reset), reset);
    assert_eq!((hop.base.connections(), hop.mobile.connections()), (0, 0));
    assert_eq!(hop.base.next_timeout(), None);
}

/// A CID that is free again is not given to the next connection at once.
#[test]
fn a_cid_is_not_reused_at_once() {
    let mut cids = super::super::cids::Cids::new(1);
    let first = cids.allot(connection(1));
    cids.free(&connection(1), first, None);
    let second = cids.allot(connection(2));
    assert_ne!(first, second);
    for n in 2..=u16::MAX {
        cids.free(&connection(n), n, None);
        assert_ne!(cids.allot(connection(1)), 0, "zero is nobody's");
    }
}

/// ALT-7: a base that has restarted may give a CID to another connection. The checksum tells, and the
/// packet reaches nobody.
#[test]
fn a_cid_that_now_is_of_another_connection_is_unknown() {
    let mut hop = Hop::open();
    hop.base = Unsplit::at_base(&Config::default());
    let new = one(&hop.send(Side::Mobile, syn(2, Side::Mobile)));
    hop.arrive(Side::Fixed, new);
    assert_eq!(hop.base.cids.receives(1), Some(connection(2)));
    let old = one(&hop.send(Side::Mobile, data(Side::Mobile, 0)));
    let said = hop.arrive(Side::Fixed, old);
    assert_eq!(
        (said.handed, said.messages),
        (Vec::new(), Vec::from([Message::UnknownCid { cid: 1 }]))
    );

    let elsewhere = Config { first_cid: 4000, ..Config::default() };
    hop.base = Unsplit::at_base(&elsewhere);
    let new = one(&hop.send(Side::Mobile, syn(2, Side::Mobile)));
    hop.arrive(Side::Fixed, new);
    assert_eq!(hop.base.cids.receives(4000), Some(connection(2)));
}

/// ALT-7: the other half has restarted and gives a CID to another connection. Whoever had it falls
/// back at once, or nobody would ever tell it.
#[test]
fn a_cid_given_to_another_connection_is_taken_from_the_first() {
    let mut hop = Hop::open();
    hop.cross(Side::Mobile, syn(2, Side::Mobile));
    hop.cross(Side::Fixed, syn_ack(2, Side::Fixed));
    hop.base = Unsplit::at_base(&Config::default());
    let second = wire(2, Side::Fixed, ack(Side::Fixed, 0).tcp.segment);
    let offer = one(&hop.send(Side::Fixed, second));
    assert_eq!(offer.tcp.segment.options.cid, Some(1), "which was the first connection's");
    hop.arrive(Side::Mobile, offer);
    let first = one(&hop.send(Side::Mobile, data(Side::Mobile, 0)));
    assert_eq!((first.compressed, first.tcp.segment.options.cid), (None, Some(1)));
    let second = wire(2, Side::Mobile, data(Side::Mobile, 0).tcp.segment);
    assert_eq!(one(&hop.send(Side::Mobile, second)).compressed.map(|h| h.cid), Some(1));
}

/// A connection for which there is no room crosses as it is; one in use is not forgotten for it.
#[test]
fn one_too_many_crosses_as_it_is() {
    let config = Config { connections: 1, ..Config::default() };
    let mut hop = Hop::with(&config);
    hop.cross(Side::Mobile, syn(1, Side::Mobile));
    let second = syn(2, Side::Mobile);
    assert_eq!(hop.send(Side::Mobile, second), [second]);
    hop.now = ms(10_000);
    assert!(one(&hop.send(Side::Mobile, second)).tcp.segment.options.cid.is_some());
}

/// What is kept has bounds: segments, bytes, connections.
#[test]
fn a_half_is_bounded() {
    let config = Config {
        segments: 3,
        memory: Bytes::new(10_000),
        connections: 2,
        idle: Duration::from_secs(10),
        ..Config::default()
    };
    let mut hop = Hop::with(&config);
    for port in 1..=5 {
        hop.cross(Side::Mobile, syn(port, Side::Mobile));
        hop.cross(Side::Fixed, syn_ack(port, Side::Fixed));
        for n in 0..10 {
            let mut segment = data(Side::Fixed, n).tcp.segment;
            segment.len = LEN;
            hop.send(Side::Fixed, wire(port, Side::Fixed, segment));
        }
        assert!(hop.base.connections() <= 2 && hop.base.kept() <= 6);
        assert!(hop.base.memory() <= config.memory, "{}", hop.base.memory());
    }
    assert!(hop.base.stats().left_out > 0);
    assert_eq!(hop.base.kept(), 6);
    hop.now = ms(11_000);
    hop.send(Side::Fixed, syn(9, Side::Fixed));
    assert_eq!((hop.base.connections(), hop.base.kept()), (1, 0));
    assert_eq!(hop.base.cids.receives(1), None);
}

/// Words of the other half that make no sense change nothing.
#[test]
fn nonsense_is_ignored() {
    let mut hop = Hop::open();
    let from = Side::Fixed;
    for n in 0..3 {
        hop.send(from, data(from, n));
    }
    let asks =
        |ack, nis| Message::Request { cid: 1, reply: false, request: request(from, ack, nis) };
    for message in [asks(0, 100), asks(100, 101), asks(2, 1), asks(1 << 19, 1 << 20)] {
        assert_eq!(hop.arrive_message(from, &message).hop, []);
    }
    assert_eq!(hop.base.stats().ignored_requests, 4);
    let foreign = Message::Request { cid: 77, reply: false, request: request(from, 0, 1) };
    let said = hop.arrive_message(from, &foreign);
    assert_eq!(
        (said.hop, said.messages),
        (Vec::new(), Vec::from([Message::UnknownCid { cid: 77 }]))
    );
    hop.arrive_message(from, &Message::UnknownCid { cid: 78 });
    assert_eq!(hop.base.stats().fallbacks, 0);
    // From the wired side nobody has anything to say.
    let now = hop.now;
    hop.base.handle_message(now, Side::Fixed, &asks(0, 2));
    hop.base.handle_message(now, Side::Fixed, &Message::UnknownCid { cid: 1 });
    assert_eq!(hop.said(from).hop, []);
    assert_eq!(numbers(from, &hop.arrive_message(from, &asks(0, 2)).hop), [0, 1]);
}
