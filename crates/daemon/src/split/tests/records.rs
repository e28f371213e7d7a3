//! Records between one sender and one receiver.

use lasthop_hop::RecvState;

use crate::split::cipher::HEADER_LEN;
use crate::split::hostile::keys;
use crate::split::inbound::Inbound;
use crate::split::outbound::Outbound;
use crate::split::record::{ACK_LEN, Ack, Forged, PAYLOAD_MAX, RECORD_MAX, WINDOW_MIN};

fn pair() -> (Outbound, Inbound) {
    let (mut out, mut into) = (Outbound::new(), Inbound::new(0));
    let (mobile, base) = keys(true);
    out.start(mobile.stream(0).0);
    into.start(base.stream(0).1);
    (out, into)
}

/// Carries up to `n` bytes as the kernel would.
fn carry(out: &mut Outbound, into: &mut Inbound, n: usize) -> usize {
    let pending = out.pending();
    let space = into.space();
    let n = n.min(pending.len()).min(space.len());
    space[..n].copy_from_slice(&pending[..n]);
    into.filled(n);
    out.sent(n);
    n
}

fn carry_all(out: &mut Outbound, into: &mut Inbound) {
    while carry(out, into, usize::MAX) > 0 {
        into.open_records().unwrap();
    }
}

/// What an acknowledgement on the way back would bring about.
fn acknowledge(out: &mut Outbound, into: &mut Inbound) {
    if let Some(pending) = into.pending_ack() {
        into.set_acknowledged(pending.ack);
        out.handle_ack(pending.ack).unwrap();
    }
}

fn write(out: &mut Outbound, data: &[u8]) -> usize {
    let space = out.space();
    let n = space.len().min(data.len());
    space[..n].copy_from_slice(&data[..n]);
    out.commit(n);
    n
}

#[test]
fn bytes_arrive_in_order_through_any_cutting() {
    let (mut out, mut into) = pair();
    let sent: Vec<u8> = (0..1_000_000u32).map(|i| (i % 251) as u8).collect();
    let (mut written, mut read) = (0, Vec::new());
    let mut step = 1;
    while read.len() < sent.len() {
        step = step * 7 % 40_961;
        written += write(&mut out, &sent[written..]);
        carry(&mut out, &mut into, step);
        into.open_records().unwrap();
        acknowledge(&mut out, &mut into);
        let n = into.plain().len().min(step);
        read.extend_from_slice(&into.plain()[..n]);
        into.consume(n);
    }
    assert!(read == sent);
}

#[test]
fn bytes_that_nobody_reads_wait_in_order() {
    let (mut out, mut into) = pair();
    let sent: Vec<u8> = (0..WINDOW_MIN as u32).map(|i| (i % 253) as u8).collect();
    let mut written = 0;
    let mut step = 1;
    while written < sent.len() {
        // Short records and long ones.
        step = step * 7 % 19_997;
        let n = step.min(sent.len() - written);
        written += write(&mut out, &sent[written..written + n]);
        carry_all(&mut out, &mut into);
        acknowledge(&mut out, &mut into);
    }
    assert_eq!(into.received(), WINDOW_MIN);
    assert!(into.unread() == sent);
    let mut read = Vec::new();
    while !into.plain().is_empty() {
        let n = into.plain().len().min(1 + read.len() % 5000);
        read.extend_from_slice(&into.plain()[..n]);
        into.consume(n);
    }
    assert!(read == sent && into.unread().is_empty());
}

#[test]
fn short_records_that_nobody_reads_take_no_more_memory_than_their_bytes() {
    let (mut out, mut into) = pair();
    for _ in 0..20_000 {
        write(&mut out, b"x");
        carry_all(&mut out, &mut into);
        acknowledge(&mut out, &mut into);
    }
    assert_eq!(into.received(), 20_000);
    assert!(into.memory() <= 4 * RECORD_MAX, "{} bytes", into.memory());
}

#[test]
fn a_writer_waits_for_acknowledgements_but_its_end_does_not() {
    let (mut out, mut into) = pair();
    while write(&mut out, &[1; 9000]) > 0 {}
    assert!(!out.writable());
    out.finish();
    carry_all(&mut out, &mut into);
    assert!(out.is_flushed() && !out.writable());
    assert_eq!(into.recv_state(), RecvState::Finished);
    assert!(!out.is_finished(), "its arrival is not acknowledged");
    acknowledge(&mut out, &mut into);
    assert!(out.is_finished());
    assert_eq!(out.unacknowledged(), (into.received(), Vec::new()));
}

#[test]
fn nothing_is_sent_beyond_the_limit_until_it_moves() {
    let (mut out, mut into) = pair();
    let mut sent = 0;
    let fill = |out: &mut Outbound, into: &mut Inbound| {
        let mut n = 0;
        loop {
            let more = write(out, &[3; 10_000]);
            carry_all(out, into);
            acknowledge(out, into);
            n += more;
            if more == 0 {
                return n as u64;
            }
        }
    };
    sent += fill(&mut out, &mut into);
    assert_eq!(into.received(), WINDOW_MIN);
    assert_eq!(out.growth(), 0, "to keep more would help nobody");
    for _ in 0..8 {
        into.consume(into.plain().len());
    }
    let consumed = into.received() - into.unread().len() as u64;
    assert!(consumed > 0);
    acknowledge(&mut out, &mut into);
    sent += fill(&mut out, &mut into);
    assert_eq!(into.received(), WINDOW_MIN + consumed);
    assert!(sent > into.received());
}

