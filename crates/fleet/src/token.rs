//! What a base joins with: one line, good once.

use std::fmt;
use std::str::FromStr;

use base64ct::{Base64UrlUnpadded, Encoding};
use lasthop_units::Seed;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::records::{Name, TokenRecord};

/// No token is longer, with a chain of certificates in it.
const LEN_MAX: usize = 128 * 1024;

/// A text is not a token.
#[derive(Debug, Error)]
pub enum TokenError {
    /// It is cut off, or something else.
    #[error("this is no token: it is one line that `lasthop fleet token` prints")]
    Text,
    /// It is of another version.
    #[error("the token is not understood: {0}")]
    Json(#[from] serde_json::Error),
}

/// A secret text, which is wiped when dropped and whose `Debug` form does not show it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Zeroize, ZeroizeOnDrop)]
pub struct Secret(String);

impl Secret {
    /// The secret.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// 32 bytes of the seed's, as a text.
    pub fn generate(seed: &Seed) -> Self {
        let mut bytes = [0; 32];
        seed.stream("fleet secret").fill(&mut bytes);
        let secret = Self(Base64UrlUnpadded::encode_string(&bytes));
        bytes.zeroize();
        secret
    }

    /// What is kept of it where others can read.
    pub fn hash(&self) -> String {
        Sha256::digest(self.0.as_bytes()).iter().map(|b| format!("{b:02x}")).collect()
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// What a base must know to join.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Token {
    /// The fleet.
    pub fleet: Name,
    /// Where etcd is.
    pub endpoints: Vec<String>,
    /// The certificates of who may speak for etcd, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// Who the base is in etcd, where that has users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// That user's password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
    /// Which token it is.
    pub id: Name,
    /// What shows that the holder was given it.
    pub secret: Secret,
}

impl Token {
    /// What is written into etcd of it.
    pub fn record(&self) -> TokenRecord {
        TokenRecord { sha256: self.secret.hash() }
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = serde_json::to_vec(self).map_err(|_| fmt::Error)?;
        f.write_str(&Base64UrlUnpadded::encode_string(&json))
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        if text.len() > LEN_MAX {
            return Err(TokenError::Text);
        }
        let json = Base64UrlUnpadded::decode_vec(text).map_err(|_| TokenError::Text)?;
        Ok(serde_json::from_slice(&json)?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn token() -> Token {
        Token {
            fleet: "trains".parse().unwrap(),
            endpoints: vec!["https://192.0.2.9:2379".to_owned()],
            ca: Some("-----BEGIN CERTIFICATE-----\n".to_owned()),
            user: Some("lasthop-trains-1".to_owned()),
            password: Some(Secret::generate(&Seed::from_u64(1))),
            id: "1".parse().unwrap(),
            secret: Secret::generate(&Seed::from_u64(2)),
        }
    }

    #[test]
    fn a_token_is_one_line_and_is_read_again() {
        let text = token().to_string();
        assert!(
            text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'_'),
            "{text}"
        );
        assert_eq!(format!(" {text}\n").parse::<Token>().unwrap(), token());
        assert!(text[..text.len() - 3].parse::<Token>().is_err());
    }

    #[test]
    fn neither_its_debug_form_nor_its_record_shows_the_secret() {
        let token = token();
        let record = serde_json::to_string(&token.record()).unwrap();
        for shown in [format!("{token:?}"), record] {
            assert!(!shown.contains(token.secret.as_str()), "{shown}");
        }
        assert_eq!(token.record().sha256.len(), 64);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,200}", bytes: Vec<u8>) {
            let _ = text.parse::<Token>();
            let _ = Base64UrlUnpadded::encode_string(&bytes).parse::<Token>();
        }
    }
}
