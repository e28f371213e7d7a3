//! What closes and opens the records of one stream: the association's keys, and the record's position.
//!
//! All streams of an association share its two keys, so that opening a stream takes no handshake.
//! A record's number is the nonce; it grows with every record that a side seals, whatever the
//! stream. The stream's number and the record's index in it are authenticated but not sent: a
//! record that was dropped, repeated, moved or put into another stream does not open.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lasthop_hop::seal::{Keys, OpeningKey, SealingKey};

/// Length and number.
pub(crate) const HEADER_LEN: usize = 2 + 8;
/// Room that every record keeps for an authentication tag.
pub(crate) const TAG_LEN: usize = 16;
/// Header, stream and index.
const POSITION_LEN: usize = HEADER_LEN + 8 + 8;

/// The stream number that stands for an association's control connection.
pub(crate) const CONTROL: u64 = u64::MAX;

struct Sending {
    key: SealingKey,
    next: u64,
}

/// An association's keys.
#[derive(Clone)]
pub(crate) struct SharedKeys {
    tag_len: usize,
    sending: Arc<Mutex<Sending>>,
    receiving: Arc<Mutex<OpeningKey>>,
}

impl SharedKeys {
    /// The keys that a handshake yielded.
    pub(crate) fn new(keys: Keys) -> Self {
        Self {
            tag_len: keys.send.tag_len(),
            sending: Arc::new(Mutex::new(Sending { key: keys.send, next: 0 })),
            receiving: Arc::new(Mutex::new(keys.recv)),
        }
    }

    /// What closes and opens the records of one stream.
    pub(crate) fn stream(&self, stream: u64) -> (Sealer, Opener) {
        let (keys, tag_len) = (self.clone(), self.tag_len);
        let position = Position { stream, index: 0 };
        (
            Sealer { keys: keys.sending, tag_len, position },
            Opener { keys: keys.receiving, tag_len, position },
        )
    }
}

#[derive(Clone, Copy)]
struct Position {
    stream: u64,
    index: u64,
}

impl Position {
    /// What is authenticated beside the body. The position moves on.
    fn next(&mut self, header: &[u8; HEADER_LEN]) -> [u8; POSITION_LEN] {
        let mut out = [0; POSITION_LEN];
        out[..HEADER_LEN].copy_from_slice(header);
        out[HEADER_LEN..HEADER_LEN + 8].copy_from_slice(&self.stream.to_be_bytes());
        out[HEADER_LEN + 8..].copy_from_slice(&self.index.to_be_bytes());
        self.index += 1;
        out
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes records.
pub(crate) struct Sealer {
    keys: Arc<Mutex<Sending>>,
    tag_len: usize,
    position: Position,
}

impl Sealer {
    /// Bytes that [`seal`](Self::seal) writes at the end of a record's body.
    pub(crate) fn tag_len(&self) -> usize {
        self.tag_len
    }

    /// Writes `header` and encrypts `body`, of `length` bytes, in place. The last
    /// [`tag_len`](Self::tag_len) bytes of `body` are room for the tag.
    pub(crate) fn seal(&mut self, length: u16, header: &mut [u8; HEADER_LEN], body: &mut [u8]) {
        let mut sending = lock(&self.keys);
        let number = sending.next;
        sending.next += 1;
        header[..2].copy_from_slice(&length.to_be_bytes());
        header[2..].copy_from_slice(&number.to_be_bytes());
        let position = self.position.next(header);
        let (plaintext, tag) = body.split_at_mut(body.len().saturating_sub(self.tag_len));
        if sending.key.seal_in_place(number, &position, plaintext, tag).is_err() {
            // The number grows by one each time and the tag has room, so this does not happen. If
            // it did, nothing may leave unsealed; the peer will reset the stream.
            body.fill(0);
        }
    }
}

/// Opens records.
pub(crate) struct Opener {
    keys: Arc<Mutex<OpeningKey>>,
    tag_len: usize,
    position: Position,
}

impl Opener {
    /// Bytes at the end of a record's body that are not content.
    pub(crate) fn tag_len(&self) -> usize {
        self.tag_len
    }

    /// Decrypts `body` in place; false if it is not what the peer sealed here.
    pub(crate) fn open(&mut self, header: &[u8; HEADER_LEN], body: &mut [u8]) -> bool {
        let [_, _, number @ ..] = *header;
        let position = self.position.next(header);
        lock(&self.keys).open_in_place(u64::from_be_bytes(number), &position, body).is_ok()
    }
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealer").field("stream", &self.position.stream).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Opener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opener").field("stream", &self.position.stream).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::hostile::keys;

    fn sealed(sealer: &mut Sealer) -> ([u8; HEADER_LEN], [u8; 20]) {
        let (mut header, mut body) = ([0; HEADER_LEN], *b"body0123456789abcdef");
        sealer.seal(20, &mut header, &mut body);
        (header, body)
    }

    #[test]
    fn records_open_in_their_place_only() {
        let (mobile, base) = keys(true);
        let (mut sealer, _) = mobile.stream(4);
        let (first, second) = (sealed(&mut sealer), sealed(&mut sealer));
        let opens = |stream: u64, records: &[([u8; HEADER_LEN], [u8; 20])]| {
            let (_, mut opener) = base.stream(stream);
            records.iter().all(|(header, body)| opener.open(header, &mut body.clone()))
        };
        assert!(opens(4, &[first, second]));
        assert!(!opens(4, &[second]), "a record before it was dropped");
        assert!(!opens(4, &[first, first]), "it was repeated");
        assert!(!opens(6, &[first]), "it was put into another stream");
        assert!(!opens(4, &[([0; HEADER_LEN], first.1)]), "its length was changed");
    }
}
