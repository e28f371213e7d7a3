//! Go-back-N: datagrams in order or not at all.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use lasthop_hop::{RecvState, StreamError, StreamEvent, StreamId, Streams};
use lasthop_units::Time;

use super::stream::{End, Stream};
use super::{Flaw, Naive};
use crate::content::mix;
use crate::{Addr, Probe};

/// Datagrams in flight at most; a time-out halves it, an acknowledged one adds one.
pub(super) const WINDOW: usize = 64;
const HEADER: usize = 8 + 1 + 4 + 4 + 8 + 8;
const FRAME: usize = 1 + 8 + 8;
/// Longest datagram: what every hop must pass.
pub(super) const DATAGRAM: usize = 1200;
const STREAMS: usize = 256;
const RTO_MAX: Duration = Duration::from_secs(4);
const HELLO_EVERY: Duration = Duration::from_secs(1);
const RTO_MIN: Duration = Duration::from_millis(30);

/// The parity of the base's stream numbers.
const BASE: u64 = 1;

const DATA: u8 = 1;
const FIN: u8 = 2;
const RESET: u8 = 3;
const GRANT: u8 = 4;
const HELLO: u8 = 5;

/// A datagram that is not acknowledged yet.
#[derive(Debug)]
struct Pending {
    frames: Vec<u8>,
    sent_at: Time,
    again: bool,
}

impl Pending {
    fn stream_bytes(&self) -> usize {
        if self.frames.first() == Some(&HELLO) { 0 } else { self.frames.len() }
    }
}

/// One association: a reliable channel and the streams on it.
#[derive(Debug)]
pub struct Channel {
    tag: u64,
    peer: Option<Addr>,
    parity: u64,
    flaw: Flaw,
    buffer: usize,
    opened: u64,
    /// The peer's streams so far.
    seen: BTreeSet<u64>,
    streams: Vec<Stream>,
    events: VecDeque<StreamEvent>,
    /// The number of `pending[0]`.
    first: u32,
    pending: VecDeque<Pending>,
    /// How many of `pending` were sent since the last time-out.
    cursor: usize,
    expected: u32,
    ack_due: bool,
    turn: usize,
    srtt: Option<Duration>,
    backoff: u32,
    deadline: Option<Time>,
    window: usize,
    last_sent: Time,
    /// The highest datagram number seen.
    heard: u64,
    probe: Probe,
}

/// A datagram's number, its place in the channel if it has one, its acknowledgement, its frames.
type Parsed<'a> = (u64, Option<u32>, u32, &'a [u8]);

/// The association a datagram claims to belong to.
pub(super) fn tag_of(datagram: &[u8]) -> Option<u64> {
    datagram.get(..8)?.try_into().ok().map(u64::from_le_bytes)
}

impl Channel {
    pub(super) fn new(tag: u64, peer: Option<Addr>, parity: u64, naive: Naive) -> Self {
        Self {
            tag,
            peer,
            parity,
            flaw: naive.flaw,
            buffer: naive.buffer,
            opened: 0,
            seen: BTreeSet::new(),
            streams: Vec::new(),
            events: VecDeque::new(),
            first: 0,
            pending: VecDeque::new(),
            cursor: 0,
            expected: 0,
            ack_due: false,
            turn: 0,
            srtt: None,
            backoff: 0,
            deadline: None,
            window: 8,
            last_sent: Time::ZERO,
            heard: 0,
            probe: Probe::default(),
        }
    }

    pub(super) const fn tag(&self) -> u64 {
        self.tag
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        if self.flaw == Flaw::Spins && !self.pending.is_empty() {
            return Some(Time::ZERO);
        }
        self.deadline.or_else(|| self.next_hello())
    }

    /// A mobile is heard of now and then, so that the base knows its address.
    fn next_hello(&self) -> Option<Time> {
        let quiet = self.parity != BASE && self.pending.is_empty() && self.opened > 0;
        quiet.then_some(self.last_sent + HELLO_EVERY)
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        if self.next_hello().is_some_and(|t| t <= now) {
            let mut frames = Vec::new();
            push(&mut frames, HELLO, 0, 0, &[]);
            self.pending.push_back(Pending { frames, sent_at: Time::NEVER, again: false });
        }
        if self.deadline.is_none_or(|t| t > now) {
            return;
        }
        self.backoff = (self.backoff + 1).min(6);
        self.deadline = None;
        if self.flaw != Flaw::NeverRetransmits {
            self.probe.timeouts += 1;
            self.cursor = 0;
            self.window = (self.window / 2).max(1);
        }
    }

