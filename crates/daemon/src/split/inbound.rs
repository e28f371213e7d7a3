//! Records from the kernel.

use std::collections::VecDeque;
use std::ops::Range;

use lasthop_hop::RecvState;

use super::cipher::{HEADER_LEN, Opener};
use super::record::{
    ACKNOWLEDGE, Ack, DATA, FINISH, Forged, PAYLOAD_MAX, RECORD_MAX, RESET, TYPE, WINDOW_MIN,
};

/// Below this, room at the end of a buffer is not worth a read.
const PIECE_MIN: usize = 4 * 1024;
/// Payloads up to this long are moved together: they cost less than what they would leave unused.
const MERGE_MAX: usize = 1024;
/// What the peer may send beyond what was read, at most.
const WINDOW_MAX: u64 = 4 * 1024 * 1024;
/// Received or read bytes that are acknowledged at once.
const ACK_STEP: u64 = 64 * 1024;
/// Of a small share, this part.
const SHARE_STEPS: u64 = 8;

/// A piece of memory into which records are read and where they are opened.
#[derive(Debug)]
struct Chunk {
    buf: Box<[u8]>,
    /// Payload that was not taken, in order.
    payload: VecDeque<Range<usize>>,
}

impl Chunk {
    fn new(len: usize) -> Self {
        Self { buf: vec![0; len].into(), payload: VecDeque::new() }
    }

    /// Where the last payload ends.
    fn used(&self) -> usize {
        self.payload.back().map_or(0, |range| range.end)
    }

    fn push(&mut self, payload: Range<usize>) {
        match self.payload.back_mut() {
            Some(last) if payload.len() <= MERGE_MAX => {
                let len = payload.len();
                self.buf.copy_within(payload, last.end);
                last.end += len;
            }
            _ if payload.is_empty() => {}
            _ => self.payload.push_back(payload),
        }
    }
}

/// An acknowledgement that is not sent yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PendingAck {
    pub(super) ack: Ack,
    /// The peer may be waiting for it.
    pub(super) urgent: bool,
}

/// One direction's records. Opened in place as soon as they are whole, and read from there.
#[derive(Debug)]
pub(super) struct Inbound {
    /// More than one only while the reader is behind. Never empty.
    chunks: VecDeque<Chunk>,
    spare: Option<Chunk>,
    /// Length of a new chunk.
    chunk_len: usize,
    /// Bytes from the kernel that belong to no opened record: `head..tail` of the last chunk.
    head: usize,
    tail: usize,
    recv_state: RecvState,
    /// At least one record has opened.
    opened: bool,
    opener: Option<Opener>,
    /// Payload that was opened, from the stream's first byte.
    received: u64,
    /// Payload that was taken.
    consumed: u64,
    window: u64,
    /// What of it the peer may use, where streams divide what the hop carries.
    share: Option<u64>,
    /// The reader takes everything so far; at this place it has earned a larger window.
    grows_at: u64,
    /// The last acknowledgement that was sent.
    sent_ack: Ack,
    /// The peer's last acknowledgement, of the other direction.
    received_ack: Option<Ack>,
}

impl Inbound {
    /// An empty buffer of `capacity` bytes, at least two records.
    pub(super) fn new(capacity: usize) -> Self {
        let chunk_len = capacity.max(2 * RECORD_MAX);
        Self {
            chunks: VecDeque::from([Chunk::new(chunk_len)]),
            spare: None,
            chunk_len,
            head: 0,
            tail: 0,
            recv_state: RecvState::Open,
            opened: false,
            opener: None,
            received: 0,
            consumed: 0,
            window: WINDOW_MIN,
            share: None,
            grows_at: WINDOW_MIN,
            sent_ack: Ack::FIRST,
            received_ack: None,
        }
    }

    /// Makes the buffer at least `capacity` bytes long.
    pub(super) fn grow(&mut self, capacity: usize) {
        self.chunk_len = self.chunk_len.max(capacity);
        let len = self.chunk_len;
        let tail = self.tail;
        let last = self.last();
        if last.buf.len() < len {
            let mut buf = vec![0; len].into_boxed_slice();
            buf[..tail].copy_from_slice(&last.buf[..tail]);
            last.buf = buf;
        }
    }

