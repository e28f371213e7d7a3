//! A ring of bytes addressed by stream offset.

use alloc::boxed::Box;
use alloc::vec;
use core::ops::Range;

/// The least room that is made.
const SMALLEST: usize = 16 * 1024;
/// An empty ring keeps its room for what comes next if it is more than the least, which costs nothing to make again,
/// and no more than what a fast stream fills in a turn: a page fault for each page of it costs as much as the bytes do.
const KEPT: usize = 4 * 1024 * 1024;
/// The least that is left where memory is scarce.
const TIGHTEST: usize = 1024;

/// Bytes of a stream from offset `start` on. The room grows by doubling up to what is asked of it
/// and shrinks to nothing when the ring is emptied and released.
#[derive(Clone, Debug, Default)]
pub struct Ring {
    bytes: Box<[u8]>,
    start: u64,
    /// The offset that is at the beginning of the memory.
    origin: u64,
}

impl Ring {
    /// The offset of the first byte that is still kept.
    #[inline]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Bytes of memory held.
    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    fn position(&self, offset: u64) -> usize {
        // The capacity is a power of two, so that a mask finds the place.
        (offset.wrapping_sub(self.origin) as usize) & (self.bytes.len() - 1)
    }

    /// The least capacity with room for so many bytes: at most twice as much, or a KiB.
    pub fn tight(bytes: u64) -> usize {
        match usize::try_from(bytes).unwrap_or(usize::MAX) {
            0 => 0,
            bytes => bytes.next_power_of_two().max(TIGHTEST),
        }
    }

    /// The capacity that [`reserve`](Self::reserve) makes for so many bytes.
    pub fn ample(bytes: u64) -> usize {
        Self::tight(bytes.max(1)).max(SMALLEST)
    }

    /// Makes room for offsets up to `end`, keeping all that is there.
    pub fn reserve(&mut self, end: u64) {
        let need = end.saturating_sub(self.start);
        if need > self.bytes.len() as u64 {
            self.resize(Self::ample(need), self.bytes.len());
        }
    }

    /// As [`reserve`](Self::reserve), but no more room than it takes.
    pub fn reserve_tightly(&mut self, end: u64) {
        let need = end.saturating_sub(self.start);
        if need > self.bytes.len() as u64 {
            self.resize(Self::tight(need), self.bytes.len());
        }
    }

    /// Gives back what is more than it takes to keep the bytes before `end`.
    pub fn shrink(&mut self, end: u64) {
        let kept = end.saturating_sub(self.start);
        let capacity = Self::tight(kept);
        if capacity < self.bytes.len() {
            self.resize(capacity, kept as usize);
        }
    }

    /// Moves the first `kept` bytes into a ring of that capacity, which has room for them.
    fn resize(&mut self, capacity: usize, kept: usize) {
        let bytes = vec![0; capacity].into_boxed_slice();
        let resized = Self { bytes, start: self.start, origin: self.start };
        let old = core::mem::replace(self, resized);
        let (a, b) = old.slices(old.start..old.start + kept as u64);
        self.write(old.start, a);
        self.write(old.start + a.len() as u64, b);
    }

    /// Copies `data` to `offset`; the room must have been reserved.
    #[inline]
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        debug_assert!(offset >= self.start);
        debug_assert!(offset + data.len() as u64 - self.start <= self.bytes.len() as u64);
        let at = self.position(offset);
        let head = data.len().min(self.bytes.len() - at);
        self.bytes[at..at + head].copy_from_slice(&data[..head]);
        self.bytes[..data.len() - head].copy_from_slice(&data[head..]);
    }

    /// The bytes of `range`, in up to two pieces.
    #[inline]
    pub fn slices(&self, range: Range<u64>) -> (&[u8], &[u8]) {
        let len = range.end.saturating_sub(range.start) as usize;
        if len == 0 {
            return (&[], &[]);
        }
        let at = self.position(range.start);
        let head = len.min(self.bytes.len() - at);
        (&self.bytes[at..at + head], &self.bytes[..len - head])
    }

    /// One contiguous writable piece at `offset`, at most `len` bytes; the room must be reserved.
    #[inline]
    pub fn contiguous_mut(&mut self, offset: u64, len: usize) -> &mut [u8] {
        if len == 0 {
            return &mut [];
        }
        let at = self.position(offset);
        let head = len.min(self.bytes.len() - at);
        &mut self.bytes[at..at + head]
    }

    /// Forgets everything before `offset`.
    #[inline]
    pub fn advance(&mut self, offset: u64) {
        debug_assert!(offset >= self.start);
        self.start = offset;
    }

    /// An empty ring begins anew where its memory does: what was used last is still in a near cache.
    #[inline]
    pub fn rewind(&mut self) {
        self.origin = self.start;
    }

    /// Whether an empty ring's memory is to be given back.
    pub fn is_idle_waste(&self) -> bool {
        !(SMALLEST + 1..=KEPT).contains(&self.bytes.len())
    }

    /// Gives the memory back; only for an empty ring.
    pub fn release(&mut self) {
        self.bytes = Box::default();
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn read(ring: &Ring, range: Range<u64>) -> Vec<u8> {
        let (a, b) = ring.slices(range);
        [a, b].concat()
    }

    #[test]
    fn bytes_survive_wrapping_and_growing() {
        let mut ring = Ring::default();
        let byte = |o: u64| (o * 31 % 251) as u8;
        let (mut kept, mut written) = (0u64, 0u64);
        for step in 0..400u64 {
            let end = written + 1 + step * 37 % 900;
            ring.reserve(end);
            let data: Vec<u8> = (written..end).map(byte).collect();
            ring.write(written, &data);
            written = end;
            if step % 3 == 0 {
                kept += (written - kept) / 2;
                ring.advance(kept);
            }
            let expected: Vec<u8> = (kept..written).map(byte).collect();
            assert_eq!(read(&ring, kept..written), expected, "step {step}");
        }
        assert!(ring.capacity() > SMALLEST / 2);
    }

    #[test]
    fn a_ring_shrinks_to_what_is_kept() {
        let mut ring = Ring::default();
        let data: Vec<u8> = (0..100_000u32).map(|n| (n % 251) as u8).collect();
        ring.reserve(100_000);
        ring.write(0, &data);
        ring.shrink(100_000);
        assert_eq!(ring.capacity(), 128 * 1024);
        ring.advance(70_000);
        ring.shrink(100_000);
        assert_eq!(
            (ring.capacity(), read(&ring, 70_000..100_000)),
            (32 * 1024, data[70_000..].to_vec())
        );
        ring.advance(100_000);
        ring.shrink(100_000);
        assert_eq!(ring.capacity(), 0);
        ring.reserve_tightly(100_001);
        assert_eq!(ring.capacity(), TIGHTEST);
        assert_eq!([1, SMALLEST as u64 + 1].map(Ring::ample), [SMALLEST, 2 * SMALLEST]);
    }

    #[test]
    fn a_contiguous_piece_stops_at_the_seam() {
        let mut ring = Ring::default();
        ring.reserve(SMALLEST as u64);
        ring.advance(SMALLEST as u64 - 10);
        assert_eq!(ring.contiguous_mut(SMALLEST as u64 - 10, 100).len(), 10);
        assert_eq!(ring.contiguous_mut(SMALLEST as u64, 100).len(), 100);
        assert!(ring.slices(5..5).0.is_empty());
    }
}