    fn rto(&self) -> Duration {
        let base = self.srtt.map_or(Duration::from_millis(300), |s| s * 2);
        (base.max(RTO_MIN) * (1 << self.backoff)).min(RTO_MAX)
    }

    pub(super) fn handle_datagram(&mut self, now: Time, from: Addr, datagram: &[u8]) {
        let Some((number, seq, ack, frames)) = self.parse(datagram) else {
            self.probe.refused += 1;
            return;
        };
        // Mobiles move, bases do not; and what is not the latest may be an old datagram's copy.
        if self.peer.is_none() || (self.parity == BASE && number > self.heard) {
            self.peer = Some(from);
        }
        self.heard = self.heard.max(number);
        self.handle_ack(now, ack);
        let Some(seq) = seq else { return };
        self.ack_due = true;
        if seq == self.expected {
            self.expected = self.expected.wrapping_add(1);
        } else if self.flaw != Flaw::TrustsOrder {
            return;
        }
        self.handle_frames(frames);
    }

    fn parse<'a>(&self, datagram: &'a [u8]) -> Option<Parsed<'a>> {
        let (header, frames) = datagram.split_at_checked(HEADER)?;
        if tag_of(header) != Some(self.tag) {
            return None;
        }
        let seq = u32::from_le_bytes(header[9..13].try_into().ok()?);
        let ack = u32::from_le_bytes(header[13..17].try_into().ok()?);
        let number = u64::from_le_bytes(header[17..25].try_into().ok()?);
        let check = u64::from_le_bytes(header[25..33].try_into().ok()?);
        if check != checksum(&header[..25], frames) && self.flaw != Flaw::TrustsDamage {
            return None;
        }
        Some((number, (header[8] == 1).then_some(seq), ack, frames))
    }

    fn handle_ack(&mut self, now: Time, ack: u32) {
        let n = ack.wrapping_sub(self.first) as usize;
        if n == 0 || n > self.pending.len() {
            return;
        }
        for _ in 0..n {
            let Some(done) = self.pending.pop_front() else { return };
            if !done.again && done.sent_at != Time::NEVER {
                let sample = now - done.sent_at;
                self.srtt = Some(self.srtt.map_or(sample, |s| (s * 7 + sample) / 8));
            }
            self.handle_acked(&done.frames);
        }
        self.first = ack;
        self.window = (self.window + n).min(WINDOW);
        self.cursor = self.cursor.saturating_sub(n);
        self.backoff = 0;
        self.deadline = (!self.pending.is_empty()).then(|| now + self.rto());
    }

    fn handle_acked(&mut self, frames: &[u8]) {
        for (kind, id, _, _) in Frames(frames) {
            let Some(s) = self.streams.iter_mut().find(|s| s.id == id) else { continue };
            match kind {
                FIN => {
                    s.end = End::Acked;
                    self.events.push_back(StreamEvent::Finished(StreamId(id)));
                }
                RESET => s.reset = s.reset.map(|(code, _)| (code, End::Acked)),
                _ => continue,
            }
            self.close_if_over(id);
        }
    }

    fn handle_frames(&mut self, frames: &[u8]) {
        for (kind, id, value, bytes) in Frames(frames) {
            if kind == HELLO {
                continue;
            }
            let Some(i) = self.find_or_accept(id) else { continue };
            let s = &mut self.streams[i];
            match kind {
                DATA if s.reset.is_none() => {
                    s.recv.extend_from_slice(bytes);
                    s.recv_total += bytes.len() as u64;
                    self.events.push_back(StreamEvent::Readable(StreamId(id)));
                }
                FIN => {
                    s.peer_ended = true;
                    self.events.push_back(StreamEvent::Readable(StreamId(id)));
                }
                RESET if self.flaw == Flaw::HidesReset => {
                    s.peer_ended = true;
                    self.events.push_back(StreamEvent::Readable(StreamId(id)));
                }
                RESET => {
                    s.peer_reset = Some(value);
                    s.drop_buffers();
                    self.events.push_back(StreamEvent::Readable(StreamId(id)));
                }
                GRANT => s.send_limit = s.send_limit.max(value),
                _ => {}
            }
            self.close_if_over(id);
        }
    }

    fn find_or_accept(&mut self, id: u64) -> Option<usize> {
        if let Some(i) = self.streams.iter().position(|s| s.id == id) {
            return Some(i);
        }
        // A grant may still come for a stream that is closed here.
        if id % 2 == self.parity || self.streams.len() >= STREAMS || !self.seen.insert(id) {
            return None;
        }
        self.streams.push(Stream::new(id, self.buffer));
        self.events.push_back(StreamEvent::Incoming(StreamId(id)));
        Some(self.streams.len() - 1)
    }

    fn close_if_over(&mut self, id: u64) {
        if let Some(s) = self.streams.iter_mut().find(|s| s.id == id)
            && s.is_over()
            && !s.closing
        {
            s.closing = true;
            self.events.push_back(StreamEvent::Closed(StreamId(id)));
        }
    }

    pub(super) fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<(Addr, usize)> {
        let to = self.peer?;
        if self.cursor == self.pending.len() && self.pending.len() < self.window {
            let frames = self.gather();
            if !frames.is_empty() {
                self.pending.push_back(Pending { frames, sent_at: Time::NEVER, again: false });
            }
        }
        let len = if self.cursor < self.pending.len().min(self.window) {
            self.send_pending(now, out)
        } else if self.ack_due {
            self.datagram(0, 0, &[], out)
        } else {
            return None;
        };
        self.ack_due = false;
        self.last_sent = now;
        self.probe.sent += 1;
        Some((to, len))
    }

    fn send_pending(&mut self, now: Time, out: &mut [u8]) -> usize {
        let seq = self.first.wrapping_add(self.cursor as u32);
        let frames = {
            let p = &mut self.pending[self.cursor];
            p.again = p.sent_at != Time::NEVER;
            self.probe.retransmitted += u64::from(p.again);
            p.sent_at = now;
            core::mem::take(&mut p.frames)
        };
        let len = self.datagram(1, seq, &frames, out);
        self.pending[self.cursor].frames = frames;
        self.cursor += 1;
        if self.deadline.is_none() {
            self.deadline = Some(now + self.rto());
        }
        len
    }

    fn datagram(&self, kind: u8, seq: u32, frames: &[u8], out: &mut [u8]) -> usize {
        out[..8].copy_from_slice(&self.tag.to_le_bytes());
        out[8] = kind;
        out[9..13].copy_from_slice(&seq.to_le_bytes());
        out[13..17].copy_from_slice(&self.expected.to_le_bytes());
        out[17..25].copy_from_slice(&(self.probe.sent + 1).to_le_bytes());
        let check = checksum(&out[..25], frames);
        out[25..33].copy_from_slice(&check.to_le_bytes());
        out[HEADER..HEADER + frames.len()].copy_from_slice(frames);
        HEADER + frames.len()
    }

    /// The frames of the next new datagram, streams taking turns.
    fn gather(&mut self) -> Vec<u8> {
        let mut frames = Vec::new();
        let n = self.streams.len();
        for _ in 0..n {
            self.turn = (self.turn + 1) % n;
            let room = DATAGRAM - HEADER - frames.len();
            if room < 4 * FRAME {
                break;
            }
            let s = &mut self.streams[self.turn];
            gather_from(s, room, self.flaw, &mut frames);
            if s.full && s.send_len < s.send.len() {
                s.full = false;
                self.events.push_back(StreamEvent::Writable(StreamId(s.id)));
            }
        }
        frames
    }

    pub(super) fn probe(&self) -> Probe {
        let in_streams: usize = self.streams.iter().map(|s| s.send_len + s.received().len()).sum();
        let in_flight: usize = self.pending.iter().map(|p| p.stream_bytes()).sum();
        Probe {
            cwnd: (self.window * DATAGRAM) as u64,
            in_flight: in_flight as u64,
            srtt: self.srtt.unwrap_or_default(),
            buffered: (in_streams + in_flight) as u64,
            streams: self.streams.len() as u64,
            ..self.probe
        }
    }

    fn find(&self, id: StreamId) -> Option<&Stream> {
        self.streams.iter().find(|s| s.id == id.0)
    }

    fn find_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.streams.iter_mut().find(|s| s.id == id.0)
    }
}

