//! Which handshakes are old, by their stamps.

use alloc::collections::BTreeMap;

use crate::seal::PublicKey;

/// The greatest stamp with which each mobile has made an association: a handshake whose stamp is not above it
/// was recorded, or its mobile's clock was set back.
#[derive(Clone, Default, Debug)]
pub struct Stamps {
    confirmed: BTreeMap<[u8; 32], u64>,
}

impl Stamps {
    /// The greatest stamp with which a mobile has made an association, if `stamp` is not above it.
    pub fn outdone(&self, mobile: &PublicKey, stamp: u64) -> Option<u64> {
        self.confirmed.get(mobile.as_bytes()).copied().filter(|greatest| stamp <= *greatest)
    }

    /// A mobile has used the keys of the handshake with this stamp.
    pub fn confirm(&mut self, mobile: &PublicKey, stamp: u64) {
        let greatest = self.confirmed.entry(*mobile.as_bytes()).or_default();
        *greatest = stamp.max(*greatest);
    }

    /// Forgets mobiles that are not to be `kept`.
    pub fn retain(&mut self, kept: impl Fn(&[u8; 32]) -> bool) {
        self.confirmed.retain(|mobile, _| kept(mobile));
    }
}
