//! The datagrams of handoffs, carried by one long-lived stream of an association.
//!
//! Each has the header of every MHP message and with it its length, so they follow each other
//! without anything between them. The mobile's side opens the stream with its first message; the
//! base's side answers on it. It belongs to the association and to no connection: it does not move,
//! and what is on its way when the hop ends is lost, as any datagram may be.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use lasthop_hop::{RecvState, StreamError, StreamId, Streams};
use lasthop_units::Time;
use lasthop_wire::mhp::handoff::DATAGRAM_TYPES;
use lasthop_wire::mhp::{HEADER_LEN, ResetReason, VERSION};

use super::{Role, Session};
use crate::ConnId;
use crate::backlog::Backlog;

/// Bytes that wait for the transport at most.
const BACKLOG_MAX: usize = 4 << 20;
/// Bytes that wait for the caller at most; beyond, the stream is not read.
const INBOX_MAX: usize = 1 << 20;
/// What a message is counted for beside its bytes.
const MESSAGE_COST: usize = 64;
/// Versions that a message may have. What is above is rather a text's first letter.
const VERSIONS: RangeInclusive<u8> = VERSION..=31;

/// What bytes are at the start of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Frame {
    /// Too few to tell its length.
    Short,
    /// A message of so many bytes, in this version or a later one.
    Message(usize),
    /// No message of a handoff.
    Foreign,
}

fn frame(bytes: &[u8]) -> Frame {
    match *bytes {
        [version, ..] if !VERSIONS.contains(&version) => Frame::Foreign,
        [_, kind, ..] if !DATAGRAM_TYPES.contains(&kind) => Frame::Foreign,
        [_, _, high, low, ..] => {
            Frame::Message(HEADER_LEN + usize::from(u16::from_be_bytes([high, low])))
        }
        _ => Frame::Short,
    }
}

/// The stream of messages, if there is one, and what waits at its two ends.
#[derive(Debug, Default)]
pub(super) struct Channel {
    stream: Option<StreamId>,
    unsent: Backlog,
    /// The part of a message that has come.
    partial: Vec<u8>,
    inbox: VecDeque<Vec<u8>>,
    /// What the inbox is counted for.
    held: usize,
    /// The stream was left unread because the inbox was full.
    stalled: bool,
}

impl Channel {
    /// Takes bytes from the front of `piece`; how many. `None` if they are no message.
    fn take(&mut self, piece: &[u8]) -> Option<usize> {
        let needed = match frame(&self.partial) {
            Frame::Short => HEADER_LEN,
            Frame::Message(len) => len,
            Frame::Foreign => return None,
        };
        let n = piece.len().min(needed - self.partial.len());
        self.partial.extend_from_slice(&piece[..n]);
        match frame(&self.partial) {
            Frame::Short => {}
            Frame::Message(len) if len > self.partial.len() => {
                self.partial.reserve(len - self.partial.len());
            }
            Frame::Message(len) => {
                self.held += len + MESSAGE_COST;
                self.inbox.push_back(core::mem::take(&mut self.partial));
            }
            Frame::Foreign => return None,
        }
        Some(n)
    }

    fn is_full(&self) -> bool {
        self.held >= INBOX_MAX
    }

    /// The stream is gone, and with it what was not carried whole.
    fn close(&mut self) -> Option<StreamId> {
        (self.unsent, self.partial, self.stalled) = (Backlog::default(), Vec::new(), false);
        self.stream.take()
    }
}

impl Session {
    /// Sends a datagram of a handoff to the peer's session, in order after those before it.
    ///
    /// The mobile's side opens a stream for them with the first, between
    /// [`suspend`](Self::suspend) and [`resume`](Self::resume) on the hop that it goes to; the base's
    /// side answers on that stream. Nothing says that a message arrived, and none does that was under
    /// way when the hop ended or was left.
    ///
    /// # Errors
    ///
    /// [`StreamError::TooMany`] if 4 MiB wait already, or the transport has no stream;
    /// [`StreamError::Unknown`] at a base whose peer has opened no such stream yet, and for bytes that
    /// are not one whole datagram of a handoff; else whatever the transport says.
    pub fn send_message(
        &mut self,
        now: Time,
        hop: &mut impl Streams,
        bytes: &[u8],
    ) -> Result<(), StreamError> {
        self.advance(now);
        if frame(bytes) != Frame::Message(bytes.len()) {
            return Err(StreamError::Unknown);
        }
        if self.channel.unsent.len() + bytes.len() > BACKLOG_MAX {
            return Err(StreamError::TooMany);
        }
        let known = self.channel.stream.is_some();
        match self.write_to_channel(hop, bytes) {
            // The peer gave the stream up, of which its event is about to tell.
            Err(_) if known && self.role == Role::Mobile => self.write_to_channel(hop, bytes),
            written => written,
        }
    }

    /// The next datagram of a handoff that the peer sent, whole, if there is one. It may be of a type
    /// or a version that is not known here.
    ///
    /// While a megabyte waits here no more is read; [`poll_event`](Self::poll_event) goes on reading
    /// once there is room.
    pub fn poll_message(&mut self) -> Option<Vec<u8>> {
        let message = self.channel.inbox.pop_front()?;
        self.channel.held -= message.len() + MESSAGE_COST;
        Some(message)
    }

