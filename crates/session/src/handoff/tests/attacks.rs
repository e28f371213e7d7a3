//! What bases say that they should not: grants that are old, stolen, of another base or made up, and
//! messages of before.

use super::*;

/// Somebody whom no base knows.
const STRANGER: u32 = 4;

/// One base sends another what it or a third one once sent, as it was or changed.
pub(super) fn any(world: &mut Roaming, dice: &mut Numbers) {
    let asks = |(from, _, bytes): &&(u32, u32, Vec<u8>)| {
        let said = Datagram::decode(bytes).map(|datagram| datagram.message);
        let asks = matches!(
            said,
            Ok(Message::Handover { .. } | Message::Commit { .. } | Message::Pull { .. })
        );
        asks && *from != MOBILE
    };
    let asked: Vec<_> = world.sent.iter().filter(asks).collect();
    if asked.is_empty() {
        return;
    }
    let (from, to, bytes) = asked[dice.below(asked.len() as u64) as usize].clone();
    let another = 1 + dice.below(u64::from(STRANGER)) as u32;
    let (from, bytes) = match dice.below(5) {
        0 => (from, bytes),
        1 => (another, bytes),
        2 => (from, later(&bytes)),
        3 => (another, later(&bytes)),
        _ => (from, forged(&bytes, dice)),
    };
    // Nobody else sends for a base, and what it sends of its own handoff is to its own harm.
    let attempt = Datagram::decode(&bytes).map_or(0, |datagram| datagram.attempt);
    if from != to && world.went.get(&attempt) != Some(&from) {
        world.receive(from, to, &bytes);
        world.poll();
    }
}

/// The same in a handoff that is yet to come.
fn later(bytes: &[u8]) -> Vec<u8> {
    let mut datagram = Datagram::decode(bytes).expect("readable");
    datagram.attempt += 1000;
    let mut out = vec![];
    datagram.encode(&mut out);
    out
}

/// The same with a grant that the mobile did not make.
fn forged(bytes: &[u8], dice: &mut Numbers) -> Vec<u8> {
    let mut datagram = Datagram::decode(bytes).expect("readable");
    let warrants = match &mut datagram.message {
        Message::Handover { warrant, .. } | Message::Commit { warrant, .. } => warrant,
        _ => return bytes.to_vec(),
    };
    if let Some(warrant) = warrants {
        warrant.grant.0[dice.below(16) as usize] ^= 1 << dice.below(8);
    }
    datagram.attempt += 1000 * dice.below(2) as u32;
    let mut out = vec![];
    datagram.encode(&mut out);
    out
}
