use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use lasthop_units::Time;
use lasthop_wire::datagram::{
    DATA_HEADER_LEN, DatagramError, HandshakeInit, HandshakeReply, Kind, MAC_LEN, MAX_LIMITS,
};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, params};

use super::super::aead::EPOCH_BITS;
use super::super::noise::{PATTERN, prologue};
use super::{
    HandshakeError, Hello, Initiator, Keypair, Keys, MAX_REPLY_LEN, Pair, PresharedKey, PublicKey,
    Responder, Seed, hello, keypair,
};

/// Packet numbers of one key.
const EPOCH: u64 = 1 << EPOCH_BITS;

fn initiator(base: &Keypair, seed: u64) -> Initiator {
    let hello = hello(10, true, b"mobile");
    Initiator::new(&keypair(1), base.public(), 0, hello, Seed::from_u64(seed)).expect("usable key")
}

fn responder(seed: u64) -> Responder {
    Responder::new(keypair(2), Seed::from_u64(seed))
}

/// The reply to `init`, and the base's candidate keys.
fn reply_to(responder: &mut Responder, init: &[u8]) -> (Vec<u8>, Keys) {
    reply_with(&PresharedKey::default(), responder, init)
}

/// The same of a base that shares `psk` with the mobile.
fn reply_with(psk: &PresharedKey, responder: &mut Responder, init: &[u8]) -> (Vec<u8>, Keys) {
    let request = responder.read(init).expect("authentic init").with_psk(psk.clone());
    let mut out = vec![0; MAX_REPLY_LEN];
    let (len, keys) = request.accept(&hello(20, true, b"base"), &mut out).expect("room");
    out.truncate(len);
    (out, keys)
}

fn seal(keys: &mut Keys, number: u64) -> Vec<u8> {
    let (mut body, mut tag) = (b"data".to_vec(), [0; 16]);
    keys.send.seal_in_place(number, &[], &mut body, &mut tag).expect("sealed");
    body.extend_from_slice(&tag);
    body
}

/// Recomputes the keyed hash, as anybody can who knows the base's public key.
fn with_right_mac(message: Vec<u8>) -> Vec<u8> {
    with_right_mac_before(message, 0)
}

/// The same in an init, where the hash that shows a cookie follows.
fn with_right_init_mac(message: Vec<u8>) -> Vec<u8> {
    with_right_mac_before(message, MAC_LEN)
}

fn with_right_mac_before(mut message: Vec<u8>, behind: usize) -> Vec<u8> {
    use blake2::digest::{FixedOutput, KeyInit, Update, consts::U16};
    use blake2::{Blake2s256, Blake2sMac, Digest};
    let mut key = Blake2s256::new();
    Digest::update(&mut key, b"lasthop mac1");
    Digest::update(&mut key, keypair(2).public().as_bytes());
    let mut mac = <Blake2sMac<U16> as KeyInit>::new(&key.finalize());
    let end = message.len() - behind;
    let at = end - MAC_LEN;
    mac.update(&message[..at]);
    message[at..end].copy_from_slice(&mac.finalize_fixed());
    message
}

#[test]
fn both_sides_learn_who_and_what_the_other_is() {
    // The assertions are in the fixture.
    Pair::sealed((true, false));
    Pair::unsealed();
}

#[test]
fn an_init_for_another_base_is_refused_by_its_hash() {
    let init = initiator(&keypair(3), 5);
    let mut responder = responder(4);
    assert_eq!(responder.check(init.datagram()), Err(HandshakeError::WrongBase));
    assert_eq!(responder.read(init.datagram()).err(), Some(HandshakeError::WrongBase));
    let forced = with_right_init_mac(init.datagram().to_vec());
    assert!(responder.check(&forced).is_ok());
    assert_eq!(responder.read(&forced).err(), Some(HandshakeError::NotAuthentic));
}

#[test]
fn a_base_with_another_secret_cannot_reply() {
    let mut init = initiator(&keypair(2), 5);
    let theirs = initiator(&keypair(3), 5);
    let mut impostor = Responder::new(keypair(3), Seed::from_u64(4));
    let (reply, _) = reply_to(&mut impostor, theirs.datagram());
    assert_eq!(init.finish(&reply).err(), Some(HandshakeError::WrongBase));
    let forced = with_right_mac(reply);
    assert_eq!(init.finish(&forced).err(), Some(HandshakeError::NotAuthentic));
}

