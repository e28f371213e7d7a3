//! Who may send next: streams with something lost first, then the others in turn.

use alloc::collections::VecDeque;

use super::send::SendHalf;

/// Turns are counted in this fraction of the shortest.
pub(super) const TURN: u64 = 256;

/// Where a stream waits.
#[derive(Debug)]
pub(super) struct TurnState {
    in_urgent: bool,
    in_active: bool,
    in_bare: bool,
    /// Its turn to send, in [`TURN`]ths of the shortest.
    turn: u64,
    /// Bytes by which it overdrew its last turn.
    overdraft: usize,
}

impl TurnState {
    pub(super) fn new() -> Self {
        Self { in_urgent: false, in_active: false, in_bare: false, turn: TURN, overdraft: 0 }
    }

    /// The stream's turns are this long from here on, in [`TURN`]ths of the shortest.
    pub(super) fn set_turn(&mut self, turn: u64) {
        self.turn = turn;
    }
}

/// The order in which streams send.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Streams with something lost, and with something new, in turn.
    urgent: VecDeque<u64>,
    active: VecDeque<u64>,
    /// Streams of which nothing but the end is left to send, which takes no credit.
    bare: VecDeque<u64>,
    /// Bytes that the stream at the front has sent in its turn.
    spent: usize,
}

impl Turns {
    /// Puts a stream in, wherever it has something to send.
    pub(super) fn schedule(&mut self, id: u64, state: &mut TurnState, send: &SendHalf) {
        if send.has_lost() && !state.in_urgent {
            state.in_urgent = true;
            self.urgent.push_back(id);
        }
        if !state.in_active && send.wants_to_send(u64::MAX) {
            state.in_active = true;
            self.active.push_back(id);
        }
        if !state.in_bare && !send.has_lost() && send.wants_to_send(0) {
            state.in_bare = true;
            self.bare.push_back(id);
        }
    }

    /// The first stream of which nothing but the end is left.
    pub(super) fn bare(&self) -> Option<u64> {
        self.bare.front().copied()
    }

    /// That stream's end was sent, or it is gone.
    pub(super) fn remove_bare(&mut self, state: Option<&mut TurnState>) {
        self.bare.pop_front();
        if let Some(state) = state {
            state.in_bare = false;
        }
    }

    /// The stream that is to repeat something.
    pub(super) fn urgent(&self) -> Option<u64> {
        self.urgent.front().copied()
    }

    /// That stream has nothing left to repeat, or is gone.
    pub(super) fn remove_urgent(&mut self, state: Option<&mut TurnState>) {
        self.urgent.pop_front();
        if let Some(state) = state {
            state.in_urgent = false;
        }
    }

    /// Streams with something to send, the one whose turn it is first.
    pub(super) fn active(&self) -> &VecDeque<u64> {
        &self.active
    }

    /// The stream whose turn it is cannot send yet: it is the next one's.
    pub(super) fn skip(&mut self) {
        self.active.rotate_left(1);
    }

    /// The stream whose turn it is is gone.
    pub(super) fn remove_active(&mut self) {
        self.active.pop_front();
    }

    /// The stream whose turn it is has sent `bytes` and has no `more` or goes on. It stays at the
    /// front until it has sent its turn, of which the shortest is `shortest`. Where turns are `exact`
    /// what was sent beyond one shortens the next.
    pub(super) fn on_sent(
        &mut self,
        state: &mut TurnState,
        bytes: usize,
        more: bool,
        shortest: usize,
        exact: bool,
    ) {
        if !more {
            self.spent = 0;
            state.overdraft = 0;
            state.in_active = false;
            self.active.pop_front();
            return;
        }
        self.spent += bytes;
        let spent = self.spent + state.overdraft;
        let allowed = (shortest as u64 * state.turn / TURN) as usize;
        if spent >= allowed {
            state.overdraft = if exact { spent - allowed } else { 0 };
            self.spent = 0;
            self.skip();
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn stream() -> (TurnState, SendHalf) {
        let mut send = SendHalf::new(1 << 20, u64::MAX);
        send.reserve(1000, u64::MAX);
        send.space(1000);
        send.commit(1000);
        (TurnState::new(), send)
    }

    #[test]
    fn a_longer_turn_sends_more_and_what_is_overdrawn_shortens_the_next() {
        let mut turns = Turns::default();
        let mut streams = [stream(), stream()];
        for (id, (state, send)) in streams.iter_mut().enumerate() {
            turns.schedule(id as u64, state, send);
            turns.schedule(id as u64, state, send);
        }
        streams[1].0.set_turn(2 * TURN);
        let order: Vec<u64> = (0..12)
            .map(|_| {
                let id = turns.active()[0];
                turns.on_sent(&mut streams[id as usize].0, 700, true, 1000, true);
                id
            })
            .collect();
        assert_eq!(order, [0, 0, 1, 1, 1, 0, 1, 1, 1, 0, 0, 1]);
        turns.on_sent(&mut streams[1].0, 700, false, 1000, true);
        assert_eq!((turns.active().len(), turns.urgent()), (1, None));
    }
}
