//! Names of bases and mobiles, and public keys, as records have them.

use std::fmt;
use std::str::FromStr;

use base64ct::{Base64UrlUnpadded, Encoding};
use lasthop_hop::seal::{KeyError, PublicKey};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

/// The longest name.
const NAME_MAX: usize = 64;
/// The longest text for people.
const TEXT_MAX: usize = 512;

/// A text is not a name.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error(
    "`{}` is not a name: from 1 to {NAME_MAX} of A-Z, a-z, 0-9, `.`, `_` and `-`, of which the first is a \
     letter or a digit", .0.escape_debug()
)]
pub struct NameError(String);

/// What a base, a mobile or a fleet is called.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Name(String);

impl Name {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let fits = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-');
        let first = text.bytes().next().is_some_and(|c| c.is_ascii_alphanumeric());
        if !first || text.len() > NAME_MAX || !text.bytes().all(fits) {
            return Err(NameError(text.chars().take(NAME_MAX).collect()));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(de::Error::custom)
    }
}

/// A part of a path is not a public key.
#[derive(Clone, Debug, Error)]
#[error("`{}` is not a public key in base64url", .0.escape_debug())]
pub struct KeyPathError(String);

/// A public key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key(pub PublicKey);

impl Key {
    /// As a part of a path, which base64's `/` cannot be in.
    pub fn path(&self) -> String {
        Base64UrlUnpadded::encode_string(self.0.as_bytes())
    }

    /// Reads what [`path`](Self::path) writes.
    ///
    /// # Errors
    ///
    /// It is something else.
    pub fn from_path(text: &str) -> Result<Self, KeyPathError> {
        let mut bytes = [0; 32];
        let decoded = Base64UrlUnpadded::decode(text, &mut bytes).map(<[u8]>::len);
        match decoded {
            Ok(32) => Ok(Self(PublicKey::from_bytes(bytes))),
            _ => Err(KeyPathError(text.chars().take(NAME_MAX).collect())),
        }
    }
}

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        text.parse().map(Self)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(de::Error::custom)
    }
}

/// A text for people, short and without anything that could steer a terminal.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Printable(String);

impl Printable {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Printable {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.len() > TEXT_MAX || text.contains(char::is_control) {
            return Err(format!("a text here is one line of {TEXT_MAX} bytes at most"));
        }
        Ok(Self(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for Printable {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(de::Error::custom)
    }
}
