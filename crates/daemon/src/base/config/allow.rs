//! The mobiles that a base serves.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use lasthop_control::settings;
use lasthop_hop::seal::PublicKey;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::config::{ConfigError, KeyText};

settings! {
    entry
    /// An entry of `allow`, as a table.
    pub struct AllowTable {
        /// The mobile's public key.
        pub key: KeyText,
        /// The file with the pre-shared key with it, made by `lasthop keygen --psk`; its mode must be 600.
        pub psk: Option<PathBuf>,
    }
}

/// An entry of `allow`: a public key alone, or a table.
#[derive(Clone, PartialEq, Debug)]
pub struct AllowEntry(pub AllowTable);

impl From<KeyText> for AllowEntry {
    fn from(key: KeyText) -> Self {
        Self(AllowTable { key, psk: None })
    }
}

impl FromStr for AllowEntry {
    type Err = <KeyText as FromStr>::Err;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        s.parse().map(KeyText::into)
    }
}

impl<'de> Deserialize<'de> for AllowEntry {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = AllowEntry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a public key, or a table with `key` and `psk`")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<AllowEntry, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, from: A) -> Result<AllowEntry, A::Error> {
        AllowTable::deserialize(MapAccessDeserializer::new(from)).map(AllowEntry)
    }
}

/// The mobiles, and the files with the pre-shared keys of those that have one.
pub(super) type Mobiles = (Vec<PublicKey>, BTreeMap<PublicKey, PathBuf>);

/// Takes the entries apart.
///
/// # Errors
///
/// A mobile stands there twice, and not with the same file.
pub(super) fn mobiles(entries: Vec<AllowEntry>) -> Result<Mobiles, ConfigError> {
    let (mut keys, mut psks) = (Vec::new(), BTreeMap::new());
    for AllowEntry(AllowTable { key: KeyText(key), psk }) in entries {
        if keys.contains(&key) && psks.get(&key) != psk.as_ref() {
            let why = format!("`allow`: {key} stands there twice, with different pre-shared keys");
            return Err(ConfigError::Contradiction(why));
        }
        keys.push(key);
        psks.extend(psk.map(|psk| (key, psk)));
    }
    Ok((keys, psks))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::base::{BaseConfig, BaseFile};
    use crate::config::parse;

    fn read(allow: &str) -> Result<BaseConfig, ConfigError> {
        let text = format!("key = \"base.key\"\nallow = [\n{allow}]\n");
        parse::<BaseFile>(Path::new("b.toml"), &text)?.try_into()
    }

    fn key(n: u8) -> PublicKey {
        PublicKey::from_bytes([n; 32])
    }

    /// SEC-42: a mobile that is served is a key, or a key with a file.
    #[test]
    fn a_mobile_that_is_served_may_have_a_pre_shared_key() {
        let table = format!("\"{}\",\n{{ key = \"{}\", psk = \"two.psk\" }},\n", key(1), key(2));
        let config = read(&table).unwrap();
        assert_eq!(config.allow, [key(1), key(2)]);
        assert_eq!(config.psks, BTreeMap::from([(key(2), PathBuf::from("two.psk"))]));
        let twice = format!("\"{}\",\n\"{}\"\n", key(1), key(1));
        assert_eq!(read(&twice).unwrap().allow, [key(1), key(1)]);
    }

    #[test]
    fn what_is_no_mobile_is_named_with_its_place() {
        let one = key(1);
        for (allow, said) in [
            ("\"abc\"\n".to_owned(), "b.toml:3: `allow`: a key has 44 base64"),
            ("7\n".to_owned(), "b.toml:3: `allow`: "),
            ("7\n".to_owned(), "a public key, or a table"),
            ("{ psk = \"x\" }\n".to_owned(), "missing field `key`"),
            (
                format!("{{ key = \"{one}\", pks = \"x\" }}\n"),
                "b.toml:3: `allow`: unknown field `pks`",
            ),
            (format!("{{ key = \"{one}\", psk = 3 }}\n"), "b.toml:3: "),
            (format!("\"{one}\",\n{{ key = \"{one}\", psk = \"x\" }}\n"), "stands there twice"),
        ] {
            let error = read(&allow).unwrap_err().to_string();
            assert!(error.contains(said) && !error.contains('\n'), "{allow}: {error}");
        }
    }
}
