//! Buffers of frames that are shared between copies and used again, so that a packet costs no
//! allocation.

use std::cell::RefCell;
use std::rc::Rc;

use super::view::View;

/// Room of a new buffer: an Ethernet frame of the usual size.
const USUAL: usize = 1536;

/// Room of the longest buffer that is kept: a jumbo frame.
const LONGEST: usize = 9216;

/// Buffers at rest. A clone is a handle to the same ones. A buffer returns when the last frame that
/// shares it is dropped.
#[derive(Clone, Debug)]
pub(super) struct Pool(Rc<Resting>);

#[derive(Debug)]
struct Resting {
    buffers: RefCell<Vec<Rc<Shared>>>,
    most: usize,
}

/// What copies of a frame share.
#[derive(Clone, Default, Debug)]
pub(super) struct Shared {
    pub(super) bytes: Vec<u8>,
    /// What was read of the bytes.
    pub(super) view: Option<View>,
}

impl Pool {
    /// A pool in which at most `most` buffers rest, of 1536 bytes each; only jumbo frames make them
    /// longer, up to 9216 bytes.
    pub(super) fn new(most: usize) -> Self {
        Self(Rc::new(Resting { buffers: RefCell::new(Vec::new()), most }))
    }

    /// An empty buffer.
    pub(super) fn take(&self) -> Buffer {
        let shared = self.0.buffers.borrow_mut().pop().unwrap_or_else(|| {
            Rc::new(Shared { bytes: Vec::with_capacity(USUAL), ..Shared::default() })
        });
        Buffer { shared: Some(shared), pool: self.clone() }
    }

    fn put_back(&self, mut shared: Rc<Shared>) {
        // None if another frame shares it.
        let Some(own) = Rc::get_mut(&mut shared) else { return };
        let mut buffers = self.0.buffers.borrow_mut();
        if own.bytes.capacity() <= LONGEST && buffers.len() < self.0.most {
            own.bytes.clear();
            own.view = None;
            buffers.push(shared);
        }
    }
}

/// The bytes of a frame. A clone shares them until one of the two is changed.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    /// Always some, until it is dropped.
    shared: Option<Rc<Shared>>,
    pool: Pool,
}

impl Buffer {
    /// The bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        self.shared.as_ref().map_or(&[], |shared| &shared.bytes)
    }

    /// The bytes, to be written.
    pub(super) fn edit(&mut self) -> &mut Vec<u8> {
        &mut self.own().bytes
    }

    pub(super) fn view(&self) -> Option<&View> {
        self.shared.as_ref()?.view.as_ref()
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// What is this buffer's alone, after a copy if it was not.
    pub(super) fn own(&mut self) -> &mut Shared {
        let shared = self.shared.get_or_insert_default();
        if Rc::get_mut(shared).is_none() {
            let mut copy = self.pool.take();
            if let Some(fresh) = copy.shared.as_mut().and_then(Rc::get_mut) {
                fresh.bytes.extend_from_slice(&shared.bytes);
                fresh.view = shared.view;
            }
            std::mem::swap(&mut copy.shared, &mut self.shared);
        }
        Rc::make_mut(self.shared.get_or_insert_default())
    }
}

impl AsMut<Vec<u8>> for Buffer {
    fn as_mut(&mut self) -> &mut Vec<u8> {
        self.edit()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            self.pool.put_back(shared);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resting(pool: &Pool) -> usize {
        pool.0.buffers.borrow().len()
    }

    #[test]
    fn the_last_frame_of_a_buffer_gives_it_back() {
        let pool = Pool::new(8);
        let mut first = pool.take();
        first.edit().extend_from_slice(b"first");
        let address = first.bytes().as_ptr();
        let copy = first.clone();
        assert_eq!((copy.bytes(), copy.bytes().as_ptr()), (&b"first"[..], address));
        drop(first);
        assert_eq!(resting(&pool), 0);
        drop(copy);
        assert_eq!(resting(&pool), 1);
        let again = pool.take();
        assert_eq!((again.bytes().as_ptr(), again.bytes().len()), (address, 0));
    }

    #[test]
    fn a_change_is_seen_by_nobody_else() {
        let pool = Pool::new(8);
        let mut one = pool.take();
        one.edit().extend_from_slice(b"one");
        let other = one.clone();
        one.edit().push(b'!');
        assert_eq!((one.bytes(), other.bytes()), (&b"one!"[..], &b"one"[..]));
        drop((one, other));
        assert_eq!(resting(&pool), 2);
    }

    #[test]
    fn what_rests_is_bounded_in_number_and_length() {
        let pool = Pool::new(2);
        drop([pool.take(), pool.take(), pool.take()]);
        assert_eq!(resting(&pool), 2);
        let mut long = pool.take();
        long.edit().resize(60_000, 0);
        drop(long);
        assert_eq!(resting(&pool), 1);
    }
}
