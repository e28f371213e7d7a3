//! Who may send next: streams with something lost first, then the others in turn.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::send::SendHalf;
use crate::policy::Policy;

/// The priority of a stream that was given none.
pub(super) const USUAL: u32 = 1;
/// Who is to repeat no more bytes than this goes before others.
const LITTLE: u64 = 1024;
/// Turns are counted in this fraction of the shortest.
pub(super) const TURN: u64 = 256;

/// Where a stream waits.
#[derive(Debug)]
pub(super) struct TurnState {
    in_urgent: bool,
    in_active: bool,
    in_bare: bool,
    in_new: bool,
    /// It has not sent yet since it had nothing to send.
    is_new: bool,
    /// How much it had sent when last all of that had arrived.
    since: u64,
    /// The bucket of the host that it is of.
    client: u16,
    policy: Policy,
    priority: u32,
    /// Its turn to send, in [`TURN`]ths of the shortest.
    turn: u64,
    /// Bytes by which it overdrew its last turn.
    overdraft: usize,
}

impl TurnState {
    pub(super) fn new() -> Self {
        Self {
            in_urgent: false,
            in_active: false,
            in_bare: false,
            in_new: false,
            is_new: false,
            since: 0,
            client: 0,
            policy: Policy::Speed,
            priority: USUAL,
            turn: TURN,
            overdraft: 0,
        }
    }

    /// It has not sent yet since it had nothing to send.
    pub(super) fn is_new(&self) -> bool {
        self.is_new
    }

    /// How much it had sent when it began to send without a pause.
    pub(super) fn since(&self) -> u64 {
        self.since
    }

    /// The bucket of the host that the stream is of.
    pub(super) fn client(&self) -> u16 {
        self.client
    }

    /// Which paths may carry the stream.
    pub(super) fn policy(&self) -> Policy {
        self.policy
    }

    /// The same from here on, of a stream that [waits for nothing](Turns::leave).
    pub(super) fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// The stream's turns are this long from here on, in [`TURN`]ths of the shortest.
    pub(super) fn set_turn(&mut self, turn: u64) {
        self.turn = turn;
    }
}

/// Streams of a host with something new to send, in turn.
#[derive(Debug, Default)]
struct Active {
    client: u16,
    /// With their priorities, whose sum is known.
    ids: VecDeque<(u64, u32)>,
    weight: u64,
    /// Bytes that the stream at the front has sent in its turn.
    spent: usize,
    /// What each of the streams has been served, in [`TURN`]ths of a byte: by that the host's streams of one policy share
    /// with those of another.
    served: u64,
}

impl Active {
    fn push(&mut self, id: u64, priority: u32) {
        self.ids.push_back((id, priority));
        self.weight += u64::from(priority);
    }

    fn front(&self) -> Option<u64> {
        self.ids.front().map(|(id, _)| *id)
    }

    fn pop(&mut self) {
        let popped = self.ids.pop_front();
        self.weight -= popped.map_or(0, |(_, priority)| u64::from(priority));
    }

    /// Takes a stream of this priority out, wherever it is.
    fn remove(&mut self, id: u64, priority: u32) {
        self.ids.retain(|(other, _)| *other != id);
        self.weight -= u64::from(priority);
        self.spent = 0;
    }

    /// It is the next one's turn.
    fn skip(&mut self) {
        if !self.ids.is_empty() {
            self.ids.rotate_left(1);
        }
    }
}

/// The order in which streams of one policy send.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Streams with something lost.
    urgent: VecDeque<u64>,
    /// Of each host that ever had any.
    active: Vec<Active>,
    /// Streams of which nothing but the end is left to send, which takes no credit.
    bare: VecDeque<u64>,
    /// Those that have just come to have something new to send, and some that had.
    new: VecDeque<u64>,
}

