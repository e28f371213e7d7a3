//! Opening, closing, resetting and moving: two connections that hand each other segments.

#![allow(missing_docs, clippy::unwrap_used)]

use std::ops::Range;

use lasthop_tcp::{Config, Connection, Event, Ports, Snapshot, Socket, State, reset_for};
use lasthop_units::{Bytes, Duration, LinkEvent, Time};
use lasthop_wire::tcp::{Flags, Segment, Seq, Timestamps};

const NOW: Time = Time::from_secs(5);

fn ends(i: u16) -> Ports {
    Ports { local: i, remote: 1 - i }
}

fn events(it: &mut Connection) -> Vec<Event> {
    std::iter::from_fn(|| it.poll_event()).collect()
}

/// Everything both have to say, delivered until both are silent.
fn talk(now: Time, a: &mut Connection, b: &mut Connection) {
    for _ in 0..100 {
        let mut silent = true;
        while let Some(out) = a.poll_transmit(now) {
            b.handle_segment(now, &out.segment);
            silent = false;
        }
        while let Some(out) = b.poll_transmit(now) {
            a.handle_segment(now, &out.segment);
            silent = false;
        }
        if silent {
            return;
        }
    }
    panic!("they do not stop talking");
}

fn pair(config: Config) -> (Connection, Connection) {
    let mut a = Connection::connect(config, ends(0), Seq(u32::MAX - 10), NOW);
    let syn = a.poll_transmit(NOW).unwrap().segment;
    let mut b = Connection::accept(config, ends(1), &syn, Seq(u32::MAX), NOW).unwrap();
    talk(NOW, &mut a, &mut b);
    assert_eq!((a.state(), b.state()), (State::Established, State::Established));
    assert_eq!((events(&mut a), events(&mut b)), (vec![Event::Connected], vec![Event::Connected]));
    (a, b)
}

/// RENO-1: three segments open a connection.
#[test]
fn a_connection_opens_with_three_segments() {
    let (a, b) = pair(Config::modern());
    assert_eq!((a.stats().segments_sent, b.stats().segments_sent), (2, 1));
    assert_eq!(a.segment_size(), Bytes::new(1448));
}

/// RFC 9293 section 3.5: both open at once.
#[test]
fn simultaneous_opens_meet() {
    let mut a = Connection::connect(Config::modern(), ends(0), Seq(1), NOW);
    let mut b = Connection::connect(Config::modern(), ends(1), Seq(900), NOW);
    let (x, y) = (a.poll_transmit(NOW).unwrap(), b.poll_transmit(NOW).unwrap());
    a.handle_segment(NOW, &y.segment);
    b.handle_segment(NOW, &x.segment);
    assert_eq!((a.state(), b.state()), (State::SynReceived, State::SynReceived));
    talk(NOW, &mut a, &mut b);
    assert_eq!((a.state(), b.state()), (State::Established, State::Established));
}

/// RENO-1: one side finishes, the other goes on, then finishes too.
#[test]
fn a_half_closed_connection_carries_the_other_direction() {
    let (mut a, mut b) = pair(Config::modern());
    a.write(Bytes::new(10));
    a.finish();
    talk(NOW, &mut a, &mut b);
    assert_eq!((a.state(), b.state()), (State::FinWait2, State::CloseWait));
    assert!(events(&mut b).contains(&Event::PeerFinished));
    assert_eq!(b.readable(), Bytes::new(10));
    b.write(Bytes::new(20));
    talk(NOW, &mut a, &mut b);
    assert_eq!(a.readable(), Bytes::new(20));
    b.finish();
    talk(NOW, &mut a, &mut b);
    assert_eq!((a.state(), b.state()), (State::TimeWait, State::Closed));
    let end = a.next_timeout().unwrap();
    assert_eq!(end - NOW, Duration::from_secs(60));
    a.handle_timeout(end);
    assert!(a.is_closed());
    assert_eq!(a.next_timeout(), None);
}

/// RFC 9293 figure 13: both finish at once.
#[test]
fn simultaneous_closes_meet_in_time_wait() {
    let (mut a, mut b) = pair(Config::modern());
    a.finish();
    b.finish();
    let (x, y) = (a.poll_transmit(NOW).unwrap(), b.poll_transmit(NOW).unwrap());
    a.handle_segment(NOW, &y.segment);
    b.handle_segment(NOW, &x.segment);
    assert_eq!((a.state(), b.state()), (State::Closing, State::Closing));
    talk(NOW, &mut a, &mut b);
    assert_eq!((a.state(), b.state()), (State::TimeWait, State::TimeWait));
}

