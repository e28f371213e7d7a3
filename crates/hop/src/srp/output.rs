//! What leaves: datagrams, their pacing, and timers.

use core::time::Duration;

use lasthop_units::{Bytes, Time};
use lasthop_wire::frame::{Frame, Writer};
use smallvec::SmallVec;

use super::priority::TURN;
use super::send::ResetState;
use super::sent::{Content, Fate, Purpose, Sent};
use super::{CloseReason, Srp};
use crate::transport::Packet;

/// The sender tells its floor once in so many datagrams.
const FLOOR_EVERY: u64 = 32;
/// A stream sends at most so much in one turn.
const TURN_MAX: usize = 32 * 1024;
/// Less data than this is not worth a frame of its own at the end of a datagram.
const PIECE_MIN: usize = 32;
/// Unused time lets at most so much be sent at once, and the pacer is woken at most twice as often.
const BURST: Duration = Duration::from_millis(1);

impl Srp {
    /// Writes the frames of the next datagram that should leave now into `out`, if there is one.
    /// `out` must have room for the largest datagram's frames.
    pub fn poll(&mut self, now: Time, out: &mut [u8]) -> Option<Packet> {
        if self.closed.is_some() {
            return None;
        }
        if let Some(reason) = self.closing {
            return self.poll_close(now, reason, out);
        }
        self.settle_shares();
        if self.probes.due > 0 {
            // An acknowledgement goes by itself: aboard a full probe it would be lost with it where
            // the path has shrunk, and both ends would wait for ever.
            if self.received.due().is_some_and(|t| t <= now) {
                return self.poll_ack(now, out);
            }
            return self.poll_probe(now, out);
        }
        let quiet = self.is_quiet();
        let paced = now >= self.pace_at && !quiet;
        let free = paced && self.log.inflight() < self.inflight_limit();
        if free
            && self.largest_acked > 0
            && let Some(size) = self.mtu.probe(now)
        {
            return self.poll_mtu_probe(now, size, out);
        }
        self.say_blocked();
        let has_data = self.has_data();
        let controls = !self.controls.is_empty() && !quiet;
        let data = free && has_data;
        if paced && (!has_data || (!free && !self.rate.is_window_driven())) {
            self.idle = true;
        }
        if controls || data {
            return self.poll_data(now, data, out);
        }
        if self.received.due().is_some_and(|t| t <= now) {
            return self.poll_ack(now, out);
        }
        if free && !has_data && self.copy_next(now) {
            return self.poll_copy(now, out);
        }
        if self.ping_due || now.since(self.last_eliciting) >= self.config.keepalive {
            return self.poll_ping(now, out);
        }
        None
    }

    /// Nothing is sent but probes. One datagram must be on its way for them to repeat.
    pub(super) fn is_quiet(&self) -> bool {
        self.is_silent() && self.log.oldest().is_some()
    }

    /// Bytes that may be on their way at once; a fixed window is each stream's own.
    pub(super) fn inflight_limit(&self) -> u64 {
        match self.windowed() {
            None => self.rate.inflight_limit(self.full_datagram()),
            Some(_) => u64::MAX,
        }
    }

    /// At high rates waking for every datagram would cost more than the datagram: several share one
    /// wake-up, within what the pacer's burst makes up for.
    pub(super) fn pacer_wake(&self) -> Time {
        let one = self.pacing_rate().time_for(Bytes::from(self.full_datagram()));
        if one < BURST / 4 { self.pace_at + BURST / 2 } else { self.pace_at }
    }

    pub(super) fn available_credit(&self) -> u64 {
        self.credit.peer_limit.saturating_sub(self.credit.used)
    }

    /// Some stream has something to send and credit for it.
    pub(super) fn has_data(&self) -> bool {
        let credit = self.available_credit();
        !self.urgent.is_empty()
            || self
                .active
                .iter()
                .any(|id| self.streams.get(id).is_some_and(|s| s.send.wants_to_send(credit)))
    }

