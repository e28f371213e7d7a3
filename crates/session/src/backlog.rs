//! Bytes that wait to be taken.

use alloc::vec::Vec;

/// Bytes in order, added behind and taken from the front.
#[derive(Clone, Default, Debug)]
pub(crate) struct Backlog {
    bytes: Vec<u8>,
    taken: usize,
}

impl Backlog {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, taken: 0 }
    }

    /// Those that were not taken.
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.taken
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first `n` of them were taken.
    pub(crate) fn take(&mut self, n: usize) {
        self.taken = self.bytes.len().min(self.taken + n);
        if self.is_empty() {
            *self = Self::default();
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        // What was taken is moved out of the way at most once for each byte.
        if self.taken > self.bytes.len() / 2 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }
}
