//! Emptying a base.

use std::time::Duration;

use etcd_client::Txn;
use tokio::time::{Instant, sleep};

use super::{Fleet, delete, is_there, put};
use crate::error::FleetError;
use crate::records::{DrainingRecord, Name, Place};
use crate::time::now;

/// How often it is looked.
const INTERVAL: Duration = Duration::from_millis(500);

/// How many mobiles a base holds, as far as that is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// So many.
    Mobiles(u64),
    /// Its agent has not taken the mark in, or does not run.
    Unknown,
}

impl Fleet {
    /// Marks a base as one to be emptied.
    ///
    /// # Errors
    ///
    /// There is none of that name, or etcd does not answer.
    pub async fn mark_draining(&self, base: &Name) -> Result<(), FleetError> {
        let place = Place::Draining(base.clone());
        let txn = Txn::new()
            .when([is_there(&self.store, &Place::Base(base.clone()))])
            .and_then([put(&self.store, &place, &DrainingRecord { when: now() })]);
        match self.store.commit("marking a base", txn).await? {
            true => Ok(()),
            false => Err(FleetError::Unknown(base.to_string())),
        }
    }

    /// Takes that mark away. Says whether there was one.
    ///
    /// # Errors
    ///
    /// etcd does not answer.
    pub async fn undo_draining(&self, base: &Name) -> Result<bool, FleetError> {
        let place = Place::Draining(base.clone());
        let txn = Txn::new()
            .when([is_there(&self.store, &place)])
            .and_then([delete(&self.store, &place)]);
        Ok(self.store.commit("marking a base", txn).await?)
    }

    /// Waits until a base holds no mobile, for `timeout` at most; `progress` is told how many it holds
    /// whenever that is another number.
    ///
    /// # Errors
    ///
    /// It still holds some then, or etcd does not answer.
    pub async fn wait_drained(
        &self,
        base: &Name,
        timeout: Duration,
        mut progress: impl FnMut(Left),
    ) -> Result<(), FleetError> {
        let start = Instant::now();
        let mut told = None;
        loop {
            let records = self.read().await?.records;
            let alive = records.alive.get(base).filter(|alive| alive.draining);
            let left = alive.map_or(Left::Unknown, |alive| Left::Mobiles(alive.mobiles));
            if told.replace(left) != Some(left) {
                progress(left);
            }
            if left == Left::Mobiles(0) {
                return Ok(());
            }
            if start.elapsed() >= timeout {
                let mobiles = alive.map_or(0, |alive| alive.mobiles);
                let (base, seconds) = (base.clone(), timeout.as_secs());
                return Err(match left {
                    Left::Mobiles(_) => FleetError::NotDrained { base, mobiles, seconds },
                    Left::Unknown => FleetError::NoAgent(base),
                });
            }
            sleep(INTERVAL.min(timeout.saturating_sub(start.elapsed()))).await;
        }
    }
}
