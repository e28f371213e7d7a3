//! One stream of split-tcp: one kernel TCP connection, records each way.

use std::collections::VecDeque;

use lasthop_hop::{RecvState, StreamError, StreamEvent, StreamId, StreamState};
use lasthop_kernel::reactor::Readiness;
use lasthop_kernel::slab::Key;
use lasthop_kernel::tcp::{self, Moved, Socket};
use lasthop_units::Time;

use super::cipher::{Opener, Sealer};
use super::inbound::Inbound;
use super::lost;
use super::outbound::Outbound;
use super::priority::USUAL;

/// Bytes of records that are read at once, per stream.
pub(super) const IN_CAPACITY: usize = 128 * 1024;

/// What has changed on a stream that its owner has to report or to follow up.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct StreamChanges {
    /// Bytes, an end or a reset can be read where there was nothing.
    pub(super) readable: bool,
    /// There is room where there was none.
    pub(super) writable: bool,
    /// The peer's process has everything and our end.
    pub(super) finished: bool,
    /// The kernel has more, which waits so that the reader gets his turn.
    pub(super) again: bool,
    /// An acknowledgement is pending that can wait a little.
    pub(super) ack_pending: bool,
}

/// One stream.
#[derive(Debug)]
pub(super) struct Stream {
    /// The socket's entry among the hop's connections.
    key: Option<Key>,
    socket: Option<Socket>,
    connecting: bool,
    /// The peer's kernel has ended the connection.
    peer_closed: bool,
    preface: Vec<u8>,
    pub(super) out: Outbound,
    pub(super) into: Inbound,
    /// Why the stream is over before its time.
    broken: Option<u64>,
    /// `broken` was reported to the owner.
    break_reported: bool,
    finish_reported: bool,
    /// The reader has found nothing and waits for an event.
    reader_waits: bool,
    /// The writer has found no room and waits for an event.
    writer_waits: bool,
    /// The acknowledgement is to be sent without further delay.
    ack_now: bool,
    /// Since when it waits for nothing but acknowledgements.
    pub(super) stalled_since: Option<Time>,
    pub(super) dirty: bool,
    /// The acknowledgement is among the delayed ones.
    pub(super) ack_delayed: bool,
    pub(super) closed: bool,
    /// A connection was requested from the peer.
    pub(super) requested: bool,
    /// The peer opened it, and that is not reported yet.
    pub(super) unreported: bool,
    pub(super) priority: u32,
}

impl Stream {
    /// A stream without a connection.
    pub(super) fn new() -> Self {
        Self::with(Inbound::new(IN_CAPACITY))
    }

    fn with(into: Inbound) -> Self {
        Self {
            key: None,
            socket: None,
            connecting: false,
            peer_closed: false,
            preface: Vec::new(),
            out: Outbound::new(),
            into,
            broken: None,
            break_reported: false,
            finish_reported: false,
            reader_waits: true,
            writer_waits: false,
            ack_now: false,
            stalled_since: None,
            dirty: false,
            ack_delayed: false,
            closed: false,
            requested: false,
            unreported: false,
            priority: USUAL,
        }
    }

    /// Whether a connection was given to the stream, which it may have lost again.
    pub(super) fn started(&self) -> bool {
        self.out.started() || self.broken.is_some()
    }

    /// Uses a connection that is being made; `preface` goes first.
    pub(super) fn connect(
        &mut self,
        key: Key,
        socket: Socket,
        preface: Vec<u8>,
        (sealer, opener): (Sealer, Opener),
    ) {
        self.key = Some(key);
        self.socket = Some(socket);
        self.connecting = true;
        self.preface = preface;
        self.out.start(sealer);
        self.into.start(opener);
    }

    /// A stream that the peer has opened and we give a connection: we send first.
    pub(super) fn prove(&mut self) {
        self.out.prove();
    }

    /// Uses the connection that the peer has made for this stream of ours, and the records that came
    /// on it so far.
    pub(super) fn attach(&mut self, key: Key, socket: Socket, mut into: Inbound, sealer: Sealer) {
        into.grow(IN_CAPACITY);
        self.key = Some(key);
        self.socket = Some(socket);
        self.into = into;
        self.out.start(sealer);
    }

    /// A stream on a connection that the peer made, and the records that came on it so far.
    pub(super) fn accept(key: Key, socket: Socket, mut into: Inbound, sealer: Sealer) -> Self {
        into.grow(IN_CAPACITY);
        let mut stream = Self::with(into);
        stream.key = Some(key);
        stream.socket = Some(socket);
        stream.out.start(sealer);
        stream
    }

