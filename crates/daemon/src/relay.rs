//! Bytes between one kernel TCP connection and one connection of a session, both ways.

use lasthop_hop::{RecvState, Streams};
use lasthop_migrate as migrate;
use lasthop_session::{ConnId, ResetReason, Session};
use lasthop_units::Time;

use lasthop_kernel::reactor::Reactor;
use lasthop_kernel::tcp::{self, Moved, Socket};
use lasthop_kernel::turn::Source;

use crate::held::Held;
use crate::upward::Relayed;

/// Bytes that one connection may move in one direction in one turn of the loop, so that a fast one
/// does not keep the others waiting.
const SHARE: usize = 512 * 1024;

/// A connection that stands.
#[derive(Debug)]
pub(crate) struct Relay {
    pub(crate) id: ConnId,
    pub(crate) socket: Socket,
    /// Bytes that go to the session before any of the socket's.
    preface: Vec<u8>,
    /// The socket's peer has ended its direction.
    read_done: bool,
    /// The session's peer has, and the socket knows.
    write_done: bool,
    /// Bytes from the socket to the hop.
    pub(crate) to_hop: u64,
    /// Bytes from the hop to the socket.
    pub(crate) from_hop: u64,
    /// What holds the socket's acknowledgements, if something does.
    pub(crate) held: Option<Box<Held>>,
}

/// A relay without its socket.
#[derive(Debug)]
pub(crate) struct Paused {
    id: ConnId,
    preface: Vec<u8>,
    read_done: bool,
    write_done: bool,
    to_hop: u64,
    from_hop: u64,
    /// It still holds the socket's acknowledgements.
    held: Option<Box<Held>>,
}

impl Paused {
    /// What the next base needs to hold the connection as far.
    pub(crate) fn held(&self) -> Option<migrate::Held> {
        self.held.as_ref()?.at_leaving()
    }

    /// Goes on with the same connection's socket.
    pub(crate) fn with(self, socket: Socket) -> Relay {
        let Self { id, preface, read_done, write_done, to_hop, from_hop, held } = self;
        Relay { id, socket, preface, read_done, write_done, to_hop, from_hop, held }
    }
}

impl Relay {
    /// Nothing moved yet.
    pub(crate) fn new(id: ConnId, socket: Socket, preface: Vec<u8>) -> Self {
        Self {
            id,
            socket,
            preface,
            read_done: false,
            write_done: false,
            to_hop: 0,
            from_hop: 0,
            held: None,
        }
    }

    /// The socket, and what else there is to know to go on with one like it.
    pub(crate) fn into_parts(self) -> (Socket, Paused) {
        let Self { id, socket, preface, read_done, write_done, to_hop, from_hop, held } = self;
        (socket, Paused { id, preface, read_done, write_done, to_hop, from_hop, held })
    }

    /// A connection that was relayed elsewhere, where so many bytes came from the socket; `read_done` says that the end
    /// of the socket's peer was passed on there.
    pub(crate) fn continued(id: ConnId, socket: Socket, taken: u64, read_done: bool) -> Self {
        Self { read_done, to_hop: taken, ..Self::new(id, socket, Vec::new()) }
    }

    /// Closes the socket, with a reset or after everything has come to where it goes.
    pub(crate) fn close(self, now: Time, reactor: &mut Reactor<Source>, reset: bool) {
        // What is held lets no end of a connection pass.
        match self.held {
            Some(held) if held.is_mute() => {
                self.socket.close(reactor, true);
                return drop(held);
            }
            Some(held) if !reset => held.release(now),
            held => drop(held),
        }
        self.socket.close(reactor, reset);
    }

    /// Its mobile is not here any more, and may be at another base.
    pub(crate) fn leave(&mut self) {
        if let Some(held) = &mut self.held {
            held.leave();
        }
    }

    /// The session's peer has ended its direction, and the socket knows.
    pub(crate) fn is_write_done(&self) -> bool {
        self.write_done
    }

    /// Nothing more will pass either way.
    pub(crate) fn is_over(&self) -> bool {
        self.read_done && self.write_done
    }

    /// Which directions are over.
    pub(crate) fn state(&self) -> &'static str {
        match (self.read_done, self.write_done) {
            (false, false) => "open",
            (true, false) => "sent-end",
            (false, true) => "got-end",
            (true, true) => "closing",
        }
    }

    /// Moves what can be moved. True if the turn's share was used up before that.
    pub(crate) fn pump(
        &mut self,
        now: Time,
        session: &mut Session,
        hop: &mut impl Streams,
    ) -> bool {
        let more_up = self.pump_to_hop(session, hop);
        let more_down = self.pump_from_hop(session, hop);
        if let Some(held) = &mut self.held {
            held.on_read(now, self.to_hop + u64::from(self.read_done));
            held.advance(now, session, hop, self.id);
            let (written_end, read_end) = (self.write_done, self.read_done);
            let relayed = Relayed { written: self.from_hop, written_end, read_end };
            held.follow(now, session, hop, self.id, (&self.socket, relayed));
        }
        let goes_on = self.held.as_ref().is_some_and(|held| held.can_go_on());
        if !goes_on && session.is_retained(self.id) {
            session.release_ahead(hop, self.id);
        }
        more_up || more_down
    }

    fn pump_to_hop(&mut self, session: &mut Session, hop: &mut impl Streams) -> bool {
        if !self.preface.is_empty() && !self.pump_preface(session, hop) {
            return false;
        }
        let mut left = SHARE;
        while !self.read_done && self.socket.readable() {
            if left == 0 {
                return true;
            }
            // After a reset by the peer the session's event is on its way.
            let Ok(space) = session.send_space(hop, self.id) else { return false };
            let room = space.len().min(left);
            if room == 0 {
                return false;
            }
            match self.socket.read(&mut space[..room]) {
                Moved::Bytes(n) => {
                    session.commit(hop, self.id, n);
                    self.to_hop += n as u64;
                    left -= n;
                }
                Moved::Blocked => {
                    session.commit(hop, self.id, 0);
                    return false;
                }
                Moved::End => {
                    self.read_done = true;
                    session.finish(hop, self.id);
                }
                Moved::Broken(_) => self.reset_connection(session, hop),
            }
        }
        false
    }

    fn pump_preface(&mut self, session: &mut Session, hop: &mut impl Streams) -> bool {
        let taken = session.write(hop, self.id, &self.preface).unwrap_or(0);
        self.preface.drain(..taken);
        self.to_hop += taken as u64;
        self.preface.is_empty()
    }

    fn pump_from_hop(&mut self, session: &mut Session, hop: &mut impl Streams) -> bool {
        let mut left = SHARE;
        while !self.write_done {
            if left == 0 {
                return true;
            }
            let data = session.received(hop, self.id);
            if data.is_empty() {
                if session.recv_state(hop, self.id) == RecvState::Finished {
                    if let Some(held) = &mut self.held {
                        held.let_end();
                    }
                    tcp::shutdown_write(&self.socket.fd);
                    self.write_done = true;
                }
                return false;
            }
            match self.socket.write(&data[..data.len().min(left)]) {
                Moved::Bytes(n) => {
                    session.consume(hop, self.id, n);
                    self.from_hop += n as u64;
                    left -= n;
                }
                Moved::Blocked | Moved::End => return false,
                Moved::Broken(_) => self.reset_connection(session, hop),
            }
        }
        false
    }

    /// The socket was reset: so is the connection.
    fn reset_connection(&mut self, session: &mut Session, hop: &mut impl Streams) {
        self.read_done = true;
        self.write_done = true;
        session.reset(hop, self.id, ResetReason::Aborted);
    }
}
