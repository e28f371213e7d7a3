//! The kernel connections of one end of split-tcp, and the owner of each.

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
use super::streams::Removal;

/// A peer from which nothing comes for so long is gone. A radio may be silent for a minute and must not cost
/// a connection: TCP tries again when as much time has passed once more, and that must have time to succeed.
const SILENCE: Duration = Duration::from_secs(180);
/// How often a peer is asked on an idle connection, from half of that on: so often that a hop which loses half of
/// its packets loses all questions and answers one time in 180 only.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
/// How long a peer may take to read the reset that it was sent.
const LINGER: Duration = Duration::from_secs(5);
/// Connections that linger at once; beyond, the oldest is cut.
const LINGERING_MAX: usize = 256;
/// How long the connection of a stream that went on elsewhere stands: as long as a handoff may take.
/// The peer would take its end or reset for the stream's.
const PARKED: Duration = Duration::from_secs(60);
/// Connections that stand so at once; beyond, the oldest is cut.
const PARKED_MAX: usize = 4096;

/// What a connection's events are for.
#[derive(Debug)]
pub(super) enum Owner<P> {
    /// The mobile's or base's own: a listener, a greeting, a control connection.
    Role(P),
    /// A stream of an association.
    Stream(u32, u64),
    /// None: the peer is given time to read what it was sent.
    Lingering(Socket),
    /// None: its stream, one of this association, went on elsewhere.
    Parked(u32, Socket),
}

/// All connections of one end.
#[derive(Debug)]
pub(super) struct Wires<P> {
    pub(super) owners: Slab<Owner<P>>,
    lingering: VecDeque<(Time, Key)>,
    parked: VecDeque<(Time, Key)>,
}

impl<P> Wires<P> {
    pub(super) const fn new() -> Self {
        Self { owners: Slab::new(), lingering: VecDeque::new(), parked: VecDeque::new() }
    }

    /// Adds a connection of `owner` to the reactor.
    pub(super) fn watch(
        &mut self,
        turn: &mut Turn<'_>,
        fd: OwnedFd,
        owner: Owner<P>,
    ) -> io::Result<(Key, Socket)> {
        tcp::tune(&fd);
        tcp::bound_silence(&fd, SILENCE, PROBE_INTERVAL);
        let key = self.owners.insert(owner);
        match Socket::new(turn.reactor, fd, turn.source(key)) {
            Ok(socket) => Ok((key, socket)),
            Err(e) => {
                self.owners.remove(key);
                Err(e)
            }
        }
    }

    /// Closes the connection of a stream that needs it no more.
    pub(super) fn close(&mut self, turn: &mut Turn<'_>, stream: &mut Stream) {
        if let Some((key, socket)) = stream.take_socket() {
            self.owners.remove(key);
            socket.close(turn.reactor, stream.is_broken());
        }
    }

    /// Closes or parks the connection of a stream that is out of its table.
    pub(super) fn close_removed(&mut self, turn: &mut Turn<'_>, mut stream: Stream, how: Removal) {
        match how {
            Removal::Closed(_) if stream.is_over() => self.close(turn, &mut stream),
            Removal::Closed(code) => self.abort(turn, stream, code),
            Removal::Detached => self.park(turn, &mut stream),
        }
    }

    /// Aborts the stream: the peer gets `code` if the kernel can still send it, or else a plain reset.
    fn abort(&mut self, turn: &mut Turn<'_>, mut stream: Stream, code: u64) {
        let queued = stream.abort(code);
        let Some((key, mut socket)) = stream.take_socket() else { return };
        tcp::shutdown_write(&socket.fd);
        if queued
            && !discard(&mut socket)
            && let Some(owner) = self.owners.get_mut(key)
        {
            *owner = Owner::Lingering(socket);
            self.lingering.push_back((turn.now + LINGER, key));
            if self.lingering.len() > LINGERING_MAX
                && let Some((_, oldest)) = self.lingering.pop_front()
            {
                self.reset_unowned(turn, oldest);
            }
            return;
        }
        self.owners.remove(key);
        socket.close(turn.reactor, true);
    }

    fn park(&mut self, turn: &mut Turn<'_>, stream: &mut Stream) {
        let Some((key, socket)) = stream.take_socket() else { return };
        // The kernel tells of an end once.
        if socket.is_ended() {
            self.owners.remove(key);
            return socket.close(turn.reactor, true);
        }
        let Some(owner) = self.owners.get_mut(key) else { return };
        let Owner::Stream(association, _) = *owner else { return };
        *owner = Owner::Parked(association, socket);
        self.parked.push_back((turn.now + PARKED, key));
        if self.parked.len() > PARKED_MAX
            && let Some((_, oldest)) = self.parked.pop_front()
        {
            self.reset_unowned(turn, oldest);
        }
    }

    /// Resets the parked connections of an association that the peer has ended: their own ends may be lost.
    pub(super) fn close_parked(&mut self, turn: &mut Turn<'_>, association: u32) {
        let is_over = |(_, key): &(Time, Key)| match self.owners.get(*key) {
            Some(Owner::Parked(of, _)) => *of == association,
            _ => false,
        };
        let parked = std::mem::take(&mut self.parked);
        let (over, stay): (VecDeque<_>, _) = parked.into_iter().partition(is_over);
        self.parked = stay;
        over.into_iter().for_each(|(_, key)| self.reset_unowned(turn, key));
    }

    /// Resets a connection without an owner.
    fn reset_unowned(&mut self, turn: &mut Turn<'_>, key: Key) {
        if matches!(self.owners.get(key), Some(Owner::Lingering(_) | Owner::Parked(..)))
            && let Some(Owner::Lingering(socket) | Owner::Parked(_, socket)) =
                self.owners.remove(key)
        {
            socket.close(turn.reactor, true);
        }
    }

    /// A connection without an owner is ready.
    pub(super) fn handle_unowned(&mut self, turn: &mut Turn<'_>, key: Key, readiness: Readiness) {
        let over = match self.owners.get_mut(key) {
            Some(Owner::Lingering(socket)) => {
                socket.ready(readiness);
                discard(socket)
            }
            // What the peer still sends must not be taken: it keeps what is not acknowledged.
            Some(Owner::Parked(..)) => readiness.ended,
            _ => false,
        };
        if over {
            self.reset_unowned(turn, key);
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        let oldest = [self.lingering.front(), self.parked.front()];
        oldest.into_iter().flatten().map(|(at, _)| *at).min()
    }

    pub(super) fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        while let Some(key) = due(&mut self.lingering, turn.now) {
            self.reset_unowned(turn, key);
        }
        while let Some(key) = due(&mut self.parked, turn.now) {
            self.reset_unowned(turn, key);
        }
    }

    /// Closes every connection without an owner. The kernel still sends what waits on it.
    pub(super) fn close_unowned(&mut self, turn: &mut Turn<'_>) {
        for (_, key) in self.lingering.drain(..).chain(self.parked.drain(..)) {
            match self.owners.remove(key) {
                Some(Owner::Lingering(socket)) => socket.close(turn.reactor, false),
                Some(Owner::Parked(_, socket)) => socket.close(turn.reactor, true),
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
