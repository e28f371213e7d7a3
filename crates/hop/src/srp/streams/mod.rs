//! The streams of an association: which there are, what each may send and hold, and whose turn it is.
//!
//! [`StreamSet`] handles neither datagrams nor their numbers: acknowledgement and loss come as
//! [`Content`], and so leaves what is to be sent. What it needs of the hop, the rate and how far a
//! stream may be sent, comes with the call.

mod blocked;
mod buffers;
mod credit;
mod detached;
mod input;
#[cfg(test)]
mod inspect;
mod numbers;
mod output;
mod policy_turns;
mod priority;
mod recv;
mod send;
mod stream;
mod table;
mod turns;

use alloc::collections::VecDeque;
use core::mem::take;

use lasthop_units::{Bytes, Rate};
use lasthop_wire::varint;

use super::content::Content;
use crate::clients;
use crate::config::{HopConfig, Limits};
use crate::path_id::PathNumbers;
use crate::policy::Policy;
use crate::streams::{RecvState, StreamError, StreamEvent, StreamId, StreamState};
use crate::transport::{LOST, Role};
use buffers::Buffers;
use credit::Credit;
use detached::DetachedStreams;
use numbers::Numbers;
pub(super) use output::{Worth, Written};
use policy_turns::PolicyTurns;
use priority::Division;
use send::SendHalf;
use stream::{Counted, Stream};
use table::StreamTable;

/// Room is offered in pieces of at most so many bytes.
const SPACE_MAX: u64 = 256 * 1024;
/// Nothing more than this is taken from the application ahead of sending, however fast the hop.
const UNSENT_MAX: u64 = 1024 * 1024;

/// A stream that holds no more than so many bytes may use what is kept for such ones.
const LITTLE: u64 = 2 * 1024;

/// All streams of one end.
#[derive(Debug)]
pub(super) struct StreamSet {
    config: HopConfig,
    peer: Limits,
    streams: StreamTable,
    numbers: Numbers,
    turns: PolicyTurns,
    division: Division,
    detached: DetachedStreams,
    credit: Credit,
    buffers: Buffers,
    /// Frames to send that are not stream bytes.
    controls: VecDeque<Content>,
    /// Streams that found the association's memory full.
    starved: VecDeque<u64>,
    events: VecDeque<StreamEvent>,
    /// Bytes written by the application and not acknowledged, of all streams.
    buffered: u64,
    traffic: Traffic,
}

/// Stream bytes, in this association and those before it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    /// Sent for the first time.
    pub(super) sent: Bytes,
    pub(super) repeated: Bytes,
    /// Received for the first time.
    pub(super) received: Bytes,
}

impl StreamSet {
    pub(super) fn new(config: HopConfig, role: Role, peer: Limits) -> Self {
        let mut new = Self {
            buffers: Buffers::new(&config.memory),
            credit: Credit::new(
                config.first_window().get(),
                config.association_window.get(),
                config.association_memory.get(),
                peer.association_window.get(),
            ),
            config,
            peer,
            streams: StreamTable::default(),
            numbers: Numbers::new(role),
            turns: PolicyTurns::default(),
            division: Division::default(),
            detached: DetachedStreams::default(),
            controls: VecDeque::new(),
            starved: VecDeque::new(),
            events: VecDeque::new(),
            buffered: 0,
            traffic: Traffic::default(),
        };
        new.buffers.charge(&new.credit);
        new
    }

    pub(super) fn role(&self) -> Role {
        self.numbers.role()
    }

    /// The peer has sent its limits: streams may be sent from now on.
    pub(super) fn establish(&mut self, peer: &Limits) {
        self.peer = *peer;
        self.credit.establish(peer.association_window.get());
        self.numbers.skip(peer.first_stream);
        for (id, stream) in self.streams.iter_mut() {
            stream.send.raise_limit(peer.stream_window.get());
            self.turns.schedule(id, &mut stream.turn_state, &stream.send);
        }
    }