#[test]
fn a_fin_that_overtakes_data_waits_for_it() {
    let (mut a, mut b) = pair(Config::modern());
    a.write(Bytes::new(2000));
    a.finish();
    let data = a.poll_transmit(NOW).unwrap().segment;
    let fin = a.poll_transmit(NOW).unwrap().segment;
    assert!(fin.flags.contains(Flags::FIN));
    let arrival = b.handle_segment(NOW, &fin);
    assert_eq!((arrival.offset, arrival.len), (1448, 552));
    assert_eq!((b.state(), b.readable()), (State::Established, Bytes::ZERO));
    b.handle_segment(NOW, &data);
    assert_eq!((b.state(), b.readable()), (State::CloseWait, Bytes::new(2000)));
    // The lost acknowledgement of a FIN: its repetition is answered.
    b.poll_transmit(NOW);
    b.handle_segment(NOW, &fin);
    assert_eq!(b.poll_transmit(NOW).unwrap().segment.ack, fin.end());
}

/// RFC 5961 section 3: only a reset at exactly the next number is obeyed.
#[test]
fn a_guessed_reset_is_challenged_and_an_exact_one_obeyed() {
    let (a, mut b) = pair(Config::modern());
    let exact = Seq(u32::MAX - 10) + 1;
    let reset = |seq| Segment { seq, flags: Flags::RST, ..Segment::default() };
    b.handle_segment(NOW, &reset(exact + 100));
    assert_eq!((b.state(), b.stats().challenge_acks_sent), (State::Established, 1));
    assert_eq!(b.poll_transmit(NOW).unwrap().segment.ack, exact);
    b.handle_segment(NOW, &reset(exact - 1));
    assert!(b.poll_transmit(NOW).is_none());
    b.handle_segment(NOW, &reset(exact));
    assert_eq!(events(&mut b), [Event::Reset, Event::Closed]);
    drop(a);
}

/// RFC 5961 section 7: forged segments draw no flood of answers.
#[test]
fn challenges_are_ten_in_a_second_at_most() {
    let (_, mut b) = pair(Config::modern());
    let forged = Seq(u32::MAX - 10) + 101;
    let reset = Segment { seq: forged, flags: Flags::RST, ..Segment::default() };
    let mut answers = |now: Time| {
        let drawn = |_: &i32| {
            b.handle_segment(now, &reset);
            b.poll_transmit(now).is_some()
        };
        (0..30).filter(drawn).count()
    };
    assert_eq!(answers(NOW), 10);
    assert_eq!(answers(NOW + Duration::from_millis(999)), 0);
    assert_eq!(answers(NOW + Duration::from_secs(1)), 10);
    assert_eq!(b.stats().challenge_acks_sent, 20);
}

#[test]
fn a_refused_opening_is_told() {
    let mut a = Connection::connect(Config::modern(), ends(0), Seq(77), NOW);
    let syn = a.poll_transmit(NOW).unwrap().segment;
    let refusal = reset_for(&syn).unwrap();
    assert_eq!((refusal.ack, refusal.flags), (Seq(78), Flags::RST.with(Flags::ACK)));
    let stray = Segment { ack: Seq(70), ..refusal };
    a.handle_segment(NOW, &stray);
    assert_eq!(a.state(), State::SynSent);
    a.handle_segment(NOW, &refusal);
    assert_eq!(events(&mut a), [Event::Reset, Event::Closed]);
    assert_eq!(reset_for(&refusal), None);
    assert!(Connection::accept(Config::modern(), ends(1), &refusal, Seq(1), NOW).is_err());
}

#[test]
fn an_abort_resets_the_peer() {
    let (mut a, mut b) = pair(Config::modern());
    a.abort();
    let reset = a.poll_transmit(NOW).unwrap().segment;
    assert!(a.poll_transmit(NOW).is_none());
    b.handle_segment(NOW, &reset);
    assert_eq!(b.state(), State::Closed);
}

/// RFC 7323 section 5: what is older than what was seen is refused, and answered.
#[test]
fn paws_refuses_old_segments() {
    let (mut a, mut b) = pair(Config::modern());
    a.write(Bytes::new(10));
    let mut old = a.poll_transmit(NOW).unwrap().segment;
    let stamps = old.options.timestamps.unwrap();
    old.options.timestamps = Some(Timestamps { value: stamps.value.wrapping_sub(1), ..stamps });
    assert_eq!(b.handle_segment(NOW, &old).len, 0);
    assert_eq!(b.stats().paws_rejected, 1);
    assert!(b.poll_transmit(NOW).is_some());
}

