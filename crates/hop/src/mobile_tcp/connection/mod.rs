//! One connection's engine: windows, gaps, requests and the timer, and nothing of opening.

mod recv;
mod send;
mod timer;

#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::time::Duration;

use lasthop_units::{Bytes, Time};
use lasthop_wire::mobile_tcp::{Cid, Code, DATA_HEADER, DataHeader, Seq16};

use super::config::Config;
use super::stats::Stats;
use crate::streams::StreamState;
use recv::{Arrival, RecvHalf};
use send::{AckOutcome, RequestOutcome, RetransmitRequest, Segment, SendHalf};
pub(super) use timer::{Patience, RoundTrip, Ticks};

/// What the two ends have agreed on when a connection is opened (MOB-6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// The connection's identifier at the peer, which all packets to it carry (MOB-16).
    pub cid: Cid,
    /// The number of the first byte that this end sends.
    pub send: Seq16,
    /// The number of the first byte that the peer sends.
    pub recv: Seq16,
    /// The peer's receive buffer, in bytes: the first window. More than 32767 counts as that
    /// (MOB-13).
    pub window: u16,
    /// Bytes of data that the peer takes in one packet.
    pub max_packet: u16,
}

/// When what has arrived is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AckDue {
    /// Nothing is to be acknowledged.
    No,
    /// With this tick, or with data that leaves before.
    At(Time),
    /// At once.
    Now,
}

/// One connection's engine: sliding window, retransmission requests and cycles, and the one timer
/// (MOB-19 to MOB-36). There is no congestion control (MOB-3).
///
/// It begins when both ends know the [`Terms`]; how they come to, [`MobileTcp`](super::MobileTcp)
/// knows. Feed it with [`handle`](Self::handle) and [`handle_timeout`](Self::handle_timeout); after
/// either, and after writing or reading, call [`poll`](Self::poll) until it returns `None`, then
/// sleep until [`next_timeout`](Self::next_timeout). Buffers are allocated when it is made, and
/// nothing is afterwards.
#[derive(Debug)]
pub struct Connection {
    send: SendHalf,
    recv: RecvHalf,
    ticks: Ticks,
    round_trip: RoundTrip,
    /// The peer's identifier, once the connection has begun.
    peer: Option<Cid>,
    ack: AckDue,
    /// Packets in sequence that were not acknowledged.
    unacked: u32,
    /// The next acknowledgement is a retransmission request.
    request: bool,
    /// The cycle of the last packet received (MOB-29).
    peer_cycle: bool,
    /// Since when the peer owes an acknowledgement, or a larger window.
    waiting: Option<Time>,
    /// Expiries since the peer's last packet.
    expiries: u32,
    /// Times that the timeout has doubled.
    doubled: u32,
    /// The peer is to be asked for its window.
    probe: bool,
    failed: bool,
    config: Habits,
    stats: Stats,
}

/// What of the configuration concerns one connection.
#[derive(Clone, Copy, Debug)]
struct Habits {
    max_packet: u16,
    ack_every: u32,
    nagle: bool,
    pad: usize,
    patience: Patience,
    give_up_after: u32,
}

impl Connection {
    /// A connection that has not begun: it can be written to. Ticks are counted from `origin`.
    pub fn new(config: &Config, origin: Time) -> Self {
        let habits = Habits {
            max_packet: config.max_packet(),
            ack_every: config.ack_every.max(1),
            nagle: config.nagle,
            pad: config.pad.as_usize(),
            patience: Patience::of(config),
            give_up_after: config.give_up_after.max(1),
        };
        Self {
            send: SendHalf::new(config.send_buffer(), habits.max_packet),
            recv: RecvHalf::new(config.window()),
            ticks: Ticks::new(origin, config.tick()),
            round_trip: RoundTrip::default(),
            peer: None,
            ack: AckDue::No,
            unacked: 0,
            request: false,
            peer_cycle: false,
            waiting: None,
            expiries: 0,
            doubled: 0,
            probe: false,
            failed: false,
            config: habits,
            stats: Stats::default(),
        }
    }

    /// Both ends know the terms.
    pub fn begin(&mut self, terms: &Terms) {
        self.begin_behind(terms, 0);
    }

    /// As [`begin`](Self::begin); the first `sent` bytes written went with the opening.
    pub(super) fn begin_behind(&mut self, terms: &Terms, sent: usize) {
        self.peer = Some(terms.cid);
        self.send.begin(terms.send, sent as u64, terms.window, terms.max_packet);
        self.recv.begin(terms.recv);
    }

    /// The window to tell with the opening, if `reserved` bytes are kept for what comes with the
    /// peer's.
    pub(super) fn promise(&mut self, reserved: usize) -> u16 {
        self.recv.promise(reserved)
    }

