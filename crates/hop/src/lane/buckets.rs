//! Which slot belongs to which bucket: what has a name of any kind has one of so many buckets, and what exists a slot.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// Slots of `N` buckets, those that are free again used first.
#[derive(Debug)]
pub(super) struct Buckets<const N: usize> {
    /// The slot of each bucket, plus one; 0 if it has none.
    slots: Box<[u16; N]>,
    free: Vec<u16>,
    made: u16,
}

impl<const N: usize> Default for Buckets<N> {
    fn default() -> Self {
        Self { slots: Box::new([0; N]), free: Vec::new(), made: 0 }
    }
}

impl<const N: usize> Buckets<N> {
    /// The bucket of a name.
    pub(super) fn bucket(name: u64) -> u16 {
        (name % N as u64) as u16
    }

    /// How many have a slot.
    pub(super) fn len(&self) -> usize {
        usize::from(self.made) - self.free.len()
    }

    /// The slot of a bucket, if it has one.
    pub(super) fn get(&self, bucket: u16) -> Option<usize> {
        self.slots.get(usize::from(bucket))?.checked_sub(1).map(usize::from)
    }

    /// The slot of a bucket, and whether it has it from now on.
    pub(super) fn claim(&mut self, bucket: u16) -> (usize, bool) {
        let of = &mut self.slots[usize::from(bucket)];
        let claimed = *of == 0;
        if claimed {
            *of = 1 + self.free.pop().unwrap_or_else(|| {
                self.made += 1;
                self.made - 1
            });
        }
        (usize::from(*of - 1), claimed)
    }

    /// A bucket needs its slot no more.
    pub(super) fn release(&mut self, bucket: u16) {
        if let Some(slot) = core::mem::take(&mut self.slots[usize::from(bucket)]).checked_sub(1) {
            self.free.push(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_keeps_its_slot_and_what_is_free_is_used_again() {
        let mut buckets = Buckets::<8>::default();
        assert_eq!(Buckets::<8>::bucket(19), 3);
        assert_eq!(
            (buckets.claim(3), buckets.claim(5), buckets.claim(3)),
            ((0, true), (1, true), (0, false))
        );
        assert_eq!((buckets.get(3), buckets.get(4), buckets.get(9)), (Some(0), None, None));
        buckets.release(3);
        buckets.release(3);
        assert_eq!((buckets.len(), buckets.claim(7), buckets.claim(3)), (1, (0, true), (2, true)));
    }
}
