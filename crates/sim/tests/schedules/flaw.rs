//! Bugs to plant into a hop, so that each checker is seen to find what it is there for.

use lasthop_hop::{HopConfig, Policy, RecvState, StreamError, StreamEvent, StreamId, Streams};
use lasthop_units::{Bytes, Duration};

/// A bug to plant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flaw {
    /// None.
    None,
    /// No seal: what the radio damages is believed.
    Unsealed,
    /// A byte is changed now and then.
    Changes,
    /// Two pieces change places now and then.
    Misorders,
    /// A byte comes twice now and then.
    Doubles,
    /// A byte is missing now and then.
    Loses,
    /// The peer's reset reads as if it had finished.
    HidesResets,
    /// The peer's end reads as a reset.
    InventsResets,
    /// A writer that waits for room is never told of it.
    KeepsWritersWaiting,
    /// A short silence ends an association.
    GivesUpSoon,
    /// Buffers are larger than was said.
    Hoards,
    /// For each stream another is opened and never closed.
    LeaksStreams,
    /// A timer is always due.
    Spins,
    /// There is always one more datagram.
    SendsWithoutEnd,
    /// A packet is changed now and then.
    ChangesPackets,
    /// A packet comes twice now and then.
    DoublesPackets,
    /// Two packets change places now and then.
    MisordersPackets,
    /// A packet comes very late now and then.
    KeepsPackets,
}

impl Flaw {
    /// What a hop is set to that should be set to `config`.
    pub(crate) fn settings(self, config: &HopConfig) -> HopConfig {
        let mut config = config.clone();
        if self == Self::GivesUpSoon {
            config.silence_limit = Duration::from_millis(500);
        }
        if self == Self::Hoards {
            let all = Bytes::from_mib(64);
            (config.stream_window, config.stream_memory) = (all, all);
            (config.association_window, config.association_memory) = (all, all);
            config.ahead_min = all;
        }
        config
    }
}

/// The streams of an association, with a flaw or none.
pub(crate) struct Flawed<'a> {
    pub(crate) streams: &'a mut dyn Streams,
    pub(crate) flaw: Flaw,
    /// How often streams of this endpoint were written to.
    pub(crate) commits: &'a mut u64,
}

/// Pieces that are shorter are left alone: most of what the session itself says is.
const SHORTEST: usize = 64;

impl Streams for Flawed<'_> {
    fn open(&mut self) -> Result<StreamId, StreamError> {
        if self.flaw == Flaw::LeaksStreams {
            self.streams.open()?;
        }
        self.streams.open()
    }

    fn set_client(&mut self, id: StreamId, client: u32) {
        self.streams.set_client(id, client);
    }

    fn set_policy(&mut self, id: StreamId, policy: Policy) {
        self.streams.set_policy(id, policy);
    }

    fn poll_event(&mut self) -> Option<StreamEvent> {
        let waiting = self.flaw == Flaw::KeepsWritersWaiting;
        loop {
            match self.streams.poll_event()? {
                StreamEvent::Writable(_) if waiting => {}
                event => return Some(event),
            }
        }
    }

    fn send_space(&mut self, id: StreamId) -> Result<&mut [u8], StreamError> {
        self.streams.send_space(id)
    }

    fn commit(&mut self, id: StreamId, n: usize) {
        *self.commits += 1;
        let struck = n >= SHORTEST && self.commits.is_multiple_of(4);
        let Ok(room) = self.streams.send_space(id) else { return };
        match self.flaw {
            Flaw::Changes if struck => room[n / 2] ^= 1,
            Flaw::Misorders if struck => room[..n].rotate_left(SHORTEST / 2),
            Flaw::Doubles if struck => {
                let last = room[n - 1];
                self.streams.commit(id, n);
                let _ = self.streams.write(id, &[last]);
                return;
            }
            Flaw::Loses if struck => return self.streams.commit(id, n - 1),
            _ => {}
        }
        self.streams.commit(id, n);
    }

    fn finish(&mut self, id: StreamId) {
        self.streams.finish(id);
    }

    fn reset(&mut self, id: StreamId, code: u64) {
        self.streams.reset(id, code);
    }

    fn received(&self, id: StreamId) -> &[u8] {
        self.streams.received(id)
    }

    fn consume(&mut self, id: StreamId, n: usize) {
        self.streams.consume(id, n);
    }

    fn recv_state(&self, id: StreamId) -> RecvState {
        match (self.flaw, self.streams.recv_state(id)) {
            (Flaw::HidesResets, RecvState::Reset(_)) => RecvState::Finished,
            (Flaw::InventsResets, RecvState::Finished) => RecvState::Reset(0),
            (_, state) => state,
        }
    }
}
