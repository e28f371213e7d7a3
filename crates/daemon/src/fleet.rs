//! What the bases of a fleet share: the keys of the tickets by which they go on with each other's connections.

use std::sync::{Arc, PoisonError, RwLock};

use lasthop_control::Changes;
use lasthop_hop::seal::{PublicKey, TicketKey};
use lasthop_migrate as migrate;
use lasthop_session::{ConnId, Orphan, Ticket};
use lasthop_wire::mhp::handoff::TicketMessage;

/// The keys: tickets are made with the first, and those of all are taken. All who have a clone have the same, and have others
/// as soon as those are [set](Self::set).
#[derive(Clone, Default, Debug)]
pub(crate) struct FleetKeys(Arc<RwLock<Arc<[TicketKey]>>>);

/// Whether both are the same, in constant time.
fn is_same(one: &TicketKey, other: &TicketKey) -> bool {
    let nobody = PublicKey::from_bytes([0; 32]);
    other.open(&nobody, 0, &one.seal(&nobody, 0, &[])).is_some()
}

/// How many of these are not among the others.
fn count_new(keys: &[TicketKey], others: &[TicketKey]) -> u64 {
    let is_new = |key: &&TicketKey| !others.iter().any(|other| is_same(key, other));
    keys.iter().filter(is_new).count() as u64
}

impl FleetKeys {
    /// Of keys that were read; there may be none.
    pub(crate) fn new(keys: Vec<TicketKey>) -> Self {
        Self(Arc::new(RwLock::new(keys.into())))
    }

    /// These instead: what has changed, and whether tickets are made with another from here on.
    pub(crate) fn set(&self, keys: Vec<TicketKey>) -> (Changes, bool) {
        let mut own = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let changes =
            Changes { added: count_new(&keys, &own), removed: count_new(&own, &keys), changed: 0 };
        let newest = keys.first();
        let is_other = newest.is_some_and(|new| !own.first().is_some_and(|old| is_same(old, new)));
        *own = keys.into();
        (changes, is_other)
    }

    /// Whether no tickets are made, and none taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    fn all(&self) -> Arc<[TicketKey]> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What a mobile is to keep of a connection of its own.
    pub(crate) fn seal(
        &self,
        mobile: &PublicKey,
        conn: ConnId,
        ticket: &migrate::Ticket,
    ) -> Option<Vec<u8>> {
        let sealed = self.all().first()?.seal(mobile, conn.0, &ticket.encode());
        let (connection, ticket) = (conn.0, Ticket::new(&sealed)?);
        let mut message = Vec::new();
        TicketMessage { connection, ticket }.encode(&mut message);
        Some(message)
    }

    /// What a base of the fleet has made of a mobile's connection; nothing if none has.
    pub(crate) fn open(&self, mobile: &PublicKey, orphan: &Orphan) -> Option<migrate::Ticket> {
        let (connection, ticket) = (orphan.connection, orphan.ticket.as_ref()?.as_bytes());
        let keys = self.all();
        let mut opened = keys.iter().filter_map(|key| key.open(mobile, connection, ticket));
        migrate::Ticket::decode(opened.next()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use lasthop_hop::seal::PresharedKey;
    use lasthop_units::Seed;

    use super::*;

    /// FLT-5
    #[test]
    fn who_has_a_clone_has_the_keys_that_are_set() {
        let key = |n: u64| TicketKey::new(&PresharedKey::generate(Seed::from_u64(n)));
        let keys = FleetKeys::new(vec![key(1), key(2)]);
        let clone = keys.clone();
        let changes = |added, removed| Changes { added, removed, changed: 0 };
        assert_eq!(keys.set(vec![key(1), key(2)]), (changes(0, 0), false));
        assert_eq!(keys.set(vec![key(3), key(1)]), (changes(1, 1), true));
        assert!(is_same(&clone.all()[0], &key(3)) && clone.all().len() == 2);
        // The newest is another though it is not new.
        assert_eq!(keys.set(vec![key(1)]), (changes(0, 1), true));
        assert_eq!(keys.set(Vec::new()), (changes(0, 1), false));
        assert!(clone.is_empty());
    }
}
