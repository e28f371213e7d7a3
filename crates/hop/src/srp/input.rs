//! What arrives: frames and acknowledgements.

use core::time::Duration;

use lasthop_units::Time;
use lasthop_wire::frame::{Ack, Frame, FrameError, Frames, StreamFrame};

use super::recv::{GROWTH, Violation};
use super::sample::Sample;
use super::sent::{Content, Fate, Purpose};
use super::{CloseReason, Srp};
use crate::streams::{StreamEvent, StreamId};

/// How far ahead of the last stream the peer's next may be, and how many gaps there may be between
/// those that have begun.
const JUMP_MAX: u64 = 1 << 20;
const UNSEEN_MAX: usize = 4096;
/// Spurious losses are forgotten, and the patience they taught halved, after so long without one.
const REORDERING_MEMORY: Duration = Duration::from_secs(20);

impl Srp {
    /// Takes in the frames of an authentic datagram with its number. One with bytes of a stream that
    /// was [taken out](crate::Movable::detach) is as good as lost.
    ///
    /// # Errors
    ///
    /// The frames cannot be read; those before the first unreadable one have been handled.
    pub fn handle(&mut self, now: Time, number: u64, payload: &[u8]) -> Result<(), FrameError> {
        if self.closed.is_some() {
            return Ok(());
        }
        if number == 0 || self.received.is_known(number) {
            self.stats.duplicates += 1;
            return Ok(());
        }
        self.stats.datagrams_received += 1;
        if self.is_silent() && self.log.oldest().is_some() {
            // The peer is there again, whatever it says.
            self.probes.probe_now(now);
        }
        if self.is_for_detached(payload) {
            self.handle_acks(now, payload);
            return Ok(());
        }
        self.received.on_datagram(now, number);
        let outcome = self.handle_frames(now, payload);
        self.settle_shares();
        if outcome? {
            match self.windowed() {
                None => {
                    let srtt = self.round_trip.srtt().unwrap_or_default();
                    self.received.on_eliciting(now, srtt);
                }
                Some(window) => {
                    let (every, delay) = (window.ack_every, window.ack_delay);
                    self.received.on_segment(now, every, delay);
                }
            }
        }
        Ok(())
    }

    /// Whether the datagram is to be acknowledged.
    pub(super) fn handle_frames(&mut self, now: Time, payload: &[u8]) -> Result<bool, FrameError> {
        let mut eliciting = false;
        for frame in Frames::new(payload) {
            let frame = frame.inspect_err(|_| self.stats.malformed += 1)?;
            eliciting |=
                !matches!(frame, Frame::Ack(_) | Frame::Floor(_) | Frame::Padding | Frame::Urge);
            if self.handle_frame(now, &frame).is_err() {
                self.close(CloseReason::Protocol);
                break;
            }
        }
        Ok(eliciting)
    }

    /// Takes the acknowledgements out of a datagram that is not itself acknowledged.
    fn handle_acks(&mut self, now: Time, payload: &[u8]) {
        for frame in Frames::new(payload).filter_map(Result::ok) {
            if let Frame::Ack(ack) = &frame
                && self.on_ack(now, ack).is_err()
            {
                self.close(CloseReason::Protocol);
            }
        }
    }

    fn handle_frame(&mut self, now: Time, frame: &Frame<'_>) -> Result<(), Violation> {
        match frame {
            Frame::Padding | Frame::Ping => {}
            Frame::Ack(ack) => self.on_ack(now, ack)?,
            Frame::Floor(floor) => self.received.on_floor(*floor),
            Frame::Urge => self.received.urge(),
            Frame::Credit(limit) => {
                self.credit.peer_limit = self.credit.peer_limit.max(*limit);
            }
            Frame::StreamCredit { id, limit } => {
                if let Some(stream) = self.streams.get_mut(id)
                    && stream.send.raise_limit(*limit)
                {
                    self.enqueue(*id);
                }
            }
            Frame::Blocked => {
                // What waits to be read says that the application is slow; what waits for a hole to
                // fill says that the window is too small for this hop.
                let waiting: u64 = self.streams.values().map(|s| s.recv.waiting()).sum();
                let c = &mut self.credit;
                if waiting <= c.window / 4 {
                    c.window = (c.window * GROWTH).min(c.window_max);
                    self.divide_window();
                }
                self.renew_credit(true);
            }
            Frame::StreamBlocked { id } => {
                self.widen_for(*id);
                if let Some(stream) = self.streams.get_mut(id)
                    && stream.recv.on_blocked()
                {
                    self.controls.push_back(Content::StreamCredit { stream: *id });
                }
            }
            Frame::Priority { id, priority } => {
                if let Some(id) = self.peer_stream(*id)? {
                    self.give_priority(id, *priority);
                }
            }
            Frame::Reset { id, code, size } => self.on_reset(*id, *code, *size)?,
            Frame::Close { code } => {
                self.closed = Some(CloseReason::from_code(*code));
            }
            Frame::Stream(f) => self.on_stream(f)?,
        }
        Ok(())
    }

