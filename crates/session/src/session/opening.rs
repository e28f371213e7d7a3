//! The part of a connection's life in which the session itself reads and writes.

use alloc::boxed::Box;
use alloc::vec::Vec;

use lasthop_hop::{RecvState, StreamError, StreamEvent, StreamId, Streams};
use lasthop_wire::mhp::{self, Decoded, Message, MhpError, Opening, Refusal, ResetReason};

use super::{Role, Session};
use crate::carried::Origin;
use crate::table::{Phase, is_provisional, provisional};
use crate::{ConnId, Event};

impl Session {
    pub(super) fn handle_stream_event(&mut self, hop: &mut impl Streams, event: StreamEvent) {
        match event {
            StreamEvent::Incoming(stream) => self.on_incoming(hop, stream),
            StreamEvent::Readable(stream) => {
                if let Some(id) = self.table.of_stream(stream) {
                    self.on_readable(hop, id);
                } else if self.is_channel(stream) {
                    self.read_channel(hop);
                }
            }
            StreamEvent::Writable(stream) => match self.table.of_stream(stream) {
                Some(id) => self.on_writable(hop, id),
                None if self.is_channel(stream) => self.write_channel(hop),
                None => self.on_roll_writable(hop, stream),
            },
            StreamEvent::Acknowledged(stream) => {
                self.events.extend(self.table.of_stream(stream).map(Event::Acknowledged));
            }
            StreamEvent::Finished(stream) => self.on_roll_finished(hop, stream),
            StreamEvent::Closed(stream) => {
                if let Some(id) = self.table.of_stream(stream) {
                    self.on_closed(hop, id);
                } else if self.is_channel(stream) {
                    self.on_channel_closed();
                } else {
                    self.on_roll_closed(stream);
                }
            }
        }
    }

    fn on_incoming(&mut self, hop: &mut impl Streams, stream: StreamId) {
        if self.role == Role::Mobile && !self.listens {
            self.stats.malformed += 1;
            hop.reset(stream, ResetReason::Protocol.code());
        } else if self.begins_channel(hop, stream) {
            self.enter_channel(hop, stream, Vec::new());
        } else if self.is_full() {
            self.stats.turned_away += 1;
            hop.reset(stream, ResetReason::Refused(Refusal::TooMany).code());
        } else {
            let id = provisional(stream);
            self.table.insert(id, Phase::Reading);
            self.table.attach(id, stream);
            self.arm(id);
            self.on_readable(hop, id);
        }
    }

    fn on_readable(&mut self, hop: &mut impl Streams, id: ConnId) {
        let Some(conn) = self.table.get(id) else { return };
        let (Some(stream), phase) = (conn.stream, conn.phase()) else { return };
        let (awaits, hears) = (conn.awaits, conn.hears());
        if let RecvState::Reset(code) = hop.recv_state(stream) {
            return self.on_peer_reset(hop, id, phase, ResetReason::from_code(code));
        }
        match phase {
            _ if awaits && !hears => self.read_reopened(hop, id),
            Phase::Connecting(_) | Phase::Open if !hears => self.read_continue(hop, id),
            Phase::Asking(opening) => self.read_answer(hop, id, opening),
            Phase::Reading if self.holds.contains(stream) => {}
            Phase::Reading => self.read_first(hop, stream),
            Phase::Connecting(_) => {}
            Phase::Refusing(_) => self.discard(hop, id),
            Phase::Open => self.events.push_back(Event::Readable(id)),
        }
    }

    pub(super) fn on_writable(&mut self, hop: &mut impl Streams, id: ConnId) {
        // An error here is a reset, which has its own event.
        let _ = self.flush(hop, id);
        if self.table.get(id).is_some_and(|conn| conn.writable() && !conn.finishing) {
            self.events.push_back(Event::Writable(id));
        }
    }

    fn on_closed(&mut self, hop: &mut impl Streams, id: ConnId) {
        let Some(conn) = self.table.get(id) else { return };
        match conn.phase() {
            Phase::Open if !conn.awaits => self.close_when_read(id),
            Phase::Refusing(_) => self.close_connection(id),
            Phase::Reading => self.reset_unannounced(hop, id, ResetReason::Protocol),
            // A transport that keeps its promises closes nothing before our direction has ended.
            phase => self.on_peer_reset(hop, id, phase, ResetReason::Protocol),
        }
    }

    /// The peer has reset a stream, or the hop has lost it.
    fn on_peer_reset(
        &mut self,
        hop: &mut impl Streams,
        id: ConnId,
        phase: Phase,
        reason: ResetReason,
    ) {
        match phase {
            Phase::Reading => return self.remove_unannounced(id),
            Phase::Refusing(_) => {}
            Phase::Asking(opening) => {
                self.stats.failed += 1;
                self.report_failure(id, opening, reason.as_refusal(), reason);
            }
            Phase::Connecting(_) | Phase::Open => {
                self.events.push_back(Event::Reset { id, reason });
            }
        }
        self.remove_reset(hop, id, reason);
    }

