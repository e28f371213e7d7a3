//! A node made of an endpoint and the applications on it.

use lasthop_units::Time;

use crate::world::Node;
use crate::{Addr, Endpoint};

/// What runs on top of an endpoint: called after every input and when its own time comes.
pub trait App<E: Endpoint> {
    /// Reads, writes, opens and closes whatever it can at this moment.
    fn drive(&mut self, now: Time, endpoint: &mut E);

    /// When it wants to be called though nothing arrives.
    fn next_timeout(&self) -> Option<Time>;
}

/// An endpoint with an application on it.
#[derive(Debug)]
pub struct Host<E, A> {
    /// The hop's end.
    pub endpoint: E,
    /// What uses it.
    pub app: A,
}

impl<E: Endpoint, A: App<E>> Host<E, A> {
    /// Lets the application act outside the order of events.
    pub fn drive(&mut self, now: Time) {
        self.app.drive(now, &mut self.endpoint);
    }
}

impl<E: Endpoint, A: App<E>> Node for Host<E, A> {
    fn handle_datagram(&mut self, now: Time, from: Addr, datagram: &mut [u8]) {
        self.endpoint.handle_datagram(now, from, datagram);
        self.app.drive(now, &mut self.endpoint);
    }

    fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<(Addr, usize)> {
        let sent = self.endpoint.poll_transmit(now, out)?;
        // What was sent may have made room to write.
        self.app.drive(now, &mut self.endpoint);
        Some(sent)
    }

    fn next_timeout(&self) -> Option<Time> {
        earliest(self.endpoint.next_timeout(), self.app.next_timeout())
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.endpoint.next_timeout().is_some_and(|t| t <= now) {
            self.endpoint.handle_timeout(now);
        }
        self.app.drive(now, &mut self.endpoint);
    }
}

fn earliest(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Either of two kinds of node, so that a world holds both without indirection.
#[derive(Debug)]
pub enum Either<L, R> {
    /// The one.
    Left(L),
    /// The other.
    Right(R),
}

impl<L: Node, R: Node> Node for Either<L, R> {
    fn handle_datagram(&mut self, now: Time, from: Addr, datagram: &mut [u8]) {
        match self {
            Self::Left(n) => n.handle_datagram(now, from, datagram),
            Self::Right(n) => n.handle_datagram(now, from, datagram),
        }
    }

    fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<(Addr, usize)> {
        match self {
            Self::Left(n) => n.poll_transmit(now, out),
            Self::Right(n) => n.poll_transmit(now, out),
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        match self {
            Self::Left(n) => n.next_timeout(),
            Self::Right(n) => n.next_timeout(),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        match self {
            Self::Left(n) => n.handle_timeout(now),
            Self::Right(n) => n.handle_timeout(now),
        }
    }
}