#[test]
fn a_reader_that_keeps_up_is_sent_more_and_more() {
    let (mut out, mut into) = pair();
    let mut total = 0;
    for _ in 0..4000 {
        total += write(&mut out, &[5; 10_000]);
        out.grow(out.growth());
        carry_all(&mut out, &mut into);
        while !into.plain().is_empty() {
            into.consume(into.plain().len());
        }
        into.widen(into.growth());
        acknowledge(&mut out, &mut into);
    }
    assert_eq!(total, 40_000_000);
    assert_eq!(into.grown() as u64, 4 * 1024 * 1024 - WINDOW_MIN);
    // A reader that stops then is not sent more than that.
    let mut more = 0;
    loop {
        out.grow(out.growth());
        let n = write(&mut out, &[5; 10_000]);
        carry_all(&mut out, &mut into);
        acknowledge(&mut out, &mut into);
        more += n;
        if n == 0 {
            break;
        }
    }
    assert!((4 << 20..9 << 20).contains(&more), "{more}");
}

#[test]
fn a_reset_carries_its_code_and_overtakes_what_was_not_sealed() {
    let (mut out, mut into) = pair();
    write(&mut out, b"unsent");
    out.reset(77);
    carry_all(&mut out, &mut into);
    assert_eq!((into.plain(), into.recv_state()), (&b""[..], RecvState::Reset(77)));
    // It has room behind whatever the kernel does not take.
    let (mut out, mut into) = pair();
    while write(&mut out, &[1; 9000]) > 0 {}
    out.pending();
    out.reset(78);
    carry_all(&mut out, &mut into);
    assert_eq!(into.recv_state(), RecvState::Reset(78));
}

#[test]
fn a_changed_bit_anywhere_is_forged() {
    for at in [0, 5, HEADER_LEN, HEADER_LEN + 3, HEADER_LEN + 10] {
        let (mut out, mut into) = pair();
        write(&mut out, b"payload");
        let mut record = out.pending().to_vec();
        record[at] ^= 1;
        record.resize(RECORD_MAX, 0);
        into.space()[..record.len()].copy_from_slice(&record);
        into.filled(record.len());
        assert_eq!(into.open_records(), Err(Forged), "byte {at}");
    }
}

#[test]
fn what_no_peer_sends_is_forged() {
    for length in [0u16, 16, 16 + 1 + PAYLOAD_MAX as u16 + 1, u16::MAX] {
        let (_, mut into) = pair();
        into.space()[..2].copy_from_slice(&length.to_be_bytes());
        into.filled(HEADER_LEN);
        assert_eq!(into.open_records(), Err(Forged), "length {length}");
    }
    for (kind, payload) in [(9, 0), (1, 1), (2, 7), (3, ACK_LEN - 1), (3, ACK_LEN + 1)] {
        let (mut out, mut into) = pair();
        out.record(kind, &vec![0; payload]);
        carry(&mut out, &mut into, usize::MAX);
        assert_eq!(into.open_records(), Err(Forged), "type {kind} of {payload}");
    }
}

#[test]
fn data_behind_an_end_is_forged_and_a_reset_is_not() {
    for (kind, payload, fine) in [(0, 1, false), (1, 0, false), (2, 8, true), (3, 16, true)] {
        let (mut out, mut into) = pair();
        out.finish();
        out.pending();
        out.record(kind, &vec![0; payload]);
        carry(&mut out, &mut into, usize::MAX);
        assert_eq!(into.open_records().is_ok(), fine, "type {kind}");
    }
}

#[test]
fn an_acknowledgement_of_what_was_never_sent_is_forged() {
    let (mut out, _) = pair();
    write(&mut out, b"four");
    let ack = |received| Ack { received, ..Ack::FIRST };
    assert_eq!(out.handle_ack(ack(1)), Err(Forged), "it was not even sealed");
    out.finish();
    out.pending();
    assert_eq!(out.handle_ack(ack(6)), Err(Forged));
    assert_eq!(out.handle_ack(ack(4)), Ok(()));
    assert!(!out.is_finished());
    assert_eq!(out.handle_ack(ack(5)), Ok(()));
    assert!(out.is_finished());
    assert_eq!(out.handle_ack(ack(2)), Ok(()), "an old one changes nothing");
    assert_eq!(out.unacknowledged(), (4, Vec::new()));
}

#[test]
fn more_than_was_allowed_is_forged() {
    let (mut out, mut into) = pair();
    out.handle_ack(Ack { received: 0, limit: u64::MAX }).unwrap();
    let mut outcome = Ok(());
    let mut sent = 0;
    while outcome.is_ok() && sent < 2 * WINDOW_MIN {
        out.grow(out.growth());
        sent += write(&mut out, &[0; 4096]) as u64;
        while outcome.is_ok() && carry(&mut out, &mut into, usize::MAX) > 0 {
            outcome = into.open_records();
        }
    }
    assert_eq!(outcome, Err(Forged));
    assert!(into.received() > WINDOW_MIN);
}
