//! What the halves do about losses.

use super::*;

/// The end at `from` sends segments; those that are not lost cross, and the other end answers each
/// with `answer`. What of the answers comes out, and what its half sends again.
fn stream(hop: &mut Hop, from: Side, segments: &[(u32, bool, u32)]) -> (Vec<Wire>, Vec<Wire>) {
    let (mut answers, mut repairs) = (Vec::new(), Vec::new());
    for &(n, lost, answer) in segments {
        let on_hop = one(&hop.send(from, data(from, n)));
        if !lost {
            let said = hop.arrive(from.other(), on_hop);
            assert_eq!(said.handed, [data(from, n)]);
            let back = one(&hop.send(from.other(), ack(from.other(), answer)));
            let said = hop.arrive(from, back);
            answers.extend(said.handed);
            repairs.extend(said.hop);
        }
    }
    (answers, repairs)
}

fn said(packet: &Wire) -> Header {
    packet.compressed.unwrap()
}

/// ALT-6, MOB-23, MOB-24, MOB-26: a burst of losses is repaired in one round trip of the hop, by the
/// first packet behind it. ALT-8: the fixed host sees one acknowledgement that stands still for a
/// moment, and no duplicate.
#[test]
fn a_burst_of_losses_is_repaired_by_the_first_packet_behind_it() {
    let mut hop = Hop::open();
    let from = Side::Fixed;
    // 0 crosses; 1, 2 and 3 are lost; 4 shows it.
    let first = one(&hop.send(from, data(from, 0)));
    assert_eq!(hop.arrive(Side::Mobile, first).handed, [data(from, 0)]);
    hop.cross(Side::Mobile, ack(Side::Mobile, 1));
    for n in 1..=3 {
        hop.send(from, data(from, n));
    }
    let fourth = one(&hop.send(from, data(from, 4)));
    hop.arrive(Side::Mobile, fourth);
    let duplicate = one(&hop.send(Side::Mobile, ack(Side::Mobile, 1)));
    let header = said(&duplicate);
    assert_eq!((header.request, header.reply), (Some(request(from, 1, 4)), false));

    let back = hop.arrive(Side::Fixed, duplicate);
    assert_eq!(back.handed, [], "the fixed host hears nothing of it");
    assert_eq!(numbers(from, &back.hop), [1, 2, 3]);
    for copy in &back.hop {
        assert_eq!((said(copy).repeat, said(copy).cycle), (true, true), "MOB-28, MOB-30");
    }
    // New data meanwhile is of the new cycle too.
    let fifth = one(&hop.send(from, data(from, 5)));
    assert_eq!((said(&fifth).repeat, said(&fifth).cycle), (false, true));

    // MOB-27: 1 is there, 2 and 3 are just behind.
    let mut handed = Vec::new();
    let mut passed = Vec::new();
    for (copy, answer) in back.hop.iter().zip([2, 3, 5]) {
        handed.extend(hop.arrive(Side::Mobile, *copy).handed);
        let up = one(&hop.send(Side::Mobile, ack(Side::Mobile, answer)));
        let back = hop.arrive(Side::Fixed, up);
        assert_eq!(back.hop, [], "nothing is sent twice");
        passed.extend(back.handed);
    }
    assert_eq!(handed, [1, 2, 3].map(|n| data(from, n)), "as the fixed host sent them");
    assert_eq!(passed, [2, 3, 5].map(|n| ack(Side::Mobile, n)));
    assert_eq!(hop.base.stats().local_retransmits, 3);
    assert_eq!(hop.base.stats().suppressed, 1);
}

/// MOB-31, figure 4: of three requests the first two are lost; the third makes the sender resend
/// both packets, once.
#[test]
fn one_request_of_many_is_enough() {
    let mut hop = Hop::open();
    let from = Side::Fixed;
    stream(&mut hop, from, &[(0, false, 1), (1, false, 2), (2, true, 0), (3, true, 0)]);
    for n in [4, 5] {
        let on_hop = one(&hop.send(from, data(from, n)));
        hop.arrive(Side::Mobile, on_hop);
        hop.send(Side::Mobile, ack(Side::Mobile, 2));
    }
    let (answers, repairs) = stream(&mut hop, from, &[(6, false, 2)]);
    assert_eq!(numbers(from, &repairs), [2, 3]);
    assert_eq!(answers, []);
}

