//! Records on a kernel TCP connection: what turns a byte pipe into a stream with an end and a reset
//! that can be trusted.
//!
//! ```text
//! length (2) | number (8) | type (1) | payload (0..=16384) | tag (16, sealed only)
//! ```
//!
//! Integers are big-endian. The length counts type, payload and tag. When the stream is sealed, type
//! and payload are encrypted, the number is the nonce, and the length is authenticated with the
//! record's place (see [`super::cipher`]). An end is a record, not only the kernel's FIN, so that
//! nobody on the path can cut a stream short and have it look complete.

use std::ops::Range;

use super::cipher::{HEADER_LEN, Opener, Sealer, TAG_LEN};

/// The most payload that one record carries.
pub(crate) const PAYLOAD_MAX: usize = 16 * 1024;
const TYPE: usize = 1;
/// What precedes a payload.
const PREFIX: usize = HEADER_LEN + TYPE;
const OVERHEAD: usize = PREFIX + TAG_LEN;
/// The longest record on the wire.
const RECORD_MAX: usize = PAYLOAD_MAX + OVERHEAD;
/// Room kept for an end or a reset, so that neither ever waits for the kernel.
const CONTROL_ROOM: usize = 2 * (OVERHEAD + 8);
/// Below this, room at the end of a buffer is not worth a record or a read.
const PIECE_MIN: usize = 4 * 1024;

const DATA: u8 = 0;
const FINISH: u8 = 1;
const RESET: u8 = 2;

/// Records on their way to the kernel. Bytes are written into place once, sealed in place, and
/// handed to the kernel from there.
#[derive(Debug)]
pub(crate) struct Outbound {
    buf: Box<[u8]>,
    /// Sealed bytes that the kernel has not taken: `head..tail`.
    head: usize,
    tail: usize,
    /// Payload of the record under construction, which starts at `tail`.
    open: usize,
    /// Until the keys are known one record is filled and none is closed.
    sealer: Option<Sealer>,
}

impl Outbound {
    /// An empty buffer of `capacity` bytes, at least two records.
    pub(crate) fn new(capacity: usize) -> Self {
        let capacity = capacity.max(2 * RECORD_MAX + CONTROL_ROOM);
        Self { buf: vec![0; capacity].into(), head: 0, tail: 0, open: 0, sealer: None }
    }

    /// From here on records are closed with `sealer`.
    pub(crate) fn start(&mut self, sealer: Sealer) {
        self.sealer = Some(sealer);
    }

    /// Whether the keys are known.
    pub(crate) fn started(&self) -> bool {
        self.sealer.is_some()
    }

    fn room(&self) -> Range<usize> {
        let start = self.tail + PREFIX + self.open;
        let limit = self.buf.len().saturating_sub(CONTROL_ROOM + TAG_LEN);
        let end = (self.tail + PREFIX + PAYLOAD_MAX).min(limit);
        start..end.max(start)
    }

    /// Whether [`space`](Self::space) would return room.
    pub(crate) fn writable(&self) -> bool {
        !self.room().is_empty() || self.can_compact()
    }

    fn can_compact(&self) -> bool {
        // Moving less than was freed keeps the cost below one copy per byte.
        self.head > 0 && self.tail + self.open - self.head <= self.head
    }

    /// Room for payload.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.room().len() < PIECE_MIN && self.can_compact() {
            self.compact();
        }
        let room = self.room();
        &mut self.buf[room]
    }

    fn compact(&mut self) {
        let end = self.tail + if self.open > 0 { PREFIX + self.open } else { 0 };
        self.buf.copy_within(self.head..end, 0);
        self.tail -= self.head;
        self.head = 0;
    }

    /// `n` bytes of [`space`](Self::space) were filled.
    pub(crate) fn commit(&mut self, n: usize) {
        self.open += n.min(self.room().len());
        if self.room().is_empty() {
            self.close();
        }
    }

    fn close(&mut self) {
        if self.open > 0 {
            self.record(DATA, self.open);
        }
    }

    fn record(&mut self, kind: u8, payload: usize) {
        let Some(sealer) = &mut self.sealer else { return };
        let len = TYPE + payload + sealer.tag_len();
        let Some(record) = self.buf.get_mut(self.tail..self.tail + HEADER_LEN + len) else {
            return;
        };
        let Some((header, body)) = record.split_first_chunk_mut() else { return };
        body[0] = kind;
        sealer.seal(len as u16, header, body);
        self.tail += HEADER_LEN + len;
        self.open = 0;
    }

    /// Proves to the peer that we have the keys, without a byte. They must be known.
    pub(crate) fn prove(&mut self) {
        self.record(DATA, 0);
    }

    /// Ends the stream. The keys must be known.
    pub(crate) fn finish(&mut self) {
        self.close();
        self.record(FINISH, 0);
    }

    /// Gives the stream up. The keys must be known.
    pub(crate) fn reset(&mut self, code: u64) {
        self.open = 0;
        if let Some(payload) = self.buf.get_mut(self.tail + PREFIX..)
            && payload.len() >= 8 + TAG_LEN
        {
            payload[..8].copy_from_slice(&code.to_be_bytes());
            self.record(RESET, 8);
        }
    }

    /// Closes the record under construction; what the kernel should take next.
    pub(crate) fn pending(&mut self) -> &[u8] {
        self.close();
        &self.buf[self.head..self.tail]
    }

    /// The kernel took `n` bytes of [`pending`](Self::pending).
    pub(crate) fn sent(&mut self, n: usize) {
        self.head = (self.head + n).min(self.tail);
        if self.head == self.tail && self.open == 0 {
            self.head = 0;
            self.tail = 0;
        }
    }

    /// Whether the kernel has everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.head == self.tail && self.open == 0
    }
}

