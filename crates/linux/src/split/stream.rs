//! One stream of split-tcp: one kernel TCP connection, a ring of records each way.

use super::cipher::{Opener, Sealer};
use super::lost;
use super::record::{End, Inbound, Outbound};
use crate::reactor::Readiness;
use crate::slab::Key;
use crate::tcp::{self, Moved, Socket};

/// Bytes of records that wait for the kernel, per stream.
const OUT_CAPACITY: usize = 128 * 1024;
/// Bytes of records that wait for the reader, per stream.
const IN_CAPACITY: usize = 128 * 1024;

/// How far a direction's end has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Finish {
    Open,
    Wanted,
    Written,
}

/// What a pump found that the owner has to tell.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct News {
    /// Bytes, an end or a reset can be read where there was nothing.
    pub(super) readable: bool,
    /// There is room where there was none.
    pub(super) writable: bool,
    /// The kernel has our end.
    pub(super) finished: bool,
}

/// One stream.
#[derive(Debug)]
pub(super) struct Stream {
    /// Where the owner keeps whom the socket's events are for.
    place: Option<Key>,
    socket: Option<Socket>,
    connecting: bool,
    preface: Vec<u8>,
    out: Outbound,
    into: Inbound,
    finish: Finish,
    /// Why the stream is over before its time.
    broken: Option<u64>,
    /// The owner was told of `broken`.
    told: bool,
    /// The reader has found nothing and waits to be told.
    reader_waits: bool,
    /// The writer has found no room and waits to be told.
    writer_waits: bool,
    pub(super) dirty: bool,
    pub(super) closed: bool,
    /// The peer was asked for a connection.
    pub(super) asked: bool,
    /// The peer has asked for it, and nobody has heard of it yet.
    pub(super) called: bool,
}

impl Stream {
    /// A stream without a connection.
    pub(super) fn new() -> Self {
        Self {
            place: None,
            socket: None,
            connecting: false,
            preface: Vec::new(),
            out: Outbound::new(OUT_CAPACITY),
            into: Inbound::new(IN_CAPACITY),
            finish: Finish::Open,
            broken: None,
            told: false,
            reader_waits: true,
            writer_waits: false,
            dirty: false,
            closed: false,
            asked: false,
            called: false,
        }
    }

    /// Whether a connection was given to the stream, which it may have lost again.
    pub(super) fn started(&self) -> bool {
        self.out.started() || self.broken.is_some()
    }

    /// Uses a connection that is being made; `preface` goes first.
    pub(super) fn connect(
        &mut self,
        place: Key,
        socket: Socket,
        preface: Vec<u8>,
        (sealer, opener): (Sealer, Opener),
    ) {
        self.place = Some(place);
        self.socket = Some(socket);
        self.connecting = true;
        self.preface = preface;
        self.out.start(sealer);
        self.into.start(opener);
        if self.finish == Finish::Wanted {
            self.out.finish();
        }
    }

    /// A stream that the peer has opened and we give a connection: it hears from us first.
    pub(super) fn prove(&mut self) {
        self.out.prove();
    }

    /// Uses the connection that the peer has made for this stream of ours, and the records that came
    /// on it so far.
    pub(super) fn adopt(&mut self, place: Key, socket: Socket, mut into: Inbound, sealer: Sealer) {
        into.grow(IN_CAPACITY);
        self.place = Some(place);
        self.socket = Some(socket);
        self.into = into;
        self.out.start(sealer);
        if self.finish == Finish::Wanted {
            self.out.finish();
        }
    }

    /// A stream on a connection that the peer made, and the records that came on it so far.
    pub(super) fn accept(place: Key, socket: Socket, mut into: Inbound, sealer: Sealer) -> Self {
        into.grow(IN_CAPACITY);
        let mut stream = Self::new();
        stream.place = Some(place);
        stream.socket = Some(socket);
        stream.into = into;
        stream.out.start(sealer);
        stream
    }

    /// Notes what the kernel reported.
    pub(super) fn ready(&mut self, readiness: Readiness) {
        if let Some(socket) = &mut self.socket {
            socket.ready(readiness);
        }
    }

    /// Gives the stream up from below: the reader sees a reset with `code`.
    pub(super) fn break_off(&mut self, code: u64) {
        self.broken.get_or_insert(code);
    }

