//! Keys of an association's paths: for challenges and responses, and for data on all paths but the first.

use blake2::Blake2sMac;
use blake2::digest::consts::U16;
use blake2::digest::{FixedOutput, KeyInit, Mac};
use lasthop_wire::datagram::Token;

use super::aead::{Cipher, OpeningKey, SealingKey, Secret, derive};

/// What authenticates challenges and responses, and what the keys of further paths come from; each direction has its
/// own.
pub struct PathSecrets {
    send: Secret,
    recv: Secret,
}

impl PathSecrets {
    pub(super) fn new(send: &Secret, recv: &Secret) -> Self {
        let key = |secret| derive(secret, b"path token");
        Self { send: key(send), recv: key(recv) }
    }

    fn keyed(key: &Secret, token: &Token) -> Blake2sMac<U16> {
        let mac = <Blake2sMac<U16> as KeyInit>::new((&**key).into());
        mac.chain_update(&token.to_bytes()[..Token::COVERED])
    }

    /// Authenticates a challenge, or a response to one.
    pub fn make(&self, token: Token) -> Token {
        Token { mac: Self::keyed(&self.send, &token).finalize_fixed().into(), ..token }
    }

    /// The keys of a path that is not the first. Each path has its own, so that its packet numbers are its own.
    pub fn of_path(&self, path: u8, cipher: Cipher) -> (SealingKey, OpeningKey) {
        let label = [&b"data of path "[..], &[path]].concat();
        let secret = |direction| derive(direction, &label);
        (SealingKey::new(cipher, secret(&self.send)), OpeningKey::new(cipher, secret(&self.recv)))
    }

    /// Whether the peer made it.
    pub fn verify(&self, token: &Token) -> bool {
        Self::keyed(&self.recv, token).verify_slice(&token.mac).is_ok()
    }

    /// A token that nobody else can predict, another for each `count`.
    pub fn draw(&self, count: u64) -> [u8; 8] {
        let mac = <Blake2sMac<U16> as KeyInit>::new((&*self.send).into());
        let drawn: [u8; 16] = mac.chain_update(count.to_be_bytes()).finalize_fixed().into();
        let mut token = [0; 8];
        token.copy_from_slice(&drawn[..8]);
        token
    }
}
