//! A base, a mobile that waits for a reply, and an opening key, on any bytes: nothing panics, and
//! nothing that was not made with the right secret is believed.

use std::sync::{LazyLock, Mutex};

use blake2::digest::consts::U16;
use blake2::digest::{FixedOutput, KeyInit, Update};
use blake2::{Blake2s256, Blake2sMac, Digest};
use lasthop_hop::seal::{Hello, Initiator, Keypair, Limits, OpeningKey, PresharedKey, Responder};
use lasthop_units::{Seed, Time};
use lasthop_wire::datagram::{Kind, MAC_LEN};

struct Handshake {
    mobile: Initiator,
    base: Responder,
    opening: OpeningKey,
    /// A genuine init and its reply.
    genuine: [Vec<u8>; 2],
    mac_key: [u8; 32],
}

fn hello(receiver: u32) -> Hello {
    Hello { receiver, fast_aes: false, stamp: 1, limits: Limits::NONE }
}

impl Handshake {
    fn new() -> Self {
        let [mobile, base] = [1, 2].map(|n| Keypair::generate(Seed::from_u64(n)));
        let public = *base.public();
        let mobile = Initiator::new(&mobile, &public, 0, hello(1), Seed::from_u64(3));
        let psk = PresharedKey::generate(Seed::from_u64(5));
        let mobile = mobile.expect("usable key").with_psk(&psk);
        let mut base = Responder::new(base, Seed::from_u64(4));

        let mut reply = vec![0; 300];
        let request = base.read(mobile.datagram()).expect("genuine").with_psk(psk);
        let (len, keys) = request.accept(&hello(2), &mut reply).expect("room");
        reply.truncate(len);

        let genuine = [mobile.datagram().to_vec(), reply];
        let mac_key = Blake2s256::new().chain(b"lasthop mac1").chain(public.as_bytes());
        Self { mobile, base, opening: keys.recv, genuine, mac_key: mac_key.finalize().into() }
    }

    /// What anybody can do who knows the base's public key. In an init the hash that shows a cookie follows.
    fn make_mac_right(&self, message: &mut [u8]) {
        let is_init = Kind::of(message) == Ok(Kind::HandshakeInit);
        let end = message.len().saturating_sub(if is_init { MAC_LEN } else { 0 });
        let Some((message, place)) = message[..end].split_last_chunk_mut::<MAC_LEN>() else {
            return;
        };
        let mac = <Blake2sMac<U16> as KeyInit>::new((&self.mac_key).into());
        place.copy_from_slice(&mac.chain(message).finalize_fixed());
    }

    fn try_all(&mut self, message: &mut [u8], number: u64) {
        let [init, reply] = &self.genuine;
        // It is the same init whatever cookie it shows.
        let same_init = message.len() == init.len()
            && init
                .split_last_chunk::<MAC_LEN>()
                .is_some_and(|(init, _)| message.starts_with(init));
        if same_init || reply == message {
            return;
        }
        let _ = self.base.check(message);
        assert!(!self.base.shows_cookie(Time::ZERO, &[1; 8], message));
        assert!(self.mobile.take_cookie(message).is_none());
        assert!(self.base.read(message).is_err());
        assert!(self.mobile.finish(message).is_err());
        if let Ok(request) = Responder::unsealed().read(message) {
            assert!(request.accept(&hello(2), &mut [0; 300]).is_ok());
        }
        assert!(self.opening.open_in_place(number, &[], message).is_err());
    }
}

static WORLD: LazyLock<Mutex<Handshake>> = LazyLock::new(|| Mutex::new(Handshake::new()));

/// One input. The first byte chooses whether the rest stands alone or is laid over a genuine message,
/// and whether its keyed hash is made right, which is the only way to what lies behind that hash.
pub fn run(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else { return };
    let mut world = WORLD.lock().expect("no panic before");
    let mut message = match world.genuine.get(usize::from(choice >> 1) % 3) {
        None => bytes.to_vec(),
        Some(genuine) => {
            let mut message = genuine.clone();
            message.iter_mut().zip(bytes).for_each(|(byte, change)| *byte ^= change);
            message
        }
    };
    if choice & 1 == 1 {
        world.make_mac_right(&mut message);
    }
    world.try_all(&mut message, u64::from(choice) << 22);
}