    /// Mobile: a fixed host opens a connection.
    pub(super) fn on_offer(
        &mut self,
        hop: &mut impl Streams,
        from: ConnId,
        id: ConnId,
        origin: Origin,
    ) {
        // Even numbers are the mobile's own.
        if is_provisional(id) || id.0.is_multiple_of(2) || self.table.get(id).is_some() {
            self.stats.malformed += 1;
            return self.reset_unannounced(hop, from, ResetReason::Protocol);
        }
        self.table.rename(from, id);
        self.table.enter(id, Phase::Connecting(Opening::Faithful));
        let target = origin.target.clone();
        self.events.push_back(Event::Connect { id, target, source: origin.from });
        if let Some(conn) = self.table.get_mut(id) {
            conn.origin = Some(Box::new(origin));
        }
    }

    /// The answer to an opening, or a part of it, is there.
    fn read_answer(&mut self, hop: &mut impl Streams, id: ConnId, opening: Opening) {
        let protocol = ResetReason::Protocol;
        match self.take_message(hop, id) {
            Ok(None) => {}
            Ok(Some(Message::Opened { bound })) => {
                self.table.enter(id, Phase::Open);
                self.stats.opened += 1;
                if self.role == Role::Mobile {
                    self.drop_origin(id);
                }
                if opening == Opening::Faithful {
                    self.events.push_back(Event::Opened { id, bound: Some(bound) });
                }
                self.announce_bytes(hop, id);
            }
            Ok(Some(Message::Refused(refusal))) => {
                self.fail(hop, id, opening, refusal, ResetReason::Aborted);
            }
            Ok(Some(_)) | Err(_) => {
                self.stats.malformed += 1;
                self.fail(hop, id, opening, Refusal::Protocol, protocol);
            }
        }
    }

    /// The mobile needs its opening no more: the base has answered.
    pub(super) fn drop_origin(&mut self, id: ConnId) {
        if let Some(conn) = self.table.get_mut(id) {
            conn.origin = None;
        }
    }

    /// Takes the stream's next message, and not a byte more, once it is complete.
    pub(super) fn take_message(
        &mut self,
        hop: &mut impl Streams,
        id: ConnId,
    ) -> Result<Option<Message>, MhpError> {
        let Some(conn) = self.table.get_mut(id) else { return Ok(None) };
        let Some(stream) = conn.stream else { return Ok(None) };
        if matches!(conn.phase(), Phase::Asking(_)) && conn.unsent.is_some() {
            // Nobody can have answered what was not asked yet.
            return Ok(None);
        }
        let mut partial = core::mem::take(&mut conn.partial);
        if let Some((message, len)) = gather(hop, stream, &mut partial)? {
            conn.heard = conn.heard.saturating_add(len as u32);
            return Ok(Some(message));
        }
        if hop.recv_state(stream) == RecvState::Finished {
            return Err(MhpError::Truncated("message"));
        }
        conn.partial = partial;
        Ok(None)
    }

    /// Announces what waits behind the message that was just taken or written.
    pub(super) fn announce_bytes(&mut self, hop: &mut impl Streams, id: ConnId) {
        let news =
            |stream| !hop.received(stream).is_empty() || hop.recv_state(stream) != RecvState::Open;
        if self.table.stream(id).is_some_and(news) {
            self.on_readable(hop, id);
        } else {
            self.announce_rest(id);
        }
    }

    /// Mobile: asks for a connection.
    pub(super) fn write_open(
        &mut self,
        hop: &mut impl Streams,
        id: ConnId,
    ) -> Result<(), StreamError> {
        let Some(conn) = self.table.get(id) else { return Ok(()) };
        let (Phase::Asking(opening), Some(stream)) = (conn.phase(), conn.stream) else {
            return Ok(());
        };
        let Some(origin) = &conn.origin else { return Ok(()) };
        let connection = (id.0 != stream.0).then_some(id.0);
        let (target, source) = (origin.target.clone(), origin.from);
        let resumed = self.name.zip(self.turn);
        let message = Message::Open { opening, target, connection, source, resumed };
        self.write_message(hop, id, &message)
    }

    /// Writes a message, keeping back what the transport does not take.
    pub(super) fn write_message(
        &mut self,
        hop: &mut impl Streams,
        id: ConnId,
        message: &Message,
    ) -> Result<(), StreamError> {
        self.write_message_with(hop, id, message, &[])
    }

    /// Writes a message, and `bytes` behind it.
    pub(super) fn write_message_with(
        &mut self,
        hop: &mut impl Streams,
        id: ConnId,
        message: &Message,
        bytes: &[u8],
    ) -> Result<(), StreamError> {
        let Some(conn) = self.table.get_mut(id) else { return Ok(()) };
        self.scratch.clear();
        message.encode(&mut self.scratch);
        conn.said += self.scratch.len() as u16;
        let message = core::mem::take(&mut self.scratch);
        let said = self.send(hop, id, &[&message, bytes]);
        self.scratch = message;
        said
    }

