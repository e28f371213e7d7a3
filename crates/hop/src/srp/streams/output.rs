//! What streams put into datagrams.

use core::time::Duration;

use lasthop_units::{Bytes, Rate};
use lasthop_wire::frame::{Frame, Writer};
use smallvec::SmallVec;

use super::StreamSet;
use super::send::{ResetState, SendHalf};
use super::stream::Stream;
use super::turns::Turns;
use crate::clients::Clients;
use crate::policy::Policy;
use crate::srp::content::{Content, Contents, Load, Loads, Piece};

/// A stream sends at most so much in one turn, and for about so long.
const TURN_MAX: usize = 32 * 1024;
const TURN_TIME: Duration = Duration::from_micros(500);
/// Streams that are looked at for a datagram although they wait for credit.
const FRUITLESS_MAX: usize = 16;
/// What has just come of streams that send little gets one of so many parts of a datagram before what was lost.
const LITTLE_PART: usize = 4;
/// Less data than this is not worth a frame of its own at the end of a datagram.
const PIECE_MIN: usize = 32;
/// A stream of which more is on its way has as much to send as it may, and waits for room rather than for what was lost.
const AWAITED_MAX: u64 = 64 * 1024;

/// Why a piece may be worth being sent once more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::srp) enum Worth {
    /// It is of no stream that waits for it alone.
    Usual,
    /// Its stream is sparse: it had nothing before that, and has nothing behind it.
    Sparse,
    /// It was lost, of a stream that has little on its way, and nothing new to send but what the same datagram takes.
    Awaited,
}

/// A piece of a stream that was written.
#[derive(Clone, Copy, Debug)]
pub(in crate::srp) struct Written {
    pub(in crate::srp) content: Content,
    pub(in crate::srp) policy: Policy,
    pub(in crate::srp) worth: Worth,
}

impl StreamSet {
    /// A frame that is not stream bytes waits to be sent.
    pub(in crate::srp) fn has_controls(&self) -> bool {
        !self.controls.is_empty()
    }

    /// Some stream has something to send and credit for it.
    pub(in crate::srp) fn has_data(&self) -> bool {
        let credit = self.credit.available();
        self.turns.all().any(|turns| self.can_send(turns, credit))
    }

    /// The same of streams of a policy.
    pub(in crate::srp) fn has_data_of(&self, policy: Policy) -> bool {
        self.turns.get(policy).is_some_and(|turns| self.can_send(turns, self.credit.available()))
    }

    fn can_send(&self, turns: &Turns, credit: u64) -> bool {
        let wants = |id: &u64| self.streams.get(*id).is_some_and(|s| s.send.wants_to_send(credit));
        // What was lost needs no credit. Without any, all of the others would be looked at in vain.
        turns.urgent().is_some()
            || match credit {
                0 => turns.bare().is_some_and(|id| wants(&id)),
                _ => turns.active().any(wants),
            }
    }

    /// Policies that some stream has or had.
    pub(in crate::srp) fn policies(&self) -> impl Iterator<Item = Policy> {
        self.turns.policies()
    }

    /// Some stream of a policy has something to send that was never sent before, and credit for it.
    pub(in crate::srp) fn has_new(&self, policy: Policy) -> bool {
        let credit = self.credit.available();
        let has_new = |id: &u64| self.streams.get(*id).is_some_and(|s| s.send.has_new(credit));
        self.turns.get(policy).is_some_and(|turns| turns.active().any(has_new))
    }

    /// Bytes of streams of a policy that are to be sent again.
    pub(in crate::srp) fn lost(&self, policy: Policy) -> u64 {
        let urgent = self.turns.get(policy).into_iter().flat_map(Turns::all_urgent);
        urgent.filter_map(|id| self.streams.get(*id)).map(|stream| stream.send.lost()).sum()
    }

    /// Bytes of streams of a policy that wait to be sent, or are expected to: an application that has more than there is
    /// room for has as much as it has sent without a pause.
    pub(in crate::srp) fn backlog(&self, policy: Policy) -> u64 {
        let active = self.turns.get(policy).into_iter().flat_map(Turns::active);
        let streams = active.filter_map(|id| self.streams.get(*id));
        let of = |Stream { send, turn_state, .. }: &Stream| match send.presses() {
            true => send.unsent() + send.sent() - turn_state.since(),
            false => send.unsent(),
        };
        streams.map(of).sum()
    }

    /// Hosts of which some stream has something new to send that a path is to carry, as far as that is known.
    pub(in crate::srp) fn clients(&self, loads: &Loads) -> impl Iterator<Item = u16> {
        self.turns.clients(loads)
    }

