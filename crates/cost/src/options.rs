//! How thoroughly to measure.

/// How thoroughly to measure.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub(crate) name: &'static str,
    pub(crate) rounds: u32,
    /// What a round of one stack with one buffer size is to take, in nanoseconds.
    pub(crate) round: f64,
    /// Counts the process's memory allocations so far, if it can: allocations per packet are the
    /// difference.
    pub allocations: Option<fn() -> u64>,
    /// Whether to measure what needs namespaces: the kernel over a veth pair, and raw frames.
    pub namespaces: bool,
}

impl Options {
    /// Some ten seconds: good to a few percent on a quiet machine.
    pub fn quick() -> Self {
        Self { name: "quick", rounds: 31, round: 1e6, allocations: None, namespaces: true }
    }

    /// A minute on a quiet machine, a few on a busy one.
    pub fn full() -> Self {
        Self { name: "full", rounds: 151, round: 2e6, ..Self::quick() }
    }

    /// As little as exercises everything: for tests, which look at no time.
    #[doc(hidden)]
    pub fn tiny() -> Self {
        Self { name: "tiny", rounds: 3, round: 1e4, ..Self::quick() }
    }
}
