//! What the streams' buffers take of the memory that associations share.

use alloc::collections::VecDeque;

use super::credit::Credit;
use super::send::SendHalf;
use super::stream::{Counted, Stream};
use super::table::StreamTable;
use crate::config::{cost_of_credit, credit_for};
use crate::memory::{Lease, Memory};

/// Less than this is no buffer worth making.
const BUFFER_MIN: u64 = 16 * 1024;
/// Ranges out of order that all streams may have together: so many, and one for so much credit.
const FRAGMENTS_MIN: u64 = 1024;
const FRAGMENT_CREDIT: u64 = 64;

/// The sums over all streams, kept as each changes, and the memory that they come from.
#[derive(Debug)]
pub(super) struct Buffers {
    bounded: bool,
    sending: Lease,
    receiving: Lease,
    sum: Counted,
    /// What the peer has taken of what was sent.
    taken: u64,
    /// Streams whose receiving buffer is larger than it needs to be.
    slack: VecDeque<u64>,
}

impl Buffers {
    pub(super) fn new(memory: &Memory) -> Self {
        Self {
            bounded: memory.bound().is_some(),
            sending: memory.lease(),
            receiving: memory.lease(),
            sum: Counted::default(),
            taken: 0,
            slack: VecDeque::new(),
        }
    }

    /// What the buffers hold.
    pub(super) fn held(&self) -> u64 {
        self.sum.send + self.sum.recv
    }

    /// A stream's buffers have changed.
    pub(super) fn recount(&mut self, stream: &mut Stream) {
        let now = stream.count();
        self.replace(core::mem::replace(&mut stream.counted, now), now);
    }

    /// A stream is gone.
    pub(super) fn forget(&mut self, stream: &Stream) {
        self.replace(stream.counted, Counted::default());
    }

    fn replace(&mut self, before: Counted, now: Counted) {
        let sum = &mut self.sum;
        sum.send = sum.send - before.send + now.send;
        sum.recv = sum.recv - before.recv + now.recv;
        sum.fragments = sum.fragments - before.fragments + now.fragments;
        sum.promised = sum.promised - before.promised + now.promised;
        self.sending.set_need(self.sum.send);
    }

    /// The widest window for all streams that there is memory for. Beyond the minimum nobody gets more
    /// than what applications here have shown to take.
    pub(super) fn window_max(&self, credit: &Credit) -> u64 {
        let most = credit_for(self.receiving.most());
        let minimum = credit_for(self.receiving.minimum());
        credit.window_max().min(most).min(minimum.saturating_add(credit.consumed()))
    }

    /// How wide a stream's window may grow: as wide as what it leaves to the others, so that one that is read
    /// goes on whatever is not. Where memory is bounded, associations leave each other something instead.
    pub(super) fn stream_window_max(&self, stream: &Stream, credit: &Credit) -> u64 {
        if self.bounded {
            return u64::MAX;
        }
        let others = self.sum.promised - stream.counted.promised;
        self.window_max(credit).saturating_sub(others) / 2
    }

    /// Credit was granted, used or returned.
    pub(super) fn charge(&mut self, credit: &Credit) {
        if self.bounded {
            self.receiving.set_need(cost_of_credit(credit.outstanding()).max(self.sum.recv));
        }
    }

    /// More ranges are out of order than honest losses make.
    pub(super) fn is_shredded(&self, credit: &Credit) -> bool {
        self.bounded && self.sum.fragments > FRAGMENTS_MIN + credit.outstanding() / FRAGMENT_CREDIT
    }

    /// The application has taken bytes of a stream.
    pub(super) fn on_consumed(&mut self, id: u64, stream: &mut Stream) {
        self.recount(stream);
        if self.bounded && !stream.slack_listed && stream.recv.has_slack() {
            stream.slack_listed = true;
            self.slack.push_back(id);
        }
    }

    /// Bytes have come for a stream: where buffers have become larger than the credit accounts for,
    /// those that are larger than they need to be pay.
    pub(super) fn on_received(&mut self, streams: &mut StreamTable, credit: &Credit) {
        while self.sum.recv > cost_of_credit(credit.outstanding())
            && let Some(id) = self.slack.pop_front()
        {
            let Some(stream) = streams.get_mut(id) else { continue };
            stream.slack_listed = false;
            stream.recv.tighten();
            self.recount(stream);
        }
        self.charge(credit);
    }

    /// The peer has acknowledged so much more of a stream.
    pub(super) fn on_acked(&mut self, bytes: u64, stream: &mut Stream) {
        self.taken += bytes;
        if self.bounded && self.sum.send > self.sending.minimum() {
            stream.send.tighten();
        }
        self.recount(stream);
    }

    /// How large a stream's sending buffer may become: twice what it leaves to the others, which with
    /// capacities in powers of two is at least as much. Beyond the minimum nobody gets more than twice what
    /// its peer has taken.
    pub(super) fn allowed(&self, send: &SendHalf) -> u64 {
        if !self.bounded {
            return u64::MAX;
        }
        let proved = self.sending.minimum().saturating_add(2 * self.taken);
        let others = self.sum.send - (send.memory() as u64).min(self.sum.send);
        let free = self.sending.most().min(proved).saturating_sub(others);
        let most = free - free / 3;
        if most < BUFFER_MIN { 0 } else { 1 << most.ilog2() }
    }
}
