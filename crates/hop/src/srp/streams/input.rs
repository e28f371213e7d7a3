//! Frames of streams, and their acknowledgement and loss.

use lasthop_units::{Bytes, Rate};
use lasthop_wire::frame::{Frame, StreamFrame};

use super::StreamSet;
use crate::policy::Policy;
use crate::srp::Violation;
use crate::srp::content::Content;
use crate::streams::{StreamEvent, StreamId};

impl StreamSet {
    /// Takes in a frame of streams or their credit, while we send at this rate; the others are passed over.
    ///
    /// # Errors
    ///
    /// It contradicts what was granted or received before.
    pub(in crate::srp) fn on_frame(
        &mut self,
        frame: &Frame<'_>,
        span: u64,
        rate: Rate,
    ) -> Result<(), Violation> {
        match frame {
            Frame::Stream(f) => self.on_data(f, span)?,
            Frame::Credit(limit) => self.credit.raise(*limit),
            Frame::StreamCredit { id, limit } => {
                if let Some(stream) = self.streams.get_mut(*id)
                    && stream.send.raise_limit(*limit)
                {
                    self.turns.schedule(*id, &mut stream.turn_state, &stream.send);
                    self.report_writable(*id, rate);
                }
            }
            Frame::Blocked => {
                // It is too small for the hop, or held by streams that are not read: each of those has
                // its own bound, and the others are not to wait for them.
                self.credit.widen();
                self.renew_credit(true);
            }
            Frame::StreamBlocked { id } => {
                self.widen_for(*id);
                if let Some(stream) = self.streams.get_mut(*id) {
                    if self.division.is_on() {
                        let window = self.credit.window();
                        stream.recv.set_share(self.division.share(stream.priority, window));
                    }
                    let most = self.buffers.stream_window_max(stream, &self.credit);
                    if stream.recv.on_blocked(most) {
                        self.controls.push_back(Content::StreamCredit { stream: *id });
                    }
                    self.buffers.recount(stream);
                }
            }
            Frame::Priority { id, priority } => {
                self.open_if_new(*id, span)?;
                self.change_priority(*id, *priority);
            }
            Frame::Client { id, client } => {
                self.open_if_new(*id, span)?;
                self.change_client(*id, *client);
            }
            Frame::Policy { id, policy } => {
                self.open_if_new(*id, span)?;
                // One of a later version is as good as none.
                self.change_policy(*id, Policy::of_number(*policy).unwrap_or_default());
            }
            Frame::Reset { id, code, size } => self.on_reset(*id, *code, *size, span)?,
            Frame::Release { id, offset } => self.on_released(*id, *offset, rate),
            _ => {}
        }
        Ok(())
    }

    /// A frame of the peer's names a stream: opens it if it is new.
    fn open_if_new(&mut self, id: u64, span: u64) -> Result<(), Violation> {
        if self.numbers.accept(id)? {
            // The peer may count a stream as over a moment before this end does.
            if self.streams.len() > 2 * self.config.streams_max + 64 + self.numbers.open() {
                return Err(Violation);
            }
            self.track(id, span);
            self.events.push_back(StreamEvent::Incoming(StreamId(id)));
        }
        Ok(())
    }

    fn on_data(&mut self, f: &StreamFrame<'_>, span: u64) -> Result<(), Violation> {
        self.open_if_new(f.id, span)?;
        let Some(stream) = self.streams.get_mut(f.id) else { return Ok(()) };
        let rise = stream.recv.on_data(f.offset, f.data, f.fin)?;
        self.buffers.recount(stream);
        self.traffic.received += Bytes::new(rise);
        self.credit.receive(rise)?;
        if self.buffers.is_shredded(&self.credit) {
            return Err(Violation);
        }
        if stream.reset_locally {
            self.credit.consume(rise);
            self.renew_credit(false);
        }
        self.buffers.on_received(&mut self.streams, &self.credit);
        self.report_readable(f.id);
        self.close_if_over(f.id);
        Ok(())
    }

    fn on_reset(&mut self, id: u64, code: u64, size: u64, span: u64) -> Result<(), Violation> {
        self.open_if_new(id, span)?;
        let Some(stream) = self.streams.get_mut(id) else { return Ok(()) };
        let known = stream.recv.is_done();
        let held = stream.recv.unconsumed();
        let rise = stream.recv.on_reset(code, size)?;
        self.buffers.recount(stream);
        self.credit.consume(match (stream.reset_locally, known) {
            (true, _) => rise,
            (false, true) => 0,
            (false, false) => held + rise,
        });
        self.credit.receive(rise)?;
        let sending = !stream.send.is_done();
        self.renew_credit(false);
        if sending {
            self.abort_send(id, code);
        }
        if !known || sending {
            self.report_reset(id);
        }
        self.close_if_over(id);
        Ok(())
    }

