//! What the agent at the mobile router counts.

/// Counts of a [`Router`](super::Router) since it began.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RouterStats {
    /// Gaps that showed and were reported.
    pub gaps: u64,
    /// Gaps that showed while too many others were open, and were not.
    pub untracked: u64,
    /// SNACKs that were sent.
    pub snacks: u64,
    /// Gaps that were reported again since no answer came.
    pub repeated: u64,
    /// Gaps that were reported again since the answer was seen to be lost.
    pub lost_retransmissions: u64,
    /// Segments that came into a gap.
    pub recovered: u64,
    /// Congestion messages that came.
    pub congestions: u64,
    /// Gaps that had no answer, whose duplicates pass.
    pub given_up: u64,
    /// Segments that the router sent again, of its own cache.
    pub retransmitted: u64,
    /// Expiries of the local timer that made it do so.
    pub timeouts: u64,
    /// Duplicate acknowledgements that were kept back.
    pub suppressed: u64,
    /// Duplicate acknowledgements that passed.
    pub passed: u64,
    /// Duplicate acknowledgements that were made good.
    pub replayed: u64,
    /// Segments that gave way to others before they were acknowledged.
    pub evicted: u64,
    /// Segments that were not kept, since the cache was full.
    pub refused: u64,
}
