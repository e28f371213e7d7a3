//! A mobile's grants: by whose word a base gives a session away, and to whom.
//!
//! A grant is a keyed hash under a key that only a mobile and one base can compute, from their
//! static keys alone. So it proves to that base, the holder, that the mobile wants its session to
//! go to a certain other base in a certain handoff. It names that other base, so that it is of no
//! use to whoever steals it, and the handoff, so that it is of no use later.

use blake2::digest::consts::U16;
use blake2::digest::{Digest, FixedOutput, KeyInit, Mac};
use blake2::{Blake2s256, Blake2sMac};
use lasthop_wire::mhp::handoff::{Grant, SessionId};
use zeroize::Zeroizing;

use super::keys::{Keypair, PublicKey};

const LABEL: &[u8] = b"lasthop handoff grant";

/// What a mobile and one holder make and check grants with. It is wiped when dropped.
///
/// To make one takes a Diffie-Hellman, to use it a hash.
#[derive(Clone)]
pub struct GrantKey(Zeroizing<[u8; 32]>);

impl GrantKey {
    /// The mobile's, for grants that `holder` will check; `None` if that is no usable key (it has
    /// low order).
    pub fn of_mobile(mobile: &Keypair, holder: &PublicKey) -> Option<Self> {
        Self::derive(mobile, holder, mobile.public(), holder)
    }

    /// The holder's, for grants that `mobile` makes; `None` as in [`of_mobile`](Self::of_mobile).
    pub fn of_holder(holder: &Keypair, mobile: &PublicKey) -> Option<Self> {
        Self::derive(holder, mobile, mobile, holder.public())
    }

    fn derive(
        own: &Keypair,
        peer: &PublicKey,
        mobile: &PublicKey,
        holder: &PublicKey,
    ) -> Option<Self> {
        let shared = Zeroizing::new(own.secret().agree(*peer.as_bytes())?);
        let hash = Blake2s256::new()
            .chain_update(LABEL)
            .chain_update(&shared[..])
            .chain_update(mobile.as_bytes())
            .chain_update(holder.as_bytes());
        Some(Self(Zeroizing::new(hash.finalize().into())))
    }

    /// The mobile's word: in that handoff of the session it goes from the holder to `to`.
    pub fn grant(&self, session: SessionId, attempt: u32, to: &PublicKey) -> Grant {
        Grant(self.keyed(session, attempt, to).finalize_fixed().into())
    }

    /// Whether `grant` is that word. Compares in constant time.
    pub fn verify(&self, session: SessionId, attempt: u32, to: &PublicKey, grant: &Grant) -> bool {
        self.keyed(session, attempt, to).verify_slice(&grant.0).is_ok()
    }

    fn keyed(&self, session: SessionId, attempt: u32, to: &PublicKey) -> Blake2sMac<U16> {
        <Blake2sMac<U16> as KeyInit>::new((&*self.0).into())
            .chain_update(session.0.to_be_bytes())
            .chain_update(attempt.to_be_bytes())
            .chain_update(to.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use lasthop_units::Seed;

    use super::*;

    const SESSION: SessionId = SessionId(0x1234);

    fn pair(n: u64) -> Keypair {
        Keypair::generate(Seed::from_u64(n))
    }

    #[test]
    fn the_holder_believes_the_mobiles_grant() {
        let (mobile, holder, to) = (pair(1), pair(2), pair(3));
        let grant = GrantKey::of_mobile(&mobile, holder.public()).expect("a usable key").grant(
            SESSION,
            7,
            to.public(),
        );
        let key = GrantKey::of_holder(&holder, mobile.public()).expect("a usable key");
        assert!(key.verify(SESSION, 7, to.public(), &grant));
    }

    #[test]
    fn a_grant_is_good_for_one_base_in_one_handoff_of_one_session() {
        let (mobile, holder, to) = (pair(1), pair(2), pair(3));
        let key = GrantKey::of_mobile(&mobile, holder.public()).expect("a usable key");
        let grant = key.grant(SESSION, 7, to.public());
        assert!(!key.verify(SESSION, 8, to.public(), &grant), "another handoff");
        assert!(!key.verify(SESSION, 6, to.public(), &grant), "an earlier one");
        assert!(!key.verify(SessionId(1), 7, to.public(), &grant), "another session");
        assert!(!key.verify(SESSION, 7, pair(4).public(), &grant), "another base");
        for bit in 0..8 * Grant::LEN {
            let mut forged = grant;
            forged.0[bit / 8] ^= 1 << (bit % 8);
            assert!(!key.verify(SESSION, 7, to.public(), &forged));
        }
    }

    #[test]
    fn nobody_but_the_mobile_and_the_holder_can_make_one() {
        let (mobile, holder, to) = (pair(1), pair(2), pair(3));
        let key = GrantKey::of_holder(&holder, mobile.public()).expect("a usable key");
        let others = [
            GrantKey::of_mobile(&to, holder.public()),
            GrantKey::of_holder(&to, mobile.public()),
            // The two in each other's place.
            GrantKey::of_mobile(&holder, mobile.public()),
            GrantKey::of_holder(&mobile, holder.public()),
            GrantKey::of_mobile(&mobile, to.public()),
        ];
        for other in others.into_iter().flatten() {
            assert!(!key.verify(SESSION, 7, to.public(), &other.grant(SESSION, 7, to.public())));
        }
    }

    #[test]
    fn a_key_of_low_order_grants_nothing() {
        let none = PublicKey::from_bytes([0; 32]);
        assert!(GrantKey::of_mobile(&pair(1), &none).is_none());
        assert!(GrantKey::of_holder(&pair(1), &none).is_none());
    }
}
