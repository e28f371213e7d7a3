//! What attackers say to a base of lasthop's: datagrams of the seal, and the first bytes of a
//! connection of `split-tcp`.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use blake2::digest::consts::U16;
use blake2::digest::{Digest, FixedOutput, KeyInit, Mac};
use blake2::{Blake2s256, Blake2sMac};
use lasthop_hop::seal::{Hello, Initiator, Keypair, Limits, PublicKey};
use lasthop_units::{Duration, Seed, Stream};
use lasthop_wire::datagram::{DataHeader, HandshakeInit, MAC_LEN};

/// Different messages of a flood whose messages may come again.
const FORGED: usize = 2000;
/// Handshakes of each mobile that were recorded.
const RECORDED: u64 = 100;
/// An insider's handshakes: to make more takes longer than the flood.
const FRESH_MAX: u64 = 12_000;
/// How long ago the recorded ones were made.
const AGE: Duration = Duration::from_secs(3600);
/// The longest random datagram.
const LONGEST: u64 = 1200;
/// What a mobile announces: five numbers of SRP's limits, each a variable-length integer of one byte.
const LIMITS: [u8; 5] = [60, 60, 60, 0, 0];
/// The Noise message of an init with these limits.
const NOISE_LEN: usize = 32 + 48 + Hello::FIXED_LEN + LIMITS.len() + 16;
/// What `split-tcp` begins a control connection and a stream with: its name, version and kind.
const CONTROL: [u8; 5] = *b"LHT\x02\x00";
const STREAM: [u8; 5] = *b"LHT\x02\x01";

/// Which of a flood's messages is sent when.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    /// One after the other, and again from the first.
    Cycled,
    /// From the first to the last while so many are sent, each a few times in a row if they are fewer.
    Spread(u64),
}

impl Order {
    /// The place of the `n`th that is sent, among `len`.
    pub(super) fn place(self, n: u64, len: usize) -> usize {
        let len = len.max(1) as u64;
        let place = match self {
            Order::Spread(of) if of > len => n.saturating_mul(len) / of,
            _ => n,
        };
        (place % len) as usize
    }
}

/// Handshakes for one base: forged, recorded, and an insider's.
pub(super) struct Handshakes {
    base: PublicKey,
    mobiles: Vec<Keypair>,
    seed: Seed,
}

impl Handshakes {
    /// For the base with this key; the last of the mobiles is the insider.
    pub(super) fn new(base: PublicKey, mobiles: Vec<Keypair>, seed: Seed) -> Self {
        Handshakes { base, mobiles, seed }
    }

    /// Inits with the right keyed hash and nothing authentic in them.
    pub(super) fn forged(&self) -> Vec<Vec<u8>> {
        let mut random = self.seed.stream("forged");
        let mac =
            Blake2s256::new().chain_update(b"lasthop mac1").chain_update(self.base.as_bytes());
        let mac: [u8; 32] = mac.finalize().into();
        let forge = |_| {
            let mut init = HandshakeInit::header(0).to_vec();
            init.extend(bytes(&mut random, NOISE_LEN));
            let keyed = <Blake2sMac<U16> as KeyInit>::new((&mac).into()).chain_update(&init);
            init.extend_from_slice(&keyed.finalize_fixed());
            init.extend_from_slice(&[0; MAC_LEN]);
            init
        };
        (0..FORGED).map(forge).collect()
    }

    /// Genuine inits of all mobiles as they were an hour ago.
    pub(super) fn recorded(&self) -> Result<Vec<Vec<u8>>> {
        let then = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() - AGE;
        let then = then.as_nanos() as u64;
        let each = (0..RECORDED).flat_map(|n| self.mobiles.iter().map(move |keys| (n, keys)));
        each.map(|(n, keys)| Ok(self.init(keys, n, then + n)?.datagram().to_vec())).collect()
    }

    /// The insider's own, with the greatest stamps that there are, one for each of `count` as far as that can be.
    pub(super) fn insider(&self, count: u64) -> Result<Vec<Initiator>> {
        let keys = self.mobiles.last().context("there is no insider")?;
        let count = count.min(FRESH_MAX);
        (0..count).map(|n| self.init(keys, n, u64::MAX - count + n)).collect()
    }

    fn init(&self, keys: &Keypair, n: u64, stamp: u64) -> Result<Initiator> {
        let limits = Limits::new(&LIMITS).context("the limits do not fit")?;
        let hello = Hello { receiver: n as u32, fast_aes: true, stamp, limits };
        let seed = self.seed.child(&format!("{} {n}", keys.public()));
        Initiator::new(keys, &self.base, 0, hello, seed).context("making a handshake")
    }
}