    /// Takes over what the kernel reported.
    pub(super) fn ready(&mut self, readiness: Readiness) {
        if let Some(socket) = &mut self.socket {
            socket.ready(readiness);
        }
    }

    /// The pending acknowledgement is to be sent at once.
    pub(super) fn acknowledge_now(&mut self) {
        self.ack_now = true;
        self.ack_delayed = false;
    }

    /// Ends the stream from below: the reader sees a reset with `code`.
    pub(super) fn terminate(&mut self, code: u64) {
        self.broken.get_or_insert(code);
    }

    /// Moves bytes both ways until the kernel or a buffer stops it, or the reader is due.
    pub(super) fn pump(&mut self) -> StreamChanges {
        let mut changes = StreamChanges::default();
        if self.broken.is_none() {
            match self.exchange() {
                Ok(again) => changes.again = again,
                Err(code) => self.terminate(code),
            }
        }
        if self.broken.is_none() {
            changes.ack_pending = self.into.pending_ack().is_some();
            changes.finished = self.out.is_finished() && !self.finish_reported;
            self.finish_reported |= changes.finished;
        }
        if self.reader_waits && self.is_readable() {
            self.reader_waits = false;
            changes.readable = true;
        }
        if self.broken.is_some() && !self.break_reported {
            self.break_reported = true;
            changes.readable = true;
        }
        if self.writer_waits && (self.out.writable() || self.broken.is_some()) {
            self.writer_waits = false;
            changes.writable = true;
        }
        changes
    }

    /// There is more room. True if the writer waits for an event.
    pub(super) fn wake_writer(&mut self) -> bool {
        std::mem::take(&mut self.writer_waits)
    }

    /// Queues the events that `changes` has for reader and writer.
    pub(super) fn report_events(
        &mut self,
        id: StreamId,
        changes: StreamChanges,
        events: &mut VecDeque<StreamEvent>,
    ) {
        if std::mem::take(&mut self.unreported) {
            events.push_back(StreamEvent::Incoming(id));
        }
        if changes.readable {
            events.push_back(StreamEvent::Readable(id));
        }
        if changes.writable {
            events.push_back(StreamEvent::Writable(id));
        }
        if changes.finished {
            events.push_back(StreamEvent::Finished(id));
        }
        if self.is_over() && !self.closed {
            self.closed = true;
            events.push_back(StreamEvent::Closed(id));
        }
    }

    /// True if the kernel may have more to read.
    fn exchange(&mut self) -> Result<bool, u64> {
        if self.socket.is_none() || !self.establish()? {
            return Ok(false);
        }
        let again = self.read()?;
        if let Some(ack) = self.into.take_ack() {
            self.out.handle_ack(ack).map_err(|_| lost())?;
        }
        // A connection that ends before both sides have acknowledged everything was cut.
        if self.peer_closed
            && !(self.out.is_finished() && self.into.recv_state() == RecvState::Finished)
        {
            return Err(lost());
        }
        self.write()?;
        Ok(again)
    }

    /// True once the connection stands.
    fn establish(&mut self) -> Result<bool, u64> {
        let Some(socket) = &self.socket else { return Ok(false) };
        if !self.connecting {
            return Ok(true);
        }
        if !socket.writable() {
            return Ok(false);
        }
        match tcp::connected(&socket.fd) {
            Some(Ok(())) => self.connecting = false,
            Some(Err(_)) => return Err(lost()),
            None => return Ok(false),
        }
        Ok(true)
    }

    /// Reads so much that the reader has something to do; true if there may be more.
    fn read(&mut self) -> Result<bool, u64> {
        let mut left = IN_CAPACITY;
        while let Some(socket) = &mut self.socket {
            if self.peer_closed || !socket.readable() {
                break;
            }
            let room = self.into.space();
            let most = room.len().min(left);
            let Some(room) = room.get_mut(..most).filter(|room| !room.is_empty()) else {
                return Ok(true);
            };
            match socket.read(room) {
                Moved::Bytes(n) => {
                    left -= n;
                    self.into.filled(n);
                    self.into.open_records().map_err(|_| lost())?;
                }
                Moved::Blocked => break,
                Moved::End => self.peer_closed = true,
                Moved::Broken(_) => return Err(lost()),
            }
            if let RecvState::Reset(code) = self.into.recv_state() {
                return Err(code);
            }
        }
        // What came with the greeting is not opened yet.
        self.into.open_records().map_err(|_| lost())?;
        match self.into.recv_state() {
            RecvState::Reset(code) => Err(code),
            RecvState::Open | RecvState::Finished => Ok(false),
        }
    }