    fn say_blocked(&mut self) {
        let limit = self.credit.peer_limit;
        if self.credit.used >= limit
            && self.credit.blocked_told != Some(limit)
            && !self.active.is_empty()
        {
            self.credit.blocked_told = Some(limit);
            self.controls.push_back(Content::Blocked);
        }
    }

    fn poll_close(&mut self, now: Time, reason: CloseReason, out: &mut [u8]) -> Option<Packet> {
        if self.close_copies == 0 {
            self.closed = Some(reason);
            return None;
        }
        self.close_copies -= 1;
        let mut w = Writer::new(out);
        w.put(&Frame::Close { code: reason.code() });
        Some(self.record(now, w.len(), SmallVec::new(), Kind::Silent))
    }

    fn poll_ack(&mut self, now: Time, out: &mut [u8]) -> Option<Packet> {
        let room = self.mtu.current().min(out.len());
        let mut w = Writer::new(&mut out[..room]);
        if !self.received.write_ack(now, &mut w) {
            return None;
        }
        Some(self.record(now, w.len(), SmallVec::new(), Kind::Silent))
    }

    fn poll_ping(&mut self, now: Time, out: &mut [u8]) -> Option<Packet> {
        self.ping_due = false;
        let mut w = Writer::new(out);
        w.put(&Frame::Ping);
        Some(self.record(now, w.len(), SmallVec::new(), Kind::Eliciting))
    }

    fn poll_mtu_probe(&mut self, now: Time, size: usize, out: &mut [u8]) -> Option<Packet> {
        let mut w = Writer::new(out.get_mut(..size)?);
        w.put(&Frame::Ping);
        w.put(&Frame::Padding);
        Some(self.record(now, w.len(), SmallVec::new(), Kind::MtuProbe))
    }

    /// Repeats the oldest that is outstanding: if it passes, its acknowledgement tells of all the
    /// rest, and the peer's application gets on at once.
    fn poll_probe(&mut self, now: Time, out: &mut [u8]) -> Option<Packet> {
        self.probes.due -= 1;
        self.stats.probes += 1;
        // The spacing of probes says nothing of what the hop can do.
        self.idle = true;
        let base = self.config.datagram_base.as_usize() + self.config.carrier_overhead.as_usize();
        let small = base.saturating_sub(self.overhead);
        let full = self.mtu.current();
        let shrink = self.windowed().is_none() && self.probes.probe_is_small();
        let room = if shrink { full.min(small) } else { full };
        let mut w = Writer::new(out.get_mut(..room)?);
        let mut told = SmallVec::new();
        let srtt = self.round_trip.srtt().unwrap_or_default();
        let guess = self.probes.likely_onset(srtt).filter(|_| self.windowed().is_none());
        let onset = guess.and_then(|t| self.log.oldest_since(t));
        let exact = onset.is_some();
        let contents: SmallVec<[Content; 4]> = onset
            .or_else(|| self.log.oldest())
            .map(|s| s.contents.iter().copied().collect())
            .unwrap_or_default();
        for content in contents {
            self.repeat(content, exact, &mut w, &mut told);
        }
        if told.is_empty() {
            // Nothing waits to be repeated: what waits to be sent asks as well as a ping does.
            self.write_controls(&mut w, &mut told);
            self.write_data(&mut w, &mut told);
        }
        if told.is_empty() {
            w.put(&Frame::Ping);
        }
        w.put(&Frame::Urge);
        let packet = self.record(now, w.len(), told, Kind::Eliciting);
        Some(packet)
    }

    /// Writes something again that was sent before and is still outstanding; of a stream's data,
    /// exactly this or rather the oldest.
    pub(super) fn repeat(
        &mut self,
        content: Content,
        exact: bool,
        w: &mut Writer<'_>,
        told: &mut Contents,
    ) {
        let Content::Data { stream: id, piece } = content else {
            if self.write_control(content, w) {
                told.push(content);
            }
            return;
        };
        let Some(stream) = self.streams.get(&id) else { return };
        let room = w.room().saturating_sub(Writer::stream_overhead(id, u64::MAX) + 1);
        let from = if exact { piece.offset } else { 0 };
        let Some(piece) = stream.send.oldest(from, room) else { return };
        let (a, b) = stream.send.bytes(&piece);
        if w.put_stream(id, piece.offset, piece.fin, a, b) {
            self.stats.bytes_retransmitted += Bytes::from(piece.len);
            told.push(Content::Data { stream: id, piece });
        }
    }