fn gather_from(s: &mut Stream, mut room: usize, flaw: Flaw, frames: &mut Vec<u8>) {
    if let Some((code, End::Wanted)) = s.reset {
        s.reset = Some((code, End::Sent));
        push(frames, RESET, s.id, code, &[]);
        return;
    }
    if let Some(limit) = s.grant_due() {
        s.granted = limit;
        push(frames, GRANT, s.id, limit, &[]);
        room -= FRAME;
    }
    let n = s.sendable(room - 2 * FRAME, flaw == Flaw::IgnoresWindow);
    if n > 0 {
        push(frames, DATA, s.id, n as u64, &s.send[..n]);
        s.send.copy_within(n..s.send_len, 0);
        s.send_len -= n;
        s.sent += n as u64;
    }
    if s.end == End::Wanted && s.send_len == 0 && s.peer_reset.is_none() {
        s.end = End::Sent;
        push(frames, FIN, s.id, 0, &[]);
    }
}

fn push(frames: &mut Vec<u8>, kind: u8, id: u64, value: u64, bytes: &[u8]) {
    frames.push(kind);
    frames.extend_from_slice(&id.to_le_bytes());
    frames.extend_from_slice(&value.to_le_bytes());
    frames.extend_from_slice(bytes);
}

/// Walks kind, stream, value, bytes; stops at the first frame that is cut short.
struct Frames<'a>(&'a [u8]);

