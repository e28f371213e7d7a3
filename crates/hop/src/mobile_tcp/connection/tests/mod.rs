//! The engine alone: oracles, windows, the timer.

mod rules;
mod schedules;

use alloc::vec;
use alloc::vec::Vec;

use lasthop_wire::mobile_tcp::Packet;

use super::*;

const ANY: Bytes = Bytes::new(u64::MAX);
const PACKET: usize = 100;

fn ms(n: u64) -> Time {
    Time::from_millis(n)
}

fn small() -> Config {
    Config { max_packet: Bytes::from(PACKET), ..Config::default() }
}

/// Two ends whose first bytes have these numbers.
fn pair(config: &Config, a: u16, b: u16) -> (Connection, Connection) {
    let terms = |cid, send, recv| Terms {
        cid: Cid(cid),
        send: Seq16(send),
        recv: Seq16(recv),
        window: config.window(),
        max_packet: config.max_packet(),
    };
    let (mut left, mut right) =
        (Connection::new(config, Time::ZERO), Connection::new(config, Time::ZERO));
    left.begin(&terms(7, a, b));
    right.begin(&terms(9, b, a));
    (left, right)
}

fn write(c: &mut Connection, data: &[u8]) -> usize {
    let mut taken = 0;
    while taken < data.len() {
        let room = c.send_space();
        let n = room.len().min(data.len() - taken);
        if n == 0 {
            break;
        }
        room[..n].copy_from_slice(&data[taken..taken + n]);
        c.commit(n);
        taken += n;
    }
    taken
}

fn read(c: &mut Connection) -> Vec<u8> {
    let mut all = Vec::new();
    while !c.received().is_empty() {
        all.extend_from_slice(c.received());
        c.consume(c.received().len());
    }
    all
}

fn poll(c: &mut Connection, now: Time) -> Option<Vec<u8>> {
    let mut out = [0; 2000];
    c.poll(now, ANY, &mut out).map(|len| out[..len].to_vec())
}

fn poll_all(c: &mut Connection, now: Time) -> Vec<Vec<u8>> {
    core::iter::from_fn(|| poll(c, now)).collect()
}

fn parse(packet: &[u8]) -> (DataHeader, Vec<u8>) {
    match Packet::decode(packet) {
        Ok(Packet::Data(header, data)) => (header, data.to_vec()),
        other => panic!("{other:?}"),
    }
}

fn give(c: &mut Connection, now: Time, packet: &[u8]) {
    let (header, data) = parse(packet);
    c.handle(now, &header, &data);
}

/// A packet in the figures' words: data packets by their number from 1 on, and the cycle.
fn data_of(packet: &[u8]) -> (usize, bool) {
    let (header, data) = parse(packet);
    assert_eq!(data.len(), PACKET);
    (usize::from(header.seq.0) / PACKET + 1, header.code.contains(Code::RC))
}

/// An acknowledgement in the figures' words: the packet expected, what is requested up to, and the
/// cycle that it answers.
fn ack_of(packet: &[u8]) -> (usize, Option<usize>, bool) {
    let (header, data) = parse(packet);
    assert!(data.is_empty() && header.code.contains(Code::ACK));
    let number = |seq: Seq16| usize::from(seq.0) / PACKET + 1;
    let request = header.code.contains(Code::RRQ).then(|| number(header.nack));
    if request.is_none() {
        assert_eq!(header.nack, header.ack);
    }
    (number(header.ack), request, header.code.contains(Code::RCR))
}