    /// The priorities together of a host's streams with something new to send, as far as that is known.
    pub(in crate::srp) fn waiting(&self, client: u16) -> u64 {
        self.turns.weight_of(client)
    }

    /// Queues "blocked" if credit ends within the next `ahead` bytes, so that more may come before it does.
    pub(in crate::srp) fn queue_blocked(&mut self, ahead: u64) {
        let Self { turns, streams, .. } = self;
        for turns in turns.all_mut() {
            while let Some(id) = turns.bare()
                && !streams.get(id).is_some_and(|s| s.send.wants_to_send(0))
            {
                turns.remove_bare(streams.get_mut(id).map(|s| &mut s.turn_state));
            }
        }
        if self.turns.all().flat_map(Turns::fronts).next().is_none() {
            return;
        }
        if self.credit.take_blocked(ahead) {
            self.controls.push_back(Content::Blocked);
        }
        for id in self.turns.all().flat_map(Turns::fronts) {
            if self.streams.get_mut(id).is_some_and(|stream| stream.send.take_blocked(ahead)) {
                self.controls.push_back(Content::StreamBlocked { stream: id });
            }
        }
    }

    /// Writes the frames that wait, as far as there is room.
    pub(in crate::srp) fn write_controls(&mut self, w: &mut Writer<'_>, contents: &mut Contents) {
        for _ in 0..self.controls.len() {
            let Some(content) = self.controls.pop_front() else { return };
            // A control is sent in its present form, or not at all if it has become moot.
            if w.room() < 32 {
                self.controls.push_front(content);
                return;
            }
            if self.write_control(content, w) {
                contents.push(content);
            }
        }
    }

    fn write_control(&mut self, content: Content, w: &mut Writer<'_>) -> bool {
        match content {
            Content::Credit => w.put(&Frame::Credit(self.credit.limit())),
            Content::Blocked => w.put(&Frame::Blocked),
            Content::StreamBlocked { stream: id } => w.put(&Frame::StreamBlocked { id }),
            Content::StreamCredit { stream: id } => {
                let Some(stream) = self.streams.get(id) else { return false };
                w.put(&Frame::StreamCredit { id, limit: stream.recv.limit() })
            }
            Content::Priority { stream: id } => {
                let Some(stream) = self.streams.get(id) else { return false };
                w.put(&Frame::Priority { id, priority: stream.priority })
            }
            Content::Client { stream: id } => {
                let Some(stream) = self.streams.get(id) else { return false };
                w.put(&Frame::Client { id, client: stream.client })
            }
            Content::Policy { stream: id } => {
                let Some(stream) = self.streams.get(id) else { return false };
                w.put(&Frame::Policy { id, policy: stream.turn_state.policy().number() })
            }
            Content::Release { stream: id, offset } => w.put(&Frame::Release { id, offset }),
            Content::Reset { stream: id } => {
                let Some(stream) = self.streams.get_mut(id) else { return false };
                let size = stream.send.sent();
                let Some((state, code)) = &mut stream.send.reset else { return false };
                *state = ResetState::Sent;
                w.put(&Frame::Reset { id, code: *code, size })
            }
            Content::PathStatus { .. } | Content::Data { .. } | Content::Packet(_) => false,
        }
    }

    /// Whether the peer is not known to have all of a piece that was sent.
    pub(in crate::srp) fn lacks(&self, id: u64, piece: &Piece) -> bool {
        let oldest = self.streams.get(id).and_then(|stream| stream.send.oldest(piece.offset, 1));
        oldest.is_some_and(|oldest| oldest.offset < piece.offset + piece.len as u64)
    }

    /// What is on its way was sent by another path too.
    pub(in crate::srp) fn on_sent_twice(&mut self, content: Content) {
        if let Content::Data { stream, piece } = content
            && let Some(stream) = self.streams.get_mut(stream)
        {
            stream.send.on_sent_twice(&piece);
        }
    }

    /// Writes something again that was sent before and is still outstanding; of a stream's data,
    /// exactly this or rather the oldest.
    pub(in crate::srp) fn repeat(
        &mut self,
        content: Content,
        exact: bool,
        w: &mut Writer<'_>,
        contents: &mut Contents,
    ) {
        let Content::Data { stream: id, piece } = content else {
            if self.write_control(content, w) {
                contents.push(content);
            }
            return;
        };
        let Some(stream) = self.streams.get(id) else { return };
        let room = w.room().saturating_sub(Writer::stream_overhead(id, u64::MAX) + 1);
        let from = if exact { piece.offset } else { 0 };
        let Some(piece) = stream.send.oldest(from, room) else { return };
        let (a, b) = stream.send.bytes(&piece);
        if w.put_stream(id, piece.offset, piece.fin, a, b) {
            self.traffic.repeated += Bytes::from(piece.len);
            contents.push(Content::Data { stream: id, piece });
        }
    }