    /// What came with the peer's opening can be read, whether the connection has begun or not;
    /// false if there is no room for it.
    pub(super) fn foresee(&mut self, received: &[u8]) -> bool {
        self.recv.foresee(received)
    }

    /// Room for the next bytes to send: one contiguous piece, empty if there is none or the stream
    /// is finished. Fill a prefix of it and call [`commit`](Self::commit).
    pub fn send_space(&mut self) -> &mut [u8] {
        self.send.space()
    }

    /// Bytes that can be written now.
    pub fn send_room(&self) -> usize {
        self.send.room()
    }

    /// The first `n` bytes of [`send_space`](Self::send_space) are to be sent.
    pub fn commit(&mut self, n: usize) {
        self.send.commit(n);
    }

    /// Ends our direction after the bytes written so far.
    pub fn finish(&mut self) {
        self.send.finish();
    }

    /// Whether [`finish`](Self::finish) was called.
    pub fn is_finished(&self) -> bool {
        self.send.is_finished()
    }

    /// Received bytes in order: one contiguous piece, empty if there are none now.
    pub fn received(&self) -> &[u8] {
        self.recv.readable()
    }

    /// The first `n` bytes of [`received`](Self::received) were taken.
    pub fn consume(&mut self, n: usize) {
        self.recv.consume(n);
        if self.peer.is_some() && self.recv.has_opened(u64::from(self.config.max_packet)) {
            self.ack = AckDue::Now;
        }
    }

    /// The connection's share of what all connections' windows are together, in bytes, both ways: so
    /// much the peer is offered, and so much at most is sent without an acknowledgement (RWC-6).
    pub(super) fn set_share(&mut self, share: u64) {
        self.recv.set_share(share);
        self.send.set_share(share);
        if self.peer.is_some() && self.recv.has_opened(u64::from(self.config.max_packet)) {
            self.ack = AckDue::Now;
        }
    }

    /// The peer has ended its direction and everything before was received; it may be unread.
    pub fn is_ended(&self) -> bool {
        self.recv.is_ended()
    }

    /// The peer has everything that was written, and our end.
    pub fn is_delivered(&self) -> bool {
        self.send.is_done()
    }

    /// Both directions have ended, and both ends know.
    pub fn is_over(&self) -> bool {
        self.send.is_done() && self.recv.is_ended()
    }

    /// Nothing came from the peer in [`Config::give_up_after`] expiries.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Bytes sent and not acknowledged; an end counts as one.
    pub fn inflight(&self) -> Bytes {
        Bytes::new(self.send.inflight())
    }

    /// Smoothed round trip, once there was a sample.
    pub fn srtt(&self) -> Option<Duration> {
        self.round_trip.srtt()
    }

    /// Counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// What it has done is counted elsewhere.
    pub(super) fn reset_stats(&mut self) {
        self.stats = Stats::default();
    }

    /// Memory held in buffers: to receive, and to send.
    pub fn memory(&self) -> [u64; 2] {
        [self.recv.memory() as u64, self.send.memory() as u64]
    }

    pub(super) fn seed(&mut self, round_trip: RoundTrip) {
        self.round_trip = round_trip;
    }

    pub(super) fn round_trip(&self) -> RoundTrip {
        self.round_trip
    }

    /// All that was written and not acknowledged, in up to two pieces, behind its first offset.
    pub(super) fn unacknowledged(&self) -> (u64, (&[u8], &[u8])) {
        self.send.unacknowledged()
    }

    /// What leaves with a connection that goes on elsewhere.
    pub(super) fn state(&self) -> StreamState {
        let join = |(a, b): (&[u8], &[u8])| -> Vec<u8> { [a, b].concat() };
        let (send_start, send) = self.send.unacknowledged();
        StreamState {
            send_start,
            send: join(send),
            send_ended: self.send.is_finished(),
            received: self.recv.received(),
            unread: join(self.recv.unread()),
            recv_ended: self.recv.is_ended(),
        }
    }

    /// Frees the buffers: nothing is sent or read any more.
    pub(super) fn release(&mut self) {
        self.send.release();
        self.recv.release();
        self.waiting = None;
    }

    /// What has arrived is acknowledged at once.
    pub(super) fn acknowledge(&mut self) {
        self.ack = AckDue::Now;
    }

    /// The peer has removed the connection. If it had everything but the knowledge that we have
    /// everything too, both directions are over, and that is true.
    pub(super) fn conclude(&mut self) -> bool {
        self.recv.is_ended() && self.send.conclude()
    }

    /// Whether a reset under this number can be the peer's.
    pub(super) fn may_reset(&self, seq: Seq16) -> bool {
        self.recv.is_near(seq)
    }

