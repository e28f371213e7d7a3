//! Records on their way to the kernel.

use super::cipher::{HEADER_LEN, Sealer};
use super::record::{
    ACK_LEN, ACKNOWLEDGE, Ack, DATA, FINISH, Forged, OVERHEAD, PAYLOAD_MAX, PREFIX, RECORD_MAX,
    RESET, TYPE,
};
use super::send_buffer::SendBuffer;

/// Bytes that are kept, to begin with: as much as is on its way to a process near by.
pub(super) const KEPT_MIN: usize = 128 * 1024;
/// Up to here a stream that sends without pause keeps more as soon as it can use it, for each
/// acknowledgement to be worth its cost.
const KEPT_EASY: usize = 512 * 1024;
/// The most that is kept for one stream: what is on its way over a long and fast hop.
const KEPT_MAX: usize = 4 * 1024 * 1024;
/// Room kept for a reset, so that it never waits for the kernel.
const RESET_ROOM: usize = OVERHEAD + 8;
/// Sealed records that wait for the kernel, an acknowledgement before them: enough for one call to be
/// worth its cost.
pub(super) const WIRE: usize = OVERHEAD + ACK_LEN + 4 * RECORD_MAX + RESET_ROOM;

/// One direction's bytes: written into a ring, where they stay until the peer's process has them,
/// and sealed from there into records for the kernel.
#[derive(Debug)]
pub(super) struct Outbound {
    kept: SendBuffer,
    /// How far bytes were put into records.
    sealed: u64,
    /// How far the peer lets us go.
    limit: u64,
    /// What may be on its way, where streams divide what the hop carries.
    share: Option<u64>,
    /// Records: `head..tail` are not with the kernel yet.
    wire: Box<[u8]>,
    head: usize,
    tail: usize,
    /// Nothing can be sealed until the keys are known.
    sealer: Option<Sealer>,
    /// A record is due even if it is empty.
    proving: bool,
    state: SendState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SendState {
    Open,
    Wanted,
    Sealed,
    Acknowledged,
    /// Aborted by a reset.
    Reset,
}

impl Outbound {
    /// Nothing written, and no keys.
    pub(super) fn new() -> Self {
        Self {
            kept: SendBuffer::new(KEPT_MIN),
            sealed: 0,
            limit: Ack::FIRST.limit,
            share: None,
            wire: vec![0; WIRE].into(),
            head: 0,
            tail: 0,
            sealer: None,
            proving: false,
            state: SendState::Open,
        }
    }

    /// From here on records are closed with `sealer`.
    pub(super) fn start(&mut self, sealer: Sealer) {
        self.sealer = Some(sealer);
    }

    /// Whether the keys are known.
    pub(super) fn started(&self) -> bool {
        self.sealer.is_some()
    }

    /// Whether [`space`](Self::space) would return room.
    pub(super) fn writable(&self) -> bool {
        !self.kept.is_full()
    }

    /// Room for payload.
    pub(super) fn space(&mut self) -> &mut [u8] {
        self.kept.space()
    }

    /// `n` bytes of [`space`](Self::space) were filled.
    pub(super) fn commit(&mut self, n: usize) {
        self.kept.commit(n);
    }

    /// How much more to keep would let bytes flow that now wait only for acknowledgements; zero
    /// where that is not what they wait for.
    pub(super) fn growth(&self) -> usize {
        let all_sent = self.sealed == self.kept.end() && self.head == self.tail;
        let useful = self.kept.is_full() && all_sent && self.limit() > self.sealed;
        if useful { self.kept.capacity().min(KEPT_MAX - self.kept.capacity()) } else { 0 }
    }

    /// Whether it may keep more without having waited for acknowledgements.
    pub(super) fn is_small(&self) -> bool {
        self.kept.capacity() < KEPT_EASY
    }

    /// Keeps `more` bytes more.
    pub(super) fn grow(&mut self, more: usize) {
        self.kept.grow(self.kept.capacity() + more);
    }

    /// How much more it keeps than to begin with.
    pub(super) fn grown(&self) -> usize {
        self.kept.capacity() - KEPT_MIN
    }

    /// Proves to the peer that we have the keys, if need be without a byte.
    pub(super) fn prove(&mut self) {
        self.proving = true;
    }

    /// Ends the stream behind what was written.
    pub(super) fn finish(&mut self) {
        if self.state == SendState::Open {
            self.state = SendState::Wanted;
        }
    }

    /// Whether the stream was ended from this side.
    pub(super) fn is_ended(&self) -> bool {
        self.state != SendState::Open
    }

    /// Whether the peer's process has everything and the end.
    pub(super) fn is_finished(&self) -> bool {
        self.state == SendState::Acknowledged
    }

    /// Aborts the stream. The keys must be known.
    pub(super) fn reset(&mut self, code: u64) {
        if self.state != SendState::Reset {
            self.state = SendState::Reset;
            self.record(RESET, &code.to_be_bytes());
        }
    }

