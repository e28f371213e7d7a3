//! A base's end of a connection on the bytes of anybody: of somebody without keys, and of an insider who
//! seals what no peer of ours sends. What the fuzz target runs.

use std::collections::VecDeque;

use lasthop_hop::RecvState;
use lasthop_hop::seal::{Hello, Initiator, Keypair, Keys, Limits, Responder};
use lasthop_units::Seed;

use super::base::greeting::{FirstBytes, classify};
use super::cipher::{Opener, Sealer, SharedKeys};
use super::inbound::Inbound;
use super::outbound::Outbound;
use super::record::{DATA, Forged, RECORD_MAX, WINDOW_MIN};
use super::stream_preface;

/// The association and the stream that the base knows.
const KNOWN: (u32, u64) = (7, 4);

/// The keys of a mobile and of its base.
#[expect(clippy::expect_used, reason = "nobody else is in this handshake")]
pub(super) fn keys(sealed: bool) -> (SharedKeys, SharedKeys) {
    let seed = Seed::from_u64(1);
    let mobile = Keypair::generate(seed.child("mobile"));
    let base = Keypair::generate(seed.child("base"));
    let hello = Hello { receiver: 1, fast_aes: false, stamp: 0, limits: Limits::NONE };
    let (initiator, mut responder) = if sealed {
        let initiator = Initiator::new(&mobile, base.public(), 0, hello, seed.child("init"));
        (initiator, Responder::new(base, seed.child("respond")))
    } else {
        (Initiator::unsealed(mobile.public(), 0, hello), Responder::unsealed())
    };
    let shared = || -> Option<(Keys, Keys)> {
        let mut initiator = initiator.ok()?;
        let request = responder.read(initiator.datagram()).ok()?;
        let mut reply = [0; 512];
        let (len, theirs) = request.accept(&hello, &mut reply).ok()?;
        Some((initiator.finish(reply.get(..len)?).ok()?.keys, theirs))
    };
    let (ours, theirs) = shared().expect("a handshake of our own");
    (SharedKeys::new(ours), SharedKeys::new(theirs))
}

/// What is on the wire, and what it says.
#[derive(Default, Debug)]
struct Script {
    wire: Vec<u8>,
    /// Something was put between that nobody sealed for that place.
    is_forged: bool,
    /// What the data records hold, as far as they are in their place.
    payload: Vec<u8>,
}

/// Steps, one byte each, with a byte or two behind it that say how much: the preface, a record of any
/// kind, bytes as they are, or what was on the wire last once more.
fn script(mut steps: &[u8], sealer: Sealer) -> Script {
    let mut script = Script::default();
    let mut out = Outbound::new();
    out.start(sealer);
    let mut last = 0..0;
    while let Some(([step, n], rest)) = steps.split_first_chunk() {
        let (given, after) = rest.split_at(rest.len().min(usize::from(*n)));
        let start = script.wire.len();
        steps = rest;
        match step % 8 {
            0 => script.wire.extend(stream_preface(KNOWN.0, KNOWN.1)),
            1..=3 => {
                let payload = vec![*n; usize::from(*n) * (1 << (step % 8 * 2))];
                out.record(DATA, &payload);
                if !script.is_forged {
                    script.payload.extend(payload);
                }
            }
            4 | 5 => {
                out.record(step >> 4, given);
                steps = after;
                if step >> 4 == DATA && !script.is_forged {
                    script.payload.extend(given);
                }
            }
            6 => {
                script.wire.extend(given);
                steps = after;
            }
            _ => script.wire.extend_from_within(last.clone()),
        }
        script.is_forged |= script.wire.len() > start && step % 8 >= 6;
        let sealed = out.pending().to_vec();
        out.sent(sealed.len());
        script.wire.extend(sealed);
        last = start..script.wire.len();
    }
    script
}

/// What a base makes of a connection.
#[derive(PartialEq, Eq, Debug)]
struct Outcome {
    first: FirstBytes,
    read: Vec<u8>,
    end: Result<RecvState, Forged>,
}

