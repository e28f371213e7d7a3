//! What nobody should send.

use lasthop_wire::mobile_tcp::Extension;
use proptest::prelude::*;

use super::*;

fn emit(header: DataHeader, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 16 + payload.len()];
    out[16..].copy_from_slice(payload);
    header.emit(payload.len(), &mut out).unwrap();
    out
}

/// MOB-14: a packet with a wrong checksum is dropped without a reply, and counted; so is one of the
/// wrong length or version.
#[test]
fn damaged_packets_are_dropped_without_a_word() {
    let mut world = Pair::new();
    let id = world.connection();
    world.mobile.write(id, b"hello").unwrap();
    let whole = poll(&mut world.mobile, world.now).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x20;
        assert!(world.base.handle(world.now, &damaged).is_err(), "byte {at}");
    }
    for len in 0..whole.len() {
        assert!(world.base.handle(world.now, &whole[..len]).is_err());
    }
    let stats = world.base.own_stats();
    assert_eq!(stats.damaged + stats.malformed, 2 * whole.len() as u64);
    assert!(stats.damaged > 15 && stats.malformed > 15);
    assert_eq!((poll(&mut world.base, world.now), world.base.received(id)), (None, &b""[..]));
    // Ethernet's padding is none of it.
    let mut padded = whole;
    padded.resize(46, 0xee);
    world.base.handle(world.now, &padded).unwrap();
    assert_eq!(read(&mut world.base, id), b"hello");
}

/// A packet for an identifier that is not in use is answered, but not for ever, and harms nobody.
#[test]
fn unknown_identifiers_are_answered_a_few_at_a_time() {
    let mut world = Pair::new();
    let id = world.connection();
    for cid in 2..5000 {
        let stray = DataHeader { code: Code::ACK, cid: Cid(cid), ..DataHeader::default() };
        world.base.handle(world.now, &emit(stray, b"?")).unwrap();
    }
    let answers = poll_all(&mut world.base, world.now);
    assert!(answers.len() <= 64 && answers.len() > 10);
    for answer in answers {
        assert!(data(&answer).code.contains(Code::UNKNOWN));
        world.mobile.handle(world.now, &answer).unwrap();
    }
    assert_eq!(world.base.own_stats().unknown, 4998);
    world.mobile.write(id, b"still").unwrap();
    world.settle();
    assert_eq!(read(&mut world.base, id), b"still");
}

/// A reset, or a word that the connection is unknown, counts only if its numbers can be right.
#[test]
fn resets_with_wrong_numbers_are_ignored() {
    let mut world = Pair::new();
    let id = world.connection();
    let to_mobile = Cid(world.mobile.cid_of(id).unwrap());
    let to_base = Cid(world.base.cid_of(id).unwrap());
    let header = |code, cid| DataHeader { code, cid, ..DataHeader::default() };
    let next = world.mobile.entries[&to_mobile.0].connection.empty_header(Code::ACK, 0).ack;
    for far in [20_000, 0x9000] {
        let reset = DataHeader { seq: next + far, ..header(Code::RST, to_mobile) };
        world.mobile.handle(world.now, &emit(reset, b"")).unwrap();
    }
    let unknown = Code::UNKNOWN.with(Code::RST);
    let far = DataHeader { ack: Seq16(0x8888), ..header(unknown, to_base) };
    world.mobile.handle(world.now, &emit(far, b"")).unwrap();
    assert_eq!(world.mobile.own_stats().impossible, 3);
    assert_eq!(world.mobile.recv_state(id), RecvState::Open);
    let reset = DataHeader { seq: next, window: 9, ..header(Code::RST, to_mobile) };
    world.mobile.handle(world.now, &emit(reset, b"")).unwrap();
    assert_eq!(world.mobile.recv_state(id), RecvState::Reset(9));
}