    /// Finds the stream that a frame of the peer's names, opening it if it is new. `None` if it is
    /// over and removed.
    fn peer_stream(&mut self, id: u64) -> Result<Option<u64>, Violation> {
        if self.is_local(id) {
            if id >= self.next_local {
                return Err(Violation);
            }
            return Ok(self.streams.contains_key(&id).then_some(id));
        }
        // Streams begin in any order; what lies between is remembered, so that a late beginning is
        // told from a late echo of a stream that is over.
        let index = id / 2;
        if id >= self.next_peer {
            if id - self.next_peer > JUMP_MAX || self.unseen.fragments() > UNSEEN_MAX {
                return Err(Violation);
            }
            self.unseen.insert(self.next_peer / 2..index);
            self.next_peer = id + 2;
        } else if self.unseen.missing_in(index..index + 1).next().is_none() {
            self.unseen.remove(index..index + 1);
        } else {
            return Ok(self.streams.contains_key(&id).then_some(id));
        }
        // The peer may count a stream as over a moment before this end does.
        if self.streams.len() > 2 * self.config.streams_max + 64 + self.local_open {
            return Err(Violation);
        }
        let stream = self.new_stream();
        self.streams.insert(id, stream);
        self.join_shares(id);
        self.events.push_back(StreamEvent::Incoming(StreamId(id)));
        Ok(Some(id))
    }

    fn on_stream(&mut self, f: &StreamFrame<'_>) -> Result<(), Violation> {
        let Some(id) = self.peer_stream(f.id)? else { return Ok(()) };
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let rise = stream.recv.on_data(f.offset, f.data, f.fin)?;
        let discarding = stream.dropped;
        self.credit.received += rise;
        self.stats.bytes_received += lasthop_units::Bytes::new(rise);
        if self.credit.received > self.credit.limit {
            return Err(Violation);
        }
        if discarding {
            self.credit.consumed += rise;
            self.renew_credit(false);
        }
        self.offer_data(id);
        self.retire(id);
        Ok(())
    }

    fn on_reset(&mut self, id: u64, code: u64, size: u64) -> Result<(), Violation> {
        let Some(id) = self.peer_stream(id)? else { return Ok(()) };
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let known = stream.recv.is_done();
        let dropped = stream.dropped;
        let held = stream.recv.unconsumed();
        let rise = stream.recv.on_reset(code, size)?;
        self.credit.received += rise;
        self.credit.consumed += if dropped {
            rise
        } else if known {
            0
        } else {
            held + rise
        };
        if self.credit.received > self.credit.limit {
            return Err(Violation);
        }
        let sending = !stream.send.is_done();
        self.renew_credit(false);
        if sending {
            self.abandon_send(id, code);
        }
        if !known || sending {
            self.offer_reset(id);
        }
        self.retire(id);
        Ok(())
    }

