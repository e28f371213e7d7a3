//! The light socket layer (MOB-45), and none at all.

use lasthop_units::Time;

use super::{Fd, SocketError, Sockets, pull, push};
use crate::link::Queue;
use crate::stack::{Conn, Stack};

/// A library straight over the transport (MOB-45): a descriptor is a connection, a call copies once
/// between the application and the transport's own buffer, and nothing is kept in between.
#[derive(Clone, Debug, Default)]
pub struct Light {
    conns: Vec<Conn>,
    uncopied: bool,
}

impl Light {
    /// The same without its copy, to measure what the library costs beside it (MOB-46): what is sent
    /// is whatever lies in the transport's buffer.
    pub fn uncopied() -> Self {
        Self { uncopied: true, ..Self::default() }
    }

    fn conn(&self, fd: Fd) -> Result<Conn, SocketError> {
        self.conns.get(fd.0).copied().ok_or(SocketError::BadDescriptor(fd.0))
    }
}

impl<S: Stack> Sockets<S> for Light {
    fn attach(&mut self, conn: Conn) -> Fd {
        self.conns.push(conn);
        Fd(self.conns.len() - 1)
    }

    #[inline]
    fn send(
        &mut self,
        stack: &mut S,
        fd: Fd,
        data: &[u8],
        now: Time,
        link: &mut Queue,
    ) -> Result<usize, SocketError> {
        let conn = self.conn(fd)?;
        let n = match self.uncopied {
            false => push(stack, conn, data),
            true => skip_in(stack, conn, data.len()),
        };
        sent(stack, conn, n, now, link)
    }

    #[inline]
    fn receive(
        &mut self,
        stack: &mut S,
        fd: Fd,
        out: &mut [u8],
        now: Time,
        link: &mut Queue,
    ) -> Result<usize, SocketError> {
        let conn = self.conn(fd)?;
        let n = match self.uncopied {
            false => pull(stack, conn, out),
            true => skip_out(stack, conn, out.len()),
        };
        received(stack, conn, n, now, link)
    }

    #[inline]
    fn wake(&mut self, _stack: &mut S, _conn: Conn) {}

    #[inline]
    fn readable(&self, stack: &S, fd: Fd) -> bool {
        self.conn(fd).is_ok_and(|conn| !stack.received(conn).is_empty())
    }
}

/// No socket layer: the application works in the transport's buffers and nothing is copied for it.
/// What it "writes" is whatever is there, so this one is for measuring alone (MOB-47: protocol only).
#[derive(Clone, Copy, Debug, Default)]
pub struct Direct;

impl<S: Stack> Sockets<S> for Direct {
    fn attach(&mut self, conn: Conn) -> Fd {
        Fd(conn.0)
    }

    #[inline]
    fn send(
        &mut self,
        stack: &mut S,
        fd: Fd,
        data: &[u8],
        now: Time,
        link: &mut Queue,
    ) -> Result<usize, SocketError> {
        let n = skip_in(stack, Conn(fd.0), data.len());
        sent(stack, Conn(fd.0), n, now, link)
    }

    #[inline]
    fn receive(
        &mut self,
        stack: &mut S,
        fd: Fd,
        out: &mut [u8],
        now: Time,
        link: &mut Queue,
    ) -> Result<usize, SocketError> {
        let n = skip_out(stack, Conn(fd.0), out.len());
        received(stack, Conn(fd.0), n, now, link)
    }

    #[inline]
    fn wake(&mut self, _stack: &mut S, _conn: Conn) {}

    #[inline]
    fn readable(&self, stack: &S, fd: Fd) -> bool {
        !stack.received(Conn(fd.0)).is_empty()
    }
}

/// So many bytes are with the transport: whatever it has to send leaves.
#[inline]
fn sent<S: Stack>(
    stack: &mut S,
    conn: Conn,
    n: usize,
    now: Time,
    link: &mut Queue,
) -> Result<usize, SocketError> {
    stack.output(now, conn, link);
    if n == 0 { Err(SocketError::WouldBlock) } else { Ok(n) }
}

/// So many bytes were taken: the transport may have a window to tell.
#[inline]
fn received<S: Stack>(
    stack: &mut S,
    conn: Conn,
    n: usize,
    now: Time,
    link: &mut Queue,
) -> Result<usize, SocketError> {
    if n == 0 {
        return Err(SocketError::WouldBlock);
    }
    stack.output(now, conn, link);
    Ok(n)
}

/// Sends up to `most` bytes as they lie in the transport's buffer.
#[inline]
fn skip_in<S: Stack>(stack: &mut S, conn: Conn, most: usize) -> usize {
    let mut taken = 0;
    while taken < most {
        let n = stack.send_space(conn).len().min(most - taken);
        if n == 0 {
            break;
        }
        stack.commit(conn, n);
        taken += n;
    }
    taken
}

/// Passes over up to `most` received bytes.
#[inline]
fn skip_out<S: Stack>(stack: &mut S, conn: Conn, most: usize) -> usize {
    let mut given = 0;
    while given < most {
        let n = stack.received(conn).len().min(most - given);
        if n == 0 {
            break;
        }
        stack.consume(conn, n);
        given += n;
    }
    given
}