#[test]
fn a_change_of_any_byte_of_an_init_is_noticed() {
    let init = initiator(&keypair(2), 5);
    let mut responder = responder(4);
    // Behind them is the hash that shows a cookie: none is demanded here.
    for at in 0..init.datagram().len() - MAC_LEN {
        let mut bad = init.datagram().to_vec();
        bad[at] ^= 0x40;
        assert!(responder.check(&bad).is_err(), "byte {at}");
        assert!(responder.read(&bad).is_err(), "byte {at}");
        if at < bad.len() - 2 * MAC_LEN {
            let forced = with_right_init_mac(bad);
            assert!(responder.read(&forced).is_err(), "byte {at} with the hash made right");
        }
    }
    assert!(responder.read(init.datagram()).is_ok());
}

#[test]
fn a_change_of_any_byte_of_a_reply_is_noticed_and_spoils_nothing() {
    let mut init = initiator(&keypair(2), 5);
    let (reply, _) = reply_to(&mut responder(4), init.datagram());
    for at in 0..reply.len() {
        let mut bad = reply.clone();
        bad[at] ^= 0x40;
        assert!(init.finish(&bad).is_err(), "byte {at}");
        if at < bad.len() - 16 {
            let forced = with_right_mac(bad);
            assert!(init.finish(&forced).is_err(), "byte {at} with the hash made right");
        }
    }
    assert!(init.finish(&reply).is_ok());
}

#[test]
fn a_reply_finishes_one_handshake_once() {
    let mut init = initiator(&keypair(2), 5);
    let mut other = initiator(&keypair(2), 6);
    let (reply, _) = reply_to(&mut responder(4), init.datagram());
    assert_eq!(other.finish(&reply).err(), Some(HandshakeError::NotAuthentic));
    assert!(init.finish(&reply).is_ok());
    assert_eq!(init.finish(&reply).err(), Some(HandshakeError::Finished));
}

#[test]
fn a_reply_to_another_receiver_costs_no_diffie_hellman() {
    let mut init = initiator(&keypair(2), 5);
    let (mut reply, _) = reply_to(&mut responder(4), init.datagram());
    reply[5] ^= 1;
    let forced = with_right_mac(reply);
    assert_eq!(init.finish(&forced).err(), Some(HandshakeError::OtherHandshake));
}

#[test]
fn a_replayed_init_yields_keys_that_open_nothing_recorded() {
    let mut init = initiator(&keypair(2), 5);
    let recorded_init = init.datagram().to_vec();
    let mut responder = responder(4);
    let print = responder.check(&recorded_init).expect("well formed");
    let (reply, mut genuine) = reply_to(&mut responder, &recorded_init);
    let mut mobile = init.finish(&reply).expect("authentic").keys;
    let mut recorded_data = seal(&mut mobile, 0);

    // The attacker sends both again.
    assert_eq!(responder.check(&recorded_init), Ok(print));
    let (_, mut candidate) = reply_to(&mut responder, &recorded_init);
    let mut replay = recorded_data.clone();
    assert!(candidate.recv.open_in_place(0, &[], &mut replay).is_err());
    assert!(genuine.recv.open_in_place(0, &[], &mut recorded_data).is_ok());
}

#[test]
fn fingerprints_tell_inits_apart() {
    let responder = responder(4);
    let prints: BTreeSet<_> = (0..20)
        .map(|seed| responder.check(initiator(&keypair(2), seed).datagram()).expect("ours"))
        .map(|print| alloc::format!("{print:?}"))
        .collect();
    assert_eq!(prints.len(), 20);
}

#[test]
fn a_sealed_side_never_takes_an_unsealed_message() {
    let plain = || Initiator::unsealed(keypair(1).public(), 0, hello(10, true, b"")).expect("room");
    let kind = |k: Kind| Some(HandshakeError::Malformed(DatagramError::Kind(k as u8)));
    assert_eq!(responder(4).read(plain().datagram()).err(), kind(Kind::PlainInit));
    let mut sealed = initiator(&keypair(2), 5);
    assert_eq!(Responder::unsealed().read(sealed.datagram()).err(), kind(Kind::HandshakeInit));

    let (plain_reply, _) = reply_to(&mut Responder::unsealed(), plain().datagram());
    assert_eq!(sealed.finish(&plain_reply).err(), kind(Kind::PlainReply));
    let (reply, _) = reply_to(&mut responder(4), sealed.datagram());
    assert_eq!(plain().finish(&reply).err(), kind(Kind::HandshakeReply));
}

