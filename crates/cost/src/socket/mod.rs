//! Socket layers: what an application's calls pass through on their way to a stack.
//!
//! The same three over every stack (MOB-47): none, the light one that Mobile TCP was given (MOB-45),
//! and a standard one in the manner of BSD.

mod light;
mod standard;

pub use light::{Direct, Light};
pub use standard::{Buffering, Standard};

use lasthop_units::Time;
use thiserror::Error;

use crate::link::Queue;
use crate::stack::{Conn, Stack};

/// What an application calls its socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fd(pub usize);

/// Why a call failed, as errno would say it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SocketError {
    /// EBADF.
    #[error("descriptor {0} is not an open socket")]
    BadDescriptor(usize),
    /// ENOTCONN.
    #[error("the socket is not connected")]
    NotConnected,
    /// EPIPE.
    #[error("this direction of the socket was shut down")]
    Shut,
    /// EWOULDBLOCK.
    #[error("the call would block")]
    WouldBlock,
}

/// A socket layer over a stack.
pub trait Sockets<S: Stack> {
    /// Gives a connection a descriptor.
    fn attach(&mut self, conn: Conn) -> Fd;

    /// Takes bytes to send, at least one of `data`, and has the stack send; the number taken.
    ///
    /// # Errors
    ///
    /// As a socket call that does not block.
    fn send(
        &mut self,
        stack: &mut S,
        fd: Fd,
        data: &[u8],
        now: Time,
        link: &mut Queue,
    ) -> Result<usize, SocketError>;

    /// Gives received bytes, at least one; the number given.
    ///
    /// # Errors
    ///
    /// As a socket call that does not block.
    fn receive(
        &mut self,
        stack: &mut S,
        fd: Fd,
        out: &mut [u8],
        now: Time,
        link: &mut Queue,
    ) -> Result<usize, SocketError>;

    /// A frame for the connection has arrived: what it brought becomes readable.
    fn wake(&mut self, stack: &mut S, conn: Conn);

    /// Whether a call to receive would not block, as an application asks before it calls.
    fn readable(&self, stack: &S, fd: Fd) -> bool;
}

/// Copies what fits from `data` to where the stack sends from; the number of bytes.
fn push<S: Stack>(stack: &mut S, conn: Conn, data: &[u8]) -> usize {
    let mut taken = 0;
    while taken < data.len() {
        let room = stack.send_space(conn);
        let n = room.len().min(data.len() - taken);
        if n == 0 {
            break;
        }
        room[..n].copy_from_slice(&data[taken..taken + n]);
        stack.commit(conn, n);
        taken += n;
    }
    taken
}

/// Copies what has arrived to `out`; the number of bytes.
fn pull<S: Stack>(stack: &mut S, conn: Conn, out: &mut [u8]) -> usize {
    let mut given = 0;
    while given < out.len() {
        let there = stack.received(conn);
        let n = there.len().min(out.len() - given);
        if n == 0 {
            break;
        }
        out[given..given + n].copy_from_slice(&there[..n]);
        stack.consume(conn, n);
        given += n;
    }
    given
}

#[cfg(test)]
mod tests;
