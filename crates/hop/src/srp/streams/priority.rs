//! User priorities: how streams divide the association's window and the sender's turns (RWC).
//!
//! As long as no stream was given a priority nothing is divided: every stream has the window that
//! it needs, and turns are equal. From the first priority on the receiver grants each stream its
//! share of the association's window, and the sender makes turns as long by the same shares.
//! The windows bound what a flow may hold; it is the turns that divide the hop's rate, since on a
//! measured hop the rate, not the window, limits a sender (RWC-11), and they leave what one stream
//! does not use to the others. So that both ends divide alike, each sends the other the priorities
//! that it was given.

use alloc::collections::BTreeMap;

use lasthop_stream::Shares;

use super::stream::Stream;
use super::turns::TURN;

/// Into so many units a window is divided.
const UNITS: u64 = 1024;
/// The longest turn, in shortest ones: whatever its priority, a stream does not keep others waiting
/// for longer.
const TURNS_MAX: u64 = 64;
/// No stream's window is less, if the association's is not: a full datagram of any usual size.
const LEAST: u64 = 2048;

/// Shares, once one of the streams was given a priority.
#[derive(Debug, Default)]
pub(super) struct Division {
    shares: Option<Shares<u64>>,
    /// Shares are to be divided anew, with the remainder to this stream if any.
    pending: Option<Option<u64>>,
}

impl Division {
    /// Something is divided.
    pub(super) fn is_on(&self) -> bool {
        self.shares.is_some()
    }

    /// A stream's priority was set, here or at the peer. Shares follow with [`update`](Self::update).
    pub(super) fn change(&mut self, id: u64) {
        self.shares.get_or_insert_with(|| Shares::new(UNITS, usize::MAX));
        self.pending = Some(Some(id));
    }

    /// A stream begins.
    pub(super) fn join(&mut self, id: u64) {
        if self.is_on() {
            self.pending = Some(Some(id));
        }
    }

    /// A stream is over or gone.
    pub(super) fn leave(&mut self) {
        if self.is_on() {
            self.pending = Some(None);
        }
    }

    /// Divides anew if there is reason to, and makes each stream's turn as many times the shortest as
    /// its share is; whether it did. That takes time in proportion to the number of streams, so it is
    /// done once for all frames of a datagram.
    pub(super) fn update(&mut self, streams: &mut BTreeMap<u64, Stream>) -> bool {
        let Some(last) = self.pending.take() else { return false };
        let Some(shares) = &mut self.shares else { return false };
        let open = streams.iter().filter(|(_, stream)| !stream.closed);
        shares.replace(open.map(|(id, stream)| (*id, stream.priority)), last);
        let least = shares.iter().map(|(_, share)| share).min().unwrap_or(1).max(1);
        for (id, share) in shares.iter() {
            if let Some(stream) = streams.get_mut(&id) {
                stream.turn_state.set_turn((TURN * share / least).min(TURN * TURNS_MAX));
            }
        }
        true
    }

    /// Of each stream that takes part its share of a `window`.
    pub(super) fn windows(&self, window: u64) -> impl Iterator<Item = (u64, u64)> {
        self.shares.iter().flat_map(Shares::iter).map(move |(id, share)| {
            let bytes = u128::from(window) * u128::from(share) / u128::from(UNITS);
            (id, u64::try_from(bytes).unwrap_or(window).max(LEAST.min(window)))
        })
    }
}
