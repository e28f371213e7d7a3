//! A flood of datagrams.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;

use anyhow::{Context, Result};
use lasthop_hop::seal::{Cookie, Initiator};
use lasthop_kernel::mmsg;

use super::flood::{Attacker, Volley};
use super::messages::Order;

/// More than a demand for a cookie has.
const LONGEST: usize = 512;
/// Answers that are looked at in one go.
const LOOKS: usize = 64;

/// What is sent.
pub(crate) enum Content {
    /// These, as they are.
    Fixed(Vec<Vec<u8>>),
    /// These, each with the cookie that the base has given to the address that it is sent from.
    Cookies(Vec<Initiator>),
}

impl Content {
    fn len(&self) -> usize {
        match self {
            Content::Fixed(messages) => messages.len(),
            Content::Cookies(inits) => inits.len(),
        }
    }

    fn get(&self, at: usize) -> &[u8] {
        let message = match self {
            Content::Fixed(messages) => messages.get(at).map(Vec::as_slice),
            Content::Cookies(inits) => inits.get(at).map(Initiator::datagram),
        };
        message.unwrap_or_default()
    }
}

/// Sends datagrams from all sources in turn.
pub(crate) struct Datagrams {
    sources: Vec<Source>,
    content: Content,
    order: Order,
}

impl Datagrams {
    /// Opens a socket at each source.
    pub(crate) fn open(attacker: &Attacker, content: Content, order: Order) -> Result<Self> {
        let sources = attacker.sources.iter().map(|at| Source::open(*at, attacker.base));
        let sources =
            sources.collect::<io::Result<_>>().context("opening the attacker's sockets")?;
        Ok(Datagrams { sources, content, order })
    }
}

impl Volley for Datagrams {
    /// One from each source in turn: a base that answers cannot answer many in one piece.
    fn fire(&mut self, first: u64, count: usize) -> usize {
        let (order, len) = (self.order, self.content.len());
        let lanes = self.sources.len();
        let mut sent = 0;
        for (lane, source) in self.sources.iter_mut().enumerate().take(count) {
            let numbers = (first + lane as u64..first + count as u64).step_by(lanes);
            let places = numbers.map(|n| order.place(n, len));
            if let Content::Cookies(inits) = &mut self.content {
                source.sign(inits, places.clone());
            }
            let content = &self.content;
            let messages = places.map(|at| (content.get(at), ()));
            // What the kernel does not take is not counted.
            sent += mmsg::send(source.socket.as_fd(), &[], messages).unwrap_or(0);
        }
        self.sources.rotate_left(count % lanes.max(1));
        sent
    }
}

struct Source {
    socket: UdpSocket,
    cookie: Option<Cookie>,
    /// The inits that were last sent from here.
    last: Vec<usize>,
}

impl Source {
    fn open(at: Ipv4Addr, base: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind((at, 0))?;
        socket.connect(base)?;
        socket.set_nonblocking(true)?;
        Ok(Source { socket, cookie: None, last: Vec::new() })
    }

    /// Has those of the inits that are sent next show the cookie for this source, once there is one.
    fn sign(&mut self, inits: &mut [Initiator], next: impl Iterator<Item = usize>) {
        if self.cookie.is_none() {
            self.look_for_cookie(inits);
            self.last.clear();
        }
        for at in next {
            match self.cookie {
                Some(cookie) => inits[at].show(&cookie),
                None => self.last.push(at),
            }
        }
    }

    fn look_for_cookie(&mut self, inits: &[Initiator]) {
        let mut answer = [0; LONGEST];
        for _ in 0..LOOKS {
            let Ok(len) = self.socket.recv(&mut answer) else { return };
            self.cookie = self.last.iter().find_map(|at| inits[*at].take_cookie(&answer[..len]));
            if self.cookie.is_some() {
                return;
            }
        }
    }
}
