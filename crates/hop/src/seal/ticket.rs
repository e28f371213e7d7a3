//! Tickets: what a base has made of a connection, by which another of its fleet goes on with it.
//!
//! A ticket has a keyed hash under a key that only the bases of the fleet have. So the mobile that keeps it can neither make
//! nor change one, and it is of no use for another mobile's connection.

use alloc::vec::Vec;
use core::fmt;

use blake2::digest::consts::U16;
use blake2::digest::{Digest, FixedOutput, KeyInit, Mac};
use blake2::{Blake2s256, Blake2sMac};
use zeroize::Zeroizing;

use super::keys::{PresharedKey, PublicKey};

const LABEL: &[u8] = b"lasthop fleet ticket";

/// Bytes of the hash.
const HASH: usize = 16;

/// What the bases of a fleet make and check tickets with. It is wiped when dropped.
#[derive(Clone)]
pub struct TicketKey(Zeroizing<[u8; 32]>);

impl TicketKey {
    /// Of the secret that they share.
    pub fn new(secret: &PresharedKey) -> Self {
        let hash = Blake2s256::new().chain_update(LABEL).chain_update(secret.as_bytes());
        Self(Zeroizing::new(hash.finalize().into()))
    }

    /// A ticket of these bytes, for that connection of that mobile.
    pub fn seal(&self, mobile: &PublicKey, connection: u64, bytes: &[u8]) -> Vec<u8> {
        let hash: [u8; HASH] = self.keyed(mobile, connection, bytes).finalize_fixed().into();
        [bytes, &hash].concat()
    }

    /// What was sealed with this key for that connection of that mobile, if `ticket` is genuine. Compares in constant time.
    pub fn open<'t>(
        &self,
        mobile: &PublicKey,
        connection: u64,
        ticket: &'t [u8],
    ) -> Option<&'t [u8]> {
        let (bytes, hash) = ticket.split_last_chunk::<HASH>()?;
        self.keyed(mobile, connection, bytes).verify_slice(hash).ok().map(|()| bytes)
    }

    fn keyed(&self, mobile: &PublicKey, connection: u64, bytes: &[u8]) -> Blake2sMac<U16> {
        <Blake2sMac<U16> as KeyInit>::new((&*self.0).into())
            .chain_update(mobile.as_bytes())
            .chain_update(connection.to_be_bytes())
            .chain_update(bytes)
    }
}

impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketKey")
    }
}

#[cfg(test)]
mod tests {
    use lasthop_units::Seed;

    use super::super::keys::Keypair;
    use super::*;

    fn secret(n: u64) -> PresharedKey {
        PresharedKey::generate(Seed::from_u64(n))
    }

    fn mobile(n: u64) -> PublicKey {
        *Keypair::generate(Seed::from_u64(n)).public()
    }

    /// ACK-6: it proves nothing for anything else.
    #[test]
    fn a_ticket_is_good_for_one_connection_of_one_mobile_in_one_fleet() {
        let key = TicketKey::new(&secret(1));
        let ticket = key.seal(&mobile(1), 4, b"ten bytes.");
        let same = TicketKey::new(&secret(1));
        assert_eq!(same.open(&mobile(1), 4, &ticket), Some(&b"ten bytes."[..]));
        assert_eq!(key.open(&mobile(2), 4, &ticket), None, "another mobile");
        assert_eq!(key.open(&mobile(1), 6, &ticket), None, "another connection");
        assert_eq!(TicketKey::new(&secret(2)).open(&mobile(1), 4, &ticket), None, "another fleet");
    }

    /// ACK-6: nobody can change one.
    #[test]
    fn a_ticket_that_was_changed_or_cut_is_none() {
        let key = TicketKey::new(&secret(1));
        let ticket = key.seal(&mobile(1), 4, b"ten bytes.");
        for bit in 0..8 * ticket.len() {
            let mut forged = ticket.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(key.open(&mobile(1), 4, &forged), None);
        }
        for n in 0..ticket.len() {
            assert_eq!(key.open(&mobile(1), 4, &ticket[..n]), None);
        }
    }
}
