//! One bound for the buffers of many associations, shared fairly.
//!
//! Each association has a [`Lease`] for each direction. A minimum is its own, whoever else needs
//! memory. What is beyond comes from the common half, and one lease gets at most as much of it as
//! it leaves to all others: the dynamic threshold of Choudhury and Hahne ("Dynamic queue length
//! thresholds for shared-memory packet switches", 1998). Leases that need much become equal, who
//! comes later finds something, and what nobody needs is anybody's.
//!
//! What was promised is never taken back: a lease that has more than it would get now keeps it until
//! it needs less. All of that takes the same time however many leases there are.

use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use lasthop_units::Bytes;

/// One of so many parts of the bound is for minimums; the rest is common.
const MINIMUMS: u64 = 2;
/// Leases of an association: one for each direction.
const LEASES: u64 = 2;
/// No lease's minimum is less, however small the bound.
const LEAST: Bytes = Bytes::from_kib(16);

/// What is left of the bound, for all that share it.
#[derive(Debug)]
struct Pool {
    bound: u64,
    minimum: u64,
    /// What leases may have beyond their minimums, of all together.
    common: u64,
    /// Leases that may have their minimum beside the common part.
    places: u64,
    leases: AtomicU64,
    /// What is lent of the common part.
    lent: AtomicU64,
    /// What all leases need, minimums included.
    needed: AtomicU64,
}

/// A bound for the buffers of all associations that are given a clone of it; by default none.
#[derive(Clone, Default)]
pub struct Memory(Option<Arc<Pool>>);

/// The same bound, not an equal one.
impl PartialEq for Memory {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(pool) => write!(f, "Memory({} bytes)", pool.bound),
            None => f.write_str("Memory(unbounded)"),
        }
    }
}

impl Memory {
    /// A bound of so much, of which a part is set aside for the minimums of so many associations.
    /// Further associations have theirs from the common part.
    pub fn bounded(bound: Bytes, associations: usize) -> Self {
        let places = (associations.max(1) as u64).saturating_mul(LEASES);
        let minimum = (bound.get() / MINIMUMS / places).max(LEAST.get());
        Self(Some(Arc::new(Pool {
            bound: bound.get(),
            minimum,
            common: bound.get().saturating_sub(minimum.saturating_mul(places)),
            places,
            leases: AtomicU64::new(0),
            lent: AtomicU64::new(0),
            needed: AtomicU64::new(0),
        })))
    }

    /// The bound, if there is one.
    pub fn bound(&self) -> Option<Bytes> {
        self.0.as_ref().map(|pool| Bytes::new(pool.bound))
    }

    /// What leases need at the moment; nothing is counted without a bound.
    pub fn needed(&self) -> Bytes {
        Bytes::new(self.0.as_ref().map_or(0, |pool| pool.needed.load(Ordering::Relaxed)))
    }

    /// What every lease may need at any time.
    pub fn minimum(&self) -> Bytes {
        self.0.as_ref().map_or(Bytes::MAX, |pool| Bytes::new(pool.minimum))
    }

    /// A lease that needs nothing yet.
    pub fn lease(&self) -> Lease {
        let pool = self.0.clone();
        let borrowed = pool.as_ref().is_some_and(|pool| {
            let placed = pool.leases.fetch_add(1, Ordering::Relaxed) < pool.places;
            if !placed {
                pool.lent.fetch_add(pool.minimum, Ordering::Relaxed);
            }
            !placed
        });
        Lease { pool, borrowed, need: 0 }
    }
}

/// What one direction of an association may need of a [`Memory`].
#[derive(Debug)]
pub struct Lease {
    pool: Option<Arc<Pool>>,
    /// Its minimum is from the common part.
    borrowed: bool,
    need: u64,
}

impl Lease {
    /// What it needs.
    pub fn need(&self) -> u64 {
        self.need
    }

    /// Whether it may need so much more.
    pub fn has_room_for(&self, more: u64) -> bool {
        self.most().saturating_sub(self.need) >= more
    }

