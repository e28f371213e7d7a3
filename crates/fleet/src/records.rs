//! What is in etcd about a fleet: a key below the fleet's prefix, and JSON.
//!
//! Whoever can write there wrote it, so every record is checked as it is read. Unknown fields and unknown
//! kinds are left alone: a later version may have written them.

mod kinds;
mod names;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

pub use self::kinds::{
    AliveRecord, BaseRecord, DrainingRecord, HeldRecord, MobileRecord, OwnBase, RevokedRecord,
    SettingsRecord, TicketKey, TicketKeys, TokenRecord,
};
pub use self::names::{Key, KeyPathError, Name, NameError, Printable};

/// No record is longer.
const LEN_MAX: usize = 64 * 1024;
/// The newest key of tickets, and those before it that are still taken.
pub const TICKET_KEYS_MAX: usize = 3;

/// Why a record is of no use.
#[derive(Debug, Error)]
pub enum RecordError {
    /// Its key in etcd is not what keys of its kind are.
    #[error("its key is wrong: {0}")]
    Key(String),
    /// It is longer than any record.
    #[error("it has {0} bytes, and {LEN_MAX} at most are read")]
    Long(usize),
    /// It is not the JSON of its kind.
    #[error("it is not understood: {0}")]
    Json(#[from] serde_json::Error),
    /// It contradicts itself, or its key.
    #[error("{0}")]
    Contradiction(String),
}

impl From<NameError> for RecordError {
    fn from(error: NameError) -> Self {
        Self::Key(error.to_string())
    }
}

impl From<KeyPathError> for RecordError {
    fn from(error: KeyPathError) -> Self {
        Self::Key(error.to_string())
    }
}

/// Where a record is, below the fleet's prefix.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// The fleet's name.
    Settings,
    /// The keys of tickets.
    TicketKeys,
    /// A base that has joined.
    Base(Name),
    /// A base's agent that runs.
    Alive(Name),
    /// The base that serves a mobile.
    Held(Key),
    /// A mobile.
    Mobile(Key),
    /// A key that nobody serves any more.
    Revoked(Key),
    /// A base that is to be emptied.
    Draining(Name),
    /// A token that has not been used.
    Token(Name),
}

impl Place {
    /// The folder of all bases.
    pub const BASES: &'static str = "bases/";
    /// The folder of all mobiles.
    pub const MOBILES: &'static str = "mobiles/";

    /// Its key, below the fleet's prefix.
    pub fn path(&self) -> String {
        match self {
            Self::Settings => "settings".to_owned(),
            Self::TicketKeys => "keys/tickets".to_owned(),
            Self::Base(name) => format!("{}{name}", Self::BASES),
            Self::Alive(name) => format!("alive/{name}"),
            Self::Held(key) => format!("held/{}", key.path()),
            Self::Mobile(key) => format!("{}{}", Self::MOBILES, key.path()),
            Self::Revoked(key) => format!("revoked/{}", key.path()),
            Self::Draining(name) => format!("draining/{name}"),
            Self::Token(id) => format!("tokens/{id}"),
        }
    }

    /// What a key below the prefix means; nothing where another version knows.
    ///
    /// # Errors
    ///
    /// It has the form of a known kind, with a name or a key that is none.
    pub fn parse(path: &str) -> Result<Option<Self>, RecordError> {
        let Some((folder, rest)) = path.split_once('/') else {
            return Ok((path == "settings").then_some(Self::Settings));
        };
        Ok(Some(match folder {
            "keys" if rest == "tickets" => Self::TicketKeys,
            "bases" => Self::Base(rest.parse()?),
            "alive" => Self::Alive(rest.parse()?),
            "held" => Self::Held(Key::from_path(rest)?),
            "mobiles" => Self::Mobile(Key::from_path(rest)?),
            "revoked" => Self::Revoked(Key::from_path(rest)?),
            "draining" => Self::Draining(rest.parse()?),
            "tokens" => Self::Token(rest.parse()?),
            _ => return Ok(None),
        }))
    }
}