    fn write(&mut self) -> Result<(), u64> {
        loop {
            self.acknowledge();
            let Some(socket) = &mut self.socket else { return Ok(()) };
            let early = !self.preface.is_empty();
            let pending = if early { &self.preface } else { self.out.pending() };
            if pending.is_empty() {
                return Ok(());
            }
            match socket.write(pending) {
                Moved::Bytes(n) if early => drop(self.preface.drain(..n)),
                Moved::Bytes(n) => self.out.sent(n),
                Moved::Blocked | Moved::End => return Ok(()),
                Moved::Broken(_) => return Err(lost()),
            }
        }
    }

    /// Acknowledges if the peer may wait for it, or if something is sent anyway.
    fn acknowledge(&mut self) {
        let Some(pending) = self.into.pending_ack() else {
            self.ack_now = false;
            return;
        };
        let due = pending.urgent || self.ack_now || self.out.has_more();
        if due && self.out.acknowledge(pending.ack) {
            self.into.set_acknowledged(pending.ack);
            self.ack_now = false;
        }
    }

    fn is_readable(&self) -> bool {
        self.broken.is_some()
            || !self.into.plain().is_empty()
            || self.into.recv_state() != RecvState::Open
    }

    /// Whether it has a connection that stands.
    pub(super) fn is_connected(&self) -> bool {
        self.socket.is_some() && !self.connecting
    }

    /// Whether both directions are over, both sides know, and everything was read.
    pub(super) fn is_over(&self) -> bool {
        self.broken.is_some()
            || (self.out.is_finished()
                && self.into.recv_state() == RecvState::Finished
                && self.into.plain().is_empty()
                && self.into.pending_ack().is_none()
                && self.out.is_flushed())
    }

    /// What the stream holds, if it can go on elsewhere.
    pub(super) fn state(&self) -> Option<StreamState> {
        if self.unreported || self.closed || self.is_over() {
            return None;
        }
        let (send_start, send) = self.out.unacknowledged();
        Some(StreamState {
            send_start,
            send,
            send_ended: self.out.is_ended(),
            received: self.into.received(),
            unread: self.into.unread(),
            recv_ended: self.into.recv_state() == RecvState::Finished,
        })
    }

    /// Takes the connection away, to be closed: what it still has to do, and its key.
    pub(super) fn take_socket(&mut self) -> Option<(Key, Socket)> {
        self.key.take().zip(self.socket.take())
    }

    /// Whether a connection that is taken away should end with a reset.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Aborts the stream for its user. True if the kernel took the reset record with `code`, so that
    /// the connection should be closed only once the peer has read it.
    pub(super) fn abort(&mut self, code: u64) -> bool {
        if self.socket.is_none() || self.broken.is_some() || self.connecting {
            return false;
        }
        self.out.reset(code);
        self.write().is_ok() && self.preface.is_empty() && self.out.is_flushed()
    }

    /// Room for payload.
    pub(super) fn space(&mut self) -> Result<&mut [u8], StreamError> {
        if let Some(code) = self.broken {
            return Err(StreamError::Reset(code));
        }
        if self.out.is_ended() {
            return Err(StreamError::Finished);
        }
        self.writer_waits = !self.out.writable();
        Ok(self.out.space())
    }

    /// Payload that was not taken.
    pub(super) fn received(&self) -> &[u8] {
        if self.broken.is_some() { &[] } else { self.into.plain() }
    }

    /// `n` bytes of [`received`](Self::received) were taken.
    pub(super) fn consume(&mut self, n: usize) {
        self.into.consume(n);
        self.reader_waits = !self.is_readable();
    }

    /// How reading stands.
    pub(super) fn recv_state(&self) -> RecvState {
        match self.broken {
            Some(code) => RecvState::Reset(code),
            None if self.into.plain().is_empty() => self.into.recv_state(),
            None => RecvState::Open,
        }
    }

    /// The connection, for its statistics.
    pub(super) fn socket(&self) -> Option<&Socket> {
        self.socket.as_ref()
    }
}