/// MOB-31, figure 5: the retransmission of 3 is lost. Requests of 5 and 6, which went before it, are
/// ignored; that of 7, which went behind it, is obeyed.
#[test]
fn a_lost_retransmission_is_distinguished_from_one_under_way() {
    let mut hop = Hop::open();
    let from = Side::Fixed;
    stream(&mut hop, from, &[(1, false, 0), (0, false, 2), (2, false, 3), (3, true, 0)]);
    let sent: Vec<Wire> = (4..=6).map(|n| one(&hop.send(from, data(from, n)))).collect();
    let mut repairs = Vec::new();
    let mut passed = Vec::new();
    for packet in sent {
        hop.arrive(Side::Mobile, packet);
        let up = one(&hop.send(Side::Mobile, ack(Side::Mobile, 3)));
        assert_eq!(said(&up).request, Some(request(from, 3, 4)));
        let back = hop.arrive(Side::Fixed, up);
        repairs.push(numbers(from, &back.hop));
        passed.extend(back.handed);
    }
    assert_eq!(repairs, [vec(&[3]), vec(&[]), vec(&[])]);
    // The copy is lost; 7 comes.
    let (answers, again) = stream(&mut hop, from, &[(7, false, 3)]);
    assert_eq!(numbers(from, &again), [3]);
    assert_eq!((passed, answers), (Vec::new(), Vec::new()));
    assert_eq!(hop.base.stats().stale_requests, 2);
}

fn vec(numbers: &[u32]) -> Vec<u32> {
    numbers.to_vec()
}

/// MOB-27: of a hole that is being filled a packet is lost again. What comes behind it shows it.
#[test]
fn what_is_lost_again_within_a_hole_is_asked_for_again() {
    let mut hop = Hop::open();
    let from = Side::Fixed;
    let (_, repairs) =
        stream(&mut hop, from, &[(0, true, 0), (1, true, 0), (2, true, 0), (3, false, 0)]);
    let [zero, one_lost, two] = repairs[..] else { panic!("{repairs:?}") };
    assert_eq!(numbers(from, &[one_lost]), [1]);
    for (copy, answer, asked) in [(zero, 1, vec(&[])), (two, 1, vec(&[1]))] {
        hop.arrive(Side::Mobile, copy);
        let up = one(&hop.send(Side::Mobile, ack(Side::Mobile, answer)));
        assert_eq!(numbers(from, &hop.arrive(Side::Fixed, up).hop), asked);
    }
}

/// ALT-8: what was lost in front of the base is not to be had there, and its duplicates pass: the
/// fixed host's congestion control governs.
#[test]
fn a_loss_in_the_wired_network_is_the_fixed_hosts() {
    let mut hop = Hop::open();
    let from = Side::Fixed;
    let segments = [(0, false, 1), (2, false, 1), (3, false, 1), (4, false, 1)];
    let (answers, repairs) = stream(&mut hop, from, &segments);
    assert_eq!(repairs, []);
    assert_eq!(answers, [ack(Side::Mobile, 1); 4], "the first is new");
    // Of two losses in a row the base mends what it can, and keeps back nothing of the other.
    let segments = [(6, true, 0), (7, false, 1), (8, false, 1)];
    let (answers, repairs) = stream(&mut hop, from, &segments);
    assert_eq!(answers, [ack(Side::Mobile, 1); 2]);
    assert_eq!(repairs, [], "asked for is the hole up to 2 only");
    let (answers, repairs) = stream(&mut hop, from, &[(1, false, 5), (5, false, 6)]);
    assert_eq!(numbers(from, &repairs), [6], "which the fixed host's own brings to light");
    assert_eq!(answers, [ack(Side::Mobile, 5), ack(Side::Mobile, 6)]);
}