    /// Writes what streams of a policy have that send little and have just come to have something, where others are to repeat
    /// something: that may be all that a fade took. They get a part of a datagram. `fresh` as
    /// [`write_lost`](Self::write_lost) has it.
    pub(in crate::srp) fn write_little(
        &mut self,
        policy: Policy,
        w: &mut Writer<'_>,
        contents: &mut Contents,
        clients: &mut Clients,
        (rate, full): (Rate, usize),
        mut fresh: impl FnMut(u64),
    ) -> SmallVec<[Written; 4]> {
        let (begun, part, mut all) = (w.len(), full / LITTLE_PART, SmallVec::new());
        let others_repeat = self.turns.all().any(|turns| turns.urgent().is_some());
        while let Some(id) = self.turns.get(policy).and_then(Turns::first_new) {
            let before = w.len();
            if let Some(stream) = self.streams.get(id).filter(|s| s.turn_state.is_new()) {
                if !others_repeat {
                    break;
                }
                let client = stream.turn_state.client();
                let (new, length) =
                    (stream.send.unsent(), stream.send.unsent() + stream.send.lost());
                let may_go = new <= self.credit.available()
                    && length <= part as u64
                    && clients.may_go_first(client);
                let left = (part + begun).saturating_sub(before);
                if may_go && (length > left as u64 || w.room() < part) {
                    // The next datagram has more room.
                    break;
                }
                while may_go
                    && w.room() > PIECE_MIN
                    && self.write_piece(id, w, contents, (rate, Load::All), &mut fresh).is_some()
                {
                    let content = contents.last().copied();
                    all.extend(content.map(|content| Written {
                        content,
                        policy,
                        worth: Worth::Sparse,
                    }));
                }
                let streams = self.turns.weight_of(client);
                clients.charge_streams(client, w.len() - before, streams);
            }
            let (turns, written) = (self.turns.of(policy), w.len() - before);
            let mut stream = self.streams.get_mut(id);
            if let Some(Stream { send, turn_state, .. }) = &mut stream
                && written > 0
                && !send.wants_to_send(u64::MAX)
            {
                turns.on_sent_early(id, turn_state, written);
            }
            turns.remove_new(stream.map(|s| &mut s.turn_state));
        }
        all
    }

    /// Fills a datagram from the streams of a policy with losses, and where there is no credit from those that have but an
    /// end to send, which takes none. `fresh` is called for each piece with the number of bytes that were never sent before.
    pub(in crate::srp) fn write_lost(
        &mut self,
        policy: Policy,
        w: &mut Writer<'_>,
        contents: &mut Contents,
        clients: &mut Clients,
        rate: Rate,
        mut fresh: impl FnMut(u64),
    ) -> SmallVec<[Written; 4]> {
        let mut all = SmallVec::new();
        while w.room() > PIECE_MIN {
            let Some(id) = self.turns.get(policy).and_then(Turns::urgent) else { break };
            let before = w.len();
            let wrote = self.write_piece(id, w, contents, (rate, Load::All), &mut fresh).is_some();
            let room = w.room() as u64;
            let awaited = |send: &SendHalf| send.unsent() <= room && send.buffered() <= AWAITED_MAX;
            if wrote && self.streams.get(id).is_some_and(|stream| awaited(&stream.send)) {
                let content = contents.last().copied();
                all.extend(content.map(|content| Written {
                    content,
                    policy,
                    worth: Worth::Awaited,
                }));
            }
            let client = self.streams.get(id).map_or(0, |stream| stream.turn_state.client());
            clients.charge_streams(client, w.len() - before, self.turns.weight_of(client));
            match self.streams.get_mut(id) {
                Some(stream) if stream.send.has_lost() => {
                    if !wrote {
                        break;
                    }
                }
                stream => self.turns.of(policy).remove_urgent(stream.map(|s| &mut s.turn_state)),
            }
        }
        while w.room() > PIECE_MIN
            && self.credit.available() == 0
            && let Some(id) = self.turns.get(policy).and_then(Turns::bare)
        {
            let _ = self.write_piece(id, w, contents, (rate, Load::All), &mut fresh);
            self.turns.of(policy).remove_bare(self.streams.get_mut(id).map(|s| &mut s.turn_state));
        }
        all
    }

