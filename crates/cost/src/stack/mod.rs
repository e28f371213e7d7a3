//! Protocol stacks between a socket layer and a link.

mod endpoint;
mod ip;
mod mobile_tcp;
mod tcp_ip;

pub use endpoint::Endpoint;
pub use mobile_tcp::Mobile;
pub(crate) use tcp_ip::config as tcp_config;
pub use tcp_ip::{TcpIp, Variant};

use lasthop_units::Time;

use crate::link::{Mac, Queue};

/// One of a stack's connections.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Conn(pub usize);

/// How a connection stands, as far as a socket layer asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Not open yet.
    Opening,
    /// Data flows.
    Open,
    /// Over, refused, or never there.
    Closed,
}

/// A stack at one end of a link. Bytes are written into and read out of its own buffers, so that
/// socket layers decide how often they are copied.
pub trait Stack {
    /// How a connection stands.
    fn standing(&self, conn: Conn) -> Standing;

    /// Room for bytes to send: one contiguous piece, empty while there is none.
    fn send_space(&mut self, conn: Conn) -> &mut [u8];

    /// The first `n` bytes of the room are to be sent.
    fn commit(&mut self, conn: Conn, n: usize);

    /// Received bytes in order: one contiguous piece.
    fn received(&self, conn: Conn) -> &[u8];

    /// The first `n` bytes of what was received were taken.
    fn consume(&mut self, conn: Conn, n: usize);

    /// Puts what the connection has to send on the link.
    fn output(&mut self, now: Time, conn: Conn, link: &mut Queue);

    /// Takes a frame; the connection that it was for.
    fn input(&mut self, now: Time, frame: &[u8]) -> Option<Conn>;

    /// Lets timers whose time has come expire, and sends what follows from it.
    fn expire(&mut self, now: Time, link: &mut Queue);
}

/// The addresses of the link's two ends.
pub(crate) const MACS: [Mac; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

/// Lets these ends in turn put what the connection has to send on the link, and the other take it.
fn hand_over<S: Stack>(ends: &mut [S; 2], now: Time, senders: impl IntoIterator<Item = usize>) {
    let mut queue = Queue::default();
    for from in senders {
        ends[from].output(now, Conn(0), &mut queue);
        while let Some(frame) = queue.front() {
            ends[1 - from].input(now, frame);
            queue.pop();
        }
    }
}
