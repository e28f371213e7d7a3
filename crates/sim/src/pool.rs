//! Packet buffers that are used again: after warm-up a packet on its way allocates nothing.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::Addr;

#[derive(Debug)]
struct Slot {
    bytes: Box<[u8]>,
    len: usize,
    from: Addr,
    to: Addr,
}

#[derive(Debug)]
struct Shared {
    free: RefCell<Vec<Slot>>,
    longest: usize,
    in_use: Cell<usize>,
}

/// The buffers of a world.
#[derive(Debug)]
pub(crate) struct Pool(Rc<Shared>);

impl Pool {
    /// Buffers of `longest` bytes, made as they are needed.
    pub(crate) fn new(longest: usize) -> Self {
        Self(Rc::new(Shared { free: RefCell::default(), longest, in_use: Cell::new(0) }))
    }

    /// The longest datagram that a buffer holds.
    pub(crate) fn longest(&self) -> usize {
        self.0.longest
    }

    /// A packet with room for the longest datagram and nothing in it.
    pub(crate) fn take(&self, from: Addr) -> Packet {
        self.0.in_use.set(self.0.in_use.get() + 1);
        let mut slot = self.0.free.borrow_mut().pop().unwrap_or_else(|| {
            let bytes = vec![0; self.0.longest].into_boxed_slice();
            Slot { bytes, len: 0, from, to: from }
        });
        (slot.from, slot.to, slot.len) = (from, from, 0);
        Packet { slot: Some(slot), pool: Rc::clone(&self.0) }
    }

    /// Packets that exist at this moment.
    pub(crate) fn in_use(&self) -> usize {
        self.0.in_use.get()
    }
}

/// A datagram on its way. Its buffer returns to the pool when it is dropped, wherever that is.
#[derive(Debug)]
pub(crate) struct Packet {
    /// Taken only by `drop`.
    slot: Option<Slot>,
    pool: Rc<Shared>,
}

impl Packet {
    /// Room for a whole datagram; [`finish`](Self::finish) says how much of it was used.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        self.slot.as_mut().map_or(&mut [], |s| &mut s.bytes)
    }

    pub(crate) fn finish(&mut self, to: Addr, len: usize) {
        if let Some(s) = &mut self.slot {
            s.to = to;
            s.len = len.min(s.bytes.len());
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.slot.as_ref().map_or(&[], |s| &s.bytes[..s.len])
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.slot.as_mut().map_or(&mut [], |s| &mut s.bytes[..s.len])
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        if let Some(s) = &mut self.slot {
            s.len = s.len.min(len);
        }
    }

    /// Lets the datagram come from somebody else.
    pub(crate) fn readdress(&mut self, from: Addr) {
        if let Some(s) = &mut self.slot {
            s.from = from;
        }
    }

    /// Where from and where to.
    pub(crate) fn route(&self) -> (Addr, Addr) {
        self.slot.as_ref().map_or((Addr::new(0, 0), Addr::new(0, 0)), |s| (s.from, s.to))
    }
}

impl Clone for Packet {
    fn clone(&self) -> Self {
        let (from, to) = self.route();
        let mut copy = Pool(Rc::clone(&self.pool)).take(from);
        copy.room()[..self.bytes().len()].copy_from_slice(self.bytes());
        copy.finish(to, self.bytes().len());
        copy
    }
}

impl Drop for Packet {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.pool.in_use.set(self.pool.in_use.get() - 1);
            self.pool.free.borrow_mut().push(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again_and_copies_are_their_own() {
        let pool = Pool::new(100);
        let mut a = pool.take(Addr::new(1, 1));
        a.room()[..3].copy_from_slice(b"abc");
        a.finish(Addr::new(2, 2), 3);
        let mut b = a.clone();
        b.bytes_mut()[0] = b'x';
        assert_eq!((a.bytes(), b.bytes()), (&b"abc"[..], &b"xbc"[..]));
        assert_eq!(b.route(), (Addr::new(1, 1), Addr::new(2, 2)));
        assert_eq!(pool.in_use(), 2);
        drop((a, b));
        assert_eq!((pool.in_use(), pool.0.free.borrow().len()), (0, 2));
        let c = pool.take(Addr::new(3, 3));
        assert!(c.bytes().is_empty());
        assert_eq!(pool.0.free.borrow().len(), 1);
    }
}
