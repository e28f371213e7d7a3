//! Trust by static keys: bases and mobiles are called by them, and grants are made from them.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use lasthop_hop::seal::{GrantKey, Keypair, PublicKey};
use lasthop_wire::mhp::handoff::{BaseName, GRANTS_MAX, Grant, SessionId};

use super::{Address, Authority, Claim, Granter};

impl Address for PublicKey {
    fn to_name(self) -> BaseName {
        BaseName::new(self.as_bytes()).unwrap_or_default()
    }

    fn from_name(name: &BaseName) -> Option<Self> {
        name.as_bytes().try_into().ok().map(Self::from_bytes)
    }
}

/// A mobile's grants to the bases that it knows.
#[derive(Clone)]
pub struct MobileKeys {
    holders: Vec<(PublicKey, GrantKey)>,
}

impl MobileKeys {
    /// Of the mobile with those keys, to those bases. A base whose key is not usable, having low
    /// order, is left out: no association with it is possible either.
    pub fn new(mobile: &Keypair, bases: impl IntoIterator<Item = PublicKey>) -> Self {
        let key = |base: PublicKey| Some((base, GrantKey::of_mobile(mobile, &base)?));
        Self { holders: bases.into_iter().filter_map(key).collect() }
    }

    /// One more base, which the mobile with those keys knows. False if its key is not usable.
    pub fn add(&mut self, mobile: &Keypair, base: PublicKey) -> bool {
        self.remove(&base);
        let key = GrantKey::of_mobile(mobile, &base);
        self.holders.extend(key.map(|key| (base, key)));
        self.holders.last().is_some_and(|(last, _)| *last == base)
    }

    /// The mobile does not know that base any more.
    pub fn remove(&mut self, base: &PublicKey) {
        self.holders.retain(|(holder, _)| holder != base);
    }

    /// A session goes to that base. Where there are more bases than grants in one message, those that had a session
    /// last have them.
    pub fn prefer(&mut self, base: &PublicKey) {
        if let Some(at) = self.holders.iter().position(|(holder, _)| holder == base) {
            self.holders[..=at].rotate_right(1);
        }
    }
}

impl Granter<PublicKey> for MobileKeys {
    fn grants(&self, session: SessionId, attempt: u32, to: PublicKey) -> Vec<(PublicKey, Grant)> {
        let grant = |(holder, key): &(PublicKey, GrantKey)| {
            (*holder != to).then(|| (*holder, key.grant(session, attempt, &to)))
        };
        self.holders.iter().filter_map(grant).take(GRANTS_MAX).collect()
    }
}

/// The bases and mobiles that a base is configured with.
#[derive(Clone, Debug)]
pub struct BaseKeys {
    keys: Keypair,
    bases: BTreeSet<PublicKey>,
    mobiles: BTreeSet<PublicKey>,
}

impl BaseKeys {
    /// Of a base with those keys, which knows nobody yet.
    pub fn new(keys: Keypair) -> Self {
        Self { keys, bases: BTreeSet::new(), mobiles: BTreeSet::new() }
    }

    /// Sessions may come from that base and go to it.
    pub fn allow_base(&mut self, base: PublicKey) {
        self.bases.insert(base);
    }

    /// That mobile may be served here.
    pub fn allow_mobile(&mut self, mobile: PublicKey) {
        self.mobiles.insert(mobile);
    }

    /// Sessions come from that base and go to it no more.
    pub fn deny_base(&mut self, base: &PublicKey) {
        self.bases.remove(base);
    }

    /// That mobile is not to be served here any more.
    pub fn deny_mobile(&mut self, mobile: &PublicKey) {
        self.mobiles.remove(mobile);
    }
}

impl Authority<PublicKey> for BaseKeys {
    fn is_base(&self, name: PublicKey) -> bool {
        self.bases.contains(&name)
    }

    fn is_mobile(&self, name: PublicKey) -> bool {
        self.mobiles.contains(&name)
    }

    fn holds(&self, mobile: PublicKey, claim: &Claim<PublicKey>, grant: &Grant) -> bool {
        let Claim { session, attempt, to } = claim;
        GrantKey::of_holder(&self.keys, &mobile)
            .is_some_and(|key| key.verify(*session, *attempt, to, grant))
    }
}