    /// The header of a packet of this connection without data.
    pub(super) fn empty_header(&self, code: Code, window: u16) -> DataHeader {
        let ack = self.recv.expected();
        let seq = self.send.number(self.send.sent());
        DataHeader { code, cid: self.peer.unwrap_or_default(), seq, ack, window, nack: ack }
    }

    /// Whether a packet that ended at `end` may have been one of this connection's.
    pub(super) fn may_have_sent(&self, end: Seq16) -> bool {
        self.send.may_have_sent(end)
    }

    /// Takes in a data packet of this connection's. What [`Code::RST`] and [`Code::UNKNOWN`] mean
    /// is not looked at.
    #[inline]
    pub fn handle(&mut self, now: Time, header: &DataHeader, data: &[u8]) {
        self.stats.received += 1;
        if header.code.contains(Code::ACK) && !self.on_ack(now, header) {
            // It is of another connection that had this identifier.
            self.stats.impossible += 1;
            return;
        }
        self.expiries = 0;
        self.peer_cycle = header.code.contains(Code::RC);
        let fin = header.code.contains(Code::FIN);
        if !data.is_empty() || fin {
            self.on_data(now, header.seq, data, fin);
        } else if header.code.contains(Code::PSH) {
            self.ack = AckDue::Now;
        }
        self.watch_window(now);
    }

    /// Waits for a window where one is closed and nothing on its way will open it (MOB-21).
    fn watch_window(&mut self, now: Time) {
        if !self.send.is_stuck() {
            self.doubled = self.expiries;
        } else if self.waiting.is_none() {
            self.waiting = Some(now);
        }
    }

    /// False if it acknowledges what was never sent.
    fn on_ack(&mut self, now: Time, header: &DataHeader) -> bool {
        let (acked, sent_at) = self.send.on_ack(header.ack, header.window);
        if let Some(at) = sent_at {
            self.round_trip.sample(now.since(at));
        }
        match acked {
            AckOutcome::Advanced => self.restart_timer(now),
            AckOutcome::Repeated => {}
            AckOutcome::Nothing => return true,
            AckOutcome::Impossible => return false,
        }
        if header.code.contains(Code::RRQ) {
            let cycle = header.code.contains(Code::RCR);
            let request = RetransmitRequest { held: header.nack, cycle };
            match self.send.on_request(acked, request) {
                RequestOutcome::Handled => {
                    self.stats.requests_handled += 1;
                    self.restart_timer(now);
                }
                RequestOutcome::Ignored => self.stats.requests_ignored += 1,
                RequestOutcome::Impossible => self.stats.impossible += 1,
            }
        }
        if self.waiting.is_some() && self.send.inflight() == 0 && !self.send.is_stuck() {
            self.waiting = None;
        }
        true
    }

    fn restart_timer(&mut self, now: Time) {
        self.waiting = (self.send.inflight() > 0).then_some(now);
    }

    fn on_data(&mut self, now: Time, seq: Seq16, data: &[u8], fin: bool) {
        let (arrival, new) = self.recv.on_data(seq, data, fin);
        self.stats.bytes_received += new;
        match arrival {
            Arrival::InOrder => {
                self.unacked += 1;
                let flown = self.recv.ends_flight(self.config.max_packet.into());
                if self.unacked >= self.config.ack_every || fin || flown {
                    self.ack = AckDue::Now;
                } else if self.ack == AckDue::No {
                    self.ack = AckDue::At(self.ticks.after(now));
                }
                return;
            }
            Arrival::Filled | Arrival::AboveGap => {}
            Arrival::Old => self.stats.duplicates += 1,
            Arrival::Outside => self.stats.outside += 1,
        }
        self.ack = AckDue::Now;
        self.request = true;
    }

    /// Writes the next packet that should leave now into `out`; its length. `allowed` is how much
    /// of what is new it may bring.
    #[inline]
    pub fn poll(&mut self, now: Time, allowed: Bytes, out: &mut [u8]) -> Option<usize> {
        let peer = self.peer?;
        let room = out.len().checked_sub(DATA_HEADER + self.config.pad)?;
        let piece = self.send.next_piece(room as u64, allowed.get(), self.config.nagle);
        let probe = piece.is_none() && core::mem::take(&mut self.probe);
        if piece.is_none() && !probe && self.ack != AckDue::Now {
            self.watch_window(now);
            return None;
        }
        let (code, seq, len) = match piece {
            Some(piece) => self.write_piece(now, piece, out)?,
            None => {
                (Code::empty().with_if(Code::PSH, probe), self.send.number(self.send.sent()), 0)
            }
        };
        let header = self.header(peer, code, seq);
        let len = header.emit(len, out).ok()?;
        self.stats.sent += 1;
        out.get_mut(len..len + self.config.pad)?.fill(0);
        Some(len + self.config.pad)
    }