    fn poll_data(&mut self, now: Time, data: bool, out: &mut [u8]) -> Option<Packet> {
        let room = self.mtu.current().min(out.len());
        let mut w = Writer::new(&mut out[..room]);
        if self.received.is_pending() {
            self.received.write_ack(now, &mut w);
        }
        if self.log.next_number().is_multiple_of(FLOOR_EVERY) {
            w.put(&Frame::Floor(self.log.floor()));
        }
        let mut told = SmallVec::new();
        self.write_controls(&mut w, &mut told);
        if data {
            self.write_data(&mut w, &mut told);
        }
        if told.is_empty() {
            // Nothing asked for an answer after all; what was written is still worth sending.
            return (!w.is_empty()).then(|| self.record(now, w.len(), told, Kind::Silent));
        }
        if data && !self.has_data() && self.windowed().is_none() {
            w.put(&Frame::Urge);
        }
        Some(self.record(now, w.len(), told, Kind::Eliciting))
    }

    fn write_controls(&mut self, w: &mut Writer<'_>, told: &mut Contents) {
        for _ in 0..self.controls.len() {
            let Some(content) = self.controls.pop_front() else { return };
            // A control is told in its present form, or not at all if it has become moot.
            if w.room() < 32 {
                self.controls.push_front(content);
                return;
            }
            if self.write_control(content, w) {
                told.push(content);
            }
        }
    }

    fn write_control(&mut self, content: Content, w: &mut Writer<'_>) -> bool {
        match content {
            Content::Credit => w.put(&Frame::Credit(self.credit.limit)),
            Content::Blocked => w.put(&Frame::Blocked),
            Content::StreamBlocked { stream: id } => w.put(&Frame::StreamBlocked { id }),
            Content::StreamCredit { stream: id } => {
                let Some(stream) = self.streams.get(&id) else { return false };
                w.put(&Frame::StreamCredit { id, limit: stream.recv.limit() })
            }
            Content::Priority { stream: id } => {
                let Some(stream) = self.streams.get(&id) else { return false };
                w.put(&Frame::Priority { id, priority: stream.priority })
            }
            Content::Reset { stream: id } => {
                let Some(stream) = self.streams.get_mut(&id) else { return false };
                let size = stream.send.sent();
                let Some((state, code)) = &mut stream.send.reset else { return false };
                *state = ResetState::Sent;
                w.put(&Frame::Reset { id, code: *code, size })
            }
            Content::Data { .. } => false,
        }
    }

    /// Fills a datagram from the streams with losses, then from the others in turn.
    fn write_data(&mut self, w: &mut Writer<'_>, told: &mut Contents) {
        while w.room() > PIECE_MIN {
            let Some(id) = self.urgent.front().copied() else { break };
            let wrote = self.write_piece(id, w, told).is_some();
            self.after_repair(id);
            if !wrote && self.urgent.front() == Some(&id) {
                break;
            }
        }
        let mut fruitless = 0;
        while w.room() > PIECE_MIN && fruitless < self.active.len() {
            let Some(id) = self.active.front().copied() else { return };
            match self.write_piece(id, w, told) {
                Some(bytes) => self.after_turn(id, bytes),
                // Without credit for all streams only bare ends can go: the others wait.
                None if self.streams.get(&id).is_some_and(|s| s.send.wants_to_send(u64::MAX)) => {
                    self.active.rotate_left(1);
                    fruitless += 1;
                }
                None => self.after_turn(id, 0),
            }
        }
    }