/// A control packet that resets counts only with the number of its sender's SYN, or, before that is
/// known, with the acknowledgement of ours.
#[test]
fn resets_of_openings_with_wrong_numbers_are_ignored() {
    let mut out = [0; 100];
    let mut reset = |end: &mut MobileTcp, control: Control| {
        let control = Control { code: Code::RST, max_buffer: 9, ..control };
        let len = control.emit(&mut out).unwrap();
        end.handle(Time::ZERO, &out[..len]).unwrap();
    };
    let mut world = Pair::new();
    let id = world.mobile.open().unwrap();
    world.mobile.write(id, &open_to(v4(1, 80), Opening::Faithful)).unwrap();
    let syn = poll(&mut world.mobile, world.now).unwrap();
    let asked = control(&syn);
    let to_mobile = Control { cid: asked.reverse, ..Control::default() };
    reset(&mut world.mobile, Control { ack: asked.seq, ..to_mobile });
    reset(&mut world.mobile, Control { ack: asked.seq + 2, ..to_mobile });
    assert_eq!(world.mobile.recv_state(id), RecvState::Open);

    world.base.handle(world.now, &syn).unwrap();
    let to_base = Control { reverse: asked.reverse, ..Control::default() };
    reset(&mut world.base, Control { seq: asked.seq + 1, ..to_base });
    assert_eq!(world.base.recv_state(id), RecvState::Open);
    world.base.write(id, &opened(v4(9, 1))).unwrap();
    world.settle();
    let to_base = Control { cid: Cid(world.base.cid_of(id).unwrap()), ..to_base };
    reset(&mut world.base, Control { seq: asked.seq + 1, ..to_base });
    reset(&mut world.base, Control { reverse: Cid(asked.reverse.0 + 1), ..to_base });
    assert_eq!(world.base.recv_state(id), RecvState::Open);
    reset(&mut world.base, Control { seq: asked.seq, ..to_base });
    assert_eq!(world.base.recv_state(id), RecvState::Reset(9));
}

/// An answer that nobody waits for any more is refused, and the answering end lets go.
#[test]
fn an_answer_that_comes_too_late_ends_the_connection() {
    let mut world = Pair::new();
    let id = world.mobile.open().unwrap();
    world.mobile.write(id, &open_to(v4(1, 80), Opening::Faithful)).unwrap();
    let syn = poll(&mut world.mobile, world.now).unwrap();
    world.base.handle(world.now, &syn).unwrap();
    world.mobile = end(&Config::default(), Role::Mobile);
    world.base.write(id, &opened(v4(9, 1))).unwrap();
    world.settle();
    assert_eq!(world.base.recv_state(id), RecvState::Reset(ResetReason::Aborted.code()));
    assert_eq!(world.base.half_open, 0);
}

/// What is left of another connection that had the identifier neither opens the new one nor becomes
/// bytes of it: it acknowledges what was never sent.
#[test]
fn late_data_of_another_connection_is_not_taken_in() {
    let mut world = Pair::new();
    let id = world.mobile.open().unwrap();
    world.mobile.write(id, &open_to(v4(1, 80), Opening::Faithful)).unwrap();
    let syn = poll(&mut world.mobile, world.now).unwrap();
    world.base.handle(world.now, &syn).unwrap();
    let pending = control(&poll(&mut world.base, world.now).unwrap());
    read(&mut world.base, id);
    world.base.write(id, &opened(v4(9, 1))).unwrap();
    let late = |ack| DataHeader {
        code: Code::ACK,
        cid: pending.reverse,
        seq: control(&syn).seq + 1,
        ack,
        window: 9000,
        nack: ack,
    };
    let wrong = [late(pending.seq), late(pending.seq + 2), late(pending.seq + 0x4000)];
    let silent = DataHeader { code: Code::empty(), ..late(pending.seq + 1) };
    for header in wrong.into_iter().chain([silent]) {
        world.base.handle(world.now, &emit(header, b"wrong")).unwrap();
        assert_eq!((world.base.half_open, world.base.received(id)), (1, &b""[..]));
    }
    world.settle();
    assert_eq!(world.base.half_open, 0);
    world.base.handle(world.now, &emit(late(pending.seq + 0x4000), b"wrong")).unwrap();
    assert_eq!((world.base.received(id), world.base.own_stats().impossible), (&b""[..], 5));
    world.mobile.write(id, b"right").unwrap();
    world.settle();
    assert_eq!(read(&mut world.base, id), b"right");
}

/// An answer to an opening that was never made, or under another number, opens nothing.
#[test]
fn answers_to_nothing_open_nothing() {
    let mut world = Pair::new();
    let id = world.mobile.open().unwrap();
    world.mobile.write(id, &open_to(v4(1, 80), Opening::Faithful)).unwrap();
    let syn = control(&poll(&mut world.mobile, world.now).unwrap());
    let answer = Control {
        code: Code::SYN.with(Code::ACK),
        cid: syn.reverse,
        ack: syn.seq + 2,
        reverse: Cid(5),
        ..Control::default()
    };
    let mut out = [0; 100];
    for wrong in [
        answer,
        Control { ack: syn.seq + 1, reverse: Cid::NONE, ..answer },
        Control { cid: Cid(999), ..answer },
    ] {
        let len = wrong.emit(&mut out).unwrap();
        world.mobile.handle(world.now, &out[..len]).unwrap();
    }
    assert_eq!(world.mobile.received(id), b"");
    // Only the stranger gets a reset.
    let said: Vec<_> = poll_all(&mut world.mobile, world.now);
    assert_eq!(said.len(), 1);
    assert_eq!((control(&said[0]).code, control(&said[0]).cid), (Code::RST, Cid(5)));
}

