//! The control connection of an association. Messages on it are short and read at once.

use std::io;

use lasthop_hop::RecvState;
use lasthop_kernel::reactor::Readiness;
use lasthop_kernel::slab::Key;
use lasthop_kernel::tcp::{Moved, Socket};
use thiserror::Error;

use super::cipher::{Opener, Sealer};
use super::inbound::Inbound;
use super::outbound::Outbound;
use super::record::Forged;

/// Why a control connection is over.
#[derive(Debug, Error)]
pub(super) enum ControlError {
    #[error("the peer said something that is not understood")]
    Strange,
    #[error("the peer closed the connection")]
    Closed,
    #[error(transparent)]
    Broken(#[from] io::Error),
}

impl From<Forged> for ControlError {
    fn from(_: Forged) -> Self {
        Self::Strange
    }
}

/// A control connection after the handshake.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) key: Key,
    pub(super) socket: Socket,
    into: Inbound,
    out: Outbound,
}

impl Control {
    /// The connection, and what came on it behind the handshake.
    pub(super) fn new(
        key: Key,
        socket: Socket,
        mut into: Inbound,
        (sealer, opener): (Sealer, Opener),
    ) -> Self {
        let mut out = Outbound::new();
        out.start(sealer);
        into.start(opener);
        Self { key, socket, into, out }
    }

    /// Takes over what the kernel reported.
    pub(super) fn ready(&mut self, readiness: Readiness) {
        self.socket.ready(readiness);
    }

    /// What has come from the peer, from the first byte that was not consumed; empty if nothing has.
    ///
    /// # Errors
    ///
    /// The connection is over.
    pub(super) fn receive(&mut self) -> Result<&[u8], ControlError> {
        loop {
            self.into.open_records()?;
            if let Some(ack) = self.into.take_ack() {
                self.out.handle_ack(ack)?;
            }
            if self.into.recv_state() != RecvState::Open {
                return Err(ControlError::Strange);
            }
            if !self.into.plain().is_empty() {
                return Ok(self.into.plain());
            }
            match self.socket.read(self.into.space()) {
                Moved::Bytes(n) => self.into.filled(n),
                Moved::Blocked => return Ok(&[]),
                Moved::End => return Err(ControlError::Closed),
                Moved::Broken(e) => return Err(e.into()),
            }
        }
    }

    /// `n` bytes of [`receive`](Self::receive) were used.
    pub(super) fn consume(&mut self, n: usize) {
        self.into.consume(n);
    }

    /// Whether the peer has proven that it has the keys.
    pub(super) fn is_proven(&self) -> bool {
        self.into.opened()
    }

    /// Queues `message`, whole or not at all: false if too much waits already.
    pub(super) fn send<const N: usize>(&mut self, message: &[u8; N]) -> bool {
        let Some(room) = self.out.space().first_chunk_mut() else { return false };
        *room = *message;
        self.out.commit(N);
        true
    }

    /// Moves what waits into the kernel.
    ///
    /// # Errors
    ///
    /// The connection is over.
    pub(super) fn flush(&mut self) -> Result<(), ControlError> {
        loop {
            if let Some(pending) = self.into.pending_ack().filter(|pending| pending.urgent)
                && self.out.acknowledge(pending.ack)
            {
                self.into.set_acknowledged(pending.ack);
            }
            let pending = self.out.pending();
            if pending.is_empty() {
                return Ok(());
            }
            match self.socket.write(pending) {
                Moved::Bytes(n) => self.out.sent(n),
                Moved::Blocked | Moved::End => return Ok(()),
                Moved::Broken(e) => return Err(e.into()),
            }
        }
    }
}
