//! The part of a connection's life in which the session itself reads and writes.

use alloc::vec::Vec;

use lasthop_hop::{RecvState, StreamError, StreamEvent, StreamId, Streams};
use lasthop_wire::mhp::{self, Decoded, Message, MhpError, Opening, Refusal, ResetReason};

use super::{Role, Session};
use crate::table::{Held, Phase};
use crate::{ConnId, Event};

impl Session {
    pub(super) fn handle_stream_event(&mut self, hop: &mut impl Streams, event: StreamEvent) {
        match event {
            StreamEvent::Incoming(stream) => self.on_incoming(hop, ConnId(stream.0)),
            StreamEvent::Readable(stream) => self.on_readable(hop, ConnId(stream.0)),
            StreamEvent::Writable(stream) => self.on_writable(hop, ConnId(stream.0)),
            StreamEvent::Finished(_) => {}
            StreamEvent::Closed(stream) => self.on_closed(hop, ConnId(stream.0)),
        }
    }

    fn on_incoming(&mut self, hop: &mut impl Streams, id: ConnId) {
        if self.role == Role::Mobile {
            self.stats.malformed += 1;
            hop.reset(id.stream(), ResetReason::Protocol.code());
        } else if self.is_full() {
            self.stats.turned_away += 1;
            hop.reset(id.stream(), ResetReason::Refused(Refusal::TooMany).code());
        } else {
            self.table.insert(id, Phase::Reading);
            self.arm(id);
            self.on_readable(hop, id);
        }
    }

    fn on_readable(&mut self, hop: &mut impl Streams, id: ConnId) {
        let Some(phase) = self.table.phase(id) else { return };
        if let RecvState::Reset(code) = hop.recv_state(id.stream()) {
            return self.on_peer_reset(id, phase, ResetReason::from_code(code));
        }
        match phase {
            Phase::Asking(opening) => self.read_answer(hop, id, opening),
            Phase::Reading => self.read_open(hop, id),
            Phase::Connecting(_) => {}
            Phase::Refusing => self.discard(hop, id),
            Phase::Open => self.events.push_back(Event::Readable(id)),
        }
    }

    fn on_writable(&mut self, hop: &mut impl Streams, id: ConnId) {
        // An error here is a reset, which has its own event.
        let _ = self.flush(hop, id);
        if self.table.get(id).is_some_and(|conn| conn.writable() && !conn.finishing) {
            self.events.push_back(Event::Writable(id));
        }
    }

    fn on_closed(&mut self, hop: &mut impl Streams, id: ConnId) {
        match self.table.phase(id) {
            None => {}
            Some(Phase::Open | Phase::Refusing) => self.forget(id),
            Some(Phase::Reading) => self.drop_silently(hop, id, ResetReason::Protocol),
            // A transport that keeps its promises closes nothing before our direction has ended.
            Some(phase) => self.on_peer_reset(id, phase, ResetReason::Protocol),
        }
    }

    fn on_peer_reset(&mut self, id: ConnId, phase: Phase, reason: ResetReason) {
        match phase {
            Phase::Reading => {
                self.table.remove(id);
                return;
            }
            Phase::Refusing => {}
            Phase::Asking(opening) => {
                self.stats.failed += 1;
                self.tell_failure(id, opening, reason.as_refusal(), reason);
            }
            Phase::Connecting(_) | Phase::Open => {
                self.events.push_back(Event::Reset { id, reason });
            }
        }
        self.forget(id);
    }

    /// Mobile: the base's answer, or a part of it, is there.
    fn read_answer(&mut self, hop: &mut impl Streams, id: ConnId, opening: Opening) {
        let protocol = ResetReason::Protocol;
        match self.take_message(hop, id) {
            Ok(None) => {}
            Ok(Some(Message::Opened { bound })) => {
                self.table.enter(id, Phase::Open);
                self.stats.opened += 1;
                if opening == Opening::Faithful {
                    self.events.push_back(Event::Opened { id, bound: Some(bound) });
                }
                self.announce_bytes(hop, id);
            }
            Ok(Some(Message::Refused(refusal))) => {
                self.fail(hop, id, opening, refusal, ResetReason::Aborted);
            }
            Ok(Some(Message::Open { .. })) | Err(_) => {
                self.stats.malformed += 1;
                self.fail(hop, id, opening, Refusal::Protocol, protocol);
            }
        }
    }

    /// Base: the opening, or a part of it, is there.
    fn read_open(&mut self, hop: &mut impl Streams, id: ConnId) {
        match self.take_message(hop, id) {
            Ok(None) => {}
            Ok(Some(Message::Open { opening, target })) => {
                self.table.enter(id, Phase::Connecting(opening));
                self.events.push_back(Event::Connect { id, target });
            }
            Ok(Some(_)) | Err(_) => {
                self.stats.malformed += 1;
                self.drop_silently(hop, id, ResetReason::Protocol);
            }
        }
    }