    /// What every lease may need at any time; everything, without a bound.
    pub fn minimum(&self) -> u64 {
        self.pool.as_ref().map_or(u64::MAX, |pool| pool.minimum)
    }

    /// The most that it may need now: what it needs, or more.
    pub fn most(&self) -> u64 {
        let Some(pool) = &self.pool else { return u64::MAX };
        let beyond = self.need.saturating_sub(pool.minimum);
        let others = pool.lent.load(Ordering::Relaxed).saturating_sub(beyond);
        pool.minimum + beyond.max(pool.common.saturating_sub(others) / 2)
    }

    /// It needs so much from here on. More than [`most`](Self::most) is counted, but for whoever asks
    /// for it to answer for.
    pub fn set_need(&mut self, need: u64) {
        let before = core::mem::replace(&mut self.need, need);
        let Some(pool) = &self.pool else { return };
        if need != before {
            change(&pool.needed, before, need);
        }
        let beyond = |need: u64| need.saturating_sub(pool.minimum);
        if beyond(need) != beyond(before) {
            change(&pool.lent, beyond(before), beyond(need));
        }
    }
}

fn change(of: &AtomicU64, before: u64, after: u64) {
    if after >= before {
        of.fetch_add(after - before, Ordering::Relaxed);
    } else {
        of.fetch_sub(before - after, Ordering::Relaxed);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.set_need(0);
        if let Some(pool) = &self.pool {
            pool.leases.fetch_sub(1, Ordering::Relaxed);
            if self.borrowed {
                pool.lent.fetch_sub(pool.minimum, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn take(lease: &mut Lease) -> u64 {
        let most = lease.most();
        lease.set_need(most);
        most
    }

    /// SEC-14: nobody takes all, and nobody is without.
    #[test]
    fn a_lease_leaves_as_much_as_it_takes_and_always_has_its_minimum() {
        let memory = Memory::bounded(Bytes::from_mib(64), 4);
        let (minimum, common) = (4 * MIB, 32 * MIB);
        let mut leases: Vec<_> = (0..8).map(|_| memory.lease()).collect();
        assert_eq!(take(&mut leases[0]), minimum + common / 2);
        assert_eq!(take(&mut leases[1]), minimum + common / 4);
        for lease in &mut leases {
            assert!(take(lease) >= minimum);
        }
        assert!(memory.needed() <= Bytes::from_mib(64));
        leases.clear();
        assert_eq!(memory.needed(), Bytes::ZERO);
        assert_eq!(memory.lease().most(), minimum + common / 2);
    }

    /// SEC-14: whoever was first: those that need as much as they get, and give some back now and then,
    /// become equal.
    #[test]
    fn leases_that_use_what_they_have_become_equal() {
        let memory = Memory::bounded(Bytes::from_mib(64), 4);
        let mut leases: Vec<_> = (0..3).map(|_| memory.lease()).collect();
        for _ in 0..200 {
            for lease in &mut leases {
                take(lease);
                lease.set_need(lease.need() - lease.need() / 10);
            }
        }
        let needs: Vec<u64> = leases.iter_mut().map(take).collect();
        let (least, most) = (needs.iter().min().unwrap(), needs.iter().max().unwrap());
        assert!(least * 10 > most * 8, "{needs:?}");
        assert!(most * 4 > 32 * MIB / 4, "{needs:?}");
    }

    #[test]
    fn more_leases_than_places_take_from_the_common_part() {
        let memory = Memory::bounded(Bytes::from_mib(64), 1);
        let placed = [memory.lease(), memory.lease()];
        let common = placed[0].most() - placed[0].minimum();
        let third = memory.lease();
        assert_eq!(placed[0].most() - placed[0].minimum(), common - third.minimum() / 2);
        drop(third);
        assert_eq!(placed[1].most() - placed[1].minimum(), common);
    }

    #[test]
    fn without_a_bound_there_is_always_more() {
        let memory = Memory::default();
        let mut lease = memory.lease();
        lease.set_need(MIB);
        assert_eq!((memory.bound(), memory.needed(), lease.most()), (None, Bytes::ZERO, u64::MAX));
    }
}
