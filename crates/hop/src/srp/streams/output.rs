//! What streams put into datagrams.

use core::time::Duration;

use lasthop_units::{Bytes, Rate};
use lasthop_wire::frame::{Frame, Writer};

use super::StreamSet;
use super::send::ResetState;
use super::stream::Stream;
use crate::clients::Clients;
use crate::srp::content::{Content, Contents, Load, Piece};

/// A stream sends at most so much in one turn, and for about so long.
const TURN_MAX: usize = 32 * 1024;
const TURN_TIME: Duration = Duration::from_micros(500);
/// Streams that are looked at for a datagram although they wait for credit.
const FRUITLESS_MAX: usize = 16;
/// Less data than this is not worth a frame of its own at the end of a datagram.
const PIECE_MIN: usize = 32;

impl StreamSet {
    /// A frame that is not stream bytes waits to be sent.
    pub(in crate::srp) fn has_controls(&self) -> bool {
        !self.controls.is_empty()
    }

    /// Some stream has something to send and credit for it.
    pub(in crate::srp) fn has_data(&self) -> bool {
        let credit = self.credit.available();
        let wants = |id: &u64| self.streams.get(*id).is_some_and(|s| s.send.wants_to_send(credit));
        let without_credit = self.turns.urgent().is_some();
        // All of the others would be looked at in vain.
        without_credit
            || match credit {
                0 => self.turns.bare().is_some_and(|id| wants(&id)),
                _ => self.turns.active().any(wants),
            }
    }

    /// Some stream has something to send that was never sent before, and credit for it.
    pub(in crate::srp) fn has_new(&self) -> bool {
        let credit = self.credit.available();
        let has_new = |id: &u64| self.streams.get(*id).is_some_and(|s| s.send.has_new(credit));
        self.turns.active().any(has_new)
    }

    /// Bytes that are to be sent again.
    pub(in crate::srp) fn lost(&self) -> u64 {
        let streams = self.turns.all_urgent().filter_map(|id| self.streams.get(*id));
        streams.map(|stream| stream.send.lost()).sum()
    }

    /// Bytes that wait to be sent, or are expected to: an application that has more than there is room for has as much
    /// as it has sent without a pause.
    pub(in crate::srp) fn backlog(&self) -> u64 {
        let streams = self.turns.active().filter_map(|id| self.streams.get(*id));
        let of = |Stream { send, turn_state, .. }: &Stream| match send.wants_room {
            true => send.unsent() + send.sent() - turn_state.since(),
            false => send.unsent(),
        };
        streams.map(of).sum()
    }

    /// Hosts of which some stream has something new to send, as far as that is known.
    pub(in crate::srp) fn clients(&self) -> impl Iterator<Item = u16> {
        self.turns.clients()
    }

    /// The priorities together of a host's streams with something new to send, as far as that is known.
    pub(in crate::srp) fn waiting(&self, client: u16) -> u64 {
        self.turns.weight_of(client)
    }

    /// Queues "blocked" if credit ends within the next `ahead` bytes, so that more may come before it does.
    pub(in crate::srp) fn queue_blocked(&mut self, ahead: u64) {
        while let Some(id) = self.turns.bare()
            && !self.streams.get(id).is_some_and(|s| s.send.wants_to_send(0))
        {
            self.turns.remove_bare(self.streams.get_mut(id).map(|s| &mut s.turn_state));
        }
        if self.turns.fronts().next().is_none() {
            return;
        }
        if self.credit.take_blocked(ahead) {
            self.controls.push_back(Content::Blocked);
        }
        for id in self.turns.fronts() {
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
            Content::Reset { stream: id } => {
                let Some(stream) = self.streams.get_mut(id) else { return false };
                let size = stream.send.sent();
                let Some((state, code)) = &mut stream.send.reset else { return false };
                *state = ResetState::Sent;
                w.put(&Frame::Reset { id, code: *code, size })
            }
            Content::Data { .. } | Content::Packet(_) => false,
        }
    }

