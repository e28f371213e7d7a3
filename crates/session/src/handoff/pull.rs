//! Fetching a state piece by piece.

use alloc::vec;
use alloc::vec::Vec;

use lasthop_wire::mhp::handoff::{PULL_MAX, Pieces};

/// A state that is being fetched.
#[derive(Debug)]
pub(super) struct Pull {
    piece: usize,
    window: u32,
    bytes: Vec<u8>,
    have: Vec<bool>,
    /// Pieces that are here.
    got: u32,
    /// Of those before `asked`.
    asked: u32,
}

impl Pull {
    /// For a state of `total` bytes, of which the first `window` pieces were asked for.
    pub(super) fn new(total: usize, piece: u16, window: u16) -> Self {
        let piece = usize::from(piece.max(1));
        let count = total.div_ceil(piece);
        let window = u32::from(window.max(1));
        Self {
            piece,
            window,
            bytes: vec![0; total],
            have: vec![false; count],
            got: 0,
            asked: window.min(count as u32),
        }
    }

    pub(super) fn total(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes that it takes, one for each piece included.
    pub(super) fn memory(&self) -> usize {
        self.bytes.len() + self.have.len()
    }

    /// A piece arrived; whether it is new.
    pub(super) fn add(&mut self, offset: u64, bytes: &[u8]) -> bool {
        let Ok(offset) = usize::try_from(offset) else { return false };
        let end = offset.saturating_add(self.piece).min(self.bytes.len());
        if offset % self.piece != 0 || offset >= end || end - offset != bytes.len() {
            return false;
        }
        let Some(have) = self.have.get_mut(offset / self.piece) else { return false };
        if core::mem::replace(have, true) {
            return false;
        }
        self.bytes[offset..end].copy_from_slice(bytes);
        self.got += 1;
        true
    }

    /// What has come from the beginning without a hole.
    pub(super) fn prefix(&self) -> &[u8] {
        let pieces = self.have.iter().take_while(|have| **have).count();
        &self.bytes[..self.bytes.len().min(pieces * self.piece)]
    }

    pub(super) fn is_complete(&self) -> bool {
        self.got as usize == self.have.len()
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The next pieces to ask for, once half the window is free.
    pub(super) fn next_run(&mut self) -> Option<Pieces> {
        let count = self.have.len() as u32;
        let outstanding = self.asked.saturating_sub(self.got);
        if self.asked >= count || outstanding > self.window / 2 {
            return None;
        }
        let n = (self.window - outstanding).min(count - self.asked);
        let run = Pieces { first: self.asked, count: n as u16 };
        self.asked += n;
        Some(run)
    }

    /// Pieces that were asked for and did not come, at most a window of them.
    pub(super) fn missing(&self) -> Vec<Pieces> {
        let mut runs: Vec<Pieces> = Vec::new();
        let mut room = self.window;
        let asked = self.have.iter().take(self.asked as usize).enumerate();
        for (at, _) in asked.filter(|(_, have)| !**have) {
            if room == 0 {
                break;
            }
            room -= 1;
            let full = runs.len() == PULL_MAX;
            match runs.last_mut() {
                Some(run) if run.first as usize + usize::from(run.count) == at => run.count += 1,
                _ if full => break,
                _ => runs.push(Pieces { first: at as u32, count: 1 }),
            }
        }
        runs
    }
}
