//! The receiving end of a hop: it says what has come and passes each frame on once.

use alloc::collections::VecDeque;

use lasthop_units::Time;

use super::LinkConfig;
use super::order::{InOrder, WINDOW};
use crate::Packet;

const WORDS: usize = WINDOW as usize / 64;

/// What the receiving end did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ReceiverStats {
    /// Frames that were passed on.
    pub delivered: u64,
    /// Frames that had come before and were dropped.
    pub duplicates: u64,
    /// Times that the numbers began anew: the other end has restarted, or is another one.
    pub restarts: u64,
}

/// Takes the numbers off, acknowledges each frame and drops those that have come before.
#[derive(Clone, Debug)]
pub struct LinkReceiver<P> {
    highest: Option<u32>,
    /// Bit `frame % WINDOW`, for the highest frame and those less than `WINDOW` before it.
    come: [u64; WORDS],
    order: Option<InOrder<P>>,
    ready: VecDeque<P>,
    stats: ReceiverStats,
}

/// What to tell the other end after a frame: the fields of
/// [`Message::LinkAck`](lasthop_wire::agent::Message::LinkAck).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkAck {
    /// The frame that came.
    pub latest: u32,
    /// Bit n: the frame `latest - n` has come.
    pub come: u64,
}

impl<P: Packet> LinkReceiver<P> {
    /// A receiving end to which nothing has come.
    pub fn new(config: &LinkConfig) -> Self {
        Self {
            highest: None,
            come: [0; WORDS],
            order: config.in_order.then(|| InOrder::new(config.hold)),
            ready: VecDeque::new(),
            stats: ReceiverStats::default(),
        }
    }

    /// What it did.
    pub const fn stats(&self) -> &ReceiverStats {
        &self.stats
    }

    /// A frame came. Returns what to acknowledge, also for one that had come before: its
    /// acknowledgement may be lost.
    pub fn handle_frame(&mut self, now: Time, frame: u32, mut packet: P) -> LinkAck {
        if self.mark(frame) {
            packet.set_frame(None);
            self.stats.delivered += 1;
            match &mut self.order {
                None => self.ready.push_back(packet),
                Some(order) => order.handle_frame(now, frame, packet, &mut self.ready),
            }
        } else {
            self.stats.duplicates += 1;
        }
        LinkAck { latest: frame, come: self.received_before(frame) }
    }

    /// The next packet to pass on.
    pub fn poll_delivery(&mut self) -> Option<P> {
        self.ready.pop_front()
    }

    /// Packets that wait for one before them.
    pub fn held(&self) -> usize {
        self.order.as_ref().map_or(0, InOrder::held)
    }

    /// When to wait no longer for a missing frame.
    pub fn next_timeout(&self) -> Option<Time> {
        self.order.as_ref()?.next_timeout()
    }

    /// Passes on what waits for a frame that does not come.
    pub fn handle_timeout(&mut self, now: Time) {
        if let Some(order) = &mut self.order {
            order.handle_timeout(now, &mut self.ready);
        }
    }

    /// The other end is another one from here on. What waits is passed on.
    pub fn clear(&mut self) {
        self.highest = None;
        if let Some(order) = &mut self.order {
            order.release(&mut self.ready);
        }
    }

    /// Notes that a frame has come; whether it is the first time.
    fn mark(&mut self, frame: u32) -> bool {
        let ahead = self.highest.map(|highest| frame.wrapping_sub(highest).cast_signed());
        match ahead {
            Some(ahead) if ahead > 0 => self.advance(ahead.unsigned_abs(), frame),
            Some(ahead) if ahead.unsigned_abs() < WINDOW => {}
            _ => self.restart_at(frame),
        }
        let (word, bit) = place(frame);
        let new = self.come[word] & bit == 0;
        self.come[word] |= bit;
        new
    }

    /// Nothing is known of what came before this frame. A hop does not reorder, so one that lies far
    /// back is from another count.
    fn restart_at(&mut self, frame: u32) {
        if self.highest.is_some() {
            self.stats.restarts += 1;
        }
        self.highest = Some(frame);
        self.come = [0; WORDS];
        if let Some(order) = &mut self.order {
            order.release(&mut self.ready);
        }
    }

    fn advance(&mut self, by: u32, frame: u32) {
        self.highest = Some(frame);
        if by >= WINDOW {
            self.come = [0; WORDS];
            return;
        }
        for back in 0..by {
            let (word, bit) = place(frame.wrapping_sub(back));
            self.come[word] &= !bit;
        }
    }

    /// Bit n: `frame - n` has come.
    fn received_before(&self, frame: u32) -> u64 {
        let at = frame % WINDOW;
        let (word, shift) = ((at / 64) as usize, at % 64);
        let upper = self.come[word] << (63 - shift);
        let lower = self.come[(word + WORDS - 1) % WORDS].checked_shr(shift + 1).unwrap_or(0);
        let bits = (upper | lower).reverse_bits();
        // What is further back than the window shares its place with what is further ahead.
        let back = self.highest.map_or(0, |highest| highest.wrapping_sub(frame));
        match WINDOW.saturating_sub(back) {
            known @ 0..64 => bits & ((1 << known) - 1),
            _ => bits,
        }
    }
}

const fn place(frame: u32) -> (usize, u64) {
    let at = frame % WINDOW;
    ((at / 64) as usize, 1 << (at % 64))
}