#[test]
fn a_low_order_key_makes_no_handshake() {
    let low = PublicKey::from_bytes([0; 32]);
    let made = Initiator::new(&keypair(1), &low, 0, hello(1, true, b""), Seed::from_u64(1));
    assert_eq!(made.err(), Some(HandshakeError::UnusableKey));
}

#[test]
fn a_short_output_is_an_error() {
    let sealed = initiator(&keypair(2), 5);
    let plain = Initiator::unsealed(keypair(1).public(), 0, hello(10, true, b"")).expect("room");
    for (mut responder, init, needed) in
        [(responder(4), &sealed, 88), (Responder::unsealed(), &plain, 24)]
    {
        for len in 0..=needed {
            let request = responder.read(init.datagram()).expect("well formed");
            let made = request.accept(&hello(20, true, b"base"), &mut vec![0; len]);
            let expected = if len < needed { Err(HandshakeError::NoRoom) } else { Ok(needed) };
            assert_eq!(made.map(|(n, _)| n), expected);
        }
    }
}

#[test]
fn everything_follows_from_the_seeds() {
    let run = |mobile: u64, base: u64| {
        let mut init = initiator(&keypair(2), mobile);
        let (reply, _) = reply_to(&mut responder(base), init.datagram());
        let mut keys = init.finish(&reply).expect("authentic").keys;
        (init.datagram().to_vec(), reply, seal(&mut keys, 0))
    };
    assert_eq!(run(5, 4), run(5, 4));
    assert_ne!(run(5, 4).0, run(6, 4).0);
    assert_eq!(run(5, 4).0, run(5, 8).0);
    assert_ne!(run(5, 4).1, run(5, 8).1);
}

/// Limits of the greatest length fit.
#[test]
fn the_longest_limits_pass() {
    let long = [9; MAX_LIMITS];
    let base = keypair(2);
    let seed = Seed::from_u64(5);
    let mut init = Initiator::new(&keypair(1), base.public(), 0, hello(10, true, &long), seed)
        .expect("usable key");
    let request = responder(4).read(init.datagram()).expect("authentic");
    assert_eq!(*request.hello().limits, long);
    let mut out = [0; MAX_REPLY_LEN];
    let (len, _) = request.accept(&hello(20, true, &long), &mut out).expect("room");
    assert_eq!(len, MAX_REPLY_LEN);
    assert_eq!(*init.finish(&out[..len]).expect("authentic").hello.limits, long);
}

