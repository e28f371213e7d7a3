//! Datagrams that wait to be sent.

use alloc::collections::{BTreeMap, VecDeque};

use lasthop_wire::mhp::handoff::{Message, SessionId};

/// Those for one base or mobile, at most. What is beyond is as good as lost, and nobody else loses by it.
pub(super) const OF_ONE: usize = 1024;
/// Pieces that are sent for one request, at most.
pub(super) const PIECES_MAX: u16 = 256;

/// A datagram to be written.
#[derive(Debug)]
pub(super) enum Out {
    Message(Message<'static>),
    /// A piece of a state that leaves.
    Piece {
        offset: u64,
        len: u16,
    },
    /// A piece of a copy.
    Ahead {
        number: u32,
        offset: u64,
        len: u16,
    },
}

#[derive(Debug)]
pub(super) struct Outgoing<A> {
    pub(super) to: A,
    pub(super) session: SessionId,
    pub(super) attempt: u32,
    pub(super) out: Out,
}

/// All of them, in order.
#[derive(Debug)]
pub(super) struct Outbox<A> {
    queue: VecDeque<Outgoing<A>>,
    /// How many each has.
    of: BTreeMap<A, usize>,
}

impl<A: Copy + Ord> Outbox<A> {
    pub(super) fn new() -> Self {
        Self { queue: VecDeque::new(), of: BTreeMap::new() }
    }

    /// Whether one more would wait for it.
    pub(super) fn has_room(&self, to: A) -> bool {
        self.of.get(&to).is_none_or(|n| *n < OF_ONE)
    }

    pub(super) fn push(&mut self, outgoing: Outgoing<A>) {
        if self.has_room(outgoing.to) {
            *self.of.entry(outgoing.to).or_default() += 1;
            self.queue.push_back(outgoing);
        }
    }

    pub(super) fn pop(&mut self) -> Option<Outgoing<A>> {
        let next = self.queue.pop_front()?;
        if let Some(n) = self.of.get_mut(&next.to) {
            *n -= 1;
            if *n == 0 {
                self.of.remove(&next.to);
            }
        }
        Some(next)
    }
}
