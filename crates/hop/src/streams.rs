//! What the session needs of a hop transport: reliable, ordered, flow-controlled byte streams.

use alloc::vec::Vec;

use thiserror::Error;

use crate::policy::Policy;

/// Names one stream of one association. The mobile's are even, the base's odd; never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StreamId(pub u64);

/// Something happened to a stream. Readable and writable are edges: after one, read or write until
/// nothing moves before waiting for the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamEvent {
    /// The peer opened a stream.
    Incoming(StreamId),
    /// Bytes, an end or a reset can be read where there was nothing before.
    Readable(StreamId),
    /// There is room to write where there was none before.
    Writable(StreamId),
    /// The peer [has more](Streams::acknowledged) of a stream for which that is [reported](Streams::report_acknowledged).
    Acknowledged(StreamId),
    /// The peer acknowledged everything up to and including our end.
    Finished(StreamId),
    /// Both directions are over and everything was read: the transport has removed the stream.
    Closed(StreamId),
}

/// How far reading has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecvState {
    /// More bytes are here or may come.
    Open,
    /// The peer ended the stream and every byte was consumed.
    Finished,
    /// The peer gave the stream up; the code is the session's. Unread bytes are gone.
    Reset(u64),
}

/// Why a stream cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum StreamError {
    /// No such stream, or it was closed or reset from this side.
    #[error("the stream does not exist or is closed")]
    Unknown,
    /// This side has already ended the stream.
    #[error("the stream was already finished")]
    Finished,
    /// The peer gave the stream up, with the session's code.
    #[error("the peer reset the stream (code {0})")]
    Reset(u64),
    /// As many streams as the configuration allows are open.
    #[error("too many streams are open")]
    TooMany,
}

/// What one end of a stream holds when it leaves its transport. Offsets count from the stream's
/// first byte.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct StreamState {
    /// Offset of the first byte of `send`: the peer has acknowledged everything before, and
    /// [released](Streams::release) it where it is kept until then.
    pub send_start: u64,
    /// Bytes written and not acknowledged, or not released, whether they were sent or not.
    pub send: Vec<u8>,
    /// This side has ended the stream behind those bytes.
    pub send_ended: bool,
    /// Offset of the next byte expected in order. What arrived beyond a hole is not kept: it was
    /// never acknowledged in order, so the peer still has it.
    pub received: u64,
    /// Bytes before `received` that were not consumed.
    pub unread: Vec<u8>,
    /// The peer's end is known and everything before it arrived.
    pub recv_ended: bool,
}

/// Reliable byte streams over one hop.
///
/// A transport is a machine: calls never block and never do I/O. Bytes are written into and read
/// out of the transport's own buffers, so that a byte is copied once on its way to a socket.
pub trait Streams {
    /// Opens a stream towards the peer. The peer learns of it with the first bytes.
    ///
    /// # Errors
    ///
    /// [`StreamError::TooMany`] at the configured bound.
    fn open(&mut self) -> Result<StreamId, StreamError>;

    /// The next thing that happened, if any.
    fn poll_event(&mut self) -> Option<StreamEvent>;

    /// Room for the next bytes to send: one contiguous piece, empty while the stream is not
    /// writable. Fill a prefix of it and call [`commit`](Self::commit).
    ///
    /// # Errors
    ///
    /// The stream is unknown, finished from this side, or was reset by the peer.
    fn send_space(&mut self, id: StreamId) -> Result<&mut [u8], StreamError>;

    /// The first `n` bytes of the room returned by [`send_space`](Self::send_space) are to be sent. With none the
    /// room need not be kept: nothing is there that it could be filled with.
    fn commit(&mut self, id: StreamId, n: usize);

    /// Ends our direction after the bytes written so far (half-close). Idempotent.
    fn finish(&mut self, id: StreamId);

    /// Gives up both directions: unsent and unread bytes are dropped, the peer sees `code`.
    fn reset(&mut self, id: StreamId, code: u64);