    /// The peer lets us drop what comes before an offset.
    fn on_released(&mut self, id: u64, offset: u64, rate: Rate) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        let (before, was_done) = (stream.send.buffered(), stream.send.is_done());
        stream.send.on_released(offset);
        self.on_let_go(id, before, was_done, rate);
    }

    /// A stream's sending half, which had so many bytes, may have fewer, and be done.
    fn on_let_go(&mut self, id: u64, before: u64, was_done: bool, rate: Rate) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        let done = stream.send.is_done() && !was_done;
        let gone = before - stream.send.buffered();
        self.buffered -= gone;
        self.buffers.on_acked(gone, stream);
        if done && !stream.reset_locally && stream.send.reset.is_none() {
            self.events.push_back(StreamEvent::Finished(StreamId(id)));
        }
        self.report_writable(id, rate);
        self.wake_starved(rate);
        if done {
            self.close_if_over(id);
        }
    }

    /// Something is known to have arrived, while we send at this rate.
    pub(in crate::srp) fn on_acked(&mut self, content: Content, rate: Rate) {
        match content {
            Content::Data { stream: id, piece } => {
                let Some(stream) = self.streams.get_mut(id) else {
                    return self.detached.on_acked(id, piece);
                };
                let before = stream.send.buffered();
                let was_done = stream.send.is_done();
                let known = stream.send.acknowledged_with_end();
                stream.send.on_acked(piece);
                if stream.reports && !stream.reported && stream.send.acknowledged_with_end() > known
                {
                    stream.reported = true;
                    self.events.push_back(StreamEvent::Acknowledged(StreamId(id)));
                }
                let windowed = stream.send.is_windowed();
                self.on_let_go(id, before, was_done, rate);
                if windowed {
                    self.schedule(id);
                }
            }
            Content::Release { stream: id, offset } => {
                if let Some(stream) = self.streams.get_mut(id)
                    && let Some(release) = &mut stream.release
                {
                    release.on_acked(offset);
                    self.close_if_over(id);
                }
            }
            Content::Reset { stream: id } => {
                if let Some(stream) = self.streams.get_mut(id) {
                    stream.send.on_reset_acked();
                    self.close_if_over(id);
                }
            }
            Content::StreamCredit { .. }
            | Content::Priority { .. }
            | Content::Client { .. }
            | Content::Policy { .. }
            | Content::PathStatus { .. }
            | Content::Credit
            | Content::StreamBlocked { .. }
            | Content::Blocked
            | Content::Packet(_) => {}
        }
    }

    /// Something counts as lost: it is due again (SRP-4).
    pub(in crate::srp) fn on_lost(&mut self, content: Content) {
        match content {
            Content::Data { stream: id, piece } => {
                if let Some(stream) = self.streams.get_mut(id) {
                    stream.send.on_lost(piece);
                    self.turns.schedule(id, &mut stream.turn_state, &stream.send);
                }
            }
            Content::Reset { stream: id } => {
                if self.streams.get_mut(id).is_some_and(|s| s.send.on_reset_lost()) {
                    self.controls.push_back(content);
                }
            }
            // The present value is sent, if there is still one.
            Content::StreamCredit { stream: id }
            | Content::Priority { stream: id }
            | Content::Client { stream: id }
            | Content::Policy { stream: id } => {
                if self.streams.get(id).is_some() {
                    self.controls.push_back(content);
                }
            }
            Content::Release { stream: id, offset } => {
                let release = self.streams.get(id).and_then(|stream| stream.release);
                if release.is_some_and(|release| release.is_latest(offset)) {
                    self.queue_control(content);
                }
            }
            Content::Credit => self.controls.push_back(content),
            Content::StreamBlocked { stream: id } => {
                if let Some(stream) = self.streams.get_mut(id) {
                    stream.send.blocked.on_lost();
                }
            }
            Content::Blocked => self.credit.on_blocked_lost(),
            Content::Packet(_) | Content::PathStatus { .. } => {}
        }
    }

    /// A stream's share is used up. If what arrives is taken promptly, the window that is divided is
    /// too small: a share cannot grow alone. The other streams have theirs as they are read.
    fn widen_for(&mut self, id: u64) {
        let prompt = self.streams.get(id).is_some_and(|stream| stream.recv.is_prompt());
        if self.division.is_on() && prompt && !self.credit.is_widest() {
            self.credit.widen();
            self.renew_credit(true);
        }
    }

    /// Streams that found the association's memory full get room, now that some is free.
    fn wake_starved(&mut self, rate: Rate) {
        while self.shared_room() >= self.room_worth_waking(u64::MAX) {
            let Some(id) = self.starved.pop_front() else { return };
            self.report_writable(id, rate);
        }
    }

    /// Reports bytes, an end or a reset to the application, once for each time that it met nothing.
    fn report_readable(&mut self, id: u64) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if stream.recv.wants_data && stream.recv.is_readable() && !stream.reset_locally {
            stream.recv.wants_data = false;
            self.events.push_back(StreamEvent::Readable(StreamId(id)));
        }
    }

    /// Reports a reset to the application, whatever it is waiting for.
    fn report_reset(&mut self, id: u64) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if !stream.reset_locally {
            stream.recv.wants_data = false;
            self.events.push_back(StreamEvent::Readable(StreamId(id)));
        }
    }
}