/// ALT-8: duplicates of what the fixed host itself has sent again are its own business.
#[test]
fn duplicates_of_what_its_end_has_sent_again_pass() {
    let mut hop = Hop::open();
    let from = Side::Fixed;
    stream(&mut hop, from, &[(0, false, 1), (1, true, 0), (2, false, 1)]);
    let again = one(&hop.send(from, data(from, 1)));
    assert!(!said(&again).repeat);
    let (answers, _) = stream(&mut hop, from, &[(3, false, 1)]);
    assert_eq!(answers, [ack(Side::Mobile, 1)]);
}

/// ALT-8: an acknowledgement that was lost behind the base is no duplicate to one who has not had it,
/// as a retransmission of what it acknowledges shows.
#[test]
fn an_acknowledgement_that_was_lost_beyond_the_base_passes_again() {
    let mut hop = Hop::open();
    let from = Side::Fixed;
    let segments = [(0, false, 1), (1, true, 0), (2, false, 1), (3, false, 1)];
    let (answers, _) = stream(&mut hop, from, &segments);
    assert_eq!(answers, [ack(Side::Mobile, 1)], "which does not reach the fixed host");
    let (answers, _) = stream(&mut hop, from, &[(0, false, 1)]);
    assert_eq!(answers, [ack(Side::Mobile, 1)]);
    let (answers, _) = stream(&mut hop, from, &[(4, false, 1)]);
    assert_eq!(answers, [], "it has had that one");
}

/// ALT-6: data of the mobile that the hop lost is asked for by the base, before the fixed host can
/// know; its duplicates, which come later, are kept from the mobile's TCP. One for each segment that
/// went before the copy, and no more: those tell of a loss beyond.
#[test]
fn the_mobiles_data_is_repaired_too() {
    let mut hop = Hop::open();
    let from = Side::Mobile;
    let first = one(&hop.send(from, data(from, 0)));
    hop.arrive(Side::Fixed, first);
    hop.cross(Side::Fixed, ack(Side::Fixed, 1));
    hop.send(from, data(from, 1));
    for n in 2..=4 {
        let on_hop = one(&hop.send(from, data(from, n)));
        let came = hop.arrive(Side::Fixed, on_hop);
        assert_eq!((came.handed, came.messages), (Vec::from([data(from, n)]), Vec::new()));
    }
    // Nothing goes to the mobile for a millisecond, so that the request goes by itself.
    assert_eq!(hop.at(0, Side::Fixed).messages, []);
    let asked = hop.at(1, Side::Fixed).messages;
    let message = Message::Request { cid: 1, reply: false, request: request(from, 1, 2) };
    assert_eq!(asked, core::slice::from_ref(&message));
    assert_eq!(hop.at(50, Side::Fixed).messages, [], "once");
    let repairs = hop.arrive_message(Side::Mobile, &message).hop;
    assert_eq!(numbers(from, &repairs), [1]);
    assert_eq!(hop.arrive(Side::Fixed, one(&repairs)).handed, [data(from, 1)]);

    let mut passed = Vec::new();
    for _ in 0..5 {
        let on_hop = one(&hop.send(Side::Fixed, ack(Side::Fixed, 1)));
        passed.extend(hop.arrive(Side::Mobile, on_hop).handed);
    }
    assert_eq!(passed, [ack(Side::Fixed, 1)], "three segments went, four may be due to the copy");
}

/// ALT-8: what the hop did not lose is not repaired by it: the mobile's TCP hears of congestion.
#[test]
fn duplicates_of_a_loss_beyond_the_base_reach_the_mobile() {
    let mut hop = Hop::open();
    let from = Side::Mobile;
    for n in 0..4 {
        hop.cross(from, data(from, n));
    }
    for _ in 0..3 {
        assert_eq!(hop.cross(Side::Fixed, ack(Side::Fixed, 1)), ack(Side::Fixed, 1));
    }
    assert_eq!(hop.mobile.stats().local_retransmits, 0);
}