    /// Received bytes in order: one contiguous piece, empty if there are none now.
    fn received(&self, id: StreamId) -> &[u8];

    /// The first `n` bytes of [`received`](Self::received) were taken.
    fn consume(&mut self, id: StreamId, n: usize);

    /// Whether more can come. An unknown stream reads as finished.
    fn recv_state(&self, id: StreamId) -> RecvState;

    /// Gives a stream a priority relative to the association's others, which all have 1 to begin
    /// with; the peer is notified, and the later value of the two ends counts. A transport that does not
    /// divide its window and rate among streams ignores it.
    fn set_priority(&mut self, _id: StreamId, _priority: u32) {}

    /// Names the host whose stream it is; the peer is told. Hosts share the rate before their streams do, each together with
    /// its packets. All are the same host's, of name 0, to begin with. A transport that does not divide its rate among
    /// streams ignores it.
    fn set_client(&mut self, _id: StreamId, _client: u32) {}

    /// Says which paths may carry a stream; the peer is told, and the later value of the two ends counts. All are
    /// [`Policy::Speed`] to begin with. A transport with one path to the peer ignores it.
    fn set_policy(&mut self, _id: StreamId, _policy: Policy) {}

    /// Copies as much of `data` as there is room for; the number of bytes taken.
    ///
    /// # Errors
    ///
    /// As [`send_space`](Self::send_space).
    fn write(&mut self, id: StreamId, data: &[u8]) -> Result<usize, StreamError> {
        let mut taken = 0;
        while taken < data.len() {
            let room = self.send_space(id)?;
            let n = room.len().min(data.len() - taken);
            if n == 0 {
                break;
            }
            room[..n].copy_from_slice(&data[taken..taken + n]);
            self.commit(id, n);
            taken += n;
        }
        Ok(taken)
    }

    /// Takes a stream out, to go on elsewhere (MHP-17, MHP-19). The transport removes it and sends the
    /// peer nothing: a stream that is detached at one end only never ends at the other. Events of it that
    /// were not polled may still come and mean nothing.
    ///
    /// `None` if the stream is unknown, was given up by either side, is over, or cannot be moved.
    fn detach(&mut self, _id: StreamId) -> Option<StreamState> {
        None
    }

    /// What [`detach`](Self::detach) would give at this moment. The stream goes on as it was
    /// (MOB-39).
    fn snapshot(&self, _id: StreamId) -> Option<StreamState> {
        None
    }

    /// Of a stream that was [detached](Self::detach): before which offset all of its bytes had come to the
    /// peer by then. Known once the peer has answered something that was sent later; never in a transport
    /// that does not follow what it has handed over.
    fn arrived(&self, _id: StreamId) -> Option<u64> {
        None
    }

    /// Of a stream that is here, before which offset the peer has acknowledged all bytes, and its end is one byte more: what
    /// it has for good, whatever becomes of this side. `None` where the transport does not follow that.
    fn acknowledged(&self, _id: StreamId) -> Option<u64> {
        None
    }

    /// From here on [`StreamEvent::Acknowledged`] comes when a stream's [`acknowledged`](Self::acknowledged) has grown, once
    /// until it is polled.
    fn report_acknowledged(&mut self, _id: StreamId) {}

    /// What was consumed of a stream, but for its last `behind` bytes, is where it goes for good, and with `end` the stream's
    /// end, if it was read. From the first call on the peer keeps what it has sent, though it was acknowledged, until it is
    /// released so, and [`snapshot`](Self::snapshot) has it there; and the stream is not over before its end is released.
    /// False if it was over before. A transport that cannot do that ignores it.
    fn release(&mut self, _id: StreamId, _behind: u64, _end: bool) -> bool {
        true
    }

    /// Nothing of a stream is [released](Self::release) by and by: the peer need not keep what is acknowledged.
    fn release_ahead(&mut self, _id: StreamId) {}