/// MOB-31, MOB-23, MOB-24, MOB-26: figure 4. Packets 2 and 3 are lost, three requests are made, two
/// of them are lost, and the third makes the sender resend 2 and 3, once.
#[test]
fn figure_4_comes_out_packet_by_packet() {
    let (mut sender, mut receiver) = pair(&small(), 0, 0);
    write(&mut sender, &[1; 6 * PACKET]);
    let sent = poll_all(&mut sender, ms(0));
    let numbers: Vec<_> = sent.iter().map(|p| data_of(p)).collect();
    assert_eq!(numbers, (1..=6).map(|n| (n, false)).collect::<Vec<_>>());

    let mut requests = Vec::new();
    for (packet, (number, _)) in sent.iter().zip(&numbers) {
        if ![2, 3].contains(number) {
            give(&mut receiver, ms(1), packet);
            requests.extend(poll_all(&mut receiver, ms(1)));
        }
    }
    let said: Vec<_> = requests.iter().map(|p| ack_of(p)).collect();
    assert_eq!(said, [(2, Some(4), false); 3]);

    give(&mut sender, ms(2), &requests[2]);
    let again = poll_all(&mut sender, ms(2));
    let numbers: Vec<_> = again.iter().map(|p| data_of(p)).collect();
    assert_eq!(numbers, [(2, true), (3, true)]);
    let mut acks = Vec::new();
    for packet in &again {
        give(&mut receiver, ms(3), packet);
        acks.extend(poll_all(&mut receiver, ms(3)));
    }
    let said: Vec<_> = acks.iter().map(|p| ack_of(p)).collect();
    assert_eq!(said, [(3, Some(4), true), (7, None, true)]);
    for ack in &acks {
        give(&mut sender, ms(4), ack);
        assert_eq!(poll(&mut sender, ms(4)), None);
    }
    assert_eq!(sender.inflight(), Bytes::ZERO);
    assert_eq!(sender.stats().packets_again, 2);
    assert_eq!(read(&mut receiver), [1; 6 * PACKET]);
}

/// MOB-31, MOB-28 to MOB-30: figure 5. Packet 3 is lost and its repetition too. The requests due to
/// 5 and 6, which left before the repetition, are ignored; the one due to 7, which left after it, is
/// obeyed.
#[test]
fn figure_5_comes_out_packet_by_packet() {
    let (mut sender, mut receiver) = pair(&small(), 0, 0);
    write(&mut sender, &[1; 6 * PACKET]);
    let sent = poll_all(&mut sender, ms(0));
    for packet in &sent[..2] {
        give(&mut receiver, ms(1), packet);
    }
    assert_eq!(poll_all(&mut receiver, ms(1)).len(), 1);
    let mut request = |packet: &[u8]| {
        give(&mut receiver, ms(1), packet);
        let mut requests = poll_all(&mut receiver, ms(1));
        assert_eq!(requests.len(), 1);
        requests.remove(0)
    };
    // Packet 3 is lost; 4 makes the first request.
    let due_to_4 = request(&sent[3]);
    assert_eq!(ack_of(&due_to_4), (3, Some(4), false));
    give(&mut sender, ms(2), &due_to_4);
    write(&mut sender, &[1; PACKET]);
    let then = poll_all(&mut sender, ms(2));
    let numbers: Vec<_> = then.iter().map(|p| data_of(p)).collect();
    assert_eq!(numbers, [(3, true), (7, true)]);

    // The repetition of 3 is lost; 5 and 6 had left before it.
    for early in &sent[4..6] {
        let late = request(early);
        assert_eq!(ack_of(&late), (3, Some(4), false));
        give(&mut sender, ms(3), &late);
        assert_eq!(poll(&mut sender, ms(3)), None);
    }
    let due_to_7 = request(&then[1]);
    assert_eq!(ack_of(&due_to_7), (3, Some(4), true));
    give(&mut sender, ms(4), &due_to_7);
    let again = poll_all(&mut sender, ms(4));
    let numbers: Vec<_> = again.iter().map(|p| data_of(p)).collect();
    assert_eq!(numbers, [(3, false)]);
    let last = request(&again[0]);
    assert_eq!(ack_of(&last), (8, None, false));
    assert_eq!((sender.stats().requests_handled, sender.stats().requests_ignored), (2, 2));
}