/// ALT-6, MOB-33 to MOB-36: where nothing follows a loss, one timer of 200 ms at least sends the
/// first segment and the last, and the answer to those brings the rest.
#[test]
fn the_timer_repairs_a_tail() {
    let mut hop = Hop::open();
    let from = Side::Fixed;
    stream(&mut hop, from, &[(0, false, 1)]);
    for n in 1..=4 {
        hop.send(from, data(from, n));
    }
    let due = hop.base.next_timeout().unwrap();
    assert_eq!(due, ms(200));
    assert_eq!(hop.at(199, Side::Fixed).hop, []);
    let copies = hop.at(200, Side::Fixed).hop;
    assert_eq!(numbers(from, &copies), [1, 4]);
    assert!(copies.iter().all(|copy| said(copy).repeat && !said(copy).cycle), "MOB-32");
    let mut repairs = Vec::new();
    for copy in copies {
        hop.arrive(Side::Mobile, copy);
        let up = one(&hop.send(Side::Mobile, ack(Side::Mobile, 2)));
        repairs.extend(hop.arrive(Side::Fixed, up).hop);
    }
    assert_eq!(numbers(from, &repairs), [2, 3]);
}

/// A copy that was not needed stays at the half, which says what it has, so that the timer rests.
#[test]
fn a_needless_copy_is_answered_and_goes_no_further() {
    let mut hop = Hop::open();
    let from = Side::Mobile;
    hop.cross(from, data(from, 0));
    let copy = one(&hop.at(500, Side::Mobile).hop);
    assert!(said(&copy).repeat);
    assert_eq!(hop.arrive(Side::Fixed, copy).handed, [], "the wired network sees no copy");
    let messages = hop.at(501, Side::Fixed).messages;
    let message = Message::Request { cid: 1, reply: false, request: request(from, 1, 1) };
    assert_eq!(messages, core::slice::from_ref(&message));
    hop.arrive_message(Side::Mobile, &message);
    assert_eq!(hop.mobile.next_timeout(), None, "it is the fixed host's turn");
    assert_eq!(hop.mobile.kept(), 1);
    hop.cross(Side::Fixed, ack(Side::Fixed, 1));
    assert_eq!(hop.mobile.kept(), 0);
}

#[test]
fn the_timer_gives_up_and_a_hop_that_carries_again_is_tried_at_once() {
    let mut hop = Hop::open();
    hop.send(Side::Fixed, data(Side::Fixed, 0));
    let mut sent = 0;
    let mut now = 0;
    while let Some(due) = hop.base.next_timeout() {
        let wait = due.since(ms(now)).as_millis() as u64;
        assert!((200..=2000).contains(&wait), "{wait} ms");
        now += wait;
        sent += hop.at(now, Side::Fixed).hop.len();
    }
    assert_eq!(sent, Config::default().tries as usize);

    let mut hop = Hop::open();
    hop.send(Side::Fixed, data(Side::Fixed, 0));
    hop.base.handle_link_event(ms(10), lasthop_units::LinkEvent::Up);
    assert_eq!(numbers(Side::Fixed, &hop.at(10, Side::Fixed).hop), [0]);
}

/// While the queue in front of the hop is nearly full nothing is kept: what is lost there is
/// congestion, and its duplicates pass (SNP-7, ALT-8).
#[test]
fn what_a_full_queue_drops_is_not_hidden() {
    for from in [Side::Fixed, Side::Mobile] {
        let mut hop = Hop::open();
        assert!(hop.half(from).watches_queue());
        hop.half(from).handle_queue(true);
        let (answers, repairs) =
            stream(&mut hop, from, &[(0, false, 1), (1, true, 0), (2, false, 1)]);
        assert_eq!((answers.len(), repairs), (2, Vec::new()));
        assert_eq!(hop.half(from).kept(), 0);
    }
}

/// Blocks on a new acknowledgement would tell the fixed host of a hole that is under repair; with
/// `hide_sack` they are taken off.
#[test]
fn blocks_that_tell_of_a_repair_can_be_hidden() {
    for hide_sack in [false, true] {
        let mut hop = Hop::with(&Config { hide_sack, ..Config::default() });
        hop.cross(Side::Mobile, syn(1, Side::Mobile));
        hop.cross(Side::Fixed, syn_ack(1, Side::Fixed));
        let from = Side::Fixed;
        let segments = [(0, true, 0), (1, true, 0), (2, false, 0)];
        let (_, repairs) = stream(&mut hop, from, &segments);
        hop.arrive(Side::Mobile, repairs[0]);
        let mut blocks = SackBlocks::default();
        blocks.push(isn(from) + 1 + 2 * LEN, isn(from) + 1 + 3 * LEN);
        let mut partial = ack(Side::Mobile, 1);
        partial.tcp.segment.options.sack = blocks;
        let out = hop.cross(Side::Mobile, partial);
        assert_eq!(out.tcp.segment.options.sack.is_empty(), hide_sack);
        assert_eq!(out.tcp.segment.ack, partial.tcp.segment.ack);
    }
}

