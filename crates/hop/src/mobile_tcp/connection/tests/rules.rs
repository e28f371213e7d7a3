//! The small print: what each rule of the engine is there for.

use super::*;

/// What is acknowledged while it waits to be repeated is not repeated.
#[test]
fn what_arrived_meanwhile_is_not_sent_again() {
    let (mut sender, mut receiver) = pair(&small(), 0, 0);
    write(&mut sender, &[1; 4 * PACKET]);
    let sent = poll_all(&mut sender, ms(0));
    sender.handle_timeout(ms(1000));
    sent[..2].iter().for_each(|p| give(&mut receiver, ms(1000), p));
    give(&mut sender, ms(1001), &poll(&mut receiver, ms(1001)).unwrap());
    let again = poll_all(&mut sender, ms(1001));
    assert_eq!(again.iter().map(|p| data_of(p).0).collect::<Vec<_>>(), [3, 4]);
}

/// MOB-27, MOB-32: what the timer has resent is refilled by what is just behind it, too.
#[test]
fn a_refill_after_a_timeout_is_not_resent() {
    let (mut sender, mut receiver) = pair(&small(), 0, 0);
    write(&mut sender, &[1; 4 * PACKET]);
    let sent = poll_all(&mut sender, ms(0));
    give(&mut receiver, ms(1), &sent[3]);
    let lost = poll_all(&mut receiver, ms(1));
    assert_eq!(ack_of(&lost[0]), (1, Some(4), false));
    sender.handle_timeout(ms(1000));
    let again = poll_all(&mut sender, ms(1000));
    assert_eq!(again.len(), 4);
    give(&mut receiver, ms(1001), &again[0]);
    let refill = poll(&mut receiver, ms(1001)).unwrap();
    assert_eq!(ack_of(&refill), (2, Some(4), false));
    give(&mut sender, ms(1002), &refill);
    assert_eq!(poll(&mut sender, ms(1002)), None);
    assert_eq!(sender.stats().requests_ignored, 1);
}

/// MOB-35: a packet that was sent again is not timed (Karn's rule).
#[test]
fn what_was_sent_again_is_not_timed() {
    let (mut sender, mut receiver) = pair(&small(), 0, 0);
    write(&mut sender, &[1; 2 * PACKET]);
    let sent = poll_all(&mut sender, ms(0));
    give(&mut receiver, ms(1), &sent[1]);
    give(&mut sender, ms(2), &poll(&mut receiver, ms(1)).unwrap());
    let again = poll_all(&mut sender, ms(2));
    assert_eq!(again.len(), 1);
    give(&mut receiver, ms(3), &again[0]);
    give(&mut sender, ms(4), &poll(&mut receiver, ms(3)).unwrap());
    assert_eq!((sender.inflight(), sender.srtt()), (Bytes::ZERO, None));
}

/// MOB-35: an answer ends the backoff, even where the window is always full.
#[test]
fn an_answer_ends_the_backoff() {
    let config =
        Config { window: Bytes::new(2100), rto_initial: Duration::from_millis(200), ..small() };
    let (mut sender, mut receiver) = pair(&config, 0, 0);
    write(&mut sender, &[1; 8000]);
    poll_all(&mut sender, ms(0));
    for _ in 0..3 {
        let at = sender.next_timeout().unwrap();
        sender.handle_timeout(at);
        assert!(poll_all(&mut sender, at).len() > 3);
    }
    let mut now = sender.next_timeout().unwrap();
    sender.handle_timeout(now);
    for packet in &poll_all(&mut sender, now)[..2] {
        give(&mut receiver, now, packet);
    }
    poll_all(&mut receiver, now).iter().for_each(|p| give(&mut sender, now, p));
    assert_eq!(sender.srtt(), None);
    poll_all(&mut sender, now);
    let next = sender.next_timeout().unwrap();
    assert_eq!(next.since(now), Duration::from_millis(200));
    // So does news of the link.
    for _ in 0..3 {
        now = sender.next_timeout().unwrap();
        sender.handle_timeout(now);
        poll_all(&mut sender, now);
    }
    sender.retry(now);
    assert!(!poll_all(&mut sender, now).is_empty());
    let next = sender.next_timeout().unwrap();
    assert_eq!(next.since(now), Duration::from_millis(200));
}

