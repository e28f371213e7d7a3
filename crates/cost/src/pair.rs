//! Two ends of a link in one thread, with an application at each.

use lasthop_units::{Duration, Time};

use crate::link::Queue;
use crate::socket::{Fd, SocketError, Sockets};
use crate::stack::{Conn, Stack};

/// What the clock advances by from one buffer to the next. Stacks read the time from memory, as
/// kernels do between clock interrupts; what reading a clock costs is nobody's here.
const STEP: Duration = Duration::from_micros(1);

/// Calls in a row that move nothing, after which a transfer is given up. Timers of a second expire
/// long before.
const STUCK: u32 = 10_000_000;

/// A transfer that stopped moving.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ExchangeError {
    /// A socket call failed.
    #[error("a socket call failed: {0}")]
    Socket(#[from] SocketError),
    /// Nothing moves any more.
    #[error("the transfer stands still")]
    Stuck,
}

struct End<S, L> {
    stack: S,
    sockets: L,
    fd: Fd,
}

impl<S: Stack, L: Sockets<S>> End<S, L> {
    /// Takes all frames that wait, and answers what asks for an answer.
    #[inline]
    fn take(&mut self, now: Time, from: &mut Queue, to: &mut Queue) {
        self.stack.expire(now, to);
        while let Some(frame) = from.front() {
            let conn = self.stack.input(now, frame);
            from.pop();
            if let Some(conn) = conn {
                self.sockets.wake(&mut self.stack, conn);
                self.stack.output(now, conn, to);
            }
        }
    }
}

/// What frames travel by.
pub trait Wire {
    /// The frames in the queue to an end leave, and those that have arrived there take their place.
    fn pass(&mut self, to: usize, queue: &mut Queue);
}

/// The queue itself: a frame has arrived when it was sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory;

impl Wire for Memory {
    #[inline]
    fn pass(&mut self, _to: usize, _queue: &mut Queue) {}
}

/// Two hosts, the link between them and one connection over it.
pub struct Pair<S, L, W = Memory> {
    ends: [End<S, L>; 2],
    wire: W,
    /// What is on its way to each end.
    queues: [Queue; 2],
    now: Time,
}

impl<S: Stack, L: Sockets<S>> Pair<S, L> {
    /// Two connected stacks, each under a socket layer, with nothing but memory between them.
    pub fn new(connected: ([S; 2], [Conn; 2]), layer: impl FnMut() -> L) -> Self {
        Self::over(Memory, connected, layer)
    }
}

impl<S: Stack, L: Sockets<S>, W: Wire> Pair<S, L, W> {
    /// Two connected stacks, each under a socket layer, with a wire between them.
    pub fn over(
        wire: W,
        (stacks, conns): ([S; 2], [Conn; 2]),
        mut layer: impl FnMut() -> L,
    ) -> Self {
        let [a, b] = stacks;
        let mut end = |stack, conn| {
            let mut sockets = layer();
            let fd = sockets.attach(conn);
            End { stack, sockets, fd }
        };
        let ends = [end(a, conns[0]), end(b, conns[1])];
        Self { ends, wire, queues: Default::default(), now: Time::from_secs(1) }
    }

    /// Sends from one end as much of `data` as is taken now.
    ///
    /// # Errors
    ///
    /// As a socket call that does not block.
    #[inline]
    pub fn send(&mut self, end: usize, data: &[u8]) -> Result<usize, SocketError> {
        let [a, b] = &mut self.queues;
        let link = if end == 0 { b } else { a };
        let End { stack, sockets, fd } = &mut self.ends[end];
        sockets.send(stack, *fd, data, self.now, link)
    }

    /// Lets one end take the frames that have arrived and then receive.
    ///
    /// # Errors
    ///
    /// As a socket call that does not block.
    #[inline]
    pub fn receive(&mut self, end: usize, out: &mut [u8]) -> Result<usize, SocketError> {
        let [a, b] = &mut self.queues;
        let (from, to) = if end == 0 { (a, b) } else { (b, a) };
        let it = &mut self.ends[end];
        self.wire.pass(end, from);
        it.take(self.now, from, to);
        if !it.sockets.readable(&it.stack, it.fd) {
            return Err(SocketError::WouldBlock);
        }
        it.sockets.receive(&mut it.stack, it.fd, out, self.now, to)
    }

    /// Lets one end take the frames that have arrived.
    #[inline]
    pub fn take(&mut self, end: usize) {
        let [a, b] = &mut self.queues;
        let (from, to) = if end == 0 { (a, b) } else { (b, a) };
        self.wire.pass(end, from);
        self.ends[end].take(self.now, from, to);
    }

    /// Time passes.
    #[inline]
    pub fn pass(&mut self, by: Duration) {
        self.now += by;
    }

    /// Carries `data` from one end to the other, into `out`, which is as long.
    ///
    /// # Errors
    ///
    /// A call fails, or nothing moves any more.
    #[inline]
    pub fn carry(&mut self, from: usize, data: &[u8], out: &mut [u8]) -> Result<(), ExchangeError> {
        self.now += STEP;
        let (mut sent, mut received, mut idle) = (0, 0, 0);
        while received < out.len() {
            let before = (sent, received);
            if sent < data.len() {
                sent += not_yet(self.send(from, &data[sent..]))?;
            }
            received += not_yet(self.receive(1 - from, &mut out[received..]))?;
            if (sent, received) == before || sent < data.len() {
                // Window updates, acknowledgements, and in the end timers.
                self.take(from);
                self.now += STEP;
            }
            idle = if (sent, received) == before { idle + 1 } else { 0 };
            if idle > STUCK {
                return Err(ExchangeError::Stuck);
            }
        }
        Ok(())
    }
}

/// A call that would block has moved nothing.
fn not_yet(result: Result<usize, SocketError>) -> Result<usize, SocketError> {
    match result {
        Err(SocketError::WouldBlock) => Ok(0),
        other => other,
    }
}

#[cfg(test)]
mod tests;