/// RFC 2018 section 4: the block that changed last comes first.
#[test]
fn sack_blocks_are_the_most_recent_first() {
    let (mut a, mut b) = pair(Config { timestamps: false, ..Config::modern() });
    a.write(Bytes::new(14_600));
    let sent: Vec<_> = std::iter::from_fn(|| a.poll_transmit(NOW)).map(|o| o.segment).collect();
    assert_eq!(sent.len(), 10);
    let mut blocks = Vec::new();
    for i in [2, 4, 6, 3] {
        b.handle_segment(NOW, &sent[i]);
        blocks = b.poll_transmit(NOW).unwrap().segment.options.sack.as_slice().to_vec();
    }
    assert_eq!(blocks, [(sent[2].seq, sent[4].end()), (sent[6].seq, sent[6].end())]);
    // The sender repairs exactly the holes.
    for i in [7, 8] {
        b.handle_segment(NOW, &sent[i]);
        let ack = b.poll_transmit(NOW).unwrap().segment;
        a.handle_segment(NOW, &ack);
    }
    let again: Vec<_> =
        std::iter::from_fn(|| a.poll_transmit(NOW)).map(|o| o.segment.seq).collect();
    assert_eq!(again, [sent[0].seq, sent[1].seq, sent[5].seq][..again.len()]);
    assert!(!again.is_empty());
}

fn move_socket(socket: &Socket, config: Config, now: Time) -> Socket {
    let snapshot = socket.snapshot(now);
    let both = |(a, b): (&[u8], &[u8])| [a, b].concat();
    let (sent, unread) = (both(socket.unacknowledged()), both(socket.unread()));
    assert!(Socket::restore(config, now, &snapshot, &[], &[1]).is_none());
    Socket::restore(config, now, &snapshot, &sent, &unread).unwrap()
}

/// MHP-17: a connection goes on elsewhere, with what was outstanding, unread and half-closed.
#[test]
fn a_connection_moves_in_the_midst_of_everything() {
    for half_closed in [false, true] {
        let config = Config::modern();
        let mut out = [0u8; 1500];
        let mut a = Socket::connect(config, ends(0), Seq(5), NOW);
        let syn = a.poll_transmit(NOW, &mut out).unwrap();
        let mut b = Socket::accept(config, ends(1), &syn, Seq(9), NOW).unwrap();
        let mut exchange = |now, a: &mut Socket, b: &mut Socket| {
            for _ in 0..50 {
                while let Some(s) = a.poll_transmit(now, &mut out) {
                    b.handle_segment(now, &s, &out[..s.len as usize]);
                }
                while let Some(s) = b.poll_transmit(now, &mut out) {
                    a.handle_segment(now, &s, &out[..s.len as usize]);
                }
            }
        };
        exchange(NOW, &mut a, &mut b);
        b.write(b"before");
        if half_closed {
            b.finish();
        }
        exchange(NOW, &mut a, &mut b);
        let text: Vec<u8> = (0..5000u32).map(|n| n as u8).collect();
        a.write(&text);
        let mut scratch = [0u8; 1500];
        // Sent into the void.
        while a.poll_transmit(NOW, &mut scratch).is_some() {}
        let later = NOW + Duration::from_secs(900);
        let mut moved = move_socket(&a, config, later);
        assert_eq!(moved.received(), b"before");
        let probe = moved.connection().probe();
        assert_eq!(probe.srtt, a.connection().probe().srtt);
        let there = a.connection().probe();
        assert_eq!((probe.flight, probe.state), (there.flight, there.state));
        assert!(probe.flight > Bytes::ZERO);
        moved.retransmit_now(later);
        exchange(later, &mut moved, &mut b);
        assert_eq!(b.received(), text);
        moved.write(b"after");
        moved.finish();
        exchange(later, &mut moved, &mut b);
        assert_eq!(b.received().len(), 5005);
        let expected = if half_closed { State::TimeWait } else { State::CloseWait };
        assert_eq!(b.connection().state(), expected);
        assert!(b.connection().stats().paws_rejected == 0);
    }
}

/// Nothing that is said to a connection that is over starts a timer on it.
#[test]
fn a_connection_that_is_over_stays_so() {
    let (mut a, _) = pair(Config::modern());
    a.write(Bytes::new(100));
    while a.poll_transmit(NOW).is_some() {}
    a.abort();
    let mut moved = Connection::restore(Config::modern(), NOW, &a.snapshot(NOW));
    for it in [&mut a, &mut moved] {
        it.retransmit_now(NOW);
        it.handle_link_event(NOW, LinkEvent::Up);
        assert_eq!((it.state(), it.next_timeout()), (State::Closed, None));
    }
    assert_eq!(moved.snapshot(NOW).irs, a.snapshot(NOW).irs);
}