    /// The association is over, and all that is left of its streams are events for the session.
    /// The next one starts from nothing, but for stream numbers, which are never used twice.
    pub(super) fn restart(&mut self) {
        for (id, stream) in self.streams.iter_mut() {
            stream.recv.terminate(LOST);
            stream.send.abort(LOST);
            stream.send.on_reset_acked();
            stream.closed = true;
            let id = StreamId(id);
            if !stream.reset_locally {
                self.events.push_back(StreamEvent::Readable(id));
            }
            self.events.push_back(StreamEvent::Closed(id));
        }
        *self = Self {
            streams: take(&mut self.streams),
            numbers: self.numbers.restarted(),
            events: take(&mut self.events),
            traffic: self.traffic,
            ..Self::new(self.config.clone(), self.role(), Limits::UNKNOWN)
        };
        for (_, stream) in self.streams.iter_mut() {
            stream.counted = Counted::default();
            self.buffers.recount(stream);
        }
    }

    /// The first stream of ours that a new association may carry: the oldest that is open, or else
    /// the next to be opened.
    pub(super) fn first(&self) -> u64 {
        let mut local = self.streams.iter().filter(|(id, _)| self.numbers.is_local(*id));
        local.find(|(_, s)| !s.closed).map_or(self.numbers.next(), |(id, _)| id)
    }

    /// Streams that are open, or whose end was not polled yet.
    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    /// Memory held in buffers.
    pub(super) fn memory(&self) -> Bytes {
        Bytes::new(self.buffers.held())
    }

    pub(super) fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Opens a stream, of which `span` bytes may be sent beyond the last in sequence.
    pub(super) fn open(&mut self, span: u64) -> Result<StreamId, StreamError> {
        let most = self.peer.streams_max.min(self.config.streams_max as u64);
        if self.numbers.open() as u64 >= most {
            return Err(StreamError::TooMany);
        }
        let id = self.numbers.open_next();
        self.track(id, span);
        Ok(StreamId(id))
    }

    fn track(&mut self, id: u64, span: u64) {
        let mut stream = Stream::new(
            self.peer.stream_window.get(),
            span,
            self.config.first_stream_window().get(),
            self.config.stream_memory.get(),
        );
        self.buffers.recount(&mut stream);
        self.division.join(stream.priority);
        self.streams.insert(id, stream);
    }

    pub(super) fn poll_event(&mut self) -> Option<StreamEvent> {
        let event = self.events.pop_front()?;
        match event {
            StreamEvent::Closed(id) => {
                if let Some(stream) = self.streams.remove(id.0) {
                    self.buffers.forget(&stream);
                }
            }
            StreamEvent::Acknowledged(id) => {
                if let Some(stream) = self.streams.get_mut(id.0) {
                    stream.reported = false;
                }
            }
            _ => {}
        }
        Some(event)
    }

    /// Before which offset the peer has acknowledged all bytes of a stream; its end is one byte more.
    pub(super) fn acknowledged(&self, id: u64) -> Option<u64> {
        self.streams.get(id).map(|stream| stream.send.acknowledged_with_end())
    }