/// MOB-27: the acknowledgement of the first refill still shows a gap, and asks under the present
/// cycle; but the rest of the gap is just behind it. A gap that begins beyond what was resent is a
/// new one.
#[test]
fn a_gap_that_is_being_refilled_is_not_resent_and_the_next_one_is() {
    let (mut sender, mut receiver) = pair(&small(), 0, 0);
    write(&mut sender, &[1; 8 * PACKET]);
    let sent = poll_all(&mut sender, ms(0));
    // 2, 3, 4 and 6 are lost.
    let mut first = Vec::new();
    for n in [1, 5, 7, 8] {
        give(&mut receiver, ms(1), &sent[n - 1]);
        first.extend(poll_all(&mut receiver, ms(1)));
    }
    let said: Vec<_> = first.iter().map(|p| ack_of(p)).collect();
    assert_eq!(said, [(2, Some(5), false); 3]);
    give(&mut sender, ms(2), &first[0]);
    let again = poll_all(&mut sender, ms(2));
    assert_eq!(again.iter().map(|p| data_of(p).0).collect::<Vec<_>>(), [2, 3, 4]);
    for request in &first[1..] {
        give(&mut sender, ms(2), request);
        assert_eq!(poll(&mut sender, ms(2)), None);
    }
    let mut refills = Vec::new();
    for packet in &again {
        give(&mut receiver, ms(3), packet);
        refills.extend(poll_all(&mut receiver, ms(3)));
    }
    let said: Vec<_> = refills.iter().map(|p| ack_of(p)).collect();
    assert_eq!(said, [(3, Some(5), true), (4, Some(5), true), (6, Some(7), true)]);
    for refill in &refills[..2] {
        give(&mut sender, ms(4), refill);
        assert_eq!(poll(&mut sender, ms(4)), None);
    }
    give(&mut sender, ms(4), &refills[2]);
    let next = poll_all(&mut sender, ms(4));
    assert_eq!(next.iter().map(|p| data_of(p)).collect::<Vec<_>>(), [(6, false)]);
}

/// MOB-27: the second refill is lost, so the third meets a gap and repeats the number.
#[test]
fn a_refill_that_is_lost_is_asked_for_by_the_next() {
    let (mut sender, mut receiver) = pair(&small(), 0, 0);
    write(&mut sender, &[1; 5 * PACKET]);
    let sent = poll_all(&mut sender, ms(0));
    give(&mut receiver, ms(1), &sent[0]);
    give(&mut receiver, ms(1), &sent[4]);
    let request = poll_all(&mut receiver, ms(1));
    give(&mut sender, ms(2), &request[0]);
    let again = poll_all(&mut sender, ms(2));
    assert_eq!(again.len(), 3);
    for n in [0, 2] {
        give(&mut receiver, ms(3), &again[n]);
        for ack in poll_all(&mut receiver, ms(3)) {
            give(&mut sender, ms(4), &ack);
        }
    }
    let numbers: Vec<_> = poll_all(&mut sender, ms(4)).iter().map(|p| data_of(p)).collect();
    assert_eq!(numbers, [(3, false)]);
}

/// MOB-32, MOB-33, MOB-35, MOB-36: nothing follows a lost repetition, so the timer helps; it resends
/// from the first byte not acknowledged, under the same cycle, and the window stays as it was.
#[test]
fn the_timer_resends_the_gap_under_the_same_cycle() {
    let (mut sender, mut receiver) = pair(&small(), 0, 0);
    write(&mut sender, &[1; 4 * PACKET]);
    let sent = poll_all(&mut sender, ms(0));
    give(&mut receiver, ms(1), &sent[0]);
    give(&mut receiver, ms(1), &sent[3]);
    let request = poll_all(&mut receiver, ms(1));
    give(&mut sender, ms(2), &request[0]);
    let lost = poll_all(&mut sender, ms(2));
    assert_eq!(lost.iter().map(|p| data_of(p)).collect::<Vec<_>>(), [(2, true), (3, true)]);

    let at = sender.next_timeout().unwrap();
    assert_eq!(at, ms(400), "a whole tick at least, and on a tick");
    sender.handle_timeout(at);
    write(&mut sender, &[1; PACKET]);
    let again = poll_all(&mut sender, at);
    let numbers: Vec<_> = again.iter().map(|p| data_of(p)).collect();
    assert_eq!(numbers, [(2, true), (3, true), (5, true)]);
    assert_eq!(sender.stats().expiries, 1);
}