    /// Takes an acknowledgement from the peer.
    ///
    /// # Errors
    ///
    /// It claims to have what was never sent.
    pub(super) fn handle_ack(&mut self, ack: Ack) -> Result<(), Forged> {
        let ended = matches!(self.state, SendState::Sealed | SendState::Acknowledged);
        if ack.received > self.sealed + u64::from(ended) {
            return Err(Forged);
        }
        self.kept.release(ack.received);
        if ended && ack.received > self.sealed {
            self.state = SendState::Acknowledged;
        }
        self.limit = self.limit.max(ack.limit);
        Ok(())
    }

    /// How far bytes may go.
    fn limit(&self) -> u64 {
        let share = self.share.map_or(u64::MAX, |share| self.kept.start().saturating_add(share));
        self.limit.min(share).max(self.sealed)
    }

    /// No more than `share` bytes may be on their way from here on; `None` is no bound. True if
    /// something has changed.
    pub(super) fn set_share(&mut self, share: Option<u64>) -> bool {
        std::mem::replace(&mut self.share, share) != share
    }

    /// Bytes that the peer's process has.
    pub(super) fn acknowledged(&self) -> u64 {
        self.kept.start()
    }

    /// Unacknowledged bytes: the place of the first, and the bytes.
    pub(super) fn unacknowledged(&self) -> (u64, Vec<u8>) {
        let (a, b) = self.kept.pieces();
        (self.kept.start(), [a, b].concat())
    }

    /// Whether bytes, an end or a proof can be sealed.
    pub(super) fn has_more(&self) -> bool {
        let end = self.kept.end();
        let ends = self.state == SendState::Wanted && self.sealed == end;
        self.proving || ends || self.sealed < end.min(self.limit())
    }

    /// Puts an acknowledgement behind what waits for the kernel; false if there is no room for it.
    pub(super) fn acknowledge(&mut self, ack: Ack) -> bool {
        if !self.has_room(ACK_LEN) || self.state == SendState::Reset {
            return false;
        }
        let mut payload = [0; ACK_LEN];
        ack.encode(&mut payload);
        self.record(ACKNOWLEDGE, &payload);
        true
    }

    /// Whether a record with `payload` bytes fits and leaves room for a reset.
    fn has_room(&self, payload: usize) -> bool {
        self.sealer.is_some() && self.wire.len() - self.tail >= OVERHEAD + payload + RESET_ROOM
    }

    /// Writes a record with a short payload.
    pub(super) fn record(&mut self, kind: u8, payload: &[u8]) {
        if let Some(room) = self.wire.get_mut(self.tail + PREFIX..)
            && let Some(room) = room.get_mut(..payload.len())
        {
            room.copy_from_slice(payload);
            self.close(kind, payload.len());
        }
    }

    /// Closes the record whose payload stands at its place behind `tail`.
    fn close(&mut self, kind: u8, payload: usize) {
        let Some(sealer) = &mut self.sealer else { return };
        let len = TYPE + payload + sealer.tag_len();
        let record = self.wire.get_mut(self.tail..self.tail + HEADER_LEN + len);
        let Some((header, body)) = record.and_then(<[u8]>::split_first_chunk_mut) else { return };
        body[0] = kind;
        sealer.seal(len as u16, header, body);
        self.tail += HEADER_LEN + len;
    }

    /// Seals what can be sealed; what the kernel should take next.
    pub(super) fn pending(&mut self) -> &[u8] {
        self.make_room();
        while self.sealed < self.kept.end().min(self.limit())
            && self.state != SendState::Reset
            && self.has_room(PAYLOAD_MAX)
        {
            let left = self.kept.end().min(self.limit()) - self.sealed;
            let n = left.min(PAYLOAD_MAX as u64) as usize;
            let start = self.tail + PREFIX;
            self.kept.copy_to(self.sealed, &mut self.wire[start..start + n]);
            self.close(DATA, n);
            self.sealed += n as u64;
            self.proving = false;
        }
        if self.proving && self.has_room(0) {
            self.record(DATA, &[]);
            self.proving = false;
        }
        if self.state == SendState::Wanted && self.sealed == self.kept.end() && self.has_room(0) {
            self.record(FINISH, &[]);
            self.state = SendState::Sealed;
        }
        &self.wire[self.head..self.tail]
    }

    fn make_room(&mut self) {
        let waiting = self.tail - self.head;
        // Moving less than was freed keeps the cost below one copy per byte.
        if self.head > 0 && waiting <= self.head && !self.has_room(PAYLOAD_MAX) {
            self.wire.copy_within(self.head..self.tail, 0);
            (self.head, self.tail) = (0, waiting);
        }
    }

    /// The kernel took `n` bytes of [`pending`](Self::pending).
    pub(super) fn sent(&mut self, n: usize) {
        self.head = (self.head + n).min(self.tail);
        if self.head == self.tail {
            (self.head, self.tail) = (0, 0);
        }
    }

    /// Whether the kernel has every record that was closed.
    pub(super) fn is_flushed(&self) -> bool {
        self.head == self.tail
    }
}
