//! What the layers do with bytes and with wrong calls, over a stack that moves nothing.

use super::*;
use crate::stack::Standing;

const CONN: Conn = Conn(0);

/// A stack with one connection: room for eight bytes, and what it "received".
struct Still {
    room: [u8; 8],
    taken: usize,
    there: Vec<u8>,
    standing: Standing,
}

impl Still {
    fn new(there: &[u8]) -> Self {
        Self { room: [0; 8], taken: 0, there: there.to_vec(), standing: Standing::Open }
    }
}

impl Stack for Still {
    fn standing(&self, _conn: Conn) -> Standing {
        self.standing
    }

    fn send_space(&mut self, _conn: Conn) -> &mut [u8] {
        &mut self.room[self.taken..]
    }

    fn commit(&mut self, _conn: Conn, n: usize) {
        self.taken += n;
    }

    fn received(&self, _conn: Conn) -> &[u8] {
        &self.there
    }

    fn consume(&mut self, _conn: Conn, n: usize) {
        self.there.drain(..n);
    }

    fn output(&mut self, _now: Time, _conn: Conn, _link: &mut Queue) {}

    fn input(&mut self, _now: Time, _frame: &[u8]) -> Option<Conn> {
        None
    }

    fn expire(&mut self, _now: Time, _link: &mut Queue) {}
}

fn send<L: Sockets<Still>>(
    layer: &mut L,
    stack: &mut Still,
    fd: Fd,
    data: &[u8],
) -> Result<usize, SocketError> {
    layer.send(stack, fd, data, Time::ZERO, &mut Queue::default())
}

fn receive<L: Sockets<Still>>(
    layer: &mut L,
    stack: &mut Still,
    fd: Fd,
    n: usize,
) -> Result<Vec<u8>, SocketError> {
    let mut out = vec![0; n];
    let n = layer.receive(stack, fd, &mut out, Time::ZERO, &mut Queue::default())?;
    out.truncate(n);
    Ok(out)
}

/// MOB-45: the light layer works in the transport's own buffers and keeps no byte of its own: what
/// the transport has no room for is not taken, what is not read stays with the transport.
#[test]
fn the_light_layer_has_no_buffers() {
    let (mut layer, mut stack) = (Light::default(), Still::new(b"abcdef"));
    let fd = Sockets::<Still>::attach(&mut layer, CONN);
    assert_eq!(send(&mut layer, &mut stack, fd, b"0123456789"), Ok(8));
    assert_eq!(&stack.room, b"01234567");
    assert_eq!(send(&mut layer, &mut stack, fd, b"89"), Err(SocketError::WouldBlock));
    layer.wake(&mut stack, CONN);
    assert_eq!(stack.there, b"abcdef");
    assert_eq!(receive(&mut layer, &mut stack, fd, 4), Ok(b"abcd".to_vec()));
    assert_eq!(stack.there, b"ef");
}

/// MOB-47: the standard layer has buffers of its own, from which the protocol is served when it has
/// room, and into which it is emptied when it has bytes; shared ones are the protocol's.
#[test]
fn the_standard_layer_has_buffers_unless_they_are_shared() {
    for (buffering, taken, left) in [(Buffering::Own, 10, 0), (Buffering::Shared, 8, 6)] {
        let (mut layer, mut stack) = (Standard::new(buffering), Still::new(b"abcdef"));
        let fd = Sockets::<Still>::attach(&mut layer, CONN);
        assert_eq!(send(&mut layer, &mut stack, fd, b"0123456789"), Ok(taken));
        assert_eq!(&stack.room, b"01234567");
        layer.wake(&mut stack, CONN);
        assert_eq!(stack.there.len(), left, "{buffering:?}");
        assert!(layer.readable(&stack, fd));
        assert_eq!(receive(&mut layer, &mut stack, fd, 4), Ok(b"abcd".to_vec()));
        stack.taken = 0;
        layer.wake(&mut stack, CONN);
        assert_eq!(stack.taken, taken - 8, "what waited goes when there is room");
    }
}

#[test]
fn wrong_calls_get_the_errors_that_a_program_expects() {
    let (mut layer, mut stack) = (Standard::new(Buffering::Own), Still::new(b""));
    let fd = Sockets::<Still>::attach(&mut layer, CONN);
    assert_eq!(fd, Fd(3), "behind the standard streams");
    assert_eq!(send(&mut layer, &mut stack, Fd(0), b"x"), Err(SocketError::BadDescriptor(0)));
    assert_eq!(receive(&mut layer, &mut stack, Fd(9), 1), Err(SocketError::BadDescriptor(9)));
    assert_eq!(receive(&mut layer, &mut stack, fd, 1), Err(SocketError::WouldBlock));
    assert!(!layer.readable(&stack, fd));
    layer.wake(&mut stack, CONN);
    assert_eq!((layer.wakeups(fd), layer.wakeups(Fd(9))), (1, 0));
    stack.standing = Standing::Opening;
    assert_eq!(send(&mut layer, &mut stack, fd, b"x"), Err(SocketError::NotConnected));
    assert_eq!(receive(&mut layer, &mut stack, fd, 1), Err(SocketError::NotConnected));
    stack.standing = Standing::Open;
    layer.shut_sending(fd).unwrap();
    assert_eq!(send(&mut layer, &mut stack, fd, b"x"), Err(SocketError::Shut));
    layer.close(fd).unwrap();
    assert_eq!(send(&mut layer, &mut stack, fd, b"x"), Err(SocketError::BadDescriptor(3)));
    assert_eq!(layer.close(fd), Err(SocketError::BadDescriptor(3)));
}
