//! Buffers that are used again, so that packets cost no allocation.

use std::cell::RefCell;
use std::mem;
use std::rc::Rc;

/// The usual buffer; what is longer is not kept.
const USUAL: usize = 2048;

/// Buffers at rest. Packets return theirs when they are dropped.
#[derive(Debug)]
pub(crate) struct Pool {
    resting: RefCell<Vec<Vec<u8>>>,
    most: usize,
}

impl Pool {
    /// A pool that keeps at most `most` buffers.
    pub(crate) fn new(most: usize) -> Rc<Self> {
        Rc::new(Self { resting: RefCell::new(Vec::new()), most })
    }

    fn take(&self) -> Vec<u8> {
        self.resting.borrow_mut().pop().unwrap_or_else(|| Vec::with_capacity(USUAL))
    }

    fn recycle(&self, mut buffer: Vec<u8>) {
        let mut resting = self.resting.borrow_mut();
        if buffer.capacity() <= 2 * USUAL && resting.len() < self.most {
            buffer.clear();
            resting.push(buffer);
        }
    }
}

/// A packet inside the emulator: the bytes, and which peer they are from or for, where there are
/// several.
#[derive(Debug)]
pub(crate) struct Packet {
    pub(crate) bytes: Vec<u8>,
    pub(crate) peer: usize,
    pool: Rc<Pool>,
}

impl Packet {
    /// An empty packet.
    pub(crate) fn new(pool: &Rc<Pool>, peer: usize) -> Self {
        Self { bytes: pool.take(), peer, pool: Rc::clone(pool) }
    }

    /// A packet with a copy of `bytes`.
    pub(crate) fn copy_of(pool: &Rc<Pool>, peer: usize, bytes: &[u8]) -> Self {
        let mut packet = Self::new(pool, peer);
        packet.bytes.extend_from_slice(bytes);
        packet
    }
}

impl Clone for Packet {
    fn clone(&self) -> Self {
        Self::copy_of(&self.pool, self.peer, &self.bytes)
    }
}

impl AsMut<Vec<u8>> for Packet {
    fn as_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl Drop for Packet {
    fn drop(&mut self) {
        self.pool.recycle(mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_packet_gives_its_buffer_back() {
        let pool = Pool::new(1);
        let first = Packet::copy_of(&pool, 0, b"first");
        let address = first.bytes.as_ptr();
        let copy = first.clone();
        assert_eq!(copy.bytes, b"first");
        drop(first);
        drop(copy);
        assert_eq!(pool.resting.borrow().len(), 1);
        let again = Packet::new(&pool, 0);
        assert_eq!((again.bytes.as_ptr(), again.bytes.len()), (address, 0));
    }

    #[test]
    fn a_very_long_buffer_is_not_kept() {
        let pool = Pool::new(8);
        drop(Packet::copy_of(&pool, 0, &[0; 60_000]));
        assert_eq!(pool.resting.borrow().len(), 0);
    }
}
