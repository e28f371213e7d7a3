//! What the program's commands do, without what they print.

mod drain;
mod init;
mod join;
mod list;
mod mobiles;
mod revoke;

use std::path::{Path, PathBuf};

use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use lasthop_daemon::keyfile;
use lasthop_hop::seal::PresharedKey;
use lasthop_units::Seed;

use crate::config::FleetFile;
use crate::error::FleetError;
use crate::records::{Key, Name, Place, Records};
use crate::store::{Snapshot, Store};

pub use self::drain::Left;
pub use self::init::{Initiated, Where, init};
pub use self::join::{JoinOptions, Joined, join};
pub use self::list::{BaseRow, Listed, MobileRow};
pub use self::mobiles::{AddedMobile, MobileOptions};
pub use self::revoke::Revoked;

/// How often a change is tried anew that others made impossible.
const ROUNDS: usize = 20;

/// A fleet whose etcd answers.
#[derive(Debug)]
pub struct Fleet {
    file: FleetFile,
    store: Store,
}

impl Fleet {
    /// Connects with the fleet that `file` names.
    ///
    /// # Errors
    ///
    /// No member of etcd answers, or a file that is named cannot be read.
    pub async fn open(file: FleetFile) -> Result<Self, FleetError> {
        let store = Store::connect_patiently(&file.access()?, &file.name).await?;
        Ok(Self { file, store })
    }

    /// All that is known of the fleet.
    ///
    /// # Errors
    ///
    /// etcd does not answer, or has no such fleet.
    pub async fn read(&self) -> Result<Snapshot, FleetError> {
        read(&self.store, &self.file.name).await
    }

    /// Makes a new key of tickets; the two before it are still taken if they are to be kept. Says its number.
    ///
    /// # Errors
    ///
    /// etcd refuses or does not answer.
    pub async fn rotate(&self, keep: bool) -> Result<u64, FleetError> {
        for _ in 0..ROUNDS {
            let Snapshot { records, revision, .. } = self.read().await?;
            let keys = rotated(&records, keep)?;
            let place = Place::TicketKeys;
            let txn = Txn::new()
                .when([unchanged(&self.store, &place.path(), revision)])
                .and_then([put(&self.store, &place, &keys)]);
            if self.store.commit("changing the keys of tickets", txn).await? {
                return Ok(keys.generation);
            }
        }
        Err(FleetError::Contended)
    }
}

async fn read(store: &Store, fleet: &Name) -> Result<Snapshot, FleetError> {
    let snapshot = store.read().await?;
    if snapshot.records.settings.is_none() {
        return Err(FleetError::NoFleet(fleet.clone()));
    }
    Ok(snapshot)
}

fn rotated(records: &Records, keep: bool) -> Result<crate::records::TicketKeys, FleetError> {
    let key = new_psk()?;
    Ok(match &records.tickets {
        Some(keys) => keys.rotated(key, keep),
        None => crate::records::TicketKeys::first(key),
    })
}

fn entropy() -> Result<Seed, FleetError> {
    keyfile::entropy().map_err(FleetError::Entropy)
}

fn new_psk() -> Result<PresharedKey, FleetError> {
    keyfile::generate_psk().map_err(FleetError::Entropy)
}

fn put(store: &Store, place: &Place, record: &impl serde::Serialize) -> TxnOp {
    TxnOp::put(store.key(&place.path()), crate::records::encode(record), None)
}

fn delete(store: &Store, place: &Place) -> TxnOp {
    TxnOp::delete(store.key(&place.path()), None)
}

fn is_absent(store: &Store, place: &Place) -> Compare {
    Compare::create_revision(store.key(&place.path()), CompareOp::Equal, 0)
}

fn is_there(store: &Store, place: &Place) -> Compare {
    Compare::create_revision(store.key(&place.path()), CompareOp::Greater, 0)
}

/// The record at `path` has not changed since `revision`.
fn unchanged(store: &Store, path: &str, revision: i64) -> Compare {
    Compare::mod_revision(store.key(path), CompareOp::Less, revision.saturating_add(1))
}

/// No record in `folder` was made or has changed since `revision`.
fn none_new(store: &Store, folder: &str, revision: i64) -> Compare {
    unchanged(store, folder, revision).with_prefix()
}

/// Whoever has this name or this key already, other than a base with this name and key.
fn taken(records: &Records, name: &Name, key: &Key) -> Result<(), FleetError> {
    if records.revoked.contains_key(key) {
        return Err(FleetError::Revoked(key.to_string()));
    }
    if let Some(other) = records.key_of(name).filter(|other| other != key) {
        return Err(FleetError::Taken(format!(
            "{name} is another's name already, with the key {other}"
        )));
    }
    match records.name_of(key).filter(|other| *other != name) {
        Some(other) => Err(FleetError::Taken(format!("the key {key} is {other}'s already"))),
        None => Ok(()),
    }
}

/// A path that means the same wherever it is read.
fn whole(path: &Path) -> Result<PathBuf, FleetError> {
    std::path::absolute(path).map_err(|source| FleetError::Read { path: path.to_owned(), source })
}