    fn on_ack(&mut self, now: Time, ack: &Ack<'_>) -> Result<(), Violation> {
        if ack.latest >= self.log.next_number() {
            return Err(Violation);
        }
        let mut settled_any = false;
        let from = ack.first.max(self.log.floor());
        for number in from..=ack.latest {
            if ack.received(number) && self.log.get(number).is_some_and(|s| s.fate == Fate::Unknown)
            {
                self.on_arrived(number);
                settled_any = true;
            }
        }
        self.look_for_spurious(now, ack);
        let before = self.largest_acked;
        let raised = ack.latest > before;
        if raised {
            self.largest_acked = ack.latest;
            if let Some(at) = self.log.get(ack.latest).map(|s| s.at) {
                self.largest_acked_sent = at;
                let held = Duration::from_micros(ack.delay_us);
                let rtt = now.since(at).saturating_sub(held);
                // An acknowledgement of something old was itself delayed: it says nothing new.
                if !rtt.is_zero() {
                    self.round_trip.sample(rtt);
                    self.rate.on_round_trip(now, rtt, self.full_datagram());
                }
            }
        }
        self.find_losses(now, ack.first);
        if raised {
            self.measure(now, ack, before + 1);
        }
        if settled_any || raised {
            self.end_silence(now);
        }
        let keep = 3 * self.round_trip.srtt().unwrap_or(Duration::from_millis(300));
        self.log.remove(now - keep.max(Duration::from_millis(20)));
        Ok(())
    }

    /// A datagram is known to have arrived.
    fn on_arrived(&mut self, number: u64) {
        let Some(sent) = self.log.decide(number, Fate::Acked) else { return };
        let (size, mtu_probe) = (sent.size as usize, sent.purpose == Purpose::MtuProbe);
        let contents = core::mem::take(&mut sent.contents);
        self.delivered += size as u64;
        self.acked += 1;
        let payload = size - self.overhead;
        if mtu_probe {
            self.mtu.on_probe_acked(payload);
        }
        self.mtu.on_acked(payload);
        for content in contents {
            self.on_content_arrived(content);
        }
    }

