//! One stream's buffers and state.

use lasthop_hop::RecvState;

/// How far one direction's end has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// Not asked for.
    Open,
    /// Asked for, to be sent behind the buffered bytes.
    Wanted,
    /// Sent.
    Sent,
    /// Acknowledged.
    Acked,
}

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: u64,
    /// Bytes to send, filled to `send_len`.
    pub(super) send: Box<[u8]>,
    pub(super) send_len: usize,
    pub(super) sent: u64,
    /// How far the peer lets us send.
    pub(super) send_limit: u64,
    pub(super) end: End,
    /// A reset of ours: its code and how far it has come.
    pub(super) reset: Option<(u64, End)>,
    pub(super) full: bool,
    /// Bytes received and not consumed.
    pub(super) recv: Vec<u8>,
    pub(super) recv_at: usize,
    pub(super) recv_total: u64,
    pub(super) consumed: u64,
    pub(super) granted: u64,
    pub(super) peer_ended: bool,
    pub(super) peer_reset: Option<u64>,
    pub(super) closing: bool,
}

impl Stream {
    /// A stream that buffers `buffer` bytes in each direction.
    pub(super) fn new(id: u64, buffer: usize) -> Self {
        Self {
            id,
            send: vec![0; buffer].into_boxed_slice(),
            send_len: 0,
            sent: 0,
            send_limit: buffer as u64,
            end: End::Open,
            reset: None,
            full: false,
            recv: Vec::new(),
            recv_at: 0,
            recv_total: 0,
            consumed: 0,
            granted: buffer as u64,
            peer_ended: false,
            peer_reset: None,
            closing: false,
        }
    }

    pub(super) fn received(&self) -> &[u8] {
        &self.recv[self.recv_at..]
    }

    pub(super) fn consume(&mut self, n: usize) {
        let n = n.min(self.recv.len() - self.recv_at);
        self.recv_at += n;
        self.consumed += n as u64;
        if self.recv_at == self.recv.len() {
            self.recv.clear();
            self.recv_at = 0;
        }
    }

    /// The window to grant, once it has moved by half of itself.
    pub(super) fn grant_due(&self) -> Option<u64> {
        let limit = self.consumed + self.send.len() as u64;
        let open = !self.peer_ended && self.peer_reset.is_none() && self.reset.is_none();
        (open && limit - self.granted >= self.send.len() as u64 / 2).then_some(limit)
    }

    pub(super) fn recv_state(&self) -> RecvState {
        match self.peer_reset {
            Some(code) => RecvState::Reset(code),
            None if self.peer_ended && self.received().is_empty() => RecvState::Finished,
            None => RecvState::Open,
        }
    }

    /// How many bytes may be sent with `room` bytes left in a datagram.
    pub(super) fn sendable(&self, room: usize, ignore_window: bool) -> usize {
        if self.reset.is_some() || self.peer_reset.is_some() {
            return 0;
        }
        let window = if ignore_window { u64::MAX } else { self.send_limit - self.sent };
        self.send_len.min(room).min(usize::try_from(window).unwrap_or(usize::MAX))
    }

    /// Both directions are over and nothing is left to read.
    pub(super) fn is_over(&self) -> bool {
        if let Some((_, end)) = self.reset {
            return end == End::Acked;
        }
        if self.peer_reset.is_some() {
            return true;
        }
        self.end == End::Acked && self.peer_ended && self.received().is_empty()
    }

    pub(super) fn drop_buffers(&mut self) {
        self.send_len = 0;
        self.recv.clear();
        self.recv_at = 0;
    }
}
