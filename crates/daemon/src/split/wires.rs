//! The kernel connections of one end of split-tcp, and whom the events of each are for.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use lasthop_kernel::reactor::Readiness;
use lasthop_kernel::slab::{Key, Slab};
use lasthop_kernel::tcp::{self, Moved, Socket};
use lasthop_kernel::turn::Turn;
use lasthop_units::Time;

use super::stream::Stream;
use super::streams::Departure;

/// How long a peer may take to read the reset that it was sent.
const LINGER: Duration = Duration::from_secs(5);
/// Connections that linger at once; beyond, the oldest is cut.
const LINGERING_MAX: usize = 256;
/// How long the connection of a stream that went on elsewhere stands: as long as a handoff may take.
/// An end or a reset of it would tell the peer that the stream is over.
const PARKED: Duration = Duration::from_secs(60);
/// Connections that stand so at once; beyond, the oldest is cut.
const PARKED_MAX: usize = 4096;

/// Whom a connection's events are for.
#[derive(Debug)]
pub(super) enum Owner<P> {
    /// Its own owner's purpose: a listener, a greeting, a control connection.
    Own(P),
    /// A stream of an association.
    Stream(u32, u64),
    /// Nobody: the peer is given time to read what it was sent.
    Lingering(Socket),
    /// Nobody: its stream went on elsewhere.
    Parked(Socket),
}

/// All connections of one end.
#[derive(Debug)]
pub(super) struct Wires<P> {
    pub(super) places: Slab<Owner<P>>,
    lingering: VecDeque<(Time, Key)>,
    parked: VecDeque<(Time, Key)>,
}

impl<P> Wires<P> {
    pub(super) const fn new() -> Self {
        Self { places: Slab::new(), lingering: VecDeque::new(), parked: VecDeque::new() }
    }

    /// Watches a connection for `place`.
    pub(super) fn watch(
        &mut self,
        turn: &mut Turn<'_>,
        fd: OwnedFd,
        place: Owner<P>,
    ) -> io::Result<(Key, Socket)> {
        tcp::tune(&fd);
        let key = self.places.insert(place);
        match Socket::new(turn.reactor, fd, turn.source(key)) {
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

    /// Closes or parks the connection of a stream that is out of its table.
    pub(super) fn close_departed(
        &mut self,
        turn: &mut Turn<'_>,
        mut stream: Stream,
        how: Departure,
    ) {
        match how {
            Departure::Abandoned(_) if stream.is_over() => self.close(turn, &mut stream),
            Departure::Abandoned(code) => self.abandon(turn, stream, code),
            Departure::Detached => self.park(turn, &mut stream),
        }
    }

    /// Aborts the stream: the peer gets `code` if the kernel can still send it, or else a plain reset.
    fn abandon(&mut self, turn: &mut Turn<'_>, mut stream: Stream, code: u64) {
        let told = stream.abandon(code);
        let Some((key, mut socket)) = stream.take_socket() else { return };
        tcp::shutdown_write(&socket.fd);
        if told
            && !discard(&mut socket)
            && let Some(place) = self.places.get_mut(key)
        {
            *place = Owner::Lingering(socket);
            self.lingering.push_back((turn.now + LINGER, key));
            if self.lingering.len() > LINGERING_MAX
                && let Some((_, oldest)) = self.lingering.pop_front()
            {
                self.cut(turn, oldest);
            }
            return;
        }
        self.places.remove(key);
        socket.close(turn.reactor, true);
    }

    fn park(&mut self, turn: &mut Turn<'_>, stream: &mut Stream) {
        let Some((key, socket)) = stream.take_socket() else { return };
        let Some(place) = self.places.get_mut(key) else { return };
        *place = Owner::Parked(socket);
        self.parked.push_back((turn.now + PARKED, key));
        if self.parked.len() > PARKED_MAX
            && let Some((_, oldest)) = self.parked.pop_front()
        {
            self.cut(turn, oldest);
        }
    }

    /// Resets a connection that is nobody's.
    fn cut(&mut self, turn: &mut Turn<'_>, key: Key) {
        if matches!(self.places.get(key), Some(Owner::Lingering(_) | Owner::Parked(_)))
            && let Some(Owner::Lingering(socket) | Owner::Parked(socket)) = self.places.remove(key)
        {
            socket.close(turn.reactor, true);
        }
    }

    /// A connection that is nobody's is ready.
    pub(super) fn handle_left(&mut self, turn: &mut Turn<'_>, key: Key, readiness: Readiness) {
        let over = match self.places.get_mut(key) {
            Some(Owner::Lingering(socket)) => {
                socket.ready(readiness);
                discard(socket)
            }
            // What the peer still sends must not be taken: it keeps what is not acknowledged.
            Some(Owner::Parked(_)) => readiness.ended,
            _ => false,
        };
        if over {
            self.cut(turn, key);
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        let oldest = [self.lingering.front(), self.parked.front()];
        oldest.into_iter().flatten().map(|(at, _)| *at).min()
    }

    pub(super) fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        while let Some(key) = due(&mut self.lingering, turn.now) {
            self.cut(turn, key);
        }
        while let Some(key) = due(&mut self.parked, turn.now) {
            self.cut(turn, key);
        }
    }

    /// Closes every connection that is nobody's. The kernel still sends what waits on it.
    pub(super) fn close_all(&mut self, turn: &mut Turn<'_>) {
        for (_, key) in self.lingering.drain(..).chain(self.parked.drain(..)) {
            match self.places.remove(key) {
                Some(Owner::Lingering(socket)) => socket.close(turn.reactor, false),
                Some(Owner::Parked(socket)) => socket.close(turn.reactor, true),
                _ => {}
            }
        }
    }
}

/// The next whose time has come.
fn due(queue: &mut VecDeque<(Time, Key)>, now: Time) -> Option<Key> {
    let (at, key) = queue.front().copied()?;
    (at <= now).then(|| queue.pop_front()).map(|_| key)
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