/// `snow`'s own primitives with the ephemeral key fixed, as an oracle for our resolver: messages
/// and keys must be those of an implementation that knows nothing of ours.
#[test]
fn the_handshake_is_noise_ik_as_snow_alone_does_it() {
    /// Gives out the ephemeral secret that our initiator drew.
    struct Plain;
    struct NoRandom;
    impl Random for NoRandom {
        fn try_fill_bytes(&mut self, _: &mut [u8]) -> Result<(), snow::Error> {
            Err(snow::Error::Rng)
        }
    }
    impl CryptoResolver for Plain {
        fn resolve_rng(&self) -> Option<Box<dyn Random>> {
            Some(Box::new(NoRandom))
        }
        fn resolve_dh(&self, c: &params::DHChoice) -> Option<Box<dyn Dh>> {
            DefaultResolver.resolve_dh(c)
        }
        fn resolve_hash(&self, c: &params::HashChoice) -> Option<Box<dyn Hash>> {
            DefaultResolver.resolve_hash(c)
        }
        fn resolve_cipher(&self, c: &params::CipherChoice) -> Option<Box<dyn Cipher>> {
            DefaultResolver.resolve_cipher(c)
        }
    }

    for psk in &[PresharedKey::default(), psk(6)] {
        let (mobile, base) = (keypair(1), keypair(2));
        let mut ephemeral = [0; 32];
        Seed::from_u64(5).stream("noise").fill(&mut ephemeral);
        let mut oracle = Builder::with_resolver(PATTERN.parse().expect("pattern"), Box::new(Plain))
            .local_private_key(mobile.secret().as_bytes())
            .and_then(|b| b.remote_public_key(base.public().as_bytes()))
            .and_then(|b| b.prologue(b"lasthop\x01\x00"))
            .and_then(|b| b.psk(2, psk.as_bytes()))
            .map(|b| b.fixed_ephemeral_key_for_testing_only(&ephemeral))
            .and_then(Builder::build_initiator)
            .expect("oracle");
        assert_eq!(prologue(0), *b"lasthop\x01\x00");
        let mut payload = [0; Hello::MAX_LEN];
        let n = hello(10, true, b"mobile").emit(&mut payload).expect("room");
        let mut message = [0; 300];
        let n = oracle.write_message(&payload[..n], &mut message).expect("written");

        let init = initiator(&base, 5);
        let view = HandshakeInit::new_checked(init.datagram()).expect("well formed");
        assert_eq!(view.noise(), &message[..n]);

        let (reply, mut keys) = reply_with(psk, &mut responder(4), init.datagram());
        let view = HandshakeReply::new_checked(&reply[..]).expect("well formed");
        let n = oracle.read_message(view.noise(), &mut payload).expect("authentic");
        assert_eq!(Hello::parse(&payload[..n]), Ok(hello(20, true, b"base")));

        // The data keys follow from the split, by the formula in docs/seal.md.
        let (_, secret) = oracle.dangerously_get_raw_split();
        let next_secret = keyed_blake2s(&secret, b"next epoch");
        for (number, secret) in [(3, secret), (EPOCH + 3, next_secret)] {
            let key = keyed_blake2s(&secret, b"AES-256-GCM");
            assert_eq!(open_aes(&key, number, seal(&mut keys, number)), b"data");
        }
    }
}

fn keyed_blake2s(key: &[u8; 32], message: &[u8]) -> [u8; 32] {
    use blake2::digest::{FixedOutput, KeyInit, Update};
    blake2::Blake2sMac256::new(key.into()).chain(message).finalize_fixed().into()
}

/// Opens what was sealed with no header.
fn open_aes(key: &[u8], number: u64, mut sealed: Vec<u8>) -> Vec<u8> {
    use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).expect("length"));
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    let nonce = Nonce::assume_unique_for_key(nonce);
    key.open_in_place(nonce, Aad::empty(), &mut sealed).expect("authentic").to_vec()
}

/// SEC-40: an eavesdropper who knows every X25519 secret of both ends does not know the keys of data.
#[test]
fn the_keys_of_data_follow_from_the_pre_shared_key_where_all_else_is_the_same() {
    let psks = [PresharedKey::default(), psk(6), psk(7)];
    let ends = psks.each_ref().map(|psk| {
        // The same seeds: the same ephemeral keys.
        let init = initiator(&keypair(2), 5).with_psk(psk);
        let (reply, base) = reply_with(psk, &mut responder(4), init.datagram());
        let sent = init.datagram().to_vec();
        (init, sent, reply, base)
    });
    let mut sealed = Vec::new();
    let mut opening = Vec::new();
    let (first_init, first_reply) = (ends[0].1.clone(), ends[0].2.clone());
    for (mut init, sent, reply, base) in ends {
        // Nothing of it is in the init, nor in the base's ephemeral key, and no message is longer.
        assert_eq!(sent, first_init);
        assert_eq!((reply.len(), &reply[..38]), (first_reply.len(), &first_reply[..38]));
        let mut mobile = init.finish(&reply).expect("authentic").keys;
        sealed.push(seal(&mut mobile, 3));
        opening.push(base);
    }
    for (n, base) in opening.iter_mut().enumerate() {
        for (m, sealed) in sealed.iter().enumerate() {
            let opened = base.recv.open_in_place(3, &[], &mut sealed.clone()).is_ok();
            assert_eq!(opened, n == m, "{n} {m}");
        }
    }
    assert!(sealed.iter().collect::<BTreeSet<_>>().len() == psks.len());
}

