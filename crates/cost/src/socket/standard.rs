//! A standard socket layer, in the manner of BSD.

use lasthop_stream::Ring;
use lasthop_units::Time;

use super::{Fd, SocketError, Sockets, pull, push};
use crate::link::Queue;
use crate::stack::{Conn, Stack, Standing};

/// Bytes that a socket's own buffer holds at most.
const HIGH_WATER: usize = 16 * 1024;
/// Room that must be there for a sender to be told of it.
const LOW_WATER: usize = 1;

/// Whose buffers a socket's are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Buffering {
    /// Its own, with a copy into them and one out of them, each way: the layer knows nothing of the
    /// protocol below, as Winsock over its transport drivers.
    Own,
    /// The protocol's, which sends from and receives into the socket's buffers, as in BSD: one copy
    /// each way.
    Shared,
}

/// A buffer of one direction.
#[derive(Clone, Debug, Default)]
struct Buffer {
    bytes: Ring,
    end: u64,
    /// A call is at work on it.
    locked: bool,
    /// The program has ended this direction.
    shut: bool,
}

impl Buffer {
    fn count(&self) -> usize {
        (self.end - self.bytes.start()) as usize
    }

    /// Takes what fits of `data`.
    fn append(&mut self, data: &[u8]) -> usize {
        let n = data.len().min(HIGH_WATER - self.count().min(HIGH_WATER));
        self.bytes.reserve(self.end + n as u64);
        self.bytes.write(self.end, &data[..n]);
        self.end += n as u64;
        n
    }

    /// The oldest bytes, in one piece.
    fn front(&self) -> &[u8] {
        self.bytes.slices(self.bytes.start()..self.end).0
    }

    fn drop_front(&mut self, n: usize) {
        self.bytes.advance((self.bytes.start() + n as u64).min(self.end));
    }
}

/// A socket: what the descriptor stands for.
#[derive(Clone, Debug)]
struct SocketState {
    conn: Conn,
    sending: Buffer,
    receiving: Buffer,
    /// Somebody waits for bytes; set when a call finds none.
    waited_for: bool,
    /// How often waiters were woken.
    wakeups: u64,
}

/// An open file, which descriptors share.
#[derive(Clone, Debug)]
enum File {
    Socket(SocketState),
}

/// A standard socket layer: a descriptor table over open files, state checks, locked socket buffers
/// with water marks, wake-ups and readiness.
#[derive(Clone, Debug)]
pub struct Standard {
    buffering: Buffering,
    descriptors: Vec<Option<usize>>,
    files: Vec<Option<File>>,
    by_conn: Vec<Option<usize>>,
}

impl Standard {
    /// A layer without sockets.
    pub fn new(buffering: Buffering) -> Self {
        // The standard streams have the first three descriptors.
        Self { buffering, descriptors: vec![None; 3], files: Vec::new(), by_conn: Vec::new() }
    }

    /// Ends one's own direction. What was taken before is still sent.
    ///
    /// # Errors
    ///
    /// Not a socket.
    pub fn shut_sending(&mut self, fd: Fd) -> Result<(), SocketError> {
        let socket = find(&self.descriptors, &mut self.files, fd)?;
        socket.sending.shut = true;
        Ok(())
    }

    /// How often a program that waited for bytes was woken.
    pub fn wakeups(&self, fd: Fd) -> u64 {
        let file = self.descriptors.get(fd.0).copied().flatten();
        match file.and_then(|at| self.files.get(at)) {
            Some(Some(File::Socket(socket))) => socket.wakeups,
            _ => 0,
        }
    }

    /// Closes a descriptor.
    ///
    /// # Errors
    ///
    /// Not a socket.
    pub fn close(&mut self, fd: Fd) -> Result<(), SocketError> {
        let slot = self.descriptors.get_mut(fd.0).ok_or(SocketError::BadDescriptor(fd.0))?;
        let file = slot.take().ok_or(SocketError::BadDescriptor(fd.0))?;
        if let Some(File::Socket(socket)) = self.files.get_mut(file).and_then(Option::take)
            && let Some(entry) = self.by_conn.get_mut(socket.conn.0)
        {
            *entry = None;
        }
        Ok(())
    }
}

fn find<'a>(
    descriptors: &[Option<usize>],
    files: &'a mut [Option<File>],
    fd: Fd,
) -> Result<&'a mut SocketState, SocketError> {
    let file = descriptors.get(fd.0).copied().flatten().and_then(|at| files.get_mut(at));
    match file {
        Some(Some(File::Socket(socket))) => Ok(socket),
        _ => Err(SocketError::BadDescriptor(fd.0)),
    }
}

/// Moves bytes from the socket's buffer to the protocol's.
fn flush<S: Stack>(stack: &mut S, socket: &mut SocketState) {
    while socket.sending.count() > 0 {
        let n = push(stack, socket.conn, socket.sending.front());
        if n == 0 {
            break;
        }
        socket.sending.drop_front(n);
    }
}