    /// Whether the peer is not known to have all of a piece that was sent.
    pub(in crate::srp) fn lacks(&self, id: u64, piece: &Piece) -> bool {
        let oldest = self.streams.get(id).and_then(|stream| stream.send.oldest(piece.offset, 1));
        oldest.is_some_and(|oldest| oldest.offset < piece.offset + piece.len as u64)
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

    /// Fills a datagram from the streams with losses, and where there is no credit from those that have but an end to send,
    /// which takes none. `fresh` is called for each piece with the number of bytes that were never sent before.
    pub(in crate::srp) fn write_lost(
        &mut self,
        w: &mut Writer<'_>,
        contents: &mut Contents,
        clients: &mut Clients,
        rate: Rate,
        mut fresh: impl FnMut(u64),
    ) {
        while w.room() > PIECE_MIN {
            let Some(id) = self.turns.urgent() else { break };
            let before = w.len();
            let wrote = self.write_piece(id, w, contents, (rate, Load::All), &mut fresh).is_some();
            let client = self.streams.get(id).map_or(0, |stream| stream.turn_state.client());
            clients.charge_streams(client, w.len() - before, self.turns.weight_of(client));
            match self.streams.get_mut(id) {
                Some(stream) if stream.send.has_lost() => {
                    if !wrote {
                        break;
                    }
                }
                stream => self.turns.remove_urgent(stream.map(|s| &mut s.turn_state)),
            }
        }
        while w.room() > PIECE_MIN
            && self.credit.available() == 0
            && let Some(id) = self.turns.bare()
        {
            let _ = self.write_piece(id, w, contents, (rate, Load::All), &mut fresh);
            self.turns.remove_bare(self.streams.get_mut(id).map(|s| &mut s.turn_state));
        }
    }

    /// Writes the next piece of the host's stream whose turn it is, at this rate of sending and where this is room for
    /// frames in a full datagram, only what is new if that is the load; nothing if none of them has credit or there is no room. `fresh` as above. Returns the
    /// piece if its stream is sparse: it had nothing before that, and has nothing behind it.
    pub(in crate::srp) fn write_next(
        &mut self,
        client: u16,
        w: &mut Writer<'_>,
        contents: &mut Contents,
        clients: &mut Clients,
        (rate, full, load): (Rate, usize, Load),
        mut fresh: impl FnMut(u64),
    ) -> Option<Content> {
        let mut fruitless = 0;
        while w.room() > PIECE_MIN && fruitless < self.turns.len_of(client).min(FRUITLESS_MAX) {
            let id = self.turns.front(client)?;
            let before = w.len();
            match self.write_piece(id, w, contents, (rate, load), &mut fresh) {
                Some(bytes) => {
                    let streams = self.turns.weight_of(client);
                    clients.charge_streams(client, w.len() - before, streams);
                    let sparse = self.after_turn((client, id), bytes, rate, full);
                    return contents.last().copied().filter(|_| sparse);
                }
                // Without credit for all streams only bare ends can go: the others wait.
                None if self.streams.get(id).is_some_and(|s| s.send.wants_to_send(u64::MAX)) => {
                    self.turns.skip(client);
                    fruitless += 1;
                }
                None => {
                    self.after_turn((client, id), 0, rate, full);
                }
            }
        }
        None
    }

    /// A stream stays at the front until it has sent its share of a millisecond, so that at high
    /// rates the peer's application gets bytes in larger pieces. Whether it is sparse.
    fn after_turn(
        &mut self,
        (client, id): (u16, u64),
        bytes: usize,
        rate: Rate,
        full: usize,
    ) -> bool {
        let Some(stream) = self.streams.get_mut(id) else {
            self.turns.remove_active(client);
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
        self.turns.on_sent(&mut stream.turn_state, bytes, more, shortest, exact);
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