/// The timer counts from the last repetition that was requested.
#[test]
fn a_request_that_is_obeyed_starts_the_timer_anew() {
    let (mut sender, mut receiver) = pair(&small(), 0, 0);
    write(&mut sender, &[1; 3 * PACKET]);
    let sent = poll_all(&mut sender, ms(0));
    give(&mut receiver, ms(500), &sent[1]);
    give(&mut sender, ms(500), &poll(&mut receiver, ms(500)).unwrap());
    assert_eq!(poll_all(&mut sender, ms(500)).len(), 1);
    assert_eq!(sender.next_timeout(), Some(ms(1600)));
}

/// MOB-19: the right edge of a window that was advertised does not go back.
#[test]
fn a_window_does_not_shrink() {
    let (mut sender, _) = pair(&small(), 0, 0);
    let less = DataHeader { window: 0, ..forged(0, 0, Code::empty(), 0) };
    sender.handle(ms(0), &less, &[]);
    write(&mut sender, &[1; 5 * PACKET]);
    assert_eq!(poll_all(&mut sender, ms(0)).len(), 5);
}

/// A connection whose peer has removed it is over in order only if nothing but the end's
/// acknowledgement is missing.
#[test]
fn what_is_not_acknowledged_is_never_taken_as_arrived() {
    for (lost, over) in [(PACKET, false), (0, true)] {
        let (mut c, _) = pair(&small(), 0, 0);
        c.handle(ms(0), &forged(0, 0, Code::FIN, 0), &[]);
        write(&mut c, &vec![1; lost]);
        c.finish();
        poll_all(&mut c, ms(0));
        assert_eq!((c.conclude(), c.is_over()), (over, over));
    }
}

/// MOB-26: an end that comes alone above a gap asks for it.
#[test]
fn an_end_above_a_gap_asks_for_it() {
    let (mut sender, mut receiver) = pair(&small(), 0, 0);
    write(&mut sender, &[1; PACKET]);
    poll_all(&mut sender, ms(0));
    sender.finish();
    give(&mut receiver, ms(1), &poll(&mut sender, ms(0)).unwrap());
    let request = poll(&mut receiver, ms(1)).unwrap();
    assert_eq!(ack_of(&request), (1, Some(2), false));
    give(&mut sender, ms(2), &request);
    give(&mut receiver, ms(3), &poll(&mut sender, ms(2)).unwrap());
    assert!(receiver.is_ended());
}

/// MOB-29: the cycle of the last packet received is reported, whatever the packet was.
#[test]
fn the_cycle_of_an_acknowledgement_is_reported_too() {
    let (mut c, _) = pair(&small(), 0, 0);
    c.handle(ms(0), &forged(0, 0, Code::RC, 0), &[]);
    write(&mut c, &[1; 10]);
    assert!(parse(&poll(&mut c, ms(0)).unwrap()).0.code.contains(Code::RCR));
    c.handle(ms(0), &forged(0, 0, Code::empty(), 0), &[]);
    write(&mut c, &[1; 10]);
    assert!(!parse(&poll(&mut c, ms(0)).unwrap()).0.code.contains(Code::RCR));
}

/// MOB-22: a packet that comes after another one does not put that one's acknowledgement off.
#[test]
fn an_acknowledgement_is_not_put_off() {
    let (mut sender, mut receiver) = pair(&Config { ack_every: 3, ..small() }, 0, 0);
    write(&mut sender, &[1; 2 * PACKET]);
    let sent = poll_all(&mut sender, ms(0));
    give(&mut receiver, ms(199), &sent[0]);
    give(&mut receiver, ms(201), &sent[1]);
    assert_eq!(receiver.next_timeout(), Some(ms(200)));
}

