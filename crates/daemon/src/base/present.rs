//! The mobiles that are at a base.

use std::collections::{BTreeMap, BTreeSet};

use lasthop_hop::AssociationId;
use lasthop_hop::seal::PublicKey;

use crate::backhaul::BaseAssociationId;

/// Associations with mobiles by the mobiles' keys, where those have some. Later associations have greater names.
#[derive(Debug, Default)]
pub(super) struct Present {
    mobiles: BTreeMap<BaseAssociationId, Option<PublicKey>>,
    by_key: BTreeSet<(PublicKey, BaseAssociationId)>,
}

impl Present {
    /// A mobile has come.
    pub(super) fn insert(&mut self, id: BaseAssociationId, key: Option<PublicKey>) {
        self.mobiles.insert(id, key);
        self.by_key.extend(key.map(|key| (key, id)));
    }

    /// An association is over; its mobile's key.
    pub(super) fn remove(&mut self, id: BaseAssociationId) -> Option<PublicKey> {
        let key = self.mobiles.remove(&id)??;
        self.by_key.remove(&(key, id));
        Some(key)
    }

    /// The key of the mobile at the other end of an association.
    pub(super) fn key_of(&self, id: BaseAssociationId) -> Option<PublicKey> {
        *self.mobiles.get(&id)?
    }

    /// The latest association with the mobile that has this key.
    pub(super) fn with(&self, key: PublicKey) -> Option<BaseAssociationId> {
        let [first, last] =
            [0, u64::MAX].map(|n| (key, BaseAssociationId::Mobile(AssociationId(n))));
        self.by_key.range(first..=last).next_back().map(|(_, id)| *id)
    }

    /// All, the latest first.
    pub(super) fn latest(&self) -> impl Iterator<Item = (BaseAssociationId, Option<PublicKey>)> {
        self.mobiles.iter().rev().map(|(id, key)| (*id, *key))
    }
}
