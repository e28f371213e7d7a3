//! One stream, and the calls of [`Streams`].

use super::Srp;
use super::priority::{TURN, USUAL};
use super::recv::RecvHalf;
use super::send::{ResetState, SendHalf};
use super::sent::Content;
use crate::streams::{RecvState, StreamError, StreamEvent, StreamId, Streams};

/// Room is offered in pieces of at most so many bytes.
const SPACE_MAX: u64 = 256 * 1024;
/// Nothing more than this is taken from the application ahead of sending, however fast the hop.
const UNSENT_MAX: u64 = 8 * 1024 * 1024;

/// Both halves of a stream and where it waits.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) send: SendHalf,
    pub(super) recv: RecvHalf,
    pub(super) in_urgent: bool,
    pub(super) in_active: bool,
    /// Given up from this side: no more events but `Closed`.
    pub(super) dropped: bool,
    /// Over both ways; waits for the session to hear of it.
    pub(super) retired: bool,
    pub(super) priority: u32,
    /// Its turn to send, in [`TURN`]ths of the shortest.
    pub(super) turn: u64,
    /// Bytes by which it overdrew its last turn.
    pub(super) overdraft: usize,
}

impl Stream {
    pub(super) fn new(send_limit: u64, span: u64, window: u64, window_max: u64) -> Self {
        Self {
            send: SendHalf::new(send_limit, span),
            recv: RecvHalf::new(window, window_max),
            in_urgent: false,
            in_active: false,
            dropped: false,
            retired: false,
            priority: USUAL,
            turn: TURN,
            overdraft: 0,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.send.is_done() && self.recv.is_done()
    }
}

impl Srp {
    pub(super) fn new_stream(&self) -> Stream {
        Stream::new(
            self.peer.stream_window.get(),
            self.span(),
            self.config.stream_window.get(),
            self.config.stream_memory.get(),
        )
    }

    /// Puts a stream in the turn of those with something to send.
    pub(super) fn enqueue(&mut self, id: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.send.has_lost() && !stream.in_urgent {
            stream.in_urgent = true;
            self.urgent.push_back(id);
        }
        if !stream.in_active && stream.send.wants_to_send(u64::MAX) {
            stream.in_active = true;
            self.active.push_back(id);
        }
    }

    /// How much more the application may write into a stream.
    fn send_room(&self, send: &SendHalf) -> u64 {
        // Streams that send share the rate.
        let streams = self.active.len().max(1) as u64;
        let ms = self.config.ahead.as_millis() as u64;
        let ahead = (self.pacing_rate().as_bps() / 8000).saturating_mul(ms) / streams;
        let least = self.config.ahead_min.get().min(UNSENT_MAX);
        let unsent = ahead.clamp(least, UNSENT_MAX).saturating_sub(send.unsent());
        let stream = self.config.stream_memory.get().saturating_sub(send.buffered());
        unsent.min(stream).min(self.association_room())
    }

    /// Less room than this is not worth a wake-up.
    fn room_worth_waking(&self) -> u64 {
        let stream = self.config.stream_memory.get();
        let all = self.config.association_memory.get();
        (self.config.ahead_min.get().min(stream).min(all) / 8).max(1)
    }

    fn association_room(&self) -> u64 {
        self.config.association_memory.get().saturating_sub(self.send_buffered)
    }

    /// Streams that found the association's memory full get room, now that some is free.
    pub(super) fn wake_starved(&mut self) {
        while self.association_room() >= self.room_worth_waking() {
            let Some(id) = self.starved.pop_front() else { return };
            self.offer_room(id);
        }
    }

    /// Tells the application of room if it met a full buffer before.
    pub(super) fn offer_room(&mut self, id: u64) {
        let Some(stream) = self.streams.get(&id) else { return };
        if !stream.send.wants_room || stream.dropped || !stream.send.is_open() {
            return;
        }
        if self.send_room(&stream.send) >= self.room_worth_waking() {
            self.events.push_back(StreamEvent::Writable(StreamId(id)));
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.send.wants_room = false;
            }
        }
    }

    /// Tells the application of bytes, an end or a reset, once for each time that it met nothing.
    pub(super) fn offer_data(&mut self, id: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.recv.wants_data && stream.recv.has_news() && !stream.dropped {
            stream.recv.wants_data = false;
            self.events.push_back(StreamEvent::Readable(StreamId(id)));
        }
    }