/// How the stream from the peer stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// More may come.
    Open,
    /// The peer's last byte is in the buffer or was taken.
    Finished,
    /// The peer gave up with this code.
    Reset(u64),
}

/// The peer sent what no peer of ours sends, or somebody on the path changed it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Forged;

/// Records from the kernel. Opened in place, one at a time, and read from there.
#[derive(Debug)]
pub(crate) struct Inbound {
    buf: Box<[u8]>,
    /// Bytes from the kernel that belong to no opened record: `head..tail`.
    head: usize,
    tail: usize,
    /// Payload of the opened record that was not taken.
    plain: Range<usize>,
    end: End,
    /// At least one record has opened.
    opened: bool,
    opener: Option<Opener>,
}

impl Inbound {
    /// An empty buffer of `capacity` bytes, at least two records.
    pub(crate) fn new(capacity: usize) -> Self {
        let buf = vec![0; capacity.max(2 * RECORD_MAX)].into();
        Self { buf, head: 0, tail: 0, plain: 0..0, end: End::Open, opened: false, opener: None }
    }

    /// Makes the buffer at least `capacity` bytes long.
    pub(crate) fn grow(&mut self, capacity: usize) {
        if capacity > self.buf.len() {
            let mut buf = vec![0; capacity].into_boxed_slice();
            buf[..self.tail].copy_from_slice(&self.buf[..self.tail]);
            self.buf = buf;
        }
    }

    /// From here on records are opened with `opener`.
    pub(crate) fn start(&mut self, opener: Opener) {
        self.opener = Some(opener);
    }

    /// Bytes from the kernel that were not looked at, for the handshake that precedes the records.
    pub(crate) fn raw(&self) -> &[u8] {
        &self.buf[self.head..self.tail]
    }

    /// The first `n` bytes of [`raw`](Self::raw) are done with.
    pub(crate) fn skip(&mut self, n: usize) {
        self.head = (self.head + n).min(self.tail);
    }

