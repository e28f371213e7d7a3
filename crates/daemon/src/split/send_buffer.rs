//! Bytes that were written and are not acknowledged.

/// A ring of bytes with their places in the stream. It holds what may have to be sent again over
/// another hop: everything from the first byte that the peer has not acknowledged.
#[derive(Debug)]
pub(super) struct SendBuffer {
    buf: Box<[u8]>,
    /// Where in `buf` the first byte stands.
    head: usize,
    len: usize,
    /// Place of the first byte in the stream.
    start: u64,
}

impl SendBuffer {
    /// An empty ring for `capacity` bytes.
    pub(super) fn new(capacity: usize) -> Self {
        Self { buf: vec![0; capacity].into(), head: 0, len: 0, start: 0 }
    }

    /// How many bytes fit.
    pub(super) fn capacity(&self) -> usize {
        self.buf.len()
    }

    /// Place of the first byte that is kept.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// Place behind the last byte that was written.
    pub(super) fn end(&self) -> u64 {
        self.start + self.len as u64
    }

    /// Whether there is no room.
    pub(super) fn is_full(&self) -> bool {
        self.len == self.buf.len()
    }

    /// Room for bytes: one contiguous piece.
    pub(super) fn space(&mut self) -> &mut [u8] {
        let tail = self.head + self.len;
        let (from, to) = match tail.checked_sub(self.buf.len()) {
            Some(wrapped) => (wrapped, self.head),
            None => (tail, self.buf.len()),
        };
        &mut self.buf[from..to]
    }

    /// `n` bytes of [`space`](Self::space) were filled.
    pub(super) fn commit(&mut self, n: usize) {
        self.len += n.min(self.space().len());
    }

    /// Bytes before place `to` need not be kept any more.
    pub(super) fn release(&mut self, to: u64) {
        let n = (to.saturating_sub(self.start)).min(self.len as u64);
        self.start += n;
        self.len -= n as usize;
        // An empty ring begins anew, so that a quiet stream touches little memory.
        self.head = if self.len == 0 { 0 } else { (self.head + n as usize) % self.buf.len() };
    }

    /// All that is kept, in two pieces.
    pub(super) fn pieces(&self) -> (&[u8], &[u8]) {
        let end = self.head + self.len;
        match end.checked_sub(self.buf.len()) {
            Some(wrapped) => (&self.buf[self.head..], &self.buf[..wrapped]),
            None => (&self.buf[self.head..end], &[]),
        }
    }

    /// Fills `out` from place `from` on; all of it must be kept.
    pub(super) fn copy_to(&self, from: u64, out: &mut [u8]) {
        let skip = from.saturating_sub(self.start) as usize;
        let (a, b) = self.pieces();
        let first = a.get(skip..).unwrap_or_default();
        let second = b.get(skip.saturating_sub(a.len())..).unwrap_or_default();
        let n = first.len().min(out.len());
        let (front, back) = out.split_at_mut(n);
        front.copy_from_slice(&first[..n]);
        let m = second.len().min(back.len());
        back[..m].copy_from_slice(&second[..m]);
    }

    /// Makes room for `capacity` bytes, if that is more than there is.
    pub(super) fn grow(&mut self, capacity: usize) {
        if capacity <= self.buf.len() {
            return;
        }
        let mut buf = vec![0; capacity].into_boxed_slice();
        let (a, b) = self.pieces();
        buf[..a.len()].copy_from_slice(a);
        buf[a.len()..a.len() + b.len()].copy_from_slice(b);
        self.buf = buf;
        self.head = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(kept: &mut SendBuffer, data: &[u8]) -> usize {
        let mut done = 0;
        while done < data.len() && !kept.is_full() {
            let space = kept.space();
            let n = space.len().min(data.len() - done);
            space[..n].copy_from_slice(&data[done..done + n]);
            kept.commit(n);
            done += n;
        }
        done
    }

    #[test]
    fn bytes_keep_their_places_around_the_ring_and_through_growth() {
        let data: Vec<u8> = (0..200).collect();
        let mut kept = SendBuffer::new(16);
        let (mut written, mut released) = (0, 0);
        let mut step = 1;
        while released < data.len() {
            step = step * 5 % 13;
            written += write(&mut kept, &data[written..data.len().min(written + step)]);
            let (start, end) = (kept.start() as usize, kept.end() as usize);
            assert_eq!((start, end), (released, written));
            let (a, b) = kept.pieces();
            assert_eq!([a, b].concat(), data[start..end]);
            let from = start + (end - start) / 2;
            let mut half = vec![0; end - from];
            kept.copy_to(from as u64, &mut half);
            assert_eq!(half, data[from..end]);
            released = (released + step / 2 + 1).min(written);
            kept.release(released as u64);
            if written == 60 {
                kept.grow(23);
            }
        }
        assert!(kept.is_full() == (kept.capacity() == 0));
    }

    #[test]
    fn a_full_ring_takes_nothing_until_something_is_released() {
        let mut kept = SendBuffer::new(4);
        assert_eq!(write(&mut kept, b"abcdef"), 4);
        assert!(kept.is_full() && kept.space().is_empty());
        kept.release(3);
        assert_eq!(write(&mut kept, b"efgh"), 3);
        assert_eq!([kept.pieces().0, kept.pieces().1].concat(), b"defg");
        kept.release(2);
        assert_eq!(kept.start(), 3, "what is released stays released");
        kept.release(99);
        assert_eq!((kept.start(), kept.end()), (7, 7));
    }
}