impl Turns {
    /// Puts a stream in, wherever it has something to send; the first of a host is taken to have been served `served`.
    pub(super) fn schedule(
        &mut self,
        id: u64,
        state: &mut TurnState,
        send: &SendHalf,
        served: u64,
    ) {
        if send.has_lost() && !state.in_urgent {
            state.in_urgent = true;
            match send.lost() <= LITTLE {
                // To repeat all that a fade took takes long.
                true => self.urgent.push_front(id),
                false => self.urgent.push_back(id),
            }
        }
        if !state.in_active && send.wants_to_send(u64::MAX) {
            (state.in_active, state.is_new) = (true, true);
            if send.unsent() == send.buffered() {
                state.since = send.sent();
            }
            let of = self.of(state.client);
            if of.ids.is_empty() {
                of.served = of.served.max(served);
            }
            of.push(id, state.priority);
            if !state.in_new {
                state.in_new = true;
                self.new.push_back(id);
            }
        }
        if !state.in_bare && !send.has_lost() && send.wants_to_send(0) {
            state.in_bare = true;
            self.bare.push_back(id);
        }
    }

    /// Streams of a host with something new to send.
    fn of(&mut self, client: u16) -> &mut Active {
        let found = self.active.iter().position(|of| of.client == client);
        let at = found.unwrap_or_else(|| {
            self.active.push(Active { client, ..Active::default() });
            self.active.len() - 1
        });
        &mut self.active[at]
    }

    /// The stream is of another host from here on.
    pub(super) fn set_client(&mut self, id: u64, state: &mut TurnState, client: u16) {
        if state.in_active {
            self.of(state.client).remove(id, state.priority);
            let served = self.of(state.client).served;
            let of = self.of(client);
            of.served = of.served.max(served);
            of.push(id, state.priority);
        }
        state.client = client;
    }

    /// The stream waits no longer.
    pub(super) fn leave(&mut self, id: u64, state: &mut TurnState) {
        if state.in_active {
            self.of(state.client).remove(id, state.priority);
        }
        let Self { urgent, bare, new, .. } = self;
        let queues = [(state.in_urgent, urgent), (state.in_bare, bare), (state.in_new, new)];
        for (_, queue) in queues.into_iter().filter(|(is_in, _)| *is_in) {
            queue.retain(|other| *other != id);
        }
        (state.in_active, state.in_urgent) = (false, false);
        (state.in_bare, state.in_new) = (false, false);
    }