/// Datagrams of all kinds, and of none, with nothing sensible in them.
pub(crate) fn garbage(seed: Seed) -> Vec<Vec<u8>> {
    let mut random = seed.stream("garbage");
    let datagram = |_| {
        let len = 1 + random.below(LONGEST) as usize;
        let mut datagram = bytes(&mut random, len);
        // The right version, and any kind.
        datagram[0] = 0x10 | datagram[0] & 0xf;
        datagram
    };
    (0..FORGED).map(datagram).collect()
}

/// Data for associations that do not exist.
pub(crate) fn unknown(seed: Seed) -> Vec<Vec<u8>> {
    let mut random = seed.stream("unknown");
    let datagram = |_| {
        let header = DataHeader::new(0, random.next_u64() as u32, random.next_u64());
        let len = 100 + random.below(LONGEST - 100) as usize;
        [&header.to_bytes()[..], &bytes(&mut random, len)].concat()
    };
    (0..FORGED).map(datagram).collect()
}

/// Random bytes where `split-tcp` expects its own.
pub(super) fn garbage_on_connections(seed: Seed) -> Vec<Vec<u8>> {
    let mut random = seed.stream("garbage");
    (0..FORGED).map(|_| bytes(&mut random, 200)).collect()
}

/// Handshakes as `split-tcp` begins with them.
pub(super) fn on_connections(inits: impl Iterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
    inits.map(|init| [&CONTROL[..], &(init.len() as u16).to_be_bytes(), &init].concat()).collect()
}

/// Streams of associations that `split-tcp` does not have.
pub(super) fn unknown_on_connections(seed: Seed) -> Vec<Vec<u8>> {
    let mut random = seed.stream("unknown");
    let stream = |_| [&STREAM[..], &bytes(&mut random, 4 + 8 + 200)].concat();
    (0..FORGED).map(stream).collect()
}

/// Random bytes.
pub(super) fn bytes(random: &mut Stream, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    random.fill(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use lasthop_hop::{Base, BaseStats, HopConfig};
    use lasthop_units::Time;

    use super::*;

    /// What a base makes of the first few.
    fn told(messages: impl IntoIterator<Item = Vec<u8>>) -> BaseStats {
        let [base, mobiles @ ..] = pairs();
        let allowed = mobiles.iter().map(|m| *m.public()).collect();
        let seed = Seed::from_u64(9);
        let mut base: Base<u16> = Base::new(HopConfig::default(), base, allowed, seed);
        for mut message in messages.into_iter().take(20) {
            base.handle_datagram(Time::ZERO, 1, &mut message);
        }
        base.stats()
    }

    fn pairs() -> [Keypair; 3] {
        [1, 2, 3].map(|n| Keypair::generate(Seed::from_u64(n)))
    }

    fn handshakes() -> Handshakes {
        let [base, mobiles @ ..] = pairs();
        Handshakes::new(*base.public(), mobiles.to_vec(), Seed::from_u64(4))
    }

    #[test]
    fn a_base_answers_what_is_genuine_and_calculates_for_what_is_forged() {
        let insider = handshakes().insider(20).unwrap();
        assert_eq!(told(insider.iter().map(|init| init.datagram().to_vec())).handshakes, 20);
        assert_eq!(told(handshakes().recorded().unwrap()).handshakes, 20);
        // It is refused after the keyed hash, or a cookie would never be demanded.
        let forged = handshakes().forged();
        let many = told(forged.iter().chain(&forged).take(20).cloned());
        assert_eq!((many.refused, many.handshakes), (20, 0));
        let [base, ..] = pairs();
        let responder = lasthop_hop::seal::Responder::new(base, Seed::from_u64(5));
        assert!(forged.iter().all(|init| responder.check(init).is_ok()));
    }

    #[test]
    fn what_is_random_is_refused() {
        for messages in [garbage(Seed::from_u64(1)), unknown(Seed::from_u64(1))] {
            let stats = told(messages);
            assert_eq!((stats.refused, stats.handshakes), (20, 0));
        }
    }

    #[test]
    fn stamps_only_grow_while_a_flood_lasts() {
        let spread = Order::Spread(1000);
        let places: Vec<usize> = (0..1000).map(|n| spread.place(n, 300)).collect();
        assert!(places.is_sorted() && places[999] == 299);
        assert_eq!([0, 299, 300, 301].map(|n| Order::Cycled.place(n, 300)), [0, 299, 0, 1]);
        assert_eq!(Order::Spread(100).place(299, 300), 299);
    }
}