/// Receives what is on the wire, `step` bytes at once, and reads it if the reader `reads`.
fn receive(wire: &[u8], step: usize, reads: bool, opener: impl Fn() -> Opener) -> Outcome {
    let (mut into, mut claims) = (Inbound::new(0), None);
    let mut outcome =
        Outcome { first: FirstBytes::Incomplete, read: Vec::new(), end: Ok(RecvState::Open) };
    let known = |association, stream| ((association, stream) == KNOWN).then(&opener);
    let mut own = Outbound::new();
    let mut wire: VecDeque<u8> = wire.iter().copied().collect();
    while !wire.is_empty() && matches!(outcome.end, Ok(RecvState::Open | RecvState::Finished)) {
        let room = into.space();
        if room.is_empty() {
            break;
        }
        let n = room.len().min(step).min(wire.len());
        room.iter_mut().zip(wire.drain(..n)).for_each(|(room, byte)| *room = byte);
        into.filled(n);
        match outcome.first {
            FirstBytes::Incomplete => outcome.first = classify(&mut into, &mut claims, known),
            FirstBytes::Stream(..) => {
                outcome.end = into.open_records().map(|()| into.recv_state());
            }
            _ => break,
        }
        if let Some(ack) = into.take_ack() {
            let _ = own.handle_ack(ack);
        }
        while reads && !into.plain().is_empty() {
            let n = into.plain().len();
            outcome.read.extend_from_slice(into.plain());
            into.consume(n);
        }
        // What is read at once needs no more than what was begun with. Of a piece of memory whose next
        // record did not fit less than half is empty.
        let unread = if reads { 0 } else { 2 * WINDOW_MIN as usize };
        let most = unread + 8 * RECORD_MAX;
        assert!(into.memory() <= most, "{} bytes are held", into.memory());
    }
    if matches!(outcome.first, FirstBytes::Stream(..)) && outcome.end.is_ok() {
        outcome.end = into.open_records().map(|()| into.recv_state());
    }
    if !reads {
        outcome.read = into.unread();
    }
    outcome
}

/// Gives a base what `bytes` say; how many bytes of a stream came of it.
///
/// # Panics
///
/// Something was read that nobody sealed for that place, or it matters how the kernel cuts what came.
pub fn run(bytes: &[u8]) -> usize {
    let Some(([how, step], steps)) = bytes.split_first_chunk() else { return 0 };
    let (mobile, base) = keys(how & 1 == 0);
    let script = script(steps, mobile.stream(KNOWN.1).0);
    let opener = || base.stream(KNOWN.1).1;
    let reads = how & 2 == 0;
    let whole = receive(&script.wire, usize::MAX, reads, opener);
    let cut = receive(&script.wire, usize::from(*step) + 1, reads, opener);
    if whole.first == FirstBytes::Garbage {
        // What came before what is wrong may have been read by then.
        assert!(cut.first == FirstBytes::Garbage || cut.end.is_err(), "{whole:?}, {cut:?}");
    } else {
        assert_eq!(whole, cut, "cut into pieces of {step} and one");
    }
    // Without a seal anybody on the path can write what he likes, as into any TCP connection.
    if how & 1 == 0 {
        assert!(script.payload.starts_with(&cut.read), "{cut:?} of {script:?}");
    }
    cut.read.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_in_its_place_is_read_and_nothing_else() {
        let data = [0, 0, 1, 10, 2, 20];
        let said = 10 * 4 + 20 * 16;
        let run = |how: u8, steps: &[u8]| run(&[&[how, 3], steps].concat());
        for how in 0..4 {
            assert_eq!(run(how, &data), said, "{how}");
            // Behind a record of an unknown kind there is nothing.
            assert_eq!(run(how, &[&data[..], &[0x94, 1, 0, 1, 9]].concat()), said);
        }
        assert_eq!(run(0, &[&data[..], &[7, 0, 1, 9]].concat()), said, "a record came twice");
        assert_eq!(run(0, &[0, 0, 6, 3, 1, 2, 3, 1, 10]), 0, "bytes of nobody's");
    }
}
