//! Taking somebody's key away.

use etcd_client::Txn;

use super::{Fleet, ROUNDS, delete, none_new, put, rotated, unchanged};
use crate::error::FleetError;
use crate::records::{Key, Name, Place, Printable, RevokedRecord};
use crate::store::Snapshot;
use crate::time::now;

/// What was revoked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Revoked {
    /// The key.
    pub key: Key,
    /// Whose it was, where that was known.
    pub name: Option<Name>,
    /// Of a base: the number of the key of tickets that is the only one now.
    pub generation: Option<u64>,
}

impl Fleet {
    /// Takes the key of a base or mobile away, by its name or by the key itself. A base knew the keys of
    /// tickets, so these are changed too, and none before is taken any more.
    ///
    /// # Errors
    ///
    /// Nobody is called so, or etcd does not answer.
    pub async fn revoke(&self, who: &str, why: Printable) -> Result<Revoked, FleetError> {
        let store = &self.store;
        for _ in 0..ROUNDS {
            let Snapshot { records, revision, .. } = self.read().await?;
            let named = who.parse::<Name>().ok().and_then(|name| records.key_of(&name));
            let key = named.or_else(|| who.parse().ok());
            let key = key.ok_or_else(|| FleetError::Unknown(who.to_owned()))?;
            let name = records.name_of(&key).cloned();
            let place = Place::Revoked(key);
            if let Some(before) = records.revoked.get(&key).filter(|_| name.is_none()) {
                return Ok(Revoked { key, name: before.name.clone(), generation: None });
            }
            let record = RevokedRecord { when: now(), name: name.clone(), why: why.clone() };
            let mut done = vec![put(store, &place, &record), delete(store, &Place::Mobile(key))];
            let base = records.bases.values().find(|base| base.key == key);
            let mut generation = None;
            if let Some(base) = base {
                let keys = rotated(&records, false)?;
                generation = Some(keys.generation);
                done.push(put(store, &Place::TicketKeys, &keys));
                let places = [Place::Base, Place::Alive, Place::Draining];
                done.extend(places.map(|place| delete(store, &place(base.name.clone()))));
            }
            let txn = Txn::new()
                .when([
                    none_new(store, Place::MOBILES, revision),
                    none_new(store, Place::BASES, revision),
                    unchanged(store, &Place::TicketKeys.path(), revision),
                ])
                .and_then(done);
            if store.commit("revoking a key", txn).await? {
                if let Some(user) = base.and_then(|base| base.user.as_ref()) {
                    store.remove_user(user.as_str()).await?;
                }
                return Ok(Revoked { key, name, generation });
            }
        }
        Err(FleetError::Contended)
    }
}
