//! What goes by two paths: sent by one, it waits until another has air to spare.

use alloc::collections::VecDeque;

use super::content::Content;

/// So much waits at most; of more the oldest is sent once.
const WAITING_MAX: usize = 256;
/// One of so many bytes that a path carries may be such a second one although others wait, and so many may be saved up.
const PART: u64 = 8;
const SAVED_MAX: u64 = 16 * 1024;

/// What a path was the first to carry, and what it may carry as the second.
#[derive(Debug, Default)]
pub(super) struct Twice {
    waiting: VecDeque<Content>,
    earned: u64,
}

impl Twice {
    /// Something was sent by the path that is to go by another as well.
    pub(super) fn push(&mut self, content: Content) {
        if self.waiting.len() == WAITING_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(content);
    }

    /// Something waits for another path.
    pub(super) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// What has waited for another path longest.
    pub(super) fn front(&self) -> Option<Content> {
        self.waiting.front().copied()
    }

    /// That was sent, or is not worth it any more.
    pub(super) fn pop(&mut self) {
        self.waiting.pop_front();
    }

    /// The path carries so many bytes of whatever kind.
    pub(super) fn earn(&mut self, bytes: usize) {
        self.earned = (self.earned + bytes as u64).min(SAVED_MAX * PART);
    }

    /// The path may carry a datagram more although others wait.
    pub(super) fn affords(&self, bytes: usize) -> bool {
        self.earned >= bytes as u64 * PART
    }

    /// It carries so many bytes as the second path although others wait.
    pub(super) fn spend(&mut self, bytes: usize) {
        self.earned = self.earned.saturating_sub(bytes as u64 * PART);
    }
}