    fn after_repair(&mut self, id: u64) {
        if self.streams.get(&id).is_some_and(|s| s.send.has_lost()) {
            return;
        }
        self.urgent.pop_front();
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.in_urgent = false;
        }
    }

    /// A stream stays at the front until it has sent its share of a millisecond, so that at high
    /// rates the peer's application gets bytes in larger pieces.
    fn after_turn(&mut self, id: u64, bytes: usize) {
        let weighted = self.shares.is_some();
        // By priorities turns are exact, so that none may be shorter than what it is counted in.
        let least = if weighted { self.mtu.current() } else { 0 };
        let share = self.pacing_rate().bytes_in(BURST / 2).as_usize().min(TURN_MAX).max(least);
        let Some(stream) = self.streams.get_mut(&id) else {
            self.active.pop_front();
            return;
        };
        self.turn += bytes;
        if stream.send.wants_to_send(u64::MAX) {
            let spent = self.turn + stream.overdraft;
            let allowed = (share as u64 * stream.turn / TURN) as usize;
            if spent >= allowed {
                // What was sent beyond the turn shortens the next.
                stream.overdraft = if weighted { spent - allowed } else { 0 };
                self.turn = 0;
                self.active.rotate_left(1);
            }
            return;
        }
        self.turn = 0;
        stream.overdraft = 0;
        stream.in_active = false;
        self.active.pop_front();
        let limit = stream.send.limit();
        if stream.send.is_blocked() && stream.send.blocked_told != Some(limit) {
            stream.send.blocked_told = Some(limit);
            self.controls.push_back(Content::StreamBlocked { stream: id });
        }
    }

    /// Writes the next piece of a stream; how many bytes of data it has.
    fn write_piece(&mut self, id: u64, w: &mut Writer<'_>, told: &mut Contents) -> Option<usize> {
        let credit = self.available_credit();
        let stream = self.streams.get_mut(&id)?;
        // One byte is left for the frame that asks for an answer at once.
        let overhead = Writer::stream_overhead(id, stream.send.sent()) + 1;
        let room = w.room().saturating_sub(overhead);
        let before = stream.send.sent();
        let piece = stream.send.next_piece(room, credit)?;
        let fresh = stream.send.sent() - before;
        let (a, b) = stream.send.bytes(&piece);
        let written = w.put_stream(id, piece.offset, piece.fin, a, b);
        debug_assert!(written, "a piece is cut to the room there is");
        self.credit.used += fresh;
        self.copies.earn(fresh);
        self.stats.bytes_sent += Bytes::new(fresh);
        self.stats.bytes_retransmitted += Bytes::from(piece.len) - Bytes::new(fresh);
        told.push(Content::Data { stream: id, piece });
        self.offer_room(id);
        Some(piece.len)
    }

    /// Enters a datagram into the log and charges the pacer.
    pub(super) fn record(
        &mut self,
        now: Time,
        len: usize,
        contents: Contents,
        kind: Kind,
    ) -> Packet {
        let number = self.log.next_number();
        let size = len + self.overhead;
        self.stats.datagrams_sent += 1;
        if kind != Kind::Silent {
            self.last_eliciting = now;
            let earliest = now - BURST.max(self.pacing_rate().time_for(Bytes::from(size)));
            self.pace_at =
                self.pace_at.max(earliest) + self.pacing_rate().time_for(Bytes::from(size));
        }
        self.log.push(Sent {
            at: now,
            size: size as u32,
            fate: if kind == Kind::Silent { Fate::Ignored } else { Fate::Unknown },
            after_idle: self.idle && kind != Kind::Silent,
            purpose: match kind {
                Kind::MtuProbe => Purpose::MtuProbe,
                Kind::Copy => Purpose::Copy,
                _ => Purpose::Usual,
            },
            contents,
        });
        if kind != Kind::Silent {
            self.idle = false;
        }
        Packet { number, len }
    }
}

type Contents = SmallVec<[Content; 1]>;

/// What a datagram asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing: it is not acknowledged for its own sake.
    Silent,
    Eliciting,
    MtuProbe,
    Copy,
}