    fn write_to_channel(
        &mut self,
        hop: &mut impl Streams,
        bytes: &[u8],
    ) -> Result<(), StreamError> {
        let stream = match self.channel.stream {
            Some(stream) => stream,
            None if self.role == Role::Mobile => {
                let stream = hop.open()?;
                self.channel.stream = Some(stream);
                stream
            }
            None => return Err(StreamError::Unknown),
        };
        if !self.channel.unsent.is_empty() {
            self.channel.unsent.push(bytes);
            return Ok(());
        }
        match hop.write(stream, bytes) {
            Ok(n) => self.channel.unsent.push(&bytes[n..]),
            Err(e) => {
                self.close_channel(hop, ResetReason::Aborted);
                return Err(e);
            }
        }
        Ok(())
    }

    /// Whether a stream that the peer has just opened begins as the channel does, as far as is seen.
    pub(super) fn begins_channel(&self, hop: &impl Streams, stream: StreamId) -> bool {
        let first = hop.received(stream).first_chunk::<2>();
        self.role == Role::Base && first.is_some_and(|bytes| frame(bytes) == Frame::Short)
    }

    /// Takes a stream whose first message is not read yet for the channel, if it begins so. Whether
    /// that is settled, one way or the other: else more bytes must come.
    pub(super) fn try_channel(
        &mut self,
        hop: &mut impl Streams,
        from: ConnId,
        stream: StreamId,
    ) -> bool {
        let Some(conn) = self.table.get_mut(from).filter(|_| self.role == Role::Base) else {
            return true;
        };
        let partial = core::mem::take(&mut conn.partial);
        let head = gather_head(hop, stream, partial);
        let begins = match (&head[..], hop.received(stream)) {
            ([], [version, kind, ..]) => frame(&[*version, *kind]) == Frame::Short,
            (head, _) => head.len() == 2 && frame(head) == Frame::Short,
        };
        if begins {
            self.table.remove(from);
            self.enter_channel(hop, stream, head);
            return true;
        }
        let unsure = head.len() == 1 && frame(&head) == Frame::Short;
        conn.partial = head;
        !unsure || hop.recv_state(stream) != RecvState::Open
    }

    /// The peer has opened its channel with that stream, whose first bytes may have been taken in.
    pub(super) fn enter_channel(
        &mut self,
        hop: &mut impl Streams,
        stream: StreamId,
        partial: Vec<u8>,
    ) {
        // It has given up the one before.
        self.close_channel(hop, ResetReason::Aborted);
        self.channel.stream = Some(stream);
        self.channel.partial = partial;
        self.read_channel(hop);
    }

    pub(super) fn is_channel(&self, stream: StreamId) -> bool {
        self.channel.stream == Some(stream)
    }

    /// Takes in whole messages, as long as the inbox has room.
    pub(super) fn read_channel(&mut self, hop: &mut impl Streams) {
        self.channel.stalled = false;
        while let Some(stream) = self.channel.stream {
            let piece = hop.received(stream);
            if piece.is_empty() {
                return self.end_channel(hop, stream);
            }
            if self.channel.is_full() {
                self.channel.stalled = true;
                return;
            }
            match self.channel.take(piece) {
                Some(n) => hop.consume(stream, n),
                None => return self.break_channel(hop),
            }
        }
    }

    /// Goes on with what was left unread.
    pub(super) fn read_stalled_channel(&mut self, hop: &mut impl Streams) {
        if self.channel.stalled && !self.channel.is_full() {
            self.read_channel(hop);
        }
    }

    /// Nothing more can be read; perhaps nothing more comes.
    fn end_channel(&mut self, hop: &mut impl Streams, stream: StreamId) {
        match hop.recv_state(stream) {
            RecvState::Open => {}
            RecvState::Finished if !self.channel.partial.is_empty() => self.break_channel(hop),
            RecvState::Finished => {
                hop.finish(stream);
                self.channel.close();
            }
            RecvState::Reset(_) => self.on_channel_closed(),
        }
    }

    /// What came is no message, and what follows has no known boundaries.
    fn break_channel(&mut self, hop: &mut impl Streams) {
        self.stats.malformed += 1;
        self.close_channel(hop, ResetReason::Protocol);
    }

    pub(super) fn write_channel(&mut self, hop: &mut impl Streams) {
        let Some(stream) = self.channel.stream else { return };
        if self.channel.unsent.is_empty() {
            return;
        }
        match hop.write(stream, self.channel.unsent.as_slice()) {
            Ok(n) => self.channel.unsent.take(n),
            Err(_) => self.close_channel(hop, ResetReason::Aborted),
        }
    }

    pub(super) fn on_channel_closed(&mut self) {
        self.channel.close();
    }

    /// Gives the stream up; messages that came whole can still be polled.
    pub(super) fn close_channel(&mut self, hop: &mut impl Streams, reason: ResetReason) {
        if let Some(stream) = self.channel.close() {
            hop.reset(stream, reason.code());
        }
    }

    /// The hop is left: what came over it is not to be taken for the next peer's.
    pub(super) fn leave_channel(&mut self, hop: &mut impl Streams) {
        self.close_channel(hop, ResetReason::Aborted);
        self.channel = Channel::default();
    }
}

/// Adds to what was taken of a stream's first message until two bytes are seen. Those that are there
/// in one piece stay where they are.
fn gather_head(hop: &mut impl Streams, stream: StreamId, mut head: Vec<u8>) -> Vec<u8> {
    if head.is_empty() && hop.received(stream).len() >= 2 {
        return head;
    }
    while head.len() < 2
        && let Some(&byte) = hop.received(stream).first()
    {
        head.push(byte);
        hop.consume(stream, 1);
    }
    head
}
