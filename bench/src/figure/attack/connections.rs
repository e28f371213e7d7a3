//! A flood of TCP connections that say their first bytes and stay.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use lasthop_units::Duration;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, bind, connect, send, socket_with, sockopt,
};

use super::flood::{Attacker, Volley};
use super::messages::Order;

/// Connections that stay at once; beyond, the oldest is reset.
const HELD: usize = 4096;

/// Opens connections from all sources in turn.
pub(super) struct Connections {
    attacker: Attacker,
    messages: Vec<Vec<u8>>,
    order: Order,
    /// Those that have said nothing yet, with what they are to say.
    silent: Vec<(OwnedFd, usize)>,
    held: VecDeque<OwnedFd>,
}

impl Connections {
    /// Connections whose first bytes are these.
    pub(super) fn new(attacker: &Attacker, messages: Vec<Vec<u8>>, order: Order) -> Self {
        let (silent, held) = (Vec::new(), VecDeque::new());
        Connections { attacker: attacker.clone(), messages, order, silent, held }
    }

    fn open(&self, n: u64) -> io::Result<OwnedFd> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        let sources = &self.attacker.sources;
        bind(&fd, &SocketAddr::from((sources[n as usize % sources.len()], 0)))?;
        match connect(&fd, &self.attacker.base) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(fd),
            Err(error) => Err(error.into()),
        }
    }

    /// By the next tick a connection stands, if the base's kernel takes it at all.
    fn speak(&mut self) {
        for (fd, message) in self.silent.drain(..) {
            // One that is not taken stays as it is.
            let _ = send(&fd, &self.messages[message], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            self.held.push_back(fd);
        }
        while self.held.len() > HELD
            && let Some(oldest) = self.held.pop_front()
        {
            reset(&oldest);
        }
    }
}

impl Volley for Connections {
    fn fire(&mut self, first: u64, count: usize) -> usize {
        self.speak();
        for n in first..first + count as u64 {
            if let Ok(fd) = self.open(n) {
                self.silent.push((fd, self.order.place(n, self.messages.len())));
            }
        }
        self.silent.len()
    }
}

/// Its port is free at once.
fn reset(fd: &OwnedFd) {
    let _ = sockopt::set_socket_linger(fd, Some(Duration::ZERO));
}
