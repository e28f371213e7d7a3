//! Tests of the seal as a whole.

mod data;
mod handshake;

use lasthop_units::Seed;
use lasthop_wire::datagram::MAX_REPLY_LEN;

use super::*;

fn keypair(n: u64) -> Keypair {
    Keypair::generate(Seed::from_u64(n))
}

fn hello(receiver: u32, fast_aes: bool, limits: &[u8]) -> Hello {
    Hello { receiver, fast_aes, stamp: 7, limits: Limits::new(limits).expect("short") }
}

/// Both ends after a handshake that went well.
struct Pair {
    mobile: Keys,
    base: Keys,
}

impl Pair {
    fn sealed(fast_aes: (bool, bool)) -> Self {
        let base = keypair(2);
        let initiator = Initiator::new(
            &keypair(1),
            base.public(),
            0,
            hello(10, fast_aes.0, b"mobile"),
            Seed::from_u64(3),
        );
        let responder = Responder::new(base, Seed::from_u64(4));
        Self::complete(initiator.expect("usable key"), responder, hello(20, fast_aes.1, b"base"))
    }

    fn unsealed() -> Self {
        let initiator = Initiator::unsealed(keypair(1).public(), 0, hello(10, true, b"mobile"));
        Self::complete(initiator.expect("room"), Responder::unsealed(), hello(20, true, b"base"))
    }

    fn complete(mut initiator: Initiator, mut responder: Responder, ours: Hello) -> Self {
        let request = responder.read(initiator.datagram()).expect("authentic init");
        assert_eq!(request.mobile(), keypair(1).public());
        assert_eq!(&*request.hello().limits, b"mobile");
        assert_eq!(request.hello().receiver, 10);
        let mut reply = [0; MAX_REPLY_LEN];
        let (len, base) = request.accept(&ours, &mut reply).expect("room");
        let established = initiator.finish(&reply[..len]).expect("authentic reply");
        assert_eq!(established.hello, ours);
        Self { mobile: established.keys, base }
    }
}