    /// Moves bytes both ways until the kernel or a buffer stops it.
    pub(super) fn pump(&mut self) -> News {
        if self.broken.is_none()
            && let Err(code) = self.exchange()
        {
            self.break_off(code);
        }
        let mut news = News::default();
        if self.reader_waits && self.has_news() {
            self.reader_waits = false;
            news.readable = true;
        }
        if self.broken.is_some() && !self.told {
            self.told = true;
            news.readable = true;
        }
        if self.writer_waits && (self.out.writable() || self.broken.is_some()) {
            self.writer_waits = false;
            news.writable = true;
        }
        if self.finish == Finish::Wanted && self.out_done() {
            self.finish = Finish::Written;
            news.finished = true;
        }
        news
    }

    fn exchange(&mut self) -> Result<(), u64> {
        if self.socket.is_none() || !self.establish()? {
            return Ok(());
        }
        self.read()?;
        self.write()
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

    fn read(&mut self) -> Result<(), u64> {
        let mut ended = false;
        while let Some(socket) = &mut self.socket {
            let room = self.into.space();
            if room.is_empty() || !socket.readable() {
                break;
            }
            match socket.read(room) {
                Moved::Bytes(n) => self.into.filled(n),
                Moved::Blocked => break,
                Moved::End => {
                    ended = true;
                    break;
                }
                Moved::Broken(_) => return Err(lost()),
            }
        }
        self.into.advance().map_err(|_| lost())?;
        match self.into.end() {
            End::Reset(code) if self.into.plain().is_empty() => Err(code),
            // An end that the peer did not write is a cut.
            End::Open if ended && self.into.plain().is_empty() => Err(lost()),
            _ => Ok(()),
        }
    }

    fn write(&mut self) -> Result<(), u64> {
        let Some(socket) = &mut self.socket else { return Ok(()) };
        loop {
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

    fn out_done(&self) -> bool {
        self.socket.is_some() && self.preface.is_empty() && self.out.is_empty()
    }

    fn has_news(&self) -> bool {
        self.broken.is_some() || !self.into.plain().is_empty() || self.into.end() != End::Open
    }

    /// Whether it has a connection that stands.
    pub(super) fn stands(&self) -> bool {
        self.socket.is_some() && !self.connecting
    }

    /// Whether both directions are over and everything was read.
    pub(super) fn is_over(&self) -> bool {
        self.broken.is_some()
            || (self.finish == Finish::Written
                && self.into.end() == End::Finished
                && self.into.plain().is_empty())
    }

    /// Takes the connection away, to be closed: what it still has to do, and its place.
    pub(super) fn take_socket(&mut self) -> Option<(Key, Socket)> {
        self.place.take().zip(self.socket.take())
    }

    /// Whether a connection that is taken away should end with a reset.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Gives the stream up from above. True if the kernel took all that tells the peer `code`, so
    /// that the connection should be closed only once the peer has read it.
    pub(super) fn abandon(&mut self, code: u64) -> bool {
        if self.socket.is_none() || self.broken.is_some() || self.connecting {
            return false;
        }
        self.out.reset(code);
        self.write().is_ok() && self.out_done()
    }

    /// Room for payload.
    pub(super) fn space(&mut self) -> Result<&mut [u8], SpaceError> {
        if let Some(code) = self.broken {
            return Err(SpaceError::Reset(code));
        }
        if self.finish != Finish::Open {
            return Err(SpaceError::Finished);
        }
        self.writer_waits = !self.out.writable();
        Ok(self.out.space())
    }

    /// `n` bytes of [`space`](Self::space) were filled.
    pub(super) fn commit(&mut self, n: usize) {
        self.out.commit(n);
    }

    /// Ends our direction.
    pub(super) fn finish(&mut self) {
        if self.finish == Finish::Open {
            self.finish = Finish::Wanted;
            if self.out.started() {
                self.out.finish();
            }
        }
    }

    /// Payload that was not taken.
    pub(super) fn received(&self) -> &[u8] {
        if self.broken.is_some() { &[] } else { self.into.plain() }
    }

    /// `n` bytes of [`received`](Self::received) were taken.
    pub(super) fn consume(&mut self, n: usize) {
        self.into.consume(n);
        if self.into.advance().is_err() {
            self.break_off(lost());
        }
        self.reader_waits = !self.has_news();
    }

    /// How reading stands.
    pub(super) fn end(&self) -> End {
        match self.broken {
            Some(code) => End::Reset(code),
            None if self.into.plain().is_empty() => self.into.end(),
            None => End::Open,
        }
    }

    /// The connection, for its statistics.
    pub(super) fn socket(&self) -> Option<&Socket> {
        self.socket.as_ref()
    }
}

/// Why there is no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SpaceError {
    /// The stream was ended from this side.
    Finished,
    /// The stream broke.
    Reset(u64),
}