impl<'a> Iterator for Frames<'a> {
    type Item = (u8, u64, u64, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (head, rest) = self.0.split_at_checked(FRAME)?;
        let id = u64::from_le_bytes(head[1..9].try_into().ok()?);
        let value = u64::from_le_bytes(head[9..17].try_into().ok()?);
        let len = if head[0] == DATA { usize::try_from(value).ok()? } else { 0 };
        let (bytes, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((head[0], id, value, bytes))
    }
}

fn checksum(header: &[u8], frames: &[u8]) -> u64 {
    let mut h = 0x5eed;
    for part in [header, frames] {
        for chunk in part.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            h = mix(h ^ u64::from_le_bytes(word)).wrapping_add(chunk.len() as u64);
        }
    }
    h
}

impl Streams for Channel {
    fn open(&mut self) -> Result<StreamId, StreamError> {
        if self.streams.len() >= STREAMS {
            return Err(StreamError::TooMany);
        }
        let id = self.opened * 2 + self.parity;
        self.opened += 1;
        self.streams.push(Stream::new(id, self.buffer));
        Ok(StreamId(id))
    }

    fn poll_event(&mut self) -> Option<StreamEvent> {
        let event = self.events.pop_front()?;
        if let StreamEvent::Closed(id) = event
            && self.flaw != Flaw::KeepsStreams
        {
            self.streams.retain(|s| s.id != id.0);
        }
        Some(event)
    }

    fn send_space(&mut self, id: StreamId) -> Result<&mut [u8], StreamError> {
        let s = self.find_mut(id).ok_or(StreamError::Unknown)?;
        if let Some(code) = s.peer_reset {
            return Err(StreamError::Reset(code));
        }
        if s.reset.is_some() {
            return Err(StreamError::Unknown);
        }
        if s.end != End::Open {
            return Err(StreamError::Finished);
        }
        s.full = s.send_len == s.send.len();
        Ok(&mut s.send[s.send_len..])
    }

    fn commit(&mut self, id: StreamId, n: usize) {
        if let Some(s) = self.find_mut(id) {
            s.send_len = (s.send_len + n).min(s.send.len());
        }
    }

    fn finish(&mut self, id: StreamId) {
        if let Some(s) = self.find_mut(id)
            && s.end == End::Open
        {
            s.end = End::Wanted;
        }
    }

    fn reset(&mut self, id: StreamId, code: u64) {
        if let Some(s) = self.find_mut(id)
            && s.reset.is_none()
            && s.peer_reset.is_none()
        {
            s.reset = Some((code, End::Wanted));
            s.drop_buffers();
        }
    }

    fn received(&self, id: StreamId) -> &[u8] {
        self.find(id).map_or(&[], Stream::received)
    }

    fn consume(&mut self, id: StreamId, n: usize) {
        if let Some(s) = self.find_mut(id) {
            s.consume(n);
            self.close_if_over(id.0);
        }
    }

    fn recv_state(&self, id: StreamId) -> RecvState {
        self.find(id).map_or(RecvState::Finished, Stream::recv_state)
    }
}