    /// Writes the next piece of the host's stream whose turn it is, at this rate of sending and where this is room for
    /// frames in a full datagram, as far as these loads have it; nothing if none of them has credit or there is no room.
    /// `fresh` as above.
    pub(in crate::srp) fn write_next(
        &mut self,
        client: u16,
        w: &mut Writer<'_>,
        contents: &mut Contents,
        clients: &mut Clients,
        (rate, full, loads): (Rate, usize, &Loads),
        mut fresh: impl FnMut(u64),
    ) -> Option<Written> {
        let mut tried: SmallVec<[Policy; 1]> = SmallVec::new();
        while let Some((policy, load)) = self.turns.next(client, loads, &tried) {
            let (rest, fresh) = ((rate, full, load), &mut fresh);
            let written = self.write_next_of((client, policy), w, contents, clients, rest, fresh);
            if written.is_some() {
                return written;
            }
            tried.push(policy);
        }
        None
    }

    fn write_next_of(
        &mut self,
        (client, policy): (u16, Policy),
        w: &mut Writer<'_>,
        contents: &mut Contents,
        clients: &mut Clients,
        (rate, full, load): (Rate, usize, Load),
        fresh: &mut impl FnMut(u64),
    ) -> Option<Written> {
        let mut fruitless = 0;
        while w.room() > PIECE_MIN
            && fruitless < self.turns.of(policy).len_of(client).min(FRUITLESS_MAX)
        {
            let id = self.turns.of(policy).front(client)?;
            let before = w.len();
            match self.write_piece(id, w, contents, (rate, load), fresh) {
                Some(bytes) => {
                    let streams = self.turns.weight_of(client);
                    clients.charge_streams(client, w.len() - before, streams);
                    let sparse = self.after_turn((client, policy, id), bytes, rate, full);
                    let worth = if sparse { Worth::Sparse } else { Worth::Usual };
                    return Some(Written { content: *contents.last()?, policy, worth });
                }
                // Without credit for all streams only bare ends can go: the others wait.
                None if self.streams.get(id).is_some_and(|s| s.send.wants_to_send(u64::MAX)) => {
                    self.turns.of(policy).skip(client);
                    fruitless += 1;
                }
                None => {
                    self.after_turn((client, policy, id), 0, rate, full);
                }
            }
        }
        None
    }

    /// A stream stays at the front until it has sent its share of a millisecond, so that at high
    /// rates the peer's application gets bytes in larger pieces. Whether it is sparse.
    fn after_turn(
        &mut self,
        (client, policy, id): (u16, Policy, u64),
        bytes: usize,
        rate: Rate,
        full: usize,
    ) -> bool {
        let turns = self.turns.of(policy);
        let Some(stream) = self.streams.get_mut(id) else {
            turns.remove_active(client);
            return false;
        };
        // By priorities turns are exact, so that none may be shorter than what it is counted in.
        let exact = self.division.is_on();
        let least = if exact { full } else { 0 };
        let shortest = rate.bytes_in(TURN_TIME).as_usize().min(TURN_MAX).max(least);
        let more = stream.send.wants_to_send(u64::MAX);
        if exact {
            stream.turn_state.set_turn(self.division.turn(stream.priority));
        }
        let sparse = stream.turn_state.is_new() && !more;
        turns.on_sent(&mut stream.turn_state, bytes, more, shortest, exact);
        if !more && stream.send.take_blocked(0) {
            self.controls.push_back(Content::StreamBlocked { stream: id });
        }
        sparse
    }

    /// Writes the next piece of a stream; how many bytes of data it has.
    fn write_piece(
        &mut self,
        id: u64,
        w: &mut Writer<'_>,
        contents: &mut Contents,
        (rate, load): (Rate, Load),
        fresh: &mut impl FnMut(u64),
    ) -> Option<usize> {
        let credit = self.credit.available();
        let stream = self.streams.get_mut(id)?;
        // One byte is left for the frame that asks for an answer at once.
        let overhead = Writer::stream_overhead(id, stream.send.sent()) + 1;
        let room = w.room().saturating_sub(overhead);
        let before = stream.send.sent();
        let piece = match load {
            Load::All => stream.send.next_piece(room, credit),
            Load::New => stream.send.next_new_piece(room, credit),
        }?;
        let new = stream.send.sent() - before;
        let (a, b) = stream.send.bytes(&piece);
        let written = w.put_stream(id, piece.offset, piece.fin, a, b);
        debug_assert!(written, "a piece is cut to the room there is");
        self.credit.spend(new);
        fresh(new);
        self.traffic.sent += Bytes::new(new);
        self.traffic.repeated += Bytes::from(piece.len) - Bytes::new(new);
        contents.push(Content::Data { stream: id, piece });
        self.report_writable(id, rate);
        Some(piece.len)
    }
}