/// MOB-32: nothing was acknowledged at all, so that all of it is resent.
#[test]
fn the_timer_resends_everything_where_nothing_is_known() {
    let (mut sender, _) = pair(&small(), 0, 0);
    write(&mut sender, &[1; 3 * PACKET]);
    assert_eq!(poll_all(&mut sender, ms(0)).len(), 3);
    let first = sender.next_timeout().unwrap();
    assert_eq!(first, ms(1000));
    for expiry in 1..=3 {
        let at = sender.next_timeout().unwrap();
        sender.handle_timeout(at);
        assert_eq!(poll_all(&mut sender, at).len(), 3);
        assert_eq!((sender.stats().expiries, at), (expiry, ms(1000 * expiry)), "capped backoff");
    }
}

/// MOB-22, MOB-34: every second packet is acknowledged at once, a single one with the tick.
#[test]
fn acknowledgements_wait_for_a_second_packet_or_the_tick() {
    let (mut sender, mut receiver) = pair(&small(), 0, 0);
    write(&mut sender, &[1; 3 * PACKET]);
    let sent = poll_all(&mut sender, ms(10));
    give(&mut receiver, ms(11), &sent[0]);
    assert_eq!((poll(&mut receiver, ms(11)), receiver.next_timeout()), (None, Some(ms(200))));
    give(&mut receiver, ms(12), &sent[1]);
    let acks = poll_all(&mut receiver, ms(12));
    assert_eq!(acks.iter().map(|p| ack_of(p)).collect::<Vec<_>>(), [(3, None, false)]);
    assert_eq!(receiver.next_timeout(), None);
    give(&mut receiver, ms(199), &sent[2]);
    assert_eq!(poll(&mut receiver, ms(199)), None);
    receiver.handle_timeout(ms(200));
    let acks = poll_all(&mut receiver, ms(200));
    assert_eq!(acks.iter().map(|p| ack_of(p)).collect::<Vec<_>>(), [(4, None, false)]);
}

/// MOB-3, MOB-19, MOB-20: the receiver's window, and nothing else, bounds what is on its way: the
/// first flight is a whole window, before any acknowledgement and after any loss.
#[test]
fn the_window_alone_bounds_the_sender() {
    let config = Config { window: Bytes::new(2500), ..small() };
    let (mut sender, mut receiver) = pair(&config, 0, 0);
    let written = write(&mut sender, &[1; 10_000]);
    assert_eq!(written, 10_000);
    let sent = poll_all(&mut sender, ms(0));
    assert_eq!((sent.len(), sender.inflight()), (25, Bytes::new(2500)));
    // All lost: the timer sends as much again.
    sender.handle_timeout(ms(1000));
    let again = poll_all(&mut sender, ms(1000));
    assert_eq!(again.len(), 25);
    for packet in &again {
        give(&mut receiver, ms(1001), packet);
    }
    // Unread, the window is closed; read, it opens.
    for ack in poll_all(&mut receiver, ms(1001)) {
        give(&mut sender, ms(1002), &ack);
    }
    assert_eq!((poll(&mut sender, ms(1002)), sender.inflight()), (None, Bytes::ZERO));
    assert_eq!(read(&mut receiver).len(), 2500);
    for update in poll_all(&mut receiver, ms(1003)) {
        give(&mut sender, ms(1004), &update);
    }
    assert!(poll_all(&mut sender, ms(1004)).len() >= 12);
}

/// MOB-13: a buffer larger than can be told apart counts as 32767 bytes.
#[test]
fn a_buffer_that_is_too_large_to_tell_is_not_filled() {
    let config = Config { window: Bytes::new(40_000), ..small() };
    let mut sender = Connection::new(&config, Time::ZERO);
    let (send, recv) = (Seq16(5), Seq16(5));
    sender.begin(&Terms { cid: Cid(1), send, recv, window: u16::MAX, max_packet: 1000 });
    assert_eq!(write(&mut sender, &[1; 65_536]), 65_536);
    poll_all(&mut sender, ms(0));
    assert_eq!(sender.inflight(), Bytes::new(32_700), "no packet that is not full");
}

/// What is committed behind an end is not sent.
#[test]
fn nothing_is_written_behind_an_end() {
    let (mut sender, _) = pair(&small(), 0, 0);
    assert!(sender.send_space().len() > 10);
    sender.finish();
    sender.commit(10);
    let (header, data) = parse(&poll(&mut sender, ms(0)).unwrap());
    assert!(header.code.contains(Code::FIN) && data.is_empty());
}

