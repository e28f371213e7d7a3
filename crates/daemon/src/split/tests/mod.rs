//! Tests of records, of streams on sockets, and of both ends together.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod ends;
mod moving;
mod records;

use lasthop_hop::seal::{Hello, Initiator, Keypair, Limits, Responder};
use lasthop_units::Seed;

use super::cipher::SharedKeys;

/// The keys of a mobile and of its base.
pub(super) fn keys(sealed: bool) -> (SharedKeys, SharedKeys) {
    let seed = Seed::from_u64(1);
    let mobile = Keypair::generate(seed.child("mobile"));
    let base = Keypair::generate(seed.child("base"));
    let hello = Hello { receiver: 1, fast_aes: false, stamp: 0, limits: Limits::NONE };
    let (initiator, responder) = if sealed {
        let initiator = Initiator::new(&mobile, base.public(), 0, hello, seed.child("init"));
        (initiator, Responder::new(base, seed.child("respond")))
    } else {
        (Initiator::unsealed(mobile.public(), 0, hello), Responder::unsealed())
    };
    let (mut initiator, mut responder) = (initiator.unwrap(), responder);
    let request = responder.read(initiator.datagram()).unwrap();
    let mut reply = [0; 512];
    let (len, theirs) = request.accept(&hello, &mut reply).unwrap();
    let ours = initiator.finish(&reply[..len]).unwrap().keys;
    (SharedKeys::new(ours), SharedKeys::new(theirs))
}
