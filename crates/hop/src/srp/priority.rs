//! User priorities: how streams divide the association's window and the sender's turns (RWC).
//!
//! As long as no stream was given a priority nothing is divided: every stream has the window that
//! it needs, and turns are equal. From the first priority on the receiver grants each stream its
//! share of the association's window, and the sender makes turns as long as the same shares say.
//! The windows bound what a flow may hold; it is the turns that divide the hop's rate, since on a
//! measured hop the rate, not the window, limits a sender (RWC-11), and they leave what one stream
//! does not use to the others. So that both ends divide alike, each tells the other the priorities
//! that it was given.

use lasthop_stream::Shares;

use super::Srp;
use super::recv::GROWTH;
use super::sent::Content;

/// The priority of a stream of which nobody has said anything.
pub(super) const USUAL: u32 = 1;
/// Into so many units a window is divided.
const UNITS: u64 = 1024;
/// Turns are told in this fraction of the shortest.
pub(super) const TURN: u64 = 256;
/// The longest turn, in shortest ones: whatever its priority, a stream does not keep others waiting
/// for longer.
const TURNS_MAX: u64 = 64;
/// No stream's window is less, if the association's is not: a full datagram of any usual size.
const LEAST: u64 = 2048;

impl Srp {
    /// The user has spoken, here or at the peer. What follows is for
    /// [`settle_shares`](Self::settle_shares).
    pub(super) fn give_priority(&mut self, id: u64, priority: u32) {
        let Some(stream) = self.streams.get_mut(&id).filter(|s| !s.retired) else { return };
        stream.priority = priority;
        self.shares.get_or_insert_with(|| Shares::new(UNITS, usize::MAX));
        self.unsettled = Some(Some(id));
    }

    /// A stream begins.
    pub(super) fn join_shares(&mut self, id: u64) {
        if self.shares.is_some() {
            self.unsettled = Some(Some(id));
        }
    }

    /// A stream is over or gone.
    pub(super) fn leave_shares(&mut self) {
        if self.shares.is_some() {
            self.unsettled = Some(None);
        }
    }

    /// Divides anew if there is reason to. That takes time in proportion to the number of streams, so
    /// it is done once for all that a datagram says.
    pub(super) fn settle_shares(&mut self) {
        let Some(last) = self.unsettled.take() else { return };
        let Some(shares) = &mut self.shares else { return };
        let streams = self.streams.iter().filter(|(_, stream)| !stream.retired);
        shares.replace(streams.map(|(id, stream)| (*id, stream.priority)), last);
        self.divide_turns();
        self.divide_window();
    }

    /// Makes each stream's turn as many times the shortest as its share is.
    fn divide_turns(&mut self) {
        let Some(shares) = &self.shares else { return };
        let least = shares.iter().map(|(_, share)| share).min().unwrap_or(1).max(1);
        for (id, share) in shares.iter() {
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.turn = (TURN * share / least).min(TURN * TURNS_MAX);
            }
        }
    }

    /// Gives each stream its share of the association's window.
    pub(super) fn divide_window(&mut self) {
        let Some(shares) = &self.shares else { return };
        let window = self.credit.window;
        for (id, share) in shares.iter() {
            let bytes = u128::from(window) * u128::from(share) / u128::from(UNITS);
            let bytes = u64::try_from(bytes).unwrap_or(window).max(LEAST.min(window));
            if let Some(stream) = self.streams.get_mut(&id)
                && stream.recv.set_share(bytes)
            {
                self.controls.push_back(Content::StreamCredit { stream: id });
            }
        }
    }

    /// A stream's share is used up. If what arrives is taken promptly, the window that is divided is
    /// too small: a share cannot grow alone.
    pub(super) fn widen_for(&mut self, id: u64) {
        let prompt = self.streams.get(&id).is_some_and(|stream| stream.recv.is_prompt());
        if self.shares.is_none() || !prompt || self.credit.window >= self.credit.window_max {
            return;
        }
        self.credit.window = (self.credit.window * GROWTH).min(self.credit.window_max);
        self.divide_window();
        self.renew_credit(true);
    }

    /// Tells the peer something that is told in its present form, once.
    pub(super) fn tell(&mut self, content: Content) {
        if !self.controls.contains(&content) {
            self.controls.push_back(content);
        }
    }
}