/// MOB-21: a closed window is probed on ticks, less and less often but always; an update that
/// was lost costs no more than that.
#[test]
fn a_closed_window_is_asked_after_with_a_backoff() {
    let config = Config { window: Bytes::new(2048), ..small() };
    let (mut sender, mut receiver) = pair(&config, 0, 0);
    write(&mut sender, &[1; 5000]);
    let exchange = |sender: &mut Connection, receiver: &mut Connection, now| {
        loop {
            let there = poll_all(sender, now);
            there.iter().for_each(|p| give(receiver, now, p));
            let back = poll_all(receiver, now);
            back.iter().for_each(|p| give(sender, now, p));
            if there.is_empty() && back.is_empty() {
                return;
            }
        }
    };
    exchange(&mut sender, &mut receiver, ms(1));
    receiver.handle_timeout(ms(200));
    exchange(&mut sender, &mut receiver, ms(200));
    assert_eq!(receiver.received().len(), 2048);
    let mut asked = Vec::new();
    for _ in 0..7 {
        let at = sender.next_timeout().expect("a closed window is watched");
        sender.handle_timeout(at);
        asked.push(at.as_nanos() / 1_000_000);
        exchange(&mut sender, &mut receiver, at);
    }
    let apart: Vec<_> = asked.windows(2).map(|w| w[1] - w[0]).collect();
    assert!(apart.windows(2).all(|w| w[0] <= w[1]) && apart.iter().all(|d| d % 200 == 0));
    assert_eq!(*apart.last().unwrap(), 1000, "{asked:?}");
    assert_eq!((sender.stats().probes, sender.has_failed()), (7, false));

    // The update is lost, and the next question brings the answer.
    assert_eq!(read(&mut receiver).len(), 2048);
    assert!(!poll_all(&mut receiver, ms(10_000)).is_empty());
    let at = sender.next_timeout().unwrap();
    sender.handle_timeout(at);
    exchange(&mut sender, &mut receiver, at);
    assert_eq!(receiver.received().len(), 2048);
}

#[test]
fn a_connection_whose_peer_never_answers_is_terminated() {
    let config = Config { give_up_after: 4, ..small() };
    let (mut sender, _) = pair(&config, 0, 0);
    write(&mut sender, &[1; 10]);
    let mut expiries = 0;
    poll_all(&mut sender, ms(0));
    while let Some(at) = sender.next_timeout() {
        sender.handle_timeout(at);
        poll_all(&mut sender, at);
        expiries += 1;
    }
    assert_eq!((expiries, sender.has_failed()), (4, true));
}

/// MOB-22: Nagle's rule is there to be asked for.
#[test]
fn small_packets_wait_only_if_asked_to() {
    for (nagle, packets) in [(false, 2), (true, 1)] {
        let (mut sender, _) = pair(&Config { nagle, ..small() }, 0, 0);
        let mut sent = 0;
        for _ in 0..2 {
            write(&mut sender, &[1; 10]);
            sent += poll_all(&mut sender, ms(0)).len();
        }
        assert_eq!(sent, packets);
    }
}

/// MOB-5: each direction ends by itself; data flows against an end, and both ends know.
#[test]
fn directions_end_one_by_one() {
    let (mut a, mut b) = pair(&small(), 10, 20);
    write(&mut a, b"question");
    a.finish();
    let packet = poll(&mut a, ms(0)).unwrap();
    assert!(parse(&packet).0.code.contains(Code::FIN.with(Code::PSH)));
    give(&mut b, ms(1), &packet);
    assert_eq!((read(&mut b), b.is_ended(), a.send_space().len()), (b"question".to_vec(), true, 0));
    let ack = poll(&mut b, ms(1)).unwrap();
    assert_eq!(parse(&ack).0.ack, Seq16(10 + 8 + 1), "an end takes a number");
    give(&mut a, ms(2), &ack);
    assert!(a.is_delivered() && !a.is_over());

    write(&mut b, b"answer");
    let packet = poll(&mut b, ms(3)).unwrap();
    give(&mut a, ms(4), &packet);
    b.finish();
    let fin = poll(&mut b, ms(5)).unwrap();
    give(&mut a, ms(6), &fin);
    assert!(a.is_over() && !b.is_over());
    // The acknowledgement is lost; the repeated end is acknowledged again.
    poll_all(&mut a, ms(6));
    let at = b.next_timeout().unwrap();
    b.handle_timeout(at);
    for packet in poll_all(&mut b, at) {
        give(&mut a, at, &packet);
    }
    for ack in poll_all(&mut a, at) {
        give(&mut b, at, &ack);
    }
    assert!(b.is_over());
    assert_eq!(read(&mut a), b"answer");
    assert_eq!((a.next_timeout(), b.next_timeout()), (None, None));
}

