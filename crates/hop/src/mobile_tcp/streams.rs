//! The calls of [`Streams`].

use lasthop_wire::mobile_tcp::DATA_HEADER;

use super::endpoint::MobileTcp;
use super::entry::{ConnectionStage, Entry, RetransmitTimer};
use super::head::{self, ANSWER_MAX, AnswerHead, Head};
use crate::streams::{RecvState, StreamError, StreamEvent, StreamId, StreamState, Streams};

impl MobileTcp {
    /// Sends the opening or the answer once the first message of a stream is whole, or cannot become so.
    fn read_head(&mut self, cid: u16) {
        let Some(entry) = self.entries.get(&cid) else { return };
        let room = usize::from(self.config.max_packet()) + DATA_HEADER;
        let (_, (bytes, _)) = entry.connection.unacknowledged();
        let complete = entry.connection.is_finished();
        match entry.stage {
            ConnectionStage::Buffering => {
                let found = head::read_opening(bytes, self.role, entry.stream, room);
                if let Some((head, len)) = found.or(complete.then_some((Head::Nothing, 0))) {
                    self.send_opening(cid, head, len);
                }
            }
            ConnectionStage::SynReceived => {
                let Some(peer) = entry.peer else { return };
                let found = head::read_answer(bytes, peer.destination, room);
                match found.or(complete.then_some(AnswerHead::Stands(Head::Nothing, 0))) {
                    Some(AnswerHead::Stands(head, len)) => self.send_answer(cid, head, len),
                    Some(AnswerHead::Refused(code)) => self.abort(cid, code),
                    None => {}
                }
            }
            _ => {}
        }
    }

    fn send_opening(&mut self, cid: u16, head: Head, len: usize) {
        let Some(entry) = self.entries.get_mut(&cid) else { return };
        entry.promised = entry.connection.promise(ANSWER_MAX);
        entry.repeat = RetransmitTimer::start();
        self.set_stage(cid, ConnectionStage::SynSent { head, len });
    }
}

impl Entry {
    fn state(&self) -> Option<StreamState> {
        let over = self.connection.is_over() && self.connection.received().is_empty();
        (self.is_usable() && !over).then(|| self.connection.state())
    }
}

impl Streams for MobileTcp {
    fn open(&mut self) -> Result<StreamId, StreamError> {
        let most = self.streams_max.min(self.connections_max() as u64);
        if self.streams.len() as u64 >= most || self.closed.is_some() || self.closing.is_some() {
            return Err(StreamError::TooMany);
        }
        let stream = self.next_stream;
        self.add(stream, ConnectionStage::Buffering).ok_or(StreamError::TooMany)?;
        self.next_stream += 2;
        Ok(StreamId(stream))
    }

    fn poll_event(&mut self) -> Option<StreamEvent> {
        let event = self.events.pop_front()?;
        if let StreamEvent::Closed(id) = event
            && let Some(cid) = self.streams.remove(&id.0)
            && let Some(entry) = self.entries.get(&cid)
            && !entry.resting
        {
            match entry.stage {
                ConnectionStage::Established => self.quarantine(cid, ConnectionStage::Over),
                _ => self.remove(cid),
            }
        }
        Some(event)
    }

    fn send_space(&mut self, id: StreamId) -> Result<&mut [u8], StreamError> {
        let entry = self.cid_of(id).and_then(|cid| self.entries.get_mut(&cid));
        let entry = entry.ok_or(StreamError::Unknown)?;
        if let Some(code) = entry.reset {
            return Err(StreamError::Reset(code));
        }
        if entry.connection.is_finished() {
            return Err(StreamError::Finished);
        }
        if !entry.is_usable() {
            return Err(StreamError::Unknown);
        }
        entry.wants_room |= entry.connection.send_room() == 0;
        Ok(entry.connection.send_space())
    }

    fn commit(&mut self, id: StreamId, n: usize) {
        let Some(cid) = self.cid_of(id).filter(|_| n > 0) else { return };
        let Some(entry) = self.entries.get_mut(&cid) else { return };
        entry.connection.commit(n);
        if entry.stage != ConnectionStage::Established {
            self.read_head(cid);
        }
        self.update(cid);
    }

    fn finish(&mut self, id: StreamId) {
        let Some(cid) = self.cid_of(id) else { return };
        let Some(entry) = self.entries.get_mut(&cid) else { return };
        entry.connection.finish();
        self.read_head(cid);
        self.update(cid);
    }

    fn reset(&mut self, id: StreamId, code: u64) {
        if let Some(cid) = self.cid_of(id)
            && self.entries.get(&cid).is_some_and(Entry::is_usable)
        {
            self.abort(cid, code);
        }
    }

    fn received(&self, id: StreamId) -> &[u8] {
        let entry = self.entry_of(id).filter(|entry| entry.reset.is_none());
        entry.map_or(&[], |entry| entry.connection.received())
    }

    fn consume(&mut self, id: StreamId, n: usize) {
        let Some(cid) = self.cid_of(id) else { return };
        let Some(entry) = self.entries.get_mut(&cid) else { return };
        entry.connection.consume(n);
        if entry.connection.received().is_empty() && !entry.connection.is_ended() {
            entry.wants_data = true;
        }
        self.update(cid);
    }

    fn set_priority(&mut self, id: StreamId, priority: u32) {
        if let Some(cid) = self.cid_of(id) {
            self.set_connection_priority(cid, priority);
        }
    }

    fn recv_state(&self, id: StreamId) -> RecvState {
        let Some(entry) = self.entry_of(id) else { return RecvState::Finished };
        match entry.reset {
            Some(code) => RecvState::Reset(code),
            None if entry.connection.is_ended() && entry.connection.received().is_empty() => {
                RecvState::Finished
            }
            None => RecvState::Open,
        }
    }

    fn detach(&mut self, id: StreamId) -> Option<StreamState> {
        let cid = self.cid_of(id)?;
        let state = self.entries.get(&cid)?.state()?;
        self.streams.remove(&id.0);
        if let Some(entry) = self.entries.get_mut(&cid) {
            entry.repeat.stop();
        }
        self.quarantine(cid, ConnectionStage::Silent);
        Some(state)
    }

    fn snapshot(&self, id: StreamId) -> Option<StreamState> {
        self.entry_of(id)?.state()
    }
}