/// Moves bytes from the protocol's buffer to the socket's.
fn fill<S: Stack>(stack: &mut S, socket: &mut SocketState) {
    loop {
        let n = socket.receiving.append(stack.received(socket.conn));
        if n == 0 {
            break;
        }
        stack.consume(socket.conn, n);
    }
}

fn lock(buffer: &mut Buffer) -> Result<(), SocketError> {
    if buffer.locked {
        return Err(SocketError::WouldBlock);
    }
    buffer.locked = true;
    Ok(())
}

impl<S: Stack> Sockets<S> for Standard {
    fn attach(&mut self, conn: Conn) -> Fd {
        let socket = SocketState {
            conn,
            sending: Buffer::default(),
            receiving: Buffer::default(),
            waited_for: false,
            wakeups: 0,
        };
        self.files.push(Some(File::Socket(socket)));
        let file = self.files.len() - 1;
        if self.by_conn.len() <= conn.0 {
            self.by_conn.resize(conn.0 + 1, None);
        }
        self.by_conn[conn.0] = Some(file);
        self.descriptors.push(Some(file));
        Fd(self.descriptors.len() - 1)
    }

    fn send(
        &mut self,
        stack: &mut S,
        fd: Fd,
        data: &[u8],
        now: Time,
        link: &mut Queue,
    ) -> Result<usize, SocketError> {
        let socket = find(&self.descriptors, &mut self.files, fd)?;
        lock(&mut socket.sending)?;
        let taken = match check_sending(stack, socket) {
            Err(error) => Err(error),
            Ok(()) => Ok(match self.buffering {
                Buffering::Own => {
                    flush(stack, socket);
                    let n = socket.sending.append(data);
                    flush(stack, socket);
                    n
                }
                Buffering::Shared => push(stack, socket.conn, data),
            }),
        };
        if taken.is_ok() {
            stack.output(now, socket.conn, link);
        }
        socket.sending.locked = false;
        match taken? {
            n if n < LOW_WATER => Err(SocketError::WouldBlock),
            n => Ok(n),
        }
    }

    fn receive(
        &mut self,
        stack: &mut S,
        fd: Fd,
        out: &mut [u8],
        now: Time,
        link: &mut Queue,
    ) -> Result<usize, SocketError> {
        let buffering = self.buffering;
        let socket = find(&self.descriptors, &mut self.files, fd)?;
        lock(&mut socket.receiving)?;
        let n = match buffering {
            Buffering::Own => {
                let n = take(&mut socket.receiving, out);
                // Room for what the protocol still holds.
                fill(stack, socket);
                n
            }
            Buffering::Shared => pull(stack, socket.conn, out),
        };
        socket.receiving.locked = false;
        if n > 0 {
            socket.waited_for = false;
            // The protocol is told of the room, which may open the window.
            stack.output(now, socket.conn, link);
            return Ok(n);
        }
        check_receiving(stack, socket)
    }

    fn wake(&mut self, stack: &mut S, conn: Conn) {
        let Some(file) = self.by_conn.get(conn.0).copied().flatten() else { return };
        let Some(Some(File::Socket(socket))) = self.files.get_mut(file) else { return };
        if self.buffering == Buffering::Own {
            fill(stack, socket);
            flush(stack, socket);
        }
        if socket.waited_for {
            socket.waited_for = false;
            socket.wakeups += 1;
        }
    }

    fn readable(&self, stack: &S, fd: Fd) -> bool {
        let file = self.descriptors.get(fd.0).copied().flatten();
        let Some(Some(File::Socket(socket))) = file.and_then(|at| self.files.get(at)) else {
            return false;
        };
        let bytes = match self.buffering {
            Buffering::Own => socket.receiving.count(),
            Buffering::Shared => stack.received(socket.conn).len(),
        };
        bytes > 0 || stack.standing(socket.conn) == Standing::Closed
    }
}

/// Copies the oldest bytes of the buffer to the application.
fn take(buffer: &mut Buffer, out: &mut [u8]) -> usize {
    let mut given = 0;
    while given < out.len() {
        let there = buffer.front();
        let n = there.len().min(out.len() - given);
        if n == 0 {
            break;
        }
        out[given..given + n].copy_from_slice(&there[..n]);
        buffer.drop_front(n);
        given += n;
    }
    given
}

fn check_sending<S: Stack>(stack: &S, socket: &SocketState) -> Result<(), SocketError> {
    if socket.sending.shut {
        return Err(SocketError::Shut);
    }
    match stack.standing(socket.conn) {
        Standing::Open => Ok(()),
        Standing::Opening | Standing::Closed => Err(SocketError::NotConnected),
    }
}

/// Why there is nothing to read.
fn check_receiving<S: Stack>(stack: &S, socket: &mut SocketState) -> Result<usize, SocketError> {
    if stack.standing(socket.conn) != Standing::Open {
        return Err(SocketError::NotConnected);
    }
    socket.waited_for = true;
    Err(SocketError::WouldBlock)
}
