//! Taking streams out, to go on over another hop.

use alloc::collections::BTreeMap;

use lasthop_stream::RangeSet;
use lasthop_wire::frame::{Frame, Frames};

use super::stream::Stream;
use crate::path_id::PathNumbers;
use crate::srp::content::Piece;
use crate::streams::{RecvState, StreamState};

/// Streams that were taken out and are remembered; the oldest are removed first. An association
/// has some thousands of streams at once.
const DETACHED_MAX: usize = 1 << 16;

/// What the peer had of a stream's bytes when the stream was taken out, as far as it acknowledged.
#[derive(Debug)]
struct Detached {
    /// Everything before was acknowledged.
    acked: u64,
    /// What was acknowledged beyond.
    beyond: RangeSet,
    /// The first datagrams that were sent later: their acknowledgements cover all that arrived before.
    since: PathNumbers,
}

impl Detached {
    fn of(stream: &Stream, since: PathNumbers) -> Self {
        let (acked, beyond) = stream.send.acknowledged();
        Self { acked, beyond: beyond.clone(), since }
    }

    fn on_acked(&mut self, piece: Piece) {
        let (start, end) = (piece.offset.max(self.acked), piece.offset + piece.len as u64);
        if start < end {
            self.beyond.insert(start..end);
            self.acked = self.beyond.take_prefix(self.acked).unwrap_or(self.acked);
        }
    }
}

/// Before which offset the peer has all bytes of a stream, if these pieces of it have arrived as well.
pub(super) fn acked_with(stream: &Stream, arrived: impl Iterator<Item = Piece>) -> u64 {
    let mut detached = Detached::of(stream, PathNumbers::NONE);
    arrived.for_each(|piece| detached.on_acked(piece));
    detached.acked
}

impl Stream {
    pub(super) fn can_move(&self) -> bool {
        let given_up = self.reset_locally || self.send.reset.is_some();
        !given_up && !self.closed && !matches!(self.recv.state(), RecvState::Reset(_))
    }

    /// SRP-13: the state in sequence moves; what was received beyond a hole is sent anew.
    pub(super) fn state(&self) -> StreamState {
        let (send_start, send) = self.send.kept();
        let (received, unread) = self.recv.in_order();
        StreamState {
            send_start,
            send,
            send_ended: !self.send.is_open(),
            received,
            unread,
            recv_ended: self.recv.ends_at(received),
        }
    }
}

/// Streams that were taken out: the peer may not know yet, and their bytes are not ours to
/// acknowledge.
#[derive(Debug, Default)]
pub(super) struct DetachedStreams {
    streams: BTreeMap<u64, Detached>,
}

impl DetachedStreams {
    /// Whether a datagram carries bytes of such a stream. They are acknowledged where the stream went,
    /// or sent again; were they acknowledged here, the peer would take them for delivered, and nobody
    /// had them (MHP-19).
    pub(super) fn have_bytes_in(&self, payload: &[u8]) -> bool {
        if self.streams.is_empty() {
            return false;
        }
        let mut frames = Frames::new(payload).filter_map(Result::ok);
        frames.any(|frame| matches!(frame, Frame::Stream(f) if self.streams.contains_key(&f.id)))
    }

    /// A stream is taken out before the datagrams with the numbers `since` leave.
    pub(super) fn insert(&mut self, id: u64, stream: &Stream, since: PathNumbers) {
        if self.streams.len() >= DETACHED_MAX {
            self.streams.pop_first();
        }
        self.streams.insert(id, Detached::of(stream, since));
    }

    /// Bytes of a stream that was taken out had arrived.
    pub(super) fn on_acked(&mut self, id: u64, piece: Piece) {
        if let Some(detached) = self.streams.get_mut(&id) {
            detached.on_acked(piece);
        }
    }

    /// Before which offset all bytes of a stream had arrived when it was taken out, if that is known
    /// because what left later was `acked` on every path.
    pub(super) fn arrived(&self, id: u64, acked: impl Fn(&PathNumbers) -> bool) -> Option<u64> {
        let detached = self.streams.get(&id)?;
        acked(&detached.since).then_some(detached.acked)
    }
}