/// ALT-8: a copy that the timer sent although the hop had lost nothing hides no loss beyond the base.
#[test]
fn a_needless_copy_keeps_no_duplicate_back() {
    let mut hop = Hop::open();
    let from = Side::Mobile;
    for n in 0..4 {
        hop.cross(from, data(from, n));
    }
    // The way to the fixed host is long, and 0 is lost there.
    for copy in hop.at(500, Side::Mobile).hop {
        assert_eq!(hop.arrive(Side::Fixed, copy).handed, []);
    }
    for message in hop.at(501, Side::Fixed).messages {
        hop.arrive_message(Side::Mobile, &message);
    }
    hop.cross(Side::Fixed, ack(Side::Fixed, 0));
    for _ in 0..3 {
        assert_eq!(hop.cross(Side::Fixed, ack(Side::Fixed, 0)), ack(Side::Fixed, 0));
    }
    assert_eq!(hop.mobile.stats().suppressed, 0);
}

/// A request that was overtaken on its way asks for what has come since.
#[test]
fn an_old_request_repairs_nothing() {
    let mut hop = Hop::open();
    let from = Side::Fixed;
    for n in 0..5 {
        hop.send(from, data(from, n));
    }
    let asks =
        |ack, nis| Message::Request { cid: 1, reply: false, request: request(from, ack, nis) };
    assert_eq!(hop.arrive_message(from, &asks(4, 4)).hop, []);
    assert_eq!(hop.arrive_message(from, &asks(1, 2)).hop, []);
    assert_eq!(hop.base.stats().ignored_requests, 1);
}

/// MOB-27: of a hole that is being filled a packet is lost again, and so is the request that the one
/// before it caused: what lies behind it tells.
#[test]
fn a_smaller_hole_than_was_filled_is_a_new_one() {
    let mut hop = Hop::open();
    let from = Side::Fixed;
    let (_, repairs) =
        stream(&mut hop, from, &[(0, true, 0), (1, true, 0), (2, true, 0), (3, false, 0)]);
    for copy in [repairs[0], repairs[2]] {
        hop.arrive(Side::Mobile, copy);
    }
    let up = one(&hop.send(Side::Mobile, ack(Side::Mobile, 1)));
    assert_eq!(numbers(from, &hop.arrive(Side::Fixed, up).hop), [1]);
}

/// A segment that was sent twice measures no round trip (RFC 6298 section 3).
#[test]
fn a_repaired_segment_is_no_measurement() {
    let mut hop = Hop::open();
    let from = Side::Fixed;
    hop.send(from, data(from, 0));
    let copy = one(&hop.at(500, from).hop);
    hop.at(510, from);
    hop.arrive(Side::Mobile, copy);
    hop.cross(Side::Mobile, ack(Side::Mobile, 1));
    hop.send(from, data(from, 1));
    assert_eq!(hop.base.next_timeout(), Some(ms(1010)));
}

/// ALT-6: packets that change places in front of the hop are no loss on it.
#[test]
fn what_came_late_to_the_hop_is_not_sent_again() {
    let mut hop = Hop::open();
    let from = Side::Fixed;
    let sent: Vec<Wire> = [0, 2, 1].map(|n| one(&hop.send(from, data(from, n)))).to_vec();
    for packet in &sent[..2] {
        hop.arrive(Side::Mobile, *packet);
    }
    let up = one(&hop.send(Side::Mobile, ack(Side::Mobile, 1)));
    assert_eq!(said(&up).request, Some(request(from, 1, 2)));
    assert_eq!(hop.arrive(from, up).hop, []);
}

