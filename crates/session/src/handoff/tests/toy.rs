//! Grants without keys, for schedules by the thousand.

use super::*;

/// What one of the world's machines knows: the mobile, and the bases 1 to 3. It makes grants from a
/// secret that nobody else in the world has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Toy {
    pub(crate) own: u32,
}

const BASES: [u32; 3] = [1, 2, 3];

pub(super) fn grant(mobile: u32, holder: u32, claim: &Claim<u32>) -> Grant {
    let name = |n: u32| format!("{mobile} {holder} {claim:?} {n} secret");
    let mut digest = [0; Grant::LEN];
    for (n, half) in (0..).zip(digest.chunks_mut(8)) {
        half.copy_from_slice(&delta::name(name(n).as_bytes()).digest.to_be_bytes());
    }
    Grant(digest)
}

impl Granter<u32> for Toy {
    fn grants(&self, session: SessionId, attempt: u32, to: u32) -> Vec<(u32, Grant)> {
        let claim = Claim { session, attempt, to };
        let others = BASES.into_iter().filter(|holder| *holder != to);
        others.map(|holder| (holder, grant(self.own, holder, &claim))).collect()
    }
}

impl Authority<u32> for Toy {
    fn is_base(&self, name: u32) -> bool {
        BASES.contains(&name)
    }

    fn is_mobile(&self, name: u32) -> bool {
        name == MOBILE || name == MOBILE + 1
    }

    fn holds(&self, mobile: u32, claim: &Claim<u32>, given: &Grant) -> bool {
        grant(mobile, self.own, claim) == *given
    }
}
