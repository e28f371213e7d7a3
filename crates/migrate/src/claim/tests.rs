//! What is asked, and which answers count, wherever sequence numbers wrap.

use lasthop_wire::ip::{Header, Protocol};
use lasthop_wire::tcp::{Flags, Options, Segment, Seq, Timestamps};
use proptest::prelude::*;

use super::question::{Word, read};
use super::*;
use crate::ticket::tests::some;

/// The mobile keeps its bytes from 10,000 to 50,000, and has 70,000 of the fixed host's.
fn claim(first: u32) -> Claim {
    let ticket = Ticket { first_sent: first, first_received: first.wrapping_add(7), ..some() };
    let (received_end, sent_end) = (false, false);
    Claim { ticket, received: 70_000, received_end, kept: 10_000, sent: 50_000, sent_end }
}

/// An answer that acknowledges so many bytes of the mobile's.
fn answer(claim: &Claim, bytes: i64) -> Segment {
    let clocks = Timestamps { value: 5, echo: 1000 };
    Segment {
        src_port: claim.ticket.flow.remote.port(),
        dst_port: claim.ticket.flow.local.port(),
        seq: claim.ticket.received(claim.received) + 3000,
        ack: Seq(claim.ticket.first_sent) + bytes as u32,
        flags: Flags::ACK,
        window: 100,
        options: Options { timestamps: Some(clocks), ..Options::default() },
        ..Segment::default()
    }
}

fn claimed(claim: &Claim, segment: &Segment) -> Option<(u64, bool)> {
    match claim.hear(segment) {
        Word::Answer(claimed) => Some((claimed.up, claimed.up_end)),
        _ => None,
    }
}

#[test]
fn an_answer_lies_between_what_is_kept_and_what_was_sent() {
    for first in [0, 5, u32::MAX, u32::MAX - 9_999, u32::MAX - 30_000, 1 << 31] {
        let claim = claim(first);
        assert_eq!(claimed(&claim, &answer(&claim, 9_999)), None);
        assert_eq!(claimed(&claim, &answer(&claim, 10_000)), Some((10_000, false)));
        assert_eq!(claimed(&claim, &answer(&claim, 50_000)), Some((50_000, false)));
        assert!(matches!(claim.hear(&answer(&claim, 50_001)), Word::Beyond(50_001)));
        let ended = Claim { sent_end: true, ..claim };
        assert_eq!(claimed(&ended, &answer(&ended, 50_000)), Some((50_000, false)));
        assert_eq!(claimed(&ended, &answer(&ended, 50_001)), Some((50_000, true)));
        assert!(matches!(ended.hear(&answer(&ended, 50_002)), Word::Beyond(50_002)));
    }
}

#[test]
fn only_an_acknowledgement_alone_is_an_answer() {
    let claim = claim(77);
    let good = answer(&claim, 20_000);
    assert!(claimed(&claim, &good).is_some());
    let with = |change: fn(&mut Segment)| {
        let mut segment = good;
        change(&mut segment);
        claimed(&claim, &segment)
    };
    assert_eq!(with(|s| s.len = 1), None);
    assert_eq!(with(|s| s.flags = Flags::ACK.with(Flags::FIN)), None);
    assert_eq!(with(|s| s.flags = Flags::ACK.with(Flags::SYN)), None);
    assert_eq!(with(|s| s.flags = Flags::default()), None);
    assert_eq!(with(|s| s.options.timestamps = None), None);
    assert_eq!(with(|s| s.seq += 1 << 31), None);
}

/// Whoever does not know the exact number has no say (RFC 5961 section 3.2).
#[test]
fn a_reset_counts_where_the_question_acknowledged() {
    for end in [false, true] {
        let claim = Claim { received_end: end, ..claim(u32::MAX - 70_003) };
        let seq = claim.ticket.received(claim.received) + u32::from(end);
        let reset = Segment { flags: Flags::RST, seq, ..answer(&claim, 0) };
        assert!(matches!(claim.hear(&reset), Word::Gone));
        for other in [seq - 1, seq + 1] {
            let reset = Segment { seq: other, ..reset };
            assert!(matches!(claim.hear(&reset), Word::Nothing));
        }
    }
}

#[test]
fn the_image_goes_on_from_the_answer() {
    let claim = Claim { sent_end: true, received_end: true, ..claim(u32::MAX - 60_000) };
    let Word::Answer(claimed) = claim.hear(&answer(&claim, 50_001)) else { panic!("no answer") };
    let image = &claimed.image;
    assert!(image.sent_end() && image.received_end());
    assert_eq!(image.snd_una, claim.ticket.sent(50_000).0);
    assert_eq!(image.rcv_nxt, claim.ticket.received(70_001).0);
    assert_eq!(image.held().unwrap().inherited, Some(claim.ticket.sent(50_001).0));
    assert_eq!((image.window.snd_wnd, image.window.rcv_wnd), (100 << 7, 512 << 10));
    let clock = image.timestamp.unwrap();
    assert!(clock.is_multiple_of(2) && clock >= 1000 + 1_000_000);
    assert_eq!(Image::decode(&image.encode()).as_ref(), Ok(image));
}

/// The segment that is sent to the host, as [`read`] takes what comes from there.
#[test]
fn a_question_is_behind_the_window_and_out_of_date() {
    for kept in [0, 10_000] {
        let claim = Claim { kept, ..claim(1) };
        let packet = claim.question().unwrap();
        let (header, payload) = Header::parse(&packet).unwrap();
        let (segment, byte) = Segment::parse(&header.addresses, payload).unwrap();
        assert_eq!(byte, [0]);
        assert_eq!(segment.end(), claim.ticket.sent(kept) - 1);
        assert_eq!(segment.ack, claim.ticket.received(70_000));
        let value = segment.options.timestamps.unwrap().value;
        assert!((claim.ticket.timestamp.unwrap().wrapping_sub(value) as i32) > 1);
        let ((to, from), heard) = read(&packet).unwrap();
        assert_eq!((from, to), claim.ends());
        assert_eq!(heard, segment);
        // A card that fills in checksums has the sum over addresses, protocol and length.
        let begun = !header.addresses.pseudo_header(Protocol::TCP, payload.len()).checksum();
        let mut other = packet.clone();
        other[40 + 16..40 + 18].copy_from_slice(&begun.to_be_bytes());
        assert_eq!(read(&other).unwrap().1, segment);
        other[40 + 16] ^= 1;
        assert!(read(&other).is_none());
    }
}

proptest! {
    #[test]
    fn no_packet_makes_the_reader_panic(packet in prop::collection::vec(any::<u8>(), 0..120)) {
        let _ = read(&packet);
    }

    #[test]
    fn no_segment_makes_a_claim_panic(
        first: u32, seq: u32, ack: u32, flags: u8, window: u16, kept: u64, more in 0..=1_u64 << 30, received: u64,
        ends: (bool, bool), blocks in prop::collection::vec(any::<(u32, u32)>(), 0..4),
    ) {
        let (sent, (received_end, sent_end)) = (kept.saturating_add(more), ends);
        let claim = Claim { received, received_end, kept, sent, sent_end, ..claim(first) };
        prop_assert_eq!(claim.check(), Ok(()));
        let mut segment = Segment { seq: Seq(seq), ack: Seq(ack), window, ..answer(&claim, 0) };
        segment.flags = Flags::from_bits(flags);
        for (start, end) in blocks {
            segment.options.sack.push(Seq(start), Seq(end));
        }
        let _ = (claim.question(), claim.hear(&segment));
    }
}