    /// From here on records are opened with `opener`.
    pub(super) fn start(&mut self, opener: Opener) {
        self.opener = Some(opener);
    }

    fn last(&mut self) -> &mut Chunk {
        if self.chunks.is_empty() {
            self.chunks.push_back(Chunk::new(self.chunk_len));
        }
        let last = self.chunks.len() - 1;
        &mut self.chunks[last]
    }

    /// Bytes from the kernel that are not opened, for the handshake that precedes the records.
    pub(super) fn raw(&self) -> &[u8] {
        self.chunks.back().and_then(|chunk| chunk.buf.get(self.head..self.tail)).unwrap_or_default()
    }

    /// The first `n` bytes of [`raw`](Self::raw) are done with.
    pub(super) fn skip(&mut self, n: usize) {
        self.head = (self.head + n).min(self.tail);
    }

    /// Room for the kernel's next bytes: empty only if nothing in the buffer can be understood.
    pub(super) fn space(&mut self) -> &mut [u8] {
        let (head, tail) = (self.head, self.tail);
        let last = self.last();
        let (used, len) = (last.used(), last.buf.len());
        if head == tail && used == 0 {
            (self.head, self.tail) = (0, 0);
        } else if len - tail < PIECE_MIN {
            if head - used >= len / 2 || (used == 0 && head > 0) {
                last.buf.copy_within(head..tail, used);
                (self.head, self.tail) = (used, used + tail - head);
            } else if tail - head < RECORD_MAX {
                self.add_chunk();
            }
        }
        let tail = self.tail;
        &mut self.last().buf[tail..]
    }

    /// Goes on in another chunk, since the reader still needs this one.
    fn add_chunk(&mut self) {
        let raw = self.head..self.tail;
        let mut next = match self.spare.take() {
            Some(spare) if spare.buf.len() >= self.chunk_len => spare,
            _ => Chunk::new(self.chunk_len),
        };
        let n = raw.len();
        next.buf[..n].copy_from_slice(&self.last().buf[raw]);
        self.chunks.push_back(next);
        (self.head, self.tail) = (0, n);
    }

    /// The kernel put `n` bytes into [`space`](Self::space).
    pub(super) fn filled(&mut self, n: usize) {
        self.tail = (self.tail + n).min(self.last().buf.len());
    }

    /// Opens every record that is here as a whole.
    ///
    /// # Errors
    ///
    /// A record is not the peer's.
    pub(super) fn open_records(&mut self) -> Result<(), Forged> {
        while !matches!(self.recv_state, RecvState::Reset(_)) {
            let Some(opener) = &mut self.opener else { return Ok(()) };
            let Some(chunk) = self.chunks.back_mut() else { return Ok(()) };
            let tag = opener.tag_len();
            let raw = &chunk.buf[self.head..self.tail];
            let Some(header) = raw.first_chunk::<HEADER_LEN>().copied() else { return Ok(()) };
            let len = usize::from(u16::from_be_bytes([header[0], header[1]]));
            if len < TYPE + tag || len > TYPE + PAYLOAD_MAX + tag {
                return Err(Forged);
            }
            let body = self.head + HEADER_LEN;
            if self.tail < body + len {
                return Ok(());
            }
            if !opener.open(&header, &mut chunk.buf[body..body + len]) {
                return Err(Forged);
            }
            self.head = body + len;
            self.opened = true;
            let kind = chunk.buf[body];
            self.accept(kind, body + TYPE..body + len - tag)?;
        }
        Ok(())
    }

    fn accept(&mut self, kind: u8, payload: Range<usize>) -> Result<(), Forged> {
        let Some(chunk) = self.chunks.back_mut() else { return Err(Forged) };
        let bytes = chunk.buf.get(payload.clone()).ok_or(Forged)?;
        match kind {
            DATA if self.recv_state == RecvState::Open => {
                self.received += payload.len() as u64;
                if self.received > self.sent_ack.limit {
                    return Err(Forged);
                }
                chunk.push(payload);
            }
            FINISH if self.recv_state == RecvState::Open && payload.is_empty() => {
                self.recv_state = RecvState::Finished
            }
            RESET => {
                let code = bytes.try_into().map_err(|_| Forged)?;
                self.recv_state = RecvState::Reset(u64::from_be_bytes(code));
            }
            ACKNOWLEDGE => self.received_ack = Some(Ack::decode(bytes).ok_or(Forged)?),
            _ => return Err(Forged),
        }
        Ok(())
    }