/// Everything that etcd has of a fleet.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Records {
    /// The fleet's name; absent where there is no fleet.
    pub settings: Option<SettingsRecord>,
    /// The keys of tickets.
    pub tickets: Option<TicketKeys>,
    /// Bases by their names.
    pub bases: BTreeMap<Name, BaseRecord>,
    /// Those whose agents run.
    pub alive: BTreeMap<Name, AliveRecord>,
    /// Who serves which mobile.
    pub held: BTreeMap<Key, HeldRecord>,
    /// Mobiles by their keys.
    pub mobiles: BTreeMap<Key, MobileRecord>,
    /// Keys that nobody serves any more.
    pub revoked: BTreeMap<Key, RevokedRecord>,
    /// Bases that are to be emptied.
    pub draining: BTreeMap<Name, DrainingRecord>,
    /// Tokens that have not been used.
    pub tokens: BTreeMap<Name, TokenRecord>,
}

impl Records {
    /// Takes in what became of the record at `path`: its value, or that it is gone. One that is of no use
    /// counts as gone.
    ///
    /// # Errors
    ///
    /// Why it is of no use.
    pub fn apply(&mut self, path: &str, value: Option<&[u8]>) -> Result<(), RecordError> {
        let Some(place) = Place::parse(path)? else { return Ok(()) };
        match place {
            Place::Settings => set(&mut self.settings, value, SettingsRecord::check),
            Place::TicketKeys => set(&mut self.tickets, value, TicketKeys::check),
            Place::Base(name) => put(&mut self.bases, name, value, |name, base: &BaseRecord| {
                base.check().and_then(|()| same("name", name, &base.name))
            }),
            Place::Alive(name) => put(&mut self.alive, name, value, |_, _| Ok(())),
            Place::Held(key) => put(&mut self.held, key, value, |_, _| Ok(())),
            Place::Mobile(key) => {
                put(&mut self.mobiles, key, value, |key, mobile: &MobileRecord| {
                    mobile.check().and_then(|()| same("key", key, &mobile.key))
                })
            }
            Place::Revoked(key) => put(&mut self.revoked, key, value, |_, _| Ok(())),
            Place::Draining(name) => put(&mut self.draining, name, value, |_, _| Ok(())),
            Place::Token(id) => put(&mut self.tokens, id, value, |_, _| Ok(())),
        }
    }

    /// The base or mobile that has this name: its public key.
    pub fn key_of(&self, name: &Name) -> Option<Key> {
        let base = self.bases.get(name).map(|base| base.key);
        base.or_else(|| self.mobiles.values().find(|m| m.name == *name).map(|m| m.key))
    }

    /// What the mobiles' owner of a public key is called.
    pub fn name_of(&self, key: &Key) -> Option<&Name> {
        let mobile = self.mobiles.get(key).map(|mobile| &mobile.name);
        mobile.or_else(|| self.bases.values().find(|b| b.key == *key).map(|b| &b.name))
    }
}

/// A record as it is written.
pub fn encode(record: &impl Serialize) -> Vec<u8> {
    // A record is a struct of texts, numbers and lists, which JSON always has a form for.
    serde_json::to_vec(record).unwrap_or_default()
}

fn decode<T: DeserializeOwned>(value: &[u8]) -> Result<T, RecordError> {
    if value.len() > LEN_MAX {
        return Err(RecordError::Long(value.len()));
    }
    Ok(serde_json::from_slice(value)?)
}

fn set<T: DeserializeOwned>(
    slot: &mut Option<T>,
    value: Option<&[u8]>,
    check: impl Fn(&T) -> Result<(), RecordError>,
) -> Result<(), RecordError> {
    *slot = None;
    let Some(value) = value else { return Ok(()) };
    let record = decode(value)?;
    check(&record)?;
    *slot = Some(record);
    Ok(())
}

fn put<K: Ord, T: DeserializeOwned>(
    records: &mut BTreeMap<K, T>,
    key: K,
    value: Option<&[u8]>,
    check: impl Fn(&K, &T) -> Result<(), RecordError>,
) -> Result<(), RecordError> {
    records.remove(&key);
    let Some(value) = value else { return Ok(()) };
    let record = decode(value)?;
    check(&key, &record)?;
    records.insert(key, record);
    Ok(())
}

/// A record that stands at another's place.
fn same<T: PartialEq + ToString>(what: &str, place: &T, said: &T) -> Result<(), RecordError> {
    if place == said {
        return Ok(());
    }
    let why = format!(
        "its {what} is {}, and it stands at that of {}",
        said.to_string(),
        place.to_string()
    );
    Err(RecordError::Contradiction(why))
}