/// MOB-22: the last packet of a flight is acknowledged at once, though it is a single one: of a window
/// of eleven packets eleven go in each round trip.
#[test]
fn an_odd_packet_at_the_end_of_a_flight_is_not_left_to_the_tick() {
    for packets in [11, 16] {
        let config = Config {
            window: Bytes::new(2200),
            max_packet: Bytes::new(2200 / packets as u64),
            ..Config::default()
        };
        let (mut sender, mut receiver) = pair(&config, 0, 0);
        write(&mut sender, &[1; 30_000]);
        for round in 0..9 {
            let sent = poll_all(&mut sender, ms(20 * round));
            assert_eq!(sent.len(), packets, "in round {round}");
            for packet in sent {
                give(&mut receiver, ms(20 * round + 10), &packet);
                read(&mut receiver);
                for ack in poll_all(&mut receiver, ms(20 * round + 10)) {
                    give(&mut sender, ms(20 * round + 20), &ack);
                }
            }
        }
        assert_eq!(receiver.stats().acks_sent, 9 * packets.div_ceil(2) as u64);
    }
}

/// A reader advertises a window that was nearly closed at once when it has room for a packet, and one
/// that was not when two packets more have room (RFC 1122 section 4.2.3.3).
#[test]
fn a_window_that_opens_is_advertised_in_good_time() {
    let (mut sender, mut receiver) = pair(&Config { window: Bytes::new(2048), ..small() }, 0, 0);
    write(&mut sender, &[1; 4000]);
    for packet in poll_all(&mut sender, ms(0)) {
        give(&mut receiver, ms(0), &packet);
    }
    poll_all(&mut receiver, ms(0));
    receiver.consume(PACKET - 1);
    assert_eq!(poll(&mut receiver, ms(0)), None);
    receiver.consume(1);
    let update = parse(&poll(&mut receiver, ms(0)).unwrap()).0;
    assert_eq!(usize::from(update.window) + usize::from(update.ack.0), 2048 + PACKET);
    receiver.consume(3 * PACKET);
    assert!(poll(&mut receiver, ms(0)).is_some());
    receiver.consume(PACKET);
    assert_eq!(poll(&mut receiver, ms(0)), None);
    receiver.consume(PACKET);
    assert!(poll(&mut receiver, ms(0)).is_some());
}

/// A reset behind an end that was lost, sent against a closed window, can be the peer's.
#[test]
fn a_reset_behind_a_lost_end_counts() {
    let (_, mut c) = pair(&Config { window: Bytes::new(2048), ..small() }, 0, 0);
    c.handle(ms(0), &forged(0, 0, Code::empty(), 0), &[1; 2048]);
    assert!(c.may_reset(Seq16(2048)) && c.may_reset(Seq16(2049)));
    assert!(!c.may_reset(Seq16(2050)) && !c.may_reset(Seq16(2047)));
}

/// An end cannot be before what was received, nor beyond the window.
#[test]
fn an_end_that_cannot_be_is_none() {
    let (_, mut c) = pair(&Config { window: Bytes::new(2048), ..small() }, 0, 0);
    c.handle(ms(0), &forged(200, 0, Code::empty(), 0), &[1; 100]);
    for end in [250, 299, 2049] {
        c.handle(ms(0), &forged(end, 0, Code::FIN, 0), &[]);
    }
    assert_eq!(c.stats().outside, 3);
    c.handle(ms(0), &forged(0, 0, Code::empty(), 0), &[2; 200]);
    assert_eq!((c.received().len(), c.is_ended()), (300, false));
    c.handle(ms(0), &forged(300, 0, Code::FIN, 0), &[]);
    assert!(c.is_ended());
}

/// A peer that leaves a gap behind every byte makes an end hold a few pieces and no more; what
/// closes the gap is always taken.
#[test]
fn pieces_above_a_gap_are_bounded() {
    let (_, mut c) = pair(&small(), 0, 0);
    for n in 1..2000 {
        c.handle(ms(0), &forged(2 * n, 0, Code::empty(), 0), &[1]);
    }
    assert_eq!(c.stats().bytes_received, 256);
    c.handle(ms(0), &forged(0, 0, Code::empty(), 0), &[2; 600]);
    assert_eq!(c.received().len(), 600);
}
