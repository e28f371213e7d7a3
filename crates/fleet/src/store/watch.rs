//! Following what changes in etcd.

use etcd_client::{EventType, WatchOptions, WatchStream};

use super::{Store, StoreError, said};

/// The ranges, below the prefix, of what decides over a base's files: bases and draining; keys, mobiles,
/// revoked and settings. Who is alive and who holds whom changes every second, and decides over nothing.
const RANGES: [(&str, &str); 2] = [("bases/", "draining0"), ("keys/", "settings0")];

/// What became of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// Where it is, below the fleet's prefix.
    pub path: String,
    /// What it is now; nothing if it is gone.
    pub value: Option<Vec<u8>>,
}

/// Changes as they come.
#[derive(Debug)]
pub struct Changes {
    stream: WatchStream,
    store: Store,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Store {
    /// Follows what decides over a base's files, from the revision `from` on.
    ///
    /// # Errors
    ///
    /// etcd refuses or does not answer.
    pub async fn watch(&self, from: i64) -> Result<Changes, StoreError> {
        let doing = "following changes";
        let of = |(_, end): &(&str, &str)| {
            WatchOptions::new().with_range(self.key(end)).with_start_revision(from)
        };
        let mut client = self.client.watch_client();
        let [first, second] = &RANGES;
        let start = client.watch(self.key(first.0), Some(of(first)));
        let mut stream = self.within(doing, start).await?;
        self.within(doing, stream.watch(self.key(second.0), Some(of(second)))).await?;
        Ok(Changes { stream, store: self.clone() })
    }
}

impl Changes {
    /// What has changed since the last time; waits until something has. It may be dropped while it waits.
    ///
    /// # Errors
    ///
    /// etcd is gone, or has not kept what is asked for.
    pub async fn next(&mut self) -> Result<Vec<Change>, StoreError> {
        let failed = |why: String| StoreError::Failed {
            endpoint: self.store.endpoint.clone(),
            doing: "following changes",
            why,
        };
        let message = self.stream.message().await.map_err(|error| failed(said(&error)))?;
        let message = message.ok_or_else(|| failed("the connection ended".to_owned()))?;
        if message.compact_revision() > 0 {
            return Err(StoreError::Compacted(message.compact_revision()));
        }
        if message.canceled() {
            return Err(failed(message.cancel_reason().to_owned()));
        }
        let changes = message.events().iter().filter_map(|event| {
            let pair = event.kv()?;
            let put = event.event_type() == EventType::Put;
            let value = put.then(|| pair.value().to_vec());
            Some(Change { path: self.store.path(pair.key())?, value })
        });
        Ok(changes.collect())
    }
}
