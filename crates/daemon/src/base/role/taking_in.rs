//! What a base takes in of its configuration while it runs: the mobiles that it serves and their addresses, the other bases,
//! and the keys of tickets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lasthop_control::{Changes, Reloaded};
use lasthop_hop::seal::{Allowed, PresharedKey, PublicKey};

use super::super::reload::{self, Fresh, Members};
use super::BaseRole;
use crate::driver::CoreOf;

pub(super) fn by_key(allowed: &[Allowed]) -> BTreeMap<PublicKey, PresharedKey> {
    allowed.iter().map(|mobile| (mobile.key, mobile.psk.clone())).collect()
}

/// Mobiles that are in `one` and not, or with another pre-shared key, in `other`; and those of `one` that begin anew.
fn difference(
    one: &BTreeMap<PublicKey, PresharedKey>,
    other: &BTreeMap<PublicKey, PresharedKey>,
    anew: &BTreeSet<PublicKey>,
) -> Vec<PublicKey> {
    let differ =
        one.iter().filter(|(mobile, psk)| other.get(mobile) != Some(psk) || anew.contains(mobile));
    differ.map(|(mobile, _)| *mobile).collect()
}

/// What has changed for a worker.
struct TakenIn {
    added: Vec<PublicKey>,
    removed: Vec<PublicKey>,
    /// Mobiles that stay, and begin anew, since they had an address that they do not have any more.
    anew: BTreeSet<PublicKey>,
    bases: Changes,
}

impl BaseRole {
    /// Reads the configuration again, and serves and trusts whom it names from here on.
    pub(super) fn reload(&mut self, core: &mut CoreOf<Self>) -> Result<Reloaded, String> {
        let outcome = self.read_again(core);
        reload::log(&outcome);
        outcome
    }

    fn read_again(&mut self, core: &mut CoreOf<Self>) -> Result<Reloaded, String> {
        let nowhere = "this base was not started from what can be read again";
        let (fresh, restart) = self.source.as_mut().ok_or(nowhere)?.read()?;
        let Some(Fresh { allowed, others, tickets, addresses }) = fresh else {
            return Ok(Reloaded { restart, ..Reloaded::default() });
        };
        let known = Arc::clone(self.exits.mobiles());
        // All workers share them.
        let (keys, renew) = tickets.map(|keys| known.tickets.set(keys)).unwrap_or_default();
        let (mut mobiles, mut changed) = (Arc::clone(&known), Changes::default());
        if let Some((book, permitted)) = addresses {
            mobiles = Arc::new(known.with(book));
            changed = known.changes(&mobiles);
            // Before any worker has it do something with what is new.
            if let Some(handoffs) = self.handoffs.as_ref().filter(|_| !changed.is_none()) {
                handoffs.prepare_mobiles(&mobiles);
            }
            self.exits.tell_helper(permitted, &mobiles);
        }
        let members = Arc::new(Members { others, mobiles, renew });
        let TakenIn { added, removed, anew, bases } = self.take_in(core, &allowed, &members);
        for mobile in &removed {
            match self.allowed.contains_key(mobile) {
                true if anew.contains(mobile) => {
                    tracing::info!(%mobile, "mobile without an address that it had");
                }
                true => tracing::info!(%mobile, "mobile with another pre-shared key"),
                false => tracing::info!(%mobile, "mobile no longer allowed"),
            }
        }
        let own = match &self.workers {
            Some(workers) => workers.serve(&allowed, &members),
            None => allowed,
        };
        set_allowed(core, &own, &anew);
        let (added, removed) = (added.len() as u64, removed.len() as u64);
        Ok(Reloaded { added, removed, bases, addresses: changed, keys, restart })
    }

    /// These mobiles are allowed from here on, also to move, and these members known.
    fn take_in(
        &mut self,
        core: &mut CoreOf<Self>,
        allow: &[Allowed],
        members: &Members,
    ) -> TakenIn {
        let Members { others, mobiles, renew } = members;
        let before = std::mem::replace(&mut self.allowed, by_key(allow));
        let mut anew = self.exits.mobiles().shrunk(mobiles);
        anew.retain(|mobile| before.contains_key(mobile) && self.allowed.contains_key(mobile));
        // With another pre-shared key it is as one that has left, and may come again.
        let added = difference(&self.allowed, &before, &anew);
        let removed = difference(&before, &self.allowed, &anew);
        removed
            .iter()
            .filter_map(|mobile| self.present.with(*mobile))
            .for_each(|id| core.renounce(id));
        let mut bases = Changes::default();
        self.exits.set_mobiles(Arc::clone(mobiles));
        if let Some(handoffs) = &mut self.handoffs {
            handoffs.set_served(core, &added, &removed);
            handoffs.set_mobiles(Arc::clone(mobiles));
            bases = handoffs.set_peers(core, &others.peers, &others.psks);
            self.transits.set_peers(&others.peers);
            self.news.set_peers(core, &others.peers);
        }
        if *renew {
            self.renewals.begin(core);
        }
        TakenIn { added, removed, anew, bases }
    }

    /// The first worker says whom this one serves from here on, and whom else it knows.
    pub(super) fn serve(&mut self, core: &mut CoreOf<Self>, allow: &[Allowed], members: &Members) {
        let TakenIn { anew, .. } = self.take_in(core, allow, members);
        set_allowed(core, allow, &anew);
    }
}

/// The hop serves these mobiles from here on. Associations of those that begin anew are lost.
fn set_allowed(core: &mut CoreOf<BaseRole>, allow: &[Allowed], anew: &BTreeSet<PublicKey>) {
    let (hop, mut turn) = core.turn();
    if !anew.is_empty() {
        let staying = allow.iter().filter(|mobile| !anew.contains(&mobile.key));
        hop.mobiles.set_allowed(&mut turn, &staying.cloned().collect::<Vec<_>>());
    }
    hop.mobiles.set_allowed(&mut turn, allow);
}
