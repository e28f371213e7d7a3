//! Keyed hashes of path challenges and their responses.

use blake2::Blake2sMac;
use blake2::digest::consts::U16;
use blake2::digest::{FixedOutput, KeyInit, Mac};
use lasthop_wire::datagram::Token;

use super::aead::{Secret, derive};

/// What authenticates challenges and responses, each direction's by its own key.
pub struct TokenKeys {
    send: Secret,
    recv: Secret,
}

impl TokenKeys {
    pub(super) fn new(send: &Secret, recv: &Secret) -> Self {
        let key = |secret| derive(secret, b"path token");
        Self { send: key(send), recv: key(recv) }
    }

    fn keyed(key: &Secret, token: &Token) -> Blake2sMac<U16> {
        let mac = <Blake2sMac<U16> as KeyInit>::new((&**key).into());
        mac.chain_update(&token.to_bytes()[..Token::COVERED])
    }

    /// Makes a challenge, or a response to one, for `receiver`.
    pub fn make(&self, response: bool, receiver: u32, token: [u8; 8]) -> Token {
        let mut made = Token { response, receiver, token, mac: [0; 16] };
        made.mac = Self::keyed(&self.send, &made).finalize_fixed().into();
        made
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