    /// Writes bytes behind those that were kept back, keeping back what the transport does not take.
    pub(super) fn send(
        &mut self,
        hop: &mut impl Streams,
        id: ConnId,
        parts: &[&[u8]],
    ) -> Result<(), StreamError> {
        let Some(conn) = self.table.get_mut(id) else { return Ok(()) };
        let Some(stream) = conn.stream else { return Ok(()) };
        for bytes in parts {
            let taken = if conn.unsent.is_none() { hop.write(stream, bytes)? } else { 0 };
            conn.keep_unsent(&bytes[taken..]);
        }
        if conn.unsent.is_none() && conn.finishing && conn.is_emptied() {
            hop.finish(stream);
        }
        Ok(())
    }

    /// Writes what was kept back.
    pub(super) fn flush(&mut self, hop: &mut impl Streams, id: ConnId) -> Result<(), StreamError> {
        let Some(conn) = self.table.get_mut(id) else { return Ok(()) };
        let (Some(stream), Some(backlog)) = (conn.stream, &mut conn.unsent) else { return Ok(()) };
        let taken = hop.write(stream, backlog.as_slice())?;
        backlog.take(taken);
        if !backlog.is_empty() {
            return Ok(());
        }
        conn.unsent = None;
        if conn.finishing && conn.is_emptied() {
            hop.finish(stream);
        }
        // The edge for what came meanwhile has passed.
        if conn.phase() != Phase::Open || !conn.hears() {
            self.announce_bytes(hop, id);
        }
        Ok(())
    }

    /// A refused mobile has nothing more to say; reading it lets the stream close.
    pub(super) fn discard(&mut self, hop: &mut impl Streams, id: ConnId) {
        let Some(stream) = self.table.stream(id) else { return };
        loop {
            let n = hop.received(stream).len();
            if n == 0 {
                return;
            }
            hop.consume(stream, n);
        }
    }

    /// Mobile: an opening came to nothing.
    pub(super) fn fail(
        &mut self,
        hop: &mut impl Streams,
        id: ConnId,
        opening: Opening,
        refusal: Refusal,
        to_peer: ResetReason,
    ) {
        self.stats.failed += 1;
        self.report_failure(id, opening, refusal, ResetReason::Refused(refusal));
        self.reset_connection(hop, id, to_peer);
    }

    pub(super) fn report_failure(
        &mut self,
        id: ConnId,
        opening: Opening,
        refusal: Refusal,
        reason: ResetReason,
    ) {
        self.events.push_back(match opening {
            Opening::Faithful => Event::Failed { id, refusal },
            Opening::Early => Event::Reset { id, reason },
        });
    }

    /// Resets a stream that was never reported to the caller.
    pub(super) fn reset_unannounced(
        &mut self,
        hop: &mut impl Streams,
        id: ConnId,
        reason: ResetReason,
    ) {
        if let Some(stream) = self.table.stream(id) {
            hop.reset(stream, reason.code());
        }
        self.remove_unannounced(id);
    }

    /// Removes a stream that was never reported to the caller.
    fn remove_unannounced(&mut self, id: ConnId) {
        if let Some(stream) = self.table.stream(id).filter(|_| is_provisional(id)) {
            self.holds.remove(stream);
        }
        self.table.remove(id);
    }

    /// Resets a connection that the caller knows.
    pub(super) fn reset_connection(
        &mut self,
        hop: &mut impl Streams,
        id: ConnId,
        reason: ResetReason,
    ) {
        if let Some(stream) = self.table.stream(id) {
            hop.reset(stream, reason.code());
        }
        self.remove_reset(hop, id, reason);
    }

    /// Removes a connection that was reset, of which the base may not have heard where it came.
    fn remove_reset(&mut self, hop: &mut impl Streams, id: ConnId, reason: ResetReason) {
        let unheard = self.table.get(id).is_some_and(|conn| conn.moved && conn.is_unanswered());
        self.remove_connection(id, Some(reason));
        if unheard {
            self.recall(hop);
        }
    }

    pub(super) fn close_connection(&mut self, id: ConnId) {
        self.remove_connection(id, None);
    }

    /// Forgets a connection, but for how it ended.
    fn remove_connection(&mut self, id: ConnId, reset: Option<ResetReason>) {
        if self.table.remove(id) && !is_provisional(id) {
            self.events.push_back(Event::Closed(id));
            if self.role == Role::Base {
                self.ended.add(id, reset.map(ResetReason::code));
            }
        }
    }
}

/// Adds received bytes to `partial` until they are a message, of a length. A message that is there in one piece
/// is read where it lies.
fn gather(
    hop: &mut impl Streams,
    stream: StreamId,
    partial: &mut Vec<u8>,
) -> Result<Option<(Message, usize)>, MhpError> {
    if partial.is_empty()
        && let Decoded::Complete { message, len } = mhp::decode(hop.received(stream))?
    {
        hop.consume(stream, len);
        return Ok(Some((message, len)));
    }
    loop {
        let needed = match mhp::decode(partial)? {
            Decoded::Complete { message, len } => return Ok(Some((message, len))),
            Decoded::Incomplete { needed } => needed - partial.len(),
        };
        let piece = hop.received(stream);
        let n = piece.len().min(needed);
        if n == 0 {
            return Ok(None);
        }
        partial.extend_from_slice(&piece[..n]);
        hop.consume(stream, n);
    }
}