    /// Puts a piece behind where the header will be: its code bits, its number and its length.
    #[inline]
    fn write_piece(
        &mut self,
        now: Time,
        piece: Segment,
        out: &mut [u8],
    ) -> Option<(Code, Seq16, usize)> {
        self.send.time(piece, now);
        self.waiting.get_or_insert(now);
        if piece.again {
            self.stats.packets_again += 1;
            self.stats.bytes_again += piece.len as u64;
        } else {
            self.stats.bytes_sent += piece.len as u64;
        }
        let (head, tail) = self.send.bytes(piece);
        let body = out.get_mut(DATA_HEADER..DATA_HEADER + piece.len)?;
        body[..head.len()].copy_from_slice(head);
        body[head.len()..].copy_from_slice(tail);
        let last = piece.offset + piece.len as u64 == self.send.written();
        let code =
            Code::empty().with_if(Code::PSH, last && piece.len > 0).with_if(Code::FIN, piece.fin);
        Some((code, self.send.number(piece.offset), piece.len))
    }

    /// A header with all that is to be reported; it counts as reported.
    #[inline]
    fn header(&mut self, cid: Cid, code: Code, seq: Seq16) -> DataHeader {
        let (ack, window) = self.recv.advertise(u64::from(self.config.max_packet));
        let held = if core::mem::take(&mut self.request) { self.recv.held_above() } else { None };
        if held.is_some() {
            self.stats.requests_sent += 1;
        }
        if self.ack == AckDue::Now {
            self.stats.acks_sent += 1;
        }
        (self.ack, self.unacked) = (AckDue::No, 0);
        let code = code
            .with(Code::ACK)
            .with_if(Code::RC, self.send.cycle())
            .with_if(Code::RCR, self.peer_cycle)
            .with_if(Code::RRQ, held.is_some());
        DataHeader { code, cid, seq, ack, window, nack: held.unwrap_or(ack) }
    }

    /// Whether [`poll`](Self::poll) has something, if it may send as much as it likes.
    pub fn wants_to_send(&self) -> bool {
        let new = self.peer.is_some() && self.send.wants_to_send(self.config.nagle);
        new || self.is_urgent()
    }

    /// Whether [`poll`](Self::poll) has something although nothing new may be sent.
    pub(super) fn is_urgent(&self) -> bool {
        let owes = self.ack == AckDue::Now || self.probe || self.send.is_repeating();
        owes && self.peer.is_some()
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called: always on a tick.
    pub fn next_timeout(&self) -> Option<Time> {
        let ack = match self.ack {
            AckDue::At(at) => Some(at),
            AckDue::No | AckDue::Now => None,
        };
        [ack, self.expiry()].into_iter().flatten().min()
    }

    /// Whether [`next_timeout`](Self::next_timeout) has something, without the reckoning.
    pub(super) fn is_timed(&self) -> bool {
        matches!(self.ack, AckDue::At(_)) || self.waiting.is_some()
    }

    /// When the peer's silence counts as a loss (MOB-35).
    fn expiry(&self) -> Option<Time> {
        let start = self.waiting?;
        let timeout = self.round_trip.timeout(&self.config.patience, self.doubled);
        Some(self.ticks.expiry(start, timeout))
    }

    /// A tick: acknowledges and repeats what is due (MOB-34).
    pub fn handle_timeout(&mut self, now: Time) {
        if matches!(self.ack, AckDue::At(at) if at <= now) {
            self.ack = AckDue::Now;
        }
        if self.expiry().is_some_and(|at| at <= now) {
            self.stats.expiries += 1;
            self.expiries += 1;
            self.doubled += 1;
            if self.expiries >= self.config.give_up_after {
                self.failed = true;
                self.waiting = None;
                return;
            }
            self.retransmit(now);
        }
    }

    /// There is reason to believe that the hop carries again: what is unanswered is tried at once.
    pub fn retry(&mut self, now: Time) {
        if self.waiting.is_some() {
            (self.expiries, self.doubled) = (0, 0);
            self.retransmit(now);
        }
    }

    fn retransmit(&mut self, now: Time) {
        self.waiting = Some(now);
        if self.send.inflight() > 0 {
            self.send.on_expiry();
        } else {
            self.stats.probes += 1;
            self.probe = true;
        }
    }

    /// Whether something is to be answered by the peer.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Expiries since the peer's last packet.
    pub(super) fn expiries(&self) -> u32 {
        self.expiries
    }
}