/// The timer rests while the far end can take nothing, and goes on when it can.
#[test]
fn a_closed_window_stops_the_timer() {
    let mut hop = Hop::open();
    let from = Side::Fixed;
    hop.cross(from, data(from, 0));
    hop.send(from, data(from, 1));
    let mut closed = ack(Side::Mobile, 1);
    closed.tcp.segment.window = 0;
    hop.cross(Side::Mobile, closed);
    assert_eq!(hop.base.next_timeout(), None);
    hop.cross(Side::Mobile, ack(Side::Mobile, 1));
    assert!(hop.base.next_timeout().is_some());
}

/// RFC 5681 section 2: a segment that changes the window is no duplicate; those behind it are.
#[test]
fn a_window_update_passes_and_duplicates_of_it_do_not() {
    let mut hop = Hop::open();
    let from = Side::Fixed;
    stream(&mut hop, from, &[(0, false, 1), (1, true, 0), (2, false, 1)]);
    let mut update = ack(Side::Mobile, 1);
    update.tcp.segment.window = 6000;
    hop.send(from, data(from, 3));
    let up = one(&hop.send(Side::Mobile, update));
    assert_eq!(hop.arrive(from, up).handed, [update]);
    let up = one(&hop.send(Side::Mobile, update));
    assert_eq!(hop.arrive(from, up).handed, []);
}

/// The timer sends what the other half lacks, not what the far end has yet to acknowledge.
#[test]
fn the_timer_leaves_out_what_has_crossed() {
    let mut hop = Hop::open();
    let from = Side::Mobile;
    hop.cross(from, data(from, 0));
    hop.cross(Side::Fixed, ack(Side::Fixed, 1));
    for n in 1..3 {
        hop.send(from, data(from, n));
    }
    let message = Message::Request { cid: 1, reply: false, request: request(from, 2, 2) };
    hop.arrive_message(from, &message);
    assert_eq!(numbers(from, &hop.at(500, from).hop), [2]);
}

/// ALT-8: an acknowledgement that was lost beyond the base is old news once a later one has passed.
#[test]
fn a_later_acknowledgement_makes_up_for_a_lost_one() {
    let mut hop = Hop::open();
    let from = Side::Fixed;
    stream(&mut hop, from, &[(0, false, 1), (0, true, 0), (1, false, 2), (2, true, 0)]);
    let (answers, _) = stream(&mut hop, from, &[(3, false, 2)]);
    assert_eq!(answers, []);
}

/// A SYN-ACK that is sent again has no copy thrown away; without another half there is none.
#[test]
fn copies_are_kept_for_another_half_and_through_a_repeated_opening() {
    let mut hop = Hop::open();
    hop.send(Side::Fixed, data(Side::Fixed, 0));
    hop.send(Side::Fixed, syn_ack(1, Side::Fixed));
    assert_eq!(hop.base.kept(), 1);
    let mut alone = Hop::new();
    alone.send(Side::Fixed, data(Side::Fixed, 0));
    assert_eq!((alone.base.kept(), alone.base.next_timeout()), (0, None));
}

/// ALT-7: where the link says that the hop carries again, whoever was not heard offers again.
#[test]
fn a_hop_that_carries_again_is_offered_a_cid_again() {
    let mut hop = Hop::new();
    let offers = |hop: &mut Hop| {
        (0..20)
            .filter(|_| {
                hop.now += Duration::from_secs(60);
                let on_hop = one(&hop.send(Side::Mobile, ack(Side::Mobile, 0)));
                on_hop.tcp.segment.options.cid.is_some()
            })
            .count()
    };
    assert_eq!(offers(&mut hop), 8);
    let now = hop.now;
    hop.mobile.handle_link_event(now, lasthop_units::LinkEvent::Up);
    assert_eq!(offers(&mut hop), 8);
}

/// ALT-8: what its end sends again while nothing is kept is its end's from there on.
#[test]
fn an_older_copy_than_its_ends_hides_nothing() {
    let mut hop = Hop::open();
    let from = Side::Fixed;
    stream(&mut hop, from, &[(0, false, 1), (1, true, 0)]);
    hop.base.handle_queue(true);
    hop.send(from, data(from, 1));
    let (answers, _) = stream(&mut hop, from, &[(2, false, 1), (3, false, 1)]);
    assert_eq!(answers, [ack(Side::Mobile, 1); 2]);
}
