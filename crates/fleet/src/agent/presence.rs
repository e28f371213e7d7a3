//! What etcd has of a base for as long as its lease: that it is alive, and whom it serves.

use std::collections::BTreeMap;
use std::time::Duration;

use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp};
use tokio::time::Instant;

use crate::records::{AliveRecord, HeldRecord, Key, Name, Place, encode};
use crate::store::{Lease, Store, StoreError};
use crate::time::now;

/// How long etcd has it after the agent was heard last.
const TTL: Duration = Duration::from_secs(10);
/// How often the agent is heard.
const RENEW: Duration = Duration::from_secs(3);
/// How often it is told that a mobile has another number of connections.
const COUNTS: Duration = Duration::from_secs(5);

/// As many records are written together; etcd takes 128.
const TOGETHER: usize = 100;

/// What etcd has to have.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Wanted {
    /// Of the base.
    pub(super) alive: AliveRecord,
    /// The mobiles that it serves, and how many connections each has.
    pub(super) held: BTreeMap<Key, u64>,
}

/// What etcd has.
#[derive(Debug)]
pub(super) struct Presence {
    base: Name,
    lease: Option<(Lease, Instant)>,
    /// The number of the last lease: etcd may have it still when nobody keeps it alive any more.
    last: Option<i64>,
    alive: Option<AliveRecord>,
    held: BTreeMap<Key, Held>,
    counted: Instant,
    /// Of other bases, as the fleet was read.
    others: BTreeMap<Key, HeldRecord>,
}

/// A mobile that the base serves.
#[derive(Clone, PartialEq, Debug)]
struct Held {
    /// What was written last.
    record: HeldRecord,
    /// Whether another base serves it too, and came later.
    lost: bool,
}

impl Presence {
    pub(super) fn new(base: Name) -> Self {
        let others = BTreeMap::new();
        Self {
            base,
            lease: None,
            last: None,
            alive: None,
            held: BTreeMap::new(),
            counted: Instant::now(),
            others,
        }
    }

    /// The lease that etcd may have.
    pub(super) fn lease(&self) -> Option<i64> {
        self.last
    }

    /// Nothing is known any more of what etcd has.
    pub(super) fn forget(&mut self) {
        self.lease = None;
        self.alive = None;
        self.held.clear();
    }

    /// With a new connection, on which the fleet was read.
    pub(super) fn begin(&mut self, held: &BTreeMap<Key, HeldRecord>) {
        self.forget();
        self.others = held.clone();
        self.others.retain(|_, record| record.base != self.base);
    }

    /// Makes etcd have what is wanted, or nothing.
    pub(super) async fn tell(
        &mut self,
        store: &Store,
        wanted: Option<Wanted>,
    ) -> Result<(), StoreError> {
        let Some(wanted) = wanted else {
            if let Some((lease, _)) = self.lease.take() {
                self.forget();
                store.revoke(lease.id).await?;
                self.last = None;
            }
            return Ok(());
        };
        let id = self.renew(store).await?;
        if self.alive.as_ref() != Some(&wanted.alive) {
            let put = self.put(store, &Place::Alive(self.base.clone()), &encode(&wanted.alive), id);
            store.commit("telling that the base is alive", Txn::new().and_then([put])).await?;
            self.alive = Some(wanted.alive);
        }
        self.release(store, &wanted.held).await?;
        self.claim(store, &wanted.held, id).await
    }

    /// A lease that lasts.
    async fn renew(&mut self, store: &Store) -> Result<i64, StoreError> {
        match &mut self.lease {
            Some((lease, at)) => {
                if at.elapsed() >= RENEW {
                    store.keep_alive(lease).await?;
                    *at = Instant::now();
                }
                Ok(lease.id)
            }
            None => {
                let lease = store.lease(TTL).await?;
                let id = lease.id;
                self.last = Some(id);
                self.lease = Some((lease, Instant::now()));
                Ok(id)
            }
        }
    }

    fn put(&self, store: &Store, place: &Place, value: &[u8], lease: i64) -> TxnOp {
        let under = PutOptions::new().with_lease(lease);
        TxnOp::put(store.key(&place.path()), value, Some(under))
    }

    /// What was written last is there still: no other base has come since.
    fn is_ours(store: &Store, key: &Key, record: &HeldRecord) -> Compare {
        let place = Place::Held(*key).path();
        Compare::value(store.key(&place), CompareOp::Equal, encode(record))
    }

    /// Mobiles that are gone.
    async fn release(
        &mut self,
        store: &Store,
        wanted: &BTreeMap<Key, u64>,
    ) -> Result<(), StoreError> {
        let gone: Vec<Key> =
            self.held.keys().filter(|key| !wanted.contains_key(key)).copied().collect();
        for key in gone {
            if let Some(held) = self.held.remove(&key).filter(|held| !held.lost) {
                let delete = TxnOp::delete(store.key(&Place::Held(key).path()), None);
                let txn =
                    Txn::new().when([Self::is_ours(store, &key, &held.record)]).and_then([delete]);
                store.commit("telling that a mobile left", txn).await?;
            }
        }
        Ok(())
    }

    /// Mobiles that are here. One that comes, or opens its first connection, is ours from then on; a count
    /// is told only as long as no other base has come since.
    async fn claim(
        &mut self,
        store: &Store,
        wanted: &BTreeMap<Key, u64>,
        lease: i64,
    ) -> Result<(), StoreError> {
        let counts = self.counted.elapsed() >= COUNTS;
        if counts {
            self.counted = Instant::now();
        }
        let mut new = Vec::new();
        for (key, &connections) in wanted {
            let before = self.held.get(key);
            let begins = before.is_none_or(|held| held.record.connections == 0 && connections > 0);
            let differs = before.is_some_and(|held| held.record.connections != connections);
            if !(begins || differs && counts) {
                continue;
            }
            let since = before.map_or_else(now, |held| held.record.since);
            let record = HeldRecord { base: self.base.clone(), connections, since };
            let guard = match before {
                Some(held) if !begins => Self::is_ours(store, key, &held.record),
                // With another base it has connections: at this one it has none, and may be about to leave.
                None if connections == 0 && self.others.contains_key(key) => {
                    let place = Place::Held(*key).path();
                    Compare::create_revision(store.key(&place), CompareOp::Equal, 0)
                }
                _ => {
                    new.push((*key, record));
                    continue;
                }
            };
            let put = self.put(store, &Place::Held(*key), &encode(&record), lease);
            let txn = Txn::new().when([guard]).and_then([put]);
            let lost = !store.commit("telling who serves a mobile", txn).await?;
            self.held.insert(*key, Held { record, lost });
        }
        for some in new.chunks(TOGETHER) {
            let put = |(key, record): &(Key, HeldRecord)| {
                self.put(store, &Place::Held(*key), &encode(record), lease)
            };
            let puts: Vec<TxnOp> = some.iter().map(put).collect();
            store.commit("telling who serves mobiles", Txn::new().and_then(puts)).await?;
            let held = |(key, record): &(Key, HeldRecord)| {
                (*key, Held { record: record.clone(), lost: false })
            };
            self.held.extend(some.iter().map(held));
        }
        Ok(())
    }
}