    /// The stream has another priority from here on.
    pub(super) fn set_priority(&mut self, id: u64, state: &mut TurnState, priority: u32) {
        if state.in_active {
            let of = self.of(state.client);
            let listed = of.ids.iter_mut().filter(|(other, _)| *other == id);
            listed.for_each(|(_, listed)| *listed = priority);
            of.weight = of.weight - u64::from(state.priority) + u64::from(priority);
        }
        state.priority = priority;
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

    /// The next stream that has just come to have something new to send, unless it [has sent](TurnState::is_new) since.
    pub(super) fn first_new(&self) -> Option<u64> {
        self.new.front().copied()
    }

    /// That stream has sent, may not go before others, or is gone.
    pub(super) fn remove_new(&mut self, state: Option<&mut TurnState>) {
        self.new.pop_front();
        if let Some(state) = state {
            state.in_new = false;
        }
    }

    /// A stream has sent all that it had, before its turn.
    pub(super) fn on_sent_early(&mut self, id: u64, state: &mut TurnState, bytes: usize) {
        let of = self.of(state.client);
        of.served += bytes as u64 * TURN / of.weight.max(1);
        if of.front() == Some(id) {
            of.spent = 0;
        }
        // Who has just come is the last, or nearly.
        if let Some(at) = of.ids.iter().rposition(|(other, _)| *other == id) {
            of.ids.remove(at);
            of.weight -= u64::from(state.priority);
        }
        (state.in_active, state.is_new, state.overdraft) = (false, false, 0);
    }

    /// All streams that are to repeat something.
    pub(super) fn all_urgent(&self) -> impl Iterator<Item = &u64> {
        self.urgent.iter()
    }

    /// That stream has nothing left to repeat, or is gone.
    pub(super) fn remove_urgent(&mut self, state: Option<&mut TurnState>) {
        self.urgent.pop_front();
        if let Some(state) = state {
            state.in_urgent = false;
        }
    }

    /// Hosts of which some stream has something new to send.
    pub(super) fn clients(&self) -> impl Iterator<Item = u16> {
        self.active.iter().filter(|of| !of.ids.is_empty()).map(|of| of.client)
    }

    /// All streams with something new to send.
    pub(super) fn active(&self) -> impl Iterator<Item = &u64> {
        self.active.iter().flat_map(|of| &of.ids).map(|(id, _)| id)
    }

    /// How many streams have something new to send.
    pub(super) fn len(&self) -> usize {
        self.active.iter().map(|of| of.ids.len()).sum()
    }

    /// How many streams of a host have something new to send.
    pub(super) fn len_of(&self, client: u16) -> usize {
        self.active.iter().find(|of| of.client == client).map_or(0, |of| of.ids.len())
    }

    /// The priorities of these together.
    pub(super) fn weight_of(&self, client: u16) -> u64 {
        self.active.iter().find(|of| of.client == client).map_or(0, |of| of.weight)
    }

    /// What each of a host's streams has been served, if there are some with something new to send.
    pub(super) fn served(&self, client: u16) -> Option<u64> {
        let of = self.active.iter().find(|of| of.client == client && !of.ids.is_empty());
        of.map(|of| of.served)
    }

    /// The stream of a host whose turn it is.
    pub(super) fn front(&self, client: u16) -> Option<u64> {
        self.active.iter().find(|of| of.client == client)?.front()
    }

    /// The streams whose turn it is, of each host.
    pub(super) fn fronts(&self) -> impl Iterator<Item = u64> {
        self.active.iter().filter_map(Active::front)
    }

    /// The stream of a host whose turn it is cannot send yet: it is the next one's.
    pub(super) fn skip(&mut self, client: u16) {
        self.of(client).skip();
    }

    /// The stream of a host whose turn it is is gone.
    pub(super) fn remove_active(&mut self, client: u16) {
        self.of(client).pop();
    }

    /// The stream whose turn it is, of its host's, has sent `bytes` and has no `more` or goes on. It stays at the
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
        let of = self.of(state.client);
        state.is_new = false;
        of.served += bytes as u64 * TURN / of.weight.max(1);
        if !more {
            of.spent = 0;
            state.overdraft = 0;
            state.in_active = false;
            of.pop();
            return;
        }
        of.spent += bytes;
        let spent = of.spent + state.overdraft;
        let allowed = (shortest as u64 * state.turn / TURN) as usize;
        if spent >= allowed {
            state.overdraft = if exact { spent - allowed } else { 0 };
            of.spent = 0;
            of.skip();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> (TurnState, SendHalf) {
        let mut send = SendHalf::new(1 << 20, u64::MAX);
        send.reserve(1000, u64::MAX);
        send.space(1000);
        send.commit(1000);
        (TurnState::new(), send)
    }

    /// Two that have something, each put in twice, which is as good as once.
    fn two_streams() -> (Turns, [(TurnState, SendHalf); 2]) {
        let mut turns = Turns::default();
        let mut streams = [stream(), stream()];
        for (id, (state, send)) in streams.iter_mut().enumerate() {
            turns.schedule(id as u64, state, send, 0);
            turns.schedule(id as u64, state, send, 0);
        }
        (turns, streams)
    }

    #[test]
    fn a_longer_turn_sends_more_and_what_is_overdrawn_shortens_the_next() {
        let (mut turns, mut streams) = two_streams();
        streams[1].0.set_turn(2 * TURN);
        let order: Vec<u64> = (0..12)
            .map(|_| {
                let id = turns.front(0).unwrap();
                turns.on_sent(&mut streams[id as usize].0, 700, true, 1000, true);
                id
            })
            .collect();
        assert_eq!(order, [0, 0, 1, 1, 1, 0, 1, 1, 1, 0, 0, 1]);
        turns.on_sent(&mut streams[1].0, 700, false, 1000, true);
        assert_eq!((turns.len(), turns.urgent()), (1, None));
    }

    #[test]
    fn a_stream_that_turns_out_to_be_another_hosts_waits_there() {
        let (mut turns, mut streams) = two_streams();
        turns.set_client(0, &mut streams[0].0, 7);
        assert_eq!((turns.front(7), turns.front(0), turns.len_of(0)), (Some(0), Some(1), 1));
        turns.set_priority(0, &mut streams[0].0, 5);
        assert_eq!((turns.weight_of(7), turns.weight_of(0), turns.weight_of(1)), (5, 1, 0));
        assert!(turns.clients().eq([0, 7]) && turns.fronts().eq([1, 0]));
        turns.on_sent(&mut streams[0].0, 700, false, 1000, false);
        assert_eq!((turns.front(7), turns.len(), streams[0].0.client()), (None, 1, 7));
        assert_eq!(turns.weight_of(7), 0);
    }
}