    /// The first bytes that were not taken: one contiguous piece.
    pub(super) fn plain(&self) -> &[u8] {
        let chunk = self.chunks.front();
        let piece = chunk.and_then(|chunk| chunk.buf.get(chunk.payload.front()?.clone()));
        piece.unwrap_or_default()
    }

    /// `n` bytes of [`plain`](Self::plain) were taken.
    pub(super) fn consume(&mut self, n: usize) {
        let only = self.chunks.len() == 1;
        let Some(chunk) = self.chunks.front_mut() else { return };
        let Some(piece) = chunk.payload.front_mut() else { return };
        let n = n.min(piece.len());
        piece.start += n;
        self.consumed += n as u64;
        if chunk.payload.front().is_some_and(Range::is_empty) {
            chunk.payload.pop_front();
        }
        if chunk.payload.is_empty() && !only {
            self.spare = self.chunks.pop_front();
        }
    }

    /// How many bytes were opened, from the stream's first.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// All bytes that were not taken.
    pub(super) fn unread(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity((self.received - self.consumed) as usize);
        for chunk in &self.chunks {
            for range in &chunk.payload {
                out.extend_from_slice(&chunk.buf[range.clone()]);
            }
        }
        out
    }

    /// Whether any record has opened: the peer has the keys.
    pub(super) fn opened(&self) -> bool {
        self.opened
    }

    /// How the stream stands once every byte was taken.
    pub(super) fn recv_state(&self) -> RecvState {
        self.recv_state
    }

    /// The latest acknowledgement from the peer since the last call.
    pub(super) fn take_ack(&mut self) -> Option<Ack> {
        self.received_ack.take()
    }

    /// The acknowledgement that is not sent yet.
    pub(super) fn pending_ack(&self) -> Option<PendingAck> {
        let ended = u64::from(self.recv_state == RecvState::Finished);
        // Who has ended the stream needs no more room, and may be gone once it knows that we have all.
        let window = self.share.map_or(self.window, |share| share.min(self.window));
        // A smaller share comes about as what was allowed is used up (RWC-9).
        let limit = if ended > 0 { 0 } else { self.consumed + window };
        let ack = Ack { received: self.received + ended, limit: limit.max(self.sent_ack.limit) };
        let (news, room) = (ack.received - self.sent_ack.received, ack.limit - self.sent_ack.limit);
        let step = self.share.map_or(ACK_STEP, |share| (share / SHARE_STEPS).min(ACK_STEP));
        let urgent = news >= step || room >= step || (news > 0 && ended > 0);
        (urgent || news > 0).then_some(PendingAck { ack, urgent })
    }

    /// Records that `ack` is sent.
    pub(super) fn set_acknowledged(&mut self, ack: Ack) {
        self.sent_ack = ack;
    }

    /// How much more the peer should be allowed to send, for a reader that keeps up: it grows as a
    /// kernel's receive buffer does. Zero where there is no reason.
    pub(super) fn growth(&self) -> usize {
        let keeps_up = self.consumed == self.received && self.consumed >= self.grows_at;
        if keeps_up { self.window.min(WINDOW_MAX - self.window) as usize } else { 0 }
    }

    /// Allows `more` bytes more.
    pub(super) fn widen(&mut self, more: usize) {
        if more > 0 {
            self.window += more as u64;
            self.grows_at = self.consumed + self.window;
        }
    }

    /// The peer may have no more than `share` bytes on their way from here on; `None` is no bound. True
    /// if something has changed.
    pub(super) fn set_share(&mut self, share: Option<u64>) -> bool {
        std::mem::replace(&mut self.share, share) != share
    }

    /// How much more the peer is allowed than to begin with.
    pub(super) fn grown(&self) -> usize {
        (self.window - WINDOW_MIN) as usize
    }

    /// Bytes of memory that it takes.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn memory(&self) -> usize {
        self.chunks.iter().chain(&self.spare).map(|chunk| chunk.buf.len()).sum()
    }
}