/// MHP-17: what a reader has not read of a connection that is over moves with it.
#[test]
fn a_connection_that_is_over_moves_with_what_is_unread() {
    let mut out = [0u8; 1500];
    let mut a = Socket::connect(Config::modern(), ends(0), Seq(5), NOW);
    let syn = a.poll_transmit(NOW, &mut out).unwrap();
    let mut b = Socket::accept(Config::modern(), ends(1), &syn, Seq(9), NOW).unwrap();
    a.write(b"unread");
    a.finish();
    b.finish();
    for _ in 0..9 {
        while let Some(s) = a.poll_transmit(NOW, &mut out) {
            b.handle_segment(NOW, &s, &out[..s.len as usize]);
        }
        while let Some(s) = b.poll_transmit(NOW, &mut out) {
            a.handle_segment(NOW, &s, &out[..s.len as usize]);
        }
    }
    let later = NOW + Duration::from_secs(900);
    b.handle_timeout(later);
    assert_eq!(b.connection().state(), State::Closed);
    assert_eq!(move_socket(&b, Config::modern(), later).received(), b"unread");
}

/// MHP-17: a snapshot is a message from elsewhere: nonsense in it makes no panic.
#[test]
fn a_nonsensical_snapshot_does_no_harm() {
    let (a, _) = pair(Config::modern());
    let states = [
        (State::Established, true),
        (State::FinWait1, false),
        (State::SynSent, true),
        (State::SynReceived, true),
        (State::TimeWait, true),
        (State::Closed, true),
    ];
    for (state, syn_acknowledged) in states {
        let odd = Snapshot {
            state,
            syn_acknowledged,
            acknowledged: u64::MAX,
            sent: 3,
            written: u64::MAX,
            finished: true,
            fin_acknowledged: true,
            received: u64::MAX,
            consumed: 7,
            received_ahead: vec![Range { start: 5, end: 2 }, 0..u64::MAX],
            peer_end: Some(u64::MAX),
            receive_edge: u64::MAX,
            send_edge: 0,
            mss: 0,
            window_shifts: Some((255, 255)),
            timestamps: Some((1, 2)),
            cwnd: Bytes::ZERO,
            ..a.snapshot(NOW)
        };
        let mut it = Connection::restore(Config::modern(), NOW, &odd);
        it.retransmit_now(NOW);
        for n in 0..100 {
            it.poll_transmit(NOW);
            it.handle_segment(
                NOW,
                &Segment { seq: Seq(n), flags: Flags::ACK, ..Segment::default() },
            );
            it.next_timeout().into_iter().for_each(|t| it.handle_timeout(t));
        }
    }
}

/// MHP-17: a snapshot that contradicts itself is believed in the peer's end, behind which there is nothing.
#[test]
fn what_a_snapshot_has_behind_the_peers_end_is_nothing() {
    let (mut a, b) = pair(Config::modern());
    let received_ahead = vec![Range { start: 1000, end: 7700 }];
    let odd = Snapshot { received_ahead, peer_end: Some(6700), ..b.snapshot(NOW) };
    let mut b = Connection::restore(Config::modern(), NOW, &odd);
    a.write(Bytes::new(1448));
    b.handle_segment(NOW, &a.poll_transmit(NOW).unwrap().segment);
    assert_eq!((b.state(), b.received()), (State::CloseWait, Bytes::new(6700)));
    let moved = Connection::restore(Config::modern(), NOW, &b.snapshot(NOW));
    assert_eq!(moved.snapshot(NOW).peer_end, Some(6700));
}

/// RFC 1337: a reset in TIME-WAIT cuts nothing: both streams have ended, and what was not read stays.
#[test]
fn a_reset_in_time_wait_is_ignored() {
    let (mut a, mut b) = pair(Config::modern());
    a.finish();
    talk(NOW, &mut a, &mut b);
    b.write(Bytes::new(7));
    b.finish();
    talk(NOW, &mut a, &mut b);
    assert_eq!(a.state(), State::TimeWait);
    events(&mut a);
    let late = a.request_ack(lasthop_tcp::AckRequest::default());
    assert!(late);
    let ack = a.poll_transmit(NOW).unwrap().segment;
    let reset = reset_for(&ack).unwrap();
    a.handle_segment(NOW, &Segment { src_port: 1, dst_port: 0, ..reset });
    assert_eq!((a.state(), a.readable(), events(&mut a)), (State::TimeWait, Bytes::new(7), vec![]));
}

/// ITCP-3: what a connection knew of the path counts for the next one over it.
#[test]
fn a_connection_may_adopt_anothers_estimates() {
    let (mut a, _) = pair(Config::modern());
    let rtt = lasthop_tcp::RttState {
        srtt: Duration::from_millis(80),
        rttvar: Duration::from_millis(10),
        rto: Duration::from_millis(250),
        backoff: 0,
    };
    let (cwnd, ssthresh) = (Bytes::new(77_000), Bytes::new(50_000));
    let known = lasthop_tcp::Estimates { cwnd, ssthresh, rtt };
    a.adopt(&known);
    assert_eq!(a.estimates(), known);
    let probe = a.probe();
    assert_eq!((probe.cwnd, probe.srtt), (cwnd, Some(rtt.srtt)));
}
