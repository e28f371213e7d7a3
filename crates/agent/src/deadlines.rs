//! When connections want to be called.

use alloc::collections::BTreeSet;

use lasthop_units::Time;

use crate::Connection;

/// When connections want to be called. An entry of a connection that its table has forgotten stays
/// until its time or until too many such have gathered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deadlines(BTreeSet<(Time, Connection)>);

impl Deadlines {
    /// Moves a connection's deadline from `armed` to `due`.
    pub(crate) fn set(
        &mut self,
        connection: Connection,
        armed: &mut Option<Time>,
        due: Option<Time>,
    ) {
        if *armed == due {
            return;
        }
        if let Some(old) = *armed {
            self.0.remove(&(old, connection));
        }
        if let Some(new) = due {
            self.0.insert((new, connection));
        }
        *armed = due;
    }

    /// The first of all.
    pub(crate) fn next(&self) -> Option<Time> {
        self.0.first().map(|(due, _)| *due)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes out a deadline that has come.
    pub(crate) fn pop(&mut self, now: Time) -> Option<(Time, Connection)> {
        if self.next()? > now {
            return None;
        }
        self.0.pop_first()
    }

    /// Drops the deadlines of connections that are gone once there are more than `limit`.
    pub(crate) fn prune(&mut self, limit: usize, mut lives: impl FnMut(Time, &Connection) -> bool) {
        if self.0.len() > limit {
            self.0.retain(|(due, connection)| lives(*due, connection));
        }
    }
}
