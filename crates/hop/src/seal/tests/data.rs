use alloc::vec::Vec;

use lasthop_wire::datagram::{DataHeader, TAG_LEN};
use proptest::prelude::*;

use super::super::aead::EPOCH_BITS;
use super::*;

const EPOCH: u64 = 1 << EPOCH_BITS;

fn header(number: u64) -> [u8; 10] {
    DataHeader::new(0, 20, number).to_bytes()
}

/// Seals `plaintext` as packet `number` and returns ciphertext and tag.
fn seal(key: &mut SealingKey, number: u64, plaintext: &[u8]) -> Result<Vec<u8>, SealError> {
    let mut out = plaintext.to_vec();
    let mut tag = [0; TAG_LEN];
    let n = key.seal_in_place(number, &header(number), &mut out, &mut tag)?;
    out.extend_from_slice(&tag[..n]);
    Ok(out)
}

fn open(key: &mut OpeningKey, number: u64, sealed: &[u8]) -> Result<Vec<u8>, Forged> {
    let mut bytes = sealed.to_vec();
    key.open_in_place(number, &header(number), &mut bytes).map(|plain| plain.to_vec())
}

fn both_ciphers() -> [Pair; 2] {
    [Pair::sealed((true, true)), Pair::sealed((true, false))]
}

#[test]
fn aes_is_used_only_if_both_sides_have_it() {
    let used = |ours, theirs| Pair::sealed((ours, theirs)).mobile.send.cipher();
    assert_eq!(used(true, true), Some(Cipher::Aes256Gcm));
    for (ours, theirs) in [(true, false), (false, true), (false, false)] {
        assert_eq!(used(ours, theirs), Some(Cipher::ChaCha20Poly1305));
    }
}

#[test]
fn data_pass_in_both_directions() {
    for mut pair in both_ciphers() {
        let up = seal(&mut pair.mobile.send, 0, b"up").expect("sealed");
        let down = seal(&mut pair.base.send, 0, b"down").expect("sealed");
        assert_ne!(&up[..2], b"up");
        assert_eq!(open(&mut pair.base.recv, 0, &up).as_deref(), Ok(&b"up"[..]));
        assert_eq!(open(&mut pair.mobile.recv, 0, &down).as_deref(), Ok(&b"down"[..]));
    }
}

#[test]
fn the_directions_have_different_keys() {
    for mut pair in both_ciphers() {
        let up = seal(&mut pair.mobile.send, 0, b"up").expect("sealed");
        assert_eq!(open(&mut pair.mobile.recv, 0, &up), Err(Forged), "reflected");
    }
}

#[test]
fn a_change_of_any_byte_is_noticed() {
    for mut pair in both_ciphers() {
        let sealed = seal(&mut pair.mobile.send, 5, b"twenty bytes of data").expect("sealed");
        for at in 0..sealed.len() {
            let mut bad = sealed.clone();
            bad[at] ^= 1;
            assert_eq!(open(&mut pair.base.recv, 5, &bad), Err(Forged), "byte {at}");
        }
        for at in 0..header(5).len() {
            let mut bad = header(5);
            bad[at] ^= 0x80;
            let mut bytes = sealed.clone();
            assert!(pair.base.recv.open_in_place(5, &bad, &mut bytes).is_err(), "header {at}");
        }
        for len in 0..sealed.len() {
            assert_eq!(open(&mut pair.base.recv, 5, &sealed[..len]), Err(Forged), "length {len}");
        }
        assert_eq!(open(&mut pair.base.recv, 6, &sealed), Err(Forged), "another number");
        assert!(open(&mut pair.base.recv, 5, &sealed).is_ok(), "and the genuine one still opens");
    }
}

#[test]
fn a_replayed_datagram_is_refused_by_the_window() {
    let mut pair = Pair::sealed((true, true));
    let mut window = ReplayWindow::new();
    let sealed = seal(&mut pair.mobile.send, 9, b"once").expect("sealed");
    assert!(window.check(9) && open(&mut pair.base.recv, 9, &sealed).is_ok() && window.accept(9));
    assert!(!window.check(9));
}