    /// From here on it is reported that this has grown.
    pub(super) fn report_acknowledged(&mut self, id: u64) {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.reports = true;
        }
    }

    /// The peer need not keep what was consumed of a stream but for the last `behind` bytes; with `end` not its end either.
    /// Whether the stream is there.
    pub(super) fn release(&mut self, id: u64, behind: u64, end: bool) -> bool {
        let Some(stream) = self.streams.get_mut(id).filter(|s| !s.closed) else { return false };
        let end = end && behind == 0 && stream.recv.state() == RecvState::Finished;
        let offset = stream.recv.consumed().saturating_sub(behind) + u64::from(end);
        self.raise_release(id, offset, behind == 0, end);
        true
    }

    /// The peer need keep nothing of a stream.
    pub(super) fn release_ahead(&mut self, id: u64) {
        self.raise_release(id, varint::MAX, true, true);
    }

    /// What is sent on a stream is kept from here on until the peer releases it.
    pub(super) fn retain(&mut self, id: u64) {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.send.on_released(0);
        }
    }

    fn raise_release(&mut self, id: u64, offset: u64, all: bool, end: bool) {
        let Some(stream) = self.streams.get_mut(id).filter(|s| !s.closed) else { return };
        let release = stream.release.get_or_insert_default();
        let Some(offset) = release.raise(offset, all, end) else { return };
        let content = Content::Release { stream: id, offset };
        let waits =
            |c: &&mut Content| matches!(c, Content::Release { stream, .. } if *stream == id);
        match self.controls.iter_mut().find(waits) {
            Some(earlier) => *earlier = content,
            None => self.controls.push_back(content),
        }
    }

    /// Room for bytes of a stream, at this rate of sending.
    pub(super) fn send_space(&mut self, id: u64, rate: Rate) -> Result<&mut [u8], StreamError> {
        let stream = self.streams.get(id).ok_or(StreamError::Unknown)?;
        if let RecvState::Reset(code) = stream.recv.state() {
            return Err(StreamError::Reset(code));
        }
        if stream.reset_locally {
            return Err(StreamError::Unknown);
        }
        if !stream.send.is_open() {
            return Err(StreamError::Finished);
        }
        let room = self.send_room(&stream.send, rate).min(SPACE_MAX);
        let starved = self.association_room(&stream.send) == 0;
        let stream = self.streams.get_mut(id).ok_or(StreamError::Unknown)?;
        if room == 0 {
            if starved && !stream.send.wants_room {
                self.starved.push_back(id);
            }
            stream.send.on_full();
        }
        let allowed = self.buffers.allowed(&stream.send);
        let capacity = stream.send.memory();
        stream.send.reserve(room as usize, allowed);
        if stream.send.memory() != capacity {
            self.buffers.recount(stream);
        }
        Ok(stream.send.space(room as usize))
    }

    pub(super) fn commit(&mut self, id: u64, n: usize) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if n == 0 {
            stream.send.give_back();
            self.buffers.recount(stream);
        } else {
            stream.send.commit(n);
            self.buffered += n as u64;
            self.turns.schedule(id, &mut stream.turn_state, &stream.send);
        }
    }

    pub(super) fn finish(&mut self, id: u64) {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.send.finish();
            self.turns.schedule(id, &mut stream.turn_state, &stream.send);
        }
    }

    pub(super) fn reset(&mut self, id: u64, code: u64) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        stream.reset_locally = true;
        if stream.recv.state() == RecvState::Open {
            let held = stream.recv.unconsumed();
            stream.recv.discard();
            self.buffers.recount(stream);
            self.credit.consume(held);
            self.renew_credit(false);
        }
        self.abort_send(id, code);
        self.close_if_over(id);
    }

    pub(super) fn received(&self, id: u64) -> &[u8] {
        self.streams.get(id).map_or(&[], |s| s.recv.readable())
    }

    pub(super) fn consume(&mut self, id: u64, n: usize) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        let n = n.min(stream.recv.readable().len());
        if self.division.is_on() {
            stream.recv.set_share(self.division.share(stream.priority, self.credit.window()));
        }
        if stream.recv.consume(n) {
            self.controls.push_back(Content::StreamCredit { stream: id });
        }
        if stream.recv.readable().is_empty() {
            stream.recv.wants_data = true;
        }
        self.buffers.on_consumed(id, stream);
        self.credit.consume(n as u64);
        self.renew_credit(false);
        self.close_if_over(id);
    }

    pub(super) fn recv_state(&self, id: u64) -> RecvState {
        self.streams.get(id).map_or(RecvState::Finished, |s| s.recv.state())
    }

    pub(super) fn set_priority(&mut self, id: u64, priority: u32) {
        if self.change_priority(id, priority) {
            self.queue_control(Content::Priority { stream: id });
        }
    }

    /// A stream is of the host of this name; the peer is told.
    pub(super) fn set_client(&mut self, id: u64, client: u32) {
        if self.change_client(id, client) {
            self.queue_control(Content::Client { stream: id });
        }
    }

    /// Whether there is such a stream, and it was another host's.
    fn change_client(&mut self, id: u64, client: u32) -> bool {
        let Some(stream) = self.streams.get_mut(id).filter(|s| !s.closed) else { return false };
        let changed = stream.client != client;
        if changed {
            stream.client = client;
            let turns = self.turns.of(stream.turn_state.policy());
            turns.set_client(id, &mut stream.turn_state, clients::bucket(client.into()));
        }
        changed
    }

    /// Which paths may carry a stream; the peer is told.
    pub(super) fn set_policy(&mut self, id: u64, policy: Policy) {
        if self.change_policy(id, policy) {
            self.queue_control(Content::Policy { stream: id });
        }
    }

    /// Whether there is such a stream, and it had another policy.
    fn change_policy(&mut self, id: u64, policy: Policy) -> bool {
        let Some(stream) = self.streams.get_mut(id).filter(|s| !s.closed) else { return false };
        let changed = stream.turn_state.policy() != policy;
        if changed {
            self.turns.set_policy(id, &mut stream.turn_state, &stream.send, policy);
        }
        changed
    }

    /// Takes a stream out, before the datagrams with these numbers leave.
    pub(super) fn detach(&mut self, id: u64, next_numbers: PathNumbers) -> Option<StreamState> {
        self.streams.get(id).filter(|stream| stream.can_move())?;
        let stream = self.streams.remove(id)?;
        self.buffers.forget(&stream);
        self.detached.insert(id, &stream, next_numbers);
        self.division.leave(stream.priority);
        self.numbers.close(id);
        self.buffered -= stream.send.buffered();
        self.credit.consume(stream.recv.unconsumed());
        self.renew_credit(false);
        Some(stream.state())
    }

    pub(super) fn snapshot(&self, id: u64) -> Option<StreamState> {
        self.streams.get(id).filter(|stream| stream.can_move()).map(Stream::state)
    }

    /// Of a stream that was taken out, before which offset all bytes had come to the peer by then.
    pub(super) fn arrived(&self, id: u64, acked: impl Fn(&PathNumbers) -> bool) -> Option<u64> {
        self.detached.arrived(id, acked)
    }

    /// Before which offset the peer has all bytes of a stream, if `arrived` has arrived as well.
    pub(super) fn presumed<'a>(
        &self,
        id: u64,
        arrived: impl Iterator<Item = &'a Content>,
    ) -> Option<u64> {
        let pieces = arrived.filter_map(|content| match *content {
            Content::Data { stream, piece } if stream == id => Some(piece),
            _ => None,
        });
        self.streams.get(id).map(|stream| detached::acked_with(stream, pieces))
    }

    /// Whether a datagram carries bytes of a stream that was taken out.
    pub(super) fn is_for_detached(&self, payload: &[u8]) -> bool {
        self.detached.have_bytes_in(payload)
    }

    /// Sets a stream's priority, from here or from the peer; whether there is such a stream.
    fn change_priority(&mut self, id: u64, priority: u32) -> bool {
        let Some(stream) = self.streams.get_mut(id).filter(|s| !s.closed) else { return false };
        self.division.change(stream.priority, priority);
        stream.priority = priority;
        let turns = self.turns.of(stream.turn_state.policy());
        turns.set_priority(id, &mut stream.turn_state, priority);
        true
    }

    /// Grants more credit for all streams together when enough was read.
    fn renew_credit(&mut self, at_once: bool) {
        self.buffers.charge(&self.credit);
        if self.credit.renew(at_once, self.buffers.window_max(&self.credit)) {
            self.buffers.charge(&self.credit);
            self.queue_control(Content::Credit);
        }
    }

    /// Queues a frame that is written in its present form, once.
    fn queue_control(&mut self, content: Content) {
        if !self.controls.contains(&content) {
            self.controls.push_back(content);
        }
    }

    /// How much more the application may write into a stream: not much more than the peer takes at present, or
    /// streams that it does not read would hold the memory of all.
    fn send_room(&self, send: &SendHalf, rate: Rate) -> u64 {
        // Streams that send share the rate.
        let streams = self.turns.len().max(1) as u64;
        let ms = self.config.ahead.as_millis() as u64;
        let ahead = (rate.as_bps() / 8000).saturating_mul(ms) / streams;
        let least = self.config.ahead_min.get().min(UNSENT_MAX);
        let most = UNSENT_MAX.min(send.credit().saturating_add(least));
        let unsent = ahead.clamp(least, most).saturating_sub(send.unsent());
        let stream = self.config.stream_memory.get().saturating_sub(send.buffered());
        let buffer = send.room_within(self.buffers.allowed(send));
        unsent.min(stream).min(self.association_room(send)).min(buffer)
    }

    /// Less room than this is not worth a wake-up, if there is room for `buffer` bytes in all.
    fn room_worth_waking(&self, buffer: u64) -> u64 {
        let stream = self.config.stream_memory.get().min(buffer);
        let all = self.config.association_memory.get();
        (self.config.ahead_min.get().min(stream).min(all) / 8).max(1)
    }

    /// What of the association's memory is free for a stream: for one that holds little always a little, whatever others
    /// take.
    fn association_room(&self, send: &SendHalf) -> u64 {
        let free = self.config.association_memory.get().saturating_sub(self.buffered);
        let little = LITTLE.saturating_sub(send.buffered()).min(free);
        self.shared_room().max(little)
    }

    /// What is free for any stream.
    fn shared_room(&self) -> u64 {
        let all = self.config.association_memory.get();
        (all - self.config.reserve().get()).saturating_sub(self.buffered)
    }

    /// Reports room to the application if it met a full buffer before.
    fn report_writable(&mut self, id: u64, rate: Rate) {
        let Some(stream) = self.streams.get(id) else { return };
        if !stream.send.wants_room || stream.reset_locally || !stream.send.is_open() {
            return;
        }
        let allowed = self.buffers.allowed(&stream.send);
        let buffer = stream.send.room_within(allowed).saturating_add(stream.send.buffered());
        if self.send_room(&stream.send, rate) >= self.room_worth_waking(buffer) {
            self.events.push_back(StreamEvent::Writable(StreamId(id)));
            if let Some(stream) = self.streams.get_mut(id) {
                stream.send.wants_room = false;
            }
        }
    }

    /// Aborts a stream's sending half with a reset to the peer.
    fn abort_send(&mut self, id: u64, code: u64) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if stream.send.reset.is_some() || stream.is_over() {
            return;
        }
        self.buffered -= stream.send.buffered();
        stream.send.abort(code);
        self.buffers.recount(stream);
        self.controls.push_back(Content::Reset { stream: id });
    }

    /// Puts a stream in the turn of those with something to send.
    fn schedule(&mut self, id: u64) {
        if let Some(stream) = self.streams.get_mut(id) {
            self.turns.schedule(id, &mut stream.turn_state, &stream.send);
        }
    }

    /// Reports that a stream is over both ways, if it is. It is removed once the session has polled
    /// that event, after all before it.
    fn close_if_over(&mut self, id: u64) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if !stream.is_over() || stream.closed {
            return;
        }
        stream.closed = true;
        self.numbers.close(id);
        self.division.leave(stream.priority);
        self.events.push_back(StreamEvent::Closed(StreamId(id)));
    }
}