    /// Tells the application of a reset, whatever it is waiting for.
    pub(super) fn offer_reset(&mut self, id: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if !stream.dropped {
            stream.recv.wants_data = false;
            self.events.push_back(StreamEvent::Readable(StreamId(id)));
        }
    }

    /// Gives up a stream's sending half with a reset to the peer.
    pub(super) fn abandon_send(&mut self, id: u64, code: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.send.reset.is_some() || stream.is_over() {
            return;
        }
        self.send_buffered -= stream.send.buffered();
        stream.send.abandon(code);
        self.controls.push_back(Content::Reset { stream: id });
    }
}

impl Streams for Srp {
    fn open(&mut self) -> Result<StreamId, StreamError> {
        let most = (self.peer.streams_max).min(self.config.streams_max as u64);
        if self.local_open as u64 >= most || self.closed.is_some() || self.closing.is_some() {
            return Err(StreamError::TooMany);
        }
        let id = self.next_local;
        self.next_local += 2;
        self.local_open += 1;
        let stream = self.new_stream();
        self.streams.insert(id, stream);
        self.join_shares(id);
        Ok(StreamId(id))
    }

    fn poll_event(&mut self) -> Option<StreamEvent> {
        let event = self.events.pop_front()?;
        if let StreamEvent::Closed(id) = event {
            self.streams.remove(&id.0);
        }
        Some(event)
    }

    fn send_space(&mut self, id: StreamId) -> Result<&mut [u8], StreamError> {
        let stream = self.streams.get(&id.0).ok_or(StreamError::Unknown)?;
        if let RecvState::Reset(code) = stream.recv.state() {
            return Err(StreamError::Reset(code));
        }
        if stream.dropped {
            return Err(StreamError::Unknown);
        }
        if !stream.send.is_open() {
            return Err(StreamError::Finished);
        }
        let room = self.send_room(&stream.send).min(SPACE_MAX);
        let starved = self.association_room() == 0;
        let stream = self.streams.get_mut(&id.0).ok_or(StreamError::Unknown)?;
        if room == 0 {
            if starved && !stream.send.wants_room {
                self.starved.push_back(id.0);
            }
            stream.send.wants_room = true;
        }
        Ok(stream.send.space(room as usize))
    }

    fn commit(&mut self, id: StreamId, n: usize) {
        if let Some(stream) = self.streams.get_mut(&id.0) {
            stream.send.commit(n);
            self.send_buffered += n as u64;
            self.enqueue(id.0);
        }
    }

    fn finish(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id.0) {
            stream.send.finish();
            self.enqueue(id.0);
        }
    }

    fn reset(&mut self, id: StreamId, code: u64) {
        let Some(stream) = self.streams.get_mut(&id.0) else { return };
        stream.dropped = true;
        if stream.recv.state() == RecvState::Open {
            self.credit.consumed += stream.recv.unconsumed();
            stream.recv.discard();
            self.renew_credit(false);
        }
        self.abandon_send(id.0, code);
        self.retire(id.0);
    }

    fn received(&self, id: StreamId) -> &[u8] {
        self.streams.get(&id.0).map_or(&[], |s| s.recv.readable())
    }

    fn consume(&mut self, id: StreamId, n: usize) {
        let Some(stream) = self.streams.get_mut(&id.0) else { return };
        let n = n.min(stream.recv.readable().len());
        if stream.recv.consume(n) {
            self.controls.push_back(Content::StreamCredit { stream: id.0 });
        }
        if stream.recv.readable().is_empty() {
            stream.recv.wants_data = true;
        }
        self.credit.consumed += n as u64;
        self.renew_credit(false);
        self.retire(id.0);
    }

    fn recv_state(&self, id: StreamId) -> RecvState {
        self.streams.get(&id.0).map_or(RecvState::Finished, |s| s.recv.state())
    }

    fn set_priority(&mut self, id: StreamId, priority: u32) {
        if self.streams.get(&id.0).is_some_and(|s| !s.retired) {
            self.give_priority(id.0, priority);
            self.settle_shares();
            self.tell(Content::Priority { stream: id.0 });
        }
    }
}

impl SendHalf {
    /// Our reset was lost: it must be told again.
    pub(super) fn on_reset_lost(&mut self) -> bool {
        match &mut self.reset {
            Some((state @ ResetState::Sent, _)) => {
                *state = ResetState::Wanted;
                true
            }
            _ => false,
        }
    }

    pub(super) fn on_reset_acked(&mut self) {
        if let Some((state, _)) = &mut self.reset {
            *state = ResetState::Acked;
        }
    }
}