#[test]
fn a_number_is_never_sealed_twice() {
    let unsealed = Pair::unsealed();
    for mut pair in both_ciphers().into_iter().chain([unsealed]) {
        let key = &mut pair.mobile.send;
        assert!(seal(key, 3, b"").is_ok());
        assert_eq!(seal(key, 3, b""), Err(SealError::Reused(3)));
        assert_eq!(seal(key, 0, b""), Err(SealError::Reused(0)));
        assert!(seal(key, 4, b"").is_ok());
    }
}

#[test]
fn a_refused_number_is_not_used_up() {
    let mut pair = Pair::sealed((true, true));
    let key = &mut pair.mobile.send;
    let mut plain = *b"plain";
    let refused = key.seal_in_place(0, &header(0), &mut plain, &mut [0; TAG_LEN - 1]);
    assert_eq!(refused, Err(SealError::NoRoom));
    assert_eq!(&plain, b"plain");
    assert!(seal(key, 0, b"plain").is_ok());
}

#[test]
fn keys_change_with_the_epoch_of_the_number() {
    for mut pair in both_ciphers() {
        let numbers = [EPOCH - 2, EPOCH - 1, EPOCH, EPOCH + 1, 2 * EPOCH - 1, 2 * EPOCH];
        let sealed = numbers.map(|n| seal(&mut pair.mobile.send, n, b"data").expect("sealed"));
        // The last of an epoch is overtaken by the first of the next and still opens.
        for i in [0, 2, 1, 3, 5, 4] {
            let opened = open(&mut pair.base.recv, numbers[i], &sealed[i]);
            assert_eq!(opened.as_deref(), Ok(&b"data"[..]), "{}", numbers[i]);
        }
        // Two epochs back the key is gone.
        assert_eq!(open(&mut pair.base.recv, numbers[1], &sealed[1]), Err(Forged));
    }
}

#[test]
fn a_forged_number_of_the_next_epoch_does_not_move_the_receiver() {
    let mut pair = Pair::sealed((true, true));
    for number in [EPOCH, 2 * EPOCH, u64::MAX] {
        assert_eq!(open(&mut pair.base.recv, number, &[7; 40]), Err(Forged));
    }
    let sealed = seal(&mut pair.mobile.send, 0, b"data").expect("sealed");
    assert!(open(&mut pair.base.recv, 0, &sealed).is_ok());
}

#[test]
fn a_sender_does_not_skip_an_epoch() {
    let mut pair = Pair::sealed((true, true));
    let key = &mut pair.mobile.send;
    assert_eq!(seal(key, 2 * EPOCH, b""), Err(SealError::Skipped(2 * EPOCH)));
    assert_eq!(seal(key, u64::MAX, b""), Err(SealError::Skipped(u64::MAX)));
    assert!(seal(key, 2 * EPOCH - 1, b"").is_ok());
    assert!(seal(key, 2 * EPOCH, b"").is_ok());
    assert_eq!(seal(key, EPOCH, b""), Err(SealError::Reused(EPOCH)));
}

#[test]
fn an_unsealed_hop_adds_no_tag_and_hides_nothing() {
    let mut pair = Pair::unsealed();
    assert_eq!((pair.mobile.send.tag_len(), pair.mobile.send.cipher()), (0, None));
    let sealed = seal(&mut pair.mobile.send, 0, b"plain").expect("passed on");
    assert_eq!(sealed, b"plain");
    assert_eq!(open(&mut pair.base.recv, 0, &sealed).as_deref(), Ok(&b"plain"[..]));
}

proptest! {
    #[test]
    fn whatever_is_sealed_opens_and_nothing_else_does(
        fast_aes: bool,
        number in 0..EPOCH * 2,
        plain in proptest::collection::vec(any::<u8>(), 0..2000),
        noise in proptest::collection::vec(any::<u8>(), 0..2000),
    ) {
        let mut pair = Pair::sealed((fast_aes, fast_aes));
        let sealed = seal(&mut pair.mobile.send, number, &plain).expect("sealed");
        prop_assert_eq!(sealed.len(), plain.len() + TAG_LEN);
        prop_assert_eq!(open(&mut pair.base.recv, number, &noise), Err(Forged));
        prop_assert_eq!(open(&mut pair.base.recv, number, &sealed), Ok(plain));
    }
}