    /// Room for the kernel's next bytes; empty while the reader is behind.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        let first = if self.plain.is_empty() { self.head } else { self.plain.start };
        let crowded = self.buf.len() - self.tail < PIECE_MIN && first >= self.buf.len() / 2;
        if first == self.tail || crowded {
            self.shift(first);
        }
        &mut self.buf[self.tail..]
    }

    fn shift(&mut self, first: usize) {
        self.buf.copy_within(first..self.tail, 0);
        self.head -= first;
        self.tail -= first;
        self.plain = if self.plain.is_empty() {
            0..0
        } else {
            self.plain.start - first..self.plain.end - first
        };
    }

    /// The kernel put `n` bytes into [`space`](Self::space).
    pub(crate) fn filled(&mut self, n: usize) {
        self.tail = (self.tail + n).min(self.buf.len());
    }

    /// Opens the next record that holds bytes, if the last was taken and a whole one is here.
    ///
    /// # Errors
    ///
    /// The record is not the peer's.
    pub(crate) fn advance(&mut self) -> Result<(), Forged> {
        while self.plain.is_empty() && self.end == End::Open {
            let Some(opener) = &mut self.opener else { return Ok(()) };
            let tag = opener.tag_len();
            let raw = &self.buf[self.head..self.tail];
            let Some(header) = raw.first_chunk::<HEADER_LEN>().copied() else { return Ok(()) };
            let len = usize::from(u16::from_be_bytes([header[0], header[1]]));
            if len < TYPE + tag || len > TYPE + PAYLOAD_MAX + tag {
                return Err(Forged);
            }
            let body = self.head + HEADER_LEN;
            if self.tail < body + len {
                return Ok(());
            }
            if !opener.open(&header, &mut self.buf[body..body + len]) {
                return Err(Forged);
            }
            self.head = body + len;
            self.opened = true;
            self.accept(self.buf[body], body + TYPE..body + len - tag)?;
        }
        Ok(())
    }

    fn accept(&mut self, kind: u8, payload: Range<usize>) -> Result<(), Forged> {
        match kind {
            DATA => self.plain = payload,
            FINISH if payload.is_empty() => self.end = End::Finished,
            RESET => {
                let code = self.buf[payload].try_into().map_err(|_| Forged)?;
                self.end = End::Reset(u64::from_be_bytes(code));
            }
            _ => return Err(Forged),
        }
        Ok(())
    }

    /// Bytes of the opened record.
    pub(crate) fn plain(&self) -> &[u8] {
        &self.buf[self.plain.clone()]
    }

    /// `n` bytes of [`plain`](Self::plain) were taken.
    pub(crate) fn consume(&mut self, n: usize) {
        self.plain.start = (self.plain.start + n).min(self.plain.end);
    }

    /// Whether any record has opened: the peer has the keys.
    pub(crate) fn opened(&self) -> bool {
        self.opened
    }

    /// How the stream stands once every byte of [`plain`](Self::plain) was taken.
    pub(crate) fn end(&self) -> End {
        self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::cipher;

    fn pair() -> (Outbound, Inbound) {
        let (mut out, mut into) = (Outbound::new(0), Inbound::new(0));
        let (mobile, base) = cipher::tests::keys();
        out.start(mobile.stream(0).0);
        into.start(base.stream(0).1);
        (out, into)
    }

    /// Carries up to `n` bytes as the kernel would.
    fn carry(out: &mut Outbound, into: &mut Inbound, n: usize) -> usize {
        let pending = out.pending();
        let space = into.space();
        let n = n.min(pending.len()).min(space.len());
        space[..n].copy_from_slice(&pending[..n]);
        into.filled(n);
        out.sent(n);
        n
    }

    fn write(out: &mut Outbound, data: &[u8]) -> usize {
        let space = out.space();
        let n = space.len().min(data.len());
        space[..n].copy_from_slice(&data[..n]);
        out.commit(n);
        n
    }

    #[test]
    fn bytes_arrive_in_order_through_any_cutting() {
        let (mut out, mut into) = pair();
        let sent: Vec<u8> = (0..1_000_000u32).map(|i| (i % 251) as u8).collect();
        let (mut written, mut read) = (0, Vec::new());
        let mut step = 1;
        while read.len() < sent.len() {
            step = step * 7 % 40_961;
            written += write(&mut out, &sent[written..]);
            carry(&mut out, &mut into, step);
            into.advance().unwrap();
            let n = into.plain().len().min(step);
            read.extend_from_slice(&into.plain()[..n]);
            into.consume(n);
        }
        assert!(read == sent);
    }

    #[test]
    fn a_full_buffer_has_no_room_but_still_takes_an_end() {
        let (mut out, mut into) = pair();
        while write(&mut out, &[1; 9000]) > 0 {}
        assert!(!out.writable());
        out.finish();
        let mut total = 0;
        while into.end() == End::Open {
            carry(&mut out, &mut into, usize::MAX);
            into.advance().unwrap();
            total += into.plain().len();
            into.consume(usize::MAX >> 1);
        }
        assert_eq!(into.end(), End::Finished);
        assert!(total >= PAYLOAD_MAX && out.is_empty());
    }

    #[test]
    fn a_reset_carries_its_code() {
        let (mut out, mut into) = pair();
        write(&mut out, b"unsent");
        out.reset(77);
        carry(&mut out, &mut into, usize::MAX);
        into.advance().unwrap();
        assert_eq!((into.plain(), into.end()), (&b""[..], End::Reset(77)));
    }

    #[test]
    fn a_changed_bit_anywhere_is_forged() {
        for at in [0, 5, HEADER_LEN, HEADER_LEN + 3, HEADER_LEN + 10] {
            let (mut out, mut into) = pair();
            write(&mut out, b"payload");
            let len = out.pending().len();
            carry(&mut out, &mut into, len);
            into.buf[at] ^= 1;
            into.filled(RECORD_MAX);
            assert_eq!(into.advance(), Err(Forged), "byte {at}");
        }
    }

    #[test]
    fn what_no_peer_sends_is_forged() {
        for length in [0u16, 16, 16 + 1 + PAYLOAD_MAX as u16 + 1, u16::MAX] {
            let (_, mut into) = pair();
            into.space()[..2].copy_from_slice(&length.to_be_bytes());
            into.filled(HEADER_LEN);
            assert_eq!(into.advance(), Err(Forged), "length {length}");
        }
        for (kind, payload) in [(9, 0), (FINISH, 1), (RESET, 7)] {
            let (mut out, mut into) = pair();
            out.record(kind, payload);
            carry(&mut out, &mut into, usize::MAX);
            assert_eq!(into.advance(), Err(Forged), "type {kind}");
        }
    }
}