/// An opening or an answer with more than a message of the session's opens nothing.
#[test]
fn messages_that_are_too_long_open_nothing() {
    let mut world = Pair::new();
    let id = world.mobile.open().unwrap();
    world.mobile.write(id, &open_to(v4(1, 80), Opening::Faithful)).unwrap();
    let syn = control(&poll(&mut world.mobile, world.now).unwrap());
    let mut out = vec![0; 20_000];
    for (len, to_base) in [(1029, true), (18_000, true), (33, false), (18_000, false)] {
        let message = vec![1; len];
        let (packet, end) = match to_base {
            true => (syn, &mut world.base),
            false => {
                let code = Code::SYN.with(Code::ACK);
                let (cid, ack, reverse) = (syn.reverse, syn.seq + 1, Cid(5));
                (Control { code, cid, ack, reverse, ..syn }, &mut world.mobile)
            }
        };
        let len = packet.emit_extended(&[Extension::Message(&message)], &mut out).unwrap();
        end.handle(world.now, &out[..len]).unwrap();
        assert_eq!((events(end), end.received(id)), (vec![], &b""[..]));
    }
    assert_eq!(world.base.own_stats().malformed + world.mobile.own_stats().malformed, 4);
}

/// A late copy of an opening, of a connection that stands or is over, opens nothing anew.
#[test]
fn a_copy_of_an_opening_opens_nothing() {
    let mut world = Pair::new();
    let id = world.mobile.open().unwrap();
    world.mobile.write(id, &open_to(v4(1, 80), Opening::Faithful)).unwrap();
    let syn = poll(&mut world.mobile, world.now).unwrap();
    for _ in 0..3 {
        world.base.handle(world.now, &syn).unwrap();
    }
    world.base.write(id, &opened(v4(9, 1))).unwrap();
    world.settle();
    world.base.handle(world.now, &syn).unwrap();
    read(&mut world.base, id);
    read(&mut world.mobile, id);
    world.mobile.finish(id);
    world.base.finish(id);
    world.settle();
    let told = events(&mut world.base);
    assert_eq!(told.iter().filter(|e| matches!(e, StreamEvent::Incoming(_))).count(), 1);
    assert!(told.contains(&StreamEvent::Closed(id)));
    world.base.handle(world.now, &syn).unwrap();
    assert_eq!((poll(&mut world.base, world.now), events(&mut world.base)), (None, vec![]));
}

/// Nothing comes in before the association stands.
#[test]
fn nothing_is_taken_in_before_the_association_stands() {
    let mut end = MobileTcp::new(Config::default(), Role::Base, Time::ZERO);
    assert_eq!(end.handle(Time::ZERO, &[0; 28]), Err(Error::NotEstablished));
}

fn code() -> impl Strategy<Value = Code> {
    any::<u16>().prop_map(Code::from_bits)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever comes, in whatever order, nothing panics, everything stays bounded, and timers come
    /// to rest.
    #[test]
    fn no_input_harms(
        packets in prop::collection::vec(
            (any::<bool>(), code(), 0_u16..6, any::<u16>(), any::<u16>(), any::<u16>(), any::<u16>(),
             0_usize..60),
            0..200,
        ),
        garbage in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..20),
    ) {
        let mut world = Pair::new();
        let id = world.connection();
        for (n, (is_control, code, cid, seq, ack, window, nack, len)) in packets.iter().enumerate() {
            let mut out = [0; 128];
            let (seq, ack) = (Seq16(*seq % 0x3000), Seq16(*ack % 0x3000));
            let len = if *is_control {
                let packet = Control {
                    code: *code, cid: Cid(*cid), seq, ack, reverse: Cid(*nack % 8),
                    max_buffer: *window, max_packet: *window, ..Control::default()
                };
                match len % 2 {
                    0 => packet.emit(&mut out).unwrap(),
                    _ => packet.emit_extended(&[], &mut out).unwrap(),
                }
            } else {
                let nack = Seq16(*nack % 0x3000);
                let packet = DataHeader {
                    code: *code, cid: Cid(*cid), seq, ack, window: window % 0x8000, nack,
                };
                packet.emit(*len, &mut out).unwrap()
            };
            let _ = world.base.handle(world.now, &out[..len]);
            let _ = world.base.write(id, &[n as u8; 100]);
            for event in events(&mut world.base) {
                if let StreamEvent::Incoming(id) | StreamEvent::Readable(id) = event {
                    read(&mut world.base, id);
                }
            }
            poll_all(&mut world.base, world.now);
            world.now += Duration::from_millis(7);
            world.base.handle_timeout(world.now);
        }
        for bytes in garbage {
            let _ = world.base.handle(world.now, &bytes);
        }
        prop_assert!(world.base.entries.len() < 300);
        prop_assert!(world.base.stats().memory < Bytes::from_mib(40));
    }
}