    fn on_content_arrived(&mut self, content: Content) {
        match content {
            Content::Data { stream: id, piece } => {
                let Some(stream) = self.streams.get_mut(&id) else {
                    return self.on_detached_arrived(id, piece);
                };
                let before = stream.send.buffered();
                let was_done = stream.send.is_done();
                stream.send.on_acked(piece);
                let done = stream.send.is_done() && !was_done;
                self.send_buffered -= before - stream.send.buffered();
                if done && !stream.dropped && stream.send.reset.is_none() {
                    self.events.push_back(StreamEvent::Finished(StreamId(id)));
                }
                self.offer_room(id);
                self.wake_starved();
                if self.windowed().is_some() {
                    self.enqueue(id);
                }
                if done {
                    self.retire(id);
                }
            }
            Content::Reset { stream: id } => {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.send.on_reset_acked();
                    self.retire(id);
                }
            }
            Content::StreamCredit { .. }
            | Content::Priority { .. }
            | Content::Credit
            | Content::StreamBlocked { .. }
            | Content::Blocked => {}
        }
    }

    /// A datagram counts as lost: what it carried is due again (SRP-4).
    pub(super) fn on_lost(&mut self, number: u64) {
        let loss = self.rate.loss();
        let Some(sent) = self.log.decide(number, Fate::Lost) else { return };
        let (size, mtu_probe) = (sent.size as usize, sent.purpose == Purpose::MtuProbe);
        let contents = core::mem::take(&mut sent.contents);
        self.stats.lost += 1;
        self.lost_bytes += size as u64;
        self.lost_datagrams += 1;
        let payload = size - self.overhead;
        if mtu_probe {
            self.mtu.on_probe_lost(loss);
        } else {
            self.mtu.on_lost(payload, loss);
        }
        for content in contents {
            self.on_content_lost(content);
        }
    }

    fn on_content_lost(&mut self, content: Content) {
        match content {
            Content::Data { stream: id, piece } => {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.send.on_lost(piece);
                    self.enqueue(id);
                }
            }
            Content::Reset { stream: id } => {
                if self.streams.get_mut(&id).is_some_and(|s| s.send.on_reset_lost()) {
                    self.controls.push_back(content);
                }
            }
            // The present value is told, if there is still one to tell.
            Content::StreamCredit { stream: id } | Content::Priority { stream: id } => {
                if self.streams.contains_key(&id) {
                    self.controls.push_back(content);
                }
            }
            Content::Credit => self.controls.push_back(content),
            Content::StreamBlocked { stream: id } => {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.send.blocked_told = None;
                }
            }
            Content::Blocked => self.credit.blocked_told = None,
        }
    }

    /// Gaps are losses: every datagram that a later one has overtaken by more than this hop is known
    /// to reorder. `covered` is the lowest number that the acknowledgement at hand speaks of.
    fn find_losses(&mut self, now: Time, covered: u64) {
        self.loss_timer = None;
        let srtt = self.round_trip.srtt().unwrap_or(Duration::from_millis(100));
        for number in self.log.floor()..self.largest_acked {
            let Some(sent) = self.log.get(number) else { continue };
            if sent.fate != Fate::Unknown {
                continue;
            }
            let due = if number < covered {
                // Not spoken of: perhaps it was, in acknowledgements that were lost.
                sent.at + srtt + srtt / 2 + Duration::from_millis(25)
            } else if self.reordering.is_zero()
                || self.largest_acked_sent.since(sent.at) >= self.reordering
            {
                now
            } else {
                sent.at + srtt + self.reordering
            };
            if due <= now {
                self.on_lost(number);
            } else {
                self.loss_timer = Some(self.loss_timer.map_or(due, |t| t.min(due)));
            }
        }
    }

    /// Losses whose time to show up has run out.
    pub(super) fn on_loss_timer(&mut self, now: Time) {
        if self.loss_timer.is_none_or(|t| now < t) {
            return;
        }
        self.loss_timer = None;
        let srtt = self.round_trip.srtt().unwrap_or(Duration::from_millis(100));
        let patience = (srtt / 2 + Duration::from_millis(25)).max(self.reordering) + srtt;
        for number in self.log.floor()..self.largest_acked {
            let Some(sent) = self.log.get(number) else { continue };
            if sent.fate != Fate::Unknown {
                continue;
            }
            let due = sent.at + patience;
            if due <= now {
                self.on_lost(number);
            } else {
                self.loss_timer = Some(due);
                return;
            }
        }
    }

    /// A datagram taken for lost that arrived after all teaches how much this hop reorders.
    fn look_for_spurious(&mut self, now: Time, ack: &Ack<'_>) {
        let srtt = self.round_trip.srtt().unwrap_or_default();
        let from = if self.log.has_lost() { ack.first.max(self.log.base()) } else { ack.latest };
        for number in from..ack.latest {
            if !ack.received(number) {
                continue;
            }
            let Some(sent) = self.log.get(number) else { continue };
            if sent.fate != Fate::Lost {
                continue;
            }
            let overtaken_by = self.largest_acked_sent.since(sent.at);
            let size = u64::from(sent.size);
            self.log.decide(number, Fate::Acked);
            self.stats.spurious += 1;
            self.stats.lost -= 1;
            self.delivered += size;
            self.lost_bytes -= size.min(self.lost_bytes);
            self.lost_datagrams = self.lost_datagrams.saturating_sub(1);
            self.reordering_seen = now;
            let wanted = overtaken_by + overtaken_by / 4 + Duration::from_millis(1);
            self.reordering = self.reordering.max(wanted.min(srtt));
        }
        if !self.reordering.is_zero() && now.since(self.reordering_seen) > REORDERING_MEMORY {
            self.reordering_seen = now;
            self.reordering /= 2;
            if self.reordering < Duration::from_millis(1) {
                self.reordering = Duration::ZERO;
            }
        }
    }

    /// `from` is the number after the highest acknowledged before.
    fn measure(&mut self, now: Time, ack: &Ack<'_>, from: u64) {
        let after_idle = (from..=ack.latest).any(|n| self.log.get(n).is_some_and(|s| s.after_idle));
        let Some(sent) = self.log.get(ack.latest) else { return };
        // The receiver's clock is told modulo 2^32 microseconds.
        let step = ack.arrival_us.wrapping_sub(self.arrival_us as u32);
        if step < 1 << 31 {
            self.arrival_us += u64::from(step);
        }
        let sample = Sample {
            latest: ack.latest,
            sent_at: sent.at,
            size: sent.size as usize,
            arrival_us: self.arrival_us,
            delivered: self.delivered,
            lost: self.lost_bytes,
            counts: (self.acked, self.lost_datagrams),
            after_idle,
            next_number: self.log.next_number(),
            srtt: self.round_trip.srtt().unwrap_or_default(),
            inflight: self.log.inflight(),
            datagram: self.full_datagram(),
        };
        self.rate.on_ack(now, sample);
    }
}
