use crate::mac::Mac;
use crate::mmsg::BATCH;

/// Frames that wait for one system call.
pub struct Batch {
    bytes: Box<[u8]>,
    used: usize,
    /// Where to, and where each begins and ends.
    frames: Vec<(Mac, usize, usize)>,
    /// The first that was not sent.
    next: usize,
    longest: usize,
}

impl Batch {
    /// Room for a batch of payloads of at most `longest` bytes.
    pub fn new(longest: usize) -> Self {
        Self {
            bytes: vec![0; BATCH * longest].into(),
            used: 0,
            frames: Vec::with_capacity(BATCH),
            next: 0,
            longest,
        }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.next == self.frames.len()
    }

    /// Room for one more payload, unless the batch is full.
    pub fn room(&mut self) -> Option<&mut [u8]> {
        if self.frames.len() == BATCH {
            return None;
        }
        self.bytes.get_mut(self.used..self.used + self.longest)
    }

    /// The first `len` bytes of the room are a payload for `to`.
    pub fn push(&mut self, to: Mac, len: usize) {
        let end = (self.used + len).min(self.bytes.len());
        self.frames.push((to, self.used, end));
        self.used = end;
    }

    /// What waits, in order.
    pub fn frames(&self) -> impl Iterator<Item = (Mac, &[u8])> {
        let waiting = self.frames.get(self.next..).unwrap_or_default();
        waiting.iter().map(|(to, start, end)| (*to, &self.bytes[*start..*end]))
    }

    /// The first `n` that wait do so no more.
    pub fn sent(&mut self, n: usize) {
        self.next = (self.next + n).min(self.frames.len());
    }

    /// Nothing waits.
    pub fn clear(&mut self) {
        self.frames.clear();
        (self.used, self.next) = (0, 0);
    }
}