/// SEC-41: a pre-shared key that is another, or only at one end, is noticed by the mobile, whose handshake goes on.
#[test]
fn a_reply_that_was_made_with_another_pre_shared_key_does_not_open_and_spoils_nothing() {
    let psks = [PresharedKey::default(), psk(6), psk(7)];
    for ours in &psks {
        let mut init = initiator(&keypair(2), 5).with_psk(ours);
        for theirs in psks.iter().filter(|theirs| *theirs != ours) {
            let (reply, _) = reply_with(theirs, &mut responder(4), init.datagram());
            assert_eq!(init.finish(&reply).err(), Some(HandshakeError::NotAuthentic));
        }
        let (reply, _) = reply_with(ours, &mut responder(4), init.datagram());
        assert!(init.finish(&reply).is_ok());
    }
}

fn psk(n: u64) -> PresharedKey {
    PresharedKey::generate(Seed::from_u64(n))
}

#[test]
fn a_hundred_thousand_mutated_messages_panic_nowhere_and_open_nothing() {
    let mut random = Seed::from_u64(1).stream("handshakes");
    let mut init = initiator(&keypair(2), 5);
    let mut responder = responder(4);
    let (reply, mut keys) = reply_to(&mut responder, init.datagram());
    let mut data = vec![0x10; DATA_HEADER_LEN];
    data.extend(seal(&mut keys, 0));
    let samples = [init.datagram().to_vec(), reply, data];
    for i in 0..100_000 {
        let sample = &samples[random.below(3) as usize];
        let mut bad = sample.clone();
        bad.resize(random.below(300) as usize, random.next_u64() as u8);
        for _ in 0..random.below(4) {
            if !bad.is_empty() {
                let at = random.below(bad.len() as u64) as usize;
                bad[at] ^= random.next_u64() as u8;
            }
        }
        // Few with the hash made right: each of those costs Diffie-Hellmans.
        if i % 200 == 0 && bad.len() >= 2 * MAC_LEN {
            bad = with_right_mac(bad);
        } else if i % 200 == 1 && bad.len() >= 2 * MAC_LEN {
            bad = with_right_init_mac(bad);
        }
        // An init is the same whatever cookie it shows.
        let covered = samples[0].split_last_chunk::<MAC_LEN>().map(|(covered, _)| covered);
        let shows = |bad: &[u8]| bad.split_last_chunk::<MAC_LEN>().map(|(b, _)| b) == covered;
        if samples.contains(&bad) || shows(&bad) {
            continue;
        }
        assert!(responder.check(&bad).is_err() || i % 200 < 2);
        assert!(responder.read(&bad).is_err());
        assert!(init.finish(&bad).is_err());
        let _ = Responder::unsealed().read(&bad);
        let number = random.below(2 * EPOCH);
        assert!(keys.recv.open_in_place(number, &[], &mut bad).is_err());
    }
}

#[test]
fn a_cookie_shows_one_source_for_some_minutes_and_is_only_for_who_made_the_init() {
    let (mut init, mut responder) = (initiator(&keypair(2), 5), responder(4));
    let (now, source) = (Time::from_nanos(1), [1; 8]);
    let fingerprint = responder.check(init.datagram()).expect("well formed");
    assert!(!responder.shows_cookie(now, &source, init.datagram()));
    let reply = responder.demand_cookie(now, &source, &fingerprint).expect("sealed").to_bytes();
    assert!(reply.len() < init.datagram().len());
    // Another init's maker cannot read it, nor is a changed one believed.
    assert_eq!(initiator(&keypair(2), 6).take_cookie(&reply), None);
    for at in 0..reply.len() {
        let mut forged = reply;
        forged[at] ^= 1;
        // The path's byte says nothing here.
        assert!(at == 1 || init.take_cookie(&forged).is_none(), "byte {at}");
    }
    let cookie = init.take_cookie(&reply).expect("ours");
    init.show(&cookie);
    assert_eq!(responder.check(init.datagram()), Ok(fingerprint), "it is the same init");
    let shown = init.datagram().to_vec();
    let mut shows = |seconds, source: &[u8; 8], init: &[u8]| {
        responder.shows_cookie(now + Duration::from_secs(seconds), source, init)
    };
    assert!(shows(1, &source, &shown) && !shows(1, &[2; 8], &shown));
    let mut forged = shown.clone();
    *forged.last_mut().expect("long") ^= 1;
    assert!(!shows(1, &source, &forged));
    // The secret before counts, and no older one.
    assert!(shows(130, &source, &shown) && !shows(251, &source, &shown));
}