    /// Keeps what is sent on a stream until the peer releases it, before that says so. A transport that cannot do that
    /// ignores it.
    fn retain(&mut self, _id: StreamId) {}

    /// Of a stream that is here, before which offset all bytes have most likely arrived by now, as far as the
    /// peer's last acknowledgement and the path's delay tell; never less than what is acknowledged. A
    /// presumption, and possibly wrong. `None` where the transport has none.
    fn presumed(&self, _id: StreamId) -> Option<u64> {
        None
    }
}

/// Implements [`Streams`] for a type whose streams are those of a part of it: the part, seen shared and
/// exclusively.
#[macro_export]
macro_rules! streams_of {
    ([$($generics:tt)*] $type:ty, |$it:ident| $shared:expr, $own:expr) => {
        impl<$($generics)*> $crate::Streams for $type {
            fn open(&mut self) -> Result<$crate::StreamId, $crate::StreamError> {
                let $it = self;
                $own.open()
            }

            fn poll_event(&mut self) -> Option<$crate::StreamEvent> {
                let $it = self;
                $own.poll_event()
            }

            fn send_space(
                &mut self,
                id: $crate::StreamId,
            ) -> Result<&mut [u8], $crate::StreamError> {
                let $it = self;
                $own.send_space(id)
            }

            fn commit(&mut self, id: $crate::StreamId, n: usize) {
                let $it = self;
                $own.commit(id, n);
            }

            fn finish(&mut self, id: $crate::StreamId) {
                let $it = self;
                $own.finish(id);
            }

            fn reset(&mut self, id: $crate::StreamId, code: u64) {
                let $it = self;
                $own.reset(id, code);
            }

            fn received(&self, id: $crate::StreamId) -> &[u8] {
                let $it = self;
                $shared.received(id)
            }

            fn consume(&mut self, id: $crate::StreamId, n: usize) {
                let $it = self;
                $own.consume(id, n);
            }

            fn recv_state(&self, id: $crate::StreamId) -> $crate::RecvState {
                let $it = self;
                $shared.recv_state(id)
            }

            fn set_priority(&mut self, id: $crate::StreamId, priority: u32) {
                let $it = self;
                $own.set_priority(id, priority);
            }

            fn set_client(&mut self, id: $crate::StreamId, client: u32) {
                let $it = self;
                $own.set_client(id, client);
            }

            fn set_policy(&mut self, id: $crate::StreamId, policy: $crate::Policy) {
                let $it = self;
                $own.set_policy(id, policy);
            }

            fn detach(&mut self, id: $crate::StreamId) -> Option<$crate::StreamState> {
                let $it = self;
                $own.detach(id)
            }

            fn snapshot(&self, id: $crate::StreamId) -> Option<$crate::StreamState> {
                let $it = self;
                $shared.snapshot(id)
            }

            fn arrived(&self, id: $crate::StreamId) -> Option<u64> {
                let $it = self;
                $shared.arrived(id)
            }

            fn acknowledged(&self, id: $crate::StreamId) -> Option<u64> {
                let $it = self;
                $shared.acknowledged(id)
            }

            fn report_acknowledged(&mut self, id: $crate::StreamId) {
                let $it = self;
                $own.report_acknowledged(id)
            }

            fn release(&mut self, id: $crate::StreamId, behind: u64, end: bool) -> bool {
                let $it = self;
                $own.release(id, behind, end)
            }

            fn release_ahead(&mut self, id: $crate::StreamId) {
                let $it = self;
                $own.release_ahead(id)
            }

            fn retain(&mut self, id: $crate::StreamId) {
                let $it = self;
                $own.retain(id)
            }

            fn presumed(&self, id: $crate::StreamId) -> Option<u64> {
                let $it = self;
                $shared.presumed(id)
            }
        }
    };
}

streams_of!([T: Streams + ?Sized] &mut T, |it| (**it), (**it));
