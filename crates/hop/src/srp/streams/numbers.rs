//! Which numbers streams have, and which of them have begun.

use lasthop_stream::RangeSet;

use crate::srp::Violation;
use crate::transport::Role;

/// How far ahead of the last stream the peer's next may be, and how many gaps there may be between
/// those that have begun.
const JUMP_MAX: u64 = 1 << 20;
const UNOPENED_MAX: usize = 4096;

/// The numbers of both ends' streams: the mobile's are even, the base's odd, none is used twice.
#[derive(Debug)]
pub(super) struct Numbers {
    role: Role,
    /// Streams of ours that are open.
    open: usize,
    next: u64,
    peer_next: u64,
    /// Streams before that which the peer has not begun, by half their number.
    unopened: RangeSet,
}

impl Numbers {
    pub(super) fn new(role: Role) -> Self {
        let (next, peer_next) = if role == Role::Mobile { (0, 1) } else { (1, 0) };
        Self { role, open: 0, next, peer_next, unopened: RangeSet::default() }
    }

    /// Those of the next association: our own go on.
    pub(super) fn restarted(&self) -> Self {
        Self { next: self.next, ..Self::new(self.role) }
    }

    pub(super) fn role(&self) -> Role {
        self.role
    }

    pub(super) fn is_local(&self, id: u64) -> bool {
        id % 2 == if self.role == Role::Mobile { 0 } else { 1 }
    }

    /// How many of ours are open.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// The number of the next that we open.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Opens one of ours.
    pub(super) fn open_next(&mut self) -> u64 {
        let id = self.next;
        self.next += 2;
        self.open += 1;
        id
    }

    /// A stream is over, or gone.
    pub(super) fn close(&mut self, id: u64) {
        if self.is_local(id) {
            self.open -= 1;
        }
    }

    /// The peer's streams before `first` belonged to earlier associations.
    pub(super) fn skip(&mut self, first: u64) {
        self.peer_next = self.peer_next.max(first);
    }

    /// Accepts a stream's number in a frame of the peer; whether it opens the stream. Streams open in
    /// any order; what lies between is remembered, so that a late opening is distinct from a late
    /// repetition for a stream that is over.
    ///
    /// # Errors
    ///
    /// We never opened it, or the peer leaves out too many.
    pub(super) fn accept(&mut self, id: u64) -> Result<bool, Violation> {
        if self.is_local(id) {
            return if id < self.next { Ok(false) } else { Err(Violation) };
        }
        let index = id / 2;
        if id >= self.peer_next {
            if id - self.peer_next > JUMP_MAX || self.unopened.fragments() > UNOPENED_MAX {
                return Err(Violation);
            }
            self.unopened.insert(self.peer_next / 2..index);
            self.peer_next = id + 2;
            return Ok(true);
        }
        let begins = self.unopened.missing_in(index..index + 1).next().is_none();
        if begins {
            self.unopened.remove(index..index + 1);
        }
        Ok(begins)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_begins_once_in_whatever_order() {
        let mut n = Numbers::new(Role::Mobile);
        assert_eq!((n.open_next(), n.open_next(), n.open()), (0, 2, 2));
        assert_eq!((n.accept(2), n.accept(4)), (Ok(false), Err(Violation)));
        assert_eq!(
            [7, 3, 3, 1, 7, 5].map(|id| n.accept(id)),
            [true, true, false, true, false, true].map(Ok)
        );
        assert_eq!(n.accept(9 + JUMP_MAX + 2), Err(Violation));
        n.close(0);
        n.close(7);
        assert_eq!(n.open(), 1);
        let mut next = n.restarted();
        assert_eq!((next.open_next(), next.accept(1)), (4, Ok(true)));
    }
}