    /// Takes the stream's first message, and not a byte more, once it is complete.
    fn take_message(
        &mut self,
        hop: &mut impl Streams,
        id: ConnId,
    ) -> Result<Option<Message>, MhpError> {
        let Some(conn) = self.table.get_mut(id) else { return Ok(None) };
        let mut partial = match core::mem::take(&mut conn.held) {
            Held::Partial(bytes) => bytes,
            Held::Nothing => Vec::new(),
            unsent @ Held::Unsent(_) => {
                // Nobody can have answered what was not asked yet.
                conn.held = unsent;
                return Ok(None);
            }
        };
        if let Some(message) = gather(hop, id.stream(), &mut partial)? {
            return Ok(Some(message));
        }
        if hop.recv_state(id.stream()) == RecvState::Finished {
            return Err(MhpError::Truncated("message"));
        }
        if !partial.is_empty() {
            conn.held = Held::Partial(partial);
        }
        Ok(None)
    }

    /// Announces what waits behind the message that was just taken or written.
    pub(super) fn announce_bytes(&mut self, hop: &mut impl Streams, id: ConnId) {
        let waiting = !hop.received(id.stream()).is_empty();
        if waiting || hop.recv_state(id.stream()) != RecvState::Open {
            self.on_readable(hop, id);
        }
    }

    /// Writes a message, keeping back what the transport does not take.
    pub(super) fn say(
        &mut self,
        hop: &mut impl Streams,
        id: ConnId,
        message: &Message,
    ) -> Result<(), StreamError> {
        self.scratch.clear();
        message.encode(&mut self.scratch);
        let taken = hop.write(id.stream(), &self.scratch)?;
        let Some(conn) = self.table.get_mut(id) else { return Ok(()) };
        if taken < self.scratch.len() {
            conn.held = Held::Unsent(self.scratch[taken..].to_vec());
        } else if conn.finishing {
            hop.finish(id.stream());
        }
        Ok(())
    }

    /// Writes what was kept back of a message.
    fn flush(&mut self, hop: &mut impl Streams, id: ConnId) -> Result<(), StreamError> {
        let Some(conn) = self.table.get_mut(id) else { return Ok(()) };
        let Held::Unsent(bytes) = &mut conn.held else { return Ok(()) };
        let taken = hop.write(id.stream(), bytes)?;
        bytes.drain(..taken);
        if !bytes.is_empty() {
            return Ok(());
        }
        conn.held = Held::Nothing;
        if conn.finishing {
            hop.finish(id.stream());
        }
        // The edge for what came meanwhile has passed.
        if conn.phase() != Phase::Open {
            self.announce_bytes(hop, id);
        }
        Ok(())
    }

    /// A refused mobile has nothing more to say; reading it lets the stream close.
    pub(super) fn discard(&mut self, hop: &mut impl Streams, id: ConnId) {
        loop {
            let n = hop.received(id.stream()).len();
            if n == 0 {
                return;
            }
            hop.consume(id.stream(), n);
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
        self.tell_failure(id, opening, refusal, ResetReason::Refused(refusal));
        self.give_up(hop, id, to_peer);
    }

    fn tell_failure(
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

    /// Resets a stream that the caller never heard of.
    pub(super) fn drop_silently(
        &mut self,
        hop: &mut impl Streams,
        id: ConnId,
        reason: ResetReason,
    ) {
        hop.reset(id.stream(), reason.code());
        self.table.remove(id);
    }

    /// Resets a connection that the caller knows.
    pub(super) fn give_up(&mut self, hop: &mut impl Streams, id: ConnId, reason: ResetReason) {
        hop.reset(id.stream(), reason.code());
        self.forget(id);
    }

    fn forget(&mut self, id: ConnId) {
        if self.table.remove(id) {
            self.events.push_back(Event::Closed(id));
        }
    }
}

/// Adds received bytes to `partial` until they are a message. A message that is there in one piece
/// is read where it lies.
fn gather(
    hop: &mut impl Streams,
    stream: StreamId,
    partial: &mut Vec<u8>,
) -> Result<Option<Message>, MhpError> {
    if partial.is_empty()
        && let Decoded::Complete { message, len } = mhp::decode(hop.received(stream))?
    {
        hop.consume(stream, len);
        return Ok(Some(message));
    }
    loop {
        let needed = match mhp::decode(partial)? {
            Decoded::Complete { message, .. } => return Ok(Some(message)),
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