fn forged(seq: u16, ack: u16, code: Code, nack: u16) -> DataHeader {
    let code = code.with(Code::ACK);
    DataHeader {
        code,
        cid: Cid(9),
        seq: Seq16(seq),
        ack: Seq16(ack),
        window: 4000,
        nack: Seq16(nack),
    }
}

/// Bytes beyond the window, behind the end, long known, or above an end are counted and never read.
#[test]
fn what_cannot_be_is_counted_and_dropped() {
    let config = Config { window: Bytes::new(2048), ..small() };
    let (_, mut c) = pair(&config, 0, 0);
    c.handle(ms(0), &forged(0, 0, Code::empty(), 0), &[1; 50]);
    c.handle(ms(0), &forged(5000, 0, Code::empty(), 0), &[2; 50]);
    c.handle(ms(0), &forged(0x9000, 0, Code::empty(), 0), &[3; 50]);
    c.handle(ms(0), &forged(0, 0, Code::empty(), 0), &[4; 50]);
    assert_eq!((c.stats().outside, c.stats().duplicates), (1, 2));
    // Half of this is beyond the window.
    c.handle(ms(0), &forged(2000, 0, Code::empty(), 0), &[5; 96]);
    c.handle(ms(0), &forged(50, 0, Code::empty(), 0), &[6; 1950]);
    assert_eq!(c.received().len(), 2048);
    assert_eq!(read(&mut c)[2000..], [5; 48]);
    assert_eq!(poll_all(&mut c, ms(0)).len(), 1);
    // An end, and data behind it; then another end.
    c.handle(ms(0), &forged(2048, 0, Code::FIN, 0), &[7; 10]);
    c.handle(ms(0), &forged(2058, 0, Code::empty(), 0), &[8; 10]);
    c.handle(ms(0), &forged(2068, 0, Code::FIN, 0), &[]);
    assert_eq!((read(&mut c), c.is_ended()), (vec![7; 10], true));
    assert_eq!(c.stats().outside, 3);
}

/// Acknowledgements and requests for what was never sent change nothing.
#[test]
fn acknowledgements_of_what_was_never_sent_are_ignored() {
    let (mut c, _) = pair(&small(), 100, 0);
    write(&mut c, &[1; 300]);
    poll_all(&mut c, ms(0));
    c.handle(ms(1), &forged(0, 401, Code::empty(), 0), &[]);
    assert_eq!((c.stats().impossible, c.inflight()), (1, Bytes::new(300)));
    // A gap that begins where it ends, that ends behind all that was sent, or before it begins.
    for nack in [100, 400, 401, 99, 50] {
        c.handle(ms(1), &forged(0, 100, Code::RRQ, nack), &[]);
    }
    assert_eq!((c.stats().impossible, poll(&mut c, ms(1))), (6, None));
    c.handle(ms(1), &forged(0, 90, Code::RRQ, 200), &[]);
    assert_eq!((c.inflight(), poll(&mut c, ms(1))), (Bytes::new(300), None));
}

#[test]
fn packets_are_padded_when_asked_for() {
    let (mut c, _) = pair(&Config { pad: Bytes::new(24), ..small() }, 0, 0);
    write(&mut c, &[1; 10]);
    let packet = poll(&mut c, ms(0)).unwrap();
    assert_eq!(packet.len(), DATA_HEADER + 10 + 24);
    assert_eq!(parse(&packet).1, [1; 10]);
    assert_eq!(c.poll(ms(0), ANY, &mut [0; 39]), None);
}
