//! The kernel connections of one end of split-tcp, and whom the events of each are for.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use lasthop_units::Time;

use super::stream::Stream;
use crate::hop::{Source, Turn};
use crate::reactor::Readiness;
use crate::slab::{Key, Slab};
use crate::tcp::{self, Moved, Socket};

/// How long a peer may take to read the reset that it was sent.
const LINGER: Duration = Duration::from_secs(5);
/// Connections that linger at once; beyond, the oldest is cut.
const LINGERING_MAX: usize = 256;

/// Whom a connection's events are for.
#[derive(Debug)]
pub(super) enum Place<P> {
    /// Its own owner's purpose: a listener, a greeting, a control connection.
    Own(P),
    /// A stream of an association.
    Stream(u32, u64),
    /// Nobody: the peer is given time to read what it was sent.
    Lingering(Socket),
}

/// All connections of one end.
#[derive(Debug)]
pub(super) struct Wires<P> {
    pub(super) places: Slab<Place<P>>,
    lingering: VecDeque<(Time, Key)>,
}

impl<P> Wires<P> {
    pub(super) const fn new() -> Self {
        Self { places: Slab::new(), lingering: VecDeque::new() }
    }

    /// Watches a connection for `place`.
    pub(super) fn watch(
        &mut self,
        turn: &mut Turn<'_>,
        fd: OwnedFd,
        place: Place<P>,
    ) -> io::Result<(Key, Socket)> {
        tcp::tune(&fd);
        let key = self.places.insert(place);
        match Socket::new(turn.reactor, fd, Source::Hop(key)) {
            Ok(socket) => Ok((key, socket)),
            Err(e) => {
                self.places.remove(key);
                Err(e)
            }
        }
    }

    /// Closes the connection of a stream that needs it no more.
    pub(super) fn close(&mut self, turn: &mut Turn<'_>, stream: &mut Stream) {
        if let Some((key, socket)) = stream.take_socket() {
            self.places.remove(key);
            socket.close(turn.reactor, stream.is_broken());
        }
    }

    /// Gives the stream up: the peer sees `code` if the kernel can still tell it, or a plain reset.
    pub(super) fn abandon(&mut self, turn: &mut Turn<'_>, mut stream: Stream, code: u64) {
        if stream.is_over() {
            return self.close(turn, &mut stream);
        }
        let told = stream.abandon(code);
        let Some((key, mut socket)) = stream.take_socket() else { return };
        tcp::shutdown_write(&socket.fd);
        if told
            && !discard(&mut socket)
            && let Some(place) = self.places.get_mut(key)
        {
            *place = Place::Lingering(socket);
            self.lingering.push_back((turn.now + LINGER, key));
            if self.lingering.len() > LINGERING_MAX {
                self.cut_oldest(turn);
            }
            return;
        }
        self.places.remove(key);
        socket.close(turn.reactor, true);
    }

    fn cut_oldest(&mut self, turn: &mut Turn<'_>) {
        if let Some((_, key)) = self.lingering.pop_front()
            && matches!(self.places.get(key), Some(Place::Lingering(_)))
            && let Some(Place::Lingering(socket)) = self.places.remove(key)
        {
            socket.close(turn.reactor, true);
        }
    }

    /// A lingering connection is ready.
    pub(super) fn handle_lingering(&mut self, turn: &mut Turn<'_>, key: Key, readiness: Readiness) {
        let Some(Place::Lingering(socket)) = self.places.get_mut(key) else { return };
        socket.ready(readiness);
        if discard(socket)
            && let Some(Place::Lingering(socket)) = self.places.remove(key)
        {
            socket.close(turn.reactor, true);
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.lingering.front().map(|(at, _)| *at)
    }

    pub(super) fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        while self.next_timeout().is_some_and(|at| at <= turn.now) {
            self.cut_oldest(turn);
        }
    }
}

/// Reads and drops what comes; true once nothing more will.
fn discard(socket: &mut Socket) -> bool {
    let mut scratch = [0; 16 * 1024];
    // A peer that reads its reset stops sending; one that does not is cut by the timer.
    for _ in 0..16 {
        match socket.read(&mut scratch) {
            Moved::Bytes(_) => {}
            Moved::Blocked => return false,
            Moved::End | Moved::Broken(_) => return true,
        }
    }
    false
}
